"""What only watching shows, and decisions cannot: starts that take too long, and victims that do not go.

A workload whose pods are not ready within its `startTimeout` is evicted, backs off, and remembers the nodes that failed
it. A newcomer whose victim outlasts its grace by a minute gives up what it was promised, remembers that node, and is
decided anew. Both are told as evictions, in the place of a verdict that would have let things be.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from fairway.api.quantities import Malformed, duration
from fairway.api.types import WorkloadObject, WorkloadStatus
from fairway.engine import Admit, Cause, Evict, Keep, Plan, Running, Snapshot, Verdict

from .status import holds, since

START_TIMEOUT = 300.0
PATIENCE = 60.0


def overdue(snapshot: Snapshot, workloads: Mapping[str, WorkloadObject]) -> tuple[list[Evict], float | None]:
    """Those that are late now; and when the next would be."""
    running = {one.workload.key: one for one in snapshot.running}
    moments = {key: at for key, one in running.items() for at in _due(one, running, workloads.get(key))}
    late = [Evict(key, Cause.START_TIMEOUT) for key, at in moments.items() if at <= snapshot.now]
    return late, min((at for at in moments.values() if at > snapshot.now), default=None)


def _due(one: Running, running: Mapping[str, Running], said: WorkloadObject | None) -> Iterator[float]:
    if said is None or one.is_leaving:
        return
    if one.is_promised:
        victims = [running[key] for key in one.waits_for if key in running]
        ends = [it.leaving_since + it.workload.grace + PATIENCE for it in victims if it.leaving_since is not None]
        yield from [min(ends)] if ends else []
        return
    with suppress(Malformed):
        if (at := start_due(said.status, said.spec.start_timeout)) is not None:
            yield at


def start_due(status: WorkloadStatus, timeout: str) -> float | None:
    """When an admitted workload whose pods are not up has had time enough."""
    admitted = since(status, "Admitted")
    if admitted is None or holds(status, "Running"):
        return None
    return admitted + (duration(timeout) if timeout else START_TIMEOUT)


def with_verdicts(plan: Plan, others: Iterable[Verdict]) -> Plan:
    """The plan, where these workloads were merely to go on as they are."""
    said = {verdict.workload: verdict for verdict in others}
    changed = (said.get(it.workload, it) if isinstance(it, Keep | Admit) else it for it in plan.verdicts)
    return replace(plan, verdicts=tuple(changed)) if said else plan
