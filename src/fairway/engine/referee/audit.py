"""What a plan owes to queues: the referee's part on doors, quotas and shares.

Doors: who may be admitted at all, and what may be said of a wait. Limits and the non-preemptible rule at every
ancestor, budgets, and that the shares it states are a division that the rules allow. Who leaves counts in no queue.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fairway.engine.model import GPU, Admission, NodeShare, PodSetPlacement, Queue, Quota, Running, Share, Workload
from fairway.engine.plan import Fault, Reason, Wait
from fairway.engine.resources import counted, counts_of, slices
from fairway.engine.snapshot import Columns, Mask, Snapshot

from .tally import Case, Held, Layout, layout_of, memory_of

PLACE = {reason: place for place, reason in enumerate(Reason)}
CERTAIN = frozenset((Reason.QUEUE_NOT_FOUND, Reason.QUEUE_INVALID, Reason.NOT_ALLOWED, Reason.QUEUE_STOPPED,
                     Reason.BACKING_OFF, Reason.DEPENDENCY_PENDING))
"""Reasons that can be told from a workload and its queues alone."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The queues: of each the way to its root, itself first, () where that is a circle; who has children; and of each
    leaf what keeps all, some or none out."""

    paths: dict[str, tuple[Queue, ...]]
    parents: frozenset[str]
    gates: dict[str, "Gate"]


class Gate(NamedTuple):
    """What the queues on a way let in. `shut`: nobody, and why. `is_open`: everybody."""

    shut: Reason | None
    namespaces: tuple[frozenset[str], ...]
    priority: float
    time_limit: float
    takes_fixed: bool
    is_stopped: bool
    pools: tuple[str, ...]
    is_open: bool


def tree_of(snapshot: Snapshot) -> Tree:
    queues = snapshot.queues
    paths, parents = {}, frozenset(queue.parent for queue in queues.values())
    for name in queues:
        path: list[Queue] = []
        at = name
        while at in queues and len(path) <= len(queues):
            path.append(queues[at])
            at = path[-1].parent
        paths[name] = () if len(path) > len(queues) else tuple(path)
    return Tree(paths, parents, {name: _gate(path, name in parents) for name, path in paths.items()})


def _gate(path: Sequence[Queue], is_parent: bool) -> Gate:
    shut = Reason.QUEUE_INVALID if is_parent or not path else None
    namespaces = tuple(queue.namespaces for queue in path if queue.namespaces is not None)
    priority = min((queue.max_priority for queue in path if queue.max_priority is not None), default=np.inf)
    limit = min((queue.max_time_limit for queue in path if queue.max_time_limit is not None), default=np.inf)
    takes_fixed = all(queue.allows_nonpreemptible is not False for queue in path)
    is_stopped = any(queue.stop != "None" for queue in path)
    pools = next((queue.pools for queue in path if queue.pools), ())
    is_open = not (shut or namespaces or is_stopped or pools) and min(priority, limit) == np.inf and takes_fixed
    return Gate(shut, namespaces, priority, limit, takes_fixed, is_stopped, pools, is_open)


def inherited(path: Sequence[Queue], of: Callable[[Queue], float | None], default: float) -> float:
    """The nearest queue's word."""
    return next((value for value in map(of, path) if value is not None), default)


def refusal(case: Case, tree: Tree, workload: Workload) -> Reason | None:
    """The first reason, of those told from the workload and its queues alone, why it may not be admitted."""
    gate = tree.gates.get(workload.queue)
    if gate is None:
        return Reason.QUEUE_NOT_FOUND
    if not gate.is_open:
        if gate.shut:
            return gate.shut
        is_welcome = all(workload.key.partition("/")[0] in names for names in gate.namespaces)
        is_modest = workload.priority <= gate.priority and (workload.time_limit or 0) <= gate.time_limit
        if not (is_welcome and is_modest and (workload.preemptible or gate.takes_fixed)):
            return Reason.NOT_ALLOWED
        if gate.is_stopped:
            return Reason.QUEUE_STOPPED
    if workload.backs_off_until is not None and workload.backs_off_until > case.snapshot.now:
        return Reason.REFUSED if workload.refused else Reason.BACKING_OFF
    if workload.after and not all((end := case.snapshot.ended.get(key)) and end.succeeded for key in workload.after):
        return Reason.DEPENDENCY_PENDING
    return None


def doors(case: Case, tree: Tree) -> Iterator[Fault]:
    """Nobody is admitted whom a rule keeps out, and a wait gives the first reason there is."""
    is_shut = any(not gate.is_open for gate in tree.gates.values())
    is_odd = is_shut or not tree.gates.keys() >= {item[0].queue for item in case.starts}
    for workload, admission, _, role, _ in case.starts if is_odd else case.special:
        why = refusal(case, tree, workload) if role == "new" else None
        if why or (role == "new" and not workload.is_active):
            yield Fault(workload.key, "Door", why or "inactive")
        asked, allowed = workload.pools, tree.gates[workload.queue].pools if workload.queue in tree.gates else ()
        if role in ("new", "moved") and ((asked and admission.pool not in asked)
                                         or (allowed and admission.pool not in allowed)):
            yield Fault(workload.key, "Pool", f"{admission.pool} is not allowed")
    for wait in case.of(Wait):
        asker = case.waiting.get(wait.workload)
        if asker and asker.is_active and not asker.refused:
            told = wait.reason
            why = refusal(case, tree, asker)
            if told is not why and (told in CERTAIN or (why and PLACE[told] > PLACE[why])):
                yield Fault(wait.workload, "Reason", f"{told}, but {why}")


# Quotas


class Cap(NamedTuple):
    """So much of a resource, in these pools, for a queue and all below it: rows, a column; `pool` as named."""

    queue: int
    pool: str
    pools: tuple[int, ...]
    resource: int
    amount: int


def live_of(snapshot: Snapshot, mask: Mask) -> Columns:
    """int64[resource]: what usable nodes offer; MIG profiles count as parts of a GPU, too."""
    live: Columns = snapshot.capacity[:, snapshot.is_usable & mask].sum(axis=1)
    live[snapshot.resources.index(GPU)] += sevenths(snapshot) @ live * 1000 // 7
    return live


def sevenths(snapshot: Snapshot) -> Columns:
    """int64[resource]: slices of a MIG profile."""
    return np.array([slices(name) for name in snapshot.resources], np.int64)


def caps_of(snapshot: Snapshot, of: Callable[[Quota], Sequence[tuple[str, Share]]]) -> list[Cap]:
    if not any(queue.quotas for queue in snapshot.queues.values()):
        return []
    live = {pool.name: live_of(snapshot, snapshot.pool_of == row) for row, pool in enumerate(snapshot.pools)}
    caps = []
    for row, queue in enumerate(snapshot.queues.values()):
        for quota in queue.quotas:
            names = [name for name in live if quota.pool in ("*", name)]
            pools = tuple(at for at, one in enumerate(snapshot.pools) if one.name in names)
            for resource, share in of(quota):
                if resource in snapshot.resources:
                    column = snapshot.resources.index(resource)
                    unit = sum(int(live[name][column]) for name in names) if share.is_relative else 1000
                    caps.append(Cap(row, quota.pool, pools, column, share.amount * unit // 1000))
    return caps


@dataclass(frozen=True, slots=True)
class Sums:
    """What queues hold, each with all below it: int64[queue, pool, resource]. `ways`: the rows from a queue to its
    root; `queues`, `pools`: rows by name."""

    held: Columns
    ways: list[list[int]]
    queues: dict[str, int]
    pools: dict[str, int]

    def add(self, item: Held, amounts: Columns, sign: int = 1) -> None:
        row, pool = self.queues.get(item.workload.queue), self.pools.get(item.admission.pool)
        if row is not None and pool is not None:
            self.held[self.ways[row], pool] += sign * amounts

    def add_all(self, snapshot: Snapshot, items: Sequence[Held], sign: int = 1) -> None:
        """Add many items at once."""
        layout = layout_of(snapshot, items)
        queue = np.array([self.queues.get(item[0].queue, -1) for item in items], np.int64)
        pool = np.array([self.pools.get(form[1].pool, -1) for form in layout.forms], np.int64)[layout.form_of]
        known, direct = (queue >= 0) & (pool >= 0), np.zeros_like(self.held)
        np.add.at(direct, (queue[known], pool[known]), counted_by(snapshot, layout)[layout.form_of[known]])
        for row in set(queue[known].tolist()):
            self.held[self.ways[row]] += sign * direct[row]

    def of(self, cap: Cap) -> int:
        return sum(self.held.item(cap.queue, pool, cap.resource) for pool in cap.pools)

    def part(self, item: Held, amounts: Columns, cap: Cap) -> int:
        """What a workload counts against a cap."""
        row, pool = self.queues.get(item.workload.queue), self.pools.get(item.admission.pool)
        is_under = row is not None and pool in cap.pools and cap.queue in self.ways[row]
        return int(amounts[cap.resource]) if is_under else 0


def sums_of(snapshot: Snapshot, tree: Tree, items: Sequence[Held] = ()) -> Sums:
    queues = {name: row for row, name in enumerate(snapshot.queues)}
    held = np.zeros((len(queues), len(snapshot.pools), len(snapshot.resources)), np.int64)
    ways = [[queues[one.name] for one in tree.paths[name]] for name in queues]
    sums = Sums(held, ways, queues, {pool.name: row for row, pool in enumerate(snapshot.pools)})
    sums.add_all(snapshot, items)
    return sums


def counted_by(snapshot: Snapshot, layout: Layout) -> Columns:
    """int64[form, resource]: what a form counts in quotas; MIG profiles count as parts of a GPU, too."""
    amounts = layout.by_form()
    amounts[:, snapshot.resources.index(GPU)] += amounts @ sevenths(snapshot) * 1000 // 7
    return amounts


def limits(case: Case, tree: Tree, starts: Layout) -> Iterator[Fault]:
    """No start and no growth breaks a limit at any ancestor, once all who leave are gone."""
    snapshot = case.snapshot
    caps = caps_of(snapshot, lambda quota: quota.limit)
    if not caps or not case.starts:
        return
    sums = sums_of(snapshot, tree, case.standing())
    sums.add_all(snapshot, [item for item in case.leaves if item.role == "evicted"], -1)
    sums.add_all(snapshot, [item for item in case.starts if item.role in ("moved", "told")])
    new = [(item, form) for item, form in zip(case.starts, starts.form_of.tolist()) if item.role in ("new", "more")]
    full = replace(sums, held=sums.held.copy())
    full.add_all(snapshot, [item for item, _ in new])
    amounts = counted_by(snapshot, starts)
    for cap in caps:
        held = sums.of(cap)
        for item, form in new if full.of(cap) > cap.amount else ():
            part = sums.part(item, amounts[form], cap)
            if part and held + part > cap.amount:
                detail = f"{list(snapshot.queues)[cap.queue]} {snapshot.resources[cap.resource]} {cap.amount}"
                yield Fault(item.workload.key, "Limit", detail)
            else:
                held += part


def cores(case: Case, tree: Tree) -> Iterator[Fault]:
    """The non-preemptible, counted by their first minCount pods, fit in what is guaranteed at every ancestor."""
    snapshot = case.snapshot
    new = [item for item in case.starts if not item[0].preemptible and item.role == "new"]
    if not new:
        return
    going = {item.workload.key for item in case.leaves}
    told = [item for item in case.starts if item.role == "told"]
    sums = sums_of(snapshot, tree)
    for item in (*case.standing(), *told):
        if not item.workload.preemptible and (item.role == "told" or item.workload.key not in going):
            sums.add(item, core_of(snapshot, item))
    caps = caps_of(snapshot, lambda quota: quota.guaranteed)
    for item in new:
        amounts = core_of(snapshot, item)
        over = [cap for cap in caps if (part := sums.part(item, amounts, cap)) and sums.of(cap) + part > cap.amount]
        if over:
            yield Fault(item.workload.key, "Guaranteed", f"{list(snapshot.queues)[over[0].queue]} {over[0].amount}")
        else:
            sums.add(item, amounts)


def core_of(snapshot: Snapshot, item: Held) -> Columns:
    """What its first minCount pods count in quotas."""
    podsets = item.workload.podsets
    least = [min(podset.min_count, count) for podset, count in zip(podsets, counts_of(podsets, item.admission))]
    found = counted(podsets, least, memory_of(snapshot, item.admission.pool))
    return np.array([found.get(name, 0) for name in snapshot.resources], np.int64)


def budgets(case: Case, tree: Tree) -> Iterator[Fault]:
    """Nobody starts who could overrun what is left of a budget by its time limit."""
    if all(queue.budget is None for queue in case.snapshot.queues.values()):
        return
    now = case.snapshot.now
    for item in case.starts:
        path = tree.paths.get(item.workload.queue, ()) if item.role == "new" else ()
        gpus = core_of(case.snapshot, item)[case.snapshot.resources.index(GPU)] / 1000
        for queue in path:
            since, period = queue.ledger.budget_since, queue.budget_period
            spent = 0.0 if since is not None and period and now >= since + period else queue.ledger.budget_spent
            cost = gpus * (limit_of(path, item.workload) or 0.0)
            if queue.budget is not None and gpus and spent + cost > queue.budget:
                yield Fault(item.workload.key, "Budget", queue.name)


def limit_of(path: Sequence[Queue], workload: Workload) -> float | None:
    """The time limit that is enforced: its own or its queue's default, at most its queues' maximum."""
    own = workload.time_limit
    if own is None:
        own = next((one.default_time_limit for one in path if one.default_time_limit is not None), None)
    most = [one.max_time_limit for one in path if one.max_time_limit is not None]
    return min([*most, *([own] if own is not None else [])], default=None)


def misdealt(case: Case, tree: Tree) -> str:
    """The first queue whose share no division allows: siblings get no more than their parent is due, each at most its
    demand, at least what it holds of its guaranteed, and nothing is left while one asks that has a weight."""
    snapshot, stated = case.snapshot, case.plan.shares
    stands = [Held(one.workload, one.admission) for one in snapshot.running if not one.is_leaving]
    asks = [Held(workload, full_of(workload, pool.name)) for workload in snapshot.pending for pool in snapshot.pools]
    asks += [Held(one.workload, rest_of(one)) for one in snapshot.running if any(lacks(one))]
    held = sums_of(snapshot, tree, stands)
    asked = replace(held, held=held.held.copy())
    asked.add_all(snapshot, [*case.leaves, *asks])
    names, limits = list(snapshot.queues), caps_of(snapshot, lambda quota: quota.limit)
    groups: dict[tuple[str, str, int], list[Cap]] = defaultdict(list)
    for cap in caps_of(snapshot, lambda quota: quota.guaranteed):
        groups[snapshot.queues[names[cap.queue]].parent, cap.pool, cap.resource].append(cap)
    for (parent, pool, column), caps in groups.items():
        resource = snapshot.resources[column]
        whole = int(live_of(snapshot, np.isin(snapshot.pool_of, caps[0].pools))[column])
        above = (stated[key] for one in tree.paths.get(parent, ()) if (key := (one.name, pool, resource)) in stated)
        total, is_short = next(above, whole), sum(cap.amount for cap in caps) > whole
        given = {cap: stated.get((names[cap.queue], pool, resource), 0) for cap in caps}
        for cap, share in given.items():
            most = min((one.amount for one in limits if one[:4] == cap[:4]), default=share)
            if not (0 <= share <= min(asked.of(cap), max(most, cap.amount))):
                return names[cap.queue]
            if not is_short and total == whole and share < min(cap.amount, held.of(cap), most):
                return names[cap.queue]
        if sum(given.values()) > total and not (total == whole and is_short):
            return names[caps[0].queue]
    return ""


def full_of(workload: Workload, pool: str) -> Admission:
    """All of its pods, nowhere in particular."""
    podsets = (PodSetPlacement(one.name, (NodeShare("", one.count),)) for one in workload.podsets)
    return Admission(pool, tuple(podsets))


def rest_of(one: Running) -> Admission:
    """The pods that it could have more, nowhere in particular."""
    podsets = zip(one.workload.podsets, lacks(one))
    return Admission(one.admission.pool, tuple(PodSetPlacement(it.name, (NodeShare("", n),)) for it, n in podsets))


def lacks(one: Running) -> list[int]:
    """How many pods of each podset it could have more."""
    counts = counts_of(one.workload.podsets, one.admission)
    return [podset.count - count for podset, count in zip(one.workload.podsets, counts)]
