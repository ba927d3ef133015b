"""What a simulated schedule was worth: figures over its jobs and over its time.

wait: time from submission to the end, less the time the job needs, at most its limit; for a job that was never evicted
that is the time until it starts, for one that was it counts queueing again and work done twice. jct: submission to end.
Bounded slowdown: jct / max(needs, 10 s), at least 1 (Feitelson, Rudolph 1998). Utilisation: GPU-time held / GPU-time
there, from the first submission to the last end. Fragmentation: of the GPUs free, the part on nodes that are not wholly
free, weighted by time. Fairness: Jain's index (Jain, Chiu, Hawe 1984) over queues of the part of their jobs' time in
the system that was work, Σ needs·gpus / Σ jct·gpus. Jobs that have not ended, that could never run, or that their users
cancelled before they started count in nothing but the number of them. Where no job ended there are no waits: they are
NaN, "-" in tables and null in JSON.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from math import nan

import numpy as np
from numpy.typing import NDArray

from .load import Job

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt of a job: from when to when, on which nodes."""

    start: float
    end: float
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job. `end` is -1 where it has not ended. `lost`: seconds of work done twice. `is_cancelled`: its
    user gave up before it started. `stuck`: why it still waits although nothing will happen any more."""

    job: Job
    end: float = -1.0
    runs: tuple[Run, ...] = ()
    evictions: int = 0
    lost: float = 0.0
    is_cancelled: bool = False
    stuck: str = ""

    @property
    def has_ended(self) -> bool:
        return self.end >= 0


@dataclass(frozen=True, slots=True)
class Series:
    """A schedule over time, at each moment something changed: seconds; GPUs there, held, free on nodes partly used; and
    GPUs held by each queue, float64[queue, moment]."""

    times: Floats
    capacity: Floats
    held: Floats
    stranded: Floats
    queues: tuple[str, ...] = ()
    by_queue: Floats = field(default_factory=lambda: np.zeros((0, 0)))


@dataclass(frozen=True, slots=True)
class Measures:
    """Seconds, but for ratios and counts. The names are the keys of metrics.json and the heads of the table."""

    jobs: int
    unfinished: int
    never_run: int
    cancelled: int
    mean_wait: float
    median_wait: float
    p95_wait: float
    p99_wait: float
    p999_wait: float
    max_wait: float
    mean_jct: float
    mean_bounded_slowdown: float
    utilisation: float
    fragmentation: float
    evictions_per_job: float
    lost_gpu_hours: float
    queue_fairness: float
    makespan: float


def measure(outcomes: Sequence[Outcome], series: Series) -> Measures:
    ended = [it for it in outcomes if it.has_ended]
    cancelled, stuck = sum(it.is_cancelled for it in outcomes), sum(bool(it.stuck) for it in outcomes)
    submit, end, needs, gpus = _columns(ended)
    jct = end - submit
    wait = np.maximum(0.0, jct - needs)
    p50, p95, p99, p999 = np.quantile(wait, (0.5, 0.95, 0.99, 0.999)) if ended else (nan,) * 4
    return Measures(
        jobs=len(outcomes),
        unfinished=len(outcomes) - len(ended) - cancelled - stuck,
        never_run=stuck,
        cancelled=cancelled,
        mean_wait=_mean(wait),
        median_wait=float(p50),
        p95_wait=float(p95),
        p99_wait=float(p99),
        p999_wait=float(p999),
        max_wait=float(wait.max()) if ended else nan,
        mean_jct=_mean(jct),
        mean_bounded_slowdown=_mean(np.maximum(1.0, jct / np.maximum(needs, 10.0))),
        utilisation=_ratio(series, series.held, series.capacity),
        fragmentation=_ratio(series, series.stranded, series.capacity - series.held),
        evictions_per_job=_mean(np.array([it.evictions for it in ended], np.float64)),
        lost_gpu_hours=float(sum(it.lost * it.job.total_gpus for it in outcomes)) / 3600,
        queue_fairness=jain(_efficiencies(ended, needs * gpus, jct * gpus)),
        makespan=float(end.max() - submit.min()) if ended else 0.0,
    )


def _columns(ended: Sequence[Outcome]) -> tuple[Floats, Floats, Floats, Floats]:
    rows = [(it.job.submit, it.end, it.job.needs, it.job.total_gpus) for it in ended]
    submit, end, needs, gpus = np.array(rows, np.float64).reshape(-1, 4).T
    return submit, end, needs, gpus


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else nan


def together(parts: Sequence[Series]) -> Series:
    """The sum of schedules of nodes and queues apart. A part is as at its first moment before it, with nothing held."""
    if len(parts) == 1:
        return parts[0]
    times = np.unique(np.concatenate([part.times for part in parts]))
    rows = [np.searchsorted(part.times, times, side="right") - 1 for part in parts]
    capacity = np.sum([part.capacity[np.maximum(row, 0)] for part, row in zip(parts, rows)], axis=0)
    held = np.sum([np.where(row < 0, 0.0, part.held[row]) for part, row in zip(parts, rows)], axis=0)
    stranded = np.sum([np.where(row < 0, 0.0, part.stranded[row]) for part, row in zip(parts, rows)], axis=0)
    by_queue = [np.where(row < 0, 0.0, part.by_queue[:, row]) for part, row in zip(parts, rows)]
    names = tuple(name for part in parts for name in part.queues)
    return Series(times, capacity, held, stranded, names, np.concatenate(by_queue))


def within(series: Series, begin: float, end: float) -> Series:
    """The part of it between two moments; what held before the first holds from it on."""
    moments = np.append(series.times[(series.times > begin) & (series.times < end)], end)
    times = np.concatenate(([begin], moments))
    row = np.maximum(np.searchsorted(series.times, times, side="right") - 1, 0)
    levels = (series.capacity[row], series.held[row], series.stranded[row])
    return Series(times, *levels, series.queues, series.by_queue[:, row] if series.queues else series.by_queue)


def _ratio(series: Series, part: Floats, whole: Floats) -> float:
    """Of two step functions: the integral of one over the other's."""
    lasted = np.diff(series.times)
    below = float((whole[:-1] * lasted).sum())
    return float((part[:-1] * lasted).sum()) / below if below else 0.0


def _efficiencies(ended: Sequence[Outcome], work: Floats, stay: Floats) -> Floats:
    names = sorted({it.job.queue for it in ended})
    row = np.array([names.index(it.job.queue) for it in ended], np.int64)
    spent = np.bincount(row, stay, len(names))
    return np.bincount(row, work, len(names)) / np.where(spent > 0, spent, 1.0)


def jain(values: Floats) -> float:
    """1 when all are alike, 1/n when one has everything."""
    squares = float((values**2).sum()) * values.size
    return float(values.sum()) ** 2 / squares if squares else 1.0


def waits(outcomes: Sequence[Outcome]) -> Floats:
    """Sorted: the horizontal axis of a CDF."""
    submit, end, needs, _ = _columns([it for it in outcomes if it.has_ended])
    return np.sort(np.maximum(0.0, end - submit - needs))


NAMES = tuple(one.name for one in fields(Measures))
