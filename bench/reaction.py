"""How soon something is done on a real API server: parts of B1 beside the two that count pods a second.

    urgent   a pod of high priority is created every second while a backlog is bound: from its creation to its binding
    job      a Job of 1,000 pods (BENCH_GANG): from its creation to its last binding
    gap      Jobs of one pod, each with the whole room: from the end of a pod to the binding of the next
    leader   of two controllers the one that leads gets a SIGTERM: from then to the binding of a pod created then

The clock is that of whoever watches the pods, so that the way of an event to a watcher is in each figure.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from statistics import median
from time import perf_counter

from bench.figure import Figure
from bench.real import DURATION, FAIRWAY, KUBE, Cluster, Contestant, followed, fresh, job, pod, running, size
from tests.kubernetes.plane import Plane, played

from fairway.kube import kinds

PODS, NODES, GANG, GAPS = 10_000, 5_000, 1_000, 20
URGENT, CHANGES = 10, 3
START_SECONDS = 8.0  # until a controller that does not lead has seen what there is
PRIORITY = {
    "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000,
}  # fmt: skip
Measure = Callable[[Cluster, Contestant], AsyncIterator[float]]


async def urgent(it: Cluster, one: Contestant) -> AsyncIterator[float]:
    """Each of a few, one after the other, while others wait to be bound."""
    await it.make(kinds.PRIORITY_CLASSES, [PRIORITY])
    await it.make(kinds.PODS, (pod(f"p-{at}", one.scheduler) for at in range(size("PODS", PODS))))
    with running(one, it.plane):
        await it.until(lambda: it.bound() > 0)
        for at in range(URGENT):
            made = pod(f"urgent-{at}", one.scheduler)
            made["spec"]["priorityClassName"] = "urgent"
            yield await _bound(it, made)
            await asyncio.sleep(1.0)


async def _bound(it: Cluster, made: dict[str, object]) -> float:
    """Seconds from when a pod is asked for until it is seen on a node."""
    began = perf_counter()
    await it.make(kinds.PODS, [made])
    await it.until(lambda: _is_bound(it, made["metadata"]["name"]))  # type: ignore[index]
    return perf_counter() - began


def _is_bound(it: Cluster, name: str) -> bool:
    seen = it.pods.get(f"default/{name}")
    return seen is not None and bool(seen.spec.node_name)


async def gang(it: Cluster, one: Contestant) -> AsyncIterator[float]:
    """One Job; a tenth of it before, so that nothing is measured cold."""
    count = size("GANG", GANG)
    with running(one, it.plane):
        for name, pods in (("warm", max(1, count // 10)), ("all", count)):
            before, began = it.bound(), perf_counter()
            made = job(name, pods, scheduler=one.scheduler)
            made["spec"]["template"]["metadata"]["annotations"][DURATION] = "1h"
            await it.make(kinds.JOBS, [made])
            await it.until(lambda goal=before + pods: it.bound() == goal)  # type: ignore[misc]
            took = perf_counter() - began
        yield took


async def gap(it: Cluster, one: Contestant) -> AsyncIterator[float]:
    """Jobs that need all of one node, made at once."""
    ends: list[float] = []
    starts: list[float] = []

    def see(old: object, new: object) -> None:
        was, now = (it_ and (it_.spec.node_name, it_.status.phase) for it_ in (old, new))  # type: ignore[attr-defined]
        if now and now[0] and not (was and was[0]):
            starts.append(perf_counter())
        if now and now[1] == "Succeeded" and not (was and was[1] == "Succeeded"):
            ends.append(perf_counter())

    it.seen.changed = see
    with running(one, it.plane):
        async with played(it.client):
            await it.make(kinds.JOBS, (
                job(f"j{at}", scheduler=one.scheduler, cpu="4", seconds=1) for at in range(GAPS)))
            await it.until(lambda: len(ends) == GAPS)
    for end, start in zip(ends, starts[1:]):
        yield start - end


async def leader(it: Cluster, one: Contestant) -> AsyncIterator[float]:
    """One after the other is told to go; the one that is left takes over."""
    with ExitStack() as stack:
        leads = stack.enter_context(running(one, it.plane))
        await _bound(it, pod("first", one.scheduler))
        for at in range(CHANGES):
            newcomer = stack.enter_context(running(one, it.plane))
            await asyncio.sleep(START_SECONDS)
            began = perf_counter()
            leads.child.terminate()
            await _bound(it, pod(f"after-{at}", one.scheduler))
            yield perf_counter() - began
            leads = newcomer


AIMS = {"urgent": 0.5, "job": None, "gap": 0.3, "leader": 2.0}
WORK: dict[str, tuple[Measure, tuple[Contestant, ...]]] = {
    "urgent": (urgent, (KUBE, FAIRWAY)), "job": (gang, (KUBE, FAIRWAY)), "gap": (gap, (FAIRWAY,)),
    "leader": (leader, (FAIRWAY,)),
}  # fmt: skip
NODES_OF = {"gap": 1, "leader": 3}


async def _run(plane: Plane, part: str, one: Contestant) -> tuple[float, ...]:
    async with followed(plane) as it:
        await it.add_nodes(NODES_OF.get(part, size("NODES", NODES)))
        samples = tuple([seconds async for seconds in WORK[part][0](it, one)])
        assert not it.overcommits(milli_cpu=100, capacity=4000)
        return samples


def figures(part: str) -> Iterator[Figure]:
    """Of each contestant, the first as the baseline of the others."""
    baseline = None
    what = {"urgent": f"behind {size('PODS', PODS)}", "job": f"of {size('GANG', GANG)}"}.get(part, "")
    for one in WORK[part][1]:
        with fresh() as plane:
            samples = asyncio.run(_run(plane, part, one))
        name, aim = f"B1 {part} {what}".rstrip(), AIMS[part] if one is FAIRWAY else None
        yield Figure(f"{name}: {one.name}", samples, "s", aim or (baseline if one is FAIRWAY else None), baseline,
                     KUBE.name if baseline else "")  # fmt: skip
        baseline = median(samples)
