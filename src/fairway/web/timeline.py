"""The view Timeline: what was, a day back at most, and the forecast ahead; a line for each node, queue or workload.

What is known is drawn: each attempt of a workload and how it ended, evictions on the line of the victim and on that of
the workload that took the room, until when what runs should run, when what waits should start, and from when on room is
kept for it. Reservations are lines of their own; on the line of a node are those of it, and what closes it. The line of
a node or a queue has a lane for each workload that lies beside others. A line is a picture whose words say the same.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil, floor
from operator import itemgetter

from fairway.api import types
from fairway.api.figures import amount
from fairway.api.quantities import Malformed
from fairway.api.queues import reservation
from fairway.engine import Reservation

from .ends import End, Ends
from .floor import Row, rows
from .now import queue_choices, within
from .page import Ask, Page, counted, drawn, number, window
from .workload import Starts, Workload, moment
from .workload_page import beneficiary, taken
from .world import World

HOUR, DAY, NEVER = 3600.0, 86_400.0, 1e12
SPANS = {"day": (DAY, DAY), "6h": (6 * HOUR, 6 * HOUR), "week": (6 * DAY, DAY)}
"""By the word in the query: seconds back and seconds ahead. Without one a span is chosen that fits what there is. With
`since` and `until`, two moments, the picture has that time for whoever opens the address, and whenever."""
LONGEST = 60 * DAY
WIDTH = 1000.0
MOST_TAKEN, MOST_NAMED, MOST_LANES = 3, 4, 16
LANE = 14.0
"""How high one is; a bar leaves 2 of it."""
STEPS = (60.0, 120.0, 300.0, 600.0, 1800.0, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY)


@dataclass(frozen=True, slots=True)
class Bar:
    """In the units of the picture, of WIDTH. `kind`: ran, failed, runs, ahead (should run on), start (should start,
    from the earlier to the later time), evicted, took (another's room), hold, reserved, closed."""

    kind: str
    left: float
    width: float
    words: str
    top: float = 2.0
    height: float = 12.0


@dataclass(frozen=True, slots=True)
class Line:
    """`note`: queue and GPUs. `word`: what `times`, an earlier and a later one, mean; of what runs `ends` is told
    instead, of what waits `starts`. `served`: how and when a workload gave way last, and to which; `took`: the
    last evictions that were for it. `names`: what holds GPUs in a lane now, with where that is written (percent,
    pixels)."""

    key: str
    name: str
    link: str
    bars: tuple[Bar, ...] = ()
    word: str = ""
    times: tuple[float | None, float | None] = (None, None)
    ends: End | None = None
    starts: Starts = ("", None, None, None)
    served: tuple[str, float, str] | None = None
    took: tuple[tuple[float, str], ...] = ()
    note: str = ""
    height: float = 16.0
    names: tuple[tuple[float, float, str], ...] = ()


Reserved = Sequence[tuple[Reservation, Line]]


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
        moments = (at * step for at in range(floor(self.start / step) + 1, floor(self.end / step) + 1))
        return [(moment, round(self.at(moment), 1)) for moment in moments]


@dataclass(frozen=True, slots=True)
class Scene:
    """What all lines are drawn from. `taken`: by workload, the evictions that were for it. `nodes`: where lines are of
    nodes, those that the viewer may see."""

    world: World
    ask: Ask
    axis: Axis
    ends: Ends
    taken: Mapping[str, Sequence[tuple[float, str]]]
    by: str
    nodes: Mapping[str, Row]
    reserved: Reserved = ()


def page(world: World, ask: Ask) -> Page:
    back, ahead = SPANS.get(ask.get("span"), SPANS["day"])
    now = ceil(ask.now / 60) * 60.0  # a line moves once a minute, and what was is never beyond it
    start, end = moment(ask.get("since")), moment(ask.get("until"))
    is_fixed = start is not None and end is not None and 0 < end - start <= LONGEST
    axis = Axis(start, end) if is_fixed else Axis(now - back, now + ahead)  # type: ignore[arg-type]
    by = ask.get("by") or "workload"
    nodes = {it.name: it for it in rows(world)} if by == "node" and ask.sight.sees_nodes else {}
    ends, is_chosen = Ends(world, now), within(world, ask.get("queue"))
    scene = Scene(world, replace(ask, now=now), axis, ends, taken(world, ask.sight), by, nodes)
    on: defaultdict[str, list[Workload]] = defaultdict(list)
    near = [it for it in world.workloads.values() if _is_in_sight(it, scene)]
    them = [it for it in near if any(map(is_chosen, _keys(it, scene) if by == "queue" else (it.queue,)))]
    axis = axis if is_fixed or ask.get("span") in SPANS else _fitting(them, scene)
    reserved = _reserved(world.reservations, axis)
    scene = replace(scene, axis=axis, reserved=reserved)
    for it in sorted(them, key=_order):
        for key in _keys(it, scene):
            on[key].append(it)
    closed = {name for one, _ in reserved for name in one.nodes} | {name for name in nodes if nodes[name].problem}
    lines = filter(is_chosen, on) if by == "queue" else on
    keys = on if by == "workload" else sorted({*lines, *(closed & nodes.keys() if not ask.get("queue") else ())})
    part = window(ask, [*(line for _, line in reserved), *keys])
    draw = _shared if by in ("node", "queue") else _workload
    shown = [it if isinstance(it, Line) else draw(it, on[it], scene) for it in part["items"]]
    facts = {
        "ask": ask, "part": part, "by": by, "ticks": axis.ticks(), "now": round(axis.at(now), 1),
        "axis": axis, "is_fixed": is_fixed, "queues": queue_choices(world),
        "accuracy": [(name, it) for name, said in sorted(world.queues.items()) for it in said.status.forecasts],
    }  # fmt: skip
    return drawn("timeline", "Timeline", facts, {"lines": {it.key: it for it in shown}}, ask.before)


def _order(it: Workload) -> tuple[bool, str, float, str]:
    """What is over comes last."""
    return it.ended is not None, it.queue, it.began or it.forecast[0] or it.since or 0.0, it.key


def _bars(it: Workload, scene: Scene) -> Iterator[tuple[tuple[str, ...], Bar | None]]:
    """Each with the nodes that it is of; of queues, with the queue that it was in then."""
    axis, now, is_queue = scene.axis, scene.ask.now, scene.by == "queue"
    name, on = scene.ask.sight.name(it), dict.fromkeys(share.node for share in it.shares)
    nodes = (it.queue,) if is_queue else tuple(on)
    gpus = counted(it.held or it.asked, "GPU")
    for one in it.evictions:
        where = (_queue(it, one.time),) if is_queue else one.nodes
        if one.began is not None:
            yield where, axis.bar("ran", one.began, one.time, f"{name} ran until it was {one.word}")
        taker = f", room taken by queue {one.queue}" if one.queue else ""
        yield where, axis.bar("evicted", one.time, one.time, f"{name} {one.word}: {one.reason}{taker}")
    for at, victim in scene.taken.get(it.key, ()):
        where = (_queue(it, at),) if is_queue else nodes
        yield where, axis.bar("took", at, at, f"{name} took the room of {victim}")
    if it.state == "cancelled" and it.ended is not None:
        how = it.message if scene.ask.sight.sees(it.namespace) else it.state
        yield nodes, axis.bar("evicted", it.ended, it.ended, f"{name} was {how}")
    if it.began is not None and it.ended is not None:
        yield nodes, axis.bar("failed" if it.state == "failed" else "ran", it.began, it.ended, f"{name} {it.state}")
    elif it.began is not None and it.shares:
        yield nodes, axis.bar("runs", it.began, now, f"{name} runs on {gpus}")
        _, early, late = scene.ends.of(it)
        if until := late or early:
            yield nodes, axis.bar("ahead", now, max(now, until), f"{name} should keep {gpus}")
    elif it.waits:
        if it.kept is not None:
            until = it.kept + (it.limit or it.expected or HOUR)
            yield nodes, axis.bar("hold", it.kept, until, f"room for {gpus} is kept for {name}")
        if it.forecast[0]:
            yield nodes, axis.bar("start", it.forecast[0], it.forecast[1] or axis.end, f"{name} should start on {gpus}")


def _queue(it: Workload, at: float) -> str:
    """The queue that it was in then: what ran is evicted before it is moved, and that says from which queue."""
    return next((one.own for one in it.evictions if one.time >= at and one.own), it.queue)


def _is_in_sight(it: Workload, scene: Scene) -> bool:
    """Whether it has a bar: to draw those of thousands that are not in the window would be most of the work."""
    start, end = scene.axis.start, scene.axis.end
    ran = [(one.began or one.time, one.time) for one in it.evictions]
    ran += [(at, at) for at, _ in scene.taken.get(it.key, ())]
    if it.shares or it.ended is not None:
        ran.append((it.began or it.ended or 0.0, NEVER if it.ended is None else it.ended))
    starts = it.waits and any(at and at <= end for at in (it.kept, it.forecast[0]))
    return starts or any(first <= end and last >= start for first, last in ran)


def _fitting(them: Iterable[Workload], scene: Scene) -> Axis:
    """Back as far as anything began, within the scene's axis, and ahead as far as back, or as starts are foretold and
    reservations last. In some lengths alone, so that it seldom moves."""
    now, day, moments = scene.ask.now, scene.axis, list[float]()
    for it in them:
        evicted = (at for one in it.evictions if one.time >= day.start for at in (one.began, one.time))
        served = (at for at, _ in scene.taken.get(it.key, ()) if at >= day.start)
        moments += filter(None, (it.began, it.ended, *it.starts(now)[1:], *evicted, *served))
    for one, _ in _reserved(scene.world.reservations, day):
        moments += (at for start in _windows(one, day) for at in (start, start + one.duration))
    back, ahead = now - min(moments, default=now), max(moments, default=now) - now
    back, ahead = (next((it for it in STEPS[3:] if it >= span), DAY) for span in (back, max(back, ahead)))
    return Axis(now - back, now + ahead)


def _keys(it: Workload, scene: Scene) -> Iterable[str]:
    """Of the lines that it is on."""
    by, sight = scene.by, scene.ask.sight
    if by == "queue":
        return dict.fromkeys(_queue(it, at) for at in (*(one.time for one in it.evictions), NEVER))
    if by == "node":
        earlier = (node for one in it.evictions for node in one.nodes)
        return dict.fromkeys((*(share.node for share in it.shares), *earlier)) if sight.sees_nodes else ()
    return (it.key if sight.sees(it.namespace) else scene.world.mask(it.key),)


def _workload(key: str, them: Sequence[Workload], scene: Scene) -> Line:
    it = them[0]
    sight, last = scene.ask.sight, it.evictions[-1] if it.evictions else None
    return Line(
        key, sight.name(it), f"/workload/{it.key}" if sight.sees(it.namespace) else "",
        tuple(bar for _, bar in _bars(it, scene) if bar),
        note=" · ".join([it.queue, *[counted(it.held or it.asked, "GPU")] * bool(it.podsets)]),
        word=it.state, times=(None, it.ended), starts=it.starts(scene.ask.now),
        ends=scene.ends.of(it) if it.began and it.shares else None,
        served=(last.word, last.time, whom) if last and (whom := beneficiary(scene.world, last, sight)) else None,
        took=tuple(scene.taken.get(it.key, ())[-MOST_TAKEN:]),
    )  # fmt: skip


def _shared(key: str, them: Sequence[Workload], scene: Scene) -> Line:
    """Of a node or a queue: what lies beside each other in time has a lane each, and the last has all that are left."""
    is_node, bars, held, ends = scene.by == "node", list[Bar](), list[tuple[Workload, float]](), list[float]()
    found = [(it, [bar for nodes, bar in _bars(it, scene) if bar and key in nodes]) for it in them]
    names = defaultdict[int, list[str]](list)
    for it, own in sorted(filter(itemgetter(1), found), key=lambda one: min(bar.left for bar in one[1])):
        left, right = min(bar.left for bar in own), max(bar.left + bar.width for bar in own)
        lane = next((at for at, end in enumerate(ends) if end <= left), min(len(ends), MOST_LANES - 1))
        ends[lane : lane + 1] = [right]
        bars += [replace(bar, top=bar.top + LANE * lane) for bar in own]
        if here := [share.gpus for share in it.shares if key == (share.node if is_node else it.queue)]:
            held.append((it, sum(here)))
            names[lane].append(f"{scene.ask.sight.name(it)} ({number(sum(here))})")
    height, now = 2.0 + LANE * max(1, len(ends)), round(scene.axis.at(scene.ask.now) / 10, 1)
    closed = _closed(key, scene) if is_node else []
    return Line(
        key, key, f"/now?q={key}" if is_node else f"/waiting?queue={key}",
        (*(replace(bar, top=0.0, height=height) for bar in closed), *bars),
        "; ".join([_runs(held, scene), *dict.fromkeys(bar.words for bar in closed)]), height=height,
        names=tuple((now + (-1 if now > 70 else 1), LANE * lane + 12, ", ".join(it)) for lane, it in names.items()
                    if 0 <= now <= 100),
    )  # fmt: skip


def _runs(held: Sequence[tuple[Workload, float]], scene: Scene) -> str:
    names = [f"{scene.ask.sight.name(it)} ({number(gpus)})" for it, gpus in held[:MOST_NAMED]]
    more = f" and {len(held) - MOST_NAMED} more" if len(held) > MOST_NAMED else ""
    total = counted(sum(gpus for _, gpus in held), "GPU")
    return f"{total} held: {', '.join(names)}{more}" if held else "nothing runs"


def _closed(key: str, scene: Scene) -> list[Bar]:
    """Of a node: the windows of its reservations, and from now on what keeps new work from it."""
    bars = [bar for one, line in scene.reserved if key in one.nodes for bar in line.bars]
    if key in scene.nodes and (problem := scene.nodes[key].problem):
        bars += filter(None, [scene.axis.bar("closed", scene.ask.now, scene.axis.end, problem)])
    return bars


def _reserved(known: Mapping[str, types.ReservationObject], axis: Axis) -> Reserved:
    found = []
    for name, said in sorted(known.items()):
        with suppress(Malformed):
            one = reservation(said)
            words = f"kept for queue {one.queue}" if one.queue else "maintenance"
            spans = [(start, start + one.duration) for start in _windows(one, axis)]
            bars = tuple(filter(None, (axis.bar("reserved", *span, f"{words}: {name}") for span in spans)))
            if bars:
                times = spans[0] if len(spans) == 1 else (None, None)
                amounts = ", ".join(amount(value, resource) for resource, value in one.amount)
                note = counted(len(one.nodes), "node") if one.nodes else f"{amounts} of pool {one.pool}"
                found.append((one, Line(f"reservation {name}", name, "", bars, words, times, note=note)))
    return found


def _windows(one: Reservation, axis: Axis) -> Iterator[float]:
    """When its windows that are in sight begin."""
    step = {"Daily": DAY, "Weekly": 7 * DAY}.get(one.repeat, NEVER)
    first, last = ceil((axis.start - one.start - one.duration) / step), floor((axis.end - one.start) / step)
    return (one.start + at * step for at in range(max(0, first), last + 1))
