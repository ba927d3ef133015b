"""Whether pods bear those beside them: the referee's part on (anti-)affinity, topology spread and host ports.

Starts are taken in order, each with all that stands and all that started before it. Nothing here is fast: it is asked
only where some pod looks at the pods beside it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fairway.engine.labels import selects
from fairway.engine.model import Admission, NodeShare, PodAffinity, PodClass, PodSetPlacement, Spread
from fairway.engine.plan import Fault
from fairway.engine.snapshot import Columns, Snapshot

from .site import unfit
from .tally import Case, Held, layout_of, pods_of

Counts = dict[PodClass, Columns]
"""int64[node] pods of each class."""


def neighbours(case: Case) -> Iterator[Fault]:
    """Required (anti-)affinity, hard spread and host ports, in the order of starts. Those that leave may have been seen
    beside a pod or not: both pass. Spread binds who comes, so those that move may come later."""
    snapshot, stays, going = case.snapshot, Counts(), Counts()
    if not snapshot.is_social:
        return
    for other in snapshot.pods:
        if (row := snapshot.row_of.get(other.node)) is not None and not other.is_leaving:
            _add(stays, len(snapshot.nodes), (other.pod, row, 1))
    for counts, sign, items in ((stays, 1, case.standing()), (going, 1, case.leaves), (stays, -1, case.leaves)):
        items = [item for item in items if sign > 0 or item.role == "evicted"]
        _add(counts, len(snapshot.nodes), *_pods(snapshot, items, sign))
    halves = [_halves(item) for item in case.starts]
    cores, moved = _both(stays, {}), Counts()
    _add(cores, len(snapshot.nodes), *_pods(snapshot, [core for core, _ in halves], 1))
    _add(moved, len(snapshot.nodes), *_pods(snapshot, [item for item in case.starts if item.role == "moved"], -1))
    for item, earlier in [(core, stays) for core, _ in halves] + [(surplus, cores) for _, surplus in halves]:
        pods, before = _pods(snapshot, [item], 1), _both(earlier, {})
        _add(stays, len(snapshot.nodes), *pods)
        for pod, row, _ in pods if item.role != "told" else ():
            alone = _both(before, {})  # with those of its own kind, but not yet others
            _add(alone, len(snapshot.nodes), *(one for one in pods if one[0] == pod))
            seen = [stays, _both(stays, going), alone, _both(alone, going)]
            why = [disturbed(snapshot, counts, (pod, item.admission.pool), row) for counts in seen]
            if why[0] == "spread":
                why.append(disturbed(snapshot, _both(stays, moved), (pod, item.admission.pool), row))
            if all(why):
                yield Fault(item.workload.key, "Neighbour", f"{why[0]} on {snapshot.nodes[row].name}")


def _halves(item: Held) -> tuple[Held, Held]:
    """The first minCount pods of a gang, which start in its turn, and the others, which grow after all minimums."""
    least = {podset.name: podset.min_count for podset in item.workload.podsets}
    parts: tuple[list[PodSetPlacement], list[PodSetPlacement]] = [], []
    for placement in item.admission.podsets:
        pods = [NodeShare(node, 1) for node, _ in pods_of(placement)]
        count = least.get(placement.name, 0) if item.role == "new" else 0 if item.role == "more" else len(pods)
        for part, some in zip(parts, (pods[:count], pods[count:])):
            part.append(PodSetPlacement(placement.name, tuple(some)))
    first, second = (item._replace(admission=Admission(item.admission.pool, tuple(part))) for part in parts)
    return first, second


def _both(left: Counts, right: Counts) -> Counts:
    none = np.zeros((), np.int64)
    return {pod: np.add(left.get(pod, none), right.get(pod, none)) for pod in left.keys() | right.keys()}


def _pods(snapshot: Snapshot, items: Sequence[Held], sign: int) -> list[tuple[PodClass, int, int]]:
    layout = layout_of(snapshot, items)
    times = np.bincount(layout.form_of, minlength=len(layout.forms))
    rows = zip(layout.form.tolist(), layout.kind.tolist(), layout.row.tolist(), layout.count.tolist())
    return [(layout.kinds[kind][0], row, sign * n * int(times[form])) for form, kind, row, n in rows if row >= 0]


def _add(counts: Counts, nodes: int, *pods: tuple[PodClass, int, int]) -> None:
    for pod, row, number in pods:
        counts.setdefault(pod, np.zeros(nodes, np.int64))[row] += number


def disturbed(snapshot: Snapshot, counts: Counts, kind: tuple[PodClass, str], row: int) -> str:
    """What a pod that stands on a node, and is counted there, could not bear beside it."""
    pod, alone = kind[0], counts[kind[0]] * 0
    for other, on in counts.items():
        own = int(other == pod)
        if on[row] > own and clash(pod, other):
            return "host port"
        for owner, meant in ((pod, other), (other, pod)):
            terms = [term for term in owner.pod_affinity if term.anti and term.weight is None]
            if any(means(one, owner, meant) and beside(snapshot, on, one.topology_key, row) > own for one in terms):
                return "anti-affinity"
    terms = [term for term in pod.pod_affinity if not term.anti and term.weight is None]
    friends = sum((on for other, on in counts.items() if all(means(one, pod, other) for one in terms)), alone)
    own = int(all(means(one, pod, pod) for one in terms))
    if any(beside(snapshot, friends, one.topology_key, row) <= own for one in terms) and not own == friends.sum() == 1:
        return "affinity"
    return "spread" if any(one.hard and is_lopsided(snapshot, counts, kind, one, row) for one in pod.spread) else ""


def clash(pod: PodClass, other: PodClass) -> bool:
    return any(
        protocol == protocol_ and port == port_ and (ip == ip_ or not {"", "0.0.0.0", "::"}.isdisjoint((ip, ip_)))
        for ip, protocol, port in pod.host_ports for ip_, protocol_, port_ in other.host_ports
    )


def means(term: PodAffinity, owner: PodClass, other: PodClass) -> bool:
    """Whether a term speaks of pods like `other`."""
    is_near = term.any_namespace or other.namespace in (term.namespaces or (owner.namespace,))
    return is_near and term.selector is not None and selects(term.selector, dict(other.labels))


def beside(snapshot: Snapshot, counts: Columns, key: str, row: int) -> int:
    """Pods in the domain of a node; none where the node is in no domain."""
    here = dict(snapshot.nodes[row].labels).get(key)
    rows = [at for at, node in enumerate(snapshot.nodes) if here is not None and dict(node.labels).get(key) == here]
    return int(counts[rows].sum())


def is_lopsided(snapshot: Snapshot, counts: Counts, kind: tuple[PodClass, str], spread: Spread, row: int) -> bool:
    """Whether the node's domain has too many more than the emptiest of those that count: with the keys of all hard
    constraints, of the pool and, where it is honoured, selected and tolerated."""
    pod, pool = kind
    keys = {one.topology_key for one in pod.spread if one.hard}
    meant = [on for other, on in counts.items()
             if other.namespace == pod.namespace and selects(spread.selector, dict(other.labels))]
    totals: dict[str, int] = {}
    for at, node in enumerate(snapshot.nodes):
        labels = dict(node.labels)
        if (
            snapshot.pool_of[at] >= 0 and snapshot.pools[snapshot.pool_of[at]].name == pool and keys <= labels.keys()
            and not (spread.honor_affinity and unfit(replace(node, taints=()), pod))
            and not (spread.honor_taints and unfit(node, PodClass(tolerations=pod.tolerations)))
        ):
            domain = labels[spread.topology_key]
            totals[domain] = totals.get(domain, 0) + sum(int(on[at]) for on in meant)
    least = min(totals.values(), default=0) if len(totals) >= spread.min_domains else 0
    here = dict(snapshot.nodes[row].labels).get(spread.topology_key)
    return here is None or totals.get(here, 0) - least > spread.max_skew
