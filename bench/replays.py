"""Loads replayed for the benchmarks: a trace's folder if it is there, its first days, and one run of one policy.

A run is valid when the referee, which sees every plan, found no fault and every job ended. Unless the
benchmark says otherwise an eviction loses no work and a restart takes no time, as in the published baselines of the
traces. What a run costs is
read at a quarter, half and all of its jobs ended, so one run shows how the cost grows. Long runs tell on stderr how far
they are. Queues that each have a pool of their own never meet: they are replayed one after the other.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, process_time

import numpy as np
from bench.figure import Figure, growth

from fairway.engine import DAY, Policy
from fairway.outlook import Step
from fairway.policies import PRESETS
from fairway.sim import Load, Measures, Mechanics, Outcome, Series, World, apart, measure, read_trace, until

FREE, LOSSY = Mechanics(checkpoint_seconds=0.0, restart_seconds=0.0), Mechanics()
JITTER = 30.0  # seconds by which a draw moves submit times at most
PARTS = (0.25, 0.5, 1.0)
TELL_EVERY = 10.0
NOTHING = Series(*np.zeros((4, 0)))


@dataclass(frozen=True, slots=True)
class Replay:
    """What a run was worth, whether it counts, and the CPU seconds it had cost when PARTS of its jobs had ended."""

    measures: Measures
    is_valid: bool
    costs: tuple[float, ...]

    def cost(self, title: str, aim: float | None = None) -> Figure:
        """CPU seconds of the run, and how they grew with the jobs."""
        slope = growth(PARTS, self.costs)
        return Figure(f"{title} (~ jobs^{slope:.2f})", (self.costs[-1],), "CPU s", aim, is_valid=self.is_valid)


def folder(name: str) -> Path | None:
    """Where a trace is; None where it is not."""
    root = Path(os.environ.get("FAIRWAY_TRACES", Path(__file__).parents[2] / "shared" / "traces"))
    return root / name if (root / name / "jobs.csv.gz").exists() else None


def days() -> float | None:
    """How many days of a load are replayed: BENCH_DAYS, else all."""
    said = os.environ.get("BENCH_DAYS")
    return float(said) if said else None


def cut(load: Load, most: float | None = None) -> Load:
    """The first `days` of a load, or `most` where nothing else is asked for; its name then says so."""
    first = days() or most
    return load if first is None else replace(until(load, DAY * first), name=f"{load.name} ({first:g} days)")


def loads(names: tuple[str, ...], told: str, most: float | None = None) -> Iterator[tuple[str, Load]]:
    """The traces that are there, by name, cut to `days`, or to `most`; a word for each that is not."""
    for name in names:
        if (found := folder(name)) is None:
            print(f"{told} {name}: skipped, the trace is not there", file=sys.stderr)
        else:
            yield name, cut(replace(read_trace(found), name=name), most)


def drawn(load: Load, draw: int) -> Load:
    """The load with every submit time moved by up to JITTER, the same for the same draw."""
    moves = np.random.default_rng(draw).uniform(-JITTER, JITTER, len(load.jobs)).tolist()
    jobs = [replace(job, submit=max(0.0, job.submit + move)) for job, move in zip(load.jobs, moves)]
    return replace(load, name=f"{load.name}, draw {draw}", jobs=tuple(sorted(jobs, key=lambda job: job.submit)))


def replay(
    load: Load, name: str, policy: Policy | None = None, *, knows_durations: bool = False, mechanics: Mechanics = FREE
) -> Replay:
    """A run of the preset of that name, or of another policy under it."""
    is_valid, outcomes, costs = True, list[Outcome](), np.zeros(len(PARTS))
    for part in apart(load):
        world = World(part, policy or PRESETS[name], replace(mechanics, knows_durations=knows_durations))
        reached, began = list[float](), process_time()
        for step in told(world, name):
            is_valid &= not step.faults
            while len(reached) < len(PARTS) and world.ended >= PARTS[len(reached)] * len(part.jobs):
                reached.append(process_time() - began)
        reached += [process_time() - began] * (len(PARTS) - len(reached))
        outcomes += world.outcomes()
        costs += reached
    measures = measure(outcomes, NOTHING)
    return Replay(measures, is_valid and not measures.unfinished + measures.never_run, tuple(costs.tolist()))


def told(world: World, policy: str) -> Iterator[Step]:
    """The steps of a run, a word on stderr now and then."""
    said = monotonic()
    for step in world.run():
        yield step
        if monotonic() - said > TELL_EVERY:
            said, name, of = monotonic(), world.load.name, len(world.load.jobs)
            print(f"{name} {policy}: {world.ended} of {of} jobs, day {step.now / DAY:.1f}", file=sys.stderr, flush=True)
