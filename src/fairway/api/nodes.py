"""Node objects → engine nodes: what they offer, who may use them, and which devices are inside.

A node without conditions counts as ready, one without a number of pods takes as many as a kubelet does by default: so
are nodes written down by hand. Devices are those of the annotation `fairway.dev/device-groups`; without it, where
Fairway chooses devices, as many as `nvidia.com/gpu` says, in the NUMA groups that a NodeResourceTopology tells.
"""

from contextlib import suppress
from functools import lru_cache
from typing import Literal

import msgspec

from fairway.engine import GPU, PODS, Device, Node, Numa, amounts

from . import objects
from .quantities import Malformed, Quantity, amounts_of, parse, shown, time, within

KUBELET_PODS = 110
GPU_MEMORY_LABEL = "nvidia.com/gpu.memory"  # MiB; like the next two set by GPU feature discovery
MIG_STRATEGY_LABEL, PRODUCT_LABEL = "nvidia.com/mig.strategy", "nvidia.com/gpu.product"
MOST_DEVICES = 1024

KINDS_OF_USE = ("busy", "idle")


class DevicePart(objects.Part, frozen=True):
    """One device in the annotation."""

    index: int
    numa: int = -1
    nvlink: int = -1
    memory: Quantity = 0
    mig: bool = False
    healthy: bool = True


def uses(said: objects.NodeObject) -> dict[int, str]:
    """How its devices are used, busy or idle, of those that tell."""
    told = (part.partition("=") for part in said.metadata.annotations.get(objects.GPU_USE, "").split(","))
    return {int(index): kind for index, _, kind in told if index.isdecimal() and kind in KINDS_OF_USE}


def downtime(said: objects.NodeObject) -> tuple[float, float] | None:
    """From when until when it was last down, with all its pods, as its own machine says; None where it says nothing."""
    began, has_ended, ended = said.metadata.annotations.get(objects.WENT_DOWN, "").partition("/")
    with suppress(ValueError):  # whoever wrote it by hand says nothing
        return (time(began), time(ended)) if has_ended else None
    return None


def node(
    said: objects.NodeObject, topology: objects.NodeTopologyObject | None = None,
    drivers: objects.CsiNodeObject | None = None,
) -> Node:
    meta, status = said.metadata, said.status
    offered = within("status.allocatable", amounts_of, status.allocatable)
    capacity = dict(offered or within("status.capacity", amounts_of, status.capacity))
    capacity.setdefault(PODS, KUBELET_PODS)
    capacity |= drivers.limits() if drivers else {}
    marks = (notes[objects.UNHEALTHY] for notes in (meta.labels, meta.annotations) if objects.UNHEALTHY in notes)
    zones = tuple(zone for zone in topology.zones if zone.type in ("Node", "")) if topology else ()
    return Node(
        name=meta.name,
        labels=tuple(sorted(meta.labels.items())),
        capacity=amounts(capacity),
        taints=said.spec.taints,
        is_ready=all(one.status == "True" for one in status.conditions if one.type == "Ready"),
        is_unschedulable=said.spec.unschedulable,
        is_unhealthy=any(mark.lower() != "false" for mark in marks),
        is_leaving=meta.is_going,
        can_pause=meta.annotations.get(objects.CAN_PAUSE) in ("true", objects.TO_DISK),
        is_short=any(one.type == "MemoryPressure" and one.status == "True" for one in status.conditions),
        can_save=meta.annotations.get(objects.CAN_PAUSE) == objects.TO_DISK,
        chooser=chooser(meta.labels),
        devices=devices(said, capacity.get(GPU, 0) // 1000, zones),
        numa=tuple(_group(index, zone, meta.labels) for index, zone in enumerate(zones)),
    )


def chooser(labels: dict[str, str]) -> Literal["Scheduler", "Claim", "Kubelet"]:
    """Who chooses devices; what is not a word we know is left to the kubelet, and so is a node all of whose GPUs are
    slices (MIG) that go by the name of GPUs: there is nothing to share."""
    is_sliced = labels.get(MIG_STRATEGY_LABEL) == "single" and "-MIG-" in labels.get(PRODUCT_LABEL, "-MIG-")
    if labels.get(objects.CHOOSER) == "Scheduler" and not is_sliced:
        return "Scheduler"
    return "Claim" if labels.get(objects.CHOOSER) == "Claim" else "Kubelet"


def devices(said: objects.NodeObject, count: int, zones: tuple[objects.Zone, ...]) -> tuple[Device, ...]:
    """The accelerators of a node where somebody other than its kubelet chooses among them."""
    meta = said.metadata
    if objects.DEVICES in meta.annotations:
        return within(f"metadata.annotations[{objects.DEVICES}]", _listed, meta.annotations[objects.DEVICES])
    if chooser(meta.labels) == "Kubelet":
        return ()
    label = meta.labels.get(GPU_MEMORY_LABEL, "")
    memory = int(label) * 2**20 if label.isascii() and label.isdecimal() else 0
    groups = [index for index, zone in enumerate(zones) for _ in range(parse(_offered(zone).get(GPU, 0)))]
    count = min(count, MOST_DEVICES)
    return _alike(tuple((groups + [-1] * count)[:count]), memory)


@lru_cache(256)
def _alike(numa: tuple[int, ...], memory: int) -> tuple[Device, ...]:
    """Made once for all nodes that have the same: there are thousands."""
    return tuple(Device(index, numa=group, memory=memory) for index, group in enumerate(numa))


def _listed(text: str) -> tuple[Device, ...]:
    try:
        parts = msgspec.json.decode(text, type=tuple[DevicePart, ...])
    except msgspec.DecodeError as error:
        raise Malformed(f"found {shown(text)}; a JSON list of devices is allowed ({error})") from None
    found = tuple(
        Device(one.index, one.numa, one.nvlink, within("memory", parse, one.memory), one.mig, one.healthy)
        for one in sorted(parts, key=lambda one: one.index)
    )
    if len({one.index for one in found}) < len(found) or any(one.index < 0 for one in found):
        raise Malformed(f"found {shown(text)}; each device has an index of its own, from 0")
    return found


def _group(index: int, zone: objects.Zone, labels: dict[str, str]) -> Numa:
    """What is free of it counts where the kubelet chooses: elsewhere it is known who holds what."""
    told = {one.name: one.available for one in zone.resources if one.available is not None}
    return Numa(index, amounts_of(_offered(zone)), amounts_of(told) if told and chooser(labels) == "Kubelet" else None)


def _offered(zone: objects.Zone) -> dict[str, Quantity]:
    return {one.name: one.allocatable or one.capacity for one in zone.resources}
