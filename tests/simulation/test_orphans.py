"""Pods that their owner left, by an orphaning delete or by their user's hand: each is a workload from then on."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from simworld import Thing, World, job, names, node, pod
from test_life import play

from fairway.api.objects import OF_CONTROLLER
from fairway.kube import kinds
from fairway.kube.client import STRATEGIC
from fairway.kube.kinds import Ref, Selection
from fairway.kube.transport import Request

LABELS = {"fairway.dev/queue": "lent"}
QUEUES: list[Thing] = [
    {"apiVersion": "fairway.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name},
     "spec": {"quotas": [{"pool": "default", "guaranteed": {"nvidia.com/gpu": gpus}}]}}
    for name, gpus in (("lent", "0"), ("owner", "4"))
]  # fmt: skip
WORKFLOW = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "d", "uid": "u", "controller": True}
Leave = Callable[[World, Thing], Awaitable[None]]


async def leave_by_deleting(world: World, pod: Thing) -> None:
    """As `kubectl delete job --cascade=orphan` does."""
    where = Ref(kinds.JOBS, "a", "default").path()
    await world.server.handle(Request("DELETE", where, body=b'{"propagationPolicy": "Orphan"}'))


async def leave_by_hand(world: World, pod: Thing) -> None:
    """Its user takes the owner off the pod, and deletes the Job."""
    change = {"metadata": {"ownerReferences": None}}
    await world.client.patch(Ref(kinds.PODS, pod["metadata"]["name"], "default"), change)
    await world.delete(kinds.JOBS, "a")


async def adopted(world: World, own: Thing) -> str:
    """The name of its own Workload, once that runs and the Job's is gone."""
    await world.until(lambda: world.is_in(f"pod-{own['metadata']['name']}", "Running"))

    async def is_gone() -> bool:
        return "job-a" not in names(await world.client.list(Selection(kinds.WORKLOADS)))

    await world.until(is_gone)
    return f"pod-{own['metadata']['name']}"


async def running(world: World, **said: Any) -> Thing:
    """The pod of Job a, which holds four GPUs of queue `lent`."""
    await world.apply(*QUEUES, job("a", seconds=500, gpus=4, labels=LABELS, **said))
    await world.until(lambda: world.is_in("job-a", "Running"))
    (own,) = await world.pods()
    return own


def test_what_a_template_says_of_queue_and_user_does_not_outlive_its_job() -> None:
    made = job("a", seconds=500, gpus=4, labels=LABELS)
    meta = made["spec"]["template"]["metadata"]
    meta["labels"] = {"fairway.dev/queue": "owner", "fairway.dev/group": "g", "fairway.dev/group-size": "2"}
    meta["annotations"]["fairway.dev/user"] = "bob"

    async def story(world: World) -> tuple[Any, ...]:
        await world.apply(*QUEUES, made)
        await world.until(lambda: world.is_in("job-a", "Running"))
        before, (own,) = (await world.workload("job-a"))["spec"]["user"], await world.pods()
        await leave_by_deleting(world, own)
        said = (await world.workload(await adopted(world, own)))["spec"]
        return said["queue"], said["user"] == before

    assert play(story, node("n1", gpus=4)) == ("lent", True)


@pytest.mark.parametrize("leave", [leave_by_deleting, leave_by_hand])
def test_the_pod_of_a_job_that_is_gone_runs_on_as_a_workload_of_its_queue_and_user(leave: Leave) -> None:
    async def story(world: World) -> tuple[Any, ...]:
        own = await running(world)
        before = (await world.workload("job-a"))["spec"]["user"]
        await leave(world, own)
        key = await adopted(world, own)
        await world.clock.sleep(10)
        left, said = names(await world.client.list(Selection(kinds.WORKLOADS))), await world.workload(key)
        used = (await world.queue("lent"))["status"]["usage"]
        kept = [it["metadata"]["uid"] for it in await world.pods()] == [own["metadata"]["uid"]]
        whose = said["spec"]["queue"], said["spec"]["user"] == before
        await world.until(lambda: world.is_in(key, "Succeeded"), seconds=600)
        await world.clock.sleep(10)
        hours = (await world.queue("lent"))["status"]["budgetSpent"]["gpuHours"]
        return left == [key], kept, whose, used["default"]["nvidia.com/gpu"], round(hours, 2)

    seconds_of_four = round(4 * 500 / 3600, 2)
    assert play(story, node("n1", gpus=4)) == (True, True, ("lent", True), "4", seconds_of_four)


def test_a_queue_takes_back_its_share_from_a_pod_without_its_job_and_it_waits_again() -> None:
    async def story(world: World) -> tuple[Any, ...]:
        own = await running(world)
        await leave_by_deleting(world, own)
        key = await adopted(world, own)
        await world.apply(job("b", seconds=10, gpus=4, labels={"fairway.dev/queue": "owner"}))
        await world.until(lambda: world.is_in("job-b", "Running"))
        why = (await world.workload(key))["status"]["evictionHistory"][0]["reason"]

        async def waits() -> bool:
            return own["metadata"]["name"] in names(await world.pods(phase="Pending"))

        await world.until(waits)
        (again,) = await world.pods(phase="Pending")
        noted = [note for note in OF_CONTROLLER if note in again["metadata"]["annotations"]]
        await world.until(lambda: world.is_in(key, "Running"))
        (again,) = await world.pods(phase="Running")
        is_same = again["metadata"]["name"] == own["metadata"]["name"]
        return why, noted, is_same, (await world.workload(key))["spec"]["queue"]

    assert play(story, node("n1", gpus=4)) == ("Reclaimed", [], True, "lent")


def test_a_pod_that_a_job_takes_back_is_of_its_workload_again() -> None:
    async def story(world: World) -> tuple[Any, ...]:
        own = await running(world)
        world.jobs.cancel()  # or it would make another pod: it takes back none
        where, owner = Ref(kinds.PODS, own["metadata"]["name"], "default"), own["metadata"]["ownerReferences"]
        await world.client.patch(where, {"metadata": {"ownerReferences": None}})
        await world.client.patch(where, {"metadata": {"ownerReferences": owner}})
        await world.clock.sleep(30)
        return names(await world.client.list(Selection(kinds.WORKLOADS))), await world.phase("job-a")

    assert play(story, node("n1", gpus=4)) == (["job-a"], "Running")


def test_a_pod_that_its_controller_left_is_made_again_when_it_is_evicted() -> None:
    async def story(world: World) -> tuple[Any, ...]:
        owned = pod("d-1", seconds=300, gpus=4, labels=LABELS, ownerReferences=[WORKFLOW])
        await world.apply(*QUEUES, owned)
        await world.until(lambda: world.is_in("pod-d-1", "Running"))
        await world.client.patch(Ref(kinds.PODS, "d-1", "default"), {"metadata": {"ownerReferences": None}})
        await world.apply(job("b", seconds=10, gpus=4, labels={"fairway.dev/queue": "owner"}))
        await world.until(lambda: world.is_in("job-b", "Running"))
        await world.until(lambda: world.is_in("pod-d-1", "Running"))
        return [it["metadata"].get("ownerReferences") for it in await world.pods(phase="Running")]

    assert play(story, node("n1", gpus=4)) == [None]


def test_a_pod_without_its_job_can_be_deleted() -> None:
    async def story(world: World) -> tuple[Any, ...]:
        own = await running(world)
        await leave_by_deleting(world, own)
        await adopted(world, own)
        await world.delete(kinds.PODS, own["metadata"]["name"])

        async def are_gone() -> bool:
            return not await world.pods() and not await world.client.list(Selection(kinds.WORKLOADS))

        await world.until(are_gone)
        return await world.pods(), (await world.queue("lent"))["status"]["usage"].get("nvidia.com/gpu", "0")

    assert play(story, node("n1", gpus=4)) == ([], "0")


@pytest.mark.parametrize("kind", ["bare", "grouped", "evicted", "orphan"])
def test_a_deleted_pod_that_a_finalizer_keeps_is_left_alone(kind: str) -> None:
    """It is of no workload any more, however long it stays: nothing is written about it."""

    async def story(world: World) -> tuple[Any, ...]:
        if kind == "orphan":
            name = (await running(world))["metadata"]["name"]
            await leave_by_deleting(world, {})
        else:
            name, group = "p", {"fairway.dev/group": "g", "fairway.dev/group-size": "1"} if kind == "grouped" else {}
            await world.apply(*QUEUES, pod("p", seconds=500, gpus=4, labels=LABELS | group))
        key = "pod-g" if kind == "grouped" else f"pod-{name}"
        await world.until(lambda: world.is_in(key, "Running"))
        if kind == "evicted":
            await world.apply(job("b", seconds=10, gpus=4, labels={"fairway.dev/queue": "owner"}))
            await world.until(lambda: world.is_in("job-b", "Running"))
            await world.until(lambda: world.is_in(key, "Running"))
        where = Ref(kinds.PODS, name, "default")
        await world.client.patch(where, {"metadata": {"finalizers": ["example.com/kept"]}}, form=STRATEGIC)
        await world.client.delete(where)
        await world.clock.sleep(90)
        left, before = await world.client.list(Selection(kinds.WORKLOADS)), world.server.registry.store.revision
        await world.clock.sleep(5)
        written = world.server.registry.store.revision - before
        return written < 20, key in names(left), name in names(await world.pods())

    assert play(story, node("n1", gpus=4)) == (True, False, True)
