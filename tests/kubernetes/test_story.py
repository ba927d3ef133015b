"""The story that Fairway was made for, on a fresh control plane beside kube-scheduler: `fairway install`, applied, then
manifests as their users have them, in a namespace labelled managed. Then 200 Jobs that may not fail once."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from plane import Plane, Thing, control_plane, missing, node, nodes, until
from test_install import controller, printed
from test_other_scheduler import JOBS, ends, job

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Ref, Selection

EXAMPLES = Path(__file__).parents[2] / "examples"
DURATION = "fairway.dev/duration"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    if why := missing():
        pytest.skip(why)
    with control_plane(tmp_path_factory.mktemp("story"), is_bare=True) as plane:
        yield plane


@dataclass
class Seen:
    """What happened, as somebody sees it who looks all the time. `started`: names of Jobs, each time a pod of theirs
    began to run; `most`: the most pods that were on the node at one time."""

    started: list[str] = field(default_factory=list)
    most: int = 0
    pods: set[str] = field(default_factory=set)
    is_held: bool = True

    def look(self, pods: list[Thing]) -> None:
        there = [it for it in pods if it["spec"].get("nodeName")]
        self.most = max(self.most, sum(it["status"].get("phase") not in ("Succeeded", "Failed") for it in there))
        for it in there:
            meta = it["metadata"]
            if it["status"].get("phase") == "Running" and meta["uid"] not in self.pods:
                self.pods.add(meta["uid"])
                self.started.append(meta["labels"]["job-name"])


@asynccontextmanager
async def looking(client: Client) -> AsyncIterator[Seen]:
    """What is seen. Nodes pretend, so that how long a pod sleeps is told them here; while `is_held` none ends."""
    seen = Seen()

    async def look() -> None:
        while True:
            pods = await client.list(Selection(kinds.PODS, "default"))
            seen.look(pods)
            for it in pods if not seen.is_held else ():
                meta, words = it["metadata"], it["spec"]["containers"][0].get("command") or ["sleep", "0"]
                if it["status"].get("phase") == "Running" and DURATION not in (meta.get("annotations") or {}):
                    seconds = {"metadata": {"uid": meta["uid"], "annotations": {DURATION: f"{int(words[1]) / 10}s"}}}
                    try:
                        await client.patch(Ref(kinds.PODS, meta["name"], "default"), seconds)
                    except ApiError as error:
                        assert error.status in (404, 409), error
            await asyncio.sleep(0.02)

    task = asyncio.create_task(look())
    try:
        yield seen
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_story_holds_and_no_job_is_lost_beside_kube_scheduler(bare: Plane) -> None:
    precious = node("precious", cpu=3)
    precious["metadata"]["labels"]["node-type"] = "my-precious"
    async with bare.client() as admin:
        with bare.scheduler():
            async with nodes(admin, precious, *(node(f"n{index}") for index in range(4))), controller(bare, admin):
                await _story(bare, admin)
                await _jobs(admin)


async def _story(plane: Plane, admin: Client) -> None:
    await printed(plane, "kubectl label namespace default fairway.dev/managed=true")
    async with looking(admin) as seen:
        await printed(plane, f"kubectl apply -f {EXAMPLES}/priorities.yaml -f {EXAMPLES}/three-jobs.yaml")
        await until(lambda: _are(admin, one="Running", two="Pending", three="Pending"))
        why = await printed(plane, "fairway why two")
        assert "two waits: " in why and "CPU" in why and "position 1" in why
        await printed(plane, f"kubectl apply -f {EXAMPLES}/urgent.yaml")
        await until(lambda: _are(admin, urgent="Running", one="Pending", two="Pending", three="Pending"))
        seen.is_held = False
        assert await ends(admin, ("one", "two", "three", "urgent")) == {"Complete": 4}
    assert seen.started == ["one", "urgent", "one", "two", "three"]  # the evicted one kept its place
    assert seen.most == 1  # and was gone before the urgent one began
    found = await admin.list(Selection(kinds.JOBS, "default"))
    assert {it["status"].get("failed", 0) for it in found} == {0}
    one = await admin.get(Ref(kinds.WORKLOADS, "job-one", "default"))
    assert [it["reason"] for it in one["status"]["evictionHistory"]] == ["Preempted"]
    assert await _bound_by_others(admin) == []


async def _jobs(admin: Client) -> None:
    names = {f"j{index}": 1 + index % 3 for index in range(JOBS)}
    await asyncio.gather(*(admin.create(kinds.JOBS, job(name, parallelism=size)) for name, size in names.items()))
    assert await ends(admin, names) == {"Complete": JOBS}
    assert await _bound_by_others(admin) == []


async def _are(client: Client, **phases: str) -> bool:
    found = await client.list(Selection(kinds.WORKLOADS, "default"))
    said = {it["metadata"]["name"]: it.get("status", {}).get("phase", "") for it in found}
    return all(said.get(f"job-{name}") == phase for name, phase in phases.items())


async def _bound_by_others(client: Client) -> list[str]:
    """The pods that kube-scheduler says it bound."""
    events = await client.list(Selection(kinds.EVENTS, "default"))
    return [it["involvedObject"]["name"] for it in events if it["reason"] == "Scheduled"]
