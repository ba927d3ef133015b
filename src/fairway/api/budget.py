"""A new time limit of a workload that holds room, held against the budgets of its queue and those above. Pure.

No decision asks again whether what runs may go on, and until it ends a budget reserves all that its time limit allows.
So what its limit may become is bounded here by what is left: neither spent nor reserved, as each queue's status said a
few seconds ago.
"""

from collections.abc import Sequence
from dataclasses import replace

from fairway.engine import FAIRWAY, HOUR, Cycle, Running, World, counts_of, gpus_of, lasts, snapshot_of

from .pods import ALONE
from .quantities import Malformed, duration_text, shown
from .queues import positive, queue
from .types import QueueObject, WorkloadObject
from .workloads import Reading, fact


def check_limit(held: WorkloadObject, limit: str, line: Sequence[QueueObject], now: float) -> None:
    """Raises Malformed where the workload, as it is written, could overrun a budget with this time limit ("": none) and
    could not with its own. `line`: its queue and those above."""
    one, queues = fact(held, Reading()), tuple(queue(it, ALONE) for it in line)
    if not isinstance(one, Running) or one.is_leaving or all(it.budget is None for it in queues):
        return
    cycle, ran = Cycle(snapshot_of(World(now, queues=queues)), FAIRWAY), max(0.0, now - (one.admitted_at or now))
    asked = replace(one.workload, time_limit=positive("spec.timeLimit", limit))
    had, wants = (lasts(it, ran, cycle) for it in (one.workload, asked))
    gpus = gpus_of(asked.podsets, counts_of(asked.podsets, one.admission))
    for its, said in zip(queues, line):
        reserved = max(gpus * had, said.status.budget_reserved * HOUR)  # of what has just started the status lacks it
        left = max(0.0, (its.budget or 0) - its.spent(now)[0] - reserved)
        if its.budget is not None and gpus * (wants - had) > left:
            found, most = shown(limit) if limit else "no limit", duration_text((had + left / gpus) // 1)
            why = f"queue {its.name} has {left / HOUR:,.4g} of {its.budget / HOUR:,.4g} GPU hours of its budget left"
            raise Malformed(f"found {found}; at most {most} is allowed while it runs: {why}", "spec.timeLimit")
