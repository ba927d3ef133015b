"""The invariants themselves: each complains of a history that breaks it, and of that alone."""

import asyncio

import pytest
from invariants import INDEX, JOB, QUEUES, WORKLOADS, Watcher
from simworld import Thing, node
from simworld import job as job_of
from simworld import pod as pod_of

from fairway.api.quantities import time_text
from fairway.clock import VirtualClock
from fairway.embedded.store import Key, Store

START = 1_800_000_000.0
Step = tuple[float, str, Thing]
"""At how many seconds what is written: its resource, and the object."""


def pod(name: str, *, gpus: str = "", on: str = "n1", phase: str = "Running", rank: str = "") -> Thing:
    notes = {"fairway.dev/attempt": "job-a/uid/1"} | ({"fairway.dev/assigned-devices": gpus} if gpus else {})
    notes |= {INDEX: rank} if rank else {}
    made = pod_of(name, cpu="2", gpus=len(gpus.split(",")) if gpus else 0, annotations=notes, labels={JOB: "a"})
    made["metadata"] |= {"uid": name, "finalizers": ["batch.kubernetes.io/job-tracking"]}
    made["spec"] |= {"nodeName": on} if on else {}
    return {**made, "status": {"phase": phase}}


def workload(*, least: int = 1, pods: int = 1, served: float = 0.0, until: float = 0.0, **since: float) -> Thing:
    """`since`: seconds at which its conditions turned true; `pods`: what it is admitted with; `served`: GPU-seconds
    that it says it was served until then."""
    made = job_of("a", gpus=1)
    said = [{"type": kind.capitalize(), "status": "True", "lastTransitionTime": time_text(START + it)}
            for kind, it in since.items()]  # fmt: skip
    amounts = {"default": {"nvidia.com/gpu": 1000 * served, "cpu": 2000 * served}}
    podset = {"name": "main", "minCount": least, "count": 4, "template": made["spec"]["template"]}
    return {
        "metadata": {"name": "job-a", "namespace": "default", "uid": "w", "finalizers": ["fairway.dev/charge"]},
        "spec": {"queue": "team", "podSets": [podset]},
        "status": {
            "phase": "Succeeded" if "finished" in since else "Running", "conditions": said,
            "served": {"until": time_text(START + max((until, *since.values()))), "amounts": amounts},
            "admission": {"pool": "default", "podSets": [{"name": "main", "nodes": [{"node": "n1", "count": pods}]}]},
        },
    }  # fmt: skip


def complaints(*steps: Step, charged: float | None = None, waits: int = 0) -> list[str]:
    """Node n1 is reserved for another queue from the 20th second to the 50th. `waits`: how often, each minute, a
    scheduler that has just come would start something."""
    clock, store = VirtualClock(START), Store()

    async def story() -> list[str]:
        watcher = Watcher(store, clock, patience=60, calm=0.0, reserved=("n1", "others", START + 20, START + 50))
        watching = asyncio.create_task(watcher.run())
        await asyncio.sleep(0)
        for at, resource, thing in ((0, "nodes", node("n1", cpu=4, gpus=4)), *steps):
            await clock.until(START + at)
            namespace = "default" if "namespace" in thing["metadata"] else ""
            store.put(Key(resource, namespace, thing["metadata"]["name"]), thing)
            await clock.sleep(0)
        await clock.sleep(0.001)
        watching.cancel()
        watcher.finish()
        for _ in range(waits):
            watcher.check_waiting({"default/job-b"})
            await clock.sleep(60)
        if charged is not None:
            watcher.check_charges({"team": charged}, {})
        return watcher.broken

    return clock.run(story())


TEAM, WIDE = ({"metadata": {"name": "team"}, "spec": {"quotas": [{"limit": {"nvidia.com/gpu": it}}]}} for it in "12")
ADMITTED, OVER, FALSE = (workload(admitted=0), *(workload(admitted=0, finished=10, served=it) for it in (10, 9)))
AGAIN, GANG = workload(admitted=5), workload(least=2)
UNBOUND = pod("b", on="")
HELD = {
    "metadata": {"name": "job-h", "namespace": "default", "uid": "h", "annotations": {
        "fairway.dev/submitted": time_text(START - 10)}},
    "spec": {"queue": "team", "podSets": [{"name": "main", "count": 4, "template": job_of("h", cpu="1", gpus=1)["spec"][
        "template"]}]},
    "status": {"phase": "Pending", "message": f"needs 4 GPUs; room is kept for it from {time_text(START + 60)}"},
}  # fmt: skip
TAKES = workload(admitted=5)
TAKES["metadata"]["annotations"] = {"fairway.dev/submitted": time_text(START)}
ENDS, GIVES = (({**TAKES, "spec": {**TAKES["spec"], "timeLimit": "50s"}}),
               {**TAKES, "status": {**TAKES["status"], "backfilledFor": "default/job-h"}})  # fmt: skip
RESERVED, SPENT = workload(admitted=30), {
    "metadata": {"name": "dept"}, "spec": {"budget": {"gpuHours": "0.5", "period": "1h"}},
    "status": {"budgetSpent": {"gpuHours": 0.6}},
}  # fmt: skip


@pytest.mark.parametrize(("steps", "complaint"), [
    ([(1, "pods", pod("a", gpus="0")), (2, "pods", pod("b", gpus="0"))], "device 0 of n1 is given to a and b"),
    ([(1, "pods", pod(name)) for name in "abc"], "n1 has 6000 milli-CPU taken"),
    ([(1, "pods", pod("a", rank="1")), (2, "pods", pod("b", rank="1"))], "rank 1 of a runs twice"),
    ([(1, WORKLOADS, OVER), (2, "pods", UNBOUND), (3, "pods", pod("b"))], "b starts though job-a is over"),
    ([(0, QUEUES, TEAM), (0, WORKLOADS, workload(pods=2, admitted=0))], "queue team has 2 GPUs of 1"),
    ([(0, WORKLOADS, GANG), (1, "pods", pod("a")), (99, "pods", pod("a"))], "job-a is there in part for 98 s"),
    ([(0, WORKLOADS, ADMITTED), (10, WORKLOADS, FALSE)], "job-a served"),
    ([(30, WORKLOADS, RESERVED)], "job-a starts on n1 at 10.0 s, reserved for others"),
    ([(0, QUEUES, SPENT)], "queue dept spent 0.6 GPU-hours of 0.5"),
    ([(0, WORKLOADS, HELD), (5, WORKLOADS, TAKES)], "job-a takes what is kept for job-h from 2027-01-15T08:01:00Z"),
    ([(0, WORKLOADS, ADMITTED), (5, WORKLOADS, AGAIN)], "job-a was admitted anew without an end"),
])  # fmt: skip
def test_what_must_not_be_is_told(steps: list[Step], complaint: str) -> None:
    broken = complaints(*steps)
    assert broken and all(one.startswith(complaint) for one in broken)


def test_a_life_as_it_should_be_is_not_complained_of() -> None:
    assert complaints(
        (0, QUEUES, WIDE),
        (0, WORKLOADS, workload(least=2)),
        (1, WORKLOADS, workload(least=2, pods=2, admitted=1)),
        (2, "pods", pod("a", gpus="0", rank="0")),
        (3, "pods", pod("b", rank="1")),
        (5, WORKLOADS, workload(least=2, pods=1, admitted=1, served=8, until=5)),
        (6, "pods", pod("a", gpus="0", rank="0", phase="Succeeded")),
        (90, "pods", pod("b", rank="1")),
        (95, WORKLOADS, workload(least=2, pods=1, admitted=1, finished=95, served=98)),
    ) == []  # fmt: skip


@pytest.mark.parametrize("it", [ENDS, GIVES])
def test_what_ends_before_a_hold_or_gives_way_to_it_is_not_complained_of(it: Thing) -> None:
    assert complaints((0, WORKLOADS, HELD), (5, WORKLOADS, it)) == []


@pytest.mark.parametrize(("looks", "is_right"), [(2, True), (3, False)])
def test_what_could_start_waits_no_longer_than_patience(looks: int, is_right: bool) -> None:
    assert (not complaints(waits=looks)) == is_right


@pytest.mark.parametrize(("charged", "is_right"), [(10, True), (9, False), (20, False)])
def test_a_queue_is_charged_what_its_workloads_held(charged: float, is_right: bool) -> None:
    free = {**OVER, "metadata": {**OVER["metadata"], "finalizers": []}}
    broken = complaints((0, WORKLOADS, ADMITTED), (10, WORKLOADS, OVER), (11, WORKLOADS, free), charged=charged)
    assert (not broken) == is_right
