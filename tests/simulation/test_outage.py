"""Nodes that are not ready: one that fails loses what it runs; where none is ready, nothing is lost for it."""

from typing import Any

import pytest
from simworld import Thing, World, job, node
from test_life import play

from fairway.kube import kinds
from fairway.kube.kinds import Ref

NODES = [node(f"n{number}") for number in (1, 2, 3)]
MARKS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
RIDES = [{"key": key, "operator": "Exists", **each} for key in MARKS for each in (
    {"effect": "NoSchedule"}, {"effect": "NoExecute", "tolerationSeconds": 300})]  # fmt: skip


async def ready(world: World, status: str, *nodes: Thing) -> None:
    """The control plane marks these nodes one after the other, as fast as it writes."""
    for one in nodes:
        said = [{"type": "Ready", "status": status, "lastTransitionTime": "2027-01-15T08:00:00Z"}]
        where = Ref(kinds.NODES, one["metadata"]["name"])
        await world.client.patch(where, {"status": {"conditions": said}}, subresource="status")
        await world.clock.sleep(0.3)


async def running(world: World, *names: str, **said: Any) -> None:
    for name in names:
        await world.apply(job(name, cpu="3", seconds=600, **said))
        await world.until(lambda name=name: world.is_in(f"job-{name}", "Running"))


async def evicted(world: World, name: str) -> list[str]:
    return [it["reason"] for it in (await world.workload(f"job-{name}"))["status"].get("evictionHistory", ())]


def test_nothing_is_evicted_while_no_node_is_ready_and_nothing_starts(caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: World) -> tuple[Any, ...]:
        await running(world, "a", "b")
        await ready(world, "Unknown", *NODES)
        await world.apply(job("c", cpu="3"))
        await world.clock.sleep(60)
        waits = (await world.workload("job-c"))["status"]
        await ready(world, "True", *NODES)
        await world.until(lambda: world.is_in("job-c", "Running"), seconds=5)
        return waits["reason"], waits["message"], await evicted(world, "a"), await evicted(world, "b")

    reason, message, *histories = play(story, *NODES)
    assert (reason, histories) == ("NoRoom", [[], []]) and "3 NotReady" in message
    assert [it.message for it in caplog.records if "node" in it.message] == [
        "none of 3 nodes is ready: nothing is evicted for that until one is",
    ]  # fmt: skip


def test_a_node_that_stays_behind_when_others_are_ready_again_is_lost() -> None:
    async def story(world: World) -> tuple[list[str], list[str], list[str]]:
        await running(world, "a", "b")
        places = {name: (await world.workload(f"job-{name}"))["status"]["admission"]["podSets"][0]["nodes"][0]["node"]
                  for name in "ab"}  # fmt: skip
        await ready(world, "Unknown", *NODES)
        await world.clock.sleep(60)
        await ready(world, "True", *[it for it in NODES if it["metadata"]["name"] != places["a"]])
        before = await evicted(world, "a")
        await world.clock.sleep(20)
        return before, await evicted(world, "a"), await evicted(world, "b")

    assert play(story, *NODES) == ([], ["NodeLost"], [])


async def loses_its_node(world: World, tolerations: list[Thing], **said: Any) -> Thing:
    """A job runs, and its node stops, with the taints that Kubernetes gives it a moment later."""
    await running(world, "a", pod={"tolerations": tolerations}, **said)
    where = (await world.pods())[0]["spec"]["nodeName"]
    (lost,) = [it for it in NODES if it["metadata"]["name"] == where]
    await world.fail(lost, is_gone=False)
    await world.clock.sleep(0.5)
    await taint(world, lost, [{"key": MARKS[1], "effect": effect} for effect in ("NoSchedule", "NoExecute")])
    return lost


async def taint(world: World, node: Thing, taints: list[Thing] | None) -> None:
    await world.client.patch(Ref(kinds.NODES, node["metadata"]["name"]), {"spec": {"taints": taints}})


@pytest.mark.parametrize("tolerations, told", [([], ["NodeLost"]), (RIDES, [])])
def test_a_job_rides_out_a_short_outage_where_its_template_says_so(tolerations: list[Thing], told: list[str]) -> None:
    async def story(world: World) -> list[str]:
        lost = await loses_its_node(world, tolerations)
        await world.clock.sleep(60)
        await taint(world, lost, None)
        await world.heal(lost)
        await world.until(lambda: world.is_in("job-a", "Running"))
        return await evicted(world, "a")

    assert play(story, *NODES) == told


@pytest.mark.parametrize("size", [1, 2])
def test_what_kubernetes_takes_off_a_node_after_a_longer_outage_starts_elsewhere(size: int) -> None:
    async def story(world: World) -> tuple[list[str], bool, int]:
        lost = await loses_its_node(world, RIDES, parallelism=size, completions=size)
        name = lost["metadata"]["name"]
        await world.clock.sleep(300)
        for it in await world.pods():
            if it["spec"]["nodeName"] == name:
                await world.delete(kinds.PODS, it["metadata"]["name"])
        await world.clock.sleep(60)
        await world.until(lambda: world.is_in("job-a", "Running"))
        places = [it["spec"]["nodeName"] for it in await world.pods() if "deletionTimestamp" not in it["metadata"]]
        return await evicted(world, "a"), name in places, len(places)

    assert play(story, *NODES) == (["PodsLost"], False, size)
