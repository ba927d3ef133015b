"""Services: no two have one address, and what is told where connections cannot be carried."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from cluster import running, serve, until
from inprocess import MERGE, Api, causes, config
from inprocess import api as make_api

from fairway.api.objects import Metadata
from fairway.clock import Clock, seeded
from fairway.embedded.database import Database
from fairway.embedded.services.carry import Carrier
from fairway.embedded.services.control import Backend, Service, Services, Spec
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Selection

ANN, BOB = (f"/api/v1/namespaces/{name}/services" for name in ("ann", "bob"))
EXTERNAL = {"type": "ExternalName", "externalName": "example.com"}


def service(name: str = "web", **spec: Any) -> dict[str, Any]:
    return config(name) | {"spec": {"ports": [{"port": 80}], "selector": {"app": "web"}} | spec}


async def homes(api: Api) -> Api:
    for name in ("ann", "bob"):
        await api.ok("POST", "/api/v1/namespaces", config(name))
    return api


async def address(api: Api, path: str, name: str = "web") -> str:
    return (await api.ok("POST", path, service(name)))["spec"]["clusterIP"]


async def test_an_address_is_of_one_service_until_that_is_deleted(api: Api) -> None:
    taken = await address(await homes(api), ANN)
    for path in (ANN, BOB):
        status = await api.no(422, "POST", path, service("other", clusterIP=taken))
        assert status["message"].startswith(
            f'Service "other" is invalid: spec.clusterIPs: Invalid value: ["{taken}"]: failed to allocate IP {taken}: '
            "provided IP is already allocated")
    await api.ok("DELETE", f"{ANN}/web")
    made = await api.ok("POST", BOB, service("other", clusterIP=taken))
    assert (made["spec"]["clusterIP"], made["spec"]["clusterIPs"]) == (taken, [taken])


async def test_an_address_is_given_to_one_of_two_that_name_it_at_once(tmp_path: Path) -> None:
    api = make_api(database=Database(str(tmp_path / "db")))
    await api.server.start()
    await homes(api)
    named = service(clusterIP="127.96.0.7")
    answers = await asyncio.gather(api.ask("POST", ANN, named), api.ask("POST", BOB, named))
    assert sorted(code for code, _ in answers) == [201, 422]
    await api.store.close()


async def test_whoever_would_get_an_address_that_another_has_named_gets_a_free_one() -> None:
    one, other = await homes(make_api()), await homes(make_api())  # they give the same uids
    await address(one, BOB)
    due = await address(one, ANN)
    await other.ok("POST", BOB, service(clusterIP=due))
    assert await address(other, ANN) not in (due, "")


async def test_a_service_that_becomes_one_with_an_address_gets_none_of_another(api: Api) -> None:
    taken = await address(await homes(api), ANN)
    await api.ok("POST", BOB, service(**EXTERNAL))
    change = {"type": "ClusterIP", "externalName": None}
    status = await api.no(422, "PATCH", f"{BOB}/web", {"spec": change | {"clusterIP": taken}}, MERGE)
    assert causes(status) == {"spec.clusterIPs": "FieldValueInvalid"}
    given = (await api.ok("PATCH", f"{BOB}/web", {"spec": change}, MERGE))["spec"]["clusterIP"]
    assert given and given != taken
    status = await api.no(422, "POST", BOB, service("named", clusterIP="127.96.0.7", **EXTERNAL))
    assert causes(status) == {"spec.clusterIPs": "FieldValueForbidden"}


async def test_a_service_without_a_spec_keeps_no_other_from_its_address(api: Api) -> None:
    await homes(api)
    await api.ask("POST", BOB, config("empty"))
    assert await address(api, ANN)


# -- connections

SERVER = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"


class Here:
    """All pods are what this process has started."""

    node = "here"

    def shims(self, namespace: str, name: str) -> dict[str, int]:
        return {"main": os.getpid()}


@pytest.fixture
def target() -> Iterator[int]:
    """The port at which a process listens."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin and process.stdout
        yield int(process.stdout.readline())
        process.stdin.close()


async def test_an_address_that_is_in_use_is_told_once(target: int) -> None:
    clock, place = Clock(), "127.96.0.9"
    client = Client((await serve(clock, seeded(1))).handle, clock)
    pods = [Backend(metadata=Metadata(name="p", namespace="default"), spec=Spec())]
    carrier = Carrier(client, Here())  # type: ignore[arg-type]

    async def told() -> list[dict[str, Any]]:
        return await client.list(Selection(kinds.EVENTS, "default"))

    with socket.create_server((place, 0)) as other:
        port = other.getsockname()[1]
        one = Service(metadata=Metadata(name="web", namespace="default", uid="u"), spec={
            "clusterIP": place, "ports": [{"port": port, "targetPort": target}]})
        for _ in range(3):
            assert await carrier.carry(one, pods)
    async with running(carrier.run()):
        (event,) = await until(client, 60, told)
    assert (event["reason"], event["count"]) == ("FailedListen", 1) and f"{place}:{port}" in event["message"]


async def test_a_service_that_loses_its_selector_is_listened_for_no_more(api: Api) -> None:
    client = Client(api.server.handle, Clock())
    seen: list[bool] = []

    async def carry(one: Service, pods: list[Backend]) -> None:
        seen.append(bool(one.spec.get("selector")))

    async def asked(has_selector: bool) -> bool:
        return seen[-1:] == [has_selector]

    path = "/api/v1/namespaces/default/services"
    async with running(Services(client, carry).run()):
        await api.ok("POST", path, service())
        await until(client, 60, partial(asked, True))
        await api.ok("PATCH", f"{path}/web", {"spec": {"selector": None}}, MERGE)
        await until(client, 60, partial(asked, False))
