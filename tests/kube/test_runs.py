"""Runs as commands show them, and the pods that they are of."""

import json
from typing import Any

import pytest

from fairway.api.indexes import INDEX
from fairway.clock import Clock
from fairway.kube.client import Client
from fairway.kube.kinds import WORKLOADS, Ref
from fairway.kube.runs import Run, pods_of
from fairway.kube.transport import Request, Response


@pytest.mark.parametrize(("reason", "words"), [("OnDisk", "paused on disk"), ("NotWoken", "did not wake from a pause")])
def test_a_run_that_a_pause_ended_says_so(reason: str, words: str) -> None:
    run = Run(1, 0, 0, "a", "main", is_default=True, exit_code=137, reason=reason)
    assert run.ending == words


def pod(name: str, minute: int, notes: dict[str, str]) -> dict[str, Any]:
    made = f"2026-11-23T10:{minute:02}:00Z"
    labels = {"fairway.dev/group-size": "4"}
    return {"metadata": {"name": name, "annotations": notes, "creationTimestamp": made, "labels": labels}}


PODS = [pod("sim-3", 2, {}), pod("sim-1", 1, {}), pod("late", 3, {INDEX: "7"}),
        pod("ray", 4, {"fairway.dev/attempt": "of-ray/u/1"})]  # fmt: skip


@pytest.mark.parametrize("workload, owners, ranks", [
    ("job-sim", [("Job", "sim")], [(0, "sim-1"), (1, "sim-3"), (3, "ray"), (7, "late")]),  # by index, else by age
    ("pod-sim", [("Pod", "sim-1"), ("Pod", "sim-3")], [(1, "sim-1"), (3, "sim-3")]),  # by what their names mean
    ("of-ray", [("RayCluster", "ray")], [(0, "ray")]),  # known by what is written on them
])  # fmt: skip
async def test_the_pods_of_a_workload_have_the_ranks_that_its_owners_give(
    workload: str, owners: list[tuple[str, str]], ranks: list[tuple[int, str]]
) -> None:
    async def listed(request: Request) -> Response:
        return Response(200, {}, json.dumps({"metadata": {}, "items": PODS}).encode())

    found = await pods_of(Client(listed, Clock()), Ref(WORKLOADS, workload, "ns"), owners)
    assert [(rank, it["metadata"]["name"]) for rank, it in found] == ranks
