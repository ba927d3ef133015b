"""How a plan is amended before it is carried out.

What the referee found faulty is dropped, with what depends on it. What only watching shows, and decisions cannot, is
added as evictions, in the place of verdicts that would have let things be: a workload whose pods are not ready within
its `startTimeout` backs off, and remembers the nodes that failed it; a newcomer whose victim outlasts its grace by a
minute gives up what it was promised, remembers that node, and is decided anew.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from fairway.api.quantities import Malformed, duration
from fairway.api.types import WorkloadObject
from fairway.engine import Admit, Cause, Evict, Fault, Keep, Plan, Reason, Resize, Running, Snapshot, Verdict, Wait

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
    """When it has had time enough: a newcomer whose victims are to go, an admitted workload whose pods are to be up."""
    if said is None or one.is_leaving or said.status.is_over:
        return
    if one.is_promised:
        victims = [running[key] for key in one.waits_for if key in running]
        ends = [it.leaving_since + it.workload.grace + PATIENCE for it in victims if it.leaving_since is not None]
        yield from [min(ends)] if ends else []
        return
    admitted, timeout = since(said.status, "Admitted"), said.spec.start_timeout
    if admitted is not None and not holds(said.status, "Running"):
        with suppress(Malformed):
            yield admitted + (duration(timeout) if timeout else START_TIMEOUT)


def with_verdicts(plan: Plan, others: Iterable[Verdict]) -> Plan:
    """The plan, where these workloads were merely to go on as they are."""
    said = {verdict.workload: verdict for verdict in others}
    changed = (said.get(it.workload, it) if isinstance(it, Keep | Admit) else it for it in plan.verdicts)
    return replace(plan, verdicts=tuple(changed)) if said else plan


def drop(snapshot: Snapshot, plan: Plan, faults: Iterable[Fault]) -> tuple[Plan, set[str]]:
    """The plan without the faulty items, what others were to give for them, and the starts that count on such room."""
    dropped = {fault.workload for fault in faults}
    before = -1
    while before < len(dropped):
        before = len(dropped)
        for verdict in plan.verdicts:
            if isinstance(verdict, Evict | Resize) and verdict.beneficiary in dropped:
                dropped.add(verdict.workload)
            if isinstance(verdict, Resize) and verdict.workload in dropped and verdict.beneficiary:
                dropped.add(verdict.beneficiary)
            if isinstance(verdict, Admit) and dropped.intersection(verdict.after):
                dropped.add(verdict.workload)
    running = {one.workload.key: one for one in snapshot.running}
    known = running.keys() | {one.key for one in snapshot.pending}
    kept = (it if it.workload not in dropped else _undone(it, running) for it in plan.verdicts if it.workload in known)
    acted = {it.workload for it in plan.verdicts if it.workload in dropped and not isinstance(it, Keep | Wait)}
    return replace(plan, verdicts=tuple(kept)), acted


def _undone(verdict: Verdict, running: dict[str, Running]) -> Verdict:
    """Nothing happens to the workload."""
    one = running.get(verdict.workload)
    if one is None:
        return Wait(verdict.workload, Reason.REFUSED)
    if one.is_promised and not one.is_leaving:
        after = tuple(key for key in one.waits_for if key in running)
        return Admit(verdict.workload, one.admission, after, one.backfilled_for)
    return Keep(verdict.workload)
