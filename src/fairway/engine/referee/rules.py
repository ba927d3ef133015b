"""The referee: every way in which a plan would break the cluster or a promise, item by item.

Written from the promises alone; it knows nothing of how a plan is made, and shares no code with what makes it. A fault
is a real breach: where the promises leave a choice, every choice passes. Of several workloads that together take
too much, those decided last are at fault. Room of those that leave counts only for whom they leave (`after`), and only
when they are all gone; until then they hold it. The rules of nodes and devices are in `site`, those of pods beside
pods in `company`, those of queues in `audit`, those of victims and of time in `appeal`.
"""

from collections.abc import Iterator

from fairway.engine.plan import Admit, Evict, Fault, Finish, Keep, Plan, Resize, Verdict, Wait
from fairway.engine.snapshot import Snapshot

from .appeal import afters, evictions, finishes, holds, reservations, resizes
from .audit import budgets, cores, doors, limits, tree_of
from .company import neighbours
from .site import devices, gangs, nodes, pools, rooms, topologies
from .tally import Case, case_of, layout_of

RULES = (
    "Total",  # every pending and every running workload has exactly one verdict, and nobody else has one
    "Kind",  # a verdict that the workload's state allows; what was promised is said again, unchanged
    "Gang",  # every podset, each between its minimum and its count
    "Pool",  # a pool that is there and allowed, and every node in it
    "Node",  # usable, no taint untolerated, selected, near its volumes, not excluded
    "Room",  # no resource of a node is given twice, pod slots included
    "Device",  # as many devices as asked, there, whole, healthy, given once; none where others choose
    "Alignment",  # one NUMA group where that is required; one group where one would have done
    "Topology",  # inside one domain of the required level; segments inside theirs
    "Neighbour",  # required pod (anti-)affinity, hard spread and host ports
    "Door",  # the queue is there, a leaf, open to it; it is active, backs off no more, came after what succeeded
    "Reason",  # a wait gives the first reason that holds
    "Limit",  # at most the limit, at every ancestor
    "Guaranteed",  # the non-preemptible within what is guaranteed, at every ancestor
    "Budget",  # no more than is left of it
    "After",  # it waits only for those who leave
    "Resize",  # within minCount..count; who stays, stays where it is
    "Finish",  # at its time limit, or after a failure
    "Victim",  # taken by a right, and not protected
    "Vain",  # taken for somebody who is admitted after it
    "Needed",  # were it spared, there would not be room
    "Entitled",  # reclaimed within the asker's share, from above what the loser is due, shares being well divided
    "Hold",  # nobody delays a hold
    "Reserved",  # nobody stays into a reservation of others
)

def check(snapshot: Snapshot, plan: Plan) -> list[Fault]:
    """The faults of a plan; none in a plan that may be carried out."""
    case, tree = case_of(snapshot, plan), tree_of(snapshot)
    starts, leaves = layout_of(snapshot, case.starts), layout_of(snapshot, case.leaves)
    return [
        *total(case),
        *kinds(case),
        *gangs(starts),
        *pools(snapshot, starts),
        *nodes(case, starts),
        *rooms(snapshot, starts, leaves),
        *devices(case, starts),
        *topologies(case, starts),
        *neighbours(case),
        *doors(case, tree),
        *limits(case, tree, starts),
        *cores(case, tree),
        *budgets(case, tree),
        *afters(case),
        *resizes(case),
        *finishes(case, tree),
        *evictions(case, tree),
        *holds(case, tree),
        *reservations(case, tree),
    ]


def total(case: Case) -> Iterator[Fault]:
    """Each pending and each running workload gets exactly one verdict."""
    known = case.waiting.keys() | case.running.keys()
    for key in sorted(known - case.verdicts.keys()):
        yield Fault(key, "Total", "no verdict")
    for key in sorted(case.verdicts.keys() - known):
        yield Fault(key, "Total", "unknown workload")
    if len(case.verdicts) < len(case.plan.verdicts):
        seen: set[str] = set()
        for verdict in case.plan.verdicts:
            if verdict.workload in seen:
                yield Fault(verdict.workload, "Total", "more than one verdict")
            seen.add(verdict.workload)


def kinds(case: Case) -> Iterator[Fault]:
    """Pending: Admit, Wait, or Finish for what it came after. Running: Keep, Evict, Resize, Finish; leaving: Keep.
    Promised: the same admission, after those it waited for that are still leaving."""
    leaving = {key for key, one in case.running.items() if one.is_leaving}
    promised = {key for key, one in case.running.items() if one.is_promised} - leaving
    stands, waiting = case.running.keys() - leaving - promised, case.waiting.keys()
    allowed: dict[type[Verdict], set[str]] = {
        Admit: waiting | promised, Wait: set(waiting), Keep: stands | leaving, Resize: stands,
        Evict: stands | promised, Finish: stands | promised | waiting,
    }
    for verdict in case.plan.verdicts:
        if verdict.workload not in allowed[type(verdict)]:
            yield Fault(verdict.workload, "Kind", type(verdict).__name__)
    for key in sorted(promised):
        told, one = case.verdicts.get(key), case.running[key]
        leaves = {item.workload.key for item in case.leaves}
        is_said_again = isinstance(told, Admit) and leaves.intersection(one.waits_for) <= set(told.after) <= leaves
        if isinstance(told, Admit) and not (is_said_again and told.admission == one.admission):
            yield Fault(key, "Kind", "not what was promised")
