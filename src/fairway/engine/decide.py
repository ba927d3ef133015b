"""One cycle: what must stop, whom to start and where, whom to shrink or evict for it, why the others wait."""

from .admit import admit, wait
from .cycle import Cycle
from .give import make_room
from .order import Order
from .plan import Plan
from .policy import Policy
from .snapshot import Snapshot


def decide(snapshot: Snapshot, policy: Policy) -> Plan:
    """Pure, total, repeatable: one verdict for each pending and each running workload."""
    cycle = Cycle(snapshot, policy)
    order = Order(cycle.draft, policy.ordering, is_strict=policy.is_strict)
    for workload in order.heads(cycle.is_blocked):
        cycle.say(admit(workload, cycle) or make_room(workload, cycle) or wait(workload, cycle))
    return plan_of(cycle, order)


def plan_of(cycle: Cycle, order: Order) -> Plan:
    """All verdicts in the order decided; who was not asked for waits as, or behind, another; who runs on is kept."""
    for workload in order.lost:
        admit(workload, cycle)
        cycle.say(wait(workload, cycle))
    for line in order.lines():
        for workload, first in line.followers:
            cycle.follow(workload, first, is_strict=line.is_strict)
    for one in cycle.snapshot.running:
        if one.workload.key not in cycle.verdicts:
            cycle.say(cycle.confirm(one))
    return Plan(cycle.numbered(order.positions()), cycle.tree.shares(), cycle.again_at)
