"""A figure of a benchmark: what was measured, how often, against what, and whether the run was valid."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Figure:
    """`samples` of one quantity; `aim` and `baseline` in the same unit, None without one. `is_rate`: more is better."""

    name: str
    samples: tuple[float, ...]
    unit: str
    aim: float | None = None
    baseline: float | None = None
    baseline_name: str = ""
    is_rate: bool = False
    is_valid: bool = True

    @property
    def value(self) -> float:
        return median(self.samples)

    @property
    def ratio(self) -> float | None:
        """How many times better than the baseline; None without one, or where there is nothing to divide by."""
        if self.baseline is None:
            return None
        over, under = (self.value, self.baseline) if self.is_rate else (self.baseline, self.value)
        return over / under if under else None

    @property
    def is_met(self) -> bool:
        if self.aim is None:
            return True
        return self.value >= self.aim if self.is_rate else self.value <= self.aim

    def line(self) -> str:
        """Name, figure, unit, spread, aim, baseline, ratio, validity."""
        sign = ">=" if self.is_rate else "<="
        aim = "" if self.aim is None else f"aim {sign} {self.aim:g}{'' if self.is_met else ' MISSED'}"
        ratio = "" if self.ratio is None else f", {self.ratio:.2f}x"
        baseline = "" if self.baseline is None else f"{self.baseline_name} {self.baseline:g}{ratio}"
        spread = f"{min(self.samples):.4g}-{max(self.samples):.4g}"
        valid = "valid" if self.is_valid else "INVALID"
        return f"{self.name:<44} {self.value:>10.4g} {self.unit:<12} {spread:<20} {aim:<22} {baseline:<44} {valid}"

    def record(self) -> dict[str, object]:
        return {**asdict(self), "value": self.value, "ratio": self.ratio, "is_met": self.is_met}


def growth(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The exponent of cost as a power of size, fitted by least squares to their logarithms."""
    xs, ys = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys)) / sum((a - x) ** 2 for a in xs)
