"""The named presets of Policy: each a few choices put together.

`sjf` and `srtf` go by `expected_runtime` as if it were true: they are bounds to compare with, where a simulation tells
the durations. `srtf` and `las` preempt by what a workload still needs, or has had: a view of the snapshot gives
workloads the priority that follows from it, in powers of two, so that equals do not take each other's place for ever.

`strict-fifo` and `sjf` are the baselines that traces are published with: the head waits until its gang fits on as few
nodes as can hold it, whole nodes and one part of a node (the `consolidate` placement of the Helios simulator).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from math import inf
from typing import Generic, TypeVar

from fairway import engine
from fairway.engine import DEVICE, GPU, NAME, PodSet, Policy, Running, Snapshot, Topology, Workload, gpus, largest_node

One = TypeVar("One", Workload, Running)

PATIENCE = 6 * engine.DAY
"""Seconds of waiting after which a workload that had less goes no longer first (Tiresias: PromoteKnob)."""
SOONER = 2 / 3
"""The part of it after which a gang is brought up that no node could hold: nodes come free together only if kept."""
AGED = 0.25
"""The part of all GPUs that the others brought up may take, running workloads first, then the first to come: where
all wait for weeks, all would be first, and the order by submission once more."""


def by_submission(one: Workload) -> float:
    """First come, first served."""
    return 0.0


def by_rank(one: Workload) -> float:
    """The higher priority first."""
    return -one.priority


def by_claim(one: Workload) -> float:
    """The shortest first, by what it says of itself."""
    return inf if one.expected_runtime is None else one.expected_runtime


@dataclass(slots=True)
class Rated(Generic[One]):
    """A workload that waits or runs, as it was last seen: `workload` with its priority, `held` GPUs of `size` since
    then. `is_wide`: it asks for more GPUs than any node has; `is_aged`: it has waited too long."""

    one: One
    seen: One
    workload: Workload
    size: float
    is_wide: bool = False
    held: float = 0.0
    since: float = 0.0
    is_aged: bool = False

    def served(self, now: float) -> float:
        """GPU-seconds that it has had."""
        return self.workload.attained + self.held * max(0.0, now - self.since)

    def ages_at(self, patience: float, now: float) -> float:
        """When it has waited too long, if it does not run from now on; gangs that no node could hold sooner."""
        bears = SOONER * patience if self.is_wide else patience
        return self.workload.submitted + self.served(now) / self.size + bears

    def changed(self, value: "Value", now: float) -> Workload | None:
        """The workload with another priority, if it has another by now."""
        priority = value(self, self.served(now))
        if priority == self.workload.priority:
            return None
        self.workload = replace(self.workload, priority=priority)
        return self.workload


class Seen:
    """Workloads as a policy's view last saw them, by identity."""

    def __init__(self) -> None:
        self.waiting: dict[int, Rated[Workload]] = {}
        self.standing: dict[int, Rated[Running]] = {}


AnyRated = Rated[Workload] | Rated[Running]
Value = Callable[[AnyRated, float], int]
"""A priority from the GPU-seconds that a workload has had."""


def least_remaining(one: AnyRated, served: float) -> int:
    """The less there is to do, the higher."""
    whole = one.workload.expected_runtime
    return -64 if whole is None else -engine.level(whole - served / one.size)


def least_attained(one: AnyRated, served: float) -> int:
    """The less it has had, in GPU-hours, the higher (Tiresias); one that has waited too long is above all."""
    return 1 if one.is_aged else -engine.level(served / 3600)


def bring_up(those: Sequence[AnyRated], patience: float, now: float, gpus: float) -> None:
    """Mark workloads that have waited too long: gangs that no node could hold, and of the others as many as it takes to
    fill so many GPUs."""
    for one in those:
        one.is_aged = now >= one.ages_at(patience, now)
    others = [one for one in those if one.is_aged and not one.is_wide]
    others.sort(key=lambda one: (isinstance(one.one, Workload), one.workload.submitted, one.workload.key))
    for one, taken in zip(others, accumulate(one.size for one in others)):
        one.is_aged = taken - one.size < gpus


def size(workload: Workload) -> float:
    """GPUs of all its pods, never none."""
    return max(gpus(workload), 1e-3)


def waiting(most: float, one: Workload) -> Rated[Workload]:
    """`most`: GPUs of the largest node."""
    return Rated(one, one, one, size(one), gpus(one) > most)


def standing(most: float, memories: Mapping[str, int], one: Running) -> Rated[Running]:
    podsets, memory = one.workload.podsets, memories.get(one.admission.pool, 0)
    held = engine.gpus_of(podsets, engine.counts_of(podsets, one.admission), memory)
    runs = () if one.admitted_at is None else (held, one.admitted_at)
    return Rated(one, one, one.workload, size(one.workload), gpus(one.workload) > most, *runs)


def kept(
    known: dict[int, Rated[One]], those: Iterable[One], rate: Callable[[One], Rated[One]]
) -> dict[int, Rated[One]]:
    """Workloads that are there, as they were last seen, by identity; the others are forgotten."""
    return {id(one): known.get(id(one)) or rate(one) for one in those}


def valued(value: Value, snapshot: Snapshot, patience: float = inf) -> Snapshot:
    """The same snapshot, with priorities that follow from service. One that has the same as the last time is the same
    object as then; that is known of those that were there, by identity."""
    memo, now, most = snapshot.memo.of(Seen), snapshot.now, largest_node(snapshot) / DEVICE
    memo.waiting = kept(memo.waiting, snapshot.pending, partial(waiting, most))
    memo.standing = kept(memo.standing, snapshot.running, partial(standing, most, snapshot.memories))
    if patience < inf:
        there = float(snapshot.capacity[snapshot.resources.index(GPU)].sum()) / DEVICE
        bring_up((*memo.waiting.values(), *memo.standing.values()), patience, now, AGED * there)
    for waits in memo.waiting.values():
        waits.seen = waits.changed(value, now) or waits.seen
    for stands in memo.standing.values():
        if workload := stands.changed(value, now):
            stands.seen = replace(stands.one, workload=workload)
    pending = tuple([one.seen for one in memo.waiting.values()])
    running = tuple([one.seen for one in memo.standing.values()])
    alters_at = min(_alterations(memo, patience, now), default=inf) if patience < inf else inf
    return replace(snapshot, pending=pending, running=running, alters_at=alters_at)


def _alterations(memo: Seen, patience: float, now: float) -> Iterator[float]:
    """When a workload will have waited too long; and, by attained service, when one that runs passes the level
    of one that waits."""
    levels = {one.workload.priority for one in memo.waiting.values() if not one.is_aged}
    for runs in memo.standing.values():
        if runs.held and not runs.is_aged and runs.workload.priority in levels:
            yield now + (3600 * 2**-runs.workload.priority - runs.served(now)) / runs.held
    yield from (at for one in memo.waiting.values() if (at := one.ages_at(patience, now)) > now)


def consolidated(snapshot: Snapshot) -> Snapshot:
    """The same snapshot, where a gang that says nothing of where fills node after node."""
    memo, most = snapshot.memo.of(Seen), largest_node(snapshot)
    memo.waiting = kept(memo.waiting, snapshot.pending, partial(gathered, most))
    pools = tuple([replace(pool, levels=(*pool.levels, NAME)) for pool in snapshot.pools])
    return replace(snapshot, pools=pools, pending=tuple([one.seen for one in memo.waiting.values()]))


def gathered(most: int, workload: Workload) -> Rated[Workload]:
    """Its pods in segments of as many as have a node of `most` milli-GPU to themselves."""
    podsets = tuple([in_nodes(podset, most) for podset in workload.podsets])
    seen = workload if podsets == workload.podsets else replace(workload, podsets=podsets)
    return Rated(workload, seen, seen, size(workload))


def in_nodes(podset: PodSet, most: int) -> PodSet:
    pods = most // max(1, dict(podset.pod.requests).get(GPU, most))
    is_free = podset.count > 1 < pods and podset.topology == Topology()
    return replace(podset, topology=Topology(segments=(engine.Segment(NAME, pods),))) if is_free else podset


IN_TURN = Policy(ordering=by_submission, is_strict=False, makes_room=False, hold_depth=0)
STRICT = replace(IN_TURN, is_strict=True, view=consolidated)

PRESETS = {
    "fairway": engine.FAIRWAY,
    "fifo": IN_TURN,
    "strict-fifo": STRICT,
    "sjf": replace(STRICT, ordering=by_claim),
    "srtf": Policy(ordering=by_rank, hold_depth=0, view=partial(valued, least_remaining)),
    "las": Policy(ordering=by_rank, hold_depth=0, view=partial(valued, least_attained, patience=PATIENCE)),
    "easy": replace(IN_TURN, hold_depth=1),
    "conservative": replace(IN_TURN, hold_depth=-1),
    "fgd": replace(IN_TURN, strategy="FGD"),
    "bestfit": replace(IN_TURN, strategy="BestFit"),
}
