"""When those who wait will start: `decide` run forward, several times, on runtimes and arrivals that are sampled.

The first MOST_WAITING in order are followed in RUNS runs: half of these start a workload by its p50, nine in ten by its
p90. Who is not followed starts, in each run, when the work left ahead is drained at its last pace, and is rough. A
runtime is drawn from what was learned of the workload's kind, of those longer than it has run already; all of a batch
that is not known yet draw alike, so that a run in which they are long is one in which all are. Where nothing was
learned a runtime is exponential, around what the workload or its queue expects, else half the enforced limit, else
DEFAULT_SECONDS; who has run longer than that, or than any of its kind, goes on about as long again. `decide` itself
ends at its limit what would run longer. Arrivals come in bursts of alike workloads: for an hour as they did in the
last, then as in the last WINDOW seconds; fewer than ENOUGH bursts tell nothing.

The wait until p90 is stretched as much as its queue has learned to (track.py), twofold at first, but not beyond the
moment from which a hold keeps room.

Every run is bounded by counts, never by time: MOST_CYCLES cycles, in each of which `decide` sees MOST_SEEN of those who
wait, or twice as many as the last one started. What fewer than half of the runs came to is rough too. The same world
and chance give the same forecast. What can never start has none.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from math import inf, log
from typing import NamedTuple

import numpy as np

from .admit import open_pools
from .cycle import Cycle
from .decide import decide
from .draft import Draft
from .forward import Forward, Work
from .model import Ledger, Workload, World
from .plan import Admit, Reason, Wait
from .policy import Policy
from .quota import Tree
from .score import Values
from .sketch import ENOUGH, HOUR, Foreseen, Group, stem
from .snapshot import Mask, Snapshot
from .state import snapshot_of, state_of, world_of

RUNS, MOST_WAITING, MOST_SEEN, MOST_CYCLES = 16, 1_000, 32, 500
DEFAULT_SECONDS = HOUR
WINDOW = 24 * HOUR
BURST_SECONDS = 60.0
FIRST_COPY = 10**9  # a number at the end of a name, so that a copy is of its original's kind
NEVER = tuple(Reason)[: tuple(Reason).index(Reason.NEVER_FITS) + 1]


@dataclass(frozen=True, slots=True)
class Forecast:
    """Starts, in seconds since the epoch. `p90` is infinite where fewer than nine in ten runs start it."""

    p50: float
    p90: float
    is_rough: bool = False


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

    def __init__(self, tree: Tree, snapshot: Snapshot, known: Mapping[str, float]) -> None:
        self._tree, self.foreseen, self._known = tree, Foreseen(snapshot), known

    def left(self, workload: Workload, part: float, *, ran: float = 0.0) -> float:
        """The seconds it goes on for, of which `part` of its kind go on for less; `ran`: those it has run."""
        if workload.key in self._known:
            return max(0.0, self._known[workload.key] - ran)
        whole = self.foreseen.quantile(workload, part, ran)
        if whole is not None:
            return whole - ran
        return -log(1.0 - part) * max(ran, 0.0 if self.foreseen.knows(workload) else self._mean(workload))

    def stretch(self, workload: Workload) -> float:
        """Of the wait until p90, in its queue."""
        branch = self._tree.branches.get(workload.queue)
        return (branch.queue.ledger if branch else Ledger()).stretch

    def _mean(self, workload: Workload) -> float:
        expected = self._tree.inherited(workload.queue, lambda queue: queue.expected_runtime, None)
        limit = self._tree.time_limit(workload)
        return workload.expected_runtime or expected or (DEFAULT_SECONDS if limit is None else limit / 2)


class Sizes:
    """The part of the cluster that a workload takes, by the resource of which it takes most."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._whole = dict(zip(snapshot.resources, snapshot.capacity.sum(axis=1).tolist()))

    def of(self, one: Workload) -> float:
        parts = [amount * podset.count / max(1, self._whole.get(name, 1)) for podset in one.podsets
                 for name, amount in podset.pod.requests]  # fmt: skip
        return max(parts, default=0.0)


def forecast(
    world: World, policy: Policy, chance: np.random.Generator, *,
    known: Mapping[str, float] | None = None, only: str = "",
) -> dict[str, Forecast]:  # fmt: skip
    """By key, of those who wait; who came in the last WINDOW seconds, `world.recent`, is expected to come again.
    `known`: runtimes in seconds, by key, that are known for certain. `only`: the key of the one that is asked for; of
    the others less is told, or nothing."""
    futures = Futures(world, policy, _seasons(world.recent, world.now), known or {}, only)
    runs = [futures.run(chance) for _ in range(RUNS)]
    starts, seen = (np.array(part).reshape(RUNS, -1) for part in zip(*runs))
    halves, most = np.quantile(starts, (0.5, 0.9), axis=0, method="inverted_cdf").tolist()
    is_rough = (seen.sum(axis=0) < RUNS / 2).tolist()
    return {
        one.key: Forecast(p50, max(p50, futures.late(one, p90)), rough)
        for one, p50, p90, rough in zip(futures.line, halves, most, is_rough) if p50 < inf
    }


class Futures:
    """What may come of a world; `line`: who waits, in order."""

    def __init__(
        self, world: World, policy: Policy, seasons: list[Season], known: Mapping[str, float], only: str
    ) -> None:
        snapshot = snapshot_of(world)
        self.line, self._holds = line_of(snapshot, policy)
        self._world, self._policy, self._seasons = world, policy, seasons
        self._runtimes, self._sizes = Runtimes(Draft(snapshot, policy).tree, snapshot, known), Sizes(snapshot)
        self._since = {one.workload.key: one.admitted_at for one in world.running}
        self._work = np.array([self._sizes.of(one) * self._runtimes.left(one, 0.5) for one in self.line])
        followed = {one.key for one in self.line[:MOST_WAITING]}
        self._asked = followed & {only} or followed

    def late(self, one: Workload, p90: float) -> float:
        """The p90 that is told where the runs say this one: stretched, but not beyond the start of a hold."""
        longest = self._world.now + self._runtimes.stretch(one) * (p90 - self._world.now)
        return min(longest, max(p90, self._holds.get(one.key, inf)))

    def run(self, chance: np.random.Generator) -> tuple[Values, Mask]:
        """One future. float64[line]: starts; bool[line]: whether the run came to them."""
        work = self._drawn(chance)
        state = state_of(replace(self._world, pending=tuple(self.line[:MOST_SEEN])))
        ahead = Forward(state, self._policy, work, now=self._world.now, is_checked=False)
        _expect(ahead, self._seasons, chance)
        end = self._follow(ahead)
        starts = np.array([end.starts.get(one.key, inf) for one in self.line])
        return self._drained(end, starts), starts < inf

    def _drawn(self, chance: np.random.Generator) -> Work:
        """The seconds that each works from now on."""
        parts = defaultdict[Group, float](chance.random)

        def work(workload: Workload) -> float:
            began, batch = self._since.get(workload.key), self._runtimes.foreseen.unknown_batch(workload)
            part = parts[batch] if batch else chance.random()
            ran = 0.0 if began is None else max(0.0, self._world.now - began)
            return self._runtimes.left(workload, part, ran=ran)

        return work

    def _follow(self, ahead: Forward) -> End:
        """The run, until those asked for have started or it is cut off."""
        line = self.line[:MOST_WAITING]
        hidden, waiting, depth = iter(line[MOST_SEEN:]), {one.key for one in line}, len(line[:MOST_SEEN])
        starts, last, is_cut = dict[str, float](), dict[str, Workload](), False
        for number, step in enumerate(ahead.steps()):
            begun = {it.workload for it in step.plan.verdicts if isinstance(it, Admit) and not it.after}
            first = waiting & begun
            starts |= dict.fromkeys(first, step.now)
            waiting -= first
            depth -= len(first)
            if more := list(islice(hidden, max(0, max(MOST_SEEN, 2 * len(first)) - depth))):
                depth += len(more)
                ahead.observe(*more)
            is_done = waiting.isdisjoint(self._asked)
            is_cut = number == MOST_CYCLES and not is_done
            if is_done or is_cut:
                last = {one.key: one for one in step.snapshot.pending if one.key in begun}
                break
        at_work = last | {key: one.workload for key, one in ahead.running.items()}
        return End(starts, ahead.now, sum(map(self._sizes.of, at_work.values())), is_cut)

    def _drained(self, end: End, starts: Values) -> Values:
        """`starts`, and of those who were not followed, or did not start before the run was cut off, when what is left
        of the work ahead is drained, as fast as at its end."""
        is_open = starts == inf
        is_open[:MOST_WAITING] &= end.is_cut
        left = np.cumsum(np.where(is_open, self._work, 0.0))
        return np.where(is_open, end.now + left / end.rate, starts) if end.rate else starts


def line_of(snapshot: Snapshot, policy: Policy) -> tuple[list[Workload], dict[str, float]]:
    """Who waits and may start some day, in order: by the place in its queue, queues in the order decided. And, by key,
    from when on room is kept for those that have a hold. Who would exceed a quota even if nobody else ran never may."""
    pending = {one.key: one for one in snapshot.pending}
    verdicts = [it for it in decide(policy.seen(snapshot), policy).verdicts if it.workload in pending]
    alone = Cycle(snapshot_of(replace(world_of(snapshot), pending=(), running=())), policy)
    may = [it for it in verdicts if isinstance(it, Admit) or (
        isinstance(it, Wait) and it.reason not in NEVER and open_pools(pending[it.workload], alone)
    )]  # fmt: skip
    may.sort(key=lambda it: it.position if isinstance(it, Wait) else 0)
    holds = {it.workload: it.starts_at for it in may if isinstance(it, Wait) and it.starts_at is not None}
    return [pending[it.workload] for it in may], holds


def _seasons(recent: Sequence[Workload], now: float) -> list[Season]:
    """What comes in the next hour is like what came in the last, what comes later like the last day; where the last
    hour had too few bursts to tell anything, the day stands for it."""
    hour, day = (_bursts(one for one in recent if one.submitted > now - window) for window in (HOUR, WINDOW))
    seasons = [Season(hour, HOUR / max(1, len(hour)), now + HOUR), Season(day, WINDOW / max(1, len(day)), inf)]
    return [one for one in seasons if len(one.bursts) >= ENOUGH]


def _expect(ahead: Forward, seasons: list[Season], chance: np.random.Generator) -> None:
    """From now on bursts come, each like one of its season."""
    numbers = count(FIRST_COPY)

    def arrive(season: Season) -> None:
        burst, number = season.bursts[int(chance.integers(len(season.bursts)))], next(numbers)
        ahead.observe(*(_anew(one, f"{one.key}-{number}", ahead.now) for one in burst))
        go_on()

    def go_on() -> None:
        season = next((one for one in seasons if ahead.now < one.until), None)
        if season is None:
            return
        at = ahead.now + float(chance.exponential(season.pause))
        ahead.at(min(at, season.until), partial(arrive, season) if at < season.until else go_on)

    go_on()


def _bursts(workloads: Iterable[Workload]) -> list[list[Workload]]:
    """Those alike that came at once."""
    groups: defaultdict[tuple[object, ...], list[Workload]] = defaultdict(list)
    for one in workloads:
        groups[one.queue, one.user, stem(one.name), one.submitted // BURST_SECONDS].append(one)
    return list(groups.values())


def _anew(one: Workload, key: str, now: float) -> Workload:
    """The like of it, with no past."""
    fresh = replace(one, key=key, uid="", submitted=now, deadline=None, after=(), backs_off_until=None, refused="")
    return replace(fresh, is_active=True, excluded_nodes=(), evictions=(), attained=0.0, last_checkpoint=None)
