"""Transports and clocks that fail as networks, servers and machines do, by a seed: the way of one controller to a
sound server.

A request may be slow, refused (409, 410, 429, 500, 503), lost before it was sent, answered wrongly after it was
carried out, or carried out long after its sender gave up; a watch may be cut anywhere, told that it is too old, or
silent for minutes. `lag`: how long every request and every event of a watch takes at most. In an outage nothing
arrives. After the write whose number is in `fatal` nothing is answered any more: the controller is to be killed there.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from simworld import SETTINGS, World, as_controller

from fairway.clock import Clock, VirtualClock
from fairway.controllers.run import run
from fairway.kube.transport import Request, Response, Transport
from fairway.settings import Settings

T = TypeVar("T")
SLOW_SECONDS = 2.0
REFUSALS = {
    "409": (409, "Conflict"), "429": (429, "TooManyRequests"), "gone": (410, "Expired"),
    "500": (500, "InternalError"), "503": (503, "ServiceUnavailable"),
}  # fmt: skip
OF_WATCHES = ("cut", "cut", "gone", "500", "lost", "stale")
OF_READS = ("slow", "500", "lost", "silent", "429", "gone")
OF_WRITES = ("slow", "409", "500", "503", "lost", "500 after", "lost after", "silent", "late", "429")


def refusal(code: int, reason: str) -> Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": "injected"}
    headers = {"content-type": "application/json"} | ({"retry-after": "1"} if code == 429 else {})
    return Response(code, headers, msgspec.json.encode(body))


@dataclass(slots=True)
class Link:
    """The way of one life of the controllers: when they are dead nothing they send arrives."""

    transport: Transport
    is_dead: bool = False

    async def __call__(self, request: Request) -> Response:
        if self.is_dead:
            raise ConnectionError("dead")
        return await self.transport(request)


@dataclass(slots=True)
class Faults:
    """`rate`: the part of the requests that meet a fault; `of_watches`, `of_writes`: which they are. `quiet_at`: from
    then on nothing fails. `outage`: from when to when nothing arrives."""

    transport: Transport
    clock: Clock
    chance: random.Random
    rate: float = 0.05
    quiet_at: float = float("inf")
    fatal: frozenset[int] = frozenset()
    lag: float = 0.0
    outage: tuple[float, float] = (0.0, 0.0)
    of_watches: Sequence[str] = OF_WATCHES
    of_writes: Sequence[str] = OF_WRITES
    writes: int = 0
    log: list[str] = field(default_factory=list)
    crashed: asyncio.Event = field(default_factory=asyncio.Event)
    late: set[asyncio.Task[None]] = field(default_factory=set)

    async def __call__(self, request: Request) -> Response:
        fault = self._fault(request)
        if self.lag:
            await self.clock.sleep(self.chance.uniform(0, self.lag))
        if self.outage[0] <= self.clock.now() < self.outage[1]:
            raise ConnectionError("no way to the server")
        if request.method == "GET":
            return await self._read(request, fault)
        response = await self._write(request, fault)
        self.writes += 1
        self._note(request, fault, response.status)
        if self.writes in self.fatal:
            self.crashed.set()
            await asyncio.get_running_loop().create_future()
        return response

    def _fault(self, request: Request) -> str:
        if self.clock.now() >= self.quiet_at or self.chance.random() > self.rate:
            return ""
        if ("watch", "true") in request.query:
            return self.chance.choice(self.of_watches)
        return self.chance.choice(OF_READS if request.method == "GET" else self.of_writes)

    async def _read(self, request: Request, fault: str) -> Response:
        await self._before(fault)
        if fault in REFUSALS:
            return refusal(*REFUSALS[fault])
        response = await self.transport(request)
        if not isinstance(response.body, bytes):
            body = self._cut(response.body) if fault == "cut" else self._delayed(response.body, fault)
            return Response(response.status, response.headers, body)
        return response

    async def _write(self, request: Request, fault: str) -> Response:
        await self._before(fault)
        if fault in REFUSALS:
            return refusal(*REFUSALS[fault])
        if fault == "late":
            self._later(request)
            await self.clock.sleep(1000)
        response = await self.transport(request)
        match fault:
            case "500 after":
                return refusal(500, "InternalError")
            case "lost after":
                self._note(request, fault, response.status)
                raise ConnectionError("the answer is lost")
            case "silent":
                self._note(request, fault, response.status)
                await self.clock.sleep(1000)
        return response

    async def _before(self, fault: str) -> None:
        if fault == "slow":
            await self.clock.sleep(self.chance.uniform(0.1, 10))
        if fault == "lost":
            raise ConnectionError("no connection")

    def _later(self, request: Request) -> None:
        """Carried out some time after its sender stopped waiting."""

        async def arrive() -> None:
            await self.clock.sleep(self.chance.uniform(5, 60))
            response = await self.transport(request)
            self._note(request, "arrives late", response.status)

        task = asyncio.create_task(arrive())
        self.late.add(task)
        task.add_done_callback(self.late.discard)

    async def _cut(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        left = self.chance.randrange(12)
        async for chunk in body:
            if not left:
                yield chunk[: self.chance.randrange(len(chunk))]
                raise ConnectionError("the stream is cut")
            left -= 1
            yield chunk

    async def _delayed(self, body: AsyncIterator[bytes], fault: str) -> AsyncIterator[bytes]:
        """What comes is late by the lag; a stale watch is silent for minutes once, and then tells all."""
        left = self.chance.randrange(6) if fault == "stale" else -1
        async for chunk in body:
            if not left:
                await self.clock.sleep(self.chance.uniform(20, 180))
            left -= 1
            if self.lag:
                await self.clock.sleep(self.chance.uniform(0, self.lag))
            if self.outage[0] <= self.clock.now() < self.outage[1]:
                raise ConnectionError("no way to the server")
            yield chunk

    def _note(self, request: Request, fault: str, status: int) -> None:
        self.log.append(f"{self.clock.now():.3f} {request.method} {request.path} {status} {fault}".rstrip())


class Machine(Clock):
    """The clock of one machine, which its administrator sets: `ahead` says by how much; sleeps are as long as they
    are. Without `has_memory` its processes of low priority are killed before they answer."""

    def __init__(self, base: Clock, *, has_memory: bool = True) -> None:
        self.base, self.has_memory, self.ahead = base, has_memory, 0.0

    def now(self) -> float:
        return self.base.now() + self.ahead

    def elapsed(self) -> float:
        return self.base.elapsed()

    def spent(self) -> float:
        return self.base.spent()

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await self.base.in_thread(work)

    async def in_process(self, work: Callable[..., T], *arguments: object) -> T:
        if not self.has_memory:
            raise EOFError
        return await self.base.in_process(work, *arguments)

    async def within(self, seconds: float | None, work: Awaitable[T]) -> T:
        return await self.base.within(seconds, work)


class Slow(VirtualClock):
    """A machine on which each decision takes up to SLOW_SECONDS, and at least so many."""

    def __init__(self, start: float, *, least: float = 0.0) -> None:
        super().__init__(start)
        self.least = least

    async def in_thread(self, work: Callable[[], T]) -> T:
        result = await super().in_thread(work)
        await self.sleep(random.Random(self.now()).uniform(self.least, SLOW_SECONDS))
        return result


async def kill_and_start(
    world: World, faults: Faults, *, settings: Settings = SETTINGS, clock: Clock | None = None
) -> None:
    """A controller runs; at each fatal write it is killed and started anew. What ends it otherwise is raised."""
    while True:
        link = Link(faults)
        life = asyncio.create_task(run(as_controller(link), settings, clock or world.clock, world.chance))
        crash = asyncio.create_task(faults.crashed.wait())
        try:
            await asyncio.wait((life, crash), return_when=asyncio.FIRST_COMPLETED)
        finally:
            link.is_dead = crash.done() or life.done()
            for task in (life, crash):
                task.cancel()
            ended, _ = await asyncio.gather(life, crash, return_exceptions=True)
        if not isinstance(ended, asyncio.CancelledError):
            raise ended or RuntimeError("the controllers ended")
        faults.crashed.clear()
        await world.clock.sleep(1.0)


def deaf(world: World, plural: str, until: float) -> Transport:
    """A sound way to the server on which watches of one kind tell nothing before that moment."""

    async def held(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in body:
            await world.clock.until(until)
            yield chunk

    async def exchange(request: Request) -> Response:
        response = await world.server.handle(request)
        if not request.path.endswith(f"/{plural}") or isinstance(response.body, bytes):
            return response
        return Response(response.status, response.headers, held(response.body))

    return exchange
