"""What came of forecasts, and what is learned from it.

Kept is what a workload was told first from each distance, until it starts. Then it is counted: by how much p50 was off,
and whether the start came by p90. A workload that waits beyond its p90 is late whenever it starts: that is learned at
once, and not again at the start. What was told to many of a queue at once is learned from as one, for they are late or
in time together.

A p90 is worth what it came to: each queue stretches the wait until its p90, more when one has passed without the start,
a ninth as much less after a start that came by then, which settles where nine in ten do (online quantile tracking:
Gibbs and Candès, NeurIPS 2021).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import exp, inf
from typing import NamedTuple

from fairway.engine import Workload

from .forecast import Forecast

HORIZONS = (("10m", 600.0), ("1h", 3_600.0), ("6h", 21_600.0), ("1d", 86_400.0), ("longer", inf))
SOON = 60.0  # seconds: one that starts within them was in time, whatever the p90
STEP, MOST_STRETCH = 0.4, 64.0


class Told(NamedTuple):
    """`part`: one, shared by all of a queue that were told so at once."""

    at: float
    forecast: Forecast
    part: float
    is_late: bool = False  # its p90 has passed, and that was learned

    @property
    def due(self) -> float:
        """Until when a start is in time."""
        return max(self.forecast.p90, self.at + SOON)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a forecast: seconds between its p50 and the start, None of one that waits on beyond p90; whether it
    came by p90; whether that it did not `was_learned` before; for which `part` of one it is learned from."""

    horizon: str
    error: float | None
    is_covered: bool
    was_learned: bool = False
    part: float = 1.0


class Calibration:
    """What those that wait were told, by key and horizon."""

    def __init__(self) -> None:
        self._told: dict[str, dict[str, Told]] = {}

    def __iter__(self) -> Iterator[str]:
        """The keys of those that were told something, as they are now."""
        return iter(tuple(self._told))

    def __len__(self) -> int:
        return len(self._told)

    def tell(self, now: float, waiting: Iterable[Workload], found: Mapping[str, Forecast]) -> None:
        """What is told for the first time from its distance is kept."""
        from_where = {key: horizon(one.p50 - now) for key, one in found.items()}
        new = [one for one in waiting
               if one.key in found and from_where[one.key] not in self._told.get(one.key, {})]  # fmt: skip
        many = Counter(one.queue for one in new)
        for one in new:
            told = Told(now, found[one.key], 1 / many[one.queue])
            self._told.setdefault(one.key, {})[from_where[one.key]] = told

    def started(self, key: str, at: float) -> list[Outcome]:
        """It waits no longer."""
        return [Outcome(name, abs(at - one.forecast.p50), at <= one.due, one.is_late, one.part)
                for name, one in self._told.pop(key, {}).items()]  # fmt: skip

    def waits_on(self, key: str, now: float) -> list[Outcome]:
        """Of what it was told, that by which it is late since this was last asked."""
        told = self._told.get(key, {})
        late = {name: one for name, one in told.items() if not one.is_late and now > one.due}
        told |= {name: one._replace(is_late=True) for name, one in late.items()}
        return [Outcome(name, None, is_covered=False, part=one.part) for name, one in late.items()]

    def forget(self, key: str) -> None:
        """It will not start."""
        self._told.pop(key, None)


def horizon(seconds: float) -> str:
    """How far ahead, in a word."""
    return next(name for name, most in HORIZONS if seconds <= most)


def learned(stretch: float, outcomes: Iterable[Outcome]) -> float:
    """A queue's stretch after these."""
    for one in outcomes:
        if not one.was_learned:
            stretch = stretched(stretch, is_late=not one.is_covered, part=one.part)
    return stretch


def stretched(stretch: float, *, is_late: bool, part: float = 1.0) -> float:
    """After one more p90, which counts for `part` of one; `is_late`: the start did not come by then."""
    return min(max(stretch * exp(part * STEP * (0.9 if is_late else -0.1)), 1 / MOST_STRETCH), MOST_STRETCH)
