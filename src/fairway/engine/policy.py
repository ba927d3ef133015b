"""Policy: the few choices a cycle is run with."""

from collections.abc import Callable
from dataclasses import dataclass

from .model import Pool, Workload
from .snapshot import Snapshot

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Policy:
    """`usage_weight`: k of the share division; `half_life` of decayed usage in seconds; `halving`: the part of a line's
    patience (`order.patience`) after which a workload counts as if it needed half as much; `overdue`: how many times
    that patience a gang waits that no node could hold until it has waited too long; `hold_depth`: holds per pool, -1
    all, unless the pool says otherwise; `strategy`: overrides the pools' own; `ordering`: a key, the smallest first,
    that overrides the queues' own order and whose turn it is among them: all workloads that may use the same pools are
    in one line; `is_strict`: overrides whether a blocked head blocks its line; `makes_room`: whether it evicts anything
    for another workload; `view`: how the policy sees a snapshot, where it values workloads by more than their own
    priority; `tells_why`: whether a wait for room is looked into; if not, it is NoRoom without figures."""

    usage_weight: float = 0.5
    half_life: float = 7 * DAY
    halving: float = 0.2
    overdue: float = 2.0
    hold_depth: int = 1
    strategy: str = ""
    ordering: Callable[[Workload], float] | None = None
    is_strict: bool | None = None
    makes_room: bool = True
    view: Callable[[Snapshot], Snapshot] | None = None
    tells_why: bool = True

    def seen(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot to decide and to check on."""
        return self.view(snapshot) if self.view else snapshot

    def holds(self, pool: Pool) -> int:
        """How many holds a pool may have, -1: all."""
        return self.hold_depth if pool.hold_depth is None else pool.hold_depth


FAIRWAY = Policy()
