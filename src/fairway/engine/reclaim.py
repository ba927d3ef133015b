"""Making room for one workload, in the order of its rules, and settling what leaves for it.

A rule is tried in a trial: free the limit, cover the places, place the whole gang; only then is it known what was
needed. The dearest are spared first; what fits elsewhere is moved, which takes from no queue; the saturation guard
looks at the whole change. If anything fails the draft is as before.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from .candidates import Candidate, CandidateSet, CandidateSets, find_new_place, without
from .cycle import Attempt, Cycle
from .draft import Draft
from .eligibility import over_guaranteed
from .eviction_rules import can_save, over_share, pauses, rules_for, stays_fair
from .model import Admission, Running, Workload
from .place import Placements, place
from .plan import Admit, Cause, Evict, Resize, Verdict
from .pod_affinity import bound_to_itself
from .quota import Account, Demand
from .resources import sizes_of
from .search import Search
from .snapshot import Mask

MOST_TRIES = {Cause.CONSOLIDATED: 8, Cause.RECLAIMED: 4}  # times that a rule is tried with other victims
LIMITS, SHARES = attrgetter("limit"), attrgetter("share")  # what its queue and those above it must keep to
MOST_SPARED = 8  # victims to spare for which other places are sought


def reclaim(attempt: Attempt, cycle: Cycle) -> Verdict | None:
    """In room that others can be moved from or made to give back."""
    workload = attempt.workload
    for pool in () if attempt.is_shut else cycle.fitting(workload, cycle.pools_of(workload)):
        is_limited = pool not in attempt.pools
        if is_limited and over_guaranteed(workload, pool, cycle):
            continue
        if not cycle.timeline.has_quota(workload, pool, cycle.asked(workload, pool)):
            continue
        givers = set[str]()  # queues of those that the rule before reaches
        for rule in rules_for(workload, pool, cycle):
            if (rule.cause is Cause.CONSOLIDATED and is_limited) or (rule.is_mixed and not givers):
                continue
            if rule.cause is Cause.RECLAIMED and not any(rule.may_lose(queue, None) for queue in rule.queues()):
                continue  # no queue may lose anything: known before any candidate is looked at
            candidates = cycle.memo.of(CandidateSets).of(rule, pool, cycle)
            givers = candidates.queues
            if len(givers) > rule.is_mixed and (verdict := _take(candidates, workload)) is not None:
                return verdict
    return None


class Way(NamedTuple):
    """How a rule is tried: without `barred` victims, queues above the workload within `bounds`; `largest_last`: in the
    order in which queues lose most, `was_last` if that was tried. `stuck`: victims that are not tried again."""

    barred: frozenset[str] = frozenset()
    bounds: Callable[[Account], Demand] = LIMITS
    largest_last: bool = False
    was_last: bool = False
    stuck: frozenset[str] = frozenset()


def _take(candidates: CandidateSet, workload: Workload) -> Verdict | None:
    """Admit it after the victims that it needs, those beside which it must run if no others do; None: none do."""
    neighbours, way = candidates.neighbours(workload), Way()
    if neighbours:
        verdict = _try(candidates, workload, Way(frozenset(neighbours)))
        if not isinstance(verdict, Way | None):
            return verdict
    for _ in range(MOST_TRIES.get(candidates.rule.means, 1)):
        found = _try(candidates, workload, way)
        if not isinstance(found, Way):
            return found
        way = found
    return None


def _try(candidates: CandidateSet, workload: Workload, way: Way) -> Verdict | Way | None:
    """The verdict, where it can be admitted in this way, else another way; None where no candidate was of use."""
    search, cycle = Search(candidates, workload, way.barred, largest_last=way.largest_last), candidates.cycle
    hopeless = cycle.hopeless.copy()
    with cycle.draft.trial() as trial:
        admission = _admission(search, way.bounds)
        if admission is not None and is_fair(search):
            trial.keep()
            return _settle(search, admission)
        other = _other_way(search, way, is_placed=admission is not None)
    cycle.hopeless = hopeless  # what had no place beside this one may have it beside another
    search.forget()
    return other if search.tried else None


def _other_way(search: Search, way: Way, *, is_placed: bool) -> Way:
    """Where a queue above the workload would be too saturated, its own branch gives first; where small victims used up
    what their queues may lose, large ones go; else what cannot be moved, or was the cheapest, is not tried again."""
    rule, stuck = search.candidates.rule, way.stuck
    if way.bounds is LIMITS and not way.largest_last:
        stuck = frozenset(_stuck(search) if is_placed else {candidate.key for candidate in search.taken[:1]})
    if is_placed and rule.cause is not Cause.CONSOLIDATED and way.bounds is LIMITS:
        return way._replace(bounds=SHARES, stuck=stuck)
    if not is_placed and rule.means is Cause.RECLAIMED and search.is_spent and not way.was_last:
        return way._replace(bounds=LIMITS, largest_last=True, was_last=True, stuck=stuck)
    return Way(way.barred | stuck, was_last=way.was_last)


def _stuck(search: Search) -> set[str]:
    """Victims that found no place elsewhere; where all did, those that may not be moved."""
    running = search.cycle.draft.running
    stays = {candidate.key for candidate in search.taken if running[candidate.key].moves_to is None}
    if stays or search.candidates.rule.cause is not Cause.CONSOLIDATED:
        return stays
    return _over_budget(search)


def _admission(search: Search, bounds: Callable[[Account], Demand]) -> Admission | None:
    """Start it in the room of as few victims as it takes, moving those that fit elsewhere."""
    if not search.unlock() or not search.unlock(bounds):
        return None
    is_freed = bool(search.taken)  # by a bound: their room may make other victims needless
    if (placed := _placed(search)) is None:
        return None
    admission = Admission(search.candidates.pool, placed)
    search.cycle.draft.start(search.workload, admission)
    _fill_back(search, is_freed=is_freed)
    if not _are_due(search):
        return None
    _move(search)
    return search.cycle.draft.started[search.workload.key][1]


def _placed(search: Search) -> Placements | None:
    """Where it fits once those taken are gone."""
    if not search.may_suffice():
        return None
    if search.cover() and (placed := _found(search)) is not None:
        return placed
    if all(_found(search) is None for _ in search.everything()):
        return None
    search.cut(lambda: _found(search) is not None)
    return _found(search)


def _found(search: Search, allowed: Mask | None = None) -> Placements | None:
    cycle, workload = search.cycle, search.workload
    ask = cycle.ask(workload, cycle.least(workload))._replace(allowed=search.allowed if allowed is None else allowed)
    with cycle.timeline.kept(workload):
        return place(cycle.draft.ahead(), ask, search.candidates.pool)


def _fill_back(search: Search, *, is_freed: bool) -> None:
    """Spare victims, the dearest first, without which limits are kept, and the gang has this or another place; of those
    that must give room, the core, where their surplus is enough."""
    draft, is_wide = search.cycle.draft, sum(search.cycle.least(search.workload)) > 1
    is_social = search.cycle.snapshot.is_social
    is_aligned = any(podset.pod.alignment_required for podset in search.workload.podsets)
    tries, line = MOST_SPARED if is_wide or is_social or is_freed else 0, search.candidates.in_order(search.taken)
    while line:
        candidate = line.pop()
        if candidate.pod is not None and draft.running[candidate.key].is_leaving:
            continue  # a part of its core
        has_room = has_room_beside(search, candidate)
        may_stay = has_room and not (is_social or is_aligned)  # else what remains is a neighbour, or of its group
        if (has_room or tries) and spares(search, candidate, stays=may_stay):
            search.taken.remove(candidate)
        elif candidate.pod is None and not candidate.victim.lost and not is_social:
            line[:0] = _shrink(search, candidate)
        tries = max(0, tries - (not has_room))


def _shrink(search: Search, candidate: Candidate) -> list[Candidate]:
    """Take the surplus of a victim in place of all of it, if that makes room enough; the pods that go then."""
    cycle, victim, taken = search.cycle, candidate.victim, search.taken
    pods = [pod for name, those in victim.pods.items() for pod in those[-victim.surplus[name] :]]
    core = without(victim.one.admission, {pod.pod for pod in pods if pod.pod})
    kept, ahead = cycle.draft.holdings(victim.one.workload.podsets, core), cycle.draft.ahead()
    is_move = search.candidates.rule.cause is Cause.CONSOLIDATED
    if is_move or not pods or not all(ahead.has_room(row, amounts) for row, amounts in kept.items()):
        return []
    taken.remove(candidate)
    candidate.take(cycle, back=True)
    begun = len(taken)
    if search.take(pods) and is_fair(search) and not is_over_limit(search.workload, search.candidates.pool, cycle):
        return search.candidates.in_order(pods)
    for pod in taken[begun:]:
        pod.take(cycle, back=True)
    taken[begun:] = [candidate]
    candidate.take(cycle)
    return []


def spares(search: Search, candidate: Candidate, *, stays: bool) -> bool:
    """Give a victim back, if all is right without it and the workload `stays` or finds another place; whether so."""
    candidate.take(search.cycle, back=True)
    is_fair_still = search.candidates.rule.cause is Cause.CONSOLIDATED or is_fair(search)
    is_right = is_fair_still and not is_over_limit(search.workload, search.candidates.pool, search.cycle)
    if is_right and (stays or _take_another_place(search)):
        return True
    candidate.take(search.cycle)
    return False


def has_room_beside(search: Search, candidate: Candidate) -> bool:
    """Whether its places are still there beside those of the workload that starts."""
    ahead, gives = search.cycle.draft.ahead(), search.candidates.gives
    return all(ahead.has_room(row, gives(candidate, row)) for row in candidate.rows)


def is_over_limit(workload: Workload, pool: str, cycle: Cycle) -> bool:
    """Of what it asks for; what is over a limit already does not stand in its way."""
    return cycle.tree.exceeds_limit(workload.queue, pool, cycle.asked(workload, pool))


def _are_due(search: Search) -> bool:
    """Whether the queues of the victims may still lose them: one that was spared may be what made a queue owe it."""
    rule = search.candidates.rule
    sides = {queue: rule.side(queue) for queue in {one.queue for one in search.taken}}
    due = {sides[one.queue] for one in search.taken if rule.may_lose(one.queue, one.counted)}
    return due.issuperset(sides.values())


def _still_stands(search: Search) -> bool:
    """Whether the workload would be placed there still, had it no other nodes to go to."""
    cycle, workload = search.cycle, search.workload
    with cycle.draft.trial():
        _, admission = cycle.draft.started[workload.key]
        cycle.draft.vanish(workload.key)
        own = np.zeros(len(cycle.snapshot.nodes), np.bool_)
        own[[cycle.snapshot.row_of[name] for name in admission.nodes]] = True
        return _found(search, own) == admission.podsets


def _take_another_place(search: Search) -> bool:
    """Place the workload anew, maybe elsewhere; whether it has places."""
    draft, workload = search.cycle.draft, search.workload
    with draft.trial() as trial:
        draft.vanish(workload.key)
        if (placed := _found(search)) is not None:
            draft.start(workload, Admission(search.candidates.pool, placed))
            trial.keep()
    return placed is not None


def _move(search: Search) -> None:
    """A victim that fits elsewhere goes there; equivalents are not tried twice. A workload that is the first of its
    kind would have to stand beside those of its kind that move, and one that spreads would have to count them. What
    Keeps leave is left to each after the workload and the victims before it."""
    cycle, hopeless, rule = search.cycle, search.cycle.hopeless, search.candidates.rule
    cycle.timeline.stay(search.workload, cycle.draft.started[search.workload.key][1])
    looks = any(bound_to_itself(podset.pod) or podset.pod.spread for podset in search.workload.podsets)
    for candidate in reversed(search.candidates.in_order(search.taken)):
        one = candidate.victim.one
        if candidate.pod is None and id(one.workload.podsets) not in hopeless:
            with cycle.draft.trial() as trial:
                found = find_new_place(one, cycle, is_whole=rule.cause is Cause.CONSOLIDATED)
                if found is not None:
                    cycle.draft.move(candidate.key, found)
                    cycle.timeline.stay(one.workload, found)
                    own = search.workload, search.candidates.pool
                    is_over = any(is_over_limit(*each, cycle) for each in ((one.workload, found.pool), own))
                    is_over |= rule.is_mixed and over_share(*own, cycle, has_started=True) is not None
                    if not is_over and (not looks or _still_stands(search)):
                        trial.keep()
                        continue
            hopeless.add(id(one.workload.podsets))


def is_fair(search: Search) -> bool:
    """Whether the whole change is within the rule: a move leaves none without a place and keeps disruption budgets;
    reclaim leaves the asker less saturated than those it takes from."""
    cycle, draft = search.cycle, search.cycle.draft
    evicted = [candidate.victim for candidate in search.taken if draft.running[candidate.key].moves_to is None]
    if search.candidates.rule.cause is Cause.CONSOLIDATED:
        return not evicted and not _over_budget(search)
    if search.candidates.rule.means is Cause.RECLAIMED:
        own = search.workload.queue
        pairs = ((one.one.workload.queue, one.core.counted) for one in evicted)
        others = [*{(queue, id(lost)): (queue, lost) for queue, lost in pairs if queue != own}.values()]
        pool = search.candidates.pool
        if search.candidates.rule.is_mixed and over_share(search.workload, pool, cycle, has_started=True):
            return False
        return stays_fair(search.workload, others, pool, cycle)
    return True


def _over_budget(search: Search) -> set[str]:
    """Victims that may not be moved with the others, of the first PodDisruptionBudget that would lose more pods than it
    allows: those whose pods alone are more, else the last."""
    for budget in search.cycle.snapshot.disruptions:
        pods = {one.key: count for one in search.taken for other, count in one.budgets if other == budget}
        if sum(pods.values()) > budget.allowed:
            return {key for key, count in pods.items() if count > budget.allowed} or {list(pods)[-1]}
    return set()


def _settle(search: Search, admission: Admission) -> Verdict:
    """The verdict of the workload; those of its victims are recorded."""
    cycle, workload, victims = search.cycle, search.workload, record_victims(search)
    waits = cycle.draft.repelled_by if suffices(search, admission) else cycle.draft.waits_for
    others = waits(workload.podsets, admission)
    return Admit(workload.key, admission, tuple(sorted(victims.union(others))))


def record_victims(search: Search) -> set[str]:
    """Records the verdicts of the victims: evicted or shrunk; returns their keys."""
    cycle, workload, cause = search.cycle, search.workload, search.candidates.rule.cause
    victims = {candidate.key: candidate.victim for candidate in search.taken}
    broken = {candidate.key: budget.key for candidate in search.taken for budget, _ in candidate.budgets
              if cycle.disrupted[budget.key] > budget.allowed}
    for key, victim in victims.items():
        now, podsets = cycle.draft.running[key], victim.one.workload.podsets
        if now.is_leaving:
            is_other = victim.one.workload.queue != workload.queue
            why = Cause.RECLAIMED if search.candidates.rule.is_mixed and is_other else cause
            freezes, saves = _pause(victim.one, cycle) if now.moves_to is None else (False, False)
            cycle.say(Evict(key, why, workload.key, now.moves_to, broken.get(key, ""), freezes, saves))
        else:
            before, after = sizes_of(podsets, victim.one.admission), sizes_of(podsets, now.admission)
            cycle.say(Resize(key, before, after, now.admission, workload.key))
    return set(victims)


def _pause(victim: Running, cycle: Cycle) -> tuple[bool, bool]:
    """Whether a victim is paused, in memory if that has room beside its taker, else on disk; and whether on disk."""
    key, draft = victim.workload.key, cycle.draft
    if not pauses(victim, cycle):
        return False, False
    if draft.freeze(key):
        return True, False
    saves = can_save(victim, cycle) and draft.freeze(key, on_disk=True)
    return saves, saves


def suffices(search: Search, admission: Admission) -> bool:
    """Whether its own victims and idle room are all it takes, so that it waits for none that leaves for another."""
    draft = search.cycle.draft
    for row, takes in draft.holdings(search.workload.podsets, admission).items():
        given = [search.candidates.gives(candidate, row) for candidate in search.taken if row in candidate.rows]
        for at, (amount, free) in enumerate(zip(takes, draft.room(row))):
            gives = sum(one[at] for one in given if at < len(one)) if amount else 0
            if amount > max(free + amount, 0) + gives + (_lack(draft, row, at) if amount else 0):
                return False
    return True


def _lack(draft: Draft, row: int, at: int) -> int:
    """What a node has of a resource at the start, where that is below zero; promised room is held twice, and does not
    count."""
    snapshot = draft.snapshot
    if at >= len(snapshot.free) or (free := int(snapshot.free[at, row])) >= 0:
        return 0
    name = snapshot.nodes[row].name
    promised = [one for one in snapshot.running if one.is_promised and name in one.admission.nodes]
    return min(0, free + sum(draft.holdings(one.workload.podsets, one.admission)[row][at] for one in promised))
