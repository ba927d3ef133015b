"""The log of one run of a container, read from the files that the shim writes (its format: time, stream, F or P, text).

A position in a log is a number of bytes since its beginning, whatever the files; each file's name says where it starts.
So rotation repeats nothing, and what is missing (rotated away, not written on a full disk, removed) is found as a gap
and reported at its place. A log is read in pieces of whole lines, so that memory is bounded however long it is.
Following means to look again four times a second until the run has ended.
"""

import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fairway.clock import Clock

from .container import inspect
from .draft import write_whole
from .shim import FILE_BYTES, FILES

PAUSE_SECONDS = 0.25
PIECE_BYTES = 256 << 10
HEAD = len("2026-11-21T10:00:00.000000000Z stdout F ")  # stderr is as long
MOMENT, MARK = HEAD - 9, HEAD - 2
FILE = re.compile(r"log\.(\d+)\.(\d+)(\.lost)?")
REMOVED = "removed"
ROTATED, LOST = "rotated", "lost"
WHY = {
    ROTATED: f"at most {FILES * FILE_BYTES >> 20} MiB of one run are kept, the time of each line included",
    LOST: "the disk was full",
    REMOVED: "all logs together were larger than the setting logGib",
}


@dataclass(slots=True)
class Place:
    """How far a log was read: bytes and lines, as they are on disk."""

    at: int = 0
    lines: int = 0


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What part of a log. `since`: seconds since the epoch; `place`: where to begin, and then how far it was read."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: float | None = None
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Text that is missing at this place. `why`: rotated (more was written than is kept), lost (the disk was full) or
    removed (all logs together were too large). `size`: in bytes on disk."""

    why: str
    size: int
    lines: int

    def __str__(self) -> str:
        written = max(0, self.size - self.lines * HEAD)  # what the program wrote: the heads of the lines are ours
        shown = f"{written / (1 << 20):,.1f} MiB" if written >= 1 << 20 else f"{written / (1 << 10):.1f} KiB"
        ends = ("", "is") if self.lines == 1 else ("s", "are")
        return f"{self.lines:,} line{ends[0]} ({shown}) {ends[1]} missing here: {WHY[self.why]}"


Piece = bytes | Gap


@dataclass(frozen=True, slots=True)
class File:
    """`start` and `lines`: what was written before it."""

    start: int
    lines: int
    is_after_loss: bool
    name: str


def files_of(folder: Path | int) -> list[File]:
    """The files of a run's log, the oldest first."""
    names = map(FILE.fullmatch, os.listdir(folder))
    return sorted((File(int(it[1]), int(it[2]), bool(it[3]), it[0]) for it in names if it), key=lambda it: it.start)


def size_of(run: Path) -> int:
    """Bytes on disk; what goes meanwhile does not count."""
    size = 0
    with suppress(FileNotFoundError):
        for it in files_of(run):
            size += (run / it.name).stat().st_size
    return size


def dropped(run: Path) -> Gap | None:
    """What is missing at the beginning of a log."""
    first = None
    with suppress(FileNotFoundError):  # moved since it was found
        first = next(iter(files_of(run)), None)
    return Gap(ROTATED, first.start, first.lines) if first and first.start else None


def remove(run: Path) -> None:
    """Removes the text of a run that has ended; its readers find a gap."""
    files = files_of(run)
    if files and not (run / REMOVED).exists():
        last = run / files[-1].name
        lines = files[-1].lines + last.read_bytes().count(b"\n")
        write_whole(run / REMOVED, f"{files[-1].start + last.stat().st_size} {lines}".encode())
    for it in files:
        (run / it.name).unlink()


class Reader:
    """Reads a log forwards. It holds the folder and the file it reads open: both may be moved or removed meanwhile."""

    def __init__(self, run: Path) -> None:
        self.run, self.at, self.lines = run, 0, 0
        self._folder = os.open(run, os.O_RDONLY | os.O_DIRECTORY)
        self._open: tuple[File, int] | None = None

    def close(self) -> None:
        os.close(self._folder)
        if self._open:
            os.close(self._open[1])

    def next(self) -> Piece:
        """The next whole lines as they are on disk, or a gap; empty at the end of what is written."""
        while True:
            files = self._files()
            here = max((it for it in files if it.start <= self.at), key=lambda it: it.start, default=None)
            if here:
                try:
                    text = self._read(here)
                except FileNotFoundError:  # rotated away since it was listed
                    continue
                if text:
                    self.at += len(text)
                    self.lines += text.count(b"\n")
                    return text
            after = next((it for it in files if it.start > self.at), None)
            return self._skip(after) if after else self._removed()

    def _files(self) -> list[File]:
        return files_of(self._folder) or ([self._open[0]] if self._open else [])

    def _read(self, file: File, start: int | None = None, size: int = PIECE_BYTES) -> bytes:
        """Whole lines from a position on."""
        if self._open is None or self._open[0] != file:
            fd = os.open(file.name, os.O_RDONLY, dir_fd=self._folder)
            if self._open:
                os.close(self._open[1])
            self._open = file, fd
        place = (self.at if start is None else start) - file.start
        text = os.pread(self._open[1], size, place)
        while text and len(text) == size and b"\n" not in text:
            size *= 2
            text = os.pread(self._open[1], size, place)
        return text[: text.rfind(b"\n") + 1]

    def _skip(self, file: File) -> Gap:
        gap = Gap(LOST if file.is_after_loss else ROTATED, file.start - self.at, max(0, file.lines - self.lines))
        self.at, self.lines = file.start, file.lines
        return gap

    def _removed(self) -> Piece:
        with suppress(FileNotFoundError):
            size, lines = map(int, (self.run / REMOVED).read_text().split())
            if size > self.at:
                gap = Gap(REMOVED, size - self.at, lines - self.lines)
                self.at, self.lines = size, lines
                return gap
        return b""

    def to_tail(self, lines: int) -> None:
        """Moves to where the last so many lines begin. A line that goes on (P) counts as one."""
        left = lines
        for file in reversed(self._files()):
            try:
                text = self._read(file, file.start, os.stat(file.name, dir_fd=self._folder).st_size)
            except FileNotFoundError:  # rotated away since it was listed
                return
            count = text.count(b"\n")
            if count >= left:
                rest = b"\n".join(text.split(b"\n")[-left - 1 :])
                self.at, self.lines = file.start + len(text) - len(rest), file.lines + count - left
                return
            left -= count

    def to_moment(self, moment: bytes) -> None:
        """Moves to the first line that is not older than `moment`, among those that follow."""
        while text := self.next():
            if isinstance(text, Gap):
                continue
            start = self.at - len(text)
            if text[: len(moment)] >= moment:
                self.at, self.lines = start, self.lines - text.count(b"\n")
                return
            last = text.rfind(b"\n", 0, len(text) - 1) + 1
            if text[last : last + len(moment)] < moment:
                continue
            place = older = 0
            while text[place : place + len(moment)] < moment:
                place = text.index(b"\n", place) + 1
                older += 1
            self.at, self.lines = start + place, self.lines - text.count(b"\n") + older
            return


async def read_log(places: Sequence[Path], options: LogOptions, clock: Clock) -> AsyncIterator[Piece]:
    """The log of one run: its text as it is sent, and the gaps in it; with `follow` until the run has ended. `places`:
    where its folder may be, in the order in which it moves on."""
    reader, form = _opened(places), _Form(options.timestamps)
    if reader is None:
        return
    left, was_over = options.limit_bytes, False
    try:
        await clock.in_thread(lambda: _start(reader, options))
        while left is None or left > 0:
            piece = await clock.in_thread(reader.next)
            if options.place:
                options.place.at, options.place.lines = reader.at, reader.lines
            if isinstance(piece, Gap):
                yield piece
            elif piece:
                text = form.text(piece)[:left]
                left = None if left is None else left - len(text)
                yield text
            elif not options.follow or was_over:
                return
            else:
                was_over = is_over(reader.run)
                if not was_over:
                    await clock.sleep(PAUSE_SECONDS)
    finally:
        reader.close()


def _opened(places: Sequence[Path]) -> Reader | None:
    for place in places:
        with suppress(FileNotFoundError):
            return Reader(place)
    return None


def _start(reader: Reader, options: LogOptions) -> None:
    if options.place and options.place.at:
        reader.at, reader.lines = options.place.at, options.place.lines
        return
    if options.tail_lines is not None:
        reader.to_tail(options.tail_lines)
    if options.since is not None:
        moment = datetime.fromtimestamp(options.since, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
        reader.to_moment(moment.encode())


def is_over(run: Path) -> bool:
    """Nothing writes any more: it ended, was lost, or was moved with its pod."""
    return not inspect(run).pid


class _Form:
    """Makes the text that is sent of lines as they are on disk. A line in several parts has one time."""

    def __init__(self, timestamps: bool) -> None:
        self._timestamps, self._is_new = timestamps, True

    def text(self, piece: bytes) -> bytes:
        lines = piece[:-1].split(b"\n")
        if not self._timestamps and b"Z stdout P " not in piece and b"Z stderr P " not in piece:
            self._is_new = True
            return b"\n".join([line[HEAD:] for line in lines]) + b"\n"
        return b"".join(map(self._line, lines))

    def _line(self, line: bytes) -> bytes:
        head = line[:MOMENT] if self._timestamps and self._is_new else b""
        self._is_new = line[MARK : MARK + 1] == b"F"
        return head + line[HEAD:] + (b"\n" if self._is_new else b"")
