"""The objects as the informers last saw them: one informer per kind, partial structs, nothing decided here.

`told` hears of each change and must not wait. Whoever wrote something waits with `shown` or `caught_up` until it is
seen.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from fairway.api import objects, types
from fairway.api.objects import Object
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.informer import Informer
from fairway.kube.kinds import Kind, Ref, Selection

T = TypeVar("T", bound=Object)
Told = Callable[[Kind, Object | None, Object | None], None]


class View:
    def __init__(self, client: Client, told: Told) -> None:
        self._client, self._told = client, told
        self._informers: dict[Kind, Informer[Object]] = {}
        self.nodes = self._store(kinds.NODES, objects.NodeObject)
        self.pools = self._store(kinds.NODE_POOLS, types.NodePoolObject)
        self.queues = self._store(kinds.QUEUES, types.QueueObject)
        self.reservations = self._store(kinds.RESERVATIONS, types.ReservationObject)
        self.classes = self._store(kinds.PRIORITY_CLASSES, objects.PriorityClassObject)
        self.namespaces = self._store(kinds.NAMESPACES, objects.NamespaceObject)
        self.budgets = self._store(kinds.DISRUPTION_BUDGETS, objects.DisruptionBudgetObject)
        self.workloads = self._store(kinds.WORKLOADS, types.WorkloadObject)
        self.jobs = self._store(kinds.JOBS, objects.JobObject)
        self.pods = self._store(kinds.PODS, objects.PodObject)

    def _store(self, kind: Kind, shape: type[T]) -> dict[str, T]:
        informer = Informer(self._client, Selection(kind), shape=shape, changed=partial(self._told, kind))
        self._informers[kind] = informer  # type: ignore[assignment]
        return informer.store

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers.values():
                tasks.create_task(informer.run())

    async def synced(self) -> None:
        for informer in self._informers.values():
            await informer.synced.wait()

    async def shown(self, ref: Ref, test: Callable[[Object | None], bool]) -> None:
        await self._informers[ref.kind].shown(f"{ref.namespace}/{ref.name}".lstrip("/"), test)

    async def caught_up(self, kind: Kind, written: dict[str, Any]) -> None:
        await self._informers[kind].caught_up(written)
