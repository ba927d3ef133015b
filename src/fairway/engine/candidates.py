"""Whom to shrink or evict so that a workload starts: cheapest first.

Victims are priced per node, for the room that one more pod needs; a gang takes the cheapest places one after the other.
Victims leave the draft as they are taken, so every price and every right is judged after those before. Surplus goes
before any core, the queue most above its share first, then lower priority, lower cost, fewer, younger. Where nodes one
by one do not do (topology, devices, neighbours), all that a rule reaches is taken in that order, twice as much each
time, and those taken last are given back as far as that goes. Who was not needed is spared elsewhere (`give`); nothing
here is kept unless it is kept there.
"""

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import islice
from operator import attrgetter, itemgetter

import numpy as np

from .cycle import Cycle
from .disruption import Covered, covered
from .draft import Room
from .eligibility import over_limit
from .eviction_rules import EvictionRule, Shield, cost, full_bucket, has_run, paired
from .feasibility import Request, Shape, feasible
from .model import GPU, Admission, Disruption, NodeShare, PodClass, PodSetPlacement, Running, Workload
from .place import cache_of, room
from .plan import Cause
from .pod_affinity import attracts, bound_to_itself, leans_on, near
from .quota import Account, Demand
from .resources import DEVICE, counts_of
from .snapshot import Mask

Sort = tuple[int, frozenset[str]]
"""The stage of what is given, and whose queues give: what decides first between offers. Stages: 0 surplus, 1 a core, 2
and 3 the same where a PodDisruptionBudget allows no more disruptions."""
Price = tuple[int, float, int, float]
"""Priority, cost, how many, age negated: the smaller goes first among offers of a sort."""
Left = tuple[list[int], list[int]]
"""What is left of one node: amounts by resource and milli-GPU by device slot."""
Pod = tuple[str, int, int]
"""A pod of an admission: podset, share, place in the share."""
Offer = tuple[Sort, Price, list["Candidate"]]
FREE: "Offer" = ((0, frozenset()), (0, 0.0, 0, 0.0), [])


class Victim:
    """A running workload that somebody has a rule on. `surplus`: how many pods of each podset it can lose and run on;
    `lost`: those it has lost in this cycle."""

    __slots__ = ("amounts", "cost", "lost", "one", "surplus")

    def __init__(self, one: Running, cycle: Cycle) -> None:
        self.one = one
        podsets, counts = one.workload.podsets, counts_of(one.workload.podsets, one.admission)
        spare = ((podset.name, count - podset.min_count) for podset, count in zip(podsets, counts))
        self.surplus = {name: more for name, more in spare if more > 0}
        self.amounts = cycle.tree.amounts(podsets, counts, one.admission.pool)
        self.cost = cost(one, self.amounts, cycle)
        self.lost: set[Pod] = set()

    def rest(self) -> Admission:
        """What it holds without the pods it has lost."""
        return without(self.one.admission, self.lost)


class Victims(dict[str, Victim]):
    """Those of a cycle, by key."""


def victim_of(one: Running, cycle: Cycle) -> Victim:
    """The same value throughout a cycle."""
    victims, key = cycle.memo.of(Victims), one.workload.key
    return victims.get(key) or victims.setdefault(key, Victim(one, cycle))


class Candidate:
    """What a victim can give at once: one surplus pod, or, `pod` None, all that is left of it. `order`: which goes
    first, its queue apart: lower priority, lower cost, younger; of one workload's pods the last rank. `number`: its
    place in that order among all of its set."""

    __slots__ = ("budgets", "counted", "key", "number", "order", "pod", "queue", "rows", "victim")

    def __init__(self, victim: Victim, pod: Pod | None, rows: dict[int, Room], counted: Demand) -> None:
        self.victim, self.pod, self.rows, self.counted, self.number = victim, pod, rows, counted, 0
        self.budgets: Covered = ()
        workload, (_, share, index) = victim.one.workload, pod or ("", 0, 0)
        self.key, self.queue = workload.key, workload.queue
        self.order = workload.priority, victim.cost, -workload.submitted, -share, -index

    def take(self, cycle: Cycle) -> None:
        self.count(cycle, 1)
        if self.pod is None:
            cycle.draft.leave(self.key)
        else:
            self.victim.lost.add(self.pod)
            cycle.draft.resize(self.key, self.victim.rest())

    def give_back(self, cycle: Cycle) -> None:
        self.count(cycle, -1)
        if self.pod is None:
            cycle.draft.remain(self.key)
        else:
            self.victim.lost.discard(self.pod)
            cycle.draft.resize(self.key, self.victim.rest())

    def count(self, cycle: Cycle, times: int) -> None:
        """Count its pods in their PodDisruptionBudgets, and an eviction in the pool's bucket; a shrink is none."""
        for budget, pods in self.budgets:
            cycle.disrupted[budget.key] += pods * times
        if self.pod is None:
            cycle.evict(self.victim.one, self.counted, times)


class CandidateSet:
    """All that a rule reaches in a pool, by node; alike rules of a cycle share it. `prices`: of each class, and how
    much of the draft's log was seen when it was last asked for. `alike`: by podsets, where pods look beside them."""

    def __init__(self, rule: EvictionRule, pool: str, cycle: Cycle) -> None:
        self.rule, self.pool, self.cycle = rule, pool, cycle
        self.all: list[Candidate] = []
        self.by_row: defaultdict[int, list[Candidate]] = defaultdict(list)
        self.prices: dict[tuple[object, ...], tuple[Prices, int]] = {}
        self.shielded: list[tuple[Running, Shield]] = []  # those that may not be stopped, and why
        for one in cycle.standing(rule.within):
            is_there = one.admission.pool == pool and not one.is_leaving and not one.is_promised
            is_completed = one.lost and one.workload.key in cycle.verdicts  # it got its lost pods back in this plan
            if is_there and not is_completed and rule.touches(one) and has_run(one, 0.0, cycle):
                self._enter(one)
        self.all.sort(key=attrgetter("key"), reverse=True)
        self.all.sort(key=attrgetter("order"))
        self.queues = {candidate.queue for candidate in self.all}
        self.alike: defaultdict[int, list[Running]] = defaultdict(list)
        for one in {each.key: each.victim.one for each in self.all}.values() if cycle.snapshot.is_social else ():
            self.alike[id(one.workload.podsets)].append(one)
        self.has_cores = any(candidate.pod is None for candidate in self.all)
        self.returned = [candidate.victim.one for candidate in self.all if candidate.victim.one.workload.evictions]
        for number, candidate in enumerate(self.all):
            candidate.number = number
            for row in candidate.rows:
                self.by_row[row].append(candidate)

    def _enter(self, one: Running) -> None:
        cycle, podsets = self.cycle, one.workload.podsets
        victim = victim_of(one, cycle)
        one = victim.one  # who shrank in this cycle is known by the pods it had
        for placement in one.admission.podsets if victim.surplus and self.rule.takes_surplus else ():
            if placement.name in victim.surplus:
                kept = placement.count - victim.surplus[placement.name] if self.rule.keeps_first else 0
                for pod, share in islice(pods_of(placement), kept, None):
                    alone = Admission(self.pool, (PodSetPlacement(placement.name, (share,)),))
                    counted = cycle.tree.amounts(podsets, counts_of(podsets, alone), self.pool)
                    candidate = Candidate(victim, pod, cycle.draft.holdings(podsets, alone), counted)
                    candidate.budgets = covered(cycle.snapshot.disruptions, podsets, alone)
                    self.all.append(candidate)
        shield = self.rule.shield(one) if one.workload.preemptible else ("preemptible: false", None)
        if shield:
            self.shielded.append((one, shield))
        else:
            core = Candidate(victim, None, cycle.draft.holdings(podsets, one.admission), victim.amounts)
            core.budgets = covered(cycle.snapshot.disruptions, podsets, one.admission)
            if self.rule.cause is Cause.CONSOLIDATED:  # the fewest GPUs move, whosoever they are
                core.order = 0, victim.amounts.get(GPU, 0), *core.order[2:]
            self.all.append(core)

    def paired(self, taker: Workload) -> list[tuple[Running, Shield]]:
        """Those whose last eviction was for this workload and is too recent; a hold takes them nevertheless."""
        those = () if self.rule.cause is Cause.HOLD_TAKEN else self.returned
        return [(one, shield) for one in those if (shield := paired(one, taker, self.cycle))]

    def kin(self, workload: Workload, are_kin: Callable[[PodClass, PodClass], bool] = attracts) -> set[str]:
        """Keys of those beside whom pods of the workload must stand."""
        mine = [podset.pod for podset in workload.podsets if podset.pod.pod_affinity or podset.pod.spread]
        return {
            one.workload.key for those in self.alike.values() if mine
            if any(are_kin(podset.pod, pod) for podset in those[0].workload.podsets for pod in mine) for one in those
        }

    def stage(self, candidates: Iterable[Candidate]) -> int:
        """The stage (`Sort`) of candidates not taken yet, all together."""
        pods, has_core = Counter[Disruption](), False
        for candidate in candidates:
            has_core |= candidate.pod is None
            pods.update(dict(candidate.budgets))
        disrupted = self.cycle.disrupted
        return 2 * any(disrupted[one.key] + count > one.allowed for one, count in pods.items()) + has_core

    def in_order(self, taken: Iterable[Candidate]) -> list[Candidate]:
        """Candidates taken, the first to take first: of budgets not exceeded, surplus, then the queue most above its
        share now, then by their own order."""
        ordered, disrupted = sorted(taken, key=attrgetter("number")), self.cycle.disrupted
        ranks = {queue: self.rule.rank(queue) for queue in {one.queue for one in ordered}}
        over = {one.number for one in ordered if any(disrupted[it.key] > it.allowed for it, _ in one.budgets)}
        return sorted(ordered, key=lambda one: (one.number in over, one.pod is None, ranks[one.queue]))

    def in_turn(self, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
        """The same order for a caller that takes each before it asks for the next: queues are ranked, and stages found,
        anew after each. With a mixed rule, a queue that may lose nothing yet is asked again later."""
        lines: defaultdict[tuple[int, str], list[Candidate]] = defaultdict(list)
        for candidate in sorted(candidates, key=attrgetter("number"), reverse=True):
            lines[self.stage((candidate,)), candidate.queue].append(candidate)
        heap = [(stage, self.rule.rank(queue), line[-1].number, queue) for (stage, queue), line in lines.items()]
        heapify(heap)
        refused = list[tuple[int, tuple[float, ...], int, str]]()
        while heap:
            stage, rank, number, queue = heappop(heap)
            if not (line := lines[stage, queue]):
                continue  # its last candidate went to a later stage
            if (now := self.rule.rank(queue)) != rank:
                heappush(heap, (stage, now, number, queue))
            elif not self.rule.may_lose(queue, None):
                refused.append((stage, rank, number, queue))
            elif (later := self.stage(line[-1:])) != stage:
                insort(lines[later, queue], line.pop(), key=lambda candidate: -candidate.number)
                heappush(heap, (later, rank, lines[later, queue][-1].number, queue))
                if line:
                    heappush(heap, (stage, rank, line[-1].number, queue))
            else:
                yield line.pop()
                for entry in refused if self.rule.is_mixed else ():
                    heappush(heap, entry)
                refused.clear()
                if line:
                    heappush(heap, (stage, rank, line[-1].number, queue))

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

    def priced(self, candidates: list[Candidate]) -> Offer:
        """The offer of some candidates. Surplus alone has no cost: no workload starts again."""
        priorities, costs, ages, _, _ = zip(*(candidate.order for candidate in candidates))
        has_core, queues = candidates[-1].pod is None, frozenset(candidate.queue for candidate in candidates)
        price = max(priorities), sum(costs) if has_core else 0.0, len(candidates), max(ages)
        return (self.stage(candidates), queues), price, candidates

    def gives(self, candidate: Candidate, row: int) -> Room:
        """What would come free of a node, pods lost already apart."""
        if candidate.pod is None and candidate.victim.lost:
            podsets = candidate.victim.one.workload.podsets
            return self.cycle.draft.holdings(podsets, candidate.victim.rest()).get(row, ((), ()))
        return candidate.rows[row]


class CandidateSets(dict[tuple[object, ...], CandidateSet]):
    """Those of a cycle, by rule and pool."""


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
        sorts = []
        for sort, heap in self._heaps.items():
            while heap and self._last.get(heap[0][1]) is not heap[0]:
                heappop(heap)
            if heap:
                sorts.append((sort[0], self._rule.ranked(sort[1]), heap[0], sort))
        if not sorts:
            return None
        *_, sort = min(sorts, key=itemgetter(0, 1, 2))
        price, row = heappop(self._heaps[sort])
        del self._last[row]
        return sort, price, row


class Search:
    """The places that a workload could have if victims went. `planned`: what its own pods will take of each node."""

    def __init__(self, candidates: CandidateSet, workload: Workload, barred: Iterable[str] = ()) -> None:
        """`barred`: keys of those who are not to be asked."""
        self.candidates, self.workload, self.cycle = candidates, workload, (cycle := candidates.cycle)
        self.taken: list[Candidate] = []
        self.tried = False  # somebody was taken, and given back
        self.may_stop = candidates.rule.cause is Cause.HOLD_TAKEN or full_bucket(candidates.pool, cycle) is None
        paired = {one.workload.key for one, _ in candidates.paired(workload)}
        started = cycle.draft.started.values() if candidates.alike else ()
        shapes = {id(one.podsets): one for one, _ in started}  # who starts now leans on some
        self.barred = paired.union(barred, *(candidates.kin(one, leans_on) for one in shapes.values()))
        self.allowed = self._allowed()
        if paired:
            self.cycle.paired.add(workload.key)
        self._planned: dict[int, Left] = {}
        self._ahead = candidates.cycle.draft.ahead()

    def _allowed(self) -> Mask | None:
        """Nodes that its pods may use: where it may take those beside whom it must stand, it takes their place, and
        makes nobody leave so as to be the first of its kind elsewhere."""
        allowed, podsets = self.cycle.allowed(self.cycle.shunned(self.workload)), self.workload.podsets
        own = [podset.pod for podset in podsets if bound_to_itself(podset.pod)]
        for pod in own if self.candidates.kin(self.workload) - self.barred else ():
            beside = near(self.cycle.snapshot, cache_of(self.cycle.draft).standing(), pod)
            allowed = beside if allowed is None else allowed & beside
        return allowed

    def take(self, candidates: Iterable[Candidate]) -> bool:
        """All of them, each judged after those before; False if one may not be taken."""
        for candidate in candidates:
            if not self._is_allowed(candidate) or not self.candidates.rule.may_lose(candidate.queue, None):
                return False
            candidate.take(self.cycle)
            self.taken.append(candidate)
        return True

    def _is_allowed(self, candidate: Candidate) -> bool:
        """Whether it is there, is not barred, and the bucket of the pool allows it."""
        is_free = candidate.pod is not None or self.may_stop
        return is_free and candidate.key not in self.barred and self.candidates.is_there(candidate)

    def forget(self) -> None:
        """Nothing was taken after all; the draft is undone by its trial."""
        for candidate in self.taken:
            candidate.count(self.cycle, -1)
            if candidate.pod is not None:
                candidate.victim.lost.discard(candidate.pod)
        self.tried = bool(self.taken)
        self.taken.clear()
        self.candidates.prices.clear()

    def unlock(self, of: Callable[[Account], Demand] = attrgetter("limit")) -> bool:
        """Take from those under the same limit, or other bound, until none stands in the way."""
        accounts = self.cycle.accounts(self.workload, self.candidates.pool)
        asked = self.cycle.asked(self.workload, self.candidates.pool)
        why = over_limit(accounts, asked, of)
        for one in self.candidates.in_turn(self.candidates.all) if why else ():
            if why and one.counted.get(why[1].resource) and self.cycle.tree.is_under(one.queue, why[1].queue):
                self.take((one,))
                why = over_limit(accounts, asked, of)
        return why is None

    def cover(self) -> bool:
        """Take, podset by podset, the cheapest places until every pod has one."""
        least = self.cycle.least(self.workload)
        return all(self._cover(podset.pod, count) for podset, count in zip(self.workload.podsets, least))

    def may_suffice(self) -> bool:
        """Whether room would be enough with all that the rule reaches gone; a bound, cheap and on the safe side."""
        snapshot, pool, free = self.cycle.snapshot, self.candidates.pool, np.maximum(self._ahead.free, 0)
        for row, candidates in self.candidates.by_row.items():
            for candidate in candidates:
                free[:, row] += candidate.rows[row][0]
        for podset, count in zip(self.workload.podsets, self.cycle.least(self.workload)):
            request = cache_of(self._ahead).shape(podset.pod, pool).request
            mask = feasible(snapshot, podset.pod, pool)
            fit = [free[column, mask] // amount for column, amount in zip(request.columns, request.amounts)]
            if not request.is_known or (fit and int(np.min(fit, axis=0).sum()) < count):
                return False
        return True

    def everything(self) -> Iterator[None]:
        """Take all there is, in order; stop and look after one, two, four … more."""
        step = 1
        for candidate in self.candidates.in_turn(self.candidates.all):
            self.take((candidate,))
            if len(self.taken) >= step:
                step *= 2
                yield
        yield

    def cut(self, suffices: Callable[[], bool]) -> None:
        """Give those back who were taken last, as many as go: nobody goes before one who is first in the order."""
        whole, low, high = list(self.taken), 0, len(self.taken)
        while low < high:
            middle = (low + high) // 2
            self._keep(whole, middle)
            low, high = (low, middle) if suffices() else (middle + 1, high)
        self._keep(whole, high)

    def _keep(self, whole: list[Candidate], count: int) -> None:
        """Have taken just so many."""
        for candidate in reversed(whole[count : len(self.taken)]):
            candidate.give_back(self.cycle)
        for candidate in whole[len(self.taken) : count]:
            candidate.take(self.cycle)
        self.taken[:] = whole[:count]

    def _cover(self, pod: PodClass, count: int) -> bool:
        cache = cache_of(self._ahead)
        shape = cache.shape(pod, self.candidates.pool)
        mask = cache.mask(shape)
        if self.allowed is not None:
            mask = mask & self.allowed
        if pod.pod_affinity:
            mask = mask & near(self.cycle.snapshot, cache.standing(), pod)
        count -= self._use_free(shape, mask, count)
        if count <= 0:
            return True
        prices = self._prices(shape, mask)
        while count > 0 and (best := prices.pop()) is not None:
            sort, price, row = best
            offer = self._offer(shape, row)
            if offer is None:
                continue
            if (offer[0], offer[1]) != (sort, price):
                prices.put(offer, row)
                continue
            before = len(self.taken)
            if self.take(offer[2]):
                self._plan(shape.request, row)
                count -= 1
            if count and len(self.taken) > before:
                self._look(prices, shape, {row, *(at for candidate in offer[2] for at in candidate.rows if mask[at])})
        return count <= 0

    def _look(self, prices: Prices, shape: Shape, rows: Iterable[int]) -> None:
        """Price these nodes."""
        for row in rows:
            if row in self.candidates.by_row and (offer := self._offer(shape, row)) is not None:
                prices.put(offer, row)

    def _prices(self, shape: Shape, mask: Mask) -> Prices:
        """Those for a shape; what changed since they were last asked for is priced again."""
        log, known = self._ahead.log, self.candidates.prices
        key = id(shape.pod), self.cycle.shunned(self.workload)
        prices, seen = known.get(key, (None, 0))
        if prices is None or self.barred:
            prices = Prices(self.candidates.rule)
            self._look(prices, shape, (row for row in self.candidates.by_row if mask[row]))
        else:
            self._look(prices, shape, (row for row in sorted(set(log[seen:])) if mask[row]))
        known[key] = prices, len(log)
        return prices

    def _use_free(self, shape: Shape, mask: Mask, count: int) -> int:
        """Plan its pods into room that is free; how many of them have a place there."""
        given = 0
        rooms = np.where(mask, room(self._ahead, shape.pod, self.candidates.pool), 0)
        for row in np.flatnonzero(rooms).tolist():
            for _ in range(min(int(rooms[row]), count - given)):
                if row in self._planned and not fits(shape.request, self._left(row)):
                    break
                self._plan(shape.request, row)
                given += 1
        return given

    def _left(self, row: int) -> Left:
        """What of a node is not planned for yet."""
        left = self._ahead.free[:, row].tolist(), self._ahead.device_free[row].tolist()
        if row in self._planned:
            shift(left, self._planned[row], -1)
        return left

    def _plan(self, request: Request, row: int) -> None:
        """One more pod will stand there."""
        amounts, devices = self._left(row)
        less = self._planned.setdefault(row, ([0] * len(amounts), [0] * len(devices)))
        for column, amount in zip(request.columns, request.amounts):
            less[0][column] += amount
        part = request.share or DEVICE
        free = sorted((room, slot) for slot, room in enumerate(devices) if room >= part)
        for _, slot in free[: 1 if request.share else request.devices]:
            less[1][slot] += part

    def _offer(self, shape: Shape, row: int) -> Offer | None:
        """The price of room for one more pod on a node, and the candidates that give it; None where there is no such
        room. Candidates in their order, without those not needed, or one alone if that is cheaper."""
        request, candidates, left = shape.request, self.candidates, self._left(row)
        if fits(request, left):
            return FREE
        there = [candidate for candidate in candidates.by_row[row] if self._is_allowed(candidate)]
        picked = self._pick(request, row, there, left)
        if picked is None:
            return None
        sets = [self._needed(request, left, picked, row)]
        if len(sets[0]) > 1:
            loses = {queue: candidates.rule.may_lose(queue, None) for queue in {candidate.queue for candidate in there}}
            cores = (one for one in there if one.pod is None and loses[one.queue])
            sets += [[one] for one in cores if fits(request, self._left(row), candidates.gives(one, row))]
        ranked = candidates.rule.ranked
        return min(map(candidates.priced, sets), key=lambda offer: (offer[0][0], ranked(offer[0][1]), offer[1]))

    def _pick(self, request: Request, row: int, there: list[Candidate], left: Left) -> list[Candidate] | None:
        """The first of these, each judged after those before, that make room on a node for one more pod; `left` grows
        by what they give. A core takes the place of its surplus."""
        candidates, picked, is_enough = self.candidates, list[Candidate](), False
        for candidate in candidates.in_turn(there):
            for part in [one for one in picked if one.victim is candidate.victim] if candidate.pod is None else ():
                picked.remove(part)
                candidates.count(part, 1)
                shift(left, part.rows[row], -1)
            picked.append(candidate)
            candidates.count(candidate, -1)
            shift(left, candidates.gives(candidate, row), 1)
            if is_enough := fits(request, left):
                break
        for candidate in picked:
            candidates.count(candidate, 1)
        return picked if is_enough else None

    def _needed(self, request: Request, left: Left, picked: list[Candidate], row: int) -> list[Candidate]:
        """Without those, the dearest first, that would not have been necessary on this node."""
        for candidate in reversed(picked[:-1]):
            gives = self.candidates.gives(candidate, row)
            shift(left, gives, -1)
            others = [one for one in picked if one is not candidate]
            if fits(request, left) and (not self.candidates.rule.is_mixed or self.candidates.may_take_all(others)):
                picked = others
            else:
                shift(left, gives, 1)
        return picked


def fits(request: Request, left: Left, more: Room = ((), ())) -> bool:
    """Whether one more pod has room, with so much more; devices are looked at where they are told apart."""
    amounts, devices = left
    if any(more):
        shift(left, more, 1)
    for column, amount in zip(request.columns, request.amounts):
        if amounts[column] < amount:
            return False
    if request.share:
        return any(room >= request.share for room in devices)
    if not request.devices or not devices or devices[0] == -1:
        return True
    return sum(1 for room in devices if room >= DEVICE) >= request.devices


def shift(left: Left, by: Room, times: int) -> None:
    for mine, more in zip(left, by):
        for at, amount in enumerate(more):
            if amount:
                mine[at] += amount * times


def pods_of(placement: PodSetPlacement) -> Iterator[tuple[Pod, NodeShare]]:
    """Each pod of a placement by itself, in rank order."""
    for at, share in enumerate(placement.nodes):
        for index in range(share.count):
            yield (placement.name, at, index), NodeShare(share.node, 1, share.devices[index : index + 1])


def without(admission: Admission, lost: set[Pod]) -> Admission:
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
