"""What UsageDays add up to: by queue, user, name or pool, over any days. Pure; figures in GPU-milliseconds.

Of a queue's figures those of the queues below it are a part, as they stood on each day. Of a pool every GPU-millisecond
of capacity is one of: starting, busy, idle or unknown (held by workloads, and by pods of others), reserved, draining,
free. Free is what is left, so they add up exactly; where more was held than the pool was seen to have, by a node that
came or went between two looks, that much more counts as capacity, as does what was charged beyond the moment until
which capacity is counted, of what ended since.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal

from fairway.engine import lineage

from .accounts import FIGURES, HOUR_UNITS, OTHERS, mark_of, unknown
from .names import short_name
from .objects import Metadata, Part
from .scalars import time, time_text
from .types import PoolDay, UsageDayObject, UsageDaySpec, UsageLoss, UsageRow

By = Literal["queue", "user", "name", "pool"]
SHOWN = ("allocated", "starting", "busy", "idle", "unknown", "lost", "took", "cost")


class Told(Part, frozen=True):
    """A UsageDay's status, as far as it is read here."""

    until: str = ""
    rows: tuple[UsageRow, ...] = ()
    losses: tuple[UsageLoss, ...] = ()
    pools: dict[str, PoolDay] = {}  # noqa: RUF012 -- msgspec gives every struct a dict of its own
    recent: dict[str, dict[str, int]] = {}  # noqa: RUF012
    closed: bool = False


class Day(Part, frozen=True):
    metadata: Metadata = Metadata()
    spec: UsageDaySpec = UsageDaySpec()
    status: Told = Told()


@dataclass(slots=True)
class Figures:
    """`lost`: work that evictions cost these workloads; `took`: that evictions for these cost others. `cost`: in
    millionths."""

    allocated: int = 0
    starting: int = 0
    busy: int = 0
    idle: int = 0
    unknown: int = 0
    lost: int = 0
    took: int = 0
    cost: int = 0

    def add(self, row: UsageRow) -> None:
        for name in FIGURES:
            setattr(self, name, getattr(self, name) + getattr(row, name))
        self.unknown += unknown(row)


@dataclass(frozen=True, slots=True)
class Line:
    """`late`: the day of a closed month that it was used on, "" for none. `depth`: queues above it."""

    name: str
    late: str
    figures: Figures
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Pool:
    """All that a pool had, each part once: capacity = starting + busy + idle + unknown + reserved + draining + free.
    `others`: the part of unknown that pods of others held."""

    name: str
    capacity: int
    starting: int
    busy: int
    idle: int
    unknown: int
    reserved: int
    draining: int
    free: int
    others: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Lines in order, those of queues as a tree; what all come to; and the pools."""

    lines: tuple[Line, ...]
    total: Figures
    pools: tuple[Pool, ...]


@dataclass(slots=True)
class _Sums:
    lines: defaultdict[tuple[str, str], Figures] = field(default_factory=lambda: defaultdict(Figures))
    parents: dict[str, str] = field(default_factory=dict)
    total: Figures = field(default_factory=Figures)
    pools: defaultdict[str, Figures] = field(default_factory=lambda: defaultdict(Figures))


def shared_until(days: Iterable[Day | UsageDayObject]) -> str:
    """The moment until which all is charged, of every queue and of the pools; "" where there is none yet."""
    said = [one.status.until for one in days if not one.spec.queue and one.status.until]
    return time_text(mark_of(time(max(said)))) if said else ""


def usage(days: Sequence[Day | UsageDayObject], by: By) -> Usage:
    """What these days add up to."""
    sums = _Sums()
    for one in days if by == "queue" else ():
        path = (one.spec.queue, *one.spec.parents) if one.spec.queue else ()
        sums.parents.update(zip(path, (*path[1:], "")))
    for one in days:
        path = (one.spec.queue, *one.spec.parents)
        for row in one.status.rows:
            names = path if by == "queue" else (_key(row, by),)
            for figures in (sums.total, *(sums.lines[name, row.day] for name in names)):
                figures.add(row)
            if not row.day:  # what is late was held in the capacity of another month
                sums.pools[row.pool].add(row)
        for loss in one.status.losses:
            _add_loss(sums, loss, path, by)
    for name in {name for one in days for name in one.status.pools} if by == "pool" else ():
        sums.lines.setdefault((name, ""), Figures())  # a pool of which nothing was held
    ordered = _tree(sums) if by == "queue" else [(name, late, 0) for name, late in sorted(sums.lines)]
    lines = (Line(name, late, sums.lines[name, late], depth) for name, late, depth in ordered)
    return Usage(tuple(lines), sums.total, tuple(_pools(days, sums.pools)))


def _key(row: UsageRow, by: By) -> str:
    return row.user if by == "user" else short_name(row.name) if by == "name" else row.pool


def _add_loss(sums: _Sums, loss: UsageLoss, path: Sequence[str], by: By) -> None:
    """By victim, and by taker. Of a pool none is known."""
    sums.total.lost += loss.lost
    sums.total.took += loss.lost if loss.by else 0
    if by == "pool":
        return
    victims = path if by == "queue" else (loss.user if by == "user" else short_name(loss.name),)
    for name in victims:
        sums.lines[name, ""].lost += loss.lost
    taker = loss.by if by == "queue" else loss.taker if by == "user" else short_name(loss.taker_name)
    takers = lineage(lambda queue: sums.parents.get(queue, ""), taker) if by == "queue" else (taker,)
    for name in takers:
        if name and name != OTHERS:
            sums.lines[name, ""].took += loss.lost


def _tree(sums: _Sums) -> Iterable[tuple[str, str, int]]:
    """Each queue after the one above it, siblings by name."""
    below: defaultdict[str, set[str]] = defaultdict(set)
    for name, _ in sums.lines:
        below[sums.parents.get(name, "")].add(name)
    late = sorted({late for _, late in sums.lines})
    left = [(name, 0) for name in sorted(below[""], reverse=True)]
    while left:
        name, depth = left.pop()
        yield from ((name, each, depth) for each in late if (name, each) in sums.lines)
        left += [(each, depth + 1) for each in sorted(below[name], reverse=True)]


def _ahead(days: Sequence[Day | UsageDayObject]) -> Counter[str]:
    """By pool, what is charged beyond the mark of its day's capacity, less what capacity is known beyond it."""
    found, marks = Counter[str](), {one.spec.day: shared_until((one,)) for one in days if not one.spec.queue}
    for one in days:
        for begin, pools in one.status.recent.items():
            for pool, amount in pools.items() if begin >= marks.get(one.spec.day, "") else ():
                found[pool] += amount if one.spec.queue else -amount
    return found


def _pools(days: Sequence[Day | UsageDayObject], held: Mapping[str, Figures]) -> Iterable[Pool]:
    had: defaultdict[str, list[PoolDay]] = defaultdict(list)
    ahead = _ahead(days)
    for one in days:
        for name, each in one.status.pools.items():
            had[name].append(each)
    for name in sorted({*had, *held}):
        own, parts = held.get(name, Figures()), had[name]
        capacity, reserved, draining, others = (
            sum(getattr(part, kind) for part in parts) for kind in ("capacity", "reserved", "draining", "others")
        )
        free = max(0, capacity + ahead[name] - own.allocated - reserved - draining - others)
        whole = own.allocated + reserved + draining + others + free
        unknown = own.unknown + others
        yield Pool(name, whole, own.starting, own.busy, own.idle, unknown, reserved, draining, free, others)


def hours(amount: int) -> str:
    """GPU-milliseconds in GPU-hours with one digit, below a tenth of one with three: nothing used is 0."""
    if not amount or abs(amount) >= HOUR_UNITS // 10:
        return f"{amount / HOUR_UNITS:,.1f}" if amount else "0"
    return f"{amount / HOUR_UNITS:.3f}" if abs(amount) >= HOUR_UNITS // 1000 else "<0.001"


def plain(figures: object) -> dict[str, object]:
    """The fields of Figures or of a Pool, in GPU-seconds; the cost in its currency."""
    said = {one.name: getattr(figures, one.name) for one in fields(figures)}  # type: ignore[arg-type]
    return {
        key: value if isinstance(value, str) else value / (1_000_000 if key == "cost" else 1000)
        for key, value in said.items()
    }
