"""The view Timeline: a day back and the forecast ahead, a line for each node, queue or workload.

What is known is drawn: each attempt of a workload and how it ended, evictions on the line of the victim and on that of
the workload that took the room, until when what runs should run, when what waits should start, and from when on room is
kept for it. Reservations are lines of their own. A line is a picture whose words say the same.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import floor

from fairway.api import types
from fairway.api.quantities import Malformed
from fairway.api.queues import reservation
from fairway.engine import Reservation

from .ends import Ends
from .now import queue_choices
from .page import Ask, Page, drawn, window
from .workload import Workload
from .workload_page import beneficiary
from .world import World

HOUR, DAY = 3600.0, 86_400.0
SPANS = {"": (DAY, DAY), "6h": (6 * HOUR, 6 * HOUR), "week": (6 * DAY, DAY)}
"""By the word in the query: seconds back and seconds ahead."""
WIDTH = 1000.0
STEPS = (HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY)


@dataclass(frozen=True, slots=True)
class Bar:
    """In the units of the picture, of WIDTH. `kind`: ran, failed, runs, ahead (should run on), start (should start,
    from the earlier to the later time), evicted, took (another's room), hold, reserved."""

    kind: str
    left: float
    width: float
    words: str


@dataclass(frozen=True, slots=True)
class Line:
    """`says`: of one workload, in a word what its times mean, and the earlier and the later one. `served`: whom its
    last eviction was for."""

    key: str
    name: str
    link: str
    bars: tuple[Bar, ...] = ()
    says: tuple[str, float | None, float | None] = ("", None, None)
    served: str = ""


@dataclass(frozen=True, slots=True)
class Axis:
    start: float
    end: float

    def bar(self, kind: str, start: float, end: float, words: str) -> Bar | None:
        """The part of a time that is in sight, at least a hair wide."""
        if end < self.start or start > self.end:
            return None
        left, right = (self.at(min(max(it, self.start), self.end)) for it in (start, end))
        return Bar(kind, round(left, 1), round(max(2.0, right - left), 1), words)

    def at(self, moment: float) -> float:
        return WIDTH * (moment - self.start) / (self.end - self.start)

    def ticks(self) -> list[tuple[float, float]]:
        """Some round moments, with their places."""
        step = next((it for it in STEPS if (self.end - self.start) / it <= 12), STEPS[-1])
        first = floor(self.start / step) + 1
        moments = (at * step for at in range(first, floor(self.end / step) + 1))
        return [(moment, round(self.at(moment), 1)) for moment in moments]


def page(world: World, ask: Ask) -> Page:
    back, ahead = SPANS.get(ask.get("span"), SPANS[""])
    now = floor(ask.now / 60) * 60.0  # a line moves once a minute
    axis, ends, by = Axis(now - back, now + ahead), Ends(world, now), ask.get("by") or "workload"
    lines: dict[str, Line] = {}
    bars: defaultdict[str, list[Bar]] = defaultdict(list)
    taken = _taken(world, ask)
    for it in sorted(world.workloads.values(), key=_order):
        if ask.get("queue") and it.queue != ask.get("queue"):
            continue
        own = [(nodes, bar) for nodes, bar in _bars(it, ask, axis, ends, taken[it.key]) if bar is not None]
        for line in _lines(it, world, ask, ends) if own else ():
            lines[line.key] = line
            bars[line.key] += [bar for nodes, bar in own if by != "node" or line.key in nodes]
    found = [*_reserved(world.reservations, axis), *(replace(it, bars=tuple(bars[key])) for key, it in lines.items())]
    part = window(ask, found)
    facts = {
        "ask": ask, "part": part, "by": by, "ticks": axis.ticks(), "now": round(axis.at(now), 1),
        "queues": queue_choices(world), "accuracy": _accuracy(world.queues),
    }  # fmt: skip
    return drawn("timeline", "Timeline", facts, {"lines": {it.key: it for it in part["items"]}}, ask.before)


def _order(it: Workload) -> tuple[str, float, str]:
    return it.queue, it.began or it.forecast[0] or it.since or 0.0, it.key


def _taken(world: World, ask: Ask) -> defaultdict[str, list[tuple[float, str]]]:
    """By workload, the evictions that served it: when, and of which workload."""
    found: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    for it in world.workloads.values():
        for one in it.evictions:
            if one.beneficiary:
                found[one.beneficiary].append((one.time, ask.sight.name(it)))
    return found


def _bars(
    it: Workload, ask: Ask, axis: Axis, ends: Ends, taken: list[tuple[float, str]]
) -> Iterator[tuple[tuple[str, ...], Bar | None]]:
    """Each with the nodes that it is of."""
    name, nodes = ask.sight.name(it), tuple(dict.fromkeys(share.node for share in it.shares))
    for one in it.evictions:
        if one.began is not None:
            yield one.nodes, axis.bar("ran", one.began, one.time, f"{name} ran until it was evicted")
        taker = f", room taken by queue {one.queue}" if one.queue else ""
        yield one.nodes, axis.bar("evicted", one.time, one.time, f"{name} evicted: {one.reason}{taker}")
    for at, victim in taken:
        yield nodes, axis.bar("took", at, at, f"{name} took the room of {victim}")
    if it.began is not None and it.ended is not None:
        bar = axis.bar("failed" if it.state == "failed" else "ran", it.began, it.ended, f"{name} {it.state}")
        yield nodes, bar
    elif it.began is not None and it.shares:
        yield nodes, axis.bar("runs", it.began, ask.now, f"{name} runs")
        _, early, late = ends.of(it)
        if until := late or early:
            yield nodes, axis.bar("ahead", ask.now, max(ask.now, until), f"{name} should run on")
    elif it.state == "waiting":
        if it.kept is not None:
            until = it.kept + (it.limit or it.expected or HOUR)
            yield nodes, axis.bar("hold", it.kept, until, f"room is kept for {name}")
        if it.forecast[0]:
            yield nodes, axis.bar("start", it.forecast[0], it.forecast[1] or axis.end, f"{name} should start")


def _lines(it: Workload, world: World, ask: Ask, ends: Ends) -> Iterator[Line]:
    """Those that it is on, without bars."""
    by = ask.get("by")
    if by == "queue":
        yield Line(it.queue, it.queue, f"/waiting?queue={it.queue}")
    elif by == "node":
        earlier = (node for one in it.evictions for node in one.nodes)
        for node in dict.fromkeys((*(share.node for share in it.shares), *earlier)) if ask.sight.sees_nodes else ():
            yield Line(node, node, f"/now?q={node}")
    else:
        is_seen, (_, early, late) = ask.sight.sees(it.namespace), ends.of(it)
        key, link = (it.key, f"/workload/{it.key}") if is_seen else (world.mask(it.key), "")
        served = beneficiary(world, it.evictions[-1], ask.sight) if it.evictions else ""
        says = (it.state, it.began, it.ended or late or early)
        says = ("starts", *it.forecast[:2]) if it.state == "waiting" else says
        yield Line(key, ask.sight.name(it), link, says=says, served=served)


def _reserved(known: Mapping[str, types.ReservationObject], axis: Axis) -> Iterator[Line]:
    for name, said in sorted(known.items()):
        with suppress(Malformed):
            one = reservation(said)
            words = f"kept for queue {one.queue}" if one.queue else "maintenance"
            bars = (axis.bar("reserved", start, start + one.duration, words) for start in _windows(one, axis))
            if shown := tuple(bar for bar in bars if bar is not None):
                yield Line(f"reservation {name}", f"{name} ({words})", "", shown)


def _windows(one: Reservation, axis: Axis) -> Iterator[float]:
    """When its windows that are in sight begin."""
    step = {"Daily": DAY, "Weekly": 7 * DAY}.get(one.repeat)
    start = one.start
    if step and start + one.duration < axis.start:
        start += step * floor((axis.start - start - one.duration) / step)
    while start <= axis.end:
        yield start
        if not step:
            return
        start += step


def _accuracy(queues: Mapping[str, types.QueueObject]) -> list[tuple[str, types.ForecastAccuracy]]:
    """How far off forecasts were, by queue and horizon."""
    return [(name, it) for name, said in sorted(queues.items()) for it in said.status.forecasts]
