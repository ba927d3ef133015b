"""How many ranks an elastic training has: written on its pods, where the runner reads it.

A Job says in `fairway.dev/elastic` how it takes a resize. With `restart` all ranks stop and start again with the new
WORLD_SIZE; with `torchrun` they find each other by torchrun's own rendezvous and are told the range alone. The ranks
are the lowest indexes, and a rank that is still to be made is waited for. Ranks learn of a smaller number before
surplus pods go, and of a larger one when all pods that are new can be bound, so one resize is one restart. Once a rank
has succeeded the number stays: the training is about to end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairway.api.objects import ELASTIC, MIN_COUNT, WORLD_SIZE, PodObject
from fairway.engine import Admission, Workload
from fairway.kube.client import Client

from .bind import Place, rank, ref_of, stays
from .owner import JobOwner, Owner

Given = Sequence[tuple[PodObject, Place]]


@dataclass(frozen=True, slots=True)
class Ranks:
    """`size`: places of the admission; `told`: the number that the ranks run with, 0 before the first has started.
    `is_final`: a rank has succeeded."""

    mode: str
    least: int
    size: int
    told: int
    is_final: bool
    running: tuple[PodObject, ...]

    def now(self, given: Given) -> int:
        """The number that counts once of these pods those are bound that may be."""
        if self.is_final:
            return self.told
        own = {rank(pod) or 0 for pod in (*self.running, *(pod for pod, _ in given))}
        there = sum(number < self.size for number in own)
        is_ready = not self.told or self.size <= self.told or there >= self.size
        return self.size if is_ready else self.told

    def chosen(self, given: Given) -> Given:
        """Those of the pods that may start now."""
        most = self.now(given)
        return [one for one in given if (rank(one[0]) or 0) < most]

    def notes(self, size: int) -> dict[str, str]:
        """What is written on a pod when it is bound."""
        if self.mode == "torchrun":
            return {ELASTIC: self.mode, MIN_COUNT: str(self.least)}
        return {ELASTIC: self.mode, WORLD_SIZE: str(size)}

    async def tell(self, client: Client, size: int) -> None:
        """The first rank first: it stops the others, where they are on its machine."""
        if self.mode != "restart":
            return
        for pod in sorted(self.running, key=lambda pod: rank(pod) or 0):
            if _told(pod) != size and (rank(pod) or 0) < size:
                meta = {"uid": pod.metadata.uid, "annotations": {WORLD_SIZE: str(size)}}
                await client.patch(ref_of(pod), {"metadata": meta})


def ranks_of(owner: Owner, placed: Admission, value: Workload, pods: Sequence[PodObject]) -> Ranks | None:
    """None for what is no elastic training."""
    notes: Mapping[str, str] = owner.job.metadata.annotations if isinstance(owner, JobOwner) else {}
    if not notes.get(ELASTIC) or not isinstance(owner, JobOwner) or owner.job.spec.completion_mode != "Indexed":
        return None
    running = tuple(filter(stays, pods))
    done = [pod for pod in pods if pod.status.phase == "Succeeded"]
    told = max(map(_told, (*running, *done)), default=0)
    size = sum(placement.count for placement in placed.podsets)
    return Ranks(notes[ELASTIC], value.podsets[0].min_count, size, told, bool(done), running)


def _told(pod: PodObject) -> int:
    """How many ranks a pod was told of, at the least."""
    notes = pod.metadata.annotations
    text = notes.get(WORLD_SIZE, "") if notes.get(ELASTIC) == "restart" else ""
    return int(text) if text.isdecimal() else (rank(pod) or 0) + 1
