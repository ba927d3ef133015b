"""B6, topology: gangs that must stand in one rack of 5,000 nodes, and one gang as large as a tree of four levels.

One plan, `check` included, which refuses a gang that is not in one domain of its level. A gang therefore never has more
racks than one; the large gang, which only prefers a block, is counted: it must use the fewest.
"""

from collections.abc import Iterator
from itertools import product

from bench.figure import Figure, growth
from bench.plans import timed, world_of

from fairway.engine import Node, PodClass, PodSet, Topology, Workload, amounts

RACK = "rack"
LEVELS = ("zone", "block", RACK, "kubernetes.io/hostname")
SHAPES = ((750, 4), (1500, 4), (3, 1000))


def rack_nodes(racks: int) -> tuple[Node, ...]:
    """A hundred nodes of 16 CPUs in each rack."""
    offered = amounts({"cpu": 16_000, "memory": 64 * 2**30, "pods": 110})
    return tuple(
        Node(f"r{rack:02d}n{at:03d}", ((RACK, f"r{rack:02d}"),), offered) for rack in range(racks) for at in range(100)
    )


def gangs(count: int, size: int, topology: Topology, pod: PodClass) -> tuple[Workload, ...]:
    podsets = (PodSet("main", size, size, pod, topology),)
    return tuple(Workload(f"b/g{at:05d}", "q", podsets, submitted=float(at)) for at in range(count))


def tree_nodes(zones: int) -> tuple[Node, ...]:
    """Zones of 8 blocks of 8 racks of 2 nodes of 8 GPUs."""
    offered = amounts({"cpu": 96_000, "nvidia.com/gpu": 8000, "pods": 110})
    paths = product(range(zones), range(8), range(8), range(2))
    return tuple(_tree_node("".join(map(str, path)), path, offered) for path in paths)


def _tree_node(name: str, path: tuple[int, ...], offered: tuple[tuple[str, int], ...]) -> Node:
    values = (*(str(part) for part in path[:3]), f"n{name}")
    return Node(f"n{name}", tuple(sorted(zip(LEVELS, values))), offered)


def run(rounds: int = 5) -> Iterator[Figure]:
    total: list[float] = [0.0] * rounds
    is_all_valid = True
    for count, size in SHAPES:
        costs = []
        for part in (4, 2, 1):
            pod = PodClass(requests=amounts({"cpu": 1000}))
            many = max(count // part, 1)
            world = world_of(rack_nodes(50 // part), gangs(many, size, Topology(required=RACK), pod), (RACK,))
            samples, is_valid = timed(world, rounds, admitted=many)
            costs.append(min(samples))
        is_all_valid &= is_valid
        total = [before + sample for before, sample in zip(total, samples)]
        name = f"B6 {count} gangs of {size}, rack required (~ size^{growth((1, 2, 4), costs):.2f})"
        yield Figure(name, samples, "s", is_valid=is_valid)
    yield Figure("B6 the three together", tuple(total), "s", 2.0, is_valid=is_all_valid)
    yield _large_gang(rounds)


def _large_gang(rounds: int) -> Figure:
    costs = []
    for zones in (1, 2, 4):
        pod = PodClass(requests=amounts({"nvidia.com/gpu": 8000}))
        world = world_of(tree_nodes(zones), gangs(1, 128 * zones, Topology(preferred="block"), pod), LEVELS)
        samples, is_valid = timed(world, rounds, admitted=1)
        costs.append(min(samples))
    name = f"B6 512 pods on 4x8x8x2 (~ size^{growth((1, 2, 4), costs):.2f})"
    return Figure(name, tuple(1000 * one for one in samples), "ms", 50.0, 48_700.0, "KAI, published", is_valid=is_valid)
