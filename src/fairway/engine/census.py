"""What shuts a pod out of the nodes of a pool: each node is counted once, under the first obstacle that it meets.

The order of obstacles is the order of `Bar`: what lasts before what passes, else as kube-scheduler filters. A node that
is cordoned or ruled out by a constraint is counted so however full it is; a node without obstacle has room for a pod at
least. Python loops over obstacles alone; nodes are numpy.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from .draft import Draft
from .feasibility import Counts, Shape, matches, pool_row, satisfies, taints_of, usable
from .labels import CLUSTER, CORDON, NAME, READINESS, required, tolerates
from .model import Expression, PodSet, Term
from .place import Ask, asked_of, cache_of
from .plan import Bar, Census, Obstacle
from .pod_affinity import attracts, near, parted, skews
from .snapshot import Mask, Snapshot, of_nodes

STATES = {CORDON.key: Bar.CORDONED, **dict.fromkeys(READINESS, Bar.NOT_READY)}
"""The taints that stand for a state of the node."""


class Hurdle(NamedTuple):
    """Nodes that one obstacle rules out, and what it is about. `asked` of the resource, `offered` by each node."""

    bar: Bar
    about: Expression | str
    mask: Mask
    asked: int = 0
    offered: Counts | None = None


def census(draft: Draft, ask: Ask, pool: str, *, before: Mask | None = None) -> Census | None:
    """The nodes of a pool for a pod of the podset with the least room. `before`: those with room, kept or not."""
    parts = asked_of(draft, ask, pool)
    if not parts or (row := pool_row(draft.snapshot, pool)) < 0:
        return None
    shares = [int(room_for(draft, ask, shape).sum()) / size for _, shape, size in parts]
    podset, shape, size = parts[int(np.argmin(shares))]
    of_nodes_alone = replace(shape.pod, namespace="", requests=(), labels=(), pod_affinity=(), spread=(), exclusive=())
    nodes, left, lasting = _ruled_out(draft.snapshot, shape._replace(pod=of_nodes_alone), row)
    found: dict[tuple[Bar, object], Obstacle] = {(one.bar, one.about): one for one in lasting}
    for hurdle in _passing(draft, ask, shape, before):
        left = _meet(hurdle, left, found)
    name = podset.name if len(parts) > 1 else ""
    room = int(room_for(draft, ask, shape)[left].sum())
    return Census(nodes, int(np.count_nonzero(left)), room, size, tuple(found.values()), name)


@of_nodes
def _ruled_out(snapshot: Snapshot, shape: Shape, row: int) -> tuple[int, Mask, tuple[Obstacle, ...]]:
    """The number of nodes of the pool, which of them nothing lasting rules out, and what rules out the others."""
    left, found = snapshot.pool_of == row, dict[tuple[Bar, object], Obstacle]()
    nodes = int(np.count_nonzero(left))
    for hurdle in _lasting(snapshot, shape):
        left = _meet(hurdle, left, found)
    return nodes, left, tuple(found.values())


def open_to(draft: Draft, ask: Ask, pool: str) -> Mask:
    """Nodes with room for a pod of any podset."""
    mask: Mask = np.logical_or.reduce([room_for(draft, ask, shape) > 0 for _, shape, _ in asked_of(draft, ask, pool)])
    return mask


def room_for(draft: Draft, ask: Ask, shape: Shape) -> Counts:
    """int64[node]: pods that each node which the ask allows could take now."""
    room = cache_of(draft).room(shape)
    return room if ask.allowed is None else np.where(ask.allowed, room, 0)


def _meet(hurdle: Hurdle, left: Mask, found: dict[tuple[Bar, object], Obstacle]) -> Mask:
    """Count the nodes that meet it first; the nodes that are left."""
    hit = left & hurdle.mask
    if not (nodes := int(np.count_nonzero(hit))):
        return left
    key = hurdle.bar, hurdle.about
    known = found.get(key, Obstacle(hurdle.bar, hurdle.about, 0, hurdle.asked))
    most = known.most if hurdle.offered is None else max(known.most, int(hurdle.offered[hit].max()))
    found[key] = known._replace(nodes=known.nodes + nodes, most=most)
    return left & ~hit


def _passing(draft: Draft, ask: Ask, shape: Shape, before: Mask | None) -> Iterator[Hurdle]:
    """What rules nodes out for now."""
    if ask.allowed is not None:
        yield Hurdle(Bar.FAILED_BEFORE, "", ~ask.allowed)
    yield from _beside(draft, shape, ask.workload.podsets)
    room = cache_of(draft).room(shape)
    if before is not None:
        yield Hurdle(Bar.KEPT, "", before & (room <= 0))
    yield from (Hurdle(Bar.BUSY, *one) for one in _short(shape, draft.snapshot, draft.free))
    yield Hurdle(Bar.DEVICES, "", room <= 0)


def _lasting(snapshot: Snapshot, shape: Shape) -> Iterator[Hurdle]:
    """What rules nodes out whatever runs on them."""
    pod = shape.pod
    yield from _out_of_use(snapshot, ~usable(snapshot, pod))
    codes, shapes = taints_of(snapshot)
    refused = [[one for one in taints if one.effect != "PreferNoSchedule" and not tolerates(pod.tolerations, one)]
               for taints in shapes]  # fmt: skip
    for taint in sorted(set(chain(*refused)), key=lambda one: (one.key not in STATES, one.key, one.value, one.effect)):
        mask = np.array([taint in taints for taints in refused], np.bool_)[codes]
        yield Hurdle(STATES.get(taint.key, Bar.TAINT), "" if taint.key in STATES else str(taint), mask)
    for name, value in pod.node_selector:
        asked = Expression(name, "In", (value,))
        yield Hurdle(Bar.SELECTOR, asked, ~satisfies(snapshot, (asked,)))
    yield from _outside(snapshot, Bar.AFFINITY, pod.affinity) if pod.affinity else ()
    for terms in pod.volumes:
        yield from _outside(snapshot, Bar.VOLUME, terms)
    yield from (Hurdle(Bar.TOO_SMALL, *one) for one in _short(shape, snapshot, snapshot.capacity))


def _out_of_use(snapshot: Snapshot, out: Mask) -> Iterator[Hurdle]:
    nodes = snapshot.nodes
    for bar, holds in (
        (Bar.LEAVING, [one.is_leaving for one in nodes]),
        (Bar.UNHEALTHY, [one.is_unhealthy for one in nodes]),
        (Bar.CORDONED, [one.is_unschedulable for one in nodes]),
        (Bar.NOT_READY, [not one.is_ready for one in nodes]),
    ) if out.any() else ():  # fmt: skip
        yield Hurdle(bar, "", out & np.array(holds, np.bool_))


def _outside(snapshot: Snapshot, bar: Bar, terms: tuple[Term, ...]) -> Iterator[Hurdle]:
    """Where no term holds: a lone term by its expressions, several by the keys that they name."""
    if len(terms) == 1:
        for one in terms[0].expressions:
            yield Hurdle(bar, one, ~satisfies(snapshot, (one,)))
        for one in terms[0].fields:
            yield Hurdle(bar, one, ~matches(snapshot, (Term(fields=(one,)),)))
    names = sorted({one.key for term in terms for one in (*term.expressions, *term.fields)})
    yield Hurdle(bar, ", ".join(names), ~matches(snapshot, terms))


def _short(shape: Shape, snapshot: Snapshot, amounts: Counts) -> Iterator[tuple[str, Mask, int, Counts]]:
    """Resource by resource, accelerators first: where there is less of it than a pod takes."""
    for column, amount in sorted(zip(shape.request.columns, shape.request.amounts), reverse=True):
        yield snapshot.resources[column], amounts[column] < amount, amount, amounts[column]


def _beside(draft: Draft, shape: Shape, podsets: Iterable[PodSet]) -> Iterator[Hurdle]:
    """What the pods that stand rule out: host ports, anti-affinity either way, affinity, spread."""
    snapshot, standing, pod = draft.snapshot, draft.standing, shape.pod
    for key, mask in parted(snapshot, standing, pod):
        bar = Bar.PORT if key == NAME else Bar.CLAIM if key == CLUSTER else Bar.ANTI_AFFINITY
        yield Hurdle(bar, key if bar is Bar.ANTI_AFFINITY else "", mask)
    terms = required(pod, anti=False)
    is_led = any(attracts(one.pod, pod) for one in podsets if one.pod is not pod)  # its leaders come with it
    if terms and not is_led:
        names = ", ".join(sorted({one.topology_key for one in terms}))
        yield Hurdle(Bar.POD_AFFINITY, names, ~near(snapshot, standing, pod))
    for spread, mask in skews(snapshot, standing, shape, draft.leaving()):
        yield Hurdle(Bar.SPREAD, spread.topology_key, mask)
