"""The operator's log tells each thing once, and no end that was meant as a failure."""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from simworld import World, job, node, pod, priority
from test_life import play

from fairway import LEASE
from fairway.kube import kinds
from fairway.kube.kinds import Ref, Selection


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> Callable[..., Counter[str]]:
    """The events in the log of a story."""

    def run(story: Callable[[World], Awaitable[Any]]) -> Counter[str]:
        caplog.set_level(logging.INFO)
        play(story, node("n1"))
        return Counter(text.split()[2] for text in capsys.readouterr().err.splitlines() if " workload=" in text)

    return run


def test_the_next_leader_does_not_tell_again_what_one_told_that_left_in_order(told: Any) -> None:
    async def story(world: World) -> None:
        await world.apply(job("a", seconds=5))
        await world.until(lambda: world.is_in("job-a", "Succeeded"))
        await world.clock.sleep(2)
        await world.crash()
        world.start()
        await world.clock.sleep(5)

    assert told(story)["finished"] == 1


def test_an_end_before_it_led_is_told_though_who_found_it_is_killed_at_once(told: Any) -> None:
    """Its line may not have been written; the next one tells of it, however long ago it was."""

    async def story(world: World) -> None:
        await world.apply(job("a", seconds=5))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await world.crash()
        await world.clock.sleep(40)
        world.start()
        await world.until(lambda: world.is_in("job-a", "Succeeded"))
        left, = await world.client.list(Selection(kinds.LEASES, fields=f"metadata.name={LEASE}"))
        await world.crash()
        where = Ref(kinds.LEASES, LEASE, left["metadata"]["namespace"])
        kept = {"metadata": {"annotations": left["metadata"]["annotations"]}, "spec": left["spec"]}
        await world.client.patch(where, kept)  # as a kill leaves it
        world.start()
        await world.clock.sleep(5)

    assert told(story)["finished"] == 2


def test_pods_that_are_deleted_with_their_job_have_not_failed(told: Any) -> None:
    async def story(world: World) -> None:
        await world.apply(job("a", seconds=100, cpu="1", parallelism=3, completions=3))
        await world.until(lambda: world.is_in("job-a", "Running"))
        for it in await world.pods():
            await ended(world, it["metadata"]["name"])
        await world.delete(kinds.JOBS, "a")
        await world.clock.sleep(20)

    events = told(story)
    assert events["cancelled"] == 1 and not events.keys() & {"pod-failed", "pod-lost"}


async def ended(world: World, name: str) -> None:
    """A pod is told to go, and its program is killed at the end of its grace."""
    where = Ref(kinds.PODS, name, "default")
    await world.client.patch(where, {"metadata": {"finalizers": ["test/kept"]}})
    await world.client.delete(where)
    killed = {"name": "main", "image": "", "imageID": "", "ready": False, "restartCount": 0,
              "state": {"terminated": {"exitCode": 137, "reason": "Error"}}}  # fmt: skip
    status = {"phase": "Failed", "containerStatuses": [killed]}
    await world.client.patch(where, {"status": status}, subresource="status")
    await world.client.patch(where, {"metadata": {"finalizers": None}})


def test_pods_that_an_elastic_workload_gives_up_are_not_lost(told: Any) -> None:
    async def story(world: World) -> None:
        await world.apply(priority("high", 1000), job("a", seconds=100, cpu="1", parallelism=4, completions=4,
                                                      annotations={"fairway.dev/min-count": "2"}))  # fmt: skip
        await world.until(lambda: world.is_in("job-a", "Running"))
        high = pod("b", seconds=10, cpu="2")
        high["spec"]["priorityClassName"] = "high"
        await world.apply(high)
        await world.until(lambda: world.is_in("pod-b", "Succeeded"))

    events = told(story)
    assert events["finished"] and not events.keys() & {"pod-failed", "pod-lost"}
