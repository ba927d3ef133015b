"""Making room for one workload, in the order of its claims, and settling who leaves for it.

A claim is tried in a trial: free the limit, cover the places, place the whole gang; only then is it known who was
needed. The dearest are spared first; who fits elsewhere is moved, which needs nobody's leave; the saturation guard
looks at the whole change. If anything fails the draft is as before.
"""

from collections.abc import Callable
from operator import attrgetter

import numpy as np

from .candidates import Field, Fields, Gift, Search
from .cycle import Cycle
from .disruption import covered
from .eligibility import over_guaranteed, over_limit
from .eviction_rules import claims, own, stays_fair
from .model import Admission, Running, Workload
from .place import Placements, place
from .plan import Admit, Cause, Evict, Resize, Verdict
from .pod_affinity import bound_to_itself
from .quota import Account, Demand
from .resources import counts_of
from .snapshot import Mask

MOST_TRIES = {Cause.CONSOLIDATED: 8, Cause.RECLAIMED: 4}
"""Times that a claim is tried with other victims."""
LIMITS, SHARES = attrgetter("limit"), attrgetter("share")
"""What its queue and those above it must keep to."""
MOST_SPARED = 8
"""Victims without whom other places are looked for."""


def make_room(workload: Workload, cycle: Cycle) -> Verdict | None:
    """In room that others can be moved from or made to give back."""
    for pool in () if cycle.is_shut else cycle.pools_of(workload):
        is_limited = pool not in cycle.open
        if is_limited and over_guaranteed(cycle.accounts(workload, pool), cycle.fixed(workload, pool)):
            continue
        if not cycle.has_quota(workload, pool):
            continue
        givers = set[str]()  # queues of those that the claim before reaches
        for claim in claims(workload, pool, cycle):
            if (claim.cause is Cause.CONSOLIDATED and is_limited) or (claim.is_mixed and not givers):
                continue
            key = claim.cause, claim.likeness, pool
            fields = cycle.memo.of(Fields)
            if (field := fields.get(key)) is None:
                field = fields[key] = Field(claim, pool, cycle)
            givers = field.queues
            if len(givers) > claim.is_mixed and (verdict := _take(field, workload)) is not None:
                return verdict
    return None


def _take(field: Field, workload: Workload) -> Verdict | None:
    """Admit it after the victims that it needs; None if they do not suffice or may not be taken. Who cannot be moved is
    not asked again to move; where a queue above it would be too saturated, its own branch gives first; where the
    cheapest victim used up what its queue may lose, others are tried without it. Those beside whom it must stand are
    only asked where nobody else suffices."""
    kin = field.kin(workload)
    barred, stuck, bounds, tries = kin, set[str](), LIMITS, MOST_TRIES.get(field.claim.cause, 1)
    while tries > 0:
        search, hopeless = Search(field, workload, barred), field.cycle.hopeless.copy()
        with field.cycle.draft.trial() as trial:
            admission = _admission(search, bounds)
            if admission is not None and is_fair(search):
                trial.keep()
                return _settle(search, admission)
            if bounds is LIMITS:
                stuck = _stuck(search) if admission else {gift.key for gift in search.taken[:1]}
            is_unfair = admission is not None and field.claim.cause is not Cause.CONSOLIDATED and bounds is LIMITS
            bounds = SHARES if is_unfair else LIMITS
            barred = barred if is_unfair else barred | stuck
        field.cycle.hopeless = hopeless  # what had no place beside this one may have it beside another
        search.forget()
        if not search.tried and not kin:
            return None
        if kin:
            kin, barred, bounds = set[str](), set[str](), LIMITS
        else:
            tries -= 1
    return None


def _stuck(search: Search) -> set[str]:
    """Who found no place elsewhere; where all did, who may not be moved."""
    running = search.cycle.draft.running
    stays = {gift.key for gift in search.taken if running[gift.key].moves_to is None}
    if stays or search.field.claim.cause is not Cause.CONSOLIDATED:
        return stays
    return _over_budget([gift.victim.one for gift in search.taken], search.cycle)


def _admission(search: Search, bounds: Callable[[Account], Demand]) -> Admission | None:
    """Start it in the room of as few victims as it takes, moving those who fit elsewhere."""
    if not search.unlock() or not search.unlock(bounds) or (placed := _placed(search)) is None:
        return None
    admission = Admission(search.field.pool, placed)
    search.cycle.draft.start(search.workload, admission)
    _spare(search)
    if not _are_due(search):
        return None
    _move(search)
    return search.cycle.draft.started[search.workload.key][1]


def _placed(search: Search) -> Placements | None:
    """Where it fits once those taken are gone."""
    if search.cover() and (placed := _found(search)) is not None:
        return placed
    if not search.may_suffice():
        return None
    if all(_found(search) is None for _ in search.everything()):
        return None
    search.cut(lambda: _found(search) is not None)
    return _found(search)


def _found(search: Search, allowed: Mask | None = None) -> Placements | None:
    cycle, workload = search.cycle, search.workload
    ask = cycle.ask(workload, cycle.least(workload))._replace(allowed=search.allowed if allowed is None else allowed)
    with cycle.timeline.kept(workload):
        return place(cycle.draft.ahead(), ask, search.field.pool)


def _spare(search: Search) -> None:
    """Let those remain, the dearest first, without whose going every limit is kept as well, and every place, or the
    gang has others."""
    draft, is_wide = search.cycle.draft, sum(search.cycle.least(search.workload)) > 1
    tries = MOST_SPARED if is_wide or search.cycle.snapshot.is_social else 0
    for gift in reversed(search.field.in_order(search.taken)):
        is_part_of_core = gift.pod is not None and draft.running[gift.key].is_leaving
        has_room = not is_part_of_core and _has_room(search, gift)
        if is_part_of_core or not (has_room or tries):
            continue
        gift.give_back(search.cycle)
        is_fair_still = search.field.claim.cause is Cause.CONSOLIDATED or is_fair(search)
        is_right = is_fair_still and _keeps_limits(search.workload, search.field.pool, search.cycle)
        may_stay = has_room and not search.cycle.snapshot.is_social  # else whoever remains is a neighbour
        if is_right and (may_stay or _goes_elsewhere(search)):
            search.taken.remove(gift)
        else:
            gift.take(search.cycle)
        tries -= not has_room


def _has_room(search: Search, gift: Gift) -> bool:
    """Whether its places are still there beside the newcomer's."""
    ahead = search.cycle.draft.ahead()
    for row in gift.rows:
        amounts, devices = search.field.gives(gift, row)
        free, parts = ahead.free[:, row].tolist(), ahead.device_free[row].tolist()
        if any(0 < amount > left for amount, left in zip(amounts, free)):
            return False
        if any(0 < amount > left for amount, left in zip(devices, parts)):
            return False
    return True


def _keeps_limits(workload: Workload, pool: str, cycle: Cycle) -> bool:
    """Of what it asks for; what is over a limit already does not stand in its way."""
    bounds = ((one.held, *bound) for one in cycle.accounts(workload, pool) for bound in one.limit.items())
    asked = cycle.asked(workload, pool)
    return all(held[resource] <= limit for held, resource, limit in bounds if asked.get(resource))


def _are_due(search: Search) -> bool:
    """Whether the queues of those who go may still lose them: who was spared may be one who made them owe it."""
    may_lose, queues = search.field.claim.may_lose, {gift.queue for gift in search.taken}
    return all(any(may_lose(queue, gift.counted) for gift in search.taken if gift.queue == queue) for queue in queues)


def _is_entitled(search: Search) -> bool:
    """Of a mixed claim: whether its queue is within its share, now that it starts."""
    leaf = search.cycle.tree.branches[search.workload.queue]
    return not search.field.claim.is_mixed or all(
        one.keeps_within(one.share, {}) for one in own(leaf, search.field.pool)
    )


def _still_stands(search: Search) -> bool:
    """Whether the newcomer would be placed there still, had it no other nodes to go to."""
    cycle, workload = search.cycle, search.workload
    with cycle.draft.trial():
        _, admission = cycle.draft.started[workload.key]
        cycle.draft.vanish(workload.key)
        own = np.zeros(len(cycle.snapshot.nodes), np.bool_)
        own[[cycle.snapshot.row_of[name] for name in admission.nodes]] = True
        return _found(search, own) == admission.podsets


def _goes_elsewhere(search: Search) -> bool:
    """Whether the newcomer finds places, maybe others, and takes them."""
    draft, workload = search.cycle.draft, search.workload
    with draft.trial() as trial:
        draft.vanish(workload.key)
        if (placed := _found(search)) is not None:
            draft.start(workload, Admission(search.field.pool, placed))
            trial.keep()
    return placed is not None


def _move(search: Search) -> None:
    """Whoever fits elsewhere goes there; alike ones are not tried twice. A newcomer who is the first of its kind would
    have to stand beside those of its kind that move, and one that spreads would have to count them. What Keeps leave is
    left to each after the newcomer and those before it."""
    cycle, hopeless = search.cycle, search.cycle.hopeless
    cycle.timeline.stay(search.workload, cycle.draft.started[search.workload.key][1])
    looks = any(bound_to_itself(podset.pod) or podset.pod.spread for podset in search.workload.podsets)
    for gift in reversed(search.field.in_order(search.taken)):
        one = gift.victim.one
        if gift.pod is None and id(one.workload.podsets) not in hopeless:
            with cycle.draft.trial() as trial:
                found = elsewhere(one, cycle, is_whole=search.field.claim.cause is Cause.CONSOLIDATED)
                if found is not None:
                    cycle.draft.move(gift.key, found)
                    cycle.timeline.stay(one.workload, found)
                    both = (one.workload, found.pool), (search.workload, search.field.pool)
                    is_within = all(_keeps_limits(*each, cycle) for each in both)
                    if is_within and (not looks or _still_stands(search)):
                        trial.keep()
                        continue
            hopeless.add(id(one.workload.podsets))


def elsewhere(one: Running, cycle: Cycle, *, is_whole: bool = False) -> Admission | None:
    """A place for all the pods it has and lost, else for as many as it needs unless it is to stay whole; in idle room
    and in what it holds itself."""
    workload, full = one.workload, cycle.whole(one)
    with cycle.draft.trial(), cycle.timeline.kept(workload):
        cycle.draft.vanish(workload.key)
        for counts in dict.fromkeys((full, full if is_whole else cycle.least(workload))):
            for pool in cycle.pools_of(workload):
                accounts, asked = cycle.accounts(workload, pool), cycle.tree.amounts(workload.podsets, counts, pool)
                if (one.lost or pool != one.admission.pool) and over_limit(accounts, asked):
                    continue
                if (placed := place(cycle.draft, cycle.ask(workload, counts), pool)) is not None:
                    return Admission(pool, placed)
    return None


def is_fair(search: Search) -> bool:
    """Whether the whole change is within the claim: a move leaves nobody without a place and keeps disruption budgets;
    reclaim leaves the asker less saturated than those it takes from."""
    cycle, draft = search.cycle, search.cycle.draft
    evicted = [gift.victim for gift in search.taken if draft.running[gift.key].moves_to is None]
    if search.field.claim.cause is Cause.CONSOLIDATED:
        return not evicted and not _over_budget([gift.victim.one for gift in search.taken], cycle)
    if search.field.claim.cause is Cause.RECLAIMED or search.field.claim.is_mixed:
        own = search.workload.queue
        others = [(queue, one.amounts) for one in evicted if (queue := one.one.workload.queue) != own]
        return _is_entitled(search) and stays_fair(search.workload, others, search.field.pool, cycle)
    return True


def _over_budget(moved: list[Running], cycle: Cycle) -> set[str]:
    """Who may not be moved with the others, of the first PodDisruptionBudget that would lose more pods than it allows:
    those whose pods alone are more, else the last."""
    for budget in cycle.snapshot.disruptions:
        found = ((one, covered((budget,), one.workload.podsets, one.admission)) for one in moved)
        pods = {one.workload.key: count for one, budgets in found for _, count in budgets}
        if sum(pods.values()) > budget.allowed:
            return {key for key, count in pods.items() if count > budget.allowed} or {list(pods)[-1]}
    return set()


def _settle(search: Search, admission: Admission) -> Verdict:
    """Say who leaves, who shrinks and who comes."""
    cycle, workload, victims = search.cycle, search.workload, tell(search)
    waits = cycle.draft.unborne if suffices(search, admission) else cycle.draft.leavers
    others = waits(workload.podsets, admission)
    return Admit(workload.key, admission, tuple(sorted(victims.union(others))))


def tell(search: Search) -> set[str]:
    """Say who leaves and who shrinks; their keys."""
    cycle, workload, cause = search.cycle, search.workload, search.field.claim.cause
    victims = {gift.key: gift.victim for gift in search.taken}
    broken = {gift.key: budget.key for gift in search.taken for budget, _ in gift.budgets
              if cycle.disrupted[budget.key] > budget.allowed}
    for key, victim in victims.items():
        now, podsets = cycle.draft.running[key], victim.one.workload.podsets
        if now.is_leaving:
            is_other = victim.one.workload.queue != workload.queue
            why = Cause.RECLAIMED if search.field.claim.is_mixed and is_other else cause
            cycle.say(Evict(key, why, workload.key, now.moves_to, broken.get(key, "")))
        else:
            names = [podset.name for podset in podsets]
            before = tuple(zip(names, counts_of(podsets, victim.one.admission)))
            after = tuple(zip(names, counts_of(podsets, now.admission)))
            cycle.say(Resize(key, before, after, now.admission, workload.key))
    return set(victims)


def suffices(search: Search, admission: Admission) -> bool:
    """Whether what its own victims give, with what is idle, is all the room it takes, so that it waits for nobody who
    leaves for another."""
    draft = search.cycle.draft
    for row, takes in draft.holdings(search.workload.podsets, admission).items():
        given = [search.field.gives(gift, row) for gift in search.taken if row in gift.rows]
        for part, free in enumerate((draft.free[:, row].tolist(), draft.device_free[row].tolist())):
            for at, amount in enumerate(takes[part]):
                gives = sum(one[part][at] for one in given if one[part]) if amount else 0
                if amount > max(free[at] + amount, 0) + gives:
                    return False
    return True
