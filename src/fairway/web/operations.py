"""The view Operations: what is wrong, and what changed since a while ago; each with the line that looks closer, and the
section of the runbook. The runbook is a view of its own, so its links work wherever the page is served."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from heapq import nsmallest
from importlib.resources import files
from operator import attrgetter

from .floor import NO_POOL, rows
from .now import deciding
from .page import WINDOW, Ask, Page, drawn, window
from .workload import BY_USER, Eviction, Workload, moment
from .workload_page import beneficiary
from .world import World

SINCE = {"": 3600.0, "6h": 21_600.0, "24h": 86_400.0, "week": 604_800.0}
SLOW_SECONDS, LONG_SECONDS, DAY = 120.0, 3600.0, 86_400.0
MOST_WAITS, MOVES = 5, ("starting", "stopping", "cancelling")
SLOW = "its pods are not there yet, or not gone"
PRESSURES = {"DiskPressure": "disk", "MemoryPressure": "memory", "PIDPressure": "processes"}


@dataclass(frozen=True, slots=True)
class Trouble:
    """`what` is wrong with `whom`; `line` looks closer, and the section `page` of the runbook says what to do."""

    what: str
    whom: str
    link: str
    since: float | None
    says: str
    line: str
    page: str


@dataclass(frozen=True, slots=True)
class Change:
    """`says`: of an eviction, the workload that it was for."""

    key: str
    at: float
    what: str
    it: Workload
    is_seen: bool
    says: str
    eviction: Eviction | None = None


def page(world: World, ask: Ask) -> Page:
    said, what = moment(ask.get("since")), ask.get("what")
    after = ask.now - SINCE.get(ask.get("since"), SINCE[""]) if said is None else said
    lately = [it for it in world.workloads.values() if _last(it) >= after]
    changes = [it for it in _changes(world, ask, lately) if it.at >= after and what in ("", it.what)]
    victims = [it for it in world.workloads.values() if it.evictions]
    evicted = [it for it in _changes(world, ask, victims) if it.what == "evicted" and it.at >= ask.now - DAY]
    for each in (changes, evicted):
        each.sort(key=lambda it: (-it.at, it.key))
    part = window(ask, changes)
    facts = {"ask": ask, "part": part, "troubles": list(_troubles(world, ask)), "denied": world.denied,
             "evictions": len(evicted), "most": WINDOW, "said": said, "after": after // 60 * 60}  # fmt: skip
    lists = {"changes": part["items"], "evicted": evicted[:WINDOW]}
    values = {name: {it.key: it for it in them} for name, them in lists.items()}
    return drawn("operations", "Operations", facts, values, ask.before)


def runbook(world: World, ask: Ask) -> Page:
    """One section of the runbook, or all."""
    section = ask.get("section")
    facts = {"sections": {it: said for it, said in _sections().items() if section in ("", it)}, "is_whole": not section}
    return drawn("runbook", "Runbook", facts, {})


@cache
def _sections() -> dict[str, tuple[str, str]]:
    """Titles and texts of docs/start/runbook.md, by the words that its anchors have."""
    _, *parts = (files("fairway.web") / "runbook.md").read_text().split("\n## ")
    pairs = (it.split("\n", 1) for it in parts)
    return {title.lower().replace(" ", "-"): (title, text) for title, text in pairs}


def _troubles(world: World, ask: Ask) -> Iterator[Trouble]:
    is_fine, says = deciding(world, ask.now)
    if is_fine is False:
        line = f"kubectl -n {world.controller} get lease,pods"
        yield Trouble("no decisions", "the controller", "", None, says, line, "fairwayhasnoleader")
    if away := world.away:
        says, line = f"cannot be read: {', '.join(away)}", "kubectl get --raw /readyz?verbose"
        yield Trouble("API errors", "the API server", "", None, says, line, "fairwayrequestsfail")
    nodes = world.nodes
    for row in sorted(rows(world), key=attrgetter("name")) if ask.sight.sees_nodes else ():
        name, line, link = row.name, f"kubectl describe node {row.name}", f"/now?q={row.name}"
        said = {it.type: it for it in nodes[name].status.conditions}
        if row.problem not in ("", NO_POOL):
            since = moment(said["Ready"].last_transition_time) if "not ready" in row.problem else None
            yield Trouble("node closed", name, link, since, row.problem, line, "unhealthy-nodes")
        for one in (said[kind] for kind in PRESSURES if kind in said and said[kind].status == "True"):
            since, page = moment(one.last_transition_time), "disk" if one.type == "DiskPressure" else "unhealthy-nodes"
            yield Trouble(PRESSURES[one.type], name, link, since, one.message or one.type, line, page)
    seen = [it for it in world.workloads.values() if ask.sight.sees(it.namespace)]
    stuck = [it for it in seen if it.reason == "Refused" or it.state in MOVES]
    for it in sorted(stuck, key=lambda it: it.since or 0.0):
        late = ask.now - (it.since or ask.now)
        if it.reason == "Refused" and it.state == "waiting":
            yield _of(it, "refused plan", it.message, "why", "fairwayplanrefused")
        elif it.state in MOVES and late > SLOW_SECONDS:
            yield _of(it, f"slow {it.state}", it.message or SLOW, "status", "hanging-starts")
    waits = [it for it in seen if it.state == "waiting" and ask.now - (it.since or ask.now) > LONG_SECONDS]
    for it in nsmallest(MOST_WAITS, waits, key=lambda it: it.since or ask.now):
        yield _of(it, "long wait", f"{it.reason}: {it.message}", "why", "long-waits")
    if (more := len(waits) - MOST_WAITS) > 0:
        says, line = "wait for more than an hour, too", "kubectl fairway ls -A --state waiting"
        yield Trouble("long waits", f"{more} more", "/waiting?sort=since", None, says, line, "long-waits")


def _of(it: Workload, what: str, says: str, command: str, page: str) -> Trouble:
    return Trouble(what, it.name, f"/workload/{it.key}", it.since, says, it.line(command), page)


def _last(it: Workload) -> float:
    """When something happened to it last."""
    return max(it.ended or 0.0, it.began or 0.0, it.evictions[-1].time if it.evictions else 0.0)


def _changes(world: World, ask: Ask, them: Iterable[Workload]) -> Iterator[Change]:
    """Starts, ends and evictions that the objects still tell of."""
    for it in them:
        is_seen = ask.sight.sees(it.namespace)
        name = it.key if is_seen else world.mask(it.key)
        for at, one in enumerate(it.evictions):
            whom = beneficiary(world, one, ask.sight)
            what = one.word if one.reason == BY_USER else "evicted"
            yield Change(f"{name} e{at} {one.time}", one.time, what, it, is_seen, whom, one)
        if it.ended is not None:
            yield Change(f"{name} end", it.ended, it.state, it, is_seen, it.ending if is_seen else "")
        for began, on in _starts(it):
            nodes = ", ".join(on) if ask.sight.sees_nodes else ""
            yield Change(f"{name} start {began}", began, "started", it, is_seen, f"on {nodes}" if nodes else "")


def _starts(it: Workload) -> Iterator[tuple[float, Iterable[str]]]:
    """When its attempts began, and on which nodes, as far as that is known."""
    yield from ((one.began, one.nodes) for one in it.evictions if one.began is not None)
    if it.began is not None and (it.shares or it.ended is not None):
        yield it.began, dict.fromkeys(share.node for share in it.shares)
