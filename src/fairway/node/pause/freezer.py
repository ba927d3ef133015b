"""What freezes the processes of one container and lets them go on: a program, started by the shim for its own tree.

It goes step by step to where `pause` says, looks there again after each, and writes after each how far it is, so that
it can be killed at any moment; the shim starts it again. A step up that fails is undone with all before it, and
`paused` says why; then nothing is tried again for the same request. A process is stopped by SIGSTOP, and its children,
until none is new. What has its GPU memory in host memory when it is to stop is killed: it cannot hear a signal, and its
GPUs are others'.
"""

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fairway.node.enclosure import end_with_parent

from .cuda import CHECKPOINTED, LOCKED, Cuda, CudaError
from .cuda import RUNNING as IS_RUNNING
from .disk import DiskError, dump, program
from .stand import LOCKED as IS_LOCKED
from .stand import ON_DISK, SAVED, STILL, Stand, asked, note_unsaved, stand_of, write_stand

LOCK_SECONDS = 10.0
MOST_LOOKS, LOOKS_PER_TRY, LOOK_SECONDS = 2_500, 25, 0.002
DEAD = "ZXx"
STOPPED = f"Tt{DEAD}"  # or it will never run again


class CannotError(Exception):
    """A step that cannot be done: one line."""


class Freezer:
    """`root` is the shim, which stays awake; `library` the CUDA driver."""

    def __init__(self, folder: Path, root: int, *, library: str = "") -> None:
        self.folder, self.root, self.library = folder, root, library
        self.stand = stand_of(folder)

    def run(self) -> None:
        """Until it is where `pause` says, or cannot get there."""
        while (wanted := asked(self.folder)).step != self.stand.step:
            if wanted.step > self.stand.step and self.stand.failed(wanted.request):
                return
            try:
                if wanted.step > self.stand.step:
                    self._up(wanted.request)
                elif not self._down():
                    return
            except (CannotError, CudaError, DiskError, OSError) as error:
                self._fail(wanted.request, str(error), is_rising=wanted.step > self.stand.step)
                return
        if self.stand.step == ON_DISK:
            self._send(signal.SIGKILL)

    def _note(self, step: int, request: str, pids: tuple[int, ...], why: str = "") -> None:
        self.stand = Stand(step, request, why, pids)
        write_stand(self.folder, self.stand)

    def _up(self, request: str) -> None:
        step, pids = self.stand.step + 1, self.stand.pids
        if step == IS_LOCKED:
            pids = tuple(pid for pid in self._tree() if uses_gpu(pid))
            self._note(0, request, pids)
            for pid in self._not_yet(LOCKED):
                self._cuda().lock(pid, LOCK_SECONDS)
        elif step == SAVED:
            for pid in self._not_yet(CHECKPOINTED):
                self._cuda().checkpoint(pid)
        elif step == STILL:
            self._halt()
        elif step == ON_DISK:
            self._save(has_gpu=bool(pids))
        self._note(step, request, pids)

    def _save(self, *, has_gpu: bool) -> None:
        """All in one image: what has left the first process's tree cannot be in it. An earlier CRIU may have let
        some go on."""
        note_unsaved(self.folder, "")
        self._await_criu()
        self._halt()
        others = [pid for pid in children(self.root) if pid != os.getpid() and state_of(pid) not in DEAD]
        if len(others) != 1:
            raise CannotError("some of its processes have left the first one")
        dump(self.folder, others[0], list(self._tree()), has_gpu=has_gpu)

    def _await_criu(self) -> None:
        """That of a freezer that was killed. Were it killed too, the program would crash on code that it left there. A
        user may stop it, or run another: then others wait for the disk no longer than this."""
        path = os.path.realpath(program())
        for _ in range(int(LOCK_SECONDS / LOOK_SECONDS)):
            if not any(file_of(pid) in (path, "") for pid in children(self.root)):
                return
            select.select((), (), (), LOOK_SECONDS)
        raise CannotError("another CRIU is at work on it")

    def _down(self) -> bool:
        """One step; False where it is over with the processes."""
        step, pids = self.stand.step, self.stand.pids
        if step == STILL:
            if pids and (self.folder / "stop").exists():
                self._send(signal.SIGKILL)
                return False
            self._send(signal.SIGCONT)
        for pid in self._not_yet(LOCKED) if step == SAVED else ():
            self._cuda().restore(pid)
        for pid in self._not_yet(IS_RUNNING) if step == IS_LOCKED else ():
            self._cuda().unlock(pid)
        self._note(step - 1, self.stand.request, pids)
        return True

    def _fail(self, request: str, why: str, *, is_rising: bool) -> None:
        """What cannot rise goes back to the beginning; what cannot go back, or not to disk, stays where it is."""
        if is_rising and self.stand.step == STILL:
            note_unsaved(self.folder, why)
            return
        if not is_rising:
            self._note(self.stand.step, request, self.stand.pids, why)
            return
        self._send(signal.SIGCONT)
        for pid in self.stand.pids:
            with suppress(CudaError):
                if self._cuda().state(pid) == CHECKPOINTED:
                    self._cuda().restore(pid)
        for pid in self.stand.pids:
            with suppress(CudaError):
                if self._cuda().state(pid) == LOCKED:
                    self._cuda().unlock(pid)
        self._note(0, request, (), why)

    def _not_yet(self, state: int) -> Iterator[int]:
        """Its processes with a GPU that have another state: a freezer that was killed has brought some there."""
        return (pid for pid in self.stand.pids if self._cuda().state(pid) != state)

    def _cuda(self) -> Cuda:
        return Cuda(self.library) if self.library else Cuda()

    def _halt(self) -> None:
        """Stops every process; a new one is found because its parent was listed while that still ran. A parent that
        waits for its child's exec (vfork) stops only after it: such a pair is let go on now and then."""
        before: list[int] = []
        for look in range(1, MOST_LOOKS):
            pids = list(self._tree())
            moving = [pid for pid in pids if state_of(pid) not in STOPPED]
            if not moving and pids == before:
                return
            before = pids
            for pid in moving:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            if look % LOOKS_PER_TRY == 0:
                self._send(signal.SIGCONT)
            select.select((), (), (), LOOK_SECONDS)
        raise CannotError(f"process {(moving or [self.root])[0]} does not stop")

    def _send(self, number: int) -> None:
        for pid in self._tree():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _tree(self) -> Iterator[int]:
        """All descendants of the shim but this program."""
        left = [self.root]
        while left:
            for child in children(left.pop()):
                if child != os.getpid():
                    left.append(child)
                    yield child


def children(pid: int) -> list[int]:
    """Those of all its threads."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def file_of(pid: int) -> str:
    """The path of what it executes; "" where it is dead or dying."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return os.readlink(f"/proc/{pid}/exe")
    return ""


def state_of(pid: int) -> str:
    """A letter, as `ps` shows it."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "X"


def uses_gpu(pid: int) -> bool:
    """Whether it has a device file of an NVIDIA GPU open."""
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{number}").startswith("/dev/nvidia"):
                    return True
    return False


def main() -> None:
    """Arguments: the folder of the attempt, the pid of its shim, with which it ends."""
    end_with_parent()
    Freezer(Path(sys.argv[1]), int(sys.argv[2])).run()
