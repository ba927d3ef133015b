"""Which nodes could take a pod of a class.

Labels are interned by key into int32 columns, so a selector is a few array operations whatever the number of nodes.
What depends on nodes and pools alone is kept in the snapshot's memo across cycles. Nothing here looks at room, at
scores, at topology, or at the pods that stand beside (affinity).
"""

from collections.abc import Iterable
from dataclasses import replace
from types import EllipsisType
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from .labels import CLUSTER, CORDON, NAME, NOT_READY, holds, implied, tolerates
from .model import GPU, Expression, Node, PodClass, Selector, Taint, Term, Toleration
from .resources import DEVICE, shared, taken
from .snapshot import ByWorkload, Mask, Snapshot, of_nodes

Counts = NDArray[np.int64]
Values = NDArray[np.float64]
ByNode = TypeVar("ByNode", NDArray[np.int64], NDArray[np.float64])
Rows = NDArray[np.intp]
Where = Rows | EllipsisType  # some rows, or all
Piece = tuple[int, int]  # a row, or index, and how many pods go there
PLENTY = 1 << 40  # more pods than any workload asks for


class Request(NamedTuple):
    """What a pod of a class takes in a pool. `needs`: rows of `free`, and of each how much, pod slot included; whole
    devices, or milli-GPU of a shared one. `packed`: the row that packing looks at, and `size` the amount of it.
    `is_known`: all it asks for has a row."""

    needs: tuple[tuple[int, int], ...]
    devices: int
    share: int
    packed: int
    size: int
    is_known: bool

    def of(self, column: int) -> int:
        """What it takes of the resource in a row of `free`."""
        return dict(self.needs).get(column, 0)


class Shape(NamedTuple):
    """Pods alike, in a pool."""

    pod: PodClass
    request: Request
    pool: str


class Shapes(ByWorkload[tuple[int, str], Shape]):
    """By the identity of the class, which the shape keeps from being used again, and by pool; kept with the nodes."""


class Labels(NamedTuple):
    """One label key over all nodes: the code of each node's value, -1 without; codes are in the order of `values`."""

    codes: NDArray[np.int32]
    values: tuple[str, ...]


@of_nodes
def has_groups(snapshot: Snapshot) -> bool:
    """Whether some node tells what its NUMA groups offer."""
    return any(node.numa for node in snapshot.nodes)


@of_nodes
def labels_of(snapshot: Snapshot, key: str) -> Labels:
    found = [_value(node, key) for node in snapshot.nodes]
    values = sorted({value for value in found if value is not None})
    code_of: dict[str | None, int] = {value: code for code, value in enumerate(values)}
    return Labels(np.array([code_of.get(value, -1) for value in found], np.int32), tuple(values))


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


@of_nodes
def selected(snapshot: Snapshot, labels: tuple[tuple[str, str], ...], affinity: tuple[Term, ...]) -> Mask:
    """Nodes that a pod's selector and its required affinity allow."""
    mask = satisfies(snapshot, tuple(Expression(name, "In", (value,)) for name, value in labels))
    return mask & matches(snapshot, affinity) if affinity else mask


@of_nodes
def reached(snapshot: Snapshot, volumes: tuple[tuple[Term, ...], ...]) -> Mask:
    """Nodes that all of these volumes reach."""
    mask = np.ones(len(snapshot.nodes), np.bool_)
    for terms in volumes:
        mask &= matches(snapshot, terms)
    return mask


@of_nodes
def taints_of(snapshot: Snapshot) -> tuple[NDArray[np.int32], tuple[tuple[Taint, ...], ...]]:
    """int32[node]: which of the lists of taints each node has; and these lists."""
    code_of: dict[tuple[Taint, ...], int] = {}
    codes = [code_of.setdefault(node.taints, len(code_of)) for node in snapshot.nodes]
    return np.array(codes, np.int32), tuple(code_of)


def untolerated(snapshot: Snapshot, tolerations: tuple[Toleration, ...], effects: tuple[str, ...]) -> Counts:
    """How many taints of these effects each node has that are not tolerated."""
    codes_of, lists = taints_of(snapshot)
    counts = [sum(one.effect in effects and not tolerates(tolerations, one) for one in taints) for taints in lists]
    found: Counts = np.array(counts or [0], np.int64)[codes_of]
    return found


@of_nodes
def tolerated(snapshot: Snapshot, tolerations: tuple[Toleration, ...]) -> Mask:
    """Nodes without a NoSchedule or NoExecute taint that is not tolerated."""
    mask: Mask = untolerated(snapshot, tolerations, ("NoSchedule", "NoExecute")) == 0
    return mask


def usable(snapshot: Snapshot, pod: PodClass) -> Mask:
    """Nodes in use, and those that only a cordon or NotReady keeps out of use where the pod tolerates it."""
    return _without(snapshot, frozenset(one for one in (CORDON, NOT_READY) if not tolerates(pod.tolerations, one)))


@of_nodes
def _without(snapshot: Snapshot, refused: frozenset[Taint]) -> Mask:
    """Nodes in use, and those that are up and whose state amounts to none of these taints."""
    mask = snapshot.is_usable.copy()
    for row in np.flatnonzero(~mask).tolist():
        mask[row] = snapshot.nodes[row].is_up and refused.isdisjoint(implied(snapshot.nodes[row]))
    return mask


def pool_row(snapshot: Snapshot, pool: str) -> int:
    """The row of a pool, -2 if there is none of that name."""
    return next((row for row, one in enumerate(snapshot.pools) if one.name == pool), -2)


def allowed_nodes(snapshot: Snapshot, pod: PodClass, pool: str) -> Mask:
    """Nodes of the pool that the pod's constraints allow, ready or not, full or not."""
    mask: Mask = snapshot.pool_of == pool_row(snapshot, pool)
    mask &= selected(snapshot, pod.node_selector, pod.affinity) & reached(snapshot, pod.volumes)
    return mask & tolerated(snapshot, pod.tolerations)


def open_nodes(snapshot: Snapshot, pod: PodClass, pool: str) -> Mask:
    """Allowed nodes that are in use; a cordon and NotReady are taints, which a pod may tolerate."""
    return allowed_nodes(snapshot, pod, pool) & usable(snapshot, pod)


def feasible(snapshot: Snapshot, pod: PodClass, pool: str) -> Mask:
    """Nodes that could take the pod if they were empty: open to it and large enough."""
    mask = open_nodes(snapshot, pod, pool)
    request = request_of(snapshot, pod, pool)
    for column, amount in request.needs:
        mask &= snapshot.capacity[column] >= amount
    return mask if request.is_known else np.zeros_like(mask)


def request_of(snapshot: Snapshot, pod: PodClass, pool: str) -> Request:
    row = pool_row(snapshot, pool)
    memory = snapshot.gpu_memory[row] if row >= 0 else 0
    takes = {name: amount for name, amount in taken(pod, memory).items() if amount > 0}
    share = shared(pod, memory)
    known = [name for name in takes if name in snapshot.resources]
    is_known = len(known) == len(takes) and share <= DEVICE and not (pod.gpu_memory and not memory)
    needs = tuple((snapshot.resources.index(name), takes[name]) for name in known)
    whole = 0 if share else takes.get(GPU, 0) // DEVICE
    accelerators = sorted(column for column, _ in needs if "/" in snapshot.resources[column])
    packed = accelerators[0] if accelerators else 0
    size = takes.get(snapshot.resources[packed], 0)
    return Request(needs, whole, share, packed, size, is_known)


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
