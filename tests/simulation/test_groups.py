"""Groups of bare pods that have a pod too many, lost one, or are modified."""

import base64
import zlib
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from simworld import Thing, World, is_true, names, node, pod
from test_life import play

from fairway.cli import act
from fairway.cli.main import Problem
from fairway.cli.modify import _change
from fairway.cli.replicas import find
from fairway.cli.show import _late
from fairway.embedded.registry import admit_all
from fairway.kube import kinds
from fairway.kube.kinds import Ref, Selection

GROUP = {"fairway.dev/group": "g", "fairway.dev/group-size": "3"}
WORDS = "group 'g' started with its 3 pods, so this one never starts; delete it, or name another group"


async def group(world: World, *indices: int, seconds: float | None = 60, **said: Any) -> None:
    await world.apply(*(pod(f"g-{index}", cpu="1", seconds=seconds, labels=GROUP, **said) for index in indices))


async def get(world: World, index: int) -> Thing:
    return await world.client.get(Ref(kinds.PODS, f"g-{index}", "default"))


async def is_found(world: World, name: str) -> bool:
    """Raises the Problem of a name by which nothing goes, once that says why."""
    try:
        return bool(await find(world.client, "default", name))
    except Problem as problem:
        if "no workload" in problem.message:
            return False
        raise


def test_a_pod_too_many_of_a_group_is_told_so_and_keeps_the_group_from_nothing() -> None:
    async def story(world: World) -> tuple[Any, ...]:
        await group(world, 0, 1, 2)
        await world.until(lambda: world.is_in("pod-g", "Running"))
        await group(world, 3)
        with pytest.raises(Problem, match=WORDS):
            await world.until(lambda: is_found(world, "g-3"))
        assert await _late(world.client, await find(world.client, "default", "g")) == [f"pod g-3: {WORDS}"]
        await world.until(lambda: world.is_in("pod-g", "Succeeded"), seconds=90)
        late, events = await get(world, 3), await world.client.list(Selection(kinds.EVENTS))
        told = [(it["involvedObject"]["name"], it["type"], it["message"])
                for it in events if it["reason"] == "GroupFull"]  # fmt: skip
        said = [it for it in late["status"]["conditions"] if it["type"] == "PodScheduled"]
        return told, [(it["status"], it["reason"], it["message"]) for it in said], late["spec"].get("nodeName")

    told, said, where = play(story, node("n1"))
    assert [it[:2] for it in told] == [("g-3", "Warning")] and told[0][2] == WORDS
    assert said == [("False", "GroupFull", told[0][2])] and where is None


@pytest.mark.parametrize("restart", ["Gang", "Pod"])
def test_a_pod_that_its_user_deletes_comes_back_with_its_group_or_alone(restart: str) -> None:
    async def story(world: World) -> tuple[Any, ...]:
        await group(world, 0, 1, 2, seconds=None, annotations={"fairway.dev/restart": restart})
        await world.until(lambda: world.is_in("pod-g", "Running"))
        before = {it["metadata"]["uid"] for it in await world.pods()}
        await group(world, 9)
        await world.clock.sleep(1)
        await world.delete(kinds.PODS, "g-1")

        async def is_whole() -> bool:
            pods = await world.pods(phase="Running")
            return len(pods) == 3 and is_true(await world.workload("pod-g"), "Running")

        await world.clock.sleep(0.5)
        await world.until(is_whole, seconds=90)
        after = {it["metadata"]["uid"] for it in await world.pods()}
        history = (await world.workload("pod-g"))["status"].get("evictionHistory", ())
        return len(before & after), [it["reason"] for it in history], names(await world.pods())

    kept, history, found = play(story, node("n1"))
    assert (kept, history) == ((0, ["PodsLost"]) if restart == "Gang" else (2, []))
    assert sorted(found) == ["g-0", "g-1", "g-2", "g-9"]


def test_a_group_that_loses_a_pod_while_it_waits_does_not_start_until_it_is_whole() -> None:
    async def story(world: World) -> tuple[Any, ...]:
        await group(world, 0, 1, 2, seconds=None)
        await world.until(lambda: world.is_in("pod-g", "Running"))
        off, on = ({"metadata": {"annotations": {"fairway.dev/active": it}}} for it in ("false", "true"))
        await world.client.patch(Ref(kinds.PODS, "g-0", "default"), off)
        await world.until(lambda: world.is_in("pod-g", "Suspended"), seconds=90)
        await world.clock.sleep(5)
        await world.delete(kinds.PODS, "g-1")
        await world.clock.sleep(5)
        assert sorted(names(await world.pods())) == ["g-0", "g-2"]
        await world.client.patch(Ref(kinds.PODS, "g-0", "default"), on)
        await world.until(lambda: world.is_in("pod-g", "Pending"), seconds=30)
        await world.clock.sleep(60)
        status, running = (await world.workload("pod-g"))["status"], await world.pods(phase="Running")
        await group(world, 1, seconds=None)
        await world.until(lambda: world.is_in("pod-g", "Running"), seconds=30)
        return status["reason"], status["message"], len(running), len(await world.pods(phase="Running"))

    reason, message, few, all_of_it = play(story, node("n1"))
    assert (reason, few, all_of_it) == ("SchedulingGated", 0, 3)
    assert message == "pods of its group are gone, and it starts whole; make them again, or cancel what is left"


QUEUE, LIMIT = "fairway.dev/queue", "fairway.dev/time-limit"
SIZES = {"a": {}, "g": {"fairway.dev/group": "g", "fairway.dev/group-size": "2"}}


async def started(world: World, name: str, notes: dict[str, str]) -> None:
    """A pod or a group of this name waits in queue `old`, then runs: the node is made last."""
    for queue in ("old", "new", "last"):
        await world.apply({"apiVersion": "fairway.dev/v1alpha1", "kind": "Queue", "metadata": {"name": queue}})
    said = {"labels": {QUEUE: "old", **SIZES[name]}, "annotations": {LIMIT: "9h", **notes}, "seconds": None}
    await world.apply(*(pod(one, cpu="1", **said) for one in (["a"] if name == "a" else ["g-0", "g-1"])))
    await world.until(lambda: world.is_in(f"pod-{name}", "Pending"))
    await modified(world, name, **{"--queue": "new", "--time-limit": "8h"})
    await world.apply(node("n1"))
    await world.until(lambda: world.is_in(f"pod-{name}", "Running"))


async def modified(world: World, name: str, **given: str) -> None:
    await _change(given, None, SimpleNamespace())(world.client, await find(world.client, "default", f"pod-{name}"))


async def set_off(world: World, name: str) -> tuple[Any, ...]:
    """What its pods, made again, and its Workload say a while after it was suspended."""
    await act._suspend(world.client, await find(world.client, "default", f"pod-{name}"))
    await world.until(lambda: world.is_in(f"pod-{name}", "Suspended"))
    await world.clock.sleep(30)
    return await said(world, name)


async def said(world: World, name: str) -> tuple[Any, ...]:
    metas, workload = [it["metadata"] for it in await world.pods()], await world.workload(f"pod-{name}")
    marks = {(it["labels"][QUEUE], it["annotations"].get(LIMIT)) for it in metas}
    return marks, workload["spec"]["queue"], workload["spec"].get("timeLimit")


@pytest.mark.parametrize("name", SIZES)
def test_pods_made_again_keep_what_was_modified_while_they_waited_ran_and_were_suspended(name: str) -> None:
    async def story(world: World) -> list[tuple[Any, ...]]:
        await started(world, name, {})
        found = [await set_off(world, name)]
        await act._resume(world.client, await find(world.client, "default", f"pod-{name}"))
        await world.until(lambda: world.is_in(f"pod-{name}", "Running"))
        await modified(world, name, **{"--time-limit": "7h"})
        found.append(await set_off(world, name))
        await modified(world, name, **{"--queue": "last", "--time-limit": "none"})
        await act._resume(world.client, await find(world.client, "default", f"pod-{name}"))
        await world.until(lambda: world.is_in(f"pod-{name}", "Running"))
        return [*found, await set_off(world, name)]

    assert play(story) == [({one}, *one) for one in [("new", "8h"), ("new", "7h"), ("last", None)]]


@pytest.mark.parametrize("restart", ["Gang", "Pod"])
def test_a_pod_made_again_for_one_that_was_lost_keeps_what_was_modified(restart: str) -> None:
    async def story(world: World) -> tuple[Any, ...]:
        await started(world, "g", {"fairway.dev/restart": restart})
        await modified(world, "g", **{"--time-limit": "7h"})
        before = (await get(world, 1))["metadata"]["uid"]
        await world.delete(kinds.PODS, "g-1")

        async def is_gone() -> bool:
            return names(await world.pods()) == ["g-0"]

        await world.until(is_gone)
        left = Ref(kinds.PODS, "g-0", "default")
        await world.client.patch(left, {"metadata": {"annotations": {LIMIT: "6h"}}})

        async def is_whole() -> bool:
            pods = await world.pods(phase="Running")
            return len(pods) == 2 and before not in {it["metadata"]["uid"] for it in pods}

        await world.until(is_whole, seconds=90)
        await world.clock.sleep(30)
        return await said(world, "g")

    assert play(story) == ({("new", "6h")}, "new", "6h")


def test_a_pod_is_made_again_in_the_namespace_of_its_workload_whatever_that_says() -> None:
    """Where no webhook guards what is noted on a Workload, its user makes no pods elsewhere."""
    async def story(world: World) -> tuple[list[str], list[Thing]]:
        await group(world, 0, 1, 2, seconds=None, annotations={"fairway.dev/restart": "Pod"})
        await world.until(lambda: world.is_in("pod-g", "Running"))
        packed = (await world.workload("pod-g"))["metadata"]["annotations"]["fairway.dev/pods"]
        said = msgspec.json.decode(zlib.decompress(base64.b64decode(packed)))
        for one in said:
            one["metadata"]["namespace"] = "kube-system"
        forged = base64.b64encode(zlib.compress(msgspec.json.encode(said))).decode()
        world.door.admit = admit_all
        change = {"metadata": {"annotations": {"fairway.dev/pods": forged}}}
        await world.client.patch(Ref(kinds.WORKLOADS, "pod-g", "default"), change)
        await world.delete(kinds.PODS, "g-1")
        await world.until(lambda: is_there(world, 2))
        await world.until(lambda: is_there(world, 3), seconds=30)
        return names(await world.pods()), await world.client.list(Selection(kinds.PODS, "kube-system"))

    async def is_there(world: World, count: int) -> bool:
        return len(await world.pods()) == count

    found, elsewhere = play(story, node("n1"))
    assert sorted(found) == ["g-0", "g-1", "g-2"] and elsewhere == []
