"""One GPU, one cluster: a lock for each GPU of the machine, which every `fairway up` takes before it offers the GPU.

The locks are files named after the GPU's UUID in folders that all users of the machine share. A cluster locks a GPU in
each of these folders that it can use, so that two clusters with different permissions still meet. The kernel frees the
locks when the process ends, however it ends. Other users can write in these folders too: links are not followed, and
nothing is trusted that a file says. A GPU without a UUID (a fake one) is private to its cluster.
"""

import fcntl
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from .cards import Card
from .lock import holder_of
from .machine import Gpu, Machine

FOLDER = "fairway-gpus"
PLACES = (Path("/run/lock"), Path("/tmp"))
SHARED_FOLDER, SHARED_FILE = 0o1777, 0o666
_NAMED = 4096  # bytes read of the name of another data directory


@dataclass(frozen=True, slots=True)
class Claims:
    """The GPUs, of whichever maker, that this process holds, and a line for each that it does not."""

    gpus: tuple[Gpu | Card, ...]
    missing: tuple[str, ...]

    def left_of(self, machine: Machine) -> Machine:
        """The machine with the GPUs that are held."""
        own = tuple(it for it in self.gpus if isinstance(it, Gpu))
        return replace(machine, gpus=own, cards=tuple(it for it in self.gpus if isinstance(it, Card)))


@contextmanager
def claimed(gpus: Sequence[Gpu | Card], data_dir: Path, places: Sequence[Path] = PLACES) -> Iterator[Claims]:
    """Holds those of the GPUs that no other cluster holds, until it is left."""
    with ExitStack() as held:
        folders = [folder for place in places if (folder := _folder(place)) is not None] if any_real(gpus) else []
        for folder in folders:
            held.callback(os.close, folder)
        ours, missing = [], []
        for gpu in gpus:
            other = _claim(gpu, str(data_dir), folders, held) if gpu.uuid else ""
            if other:
                missing.append(f"GPU {gpu.index} ({gpu.uuid}) is not offered: {other} holds it")
            else:
                ours.append(gpu)
        if any_real(gpus) and not folders:
            missing.append(f"the GPUs are not locked against other clusters: neither {' nor '.join(map(str, places))} "
                           f"can hold {FOLDER}")
        yield Claims(tuple(ours), tuple(missing))


def any_real(gpus: Sequence[Gpu | Card]) -> bool:
    return any(gpu.uuid for gpu in gpus)


def _folder(place: Path) -> int | None:
    """The shared folder in `place`, open; None where there cannot be one."""
    path = place / FOLDER
    with suppress(OSError):
        path.mkdir()
        path.chmod(SHARED_FOLDER)
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None


def _claim(gpu: Gpu | Card, data_dir: str, folders: Sequence[int], held: ExitStack) -> str:
    """Empty: the GPU is locked in every folder. Else which cluster holds it; then it is locked in none."""
    with ExitStack() as files:
        for folder in folders:
            file = _opened(folder, re.sub(r"[^A-Za-z0-9-]", "_", gpu.uuid))
            if file is None:
                continue
            files.callback(os.close, file)
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return _holder(file)
            os.ftruncate(file, 0)
            os.pwrite(file, data_dir.encode(), 0)
        held.push(files.pop_all())
    return ""


def _opened(folder: int, name: str) -> int | None:
    """The lock file, made where it is absent; None for what is no plain file, or cannot be opened."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
    with suppress(OSError):
        file = os.open(name, flags | os.O_CREAT | os.O_EXCL, SHARED_FILE, dir_fd=folder)
        os.fchmod(file, SHARED_FILE)  # whatever the umask
        return file
    with suppress(OSError):
        file = os.open(name, flags, dir_fd=folder)
        status = os.fstat(file)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            return file
        os.close(file)
    return None


def _holder(file: int) -> str:
    pid, said = holder_of(file), os.pread(file, _NAMED, 0).decode(errors="replace")
    where = f" of {said}" if said.isprintable() and said else ""
    return f"the cluster{where} (pid {pid})" if pid else f"the cluster{where}"
