"""The bounds of the server: silent and slow clients, many connections, deep and large objects."""

import asyncio
import base64
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from inprocess import JOBS, JSON_PATCH, MAPS, MERGE, PODS, Api, causes, config, job, pod
from inprocess import api as make_api
from kubelet import Kubelet

from fairway.clock import Chance, Clock
from fairway.embedded.access.identity import MASTERS, Identity
from fairway.embedded.connection import SPARE, Limits
from fairway.embedded.database import Database
from fairway.embedded.gate import CONTROLLER
from fairway.embedded.http import HttpServer
from fairway.embedded.keys import keys
from fairway.embedded.limits import BODY_BYTES, DATA_BYTES, LEVELS
from fairway.embedded.patch import APPLY
from fairway.embedded.server import SEATS
from fairway.embedded.store import Key
from fairway.kube.transport import Request, Response

SERVE = Path(__file__).parents[1] / "conformance" / "serve.py"
SOON = 20
NAMESPACE = "/api/v1/namespaces/default"


@dataclass
class Client:
    """One connection, spoken to in bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, text: str) -> str:
        """The head of the answer."""
        self.writer.write(text.encode())
        return (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), SOON)).decode()

    def abort(self) -> None:
        self.writer.transport.abort()

    async def is_closed(self) -> bool:
        """Waits for the server to end the connection."""
        with suppress(ConnectionError):
            await asyncio.wait_for(self.reader.read(), SOON)
        return True


@dataclass
class Site:
    api: Api
    http: HttpServer
    trust: ssl.SSLContext
    stack: AsyncExitStack

    async def client(self, *, is_tls: bool = True) -> Client:
        made = Client(*await asyncio.open_connection("127.0.0.1", self.http.port, ssl=self.trust if is_tls else None))
        self.stack.callback(made.abort)
        return made

    def request(self, method: str, path: str, *head: str) -> str:
        lines = (f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.http.port}", *head)
        return "".join(f"{line}\r\n" for line in (*lines, ""))


@asynccontextmanager
async def site(folder: Path, **limits: Any) -> AsyncIterator[Site]:
    ours = keys(folder, now=Clock().now(), chance=Chance())
    made = make_api()
    await made.server.start()
    http = HttpServer(made.server, tls=ours.tls(), limits=Limits(**limits))
    await http.start()
    async with AsyncExitStack() as stack:
        yield Site(made, http, ssl.create_default_context(cadata=ours.authority), stack)
    await http.stop()


async def test_a_connection_that_never_begins_tls_is_closed(tmp_path: Path):
    async with site(tmp_path, handshake_seconds=0.2) as served:
        assert await (await served.client(is_tls=False)).is_closed()


@pytest.mark.parametrize("sent", ["", "GET /rea", "GET /readyz HTTP/1.1\r\nHost: 127"])
async def test_a_request_whose_head_never_ends_is_closed(sent: str, tmp_path: Path):
    async with site(tmp_path, idle_seconds=0.2) as served:
        client = await served.client()
        client.writer.write(sent.encode())
        assert await client.is_closed()


@pytest.mark.parametrize("sent", ["GET / HTTP/1.1\r\nBad Header\r\n\r\n", f"GET /{'x' * 100_000} HTTP/1.1\r\n\r\n",
                                  "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"])
async def test_what_is_no_http_is_answered_400_and_leaves_nothing_in_the_log(
    sent: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with site(tmp_path) as served:
        assert "HTTP/1.0 400" in await (await served.client()).ask(sent)
    assert [record.getMessage() for record in caplog.records] == []


async def test_a_quantity_that_is_none_is_not_said_whole(api: Api):
    thing = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "9" * 100_000}}}]}
    status, said = await api.ask("POST", f"{NAMESPACE}/pods", {"metadata": {"name": "a"}, "spec": thing})
    assert status in (400, 422) and len(said["message"]) < 1000


async def test_a_file_of_a_volume_has_a_name(api: Api):
    items = [{"key": "k", "path": "./."}]
    thing = {"containers": [{"name": "c", "image": "i"}],
             "volumes": [{"name": "v", "secret": {"secretName": "s", "items": items}}]}
    said = await api.no(422, "POST", f"{NAMESPACE}/pods", {"metadata": {"name": "a"}, "spec": thing})
    assert 'spec.volumes[0].secret.items[0].path: Invalid value: "./.": must name a file' in said["message"]


async def test_a_connection_without_a_next_request_is_closed(tmp_path: Path):
    async with site(tmp_path, idle_seconds=0.2) as served:
        client = await served.client()
        assert "200 OK" in await client.ask(served.request("GET", "/readyz"))
        assert await client.is_closed()


async def test_a_body_that_never_ends_is_answered_408_and_closed(tmp_path: Path):
    async with site(tmp_path, body_seconds=0.2) as served:
        client = await served.client()
        post = served.request("POST", MAPS, "Content-Length: 1000") + "{"
        assert "408 Request Timeout" in await client.ask(post)
        assert await client.is_closed()


async def test_a_client_that_does_not_read_its_answers_is_closed(tmp_path: Path):
    async with site(tmp_path, write_seconds=0.3) as served:
        await served.api.ok("POST", MAPS, config() | {"data": {"x": "y" * 900_000}})
        client = await served.client()
        client.writer.transport.pause_reading()
        client.writer.write(served.request("GET", f"{MAPS}/c").encode() * 20)
        while served.http.open_connections:
            await asyncio.sleep(0.02)


async def test_the_reader_of_a_log_may_pause_for_longer_than_others(tmp_path: Path):
    lines, count = b"x" * 65_536, 400

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(count):
            yield lines

    async with site(tmp_path, write_seconds=0.3) as served:
        served.api.server.kubelet = Kubelet(pieces)
        await served.api.ok("POST", PODS, pod("p", nodeName="n"))
        await served.api.ok("POST", MAPS, config() | {"data": {"x": "y" * 900_000}})
        log, other = await served.client(), await served.client()
        for client, path, times in ((log, f"{PODS}/p/log", 1), (other, f"{MAPS}/c", 20)):
            client.writer.transport.pause_reading()
            client.writer.write(served.request("GET", path).encode() * times)
        while served.http.open_connections > 1:  # the other one is cut off
            await asyncio.sleep(0.02)
        log.writer.transport.resume_reading()
        read = 0
        while read < count * len(lines):
            part = await asyncio.wait_for(log.reader.read(1 << 20), SOON)
            assert part, "the log is cut off"
            read += part.count(b"x")


async def test_a_silent_watch_outlives_the_idle_time(tmp_path: Path):
    async with site(tmp_path, idle_seconds=0.2, write_seconds=0.2, body_seconds=0.2) as served:
        watch, idle = await served.client(), await served.client()
        assert "200 OK" in await watch.ask(served.request("GET", f"{MAPS}?watch=1"))
        assert await idle.is_closed()
        assert await (await served.client()).is_closed()
        await served.api.ok("POST", MAPS, config("late"))
        assert b'"late"' in await asyncio.wait_for(watch.reader.readuntil(b"late"), SOON) + b'"'


async def test_beyond_the_most_connections_one_is_told_to_come_again(tmp_path: Path):
    async with site(tmp_path, connections=2) as served:
        first, second, third = [await served.client() for _ in range(3)]
        get = served.request("GET", "/readyz")
        assert "200 OK" in await first.ask(get) and "200 OK" in await second.ask(get)
        head = await third.ask(get)
        assert "503 Service Unavailable" in head and "Retry-After: 1" in head
        said = json.loads(await third.reader.read())
        assert (said["kind"], said["code"]) == ("Status", 503) and "2 connections are open" in said["message"]
        first.abort()
        while served.http.open_connections > 1:
            await asyncio.sleep(0.02)
        assert "200 OK" in await (await served.client()).ask(get)


async def test_a_flood_of_connections_is_closed_unanswered(tmp_path: Path):
    async with site(tmp_path, connections=1) as served:
        for _ in range(1 + SPARE):
            await served.client(is_tls=False)
        assert await (await served.client(is_tls=False)).is_closed()
        assert served.http.open_connections == 1 + SPARE


def test_idle_connections_take_little_memory_and_give_it_back(tmp_path: Path):
    served = subprocess.Popen([sys.executable, str(SERVE), str(tmp_path)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    assert served.stdin and served.stdout
    served.stdout.readline()
    process, clients = psutil.Process(served.pid), []
    cluster = yaml.safe_load((tmp_path / "kubeconfig").read_text())["clusters"][0]["cluster"]
    port, trust = int(cluster["server"].rpartition(":")[2]), ssl.create_default_context(cafile=tmp_path / "ca.crt")
    before = process.memory_info().rss
    for _ in range(400):
        client = trust.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1")
        client.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 403")
        clients.append(client)
    assert process.memory_info().rss - before < 60 << 20  # 110 MiB with asyncio's own buffers
    for client in clients:
        client.close()
    while process.memory_info().rss - before > 30 << 20:
        pass
    served.stdin.close()
    assert served.wait() == 0


@pytest.mark.parametrize("body", [
    b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000,
    b'{"metadata":{"name":"a"},"data":' + b'{"a":' * LEVELS + b"1" + b"}" * LEVELS + b"}",
])
@pytest.mark.parametrize("strictness", ["Strict", "Ignore"])
async def test_what_is_nested_deeply_is_a_bad_request(api: Api, body: bytes, strictness: str):
    for method, path, media in (("POST", MAPS, "application/json"), ("PUT", f"{MAPS}/kube", "application/json"),
                                ("PATCH", f"{NAMESPACE}", MERGE), ("PATCH", f"{NAMESPACE}", JSON_PATCH),
                                ("DELETE", f"{NAMESPACE}", "application/json")):
        said = await api.no(400, method, path, body, media, fieldValidation=strictness)
        assert said["reason"] == "BadRequest"


@pytest.mark.parametrize("body", [b"{a: " * 20_000, b"[" * 20_000 + b"]" * 20_000, b"\n" + b"- " * 20_000])
async def test_a_configuration_that_is_nested_deeply_is_read_no_further(api: Api, body: bytes):
    said = await api.no(400, "PATCH", f"{MAPS}/a", b"data: " + body, APPLY, fieldManager="me")
    assert f"the limit is {LEVELS} levels" in said["message"]


async def test_flat_operations_cannot_nest_deeply_or_fill_the_memory(api: Api):
    await api.ok("POST", MAPS, config() | {"data": {"x": "y" * 1000}})
    nest = [{"op": "add", "path": "/data" + "/a" * depth, "value": {}} for depth in range(1, LEVELS + 10)]
    assert "nested" in (await api.no(400, "PATCH", f"{MAPS}/c", nest, JSON_PATCH))["message"]
    double = [{"op": "copy", "from": "/data", "path": f"/data/a{number}"} for number in range(40)]
    await api.no(413, "PATCH", f"{MAPS}/c", double, JSON_PATCH)


async def test_a_continue_token_that_is_nested_deeply_is_a_bad_request(api: Api):
    await api.no(400, "GET", MAPS, continue_=base64.urlsafe_b64encode(b"[" * 50_000).decode())


@pytest.mark.parametrize("plural, field", [("configmaps", "data"), ("secrets", "stringData")])
async def test_configuration_holds_a_mebibyte(api: Api, plural: str, field: str):
    path = f"{NAMESPACE}/{plural}"
    await api.ok("POST", path, config("a") | {field: {"x": "y" * DATA_BYTES}})
    said = await api.no(422, "POST", path, config("b") | {field: {"x": "y" * DATA_BYTES, "z": "1"}})
    assert causes(said) == {"data": "FieldValueTooLong"} and "1048576" in said["message"]


async def test_an_object_is_limited_in_all(api: Api):
    big = job("big")
    big["spec"]["template"]["spec"]["containers"][0]["args"] = ["x" * 1_000_000]
    await api.ok("POST", JOBS, big)
    big["metadata"]["name"], big["spec"]["template"]["spec"]["containers"][0]["args"] = "large", ["x" * 1_600_000]
    said = await api.no(413, "POST", JOBS, big)
    assert said["reason"] == "RequestEntityTooLarge" and "1572864" in said["message"]
    await api.no(404, "GET", f"{JOBS}/large")
    assert len(json.dumps(big)) < BODY_BYTES


async def test_a_person_writes_before_the_controllers_that_wait(tmp_path: Path):
    made = make_api(database=Database(str(tmp_path / "db")), tokens={"a": Identity("ann", (MASTERS,)), "c": CONTROLLER})
    await made.server.start()

    def create(token: str, name: str) -> Awaitable[Response]:
        headers = {"authorization": f"Bearer {token}"}
        return made.server.handle(Request("POST", MAPS, (), headers, json.dumps(config(name)).encode()))

    first, *rest = [asyncio.ensure_future(create(*each)) for each in (("a", "p"), *(("c", f"c{n}") for n in range(9)))]
    await asyncio.sleep(0)
    staged = [made.store.latest(Key("configmaps", "default", name)) for name in ("p", *(f"c{n}" for n in range(9)))]
    assert [entry is not None for entry in staged] == [True] * (1 + SEATS) + [False] * (9 - SEATS)
    assert {(await each).status for each in (first, *rest)} == {201}
    await made.store.close()


async def test_an_object_is_listed_by_its_name_without_reading_the_others(api: Api):
    for number in range(3000):
        await api.ok("POST", JOBS, job(f"j{number}"))

    async def seconds(fields: str, found: int) -> float:
        before = sum(os.times()[:2])
        for _ in range(5):
            assert len(await api.names(JOBS, fieldSelector=fields)) == found
        return sum(os.times()[:2]) - before

    assert 3 * await seconds("metadata.name=j7", 1) < await seconds("status.successful=1", 0)
