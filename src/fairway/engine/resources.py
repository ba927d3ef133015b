"""Resource names and the columns they stand in; what a pod takes of its node and what it counts in a quota.

Whole numbers only. A pod takes its requests, the volumes that its node attaches, one pod slot and, when it shares a
device, so many milli-GPU of it. In quotas of `nvidia.com/gpu` a fraction counts as a fraction, GPU memory as request ÷
smallest GPU memory of the pool (rounded up), a MIG profile `nvidia.com/mig-<n>g.<m>gb` as n·1000/7 milli, summed over
the pods before it is divided.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from .model import ATTACHABLE, CPU, GPU, MEMORY, PODS, Admission, Amounts, Node, PodClass, PodSet, amounts

FIRST = (CPU, MEMORY, PODS, GPU)  # the columns every snapshot has, in this order; the others follow by name

DEVICE = 1000  # milli-GPU in a whole device

UNLIMITED = 1 << 40  # more than any workload asks for; the sum over all nodes stays in 64 bits

UNIT = {CPU: 1000, MEMORY: 2**30, GPU: DEVICE}
"""The whole unit in which shares are dealt out: one CPU, one GiB, one device; one of anything else."""

MIG = re.compile(r"nvidia\.com/mig-(\d+)g\.")
MEMORY_LABEL = "nvidia.com/gpu.memory"  # MiB, as GPU feature discovery sets it


def columns(names: Iterable[str]) -> tuple[str, ...]:
    """Resource names in column order."""
    return FIRST + tuple(sorted(set(names).difference(FIRST)))


def shared(pod: PodClass, gpu_memory: int) -> int:
    """Milli-GPU a pod takes of one shared device, 0 if it shares none; all of it where the memory is unknown."""
    if not pod.gpu_memory:
        return pod.gpu_fraction
    if not gpu_memory:
        return DEVICE
    part, fits = pod.gpu_memory * DEVICE // gpu_memory, gpu_memory // pod.gpu_memory
    return part if part * (fits + 1) > DEVICE else part + 1  # rounded so that three thirds fit, and no more than three


def taken(pod: PodClass, gpu_memory: int) -> dict[str, int]:
    """What one pod takes of its node, by resource."""
    amount = dict(pod.requests + pod.attaches)
    amount.setdefault(PODS, 1)
    if part := shared(pod, gpu_memory):
        amount[GPU] = part
    return amount


@lru_cache(1 << 12)
def frozen(podsets: tuple[PodSet, ...], *, on_disk: bool = False) -> tuple[PodSet, ...]:
    """The podsets as they count while they are paused: their memory, unless that is on disk, their volumes, and a pod
    slot each."""
    kept = () if on_disk else (MEMORY,)
    requests = (tuple(each for each in one.pod.requests if each[0] in kept) for one in podsets)
    pods = (replace(one.pod, requests=own, gpu_fraction=0, gpu_memory=0) for one, own in zip(podsets, requests))
    return tuple(replace(one, pod=pod) for one, pod in zip(podsets, pods))


@lru_cache(1 << 12)
def thawed(podsets: tuple[PodSet, ...], *, on_disk: bool = False) -> tuple[PodSet, ...]:
    """The podsets as they count when they resume after a pause: without what `frozen` holds."""
    rests = (replace(one.pod, requests=_rest(one.pod, on_disk=on_disk), attaches=()) for one in podsets)
    return tuple(replace(one, pod=rest) for one, rest in zip(podsets, rests))


def memory_of(podsets: tuple[PodSet, ...], admission: Admission) -> int:
    """Bytes that the podsets requested as they are admitted: what they hold while they are paused in memory."""
    return counted(podsets, counts_of(podsets, admission), 0).get(MEMORY, 0)


def _rest(pod: PodClass, *, on_disk: bool) -> Amounts:
    return amounts({name: amount for name, amount in pod.requests if on_disk or name != MEMORY} | {PODS: 0})


def slices(resource: str) -> int:
    """How many sevenths of a device one of a MIG profile is, 0 for other resources."""
    profile = MIG.match(resource)
    return int(profile[1]) if profile else 0


def counted(podsets: Iterable[PodSet], counts: Iterable[int], gpu_memory: int) -> dict[str, int]:
    """What so many pods of each podset count in quotas, by resource."""
    total: dict[str, int] = {}
    sevenths = 0
    for podset, count in zip(podsets, counts):
        for resource, amount in taken(podset.pod, gpu_memory).items():
            total[resource] = total.get(resource, 0) + amount * count
            sevenths += slices(resource) * amount * count
    if sevenths:
        total[GPU] = total.get(GPU, 0) + sevenths * DEVICE // 7
    return total


def counts_of(podsets: tuple[PodSet, ...], admission: Admission) -> tuple[int, ...]:
    """How many pods of each podset an admission holds, in the order of the podsets."""
    if len(podsets) == len(admission.podsets) == 1 and podsets[0].name == admission.podsets[0].name:
        return (admission.podsets[0].count,)  # most are so, and it is asked of all
    held = {placement.name: placement.count for placement in admission.podsets}
    return tuple([held.get(podset.name, 0) for podset in podsets])


def sizes_of(podsets: tuple[PodSet, ...], admission: Admission) -> tuple[tuple[str, int], ...]:
    """The same, each with the name of the podset."""
    return tuple(zip([podset.name for podset in podsets], counts_of(podsets, admission)))


def gpus_of(podsets: tuple[PodSet, ...], counts: Iterable[int], gpu_memory: int = 0) -> float:
    """GPUs that so many pods of each podset hold; a shared one by its fraction. `gpu_memory`: bytes of a GPU of their
    pool, 0 if unknown."""
    return counted(podsets, counts, gpu_memory).get(GPU, 0) / DEVICE


def device_memory(node: Node) -> int:
    """Bytes of the smallest GPU of a node, 0 if unknown."""
    known = [device.memory for device in node.devices if device.memory]
    if known:
        return min(known)
    label = dict(node.labels).get(MEMORY_LABEL, "")
    return int(label) * 2**20 if label.isdecimal() else 0


def capacity_of(node: Node) -> Mapping[str, int]:
    """What a node offers: its capacity, without devices that are broken or partitioned where Fairway counts them."""
    offered = dict(node.capacity)
    if node.devices and node.chooser != "Kubelet" and GPU in offered:
        whole = sum(DEVICE for device in node.devices if device.is_healthy and not device.is_partitioned)
        offered[GPU] = min(offered[GPU], whole)
    return offered


def supply(capacity: Mapping[str, int], resource: str) -> int:
    """How much of a resource a node of this capacity has; UNLIMITED of volumes that nothing limits."""
    return capacity.get(resource, UNLIMITED if resource.startswith(ATTACHABLE) else 0)
