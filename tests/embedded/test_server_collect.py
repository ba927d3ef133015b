"""What goes with what is gone."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
from inprocess import JOBS, MAPS, MERGE, PODS, Api, Thing, config, crd, job, pod, widget
from inprocess import api as make_api

from fairway.clock import VirtualClock
from fairway.embedded import collect

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
async def tended(api: Api) -> AsyncIterator[Api]:
    tending = asyncio.ensure_future(api.server.tend())
    yield api
    await api.store.close()
    with suppress(asyncio.CancelledError):
        await tending


def owned(name: str, *owners: Thing, block: bool = False) -> Thing:
    return config(name, ownerReferences=[
        {"apiVersion": "v1", "kind": "ConfigMap", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"],
         "blockOwnerDeletion": block} for each in owners])


async def gone(api: Api, path: str) -> None:
    """Returns when there is nothing at the path."""
    while (await api.ask("GET", path))[0] != 404:
        await api.store.changed()


async def collected(api: Api) -> None:
    """Returns when all that is due now is done: looks are taken in order, and this one has its turn after them."""
    absent = {"metadata": {"name": "x", "uid": "00000000-0000-0000-0000-000000000000"}}
    await api.ok("POST", MAPS, owned("last", absent))
    await gone(api, f"{MAPS}/last")


async def test_dependents_go_when_all_their_owners_are_gone(tended: Api) -> None:
    a, b = [await tended.ok("POST", MAPS, config(name)) for name in "ab"]
    await tended.ok("POST", MAPS, owned("one", a))
    await tended.ok("POST", MAPS, owned("both", a, b))
    await tended.ok("POST", MAPS, owned("below", await tended.ok("GET", f"{MAPS}/one")))
    await tended.ok("DELETE", f"{MAPS}/a")
    await gone(tended, f"{MAPS}/one")
    await gone(tended, f"{MAPS}/below")
    assert await tended.names(MAPS) == ["b", "both"]
    await tended.ok("DELETE", f"{MAPS}/b")
    await gone(tended, f"{MAPS}/both")


async def test_an_object_whose_owner_was_never_there_goes_too(tended: Api) -> None:
    absent = {"metadata": {"name": "x", "uid": "00000000-0000-0000-0000-000000000000"}}
    await tended.ok("POST", MAPS, owned("a", absent))
    await gone(tended, f"{MAPS}/a")
    foreign = owned("b", absent)
    foreign["metadata"]["ownerReferences"][0] |= {"apiVersion": "elsewhere.io/v1", "kind": "Unknown"}
    await tended.ok("POST", MAPS, foreign)
    await collected(tended)
    assert await tended.names(MAPS) == ["b"]


async def test_in_the_foreground_the_owner_waits_for_those_that_block_it(tended: Api) -> None:
    owner = await tended.ok("POST", MAPS, config("owner"))
    dependent = owned("dependent", owner, block=True)
    dependent["metadata"]["finalizers"] = ["example.com/hold"]
    await tended.ok("POST", MAPS, dependent)
    await tended.ok("DELETE", f"{MAPS}/owner", {"propagationPolicy": "Foreground"})
    while "deletionTimestamp" not in (await tended.ok("GET", f"{MAPS}/dependent"))["metadata"]:
        await tended.store.changed()
    assert (await tended.ok("GET", f"{MAPS}/owner"))["metadata"]["finalizers"] == ["foregroundDeletion"]
    await tended.ok("PATCH", f"{MAPS}/dependent", {"metadata": {"finalizers": None}}, MERGE)
    await gone(tended, f"{MAPS}/owner")
    assert await tended.names(MAPS) == []


@pytest.mark.parametrize("policy", ["Foreground", "Orphan"])
async def test_an_object_of_another_namespace_holds_up_no_owner_and_goes(tended: Api, policy: str) -> None:
    """Else a user who has read a uid could keep what is another's from being deleted."""
    await tended.ok("POST", "/api/v1/namespaces", config("other"))
    owner, place = await tended.ok("POST", MAPS, config("owner")), MAPS.replace("default", "other")
    claim = owned("claim", owner, block=True)
    claim["metadata"]["finalizers"] = ["example.com/hold"]
    await tended.ok("POST", place, claim)
    await tended.ok("DELETE", f"{MAPS}/owner", {"propagationPolicy": policy})
    await gone(tended, f"{MAPS}/owner")
    left = (await tended.ok("GET", f"{place}/claim"))["metadata"]
    assert "deletionTimestamp" in left and left["ownerReferences"]


async def test_orphans_lose_the_reference_and_stay(tended: Api) -> None:
    owner = await tended.ok("POST", MAPS, config("owner"))
    await tended.ok("POST", MAPS, owned("dependent", owner))
    await tended.ok("DELETE", f"{MAPS}/owner", {"propagationPolicy": "Orphan"})
    await gone(tended, f"{MAPS}/owner")
    assert "ownerReferences" not in (await tended.ok("GET", f"{MAPS}/dependent"))["metadata"]


@pytest.mark.parametrize(("policy", "left"), [("Background", []), (None, ["p"])])
async def test_a_job_leaves_its_pods_where_nobody_says_otherwise(tended: Api, policy: str | None, left: list) -> None:
    made = await tended.ok("POST", JOBS, job("j"))
    thing = pod("p")
    thing["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "controller": True,
                                             "uid": made["metadata"]["uid"]}]
    await tended.ok("POST", PODS, thing)
    await tended.ok("DELETE", f"{JOBS}/j", {"propagationPolicy": policy} if policy else None)
    assert ("child pods are preserved" in tended.warnings) == (policy is None)
    await gone(tended, f"{JOBS}/j")
    await collected(tended)
    assert await tended.names(PODS) == left


async def test_a_namespace_ends_when_it_is_empty(tended: Api) -> None:
    await tended.ok("POST", "/api/v1/namespaces", config("team"))
    pods, maps = (f"/api/v1/namespaces/team/{each}" for each in ("pods", "configmaps"))
    for name in ("a", "b"):
        await tended.ok("POST", pods, pod(name))
        await tended.ok("POST", maps, config(name))
    await tended.ok("POST", f"{pods}/a/binding", {"target": {"name": "n"}})
    await tended.ok("DELETE", "/api/v1/namespaces/team")
    await gone(tended, f"{maps}/b")
    assert await tended.names("/api/v1/namespaces", fieldSelector="status.phase=Terminating") == ["team"]
    while await tended.names(pods) != ["a"]:
        await tended.store.changed()
    assert "deletionTimestamp" in (await tended.ok("GET", f"{pods}/a"))["metadata"]
    await tended.ok("DELETE", f"{pods}/a", {"gracePeriodSeconds": 0})
    await gone(tended, "/api/v1/namespaces/team")


async def test_a_namespace_keeps_what_empties_it_and_some_stay_whatever_owns_them(tended: Api) -> None:
    await tended.ok("POST", "/api/v1/namespaces", config("team"))
    replaced = await tended.ok("PUT", "/api/v1/namespaces/team", config("team", labels={"a": "b"}))
    assert replaced["spec"]["finalizers"] == ["kubernetes"]
    absent = owned("x", {"metadata": {"name": "x", "uid": "00000000-0000-0000-0000-000000000000"}})["metadata"]
    references = {"metadata": {"ownerReferences": absent["ownerReferences"]}}
    await tended.ok("PATCH", "/api/v1/namespaces/default", references, MERGE)
    await collected(tended)
    assert "default" in await tended.names("/api/v1/namespaces")


async def test_a_namespace_with_more_objects_than_a_round_ends_too(tended: Api) -> None:
    await tended.ok("POST", "/api/v1/namespaces", config("big"))
    for index in range(1200):
        await tended.ok("POST", "/api/v1/namespaces/big/configmaps", config(f"c{index}"))
    await tended.ok("DELETE", "/api/v1/namespaces/big")
    await gone(tended, "/api/v1/namespaces/big")
    assert await tended.names("/api/v1/configmaps") == []


async def test_every_namespace_has_a_service_account(tended: Api) -> None:
    await tended.ok("POST", "/api/v1/namespaces", config("team"))
    await collected(tended)
    found = (await tended.ok("GET", "/api/v1/serviceaccounts"))["items"]
    assert {each["metadata"]["namespace"] for each in found} == {
        "team", "default", "kube-system", "kube-public", "kube-node-lease"}


async def test_objects_go_before_their_definition(tended: Api) -> None:
    await tended.ok("POST", CRDS, crd())
    await tended.ok("POST", "/apis/example.com/v1/namespaces/default/widgets", widget("a", finalizers=["a.io/b"]))
    await tended.ok("DELETE", f"{CRDS}/widgets.example.com")
    await collected(tended)
    assert (await tended.ok("GET", f"{CRDS}/widgets.example.com"))["metadata"]["deletionTimestamp"]
    path = "/apis/example.com/v1/namespaces/default/widgets/a"
    await tended.ok("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
    await gone(tended, f"{CRDS}/widgets.example.com")
    await tended.no(404, "GET", "/apis/example.com/v1/widgets")


async def test_what_was_due_before_a_restart_is_done_after_it(api: Api) -> None:
    owner = await api.ok("POST", MAPS, config("owner"))
    await api.ok("POST", MAPS, owned("dependent", owner))
    await api.ok("DELETE", f"{MAPS}/owner")
    tending = asyncio.ensure_future(api.server.tend())
    await gone(api, f"{MAPS}/dependent")
    await api.store.close()
    await tending


async def test_a_budget_counts_its_pods(tended: Api) -> None:
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"x": "y"}}}
    await tended.ok("POST", budgets, config("b") | {"spec": spec})
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    for name in "ab":
        await tended.ok("POST", PODS, pod(name, labels={"x": "y"}, nodeName="n"))
        await tended.ok("PATCH", f"{PODS}/{name}/status", ready, MERGE)
    while (await tended.ok("GET", f"{budgets}/b")).get("status", {}).get("currentHealthy") != 2:
        await tended.store.changed()
    status = (await tended.ok("GET", f"{budgets}/b"))["status"]
    assert (status["expectedPods"], status["disruptionsAllowed"]) == (2, 1)


def virtually(scenario: Callable[[Api], object]) -> None:
    clock = VirtualClock(1_000_000.0)

    async def main() -> None:
        made = make_api(clock=clock)
        await made.server.start()
        tending = asyncio.ensure_future(made.server.tend())
        await scenario(made)
        await made.store.close()
        await tending

    clock.run(main())


def test_of_too_many_events_the_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "MOST_EVENTS", 3)
    monkeypatch.setattr(collect, "ROUND", 2)

    async def scenario(api: Api) -> None:
        events = "/api/v1/namespaces/default/events"
        for name in "abcdef":
            await api.ok("POST", events, config(name) | {"involvedObject": {}})
            await api.registry.clock.sleep(1)
        assert await api.names(events) == ["c", "d", "e", "f"]

    virtually(scenario)


def test_of_too_many_events_those_of_the_namespace_go_that_has_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "MOST_EVENTS", 3)
    monkeypatch.setattr(collect, "ROUND", 2)

    async def scenario(api: Api) -> None:
        path = "/api/v1/namespaces/{}/events"
        for name in "abcdef":
            space = "default" if name == "a" else "kube-public"
            thing = config(name) | {"involvedObject": {"namespace": space}, "reason": "Cancelled"}
            await api.ok("POST", path.format(space), thing | {"metadata": {"name": name, "namespace": space}})
            await api.registry.clock.sleep(1)
        assert await api.names("/api/v1/events") == ["a", "d", "e", "f"]

    virtually(scenario)


@pytest.mark.parametrize("path, thing, status", [
    (PODS, pod, {"phase": "Succeeded"}),
    (JOBS, job, {"conditions": [{"type": "Failed", "status": "True"}]}),
])
def test_of_too_many_that_are_over_the_last_are_kept(
    path: str, thing: Callable[[str], Thing], status: Thing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "MOST_OVER", 2)
    monkeypatch.setattr(collect, "ROUND", 2)

    async def scenario(api: Api) -> None:
        for name in "abcdef":
            await api.ok("POST", path, thing(name))
        for name in "fbdca":
            await api.ok("PATCH", f"{path}/{name}/status", {"status": status}, MERGE)
            await api.registry.clock.sleep(1)
        assert await api.names(path) == ["a", "c", "d", "e"]

    virtually(scenario)


def test_events_live_an_hour() -> None:
    async def scenario(api: Api) -> None:
        events = "/api/v1/namespaces/default/events"
        await api.ok("POST", events, config("a") | {"involvedObject": {}})
        await api.registry.clock.sleep(3000)
        await api.ok("POST", events, config("b") | {"involvedObject": {}})
        assert await api.names(events) == ["a", "b"]
        await api.registry.clock.sleep(1000)
        assert await api.names(events) == ["b"]

    virtually(scenario)


def test_the_record_of_a_cancelled_workload_lives_a_day_and_goes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "MOST_EVENTS", 2)
    monkeypatch.setattr(collect, "ROUND", 2)

    async def scenario(api: Api) -> None:
        events = "/api/v1/namespaces/default/events"
        await api.ok("POST", events, config("record") | {"involvedObject": {}, "reason": "Cancelled"})
        for name in "abc":
            await api.ok("POST", events, config(name) | {"involvedObject": {}})
            await api.registry.clock.sleep(1)
        assert await api.names(events) == ["c", "record"]
        await api.registry.clock.sleep(80_000)
        assert await api.names(events) == ["record"]
        await api.registry.clock.sleep(10_000)
        assert await api.names(events) == []

    virtually(scenario)
