"""A transport that fails as networks and servers do, by a seed: the way of the controllers to a sound server.

A request may be slow, refused (409, 500, 503), lost before it was sent, answered wrongly after it was carried out, or
carried out long after its sender gave up; a watch may be cut anywhere or told that it is too old. After the write
whose number is in `fatal` nothing is answered any more: the controllers are to be killed there.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import msgspec
from simworld import World

from fairway.clock import Clock
from fairway.kube.transport import Request, Response, Transport


def refusal(code: int, reason: str) -> Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": "injected"}
    return Response(code, {"content-type": "application/json"}, msgspec.json.encode(body))


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
    """`rate`: the part of the requests that meet a fault. `quiet_at`: from then on nothing fails."""

    transport: Transport
    clock: Clock
    chance: random.Random
    rate: float = 0.05
    quiet_at: float = float("inf")
    fatal: frozenset[int] = frozenset()
    writes: int = 0
    log: list[str] = field(default_factory=list)
    crashed: asyncio.Event = field(default_factory=asyncio.Event)
    late: set[asyncio.Task[None]] = field(default_factory=set)

    async def __call__(self, request: Request) -> Response:
        fault = self._fault(request)
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
            return self.chance.choice(("cut", "cut", "gone", "500", "lost"))
        if request.method == "GET":
            return self.chance.choice(("slow", "500", "lost", "silent"))
        return self.chance.choice(("slow", "409", "500", "503", "lost", "500 after", "lost after", "silent", "late"))

    async def _read(self, request: Request, fault: str) -> Response:
        await self._before(fault)
        match fault:
            case "500":
                return refusal(500, "InternalError")
            case "gone":
                return refusal(410, "Expired")
        response = await self.transport(request)
        if fault == "cut" and not isinstance(response.body, bytes):
            return Response(response.status, response.headers, self._cut(response.body))
        return response

    async def _write(self, request: Request, fault: str) -> Response:
        await self._before(fault)
        match fault:
            case "409":
                return refusal(409, "Conflict")
            case "500":
                return refusal(500, "InternalError")
            case "503":
                return refusal(503, "ServiceUnavailable")
            case "late":
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

    def _note(self, request: Request, fault: str, status: int) -> None:
        self.log.append(f"{self.clock.now():.3f} {request.method} {request.path} {status} {fault}".rstrip())


async def kill_and_start(world: World, faults: Faults) -> None:
    """Controllers run; at each fatal write they are killed and started anew."""
    while True:
        world.start(link := Link(faults))
        await faults.crashed.wait()
        faults.crashed.clear()
        link.is_dead = True
        await world.crash()
        await world.clock.sleep(1.0)
