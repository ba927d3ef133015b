"""Owners of every kind, from the example to the charge: operators on paper make their pods, Fairway does the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import operators
import pytest
from kinds import definitions, example
from operators import Operator, Play, trainer
from simworld import World, cluster, is_leaving, job, node, pod, priority

from fairway.api.owners import OWNERS
from fairway.cli import act
from fairway.cli.find import pods_of
from fairway.cli.main import Problem
from fairway.cli.replicas import deletable, find, print_replicas
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
    Case("volcanojob", ("volcano",), ((operators.VOLCANO_JOB, (operators.POD_GROUPS,)),),
         "vcjob-train", {"master": (1, 1), "worker": (4, 2)}),
    Case("appwrapper", ("appwrapper",), ((operators.APP_WRAPPER, JOBS),), "appwrapper-wrapped", {"main": (4, None)}),
    Case("sparkapplication", ("sparkapplication",),
         ((operators.SPARK, ()), (operators.SPARK_DRIVER, (operators.SPARK.kind,))),
         "sparkapplication-features", {"driver": (1, None), "executor": (4, None)}),
    Case("flinkdeployment", ("flinkdeployment",), ((operators.FLINK, (operators.STATEFUL_SETS,)),),
         "flinkdeployment-stream", {"jobmanager": (1, None), "taskmanager": (4, None)}),
]  # fmt: skip


def play(case: Case | Replicas, story: Callable[[World], Awaitable[Any]]) -> Any:
    """What the story answers, on a node that the example fills, its operators at work."""
    crds = [one for file in case.files for one in definitions(file)]

    async def run() -> Any:
        async with cluster(clock, seeded(1), node("n1", cpu=16, gpus=case.gpus)) as world, asyncio.TaskGroup() as tasks:
            for one in crds:
                await world.client.create(kinds.DEFINITIONS, one)
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


def kind_of(case: Case | Replicas, thing: Thing) -> Kind:
    crds = [one["spec"] for file in case.files for one in definitions(file)]
    group = thing["apiVersion"].rpartition("/")[0]
    found = [one for one in crds if (one["group"], one["names"]["kind"]) == (group, thing["kind"])]
    if not found:
        known = (kinds.JOBS, operators.CRON_JOB.kind, operators.DEPLOYMENTS, operators.STATEFUL_SETS)
        return {kind.name: kind for kind in known}[thing["kind"]]
    return Kind(thing["kind"], found[0]["names"]["plural"], thing["apiVersion"], found[0]["scope"] == "Namespaced")


async def submit(world: World, case: Case | Replicas) -> Ref:
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
        await world.clock.sleep(700)  # what is used is charged every ten minutes
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


@dataclass(frozen=True)
class Replicas:
    """An example whose replicas are workloads each: what begins their names, how many there are, with how many pods."""

    name: str
    files: tuple[str, ...]
    plays: tuple[tuple[Play, tuple[Kind, ...]], ...]
    prefix: str
    count: int
    pods: int
    gpus: int = 4


STATEFUL = ((operators.STATEFUL_SET, ()),)
REPLICATED = [
    Replicas("deployment", (), ((operators.DEPLOYMENT, (operators.REPLICA_SETS,)), (operators.REPLICA_SET, ())),
             "pod-serve-5d4f-", 2, 1),
    Replicas("statefulset", (), STATEFUL, "pod-store-", 2, 1),
    Replicas("notebook", ("notebook",), ((operators.NOTEBOOK, (operators.STATEFUL_SETS,)), *STATEFUL),
             "pod-ada-", 1, 1),
    Replicas("leaderworkerset", ("leaderworkerset",), ((operators.LEADER_WORKER_SET, ()),),
             "leaderworkerset-serve-", 2, 2),
]  # fmt: skip


async def replicas_of(world: World, case: Replicas, phase: str) -> list[str]:
    found = await world.client.list(Selection(kinds.WORKLOADS))
    names = [it["metadata"]["name"] for it in found if it.get("status", {}).get("phase") == phase]
    return sorted(name for name in names if name.startswith(case.prefix))


@pytest.mark.parametrize("case", REPLICATED, ids=lambda case: case.name)
def test_a_replica_waits_at_its_gates_runs_comes_back_after_an_eviction_and_is_charged(case: Replicas) -> None:
    async def story(world: World) -> Thing:
        seen: Thing = {}

        async def all_are(phase: str) -> bool:
            return len(await replicas_of(world, case, phase)) == case.count

        await world.apply(priority("urgent", 1000), filler("first", case.gpus))
        await world.until(lambda: world.is_in("job-filler-first", "Running"))
        owner = await submit(world, case)
        await world.until(lambda: all_are("Pending"))
        await world.clock.sleep(10)
        pods = [pod for pod in await world.pods() if "filler" not in pod["metadata"]["name"]]
        seen["before"] = await bound(world), [pod["spec"]["schedulingGates"] for pod in pods]
        await world.until(lambda: all_are("Running"), seconds=120)
        seen["first"] = await bound(world)
        await world.apply(filler("urgent", case.gpus, pod={"priorityClassName": "urgent"}))
        await world.until(lambda: world.is_in("job-filler-urgent", "Running"), seconds=120)
        seen["evicted"] = await bound(world)
        await world.until(lambda: all_are("Running"), seconds=200)
        seen["again"] = await bound(world)
        await world.client.delete(owner)
        await world.apply(filler("last", case.gpus))
        await world.until(lambda: world.is_in("job-filler-last", "Succeeded"), seconds=200)
        await world.clock.sleep(700)  # what is used is charged every ten minutes
        seen["queue"] = (await world.queue())["status"]
        seen["left"] = await world.client.list(Selection(kinds.WORKLOADS))
        return seen

    seen = play(case, story)
    pods, gates = seen["before"]
    assert pods == [] and gates and all({"name": "fairway.dev/admission"} in own for own in gates)
    assert len(seen["first"]) == len(seen["again"]) == case.count * case.pods
    assert seen["evicted"] == []
    assert GPU in seen["queue"]["decayedUsage"]["default"]
    assert [one["metadata"]["name"] for one in seen["left"] if "filler" not in one["metadata"]["name"]] == []


RESIZED = {"raycluster": ("workerGroupSpecs", 0), "pytorchjob": ("pytorchReplicaSpecs", "Worker")}


@pytest.mark.parametrize("case", [case for case in CASES if case.name in RESIZED], ids=lambda case: case.name)
def test_an_owner_that_runs_follows_its_counts_down_and_up(case: Case) -> None:
    async def story(world: World) -> tuple[Any, ...]:
        owner, (part, which), most = await submit(world, case), RESIZED[case.name], asked(case)

        async def resize(count: int) -> None:
            said = (await world.client.get(owner))["spec"][part]
            said[which]["replicas"] = count
            await world.client.patch(owner, {"spec": {part: said}})

        async def has(count: int) -> bool:
            placed = (await world.workload(case.workload))["status"]["admission"]["podSets"]
            held = sum(it["count"] for one in placed for it in one.get("nodes") or ())
            return len(await bound(world)) == held == count

        await world.until(lambda: world.is_in(case.workload, "Running"))
        assert await has(most)
        first = {it["metadata"]["uid"] for it in await bound(world)}
        await resize(1)
        await world.until(lambda: has(2))
        kept = {it["metadata"]["uid"] for it in await bound(world)} <= first
        await world.apply(filler("beside", 2))
        await world.until(lambda: world.is_in("job-filler-beside", "Running"))
        await resize(3)
        await world.until(lambda: world.is_in("job-filler-beside", "Succeeded"), seconds=200)
        await world.until(lambda: has(4), seconds=60)
        status = (await world.workload(case.workload))["status"]
        return kept, status["attempt"], status.get("evictionHistory")

    assert play(case, story) == (True, 1, None)


TIMED = [case for case in CASES if case.name in ("pytorchjob", "tfjob", "xgboostjob", "rayjob", "jobset")]


@pytest.mark.parametrize("case", TIMED, ids=lambda case: case.name)
def test_an_owner_at_its_time_limit_fails_where_it_knows_deadlines_and_else_stays_suspended(case: Case) -> None:
    async def story(world: World) -> tuple[Any, ...]:
        owner = await submit(world, case)
        await world.client.patch(owner, {"metadata": {"annotations": {"fairway.dev/time-limit": "30s"}}})
        await world.until(lambda: world.is_in(case.workload, "Running"))
        await world.until(lambda: world.is_in(case.workload, "Failed"), seconds=200)

        async def is_empty() -> bool:
            return not await bound(world)

        await world.until(is_empty)
        await world.clock.sleep(100)
        said, status = await world.client.get(owner), (await world.workload(case.workload))["status"]
        told = said["status"].get("conditions") or ()
        failed = said["status"].get("jobDeploymentStatus") == "Failed" or any(
            it["type"] == "Failed" and it["status"] == "True" for it in told)  # fmt: skip
        return failed, status["reason"], len(await bound(world))

    failed, reason, left = play(case, story)
    assert (failed, reason, left) == (case.name != "jobset", "TimeLimit", 0)


@pytest.mark.parametrize("case", REPLICATED, ids=lambda case: case.name)
def test_an_owner_of_many_workloads_is_found_shown_and_deleted_by_its_name(
    case: Replicas, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story(world: World) -> tuple[Any, ...]:
        owner = await submit(world, case)

        async def are(count: int, phase: str) -> bool:
            every = (await find(world.client, "default", owner.name)).replicas
            return sum(it.phase == phase for it in every) == count

        async def is_gone() -> bool:
            return not await bound(world)

        await world.until(lambda: are(case.count, "Running"))
        found = await find(world.client, "default", owner.name)
        pods = await pods_of(world.client, found)
        await print_replicas(world.client, found)
        refused = ""
        try:
            await act._suspend(world.client, found)
            await world.until(lambda: are(case.count, "Suspended"))
            await act._resume(world.client, found)
            await world.until(lambda: are(case.count, "Running"))
        except Problem as problem:
            refused = problem.message
        await act._cancel(world.client, found)
        await world.until(is_gone)
        return len(found.replicas), len(pods), refused, owner

    count, pods, refused, owner = play(case, story)
    assert (count, pods) == (case.count, case.count * case.pods)
    assert f"is a workload; {case.count} of {case.count} run" in capsys.readouterr().out
    kind = owner.kind.name
    assert bool(refused) == (kind != "LeaderWorkerSet")
    assert not refused or f"{kind.lower()}/{owner.name} " in refused


def test_one_group_of_many_is_not_deleted_by_its_name() -> None:
    async def story(world: World) -> str:
        await submit(world, REPLICATED[-1])
        await world.until(lambda: world.is_in("leaderworkerset-serve-0", "Running"))
        with pytest.raises(Problem) as refused:
            deletable(await find(world.client, "default", "leaderworkerset-serve-0"))
        return refused.value.message

    assert "one group of the LeaderWorkerSet serve, and comes again" in play(REPLICATED[-1], story)


def test_a_group_that_is_scaled_away_takes_its_workload_along() -> None:
    case = REPLICATED[-1]

    async def story(world: World) -> tuple[list[str], list[str]]:
        owner = await submit(world, case)
        await world.until(lambda: is_there(world, 2), seconds=60)
        before = await replicas_of(world, case, "Running")
        await world.client.patch(owner, {"spec": {"replicas": 1}})
        await world.until(lambda: is_there(world, 1), seconds=60)
        return before, await replicas_of(world, case, "Running")

    async def is_there(world: World, count: int) -> bool:
        return len(await world.client.list(Selection(kinds.WORKLOADS))) == count and bool(
            len(await replicas_of(world, case, "Running")) == count
        )

    first, second = ["leaderworkerset-serve-0"], ["leaderworkerset-serve-0", "leaderworkerset-serve-1"]
    assert play(case, story) == (second, first)


def member(name: str, **said: Any) -> Thing:
    return pod(name, seconds=100, cpu="1", gpus=1, annotations={"scheduling.k8s.io/group-name": "pair"}, **said)


def test_bare_pods_are_a_gang_when_what_describes_them_is_there() -> None:
    """The fewest that Volcano's PodGroup names start together, and more when there is room for them."""
    case = Case("volcanojob", ("volcano",), (), "pod-pair", {}, gpus=3)
    described = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
                 "metadata": {"name": "pair", "namespace": "default"}, "spec": {"minMember": 2}}  # fmt: skip

    async def story(world: World) -> Thing:
        seen: Thing = {}
        await world.apply(member("pair-0"))
        await world.clock.sleep(5)
        seen["undescribed"] = await world.client.list(Selection(kinds.WORKLOADS))
        await world.client.create(operators.POD_GROUPS, described)
        await world.clock.sleep(5)
        seen["incomplete"] = await world.client.list(Selection(kinds.WORKLOADS))
        await world.apply(member("pair-1"))
        await world.until(lambda: world.is_in("pod-pair", "Running"))
        seen["gang"] = len(await bound(world))
        await world.until(lambda: world.is_in("pod-pair", "Succeeded"), seconds=200)
        return seen

    assert play(case, story) == {"undescribed": [], "incomplete": [], "gang": 2}


def test_a_workload_of_any_kind_is_found_by_its_owners_name_with_its_pods() -> None:
    case = next(case for case in CASES if case.name == "jobset")

    async def story(world: World) -> tuple[str, str, list[str]]:
        await submit(world, case)
        await world.until(lambda: world.is_in(case.workload, "Running"))
        by_name = await find(world.client, "default", "pretrain")
        by_kind = await find(world.client, "default", "jobset/pretrain")
        pods = await pods_of(world.client, by_name)
        return by_name.ref.name, by_kind.ref.name, [pod["metadata"]["name"] for _, pod in pods]

    one, two, pods = play(case, story)
    assert one == two == "jobset-pretrain"
    assert len(pods) == 5 and all(name.startswith("pretrain-") for name in pods)
