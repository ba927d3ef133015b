"""A queue label that is taken away again, where no door minds it."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from simworld import Thing, World, cluster, job, node, pod
from test_life import START

from fairway.clock import VirtualClock, seeded
from fairway.kube import kinds
from fairway.kube.kinds import Ref, Selection

MANAGED, QUEUE = "fairway.dev/managed", "fairway.dev/queue"
LABELS = {QUEUE: "default"}
DEFAULT = Ref(kinds.NAMESPACES, "default")


def play(story: Callable[[World], Awaitable[Any]]) -> Any:
    """What the story answers, in a namespace that is not managed."""
    clock = VirtualClock(START)

    async def run() -> Any:
        async with cluster(clock, seeded(1), node("n1"), has_door=False) as world:
            await label(world, DEFAULT, MANAGED)
            world.start()
            return await story(world)

    return clock.run(run())


async def label(world: World, what: Ref, key: str, value: str | None = None) -> None:
    await world.client.patch(what, {"metadata": {"labels": {key: value}}})


async def is_forgotten(world: World) -> bool:
    return not await world.client.list(Selection(kinds.WORKLOADS))


def test_what_loses_its_label_while_it_runs_gives_its_room_back_when_it_ends() -> None:
    async def story(world: World) -> Thing:
        await world.apply(job("a", seconds=20, labels=LABELS))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await label(world, Ref(kinds.JOBS, "a", "default"), QUEUE)
        await world.until(lambda: world.is_in("job-a", "Succeeded"))
        await world.apply(job("b", cpu="4", seconds=1, labels=LABELS))
        await world.until(lambda: world.is_in("job-b", "Succeeded"))
        return await world.workload("job-a")

    assert play(story)["spec"]["queue"] == "default"


@pytest.mark.parametrize("waiting", [job("a", cpu="9", labels=LABELS), pod("a", cpu="9", labels=LABELS)])
def test_what_loses_its_label_while_it_waits_is_queued_no_longer(waiting: Thing) -> None:
    async def story(world: World) -> Thing:
        await world.apply(waiting)
        name = f"{waiting['kind'].lower()}-a"
        await world.until(lambda: world.is_in(name, "Pending"))
        kind = kinds.JOBS if waiting["kind"] == "Job" else kinds.PODS
        await label(world, Ref(kind, "a", "default"), QUEUE)
        await world.until(lambda: is_forgotten(world))
        await label(world, Ref(kind, "a", "default"), QUEUE, "default")
        await world.until(lambda: world.is_in(name, "Pending"))
        return (await world.workload(name))["spec"]

    assert play(story)["queue"] == "default"


def test_what_waits_in_a_namespace_that_is_managed_no_longer_is_not_queued() -> None:
    async def story(world: World) -> int:
        await label(world, DEFAULT, MANAGED, "true")
        await world.apply(job("a", cpu="9"), job("b", cpu="9", labels=LABELS))
        await world.until(lambda: world.is_in("job-a", "Pending"))
        await world.until(lambda: world.is_in("job-b", "Pending"))
        await label(world, DEFAULT, MANAGED)

        async def is_alone() -> bool:
            return len(await world.client.list(Selection(kinds.WORKLOADS))) == 1

        await world.until(is_alone)
        return len(await world.client.list(Selection(kinds.WORKLOADS)))

    assert play(story) == 1
