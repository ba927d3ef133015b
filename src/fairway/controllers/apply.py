"""Plans are written here, a bounded number of workloads at a time; each workload has one turn at once.

A turn first writes what was decided (the Workload's status), then does the next thing that follows from it (`Life`).
So the order holds: a newcomer's admission is written before those who leave for it are evicted, and if that write is
refused they stay. What a refused write would have done is forgotten: the next decision is made on what is there.
Positions and messages of those who wait are renewed as fast as the settings say, and never hold anything up: another
reason before all; another message every ten seconds and a position that alone has changed once a minute, but sooner
where it is among the next. So what one that ends costs is bounded however many wait.
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

MINUTE, WORDS_SECONDS, SECONDS_A_PLACE = 60.0, 10.0, 2.0


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
        self._renewals = Agenda(means.client.clock, means.client.chance, width=1)
        self._waits: dict[str, Decided] = {}
        self._told: dict[str, Verdict] = {}
        self._heard: dict[str, float] = {}  # when it was told last

    def put(self, snapshot: Snapshot, plan: Plan) -> None:
        """What of a plan is to be written."""
        workloads = {one.key: one for one in (*snapshot.pending, *(it.workload for it in snapshot.running))}
        queues = {key: one.queue for key, one in workloads.items()}
        for verdict in sorted(plan.verdicts, key=lambda it: isinstance(it, Evict)):  # they follow who they are for
            _, after = self.means.facts.promises.get(verdict.workload, (None, ()))
            if not self._is_news(verdict):
                continue
            workload = workloads[verdict.workload]
            words = Said(conditions.reason(verdict), conditions.sentence(_rounded(verdict), workload, queues))
            decided = Decided(verdict, words, queues.get(getattr(verdict, "beneficiary", ""), ""), after)
            if isinstance(verdict, Wait):
                self._wait(decided)
            elif isinstance(verdict, Evict):
                self._follow(decided)
            else:
                self._decide(decided)

    def _is_news(self, verdict: Verdict) -> bool:
        """Whether it says anything that was not said before."""
        key, facts = verdict.workload, self.means.facts
        match verdict:
            case Wait():
                before, self._told[key] = self._told.get(key), _rounded(verdict)
                return before != self._told[key]
            case Admit():
                for of_waits in (self._told, self._waits, self._heard):
                    of_waits.pop(key, None)  # type: ignore[attr-defined]
                is_news = facts.promises.get(key) != (verdict.admission, verdict.after)
                facts.promises[key] = verdict.admission, verdict.after
                return is_news
            case Evict():
                facts.promises.pop(key, None)  # the same may be promised again, and is news then
        return isinstance(verdict, Evict | Resize | Finish)

    def _decide(self, decided: Decided) -> None:
        """The last word counts; who grows before his admission is written is admitted with more."""
        key, verdict, before = decided.verdict.workload, decided.verdict, self._decided.get(decided.verdict.workload)
        if before and isinstance(before.verdict, Admit) and isinstance(verdict, Resize):
            decided = replace(before, verdict=replace(before.verdict, admission=verdict.admission))
        self._decided[key] = decided
        self.agenda.note(key)

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
            tasks.create_task(self._renewals.run(self._renew))
            tasks.create_task(self.agenda.run(self._turn))

    async def _turn(self, key: str) -> float | None:
        if not self.means.election.is_leader():
            return self.means.now() + 1.0
        if decided := self._decided.pop(key, None):
            await self._carry_out(key, decided)
        elif self._is_untold(key) and (first := self._waits.pop(key, None)):
            await self._tell_wait(key, first)
        return await self.life.tend(self.means.cases.case(key))

    async def _carry_out(self, key: str, decided: Decided) -> None:
        started = self.means.now()
        seen = self.means.view.workloads.get(key)
        stands = await self.means.write(key, self._made(decided, now=started))
        self.means.metrics.apply.observe(self.means.now() - started)
        followers = self._after.pop(key, [])
        if isinstance(decided.verdict, Evict) and self.means.view.workloads.get(key) is seen:
            self.means.facts.forget(key)  # what it loses was never written: nothing will show that it is gone
            self.means.wake()
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
                case Admit(admission=admission, after=after, backfilled_for=held):
                    enter = life.promise if after else life.admit
                    return life.mark(enter(status, admission, words, now=now), held)
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
            made = seen.metadata.creation_timestamp
            metrics.waited.labels(queue).observe(max(0.0, self.means.now() - time(made)) if made else 0.0)
        if isinstance(verdict, Evict):
            metrics.evictions.labels(str(verdict.cause)).inc()
            metrics.lost.inc(_lost(seen, self.means.now()))
        owner = self.means.cases.case(key).owner
        if owner:
            warns = conditions.is_warning(verdict)
            self.means.events.tell(owner.about(), decided.words.reason, decided.words.message, is_warning=warns)

    # Those who wait

    def _wait(self, decided: Decided) -> None:
        """Another reason is told at once; other words, or another position alone, the sooner the nearer its turn is."""
        assert isinstance(decided.verdict, Wait)
        key, words, near = decided.verdict.workload, decided.words, decided.verdict.position * SECONDS_A_PLACE
        seen = self.means.view.workloads.get(key)
        self._waits[key], at = decided, 0.0
        if self._is_untold(key):
            self.agenda.note(key)
            return
        if seen and seen.status.reason == words.reason:
            longest = MINUTE if seen.status.message == words.message else WORDS_SECONDS
            at = self._heard.get(key, 0.0) + min(longest, near)
        self._renewals.note(key, at)

    def _is_untold(self, key: str) -> bool:
        """Whether the Workload has no status yet: the first verdict is written as fast as any decision."""
        seen = self.means.view.workloads.get(key)
        return seen is not None and not seen.status.phase

    async def _renew(self, key: str) -> None:
        """A turn of one who waits; the turns come no faster than the settings say."""
        decided = self._waits.pop(key, None)
        if decided and self.means.election.is_leader() and key not in self._decided:
            await self._tell_wait(key, decided)
            await self.means.client.clock.sleep(1.0 / self.means.settings.refreshes_per_second)

    async def _tell_wait(self, key: str, decided: Decided) -> None:
        verdict, seen = decided.verdict, self.means.view.workloads.get(key)
        assert isinstance(verdict, Wait)

        def make(it: WorkloadObject) -> WorkloadStatus:
            is_leaving = holds(it.status, "Evicted") and it.status.admission is not None
            if is_leaving or holds(it.status, "Admitted") or life.is_over(it.status):
                return it.status
            return life.wait(life.revoke(it.status), decided.words, verdict.position)

        self._heard[key] = self.means.now()
        if not await self.means.write(key, make):
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


def _lost(seen: WorkloadObject, now: float) -> float:
    """GPU-seconds since the last checkpoint, or since it started."""
    start = since(seen.status, "Admitted") or now
    if seen.spec.last_checkpoint:
        start = max(start, time(seen.spec.last_checkpoint))
    lost = now - start
    if seen.spec.checkpoint_interval:
        lost = min(lost, duration(seen.spec.checkpoint_interval))
    return max(0.0, lost) * gpus_of(seen)
