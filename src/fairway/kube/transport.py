"""One HTTP exchange with an API server, as values: the seam between the client and any server.

A Transport is a function from a Request to a Response: over sockets `kube.plain`, where there is a proxy and for
WebSockets `kube.http`; and the embedded server's own `handle`, called in process by tests and by the controllers that
live in the same process.
A body that is an iterator is a stream (a watch, a followed log): chunks of bytes in order, of any size; closing the
iterator ends the exchange.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a Unix socket, as the kernel tells it."""

    pid: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Request:
    """`path` is percent-decoded and starts with a slash; `query` keeps order and repeats; header names are lower
    case, and what an impersonation header says more than once are lines. `peer`: set by a server's transport, where it
    is known; no client sends it."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    peer: Peer | None = None


Messages = AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class Response:
    """`talk`, with status 101: what a WebSocket is then: the messages of the client → those of the server. `may_pause`:
    a person reads the stream, and may stop for as long as it takes."""

    status: int
    headers: Mapping[str, str]
    body: bytes | AsyncIterator[bytes]
    talk: Callable[[Messages], Messages] | None = None
    may_pause: bool = False


Transport = Callable[[Request], Awaitable[Response]]
