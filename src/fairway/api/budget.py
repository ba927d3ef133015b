"""A new time limit of a workload that holds room, held against the budgets of its queue and those above. Pure.

No decision asks again whether what runs may go on, and until it ends a budget reserves all that its time limit allows.
So what its limit may become is bounded here by what is left: neither spent nor reserved, as each queue's status said a
few seconds ago. Limits that are raised within these seconds do not see each other: each may take all that is left.
"""

from collections.abc import Sequence
from dataclasses import replace

from fairway.engine import FAIRWAY, HOUR, Cycle, Running, World, lasts, snapshot_of

from .pods import ALONE
from .quantities import duration_text, shown
from .queues import positive, queue
from .types import QueueObject, WorkloadObject
from .workloads import Reading, fact, gpus_held


def too_long(held: Sequence[WorkloadObject], limit: str, line: Sequence[QueueObject], now: float) -> str:
    """Why a workload, as it is written, could overrun a budget with this time limit ("": none) and could not with its
    own; else "". `held`: it, or its replicas, which are alike; `line`: their queue and those above. Raises Malformed
    where one of these does not read."""
    facts, queues = ((it, fact(it, Reading())) for it in held), tuple(queue(it, ALONE) for it in line)
    runs = [(said, it) for said, it in facts if isinstance(it, Running) and (it.moves_to or not it.is_leaving)]
    ones = [it for _, it in runs]
    if not ones or all(it.budget is None for it in queues):
        return ""
    cycle, own = Cycle(snapshot_of(World(now, queues=queues)), FAIRWAY), ones[0].workload
    ran = max(0.0, now - min(it.admitted_at or now for it in ones))
    asked = replace(own, time_limit=positive("spec.timeLimit", limit))
    had, wants = (lasts(it, ran, cycle) for it in (own, asked))
    gpus = sum(gpus_held(said, it.workload, it.admission) for said, it in runs)
    for its, said in zip(queues, line):
        reserved = max(gpus * had, said.status.budget_reserved * HOUR)  # of what has just started the status lacks it
        left = max(0.0, (its.budget or 0) - its.spent(now)[0] - reserved)
        if its.budget is not None and gpus * (wants - had) > left:
            found, most = shown(limit) if limit else "no limit", duration_text((had + left / gpus) // 1)
            why = f"queue {its.name} has {left / HOUR:,.4g} of {its.budget / HOUR:,.4g} GPU hours of its budget left"
            return f"found {found}; at most {most} is allowed while it runs: {why}"
    return ""
