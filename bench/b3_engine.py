"""B3, the engine: one plan, `check` included, for many single pods; with 1, 10 and 200 queues of equal rights.

(a) 1,000 nodes of 32 CPUs, 32,000 workloads of one CPU; (b) 10,000 nodes, 10,000 workloads; (c) 100,000 nodes, 100,000
pods in 200 classes; (d) 5,000 nodes, 10,000 pods all of distinct classes. Every queue governs what is asked for, so
that who is next is asked after every verdict.
"""

from collections.abc import Iterator

from bench.figure import Figure, growth
from bench.plans import timed

from fairway.engine import Node, PodClass, PodSet, Queue, Quota, Share, Workload, World, amounts

QUEUES = (1, 10, 200)
ARMADA = {"a": 52_800.0, "b": 31_400.0}  # workloads a second, published, on 16 threads
POD_OF_KUBE_SCHEDULER = 3.7e-3  # seconds a pod


def nodes(count: int) -> tuple[Node, ...]:
    offered = amounts({"cpu": 32_000, "memory": 256 * 2**30, "pods": 110})
    return tuple(Node(f"n{at:06d}", (("kubernetes.io/hostname", f"n{at:06d}"),), offered) for at in range(count))


def queues(count: int) -> tuple[Queue, ...]:
    return tuple(Queue(f"q{at:03d}", quotas=(Quota(guaranteed=(("cpu", Share(0)),)),)) for at in range(count))


def singles(count: int, classes: int, leaves: int) -> tuple[Workload, ...]:
    """Workloads of one pod; classes differ in the memory they ask for."""
    podsets = [
        (PodSet("main", 1, 1, PodClass(requests=amounts({"cpu": 1000, "memory": (1 + at) * 2**20}))),)
        for at in range(classes)
    ]
    return tuple(
        Workload(f"b/w{at:06d}", f"q{at % leaves:03d}", podsets[at % classes], submitted=float(at))
        for at in range(count)
    )


def world(many: int, pods: int, classes: int, leaves: int) -> World:
    return World(nodes=nodes(many), queues=queues(leaves), pending=singles(pods, classes, leaves))


def run(rounds: int = 5) -> Iterator[Figure]:
    for name, many, pods in (("a", 1000, 32_000), ("b", 10_000, 10_000)):
        for leaves in QUEUES:
            costs = []
            for part in (4, 2, 1):
                sized = world(many // part, pods // part, 1, leaves)
                samples, is_valid = timed(sized, rounds, admitted=pods // part)
                costs.append(min(samples))
            title = f"B3{name} {leaves} queues (cost ~ size^{growth((1, 2, 4), costs):.2f})"
            rates = tuple(pods / sample for sample in samples)
            yield Figure(title, rates, "workloads/s", 150_000, ARMADA[name], "Armada, published", True, is_valid)
    for name, many, pods, classes in (("c", 100_000, 100_000, 200), ("d", 5000, 10_000, 10_000)):
        costs = []
        for part in (4, 2, 1):
            sized = world(many // part, pods // part, max(classes // part, 1) if name == "d" else classes, 1)
            samples, is_valid = timed(sized, rounds, admitted=pods // part)
            costs.append(min(samples))
        title = f"B3{name} {classes} classes (cost ~ size^{growth((1, 2, 4), costs):.2f})"
        base = POD_OF_KUBE_SCHEDULER * pods if name == "d" else None
        aim = 1.0 if base is None else base / 10
        yield Figure(title, samples, "s", aim, base, "kube-scheduler" if base else "", is_valid=is_valid)
