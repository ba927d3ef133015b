"""The view Usage: what was held in a month, by queue, user, name or pool, and what became of all GPU time.

The figures are those of `fairway usage`: see api/usage. What others held is shown apart from what is unknown of
workloads. A month that is not closed says so.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from itertools import groupby
from operator import attrgetter, itemgetter

from fairway.api.accounts import day_of
from fairway.api.usage import Figures, Usage, shared_until, usage

from .page import Ask, Page, drawn, window
from .world import World

WAYS = ("queue", "user", "name", "pool")
MOST_MONTHS = 24


@dataclass(frozen=True, slots=True)
class Row:
    """`most`: what the largest row has; 0 of the total, which has no bar."""

    key: str
    depth: int
    figures: Figures
    most: int = 1


def page(world: World, ask: Ask) -> Page:
    asked = re.fullmatch(r"\d{4}-\d{2}", ask.get("month"))
    month = asked[0] if asked else day_of(ask.now)[:7]
    known = world.usage.values() if ask.sight.sees_usage or ask.sight.sees_queues else ()
    days = [it for it in known if it.spec.day.startswith(month)]
    months = sorted({it.spec.day[:7] for it in known} | {month}, reverse=True)[:MOST_MONTHS]
    way = ask.get("by") if ask.get("by") in WAYS and ask.sight.sees_usage else "queue"
    found = usage(days, way)  # type: ignore[arg-type]
    rows = _rows(found)
    part, total = window(ask, rows), _sum(it.figures for it in rows if not it.depth)
    prices = [(name, it.spec.cost_per_gpu_hour) for name, it in sorted(world.pools.items())]
    counted = {name for one in days for name in one.status.pools}
    facts = {
        "ask": ask, "part": part, "way": way, "month": month, "prices": [it for it in prices if it[1] is not None],
        "total": Row("total", 0, total, 0),
        "pools": [it for it in found.pools if it.name in counted],
        "months": [("" if it == day_of(ask.now)[:7] else it, it) for it in months],
        "is_closed": bool(days) and all(it.status.closed for it in days), "sees": ask.sight.sees_usage,
        "until": shared_until(days),
    }  # fmt: skip
    return drawn("usage", "Usage", facts, {"usage": {it.key: it for it in part["items"]}}, ask.before)


def _rows(found: Usage) -> list[Row]:
    """The most first; queues below their parents."""
    rows: list[tuple[list[tuple[float, str]], Row]] = []
    above: list[tuple[float, str]] = []
    for name, lines in groupby(found.lines, key=attrgetter("name")):
        known = list(lines)  # what was used late, after its month was closed, is a line of its own
        row = Row(name or "?", known[0].depth, _sum(it.figures for it in known))
        above = [*above[: row.depth], (-row.figures.allocated, name)]
        if row.figures.allocated or row.figures.lost:
            rows.append((above, row))
    most = max((row.figures.allocated for _, row in rows), default=1) or 1
    return [replace(row, most=most) for _, row in sorted(rows, key=itemgetter(0))]


def _sum(them: Iterable[Figures]) -> Figures:
    known = list(them)
    return Figures(**{part.name: sum(getattr(one, part.name) for one in known) for part in fields(Figures)})
