"""When those who wait are expected to start, written to their status; and how far off that was.

At most once a minute, and only while something waits, `forecast` of the engine runs in a process of its own that gives
way to others and ends with its answer: deciding never waits for it. It uses a tenth of one processor at most, and half
a percent while nothing is decided: then only time passes. A forecast is written again when it has moved by more than a
tenth of the time it tells of, and when its first time has passed. What was told first from each distance is kept until
the workload starts, and then counted, in the metrics and for its queue's status: by how much p50 was off, and how many
started by p90. Nothing is decided here.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from math import ceil, inf

import numpy as np
from msgspec import structs

from fairway.api.quantities import time, time_text
from fairway.api.types import Forecast as ForecastStatus
from fairway.api.types import ForecastAccuracy, WorkloadObject, WorkloadStatus
from fairway.api.workloads import recent
from fairway.engine import Plan, Policy, Snapshot, Wait, world_of
from fairway.outlook import HORIZONS, Calibration, Forecast, Outcome, forecast

from .means import Means
from .status import holds, since

MINUTE, SETTLE_SECONDS = 60.0, 2.0
REST, QUIET_REST = 9.0, 199.0  # times as long as a forecast took: the rest after it, and while nothing is decided
MOVED, PASSED_SECONDS = 0.1, 5.0
SEED = 1  # the same each time: a forecast moves because the world does, not by chance
MEMORY = 200  # starts that an accuracy is the mean of
log = logging.getLogger(__name__)
Learn = Callable[[str, Outcome], None]


class Forecasts:
    """`learn` hears, by queue, what came of each forecast; `learned` adds to a snapshot what queues have learned and
    not written yet."""

    def __init__(self, means: Means, policy: Policy, learn: Learn, learned: Callable[[Snapshot], Snapshot]) -> None:
        self.means, self.policy, self.learn, self.learned = means, policy, learn, learned
        self._track = Calibration()
        self._starts: Counter[str] = Counter()
        self._covered: Counter[str] = Counter()
        self._is_due = asyncio.Event()

    def note(self, plan: Plan) -> None:
        """A cycle is over."""
        if any(isinstance(verdict, Wait) for verdict in plan.verdicts):
            self._is_due.set()

    async def run(self) -> None:
        """Until cancelled."""
        clock = self.means.client.clock
        while True:
            await self._is_due.wait()
            await clock.sleep(SETTLE_SECONDS)  # most that wait for a moment wait no longer
            self._is_due.clear()
            began = clock.now()
            self._count_started()
            snapshot = self.means.facts.state.snapshot(began)
            took = await self._round(snapshot) if snapshot.pending else 0.0
            await self._rest(began + max(MINUTE, took * REST))
            if snapshot.pending or self._track:
                await self._rest(began + max(MINUTE, took * QUIET_REST), wakes=True)
                self._is_due.set()

    async def _rest(self, end: float, *, wakes: bool = False) -> None:
        """Until `end`, or until something is decided if it `wakes`; forecasts whose first time passes are moved on."""
        clock, decided = self.means.client.clock, self._is_due if wakes else asyncio.Event()
        while (now := clock.now()) < end:
            told = (it.status.forecast for it in self.means.view.workloads.values())
            soonest = min((time(it.p50) + PASSED_SECONDS for it in told if it), default=end)
            with suppress(TimeoutError):
                await clock.within(min(end, max(soonest, now + 1.0)) - now, decided.wait())
                return
            late = [key for key, it in self.means.view.workloads.items() if overtaken(it.status, clock.now())]
            for key in late:
                await self.means.write(key, lambda it: moved_on(it, clock.now()))
            if late and wakes:
                return  # what comes was not foreseen

    async def _round(self, snapshot: Snapshot) -> float:
        """One forecast, told; how long finding it took."""
        clock, chance = self.means.client.clock, np.random.default_rng(SEED)
        known, reading = self.means.view.workloads.values(), self.means.facts.reading()
        world = world_of(self.learned(snapshot), recent(known, reading, now=snapshot.now))
        try:
            found = await clock.in_process(forecast, world, self.policy, chance)
        except (EOFError, OSError) as error:
            log.warning("no forecast: its process ended without an answer: %r", error)
            found = {}
        took = clock.now() - snapshot.now
        await self._tell(snapshot, found)
        return took

    async def _tell(self, snapshot: Snapshot, found: Mapping[str, Forecast]) -> None:
        """Written one after the other, no faster than the settings say; who has none any more is told so too."""
        means, pause = self.means, 1.0 / self.means.settings.refreshes_per_second
        self._track.tell(snapshot.now, snapshot.pending, found)
        for one in snapshot.pending:
            seen, new = means.view.workloads.get(one.key), found.get(one.key)
            if seen is None or not seen.status.phase:  # why it waits is told first
                continue
            if is_news(seen.status, new and from_now(new, means.now()), now=snapshot.now):
                await means.write(one.key, lambda it, new=new: foretold(it, new and from_now(new, means.now())))  # type: ignore[misc]
                await means.client.clock.sleep(pause)

    # How good they were

    def _count_started(self) -> None:
        """Who waits no longer started, or is no more."""
        for key in self._track:
            seen = self.means.view.workloads.get(key)
            start = since(seen.status, "Admitted") if seen else None
            if seen and start is not None:
                for one in self._track.started(key, start):
                    self._count(seen.spec.queue, one)
            elif seen is None or seen.status.is_over or not seen.spec.may_run:
                self._track.forget(key)
            else:
                for one in self._track.waits_on(key, self.means.now()):
                    self.learn(seen.spec.queue, one)

    def _count(self, queue: str, one: Outcome) -> None:
        metrics, name = self.means.metrics, one.horizon
        metrics.forecast_error.labels(name).observe(one.error)
        self._starts[name] += 1
        self._covered[name] += one.is_covered
        metrics.forecast_coverage.labels(name).set(self._covered[name] / self._starts[name])
        self.learn(queue, one)


def accuracy(before: Iterable[ForecastAccuracy], outcomes: Iterable[Outcome]) -> tuple[ForecastAccuracy, ...]:
    """With more outcomes in it; nearest horizon first."""
    found = {one.horizon: one for one in before}
    for new in outcomes:
        if new.error is None:
            continue
        old = found.get(new.horizon, ForecastAccuracy(new.horizon, 0, 0.0, 0.0))
        part = 1 / min(old.starts + 1, MEMORY)
        error = round(old.error + (new.error - old.error) * part, 3)
        coverage = round(old.coverage + (new.is_covered - old.coverage) * part, 6)
        found[new.horizon] = ForecastAccuracy(new.horizon, old.starts + 1, error, coverage)
    return tuple(found[name] for name, _ in HORIZONS if name in found)


def foretold(said: WorkloadObject, new: Forecast | None) -> WorkloadStatus:
    """The status with this forecast, of a workload that still waits."""
    if holds(said.status, "Admitted") or said.status.is_over:
        return said.status
    return structs.replace(said.status, forecast=written(new) if new else None)


def overtaken(status: WorkloadStatus, now: float) -> bool:
    """Whether the first time of its forecast has passed."""
    return status.forecast is not None and time(status.forecast.p50) + PASSED_SECONDS <= now


def moved_on(said: WorkloadObject, now: float) -> WorkloadStatus:
    """The status with no time in the past: after p50 its forecast is p90, roughly; after that it has none."""
    old = said.status.forecast
    if old is None or not overtaken(said.status, now):
        return said.status
    late = old.p90 if old.p90 and time(old.p90) > now else ""
    return structs.replace(said.status, forecast=ForecastStatus(late, late, rough=True) if late else None)


def from_now(one: Forecast, now: float) -> Forecast:
    """A forecast without what has passed since it was begun."""
    return replace(one, p50=max(one.p50, now), p90=max(one.p90, now))


def written(one: Forecast) -> ForecastStatus:
    return ForecastStatus(time_text(ceil(one.p50)), time_text(ceil(one.p90)) if one.p90 < inf else "", one.is_rough)


def is_news(status: WorkloadStatus, new: Forecast | None, *, now: float) -> bool:
    """Whether it says something else than what is written."""
    if new is None or status.forecast is None:
        return (new is None) != (status.forecast is None)
    old, after = status.forecast, written(new)
    pairs = ((old.p50, after.p50), (old.p90, after.p90))
    return old.rough != after.rough or any(_has_moved(before, then, now) for before, then in pairs)


def _has_moved(before: str, after: str, now: float) -> bool:
    if not before or not after:
        return before != after
    return abs(time(after) - time(before)) > max(MINUTE, MOVED * (time(after) - now)) or time(before) < now
