"""When waiting workloads will start: `decide` run forward, several times, on sampled runtimes and arrivals.

The first MOST_WAITING workloads in order are followed. Half of the runs start a workload by its p50, nine in ten by its
p90. A workload that is not followed starts, in each run, when the work ahead of it is drained at the run's last rate:
it is marked rough.

A runtime is drawn from what was learned of the workload's kind, of the runtimes longer than it has run already. All
workloads of a batch that is not known yet draw alike: in a run in which one is long, all are. Where nothing was learned
a runtime is exponential, around what the workload or its queue expects, else half the enforced limit, else
DEFAULT_SECONDS. A workload that has run longer than that, or than any of its kind, runs about as long again. `decide`
itself ends a workload at its time limit. Arrivals come in bursts of similar workloads: for an hour as in the last hour,
then as in the last WINDOW seconds; fewer than ENOUGH bursts tell nothing.

The wait until p90 is stretched as much as its queue has learned to (track.py), twofold at first, but not beyond the
start of a hold, and none of it until a new period of a budget that is spent: nothing starts before.

Work is bounded by counts, never by time: an Effort. A run makes at most MOST_CYCLES decisions. Each sees MOST_SEEN of
the waiting workloads, or twice as many as the last one started, and arrivals stop while MOST_BEHIND wait. A run ends
where only arrivals could still happen: nothing runs, and no time is set at which the answer may change. A workload that
fewer than half of the runs came to is rough too. The same world and chance give the same forecast. A workload that can
never start, or that no usable node could hold, has no forecast; nor has one whose pods others gate, or that comes after
what may run for any time.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice
from math import inf, log
from typing import NamedTuple

import numpy as np

from fairway import engine
from fairway.engine import HOUR, Admit, Cycle, Policy, QueueTree, Reason, Snapshot, Values, Wait, Workload, World

from .forward import Forward, Work

MOST_WAITING, MOST_SEEN, MOST_BEHIND, MOST_CYCLES = 1_000, 32, 256, 500
LOOKS = 64  # the cost, in looks, of a decision beside its nodes and workloads, and of each waiting workload in it
DEFAULT_SECONDS = HOUR
WINDOW = 24 * HOUR
BURST_SECONDS = 60.0
FIRST_COPY = 10**9  # a number at the end of a name, so that a copy is of its original's kind
FAR = 10.0
DARK = 2  # the doubt in which nothing is foretold
NEVER = (*tuple(Reason)[: tuple(Reason).index(Reason.NEVER_FITS) + 1], Reason.SCHEDULING_GATED)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Starts, in seconds since the epoch. `p90` is infinite where fewer than nine in ten runs start it."""

    p50: float
    p90: float
    is_rough: bool = False


class Effort(NamedTuple):
    """How much work a forecast may be. `looks`: the nodes and workloads that all decisions of all runs may look at
    together."""

    runs: int
    looks: int

    def cycles(self, snapshot: Snapshot) -> int:
        """Decisions of each run; 0 where the cluster is too large to run forward."""
        waiting = min(len(snapshot.pending), MOST_SEEN)
        seen = LOOKS + len(snapshot.nodes) + len(snapshot.running) + LOOKS * waiting
        return min(MOST_CYCLES, self.looks // (self.runs * seen))


THOROUGH = Effort(16, 8_000_000)
QUICK = Effort(4, 30_000)  # for a question that is answered within a second


class Renewal(NamedTuple):
    """Of a budget that forbids a start now: the earliest start whatever ends, when the next period begins, and how many
    seconds each lasts."""

    first: float = 0.0
    begins: float = inf
    period: float = inf

    def before(self, time: float) -> float:
        """The beginning of the period that `time` is in; 0 in the present one."""
        return time - (time - self.begins) % self.period if self.begins <= time < inf else 0.0


class Season(NamedTuple):
    """Bursts that may come until then, and the mean seconds between two."""

    bursts: list[list[Workload]]
    pause: float
    until: float


class End(NamedTuple):
    """Of one run: first starts by key, when it ended, the part of the cluster that is at work then, and whether it was
    cut off before all asked for had started."""

    starts: dict[str, float]
    now: float
    rate: float
    is_cut: bool


class Runtimes:
    """How long workloads run, as a distribution of each, but for those whose runtime is known, in seconds."""

    def __init__(self, tree: QueueTree, snapshot: Snapshot, known: Mapping[str, float]) -> None:
        self._tree, self.foreseen, self._known = tree, engine.Foreseen(snapshot), known

    def left(self, workload: Workload, part: float, *, ran: float = 0.0) -> float:
        """The seconds it goes on for, of which `part` of its kind go on for less; `ran`: those it has run."""
        if workload.key in self._known:
            return max(0.0, self._known[workload.key] - ran)
        says = workload.expected_runtime if not self.foreseen.is_own(workload) else None
        if self.foreseen.outlives(workload, ran):
            says = workload.expected_runtime or workload.time_limit
        whole = None if says else self.foreseen.quantile(workload, part, ran)
        if whole is not None:
            return whole - ran
        is_known = self.foreseen.knows(workload) and not says
        return -log(1.0 - part) * max(ran, 0.0 if is_known else self._mean(workload))

    def doubt(self, workload: Workload, ran: float = 0.0) -> int:
        """How little is known of how long it runs: 2 where none of its queue has ended, and no limit or expectation is
        set; 1 where it has run longer than all that is known, or none of its name was seen and it may run FAR longer;
        else 0."""
        if workload.key in self._known:
            return 0
        if self.foreseen.knows(workload):
            may = 0.0 if self.foreseen.is_own(workload) or workload.expected_runtime else workload.time_limit or 0.0
            return int(self.foreseen.outlives(workload, ran) or self.foreseen.outlives(workload, may / FAR))
        return 0 if self._says(workload) else DARK

    def is_endless(self, workload: Workload, ran: float) -> bool:
        """Whether nothing says when it ends: no limit, no expectation, and none of its kind that ended ran so long."""
        has_kin = self.foreseen.knows(workload) and not self.foreseen.outlives(workload, ran)
        return not (has_kin or self._says(workload) or workload.key in self._known)

    def _says(self, workload: Workload) -> float | None:
        return workload.expected_runtime or self._expected(workload) or self._tree.time_limit(workload)

    def _expected(self, workload: Workload) -> float | None:
        return self._tree.inherited(workload.queue, "expected_runtime", None)

    def stretch(self, workload: Workload) -> float:
        """Of the wait until p90, in its queue."""
        branch = self._tree.branches.get(workload.queue)
        return (branch.queue.ledger if branch else engine.Ledger()).stretch

    def _mean(self, workload: Workload) -> float:
        limit = self._tree.time_limit(workload)
        return workload.expected_runtime or self._expected(workload) or (
            DEFAULT_SECONDS if limit is None else limit / 2
        )  # fmt: skip


class Sizes:
    """The part of the cluster that a workload takes, by the resource of which it takes most."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._whole = dict(zip(snapshot.resources, snapshot.capacity.sum(axis=1).tolist()))

    def of(self, one: Workload) -> float:
        parts = [amount * podset.count / max(1, self._whole.get(name, 1)) for podset in one.podsets
                 for name, amount in podset.pod.requests]  # fmt: skip
        return max(parts, default=0.0)


@dataclass(frozen=True, slots=True)
class Question:
    """`known`: runtimes in seconds, by key, that are known for certain. `only`: the key of the one workload that is
    asked about; the others are then rough or left out."""

    known: Mapping[str, float] = field(default_factory=dict)
    only: str = ""
    effort: Effort = THOROUGH


def forecast(
    world: World, policy: Policy, chance: np.random.Generator, question: Question | None = None
) -> dict[str, Forecast]:
    """By key, for waiting workloads. Those that came in the last WINDOW seconds, `world.recent`, are expected to come
    again."""
    futures = Futures(world, policy, question or Question())
    if not futures.line:
        return {}
    runs = [futures.run(chance) for _ in range(futures.effort.runs)]
    starts, seen = (np.array(part).reshape(len(runs), -1) for part in zip(*runs))
    halves, most = np.quantile(starts, (0.5, 0.9), axis=0, method="inverted_cdf").tolist()
    is_rough = (seen.sum(axis=0) < len(runs) / 2).tolist()
    guesses = futures.guesses()
    return {
        one.key: futures.told(one, p50, p90, is_rough=rough or bool(guess and p50 > world.now))
        for one, p50, p90, rough, guess in zip(futures.line, halves, most, is_rough, guesses)
        if p50 <= world.now or (p50 < inf and guess < DARK)
    }


class Futures:
    """What may come of a world; `line`: the waiting workloads, in order."""

    def __init__(self, world: World, policy: Policy, question: Question) -> None:
        snapshot = engine.snapshot_of(world)
        self.effort, self._cycles = question.effort, question.effort.cycles(snapshot)
        self.line, self._holds, self._renewals = line_of(snapshot, policy)
        self._world, self._policy = world, policy
        self._seasons = _seasons(world.recent, world.now)
        self._sizes = Sizes(snapshot)
        self._runtimes = Runtimes(engine.Draft(snapshot, policy).tree, snapshot, question.known)
        self._since = {one.workload.key: one.admitted_at for one in world.running}
        self._work = np.array([self._sizes.of(one) * self._runtimes.left(one, 0.5) for one in self.line])
        followed = {one.key for one in self.line[:MOST_WAITING]}
        self.endless = self._endless()
        self._asked = followed & {question.only} or followed

    def guesses(self) -> list[int]:
        """For each of the line whether its start hangs on a guess: 0 no; 1 on what runs; 2 on what waits before it, or
        on the end of what is endless."""
        doubts = [self._runtimes.doubt(one.workload, self._ran(one)) for one in self._world.running]
        guess, found = int(DARK in doubts or sum(doubts) > len(doubts) / 2), list[int]()
        for one in self.line:
            found.append(DARK if one.key in self.endless else guess)
            guess = max(guess, self.delays(one))
        return found

    def delays(self, one: Workload) -> int:
        """The doubt about how long it keeps what waits behind it; none where nothing says that it takes room."""
        return 0 if one.key in self.endless else self._runtimes.doubt(one)

    def _endless(self) -> dict[str, str]:
        """The running workload of which nothing says when it ends, by key of itself and of each that comes after it."""
        running = (one for one in self._world.running if self._runtimes.is_endless(one.workload, self._ran(one)))
        found = {one.workload.key: one.workload.key for one in running}
        for one in self.line:
            if before := next(filter(None, map(found.get, one.after)), ""):
                found[one.key] = before
        return found

    def _ran(self, one: engine.Running) -> float:
        return 0.0 if one.admitted_at is None else self._world.now - one.admitted_at

    def told(self, one: Workload, p50: float, p90: float, *, is_rough: bool) -> Forecast:
        """What is told where the runs say this. A rough start is not later than a hold, which was computed."""
        late = max(p50, self.late(one, p90))
        hold = max(self._world.now, self._holds.get(one.key, inf)) if is_rough else inf
        return Forecast(min(p50, hold), min(late, hold), is_rough)

    def late(self, one: Workload, p90: float) -> float:
        """The p90 that is told where the runs say this one: stretched, but not beyond the start of a hold."""
        first = max(self._world.now, self._renewals.get(one.key, Renewal()).before(p90))
        longest = first + self._runtimes.stretch(one) * (p90 - first) if p90 > first else p90
        return min(longest, max(p90, self._holds.get(one.key, inf)))

    def run(self, chance: np.random.Generator) -> tuple[Values, engine.Mask]:
        """One future. float64[line]: starts; bool[line]: whether the run came to them."""
        end = self._follow(chance) if self._cycles else self._cut_at_once()
        starts = np.array([end.starts.get(one.key, inf) for one in self.line])
        return self._drained(end, starts), starts < inf

    def _cut_at_once(self) -> End:
        rate = sum(self._sizes.of(one.workload) for one in self._world.running)
        return End({}, self._world.now, rate, is_cut=True)

    def _drawn(self, chance: np.random.Generator) -> Work:
        """The seconds that each works from now on."""
        parts = defaultdict[engine.Group, float](chance.random)

        def work(workload: Workload) -> float:
            began, batch = self._since.get(workload.key), self._runtimes.foreseen.unknown_batch(workload)
            part = parts[batch] if batch else chance.random()
            ran = 0.0 if began is None else max(0.0, self._world.now - began)
            return self._runtimes.left(workload, part, ran=ran)

        return work

    def _follow(self, chance: np.random.Generator) -> End:
        """One run, until the workloads asked about have started, nothing more can start, or it is cut off."""
        work, line = self._drawn(chance), self.line[:MOST_WAITING]
        state = engine.state_of(replace(self._world, pending=tuple(line[:MOST_SEEN])))
        ahead = Forward(state, self._policy, work, now=self._world.now, is_checked=False)
        arrivals = Arrivals(ahead, self._seasons, chance)
        hidden, waiting, depth = iter(line[MOST_SEEN:]), {one.key for one in line}, len(line[:MOST_SEEN])
        starts, last, is_cut = dict[str, float](), dict[str, Workload](), False
        for number, step in enumerate(ahead.steps(), 1):
            begun = {it.workload for it in step.plan.verdicts if isinstance(it, Admit) and not it.after}
            first = waiting & begun
            starts |= dict.fromkeys(first, step.now)
            waiting -= first
            depth -= len(first)
            if more := list(islice(hidden, max(0, max(MOST_SEEN, 2 * len(first)) - depth))):
                depth += len(more)
                ahead.observe(*more)
            arrivals.are_held_back = len(step.snapshot.pending) > MOST_BEHIND
            is_done = waiting.isdisjoint(self._asked) or not (more or begun or ahead.running or step.plan.again_at)
            is_cut = number == self._cycles and not is_done
            if is_done or is_cut:
                last = {one.key: one for one in step.snapshot.pending if one.key in begun}
                break
        at_work = last | {key: one.workload for key, one in ahead.running.items()}
        return End(starts, ahead.now, sum(map(self._sizes.of, at_work.values())), is_cut)

    def _drained(self, end: End, starts: Values) -> Values:
        """`starts`, and of those that were not followed, or did not start before the run was cut off, when what is left
        of the work ahead is drained, as fast as at its end, but not before a budget allows it."""
        is_open = starts == inf
        is_open[:MOST_WAITING] &= end.is_cut
        left = np.cumsum(np.where(is_open, self._work, 0.0))
        first = [self._renewals.get(one.key, Renewal()).first for one in self.line]
        return np.where(is_open, np.maximum(first, end.now + left / end.rate), starts) if end.rate else starts


def line_of(snapshot: Snapshot, policy: Policy) -> tuple[list[Workload], dict[str, float], dict[str, Renewal]]:
    """The waiting workloads that may start some day, in order: by the place in its queue, queues in the order decided.
    And, by key, the start of each hold, and the renewal of each budget that is spent. A workload that would
    exceed a quota even if nothing else ran never may; one that no usable node could hold may only once a node comes
    back, and nothing tells when."""
    if not snapshot.is_usable.any():
        return [], {}, {}
    pending = {one.key: one for one in snapshot.pending}
    verdicts = [it for it in engine.decide(policy.seen(snapshot), policy).verdicts if it.workload in pending]
    alone = Cycle(engine.snapshot_of(replace(engine.world_of(snapshot), pending=(), running=())), policy)
    known, stuck = dict[tuple[object, ...], bool](), _stuck(snapshot, alone.tree)
    may = [it for it in verdicts if it.workload not in stuck and (isinstance(it, Admit) or (
        isinstance(it, Wait) and it.reason not in NEVER and _may_start(pending[it.workload], alone, known)
    ))]  # fmt: skip
    may.sort(key=lambda it: it.position if isinstance(it, Wait) else 0)
    holds = {it.workload: it.starts_at for it in may if isinstance(it, Wait) and it.starts_at is not None}
    renewals = {it.workload: _renewal(it.facts, snapshot) for it in may if isinstance(it, Wait) and it.facts.spending}
    return [pending[it.workload] for it in may], holds, renewals


def _renewal(facts: engine.Facts, snapshot: Snapshot) -> Renewal:
    """It may start before the next period unless what is spent forbids it; never, where it needs more than the whole
    budget."""
    budget, spent, _, needed = facts.spending or (0.0,) * 4
    begins, period = facts.until or inf, snapshot.queues[facts.queue].budget_period or inf
    return Renewal(0.0 if spent + needed <= budget else inf if needed > budget else begins, begins, period)


def _stuck(snapshot: Snapshot, tree: QueueTree) -> set[str]:
    """Keys of the waiting workloads that come after one which neither runs nor waits and has not succeeded (suspended,
    say, or missing), after each other, or after any of these."""
    runs = {one.workload.key for one in snapshot.running}
    left = {one.key: [key for key in one.after if tree.unmet((key,))] for one in snapshot.pending if one.after}
    waits = {one.key for one in snapshot.pending} - left.keys() | runs
    while free := [key for key, before in left.items() if waits.issuperset(before)]:
        waits.update(free)
        for key in free:
            del left[key]
    return set(left)


def _may_start(workload: Workload, alone: Cycle, known: dict[tuple[object, ...], bool]) -> bool:
    """Whether quota and the usable nodes would let it start in a cluster in which nothing runs. `known`: what was found
    for similar workloads."""
    pools, _ = engine.open_pools(workload, alone)
    if not pools or alone.snapshot.is_usable.all():
        return bool(pools)
    key = id(workload.podsets), workload.topology, pools
    if key not in known:
        known[key] = engine.could_hold(alone.draft, alone.ask(workload, alone.least(workload)), pools)
    return known[key]


def _seasons(recent: Sequence[Workload], now: float) -> list[Season]:
    """What comes in the next hour is like what came in the last, what comes later like the last day; where the last
    hour had too few bursts to tell anything, the day stands for it."""
    hour, day = (_bursts(one for one in recent if one.submitted > now - window) for window in (HOUR, WINDOW))
    seasons = [Season(hour, HOUR / max(1, len(hour)), now + HOUR), Season(day, WINDOW / max(1, len(day)), inf)]
    return [one for one in seasons if len(one.bursts) >= engine.ENOUGH]


class Arrivals:
    """Puts bursts into a run as its time passes, each like one of its season; none while they `are_held_back`."""

    def __init__(self, ahead: Forward, seasons: list[Season], chance: np.random.Generator) -> None:
        self._ahead, self._seasons, self._chance = ahead, seasons, chance
        self._numbers = count(FIRST_COPY)
        self.are_held_back = False
        self._go_on()

    def _arrive(self, season: Season) -> None:
        burst = season.bursts[int(self._chance.integers(len(season.bursts)))]
        number, ahead = next(self._numbers), self._ahead
        come = () if self.are_held_back else burst
        ahead.observe(*(_anew(one, f"{one.key}-{number}", ahead.now) for one in come))
        self._go_on()

    def _go_on(self) -> None:
        ahead, season = self._ahead, next((one for one in self._seasons if self._ahead.now < one.until), None)
        if season is None:
            return
        at = ahead.now + float(self._chance.exponential(season.pause))
        ahead.at(min(at, season.until), partial(self._arrive, season) if at < season.until else self._go_on)


def _bursts(workloads: Iterable[Workload]) -> list[list[Workload]]:
    """Similar workloads that came within BURST_SECONDS."""
    groups: defaultdict[tuple[object, ...], list[Workload]] = defaultdict(list)
    for one in workloads:
        groups[one.queue, one.user, engine.job_family(one.name), one.submitted // BURST_SECONDS].append(one)
    return list(groups.values())


def _anew(one: Workload, key: str, now: float) -> Workload:
    """The like of it, with no past."""
    fresh = replace(one, key=key, uid="", submitted=now, deadline=None, after=(), backs_off_until=None, refused="")
    return replace(fresh, is_active=True, excluded_nodes=(), evictions=(), attained=0.0, days=(), last_checkpoint=None)
