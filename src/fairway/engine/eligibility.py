"""What keeps a workload from starting before room is sought: its queue, its claims, time, budget, quota.

Each function gives the reason and its facts, or None. They are asked in the order in which reasons are told; what a
user claims is held against the strictest ancestor. Room, holds and victims are not looked at here.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from operator import attrgetter

from .cycle import Cycle
from .model import GPU, Queue, Running, Workload
from .plan import Dependency, Facts, Reason, Rule, Spending, Why
from .policy import DAY
from .quota import Account, Branch, Demand, invalid_parent
from .reservations import CERTAIN
from .resources import DEVICE, counts_of

MOST_LINKS = 64  # workloads looked at in search of a circle of `after`


def refusal(workload: Workload, cycle: Cycle) -> Why | None:
    """Why its queue does not take it."""
    branch = cycle.tree.branches.get(workload.queue)
    if branch is None:
        return Reason.QUEUE_NOT_FOUND, Facts(queue=workload.queue)
    if not branch.path:
        _, why = invalid_parent(workload.queue, cycle.snapshot.queues) or ("", "")
        return Reason.QUEUE_INVALID, Facts(queue=workload.queue, detail=why)
    if branch.children:
        below = sorted(one.queue.name for one in branch.children)
        return Reason.QUEUE_INVALID, Facts(queue=workload.queue, rule=Rule.CHILDREN, detail=", ".join(below))
    for at in branch.path:
        if rule := _forbids(at.queue, workload):
            return Reason.NOT_ALLOWED, replace(rule, queue=at.queue.name)
    if not workload.is_active:
        return Reason.NOT_ALLOWED, Facts(queue=workload.queue, rule=Rule.SUSPENDED)
    if stopped := next((at.queue.name for at in branch.path if at.queue.stop != "None"), None):
        return Reason.QUEUE_STOPPED, Facts(queue=stopped)
    if not cycle.pools_of(workload):
        named = next(filter(None, (workload.pools, *(at.queue.pools for at in branch.path))), ())
        return Reason.NEVER_FITS, Facts(queue=workload.queue, detail=f"pools {', '.join(named)}")
    return None


def _forbids(queue: Queue, workload: Workload) -> Facts | None:
    """What a queue has against a workload."""
    if queue.namespaces is not None and workload.namespace not in queue.namespaces:
        return Facts(rule=Rule.NAMESPACES)
    if queue.max_priority is not None and workload.priority > queue.max_priority:
        return Facts(rule=Rule.MAX_PRIORITY, detail=str(queue.max_priority))
    if queue.allows_nonpreemptible is False and not workload.preemptible:
        return Facts(rule=Rule.PREEMPTIBLE)
    if queue.pools and workload.pools and not set(queue.pools) & set(workload.pools):
        return Facts(rule=Rule.POOLS, detail=", ".join(queue.pools))
    if queue.max_time_limit is not None and (workload.time_limit or 0) > queue.max_time_limit:
        return Facts(rule=Rule.TIME_LIMIT, longest=queue.max_time_limit)
    return None


def delay(workload: Workload, cycle: Cycle) -> Why | None:
    """What it waits for that is not room: a back-off, a dependency, a scheduling gate, a claim, a budget."""
    now = cycle.now
    if workload.backs_off_until is not None and workload.backs_off_until > now:
        cycle.wake(workload.backs_off_until)
        reason = Reason.REFUSED if workload.refused else Reason.BACKING_OFF
        return reason, Facts(until=workload.backs_off_until, detail=workload.refused)
    if key := cycle.tree.unmet(workload.after):
        return Reason.DEPENDENCY_PENDING, _depends(workload, key, cycle)
    if workload.gates:
        return Reason.SCHEDULING_GATED, Facts(detail=", ".join(workload.gates))
    if claim := next(chain(*(podset.pod.unready for podset in workload.podsets)), None):
        return Reason(claim[0]), Facts(detail=claim[1])
    return over_budget(workload, cycle.least(workload), cycle)


def _depends(workload: Workload, key: str, cycle: Cycle) -> Facts:
    """What is known of the workload that it comes after, or the circle in which it comes after itself."""
    waiting = cycle.waiting
    links, paths = [key], dict[str, tuple[str, ...]]({key: (key,)})
    while links and len(paths) <= MOST_LINKS and cycle.policy.tells_why:
        link = links.pop()
        if workload.key in waiting.get(link, ()):
            return Facts(blocking=paths[link], detail=key, dependency=Dependency.CIRCULAR)
        for other in waiting.get(link, ()):
            if other not in paths:
                links.append(other)
                paths[other] = (*paths[link], other)
    runs = key in cycle.draft.running or key in cycle.draft.started
    state = Dependency.RUNNING if runs else Dependency.WAITING if key in waiting else Dependency.MISSING
    return Facts(blocking=(key,), detail=key, dependency=state)


def over_budget(workload: Workload, more: tuple[int, ...], cycle: Cycle) -> Why | None:
    """The first queue, from its own up, that could overrun its budget with these pods, where they count most."""
    for at in cycle.tree.branches[workload.queue].path:
        if at.queue.budget is not None:
            gpus = max(_gpus(workload, more, pool, cycle) for pool in cycle.pools_of(workload))
            if gpus and (why := _overruns(at, workload, gpus, cycle)):
                return why
    return None


def _gpus(workload: Workload, counts: tuple[int, ...], pool: str, cycle: Cycle) -> float:
    return cycle.tree.amounts(workload.podsets, counts, pool).get(GPU, 0) / DEVICE


def _overruns(branch: Branch, workload: Workload, gpus: float, cycle: Cycle) -> Why | None:
    """Whether with so many GPUs for it, beside all that runs, the queue could overrun its budget."""
    queue, (spent, since) = branch.queue, branch.queue.spent(cycle.now)
    period, budget = queue.budget_period, queue.budget or 0
    ends = None if queue.ledger.budget_since is None or period is None else since + period
    counted, held = lasts(workload, 0.0, cycle), commitments(branch, cycle)
    spending = Spending(budget, spent, sum(held.values(), 0.0), gpus * counted)
    if sum(spending[1:]) <= budget:
        return None
    if ends is not None:
        cycle.wake(ends)
    counts = held | dict(queue.ledger.uncharged) if cycle.policy.tells_why else {}
    return Reason.BUDGET_SPENT, Facts(
        queue=queue.name, resource=GPU, spending=spending, until=ends, longest=budget / gpus // 1,
        assumed=counted if cycle.tree.time_limit(workload) is None else None,
        blocking=tuple(sorted(key for key, amount in counts.items() if amount)),
    )  # fmt: skip


def lasts(workload: Workload, ran: float, cycle: Cycle) -> float:
    """Seconds that count in a budget: its time limit, else those in which nine in ten of its kind had ended, else a
    day; as long as it has run at least."""
    if (limit := cycle.tree.time_limit(workload)) is not None:
        return max(ran, limit)
    left = cycle.tree.learned.quantile(workload, CERTAIN, ran)
    return max(ran, DAY) if left is None else left


def commitments(branch: Branch, cycle: Cycle) -> dict[str, float]:
    """GPU-seconds that each workload of the queue can come to, with those of earlier attempts in this period: it is
    charged at its end."""
    below = {one for one in cycle.tree.branches if cycle.tree.is_under(one, branch.queue.name)}
    total = defaultdict[str, float](float, cycle.attained[branch.queue.name])
    for key, running in cycle.draft.running.items():
        if running.workload.queue in below:
            total[key] += _comes_to(running, cycle)
    for key, (one, admission) in cycle.draft.started.items():
        if one.queue in below:
            gpus = _gpus(one, counts_of(one.podsets, admission), admission.pool, cycle)
            total[key] += gpus * lasts(one, 0.0, cycle)
    return total


def _comes_to(one: Running, cycle: Cycle) -> float:
    """GPU-seconds of its attempt, with what pods used that it lost in this cycle, and of the next where it moves; of
    what leaves, what it used."""
    workload, pool, before = one.workload, one.admission.pool, cycle.draft.shrunk.get(one.workload.key)
    gpus = _gpus(workload, cycle.whole(one), pool, cycle)
    ran = 0.0 if one.admitted_at is None else cycle.now - one.admitted_at
    if one.is_leaving:
        return gpus * (ran + (lasts(workload, 0.0, cycle) if one.moves_to else 0.0))
    lost = _gpus(workload, counts_of(workload.podsets, before), pool, cycle) - gpus if before else 0.0
    return gpus * lasts(workload, ran, cycle) + lost * ran


def over_limit(
    accounts: tuple[Account, ...], asked: Demand, of: Callable[[Account], Demand] = attrgetter("limit")
) -> Why | None:
    """The first of the queue and its ancestors whose limit, or other bound, it would break."""
    return _over(Reason.OVER_LIMIT, ((one, one.held, of(one)) for one in accounts), asked)


def over_guaranteed(workload: Workload, pool: str, cycle: Cycle) -> Why | None:
    """What cannot be preempted must fit in what is guaranteed, here and at every ancestor."""
    accounts = () if workload.preemptible else cycle.accounts(workload, pool)
    bounded = ((one, one.fixed, {name: one.guaranteed.get(name, 0) for name in one.resources}) for one in accounts)
    return _over(Reason.OVER_GUARANTEED, bounded, cycle.asked(workload, pool))


def _over(reason: Reason, bounded: Iterable[tuple[Account, Demand, Demand]], asked: Demand) -> Why | None:
    """The first account in which more is asked for than is left. `bounded`: account, what it uses, its bounds."""
    for account, used, bounds in bounded:
        for resource, bound in bounds.items():
            more, own = asked.get(resource, 0), used[resource]
            if more and own + more > bound:
                return reason, Facts(
                    resource, more, missing=own + more - bound, pool=account.pool, queue=account.queue.name,
                    bounds={resource: bound}, used={resource: own},
                )  # fmt: skip
    return None
