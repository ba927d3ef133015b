"""Where workloads that must leave their places could go, instead of being requeued.

A victim that fits elsewhere is moved, and does not count as taken. So victims are chosen knowing which of them could
be moved. That is asked of many and must be cheap: nothing is written, and what is idle is looked at as it is, without
what the victim itself holds on other nodes. Whether a victim does move is known when all is placed.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from .cycle import Cycle
from .eligibility import over_limit
from .feasibility import pool_row
from .model import Admission, Running
from .place import place
from .snapshot import Mask

Needs = Counter[tuple[str, int]]  # amounts by pool and resource column


class Idle:
    """By the draft's version: idle `sums` of a pool by column; `places` of workloads alike, and their needs there."""

    def __init__(self) -> None:
        self.sums = dict[tuple[str, int], list[int]]()
        self.places = dict[tuple[object, ...], tuple[Admission, Needs] | None]()


def find_new_place(one: Running, cycle: Cycle, *, is_whole: bool = False) -> Admission | None:
    """A place, in idle room and its own, for all pods it has and lost, else, unless `is_whole`, for what it needs."""
    with cycle.draft.trial(), cycle.timeline.kept(one.workload):
        cycle.draft.vanish(one.workload.key)
        return _search(one, cycle, is_whole=is_whole)


def movable(victims: Iterable[Running], row: int, cycle: Cycle, spoken: Needs) -> dict[str, Needs]:
    """By key, the workloads that would find a place in the room that is idle now, off this node, and what they need
    there; in sum no more than there is room for beside what is spoken for."""
    found, used, free = dict[str, Needs](), spoken.copy(), cycle.draft.free
    for one in victims:
        if (known := _idle_place(one, row, cycle)) is None:
            continue
        there, needs = known
        sums = _idle_sums(there.pool, cycle)
        if all(sums[at[1]] - max(free[at[1], row], 0) >= amount + used[at] for at, amount in needs.items()):
            found[one.workload.key] = needs
            used.update(needs)
    return found


def speak_for(victims: list[Running], row: int, cycle: Cycle, spoken: Needs) -> Iterable[str]:
    """Count the room that those of them take which are movable off this node; returns their keys."""
    moved = movable(victims, row, cycle, spoken)
    for needs in moved.values():
        spoken.update(needs)
    return moved


def _idle_sums(pool: str, cycle: Cycle) -> list[int]:
    """What is free of each resource in a pool in sum."""
    sums, key = cycle.memo.of(Idle).sums, (pool, cycle.draft.version)
    if key not in sums:
        mask = cycle.snapshot.pool_of == pool_row(cycle.snapshot, pool)
        sums[key] = np.maximum(cycle.draft.free[:, mask], 0).sum(axis=1).tolist()
    return sums[key]


def _idle_place(one: Running, row: int, cycle: Cycle) -> tuple[Admission, Needs] | None:
    """Its place off this node, and what it needs there; known for all that are alike."""
    workload, places, version = one.workload, cycle.memo.of(Idle).places, cycle.draft.version
    key = id(workload.podsets), workload.queue, workload.pools, workload.excluded_nodes, one.lost, version
    if key not in places:
        places[key] = _aside(one, None, cycle)
    there = places[key]
    return there if there is None or cycle.snapshot.nodes[row].name not in there[0].nodes else _aside(one, row, cycle)


def _aside(one: Running, row: int | None, cycle: Cycle) -> tuple[Admission, Needs] | None:
    """Its place, that node apart, and what it needs there."""
    podsets, allowed = one.workload.podsets, None if row is None else np.arange(len(cycle.snapshot.nodes)) != row
    with cycle.timeline.kept(one.workload):
        there = _search(one, cycle, allowed)
    if there is None:
        return None
    held = cycle.draft.holdings(podsets, there).values()
    amounts = [sum(column) for column in list(zip(*held))[: len(cycle.snapshot.resources)]]
    return there, Needs({(there.pool, column): amount for column, amount in enumerate(amounts) if amount})


def _search(one: Running, cycle: Cycle, allowed: Mask | None = None, *, is_whole: bool = False) -> Admission | None:
    """The first pool, and places, for all the pods it has and lost, else for as many as it needs."""
    workload, full = one.workload, cycle.whole(one)
    for counts in dict.fromkeys((full, full if is_whole else cycle.least(workload))):
        ask = cycle.ask(workload, counts)
        if allowed is not None:
            ask = ask._replace(allowed=allowed if ask.allowed is None else allowed & ask.allowed)
        for pool in cycle.pools_of(workload):
            accounts, asked = cycle.accounts(workload, pool), cycle.tree.amounts(workload.podsets, counts, pool)
            if (one.lost or pool != one.admission.pool) and over_limit(accounts, asked):
                continue
            if (placed := place(cycle.draft, ask, pool)) is not None:
                return Admission(pool, placed)
    return None
