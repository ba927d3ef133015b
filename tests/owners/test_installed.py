"""Which kinds of owners are watched: those whose definition is there, from when it comes until it goes."""

import asyncio
from typing import Any

from kinds import definitions, example
from operators import JOB_SETS
from simworld import World, cluster, node

from fairway.clock import VirtualClock, seeded
from fairway.kube import kinds
from fairway.kube.kinds import Ref
from fairway.kube.transport import Request, Response


def play(story: Any) -> Any:
    clock = VirtualClock(1_800_000_000.0)

    async def run() -> Any:
        async with cluster(clock, seeded(1), node("n1", cpu=16, gpus=4)) as world:
            asked: list[str] = []

            async def counted(request: Request) -> Response:
                if "fairway.dev" not in request.path:
                    asked.append(request.path)
                return await world.server.handle(request)

            world.start(counted)
            return await story(world, asked)

    return clock.run(run())


def test_a_kind_that_is_not_installed_is_never_asked_for() -> None:
    async def story(world: World, asked: list[str]) -> list[str]:
        await world.clock.sleep(700)
        return asked

    groups = {path.split("/")[2] for path in play(story) if path.startswith("/apis/")}
    assert groups == {"apiextensions.k8s.io", "batch", "coordination.k8s.io", "policy", "scheduling.k8s.io",
                      "storage.k8s.io"}  # fmt: skip


def test_a_kind_is_served_from_when_it_is_installed_until_it_is_removed() -> None:
    async def story(world: World, asked: list[str]) -> tuple[bool, int, int]:
        await world.clock.sleep(60)
        before = any("jobsets" in path for path in asked)
        for one in definitions("jobset"):
            await world.client.create(kinds.DEFINITIONS, one)
        for one in example("jobset"):
            await world.client.create(JOB_SETS, one)
        await world.until(lambda: world.is_in("jobset-pretrain", "Admitted"), seconds=5)
        await world.client.delete(Ref(kinds.DEFINITIONS, "jobsets.jobset.x-k8s.io"))
        await world.until(lambda: world.is_in("jobset-pretrain", ""), seconds=60)
        await asyncio.sleep(0)
        there = sum("jobsets" in path for path in asked)
        await world.clock.sleep(700)
        return before, there, sum("jobsets" in path for path in asked)

    before, there, after = play(story)
    assert not before and there >= 2
    assert after <= there + 1  # a watch that was cut may be asked for once more
