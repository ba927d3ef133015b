"""Pods that their kubelet would not run: the workload is placed again, and says which node rejected it, and why."""

from typing import Any

import pytest
from simworld import Thing, World, job, node, pod
from test_life import play

from fairway.kube import kinds
from fairway.kube.kinds import Ref, Selection

WORKLOADS = {"job-one": job("one", cpu="1"), "job-gang": job("gang", cpu="1", parallelism=2, completions=2),
             "pod-bare": pod("bare", cpu="1", labels={"fairway.dev/queue": "default"})}  # fmt: skip


async def rejected(world: World, reason: str) -> str:
    """The first pod that is bound is rejected; its name."""
    (pod, *_) = await world.until(lambda: bound(world))
    name = pod["metadata"]["name"]
    status = {"phase": "Failed", "reason": reason, "message": "Pod was rejected: no room", "conditions": None}
    await world.client.patch(Ref(kinds.PODS, name, "default"), {"status": status}, subresource="status")
    return str(name)


async def bound(world: World) -> list[Thing]:
    return [it for it in await world.pods() if it["spec"].get("nodeName")]


async def again(world: World, key: str) -> Thing:
    """The status of the second attempt."""
    found = await world.client.find(Ref(kinds.WORKLOADS, key, "default"))
    status: Thing = (found or {}).get("status", {})
    return status if status.get("attempt") == 2 and status.get("admission") else {}


async def told(world: World) -> list[str]:
    events = await world.client.list(Selection(kinds.EVENTS))
    return [it["message"] for it in events if it["reason"] == "PodRejected"]


@pytest.mark.parametrize("reason", ["OutOfcpu", "UnexpectedAdmissionError", "TopologyAffinityError"])
@pytest.mark.parametrize("key", WORKLOADS)
def test_what_a_node_rejects_starts_on_another_and_says_why(key: str, reason: str) -> None:
    async def story(world: World) -> tuple[Any, ...]:
        await world.apply(WORKLOADS[key])
        name = await rejected(world, reason)
        status = await world.until(lambda: again(world, key))
        placed = {it["node"] for one in status["admission"]["podSets"] for it in one["nodes"]}
        await world.until(lambda: world.is_in(key, "Succeeded"), seconds=200)
        return name, await told(world), placed, status["excludedNodes"]

    name, words, placed, excluded = play(story, node("n1"), node("n2"))
    why = f"n1 rejected pod {name}: {reason}: Pod was rejected: no room"
    said = f"{why}; the workload is placed again, elsewhere if it fits"
    assert (words, placed, excluded) == ([said], {"n2"}, ["n1"])


def test_what_the_only_node_rejects_once_is_tried_again_there() -> None:
    async def story(world: World) -> list[str]:
        await world.apply(WORKLOADS["job-one"])
        await rejected(world, "OutOfcpu")
        await world.until(lambda: world.is_in("job-one", "Succeeded"), seconds=300)
        return (await world.workload("job-one"))["status"]["excludedNodes"]

    assert play(story, node("n1")) == ["n1"]
