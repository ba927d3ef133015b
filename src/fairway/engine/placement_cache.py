"""What was found out about one draft: feasible nodes, room and order, kept right by the draft's log of changed rows.

The meaning: `room` is room_of on the feasible nodes, `first` the feasible node with room that has the highest score,
the smallest row among equals. The difference, for speed: only rows that changed are computed again. A ranking holds the
nodes sorted as they were, and those that changed since in a short list sorted as they are; the classes that share it
each remember up to where the former have no room for them. It is sorted anew when the short list grows long.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import chain, groupby, repeat

import numpy as np

from .devices import choose, room_of
from .draft import Draft
from .feasibility import ByNode, Counts, Rows, Shape, Values, feasible
from .model import Admission, NodeShare, PodSet, PodSetPlacement
from .resources import DEVICE
from .scoring import Linear, Score, Typical, best_fit, kept_useful, less_fragmented, slope, total, typical_of
from .snapshot import ByWorkload, Mask, remember

LONG = 64
"""Entries of the short list, or one in LONG nodes if that is more, from which on a ranking is sorted anew."""


Kept = dict[object, tuple[ByNode, int]]  # arrays by node, and how much of the draft's log they know


class Masks(ByWorkload[tuple[int, str], Mask]):
    """Nodes that could take a pod of the class if they were empty, as `Shapes`, which keep the class."""


class PlacementCache:
    """One draft as placement sees it."""

    def __init__(self, draft: Draft) -> None:
        self.draft, self._masks = draft, draft.snapshot.memo.of(Masks)
        self.rankings: dict[object, Ranking] = {}
        self.runs: dict[object, Slots] = {}
        self._rooms: Kept[Counts] = {}
        self._values: Kept[Values] = {}

    def mask(self, shape: Shape) -> Mask:
        key = id(shape.pod), shape.pool
        if key not in self._masks:
            return remember(self._masks, key, feasible(self.draft.snapshot, shape.pod, shape.pool))
        return self._masks[key]

    def room(self, shape: Shape) -> Counts:
        """int64[node]: pods of the class that each node could take now. Not to be written."""
        mask = self.mask(shape)
        key, room = (id(shape.pod), shape.pool), lambda rows: np.where(mask[rows], room_of(self.draft, shape, rows), 0)
        return self._current(self._rooms, key, room)

    def values(self, shape: Shape, strategy: str) -> Values:
        """float64[node]: the score of each node. Not to be written."""
        key = id(shape.pod), shape.pool, strategy
        return self._current(self._values, key, partial(total, self.score(strategy), self.draft, shape))

    def _current(self, kept: Kept[ByNode], key: object, compute: Callable[[Rows], ByNode]) -> ByNode:
        """What is kept of each node, computed again where a row was written since; what was given out stays."""
        log = self.draft.log
        if key not in kept:
            array = compute(np.arange(len(self.draft.snapshot.nodes)))
        else:
            array, seen = kept[key]
            if rows := sorted(set(log[seen:])):
                array = array.copy()
                array[rows] = compute(np.array(rows, np.intp))
        return remember(kept, key, (array, len(log)))[0]

    def score(self, strategy: str) -> Score:
        """What orders nodes under a strategy, wishes apart."""
        if (by_typical := {"Fragmentation": kept_useful, "FGD": less_fragmented}.get(strategy)) is None:
            return best_fit if strategy == "BestFit" else partial(slope, 1.0 if strategy == "Spread" else -1.0)
        return partial(by_typical, self._typical)

    @cached_property
    def _typical(self) -> Typical:
        """By the class of each pod that waits or runs, in the pool it may use first."""
        snapshot, shapes = self.draft.snapshot, list[Shape]()
        for workload in chain(snapshot.pending, (one.workload for one in snapshot.running)):
            pool = workload.pools[0] if workload.pools else snapshot.pools[0].name
            for podset in workload.podsets:
                shapes += [self.draft.shape(podset.pod, pool)] * podset.count
        return typical_of(snapshot, shapes)


class Ranking:
    """Nodes of a mask in the order of a linear score; keys are scores negated, so that the best is the least."""

    def __init__(self, draft: Draft, mask: Mask, linear: Linear) -> None:
        self.draft, self.mask, self.linear = draft, mask, linear
        self.free = draft.free.data
        self.base: list[float] = (-linear.base).tolist()
        self.least = min(self.base, default=0.0)
        self.is_inside: list[bool] = mask.tolist()
        self.places: dict[tuple[str, int, bool], Admission] = {}  # of one pod, by its podset, row, whether on devices
        self.epoch, self.most = 0, max(LONG, int(np.count_nonzero(mask)) // LONG)
        self._sort()

    def _sort(self) -> None:
        """Everything in its place; what classes remember of their places ends."""
        base, column, slope = self.linear
        rows = np.flatnonzero(self.mask)
        keys = -base[rows] - slope * self.draft.free[column, rows]
        order = np.argsort(keys, kind="stable")
        self.rows: list[int] = rows[order].tolist()
        self.keys: list[float] = keys[order].tolist()
        self.moved: list[tuple[float, int]] = []
        self.key_of: dict[int, float] = {}
        self.head = 0  # the first position that has not changed since
        self.seen = len(self.draft.log)
        self.epoch += 1

    def follow(self) -> None:
        """Take in what changed."""
        log, moved, key_of = self.draft.log, self.moved, self.key_of
        if self.seen == len(log):
            return
        _, column, slope = self.linear
        for row in log[self.seen :] if len(log) == self.seen + 1 else set(log[self.seen :]):
            if self.is_inside[row]:
                if (before := key_of.get(row)) is not None:
                    del moved[bisect_left(moved, (before, row))]
                key = key_of[row] = self.base[row] - slope * self.free[column, row]
                insort(moved, (key, row))
        self.seen = len(log)
        while self.head < len(self.rows) and self.rows[self.head] in key_of:
            self.head += 1
        if len(moved) > self.most:
            self._sort()


class Slots:
    """A class of single pods on its way through a ranking: it remembers up to where there is no room for it."""

    def __init__(self, ranking: Ranking, shape: Shape, podsets: tuple[PodSet, ...], allowed: Mask | None) -> None:
        """`podsets` and `allowed` are told by identity and so kept."""
        self.ranking, self.shape, self.podsets, self.allowed = ranking, shape, podsets, allowed
        self.needs = shape.request.needs
        self.packs = ranking.linear.slope < 0
        # When packing, what sorts before the bound has less free than is asked for, if anything is.
        is_bound = self.packs and shape.request.size > 0
        self.bound = ranking.least - ranking.linear.slope * shape.request.size if is_bound else -np.inf, -1
        self.at, self.epoch = 0, 0
        is_told = shape.request.devices > 0 and ranking.draft.device_free.shape[1] > 0
        # Slots of one kind differ in what they take beside what nodes are ranked by.
        self.kind = id(ranking), shape.request.size, podsets[0].name, is_told and id(podsets)

    def next(self) -> Admission | None:
        """The best place for one more pod; the same value as for another there, unless devices tell them apart."""
        if (row := self._first()) is None:
            return None
        key, known = (self.podsets[0].name, row, self.shape.request.devices > 0), self.ranking.places
        if key not in known and (share := choose(self.ranking.draft, self.shape, row, count=1)) is not None:
            admission = Admission(self.shape.pool, (PodSetPlacement(key[0], (share,)),))
            if share.devices:
                return admission
            known[key] = admission
        return known.get(key)

    def many(self, takes: Counts, count: int) -> Rows:
        """The row of each of so many pods more, if they took that much by resource instead."""
        ranking, size = self.ranking, self.shape.request.size
        free, (base, column, slope) = ranking.draft.free, ranking.linear
        needs = tuple((at, amount) for at, amount in enumerate(takes.tolist()) if amount)
        request = self.shape.request._replace(needs=needs)
        pods = room_of(ranking.draft, self.shape._replace(request=request), ...)
        rooms = np.minimum(np.where(ranking.mask, pods, 0), count)
        if self.packs:  # a node that took one is the best for the next
            rows = np.argsort(-base - slope * free[column], kind="stable")
            rows = rows[: int(np.searchsorted(np.cumsum(rooms[rows]), count)) + 1]
            return np.repeat(rows, rooms[rows])[:count]
        rows, nth = np.repeat(np.arange(len(rooms)), rooms), np.arange(rooms.sum())
        nth -= np.repeat(np.cumsum(rooms) - rooms, rooms)
        return rows[np.argsort(-base[rows] - slope * (free[column, rows] - nth * size), kind="stable")][:count]

    def _first(self) -> int | None:
        """The row of the first node with room."""
        ranking = self.ranking
        ranking.follow()
        keys, rows, moved = ranking.keys, ranking.rows, ranking.moved
        if self.epoch != ranking.epoch:
            self.at, self.epoch = bisect_left(keys, self.bound[0]), ranking.epoch
        at = max(self.at, ranking.head)
        for position in range(bisect_left(moved, self.bound), len(moved)):
            entry = moved[position]
            if self._fits(entry[1]):
                if at < len(rows) and entry > (keys[at], rows[at]):  # one that has not changed may come before
                    self.at = at = self._unmoved(at)
                return entry[1] if at == len(rows) or entry < (keys[at], rows[at]) else rows[at]
        self.at = at = self._unmoved(at)
        return rows[at] if at < len(rows) else None

    def _unmoved(self, at: int) -> int:
        """The position of the first node from there on that has room and has not changed since the sorting."""
        ranking = self.ranking
        rows, moved, end = ranking.rows, ranking.key_of, len(ranking.rows)
        near = min(at + 16, end)
        for position in range(at, near):
            if rows[position] not in moved and self._fits(rows[position]):
                return position
        for start in range(near, end, 1024):
            chunk = np.array(rows[start : start + 1024], np.intp)
            for offset in np.flatnonzero(room_of(ranking.draft, self.shape, chunk)).tolist():
                if rows[start + offset] not in moved:
                    return start + int(offset)
        return end

    def _fits(self, row: int) -> bool:
        """Whether room_of is not 0 there."""
        free = self.ranking.free
        for column, amount in self.needs:
            if free[column, row] < amount:
                return False
        if self.shape.request.devices:
            devices = self.ranking.draft.device_free[row].tolist()
            return not devices or devices[0] < 0 or devices.count(DEVICE) >= self.shape.request.devices
        return True


def take(slots: list[Slots]) -> list[Admission]:
    """The admissions of workloads of one pod, one after the other, as far as there is room; they are charged. All are
    of one `kind`; where their places are not known at once, those of each half are, or of likes in a row."""
    found = _take(slots)
    rest, half = slots[len(found) :], (len(slots) - len(found)) // 2
    is_long = len(rest) > slots[0].ranking.most
    parts = [rest[:half], rest[half:]] if is_long else [list(alike) for _, alike in groupby(rest, id)]
    for part in parts if len(set(map(id, slots))) > 1 else ():
        found += (more := take(part))
        if len(more) < len(part):
            break
    return found


def _take(slots: list[Slots]) -> list[Admission]:
    """The first of them, as far as pods with the most of each resource that one takes would have the same places as
    pods with the least: each pod finds the room of the former at least, and that of the latter at most."""
    first, draft, classes = slots[0], slots[0].ranking.draft, dict(zip(map(id, slots), slots))
    if len(slots) == 1 and (admission := first.next()):
        draft.charge(first.podsets, admission, 1)
        return [admission]
    needs = (dict(one.needs) for one in classes.values())
    takes = np.array([[one.get(column, 0) for column in range(len(draft.free))] for one in needs], np.int64)
    rows = first.many(takes.max(axis=0), len(slots)) if len(slots) > 1 else np.zeros(0, np.intp)
    if len(classes) > 1:
        rows = rows[np.logical_and.accumulate(rows == first.many(takes.min(axis=0), len(slots))[: len(rows)])]
    used, turns, pods = np.unique(rows, return_inverse=True, return_counts=True)
    chosen = (choose(draft, first.shape, row, count=times) for row, times in zip(used.tolist(), pods.tolist()))
    pool, name, shares = first.shape.pool, first.podsets[0].name, [share for share in chosen if share is not None]
    if len(classes) == 1:
        draft.charge(first.podsets, Admission(pool, (PodSetPlacement(name, tuple(shares)),)), 1)
    elif len(rows):
        number = dict(zip(classes, range(len(classes))))
        amounts = takes[[number[id(one)] for one in slots[: len(rows)]]][np.argsort(turns, kind="stable")]
        draft.spend(used, np.add.reduceat(amounts, np.cumsum(pods) - pods))
    each = [_each(pool, name, share) for share in shares]
    return [next(each[at]) for at in turns.tolist()]


def _each(pool: str, name: str, share: NodeShare) -> Iterator[Admission]:
    """The admission of each pod by itself: one value, unless devices tell them apart."""
    ones = [NodeShare(share.node, 1, (own,)) for own in share.devices] or [NodeShare(share.node, 1)]
    admissions = [Admission(pool, (PodSetPlacement(name, (one,)),)) for one in ones]
    return iter(admissions) if share.devices else repeat(admissions[0])
