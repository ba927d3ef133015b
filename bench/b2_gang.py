"""B2, gangs: one plan for 10,000 pods of one CPU on 1,000 nodes, as many small gangs, few large ones, or one.

The published figures are end to end, on 32 virtual CPUs, pods created and bound through an API server; ours is the
decision alone, `check` included. They are told as orientation, not as a claim.
"""

from collections.abc import Iterator

from bench.figure import Figure, growth
from bench.plans import timed, world_of

from fairway.engine import Node, PodClass, PodSet, Workload, amounts

POD = PodClass(requests=amounts({"cpu": 1000}))
SHAPES = ((500, 20, 18.5), (20, 500, 27.0), (1, 10_000, 43.0))
"""Gangs, pods in each, and the published seconds of Volcano."""


def nodes(count: int) -> tuple[Node, ...]:
    offered = amounts({"cpu": 16_000, "memory": 64 * 2**30, "pods": 110})
    return tuple(Node(f"n{at:05d}", capacity=offered) for at in range(count))


def gangs(count: int, size: int) -> tuple[Workload, ...]:
    podsets = (PodSet("main", size, size, POD),)
    return tuple(Workload(f"b/g{at:05d}", "q", podsets, submitted=float(at)) for at in range(count))


def run(rounds: int = 5) -> Iterator[Figure]:
    for count, size, published in SHAPES:
        costs = []
        for part in (4, 2, 1):
            shape = (count // part or 1, size) if count > 1 else (1, size // part)
            world = world_of(nodes(1000 // part), gangs(*shape))
            samples, is_valid = timed(world, rounds, admitted=shape[0])
            costs.append(min(samples))
        name = f"B2 {count} gangs of {size} (cost ~ size^{growth((1, 2, 4), costs):.2f})"
        yield Figure(name, samples, "s", published / 2, published, "Volcano, published", is_valid=is_valid)
