"""The data directory of a cluster of this machine, from outside: its lock, its start in the background, and its end.

What serves is not imported: to load it takes longer than all that is done here.
"""

import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from fairway.clock import Clock
from fairway.node.lock import holder

LOOK_SECONDS = 0.02
LEAVE_PODS = signal.SIGUSR1


class UpError(Exception):
    """The cluster cannot be started or stopped: one line, what is wrong and what to do."""


def check_free(folder: Path) -> None:
    """An UpError where a cluster runs on it; whether another user's does, only its own `up` finds out."""
    with suppress(PermissionError):
        if holder(folder / "lock"):
            raise _taken(folder)


def _taken(folder: Path) -> UpError:
    return UpError(f"a cluster runs on {folder} already; `fairway down --data-dir {folder}` stops it")


async def down(folder: Path, clock: Clock, *, keeps_pods: bool = False) -> None:
    """Ends the cluster of a data directory, or what a killed one left running, and waits until it is gone; an UpError
    where there is neither."""
    try:
        pid = holder(folder / "lock")
    except PermissionError as error:
        raise UpError(f"{folder} is another user's; only that user, or root, stops a cluster there") from error
    if not pid and not keeps_pods:
        from fairway.node.container import stop_all
        from fairway.node.downtime import note_end
        from fairway.node.podstatus import SHUTDOWN

        pods = folder / "pods"
        if await clock.in_thread(partial(stop_all, pods, SHUTDOWN)):
            note_end(pods, clock.now())
            return
    if not pid:
        raise UpError(f"no cluster runs on {folder}")
    with suppress(ProcessLookupError):
        os.kill(pid, LEAVE_PODS if keeps_pods else signal.SIGTERM)
    while holder(folder / "lock") == pid:
        await clock.sleep(LOOK_SECONDS)


async def detach(command: Sequence[str], folder: Path, clock: Clock) -> None:
    """Starts `command`, a `fairway up` on this data directory, in the background; returns when it is ready."""
    with os.fdopen(_opened(folder, "up.log"), "ab") as log:
        start = log.tell()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    while small_text(folder / "ready") != str(child.pid):
        if child.poll() is not None:
            said = (folder / "up.log").read_bytes()[start:].decode(errors="replace").strip()
            last = said.rpartition("\n")[2].removeprefix("fairway: ")
            raise UpError(last or f"the cluster ended at once; see {folder / 'up.log'}")
        await clock.sleep(LOOK_SECONDS)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The lock of a data directory. A POSIX lock: closing any file of that name in this process would lose it."""
    lock = _opened(folder, "lock")
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise _taken(folder) from error
    try:
        yield
    finally:
        (folder / "ready").unlink(missing_ok=True)
        os.close(lock)


def _opened(folder: Path, name: str) -> int:
    """A file of a data directory, for its owner only; both are made where they are not."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(folder / name, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
    except OSError as error:
        why = f"{folder} cannot be a data directory: {error.filename}: {error.strerror}; choose another with --data-dir"
        raise UpError(why) from error


def small_text(path: Path) -> str:
    """The text of a small file; empty where there is none that can be read."""
    with suppress(OSError):
        return path.read_text(errors="replace").strip()
    return ""
