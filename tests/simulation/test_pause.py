"""Stories of pausing, run by the whole control plane under virtual time, on nodes that pretend to freeze."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from faults import Faults, kill_and_start
from simworld import Thing, World, cluster, is_frozen, job, node, pod, priority

from fairway.api.objects import CAN_PAUSE, FREEZE, FROZEN, NOT_SAVED, SAVE, TO_DISK
from fairway.clock import VirtualClock, seeded
from fairway.kube import kinds
from fairway.kube.client import STRATEGIC
from fairway.kube.kinds import Ref, Selection
from fairway.node.pressure import watch_memory

START = 1_800_000_000.0
Story = Callable[[World], Awaitable[None]]


def able(name: str = "n1", **more: object) -> Thing:
    made = node(name, **more)
    made["metadata"]["annotations"] = {CAN_PAUSE: "true"}
    return made


def tell(story: Story, *nodes: Thing, queue: Thing | None = None) -> None:
    """Runs a story in a cluster whose queue pauses what gives way."""
    clock = VirtualClock(START)

    async def told() -> None:
        async with cluster(clock, seeded(1), *(nodes or (able(cpu=2),))) as world:
            spec = {"evict": "Pause"} if queue is None else queue
            await world.apply({"apiVersion": "fairway.dev/v1alpha1", "kind": "Queue",
                               "metadata": {"name": "default"}, "spec": spec})  # fmt: skip
            await world.apply(priority("low", 0, is_default=True), priority("high", 1000))
            world.start()
            await story(world)

    clock.run(told())


async def is_paused(world: World, name: str) -> bool:
    found = await world.workload(name)
    return found["status"]["phase"] == "Paused" and "admission" not in found["status"]


async def succeeded(world: World, name: str) -> bool:
    return await world.phase(name) == "Succeeded"


def urgent(seconds: float = 20, cpu: str = "2") -> Thing:
    return job("urgent", seconds=seconds, cpu=cpu, pod={"priorityClassName": "high"})


async def begun(world: World, thing: Thing, name: str, seconds: float = 30) -> None:
    await world.apply(thing)
    await world.until(lambda: world.is_in(name, "Running"))
    await world.clock.sleep(seconds)


def test_the_preempted_goes_on_from_where_it_was_when_the_taker_ends() -> None:
    async def story(world: World) -> None:
        await begun(world, job("train", seconds=100), "job-train")
        own = {it["metadata"]["uid"] for it in await world.pods()}
        await world.apply(urgent())
        await world.until(lambda: is_paused(world, "job-train"), seconds=5)
        await world.until(lambda: succeeded(world, "job-urgent"), seconds=30)
        ended = world.clock.now()
        await world.until(lambda: succeeded(world, "job-train"), seconds=80)
        assert world.clock.now() - ended == pytest.approx(70, abs=3)  # of its 100 s 30 were over
        assert own <= {it["metadata"]["uid"] for it in await world.pods()}
        said = (await world.workload("job-train"))["status"]
        past = said["evictionHistory"][0]
        assert (said["attempt"], "paused" in said, past.get("lost", 0), past["paused"]) == (1, False, 0, True)

    tell(story)


def test_its_user_pauses_a_job_and_it_holds_no_cpu_until_it_is_resumed() -> None:
    async def story(world: World) -> None:
        await begun(world, job("train", seconds=100), "job-train")
        await world.annotate("train", paused="true")
        await world.until(lambda: is_paused(world, "job-train"), seconds=5)
        await begun(world, job("other", seconds=500), "job-other")
        await world.annotate("train", paused=None)
        await world.clock.sleep(10)
        assert await is_paused(world, "job-train")
        await world.delete(kinds.JOBS, "other")
        await world.until(lambda: world.is_in("job-train", "Running"), seconds=10)
        await world.until(lambda: succeeded(world, "job-train"), seconds=72)

    tell(story, queue={})


def test_a_bare_pod_is_paused_and_stays_the_same_pod() -> None:
    async def story(world: World) -> None:
        await begun(world, pod("train", seconds=100, labels={"fairway.dev/queue": "default"}), "pod-train")
        (own,) = await world.pods()
        await world.apply(urgent())
        await world.until(lambda: succeeded(world, "job-urgent"), seconds=40)
        await world.until(lambda: succeeded(world, "pod-train"), seconds=80)
        assert own["metadata"]["uid"] in {it["metadata"]["uid"] for it in await world.pods()}

    tell(story)


@pytest.mark.parametrize(("nodes", "count"), [((node("n1", cpu=2),), 1), ((able("n1", cpu=1), able("n2", cpu=1)), 2)])
def test_what_cannot_be_paused_is_stopped_and_queued_again(nodes: tuple[Thing, ...], count: int) -> None:
    async def story(world: World) -> None:
        many = {"parallelism": count, "completions": count, "completionMode": "Indexed"}
        await begun(world, job("train", seconds=100, cpu=str(2 // count), **many), "job-train")
        own = {it["metadata"]["uid"] for it in await world.pods()}
        await world.apply(job("urgent", seconds=20, cpu=str(2 // count), pod={"priorityClassName": "high"}, **many))
        await world.until(lambda: succeeded(world, "job-urgent"), seconds=60)
        await world.until(lambda: succeeded(world, "job-train"), seconds=140)
        assert own.isdisjoint({it["metadata"]["uid"] for it in await world.pods()})
        assert (await world.workload("job-train"))["status"]["attempt"] == 2

    tell(story, *nodes)


def test_a_pause_that_lasts_longer_than_the_queue_lets_it_gives_the_memory_back() -> None:
    async def story(world: World) -> None:
        await begun(world, job("train", seconds=100), "job-train")
        await world.apply(urgent(seconds=900))
        await world.until(lambda: is_paused(world, "job-train"), seconds=5)
        await world.clock.sleep(550)
        assert await is_paused(world, "job-train")
        await world.until(lambda: world.is_in("job-train", "Pending"), seconds=60)
        await world.until(lambda: is_gone(world, "train"), seconds=10)

    async def is_gone(world: World, name: str) -> bool:
        return name not in {it["metadata"]["labels"]["job-name"] for it in await world.pods()}

    tell(story, queue={"evict": "Pause", "expire": "10m"})


def test_a_paused_job_whose_node_is_lost_starts_again_elsewhere() -> None:
    first, second = able("n1", cpu=2), able("n2", cpu=2)

    async def story(world: World) -> None:
        await begun(world, job("train", seconds=100), "job-train")
        await world.annotate("train", paused="true")
        await world.until(lambda: is_paused(world, "job-train"), seconds=5)
        await world.apply(second)
        await world.fail(first, is_gone=True)
        await world.annotate("train", paused=None)
        await world.until(lambda: succeeded(world, "job-train"), seconds=600)

    tell(story, first, queue={})


def test_a_paused_job_can_be_suspended_and_cancelled() -> None:
    async def story(world: World) -> None:
        await begun(world, job("train", seconds=100), "job-train")
        await world.annotate("train", paused="true")
        await world.until(lambda: is_paused(world, "job-train"), seconds=5)
        await world.annotate("train", active="false")
        await world.until(lambda: world.is_in("job-train", "Suspended"), seconds=5)
        await world.until(lambda: no_pods(world), seconds=5)
        await begun(world, job("other", seconds=100), "job-other", 1)
        await world.annotate("other", paused="true")
        await world.until(lambda: is_paused(world, "job-other"), seconds=5)
        await world.delete(kinds.JOBS, "other")
        await world.until(lambda: no_pods(world), seconds=5)
        await world.clock.sleep(10)
        told = {it["involvedObject"]["name"]: it["message"] for it in await world.client.list(Selection(kinds.EVENTS))
                if it["reason"] == "Cancelled"}  # fmt: skip
        assert told == {"job-other": "cancelled while it was paused"}

    async def no_pods(world: World) -> bool:
        return not await world.pods()

    tell(story, queue={})


def play(fatal: int, *, to_disk: bool) -> range:
    """A preemption by pausing in which the controllers are killed at that write; the writes that it took. `to_disk`:
    the taker needs the memory of its victim."""
    clock = VirtualClock(START)

    async def told() -> range:
        async with cluster(clock, seeded(1), saves(cpu=2)) as world:
            memory = "40Gi" if to_disk else "1Gi"
            spec = {"apiVersion": "fairway.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "default"},
                    "spec": {"evict": "Pause"}}  # fmt: skip
            await world.apply(spec, priority("high", 1000))
            faults = Faults(world.server.handle, clock, random.Random(1), rate=0.0, fatal=frozenset((fatal,)))
            controllers = asyncio.create_task(kill_and_start(world, faults))
            try:
                await begun(world, large("train", memory), "job-train", 10)
                own = {it["metadata"]["uid"] for it in await world.pods()}
                before = faults.writes
                said = {"pod": {"priorityClassName": "high"}}
                await world.apply(large("urgent", memory if to_disk else "1Gi", cpu="2", seconds=20, **said))
                await world.until(lambda: succeeded(world, "job-urgent"), seconds=600)
                await world.until(lambda: world.is_in("job-train", "Running"), seconds=600)
                writes = range(before + 1, faults.writes + 1)
                await world.until(lambda: succeeded(world, "job-train"), seconds=600)
                left = await world.pods()
                assert own <= {it["metadata"]["uid"] for it in left}, f"write {fatal}"
                assert not any({FREEZE, SAVE} & it["metadata"]["annotations"].keys() for it in left)
                assert (await world.workload("job-train"))["status"]["attempt"] == 1
            finally:
                controllers.cancel()
                await asyncio.gather(controllers, return_exceptions=True)
        return writes

    return clock.run(told())


@pytest.mark.parametrize("to_disk", [False, True])
def test_a_pause_is_not_lost_whichever_write_the_controllers_are_killed_at(to_disk: bool) -> None:
    for fatal in play(0, to_disk=to_disk)[:: 1 + to_disk]:
        play(fatal, to_disk=to_disk)


@pytest.mark.parametrize(("gpus", "seconds"), [(0, 30), (2, 190)])
def test_the_more_gpu_memory_moves_the_longer_may_a_pause_take(gpus: int, seconds: int) -> None:
    async def story(world: World) -> None:
        await begun(world, job("train", seconds=1000, gpus=gpus), "job-train")
        world.dead.add("n1")
        await world.annotate("train", paused="true")
        await world.clock.sleep(seconds - 2)
        assert not await world.says_reason("job-train", "NotPaused")
        await world.until(lambda: world.says_reason("job-train", "NotPaused"), seconds=5)
        status = (await world.workload("job-train"))["status"]
        assert f"its processes did not freeze within {seconds} s" in status["message"]
        assert not status["evictionHistory"][-1].get("paused")

    tell(story, able(cpu=2, gpus=4, labels={"nvidia.com/gpu.memory": "81920"}), queue={})


# To disk, while memory is short


def saves(name: str = "n1", **more: object) -> Thing:
    """A node that can write what is frozen to disk; it has 64 GiB."""
    made = node(name, **more)
    made["metadata"]["annotations"] = {CAN_PAUSE: TO_DISK}
    return made


def large(name: str, memory: str, *, cpu: str = "1", **said: object) -> Thing:
    """A Job of so much memory."""
    made = job(name, cpu=cpu, **said)
    made["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"] = memory
    return made


async def disk(world: World, name: str) -> str:
    return (await world.workload(name))["status"].get("paused", {}).get("disk", "")


async def rests(world: World, name: str, memory: str) -> None:
    """Starts a Job of so much memory and pauses it."""
    await begun(world, large(name, memory), f"job-{name}", 1)
    await world.annotate(name, paused="true")
    await world.until(lambda: is_paused(world, f"job-{name}"), seconds=5)


def test_what_is_paused_longest_goes_to_disk_for_one_that_needs_its_memory_and_comes_back() -> None:
    async def story(world: World) -> None:
        await rests(world, "first", "30Gi")
        await rests(world, "second", "30Gi")
        await world.clock.sleep(60)
        assert [await disk(world, f"job-{name}") for name in ("first", "second")] == ["", ""]
        await begun(world, large("new", "30Gi", seconds=500), "job-new")
        assert [await disk(world, f"job-{name}") for name in ("first", "second")] == ["Written", ""]
        own = {it["metadata"]["uid"] for it in await world.pods() if is_frozen(it)}
        await world.annotate("first", paused=None)
        await world.until(lambda: is_running_again(world, "first"), seconds=30)
        assert own <= {it["metadata"]["uid"] for it in await world.pods()}
        assert await disk(world, "job-second") == "Written"

    async def is_running_again(world: World, name: str) -> bool:
        return await world.is_in(f"job-{name}", "Running") and not await disk(world, f"job-{name}")

    tell(story, saves(), queue={})


def test_a_victim_goes_to_disk_at_once_where_the_taker_needs_its_memory() -> None:
    async def story(world: World) -> None:
        await begun(world, large("train", "40Gi"), "job-train")
        own = {it["metadata"]["uid"] for it in await world.pods()}
        await world.apply(large("urgent", "40Gi", seconds=20, pod={"priorityClassName": "high"}))
        await world.until(lambda: world.is_in("job-urgent", "Running"), seconds=10)
        assert await disk(world, "job-train") == "Written"
        await world.until(lambda: succeeded(world, "job-train"), seconds=120)
        assert own <= {it["metadata"]["uid"] for it in await world.pods()}

    tell(story, saves())


def test_under_memory_pressure_paused_workloads_go_to_disk_one_by_one_until_it_ends() -> None:
    gib = 1 << 30

    async def story(world: World) -> None:
        for name in ("one", "two", "three"):
            await rests(world, name, "1Gi")
        names = ("job-one", "job-two", "job-three")

        def look() -> tuple[int, int]:
            return available, 64 * gib

        available = 32 * gib
        watching = asyncio.create_task(watch_memory(world.client, "n1", look))
        await world.clock.sleep(60)
        assert [await disk(world, name) for name in names] == ["", "", ""]
        available = gib

        async def eased() -> bool:
            nonlocal available
            available = 16 * gib if await disk(world, "job-two") == "Writing" else available
            return await disk(world, "job-two") == "Written"

        await world.until(eased, seconds=60)
        await world.clock.sleep(60)
        said = [await disk(world, name) for name in names]
        assert said[:2] == ["Written", "Written"]
        watching.cancel()

    tell(story, saves(), queue={})


async def tell_frozen(world: World, name: str, **said: str) -> None:
    """Says of the pod of a Job what its node would."""
    (pod,) = [it for it in await world.pods() if it["metadata"]["labels"]["job-name"] == name]
    found = {"type": FROZEN, "status": "True", "lastTransitionTime": "2027-01-15T08:00:00Z", **said}
    await world.client.patch(Ref(kinds.PODS, pod["metadata"]["name"], "default"), {"status": {"conditions": [found]}},
                             subresource="status", form=STRATEGIC)  # fmt: skip


async def is_told_to_save(world: World, name: str) -> bool:
    found = [it["metadata"] for it in await world.pods() if it["metadata"]["labels"]["job-name"] == name]
    return any(SAVE in it["annotations"] for it in found)


def test_what_cannot_go_to_disk_stays_in_memory_and_is_not_tried_again() -> None:
    async def story(world: World) -> None:
        await rests(world, "first", "40Gi")
        world.dead.add("n1")
        await world.apply(large("new", "40Gi"))
        await world.until(lambda: is_told_to_save(world, "first"), seconds=10)
        await tell_frozen(world, "first", reason=NOT_SAVED, message="it has a connection")
        await world.until(lambda: refused(world), seconds=10)
        world.dead.clear()
        await world.clock.sleep(60)
        assert await disk(world, "job-first") == "Refused"
        assert await world.says_reason("job-new", "NoRoom")
        await world.annotate("first", paused=None)
        await world.until(lambda: succeeded(world, "job-first"), seconds=200)
        await world.until(lambda: succeeded(world, "job-new"), seconds=200)

    async def refused(world: World) -> bool:
        return await disk(world, "job-first") == "Refused"

    tell(story, saves(), queue={})


def test_a_victim_that_cannot_go_to_disk_is_stopped_and_starts_again() -> None:
    async def story(world: World) -> None:
        await begun(world, large("train", "40Gi"), "job-train")
        own = {it["metadata"]["uid"] for it in await world.pods()}
        world.dead.add("n1")
        await world.apply(large("urgent", "40Gi", seconds=20, pod={"priorityClassName": "high"}))
        await world.until(lambda: is_told_to_save(world, "train"), seconds=10)
        await tell_frozen(world, "train", reason=NOT_SAVED, message="it has a connection")
        await world.until(lambda: world.says_reason("job-train", "NotPaused"), seconds=10)
        world.dead.clear()
        await world.heal(saves())
        await world.until(lambda: succeeded(world, "job-urgent"), seconds=120)
        await world.until(lambda: succeeded(world, "job-train"), seconds=200)
        assert own.isdisjoint({it["metadata"]["uid"] for it in await world.pods()})

    tell(story, saves())
