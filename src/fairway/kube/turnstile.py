"""A bound on how many do something at once, with an order among those that wait.

Whoever waits goes in by the least rank, then in the order of asking: what is urgent passes a long list. What one task
has to do to many objects needs no order: it goes side by side.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from itertools import count
from typing import Any

AT_ONCE = 64  # requests of one task to the API server


class Turnstile:
    def __init__(self, width: int) -> None:
        self._free, self._number = width, count()
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def turn(self, rank: float = 0.0) -> AsyncIterator[None]:
        """Inside it, one of `width`."""
        await self._enter(rank)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, rank: float) -> None:
        if self._free:
            self._free -= 1
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (rank, next(self._number), future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # it was let in and is gone already
                self._leave()
            raise

    def _leave(self) -> None:
        while self._waiting:
            _, _, future = heappop(self._waiting)
            if not future.done():
                future.set_result(None)
                return
        self._free += 1


async def side_by_side(work: Iterable[Coroutine[Any, Any, object]]) -> None:
    """All of it, `AT_ONCE` at a time. After a failure nothing more is begun; the first is raised once what was under
    way has ended."""
    rest, failed = deque(work), list[Exception]()

    async def some() -> None:
        while rest and not failed:
            try:
                await rest.popleft()
            except Exception as error:
                failed.append(error)

    try:
        await asyncio.gather(*(some() for _ in range(min(AT_ONCE, len(rest)))))
    finally:
        for each in rest:
            each.close()
    if failed:
        raise failed[0]
