"""Idle sessions: told some time ahead, then parked, which frees what they hold and keeps all else.

A workload with an `idleTimeout` is idle since the latest time that its pods are (`fairway.dev/idle-since`, written by
their node); a pod without that annotation is in use, or nobody knows, and then nothing is parked. AHEAD_SECONDS before
the time-out, at most half of it, its condition Idle turns True with an event. At the time-out the condition's reason
is Parked and the owner is switched off as its user would: a Job or a bare pod by the annotation `fairway.dev/paused`,
so that it keeps its place, and where the node can freeze it what it has in memory; what makes pods again and again by
its number of replicas, if that is one. Each write
follows from what is seen, so a crash between two of them is followed by the turn that repeats the second.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fairway.api import conditions
from fairway.api.decode import decode
from fairway.api.objects import IDLE_SINCE, PARKED_REPLICAS, PAUSED, Metadata, PodObject
from fairway.api.owners import controller_of
from fairway.api.quantities import Malformed, duration, time
from fairway.api.types import WorkloadObject
from fairway.api.workloads import key_of
from fairway.kube.agenda import Agenda
from fairway.kube.client import Client
from fairway.kube.kinds import Kind, Ref

from .bind import ref_of
from .cases import Case
from .means import Means
from .owner import Owner, PodsOwner
from .status import IDLE, PARKED, Said, holds, idle, since, turned

AHEAD_SECONDS = 900.0
SERVED = {
    "ReplicaSet": Kind("ReplicaSet", "replicasets", "apps/v1"),
    "Deployment": Kind("Deployment", "deployments", "apps/v1"),
    "StatefulSet": Kind("StatefulSet", "statefulsets", "apps/v1"),
    "Notebook": Kind("Notebook", "notebooks", "kubeflow.org/v1"),
}
"""What makes pods each of which is a workload."""
STOPPED = "kubeflow-resource-stopped"


class Idle:
    def __init__(self, means: Means) -> None:
        self.means, self.agenda = means, Agenda(means.client.clock, means.client.chance)

    async def run(self) -> None:
        """Until cancelled."""
        for said in self.means.view.workloads.values():
            self.note(said)
        await self.means.take_turns(self.agenda, self._turn)

    def note(self, said: WorkloadObject | None) -> None:
        """A workload, or a pod of it, changed."""
        if said is not None and (said.spec.idle_timeout or holds(said.status, IDLE)):
            self.agenda.note(key_of(said.metadata))

    async def _turn(self, key: str) -> float | None:
        now, case = self.means.now(), self.means.cases.case(key)
        said = case.workload
        if said is None or case.owner is None or not said.spec.may_run:
            return None
        timeout, began, ran = _timeout(said), idle_since(case.pods), since(said.status, "Running")
        if ran is None or not timeout or began is None:
            return await self._clear(key, said)
        began = max(began, ran)  # the pods of one that was frozen are those that were idle
        ahead, told = min(AHEAD_SECONDS, timeout / 2), since(said.status, IDLE)
        if now < began + timeout - ahead:
            await self._clear(key, said)
            return began + timeout - ahead
        off = await switch_of(self.means.client, case.owner)
        if off is None:
            return None
        end = max(began + timeout, (now if told is None else told) + ahead)
        if now < end:
            await self._warn(case, Said(IDLE, conditions.idle(began, end)), is_new=told is None)
            return end
        await self._park(case, Said(PARKED, conditions.parked(began, off.name)), off)
        return None

    async def _clear(self, key: str, said: WorkloadObject) -> None:
        if holds(said.status, IDLE):
            await self.means.write(key, lambda it: idle(it.status, None, now=self.means.now()))

    async def _warn(self, case: Case, words: Said, *, is_new: bool) -> None:
        now = self.means.now()
        stands = await self.means.write(case.key, lambda it: idle(it.status, words, now=now))
        if stands and is_new:
            self.means.tell(case.owner, words, is_warning=True)

    async def _park(self, case: Case, words: Said, off: "Switch") -> None:
        """First says so, then switches it off."""
        now = self.means.now()
        if await self.means.write(case.key, lambda it: turned(it.status, IDLE, words, now=now)):
            for ref in off.refs:
                await self.means.client.patch(ref, off.patch)
            self.means.tell(case.owner, words)


@dataclass(frozen=True, slots=True)
class Switch:
    """What is patched to stop a workload and keep it. `name`: what its user calls it."""

    name: str
    refs: tuple[Ref, ...]
    patch: dict[str, Any]


def idle_since(pods: Iterable[PodObject]) -> float | None:
    """Since when all of them are, those that are over apart; None while one is used, or nothing tells."""
    told = [pod.metadata.annotations.get(IDLE_SINCE, "") for pod in pods if not pod.status.is_over]
    try:
        return max(map(time, told), default=None)
    except Malformed:
        return None


def _timeout(said: WorkloadObject) -> float:
    try:
        return duration(said.spec.idle_timeout) if said.spec.idle_timeout else 0.0
    except Malformed:  # as its status says
        return 0.0


async def switch_of(client: Client, owner: Owner) -> Switch | None:
    """How an owner is parked; None of one with several replicas, each of which is a workload."""
    off = {"metadata": {"annotations": {PAUSED: "true"}}}
    if isinstance(owner, PodsOwner) and not owner.is_remade:
        return await _scaled(client, owner.pods[0])
    if isinstance(owner, PodsOwner):
        return Switch(owner.name, tuple(map(ref_of, owner.pods)), off)
    about = owner.about()
    return Switch(about.name, (Ref(about.kind, about.name, about.namespace),), off)


async def _scaled(client: Client, pod: PodObject) -> Switch | None:
    """The outermost of what makes the pod again and again, scaled to zero."""
    meta, top = pod.metadata, None
    while (above := controller_of(meta)) and above.kind in SERVED:
        ref = Ref(SERVED[above.kind], above.name, meta.namespace)
        if (found := await client.find(ref)) is None:
            return None
        top, meta = (ref, found), decode(found["metadata"], Metadata)
    if top is None:
        return None
    ref, found = top
    if ref.kind.name == "Notebook":
        return Switch(ref.name, (ref,), {"metadata": {"uid": meta.uid, "annotations": {STOPPED: "true"}}})
    if found["spec"].get("replicas", 1) != 1:
        return None
    about = {"uid": meta.uid, "annotations": {PARKED_REPLICAS: "1"}}
    return Switch(ref.name, (ref,), {"metadata": about, "spec": {"replicas": 0}})
