"""Containers on disk: one folder per attempt to run one, which says all there is to know of it.

    <pod uid>/containers/<container>/<number>/   spec  lock  started  exit  stop  lost  restarts  message  hooked
                                                 log.<bytes>.<lines> …

The shim (shim.py) holds `lock` while it lives and writes `started` and `exit`; Fairway writes `spec`, `stop`, `lost`
when a shim ends without `exit`, and `restarts` where they are fewer than its number; the container writes
`message` (health/words.py); `hooked` says that its postStart hook was run. So
after any crash an attempt is: held (it runs, and its shim's pid is the lock's), ended (`exit`), lost (`started` only)
or not started, and then starting it again is safe. The last two attempts stay here;
archive.py puts away the earlier ones.
"""

import marshal
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from fairway.kube.runs import LOST as LOST

from .containers.engine import contained, message_of
from .draft import keep_room, text_of, write_whole
from .lock import holder
from .pause.disk import IMAGE, MARK
from .pause.stand import ON_DISK, STILL, Stand, ask, note_unsaved, stand_of, unsaved

MESSAGE = "FAIRWAY_TERMINATION_LOG"
SWEEP_SECONDS = 10.0
SAVE_LOOK_SECONDS, MOST_LOOKS = 0.05, 1_200
SHIM = Path(__file__).with_name("shim.py")


@dataclass(frozen=True, slots=True)
class Attempt:
    """`pid`: of the shim that holds the lock, 0 if none does. `code`: None until it ended. `stopped`: why it was asked
    to stop. `reason`: why it never ran (StartError, CreateContainerError, CreateContainerConfigError)."""

    number: int
    folder: Path
    pid: int = 0
    started_at: float | None = None
    finished_at: float | None = None
    code: int | None = None
    stopped: str = ""
    reason: str = ""
    message: str = ""

    @property
    def id(self) -> str:
        """`fairway://` and the attempt's place among all of this machine."""
        uid, _, name, number = self.folder.parts[-4:]
        return f"fairway://{uid}/{name}/{number}"

    @property
    def restarts(self) -> int:
        """How often the container was started again before, for what its program did."""
        return int(text_of(self.folder / "restarts") or self.number) if self.number else 0

    @property
    def is_running(self) -> bool:
        return bool(self.pid) and self.started_at is not None

    @property
    def is_over(self) -> bool:
        return self.code is not None

    @property
    def is_unseen(self) -> bool:
        """Whether it was lost, and nothing has kept when."""
        return self.reason == LOST and not (self.folder / "lost").exists()

    @property
    def is_asked(self) -> bool:
        """Whether it was asked to stop."""
        return (self.folder / "stop").exists()


def inspect(folder: Path) -> Attempt:
    """The lock is asked first: a shim that is gone by then has written all it ever will."""
    number, pid = int(folder.name), holder(folder / "lock")
    started = text_of(folder / "started")
    began = int(started) / 1e9 if started else None
    ended = "" if pid else text_of(folder / "exit")
    if ended:
        head, _, message = ended.partition("\n")
        code, _, finished, stopped, reason = head.split()
        return Attempt(
            number, folder, 0, began, int(finished) / 1e9, int(code), stopped.strip("-"), reason.strip("-"), message
        )
    if started and not pid:
        message = "The container's process was lost: its keeper ended without telling how it ended."
        at, why = _lost(folder)
        return Attempt(number, folder, 0, began, at or began, 137, why, LOST, message)
    return Attempt(number, folder, pid, began)


def note_loss(folder: Path, now: float, why: str = "") -> None:
    """Its shim ended at `now`, in seconds: kept where the shim could not say how. `why`: what ended it, if that is
    known. On a full disk the log tells."""
    if folder.exists() and not (folder / "exit").exists():
        with suppress(OSError):
            write_whole(folder / "lost", f"{now} {why}".encode())


def keep_loss(last: Attempt) -> None:
    """Keeps when an attempt was lost that nobody saw end: the next look at it may come after the machine went down."""
    if last.is_unseen:
        note_loss(last.folder, last.finished_at or 0.0)


def note_unwoken(last: Attempt, why: str, reason: str) -> None:
    """Its processes did not wake, or cannot come back from disk: it is over."""
    said = text_of(last.folder / "exit").partition("\n")[0].split()
    write_whole(last.folder / "exit", f"{' '.join(said[:3])} {reason} -\n{why}".encode())
    shutil.rmtree(last.folder / IMAGE, ignore_errors=True)


def _lost(folder: Path) -> tuple[float, str]:
    """When it was lost, and why; where nobody saw that, when it last wrote to its log; 0 where it wrote nothing."""
    if noted := text_of(folder / "lost"):
        at, _, why = noted.partition(" ")
        return float(at), why
    return max((it.stat().st_mtime for it in folder.glob("log.*")), default=0.0), ""


def history(folder: Path) -> tuple[Attempt, ...]:
    """The attempts of a container that are kept, oldest first."""
    numbers = list[int]()
    with suppress(FileNotFoundError):
        numbers = sorted(map(int, os.listdir(folder)))
    return tuple(inspect(folder / str(number)) for number in numbers)


def prepare(folder: Path, attempts: Sequence[Attempt], spec: dict[str, Any], *, is_own: bool = True) -> Path:
    """The folder of the next attempt, ready to be started; an attempt that has not started yet is the next one.
    `is_own`: whether it follows from what its program did, and counts as a restart."""
    last = attempts[-1] if attempts else None
    is_new = last is not None and last.started_at is not None
    place = folder / str(last.number + is_new if last else 0)
    place.mkdir(parents=True, exist_ok=True)
    restarts = last.restarts + is_own if last and is_new else 0
    if is_new and str(restarts) != place.name:
        write_whole(place / "restarts", str(restarts).encode())
    spec["env"][MARK] = str(place)
    _open_message(place / "message", spec)
    keep_room(place / "stop")
    write_whole(place / "spec", marshal.dumps(contained(spec, place)))
    return place


def _open_message(file: Path, spec: dict[str, Any]) -> None:
    """Makes the file of a container's last words, and says where it is. What another user runs sees only the mount."""
    file.touch(mode=0o600)
    if "engine" in spec:
        message_of(file, spec)
        return
    if user := spec["user"]:
        os.chown(file, user["uid"], user["gid"])
    else:
        spec["env"][MESSAGE] = str(file)
    if path := spec["message"]:
        spec["mounts"] = [*spec["mounts"], (str(file), "", path, False, None)]


class Nursery:
    """What forks the shims (shim.py); made at the first launch, and again if it was killed."""

    def __init__(self) -> None:
        self._asked: socket.socket | None = None

    def launch(self, place: Path) -> int:
        """Starts a shim; a pipe that is closed when its process runs, or never will."""
        read, write = os.pipe()
        try:
            if not self._ask(place, write) and not self._ask(place, write):
                raise OSError(f"{place}: no shim can be started")
        except OSError:
            os.close(read)
            raise
        finally:
            os.close(write)
        return read

    def _ask(self, place: Path, pipe: int) -> bool:
        asked = self._asked = self._asked or _nursery()
        try:
            return bool(socket.send_fds(asked, [os.fsencode(place)], [pipe]))
        except OSError:
            self.close()
            return False

    def close(self) -> None:
        """Shims that run are not touched."""
        if self._asked:
            self._asked.close()
        self._asked = None


def _nursery() -> socket.socket:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Some builds of Python find their own library only by this variable.
    env = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
    command = [sys.executable, "-I", "-S", "-E", str(SHIM)]
    nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    with its:
        os.posix_spawn(command[0], command, env, file_actions=[(os.POSIX_SPAWN_DUP2, its.fileno(), 0), *nowhere])
    return ours


def stop(attempt: Attempt, grace: float, why: str) -> None:
    """Asks the shim to end its container; asking again changes nothing unless the grace is shorter."""
    write_whole(attempt.folder / "stop", f"{max(grace, 0.0):.3f} {why}".encode())
    wake(attempt)


def wake(attempt: Attempt) -> None:
    """Has the shim look at what is asked of it."""
    with suppress(ProcessLookupError):
        file = os.pidfd_open(attempt.pid)
        try:
            if holder(attempt.folder / "lock") == attempt.pid:
                signal.pidfd_send_signal(file, signal.SIGTERM)
        finally:
            os.close(file)


def stop_all(folder: Path, why: str, *, at_most: float | None = None) -> bool:
    """Ends every container under the folder of all pods, each with its own grace, and waits until they are gone;
    whether any ran."""
    those = running(folder)
    left = save_all(those) if at_most is None else those
    graces = [marshal.loads((it.folder / "spec").read_bytes())["grace"] for it in left]
    for attempt, grace in zip(left, graces):
        stop(attempt, grace if at_most is None else min(grace, at_most), why)
    for attempt in left:
        _await_end(attempt)
    return bool(those)


def running(folder: Path) -> list[Attempt]:
    """What runs under the folder of all pods."""
    places = [place.parent for place in folder.glob("*-*/containers/*/*/lock")]
    return [attempt for attempt in map(inspect, places) if attempt.pid]


def save_all(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Brings to disk those that are frozen, where that is possible; the others are left."""
    frozen = [it for it in attempts if stand_of(it.folder).step == STILL]
    for attempt in frozen:
        note_unsaved(attempt.folder, "")
        if ask(attempt.folder, Stand(ON_DISK, stand_of(attempt.folder).request)):
            wake(attempt)
    for attempt in frozen:
        for _ in range(MOST_LOOKS):
            if unsaved(attempt.folder) or _await_end(attempt, SAVE_LOOK_SECONDS):
                break
    return [it for it in attempts if holder(it.folder / "lock") == it.pid]


def _await_end(attempt: Attempt, at_most: float | None = None) -> bool:
    """Whether its shim has ended."""
    with suppress(ProcessLookupError):
        file = os.pidfd_open(attempt.pid)
        try:
            if holder(attempt.folder / "lock") == attempt.pid:
                return bool(select.select([file], [], [], at_most)[0])
        finally:
            os.close(file)
    return True


def sweep(place: Path) -> None:
    """Kills what a lost attempt left running: every process that carries its mark, or that of an earlier attempt, for
    what came back from disk has that; what is in its cgroups, as what was half back from disk is without a mark; and
    what an engine has of it. Returns when they have ended."""
    spec: dict[str, Any] = {}
    with suppress(FileNotFoundError):
        spec = marshal.loads((place / "spec").read_bytes())
        if remove := spec.get("remove"):
            subprocess.run(remove, env=spec["env"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    while _kill(f"{place.parent}/", _members(spec.get("cgroups", ()))):
        pass  # one that was killed may have had another child meanwhile


def _members(cgroups: Iterable[str]) -> set[int]:
    found: set[int] = set()
    for each in cgroups:
        with suppress(OSError):
            found.update(map(int, Path(each, "cgroup.procs").read_text().split()))
    return found


def _kill(mark: str, members: Container[int]) -> bool:
    """Those with the mark and these; whether there were any, and all have ended."""
    files = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if process.pid in members or process.environ().get(MARK, "").startswith(mark):
                files.append(os.pidfd_open(process.pid))
                process.kill()
    ended = [bool(select.select([file], [], [], SWEEP_SECONDS)[0]) for file in files]  # whether reaped or not
    for file in files:
        os.close(file)
    return bool(files) and all(ended)
