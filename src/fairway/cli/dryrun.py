"""`fairway submit --dry-run`: what would become of a Job, decided here on what the cluster is now. Nothing is made.

The API server says what it would make of the Job; the objects that decide are read from it, and one cycle of the
default policy is asked. If the Job would wait, the forecast says until when. The answer is as of now: others may come
before it is submitted.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Selection

from .main import Problem
from .output import clock_time

if TYPE_CHECKING:
    from fairway.engine import Plan, Workload, World

Thing = dict[str, Any]
READ = (
    kinds.NAMESPACES, kinds.NODES, kinds.NODE_POOLS, kinds.QUEUES, kinds.RESERVATIONS, kinds.PRIORITY_CLASSES,
    kinds.DISRUPTION_BUDGETS, kinds.JOBS, kinds.PODS, kinds.WORKLOADS,
)  # fmt: skip


async def dry_run(client: Client, job: Thing, namespace: str) -> list[str]:
    """A line or two on when and where the Job would start, and who would have to go."""
    from fairway.api.owners import name_of
    from fairway.api.quantities import Malformed
    from fairway.engine import PRESETS, decide, snapshot_of
    from fairway.sim.cluster import read

    job = await client.would_create(kinds.JOBS, job, namespace=namespace)
    now, name = float(int(client.clock.now())), job["metadata"]["name"]
    lists = await asyncio.gather(*(client.list(Selection(kind)) for kind in READ))
    found = [(of, it) for of, them in zip(READ, lists) for it in them] + [(kinds.JOBS, job)]
    try:
        world = read(({**it, "apiVersion": of.group_version, "kind": of.name} for of, it in found), now=now)
    except Malformed as error:
        raise Problem(str(error)) from None
    key = f"{namespace}/{name_of('Job', name)}"
    ours = next(one for one in world.pending if one.key == key)
    return _lines(world, ours, decide(snapshot_of(world), PRESETS["fairway"]))


def _lines(world: "World", ours: "Workload", plan: "Plan") -> list[str]:
    from fairway.api.conditions import sentence
    from fairway.engine import Admit, Evict, Resize, Wait

    workloads = {one.workload.key: one.workload for one in world.running} | {one.key: one for one in world.pending}
    queues = {key: one.queue for key, one in workloads.items()}
    verdict = next(one for one in plan.verdicts if one.workload == ours.key)
    said = sentence(verdict, ours, queues)
    if isinstance(verdict, Wait):
        return [f"would wait: {verdict.reason}: {said}", _forecast(world, ours)]
    for_it = [one for one in plan.verdicts if isinstance(one, Evict | Resize) and one.beneficiary == ours.key]
    stopped = [one.workload for one in for_it if isinstance(one, Evict)]
    shrunk = [one.workload for one in for_it if isinstance(one, Resize)]
    if isinstance(verdict, Admit):
        said = f"would start {'' if verdict.after else 'now '}{said.removeprefix('starts ')}"
    return [said, *_victims("evict", stopped, ours, queues), *_victims("shrink", shrunk, ours, queues)]


def _victims(verb: str, keys: list[str], ours: "Workload", queues: dict[str, str]) -> list[str]:
    from fairway.api.conditions import names

    return [f"  it would {verb} {names(keys, ours, queues)}"] if keys else []


def _forecast(world: "World", ours: "Workload") -> str:
    import numpy as np

    from fairway.api.quantities import time_text
    from fairway.engine import PRESETS, forecast

    found = forecast(world, PRESETS["fairway"], np.random.default_rng(1)).get(ours.key)
    if found is None:
        return "  forecast: no start is in sight"
    early = clock_time(time_text(found.p50), world.now)
    late = clock_time(time_text(found.p90), world.now) if found.p90 < float("inf") else "…"
    return f"  forecast: starts {'~' if found.is_rough else ''}{early}{'' if early == late else f'–{late}'}"
