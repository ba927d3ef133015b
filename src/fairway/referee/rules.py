"""Every way in which a plan would break the cluster or a promise: a rule each, and what finds the items that break it.

Written from the promises alone. A fault is a real breach: where the promises leave a choice, every choice passes. Of
several workloads that together take too much, those decided last are at fault.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as Keys
from itertools import filterfalse
from operator import attrgetter

from fairway.engine import (
    Admit,
    Cause,
    Disruption,
    Ending,
    Evict,
    Fault,
    Finish,
    Keep,
    Plan,
    Resize,
    Running,
    Snapshot,
    Verdict,
    Wait,
    counts_of,
    selects,
)

from .placement import Found, alignments, devices, gangs, nodes, pools, rooms, topologies
from .plan_view import PlanView, pods_of
from .pod_affinity import neighbours
from .queues import budgets, cores, doors, limits, reasons
from .victim_rules import evictions
from .windows import holds, reservations


def total(view: PlanView) -> Found:
    both = view.waiting.keys() & view.running.keys()
    is_whole = view.waiting.keys() <= view.verdicts.keys() and view.running.keys() <= view.verdicts.keys()
    if not is_whole or len(view.verdicts) > len(view.waiting) + len(view.running) - len(both):
        known = view.waiting.keys() | view.running.keys()
        yield from ((key, "no verdict") for key in sorted(known - view.verdicts.keys()))
        yield from ((key, "unknown workload") for key in sorted(view.verdicts.keys() - known))
    if len(view.verdicts) < len(view.plan.verdicts):
        times = Counter(verdict.workload for verdict in view.plan.verdicts)
        yield from ((key, f"{count} verdicts") for key, count in times.items() if count > 1)


def kinds(view: PlanView) -> Found:
    """Pending: Admit, Wait, or Finish for what it came after. Running: Keep, Evict, Resize, Finish; leaving: Keep.
    Promised: the same admission, after those it waited for that are still leaving."""
    leaving = {one.workload.key for one in view.unsettled if one.is_leaving}
    promised = {one.workload.key for one in view.unsettled} - leaving
    stands, waiting = view.running.keys() - leaving - promised, view.waiting.keys()
    allowed: dict[type[Verdict], Keys[str]] = {
        Admit: waiting | promised if promised else waiting, Wait: waiting, Keep: stands | leaving, Resize: stands,
        Evict: stands | promised, Finish: stands | promised | waiting if view.of(Finish) else set(),
    }
    for kind, keys in allowed.items():
        wrong = filterfalse(keys.__contains__, map(attrgetter("workload"), view.by_kind[kind]))
        yield from ((key, kind.__name__) for key in wrong)
    for key in sorted(promised):
        told, one = view.verdicts.get(key), view.running[key]
        if isinstance(told, Admit):
            is_after = view.going.intersection(one.waits_for) <= set(told.after) <= view.going
            if not is_after or told.admission != one.admission:
                yield key, "not what was promised"


def afters(view: PlanView) -> Found:
    for item in view.special:
        if item.role == "new" and not view.going.issuperset(item.after):
            yield item.key, ", ".join(sorted(set(item.after) - view.going))


def pauses(view: PlanView) -> Found:
    """A paused workload starts where its processes are, and nowhere else; what is to be paused is on one node that can
    do it."""
    for one in filter(attrgetter("paused"), view.snapshot.pending):
        told = view.verdicts.get(one.key)
        if isinstance(told, Admit) and one.paused and not one.paused.is_same(told.admission):
            yield one.key, "its processes are elsewhere"
    for evict in view.of(Evict):
        nodes = view.running[evict.workload].admission.nodes if evict.pauses and evict.workload in view.running else ()
        rows = [view.snapshot.row_of[name] for name in nodes if name in view.snapshot.row_of]
        if evict.pauses and (len(nodes) != 1 or not any(view.snapshot.nodes[row].can_pause for row in rows)):
            yield evict.workload, "cannot be paused there"
        if evict.saves and not (evict.pauses and all(view.snapshot.nodes[row].can_save for row in rows)):
            yield evict.workload, "cannot be written to disk there"


def resizes(view: PlanView) -> Found:
    for verdict in view.of(Resize):
        if (one := view.running.get(verdict.workload)) is None:
            continue
        podsets, before, after = one.workload.podsets, one.admission, verdict.admission
        names = [podset.name for podset in podsets]
        was, counts = (dict(zip(names, counts_of(podsets, admission))) for admission in (before, after))
        is_told = dict(verdict.before) == was and dict(verdict.after) == counts and before.pool == after.pool
        if not is_told or counts == was or not all(one.min_count <= counts[one.name] <= one.count for one in podsets):
            yield verdict.workload, f"{was} to {counts}"
        old = {placement.name: pods_of(placement) for placement in before.podsets}
        for placement in after.podsets:
            new, stood = pods_of(placement), old.get(placement.name, [])
            rest = iter(stood)
            if new[: len(stood)] != stood if len(new) >= len(stood) else not all(pod in rest for pod in new):
                yield verdict.workload, f"{placement.name} is moved"


def disruptions(view: PlanView) -> Found:
    """Evictions for other workloads that exceed a PodDisruptionBudget name one; each names a budget of its own pods."""
    for budget in view.snapshot.disruptions:
        pods = {one.workload: _under(budget, view.running[one.workload]) for one in view.of(Evict)
                if one.workload in view.running}
        named = [one.workload for one in view.of(Evict) if one.budget == budget.key]
        yield from ((key, f"{budget.key} is not its own") for key in named if not pods.get(key))
        preempted = [one.workload for one in view.of(Evict) if one.cause in (Cause.PREEMPTED, Cause.RECLAIMED)]
        told = {one.workload for one in view.of(Evict) if one.budget and pods.get(one.workload)}
        if not told and sum(pods.get(key, 0) for key in preempted) > budget.allowed:
            yield from ((key, f"{budget.key} is not named") for key in preempted if pods.get(key))


def _under(budget: Disruption, one: Running) -> int:
    """The pods of a workload that a budget covers."""
    counts, space = counts_of(one.workload.podsets, one.admission), budget.key.partition("/")[0]
    return sum(count for podset, count in zip(one.workload.podsets, counts) if podset.pod.namespace == space
               and selects(budget.selector, dict(podset.pod.labels)))


def finishes(view: PlanView) -> Found:
    now, doomed = view.snapshot.now, _doomed(view) if view.of(Finish) else set()
    for verdict in view.of(Finish):
        one = view.running.get(verdict.workload)
        limit = view.time_limit(one.workload) if one else None
        is_over = one and limit is not None and one.admitted_at is not None and now >= one.admitted_at + limit
        if not (is_over if verdict.ending is Ending.TIME_LIMIT else verdict.workload in doomed):
            yield verdict.workload, str(verdict.ending)


def _doomed(view: PlanView) -> set[str]:
    """Workloads after one that failed, and after those."""
    followers = [one for one in view.waiting.values() if one.after]
    failed = {key for key, one in view.snapshot.ended.items() if not one.succeeded}
    found = set[str]()
    while more := {one.key for one in followers if not failed.isdisjoint(one.after)} - found:
        found |= more
        failed = more
    return found


Rules = Mapping[str, Callable[[PlanView], Found]]
OF_VERDICTS: Rules = {
    "Total": total,  # every pending and every running workload has exactly one verdict, and no other has one
    "Kind": kinds,  # a verdict that the workload's state allows; what was promised is said again, unchanged
    "Reason": reasons,  # a wait gives the first reason that holds
    "Paused": pauses,  # frozen where that is possible, and thawed there
    "Resize": resizes,  # within minCount..count; what stays keeps its place and order, what comes goes behind
    "Disruption": disruptions,  # an eviction that exceeds a PodDisruptionBudget names it
    "Finish": finishes,  # at its time limit, or after a failure
    "Hold": holds,  # no workload delays a hold, which is for room that is known to come free
}
OF_STARTS: Rules = {
    "Gang": gangs,  # every podset, each between its minimum and its count
    "Pool": pools,  # a pool that is there and allowed, and every node in it
    "Node": nodes,  # usable, no taint untolerated, selected, near its volumes
    "Room": rooms,  # no resource of a node is given twice, pod slots included
    "Device": devices,  # as many devices as asked, there, whole, healthy, given once; none where others choose
    "Alignment": alignments,  # one NUMA group where that is required; one group where one would have done
    "Topology": topologies,  # inside one domain of the required level; segments inside theirs
    "Neighbour": neighbours,  # required pod (anti-)affinity, hard spread and host ports
    "Door": doors,  # the queue is there, a leaf, open to it; it is active, backs off no more, came after what succeeded
    "Limit": limits,  # at most the limit, at every ancestor, once all that leaves is gone
    "Guaranteed": cores,  # the non-preemptible within what is guaranteed, at every ancestor
    "Budget": budgets,  # none that could overrun what is left of it by its time limit
    "After": afters,  # it waits only for workloads that leave
    "Reserved": reservations,  # no start takes what a reservation keeps for others
}
OF_VICTIMS = (
    "Victim",  # taken by a right, and not protected
    "Vain",  # taken for a workload that starts or grows after it
    "Needed",  # were it spared, there would not be room
    "Entitled",  # reclaimed within the asker's share, from above what the loser is due, shares being well divided
)
RULES = (*OF_VERDICTS, *OF_STARTS, *OF_VICTIMS)


def check(snapshot: Snapshot, plan: Plan) -> list[Fault]:
    """The faults of a plan; none in a plan that may be carried out."""
    view = PlanView(snapshot, plan)
    rules = {**OF_VERDICTS, **(OF_STARTS if view.starts else {})}
    found = ((key, rule, detail) for rule, broken in rules.items() for key, detail in broken(view))
    return [Fault(*fault) for fault in (*found, *evictions(view))]
