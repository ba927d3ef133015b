"""Small files that are there whole or not at all, whoever is killed meanwhile. Only their owner reads them.

On a disk that is full to the last byte a file can still be written for which room was kept.
"""

import os
from contextlib import suppress
from pathlib import Path

SPARE_BYTES = 4096


def keep_room(path: Path) -> None:
    """Takes room for a small file that is to be written, once, whatever fills the disk until then."""
    spare = _spare(path)
    with suppress(OSError):
        _write(spare, bytes(SPARE_BYTES))


def write_whole(path: Path, content: bytes) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _write(draft, content)
    except OSError:
        draft.unlink(missing_ok=True)
        if not (draft := _spare(path)).exists():
            raise
        with draft.open("r+b") as file:  # its blocks are written again: none are needed
            file.write(content)
            file.truncate()
    draft.rename(path)


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(content)


def _spare(path: Path) -> Path:
    return path.with_name(f".{path.name}.spare")


def text_of(path: Path) -> str:
    """Its text; "" where there is no such file."""
    with suppress(FileNotFoundError), open(path, "rb", buffering=0) as file:  # half the cost of reading it as text
        return file.readall().decode()
    return ""
