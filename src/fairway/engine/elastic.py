"""Growth: elastic workloads into what is left, and into what others lend.

Growth is one pod at a time, after all minimums, the queues in their order. Where no room is idle, a workload that may
reclaim takes surplus of others: they shrink, none stops, and the place is the taker's at once.
"""

from dataclasses import replace
from functools import lru_cache
from heapq import heappop, heappush
from operator import attrgetter, itemgetter

from .candidates import CandidateSet, CandidateSets
from .cycle import Cycle
from .eligibility import over_budget, over_limit, refusal
from .eviction_rules import EvictionRule, rules_for
from .explain import explain
from .model import Admission, NodeShare, PodSet, PodSetPlacement, Workload
from .place import Placements, place
from .plan import Admit, Cause, Facts, Keep, Reason, Resize, Why
from .queueing import Order
from .quota import Demand
from .reclaim import has_room_beside, is_fair, record_victims, spares
from .resources import sizes_of
from .search import Search

MOST_SURPLUS_TRIES = 64  # times in a cycle that surplus of others is sought
MOST_TOLD = 64  # elastic workloads of which a cycle says why they grow no further

Stuck = set[tuple[str, int]]  # workloads by key, and which podset of theirs


def _say(workload: Workload, stands: Admission, placed: Placements, cycle: Cycle) -> None:
    """Record that it got these pods beside those that it had."""
    key, admission = workload.key, cycle.admission(workload)
    cycle.timeline.stay(workload, Admission(admission.pool, placed))
    said = cycle.verdicts.get(key)
    if isinstance(said, Admit):
        cycle.say(Admit(key, admission, said.after, said.backfilled_for))
        return
    before = said.before if isinstance(said, Resize) else sizes_of(workload.podsets, stands)
    cycle.say(Resize(key, before, sizes_of(workload.podsets, admission), admission))


def complete(workload: Workload, counts: tuple[int, ...], cycle: Cycle) -> bool:
    """Whether it got so many pods more beside those it has, within its limits, in idle room."""
    stands = cycle.admission(workload)
    asked = cycle.tree.amounts(workload.podsets, counts, stands.pool)
    if over_limit(cycle.accounts(workload, stands.pool), asked):
        return False
    if not cycle.timeline.has_quota(workload, stands.pool, asked):
        return False
    with cycle.timeline.kept(workload):
        placed = place(cycle.draft, cycle.ask(workload, counts, stands), stands.pool)
    if placed:
        cycle.draft.resize(workload.key, joined(workload, stands, placed))
        _say(workload, stands, placed, cycle)
    return placed is not None


@lru_cache(1 << 10)
def _single(podset: PodSet) -> tuple[PodSet, ...]:
    return (replace(podset, count=1, min_count=1),)


class Surplus:
    """The pods of elastic workloads beyond their minimum, for workloads that grow by eviction rules: from lower
    priorities of their queue and from queues above their share. None is stopped. Only the last ranks go, so that one
    that grows again elsewhere loses no more, and none changes for two reasons in a plan. `changed`: for which one."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle, self._tries = cycle, MOST_SURPLUS_TRIES
        self._decided = frozenset(cycle.verdicts)
        self.changed: dict[str, str] = {}

    def give(self, workload: Workload, counts: tuple[int, ...]) -> bool:
        """Whether a workload that runs got one more pod, where others lose one."""
        cycle, pool, one = self._cycle, self._cycle.admission(workload).pool, self._alone(workload, counts)
        for rule in rules_for(one, pool, cycle) if workload.key in cycle.draft.running and self._tries else ():
            is_right = rule.cause in (Cause.RECLAIMED, Cause.PREEMPTED) and not rule.is_mixed
            candidates = self._candidates(rule, pool) if is_right else None
            if candidates and (candidates.all or workload.key in self.changed.values()):
                self._tries -= 1
                others = [key for key, taker in self.changed.items() if taker != workload.key]  # of this plan
                if self._take(Search(candidates, one, others), workload, counts):
                    return True
        return False

    def _alone(self, workload: Workload, counts: tuple[int, ...]) -> Workload:
        """The workload as if it were the one pod."""
        return replace(workload, podsets=_single(workload.podsets[counts.index(1)]), preemptible=True)

    def _candidates(self, rule: EvictionRule, pool: str) -> CandidateSet:
        before, equivalence = rule.touches, ("surplus", *rule.equivalence)
        touches = lambda one: one.workload.key not in self._decided and before(one)  # noqa: E731
        rule = replace(rule, equivalence=equivalence, touches=touches, shield=lambda _: ("", None), keeps_first=True)
        return self._cycle.memo.of(CandidateSets).of(rule, pool, self._cycle)

    def _take(self, search: Search, workload: Workload, counts: tuple[int, ...]) -> bool:
        """Whether it has a place in what is taken or was given before, if that and what is idle is all it needs. What
        was taken for a limit and is not needed beside that place is given back, the dearest first."""
        cycle, draft, stands = self._cycle, self._cycle.draft, self._cycle.admission(workload)
        with draft.trial() as trial:
            placed = None
            if search.unlock() and search.cover():
                with cycle.timeline.kept(workload):  # of what is taken, too, and undone without giving that back
                    placed = place(draft.ahead(), cycle.ask(workload, counts, stands), stands.pool)
            if placed and self._is_fair(search, workload, placed):
                for candidate in reversed(search.candidates.in_order(search.taken)):
                    if has_room_beside(search, candidate) and spares(search, candidate, stays=True):
                        search.taken.remove(candidate)
                trial.keep()
                record_victims(search)
                self.changed |= dict.fromkeys((candidate.key for candidate in search.taken), workload.key)
                _say(workload, stands, placed, cycle)
                return True
        search.forget()
        return False

    def _is_fair(self, search: Search, workload: Workload, placed: Placements) -> bool:
        """Whether, with these pods, it waits only for workloads that shrink for it, now or before."""
        draft, stands = self._cycle.draft, self._cycle.admission(workload)
        givers = {one.key for one in search.taken} | {key for key, it in self.changed.items() if it == workload.key}
        draft.resize(workload.key, joined(workload, stands, placed))
        return is_fair(search) and givers.issuperset(draft.waits_for(workload.podsets, Admission(stands.pool, placed)))


def joined(workload: Workload, stands: Admission, more: Placements) -> Admission:
    """What stands with more behind it, ranks going on; podsets in the workload's order."""
    standing, added = ({one.name: one.nodes for one in placed} for placed in (stands.podsets, more))
    podsets = []
    for name in (one.name for one in workload.podsets if one.name in standing or one.name in added):
        shares = list(standing.get(name, ()))
        for share in added.get(name, ()):
            if shares and shares[-1].node == share.node and bool(shares[-1].devices) == bool(share.devices):
                last = shares.pop()
                share = NodeShare(share.node, last.count + share.count, last.devices + share.devices)
            shares.append(share)
        podsets.append(PodSetPlacement(name, tuple(shares)))
    return Admission(stands.pool, tuple(podsets))


class Growth:
    """Elastic workloads of a leaf: by priority, then nearest their minimum. `stuck`: podsets that found no place."""

    def __init__(self, stuck: Stuck, cycle: Cycle) -> None:
        self._stuck, self._cycle = stuck, cycle
        self._heap: list[tuple[int, int, float, str, Workload]] = []

    def enter(self, workload: Workload) -> None:
        """Let it stand in line for one more pod, if it can have one."""
        counts, more = self._cycle.counts(workload), next_pod(workload, self._stuck, self._cycle)
        if any(more):
            surplus = sum(counts) - sum(self._cycle.least(workload))
            heappush(self._heap, (-workload.priority, surplus, workload.submitted, workload.key, workload))

    def head(self) -> Workload | None:
        return self._heap[0][-1] if self._heap else None

    def pass_on(self, *, has_started: bool) -> Workload | None:
        """The head has had its turn; the next. It stands in line again, if it got no pod with its other podsets."""
        workload = heappop(self._heap)[-1]
        if not has_started:
            self._stuck.add((workload.key, next_pod(workload, self._stuck, self._cycle).index(1)))
        self.enter(workload)
        return self.head()


def next_pod(workload: Workload, stuck: Stuck, cycle: Cycle) -> tuple[int, ...]:
    """One pod of the podset nearest its minimum that is neither complete nor stuck."""
    counts = cycle.counts(workload)
    short = [at for at, podset in enumerate(workload.podsets) if counts[at] < podset.count]
    open_ = [at for at in short if (workload.key, at) not in stuck]
    best = min(open_, key=lambda at: counts[at] - workload.podsets[at].min_count, default=-1)
    return tuple(int(at == best) for at in range(len(counts)))


def grow(cycle: Cycle) -> None:
    """Elastic workloads into what is left, one pod at a time, the queues in their order."""
    lines, stuck, draft = dict[str, Growth](), Stuck(), cycle.draft
    workloads = [*map(attrgetter("workload"), draft.running.values()), *map(itemgetter(0), draft.started.values())]
    kinds = {id(podsets): podsets for podsets in map(attrgetter("podsets"), workloads)}
    elastic = {key for key, podsets in kinds.items() if any(podset.is_elastic for podset in podsets)}
    for workload in [one for one in workloads if id(one.podsets) in elastic] if elastic else ():
        one = draft.running.get(workload.key)
        stays = one and (one.is_leaving or one.is_promised or one.lost or workload.key in draft.shrunk)
        if not stays and refusal(workload, cycle) is None:
            lines.setdefault(workload.queue, Growth(stuck, cycle)).enter(workload)
    if not lines:
        return
    grown, surplus = set[str](), Surplus(cycle)
    for workload in Order(draft, lines, lambda one: _wish(one, stuck, cycle), is_steady=False).in_order(grown):
        grown.discard(workload.key)
        more = next_pod(workload, stuck, cycle)
        may_grow = workload.key not in draft.shrunk and not over_budget(workload, more, cycle)
        if may_grow and (complete(workload, more, cycle) or surplus.give(workload, more)):
            surplus.changed.setdefault(workload.key, "")
            grown.add(workload.key)
    for key, at in sorted(stuck)[:MOST_TOLD] if cycle.policy.tells_why else ():
        if key in draft.running and key not in cycle.verdicts:
            cycle.short[key] = Keep(key, _shortage(draft.running[key].workload, at, cycle))


def _shortage(workload: Workload, at: int, cycle: Cycle) -> Why:
    """Why it gets no pod more of this podset."""
    stands, more = cycle.admission(workload), tuple(int(row == at) for row in range(len(workload.podsets)))
    pool, ask = stands.pool, cycle.ask(workload, more, stands)
    asked = cycle.tree.amounts(workload.podsets, more, pool)
    if why := over_budget(workload, more, cycle) or over_limit(cycle.accounts(workload, pool), asked):
        return why
    is_kept = place(cycle.draft, ask, pool) is not None
    return (Reason.HELD_FOR, Facts(pool=pool)) if is_kept else explain(cycle.draft, ask, (pool,))


def _wish(workload: Workload, stuck: Stuck, cycle: Cycle) -> tuple[str, Demand]:
    """The pool that it runs in, and what it would take of it."""
    pool = cycle.admission(workload).pool
    return pool, cycle.tree.amounts(workload.podsets, next_pod(workload, stuck, cycle), pool)
