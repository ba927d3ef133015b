"""Why each waiting workload waits, written to its Workload: never in the way of a decision, and bounded in number.

The first verdict on a workload is written as fast as any decision, but that its queue does not exist a moment later: a
queue made with its first workloads may be seen after them. After that another reason goes before all else;
other words are written every ten seconds and a position that alone has changed once a minute, but sooner where the
workload is among the next. So what one finished job costs is bounded however many wait: a cycle only notes the verdicts
that changed, and the words are made when they are written.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import ceil

from fairway.api import conditions
from fairway.api.types import WorkloadObject, WorkloadStatus
from fairway.engine import Reason, Wait, Workload
from fairway.kube.agenda import Agenda

from . import status as life
from .means import Means
from .status import Said, holds

MINUTE, WORDS_SECONDS, SECONDS_A_PLACE, QUEUE_SECONDS = 60.0, 10.0, 2.0, 1.0
NEXT = MINUTE / SECONDS_A_PLACE  # workloads that are told sooner than others that they moved up


class Waits:
    """`tend`: a workload gets a turn, in which `tell_first` is awaited. `is_decided`: a decision is to be written."""

    def __init__(self, means: Means, *, tend: Callable[[str], None], is_decided: Callable[[str], bool]) -> None:
        self.means, self._tend, self._is_decided = means, tend, is_decided
        self._renewals = Agenda(means.client.clock, means.client.chance, width=1)
        self._said: dict[str, Wait] = {}
        self._written: dict[str, float] = {}  # when
        self._workloads: Mapping[str, Workload] = {}
        self._queues: Mapping[str, str] = {}

    def put(self, waits: Iterable[Wait], workloads: Mapping[str, Workload], queues: Mapping[str, str]) -> None:
        """The waits of a plan; `workloads`: all that it is about, and their queues."""
        self._workloads, self._queues, said = workloads, queues, self._said
        for key in said.keys() - workloads.keys():
            self.forget(key)
        is_noted = self._renewals.is_noted
        for verdict in waits:
            verdict = verdict if verdict.starts_at is None else _rounded(verdict)  # no call for most
            key, before = verdict.workload, said.get(verdict.workload)
            if before is verdict:
                continue
            said[key] = verdict
            is_alike = before and before.facts is verdict.facts and before.starts_at == verdict.starts_at
            if is_alike and before.reason is verdict.reason and verdict.position > NEXT and is_noted(key):
                continue  # of thousands that move up most have a turn within the minute already
            if before is None or before != verdict:
                self._note(verdict, before)

    def forget(self, key: str) -> None:
        """It waits no longer."""
        self._said.pop(key, None)
        self._written.pop(key, None)

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
            self._renewals.note(key, self._written.get(key, 0.0) + pause)

    def _is_new(self, key: str) -> bool:
        """Whether its Workload has no status yet."""
        seen = self.means.view.workloads.get(key)
        return seen is not None and not seen.status.phase

    async def run(self) -> None:
        """Until cancelled."""
        await self._renewals.run(self._renew)

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
            if is_leaving or holds(it.status, "Admitted") or life.is_over(it.status):
                return it.status
            return life.wait(life.revoke(it.status), words, verdict.position)

        if make(seen) == seen.status:
            return False
        self._written[key] = self.means.now()
        if not await self.means.write(key, make):
            if self._said.get(key) is verdict:  # it changed meanwhile, and maybe nothing that calls for a new decision
                self._renewals.note(key)
            return True
        owner = self.means.cases.case(key).owner
        if owner and seen.status.reason != words.reason:
            self.means.events.tell(owner.about(), words.reason, words.message)
        return True


def _rounded(verdict: Wait) -> Wait:
    """With a start told in whole minutes: what is learned of runtimes moves it a little with every cycle."""
    assert verdict.starts_at is not None
    return replace(verdict, starts_at=ceil(verdict.starts_at / MINUTE) * MINUTE)
