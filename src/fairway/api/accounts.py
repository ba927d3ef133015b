"""What workloads used, day by day: the sums that UsageDays keep. Pure.

A unit is one milli-GPU for a second, a GPU-millisecond, and all are whole numbers: sums are exact in any order. A day
is one of UTC. What a workload has used of a day follows from its Workload (`Served.days`, and what it holds since), so
a UsageDay is charged the difference to what its mark says was charged, and the mark is written with it: charging twice
changes nothing, and what was charged too much is taken back. How a workload used what it held (starting, busy, idle)
is measured, not derived: a crash may lose it, and it is unknown then; the allocated sum never depends on it.

Running workloads are charged to a mark: every ten minutes, the same for all queues and for the capacity of the pools.
A workload that ends is charged soon. So a UsageDay keeps the sums of its last two periods: what is charged beyond the
mark of the capacity is known, whichever of the two was written last.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from itertools import chain

from msgspec.structs import replace

from fairway.engine import DaysUsed, job_family

from .objects import BEGAN
from .quantities import time, time_text
from .types import EvictionRecord, UsageDayStatus, UsageLoss, UsageMark, UsageRow, WorkloadObject, WorkloadStatus

DAY_SECONDS, PERIOD_SECONDS, HOUR_UNITS, MILLIONTHS = 86_400, 600, 3_600_000, 1_000_000
OTHERS = "(others)"
MOST_ROWS = 2000
MOST_MARKS = 10_000
FIGURES = ("allocated", "starting", "busy", "idle", "cost")
"""Of a row, what is added up."""
Key = tuple[str, str, str, str]
"""User, name, pool and late day of a row."""
Days = dict[str, dict[str, dict[str, int]]]
"""GPU-milliseconds by day, queue and pool."""


def day_of(moment: float) -> str:
    """The UTC day of a time, as `2026-11-23`."""
    return datetime.fromtimestamp(moment, UTC).date().isoformat()


@lru_cache(64)
def begin_of(day: str) -> float:
    """When a day begins."""
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


def after(day: str, days: int = 1) -> str:
    """The day so many days later."""
    return (datetime.fromisoformat(day) + timedelta(days=days)).date().isoformat()


def end_of_month(month: str) -> float:
    """When a month such as `2026-11` is over. ValueError: it is none."""
    first = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
    return (first.replace(day=28) + timedelta(days=4)).replace(day=1).timestamp()


def spans(start: float, end: float) -> Iterator[tuple[str, float, float]]:
    """The days between two times, each with its part of them."""
    while start < end:
        day = day_of(start)
        until = min(end, begin_of(day) + DAY_SECONDS)
        yield day, start, until
        start = until


def mark_of(moment: float) -> float:
    """The last moment until which all queues and pools are charged alike."""
    return moment // PERIOD_SECONDS * PERIOD_SECONDS


def with_recent(
    recent: Mapping[str, Mapping[str, int]], begin: float, more: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    """`recent` with more of the period that begins then, without what is older than the one before."""
    kept, key = {at: dict(it) for at, it in recent.items() if time(at) >= begin - PERIOD_SECONDS}, time_text(begin)
    own = kept.get(key, {})
    return kept | {key: {pool: own.get(pool, 0) + more.get(pool, 0) for pool in {**own, **more}}}


def with_use(days: Mapping[str, Mapping[str, Mapping[str, int]]], where: tuple[str, str], held: int,
             *, start: float, end: float) -> Days:  # fmt: skip
    """`days` with `held` milli-GPU from `start` to `end`, in a queue and pool."""
    found = {day: {queue: dict(pools) for queue, pools in own.items()} for day, own in days.items()}
    queue, pool = where
    for day, begins, until in spans(start, end) if held else ():
        pools = found.setdefault(day, {}).setdefault(queue, {})
        pools[pool] = pools.get(pool, 0) + round(held * (until - start)) - round(held * (begins - start))
    return found


def used_in(said: WorkloadObject) -> set[str]:
    """The queue that a workload is in, and those in which it used GPUs."""
    days = said.status.served.days.values() if said.status.served else ()
    return {said.spec.queue, *chain.from_iterable(days)}


def used_by_day(status: WorkloadStatus) -> DaysUsed:
    """The GPU-seconds that a workload used in each queue on each UTC day. Malformed: a day that is none."""
    days = status.served.days if status.served else {}
    return tuple(
        (queue, time(f"{day}T00:00:00Z") + DAY_SECONDS, sum(pools.values()) / 1000)
        for day, own in days.items() for queue, pools in own.items()
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Claim:
    """What one workload has used in one queue on one day, by pool; and its evictions of that day."""

    uid: str
    user: str
    name: str
    pools: Mapping[str, int] = field(default_factory=dict)
    evictions: tuple[EvictionRecord, ...] = ()


def account_of(said: WorkloadObject) -> str:
    """The uid that it is charged under: over its whole life the same, also if it began without an object of its own."""
    return said.metadata.annotations.get(BEGAN, said.metadata.uid)


def claims(said: WorkloadObject, days: Days) -> Iterator[tuple[str, str, Claim]]:
    """(day, queue, claim): all that a workload is to be charged over its life. `days`: what it has used."""
    lost: dict[tuple[str, str], list[EvictionRecord]] = {}
    for one in said.status.eviction_history:
        if one.lost:
            lost.setdefault((day_of(time(one.time)), one.queue), []).append(one)
    places = {(day, queue) for day, own in days.items() for queue in own} | lost.keys()
    for day, queue in sorted(places):
        pools, evictions = days.get(day, {}).get(queue, {}), tuple(lost.get((day, queue), ()))
        yield day, queue, Claim(account_of(said), said.spec.user, job_family(said.metadata.name), pools, evictions)


@dataclass(frozen=True, slots=True)
class Split:
    """How the last GPU-milliseconds of a workload were used, as far as it was seen."""

    starting: int = 0
    busy: int = 0
    idle: int = 0


@dataclass(frozen=True, slots=True)
class Terms:
    """`prices`: of a GPU-hour by pool. `seen`: how workloads used what they held since they were last charged, by uid.
    `takers`: the user of a workload, by its key."""

    prices: Mapping[str, Fraction] = field(default_factory=dict)
    seen: Mapping[str, Split] = field(default_factory=dict)
    takers: Mapping[str, str] = field(default_factory=dict)


def mark_key(claim: Claim, late: str) -> str:
    """Under which a UsageDay notes a claim; of one that is `late`, of which day it was."""
    return f"{claim.uid}/{late}" if late else claim.uid


def left(claim: Claim, marks: Iterable[UsageMark | None]) -> tuple[Counter[str], tuple[EvictionRecord, ...]]:
    """What is still to be charged of a claim beside what these marks say: by pool, below 0 to be taken back; and
    evictions."""
    owed, until = Counter(claim.pools), ""
    for mark in filter(None, marks):
        owed.subtract(mark.pools)
        until = max(until, mark.evicted)
    return Counter({pool: more for pool, more in owed.items() if more}), tuple(
        one for one in claim.evictions if not until or time(one.time) > time(until)
    )


def charged(
    status: UsageDayStatus, owed: Iterable[tuple[Claim, str, Counter[str], tuple[EvictionRecord, ...]]], terms: Terms
) -> UsageDayStatus:
    """A UsageDay with these claims in it, each with the day it is late of ("" for its own), and what is left of it."""
    rows = {(one.user, one.name, one.pool, one.day): one for one in status.rows}
    losses = {_of(one): one for one in status.losses}
    marks = dict(status.marks)
    for claim, late, pools, evictions in owed:
        split = terms.seen.get(claim.uid, Split())
        for pool, more in pools.items():
            key = _key((claim.user, claim.name, pool, late), more, rows)
            price, row = terms.prices.get(pool, Fraction(0)), rows.get(key) or UsageRow(*key)
            rows[key], split = _grown(row, more, split, price), Split()
        for one in evictions:
            taker = terms.takers.get(one.beneficiary, ""), job_family(one.beneficiary.rpartition("/")[2])
            loss = UsageLoss(claim.user, claim.name, one.reason, one.by, *taker)
            before = losses.get(_of(loss), loss)
            losses[_of(loss)] = replace(before, lost=before.lost + one.lost)
        at = mark_key(claim, late)
        marks[at] = _marked(marks.get(at, UsageMark()), pools, evictions)
    kept = _bounded(rows.values())
    hours = round(sum(one.allocated for one in kept) / HOUR_UNITS, 3)
    return replace(status, rows=kept, losses=_few(losses.values()), marks=marks, gpu_hours=hours)


def _key(key: Key, more: int, rows: Mapping[Key, UsageRow]) -> Key:
    """The row to charge: what is taken back may have been merged since."""
    user, _, pool, late = key
    merged = ((user, OTHERS, pool, late), (OTHERS, OTHERS, pool, late))
    return next((one for one in (key, *merged) if one in rows), key) if more < 0 else key


def _grown(row: UsageRow, more: int, split: Split, price: Fraction) -> UsageRow:
    """A row with more; what was seen of it counts as far as there is more, and no part is below 0."""
    starting = max(0, min(split.starting, more))
    busy = max(0, min(split.busy, more - starting))
    idle = max(0, min(split.idle, more - starting - busy))
    cost = round(Fraction(more, HOUR_UNITS) * price * MILLIONTHS)
    row = replace(row, allocated=row.allocated + more, cost=row.cost + cost, starting=row.starting + starting,
                  busy=row.busy + busy, idle=row.idle + idle)  # fmt: skip
    return row if unknown(row) >= 0 else _fitted(row)


def _fitted(row: UsageRow) -> UsageRow:
    """More was taken back than is unknown: what was seen shrinks to what is left."""
    starting = min(row.starting, max(0, row.allocated))
    busy = min(row.busy, max(0, row.allocated - starting))
    return replace(row, starting=starting, busy=busy, idle=max(0, row.allocated - starting - busy))


def unknown(row: UsageRow) -> int:
    """What it held of which nothing was seen."""
    return row.allocated - row.starting - row.busy - row.idle


def _marked(mark: UsageMark, pools: Counter[str], evictions: Iterable[EvictionRecord]) -> UsageMark:
    total = {pool: mark.pools.get(pool, 0) + pools.get(pool, 0) for pool in {**mark.pools, **pools}}
    times = [time(one.time) for one in evictions]
    last = time_text(max([*times, time(mark.evicted)] if mark.evicted else times)) if times else mark.evicted
    return UsageMark({pool: amount for pool, amount in total.items() if amount}, last)


def _of(one: UsageLoss) -> tuple[str, ...]:
    return one.user, one.name, one.reason, one.by, one.taker, one.taker_name


def _bounded(rows: Iterable[UsageRow]) -> tuple[UsageRow, ...]:
    """At most MOST_ROWS, in order; the smallest are merged, first by name, then by user: nothing is lost of a sum."""
    kept = [one for one in rows if one.allocated or one.cost]
    for merge in (lambda one: replace(one, name=OTHERS), lambda one: replace(one, user=OTHERS, name=OTHERS)):
        if len(kept) > MOST_ROWS:
            kept.sort(key=lambda one: (-one.allocated, one.user, one.name, one.pool, one.day))
            kept = [*_merged([*kept[: MOST_ROWS // 2], *map(merge, kept[MOST_ROWS // 2 :])])]
    return tuple(sorted(kept, key=lambda one: (one.user, one.name, one.pool, one.day)))


def _merged(rows: Iterable[UsageRow]) -> Iterable[UsageRow]:
    """Rows of the same user, name, pool and day as one."""
    found: dict[Key, UsageRow] = {}
    for one in rows:
        key = (one.user, one.name, one.pool, one.day)
        found[key] = added(found[key], one) if key in found else one
    return found.values()


def added(one: UsageRow, other: UsageRow) -> UsageRow:
    """`one` with the figures of both."""
    return replace(one, **{name: getattr(one, name) + getattr(other, name) for name in FIGURES})


def _few(losses: Iterable[UsageLoss]) -> tuple[UsageLoss, ...]:
    """At most MOST_ROWS, in order; the smallest are merged into one."""
    found = sorted(losses, key=lambda one: (-one.lost, _of(one)))
    if len(found) > MOST_ROWS:
        rest = sum(one.lost for one in found[MOST_ROWS - 1 :])
        found = [*found[: MOST_ROWS - 1], UsageLoss(OTHERS, OTHERS, OTHERS, OTHERS, OTHERS, OTHERS, rest)]
    return tuple(sorted(found, key=_of))
