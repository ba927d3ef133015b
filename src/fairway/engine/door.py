"""What keeps a workload from starting before anybody looks for room: its queue, its claims, time, budget, quota.

Each function gives the reason and its facts, or None. They are asked in the order in which reasons are told; what a
user claims is held against the strictest ancestor. Room, holds and victims are not looked at here.
"""

from collections.abc import Callable
from operator import attrgetter

from .cycle import Cycle
from .model import GPU, Queue, Workload
from .plan import Facts, Reason, Why
from .quota import Account, Branch, Demand
from .resources import DEVICE, counts_of


def refusal(workload: Workload, cycle: Cycle) -> Why | None:
    """Why its queue does not take it."""
    branch = cycle.tree.branches.get(workload.queue)
    if branch is None:
        return Reason.QUEUE_NOT_FOUND, Facts(queue=workload.queue)
    if not branch.path:
        return Reason.QUEUE_INVALID, Facts(queue=workload.queue, detail="its parents run in a circle")
    if branch.children:
        return Reason.QUEUE_INVALID, Facts(queue=workload.queue, detail="it has queues below it")
    for at in branch.path:
        if detail := _forbids(at.queue, workload):
            return Reason.NOT_ALLOWED, Facts(queue=at.queue.name, detail=detail)
    if not workload.is_active:
        return Reason.NOT_ALLOWED, Facts(queue=workload.queue, detail="suspended")
    if stopped := next((at.queue.name for at in branch.path if at.queue.stop != "None"), None):
        return Reason.QUEUE_STOPPED, Facts(queue=stopped)
    if not cycle.pools_of(workload):
        named = next(filter(None, (workload.pools, *(at.queue.pools for at in branch.path))), ())
        return Reason.NEVER_FITS, Facts(queue=workload.queue, detail=f"pools {', '.join(named)}")
    return None


def _forbids(queue: Queue, workload: Workload) -> str:
    """What a queue has against a workload, "" if nothing."""
    if queue.namespaces is not None and workload.namespace not in queue.namespaces:
        return f"namespace {workload.namespace}"
    if queue.max_priority is not None and workload.priority > queue.max_priority:
        return f"priority {workload.priority}"
    if queue.allows_nonpreemptible is False and not workload.preemptible:
        return "not preemptible"
    if queue.max_time_limit is not None and (workload.time_limit or 0) > queue.max_time_limit:
        return f"time limit {workload.time_limit:g} s"
    if queue.pools and workload.pools and not set(queue.pools) & set(workload.pools):
        return f"pools {', '.join(workload.pools)}"
    return ""


def delay(workload: Workload, cycle: Cycle) -> Why | None:
    """What it waits for that is not room: a back-off, a dependency, a budget."""
    now = cycle.now
    if workload.backs_off_until is not None and workload.backs_off_until > now:
        cycle.wake(workload.backs_off_until)
        reason = Reason.REFUSED if workload.refused else Reason.BACKING_OFF
        return reason, Facts(until=workload.backs_off_until, detail=workload.refused)
    ended = cycle.snapshot.ended
    for key in workload.after:
        if key not in ended or not ended[key].succeeded:
            return Reason.DEPENDENCY_PENDING, Facts(blocking=(key,), detail=key)
    branch = cycle.tree.branches[workload.queue]
    for at in branch.path:
        if at.queue.budget is not None and (why := _overruns(workload, cycle, at)):
            return why
    return None


def _overruns(workload: Workload, cycle: Cycle, branch: Branch) -> Why | None:
    """Whether with it, and with all that runs, the queue could spend more GPU-seconds than its budget."""
    queue, now = branch.queue, cycle.now
    since, period = queue.ledger.budget_since, queue.budget_period
    is_over = since is not None and period is not None and now >= since + period
    spent = 0.0 if is_over else queue.ledger.budget_spent
    for one in cycle.draft.running.values():
        spent += _spends(cycle, one.workload, counts_of(one.workload.podsets, one.admission), branch, one.admitted_at)
    for started, admission in cycle.draft.started.values():
        spent += _spends(cycle, started, counts_of(started.podsets, admission), branch, None)
    least = tuple(podset.min_count for podset in workload.podsets)
    spent += _spends(cycle, workload, least, branch, None)
    assert queue.budget is not None
    if spent <= queue.budget and (cycle.tree.time_limit(workload) is not None or spent < queue.budget):
        return None
    if since is not None and period is not None:
        cycle.wake(since + period)
    missing = round((spent - queue.budget) * DEVICE)
    return Reason.BUDGET_SPENT, Facts(queue=queue.name, resource=GPU, missing=missing)


def _spends(
    cycle: Cycle, workload: Workload, counts: tuple[int, ...], branch: Branch, since: float | None
) -> float:
    """GPU-seconds that a workload of the queue can come to: to its time limit, else as long as it has run."""
    at = cycle.tree.branches.get(workload.queue)
    if at is None or branch not in at.path:
        return 0.0
    gpus = cycle.tree.amounts(workload.podsets, counts, "").get(GPU, 0) / DEVICE
    ran = 0.0 if since is None else cycle.now - since
    return gpus * (cycle.tree.time_limit(workload) or ran)


def over_limit(
    accounts: tuple[Account, ...], asked: Demand, of: Callable[[Account], Demand] = attrgetter("limit")
) -> Why | None:
    """The first of the queue and its ancestors whose limit, or other bound, it would break."""
    for account in accounts:
        for resource, limit in of(account).items():
            more = asked.get(resource, 0)
            if more and account.held[resource] + more > limit:
                missing = account.held[resource] + more - limit
                name = account.queue.name
                return Reason.OVER_LIMIT, Facts(resource, more, missing=missing, pool=account.pool, queue=name)
    return None


def over_guaranteed(accounts: tuple[Account, ...], fixed: Demand) -> Why | None:
    """What cannot be preempted must fit in what is guaranteed, here and at every ancestor."""
    for account in accounts:
        for resource in account.resources:
            more, bound = fixed.get(resource, 0), account.guaranteed.get(resource, 0)
            if more and account.fixed[resource] + more > bound:
                missing = account.fixed[resource] + more - bound
                name = account.queue.name
                return Reason.OVER_GUARANTEED, Facts(resource, more, missing=missing, pool=account.pool, queue=name)
    return None
