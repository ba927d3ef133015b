"""Claims that wait for their first consumer get a volume, or the node to make one on, before their pod is bound.

That is the scheduler's part: the volume controller and the provisioner wait for it. The smallest free volume that the
node reaches is given first; where there is none, the node is written into the claim. The pod is bound without waiting
for what they make of it: its kubelet waits. Claims go one after the other, and each write is seen before the next, so
that no volume is given twice; one that another took meanwhile is refused by its version.
"""

import asyncio

from fairway.api.objects import ClaimObject, PodObject, VolumeObject
from fairway.api.volumes import SELECTED_NODE, claims_of, reaches
from fairway.kube import kinds
from fairway.kube.client import ApiError

from .means import Means

BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"


class Storage:
    def __init__(self, means: Means) -> None:
        self.means, self._turn = means, asyncio.Lock()

    async def settle(self, pod: PodObject, node: str) -> None:
        """Returns when each claim of the pod has its volume, or will get it on this node. Raises ApiError where one can
        get none there any more, or is not there yet."""
        if names := _claims_of(pod):
            async with self._turn:
                for name in names:
                    await self._settle(name, node)

    def lacks(self, pod: PodObject, node: str) -> bool:
        """Whether one of the pod's claims can get no volume on this node any more."""
        storage = self.means.view.storage
        known = [one for one in map(storage.claims.get, _claims_of(pod)) if one and self._is_open(one)]
        return not all(storage.is_made(one) or self._volume(one, node) for one in known)

    async def _settle(self, name: str, node: str) -> None:
        storage = self.means.view.storage
        claim = storage.claims.get(name)
        if claim is None:
            raise ApiError(409, "Conflict", f"PersistentVolumeClaim {name} is not there yet")
        if not self._is_open(claim):
            return
        if volume := self._volume(claim, node):
            if not volume.spec.claim_ref.name:
                await self._tie(volume, claim)
        elif storage.is_made(claim):
            await self.means.patch(kinds.CLAIMS, claim, {"metadata": {"annotations": {SELECTED_NODE: node}}})
        else:
            raise ApiError(409, "Conflict", f"no volume on node {node} is free for PersistentVolumeClaim {name}")

    def _is_open(self, claim: ClaimObject) -> bool:
        return self.means.view.storage.waits(claim) and SELECTED_NODE not in claim.metadata.annotations

    def _volume(self, claim: ClaimObject, node: str) -> VolumeObject | None:
        """The first that would do for it, and that the node reaches."""
        seen = self.means.view.nodes.get(node)
        labels = seen.metadata.labels if seen else {}
        fitting = self.means.view.storage.fitting(claim)
        return next((one for one in fitting if reaches(one, node, labels)), None)

    async def _tie(self, volume: VolumeObject, claim: ClaimObject) -> None:
        meta = claim.metadata
        to = {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
              "namespace": meta.namespace, "name": meta.name, "uid": meta.uid}  # fmt: skip
        notes = {"annotations": {BY_CONTROLLER: "yes"}}
        await self.means.patch(kinds.VOLUMES, volume, {"metadata": notes, "spec": {"claimRef": to}})


def _claims_of(pod: PodObject) -> list[str]:
    return [f"{pod.metadata.namespace}/{name}" for name, _ in claims_of(pod)]
