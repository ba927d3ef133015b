"""What is on the nodes: their devices from the left, joined where the same workloads hold them.

A row depends on its node, the pools and what the node's workloads hold, not on a viewer; it is read again only when one
of these has changed. Where a node's own software chooses devices, it is known how many a workload holds and not which:
those fill the row from the left and carry no numbers.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil

from fairway.api.nodes import node as node_of
from fairway.api.nodes import uses
from fairway.api.queues import pool as pool_of
from fairway.engine import DEVICE, GPU, Node, Pool, capacity_of, selects

from .workload import Share, Workload
from .world import World

NO_POOL = "in no pool: nothing starts there"
LETTERS = {"running": "r", "free": "f", "closed": "c", "broken": "c", "foreign": "o"}
IDLE, MOVING = "i", "s"
"""Of what starts or stops: s."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A workload on a node. `part`: of one device, where it shares one."""

    it: Workload
    part: float = 1.0


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
            return f"{self.width} GPU{'s' * (self.width > 1)}"
        return str(self.first) if self.width == 1 else f"{self.first}–{self.last}"


@dataclass(frozen=True, slots=True)
class Row:
    """A node. `others`: what runs there without a GPU. `idle`: held devices on which nothing computes. `cells`: a
    letter of LETTERS for each device."""

    name: str
    pool: str
    domain: str
    problem: str
    gpus: int
    free: int
    held: int
    blocks: tuple[Block, ...]
    others: tuple[Holder, ...]
    idle: tuple[int, ...] = ()
    cells: str = ""

    @property
    def holders(self) -> Iterator[Holder]:
        for block in self.blocks:
            yield from block.holders
        yield from self.others

    def unused(self, block: Block) -> tuple[int, ...]:
        return tuple(it for it in self.idle if block.first <= it <= block.last)


def rows(world: World) -> Iterator[Row]:
    """Of all nodes."""
    known: dict[str, tuple[tuple[int, int], Row]] = world.kept.setdefault("floor", {})
    pools = sorted((pool_of(it) for it in world.pools.values()), key=lambda it: it.name) or [Pool("default")]
    for name, said in world.nodes.items():
        version = world.touched[name], world.pools_version
        found = known.get(name)
        if found is None or found[0] != version:
            node = node_of(said)
            row = _row(node, _pool(node, pools), list(_shares(world, name)), world.bound[name])
            idle = tuple(_idle(row, uses(said)))
            found = known[name] = version, replace(row, idle=idle, cells=_cells(row, idle))
        yield found[1]


def _cells(row: Row, idle: Sequence[int]) -> str:
    letters = [LETTERS.get(block.state, MOVING) for block in row.blocks for _ in range(block.width)]
    return "".join(IDLE if at in idle else letter for at, letter in enumerate(letters))


def _idle(row: Row, used: Mapping[int, str]) -> Iterator[int]:
    """Of what runs on devices that are known; what starts or stops does not compute yet, or any more."""
    for block in row.blocks:
        if block.state == "running" and block.is_numbered:
            yield from (it for it in range(block.first, block.last + 1) if used.get(it) == "idle")


def _shares(world: World, node: str) -> Iterator[tuple[Workload, Share]]:
    for key in sorted(world.on_node[node]):
        workload = world.workloads[key]
        yield from ((workload, share) for share in workload.shares if share.node == node)


def _pool(node: Node, pools: Iterable[Pool]) -> Pool | None:
    labels = dict(node.labels)
    return next((it for it in pools if not it.selector or selects(it.selector, labels)), None)


def _row(node: Node, pool: Pool | None, held: Sequence[tuple[Workload, Share]], bound: int) -> Row:
    """`bound`: GPUs that pods on it request; what workloads do not account for of them, others hold."""
    wrong = ", ".join(filter(None, (problem(node), "" if pool else NO_POOL)))
    broken = {it.index for it in node.devices if not it.is_healthy}
    gpus = capacity_of(node).get(GPU, 0) // DEVICE + len(broken)
    with_gpus = [it for it in held if it[1].gpus]
    others = max(0, bound - ceil(sum(share.gpus for _, share in with_gpus)))
    blocks = tuple(_blocks(gpus, with_gpus, ("closed" if wrong else "free", others), broken))
    levels = [dict(node.labels).get(level, "") for level in (pool.levels if pool else ())]
    widths = Counter({"free": 0})
    for it in blocks:
        widths["held" if it.holders else it.state] += it.width
    return Row(
        name=node.name,
        pool=pool.name if pool else "no pool",
        domain=" · ".join(it for it in levels if it and it != node.name),
        problem=wrong,
        gpus=sum(widths.values()),
        free=widths["free"],
        held=widths["held"] + widths["foreign"],
        blocks=blocks,
        others=tuple(Holder(it) for it, share in held if not share.gpus),
    )


def problem(node: Node) -> str:
    """Why nothing new starts there."""
    said = {
        "not ready": not node.is_ready, "unhealthy": node.is_unhealthy, "cordoned": node.is_unschedulable,
        "being removed": node.is_leaving,
    }  # fmt: skip
    return ", ".join(word for word, is_so in said.items() if is_so)


def _blocks(
    gpus: int, held: Sequence[tuple[Workload, Share]], rest: tuple[str, int], broken: set[int]
) -> Iterator[Block]:
    """`rest`: the state of what is not held, and how many GPUs others hold; it is not known which."""
    on: defaultdict[int, list[Holder]] = defaultdict(list)
    for workload, share in held:
        for index in share.devices:
            on[index].append(Holder(workload, share.gpus / len(share.devices)))
    loose = [Holder(it) for it, share in held if not share.devices for _ in range(max(1, round(share.gpus)))]
    spare = [index for index in range(gpus) if index not in on and index not in broken]
    unnumbered = dict(zip(spare, loose))
    idle, others = rest
    foreign = [index for index in reversed(spare) if index not in unnumbered][:others]

    def kind(index: int) -> tuple[str, tuple[Holder, ...], bool]:
        if index in unnumbered:
            return unnumbered[index].it.state, (unnumbered[index],), False
        if index in foreign:
            return "foreign", (), False
        state = on[index][0].it.state if index in on else "broken" if index in broken else idle
        return state, tuple(on.get(index, ())), True

    for (state, holders, is_numbered), run in groupby(range(max([gpus, *(it + 1 for it in on)])), kind):
        indices = list(run)
        yield Block(indices[0], indices[-1], state, holders, is_numbered)
