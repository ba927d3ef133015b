"""The view Timeline: a day back and the forecast ahead, a line for each node, queue or workload.

What is known is drawn: each attempt of a workload and how it ended, evictions on the line of the victim and on that of
the workload that took the room, until when what runs should run, when what waits should start, and from when on room is
kept for it. Reservations are lines of their own. A line is a picture whose words say the same.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import floor

from fairway.api import types
from fairway.api.quantities import Malformed
from fairway.api.queues import reservation
from fairway.engine import Reservation

from .ends import End, Ends
from .now import queue_choices, within
from .page import Ask, Page, drawn, window
from .workload import Workload
from .workload_page import beneficiary, taken
from .world import World

HOUR, DAY = 3600.0, 86_400.0
SPANS = {"": (DAY, DAY), "6h": (6 * HOUR, 6 * HOUR), "week": (6 * DAY, DAY)}
"""By the word in the query: seconds back and seconds ahead."""
WIDTH = 1000.0
MOST_TAKEN, MOST_NAMED = 3, 4
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
    """`word`: what `times`, an earlier and a later one, mean; of what runs `ends` is told instead, of what waits
    `starts`. `served`: when a workload was evicted last and for which; `took`: the last evictions that were for it."""

    key: str
    name: str
    link: str
    bars: tuple[Bar, ...] = ()
    word: str = ""
    times: tuple[float | None, float | None] = (None, None)
    ends: End | None = None
    starts: tuple[str, float | None, float | None] = ("", None, None)
    served: tuple[float, str] | None = None
    took: tuple[tuple[float, str], ...] = ()
    queue: str = ""


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


@dataclass(frozen=True, slots=True)
class Scene:
    """What all lines are drawn from. `taken`: by workload, the evictions that were for it."""

    world: World
    ask: Ask
    axis: Axis
    ends: Ends
    taken: Mapping[str, Sequence[tuple[float, str]]]
    by: str


def page(world: World, ask: Ask) -> Page:
    back, ahead = SPANS.get(ask.get("span"), SPANS[""])
    now = floor(ask.now / 60) * 60.0  # a line moves once a minute
    axis, by = Axis(now - back, now + ahead), ask.get("by") or "workload"
    scene = Scene(world, replace(ask, now=now), axis, Ends(world, now), taken(world, ask.sight), by)
    on: defaultdict[str, list[Workload]] = defaultdict(list)
    is_chosen = within(world, ask.get("queue"))
    them = (it for it in world.workloads.values() if is_chosen(it.queue) and _is_in_sight(it, scene))
    for it in sorted(them, key=_order):
        for key in _keys(it, scene):
            on[key].append(it)
    part = window(ask, [*_reserved(world.reservations, axis), *(on if by == "workload" else sorted(on))])
    shown = [it if isinstance(it, Line) else _line(it, on[it], scene) for it in part["items"]]
    facts = {
        "ask": ask, "part": part, "by": by, "ticks": axis.ticks(), "now": round(axis.at(now), 1),
        "queues": queue_choices(world),
        "accuracy": [(name, it) for name, said in sorted(world.queues.items()) for it in said.status.forecasts],
    }  # fmt: skip
    return drawn("timeline", "Timeline", facts, {"lines": {it.key: it for it in shown}}, ask.before)


def _order(it: Workload) -> tuple[bool, str, float, str]:
    """What is over comes last."""
    return it.ended is not None, it.queue, it.began or it.forecast[0] or it.since or 0.0, it.key


def _bars(it: Workload, scene: Scene) -> Iterator[tuple[tuple[str, ...], Bar | None]]:
    """Each with the nodes that it is of."""
    axis, now = scene.axis, scene.ask.now
    name, nodes = scene.ask.sight.name(it), tuple(dict.fromkeys(share.node for share in it.shares))
    for one in it.evictions:
        if one.began is not None:
            yield one.nodes, axis.bar("ran", one.began, one.time, f"{name} ran until it was evicted")
        taker = f", room taken by queue {one.queue}" if one.queue else ""
        yield one.nodes, axis.bar("evicted", one.time, one.time, f"{name} evicted: {one.reason}{taker}")
    for at, victim in scene.taken.get(it.key, ()):
        yield nodes, axis.bar("took", at, at, f"{name} took the room of {victim}")
    if it.began is not None and it.ended is not None:
        bar = axis.bar("failed" if it.state == "failed" else "ran", it.began, it.ended, f"{name} {it.state}")
        yield nodes, bar
    elif it.began is not None and it.shares:
        yield nodes, axis.bar("runs", it.began, now, f"{name} runs")
        _, early, late = scene.ends.of(it)
        if until := late or early:
            yield nodes, axis.bar("ahead", now, max(now, until), f"{name} should run on")
    elif it.state == "waiting":
        if it.kept is not None:
            until = it.kept + (it.limit or it.expected or HOUR)
            yield nodes, axis.bar("hold", it.kept, until, f"room is kept for {name}")
        if it.forecast[0]:
            yield nodes, axis.bar("start", it.forecast[0], it.forecast[1] or axis.end, f"{name} should start")


def _is_in_sight(it: Workload, scene: Scene) -> bool:
    """Whether it has a bar: to draw those of thousands that are not in the window would be most of the work."""
    start, end = scene.axis.start, scene.axis.end
    moments = [it.ended or 0.0, *(one.time for one in it.evictions), *(at for at, _ in scene.taken.get(it.key, ()))]
    starts = it.state == "waiting" and any(at and at <= end for at in (it.kept, it.forecast[0]))
    return bool(it.shares) or starts or max(moments) >= start


def _keys(it: Workload, scene: Scene) -> Iterable[str]:
    """Of the lines that it is on."""
    by, sight = scene.by, scene.ask.sight
    if by == "queue":
        return (it.queue,)
    if by == "node":
        earlier = (node for one in it.evictions for node in one.nodes)
        return dict.fromkeys((*(share.node for share in it.shares), *earlier)) if sight.sees_nodes else ()
    return (it.key if sight.sees(it.namespace) else scene.world.mask(it.key),)


def _line(key: str, them: Sequence[Workload], scene: Scene) -> Line:
    by, sight, it = scene.by, scene.ask.sight, them[0]
    bars = tuple(bar for one in them for nodes, bar in _bars(one, scene) if bar and (by != "node" or key in nodes))
    if by in ("queue", "node"):
        runs = [sight.name(one) for one in them if any(by == "queue" or share.node == key for share in one.shares)]
        more = f" and {len(runs) - MOST_NAMED} more" if len(runs) > MOST_NAMED else ""
        word = f"runs {', '.join(runs[:MOST_NAMED])}{more}" if runs else "nothing runs"
        return Line(key, key, f"/waiting?queue={key}" if by == "queue" else f"/now?q={key}", bars, word)
    last = it.evictions[-1] if it.evictions else None
    return Line(
        key, sight.name(it), f"/workload/{it.key}" if sight.sees(it.namespace) else "", bars,
        queue=it.queue, word=it.state, times=(None, it.ended), starts=it.starts(scene.ask.now),
        ends=scene.ends.of(it) if it.began and it.shares else None,
        served=(last.time, whom) if last and (whom := beneficiary(scene.world, last, sight)) else None,
        took=tuple(scene.taken.get(it.key, ())[-MOST_TAKEN:]),
    )  # fmt: skip


def _reserved(known: Mapping[str, types.ReservationObject], axis: Axis) -> Iterator[Line]:
    for name, said in sorted(known.items()):
        with suppress(Malformed):
            one = reservation(said)
            words = f"kept for queue {one.queue}" if one.queue else "maintenance"
            spans = [(start, start + one.duration) for start in _windows(one, axis)]
            bars = tuple(filter(None, (axis.bar("reserved", *span, words) for span in spans)))
            if bars:
                yield Line(f"reservation {name}", name, "", bars, words, spans[0] if len(spans) == 1 else (None, None))


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
