"""B4, reclaim: a gang takes back a tenth of a cluster that another queue filled with single GPUs.

N nodes of 8 GPUs, 8N running workloads of one GPU in queue-0 (guaranteed 0), a gang of N/10 pods of 8 GPUs in queue-1;
and 500 nodes on which 4,000 single workloads take back all of 4,000. No minimum runtime, no token bucket. One plan,
`check` included; valid if it is sound, everybody starts and nobody leaves but whose room is taken.
"""

from collections.abc import Iterator

from bench.figure import Figure, growth
from bench.plans import once

from fairway.engine import (
    GPU,
    Admission,
    Admit,
    Evict,
    Node,
    NodeShare,
    PodClass,
    PodSet,
    PodSetPlacement,
    Queue,
    Quota,
    Running,
    Share,
    Workload,
    World,
    amounts,
    snapshot_of,
)

SIZES = {100: 0.11, 200: 0.63, 500: 9.1, 1000: 76.0}  # nodes → seconds that KAI publishes
AIMS = {500: 0.091, 1000: 0.4}


def world(many: int, waiting: tuple[Workload, ...]) -> World:
    offered = amounts({"cpu": 96_000, "memory": 2**40, "pods": 110, GPU: 8000})
    nodes = tuple(Node(f"n{at:05d}", capacity=offered) for at in range(many))
    podsets = gpus(1, 1)
    running = tuple(
        Running(
            Workload(f"b/r{at:05d}", "queue-0", podsets, submitted=float(at)),
            Admission("default", (PodSetPlacement("main", (NodeShare(nodes[at % many].name, 1),)),)),
        )
        for at in range(8 * many)
    )
    queues = (queue("queue-0", 0, 0.0), queue("queue-1", 8 * many, 1.0))
    return World(now=1e6, nodes=nodes, queues=queues, pending=waiting, running=running)


def queue(name: str, guaranteed: int, weight: float) -> Queue:
    return Queue(name, quotas=(Quota("*", ((GPU, Share(1000 * guaranteed)),), (), weight),), min_runtime=0.0)


def gpus(count: int, each: int) -> tuple[PodSet, ...]:
    return (PodSet("main", count, count, PodClass(requests=amounts({"cpu": 1000, GPU: 1000 * each}))),)


def measured(sized: World, rounds: int, *, starts: int, most_victims: int) -> tuple[tuple[float, ...], bool]:
    samples, is_valid = [], True
    for _ in range(rounds):
        seconds, plan, faults = once(snapshot_of(sized))
        victims = sum(isinstance(one, Evict) for one in plan.verdicts)
        admitted = sum(isinstance(one, Admit) for one in plan.verdicts)
        is_valid &= not faults and admitted == starts and victims <= most_victims
        samples.append(seconds)
    return tuple(samples), is_valid


def run(rounds: int = 5) -> Iterator[Figure]:
    costs = []
    for many, published in SIZES.items():
        gang = Workload("b/gang", "queue-1", gpus(many // 10, 8), submitted=1e5)
        samples, is_valid = measured(world(many, (gang,)), rounds, starts=1, most_victims=many * 8 // 10)
        costs.append(min(samples))
        title = f"B4 {many} nodes, {many * 8 // 10} victims"
        yield Figure(title, samples, "s", AIMS.get(many), published, "KAI, published", is_valid=is_valid)
    slope = growth(tuple(SIZES), costs)
    yield Figure("B4 growth: cost ~ nodes^", (slope,), "")
    podsets = gpus(1, 1)
    singles = tuple(Workload(f"b/w{at:05d}", "queue-1", podsets, submitted=1e5 + at) for at in range(4000))
    samples, is_valid = measured(world(500, singles), rounds, starts=4000, most_victims=4000)
    yield Figure("B4 4,000 singles against 4,000", samples, "s", 1.6, 165.0, "KAI, published", is_valid=is_valid)
