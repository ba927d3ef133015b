"""Sessions that do nothing are told ahead, parked, and woken with their name and place, in virtual time."""

from typing import Any

from simworld import Thing, World, job, node, pod
from test_apps import START as BEGIN
from test_apps import made, workload
from test_apps import play as play_apps
from test_life import play

from fairway.api.objects import IDLE_SINCE
from fairway.api.quantities import time_text
from fairway.embedded.apps.control import DEPLOYMENTS, STATEFUL_SETS
from fairway.kube import kinds
from fairway.kube.kinds import Ref, Selection

START = BEGIN + 60  # since when nothing is done
LIMIT, AHEAD = 1800.0, 900.0  # the time-out, and how long before it is told
IDLE = {"annotations": {"fairway.dev/idle-timeout": "30m"}}


async def mark(world: World, since: float | None) -> None:
    """What a node says of its pods: since when they are idle; None while they are used."""
    for one in await world.pods(phase="Running"):
        await world.mark(one["metadata"]["name"], IDLE_SINCE, None if since is None else time_text(since))


async def told(world: World, reason: str) -> list[tuple[str, float]]:
    """Whom events of a reason are about, and when they came."""
    found = await world.client.list(Selection(kinds.EVENTS, fields=f"reason={reason}"))
    return [(it["involvedObject"]["name"], it["message"]) for it in found]


async def is_quiet(world: World) -> bool:
    return not (await world.workload("job-nb"))["status"].get("reason")


async def started(world: World, name: str) -> None:
    await world.until(lambda: world.is_in(name, "Running"))


def test_an_idle_job_is_told_a_quarter_of_an_hour_ahead_and_parked_with_its_place() -> None:
    async def story(world: World) -> Any:
        await world.apply(job("nb", seconds=1e6, **IDLE))
        await started(world, "job-nb")
        before = (await world.workload("job-nb"))["metadata"]
        await mark(world, START)
        await world.until(lambda: world.says_reason("job-nb", "Idle"), seconds=LIMIT)
        noticed, notice = world.clock.now() - START, (await world.workload("job-nb"))["status"]
        await world.until(lambda: world.is_in("job-nb", "Parked"), seconds=LIMIT)
        parked, status = world.clock.now() - START, (await world.workload("job-nb"))["status"]
        await world.apply(job("late", seconds=1e6))
        await started(world, "job-late")
        await world.annotate("nb", paused=None)
        await world.until(lambda: world.says_reason("job-nb", "NoRoom"))
        again = await world.workload("job-nb")
        await world.delete(kinds.JOBS, "late")
        await started(world, "job-nb")
        assert again["metadata"]["uid"] == before["uid"] and notice["phase"] == "Running"
        return noticed, parked, notice["message"], status["message"], await told(world, "Idle")

    noticed, parked, notice, status, events = play(story, node("n1", cpu=2))
    assert LIMIT - AHEAD <= noticed < LIMIT - AHEAD + 2 and LIMIT <= parked < LIMIT + 5
    assert notice == "idle since 2027-01-15T08:01:00Z; parked at 2027-01-15T08:31:00Z unless it computes before"
    assert status == "idle since 2027-01-15T08:01:00Z; `fairway resume nb` wakes it"
    assert events == [("nb", notice)]


def test_a_session_that_computes_again_is_left_alone_and_told_so() -> None:
    async def story(world: World) -> tuple[Thing, Thing]:
        await world.apply(job("nb", seconds=1e6, **IDLE))
        await started(world, "job-nb")
        await mark(world, START)
        await world.until(lambda: world.says_reason("job-nb", "Idle"), seconds=LIMIT)
        await mark(world, None)
        await world.until(lambda: is_quiet(world))
        await world.clock.sleep(2 * LIMIT)
        used = (await world.workload("job-nb"))["status"]
        await mark(world, world.clock.now() - 600)
        await world.clock.sleep(LIMIT - 700)
        return used, (await world.workload("job-nb"))["status"]

    used, soon = play(story, node("n1"))
    assert used["phase"] == "Running" and not used.get("message")
    assert soon["phase"] == "Running" and soon["reason"] == "Idle"


def test_what_a_node_can_freeze_keeps_its_memory_while_it_is_idle() -> None:
    async def story(world: World) -> Any:
        note = {"metadata": {"annotations": {"fairway.dev/pause": "true"}}}
        await world.client.patch(Ref(kinds.NODES, "n1"), note)
        await world.apply(job("nb", seconds=1e6, **IDLE))
        await started(world, "job-nb")
        await mark(world, START)
        await world.until(lambda: world.is_in("job-nb", "Paused"), seconds=2 * LIMIT)
        status = (await world.workload("job-nb"))["status"]
        (one,) = await world.pods()
        await world.annotate("nb", paused=None)
        await started(world, "job-nb")
        woken = world.clock.now()
        await world.until(lambda: world.says_reason("job-nb", "Idle"), seconds=LIMIT)
        assert world.clock.now() - woken >= LIMIT - AHEAD - 1  # what was said of it before does not count
        return status["message"], one["metadata"]["name"]

    message, name = play(story, node("n1"))
    assert "idle since 2027-01-15T08:01:00Z; `fairway resume nb` wakes it" in message and name.startswith("nb-")


def test_a_controller_that_comes_late_tells_ahead_all_the_same() -> None:
    async def story(world: World) -> tuple[float, float]:
        await world.apply(job("nb", seconds=1e6, **IDLE))
        await started(world, "job-nb")
        await mark(world, START)
        await world.crash()
        await world.clock.sleep(2 * LIMIT)
        world.start()
        await world.until(lambda: world.says_reason("job-nb", "Idle"))
        noticed = world.clock.now()
        await world.until(lambda: world.is_in("job-nb", "Parked"), seconds=LIMIT)
        return noticed, world.clock.now()

    noticed, parked = play(story, node("n1"))
    assert parked - noticed >= AHEAD


def test_what_nothing_is_known_of_is_never_parked() -> None:
    async def story(world: World) -> tuple[str, str]:
        await world.apply(job("nb", seconds=1e6, **IDLE))
        await world.apply(job("pair", seconds=1e6, parallelism=2, completions=2, completionMode="Indexed", **IDLE))
        await started(world, "job-nb")
        await started(world, "job-pair")
        one = next(it for it in await world.pods() if it["metadata"]["labels"]["job-name"] == "pair")
        await world.mark(one["metadata"]["name"], IDLE_SINCE, time_text(START))
        await world.clock.sleep(3 * LIMIT)
        return await world.phase("job-nb"), await world.phase("job-pair")

    assert play(story, node("n1", cpu=8)) == ("Running", "Running")


def test_a_bare_pod_is_parked_and_woken_under_its_name_and_is_not_idle_at_once() -> None:
    async def story(world: World) -> tuple[str, str]:
        labels = {"fairway.dev/queue": "default"}
        await world.apply(pod("nb", seconds=1e6, labels=labels, **IDLE))
        await started(world, "pod-nb")
        await mark(world, START)
        await world.until(lambda: world.is_in("pod-nb", "Parked"), seconds=2 * LIMIT)
        await world.until(lambda: world.says_reason("pod-nb", "Parked"))
        note = {"metadata": {"annotations": {"fairway.dev/paused": None}}}
        await world.client.patch(Ref(kinds.PODS, "nb", "default"), note)
        await started(world, "pod-nb")
        await world.clock.sleep(2 * LIMIT)
        return await world.phase("pod-nb"), (await world.workload("pod-nb"))["status"].get("message", "")

    assert play(story, node("n1")) == ("Running", "")


def session(name: str, replicas: int) -> Thing:
    made = workload(name, replicas)
    labels = {"app": name, "fairway.dev/queue": "default"}
    made["metadata"]["labels"], made["spec"]["selector"] = labels, {"matchLabels": {"app": name}}
    made["spec"]["template"]["metadata"] = {"labels": labels, **IDLE}
    return made


def test_what_makes_its_pod_again_is_scaled_to_none_unless_it_has_several() -> None:
    async def story(world: World) -> list[Any]:
        refs = [await made(world, kind, session(name, replicas)) for kind, name, replicas in (
            (DEPLOYMENTS, "web", 1), (STATEFUL_SETS, "set", 1), (DEPLOYMENTS, "two", 2))]  # fmt: skip

        async def is_up() -> bool:
            return len(await world.pods(phase="Running")) == 4

        await world.until(is_up)
        await mark(world, START)
        await world.clock.sleep(2 * LIMIT)
        found = [await world.client.get(ref) for ref in refs]
        notes = [it["metadata"].get("annotations") or {} for it in found]
        events = await world.client.list(Selection(kinds.EVENTS))
        parked = [(it["spec"]["replicas"], own.get("fairway.dev/parked")) for it, own in zip(found, notes)]
        return [parked, [it["message"] for it in events if it["reason"] == "Cancelled"]]

    assert play_apps(story, node("n1", cpu=8)) == [[(0, "1"), (0, "1"), (2, None)], []]
