"""`decide` run forward: apply a plan, go to the next event, decide again.

The simulator, the forecast and every what-if stand on this one loop. It owns a State and a queue of events; it observes
what happens at a moment, decides, and does at once what the plan says: a start runs until its work is done, an eviction
holds its room for its grace and then queues again at its old place, with the work since its last checkpoint to be done
once more. What a workload used counts in budgets from its end on. What the plan cannot know (how long the work takes)
is told by `work`; the engine sees it only through its policy.

Not every event is worth a cycle. What a plan only started is not decided on again at the same moment, for a plan leaves
nothing that could start; and an end while nothing waits, leaves or grows changes nothing for any. The Step that
shows such a moment has an empty plan.

Work is in seconds at full size. An elastic workload runs at the part of its pods it has. Nothing here decides.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count as counter

from fairway import engine
from fairway.engine import Admission, Admit, Evict, Gone, Plan, Policy, Resize, Running, Snapshot, Workload, counts_of
from fairway.referee import check

Work = Callable[[Workload], float]

MOST_EVICTIONS = 10  # that a workload remembers
MOST_CYCLES_AT_ONCE = 64  # at one moment; a plan that does not settle is a defect, not a long wait


@dataclass(slots=True)
class Progress:
    """Of a workload: the work it needs, how much is done, and since when it runs at which rate. `ran` is when this
    attempt began, `works` when its restart was over; `turn` tells a planned end from one that was made void."""

    work: float
    done: float = 0.0
    since: float | None = None
    ran: float | None = None
    works: float = 0.0
    rate: float = 1.0
    turn: int = 0
    attained: float = 0.0
    lost: float = 0.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a workload, over now: from when to when, where, and how it ended."""

    key: str
    start: float
    end: float
    admission: Admission
    has_finished: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One cycle: what was seen, what was decided, what the referee found."""

    now: float
    snapshot: Snapshot
    plan: Plan
    faults: tuple[engine.Fault, ...] = ()


class Forward:
    """`work(workload)` is asked once for each workload: the seconds it needs. `is_checked`: the referee sees all."""

    def __init__(
        self, state: engine.State, policy: Policy, work: Work, *, now: float = 0.0, is_checked: bool = True
    ) -> None:
        self.state, self.policy, self.now = state, replace(policy, tells_why=False), now
        self.progress: dict[str, Progress] = {}
        self.running: dict[str, Running] = {}
        self.attempts: list[Attempt] = []  # since it was last emptied
        self._work, self._is_checked = work, is_checked
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = counter()
        self._again: float | None = None
        self._has_changed, self._has_only_ends = True, False
        self._restless: set[str] = set()  # of those in `running`, which leave, are promised, lack pods or could grow
        self._awaited: set[str] = set()  # named in an `after`: how these end must be remembered
        snapshot = state.snapshot(now)
        self._awaited.update(key for one in snapshot.pending for key in one.after)
        has_budgets = any(one.budget is not None for one in snapshot.queues.values())
        self._queues = dict(snapshot.queues) if has_budgets else {}
        for one in snapshot.running:
            self._go_on(one)

    def at(self, time: float, act: Callable[[], None]) -> None:
        """`act` is done at `time`, before that moment's decision."""
        heappush(self._events, (time, next(self._order), act))

    def observe(self, *facts: engine.Fact, is_news: bool = True) -> None:
        """The world says so, now. Without `is_news` it is known to change no verdict, and no cycle is run for it."""
        if is_news:
            self._has_changed, self._has_only_ends = True, False
        for fact in facts:
            if isinstance(fact, Gone) and fact.kind == "Workload":
                self._drop(fact.key)
            elif isinstance(fact, Workload):
                self._awaited.update(fact.after)
        self.state.observe(*facts)

    def steps(self, until: float = float("inf")) -> Iterator[Step]:
        """One for each cycle, until nothing is to happen before `until`."""
        while (moment := self._next()) is not None and moment <= until:
            self.now = moment = max(self.now, moment)  # the caller may have let time pass
            if self._again is not None and self._again <= moment:
                self._has_changed, self._has_only_ends = True, False
            while self._events and self._events[0][0] <= moment:
                heappop(self._events)[2]()
            if self._has_only_ends and self._is_quiet():
                self._has_changed = self._has_only_ends = False
                yield Step(moment, self.state.snapshot(moment), Plan((), {}, self._again))
            elif self._has_changed:
                yield from self._settle()

    def _is_quiet(self) -> bool:
        """Nothing waits, leaves or could grow: what runs will be kept, whatever else ends."""
        return not self.state.has_pending and not self._restless

    def _next(self) -> float | None:
        if self._has_changed:
            return self.now
        moments = [self._events[0][0]] if self._events else []
        return min((*moments, max(self._again, self.now))) if self._again is not None else min(moments, default=None)

    def _settle(self) -> Iterator[Step]:
        """Cycles of this moment: a plan that changed something is followed by another."""
        for _ in range(MOST_CYCLES_AT_ONCE):
            snapshot = self.policy.seen(self.state.snapshot(self.now))
            plan = engine.decide(snapshot, self.policy)
            faults = tuple(check(snapshot, plan)) if self._is_checked else ()
            self._has_changed = self._has_only_ends = False
            yield Step(self.now, snapshot, plan, faults)
            self._apply(snapshot, plan)
            self._again = plan.again_at if plan.again_at is not None and plan.again_at > self.now else None
            if not self._has_changed:
                if any(isinstance(one, Admit) for one in plan.verdicts):
                    yield Step(self.now, self.state.snapshot(self.now), Plan((), {}, self._again))
                return
        raise RuntimeError(f"plans do not settle at {self.now}: {plan.verdicts[:3]}")

    def _apply(self, snapshot: Snapshot, plan: Plan) -> None:
        pending = {one.key: one for one in snapshot.pending}
        is_news = _may_follow(snapshot, self.policy)
        for verdict in plan.verdicts:
            match verdict:
                case engine.Keep() | engine.Wait():
                    pass
                case Admit(workload=key) if not verdict.after:
                    self._start(pending.get(key) or self.running[key].workload, verdict, is_news=is_news)
                case Admit(workload=key) if key in pending:
                    self._promise(pending[key], verdict)
                case Evict():
                    self._evict(verdict)
                case Resize():
                    self._resize(verdict)
                case engine.Finish(workload=key):
                    self._finish(key, succeeded=False)

    def _promise(self, workload: Workload, verdict: Admit) -> None:
        """It holds its places while the others leave; it starts when a later plan says so."""
        one = Running(
            workload, verdict.admission, waits_for=verdict.after, is_promised=True,
            backfilled_for=verdict.backfilled_for,
        )  # fmt: skip
        self._stand(one)
        self.observe(one)

    def _start(self, workload: Workload, verdict: Admit, *, is_news: bool = True) -> None:
        one = Running(workload, verdict.admission, admitted_at=self.now, backfilled_for=verdict.backfilled_for)
        self._go_on(one)
        self.observe(one, is_news=is_news or workload.time_limit is not None)

    def _stand(self, one: Running) -> None:
        self.running[one.workload.key] = one
        (self._restless.add if _is_restless(one) else self._restless.discard)(one.workload.key)

    def _go_on(self, one: Running) -> None:
        """It runs from now on (or goes on, where it was found running)."""
        key = one.workload.key
        self._stand(one)
        if one.is_leaving:
            begun = self.now if one.leaving_since is None else one.leaving_since
            self.at(max(self.now, begun + one.workload.grace), lambda: self._leave(key))
        if one.is_promised or one.is_leaving:
            return
        progress = self.progress.get(key)
        restart = one.workload.restart_seconds if progress else 0.0
        if progress is None:
            ran = 0.0 if one.admitted_at is None else self.now - one.admitted_at
            used = one.workload.attained + ran * self._gpus(one)
            progress = self.progress[key] = Progress(self._work(one.workload), attained=used)
        progress.since = progress.ran = self.now
        progress.works, progress.rate = self.now + restart, rate_of(one)
        self._plan_end(key)

    def _plan_end(self, key: str) -> None:
        progress = self.progress[key]
        progress.turn += 1
        turn = progress.turn
        if not progress.rate:
            return  # without a pod it comes to no end
        left = max(0.0, progress.work - progress.done) / progress.rate
        begins = max(self.now, progress.works)
        self.at(begins + left, lambda: self._end(key) if self.progress[key].turn == turn else None)

    def _end(self, key: str) -> None:
        is_all = self._has_only_ends or not self._has_changed
        self._finish(key, succeeded=True)
        self._has_only_ends = is_all

    def _finish(self, key: str, *, succeeded: bool) -> None:
        """It is over; how, is kept only while a workload waits for it: a long run ends very many."""
        if key in self.running:
            self._bank(key)
            self._spend(key)
            self._note(key, has_finished=True)
        self._drop(key)
        self.observe(engine.Ended(key, succeeded) if key in self._awaited else Gone("Workload", key))

    def _note(self, key: str, *, has_finished: bool) -> None:
        ran = self.progress[key].ran if key in self.progress else None
        if ran is not None:
            self.attempts.append(Attempt(key, ran, self.now, self.running[key].admission, has_finished))

    def _drop(self, key: str) -> None:
        self.running.pop(key, None)
        self._restless.discard(key)
        if key in self.progress:
            self.progress[key].turn += 1
            self.progress[key].since = None

    def _bank(self, key: str) -> None:
        """Count what was done since the last change of rate; the restart does no work."""
        progress, one = self.progress[key], self.running[key]
        if progress.since is None:
            return
        progress.done += max(0.0, self.now - max(progress.since, progress.works)) * progress.rate
        progress.attained += (self.now - progress.since) * self._gpus(one)
        progress.since = self.now

    def _gpus(self, one: Running) -> float:
        """That it holds."""
        podsets, memory = one.workload.podsets, self.state.gpu_memory_of(one.admission.pool)
        return engine.gpus_of(podsets, counts_of(podsets, one.admission), memory)

    def _spend(self, key: str) -> None:
        """Count all that it used in the budgets of its queue and of those above it."""
        known, workload, attained = self._queues, self.running[key].workload, self.progress[key].attained
        parts = engine.budgeted(
            lambda one: known[one].parent if one in known else "", workload.queue, attained, workload.days
        )
        for name, part in parts.items():
            if name in known and (its := known[name]).budget is not None:
                known[name] = replace(its, ledger=its.spend(its.counted(*part, self.now), self.now))
                self.state.observe(known[name])

    def _evict(self, verdict: Evict) -> None:
        key = verdict.workload
        one = self.running[key]
        if one.is_promised:
            self._drop(key)
            self.observe(one.workload)
            return
        self._bank(key)
        self._note(key, has_finished=False)
        self._lose_unsaved(key)
        past = engine.Eviction(self.now, verdict.cause, beneficiary=verdict.beneficiary)
        workload = replace(one.workload, evictions=(*one.workload.evictions, past)[-MOST_EVICTIONS:])
        leaving = replace(one, workload=workload, is_leaving=True, leaving_since=self.now, moves_to=verdict.admission)
        self._stand(leaving)
        self.observe(leaving)
        self.at(self.now + one.workload.grace, lambda: self._leave(key))

    def _lose_unsaved(self, key: str) -> None:
        """Work since the last checkpoint is to be done again; without checkpoints all of this attempt's is."""
        progress, workload = self.progress[key], self.running[key].workload
        every = workload.checkpoint_interval
        safe = 0.0 if every is None else progress.done if every == 0 else progress.done - progress.done % every
        progress.lost += progress.done - safe
        progress.done, progress.since = safe, None
        progress.turn += 1

    def _leave(self, key: str) -> None:
        one = self.running.pop(key, None)
        self._restless.discard(key)
        if one is None:
            return
        again = replace(one.workload, attained=self.progress[key].attained) if key in self.progress else one.workload
        self.observe(again)
        if one.moves_to:
            self._start(again, Admit(key, one.moves_to))

    def _resize(self, verdict: Resize) -> None:
        key = verdict.workload
        self._bank(key)
        one = replace(self.running[key], admission=verdict.admission, lost=())
        self._stand(one)
        self.progress[key].rate = rate_of(one)
        self._plan_end(key)
        self.observe(one)


def _may_follow(snapshot: Snapshot, policy: Policy) -> bool:
    """Whether starts can matter to a later plan by themselves: they end at a limit, or rights reach them after a while.
    A right that needs no while waits for nothing but what is news anyhow."""
    queues = snapshot.queues.values()
    if any(one.default_time_limit is not None or one.max_time_limit is not None for one in queues):
        return True
    has_rights = policy.makes_room and bool(snapshot.pending)
    return has_rights and any(one.quotas or one.preempt_min_runtime for one in queues)


def _is_restless(one: Running) -> bool:
    is_elastic = any(podset.is_elastic for podset in one.workload.podsets)
    return one.is_leaving or one.is_promised or bool(one.lost) or is_elastic


def rate_of(one: Running) -> float:
    """The part of its pods that a workload has."""
    podsets = one.workload.podsets
    return sum(counts_of(podsets, one.admission)) / max(1, sum(podset.count for podset in podsets))
