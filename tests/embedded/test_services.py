"""Services: no two have one address."""

import asyncio
from pathlib import Path
from typing import Any

from inprocess import MERGE, Api, causes, config
from inprocess import api as make_api

from fairway.embedded.database import Database

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
