"""The forecasters that B13 compares with: each tells p50 and p90 of the seconds that are left to wait.

- `past waits`: the quantiles of past waits of as many GPUs in the same queue;
- `QBETS`: an upper bound of these quantiles with 95 % confidence, from the waits since the last change of regime, which
  is three in a row above the bound of p90 (Nurmi, Brevik, Wolski, JSSPP 2007);
- `regression`: quantile regression of the log of the wait on work ahead, own size, the hour, and the wait so far,
  fitted to the earlier forecasts that have come true.

The first two compare a workload with those that waited longer than it has so far. Where none did, it waits as long
again. What EASY reserves from time limits is not among them: no trace has time limits.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from fairway.engine import DAY, Workload, World, gpus

QUANTILES = (0.5, 0.9)
DEVIATIONS = 1.645  # of a bound with 95 % confidence
IN_A_ROW = 3
ENOUGH, ROUNDS = 20, 30  # forecasts that a regression needs; rounds of reweighted least squares
NAMES = ("past waits", "QBETS", "regression")
Floats = NDArray[np.float64]
Guess = tuple[float, float]
"""p50 and p90, in seconds from now."""


def pinball(wait: float, told: float, part: float) -> float:
    """The loss of a quantile that was told as `told` (Koenker, Bassett 1978)."""
    return max(part * (wait - told), (part - 1) * (wait - told))


def bound(waits: Sequence[float], part: float) -> float:
    """The wait that exceeds the quantile with 95 % confidence; the longest where too few were seen."""
    row = ceil(len(waits) * part + DEVIATIONS * sqrt(len(waits) * part * (1 - part)))
    return sorted(waits)[min(row, len(waits)) - 1]


def quantile(waits: Sequence[float], part: float) -> float:
    return float(np.quantile(waits, part))


class Waits:
    """Past waits of one kind, in the order of starts; `recent`: since the last change of regime."""

    def __init__(self) -> None:
        self.all: list[float] = []
        self.recent: list[float] = []
        self._above = 0

    def add(self, wait: float) -> None:
        self._above = self._above + 1 if self.recent and wait > bound(self.recent, QUANTILES[-1]) else 0
        self.all.append(wait)
        self.recent.append(wait)
        if self._above >= IN_A_ROW:
            self.recent, self._above = self.recent[-IN_A_ROW:], 0


class Rivals:
    """What they have seen of one replay."""

    def __init__(self) -> None:
        self._waits = defaultdict[tuple[str, float], Waits](Waits)
        self._told: dict[str, list[tuple[float, Floats]]] = {}
        self._seen: list[tuple[Floats, float]] = []  # features, and the log of the wait that followed

    def started(self, one: Workload, now: float) -> None:
        self._waits[one.queue, gpus(one)].add(now - one.submitted)
        self._seen += [(row, np.log1p(now - at)) for at, row in self._told.pop(one.key, ())]

    def tell(self, world: World) -> dict[str, dict[str, Guess]]:
        """By key and rival, for all that wait."""
        rows, fits = features(world), self._fitted()
        found = dict[str, dict[str, Guess]]()
        for one, row in zip(world.pending, rows):
            self._told.setdefault(one.key, []).append((world.now, row))
            waits, waited = self._waits[one.queue, gpus(one)], world.now - one.submitted
            guesses = [_left(waits.all, waited, quantile), _left(waits.recent, waited, bound)]
            p50, p90 = (float(np.expm1(np.clip(row @ fit, 0.0, 20.0))) for fit in fits)
            found[one.key] = dict(zip(NAMES, (*guesses, (p50, max(p50, p90)))))
        return found

    def _fitted(self) -> list[Floats]:
        """Coefficients for each quantile, by iteratively reweighted least squares; zeros before enough was seen."""
        if len(self._seen) < ENOUGH:
            return [np.zeros(FEATURES)] * len(QUANTILES)
        rows, logs = np.array([row for row, _ in self._seen]), np.array([log for _, log in self._seen])
        return [_fit(rows, logs, part) for part in QUANTILES]


FEATURES = 6


def features(world: World) -> Floats:
    """float64[waiting, feature]: of each 1, log of the GPUs ahead in the order of submission, log of its own GPUs, the
    hour as sine and cosine, log of its wait so far."""
    sizes = np.array([gpus(one) for one in world.pending])
    order = np.argsort([one.submitted for one in world.pending], kind="stable")
    ahead = np.empty_like(sizes)
    ahead[order] = np.cumsum(sizes[order]) - sizes[order]
    waited = world.now - np.array([one.submitted for one in world.pending])
    turn = np.full(len(sizes), 2 * np.pi * (world.now % DAY) / DAY)
    columns = np.ones(len(sizes)), np.log1p(ahead), np.log1p(sizes), np.sin(turn), np.cos(turn), np.log1p(waited)
    return np.stack(columns, axis=1)


def _fit(rows: Floats, logs: Floats, part: float) -> Floats:
    fit, ridge = np.zeros(FEATURES), 1e-3 * np.eye(FEATURES)
    for _ in range(ROUNDS):
        off = logs - rows @ fit
        weights = np.where(off < 0, 1 - part, part) / np.maximum(np.abs(off), 1e-3)
        fit = np.linalg.solve((rows.T * weights) @ rows + ridge, (rows.T * weights) @ logs)
    return fit


def _left(waits: Sequence[float], waited: float, told: Callable[[Sequence[float], float], float]) -> Guess:
    longer = [wait for wait in waits if wait > waited]
    p50, p90 = (told(longer, part) - waited if longer else waited for part in QUANTILES)
    return p50, p90
