"""Why a workload that quota lets start finds no place: the first reason that holds, and the figures.

LevelUnknown: no pool asked for has the levels. NeverFits: not even on its pools empty, whole and grown to `maxNodes`.
NoDevice: the amounts would do, but devices are not told apart as the pods need. NoDomain: the pool has room enough, no
domain of the required level has. Fragmented: the free sum would do, no set of nodes does. Else NoRoom. Of several pools
the one tells that comes closest. What would change it is not guessed: `would_fit` is tried before it is told.

A census counts each node of a pool once, under the first obstacle that shuts a pod out of it. The order of obstacles is
the order of `Bar`: what lasts before what passes, else as kube-scheduler filters. A node that is cordoned or ruled out
by a constraint is counted so however full it is; a node without obstacle has room for a pod at least.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from .devices import count_room, device_room
from .draft import Draft
from .feasibility import Request, Shape, chooses, labels_of, matches, open_nodes, pool_row, satisfies, taints_of, usable
from .labels import CLUSTER, CORDON, NAME, READINESS, STATE, required, tolerates
from .model import CPU, GPU, MEMORY, PODS, Admission, Expression, Node, PodSet, Running, Term, Workload
from .place import Ask, asked_of, cache_of, place, room_for
from .plan import RANK, Bar, Census, Facts, Obstacle, Reason, Why
from .pod_affinity import attracts, follows, near, parted, skews
from .resources import DEVICE, counted, counts_of, supply
from .snapshot import MOST_KEPT, Columns, Mask, Memo, Snapshot, of_nodes, remember
from .topology import domain_rooms, levels_asked, tree_of

NEARLY = 1e-9  # where all lack alike, pod slots tell the least
TOLD = (GPU, CPU, MEMORY)  # of what a paused workload lacks, the first is reported


class Explained:
    """Kept with the nodes: `emptied`, these without anything on them; `fitting`: whether they hold what is asked."""

    def __init__(self) -> None:
        self.emptied: tuple[object, Draft] | None = None
        self.fitting: dict[object, tuple[object, bool]] = {}


def explain(draft: Draft, ask: Ask, pools: Sequence[str]) -> Why:
    """Reason and facts of the pool that comes closest: of equals the first with nodes that its pods may use."""
    if ask.workload.paused is not None:
        return _in_place(draft, ask.workload, ask.workload.paused)
    told = [_in_pool(draft, ask, pool) for pool in pools] or [(Reason.NEVER_FITS, Facts(detail="no pool"))]
    return max(told, key=lambda one: (RANK[one[0]], one[1].most_free is not None))


def _in_place(draft: Draft, workload: Workload, there: Admission) -> Why:
    """Why a paused workload cannot go on: what is missing where it is frozen, and which workloads there hold that."""
    counts = counts_of(workload.podsets, there)
    asked = draft.tree.amounts(workload.podsets, counts, there.pool)
    rows = [draft.snapshot.row_of[name] for name in there.nodes if name in draft.snapshot.row_of]
    free = {name: int(draft.free[draft.snapshot.resources.index(name), rows].clip(0).sum()) for name in TOLD}
    usual = GPU if asked.get(GPU) else CPU
    resource = next((name for name in TOLD if asked.get(name, 0) > free[name]), usual)
    devices = _devices(there) if resource == GPU else set()
    blocking = tuple(sorted(key for key, one in draft.running.items() if _holds(one, there, resource, devices)))
    missing = max(0, (needed := asked.get(resource, 0)) - free[resource]) or None
    nodes = {node: [str(index) for name, index in sorted(devices) if name == node] for node, _ in sorted(devices)}
    detail = " and ".join(f"GPU {', '.join(own)}" + f" on {name}" * (len(nodes) > 1) for name, own in nodes.items())
    return Reason.NO_ROOM, Facts(resource, needed, missing=missing, pool=there.pool, blocking=blocking, detail=detail)


def _holds(one: Running, there: Admission, resource: str, devices: set[tuple[str, int]]) -> bool:
    """Whether it holds one of the devices; without any, whether it holds some of the resource on these nodes."""
    if devices:
        return not devices.isdisjoint(_devices(one.admission))
    podsets = one.workload.podsets
    held = counted(podsets, counts_of(podsets, one.admission), 0).get(resource, 0)
    return held > 0 and not there.nodes.isdisjoint(one.admission.nodes)


def _devices(admission: Admission) -> set[tuple[str, int]]:
    """Node and index of each device that it has."""
    shares = (share for placement in admission.podsets for share in placement.nodes)
    return {(share.node, index) for share in shares for pod in share.devices for index in pod}


def could_hold(draft: Draft, ask: Ask, pools: Sequence[str]) -> bool:
    """Whether the nodes in use would have a place for it if nothing ran."""
    in_use = draft.snapshot.is_usable
    ask = ask._replace(allowed=in_use if ask.allowed is None else in_use & ask.allowed)
    return any(place(_emptied(draft), ask, pool) is not None for pool in pools)


def may_fit(draft: Draft, ask: Ask, pool: str) -> bool:
    """Whether the nodes of a pool would have a place for it if nothing ran, or that hangs on what runs."""
    if ask.workload.paused or any(follows(shape.pod) for _, shape, _ in asked_of(draft, ask, pool)):
        return True
    empty, podsets = _emptied(draft), ask.workload.podsets
    known = empty.snapshot.memo.of(Explained).fitting
    key = id(podsets), ask.workload.topology, ask.counts, ask.strategy, pool
    if key not in known:  # podsets are told by identity, which the value kept keeps as it is
        remember(known, key, (podsets, place(empty, ask._replace(allowed=None, beside=None), pool) is not None))
    return known[key][1]


def _in_pool(draft: Draft, ask: Ask, pool: str) -> Why:
    snapshot = draft.snapshot
    if pool_row(snapshot, pool) < 0:
        return Reason.NEVER_FITS, Facts(pool=pool, detail=pool)
    asked = levels_asked(ask.workload.topology, *(podset.topology for podset in ask.workload.podsets))
    if unknown := [level for level in asked if level not in tree_of(snapshot, pool).levels]:
        return Reason.LEVEL_UNKNOWN, Facts(pool=pool, level=unknown[0])
    empty, bare = _emptied(draft), ask._replace(allowed=None, beside=None)
    if not may_fit(draft, ask, pool) and not _grows(empty, ask, pool):
        lacks = _knows_no_memory(empty, ask, pool) or _lacks_devices(empty, ask, pool, _mask)
        return Reason.NO_DEVICE if lacks else Reason.NEVER_FITS, replace(_facts(empty, bare, pool), would_fit=None)
    if not draft.policy.tells_why:
        return Reason.NO_ROOM, Facts(pool=pool)
    if claim := _claim_in_use(draft, ask):
        return Reason.CLAIM_IN_USE, Facts(pool=pool, detail=claim)
    facts, parts = _facts(draft, ask, pool), asked_of(draft, ask, pool)
    if facts.level and all(room_for(draft, shape, ask.allowed).sum() >= size for _, shape, size in parts):
        return Reason.NO_DOMAIN, facts
    if _lacks_devices(draft, ask, pool, _open):
        return Reason.NO_DEVICE, facts
    return (Reason.NO_ROOM if facts.missing else Reason.FRAGMENTED), facts


def _claim_in_use(draft: Draft, ask: Ask) -> str:
    """The first of its ReadWriteOncePod claims that a pod uses already; "" for none."""
    used = {claim for pod, on in draft.standing.items() if pod.exclusive and on.any()
            for claim in pod.exclusive}
    own = (claim for podset in ask.workload.podsets for claim in podset.pod.exclusive)
    return next((claim.partition("/")[2] for claim in own if claim in used), "")


def _emptied(draft: Draft) -> Draft:
    """The same nodes with nothing on them, all ready; kept, with what was found out, as long as the nodes stay."""
    snapshot, memo = draft.snapshot, draft.snapshot.memo.of(Explained)
    key = snapshot.resources, snapshot.is_social
    if memo.emptied is None or memo.emptied[0] != key or len(memo.emptied[1].shapes) > MOST_KEPT:
        devices = np.full_like(snapshot.device_free, -1)
        for row in [row for row, node in enumerate(snapshot.nodes) if chooses(node)]:
            whole = [DEVICE * (one.is_healthy and not one.is_partitioned) for one in snapshot.nodes[row].devices]
            devices[row, : len(whole)] = whole
        stays = np.array([not node.is_leaving for node in snapshot.nodes], np.bool_)
        nodes = tuple(_recovered(node) for node in snapshot.nodes)
        free = replace(snapshot, nodes=nodes, free=snapshot.capacity, device_free=devices, is_usable=stays, running=(),
                       tallies=(), pods=(), pending=(), queues={}, memo=Memo())
        memo.emptied = free.memo.of(Explained).emptied = key, Draft(free)
    return memo.emptied[1]


def _recovered(node: Node) -> Node:
    """The node with its groups free, without the taints that Kubernetes sets by its state: cordoned, NotReady, under
    pressure."""
    taints = tuple(one for one in node.taints if not one.key.startswith(STATE))
    is_same = taints == node.taints and all(one.free is None for one in node.numa)
    return node if is_same else replace(node, taints=taints, numa=tuple(replace(one, free=None) for one in node.numa))


def _grows(empty: Draft, ask: Ask, pool: str) -> bool:
    """Whether each podset would fit if the pool had all the nodes of its shape that it may have."""
    snapshot, row = empty.snapshot, pool_row(empty.snapshot, pool)
    offered = dict(snapshot.pools[row].shape)
    more = (snapshot.pools[row].max_nodes or 0) - int(np.count_nonzero(snapshot.pool_of == row))
    if not offered or more <= 0:
        return False
    return all(
        int(room_for(empty, shape, ask.allowed).sum()) + more * _pods_in(offered, empty, shape.request) >= size
        for _, shape, size in asked_of(empty, ask, pool)
    )


def _pods_in(offered: dict[str, int], draft: Draft, request: Request) -> int:
    needs = ((draft.snapshot.resources[column], amount) for column, amount in request.needs)
    room = [supply(offered, name) // amount for name, amount in needs if name != PODS]
    return min(room, default=1)


def _knows_no_memory(empty: Draft, ask: Ask, pool: str) -> bool:
    """Whether what is asked for of the memory of a GPU is no part of one in the pool."""
    return any(shape.pod.gpu_memory and not shape.request.is_known for _, shape, _ in asked_of(empty, ask, pool))


def _lacks_devices(draft: Draft, ask: Ask, pool: str, nodes: Callable[[Draft, Shape], Mask]) -> bool:
    """Whether amounts alone would let every podset fit on those nodes, and devices do not."""
    allowed = True if ask.allowed is None else ask.allowed
    parts = [(shape, size, np.where(nodes(draft, shape) & allowed, count_room(draft, shape.request, ...), 0))
             for _, shape, size in asked_of(draft, ask, pool)]
    return all(plain.sum() >= size for _, size, plain in parts) and any(
        np.minimum(plain, device_room(draft, shape, ...)).sum() < size for shape, size, plain in parts
    )


def _facts(draft: Draft, ask: Ask, pool: str) -> Facts:
    """The scarcest resource and where the most of it is; missing: what the sum over allowed nodes lacks."""
    snapshot, parts = draft.snapshot, asked_of(draft, ask, pool)
    asked = np.zeros(len(snapshot.resources), np.int64)
    for _, shape, size in parts:
        for column, amount in shape.request.needs:
            asked[column] += amount * size
    open_nodes = np.logical_or.reduce([_open(draft, shape) for _, shape, _ in parts])
    if ask.allowed is not None:
        open_nodes = open_nodes & ask.allowed
    free = np.where(open_nodes, np.maximum(draft.free, 0), 0)
    short = asked - free.sum(axis=1)
    lacking = np.where(asked > 0, short / np.maximum(asked, 1), -np.inf)
    lacking -= np.array([name == PODS for name in snapshot.resources]) * NEARLY
    column = len(lacking) - 1 - int(np.argmax(lacking[::-1]))  # of equals the accelerator
    topologies = ask.workload.topology, *(podset.topology for podset in ask.workload.podsets)
    level = next((one.required for one in topologies if one.required), "")
    most, domain = _most_free(draft, pool, level, free[column]) if open_nodes.any() else (None, "")
    return Facts(
        resource=snapshot.resources[column], needed=int(asked[column]), most_free=most,
        missing=max(int(short[column]), 0) or None, pool=pool, level=level, domain=domain,
        would_fit=_would_fit(draft, ask, pool), shunned=() if ask.allowed is None else ask.workload.excluded_nodes,
        census=census(draft, ask, pool),
    )


def _mask(draft: Draft, shape: Shape) -> Mask:
    """Nodes that could take the pod if empty, devices apart."""
    return cache_of(draft).mask(shape)


def _open(draft: Draft, shape: Shape) -> Mask:
    """Nodes that could take the pod if empty, else also those whose devices never serve it, else those too small."""
    mask = _mask(draft, shape)
    serving = mask & (cache_of(_emptied(draft)).room(shape) > 0)
    return next((one for one in (serving, mask) if one.any()), open_nodes(draft.snapshot, shape.pod, shape.pool))


def _most_free(draft: Draft, pool: str, level: str, free: Columns) -> tuple[int, str]:
    """The most free in one domain of the level, or in one node, and its name."""
    tree, snapshot = tree_of(draft.snapshot, pool), draft.snapshot
    if not len(free):
        return 0, ""
    if not level:
        row = int(np.argmax(free))
        return int(free[row]), snapshot.nodes[row].name
    index = tree.levels.index(level)
    amounts = np.where(tree.is_named[index], domain_rooms(tree, free)[index], -1)
    if not len(amounts) or amounts.max() < 0:
        return 0, ""
    best = int(np.argmax(amounts))
    codes, values = labels_of(snapshot, level)
    return int(amounts[best]), values[codes[np.argmax(tree.codes[index] == best)]]


def _would_fit(draft: Draft, ask: Ask, pool: str) -> dict[str, int] | None:
    """The most pods of a lone podset that would start now; found by halving, tried."""
    parts = asked_of(draft, ask, pool)
    if len(parts) != 1 or len(ask.counts) != 1:
        return None
    podset, shape, size = parts[0]
    top = min(size, int(room_for(draft, shape, ask.allowed).sum()) + 1)
    fits = most_between(0, top, lambda count: place(draft, ask._replace(counts=(count,)), pool) is not None)
    return {podset.name: fits} if fits else None


def most_between(low: int, top: int, holds: Callable[[int], bool]) -> int:
    """The largest number below `top` that was found to hold, by halving; `low` where none was."""
    while top - low > 1:
        middle = (low + top) // 2
        low, top = (middle, top) if holds(middle) else (low, middle)
    return low


STATES = {CORDON.key: Bar.CORDONED, **dict.fromkeys(READINESS, Bar.NOT_READY)}
"""The taints that stand for a state of the node."""


class Hurdle(NamedTuple):
    """Nodes that one obstacle rules out, and what it is about. `asked` of the resource, `offered` by each node."""

    bar: Bar
    about: Expression | str
    mask: Mask
    asked: int = 0
    offered: Columns | None = None


def census(draft: Draft, ask: Ask, pool: str, *, before: Mask | None = None) -> Census | None:
    """The nodes of a pool for a pod of the podset with the least room. `before`: those with room, kept or not."""
    parts = asked_of(draft, ask, pool)
    if not parts or (row := pool_row(draft.snapshot, pool)) < 0:
        return None
    shares = [int(room_for(draft, shape, ask.allowed).sum()) / size for _, shape, size in parts]
    podset, shape, size = parts[int(np.argmin(shares))]
    of_nodes_alone = replace(shape.pod, namespace="", requests=(), labels=(), pod_affinity=(), spread=(), exclusive=())
    nodes, left, lasting = _ruled_out(draft.snapshot, shape._replace(pod=of_nodes_alone), row)
    found: dict[tuple[Bar, object], Obstacle] = {(one.bar, one.about): one for one in lasting}
    for hurdle in _passing(draft, ask, shape, before):
        left = _meet(hurdle, left, found)
    name = podset.name if len(parts) > 1 else ""
    room = int(room_for(draft, shape, ask.allowed)[left].sum())
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
    rooms = (room_for(draft, shape, ask.allowed) for _, shape, _ in asked_of(draft, ask, pool))
    mask: Mask = np.logical_or.reduce([room > 0 for room in rooms])
    return mask


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


def _short(shape: Shape, snapshot: Snapshot, amounts: Columns) -> Iterator[tuple[str, Mask, int, Columns]]:
    """Resource by resource, accelerators first: where there is less of it than a pod takes."""
    for column, amount in sorted(shape.request.needs, reverse=True):
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
