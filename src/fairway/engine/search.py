"""Search for the candidates in whose room a workload fits: cheapest first.

Candidates are priced per node, for the room that one more pod needs; a gang takes the cheapest places one after the
other. They leave the draft as they are taken, so every price and every right is judged after those before. Where nodes
one by one do not do (topology, devices, neighbours), all that a rule reaches is taken in order, twice as much each
time, and those taken last are given back as far as that goes. What was not needed is spared by `reclaim`; nothing is
kept unless it is kept there.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from copy import deepcopy
from functools import partial, reduce
from itertools import chain
from operator import attrgetter

import numpy as np

from .candidates import FREE, Candidate, CandidateSet, Needs, Offer, Prices, movable, speak_for
from .draft import Room
from .eligibility import over_limit
from .eviction_rules import full_bucket
from .feasibility import Request, Shape
from .model import PodClass, Running, Workload
from .place import cache_of
from .plan import Cause
from .pod_affinity import bound_to_itself, leans_on, near
from .quota import Account, Demand
from .resources import DEVICE
from .snapshot import Mask

OnNode = tuple[int, Offer, Request]  # a node, what makes room there, and what is requested in all


class Search:
    """The places that a workload could have if victims went. `planned`: what its own pods will take of each node."""

    def __init__(
        self, candidates: CandidateSet, workload: Workload, barred: Iterable[str] = (), *, largest_last: bool = False
    ) -> None:
        """`barred`: keys of workloads that are not taken; `largest_last`: the order in which queues can lose most."""
        self.candidates, self.workload, self.cycle = candidates, workload, (cycle := candidates.cycle)
        self.taken: list[Candidate] = []
        self.tried = False  # a candidate was taken, and given back
        self.is_spent = False  # a queue gave some of what was looked at, and may lose no more
        self._is_largest_last = largest_last
        self._order = partial(candidates.largest_last, workload=workload) if largest_last else candidates.in_turn
        self.may_stop = candidates.rule.cause is Cause.HOLD_TAKEN or full_bucket(candidates.pool, cycle) is None
        paired = {one.workload.key for one, _ in candidates.paired(workload)}
        started = cycle.draft.started.values() if candidates.alike else ()
        shapes = {id(one.podsets): one for one, _ in started}  # what starts now leans on some
        self.barred = paired.union(barred, *(candidates.neighbours(one, leans_on) for one in shapes.values()))
        self._is_usual = not (largest_last or self.barred)
        self.allowed = self._allowed()
        if paired:
            self.cycle.paired.add(workload.key)
        self._planned: dict[int, list[int]] = {}
        self._spoken = Needs()  # idle room that its own pods, or victims that are moved, will take
        self._moved = set[str]()  # keys of those victims
        self._ahead, self._columns = candidates.cycle.draft.ahead(), len(cycle.snapshot.resources)

    def _allowed(self) -> Mask | None:
        """Nodes that its pods may use: where it may take those beside which it must run, it takes their place, and
        evicts none so as to be the first of its kind elsewhere."""
        allowed, podsets = self.cycle.allowed(self.cycle.shunned(self.workload)), self.workload.podsets
        own = [podset.pod for podset in podsets if bound_to_itself(podset.pod)]
        for pod in own if self.candidates.neighbours(self.workload) - self.barred else ():
            beside = near(self.cycle.snapshot, self.cycle.draft.standing, pod)
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
        """Take, podset by podset, the cheapest places until every pod has one. Where queues are to lose the most, the
        places of several pods are not sought one by one: the order of places would be that of their victims."""
        least = self.cycle.least(self.workload)
        if self._is_largest_last and sum(least) > 1:
            return False
        return all(self._cover(podset.pod, count) for podset, count in zip(self.workload.podsets, least))

    def may_suffice(self) -> bool:
        """Whether room would be enough with all that the rule reaches gone; a bound, cheap and on the safe side."""
        cache, pool = cache_of(self._ahead), self.candidates.pool
        free = np.maximum(self._ahead.free, 0) + self.candidates.most
        for podset, count in zip(self.workload.podsets, self.cycle.least(self.workload)):
            shape = self._ahead.shape(podset.pod, pool)
            request, mask = shape.request, cache.mask(shape)
            fit = [free[column] // amount for column, amount in request.needs]
            if not request.is_known or (fit and int(reduce(np.minimum, fit)[mask].sum()) < count):
                return False
        return True

    def everything(self) -> Iterator[None]:
        """Take all there is, in order; stop and look after one, two, four … more."""
        step = 1
        for candidate in self._in_turn(self.candidates.all):
            self.take((candidate,))
            if len(self.taken) >= step:
                step *= 2
                yield
        yield

    def _in_turn(self, candidates: list[Candidate]) -> Iterator[Candidate]:
        """In the order of this search, for a caller that takes each before it asks for the next."""
        left = len(candidates)
        for candidate in self._order(candidates):
            left -= 1
            yield candidate
        self.is_spent |= left > 0 and (left < len(candidates) or bool(self.taken))

    def cut(self, suffices: Callable[[], bool]) -> None:
        """Give back the candidates taken last, as many as go: none goes before one that is first in the order."""
        whole, low, high = list(self.taken), 0, len(self.taken)
        while low < high:
            middle = (low + high) // 2
            self._keep(whole, middle)
            low, high = (low, middle) if suffices() else (middle + 1, high)
        self._keep(whole, high)

    def _keep(self, whole: list[Candidate], count: int) -> None:
        """Have taken just so many."""
        for candidate in reversed(whole[count : len(self.taken)]):
            candidate.take(self.cycle, back=True)
        for candidate in whole[len(self.taken) : count]:
            candidate.take(self.cycle)
        self.taken[:] = whole[:count]

    def _cover(self, pod: PodClass, count: int) -> bool:
        cache = cache_of(self._ahead)
        shape = self._ahead.shape(pod, self.candidates.pool)
        mask = cache.mask(shape)
        if self.allowed is not None:
            mask = mask & self.allowed
        if pod.pod_affinity:
            mask = mask & near(self.cycle.snapshot, self._ahead.standing, pod)
        count -= self._use_free(shape, mask, count)
        if count <= 0:
            return True
        node = self._on_one_node(shape, mask, count) if count > 1 else None
        if node is None:
            return self._one_by_one(shape, mask, count)
        return self._cheaper(node, partial(self._one_by_one, shape, mask, count))

    def _one_by_one(self, shape: Shape, mask: Mask, count: int) -> bool:
        """Take the cheapest place for one pod, so many times."""
        prices = self._prices(shape, mask)
        while count > 0 and (best := prices.pop()) is not None:
            sort, price, row = best
            offer = self._offer(shape.request, row)
            if offer is None:
                continue
            if (offer[0], offer[1]) != (sort, price):
                prices.put(offer, row)
                continue
            before = len(self.taken)
            if self.take(offer[2]):
                self._plan(shape.request, row)
                self._moved.update(speak_for(dearest_first(offer[2]), row, self.cycle, self._spoken))
                count -= 1
            if count and len(self.taken) > before:
                self._look(prices, shape, {row, *(at for candidate in offer[2] for at in candidate.rows if mask[at])})
        return count <= 0

    def _on_one_node(self, shape: Shape, mask: Mask, count: int) -> OnNode | None:
        """The cheapest node that holds all of the pods, as if they were one."""
        request = shape.request
        if request.share:
            return None
        needs = tuple((column, amount * count) for column, amount in request.needs)
        whole = request._replace(needs=needs, devices=request.devices * count, size=request.size * count)
        capacity = self.cycle.snapshot.capacity
        wide = mask & np.all([capacity[column] >= amount for column, amount in needs], axis=0)
        offers = ((row, self._offer(whole, row)) for row in self.candidates.by_row if wide[row])
        found = [(row, offer, whole) for row, offer in offers if offer is not None]
        return min(found, key=lambda one: (self._rank(one[1]), one[0]), default=None)

    def _cheaper(self, node: OnNode, one_by_one: Callable[[], bool]) -> bool:
        """Take what makes room for all pods on one node, or, if that is no dearer, for one after the other: a gang may
        need fewer victims where its pods are together."""
        begun, before = len(self.taken), (deepcopy(self._planned), deepcopy(self._spoken), set(self._moved))
        is_covered, single = one_by_one(), self.taken[begun:]
        after, moved = (self._planned, self._spoken, self._moved), self._moved
        for candidate in reversed(single):
            candidate.take(self.cycle, back=True)
        del self.taken[begun:]
        row, offer, whole = node
        if is_covered and (not single or self._rank(self.candidates.priced(single, moved)) <= self._rank(offer)):
            self._planned, self._spoken, self._moved = after
            return self.take(single)
        self._planned, self._spoken, self._moved = before
        self._plan(whole, row)
        return self.take(offer[2])

    def _rank(self, offer: Offer) -> tuple[object, ...]:
        """What decides between offers: the smaller goes first."""
        return offer[0][0], self.candidates.rule.ranked(offer[0][1]), offer[1]

    def _look(self, prices: Prices, shape: Shape, rows: Iterable[int]) -> None:
        """Price these nodes."""
        for row in rows:
            if row in self.candidates.by_row and (offer := self._offer(shape.request, row)) is not None:
                prices.put(offer, row)

    def _prices(self, shape: Shape, mask: Mask) -> Prices:
        """Those for a shape; what changed since they were last asked for is priced again."""
        log, known = self._ahead.log, self.candidates.prices if self._is_usual else {}
        key = id(shape.pod), self.cycle.shunned(self.workload)
        prices, seen = known.get(key) or (Prices(self.candidates.rule), None)
        rows = self.candidates.by_row if seen is None else sorted(set(log[seen:]))
        self._look(prices, shape, (row for row in rows if mask[row]))
        known[key] = prices, len(log)
        return prices

    def _use_free(self, shape: Shape, mask: Mask, count: int) -> int:
        """Plan its pods into room that is free; how many of them have a place there."""
        given, pool = 0, self.candidates.pool
        rooms = np.where(mask, cache_of(self._ahead).room(shape), 0)
        for row in np.flatnonzero(rooms).tolist():
            for _ in range(min(int(rooms[row]), count - given)):
                if row in self._planned and not self._fits(shape.request, self._left(row)):
                    break
                self._plan(shape.request, row)
                self._spoken.update({(pool, column): amount for column, amount in shape.request.needs})
                given += 1
        return given

    def _left(self, row: int) -> list[int]:
        """What of a node is not planned for yet."""
        left = list(self._ahead.room(row))
        if row in self._planned:
            shift(left, self._planned[row], -1)
        return left

    def _plan(self, request: Request, row: int) -> None:
        """One more pod will stand there."""
        left, part = self._left(row), request.share or DEVICE
        less = self._planned.setdefault(row, [0] * len(left))
        for column, amount in request.needs:
            less[column] += amount
        slots = sorted((left[at], at) for at in range(self._columns, len(left)) if left[at] >= part)
        for _, slot in slots[: 1 if request.share else request.devices]:
            less[slot] += part

    def _offer(self, request: Request, row: int) -> Offer | None:
        """The price of room for one more pod on a node, and the candidates that give it; None where there is no such
        room. Candidates in their order, without those not needed, or one alone if that is cheaper."""
        candidates, left = self.candidates, self._left(row)
        if self._fits(request, left):
            return FREE
        there = [candidate for candidate in candidates.by_row[row] if self._is_allowed(candidate)]
        sets = [self._picked(request, row, left.copy(), there)]
        if not sets[0]:
            return None
        moved = self._movable(there, row)
        if moved and len(sets[0]) < len(there):
            goes = [one for one in there if one.pod is None and one.key in moved]
            rest = [one for one in there if one not in goes]
            sets += [self._picked(request, row, left.copy(), goes, rest)]
        if len(sets[0]) > 1 or len(sets) > 1:
            loses = {queue: candidates.rule.may_lose(queue, None) for queue in {candidate.queue for candidate in there}}
            cores = (one for one in there if one.pod is None and loses[one.queue])
            sets += [[one] for one in cores if self._fits(request, left, candidates.gives(one, row))]
        offers = [candidates.priced(one, self._movable(one, row) if moved else moved) for one in sets if one]
        return min(offers, key=self._rank)

    def _movable(self, candidates: Iterable[Candidate], row: int) -> Collection[str]:
        """Keys of the workloads that could leave a node for others; none where all must move."""
        if self.candidates.rule.cause is Cause.CONSOLIDATED:
            return ()
        return movable(dearest_first(candidates), row, self.cycle, self._spoken)

    def _picked(self, request: Request, row: int, left: list[int], *lines: list[Candidate]) -> list[Candidate]:
        """The first of these, line by line, that make room on a node for one more pod, each judged after those before,
        without those not needed; none if too few. A core takes the place of its surplus. `left` changes."""
        candidates, picked, is_enough = self.candidates, list[Candidate](), False
        for candidate in chain.from_iterable(map(self._in_turn, lines)):
            surplus = candidate.victim.surplus if candidate.pod is None else {}
            for part in [one for one in picked if one.victim is candidate.victim] if surplus else ():
                picked.remove(part)
                candidates.count(part, 1)
                shift(left, part.rows[row], -1)
            picked.append(candidate)
            candidates.count(candidate, -1)
            shift(left, candidates.gives(candidate, row), 1)
            if is_enough := self._fits(request, left):
                break
        for candidate in picked:
            candidates.count(candidate, 1)
        return self._needed(request, left, picked, row) if is_enough else []

    def _needed(self, request: Request, left: list[int], picked: list[Candidate], row: int) -> list[Candidate]:
        """Without those, the dearest first, that would not have been necessary on this node."""
        for candidate in reversed(picked[:-1]):
            gives = self.candidates.gives(candidate, row)
            others = [one for one in picked if one is not candidate] if self._fits(request, left, gives, -1) else []
            if others and (not self.candidates.rule.is_mixed or self.candidates.may_take_all(others)):
                picked = others
                shift(left, gives, -1)
        return picked

    def _fits(self, request: Request, left: list[int], more: Room = (), times: int = 1) -> bool:
        """Whether one more pod has room, with so much more; devices are looked at where they are told apart."""
        for column, amount in request.needs:
            if left[column] + (more[column] * times if more else 0) < amount:
                return False
        if not (request.share or request.devices):
            return True
        devices = left[self._columns :]
        shift(devices, more[self._columns :], times)
        if request.share:
            return any(room >= request.share for room in devices)
        return not devices or devices[0] == -1 or sum(1 for room in devices if room >= DEVICE) >= request.devices


def dearest_first(candidates: Iterable[Candidate]) -> list[Running]:
    """The workloads among them that are taken whole, in the order in which they are moved."""
    cores = [one for one in candidates if one.pod is None and not one.victim.lost]
    return [one.victim.one for one in sorted(cores, key=attrgetter("order"), reverse=True)]


def shift(left: list[int], by: Room, times: int) -> None:
    for at, amount in enumerate(by):
        if amount:
            left[at] += amount * times
