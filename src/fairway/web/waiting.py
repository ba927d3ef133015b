"""The view Waiting: each workload that waits, its place in its queue, what stops it, and when it should start."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .act import leaves, offered
from .now import queue_choices, within
from .page import Ask, Page, drawn, window
from .workload import Workload
from .world import World


@dataclass(frozen=True, slots=True)
class Row:
    """`key`: of the row, which names nothing that may not be seen. `starts`: as Workload.starts says."""

    key: str
    it: Workload
    is_seen: bool
    starts: tuple[str, float | None, float | None]

    @property
    def can(self) -> str:
        """The actions that make sense."""
        return " ".join(offered(self.it))


SORTS: dict[str, Callable[[Workload, float], Any]] = {
    "": lambda it, _: (it.queue, it.position or 1 << 30, it.since or 0.0),
    "since": lambda it, _: it.since or 0.0,
    "gpus": lambda it, _: -it.asked,
    "starts": lambda it, now: it.starts(now)[1] or it.starts(now)[2] or float("inf"),
}


def page(world: World, ask: Ask) -> Page:
    waits = [it for it in world.workloads.values() if it.state in ("waiting", "paused", "suspended")]
    found, order = list(filter(_chosen(world, ask), waits)), SORTS.get(ask.get("sort"), SORTS[""])
    found.sort(key=lambda it: (it.state == "suspended", order(it, ask.now), it.key))
    reasons = Counter(it.reason for it in waits if it.state != "suspended" and it.reason)
    part = window(ask, found)
    told = [(it, ask.sight.sees(it.namespace)) for it in part["items"]]
    rows = [Row(it.key if seen else world.mask(it.key), it, seen, it.starts(ask.now)) for it, seen in told]
    facts = {
        "ask": ask, "part": part, "leaves": leaves(world),
        "queues": queue_choices(world), "waits": [it.asked for it in found if it.state == "waiting"],
        "reasons": [("", "all reasons"), *((it, f"{it} ({count})") for it, count in reasons.most_common())],
    }  # fmt: skip
    return drawn("waiting", "Waiting", facts, {"waits": {row.key: row for row in rows}}, ask.before)


def _chosen(world: World, ask: Ask) -> Callable[[Workload], bool]:
    text, reason, sight, is_within = ask.get("q").lower(), ask.get("reason"), ask.sight, within(world, ask.get("queue"))

    def is_named(it: Workload) -> bool:
        return sight.sees(it.namespace) and any(text in name.lower() for name in (it.name, it.user, it.namespace))

    return lambda it: is_within(it.queue) and reason in ("", it.reason) and (not text or is_named(it))
