"""The client over real sockets, by either Transport: long lines, cut streams, errors, TLS."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec
import pytest
import trustme
from aiohttp import web

from fairway.clock import Clock, seeded
from fairway.kube.client import ApiError, Client
from fairway.kube.config import Config
from fairway.kube.http import http_transport
from fairway.kube.kinds import PODS, Ref, Selection
from fairway.kube.plain import plain_transport
from fairway.kube.transport import Transport

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Opened = Callable[[Config], AbstractAsyncContextManager[Transport]]
ClientOf = Callable[[Answer], AbstractAsyncContextManager[Client]]
POD = Ref(PODS, "p", "ns")


@asynccontextmanager
async def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"{'https' if tls else 'http'}://localhost:{port}"
    finally:
        await runner.cleanup()


@pytest.fixture(params=[http_transport, plain_transport], ids=["aiohttp", "streams"])
def opened(request: pytest.FixtureRequest) -> Opened:
    return request.param


@pytest.fixture
def client_of(opened: Opened) -> ClientOf:
    @asynccontextmanager
    async def client_of(answer: Answer) -> AsyncIterator[Client]:
        async with serving(answer) as url, opened(Config(url.replace("localhost", "127.0.0.1"))) as transport:
            yield Client(transport, Clock(), seeded(1))

    return client_of


def streaming(*chunks: bytes, cut: bool = False) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if cut:
            assert request.transport
            request.transport.abort()
        return response

    return answer


def event(name: str, filler: int = 0) -> bytes:
    pod = {"metadata": {"name": name, "resourceVersion": "7"}, "spec": {"filler": "x" * filler}}
    return msgspec.json.encode({"type": "ADDED", "object": pod}) + b"\n"


async def names_seen(client: Client, bound: int = 8 << 20) -> list[str]:
    seen = []
    async for it in client.watch(Selection(PODS), "1", bound=bound):
        seen.append(msgspec.json.decode(it.object)["metadata"]["name"])
    return seen


async def test_a_watch_line_of_two_megabytes_arrives_whole(client_of: ClientOf) -> None:
    async with client_of(streaming(event("big", 2 << 20) + event("small"))) as client:
        assert await names_seen(client) == ["big", "small"]


async def test_events_are_cut_at_newlines_wherever_the_chunks_end(client_of: ClientOf) -> None:
    both = event("a") + event("b")
    async with client_of(streaming(both[:10], both[10:70], both[70:])) as client:
        assert await names_seen(client) == ["a", "b"]


async def test_a_line_over_the_bound_is_an_error_and_not_memory(client_of: ClientOf) -> None:
    async with client_of(streaming(event("big", 1 << 20))) as client:
        with pytest.raises(ConnectionError, match="longer than"):
            await names_seen(client, bound=1 << 16)


async def test_a_cut_stream_is_a_connection_error_after_the_whole_events(client_of: ClientOf) -> None:
    async with client_of(streaming(event("a"), event("b")[:20], cut=True)) as client:
        seen = []
        with pytest.raises(OSError):
            async for it in client.watch(Selection(PODS), "1"):
                seen.append(it)
        assert len(seen) <= 1


async def test_an_error_event_in_a_watch_is_raised_as_what_it_says(client_of: ClientOf) -> None:
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
    async with client_of(streaming(msgspec.json.encode(gone) + b"\n")) as client:
        with pytest.raises(ApiError, match="too old") as caught:
            await names_seen(client)
        assert (caught.value.status, caught.value.reason) == (410, "Expired")


async def test_a_refusal_carries_status_reason_and_message(client_of: ClientOf) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"reason": "Conflict", "message": "changed"}, status=409)

    async with client_of(answer) as client:
        with pytest.raises(ApiError) as caught:
            await client.patch(POD, {})
        assert (caught.value.status, caught.value.reason, caught.value.message) == (409, "Conflict", "changed")


async def test_a_throttled_request_is_sent_again_when_told(client_of: ClientOf) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        if len(asked) == 1:
            return web.json_response({}, status=429, headers={"Retry-After": "0"})
        return web.json_response({"metadata": {"name": "p"}})

    async with client_of(answer) as client:
        assert (await client.get(POD))["metadata"]["name"] == "p"
    assert asked == ["/api/v1/namespaces/ns/pods/p"] * 2


async def test_a_server_that_does_not_answer_is_a_connection_error(opened: Opened) -> None:
    async with opened(Config("http://127.0.0.1:9")) as transport:
        with pytest.raises(ConnectionError):
            await Client(transport, Clock()).get(POD)


async def test_a_label_selector_and_odd_names_reach_the_server_as_written(client_of: ClientOf) -> None:
    seen: list[tuple[str, dict[str, str]]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append((request.path, dict(request.query)))
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    async with client_of(answer) as client:
        await client.list(Selection(PODS, "ns", labels="a in (b, c),d!=e"))
    assert seen == [("/api/v1/namespaces/ns/pods", {"labelSelector": "a in (b, c),d!=e", "limit": "500"})]


async def test_a_list_is_read_page_by_page(client_of: ClientOf) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        first = "continue" not in request.query
        meta = {"resourceVersion": "5"} | ({"continue": "more"} if first else {})
        return web.json_response({"metadata": meta, "items": [{"metadata": {"name": "a" if first else "b"}}]})

    async with client_of(answer) as client:
        assert [it["metadata"]["name"] for it in await client.list(Selection(PODS))] == ["a", "b"]


async def test_two_hundred_watches_leave_room_for_a_request(client_of: ClientOf) -> None:
    released = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"metadata": {"name": "p"}})
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(event("first"))
        await released.wait()
        return response

    async with client_of(answer) as client:
        watches = [client.watch(Selection(PODS), "1") for _ in range(200)]
        await asyncio.gather(*(anext(it) for it in watches))
        assert (await client.get(POD))["metadata"]["name"] == "p"
        released.set()
        for it in watches:
            await it.aclose()


async def test_a_proxy_that_the_environment_names_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {"name": request.url.host}})

    async with serving(answer) as url:
        monkeypatch.setenv("http_proxy", url)
        monkeypatch.setenv("no_proxy", "localhost")
        async with http_transport(Config("http://cluster.invalid")) as transport:
            assert (await Client(transport, Clock()).get(POD))["metadata"]["name"] == "cluster.invalid"


async def test_tls_trusts_the_authority_named_and_shows_the_client_certificate(opened: Opened) -> None:
    authority, names = trustme.CA(), []
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    client = authority.issue_cert("ann@example.org")

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport
        names.append(request.transport.get_extra_info("peercert")["subjectAltName"][0][1])
        return web.json_response({"metadata": {"name": "p"}})

    async with serving(answer, server) as url:
        config = Config(
            url,
            authority=authority.cert_pem.bytes(),
            certificate=client.cert_chain_pems[0].bytes(),
            key=client.private_key_pem.bytes(),
        )
        async with opened(config) as transport:
            await Client(transport, Clock()).get(POD)
        async with opened(Config(url, authority=trustme.CA().cert_pem.bytes())) as transport:
            with pytest.raises(ConnectionError):
                await Client(transport, Clock()).get(POD)
    assert names == ["ann@example.org"]


async def test_a_connection_is_used_again_and_one_that_was_closed_is_not(client_of: ClientOf) -> None:
    ports: list[int] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport
        ports.append(request.transport.get_extra_info("peername")[1])
        response = web.json_response({"metadata": {"name": "p"}})
        if len(ports) == 2:
            response.force_close()
        return response

    async with client_of(answer) as client:
        for _ in range(3):
            await client.get(POD)
    assert ports[0] == ports[1] != ports[2]


async def test_a_command_says_that_it_is_ours() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {"name": request.headers["user-agent"]}})

    async with serving(answer) as url, plain_transport(Config(url)) as transport:
        assert (await Client(transport, Clock()).get(POD))["metadata"]["name"] == "fairway"


async def test_a_request_is_sent_again_where_its_old_connection_is_cut_and_it_changes_nothing() -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.method)
        if len(asked) in (2, 4):
            assert request.transport
            request.transport.abort()
        return web.json_response({"metadata": {"name": "p"}})

    async with serving(answer) as url, plain_transport(Config(url)) as transport:
        client = Client(transport, Clock())
        await client.get(POD)
        await client.get(POD)
        with pytest.raises(ConnectionError):
            await client.patch(POD, {})
    assert asked == ["GET", "GET", "GET", "PATCH"]


@pytest.mark.parametrize("head", ["HTTP/1.0 200 OK\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\n"])
async def test_a_body_without_a_length_ends_with_its_connection(head: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" + head.encode() + b'\r\n{"metadata": {"name": "p"}}')
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, plain_transport(Config(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")) as transport:
        assert (await Client(transport, Clock()).get(POD))["metadata"]["name"] == "p"


async def test_an_answer_that_is_no_http_is_a_connection_error() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, plain_transport(Config(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")) as transport:
        with pytest.raises(ConnectionError):
            await Client(transport, Clock()).get(POD)


@pytest.mark.parametrize(
    "body", [b"Content-Length: 26\r\n\r\n%s", b"Transfer-Encoding: chunked\r\n\r\n1a\r\n%s\r\n0\r\n\r\n"]
)
async def test_an_answer_that_comes_byte_by_byte_is_read_whole(body: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for byte in b"HTTP/1.1 200 OK\r\n" + body % b'{"metadata":{"name": "p"}}':
            writer.write(bytes([byte]))
            await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, plain_transport(Config(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")) as transport:
        assert (await Client(transport, Clock()).get(POD))["metadata"]["name"] == "p"
