"""Runtimes seen, as a distribution small enough to live in an object's status.

A histogram over bins that grow by a tenth (DDSketch: Masson, Rim, Lee, VLDB 2019): a quantile is off by at most 5 %,
two sketches merge by adding their bins, and a second to a year take 181 of them. What is asked of it are quantiles, of
all runtimes or of those longer than what has already run. Those that run still are known to be longer than they are
old; where they are told, the estimate is Kaplan and Meier's (1958), without which the past looks too short.

Runtimes are learned per (user, name) of a queue. Where fewer than ENOUGH were seen the question goes to a wider group:
the user's, then the queue's; name and queue are also told apart by how many GPUs are asked for, for big gangs run
longer than the small work beside them. Names that differ in a counter or a generated suffix are one name.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import ceil, exp, log, log2

from .fit import remember
from .model import Queue, Running, Sketch, Workload
from .resources import gpus_of

GROWTH = log(1.1)
ENOUGH = 5.0
MOST = 200  # sketches a queue keeps: as many as its status has room for

SUFFIX = re.compile(r"(-?\d+|-[bcdfghjklmnpqrstvwxz2-9]{5})+$")

Group = tuple[str, str]
"""User and name, "" for all; a name with its number of GPUs, or the number alone."""
Runtimes = Mapping[Group, Sketch]


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
    """A sketch made ready for questions: its seconds, and the part that does not exceed each. `ages`: how long those
    have run that run still."""

    def __init__(self, sketch: Sketch, ages: Sequence[float] = ()) -> None:
        self.seconds = [seconds for seconds, _ in sketch.points]
        self.upto: list[float] = []
        ages, ended, longer = sorted(ages), count(sketch), 1.0
        for seconds, weight in sketch.points:
            at_risk = ended + len(ages) - bisect_left(ages, seconds)
            longer, ended = longer * (1 - weight / at_risk), ended - weight
            self.upto.append(1 - longer)

    def quantile(self, part: float, beyond: float = 0.0) -> float | None:
        """The runtime that `part` of those longer than `beyond` seconds do not exceed; None where none was longer. Of
        what runs longer than all that have ended it is known only that it does: it goes on about as long again."""
        first = bisect_right(self.seconds, beyond)
        passed = self.upto[first - 1] if first else 0.0
        wanted = passed + part * (1 - passed) - 1e-9
        at = max(first, bisect_left(self.upto, wanted))
        if at < len(self.seconds):
            return self.seconds[at]
        rest = 1 - self.upto[-1]
        if rest < 1e-9:
            return None
        return max(beyond, self.seconds[-1]) * (1 - log(1 - max(0.0, wanted - self.upto[-1]) / rest))


def learn(runtimes: Runtimes, workload: Workload, seconds: float) -> dict[Group, Sketch]:
    """What is known after a workload of this queue ran for `seconds`; groups heard of least make room for new ones."""
    known = dict(runtimes)
    for group in groups(workload):
        known[group] = add(known.get(group, Sketch()), seconds)
    while len(known) > MOST:
        del known[min(known, key=lambda group: (count(known[group]), group))]
    return known


def known_group(runtimes: Runtimes, groups: Iterable[Group]) -> Group:
    """The first of these groups of which enough was seen, else all."""
    return next((group for group in groups if count(runtimes.get(group, Sketch())) >= ENOUGH), ("", ""))


def groups(workload: Workload) -> tuple[Group, ...]:
    """Narrowest first; its name, and all of its queue, also by how many GPUs are asked for, in powers of two."""
    user, name, size = workload.user, stem(workload.name), f" x{2 ** ceil(log2(max(gpus(workload), 1.0)))}"
    narrow = (user, name + size), (user, name), (user, ""), ("", size)
    return (*dict.fromkeys(group for group in narrow if any(group)), ("", ""))


def gpus(workload: Workload) -> float:
    """Of all its pods."""
    return gpus_of(workload.podsets, [one.count for one in workload.podsets])


@lru_cache(1 << 16)
def stem(name: str) -> str:
    """A name without its counters and generated suffixes: `job-train17`, `job-train-17-3` and `job-train-x7k2p` are
    `job-train`."""
    return SUFFIX.sub("", name)


class Learned:
    """How long each kind of workload runs, as its queue remembers it; looked up once for all of a kind. `ready` is what
    was made of sketches, by identity; it outlives this."""

    def __init__(self, queues: Mapping[str, Queue], ready: dict[int, tuple[Sketch, Lengths]]) -> None:
        self._queues, self._ready = queues, ready
        self._known: dict[tuple[str, str, str, float], Lengths | None] = {}

    def of(self, workload: Workload) -> Lengths | None:
        queue = self._queues.get(workload.queue)
        if queue is None or not queue.ledger.runtimes:
            return None
        kind = workload.queue, workload.user, stem(workload.name), gpus(workload)
        if kind not in self._known:
            runtimes = dict(queue.ledger.runtimes)
            sketch = runtimes.get(known_group(runtimes, groups(workload)))
            self._known[kind] = self._lengths(sketch) if sketch else None
        return self._known[kind]

    def _lengths(self, sketch: Sketch) -> Lengths:
        known = self._ready.get(id(sketch)) or remember(self._ready, id(sketch), (sketch, Lengths(sketch)))
        return known[1]


class Foreseen:
    """How long they will, with those that run now, which count as longer than they have run."""

    def __init__(self, queues: Mapping[str, Queue], running: Iterable[Running], now: float) -> None:
        self._queues = queues
        self._known: dict[tuple[str, Group], Lengths] = {}
        self._ages: defaultdict[tuple[str, Group], list[float]] = defaultdict(list)
        for one in running:
            if one.admitted_at is not None:
                for group in groups(one.workload):
                    self._ages[one.workload.queue, group].append(now - one.admitted_at)

    def of(self, workload: Workload) -> Lengths | None:
        queue = self._queues.get(workload.queue)
        if queue is None or not queue.ledger.runtimes:
            return None
        runtimes = dict(queue.ledger.runtimes)
        at = workload.queue, known_group(runtimes, groups(workload))
        if at not in self._known:
            self._known[at] = Lengths(runtimes[at[1]], self._ages[at])
        return self._known[at]
