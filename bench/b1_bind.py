"""B1, binding: pods on nodes of 4 CPUs through a real API server, each contestant on one of its own, A B C C B A.

Parts, all or those that BENCH_PARTS names: `backlog` (the pods are there; from the start of the contestant to the last
binding) and `live` (the contestant waits for them; from the first creation to the last binding). BENCH_PODS and
BENCH_NODES stand in for 10,000 and 5,000. A tenth as many pods are bound before, so that nothing is measured cold. A
run is valid if every pod was bound and no node has more than it holds. Beside the speed stands what a pod cost of CPU,
of the contestant and of the API server with its etcd. The parts of `bench/reaction.py` say how soon something is done.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from bench import reaction
from bench.figure import Figure
from bench.real import FAIRWAY, KUBE, NOOP, Cluster, Contestant, Process, followed, fresh, is_there, pod, running, size

from fairway.kube import kinds

CONTESTANTS = (KUBE, FAIRWAY, NOOP)
PODS, NODES = 10_000, 5_000


@dataclass(frozen=True, slots=True)
class Race:
    """`rate`: pods a second; `cpu`, `server`: milliseconds a pod, of the contestant and of the API server."""

    rate: float
    cpu: float
    server: float
    is_valid: bool


def count() -> int:
    return size("PODS", PODS)


async def _warm(it: Cluster, one: Contestant) -> None:
    """A tenth as many pods, bound."""
    few = max(1, count() // 10)
    with running(one, it.plane):
        await it.make(kinds.PODS, (pod(f"warm-{at}", one.scheduler) for at in range(few)))
        await it.until(lambda: it.bound() == few)


async def backlog(it: Cluster, one: Contestant) -> Race:
    """From the start of the contestant, when all pods wait."""
    await _make(it, one)
    before, bound, server = 0.0, it.bound(), it.server_cpu()
    with running(one, it.plane) as process:
        await it.until(lambda: it.bound() == bound + count())
        return _race(it, process, (process.began, before, server))


async def live(it: Cluster, one: Contestant) -> Race:
    """While the pods are made; the contestant looks on since it bound one."""
    with running(one, it.plane) as process:
        await it.make(kinds.PODS, [pod("first", one.scheduler)])
        await it.until(lambda: "default/first" in it.pods and it.pods["default/first"].spec.node_name != "")
        bound, began, before, server = it.bound(), perf_counter(), process.cpu(), it.server_cpu()
        making = asyncio.create_task(_make(it, one))
        await it.until(lambda: it.bound() == bound + count())
        await making
        return _race(it, process, (began, before, server))


async def _make(it: Cluster, one: Contestant) -> None:
    await it.make(kinds.PODS, (pod(f"p-{at}", one.scheduler) for at in range(count())))


def _race(it: Cluster, process: Process, start: tuple[float, float, float]) -> Race:
    """`start`: when it was, and the CPU seconds of contestant and server then."""
    began, before, server = start
    each = 1000 / count()
    is_valid = not it.overcommits(milli_cpu=100, capacity=4000)
    return Race(count() / (perf_counter() - began), each * (process.cpu() - before), each * (it.server_cpu() - server),
                is_valid)  # fmt: skip


PARTS: dict[str, Callable[..., object]] = {"backlog": backlog, "live": live}


async def _run(plane: object, part: str, one: Contestant) -> Race:
    async with followed(plane) as it:  # type: ignore[arg-type]
        await it.add_nodes(size("NODES", NODES))
        await _warm(it, one)
        return await PARTS[part](it, one)  # type: ignore[no-any-return,misc]


def races(part: str, rounds: int, those: Sequence[Contestant] = CONTESTANTS) -> dict[str, list[Race]]:
    """By contestant; there and back, so that none has the machine at its best."""
    found: dict[str, list[Race]] = defaultdict(list)
    for at in range(rounds):
        for one in those[:: 1 if at % 2 == 0 else -1]:
            with fresh() as plane:
                found[one.name].append(asyncio.run(_run(plane, part, one)))
    return found


def run(rounds: int = 2) -> Iterator[Figure]:
    """At most two rounds: a run takes minutes."""
    if not is_there("B1"):
        return
    for part in os.environ.get("BENCH_PARTS", "").split() or [*PARTS, *reaction.WORK]:
        if part in reaction.WORK:
            yield from reaction.figures(part)
            continue
        found = races(part, min(rounds, 2))
        yield from _figures(f"B1 {part}, {count()} pods on {size('NODES', NODES)} nodes", found)


def _figures(title: str, found: dict[str, list[Race]]) -> Iterator[Figure]:
    rates = {name: median(one.rate for one in each) for name, each in found.items()}
    for name, each in found.items():
        is_valid = all(one.is_valid for one in each)
        samples = tuple(one.rate for one in each)
        for other, part in ((KUBE.name, 2.0), (NOOP.name, 0.8)) if name == FAIRWAY.name else ((KUBE.name, None),):
            aim = rates[other] * part if part else None
            yield Figure(f"{title}: {name}", samples, "pods/s", aim, rates[other], other, True, is_valid)
        yield Figure(f"{title}: {name}, itself", tuple(one.cpu for one in each), "CPU ms a pod",
                     0.5 if name == FAIRWAY.name else None)  # fmt: skip
        yield Figure(f"{title}: {name}, API server", tuple(one.server for one in each), "CPU ms a pod")
