"""What is measured for the accounts, and kept in memory until a UsageDay has it.

Two things. What pools have and no workload holds: the state of the last cycle holds until the next, and is summed in
whole seconds. And how workloads used what they held: from the admission until all pods run it is starting; then the
node says whether each device is busy or idle, and what no node says is unknown. A crash loses what was seen of
workloads since their last charge, and it counts as unknown. The time that no controller watched counts as it was when
the next one looked, but a node is no capacity from when it went down until it was back.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from msgspec.structs import astuple, replace
from numpy.typing import NDArray

from fairway.api.accounts import PERIOD_SECONDS, Split, account_of, day_of, mark_of, with_recent
from fairway.api.quantities import time_text
from fairway.api.types import PoolDay, UsageDayStatus, WorkloadObject
from fairway.engine import DEVICE, GPU, Columns, Plan, Snapshot, Wait, slices, taken

from .held import held_by, held_of
from .status import holds, since

Make = Callable[[UsageDayStatus], UsageDayStatus]
Figures = dict[str, PoolDay]
Row = NDArray[np.int64]


@dataclass(slots=True)
class Meter:
    """`last`: a cycle that was not looked at yet. `state`: milli-GPU of each pool since `at`. `sums`: by the
    beginning of ten minutes, in GPU-milliseconds. `batches`: by day what is being written, and until when it goes.
    `downs`: from when until when nodes were last down; None until it is known from when on to count. `began`: by uid,
    from when on still to be counted, and the milli-GPU."""

    last: tuple[Snapshot, Plan] | None = None
    state: Figures | None = None
    at: int = 0
    sums: defaultdict[float, Figures] = field(default_factory=lambda: defaultdict(dict))
    batches: dict[str, tuple[str, dict[float, Figures]]] = field(default_factory=dict)
    downs: Mapping[str, tuple[float, float]] | None = None
    sampled: float | None = None
    began: dict[str, tuple[float, int]] = field(default_factory=dict)
    seen: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    # What pools have

    def watch(self, snapshot: Snapshot, plan: Plan) -> None:
        """A cycle is over. Of a second only the last counts, so no more are looked at."""
        if self.last is not None and int(snapshot.now) > int(self.last[0].now):
            self._look()
        self.last = snapshot, plan

    def _look(self) -> None:
        if self.last is not None and self.downs is not None:
            (snapshot, plan), self.last = self.last, None
            if self.state is None:
                self._bridge(snapshot, plan)
            self._advance(int(snapshot.now))
            self.state = figures(snapshot, plan)

    def begin(self, at: float, downs: Mapping[str, tuple[float, float]]) -> None:
        """Until then the sums were written before this life, or then it began; `downs`: when nodes were last down."""
        self.at, self.downs = int(at), downs

    def _bridge(self, snapshot: Snapshot, plan: Plan) -> None:
        """What was before the first look counts as it is then, without the nodes that were down."""
        spans_of = {name: (int(began), int(ended)) for name, (began, ended) in (self.downs or {}).items()}
        first, last = self.at, int(snapshot.now)
        turns = sorted({turn for down in spans_of.values() for turn in down if first < turn < last})
        for start, end in pairwise((first, *turns, last)):
            down = frozenset(name for name, (began, ended) in spans_of.items() if began <= start and end <= ended)
            self.state = figures(snapshot, plan, down)
            self._advance(end)

    def _advance(self, now: int) -> None:
        """What held since counts until now. Until the first look it is not known."""
        if self.state is None:
            return
        while self.at < now:
            own, end = self.sums[mark_of(self.at)], min(now, int(mark_of(self.at)) + PERIOD_SECONDS)
            for pool, each in self.state.items():
                own[pool] = _sum(own.get(pool, PoolDay()), each, end - self.at)
            self.at = end

    def since(self, now: float) -> Iterator[tuple[str, Make]]:
        """Each day with what makes a UsageDay's status of the one before. What is in it already is not added again."""
        self._look()
        self._advance(int(now))
        until, busy = time_text(int(now)), set(self.batches)
        for begin in [begin for begin in self.sums if day_of(begin) not in busy]:
            self.batches.setdefault(day_of(begin), (until, {}))[1][begin] = self.sums.pop(begin)
        for day in sorted(self.batches):
            yield day, self._adds(*self.batches[day])

    @staticmethod
    def _adds(until: str, more: Mapping[float, Figures]) -> Make:
        def make(status: UsageDayStatus) -> UsageDayStatus:
            if status.until >= until or status.closed:
                return status
            pools, recent = dict(status.pools), status.recent
            for begin, parts in sorted(more.items()):
                pools |= {name: _sum(pools.get(name, PoolDay()), one, 1) for name, one in parts.items()}
                recent = with_recent(recent, begin, {name: _rest(one) for name, one in parts.items()})
            return replace(status, until=until, pools=pools, recent=recent)

        return make

    def told(self, day: str) -> None:
        """What was to be added to this day is in it."""
        del self.batches[day]

    # How workloads use what they hold

    def note(self, old: WorkloadObject | None, new: WorkloadObject | None) -> None:
        """A Workload changed: while it is admitted and not running it starts."""
        said = new or old
        assert said is not None
        uid, admitted = account_of(said), since(new.status, "Admitted") if new else None
        starts = new is not None and admitted is not None and not since(new.status, "Running")
        starts = starts and not (new is not None and holds(new.status, "Finished"))
        if new is not None and starts and uid not in self.began:
            self.began[uid] = admitted or 0.0, held_of(new).get(GPU, 0)
        elif not starts and uid in self.began:
            start, gpus = self.began.pop(uid)
            ends = [since(new.status, kind) for kind in ("Running", "Evicted", "Finished")] if new else []
            self.seen[uid]["starting"] += round(gpus * max(0.0, min(filter(None, ends), default=start) - start))
        if new is None:
            self.seen.pop(uid, None)

    def sample(self, now: float, workloads: Iterable[WorkloadObject], uses: Mapping[str, Mapping[int, str]]) -> None:
        """`uses`: by node how its devices are used, as far as it tells. What holds them used them so since the last
        sample, or since it runs."""
        last, self.sampled = self.sampled, now
        for said in workloads if uses and last is not None else ():
            start, placed = since(said.status, "Running"), said.status.admission
            if start is None or placed is None or said.status.is_over:
                continue
            shares = [on for part in placed.pod_sets for on in part.nodes]
            devices = [(on.node, index) for on in shares for pod in on.devices for index in pod]
            each = held_of(said).get(GPU, 0) / len(devices) if devices else 0
            for node, index in devices:
                if kind := uses.get(node, {}).get(index):
                    self.seen[account_of(said)][kind] += round(each * max(0.0, now - max(last or now, start)))

    def taken(self, owed: Mapping[str, int], now: float) -> dict[str, Split]:
        """What was seen of these workloads since they were last asked for, as far as they owe it; the rest is kept."""
        found = {}
        for uid, more in owed.items():
            seen = self.seen[uid]
            if uid in self.began:
                start, gpus = self.began[uid]
                seen["starting"] += round(gpus * max(0.0, now - start))
                self.began[uid] = max(now, start), gpus
            split = Split(starting := min(seen["starting"], more), busy := min(seen["busy"], more - starting),
                          min(seen["idle"], more - starting - busy))  # fmt: skip
            seen.subtract(starting=split.starting, busy=split.busy, idle=split.idle)
            if not any(seen.values()):
                del self.seen[uid]  # it may be gone
            found[uid] = split
        return found


def figures(snapshot: Snapshot, plan: Plan, but: Set[str] = frozenset()) -> Figures:
    """Milli-GPU of each pool at one moment, without some nodes. What is promised is reserved as far as its room is free
    already."""
    free, outside, capacity = (_gpus(snapshot, each) for each in (snapshot.free, snapshot.outside, snapshot.capacity))
    promised: Counter[str] = Counter()
    leaving: Counter[str] = Counter()
    memories = snapshot.memories
    for one in snapshot.running:
        if (one.is_promised or one.is_leaving) and but.isdisjoint(one.admission.nodes):
            gpus = held_by(one, memories).get(GPU, 0)
            (promised if one.is_promised else leaving)[one.admission.pool] += gpus
    idle = free.clip(0)
    kept, found = np.minimum(_kept(snapshot, plan, idle), idle), {}
    is_up = np.array([node.name not in but for node in snapshot.nodes] if but else True, np.bool_)
    for index, pool in enumerate(snapshot.pools):
        mask = (snapshot.pool_of == index) & is_up
        if total := int(capacity[mask].sum()):
            usable, unusable = mask & snapshot.is_usable, mask & ~snapshot.is_usable
            twice = int((idle - free)[mask].sum())
            reserved = max(0, promised[pool.name] - twice) + int(kept[usable].sum())
            draining = int(idle[unusable].sum()) + leaving[pool.name]
            found[pool.name] = PoolDay(total, reserved, draining, int(outside[mask].sum()))
    return found


def _gpus(snapshot: Snapshot, columns: Columns) -> Row:
    """Milli-GPU by node, parts of partitioned devices included."""
    total: Row = columns[snapshot.resources.index(GPU)].copy()
    for row, name in enumerate(snapshot.resources):
        if parts := slices(name):
            total += columns[row] * parts * DEVICE // 7
    return total


def _kept(snapshot: Snapshot, plan: Plan, free: Row) -> Row:
    """Milli-GPU by node that holds and open reservations of nodes keep, free or not."""
    kept = np.zeros(len(snapshot.nodes), dtype=np.int64)
    waiting, memories = {one.key: one for one in snapshot.pending}, snapshot.memories
    for verdict in plan.verdicts:
        if isinstance(verdict, Wait) and verdict.held is not None and verdict.workload in waiting:
            memory = memories.get(verdict.held.pool, 0)
            each = {it.name: taken(it.pod, memory).get(GPU, 0) for it in waiting[verdict.workload].podsets}
            for part in verdict.held.podsets:
                for share in part.nodes:
                    kept[snapshot.row_of[share.node]] += each[part.name] * share.count
    for one in snapshot.reservations:
        rows = [snapshot.row_of[node] for node in one.nodes if node in snapshot.row_of]
        if one.start <= snapshot.now < one.start + one.duration:
            kept[rows] = free[rows]
    return kept


def _rest(one: PoolDay) -> int:
    """What workloads hold, or nothing does."""
    return one.capacity - one.reserved - one.draining - one.others


def _sum(one: PoolDay, more: PoolDay, times: int) -> PoolDay:
    return PoolDay(*(before + each * times for before, each in zip(astuple(one), astuple(more))))
