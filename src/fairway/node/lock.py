"""Whether a process holds a lock file, and its pid. Imports nothing heavy: every command asks."""

import fcntl
import os
import struct
from pathlib import Path

FLOCK = "hhqqi"  # struct flock on 64-bit Linux: type, whence, start, length, pid


def holder(lock: Path) -> int:
    """The pid of the process that holds a lock; 0 if none does. To ask does not take the lock."""
    try:
        file = os.open(lock, os.O_RDWR)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    try:
        return holder_of(file)
    finally:
        os.close(file)


def holder_of(file: int) -> int:
    """The same of an open file. To close it would free a lock of this process on it."""
    asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = struct.unpack(FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    return 0 if kind == fcntl.F_UNLCK else int(pid)
