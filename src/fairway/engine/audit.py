"""What a plan owes to queues: the referee's second part.

Doors (who may be admitted at all, and what may be said of a wait), limits and the non-preemptible rule at every
ancestor, budgets, and that the shares it states are a division that the rules allow. Who leaves counts in no queue.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .model import GPU, Queue, Quota, Share, Workload
from .plan import Admit, Fault, Reason, Wait
from .resources import MIG, counted, counts_of
from .snapshot import Columns, Snapshot
from .tally import Case, Held, Layout, layout_of, memory_of

PRECEDENCE = tuple(Reason)
CERTAIN = (Reason.QUEUE_NOT_FOUND, Reason.QUEUE_INVALID, Reason.NOT_ALLOWED, Reason.QUEUE_STOPPED, Reason.BACKING_OFF,
           Reason.DEPENDENCY_PENDING)
"""Reasons that can be told from a workload and its queues alone."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The queues by name, and of each the way to its root, itself first; () where that is a circle."""

    paths: dict[str, tuple[Queue, ...]]
    parents: frozenset[str]


def tree_of(snapshot: Snapshot) -> Tree:
    paths = {}
    for name in snapshot.queues:
        path: list[Queue] = []
        at = name
        while at in snapshot.queues and len(path) <= len(snapshot.queues):
            path.append(snapshot.queues[at])
            at = path[-1].parent
        paths[name] = () if len(path) > len(snapshot.queues) else tuple(path)
    return Tree(paths, frozenset(queue.parent for queue in snapshot.queues.values()))


def inherited(path: Sequence[Queue], of: Callable[[Queue], float | None], default: float) -> float:
    """The nearest queue's word."""
    return next((value for value in map(of, path) if value is not None), default)


# Doors


def refusal(case: Case, tree: Tree, workload: Workload) -> Reason | None:
    """The first reason, of those told from the workload and its queues alone, why it may not be admitted."""
    path = tree.paths.get(workload.queue)
    if path is None:
        return Reason.QUEUE_NOT_FOUND
    if not path or workload.queue in tree.parents:
        return Reason.QUEUE_INVALID
    for queue in path:
        if (
            (queue.namespaces is not None and workload.namespace not in queue.namespaces)
            or (queue.max_priority is not None and workload.priority > queue.max_priority)
            or (queue.allows_nonpreemptible is False and not workload.preemptible)
        ):
            return Reason.NOT_ALLOWED
    if any(queue.stop != "None" for queue in path):
        return Reason.QUEUE_STOPPED
    if workload.backs_off_until is not None and workload.backs_off_until > case.snapshot.now:
        return Reason.BACKING_OFF
    if not all((end := case.snapshot.ended.get(key)) and end.succeeded for key in workload.after):
        return Reason.DEPENDENCY_PENDING
    return None


def doors(case: Case, tree: Tree) -> Iterator[Fault]:
    """Nobody is admitted whom a rule keeps out, and a wait gives the first reason there is."""
    pools = {pool.name for pool in case.snapshot.pools}
    clear: set[tuple[str, str, int, bool]] = set()
    for verdict in case.plan.verdicts:
        workload = case.waiting.get(verdict.workload)
        if workload is None or not isinstance(verdict, Admit | Wait):
            continue
        likeness = workload.queue, workload.namespace, workload.priority, workload.preemptible
        if likeness in clear and not workload.after and workload.backs_off_until is None:
            why = None
        elif (why := refusal(case, tree, workload)) is None:
            clear.add(likeness)
        if isinstance(verdict, Wait):
            told = verdict.reason
            if told not in (why, Reason.REFUSED) and (told in CERTAIN or (why and PRECEDENCE.index(told) > PRECEDENCE.index(why))):
                yield Fault(workload.key, "Reason", f"{told}, but {why}")
            continue
        if why is not None or not workload.is_active:
            yield Fault(workload.key, "Door", str(why or "inactive"))
        allowed = [workload.pools, *(queue.pools for queue in tree.paths.get(workload.queue, ()) if queue.pools)][:2]
        if verdict.admission.pool not in pools or any(one and verdict.admission.pool not in one for one in allowed):
            yield Fault(workload.key, "Pool", f"{verdict.admission.pool} is not allowed")


# Quotas


class Cap(NamedTuple):
    """So much of a resource, in these pools, for a queue and all below it: rows, a column; `pool` as named."""

    queue: int
    pool: str
    pools: list[int]
    resource: int
    amount: int


def caps_of(snapshot: Snapshot, of: Callable[[Quota], Sequence[tuple[str, Share]]]) -> list[Cap]:
    caps = []
    for row, queue in enumerate(snapshot.queues.values()):
        for quota in queue.quotas:
            pools = [at for at, one in enumerate(snapshot.pools) if quota.pool in ("*", one.name)]
            alive = np.isin(snapshot.pool_of, pools) & snapshot.is_usable
            for resource, share in of(quota):
                if resource in snapshot.resources:
                    column = snapshot.resources.index(resource)
                    unit = int(snapshot.capacity[column, alive].sum()) if share.is_relative else 1000
                    caps.append(Cap(row, quota.pool, pools, column, share.amount * unit // 1000))
    return caps


@dataclass(frozen=True, slots=True)
class Sums:
    """What queues hold, each with all below it: int64[queue, pool, resource]. `ways`: the rows from a queue to its
    root; `rows`: of queues and pools by name."""

    held: Columns
    ways: list[list[int]]
    queues: dict[str, int]
    pools: dict[str, int]

    def add(self, held: Held, amounts: Columns, sign: int = 1) -> None:
        row, pool = self.queues.get(held.workload.queue), self.pools.get(held.admission.pool)
        if row is not None and pool is not None:
            self.held[self.ways[row], pool] += sign * amounts

    def of(self, cap: Cap) -> int:
        return int(self.held[cap.queue, cap.pools, cap.resource].sum())

    def part(self, held: Held, amounts: Columns, cap: Cap) -> int:
        """What a workload counts against a cap."""
        row, pool = self.queues.get(held.workload.queue), self.pools.get(held.admission.pool)
        is_under = row is not None and pool in cap.pools and cap.queue in self.ways[row]
        return int(amounts[cap.resource]) if is_under else 0


def sums_of(snapshot: Snapshot, tree: Tree) -> Sums:
    queues = {name: row for row, name in enumerate(snapshot.queues)}
    ways = [[queues[one.name] for one in tree.paths[name]] for name in queues]
    held = np.zeros((len(queues), len(snapshot.pools), len(snapshot.resources)), np.int64)
    return Sums(held, ways, queues, {pool.name: row for row, pool in enumerate(snapshot.pools)})


def add_all(sums: Sums, layout: Layout, amounts: Columns, sign: int = 1) -> None:
    """Add all items of a layout at once."""
    queue = np.array([sums.queues.get(item[0].queue, -1) for item in layout.items], np.int64)
    pool = np.array([sums.pools.get(form.admission.pool, -1) for form in layout.forms], np.int64)[layout.form_of]
    direct = np.zeros_like(sums.held)
    known = (queue >= 0) & (pool >= 0)
    np.add.at(direct, (queue[known], pool[known]), amounts[layout.form_of[known]])
    for row in np.unique(queue[known]).tolist():
        for above in sums.ways[row]:
            sums.held[above] += sign * direct[row]


def counted_by(snapshot: Snapshot, layout: Layout) -> Columns:
    """int64[form, resource]: what a form counts in quotas; MIG profiles count as parts of a GPU, too."""
    amounts = layout.by_form()
    slices = np.array([int(found[1]) if (found := MIG.match(name)) else 0 for name in snapshot.resources], np.int64)
    amounts[:, snapshot.resources.index(GPU)] += amounts @ slices * 1000 // 7
    return amounts


def limits(case: Case, tree: Tree, starts: Layout) -> Iterator[Fault]:
    """No start and no growth breaks a limit at any ancestor, once all who leave are gone."""
    snapshot = case.snapshot
    caps = caps_of(snapshot, lambda quota: quota.limit)
    if not caps or not starts.items:
        return
    sums, amounts = standing_sums(case, tree), counted_by(snapshot, starts)
    before = replace(sums, held=sums.held.copy())
    add_all(sums, starts, amounts)
    for cap in caps:
        if sums.of(cap) <= cap.amount:
            continue
        forms = zip(starts.items, starts.form_of.tolist())
        parts = [(item, sums.part(item, amounts[form], cap)) for item, form in forms]
        held = before.of(cap) + sum(part for item, part in parts if not is_new(case, item))
        for item, part in parts:
            if part and is_new(case, item):
                held += part
                if held > cap.amount:
                    held -= part
                    detail = f"{list(snapshot.queues)[cap.queue]} {snapshot.resources[cap.resource]} {cap.amount}"
                    yield Fault(item.workload.key, "Limit", detail)


def is_new(case: Case, item: Held) -> bool:
    """Whether a start adds to what its queue holds: not what was promised, nor what only moves."""
    return item.is_fresh and (item.workload.key in case.waiting or item.whole is not item.admission)


def standing_sums(case: Case, tree: Tree) -> Sums:
    """What queues hold when all who leave are gone and nobody has started; promised ones count as starts."""
    snapshot = case.snapshot
    sums = sums_of(snapshot, tree)
    told = {item.workload.key for item in case.starts if not item.is_fresh}
    stays = [Held(one.workload, one.admission, (), one.admission) for one in snapshot.running
             if not one.is_leaving and one.workload.key not in told]
    goes = [item for item in case.leaves if not case.running[item.workload.key].is_leaving]
    for sign, items in ((1, stays), (-1, goes)):
        layout = layout_of(snapshot, items)
        add_all(sums, layout, counted_by(snapshot, layout), sign)
    return sums


def cores(case: Case, tree: Tree) -> Iterator[Fault]:
    """The non-preemptible, counted by their first minCount pods, fit in what is guaranteed at every ancestor."""
    snapshot = case.snapshot
    new = [item for item in case.starts if not item.workload.preemptible and item.workload.key in case.waiting]
    if not new:
        return
    going = {item.workload.key for item in case.leaves}
    stays = [Held(one.workload, one.admission, (), one.admission) for one in snapshot.running
             if not one.workload.preemptible and one.workload.key not in going]
    sums = sums_of(snapshot, tree)
    for item in stays:
        sums.add(item, core_of(snapshot, item))
    caps = caps_of(snapshot, lambda quota: quota.guaranteed)
    for item in new:
        amounts = core_of(snapshot, item)
        over = [cap for cap in caps if (part := sums.part(item, amounts, cap)) and sums.of(cap) + part > cap.amount]
        sums.add(item, amounts)
        if over:
            yield Fault(item.workload.key, "Guaranteed", f"{list(snapshot.queues)[over[0].queue]} {over[0].amount}")


def core_of(snapshot: Snapshot, item: Held) -> Columns:
    podsets = item.workload.podsets
    least = [min(podset.min_count, count) for podset, count in zip(podsets, counts_of(podsets, item.admission))]
    found = counted(podsets, least, memory_of(snapshot, item.admission.pool))
    return np.array([found.get(name, 0) for name in snapshot.resources], np.int64)


def budgets(case: Case, tree: Tree) -> Iterator[Fault]:
    """Nobody starts who could overrun what is left of a budget by its time limit."""
    if not any(queue.budget is not None for queue in case.snapshot.queues.values()):
        return
    for item in case.starts:
        path = tree.paths.get(item.workload.queue, ())
        for queue in path if item.workload.key in case.waiting else ():
            ledger, now = queue.ledger, case.snapshot.now
            is_old = ledger.budget_since is not None and now >= ledger.budget_since + (queue.budget_period or np.inf)
            gpus = core_of(case.snapshot, item)[case.snapshot.resources.index(GPU)] / 1000
            cost = gpus * (limit_of(path, item.workload) or 0.0)
            if queue.budget is not None and gpus and (0.0 if is_old else ledger.budget_spent) + cost > queue.budget:
                yield Fault(item.workload.key, "Budget", queue.name)


def limit_of(path: Sequence[Queue], workload: Workload) -> float | None:
    """The time limit that is enforced: its own or its queue's default, at most its queue's maximum."""
    own = workload.time_limit
    if own is None:
        own = next((one.default_time_limit for one in path if one.default_time_limit is not None), None)
    most = [one.max_time_limit for one in path if one.max_time_limit is not None]
    return min([*most, *([own] if own is not None else [])], default=None)
