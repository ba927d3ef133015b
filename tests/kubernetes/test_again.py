"""Fairway comes to a real cluster whose Jobs run already, and beside kube-scheduler: none is stopped or charged."""

import asyncio
from pathlib import Path
from typing import Any

import page
from plane import Plane, Thing, fairway, node, nodes, until
from test_other_scheduler import ends, job

from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref, Selection

STRICT: Thing = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [3]}}]}
OURS = {"one": 1, "gang": 2}
THEIRS = {"first": 1, "second": 2}


async def running(client: Client, count: int) -> set[str]:
    """The uids of the pods that run, once there are so many."""

    async def all_up() -> set[str]:
        found = await client.list(Selection(kinds.PODS, "default"))
        up = {it["metadata"]["uid"] for it in found if it["status"].get("phase") == "Running"}
        return up if len(up) == count else set()

    return await until(all_up)


async def states(client: Client, wanted: str) -> bool:
    found = await client.list(Selection(kinds.WORKLOADS, "default"))
    return bool(found) and {it.get("status", {}).get("phase", "") for it in found} == {wanted}


async def taken_off(client: Client) -> None:
    """As `fairway uninstall` leaves the Workloads: without finalizers, and gone."""
    for it in await client.list(Selection(kinds.WORKLOADS, "default")):
        where = Ref(kinds.WORKLOADS, it["metadata"]["name"], "default")
        await client.patch(where, {"metadata": {"finalizers": None}})
        await client.delete(where)


def strict(name: str, size: int, seconds: float) -> Thing:
    """A Job of which no pod may fail in any way."""
    said: dict[str, Any] = {"podFailurePolicy": STRICT} if size == 1 else {}
    return job(name, seconds=seconds, parallelism=size, **said)


def chosen(name: str, **said: Any) -> Thing:
    """A Job that finds its pods by a label of its user's, and takes in those that nothing owns."""
    labels = {"example.com/of": name}
    made = job(name, manualSelector=True, selector={"matchLabels": labels}, **said)
    made["spec"]["template"]["metadata"]["labels"] = labels
    return made


async def test_what_is_submitted_while_no_controller_runs_is_told_so_and_queues(plane: Plane) -> None:
    said = await asyncio.to_thread(page.run, "fairway submit --image i --wait-anyway --name early -- true", home(plane))
    assert "early queued in default" in said and "no scheduler has decided yet: no controller runs" in said
    async with plane.client() as admin, nodes(admin, node("n0")), fairway(plane):
        await until(lambda: states(admin, "Running"))
        assert not await asyncio.to_thread(page.run, "fairway why early | grep scheduler", home(plane), status=1)
        await admin.delete(Ref(kinds.JOBS, "early", "default"))
        await until(lambda: is_empty(admin))


def home(plane: Plane) -> Path:
    """Of an administrator of the plane."""
    folder = plane.folder / "home"
    (folder / ".kube").mkdir(parents=True, exist_ok=True)
    (folder / ".kube" / "config").write_text(plane.kubeconfig().read_text())
    return folder


async def is_empty(client: Client) -> bool:
    return not [*await client.list(Selection(kinds.PODS)), *await client.list(Selection(kinds.WORKLOADS))]


async def test_what_makes_room_or_shrinks_is_neither_judged_nor_counted_as_a_failure(plane: Plane) -> None:
    async with plane.client() as admin, plane.client("ann") as ann, nodes(admin, node("n0", cpu=6)), fairway(plane):
        await admin.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": "sooner"}, "value": 1000})
        await ann.create(kinds.JOBS, job("judged", seconds=5, parallelism=2, podFailurePolicy=STRICT))
        await ann.create(kinds.JOBS, chosen("chosen", seconds=5, parallelism=2, podFailurePolicy=STRICT))
        shrinks = job("shrinks", seconds=600, parallelism=2, completionMode="Indexed")
        shrinks["metadata"]["annotations"] = {"fairway.dev/min-count": "1"}
        await ann.create(kinds.JOBS, shrinks)
        await running(admin, 6)
        sooner = job("sooner", seconds=2, parallelism=5)
        sooner["spec"]["template"]["spec"]["priorityClassName"] = "sooner"
        await ann.create(kinds.JOBS, sooner)
        assert await ends(admin, {"judged", "chosen", "sooner"}) == {"Complete": 3}
        await running(admin, 2)  # it has grown again
        found = await admin.list(Selection(kinds.JOBS, "default"))
        assert {it["status"].get("failed", 0) for it in found} == {0}
        for it in found:
            await admin.delete(Ref(kinds.JOBS, it["metadata"]["name"], "default"))
        await until(lambda: is_empty(admin))


async def test_a_second_installation_and_a_late_one_stop_nothing_that_runs(plane: Plane) -> None:
    async with plane.client() as admin, plane.client("ann") as ann, nodes(admin, node("n0"), node("n1")):
        async with fairway(plane):
            for name, size in OURS.items():
                made = strict(name, size, 600)
                made["spec"] |= {"suspend": True}
                await ann.create(kinds.JOBS, made)
            ran = await running(admin, sum(OURS.values()))
            await until(lambda: states(admin, "Running"))
        await taken_off(admin)
        with plane.scheduler():
            for name, size in THEIRS.items():
                await ann.create(kinds.JOBS, strict(name, size, 600))
            ran |= await running(admin, sum((OURS | THEIRS).values()))
        async with fairway(plane):
            await until(lambda: states(admin, "Running"))
            assert await running(admin, len(ran)) == ran
            for pod in await admin.list(Selection(kinds.PODS, "default")):
                note = {"metadata": {"annotations": {"fairway.dev/duration": "1s"}}}
                await admin.patch(Ref(kinds.PODS, pod["metadata"]["name"], "default"), note)
            assert await ends(admin, OURS | THEIRS) == {"Complete": len(OURS | THEIRS)}
            found = await admin.list(Selection(kinds.JOBS, "default"))
            assert {it["status"].get("failed", 0) for it in found} == {0}
