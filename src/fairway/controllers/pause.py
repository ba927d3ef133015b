"""Paused workloads: their pods stay on their node, frozen; they hold their memory, and no CPU and no GPU.

Pausing is an eviction that stops nothing. The plan says which victims are paused; `status.paused` is written with the
eviction, each pod is told by an annotation, the node freezes it and says so in a condition (`fairway.dev/Frozen`). When
all say so the room is given up, as with any eviction. Admitted again, which is only where it was frozen, the annotation
goes and the node thaws. All that is remembered stands in these objects: killed between any two writes, the next turn
goes on from there. Where a pod cannot be frozen, where one is lost, where time is up or the memory is needed for other
things, the workload is stopped the usual way at once and queued again from its checkpoint, and an event says so.

`status.paused.disk` says how far its processes are written to disk (disk.py says when they are). It is Writing before
any pod is told, and Written when all of them say that they are there: only then is their memory free, and from Writing
on the workload needs memory to resume. Where a pod cannot be written, the workload stays in memory: Refused.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fairway.api.nodes import devices
from fairway.api.objects import FREEZE, FROZEN, NOT_SAVED, ON_DISK, SAVE, PodObject
from fairway.api.pods import is_frozen, why_frozen
from fairway.api.quantities import duration, time, time_text
from fairway.api.queues import path
from fairway.api.types import PausedStatus, QueueObject, WorkloadObject, WorkloadStatus
from fairway.api.workloads import condition
from fairway.kube.client import Client

from . import status as life
from .bind import holds_room, ref_of
from .cases import Case
from .means import Means
from .status import Said, holds

CANNOT, LOST = "CannotFreeze", "its processes were lost while it was paused"
PATIENCE, COPIED_BYTES = 30.0, 1 << 30
"""Seconds in which all pods are frozen, and one more for so much GPU memory: a PCIe link carries several times that."""
SETTLE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Pauses:
    means: Means
    _to_save: set[str] = field(default_factory=set)  # keys, as the last plan left it

    def save(self, keys: Collection[str]) -> Collection[str]:
        """These paused workloads, and no others, are to be written to disk at their next turn; returns them."""
        self._to_save.clear()
        self._to_save.update(keys)
        return keys

    def begun(self, said: WorkloadObject, status: WorkloadStatus, *, now: float, to_disk: bool) -> WorkloadStatus:
        """The status of a workload that is evicted now, by being paused; `said` is how it was before."""
        admission = said.status.admission
        if admission is None or not holds(said.status, "Running"):
            return status
        lasts = expiry(self.means.view.queues, said.spec.queue)
        until = "" if lasts is None else time_text(now + lasts)
        return life.pause(status, PausedStatus(time_text(now), admission, until, "Writing" if to_disk else ""))

    async def tend(self, case: Case, said: WorkloadObject) -> float | None:
        """The next thing for one that is paused, or is to be; when to look again."""
        paused, now = said.status.paused, self.means.now()
        assert paused is not None
        pods = [pod for pod in case.pods if holds_room(pod)]
        is_leaving = said.status.admission is not None and holds(said.status, "Evicted")
        if why := self._failure(case, said, pods, is_leaving=is_leaving):
            await self._give_up(case, said, why)
            return now + SETTLE_SECONDS
        if not is_leaving:
            await self.means.write(case.key, lambda it: life.suspend(it.status, is_active=it.spec.may_run))
            await self._mind_disk(case, said, pods)
            return time(paused.until) if paused.until else None
        await freeze(self.means.client, pods, paused.since, to_disk=paused.is_saved)
        if all(is_frozen(pod.status) and (not paused.disk or is_on_disk(pod)) for pod in pods):
            if await self.means.write(case.key, lambda it: life.rest(it.status)):
                memory = "written to disk; their memory is free" if paused.disk else "they keep their memory"
                where = f"its processes are frozen on {pods[0].spec.node_name}; {memory}"
                self.means.tell(case.owner, Said("Paused", where))
            return now + SETTLE_SECONDS
        return time(paused.since) + self._patience(paused)

    def _patience(self, paused: PausedStatus) -> float:
        """Seconds in which it freezes; more where much GPU memory moves to the memory of its node."""
        held = [(it.node, sum(map(len, it.devices))) for one in paused.admission.pod_sets for it in one.nodes]
        nodes = [(self.means.view.nodes[name], count) for name, count in held if name in self.means.view.nodes]
        moved = sum(each.memory for node, count in nodes for each in devices(node, count, ())[:count])
        return PATIENCE + moved / COPIED_BYTES

    async def _mind_disk(self, case: Case, said: WorkloadObject, pods: list[PodObject]) -> None:
        """The next step of one at rest to disk; one that went there with its machine takes the same steps."""
        paused, is_there = said.status.paused, all(map(is_on_disk, pods))
        assert paused is not None
        if not paused.disk and (is_there or case.key in self._to_save):
            await self.means.write(case.key, lambda it: life.save(it.status, "Writing"))
        if paused.disk != "Writing":
            return
        await freeze(self.means.client, pods, paused.since, to_disk=True)
        refused = _told(pods, NOT_SAVED)
        if is_there and await self.means.write(case.key, lambda it: life.save(it.status, "Written")):
            words = Said("PausedOnDisk", "its processes are written to disk; their memory is free")
            self.means.tell(case.owner, words)
        elif refused and await self.means.write(case.key, lambda it: life.save(it.status, "Refused")):
            words = Said("PausedInMemory", f"its processes stay in memory: {refused[0]}")
            self.means.tell(case.owner, words, is_warning=True)

    def _failure(self, case: Case, said: WorkloadObject, pods: list[PodObject], *, is_leaving: bool) -> str:
        """Why it cannot be paused, or no longer; "" if it can."""
        paused, now = said.status.paused, self.means.now()
        assert paused is not None and case.owner is not None
        refused = _told(pods, CANNOT)
        here = [pod for pod in pods if not pod.metadata.is_going]
        patience, wanted = self._patience(paused), min(case.owner.wanted(), paused.admission.pods)
        if not said.spec.active:
            return "it was suspended"
        if paused.until and now >= time(paused.until):
            return f"it was paused since {paused.since}, as long as its queue's expire lets it"
        if refused:
            return refused[0] if is_leaving else f"{LOST}: {refused[0]}"
        if is_leaving and (unsaved := _told(pods, NOT_SAVED)):
            return f"another workload needs its memory, and {unsaved[0]}"
        if not here or len(here) < wanted or not self.means.view.is_ready(here[0].spec.node_name):
            return "its processes are gone" if is_leaving else LOST
        if is_leaving and now >= time(paused.since) + patience and not all(is_frozen(pod.status) for pod in here):
            return f"its processes did not freeze within {patience:.0f} s"
        return ""

    async def _give_up(self, case: Case, said: WorkloadObject, why: str) -> None:
        when = "" if said.spec.may_run else " when it is resumed"
        words = Said("NotPaused", f"{why}; it is stopped and starts again from its last checkpoint{when}")
        if await self.means.write(case.key, lambda it: life.forfeit(it.status, words)):
            self.means.tell(case.owner, words, is_warning=True)


def expiry(queues: Mapping[str, QueueObject], name: str) -> float | None:
    """Seconds after which a paused workload of a queue gives its memory back: of the nearest queue that says so."""
    said = (queues[one].spec.expire for one in path(queues, name))
    return next((duration(text) for text in said if text), None)


def _told(pods: Iterable[PodObject], reason: str) -> list[str]:
    """What the condition Frozen of these pods says, where it has this reason."""
    found = (condition(pod.status.conditions, FROZEN) for pod in pods)
    return [one.message for one in found if one and one.reason == reason]


def is_on_disk(pod: PodObject) -> bool:
    """Whether its frozen processes are on disk."""
    return is_frozen(pod.status) and why_frozen(pod.status) == ON_DISK


async def freeze(client: Client, pods: Iterable[PodObject], since: str, *, to_disk: bool) -> None:
    """Tells the node of these pods to freeze them, and to write them to disk."""
    wanted = {FREEZE: since, **({SAVE: since} if to_disk else {})}
    for pod in pods:
        if not wanted.items() <= pod.metadata.annotations.items():
            await client.patch(ref_of(pod), {"metadata": {"uid": pod.metadata.uid, "annotations": wanted}})


async def thaw(client: Client, pods: Iterable[PodObject]) -> None:
    """Tells it to let them go on."""
    for pod in pods:
        if FREEZE in pod.metadata.annotations and holds_room(pod):
            note = {"metadata": {"uid": pod.metadata.uid, "annotations": {FREEZE: None, SAVE: None}}}
            await client.patch(ref_of(pod), note)
