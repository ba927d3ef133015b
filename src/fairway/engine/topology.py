"""Levels and domains: the tightest domain that holds a podset, and how its pods lie inside it.

A tree is read off the pool's levels, widest first. A domain is a path of label values, so equal values under different
parents are different domains; ids follow the order of paths, children and nodes of a domain are neighbours, and ranks
are laid out in that order. A node without a level's label is in no domain of it: it stands in a nameless one, which is
never chosen for a constraint but still belongs to its parent.

Where to start: the narrowest level asked for; among its domains that fit, those with room for all that an elastic
podset may have; of these the one with the least room, in pods, and of equals with the least free of what packing looks
at; a preference climbs until one fits, and splits over the fewest where none does. From there down the levels the same
rule.
A segment's level holds whole segments only: its domains' rooms are rounded down, the narrowest first.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .feasibility import ByNode, Counts, Piece, Rows, Values, labels_of, pick, pool_row
from .model import Segment, Topology
from .snapshot import Mask, Snapshot, of_nodes

Fill = Callable[[Rows, Counts, int], list[Piece]]
"""Lays so many pods on rows with these rooms, which hold them all."""


class DomainTree(NamedTuple):
    """`codes[i]`: int32[node], the domain of level i a node is in, nameless ones included, -1 outside the pool.
    `first[i]`: where the children of each domain of level i-1 begin among those of level i; for i = 0 of the root, for
    the last i the nodes in `rows`. `is_named[i]`: bool[domain]."""

    levels: tuple[str, ...]
    codes: tuple[NDArray[np.int32], ...]
    first: tuple[Rows, ...]
    is_named: tuple[Mask, ...]
    rows: Rows


class Wanted(NamedTuple):
    """What is to be laid out: so many pods, `room[node]` for them, `free[node]` of what packing looks at, how to fill
    nodes of one narrowest domain. `anchors`: the row of each pod that stands already, in rank order; `wish`:
    float64[node], what the user likes, before tightness; `split`: the level at which the starting domain is divided
    first, -1 for the next below it. `whole`: how many pods an elastic podset would have."""

    size: int
    topology: Topology
    room: Counts
    free: Counts
    fill: Fill = lambda rows, rooms, count: []  # enough to ask where to start
    anchors: Rows | None = None
    wish: Values | None = None
    split: int = -1
    whole: int = 0


class Domains(NamedTuple):
    """What each domain can hold, level by level: pods, in whole segments; what is free; how much it is wished for."""

    tree: DomainTree
    rooms: list[Counts]
    free: list[Counts]
    wishes: list[Values] | None


@of_nodes
def tree_of(snapshot: Snapshot, pool: str) -> DomainTree:
    row = pool_row(snapshot, pool)
    levels, rows = snapshot.pools[row].levels if row >= 0 else (), np.flatnonzero(snapshot.pool_of == row)
    codes, first, named = [], [], []
    above, parents = np.zeros(len(rows), np.int64), 1
    for level in levels:
        labels = labels_of(snapshot, level)
        nameless = len(labels.values)
        value = np.where(labels.codes[rows] >= 0, labels.codes[rows], nameless)
        paths, inverse = np.unique(above * (nameless + 1) + value, return_inverse=True)
        first.append(np.searchsorted(paths // (nameless + 1), np.arange(parents + 1)))
        named.append(paths % (nameless + 1) < nameless)
        above, parents = inverse.astype(np.int64), len(paths)
        code = np.full(len(snapshot.nodes), -1, np.int32)
        code[rows] = above
        codes.append(code)
    order = np.argsort(above, kind="stable")
    first.append(np.searchsorted(above[order], np.arange(parents + 1)))
    return DomainTree(levels, tuple(codes), tuple(first), tuple(named), rows[order])


def levels_asked(*topologies: Topology) -> list[str]:
    asked = [(one.required, one.preferred, *(segment.level for segment in one.segments)) for one in topologies]
    return [level for levels in asked for level in levels if level]


def domains_of(tree: DomainTree, wanted: Wanted) -> Domains:
    """What is in no domain of the required level has no room, in whichever narrower one it is."""
    room, segments = wanted.room, wanted.topology.segments
    if wanted.topology.required:
        index = tree.levels.index(wanted.topology.required)
        if not tree.is_named[index].all():  # else there is none such
            room = np.where(np.append(tree.is_named[index], False)[tree.codes[index]], room, 0)
    free = domain_rooms(tree, np.where(room > 0, wanted.free, 0))
    wishes = None
    if wanted.wish is not None:
        wish: Values = np.where(wanted.room > 0, wanted.wish, -np.inf)
        wishes = domain_rooms(tree, wish, reduce=np.maximum)
    return Domains(tree, domain_rooms(tree, room, segments), free, wishes)


def lay(tree: DomainTree, wanted: Wanted) -> list[Piece] | None:
    """Rows and counts in rank order, or None where no domain holds the podset. Every level asked for is in the tree.
    A last segment that is not full lies in one domain of its level as well, and has the last ranks."""
    segments = wanted.topology.segments
    if segments and wanted.anchors is not None and (begun := len(wanted.anchors) % segments[0].size):
        return _complete(tree, wanted, wanted.anchors, begun)
    rest = wanted.size % segments[0].size if segments else 0
    whole = wanted._replace(size=wanted.size - rest)
    plain = wanted.topology if whole.size else replace(wanted.topology, segments=())  # less than one is no whole one
    domains = domains_of(tree, wanted._replace(topology=plain))
    for level, domain in starts(domains, whole):
        pieces = _over_fewest(domains, whole, (level, domain))
        if not rest:
            return pieces
        inside = wanted.room if level < 0 else np.where(tree.codes[level] == domain, wanted.room, 0)
        if (tail := lay(tree, _last_segment(wanted, inside, pieces))) is not None:
            return pieces + tail
    return None


def _last_segment(wanted: Wanted, inside: Counts, pieces: list[Piece]) -> Wanted:
    outer, *inner = wanted.topology.segments
    topology = Topology(required=outer.level, segments=tuple(inner))
    return wanted._replace(size=wanted.size % outer.size, topology=topology, room=_less(inside, pieces), anchors=None)


def _complete(tree: DomainTree, wanted: Wanted, stands: Rows, begun: int) -> list[Piece] | None:
    """Ranks go on in the segment of which so many stand already, and then as usual."""
    outer, *inner = wanted.topology.segments
    codes = tree.codes[tree.levels.index(outer.level)]
    more = min(outer.size - begun, wanted.size)
    inside, topology = np.where(codes == codes[stands[-1]], wanted.room, 0), Topology(outer.level, "", tuple(inner))
    first = lay(tree, wanted._replace(size=more, topology=topology, room=inside, anchors=stands[-begun:]))
    if first is None or more == wanted.size:
        return first
    stands = np.append(stands, [row for row, count in first for _ in range(count)])
    left = wanted._replace(size=wanted.size - more, room=_less(wanted.room, first), anchors=stands)
    rest = lay(tree, left)
    return None if rest is None else first + rest


def _less(room: Counts, pieces: list[Piece]) -> Counts:
    left = room.copy()
    for row, count in pieces:
        left[row] -= count
    return left


def domain_rooms(
    tree: DomainTree, room: ByNode, segments: tuple[Segment, ...] = (), *, reduce: np.ufunc = np.add
) -> list[ByNode]:
    """What each domain has in sum, level by level; at a segment's level in whole segments, of named domains alone."""
    sizes = {segment.level: segment.size for segment in segments}
    rooms: list[ByNode] = []
    inner = room[tree.rows]
    for index in range(len(tree.levels) - 1, -1, -1):
        begins = tree.first[index + 1][:-1]
        inner = reduce.reduceat(inner, begins) if len(begins) < len(inner) else inner  # as many: each is its own sum
        if size := sizes.get(tree.levels[index], 0):
            inner = np.where(tree.is_named[index], inner // size * size, 0)
        rooms.insert(0, inner)
    return rooms


def starts(domains: Domains, wanted: Wanted) -> Iterator[tuple[int, int]]:
    """Level and domain to lay the podset in, the best first: of the narrowest level asked for, then, for a preference,
    of wider ones up to the required; last, where nothing is required, the whole pool as level -1. One pod by itself
    has what it prefers anywhere, and is packed like one that asks for nothing."""
    tree, topology = domains.tree, wanted.topology
    required, preferred = (tree.levels.index(one) if one else -1 for one in (topology.required, topology.preferred))
    if max(wanted.size, wanted.whole) == 1 and wanted.anchors is None:
        preferred = required
    for level in range(max(required, preferred), max(required, 0) - 1, -1):
        fits = tree.is_named[level] & (domains.rooms[level] >= max(wanted.size, 1))
        if wanted.anchors is not None:
            fits &= np.isin(np.arange(len(fits)), tree.codes[level][wanted.anchors])
        ids = np.flatnonzero(fits)
        ids = ids[_tightest_first(domains, level, ids)]
        ids = ids[np.argsort(domains.rooms[level][ids] < wanted.whole, kind="stable")]  # an elastic one grows there
        for domain in ids.tolist():
            yield level, domain
    if required < 0 and (domains.rooms[0] if domains.rooms else wanted.room[tree.rows]).sum() >= wanted.size:
        yield -1, 0


def _tightest_first(domains: Domains, level: int, ids: Rows) -> Rows:
    rooms, free = domains.rooms[level][ids], domains.free[level][ids]
    return np.lexsort((free, rooms) if domains.wishes is None else (free, rooms, -domains.wishes[level][ids]))


def _over_fewest(domains: Domains, wanted: Wanted, start: tuple[int, int]) -> list[Piece]:
    """Level by level; where the preferred level is further down and that makes fewer of its domains, divided there."""
    levels, topology = domains.tree.levels, wanted.topology
    pieces = _descend(domains, wanted, start, wanted.size)
    preferred = levels.index(topology.preferred) if topology.preferred and not topology.segments else -1
    if wanted.size == 1 or wanted.split >= preferred or preferred <= start[0] + 1:
        return pieces
    at_once = _descend(domains, wanted._replace(split=preferred), start, wanted.size)
    codes = domains.tree.codes[preferred]
    return min(pieces, at_once, key=lambda found: len({codes[row] for row, _ in found}))


def _descend(domains: Domains, wanted: Wanted, start: tuple[int, int], count: int) -> list[Piece]:
    """Lay so many pods in a domain that holds them: in one child where one does, else over the fewest."""
    tree, below, domain = domains.tree, start[0] + 1, start[1]
    low, high = tree.first[below][domain], tree.first[below][domain + 1]
    if not count:
        return []
    while below < wanted.split:
        below += 1
        low, high = tree.first[below][low], tree.first[below][high]
    if below == len(tree.levels):
        rows = tree.rows[low:high]
        return wanted.fill(rows, wanted.room[rows], count)
    rooms = domains.rooms[below][low:high]
    if count == rooms.sum() and not wanted.topology.segments:  # all of it: every child is full
        parts = list(enumerate(rooms.tolist()))
    else:
        parts = pick(rooms, count, _tightest_first(domains, below, np.arange(low, high)))
    pieces: list[Piece] = []
    for child, part in parts:
        pieces += _descend(domains, wanted, (below, int(low) + child), part)
    return pieces
