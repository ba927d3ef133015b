"""Which paused workloads are written to disk: a pure function of a snapshot and its plan.

A node that can do so writes one paused workload at a time, the one paused longest first, while it is short of memory:
while its condition MemoryPressure is True, or while a workload waits for memory that paused ones hold there. What
resumes from disk needs its memory again; so nothing is written without such a need. One that could not be written is
not tried again.
"""

from collections import defaultdict

from fairway.engine import MEMORY, Plan, Pod, Reason, Snapshot, Wait


def to_disk(snapshot: Snapshot, plan: Plan) -> tuple[str, ...]:
    """Keys of the paused workloads to write to disk now, one of a node at most."""
    resting = _resting(snapshot)
    if not resting:
        return ()
    waits = [it.facts for it in plan.verdicts if isinstance(it, Wait) and it.reason is Reason.NO_ROOM]
    missing = [facts.missing or 0 for facts in waits if facts.resource == MEMORY]
    return tuple(
        min((one.pause.since, one.pause.workload) for one in those if one.pause)[1]
        for name, those in resting.items()
        if snapshot.nodes[snapshot.row_of[name]].is_short or _gives(those, missing)
    )


def _resting(snapshot: Snapshot) -> dict[str, list[Pod]]:
    """By node that can write to disk and does not do so now, the pods that are paused in its memory."""
    found, busy = defaultdict[str, list[Pod]](list), set[str]()
    for one in snapshot.running:
        if one.is_saving:
            busy |= one.admission.nodes
    for pod in snapshot.pods:
        row = snapshot.row_of.get(pod.node)
        if pod.pause is None or row is None or not snapshot.nodes[row].can_save:
            continue
        if pod.pause.disk == "Writing":
            busy.add(pod.node)
        elif not pod.pause.disk:
            found[pod.node].append(pod)
    return {name: those for name, those in found.items() if name not in busy}


def _gives(those: list[Pod], missing: list[int]) -> bool:
    """Whether what these hold is enough for a workload that waits."""
    held = sum(dict(one.pod.requests).get(MEMORY, 0) for one in those)
    return any(0 < amount <= held for amount in missing)
