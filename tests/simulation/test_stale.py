"""What controllers do while a watch tells nothing, and what a crash leaves half done: small stories, each of a fault
that the seeds of test_faults.py found."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from faults import SLOW_SECONDS, Faults, Slow, deaf, kill_and_start
from simworld import Thing, World, cluster, job, names, node, pod, priority

from fairway.clock import VirtualClock, seeded
from fairway.kube import kinds
from fairway.kube.kinds import Ref

START = 1_800_000_000.0


def play(story: Callable[[World], Awaitable[Any]], *nodes: Thing, is_slow: bool = False) -> Any:
    """What the story answers; it starts the controllers itself. `is_slow`: a decision takes two seconds."""
    clock = Slow(START, least=SLOW_SECONDS) if is_slow else VirtualClock(START)

    async def run() -> Any:
        async with cluster(clock, seeded(1), *nodes) as world:
            return await story(world)

    return clock.run(run())


async def _is_there(world: World, name: str) -> bool:
    return name in names(await world.pods())


def test_a_pod_whose_end_is_not_seen_yet_is_not_evicted() -> None:
    async def story(world: World) -> tuple[str, int]:
        await world.apply(priority("low", 0, is_default=True), priority("high", 1000))
        world.start()
        await world.apply(pod("a", seconds=30))
        await world.until(lambda: world.is_in("pod-a", "Running"))
        await world.crash()
        world.start(deaf(world, "pods", START + 90))
        await world.clock.until(START + 40)
        await world.apply(job("urgent", seconds=5, pod={"priorityClassName": "high"}))
        await world.until(lambda: world.is_in("pod-a", "Succeeded"), seconds=200)
        await world.until(lambda: world.is_in("job-urgent", "Succeeded"), seconds=200)
        done = await world.client.get(Ref(kinds.PODS, "a", "default"))
        return done["status"]["phase"], (await world.workload("pod-a"))["status"]["attempt"]

    assert play(story, node("n1", cpu=2)) == ("Succeeded", 1)


def test_what_ends_while_it_is_decided_has_not_started_too_late() -> None:
    async def story(world: World) -> tuple[str, list[Any]]:
        world.start()
        await world.apply(job("a", seconds=400))
        await world.until(lambda: world.is_in("job-a", "Running"))
        began = world.clock.now()
        await world.clock.until(began + 399)
        await world.apply(job("b", seconds=5))  # what calls for a decision
        await world.until(lambda: world.is_in("job-b", "Succeeded"), seconds=200)
        status = (await world.workload("job-a"))["status"]
        return status["phase"], status.get("evictionHistory", [])

    assert play(story, node("n1", cpu=2), is_slow=True) == ("Succeeded", [])


def test_a_group_that_is_suspended_when_one_pod_has_ended_comes_back_whole_whatever_crashes() -> None:
    async def story(world: World, number: int) -> tuple[int, dict[str, str]]:
        faults = Faults(world.server.handle, world.clock, random.Random(1), rate=0.0, fatal=frozenset({number}))
        killing = asyncio.create_task(kill_and_start(world, faults))
        group = {"fairway.dev/group": "g", "fairway.dev/group-size": "2"}
        await world.apply(pod("g-0", seconds=60, labels=group), pod("g-1", seconds=5, labels=group))
        for moment, active in ((20, "false"), (40, "true")):
            await world.clock.until(START + moment)
            change = {"metadata": {"annotations": {"fairway.dev/active": active}}}
            await world.until(lambda: _is_there(world, "g-0"))
            await world.client.patch(Ref(kinds.PODS, "g-0", "default"), change)
        await world.until(lambda: world.is_in("pod-g", "Succeeded"), seconds=300)
        killing.cancel()
        return faults.writes, {it["metadata"]["name"]: it["status"]["phase"] for it in await world.pods()}

    number, writes = 0, 1
    while number < writes:
        number += 1
        writes, phases = play(lambda world: story(world, number), node("n1"))  # noqa: B023 -- it is played at once
        assert phases == {"g-0": "Succeeded", "g-1": "Succeeded"}, f"killed after write {number}"
    assert number > 15
