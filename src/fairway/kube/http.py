"""The Transport over sockets: aiohttp, with the credentials of a Config.

Watches and logs are streams without a total time limit; everything else is read whole, its time bounded by
the client. Chunks are passed on as they come: lines are cut by the client, since aiohttp's own reader stops at 512 KB.
What aiohttp raises is turned into ConnectionError, so that nobody above knows aiohttp.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from fairway.clock import Clock

from .config import Config, Credentials
from .plain import CONNECT_SECONDS, CONNECTIONS, LOCAL, READ_BYTES, is_stream, tls, url_of
from .transport import Messages, Request, Response, Transport


@asynccontextmanager
async def http_transport(config: Config, clock: Clock | None = None) -> AsyncIterator[Transport]:
    """A Transport to the server that `config` names; its connections are closed on leaving."""
    credentials = Credentials(config, clock or Clock())
    connector = await _connector(config, credentials)
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        read_bufsize=READ_BYTES,
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:
        server, proxy = (LOCAL, None) if config.socket else (config.server, _proxy(config.server))

        async def exchange(request: Request) -> Response:
            url = URL(url_of(server, request), encoded=True)
            headers = {**request.headers, **await credentials.headers(), "accept": "application/json"}
            if "upgrade" in request.headers and (opened := await _opened(session, url, headers, config)) is not None:
                return opened
            try:
                answer = await session.request(
                    request.method, url, headers=headers, data=request.body or None, allow_redirects=False,
                    proxy=proxy, server_hostname=config.server_name or None,
                )  # fmt: skip
                return await _response(request, answer)
            except aiohttp.ClientError as error:
                raise ConnectionError(f"{config.server}: {error}") from error

        yield exchange


async def _connector(config: Config, credentials: Credentials) -> aiohttp.BaseConnector:
    if config.socket:
        return aiohttp.UnixConnector(config.socket, limit=CONNECTIONS)
    return aiohttp.TCPConnector(limit=CONNECTIONS, ssl=tls(config, await credentials.certificate()) or False)


async def _opened(
    session: aiohttp.ClientSession, url: URL, headers: dict[str, str], config: Config
) -> Response | None:
    """A WebSocket; None where the server refuses: the request without upgrade is answered with why."""
    offered = [it.strip() for it in headers.pop("sec-websocket-protocol", "").split(",")]
    del headers["upgrade"]
    try:
        socket = await session.ws_connect(
            url, headers=headers, protocols=offered, max_msg_size=0, server_hostname=config.server_name or None
        )
    except aiohttp.WSServerHandshakeError:
        return None
    except aiohttp.ClientError as error:
        raise ConnectionError(f"{config.server}: {error}") from error

    def talk(sends: Messages) -> Messages:
        return _talk(socket, sends)

    return Response(101, {"sec-websocket-protocol": socket.protocol or ""}, b"", talk)


async def _talk(socket: aiohttp.ClientWebSocketResponse, sends: Messages) -> AsyncIterator[bytes]:
    async def send() -> None:
        async with aclosing(sends) as messages:  # type: ignore[type-var]
            async for message in messages:
                await socket.send_bytes(message)

    sending = asyncio.create_task(send())
    try:
        async for message in socket:
            if message.type == aiohttp.WSMsgType.BINARY:
                yield message.data
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await socket.close()


def _proxy(server: str) -> str | None:
    """The proxy that the environment names for a server; asked once, since aiohttp would read ~/.netrc each time."""
    parts = urlsplit(server)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


async def _response(request: Request, answer: aiohttp.ClientResponse) -> Response:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    if answer.status < 400 and is_stream(request):
        return Response(answer.status, headers, _follow(answer))
    async with answer:
        return Response(answer.status, headers, await answer.read())


async def _follow(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in answer.content.iter_any():
            yield chunk
    except aiohttp.ClientError as error:
        raise ConnectionError(f"the stream was cut: {error}") from error
    finally:
        answer.close()
