"""B11, start: a scheduler is started on a cluster that is full of work; how soon it decides rightly, and what it holds.

Nodes of 4 CPUs, bound pods, and Jobs that wait for more CPUs than any node has; then the process is started, and one
pod that fits waits already: from the start to its binding. Before, Fairway ran once, so that every Job has its Workload
that says why it waits. Then its memory, and what it uses while nothing happens. BENCH_NODES, BENCH_PODS and BENCH_JOBS
stand in for 5,000, 50,000 and 100,000. Valid if the pod was bound to a node that had room.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from statistics import median
from time import perf_counter

from bench.figure import Figure
from bench.real import (
    FAIRWAY,
    KUBE,
    Cluster,
    Contestant,
    Process,
    followed,
    fresh,
    is_there,
    job,
    pod,
    running,
    size,
)
from tests.kubernetes.plane import Plane

from fairway.kube import kinds
from fairway.kube.kinds import Selection

NODES, PODS, JOBS = 5_000, 50_000, 100_000
IDLE_SECONDS, REST_SHARE = 30.0, 0.02
ON_A_NODE = 20  # bound pods of 100m; there is room for forty


async def _fill(it: Cluster) -> None:
    nodes = size("NODES", NODES)
    await it.add_nodes(nodes)
    count = min(size("PODS", PODS), nodes * ON_A_NODE)
    bound = (pod(f"bound-{at}", KUBE.scheduler) for at in range(count))
    await it.make(kinds.PODS, (one | {"spec": one["spec"] | {"nodeName": f"n{at % nodes:05}"}}
                               for at, one in enumerate(bound)))  # fmt: skip
    await it.make(kinds.JOBS, (job(f"waits-{at}", cpu="64") for at in range(size("JOBS", JOBS))))


async def _all_told(it: Cluster) -> bool:
    """Whether each Job has a Workload that says why it waits."""
    told = [one for one in await it.client.list(Selection(kinds.WORKLOADS)) if (one.get("status") or {}).get("reason")]
    return len(told) == size("JOBS", JOBS)


async def _rested(it: Cluster, process: Process) -> float:
    """CPU seconds a second, once little is used."""
    while True:
        before, began = process.cpu(), perf_counter()
        await asyncio.sleep(IDLE_SECONDS)
        if (used := (process.cpu() - before) / (perf_counter() - began)) < REST_SHARE:
            return used


async def started(it: Cluster, one: Contestant, rounds: int) -> list[float]:
    """Seconds from the start of the process to the binding of a pod that waits."""
    found = []
    for at in range(rounds):
        name = f"first-{one.scheduler}-{at}"
        await it.make(kinds.PODS, [pod(name, one.scheduler)])
        with running(one, it.plane) as process:
            await it.until(lambda key=f"default/{name}": key in it.pods and bool(it.pods[key].spec.node_name))
            found.append(perf_counter() - process.began)
    return found


async def _measured(plane: Plane, rounds: int) -> list[Figure]:
    async with followed(plane) as it:
        await _fill(it)
        with running(FAIRWAY, plane):
            await it.until(partial(_all_told, it))
        theirs, ours = await started(it, KUBE, rounds), await started(it, FAIRWAY, rounds)
        with running(FAIRWAY, plane) as process:
            used = await _rested(it, process)
            memory = process.memory()
        is_valid = not it.overcommits(milli_cpu=100, capacity=4000)
    sizes = f"{size('NODES', NODES)} nodes, {size('PODS', PODS)} pods, {size('JOBS', JOBS)} Jobs"
    title = f"B11 {sizes}"
    return [
        Figure(f"{title}: kube-scheduler", tuple(theirs), "s", is_valid=is_valid),
        Figure(f"{title}: fairway", tuple(ours), "s", median(theirs), median(theirs), KUBE.name, is_valid=is_valid),
        Figure(f"{title}: memory", (memory,), "MiB", 1430.0),
        Figure(f"{title}: idle", (100 * used,), "% of a core", 1.0),
    ]


def run(rounds: int = 3) -> Iterator[Figure]:
    """Figures of one cluster."""
    if is_there("B11"):
        with fresh() as plane:
            yield from asyncio.run(_measured(plane, min(rounds, 3)))
