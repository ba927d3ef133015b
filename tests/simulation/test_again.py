"""Fairway comes to a cluster whose Jobs run: again, after it was taken off, or late. None of them is stopped."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from faults import Faults, deaf, kill_and_start
from simworld import Thing, World, cluster, is_true, job, node, priority
from test_life import START

from fairway.clock import VirtualClock, seeded
from fairway.embedded.jobs import Jobs
from fairway.kube import kinds
from fairway.kube.kinds import Ref, Selection

LABELS = {"fairway.dev/queue": "default"}
MINE = {"example.com/of": "low"}
STRICT: Thing = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [3]}}]}


def play(
    story: Callable[[World], Awaitable[Any]], *nodes: Thing, has_door: bool = True, starts: bool = True
) -> Any:
    """What the story answers; the controllers run unless it starts them."""
    clock = VirtualClock(START)

    async def run() -> Any:
        async with cluster(clock, seeded(1), *nodes, has_door=has_door, is_strict=not has_door) as world:
            if starts:
                world.start()
            return await story(world)

    return clock.run(run())


async def installed_anew(world: World) -> None:
    """As `fairway uninstall` leaves a cluster, and `fairway install` finds it."""
    await world.crash()
    for it in await world.client.list(Selection(kinds.WORKLOADS)):
        where = Ref(kinds.WORKLOADS, it["metadata"]["name"], "default")
        await world.client.patch(where, {"metadata": {"finalizers": None}})
        await world.client.delete(where)
    world.start()


def ours(name: str, **said: Any) -> Thing:
    """A Job that nothing may happen to: its first failure is its last."""
    return job(name, labels=LABELS, backoffLimit=0, **said)


def test_jobs_that_fairway_started_run_on_when_it_is_installed_again() -> None:
    async def story(world: World) -> tuple[Any, ...]:
        await world.apply(ours("one", podFailurePolicy=STRICT), ours("gang", cpu="1", parallelism=2, completions=2))
        for name in ("job-one", "job-gang"):
            await world.until(lambda name=name: world.is_in(name, "Running"))
        before = {it["metadata"]["uid"] for it in await world.pods()}
        await installed_anew(world)
        for name in ("job-one", "job-gang"):
            await world.until(lambda name=name: world.is_in(name, "Running"))
        after = {it["metadata"]["uid"] for it in await world.pods()}
        told = {await reason(world, name) for name in ("job-one", "job-gang")}
        for name in ("one", "gang"):
            await world.until(lambda name=name: world.is_in(f"job-{name}", "Succeeded"), seconds=200)
        failed = [(await world.job(name))["status"].get("failed", 0) for name in ("one", "gang")]
        return after == before, failed, told

    it_ran = "it ran on n1 already, for a workload that is no more; it counts as admitted there"
    assert play(story, node("n1")) == (True, [0, 0], {("Adopted", it_ran)})


async def reason(world: World, name: str) -> tuple[str, str]:
    """Why it is admitted."""
    found = (await world.workload(name))["status"]["conditions"]
    return next((it["reason"], it["message"]) for it in found if it["type"] == "Admitted")


def test_trials_that_run_are_adopted_however_few_there_are() -> None:
    async def story(world: World) -> tuple[Any, ...]:
        await world.crash()
        await world.apply(ours("a", cpu="2", parallelism=3, completions=4, seconds=100))
        first, second, _ = await world.until(lambda: has(world, 3))
        for pod in (first, second):
            where = Ref(kinds.PODS, pod["metadata"]["name"], "default")
            await world.client.bind(where, "n1", uid=pod["metadata"]["uid"])
        world.start()
        await world.until(lambda: world.is_in("job-a", "Running"))
        placed = (await world.workload("job-a"))["status"]["admission"]["podSets"][0]["nodes"]
        await world.until(lambda: world.is_in("job-a", "Succeeded"), seconds=1000)
        status = (await world.job("a"))["status"]
        return placed, status["succeeded"], status.get("failed", 0)

    assert play(story, node("n1"), has_door=False) == ([{"node": "n1", "count": 2}], 4, 0)


async def has(world: World, count: int) -> list[Thing]:
    found = await world.pods()
    return found if len(found) == count else []


@pytest.mark.parametrize("silent", [0, 60])
def test_no_pod_of_a_job_is_bound_while_its_own_controller_may_still_take_it_away(silent: float) -> None:
    """Nor while the watch of Jobs is silent: the Job was suspended, though the view shows that it runs."""

    async def story(world: World) -> tuple[Any, ...]:
        await world.apply(ours("gang", cpu="1", parallelism=2, completions=2, podFailurePolicy=STRICT))
        await world.until(lambda: has(world, 2))
        world.jobs.cancel()  # it does not see for a while that Fairway suspends the Job
        world.start(deaf(world, "jobs", world.clock.now() + silent))
        await world.until(lambda: world.is_in("job-gang", "Admitted"))
        await world.clock.sleep(5)
        bound = [it["spec"]["nodeName"] for it in await world.pods() if "nodeName" in it["spec"]]
        late = asyncio.create_task(Jobs(world.client).run())
        await world.until(lambda: world.is_in("job-gang", "Succeeded", "Failed"), seconds=300)
        late.cancel()
        return bound, (await world.job("gang"))["status"].get("failed", 0)

    assert play(story, node("n1"), has_door=False, starts=False) == ([], 0)


def test_a_job_is_resumed_only_when_its_old_pods_are_gone() -> None:
    async def story(world: World) -> tuple[Any, ...]:
        await world.apply(ours("a"))
        await world.until(lambda: world.is_in("job-a", "Running"))
        (pod,) = await world.pods()
        world.dead.add("n1")  # its kubelet is slow to end it
        await installed_anew(world)
        await world.client.patch(Ref(kinds.JOBS, "a", "default"), {"spec": {"suspend": True}})
        await world.until(lambda: is_gone_or_leaves(world, pod["metadata"]["name"]))
        await world.clock.sleep(20)
        is_held = (await world.job("a"))["spec"]["suspend"], len(await world.pods())
        world.dead.discard("n1")
        await world.client.delete(Ref(kinds.PODS, pod["metadata"]["name"], "default"), grace=0)
        await world.client.patch(Ref(kinds.JOBS, "a", "default"), {"spec": {"suspend": False}})
        await world.until(lambda: world.is_in("job-a", "Succeeded"), seconds=1000)
        return is_held, (await world.job("a"))["status"].get("failed", 0)

    assert play(story, node("n1"), node("n2")) == ((True, 1), 0)


async def is_gone_or_leaves(world: World, name: str) -> bool:
    return all("deletionTimestamp" in it["metadata"] for it in await world.pods() if it["metadata"]["name"] == name)


def test_rules_for_failures_do_not_judge_a_job_that_makes_room() -> None:
    async def story(world: World) -> tuple[Any, ...]:
        await world.apply(priority("high", 1000), ours("low", cpu="4", podFailurePolicy=STRICT))
        await world.until(lambda: world.is_in("job-low", "Running"))
        await world.apply(ours("high", cpu="4", pod={"priorityClassName": "high"}))
        await world.until(lambda: world.is_in("job-high", "Succeeded"), seconds=200)
        await world.until(lambda: world.is_in("job-low", "Succeeded", "Failed"), seconds=200)
        said = await world.job("low")
        return is_true(said, "Complete"), said["spec"]["podFailurePolicy"]["rules"][0]["action"]

    assert play(story, node("n1")) == (True, "Ignore")


def test_a_job_that_no_door_saw_makes_room_and_its_rules_for_failures_do_not_judge_it() -> None:
    async def story(world: World) -> tuple[Any, ...]:
        rules = ours("low", cpu="2", parallelism=2, completions=2, completionMode="Indexed", podFailurePolicy=STRICT)
        await world.apply(priority("high", 1000), rules)
        await world.until(lambda: world.is_in("job-low", "Running"))
        await world.apply(ours("high", cpu="4", pod={"priorityClassName": "high"}))
        for name in ("high", "low"):
            await world.until(lambda name=name: world.is_in(f"job-{name}", "Succeeded", "Failed"), seconds=300)
        said = await world.job("low")
        return is_true(said, "Complete"), said["status"].get("failed", 0)

    assert play(story, node("n1"), has_door=False) == (True, 0)


def test_a_released_pod_has_no_label_left_by_which_its_user_has_its_job_find_it() -> None:
    async def story(world: World) -> tuple[Any, ...]:
        made = ours("low", cpu="4", podFailurePolicy=STRICT, manualSelector=True, selector={"matchLabels": MINE})
        made["spec"]["template"]["metadata"]["labels"] = MINE
        await world.apply(priority("high", 1000), made)
        await world.until(lambda: world.is_in("job-low", "Running"))
        world.dead.add("n1")  # its kubelet is slow to end it
        await world.apply(ours("high", cpu="4", pod={"priorityClassName": "high"}))
        pod = await world.until(lambda: released(world))
        world.dead.discard("n1")
        world.hollow.agenda.note(f"default/{pod['metadata']['name']}")
        await world.until(lambda: world.is_in("job-low", "Succeeded", "Failed"), seconds=600)
        return MINE.keys() & pod["metadata"]["labels"].keys(), (await world.job("low"))["status"].get("failed", 0)

    assert play(story, node("n1"), has_door=False) == (set(), 0)


async def released(world: World) -> Thing | None:
    """A pod that its Job owns no longer."""
    found = [it for it in await world.pods() if "fairway.dev/released" in it["metadata"].get("annotations", {})]
    return found[0] if found else None


@pytest.mark.parametrize("fatal", range(8, 26))
def test_a_gang_is_whole_and_judged_by_nothing_whichever_write_the_controllers_are_killed_at(fatal: int) -> None:
    """Half bound, half released, or between its Job's suspension and the end of its pods."""

    async def story(world: World) -> tuple[Any, ...]:
        faults = Faults(world.server.handle, world.clock, random.Random(1), rate=0.0, fatal=frozenset({fatal}))
        life = asyncio.create_task(kill_and_start(world, faults))
        rules = ours("low", cpu="1", parallelism=4, completions=4, completionMode="Indexed", podFailurePolicy=STRICT)
        await world.apply(priority("high", 1000), rules)
        await world.until(lambda: world.is_in("job-low", "Running"), seconds=200)
        attempts = {it["metadata"]["annotations"]["fairway.dev/attempt"] for it in await world.pods(phase="Running")}
        await world.apply(ours("high", cpu="4", pod={"priorityClassName": "high"}))
        for name in ("high", "low"):
            await world.until(lambda name=name: world.is_in(f"job-{name}", "Succeeded", "Failed"), seconds=400)
        life.cancel()
        said = (await world.job("low"))["status"]
        return len(attempts), said["succeeded"], said.get("failed", 0), faults.writes > fatal

    assert play(story, node("n1"), has_door=False, starts=False) == (1, 4, 0, True)
