"""The view Now: every GPU, by pool and node: which workload holds it, of whom, since when and until when.

Its first lines say whether Fairway decides, and which GPUs are free while workloads wait, with the reason of each. GPUs
of one node that the same workload holds are one block. Where a node's own software chooses devices, it is known how
many a workload holds and not which: those fill the row from the left and carry no numbers.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from fairway.api.nodes import node as node_of
from fairway.api.quantities import Malformed, time
from fairway.api.queues import pool as pool_of
from fairway.engine import DEVICE, GPU, Node, Pool, capacity_of, selects

from .ends import Ends
from .page import Ask, Page, drawn, window
from .workload import HOLDS, Share, Workload
from .world import World

LATE_SECONDS = 10.0
"""How much later than its term a lease may be renewed before the page says that nothing decides."""
MOST_COLUMNS = 16


@dataclass(frozen=True, slots=True)
class Holder:
    """A workload on one node, as far as its viewer may see it. `part`: of one device, where it shares one."""

    workload: Workload | None
    queue: str
    state: str
    part: float = 1.0
    ends: tuple[str, float | None, float | None] = ("", None, None)


@dataclass(frozen=True, slots=True)
class Block:
    """Devices `first` to `last` of a node, all in one state. `is_numbered`: whether these very devices are known."""

    first: int
    last: int
    state: str
    holders: tuple[Holder, ...] = ()
    is_numbered: bool = True

    @property
    def width(self) -> int:
        return self.last - self.first + 1

    @property
    def label(self) -> str:
        if not self.is_numbered:
            return f"{self.width} ×"
        return str(self.first) if self.width == 1 else f"{self.first}–{self.last}"


@dataclass(frozen=True, slots=True)
class Row:
    """A node. `others`: what runs there without a GPU."""

    name: str
    pool: str
    domain: str
    problem: str
    gpus: int
    free: int
    blocks: tuple[Block, ...]
    others: tuple[Holder, ...]


def page(world: World, ask: Ask) -> Page:
    rows = [row for row in _rows(world, ask) if _is_chosen(row, ask)]
    key = (lambda it: (it.pool, -it.free, it.name)) if ask.get("sort") == "free" else lambda it: (it.pool, it.domain)
    rows.sort(key=key)
    part = window(ask, rows)
    shown: Sequence[Row] = part["items"]
    pools = [(pool, _sums([it for it in rows if it.pool == pool])) for pool, _ in groupby(shown, lambda it: it.pool)]
    facts = {
        "ask": ask, "part": part, "pools": pools, "sums": _sums(rows), "deciding": deciding(world, ask.now),
        "idle": idle(world, ask, sum(it.free for it in rows)), "widest": max((it.gpus for it in shown), default=0),
        "queues": queue_choices(world), "denied": world.denied,
    }  # fmt: skip
    lists = {f"pool{at}": {it.name: it for it in shown if it.pool == pool} for at, (pool, _) in enumerate(pools)}
    return drawn("now", "Now", facts, lists)


def queue_choices(world: World) -> list[tuple[str, str]]:
    """For a filter: the queues that have workloads."""
    return [("", "all queues"), *((name, name) for name in sorted({it.queue for it in world.workloads.values()}))]


def deciding(world: World, now: float) -> tuple[bool | None, str]:
    """Whether a controller decides, None where that cannot be seen, and a sentence."""
    lease = world.lease
    if "leases" in world.denied:
        return None, "Whether Fairway decides cannot be seen with these rights"
    if lease is None or not lease.spec.holder_identity:
        return False, "Fairway does not decide: no controller holds the lease"
    try:
        age = now - time(lease.spec.renew_time or "")
    except Malformed:
        return None, "Whether Fairway decides is not known: its lease has no time"
    if age > lease.spec.lease_duration_seconds + LATE_SECONDS:
        return False, f"Fairway has not decided for {int(age)} s: its lease is not renewed"
    return True, "Fairway decides"


def idle(world: World, ask: Ask, free: int) -> dict[str, Any]:
    """The GPUs that are free while workloads wait for some, and why: reasons with the workloads that they stop."""
    waits = [it for it in world.workloads.values() if it.state == "waiting" and it.asked]
    reasons: defaultdict[str, list[Workload]] = defaultdict(list)
    for it in sorted(waits, key=lambda it: (it.queue, it.position)):
        reasons[it.reason or "not decided yet"].append(it)
    told = [
        (reason, len(them), next((it for it in them if ask.sight.sees(it.namespace)), None))
        for reason, them in sorted(reasons.items(), key=lambda it: -len(it[1]))
    ]
    return {"free": free, "waits": len(waits), "asked": sum(it.asked for it in waits), "reasons": told}


def _rows(world: World, ask: Ask) -> Iterator[Row]:
    by_node: defaultdict[str, list[tuple[Workload, Share]]] = defaultdict(list)
    for workload in world.workloads.values():
        for share in workload.shares:
            by_node[share.node].append((workload, share))
    pools = sorted((pool_of(it) for it in world.pools.values()), key=lambda it: it.name) or [Pool("default")]
    ends = Ends(world, ask.now)
    for name, said in world.nodes.items():
        held = by_node[name]
        if not ask.sight.sees_nodes and not any(ask.sight.sees(it.namespace) for it, _ in held):
            continue
        node = node_of(said)
        yield _row(node, _pool(node, pools), [(_holder(it, ask, ends), share) for it, share in held])


def _holder(workload: Workload, ask: Ask, ends: Ends) -> Holder:
    seen = workload if ask.sight.sees(workload.namespace) else None
    return Holder(seen, workload.queue, workload.state, ends=ends.of(workload))


def _pool(node: Node, pools: Iterable[Pool]) -> Pool | None:
    labels = dict(node.labels)
    return next((it for it in pools if not it.selector or selects(it.selector, labels)), None)


def _row(node: Node, pool: Pool | None, held: Sequence[tuple[Holder, Share]]) -> Row:
    gpus, wrong = capacity_of(node).get(GPU, 0) // DEVICE, problem(node)
    if pool is None:
        wrong = ", ".join(filter(None, (wrong, "in no pool: nothing starts there")))
    broken = {it.index for it in node.devices if not it.is_healthy}
    blocks = tuple(_blocks(gpus + len(broken), [it for it in held if it[1].gpus], wrong, broken))
    levels = [dict(node.labels).get(level, "") for level in (pool.levels if pool else ())]
    free = sum(it.width for it in blocks if it.state == "free")
    others = tuple(holder for holder, share in held if not share.gpus)
    domain = " · ".join(it for it in levels if it and it != node.name)
    return Row(node.name, pool.name if pool else "no pool", domain, wrong, gpus, free, blocks, others)


def problem(node: Node) -> str:
    """Why nothing new starts there."""
    said = {
        "not ready": not node.is_ready, "unhealthy": node.is_unhealthy, "cordoned": node.is_unschedulable,
        "being removed": node.is_leaving,
    }  # fmt: skip
    return ", ".join(word for word, is_so in said.items() if is_so)


def _blocks(
    gpus: int, held: Sequence[tuple[Holder, Share]], problem: str, broken: set[int]
) -> Iterator[Block]:
    """The devices of a node from the left, those alike joined."""
    on: defaultdict[int, list[Holder]] = defaultdict(list)
    for holder, share in held:
        for index in share.devices:
            part = share.gpus / len(share.devices)
            on[index].append(replace(holder, part=part))
    loose = [replace(holder, part=-1.0) for holder, share in held if not share.devices for _ in range(_whole(share))]
    spare = [index for index in range(gpus) if index not in on and index not in broken]
    for index, holder in zip(spare, loose):
        on[index].append(holder)

    def kind(index: int) -> tuple[str, tuple[Holder, ...], bool]:
        holders = tuple(on[index]) if index in on else ()
        idle = "broken" if index in broken else "closed" if problem else "free"
        return holders[0].state if holders else idle, holders, not any(it.part < 0 for it in holders)

    for (state, holders, is_numbered), run in groupby(range(max([gpus, *(it + 1 for it in on)])), kind):
        indices = list(run)
        yield Block(indices[0], indices[-1], state, holders, is_numbered)


def _whole(share: Share) -> int:
    return max(1, round(share.gpus))


def _is_chosen(row: Row, ask: Ask) -> bool:
    """Whether the filters take the node: a pool, a queue, whether GPUs are free, a text."""
    found = [holder for block in row.blocks for holder in block.holders] + list(row.others)
    text, queue = ask.get("q").lower(), ask.get("queue")
    names = [row.name, *(name for it in found if it.workload for name in (it.workload.name, it.workload.user))]
    return (
        (not ask.get("pool") or row.pool == ask.get("pool"))
        and (not queue or any(it.queue == queue for it in found))
        and (ask.get("show") != "free" or row.free > 0)
        and (ask.get("show") != "problem" or bool(row.problem))
        and (not text or any(text in name.lower() for name in names))
    )


def _sums(rows: Iterable[Row]) -> Counter[str]:
    """GPUs by state, and nodes."""
    found: Counter[str] = Counter()
    for row in rows:
        found["nodes"] += 1
        found["problems"] += bool(row.problem)
        for block in row.blocks:
            found["gpus"] += block.width
            found["held" if block.state in HOLDS or block.holders else block.state] += block.width
    return found
