"""What workloads that are evicted, shrunk or kept waiting could object.

A victim may be taken only for a workload that starts or grows after it, by a right (priority in one queue, lent share
taken back from another, a move that both queues allow, a hold), unprotected, and needed: were it spared, the newcomer
would find less than it takes. Room and quota count as they were at the newcomer's turn, with the minimums of all before
it.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, product

import numpy as np

from fairway.engine import GPU, Cause, Columns, Evict, NodeShare, PodSetPlacement, Pool, Resize, Running

from .layout import Item, Layout
from .plan_view import DAY, PlanView, inherited
from .queues import Books, invalid_share

MIN_RUNTIME, MAX_EVICTIONS, HOUR = 600.0, 6, 3600.0
FOR_ANOTHER = (Cause.PREEMPTED, Cause.RECLAIMED, Cause.CONSOLIDATED, Cause.HOLD_TAKEN)
Taking = Evict | Resize
Breach = tuple[str, str, str]  # the workload that breaks a rule, which rule, and how


def evictions(view: PlanView) -> Iterator[Breach]:
    """Every victim: for which workload, by what right, unprotected, and needed."""
    taken: dict[str, list[Taking]] = defaultdict(list)
    verdicts: list[Taking] = [*view.of(Evict), *view.of(Resize)]
    waits = {item.key: item.after for item in view.special if item.role in ("new", "more")}
    for verdict in verdicts:
        one = view.running.get(verdict.workload)
        if one is None or one.is_leaving:
            continue
        if isinstance(verdict, Evict) and verdict.cause not in FOR_ANOTHER:
            if not is_due(view, one, verdict.cause):
                yield verdict.workload, "Victim", f"not {verdict.cause}"
        elif isinstance(verdict, Evict) or sum(dict(verdict.after).values()) < sum(dict(verdict.before).values()):
            if verdict.workload in waits.get(verdict.beneficiary, ()):
                taken[verdict.beneficiary].append(verdict)
            else:
                yield verdict.workload, "Vain", verdict.beneficiary
    if taken:
        yield from VictimRules(view, taken).judge()


def is_due(view: PlanView, one: Running, cause: Cause) -> bool:
    """Whether a workload must leave for no other's sake."""
    path, used, row_of = view.path(one.workload), one.admission.nodes, view.snapshot.row_of
    nodes = [view.snapshot.nodes[row_of[name]] for name in used if name in row_of]
    others = [kept for kept in view.snapshot.reservations if kept.queue not in {queue.name for queue in path}]
    is_lost = len(nodes) < len(used) or any(node.is_unhealthy or not node.is_ready for node in nodes)
    is_leaving = any(node.is_leaving or (one.lost and node.is_unschedulable) for node in nodes)
    drains = is_leaving or any(queue.stop == "Drain" for queue in path)
    return {
        Cause.DRAINED: is_lost or drains,
        Cause.NODE_LOST: is_lost,
        Cause.RESERVED: any(used.intersection(kept.nodes) or kept.pool == one.admission.pool for kept in others),
        Cause.PODS_LOST: bool(one.lost),
        Cause.SUSPENDED: not one.workload.is_active,
    }.get(cause, True)


class VictimRules:
    """The starts in order, each with the room (`left` of each cell) and the queues (`books`) as it finds them."""

    def __init__(self, view: PlanView, taken: dict[str, list[Taking]]) -> None:
        self.view, self.taken, self.starts = view, taken, [*chain(*view.turns)]
        self.laid = Layout(view.snapshot, [*self.starts, *view.leaves])
        self.books, self.left, self.invalid_share = Books(view), view.free.copy(), invalid_share(view)
        self.parts: dict[int, Columns] = {}
        self.nothing = np.zeros_like(self.books.held)
        self.leaves = {item.key: at for at, item in enumerate(self.laid.items) if at >= len(self.starts)}
        self.ahead = {item.key: at for at, item in reversed(list(enumerate(self.starts)))}
        self.evicted: dict[str, float] = {}  # milli-GPU in the token bucket of each pool
        self.moved: dict[str, int] = {}  # what counts where it goes already
        self.heirs = {verdict.workload: key for key, verdicts in taken.items() for verdict in verdicts}
        unnamed = [at for at in self.laid.of("evicted") if self.laid.items[at].key not in self.heirs]
        self.books.held += self.books.sum(view.standing, range(len(view.stands))) - self.books.sum(self.laid, unnamed)

    def judge(self) -> Iterator[Breach]:
        named = set(self.heirs)
        for at, item in enumerate(self.starts):
            victims = self.taken.pop(item.key, []) if item.role in ("new", "more") else []
            if victims:
                yield from self._hear(at, item, victims)
                yield from self._overdraws(item, victims)
            for gone in named.intersection((item.key, *(verdict.workload for verdict in victims))):
                named.discard(gone)
                self.books.held -= self.part(self.leaves[gone])
            self.books.held += self.part(at)
            self._take(at, 1)
            self.ahead.pop(item.key, None)
            if item.role == "moved":
                self.moved[item.key] = at

    def _overdraws(self, item: Item, verdicts: Sequence[Taking]) -> Iterator[Breach]:
        """The token bucket of the pool: once it is full, no further workload has others stopped."""
        stopped = [one for one in verdicts if isinstance(one, Evict) and one.cause is not Cause.HOLD_TAKEN]
        pool = next((one for one in self.view.snapshot.pools if one.name == item.admission.pool), None)
        if not stopped or pool is None or pool.eviction_gpus is None:
            return
        if self.evicted.setdefault(pool.name, drained(self.view, pool)) >= pool.eviction_gpus:
            yield stopped[0].workload, "Victim", f"the evictionBudget of {pool.name} is used up"
        gpu = self.view.snapshot.resources.index(GPU)
        forms = (self.laid.form_of[self.leaves[one.workload]] for one in stopped)
        self.evicted[pool.name] += sum(int(self.laid.counted[form, gpu]) for form in forms)

    def part(self, at: int) -> Columns:
        """int64[row]: what an item counts in quotas."""
        if at not in self.parts:
            self.parts[at] = self.books.part(self.laid, at)
        return self.parts[at]

    def gone(self, victims: Sequence[int]) -> Columns:
        """int64[row]: what counts of victims: what they have, or take with them, maybe fewer pods, where they move."""
        found = (self.part(self.moved.get(self.laid.items[at].key, at)) for at in victims)
        return sum(found, self.nothing)

    def _take(self, at: int, sign: int) -> None:
        """Take the item's room, or give it back."""
        cells, amounts = self.laid.cells(at)
        self.left[cells] -= sign * amounts

    def _hear(self, at: int, item: Item, verdicts: Sequence[Taking]) -> Iterator[Breach]:
        reclaimed = []
        for verdict in verdicts:
            one = self.view.running[verdict.workload]
            if why := self._wrong(at, item, one, verdict):
                yield verdict.workload, "Victim", why
            elif cause_of(item, one, verdict) is Cause.RECLAIMED:
                reclaimed.append(self.leaves[verdict.workload])
        victims = [self.leaves[verdict.workload] for verdict in verdicts]
        yield from self._unneeded(at, item, victims)
        if reclaimed:
            yield from self._unentitled(at, item, victims, reclaimed)

    def _wrong(self, at: int, item: Item, one: Running, verdict: Taking) -> str:
        """Why a workload may not be taken for another."""
        taker, victim, is_whole = item.workload, one.workload, isinstance(verdict, Evict)
        is_own, cause = taker.queue == victim.queue, cause_of(item, one, verdict)
        paths = [self.view.path(one) for one in (taker, victim)]
        rights = {
            Cause.HOLD_TAKEN: one.backfilled_for == taker.key,
            Cause.PREEMPTED: is_own and taker.preempts and victim.priority < taker.priority,
            Cause.RECLAIMED: not is_own,
            Cause.CONSOLIDATED: taker.preemptible and isinstance(verdict, Evict) and verdict.admission is not None
            and all(inherited(path, "consolidates", 0.0) for path in paths),
        }
        if not rights[cause]:
            return f"no right to {cause}"
        if cause is Cause.HOLD_TAKEN or not is_whole:
            return ""
        return self._protected(at, item, one, cause) if victim.preemptible else "not preemptible"

    def _protected(self, at: int, item: Item, one: Running, cause: Cause) -> str:
        """What protects it from being stopped: a minRuntime that was set and the pair rule from all; the default
        minRuntime and maxEvictions only from takers beyond their guarantee."""
        now, victim, is_moved = self.view.snapshot.now, one.workload, cause is Cause.CONSOLIDATED
        last = victim.evictions[-1] if victim.evictions else None
        if not is_moved and last and last.beneficiary == item.key and now - last.time < HOUR:
            return "the same pair again"
        lost = [self.leaves[victim.key]] if any(podset.is_elastic for podset in victim.podsets) else []
        is_within = self.is_within(at, lost)  # what it lost of its surplus before is not told
        usual = 0.0 if is_within else MIN_RUNTIME
        path, other = self.view.path(victim), self.view.path(item.workload)
        top = path[next((at for at, queue in enumerate(path[1:]) if queue in other), len(path) - 1) :]
        least = inherited(path, "preempt_min_runtime", 0.0) if cause is Cause.PREEMPTED else min(
            inherited(way, "min_runtime", usual) for way in (path, top))
        if one.admitted_at is not None and now - one.admitted_at < least:
            return "within its minimum runtime"
        if is_within:
            return ""
        recent = sum(now - old.time < DAY and old.reason != Cause.CONSOLIDATED for old in victim.evictions)
        is_worn = not is_moved and recent >= inherited(path, "max_evictions", MAX_EVICTIONS)
        return "maxEvictions" if is_worn else ""

    def is_within(self, at: int, victims: Sequence[int] = ()) -> bool:
        """Whether the taker's queue, or one above it, stays within what it is guaranteed of all that it asks for, once
        the victims are gone; one that grows, with its first pod more."""
        part, books = self._asked(at), self.books
        is_asked = part > 0
        is_over = is_asked & (books.held + part - self.gone(victims) > books.owed)
        return bool(set(books.queue[is_asked]) - set(books.queue[is_over])) if is_over.any() else bool(is_asked.any())

    def _asked(self, at: int) -> Columns:
        """int64[row]: what counts when it is asked whether others may be taken for it."""
        return self._first(at) if self.starts[at].role == "more" else self.part(at)

    def _first(self, at: int) -> Columns:
        """int64[row]: the least that one pod of an item counts, of those that count at all."""
        item, admission = self.laid.items[at], self.laid.items[at].admission
        pods = [PodSetPlacement(one.name, (NodeShare(one.nodes[0].node, 1),)) for one in admission.podsets]
        laid = Layout(self.view.snapshot, [item._replace(admission=replace(admission, podsets=(one,))) for one in pods])
        counted = [part for one in range(len(pods)) if (part := self.books.part(laid, one)).any()]
        least: Columns = np.min(counted or [np.zeros_like(self.books.held)], axis=0)
        return least

    def _unneeded(self, at: int, item: Item, victims: Sequence[int]) -> Iterator[Breach]:
        """Were it spared, something that the newcomer takes would not be there: room, a device, or quota, that is a
        limit or, if it reclaims, a share. Of those who are gone for another that comes later, it has what that one
        leaves."""
        pods = [podset.pod for one in (at, *victims) for podset in self.laid.items[one].workload.podsets]
        if any(pod.pod_affinity or pod.spread or pod.host_ports or pod.alignment_required for pod in pods):
            return
        heirs = ((gone, self.heirs.get(gone, item.key)) for gone in item.after)
        later = {gone: heir for gone, heir in heirs if heir != item.key and heir in self.ahead}
        if any(one.is_elastic for gone in later for one in self.view.running[gone].workload.podsets):
            return  # its surplus may have been given before it went, and the plan does not say how much
        changes = [(at, 1), *((self.ahead[heir], 1) for heir in set(later.values()))]
        changes += [(self.leaves[key], -1) for key in item.after if key in self.leaves]
        if item.role == "more":  # pod by pod, others between
            changes = [(one, 1) for one in range(at, len(self.starts))] + [(one, -1) for one in self.leaves.values()]
        for one, sign in changes:
            self._take(one, sign)
        wanted, books, part = self.laid.cells(at)[0], self.books, self.part(at)
        left = dict(zip(wanted.tolist(), self.left[wanted].tolist()))
        is_reclaim = any(self.laid.items[one].workload.queue != item.workload.queue for one in victims)
        bound = np.minimum(books.limit, books.share) if is_reclaim else books.limit
        spare = bound - books.held - part + self.gone(victims)
        for one in victims if min(left.values(), default=0) >= 0 else ():
            is_missed = any(left.get(cell, amount) < amount for cell, amount in self.laid.cells(one).T.tolist())
            given = self.part(one)
            if not is_missed and not ((part > 0) & (given > 0) & (spare < given)).any():
                yield self.laid.items[one].key, "Needed", item.key
        for one, sign in changes:
            self._take(one, -sign)

    def _unentitled(self, at: int, item: Item, victims: Sequence[int], reclaimed: Sequence[int]) -> Iterator[Breach]:
        """Reclaim: the asking leaf within its share (one that grows, with its first pod more), the losing branch above
        what it is due before it loses the last (and largest) of them. Who gave it surplus, and then more to another, is
        told for that one."""
        books, part = self.books, self._asked(at)
        if self.invalid_share:
            yield item.key, "Entitled", f"no division gives {self.invalid_share} that share"
        heirs = {key: self.heirs.get(key, item.key) for key in item.after}
        later = [self.leaves[key] for key, heir in heirs.items() if heir != item.key and heir in self.ahead]
        after = books.held + part - self.gone([*victims, *later])
        if ((books.queue == item.workload.queue) & (part > 0) & (after > books.share)).any():
            yield item.key, "Entitled", "beyond its share"
        due = books.owed if self.is_within(at, victims) else np.maximum(books.owed, books.share)
        branches: dict[tuple[str, str], list[int]] = defaultdict(list)
        mine, pool = {queue.name for queue in self.view.path(item.workload)}, item.admission.pool
        theirs = {(name, resource) for name, within, resource in self.view.governing if within == pool}
        for one, resource in product(reclaimed, sorted({resource for _, resource in theirs})):
            names = [queue.name for queue in self.view.path(self.laid.items[one].workload) if queue.name not in mine]
            branches[next((name for name in reversed(names) if (name, resource) in theirs), ""), resource].append(one)
        given = set[int]()
        for (branch, resource), lost in branches.items():
            is_above = books.held - self.gone(lost) + np.maximum.reduce([*map(self.part, lost)]) > due
            if is_above[[name == branch and what == resource for name, _, what in books.names]].any():
                given.update(lost)
        for one in {*reclaimed} - given:
            loser = self.laid.items[one]
            yield loser.key, "Entitled", f"{loser.workload.queue} is not above what it is due"


def drained(view: PlanView, pool: Pool) -> float:
    """Milli-GPU in a pool's token bucket before this plan."""
    ledgers = (queue.ledger.evicted for queue in view.snapshot.queues.values())
    entries = sorted((one.time, one.value) for ledger in ledgers for name, one in ledger if name == pool.name)
    rate, level, then = (pool.eviction_gpus or 0) / pool.eviction_period, 0.0, 0.0
    for time, value in (*entries, (view.snapshot.now, 0.0)):
        level, then = max(0.0, level - rate * (time - then)) + value, time
    return level


def cause_of(taker: Item, one: Running, verdict: Taking) -> Cause:
    """By what right it is taken: surplus is given for the same reasons."""
    if isinstance(verdict, Evict):
        return verdict.cause
    if one.backfilled_for == taker.key:
        return Cause.HOLD_TAKEN
    return Cause.PREEMPTED if taker.workload.queue == one.workload.queue else Cause.RECLAIMED
