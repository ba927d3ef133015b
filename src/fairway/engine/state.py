"""State: what was observed and what was assumed, kept as columns so that an event rewrites one of them.

It is told facts (`observe`), told to act as if a plan were done (`assume`), told that it was not, or that the world now
shows it (`forget`), and makes snapshots. What is observed of a workload under an assumption is remembered; it takes the
place of the assumption only when it shows what was assumed, so an event from before the write changes nothing.
Charges are kept by node, whether the node is known yet or not: a node that comes back finds its pods again.
It decides nothing and drops nothing that was not said to be gone.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import model
from .labels import selects
from .plan import Admit, Evict, Finish, Keep, Plan, Resize, Verdict, Wait
from .resources import DEVICE, capacity_of, columns, counts_of, device_memory, shared, supply, taken
from .snapshot import TURN, Columns, Mask, Memo, Snapshot, Tally

DEFAULT_POOL = model.Pool("default")
MOST_SHAPES = 1 << 17  # shapes remembered; past it they are forgotten, which costs sharing and nothing else

Array = TypeVar("Array", Columns, NDArray[np.int32], Mask)
Charge = tuple[model.PodClass, int, tuple[int, ...]]
"""Pods of a class on a node: how many, and their devices where known."""


class Layout(NamedTuple):
    """What is read off nodes and pools alone; made anew when one of them changes, and the memo with it."""

    nodes: tuple[model.Node, ...]
    pools: tuple[model.Pool, ...]
    pool_of: NDArray[np.int32]
    is_usable: Mask
    gpu_memory: tuple[int, ...]
    memo: Memo


def layout_of(nodes: tuple[model.Node, ...], pools: dict[str, model.Pool]) -> Layout:
    """A node belongs to the first pool by name that selects it; without pools there is one, `default`, with all."""
    ordered = tuple(pools[name] for name in sorted(pools)) or (DEFAULT_POOL,)
    pool_of = np.full(len(nodes), -1, np.int32)
    least: dict[int, int] = {}
    for row, node in enumerate(nodes):
        labels = dict(node.labels)
        for index, pool in enumerate(ordered):
            if not pool.selector or selects(pool.selector, labels):
                pool_of[row] = index
                if memory := device_memory(node):
                    least[index] = min(memory, least.get(index, memory))
                break
    usable = [one.is_up and one.is_ready and not one.is_unschedulable for one in nodes]
    memory_of = tuple(least.get(index, 0) for index in range(len(ordered)))
    return Layout(nodes, ordered, _frozen(pool_of), _frozen(np.array(usable, np.bool_)), memory_of, Memo())


def _frozen(array: Array) -> Array:
    """A copy that cannot be written."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def charges(running: model.Running) -> Iterator[tuple[str, Charge]]:
    """Node and charge of every share it holds: where it is, and where it is moving to."""
    pods = {podset.name: podset.pod for podset in running.workload.podsets}
    for admission in (running.admission, running.moves_to):
        for placement in admission.podsets if admission else ():
            for share in placement.nodes:
                if placement.name in pods:
                    yield share.node, (pods[placement.name], share.count, tuple(chain(*share.devices)))


def _waiting(running: model.Running) -> Iterator[tuple[str, Charge]]:
    """Node and charge of what it holds for when others, or its own pods, are gone."""
    if not running.is_leaving:
        return charges(running) if running.is_promised else iter(())
    return charges(replace(running, admission=running.moves_to, moves_to=None)) if running.moves_to else iter(())


def _shows(fact: model.Workload | model.Running | model.Ended | None, assumed: model.Running | None) -> bool:
    """Whether what is observed shows what was assumed, so that the assumption ends."""
    if assumed is None or not isinstance(fact, model.Workload | model.Running):
        return not isinstance(fact, model.Workload)
    if assumed.is_leaving:
        return isinstance(fact, model.Workload) or fact.is_leaving or _has_moved(fact, assumed)
    return isinstance(fact, model.Running) and (fact.admission.is_same(assumed.admission) or fact.is_leaving)


def _has_moved(fact: model.Running, assumed: model.Running) -> bool:
    """Whether it left, and entered the place it was moved to, before anything was observed of it."""
    is_new = fact.admitted_at != assumed.admitted_at and not fact.is_promised
    return is_new and assumed.moves_to is not None and fact.admission.is_same(assumed.moves_to)


class State:
    def __init__(self) -> None:
        self._nodes: dict[str, model.Node] = {}
        self._pools: dict[str, model.Pool] = {}
        self._queues: dict[str, model.Queue] = {}
        self._reservations: dict[str, model.Reservation] = {}
        self._disruptions: dict[str, model.Disruption] = {}
        self._pods: dict[str, model.Pod] = {}
        self._pending: dict[str, model.Workload] = {}
        self._is_in_order = True  # what waits, by submission and key
        self._running: dict[str, model.Running] = {}
        self._tallies: dict[object, Tally] = {}
        self._ended: dict[str, model.Ended] = {}
        self._told: dict[str, model.Workload | model.Running | model.Ended | None] = {}
        self._shapes: dict[tuple[model.PodSet, ...], tuple[model.PodSet, ...]] = {}
        self._is_social = False
        self._on: defaultdict[str, dict[str, tuple[Charge, ...]]] = defaultdict(dict)  # by node: of workloads
        self._beside: defaultdict[str, dict[str, tuple[Charge, ...]]] = defaultdict(dict)  # and of pods of others
        self._dirty: set[str] = set()  # nodes whose column is to be rewritten
        self._moved = True  # nodes came, went or changed, or pools did
        self._rows: dict[str, int] = {}
        self._resources: tuple[str, ...] = columns(())
        self._unsaid: dict[str, int] = {}  # how much a node has of a resource that it does not name
        self._columns = np.zeros((3, len(self._resources), 0), np.int64)  # capacity, free, outside
        self._device_free = np.zeros((0, 0), np.int64)
        self._layout = Layout((), (), np.zeros(0, np.int32), np.zeros(0, np.bool_), (), Memo())

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def pool_of(self, node: str) -> str:
        """The pool that a node was in at the last snapshot; "" for none."""
        row = self._rows.get(node)
        index = -1 if row is None else int(self._layout.pool_of[row])
        return self._layout.pools[index].name if index >= 0 else ""

    def is_overdrawn(self, node: str, key: str = "") -> bool:
        """Whether pods there, and those to come, ask for more than the node has of what `key` asks for, if it is there;
        what other workloads hold until others are gone is held twice, and not counted."""
        row = self._rows.get(node) if node in self._nodes else None  # else it is gone since the last snapshot
        if row is not None and node in self._dirty:
            self._write(node, row)
        if row is None or (self._columns[1, :, row] >= 0).all():
            return False
        free, memory = dict(zip(self._resources, self._columns[1, :, row].tolist())), self._memory(node, row)
        others = [self._running[other] for other in self._on[node] if other != key]
        for where, (pod, count, _) in chain(*map(_waiting, others)):
            for resource, amount in taken(pod, memory).items() if where == node else ():
                free[resource] += amount * count
        own = {resource for pod, *_ in self._on[node].get(key, ()) for resource in taken(pod, memory)}
        return any(amount < 0 for resource, amount in free.items() if not own or resource in own)

    # What is told

    def observe(self, *facts: model.Fact) -> None:
        """The world says so."""
        for fact in facts:
            match fact:
                case model.Workload() | model.Running() | model.Ended():
                    self._see(fact.workload.key if isinstance(fact, model.Running) else fact.key, fact)
                case model.Pod():
                    self._drop_pod(fact.key)
                    self._pods[fact.key] = fact
                    self._note(fact.pod)
                    self._beside[fact.node][fact.key] = ((fact.pod, 1, fact.devices),)
                    self._dirty.add(fact.node)
                case model.Node():
                    self._see_node(fact)
                case model.Pool():
                    self._moved |= self._pools.get(fact.name) != fact
                    self._pools[fact.name] = fact
                case model.Queue():
                    self._queues[fact.name] = fact
                case model.Reservation():
                    self._reservations[fact.name] = fact
                case model.Disruption():
                    self._disruptions[fact.key] = fact
                case model.Gone():
                    self._lose(fact)

    def assume(self, plan: Plan) -> None:
        """Act as if the plan were done, until the world shows it or `forget` takes it back."""
        for verdict in plan.verdicts:
            if isinstance(verdict, (Keep, Wait)):
                continue
            key = verdict.workload
            if isinstance(verdict, Admit) and self._is_so(verdict):
                continue
            if (then := self._imagine(verdict)) is not None:
                self._told.setdefault(key, self._running.get(key) or self._pending.get(key))
                self._set(key, then)

    def _is_so(self, verdict: Admit) -> bool:
        """Whether it was assumed before: what is to be written stands in every plan until it is."""
        known = self._running.get(verdict.workload) if verdict.workload in self._told else None
        is_same = known is not None and (known.admission, known.waits_for) == (verdict.admission, verdict.after)
        return is_same and known is not None and not known.lost and not known.is_leaving

    def assumes(self, key: str) -> bool:
        """Whether something is assumed of a workload that the world has not shown yet."""
        return key in self._told

    def forget(self, key: str) -> None:
        """Go back to what was last observed of a workload."""
        if key in self._told:
            self._set(key, self._told.pop(key))

    def _imagine(self, verdict: Verdict) -> model.Workload | model.Running | model.Ended | None:
        """What the verdict makes of the workload; None: no change."""
        pending, running = self._pending.get(verdict.workload), self._running.get(verdict.workload)
        match verdict:
            case Admit(admission=admission, after=after, backfilled_for=owner) if pending:
                return model.Running(pending, admission, waits_for=after, is_promised=True, backfilled_for=owner)
            case Admit(admission=admission, after=after) if running:
                return replace(running, admission=admission, waits_for=after, lost=(), lost_since=None)
            case Evict(admission=admission, pauses=pauses, saves=saves) if running:
                return replace(running, is_leaving=True, is_pausing=pauses, is_saving=saves, moves_to=admission)
            case Resize(admission=admission) if running:
                return replace(running, admission=admission, lost=(), lost_since=None)
            case Finish() if running:
                return replace(running, is_leaving=True)
            case Finish() if pending:
                return model.Ended(pending.key, succeeded=False)
        return None

    def _see(self, key: str, fact: model.Workload | model.Running | model.Ended | None) -> None:
        if key not in self._told:
            self._set(key, fact)
        elif _shows(fact, self._running.get(key)):
            del self._told[key]
            self._set(key, fact)
        else:
            self._told[key] = fact

    def _see_node(self, node: model.Node) -> None:
        if node.chooser != "Kubelet" and not node.devices:
            count = dict(node.capacity).get(model.GPU, 0) // DEVICE
            node = replace(node, devices=tuple(model.Device(index) for index in range(count)))
        if self._nodes.get(node.name) != node:
            self._nodes[node.name] = node
            self._moved = True
            self._dirty.add(node.name)

    def _lose(self, gone: model.Gone) -> None:
        match gone.kind:
            case "Workload" | "Running" | "Ended":
                self._see(gone.key, None)
            case "Pod":
                self._drop_pod(gone.key)
            case "Node":
                self._moved |= self._nodes.pop(gone.key, None) is not None
            case "Pool":
                self._moved |= self._pools.pop(gone.key, None) is not None
            case kind:
                tables: dict[str, dict[str, model.Queue] | dict[str, model.Reservation] | dict[str, model.Disruption]]
                tables = {"Queue": self._queues, "Reservation": self._reservations, "Disruption": self._disruptions}
                tables[kind].pop(gone.key, None)

    # What is held

    def _set(self, key: str, fact: model.Workload | model.Running | model.Ended | None) -> None:
        """One key, one place: pending, running or ended."""
        if (before := self._running.pop(key, None)) is not None:
            self._tally(before, -1)
            for node, _ in charges(before):
                self._on[node].pop(key, None)
                self._dirty.add(node)
        self._ended.pop(key, None)
        if not isinstance(fact, model.Workload):
            self._pending.pop(key, None)
        match fact:
            case model.Running():
                workload = self._shared(fact.workload)
                self._running[key] = running = fact if workload is fact.workload else replace(fact, workload=workload)
                self._tally(running, 1)
                for node, charge in charges(running):
                    self._on[node][key] = (*self._on[node].get(key, ()), charge)
                    self._dirty.add(node)
            case model.Workload():
                last = next(reversed(self._pending.values()), fact)
                self._is_in_order &= key in self._pending or TURN(last) <= TURN(fact)
                self._pending[key] = self._shared(fact)
            case model.Ended():
                self._ended[key] = fact

    def _tally(self, one: model.Running, times: int) -> None:
        """Count it with those that count alike in quotas; what leaves counts no more, what moves where it goes."""
        workload, admission = one.workload, one.moves_to if one.is_leaving else one.admission
        if admission is not None:
            counts = counts_of(workload.podsets, admission)
            key = workload.queue, id(workload.podsets), workload.preemptible, admission.pool, counts
            known = self._tallies.pop(key, None)
            if total := times + (known.times if known else 0):
                self._tallies[key] = Tally(workload, admission.pool, counts, total)

    def _shared(self, workload: model.Workload) -> model.Workload:
        """The same workload; podsets alike are one object, so that a class is told by identity."""
        if len(self._shapes) > MOST_SHAPES:
            self._shapes.clear()
        podsets = self._shapes.get(workload.podsets)
        if podsets is None:
            podsets = self._shapes[workload.podsets] = workload.podsets
            for podset in podsets:
                self._note(podset.pod)
        return workload if podsets is workload.podsets else replace(workload, podsets=podsets)

    def _note(self, pod: model.PodClass) -> None:
        self._is_social |= bool(pod.pod_affinity or pod.spread or pod.host_ports or pod.exclusive)
        for name, _ in pod.requests + pod.attaches:
            if name not in self._resources:
                self._widen(name)

    def _drop_pod(self, key: str) -> None:
        if (pod := self._pods.pop(key, None)) is not None:
            self._beside[pod.node].pop(key, None)
            self._dirty.add(pod.node)

    # Columns

    def _widen(self, resource: str) -> None:
        """One more resource: every column is laid out anew, and what was kept by column is forgotten."""
        self._moved = True
        before, self._resources = self._resources, columns((*self._resources, resource))
        wider = np.zeros((3, len(self._resources), len(self._rows)), np.int64)
        wider[:, [self._resources.index(name) for name in before]] = self._columns
        wider[:2, self._resources.index(resource)] = self._unsaid[resource] = supply({}, resource)
        self._columns = wider

    def _lay_out(self) -> None:
        """Rows in the order of names; columns of nodes that stay are carried over."""
        for node in self._nodes.values():
            for name, _ in node.capacity:
                if name not in self._resources:
                    self._widen(name)
        names = sorted(self._nodes)
        rows = {name: row for row, name in enumerate(names)}
        slots = max((len(node.devices) for node in self._nodes.values()), default=0)
        stay = [(row, self._rows[name]) for name, row in rows.items() if name in self._rows]
        new, old = [pair[0] for pair in stay], [pair[1] for pair in stay]
        columns = np.zeros((3, len(self._resources), len(names)), np.int64)
        columns[:, :, new] = self._columns[:, :, old]
        device_free, both = np.full((len(names), slots), -1, np.int64), min(slots, self._device_free.shape[1])
        device_free[new, :both] = self._device_free[old, :both]
        self._dirty.update(name for name in names if name not in self._rows)
        self._columns, self._device_free, self._rows = columns, device_free, rows
        layout = layout_of(tuple(self._nodes[name] for name in names), self._pools)
        if layout.gpu_memory != self._layout.gpu_memory or layout.pools != self._layout.pools:
            self._dirty.update(names)
        self._layout = layout

    def gpu_memory_of(self, pool: str) -> int:
        """Bytes of the smallest GPU of a pool at the last snapshot, 0 if unknown."""
        names = [one.name for one in self._layout.pools]
        return self._layout.gpu_memory[names.index(pool)] if pool in names else 0

    def _memory(self, name: str, row: int) -> int:
        """MiB of a GPU there, as requests for a part of one count."""
        pool = self._layout.pool_of[row]
        return self._layout.gpu_memory[pool] if pool >= 0 else device_memory(self._nodes[name])

    def _write(self, name: str, row: int) -> None:
        """The column of one node, from its capacity and all that is on it."""
        node, resources, memory = self._nodes[name], self._resources, self._memory(name, row)
        offered = {**self._unsaid, **capacity_of(node)}
        devices = [DEVICE if one.is_healthy and not one.is_partitioned else 0 for one in node.devices]
        slot_of = {one.index: slot for slot, one in enumerate(node.devices)}
        held, outside = dict.fromkeys(resources, 0), dict.fromkeys(resources, 0)
        for used, charges_by_key in ((held, self._on[name]), (outside, self._beside[name])):
            for pod, count, indices in chain(*charges_by_key.values()):
                for resource, amount in taken(pod, memory).items():
                    used[resource] += amount * count
                for index in indices:
                    if index in slot_of:
                        devices[slot_of[index]] -= shared(pod, memory) or DEVICE
        capacity = np.array([offered.get(one, 0) for one in resources], np.int64)
        own, others = ([used[one] for one in resources] for used in (held, outside))
        self._columns[:, :, row] = capacity, capacity - own - others, others
        self._device_free[row, :] = -1
        if node.chooser != "Kubelet":
            self._device_free[row, : len(devices)] = devices

    def snapshot(self, now: float) -> Snapshot:
        """The world at this moment, assumptions included."""
        if self._moved:
            self._lay_out()
            self._moved = False
        for name in self._dirty:
            if (row := self._rows.get(name)) is not None:
                self._write(name, row)
        self._dirty.clear()
        if not self._is_in_order:
            waiting = sorted(self._pending.values(), key=TURN)
            self._pending, self._is_in_order = {one.key: one for one in waiting}, True
        capacity, free, outside = _frozen(self._columns)
        return Snapshot(
            now=now, resources=self._resources, row_of=self._rows, capacity=capacity, free=free, outside=outside,
            device_free=_frozen(self._device_free), queues=dict(self._queues), pending=tuple(self._pending.values()),
            running=tuple(self._running.values()), tallies=tuple(self._tallies.values()),
            pods=tuple(self._pods.values()), reservations=tuple(self._reservations.values()),
            disruptions=tuple(self._disruptions.values()), ended=dict(self._ended), is_social=self._is_social,
            **self._layout._asdict(),
        )  # fmt: skip


def state_of(world: model.World) -> State:
    """The state that a written-down world makes."""
    state = State()
    state.observe(*world.pools, *world.queues, *world.nodes, *world.running, *world.pods, *world.pending)
    state.observe(*world.reservations, *world.disruptions, *world.ended)
    return state


def world_of(snapshot: Snapshot, recent: tuple[model.Workload, ...] = ()) -> model.World:
    """What a snapshot was made from, written down, and what was submitted lately."""
    return model.World(
        snapshot.now, snapshot.nodes, snapshot.pools, tuple(snapshot.queues.values()), snapshot.pending,
        snapshot.running, snapshot.pods, snapshot.reservations, snapshot.disruptions, tuple(snapshot.ended.values()),
        recent,
    )  # fmt: skip


def snapshot_of(world: model.World) -> Snapshot:
    return state_of(world).snapshot(world.now)
