"""Time and chance: the only places that ask the operating system for either.

A Clock says what time it is (seconds since the epoch, a float) and sleeps. Everything that waits for time goes
through it, so that a test can run a day in a second. How long something lasts within one process is measured by
`elapsed`, which nothing sets; `now` is compared with times in objects, and code that keeps such times asks `was_set`.
The virtual clock is an event loop whose selector, instead of waiting for the next timer, moves time on to it: code
under it sees ordinary asyncio, and a wait that nothing can end raises `Deadlock`. There are no threads and no sockets
under a virtual clock: they would not move with it.

A Chance gives uids, tokens and jitter; seeded, it gives the same ones again.
"""

import asyncio
import os
import random
import secrets
import selectors
import signal
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")
SET_SECONDS = 5.0  # a smaller step makes what waits for a moment early or late by no more than that


class Deadlock(RuntimeError):
    """Under a virtual clock, every task waits for another."""


class Clock:
    """The system's time. `now` is in seconds since the epoch."""

    def now(self) -> float:
        return time.time()

    def elapsed(self) -> float:
        """Seconds since some moment. They pass evenly however the time is set, and while the machine sleeps."""
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def offset(self) -> float:
        """Seconds from `elapsed` to `now`: another number only once the time is set."""
        return self.now() - self.elapsed()

    def was_set(self, before: float) -> bool:
        """Whether the time was set, by more than SET_SECONDS, since the offset was `before`."""
        return abs(self.offset() - before) > SET_SECONDS

    def spent(self) -> float:
        """CPU seconds of this thread: what work costs, however busy the machine is."""
        return time.thread_time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))

    async def until(self, moment: float | None) -> None:
        """Sleeps until `moment`; for ever where there is none."""
        if moment is None:
            await asyncio.get_running_loop().create_future()
        else:
            await self.sleep(moment - self.now())

    async def within(self, seconds: float | None, work: Awaitable[T]) -> T:
        """The result of `work`, or TimeoutError after `seconds` (None: no bound)."""
        async with asyncio.timeout(seconds):
            return await work

    async def in_thread(self, work: Callable[[], T]) -> T:
        """The result of `work`, that computes for long; other tasks go on meanwhile."""
        return await asyncio.to_thread(work)

    async def in_process(self, work: Callable[..., T], *arguments: object) -> T:
        """The result of `work`, which computes for very long, from a process of low priority. The process ends with its
        answer, when the caller stops waiting, or when the calling process ends. EOFError if it ends without an
        answer."""
        from multiprocessing import get_context  # few commands need it

        spawn = get_context("spawn")
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=_answer, args=(theirs,), daemon=True)
        process.start()
        theirs.close()

        def ask() -> T:
            with ours:
                ours.send((work, arguments))
                answer: T = ours.recv()
                return answer

        try:
            return await asyncio.to_thread(ask)
        finally:
            process.kill()
            process.join()


def _answer(theirs: "Connection[object, Any]") -> None:
    from multiprocessing import parent_process

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the calling process gets it too, and ends this one
    os.nice(10)
    caller = parent_process()
    assert caller is not None
    Thread(target=lambda: (caller.join(), os._exit(1)), daemon=True).start()
    work, arguments = theirs.recv()
    theirs.send(work(*arguments))


class _Selector(selectors.SelectSelector):
    """Never waits: an idle loop's time moves on to its next timer."""

    moment = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("every task waits for another, and no timer will wake one")
        self.moment += max(0.0, timeout)
        return []


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, selector: _Selector) -> None:
        super().__init__(selector)
        self._virtual = selector

    def time(self) -> float:
        return self._virtual.moment


class VirtualClock(Clock):
    """Time that moves only when nothing else can happen. `run` is to it what asyncio.run is to the system's."""

    def __init__(self, start: float = 0.0) -> None:
        self._start = start
        self._selector = _Selector()

    def now(self) -> float:
        return self._start + self._selector.moment

    def elapsed(self) -> float:
        return self._selector.moment

    def spent(self) -> float:
        return 0.0  # work takes no time here

    async def in_thread(self, work: Callable[[], T]) -> T:
        return work()

    async def in_process(self, work: Callable[..., T], *arguments: object) -> T:
        return work(*arguments)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        self._start, self._selector = self.now(), _Selector()
        with asyncio.Runner(loop_factory=lambda: _Loop(self._selector)) as runner:
            return runner.run(main)


class Chance:
    """The system's randomness."""

    def __init__(self, source: random.Random | None = None) -> None:
        self._source = source or random.SystemRandom()

    def uid(self) -> str:
        return str(uuid.UUID(int=self._source.getrandbits(128), version=4))

    def word(self, letters: int = 5) -> str:
        """A suffix for generated names, in Kubernetes' alphabet (no vowels: no words by accident)."""
        return "".join(self._source.choices("bcdfghjklmnpqrstvwxz2456789", k=letters))

    def jitter(self, seconds: float) -> float:
        """Between half of `seconds` and the whole: so that many do not come back at once."""
        return seconds * (0.5 + self._source.random() / 2)

    def token(self) -> str:
        return secrets.token_urlsafe(32)


def seeded(seed: int) -> Chance:
    """The same uids, words and jitter for the same seed."""
    return Chance(random.Random(seed))
