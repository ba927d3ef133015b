"""The life of workloads, run by the whole control plane under virtual time."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from simworld import SETTINGS, Thing, World, cluster, is_leaving, is_true, job, names, node, pod, priority

from fairway.cli.act import _resume as resume
from fairway.cli.find import Found
from fairway.clock import VirtualClock, seeded
from fairway.controllers.losses import GATHER_SECONDS
from fairway.kube import kinds
from fairway.kube.client import ApiError
from fairway.kube.kinds import Ref, Selection
from fairway.kube.transport import Request, Response

START = 1_800_000_000.0


def play(
    story: Callable[[World], Awaitable[Any]], *nodes: Thing, dead: frozenset[str] = frozenset(), seed: int = 1
) -> Any:
    """What the story answers, played on these nodes with controllers running."""
    clock = VirtualClock(START)

    async def run() -> Any:
        async with cluster(clock, seeded(seed), *nodes, dead=dead) as world:
            world.start()
            return await story(world)

    return clock.run(run())


def test_a_job_runs_and_its_workload_tells_its_life() -> None:
    async def story(world: World) -> Thing:
        await world.apply(job("a", seconds=30))
        await world.until(lambda: world.is_in("job-a", "Running"), seconds=2)
        await world.until(lambda: world.is_in("job-a", "Succeeded"), seconds=40)
        return await world.workload("job-a")

    workload = play(story, node("n1"))
    assert workload["status"]["attempt"] == 1
    assert is_true(workload, "Admitted") and is_true(workload, "Finished") and not is_true(workload, "Running")


def test_what_a_limit_range_adds_to_pods_is_asked_for_by_their_workload() -> None:
    async def story(world: World) -> list[str]:
        item = {"type": "Container", "defaultRequest": {"cpu": "2"}}
        usual = {"metadata": {"name": "usual", "namespace": "default"}, "spec": {"limits": [item]}}
        await world.client.create(kinds.LIMIT_RANGES, usual)
        for name in "abc":
            silent = job(name, seconds=100)
            del silent["spec"]["template"]["spec"]["containers"][0]["resources"]
            await world.apply(silent)
        await world.until(lambda: world.is_in("job-c", "Pending"))
        await world.until(lambda: is_told(world))
        await world.client.delete(Ref(kinds.LIMIT_RANGES, "usual", "default"))
        await world.until(lambda: world.is_in("job-c", "Running"), seconds=10)  # it asks for nothing now
        return [await world.phase(f"job-{name}") for name in "abc"]

    async def is_told(world: World) -> bool:
        return (await world.workload("job-c"))["status"].get("reason") == "NoRoom"

    assert play(story, node("n1", cpu=4)) == ["Running"] * 3


def test_a_job_that_is_removed_as_it_ends_is_told_to_have_ended() -> None:
    phases: list[str] = []

    async def story(world: World) -> list[Thing]:
        async def slow(request: Request) -> Response:
            if request.method == "PATCH" and request.path.endswith("/workloads/job-a/status"):
                await world.clock.sleep(2)
                phases.append(msgspec.json.decode(request.body or b"")["status"].get("phase", ""))
            return await world.server.handle(request)

        await world.crash()
        world.start(slow)
        await world.apply(job("a", seconds=1, ttlSecondsAfterFinished=0))
        await world.clock.sleep(60)
        return await world.client.list(Selection(kinds.EVENTS))

    events = play(story, node("n1"))
    assert "Succeeded" in phases
    assert "Cancelled" not in {it["reason"] for it in events}


def test_room_that_comes_free_is_given_away_without_waiting_for_other_changes() -> None:
    async def story(world: World) -> None:
        await world.crash()
        world.start(settings=replace(SETTINGS, batch_window=20.0))
        await world.apply(job("a", seconds=100), job("b"))
        await world.until(lambda: world.is_in("job-a", "Running"), seconds=90)
        await world.until(lambda: world.is_in("job-b", "Pending"), seconds=90)
        await world.until(lambda: world.is_in("job-a", "Succeeded"), seconds=150)
        await world.until(lambda: world.is_in("job-b", "Running"), seconds=5)

    play(story, node("n1", cpu=2))


def test_a_workload_names_the_class_of_its_priority() -> None:
    async def story(world: World) -> list[str]:
        await world.apply(priority("low", 0, is_default=True), priority("high", 1000))
        await world.apply(job("a"), job("b", pod={"priorityClassName": "high"}), job("c", pod={"priority": 7}))
        await world.until(lambda: world.is_in("job-c", "Admitted"))
        return [(await world.workload(f"job-{name}"))["spec"].get("priorityClassName", "") for name in "abc"]

    assert play(story, node("n1", cpu=8)) == ["low", "high", ""]


def test_what_waits_says_why_and_the_event_is_on_the_job() -> None:
    async def story(world: World) -> tuple[Thing, list[Thing]]:
        await world.apply(job("a"), job("b"))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await world.clock.sleep(5)
        return await world.workload("job-b"), await world.client.list(Selection(kinds.EVENTS))

    workload, events = play(story, node("n1", cpu=2))
    assert (workload["status"]["phase"], workload["status"]["reason"], workload["status"]["position"]) == (
        "Pending", "NoRoom", 1,
    )  # fmt: skip
    assert workload["status"]["message"]
    said = [(it["involvedObject"]["name"], it["reason"]) for it in events if it["reportingComponent"] == "fairway"]
    assert ("b", "NoRoom") in said and ("a", "Admitted") in said


def test_what_is_first_in_line_no_longer_says_so_at_once() -> None:
    async def story(world: World) -> list[int]:
        high = {"priorityClassName": "high"}
        await world.apply(priority("low", 0, is_default=True), priority("high", 1000))
        await world.apply(job("a", pod=high))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await world.apply(job("b"))
        await world.until(lambda: world.is_in("job-b", "Pending"))
        await world.apply(job("c", pod=high))
        await world.until(lambda: world.is_in("job-c", "Pending"))
        await world.clock.sleep(0.5)
        return [(await world.workload(f"job-{name}"))["status"]["position"] for name in "cb"]

    assert play(story, node("n1", cpu=2)) == [1, 2]


def test_a_job_that_waits_long_is_written_seldom_and_told_its_place() -> None:
    writes: list[float] = []

    async def story(world: World) -> tuple[int, int]:
        async def counted(request: Request) -> Response:
            if request.method == "PATCH" and request.path.endswith("/workloads/job-z/status"):
                writes.append(world.clock.now())
            return await world.server.handle(request)

        await world.crash()
        world.start(counted)
        for number in range(25):
            await world.apply(job(f"a{number:02}", seconds=3))
        await world.apply(job("z", seconds=3))
        await world.until(lambda: world.is_in("job-z", "Pending"))
        await world.clock.sleep(70)
        done = len(await world.pods(phase="Succeeded"))
        return done, (await world.workload("job-z"))["status"]["position"]

    done, place = play(story, node("n1", cpu=2))
    assert done >= 20 and len(writes) <= 10
    assert 25 - done <= place <= 25 - done + 3


def test_jobs_of_one_second_run_in_the_order_in_which_they_were_made() -> None:
    async def story(world: World) -> list[str]:
        await world.clock.sleep(1)  # the controllers look on
        await world.apply(*(job(name, seconds=5) for name in ("z", "m", "a", "k")))
        order: list[str] = []
        while len(order) < 4:
            await world.clock.sleep(1)
            order += [it for it in map(_job_of, await world.pods(phase="Running")) if it not in order]
        return order

    assert play(story, node("n1", cpu=2)) == ["z", "m", "a", "k"]


def _job_of(pod: Thing) -> str:
    return str(pod["metadata"]["labels"]["job-name"])


def test_no_pod_is_made_before_its_job_is_admitted() -> None:
    async def story(world: World) -> list[str]:
        await world.apply(*(job(f"j{number}", seconds=1000) for number in range(30)))
        await world.clock.sleep(20)
        return sorted(map(_job_of, await world.pods()))

    assert play(story, node("n1", cpu=4)) == ["j0", "j1"]


def test_a_gang_takes_its_places_by_rank_with_devices_of_its_own() -> None:
    async def story(world: World) -> list[tuple[str, str, str]]:
        await world.apply(job("g", gpus=2, cpu="1", parallelism=3, completions=3, completionMode="Indexed"))
        await world.until(lambda: world.is_in("job-g", "Running"))
        said = []
        for it in await world.pods():
            notes = it["metadata"]["annotations"]
            rank = notes["batch.kubernetes.io/job-completion-index"]
            said.append((rank, it["spec"]["nodeName"], notes["fairway.dev/assigned-devices"]))
        return sorted(said)

    placed = play(story, node("n1", gpus=4), node("n2", gpus=4))
    assert [rank for rank, _, _ in placed] == ["0", "1", "2"]
    assert len({(place, devices) for _, place, devices in placed}) == 3
    assert {place for _, place, _ in placed[:2]} == {placed[0][1]}


def test_a_bare_pod_waits_at_its_gate_runs_and_ends() -> None:
    async def story(world: World) -> list[str]:
        await world.apply(pod("a", seconds=20), pod("b", seconds=20))
        await world.until(lambda: world.is_in("pod-a", "Running"))
        waiting = names(it for it in await world.pods() if it["spec"].get("schedulingGates"))
        await world.until(lambda: world.is_in("pod-b", "Succeeded"))
        return waiting

    assert play(story, node("n1", cpu=2)) == ["b"]


def test_a_group_of_bare_pods_starts_whole() -> None:
    async def story(world: World) -> tuple[list[str], str, int]:
        group = {"labels": {"fairway.dev/group": "g", "fairway.dev/group-size": "3"}}
        await world.apply(pod("g-0", cpu="1", **group), pod("g-1", cpu="1", **group))
        await world.clock.sleep(10)
        early = names(await world.pods(phase="Running"))
        await world.apply(pod("g-2", cpu="1", **group))
        await world.until(lambda: world.is_in("pod-g", "Running"))
        count = len(await world.pods(phase="Running"))
        await world.until(lambda: world.is_in("pod-g", "Succeeded"), seconds=200)
        return early, await world.phase("pod-g"), count

    assert play(story, node("n1")) == ([], "Succeeded", 3)


def test_the_manifests_of_a_group_are_read_in_one_request() -> None:
    asked: list[tuple[str, str]] = []

    async def story(world: World) -> None:
        async def noted(request: Request) -> Response:
            if request.method == "GET" and "/namespaces/" in request.path and "/pods" in request.path:
                asked.append((request.path.rpartition("/")[2], dict(request.query).get("labelSelector", "")))
            return await world.server.handle(request)

        await world.crash()
        world.start(noted)
        group = {"labels": {"fairway.dev/group": "g", "fairway.dev/group-size": "3"}}
        await world.apply(*(pod(f"g-{at}", cpu="1", **group) for at in range(3)))
        await world.until(lambda: world.is_in("pod-g", "Running"))

    play(story, node("n1"))
    assert asked == [("pods", "fairway.dev/group=g")]


def test_a_queue_that_is_seen_just_after_its_first_workloads_is_not_told_to_be_missing() -> None:
    async def story(world: World) -> list[str]:
        for kind in ("late", "never"):
            labels = {"fairway.dev/queue": kind}
            await world.apply(job(f"j-{kind}", seconds=5, labels=labels), pod(f"p-{kind}", seconds=5, labels=labels))
        await world.clock.sleep(0.4)
        await world.apply({"apiVersion": "fairway.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "late"}})
        await world.until(lambda: world.is_in("job-j-late", "Succeeded"))
        await world.clock.sleep(10)
        events = await world.client.list(Selection(kinds.EVENTS))
        return sorted(it["involvedObject"]["name"] for it in events if it["reason"] == "QueueNotFound")

    assert play(story, node("n1")) == ["j-never", "p-never"]


def test_a_group_that_stays_incomplete_is_told_once_and_again_when_it_grows() -> None:
    async def story(world: World) -> list[tuple[str, str]]:
        group = {"labels": {"fairway.dev/group": "g", "fairway.dev/group-size": "3"}}
        await world.apply(pod("g-0", cpu="1", **group))
        await world.clock.sleep(60)
        await world.apply(pod("g-1", cpu="1", **group))
        await world.clock.sleep(60)
        await world.apply(pod("g-2", cpu="1", **group))
        await world.until(lambda: world.is_in("pod-g", "Running"))
        events = await world.client.list(Selection(kinds.EVENTS))
        told = [it for it in events if it["reason"] == "GroupIncomplete"]
        return [(it["involvedObject"]["name"], it["message"]) for it in told]

    words = "group 'g' is queued when its 3 pods (fairway.dev/group-size) are there; {} of them so far"
    assert sorted(play(story, node("n1"))) == [("g-0", words.format(1)), ("g-0", words.format(2))]


def test_a_deleted_pod_of_nobody_takes_its_workload_with_it() -> None:
    async def story(world: World) -> list[Thing]:
        await world.apply(pod("a", seconds=None))
        await world.until(lambda: world.is_in("pod-a", "Running"))
        await world.delete(kinds.PODS, "a")
        await world.clock.sleep(30)
        return [*await world.pods(), *await world.client.list(Selection(kinds.WORKLOADS))]

    assert play(story, node("n1")) == []


def test_a_deleted_group_does_not_come_back_however_long_its_pods_take_to_stop() -> None:
    async def story(world: World) -> list[Thing]:
        group = {"labels": {"fairway.dev/group": "g", "fairway.dev/group-size": "3"}}
        await world.apply(*(pod(f"g-{index}", cpu="1", seconds=None, **group) for index in range(3)))
        await world.until(lambda: world.is_in("pod-g", "Running"))
        world.dead.add("n1")
        for index in range(3):
            await world.delete(kinds.PODS, f"g-{index}")
        await world.clock.sleep(5)
        await world.heal(node("n1"))
        await world.clock.sleep(30)
        return [*await world.pods(), *await world.client.list(Selection(kinds.WORKLOADS))]

    assert play(story, node("n1")) == []


def test_a_deleted_job_is_charged_before_its_workload_goes() -> None:
    async def story(world: World) -> tuple[float, Thing, list[Thing]]:
        await world.apply(job("a", seconds=1000, gpus=2))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await world.clock.sleep(100)
        await world.delete(kinds.JOBS, "a")
        asked = world.clock.now()

        async def is_gone() -> bool:
            return not await world.client.list(Selection(kinds.WORKLOADS))

        await world.until(is_gone)
        took = world.clock.now() - asked
        await world.clock.sleep(5)
        return took, (await world.queue())["status"], await world.client.list(Selection(kinds.WORKLOADS))

    took, status, left = play(story, node("n1", gpus=4))
    assert took < 2.0 and left == []
    assert 199 < status["decayedUsage"]["default"]["nvidia.com/gpu"]["value"] < 205
    assert 0.05 < status["budgetSpent"]["gpuHours"] < 0.06


def test_a_pod_joins_no_group_while_it_runs() -> None:
    async def story(world: World) -> list[str]:
        await world.apply(pod("a", seconds=100, gpus=2))
        await world.until(lambda: world.is_in("pod-a", "Running"))
        labels = {"fairway.dev/group": "g", "fairway.dev/group-size": "1"}
        with pytest.raises(ApiError, match="does not change once the pod is admitted"):
            await world.client.patch(Ref(kinds.PODS, "a", "default"), {"metadata": {"labels": labels}})
        await world.apply(job("b", seconds=10, gpus=2))
        await world.until(lambda: world.is_in("job-b", "Running"), seconds=30)
        await world.apply(job("c", seconds=10, gpus=4))
        await world.until(lambda: world.is_in("job-c", "Succeeded"), seconds=150)
        return [pod["status"]["phase"] for pod in await world.pods()]

    assert play(story, node("n1", cpu=8, gpus=4)) == ["Succeeded", "Succeeded", "Succeeded"]


def test_a_queue_deleted_under_its_workloads_is_a_reason_and_loses_nothing() -> None:
    queue = {"apiVersion": "fairway.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "vision"}, "spec": {}}

    async def story(world: World) -> tuple[str, str]:
        await world.apply(queue, *(job(name, seconds=30, labels={"fairway.dev/queue": "vision"}) for name in "ab"))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await world.delete(kinds.QUEUES, "vision")

        async def is_told() -> bool:
            return (await world.workload("job-b"))["status"].get("reason") == "QueueNotFound"

        await world.until(is_told)
        await world.until(lambda: world.is_in("job-a", "Succeeded"))
        still = await world.phase("job-b")
        await world.apply(queue)
        await world.until(lambda: world.is_in("job-b", "Succeeded"))
        return still, await world.phase("job-b")

    assert play(story, node("n1", cpu=2)) == ("Pending", "Succeeded")


def test_a_queue_whose_parent_is_not_there_says_so_until_it_is() -> None:
    def queue(name: str, **spec: str) -> Thing:
        return {"apiVersion": "fairway.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}

    async def story(world: World) -> tuple[str, list[tuple[str, str]]]:
        seen = []

        async def is_told(*said: str) -> bool:
            found = (await world.queue("team")).get("status", {}).get("conditions", [])
            seen.extend((one["status"], one["reason"]) for one in found if one["type"] == "Valid")
            return seen[-1:] == [said]

        await world.apply(queue("team", parent="dept"), job("a", seconds=30, labels={"fairway.dev/queue": "team"}))
        await world.until(lambda: is_told("False", "ParentNotFound"), seconds=10)
        waits = (await world.workload("job-a"))["status"]["message"]
        await world.apply(queue("dept"))
        await world.until(lambda: world.is_in("job-a", "Running"), seconds=10)
        await world.until(lambda: is_told("True", "Valid"), seconds=90)
        return waits, list(dict.fromkeys(seen))

    waits, seen = play(story, node("n1"))
    assert waits.startswith("queue team holds no workloads: queue team names parent dept, which does not exist")
    assert seen == [("False", "ParentNotFound"), ("True", "Valid")]


def test_a_department_is_charged_for_its_teams_and_its_budget_is_spent() -> None:
    async def story(world: World) -> tuple[Thing, Thing, str]:
        kind = {"apiVersion": "fairway.dev/v1alpha1", "kind": "Queue"}
        team = {"parent": "dept"}
        await world.apply(
            {**kind, "metadata": {"name": "dept"}, "spec": {"budget": {"gpuHours": "0.1", "period": "30d"}}},
            *({**kind, "metadata": {"name": name}, "spec": team} for name in ("vision", "speech")),
        )
        limit = {"fairway.dev/time-limit": "120s"}
        await world.apply(job("a", seconds=100, gpus=2, labels={"fairway.dev/queue": "vision"}, annotations=limit))
        await world.until(lambda: world.is_in("job-a", "Succeeded"), seconds=200)
        await world.clock.sleep(700)
        await world.apply(job("b", seconds=100, gpus=2, labels={"fairway.dev/queue": "speech"}, annotations=limit))
        await world.clock.sleep(10)
        left = (await world.workload("job-a"))["metadata"].get("finalizers", [])
        assert left == []
        waits = (await world.workload("job-b"))["status"]["reason"]
        return (await world.queue("dept"))["status"], (await world.queue("vision"))["status"], waits

    dept, vision, waits = play(story, node("n1", gpus=4))
    assert dept["budgetSpent"]["gpuHours"] == vision["budgetSpent"]["gpuHours"] > 0.05
    assert dept["decayedUsage"] == vision["decayedUsage"] and "users" not in dept
    assert waits == "BudgetSpent"


def test_a_finished_job_is_charged_once_and_lets_its_workload_go() -> None:
    async def story(world: World) -> tuple[Thing, Thing]:
        await world.apply(job("a", seconds=50, gpus=1))
        await world.until(lambda: world.is_in("job-a", "Succeeded"))
        await world.clock.sleep(700)
        await world.crash()
        world.start()
        await world.clock.sleep(700)
        return (await world.queue())["status"], await world.workload("job-a")

    status, workload = play(story, node("n1", gpus=1))
    assert 49 < status["decayedUsage"]["default"]["nvidia.com/gpu"]["value"] < 52
    assert "finalizers" not in workload["metadata"]
    assert status["users"]["fairway:admin"]["value"] < 52
    assert [it["points"][0][1] for it in status["runtimes"]] == [1.0] * 6


@pytest.mark.parametrize("guaranteed", ["1", "25%"])
def test_a_queue_shows_what_it_holds_and_what_waits(guaranteed: str) -> None:
    async def story(world: World) -> Thing:
        quotas = [{"guaranteed": {"cpu": guaranteed}}]
        await world.apply({"apiVersion": "fairway.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "q"},
                           "spec": {"quotas": quotas}})  # fmt: skip
        await world.apply(*(job(name, labels={"fairway.dev/queue": "q"}) for name in "abc"))
        await world.until(lambda: world.is_in("job-b", "Running"))
        await world.clock.sleep(10)
        status: Thing = (await world.queue("q"))["status"]
        return status

    status = play(story, node("n1", cpu=4))
    assert (status["pending"], status["admitted"]) == (1, 2)
    assert status["usage"] == {"default": {"cpu": "4"}}
    assert status["borrowed"] == {"default": {"cpu": "3"}}


def test_a_queue_is_written_at_most_every_five_seconds_but_for_deletions() -> None:
    async def story(world: World) -> list[float]:
        written, before = [], ""
        await world.apply(*(job(f"j{number}", seconds=7) for number in range(25)))
        await world.until(lambda: world.is_in("job-j0", "Running"))
        end = world.clock.now() + 200
        while world.clock.now() < end:
            version = (await world.queue())["metadata"]["resourceVersion"]
            if version != before:
                written.append(world.clock.now())
                before = version
            await world.clock.sleep(0.5)
        return written[1:]  # the first is its making

    written = play(story, node("n1", cpu=2))
    assert len(written) > 4 and min(then - now for now, then in pairwise(written)) >= 5.0


def test_what_was_evicted_counts_before_the_queue_is_written_again() -> None:
    async def story(world: World) -> tuple[str, str]:
        pool = {"apiVersion": "fairway.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "p"},
                "spec": {"evictionBudget": {"gpus": "1", "per": "1h"}}}  # fmt: skip
        await world.apply(pool, priority("high", 1000), *(job(name, seconds=9000, gpus=2) for name in "ab"))
        await world.until(lambda: world.is_in("job-b", "Running"))
        await world.clock.sleep(900)
        await world.apply(job("waits", gpus=2))
        await world.clock.sleep(5)  # the queue is written
        for name in ("c", "d"):
            await world.apply(job(name, seconds=9000, gpus=2, pod={"priorityClassName": "high"}))
            await world.clock.sleep(20)
        return await world.phase("job-c"), await world.phase("job-d")

    assert play(story, node("n1", gpus=4)) == ("Running", "Pending")


def test_a_start_that_takes_too_long_is_tried_again_elsewhere() -> None:
    async def story(world: World) -> Thing:
        await world.apply(job("a", seconds=10, annotations={"fairway.dev/start-timeout": "60s"}))
        await world.until(lambda: all_leave(world), seconds=70)
        for gone in await world.pods():
            await world.client.delete(Ref(kinds.PODS, gone["metadata"]["name"], "default"), grace=0)
        await world.until(lambda: world.is_in("job-a", "Succeeded"), seconds=600)
        return (await world.workload("job-a"))["status"]

    status = play(story, node("a-dead-one", cpu=2), node("n2", cpu=8), dead=frozenset({"a-dead-one"}))
    assert [it["reason"] for it in status["evictionHistory"]] == ["StartTimeout"]
    assert status["excludedNodes"] == ["a-dead-one"]
    assert status["attempt"] == 2


def test_a_start_that_took_too_long_on_the_only_node_is_tried_again_there() -> None:
    async def story(world: World) -> Thing:
        await world.apply(job("a", seconds=10, annotations={"fairway.dev/start-timeout": "60s"}))
        await world.until(lambda: all_leave(world), seconds=70)
        await world.heal(node("n1"))
        await world.until(lambda: world.is_in("job-a", "Succeeded"), seconds=200)
        return (await world.workload("job-a"))["status"]

    status = play(story, node("n1"), dead=frozenset({"n1"}))
    assert (status["excludedNodes"], status["attempt"]) == (["n1"], 2)


async def all_leave(world: World) -> bool:
    pods = await world.pods()
    return bool(pods) and all(map(is_leaving, pods))


def test_a_workload_deleted_by_hand_comes_again() -> None:
    async def story(world: World) -> tuple[str, str]:
        await world.apply(job("a", seconds=100))
        await world.until(lambda: world.is_in("job-a", "Running"))
        before = (await world.workload("job-a"))["metadata"]["uid"]
        await world.client.delete(Ref(kinds.WORKLOADS, "job-a", "default"))
        await world.clock.sleep(5)
        await world.until(lambda: world.is_in("job-a", "Succeeded"), seconds=300)
        return before, (await world.workload("job-a"))["metadata"]["uid"]

    before, after = play(story, node("n1"))
    assert before != after


def test_a_job_that_runs_stays_in_its_queue_until_it_next_waits() -> None:
    async def story(world: World) -> list[str]:
        kind = {"apiVersion": "fairway.dev/v1alpha1", "kind": "Queue", "spec": {}}
        await world.apply(*({**kind, "metadata": {"name": name}} for name in "ab"))
        await world.apply(job("j", labels={"fairway.dev/queue": "a"}))
        await world.until(lambda: world.is_in("job-j", "Running"))
        await world.client.patch(Ref(kinds.JOBS, "j", "default"), {"metadata": {"labels": {"fairway.dev/queue": "b"}}})
        await world.clock.sleep(10)
        seen = [(await world.workload("job-j"))["spec"]["queue"]]
        await world.annotate("j", active="false")
        await world.until(lambda: world.is_in("job-j", "Suspended"))
        await world.annotate("j", active="true")
        await world.until(lambda: world.is_in("job-j", "Running"))
        return [*seen, (await world.workload("job-j"))["spec"]["queue"]]

    assert play(story, node("n1")) == ["a", "b"]


def test_a_user_cannot_admit_a_workload() -> None:
    async def story(world: World) -> tuple[int, bool, str]:
        await world.apply(job("a", gpus=2))
        await world.until(lambda: world.is_in("job-a", "Pending"))
        held = {"podSets": [{"name": "main", "nodes": [{"node": "n1", "devices": [[0, 1]]}]}]}
        status = {"status": {"admission": held, "conditions": [{"type": "Admitted", "status": "True"}]}}
        with pytest.raises(ApiError) as refused:
            await world.client.patch(Ref(kinds.WORKLOADS, "job-a", "default"), status, subresource="status")
        await world.clock.sleep(10)
        return refused.value.status, (await world.job("a"))["spec"]["suspend"], await world.phase("job-a")

    assert play(story, node("n1")) == (403, True, "Pending")


def test_a_pod_stays_where_it_is_whatever_its_annotation_is_changed_to() -> None:
    async def story(world: World) -> tuple[str, str]:
        await world.apply(pod("a", cpu="1", gpus=1))
        await world.until(lambda: world.is_in("pod-a", "Running"))
        said = {"metadata": {"annotations": {"fairway.dev/assigned-devices": "3"}}}
        await world.client.patch(Ref(kinds.PODS, "a", "default"), said)
        await world.clock.sleep(10)
        found = await world.client.get(Ref(kinds.PODS, "a", "default"))
        return found["metadata"]["annotations"]["fairway.dev/assigned-devices"], await world.phase("pod-a")

    assert play(story, node("n1", gpus=4)) == ("0", "Running")


OWN = {"apiVersion": "fairway.dev/v1alpha1", "kind": "Workload", "metadata": {"name": "w", "namespace": "default"}}


def test_a_workload_that_a_user_wrote_queues_like_any_and_goes_when_it_is_deleted() -> None:
    async def story(world: World) -> list[str]:
        template = job("t")["spec"]["template"]
        spec = {"podSets": [{"name": "main", "count": 1, "template": template}]}
        await world.apply(priority("high", 1000))
        await world.client.create(kinds.WORKLOADS, OWN | {"spec": spec})
        await world.until(lambda: world.is_in("w", "Admitted"))
        await world.clock.sleep(10)
        seen = [await world.phase("w")]
        await world.apply(job("urgent", seconds=20, pod={"priorityClassName": "high"}))
        await world.until(lambda: world.is_in("job-urgent", "Running"), seconds=10)
        seen.append(await world.phase("w"))
        await world.until(lambda: world.is_in("w", "Admitted"))
        await world.client.delete(Ref(kinds.WORKLOADS, "w", "default"))
        await world.apply(job("next"))
        await world.until(lambda: world.is_in("job-next", "Running"), seconds=10)
        return [*seen, await world.phase("w")]

    assert play(story, node("n1", cpu=2)) == ["Admitted", "Pending", ""]


def test_a_podset_without_pods_at_the_start_grows_when_there_is_room() -> None:
    async def story(world: World) -> list[int]:
        await world.apply(job("full", seconds=30, cpu="1", gpus=3))
        await world.until(lambda: world.is_in("job-full", "Running"))
        template = job("t", cpu="1", gpus=1)["spec"]["template"]
        sets = [{"name": "b", "count": 1, "minCount": 0}, {"name": "a", "count": 1}]
        spec = {"podSets": [{**one, "template": template} for one in sets]}
        await world.client.create(kinds.WORKLOADS, OWN | {"spec": spec})
        await world.until(lambda: world.is_in("w", "Admitted"))
        await world.clock.sleep(60)
        held = (await world.workload("w"))["status"]["admission"]["podSets"]
        return [sum(share["count"] for share in one["nodes"]) for one in held]

    assert play(story, node("n1", cpu=8, gpus=4)) == [1, 1]


def test_a_job_whose_minimum_is_none_starts_with_none_and_grows() -> None:
    async def story(world: World) -> tuple[str, int, Thing]:
        await world.apply(job("full", seconds=30, cpu="1", gpus=4))
        await world.until(lambda: world.is_in("job-full", "Running"))
        await world.apply(job("z", seconds=30, cpu="1", gpus=2, parallelism=2, completions=2,
                              annotations={"fairway.dev/min-count": "0"}))  # fmt: skip
        await world.until(lambda: world.is_in("job-z", "Running"), seconds=10)
        before = await world.workload("job-z")
        await world.until(lambda: world.is_in("job-z", "Succeeded"), seconds=70)
        return before["status"]["admission"]["pool"], len(await world.pods()), (await world.workload("job-z"))["status"]

    pool, pods, status = play(story, node("n1", cpu=8, gpus=4))
    assert (pool, pods, status["attempt"]) == ("default", 3, 1)


def test_a_job_without_pods_disturbs_nobody() -> None:
    async def story(world: World) -> tuple[str, Thing]:
        await world.apply(job("none", parallelism=0), job("a", seconds=30))
        await world.until(lambda: world.is_in("job-a", "Succeeded"), seconds=40)
        await world.clock.sleep(600)
        return await world.phase("job-none"), (await world.workload("job-none"))["status"]

    phase, status = play(story, node("n1"))
    assert (phase, status["attempt"], status.get("evictionHistory")) == ("Running", 1, None)


def test_a_job_that_runs_follows_its_parallelism_down_and_up() -> None:
    async def story(world: World) -> tuple[list[int], Thing]:
        seen = []

        async def has(count: int) -> bool:
            held = (await world.workload("job-a"))["status"]["admission"].get("podSets", [{}])[0].get("nodes", [])
            pods = [it for it in await world.pods(phase="Running") if it["metadata"]["name"].startswith("a-")]
            return len(pods) == sum(share["count"] for share in held) == count

        async def resized(count: int, seconds: float = 10) -> None:
            await world.client.patch(Ref(kinds.JOBS, "a", "default"), {"spec": {"parallelism": count}})
            seen.append(count)
            await world.until(lambda: has(count), seconds=seconds)

        await world.apply(job("a", seconds=1000, cpu="1", gpus=1, parallelism=4, completions=20))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await resized(2)
        await world.apply(job("b", seconds=30, cpu="1", gpus=2))
        await world.until(lambda: world.is_in("job-b", "Running"), seconds=10)
        await resized(5, seconds=60)
        await resized(0)
        await resized(3)
        return seen, (await world.workload("job-a"))["status"]

    seen, status = play(story, node("n1", cpu=8, gpus=5))
    assert seen == [2, 5, 0, 3] and status["attempt"] == 1 and "evictionHistory" not in status


def test_a_suspended_job_stops_and_goes_on_when_it_is_resumed() -> None:
    async def story(world: World) -> tuple[list[Thing], str, Thing]:
        await world.apply(job("a", seconds=50))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await world.annotate("a", active="false")
        await world.until(lambda: world.is_in("job-a", "Suspended"), seconds=5)
        await world.clock.sleep(60)
        pods, phase = await world.pods(), await world.phase("job-a")
        await world.annotate("a", active="true")
        await world.until(lambda: world.is_in("job-a", "Succeeded"), seconds=60)
        return pods, phase, (await world.workload("job-a"))["status"]

    pods, phase, status = play(story, node("n1"))
    assert (pods, phase, status["attempt"]) == ([], "Suspended", 2)
    assert [it["reason"] for it in status["evictionHistory"]] == ["Suspended"]


def test_a_job_made_inactive_waits_for_its_user() -> None:
    async def story(world: World) -> str:
        await world.apply(job("a", annotations={"fairway.dev/active": "false"}))
        await world.clock.sleep(30)
        phase = await world.phase("job-a")
        await world.annotate("a", active=None)
        await world.until(lambda: world.is_in("job-a", "Running"), seconds=5)
        return phase

    assert play(story, node("n1")) == "Suspended"


@pytest.mark.parametrize(("stops", "seconds", "told"), [
    (False, 0.8, "resumed: it queues again"), (True, 4.0, "resumed: it queues again when it has stopped")])  # fmt: skip
def test_a_resume_waits_long_for_a_verdict_only_while_its_workload_still_stops(
    stops: bool, seconds: float, told: str
) -> None:
    async def story(world: World) -> tuple[str, float]:
        await world.apply(job("a"))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await world.annotate("a", active="false")

        async def is_off() -> bool:
            status = (await world.workload("job-a"))["status"]
            return status["phase"] == "Suspended" and ("admission" in status) == stops

        await world.until(is_off)
        await world.crash()  # nothing is decided
        found, began = Found(await world.workload("job-a")), world.clock.now()
        return await resume(world.client, found), world.clock.now() - began

    assert play(story, node("n1")) == (told, pytest.approx(seconds))


def test_a_deadline_of_kubernetes_counts_in_a_budget_and_anew_from_each_start() -> None:
    async def story(world: World) -> tuple[Thing, Thing, float]:
        budget = {"budget": {"gpuHours": "1.5", "period": "30d"}}
        queue = {"apiVersion": "fairway.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "q"}, "spec": budget}
        await world.apply(queue)
        said = {"labels": {"fairway.dev/queue": "q"}, "gpus": 1, "seconds": 9000}
        await world.apply(job("a", activeDeadlineSeconds=3600, **said))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await world.clock.sleep(600)
        await world.annotate("a", active="false")
        await world.until(lambda: world.is_in("job-a", "Suspended"))
        await world.clock.sleep(3600)
        await world.annotate("a", active="true")
        await world.until(lambda: world.is_in("job-a", "Running"))
        began = world.clock.now()
        await world.apply(job("b", activeDeadlineSeconds=3600, **said))
        await world.until(lambda: world.says_reason("job-b", "BudgetSpent"))
        await world.until(lambda: is_failed(world, "a"), seconds=4000)
        return await world.workload("job-a"), await world.job("a"), world.clock.now() - began

    workload, owner, ran = play(story, node("n1", gpus=2))
    assert workload["spec"]["timeLimit"] == "1h" and ran == pytest.approx(3600, abs=5)
    assert owner["status"]["conditions"][-1]["reason"] == "DeadlineExceeded"
    assert owner["spec"]["activeDeadlineSeconds"] == 3600


def test_what_kubernetes_does_not_end_by_its_deadline_fairway_ends_a_little_later() -> None:
    async def story(world: World) -> tuple[float, float]:
        bare = pod("b", seconds=9000, labels={"fairway.dev/queue": "default"})
        bare["spec"]["activeDeadlineSeconds"] = 600
        await world.apply(job("a", seconds=9000, activeDeadlineSeconds=600), bare)
        await world.until(lambda: world.is_in("job-a", "Running"))
        await world.until(lambda: world.is_in("pod-b", "Running"))
        world.jobs.cancel()
        began = world.clock.now()

        async def is_left() -> bool:
            return await world.is_in("job-a", "Failed") and await world.is_in("pod-b", "Failed")

        async def over() -> int:
            return (await world.job("a"))["spec"]["activeDeadlineSeconds"]

        async def is_ended() -> bool:
            return "b" not in names(await world.pods()) and await over() == 0

        await world.until(is_left, seconds=700)
        left = world.clock.now() - began
        assert "b" in names(await world.pods()) and await over() == 600
        await world.until(is_ended, seconds=700)
        return left, world.clock.now() - began

    assert play(story, node("n1")) == pytest.approx((600, 660), abs=5)


def test_under_a_lowered_maximum_a_job_that_runs_is_still_changed_and_suspended_by_its_user() -> None:
    async def story(world: World) -> Thing:
        queue = {"apiVersion": "fairway.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "q"}, "spec": {}}
        said = {"labels": {"fairway.dev/queue": "q"}, "annotations": {"fairway.dev/time-limit": "2h"}}
        await world.apply(queue, job("a", seconds=9000, **said))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await world.client.patch(Ref(kinds.QUEUES, "q"), {"spec": {"timeLimit": {"max": "1h"}}})
        await world.annotate("a", expected_runtime="30m", active="false")
        await world.until(lambda: world.is_in("job-a", "Suspended"))
        return (await world.workload("job-a"))["spec"]

    spec = play(story, node("n1"))
    assert (spec["timeLimit"], spec["expectedRuntime"]) == ("2h", "30m")


def test_a_job_is_stopped_at_its_time_limit_and_fails() -> None:
    async def story(world: World) -> tuple[Thing, Thing]:
        await world.apply(job("a", seconds=500, annotations={"fairway.dev/time-limit": "60s"}))
        await world.until(lambda: world.is_in("job-a", "Failed"), seconds=70)
        await world.clock.sleep(10)
        return await world.job("a"), (await world.workload("job-a"))["status"]

    said, status = play(story, node("n1"))
    assert is_true(said, "Failed")
    assert (status["phase"], status["reason"], status["attempt"]) == ("Failed", "TimeLimit", 1)


def test_a_job_whose_predecessor_failed_fails_without_a_pod_and_one_whose_succeeded_starts() -> None:
    async def story(world: World) -> tuple[str, str, Thing]:
        bad = job("bad", seconds=5, backoffLimit=0)
        bad["spec"]["template"]["metadata"]["annotations"]["fairway.dev/exit-code"] = "1"
        after = {"annotations": {"fairway.dev/after": "bad"}}
        await world.apply(bad, job("good", seconds=5), job("late", **after))
        await world.apply(job("next", annotations={"fairway.dev/after": "good"}))
        await world.until(lambda: world.is_in("job-next", "Running"), seconds=30)
        await world.until(lambda: is_failed(world, "late"), seconds=30)
        made = [it for it in await world.client.list(Selection(kinds.EVENTS)) if it["reason"] == "SuccessfulCreate"]
        assert "late" not in [it["involvedObject"]["name"] for it in made]
        why = (await world.workload("job-late"))["status"]["reason"]
        return await world.phase("job-bad"), why, await world.job("late")

    bad, why, late = play(story, node("n1"))
    assert (bad, why) == ("Failed", "DependencyFailed")
    assert [it["reason"] for it in late["status"]["conditions"] if it["type"] == "Failed"] == ["DeadlineExceeded"]


async def is_failed(world: World, name: str) -> bool:
    return is_true(await world.job(name), "Failed")


def test_what_comes_after_a_job_that_is_made_later_starts_when_that_has_succeeded() -> None:
    async def story(world: World) -> None:
        await world.apply(job("late", annotations={"fairway.dev/after": "early"}))
        await world.until(lambda: world.says("job-late", "early, which does not exist"))
        await world.apply(job("early", seconds=5))
        await world.until(lambda: world.is_in("job-late", "Running"), seconds=30)
        assert await world.phase("job-early") == "Succeeded"

    play(story, node("n1"))


def test_what_comes_after_a_cancelled_job_is_told_so_and_starts_when_one_of_that_name_has_succeeded() -> None:
    async def story(world: World) -> None:
        await world.apply(job("early", seconds=600), job("late", annotations={"fairway.dev/after": "early"}))
        await world.until(lambda: world.is_in("job-early", "Running"))
        await world.client.delete(Ref(kinds.JOBS, "early", "default"))
        await world.until(lambda: world.says("job-late", "it comes after early, which was cancelled"))
        await world.apply(job("early", seconds=5))
        await world.until(lambda: world.is_in("job-late", "Running"))

    play(story, node("n1", cpu=2))


def test_what_comes_after_a_suspended_job_is_told_so_and_starts_when_that_is_resumed_and_has_succeeded() -> None:
    async def story(world: World) -> None:
        await world.apply(job("early", seconds=5))
        await world.until(lambda: world.is_in("job-early", "Running"))
        await world.apply(job("late", annotations={"fairway.dev/after": "early"}))
        await world.until(lambda: world.says("job-late", "early, which has not ended"))
        await world.annotate("early", active="false")
        await world.until(lambda: world.says("job-late", "it comes after early, which is suspended"))
        await world.annotate("early", active="true")
        await world.until(lambda: world.is_in("job-late", "Running"), seconds=60)
        assert await world.phase("job-early") == "Succeeded"

    play(story, node("n1"))


def test_an_after_that_two_workloads_go_by_is_told_and_waits_until_one_of_them_is_meant() -> None:
    async def story(world: World) -> None:
        await world.apply(job("same", seconds=5), job("job-same"))
        await world.apply(job("late", annotations={"fairway.dev/after": "job-same"}))
        which = "comes after job-same, which is workload/job-job-same or workload/job-same: say which"
        await world.until(lambda: world.says("job-late", which))
        await world.annotate("late", after="workload/job-same")
        await world.until(lambda: world.is_in("job-late", "Running"), seconds=30)

    play(story, node("n1", cpu=8))


def test_an_after_is_clear_again_when_the_other_workload_of_its_name_is_gone() -> None:
    async def story(world: World) -> None:
        await world.apply(job("same", seconds=5), job("job-same"))
        await world.apply(job("late", annotations={"fairway.dev/after": "job-same"}))
        await world.until(lambda: world.says("job-late", "say which"))
        await world.delete(kinds.JOBS, "job-same")
        await world.until(lambda: world.is_in("job-late", "Running"), seconds=30)

    play(story, node("n1", cpu=8))


def test_a_gang_that_loses_a_pod_restarts_whole() -> None:
    async def story(world: World) -> tuple[set[str], set[str], Thing]:
        await world.apply(job("g", seconds=100, cpu="1", parallelism=3, completions=3, completionMode="Indexed"))
        await world.until(lambda: world.is_in("job-g", "Running"))
        await world.clock.sleep(20)
        before = await world.pods(phase="Running")
        await world.delete(kinds.PODS, before[1]["metadata"]["name"])
        await world.until(lambda: world.is_in("job-g", "Pending"), seconds=5)
        await world.until(lambda: world.is_in("job-g", "Running"), seconds=30)
        after = await world.pods(phase="Running")
        await world.until(lambda: world.is_in("job-g", "Succeeded"), seconds=200)
        return _uids(before), _uids(after), (await world.workload("job-g"))["status"]

    before, after, status = play(story, node("n1"))
    assert len(after) == 3 and not before & after
    assert [it["reason"] for it in status["evictionHistory"]] == ["PodsLost"]


@pytest.mark.parametrize("pauses", [[0.25] * 7, [0.0] * 6 + [1.25], [0.0] * 6 + [1.5]])
def test_no_pod_is_started_for_an_attempt_whose_pods_are_lost_one_after_another(pauses: list[float]) -> None:
    async def story(world: World) -> list[Thing]:
        async def slow(request: Request) -> Response:
            await world.clock.sleep(GATHER_SECONDS / 4)
            return await world.server.handle(request)

        await world.crash()
        world.start(slow)
        await world.apply(job("g", seconds=100, cpu="100m", parallelism=8, completions=8, completionMode="Indexed"))
        await world.until(lambda: world.is_in("job-g", "Running"))
        first, *others = await world.pods(phase="Running")
        await lose(world, first)
        for other, pause in zip(others, pauses):
            await world.clock.sleep(pause * GATHER_SECONDS)
            await lose(world, other)
        bound: dict[str, Thing] = {}

        async def is_again() -> bool:
            bound.update((it["metadata"]["uid"], it) for it in await world.pods() if it["spec"].get("nodeName"))
            return (await world.workload("job-g"))["status"]["attempt"] == 2 and await world.is_in("job-g", "Running")

        await world.until(is_again)
        return list(bound.values())

    attempts = [it["metadata"]["annotations"]["fairway.dev/attempt"].split("/")[-1] for it in play(story, node("n1"))]
    assert attempts.count("2") == 8 and len(attempts) <= 16


async def lose(world: World, pod: Thing) -> None:
    """Nobody will know how it would have ended."""
    lost = {"status": {"phase": "Failed", "reason": "Lost"}}
    await world.client.patch(Ref(kinds.PODS, pod["metadata"]["name"], "default"), lost, subresource="status")


@pytest.mark.parametrize("nodes", [("n1", "n2"), ("n1",)])
def test_what_is_drained_from_a_cordoned_node_does_not_come_back_to_it(nodes: tuple[str, ...]) -> None:
    async def story(world: World) -> tuple[str, str]:
        await world.apply(job("a", seconds=100))
        await world.until(lambda: world.is_in("job-a", "Running"))
        (pod,) = await world.pods(phase="Running")
        where = pod["spec"]["nodeName"]
        await world.client.patch(Ref(kinds.NODES, where), {"spec": {"unschedulable": True}})
        await world.delete(kinds.PODS, pod["metadata"]["name"])
        if len(nodes) == 1:
            await world.until(lambda: world.is_in("job-a", "Pending"), seconds=90)
            await world.clock.sleep(60)
            assert not await world.pods(phase="Running")
            await world.client.patch(Ref(kinds.NODES, where), {"spec": {"unschedulable": False}})

        async def is_another() -> bool:
            return _uids(await world.pods(phase="Running")) not in (set(), _uids([pod]))

        await world.until(is_another, seconds=90)
        (after,) = await world.pods(phase="Running")
        await world.until(lambda: world.is_in("job-a", "Succeeded"), seconds=200)
        return where, after["spec"]["nodeName"]

    before, after = play(story, *map(node, nodes))
    assert (before != after) == (len(nodes) == 2)


def test_a_lost_pod_comes_back_alone_where_the_workload_says_so() -> None:
    async def story(world: World) -> tuple[set[str], set[str], Thing]:
        restart = {"annotations": {"fairway.dev/restart": "Pod"}}
        gang = job("g", seconds=100, cpu="1", parallelism=3, completions=3, completionMode="Indexed", **restart)
        await world.apply(gang)
        await world.until(lambda: world.is_in("job-g", "Running"))
        before = await world.pods(phase="Running")
        await world.delete(kinds.PODS, before[1]["metadata"]["name"])

        async def are_three() -> bool:
            pods = await world.pods(phase="Running")
            return len(pods) == 3 and _uids(pods) != _uids(before)

        await world.until(are_three, seconds=30)
        after = await world.pods(phase="Running")
        await world.until(lambda: world.is_in("job-g", "Succeeded"), seconds=200)
        return _uids(before), _uids(after), (await world.workload("job-g"))["status"]

    before, after, status = play(story, node("n1"))
    assert len(before & after) == 2
    assert "evictionHistory" not in status


def _uids(pods: list[Thing]) -> set[str]:
    return {it["metadata"]["uid"] for it in pods}


def test_a_job_moves_from_a_node_that_is_not_ready() -> None:
    async def story(world: World) -> tuple[str, Thing]:
        await world.apply(job("a", seconds=100))
        await world.until(lambda: world.is_in("job-a", "Running"))
        where = (await world.pods())[0]["spec"]["nodeName"]
        lost = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2027-01-15T08:00:00Z"}]
        await world.client.patch(Ref(kinds.NODES, where), {"status": {"conditions": lost}}, subresource="status")
        await world.until(lambda: world.is_in("job-a", "Pending"), seconds=5)
        await world.until(lambda: world.is_in("job-a", "Running"), seconds=60)
        now = (await world.pods(phase="Running"))[0]["spec"]["nodeName"]
        assert now != where
        return where, (await world.workload("job-a"))["status"]

    _, status = play(story, node("n1"), node("n2"))
    assert [it["reason"] for it in status["evictionHistory"]] == ["NodeLost"]
