"""B13, forecasts: what was foretold of those who wait, against when they started.

A trace is replayed under `fairway`. At moments evenly spread over its cycles with somebody waiting, a forecast is made
from what the scheduler knows then, with its own chance; each is judged by the first start that followed. The error is
|p50 - start| as a part of the wait that was left; coverage is how many started by their p90. BENCH_DAYS replays only
the first days; the names then say so.
"""

import sys
from collections.abc import Iterator
from statistics import median

import numpy as np
from bench.figure import Figure
from bench.replays import FREE, loads, told

from fairway.engine import PRESETS, forecast
from fairway.engine.plan import Admit
from fairway.engine.state import world_of
from fairway.sim.load import Load
from fairway.sim.world import World

TRACES = ("philly", "helios_venus")
EVERY = 400  # cycles with somebody waiting, between two forecasts
SEED = 42
Told = tuple[str, float, float, float]
"""Who, and when: the forecast, p50, p90."""


def replayed(load: Load, *, every: int = EVERY) -> tuple[list[Told], dict[str, float], bool]:
    """What was foretold, first starts by key, and whether every plan was sound."""
    policy, chance = PRESETS["fairway"], np.random.default_rng(SEED)
    said: list[Told] = []
    starts: dict[str, float] = {}
    world, turn, is_valid = World(load, policy, FREE), 0, True
    for step in told(world, "fairway"):
        is_valid &= not step.faults
        admitted = [one.workload for one in step.plan.verdicts if isinstance(one, Admit)]
        for key in admitted:
            starts.setdefault(key, step.now)
        if len(admitted) == len(step.snapshot.pending):
            continue
        turn += 1
        if turn % every == 0:
            found = forecast(world_of(step.snapshot), policy, chance)
            said += [(key, step.now, one.p50, one.p90) for key, one in found.items()]
    return said, starts, is_valid


def run(rounds: int = 1) -> Iterator[Figure]:
    """`rounds` is not used: the same load gives the same figures."""
    for _, load in loads(TRACES, "B13"):
        said, starts, is_valid = replayed(load)
        later = [(now, p50, p90, starts[key]) for key, now, p50, p90 in said if starts.get(key, now) > now]
        if not later:
            print(f"B13 {load.name}: skipped, nobody waited when asked", file=sys.stderr)
            continue
        errors = tuple(abs(p50 - start) / (start - now) for now, p50, _, start in later)
        covered = 100 * sum(start <= p90 for _, _, p90, start in later) / len(later)
        title = f"B13 {load.name}, {len(later)} forecasts"
        yield Figure(f"{title}: error of p50", (100 * median(errors),), "% of wait", 25.0, is_valid=is_valid)
        yield Figure(f"{title}: within p90", (covered,), "%", 85.0, is_rate=True, is_valid=is_valid and covered <= 95)
