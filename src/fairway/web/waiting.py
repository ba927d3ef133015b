"""The view Waiting: each workload that waits, its place in its queue, what stops it, and when it should start."""

from collections import Counter
from dataclasses import dataclass

from .act import leaves
from .now import queue_choices
from .page import Ask, Page, drawn, window
from .workload import Workload
from .world import World

GONE_SECONDS = 60.0
"""How long after its latest time a forecast is not shown any more: a new one is on its way."""


@dataclass(frozen=True, slots=True)
class Row:
    """`key`: of the row, which names nothing that may not be seen. `starts`: the earlier and the later moment, None
    where they are not told; without the later one it is not in sight. `is_past`: the earlier one has gone by."""

    key: str
    it: Workload
    is_seen: bool
    starts: tuple[float | None, float | None]
    is_rough: bool
    is_past: bool


SORTS = {
    "": lambda row: (row.it.queue, row.it.position or 1 << 30, row.it.since or 0.0),
    "since": lambda row: row.it.since or 0.0,
    "gpus": lambda row: -row.it.asked,
    "starts": lambda row: row.starts[0] or float("inf"),
}


def page(world: World, ask: Ask) -> Page:
    waits = [it for it in world.workloads.values() if it.state in ("waiting", "paused", "suspended")]
    rows = [_row(it, world, ask) for it in waits if _is_chosen(it, ask)]
    rows.sort(key=lambda row: (row.it.state == "suspended", SORTS.get(ask.get("sort"), SORTS[""])(row), row.it.key))
    reasons = Counter(it.reason for it in waits if it.state != "suspended" and it.reason)
    part = window(ask, rows)
    facts = {
        "ask": ask, "part": part, "leaves": leaves(world),
        "queues": queue_choices(world), "asked": sum(row.it.asked for row in rows),
        "reasons": [("", "all reasons"), *((it, f"{it} ({count})") for it, count in reasons.most_common())],
    }  # fmt: skip
    return drawn("waiting", "Waiting", facts, {"waits": {row.key: row for row in part["items"]}}, ask.before)


def _row(it: Workload, world: World, ask: Ask) -> Row:
    early, late, is_rough = it.forecast
    last = late or early
    is_gone = last is None or last < ask.now - GONE_SECONDS
    starts = (None, None) if is_gone or it.state == "suspended" else (early, late)
    is_past = early is not None and early < ask.now - GONE_SECONDS
    is_seen = ask.sight.sees(it.namespace)
    return Row(it.key if is_seen else world.mask(it.key), it, is_seen, starts, is_rough, is_past)


def _is_chosen(it: Workload, ask: Ask) -> bool:
    text = ask.get("q").lower()
    names = (it.name, it.user, it.namespace) if ask.sight.sees(it.namespace) else ()
    return (
        (not ask.get("queue") or it.queue == ask.get("queue"))
        and (not ask.get("reason") or it.reason == ask.get("reason"))
        and (not text or any(text in name.lower() for name in names))
    )
