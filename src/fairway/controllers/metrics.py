"""What /metrics says: counts, latencies and shares, under the prefix `fairway_`. No label names a workload.

A value that others tell what happens; it has its own registry, so that two of them in one process do not meet. Gauges
are those of the last cycle, and are computed when they are asked for: there are many cycles between two questions. A
label that nothing has any more is taken away.
"""

from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from fairway.engine import ATTACHABLE, GPU, UNLIMITED, Fault, Plan, Snapshot, Wait
from fairway.kube.transport import Request, Response, Transport

M = TypeVar("M", Counter, Gauge, Histogram)
Usage = Mapping[tuple[str, str, str], int]
"""(queue, pool, resource) → held."""
SHORT = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
LONG = (0.1, 1, 10, 60, 300, 1800, 7200, 6 * 3600, 86400, 3 * 86400, 7 * 86400)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._last: tuple[Snapshot, Plan, Usage] | None = None
        has = partial(_has, self.registry)
        self.pending = has(Gauge, "pending_workloads", "Workloads that wait", "queue", "reason")
        self.running = has(Gauge, "running_workloads", "Workloads admitted", "queue")
        self.waited = has(Histogram, "wait_seconds", "From submission to admission", "queue", buckets=LONG)
        self.started = has(Histogram, "start_seconds", "From admission to running", "queue", buckets=SHORT)
        self.cycle = has(Histogram, "cycle_seconds", "One decision", buckets=SHORT)
        self.check = has(Histogram, "check_seconds", "One check of a plan", buckets=SHORT)
        self.apply = has(Histogram, "apply_seconds", "One write of a verdict", buckets=SHORT)
        self.allocated = has(Gauge, "allocated", "Held by a queue, base units", "queue", "pool", "resource")
        self.share = has(Gauge, "share", "Due to a queue now, base units", "queue", "pool", "resource")
        self.capacity = has(Gauge, "capacity", "Of usable nodes, base units", "pool", "resource")
        self.fragmentation = has(Gauge, "fragmentation", "Part of the free GPUs that no whole free node has", "pool")
        self.evictions = has(Counter, "evictions", "Evictions", "reason")
        self.lost = has(Counter, "lost_gpu_seconds", "GPU-seconds since the last checkpoint")
        self.refused = has(Counter, "refused_items", "Plan items dropped", "rule")
        off = "From a forecast's p50 to the start, by how far ahead it was"
        self.forecast_error = has(Histogram, "forecast_error_seconds", off, "horizon", buckets=LONG)
        self.forecast_coverage = has(Gauge, "forecast_coverage", "Part of the starts that came by p90", "horizon")
        self.lost_events = has(Counter, "events_lost", "Events about objects that could not be written")
        self.leads = has(Gauge, "is_leader", "1 in the controller that holds the lease")
        self.requests = has(Counter, "api_requests", "Requests to the API server", "code")

    def exposition(self) -> bytes:
        if self._last:
            self._fill(*self._last)
        return generate_latest(self.registry)

    def refuse(self, faults: Iterable[Fault]) -> None:
        for fault in faults:
            self.refused.labels(fault.rule).inc()

    def show(self, snapshot: Snapshot, plan: Plan, usage: Usage) -> None:
        """Takes note of what a cycle saw and decided."""
        self._last = snapshot, plan, usage

    def _fill(self, snapshot: Snapshot, plan: Plan, usage: Usage) -> None:
        queue_of = {one.key: one.queue for one in snapshot.pending}
        waits = [(queue_of.get(it.workload, ""), it.reason) for it in plan.verdicts if isinstance(it, Wait)]
        _fill(self.pending, Tally(waits))
        _fill(self.running, Tally((one.workload.queue,) for one in snapshot.running))
        _fill(self.allocated, usage)
        _fill(self.share, plan.shares)
        _fill(self.capacity, _capacity(snapshot))
        _fill(self.fragmentation, _fragmentation(snapshot))

    def counted(self, transport: Transport) -> Transport:
        """The same transport; its answers are counted by code."""

        async def exchange(request: Request) -> Response:
            try:
                response = await transport(request)
            except OSError:
                self.requests.labels("none").inc()
                raise
            self.requests.labels(str(response.status)).inc()
            return response

        return exchange


class DoorMetrics:
    """What the webhook counts: for as long as the process lives, over all lives of the controllers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        has = partial(_has, self.registry)
        self.requests = has(Counter, "webhook_requests", "Admission reviews", "path", "code")
        self.refused = has(Counter, "webhook_refused", "Admission reviews refused, by the kind of the object", "kind")
        self.seconds = has(Histogram, "webhook_seconds", "One admission review", buckets=SHORT)

    def exposition(self) -> bytes:
        return generate_latest(self.registry)


def _has(registry: CollectorRegistry, kind: type[M], name: str, meaning: str, *labels: str, **more: Any) -> M:
    return kind(f"fairway_{name}", meaning, labels, registry=registry, **more)


def _fill(gauge: Gauge, values: object) -> None:
    gauge.clear()
    for labels, value in dict(values).items():  # type: ignore[call-overload]
        gauge.labels(*labels).set(value)


def _capacity(snapshot: Snapshot) -> dict[tuple[str, str], int]:
    found: Tally[tuple[str, str]] = Tally()
    for row, pool in enumerate(snapshot.pools):
        mask = (snapshot.pool_of == row) & snapshot.is_usable
        totals = snapshot.capacity[:, mask].sum(axis=1)
        for name, total in zip(snapshot.resources, totals.tolist()):
            if total < UNLIMITED or not name.startswith(ATTACHABLE):
                found[pool.name, name] = total
    return found


def _fragmentation(snapshot: Snapshot) -> dict[tuple[str], float]:
    """Per pool: free GPUs on nodes that are partly used, as a part of all free ones."""
    row = snapshot.resources.index(GPU)
    free, capacity = snapshot.free[row].clip(0), snapshot.capacity[row]
    found = {}
    for index, pool in enumerate(snapshot.pools):
        mask = (snapshot.pool_of == index) & snapshot.is_usable
        total = int(free[mask].sum())
        found[(pool.name,)] = float(free[mask & (free < capacity)].sum() / total) if total else 0.0
    return found
