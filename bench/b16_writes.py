"""B16, writes: what Fairway asks of the API server in the life of a workload, from its creation to its end.

The audit log of a real API server is counted: bare pods, Jobs of 1, 20 and 500 pods, each kind in a namespace of its
own; events are among it, watches and what is asked of no namespace (nodes, queues) are not. Nothing has to wait: each
workload finds room at once. What the Job controller writes is its own. BENCH_JOBS and BENCH_GANG stand in for 20 of
each and for 500 pods. The requests are told one by one on stderr. Valid if every workload succeeded.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from bench.figure import Figure
from bench.real import DURATION, FAIRWAY, Cluster, Thing, followed, fresh, is_there, job, pod, requests, running, size
from tests.kubernetes.plane import played

from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Kind, Selection

JOBS, GANG, MIDDLE = 20, 500, 20
NODES = 20
QUIET_SECONDS = 610.0  # accounts are written every ten minutes, and what was charged is let go


@dataclass(frozen=True, slots=True)
class Case:
    """`most`: requests that one is to cost at most."""

    name: str
    space: str
    kind: Kind
    things: tuple[Thing, ...]
    most: float

    async def is_over(self, client: Client) -> bool:
        found = await client.list(Selection(self.kind, self.space))
        return sum(map(_has_succeeded, found)) == len(self.things)


def cases() -> list[Case]:
    few, gang = size("JOBS", JOBS), size("GANG", GANG)
    bare = (pod(f"p{at}", FAIRWAY.scheduler, annotations={DURATION: "0s"}, namespace="bare") for at in range(few))
    found = [Case("a bare pod", "bare", kinds.PODS, tuple(bare), 2.0)]
    for pods, count in {gang: 1, min(MIDDLE, gang): few, 1: few}.items():
        things = tuple(job(f"j{at}", pods, namespace=f"of-{pods}") for at in range(count))
        found.append(Case(f"a Job of {pods}", f"of-{pods}", kinds.JOBS, things, 8.0 + pods))
    return found


def _has_succeeded(one: Thing) -> bool:
    status = one.get("status") or {}
    done = [it for it in status.get("conditions") or () if it["type"] == "Complete" and it["status"] == "True"]
    return bool(done) or status.get("phase") == "Succeeded"


async def _asked(it: Cluster) -> dict[str, Counter[str]]:
    """The requests once no more come."""
    seen = requests(it.plane)
    while True:
        await asyncio.sleep(QUIET_SECONDS)
        before, seen = seen, requests(it.plane)
        if all(seen[one.space] == before[one.space] for one in cases()):
            return seen


async def measured(it: Cluster) -> list[Figure]:
    figures = []
    await it.add_nodes(size("NODES", NODES))
    with running(FAIRWAY, it.plane):
        async with played(it.client):
            await it.make(kinds.PODS, [pod("first", FAIRWAY.scheduler)])  # the queue is made meanwhile
            await it.until(lambda: it.bound() == 1)
            for one in cases():
                await it.make(kinds.NAMESPACES, [{"metadata": {"name": one.space}}])
                await it.make(one.kind, one.things)
                await it.until(partial(one.is_over, it.client))
            said = await _asked(it)
    for one in cases():
        each = {what: round(number / len(one.things), 2) for what, number in said[one.space].most_common()}
        print(f"B16 {one.name}: {each}", file=sys.stderr)
        figures.append(Figure(f"B16 {one.name}", (sum(each.values()),), "requests", one.most))
    return figures


async def _run(plane: object) -> list[Figure]:
    async with followed(plane) as it:  # type: ignore[arg-type]
        return await measured(it)


def run(rounds: int = 1) -> Iterator[Figure]:
    """Once: requests are counted, not timed."""
    if is_there("B16"):
        with fresh() as plane:
            yield from asyncio.run(_run(plane))
