"""A machine's clock is set by an hour, for its server, nodes, Jobs and controllers: what is decided, and how soon.

Time limits and charges go by the clock, as docs/start/runbook.md says; nothing else is late, early or stopped for it.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from faults import Machine
from invariants import Watcher
from simworld import Thing, World, cluster, job, node

from fairway.clock import VirtualClock, seeded
from fairway.kube import kinds
from fairway.node.hollow import DURATION

START, HOUR = 1_800_000_000.0, 3600.0
SOON = 5.0  # seconds: the clock is looked at every 2.5
SETS = pytest.mark.parametrize("by", [-HOUR, HOUR])
Story = Callable[[World, Machine], Awaitable[None]]


def play(story: Story, *running: Thing) -> list[str]:
    """What was broken while the story was played on one node of four CPUs, where two jobs run and two wait."""
    virtual = VirtualClock(START)
    machine = Machine(virtual)

    async def run() -> list[str]:
        async with cluster(machine, seeded(1), node("n1")) as world, asyncio.TaskGroup() as tasks:
            watcher = Watcher(world.server.registry.store, machine)
            watching = tasks.create_task(watcher.run())
            world.start()
            await world.apply(endless("a"), endless("b"), *running)
            await world.until(lambda: world.is_in("job-b", "Running"))
            await world.apply(endless("c"), endless("d"))
            await world.until(lambda: world.says_reason("job-d", "NoRoom"))
            await machine.sleep(60)
            await story(world, machine)
            watching.cancel()
            return watcher.broken

    return virtual.run(run())


def endless(name: str, *, cpu: str = "2", limit: str = "") -> Thing:
    """A Job that runs until it is deleted, or for as long as its time limit lets it."""
    made = job(name, cpu=cpu, annotations={"fairway.dev/time-limit": limit} if limit else {})
    del made["spec"]["template"]["metadata"]["annotations"][DURATION]
    return made


async def within(seconds: float, world: World, holds: Callable[[], Awaitable[bool]]) -> None:
    """It holds after so many seconds at most, whatever the clock says."""
    end = world.clock.elapsed() + seconds
    while not await holds():
        assert world.clock.elapsed() < end, f"not so within {seconds} s"
        await world.clock.sleep(0.1)


@SETS
def test_room_that_comes_free_is_given_away_at_once_and_why_the_others_wait_is_told(by: float) -> None:
    async def story(world: World, machine: Machine) -> None:
        machine.ahead = by
        await world.delete(kinds.JOBS, "a")
        await within(SOON, world, lambda: world.is_in("job-c", "Running"))
        await world.apply(endless("e"))
        await within(SOON, world, lambda: world.says_reason("job-e", "NoRoom"))
        await world.delete(kinds.JOBS, "b")
        first = "e" if by < 0 else "d"  # by its time of creation
        await within(SOON, world, lambda: world.is_in(f"job-{first}", "Running"))
        for name in ("c", first):
            assert (await world.workload(f"job-{name}"))["status"]["attempt"] == 1

    assert play(story) == []


@SETS
def test_what_a_queue_shows_is_written_as_soon_as_ever(by: float) -> None:
    async def story(world: World, machine: Machine) -> None:
        machine.ahead = by
        await world.apply(endless("e"))

        async def shows() -> bool:
            return bool((await world.queue()).get("status", {}).get("pending") == 3)

        await within(2 * SOON, world, shows)

    assert play(story) == []


def test_a_time_limit_is_an_hour_nearer_once_the_clock_is_set_forward_and_an_hour_farther_once_set_back() -> None:
    async def story(world: World, machine: Machine) -> None:
        machine.ahead = HOUR
        await within(SOON, world, lambda: world.is_in("job-short", "Failed"))
        assert await world.is_in("job-long", "Running")
        machine.ahead = 0.0
        await machine.sleep(HOUR)
        assert await world.is_in("job-long", "Running")
        await within(HOUR, world, lambda: world.is_in("job-long", "Failed"))

    assert play(story, endless("short", cpu="0", limit="30m"), endless("long", cpu="0", limit="90m")) == []
