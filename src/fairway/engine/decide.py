"""One cycle: what must stop, what starts and where, what is evicted for it, why the rest waits and until when.

The order is by workload, not by means: the next workload may make room before a later one is admitted for free, and a
hold keeps later ones out of room that is promised. What each step means stands where it is defined.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import count
from operator import attrgetter
from typing import NamedTuple

from .admit import admit, follow, hold, wait
from .batch import Batch
from .cycle import Attempt, Cycle
from .elastic import grow
from .eligibility import commitments
from .lifecycle import release, replace_lost
from .model import Workload
from .plan import Keep, Plan, Verdict, Wait
from .policy import Policy
from .queueing import Order, PendingQueue, pending_queues
from .reclaim import reclaim
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
    reserved = {name: sum(commitments(at, cycle).values()) for name, at in bounded.items()}
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
