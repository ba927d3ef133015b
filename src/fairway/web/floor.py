"""What is on the nodes: their devices, joined where the same workloads hold them, beside each other or not.

A row depends on its node, the pools and what the node's workloads hold, not on a viewer; it is read again only when one
of these has changed. Where a node's own software chooses devices, it is known how many a workload holds and not which:
those fill the row from the left and carry no numbers.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from fairway.api.nodes import node as node_of
from fairway.api.nodes import uses
from fairway.api.objects import NodeObject
from fairway.api.queues import pool as pool_of
from fairway.engine import DEVICE, GPU, Node, Pool, capacity_of, selects

from .workload import Share, Workload
from .world import World

NONE, NO_POOL = "no pool", "in no pool: nothing starts there"
LETTERS = {"running": "r", "free": "f", "closed": "c", "broken": "c", "foreign": "o"}
IDLE, MOVING = "i", "s"
"""Of what starts or stops: s."""
LOOKED_AT = 50
"""Nodes of a pool whose labels are compared with what workloads ask for, since those of a pool are alike."""
Labels = Mapping[str, Sequence[Mapping[str, str]]]
"""Those of some nodes, by pool."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A workload on a node. `part`: of one device, where it shares one."""

    it: Workload
    part: float = 1.0


Cell = tuple[str, tuple[Holder, ...], bool]
"""Of a device: state, holders, and whether it is known that it is this very one."""


@dataclass(frozen=True, slots=True)
class Block:
    """The devices `gpus` of a node that have the same holders, all in one state. `is_numbered`: whether these very
    devices are known."""

    gpus: tuple[int, ...]
    state: str
    holders: tuple[Holder, ...] = ()
    is_numbered: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """A node. `workloads`: what is on it, with a GPU or without. `idle`: held devices on which nothing computes.
    `letters`: one of LETTERS for each device."""

    name: str
    pool: str
    domain: str
    problem: str
    free: int
    held: int
    cells: tuple[Cell, ...]
    workloads: tuple[Workload, ...]
    others: tuple[Workload, ...]
    idle: tuple[int, ...]
    letters: str

    @property
    def gpus(self) -> int:
        return len(self.cells)

    @property
    def blocks(self) -> Iterator[Block]:
        """Its devices, joined. Made when it is shown, which of thousands few are."""
        alike: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
        for index, (state, who, is_numbered) in enumerate(self.cells):
            alike[state, is_numbered, *((it.it.key, it.part) for it in who)].append(index)
        for them in alike.values():
            state, who, is_numbered = self.cells[them[0]]
            yield Block(tuple(them), state, who, is_numbered)

    def unused(self, block: Block) -> tuple[int, ...]:
        return tuple(it for it in self.idle if it in block.gpus)


def rows(world: World) -> Iterator[Row]:
    """Of all nodes."""
    known: dict[str, tuple[tuple[int, int], Row]] = world.kept.setdefault("floor", {})
    pools = sorted((pool_of(it) for it in world.pools.values()), key=lambda it: it.name) or [Pool("default")]
    for name, said in world.nodes.items():
        version = world.touched[name], world.pools_version
        found = known.get(name)
        if found is None or found[0] != version:
            found = known[name] = version, _row(world, said, pools)
        yield found[1]


def labels_of_pools(world: World) -> Labels:
    found: defaultdict[str, list[Mapping[str, str]]] = defaultdict(list)
    for row in rows(world):
        if row.pool != NONE and len(found[row.pool]) < LOOKED_AT:
            found[row.pool].append(world.nodes[row.name].metadata.labels)
    return found


def may_use(it: Workload, pool: str, labels: Iterable[Mapping[str, str]]) -> bool:
    """Whether a workload asks for nodes of the pool, or of any."""
    is_named = not it.pools or pool in it.pools
    return is_named and (not it.selects or any(selects(one, each) for one in it.selects for each in labels))


def _shares(world: World, node: str) -> Iterator[tuple[Workload, Share]]:
    for key in sorted(world.on_node[node]):
        workload = world.workloads[key]
        yield from ((workload, share) for share in workload.shares if share.node == node)


def _row(world: World, said: NodeObject, pools: Iterable[Pool]) -> Row:
    """What workloads do not account for of the GPUs that pods request, others hold."""
    node = node_of(said)
    labels, held = dict(node.labels), list(_shares(world, node.name))
    pool = next((it for it in pools if not it.selector or selects(it.selector, labels)), None)
    wrong = ", ".join(filter(None, (problem(node), "" if pool else NO_POOL)))
    broken = {it.index for it in node.devices if not it.is_healthy}
    gpus = capacity_of(node).get(GPU, 0) // DEVICE + len(broken)
    with_gpus = [it for it in held if it[1].gpus]
    others = max(0, world.bound[node.name] - ceil(sum(share.gpus for _, share in with_gpus)))
    cells = tuple(_cells(gpus, with_gpus, ("closed" if wrong else "free", others), broken))
    levels = [labels.get(level, "") for level in (pool.levels if pool else ())]
    used, letters = uses(said), [LETTERS.get(state, MOVING) for state, *_ in cells]
    free, closed = (letters.count(LETTERS[state]) for state in ("free", "closed"))
    # What starts or stops does not compute yet, or any more.
    idle = tuple(at for at, (state, _, is_numbered) in enumerate(cells)
                 if used.get(at) == "idle" and state == "running" and is_numbered)  # fmt: skip
    for at in idle:
        letters[at] = IDLE
    return Row(
        node.name, pool.name if pool else NONE, " · ".join(it for it in levels if it and it != node.name), wrong,
        free=free, held=len(cells) - free - closed, cells=cells, workloads=tuple(it for it, _ in held),
        others=tuple(it for it, share in held if not share.gpus), idle=idle, letters="".join(letters),
    )  # fmt: skip


def problem(node: Node) -> str:
    """Why nothing new starts there."""
    said = {"not ready": not node.is_ready, "unhealthy": node.is_unhealthy, "cordoned": node.is_unschedulable}
    return ", ".join(word for word, is_so in (said | {"being removed": node.is_leaving}).items() if is_so)


def _cells(
    gpus: int, held: Sequence[tuple[Workload, Share]], rest: tuple[str, int], broken: set[int]
) -> list[Cell]:
    """`rest`: the state of what is not held, and how many GPUs others hold; it is not known which."""
    on: defaultdict[int, list[Holder]] = defaultdict(list)
    for workload, share in held:
        holder = Holder(workload, share.gpus / max(1, len(share.devices)))
        for index in share.devices:
            on[index].append(holder)
    loose = [Holder(it) for it, share in held if not share.devices for _ in range(max(1, round(share.gpus)))]
    spare = [index for index in range(gpus) if index not in on and index not in broken]
    state, others = rest
    cells: list[Cell] = [(state, (), True)] * max([gpus, *(it + 1 for it in on)])
    for index in broken & set(range(gpus)):
        cells[index] = "broken", (), True
    for index in spare[len(loose) :][::-1][:others]:
        cells[index] = "foreign", (), True
    for index, holder in zip(spare, loose):
        cells[index] = holder.it.state, (holder,), False
    for index, holders in on.items():
        cells[index] = holders[0].it.state, tuple(holders), True
    return cells
