"""One decision, timed and judged: the world is laid out beforehand, `decide` and `check` are on the clock."""

import gc
from time import perf_counter

from fairway.engine import Admit, Fault, Node, Plan, Policy, Pool, Queue, Snapshot, Workload, World, decide, snapshot_of
from fairway.referee import check


def world_of(nodes: tuple[Node, ...], pending: tuple[Workload, ...], levels: tuple[str, ...] = ()) -> World:
    """One pool, one queue without quotas."""
    return World(nodes=nodes, pools=(Pool("default", levels=levels),), queues=(Queue("q"),), pending=pending)


def timed(world: World, rounds: int, *, admitted: int) -> tuple[tuple[float, ...], bool]:
    """Seconds of each round; whether every plan was sound and admitted so many workloads."""
    samples, is_valid = [], True
    for _ in range(rounds):
        seconds, plan, faults = once(snapshot_of(world))
        samples.append(seconds)
        is_valid &= not faults and sum(isinstance(one, Admit) for one in plan.verdicts) == admitted
    return tuple(samples), is_valid


def once(snapshot: Snapshot) -> tuple[float, Plan, list[Fault]]:
    """Seconds, the plan, and what the referee found. As in `timeit` no garbage is collected meanwhile: a plan makes no
    circles, and how long a collection takes depends on what else the process holds."""
    gc.collect()
    gc.disable()
    began = perf_counter()
    plan = decide(snapshot, Policy())
    faults = check(snapshot, plan)
    seconds = perf_counter() - began
    gc.enable()
    return seconds, plan, faults
