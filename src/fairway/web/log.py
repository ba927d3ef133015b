"""What a rank of a workload writes, as a page can take it: lines, their last thousand, a few times a second.

A program may write faster than a browser draws. So the text is gathered, and what does not fit between two messages is
counted and left out, the oldest first. Control characters are taken out; of a line that was overwritten on a terminal
(carriage returns) the last state is kept.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.runs import Notice, Run, text_of

LINES, MOST_LINES, LINE_CHARACTERS, PAUSE_SECONDS = 1000, 20_000, 2000, 0.25
ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def clean(line: bytes) -> str:
    """A line without what a terminal would act upon."""
    text = ESCAPE.sub("", line[: 4 * LINE_CHARACTERS].decode(errors="replace")).rstrip("\r")
    shown = CONTROL.sub("", text.rpartition("\r")[2])
    return shown if len(shown) <= LINE_CHARACTERS else f"{shown[:LINE_CHARACTERS]} …"


class Lines:
    """The last lines that were not sent yet, at most so many: bytes are what the program wrote, and not cleaned yet."""

    def __init__(self, bound: int = LINES) -> None:
        self._bound = bound
        self._lines: deque[bytes | str] = deque(maxlen=bound)
        self._open, self.skipped, self.is_over = b"", 0, False
        self.more = asyncio.Event()

    def add(self, piece: bytes) -> None:
        *whole, self._open = (self._open + piece).split(b"\n")
        self._open = self._open[-4 * LINE_CHARACTERS :]
        left_out = max(0, len(whole) - self._bound)
        self.skipped += left_out + max(0, len(self._lines) + len(whole) - left_out - self._bound)
        self._lines.extend(whole[left_out:])
        self.more.set()

    def say(self, text: str) -> None:
        self._lines.append(f"== {text}")
        self.more.set()

    def end(self) -> None:
        if self._open:
            self.add(b"\n")
        self.is_over = True
        self.more.set()

    def taken(self) -> dict[str, Any]:
        """What is to be sent, and no longer held."""
        lines = [it if isinstance(it, str) else clean(it) for it in self._lines]
        found = {"lines": lines, "skipped": self.skipped, "over": self.is_over}
        self._lines.clear()
        self.skipped = 0
        self.more.clear()
        return found


async def follow(client: Client, key: str, run: Run, tail: int) -> AsyncIterator[dict[str, Any]]:
    """The end of what a run wrote, then what it writes, until it is over."""
    lines = Lines(tail := min(max(tail, LINES), MOST_LINES))
    reading = asyncio.create_task(_read(client, key, run, lines, tail))
    try:
        while True:
            await lines.more.wait()
            is_over = lines.is_over
            yield lines.taken()
            if is_over:
                return
            await client.clock.sleep(PAUSE_SECONDS)
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading


async def _read(client: Client, key: str, run: Run, lines: Lines, tail: int) -> None:
    query = (("tailLines", str(tail)), ("follow", "true"))
    try:
        async for piece in text_of(client, kinds.ref(kinds.WORKLOADS, key), run, query):
            lines.say(piece.text) if isinstance(piece, Notice) else lines.add(piece)
    except (ApiError, OSError) as error:
        lines.say(f"the log cannot be read on: {error.message if isinstance(error, ApiError) else error}")
    finally:
        lines.end()
