"""HTTP/1.1 as a Transport over asyncio: the way of a command, and of controllers beside an API server.

A command sends a few requests and ends, and importing aiohttp takes longer than most of them; a controller sends one
for each pod, and aiohttp computes six times longer for it. Here are whole requests, answers and streams, and
connections that are used again; WebSockets and proxies are left to http.py.

The server may have closed a connection that was used before: a GET to which no answer begins is sent once more on
another. Of any other request it is not known whether the server acted. Of a stream that nobody reads no more is taken
from the server than READ_BYTES.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager
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
Head = tuple[int, dict[str, str]]
"""Status and headers of an answer."""


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
    said = {"host": urlsplit(server).netloc.rpartition("@")[2], "user-agent": AGENT, "accept": "application/json"}
    base = urlsplit(server).path

    async def exchange(request: Request) -> Response:
        try:
            headers = {**said, **request.headers, **await credentials.headers()}
            return await pool.exchange(request, _message(url_of(base, request), request, headers))
        except (OSError, EOFError, ValueError) as error:
            raise ConnectionError(f"{config.server}: {error}") from error

    try:
        yield exchange
    finally:
        pool.close()


def _message(target: str, request: Request, headers: Mapping[str, str]) -> bytes:
    """The request as it is sent; ValueError where a header has a line break."""
    lines = [f"{name}: {value}" for name, value in headers.items()]
    lines = [f"{request.method} {target} HTTP/1.1", *lines, f"content-length: {len(request.body)}", "", ""]
    head = "\r\n".join(lines)
    if not head.count("\r") == head.count("\n") == len(lines) - 1:
        raise ValueError("a header has a line break")
    return head.encode() + request.body


class _Wire(asyncio.Protocol):
    """One connection, and one exchange on it at a time. `is_reusable`: another may follow the answer that was read."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.is_reusable = False
        self._held = bytearray()  # what was not looked at yet
        self._answer: Generator[None, None, None] = self._parsed()
        self._head: Head | None = None
        self._pieces: list[bytes] = []  # of the body, until they are taken
        self._is_whole = self._is_open = False  # the body has ended; it ends with the connection
        self._fault: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._held += data
        try:
            next(self._answer)
        except StopIteration:
            self._is_whole = True
            self.is_reusable &= not self._held
        except ValueError as error:
            self._fault = error
        if sum(map(len, self._pieces)) > READ_BYTES:
            self.transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_reusable = False
        if self._is_open and error is None:
            self._is_whole = True
        elif not self._is_whole:
            self._fault = error or EOFError("the server closed the connection")
        self._wake()

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    async def _more(self) -> None:
        """Returns when something has come."""
        if self._fault:
            raise self._fault
        if not self.transport.is_reading():
            self.transport.resume_reading()
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    @property
    def is_free(self) -> bool:
        """Whether the last answer was read, and another request may be sent."""
        return self._is_whole and self.is_reusable and not self.transport.is_closing()

    async def send(self, message: bytes) -> Head:
        self._answer, self._head, self._pieces, self._is_whole = self._parsed(), None, [], False
        self.transport.write(message)
        while self._head is None:
            await self._more()
        return self._head

    async def whole(self) -> bytes:
        """The body of the answer."""
        while not self._is_whole:
            await self._more()
        return b"".join(self._pieces)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes."""
        while self._pieces or not self._is_whole:
            if self._pieces:
                pieces, self._pieces = self._pieces, []
                yield b"".join(pieces)
            else:
                await self._more()

    def _parsed(self) -> Generator[None, None, None]:
        """Reads an answer; yields where more bytes are needed."""
        status, lines = 0, [""]
        while status < 200:
            lines = (yield from self._until(b"\r\n\r\n")).split("\r\n")
            version, code, *_ = lines[0].split(" ")
            status = int(code)
        pairs = [line.partition(":") for line in lines[1:]]
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        self.is_reusable = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        self._head = status, headers
        if headers.get("transfer-encoding", "").lower() != "chunked":
            size = 0 if status in EMPTY else int(headers.get("content-length", "-1"))
            self._is_open = size < 0
            return (yield from self._take(size))
        while size := int((yield from self._until(b"\r\n")).partition(";")[0], 16):
            yield from self._take(size)
            yield from self._until(b"\r\n")
        while (yield from self._until(b"\r\n")):
            pass  # trailers

    def _until(self, mark: bytes) -> Generator[None, None, str]:
        """What comes before the mark."""
        while (end := self._held.find(mark)) < 0:
            if len(self._held) > READ_BYTES:
                raise ValueError("a line of the answer does not end")
            yield
        text = self._held[:end].decode("latin-1")
        del self._held[: end + len(mark)]
        return text

    def _take(self, size: int) -> Generator[None, None, None]:
        """The next `size` bytes are of the body; below 0: all that come."""
        while size:
            if not self._held:
                yield
            piece = bytes(self._held if size < 0 else self._held[:size])
            del self._held[: len(piece)]
            self._pieces.append(piece)
            size -= len(piece) if size > 0 else 0


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
        wire, is_followed = None, False
        try:
            wire, (status, headers) = await self._sent(message, may_repeat=request.method == "GET")
            is_followed = status < 400 and is_stream(request)
            return Response(status, headers, self._follow(wire) if is_followed else await wire.whole())
        finally:
            if not is_followed:
                self._leave(wire)

    async def _follow(self, wire: _Wire) -> AsyncGenerator[bytes, None]:
        try:
            async for piece in wire.pieces():
                yield piece
        except (EOFError, ValueError) as error:
            raise ConnectionError(f"the answer was cut: {error}") from error
        finally:
            self._leave(wire)

    def _leave(self, wire: _Wire | None) -> None:
        """An exchange has ended, as it may."""
        self._room.release()
        if wire and wire.is_free:
            self._idle.append(wire)
        elif wire:
            self._drop(wire)

    async def _sent(self, message: bytes, *, may_repeat: bool) -> tuple[_Wire, Head]:
        while True:
            wire = self._idle.pop() if self._idle else None
            if wire and not wire.is_free:  # the server has closed it meanwhile
                self._drop(wire)
                continue
            fresh = wire or await self._opened()
            try:
                return fresh, await fresh.send(message)
            except BaseException as error:
                self._drop(fresh)
                if not (wire and may_repeat and isinstance(error, (OSError, EOFError))):
                    raise

    async def _opened(self) -> _Wire:
        wire = await self._clock.within(CONNECT_SECONDS, self._connected())
        self._wires.add(wire)
        return wire

    async def _connected(self) -> _Wire:
        config, parts, loop = self._config, urlsplit(self._config.server), asyncio.get_running_loop()
        if config.socket:
            return (await loop.create_unix_connection(_Wire, config.socket))[1]
        where = parts.hostname, parts.port or (443 if self._context else 80)
        name = (config.server_name or None) if self._context else None
        return (await loop.create_connection(_Wire, *where, ssl=self._context, server_hostname=name))[1]

    def _drop(self, wire: _Wire) -> None:
        self._wires.discard(wire)
        wire.transport.abort()


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
