"""Places that a running workload loses: its pods were lost, or another scheduler filled their nodes.

They are taken out of its admission, and what becomes of the rest is decided. What a plan assumes has to be seen first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fairway.api import conditions
from fairway.api.objects import PodObject
from fairway.api.pods import REJECTED, is_lost
from fairway.api.types import WorkloadObject, WorkloadStatus
from fairway.api.workloads import ROOM_TAKEN, back_off
from fairway.engine import Admission, Eviction

from . import status as life
from .bind import Place, holds_room, remove, stays, without
from .binder import Binder
from .cases import Case
from .held import served, value_of
from .means import Means
from .owner import Owner, PodsOwner, remake
from .status import Said, holds

SETTLE_SECONDS = 1.0  # a pod that went may be the first sign that its whole owner goes
GATHER_SECONDS = 0.1  # pods of a gang are often lost together


@dataclass(frozen=True, slots=True)
class Losses:
    means: Means
    binder: Binder

    async def count(self, case: Case, placed: Admission, owner: Owner) -> float | None:
        """Places whose pods were lost are taken out of the admission: what becomes of the rest is decided. A single pod
        is simply replaced, unless its node would not run it or takes none (what took it would meet it again), or it
        is the last of a gang that lost the others. Returns when to look again, while it is not sure."""
        now, noted = self.means.now(), self.means.cases.lost.get(case.key, {})
        total = sum(placement.count for placement in placed.podsets)
        said = case.workload
        sets = said.spec.pod_sets if said else ()
        least = sum(one.count if one.min_count is None else one.min_count for one in sets)
        counts = max(total, least) > 1 and said is not None and holds(said.status, "Running")
        lost = [pod for pod in noted.values() if counts or is_rejected(pod) or self._is_shut(pod)]
        there = sum(map(stays, case.pods))
        missing = lost[: max(0, min(total, owner.wanted()) - there)]
        if not missing:
            self.means.cases.found(case.key)
            return None
        sure = self.means.cases.lost_since[case.key] + _patience(case, missing)
        if now < sure:
            return sure
        if said and isinstance(owner, PodsOwner) and not await self._made_again(said, owner, missing):
            return now + SETTLE_SECONDS
        rejected, view = [pod for pod in missing if is_rejected(pod)], self.means.view
        down = [name for pod in missing if (name := pod.spec.node_name) in view.nodes and not view.is_ready(name)]
        failed = (*(pod.spec.node_name for pod in rejected), *down)
        if not await self.cut(case.key, without(placed, missing), failed):
            return now + SETTLE_SECONDS
        for pod in rejected:
            self.means.events.tell(owner.about(), "PodRejected", conditions.rejected(pod), is_warning=True)
        self.means.cases.counted(case.key, lost)
        return now

    async def _made_again(self, said: WorkloadObject, owner: PodsOwner, lost: Sequence[PodObject]) -> bool:
        """Makes the lost pods of a group again where the others run on; False while their names are not free."""
        if said.spec.restart != "Pod" or not owner.is_remade:
            return True
        uids = {pod.metadata.uid for pod in lost}
        if there := [pod for pod in owner.pods if pod.metadata.uid in uids]:
            await remove(self.means.client, there)
        else:
            await remake(self.means.client, said, owner.pods, lost={pod.metadata.name for pod in lost})
        return not there

    def _is_shut(self, pod: PodObject) -> bool:
        """Whether its node takes no pods now."""
        view, name = self.means.view, pod.spec.node_name
        return name in view.nodes and (view.nodes[name].spec.unschedulable or not view.is_ready(name))

    def crowded(self, key: str, given: Sequence[tuple[PodObject, Place]]) -> list[Place]:
        """Those of these places that are on nodes which another scheduler filled meanwhile, or where the last volume
        that a pod's claim could get is given to another."""
        full = {node for node in {place.node for _, place in given} if self.means.facts.is_crowded(node, key)}
        storage = self.binder.storage
        return [place for pod, place in given if place.node in full or storage.lacks(pod, place.node)]

    async def give_way(self, case: Case, left: Admission, crowded: Sequence[Place]) -> None:
        """Gives up places that another scheduler filled: a pod bound there would be refused, and a Job charged for it.
        What can go on elsewhere is decided; else the workload waits again, and backs off: its room may be taken each
        time that it comes. An attempt of which nothing ran counts as no service."""
        said, now = case.workload, self.means.now()
        assert said is not None
        has_begun = any(map(holds_room, case.pods))
        if has_begun and _can_go_on(said, left):
            await self.cut(case.key, left)
        elif not self.means.facts.state.assumes(case.key):
            node, eviction = crowded[0].node, Eviction(now, ROOM_TAKEN)
            until = back_off((*value_of(said).evictions, eviction)) or now
            is_full = self.means.facts.is_crowded(node, case.key)
            words = Said(eviction.reason, conditions.crowded_out(node, until, is_full=is_full))

            def make(it: WorkloadObject) -> WorkloadStatus:
                status = served(it, now=now) if has_begun else it.status
                return life.evict(status, eviction, words) if holds(status, "Admitted") else status

            if await self.means.write(case.key, make):
                self.means.tell(case.owner, words, is_warning=True)

    async def cut(self, key: str, left: Admission, failed: tuple[str, ...] = ()) -> bool:
        """Writes what is left of an admission; False: later. What a plan assumes has to be seen first, or it would be
        waited for without end."""
        if is_free := not self.means.facts.state.assumes(key):
            now = self.means.now()
            await self.means.write(key, lambda it: life.exclude(life.resize(served(it, now=now), left), failed))
            self.means.wake()
        return is_free

    def late_nodes(self, key: str, after: Iterable[str]) -> tuple[str, ...]:
        """Nodes whose pods did not get ready, or did not go."""
        own = self.means.cases.pods_of
        pods = [pod for pod in own.get(key, {}).values() if not holds(pod.status, "Ready")]
        pods += [pod for victim in after for pod in own.get(victim, {}).values()]
        return tuple(sorted({pod.spec.node_name for pod in pods if holds_room(pod)}))


def _patience(case: Case, missing: Sequence[PodObject]) -> float:
    """Seconds until the owner of lost pods surely stays. Where the pods are still there, it does already."""
    there = {pod.metadata.uid for pod in case.pods if not pod.metadata.is_going}
    return GATHER_SECONDS if all(pod.metadata.uid in there for pod in missing) else SETTLE_SECONDS


def is_rejected(pod: PodObject) -> bool:
    """Its kubelet would not run it."""
    return is_lost(pod.status) and (pod.status.reason in REJECTED or pod.status.reason.startswith("OutOf"))


def _can_go_on(said: WorkloadObject, left: Admission) -> bool:
    """Whether it runs on with what is left to it, or until it is decided what becomes of it."""
    least = {one.name: one.min_count for one in value_of(said).podsets}
    is_enough = all(one.count >= least[one.name] for one in left.podsets)
    return is_enough or holds(said.status, "Running") or said.spec.restart == "Pod"
