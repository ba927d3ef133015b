"""Queues, pools, reservations, budgets of disruption and priorities → engine values; what a queue remembers, both ways.

A queue's ledger (decayed usage, budget spent, the token bucket, sketches of runtimes) lives in its status, so that a
restart loses nothing: `ledger` reads it, `ledger_status` writes it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from msgspec.structs import replace

from fairway import engine
from fairway.engine import HOUR, selects

from . import quantities, types
from .accounts import used_in
from .objects import FINALIZER, DisruptionBudgetObject, LabelSelector, PriorityClassObject
from .pods import NOBODY, Surroundings
from .quantities import Malformed, Quantity, amounts_of, duration, exact, parse, shown, time, time_text, within

SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def seconds(path: str, text: str) -> float | None:
    """A duration at a field path; None where there is none."""
    return within(path, duration, text) if text else None


def positive(path: str, text: str) -> float | None:
    """A duration above 0 at a field path; None where there is none."""
    found = seconds(path, text)
    if found is not None and found <= 0:
        raise Malformed(f"found {shown(text)}; more than 0 is allowed", path)
    return found


def moment(path: str, text: str | None) -> float | None:
    return within(path, time, text) if text else None


def queue(said: types.QueueObject, around: Surroundings) -> engine.Queue:
    """`around` resolves the namespace selector to names."""
    spec, meta, budget = said.spec, said.metadata, said.spec.budget
    usual, longest = within("spec.timeLimit", _time_limits, spec.time_limit)
    positive("spec.expire", spec.expire)
    return engine.Queue(
        name=meta.name,
        parent=spec.parent,
        quotas=_quotas(spec.quotas),
        priority=spec.priority,
        order=spec.order,
        pools=spec.pools,
        namespaces=None if spec.namespaces is None else _namespaces(spec.namespaces, around),
        max_priority=spec.max_priority,
        allows_nonpreemptible=spec.allow_non_preemptible,
        max_evictions=spec.max_evictions,
        min_runtime=seconds("spec.minRuntime", spec.min_runtime),
        preempt_min_runtime=seconds("spec.preemptMinRuntime", spec.preempt_min_runtime),
        expected_runtime=seconds("spec.expectedRuntime", spec.expected_runtime),
        default_time_limit=usual,
        max_time_limit=longest,
        max_wait=seconds("spec.maxWait", spec.max_wait),
        consolidates=None if spec.consolidation is None else spec.consolidation == "WhenStuck",
        pauses=None if spec.evict is None else spec.evict == "Pause",
        budget=int(within("spec.budget.gpuHours", exact, str(budget.gpu_hours)) * 3600) if budget else None,
        budget_period=seconds("spec.budget.period", budget.period) if budget else None,
        stop=spec.stop_policy,
        created=moment("metadata.creationTimestamp", meta.creation_timestamp) or 0.0,
        ledger=within("status", ledger, said.status),
    )


def above_limits(line: Sequence[engine.Queue]) -> Iterator[str]:
    """Where a queue, the first of the line that leads to its root, is guaranteed more than a limit on it allows. It is
    no fault: a guarantee counts up to the limit."""
    rows = [(queue.name, row) for queue in line for row in queue.quotas]
    for own in line[0].quotas:
        for name, asked in own.guaranteed:
            for above, most in ((above, dict(row.limit).get(name)) for above, row in rows if row.pool == own.pool):
                if most and most.is_relative == asked.is_relative and asked.amount > most.amount:
                    limit = f"the limit {_amount(most, name)} of queue {above}; it gets no more than that limit"
                    of = f"{name} of pool {shown(own.pool)}"
                    yield f"spec.quotas: {of} has guaranteed {_amount(asked, name)}, above {limit}"


def _amount(said: engine.Share, resource: str) -> str:
    return f"{said.amount / 10:g}%" if said.is_relative else quantities.format(said.amount, resource)


def _quotas(said: Sequence[types.QuotaSpec]) -> tuple[engine.Quota, ...]:
    rows = Counter((one.pool, name) for one in said for name in one.guaranteed.keys() | one.limit.keys())
    if twice := sorted(row for row, count in rows.items() if count > 1):
        pool, name = twice[0]
        message = f"found {name} of pool {shown(pool)} in two rows; a resource in one row for each pool is allowed"
        raise Malformed(message, "spec.quotas")
    return tuple(within(f"spec.quotas[{index}]", _quota, one) for index, one in enumerate(said))


def _time_limits(said: types.TimeLimits) -> tuple[float | None, float | None]:
    usual, longest = positive("default", said.default), positive("max", said.max)
    if usual is not None and longest is not None and usual > longest:
        raise Malformed(f"found {said.default}; at most max, which is {said.max}, is allowed", "default")
    return usual, longest


def _quota(said: types.QuotaSpec) -> engine.Quota:
    guaranteed, limit = within("guaranteed", _shares, said.guaranteed), within("limit", _shares, said.limit)
    return engine.Quota(said.pool, guaranteed, limit, 1.0 if said.weight is None else said.weight)


def _shares(said: Mapping[str, Quantity]) -> tuple[tuple[str, engine.Share], ...]:
    return tuple((name, within(f"[{name}]", quantities.share, value, name)) for name, value in sorted(said.items()))


def _namespaces(said: LabelSelector, around: Surroundings) -> frozenset[str]:
    wanted = said.requirements()
    return frozenset(name for name in around.namespaces if selects(wanted, around.labels(name)))


def lineage(known: Mapping[str, types.QueueObject], name: str) -> Iterator[str]:
    """The queue and the queues above it, with the first that is not there; a cycle ends where it began."""
    return engine.lineage(_parent_of(known), name)


def _parent_of(known: Mapping[str, types.QueueObject]) -> Callable[[str], str]:
    return lambda name: known[name].spec.parent if name in known else ""


def path(known: Mapping[str, types.QueueObject], name: str) -> list[str]:
    """The queue and the queues above it, as far as they are there."""
    return [one for one in lineage(known, name) if one in known]


def budgeted(
    known: Mapping[str, types.QueueObject], queue: str, used: float, days: engine.DaysUsed
) -> dict[str, engine.Budgeted]:
    """What counts in the budget of each queue that is there, of what a workload used that is in `queue` now."""
    parts = engine.budgeted(_parent_of(known), queue, used, days)
    return {name: part for name, part in parts.items() if name in known}


def uncharged(
    workloads: Mapping[str, types.WorkloadObject], known: Mapping[str, types.QueueObject], goes_on: Set[str]
) -> Iterator[tuple[types.WorkloadObject, set[str]]]:
    """What has used something and neither waits nor runs (`goes_on`: keys of what does), with those queues, of all
    that it was in, that are not charged for it yet."""
    charged = {name: frozenset(one.status.charged) for name, one in known.items()}
    for key, said in workloads.items():
        if said.status.attempt and FINALIZER in said.metadata.finalizers and key not in goes_on:
            names = {name for one in used_in(said) for name in path(known, one)}
            if left := {name for name in names if said.metadata.uid not in charged[name]}:
                yield said, left


def ledger(said: types.QueueStatus) -> engine.Ledger:
    """What a queue remembers, from its status."""
    usage = {(pool, name): one for pool, held in said.decayed_usage.items() for name, one in held.items()}
    spent = said.budget_spent or types.BudgetUse()
    return engine.Ledger(
        usage=tuple((key, _decayed(one, _base(key[1]))) for key, one in sorted(usage.items())),
        users=tuple((user, _decayed(one)) for user, one in sorted(said.users.items())),
        budget_spent=spent.gpu_hours * HOUR,
        budget_since=moment("budgetSpent.since", spent.since),
        evicted=tuple((pool, _decayed(one, _base(engine.GPU))) for pool, one in sorted(said.evicted_gpus.items())),
        runtimes=tuple(((one.user, one.name), engine.Sketch(one.points)) for one in said.runtimes if one.points),
        stretch=said.stretch,
    )


def _decayed(said: types.DecayedAmount, base: int = 1) -> engine.Decayed:
    return engine.Decayed(said.value * base, time(said.time))


def _base(resource: str) -> int:
    """Base units in one of the resource as people count it."""
    return 1000 if resource in quantities.MILLI else 1


def budget_used(period: str, used: types.BudgetUse, now: float) -> tuple[float, float | None]:
    """GPU-hours of the budget's period that `now` is in, and when that ends; None before the first charge. Raises
    Malformed."""
    length, since = duration(period), moment("budgetSpent.since", used.since)
    held = engine.Ledger(budget_spent=used.gpu_hours, budget_since=since)
    spent, began = engine.Queue("", budget_period=length, ledger=held).spent(now)
    return spent, None if since is None else began + length


def ledger_status(held: engine.Ledger, status: types.QueueStatus) -> types.QueueStatus:
    """`status` with what a queue remembers."""
    usage: dict[str, dict[str, types.DecayedAmount]] = {}
    for (pool, name), one in held.usage:
        usage.setdefault(pool, {})[name] = _told(one, _base(name))
    since = "" if held.budget_since is None else time_text(held.budget_since)
    return replace(
        status,
        decayed_usage=usage,
        users={user: _told(one) for user, one in held.users},
        budget_spent=types.BudgetUse(held.budget_spent / HOUR, since) if held.budget_spent or since else None,
        evicted_gpus={pool: _told(one, _base(engine.GPU)) for pool, one in held.evicted},
        runtimes=tuple(types.RuntimeSketch(user, name, one.points) for (user, name), one in held.runtimes),
        stretch=round(held.stretch, 6),
    )


def _told(one: engine.Decayed, base: int = 1) -> types.DecayedAmount:
    return types.DecayedAmount(one.value / base, time_text(one.time))


def pool(said: types.NodePoolObject) -> engine.Pool:
    spec = said.spec
    evictions = spec.eviction_budget
    cost = spec.cost_per_gpu_hour
    return engine.Pool(
        name=said.metadata.name,
        selector=spec.node_selector.requirements(),
        levels=spec.levels,
        strategy=spec.strategy or "Binpack",
        hold_depth=spec.hold_depth,
        eviction_gpus=within("spec.evictionBudget.gpus", parse, evictions.gpus, engine.GPU) if evictions else None,
        eviction_period=(seconds("spec.evictionBudget.per", evictions.per) if evictions else None) or HOUR,
        max_nodes=spec.max_nodes,
        shape=within("spec.shape", amounts_of, spec.shape),
        cost_per_gpu_hour=0.0 if cost is None else float(within("spec.costPerGpuHour", exact, str(cost))),
    )


def reservation(said: types.ReservationObject) -> engine.Reservation:
    spec = said.spec
    start, length = moment("spec.start", spec.start), seconds("spec.duration", spec.duration)
    if start is None:
        raise Malformed("absent; the time when the first window opens is needed", "spec.start")
    if not length:
        raise Malformed(f"found {spec.duration!r}; a duration above 0 is needed", "spec.duration")
    if bool(spec.queue) == spec.maintenance:
        raise Malformed(f"found {'both' if spec.queue else 'neither'}; either queue or maintenance is allowed", "spec")
    if bool(spec.nodes) == bool(spec.amount):
        raise Malformed(f"found {'both' if spec.nodes else 'neither'}; either amount or nodes is allowed", "spec")
    if spec.amount and not spec.pool:
        raise Malformed("absent; the pool that the amount is of is needed", "spec.pool")
    amount, name = within("spec.amount", amounts_of, spec.amount), said.metadata.name
    return engine.Reservation(name, start, length, spec.queue, spec.pool, amount, spec.nodes, spec.repeat or "")


def disruption(said: DisruptionBudgetObject) -> engine.Disruption:
    """How many more pods may go. Before a controller has said so: what `maxUnavailable` says as a number, else none."""
    spec, allowed = said.spec, said.status.disruptions_allowed
    if allowed is None:
        allowed = spec.max_unavailable if isinstance(spec.max_unavailable, int) else 0
    key = f"{said.metadata.namespace}/{said.metadata.name}"
    chosen = NOBODY if spec.selector is None else spec.selector.requirements()
    return engine.Disruption(key, chosen, max(0, allowed))


def default_class(classes: Mapping[str, PriorityClassObject]) -> str:
    """The PriorityClass that holds where none is named; "" for none. Of several, as Kubernetes does, the lowest."""
    found = ((one.value, name) for name, one in classes.items() if one.global_default)
    return min(found, default=(0, ""))[1]


def priorities(classes: Mapping[str, PriorityClassObject]) -> dict[str, int]:
    """Value by name of PriorityClass; under "" what holds where none is named."""
    values = {name: one.value for name, one in classes.items()}
    return {"": values.get(default_class(classes), 0)} | SYSTEM_PRIORITIES | values


def non_preempting(classes: Mapping[str, PriorityClassObject]) -> frozenset[str]:
    """The PriorityClasses that never preempt; "" if the one that holds where none is named is one of them."""
    found = {name for name, one in classes.items() if one.preemption_policy == "Never"}
    return frozenset(found | {""} if default_class(classes) in found else found)
