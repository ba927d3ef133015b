"""Runtimes seen, as a distribution small enough to live in an object's status.

A histogram over bins that grow by a tenth (DDSketch: Masson, Rim, Lee, VLDB 2019): a quantile is off by at most 5 %,
and a second to a year take 181 of them. What is asked of it are quantiles, of all runtimes or of those longer than what
has already run. Those that run still are known to be longer than they are old; where they are told, the estimate is
Kaplan and Meier's (1958), without which the past looks too short.

Runtimes are learned per (user, name) of a queue. Where fewer than ENOUGH were seen the question goes to a wider group:
the user's, then the queue's; name and queue are also told apart by how many GPUs are asked for, for big gangs run
longer than the small work beside them. Names that differ in a counter or a generated suffix are one name.

How much the kinds of a queue tell of runtimes is known as well (`Learned.telling`): where they tell nothing, an order
by runtimes would be chance.

What came in the same hour is a batch, and asked first: a user who submits twice in a row submits the like (Tsafrir,
Etsion, Feitelson, TPDS 2007). Before enough of a batch have ended, it runs at least as long as half of those that run
now have.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from heapq import nsmallest
from itertools import accumulate
from math import ceil, exp, log, log2, sqrt
from statistics import median
from typing import NamedTuple

from .model import Sketch, Workload
from .resources import gpus_of
from .snapshot import ByWorkload, Numbers, Snapshot

GROWTH = log(1.1)
ENOUGH = 4.8  # what five seen count for
KEEP, FAINT = 0.98, 0.01  # what a runtime seen counts for after one more, and what counts for nothing
HOUR = 3_600.0
CHANCE = 2.0  # standard deviations by which kinds may differ though they tell nothing
MOST, MOST_BATCHES = 200, 100  # sketches a queue keeps: as many as its status has room for

BATCH, SIZE = " @", " x"
SUFFIX = re.compile(r"(-?\d+|-[bcdfghjklmnpqrstvwxz2-9]{5})+$")

Group = tuple[str, str]  # user and name, "" for all; a name with its number of GPUs, or the number alone
Runtimes = Mapping[Group, Sketch]


def add(sketch: Sketch, seconds: float) -> Sketch:
    """`sketch` with one more runtime in it."""
    points, centre = sketch.points, _centre(seconds)
    at = bisect_left(points, (centre,))
    had = points[at][1] if at < len(points) and points[at][0] == centre else 0.0
    return Sketch((*points[:at], (centre, had + 1.0), *points[at + (had > 0) :]))


def faded(sketch: Sketch) -> Sketch:
    """What was seen counts a little less, as it does before one more is added to it."""
    return Sketch(tuple([(seconds, _less(weight)) for seconds, weight in sketch.points if weight > FAINT]))


@lru_cache(1 << 12)
def _less(weight: float) -> float:
    return round(weight * KEEP, 3)


def _centre(seconds: float) -> float:
    """The middle of the bin that `seconds` falls into; under a second all is one bin."""
    bin = max(0, ceil(log(max(seconds, 1.0)) / GROWTH))
    return round(2 * exp(bin * GROWTH) / (1 + exp(GROWTH)), 3)


def count(sketch: Sketch) -> float:
    return sum(weight for _, weight in sketch.points)


class Lengths:
    """Of a sketch its seconds, and the part that does not exceed each. `ages`: how long running ones have run."""

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


_lengths = lru_cache(1 << 10)(Lengths)


def _mean_over_time(seconds: Iterable[tuple[float, float]]) -> float:
    """The mean of so many seconds, each with a weight, over all of these seconds; 0 where there are none."""
    weighted = [(one * weight, one) for one, weight in seconds]
    return sum(work * one for work, one in weighted) / max(1.0, sum(work for work, _ in weighted))


def learn(runtimes: Runtimes, workload: Workload, seconds: float) -> dict[Group, Sketch]:
    """What is known after a workload ran for `seconds`; the oldest batches and the least seen groups are dropped."""
    known = dict(runtimes)
    for group in groups(workload):
        known[group] = add(faded(known.get(group, Sketch())), seconds)
    batches = [group for group in known if BATCH in group[1]]
    for group in nsmallest(len(batches) - MOST_BATCHES, batches, key=_hour):
        del known[group]
    while len(known) > MOST + min(len(batches), MOST_BATCHES):
        del known[min(known.keys() - batches, key=lambda group: (count(known[group]), group))]
    return known


def _hour(group: Group) -> tuple[int, Group]:
    return int(group[1].rpartition(BATCH)[2]), group


def known_group(runtimes: Runtimes, groups: Iterable[Group]) -> Group:
    """The first of these groups of which enough was seen, else all."""
    return next((group for group in groups if group in runtimes and _is_enough(runtimes[group])), ("", ""))


def _sort_of(name: str) -> str:
    """By what a group of that name is told apart from others; "" for those of all names and sizes."""
    if not name or BATCH in name:
        return name and BATCH
    kind, is_sized, _ = name.rpartition(SIZE)
    return "both" if kind else is_sized or "name"


def _is_enough(sketch: Sketch) -> bool:
    """Whether `count` comes to ENOUGH, counted no further than that: it is asked for each kind in each cycle."""
    return any(seen >= ENOUGH for seen in accumulate(weight for _, weight in sketch.points))


def groups(workload: Workload) -> tuple[Group, ...]:
    """Narrowest first: its batch; its name, its user, its queue; some also by GPUs asked for, in powers of two."""
    return _groups(workload.user, job_family(workload.name), gpus(workload), int(workload.submitted // HOUR))


@lru_cache(1 << 12)
def _groups(user: str, name: str, gpus: float, hour: int) -> tuple[Group, ...]:
    size = f"{SIZE}{2 ** ceil(log2(max(gpus, 1.0)))}"
    narrow = (user, f"{name}{size}{BATCH}{hour}"), (user, name + size), (user, name), (user, ""), ("", size)
    return (*dict.fromkeys(group for group in narrow if any(group)), ("", ""))


def gpus(workload: Workload) -> float:
    """Of all its pods."""
    return gpus_of(workload.podsets, [one.count for one in workload.podsets])


@lru_cache(1 << 12)  # asked for a few times when a workload comes, by a name that mostly never comes again
def job_family(name: str) -> str:
    """A name without counters and generated suffixes: `train17`, `train-17-3` and `train-x7k2p` are `train`."""
    return SUFFIX.sub("", name)


class Known(NamedTuple):
    """What is known of a kind: by which of its groups, and the seconds that it runs at least."""

    group: Group
    lengths: Lengths
    least: float


class RuntimeGroup(NamedTuple):
    """A workload. `groups`: narrowest first; `like`: a number that it shares with those expected to run alike."""

    workload: Workload
    groups: tuple[Group, ...]
    gpus: float
    like: int


class RuntimeGroups(ByWorkload[int, RuntimeGroup]):
    """By the identity of the workload."""


class Moments(NamedTuple):
    """Of the logarithms of a sketch's runtimes: how much was seen, the mean, the mean square from it."""

    seen: float
    mean: float
    square: float


@lru_cache(1 << 12)  # sketches stay the same until one of their kind ends
def moments(sketch: Sketch) -> Moments:
    logs = [(log(seconds), weight) for seconds, weight in sketch.points]
    seen = sum(weight for _, weight in logs)
    mean = sum(one * weight for one, weight in logs) / seen
    return Moments(seen, mean, sum(weight * (one - mean) ** 2 for one, weight in logs) / seen)


def explained(kinds: Sequence[Moments]) -> float:
    """The part of the variance that kinds explain beyond chance, 0..1: R², adjusted for their number (Ezekiel, 1930),
    less CHANCE times the deviation that it has where kinds mean nothing (R² is then of a beta distribution)."""
    seen = sum(one.seen for one in kinds)
    free, more = seen - len(kinds), len(kinds) - 1
    if more < 1 or free < 1:
        return 0.0
    mean = sum(one.seen * one.mean for one in kinds) / seen
    within = sum(one.seen * one.square for one in kinds)
    whole = within + sum(one.seen * (one.mean - mean) ** 2 for one in kinds)
    by_chance = CHANCE * sqrt(2 * more / (free * (seen + 1)))
    return max(0.0, 1 - (within / free) / (whole / (seen - 1)) - by_chance) if whole else 0.0


class Telling(dict[str, tuple[object, float]]):
    """By queue what it remembers, and how telling that is."""


class Learned:
    """How long each kind of workload runs: as its queue remembers, and as those of its batch show that run now."""

    aged: int | None = 1  # of how many of their groups, narrowest first, those that run are counted; None: of all

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot, memo = snapshot, snapshot.memo
        self._runtime_groups, self._numbers = memo.of(RuntimeGroups), memo.of(Numbers)
        self._known: dict[tuple[str, Group], Known | None] = {}

    @cached_property
    def _runtimes(self) -> dict[str, dict[Group, Sketch]]:
        queues = self._snapshot.queues
        return {name: dict(queue.ledger.runtimes) for name, queue in queues.items() if queue.ledger.runtimes}

    @cached_property
    def _running(self) -> tuple[dict[tuple[str, Group], list[float]], dict[str, list[tuple[float, float]]]]:
        """For how many seconds the running workloads have run: by queue and group; and by queue, with their GPUs."""
        ages: defaultdict[tuple[str, Group], list[float]] = defaultdict(list)
        held: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        now, runtimes = self._snapshot.now, self._runtimes
        for one in self._snapshot.running:
            if one.admitted_at is not None and (queue := one.workload.queue) in runtimes:
                kin, age = self.kin(one.workload), now - one.admitted_at
                held[queue].append((age, kin.gpus))
                for group in kin.groups[: self.aged]:
                    ages[queue, group].append(age)
        return ages, held

    def quantile(self, workload: Workload, part: float, beyond: float = 0.0) -> float | None:
        """The runtime that `part` of its kind longer than `beyond` seconds do not exceed; None where none is known."""
        known = self._of(workload)
        return known.lengths.quantile(part, max(beyond, known.least)) if known else None

    def span(self, queue: str) -> float:
        """Seconds that one workload takes its GPUs, on the mean over the time that they are taken; 0 where nothing was
        learned. The longer of two: by workloads that ended, mostly short ones, and by running ones so far."""
        ended = self._runtimes.get(queue, {}).get(("", ""), Sketch()).points
        return max(_mean_over_time(ended), _mean_over_time(self._running[1].get(queue, ())))

    def telling(self, queue: str) -> float:
        """How well its kinds tell how long a workload of a queue runs, 0..1: 1 from where its batch, its name or its
        number of GPUs, whichever tells most, explains half of the variance of the logarithms of runtimes; below, the
        cube root of the part of that half that is explained."""
        known, runtimes = self._snapshot.memo.of(Telling), self._snapshot.queues[queue].ledger.runtimes
        if queue not in known or known[queue][0] is not runtimes:
            sorts = defaultdict[str, list[Moments]](list)
            for (_, name), sketch in runtimes:
                if (kind := moments(sketch)).seen >= ENOUGH:
                    sorts[_sort_of(name)].append(kind)
            most = max((explained(kinds) for sort, kinds in sorts.items() if sort), default=0.0)
            known[queue] = runtimes, min(1.0, 2 * most) ** (1 / 3)
        return known[queue][1]

    def knows(self, workload: Workload) -> bool:
        """Whether anything was learned."""
        return self._of(workload) is not None

    def outlives(self, workload: Workload, seconds: float) -> bool:
        """Whether none of its kind that ended ran so long, where something was learned."""
        known = self._of(workload)
        return known is not None and seconds > known.lengths.seconds[-1]

    def is_own(self, workload: Workload) -> bool:
        """Whether enough of its name were seen; else it is taken for one of its user's, or its queue's."""
        known = self._of(workload)
        return known is not None and known.group in self.kin(workload).groups[:3]

    def unknown_batch(self, workload: Workload) -> Group | None:
        """Its batch, unless enough of that have ended: what came together is alike. None if nothing was learned."""
        known, batch = self._of(workload), self.kin(workload).groups[0]
        return batch if known and known.group != batch else None

    def kin(self, one: Workload) -> RuntimeGroup:
        """The group of a workload."""
        found = self._runtime_groups.get(id(one))
        if found is None:
            names, held = groups(one), gpus(one)
            like = one.queue, names[0], held, one.time_limit, one.expected_runtime
            number = self._numbers[like]
            found = self._runtime_groups[id(one)] = RuntimeGroup(one, names, held, number)
        return found

    def _of(self, workload: Workload) -> Known | None:
        if workload.queue not in self._runtimes:
            return None
        names = self.kin(workload).groups
        kind = workload.queue, names[0]
        if kind not in self._known:
            self._known[kind] = self._look_up(workload.queue, names)
        return self._known[kind]

    def _look_up(self, queue: str, names: tuple[Group, ...]) -> Known | None:
        """A batch that is not known yet runs at least as long as half of those of it that run do already."""
        runtimes, group = self._runtimes[queue], known_group(self._runtimes[queue], names)
        if group not in runtimes:
            return None
        batch = self._running[0].get((queue, names[0])) if group != names[0] else None
        ages, sketch = self._running[0].get((queue, group)), runtimes[group]
        return Known(group, Lengths(sketch, ages) if ages else _lengths(sketch), median(batch) if batch else 0.0)


class Foreseen(Learned):
    """With all that run now: they count as longer than they have run."""

    aged = None
