"""The objects as the informers last saw them: one informer per kind, partial structs, nothing decided here.

`told` hears of each change and must not wait. `stored` are the Workloads that are written, `workloads` those and what
bare pods stand for that have none: whoever hears of changes keeps it so. Whoever wrote something waits with `shown` or
`caught_up` until it is seen. Kinds of owners that others define, and what tells of the inside of nodes, are watched
from when their definition is there until it goes: one that is not installed costs no request.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from fairway.api import objects, types
from fairway.api.forms import batch
from fairway.api.forms.form import Form
from fairway.api.objects import DefinitionObject, Metadata, Object
from fairway.api.owners import GROUPS, OWNERS, controller_of, kind_of
from fairway.api.quantities import Malformed, Quantity
from fairway.api.volumes import Storage
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.informer import Informer
from fairway.kube.kinds import Kind, Ref, Selection

T = TypeVar("T", bound=Object)
Told = Callable[[Kind, Object | None, Object | None], None]
Named = tuple[str, str, str]
"""Group, kind and name of an owner."""
LONGEST_CHAIN = 8
CORE = ("scheduling.k8s.io", "PodGroup")
VERSIONS = {**GROUPS, objects.TOPOLOGY: tuple(f"{objects.TOPOLOGY[0]}/{one}" for one in ("v1alpha2", "v1alpha1"))}
OTHERS = dict.fromkeys(GROUPS, objects.PodGroupObject) | {objects.TOPOLOGY: objects.NodeTopologyObject}
AGAIN_SECONDS = 1.0
log = logging.getLogger(__name__)


class View:
    def __init__(self, client: Client, told: Told) -> None:
        self._client, self._told = client, told
        self._informers: dict[Kind, Informer[Object]] = {}
        self._owners: dict[tuple[str, str], Kind] = {("batch", "Job"): kinds.JOBS}
        self._defined, self._followed = asyncio.Event(), asyncio.Event()
        self._definitions = Informer(
            client, Selection(kinds.DEFINITIONS), shape=DefinitionObject, changed=lambda *_: self._defined.set()
        )
        self.nodes = self._store(kinds.NODES, objects.NodeObject)
        self.pools = self._store(kinds.NODE_POOLS, types.NodePoolObject)
        self.queues = self._store(kinds.QUEUES, types.QueueObject)
        self.reservations = self._store(kinds.RESERVATIONS, types.ReservationObject)
        self.months = self._store(kinds.USAGE_MONTHS, types.UsageMonthObject)
        self.classes = self._store(kinds.PRIORITY_CLASSES, objects.PriorityClassObject)
        self.namespaces = self._store(kinds.NAMESPACES, objects.NamespaceObject)
        self.ranges = self._store(kinds.LIMIT_RANGES, objects.LimitRangeObject)
        self.budgets = self._store(kinds.DISRUPTION_BUDGETS, objects.DisruptionBudgetObject)
        self.storage = Storage(
            self._store(kinds.CLAIMS, objects.ClaimObject),
            self._store(kinds.VOLUMES, objects.VolumeObject),
            self._store(kinds.STORAGE_CLASSES, objects.StorageClassObject),
            self._store(kinds.CSI_DRIVERS, objects.CsiDriverObject),
            self._store(kinds.CAPACITIES, objects.CapacityObject),
        )
        self.csi_nodes = self._store(kinds.CSI_NODES, objects.CsiNodeObject)
        self._csi = {kind: self._informers.pop(kind) for kind in kinds.CSI}  # watched where they are served
        self.stored = self._store(kinds.WORKLOADS, types.WorkloadObject)
        self.workloads: dict[str, types.WorkloadObject] = {}
        self.jobs = self._store(kinds.JOBS, batch.Job)
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
            tasks.create_task(self._definitions.run())
            await self._follow(tasks)

    async def _follow(self, tasks: asyncio.TaskGroup) -> None:
        """Watches the owners whose definition is served, and no others."""
        builtin = self._owners | await self._core_groups()
        served_csi = {it["kind"] for it in await self._resources(kinds.CSI_NODES.group_version)}
        for kind in (it for it in kinds.CSI if it.name in served_csi):
            self._informers[kind] = self._csi[kind]
            tasks.create_task(self._csi[kind].run())
        running: dict[tuple[str, str], asyncio.Task[None]] = {}
        while True:
            await self._defined.wait()
            self._defined.clear()
            served = builtin | dict(filter(None, map(_served, self._definitions.store.values())))
            for key in [key for key, kind in self._owners.items() if served.get(key) != kind]:
                running.pop(key).cancel()
                gone = self._owners.pop(key)
                for one in list(self._informers.pop(gone).store.values()):
                    self._told(gone, one, None)
            for key in served.keys() - self._owners.keys():
                kind = self._owners[key] = served[key]
                self._store(kind, OWNERS[key].form if key in OWNERS else OTHERS[key])  # type: ignore[type-var]
                running[key] = tasks.create_task(self._informers[kind].run())
            self._followed.set()

    async def _core_groups(self) -> dict[tuple[str, str], Kind]:
        """Kubernetes' own kind for gangs, where it has one."""
        for version in GROUPS[CORE]:
            for it in await self._resources(version):
                if it["kind"] == CORE[1] and "/" not in it["name"]:
                    return {CORE: Kind(CORE[1], str(it["name"]), version)}
        return {}

    async def _resources(self, version: str) -> list[dict[str, Any]]:
        """What is served of a version of a group. It asks once: that changes with the API server."""
        while True:
            try:
                return await self._client.resources(version)
            except (ApiError, OSError) as error:
                log.warning("what %s serves is not known: %s; trying again", version, error)
                await self._client.rest(AGAIN_SECONDS)

    async def synced(self) -> None:
        """Returns when every informer has its first list, those of the owners that are defined included."""
        await self._definitions.synced.wait()
        self._followed.clear()
        self._defined.set()
        await self._followed.wait()
        for informer in list(self._informers.values()):
            await informer.synced.wait()

    def watched(self, key: tuple[str, str]) -> Kind | None:
        """Where the owners of a group and kind are watched; None: they are not defined."""
        return self._owners.get(key)

    def owner(self, key: tuple[str, str], name: str) -> Form | None:
        """The owner of a kind, by `namespace/name`, if it is seen."""
        kind = self._owners.get(key)
        return self._informers[kind].store.get(name) if kind else None  # type: ignore[return-value]

    def group(self, key: tuple[str, str], name: str) -> objects.PodGroupObject | None:
        """What describes a gang of bare pods, by `namespace/name`, if it is seen."""
        return self.owner(key, name)  # type: ignore[return-value]

    def topology(self, node: str) -> objects.NodeTopologyObject | None:
        """What tells of the inside of a node, if it is seen."""
        return self.owner(objects.TOPOLOGY, node)  # type: ignore[return-value]

    def top(self, namespace: str, owner: Named) -> Named:
        """What is queued as a whole, of all that stand above one another: the outermost that is known."""
        for _ in range(LONGEST_CHAIN):
            seen = self.owner(owner[:2], f"{namespace}/{owner[2]}")
            above = self.above(seen.metadata) if seen else None
            if above is None:
                return owner
            owner = above
        return owner

    def above(self, meta: Metadata) -> Named | None:
        """What controls it, if that is queued as a whole; one that asks for no pods is not."""
        ref = controller_of(meta)
        if ref is None or kind_of(ref) not in self._owners:
            return None
        seen = self.owner(kind_of(ref), f"{meta.namespace}/{ref.name}")
        is_whole = seen is None or OWNERS[kind_of(ref)].source is not None or bool(asked(seen))
        return (*kind_of(ref), ref.name) if is_whole else None

    def is_ready(self, node: str) -> bool:
        """Whether a node of this name is there and ready."""
        seen = self.nodes.get(node)
        return seen is not None and all(one.status == "True" for one in seen.status.conditions if one.type == "Ready")

    def usual(self, namespace: str) -> dict[str, Quantity]:
        """What a container of the namespace requests that does not say so: an API server adds it to each pod."""
        ranges = (it for it in self.ranges.values() if it.metadata.namespace == namespace)
        items = (item for it in ranges for item in it.spec.limits if item.type == "Container")
        return {name: amount for item in items for name, amount in item.default_request.items()}

    async def shown(self, ref: Ref, test: Callable[[Object | None], bool]) -> None:
        await self._informers[ref.kind].shown(f"{ref.namespace}/{ref.name}".lstrip("/"), test)

    async def caught_up(self, kind: Kind, written: dict[str, Any]) -> None:
        await self._informers[kind].caught_up(written)


def _served(said: DefinitionObject) -> tuple[tuple[str, str], Kind] | None:
    """The kind of owner, or of the inside of nodes, that a definition serves now."""
    spec, key = said.spec, (said.spec.group, said.spec.names.kind)
    is_there = any(one.type == "Established" and one.status == "True" for one in said.status.conditions or ())
    served = {f"{spec.group}/{one.name}" for one in spec.versions if one.served} if is_there else set()
    known = OWNERS[key].versions if key in OWNERS else VERSIONS.get(key, ())
    best = next((one for one in known if one in served), "")
    return (key, Kind(spec.names.kind, spec.names.plural, best)) if best else None


def asked(said: Form) -> tuple[types.PodSetSpec, ...]:
    """The podsets that an owner asks for; one, whatever it is, of an owner that contradicts itself."""
    try:
        return said.podsets()
    except Malformed:
        return (types.PodSetSpec(),)
