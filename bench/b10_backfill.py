"""B10, backfill: bounded slowdown of the default policy with holds on a parallel computer's load with estimates.

The synthetic load `estimates`, its arrivals scaled to loads of 0.7 to 1.1, under `fairway`, `easy`, `conservative` and
`strict-fifo`. That no hold is broken by a later start is judged by the referee at every plan; a fault voids the run.
And one plan of 100,000 waiting on 10,000 nodes that are full, with one hold. The first day of the load is replayed,
which takes minutes, or the first BENCH_DAYS.
"""

from collections.abc import Iterator

from bench.figure import Figure, growth
from bench.plans import once
from bench.replays import cut, replay

from fairway.engine import (
    Admission,
    Node,
    NodeShare,
    PodClass,
    PodSet,
    PodSetPlacement,
    Queue,
    Running,
    Wait,
    Workload,
    World,
    amounts,
    snapshot_of,
)
from fairway.sim import Load, generate, scaled

LOADS = (0.7, 0.8, 0.9, 1.0, 1.1)
OWN = 0.9  # the load that the generator makes
RIVALS = ("easy", "conservative", "strict-fifo")
GPU = "nvidia.com/gpu"


def load_at(level: float, seed: int = 0) -> Load:
    return cut(scaled(generate("estimates", seed), level / OWN), most=1.0)


def podsets(pods: int) -> tuple[PodSet, ...]:
    return (PodSet("main", pods, pods, PodClass(requests=amounts({GPU: 8000}))),)


def full(nodes: int, waiting: int, classes: int = 20) -> World:
    """Every node is held until its limit; who waits asks for one node to `classes` nodes."""
    offered, one, gangs = amounts({GPU: 8000, "pods": 110}), podsets(1), [podsets(1 + at) for at in range(classes)]
    running = tuple(
        Running(
            Workload(f"b/r{at:05d}", "q", one, time_limit=3600.0 + at),
            Admission("default", (PodSetPlacement("main", (NodeShare(f"n{at:05d}", 1),)),)),
            admitted_at=0.0,
        )
        for at in range(nodes)
    )
    pending = tuple(
        Workload(f"b/w{at:06d}", "q", gangs[at % classes], submitted=float(at), time_limit=7200.0)
        for at in range(waiting)
    )
    listed = tuple(Node(f"n{at:05d}", capacity=offered) for at in range(nodes))
    return World(now=1800.0, nodes=listed, queues=(Queue("q"),), pending=pending, running=running)


def run(rounds: int = 3) -> Iterator[Figure]:
    for level in LOADS:
        load = load_at(level)
        own = replay(load, "fairway")
        title = f"B10 slowdown, {load.name} at {level}"
        for rival in RIVALS:
            other = replay(load, rival)
            base, is_valid = other.measures.mean_bounded_slowdown, own.is_valid and other.is_valid
            aim = base if rival == "easy" else None
            yield Figure(title, (own.measures.mean_bounded_slowdown,), "", aim, base, rival, is_valid=is_valid)
    yield _plan(rounds)


def _plan(rounds: int) -> Figure:
    costs = []
    for part in (4, 2, 1):
        world, samples, is_valid = full(10_000 // part, 100_000 // part), [], True
        for _ in range(rounds):
            seconds, plan, faults = once(snapshot_of(world))
            holds = sum(isinstance(one, Wait) and one.held is not None for one in plan.verdicts)
            samples.append(seconds)
            is_valid &= not faults and holds == 1
        costs.append(min(samples))
    title = f"B10 100,000 waiting, depth 1 (~ size^{growth((1, 2, 4), costs):.2f})"
    return Figure(title, tuple(samples), "s", 1.0, is_valid=is_valid)
