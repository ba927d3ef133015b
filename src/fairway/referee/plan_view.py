"""A plan sorted for the rules: what starts, what leaves and what stays, and where.

A verdict that its workload's state forbids changes nothing: rule Kind names it. All is counted anew from the values;
only what the snapshot says is free is believed. Nothing here judges.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import TypeVar, cast

import numpy as np

from fairway.engine import (
    Admission,
    Admit,
    Columns,
    Evict,
    Finish,
    Keep,
    Mask,
    NodeShare,
    Plan,
    Pod,
    PodSet,
    PodSetPlacement,
    Queue,
    Resize,
    Running,
    Snapshot,
    Verdict,
    Wait,
    Workload,
    thawed,
)

from .layout import Item, Layout

DAY = 86_400.0
Kind = TypeVar("Kind", Admit, Evict, Finish, Keep, Resize, Wait)
Path = tuple[Queue, ...]
"""The way from a queue to its root, itself first; () where that is a circle, or where there is no such queue."""


class PlanView:
    """`starts`: pods that will start, those promised before first, then as decided. `leaves`: pods that hold their room
    until they are gone. `stands`: pods that run now, those told to leave too. `told`: the starts promised before.
    `unsettled`: what was leaving or promised before. `by_kind`: the verdicts, by their class."""

    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        self.snapshot, self.plan = snapshot, plan
        self.verdicts = {verdict.workload: verdict for verdict in plan.verdicts}
        self.by_kind: dict[type[Verdict], list[Verdict]] = defaultdict(list)
        runs = [(kind, list(those)) for kind, those in groupby(self.verdicts.values(), type)]
        for kind, those in runs:
            self.by_kind[kind] += those
        self.waiting = {workload.key: workload for workload in snapshot.pending}
        self.running = {one.workload.key: one for one in snapshot.running}
        self.starts: list[Item] = []
        self.leaves = [_alone(snapshot, pod) for pod in snapshot.pods if pod.is_leaving]
        self.unsettled = [one for one in snapshot.running if one.is_leaving or one.is_promised]
        for one in self.unsettled:
            self._go_on(one)
        self.told = range(len(self.starts))
        givers: dict[str, tuple[str, ...]] = {}
        for resize in self.of(Resize):
            givers[resize.beneficiary] = (*givers.get(resize.beneficiary, ()), resize.workload)
        for kind, those in runs:
            if kind is Admit:
                self.starts += [Item(self.waiting[one.workload], one.admission, "new", one.after)
                                for one in cast(list[Admit], those) if one.workload in self.waiting]  # fmt: skip
            for verdict in those if kind in (Evict, Finish, Resize) else ():
                stands = self.running.get(verdict.workload)
                if stands and not stands.is_leaving:
                    self._change(stands, cast(Evict | Finish | Resize, verdict), givers.get(verdict.workload, ()))

    def _go_on(self, one: Running) -> None:
        """What was leaving leaves; what was promised starts."""
        if one.is_leaving:
            what = given(one.workload, paused=one.is_pausing, saved=one.is_saving)
            self.leaves.append(Item(what, one.admission, "leaving"))
            if one.moves_to is not None:
                self.starts.append(Item(one.workload, one.moves_to, "told", (one.workload.key,)))
        elif isinstance(verdict := self.verdicts.get(one.workload.key), Admit):
            self.starts.append(Item(one.workload, verdict.admission, "told", verdict.after))

    @cached_property
    def going(self) -> set[str]:
        """The keys of what holds room until it is gone, or until some of it is."""
        return {item.key for item in self.leaves}

    @cached_property
    def stands(self) -> list[Item]:
        return self._standing(self.snapshot.running)

    def standing_on(self, nodes: Collection[str]) -> list[Item]:
        """Those of them that use one of these nodes."""
        return self._standing([one for one in self.snapshot.running if not one.admission.nodes.isdisjoint(nodes)])

    def _standing(self, running: Iterable[Running]) -> list[Item]:
        told = {self.starts[at].key for at in self.told}
        return [
            Item(one.workload, one.admission, "stands")
            for one in running if not one.is_leaving and one.workload.key not in told
        ]

    def _change(self, one: Running, verdict: Evict | Finish | Resize, givers: tuple[str, ...]) -> None:
        """A running workload stops, moves, shrinks, or grows into what is idle and what `givers` lose for it."""
        workload = one.workload
        if not isinstance(verdict, Resize):
            is_paused, is_saved = (verdict.pauses, verdict.saves) if isinstance(verdict, Evict) else (False, False)
            self.leaves.append(Item(given(workload, paused=is_paused, saved=is_saved), one.admission, "evicted"))
            if isinstance(verdict, Evict) and verdict.admission is not None:
                self.starts.append(Item(workload, verdict.admission, "moved", (workload.key,)))
            return
        if (more := difference(verdict.admission, one.admission)).podsets:
            self.starts.append(Item(workload, more, "more", givers, verdict.admission))
        if (less := difference(one.admission, verdict.admission)).podsets:
            self.leaves.append(Item(workload, less, "evicted"))

    def of(self, kind: type[Kind]) -> list[Kind]:
        return cast(list[Kind], self.by_kind[kind])

    @cached_property
    def special(self) -> list[Item]:
        """Starts whose workload sets conditions of its own, beyond its podsets' and its queue's."""
        return [
            item for item in self.starts if item[3] or (its := item[0]).after or its.pools or its.gates
            or its.backs_off_until is not None or not its.is_active or its.topology.required
        ]

    @cached_property
    def turns(self) -> tuple[list[Item], list[Item]]:
        """The starts as they find their room: the first minCount pods of a gang in its turn, and pods that were lost;
        what grows behind all."""
        cores, rests = list[Item](), list[Item]()
        for item in self.starts:
            if item.role == "new" and any(podset.is_elastic for podset in item[0].podsets):
                core, rest = halves(item)
                cores.append(core)
                rests.append(rest)
            else:
                grows = item.role == "more" and not self.running[item.key].lost
                (rests if grows else cores).append(item)
        return cores, rests

    @cached_property
    def laid(self) -> Layout:
        """Starts, and behind them what leaves."""
        return Layout(self.snapshot, [*self.starts, *self.leaves])

    @cached_property
    def standing(self) -> Layout:
        return Layout(self.snapshot, self.stands)

    @cached_property
    def free(self) -> Columns:
        """int64[cell]: what is left, with what was promised before, which starts."""
        free = np.concatenate((self.snapshot.free.ravel(), self.snapshot.device_free.ravel()))
        return free + self.laid.total(self.told)

    @cached_property
    def taken(self) -> Columns:
        """int64[cell]: what the starts take."""
        return self.laid.total(range(len(self.starts)))

    @cached_property
    def is_short(self) -> Mask:
        """bool[cell]: where more is taken than there is."""
        return (self.taken > self.free) & (self.taken > 0)

    @cached_property
    def paths(self) -> dict[str, Path]:
        """The way of each queue."""
        queues, found = self.snapshot.queues, dict[str, Path]()
        for name, queue in queues.items():
            path = [queue]
            while len(path) <= len(queues) and (above := queues.get(path[-1].parent)):
                path.append(above)
            found[name] = () if path[-1].parent else tuple(path)  # no root: a cycle, or a parent that is not there
        return found

    @cached_property
    def parents(self) -> set[str]:
        return {queue.parent for queue in self.snapshot.queues.values()}

    @cached_property
    def governing(self) -> set[tuple[str, str, str]]:
        """Queues, pools, and what of them they have quotas of; a parent without is transparent there for it. A quota
        for all pools is one for each; one for the only pool is one for all."""
        pools = [pool.name for pool in self.snapshot.pools]
        alike = {"*": ("*", *pools)} | {name: (name, *("*" for _ in pools[:1] if len(pools) == 1)) for name in pools}
        return {(name, pool, resource) for name, queue in self.snapshot.queues.items() for one in queue.quotas
                for resource, _ in (*one.guaranteed, *one.limit) for pool in alike.get(one.pool, ())}  # fmt: skip

    def path(self, workload: Workload) -> Path:
        return self.paths.get(workload.queue, ())

    def time_limit(self, workload: Workload) -> float | None:
        """The limit that is enforced: its own or its queue's default, at most its queues' maximum."""
        own, path = workload.time_limit, self.path(workload)
        default = next((one.default_time_limit for one in path if one.default_time_limit is not None), None)
        bounds = (default if own is None else own, *(one.max_time_limit for one in path))
        return min((bound for bound in bounds if bound is not None), default=None)


def given(workload: Workload, *, paused: bool, saved: bool) -> Workload:
    """What leaves, with what it gives back: one that is paused keeps its memory, unless that is on disk."""
    return replace(workload, podsets=thawed(workload.podsets, on_disk=saved)) if paused else workload


def inherited(path: Path, name: str, default: float) -> float:
    """The nearest queue's word."""
    words = (getattr(queue, name) for queue in path)
    return next((word for word in words if word is not None), default)


def _alone(snapshot: Snapshot, pod: Pod) -> Item:
    """A pod of others that is leaving, as a workload of its own."""
    row = snapshot.pool_of[snapshot.row_of[pod.node]] if pod.node in snapshot.row_of else -1
    share = NodeShare(pod.node, 1, (pod.devices,) if pod.devices else ())
    admission = Admission(snapshot.pools[row].name if row >= 0 else "", (PodSetPlacement("", (share,)),))
    return Item(Workload(pod.key, "", (PodSet("", 1, 1, pod.pod),)), admission, "leaving")


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


def halves(item: Item) -> tuple[Item, Item]:
    """The first minCount pods of each podset, and the others."""
    least = {podset.name: podset.min_count for podset in item.workload.podsets}
    parts: tuple[list[PodSetPlacement], list[PodSetPlacement]] = [], []
    for placement in item.admission.podsets:
        pods = [NodeShare(node, 1, (given,) if given else ()) for node, given in pods_of(placement)]
        count = least.get(placement.name, 0)
        for part, some in zip(parts, (pods[:count], pods[count:])):
            part.append(PodSetPlacement(placement.name, tuple(some)))
    first, second = (item._replace(admission=Admission(item.admission.pool, tuple(part))) for part in parts)
    return first, second
