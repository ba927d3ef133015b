"""What a plan would make of the world, laid out for the referee: who starts, who leaves, and what each of them takes.

A Case sorts the verdicts; a Layout turns places into arrays, one entry per node share. Workloads that share their
podsets and their admission are one *form* and are laid out once, which is what makes a check of many alike cheap.
Everything is counted here anew from the values; only `snapshot.free` is believed. Nothing here judges.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .model import Admission, NodeShare, PodClass, PodSetPlacement, Running, Workload
from .plan import Admit, Evict, Finish, Plan, Resize, Verdict
from .resources import DEVICE, shared, taken
from .snapshot import Columns, Snapshot

Rows = NDArray[np.int64]


class Held(NamedTuple):
    """Pods of a workload at their places. `after`: whose room they may take; `whole`: with the pods that stand already;
    `is_fresh`: decided in this plan."""

    workload: Workload
    admission: Admission
    after: tuple[str, ...]
    whole: Admission
    is_fresh: bool = True


@dataclass(frozen=True, slots=True)
class Case:
    """A plan sorted: `starts` are pods that will start (those promised before come first, then as decided), `leaves`
    pods that hold their room until they are gone. Verdicts that their workload's state forbids appear in neither."""

    snapshot: Snapshot
    plan: Plan
    verdicts: dict[str, Verdict]
    waiting: dict[str, Workload]
    running: dict[str, Running]
    starts: list[Held]
    leaves: list[Held]


def case_of(snapshot: Snapshot, plan: Plan) -> Case:
    verdicts: dict[str, Verdict] = {}
    for verdict in plan.verdicts:
        verdicts.setdefault(verdict.workload, verdict)
    waiting = {workload.key: workload for workload in snapshot.pending}
    running = {one.workload.key: one for one in snapshot.running}
    promised, leaves = _standing(verdicts, snapshot.running)
    starts: list[Held] = []
    for verdict in plan.verdicts:
        if isinstance(verdict, Admit):
            if (workload := waiting.get(verdict.workload)) is not None:
                starts.append(Held(workload, verdict.admission, verdict.after, verdict.admission))
        elif isinstance(verdict, Evict | Finish | Resize) and verdict.workload in running:
            _change(running[verdict.workload], verdict, starts, leaves)
    return Case(snapshot, plan, verdicts, waiting, running, promised + starts, leaves)


def _standing(verdicts: dict[str, Verdict], running: Sequence[Running]) -> tuple[list[Held], list[Held]]:
    """What was promised before and is told again, where leaving ones move to, and what is leaving already."""
    promised, moving, leaves = [], [], []
    for one in running:
        if one.is_leaving:
            leaves.append(Held(one.workload, one.admission, (), one.admission))
            if one.moves_to is not None:
                moving.append(Held(one.workload, one.moves_to, (one.workload.key,), one.moves_to, False))
        elif one.is_promised:
            verdict = verdicts.get(one.workload.key)
            if isinstance(verdict, Admit):
                promised.append(Held(one.workload, verdict.admission, verdict.after, verdict.admission, False))
    return promised + moving, leaves


def _change(one: Running, verdict: Evict | Finish | Resize, starts: list[Held], leaves: list[Held]) -> None:
    workload = one.workload
    if isinstance(verdict, Resize):
        added, removed = difference(verdict.admission, one.admission), difference(one.admission, verdict.admission)
        if added.podsets:
            starts.append(Held(workload, added, (), verdict.admission))
        if removed.podsets:
            leaves.append(Held(workload, removed, (), one.admission))
        return
    if not one.is_leaving:
        leaves.append(Held(workload, one.admission, (), one.admission))
    if isinstance(verdict, Evict) and verdict.admission is not None:
        starts.append(Held(workload, verdict.admission, (workload.key,), verdict.admission))


def pods_of(placement: PodSetPlacement) -> list[tuple[str, tuple[int, ...]]]:
    """The pods of a podset in rank order: node and devices of each."""
    return [
        (share.node, share.devices[rank] if rank < len(share.devices) else ())
        for share in placement.nodes
        for rank in range(share.count)
    ]


def difference(left: Admission, right: Admission) -> Admission:
    """The pods of `left` that are not in `right`, podset by podset."""
    others = {placement.name: placement for placement in right.podsets}
    podsets = []
    for placement in left.podsets:
        other = others.get(placement.name)
        more = Counter(pods_of(placement)) - Counter(pods_of(other) if other else ())
        shares = tuple(NodeShare(node, count, (devices,) * count if devices else ())
                       for (node, devices), count in more.items())
        if shares:
            podsets.append(PodSetPlacement(placement.name, shares))
    return Admission(left.pool, tuple(podsets))


@dataclass(frozen=True, slots=True)
class Layout:
    """`forms`: one Held of each form; `form_of`: the form of each item. Entries, one per node share of a form: `form`,
    `kind`, `row` (-1: no such node), `count`, `given` (pods with devices), `shares`. `kinds`: pod class and pool;
    `needs`: int64[kind, resource], what one pod takes."""

    items: Sequence[Held]
    forms: list[Held]
    form_of: Rows
    form: Rows
    kind: Rows
    row: Rows
    count: Rows
    given: Rows
    shares: list[NodeShare]
    kinds: list[tuple[PodClass, str]]
    needs: Columns

    def items_of(self, form: int) -> list[int]:
        return [int(item) for item in np.flatnonzero(self.form_of == form)]

    def by_form(self) -> Columns:
        """int64[form, resource]: what all pods of a form take."""
        taken = np.zeros((len(self.forms), self.needs.shape[1]), np.int64)
        np.add.at(taken, self.form, self.needs[self.kind] * self.count[:, None])
        return taken

    def by_node(self, nodes: int) -> Columns:
        """int64[resource, node]: what all items take."""
        times = np.bincount(self.form_of, minlength=len(self.forms))
        here = self.row >= 0
        row, kind, pods = self.row[here], self.kind[here], (self.count * times[self.form])[here]
        taken = np.zeros((self.needs.shape[1], nodes), np.int64)
        for column in np.flatnonzero(self.needs.any(axis=0)):
            np.add.at(taken[column], row, self.needs[kind, column] * pods)
        return taken


def layout_of(snapshot: Snapshot, items: Sequence[Held]) -> Layout:
    seen: dict[tuple[int, int], int] = {}
    forms: list[Held] = []
    form_of = []
    for item in items:
        form = seen.setdefault((id(item[0].podsets), id(item[1])), len(forms))
        if form == len(forms):
            forms.append(item)
        form_of.append(form)
    kinds: dict[tuple[int, str], int] = {}
    classes: list[tuple[PodClass, str]] = []
    entries: list[tuple[int, int, int, int, int]] = []
    shares: list[NodeShare] = []
    row_of = snapshot.row_of
    for form, item in enumerate(forms):
        pods = {podset.name: podset.pod for podset in item[0].podsets}
        pool = item[1].pool
        for placement in item[1].podsets:
            if (pod := pods.get(placement.name)) is None:
                continue
            kind = kinds.setdefault((id(pod), pool), len(classes))
            if kind == len(classes):
                classes.append((pod, pool))
            for share in placement.nodes:
                entries.append((form, kind, row_of.get(share.node, -1), share.count, len(share.devices)))
                shares.append(share)
    form_, kind_, row, count, given = np.array(entries, np.int64).reshape(-1, 5).T
    needs = np.array([needs_of(snapshot, pod, pool) for pod, pool in classes], np.int64)
    return Layout(items, forms, np.array(form_of, np.int64), form_, kind_, row, count, given, shares, classes,
                  needs.reshape(-1, len(snapshot.resources)))


def needs_of(snapshot: Snapshot, pod: PodClass, pool: str) -> list[int]:
    """What one pod takes of each column."""
    takes = taken(pod, memory_of(snapshot, pool))
    return [takes.get(resource, 0) for resource in snapshot.resources]


def memory_of(snapshot: Snapshot, pool: str) -> int:
    """Bytes of the smallest GPU of a pool, by which requests of memory count; 0: unknown."""
    return next((memory for one, memory in zip(snapshot.pools, snapshot.gpu_memory) if one.name == pool), 0)


Cell = tuple[int, int]
"""Row of a node, and the index of a device in it."""


def devices_in_use(case: Case) -> dict[Cell, int]:
    """What is taken of each device before the plan, where devices are known; what was promised is not in use."""
    snapshot = case.snapshot
    told = {item.workload.key for item in case.starts if not item.is_fresh}
    used: dict[Cell, int] = defaultdict(int)
    for one in snapshot.running:
        if one.workload.key not in told or one.is_leaving:
            for cell, amount in cells(snapshot, one.workload, one.admission):
                used[cell] += amount
    for pod in snapshot.pods:
        row = snapshot.row_of.get(pod.node, -1)
        memory = snapshot.gpu_memory[snapshot.pool_of[row]] if row >= 0 and snapshot.pool_of[row] >= 0 else 0
        for index in pod.devices:
            used[row, index] += shared(pod.pod, memory) or DEVICE
    return used


def cells(snapshot: Snapshot, workload: Workload, admission: Admission) -> Iterator[tuple[Cell, int]]:
    """The devices that pods hold, and how much of each."""
    for placement in admission.podsets:
        pod = next((one.pod for one in workload.podsets if one.name == placement.name), None)
        for share in placement.nodes if pod is not None else ():
            for index in chain(*share.devices):
                part = shared(pod, memory_of(snapshot, admission.pool)) if pod is not None else 0
                yield (snapshot.row_of.get(share.node, -1), index), part or DEVICE
