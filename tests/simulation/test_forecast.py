"""Forecasts on a whole control plane under virtual time: told to those who wait, and measured when they start."""

import pytest
from simworld import Thing, World, is_true, job, node
from test_life import START, play

from fairway.api.quantities import time
from fairway.kube import kinds
from fairway.kube.kinds import Selection


async def waits(world: World) -> Thing:
    """One runs for an hour, the other waits; as it is after a first forecast."""
    await world.apply(job("a", seconds=3600, activeDeadlineSeconds=3600, annotations={"fairway.dev/time-limit": "1h"}))
    await world.until(lambda: world.is_in("job-a", "Running"))
    await world.apply(job("b", seconds=10))
    await world.clock.sleep(10)
    return await world.workload("job-b")


def test_what_waits_is_told_when_it_may_start() -> None:
    said = play(waits, node("n1", cpu=2))["status"]["forecast"]
    assert START < time(said["p50"]) < time(said["p90"]) <= START + 3700 and not said.get("rough")


def test_who_starts_has_a_forecast_no_longer_and_was_told_right() -> None:
    async def story(world: World) -> tuple[Thing, Thing]:
        before = await waits(world)
        await world.until(lambda: world.is_in("job-b", "Succeeded"), seconds=4000)
        return before, await world.workload("job-b")

    before, after = play(story, node("n1", cpu=2))
    assert "forecast" in before["status"] and "forecast" not in after["status"] and is_true(after, "Admitted")


def test_what_never_fits_gets_none() -> None:
    async def story(world: World) -> Thing:
        await world.apply(job("huge", cpu="99"))
        await world.clock.sleep(100)
        return await world.workload("job-huge")

    status = play(story, node("n1", cpu=2))["status"]
    assert (status["reason"], "forecast" in status) == ("NeverFits", False)


def test_on_a_young_cluster_a_forecast_is_rough_and_behind_other_guesses_there_is_none() -> None:
    async def story(world: World) -> list[Thing]:
        await world.apply(job("a", seconds=3600))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await world.apply(job("b", seconds=10))
        await world.until(lambda: world.is_in("job-b", "Pending"))
        await world.apply(job("c", seconds=10))
        await world.clock.sleep(70)
        return [(await world.workload(f"job-{name}"))["status"] for name in "bc"]

    first, second = play(story, node("n1", cpu=2))
    assert first["forecast"]["rough"] and "forecast" not in second


def test_short_jobs_on_a_young_cluster_are_never_told_hours() -> None:
    async def story(world: World) -> list[float]:
        await world.apply(*(job(f"short{row}", seconds=1) for row in range(60)))
        found, last = [], f"job-short{59}"
        while not await world.is_in(last, "Succeeded"):
            await world.clock.sleep(5)
            listed = await world.client.list(Selection(kinds.WORKLOADS))
            said = [it["status"]["forecast"] for it in listed if it.get("status", {}).get("forecast")]
            found += [time(it["p90"]) - world.clock.now() for it in said]
        return found

    told = play(story, node("n1", cpu=2))
    assert told and max(told) < 1800


def test_a_forecast_that_has_not_moved_is_not_written_again() -> None:
    async def story(world: World) -> int:
        versions = {(await waits(world))["metadata"]["resourceVersion"]}
        for _ in range(10):
            await world.clock.sleep(60)
            versions.add((await world.workload("job-b"))["metadata"]["resourceVersion"])
        return len(versions)

    assert play(story, node("n1", cpu=2)) <= 6


def test_how_far_off_forecasts_were_stands_in_the_queue() -> None:
    async def story(world: World) -> list[Thing]:
        await waits(world)
        await world.until(lambda: world.is_in("job-b", "Succeeded"), seconds=4000)
        await world.clock.sleep(180)
        return (await world.queue())["status"]["forecasts"]

    found = play(story, node("n1", cpu=2))
    assert [(it["horizon"], it["starts"], it["coverage"]) for it in found] == [("10m", 1, 1.0), ("1h", 1, 1.0)]
    assert all(0 <= it["error"] < 3600 for it in found)


@pytest.mark.parametrize("count", [1, 6])
def test_who_waits_on_beyond_its_p90_is_learned_from_before_it_starts(count: int) -> None:
    """Those that were told at once count as one: else six would stretch it by 1.4 ** 6 and more."""

    async def story(world: World) -> tuple[Thing, Thing]:
        await world.apply(job("a", seconds=30 * 3600, annotations={"fairway.dev/expected-runtime": "10m"}))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await world.apply(*(job(f"b{row}", seconds=10) for row in range(count)))
        await world.clock.sleep(4 * 3600)
        return await world.workload("job-b0"), await world.queue()

    waits, queue = play(story, node("n1", cpu=2))
    assert not is_true(waits, "Admitted")
    assert 1.3 < queue["status"]["stretch"] / 2 < 5 and not queue["status"].get("forecasts")
