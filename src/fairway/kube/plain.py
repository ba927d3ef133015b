"""The Transport of a command: HTTP/1.1 over asyncio's own streams.

A command sends a few requests and ends, and importing aiohttp takes longer than most of them. Here are whole requests,
answers and streams, and connections that are used again; WebSockets and proxies are left to http.py.

The server may have closed a connection that was used before: a GET to which no answer begins is sent once more on
another. Of any other request it is not known whether the server acted.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from urllib.parse import quote, urlencode, urlsplit

from fairway.clock import Clock

from .certificate import load
from .config import Config, Credentials
from .transport import Request, Response, Transport

CONNECTIONS = 512
CONNECT_SECONDS = 10
READ_BYTES = 1 << 18
EMPTY = (204, 304)
AGENT = "fairway"  # the server names whom a field of an object is from after it
LOCAL = "http://localhost"  # whom a server on a Unix socket takes us to mean


def has_proxy() -> bool:
    """Whether the environment names one."""
    return any(name.lower().endswith("_proxy") for name in os.environ)


@asynccontextmanager
async def plain_transport(config: Config, clock: Clock | None = None) -> AsyncIterator[Transport]:
    """A Transport to the server that `config` names; its connections are closed on leaving."""
    clock = clock or Clock()
    credentials = Credentials(config, clock)
    pool = _Pool(config, tls(config, await credentials.certificate()), clock)
    server = LOCAL if config.socket else config.server

    async def exchange(request: Request) -> Response:
        try:
            headers = {**request.headers, **await credentials.headers(), "accept": "application/json"}
            return await pool.exchange(request, _message(server, request, headers))
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            raise ConnectionError(f"{config.server}: {error}") from error

    try:
        yield exchange
    finally:
        pool.close()


def _message(server: str, request: Request, headers: Mapping[str, str]) -> bytes:
    """The request as it is sent; ValueError where a header has a line break."""
    parts = urlsplit(url_of(server, request))
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    said = {"host": parts.netloc.rpartition("@")[2], "user-agent": AGENT, **headers}
    said["content-length"] = str(len(request.body))
    lines = [f"{request.method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in said.items())]
    if any(mark in line for line in lines for mark in "\r\n"):
        raise ValueError("a header has a line break")
    return "\r\n".join([*lines, "", ""]).encode() + request.body


class _Wire:
    """One connection. `is_reusable`: another request may follow the answer that is read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.is_reusable = reader, writer, True

    async def send(self, message: bytes) -> tuple[int, dict[str, str]]:
        """Status and headers of the answer."""
        self.writer.write(message)
        await self.writer.drain()
        while True:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            version, status, *_ = head[0].split(" ")
            pairs = (line.partition(":") for line in head[1:-2])
            headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            self.is_reusable = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
            if int(status) >= 200:
                return int(status), headers

    async def body(self, status: int, headers: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """The body of the answer, in pieces as they come."""
        is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        size = 0 if status in EMPTY else int(headers.get("content-length", "-1"))
        while is_chunked and (size := int((await self.reader.readuntil(b"\r\n")).partition(b";")[0], 16)):
            async for piece in self._pieces(size):
                yield piece
            await self.reader.readexactly(2)
        while is_chunked and await self.reader.readuntil(b"\r\n") != b"\r\n":
            pass  # trailers
        async for piece in self._pieces(size):
            yield piece

    async def _pieces(self, size: int) -> AsyncGenerator[bytes, None]:
        """The next `size` bytes; of an unknown size, below 0, all until the server closes."""
        while size and (piece := await self.reader.read(READ_BYTES if size < 0 else min(size, READ_BYTES))):
            size -= len(piece) if size > 0 else 0
            yield piece
        self.is_reusable &= size == 0
        if size > 0:
            raise EOFError(f"{size} bytes are missing")


class _Pool:
    """The connections to one server."""

    def __init__(self, config: Config, context: ssl.SSLContext | None, clock: Clock) -> None:
        self._config, self._context, self._clock = config, context, clock
        self._room = asyncio.Semaphore(CONNECTIONS)
        self._idle: list[_Wire] = []
        self._wires: set[_Wire] = set()

    def close(self) -> None:
        for wire in list(self._wires):
            self._drop(wire)

    async def exchange(self, request: Request, message: bytes) -> Response:
        await self._room.acquire()
        try:
            wire, (status, headers) = await self._sent(message, may_repeat=request.method == "GET")
        except BaseException:
            self._room.release()
            raise
        pieces = self._pieces(wire, status, headers)
        if status < 400 and is_stream(request):
            return Response(status, headers, pieces)
        async with aclosing(pieces):
            return Response(status, headers, b"".join([piece async for piece in pieces]))

    async def _sent(self, message: bytes, *, may_repeat: bool) -> tuple[_Wire, tuple[int, dict[str, str]]]:
        while True:
            wire = self._used()
            fresh = wire or await self._opened()
            try:
                return fresh, await fresh.send(message)
            except BaseException as error:
                self._drop(fresh)
                if not (wire and may_repeat and isinstance(error, (OSError, EOFError))):
                    raise

    def _used(self) -> _Wire | None:
        """One that the server has not closed, as far as we know."""
        while self._idle:
            wire = self._idle.pop()
            if not (wire.reader.at_eof() or wire.writer.is_closing()):
                return wire
            self._drop(wire)
        return None

    async def _opened(self) -> _Wire:
        wire = _Wire(*await self._clock.within(CONNECT_SECONDS, self._connected()))
        self._wires.add(wire)
        return wire

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        config, parts = self._config, urlsplit(self._config.server)
        if config.socket:
            return await asyncio.open_unix_connection(config.socket, limit=READ_BYTES)
        where = parts.hostname, parts.port or (443 if self._context else 80)
        name = (config.server_name or None) if self._context else None
        return await asyncio.open_connection(*where, ssl=self._context, server_hostname=name, limit=READ_BYTES)

    async def _pieces(self, wire: _Wire, status: int, headers: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        is_whole = False
        try:
            async with aclosing(wire.body(status, headers)) as body:
                async for piece in body:
                    yield piece
            is_whole = True
        except (EOFError, ValueError, asyncio.LimitOverrunError) as error:
            raise ConnectionError(f"the answer was cut: {error}") from error
        finally:
            self._room.release()
            if is_whole and wire.is_reusable:
                self._idle.append(wire)
            else:
                self._drop(wire)

    def _drop(self, wire: _Wire) -> None:
        self._wires.discard(wire)
        wire.writer.transport.abort()


def url_of(server: str, request: Request) -> str:
    query = f"?{urlencode(request.query)}" if request.query else ""
    return f"{server}{quote(request.path, safe='/:@!$&()*+,;=~')}{query}"


def is_stream(request: Request) -> bool:
    is_open = any(name in ("watch", "follow") and value in ("true", "1") for name, value in request.query)
    return is_open or request.path.endswith("/log")


def tls(config: Config, certificate: tuple[bytes, bytes] | None) -> ssl.SSLContext | None:
    """Trusts the config's authority alone where it names one, the system's otherwise; None without TLS."""
    if not config.server.startswith("https:"):
        return None
    context = ssl.create_default_context(cadata=config.authority.decode() or None)
    if config.is_insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate:
        load(context, *certificate)
    return context
