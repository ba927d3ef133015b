"""Policy: the few choices a cycle is run with, and the named presets."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """`usage_weight`: k of the share division; `half_life` of decayed usage in seconds; `hold_depth`: holds per pool,
    -1 all; `strategy`: overrides the pools' own."""

    usage_weight: float = 0.5
    half_life: float = 7 * 86400.0
    hold_depth: int = 1
    strategy: str = ""


FAIRWAY = Policy()
PRESETS = {"fairway": FAIRWAY}
