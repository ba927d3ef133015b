"""Why each waiting workload waits, written to its Workload: never in the way of a decision, and bounded in number.

The first verdict on a workload is written as fast as any decision, but that its queue does not exist a moment later: a
queue made with its first workloads may be seen after them. After that another reason goes before all else;
other words are written every ten seconds and a position that alone has changed once a minute, but sooner where the
workload is among the next, and at once where it is the first no longer. So what one finished job costs is bounded
however many wait: a plan is noted a few verdicts at a time, what starts is written meanwhile, and the words are made
when they are written.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fairway.api import conditions
from fairway.api.types import WorkloadObject, WorkloadStatus
from fairway.engine import Reason, Wait, Workload
from fairway.kube.agenda import Agenda

from . import status as life
from .means import Means
from .status import Said, holds

MINUTE, WORDS_SECONDS, SECONDS_A_PLACE, QUEUE_SECONDS = 60.0, 10.0, 2.0, 0.5
NEXT = MINUTE / SECONDS_A_PLACE  # workloads that are told sooner than others that they moved up
SLICE = 256  # verdicts that are noted before other tasks have a turn


class Waits:
    """`tend`: a workload gets a turn, in which `tell_first` is awaited. `is_decided`: a decision is to be written."""

    def __init__(self, means: Means, *, tend: Callable[[str], None], is_decided: Callable[[str], bool]) -> None:
        self.means, self._tend, self._is_decided = means, tend, is_decided
        self._renewals = Agenda(means.client.clock, means.client.chance, width=1)
        self._said: dict[str, Wait] = {}
        self._written: dict[str, float] = {}  # when
        self._workloads: Mapping[str, Workload] = {}
        self._queues: Mapping[str, str] = {}
        self._next: Sequence[Wait] = ()
        self._is_new_plan = asyncio.Event()
        self._left: set[str] = set()  # since the plan was made that is being noted

    def put(self, waits: Sequence[Wait], workloads: Mapping[str, Workload]) -> None:
        """The waits of a plan, to be noted soon; `workloads`: all that it is about."""
        self._next, self._workloads = waits, workloads
        self._is_new_plan.set()

    def forget(self, key: str) -> None:
        """It waits no longer."""
        self._said.pop(key, None)
        self._written.pop(key, None)
        self._left.add(key)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._renewals.run(self._renew))
            while True:
                await self._is_new_plan.wait()
                self._is_new_plan.clear()
                await self._take_note(self._next, self._workloads)

    async def _take_note(self, waits: Sequence[Wait], workloads: Mapping[str, Workload]) -> None:
        """Of a whole plan, whatever is decided meanwhile: else the last in line would never be told why they wait."""
        self._queues = {key: one.queue for key, one in workloads.items()}
        for key in self._said.keys() - workloads.keys():
            self.forget(key)
        self._left.clear()
        for first in range(0, len(waits), SLICE):
            await self.means.client.clock.sleep(0)
            self._note_slice(waits[first : first + SLICE])

    def _note_slice(self, waits: Sequence[Wait]) -> None:
        said, left, is_noted = self._said, self._left, self._renewals.is_noted
        soon = self.means.now() + WORDS_SECONDS
        for verdict in waits:
            if verdict.starts_at is not None:
                verdict = replace(verdict, starts_at=conditions.hold_time(verdict.starts_at))
            key, before = verdict.workload, said.get(verdict.workload)
            if before is verdict or key in left:
                continue
            said[key] = verdict
            if before and before.reason is verdict.reason and verdict.position > NEXT:
                is_alike = before.facts is verdict.facts and before.starts_at == verdict.starts_at
                if is_noted(key, soon + MINUTE if is_alike else soon):
                    continue  # of thousands whose place or words change most have a turn by then already
            if before is None or before != verdict:
                self._note(verdict, before)

    def _note(self, verdict: Wait, before: Wait | None) -> None:
        key = verdict.workload
        if before is None and self._is_new(key) and verdict.reason is Reason.QUEUE_NOT_FOUND:
            self._renewals.note(key, self.means.now() + QUEUE_SECONDS)
        elif before is None and self._is_new(key):
            self._tend(key)
        elif before is None or before.reason is not verdict.reason:
            self._renewals.note(key)
        else:
            is_moved_on = (before.facts, before.starts_at) == (verdict.facts, verdict.starts_at)
            pause = min(MINUTE if is_moved_on else WORDS_SECONDS, verdict.position * SECONDS_A_PLACE)
            pause = 0.0 if before.position == 1 < verdict.position else pause  # another has its place, and says so
            self._renewals.note(key, self._written.get(key, 0.0) + pause)

    def _is_new(self, key: str) -> bool:
        """Whether its Workload has no status yet."""
        seen = self.means.view.workloads.get(key)
        return seen is not None and not seen.status.phase

    async def tell_first(self, key: str) -> None:
        verdict = self._said.get(key)
        if self._is_new(key) and verdict and verdict.reason is not Reason.QUEUE_NOT_FOUND:
            await self._tell(key)

    async def _renew(self, key: str) -> None:
        """The turns come no faster than the settings say."""
        if self.means.election.is_leader() and not self._is_decided(key) and await self._tell(key):
            await self.means.client.clock.sleep(1.0 / self.means.settings.refreshes_per_second)

    async def _tell(self, key: str) -> bool:
        """Whether anything was to be written."""
        verdict, seen = self._said.get(key), self.means.view.workloads.get(key)
        workload = self._workloads.get(key)
        if verdict is None or seen is None or workload is None:
            return False
        words = Said(conditions.reason(verdict), conditions.sentence(verdict, workload, self._queues))

        def make(it: WorkloadObject) -> WorkloadStatus:
            is_leaving = holds(it.status, "Evicted") and it.status.admission is not None
            has_left = key not in self._said  # it was decided anew while this was tried: what it is promised stays
            if has_left or is_leaving or holds(it.status, "Admitted") or it.status.is_over:
                return it.status
            return life.wait(life.revoke(it.status), words, verdict.position)

        if make(seen) == seen.status:
            return False
        self._written[key] = self.means.now()
        if not await self.means.write(key, make):
            if self._said.get(key) is verdict:  # it changed meanwhile, and maybe nothing that calls for a new decision
                self._renewals.note(key)
            return True
        if seen.status.reason != words.reason:
            self.means.tell(self.means.cases.case(key).owner, words)
        return True
