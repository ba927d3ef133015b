"""Logs on disk: what the shim writes is read back whole, and what is missing is found at its place."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from fairway.clock import Clock
from fairway.node import shim
from fairway.node.logs import Gap, LogOptions, Piece, Place, files_of, read_log, remove


def written(folder: Path, *chunks: bytes) -> shim.Log:
    log = shim.Log(str(folder))
    for chunk in chunks:
        log.add("stdout", chunk)
    log.finish()
    return log


async def pieces(folder: Path, **options: object) -> list[Piece]:
    return [piece async for piece in read_log([folder], LogOptions(**options), Clock())]


async def text(folder: Path, **options: object) -> bytes:
    found = await pieces(folder, **options)
    assert not [piece for piece in found if isinstance(piece, Gap)]
    return b"".join(found)  # type: ignore[arg-type]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim, "FILE_BYTES", 1000)


async def test_lines_without_an_end_carriage_returns_and_long_lines_come_back_as_they_were(tmp_path: Path):
    said = b"10%\r20%\r\n" + b"x" * 300_000 + b"\nlast"
    written(tmp_path, said)
    assert await text(tmp_path) == said
    dated = await text(tmp_path, timestamps=True)
    assert dated.count(b"Z ") == 3 and dated.endswith(b"Z last")


@pytest.mark.usefixtures("small")
async def test_a_rotated_log_reads_as_one_whatever_the_piece_it_was_written_in(tmp_path: Path):
    said = b"".join(b"line %d\n" % number for number in range(60))
    written(tmp_path, *(said[at : at + 7] for at in range(0, len(said), 7)))
    assert len(files_of(tmp_path)) > 1
    assert await text(tmp_path) == said
    for count in (0, 1, 30, 60, 99):
        lines = said.splitlines(keepends=True)
        assert await text(tmp_path, tail_lines=count) == b"".join(lines[len(lines) - min(count, 60) :])


async def test_the_last_lines_of_what_said_nothing_yet_are_none(tmp_path: Path):
    log = shim.Log(str(tmp_path))
    async with asyncio.timeout(10):
        assert await text(tmp_path, tail_lines=5) == b""
    log.finish()


@pytest.mark.usefixtures("small")
async def test_text_that_was_rotated_away_is_a_gap_at_the_beginning_with_its_lines(tmp_path: Path):
    written(tmp_path, *(b"line %d\n" % number for number in range(1000)))
    gap, *rest = await pieces(tmp_path)
    first = int(b"".join(rest).split(b"\n")[0].split()[1])  # type: ignore[arg-type]
    assert isinstance(gap, Gap) and (gap.why, gap.lines) == ("rotated", first)
    assert b"".join(rest).endswith(b"line 999\n")  # type: ignore[arg-type]


@pytest.mark.usefixtures("small")
async def test_a_reader_that_is_too_slow_is_told_what_it_missed_where_it_missed_it(tmp_path: Path):
    log = shim.Log(str(tmp_path))
    log.add("stdout", b"first\n")
    reading = read_log([tmp_path], LogOptions(), Clock())
    assert await anext(reading) == b"first\n"
    for number in range(1000):
        log.add("stdout", b"line %d\n" % number)
    gap = await anext(reading)
    after = await anext(reading)
    assert isinstance(gap, Gap) and isinstance(after, bytes)
    assert gap.lines == int(after.split(b"\n")[0].split()[1])


async def test_lines_lost_on_a_full_disk_are_a_gap_and_none_is_torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log, write = shim.Log(str(tmp_path)), os.write

    def full(file: int, content: bytes) -> int:
        if content.count(b"\n") == 1:
            raise OSError(errno.ENOSPC, "full")
        return write(file, content[: len(content) - 5])

    log.add("stdout", b"a\n")
    monkeypatch.setattr(os, "write", full)
    log.add("stdout", b"b\nc\n")  # its second line is torn
    log.add("stdout", b"d\n")
    monkeypatch.setattr(os, "write", write)
    log.add("stdout", b"e\n")
    assert [(it.why, it.lines) if isinstance(it, Gap) else it for it in await pieces(tmp_path)] == [
        b"a\nb\n", ("lost", 2), b"e\n",
    ]  # fmt: skip


async def test_a_log_that_was_removed_says_how_much_it_was(tmp_path: Path):
    written(tmp_path, b"a\nb\n")
    size = sum((tmp_path / it.name).stat().st_size for it in files_of(tmp_path))
    remove(tmp_path)
    remove(tmp_path)
    assert await pieces(tmp_path) == [Gap("removed", size, 2)]
    assert await pieces(tmp_path, place=Place(size // 2, 1)) == [Gap("removed", size // 2, 1)]
    assert await pieces(tmp_path, place=Place(size, 2)) == []


def test_a_gap_tells_how_much_the_program_wrote_and_not_what_it_took_on_disk():
    head = len("2026-11-21T10:00:00.000000000Z stdout F ")
    assert str(Gap("rotated", (1 << 20) + 1000 * head, 1000)).startswith("1,000 lines (1.0 MiB) are missing here: ")
    assert str(Gap("lost", 512 + 2 * head, 2)).startswith("2 lines (0.5 KiB) are missing here: ")
    assert str(Gap("lost", 512 + head, 1)).startswith("1 line (0.5 KiB) is missing here: ")


async def test_a_log_is_followed_through_the_move_of_its_folder(tmp_path: Path):
    place = tmp_path / "0"
    place.mkdir()
    log = shim.Log(str(place))
    log.add("stdout", b"before\n")
    reading = read_log([place], LogOptions(follow=True), Clock())
    assert await anext(reading) == b"before\n"
    log.add("stdout", b"after\n")
    place.rename(tmp_path / "1")
    assert [piece async for piece in reading] == [b"after\n"]


@pytest.mark.usefixtures("small")
async def test_since_begins_with_the_first_line_that_is_not_older(tmp_path: Path):
    log = shim.Log(str(tmp_path))
    for number in range(100):
        log.add("stdout", b"line %d\n" % number)
    await asyncio.sleep(0.01)
    moment = Clock().now()
    log.add("stdout", b"late 1\n")
    log.add("stdout", b"late 2\n")
    assert await text(tmp_path, since=moment) == b"late 1\nlate 2\n"
