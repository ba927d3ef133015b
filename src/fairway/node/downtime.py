"""When this machine last went down with all that ran on it, and when it came back: the file `down` beside the pods.

`began ended boot`: seconds, and the boot at which a cluster last started. Stopped in order, the cluster writes when
the last container had ended. Else the next start finds out, before it writes anything: the machine went down where
none of the containers that ran is left, or where it was booted again. It lived until the last sign of life: the
database's last commit, which is renewed every few seconds, what a program wrote, or how its shim saw it end. Where a
single container is left the machine was up all the time, and containers that ended without a shim's word are lost.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fairway.api.quantities import time_text

from .container import Attempt, history, note_loss
from .draft import text_of, write_whole
from .podstatus import SHUTDOWN

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Downtime:
    """`began` 0.0: it never went down. `ended` before `began`: it has not come back."""

    began: float = 0.0
    ended: float = 0.0
    boot: str = "-"

    @property
    def note(self) -> str:
        """From when until when, as a Node says it; "" for never."""
        return f"{time_text(self.began)}/{time_text(self.ended)}" if self.began else ""


def note_end(pods: Path, now: float) -> None:
    """All containers have ended, since the cluster is stopped."""
    _write(pods, replace(_read(pods), began=now))


def downtime(folder: Path, now: float) -> Downtime:
    """When the machine of a data directory last went down; noted where a cluster that starts at `now` finds it."""
    pods = folder / "pods"
    known, boot = _read(pods), text_of(BOOT_ID).strip() or "-"
    found = replace(known, boot=boot)
    if known.began > known.ended:
        found = replace(found, ended=now)
    elif (began := _unnoticed(folder, known, boot)) > known.began:
        found = replace(found, began=began, ended=max(now, began))
    if found != known:
        with suppress(OSError):  # a full disk: the next start finds the same
            pods.mkdir(mode=0o700, exist_ok=True)
            _write(pods, found)
    return found


def _unnoticed(folder: Path, known: Downtime, boot: str) -> float:
    """When it went down without a word, 0.0 if it did not. What was lost by that ends then, and starts again as after
    an orderly end."""
    pods, database = folder / "pods", [it for it in folder.glob("state.db*") if it.is_file()]
    lasts = [it for place in pods.glob("*-*/containers/*") for it in history(place)[-1:]]
    if any(it.pid for it in lasts):
        return 0.0
    gone = list(_gone(lasts, known.began))
    lost = [it for it in gone if it.is_unseen]
    is_restored = bool(database) and not pods.exists()
    if not gone and not is_restored and known.boot in ("-", boot):
        return 0.0
    signs = [it.finished_at or 0.0 for it in gone]
    signs += [it.stat().st_mtime for it in database] if lost or not gone else []
    began = max(signs, default=0.0)
    for each in lost:
        note_loss(each.folder, began, SHUTDOWN)
    return began


def _gone(lasts: Sequence[Attempt], began: float) -> Iterator[Attempt]:
    """Those that ended with the machine after `began`, as far as nobody saw them end otherwise."""
    for each in lasts:
        if (each.stopped == SHUTDOWN or each.is_unseen) and (each.finished_at or 0.0) > began:
            yield each


def _read(pods: Path) -> Downtime:
    began, ended, boot = (text_of(pods / "down").split() or ("0", "0", "-"))[:3]
    return Downtime(float(began), float(ended), boot)


def _write(pods: Path, said: Downtime) -> None:
    write_whole(pods / "down", f"{said.began} {said.ended} {said.boot}".encode())
