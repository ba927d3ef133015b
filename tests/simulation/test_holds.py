"""Holds, by seed, while writes fail and controllers are killed: what is promised to a workload is not given away.

All workloads are of one queue and one priority, go by submission, and have time limits, so that nothing but a fault
could keep one for which room is kept from starting then. What starts behind it ends before, or gives way.
"""

import asyncio
import os
import random
from dataclasses import replace

import pytest
from faults import Faults, Machine, kill_and_start
from invariants import Watcher
from simtrouble import OVER
from simworld import SETTINGS, Thing, World, cluster, job, node

from fairway.clock import VirtualClock, seeded
from fairway.kube import kinds
from fairway.kube.kinds import Selection

START, LONGEST = 1_800_000_000.0, 7200.0
SEEDS = 2_000 if os.environ.get("FAIRWAY_SOAK") else 20
BATCH = 5
GPUS = 4
LATE = 90.0  # grace, a controller that is killed and comes again, a write that is tried again
FAIL = ("slow", "409", "500", "503", "lost", "500 after", "lost after", "429")


def play(seed: int) -> tuple[int, list[str]]:
    """How many started for which room was kept, and what did not hold."""
    clock = VirtualClock(START)
    return clock.run(_story(seed, clock))


async def _story(seed: int, clock: VirtualClock) -> tuple[int, list[str]]:
    chance = random.Random(seed)
    there = [node(f"n{at}", cpu=16, gpus=GPUS) for at in range(chance.randint(1, 3))]
    fatal = frozenset(chance.sample(range(3, 120), chance.randint(0, 2)))
    async with cluster(clock, seeded(seed), *there) as world:
        faults = Faults(world.server.handle, clock, chance, fatal=fatal, of_watches=("cut",), of_writes=FAIL)
        watcher = Watcher(world.server.registry.store, clock, world.dead, patience=LATE, calm=START, punctual=LATE)
        async with asyncio.TaskGroup() as tasks:
            machine = Machine(clock, has_memory=False)  # for no forecasts
            life = kill_and_start(world, faults, settings=replace(SETTINGS, policy="easy"), clock=machine)
            others = [tasks.create_task(it) for it in (watcher.run(), life)]
            line = [_job(chance, f"j{at}", GPUS * len(there)) for at in range(chance.randint(6, 12))]
            for thing in line:
                await world.apply(thing)
                await clock.sleep(chance.choice((1.5, 5, 30)))
            await world.until(lambda: _are_over(world, len(line)), seconds=LONGEST)
            for task in others:
                task.cancel()
        return watcher.kept, watcher.broken


def _job(chance: random.Random, name: str, gpus: int) -> Thing:
    """Of a third of the cluster or all of it; most end early, some are ended by their limit."""
    each, limit = chance.choice((1, 2, 4)), chance.choice((60, 120, 300, 600))
    width = chance.choice((1, 1, max(1, gpus // each // 2), gpus // each))
    notes = {"fairway.dev/time-limit": f"{limit}s", "fairway.dev/preemptible": chance.choice(("true", "false"))}
    said = {"parallelism": width, "completions": width, "completionMode": "Indexed", "annotations": notes}
    return job(name, seconds=limit * chance.choice((0.1, 0.5, 0.9, 9)), cpu="1", gpus=each, **said)


async def _are_over(world: World, count: int) -> bool:
    seen = await world.client.list(Selection(kinds.WORKLOADS))
    return [it.get("status", {}).get("phase") in OVER for it in seen] == [True] * count


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_room_that_is_kept_for_a_workload_is_not_given_away_whatever_fails(first: int) -> None:
    kept = 0
    for seed in range(first, first + BATCH):
        started, broken = play(seed)
        assert not broken, f"seed {seed}: {broken[:5]}"
        kept += started
    assert kept >= BATCH  # or nothing was asked
