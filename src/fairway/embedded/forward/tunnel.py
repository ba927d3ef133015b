"""`kubectl port-forward`: connections to ports on which a pod's processes listen, SPDY in the messages of a WebSocket.

For each connection the client opens two streams of one `requestid`: on `error` it is told why a connection failed, and
`data` is the connection. Pods share this machine's addresses, so only ports are served on which a process of this very
pod listens: who may forward to a pod reaches nothing else by it. kubectl before 1.31 sends SPDY without a WebSocket,
which is refused.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

import msgspec

from fairway.clock import Clock
from fairway.embedded.call import Call
from fairway.embedded.errors import Failure, bad_request
from fairway.embedded.execute import spoken, until_gone
from fairway.embedded.logs import Kubelet
from fairway.embedded.registry import Registry
from fairway.kube.transport import Messages, Response
from fairway.node.processes import ANY, listening

from .spdy import Broken, Came, Ended, Event, Opened, Pinged, Session, data, reset

PROTOCOL = "SPDY/3.1+portforward.k8s.io"
CHUNK_BYTES, WAITING, MOST_STREAMS = 32 << 10, 16, 512
CONNECT_SECONDS = 10.0


async def forward(registry: Registry, call: Call, kubelet: Kubelet | None) -> Response:
    pod = msgspec.json.decode(registry.shown(call.resource, call.key))
    headers = call.request.headers
    if call.method != "GET" or headers.get("upgrade", "").lower() != "websocket":
        raise Failure(501, "NotImplemented", "port-forward is served over a WebSocket alone: use kubectl 1.31 or later")
    if PROTOCOL not in [it.strip() for it in headers.get("sec-websocket-protocol", "").split(",")]:
        raise bad_request(f"unable to upgrade: the subprotocol {PROTOCOL} was not offered")
    phase = pod["status"].get("phase")
    if phase != "Running" or kubelet is None or not kubelet.shims(call.namespace, call.name):
        raise bad_request(f"unable to forward port because pod is not running. Current status={phase}")
    target = Target(call.namespace, call.name, kubelet, registry.clock)
    return spoken(PROTOCOL, lambda incoming: _talk(target, incoming))


@dataclass(frozen=True, slots=True)
class Target:
    """A pod."""

    namespace: str
    name: str
    kubelet: Kubelet
    clock: Clock

    async def address(self, port: int) -> str:
        """Where its processes listen on a port; ConnectionError where they do not."""
        shims = self.kubelet.shims(self.namespace, self.name).values()
        found = await self.clock.in_thread(lambda: listening(shims))
        if port not in found:
            ports = ", ".join(map(str, sorted(found))) or "none"
            raise ConnectionError(f"no process of pod {self.name} listens on port {port}; it listens on: {ports}")
        return ANY.get(found[port], found[port])


async def _talk(target: Target, incoming: Messages) -> AsyncIterator[bytes]:
    """What the client is sent; all connections end when it is gone."""
    tunnel = Tunnel(target)
    try:
        async with aclosing(until_gone(tunnel.sent(), _listen(tunnel, incoming))) as messages:
            async for message in messages:
                yield message
    finally:
        await tunnel.close()


async def _listen(tunnel: "Tunnel", incoming: Messages) -> None:
    with suppress(Broken):
        async for message in incoming:
            for event in tunnel.session.receive(message):
                await tunnel.act(event)


@dataclass(slots=True)
class Connection:
    """`stream`: its data; `errors`: where it tells what went wrong."""

    stream: int
    errors: int
    task: asyncio.Task[None] | None = None
    writer: asyncio.StreamWriter | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)


class Tunnel:
    """One session and its connections, by the number of their data stream."""

    def __init__(self, target: Target) -> None:
        self.session, self._target = Session(), target
        self._out: asyncio.Queue[bytes] = asyncio.Queue(WAITING)
        self._tasks: set[asyncio.Task[None]] = set()
        self._errors: dict[str, int] = {}
        self._connections: dict[int, Connection] = {}

    async def sent(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._out.get()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def act(self, event: Event) -> None:
        match event:
            case Pinged(answer):
                await self._out.put(answer)
            case Opened(stream, headers):
                await self._open(stream, headers)
            case Came(stream, content) if stream in self._connections:
                await self._write(self._connections[stream], content)
            case Ended(stream, is_reset) if stream in self._connections:
                await self._end(self._connections[stream], is_reset=is_reset)

    async def _open(self, stream: int, headers: Mapping[str, str]) -> None:
        request, port = headers.get("requestid", ""), headers.get("port", "")
        if len(self._connections) + len(self._errors) >= MOST_STREAMS or not port.isdecimal():
            await self._out.put(reset(stream))
            return
        await self._out.put(self.session.reply(stream))
        if headers.get("streamtype") == "error":
            self._errors[request] = stream
        elif headers.get("streamtype") == "data" and request in self._errors:
            made = self._connections[stream] = Connection(stream, self._errors.pop(request))
            made.task = asyncio.create_task(self._carry(made, int(port)))
            self._tasks.add(made.task)
            made.task.add_done_callback(self._tasks.discard)

    async def _carry(self, made: Connection, port: int) -> None:
        """Connects, and sends what the pod's process says until it says no more."""
        why = ""
        try:
            address = await self._target.address(port)
            opening = asyncio.open_connection(address, port)
            reader, made.writer = await self._target.clock.within(CONNECT_SECONDS, opening)
            made.ready.set()
            while chunk := await reader.read(CHUNK_BYTES):
                await self._out.put(data(made.stream, chunk))
        except (OSError, TimeoutError) as error:
            why = f"error forwarding port {port} to pod {self._target.name}: {error or 'no answer'}"
        finally:
            made.ready.set()
            self._connections.pop(made.stream, None)
            if made.writer:
                made.writer.close()
        await self._out.put(data(made.errors, why.encode(), is_last=True))
        await self._out.put(data(made.stream, b"", is_last=True))

    async def _write(self, made: Connection, content: bytes) -> None:
        await made.ready.wait()
        if made.writer:
            made.writer.write(content)
            with suppress(OSError):  # the reading side tells
                await made.writer.drain()

    async def _end(self, made: Connection, *, is_reset: bool) -> None:
        await made.ready.wait()
        if is_reset and made.task:
            made.task.cancel()
        elif made.writer:
            with suppress(OSError):
                made.writer.write_eof()
