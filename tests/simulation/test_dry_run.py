"""What would be, asked of a whole cluster under virtual time: `submit --dry-run`, and what would help who waits."""

import re
from typing import Any

import pytest
from simworld import World, job, node, priority
from test_life import START, play

from fairway.api.quantities import time
from fairway.cli.whatif import dry_run, explained, would_help
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref, Selection
from fairway.kube.transport import Request, Response
from fairway.settings import Settings


async def asked(world: World, **said: Any) -> list[str]:
    return (await dry_run(world.client, job("new", **said), "default"))[1]


@pytest.mark.parametrize(
    ("hidden", "answer"),
    [("csi", "would wait: ClaimMissing"), ("persistentvolumes", "would start now on n1 (1 pod) of pool default")],
)
def test_of_claims_it_knows_what_its_user_may_list(hidden: str, answer: str) -> None:
    async def story(world: World) -> list[str]:
        async def way(request: Request) -> Response:
            if f"/{hidden}" in request.path:
                return Response(403, {}, b'{"kind": "Status", "reason": "Forbidden", "message": "no"}')
            return await world.server.handle(request)

        using = job("new", pod={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]})
        return (await dry_run(Client(way, world.clock, world.chance), using, "default"))[1]

    assert play(story, node("n1", cpu=2))[0].startswith(answer)


def test_it_says_where_a_job_would_start_now_and_makes_nothing() -> None:
    async def story(world: World) -> tuple[list[str], list[Any]]:
        return await asked(world), await world.client.list(Selection(kinds.JOBS))

    assert play(story, node("n1", cpu=2)) == (["would start now on n1 (1 pod) of pool default"], [])


def test_what_is_left_of_an_older_job_of_the_name_stands_for_no_new_one() -> None:
    async def story(world: World) -> list[str]:
        await world.apply(job("new", seconds=1))
        await world.until(lambda: world.is_in("job-new", "Succeeded"))
        await world.delete(kinds.JOBS, "new")
        assert await world.phase("job-new") == "Succeeded"
        return await asked(world)

    assert play(story, node("n1", cpu=2)) == ["would start now on n1 (1 pod) of pool default"]


def test_it_says_why_a_job_would_wait_and_until_when() -> None:
    async def story(world: World) -> list[str]:
        await world.apply(job("old", seconds=3600, annotations={"fairway.dev/time-limit": "1h"}))
        await world.until(lambda: world.is_in("job-old", "Running"))
        return await asked(world)

    why, when = play(story, node("n1", cpu=2))
    assert why.startswith("would wait: NoRoom: ") and when.startswith("  forecast: starts ")


def test_it_foretells_what_the_job_will_be_told_when_it_waits() -> None:
    async def story(world: World) -> tuple[Any, Any]:
        await world.apply(priority("high", 1000))
        for number in range(16):  # ever more that goes first has come lately, and most of it is over
            await world.apply(job(f"s-{number}", seconds=190, pod={"priorityClassName": "high"}))
            await world.clock.sleep(200)
        await world.apply(job("old", seconds=600, pod={"priorityClassName": "high"}))
        await world.until(lambda: world.is_in("job-old", "Running"))
        before, _ = await dry_run(world.client, job("new"), "default")
        await world.apply(job("new"))
        await world.clock.sleep(30)
        return before["forecast"], (await world.workload("job-new"))["status"]["forecast"]

    before, after = play(story, node("n1", cpu=2))
    assert time(after["p90"]) > START + 16 * 200 + 1200
    assert abs(time(before["p50"]) - time(after["p50"])) < 300 > abs(time(before["p90"]) - time(after["p90"]))


def test_it_names_whom_the_job_would_evict() -> None:
    async def story(world: World) -> list[str]:
        await world.apply(priority("high", 1000), job("old", seconds=36_000))
        await world.until(lambda: world.is_in("job-old", "Running"))
        await world.clock.sleep(900)
        return await asked(world, pod={"priorityClassName": "high"})

    assert play(story, node("n1", cpu=2)) == [
        "would start on n1 (1 pod) of pool default when old is gone", "  it would evict old",
    ]  # fmt: skip


def test_what_can_never_start_has_no_start_in_sight() -> None:
    async def story(world: World) -> list[str]:
        return await asked(world, cpu="64")

    why, when = play(story, node("n1", cpu=2))
    assert why.startswith("would wait: NeverFits: ") and when == "  forecast: no start is in sight"


def test_of_queue_default_that_was_deleted_it_says_what_why_says() -> None:
    async def story(world: World) -> tuple[list[str], dict[str, Any]]:
        await world.until(lambda: has_default(world))
        await world.clock.sleep(100)  # a controller that has just begun would make it
        await world.client.delete(Ref(kinds.QUEUES, "default"))
        await world.apply(job("late"))
        await world.until(lambda: world.says_reason("job-late", "QueueNotFound"))
        return await asked(world), await explained(world.client, "default/job-late", is_foretold=False)

    dry, why = play(story, node("n1"))
    assert dry == ["would wait: QueueNotFound: there is no queue default", "  forecast: no start is in sight"]
    assert (why["reason"], why["lines"]) == ("QueueNotFound", ["forecast: none: it cannot start as things are"])


async def has_default(world: World) -> bool:
    return await world.client.find(Ref(kinds.QUEUES, "default")) is not None


def test_why_says_of_a_cancelled_job_that_another_comes_after_what_is_written() -> None:
    async def story(world: World) -> tuple[str, str]:
        await world.apply(job("early", seconds=600))
        await world.until(lambda: world.is_in("job-early", "Running"))
        await world.apply(job("late", annotations={"fairway.dev/after": "early"}))
        await world.until(lambda: world.says("job-late", "early, which has not ended"))
        await world.delete(kinds.JOBS, "early")
        await world.until(lambda: world.says("job-late", "it comes after early, which was cancelled"))
        await world.clock.sleep(10)  # events are written a moment later
        why = await explained(world.client, "default/job-late", is_foretold=True)
        return why["message"], (await world.workload("job-late"))["status"]["message"]

    said, written = play(story, node("n1", cpu=4))
    assert said == written == "it comes after early, which was cancelled"


def test_an_ambiguous_after_of_another_workload_is_no_reason_not_to_answer() -> None:
    async def story(world: World) -> list[str]:
        await world.apply(job("same", cpu="64"), job("job-same", cpu="64"))
        await world.apply(job("late", annotations={"fairway.dev/after": "job-same"}))
        await world.until(lambda: world.is_in("job-late", "Pending"))
        return await asked(world)

    assert play(story, node("n1", cpu=2)) == ["would start now on n1 (1 pod) of pool default"]


def test_it_says_what_would_help_a_job_that_waits() -> None:
    async def story(world: World) -> tuple[list[str], list[str]]:
        await world.apply(queue("small", cpu=1), job("a", labels={"fairway.dev/queue": "small"}))
        await world.until(lambda: world.is_in("job-a", "Pending"))
        return await would_help(world.client, "default/job-a", is_foretold=True), await asked(
            world, labels={"fairway.dev/queue": "small"}
        )

    helps, (why, _) = play(story, node("n1", cpu=4))
    assert helps == ["in queue default it would start now"] and why.endswith("; in queue default it would start now")


def test_it_says_that_a_job_is_over_a_limit_by_itself() -> None:
    async def story(world: World) -> list[Any]:
        await world.apply(queue("small", cpu=2), job("wide", cpu="3", labels={"fairway.dev/queue": "small"}))
        await world.apply(job("held", cpu="2", labels={"fairway.dev/queue": "small"}, seconds=36_000))
        await world.until(lambda: world.is_in("job-held", "Running"))
        await world.apply(job("late", cpu="2", labels={"fairway.dev/queue": "small"}))
        await world.until(lambda: world.is_in("job-late", "Pending"))
        return [(await explained(world.client, f"default/job-{name}", is_foretold=True)) for name in ("wide", "late")]

    wide, late = play(story, node("n1", cpu=4))
    assert (wide["reason"], late["reason"], late["caveats"]) == ("OverLimit", "OverLimit", [])
    assert (wide["position"], late["position"]) == (1, 2)
    assert wide["message"].endswith("(2 in use)")
    assert wide["caveats"] == [
        "it is over the limit by itself: it starts only where it asks for less, or the limit is raised"
    ]


def test_it_says_that_room_behind_a_job_without_a_time_limit_is_no_promise() -> None:
    async def story(world: World) -> list[Any]:
        said = []
        for number in range(3):
            await world.apply(job(f"train-{number}", cpu="4", seconds=600))
            await world.clock.sleep(700)
        for name, notes in (("train-3", {}), ("sure", {"annotations": {"fairway.dev/time-limit": "1h"}})):
            await world.apply(job(name, cpu="4", seconds=36_000, **notes))
            await world.until(lambda name=name: world.is_in(f"job-{name}", "Running"))
            await world.apply(job("next", cpu="2", annotations={"fairway.dev/preemptible": "false"}))
            await world.until(lambda: world.is_in("job-next", "Pending"))
            said.append(await explained(world.client, "default/job-next", is_foretold=True))
            for one in (name, "next"):
                await world.client.delete(Ref(kinds.JOBS, one, "default"))
            await world.clock.sleep(120)
        return said

    guessed, sure = play(story, node("n1", cpu=4))
    assert re.search("room is kept for it from [^;]*, probably", guessed["message"])
    assert re.search("room is kept for it from [^;]*, at the latest", sure["message"])
    assert guessed["caveats"] == ["that time is a guess: train-3 has no time limit"]
    assert sure["caveats"] == []


def test_it_says_when_a_job_starts_for_which_no_forecast_was_written_yet() -> None:
    async def story(world: World) -> tuple[object, list[str]]:
        await world.apply(job("first", seconds=3600, cpu="4", annotations={"fairway.dev/time-limit": "1h"}))
        await world.until(lambda: world.is_in("job-first", "Running"))
        await world.apply(job("next", cpu="4"))
        await world.until(lambda: world.is_in("job-next", "Pending"))
        untold = (await world.workload("job-next"))["status"].get("forecast")
        return untold, await would_help(world.client, "default/job-next", is_foretold=False)

    untold, helps = play(story, node("n1", cpu=4))
    assert untold is None and helps[-1].startswith("forecast: starts ")


def test_what_waits_for_victims_is_said_to_start_when_they_have_stopped_and_they_to_wait_then() -> None:
    async def story(world: World) -> list[list[str]]:
        await world.apply(priority("high", 1000), job("low", seconds=3600))
        await world.until(lambda: world.is_in("job-low", "Running"))
        world.dead.add("n1")  # nothing on it ends
        await world.apply(job("urgent", pod={"priorityClassName": "high"}))
        await world.until(lambda: world.says_reason("job-urgent", "WaitingForVictims"))
        return [
            await would_help(world.client, f"default/job-{name}", is_foretold=False) for name in ("urgent", "low")
        ]

    urgent, low = play(story, node("n1", cpu=2))
    assert urgent == ["forecast: starts as soon as what is evicted for it has stopped"]
    assert low == ["forecast: none while it is being evicted: it waits again once it has stopped"]


def test_it_says_what_would_help_a_job_for_which_no_workload_stands_yet() -> None:
    async def story(world: World) -> list[str]:
        await world.apply(queue("small", cpu=1), job("old", labels={"fairway.dev/queue": "small"}))
        await world.until(lambda: world.is_in("job-old", "Pending"))
        await world.crash()
        await world.apply(job("a", labels={"fairway.dev/queue": "small"}))
        return await would_help(world.client, "default/job-a", is_foretold=True)

    assert play(story, node("n1", cpu=4)) == ["in queue default it would start now"]


def test_it_asks_the_policy_of_the_cluster() -> None:
    async def story(world: World) -> list[list[str]]:
        await world.crash()
        await world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": Settings().namespace}})
        said = []
        for policy in ("fairway", "strict-fifo"):
            world.start(settings=Settings(policy=policy, identity="simulation"))
            await world.apply(job(f"big-{policy}", cpu="3", seconds=36_000))
            await world.clock.sleep(30)
            said.append(await asked(world, cpu="1"))
            await world.crash()
        return said

    now, waits = play(story, node("n1", cpu=4))
    assert now == ["would start now on n1 (1 pod) of pool default"]
    assert waits[0].startswith("would wait: ")


def test_it_says_in_which_queue_it_would_start_sooner() -> None:
    async def story(world: World) -> tuple[list[str], list[str]]:
        await world.apply(queue("slow", cpu=2), queue("swift", cpu=2))
        for name, seconds in (("slow", 36_000), ("swift", 1200)):
            limit = {"fairway.dev/time-limit": f"{seconds}s"}
            notes = {"labels": {"fairway.dev/queue": name}, "annotations": limit}
            await world.apply(job(name, seconds=seconds, **notes))
            await world.until(lambda name=name: world.is_in(f"job-{name}", "Running"))
        await world.client.patch(Ref(kinds.QUEUES, "default"), {"spec": {"stopPolicy": "StopAdmitting"}})
        known = {"fairway.dev/time-limit": "60s"}  # of what waits nothing is guessed, so a later forecast is given
        await world.apply(job("a", labels={"fairway.dev/queue": "slow"}, annotations=known))
        await world.until(lambda: world.is_in("job-a", "Pending"))
        helps = await would_help(world.client, "default/job-a", is_foretold=True)
        return helps, await asked(world, labels={"fairway.dev/queue": "slow"})

    helps, (_, forecast, other) = play(story, node("n1", cpu=8))
    assert helps[-1].startswith("in queue swift it would start at about ")
    assert forecast.startswith("  forecast: starts ") and other.startswith("  in queue swift it would start at about ")


def queue(name: str, *, cpu: int) -> dict[str, Any]:
    quotas = [{"pool": "*", "limit": {"cpu": str(cpu)}}]
    return {
        "apiVersion": "fairway.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"quotas": quotas},
    }
