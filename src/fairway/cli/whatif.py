"""What would be: `submit --dry-run`, and what `why` says would help. Decided here, on what the cluster is now.

The objects that decide are read from the API server, and the default policy is asked. A Job is added as the server
would make it, and nothing is made; if it would wait, the forecast says until when. The answer is as of now: others may
come before anything is done about it.
"""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Kind, Selection

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
    from fairway.engine import PRESETS, decide, snapshot_of

    job = await client.would_create(kinds.JOBS, job, namespace=namespace)
    world = await _world(client, (kinds.JOBS, job))
    key = f"{namespace}/{name_of('Job', job['metadata']['name'])}"
    ours = next(one for one in world.pending if one.key == key)
    return _lines(world, ours, decide(snapshot_of(world), PRESETS["fairway"]))


async def would_help(client: Client, key: str) -> list[str]:
    """What would let the waiting workload start now, besides what its own message says; nothing where its user may not
    see the cluster."""
    from fairway.api.conditions import holders, would_start
    from fairway.engine import PRESETS, Wait, decide, snapshot_of, what_if

    try:
        world = await _world(client)
    except ApiError as error:
        if error.status == 403:
            return []
        raise
    policy = PRESETS["fairway"]
    verdicts = decide(snapshot_of(world), policy).verdicts
    wait = next((it for it in verdicts if isinstance(it, Wait) and it.workload == key), None)
    if wait is None:
        return []
    facts, ours = what_if(world, wait, policy), next(one for one in world.pending if one.key == key)
    queues = {one.workload.key: one.workload.queue for one in world.running}
    told = [] if wait.facts.blocking else holders(facts, ours, queues)
    return [*told, *would_start(facts)]


async def _world(client: Client, *more: tuple[Kind, Thing]) -> "World":
    """What the API server has, and more."""
    from fairway.api.quantities import Malformed
    from fairway.sim.cluster import read

    lists = await asyncio.gather(*(client.list(Selection(kind)) for kind in READ))
    found = [*((of, it) for of, them in zip(READ, lists) for it in them), *more]
    things = ({**it, "apiVersion": of.group_version, "kind": of.name} for of, it in found)
    try:
        return read(things, now=float(int(client.clock.now())))
    except Malformed as error:
        raise Problem(str(error)) from None


def _lines(world: "World", ours: "Workload", plan: "Plan") -> list[str]:
    from fairway.api.conditions import sentence
    from fairway.engine import PRESETS, Admit, Evict, Resize, Wait, what_if

    workloads = {one.workload.key: one.workload for one in world.running} | {one.key: one for one in world.pending}
    queues = {key: one.queue for key, one in workloads.items()}
    verdict = next(one for one in plan.verdicts if one.workload == ours.key)
    if isinstance(verdict, Wait):
        verdict = replace(verdict, facts=what_if(world, verdict, PRESETS["fairway"]))
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

    found = forecast(world, PRESETS["fairway"], np.random.default_rng(1), only=ours.key).get(ours.key)
    if found is None:
        return "  forecast: no start is in sight"
    early = clock_time(time_text(found.p50), world.now)
    late = clock_time(time_text(found.p90), world.now) if found.p90 < float("inf") else "…"
    return f"  forecast: starts {'~' if found.is_rough else ''}{early}{'' if early == late else f'–{late}'}"
