"""What becomes of running workloads: which must stop by themselves, and which get lost pods back.

Nothing here is for another workload's sake. A drained workload goes on elsewhere if there is a place, and keeps its
quota; one that has lost pods asks only for those, beside the others.
"""

from collections import defaultdict
from functools import partial
from operator import attrgetter, sub

from .candidates import Later, find_new_place
from .cycle import Cycle
from .elastic import complete
from .eviction_rules import can_pause, cost
from .labels import repels
from .model import Running
from .plan import Cause, Ending, Evict, Finish, Verdict
from .resources import counts_of
from .snapshot import Snapshot, of_nodes

PATIENCE = 60.0  # seconds in which lost pods must find a place, and a victim be gone after its grace


def release(cycle: Cycle) -> None:
    """Time limits, suspensions, drains, lost nodes and pods, windows that open, dependencies that failed."""
    usable = _in_use(cycle.snapshot)
    for one in cycle.snapshot.running:
        is_sound = one.workload.is_active and not one.lost and usable.issuperset(one.admission.nodes)
        is_endless = cycle.tree.time_limit(one.workload) is None and one.workload.queue not in cycle.tree.drained
        if one.is_leaving or (is_sound and is_endless):
            continue  # most are so
        if (verdict := _stop(one, cycle)) is not None:
            cycle.say(verdict)
            cycle.draft.leave(one.workload.key)
            if isinstance(verdict, Evict) and verdict.admission:
                cycle.draft.move(one.workload.key, verdict.admission)
                cycle.timeline.stay(one.workload, verdict.admission)
            if isinstance(verdict, Evict) and verdict.pauses:
                cycle.draft.freeze(one.workload.key)
    for key, due in cycle.timeline.conflicting(partial(_rank, cycle=cycle)).items():
        cycle.wake(due)
        if key not in cycle.verdicts and due <= cycle.now:
            cycle.say(Evict(key, Cause.RESERVED))
            cycle.draft.leave(key)
    _fail_dependents(cycle)


def _rank(one: Running, *, cycle: Cycle) -> tuple[float, float, float, str]:
    """Which gives way to a reservation first: lower priority, lower cost, younger."""
    workload, pool = one.workload, one.admission.pool
    amounts = cycle.tree.amounts(workload.podsets, counts_of(workload.podsets, one.admission), pool)
    return workload.priority, cost(one, amounts, cycle), -workload.submitted, Later(workload.key)


def _fail_dependents(cycle: Cycle) -> None:
    """A workload whose dependency failed fails, and so does all that comes after it, at once."""
    ended, followers = cycle.snapshot.ended, defaultdict[str, list[str]](list)
    for waiting in filter(attrgetter("after"), cycle.snapshot.pending):
        for key in waiting.after:
            followers[key].append(waiting.key)
    failed = [key for key in followers if key in ended and not ended[key].succeeded]
    while failed:
        for key in followers.pop(failed.pop(), ()):
            if key not in cycle.verdicts:
                cycle.say(Finish(key, Ending.DEPENDENCY_FAILED))
                failed.append(key)


@of_nodes
def _in_use(snapshot: Snapshot) -> frozenset[str]:
    """Names of the nodes in use."""
    return frozenset(node.name for node, is_usable in zip(snapshot.nodes, snapshot.is_usable.tolist()) if is_usable)


def _stop(one: Running, cycle: Cycle) -> Verdict | None:
    """Why it may not go on where it is, if so."""
    workload, key = one.workload, one.workload.key
    limit = cycle.tree.time_limit(workload)
    if limit is not None and one.admitted_at is not None and not one.is_promised:
        if cycle.now >= one.admitted_at + limit:
            return Finish(key, Ending.TIME_LIMIT)
        cycle.wake(one.admitted_at + limit)
    if not workload.is_active:
        return Evict(key, Cause.SUSPENDED, pauses=workload.pauses and can_pause(one, cycle))
    if workload.queue in cycle.tree.drained:
        return Evict(key, Cause.DRAINED)
    if (verdict := _fails(one, cycle)) is not None:
        return verdict
    if one.lost and workload.restart == "Gang":  # on a cordoned node it is the drain that took its pods
        nodes = (cycle.snapshot.nodes[cycle.snapshot.row_of[name]] for name in one.admission.nodes)
        return Evict(key, Cause.DRAINED if any(it.is_unschedulable for it in nodes) else Cause.PODS_LOST)
    return None


def _fails(one: Running, cycle: Cycle) -> Evict | None:
    """Whether its nodes fail it. A node that is gone, or NotReady and not tolerated, is lost; one that is unhealthy or
    being deleted drains. A workload whose nodes all exist moves if there is a place for it."""
    key, snapshot = one.workload.key, cycle.snapshot
    rows = [snapshot.row_of.get(name) for name in one.admission.nodes]
    nodes = [snapshot.nodes[row] for row in rows if row is not None]
    if len(nodes) < len(rows):
        return Evict(key, Cause.NODE_LOST)
    if not all(node.is_ready for node in nodes) and _is_lost(one, cycle):
        return Evict(key, Cause.NODE_LOST, admission=find_new_place(one, cycle))
    drains = any(node.is_unhealthy or node.is_leaving for node in nodes)
    return Evict(key, Cause.DRAINED, admission=find_new_place(one, cycle)) if drains else None


def _is_lost(one: Running, cycle: Cycle) -> bool:
    """Whether some of its pods are on a NotReady node that they do not tolerate."""
    shares, nodes = cycle.draft.shares(one.workload.podsets, one.admission), cycle.snapshot.nodes
    return any(not nodes[row].is_ready and repels(nodes[row], pod) for pod, row, *_ in shares)


def replace_lost(cycle: Cycle) -> None:
    """Pods that a running gang lost come back beside the others, within the limits; without a place in a minute it is
    evicted whole. Until then they count in its queue, so that no other takes their quota."""
    short = [one for one in cycle.snapshot.running if one.lost and not one.is_leaving]
    short = [one for one in short if one.workload.key not in cycle.verdicts and not one.is_promised]
    for one in short:
        _count_lost(one, 1, cycle)
    for one in short:
        _count_lost(one, -1, cycle)
        if not complete(one.workload, _absent(one, cycle), cycle) and not _give_up(one, cycle):
            _count_lost(one, 1, cycle)


def _count_lost(one: Running, times: int, cycle: Cycle) -> None:
    """Count what it lost with what it has; `times` -1: no more."""
    workload, pool = one.workload, one.admission.pool
    cycle.tree.charge(workload, pool, cycle.counts(workload), -times)
    cycle.tree.charge(workload, pool, cycle.whole(one), times)
    amounts = cycle.tree.amounts(workload.podsets, _absent(one, cycle), pool)
    for account in cycle.accounts(workload, pool):
        for resource in account.resources:
            account.absent[resource] += amounts.get(resource, 0) * times


def _absent(one: Running, cycle: Cycle) -> tuple[int, ...]:
    """How many pods of each podset it lost."""
    return tuple(map(sub, cycle.whole(one), cycle.counts(one.workload)))


def _give_up(one: Running, cycle: Cycle) -> bool:
    """Whether it has waited for long enough."""
    key, since = one.workload.key, cycle.now if one.lost_since is None else one.lost_since
    cycle.wake(since + PATIENCE)
    if cycle.now < since + PATIENCE:
        return False
    cycle.say(Evict(key, Cause.PODS_LOST))
    cycle.draft.leave(key)
    return True
