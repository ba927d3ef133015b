"""A Load brought to life: jobs arrive, work, end, are cancelled; nodes fail and come back; `decide` answers.

The engine's own `Forward` goes from event to event; this adds what happens from outside, and keeps the books. Of jobs
that are alike to the scheduler (same queue, user, priority, podsets and limit, and batch where the order asks what was
learned; in strict lines the same queue) only the first few in order are shown to it: the others could not start before
them, and when all that are shown start in a cycle, twice as many are shown and the cycle is repeated at the same
moment. So a backlog of a hundred thousand costs what its first few of each kind cost.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush

import numpy as np

from fairway import engine
from fairway.engine import DEVICE, GPU, RANK, SHARED, Admit, Gone, Node, PodClass, Policy, Snapshot, Verdict, Wait
from fairway.outlook import Attempt, Forward, Step

from .load import Job, Load, merged, workload_of
from .measure import Floats, Outcome, Run, Series

SHOWN = 4
Kind = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Mechanics:
    """What an eviction costs: work since the last checkpoint (`checkpoint_seconds`; 0: nothing, None: all) and the time
    a restart takes. `knows_durations`: an oracle tells the scheduler each job's runtime."""

    checkpoint_seconds: float | None = 1800.0
    restart_seconds: float = 30.0
    knows_durations: bool = False


class World:
    def __init__(self, load: Load, policy: Policy, mechanics: Mechanics, *, is_checked: bool = True) -> None:
        self.load, self.mechanics, self._is_strict = load, mechanics, bool(policy.is_strict)
        self._orders_by_what_was_learned = policy.ordering is None
        self._learns = policy.ordering is None or policy.hold_depth != 0 or any(map(policy.holds, load.pools))
        state = engine.State()
        state.observe(*load.pools, *load.queues, *load.nodes)
        self.jobs = {f"sim/{job.id}": job for job in load.jobs}
        self.forward = Forward(state, policy, lambda it: self.jobs[it.key].duration, is_checked=is_checked)
        self.ended = 0
        self._queues = {queue.name: queue for queue in load.queues}
        self._pods: dict[PodClass, PodClass] = {}
        self._hidden: defaultdict[Kind, list[tuple[float, str, engine.Workload]]] = defaultdict(list)
        self._shown: defaultdict[Kind, set[str]] = defaultdict(set)
        self._most = defaultdict[Kind, int](lambda: SHOWN)
        self._longest: defaultdict[Kind, float] = defaultdict(float)  # that is or was shown since there was none
        self._kind: dict[str, Kind] = {}
        self._runs: defaultdict[str, list[Run]] = defaultdict(list)
        self._ends: dict[str, float] = {}
        self._books = _Books()
        self._verdicts: tuple[Verdict, ...] = ()
        self._schedule()

    def run(self) -> Iterator[Step]:
        """Cycle by cycle until everything has ended."""
        for step in self.forward.steps():
            self._verdicts = step.plan.verdicts or self._verdicts
            self._settle_books(step)
            yield step
            self._after(step)

    def outcomes(self) -> tuple[Outcome, ...]:
        """What became of every job so far, in the order of submission."""
        return tuple(self._outcome(key, job) for key, job in self.jobs.items())

    def stuck(self) -> dict[str, str]:
        """By id, the reason for which each job that was not over at the last step waits. What was not shown waits for
        the reason of the first of its kind."""
        told = {one.workload: str(one.reason) for one in self._verdicts if isinstance(one, Wait)}
        kinds = {self._kind[key]: reason for key, reason in reversed(told.items())}
        return {
            job.id: told.get(key) or kinds.get(self._kind[key], "")
            for key, job in self.jobs.items()
            if key in self._kind and key not in self._ends and key not in self.forward.running
        }

    def whole(self, snapshot: Snapshot) -> engine.World:
        """The world of a step with all who wait in it, also who was not shown: what a forecast must know."""
        hidden = (one for heap in self._hidden.values() for _, _, one in heap if one.key not in self._ends)
        known = engine.world_of(snapshot)
        return replace(known, pending=(*known.pending, *hidden))

    def series(self) -> Series:
        return self._books.series(self.outcomes())

    # What happens from outside

    def _schedule(self) -> None:
        for key, job in self.jobs.items():
            self.forward.at(job.submit, partial(self._arrive, key, job))
            if job.patience is not None:
                self.forward.at(job.submit + job.patience, partial(self._cancel, key))
        nodes = {node.name: node for node in self.load.nodes}
        for outage in merged(self.load.outages):
            self.forward.at(outage.start, partial(self._fail, nodes[outage.node]))
            self.forward.at(outage.end, partial(self.forward.observe, nodes[outage.node]))

    def _arrive(self, key: str, job: Job) -> None:
        workload = replace(
            workload_of(job, self._pods),
            expected_runtime=job.needs if self.mechanics.knows_durations else None,
            checkpoint_interval=self.mechanics.checkpoint_seconds,
            restart_seconds=self.mechanics.restart_seconds,
        )
        batch = engine.groups(workload)[0] if self._orders_by_what_was_learned else None
        likeness = job.user, job.priority, workload.podsets, workload.time_limit, batch
        kind = self._kind[key] = job.queue, *(() if self._is_strict else likeness)
        first = workload.expected_runtime or 0.0
        heappush(self._hidden[kind], (first, f"{job.submit:020.3f}{key}", workload))
        self._show(kind)

    def _show(self, kind: Kind) -> None:
        """Tell the scheduler of the first of a kind, until enough of them are in sight. One more of a kind that waits
        already is no news, unless it may be the shortest."""
        hidden, shown = self._hidden[kind], self._shown[kind]
        while hidden and (len(shown) < self._most[kind] or hidden[0][0] < self._longest[kind]):
            length, _, workload = heappop(hidden)
            if workload.key not in self._ends:
                self._longest[kind] = max(length, self._longest[kind]) if shown else length
                is_news = not shown or self.mechanics.knows_durations
                shown.add(workload.key)
                self.forward.observe(workload, is_news=is_news)

    def _cancel(self, key: str) -> None:
        """A user who has waited long enough gives up."""
        if key in self._ends or key in self.forward.progress:
            return
        self._ends[key] = -1.0
        self.ended += 1
        shown = self._shown[self._kind[key]]
        if key in shown:
            shown.discard(key)
            self.forward.observe(Gone("Workload", key))
            self._show(self._kind[key])

    def _fail(self, node: Node) -> None:
        self.forward.observe(replace(node, is_ready=False))

    # The books

    def _after(self, step: Step) -> None:
        """Those that start, or never will, make room in sight for the next of their kind; for more where all did."""
        gone = [one.workload for one in step.plan.verdicts if isinstance(one, Admit) or self._is_passed(one)]
        kinds = {kind: None for key in gone if (kind := self._kind.get(key)) and key in self._shown[kind]}
        for kind in kinds:
            self._shown[kind].difference_update(gone)
            self._most[kind] = SHOWN if self._shown[kind] else 2 * self._most[kind]
            self._show(kind)

    def _is_passed(self, verdict: Verdict) -> bool:
        """Whether a strict line goes on without it."""
        return self._is_strict and isinstance(verdict, Wait) and RANK[verdict.reason] < SHARED

    def _settle_books(self, step: Step) -> None:
        for attempt in self.forward.attempts:
            self._runs[attempt.key].append(_run(attempt))
            if attempt.has_finished:
                self._ends[attempt.key] = attempt.end
                self.ended += 1
                if self._learns:
                    self._learn(self.jobs[attempt.key])
        self.forward.attempts.clear()
        self._books.enter(step)

    def _learn(self, job: Job) -> None:
        """A queue remembers how long its workloads ran, as its status does on a cluster; nobody asks a policy that
        neither orders by it nor keeps room."""
        queue = self._queues[job.queue]
        known = engine.learn(dict(queue.ledger.runtimes), workload_of(job, self._pods), job.needs)
        queue = replace(queue, ledger=replace(queue.ledger, runtimes=tuple(known.items())))
        self._queues[job.queue] = queue
        self.forward.state.observe(queue)

    def _outcome(self, key: str, job: Job) -> Outcome:
        runs, progress = tuple(self._runs[key]), self.forward.progress.get(key)
        if progress is not None and progress.ran is not None and progress.since is not None:
            one = self.forward.running[key]
            runs += (_run(Attempt(key, progress.ran, self.forward.now, one.admission, has_finished=False)),)
        end = self._ends.get(key, -1.0)
        evictions = max(0, len(self._runs[key]) - (end >= 0))
        return Outcome(job, end, runs, evictions, progress.lost if progress else 0.0, key in self._ends and end < 0)


def _run(attempt: Attempt) -> Run:
    shares = [share.node for podset in attempt.admission.podsets for share in podset.nodes]
    return Run(attempt.start, attempt.end, tuple(dict.fromkeys(shares)))


class _Books:
    """GPUs there, held and stranded at each moment."""

    def __init__(self) -> None:
        self._moments: list[tuple[float, float, float, float]] = []

    def enter(self, step: Step) -> None:
        snapshot = step.snapshot
        column = snapshot.resources.index(GPU)
        capacity, free = snapshot.capacity[column], snapshot.free[column]
        ready = snapshot.is_usable
        partly = ready & (free > 0) & (free < capacity)
        there, held = float(capacity[ready].sum()), float((capacity - free)[ready].sum())
        moment = (step.now, there / DEVICE, held / DEVICE, float(free[partly].sum()) / DEVICE)
        if self._moments and self._moments[-1][0] == step.now:
            self._moments[-1] = moment
        else:
            self._moments.append(moment)

    def series(self, outcomes: Sequence[Outcome]) -> Series:
        times, there, held, stranded = np.array(self._moments, np.float64).reshape(-1, 4).T
        names = tuple(sorted({it.job.queue for it in outcomes}))
        by_queue = np.array([_held(times, [it for it in outcomes if it.job.queue == name]) for name in names])
        return Series(times, there, held, stranded, names, by_queue.reshape(len(names), len(times)))


def _held(times: Floats, outcomes: Sequence[Outcome]) -> Floats:
    """GPUs held by the runs of these jobs at each moment."""
    runs = np.array([(run.start, run.end, it.job.total_gpus) for it in outcomes for run in it.runs], np.float64)
    starts, ends, gpus = runs.reshape(-1, 3).T
    moments, deltas = np.concatenate((starts, ends)), np.concatenate((gpus, -gpus))
    order = np.argsort(moments, kind="stable")
    level = np.concatenate(([0.0], np.cumsum(deltas[order])))
    return level[np.searchsorted(moments[order], times, side="right")]
