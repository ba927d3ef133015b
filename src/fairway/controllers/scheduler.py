"""The loop: changed → batch → snapshot → decide → check → drop → assume → write.

It decides nothing itself. A plan is carried out only as far as the referee lets it: faulty items are dropped together
with what depends on them, and if the rest is still faulty nothing is done. What was dropped backs off, is counted, and
its snapshot is recorded. A start that took too long is the one thing added to a plan, since only watching pods shows
it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from fairway.engine import Fault, Plan, Policy, Resize, Snapshot, decide
from fairway.referee import check

from .amend import drop, overdue, with_verdicts
from .apply import Writer
from .facts import Refusal
from .happening import Happening
from .means import Means
from .queues import Queues, usage_of

FIRST_SECONDS, LONGEST_SECONDS = 60.0, 3600.0
LONGEST_REST, SHOWN_SECONDS = 1.0, 0.5
LONG_SECONDS = 5.0  # while decisions are written: each that is shown says only when it took place
T = TypeVar("T")
Record = Callable[[Snapshot, Plan, Iterable[Fault]], None]
log = logging.getLogger(__name__)


class Scheduler:
    def __init__(self, means: Means, policy: Policy, writer: Writer, queues: Queues) -> None:
        self.means, self.policy, self.writer, self.queues = means, policy, writer, queues
        self.changed, self.urgent, self.freed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._spent = 0.0  # CPU seconds that deciding and checking took in the last cycle

    async def run(self, record: Record, note: Callable[[Plan], None]) -> None:
        """Until cancelled. `record` is given what is refused, `note` every plan carried out. Between two cycles there
        is a rest twice as long as the first computed: most of the time is left to what is decided. What is urgent
        ends it. What changes together is decided together, but room that came free is given away at once."""
        clock, facts, again, rested = self.means.client.clock, self.means.facts, None, 0.0
        while True:
            await self._awaken(_first(again, facts.outage.again_at))
            await self._rest(rested)
            if not self.means.election.is_leader():
                await self.means.election.acquired.wait()
            started = clock.now()
            if facts.settle(started) or (again is not None and again <= started):
                again, plan = await self._cycle(record)
                note(plan)
                rested = clock.now() + min(2 * self._spent, LONGEST_REST)
            elif facts.is_shown:
                again = _first(again, started + (LONG_SECONDS if self.writer.is_writing else SHOWN_SECONDS))

    async def _rest(self, until: float) -> None:
        clock = self.means.client.clock
        with suppress(TimeoutError):
            await clock.within(max(0.0, until - clock.now()), self.urgent.wait())
        self.urgent.clear()
        with suppress(TimeoutError):
            await clock.within(self.means.settings.batch_window, self.freed.wait())
        self.freed.clear()

    async def _awaken(self, again: float | None) -> None:
        """Returns when something changed, or at `again`."""
        pause = None if again is None else max(0.0, again - self.means.now())
        with suppress(TimeoutError):
            await self.means.client.clock.within(pause, self.changed.wait())
        self.changed.clear()

    async def _cycle(self, record: Record) -> tuple[float | None, Plan]:
        means, clock = self.means, self.means.client.clock
        started = clock.now()
        means.facts.is_shown = False
        snapshot = self.policy.seen(self.queues.remembered(means.facts.state.snapshot(started)))
        self._spent = 0.0
        plan = await self._compute(lambda: decide(snapshot, self.policy))
        means.metrics.cycle.observe(clock.now() - started)
        late, next_late = overdue(snapshot, means.view.workloads)
        plan = with_verdicts(plan, late)
        checked = clock.now()
        faults = await self._compute(lambda: check(snapshot, plan))
        means.metrics.check.observe(clock.now() - checked)
        if faults:
            record(snapshot, plan, faults)
            plan = self._without_faulty(snapshot, plan, faults)
        self._assume(snapshot, plan)
        self.writer.put(snapshot, plan)
        usage = usage_of(snapshot)
        self.queues.show(snapshot, plan, usage)
        means.metrics.show(snapshot, plan, usage)
        return _first(plan.again_at, next_late), plan

    async def _compute(self, work: Callable[[], T]) -> T:
        """The result of `work`, from a thread; what it spends counts for the rest."""
        clock = self.means.client.clock

        def measured() -> T:
            began = clock.spent()
            result = work()
            self._spent += clock.spent() - began
            return result

        return await clock.in_thread(measured)

    def _assume(self, snapshot: Snapshot, plan: Plan) -> None:
        """The next cycle sees it before the API server does."""
        self.means.facts.state.assume(plan)
        smaller = {it.workload: it.admission for it in plan.verdicts if isinstance(it, Resize) and it.beneficiary}
        for one in snapshot.running if smaller else ():
            if one.workload.key in smaller:
                self.means.facts.shrink(one, smaller[one.workload.key])

    def _without_faulty(self, snapshot: Snapshot, plan: Plan, faults: list[Fault]) -> Plan:
        for fault in faults:
            self.means.journal.note(Happening("refused", fault.workload, {"rule": fault.rule, "detail": fault.detail}))
        self.means.metrics.refuse(faults)
        rest, dropped = drop(snapshot, plan, faults)
        why = {fault.workload: fault.rule for fault in faults}
        for key in dropped:
            times = self.means.facts.refusals[key].times + 1 if key in self.means.facts.refusals else 1
            until = snapshot.now + min(FIRST_SECONDS * 2 ** (times - 1), LONGEST_SECONDS)
            self.means.facts.refuse(key, Refusal(until, why.get(key, "its room was not to be had"), times))
        if again := check(snapshot, rest):
            log.error("a plan has faults still without its faulty items, nothing of it is done: %s", again[:3])
            rest, _ = drop(snapshot, rest, [Fault(it.workload, "Dropped") for it in rest.verdicts])
        return rest


def _first(*moments: float | None) -> float | None:
    return min((at for at in moments if at is not None), default=None)
