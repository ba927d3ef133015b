"""Loads made from distributions that were measured on real clusters: named, seeded, of any length.

Each generator takes a seed and gives a Load. Interarrival times: a Poisson process whose rate follows day and week
(Jeon et al., ATC 2019, fig. 2; Hu et al., SC 2021, fig. 2: 1.6 times the mean in the afternoon, weekends at 0.6).
Runtimes: log-normal with a heavy tail (Hu et al.: median minutes, mean hours). GPUs: powers of two, mostly one (Jeon et
al., table 2). Users: Zipf. Estimates: round numbers that users favour, above the runtime (Tsafrir, Etsion, Feitelson,
JSSPP 2005). Node failures: 6.5 per 1,000 node-days (Kokolis et al., HPCA 2025), repair in hours. Users who give up: the
part of jobs that Jeon et al. (table 6) saw killed by their users, their patience exponential as for callers in a line
(Palm 1957); how long it lasts was measured nowhere we know of, four hours are an assumption.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fairway.engine import CPU, GPU, MEMORY, PODS, Node, Pool, Queue, Quota, Share, amounts

from .load import GIB, Job, Load, Outage

TEAMS = ("vision", "speech")
DAY, WEEK = 86_400.0, 604_800.0
SHAPE = amounts({GPU: 8000, CPU: 96_000, MEMORY: 1024 * GIB, PODS: 110})
ESTIMATES = np.array([300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400, 172_800, 604_800], np.float64)
FAILURES_PER_NODE_DAY, REPAIR_SECONDS = 6.5e-3, 4 * 3600.0
KILLED, PATIENCE_SECONDS = 0.135, 4 * 3600.0

Generator = Callable[[int], Load]


def synthetic_names() -> tuple[str, ...]:
    return tuple(_GENERATORS)


def generate(name: str, seed: int) -> Load:
    """The load of that name; KeyError names those there are."""
    return _GENERATORS[name](seed)


def diurnal(seed: int) -> Load:
    """A week of a research cluster: 16 nodes of 8 GPUs, two teams with guaranteed halves, day and night."""
    source = np.random.default_rng(seed)
    return _load("diurnal", source, nodes=16, days=7.0, utilisation=0.85)


def box(seed: int) -> Load:
    """Two days of one machine with 8 GPUs that two teams share, each owed half."""
    return _load("box", np.random.default_rng(seed), nodes=1, days=2.0, utilisation=0.9)


def bursty(seed: int) -> Load:
    """Three days in which a quarter of the jobs comes in ten sweeps of many alike: hyperparameter searches."""
    source = np.random.default_rng(seed)
    load = _load("bursty", source, nodes=16, days=3.0, utilisation=0.75)
    return Load(load.name, load.nodes, _with_sweeps(source, load.jobs, 10), load.pools, load.queues)


def failures(seed: int) -> Load:
    """The diurnal week on nodes that fail thirty times as often as measured, so that a week shows it."""
    source = np.random.default_rng(seed)
    load = _load("failures", source, nodes=16, days=7.0, utilisation=0.7)
    outages = _outages(source, load.nodes, 7 * DAY)
    return Load(load.name, load.nodes, load.jobs, load.pools, load.queues, outages)


def impatient(seed: int) -> Load:
    """Two days of the machine of `box`, some of whose users cancel what has not started when their patience ends."""
    load, source = box(seed), np.random.default_rng((seed, 1))
    patience = np.round(source.exponential(PATIENCE_SECONDS, len(load.jobs)), 1)
    gives_up = source.random(len(load.jobs)) < KILLED
    jobs = (replace(job, patience=float(at) if up else None) for job, at, up in zip(load.jobs, patience, gives_up))
    return replace(load, name="impatient", jobs=tuple(jobs))


def estimates(seed: int) -> Load:
    """A parallel computer's three weeks: rigid jobs with their users' estimates, one queue; what backfill lives on."""
    source = np.random.default_rng(seed)
    load = _load("estimates", source, nodes=32, days=21.0, utilisation=0.9)
    jobs = tuple(
        Job(it.id, it.submit, it.duration, it.workers, gpus=it.gpus, user=it.user, estimate=float(limit))
        for it, limit in zip(load.jobs, _estimated(source, np.array([it.duration for it in load.jobs])))
    )
    return Load(load.name, load.nodes, jobs, load.pools, (Queue("default"),))


_GENERATORS: dict[str, Generator] = {
    generator.__name__: generator for generator in (diurnal, box, bursty, failures, impatient, estimates)
}


def _load(name: str, source: np.random.Generator, *, nodes: int, days: float, utilisation: float) -> Load:
    """Jobs until their GPU-time is `utilisation` of what the nodes have in `days`."""
    span, wanted = days * DAY, utilisation * days * DAY * nodes * 8
    guess = max(64, int(2 * wanted / 3000))
    gpus = 2 ** source.choice(7, guess, p=(0.62, 0.12, 0.10, 0.10, 0.03, 0.02, 0.01))
    gpus = np.minimum(gpus, nodes * 4)
    runtimes = np.clip(np.exp(source.normal(6.2, 2.1, guess)), 5.0, 2 * DAY).round(1)
    enough = int(np.searchsorted(np.cumsum(gpus * runtimes), wanted)) + 1
    gpus, runtimes = gpus[:enough], runtimes[:enough]
    users = np.minimum(source.zipf(1.6, len(gpus)), 24) - 1
    times = _arrivals(source, len(gpus), span)
    jobs = tuple(
        _job(f"{name}-{row}", times[row], runtimes[row], int(gpus[row]), int(users[row])) for row in range(len(gpus))
    )
    half = (Quota("*", ((GPU, Share(500, is_relative=True)),)),)
    queues = tuple(Queue(team, quotas=half) for team in TEAMS)
    return Load(name, _cluster(nodes), jobs, (Pool("default"),), queues)


def _cluster(nodes: int) -> tuple[Node, ...]:
    """Racks of four."""
    return tuple(Node(f"n{row:03d}", (("fairway.dev/rack", f"r{row // 4}"),), SHAPE) for row in range(nodes))


def _job(name: str, submit: float, runtime: float, gpus: int, user: int) -> Job:
    """Workers of at most eight GPUs; even users are of one team, odd ones of the other."""
    workers = max(1, gpus // 8)
    each = 1000 * (gpus // workers)
    return Job(name, float(submit), float(runtime), workers, gpus=each, user=f"u{user}", queue=TEAMS[user % 2])


def _arrivals(source: np.random.Generator, count: int, span: float) -> np.ndarray:
    """`count` moments of an inhomogeneous Poisson process over `span`, by inverting its cumulated rate."""
    grid = np.arange(0.0, span + 900, 900)
    hour, day = (grid % DAY) / 3600, (grid % WEEK) // DAY
    rate = (1 + 0.6 * np.sin((hour - 9) * np.pi / 12)) * np.where(day >= 5, 0.6, 1.0)
    passed = np.concatenate(([0.0], np.cumsum(rate[:-1])))
    return np.interp(np.sort(source.uniform(0, passed[-1], count)), passed, grid).round(3)


def _with_sweeps(source: np.random.Generator, jobs: tuple[Job, ...], sweeps: int) -> tuple[Job, ...]:
    """Jobs of `sweeps` users come at once: a hundred alike of one GPU each."""
    span = jobs[-1].submit
    extra = [
        Job(f"sweep-{sweep}-{row}", float(moment), float(length), user=f"s{sweep}", queue=TEAMS[sweep % 2])
        for sweep, moment in enumerate(np.sort(source.uniform(0, span, sweeps)).round(3))
        for row, length in enumerate(source.gamma(4.0, 600.0, 100).round(1))
    ]
    return tuple(sorted((*jobs, *extra), key=lambda job: job.submit))


def _outages(source: np.random.Generator, nodes: tuple[Node, ...], span: float) -> tuple[Outage, ...]:
    count = source.poisson(30 * FAILURES_PER_NODE_DAY * len(nodes) * span / DAY)
    starts = np.sort(source.uniform(0, span, count)).round(1)
    lengths = source.exponential(REPAIR_SECONDS, count).round(1)
    rows = source.integers(len(nodes), size=count)
    return tuple(Outage(nodes[row].name, float(at), float(at + long)) for row, at, long in zip(rows, starts, lengths))


def _estimated(source: np.random.Generator, runtimes: np.ndarray) -> np.ndarray:
    """One of the favoured values that the runtime does not exceed, up to three steps above the least."""
    least = np.searchsorted(ESTIMATES, runtimes)
    return ESTIMATES[np.minimum(least + source.integers(0, 4, len(runtimes)), len(ESTIMATES) - 1)]
