"""What controllers work with, in one value; and how a status is written so that its outcome is known."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from fairway.api.decode import change
from fairway.api.objects import GPU_MEMORY, Object
from fairway.api.types import WorkloadObject, WorkloadStatus
from fairway.api.workloads import key_of
from fairway.kube import kinds
from fairway.kube.agenda import Agenda, Work
from fairway.kube.client import ApiError, Client
from fairway.kube.events import Events
from fairway.kube.kinds import Kind, Ref, ref
from fairway.kube.lease import Election
from fairway.settings import Settings

from .cases import Cases
from .facts import Facts
from .journal import Journal
from .metrics import Metrics
from .owner import Owner
from .status import Said
from .view import View

AGAIN_SECONDS = 1.0
Make = Callable[[WorkloadObject], WorkloadStatus]


@dataclass(frozen=True, slots=True)
class Means:
    """What is set last is where the parts meet. `wake`: what the next decision reads has changed. `tend`: a workload
    gets a turn. `rank`: its place in what is to be written, the least first. `remember`: what had no Workload has one.
    `must_charge`: whether its queue is still to charge it; asking makes sure that it does."""

    client: Client
    settings: Settings
    view: View
    cases: Cases
    facts: Facts
    metrics: Metrics
    events: Events
    journal: Journal
    election: Election
    wake: Callable[[], None]
    tend: Callable[[str], None]
    rank: Callable[[str], float]
    remember: Callable[[str], Awaitable[None]]
    must_charge: Callable[[WorkloadObject], bool]

    def now(self) -> float:
        return self.client.clock.now()

    async def write(self, key: str, make: Make) -> bool:
        """Writes the status that `make` makes of the Workload as seen, over that very version; True once it stands.

        A refusal is an observation: False. An answer that leaves it open (none in time, a cut connection, a 5xx) is
        not given up on: a write that may still arrive must not be forgotten. What is there is read back and the write
        repeated until an answer is plain. So `make` has to leave a status alone that is as it should be. A pod that is
        its own Workload gets one first, where that is to say what the pod does not.
        """
        while (seen := self.view.workloads.get(key)) and self.election.is_leader():
            stored, status = self.view.stored.get(key), self._sized(seen, make(seen))
            if stored is None and status == seen.status:
                return True
            patch = change(stored.status, status) if stored else {}
            if stored and not patch:
                return True
            try:
                if stored:
                    await self.patch(kinds.WORKLOADS, seen, {"status": patch})
                    return True
                await self.remember(key)
                if key not in self.view.stored:  # it is over, or nothing is to be made of it any more
                    return False
            except (ApiError, OSError) as error:
                if isinstance(error, ApiError) and error.status < 500:
                    return False
                await self.read_back(ref(kinds.WORKLOADS, key))
        return False

    def _sized(self, seen: WorkloadObject, status: WorkloadStatus) -> WorkloadStatus:
        """With how much memory a GPU of its pool has, where it asks for some of that: as it was when it came there."""
        to, was = status.admission, seen.status.admission
        asks = any(GPU_MEMORY in it.template.metadata.annotations for it in seen.spec.pod_sets)
        if to is None or to.gpu_memory or not asks:
            return status
        kept = was.gpu_memory if was and was.pool == to.pool else 0
        return replace(status, admission=replace(to, gpu_memory=kept or self.facts.state.gpu_memory_of(to.pool)))

    async def patch(self, kind: Kind, seen: Object, said: dict[str, Any]) -> None:
        """Changes an object, or its status alone, over the version seen, and waits until that is seen."""
        meta = {"uid": seen.metadata.uid, "resourceVersion": seen.metadata.resource_version}
        said = {**said, "metadata": {**said.get("metadata", {}), **meta}}
        place, part = ref(kind, key_of(seen.metadata)), "status" if "status" in said else ""
        await self.view.caught_up(kind, await self.client.patch(place, said, subresource=part))

    def tell(self, owner: Owner | None, words: Said, *, is_warning: bool = False) -> None:
        """An event about the owner of a workload, if it has one."""
        if owner:
            self.events.tell(owner.about(), words.reason, words.message, is_warning=is_warning)

    async def take_turns(self, agenda: Agenda, work: Work) -> None:
        """Until cancelled. While another leads, a key that is due only waits."""

        async def turn(key: str) -> float | None:
            return await work(key) if self.election.is_leader() else self.now() + AGAIN_SECONDS

        await agenda.run(turn)

    async def read_back(self, place: Ref) -> dict[str, Any] | None:
        """What the server has of an object after a failure, asked for until it answers; the view is as new then."""
        while True:
            try:
                found = await self.client.find(place)
            except (ApiError, OSError):
                await self.client.rest(AGAIN_SECONDS)
                continue
            if found is None:
                await self.view.shown(place, lambda seen: seen is None)
            else:
                await self.view.caught_up(place.kind, found)
            return found
