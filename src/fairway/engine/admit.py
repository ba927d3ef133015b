"""One workload's turn: start it in the room there is, keep room coming free for it, or say why it waits.

Each step hands on what it found (`Attempt`); of several reasons the first by precedence is told. The facts of a wait
are figures and keys, never words; a counterfactual is tried before it is told.
"""

from dataclasses import replace
from itertools import chain

from .candidates import CandidateSets
from .census import census, open_to
from .cycle import Attempt, Cycle
from .eligibility import delay, over_guaranteed, over_limit, refusal
from .eviction_rules import full_bucket, over_share, rules_for
from .explain import explain, may_fit
from .model import CPU, GPU, Workload
from .plan import RANK, Cause, Facts, Reason, Verdict, Wait, Why
from .queueing import is_aged, is_early
from .reservations import Window


def admit(workload: Workload, cycle: Cycle) -> Attempt:
    """Start it in idle room, or in room that a workload is leaving already, without delaying a hold."""
    if not cycle.is_plain(workload) and (why := refusal(workload, cycle) or delay(workload, cycle)):
        return Attempt(workload, (), (why,))
    pools, whys = open_pools(workload, cycle)
    found = cycle.find(workload, pools) if pools else None
    if found is None:
        return Attempt(workload, pools, whys)
    return Attempt(workload, pools, whys, cycle.start(workload, *found))


def open_pools(workload: Workload, cycle: Cycle) -> tuple[tuple[str, ...], tuple[Why, ...]]:
    """The pools in which quota lets it start, first those where the nearest queue with quotas stays within what it is
    guaranteed, in the pool and in all; and why not in others."""
    pools, opened, borrowed = cycle.fitting(workload, cycle.pools_of(workload)), list[str](), list[str]()
    whys = list[Why]()
    for pool in pools:
        accounts = cycle.accounts(workload, pool)
        if not accounts:
            opened.append(pool)
            continue
        asked, nearest = cycle.asked(workload, pool), [one for one in accounts if one.queue is accounts[0].queue]
        if why := over_limit(accounts, asked) or over_guaranteed(accounts, cycle.fixed(workload, pool)):
            whys.append(why)
        elif len(pools) == 1 or all(one.keeps_within(one.guaranteed, asked) for one in nearest):
            opened.append(pool)
        else:
            borrowed.append(pool)
    return (*opened, *borrowed), tuple(whys)


def hold(attempt: Attempt, cycle: Cycle) -> Verdict | None:
    """Reserve capacity for the first `holdDepth` blocked workloads of a pool, and for any past `maxWait`; for an early
    gang only where enforced limits say when it fits."""
    workload = attempt.workload
    pools = [pool for pool in attempt.pools if cycle.holds[pool] or is_aged(workload, cycle.tree)]
    if not pools or attempt.is_shut or not cycle.tries:
        return None
    ask = cycle.ask(workload, cycle.least(workload))
    if not (pools := [pool for pool in pools if may_fit(cycle.draft, ask, pool)]):
        return None
    cycle.tries -= 1
    window = cycle.timeline.hold(ask, pools, by_limit=is_early(workload, cycle.tree))
    if window is None or window.admission is None:
        return None
    cycle.holds[window.admission.pool] -= 1
    cycle.wake(window.since)
    is_guess = cycle.policy.tells_why and _is_unlimited(window, cycle)
    return replace(wait(attempt, cycle), starts_at=window.since, held=window.admission, is_guess=is_guess)


def _is_unlimited(window: Window, cycle: Cycle) -> bool:
    """Whether something runs on the nodes of a hold, or is held there before it, without a time limit."""
    nodes = window.admission.nodes if window.admission else frozenset[str]()
    others = (one for one in cycle.timeline.windows if one is not window)
    held = [(one.workload, one.admission) for one in others if one.workload and one.admission]
    there = chain(((one.workload, one.admission) for one in cycle.snapshot.running), held)
    return any(where.nodes & nodes and cycle.tree.time_limit(one) is None for one, where in there)


def wait(attempt: Attempt, cycle: Cycle) -> Wait:
    """Why it does not start now."""
    workload, whys = attempt.workload, list(attempt.whys)
    if cycle.policy.tells_why:
        whys += [*kept_for(attempt, cycle), *unentitled(attempt, cycle)]
    pools = cycle.pools_of(workload) if workload.queue in cycle.tree.branches else ()
    is_told = any(RANK[why] < RANK[Reason.LEVEL_UNKNOWN] for why, _ in whys)  # before all that room could say
    if pools and not is_told and not (workload.refused and whys and cycle.fit(workload, pools)):
        whys.append(_room_for(workload, pools, cycle))
    reason, facts = min(whys, key=lambda why: RANK[why[0]])
    if cycle.policy.tells_why and Reason.REFUSED is not reason and RANK[reason] > RANK[Reason.OVER_SHARE]:
        facts = replace(facts, shields=shields(attempt, cycle))
    if reason is Reason.OVER_SHARE:  # said with what is missing, which is told last
        facts = replace(whys[-1][1], queue=facts.queue, bounds=facts.bounds, used=facts.used)
    return Wait(workload.key, reason, facts)


def _room_for(workload: Workload, pools: tuple[str, ...], cycle: Cycle) -> Why:
    """What room says; looked into once for all that ask for the same while nothing is written."""
    key = id(workload.podsets), workload.topology, workload.excluded_nodes, workload.paused, pools, cycle.draft.version
    if key not in cycle.told:
        cycle.told[key] = explain(cycle.draft, cycle.ask(workload, cycle.least(workload)), pools)
    return cycle.told[key]


def shields(attempt: Attempt, cycle: Cycle) -> tuple[tuple[str, tuple[str, ...], float | None], ...]:
    """What keeps it from evicting: the setting, the workloads that it protects, if any, and when the first ends."""
    workload, found = attempt.workload, dict[str, dict[str, float | None]]()
    for pool in attempt.pools:
        for rule in rules_for(workload, pool, cycle):
            candidates = cycle.memo.of(CandidateSets).get((rule.cause, rule.equivalence, pool))
            if candidates is None or rule.is_mixed or rule.cause is Cause.CONSOLIDATED:
                continue
            for one, (kind, until) in [*candidates.shielded, *candidates.paired(workload)]:
                if rule.may_lose(one.workload.queue, None):
                    found.setdefault(kind, {})[one.workload.key] = until
            if candidates.has_cores and (full := full_bucket(pool, cycle)):
                found.setdefault(full[0], {})[""] = full[1]
    return tuple(
        (kind, tuple(sorted(filter(None, ends))), min((end for end in ends.values() if end is not None), default=None))
        for kind, ends in found.items()
    )


def unentitled(attempt: Attempt, cycle: Cycle) -> list[Why]:
    """No room is free for it, and it may take none of what others hold: its queue would be above its share."""
    workload, pools = attempt.workload, attempt.pools
    above = [over for pool in pools if (over := over_share(workload, pool, cycle))]
    if not above or len(above) < len(pools) or len(cycle.snapshot.queues) < 2:
        return []
    standing = chain((one.workload for one in cycle.snapshot.running), (one for one, _ in cycle.draft.started.values()))
    if all(one.queue == workload.queue for one in standing):
        return []
    return [(Reason.OVER_SHARE, above[0])]


def kept_for(attempt: Attempt, cycle: Cycle) -> list[Why]:
    """The workload, or queue, for which the room is kept in which it would start."""
    workload = attempt.workload
    windows = cycle.timeline.against(workload) if cycle.timeline.windows and attempt.pools else []
    if not windows or (found := cycle.fit(workload, attempt.pools)) is None:
        return []
    first, facts = min(windows, key=lambda window: window.since), _beside_keeps(workload, found[0], cycle)
    if first.owner:
        return [(Reason.HELD_FOR, replace(facts, blocking=(first.owner,), until=first.since))]
    since = first.since if first.since > cycle.now else None
    return [(Reason.RESERVED, replace(facts, queue=first.queue, since=since, until=first.until))]


def _beside_keeps(workload: Workload, pool: str, cycle: Cycle) -> Facts:
    """What it asks for, and the nodes of a pool without the room that is kept from it."""
    ask, asked = cycle.ask(workload, cycle.least(workload)), cycle.asked(workload, pool)
    resource, before = GPU if asked.get(GPU) else CPU, open_to(cycle.draft, ask, pool)
    with cycle.timeline.kept(workload):
        nodes = census(cycle.draft, ask, pool, before=before)
    return Facts(resource, asked.get(resource), pool=pool, census=nodes)


def follow(workload: Workload, first: Workload, cycle: Cycle) -> Why:
    """Why one behind a blocked head in a strict line waits: for reasons of its own, else for that head to go."""
    if why := refusal(workload, cycle) or delay(workload, cycle):
        return why
    _, whys = open_pools(workload, cycle)  # the limit or guarantee that it would break
    behind = Reason.HELD_FOR, Facts(blocking=(first.key,))
    return min(behind, *whys, _room_for(workload, cycle.pools_of(workload), cycle), key=lambda why: RANK[why[0]])
