"""Where a pod may stand for the pods beside it: (anti-)affinity, topology spread, host ports, as Kubernetes has them.

Pods that stand are counted by class, int64[node] each: pods of a class are alike, so a term is matched once a class. A
topology key divides the nodes that carry its label by value; a node without it is in no domain. What is required makes
a mask, what is preferred values of 0..1. An existing pod's required anti-affinity binds the newcomer as well, and so do
its preferences. A class with terms of its own changes the answer with each of its pods: it is placed pod by pod.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain

import numpy as np

from .feasibility import Counts, Shape, Values, labels_of, pool_row, selected, tolerated
from .labels import CLUSTER, NAME, clash, means, required, selects
from .model import PodAffinity, PodClass, Spread
from .snapshot import Mask, Snapshot

Standing = Mapping[PodClass, Counts]


def looks_beside(pod: PodClass) -> bool:
    """Whether each pod of the class changes where the next may stand."""
    return bool(pod.pod_affinity or pod.spread or pod.exclusive)


def is_drawn(pod: PodClass, standing: Standing) -> bool:
    """Whether a pod that stands would like it near, or far."""
    return any(_drawing(other, pod) for other in standing)


def _drawing(other: PodClass, pod: PodClass) -> list[PodAffinity]:
    """The terms by which a pod that stands would like it near, or far."""
    terms = (term for term in other.pod_affinity if term.weight is not None or not term.anti)
    return [term for term in terms if means(term, other, pod)]


def bound_to_itself(pod: PodClass) -> list[str]:
    """Topology keys of required affinity that means the pod's own kind: such pods stand in one domain."""
    return [term.topology_key for term in required(pod, anti=False) if means(term, pod, pod)]


def admits(snapshot: Snapshot, standing: Standing, shape: Shape, leaving: Standing) -> Mask:
    """Nodes where no required term forbids the pod, nor a hard spread, which does not count those that are leaving."""
    mask = bears(snapshot, standing, shape.pod)
    for _, skewed in skews(snapshot, standing, shape, leaving):
        mask &= ~skewed
    return mask


def skews(snapshot: Snapshot, standing: Standing, shape: Shape, leaving: Standing) -> Iterator[tuple[Spread, Mask]]:
    """The nodes that each hard spread rules out; the pods that are leaving do not count."""
    for spread in shape.pod.spread:
        if spread.hard:
            counts = _spread_over(standing, shape.pod, spread) - _spread_over(leaving, shape.pod, spread)
            yield spread, ~_level(snapshot, counts, shape, spread)


def bears(snapshot: Snapshot, standing: Standing, pod: PodClass) -> Mask:
    """Nodes where no required term forbids the pod; unlike with a spread, more of its kind do not open others."""
    return apart(snapshot, standing, pod) & near(snapshot, standing, pod)


def apart(snapshot: Snapshot, standing: Standing, pod: PodClass) -> Mask:
    """Nodes where no port is taken and no required anti-affinity forbids the pod."""
    mask = np.ones(len(snapshot.nodes), np.bool_)
    for _, taken in parted(snapshot, standing, pod):
        mask &= ~taken
    return mask


def parted(snapshot: Snapshot, standing: Standing, pod: PodClass) -> Iterator[tuple[str, Mask]]:
    """The nodes in a domain that a pod may share with none of those that stand, and the topology key of the domain."""
    for other, counts in standing.items():
        for key in sorted(keys_apart(pod, other)):
            yield key, _beside(snapshot, key, counts) > 0


def keys_apart(pod: PodClass, other: PodClass) -> set[str]:
    """Topology keys of the domains that two pods may not share."""
    pairs = (pod, other), (other, pod)
    keys = {one.topology_key for own, its in pairs for one in required(own, anti=True) if means(one, own, its)}
    if not set(pod.exclusive).isdisjoint(other.exclusive):
        keys.add(CLUSTER)
    return keys | {NAME} if clash(pod, other) else keys


def meets(snapshot: Snapshot, keys: Iterable[str], rows: list[int], row: int) -> bool:
    """Whether a node is in one domain of some of these keys with one of the others."""
    codes = (labels_of(snapshot, key).codes for key in keys)
    return any(one[row] >= 0 and bool((one[rows] == one[row]).any()) for one in codes)


def is_friend(other: PodClass, pod: PodClass) -> bool:
    """Whether all required affinity of the pod means pods like `other`."""
    terms = required(pod, anti=False)
    return bool(terms) and all(means(term, pod, other) for term in terms)


def likes(snapshot: Snapshot, standing: Standing, shape: Shape, leaving: Standing) -> Values:
    """How much preferred terms, its own and those of pods that stand, and soft spread favour each node: 0..1 each."""
    pod, drawn, evenness = shape.pod, np.zeros(len(snapshot.nodes)), np.zeros(len(snapshot.nodes))
    preferred = (term for term in pod.pod_affinity if term.weight is not None)
    own = ((term, _count(standing, partial(means, term, pod))) for term in preferred)
    others = ((term, counts) for other, counts in standing.items() for term in _drawing(other, pod))
    for term, counts in chain(own, others):
        weight = -(term.weight or 1) if term.anti else term.weight or 1
        drawn += weight * np.maximum(_beside(snapshot, term.topology_key, counts), 0)
    for spread in pod.spread:
        if not spread.hard:
            counts = _spread_over(standing, pod, spread) - _spread_over(leaving, pod, spread)
            beside = _beside(snapshot, spread.topology_key, counts)
            evenness -= np.where(beside < 0, beside.max(initial=0) + 1, beside)
    return _scaled(drawn) + _scaled(evenness)


def _scaled(values: Values) -> Values:
    low, high = values.min(initial=0), values.max(initial=0)
    return (values - low) / (high - low) if high > low else np.zeros_like(values)


def _count(standing: Standing, is_meant: Callable[[PodClass], bool]) -> Counts:
    """Pods of the classes meant, by node."""
    return sum((counts for pod, counts in standing.items() if is_meant(pod)), np.zeros((), np.int64))


def _beside(snapshot: Snapshot, key: str, counts: Counts) -> Counts:
    """For each node the pods counted in its domain of that key; -1 for a node in none."""
    codes, values = labels_of(snapshot, key)
    inside = codes >= 0
    totals = np.bincount(codes[inside], weights=np.broadcast_to(counts, codes.shape)[inside], minlength=len(values))
    beside: Counts = np.append(totals, -1).astype(np.int64)[codes]
    return beside


def near(snapshot: Snapshot, standing: Standing, pod: PodClass) -> Mask:
    """Nodes where those are, or may yet come, that the pod must stand beside: domains with a pod that all its terms
    mean. The first pod of a group that means itself goes anywhere with the keys; pods of the group that are in no
    domain of any key do not count."""
    if not (terms := required(pod, anti=False)):
        return np.ones(len(snapshot.nodes), np.bool_)
    counts = _count(standing, lambda one: is_friend(one, pod))
    beside = np.array([_beside(snapshot, term.topology_key, counts) for term in terms])
    is_first = not np.any(beside > 0) and all(means(term, pod, pod) for term in terms)
    mask: Mask = np.all(beside >= (0 if is_first else 1), axis=0)
    return mask


def follows(pod: PodClass) -> bool:
    """Whether it must stand beside pods of another kind."""
    return any(not means(term, pod, pod) for term in required(pod, anti=False))


def attracts(other: PodClass, pod: PodClass) -> bool:
    """Whether the pod must stand beside pods like `other`."""
    return any(means(term, pod, other) for term in required(pod, anti=False))


def leans_on(other: PodClass, pod: PodClass) -> bool:
    """Whether where the pod stands is only right while pods like `other` stand where they do."""
    is_counted = any(one.hard and selects(one.selector, dict(other.labels)) for one in pod.spread)
    return attracts(other, pod) or (is_counted and other.namespace == pod.namespace)


def _spread_over(standing: Standing, pod: PodClass, spread: Spread) -> Counts:
    return _count(standing, lambda one: one.namespace == pod.namespace and selects(spread.selector, dict(one.labels)))


def _level(snapshot: Snapshot, counts: Counts, shape: Shape, spread: Spread) -> Mask:
    """Domains that one more pod would not put more than the skew above the emptiest, by these counts. Of the nodes
    those count that carry the keys of all hard constraints, are of the pool and, by policy, selected and tolerated."""
    pod, codes = shape.pod, labels_of(snapshot, spread.topology_key).codes
    counted = snapshot.pool_of == pool_row(snapshot, shape.pool)
    for one in pod.spread:
        counted &= (labels_of(snapshot, one.topology_key).codes >= 0) | (not one.hard)
    if spread.honor_affinity:
        counted &= selected(snapshot, pod.node_selector, pod.affinity)
    if spread.honor_taints:
        counted &= tolerated(snapshot, pod.tolerations)
    totals = _beside(snapshot, spread.topology_key, np.where(counted, counts, 0))
    domains = np.count_nonzero(np.bincount(codes[counted]))
    least = totals[counted].min(initial=np.iinfo(np.int64).max) if domains >= spread.min_domains else 0
    own = 1 if selects(spread.selector, dict(pod.labels)) else 0
    return (codes >= 0) & (totals + own - least <= spread.max_skew)
