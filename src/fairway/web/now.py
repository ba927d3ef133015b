"""The view Now: every GPU, by pool and node: which workload holds it, of whom, since when and until when.

Its first lines say whether Fairway decides, and which GPUs are free while workloads wait, with the reason of each.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from operator import attrgetter
from typing import Any

from fairway.api.queues import lineage
from fairway.engine import Selector

from .ends import End, Ends
from .floor import LOOKED_AT, Block, Holder, Row, may_use, rows
from .page import Ask, Page, drawn, window
from .workload import Workload, moment
from .world import World

NODES, MAPPED, NAMED = 120, 24, 200
"""Nodes that are shown at once, since a row says more than one of a table; more than so many have a map as well, on
which each GPU is a cell; and up to so many are named there, each in its rack."""
MOST_POOLS = 4
"""Pools with free GPUs that are named."""
LATE_SECONDS = 10.0
"""How much later than its term a lease may be renewed before the page says that nothing decides."""

Crowds = Mapping[tuple[str, tuple[Selector, ...], tuple[str, ...]], list[Workload]]
"""Workloads that wait for GPUs, by the reason, the labels and the pools that they ask for."""

SORTS = {"": attrgetter("pool", "domain"), "free": lambda row: (row.pool, -row.free, row.name)}


@dataclass(frozen=True, slots=True)
class Shown:
    """A holder; the viewer may know its queue and its state, and the rest if it `is_seen`."""

    it: Workload
    is_seen: bool
    part: float
    ends: End


@dataclass(frozen=True, slots=True)
class Node:
    """A row as far as its viewer may see it: its blocks with those who hold them, and what runs without a GPU.
    `is_short`: some GPUs are free, and each waiting pod asks for more."""

    row: Row
    blocks: tuple[tuple[Block, tuple[Shown, ...]], ...]
    others: tuple[Shown, ...]
    is_short: bool = False


def page(world: World, ask: Ask) -> Page:
    sight = ask.sight
    every = [it for it in rows(world) if sight.sees_nodes or any(sight.sees(one.namespace) for one in it.workloads)]
    found = list(filter(_chosen(world, ask), every))
    found.sort(key=SORTS.get(ask.get("sort"), SORTS[""]))
    part = window(ask, found, NODES)
    shown: Sequence[Row] = part["items"]
    ends, crowds = Ends(world, ask.now), _crowds(world)
    least = min((gpus for them in crowds.values() for it in them for *_, gpus in it.podsets if gpus), default=0.0)
    pools = []
    for pool, _ in groupby(shown, attrgetter("pool")):
        own = [it for it in found if it.pool == pool]
        labels = [world.nodes[it.name].metadata.labels for it in islice(filter(attrgetter("free"), own), LOOKED_AT)]
        asking = [it for alike in crowds.values() if may_use(alike[0], pool, labels) for it in alike]
        pools.append((pool, _sums(own), len(asking), _first(asking, ask)))
    facts = {
        "ask": ask, "part": part, "pools": pools, "sums": _sums(every), "deciding": deciding(world, ask.now),
        "controller": world.controller,
        "paused": sum(it.state == "paused" and not it.waits for it in world.workloads.values()),
        "idle": idle(every, crowds, ask), "now": ask.now, "queues": queue_choices(world), "denied": world.denied,
        "groups": _groups(found, ask) if len(found) > MAPPED else [], "least": least, "is_named": len(found) <= NAMED,
    }  # fmt: skip
    lists = {
        f"pool{at}": {it.name: _node(it, ask, ends, least) for it in shown if it.pool == pool}
        for at, (pool, *_) in enumerate(pools)
    }
    made = drawn("now", "Now", facts, lists, ask.before)
    cells = {"map": {it.name: it.letters for it in found}} if facts["groups"] else {}
    return replace(made, lists={**made.lists, **cells})


def _groups(found: Sequence[Row], ask: Ask) -> list[tuple[str, int]]:
    """Of the map: what nodes that lie together there are called, by pool or, of few, by rack; and how many they are."""
    level = "domain" if len(found) <= NAMED and ask.get("sort") != "free" else "pool"
    places = groupby(found, attrgetter("pool", level))
    return [(" · ".join(filter(None, dict.fromkeys(place))), len(list(them))) for place, them in places]


def queue_choices(world: World) -> list[tuple[str, str]]:
    """For a filter: the queues that have workloads, and those above them."""
    named = {it.queue for it in world.workloads.values()}
    names = sorted({above for name in named for above in lineage(world.queues, name)})
    return [("", "all queues"), *zip(names, names)]


def within(world: World, queue: str) -> Callable[[str], bool]:
    """Whether a queue is that one or below it; every queue is where none is asked for."""
    below = {queue, *(name for name in world.queues if queue in lineage(world.queues, name))}
    return below.__contains__ if queue else lambda _: True


def deciding(world: World, now: float) -> tuple[bool | None, str]:
    """Whether a controller decides, None where that cannot be seen, and a sentence."""
    spec = (world.lease or {}).get("spec") or {}
    if "leases" in world.denied:
        return None, "Whether Fairway decides cannot be seen with these rights"
    if not spec.get("holderIdentity"):
        return False, "Fairway does not decide: no controller holds the lease"
    if (at := moment(spec.get("renewTime"))) is None:
        return None, "Whether Fairway decides is not known: its lease has no time"
    if (age := now - at) > spec.get("leaseDurationSeconds", 15) + LATE_SECONDS:
        return False, f"Fairway has not decided for {int(age)} s: its lease is not renewed"
    return True, "Fairway decides"


def idle(found: Iterable[Row], crowds: Crowds, ask: Ask) -> dict[str, Any]:
    """The GPUs that are free while workloads wait for some, in which pools; and reasons with the workloads that each
    stops."""
    where: Counter[str] = Counter()
    for row in found:
        where[row.pool] += row.free
    reasons: defaultdict[str, list[Workload]] = defaultdict(list)
    for (reason, *_), them in crowds.items():
        reasons[reason] += them
    most = sorted(reasons.items(), key=lambda it: -len(it[1]))
    pools = [f"{free} in {pool}" for pool, free in where.most_common(MOST_POOLS) if free] if len(where) > 1 else []
    sums = {"free": where.total(), "waits": sum(map(len, reasons.values()))}
    sums["asked"] = sum(it.asked for them in reasons.values() for it in them)
    return sums | {"where": pools, "reasons": [(reason, len(them), _first(them, ask)) for reason, them in most]}


def _crowds(world: World) -> Crowds:
    found: defaultdict[tuple[str, tuple[Selector, ...], tuple[str, ...]], list[Workload]] = defaultdict(list)
    for it in world.workloads.values():
        if it.waits and it.asked:
            found[it.reason or "not decided yet", it.selects, it.pools].append(it)
    return found


def _first(them: Iterable[Workload], ask: Ask) -> Workload | None:
    """The one that is next, of those that the viewer may see."""
    seen = (it for it in them if ask.sight.sees(it.namespace))
    return min(seen, key=lambda it: (it.position, it.since or 0.0, it.key), default=None)


def _node(row: Row, ask: Ask, ends: Ends, least: float) -> Node:
    def shown(holders: Iterable[Holder]) -> tuple[Shown, ...]:
        return tuple(Shown(it.it, ask.sight.sees(it.it.namespace), it.part, ends.of(it.it)) for it in holders)

    blocks = tuple((block, shown(block.holders)) for block in row.blocks)
    return Node(row, blocks, shown(map(Holder, row.others)), 0 < row.free < least)


def _chosen(world: World, ask: Ask) -> Callable[[Row], bool]:
    """Whether the filters take a node: a queue, free GPUs or a problem, a text. Only what is chosen is asked of each of
    thousands."""
    text, queue, show = ask.get("q").lower(), ask.get("queue"), ask.get("show")
    tests: list[Callable[[Row], bool]] = []
    if queue:
        is_within = within(world, queue)
        tests.append(lambda row: any(is_within(it.queue) for it in row.workloads))
    if show in ("free", "problem"):
        tests.append(lambda row: row.free > 0 if show == "free" else bool(row.problem))
    if text:
        tests.append(lambda row: any(text in name.lower() for name in (row.name, row.pool, row.domain))
                     or any(ask.sight.finds(text, one) for one in row.workloads))  # fmt: skip
    return (lambda row: all(test(row) for test in tests)) if tests else lambda row: True


def _sums(them: Sequence[Row]) -> dict[str, int]:
    """Nodes, and their GPUs by state."""
    sums = {name: sum(map(attrgetter(name), them)) for name in ("gpus", "held", "free")}
    idle, problems = sum(len(it.idle) for it in them), sum(bool(it.problem) for it in them)
    return sums | {"nodes": len(them), "idle": idle, "problems": problems}
