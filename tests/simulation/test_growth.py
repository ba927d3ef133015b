"""A Job that runs with fewer pods than it may have says that it waits to grow, and for what."""

from typing import Any

import msgspec
from simworld import World, job, node
from test_life import play

from fairway.cli.listing import Listed, reason
from fairway.kube import kinds
from fairway.kube.kinds import Ref

WAITS = ("Running", "NoRoom", "waits to grow: needs 1 CPU; 1 is missing")


def test_a_job_that_cannot_grow_says_what_it_waits_for_until_it_has_grown() -> None:
    async def story(world: World) -> tuple[Any, ...]:
        await world.apply(job("other", seconds=60))
        await world.until(lambda: world.is_in("job-other", "Running"))
        more = {"parallelism": 4, "completions": 4, "completionMode": "Indexed"}
        await world.apply(job("wide", seconds=600, cpu="1", annotations={"fairway.dev/min-count": "1"}, **more))
        await world.until(lambda: says(world, WAITS))
        row = reason(msgspec.convert(await world.workload("job-wide"), Listed), world.clock.now())
        await world.until(lambda: says(world, ("Running", None, None)), seconds=120)
        (placed,) = (await world.workload("job-wide"))["status"]["admission"]["podSets"]
        return row, placed["nodes"]

    told = "NoRoom: waits to grow: needs 1 CPU; 1 is missing"
    assert play(story, node("n1")) == (told, [{"node": "n1", "count": 4}])


async def says(world: World, said: tuple[str | None, ...]) -> bool:
    found = await world.client.find(Ref(kinds.WORKLOADS, "job-wide", "default"))
    status = (found or {}).get("status", {})
    return tuple(status.get(name) for name in ("phase", "reason", "message")) == said
