"""A full disk: space kept back for the writes that end jobs, and what fills the disk.

The reserve is a file beside the database. When a write finds no space, a part of the reserve is freed and the write is
tried again; from then on nothing new is created until there is space for the whole reserve again. So jobs can be
cancelled and deleted on a full disk, which is what frees space. It is freed in parts, since a program that fills the
disk takes what it can get.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fairway.api.names import short_name
from fairway.node.archive import read_origin

PARTS = 4
RESERVE_BYTES = 8 << 20
SHOWN = 3  # of the largest things in a folder


class Reserve:
    """`size` 0: none is kept. `free` to `fill` belong to the thread of the database."""

    def __init__(self, path: Path, size: int) -> None:
        self._path, self.size, self._held = path, size, 0

    @property
    def is_low(self) -> bool:
        return self._held < self.size

    def free(self) -> bool:
        """Frees a part; False if nothing is left."""
        if not self._held:
            return False
        self._held -= self.size // PARTS
        os.truncate(self._path, self._held)
        return True

    def start(self) -> None:
        """Frees what the last process kept: a start needs space too."""
        self._path.unlink(missing_ok=True)

    def fill(self) -> None:
        """Keeps back the whole size again, if as much stays free."""
        if not self.is_low or free_bytes(self._path.parent) < 2 * self.size:
            return
        file = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            os.posix_fallocate(file, 0, self.size)
            self._held = self.size
        except OSError:
            os.ftruncate(file, self._held)
        finally:
            os.close(file)


def free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def usage(folder: Path, namespace: str) -> str:
    """How much is free, what takes most of a data directory, and whose it is: jobs of the reader's `namespace` and the
    folders of their logs are named, of others none is."""
    text, whose = _largest(Counter({name: size for size, name in _sizes(folder)})), Counter[str]()
    for size, name in _sizes(folder / "pods"):
        said = read_origin(folder / "pods" / name)
        own = f"job {short_name(said.workload)}" if said else name
        whose[own if not said or said.namespace == namespace else "jobs of other namespaces"] += size
    for size, space in _sizes(folder / "logs"):
        own = Counter({f"logs/{space}/{name}": most for most, name in _sizes(folder / "logs" / space)})
        whose.update(own if space == namespace else {"logs of other namespaces": size})
    names = _largest(whose)
    return f"{shown(free_bytes(folder))} free; in {folder}: {text}" + (f" (of it: {names})" if names else "")


def _largest(sizes: Counter[str]) -> str:
    return ", ".join(f"{name} {shown(size)}" for name, size in sizes.most_common(SHOWN))


def _sizes(folder: Path) -> Iterator[tuple[int, str]]:
    """Bytes on disk and name of each thing in the folder, if there is one."""
    for entry in os.scandir(folder) if folder.is_dir() else ():
        size = _blocks(entry)
        if entry.is_dir(follow_symlinks=False):
            for place, folders, files in os.walk(entry.path):
                size += sum(_blocks(Path(place, name)) for name in (*folders, *files))
        yield size, entry.name


def _blocks(file: Path | os.DirEntry[str]) -> int:
    try:
        return os.lstat(file).st_blocks * 512
    except OSError:  # gone meanwhile
        return 0


def shown(size: float) -> str:
    """Bytes in the largest unit below them: 3.1 GiB."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GiB"
