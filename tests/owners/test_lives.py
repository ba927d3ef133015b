"""Owners of every kind, from the example to the charge: operators on paper make their pods, Fairway does the rest."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import operators
import pytest
from kinds import definitions, example
from operators import Operator, Play, trainer
from simworld import DEFINITIONS, World, cluster, is_leaving, job, node, priority

from fairway.api.owners import OWNERS
from fairway.clock import VirtualClock, seeded
from fairway.kube import kinds
from fairway.kube.kinds import Kind, Ref, Selection

Thing = dict[str, Any]
START = 1_800_000_000.0
GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class Case:
    """An example: the files that define its kinds, the operators that act on them (each with what it reads besides),
    its Workload's name, and its podsets with their counts and minimums. `ends`: it finishes by itself."""

    name: str
    files: tuple[str, ...]
    plays: tuple[tuple[Play, tuple[Kind, ...]], ...]
    workload: str
    podsets: dict[str, tuple[int, int | None]]
    ends: bool = True
    gpus: int = 4


JOBS = (kinds.JOBS,)
CASES = [
    Case("job", (), (), "job-train", {"main": (4, None)}),
    Case("cronjob", (), ((operators.CRON_JOB, JOBS),), "job-nightly-1", {"main": (1, None)}, gpus=1),
    Case("jobset", ("jobset",), ((operators.JOB_SET, JOBS),),
         "jobset-pretrain", {"driver": (1, None), "worker": (4, None)}),
    Case("pytorchjob", ("pytorchjob",), ((trainer("PyTorchJob", "pytorchReplicaSpecs", ("Master",)), ()),),
         "pytorchjob-train", {"master": (1, None), "worker": (3, 2)}),
    Case("tfjob", ("tfjob",), ((trainer("TFJob", "tfReplicaSpecs", ("Chief", "Master")), ()),),
         "tfjob-train", {"chief": (1, None), "ps": (1, None), "worker": (3, None)}),
    Case("xgboostjob", ("xgboostjob",), ((trainer("XGBoostJob", "xgbReplicaSpecs", ("Master",)), ()),),
         "xgboostjob-train", {"master": (1, None), "worker": (3, None)}),
    Case("mpijob", ("mpijob-v2beta1",), ((operators.MPI_JOB, JOBS),),
         "mpijob-train", {"launcher": (1, None), "worker": (2, None)}),
    Case("trainjob", ("trainjob", "jobset"),
         ((operators.TRAIN_JOB, (operators.RUNTIMES, operators.JOB_SETS)), (operators.JOB_SET, JOBS)),
         "trainjob-finetune", {"node": (3, None)}, gpus=3),
    Case("raycluster", ("raycluster",), ((operators.RAY_CLUSTER, ()),),
         "raycluster-tune", {"head": (1, None), "gpu": (4, 2)}, ends=False),
    Case("rayjob", ("rayjob", "raycluster"),
         ((operators.RAY_JOB, (operators.RAY_CLUSTERS, kinds.JOBS)), (operators.RAY_CLUSTER, ())),
         "rayjob-evaluate", {"head": (1, None), "submitter": (1, None), "gpu": (3, None)}, gpus=3),
]  # fmt: skip


def play(case: Case, story: Callable[[World], Awaitable[Any]]) -> Any:
    """What the story answers, on a node that the example fills, its operators at work."""
    crds = [one for file in case.files for one in definitions(file)]

    async def run() -> Any:
        async with cluster(clock, seeded(1), node("n1", cpu=16, gpus=case.gpus)) as world, asyncio.TaskGroup() as tasks:
            for one in crds:
                await world.client.create(DEFINITIONS, one)
            running = [tasks.create_task(Operator(world.client, play, *others).run()) for play, others in case.plays]
            world.start()
            try:
                return await story(world)
            finally:
                await world.crash()
                for task in running:
                    task.cancel()

    clock = VirtualClock(START)
    return clock.run(run())


def kind_of(case: Case, thing: Thing) -> Kind:
    crds = [one["spec"] for file in case.files for one in definitions(file)]
    group = thing["apiVersion"].rpartition("/")[0]
    found = [one for one in crds if (one["group"], one["names"]["kind"]) == (group, thing["kind"])]
    if not found:
        return {"Job": kinds.JOBS, "CronJob": operators.CRON_JOB.kind}[thing["kind"]]
    return Kind(thing["kind"], found[0]["names"]["plural"], thing["apiVersion"], found[0]["scope"] == "Namespaced")


async def submit(world: World, case: Case) -> Ref:
    """Applies the example; its last object is the owner."""
    for thing in example(case.name):
        kind = kind_of(case, thing)
        if kind is kinds.JOBS:
            thing["spec"]["template"] = operators.timed(thing["spec"]["template"])
        await world.client.create(kind, thing)
    return Ref(kind, thing["metadata"]["name"], "default")


async def held(world: World, owner: Ref) -> int:
    """The pods of an owner that is suspended, or those of one that cannot be as far as they run; fails if it is not."""
    row = OWNERS.get((owner.kind.group_version.rpartition("/")[0], owner.kind.name))
    if row is None or row.switch is None:
        return len(await bound(world))
    said = await world.client.get(owner)
    for step in row.switch.path:
        said = said[step]
    assert said == row.switch.off
    pods = await world.client.list(Selection(kinds.PODS, "default"))
    return sum("filler" not in pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") != "Succeeded")


async def bound(world: World) -> list[Thing]:
    """Pods of the example on nodes, where they run."""
    pods = await world.client.list(Selection(kinds.PODS, "default"))
    own = [pod for pod in pods if "filler" not in pod["metadata"]["name"] and pod["spec"].get("nodeName")]
    return [pod for pod in own if not is_leaving(pod) and pod["status"].get("phase") not in ("Succeeded", "Failed")]


def filler(name: str, gpus: int, **said: Any) -> Thing:
    """A Job that leaves no GPU to others."""
    return job(f"filler-{name}", seconds=50, gpus=gpus, cpu="1", **said)


def asked(case: Case) -> int:
    return sum(count for count, _ in case.podsets.values())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_owner_waits_runs_whole_comes_back_after_an_eviction_and_is_charged(case: Case) -> None:
    async def story(world: World) -> Thing:
        seen: Thing = {}

        async def runs() -> bool:
            return await world.phase(case.workload) == "Running"

        await world.apply(priority("urgent", 1000), filler("first", case.gpus))
        await world.until(lambda: world.is_in("job-filler-first", "Running"))
        owner = await submit(world, case)
        await world.until(lambda: world.is_in(case.workload, "Pending"))
        await world.clock.sleep(10)
        seen["before"] = await held(world, owner)
        seen["podsets"] = (await world.workload(case.workload))["spec"]["podSets"]
        await world.until(runs, seconds=120)
        seen["first"] = await bound(world)
        await world.apply(filler("urgent", case.gpus, pod={"priorityClassName": "urgent"}))
        await world.until(lambda: world.is_in("job-filler-urgent", "Running"), seconds=120)
        seen["evicted"] = await held(world, owner), (await world.workload(case.workload))["status"]
        await world.until(runs, seconds=200)
        seen["again"] = await bound(world)
        if case.ends:
            await world.until(lambda: world.is_in(case.workload, "Succeeded"), seconds=300)
        else:
            await world.client.delete(owner)
        await world.apply(filler("last", case.gpus))
        await world.until(lambda: world.is_in("job-filler-last", "Succeeded"), seconds=200)
        await world.clock.sleep(200)
        seen["queue"] = (await world.queue())["status"]
        seen["workloads"] = await world.client.list(Selection(kinds.WORKLOADS))
        return seen

    seen = play(case, story)
    assert {one["name"]: (one.get("count", 1), one.get("minCount")) for one in seen["podsets"]} == case.podsets
    assert seen["before"] == 0
    assert len(seen["first"]) == len(seen["again"]) == asked(case)
    pods, status = seen["evicted"]
    assert pods == 0 and [one["reason"] for one in status["evictionHistory"]] == ["Preempted"]
    assert GPU in seen["queue"]["decayedUsage"]["default"]
    assert all("finalizers" not in one["metadata"] for one in seen["workloads"])
    own = [one["metadata"]["name"] for one in seen["workloads"] if "filler" not in one["metadata"]["name"]]
    assert own == ([case.workload] if case.ends else [])
