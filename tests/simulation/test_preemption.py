"""Stories of preemption, run by the whole control plane under virtual time."""

import asyncio
import random
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from faults import Faults, kill_and_start
from invariants import Watcher
from simworld import Thing, World, cluster, job, node, pod, priority

from fairway.clock import VirtualClock, seeded
from fairway.kube import kinds
from fairway.kube.kinds import Ref

T = TypeVar("T")
PRECIOUS = {"nodeSelector": {"node-type": "my-precious"}}
LABELS = {"node-type": "my-precious"}


async def running(world: World) -> list[str]:
    """Jobs that have a pod that runs, and is not being taken away."""
    pods = [it for it in await world.pods() if it["status"].get("phase") == "Running"]
    return sorted(it["metadata"]["labels"]["job-name"] for it in pods if "deletionTimestamp" not in it["metadata"])


async def runs(world: World, name: str) -> bool:
    return name in await running(world)


async def is_complete(world: World, *names: str) -> bool:
    for name in names:
        conditions = (await world.job(name))["status"].get("conditions") or ()
        if not any(it["type"] == "Complete" and it["status"] == "True" for it in conditions):
            return False
    return True


def low(name: str) -> Thing:
    return job(name, seconds=100, cpu="2", pod=PRECIOUS)


def test_an_urgent_job_preempts_and_the_preempted_one_keeps_its_place() -> None:
    clock = VirtualClock(1_800_000_000.0)

    async def story() -> list[tuple[float, str]]:
        log: list[tuple[float, str]] = []
        async with cluster(clock, seeded(1), node("n1", cpu=2, labels=LABELS)) as world:
            world.start()
            await world.apply(priority("low-priority", 0, is_default=True), priority("high-priority", 1_000_000))
            await clock.sleep(1)  # the controllers look on
            names = ["train-z", "train-a", "train-m"]
            await world.apply(*(low(name) for name in names))
            await world.until(lambda: runs(world, "train-z"))
            assert await running(world) == ["train-z"]
            await clock.sleep(30)
            await world.apply(job("urgent", seconds=20, pod=PRECIOUS | {"priorityClassName": "high-priority"}))
            asked = clock.now()
            await world.until(lambda: is_pending(world, "job-train-z"), seconds=1)
            await world.until(lambda: runs(world, "urgent"), seconds=5)
            log.append((clock.now() - asked, "urgent"))
            last = "urgent"
            while not await is_complete(world, *names, "urgent"):
                await clock.sleep(0.5)
                now = await running(world)
                assert len(now) <= 1
                if now and now[0] != last:
                    log.append((clock.now() - asked, last := now[0]))
            workload = await world.workload("job-train-z")
            said = workload["status"]["evictionHistory"]
            assert [(it["reason"], it["by"], it["for"]) for it in said] == [
                ("Preempted", "default", "default/job-urgent")
            ]
            assert workload["status"]["attempt"] == 2
        return log

    log = clock.run(story())
    assert [name for _, name in log] == ["urgent", "train-z", "train-a", "train-m"]


async def is_pending(world: World, name: str) -> bool:
    status: dict[str, Any] = (await world.workload(name))["status"]
    return bool(status["phase"] == "Pending")


def high() -> list[Thing]:
    return [priority("low", 0, is_default=True), priority("high", 1000)]


def test_an_evicted_bare_pod_is_made_again_under_its_name_and_runs_again() -> None:
    clock = VirtualClock(1_800_000_000.0)

    async def story() -> tuple[Thing, Thing]:
        async with cluster(clock, seeded(1), node("n1", cpu=2)) as world:
            world.start()
            await world.apply(*high(), pod("a", seconds=60, annotations={"mine": "kept"}))
            await world.until(lambda: world.is_in("pod-a", "Running"))
            first = (await world.pods())[0]
            await world.apply(job("urgent", seconds=20, pod={"priorityClassName": "high"}))
            await world.until(lambda: world.is_in("job-urgent", "Running"))
            waiting = next(it for it in await world.pods() if it["metadata"]["name"] == "a")
            assert waiting["metadata"]["uid"] != first["metadata"]["uid"]
            assert waiting["spec"]["schedulingGates"] and waiting["metadata"]["annotations"]["mine"] == "kept"
            assert waiting["spec"]["containers"][0]["command"] == ["sleep", "100"]
            await world.until(lambda: world.is_in("pod-a", "Succeeded"), seconds=200)
            return first, await world.workload("pod-a")

    _, workload = clock.run(story())
    assert workload["status"]["attempt"] == 2
    assert [it["reason"] for it in workload["status"]["evictionHistory"]] == ["Preempted"]


def test_a_group_of_bare_pods_is_evicted_whole_and_comes_back_whole() -> None:
    clock = VirtualClock(1_800_000_000.0)

    async def story() -> tuple[int, int]:
        group = {"labels": {"fairway.dev/group": "g", "fairway.dev/group-size": "2"}}
        async with cluster(clock, seeded(1), node("n1", cpu=4)) as world:
            world.start()
            await world.apply(*high(), pod("g-0", seconds=60, **group), pod("g-1", seconds=60, **group))
            await world.until(lambda: world.is_in("pod-g", "Running"))
            await world.apply(job("urgent", seconds=20, pod={"priorityClassName": "high"}))
            await world.until(lambda: world.is_in("job-urgent", "Running"))
            gated = [it for it in await world.pods() if it["spec"].get("schedulingGates")]
            await world.until(lambda: world.is_in("pod-g", "Succeeded"), seconds=200)
            return len(gated), (await world.workload("pod-g"))["status"]["attempt"]

    assert clock.run(story()) == (2, 2)


def test_a_controller_killed_between_any_two_writes_of_a_preemption_finishes_it() -> None:
    seen = set()
    for number in range(1, 60):
        clock = VirtualClock(1_800_000_000.0)

        async def story(clock: VirtualClock = clock, number: int = number) -> tuple[int, list[str]]:
            async with cluster(clock, seeded(1), node("n1", cpu=2)) as world:
                faults = Faults(world.server.handle, clock, random.Random(1), rate=0.0, fatal=frozenset({number}))
                killing = asyncio.create_task(kill_and_start(world, faults))
                await world.apply(*high(), pod("a", seconds=30), job("b", seconds=30))
                await world.until(lambda: world.is_in("pod-a", "Running"))
                await world.apply(job("urgent", seconds=20, pod={"priorityClassName": "high"}))
                order = []
                for name in ("job-urgent", "pod-a", "job-b"):
                    await world.until(lambda name=name: world.is_in(name, "Succeeded"), seconds=200)
                    order.append(name)
                killing.cancel()
                return faults.writes, order

        writes, order = clock.run(story())
        assert order == ["job-urgent", "pod-a", "job-b"]
        if writes < number:
            break
        seen.add(number)
    assert len(seen) > 20


def test_a_newcomer_does_not_wait_for_a_victim_that_never_goes() -> None:
    clock = VirtualClock(1_800_000_000.0)

    async def story() -> tuple[float, Thing]:
        async with cluster(clock, seeded(1), node("n1", cpu=2), node("n2", cpu=2), dead=frozenset({"n1"})) as world:
            world.start()
            first, second = ({"nodeSelector": {"kubernetes.io/hostname": name}} for name in ("n1", "n2"))
            await world.apply(*high(), job("stuck", seconds=1000, pod=first))
            await world.apply(job("held", seconds=60, pod={"priorityClassName": "high", **second}))
            await world.until(lambda: world.is_in("job-held", "Running"))
            await make_ready(world, "stuck")
            await world.until(lambda: world.is_in("job-stuck", "Running"))
            await world.apply(job("urgent", seconds=10, pod={"priorityClassName": "high"}))
            asked = clock.now()
            await world.until(lambda: world.is_in("job-urgent", "Running"), seconds=200)
            return clock.now() - asked, (await world.workload("job-urgent"))["status"]

    took, status = clock.run(story())
    assert 90 <= took < 95
    assert status["excludedNodes"] == ["n1"]
    assert status["admission"]["podSets"][0]["nodes"][0]["node"] == "n2"


async def make_ready(world: World, name: str) -> None:
    """What the runner of a dead node did before it died."""

    async def bound() -> list[Thing]:
        pods = [it for it in await world.pods() if it["metadata"]["labels"]["job-name"] == name]
        return [it for it in pods if it["spec"].get("nodeName")]

    pod = Ref(kinds.PODS, (await world.until(bound))[0]["metadata"]["name"], "default")
    said = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await world.client.patch(pod, {"status": said}, subresource="status")


ELASTIC = {"gpus": 1, "cpu": "1", "completionMode": "Indexed", "annotations": {"fairway.dev/min-count": "1"}}
URGENT = {"priorityClassName": "high-priority"}


async def shrink_and_grow(clock: VirtualClock, urgent: Thing, most: tuple[int, int]) -> list[tuple[int, int]]:
    """Pods of the elastic job `many` and of an urgent one, as they come and go. Nobody gets a device before the pod
    that had it is gone (the watcher sees every commit)."""
    held: list[tuple[int, int]] = []

    async def holds(world: World, *pods: int) -> bool:
        now = await running(world)
        held.append((now.count("many"), now.count("urgent")))
        return held[-1] == pods

    async with cluster(clock, seeded(3), node("n1", cpu=32, gpus=4)) as world, asyncio.TaskGroup() as tasks:
        watcher = Watcher(world.server.registry.store, clock)
        watching = tasks.create_task(watcher.run())
        world.start()
        await world.apply(priority("high-priority", 1_000_000))
        await world.apply(job("many", seconds=100, parallelism=4, completions=4, backoffLimit=0, **ELASTIC))
        await world.until(lambda: holds(world, 4, 0))
        await world.apply(urgent)
        await world.until(lambda: holds(world, *most), seconds=120)
        await world.until(lambda: holds(world, 4, 0), seconds=300)
        await world.until(lambda: is_complete(world, "many", "urgent"), seconds=300)
        watching.cancel()
        assert watcher.broken == []
        assert (await world.job("many"))["status"].get("failed", 0) == 0
    return held


def test_an_elastic_job_gives_surplus_pods_and_grows_again() -> None:
    clock = VirtualClock(1_800_000_000.0)
    held = clock.run(shrink_and_grow(clock, job("urgent", seconds=20, gpus=2, cpu="1", pod=URGENT), (2, 1)))
    assert (2, 0) in held[held.index((4, 0)) :]


def test_a_job_that_grows_takes_surplus_pods_when_they_are_gone() -> None:
    clock = VirtualClock(1_800_000_000.0)
    urgent = job("urgent", seconds=60, parallelism=3, completions=3, pod=URGENT, **ELASTIC)
    held = clock.run(shrink_and_grow(clock, urgent, (1, 3)))
    assert (1, 1) in held[held.index((4, 0)) :]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_trial_that_is_over_frees_its_room_and_is_charged_no_more(phase: str) -> None:
    clock = VirtualClock(1_800_000_000.0)

    async def story() -> tuple[float, dict[str, float]]:
        async with cluster(clock, seeded(3), node("n1", cpu=32, gpus=3)) as world:
            world.start()
            spec = ELASTIC | {"backoffLimitPerIndex": 0, "parallelism": 3, "completions": 3}
            await world.apply(job("trials", seconds=400, **spec))
            await world.until(lambda: world.is_in("job-trials", "Running"))
            started = clock.now()
            await clock.sleep(100)
            first = min(it["metadata"]["name"] for it in await world.pods())
            place, done = Ref(kinds.PODS, first, "default"), {"status": {"phase": phase}}
            await world.client.patch(place, done, subresource="status")
            await world.apply(job("next", seconds=10, gpus=1, cpu="1"))
            await world.until(lambda: world.is_in("job-next", "Running"))
            waited = clock.now() - started
            over = "Succeeded" if phase == "Succeeded" else "Failed"
            await world.until(lambda: world.is_in("job-trials", over), seconds=600)
            return waited, (await world.workload("job-trials"))["status"]["served"]["amounts"]["default"]

    waited, held = clock.run(story())
    assert waited < 120
    assert held["nvidia.com/gpu"] / 1000 == pytest.approx(2 * 400 + 100, abs=15)


def test_a_restart_remembers_what_was_started_into_a_hold() -> None:
    clock = VirtualClock(1_800_000_000.0)

    async def story() -> None:
        async with cluster(clock, seeded(1), node("n1", cpu=2, labels=LABELS)) as world:
            world.start()
            await world.apply(job("first", seconds=200, cpu="1", annotations={"fairway.dev/time-limit": "200s"}))
            await world.until(lambda: runs(world, "first"))
            await world.apply(job("held", seconds=20, cpu="2"))
            await clock.sleep(5)
            await world.apply(job("risk", seconds=5000, cpu="1"))
            await world.until(lambda: runs(world, "risk"))
            assert (await world.workload("job-risk"))["status"]["backfilledFor"] == "default/job-held"
            await world.crash()
            world.start()
            await world.until(lambda: runs(world, "held"), seconds=300)
            status = (await world.workload("job-risk"))["status"]
            assert [it["reason"] for it in status["evictionHistory"]] == ["HoldTaken"]
            assert not status.get("backfilledFor")

    clock.run(story())


class Counting(VirtualClock):
    """Counts decisions: they alone run in a thread."""

    decisions = 0

    async def in_thread(self, work: Callable[[], T]) -> T:
        self.decisions += 1
        return await super().in_thread(work)


def test_controllers_started_while_a_victim_leaves_do_not_decide_again_and_again() -> None:
    clock = Counting(1_800_000_000.0)

    async def story() -> int:
        async with cluster(clock, seeded(1), node("n1", cpu=2)) as world:
            world.start()
            await world.apply(*high(), job("low"))
            await world.until(lambda: world.is_in("job-low", "Running"))
            world.dead.add("n1")  # nothing on it ends
            await world.apply(job("urgent", pod={"priorityClassName": "high"}))
            await world.until(lambda: world.says_reason("job-urgent", "WaitingForVictims"))
            await clock.sleep(5)
            await world.crash()
            world.start()
            await clock.sleep(5)
            before = clock.decisions
            await clock.sleep(30)
            assert await world.says_reason("job-urgent", "WaitingForVictims")
            return clock.decisions - before

    assert clock.run(story()) <= 5
