"""In which order, and how many at once, decisions are written; the API server is slow."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from simworld import SETTINGS, World, cluster, job, node, priority

from fairway.clock import VirtualClock, seeded
from fairway.controllers.binder import AT_ONCE
from fairway.kube.transport import Request, Response

START = 1_800_000_000.0
SLOW_SECONDS = 1.0


class Slow:
    """A way to the server on which requests of one kind take a second; `most`: so many of them at once."""

    def __init__(self, world: World, is_slow: Callable[[Request], bool]) -> None:
        self.world, self.is_slow, self.now, self.most = world, is_slow, 0, 0

    async def __call__(self, request: Request) -> Response:
        if not self.is_slow(request):
            return await self.world.server.handle(request)
        self.now += 1
        self.most = max(self.most, self.now)
        await self.world.clock.sleep(SLOW_SECONDS)
        self.now -= 1
        return await self.world.server.handle(request)


def play(story: Callable[[World], Awaitable[Any]], cpu: int = 4) -> Any:
    clock = VirtualClock(START)

    async def run() -> Any:
        async with cluster(clock, seeded(1), node("n1", cpu=cpu)) as world:
            return await story(world)

    return clock.run(run())


def test_the_pods_of_a_gang_are_bound_side_by_side_but_not_all_at_once() -> None:
    async def story(world: World) -> int:
        world.start(slow := Slow(world, lambda one: one.path.endswith("/binding")))
        await world.apply(job("g", cpu="1m", parallelism=100, completions=100))
        await world.until(lambda: world.is_in("job-g", "Running"), seconds=5)
        return slow.most

    assert play(story) == AT_ONCE


def test_what_is_urgent_is_written_past_a_long_list_of_decisions() -> None:
    async def story(world: World) -> int:
        def is_admission(one: Request) -> bool:
            return one.method == "PATCH" and one.path.endswith("/status") and "/workloads/" in one.path

        async def has(count: int) -> bool:
            found = await asyncio.gather(*(world.is_in(f"job-j{at}", "Admitted", "Running") for at in range(40)))
            return sum(found) >= count

        await world.apply(priority("high", 1000))
        world.start(Slow(world, is_admission), replace(SETTINGS, writes_at_once=1))
        await world.apply(*(job(f"j{at}", cpu="1m") for at in range(40)))
        await world.until(lambda: has(3))
        await world.apply(job("urgent", cpu="1m", pod={"priorityClassName": "high"}))
        await world.until(lambda: world.is_in("job-urgent", "Admitted", "Running"), seconds=6)
        return 40 - sum([await world.is_in(f"job-j{at}", "Admitted", "Running") for at in range(40)])

    assert play(story) >= 30


def test_room_is_free_when_the_pods_of_a_job_have_ended_whatever_the_job_says() -> None:
    async def story(world: World) -> tuple[bool, bool]:
        world.start()
        await world.apply(job("first", seconds=5), job("next", seconds=500))
        await world.until(lambda: world.is_in("job-first", "Running"))
        world.jobs.cancel()  # nobody says that a Job is complete, or makes pods
        await world.until(lambda: world.is_in("job-next", "Admitted"), seconds=10)
        return await world.is_in("job-first", "Running"), bool(await world.pods(phase="Succeeded"))

    assert play(story, cpu=2) == (True, True)
