"""Runtimes seen, as a distribution small enough to live in an object's status.

A histogram over bins that grow by a tenth (DDSketch: Masson, Rim, Lee, VLDB 2019): a quantile is off by at most 5 %,
two sketches merge by adding their bins, and a second to a year take 181 of them. What is asked of it are quantiles, of
all runtimes or of those longer than what has already run, and samples.

Runtimes are learned per (user, name) of a queue. Where fewer than ENOUGH were seen the question goes to a wider group:
the user's, then the queue's. Names that differ in a counter or a generated suffix are one name.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import accumulate
from math import ceil, exp, log

from .model import Queue, Sketch, Workload

GROWTH = log(1.1)
ENOUGH = 5.0
MOST = 200  # sketches a queue keeps: as many as its status has room for

SUFFIX = re.compile(r"(-?\d+|-[bcdfghjklmnpqrstvwxz2-9]{5})+$")

Runtimes = Mapping[tuple[str, str], Sketch]


def add(sketch: Sketch, seconds: float, weight: float = 1.0) -> Sketch:
    """`sketch` with one more runtime in it."""
    points, centre = sketch.points, _centre(seconds)
    at = bisect_left(points, (centre,))
    had = points[at][1] if at < len(points) and points[at][0] == centre else 0.0
    return Sketch((*points[:at], (centre, had + weight), *points[at + (had > 0) :]))


def merge(sketches: Iterable[Sketch]) -> Sketch:
    """All of them in one; the order does not matter."""
    bins: dict[float, float] = {}
    for sketch in sketches:
        for seconds, weight in sketch.points:
            bins[seconds] = bins.get(seconds, 0.0) + weight
    return Sketch(tuple(sorted(bins.items())))


def _centre(seconds: float) -> float:
    """The middle of the bin that `seconds` falls into; under a second all is one bin."""
    bin = max(0, ceil(log(max(seconds, 1.0)) / GROWTH))
    return round(2 * exp(bin * GROWTH) / (1 + exp(GROWTH)), 3)


def count(sketch: Sketch) -> float:
    return sum(weight for _, weight in sketch.points)


class Lengths:
    """A sketch made ready for questions: its seconds, and the weight up to each."""

    def __init__(self, sketch: Sketch) -> None:
        self.seconds = [seconds for seconds, _ in sketch.points]
        self.upto = list(accumulate(weight for _, weight in sketch.points))

    def quantile(self, part: float, beyond: float = 0.0) -> float | None:
        """The runtime that `part` of those longer than `beyond` seconds do not exceed; None where none was longer."""
        first = bisect_right(self.seconds, beyond)
        passed = self.upto[first - 1] if first else 0.0
        if first == len(self.seconds):
            return None
        wanted = passed + part * (self.upto[-1] - passed) - 1e-9
        return self.seconds[max(first, bisect_left(self.upto, wanted))]


def learn(runtimes: Runtimes, workload: Workload, seconds: float) -> dict[tuple[str, str], Sketch]:
    """What is known after a workload of this queue ran for `seconds`; groups heard of least make room for new ones."""
    known = dict(runtimes)
    for group in groups(workload):
        known[group] = add(known.get(group, Sketch()), seconds)
    while len(known) > MOST:
        del known[min(known, key=lambda group: (count(known[group]), group))]
    return known


def known_runtimes(runtimes: Runtimes, workload: Workload) -> Sketch | None:
    """The narrowest group of which enough was seen; None where nothing was."""
    for group in groups(workload):
        sketch = runtimes.get(group)
        if sketch and count(sketch) >= ENOUGH:
            return sketch
    return runtimes.get(("", ""))


def groups(workload: Workload) -> tuple[tuple[str, str], ...]:
    """Narrowest first."""
    narrow = (workload.user, stem(workload.name))
    return tuple(dict.fromkeys((narrow, (workload.user, ""), ("", ""))))


@lru_cache(1 << 16)
def stem(name: str) -> str:
    """A name without its counters and generated suffixes: `job-train17`, `job-train-17-3` and `job-train-x7k2p` are
    `job-train`."""
    return SUFFIX.sub("", name)


class Learned:
    """How long each kind of workload runs, as its queue remembers it; looked up once for all of a kind."""

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self._queues = queues
        self._known: dict[tuple[str, str, str], Lengths | None] = {}

    def of(self, workload: Workload) -> Lengths | None:
        queue = self._queues.get(workload.queue)
        if queue is None or not queue.ledger.runtimes:
            return None
        kind = workload.queue, workload.user, stem(workload.name)
        if kind not in self._known:
            sketch = known_runtimes(dict(queue.ledger.runtimes), workload)
            self._known[kind] = Lengths(sketch) if sketch else None
        return self._known[kind]
