"""By what right a workload may make others give back room, and what protects them.

A rule names its cause, which workloads it may touch, whether their queue may still lose, and in which order victims
are taken. Four rights: a hold takes back what backfilled into it at its own risk; a move needs the leave of both
queues; reclaim takes what a sibling branch holds above its due; preempt takes lower priorities of the same queue. Where
neither does alone, both together may: without its own lower priorities a queue may be within its share again.
The token bucket, the pair rule and a minRuntime that was set protect against every taker; the default minRuntime and
`maxEvictions` not against a taker that stays within its guarantee. Runtime and `maxEvictions` protect from being
stopped, not from giving back surplus. Nothing is chosen here.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf

from .cycle import Cycle
from .model import GPU, Running, Workload
from .plan import Cause, Facts
from .policy import DAY
from .queueing import NO_SHARE, is_aged, precedes
from .quota import Account, Branch, Demand
from .resources import DEVICE
from .runtimes import HOUR

MIN_RUNTIME, MAX_EVICTIONS = 600.0, 6
SOON = 1.0  # seconds until what was given at a moment may be taken back
Shield = tuple[str, float | None]
"""What protects a workload from being stopped, in the word of its setting, and until when, if that is known."""
TAKEN = (Cause.PREEMPTED, Cause.RECLAIMED, Cause.HOLD_TAKEN)


def _always(*_: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class EvictionRule:
    """`queues`: those from which it could take, as things are; `touches`: whether it may take a workload of such a
    queue, as things stood at the start; `shield`: what keeps it from being stopped, so that only its surplus may go;
    `may_lose`: whether a queue may lose a workload now, or, with amounts, could have lost those as the last, now that
    the asking one has started; `rank`: a queue and those above it by how far they are above their share, from the
    common ancestor down, the most first; `side`: the queue that is judged when one of these loses, at the level under
    the common ancestor; `equivalence`: rules alike touch the same; `keeps_first`: of surplus only the last ranks;
    `is_mixed`: both of its own queue and of others."""

    cause: Cause
    equivalence: tuple[object, ...]
    queues: Callable[[], list[str]]
    touches: Callable[[Running], bool]
    shield: Callable[[Running], Shield | None]
    may_lose: Callable[[str, Demand | None], bool] = _always
    rank: Callable[[str], tuple[float, ...]] = lambda _: ()
    side: Callable[[str], str] = str
    keeps_first: bool = False
    is_mixed: bool = False

    @property
    def means(self) -> Cause:
        """What decides how it is tried: a mixed rule goes by what other queues may lose."""
        return Cause.RECLAIMED if self.is_mixed else self.cause

    def ranked(self, queues: Iterable[str]) -> tuple[float, ...]:
        """The rank of several: of the one least above its share."""
        return max(map(self.rank, queues), default=())


Entry = tuple[Account, str]  # an account and a resource that it governs


class Reclaims(dict[tuple[object, ...], EvictionRule]):
    """The rules of a cycle by which queues reclaim: one for all that ask for the same."""


def rules_for(workload: Workload, pool: str, cycle: Cycle) -> list[EvictionRule]:
    """Its rights in a pool, in the order in which they are used."""
    found = []
    if workload.key in cycle.backfilled:
        found.append(_take_back(workload, cycle))
    if not cycle.policy.makes_room:
        return found
    if workload.preemptible and cycle.consolidates(workload.queue):
        found.append(_move(cycle))
    preempt = [_preempt(workload, pool, cycle)] if workload.preempts and is_above(workload, cycle) else []
    if not cycle.accounts(workload, pool):
        return [*found, *preempt]
    is_entitled = over_share(workload, pool, cycle) is None
    if not is_entitled and not preempt:
        return found
    known, is_within = cycle.memo.of(Reclaims), within_guaranteed(workload, pool, cycle)
    key = workload.queue, id(workload.podsets), pool, is_within
    reclaim = known.get(key) or known.setdefault(key, _reclaim(workload, pool, cycle, is_within=is_within))
    both = [_both(one, reclaim, lambda: not over_share(workload, pool, cycle)) for one in preempt]
    return [*found, *([reclaim] if is_entitled else ()), *preempt, *both]


def is_above(workload: Workload, cycle: Cycle) -> bool:
    """Whether something of its queue runs at a lower priority."""
    return cycle.lowest.get(workload.queue, inf) < workload.priority


def _take_back(workload: Workload, cycle: Cycle) -> EvictionRule:
    """What started into its hold at its own risk, whatever its queue, priority or protection."""

    def touches(one: Running) -> bool:
        return one.backfilled_for == workload.key

    return EvictionRule(Cause.HOLD_TAKEN, (workload.key,), lambda: list(cycle.ran), touches, lambda _: None)


def _move(cycle: Cycle) -> EvictionRule:
    """Preemptible workloads of any queues that allow it; nothing is shrunk."""

    def shield(one: Running) -> Shield | None:
        return young(one, cycle.tree.inherited(one.workload.queue, "min_runtime", MIN_RUNTIME), cycle)

    def queues() -> list[str]:
        return list(filter(cycle.consolidates, cycle.ran))

    return EvictionRule(Cause.CONSOLIDATED, (), queues, _always, shield)


def _preempt(workload: Workload, pool: str, cycle: Cycle) -> EvictionRule:
    """The same queue, strictly lower priority, and behind it if both waited; it needs no share."""
    is_within = within_guaranteed(workload, pool, cycle)

    least = cycle.tree.inherited(workload.queue, "preempt_min_runtime", 0.0)

    def touches(one: Running) -> bool:
        return one.workload.priority < workload.priority and precedes(workload, one.workload, cycle.tree)

    def shield(one: Running) -> Shield | None:
        return young(one, least, cycle) or (None if is_within else worn(one, cycle))

    is_ranked = cycle.tree.branches[workload.queue].queue.order == "Priority"
    place = is_aged(workload, cycle.tree) if is_ranked else workload.key
    equivalence = workload.queue, workload.priority, place, is_within
    queues = [workload.queue] if workload.queue in cycle.ran else []
    return EvictionRule(Cause.PREEMPTED, equivalence, lambda: queues, touches, shield)


def _reclaim(workload: Workload, pool: str, cycle: Cycle, *, is_within: bool) -> EvictionRule:
    """Another queue, judged at the level under the lowest common ancestor."""
    branch, asked = cycle.tree.branches[workload.queue], cycle.asked(workload, pool)

    @cache
    def sides(queue: str) -> tuple[list[Entry], bool, list[Entry]]:
        """What is governed here under the common ancestor, resource by resource; whether it is asked; that there."""
        levels = {one: branch.below(cycle.tree.branches[queue], pool, one) for one in cycle.tree.resources}
        mine, theirs = ([it for one, at in levels.items() for it in _entries(at[side], one, pool)] for side in (0, 1))
        return mine, any(asked.get(resource) for _, resource in mine), theirs

    @cache
    def top(queue: str) -> Branch:
        """The queue there, at the level under the common ancestor."""
        return branch.below(cycle.tree.branches[queue])[1]

    @cache
    def way(queue: str) -> list[list[Account]]:
        """Those from the level under the common ancestor down to the queue, of queues with quotas for the pool."""
        line = cycle.tree.branches[queue].line
        return [own for at in reversed(line[: line.index(top(queue)) + 1]) if (own := at.own(pool))]

    def queues() -> list[str]:
        return borrowers(branch, pool, cycle)

    def shield(one: Running) -> Shield | None:
        name, usual = top(one.workload.queue).queue.name, 0.0 if is_within else MIN_RUNTIME
        least = cycle.tree.inherited(name, "min_runtime", usual)
        return young(one, least, cycle) or (None if is_within else worn(one, cycle))

    def may_lose(queue: str, last: Demand | None) -> bool:
        """It is above max(guaranteed, share), or, if the asking side stays within its guaranteed, above its guaranteed;
        before losing it. Pods that it lost count for it, not against it."""
        (mine, is_asked, theirs), more, lost = sides(queue), asked if last is None else {}, last or {}
        for account, resource in theirs:
            held, least = account.held[resource] - account.absent[resource], account.guaranteed.get(resource, 0)
            if (before := held + lost.get(resource, 0)) > max(least, account.share[resource]) or (
                before > least and is_asked and all(
                    one.held[what] + more.get(what, 0) <= one.guaranteed.get(what, 0) for one, what in mine)
            ):  # fmt: skip
                return True
        return False

    def rank(queue: str) -> tuple[float, ...]:
        return tuple(-saturation(accounts) for accounts in way(queue))

    def side(queue: str) -> str:
        return queue if queue == workload.queue else top(queue).queue.name

    equivalence = workload.queue, id(workload.podsets), is_within
    return EvictionRule(Cause.RECLAIMED, equivalence, queues, _always, shield, may_lose, rank, side)


def _both(preempt: EvictionRule, reclaim: EvictionRule, is_entitled: Callable[[], bool]) -> EvictionRule:
    """Lower priorities of its queue first; once it is within its share without them, what others owe."""
    mine = reclaim.equivalence[0]

    def queues() -> list[str]:
        return [*preempt.queues(), *reclaim.queues()]

    def touches(one: Running) -> bool:
        return one.workload.queue != mine or preempt.touches(one)

    def shield(one: Running) -> Shield | None:
        return preempt.shield(one) if one.workload.queue == mine else reclaim.shield(one)

    def may_lose(queue: str, last: Demand | None) -> bool:
        return queue == mine or ((last is not None or is_entitled()) and reclaim.may_lose(queue, last))

    def rank(queue: str) -> tuple[float, ...]:
        return () if queue == mine else reclaim.rank(queue)

    key = preempt.equivalence, reclaim.equivalence
    return EvictionRule(Cause.PREEMPTED, key, queues, touches, shield, may_lose, rank, reclaim.side, is_mixed=True)


def borrowers(branch: Branch, pool: str, cycle: Cycle) -> list[str]:
    """The queues that ran at the start and from which a queue could take back: more is held than guaranteed under the
    common ancestor."""
    lending, tree = set[str](), cycle.tree
    for resource in tree.resources:
        line = branch.governing(pool, resource)
        for at, parent in zip(line, (*line[1:], None)):
            for other in tree.governed(parent.children if parent else tree.roots, pool, resource):
                accounts = (one for one, _ in _entries(other, resource, pool))
                if other is not at and any(one.held[resource] > one.guaranteed.get(resource, 0) for one in accounts):
                    lending.add(other.queue.name)
    return [name for name in cycle.ran if name in tree.branches and not lending.isdisjoint(
        at.queue.name for at in tree.branches[name].path)] if lending else []


def over_share(workload: Workload, pool: str, cycle: Cycle, *, has_started: bool = False) -> Facts | None:
    """The asking queue (where it has no quota, the nearest above that has one) and its share, if with the workload it
    is above that in a resource that is requested and governed there."""
    asked = cycle.asked(workload, pool)
    more = {} if has_started else asked
    leaf = next((at for at in cycle.tree.branches[workload.queue].path if at.own(pool)), None)
    above = [
        (resource, one) for one in (leaf.own(pool) if leaf else ()) for resource in one.resources
        if asked.get(resource) and one.held[resource] + more.get(resource, 0) > one.share[resource]
    ]  # fmt: skip
    if leaf is None or not above:
        return None
    bounds = {resource: one.share[resource] for resource, one in above}
    return Facts(queue=leaf.queue.name, bounds=bounds, used={resource: one.held[resource] for resource, one in above})


def _entries(branch: Branch, resource: str, pool: str) -> list[Entry]:
    """The accounts of one queue that a workload in the pool counts in and that govern a resource."""
    return [(one, resource) for one in branch.own(pool) if resource in one.share]


def saturation(accounts: list[Account]) -> float:
    """The largest allocated ÷ share."""
    return max([ratio(one, resource) for one in accounts for resource in one.resources], default=0.0)


def ratio(account: Account, resource: str) -> float:
    """Allocated ÷ share; what is held without a share, as a part of what is live, weighs more than all that is."""
    held, share = account.held[resource], account.share[resource]
    return held / share if share else NO_SHARE * held / max(1, account.live.get(resource, 0))


def stays_fair(workload: Workload, taken: Sequence[tuple[str, Demand]], pool: str, cycle: Cycle) -> bool:
    """The saturation guard, at each level, after the whole change: refused if the asker is above its share and no less
    saturated than a sibling it took from, in a resource that is asked or given. `taken`: queues and what each lost."""
    given = (amounts for _, amounts in taken)
    moved = {resource for amounts in (cycle.asked(workload, pool), *given) for resource in amounts if amounts[resource]}
    branches = [cycle.tree.branches[queue] for queue, _ in taken]
    for resource in moved.intersection(cycle.tree.resources):
        lines = [one.governing(pool, resource) for one in branches]
        touched = {id(line[at]): line[at:] for line in lines for at in range(len(line))}
        line = cycle.tree.branches[workload.queue].governing(pool, resource)
        for level, at in enumerate(line):
            siblings = [one for one, *above in touched.values() if one is not at and above == [*line[level + 1 :]]]
            for mine in at.own(pool) if siblings else ():
                for other in (one.accounts[mine.pool] for one in siblings if mine.pool in one.accounts):
                    if resource not in mine.share or not other.share.get(resource):
                        continue
                    if ratio(mine, resource) > 1 and ratio(mine, resource) >= ratio(other, resource):
                        return False
    return True


# Protection


def within_guaranteed(workload: Workload, pool: str, cycle: Cycle) -> bool:
    """Whether its queue, with it, stays within what it is guaranteed there, of all that is governed."""
    branch, asked = cycle.tree.branches[workload.queue], cycle.asked(workload, pool)
    return branch.governs(pool, asked) and all(one.keeps_within(one.guaranteed, asked) for one in branch.own(pool))


def young(one: Running, least: float, cycle: Cycle) -> Shield | None:
    """Its minimum runtime, if not over; this very moment at least. Admitted at an unknown time: not protected."""
    if one.admitted_at is None or (cycle.now >= one.admitted_at + least and cycle.now > one.admitted_at):
        return None
    ends = max(one.admitted_at + least, cycle.now + SOON)
    cycle.wake(ends)
    return "minRuntime", ends


def worn(one: Running, cycle: Cycle) -> Shield | None:
    """The evictions that a workload bears in a day, if it had as many."""
    recent = [past.time for past in one.workload.evictions if past.reason in TAKEN and cycle.now - past.time < DAY]
    if len(recent) < cycle.tree.inherited(one.workload.queue, "max_evictions", MAX_EVICTIONS):
        return None
    until = min(recent) + DAY if recent else None
    if until:
        cycle.wake(until)
    return "maxEvictions", until


def paired(one: Running, taker: Workload, cycle: Cycle) -> Shield | None:
    """Its last eviction, if that was for this very workload and less than an hour ago."""
    history = one.workload.evictions
    if not history or history[-1].beneficiary != taker.key or cycle.now >= history[-1].time + HOUR:
        return None
    cycle.wake(history[-1].time + HOUR)
    return "pair", history[-1].time + HOUR


def full_bucket(name: str, cycle: Cycle) -> Shield | None:
    """The pool's eviction budget, if it is used up. One that is not lets one more asking workload through whole."""
    pool = next((pool for pool in cycle.snapshot.pools if pool.name == name), None)
    if pool is None or pool.eviction_gpus is None or (over := cycle.bucket(pool) - pool.eviction_gpus) < 0:
        return None
    until = cycle.now + (over + 1) * pool.eviction_period / max(1, pool.eviction_gpus)
    cycle.wake(until)
    return "evictionBudget", until


def pauses(one: Running, cycle: Cycle) -> bool:
    """Whether it is paused when it has to give way: its queue says so, and it runs whole on one node that can."""
    return bool(cycle.tree.inherited(one.workload.queue, "pauses", False)) and can_pause(one, cycle)


def can_pause(one: Running, cycle: Cycle) -> bool:
    """Whether its processes can be frozen: all are on one node, which can do it, and it has run."""
    nodes, snapshot = one.admission.nodes, cycle.snapshot
    rows = [snapshot.row_of[name] for name in nodes if name in snapshot.row_of]
    is_whole = len(nodes) == len(rows) == 1 and not (one.lost or one.is_promised)
    return is_whole and snapshot.nodes[rows[0]].can_pause and snapshot.nodes[rows[0]].is_up


def can_save(one: Running, cycle: Cycle) -> bool:
    """Whether its processes, once frozen, can be written to disk on each node they run on."""
    snapshot = cycle.snapshot
    return all(snapshot.nodes[snapshot.row_of[name]].can_save for name in one.admission.nodes)


def cost(one: Running, amounts: Demand, cycle: Cycle) -> float:
    """GPU-seconds lost since the last checkpoint, an hour at most and where nothing is known, and those that a restart
    takes, of one that holds these amounts; none where it can be paused."""
    workload = one.workload
    if pauses(one, cycle):
        return 0.0
    since = [time for time in (one.admitted_at, workload.last_checkpoint) if time is not None]
    lost = max(0.0, cycle.now - max(since)) if since else HOUR
    if workload.checkpoint_interval:
        ran = lost if one.admitted_at is None else cycle.now - one.admitted_at
        lost = min(lost, ran % workload.checkpoint_interval)
    return (min(lost, HOUR) + workload.restart_seconds) * amounts.get(GPU, 0) / DEVICE
