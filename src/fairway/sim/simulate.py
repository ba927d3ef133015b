"""Policies compared on one load: each in a process of its own, the same for the same seed.

A result is a value; what is written from it (`write`) depends on nothing else, so one seed gives the same bytes. Asked
to stop, a simulation ends at the next event and what it has so far is a result marked partial. The referee sees every
plan: a fault ends the simulation, because figures of a broken schedule are worth nothing.
"""

import csv
import io
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path
from tempfile import TemporaryFile

import msgspec

from fairway.engine import PRESETS

from .load import Load
from .measure import Measures, Outcome, Series, measure
from .report import render
from .world import Mechanics, World

EVERY = 200  # cycles between two words on progress
WORD_SECONDS = 0.2
ORACLES = frozenset({"sjf", "srtf"})
"""Presets that are told the durations."""


class BrokenPlan(Exception):
    """The referee refused a plan of a simulation."""


@dataclass(frozen=True, slots=True)
class Result:
    policy: str
    measures: Measures
    series: Series
    outcomes: tuple[Outcome, ...]
    is_partial: bool = False


def simulate(
    load: Load, policy: str, mechanics: Mechanics | None = None, *, tell: Callable[[int], bool] = lambda ended: True
) -> Result:
    """One policy. `tell` hears now and then how many jobs have ended, and answers whether to go on."""
    mechanics = replace(mechanics or Mechanics(), knows_durations=policy in ORACLES)
    world = World(load, PRESETS[policy], mechanics)
    is_partial = not all(_goes_on(world, tell))
    outcomes, series = world.outcomes(), world.series()
    return Result(policy, measure(outcomes, series), series, outcomes, is_partial)


def _goes_on(world: World, tell: Callable[[int], bool]) -> Iterator[bool]:
    """A word for each cycle; the first that is false ends the run."""
    for number, step in enumerate(world.run()):
        if step.faults:
            fault = step.faults[0]
            raise BrokenPlan(f"at {step.now} s the plan for {fault.workload} breaks {fault.rule}: {fault.detail}")
        yield bool(number % EVERY) or tell(world.ended)


def compare(
    load: Load, policies: Sequence[str], mechanics: Mechanics, tell: Callable[[str, int], None]
) -> dict[str, Result]:
    """Several at once. `tell` hears of each policy's progress. An interrupt ends them all, with what they have."""
    context = multiprocessing.get_context("spawn")
    stop, words = context.Event(), context.SimpleQueue()
    workers = min(len(policies), multiprocessing.cpu_count())
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        with ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(stop, words)) as pool:
            with _deaf():
                futures = {name: pool.submit(_one, load, name, mechanics) for name in policies}
            waiting = set(futures.values())
            while waiting:
                waiting = wait(waiting, timeout=WORD_SECONDS).not_done
                while not words.empty():
                    tell(*words.get())
            return {name: future.result() for name, future in futures.items()}
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _deaf() -> Iterator[None]:
    """A process made inside never hears an interrupt; this one hears it afterwards."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))


_channel: list[tuple[Event, "SimpleQueue[tuple[str, int]]"]] = []
"""In a worker process: how it is told to stop, and where it says how far it is. A process pool hands these over at the
start of a process and in no other way."""


def _begin(stop: Event, words: "SimpleQueue[tuple[str, int]]") -> None:
    _channel.append((stop, words))


def _one(load: Load, policy: str, mechanics: Mechanics) -> Result:
    stop, words = _channel[0]

    def tell(ended: int) -> bool:
        words.put((policy, ended))
        return not stop.is_set()

    return simulate(load, policy, mechanics, tell=tell)


def metrics(load: Load, seed: int, results: Mapping[str, Result]) -> dict[str, object]:
    """What is measured, by policy."""
    return {
        "load": load.name,
        "seed": seed,
        "partial": any(it.is_partial for it in results.values()),
        "policies": {name: asdict(it.measures) for name, it in results.items()},
    }


def prepare(folder: Path) -> None:
    """The folder, made and tried before anything is simulated for it. Raises OSError, in a line that names it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"{folder}: {why}; name a folder, new or one that can be written to") from error


def write(folder: Path, load: Load, seed: int, results: Mapping[str, Result]) -> None:
    """report.html, metrics.json, and jobs.csv of the first policy, jobs-<policy>.csv of the others."""
    prepare(folder)
    is_partial = any(it.is_partial for it in results.values())
    title = f"{load.name}: {len(load.jobs):,} jobs on {len(load.nodes):,} nodes, seed {seed}"
    shown = {name: (it.measures, it.series, it.outcomes) for name, it in results.items()}
    (folder / "report.html").write_text(render(title, shown, is_partial=is_partial))
    figures = msgspec.json.encode(metrics(load, seed, results))
    (folder / "metrics.json").write_bytes(msgspec.json.format(figures) + b"\n")
    for row, (name, result) in enumerate(results.items()):
        (folder / (f"jobs-{name}.csv" if row else "jobs.csv")).write_text(_jobs_csv(result.outcomes))


def _jobs_csv(outcomes: Sequence[Outcome]) -> str:
    """Start is the first, nodes are the last; empty where there was none. Nodes are joined by a bar."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("job_id", "start_s", "end_s", "nodes", "evictions"))
    for it in outcomes:
        start = f"{it.runs[0].start:.3f}" if it.runs else ""
        end = f"{it.end:.3f}" if it.has_ended else ""
        writer.writerow((it.job.id, start, end, "|".join(it.runs[-1].nodes) if it.runs else "", it.evictions))
    return text.getvalue()
