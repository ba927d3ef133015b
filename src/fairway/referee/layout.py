"""Pods at their places as arrays: what each item takes of what there is only once.

Items that share podsets and admission are one *form* and are laid out once, which is what makes a check of many alike
cheap. What there is once is numbered in *cells*: first each resource of each node (column · nodes + row), then each
device (row · slots + slot). Nothing here judges.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np

from fairway.engine import (
    DEVICE,
    GPU,
    Admission,
    Columns,
    Mask,
    NodeShare,
    PodClass,
    PodSet,
    Snapshot,
    Workload,
    shared,
    slices,
    taken,
)

Role = Literal["new", "more", "moved", "told", "leaving", "evicted", "stands"]
DECIDED: tuple[Role, ...] = ("new", "more", "moved")  # what this plan starts
LEAVES: tuple[Role, ...] = ("leaving", "evicted")


class Item(NamedTuple):
    """Pods of a workload at their places. `role`: newly admitted, more of one that runs, moved, told again (promised in
    an earlier plan); leaving already, told to leave, standing. `after`: whose room they may take. `whole`: with those
    pods of the workload that stand already."""

    workload: Workload
    admission: Admission
    role: Role
    after: tuple[str, ...] = ()
    whole: Admission | None = None

    @property
    def key(self) -> str:
        return self.workload.key


class Layout:
    """`forms`: one item of each form; `form_of`: the form of each item. Entries, one per node share of a form: `form`,
    `kind`, `row` (-1: no such node), `count`, `given` (pods with devices), `shares`. `kinds`: pod class and pool, of
    which one pod takes `needs`: int64[kind, resource]. `odd`: forms that are no whole gang."""

    def __init__(self, snapshot: Snapshot, items: Sequence[Item]) -> None:
        self.snapshot, self.items = snapshot, items
        self.kinds: list[tuple[PodClass, str]] = []
        self.shares: list[NodeShare] = []
        self.odd: set[int] = set()
        seen = dict[tuple[int, int], int]()
        numbers = [seen.setdefault((id(item[0].podsets), id(item[1])), len(seen)) for item in items]
        self.form_of = np.array(numbers, np.int64)
        firsts = np.flatnonzero(np.diff(np.maximum.accumulate(self.form_of), prepend=-1))
        self.forms = [items[at] for at in firsts.tolist()]
        self.form, self.kind, self.row, self.count, self.given = self._entries()
        takes = [taken(pod, memory_of(snapshot, pool)) for pod, pool in self.kinds]
        needs = [[one.get(name, 0) for name in snapshot.resources] for one in takes]
        self.needs = np.array(needs, np.int64).reshape(-1, len(snapshot.resources))

    def _entries(self) -> Columns:
        entries, row_of, kind_of = list[int](), self.snapshot.row_of, dict[tuple[int, str], int]()
        for form, item in enumerate(self.forms):
            podsets, placements, pool = item[0].podsets, item[1].podsets, item[1].pool
            if not len(podsets) == len(placements) == 1 or podsets[0].name != placements[0].name:
                by_name = {one.name: one for one in podsets}
                names, least = [one.name for one in placements], {one.name for one in podsets if one.min_count}
                if len(names) > len(set(names)) or not least <= set(names) <= by_name.keys():
                    self.odd.add(form)
                placements = tuple(one for one in placements if one.name in by_name)
                podsets = tuple(by_name[one.name] for one in placements)
            for podset, placement in zip(podsets, placements):
                kind = kind_of.setdefault((id(podset.pod), pool), len(self.kinds))
                if kind == len(self.kinds):
                    self.kinds.append((podset.pod, pool))
                held = 0
                for share in placement.nodes:
                    held += (count := share.count)
                    entries += (form, kind, row_of.get(share.node, -1), count, len(share.devices))
                self.shares += placement.nodes
                if not podset.min_count <= held <= podset.count:
                    self.odd.add(form)
        return np.array(entries, np.int64).reshape(-1, 5).T

    @cached_property
    def podsets(self) -> list[tuple[PodSet, ...]]:
        """Those of all items, alike ones once."""
        return list({id(form[0].podsets): form[0].podsets for form in self.forms}.values())

    @cached_property
    def members(self) -> list[list[int]]:
        """The items of each form, in order."""
        found: list[list[int]] = [[] for _ in self.forms]
        for item, form in enumerate(self.form_of.tolist()):
            found[form].append(item)
        return found

    def of(self, *roles: Role) -> list[int]:
        """The items in these roles."""
        return [at for at, item in enumerate(self.items) if item[2] in roles]

    def decided(self, bad: Mask) -> Iterator[tuple[Item, int]]:
        """The items that this plan starts, with those of their entries that are bad."""
        for entry in np.flatnonzero(bad).tolist():
            for item in (self.items[at] for at in self.members[self.form[entry]]):
                if item.role in DECIDED:
                    yield item, entry

    # What is taken

    @cached_property
    def takes(self) -> Columns:
        """int64[3, n]: form, cell and amount of all that is taken, by form, each cell once."""
        nodes, size = len(self.snapshot.nodes), self.snapshot.free.size + self.snapshot.device_free.size
        amounts = self.needs[self.kind] * (self.count * (self.row >= 0))[:, None]
        entry, column = np.nonzero(amounts)
        of_nodes = self.form[entry] * size + column * nodes + self.row[entry], amounts[entry, column]
        of_devices = np.array(list(self._given(size)), np.int64).reshape(-1, 2).T
        place, amount = np.concatenate((of_nodes, of_devices), axis=1)
        order = np.argsort(place, kind="stable")
        place = place[order]
        first = np.flatnonzero(np.diff(place, prepend=-1))
        total = np.add.reduceat(amount[order], first) if len(first) else amount
        return np.array((*np.divmod(place[first], size), total))

    def _given(self, size: int) -> Iterator[tuple[int, int]]:
        first, slots = self.snapshot.free.size, self.snapshot.device_free.shape[1]
        for entry in np.flatnonzero((self.given > 0) & (self.row >= 0)).tolist():
            pod, pool = self.kinds[self.kind[entry]]
            row, part = int(self.row[entry]), shared(pod, memory_of(self.snapshot, pool)) or DEVICE
            slot_of = {device.index: slot for slot, device in enumerate(self.snapshot.nodes[row].devices)}
            for index in chain(*self.shares[entry].devices):
                if index in slot_of:
                    yield int(self.form[entry]) * size + first + row * slots + slot_of[index], part

    def total(self, items: Sequence[int]) -> Columns:
        """int64[cell]: what these items take."""
        found = np.zeros(self.snapshot.free.size + self.snapshot.device_free.size, np.int64)
        if not items:
            return found
        times = np.bincount(self.form_of[items], minlength=len(self.forms))
        form, cell, amount = self.takes
        np.add.at(found, cell, amount * times[form])
        return found

    @cached_property
    def _ends(self) -> list[int]:
        ends: list[int] = np.searchsorted(self.takes[0], np.arange(len(self.forms) + 1)).tolist()
        return ends

    def cells(self, item: int) -> Columns:
        """int64[2, n]: the cells that an item takes of, each once, and the amounts."""
        form = int(self.form_of[item])
        first, end = self._ends[form : form + 2]
        return self.takes[1:, first:end]

    def takers(self, cells: Mask) -> dict[int, list[tuple[int, int]]]:
        """Of these cells: the items that take of it, in order, and how much each."""
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for form, cell, amount in self.takes[:, cells[self.takes[1]]].T.tolist():
            found[cell] += [(item, amount) for item in self.members[form]]
        return {cell: sorted(takers) for cell, takers in sorted(found.items())}

    @cached_property
    def amounts(self) -> Columns:
        """int64[form, resource]: what a form takes."""
        amounts = np.zeros((len(self.forms), self.needs.shape[1]), np.int64)
        np.add.at(amounts, self.form, self.needs[self.kind] * self.count[:, None])
        return amounts

    @cached_property
    def counted(self) -> Columns:
        """int64[form, resource]: what a form counts in quotas."""
        return with_profiles(self.snapshot, self.amounts.copy())


def with_profiles(snapshot: Snapshot, amounts: Columns) -> Columns:
    """Amounts by resource, with MIG profiles counted as parts of a GPU, too."""
    sevenths = np.array([slices(name) for name in snapshot.resources], np.int64)
    amounts[..., snapshot.resources.index(GPU)] += amounts @ sevenths * DEVICE // 7
    return amounts


def memory_of(snapshot: Snapshot, pool: str) -> int:
    """Bytes of the smallest GPU of a pool, by which requests of memory count; 0: unknown."""
    return next((memory for one, memory in zip(snapshot.pools, snapshot.gpu_memory) if one.name == pool), 0)
