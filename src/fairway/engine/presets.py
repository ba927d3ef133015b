"""The named presets of Policy: each a few choices put together.

`sjf` and `srtf` go by `expected_runtime` as if it were true: they are bounds to compare with, where a simulation tells
the durations. `srtf` and `las` preempt by what a workload still needs, or has had: a view of the snapshot gives
workloads the priority that follows from it, in powers of two, so that equals do not take each other's place for ever.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf, log2

from .model import Running, Workload
from .order import by_priority, by_submission
from .policy import FAIRWAY, Policy
from .quota import Tree
from .resources import counts_of, gpus_of
from .snapshot import Snapshot

Value = Callable[[Workload, float, float], int]
"""A workload's priority from the GPU-seconds it has had, now."""

PATIENCE = 2 * 86_400.0
"""Seconds after which nobody is passed over any longer by those who had less (Tiresias: PromoteKnob)."""


def by_claim(line: list[Workload], tree: Tree) -> None:
    """The shortest by what it says of itself."""
    line.sort(key=lambda one: inf if one.expected_runtime is None else one.expected_runtime)


def level(amount: float) -> int:
    """In powers of two, 0 below one."""
    return int(log2(amount)) + 1 if amount >= 1 else 0


def least_remaining(workload: Workload, served: float, now: float) -> int:
    """The less there is to do, the higher."""
    if workload.expected_runtime is None:
        return -64
    return -level(workload.expected_runtime - served / max(size(workload), 1e-3))


def least_attained(workload: Workload, served: float, now: float) -> int:
    """The less it has had, in GPU-hours, the higher (Tiresias); who has waited too long is above all, to its end."""
    waited = now - workload.submitted - served / max(size(workload), 1e-3)
    return 1 if waited > PATIENCE else -level(served / 3600)


def size(workload: Workload) -> float:
    """GPUs of all its pods."""
    return gpus_of(workload.podsets, tuple(podset.count for podset in workload.podsets))


def served(one: Running, now: float) -> float:
    """GPU-seconds so far, this attempt's too."""
    held = gpus_of(one.workload.podsets, counts_of(one.workload.podsets, one.admission))
    return one.workload.attained + held * max(0.0, now - (now if one.admitted_at is None else one.admitted_at))


def valued(value: Value, snapshot: Snapshot) -> Snapshot:
    """The same snapshot, with priorities that follow from service."""
    now = snapshot.now

    def ranked(workload: Workload, amount: float) -> Workload:
        priority = value(workload, amount, now)
        return workload if priority == workload.priority else replace(workload, priority=priority)

    def standing(one: Running) -> Running:
        workload = ranked(one.workload, served(one, now))
        return one if workload is one.workload else replace(one, workload=workload)

    pending = tuple(ranked(one, one.attained) for one in snapshot.pending)
    return replace(snapshot, pending=pending, running=tuple(map(standing, snapshot.running)))


IN_TURN = Policy(ordering=by_submission, is_strict=False, makes_room=False, hold_depth=0)

PRESETS = {
    "fairway": FAIRWAY,
    "fifo": IN_TURN,
    "strict-fifo": replace(IN_TURN, is_strict=True),
    "sjf": replace(IN_TURN, ordering=by_claim, is_strict=True),
    "srtf": Policy(ordering=by_priority, hold_depth=0, view=partial(valued, least_remaining)),
    "las": Policy(ordering=by_priority, hold_depth=0, view=partial(valued, least_attained)),
    "easy": replace(IN_TURN, hold_depth=1),
    "conservative": replace(IN_TURN, hold_depth=-1),
    "fgd": replace(IN_TURN, strategy="FGD"),
    "bestfit": replace(IN_TURN, strategy="BestFit"),
}
