"""Accepting connections: TLS, a bound on how many are open, and a time for each to finish its handshake. A Unix socket
has no TLS: what it carries never leaves the kernel; and no user of one has more than a share of the connections.

Beyond `connections` a new connection is answered 503 with Retry-After; beyond `SPARE` more it is closed at once, so
that a flood costs neither memory nor descriptors. asyncio's TLS keeps a read buffer of 256 KiB per connection for its
whole life, which was most of the server's memory; here it holds two TLS records. When most connections of a burst are
closed, the memory that they used goes back to the operating system.
"""

import asyncio
import ctypes
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from fairway.clock import Clock
from fairway.embedded.errors import Failure
from fairway.embedded.store import encode
from fairway.embedded.team.people import peer_of

HOST = "127.0.0.1"
SPARE = 64
SHARE = 4  # a user of a Unix socket has at most 1/SHARE of the connections
RETRY_SECONDS = 1.0
TRIM_AFTER = 100  # closed connections


@dataclass(frozen=True, slots=True)
class Limits:
    """`idle_seconds`: for keep-alive and a request's head; `write_seconds`: without reading, but of a log."""

    connections: int = 512
    handshake_seconds: float = 10.0
    idle_seconds: float = 90.0
    body_seconds: float = 60.0
    write_seconds: float = 60.0


DEFAULTS = Limits()


class Listener:
    """`protocol` makes what speaks HTTP on a new connection."""

    def __init__(self, protocol: Callable[[], asyncio.Protocol], tls: ssl.SSLContext, limits: Limits, clock: Clock):
        self._protocol, self.tls, self.limits, self._clock = protocol, tls, limits, clock
        self._open: set[Connection | Plain] = set()
        self._closed = 0

    async def accept(self, listener: socket.socket) -> None:
        """Until cancelled, which closes the socket."""
        loop = asyncio.get_running_loop()
        kind = Plain if listener.family == socket.AF_UNIX else Connection
        with listener:
            while True:
                try:
                    accepted, _ = await loop.sock_accept(listener)
                except OSError:  # no descriptor is free, or the client is gone already
                    await self._clock.sleep(RETRY_SECONDS)
                    continue
                if len(self._open) >= self.limits.connections + SPARE:
                    accepted.close()
                    continue
                with suppress(OSError):
                    await loop.connect_accepted_socket(partial(self._connection, kind, self._most(accepted)), accepted)

    @property
    def count(self) -> int:
        return len(self._open)

    def close(self) -> None:
        for connection in tuple(self._open):
            connection.abort()

    def _connection(self, kind: "type[Connection | Plain]", most: int) -> "Connection | Plain":
        return kind(Refusal(most, self.limits.handshake_seconds) if most else self._protocol(), self)

    def _most(self, accepted: socket.socket) -> int:
        """How many connections are too many already, for all or for the user of a Unix socket; 0 if none are."""
        if len(self._open) >= self.limits.connections:
            return self.limits.connections
        if accepted.family != socket.AF_UNIX:
            return 0
        most, uid = self.limits.connections // SHARE, peer_of(accepted).uid
        return most if sum(isinstance(each, Plain) and each.uid == uid for each in self._open) >= most else 0

    def opened(self, connection: "Connection | Plain") -> None:
        self._open.add(connection)

    def closed(self, connection: "Connection | Plain") -> None:
        self._open.discard(connection)
        self._closed += 1
        if self._closed >= TRIM_AFTER and len(self._open) < self.limits.connections // 2:
            self._closed = 0
            trim()


class Connection(SSLProtocol):
    """asyncio's TLS, counted from its first byte to its last, with a small read buffer."""

    max_size = 32 << 10

    def __init__(self, protocol: asyncio.Protocol, listener: Listener) -> None:
        self._listener = listener
        super().__init__(asyncio.get_running_loop(), protocol, listener.tls, None, server_side=True,
                         ssl_handshake_timeout=listener.limits.handshake_seconds,
                         ssl_shutdown_timeout=listener.limits.handshake_seconds)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._plain = transport
        self._listener.opened(self)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._listener.closed(self)

    def abort(self) -> None:
        self._plain.abort()


class Plain(asyncio.Protocol):
    """A connection without TLS, counted from its first byte to its last."""

    def __init__(self, protocol: asyncio.Protocol, listener: Listener) -> None:
        self._protocol, self._listener = protocol, listener
        self.data_received, self.eof_received = protocol.data_received, protocol.eof_received  # type: ignore[method-assign]
        self.pause_writing, self.resume_writing = protocol.pause_writing, protocol.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._plain, self.uid = transport, peer_of(transport.get_extra_info("socket")).uid
        self._listener.opened(self)
        self._protocol.connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._protocol.connection_lost(exc)
        self._listener.closed(self)

    def abort(self) -> None:
        self._plain.abort()


class Refusal(asyncio.Protocol):
    """Answers the first bytes of a connection with 503, and closes it."""

    def __init__(self, connections: int, seconds: float) -> None:
        self._seconds = seconds
        text = f"{connections} connections are open, the most that this server serves at once: close some or try again"
        body = encode(Failure(503, "ServiceUnavailable", text, details={"retryAfterSeconds": 1}).status())
        self._answer = (b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
                        b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._end = asyncio.get_running_loop().call_later(self._seconds, transport.abort)

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._answer)
        self._transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._end.cancel()


def trim() -> None:
    """Gives free memory back to the operating system, where the C library can."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
