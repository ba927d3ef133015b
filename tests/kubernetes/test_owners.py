"""Owners on a real API server: operators on paper make their pods, the garbage collector and the Job controller are
the real ones, and no webhook completes what is stored."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import operators
import pytest
from kinds import definitions, example
from operators import Operator
from plane import Plane, Thing, fairway, node, nodes, until
from simworld import job, priority
from test_lives import CASES, Case, kind_of

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Ref, Selection

PLAYED = [case for case in CASES if case.files]


async def install(client: Client, case: Case) -> None:
    """Defines its kinds; two files may define the same one in other versions."""
    for one in (one for file in case.files for one in definitions(file)):
        with suppress(ApiError):
            await client.create(kinds.DEFINITIONS, one)

    async def serves() -> bool:
        with suppress(ApiError):
            for thing in example(case.name):
                await client.list(Selection(kind_of(case, thing)))
            return True
        return False

    await until(serves)


@asynccontextmanager
async def played(client: Client, case: Case) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(Operator(client, play, *others).run()) for play, others in case.plays]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def phase(client: Client, name: str) -> str:
    try:
        found = await client.get(Ref(kinds.WORKLOADS, name, "default"))
    except ApiError:
        return ""
    return str(found.get("status", {}).get("phase", ""))


async def on_nodes(client: Client) -> list[Thing]:
    pods = await client.list(Selection(kinds.PODS, "default"))
    own = [pod for pod in pods if "filler" not in pod["metadata"]["name"] and pod["spec"].get("nodeName")]
    return [pod for pod in own if pod["status"].get("phase") not in ("Succeeded", "Failed")]


@pytest.mark.parametrize("case", PLAYED, ids=lambda case: case.name)
async def test_an_owner_runs_whole_makes_room_and_comes_back(
    case: Case, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "SECONDS", 6)
    async with plane.client() as client:
        await install(client, case)
        with suppress(ApiError):
            await client.create(kinds.PRIORITY_CLASSES, priority("urgent", 1000))
        machine = node(f"n-{case.name}", cpu=16, gpus=case.gpus)
        async with nodes(client, machine), played(client, case), fairway(plane):
            await life(client, case)


async def life(client: Client, case: Case) -> None:
    async def is_in(name: str, *phases: str) -> bool:
        return await phase(client, name) in phases

    for thing in example(case.name):
        kind = kind_of(case, thing)
        await client.create(kind, thing)
    owner = Ref(kind, thing["metadata"]["name"], "default")
    await until(lambda: is_in(case.workload, "Running"))
    assert len(await on_nodes(client)) == sum(count for count, _ in case.podsets.values())
    urgent = job("filler", seconds=2, cpu="1", gpus=case.gpus, pod={"priorityClassName": "urgent"},
                 labels={"fairway.dev/queue": "default"})  # fmt: skip
    await client.create(kinds.JOBS, urgent)
    await until(lambda: is_in("job-filler", "Running", "Succeeded"))
    assert await on_nodes(client) == []
    await until(lambda: is_in(case.workload, "Running"))
    if case.ends:
        await until(lambda: is_in(case.workload, "Succeeded"))
    for ref in (owner, Ref(kinds.JOBS, "filler", "default")):
        await client.delete(ref)

    async def is_empty() -> bool:
        left = [*await client.list(Selection(kinds.WORKLOADS)), *await client.list(Selection(kinds.PODS, "default"))]
        return not left

    await until(is_empty)
