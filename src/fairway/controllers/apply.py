"""Plans are written here, a bounded number of workloads at a time; each workload has one turn at once.

A turn first writes what was decided (the Workload's status), then does the next thing that follows from it (`Life`).
So the order holds: a newcomer's admission is written before those who leave for it are evicted, and if that write is
refused they stay. What a refused write would have done is forgotten: the next decision is made on what is there.
Positions and messages of those who wait are renewed as fast as the settings say, latest first told, and never hold
anything up.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

from fairway.api import conditions
from fairway.api.quantities import duration, time
from fairway.api.types import WorkloadObject, WorkloadStatus
from fairway.engine import Admission, Admit, Evict, Eviction, Finish, Plan, Resize, Snapshot, Verdict, Wait
from fairway.kube.agenda import Agenda

from . import status as life
from .means import Means
from .status import Said, holds, since
from .workloads import Life, gpus_of

MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Decided:
    """A verdict with its words; `by`: the queue it was for."""

    verdict: Verdict
    words: Said
    by: str = ""
    after: tuple[str, ...] = ()  # whom it waited for


class Writer:
    def __init__(self, means: Means) -> None:
        self.means, self.life = means, Life(means)
        self.agenda = Agenda(means.client.clock, means.client.chance, width=means.settings.writes_at_once)
        self._decided: dict[str, Decided] = {}
        self._after: defaultdict[str, list[Decided]] = defaultdict(list)
        self._waits: tuple[dict[str, Decided], dict[str, Decided]] = ({}, {})  # with another reason, with the same
        self._told: dict[str, Verdict] = {}
        self._has_waits = asyncio.Event()

    def note(self, key: str) -> None:
        """Something about the workload changed."""
        self.agenda.note(key)

    def put(self, snapshot: Snapshot, plan: Plan) -> None:
        """What of a plan is to be written."""
        workloads = {one.key: one for one in (*snapshot.pending, *(it.workload for it in snapshot.running))}
        queues = {key: one.queue for key, one in workloads.items()}
        evictions = []
        for verdict in plan.verdicts:
            if not self._is_news(verdict):
                continue
            workload = workloads[verdict.workload]
            words = Said(conditions.reason(verdict), conditions.sentence(_rounded(verdict), workload, queues))
            _, after = self.means.facts.promises.get(verdict.workload, (None, ()))
            decided = Decided(verdict, words, queues.get(getattr(verdict, "beneficiary", ""), ""), after)
            if isinstance(verdict, Wait):
                self._wait(decided)
            elif isinstance(verdict, Evict):
                evictions.append(decided)
            else:
                self._decide(decided)
        for decided in evictions:
            self._follow(decided)

    def _is_news(self, verdict: Verdict) -> bool:
        """Whether it says anything that was not said before."""
        key, facts = verdict.workload, self.means.facts
        match verdict:
            case Wait():
                before, self._told[key] = self._told.get(key), _rounded(verdict)
                return before != self._told[key]
            case Admit():
                self._told.pop(key, None)
                for waits in self._waits:
                    waits.pop(key, None)
                is_news = facts.promises.get(key) != (verdict.admission, verdict.after)
                facts.promises[key] = verdict.admission, verdict.after
                return is_news
        return isinstance(verdict, Evict | Resize | Finish)

    def _decide(self, decided: Decided) -> None:
        self._decided[decided.verdict.workload] = decided
        self.agenda.note(decided.verdict.workload)

    def _follow(self, decided: Decided) -> None:
        """An eviction waits until the admission it is for is written."""
        verdict = decided.verdict
        assert isinstance(verdict, Evict)
        before = self._decided.get(verdict.beneficiary)
        if before and isinstance(before.verdict, Admit):
            self._after[verdict.beneficiary].append(decided)
        else:
            self._decide(decided)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._renew())
            tasks.create_task(self.agenda.run(self._turn))

    async def _turn(self, key: str) -> float | None:
        if not self.means.election.is_leader():
            return self.means.now() + 1.0
        if decided := self._decided.pop(key, None):
            await self._carry_out(key, decided)
        return await self.life.tend(self.means.cases.case(key))

    async def _carry_out(self, key: str, decided: Decided) -> None:
        started = self.means.now()
        seen = self.means.view.workloads.get(key)
        stands = await self.means.write(key, self._made(decided, now=started))
        self.means.metrics.apply.observe(self.means.now() - started)
        followers = self._after.pop(key, [])
        if stands and seen:
            for follower in followers:
                self._decide(follower)
            self._tell(key, seen, decided)
        else:
            for one in (key, *(follower.verdict.workload for follower in followers)):
                self.means.facts.forget(one)
            self.means.wake()

    def _made(self, decided: Decided, *, now: float) -> Callable[[WorkloadObject], WorkloadStatus]:
        """The status that a verdict makes; left alone where it is so already."""
        words = decided.words

        def make(seen: WorkloadObject) -> WorkloadStatus:
            status = seen.status
            match decided.verdict:
                case Admit(admission=admission, after=()):
                    return life.admit(status, admission, words, now=now)
                case Admit(admission=admission):
                    return life.promise(status, admission, words, now=now)
                case Evict(admission=admission):
                    return self._evicted(seen, decided, now=now, to=admission)
                case Resize(admission=admission):
                    return life.resize(status, admission)
                case Finish() if not life.is_over(status):
                    status = life.served(status, now=now, gpus=gpus_of(seen))
                    return life.finish(status, words, succeeded=False, now=now)
            return status

        return make

    def _evicted(self, seen: WorkloadObject, decided: Decided, *, now: float, to: Admission | None) -> WorkloadStatus:
        status, verdict = seen.status, decided.verdict
        assert isinstance(verdict, Evict)
        late = self.life.late_nodes(verdict.workload, decided.after) if verdict.cause == "StartTimeout" else ()
        status = life.exclude(status, late)
        if not holds(status, "Admitted"):
            return status if holds(status, "Evicted") else life.revoke(status)
        eviction = Eviction(now, verdict.cause, decided.by, verdict.beneficiary)
        status = life.evict(status, eviction, decided.words, gpus=gpus_of(seen))
        return life.move(status, to)

    def _tell(self, key: str, seen: WorkloadObject, decided: Decided) -> None:
        """Events and counts of what was written; `seen` is how it was before."""
        verdict, queue, metrics = decided.verdict, seen.spec.queue, self.means.metrics
        if isinstance(verdict, Evict) and not holds(seen.status, "Admitted"):
            return  # it gave up a promise
        if isinstance(verdict, Admit) and not verdict.after:
            metrics.waited.labels(queue).observe(max(0.0, self.means.now() - _submitted(seen, self.means.now())))
        if isinstance(verdict, Evict):
            metrics.evictions.labels(str(verdict.cause)).inc()
            metrics.lost.inc(_lost(seen, self.means.now()))
        owner = self.means.cases.case(key).owner
        if owner:
            warns = conditions.is_warning(verdict)
            self.means.events.tell(owner.about(), decided.words.reason, decided.words.message, is_warning=warns)

    # Those who wait

    def _wait(self, decided: Decided) -> None:
        """Those who were told nothing yet, or another reason, go first."""
        key = decided.verdict.workload
        seen = self.means.view.workloads.get(key)
        is_same = seen is not None and seen.status.reason == decided.words.reason
        for waits in self._waits:
            waits.pop(key, None)
        self._waits[is_same][key] = decided
        self._has_waits.set()

    async def _renew(self) -> None:
        """Positions and messages, one after the other."""
        pause = 1.0 / self.means.settings.refreshes_per_second
        while True:
            await self._has_waits.wait()
            waits = self._waits[0] or self._waits[1]
            if not waits:
                self._has_waits.clear()
                continue
            decided = waits.pop(key := next(iter(waits)))
            if self.means.election.is_leader() and key not in self._decided:
                await self._tell_wait(key, decided)
            await self.means.client.clock.sleep(pause)

    async def _tell_wait(self, key: str, decided: Decided) -> None:
        verdict = decided.verdict
        assert isinstance(verdict, Wait)
        seen = self.means.view.workloads.get(key)

        def make(it: WorkloadObject) -> WorkloadStatus:
            is_leaving = holds(it.status, "Evicted") and it.status.admission is not None
            if is_leaving or holds(it.status, "Admitted") or life.is_over(it.status):
                return it.status
            return life.wait(life.revoke(it.status), decided.words, verdict.position)

        written = await self.means.write(key, make)
        if not written:
            if seen and self._told.get(key) == _rounded(verdict):
                self._wait(decided)  # it changed meanwhile, and maybe nothing that calls for a new decision
            return
        owner = self.means.cases.case(key).owner
        if owner and seen and seen.status.reason != decided.words.reason:
            self.means.events.tell(owner.about(), decided.words.reason, decided.words.message)


def _rounded(verdict: Verdict) -> Verdict:
    """With a start told in whole minutes: what is learned of runtimes moves it a little with every cycle."""
    if not isinstance(verdict, Wait) or verdict.starts_at is None:
        return verdict
    return replace(verdict, starts_at=ceil(verdict.starts_at / MINUTE) * MINUTE)


def _submitted(seen: WorkloadObject, now: float) -> float:
    return time(seen.metadata.creation_timestamp) if seen.metadata.creation_timestamp else now


def _lost(seen: WorkloadObject, now: float) -> float:
    """GPU-seconds since the last checkpoint, or since it started."""
    start = since(seen.status, "Admitted") or now
    if seen.spec.last_checkpoint:
        start = max(start, time(seen.spec.last_checkpoint))
    lost = now - start
    if seen.spec.checkpoint_interval:
        lost = min(lost, duration(seen.spec.checkpoint_interval))
    return max(0.0, lost) * gpus_of(seen)
