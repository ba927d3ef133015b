"""How good each node is for a pod of a class: one array per function, higher is better, added with weights.

What packs or spreads lies within 0..2, so that what the user asked for (preferred affinity) and what an operator marked
(PreferNoSchedule), which weigh WISH, come before it. A score never makes a node feasible or infeasible. Ties are broken
by row, that is by name, where nodes are ordered. Scores of nodes that stay the same for a cycle are kept in the memo.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from .devices import tightest
from .draft import Draft
from .feasibility import Counts, Rows, Shape, Values, allowed_nodes, matches, untolerated
from .model import GPU, Preference, Toleration, Workload
from .resources import DEVICE
from .snapshot import Mask, Snapshot, of_nodes

Score = Callable[[Draft, Shape, Rows], Values]

WISH = 10.0  # what a whole preference weighs against packing
STRANDED, SOUGHT = 0.1, 0.05
"""What a node's GPUs weigh that lose their CPU, and what it weighs that a node is the only one for others."""
TIE = 1e-3  # what tells nodes apart that are equal in whole per cent
BUSY = 700  # milli of its capacity from which on a node's measured use counts as risk


class Linear(NamedTuple):
    """A score that is `base[node] + slope * free[column, node]`."""

    base: Values
    column: int
    slope: float


class Typical(NamedTuple):
    """The pods most often asked for, by which fragmentation is judged: cpu, devices, which of `sizes` (milli-GPU per
    device, 0: none) they take of each, nodes open to them [pod, node], how frequent they are, 1 in all, 0
    for those without GPUs. `sought`: what is asked of each node's GPUs by pods that cannot use all, 1: by all."""

    cpu: Counts
    devices: Counts
    size: Rows
    sizes: Counts
    open: Mask
    frequency: Values
    sought: Values


def strategy_of(workload: Workload, asked: str, pool: str) -> str:
    """The policy's own, else the pool's; inference is spread where the pool does not say more than the default."""
    if asked or pool != "Binpack":
        return asked or pool
    return "Spread" if workload.kind == "Inference" else pool


def linear(snapshot: Snapshot, shape: Shape, sign: float) -> Linear:
    """Packing (-1) or spreading (+1) by the resource that matters: GPUs, else the first accelerator asked for, else
    CPU, and then nodes without GPUs first."""
    column, base = shape.request.packed, wishes(snapshot, shape.pod.preferences, shape.pod.tolerations)
    if column == 0:
        base = base + bare(snapshot)
    return Linear(base, column, sign / (largest(snapshot, column) + 1))


@of_nodes
def largest(snapshot: Snapshot, column: int) -> int:
    """The most of a resource that one node has."""
    return int(snapshot.capacity[column].max(initial=0))


def total(score: Score, draft: Draft, shape: Shape, rows: Rows) -> Values:
    """The score with wishes."""
    return wishes(draft.snapshot, shape.pod.preferences, shape.pod.tolerations)[rows] + score(draft, shape, rows)


def slope(sign: float, draft: Draft, shape: Shape, rows: Rows) -> Values:
    """-1: the fewest free GPUs first; without GPUs nodes that have none, then the least CPU. 1: the most free first.
    For a fraction the shared device with the least room that fits comes first."""
    column = shape.request.packed
    values: Values = sign / (largest(draft.snapshot, column) + 1) * draft.free[column, rows]
    if shape.request.share:
        room = tightest(draft, shape.request, rows)
        return np.where(room < DEVICE, 2 - room / DEVICE, values)
    return values if column else bare(draft.snapshot)[rows] + values


def typical_of(snapshot: Snapshot, shapes: Iterable[Shape]) -> Typical:
    """The most frequent kinds, until they are 95 % of all."""
    first: dict[object, Shape] = {}
    seen: Counter[object] = Counter()
    for shape in shapes:
        pod, request = shape.pod, shape.request
        key: object = request.of(0), request.devices, request.share, pod.node_selector, pod.affinity
        first.setdefault(key, shape)
        seen[key] += 1
    common, left = list[tuple[Shape, int]](), 0.95 * seen.total()
    for key, count in seen.most_common():
        if left > 0:
            common.append((first[key], count))
        left -= count
    frequency = np.array([count for _, count in common], np.float64)
    frequency /= max(frequency.sum(), 1)
    requests = [shape.request for shape, _ in common]
    devices = np.array([max(request.devices, 1) for request in requests], np.int64)
    milli = np.array([request.share or DEVICE * (request.devices > 0) for request in requests], np.int64)
    sizes, size = np.unique(milli, return_inverse=True)
    masks = np.array([allowed_nodes(snapshot, shape.pod, shape.pool) for shape, _ in common], np.bool_)
    open_to = masks.reshape(len(common), len(snapshot.nodes))
    cpu = np.array([request.of(0) for request in requests], np.int64)
    sought = _sought(snapshot, open_to, frequency * devices * milli)
    return Typical(cpu, devices, size, sizes, open_to, np.where(milli > 0, frequency, 0), sought)


def _sought(snapshot: Snapshot, open_to: Mask, asked: Values) -> Values:
    """What pods that may not use every GPU ask for, spread over those they may; 1: what all ask for, over all."""
    gpus = snapshot.capacity[3].astype(np.float64)
    room = open_to @ gpus
    few = np.where(room < gpus.sum(), asked, 0) / np.maximum(room, 1)
    sought: Values = few @ open_to * gpus.sum() / max(asked.sum(), 1)
    return sought


def less_fragmented(typical: Typical, draft: Draft, shape: Shape, rows: Rows) -> Values:
    """FGD: how little of the node's free GPUs the pod would make useless for typical pods, in whole per cent. That
    small differences are ties matters: without, openb packs 0.5 points worse. Of nodes that are equal for a pod without
    GPUs the one with the least left, where the paper takes the first by name."""
    scores, takes_gpus = _percent(_kept(typical, draft, shape, rows)), shape.request.devices or shape.request.share
    return scores if takes_gpus else scores + TIE * best_fit(draft, shape, rows)


def kept_useful(typical: Typical, draft: Draft, shape: Shape, rows: Rows) -> Values:
    """FGD's, less what the pod strands, the part of the node's free GPUs beyond the part of its CPU that is free, and
    less what is sought there by others that cannot go elsewhere; in whole per cent."""
    request, both = shape.request, np.ix_([0, 3], rows.tolist())
    free, whole = draft.free[both], np.maximum(draft.snapshot.capacity[both], 1)
    after, before = (free - np.array([[request.of(0)], [request.of(3)]], np.int64)) / whole, free / whole
    stranded = np.maximum(after[1] - after[0], 0) - np.maximum(before[1] - before[0], 0)
    sought = typical.sought[rows] * bool(request.devices or request.share)  # pods without GPUs take none of it
    return _percent(_kept(typical, draft, shape, rows) - STRANDED * stranded - SOUGHT * sought)


def _percent(values: Values) -> Values:
    """Whole per cent, what a sum is off by forgiven."""
    whole: Values = np.floor(100 * values + 1e-9) / 100
    return whole


def _kept(typical: Typical, draft: Draft, shape: Shape, rows: Rows) -> Values:
    """FGD's gradient, in 0..1. A fraction takes the device with the least room that fits: to try each is no better."""
    cpu, devices, size = draft.free[0, rows], _devices(draft, rows), shape.request.share
    if size:
        least = np.argmin(np.where(devices >= size, devices, 2 * DEVICE), axis=1)
        after = devices.copy()
        after[np.arange(len(rows)), least] -= size
    else:
        whole = devices == DEVICE
        after = np.where(whole & (np.cumsum(whole, axis=1) <= shape.request.devices), 0, devices)
    left, open_to = cpu - shape.request.of(0), typical.open[:, rows]
    more = (_fragments(typical, after, left, open_to) - _fragments(typical, devices, cpu, open_to)) / DEVICE
    score: Values = 1 / (1 + np.exp(more))
    return score


def _fragments(typical: Typical, devices: Counts, cpu: Counts, open_to: Mask) -> Values:
    """Milli-GPU of each node that a typical pod could not use, on average [FGD]."""
    fits = typical.sizes[:, None, None] <= devices.T
    enough = fits.sum(axis=1, dtype=np.int16)[typical.size] >= typical.devices[:, None]
    useful = (fits * devices.T).sum(axis=1)[typical.size]
    used = np.where(enough & (cpu >= typical.cpu[:, None]) & open_to, useful, 0)
    lost: Values = devices.sum(axis=1) - typical.frequency @ used
    return lost


def _devices(draft: Draft, rows: Rows) -> Counts:
    """Milli-GPU free in each device; where only counts are known, as many whole ones as are free."""
    told, most = draft.device_free[rows], largest(draft.snapshot, 3) // DEVICE
    devices = np.zeros((len(rows), max(most, told.shape[1])), np.int64)
    devices[:, : told.shape[1]] = np.maximum(told, 0)
    counted = (told < 0).all(axis=1)
    free = draft.free[3, rows[counted]] // DEVICE
    devices[counted] = DEVICE * (np.arange(devices.shape[1]) < free[:, None])
    return devices


def best_fit(draft: Draft, shape: Shape, rows: Rows) -> Values:
    """The least left of CPU and GPU together, each as a part of the largest node's."""
    left = np.zeros(len(rows))
    for column in (0, 3):
        left += draft.free[column, rows] / (2.0 * max(largest(draft.snapshot, column), 1))
    return 1 - left


@of_nodes
def bare(snapshot: Snapshot) -> Values:
    """1 for nodes without GPUs, 0 for the others."""
    rows = [row for row, name in enumerate(snapshot.resources) if name == GPU or "/mig-" in name or "/gpu" in name]
    none: Values = (snapshot.capacity[rows].sum(axis=0) == 0).astype(np.float64)
    return none


@of_nodes
def wishes(snapshot: Snapshot, preferences: tuple[Preference, ...], tolerations: tuple[Toleration, ...]) -> Values:
    """What matters whatever the strategy: the part of preferred node affinity that holds, less for each taint of
    PreferNoSchedule that is not tolerated, and measured load."""
    preferred = np.zeros(len(snapshot.nodes))
    for wish in preferences:
        preferred += wish.weight * matches(snapshot, (wish.term,))
    preferred /= max(sum(wish.weight for wish in preferences), 1)
    unmarked = 1 / (1.0 + untolerated(snapshot, tolerations, ("PreferNoSchedule",))) - 1
    wished: Values = WISH * (preferred + unmarked) + _calm(snapshot)
    return wished


@of_nodes
def _calm(snapshot: Snapshot) -> Values:
    """0 where measured use is low, falling to -1 from BUSY on with the busiest resource [Trimaran]."""
    worst = np.array([max([use for _, use in one.load]) if one.load else 0 for one in snapshot.nodes], np.float64)
    return -np.clip((worst - BUSY) / (1000 - BUSY), 0, 1)
