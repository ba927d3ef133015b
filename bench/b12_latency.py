"""B12, latency: pods that come at random are bound; from the request that makes a pod to its binding.

Poisson arrivals for 60 s (BENCH_SECONDS) at half and four fifths of what the slower of the two binds from a backlog,
which is measured before; seven in ten come alone, the others are gangs of 8 and now and then of 64, which Fairway
starts whole and kube-scheduler pod by pod. Nothing is preempted. BENCH_PODS and BENCH_NODES stand in for 10,000 pods of
that backlog and 5,000 nodes. Valid if every pod was bound and no node has more than it holds.
"""

import asyncio
import random
from collections.abc import Iterator
from statistics import median
from time import perf_counter

from bench import b1_bind
from bench.figure import Figure
from bench.real import FAIRWAY, KUBE, Cluster, Contestant, Thing, followed, fresh, is_there, pod, running, size
from tests.kubernetes.plane import Plane

from fairway.kube import kinds

SECONDS, NODES = 60, 5_000
SHARES = (0.5, 0.8)
GANGS = (1,) * 70 + (8,) * 28 + (64,) * 2
"""Their sizes, as they are drawn."""


def arrivals(rate: float, scheduler: str) -> Iterator[tuple[float, list[Thing]]]:
    """When, in seconds from the start, and what; the same for every contestant."""
    chance, at, number = random.Random(7), 0.0, 0
    each = sum(GANGS) / len(GANGS)
    while (at := at + chance.expovariate(rate / each)) < size("SECONDS", SECONDS):
        count, number = chance.choice(GANGS), number + 1
        labels = {"fairway.dev/group": f"g{number}", "fairway.dev/group-size": str(count)} if count > 1 else {}
        yield at, [pod(f"g{number}-{rank}", scheduler, labels=labels) for rank in range(count)]


async def measured(it: Cluster, one: Contestant, rate: float) -> list[float]:
    """Seconds of each pod, of a gang from the request for its last."""
    bound: dict[str, float] = {}
    asked: dict[str, float] = {}

    def see(old: object, new: object) -> None:
        if new and new.spec.node_name:  # type: ignore[attr-defined]
            bound.setdefault(new.metadata.name, perf_counter())  # type: ignore[attr-defined]

    async def submit(things: list[Thing]) -> None:
        await it.make(kinds.PODS, things[:-1])
        now = perf_counter()
        asked.update({thing["metadata"]["name"]: now for thing in things})
        await it.make(kinds.PODS, things[-1:])

    it.seen.changed = see
    with running(one, it.plane):
        await it.make(kinds.PODS, [pod("first", one.scheduler)])
        await it.until(lambda: "first" in bound)
        began = perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for at, things in arrivals(rate, one.scheduler):
                await asyncio.sleep(max(0.0, began + at - perf_counter()))
                tasks.create_task(submit(things))
        await it.until(lambda: asked.keys() <= bound.keys())
    return [max(0.0, bound[name] - moment) for name, moment in asked.items()]


async def _run(plane: Plane, one: Contestant, rate: float) -> tuple[list[float], bool]:
    async with followed(plane) as it:
        await it.add_nodes(size("NODES", NODES))
        samples = await measured(it, one, rate)
        return samples, not it.overcommits(milli_cpu=100, capacity=4000)


def run(rounds: int = 1) -> Iterator[Figure]:
    """One round: each takes minutes."""
    if not is_there("B12"):
        return
    found = b1_bind.races("backlog", 1, (KUBE, FAIRWAY))
    slower = min(median(one.rate for one in each) for each in found.values())
    for share in SHARES:
        rate, theirs = share * slower, dict[str, float]()
        for one in (KUBE, FAIRWAY):
            with fresh() as plane:
                samples, is_valid = asyncio.run(_run(plane, one, rate))
            title = f"B12 {rate:.0f} pods/s on {size('NODES', NODES)} nodes, {len(samples)} pods: {one.name}"
            p99 = sorted(samples)[99 * len(samples) // 100]
            base = theirs.get("P99")
            yield Figure(f"{title} P50", (median(samples),), "s", None, theirs.get("P50"), KUBE.name, is_valid=is_valid)
            yield Figure(f"{title} P99", (p99,), "s", 0.5 * base if base else None, base, KUBE.name, is_valid=is_valid)
            theirs |= {"P50": median(samples), "P99": p99}
