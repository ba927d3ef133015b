"""Plans are written here, a bounded number of workloads at a time; each workload has one turn at once.

A turn first writes what was decided (the Workload's status), then does the next thing that follows from it (`Life`).
So the order holds: a newcomer's admission is written before those who leave for it are evicted, and if that write is
refused they stay. Of all that is to be written room given up is first, then what has the highest priority, however long
the list. What a refused write would have done is forgotten: the next decision is made on what is there.
Why others wait is written by `Waits`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from typing import TypeGuard

from fairway import engine
from fairway.api import conditions
from fairway.api.alone import is_alone
from fairway.api.quantities import time
from fairway.api.types import WorkloadObject, WorkloadStatus
from fairway.api.workloads import admission_status
from fairway.engine import DEVICE, Admission, Admit, Evict, Finish, Keep, Plan, Resize, Verdict, Wait, Workload
from fairway.kube.agenda import Agenda

from . import status as life
from .binder import Binder
from .disk import to_disk
from .held import lost_work, served
from .losses import Losses
from .means import Means
from .pause import Pauses
from .status import Said, holds
from .waits import WORDS_SECONDS, Waits
from .workloads import Life


@dataclass(frozen=True, slots=True)
class Decided:
    """A verdict with its words; `by`: the queue it was for."""

    verdict: Verdict
    words: Said
    by: str = ""
    after: tuple[str, ...] = ()  # whom it waited for


class Writer:
    def __init__(self, means: Means) -> None:
        binder = Binder(means)
        self.means, self.life = means, Life(means, binder, Pauses(means), Losses(means, binder))
        width = means.settings.writes_at_once
        self.agenda = Agenda(means.client.clock, means.client.chance, width=width, rank=self.rank)
        self._workloads: Mapping[str, Workload] = {}
        self._decided: dict[str, Decided] = {}
        self._after: defaultdict[str, list[Decided]] = defaultdict(list)
        self.waits = Waits(means, tend=self.agenda.note, is_decided=self._decided.__contains__)

    def note(self, key: str) -> None:
        """Something happened to a workload: it gets a turn, unless there is nothing to do."""
        if not self.life.rests(key):
            self.agenda.note(key)

    @property
    def is_writing(self) -> bool:
        """Whether decisions wait to be written."""
        return bool(self._decided)

    def put(self, snapshot: engine.Snapshot, plan: Plan) -> None:
        """What of a plan is to be written."""
        workloads = {one.key: one for one in (*snapshot.pending, *(it.workload for it in snapshot.running))}
        self._workloads = workloads
        self.waits.put([it for it in plan.verdicts if type(it) is Wait], workloads)
        acts = [it for it in plan.verdicts if type(it) is not Wait and type(it) is not Keep]
        queues = {key: one.queue for key, one in workloads.items()} if acts else {}
        made: dict[str, Decided] = {}
        leaving: list[Decided] = []
        for verdict in acts:
            _, after = self.means.facts.promises.get(verdict.workload, (None, ()))
            if not self._note_news(verdict):
                continue
            workload = workloads[verdict.workload]
            words = Said(conditions.reason(verdict),
                         self._parked(verdict) or conditions.sentence(verdict, workload, queues))
            decided = Decided(verdict, words, queues.get(getattr(verdict, "beneficiary", ""), ""), after)
            if isinstance(verdict, Resize) or _is_at_once(verdict):
                made[verdict.workload] = decided
            elif isinstance(verdict, Evict):
                leaving.append(decided)
            else:
                self._decide(decided)
        self._in_turn(made)
        self._note_short(plan)
        for key in self.life.pauses.save(to_disk(snapshot, plan)):
            self.agenda.note(key)
        for decided in leaving:  # they follow who they are for
            self._follow(decided)

    def _note_short(self, plan: Plan) -> None:
        """Notes why elastic workloads do not grow, to be written within a few seconds."""
        short = [it for it in plan.verdicts if type(it) is Keep and it.short]
        queues = {key: one.queue for key, one in self._workloads.items()} if short else {}
        told = {it.workload: Said(conditions.reason(it), conditions.sentence(it, self._workloads[it.workload], queues))
                for it in short}  # fmt: skip
        for key in {**self.life.short, **told}:
            self.agenda.note(key, self.means.now() + WORDS_SECONDS)
        self.life.short.clear()
        self.life.short.update(told)

    def _parked(self, verdict: Verdict) -> str:
        """Why it is switched off, where that was not its user."""
        seen = self.means.view.workloads.get(verdict.workload)
        is_off = isinstance(verdict, Evict) and verdict.cause is engine.Cause.SUSPENDED
        return life.off(seen.status).message if seen and is_off else ""

    def rank(self, key: str) -> float:
        """Room that is given up is written first, then what has the highest priority."""
        said, known = self.means.view.workloads.get(key), self._workloads.get(key)
        decided = self._decided.get(key)
        if (said and said.status.admission and holds(said.status, "Evicted")) or (
            decided and isinstance(decided.verdict, Evict)
        ):
            return -inf
        return -float(known.priority if known else self.means.cases.priority(key))

    def _in_turn(self, made: dict[str, Decided]) -> None:
        """What grows, or starts at once, is written after all that shrinks for it, by this plan or one before: killed
        between the two, the room is nobody's, never that of both."""
        shrinks, before = _by_beneficiary(made.values()), _by_beneficiary(self._decided.values())
        for key in [key for key, one in made.items() if not _beneficiary(one)]:
            chain = [*shrinks[key], made.pop(key)]
            for first, then in pairwise(chain):
                made.pop(first.verdict.workload)
                self._after[first.verdict.workload].append(then)
            unwritten = [it for it in before[key] if self._decided.get(it.verdict.workload) is it]
            if unwritten:
                self._after[unwritten[-1].verdict.workload].append(chain[0])
            else:
                self._decide(chain[0])
        for one in made.values():
            self._decide(one)

    def _note_news(self, verdict: Verdict) -> bool:
        """Notes what is promised; whether that was not promised before."""
        key, facts = verdict.workload, self.means.facts
        match verdict:
            case Admit():
                self.waits.forget(key)
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
        self.agenda.hurry(key)

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
            tasks.create_task(self.waits.run())
            tasks.create_task(self.means.take_turns(self.agenda, self._turn))

    async def _turn(self, key: str) -> float | None:
        if decided := self._decided.pop(key, None):
            await self._carry_out(key, decided)
        else:
            await self.waits.tell_first(key)
        return None if self.life.rests(key) else await self.life.tend(self.means.cases.case(key))

    async def _carry_out(self, key: str, decided: Decided) -> None:
        started = self.means.now()
        seen = self.means.view.workloads.get(key)
        is_bound = seen is not None and is_alone(seen) and _is_plain(decided.verdict)
        if is_bound:
            stands = await self.life.binder.place(key, decided.verdict.admission)  # type: ignore[union-attr]
        else:
            stands = await self.means.write(key, self._made(decided, now=started))
        self.means.metrics.apply.observe(self.means.now() - started)
        if not is_bound and self.means.view.workloads.get(key) is seen and _is_void(seen, decided.verdict):
            self.means.facts.forget(key)  # nothing was written, so nothing will show that it came, or is gone
            self.means.wake()
        if stands and seen:
            for follower in self._after.pop(key, []):
                self._decide(follower)
            self._tell(key, seen, decided, in_events=not is_bound)
        else:
            self._drop(key)
            self.means.wake()

    def _drop(self, key: str) -> None:
        """Nothing of what was decided of it is done, nor of what was to follow."""
        self.means.facts.forget(key)
        for follower in self._after.pop(key, []):
            self._drop(follower.verdict.workload)

    def _made(self, decided: Decided, *, now: float) -> Callable[[WorkloadObject], WorkloadStatus]:
        """The status that a verdict makes; left alone where it is so already, or where it ended meanwhile."""
        words = decided.words

        def make(seen: WorkloadObject) -> WorkloadStatus:
            status = seen.status
            if status.is_over:
                return status
            match decided.verdict:
                case Admit(admission=admission, after=after, backfilled_for=held):
                    enter = life.promise if after else life.admit
                    return life.mark(enter(status, admission, words, now=now), held)
                case Evict(admission=admission):
                    return self._evicted(seen, decided, now=now, to=admission)
                case Resize(admission=admission) if holds(status, "Admitted"):
                    return life.resize(served(seen, now=now), admission)
                case Finish():
                    return life.finish(served(seen, now=now), words, succeeded=False, now=now)
            return status

        return make

    def _evicted(self, seen: WorkloadObject, decided: Decided, *, now: float, to: Admission | None) -> WorkloadStatus:
        status, verdict = served(seen, now=now), decided.verdict
        assert isinstance(verdict, Evict)
        late = self.life.losses.late_nodes(verdict.workload, decided.after) if verdict.cause == "StartTimeout" else ()
        status = life.exclude(status, late)
        if not holds(status, "Admitted"):
            return status if holds(status, "Evicted") else life.revoke(status)
        eviction = engine.Eviction(now, verdict.cause, decided.by, verdict.beneficiary)
        cost = seen.spec.queue, 0 if verdict.pauses else round(lost_work(seen, now) * DEVICE)
        status = life.evict(status, eviction, decided.words, of=cost)
        if verdict.pauses:
            status = self.life.pauses.begun(seen, status, now=now, to_disk=verdict.saves)
        return life.move(status, to)

    def _tell(self, key: str, seen: WorkloadObject, decided: Decided, *, in_events: bool) -> None:
        """Events and counts of what was written; `seen` is how it was before. A pod that was bound at once says so."""
        verdict, queue, metrics = decided.verdict, seen.spec.queue, self.means.metrics
        if seen.status.is_over or (isinstance(verdict, Evict) and not holds(seen.status, "Admitted")):
            return  # it had ended, or gave up a promise
        if isinstance(verdict, Admit) and not verdict.after:
            made = seen.metadata.creation_timestamp
            metrics.waited.labels(queue).observe(max(0.0, self.means.now() - time(made)) if made else 0.0)
        if isinstance(verdict, Evict):
            metrics.evictions.labels(str(verdict.cause)).inc()
            metrics.lost.inc(0.0 if verdict.pauses else lost_work(seen, self.means.now()))
        if in_events:
            owner, warns = self.means.cases.case(key).owner, conditions.is_warning(verdict)
            self.means.tell(owner, decided.words, is_warning=warns)


def _is_void(seen: WorkloadObject | None, verdict: Verdict) -> bool:
    """Whether a verdict that changed nothing was not carried out already."""
    if isinstance(verdict, Admit | Resize):
        has, to = seen.status.admission if seen else None, admission_status(verdict.admission)
        return seen is not None and (has is None or (has.pool, has.pod_sets) != (to.pool, to.pod_sets))
    return isinstance(verdict, Evict)


def _is_plain(verdict: Verdict) -> bool:
    """Whether it says no more than where: a binding tells it."""
    return _is_at_once(verdict) and not verdict.backfilled_for


def _is_at_once(verdict: Verdict) -> TypeGuard[Admit]:
    return isinstance(verdict, Admit) and not verdict.after


def _beneficiary(one: Decided) -> str:
    return one.verdict.beneficiary if isinstance(one.verdict, Resize) else ""


def _by_beneficiary(those: Iterable[Decided]) -> defaultdict[str, list[Decided]]:
    """Those that shrink for others, by whom they do it for."""
    found: defaultdict[str, list[Decided]] = defaultdict(list)
    for one in those:
        if key := _beneficiary(one):
            found[key].append(one)
    return found
