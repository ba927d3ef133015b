"""The logs of containers, read from the files that the shim writes (its format: time, stream, F or P, text).

All of an attempt's files count as one log, the oldest first. A line that goes on (P) is joined with the next. To follow
is to look again four times a second until the container has ended; rotation on the way loses and repeats nothing.
"""

import os
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from fairway.clock import Clock

from .container import history, inspect

PAUSE_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What part of a container's log. `since`: seconds since the epoch."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: float | None = None


async def read_log(container: Path, options: LogOptions, clock: Clock) -> bytes | AsyncIterator[bytes]:
    """The log of a container's last attempt, or of the one before; with `follow` a stream."""
    attempts = history(container)
    chosen = attempts[:-1] if options.previous else attempts
    if not chosen:
        return b""
    tail = Tail(chosen[-1].folder)
    text = await clock.in_thread(lambda: shown(tail.lines(), options))
    if options.follow and not options.previous:
        return _followed(text, tail, options, clock)
    return text[: options.limit_bytes]


class Tail:
    """The lines of one attempt's log, each once. Files are known by their inode, so that renaming is no matter.

    The newest is held open: the last words of a pod that is being deleted are read even when its folder is gone."""

    def __init__(self, attempt: Path) -> None:
        self.attempt = attempt
        self._read: dict[int, int] = {}
        self._newest: tuple[int, BinaryIO] | None = None

    def lines(self) -> Iterator[bytes]:
        """The whole lines that were not given yet."""
        with ExitStack() as stack:
            files: dict[int, BinaryIO] = {}
            for name in sorted(self.attempt.glob("log*")):
                # The newest first: a file that is renamed meanwhile is met twice, not missed.
                with suppress(FileNotFoundError):
                    file = stack.enter_context(name.open("rb"))
                    files[os.fstat(file.fileno()).st_ino] = file
            if files:
                self._hold(*next(iter(files.items())))
            elif self._newest:
                files = dict([self._newest])
            for inode, file in reversed(files.items()):
                yield from self._rest(inode, file)

    def _hold(self, inode: int, file: BinaryIO) -> None:
        if self._newest is None or self._newest[0] != inode:
            self._newest = inode, os.fdopen(os.dup(file.fileno()), "rb")

    def _rest(self, inode: int, file: BinaryIO) -> Iterator[bytes]:
        start = self._read.get(inode, 0)
        file.seek(start)
        whole, newline, _ = file.read().rpartition(b"\n")
        self._read[inode] = start + len(whole) + len(newline)
        if newline:
            yield from whole.split(b"\n")

    def is_over(self) -> bool:
        """Nobody writes any more: it ended, was lost, or went with its pod."""
        return not inspect(self.attempt).pid


def shown(lines: Iterable[bytes], options: LogOptions) -> bytes:
    """What is asked of the lines, as it is sent."""
    since = datetime.fromtimestamp(options.since or 0, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()
    kept = (line for line in lines if line[: len(since)] >= since)
    return b"".join(_line(line, options) for line in deque(kept, options.tail_lines))


def _line(line: bytes, options: LogOptions) -> bytes:
    moment, _, mark, text = line.split(b" ", 3)
    text = moment + b" " + text if options.timestamps else text
    return text + b"\n" if mark == b"F" else text


async def _followed(text: bytes, tail: Tail, options: LogOptions, clock: Clock) -> AsyncIterator[bytes]:
    rest = LogOptions(timestamps=options.timestamps)
    left, was_over = options.limit_bytes, False
    while True:
        if text:
            yield text[:left]
        if left is not None:
            left -= len(text)
        if was_over or (left is not None and left <= 0):
            return
        was_over = tail.is_over()
        if not was_over:
            await clock.sleep(PAUSE_SECONDS)
        text = shown(tail.lines(), rest)
