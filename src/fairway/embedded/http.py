"""The server on a socket: aiohttp's requests to ours and our responses back, on loopback.

Before a request reaches the core its Host must be a loopback name with our port (a page elsewhere that rebinds its
name to 127.0.0.1 still sends its own) and its Origin, if any, ours; there are no CORS headers. `Limits` bounds bodies,
connections and the time that each step of an exchange may take. A watch may be silent, and the reader of a log may
pause: only their clients end them. Stopping wakes the watchers first, since an open watch would keep the socket open.

With `open` it listens on a Unix socket too: no browser reaches that, and the kernel says which user asks.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress

from aiohttp import WSMsgType, web
from aiohttp.http_exceptions import HttpProcessingError

from fairway.embedded.connection import DEFAULTS, HOST, Limits, Listener
from fairway.embedded.errors import Failure
from fairway.embedded.keys import LOOPBACK
from fairway.embedded.limits import BODY_BYTES
from fairway.embedded.server import Server
from fairway.embedded.store import encode
from fairway.embedded.team.people import peer_of
from fairway.kube.transport import Messages, Peer, Request, Response, Transport

END_SECONDS = 0.2
HEARTBEAT_SECONDS = 30.0
LINGER_SECONDS = 10.0  # the rest of a refused body is read so long, so that its client sees the answer


class HttpServer:
    """`port` 0: any free one; `start` returns which."""

    def __init__(self, server: Server, *, tls: ssl.SSLContext, port: int = 0, limits: Limits = DEFAULTS) -> None:
        self._server, self._limits, self._clock, self.port = server, limits, server.registry.clock, port
        log = logging.getLogger(__name__)
        log.addFilter(_is_of_server)
        self._web = web.Server(self._handle, handler_cancellation=True, access_log=None, logger=log,
                               keepalive_timeout=limits.idle_seconds,
                               lingering_time=min(limits.body_seconds, LINGER_SECONDS))
        self._listeners = [Listener(self._web, tls, limits, self._clock) for _ in range(2)]  # on TCP, and a Unix socket
        self._accepting: list[asyncio.Task[None]] = []
        self._door: Transport = server.handle  # of the Unix socket
        self._hosts: frozenset[str] = frozenset()

    async def start(self) -> int:
        """Listens; raises OSError where the port is taken."""
        listener = socket.create_server((HOST, self.port), backlog=512)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._hosts = frozenset(f"[{name}]:{self.port}" if ":" in name else f"{name}:{self.port}" for name in LOOPBACK)
        self._accepting.append(asyncio.create_task(self._listeners[0].accept(listener)))
        return self.port

    def open(self, listener: socket.socket, door: Transport) -> None:
        """Listens on a Unix socket too; `door` answers there."""
        self._door = door
        self._accepting.append(asyncio.create_task(self._listeners[1].accept(listener)))

    @property
    def open_connections(self) -> int:
        return sum(each.count for each in self._listeners)

    async def stop(self) -> None:
        """Ends the watches, commits what is staged, closes the store and then the sockets."""
        await self._server.registry.store.close()
        for task in self._accepting:
            task.cancel()
            await asyncio.wait([task])
        self._web.pre_shutdown()
        await self._web.shutdown(END_SECONDS)
        for each in self._listeners:
            each.close()

    async def _handle(self, incoming: web.BaseRequest) -> web.StreamResponse:
        peer = _peer(incoming)
        try:
            if peer is None:
                self._check_origin(incoming)
            request = Request(incoming.method, incoming.path, tuple(incoming.query.items()),
                              _headers(incoming), await self._body(incoming), peer)
        except Failure as failure:
            return web.Response(status=failure.code, body=encode(failure.status()), content_type="application/json")
        response = await (self._server.handle if peer is None else self._door)(request)
        if response.talk is not None:
            return await self._converse(incoming, response, response.talk)
        if isinstance(response.body, bytes):
            return await self._whole(incoming, response, response.body)
        return await self._stream(incoming, response, response.body)

    def _check_origin(self, incoming: web.BaseRequest) -> None:
        host, origin = incoming.headers.get("Host", "").lower(), incoming.headers.get("Origin")
        if host not in self._hosts:
            raise Failure(403, "Forbidden", f"host {host!r} is not this server: use https://127.0.0.1:{self.port}")
        if origin is not None and origin.partition("://")[2].lower() not in self._hosts:
            raise Failure(403, "Forbidden", f"origin {origin!r} is foreign")

    async def _body(self, incoming: web.BaseRequest) -> bytes:
        if not incoming.body_exists:
            return b""
        try:
            return await self._clock.within(self._limits.body_seconds, _read(incoming))
        except TimeoutError as error:
            text = f"the body of the request did not arrive within {self._limits.body_seconds:g} seconds"
            raise Failure(408, "Timeout", text) from error

    async def _whole(self, incoming: web.BaseRequest, response: Response, body: bytes) -> web.StreamResponse:
        outgoing = web.Response(status=response.status, headers=response.headers, body=body)
        with suppress(ConnectionError):  # aiohttp finds that the client is gone, and ends
            await self._taken(incoming, _sent(incoming, outgoing))
        return outgoing

    async def _stream(self, incoming: web.BaseRequest, response: Response,
                      body: AsyncIterator[bytes]) -> web.StreamResponse:
        outgoing = web.StreamResponse(status=response.status, headers=response.headers)
        outgoing.enable_chunked_encoding()
        with suppress(ConnectionError):  # a client that leaves: that is how watches end
            async with aclosing(body) as chunks:  # type: ignore[type-var]
                await outgoing.prepare(incoming)
                async for chunk in chunks:
                    writing = outgoing.write(chunk)
                    await (writing if response.may_pause else self._taken(incoming, writing))
                await outgoing.write_eof()
        return outgoing

    async def _converse(self, incoming: web.BaseRequest, response: Response,
                        talk: Callable[[Messages], Messages]) -> web.StreamResponse:
        protocol = response.headers["sec-websocket-protocol"]
        outgoing = web.WebSocketResponse(protocols=(protocol,), heartbeat=HEARTBEAT_SECONDS)
        await outgoing.prepare(incoming)
        with suppress(ConnectionError):
            async with aclosing(talk(_messages(outgoing))) as messages:  # type: ignore[type-var]
                async for message in messages:
                    await self._taken(incoming, outgoing.send_bytes(message))
            await outgoing.close()
        return outgoing

    async def _taken(self, incoming: web.BaseRequest, writing: Awaitable[None]) -> None:
        """Waits until the client reads on; ends the connection of one that does not."""
        try:
            await self._clock.within(self._limits.write_seconds, writing)
        except TimeoutError as error:
            if incoming.transport is not None:
                incoming.transport.abort()
            raise ConnectionResetError("the client does not read its answer") from error


def _is_of_server(record: logging.LogRecord) -> bool:
    """Whether this server is to blame: what is no HTTP is answered 400, and is its client's matter."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def _headers(incoming: web.BaseRequest) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in incoming.headers.items():
        name = name.lower()
        found[name] = f"{found[name]}\n{value}" if name in found and name.startswith("impersonate-") else value
    return found


def _peer(incoming: web.BaseRequest) -> Peer | None:
    """The process at the other end of a Unix socket; None on TCP."""
    connection = incoming.get_extra_info("socket")
    return peer_of(connection) if connection is not None and connection.family == socket.AF_UNIX else None


async def _messages(socket: web.WebSocketResponse) -> AsyncIterator[bytes]:
    async for message in socket:
        if message.type == WSMsgType.BINARY:
            yield message.data


async def _read(incoming: web.BaseRequest) -> bytes:
    parts, size = [], 0
    async for part in incoming.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > BODY_BYTES:
            raise Failure(413, "RequestEntityTooLarge", f"Request entity too large: limit is {BODY_BYTES}")
    return b"".join(parts)


async def _sent(incoming: web.BaseRequest, outgoing: web.Response) -> None:
    await outgoing.prepare(incoming)
    await outgoing.write_eof()
