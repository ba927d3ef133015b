"""Whom to shrink or evict so that a workload starts: cheapest first.

Victims are priced per node, for the room that one more pod needs; a gang takes the cheapest places one after the other.
Victims leave the draft as they are taken, so every price and every right is judged after those before. Surplus goes
before any core, the queue most above its share first, then lower priority, lower cost, fewer, younger. Where nodes one
by one do not do (topology, devices, neighbours), all that a claim reaches is taken in that order, twice as much each
time. Who was not needed is spared elsewhere (`give`); nothing here is kept unless it is kept there.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from heapq import heapify, heappop, heappush

import numpy as np

from .claims import Claim, cost, has_tokens
from .cycle import Cycle
from .door import over_limit
from .fit import Kind, Need
from .model import GPU, Admission, NodeShare, PodClass, PodSetPlacement, Running, Workload
from .place import feasible, room, sight_of
from .plan import Cause
from .quota import Demand
from .resources import DEVICE, counts_of
from .snapshot import Columns, Mask

Price = tuple[bool, tuple[float, ...], int, float, int, float]
"""Has a core, its queues' rank, priority, cost, how many, age negated: the smaller goes first."""
Room = tuple[list[int], list[int]]
"""Amounts by resource and milli-GPU by device slot, of one node."""
Pod = tuple[str, int, int]
"""A pod of an admission: podset, share, place in the share."""
FREE: Price = (False, (), 0, 0.0, 0, 0.0)


class Victim:
    """A running workload that somebody has a claim on. `surplus`: how many pods of each podset it can lose and run on;
    `lost`: those it has lost in this cycle."""

    __slots__ = ("amounts", "cost", "lost", "one", "surplus")

    def __init__(self, one: Running, cycle: Cycle) -> None:
        self.one, self.cost = one, cost(one, cycle)
        podsets, counts = one.workload.podsets, counts_of(one.workload.podsets, one.admission)
        spare = {podset.name: count - podset.min_count for podset, count in zip(podsets, counts)}
        self.surplus = {name: more for name, more in spare.items() if more > 0}
        self.amounts = cycle.tree.amounts(podsets, counts, one.admission.pool)
        self.lost: set[Pod] = set()

    def rest(self) -> Admission:
        """What it holds without the pods it has lost."""
        return without(self.one.admission, self.lost)


class Gift:
    """What a victim can give at once: one surplus pod, or, `pod` None, all that is left of it."""

    __slots__ = ("counted", "key", "pod", "rows", "victim")

    def __init__(self, victim: Victim, pod: Pod | None, rows: dict[int, Room], counted: Demand) -> None:
        self.victim, self.pod, self.rows, self.counted = victim, pod, rows, counted
        self.key = victim.one.workload.key

    def take(self, cycle: Cycle) -> None:
        if self.pod is None:
            cycle.draft.leave(self.key)
        else:
            self.victim.lost.add(self.pod)
            cycle.draft.resize(self.key, self.victim.rest())

    def give_back(self, cycle: Cycle) -> None:
        if self.pod is None:
            cycle.draft.remain(self.key)
        else:
            self.victim.lost.discard(self.pod)
            cycle.draft.resize(self.key, self.victim.rest())


class Field:
    """All that a claim reaches in a pool, by node; alike claims of a cycle share it."""

    def __init__(self, claim: Claim, pool: str, cycle: Cycle) -> None:
        self.claim, self.pool, self.cycle = claim, pool, cycle
        self.gifts: list[Gift] = []
        self.by_row: defaultdict[int, list[Gift]] = defaultdict(list)
        self.most = np.zeros_like(cycle.snapshot.free)  # all that could come free, counted too high where cores shrink
        for one in cycle.draft.running.values():
            is_there = one.admission.pool == pool and not one.is_leaving and not one.is_promised
            if is_there and claim.touches(one):
                self._enter(one)
        for gift in self.gifts:
            for row in gift.rows:
                self.by_row[row].append(gift)
                self.most[:, row] += gift.rows[row][0]

    def _enter(self, one: Running) -> None:
        cycle, podsets = self.cycle, one.workload.podsets
        victim = cycle.victims.setdefault(one.workload.key, Victim(one, cycle))
        footprint = cycle.draft.footprint
        for placement in one.admission.podsets:
            if self.claim.takes_surplus and placement.name in victim.surplus:
                for pod, share in pods_of(placement):
                    alone = Admission(self.pool, (PodSetPlacement(placement.name, (share,)),))
                    counted = cycle.tree.amounts(podsets, counts_of(podsets, alone), self.pool)
                    self.gifts.append(Gift(victim, pod, rooms(footprint(podsets, alone)), counted))
        if one.workload.preemptible:
            self.gifts.append(Gift(victim, None, rooms(footprint(podsets, one.admission)), victim.amounts))

    def rank(self, gift: Gift) -> tuple[bool, tuple[float, ...], int, float, float, int, int]:
        """Which gift goes first; of one workload's pods the last rank. Of moves the one with the fewest GPUs."""
        victim, (_, share, pod) = gift.victim, gift.pod or ("", 0, 0)
        workload, is_move = victim.one.workload, self.claim.cause is Cause.CONSOLIDATED
        queues, priority = self.claim.rank(victim.one), 0 if is_move else workload.priority
        cost = victim.amounts.get(GPU, 0) if is_move else victim.cost
        return gift.pod is None, queues, priority, cost, -workload.submitted, -share, -pod

    def in_order(self, gifts: Iterable[Gift]) -> list[Gift]:
        """The first to be taken first; of equals the later name."""
        return sorted(sorted(gifts, key=lambda gift: gift.key, reverse=True), key=self.rank)

    def may_take(self, gift: Gift) -> bool:
        """Whether it is there to be taken, its queue may lose it now, and the bucket allows it."""
        victim, now = gift.victim, self.cycle.draft.running[gift.key]
        if now.is_leaving:
            return False
        if gift.pod is not None:
            lost = sum(1 for name, _, _ in victim.lost if name == gift.pod[0])
            if gift.pod in victim.lost or lost >= victim.surplus[gift.pod[0]]:
                return False
        is_free = self.claim.cause is Cause.HOLD_TAKEN or has_tokens(victim.one, self.cycle)
        return is_free and self.claim.may_lose(victim.one)

    def gives(self, gift: Gift, row: int) -> Room:
        """What would come free of a node, pods lost already apart."""
        if gift.pod is None and gift.victim.lost:
            podsets = gift.victim.one.workload.podsets
            return rooms(self.cycle.draft.footprint(podsets, gift.victim.rest())).get(row, ([], []))
        return gift.rows[row]


class Search:
    """The places that a workload could have if victims went. `planned`: what its own pods will take of each node."""

    def __init__(self, field: Field, workload: Workload, barred: Container[str] = ()) -> None:
        """`barred`: keys of those who are not to be asked."""
        self.field, self.workload, self.cycle = field, workload, field.cycle
        self.taken: list[Gift] = []
        self.tried = False  # somebody was taken, and given back
        self.barred = barred
        self._planned: dict[int, Room] = {}
        self._ahead = field.cycle.draft.ahead()

    def take(self, gifts: Iterable[Gift]) -> bool:
        """All of them, each judged after those before; False if one may not be taken."""
        for gift in gifts:
            if gift.key in self.barred or not self.field.may_take(gift):
                return False
            gift.take(self.cycle)
            self.cycle.evict(gift.victim.one, gift.counted, 1)
            self.taken.append(gift)
        return True

    def forget(self) -> None:
        """Nothing was taken after all; the draft is undone by its trial."""
        for gift in self.taken:
            self.cycle.evict(gift.victim.one, gift.counted, -1)
            if gift.pod is not None:
                gift.victim.lost.discard(gift.pod)
        self.tried = bool(self.taken)
        self.taken.clear()

    def unlock(self) -> bool:
        """Take from those under the same limit until no limit stands in the way."""
        accounts = self.cycle.accounts(self.workload, self.field.pool)
        asked = self.cycle.asked(self.workload, self.field.pool)
        for gift in self.field.in_order(self.field.gifts):
            if (why := over_limit(accounts, asked)) is None:
                return True
            if gift.counted.get(why[1].resource):
                self.take((gift,))
        return over_limit(accounts, asked) is None

    def cover(self) -> bool:
        """Take, podset by podset, the cheapest places until every pod has one."""
        least = self.cycle.least(self.workload)
        return all(self._cover(podset.pod, count) for podset, count in zip(self.workload.podsets, least))

    def may_suffice(self) -> bool:
        """Whether room would be enough with all that the claim reaches gone; a bound, cheap and on the safe side."""
        snapshot, pool, ahead = self.cycle.snapshot, self.field.pool, self._ahead
        free = np.maximum(ahead.free, 0) + self.field.most
        for podset, count in zip(self.workload.podsets, self.cycle.least(self.workload)):
            need = sight_of(ahead).kind(podset.pod, pool).need
            mask = feasible(snapshot, podset.pod, pool)
            fit = [free[column, mask] // amount for column, amount in zip(need.columns, need.amounts)]
            if not need.is_known or (fit and int(np.min(fit, axis=0).sum()) < count):
                return False
        return True

    def everything(self) -> Iterator[None]:
        """Take all there is, in order; stop and look after one, two, four … more."""
        step = 1
        for number, gift in enumerate(self.field.in_order(self.field.gifts), 1):
            self.take((gift,))
            if number >= step:
                step *= 2
                yield
        yield

    def _cover(self, pod: PodClass, count: int) -> bool:
        kind = sight_of(self._ahead).kind(pod, self.field.pool)
        mask = feasible(self.cycle.snapshot, pod, self.field.pool)
        if (allowed := self.cycle.allowed(self.workload.excluded_nodes)) is not None:
            mask = mask & allowed
        count -= self._use_free(kind, mask, count)
        if count <= 0:
            return True
        offers = ((self._offer(kind, row), row) for row in self.field.by_row if mask[row])
        heap = [(found[0], row) for found, row in offers if found is not None]
        heapify(heap)
        while heap and count > 0:
            _, row = heappop(heap)
            if (found := self._offer(kind, row)) is None:
                continue
            price, gifts = found
            if heap and (price, row) > heap[0]:
                heappush(heap, (price, row))
                continue
            if self.take(gifts):
                self._plan(kind.need, row)
                count -= 1
            for at in {row, *(at for gift in gifts for at in gift.rows)}:
                if mask[at]:
                    heappush(heap, (FREE, at))
        return count <= 0

    def _use_free(self, kind: Kind, mask: Mask, count: int) -> int:
        """Plan its pods into room that is free; how many of them have a place there."""
        given = 0
        rooms = np.where(mask, room(self._ahead, kind.pod, self.field.pool), 0)
        for row in np.flatnonzero(rooms).tolist():
            for _ in range(min(int(rooms[row]), count - given)):
                if row in self._planned and not fits(kind.need, self._left(row)):
                    break
                self._plan(kind.need, row)
                given += 1
        return given

    def _left(self, row: int) -> Room:
        """What of a node is not planned for yet."""
        left = self._ahead.free[:, row].tolist(), self._ahead.device_free[row].tolist()
        if row in self._planned:
            shift(left, self._planned[row], -1)
        return left

    def _plan(self, need: Need, row: int) -> None:
        """One more pod will stand there."""
        amounts, devices = self._left(row)
        less = self._planned.setdefault(row, ([0] * len(amounts), [0] * len(devices)))
        for column, amount in zip(need.columns, need.amounts):
            less[0][column] += amount
        part = need.share or DEVICE
        free = sorted((room, slot) for slot, room in enumerate(devices) if room >= part)
        for _, slot in free[: 1 if need.share else need.devices]:
            less[1][slot] += part

    def _offer(self, kind: Kind, row: int) -> tuple[Price, list[Gift]] | None:
        """The price of room for one more pod on a node, and who gives it; None where there is no such room. Gifts in
        their order, without those not needed, or one alone if that is cheaper."""
        need, left = kind.need, self._left(row)
        if fits(need, left):
            return FREE, []
        field, picked, alone = self.field, list[Gift](), list[Gift]()
        for gift in field.in_order(field.by_row[row]):
            if gift.key in self.barred or not field.may_take(gift):
                continue
            gives = field.gives(gift, row)
            if gift.pod is None and fits(need, shifted(self._left(row), gives)):
                alone.append(gift)
            if fits(need, left):
                continue
            for part in [one for one in picked if one.victim is gift.victim]:
                if gift.pod is None:
                    picked.remove(part)
                    shift(left, part.rows[row], -1)
            picked.append(gift)
            shift(left, gives, 1)
        sets = [[gift] for gift in alone]
        if fits(need, left):
            sets.append(self._needed(need, left, picked, row))
        return min((self._priced(gifts) for gifts in sets), key=lambda offer: offer[0], default=None)

    def _needed(self, need: Need, left: Room, picked: list[Gift], row: int) -> list[Gift]:
        """Without those, the dearest first, that would not have been necessary on this node."""
        for gift in reversed(picked[:-1]):
            gives = self.field.gives(gift, row)
            shift(left, gives, -1)
            if fits(need, left):
                picked.remove(gift)
            else:
                shift(left, gives, 1)
        return picked

    def _priced(self, gifts: list[Gift]) -> tuple[Price, list[Gift]]:
        ranks = [self.field.rank(gift) for gift in gifts]
        has_core, queues = ranks[-1][0], max(rank[1] for rank in ranks)
        priority = max(rank[2] for rank in ranks)
        lost = sum(rank[3] for rank in ranks if rank[0])
        return (has_core, queues, priority, lost, len(gifts), max(rank[4] for rank in ranks)), gifts


def fits(need: Need, left: Room) -> bool:
    """Whether one more pod has room; devices are looked at where they are told apart."""
    amounts, devices = left
    if any(amounts[column] < amount for column, amount in zip(need.columns, need.amounts)):
        return False
    if need.share:
        return any(room >= need.share for room in devices)
    is_told = bool(devices) and devices[0] != -1
    return not is_told or sum(1 for room in devices if room >= DEVICE) >= need.devices


def shifted(left: Room, by: Room) -> Room:
    shift(left, by, 1)
    return left


def shift(left: Room, by: Room, times: int) -> None:
    for mine, more in zip(left, by):
        for at, amount in enumerate(more):
            if amount:
                mine[at] += amount * times


def rooms(footprint: Iterable[tuple[int, Columns, Columns]]) -> dict[int, Room]:
    """What a footprint holds of each node."""
    held: dict[int, Room] = {}
    for row, amounts, devices in footprint:
        more = amounts.tolist(), devices.tolist()
        if row in held:
            shift(held[row], more, 1)
        else:
            held[row] = more
    return held


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
