"""What would be: `submit --dry-run`, and what `why` says would help. Decided here, on what the cluster is now.

The objects that decide are read from the API server, and asked is the policy that the controller says it decides by,
the default where that cannot be read. A Job is added as the server would make it, and nothing is made; if it would
wait, the forecast says until when, and in which queue it would start sooner. The answer is as of now: others may come
before anything is done about it.
"""

import asyncio
import json
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Kind, Ref, Selection

from .main import Problem
from .output import clock_time

if TYPE_CHECKING:
    from fairway.engine import Forecast, Plan, Policy, Workload, World

Thing = dict[str, Any]
MOST_QUEUES, FEW, SOONER_SECONDS = 3, 12, 60.0
READ = (
    kinds.NAMESPACES, kinds.NODES, kinds.NODE_POOLS, kinds.QUEUES, kinds.RESERVATIONS, kinds.PRIORITY_CLASSES,
    kinds.DISRUPTION_BUDGETS, kinds.JOBS, kinds.PODS, kinds.WORKLOADS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """Of whom it is asked, in which world, by which policy."""

    world: "World"
    ours: "Workload"
    policy: "Policy"


async def dry_run(client: Client, job: Thing, namespace: str) -> list[str]:
    """A line or two on when and where the Job would start, and who would have to go."""
    from fairway.api.owners import name_of
    from fairway.engine import decide, snapshot_of

    job = await client.would_create(kinds.JOBS, job, namespace=namespace)
    world = await _world(client, (kinds.JOBS, job))
    key = f"{namespace}/{name_of('Job', job['metadata']['name'])}"
    case = Case(world, next(one for one in world.pending if one.key == key), await policy_of(client))
    return _lines(case, decide(case.policy.seen(snapshot_of(world)), case.policy))


async def would_help(client: Client, key: str) -> list[str]:
    """What would let the waiting workload start now, else sooner; nothing where its user may not see the cluster."""
    from fairway.api.conditions import holders, would_start
    from fairway.engine import Wait, decide, snapshot_of, what_if

    try:
        world = await _world(client)
    except ApiError as error:
        if error.status == 403:
            return []
        raise
    policy = await policy_of(client)
    verdicts = decide(policy.seen(snapshot_of(world)), policy).verdicts
    wait = next((it for it in verdicts if isinstance(it, Wait) and it.workload == key), None)
    if wait is None:
        return []
    case = Case(world, next(one for one in world.pending if one.key == key), policy)
    facts, queues = what_if(world, wait, policy), {one.workload.key: one.workload.queue for one in world.running}
    told = [] if wait.facts.blocking else holders(facts, case.ours, queues)
    return [*told, *(would_start(facts) or sooner(case))]


async def policy_of(client: Client) -> "Policy":
    """The one that the cluster's controller says on its lease that it decides by; the default where none is told."""
    from fairway.api.quantities import duration
    from fairway.settings import DECIDES_BY, LEASE, Settings, SettingsError, settings_of
    from fairway.settings import policy_of as chosen

    try:
        lease = await client.get(Ref(kinds.LEASES, LEASE, Settings().namespace))
        said = json.loads((lease["metadata"].get("annotations") or {}).get(DECIDES_BY, "{}"))
        return chosen(settings_of(said, duration))
    except (ApiError, SettingsError, ValueError) as error:
        if isinstance(error, ApiError) and error.status not in (403, 404):
            raise
        return chosen(Settings())


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


def _lines(case: Case, plan: "Plan") -> list[str]:
    from fairway.api.conditions import sentence, would_start
    from fairway.engine import Admit, Evict, Resize, Wait, what_if

    world, ours = case.world, case.ours
    workloads = {one.workload.key: one.workload for one in world.running} | {one.key: one for one in world.pending}
    queues = {key: one.queue for key, one in workloads.items()}
    verdict = next(one for one in plan.verdicts if one.workload == ours.key)
    if isinstance(verdict, Wait):
        verdict = replace(verdict, facts=what_if(world, verdict, case.policy))
    said = sentence(verdict, ours, queues)
    if isinstance(verdict, Wait):
        others = [] if would_start(verdict.facts) else sooner(case)
        told = _told(forecast_of(case), world.now)
        return [f"would wait: {verdict.reason}: {said}", told, *(f"  {one}" for one in others)]
    for_it = [one for one in plan.verdicts if isinstance(one, Evict | Resize) and one.beneficiary == ours.key]
    stopped = [one.workload for one in for_it if isinstance(one, Evict)]
    shrunk = [one.workload for one in for_it if isinstance(one, Resize)]
    if isinstance(verdict, Admit):
        said = f"would start {'' if verdict.after else 'now '}{said.removeprefix('starts ')}"
    return [said, *_victims("evict", stopped, ours, queues), *_victims("shrink", shrunk, ours, queues)]


def _victims(verb: str, keys: list[str], ours: "Workload", queues: dict[str, str]) -> list[str]:
    from fairway.api.conditions import names

    return [f"  it would {verb} {names(keys, ours, queues)}"] if keys else []


def forecast_of(case: Case, queue: str = "") -> "Forecast | None":
    """When it will start, in its queue or in another; None where no start is in sight."""
    import numpy as np

    from fairway.engine import forecast

    ours = replace(case.ours, queue=queue or case.ours.queue)
    pending = tuple(ours if one.key == ours.key else one for one in case.world.pending)
    world = replace(case.world, pending=pending)
    return forecast(world, case.policy, np.random.default_rng(1), only=ours.key).get(ours.key)


def sooner(case: Case) -> list[str]:
    """The queue in which it is expected to start first, where that is sooner than in its own. A forecast for each queue
    is asked for only where few wait."""
    from fairway.api.quantities import time_text

    world, own = case.world, case.ours.queue
    leaves = {one.name for one in world.queues} - {one.parent for one in world.queues} - {own}
    if not leaves or len(world.pending) > FEW:
        return []
    found = {name: forecast_of(case, name) for name in (own, *sorted(leaves)[:MOST_QUEUES])}
    starts = {name: it.p50 for name, it in found.items() if it}
    best = min(starts, key=lambda name: (starts[name], name), default=own)
    if starts.get(own, inf) - starts.get(best, inf) < SOONER_SECONDS or best == own:
        return []
    return [f"in queue {best} it would start at about {clock_time(time_text(starts[best]), world.now)}"]


def _told(found: "Forecast | None", now: float) -> str:
    from fairway.api.quantities import time_text

    if found is None:
        return "  forecast: no start is in sight"
    early = clock_time(time_text(found.p50), now)
    late = clock_time(time_text(found.p90), now) if found.p90 < float("inf") else "…"
    return f"  forecast: starts {'~' if found.is_rough else ''}{early}{'' if early == late else f'–{late}'}"
