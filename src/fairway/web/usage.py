"""The view Usage: what was held in a month, by queue, user, name or pool, and what became of all GPU time.

The figures are those of the UsageDays, whole GPU-milliseconds, and add up exactly: what a pool had is what was busy,
idle, unknown and starting of what workloads held, what was kept or draining, what others held, and the rest, which was
free. A parent queue has what its children have. A month that is not closed says so.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from fairway.api.accounts import HOUR_UNITS, MILLIONTHS, added, day_of, unknown
from fairway.api.types import UsageDayObject, UsageRow

from .page import Ask, Page, drawn, window
from .world import World

WAYS = ("queue", "user", "name", "pool")
MOST_MONTHS = 24


@dataclass(frozen=True, slots=True)
class Row:
    """In GPU-hours; `lost` to evictions, `cost` in the money of the pools' prices."""

    key: str
    depth: int
    held: float
    busy: float
    idle: float
    unknown: float
    starting: float
    lost: float
    cost: float


@dataclass(frozen=True, slots=True)
class Whole:
    """What became of the GPU time of a pool: the parts, in GPU-hours, whose sum is `capacity`."""

    pool: str
    capacity: float
    parts: tuple[tuple[str, float], ...]


def page(world: World, ask: Ask) -> Page:
    found = re.fullmatch(r"\d{4}-\d{2}", ask.get("month"))
    month = found[0] if found else day_of(ask.now)[:7]
    known = world.usage.values() if ask.sight.sees_usage or ask.sight.sees_queues else ()
    days = [it for it in known if it.spec.day.startswith(month)]
    months = sorted({it.spec.day[:7] for it in known} | {month}, reverse=True)[:MOST_MONTHS]
    way = ask.get("by") if ask.get("by") in WAYS and ask.sight.sees_usage else "queue"
    part = window(ask, list(_rows(days, way)))
    facts = {
        "ask": ask, "part": part, "way": way, "wholes": list(_wholes(days)), "month": month,
        "months": [("" if it == day_of(ask.now)[:7] else it, it) for it in months],
        "is_closed": bool(days) and all(it.status.closed for it in days), "sees": ask.sight.sees_usage,
        "until": max((it.status.until for it in days), default=""),
    }  # fmt: skip
    return drawn("usage", "Usage", facts, {"usage": {it.key: it for it in part["items"]}}, ask.before)


def _rows(days: list[UsageDayObject], way: str) -> Iterator[Row]:
    """The most first; queues below their parents."""
    sums: defaultdict[str, UsageRow] = defaultdict(UsageRow)
    lost: defaultdict[str, int] = defaultdict(int)
    above: dict[str, tuple[str, ...]] = {}
    for day in days:
        line = (day.spec.queue, *day.spec.parents)
        above |= {name: line[at + 1 :] for at, name in enumerate(line)}
        for row in day.status.rows:
            for key in line if way == "queue" else (getattr(row, way),):
                sums[key] = added(sums[key], row)
        for one in day.status.losses if way != "pool" else ():
            for key in line if way == "queue" else (getattr(one, way),):
                lost[key] += one.lost
    keys = [key for key in {**sums, **lost} if key or way != "queue"]
    if way == "queue":
        keys.sort(key=lambda key: [(-sums[one].allocated, one) for one in (*reversed(above[key]), key)])
    else:
        keys.sort(key=lambda key: (-sums[key].allocated, key))
    for key in keys:
        yield _row(key, len(above.get(key, ())), sums[key], lost[key])


def _row(key: str, depth: int, row: UsageRow, lost: int) -> Row:
    figures = [it / HOUR_UNITS for it in (row.allocated, row.busy, row.idle, unknown(row), row.starting, lost)]
    return Row(key or "?", depth, *figures, cost=row.cost / MILLIONTHS)


def _wholes(days: list[UsageDayObject]) -> Iterator[Whole]:
    """Of each pool whose capacity was counted."""
    held: defaultdict[str, UsageRow] = defaultdict(UsageRow)
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for day in days:
        for row in day.status.rows:
            held[row.pool] = added(held[row.pool], row)
        for pool, it in day.status.pools.items():
            more = (it.capacity, it.reserved, it.draining, it.others)
            counts[pool] = [one + other for one, other in zip(counts[pool], more)]
    for pool, (capacity, reserved, draining, others) in sorted(counts.items()):
        row = held[pool]
        parts = {
            "busy": row.busy, "idle": row.idle, "unknown": unknown(row), "starting": row.starting, "kept": reserved,
            "draining": draining, "others": others,
        }  # fmt: skip
        parts["free"] = capacity - sum(parts.values())
        yield Whole(pool, capacity / HOUR_UNITS, tuple((name, it / HOUR_UNITS) for name, it in parts.items()))
