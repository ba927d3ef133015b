"""The operator's log: a line for each step in the life of a workload, on standard error.

    2026-11-21T14:20:00Z info admitted workload=ml/job-a queue=nlp pool=h100 nodes=n1,n2 attempt=1

What any other part logs has the same form, as the event `note`.
Lines are kept and written by a task of their own, many at once and in a thread, so that neither a burst nor a slow
reader holds up a cycle; of what is more than it may keep, only the number is told. What happened while no controller
led is found in any order within a moment, and written in the order in which it happened. Nothing of a workload's
program, environment or notify address is written.
"""

import asyncio
import json
import logging
import re
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from operator import itemgetter

from fairway.api.quantities import time_text
from fairway.clock import Clock

from .happening import Happening

MOST_LINES, AT_ONCE, GATHER_SECONDS = 20_000, 2_000, 1.0
PLAIN = re.compile(r"[^\s\"=]+")
LEVELS = {"failed": "warning", "pod-lost": "warning", "refused": "error"}
log = logging.getLogger(__name__)


def to_stderr(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


class Lines(logging.Formatter):
    """Records of `logging` in the form of the log."""

    def format(self, record: logging.LogRecord) -> str:
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        facts = {"by": record.name.removeprefix("fairway."), "message": record.getMessage(), "trace": trace}
        return line(Happening("note", "", facts), record.levelname.lower(), record.created).rstrip("\n")


class Journal:
    def __init__(self, clock: Clock, write: Callable[[str], None] = to_stderr) -> None:
        self._clock, self._write = clock, write
        self._lines: deque[str] = deque()
        self._late: list[tuple[float, str]] = []
        self._dropped = 0
        self._noted, self._turn = asyncio.Event(), asyncio.Lock()

    def note(self, one: Happening) -> None:
        """Keeps its line, if the log's level lets it through."""
        level = LEVELS.get(one.event, "info")
        if not log.isEnabledFor(getattr(logging, level.upper())):
            return
        if len(self._lines) + len(self._late) >= MOST_LINES:
            self._dropped += 1
            return
        at = self._clock.now() if one.at is None else one.at
        if one.is_late:
            self._late.append((at, line(one, level, at)))
        else:
            self._lines.append(line(one, level, at))
        self._noted.set()

    async def run(self) -> None:
        """Writes until cancelled, and then what is left."""
        try:
            while await self._noted.wait():
                self._noted.clear()
                if self._late:
                    await self._clock.sleep(GATHER_SECONDS)
                await self.flush()
        finally:
            self._gather()
            while text := self._next():
                self._write(text)

    async def flush(self) -> None:
        """Returns when all lines are written."""
        async with self._turn:
            self._gather()
            while text := self._next():
                await self._clock.in_thread(partial(self._write, text))

    def _gather(self) -> None:
        late, self._late = self._late, []
        self._lines.extend(text for _, text in sorted(late, key=itemgetter(0)))

    def _next(self) -> str:
        """The next lines, and how many were dropped before them."""
        text = "".join(self._lines.popleft() for _ in range(min(AT_ONCE, len(self._lines))))
        if self._dropped:
            at, dropped = time_text(int(self._clock.now())), self._dropped
            text, self._dropped = f"{text}{at} warning dropped lines={dropped}\n", 0
        return text


def line(one: Happening, level: str, now: float) -> str:
    facts = {"workload": one.key, **one.facts}
    said = " ".join(f"{name}={_value(value)}" for name, value in facts.items() if value not in ("", None))
    return f"{time_text(int(now))} {level} {one.event} {said}\n"


def _value(value: object) -> str:
    """Quoted where it holds blanks, quotes or line ends: a line stays one line."""
    text = str(value)
    return text if PLAIN.fullmatch(text) and text.isprintable() else json.dumps(text, ensure_ascii=False)
