"""Beside another scheduler, and nobody at the door: what that one binds first is admitted where it runs."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from simtrouble import bind_where_there_is_room, cpus
from simworld import Thing, World, as_controller, cluster, is_true, job, node, pod, priority
from test_life import START

from fairway.clock import VirtualClock, seeded
from fairway.kube import kinds
from fairway.kube.client import ApiError
from fairway.kube.kinds import Ref, Selection
from fairway.kube.transport import Request, Response

LABELS = {"fairway.dev/queue": "default"}
CLOSED: Thing = {
    "apiVersion": "fairway.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "default"},
    "spec": {"stopPolicy": "StopAdmitting"},
}  # fmt: skip


async def bind_all(world: World, nodes: list[str]) -> None:
    """Another scheduler: binds every pod that names it and has no gate at once, to the nodes in turn, full or not."""
    turn = 0
    while True:
        for it in await world.client.list(Selection(kinds.PODS)):
            spec, meta = it["spec"], it["metadata"]
            if spec.get("nodeName") or spec.get("schedulingGates") or spec["schedulerName"] != "default-scheduler":
                continue
            with suppress(ApiError):
                name = spec.get("nodeSelector", {}).get("kubernetes.io/hostname", nodes[turn % len(nodes)])
                await world.client.bind(Ref(kinds.PODS, meta["name"], meta["namespace"]), name, uid=meta["uid"])
                turn += 1
        await world.server.registry.store.changed("pods")


def play(story: Callable[[World], Awaitable[Any]], *nodes: Thing, on: tuple[str, ...] = ("n1",)) -> Any:
    """What the story answers, without a door; the other scheduler binds to the nodes `on`."""
    clock = VirtualClock(START)

    async def run() -> Any:
        async with cluster(clock, seeded(1), *nodes, has_door=False) as world:
            other = asyncio.create_task(bind_all(world, list(on)))
            world.start()
            try:
                return await story(world)
            finally:
                other.cancel()

    return clock.run(run())


async def is_bound(world: World, name: str) -> bool:
    return "nodeName" in (await world.client.get(Ref(kinds.PODS, name, "default")))["spec"]


async def conditions(world: World, name: str) -> dict[str, str]:
    return {it["type"]: it["reason"] for it in (await world.workload(name))["status"]["conditions"]}


def test_a_job_whose_pods_are_bound_before_its_turn_is_admitted_where_they_run() -> None:
    async def story(world: World) -> tuple[Any, ...]:
        await world.apply(CLOSED)
        await world.apply(job("a", seconds=30, labels=LABELS, backoffLimit=0, parallelism=2, completions=2))
        await world.until(lambda: world.is_in("job-a", "Running"))
        said, pods = await world.workload("job-a"), await world.pods()
        told = await conditions(world, "job-a")
        await world.until(lambda: world.is_in("job-a", "Succeeded"))
        events = {it["reason"] for it in await world.client.list(Selection(kinds.EVENTS))}
        placed = said["status"]["admission"]["podSets"][0]["nodes"]
        return placed, {it["spec"]["nodeName"] for it in pods}, told["Admitted"], "Adopted" in events

    assert play(story, node("n1"), node("n2")) == ([{"node": "n1", "count": 2}], {"n1"}, "Adopted", True)


def test_what_ran_before_fairway_came_is_adopted_before_anything_is_decided_about_it() -> None:
    clock, sizes = VirtualClock(START), {"a": 1, "b": 2, "c": 1}

    async def run() -> tuple[set[str], bool]:
        async with cluster(clock, seeded(1), node("n1"), node("n2"), has_door=False) as world:
            other = asyncio.create_task(bind_all(world, ["n1", "n2"]))
            for name, size in sizes.items():
                await world.apply(job(name, seconds=600, labels=LABELS, parallelism=size, completions=size))

            async def ran() -> set[str]:
                up = {it["metadata"]["uid"] for it in await world.pods() if it["status"].get("phase") == "Running"}
                return up if len(up) == sum(sizes.values()) else set()

            before = await world.until(ran)
            world.start()
            for name in sizes:
                await world.until(lambda name=name: world.is_in(f"job-{name}", "Running"))
            told = {(await conditions(world, f"job-{name}"))["Admitted"] for name in sizes}
            other.cancel()
            return told, await ran() == before

    assert clock.run(run()) == ({"Adopted"}, True)


def test_what_is_bound_to_a_full_node_counts_there_and_nothing_else_stops() -> None:
    async def story(world: World) -> list[Any]:
        await world.apply(*(job(name, seconds=30, cpu="3", labels=LABELS, backoffLimit=0) for name in "ab"))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await world.until(lambda: world.is_in("job-b", "Running"))
        await world.apply(job("c", seconds=10, cpu="3", labels=LABELS, suspend=True, pod={"schedulerName": "fairway"}))
        await world.until(lambda: world.is_in("job-c", "Running"))
        where = (await world.workload("job-c"))["status"]["admission"]["podSets"][0]["nodes"][0]["node"]
        await world.until(lambda: world.is_in("job-a", "Succeeded"))
        await world.until(lambda: world.is_in("job-b", "Succeeded"))
        return [where, *[(await world.job(name))["status"].get("failed", 0) for name in "ab"]]

    assert play(story, node("n1"), node("n2")) == ["n2", 0, 0]


def test_a_job_made_suspended_is_resumed_with_a_gate_and_goes_where_it_is_placed() -> None:
    async def story(world: World) -> tuple[Any, ...]:
        await world.apply(job("a", seconds=30, labels=LABELS, suspend=True))
        await world.until(lambda: world.is_in("job-a", "Running"))
        said, (ran,) = await world.workload("job-a"), await world.pods()
        gates = (await world.job("a"))["spec"]["template"]["spec"]["schedulingGates"]
        placed = said["status"]["admission"]["podSets"][0]["nodes"][0]["node"]
        return gates, placed, ran["spec"]["nodeName"]

    assert play(story, node("n2"), on=("n1",)) == ([{"name": "fairway.dev/admission"}], "n2", "n2")


def test_half_a_gang_that_stays_half_is_stopped_and_waits_whole_without_a_charge() -> None:
    async def story(world: World) -> tuple[Any, ...]:
        await world.apply(job("a", seconds=30, cpu="3", labels=LABELS, backoffLimit=0, parallelism=2, completions=2))
        await world.until(lambda: world.is_in("job-a", "Succeeded"), seconds=120)
        status = (await world.job("a"))["status"]
        return status["succeeded"], status.get("failed", 0)

    assert play(story, node("n1"), node("n2"), on=("n1", "none")) == (2, 0)


def test_a_job_that_was_done_when_it_was_suspended_is_resumed_so_that_it_can_end() -> None:
    async def story(world: World) -> bool:
        await world.apply(CLOSED, job("a", cpu="3", labels=LABELS, suspend=True))
        await world.until(lambda: world.is_in("job-a", "Pending"))
        world.jobs.cancel()  # no Job that is over may be written without a start, nor a start of a suspended one
        met = {"type": "SuccessCriteriaMet", "status": "True", "reason": "CompletionsReached"}
        where = Ref(kinds.JOBS, "a", "default")
        await world.client.patch(where, {"status": {"succeeded": 1, "conditions": [met]}}, subresource="status")

        async def is_resumed() -> bool:
            return not (await world.job("a"))["spec"]["suspend"]

        return bool(await world.until(is_resumed))

    assert play(story, node("n1"))


def test_a_labelled_pod_that_names_no_scheduler_counts_in_its_queue() -> None:
    async def story(world: World) -> tuple[Any, ...]:
        await world.apply(CLOSED, pod("p", seconds=30, labels=LABELS))
        await world.until(lambda: world.is_in("pod-p", "Running"))
        said, told = await world.workload("pod-p"), await conditions(world, "pod-p")
        await world.until(lambda: world.is_in("pod-p", "Succeeded"))
        return said["status"]["admission"]["podSets"][0]["nodes"], told["Admitted"], is_true(said, "Admitted")

    assert play(story, node("n1"), node("n2")) == ([{"node": "n1", "count": 1}], "Adopted", True)


def test_half_a_group_of_pods_that_stays_half_is_made_again_and_starts_whole() -> None:
    async def story(world: World) -> list[str]:
        group = LABELS | {"fairway.dev/group": "g", "fairway.dev/group-size": "2"}
        half, rest = (pod(name, seconds=30, labels=group) for name in ("g-0", "g-1"))
        rest["spec"]["schedulerName"] = "fairway"
        await world.apply(CLOSED, half, rest)

        async def is_stopped() -> bool:
            pods = await world.pods()
            return len(pods) == 2 and all(it["spec"].get("schedulingGates") for it in pods[:1])

        await world.until(is_stopped)
        await world.client.patch(Ref(kinds.QUEUES, "default"), {"spec": {"stopPolicy": "None"}})
        await world.until(lambda: world.is_in("pod-g", "Succeeded"), seconds=200)
        return [it["status"]["phase"] for it in await world.pods()]

    assert play(story, node("n1")) == ["Succeeded", "Succeeded"]


def test_a_labelled_pod_that_waits_is_told_of_the_scheduler_that_it_names() -> None:
    async def story(world: World) -> list[str]:
        waiting = pod("p", labels=LABELS)
        waiting["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        await world.apply(waiting)

        async def told() -> list[str]:
            found = await world.client.list(Selection(kinds.EVENTS))
            return [it["message"] for it in found if it["reason"] == "OtherScheduler"]

        return await world.until(told)

    (message,) = play(story, node("n1"))
    assert message.startswith("default-scheduler may start it before its turn") and "schedulerName: fairway" in message


def test_a_pod_is_not_bound_where_another_scheduler_took_the_room_meanwhile() -> None:
    async def story(world: World) -> tuple[Any, ...]:
        await world.apply(priority("high", 1000), job("low", seconds=1000, cpu="3", labels=LABELS, suspend=True))
        await world.until(lambda: world.is_in("job-low", "Running"))
        high = job("high", seconds=30, cpu="3", labels=LABELS, suspend=True, backoffLimit=0,
                   pod={"priorityClassName": "high"})  # fmt: skip
        await world.apply(high)
        await world.until(lambda: world.is_in("job-low", "Pending"))
        await world.apply(pod("stranger", seconds=60, cpu="3"))
        await world.until(lambda: world.is_in("job-high", "Running", "Failed"), seconds=200)
        stranger = await world.client.get(Ref(kinds.PODS, "stranger", "default"))
        return stranger["status"]["phase"], (await world.job("high"))["status"].get("failed", 0)

    assert play(story, node("n1")) == ("Succeeded", 0)


def test_a_gang_whose_room_another_scheduler_takes_says_so_and_is_tried_again_after_a_pause() -> None:
    async def story(world: World) -> tuple[Any, ...]:
        taken: list[str] = []

        async def robbed(request: Request) -> Response:
            """The room on n2 is taken each time that the job is resumed, and given back once it waits again."""
            if request.method == "PATCH" and request.path.endswith("/jobs/a") and b'"suspend":false' in request.body:
                taken.append(f"r{len(taken)}")
                await world.apply(pod(taken[-1], seconds=1000, cpu="3"))
                await world.until(lambda: is_bound(world, taken[-1]))
                await world.clock.sleep(1)  # the Job controller is slow, and Fairway sees the pod before its own
            if request.method == "PATCH" and request.path.endswith("/jobs/a") and b'"suspend":true' in request.body:
                await world.delete(kinds.PODS, taken[-1])
            return await world.server.handle(request)

        await world.crash()
        world.start(as_controller(robbed))
        await world.apply(job("a", seconds=30, cpu="3", gpus=1, labels=LABELS, suspend=True, backoffLimit=0,
                              parallelism=2, completions=2))  # fmt: skip
        await world.clock.sleep(60)
        said = (await world.workload("job-a"))["status"]
        events = [it for it in await world.client.list(Selection(kinds.EVENTS)) if it["reason"] == "RoomTaken"]
        return said, events

    said, events = play(story, node("n1", gpus=1), node("n2", gpus=1), on=("n2",))
    assert said["attempt"] <= 4 and said["reason"] == "BackingOff" and said.get("attained", 0) == 0
    assert {it["reason"] for it in said["evictionHistory"]} == {"RoomTaken"} == {
        it["reason"] for it in said["conditions"] if it["type"] == "Evicted"}  # fmt: skip
    assert {(it["involvedObject"]["name"], it["type"]) for it in events} == {("a", "Warning")}
    assert "another scheduler filled n2" in events[0]["message"] and "next attempt" in events[0]["message"]


@pytest.mark.parametrize("seed", range(8))
def test_beside_another_scheduler_every_job_ends_well_and_no_node_is_overfilled(seed: int) -> None:
    chance, clock = random.Random(seed), VirtualClock(START)
    room = {"n1": 8, "n2": 8, "n3": 4}

    async def run() -> tuple[set[int], list[str]]:
        machines = [node(name, cpu=cpu) for name, cpu in room.items()]
        async with cluster(clock, seeded(seed), *machines, has_door=False) as world:
            full: list[str] = []
            others = [asyncio.create_task(it) for it in (
                bind_where_there_is_room(world, room, chance), overfilled(world, room, full))]  # fmt: skip
            world.start()
            for index in range(20):
                size = chance.randint(1, 3)
                await world.apply(job(f"j{index}", seconds=chance.randint(1, 20), cpu=str(chance.randint(1, 3)),
                                      labels=LABELS, backoffLimit=0, parallelism=size, completions=size,
                                      suspend=chance.random() < 0.2))  # fmt: skip
                await clock.sleep(chance.uniform(0.0, 2.0))

            async def ended() -> list[Thing]:
                found = await world.client.list(Selection(kinds.JOBS))
                return found if all(is_true(it, "Complete") or is_true(it, "Failed") for it in found) else []

            found = await world.until(ended, seconds=2000)
            for other in others:
                other.cancel()
            return {it["status"].get("failed", 0) for it in found}, full

    assert clock.run(run()) == ({0}, [])


async def overfilled(world: World, room: dict[str, int], full: list[str]) -> None:
    """Notes each moment at which the pods of a node ask for more than it has."""
    while True:
        free = dict(room)
        for it in await world.client.list(Selection(kinds.PODS)):
            if it["spec"].get("nodeName") and it["status"].get("phase") not in ("Succeeded", "Failed"):
                free[it["spec"]["nodeName"]] -= cpus(it)
        full += [f"{name} at {world.clock.now() - START}" for name, left in free.items() if left < 0]
        await world.server.registry.store.changed("pods")
