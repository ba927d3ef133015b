"""How many pods a node has room for, and on which GPUs: whole ones of one NVLink or NUMA group, fractions on a shared
device. Room is whole pods: the least over the resources of free // request, and what the devices allow.

Devices are told apart on nodes whose chooser is the Scheduler or a Claim; `device_free` holds their milli-GPU, 0 for
what is broken or partitioned, so neither is ever chosen. On Kubelet nodes only counts are planned: no fraction goes
there, and alignment needs the node's NUMA groups. Groups are small: this is Python, one node at a time, except for the
room of many nodes, which is numpy unless alignment is required.
"""

from collections.abc import Iterable

import numpy as np

from .draft import Draft
from .feasibility import PLENTY, Counts, Request, Shape, Where, chooses, pick
from .model import GPU, Node, NodeShare, PodClass
from .resources import DEVICE

DeviceSlots = tuple[int, ...]
Offers = dict[int, dict[str, int]]  # what is left in each NUMA group of a node
PAIR, NVLINK, NUMA = ("nvlink", "numa"), ("nvlink",), ("numa",)  # what the devices of a group have in common


def device_room(draft: Draft, shape: Shape, rows: Where) -> Counts:
    """Pods that the devices of these nodes allow; PLENTY where they set no bound."""
    pod, request, _ = shape
    free = draft.device_free[rows]
    if pod.alignment_required:
        nodes = np.arange(len(draft.snapshot.nodes))[rows]
        return np.array([_aligned(draft, shape, row) for row in nodes.tolist()], np.int64)
    if request.share:
        parts: Counts = np.maximum(free // request.share, 0).sum(axis=1, dtype=np.int64)
        return parts
    if not request.devices or not free.shape[1]:
        return np.full(len(free), PLENTY, np.int64)
    whole: Counts = (free == DEVICE).sum(axis=1, dtype=np.int64) // request.devices
    return np.where(free[:, 0] >= 0, whole, PLENTY)


def room_of(draft: Draft, shape: Shape, rows: Where) -> Counts:
    """Pods of the class that each of these nodes could take now, constraints apart."""
    pod, request, _ = shape
    room = count_room(draft, request, rows)
    if request.devices or request.share or pod.alignment_required:
        room = np.minimum(room, device_room(draft, shape, rows))
    return np.minimum(room, 1) if pod.host_ports else room


def count_room(draft: Draft, request: Request, rows: Where) -> Counts:
    """Pods that the free amounts of these nodes allow, devices apart."""
    room: Counts | None = None
    for column, amount in request.needs:
        pods = draft.free[column, rows] // amount
        room = pods if room is None else np.minimum(room, pods)
    if room is None or not request.is_known:
        return np.zeros_like(draft.free[0, rows])
    return np.maximum(room, 0)


def shared_room(draft: Draft, request: Request, rows: Where) -> Counts:
    """Pods that the devices already shared could take."""
    free = draft.device_free[rows]
    parts: Counts = np.where((free > 0) & (free < DEVICE), free // request.share, 0).sum(axis=1, dtype=np.int64)
    return parts


def tightest(draft: Draft, request: Request, rows: Where) -> Counts:
    """The least room of a shared device that fits, per node; DEVICE where only a free one does."""
    free = draft.device_free[rows]
    least: Counts = np.where((free >= request.share) & (free < DEVICE), free, DEVICE).min(axis=1, initial=DEVICE)
    return least


def choose(draft: Draft, shape: Shape, row: int, *, count: int) -> NodeShare | None:
    """So many pods on a node with the devices of each; None if they do not fit it. The draft is not changed."""
    pod, request, _ = shape
    node = draft.snapshot.nodes[row]
    if not (request.devices or request.share) or not chooses(node):
        return NodeShare(node.name, count)
    free, numa = draft.device_free[row].tolist(), _offers_of(draft, row)
    chosen = []
    for _ in range(count):
        slots = _shared_slot(node, free, request) if request.share else _whole_slots(node, free, pod, request, numa)
        if slots is None:
            return None
        for slot in slots:
            free[slot] -= request.share or DEVICE
        _take(numa.get(node.devices[slots[0]].numa, {}), pod.requests)
        chosen.append(tuple(node.devices[slot].index for slot in slots))
    return NodeShare(node.name, count, tuple(chosen))


def _shared_slot(node: Node, free: list[int], request: Request) -> DeviceSlots | None:
    """The device with the least room that fits."""
    fits = [(free[slot], slot) for slot in range(len(node.devices)) if free[slot] >= request.share]
    return (min(fits)[1],) if fits else None


def _whole_slots(node: Node, free: list[int], pod: PodClass, request: Request, numa: Offers) -> DeviceSlots | None:
    """Free devices: of the tightest group that holds them all, the finest kind of group first, in a NUMA group that has
    the CPU as well if one has; else of the fewest groups."""
    whole = [slot for slot, one in enumerate(node.devices)
             if free[slot] == DEVICE and (one.numa >= 0 or not pod.alignment_required)]
    if len(whole) < request.devices:
        return None
    fits = [group for kinds in ((PAIR, NUMA) if pod.alignment_required else (PAIR, NVLINK, NUMA))
            for group in sorted(_grouped(node, whole, kinds), key=len) if len(group) >= request.devices]
    for group in fits:
        if _times(numa.get(node.devices[group[0]].numa, {}), pod, but=GPU):
            return group[: request.devices]
    if fits or pod.alignment_required:
        return None if pod.alignment_required else fits[0][: request.devices]
    groups = _grouped(node, whole, PAIR)
    if rest := set(whole).difference(*groups):
        groups.append(tuple(sorted(rest)))
    sizes = np.array([len(group) for group in groups], np.int64)
    taken = pick(sizes, request.devices, np.argsort(sizes, kind="stable"))
    return tuple(sorted(slot for at, count in taken for slot in groups[at][:count]))


def _grouped(node: Node, slots: Iterable[int], kinds: tuple[str, ...]) -> list[DeviceSlots]:
    """Slots by group, those of no known group left out."""
    groups: dict[tuple[int, ...], DeviceSlots] = {}
    for slot in slots:
        if max(group := tuple(getattr(node.devices[slot], kind) for kind in kinds)) >= 0:
            groups[group] = (*groups.get(group, ()), slot)
    return list(groups.values())


def _take(offered: dict[str, int], amounts: Iterable[tuple[str, int]]) -> None:
    """Take so much of what a NUMA group offers, as far as the group counts it."""
    for name, amount in amounts:
        if name in offered:
            offered[name] -= amount


def _offers_of(draft: Draft, row: int) -> Offers:
    """What is left in each NUMA group, as far as its holders are known. Where only what is free is told, what comes
    free of the node may be of any group."""
    snapshot, numa = draft.snapshot, draft.snapshot.nodes[row].numa
    left = {one.index: dict(one.capacity) for one in numa}
    for group, offered in left.items():
        _take(offered, draft.groups.get((row, group), {}).items())
    for offered, name, amount in ((left[one.index], *it) for one in numa for it in one.free or ()):
        column = snapshot.resources.index(name) if name in snapshot.resources else None
        gained = 0 if column is None else max(0, int(draft.free[column, row] - snapshot.free[column, row]))
        offered[name] = min(offered.get(name, amount), amount + gained)
    return left


def _times(offered: dict[str, int], pod: PodClass, *, but: str) -> int:
    """How many such pods a NUMA group could take, one resource apart."""
    asked = dict(pod.requests)
    rooms = [there // asked[name] for name, there in offered.items() if name != but and asked.get(name)]
    return max(min(rooms, default=PLENTY), 0)


def _aligned(draft: Draft, shape: Shape, row: int) -> int:
    """Pods that one NUMA group each can hold whole: devices, CPU and NIC."""
    (pod, request, _), node = shape, draft.snapshot.nodes[row]
    offers, free = _offers_of(draft, row), draft.device_free[row].tolist()
    if not chooses(node) or not (request.devices or request.share):
        if not offers or (request.share and not chooses(node)):
            return 0 if node.chooser == "Kubelet" else PLENTY
        return sum(_times(offered, pod, but="") for offered in offers.values())
    total = 0
    for slots in _grouped(node, range(len(node.devices)), NUMA):
        rooms = [free[slot] for slot in slots]
        whole = rooms.count(DEVICE) // max(request.devices, 1)
        pods = sum(max(room, 0) // request.share for room in rooms) if request.share else whole
        total += min(pods, _times(offers.get(node.devices[slots[0]].numa, {}), pod, but=GPU))
    return total
