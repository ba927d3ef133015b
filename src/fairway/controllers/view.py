"""The objects as the informers last saw them, indexed as controllers ask for them.

One informer per kind, partial structs, nothing decided here. `told` hears of each change and must not wait. Pods are
found by the workload they belong to, which is read off the pod alone, so that the order in which informers hear of
things does not matter. Whoever wrote something waits with `shown` until it is seen: after that the view alone is the
truth, and nobody keeps his own writes on the side.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import msgspec

from fairway.api.objects import (
    DisruptionBudgetObject,
    JobObject,
    Metadata,
    NamespaceObject,
    NodeObject,
    PodObject,
    PriorityClassObject,
)
from fairway.api.types import NodePoolObject, QueueObject, ReservationObject, WorkloadObject
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.informer import Informer
from fairway.kube.kinds import Kind, Ref, Selection

Seen = (
    DisruptionBudgetObject
    | JobObject
    | NamespaceObject
    | NodeObject
    | NodePoolObject
    | PodObject
    | PriorityClassObject
    | QueueObject
    | ReservationObject
    | WorkloadObject
)
T = TypeVar("T", bound=Seen)
UNSEEN_SECONDS = 30.0
Told = Callable[[Kind, Seen | None, Seen | None], None]
Test = Callable[[Seen | None], bool]


class View:
    def __init__(self, client: Client, told: Told) -> None:
        self._client, self._told = client, told
        self._informers: dict[Kind, Informer[Seen]] = {}
        self._waiting: defaultdict[tuple[Kind, str], list[tuple[Test, asyncio.Future[None]]]] = defaultdict(list)
        self.nodes = self._store(kinds.NODES, NodeObject)
        self.pools = self._store(kinds.NODE_POOLS, NodePoolObject)
        self.queues = self._store(kinds.QUEUES, QueueObject)
        self.reservations = self._store(kinds.RESERVATIONS, ReservationObject)
        self.classes = self._store(kinds.PRIORITY_CLASSES, PriorityClassObject)
        self.namespaces = self._store(kinds.NAMESPACES, NamespaceObject)
        self.budgets = self._store(kinds.DISRUPTION_BUDGETS, DisruptionBudgetObject)
        self.workloads = self._store(kinds.WORKLOADS, WorkloadObject)
        self.jobs = self._store(kinds.JOBS, JobObject)
        self.pods = self._store(kinds.PODS, PodObject)

    def _store(self, kind: Kind, shape: type[T]) -> dict[str, T]:
        informer = Informer(self._client, Selection(kind), shape=shape, changed=partial(self._changed, kind))
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

    async def shown(self, ref: Ref, test: Test) -> None:
        """Returns once the object as seen passes `test` (None: it is not there), or after a while: an object that
        came and went between two lists is never seen."""
        key = f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name
        if not test(self._informers[ref.kind].store.get(key)):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[ref.kind, key].append((test, future))
            with suppress(TimeoutError):
                await self._client.clock.within(UNSEEN_SECONDS, future)

    def _changed(self, kind: Kind, old: Seen | None, new: Seen | None) -> None:
        meta = (new or old).metadata  # type: ignore[union-attr]
        waiting = self._waiting.pop((kind, key_of(meta)), ())
        for test, future in waiting:
            if test(new) and not future.done():
                future.set_result(None)
        if left := [(test, future) for test, future in waiting if not future.done()]:
            self._waiting[kind, key_of(meta)] = left
        self._told(kind, old, new)


def key_of(meta: Metadata) -> str:
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


class _Meta(msgspec.Struct, rename={"version": "resourceVersion"}):
    version: str = "0"
    uid: str = ""


def at_least(written: dict[str, object]) -> Test:
    """The test that shows a write: this version of the object or a later one, or that it is gone."""
    meta = msgspec.convert(written["metadata"], _Meta)

    def passes(seen: Seen | None) -> bool:
        return seen is None or seen.metadata.uid != meta.uid or int(seen.metadata.resource_version) >= int(meta.version)

    return passes
