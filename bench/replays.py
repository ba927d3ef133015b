"""Loads replayed for the benchmarks: a trace's folder if it is there, its first days, and one run of one policy.

A run is valid when the referee, which sees every plan, found no fault and every job ended. Baselines have no overhead:
an eviction loses no work and a restart takes no time, as in the published baselines of the traces. What a run costs is
read at a quarter, half and all of its jobs ended, so one run shows how the cost grows. Long runs tell on stderr how far
they are.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, process_time

from bench.figure import Figure, growth

from fairway.engine import PRESETS
from fairway.engine.forward import Step
from fairway.sim.load import Load, until
from fairway.sim.measure import Measures, measure
from fairway.sim.trace import read
from fairway.sim.world import Mechanics, World

DAY = 86_400.0
FREE = Mechanics(checkpoint_seconds=0.0, restart_seconds=0.0)
PARTS = (0.25, 0.5, 1.0)
TELL_EVERY = 10.0


@dataclass(frozen=True, slots=True)
class Replay:
    """What a run was worth, whether it counts, and the CPU seconds it had cost when PARTS of its jobs had ended."""

    measures: Measures
    is_valid: bool
    costs: tuple[float, ...]

    def cost(self, title: str) -> Figure:
        """CPU seconds of the run, and how they grew with the jobs."""
        slope = growth(PARTS, self.costs)
        return Figure(f"{title} (~ jobs^{slope:.2f})", (self.costs[-1],), "CPU s", is_valid=self.is_valid)


def folder(name: str) -> Path | None:
    """Where a trace is; None where it is not."""
    root = Path(os.environ.get("FAIRWAY_TRACES", Path(__file__).parents[2] / "shared" / "traces"))
    return root / name if (root / name / "jobs.csv.gz").exists() else None


def days() -> float | None:
    """How many days of a load are replayed: BENCH_DAYS, else all."""
    said = os.environ.get("BENCH_DAYS")
    return float(said) if said else None


def cut(load: Load) -> Load:
    """The first `days` of a load; its name then says so."""
    first = days()
    return load if first is None else replace(until(load, DAY * first), name=f"{load.name} ({first:g} days)")


def loads(names: tuple[str, ...], told: str) -> Iterator[tuple[str, Load]]:
    """The traces that are there, by name, cut to `days`; a word for each that is not."""
    for name in names:
        if (found := folder(name)) is None:
            print(f"{told} {name}: skipped, the trace is not there", file=sys.stderr)
        else:
            yield name, cut(replace(read(found), name=name))


def replay(load: Load, policy: str, *, knows_durations: bool = False) -> Replay:
    world = World(load, PRESETS[policy], replace(FREE, knows_durations=knows_durations))
    is_valid, costs, began = True, [], process_time()
    for step in told(world, policy):
        is_valid &= not step.faults
        while len(costs) < len(PARTS) and world.ended >= PARTS[len(costs)] * len(load.jobs):
            costs.append(process_time() - began)
    measures = measure(world.outcomes(), world.series())
    costs += [process_time() - began] * (len(PARTS) - len(costs))
    return Replay(measures, is_valid and not measures.unfinished, tuple(costs))


def told(world: World, policy: str) -> Iterator[Step]:
    """The steps of a run, a word on stderr now and then."""
    said = monotonic()
    for step in world.run():
        yield step
        if monotonic() - said > TELL_EVERY:
            said, name, of = monotonic(), world.load.name, len(world.load.jobs)
            print(f"{name} {policy}: {world.ended} of {of} jobs, day {step.now / DAY:.1f}", file=sys.stderr, flush=True)
