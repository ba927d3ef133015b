"""The Job controller against the server in memory, under a virtual clock; hollow nodes end the pods on time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from cluster import is_true, job, job_status, pods_of, running, serve, until
from msgspec import convert, json
from msgspec.structs import replace

from fairway.api.indexes import parse_indexes, show_indexes
from fairway.api.quantities import time_text
from fairway.clock import Chance, VirtualClock, seeded
from fairway.embedded.jobs import MOST_MADE, Jobs
from fairway.embedded.jobstatus import settle
from fairway.embedded.jobtypes import Job, Pod
from fairway.embedded.successpolicy import SuccessPolicy, rule_met
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Ref, Selection
from fairway.kube.transport import Request, Response, Transport
from fairway.node.hollow import Hollow

FOREVER, ANSWER_SECONDS = 10_000.0, 0.01


async def bind_all(client: Client) -> None:
    while True:
        for pod in await client.list(Selection(kinds.PODS)):
            meta = pod["metadata"]
            if "nodeName" not in pod["spec"] and "deletionTimestamp" not in meta:
                with suppress(ApiError, OSError):
                    await client.bind(Ref(kinds.PODS, meta["name"], meta["namespace"]), "n1", uid=meta["uid"])
        await client.clock.sleep(0.25)


def slow(transport: Transport, clock: VirtualClock) -> Transport:
    """The answer to a write comes after the watch has told of it."""

    async def exchange(request: Request) -> Response:
        response = await transport(request)
        if request.method != "GET":
            await clock.sleep(ANSWER_SECONDS)
        return response

    return exchange


def play(story: Callable[[Client], Awaitable[None]], *, binds: bool = True) -> None:
    """Runs a story in a cluster whose pods last as annotated, once they are bound."""
    clock, chance = VirtualClock(1_000_000.0), seeded(1)

    async def main() -> None:
        server = await serve(clock, chance)
        client = Client(server.handle, clock, chance)
        controller = Client(slow(server.handle, clock), clock, chance)
        work = (server.tend(), Jobs(controller).run(), Hollow(client, lambda _: True).run())
        async with running(*work, *([bind_all(client)] if binds else [])):
            await story(client)

    clock.run(main())


def lasting(seconds: float, code: int = 0) -> dict[str, str]:
    return {"fairway.dev/duration": f"{seconds}s", "fairway.dev/exit-code": str(code)}


async def state(client: Client, name: str, kind: str) -> dict[str, Any]:
    """The job's status when a condition is true."""

    async def holds() -> Any:
        status = await job_status(client, name)
        return status if is_true(status, kind) else None

    return await until(client, FOREVER, holds)


async def pending(client: Client, name: str, count: int) -> list[dict[str, Any]]:
    """The job's pods, when there are so many."""

    async def holds() -> Any:
        pods = await pods_of(client, name)
        return pods if len(pods) == count else None

    return await until(client, FOREVER, holds)


async def active(client: Client, name: str, count: int, *, but: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """The job's pods that run and do not leave, when there are so many."""

    async def holds() -> Any:
        pods = [pod for pod in await pods_of(client, name)
                if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
                and pod["metadata"]["uid"] not in but]
        return pods if len(pods) == count else None

    return await until(client, FOREVER, holds)


def test_a_job_runs_so_many_pods_at_once_until_so_many_have_succeeded():
    async def story(client: Client) -> None:
        await client.create(kinds.JOBS, job("a", annotations=lasting(60), completions=5, parallelism=2))
        began = client.clock.now()
        await active(client, "a", 2)
        status = await state(client, "a", "Complete")
        assert status["succeeded"] == 5 and "active" not in status and "completionTime" in status
        assert len(await pods_of(client, "a")) == 5
        assert 180 <= client.clock.now() - began < 190

    play(story)


@pytest.mark.parametrize("name, host", [("a", "a"), ("a.b", "a-b")])
def test_pods_of_an_indexed_job_know_their_index(name: str, host: str):
    async def story(client: Client) -> None:
        indexed = job(name, annotations=lasting(5), completions=3, parallelism=3, completionMode="Indexed")
        await client.create(kinds.JOBS, indexed)
        pods = sorted(await active(client, name, 3), key=lambda pod: pod["spec"]["hostname"])
        for index, pod in enumerate(pods):
            meta, container = pod["metadata"], pod["spec"]["containers"][0]
            assert meta["annotations"]["batch.kubernetes.io/job-completion-index"] == str(index)
            assert meta["labels"]["batch.kubernetes.io/job-completion-index"] == str(index)
            assert meta["name"].startswith(f"{name}-{index}-") and pod["spec"]["hostname"] == f"{host}-{index}"
            assert [it["name"] for it in container["env"]] == ["JOB_COMPLETION_INDEX"]
        assert (await state(client, name, "Complete"))["completedIndexes"] == "0-2"

    play(story)


def test_pods_carry_the_labels_and_the_owner_that_kubernetes_gives_them():
    async def story(client: Client) -> None:
        made = await client.create(kinds.JOBS, job("a", annotations=lasting(5)))
        [pod] = await active(client, "a", 1)
        uid, meta = made["metadata"]["uid"], pod["metadata"]
        assert meta["labels"] == {
            "batch.kubernetes.io/controller-uid": uid, "controller-uid": uid,
            "batch.kubernetes.io/job-name": "a", "job-name": "a",
        }  # fmt: skip
        assert meta["ownerReferences"] == [{
            "apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": uid, "controller": True,
            "blockOwnerDeletion": True,
        }]  # fmt: skip
        assert meta["generateName"] == "a-" and meta["name"].startswith("a-")

    play(story)


def test_failures_beyond_the_limit_fail_the_job_after_growing_pauses():
    async def story(client: Client) -> None:
        await client.create(kinds.JOBS, job("a", annotations=lasting(5, code=1), backoffLimit=2))
        began = client.clock.now()
        status = await state(client, "a", "Failed")
        assert status["failed"] == 3
        assert {it["reason"] for it in status["conditions"]} == {"BackoffLimitExceeded"}
        assert 44 <= client.clock.now() - began < 50  # 5 + 10 + 5 + 20 + 5

    play(story)


def test_a_job_past_its_deadline_fails_and_its_pods_stop():
    async def story(client: Client) -> None:
        await client.create(kinds.JOBS, job("a", annotations=lasting(500), activeDeadlineSeconds=30, parallelism=2))
        await active(client, "a", 2)
        status = await state(client, "a", "Failed")
        assert [it["reason"] for it in status["conditions"] if it["type"] == "Failed"] == ["DeadlineExceeded"]
        assert "active" not in status and status["failed"] == 2
        assert not [pod for pod in await pods_of(client, "a") if pod["status"].get("phase") == "Running"]

    play(story)


def test_a_deadline_stays_the_reason_when_no_failure_is_allowed():
    async def story(client: Client) -> None:
        limits = {"activeDeadlineSeconds": 30, "backoffLimit": 0}
        await client.create(kinds.JOBS, job("a", annotations=lasting(500), parallelism=2, **limits))
        status = await state(client, "a", "Failed")
        assert {it["reason"] for it in status["conditions"]} == {"DeadlineExceeded"} and status["failed"] == 2

    play(story)


def test_the_end_of_a_job_is_seen_before_it_goes_however_short_it_is_kept():
    async def story(client: Client) -> None:
        await client.create(kinds.JOBS, job("a", annotations=lasting(5), ttlSecondsAfterFinished=0))
        await state(client, "a", "Complete")
        ended = client.clock.now()

        async def is_gone() -> bool:
            return not await client.list(Selection(kinds.JOBS))

        await until(client, FOREVER, is_gone)
        assert 1 <= client.clock.now() - ended < 4

    play(story)


def test_a_finished_job_goes_when_its_time_to_live_is_over():
    async def story(client: Client) -> None:
        await client.create(kinds.JOBS, job("a", annotations=lasting(5), ttlSecondsAfterFinished=100))
        await state(client, "a", "Complete")
        ended = client.clock.now()

        async def is_gone() -> bool:
            return not await client.list(Selection(kinds.JOBS)) and not await client.list(Selection(kinds.PODS))

        await until(client, FOREVER, is_gone)
        assert 99 <= client.clock.now() - ended < 105

    play(story)


def test_a_suspended_job_makes_no_pods():
    async def story(client: Client) -> None:
        await client.create(kinds.JOBS, job("a", annotations=lasting(5), suspend=True))
        status = await state(client, "a", "Suspended")
        await client.clock.sleep(60)
        assert await pods_of(client, "a") == [] and "startTime" not in status

    play(story)


def test_a_job_is_looked_at_again_while_thousands_of_its_pods_are_made():
    async def story(client: Client) -> None:
        await client.create(kinds.JOBS, job("a", completions=MOST_MADE + 100, parallelism=MOST_MADE + 100))
        seen: set[str] = set()
        while not seen:
            await client.clock.sleep(ANSWER_SECONDS)
            seen |= {pod["metadata"]["name"] for pod in await pods_of(client, "a")}
        await client.patch(Ref(kinds.JOBS, "a", "default"), {"spec": {"suspend": True}})
        while not is_true(await job_status(client, "a"), "Suspended"):
            seen |= {pod["metadata"]["name"] for pod in await pods_of(client, "a")}
            await client.clock.sleep(ANSWER_SECONDS)
        assert len(seen) <= MOST_MADE
        await client.patch(Ref(kinds.JOBS, "a", "default"), {"spec": {"suspend": False}})
        await pending(client, "a", MOST_MADE + 100)

    play(story, binds=False)


def test_suspending_takes_the_pods_away_and_resuming_starts_anew_without_a_failure():
    async def story(client: Client) -> None:
        place = Ref(kinds.JOBS, "a", "default")
        await client.create(kinds.JOBS, job("a", annotations=lasting(50), backoffLimit=0, parallelism=2, completions=2))
        before = await active(client, "a", 2)
        first = (await job_status(client, "a"))["startTime"]
        await client.clock.sleep(10)
        await client.patch(place, {"spec": {"suspend": True}})
        status = await state(client, "a", "Suspended")
        assert "active" not in status and "startTime" not in status and "failed" not in status
        await client.patch(place, {"spec": {"suspend": False}})
        at = client.clock.now()
        after = await active(client, "a", 2)
        assert client.clock.now() - at < 1  # no pause: nothing failed
        assert not {it["metadata"]["name"] for it in before} & {it["metadata"]["name"] for it in after}
        status = await state(client, "a", "Complete")
        assert status["succeeded"] == 2 and "failed" not in status and status["startTime"] > first
        assert [it["status"] for it in status["conditions"] if it["type"] == "Suspended"] == ["False"]

    play(story)


def test_suspending_again_and_again_before_the_pods_have_a_node_is_no_failure():
    async def story(client: Client) -> None:
        await client.create(kinds.JOBS, job("a", backoffLimit=0, parallelism=3, completions=3))
        for is_suspended in (True, False) * 5:
            await client.patch(Ref(kinds.JOBS, "a", "default"), {"spec": {"suspend": is_suspended}})
            await client.clock.sleep(1)
            status = await job_status(client, "a")
            assert len(await pods_of(client, "a")) == status.get("active", 0) == (0 if is_suspended else 3)
            assert not is_true(status, "FailureTarget") and not status.get("terminating")
            assert not any(status.get("uncountedTerminatedPods", {}).values())

    play(story, binds=False)


def test_a_job_fails_at_once_when_its_only_pod_is_deleted_before_it_has_a_node():
    async def story(client: Client) -> None:
        await client.create(kinds.JOBS, job("a", backoffLimit=0))
        [pod] = await pending(client, "a", 1)
        at = client.clock.now()
        await client.delete(Ref(kinds.PODS, pod["metadata"]["name"], "default"))
        assert (await state(client, "a", "Failed"))["failed"] == 1
        assert client.clock.now() - at < 5

    play(story, binds=False)


def test_a_pod_that_was_gone_before_its_making_was_answered_is_made_again():
    async def story(client: Client) -> None:
        await client.create(kinds.JOBS, job("a"))
        await client.clock.sleep(ANSWER_SECONDS / 2)
        [pod] = await pods_of(client, "a")
        place = Ref(kinds.PODS, pod["metadata"]["name"], "default")
        await client.patch(place, {"metadata": {"finalizers": None}})
        await client.delete(place)
        assert await pods_of(client, "a") == []
        at = client.clock.now()
        await pending(client, "a", 1)
        assert client.clock.now() - at < 31

    play(story, binds=False)


def test_a_pod_deleted_by_somebody_else_counts_as_failed_and_is_replaced():
    async def story(client: Client) -> None:
        await client.create(kinds.JOBS, job("a", annotations=lasting(50)))
        [pod] = await active(client, "a", 1)
        await client.delete(Ref(kinds.PODS, pod["metadata"]["name"], "default"))
        await active(client, "a", 1, but=(pod["metadata"]["uid"],))
        status = await state(client, "a", "Complete")
        assert (status["succeeded"], status["failed"]) == (1, 1)

    play(story)


def test_a_lost_pod_is_replaced_and_not_counted():
    async def story(client: Client) -> None:
        await client.create(kinds.JOBS, job("a", annotations=lasting(50), backoffLimit=0))
        [pod] = await active(client, "a", 1)
        lost = {"status": {"phase": "Failed", "reason": "Lost"}}
        await client.patch(Ref(kinds.PODS, pod["metadata"]["name"], "default"), lost, subresource="status")
        status = await state(client, "a", "Complete")
        assert (status["succeeded"], status.get("failed", 0)) == (1, 0)

    play(story)


def lost_at(moment: float) -> dict[str, Any]:
    seen = {"type": "Ready", "status": "False", "lastTransitionTime": time_text(moment)}
    return {"status": {"phase": "Failed", "reason": "Lost", "conditions": [seen]}}


def test_the_first_loss_of_all_pods_is_made_good_at_once_and_the_next_after_growing_pauses():
    async def story(client: Client) -> None:
        indexed = job("a", completions=4, parallelism=4, completionMode="Indexed", backoffLimit=0)
        await client.create(kinds.JOBS, indexed)
        gone: tuple[str, ...] = ()
        waits = []
        for _ in range(4):
            pods = await active(client, "a", 4, but=gone)
            gone += tuple(pod["metadata"]["uid"] for pod in pods)
            killed = client.clock.now()
            for pod in pods:
                place = Ref(kinds.PODS, pod["metadata"]["name"], "default")
                await client.patch(place, lost_at(killed), subresource="status")
            await active(client, "a", 4, but=gone)
            waits.append(client.clock.now() - killed)
        assert [round(wait, -1) for wait in waits] == [0, 10, 20, 40] and waits[0] < 2
        assert (await job_status(client, "a")).get("failed", 0) == 0

    play(story)


def test_an_evicted_pod_is_replaced_and_not_counted():
    async def story(client: Client) -> None:
        await client.create(kinds.JOBS, job("a", annotations=lasting(50), backoffLimit=0))
        [pod] = await active(client, "a", 1)
        said = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"]}}
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/eviction"
        sent = Request("POST", path, headers={"content-type": "application/json"}, body=json.encode(said))
        await client.call(sent)
        status = await state(client, "a", "Complete")
        assert (status["succeeded"], status.get("failed", 0)) == (1, 0)

    play(story)


def exit_rule(action: str, code: int) -> dict[str, Any]:
    return {"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": [code]}}]}


def test_a_failure_that_the_policy_ignores_is_repeated_and_not_counted():
    async def story(client: Client) -> None:
        policy = exit_rule("Ignore", 75)
        made = job("a", annotations=lasting(3, code=75), backoffLimit=0, podFailurePolicy=policy)
        await client.create(kinds.JOBS, made)
        await pending(client, "a", 3)
        status = await job_status(client, "a")
        assert status.get("failed", 0) == 0 and not is_true(status, "Failed")

    play(story)


def test_a_failure_that_the_policy_calls_fatal_fails_the_job_at_once():
    async def story(client: Client) -> None:
        policy = exit_rule("FailJob", 3)
        await client.create(kinds.JOBS, job("a", annotations=lasting(3, code=3), podFailurePolicy=policy))
        status = await state(client, "a", "Failed")
        [said] = [it for it in status["conditions"] if it["type"] == "Failed"]
        assert (said["reason"], status["failed"], len(await pods_of(client, "a"))) == ("PodFailurePolicy", 1, 1)

    play(story)


def test_each_index_has_its_own_limit_and_the_others_go_on():
    async def story(client: Client) -> None:
        made = job("a", annotations=lasting(3, code=1), completions=3, parallelism=2, completionMode="Indexed",
                   backoffLimitPerIndex=0, backoffLimit=9)
        await client.create(kinds.JOBS, made)
        status = await state(client, "a", "Failed")
        [said] = [it for it in status["conditions"] if it["type"] == "Failed"]
        assert (said["reason"], status["failedIndexes"], status["failed"]) == ("FailedIndexes", "0-2", 3)
        assert len(await pods_of(client, "a")) == 3

    play(story)


@pytest.mark.parametrize(("rule", "succeeded", "row"), [
    ({"succeededIndexes": "0"}, {1, 2}, -1),
    ({"succeededIndexes": "0,2-3"}, {0, 2, 3}, 0),
    ({"succeededIndexes": "0,2-3", "succeededCount": 2}, {1, 2, 3}, 0),
    ({"succeededIndexes": "0,2-3", "succeededCount": 2}, {1, 3}, -1),
    ({"succeededCount": 2}, {1}, -1),
    ({"succeededCount": 2}, {1, 3}, 0),
])  # fmt: skip
def test_a_success_rule_names_indexes_or_how_many_succeed(rule: dict[str, Any], succeeded: set[int], row: int):
    assert rule_met(convert({"rules": [rule]}, SuccessPolicy), frozenset(succeeded)) == row


def test_a_job_whose_success_rule_is_met_is_complete_when_its_other_pods_are_gone():
    async def story(client: Client) -> None:
        policy = {"rules": [{"succeededIndexes": "0"}]}
        made = job("a", annotations=lasting(500), completions=3, parallelism=3, completionMode="Indexed",
                   successPolicy=policy)
        await client.create(kinds.JOBS, made)
        first, *_ = sorted(await active(client, "a", 3), key=lambda pod: pod["metadata"]["name"])
        done = {"status": {"phase": "Succeeded"}}
        await client.patch(Ref(kinds.PODS, first["metadata"]["name"], "default"), done, subresource="status")
        status = await state(client, "a", "Complete")
        said = {it["type"]: (it["reason"], it["message"]) for it in status["conditions"]}
        assert said["Complete"] == said["SuccessCriteriaMet"] == ("SuccessPolicy", "Matched rules at index 0")
        assert (status["succeeded"], status["completedIndexes"], status.get("failed", 0)) == (1, "0", 0)
        assert len(await pods_of(client, "a")) == 1

    play(story)


def test_failures_of_an_index_count_also_when_its_failed_pods_are_deleted():
    async def story(client: Client) -> None:
        made = job("a", annotations=lasting(3, code=1), completions=1, parallelism=1, completionMode="Indexed",
                   backoffLimitPerIndex=2, backoffLimit=99)
        await client.create(kinds.JOBS, made)
        gone: tuple[str, ...] = ()
        for number in range(3):
            [pod] = await active(client, "a", 1, but=gone)
            gone += (pod["metadata"]["uid"],)
            assert pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == str(number)
            for old in await pods_of(client, "a"):
                if old["metadata"]["uid"] != pod["metadata"]["uid"]:
                    await client.delete(Ref(kinds.PODS, old["metadata"]["name"], "default"))
        status = await state(client, "a", "Failed")
        assert (status["failedIndexes"], status["failed"]) == ("0", 3)

    play(story)


def test_fewer_at_once_takes_the_least_advanced_pods_away_uncounted():
    async def story(client: Client) -> None:
        await client.create(kinds.JOBS, job("a", annotations=lasting(100), parallelism=3, completions=3))
        await active(client, "a", 3)
        await client.patch(Ref(kinds.JOBS, "a", "default"), {"spec": {"parallelism": 1}})
        await active(client, "a", 1)
        status = await state(client, "a", "Complete")
        assert status["succeeded"] == 3 and "failed" not in status

    play(story)


def test_deleting_a_job_releases_and_removes_its_pods():
    async def story(client: Client) -> None:
        await client.create(kinds.JOBS, job("a", annotations=lasting(100), parallelism=2))
        await active(client, "a", 2)
        await client.delete(Ref(kinds.JOBS, "a", "default"))

        async def is_empty() -> bool:
            return not await client.list(Selection(kinds.PODS))

        assert await until(client, 60, is_empty)

    play(story)


def test_restarts_inside_pods_count_towards_the_limit():
    container = {"name": "main", "restartCount": 2}
    pod = convert({"spec": {"restartPolicy": "OnFailure"}, "status": {"containerStatuses": [container]}}, Pod)
    for limit, conditions in ((2, ["FailureTarget"]), (3, [])):
        limited = convert({"spec": {"backoffLimit": limit}}, Job)
        settled = settle(limited, [pod], 0.0)
        assert [it.type for it in settled.status.conditions] == conditions and not settled.stop
        assert settle(replace(limited, status=settled.status), [pod], 0.0).stop == ((pod,) if conditions else ())


def test_indexes_are_written_as_kubernetes_does():
    assert show_indexes({0, 2, 3, 5, 6, 7}) == "0,2,3,5-7"
    assert parse_indexes("0,2,3,5-7") == {0, 2, 3, 5, 6, 7} and parse_indexes("") == set()


def test_events_tell_what_happened_to_a_job():
    async def story(client: Client) -> None:
        await client.create(kinds.JOBS, job("a", annotations=lasting(5)))
        await state(client, "a", "Complete")
        await client.clock.sleep(1)
        events = await client.list(Selection(kinds.EVENTS))
        told = [it["reason"] for it in events if it["involvedObject"]["name"] == "a"]
        assert sorted(told) == ["Completed", "SuccessfulCreate"]

    play(story)


def faulty(transport: Transport, chance: Chance, rate: float) -> Transport:
    """Loses some writes before, and some answers after they were done."""

    async def exchange(request: Request) -> Response:
        if request.method == "GET" or chance.jitter(1.0) > 0.5 + rate / 2:
            return await transport(request)
        if chance.jitter(1.0) < 0.75:
            raise ConnectionError("lost on the way there")
        await transport(request)
        raise ConnectionError("lost on the way back")

    return exchange


@pytest.mark.parametrize("seed", range(40))
def test_each_pod_is_counted_once_whatever_is_lost_and_however_often_the_controller_is_killed(seed: int):
    clock, chance = VirtualClock(1_000_000.0), seeded(seed)
    started: list[str] = []

    async def main() -> None:
        server = await serve(clock, chance)
        client = Client(server.handle, clock, chance)
        controller = Client(faulty(server.handle, chance, 0.2), clock, chance)

        async def lives() -> None:
            while True:
                life = asyncio.create_task(Jobs(controller).run())
                await clock.sleep(chance.jitter(30.0))
                life.cancel()
                with suppress(asyncio.CancelledError):
                    await life

        async with running(server.tend(), lives(), Hollow(client, lambda _: True).run(), bind_all(client)):
            await client.create(kinds.JOBS, job("good", annotations=lasting(7), completions=6, parallelism=3))
            await client.create(kinds.JOBS, job("bad", annotations=lasting(3, code=1), backoffLimit=3))
            indexed = job("indexed", annotations=lasting(9), completions=4, parallelism=2, completionMode="Indexed")
            await client.create(kinds.JOBS, indexed)
            good, bad = await state(client, "good", "Complete"), await state(client, "bad", "Failed")
            assert (good["succeeded"], good.get("failed", 0)) == (6, 0)
            assert (bad.get("succeeded", 0), bad["failed"]) == (0, 4)
            assert (await state(client, "indexed", "Complete"))["completedIndexes"] == "0-3"
            started.extend([it["metadata"]["name"] for name in ("good", "bad") for it in await pods_of(client, name)])

    clock.run(main())
    assert len(started) == 10


def test_a_pod_without_a_job_that_another_released_and_deleted_is_forgotten() -> None:
    clock, chance, patched = VirtualClock(1_000_000.0), seeded(1), list[str]()

    async def main() -> None:
        server = await serve(clock, chance)
        client = Client(server.handle, clock, chance)

        async def too_late(request: Request) -> Response:
            if request.method == "PATCH":
                patched.append(request.path.rpartition("/")[2])
                if len(patched) == 1:
                    where = Ref(kinds.PODS, "one", "default")
                    await client.patch(where, {"metadata": {"finalizers": None}})
                    await client.delete(where)
            return await server.handle(request)

        async with running(server.tend(), Jobs(Client(too_late, clock, chance)).run()):
            for name in ("one", "two"):
                meta = {"name": name, "namespace": "default", "finalizers": ["batch.kubernetes.io/job-tracking"]}
                spec = {"containers": [{"name": "main", "image": "busybox"}]}
                await client.create(kinds.PODS, {"metadata": meta, "spec": spec})
                await clock.sleep(10)

    clock.run(main())
    assert patched == ["one", "two"]
