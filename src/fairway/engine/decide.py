"""One cycle: what must stop, whom to start and where, whom to shrink or evict for it, why the others wait."""

from .draft import Draft
from .model import Admission, Workload
from .place import Ask, place
from .plan import Admit, Keep, Plan, Reason, Verdict, Wait
from .policy import Policy
from .snapshot import Snapshot


def decide(snapshot: Snapshot, policy: Policy) -> Plan:
    """Pure, total, repeatable: one verdict for each pending and each running workload."""
    draft = Draft(snapshot)
    kept: list[Verdict] = [
        Admit(one.workload.key, one.admission, tuple(key for key in one.waits_for if key in draft.running))
        if one.is_promised and not one.is_leaving
        else Keep(one.workload.key)
        for one in snapshot.running
    ]
    waiting = sorted(snapshot.pending, key=lambda one: (-one.priority, one.submitted, one.key))
    return Plan(tuple(kept + [admit(one, draft) or Wait(one.key, Reason.NO_ROOM) for one in waiting]))


def admit(workload: Workload, draft: Draft) -> Verdict | None:
    """In the room there is."""
    ask = Ask(workload, tuple(podset.min_count for podset in workload.podsets))
    for pool in draft.snapshot.pools:
        if (podsets := place(draft, ask, pool.name)) is not None:
            admission = Admission(pool.name, podsets)
            draft.start(workload, admission)
            return Admit(workload.key, admission)
    return None
