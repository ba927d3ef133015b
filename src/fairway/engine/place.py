"""Choose nodes for a workload: all of the pods asked for, or none.

A gang is one batched placement per podset: room per node, nodes in order, a cumulative sum. A podset whose pods look at
the pods beside them (affinity, spread) goes pod by pod instead. Podsets are tried one after the other, those with the
fewest places first; a topology of the whole workload is a region in which all of them must fit. Workloads of one pod
take the first node with room in the order of scores (`Slots`), which means the same at less cost. The draft is as
before at the end.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import heapify, heapreplace
from itertools import chain, islice, repeat
from typing import NamedTuple

import numpy as np

from .devices import choose, room_of, shared_room
from .draft import Draft
from .feasibility import Counts, Piece, Rows, Shape, Values, labels_of, open_nodes, pick, pool_row
from .model import Admission, NodeShare, PodSet, PodSetPlacement, Topology, Workload
from .packing import MOST_PODS, MOST_ROWS, Alike, Packing
from .placement_cache import PlacementCache, Ranking, Slots
from .pod_affinity import admits, apart, attracts, bears, bound_to_itself, is_drawn, likes, looks_beside
from .resources import DEVICE
from .scoring import WISH, linear, strategy_of
from .snapshot import Mask, Snapshot
from .topology import DomainTree, Wanted, domain_rooms, domains_of, lay, levels_asked, starts, tree_of

ANYWHERE = Topology()
_NOTHING = np.zeros(0, np.int64)
MOST_MEETINGS = 16  # domains in which podsets that must meet are tried
Placements = tuple[PodSetPlacement, ...]
Pieces = Mapping[str, list[Piece]]  # of podsets, by name
NOWHERE: Pieces = {}
Asked = tuple[PodSet, Shape, int]  # a podset, its class in a pool, and how many of its pods are asked for


class Ask(NamedTuple):
    """So many pods of each podset of a workload, on allowed nodes, beside what already stands: in its domains, ranks
    going on after it. `strategy` overrides the pool's. A tuple, for there is one a workload a cycle."""

    workload: Workload
    counts: tuple[int, ...]
    allowed: Mask | None = None
    beside: Admission | None = None
    strategy: str = ""


class Part(NamedTuple):
    """The pods of one podset to be placed. `anchors`: rows where its pods stand."""

    podset: PodSet
    size: int
    shape: Shape
    allowed: Mask | None
    topology: Topology
    strategy: str
    anchors: Rows | None


def cache_of(draft: Draft) -> PlacementCache:
    return draft.memo.of(PlacementCache, draft)


def asked_of(draft: Draft, ask: Ask, pool: str) -> list[Asked]:
    """The podsets that have pods to place, in a pool."""
    parts = zip(ask.workload.podsets, ask.counts)
    return [(podset, draft.shape(podset.pod, pool), size) for podset, size in parts if size]


def place(draft: Draft, ask: Ask, pool: str) -> Placements | None:
    """Where the pods asked for go, podset by podset, or None if they do not all fit. What already stands beside is not
    repeated; a podset without pods to place is left out. One that is paused fits where it is frozen or nowhere."""
    if ask.workload.paused is not None:
        return _frozen_place(draft, ask, pool)
    if (slots := slots_of(draft, ask, pool)) is None:
        return place_gang(draft, ask, pool)
    return alone.podsets if (alone := slots.next()) else None


def _frozen_place(draft: Draft, ask: Ask, pool: str) -> Placements | None:
    """The places of its frozen processes, devices included, if they are free."""
    there, snapshot = ask.workload.paused, draft.snapshot
    assert there is not None
    rows = [snapshot.row_of.get(name, -1) for name in there.nodes]
    if there.pool != pool or not all(row >= 0 and snapshot.is_usable[row] for row in rows):
        return None
    if ask.allowed is not None and not all(ask.allowed[row] for row in rows):
        return None
    held = draft.holdings(ask.workload.podsets, there)
    return there.podsets if all(draft.has_room(row, amounts) for row, amounts in held.items()) else None


def slots_of(draft: Draft, ask: Ask, pool: str) -> Slots | None:
    """The places of a class of single pods; None where they depend on more than a linear score and room."""
    cache = cache_of(draft)
    workload, counts, wide = ask.workload, ask.counts, ask.workload.topology
    if workload.paused or len(counts) != 1 or counts[0] != 1 or wide.required or wide.preferred or wide.segments:
        return None
    key = id(workload.podsets), pool, id(ask.allowed), workload.kind, ask.strategy
    run = cache.runs.get(key) or _new_run(cache, ask, pool)
    if run is not None:
        cache.runs[key] = run
    return run


def _new_run(cache: PlacementCache, ask: Ask, pool: str) -> Slots | None:
    snapshot, podset = cache.draft.snapshot, ask.workload.podsets[0]
    shape, row = cache.draft.shape(podset.pod, pool), pool_row(snapshot, pool)
    strategy = strategy_of(ask.workload, ask.strategy, snapshot.pools[row].strategy) if row >= 0 else ""
    packs_domains = strategy == "Binpack" and snapshot.pools[row].levels
    is_plain = strategy in ("Binpack", "Spread") and not packs_domains and podset.topology == ANYWHERE
    is_counted = shape.request.is_known and not (shape.request.share or shape.pod.alignment_required)
    if not is_plain or not is_counted or snapshot.is_social:
        return None
    pod = shape.pod
    nodes = pod.node_selector, pod.affinity, pod.volumes, pod.tolerations, pod.preferences
    key = pool, id(ask.allowed), nodes, shape.request.packed, strategy
    if key not in cache.rankings:
        mask = open_nodes(snapshot, pod, pool)
        score = linear(snapshot, shape, -1.0 if strategy == "Binpack" else 1.0)
        cache.rankings[key] = Ranking(cache.draft, mask if ask.allowed is None else mask & ask.allowed, score)
    return Slots(cache.rankings[key], shape, ask.workload.podsets, ask.allowed)


def place_gang(draft: Draft, ask: Ask, pool: str) -> Placements | None:
    snapshot, row = draft.snapshot, pool_row(draft.snapshot, pool)
    if row < 0:
        return None
    tree, wide = tree_of(snapshot, pool), ask.workload.topology
    parts = _parts(draft, ask, pool, snapshot.pools[row].strategy)
    if not set(levels_asked(wide, *(part.topology for part in parts))) <= set(tree.levels):
        return None
    anchors = _anchors(snapshot, ask)
    if len(parts) == 1 and parts[0].topology == ANYWHERE:
        parts, wide = [parts[0]._replace(topology=wide, anchors=anchors)], ANYWHERE
    if wide == ANYWHERE or not parts:
        return _together(draft, tree, parts)
    size, whole = sum(part.size for part in parts), sum(part.podset.count for part in parts)
    wide = replace(wide, segments=())
    for region in _regions(draft, tree, parts, Wanted(size, wide, _NOTHING, _NOTHING, anchors=anchors, whole=whole)):
        if (placed := _together(draft, tree, [_within(part, region) for part in parts])) is not None:
            return placed
    return None


def _parts(draft: Draft, ask: Ask, pool: str, strategy: str) -> list[Part]:
    chosen, snapshot = strategy_of(ask.workload, ask.strategy, strategy), draft.snapshot
    return [
        Part(one, size, shape, ask.allowed, one.topology, chosen, _anchors(snapshot, ask, one.name))
        for one, shape, size in asked_of(draft, ask, pool)
    ]


def _anchors(snapshot: Snapshot, ask: Ask, name: str = "") -> Rows | None:
    """The row of each pod of the podset, or of all, that stands already."""
    row_of = snapshot.row_of
    held = [one.nodes for one in ask.beside.podsets if name in ("", one.name)] if ask.beside else ()
    shares = [share for nodes in held for share in nodes if share.node in row_of]
    return np.repeat([row_of[one.node] for one in shares], [one.count for one in shares]) if shares else None


def _within(part: Part, region: Mask | None) -> Part:
    if region is None:
        return part
    return part._replace(allowed=region if part.allowed is None else part.allowed & region)


def _regions(draft: Draft, tree: DomainTree, parts: list[Part], wanted: Wanted) -> Iterator[Mask | None]:
    """Domains in which each podset by itself would fit, the narrowest level asked for first, the least room first."""
    rooms = [_room(draft, part, parts) for part in parts]
    fields = [domain_rooms(tree, one) for one in rooms]
    free = draft.free[max(part.shape.request.packed for part in parts)]
    wanted = wanted._replace(room=np.sum(rooms, axis=0), free=free)
    for level, domain in starts(domains_of(tree, wanted), wanted):
        if level < 0:
            yield None
        elif all(field[level][domain] >= part.size for field, part in zip(fields, parts)):
            yield tree.codes[level] == domain


def _together(draft: Draft, tree: DomainTree, parts: list[Part]) -> Placements | None:
    """All podsets: those first beside which others must run, then that with the fewest places. If they do not fit so,
    the other way round, then with those that must meet in one domain, then spread instead of packed or the reverse, for
    that is a wish by which one podset may leave the other no place; then out of each other's way; last, of a few pods
    and nodes, in any way there is."""
    rooms = {part.podset.name: _room(draft, part, parts) for part in parts}
    scarcity = {part.podset.name: int(rooms[part.podset.name].sum()) // part.size for part in parts}
    if not all(scarcity.values()):
        return None
    if len(parts) == 1:
        return _in_order(draft, tree, parts)
    order = sorted(parts, key=lambda part: (_follows(part, parts), scarcity[part.podset.name]))
    other = "Spread" if all(part.strategy == "Binpack" for part in parts) else "Binpack"
    turned = [part._replace(strategy=other) for part in order]
    aside = (_aside(some, rooms) for some in (order, order[::-1]))
    orders = chain((order, order[::-1]), _meetings(draft, order, rooms), (turned, turned[::-1]), aside)
    for some, given in chain(zip(orders, repeat(NOWHERE)), _packed(draft, tree, order, rooms)):
        with draft.trial():
            placed = _in_order(draft, tree, some, given)
        if placed is not None:
            return tuple(sorted(placed, key=lambda one: [part.podset.name for part in parts].index(one.name)))
    return None


def _packed(
    draft: Draft, tree: DomainTree, parts: list[Part], rooms: Mapping[str, Counts]
) -> Iterator[tuple[list[Part], Pieces]]:
    """The podsets, and where they go if all ways are tried; none where pods are many or look beside them."""
    fields = np.array([rooms[part.podset.name] for part in parts])
    rows = tree.rows[fields[:, tree.rows].any(axis=0)]
    is_bound = any(part.topology.segments or part.anchors is not None or looks_beside(part.shape.pod)
                   or is_drawn(part.shape.pod, draft.standing) for part in parts)  # fmt: skip
    if is_bound or len(rows) > MOST_ROWS or sum(part.size for part in parts) > MOST_PODS:
        return
    packing = Packing(
        draft.free[:, rows].T.tolist(), [_alike(tree, part, rooms[part.podset.name], rows) for part in parts]
    )
    if packing.is_found():
        ends = np.cumsum([part.size for part in parts])
        groups = (np.unique(each, return_counts=True) for each in np.split(np.array(packing.rows), ends[:-1]))
        pieces = (list(zip(rows[at].tolist(), counts.tolist())) for at, counts in groups)
        yield parts, dict(zip((part.podset.name for part in parts), pieces))


def _alike(tree: DomainTree, part: Part, room: Counts, rows: Rows) -> Alike:
    """What a podset asks of these rows."""
    room, domain = room[rows], np.zeros(len(rows), np.int64)
    if required := part.topology.required:
        level = tree.levels.index(required)
        domain = tree.codes[level][rows].astype(np.int64)
        room = np.where(tree.is_named[level][domain], room, 0)
    return Alike(part.size, part.shape.request.needs, room.tolist(), domain.tolist())


def _aside(parts: list[Part], rooms: Mapping[str, Counts]) -> list[Part]:
    """The first on as few as hold it of the nodes where the others have the least room."""
    first, *others = parts
    nodes = np.argsort(np.sum([rooms[part.podset.name] for part in others], axis=0), kind="stable")
    enough = int(np.searchsorted(np.cumsum(rooms[first.podset.name][nodes]), first.size)) + 1
    region = np.zeros(len(nodes), bool)
    region[nodes[:enough]] = True
    return [_within(first, region), *others]


def _follows(part: Part, parts: Iterable[Part]) -> bool:
    """Whether its pods must stand beside those of another podset."""
    return any(attracts(one.shape.pod, part.shape.pod) for one in parts if one.podset is not part.podset)


def _meetings(draft: Draft, parts: list[Part], rooms: Mapping[str, Counts]) -> Iterator[list[Part]]:
    """The podsets with those of which one must stand beside another in one domain, the tightest first."""
    led = [part for part in parts if _follows(part, parts)]
    involved = [part for part in parts if part in led or any(_follows(one, (one, part)) for one in led)]
    keys = [term.topology_key for part in led for term in part.shape.pod.pod_affinity if not term.anti]
    sizes, inside = [part.size for part in involved], [rooms[part.podset.name] for part in involved]
    for key in dict.fromkeys(keys):
        for domain in islice(_domains(draft, key, inside, sizes), MOST_MEETINGS):
            yield [_within(part, domain) if part in involved else part for part in parts]


def _domains(draft: Draft, key: str, rooms: list[Counts], sizes: list[int]) -> Iterator[Mask]:
    """Domains of a topology key that could hold so many pods of each, the tightest first."""
    codes, values = labels_of(draft.snapshot, key)
    totals = [np.bincount(codes + 1, weights=room, minlength=len(values) + 1)[1:] for room in rooms]
    fits = np.all([total >= size for total, size in zip(totals, sizes)], axis=0)
    for domain in np.argsort(np.sum(totals, axis=0), kind="stable").tolist():
        if fits[domain]:
            yield codes == domain


def _in_order(draft: Draft, tree: DomainTree, parts: list[Part], given: Pieces = NOWHERE) -> Placements | None:
    """One podset after the other, each taking its room of the draft; there where it is `given`."""
    placed = []
    for part in parts:
        is_single = looks_beside(part.shape.pod) or is_drawn(part.shape.pod, draft.standing)
        pieces = given.get(part.podset.name) or (_singly if is_single else _batched)(draft, tree, part)
        whole = _shares(draft, part, pieces or [])
        if pieces is None or len(whole) < len(pieces):
            return None
        if part is not parts[-1]:
            draft.seat(part.podset, part.shape.pool, whole)
        placed.append(PodSetPlacement(part.podset.name, whole))
    return tuple(placed)


def _shares(draft: Draft, part: Part, pieces: list[Piece]) -> tuple[NodeShare, ...]:
    """With devices, as far as there are any; a node that comes twice has fewer left the second time."""
    is_repeated, shares = len({row for row, _ in pieces}) < len(pieces), list[NodeShare]()
    with draft.trial():
        for row, count in pieces:
            if (share := choose(draft, part.shape, row, count=count)) is None:
                break
            shares.append(share)
            if is_repeated:
                draft.seat(part.podset, part.shape.pool, (share,))
    return tuple(shares)


def room_for(draft: Draft, shape: Shape, allowed: Mask | None) -> Counts:
    """int64[node]: pods that each of the allowed nodes could take now."""
    room = cache_of(draft).room(shape)
    return room if allowed is None else np.where(allowed, room, 0)


def _room(draft: Draft, part: Part, others: Iterable[Part] = ()) -> Counts:
    """Room on the nodes that its pods may use; there may be more beside pods of `others`, which come with it."""
    pods = room_for(draft, part.shape, part.allowed)
    if draft.standing:
        opens = apart if _follows(part, others) else bears
        pods = np.where(opens(draft.snapshot, draft.standing, part.shape.pod), pods, 0)
    return pods


def _batched(draft: Draft, tree: DomainTree, part: Part) -> list[Piece] | None:
    """Pods that do not look at each other, in one go."""
    is_flat = (part.strategy != "Binpack" or part.shape.request.share > 0) and not part.topology.segments
    wish = linear(draft.snapshot, part.shape, 1.0).base
    wanted = _wanted(draft, part, _room(draft, part))
    fill = Filling(draft, part).fill
    split = len(tree.levels) if is_flat else -1
    return lay(tree, wanted._replace(fill=fill, wish=wish if np.ptp(wish) else None, split=split))


def _wanted(draft: Draft, part: Part, pods: Counts) -> Wanted:
    free = draft.free[part.shape.request.packed]
    return Wanted(part.size, part.topology, pods, free, anchors=part.anchors, whole=part.podset.count)


def _singly(draft: Draft, tree: DomainTree, part: Part) -> list[Piece] | None:
    """Pod by pod, each where the ones before it let it stand, in the first domain that holds them all."""
    pods = _room(draft, part)
    wanted = _wanted(draft, part, pods)._replace(topology=replace(part.topology, segments=()))
    for level, domain in starts(domains_of(tree, wanted), wanted):
        inside = pods if level < 0 else np.where(tree.codes[level] == domain, pods, 0)
        if part.topology.segments:
            with draft.trial():
                pieces = _by_segment(draft, tree, _within(part, inside > 0))
            if pieces is not None:
                return pieces
            continue
        homes = (np.where(domain, inside, 0) for key in bound_to_itself(part.shape.pod)
                 for domain in _domains(draft, key, [inside], [part.size]))  # fmt: skip
        for region in chain((inside,), homes):
            with draft.trial():
                rows = _one_by_one(draft, part, region.copy())
            if rows is not None:
                return [(row, rows.count(row)) for row in tree.rows.tolist() if row in rows]
    return None


def _by_segment(draft: Draft, tree: DomainTree, part: Part) -> list[Piece] | None:
    """Segment after segment, each in one domain of its level; one that was begun goes on where it stands."""
    outer, *inner = part.topology.segments
    begun = 0 if part.anchors is None else len(part.anchors) % outer.size
    anchors, left = part.anchors[-begun:] if begun and part.anchors is not None else None, part.size
    whole, topology = list[Piece](), Topology(outer.level, "", tuple(inner))
    while left:
        size = min(outer.size - begun, left)
        pieces = _singly(draft, tree, part._replace(size=size, topology=topology, anchors=anchors))
        if pieces is None:
            return None
        for row, count in pieces:
            if (share := choose(draft, part.shape, row, count=count)) is None:
                return None
            draft.seat(part.podset, part.shape.pool, (share,))
        whole, left, begun, anchors = whole + pieces, left - size, 0, None
    return whole


def _one_by_one(draft: Draft, part: Part, pods: Counts) -> list[int] | None:
    """The row of each pod, in the order placed. `pods` is used up."""
    shape, leaving, rows = part.shape, draft.leaving() if part.shape.pod.spread else {}, list[int]()
    while len(rows) < part.size:
        fits = np.flatnonzero((pods > 0) & admits(draft.snapshot, draft.standing, shape, leaving))
        if not len(fits):
            return None
        liked = WISH * likes(draft.snapshot, draft.standing, shape, leaving)[fits]
        row = int(fits[np.argmax(cache_of(draft).values(shape, part.strategy)[fits] + liked)])
        share = choose(draft, shape, row, count=1)
        if share is None:
            pods[row] = 0
            continue
        draft.seat(part.podset, shape.pool, (share,))
        pods[row] = min(pods[row] - 1, room_of(draft, shape, np.array([row]))[0])
        rows.append(row)
    return rows


class Filling(NamedTuple):
    """How the nodes of one narrowest domain are filled."""

    draft: Draft
    part: Part

    def fill(self, rows: Rows, pods: Counts, count: int) -> list[Piece]:
        """Rows, in the order given, and counts; the rows hold them all."""
        if len(rows) == 1:
            return [(int(rows[0]), count)]
        rows, pods, (draft, part) = rows[pods > 0], pods[pods > 0], self
        request, values = part.shape.request, cache_of(draft).values(part.shape, part.strategy)[rows]
        if count == 1:
            return [(int(rows[np.lexsort((rows, -values))[0]]), 1)]
        chosen = np.zeros_like(pods)
        if request.share and part.strategy in ("Binpack", "Spread"):  # shared devices first
            shared = np.minimum(shared_room(draft, request, rows), pods)
            chosen = _along(np.lexsort((rows, -values)), shared, min(count, int(shared.sum())))
            base, column, slope = linear(draft.snapshot, part.shape, 1.0 if part.strategy == "Spread" else -1.0)
            values = base[rows] + slope * (draft.free[column, rows] - chosen * request.size)
        fill = self._one_each if part.strategy == "Spread" else self._whole
        chosen = chosen + fill(rows, pods - chosen, values, count - int(chosen.sum()))
        used = np.flatnonzero(chosen)
        return list(zip(rows[used].tolist(), chosen[used].tolist()))

    def _whole(self, rows: Rows, pods: Counts, values: Values, count: int) -> Counts:
        """All on one node that holds them, the best or, in a domain that was asked for, the one with the least room;
        else there on the fewest, or in the order of scores."""
        is_tight = bool(levels_asked(self.part.topology))
        order = np.lexsort((rows, -values, pods) if is_tight else (rows, -values))
        if count and (is_tight or pods.max() >= count):
            chosen = np.zeros_like(pods)
            for at, part in pick(pods, count, order):
                chosen[at] = part
            return chosen
        return _along(order, pods, count)

    def _one_each(self, rows: Rows, pods: Counts, values: Values, count: int) -> Counts:
        """Each pod where the most is free after those before it; of fractions as many at once as share a device."""
        request, chosen = self.part.shape.request, np.zeros_like(pods)
        step = linear(self.draft.snapshot, self.part.shape, 1.0).slope * request.size
        several = DEVICE // request.share if request.share else 1
        heap = list(zip(np.where(pods > 0, -values, np.inf).tolist(), rows.tolist(), range(len(rows)), pods.tolist()))
        heapify(heap)
        while count:
            value, row, at, room = heap[0]
            taken = min(several, room, count)
            chosen[at], count = chosen[at] + taken, count - taken
            heapreplace(heap, (value + step * taken if taken < room else np.inf, row, at, room - taken))
        return chosen


def _along(order: Rows, pods: Counts, count: int) -> Counts:
    """So many pods, each place in order filled before the next."""
    chosen = np.zeros_like(pods)
    ends = np.minimum(np.cumsum(pods[order]), count)
    chosen[order] = np.diff(ends, prepend=0)
    return chosen
