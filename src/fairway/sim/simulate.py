"""Policies compared on one load: each in a process of its own, the same for the same seed.

Queues that each have pools of their own never meet: they are replayed beside each other in virtual time, each as a
world of its own.

A result is a value; what is written from it (`write`) depends on nothing else, so one seed gives the same bytes. Asked
to stop, a simulation ends at the next event and what it has so far is a result marked partial. The referee sees every
plan: a fault ends the simulation, because figures of a broken schedule are worth nothing.
"""

import csv
import io
import multiprocessing
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from heapq import merge
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryFile

import msgspec

from fairway.policies import PRESETS

from .load import Load, apart
from .measure import Measures, Outcome, Series, measure, together, within
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
    worlds = [World(part, PRESETS[policy], mechanics) for part in apart(load)]
    now, is_partial = 0.0, False
    for number, step in enumerate(merge(*(world.run() for world in worlds), key=attrgetter("now"))):
        if step.faults:
            fault = step.faults[0]
            raise BrokenPlan(f"at {step.now} s the plan for {fault.workload} breaks {fault.rule}: {fault.detail}")
        now = step.now
        if is_partial := not number % EVERY and not tell(sum(world.ended for world in worlds)):
            break
    outcomes = _outcomes(load, worlds, is_partial=is_partial)
    series = _shown(together([world.series() for world in worlds]), outcomes, now)
    return Result(policy, measure(outcomes, series), series, outcomes, is_partial)


def _outcomes(load: Load, worlds: Sequence[World], *, is_partial: bool) -> tuple[Outcome, ...]:
    """In the order of the load. What waits at the end of a whole simulation never runs."""
    found = {it.job.id: it for world in worlds for it in world.outcomes()}
    if not is_partial:
        found |= {id: replace(found[id], stuck=reason) for world in worlds for id, reason in world.stuck().items()}
    return tuple(found[job.id] for job in load.jobs)


def _shown(series: Series, outcomes: Sequence[Outcome], now: float) -> Series:
    """From the first submission to the last end, or to where the simulation stopped."""
    ends = [run.end for it in outcomes for run in it.runs]
    return within(series, min(it.job.submit for it in outcomes), min(now, max(ends))) if ends else series


def stuck(outcomes: Iterable[Outcome]) -> dict[str, list[str]]:
    """The jobs that never ran, by reason."""
    found = defaultdict[str, list[str]](list)
    for it in outcomes:
        if it.stuck:
            found[it.stuck].append(it.job.id)
    return dict(found)


def compare(
    load: Load, policies: Sequence[str], mechanics: Mechanics, tell: Callable[[str, int], None]
) -> dict[str, Result]:
    """Several at once. `tell` hears of each policy's progress. An interrupt ends them all, with what they have; the
    policies that had not begun by then are left out."""
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
            return {name: result for name, future in futures.items() if (result := future.result())}
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


def _one(load: Load, policy: str, mechanics: Mechanics) -> Result | None:
    stop, words = _channel[0]
    if stop.is_set():
        return None

    def tell(ended: int) -> bool:
        words.put((policy, ended))
        return not stop.is_set()

    return simulate(load, policy, mechanics, tell=tell)


def metrics(load: Load, seed: int, results: Mapping[str, Result]) -> dict[str, object]:
    """What is measured, by policy, and by reason the jobs that never ran."""
    return {
        "load": load.name,
        "seed": seed,
        "partial": is_partial(results),
        "policies": {name: {**asdict(it.measures), "stuck": stuck(it.outcomes)} for name, it in results.items()},
    }


def is_partial(results: Mapping[str, Result]) -> bool:
    """Whether the simulation was stopped before its end: no policy had begun, or one had not ended."""
    return not results or any(it.is_partial for it in results.values())


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
    title = f"{load.name}: {len(load.jobs):,} jobs on {len(load.nodes):,} nodes, seed {seed}"
    shown = {name: (it.measures, it.series, it.outcomes) for name, it in results.items()}
    (folder / "report.html").write_text(render(title, shown, is_partial=is_partial(results)))
    figures = msgspec.json.encode(metrics(load, seed, results))
    (folder / "metrics.json").write_bytes(msgspec.json.format(figures) + b"\n")
    for row, (name, result) in enumerate(results.items()):
        (folder / (f"jobs-{name}.csv" if row else "jobs.csv")).write_text(_jobs_csv(result.outcomes))


def _jobs_csv(outcomes: Sequence[Outcome]) -> str:
    """Start is the first, nodes are the last; empty where there was none. Nodes are joined by a bar. The reason is that
    of a job that never ran."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("job_id", "start_s", "end_s", "nodes", "evictions", "reason"))
    for it in outcomes:
        start = f"{it.runs[0].start:.3f}" if it.runs else ""
        end = f"{it.end:.3f}" if it.has_ended else ""
        writer.writerow((it.job.id, start, end, "|".join(it.runs[-1].nodes) if it.runs else "", it.evictions, it.stuck))
    return text.getvalue()
