"""What a plan owes to queues: doors, limits, guarantees, budgets, and a division of shares that the rules allow.

What leaves counts in no queue. What a workload counts, it counts in its queue and all above, in its pool's quotas and
in those of all pools.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from math import inf
from operator import attrgetter, itemgetter

import numpy as np

from fairway.engine import (
    DEVICE,
    GPU,
    MEMORY,
    RANK,
    Admission,
    Columns,
    Keep,
    Mask,
    NodeShare,
    PodSetPlacement,
    Queue,
    Reason,
    Share,
    Snapshot,
    Wait,
    Workload,
    counts_of,
    memory_of,
)

from .layout import Item, Layout, with_profiles
from .placement import Found
from .plan_view import DAY, PlanView, halves

CERTAIN = frozenset((Reason.QUEUE_NOT_FOUND, Reason.QUEUE_INVALID, Reason.NOT_ALLOWED, Reason.QUEUE_STOPPED,
                     Reason.BACKING_OFF, Reason.DEPENDENCY_PENDING, Reason.SCHEDULING_GATED, Reason.CLAIM_MISSING,
                     Reason.CLAIM_UNBOUND))
"""Reasons that can be told from a workload and its queues alone."""
NOTHING, NEVER = Share(0), Share(1 << 62)
HARDEST = Workload("", "", (), priority=NEVER.amount, preemptible=False, time_limit=inf, pools=("",))
"""A queue that takes this workload takes every workload."""


# Doors


def doors(view: PlanView) -> Found:
    is_odd = not open_queues(view).issuperset(map(attrgetter("queue"), map(itemgetter(0), view.starts)))
    is_odd |= any(podset.pod.unready for podset in chain(*view.laid.podsets))
    for item in view.starts if is_odd else view.special:
        if item.role == "new" and (why := refusal(view, item[0]) or ("" if item[0].is_active else "inactive")):
            yield item.key, why


def reasons(view: PlanView) -> Found:
    opened, waits = open_queues(view), view.of(Wait)
    alike = {id(one.podsets): one.podsets for one in view.snapshot.pending}
    unready = {key for key, podsets in alike.items() if any(podset.pod.unready for podset in podsets)}
    odd = [one for one in view.snapshot.pending if one.backs_off_until is not None or one.after or one.gates
           or one.queue not in opened or id(one.podsets) in unready]  # fmt: skip
    if not CERTAIN.isdisjoint(map(attrgetter("reason"), waits)):
        odd += [view.waiting[it.workload] for it in waits if it.reason in CERTAIN and it.workload in view.waiting]
    for asker in {one.key: one for one in odd if one.is_active and not one.refused}.values():
        told, why = view.verdicts.get(asker.key), refusal(view, asker)
        if isinstance(told, Wait) and told.reason is not why and (
            told.reason in CERTAIN or (why and RANK[told.reason] > RANK[why])
        ):
            yield asker.key, f"{told.reason}, but {why}"


def open_queues(view: PlanView) -> set[str]:
    """Queues that take every workload."""
    return {name for name, path in view.paths.items()
            if path and name not in view.parents and all(one.stop == "None" and takes(one, HARDEST) for one in path)}


def refusal(view: PlanView, workload: Workload) -> Reason | None:
    """The first reason, of those told from the workload and its queues alone, why it may not be admitted."""
    path, ended = view.paths.get(workload.queue), view.snapshot.ended
    if path is None:
        return Reason.QUEUE_NOT_FOUND
    if not path or workload.queue in view.parents:
        return Reason.QUEUE_INVALID
    if not all(takes(queue, workload) for queue in path):
        return Reason.NOT_ALLOWED
    if any(queue.stop != "None" for queue in path):
        return Reason.QUEUE_STOPPED
    if workload.backs_off_until is not None and workload.backs_off_until > view.snapshot.now:
        return Reason.REFUSED if workload.refused else Reason.BACKING_OFF
    if not all(key in ended and ended[key].succeeded for key in workload.after):
        return Reason.DEPENDENCY_PENDING
    return stopped(workload)


def stopped(workload: Workload) -> Reason | None:
    """Why its pods could not be scheduled on any node: a gate, or the first claim that is not ready."""
    unready = [why for podset in workload.podsets for why, _ in podset.pod.unready]
    return Reason.SCHEDULING_GATED if workload.gates else Reason(unready[0]) if unready else None


def takes(queue: Queue, workload: Workload) -> bool:
    return (
        (queue.namespaces is None or workload.namespace in queue.namespaces)
        and (queue.max_priority is None or workload.priority <= queue.max_priority)
        and (queue.max_time_limit is None or (workload.time_limit or 0) <= queue.max_time_limit)
        and (workload.preemptible or queue.allows_nonpreemptible is not False)
        and (not queue.pools or not workload.pools or not set(queue.pools).isdisjoint(workload.pools))
    )


# Quotas


class Books:
    """Quotas by row: `names`: queue, pool as named and resource; what is `owed`, the `limit`, the `share` that the plan
    states, the `whole` of what is live in the pool, and what is `held`, with all below the queue."""

    def __init__(self, view: PlanView) -> None:
        self.view, snapshot = view, view.snapshot
        live = {pool.name: live_of(snapshot, snapshot.pool_of == row) for row, pool in enumerate(snapshot.pools)}
        live["*"] = live_of(snapshot, snapshot.pool_of >= 0)
        self.names: list[tuple[str, str, str]] = []
        self._rows: dict[str, list[int]] = defaultdict(list)
        self._under: dict[tuple[str, str], Columns] = {}
        table: list[tuple[int, ...]] = []
        for name, quota in ((queue.name, quota) for queue in snapshot.queues.values() for quota in queue.quotas):
            owed, limits = dict(quota.guaranteed), dict(quota.limit)
            for column, resource in enumerate(snapshot.resources if quota.pool in live else ()):
                if resource in owed or resource in limits:
                    whole = int(live[quota.pool][column])
                    bounds = owed.get(resource, NOTHING), limits.get(resource, NEVER)
                    amounts = (one.amount * (whole if one.is_relative else 1000) // 1000 for one in bounds)
                    self._rows[name].append(len(self.names))
                    self.names.append((name, quota.pool, resource))
                    table.append((column, *amounts, view.plan.shares.get(self.names[-1], 0), whole))
        self.column, self.owed, self.limit, self.share, self.whole = np.array(table, np.int64).reshape(-1, 5).T
        self.queue = np.array([queue for queue, _, _ in self.names], np.str_)
        self.held = np.zeros(len(self.names), np.int64)

    def count(self, workload: Workload, pool: str, amounts: Columns) -> Columns:
        """int64[row]: where these amounts of a workload count."""
        key, found = (workload.queue, pool), np.zeros_like(self.held)
        if key not in self._under:
            above = chain.from_iterable(self._rows.get(queue.name, ()) for queue in self.view.path(workload))
            self._under[key] = np.array([row for row in above if self.names[row][1] in ("*", pool)], np.int64)
        rows = self._under[key]
        found[rows] = amounts[self.column[rows]]
        return found

    def part(self, laid: Layout, at: int) -> Columns:
        """int64[row]: what an item counts."""
        return self.count(laid.items[at].workload, laid.items[at].admission.pool, laid.counted[laid.form_of[at]])

    def sum(self, laid: Layout, items: Iterable[int]) -> Columns:
        """int64[row]: what items count together."""
        groups: dict[tuple[str, str], list[int]] = defaultdict(list)
        for at in items:
            groups[laid.items[at][0].queue, laid.items[at][1].pool].append(at)
        total = np.zeros_like(self.held)
        for (_, pool), those in groups.items():
            total += self.count(laid.items[those[0]].workload, pool, laid.counted[laid.form_of[those]].sum(axis=0))
        return total


def live_of(snapshot: Snapshot, mask: Mask) -> Columns:
    """int64[resource]: what usable nodes offer."""
    return with_profiles(snapshot, snapshot.capacity[:, snapshot.is_usable & mask].sum(axis=1))


def limits(view: PlanView) -> Found:
    if any(quota.limit for queue in view.snapshot.queues.values() for quota in queue.quotas):
        books, laid = Books(view), view.laid
        books.held += books.sum(view.standing, range(len(view.stands))) - books.sum(laid, laid.of("evicted"))
        books.held += books.sum(laid, laid.of("moved", "told"))
        missing = Layout(view.snapshot, list(lost(view)))
        books.held += books.sum(missing, range(len(missing.items)))
        books.held += _kept(view, books)
        yield from beyond(books, books.limit, laid, laid.of("new", "more"))


def _kept(view: PlanView, books: Books) -> Columns:
    """int64[row]: the memory that workloads hold which are paused, or about to be."""
    snapshot, found = view.snapshot, np.zeros_like(books.held)
    column = snapshot.resources.index(MEMORY)
    kept = [(one.workload.queue, one.admission.pool, memory_of(one.workload.podsets, one.admission))
            for one in snapshot.running if one.is_pausing and not one.is_saving]
    for pod in snapshot.pods:
        if pod.pause and (row := snapshot.row_of.get(pod.node)) is not None and snapshot.pool_of[row] >= 0:
            pool = snapshot.pools[snapshot.pool_of[row]].name
            kept.append((pod.pause.queue, pool, dict(pod.pod.requests).get(MEMORY, 0)))
    for queue, pool, memory in kept:
        amounts = np.zeros(len(snapshot.resources), np.int64)
        amounts[column] = memory
        found += books.count(Workload("", queue, ()), pool, amounts)
    return found


def lost(view: PlanView) -> Iterator[Item]:
    """Pods of those kept that may come back yet."""
    for one in view.snapshot.running:
        if one.lost and not one.is_leaving and isinstance(view.verdicts.get(one.workload.key), Keep):
            placements = tuple(PodSetPlacement(name, (NodeShare("", count),)) for name, count in one.lost)
            yield Item(one.workload, Admission(one.admission.pool, placements), "stands")


def cores(view: PlanView) -> Found:
    """The non-preemptible count by their first minCount pods."""
    fixed = [item for item in view.starts if not item[0].preemptible and item.role in ("new", "told")]
    if not any(item.role == "new" for item in fixed):
        return
    fixed += [item for item in view.stands if not item[0].preemptible and item.key not in view.going]
    books, laid = Books(view), Layout(view.snapshot, [halves(item)[0] for item in fixed])
    books.held += books.sum(laid, laid.of("stands", "told"))
    yield from beyond(books, books.owed, laid, laid.of("new"))


def beyond(books: Books, most: Columns, laid: Layout, items: Sequence[int]) -> Found:
    """Items, in order, with which a queue would hold more than that."""
    full = books.held + books.sum(laid, items)
    for at in items if ((full > most) & (full > books.held)).any() else ():
        part = books.part(laid, at)
        over = (part > 0) & (books.held + part > most)
        if over.any():
            yield laid.items[at].key, f"{' '.join(books.names[over.argmax()])} {most[over.argmax()]}"
        else:
            books.held += part


def budgets(view: PlanView) -> Found:
    """What running workloads can come to counts as spent, with what they lost, and what was promised; of what stops,
    what it used; and what earlier attempts used in this period of all that have not ended."""
    bounded = [queue for queue in view.snapshot.queues.values() if queue.budget is not None]
    if not bounded:
        return
    now, laid = view.snapshot.now, costs(view, view.laid)
    stands = [*costs(view, view.standing), *costs(view, Layout(view.snapshot, list(lost(view))))]
    uses = [(item.workload, cost) for item, cost in (*stands, *(one for one in laid if one[0].role == "leaving"))]
    before = [one for one in (*view.waiting.values(), *(it.workload for it in view.snapshot.running)) if one.attained]
    starts = [pair for pair in laid if pair[0].role in ("told", "new", "more")]
    owed = {one.workload.key for one in view.snapshot.running if one.lost or one.is_promised}
    for queue in bounded:
        since, period, most = queue.ledger.budget_since, queue.budget_period, queue.budget or 0
        passed = 0.0 if since is None or not period else (now - since) // period * period
        spent, begin = 0.0 if passed else queue.ledger.budget_spent, -inf if period is None else now - period
        if since is not None and period and since + passed >= queue.created + period:
            begin = since + passed
        below = {name for name, path in view.paths.items() if queue in path}
        spent += sum(cost for one, cost in uses if cost and one.queue in below)
        for one in before:
            told = sum(part for at, end, part in one.days if at in below and end > begin)
            untold = one.attained - sum(part for _, _, part in one.days) if one.queue in below else 0.0
            spent += max(0.0, told + untold)
        for item, cost in starts:
            if cost and queue in view.path(item.workload):
                if item.key not in owed and spent + cost > most:
                    yield item.key, queue.name
                else:
                    spent += cost


def costs(view: PlanView, laid: Layout) -> list[tuple[Item, float]]:
    """GPU-seconds of each item up to its time limit; without one a day, or, where runtimes were learned, none. Of what
    stops, up to now."""
    gpus = laid.counted[laid.form_of, view.snapshot.resources.index(GPU)] / DEVICE
    return [(item, float(held) * _lasts(view, item)) for item, held in zip(laid.items, gpus)]


def _lasts(view: PlanView, item: Item) -> float:
    one = view.running.get(item.key) if item.role in ("stands", "leaving") else None
    ran = 0.0 if one is None or one.admitted_at is None else view.snapshot.now - one.admitted_at
    if one and item.key in view.going:
        return ran
    if (limit := view.time_limit(item.workload)) is not None:
        return max(ran, limit)
    return 0.0 if any(queue.ledger.runtimes for queue in view.path(item.workload)) else max(ran, DAY)


# Shares


def invalid_share(view: PlanView) -> str:
    """The first queue whose share no division allows: siblings get no more than their parent is due, there and in all
    pools, each at most its demand and at least what it holds of its guaranteed."""
    snapshot, books = view.snapshot, Books(view)
    if not books.names:
        return ""
    held = books.sum(view.standing, range(len(view.stands))) + books.sum(view.laid, view.told)
    wanting = Layout(snapshot, [*view.leaves, *unmet(view)])
    asked = held + books.sum(wanting, range(len(wanting.items))) + _kept(view, books)
    is_wrong = (books.share < 0) | (books.share > np.minimum(asked, np.maximum(books.limit, books.owed)))
    groups: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for row, (queue, pool, resource) in enumerate(books.names):
        owners = (one.name for one in view.paths[queue][1:] if (one.name, pool, resource) in view.governing)
        groups[next(owners, ""), pool, resource].append(row)
    for (parent, pool, resource), rows in groups.items():
        around = ("*",) if pool != "*" else tuple(one.name for one in snapshot.pools if len(snapshot.pools) == 1)
        above, *wider = (nearest(view, parent, name, resource) for name in (pool, *around))
        whole, owed, share = books.whole[rows[0]], books.owed[rows], books.share[rows]
        bounds = (whole if above is None else above, *wider)
        total, is_short = min(due for due in bounds if due is not None), owed.sum() > whole
        if total == whole and not is_short:
            is_wrong[rows] |= share < np.minimum(np.minimum(owed, held[rows]), books.limit[rows])
        if share.sum() > total and not (total == whole and is_short):
            is_wrong[rows[0]] = True
    return books.names[is_wrong.argmax()][0] if is_wrong.any() else ""


def nearest(view: PlanView, parent: str, pool: str, resource: str) -> int | None:
    """The share of the nearest queue that has one, from the parent up."""
    shares = (view.plan.shares.get((queue.name, pool, resource)) for queue in view.paths.get(parent, ()))
    return next((share for share in shares if share is not None), None)


def unmet(view: PlanView) -> list[Item]:
    """What is asked for and not given, nowhere in particular: by all that wait and are not stopped, in the pools that
    they may use, and by those that run with fewer pods than they could have."""
    snapshot, stopped = view.snapshot, (Reason.QUEUE_STOPPED, Reason.DEPENDENCY_PENDING)
    missing: dict[object, Admission] = {}
    def lacks(one: Workload, pool: str, counts: Iterable[int]) -> Item | None:
        if not any(pods := tuple([podset.count - count for podset, count in zip(one.podsets, counts)])):
            return None
        podsets = tuple(PodSetPlacement(it.name, (NodeShare("", n),)) for it, n in zip(one.podsets, pods))
        return Item(one, missing.setdefault((id(one.podsets), pool, pods), Admission(pool, podsets)), "stands")
    asking = [one for one in snapshot.pending if refusal(view, one) not in stopped]
    waiting = (lacks(one, pool.name, repeat(0)) for one in asking for pool in snapshot.pools
               if all(pool.name in names for names in (one.pools, *(at.pools for at in view.path(one))) if names))
    held = ((one.workload, one.admission) for one in snapshot.running)
    running = (lacks(one, there.pool, counts_of(one.podsets, there)) for one, there in held)
    return [item for item in chain(waiting, running) if item]
