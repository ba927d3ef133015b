"""Draft: a writable copy of a snapshot's room, on which a cycle is thought through.

`free` and `device_free` are the room now: what leaves holds it until gone, what is promised holds it already, so it may
be negative where both do. `later` is the room once all that leaves is gone, a draft like this one; None while nothing
leaves. What starts is charged to both, what leaves is given back to `later` only; a place found in `later` but not now
waits for that. Every write of a row is in the log, undone ones too, so that a stale cache is never taken for fresh.
Changes inside `trial()` are undone unless kept; trials nest.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from operator import attrgetter

import numpy as np

from .feasibility import Counts, Rows, Shape, Shapes, has_groups, request_of
from .model import Admission, NodeShare, PodClass, PodSet, PodSetPlacement, Running, Workload
from .pod_affinity import is_friend, keys_apart, meets, near
from .policy import FAIRWAY, Policy
from .quota import QueueTree
from .resources import DEVICE, counts_of, frozen, memory_of
from .snapshot import Columns, Key, Memo, Snapshot, Value

Room = Sequence[int]  # of one node: amounts by resource, and behind them milli-GPU by device slot
PodsAt = tuple[PodClass, int, int, tuple[tuple[int, ...], ...]]
"""Class, row, number of pods, and the devices of each pod where known."""


class Trial:
    """What is done in a trial lasts only if it is kept."""

    is_kept = False

    def keep(self) -> None:
        self.is_kept = True


class Draft:
    def __init__(self, snapshot: Snapshot, policy: Policy = FAIRWAY, *, now: "Draft | None" = None) -> None:
        """A draft of the snapshot; with `now`, the one that looks at the same room later."""
        self.snapshot, self.policy = snapshot, policy
        self.tree: QueueTree = now.tree if now else QueueTree(snapshot, policy)
        self.running: dict[str, Running] = now.running if now else {one.workload.key: one for one in snapshot.running}
        self.started: dict[str, tuple[Workload, Admission]] = now.started if now else {}
        self.shrunk: dict[str, Admission] = {}  # what lost pods in this draft, and what it had
        self.later: Draft | None = None
        self.exits: dict[int, set[str]] = {}  # row → keys of those that leave it, or leave some of it
        self._strange: dict[str, tuple[PodClass, int]] = {}  # pods of others that leave
        self.log: list[int] = []  # rows in the order written
        self.version = 0  # the length of the log when room was written last, undone trials apart
        self.memo = Memo()  # what placement found out about this draft
        self.standing: dict[PodClass, Counts] = {}  # int64[node] pods of each class, if the snapshot is social
        self.groups: dict[tuple[int, int], Counter[str]] = {}  # held of a NUMA group, by row and group, where told
        self.free: Columns = (now or snapshot).free.copy()  # int64[resource, node]
        self._cells = self.free.data  # the same, for one cell at a time
        self.device_free: Columns = (now or snapshot).device_free.copy()  # int64[node, slot], milli-GPU; -1: none
        self.shapes = snapshot.memo.of(Shapes)
        self._lists: dict[tuple[int, str, int], list[int]] = {}  # what so many pods of a class take
        self._undo: list[Callable[[], object]] = []
        self._depth = 0
        if now is None:
            self._count_standing()
            self._show_out()
        else:
            self.groups = {group: held.copy() for group, held in now.groups.items()}
            self.standing = {pod: counts.copy() for pod, counts in now.standing.items()}

    # Changes

    def start(self, workload: Workload, admission: Admission) -> None:
        """It holds its places from now on."""
        self._take(workload, admission, 1)
        self.put(self.started, workload.key, (workload, admission))

    def start_placed(self, workloads: list[Workload], admissions: list[Admission]) -> None:
        """Workloads of one pod are started; their places are charged already."""
        self.started.update(zip(map(attrgetter("key"), workloads), zip(workloads, admissions)))
        kinds = list(zip(map(attrgetter("queue"), workloads), map(id, map(attrgetter("podsets"), workloads))))
        last = dict(zip(kinds, workloads))
        for kind, times in Counter(kinds).items():
            self.tree.charge(last[kind], admissions[0].pool, (1,), times)
            self.tree.touched.add(kind[0])

    def spend(self, rows: Rows, amounts: Columns) -> None:
        """Pods take so much of these nodes, each once: int64[row, resource]; no device that is told apart."""
        self.free[:, rows] -= amounts.T
        self.log += rows.tolist()
        self.version = len(self.log)

    def leave(self, key: str) -> None:
        """It is told to go: its room is free later."""
        one = self.running[key]
        self._exit(key, one.admission)
        self._take(one.workload, one.admission, -1, now=False)
        self.put(self.running, key, replace(one, is_leaving=True))

    def freeze(self, key: str, *, on_disk: bool = False) -> bool:
        """One that was told to go is paused instead: its memory stays held, unless it is paused on disk. False, and
        nothing changes, where what is to start needs what stays held, or its queue is over a limit with it."""
        ahead, one = self.ahead(), replace(self.running[key], is_pausing=True, is_saving=on_disk)
        has_room = all(ahead.has_room(row, amounts) for row, amounts in self.holdings(*_kept(one)).items())
        if not has_room or not (on_disk or self._count_kept(one)):
            return False
        self._hold(ahead, *_kept(one))
        self.put(self.running, key, one)
        return True

    def _count_kept(self, one: Running) -> bool:
        """Counts in its queue what it holds while it is paused; False, and nothing changes, where that is too much."""
        tree, queue, pool = self.tree, one.workload.queue, one.admission.pool
        memory, was_over = memory_of(one.workload.podsets, one.admission), tree.exceeds_limit(queue, pool)
        tree.keep(queue, pool, memory)
        if not was_over and tree.exceeds_limit(queue, pool):
            tree.keep(queue, pool, -memory)
            return False
        self.note(lambda: tree.keep(queue, pool, -memory))
        return True

    def _hold(self, view: "Draft", podsets: tuple[PodSet, ...], there: Admission) -> None:
        """Pods stand there, in no queue, as one view has it; a trial undoes it."""
        view.charge(podsets, there, 1)
        self.note(partial(view.charge, podsets, there, -1))

    def seat(self, podset: PodSet, pool: str, shares: tuple[NodeShare, ...]) -> None:
        """Pods that are tried stand there, now and later; a trial undoes it."""
        for view in filter(None, (self, self.later)):
            self._hold(view, (podset,), Admission(pool, (PodSetPlacement(podset.name, shares),)))

    def move(self, key: str, admission: Admission) -> None:
        """It has been told to go, and finds a place elsewhere, which it takes at once."""
        one = self.running[key]
        self._take(one.workload, admission, 1)
        self.put(self.running, key, replace(one, moves_to=admission))

    def remain(self, key: str) -> None:
        """It need not go after all."""
        one = self.running[key]
        self._take(one.workload, one.admission, 1, now=False)
        if one.moves_to:
            self._take(one.workload, one.moves_to, -1)
        self.put(self.running, key, replace(one, is_leaving=False, moves_to=None))

    def vanish(self, key: str) -> None:
        """It is gone, and its room is free; one that was leaving for another place is there now."""
        if key in self.started:
            self._take(*self.started[key], -1)
            self.put(self.started, key, None)
            return
        one = self.running[key]
        if one.is_leaving:  # given back ahead already
            self._take(one.workload, one.admission, 1, now=False)
        self._take(one.workload, one.admission, -1)
        if one.is_pausing:  # `later` holds its memory already
            self._hold(self, *_kept(one))
        there = one.moves_to
        self.put(self.running, key, replace(one, admission=there, moves_to=None, is_leaving=False) if there else None)

    def resize(self, key: str, admission: Admission) -> None:
        """It runs on with other counts; pods that go hold their room until gone, pods that come take theirs at once.
        What was told to shrink in this draft may be told to shrink less."""
        workload, before = self.holder(key)
        is_shrinking = key in self.shrunk or (_pods(admission) < _pods(before) and key in self.running)
        if is_shrinking:
            self._exit(key, before)
            whole = self.shrunk.get(key, before)
            self.put(self.shrunk, key, whole if _pods(admission) < _pods(whole) else None)
        self._take(workload, before, -1, now=not is_shrinking)
        self._take(workload, admission, 1, now=not is_shrinking)
        if key in self.running:
            self.put(self.running, key, replace(self.running[key], admission=admission))
        else:
            self.put(self.started, key, (workload, admission))

    @contextmanager
    def trial(self) -> Iterator[Trial]:
        """Whatever changes inside is undone at its end, unless the trial is kept."""
        mark, depth, version, trial = len(self._undo), self._depth, self.version, Trial()
        self._depth += 1
        try:
            yield trial
        finally:
            if not trial.is_kept:
                self._depth = 0  # what undoes is not itself to be undone
                while len(self._undo) > mark:
                    self._undo.pop()()
                self.version = version
            self._depth = depth
            if not depth:
                self._undo.clear()

    # What a change is made of; each remembers how to undo itself

    def note(self, undo: Callable[[], object]) -> None:
        """How to undo what was just changed beside the draft, at the end of a trial."""
        if self._depth:
            self._undo.append(undo)

    def put(self, kept: dict[Key, Value], key: Key, value: Value | None) -> None:
        """Keep a value by its key; None: no more."""
        before = kept.pop(key, None) if value is None else kept.get(key)
        if value is not None:
            kept[key] = value
        self.note(lambda: self.put(kept, key, before))

    def _take(self, workload: Workload, admission: Admission, times: int, *, now: bool = True) -> None:
        """It takes its places, or gives them back (`times` -1), once all that leaves is gone and, if so, `now`."""
        if now:
            self.charge(workload.podsets, admission, times)
        if view := self.later if now else self.ahead():
            view.charge(workload.podsets, admission, times)
        self.tree.charge(workload, admission.pool, counts_of(workload.podsets, admission), times)
        self.note(lambda: self._take(workload, admission, -times, now=now))

    def _exit(self, key: str, admission: Admission) -> None:
        """Note that it leaves these nodes, or some of them."""
        for placement in admission.podsets:
            for share in placement.nodes:
                keys = self.exits.setdefault(self.snapshot.row_of.get(share.node, -1), set())
                if key not in keys:
                    keys.add(key)
                    self.note(partial(keys.discard, key))

    def waits_for(self, podsets: tuple[PodSet, ...], admission: Admission) -> tuple[str, ...]:
        """The workloads that must go before these places are free: those that leave its nodes, where what its pods
        request is held twice, and those beside which its pods may not stand."""
        waits = self.repelled_by(podsets, admission)
        for pod, row, _, devices in self.shares(podsets, admission):
            if self.exits.get(row):
                needs = self.shape(pod, admission.pool).request.needs
                is_short = any(devices) and bool((self.device_free[row] < -1).any())
                if is_short or any(self.free[column, row] < 0 for column, _ in needs):
                    waits |= self.exits[row]
        return tuple(sorted(key for key in waits if not self._remains(key)))

    def repelled_by(self, podsets: tuple[PodSet, ...], admission: Admission) -> set[str]:
        """Those that leave and beside which its pods may not stand, or which keep them from being first of a group."""
        rows: dict[PodClass, list[int]] = {}
        for pod, row, _, _ in self.shares(podsets, admission) if self.standing else ():
            rows.setdefault(pod, []).append(row)
        pairs = product(rows, self.standing)
        foes = {(pod, other): keys for pod, other in pairs if (keys := keys_apart(pod, other))}
        stray = [pod for pod, own in rows.items() if self._is_stray(pod, own)]
        leaving = set[str]().union(*self.exits.values()) if foes or stray else ()
        return {
            key for key in leaving if not self._remains(key)
            for other, row in self._seats(key) for pod in rows
            if meets(self.snapshot, foes.get((pod, other), ()), rows[pod], row)
            or (pod in stray and is_friend(other, pod))
        }  # fmt: skip

    def _is_stray(self, pod: PodClass, own: list[int]) -> bool:
        """Whether pods placed on these rows are not where their required affinity wants them now."""
        mine = np.bincount(own, minlength=len(self.snapshot.nodes))
        others = {other: on - mine * (other == pod) for other, on in self.standing.items()}
        friends = sum((on > 0 for other, on in others.items() if is_friend(other, pod)), np.zeros((), np.bool_))
        return bool(friends.any()) and not near(self.snapshot, others, pod)[own].all()

    def leaving(self) -> Mapping[PodClass, Counts]:
        """int64[node] pods of each class that are there now and leave."""
        later = self.later.standing if self.later else {}
        return {pod: counts - later[pod] for pod, counts in self.standing.items() if pod in later}

    def _seats(self, key: str) -> Iterator[tuple[PodClass, int]]:
        """Class and row of the pods of one that leaves, of those too that it keeps."""
        if key in self._strange:
            yield self._strange[key]
        if one := self.running.get(key):
            for pod, row, _, _ in self.shares(one.workload.podsets, self.shrunk.get(key, one.admission)):
                yield pod, row

    def _remains(self, key: str) -> bool:
        """It was to leave, and was spared."""
        return key in self.running and not self.running[key].is_leaving and key not in self.shrunk

    def ahead(self) -> "Draft":
        """The room once all that leaves is gone."""
        if self.later is None:
            self.later = Draft(self.snapshot, self.policy, now=self)
        return self.later

    # Columns

    def charge(self, podsets: tuple[PodSet, ...], admission: Admission, times: int) -> None:
        """Take what an admission holds, so many times; give it back if `times` is negative."""
        for pod, row, count, devices in self.shares(podsets, admission):
            shape = self.shape(pod, admission.pool)
            self._write(shape, row, count * times)
            for one in devices:
                self._write_devices(shape, row, one, times)

    def shares(self, podsets: tuple[PodSet, ...], admission: Admission) -> Iterator[PodsAt]:
        """The pods of an admission by class and node; those on nodes that are gone are left out."""
        pods = {podset.name: podset.pod for podset in podsets}
        for placement in admission.podsets:
            if placement.name in pods:
                for share in placement.nodes:
                    if (row := self.snapshot.row_of.get(share.node)) is not None:
                        yield pods[placement.name], row, share.count, share.devices

    def room(self, row: int) -> Room:
        """What is free of a node, in all its device slots."""
        return *self.free[:, row].tolist(), *self.device_free[row].tolist()

    def has_room(self, row: int, amounts: Room) -> bool:
        """Whether a node has so much of all that is asked for."""
        return not any(0 < amount > left for amount, left in zip(amounts, self.room(row)))

    def footprint(self, podsets: tuple[PodSet, ...], admission: Admission) -> dict[int, Columns]:
        """int64[resource + device slot] by row: what an admission holds."""
        return {row: np.array(one, np.int64) for row, one in self.holdings(podsets, admission).items()}

    def holdings(self, podsets: tuple[PodSet, ...], admission: Admission) -> dict[int, Room]:
        """The same as lists, which alike pods may share: they are not to be written."""
        held: dict[int, Room] = {}
        columns = len(self.snapshot.resources)
        for pod, row, count, devices in self.shares(podsets, admission):
            key = id(pod), admission.pool, count
            if key not in self._lists:
                self._lists[key] = [0] * (columns + self.device_free.shape[1])
                for column, amount in self.shape(pod, admission.pool).request.needs:
                    self._lists[key][column] = amount * count
            amounts = self._lists[key].copy() if devices else self._lists[key]
            for one in devices:
                for slot, part in self._slots(self.shape(pod, admission.pool), row, one):
                    amounts[columns + slot] += part
            before = held.get(row)
            held[row] = [sum(pair) for pair in zip(before, amounts)] if before else amounts
        return held

    def holder(self, key: str) -> tuple[Workload, Admission]:
        """A workload that runs or starts, and what it holds."""
        return self.started.get(key) or (self.running[key].workload, self.running[key].admission)

    def cover(self, row: int, left: Columns) -> None:
        """Leave no more than that of a node in sight, now and later; a trial undoes it."""
        for view in filter(None, (self, self.later)):
            hidden = np.maximum(np.array(view.room(row), np.int64) - np.maximum(left, 0), 0)
            view._withhold(row, hidden)
            self.note(partial(view._withhold, row, -hidden))

    def _withhold(self, row: int, hidden: Columns) -> None:
        columns = len(self.snapshot.resources)
        self.free[:, row] -= hidden[:columns]
        self.device_free[row] -= hidden[columns:]
        self.log.append(row)
        self.version = len(self.log)

    def shape(self, pod: PodClass, pool: str) -> Shape:
        """The class in a pool, told by identity."""
        key = id(pod), pool
        if key not in self.shapes:
            self.shapes[key] = Shape(pod, request_of(self.snapshot, pod, pool), pool)
        return self.shapes[key]

    def _write(self, shape: Shape, row: int, count: int) -> None:
        pod, request, _ = shape
        for column, amount in request.needs:
            self._cells[column, row] -= amount * count
        self.log.append(row)
        self.version = len(self.log)
        if self.snapshot.is_social:
            if pod not in self.standing:
                self.standing[pod] = np.zeros(len(self.snapshot.nodes), np.int64)
            self.standing[pod][row] += count

    def _slots(self, shape: Shape, row: int, devices: tuple[int, ...]) -> Iterator[tuple[int, int]]:
        """Device slots that a pod takes of a node, and the part of each."""
        part = shape.request.share or DEVICE
        for slot, device in enumerate(self.snapshot.nodes[row].devices):
            if device.index in devices and self.device_free[row, slot] != -1:
                yield slot, part

    def _write_devices(self, shape: Shape, row: int, devices: tuple[int, ...], times: int) -> None:
        node = self.snapshot.nodes[row]
        for slot, part in self._slots(shape, row, devices):
            self.device_free[row, slot] -= part * times
            if node.numa and node.devices[slot].index == devices[0]:
                held = self.groups.setdefault((row, node.devices[slot].numa), Counter())
                held.update({name: amount * times for name, amount in shape.pod.requests})

    # The beginning

    def _count_standing(self) -> None:
        """Count which pods run where, for pods with affinity or spread, and what of each NUMA group is held."""
        if not self.snapshot.is_social and not has_groups(self.snapshot):
            return
        free, device_free = self.free.copy(), self.device_free.copy()
        for one in self.snapshot.running:
            for admission in filter(None, (one.admission, one.moves_to)):
                self.charge(one.workload.podsets, admission, 1)
        for pod in self.snapshot.pods:
            if (row := self.snapshot.row_of.get(pod.node)) is not None:
                self._write(self.shape(pod.pod, ""), row, 1)
        self.free[:], self.device_free[:] = free, device_free

    def _show_out(self) -> None:
        """What is leaving already holds its room now and not later."""
        for one in self.snapshot.running:
            if one.is_leaving:
                self._exit(one.workload.key, one.admission)
                self.ahead().charge(one.workload.podsets, one.admission, -1)
                if one.is_pausing:
                    self.ahead().charge(*_kept(one), 1)
        for pod in self.snapshot.pods:
            if pod.is_leaving and (row := self.snapshot.row_of.get(pod.node)) is not None:
                pool = self.snapshot.pool_of[row]
                shape = self.shape(pod.pod, self.snapshot.pools[pool].name if pool >= 0 else "")
                self.exits.setdefault(row, set()).add(pod.key)
                self._strange[pod.key] = pod.pod, row
                self.ahead()._write(shape, row, -1)
                self.ahead()._write_devices(shape, row, pod.devices, -1)


def _kept(one: Running) -> tuple[tuple[PodSet, ...], Admission]:
    """What a workload that is paused goes on holding, and where; no devices."""
    shares = ((each.name, tuple(replace(share, devices=()) for share in each.nodes)) for each in one.admission.podsets)
    admission = Admission(one.admission.pool, tuple(PodSetPlacement(name, nodes) for name, nodes in shares))
    return frozen(one.workload.podsets, on_disk=one.is_saving), admission


def _pods(admission: Admission) -> int:
    return sum(placement.count for placement in admission.podsets)
