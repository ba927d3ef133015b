"""How many replicas there should be: a pure function of what pods use and what they should.

As Kubernetes reckons: the use of all pods over what it should be is the factor; within a tenth of 1 nothing changes. A
pod that is not measured, as it is starting, is taken to use nothing where more are wanted, and all that it should where
fewer are: so neither is done for want of knowledge. A step up at most doubles (or adds FEW); a step down waits until
nothing more was wanted for a while.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

TOLERANCE = Fraction(1, 10)
FEW = 4


@dataclass(frozen=True, slots=True)
class Use:
    """Of one pod: what it uses (None: not measured) and what it should."""

    used: Fraction | None
    due: Fraction


def wanted(replicas: int, uses: Sequence[Use]) -> int:
    """Replicas by one metric, before any bound; as many as there are where nothing is measured."""
    measured = sum((it.due for it in uses if it.used is not None), Fraction(0))
    missing = sum((it.due for it in uses if it.used is None), Fraction(0))
    used = sum((it.used for it in uses if it.used is not None), Fraction(0))
    if not measured:
        return replicas
    factor = used / measured
    if factor > 1:
        factor = max(Fraction(1), used / (measured + missing))
    else:
        factor = min(Fraction(1), (used + missing) / (measured + missing))
    return replicas if abs(factor - 1) <= TOLERANCE else ceil(factor * len(uses))


def bounded(replicas: int, wishes: Iterable[int], *, least: int, most: int) -> int:
    """The greatest wish, within bounds and one step."""
    return max(least, min(most, max(2 * replicas, replicas + FEW), max(wishes, default=replicas)))
