"""What a plan would make of the world, laid out for the referee: who starts, who leaves, and what each of them takes.

A Case sorts the verdicts; a Layout turns places into arrays, one entry per node share. Workloads that share their
podsets and their admission are one *form* and are laid out once, which is what makes a check of many alike cheap.
All is counted anew from the values; only `snapshot.free` is believed. Nothing here judges.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairway.engine.model import Admission, NodeShare, Pod, PodClass, PodSet, PodSetPlacement, Running, Workload
from fairway.engine.plan import Admit, Evict, Finish, Keep, Plan, Resize, Verdict, Wait
from fairway.engine.resources import DEVICE, shared, taken
from fairway.engine.snapshot import Columns, Snapshot

Rows = NDArray[np.int64]
Kind = TypeVar("Kind", Admit, Evict, Finish, Keep, Resize, Wait)


class Held(NamedTuple):
    """Pods of a workload at their places, and whose room they may take. `role`: newly admitted, more of one that runs,
    moved, told again (promised in an earlier plan); leaving already, or told to leave. `whole`: with those of its pods
    that stand already."""

    workload: Workload
    admission: Admission
    after: tuple[str, ...] = ()
    role: Literal["new", "more", "moved", "told", "leaving", "evicted"] = "new"
    whole: Admission | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A plan sorted. `starts`: pods that will start, those promised before first, then as decided. `leaves`: pods that
    hold their room until they are gone. A verdict that its workload's state forbids is in neither. `special`: those
    starts whose workload sets conditions of its own, beyond its podsets' and its queue's."""

    snapshot: Snapshot
    plan: Plan
    verdicts: dict[str, Verdict]
    waiting: dict[str, Workload]
    running: dict[str, Running]
    starts: list[Held]
    leaves: list[Held]
    special: list[Held]

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [verdict for verdict in self.plan.verdicts if type(verdict) is kind]

    def standing(self) -> list[Held]:
        """Pods that run now, those that are told to leave too; not those promised, nor leaving already."""
        told = {item.workload.key for item in self.starts if item.role == "told"}
        return [Held(one.workload, one.admission) for one in self.snapshot.running
                if not one.is_leaving and one.workload.key not in told]


def case_of(snapshot: Snapshot, plan: Plan) -> Case:
    verdicts = {verdict.workload: verdict for verdict in plan.verdicts}
    waiting = {workload.key: workload for workload in snapshot.pending}
    running = {one.workload.key: one for one in snapshot.running}
    case = Case(snapshot, plan, verdicts, waiting, running, [], [], [])
    for one in snapshot.running:
        if one.is_leaving:
            case.leaves.append(Held(one.workload, one.admission, role="leaving"))
            if one.moves_to is not None:
                case.starts.append(Held(one.workload, one.moves_to, (one.workload.key,), "told"))
        elif one.is_promised and isinstance(verdict := verdicts.get(one.workload.key), Admit):
            case.starts.append(Held(one.workload, verdict.admission, verdict.after, "told"))
    case.leaves.extend(_alone(snapshot, pod) for pod in snapshot.pods if pod.is_leaving)
    givers: dict[str, tuple[str, ...]] = {}
    for verdict in case.of(Resize):
        givers[verdict.beneficiary] = (*givers.get(verdict.beneficiary, ()), verdict.workload)
    for verdict in plan.verdicts:
        if type(verdict) is Admit:
            if (workload := waiting.get(verdict.workload)) is not None:
                case.starts.append(Held(workload, verdict.admission, verdict.after))
        elif type(verdict) is not Wait and type(verdict) is not Keep and verdict.workload in running:
            _change(case, running[verdict.workload], verdict, givers.get(verdict.workload, ()))
    case.special.extend(
        item for item in case.starts if (its := item[0]).after or its.pools or its.excluded_nodes
        or its.backs_off_until is not None or not its.is_active or its.topology.required)
    return case


def _alone(snapshot: Snapshot, pod: Pod) -> Held:
    """A pod of others that is leaving, as a workload of its own."""
    row = snapshot.pool_of[snapshot.row_of[pod.node]] if pod.node in snapshot.row_of else -1
    share = NodeShare(pod.node, 1, (pod.devices,) if pod.devices else ())
    admission = Admission(snapshot.pools[row].name if row >= 0 else "", (PodSetPlacement("", (share,)),))
    return Held(Workload(pod.key, "", (PodSet("", 1, 1, pod.pod),)), admission, role="leaving")


def _change(case: Case, one: Running, verdict: Verdict, givers: tuple[str, ...]) -> None:
    """A running workload stops, moves, shrinks, or grows into what is idle and what `givers` lose for it."""
    workload = one.workload
    if isinstance(verdict, Resize):
        more, less = difference(verdict.admission, one.admission), difference(one.admission, verdict.admission)
        if more.podsets:
            case.starts.append(Held(workload, more, givers, "more", verdict.admission))
        if less.podsets:
            case.leaves.append(Held(workload, less, role="evicted"))
    elif isinstance(verdict, Evict | Finish) and not one.is_leaving:
        case.leaves.append(Held(workload, one.admission, role="evicted"))
        if isinstance(verdict, Evict) and verdict.admission is not None:
            case.starts.append(Held(workload, verdict.admission, (workload.key,), "moved"))


def pods_of(placement: PodSetPlacement) -> list[tuple[str, tuple[int, ...]]]:
    """The pods of a podset in rank order: node and devices of each."""
    return [
        (share.node, share.devices[rank] if rank < len(share.devices) else ())
        for share in placement.nodes
        for rank in range(share.count)
    ]


def difference(left: Admission, right: Admission) -> Admission:
    """The pods of `left` that are not in `right`, podset by podset."""
    others = {placement.name: Counter(pods_of(placement)) for placement in right.podsets}
    podsets = []
    for placement in left.podsets:
        more = Counter(pods_of(placement)) - others.get(placement.name, Counter())
        if more:
            shares = (NodeShare(node, n, (given,) * n if given else ()) for (node, given), n in more.items())
            podsets.append(PodSetPlacement(placement.name, tuple(shares)))
    return Admission(left.pool, tuple(podsets))


@dataclass(frozen=True, slots=True)
class Layout:
    """`forms`: one item of each form; `form_of`: the form of each item. Entries, one per node share of a form: `form`,
    `kind`, `row` (-1: no such node), `count`, `given` (pods with devices), `shares`. `kinds`: pod class and pool;
    `needs`: int64[kind, resource], what one pod takes. `odd`: forms that are no whole gang of their podsets."""

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
    odd: set[int]

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
    kind_of: dict[tuple[int, str], int] = {}
    kinds: list[tuple[PodClass, str]] = []
    entries: list[int] = []
    shares: list[NodeShare] = []
    odd: set[int] = set()
    row_of = snapshot.row_of
    for form, item in enumerate(forms):
        podsets, placements, pool = item[0].podsets, item[1].podsets, item[1].pool
        if len(podsets) > 1 or len(placements) != 1 or podsets[0].name != placements[0].name:
            if sorted(one.name for one in podsets) != sorted(one.name for one in placements):
                odd.add(form)
            placements = tuple(one for podset in podsets for one in placements if one.name == podset.name)
            podsets = tuple(podset for one in placements for podset in podsets if one.name == podset.name)
        for podset, placement in zip(podsets, placements):
            kind = kind_of.setdefault((id(podset.pod), pool), len(kinds))
            if kind == len(kinds):
                kinds.append((podset.pod, pool))
            held = 0
            for share in placement.nodes:
                count = share.count
                held += count
                entries += (form, kind, row_of.get(share.node, -1), count, len(share.devices))
            shares += placement.nodes
            if not podset.min_count <= held <= podset.count:
                odd.add(form)
    of, which, rows, counts, given = np.array(entries, np.int64).reshape(-1, 5).T
    needs = np.array([needs_of(snapshot, pod, pool) for pod, pool in kinds], np.int64)
    needs = needs.reshape(-1, len(snapshot.resources))
    return Layout(items, forms, np.array(form_of, np.int64), of, which, rows, counts, given, shares, kinds, needs, odd)


def needs_of(snapshot: Snapshot, pod: PodClass, pool: str) -> list[int]:
    """What one pod takes of each column."""
    takes = taken(pod, memory_of(snapshot, pool))
    return [takes.get(resource, 0) for resource in snapshot.resources]


def memory_of(snapshot: Snapshot, pool: str) -> int:
    """Bytes of the smallest GPU of a pool, by which requests of memory count; 0: unknown."""
    return next((memory for one, memory in zip(snapshot.pools, snapshot.gpu_memory) if one.name == pool), 0)


Cell = tuple[int, int]
"""Row of a node, and the index of a device in it."""


def cells(snapshot: Snapshot, item: Held) -> Iterator[tuple[Cell, int]]:
    """The devices that pods hold, and how much of each."""
    memory = memory_of(snapshot, item.admission.pool)
    pods = {podset.name: podset.pod for podset in item.workload.podsets}
    for placement in item.admission.podsets:
        for share in placement.nodes if placement.name in pods else ():
            part = shared(pods[placement.name], memory) or DEVICE
            for given in share.devices:
                yield from (((snapshot.row_of.get(share.node, -1), index), part) for index in given)


def devices_in_use(case: Case) -> dict[Cell, int]:
    """What is taken of each device before the plan, where devices are known; what was promised is not in use."""
    snapshot = case.snapshot
    used: dict[Cell, int] = defaultdict(int)
    leaving = (Held(one.workload, one.admission) for one in snapshot.running if one.is_leaving)
    for item in (*case.standing(), *leaving):
        for cell, amount in cells(snapshot, item):
            used[cell] += amount
    for pod in snapshot.pods:
        row = snapshot.row_of.get(pod.node, -1)
        memory = snapshot.gpu_memory[snapshot.pool_of[row]] if row >= 0 and snapshot.pool_of[row] >= 0 else 0
        for index in pod.devices:
            used[row, index] += shared(pod.pod, memory) or DEVICE
    return used
