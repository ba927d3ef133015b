"""When capacity comes free, and for what it is kept: ends, holds, backfill, reservations.

An end is when a workload must be gone: its enforced time limit, else the time that nine in ten of its kind had ended
by; none is known for the others, and nothing is promised on their leaving. A hold is the earliest moment at which a
blocked workload fits if all whose end is known by then are gone, and the room it takes there. A reservation is room of
a pool, or nodes, kept in its time. Both are a Window: from `since` until `until`, so much of these nodes is reserved.
Windows whose times overlap add up.

A workload may start now if it ends before a window begins, or uses what the windows leave. A preemptible one may start
into the room of a hold at its own risk: the plan says for whom (`backfilled_for`), and that one may evict it; so it is
with one that is only trusted, by what was learned, to end by then. It may use the room of a reservation if it can be
gone, grace included, when that begins. A hold counts in quota from its start on, as it does in room.

Whether a gang fits at a moment takes windows, topology and devices into account, and is tried at each moment. Where a
node is never free for it, say because of one workload without a known end, all those tries would be in vain. So room is
counted first (`first_with_room`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from operator import itemgetter

import numpy as np

from .draft import Draft
from .feasibility import Counts
from .model import GPU, Admission, Reservation, Running, Workload
from .place import Ask, Placements, cache_of, place
from .plan import Cause
from .quota import Account, Demand
from .resources import DEVICE, counts_of
from .runtimes import HOUR

CERTAIN, PARTS = 0.9, (0.1, 0.3, 0.5, 0.7, 0.9)
PERIOD = {"Daily": 86_400.0, "Weekly": 604_800.0}
Rooms = dict[int, Counts]  # row → int64[resource + device slot]: amounts, and milli-GPU of devices
Spare = dict[tuple[Account, bool, str], int]
"""What is left of bounds of quota, by account, whether it is the guarantee (else the limit), and resource."""


@dataclass(slots=True, eq=False)
class Window:
    """Room spoken for from `since` until `until`, and again each `period`. `owner`: key of the held workload, or "" and
    `queue`, whose workloads a reservation is for ("" maintenance), with `members`, those below it. `left`: what is free
    of a row then, the room of other windows not taken off; `takes`: what of that others may not use. `pool`: that of a
    reserved amount. `held`: by whom and where, of a hold; `spare`: what it leaves of quota."""

    since: float
    owner: str
    queue: str
    left: Rooms
    takes: Rooms
    held: tuple[Workload, Admission] | None = None
    members: frozenset[str] = frozenset()
    until: float = inf
    period: float = inf
    pool: str = ""
    spare: Spare = field(default_factory=Spare)

    def is_for(self, workload: Workload) -> bool:
        return workload.key == self.owner if self.owner else workload.queue in self.members

    def opens(self, at: float) -> float:
        """When it begins that is on then, or that comes next."""
        if at < self.until:
            return self.since
        return self.since + self.period * ((at - self.until) // self.period + 1) if self.period < inf else inf

    def meets(self, other: "Window") -> bool:
        return self.since < other.until and other.since < self.until

    def is_on(self, at: float) -> bool:
        return self.since <= at < self.until


def occurrence(one: Reservation, now: float) -> tuple[float, float] | None:
    """The occurrence of a reservation that is on, or the next one; None when it is over."""
    period = PERIOD.get(one.repeat)
    if period is None:
        return (one.start, one.start + one.duration) if now < one.start + one.duration else None
    passed = max(0.0, (now - one.start - one.duration) // period + 1)
    return one.start + passed * period, one.start + passed * period + one.duration


def counted_in(spare: Spare, workload: Workload, accounts: tuple[Account, ...]) -> list[tuple[Account, bool, str]]:
    """The bounds that a workload counts in: a guarantee only where it cannot be preempted."""
    return [key for key in spare if key[0] in accounts and not (key[1] and workload.preemptible)]


def portion(wanted: Counts, rooms: list[Counts]) -> Counts:
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
    """What is kept of a draft's room, in one cycle."""

    def __init__(self, draft: Draft) -> None:
        self.draft, self.windows = draft, list[Window]()
        self._gpus, self._columns = draft.snapshot.resources.index(GPU), len(draft.snapshot.resources)
        for one in sorted(draft.snapshot.reservations, key=lambda one: (not one.nodes, one.start, one.name)):
            self._reserve(one)

    def end(self, workload: Workload, begins: float | None = None, *, by_limit: bool = False) -> float:
        """When it will be gone if it began then (default: now), infinity if unknown. `by_limit`: by that alone."""
        now = self.draft.snapshot.now
        begins = now if begins is None else begins
        if (limit := self.draft.tree.time_limit(workload)) is not None:
            return begins + limit
        lasts = None if by_limit else self.draft.tree.learned.quantile(workload, CERTAIN, max(0.0, now - begins))
        return inf if lasts is None else begins + lasts

    # What may not be used

    def against(self, workload: Workload, *, at_risk: bool = False, begins: float | None = None) -> list[Window]:
        """The windows, not its own, that it could delay if it began then (default: now); a preemptible one delays a
        reservation within its grace alone. `at_risk`: but the first hold of each pool, whose owner may take it back."""
        if not self.windows:
            return []
        begins = self.draft.snapshot.now if begins is None else begins
        end, gone_by = self.end(workload, begins), begins + workload.grace
        windows = [window for window in self.windows if window.opens(begins) < end and not window.is_for(workload)]
        if not workload.preemptible:
            return windows
        opened = self._firsts() if at_risk else set[str]()
        return [one for one in windows if one.owner not in opened and (one.owner or one.opens(begins) <= gone_by)]

    def pays(self, workload: Workload, pools: tuple[str, ...]) -> bool:
        """Whether a start at its own risk into the first holds of these pools is expected to keep more work than it
        loses: it ends before the first of them begins, as its kind did, or is taken back then. So it is where nothing
        was learned. One that was taken for a hold takes no such risk again for as long as that cost it at most."""
        now, every = self.draft.snapshot.now, workload.checkpoint_interval
        most = (HOUR if every is None else min(every, HOUR)) + workload.restart_seconds
        taken = (past.time for past in workload.evictions if past.reason == Cause.HOLD_TAKEN)
        if now - max(taken, default=-inf) < most:
            return False
        firsts = self._firsts()
        begins = [window.since for window in self.windows if window.owner in firsts and window.held
                  and window.held[1].pool in pools and not window.is_for(workload)]  # fmt: skip
        left = max(0.0, min(begins, default=inf) - now)
        lost = min(left % every if every else left if every is None else 0.0, HOUR)
        runtimes = [self.draft.tree.learned.quantile(workload, part) for part in PARTS]
        gains = [one if one <= left else left - 2 * lost - workload.restart_seconds for one in runtimes if one]
        return sum(gains) >= 0

    def _firsts(self) -> set[str]:
        """The owners of the first hold of each pool."""
        return set({one.held[1].pool: one.owner for one in reversed(self.windows) if one.held}.values())

    @contextmanager
    def kept(self, workload: Workload, *, at_risk: bool = False) -> Iterator[list[Window]]:
        """Inside, what the workload may not use is out of sight; gives the windows it could delay."""
        windows = self.against(workload, at_risk=at_risk)
        with self.beside(windows):
            yield windows

    @contextmanager
    def beside(self, windows: list[Window]) -> Iterator[None]:
        """Inside, only what these windows leave is in sight."""
        if not windows:
            yield
            return
        with self.draft.trial():
            self._cover(windows)
            yield

    def _cover(self, windows: list[Window], lefts: Mapping[Window, Rooms] | None = None) -> None:
        """Leave no more in sight than these windows leave together; a trial undoes it. `lefts`: what will be left."""
        for window in windows:
            for row, left in (lefts[window] if lefts else window.left).items():
                self.draft.cover(row, self._left(window, row, left, windows))

    def _left(self, window: Window, row: int, left: Counts, windows: Iterable[Window]) -> Counts:
        """What is left of a row when a window begins, beside those that are on by then."""
        left = left.copy()
        for one in windows:
            if row in one.takes and (one is window or one.is_on(window.since)):
                left -= one.takes[row]
        left[self._columns :] *= left[self._gpus] > 0
        return left

    def has_quota(self, workload: Workload, pool: str, amounts: Demand, *, at_risk: bool = False) -> bool:
        """Whether holds that it could delay have the quota they need beside so much more."""
        accounts = self.draft.tree.ledgers(workload.queue, pool)
        return not accounts or all(
            not amounts.get(key[2]) or amounts[key[2]] <= window.spare[key]
            for window in self.against(workload, at_risk=at_risk)
            for key in counted_in(window.spare, workload, accounts)
        )

    def stay(self, workload: Workload, admission: Admission) -> str:
        """Count what it takes of the room and quota that windows leave, now that it starts; a trial undoes it. Returns
        the owner of the first hold into whose room it starts, "" where it takes nothing of any: what was learned says
        when it will be gone, and nothing but that owner makes it go."""
        if not self.windows:
            return ""
        owner, footprint = "", self.draft.footprint(workload.podsets, admission)
        against, is_bound = self.against(workload), self.draft.tree.time_limit(workload) is not None
        rest = sum(footprint.values(), np.zeros((), np.int64))
        for window in self.windows:
            if window.is_for(workload):
                if not window.owner and window.pool in ("", admission.pool):
                    rest = self._fill(window, footprint, rest)
                continue
            stays = window in against
            if not stays and (is_bound or not workload.preemptible):
                continue
            others = against if stays else [*against, window]
            for row, amounts in footprint.items():
                if row in window.left:
                    left = window.left[row] - amounts
                    if window.owner and not owner and self._is_short(row, self._left(window, row, left, others)):
                        owner = window.owner
                    if stays:
                        self.draft.put(window.left, row, left)
            if stays and self._spend(window, workload, admission):
                owner = owner or window.owner
        return owner

    def _is_short(self, row: int, left: Counts) -> bool:
        """Whether less than nothing is left, of devices where they are told apart."""
        is_told = self.draft.snapshot.device_free[row] != -1
        return bool((left[: self._columns] < 0).any() or (is_told & (left[self._columns :] < 0)).any())

    def _spend(self, window: Window, workload: Workload, admission: Admission) -> bool:
        """Count what it takes of the quota that a hold leaves; whether that is too much."""
        tree, is_over, counts = self.draft.tree, False, counts_of(workload.podsets, admission)
        accounts = tree.ledgers(workload.queue, admission.pool)
        for key in counted_in(window.spare, workload, accounts):
            before = window.spare[key]
            left = before - tree.amounts(workload.podsets, counts, admission.pool).get(key[2], 0)
            self.draft.put(window.spare, key, left)
            is_over |= left < min(before, 0)
        return is_over

    def _fill(self, window: Window, footprint: Rooms, rest: Counts) -> Counts:
        """A workload that a reservation is for starts: the room that is kept shrinks by what it takes, wherever it runs
        in the pool; what is left of that for other reservations of its queue."""
        for row, amounts in footprint.items():
            if row in window.left:
                self.draft.put(window.left, row, window.left[row] - amounts)
                if not window.pool:
                    self.draft.put(window.takes, row, np.maximum(window.takes[row] - amounts, 0))
        for row in sorted(window.takes, key=lambda row: (row not in footprint, row)) if window.pool else ():
            used = np.minimum(window.takes[row], np.maximum(rest, 0))
            if used.any():
                rest = rest - used
                self.draft.put(window.takes, row, window.takes[row] - used)
        return rest

    # Holds

    def hold(self, ask: Ask, pools: Iterable[str], *, by_limit: bool = False) -> Window | None:
        """The earliest moment at which it fits, and where, kept from then on; `by_limit`: by enforced limits alone."""
        moments = self._moments(ask.workload.key, by_limit=by_limit)
        found = [window for pool in pools if (window := self._earliest(ask, pool, moments)) is not None]
        if not found:
            return None
        window = min(found, key=lambda one: one.since)
        for other in self.windows:
            if window.held and window.meets(other):
                self._spend(other, *window.held)
        self.windows.append(window)
        return window

    def _moments(self, owner: str, *, by_limit: bool) -> list[tuple[float, str]]:
        """When running and starting workloads will be gone, as far as known, and ("") when windows end; earliest first.
        What backfilled into the hold of `owner` is gone once `owner` takes it back."""
        now = self.draft.snapshot.now
        ends = [(self._gone(one, owner, by_limit=by_limit), key) for key, one in self.draft.running.items()]
        ends += [(self.end(workload, by_limit=by_limit), key) for key, (workload, _) in self.draft.started.items()]
        ends += [(window.until, "") for window in self.windows]
        return sorted((max(end, now), key) for end, key in ends if end < inf)

    def _gone(self, one: Running, owner: str = "", *, by_limit: bool = False) -> float:
        if one.is_leaving:
            return (one.leaving_since or self.draft.snapshot.now) + one.workload.grace
        if owner and one.backfilled_for == owner and one.workload.preemptible:
            return self.draft.snapshot.now + one.workload.grace
        return self.end(one.workload, one.admitted_at, by_limit=by_limit)

    def _earliest(self, ask: Ask, pool: str, moments: list[tuple[float, str]]) -> Window | None:
        """Let workloads go whose end is known, earliest first: at once as many as it takes for nodes to have the room,
        then moment by moment until it fits, beside the windows that it would meet from then on."""
        draft = self.draft
        if (at := first_with_room(draft, ask, pool, [key for _, key in moments])) == len(moments):
            return None
        with draft.trial():
            lefts = {window: dict(window.left) for window in self.windows}
            for row, (since, key) in enumerate(moments):
                if key:
                    self._let_go(key, since, lefts)
                is_last = row + 1 == len(moments) or moments[row + 1][0] > since
                if row >= at and is_last and (placed := self._place(ask, pool, since, lefts)) is not None:
                    return self._window(ask.workload, Admission(pool, placed), since)
        return None

    def _place(self, ask: Ask, pool: str, begins: float, lefts: Mapping[Window, Rooms]) -> Placements | None:
        """Where it fits at that moment, beside the windows that it would delay if it began then."""
        workload, windows = ask.workload, self.against(ask.workload, begins=begins)
        with self.draft.trial():
            if self._bounds(workload, pool, begins, ask.counts) is None:
                return None
            self._cover(windows, lefts)
            return place(self.draft, ask, pool)

    def _bounds(self, workload: Workload, pool: str, begins: float, counts: tuple[int, ...]) -> Spare | None:
        """What it and the holds that it would meet leave of limits, and of guarantees if it counts; None if broken."""
        tree, end, spare = self.draft.tree, self.end(workload, begins), Spare()
        holds = [one.held for one in self.windows if one.held and one.since < end and begins < one.until]
        for one in tree.ledgers(workload.queue, pool):
            spare |= {(one, False, name): limit - one.held[name] for name, limit in one.limit.items()}
            fixed = {} if workload.preemptible else one.guaranteed
            spare |= {(one, True, name): due - one.fixed[name] for name, due in fixed.items()}
        asked = tree.amounts(workload.podsets, counts, pool)
        theirs = ((one, at.pool, tree.amounts(one.podsets, counts_of(one.podsets, at), at.pool)) for one, at in holds)
        for other, at, amounts in ((workload, pool, asked), *theirs):
            for key in counted_in(spare, other, tree.ledgers(other.queue, at)):
                spare[key] -= amounts.get(key[2], 0)
        return None if any(left < 0 and asked.get(name) for (_, _, name), left in spare.items()) else spare

    def _let_go(self, key: str, at: float, lefts: Mapping[Window, Rooms]) -> None:
        """It is gone; what windows leave grows by what it held. A hold counted on the end of all before it begins, and
        of what backfilled into it; a reservation wants what its own queue gives up."""
        draft = self.draft
        workload, admission = draft.holder(key)
        footprint = draft.footprint(workload.podsets, admission) if lefts else {}
        risks = draft.running[key].backfilled_for if key in draft.running else ""
        counted = {id(window) for window in self.against(workload)} if key in draft.started else None
        draft.vanish(key)
        for window, rooms in lefts.items():
            grows = at > window.since and window.owner != risks if window.owner else not window.is_for(workload)
            if grows and (counted is None or id(window) in counted):
                for row in footprint.keys() & rooms.keys():
                    rooms[row] = rooms[row] + footprint[row]

    def _window(self, workload: Workload, admission: Admission, since: float) -> Window:
        counts = counts_of(workload.podsets, admission)
        spare = self._bounds(workload, admission.pool, since, counts) or {}
        takes = self.draft.footprint(workload.podsets, admission)
        left = {row: np.array(self.draft.room(row), np.int64) for row in sorted(takes)}
        until = self.end(workload, since)
        held = workload, admission
        return Window(since, workload.key, workload.queue, left, takes, held, until=until, spare=spare)

    # Reservations

    def _reserve(self, one: Reservation) -> None:
        """Nodes by name, or as much of a pool as is reserved."""
        snapshot, tree = self.draft.snapshot, self.draft.tree
        if (when := occurrence(one, snapshot.now)) is None:
            return
        members = frozenset(name for name in tree.branches if one.queue and tree.is_under(name, one.queue))
        window = Window(when[0], "", one.queue, {}, {}, None, members, when[1], PERIOD.get(one.repeat, inf))
        own, soon, movable = self._holdings(window)
        rows = [snapshot.row_of[name] for name in one.nodes if name in snapshot.row_of]
        taken = np.zeros_like(snapshot.free)
        taken[:, rows] = snapshot.capacity[:, rows]
        if one.amount and one.pool in tree.pools:
            window.pool = one.pool
            taken += self._portion(one, window, (own, soon, movable))
        takes = np.maximum(taken - own, 0)
        for row in np.flatnonzero(taken.any(axis=0)).tolist():
            left = window.left[row] = np.array(self.draft.room(row), np.int64)
            left[self._columns :] = devices = np.maximum(left[self._columns :], 0)
            window.takes[row] = np.append(takes[:, row], np.zeros_like(devices))
        if window.takes:
            self.windows.append(window)

    def _portion(self, one: Reservation, window: Window, held: tuple[Counts, Counts, Counts]) -> Counts:
        """int64[resource, node]: what is reserved of a pool, where it costs least, in whole devices: what its queue
        holds, what is free and not reserved for that time, what is given up by then, what preemptible workloads hold.
        Room that others cannot be made to give up is not counted on."""
        snapshot, asked, (own, soon, movable) = self.draft.snapshot, dict(one.amount), held
        pool = [at.name == one.pool for at in snapshot.pools].index(True)
        rows = np.flatnonzero((snapshot.pool_of == pool) & snapshot.is_usable)
        columns = [snapshot.resources.index(name) for name in asked if name in snapshot.resources]
        names = [snapshot.resources[column] for column in columns]
        wanted = np.array([asked[name] for name in names], np.int64)
        unit = np.array([[DEVICE if name == GPU else 1] for name in names], np.int64)
        free = snapshot.free.copy()
        for other in (one for one in self.windows if one.meets(window)):
            for row, amounts in other.takes.items():
                free[:, row] -= amounts[: self._columns]
        rooms = [own + np.maximum(room, 0) for room in (own * 0, free, free + soon, free + soon + movable)]
        taken = portion(wanted, [room[columns][:, rows] // unit * unit for room in rooms] if columns else [])
        whole = np.zeros_like(snapshot.free)
        for column, amounts in zip(columns, taken):
            whole[column, rows] = amounts
        return whole

    def _holdings(self, window: Window) -> tuple[Counts, Counts, Counts]:
        """int64[resource, node]: what members of a reservation hold, what other workloads give up by themselves before
        it begins, and what other preemptible workloads hold."""
        own, soon, movable = (np.zeros_like(self.draft.snapshot.free) for _ in range(3))
        for one in self.draft.running.values():
            if window.is_for(one.workload) and not one.is_leaving:
                room = own
            elif one.is_leaving or self._gone(one) <= window.since:
                room = soon
            elif one.workload.preemptible:
                room = movable
            else:
                continue
            for row, amounts in self.draft.footprint(one.workload.podsets, one.admission).items():
                room[:, row] += amounts[: self._columns]
        return own, soon, movable

    def conflicting(self, order: Callable[[Running], tuple[float, float, float, str]]) -> dict[str, float]:
        """The workloads that must go and from when on, in this order, because a reservation begins before its grace is
        over: preemptible workloads of other queues on room that would be missing."""
        found, now = dict[str, float](), self.draft.snapshot.now
        reserved = [window for window in self.windows if not window.owner]
        ordered = sorted(self.draft.running.values(), key=order) if reserved else []
        for window in reserved:
            lefts = {row: self._left(window, row, left, reserved) for row, left in window.left.items()}
            missing = {row: -left for row, left in lefts.items() if (left[: self._columns] < 0).any()}
            goes = [one.is_leaving or self._gone(one) <= window.since for one in ordered] if missing else []
            for is_gone, one in sorted(zip(goes, ordered), key=itemgetter(0), reverse=True):  # these give room anyway
                workload, due = one.workload, window.since - one.workload.grace
                may_go = is_gone or (workload.preemptible and not window.is_for(workload))
                footprint = self.draft.footprint(workload.podsets, one.admission) if may_go else {}
                for row in footprint.keys() & missing.keys():
                    if is_gone:
                        missing[row] = missing[row] - footprint[row]
                    elif ((missing[row] > 0) & (footprint[row] > 0))[: self._columns].any():
                        missing[row] = missing[row] - footprint[row] * (due <= now)
                        found[workload.key] = min(due, found.get(workload.key, inf))
        return found


def first_with_room(draft: Draft, ask: Ask, pool: str, keys: list[str]) -> int:
    """The first of these workloads ("": none) with whose going each podset by itself has room; else their number."""
    cache, frees = cache_of(draft), dict[int, list[int]]()
    shapes = [draft.shape(podset.pod, pool) for podset in ask.workload.podsets]
    masks = [cache.mask(one) if ask.allowed is None else cache.mask(one) & ask.allowed for one in shapes]
    rooms = [np.where(mask, cache.room(shape), 0) for shape, mask in zip(shapes, masks)]
    missing = [count - int(room.sum()) for count, room in zip(ask.counts, rooms)]
    for at, key in enumerate(keys):
        workload, admission = draft.holder(key) if key else (ask.workload, Admission(pool, ()))
        for row, amounts in draft.holdings(workload.podsets, admission).items():
            frees[row] = free = [sum(pair) for pair in zip(frees.get(row) or draft.free[:, row].tolist(), amounts)]
            for part, (shape, mask, room) in enumerate(zip(shapes, masks, rooms)):
                if mask[row]:
                    pods = min(max(0, free[column]) // amount for column, amount in shape.request.needs)
                    missing[part] -= pods - int(room[row])
                    room[row] = pods
        if max(missing, default=0) <= 0:
            return at
    return len(keys)
