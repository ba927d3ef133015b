"""The world at one moment, read-only: tuples of values and the arrays made from them.

Rows of nodes are in the order of their names, so that a tie broken by row is broken by name. Columns of resources are
those of `resources`, with cpu, memory, pods and nvidia.com/gpu first. `free` is capacity less what runs, is promised
or is leaving, here and by pods of others; where a pod's devices are not known only the node's sum is charged.
`memo` keeps what was computed once and may be asked for again; it never changes an answer. A snapshot's lasts as long
as the nodes and pools stay as they are, a draft's and a cycle's as long as these. Each module keeps its own part, a
class of its own: `memo.of(Trees)` returns the one `Trees` of this memo and makes it when it is first asked for.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from math import inf
from operator import attrgetter
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from .model import GPU, Disruption, Ended, Node, Pod, Pool, Queue, Reservation, Running, Workload

TURN = attrgetter("submitted", "key")  # the order of what waits
Columns = NDArray[np.int64]
Mask = NDArray[np.bool_]
MOST_KEPT = 256  # arrays over all nodes that are kept of one sort
SPARE = 1 << 10  # workloads that are gone and still remembered
Key = TypeVar("Key")
Value = TypeVar("Value")
Made = TypeVar("Made")
Given = ParamSpec("Given")


class ByWorkload(dict[Key, Value]):
    """A part kept by the identity of workloads; each value holds its workload, so that no identity is used again."""


class Numbers(ByWorkload[object, int]):
    """From 1 on, by what is alike."""

    def __missing__(self, key: object) -> int:
        self[key] = number = len(self) + 1
        return number


class Memo:
    def __init__(self) -> None:
        self._parts: dict[object, object] = {}
        self.tables: defaultdict[object, dict[object, object]] = defaultdict(dict)  # by function: results by arguments

    def of(self, part: Callable[Given, Made], *args: Given.args, **kwargs: Given.kwargs) -> Made:
        """The part of this class; made with the arguments at the first call."""
        found = self._parts.get(part)
        if found is None:
            found = self._parts[part] = part(*args, **kwargs)
        return cast(Made, found)

    def forget_workloads(self, *, most: int) -> None:
        """Forgets what is kept by the identity of workloads where there is much more of it than there are workloads."""
        parts = [part for part in self._parts.values() if isinstance(part, ByWorkload)]
        if max(map(len, parts), default=0) > most + SPARE:
            for part in parts:
                part.clear()


def remember(kept: dict[Key, Value], key: Key, value: Value) -> Value:
    """Keep a value; of too many the oldest goes."""
    if len(kept) >= MOST_KEPT and key not in kept:
        del kept[next(iter(kept))]
    kept[key] = value
    return value


class Tally(NamedTuple):
    """Running workloads that quotas count alike: one, its pool and pods by podset (once moved, if it is), how many."""

    workload: Workload
    pool: str
    counts: tuple[int, ...]
    times: int


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """`capacity`, `free`, `outside`: int64[resource, node], base units; `outside` is what pods of others hold.
    `device_free`: int64[node, device slot], milli-GPU free in each device, -1 where there is none or others choose it;
    slot i is `nodes[row].devices[i]`. `pool_of`: int32[node], row of `pools`, -1 outside all. `is_usable`: ready,
    schedulable, not draining, not leaving. `gpu_memory`: bytes of the smallest GPU of each pool, 0 if unknown.
    `tallies`: what `running` holds, alike ones together. `is_social`: some pod looks at the pods beside it (affinity,
    spread, host ports). `alters_at`: when, by time alone, a policy's view of it becomes another."""

    now: float
    resources: tuple[str, ...]
    nodes: tuple[Node, ...]
    row_of: Mapping[str, int]
    capacity: Columns
    free: Columns
    outside: Columns
    device_free: Columns
    pool_of: NDArray[np.int32]
    is_usable: Mask
    pools: tuple[Pool, ...]
    gpu_memory: tuple[int, ...]
    queues: Mapping[str, Queue]
    pending: tuple[Workload, ...]
    running: tuple[Running, ...]
    tallies: tuple[Tally, ...]
    pods: tuple[Pod, ...]
    reservations: tuple[Reservation, ...]
    disruptions: tuple[Disruption, ...]
    ended: Mapping[str, Ended]
    is_social: bool
    memo: Memo
    alters_at: float = inf

    @property
    def memories(self) -> dict[str, int]:
        """`gpu_memory` by the name of the pool."""
        return {pool.name: size for pool, size in zip(self.pools, self.gpu_memory)}


def of_nodes(make: Callable[Concatenate[Snapshot, Given], Made]) -> Callable[Concatenate[Snapshot, Given], Made]:
    """Computed once while nodes and pools stay; arguments are hashable and by place, a returned array read-only."""

    @wraps(make)
    def kept(snapshot: Snapshot, /, *args: Given.args, **kwargs: Given.kwargs) -> Made:
        assert not kwargs, "kept by place alone"
        known = snapshot.memo.tables[make]
        if args not in known:
            remember(known, args, made := make(snapshot, *args, **kwargs))
            if isinstance(made, np.ndarray):
                made.flags.writeable = False
        return cast(Made, known[args])

    return kept


def largest_node(snapshot: Snapshot) -> int:
    """Milli-GPU of the node that has most."""
    return int(snapshot.capacity[snapshot.resources.index(GPU)].max(initial=0))
