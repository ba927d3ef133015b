"""The view Waiting: each workload that waits, its place in its queue, what stops it, and when it should start.

The view Find has the same rows, of workloads in any state: the search of the header leads there.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from .act import offered
from .ends import End, Ends
from .floor import Labels, labels_of_pools, may_use
from .now import queue_choices, within
from .page import Ask, Page, drawn, window
from .workload import Starts, Workload
from .world import World

WAITS = ("waiting", "paused", "suspended")


@dataclass(frozen=True, slots=True)
class Row:
    """`key`: of the row, which names nothing that may not be seen. `can`: the actions that are offered. `state`: ""
    where the view says it of all. `pools`: where it runs, or may. `starts`: as Workload.starts says; `ends`: of what
    runs."""

    key: str
    it: Workload
    is_seen: bool
    can: str
    state: str
    priority: str
    pools: str
    starts: Starts
    ends: End | None


SORTS: dict[str, Callable[[Workload, float], Any]] = {
    "position": lambda it, _: (it.queue, it.position or 1 << 30, it.since or 0.0),
    "name": lambda it, _: (it.ended is not None, it.name),
    "since": lambda it, _: it.since or 0.0,
    "gpus": lambda it, _: -it.asked,
    "starts": lambda it, now: it.starts(now)[1] or it.starts(now)[2] or float("inf"),
}


def page(world: World, ask: Ask) -> Page:
    waits = [it for it in world.workloads.values() if it.state in WAITS]
    return _listed(world, ask, waits, "reason")


def find(world: World, ask: Ask) -> Page:
    return _listed(world, ask, list(world.workloads.values()), "state")


def _listed(world: World, ask: Ask, them: Sequence[Workload], by: str) -> Page:
    """`by`: what they may be chosen by, their reason or their state."""
    is_find = by == "state"
    found = list(filter(_chosen(world, ask, by), them))
    order = SORTS.get(ask.get("sort")) or SORTS["name" if is_find else "position"]
    found.sort(key=lambda it: (it.state == "suspended", order(it, ask.now), it.key))
    counts, is_near = Counter[str](), _chosen(world, ask, "")
    for it in filter(attrgetter(by), them):
        counts[getattr(it, by)] += is_near(it)
    part = window(ask, found)
    facts = {
        "ask": ask, "part": part, "by": by, "counts": counts.most_common(),
        "queues": queue_choices(world), "waits": [it.asked for it in found if it.waits],
    }  # fmt: skip
    rows = {row.key: row for row in _rows(world, ask, part["items"], is_find)}
    return drawn("waiting", "Find" if is_find else "Waiting", facts, {"waits": rows}, ask.before)


def _rows(world: World, ask: Ask, them: Sequence[Workload], is_find: bool) -> Iterator[Row]:
    labels, ends = labels_of_pools(world) if ask.sight.sees_nodes else {}, Ends(world, ask.now)
    for it in them:
        is_seen = ask.sight.sees(it.namespace)
        yield Row(
            it.key if is_seen else world.mask(it.key), it, is_seen, " ".join(offered(it)),
            it.state if is_find or it.state != "waiting" else "", world.priority(it), pools(it, labels),
            it.starts(ask.now), ends.of(it) if it.shares else None,
        )  # fmt: skip


def pools(it: Workload, labels: Labels) -> str:
    """Where it runs, or may."""
    may = [name for name in labels if may_use(it, name, labels[name])]
    return it.pool or ", ".join(it.pools or (may if len(may) < len(labels) else ())) or "any"


def _chosen(world: World, ask: Ask, by: str) -> Callable[[Workload], bool]:
    """Without `by`, by queue and text alone."""
    text, sight, is_within = ask.get("q").lower(), ask.sight, within(world, ask.get("queue"))
    word, said = ask.get(by), attrgetter(by or "state")
    return lambda it: is_within(it.queue) and word in ("", said(it)) and (not text or sight.finds(text, it))
