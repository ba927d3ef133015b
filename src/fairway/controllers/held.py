"""What a Workload object holds, has used and would lose, as far as it tells itself."""

from collections.abc import Collection, Mapping
from math import inf

from msgspec.structs import replace

from fairway.api import conditions
from fairway.api.nodes import downtime
from fairway.api.objects import NodeObject, PodObject
from fairway.api.pods import is_lost
from fairway.api.quantities import duration, time
from fairway.api.types import WorkloadObject, WorkloadStatus
from fairway.api.workloads import Reading, gpu_memory_of, pods_of, podsets_of, unsaved, workload
from fairway.engine import DEVICE, GPU, Cause, Eviction, Running, Workload, counted, counts_of

from . import status as life
from .bind import ended_at
from .status import Said, since


def value_of(said: WorkloadObject) -> Workload:
    """The workload, as far as its own object tells."""
    return workload(said, Reading())


def held_by(one: Running, memories: Mapping[str, int]) -> dict[str, int]:
    """What a workload counts in quotas, by resource; `memories`: bytes of a GPU by pool."""
    podsets = one.workload.podsets
    return counted(podsets, counts_of(podsets, one.admission), memories.get(one.admission.pool, 0))


def held_of(said: WorkloadObject) -> dict[str, int]:
    """What it holds now, in base units by resource."""
    if said.status.admission is None:
        return {}
    placed = {part.name: sum(map(pods_of, part.nodes)) for part in said.status.admission.pod_sets}
    podsets = podsets_of(said)
    return counted(podsets, [placed.get(one.name, 0) for one in podsets], gpu_memory_of(said))


def gpus_of(said: WorkloadObject) -> float:
    """GPUs it holds; a shared one by its fraction."""
    return held_of(said).get(GPU, 0) / DEVICE


def lost_work(seen: WorkloadObject, now: float) -> float:
    """GPU-seconds since the last checkpoint, or since it started."""
    saved, every = seen.spec.last_checkpoint, seen.spec.checkpoint_interval
    start = since(seen.status, "Admitted") or now
    lost = now - unsaved(start, now, time(saved) if saved else None, duration(every) if every else None)
    return max(0.0, lost) * gpus_of(seen)


def served(said: WorkloadObject, *, now: float) -> WorkloadStatus:
    """Its status with what it has held until now."""
    return life.served(said.status, now=now, held=held_of(said), queue=said.spec.queue)


def begun_again(
    said: WorkloadObject, nodes: Mapping[str, NodeObject], pods: Collection[PodObject]
) -> WorkloadObject:
    """Where all its nodes were down with their pods since it was admitted, what is so then: it was evicted when they
    went down, and was back in its places, with the same pods, when they were. Else it is as it was, as where all its
    pods had ended by then."""
    status, began = said.status, since(said.status, "Admitted")
    if began is None or status.admission is None or status.is_over or said.metadata.is_going:
        return said
    downs = [downtime(nodes[name]) if name in nodes else None for name in status.admission.nodes]
    if not downs or not all(one and began <= one[0] for one in downs):
        return said
    down, back = max(filter(None, downs))
    if pods and all(it.status.is_over and not is_lost(it.status) and ended_at(it, inf) <= down for it in pods):
        return said
    words, lost = Said(Cause.NODE_LOST, conditions.BEGAN_AGAIN), round(lost_work(said, down) * DEVICE)
    gone = life.evict(served(said, now=down), Eviction(down, words.reason), words, of=(said.spec.queue, lost))
    left = life.leave(replace(gone, moves_to=status.admission), now=back)
    return replace(said, status=replace(left, attempt=status.attempt))


def used(said: WorkloadObject, *, now: float) -> WorkloadStatus:
    """Its status with all that it has used: until it was over or deleted, else until now."""
    status = said.status
    if status.is_over:
        if status.served is not None:
            return status
        running = replace(said, status=replace(status, phase="Running"))  # of a pod that was its own it is not written
        return replace(served(running, now=since(status, "Finished") or now), phase=status.phase)
    deleted = said.metadata.deletion_timestamp
    return served(said, now=min(now, time(deleted)) if deleted else now)
