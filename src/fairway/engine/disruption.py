"""PodDisruptionBudgets: which of them cover a workload's pods. Whether one would be exceeded is asked of the cycle."""

from .labels import selects
from .model import Admission, Disruption, PodSet
from .resources import counts_of

Covered = tuple[tuple[Disruption, int], ...]
"""Budgets, and how many of some pods each covers."""


def covered(budgets: tuple[Disruption, ...], podsets: tuple[PodSet, ...], admission: Admission) -> Covered:
    """The budgets that cover pods of an admission."""
    if not budgets:
        return ()
    found = ((budget, _count(budget, podsets, admission)) for budget in budgets)
    return tuple((budget, count) for budget, count in found if count)


def _count(budget: Disruption, podsets: tuple[PodSet, ...], admission: Admission) -> int:
    namespace = budget.key.partition("/")[0]
    return sum(
        count for podset, count in zip(podsets, counts_of(podsets, admission))
        if podset.pod.namespace == namespace and selects(budget.selector, dict(podset.pod.labels))
    )  # fmt: skip
