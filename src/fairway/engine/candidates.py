"""Which running workloads, or surplus pods of theirs, a rule allows to be evicted or shrunk, and in which order.

Surplus goes before any core, the queue most above its share first, then lower priority, lower cost, fewer, younger.

A victim that fits elsewhere is moved, and does not count as taken. So victims are chosen knowing which of them could
be moved. That is asked of many and must be cheap: nothing is written, and what is idle is looked at as it is, without
what the victim itself holds on other nodes. Whether a victim does move is known when all is placed.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from copy import copy
from functools import cached_property
from heapq import heappop, heappush
from itertools import chain, product
from math import inf
from operator import attrgetter, itemgetter

import numpy as np

from .cycle import Cycle
from .draft import Room
from .eligibility import over_limit
from .eviction_rules import EvictionRule, Shield, cost, paired, young
from .feasibility import pool_row
from .labels import selects
from .model import GPU, Admission, Disruption, NodeShare, PodClass, PodSet, PodSetPlacement, Running, Workload
from .place import place
from .plan import Cause
from .pod_affinity import attracts
from .resources import counts_of
from .snapshot import Columns, Mask

Sort = tuple[int, frozenset[str]]
"""The stage of what is given, and the queues that give: what decides first between offers. Stages: 0 surplus, 1 a core,
and 2 more for each pod that a PodDisruptionBudget does not allow to go."""
Price = tuple[float, float, int, float, float]
"""Priority, cost, how many, all of those that are not moved; the cost of those that are; age negated: the smaller goes
first among offers of a sort."""
Covered = tuple[tuple[Disruption, int], ...]  # podDisruptionBudgets, and how many of some pods each covers
PodAt = tuple[str, int, int]  # a pod of an admission: podset, share, place in the share
Turn = tuple[int, float, float, int, int, str]  # which candidate goes first, its queue apart: the smaller
Offer = tuple[Sort, Price, list["Candidate"]]
FREE: "Offer" = ((0, frozenset()), (0, 0.0, 0, 0.0, 0.0), [])


class Later(str):
    """A name that sorts before the names that are less than it."""

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


class Victim:
    """A running workload that a rule reaches. `surplus`: how many pods of each podset it can lose and run on; `lost`:
    those it has lost in this cycle; `core`: all of it, as a candidate; `pods`: of podsets with surplus, by name."""

    __slots__ = ("core", "lost", "one", "pods", "surplus")

    def __init__(self, one: Running, cycle: Cycle) -> None:
        self.one = one
        self.lost: set[PodAt] = set()  # not `set[PodAt]()`, which takes five times as long
        self.pods: dict[str, list[Candidate]] = {}
        self.core = Candidate(self, None, one.admission, cycle)
        counts = zip(one.workload.podsets, self.core.counts)
        self.surplus = {one.name: count - one.min_count for one, count in counts if count > one.min_count}
        for pod, alone in pods_of(one.admission, self.surplus) if self.surplus else ():
            self.pods.setdefault(pod[0], []).append(Candidate(self, pod, alone, cycle))

    def rest(self) -> Admission:
        """What it holds without the pods it has lost."""
        return without(self.one.admission, self.lost)


class Victims(dict[str, Victim]):
    """Those of a cycle, by key."""


class Candidate:
    """What a victim can give at once: one surplus pod, or, `pod` None, all that is left of it. `order`: which goes
    first, its queue apart: lower priority, lower cost, younger; of one workload's pods the last rank."""

    __slots__ = ("budgets", "cost", "counted", "counts", "key", "order", "pod", "queue", "rows", "victim")

    def __init__(self, victim: Victim, pod: PodAt | None, admission: Admission, cycle: Cycle) -> None:
        self.victim, self.pod = victim, pod
        workload, (_, share, index) = victim.one.workload, pod or ("", 0, 0)
        self.key, self.queue, podsets = workload.key, workload.queue, workload.podsets
        self.counts = counts_of(podsets, admission)
        self.counted = cycle.tree.amounts(podsets, self.counts, admission.pool)
        self.rows = cycle.draft.holdings(podsets, admission)
        budgets = cycle.snapshot.disruptions
        self.budgets = covered(budgets, podsets, admission) if budgets else ()
        self.cost: float = cost(victim.one, self.counted, cycle) if pod is None else victim.core.cost
        self.order: Turn = workload.priority, self.cost, -workload.submitted, -share, -index, Later(self.key)

    def to_move(self) -> "Candidate":
        """The same workload as a candidate for a move: the fewest GPUs move, whatever their priority."""
        moved = copy(self)
        moved.order = 0, self.counted.get(GPU, 0), *self.order[2:]
        return moved

    def take(self, cycle: Cycle, *, back: bool = False) -> None:
        """It goes, or is given `back`."""
        self.count(cycle, -1 if back else 1)
        if self.pod is None:
            (cycle.draft.remain if back else cycle.draft.leave)(self.key)
        else:
            (self.victim.lost.discard if back else self.victim.lost.add)(self.pod)
            cycle.draft.resize(self.key, self.victim.rest())

    def count(self, cycle: Cycle, times: int) -> None:
        """Count its pods in their PodDisruptionBudgets, and an eviction in the pool's bucket; a shrink is none."""
        for budget, pods in self.budgets:
            cycle.disrupted[budget.key] += pods * times
        if self.pod is None:
            cycle.evicted[self.victim.one.admission.pool] += self.counted.get(GPU, 0) * times


class Prices:
    """Nodes by the price of one more pod of a class, each as it was when it was last looked at. Queues change their
    rank with every victim, so offers are kept by sort and sorts compared when asked."""

    def __init__(self, rule: EvictionRule) -> None:
        self._rule = rule
        self._heaps: dict[Sort, list[tuple[Price, int]]] = {}
        self._last: dict[int, tuple[Price, int]] = {}  # of each node; what was put before is void

    def put(self, offer: Offer, row: int) -> None:
        entry = self._last[row] = offer[1], row
        heappush(self._heaps.setdefault(offer[0], []), entry)

    def pop(self) -> tuple[Sort, Price, int] | None:
        """Sort, price and node of the best offer known, which is then known no more."""
        for heap in self._heaps.values():
            while heap and self._last.get(heap[0][1]) is not heap[0]:
                heappop(heap)
        heads = ((sort[0], self._rule.ranked(sort[1]), heap[0], sort) for sort, heap in self._heaps.items() if heap)
        *_, sort = min(heads, key=itemgetter(0, 1, 2), default=(None,))
        if sort is None:
            return None
        price, row = heappop(self._heaps[sort])
        del self._last[row]
        return sort, price, row


class CandidateSet:
    """All that a rule reaches in a pool, by node; alike rules of a cycle share it. `prices`: of each class, and how
    much of the draft's log was seen when it was last asked for. `alike`: by podsets, where pods look beside them."""

    def __init__(self, rule: EvictionRule, pool: str, cycle: Cycle) -> None:
        self.rule, self.pool, self.cycle = rule, pool, cycle
        self.all: list[Candidate] = []
        self.by_row: defaultdict[int, list[Candidate]] = defaultdict(list)
        self.prices: dict[tuple[object, ...], tuple[Prices, int]] = {}
        self.shielded: list[tuple[Running, Shield]] = []  # those that may not be stopped, and why
        self.reached = rule.queues()
        victims = cycle.memo.of(Victims)
        for one in chain.from_iterable(map(cycle.running, self.reached)):
            is_there = one.admission.pool == pool and not one.is_leaving and not one.is_promised
            is_completed = one.lost and one.workload.key in cycle.verdicts  # it got its lost pods back in this plan
            if is_there and not is_completed and rule.touches(one) and not young(one, 0.0, cycle):
                key = one.workload.key
                self._enter(victims.get(key) or victims.setdefault(key, Victim(one, cycle)))
        self.all.sort(key=attrgetter("order"))
        self.queues = {candidate.queue for candidate in self.all}
        self.alike: defaultdict[int, list[Running]] = defaultdict(list)
        for one in {each.key: each.victim.one for each in self.all}.values() if cycle.snapshot.is_social else ():
            self.alike[id(one.workload.podsets)].append(one)
        self.has_cores = any(candidate.pod is None for candidate in self.all)
        self._has_budgets = any(candidate.budgets for candidate in self.all)
        self.returned = [candidate.victim.one for candidate in self.all if candidate.victim.one.workload.evictions]
        for candidate in self.all:
            for row in candidate.rows:
                self.by_row[row].append(candidate)

    def _enter(self, victim: Victim) -> None:
        one, rule = victim.one, self.rule  # one that shrank in this cycle is known by the pods it had
        for name, pods in victim.pods.items() if rule.cause is not Cause.CONSOLIDATED else ():
            self.all += pods[-victim.surplus[name] if rule.keeps_first else 0 :]
        shield = rule.shield(one) if one.workload.preemptible else ("preemptible: false", None)
        if shield:
            self.shielded.append((one, shield))
        else:
            self.all.append(victim.core.to_move() if rule.cause is Cause.CONSOLIDATED else victim.core)

    @cached_property
    def most(self) -> Columns:
        """int64[resource, node]: all that the rule reaches; surplus counts twice where its core is reached too."""
        most = np.zeros_like(self.cycle.draft.free)
        given = [(row, amounts[: len(most)]) for one in self.all for row, amounts in one.rows.items()]
        np.add.at(most.T, np.array([row for row, _ in given], np.intp), [amounts for _, amounts in given] or 0)
        return most

    def paired(self, taker: Workload) -> list[tuple[Running, Shield]]:
        """Workloads last evicted for this one, too recently; a hold takes them nevertheless."""
        those = () if self.rule.cause is Cause.HOLD_TAKEN else self.returned
        return [(one, shield) for one in those if (shield := paired(one, taker, self.cycle))]

    def neighbours(self, workload: Workload, leans: Callable[[PodClass, PodClass], bool] = attracts) -> set[str]:
        """Keys of the workloads beside which pods of this one must run."""
        mine = [podset.pod for podset in workload.podsets if podset.pod.pod_affinity or podset.pod.spread]
        return {
            one.workload.key for those in self.alike.values() if mine
            if any(leans(podset.pod, pod) for podset in those[0].workload.podsets for pod in mine) for one in those
        }

    def stage(self, candidate: Candidate) -> int:
        """The stage (`Sort`) of a candidate not taken yet, whatever the number of pods."""
        return 2 * (self.excess((candidate,)) > 0) + (candidate.pod is None)

    def excess(self, candidates: Iterable[Candidate]) -> int:
        """Pods of candidates not taken yet by which their PodDisruptionBudgets would be exceeded."""
        if not self._has_budgets:
            return 0
        pods, disrupted = Counter[Disruption](), self.cycle.disrupted
        for candidate in candidates:
            if candidate.budgets:
                pods.update(dict(candidate.budgets))
        return sum([max(0, min(disrupted[one.key] + count - one.allowed, count)) for one, count in pods.items()])

    def in_order(self, taken: Iterable[Candidate]) -> list[Candidate]:
        """Candidates taken: of budgets not exceeded, surplus, the queue most above its share now, then by `order`."""
        ordered, disrupted = sorted(taken, key=attrgetter("order")), self.cycle.disrupted
        ranks = {queue: self.rule.rank(queue) for queue in {one.queue for one in ordered}}
        over = {one for one in ordered if any(disrupted[it.key] > it.allowed for it, _ in one.budgets)}
        return sorted(ordered, key=lambda one: (one in over, one.pod is None, ranks[one.queue]))

    def in_turn(self, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
        """The same order for a caller that takes each before it asks for the next; they are given by `order`."""
        if self._has_budgets or (len(self.queues) > 1 and len({candidate.queue for candidate in candidates}) > 1):
            yield from self._ranked_in_turn(candidates)
            return
        for candidate in sorted(candidates, key=lambda one: one.pod is None):
            if not self.rule.may_lose(candidate.queue, None):
                return
            yield candidate

    def _ranked_in_turn(self, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
        """Ranks and stages are found anew after each. With a mixed rule a queue that may lose none is asked again."""
        lines: defaultdict[tuple[int, str], list[Candidate]] = defaultdict(list)
        for candidate in sorted(candidates, key=attrgetter("order"), reverse=True):
            lines[self.stage(candidate), candidate.queue].append(candidate)
        heap, refused = list[tuple[int, tuple[float, ...], Turn, str]](), list[tuple[int, str]]()

        def enter(*entries: tuple[int, str]) -> None:
            for stage, queue in entries:
                if line := lines[stage, queue]:
                    heappush(heap, (stage, self.rule.rank(queue), line[-1].order, queue))

        enter(*lines)
        while heap:
            stage, rank, _, queue = heappop(heap)
            if not (line := lines[stage, queue]):
                continue  # its last candidate went to a later stage
            if self.rule.rank(queue) != rank:
                enter((stage, queue))
            elif not self.rule.may_lose(queue, None):
                refused.append((stage, queue))
            elif (later := self.stage(line[-1])) != stage:
                lines[later, queue].append(line.pop())
                lines[later, queue].sort(key=attrgetter("order"), reverse=True)
                enter((later, queue), (stage, queue))
            else:
                yield line.pop()
                enter(*(refused if self.rule.is_mixed else ()), (stage, queue))
                refused.clear()

    def largest_last(self, candidates: Iterable[Candidate], workload: Workload) -> Iterator[Candidate]:
        """An order in which queues can lose the most, for a caller that takes each before it asks for the next. A queue
        may lose a workload while it is above its entitlement: so what gives most of what is asked and governed goes
        last, and before it, the larger first, what leaves the queue something to lose."""
        rule, firsts, later = self.rule, set[str](), list[Candidate]()
        governed = {name for account in self.cycle.accounts(workload, self.pool) for name in account.resources}
        asked = self.cycle.asked(workload, self.pool)
        parts = [(name, amount) for name, amount in asked.items() if amount and name in governed]
        ordered = sorted(candidates, key=attrgetter("order"))
        ordered.sort(key=lambda one: sum(one.counted.get(name, 0) / amount for name, amount in parts), reverse=True)
        for candidate in ordered:
            is_largest = (side := rule.side(candidate.queue)) not in firsts
            firsts.add(side)
            if not is_largest and rule.may_lose(candidate.queue, None):
                self.count(candidate, -1)
                leaves_more = rule.may_lose(candidate.queue, None)
                self.count(candidate, 1)
                if leaves_more:
                    yield candidate
                    continue
            later.append(candidate)
        yield from (candidate for candidate in later if rule.may_lose(candidate.queue, None))

    def count(self, candidate: Candidate, times: int) -> None:
        """Count what it gives in its queues and PodDisruptionBudgets, `times` -1: as if it were gone."""
        for account in self.cycle.tree.ledgers(candidate.queue, self.pool):
            for resource in account.resources:
                account.held[resource] += candidate.counted.get(resource, 0) * times
        for budget, pods in candidate.budgets:
            self.cycle.disrupted[budget.key] -= pods * times

    def is_there(self, candidate: Candidate) -> bool:
        """Whether it is still to be had."""
        if self.cycle.draft.running[candidate.key].is_leaving:
            return False
        lost = candidate.victim.lost
        if candidate.pod is None or not lost:
            return True
        name = candidate.pod[0]
        return candidate.pod not in lost and sum(1 for pod in lost if pod[0] == name) < candidate.victim.surplus[name]

    def may_take_all(self, candidates: list[Candidate]) -> bool:
        """Whether their queues may lose each after those before."""
        counted = list[Candidate]()
        for candidate in candidates:
            if not self.rule.may_lose(candidate.queue, None):
                break
            self.count(candidate, -1)
            counted.append(candidate)
        for candidate in counted:
            self.count(candidate, 1)
        return len(counted) == len(candidates)

    def priced(self, candidates: list[Candidate], moved: Collection[str]) -> Offer:
        """Surplus alone has no cost: no workload starts again; one that is moved does not count as taken."""
        stage = 2 * self.excess(candidates) + any(one.pod is None for one in candidates)
        lost = [one for one in candidates if one.pod is not None or one.key not in moved] if moved else candidates
        gone = sum([one.cost for one in candidates if one.key in moved]) if moved else 0.0
        if not lost:
            return (stage, frozenset()), (-inf, 0.0, 0, gone, 0.0), candidates
        priorities, costs, ages, *_ = zip(*(candidate.order for candidate in lost))
        queues, has_core = frozenset(one.queue for one in lost), any(one.pod is None for one in lost)
        price = max(priorities), sum(costs) if has_core else 0.0, len(lost), gone, max(ages)
        return (stage, queues), price, candidates

    def gives(self, candidate: Candidate, row: int) -> Room:
        """What would come free of a node, pods lost already apart."""
        if candidate.pod is None and candidate.victim.lost:
            podsets = candidate.victim.one.workload.podsets
            return self.cycle.draft.holdings(podsets, candidate.victim.rest()).get(row, ())
        return candidate.rows[row]


class CandidateSets(dict[tuple[object, ...], CandidateSet]):
    """Those of a cycle, by rule and pool."""

    def of(self, rule: EvictionRule, pool: str, cycle: Cycle) -> CandidateSet:
        """The same until the rule reaches one more queue."""
        key = rule.cause, rule.equivalence, pool
        if key not in self or not set(rule.queues()).issubset(self[key].reached):
            self[key] = CandidateSet(rule, pool, cycle)
        return self[key]


def covered(budgets: tuple[Disruption, ...], podsets: tuple[PodSet, ...], admission: Admission) -> Covered:
    """The budgets that cover pods of an admission. Whether one would be exceeded is asked of the cycle."""
    found = Counter[Disruption]()
    for budget, (podset, count) in product(budgets, zip(podsets, counts_of(podsets, admission))):
        if podset.pod.namespace == budget.key.partition("/")[0] and selects(budget.selector, dict(podset.pod.labels)):
            found[budget] += count
    return tuple((budget, count) for budget, count in found.items() if count)


def pods_of(admission: Admission, names: Container[str]) -> Iterator[tuple[PodAt, Admission]]:
    """Each pod by itself, in rank order, of the podsets of these names."""
    for placement in admission.podsets:
        for at, share in enumerate(placement.nodes if placement.name in names else ()):
            for index in range(share.count):
                alone = NodeShare(share.node, 1, share.devices[index : index + 1])
                yield (placement.name, at, index), Admission(
                    admission.pool, (PodSetPlacement(placement.name, (alone,)),))


def without(admission: Admission, lost: set[PodAt]) -> Admission:
    """The admission without some of its pods; the others keep their places and their order."""
    placements = []
    for placement in admission.podsets:
        shares = []
        for at, share in enumerate(placement.nodes):
            stay = [index for index in range(share.count) if (placement.name, at, index) not in lost]
            if len(stay) == share.count:
                shares.append(share)
            elif stay:
                devices = tuple(share.devices[index] for index in stay) if share.devices else ()
                shares.append(NodeShare(share.node, len(stay), devices))
        placements.append(PodSetPlacement(placement.name, tuple(shares)))
    return Admission(admission.pool, tuple(placements))


Needs = Counter[tuple[str, int]]  # amounts by pool and resource column


class Idle:
    """By the draft's version: idle `sums` of a pool by column; `places` of workloads alike, and their needs there."""

    def __init__(self) -> None:
        self.sums = dict[tuple[str, int], list[int]]()
        self.places = dict[tuple[object, ...], tuple[Admission, Needs] | None]()


def find_new_place(one: Running, cycle: Cycle, *, is_whole: bool = False) -> Admission | None:
    """A place, in idle room and its own, for all pods it has and lost, else, unless `is_whole`, for what it needs."""
    with cycle.draft.trial(), cycle.timeline.kept(one.workload):
        cycle.draft.vanish(one.workload.key)
        return _search(one, cycle, is_whole=is_whole)


def movable(victims: Iterable[Running], row: int, cycle: Cycle, spoken: Needs) -> dict[str, Needs]:
    """By key, the workloads that would find a place in the room that is idle now, off this node, and what they need
    there; in sum no more than there is room for beside what is spoken for."""
    found, used, free = dict[str, Needs](), spoken, cycle.draft.free
    for one in victims:
        if (known := _idle_place(one, row, cycle)) is None:
            continue
        there, needs = known
        sums = _idle_sums(there.pool, cycle)
        if all(sums[at[1]] - max(free[at[1], row], 0) >= amount + used[at] for at, amount in needs.items()):
            found[one.workload.key] = needs
            used = used + needs
    return found


def speak_for(victims: list[Running], row: int, cycle: Cycle, spoken: Needs) -> Iterable[str]:
    """Count the room that those of them take which are movable off this node; returns their keys."""
    moved = movable(victims, row, cycle, spoken)
    for needs in moved.values():
        spoken.update(needs)
    return moved


def _idle_sums(pool: str, cycle: Cycle) -> list[int]:
    """What is free of each resource in a pool in sum."""
    sums, key = cycle.memo.of(Idle).sums, (pool, cycle.draft.version)
    if key not in sums:
        mask = cycle.snapshot.pool_of == pool_row(cycle.snapshot, pool)
        sums[key] = np.maximum(cycle.draft.free[:, mask], 0).sum(axis=1).tolist()
    return sums[key]


def _idle_place(one: Running, row: int, cycle: Cycle) -> tuple[Admission, Needs] | None:
    """Its place off this node, and what it needs there; known for all that are alike."""
    workload, places, version = one.workload, cycle.memo.of(Idle).places, cycle.draft.version
    key = id(workload.podsets), workload.queue, workload.pools, workload.excluded_nodes, one.lost, version
    if key not in places:
        places[key] = _aside(one, None, cycle)
    there = places[key]
    return there if there is None or cycle.snapshot.nodes[row].name not in there[0].nodes else _aside(one, row, cycle)


def _aside(one: Running, row: int | None, cycle: Cycle) -> tuple[Admission, Needs] | None:
    """Its place, that node apart, and what it needs there."""
    podsets, allowed = one.workload.podsets, None if row is None else np.arange(len(cycle.snapshot.nodes)) != row
    with cycle.timeline.kept(one.workload):
        there = _search(one, cycle, allowed)
    if there is None:
        return None
    held = cycle.draft.holdings(podsets, there).values()
    amounts = [sum(column) for column in list(zip(*held))[: len(cycle.snapshot.resources)]]
    return there, Needs({(there.pool, column): amount for column, amount in enumerate(amounts) if amount})


def _search(one: Running, cycle: Cycle, allowed: Mask | None = None, *, is_whole: bool = False) -> Admission | None:
    """The first pool, and places, for all the pods it has and lost, else for as many as it needs."""
    workload, full = one.workload, cycle.whole(one)
    for counts in dict.fromkeys((full, full if is_whole else cycle.least(workload))):
        ask = cycle.ask(workload, counts)
        if allowed is not None:
            ask = ask._replace(allowed=allowed if ask.allowed is None else allowed & ask.allowed)
        for pool in cycle.pools_of(workload):
            accounts, asked = cycle.accounts(workload, pool), cycle.tree.amounts(workload.podsets, counts, pool)
            if (one.lost or pool != one.admission.pool) and over_limit(accounts, asked):
                continue
            if (placed := place(cycle.draft, ask, pool)) is not None:
                return Admission(pool, placed)
    return None
