"""The server on its socket: TLS, tokens, who may ask from where, and an end that waits for nobody."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import yaml
from inprocess import MAPS, PODS, Api, config, pod
from inprocess import api as make_api
from kubelet import Kubelet

from fairway.clock import Chance, Clock
from fairway.embedded.access.identity import MASTERS, Identity
from fairway.embedded.database import Database
from fairway.embedded.http import HttpServer
from fairway.embedded.keys import keys
from fairway.embedded.limits import BODY_BYTES


@dataclass
class Site:
    api: Api
    http: HttpServer
    session: aiohttp.ClientSession
    folder: Path

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.http.port}"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    folder = tmp_path / "data"
    ours = keys(folder, now=Clock().now(), chance=Chance())

    async def endless() -> AsyncIterator[bytes]:
        yield b"begin\n"
        await asyncio.get_running_loop().create_future()

    made = make_api(database=Database(str(folder / "db")), tokens={ours.token: Identity("ann", (MASTERS,))})
    made.server.kubelet = Kubelet(endless)
    await made.server.start()
    http = HttpServer(made.server, tls=ours.tls())
    ours.write_kubeconfig(await http.start())
    written = yaml.safe_load((folder / "kubeconfig").read_text())
    trust = ssl.create_default_context(cadata=ours.authority)
    headers = {"Authorization": f"Bearer {written['users'][0]['user']['token']}"}
    async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(ssl=trust, limit=0)) as session:
        yield Site(made, http, session, folder)
    await http.stop()


async def test_it_is_reached_by_what_the_kubeconfig_says(site: Site) -> None:
    written = yaml.safe_load((site.folder / "kubeconfig").read_text())
    server = written["clusters"][0]["cluster"]["server"]
    assert server == site.url
    async with site.session.post(f"{server}{MAPS}", json=config("ä".encode().hex())) as answer:
        assert answer.status == 201
    async with site.session.get(f"https://localhost:{site.http.port}{MAPS}") as answer:
        assert len((await answer.json())["items"]) == 1


async def test_files_are_private_and_stay_over_a_restart(site: Site) -> None:
    assert oct(site.folder.stat().st_mode & 0o777) == "0o700"
    assert {oct(each.stat().st_mode & 0o777) for each in site.folder.iterdir()} == {"0o600"}
    again = keys(site.folder, now=Clock().now(), chance=Chance())
    assert again.token == (site.folder / "token").read_text()
    later = keys(site.folder, now=Clock().now() + 3650 * 86400, chance=Chance())
    assert later.authority != again.authority and later.token == again.token


async def test_without_the_token_there_is_nothing(site: Site) -> None:
    for headers in ({"Authorization": ""}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic YTpi"}):
        async with site.session.get(f"{site.url}{MAPS}", headers=headers) as answer:
            status = await answer.json()
            assert (answer.status, status["reason"], status["message"]) == (401, "Unauthorized", "Unauthorized")


@pytest.mark.parametrize(("headers", "code"), [
    ({"Host": "evil.example:{port}"}, 403), ({"Host": "127.0.0.1"}, 403), ({"Host": "127.0.0.1:1"}, 403),
    ({"Host": "localhost:{port}"}, 200), ({"Host": "[::1]:{port}"}, 200),
    ({"Origin": "https://evil.example"}, 403), ({"Origin": "null"}, 403), ({"Origin": "https://127.0.0.1:{port}"}, 200),
])
async def test_host_and_origin_are_ours(site: Site, headers: dict[str, str], code: int) -> None:
    filled = {name: value.format(port=site.http.port) for name, value in headers.items()}
    async with site.session.get(f"{site.url}{MAPS}", headers=filled) as answer:
        assert answer.status == code
        assert "Access-Control-Allow-Origin" not in answer.headers


async def test_large_bodies_pass_and_larger_ones_do_not(site: Site) -> None:
    for size, code in ((1_000_000, 201), (BODY_BYTES, 413)):
        big = config(f"c{size}") | {"data": {"x": "y" * size}}
        async with site.session.post(f"{site.url}{MAPS}", json=big) as answer:
            assert answer.status == code
    async with site.session.get(f"{site.url}{MAPS}/c1000000") as answer:
        assert len((await answer.json())["data"]["x"]) == 1_000_000


async def test_an_event_reaches_a_watcher_when_it_is_committed(site: Site) -> None:
    async with site.session.get(f"{site.url}{MAPS}?watch=1") as answer:
        async with site.session.post(f"{site.url}{MAPS}", json=config("a")) as made:
            assert made.status == 201
        line = json.loads(await answer.content.readline())
        assert (line["type"], line["object"]["metadata"]["name"]) == ("ADDED", "a")


async def test_it_stops_at_once_with_watches_and_logs_open(site: Site) -> None:
    async with site.session.post(f"{site.url}{PODS}", json=pod("p", nodeName="n")) as made:
        assert made.status == 201
    open_watches = [await site.session.get(f"{site.url}{MAPS}?watch=1") for _ in range(5)]
    log = await site.session.get(f"{site.url}{PODS}/p/log?follow=true")
    assert await log.content.readline() == b"begin\n"
    await asyncio.wait_for(site.http.stop(), 5)
    for each in open_watches:
        assert await each.read() == b""
    with pytest.raises(aiohttp.ClientConnectorError):
        await site.session.get(f"{site.url}{MAPS}")
    log.close()
