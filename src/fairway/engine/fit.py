"""Which nodes could take a pod of a class, and how many pods each could take now.

Labels are interned by key into int32 columns, so a selector is a few array operations whatever the number of nodes.
What depends on nodes and pools alone is kept in the Memo across cycles; State makes a new one when a node or a pool
changes. Room is whole pods: the least over the resources of free // request, and what the devices allow.
Nothing here looks at scores, at topology, or at the pods that stand beside (affinity).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import EllipsisType
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .labels import CLUSTER, CORDON, NAME, NOT_READY, holds, implied, tolerates
from .model import GPU, Admission, Expression, Node, PodClass, Running, Selector, Sketch, Taint, Term, Workload
from .resources import DEVICE, shared, taken
from .snapshot import Columns, Mask, Snapshot

if TYPE_CHECKING:
    from .draft import Draft
    from .plan import Obstacle, Wait, Why
    from .presets import Rated
    from .quota import Demand
    from .sketch import Kin, Lengths
    from .topology import Tree

Counts = NDArray[np.int64]
Rows = NDArray[np.intp]
Where = Rows | EllipsisType
"""Some rows, or all."""
Piece = tuple[int, int]
"""A row, or index, and how many pods go there."""
MOST_KEPT = 256
"""Arrays over all nodes that are kept of one sort."""
SPARE = 1 << 10
"""Workloads that are gone and still remembered."""
Alike = dict[int, tuple[Workload, int, bool]]
Key = TypeVar("Key")
Value = TypeVar("Value")
PLENTY = 1 << 40
"""More pods than anybody asks for."""


class Ground(Protocol):
    """Where pods are put: a Draft, or the scratch copy that one gang is placed on. `groups`: what pods hold of a node's
    NUMA group, by row and group."""

    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def free(self) -> Columns: ...
    @property
    def device_free(self) -> Columns: ...
    @property
    def groups(self) -> Mapping[tuple[int, int], Mapping[str, int]]: ...


class Need(NamedTuple):
    """What a pod of a class takes in a pool: rows of `free` and amounts, its pod slot included; whole devices, or
    milli-GPU of a shared one. `packed`: the row that packing looks at, and `size` the amount of it. `is_known`: all it
    asks for has a row."""

    columns: tuple[int, ...]
    amounts: tuple[int, ...]
    devices: int
    share: int
    packed: int
    size: int
    is_known: bool


class Kind(NamedTuple):
    """Pods alike, in a pool."""

    pod: PodClass
    need: Need
    pool: str


class Labels(NamedTuple):
    """One label key over all nodes: the code of each node's value, -1 without; codes are in the order of `values`."""

    codes: NDArray[np.int32]
    values: tuple[str, ...]


class Memo:
    """What was found out about the nodes and pools of one layout; it never changes an answer."""

    def __init__(self) -> None:
        self.labels: dict[str, Labels] = {}
        self.masks: dict[object, Mask] = {}
        self.values: dict[object, NDArray[np.float64]] = {}
        self.largest: dict[int, int] = {}
        self._has_groups: bool | None = None
        self.trees: dict[str, Tree] = {}
        self.emptied: tuple[object, Draft] | None = None  # these nodes with nothing on them
        self.fitting: dict[object, tuple[object, bool]] = {}  # of such nodes, by what is asked: whether it fits
        self.told: dict[object, tuple[object, Why]] = {}  # and why not now, where nobody reads figures
        self.ruled_out: dict[object, tuple[int, Mask, tuple[Obstacle, ...]]] = {}  # nodes, those left, what lasts
        self.waiting: dict[int, Rated[Workload]] = {}  # as a policy's view last saw them, by identity
        self.standing: dict[int, Rated[Running]] = {}
        self.lengths: dict[int, tuple[Sketch, Lengths]] = {}  # of what was learned, by identity
        self.kin: dict[int, tuple[Workload, Kin, int]] = {}  # by identity
        self.alike: tuple[Alike, Alike] = {}, {}  # likenesses of workloads by identity, without and with their names
        self.likenesses: dict[tuple[object, ...], int] = {}  # and their numbers
        self.asked: dict[str, Wait] = {}  # by workload, what was found out of those that were asked for last time
        self.offered: dict[object, dict[str, Demand]] = {}  # what usable nodes have, by pool
        self.sound: dict[int, tuple[Admission, bool]] = {}  # whether all nodes are in use, by identity
        self.taints: tuple[NDArray[np.int32], tuple[tuple[Taint, ...], ...]] | None = None

    def forget_workloads(self, *, most: int) -> None:
        """Forgets what is kept by the identity of workloads where there is much more of it than there are workloads:
        what is kept by identity keeps what it is of."""
        if max(len(self.kin), len(self.sound), *map(len, self.alike)) > most + SPARE:
            self.kin.clear()
            self.sound.clear()
            self.likenesses.clear()
            for kept in self.alike:
                kept.clear()

    def has_groups(self, snapshot: Snapshot) -> bool:
        """Whether some node tells what its NUMA groups offer."""
        if self._has_groups is None:
            self._has_groups = any(node.numa for node in snapshot.nodes)
        return self._has_groups

    def keep(self, key: object, mask: Mask) -> Mask:
        """Remember a mask, which nobody may write any more."""
        mask.flags.writeable = False
        return remember(self.masks, key, mask)


def remember(kept: dict[Key, Value], key: Key, value: Value, most: int = MOST_KEPT) -> Value:
    """Keep a value; of too many the oldest goes."""
    if len(kept) >= most and key not in kept:
        del kept[next(iter(kept))]
    kept[key] = value
    return value


def labels_of(snapshot: Snapshot, key: str) -> Labels:
    memo = snapshot.memo
    if key not in memo.labels:
        found = [_value(node, key) for node in snapshot.nodes]
        values = sorted({value for value in found if value is not None})
        code_of: dict[str | None, int] = {value: code for code, value in enumerate(values)}
        codes = np.array([code_of.get(value, -1) for value in found], np.int32)
        memo.labels[key] = Labels(codes, tuple(values))
    return memo.labels[key]


def _value(node: Node, key: str) -> str | None:
    return {NAME: node.name, CLUSTER: ""}[key] if key in (NAME, CLUSTER) else dict(node.labels).get(key)


def satisfies(snapshot: Snapshot, selector: Selector) -> Mask:
    """Where every expression holds."""
    mask = np.ones(len(snapshot.nodes), np.bool_)
    for one in selector:
        codes, values = labels_of(snapshot, one.key)
        mask &= np.array([holds(one, value) for value in (*values, None)], np.bool_)[codes]  # -1 is the last: None
    return mask


def matches(snapshot: Snapshot, terms: Iterable[Term]) -> Mask:
    """Where one of the terms holds; a term with neither expressions nor fields matches nothing."""
    mask = np.zeros(len(snapshot.nodes), np.bool_)
    for term in terms:
        if term.expressions or term.fields:
            fields = tuple(replace(one, key=NAME) for one in term.fields)
            mask |= satisfies(snapshot, term.expressions + fields)
    return mask


def selected(snapshot: Snapshot, pod: PodClass) -> Mask:
    """Nodes that the pod's selector and its required affinity allow."""
    key = ("selected", pod.node_selector, pod.affinity)
    if (mask := snapshot.memo.masks.get(key)) is not None:
        return mask
    mask = satisfies(snapshot, tuple(Expression(name, "In", (value,)) for name, value in pod.node_selector))
    return snapshot.memo.keep(key, mask & matches(snapshot, pod.affinity) if pod.affinity else mask)


def reached(snapshot: Snapshot, pod: PodClass) -> Mask:
    """Nodes that all volumes of the pod reach."""
    key = ("reached", pod.volumes)
    if (mask := snapshot.memo.masks.get(key)) is not None:
        return mask
    mask = np.ones(len(snapshot.nodes), np.bool_)
    for terms in pod.volumes:
        mask = mask & matches(snapshot, terms)
    return snapshot.memo.keep(key, mask)


def taints_of(snapshot: Snapshot) -> tuple[NDArray[np.int32], tuple[tuple[Taint, ...], ...]]:
    """int32[node]: which of the lists of taints each node has; and these lists."""
    memo = snapshot.memo
    if memo.taints is None:
        code_of: dict[tuple[Taint, ...], int] = {}
        codes = [code_of.setdefault(node.taints, len(code_of)) for node in snapshot.nodes]
        memo.taints = np.array(codes, np.int32), tuple(code_of)
    return memo.taints


def untolerated(snapshot: Snapshot, pod: PodClass, effects: tuple[str, ...]) -> Counts:
    """How many taints of these effects each node has that the pod does not tolerate."""
    codes_of, kinds = taints_of(snapshot)
    counts = [sum(one.effect in effects and not tolerates(pod.tolerations, one) for one in kind) for kind in kinds]
    found: Counts = np.array(counts or [0], np.int64)[codes_of]
    return found


def tolerated(snapshot: Snapshot, pod: PodClass) -> Mask:
    """Nodes without a NoSchedule or NoExecute taint that the pod does not tolerate."""
    key = ("tolerated", pod.tolerations)
    if (mask := snapshot.memo.masks.get(key)) is not None:
        return mask
    return snapshot.memo.keep(key, untolerated(snapshot, pod, ("NoSchedule", "NoExecute")) == 0)


def usable(snapshot: Snapshot, pod: PodClass) -> Mask:
    """Nodes in use, and those that only a cordon or NotReady keeps out of use where the pod tolerates it."""
    refused = {one for one in (CORDON, NOT_READY) if not tolerates(pod.tolerations, one)}
    key = ("usable", *sorted(one.key for one in refused))
    if (mask := snapshot.memo.masks.get(key)) is None:
        is_up = (one.is_up and refused.isdisjoint(implied(one)) for one in snapshot.nodes)
        mask = snapshot.memo.keep(key, np.fromiter(is_up, np.bool_))
    return snapshot.is_usable | mask


def pool_row(snapshot: Snapshot, pool: str) -> int:
    """The row of a pool, -2 if there is none of that name."""
    return next((row for row, one in enumerate(snapshot.pools) if one.name == pool), -2)


def allowed_nodes(snapshot: Snapshot, pod: PodClass, pool: str) -> Mask:
    """Nodes of the pool that the pod's constraints allow, ready or not, full or not."""
    mask: Mask = selected(snapshot, pod) & reached(snapshot, pod) & tolerated(snapshot, pod)
    mask &= snapshot.pool_of == pool_row(snapshot, pool)
    return mask


def open_nodes(snapshot: Snapshot, pod: PodClass, pool: str) -> Mask:
    """Allowed nodes that are in use; a cordon and NotReady are taints, which a pod may tolerate."""
    return allowed_nodes(snapshot, pod, pool) & usable(snapshot, pod)


def feasible(snapshot: Snapshot, pod: PodClass, pool: str) -> Mask:
    """Nodes that could take the pod if they were empty: open to it and large enough."""
    mask = open_nodes(snapshot, pod, pool)
    need = need_of(snapshot, pod, pool)
    for column, amount in zip(need.columns, need.amounts):
        mask &= snapshot.capacity[column] >= amount
    return mask if need.is_known else np.zeros_like(mask)


def need_of(snapshot: Snapshot, pod: PodClass, pool: str) -> Need:
    row = pool_row(snapshot, pool)
    memory = snapshot.gpu_memory[row] if row >= 0 else 0
    takes = {name: amount for name, amount in taken(pod, memory).items() if amount > 0}
    share = shared(pod, memory)
    known = [name for name in takes if name in snapshot.resources]
    is_known = len(known) == len(takes) and share <= DEVICE and not (pod.gpu_memory and not memory)
    columns = tuple(snapshot.resources.index(name) for name in known)
    whole = 0 if share else takes.get(GPU, 0) // DEVICE
    accelerators = sorted(column for column in columns if "/" in snapshot.resources[column])
    packed = accelerators[0] if accelerators else 0
    size = takes.get(snapshot.resources[packed], 0)
    return Need(columns, tuple(takes[name] for name in known), whole, share, packed, size, is_known)


def count_room(ground: Ground, need: Need, rows: Where) -> Counts:
    """Pods that the free amounts of these nodes allow, devices apart."""
    room: Counts | None = None
    for column, amount in zip(need.columns, need.amounts):
        pods = ground.free[column, rows] // amount
        room = pods if room is None else np.minimum(room, pods)
    if room is None or not need.is_known:
        return np.zeros_like(ground.free[0, rows])
    return np.maximum(room, 0)


def chooses(node: Node) -> bool:
    """Whether devices of this node are told apart here."""
    return node.chooser != "Kubelet" and bool(node.devices)


def pick(rooms: Counts, count: int, order: Rows) -> list[Piece]:
    """Which of these hold so many: the first in order that holds all, else the largest and, for the last part, again
    the first in order that holds it. Indices ascend."""
    fits = order[rooms[order] >= count]
    if len(fits):
        return [(int(fits[0]), count)]
    largest = order[np.argsort(-rooms[order], kind="stable")]
    full = int(np.searchsorted(np.cumsum(rooms[largest]), count))
    chosen = [(int(child), int(rooms[child])) for child in largest[:full]]
    if left := count - sum(part for _, part in chosen):
        rooms = rooms.copy()
        rooms[largest[:full]] = 0
        others = order[rooms[order] >= left]
        chosen.append((int(others[0]), left))
    return sorted(chosen)
