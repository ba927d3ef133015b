"""When capacity comes free, and for whom it is kept: ends, holds, backfill, reservations.

An end is when a workload must be gone: its enforced time limit, else the time that nine in ten of its kind had ended
by; none is known for the others, and nothing is promised on their leaving. A hold is the earliest moment at which a
blocked workload fits if all whose end is known by then are gone, and the room it takes there. A reservation is room of
a pool, or nodes, kept from its start on. Both are a Keep: from `since` on, so much of these nodes is spoken for.

Who starts may use all of a Keep's room if it ends by `since`; who may stay longer uses what the Keep leaves. A
preemptible one may start into the room of a hold at its own risk: the plan says for whom (`backfilled_for`), and that
one may evict it; so it is with who is only trusted, by what was learned, to end by then. It may use the room of a
reservation if it can be gone, grace included, when that begins.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .draft import Draft
from .model import GPU, Admission, Reservation, Running, Workload
from .place import Ask, Placements, place
from .resources import DEVICE

CERTAIN = 0.9
PERIOD = {"Daily": 86_400.0, "Weekly": 604_800.0}
Limit = Callable[[Workload], float | None]
Room = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Keep:
    """Room spoken for from `since` on, a reservation's `until` it ends. `owner`: key of the held workload, or "" and
    `queue`, whose workloads a reservation is for ("" nobody), with `members`, those below it. `left`: row → what others
    may use of it then: amounts by resource column, milli-GPU by device slot."""

    since: float
    owner: str
    queue: str
    left: dict[int, tuple[Room, Room]]
    admission: Admission | None = None
    members: frozenset[str] = frozenset()
    until: float = inf

    def is_for(self, workload: Workload) -> bool:
        return workload.key == self.owner if self.owner else workload.queue in self.members


class Left(NamedTuple):
    """What a Keep leaves of each row while others go; whether the draft `is_seen` without the rest."""

    keep: Keep
    rooms: dict[int, tuple[Room, Room]]
    is_seen: bool = True


def window(one: Reservation, now: float) -> tuple[float, float] | None:
    """The occurrence of a reservation that is on, or the next one; None when it is over."""
    period = PERIOD.get(one.repeat)
    if period is None:
        return (one.start, one.start + one.duration) if now < one.start + one.duration else None
    passed = max(0.0, (now - one.start - one.duration) // period + 1)
    return one.start + passed * period, one.start + passed * period + one.duration


def portion(wanted: Room, rooms: list[Room]) -> Room:
    """int64[resource, node]: as much as is wanted of each resource, of the first room (int64[resource, node]) first, of
    each room from the nodes with most of it; nodes with as much in their order."""
    taken = np.zeros((len(wanted), 0) if not rooms else rooms[0].shape, np.int64)
    for room in rooms:
        there = np.maximum(room - taken, 0)
        order = np.lexsort(-there[::-1])
        before = np.cumsum(there[:, order], axis=1) - there[:, order]
        missing = (wanted - taken.sum(axis=1))[:, None]
        taken[:, order] += np.clip(missing - before, 0, there[:, order])
    return taken


class Timeline:
    """What is kept of a draft's room, in one cycle. `limit` gives a workload's enforced time limit, if any."""

    def __init__(self, draft: Draft, limit: Limit) -> None:
        self.draft, self._limit = draft, limit
        self.keeps: list[Keep] = []
        for one in draft.snapshot.reservations:
            self._reserve(one)

    def end(self, workload: Workload, begins: float | None = None) -> float:
        """When it will be gone if it began then (default: now); infinity where nothing is known."""
        now = self.draft.snapshot.now
        begins = now if begins is None else begins
        if (limit := self._limit(workload)) is not None:
            return begins + limit
        lasts = self.draft.tree.learned.quantile(workload, CERTAIN, now - begins)
        return inf if lasts is None else begins + lasts

    def hold(self, workload: Workload, ask: Ask, pools: tuple[str, ...]) -> Keep | None:
        """The earliest moment at which it fits, and where; from now on that room is kept. None where none is known."""
        found = [keep for pool in pools if (keep := self._earliest(workload, ask, pool)) is not None]
        if not found:
            return None
        keep = min(found, key=lambda one: one.since)
        self.keeps.append(keep)
        return keep

    @contextmanager
    def kept(self, workload: Workload, *, at_risk: bool = False) -> Iterator[list[Keep]]:
        """Inside, what the workload may not use is out of sight; gives the Keeps it could delay. `at_risk`: all but the
        first hold of each pool, whose owner alone may take back what starts into it."""
        keeps = self.against(workload, at_risk=at_risk)
        if not keeps:
            yield keeps
            return
        with self.draft.trial():
            for keep in keeps:
                for row, left in keep.left.items():
                    self.draft.cover(row, *left)
            yield keeps

    def stay(self, workload: Workload, admission: Admission) -> str:
        """Count what it takes of the room that Keeps leave, now that it starts; a trial undoes it. Returns the owner of
        the first hold into whose room it starts, "" where it takes nothing of any: what was learned says when it will
        be gone, and nothing but that owner makes it go."""
        owner, footprint = "", list(self.draft.footprint(workload.podsets, admission))
        against, is_bound = self.against(workload), self._limit(workload) is not None
        for keep in against if is_bound or not workload.preemptible else self.keeps:
            stays = keep in against
            for row, amounts, devices in footprint if not keep.is_for(workload) else ():
                if row in keep.left:
                    left = keep.left[row][0] - amounts, keep.left[row][1] - devices
                    if (left[0] < 0).any() or (left[1] < 0).any():
                        owner = owner or keep.owner
                    if stays:
                        self.draft.note(partial(keep.left.__setitem__, row, keep.left[row]))
                        keep.left[row] = left
        return owner

    def against(self, workload: Workload, *, at_risk: bool = False, begins: float | None = None) -> list[Keep]:
        """The Keeps it could delay if it began then (default: now), not its own. A preemptible workload delays a
        reservation only from so long before as its grace lasts."""
        if not self.keeps:
            return []
        begins = self.draft.snapshot.now if begins is None else begins
        end, gone_by = self.end(workload) + (begins - self.draft.snapshot.now), begins + workload.grace
        keeps = [keep for keep in self.keeps if keep.since < end and not keep.is_for(workload)]
        if not workload.preemptible:
            return keeps
        opened = self._firsts() if at_risk else set[str]()
        return [keep for keep in keeps if keep.owner not in opened and (keep.owner or keep.since < gone_by)]

    def _firsts(self) -> set[str]:
        """The owners of the first hold of each pool."""
        first = {keep.admission.pool: keep.owner for keep in reversed(self.keeps) if keep.admission}
        return set(first.values())

    def _releases(self, owner: str) -> list[tuple[float, str]]:
        """When running and starting workloads will be gone, earliest first, as far as known. What backfilled into the
        hold of `owner` is gone once `owner` takes it back."""
        now = self.draft.snapshot.now
        ends = [(self._gone(one, owner), key) for key, one in self.draft.running.items()]
        ends += [(self.end(workload), key) for key, (workload, _) in self.draft.started.items()]
        return sorted((max(end, now), key) for end, key in ends if end < inf)

    def _gone(self, one: Running, owner: str) -> float:
        if one.is_leaving:
            return (one.leaving_since or self.draft.snapshot.now) + one.workload.grace
        if one.backfilled_for == owner:
            return self.draft.snapshot.now + one.workload.grace
        return self.end(one.workload, one.admitted_at)

    def _earliest(self, workload: Workload, ask: Ask, pool: str) -> Keep | None:
        """Let those go whose end is known, earliest first: at once as many as it takes for the sum to do, then moment
        by moment until it fits, beside the reservations that it would meet from then on."""
        draft, releases = self.draft, self._releases(workload.key)
        with self.kept(workload) as keeps, draft.trial():
            lefts = [Left(keep, dict(keep.left)) for keep in keeps]
            later = [Left(keep, dict(keep.left), is_seen=False) for keep in self.keeps
                     if not keep.owner and keep not in keeps]  # fmt: skip
            at = self._enough(ask, pool, releases)
            for row, (since, key) in enumerate(releases):
                self._let_go(key, (*lefts, *later))
                is_last = row + 1 == len(releases) or releases[row + 1][0] > since
                if row >= at and is_last and (placed := self._place(ask, pool, since, later)) is not None:
                    return self._keep(workload, Admission(pool, placed), since)
        return None

    def _place(self, ask: Ask, pool: str, begins: float, later: Sequence[Left]) -> Placements | None:
        """Where it fits at that moment, beside the reservations that it would delay if it began then."""
        if not later:
            return place(self.draft, ask, pool)
        against = self.against(ask.workload, begins=begins)
        with self.draft.trial():
            for one in later:
                for row, left in one.rooms.items() if one.keep in against else ():
                    self.draft.cover(row, *left)
            return place(self.draft, ask, pool)

    def _let_go(self, key: str, lefts: Sequence[Left]) -> None:
        """It is gone; of what it held, no more comes in sight than Keeps leave. A hold counted on its going already;
        what a reservation is short of grows less, unless it did not count what starts and ends before it."""
        draft = self.draft
        workload, admission = draft.started.get(key) or (draft.running[key].workload, draft.running[key].admission)
        footprint = list(draft.footprint(workload.podsets, admission)) if lefts else []
        counted = self.against(workload) if lefts and key in draft.started else self.keeps
        draft.vanish(key)
        for one in lefts:
            grows = not one.keep.owner and one.keep in counted
            for row, amounts, devices in (part for part in footprint if part[0] in one.rooms):
                if grows:
                    one.rooms[row] = one.rooms[row][0] + amounts, one.rooms[row][1] + devices
                if one.is_seen:
                    draft.cover(row, *one.rooms[row])

    def _enough(self, ask: Ask, pool: str, releases: list[tuple[float, str]]) -> int:
        """The first release with which what is free in sum reaches what is asked, of every resource."""
        draft = self.draft
        rows = draft.snapshot.pool_of == [one.name for one in draft.snapshot.pools].index(pool)
        missing = draft.demand(ask.workload.podsets, ask.counts, pool)
        missing = missing - np.maximum(draft.free[:, rows], 0).sum(axis=1)
        for at, (_, key) in enumerate(releases):
            missing -= draft.held(key, pool)
            if (missing <= 0).all():
                return at
        return len(releases)

    def _keep(self, workload: Workload, admission: Admission, since: float) -> Keep:
        self.draft.start(workload, admission)
        rows = {row for row, _, _ in self.draft.footprint(workload.podsets, admission)}
        left = {row: (self.draft.free[:, row].copy(), self.draft.device_free[row].copy()) for row in sorted(rows)}
        return Keep(since, workload.key, workload.queue, left, admission)

    def _reserve(self, one: Reservation) -> None:
        """Nodes by name, or as much of a pool as is reserved."""
        snapshot = self.draft.snapshot
        if (when := window(one, snapshot.now)) is None:
            return
        tree = self.draft.tree
        members = frozenset(name for name in tree.branches if one.queue and tree.is_under(name, one.queue))
        rows, own = {snapshot.row_of[name] for name in one.nodes if name in snapshot.row_of}, self._own(members)
        taken = {row: snapshot.capacity[:, row] for row in rows} | self._portion(one, own)
        if taken:
            left = {row: self._rest(row, amounts, own[:, row]) for row, amounts in sorted(taken.items())}
            self.keeps.append(Keep(when[0], "", one.queue, left, members=members, until=when[1]))

    def _portion(self, one: Reservation, own: Room) -> dict[int, Room]:
        """What is reserved of which node of a pool: what its queue holds first, then what is free, in whole devices,
        and only then what others hold, so that nobody has to leave while there is room elsewhere."""
        snapshot, asked = self.draft.snapshot, dict(one.amount)
        pool = [at.name == one.pool for at in snapshot.pools].index(True) if one.pool in self.draft.tree.pools else -2
        rows = np.flatnonzero((snapshot.pool_of == pool) & snapshot.is_usable)
        columns = [snapshot.resources.index(name) for name in asked if name in snapshot.resources]
        names = [snapshot.resources[column] for column in columns]
        wanted = np.array([asked[name] for name in names], np.int64)
        unit = np.array([[DEVICE if name == GPU else 1] for name in names], np.int64)
        rooms = (own, own + np.maximum(snapshot.free, 0), snapshot.capacity) if columns else ()
        taken = portion(wanted, [room[columns][:, rows] // unit * unit for room in rooms])
        amounts = np.zeros((len(snapshot.resources), len(rows)), np.int64)
        amounts[columns] = taken
        used = np.flatnonzero(amounts.any(axis=0))
        return dict(zip(rows[used].tolist(), amounts.T[used]))

    def _own(self, members: frozenset[str]) -> Room:
        """int64[resource, node]: what workloads of these queues hold; it is part of what is reserved for them."""
        own = np.zeros_like(self.draft.snapshot.free)
        for one in self.draft.running.values() if members else ():
            if one.workload.queue in members:
                for row, amounts, _ in self.draft.footprint(one.workload.podsets, one.admission):
                    own[:, row] += amounts
        return own

    def _rest(self, row: int, taken: Room, own: Room) -> tuple[Room, Room]:
        """What others may use of a node: what is free less what is reserved and not used by its queue yet. Devices are
        left to them as long as GPUs are."""
        rest = self.draft.free[:, row] - np.maximum(taken - own, 0)
        devices = np.maximum(self.draft.device_free[row], 0)
        gpus = self.draft.snapshot.resources.index(GPU)
        return rest, devices if rest[gpus] > 0 or not taken[gpus] else np.zeros_like(devices)

    def trespassers(self) -> dict[str, float]:
        """Who must go and from when on, youngest first, because a reservation begins before its grace is over:
        preemptible workloads of other queues on room that would be missing."""
        found, now = dict[str, float](), self.draft.snapshot.now
        for keep in self.keeps:
            short = {row: -amounts for row, (amounts, _) in keep.left.items() if (amounts < 0).any()}
            missing = {} if keep.owner else short
            ordered = sorted(self.draft.running.values(), key=lambda one: (-(one.admitted_at or 0.0), one.workload.key))
            for one in ordered if missing else ():
                workload, due = one.workload, keep.since - one.workload.grace
                if one.is_leaving or not workload.preemptible or keep.is_for(workload):
                    continue
                for row, amounts, _ in self.draft.footprint(workload.podsets, one.admission):
                    if row in missing and ((missing[row] > 0) & (amounts > 0)).any():
                        missing[row] = missing[row] - amounts * (due <= now)
                        found[workload.key] = min(due, found.get(workload.key, inf))
        return found
