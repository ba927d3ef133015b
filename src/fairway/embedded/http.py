"""The server on a socket: aiohttp's requests to ours and our responses back, on loopback.

Before a request reaches the core its Host must be a loopback name with our port (a page elsewhere that rebinds its
name to 127.0.0.1 still says its own) and its Origin, if any, ours; there are no CORS headers. Bodies are limited.
Stopping wakes the watchers first, since an open watch would keep the socket open.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress

from aiohttp import web

from fairway.embedded.errors import Failure
from fairway.embedded.identity import LOOPBACK
from fairway.embedded.server import Server
from fairway.embedded.store import encode
from fairway.kube.transport import Request, Response

BODY_BYTES = 3 << 20
_HOST = "127.0.0.1"


class HttpServer:
    """`port` 0: any free one; `start` says which. Without `tls` it speaks plain HTTP."""

    def __init__(self, server: Server, *, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._server, self._tls, self.port = server, tls, port
        self._runner = web.ServerRunner(web.Server(self._handle, handler_cancellation=True, access_log=None),
                                        shutdown_timeout=0.2)
        self._hosts: frozenset[str] = frozenset()

    async def start(self) -> int:
        """Listens; raises OSError where the port is taken."""
        await self._runner.setup()
        await web.TCPSite(self._runner, _HOST, self.port, ssl_context=self._tls, backlog=512).start()
        self.port = self._runner.addresses[0][1]
        self._hosts = frozenset(f"[{name}]:{self.port}" if ":" in name else f"{name}:{self.port}" for name in LOOPBACK)
        return self.port

    async def stop(self) -> None:
        """Ends the watches, commits what is staged, closes the store and then the sockets."""
        await self._server.registry.store.close()
        await self._runner.cleanup()

    async def _handle(self, incoming: web.BaseRequest) -> web.StreamResponse:
        try:
            self._check_origin(incoming)
            request = Request(incoming.method, incoming.path, tuple(incoming.query.items()),
                              {name.lower(): value for name, value in incoming.headers.items()}, await _body(incoming))
        except Failure as failure:
            return web.Response(status=failure.code, body=encode(failure.status()), content_type="application/json")
        response = await self._server.handle(request)
        if isinstance(response.body, bytes):
            return web.Response(status=response.status, headers=response.headers, body=response.body)
        return await _stream(incoming, response, response.body)

    def _check_origin(self, incoming: web.BaseRequest) -> None:
        host, origin = incoming.headers.get("Host", "").lower(), incoming.headers.get("Origin")
        if host not in self._hosts:
            raise Failure(403, "Forbidden", f"host {host!r} is not this server: use https://127.0.0.1:{self.port}")
        if origin is not None and origin.partition("://")[2].lower() not in self._hosts:
            raise Failure(403, "Forbidden", f"origin {origin!r} is foreign")


async def _body(incoming: web.BaseRequest) -> bytes:
    if not incoming.body_exists:
        return b""
    parts, size = [], 0
    async for part in incoming.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > BODY_BYTES:
            raise Failure(413, "RequestEntityTooLarge", f"Request entity too large: limit is {BODY_BYTES}")
    return b"".join(parts)


async def _stream(incoming: web.BaseRequest, response: Response, body: AsyncIterator[bytes]) -> web.StreamResponse:
    outgoing = web.StreamResponse(status=response.status, headers=response.headers)
    outgoing.enable_chunked_encoding()
    with suppress(ConnectionError):  # a client that leaves: that is how watches end
        async with aclosing(body) as chunks:  # type: ignore[type-var]
            await outgoing.prepare(incoming)
            async for chunk in chunks:
                await outgoing.write(chunk)
            await outgoing.write_eof()
    return outgoing
