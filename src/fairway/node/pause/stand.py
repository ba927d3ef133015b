"""How far an attempt is frozen, and how far it is to be: two small files in its folder, each written whole.

    pause    <step> <request>                               what the runner asks; absent: nothing is frozen
    paused   <step> <request> <why> / <pids with a GPU>     what is so; absent: nothing is frozen
    unsaved  <why>                                          why the frozen processes could not be written to disk
"""

from dataclasses import dataclass
from pathlib import Path

from fairway.node.draft import text_of, write_whole

RUNNING, LOCKED, SAVED, STILL, ON_DISK = range(5)


@dataclass(frozen=True, slots=True)
class Stand:
    """`why`: what kept it from going on, for this request. `pids`: its processes with a GPU."""

    step: int = RUNNING
    request: str = ""
    why: str = ""
    pids: tuple[int, ...] = ()

    def failed(self, request: str) -> bool:
        return bool(self.why) and self.request == request


def asked(folder: Path) -> Stand:
    step, _, request = text_of(folder / "pause").partition(" ")
    return Stand(int(step or RUNNING), request)


def stand_of(folder: Path) -> Stand:
    head, _, pids = text_of(folder / "paused").partition("\n")
    step, request, why = [*head.split(" ", 2), "", "", ""][:3]
    return Stand(int(step or RUNNING), request, why, tuple(map(int, pids.split())))


def unsaved(folder: Path) -> str:
    """Why the last attempt to write its processes to disk failed; "" where none did."""
    return text_of(folder / "unsaved")


def note_unsaved(folder: Path, why: str) -> None:
    """Notes why they could not be written to disk; "" before another attempt."""
    if why:
        write_whole(folder / "unsaved", why.encode())
    else:
        (folder / "unsaved").unlink(missing_ok=True)


def write_stand(folder: Path, stand: Stand) -> None:
    said = f"{stand.step} {stand.request} {stand.why}\n{' '.join(map(str, stand.pids))}"
    write_whole(folder / "paused", said.encode())


def ask(folder: Path, wanted: Stand) -> bool:
    """Asks for a step; whether that is news. RUNNING needs no request."""
    if asked(folder) == wanted:
        return False
    if wanted.step == RUNNING:
        (folder / "pause").unlink(missing_ok=True)
    else:
        write_whole(folder / "pause", f"{wanted.step} {wanted.request}".encode())
    return True
