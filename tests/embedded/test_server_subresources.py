"""Binding, eviction and logs."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from inprocess import MERGE, PODS, STRATEGIC, Api, Thing, config, pod
from inprocess import api as make_api
from kubelet import Kubelet

from fairway.node.logs import Gap

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
RUNNING = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}


def binding(node: str = "n", **meta: object) -> Thing:
    return {"metadata": {"name": "p", **meta}, "target": {"kind": "Node", "name": node}}


async def test_a_binding_gives_a_pod_its_node_once(api: Api) -> None:
    await api.ok("POST", PODS, pod("p"))
    done = await api.ok("POST", f"{PODS}/p/binding", binding(annotations={"a": "b"}))
    assert done["status"] == "Success"
    bound = await api.ok("GET", f"{PODS}/p")
    assert bound["spec"]["nodeName"] == "n" and bound["metadata"]["annotations"] == {"a": "b"}
    assert [(each["type"], each["status"]) for each in bound["status"]["conditions"]] == [("PodScheduled", "True")]
    again = await api.no(409, "POST", f"{PODS}/p/binding", binding("other"))
    assert again["message"] == (
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n"')


async def test_of_many_bindings_of_a_pod_one_wins(api: Api) -> None:
    await api.ok("POST", PODS, pod("p"))
    answers = await asyncio.gather(*(api.ask("POST", f"{PODS}/p/binding", binding(f"n{each}")) for each in range(20)))
    assert sorted(code for code, _ in answers) == [201] + [409] * 19


async def test_what_cannot_be_bound(api: Api) -> None:
    await api.no(404, "POST", f"{PODS}/p/binding", binding())
    await api.ok("POST", PODS, pod("p", schedulingGates=[{"name": "g"}]))
    assert "schedulingGates" in (await api.no(409, "POST", f"{PODS}/p/binding", binding()))["message"]
    await api.ok("PATCH", f"{PODS}/p", {"spec": {"schedulingGates": []}}, MERGE)
    await api.no(409, "POST", f"{PODS}/p/binding", binding(uid="another"))
    await api.no(400, "POST", f"{PODS}/p/binding", {"target": {}})
    await api.ok("POST", f"{PODS}/p/binding", binding(), dryRun="All")
    assert "nodeName" not in (await api.ok("GET", f"{PODS}/p"))["spec"]


async def running(api: Api, *names: str) -> None:
    for name in names:
        await api.ok("POST", PODS, pod(name, labels={"x": "y"}))
        await api.ok("POST", f"{PODS}/{name}/binding", binding())
        await api.ok("PATCH", f"{PODS}/{name}/status", RUNNING, STRATEGIC)


async def test_an_eviction_asks_the_budget(api: Api) -> None:
    await running(api, "a", "b", "c")
    spec = {"minAvailable": "60%", "selector": {"matchLabels": {"x": "y"}}}
    await api.ok("POST", BUDGETS, config("b") | {"spec": spec})
    await api.ok("POST", f"{PODS}/a/eviction", {"deleteOptions": {"gracePeriodSeconds": 5}})
    leaving = await api.ok("GET", f"{PODS}/a")
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 5
    assert leaving["status"]["conditions"][-1]["type"] == "DisruptionTarget"
    refused = await api.no(429, "POST", f"{PODS}/b/eviction", {})
    assert refused["reason"] == "TooManyRequests"
    assert refused["details"]["causes"][0]["reason"] == "DisruptionBudget"
    await api.ok("POST", f"{PODS}/a/eviction", {})
    await api.ok("PATCH", f"{PODS}/b/status", {"status": {"phase": "Succeeded"}}, MERGE)
    await api.ok("POST", f"{PODS}/b/eviction", {})
    await api.no(404, "GET", f"{PODS}/b")


async def test_a_budget_never_keeps_what_does_not_run(api: Api) -> None:
    await api.ok("POST", BUDGETS, config("b") | {"spec": {"maxUnavailable": 0, "selector": {}}})
    await api.ok("POST", PODS, pod("p"))
    await api.ok("POST", f"{PODS}/p/eviction", {}, dryRun="All")
    await api.ok("POST", f"{PODS}/p/eviction", {})
    await api.no(404, "GET", f"{PODS}/p")


async def test_a_budget_says_least_or_most_and_not_both(api: Api) -> None:
    await api.no(422, "POST", BUDGETS, config("b") | {"spec": {"minAvailable": 1, "maxUnavailable": 1}})
    await api.no(422, "POST", BUDGETS, config("b") | {"spec": {"minAvailable": "110%"}})


# -- logs

@pytest.fixture
async def logged() -> AsyncIterator[tuple[Api, Kubelet]]:
    async def pieces() -> AsyncIterator[bytes | Gap]:
        yield b"one\n"
        yield Gap("rotated", (3 << 20) + 40_000, 1000)
        yield b"two\n"

    made = make_api()
    made.server.kubelet = Kubelet(pieces)
    await made.server.start()
    yield made, made.server.kubelet
    await made.store.close()


async def test_logs_come_from_whatever_runs_the_pod(logged: tuple) -> None:
    api, kubelet = logged
    await api.ok("POST", PODS, pod("p"))
    assert await api.ok("GET", f"{PODS}/p/log") == b"" and kubelet.asked == []
    await api.ok("POST", f"{PODS}/p/binding", binding())
    asking = {"tailLines": 3, "timestamps": "true", "limitBytes": 9, "sinceSeconds": 60}
    stream = await api.ok("GET", f"{PODS}/p/log", **asking)
    assert [chunk async for chunk in stream] == [b"one\n", b"two\n"]
    place, container, options = kubelet.asked[-1]
    assert (place, container) == ("default/p", "main")
    assert (options.tail_lines, options.timestamps, options.limit_bytes, options.follow) == (3, True, 9, False)
    assert options.since is not None and abs(options.since - (api.registry.clock.now() - 60)) < 5


async def test_what_is_missing_at_the_beginning_of_a_pods_log_is_a_warning_and_not_in_its_text(logged: tuple) -> None:
    api, kubelet = logged
    kubelet.gap = Gap("rotated", (3 << 20) + 40_000, 1000)
    await api.ok("POST", PODS, pod("p"))
    await api.ok("POST", f"{PODS}/p/binding", binding())
    await api.ok("GET", f"{PODS}/p/log")
    kept = "at most 40 MiB of one run are kept, the time of each line included"
    assert api.warnings == f'299 - "1,000 lines (3.0 MiB) are missing here: {kept}"'
    await api.ok("GET", f"{PODS}/p/log", tailLines=3)
    assert api.warnings == ""


async def test_what_log_is_asked_for_must_be_clear(logged: tuple) -> None:
    api, _ = logged
    await api.no(404, "GET", f"{PODS}/p/log")
    containers = [{"name": each, "image": "i"} for each in ("a", "b")]
    await api.ok("POST", PODS, pod("p", containers=containers))
    await api.ok("POST", f"{PODS}/p/binding", binding())
    assert "choose one of: [a b]" in (await api.no(400, "GET", f"{PODS}/p/log"))["message"]
    await api.no(400, "GET", f"{PODS}/p/log", container="none")
    await api.no(400, "GET", f"{PODS}/p/log", container="a", previous="true")
    await api.no(422, "GET", f"{PODS}/p/log", container="a", sinceSeconds=0)
    waiting = {"name": "a", "image": "i", "imageID": "", "ready": False, "restartCount": 0,
               "state": {"waiting": {"reason": "ContainerCreating"}}}
    await api.ok("PATCH", f"{PODS}/p/status", {"status": {"containerStatuses": [waiting]}}, MERGE)
    assert "is waiting to start" in (await api.no(400, "GET", f"{PODS}/p/log", container="a"))["message"]
