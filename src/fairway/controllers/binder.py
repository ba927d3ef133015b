"""Bindings as they are written: side by side, so many at once over all workloads, what is urgent first.

A gang's pods are bound by its admission, which is written already. A pod that is its own Workload (`fairway.api.alone`)
is admitted by its binding alone: while an answer leaves it open whether that was done, it is read back and repeated.
"""

import asyncio
from collections.abc import Mapping, Sequence

from fairway.api.alone import attempt
from fairway.api.objects import ATTEMPT, HOSTNAME, IN_QUEUE, POOL, QUEUE, USER, PodObject
from fairway.api.types import WorkloadObject
from fairway.api.workloads import key_of
from fairway.engine import Admission
from fairway.kube.client import ApiError
from fairway.kube.turnstile import AT_ONCE, Turnstile

from .bind import Place, bind, places, ref_of
from .means import AGAIN_SECONDS, Means
from .storage import Storage


class Binder:
    def __init__(self, means: Means) -> None:
        self.means, self.storage, self._turnstile = means, Storage(means), Turnstile(AT_ONCE)

    async def bind(
        self, said: WorkloadObject, given: Sequence[tuple[PodObject, Place]], notes: Mapping[str, str]
    ) -> None:
        """Returns when all are seen on their nodes: what is decided next must know who is there. The first failure is
        raised when nothing is under way any more."""
        notes = {ATTEMPT: f"{said.metadata.name}/{said.metadata.uid}/{said.status.attempt}", **notes}
        rank = self.means.rank(key_of(said.metadata))
        each = [self._bind_or_look(pod, place, {**_whose(said, pod), **notes}, rank) for pod, place in given]
        failed = [one for one in await asyncio.gather(*each, return_exceptions=True) if one]
        if failed:
            raise failed[0]

    async def place(self, key: str, to: Admission) -> bool:
        """Binds a pod that is its own Workload. True once it is seen there; False if it cannot be, and no binding of it
        may still arrive."""
        (place,), is_open = places(to.podsets[0]), False
        while (said := self.means.view.workloads.get(key)) and self.means.election.is_leader():
            if said.metadata.resource_version:
                return False
            (pod,) = self.means.cases.pods_of[key].values()
            if pod.spec.node_name:
                return pod.spec.node_name == place.node
            if self.storage.lacks(pod, place.node):
                await self.means.client.rest(AGAIN_SECONDS)
                return False
            try:
                await self._bind_one(pod, place, {ATTEMPT: attempt(pod), POOL: to.pool}, self.means.rank(key))
            except (ApiError, OSError) as error:
                is_open |= not isinstance(error, ApiError) or error.status >= 500
                if await self._is_free(pod) and not is_open:
                    return False
                await self.means.client.rest(AGAIN_SECONDS)
        return False

    async def _is_free(self, pod: PodObject) -> bool:
        """Whether the server has the very pod on no node yet; what it has is seen then."""
        found = await self.means.read_back(ref_of(pod))
        return bool(found) and found["metadata"]["uid"] == pod.metadata.uid and not found["spec"].get("nodeName")

    async def _bind_or_look(self, pod: PodObject, place: Place, notes: Mapping[str, str], rank: float) -> None:
        """A refusal was not acted upon; any other answer leaves it open whether the pod is bound."""
        try:
            await self._bind_one(pod, place, notes, rank)
        except (ApiError, OSError) as error:
            if not isinstance(error, ApiError) or error.status >= 500:
                await self._shown(pod)
            raise

    async def _bind_one(self, pod: PodObject, place: Place, notes: Mapping[str, str], rank: float) -> None:
        seen = self.means.view.nodes.get(place.node)
        hostname = seen.metadata.labels.get(HOSTNAME, "") if seen else ""
        await self.storage.settle(pod, place.node)
        async with self._turnstile.turn(rank):
            await bind(self.means.client, pod, place, notes=notes, hostname=hostname)
        await self._shown(pod)

    async def _shown(self, pod: PodObject) -> None:
        """Returns when it is seen on a node, or is gone."""
        uid = pod.metadata.uid
        await self.means.view.shown(ref_of(pod), lambda it: it is None or it.metadata.uid != uid or it.spec.node_name)


def _whose(said: WorkloadObject, pod: PodObject) -> dict[str, str]:
    """The queue and the user of its Workload, whatever the template of a pod says: its owner may leave it."""
    is_told = pod.metadata.labels.get(QUEUE) == said.spec.queue and IN_QUEUE not in pod.metadata.annotations
    return {USER: said.spec.user} if is_told else {IN_QUEUE: said.spec.queue, USER: said.spec.user}
