"""One cycle: what must stop, what starts and where, what is evicted for it, why the rest waits and until when.

The order is by workload, not by means: the next workload may make room before a later one is admitted for free, and a
hold keeps later ones out of room that is promised. What each step means stands where it is defined.

Each step of a workload's turn hands on what it found (`Attempt`); of several reasons the first by precedence is told.
The facts of a wait are figures and keys, never words; a counterfactual is tried before it is told.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import chain, count
from operator import attrgetter
from typing import NamedTuple

from .batch import Batch
from .candidates import CandidateSets
from .cycle import Attempt, Cycle
from .elastic import grow
from .eligibility import commitments, delay, over_guaranteed, over_limit, refusal
from .eviction_rules import full_bucket, is_above, over_share, rules_for
from .explain import census, explain, may_fit, open_to
from .lifecycle import release, replace_lost
from .model import CPU, GPU, Workload
from .plan import RANK, Cause, Facts, Keep, Plan, Reason, Verdict, Wait, Why
from .policy import Policy
from .queueing import Order, PendingQueue, is_aged, is_early, pending_queues
from .reclaim import reclaim
from .reservations import Window
from .snapshot import Snapshot


def decide(snapshot: Snapshot, policy: Policy) -> Plan:
    """One verdict for each pending and each running workload; same input, equal plan; the input is not changed."""
    cycle = Cycle(snapshot, policy)
    lines, lost = _begin(cycle)
    batch = Batch(cycle, order := Order(cycle.draft, lines, cycle.wish))
    for workload in order.in_order(cycle.draft.started):
        cycle.verdicts[workload.key] = _verdict(admit(workload, cycle), cycle)
        batch.follow(workload)
    for workload in lost:
        cycle.say(wait(admit(workload, cycle), cycle))  # no queue takes it
    grow(cycle)  # elastic workloads into what is left or lent, one pod at a time
    return plan_of(cycle, lines)


def turns(snapshot: Snapshot, policy: Policy) -> Iterator[tuple[str, bool]]:
    """Waiting workloads in their turn, and whether `decide` starts each without waiting for others to stop."""
    cycle = Cycle(snapshot, policy)
    lines, _ = _begin(cycle)
    for workload in Order(cycle.draft, lines, cycle.wish).in_order(cycle.draft.started):
        attempt = admit(workload, cycle)
        yield workload.key, attempt.verdict is not None and not attempt.verdict.after
        cycle.verdicts[workload.key] = _verdict(attempt, cycle)


def _begin(cycle: Cycle) -> tuple[dict[str, PendingQueue], list[Workload]]:
    """Decides what must stop or come back. The lines of what waits, and the workloads that are in none."""
    cycle.foresee()  # windows, and which workloads will have waited too long
    release(cycle)  # time limits, drains, lost nodes, windows that open
    replace_lost(cycle)  # pods lost from running gangs
    waiting = [one for one in cycle.snapshot.pending if not cycle.verdicts or one.key not in cycle.verdicts]
    return pending_queues(cycle.tree, waiting, cycle.policy, cycle.is_blocked)


def _verdict(attempt: Attempt, cycle: Cycle) -> Verdict:
    """What comes of a workload's turn, where it found no room that it may have now."""
    return (
        attempt.verdict
        or reclaim(attempt, cycle)  # in the room others can be moved from or made to give back
        or hold(attempt, cycle)  # keep room coming free, and say when
        or wait(attempt, cycle)  # and say why
    )


class LastLine(NamedTuple):
    """A line of the cycle before, if nothing was started then, and the waits of those that were passed over."""

    waiting: list[Workload]
    heads: list[Workload]
    passed: list[Workload]
    leaders: list[Workload]
    waits: dict[str, Wait]

    def stands(self, line: PendingQueue, before: dict[str, Wait], told: dict[str, Wait]) -> bool:
        """Whether those passed over then wait as they did. `told`: what was decided now of those that were asked."""
        count = len(self.passed)
        if line.is_strict or line.passed[:count] != self.passed or line.leaders[:count] != self.leaders:
            return False
        pairs = [(before[one.key], told.get(one.key)) for one in self.heads]
        return all(now and was.reason is now.reason and was.facts is now.facts for was, now in pairs)


class LastPlan:
    """The waits of the cycle before, what it kept, and the place of each in its queue, by key; its lines, by leaf."""

    def __init__(self) -> None:
        self.waits, self.keeps, self.places = dict[str, Wait](), dict[str, Keep](), dict[str, int]()
        self.lines = dict[str, LastLine]()

    def place(self, lines: dict[str, PendingQueue], started: Collection[str]) -> None:
        """The place of each that still waits in its line, from 1: as before, if all that has changed stands behind."""
        was = {name: it.waiting for name, it in self.lines.items()}
        is_same = was.keys() == lines.keys() and not started
        if not is_same or any(line.waiting[: len(was[name])] != was[name] for name, line in lines.items()):
            self.lines, self.places = {}, {}
        for name, line in lines.items():
            stood = len(self.lines[name].waiting) if self.lines else 0
            still = [one.key for one in line.waiting[stood:] if one.key not in started]
            self.places.update(zip(still, count(stood + 1)))


def plan_of(cycle: Cycle, lines: dict[str, PendingQueue]) -> Plan:
    """All verdicts in the order decided, each wait with its position; one not asked for waits as, or behind, another.
    What has not changed is the same value as in the cycle before, so that to compare plans costs little."""
    verdicts, last, started = cycle.verdicts, cycle.snapshot.memo.of(LastPlan), cycle.draft.started
    last.place(lines, started)
    before, waits, keeps = last.waits, dict[str, Wait](), dict[str, Keep]()
    for key, verdict in verdicts.items():
        if type(verdict) is Wait:
            found = before[key].facts if key in before and before[key].facts == verdict.facts else verdict.facts
            verdicts[key] = waits[key] = replace(verdict, facts=found, position=last.places.get(key, 0))
    passed = {name: _passed(name, line, waits, cycle) for name, line in lines.items()}
    for it in passed.values():
        waits |= it.waits
    verdicts |= waits
    for one in cycle.snapshot.running:
        if (key := one.workload.key) not in verdicts and one.is_promised:
            verdicts[key] = cycle.confirm(one)
        elif key not in verdicts and key in cycle.short:
            verdicts[key] = cycle.short[key]
        elif key not in verdicts:
            verdicts[key] = keeps[key] = last.keeps.get(key) or Keep(key)
    last.waits, last.keeps, last.lines = waits, keeps, {} if started else passed
    bounded = {name: at for name, at in cycle.tree.branches.items() if at.queue.budget is not None}
    reserved = {name: sum(commitments(at, cycle).values(), 0.0) for name, at in bounded.items()}
    shares, guaranteed = cycle.tree.shares(), cycle.tree.shares(attrgetter("guaranteed"))
    return Plan(tuple(verdicts.values()), shares, cycle.again_at, reserved, guaranteed)


def _passed(name: str, line: PendingQueue, told: dict[str, Wait], cycle: Cycle) -> LastLine:
    """What those wait for that were passed over: as, or behind, their leader. `told`: what was decided of leaders."""
    last = cycle.snapshot.memo.of(LastPlan)
    before, places, was, leader = last.waits, last.places, last.lines.get(name), None
    waits, stood = (was.waits, len(was.passed)) if was and was.stands(line, before, told) else (dict[str, Wait](), 0)
    for workload, first in zip(line.passed[stood:], line.leaders[stood:]):
        known, place = before.get(key := workload.key), places[key]
        if line.is_strict:
            reason, facts = follow(workload, first, cycle)
        elif first is not leader:
            leader, reason, facts = first, told[first.key].reason, told[first.key].facts
        if known is None or known.facts is not facts or known.reason is not reason or known.position != place:
            known = Wait(key, reason, facts, place)
        waits[key] = known
    return LastLine(line.waiting, line.heads, line.passed, line.leaders, waits)


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
        if why := over_limit(accounts, asked) or over_guaranteed(workload, pool, cycle):
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
    if window is None or window.held is None:
        return None
    _, admission = window.held
    cycle.holds[admission.pool] -= 1
    cycle.wake(window.since)
    is_guess = cycle.policy.tells_why and _is_unlimited(window, admission.nodes, cycle)
    return replace(wait(attempt, cycle), starts_at=window.since, held=admission, is_guess=is_guess)


def _is_unlimited(window: Window, nodes: set[str], cycle: Cycle) -> bool:
    """Whether something runs on the nodes of a hold, or is held there before it, without a time limit."""
    others = (one.held for one in cycle.timeline.windows if one is not window and one.held)
    there = chain(((one.workload, one.admission) for one in cycle.snapshot.running), others)
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
    if cycle.policy.makes_room and not workload.preempts and is_above(workload, cycle):
        found["preemptionPolicy"] = {}
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
    reserved = [one for one in windows if not one.owner]
    if 0 < len(reserved) < len(windows):  # whether reservations alone stop it, or holds beside them
        with cycle.timeline.beside(reserved):
            is_reserved = cycle.fit(workload, attempt.pools) is None
        windows = [one for one in windows if is_reserved is not bool(one.owner)]
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
