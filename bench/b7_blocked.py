"""B7, blocked: what 10,000 workloads that cannot run cost the 1,000 behind them that can, in one queue.

The figure is verdicts a second, `check` included, with the blocked ones ahead; the baseline the same without them.
"""

from collections.abc import Iterator
from statistics import median

from bench.b3_engine import nodes, queues
from bench.figure import Figure, growth
from bench.plans import timed

from fairway.engine import PodClass, PodSet, Workload, World, amounts


def world(blocked: int, free: int, likenesses: int = 10) -> World:
    """`blocked` ask for more than there is left of a node, in so many likenesses; `free` for one CPU."""
    small = (PodSet("main", 1, 1, PodClass(requests=amounts({"cpu": 1000}))),)
    large = [
        (PodSet("main", 1, 1, PodClass(requests=amounts({"cpu": 40_000 + at}))),) for at in range(likenesses)
    ]
    ahead = (Workload(f"b/a{at:05d}", "q000", large[at % likenesses], submitted=float(at)) for at in range(blocked))
    behind = (Workload(f"b/b{at:05d}", "q000", small, submitted=1e6 + at) for at in range(free))
    return World(nodes=nodes(100), queues=queues(1), pending=(*ahead, *behind))


def run(rounds: int = 9) -> Iterator[Figure]:
    costs = []
    for part in (4, 2, 1):
        blocked, free = 10_000 // part, 1000 // part
        alone, is_sound = timed(world(0, free), rounds, admitted=free)
        samples, is_valid = timed(world(blocked, free), rounds, admitted=free)
        costs.append(min(samples))
    rates = tuple((blocked + free) / sample for sample in samples)
    base = free / median(alone)
    title = f"B7 10,000 blocked ahead (cost ~ size^{growth((1, 2, 4), costs):.2f})"
    yield Figure(title, rates, "verdicts/s", 0.95 * base, base, "without them", True, is_sound and is_valid)
