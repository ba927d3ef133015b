"""What a program writes is harmless in a page, and never more than it can show."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairway.clock import Clock
from fairway.kube.client import Client
from fairway.kube.runs import Run
from fairway.kube.transport import Request, Response
from fairway.web.log import LINES, Lines, clean, follow

RUN = Run(1, 0, 0, "p", "main", True)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"\x1b[31mred\x1b[0m", "red"), (b"\x1b]0;title\x07text", "text"), (b"1%\r20%", "20%"), (b"a\x00\x08b", "ab"),
        (b"<script>", "<script>"), (b"\xff\xfe", "\ufffd\ufffd"), (b"x" * 9000, "x" * 2000 + " …"),
        ("safe\u202egnp.exe".encode(), "safegnp.exe"), (b"line\r", "line"),
    ],
)  # fmt: skip
def test_control_characters_are_taken_out(written: bytes, shown: str) -> None:
    assert clean(written) == shown


def test_lines_are_cut_where_they_end_and_not_where_pieces_do() -> None:
    lines = Lines()
    lines.add(b"one\ntw")
    lines.add(b"o\nthree")
    assert lines.taken()["lines"] == ["one", "two"]
    lines.end()
    assert lines.taken() == {"lines": ["three"], "skipped": 0, "over": True}


def test_what_does_not_fit_is_counted_and_the_last_lines_are_kept() -> None:
    lines = Lines()
    for piece in range(30):
        lines.add(b"".join(b"%d\n" % (piece * 100 + at) for at in range(100)))
    taken = lines.taken()
    assert taken["lines"] == [str(at) for at in range(2000, 3000)] and taken["skipped"] == 3000 - LINES


async def test_a_flood_is_read_without_an_end_and_little_of_it_is_sent() -> None:
    piece, written, stop = b"x" * 100 + b"\n", 0, asyncio.Event()

    async def flood() -> AsyncIterator[bytes]:
        nonlocal written
        while not stop.is_set():
            yield piece * 10_000
            written += 10_000
            await asyncio.sleep(0)
        yield b"last\n"

    async def transport(request: Request) -> Response:
        return Response(200, {}, flood())

    told: list[Any] = []
    async for part in follow(Client(transport, Clock()), "nlp/job-a", RUN, 0):
        told.append(part)
        assert len(part["lines"]) <= LINES
        if written > 100_000:
            stop.set()
    assert told[-1]["lines"][-1] == "last" and told[-1]["over"]
    assert sum(len(it["lines"]) + it["skipped"] for it in told) == written + 1


async def test_the_end_of_the_log_is_asked_for_and_followed() -> None:
    asked: list[Request] = []

    async def text() -> AsyncIterator[bytes]:
        yield b"hello\n"

    async def transport(request: Request) -> Response:
        asked.append(request)
        return Response(200, {}, text())

    parts = [it async for it in follow(Client(transport, Clock()), "nlp/job-a", RUN, 4000)]
    assert [line for it in parts for line in it["lines"]] == ["hello"]
    assert asked[0].path.endswith("/namespaces/nlp/pods/p/log")
    assert dict(asked[0].query) == {"tailLines": "4000", "follow": "true", "container": "main"}
