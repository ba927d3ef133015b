"""How much room the nodes have for a gang as workloads go, one after the other: an upper bound that costs little.

Whether a gang fits at a moment takes windows, topology and devices into account, and is tried at each moment. Where a
node is never free for it, say because of one workload without a known end, all those tries would be in vain. So room is
counted first, by podset and node; only the nodes of what goes are counted anew.
"""

import numpy as np

from .draft import Draft
from .place import Ask, cache_of


class Coming:
    """What the nodes could take of each podset. Room that windows keep counts, and the devices of a node where
    something went count as whole."""

    def __init__(self, draft: Draft, ask: Ask, pool: str) -> None:
        cache, self._draft, self._free = cache_of(draft), draft, dict[int, list[int]]()
        shapes = [cache.shape(podset.pod, pool) for podset in ask.workload.podsets]
        masks = [cache.mask(one) if ask.allowed is None else cache.mask(one) & ask.allowed for one in shapes]
        rooms = [np.where(mask, cache.room(shape), 0) for shape, mask in zip(shapes, masks)]
        self._missing = [count - int(room.sum()) for count, room in zip(ask.counts, rooms)]
        self._parts = list(zip((one.request for one in shapes), masks, rooms))

    def is_enough(self) -> bool:
        """Whether each podset, by itself, has room for its pods."""
        return max(self._missing, default=0) <= 0

    def let_go(self, key: str) -> None:
        """A workload that runs or starts is gone."""
        draft, (workload, admission) = self._draft, self._draft.holder(key)
        for row, amounts in draft.holdings(workload.podsets, admission).items():
            before = self._free.get(row) or draft.free[:, row].tolist()
            self._free[row] = free = [sum(pair) for pair in zip(before, amounts)]
            for at, (request, mask, room) in enumerate(self._parts):
                if mask[row]:
                    pods = min(max(0, free[column]) // one for column, one in zip(request.columns, request.amounts))
                    self._missing[at] -= pods - int(room[row])
                    room[row] = pods
