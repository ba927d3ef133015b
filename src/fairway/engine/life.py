"""What becomes of those who run: who must stop by itself, who gets lost pods back, who grows into what is left.

Nothing here is for another workload's sake. Who is drained goes on elsewhere if there is a place, and keeps its quota;
who has lost pods asks only for those, beside the others; growth is one pod at a time, after all minimums.
"""

from heapq import heappop, heappush
from operator import attrgetter, itemgetter

import numpy as np

from .cycle import Cycle
from .door import over_limit, refusal
from .give import elsewhere
from .model import Admission, NodeShare, PodSetPlacement, Running, Workload
from .order import Order
from .place import Placements, place
from .plan import Admit, Cause, Ending, Evict, Finish, Resize, Verdict
from .resources import counts_of

PATIENCE = 60.0
"""Seconds in which lost pods must find a place, and a victim be gone after its grace."""


def release(cycle: Cycle) -> None:
    """Time limits, suspensions, drains, lost nodes and pods, windows that open, dependencies that failed."""
    unfit = {cycle.snapshot.nodes[row].name for row in np.flatnonzero(~cycle.snapshot.is_usable)}
    for one in cycle.snapshot.running:
        if one.is_leaving or _goes_on(one, cycle, unfit):
            continue
        if (verdict := _stop(one, cycle)) is not None:
            cycle.say(verdict)
            moves_to = verdict.admission if isinstance(verdict, Evict) else None
            cycle.draft.leave(one.workload.key, moves_to)
    for key in cycle.timeline.trespassers():
        if key not in cycle.verdicts:
            cycle.say(Evict(key, Cause.RESERVED))
            cycle.draft.leave(key)
    ended = cycle.snapshot.ended
    for waiting in cycle.snapshot.pending:
        if waiting.after and any(key in ended and not ended[key].succeeded for key in waiting.after):
            cycle.say(Finish(waiting.key, Ending.DEPENDENCY_FAILED))


def _goes_on(one: Running, cycle: Cycle, unfit: set[str]) -> bool:
    """Whether nothing at all stands against it, which is so for most: looked at once more only where it is not."""
    workload, row_of = one.workload, cycle.snapshot.row_of
    if one.lost or not workload.is_active or not cycle.is_endless(workload):
        return False
    for placement in one.admission.podsets:
        for share in placement.nodes:
            if share.node in unfit or share.node not in row_of:
                return False
    return True


def _stop(one: Running, cycle: Cycle) -> Verdict | None:
    """Why it may not go on where it is, if so."""
    workload, key = one.workload, one.workload.key
    limit = cycle.tree.time_limit(workload)
    if limit is not None and one.admitted_at is not None and not one.is_promised:
        if cycle.now >= one.admitted_at + limit:
            return Finish(key, Ending.TIME_LIMIT)
        cycle.wake(one.admitted_at + limit)
    if not workload.is_active:
        return Evict(key, Cause.SUSPENDED)
    branch = cycle.tree.branches.get(workload.queue)
    if branch and any(at.queue.stop == "Drain" for at in branch.path):
        return Evict(key, Cause.DRAINED)
    if (cause := _fails(one, cycle)) is not None:
        return Evict(key, cause, admission=elsewhere(one, cycle) if cause is Cause.DRAINED else None)
    if one.lost and workload.restart == "Gang":
        return Evict(key, Cause.PODS_LOST)
    return None


def _fails(one: Running, cycle: Cycle) -> Cause | None:
    """What is wrong with its nodes; a node that is not ready or unhealthy drains."""
    snapshot, cause = cycle.snapshot, None
    for placement in one.admission.podsets:
        for share in placement.nodes:
            row = snapshot.row_of.get(share.node)
            if row is None:
                return Cause.NODE_LOST
            node = snapshot.nodes[row]
            if node.is_unhealthy or node.is_leaving or not node.is_ready:
                cause = Cause.DRAINED
    return cause


def replace_lost(cycle: Cycle) -> None:
    """Pods that a running gang lost come back beside the others; without a place in a minute it is evicted whole."""
    for one in cycle.snapshot.running:
        workload, lost = one.workload, dict(one.lost)
        if not lost or one.is_leaving or workload.key in cycle.verdicts:
            continue
        counts = tuple(lost.get(podset.name, 0) for podset in workload.podsets)
        if _extend(workload, counts, cycle):
            continue
        since = cycle.now if one.lost_since is None else one.lost_since
        cycle.wake(since + PATIENCE)
        if cycle.now >= since + PATIENCE:
            cycle.say(Evict(workload.key, Cause.PODS_LOST))
            cycle.draft.leave(workload.key)


def _extend(workload: Workload, counts: tuple[int, ...], cycle: Cycle) -> bool:
    """So many pods more, beside those it has, in idle room; whether there is a place for all of them."""
    key, draft = workload.key, cycle.draft
    stands = draft.started[key][1] if key in draft.started else draft.running[key].admission
    with cycle.timeline.kept(workload):
        placed = place(draft, cycle.ask(workload, counts, stands), stands.pool)
    if placed is None:
        return False
    admission = joined(stands, placed)
    draft.resize(key, admission)
    said = cycle.verdicts.get(key)
    if isinstance(said, Admit):
        cycle.say(Admit(key, admission, said.after, said.backfilled_for))
        return True
    names = [podset.name for podset in workload.podsets]
    before = said.before if isinstance(said, Resize) else tuple(zip(names, counts_of(workload.podsets, stands)))
    cycle.say(Resize(key, before, tuple(zip(names, counts_of(workload.podsets, admission))), admission))
    return True


def joined(stands: Admission, more: Placements) -> Admission:
    """What stands with more behind it, ranks going on."""
    added = {placement.name: placement.nodes for placement in more}
    podsets = []
    for placement in stands.podsets:
        shares = list(placement.nodes)
        for share in added.pop(placement.name, ()):
            if shares and shares[-1].node == share.node and bool(shares[-1].devices) == bool(share.devices):
                last = shares.pop()
                share = NodeShare(share.node, last.count + share.count, last.devices + share.devices)
            shares.append(share)
        podsets.append(PodSetPlacement(placement.name, tuple(shares)))
    return Admission(stands.pool, (*podsets, *(PodSetPlacement(name, nodes) for name, nodes in added.items())))


class Growth:
    """The elastic workloads of one leaf: higher priority first, then those nearest their minimum."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._heap: list[tuple[int, int, float, str, Workload]] = []

    def enter(self, workload: Workload) -> None:
        """Let it stand in line for one more pod, if it can have one."""
        counts, more = self._cycle.counts(workload), next_pod(workload, self._cycle)
        if any(more):
            surplus = sum(counts) - sum(self._cycle.least(workload))
            heappush(self._heap, (-workload.priority, surplus, workload.submitted, workload.key, workload))

    def head(self) -> Workload | None:
        return self._heap[0][-1] if self._heap else None

    def pass_on(self, *, has_started: bool) -> Workload | None:
        """The head has had its turn; the next. Who got a pod stands in line again."""
        workload = heappop(self._heap)[-1]
        if has_started:
            self.enter(workload)
        return self.head()


def next_pod(workload: Workload, cycle: Cycle) -> tuple[int, ...]:
    """One pod of the podset nearest its minimum that is not complete."""
    counts = cycle.counts(workload)
    open_ = [at for at, podset in enumerate(workload.podsets) if counts[at] < podset.count]
    best = min(open_, key=lambda at: counts[at] - workload.podsets[at].min_count, default=-1)
    return tuple(int(at == best) for at in range(len(counts)))


def grow(cycle: Cycle) -> None:
    """Elastic workloads into what is left, one pod at a time, the queues in their order."""
    lines: dict[str, Growth] = {}
    draft = cycle.draft
    workloads = [*map(attrgetter("workload"), draft.running.values()), *map(itemgetter(0), draft.started.values())]
    if not any(map(cycle.is_elastic, dict(zip(map(id, map(attrgetter("podsets"), workloads)), workloads)).values())):
        return
    for workload in filter(cycle.is_elastic, workloads):
        may_grow = workload.key not in draft.running or _may_grow(draft.running[workload.key], cycle)
        if may_grow and refusal(workload, cycle) is None:
            lines.setdefault(workload.queue, Growth(cycle)).enter(workload)
    if not lines:
        return
    grown: set[str] = set()
    asks = lambda one, pool: cycle.tree.amounts(one.podsets, next_pod(one, cycle), pool)  # noqa: E731
    order = Order(cycle.draft, lines, asks, is_steady=False)
    for workload in order.heads(grown):
        grown.discard(workload.key)
        if _is_within_limits(workload, cycle) and _extend(workload, next_pod(workload, cycle), cycle):
            grown.add(workload.key)


def _may_grow(one: Running, cycle: Cycle) -> bool:
    key = one.workload.key
    return not (one.is_leaving or one.is_promised or one.lost or key in cycle.draft.shrunk)


def _is_within_limits(workload: Workload, cycle: Cycle) -> bool:
    pool = cycle.admission(workload).pool
    asked = cycle.tree.amounts(workload.podsets, next_pod(workload, cycle), pool)
    return over_limit(cycle.accounts(workload, pool), asked) is None
