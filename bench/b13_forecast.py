"""B13, forecasts: what was foretold of those who wait, against when they started.

A trace is replayed under `fairway`, each queue with a pool of its own by itself. At MOMENTS moments evenly spread over
its time, as soon as somebody waits, a forecast is made from what a scheduler knows then: all who wait, runtimes learned
so far, who came lately, and how earlier forecasts came true: of each workload the first from each distance, as on a
cluster. Each is judged by the first start that followed, by its pinball losses at p50 and p90 against those of the best
rival (rivals.py), which is told of the same moments. The error is |p50 - start| as a part of the wait that was
left; coverage is how many started by their p90; how wide the ranges were is told beside it, for p90 = never is no
answer. Rough forecasts, to which most runs did not come before they were cut off, count like the others. Where the
error is, is told after that: of those that are not rough, and by how far ahead they were told. Last, what it comes
from, and what less of it would cost: the same with the true runtimes told of all who are there, so that nothing is
unknown but who else comes; and under `easy`, where who comes later changes less, with the mean wait of both. The first
MOST_DAYS are replayed, or BENCH_DAYS.
"""

import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from statistics import mean, median
from typing import NamedTuple

import numpy as np
from bench.figure import Figure
from bench.replays import FREE, loads, told
from bench.rivals import NAMES, QUANTILES, Guess, Rivals, pinball

from fairway import engine
from fairway.engine import Admit, Ledger, PodClass, Workload
from fairway.outlook import HORIZONS, WINDOW, Calibration, Forecast, Outcome, Question, forecast, horizon, learned
from fairway.policies import PRESETS
from fairway.sim import Load, World, apart, workload_of

TRACES = ("philly", "helios_venus")
MOMENTS = 24
MOST_DAYS = 60.0
SEED = 42
NEAREST = 0.7
"""The part of the best rival's pinball loss that a forecast may have."""


class Case(NamedTuple):
    """Under which policy, and whether forecasts are told how long those run that are there."""

    policy: str = "fairway"
    is_told: bool = False


CASES = {"": Case(), ", runtimes told": Case(is_told=True), ", under easy": Case("easy")}


class Told(NamedTuple):
    key: str
    now: float
    forecast: Forecast
    rivals: dict[str, Guess]


@dataclass(frozen=True, slots=True)
class Judged:
    """A wait that was foretold, in seconds: what it came to, and what was said, by Fairway and by the rivals."""

    wait: float
    p50: float
    p90: float
    is_rough: bool
    rivals: dict[str, Guess]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What was foretold and came to be, the seconds each job waited, and whether every plan was sound."""

    judged: list[Judged]
    waits: list[float]
    is_valid: bool


class Teller:
    """Forecasts of one load as it is replayed, and what was learned from those that came true."""

    def __init__(self, load: Load, case: Case) -> None:
        self.load, self.policy, self.chance = load, PRESETS[case.policy], np.random.default_rng(SEED)
        self.known = {f"sim/{job.id}": job.duration for job in load.jobs} if case.is_told else None
        self.times = [job.submit for job in load.jobs]
        self.due = np.linspace(self.times[0], self.times[-1], MOMENTS + 1)[1:].tolist() if self.times else []
        self.queues = {f"sim/{job.id}": job.queue for job in load.jobs}
        self.stretches = defaultdict[str, float](lambda: Ledger().stretch)
        self.track, self.rivals = Calibration(), Rivals()
        self.said: list[Told] = []
        self.starts: dict[str, float] = {}  # the first of each

    def started(self, one: Workload, now: float) -> None:
        if one.key not in self.starts:
            self.rivals.started(one, now)
            self.starts[one.key] = now
        self._learn(one.key, self.track.started(one.key, now))

    def _learn(self, key: str, outcomes: Sequence[Outcome]) -> None:
        queue = self.queues[key]
        self.stretches[queue] = learned(self.stretches[queue], outcomes)

    def is_due(self, now: float) -> bool:
        return bool(self.due) and now >= self.due[0]

    def ask(self, world: engine.World, now: float) -> None:
        """A forecast of all who wait."""
        self.due = self.due[bisect_right(self.due, now) :]
        for key in self.track:
            self._learn(key, self.track.waits_on(key, now))
        queues = tuple(
            replace(one, ledger=replace(one.ledger, stretch=self.stretches[one.name])) for one in world.queues
        )
        told = replace(world, queues=queues, recent=self.recent(now))
        found = forecast(told, self.policy, self.chance, Question(self.known or {}))
        rivals = self.rivals.tell(world)
        self.said += [Told(key, now, one, rivals[key]) for key, one in found.items()]
        self.track.tell(now, world.pending, found)

    def recent(self, now: float) -> tuple[Workload, ...]:
        pods: dict[PodClass, PodClass] = {}
        window = slice(bisect_left(self.times, now - WINDOW), bisect_right(self.times, now))
        return tuple(workload_of(job, pods) for job in self.load.jobs[window])

    def judged(self) -> Iterator[Judged]:
        for one in self.said:
            if (wait := self.starts.get(one.key, one.now) - one.now) > 0:
                yield Judged(
                    wait, one.forecast.p50 - one.now, one.forecast.p90 - one.now, one.forecast.is_rough, one.rivals
                )

    def waits(self) -> list[float]:
        return [start - job.submit for job in self.load.jobs if (start := self.starts.get(f"sim/{job.id}")) is not None]


def replayed(load: Load, case: Case) -> Replayed:
    teller, world, is_valid = Teller(load, case), World(load, PRESETS[case.policy], FREE), True
    for step in told(world, case.policy):
        is_valid &= not step.faults
        admitted = {one.workload for one in step.plan.verdicts if isinstance(one, Admit)}
        for one in step.snapshot.pending:
            if one.key in admitted:
                teller.started(one, step.now)
        if len(admitted) < len(step.snapshot.pending) and teller.is_due(step.now):
            teller.ask(world.whole(step.snapshot), step.now)
    return Replayed(list(teller.judged()), teller.waits(), is_valid)


def run(rounds: int = 1) -> Iterator[Figure]:
    """`rounds` is not used: the same load gives the same figures. As many replays at once as there are processors."""
    with ProcessPoolExecutor() as pool:
        found = [load for _, load in loads(TRACES, "B13", MOST_DAYS)]
        asked = [(load.name, which, [pool.submit(replayed, part, case) for part in apart(load)])
                 for which, case in CASES.items() for load in found]  # fmt: skip
        for name, which, parts in asked:
            yield from _figures(name, which, [one.result() for one in parts])


def _figures(load: str, which: str, parts: Sequence[Replayed]) -> Iterator[Figure]:
    """Of one case; aims, and where the error is, are for the first alone."""
    found = [one for part in parts for one in part.judged]
    if not found:
        print(f"B13 {load}{which}: skipped, nobody waited when asked", file=sys.stderr)
        return
    figure = partial(Figure, is_valid=all(part.is_valid for part in parts))
    covered = 100 * sum(one.wait <= one.p90 for one in found) / len(found)
    off_aim = None if which else 5.0
    title = f"B13 {load}{which}, {len(found)} forecasts"
    for at, part in enumerate(QUANTILES):
        own = mean(pinball(one.wait, (one.p50, one.p90)[at], part) for one in found)
        losses = {name: mean(pinball(one.wait, one.rivals[name][at], part) for one in found) for name in NAMES}
        rival = min(losses, key=losses.__getitem__)
        aim = None if which else NEAREST * losses[rival]
        yield figure(f"{title}: pinball loss of p{100 * part:.0f}", (own,), "s", aim, losses[rival], rival)
    yield figure(f"{title}: error of p50", (_error(found),), "% of wait")
    yield figure(f"{title}: within p90", (covered,), "%")
    yield figure(f"{title}: off nine in ten", (abs(covered - 90),), "points", off_aim)
    yield figure(f"{title}: p90 over the wait", (median(one.p90 / one.wait for one in found),), "")
    yield figure(f"B13 {load}{which}: mean wait", (mean(wait for part in parts for wait in part.waits),), "s")
    for group, those in () if which else _groups(found):
        yield figure(f"B13 {load}, {len(those)} {group}: error of p50", (_error(those),), "% of wait")


def _groups(found: Sequence[Judged]) -> Iterator[tuple[str, list[Judged]]]:
    """Those that are not rough, and all by how far ahead they were told; of whom there are any."""
    groups = {"not rough": [one for one in found if not one.is_rough]}
    groups |= {f"told {name} ahead": [one for one in found if horizon(one.p50) == name] for name, _ in HORIZONS}
    yield from ((group, those) for group, those in groups.items() if those)


def _error(those: Sequence[Judged]) -> float:
    """Per cent of the wait that was left, the median."""
    return 100 * median(abs(one.p50 - one.wait) / one.wait for one in those)
