"""How much room the nodes have for a gang as workloads go, one after the other: an upper bound that costs little.

Whether a gang fits at a moment takes windows, topology and devices into account, and is tried at each moment. Where a
node is never free for it, say because of one workload without a known end, all those tries would be in vain. So room is
counted first, by podset and node; only the nodes of what goes are counted anew. Room that windows keep counts, and the
devices of a node where something went count as whole.
"""

import numpy as np

from .draft import Draft
from .model import Admission
from .place import Ask, cache_of


def first_with_room(draft: Draft, ask: Ask, pool: str, keys: list[str]) -> int:
    """The first of these workloads ("": none) with whose going each podset by itself has room; else their number."""
    cache, frees = cache_of(draft), dict[int, list[int]]()
    shapes = [cache.shape(podset.pod, pool) for podset in ask.workload.podsets]
    masks = [cache.mask(one) if ask.allowed is None else cache.mask(one) & ask.allowed for one in shapes]
    rooms = [np.where(mask, cache.room(shape), 0) for shape, mask in zip(shapes, masks)]
    missing = [count - int(room.sum()) for count, room in zip(ask.counts, rooms)]
    for at, key in enumerate(keys):
        workload, admission = draft.holder(key) if key else (ask.workload, Admission(pool, ()))
        for row, amounts in draft.holdings(workload.podsets, admission).items():
            frees[row] = free = [sum(pair) for pair in zip(frees.get(row) or draft.free[:, row].tolist(), amounts)]
            for part, (shape, mask, room) in enumerate(zip(shapes, masks, rooms)):
                if mask[row]:
                    parts = zip(shape.request.columns, shape.request.amounts)
                    pods = min(max(0, free[column]) // amount for column, amount in parts)
                    missing[part] -= pods - int(room[row])
                    room[row] = pods
        if max(missing, default=0) <= 0:
            return at
    return len(keys)
