"""Choose nodes for a gang: all of it or none."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .fit import count_room, feasible, need_of
from .model import Admission, NodeShare, PodSetPlacement, Workload
from .snapshot import Mask

if TYPE_CHECKING:
    from .draft import Draft


@dataclass(frozen=True, slots=True)
class Ask:
    """So many pods of each podset of a workload, on allowed nodes, beside what already stands."""

    workload: Workload
    counts: tuple[int, ...]
    allowed: Mask | None = None
    beside: Admission | None = None


def place(draft: "Draft", ask: Ask, pool: str) -> tuple[PodSetPlacement, ...] | None:
    """First fit in the order of names."""
    free, placements = draft.free.copy(), []
    for podset, count in zip(ask.workload.podsets, ask.counts):
        need, shares = need_of(draft.snapshot, podset.pod, pool), []
        room = np.where(feasible(draft.snapshot, podset.pod, pool), count_room(draft, need, slice(None)), 0)
        for column, amount in zip(need.columns, need.amounts):
            room = np.minimum(room, np.maximum(free[column], 0) // amount)
        for row in np.flatnonzero(room):
            take = min(count, int(room[row]))
            if take:
                shares.append(NodeShare(draft.snapshot.nodes[row].name, take))
                free[list(need.columns), row] -= np.array(need.amounts) * take
                count -= take
        if count:
            return None
        placements.append(PodSetPlacement(podset.name, tuple(shares)))
    return tuple(placements)
