"""Keys whose turn has come: what drives controllers.

A controller notes keys when something happens to them, and its `work(key)` looks at that one thing as it is now and
makes it as it should be; it returns when to look again (None: when noted). The rules: a key noted many times has one
turn, at the earliest moment asked for; no key is worked on twice at once; a key that is noted during its turn has
another. Of several that are due the one of the least rank is next, then the one noted first. A turn that fails as
writing to a server may fail is taken again after a pause that doubles. So is one that fails as nobody foresaw, and its
error is logged whole: an object that a user made must not stop the work on those of all others. Moments are those of
`Clock.now`: once that is set, each key has a turn at once, which finds out when the next is due.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from math import inf

from fairway.clock import Chance, Clock

from .client import ApiError

FIRST_SECONDS, LONGEST_SECONDS, LOOK_SECONDS = 0.5, 30.0, 0.02
CLOCK_SECONDS = 10.0  # the longest sleep: so late it is seen that the clock was set
WIDTH = 32
log = logging.getLogger(__name__)

Work = Callable[[str], Awaitable[float | None]]
Rank = Callable[[str], float]


class Agenda:
    """`rank`: asked for when a key is due; None: all are alike."""

    def __init__(self, clock: Clock, chance: Chance, *, width: int = WIDTH, rank: Rank | None = None) -> None:
        self.clock, self.chance, self._width, self._rank = clock, chance, width, rank
        self._due: dict[str, float] = {}
        self._order: list[tuple[float, int, str]] = []  # by moment
        self._ready: list[tuple[float, int, str]] = []  # those that are due, by rank
        self._number = count()
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._offset = clock.offset()

    def note(self, key: str, at: float = 0.0) -> None:
        """`key` gets a turn at `at`, or earlier."""
        if at < self._due.get(key, inf):
            self._due[key] = at
            if key not in self._busy:
                heappush(self._order, (at, next(self._number), key))
                self._changed.set()

    def is_noted(self, key: str, by: float = inf) -> bool:
        """Whether `key` is to have a turn by then."""
        return self._due.get(key, inf) < by

    async def settled(self) -> None:
        """Until the turns of all keys that are due now are over."""
        now = self.clock.now()
        left = self._busy | {key for key, at in self._due.items() if at <= now}
        while left := {key for key in left if key in self._busy or self._due.get(key, inf) <= now}:
            await self.clock.sleep(LOOK_SECONDS)

    def hurry(self, key: str) -> None:
        """`key` gets a turn now, at the rank that it has now."""
        self.note(key)
        if key in self._due and key not in self._busy:
            self._due[key] = 0.0
            self._enlist(key)
            self._changed.set()

    async def run(self, work: Work) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                self._heed_clock()
                while key := self._next():
                    tasks.create_task(self._turn(key, work))
                with suppress(TimeoutError):
                    await self.clock.within(self._pause(), self._changed.wait())

    def _heed_clock(self) -> None:
        if self.clock.was_set(self._offset):
            self._offset = self.clock.offset()
            for key in (*self._due, *self._busy):
                self.note(key)

    def _next(self) -> str:
        now = self.clock.now()
        while self._order and self._order[0][0] <= now:
            at, _, key = heappop(self._order)
            if self._due.get(key) == at and key not in self._busy:
                self._enlist(key)
        while self._ready and len(self._busy) < self._width:
            _, _, key = heappop(self._ready)
            if self._due.get(key, inf) <= now and key not in self._busy:
                del self._due[key]
                self._busy.add(key)
                return key
        return ""

    def _enlist(self, key: str) -> None:
        heappush(self._ready, (self._rank(key) if self._rank else 0.0, next(self._number), key))

    def _pause(self) -> float | None:
        if not self._order or len(self._busy) >= self._width:
            return None
        return min(max(0.0, self._order[0][0] - self.clock.now()), CLOCK_SECONDS)

    async def _turn(self, key: str, work: Work) -> None:
        try:
            again = await work(key)
            self._failures.pop(key, None)
        except (ApiError, OSError) as error:
            again = self.clock.now() + self._penalty(key, error)
        except Exception as error:
            log.exception("%s: a fault of Fairway's own", key)
            again = self.clock.now() + self._penalty(key, error)
        self._busy.discard(key)
        if again is not None:
            self.note(key, again)
        if key in self._due:
            heappush(self._order, (self._due[key], next(self._number), key))
        self._changed.set()

    def _penalty(self, key: str, error: Exception) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        if not isinstance(error, ApiError) or error.status not in (404, 409):  # it is gone, or changed: no fault
            log.warning("%s: %s: %s", key, type(error).__name__, error)
        return self.chance.jitter(min(FIRST_SECONDS * 2 ** min(failures, 10), LONGEST_SECONDS))
