"""What the page shows, as the informers last saw it. Nothing else is asked of the API server while somebody watches.

The informers start with the first viewer and end some minutes after the last. They read what the dashboard's own
credentials may list: Workloads of all namespaces, else of its own. A kind that may not be listed stays empty, and
`denied` names it. `version` grows with each change, and `after` waits for that.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Container, Mapping
from contextlib import suppress
from functools import partial
from hashlib import blake2s
from typing import Any, TypeVar

from fairway import LEASE, NAMESPACE
from fairway.api import objects, types
from fairway.api.alone import workload_of_pod
from fairway.api.cancelled import Record
from fairway.api.names import name_of
from fairway.api.quantities import Malformed, parse
from fairway.api.workloads import key_of
from fairway.engine import DEVICE, GPU
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client, unless_absent
from fairway.kube.informer import Informer
from fairway.kube.kinds import Kind, Selection

from .workload import Workload, cancelled, workload

T = TypeVar("T")
AGAIN_SECONDS, SYNC_SECONDS, UNSEEN_SECONDS = 5.0, 20.0, 300.0
REVIEW = Kind("SelfSubjectAccessReview", "selfsubjectaccessreviews", "authorization.k8s.io/v1", is_namespaced=False)


class BoundSpec(objects.Part, frozen=True):
    node_name: str = ""
    containers: tuple[objects.Container, ...] = ()


class BoundStatus(objects.Part, frozen=True):
    conditions: tuple[objects.Condition, ...] = ()


class BoundPod(objects.Object, frozen=True):
    """What a pod that takes room holds, as far as it is read of all pods."""

    spec: BoundSpec = BoundSpec()
    status: BoundStatus = BoundStatus()

    @property
    def gpus(self) -> int:
        """Whole GPUs, of all its containers; none while it is paused."""
        if any(one.type == objects.FROZEN and one.status == "True" for one in self.status.conditions):
            return 0
        asked = ({**it.resources.limits, **it.resources.requests}.get(GPU, 0) for it in self.spec.containers)
        with suppress(Malformed):
            return sum(parse(it, GPU) for it in asked) // DEVICE
        return 0


ALONE = Selection(kinds.PODS, labels=f"{objects.QUEUE},!batch.kubernetes.io/job-name")
BOUND = Selection(kinds.PODS, fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")


async def may(client: Client, verb: str, kind: Kind, namespace: str = "") -> bool:
    """Whether the user of `client` may; a server that does not judge rights allows everything."""
    group = kind.group_version.rpartition("/")[0]
    asked = {"verb": verb, "group": group, "resource": kind.plural, "namespace": namespace}
    review = {"apiVersion": REVIEW.group_version, "kind": REVIEW.name, "spec": {"resourceAttributes": asked}}
    said = await unless_absent(client.create(REVIEW, {"metadata": {}, **review}))
    return said is None or bool(said["status"]["allowed"])


def stored(kind: Kind, shape: type[T]) -> Mapping[str, T]:
    """Of a World: what it has seen of a kind."""
    return property(lambda world: world.store(kind))  # type: ignore[return-value]


class World:
    """`home`: the namespace of the dashboard's own credentials; `controller`: that of the controller, empty where that
    is to be found. `namespaces`: how many workloads each has. `on_node`: the keys of the workloads on each node;
    `bound`: the GPUs that all pods there request; `touched`: how often the node, or what is on it, has changed. `kept`:
    what views keep between two drawings. `looked_at`: when somebody looked last."""

    nodes = stored(kinds.NODES, objects.NodeObject)
    queues = stored(kinds.QUEUES, types.QueueObject)
    pools = stored(kinds.NODE_POOLS, types.NodePoolObject)
    reservations = stored(kinds.RESERVATIONS, types.ReservationObject)
    usage = stored(kinds.USAGE_DAYS, types.UsageDayObject)
    priorities = stored(kinds.PRIORITY_CLASSES, objects.PriorityClassObject)

    def __init__(self, client: Client, home: str, controller: str = "") -> None:
        self.client, self.home, self._controller = client, home, controller
        self.version, self.synced, self.looked_at = 0, asyncio.Event(), 0.0
        self._next: asyncio.Event = asyncio.Event()
        self.denied: list[str] = []
        self.workloads: dict[str, Workload] = {}
        self.namespaces: Counter[str] = Counter()
        self._own: dict[str, types.WorkloadObject] = {}  # what pods stand for
        self._gone: dict[str, Workload] = {}  # the last one cancelled of each name
        self.on_node: defaultdict[str, set[str]] = defaultdict(set)
        self.touched: Counter[str] = Counter()
        self.pools_version = 0
        self.kept: dict[str, Any] = {}
        self.bound: Counter[str] = Counter()
        self._informers: dict[Selection, Informer[Any]] = {}
        self._running: asyncio.Task[None] | None = None
        self._salt = client.chance.token().encode()

    def mask(self, key: str) -> str:
        """A name for the row of a workload that its viewer may not see; the same for the same workload."""
        return blake2s(key.encode(), key=self._salt[:32], digest_size=8).hexdigest()

    @property
    def is_watching(self) -> bool:
        return self._running is not None and not self._running.done()

    @property
    def is_away(self) -> bool:
        """Whether nothing is heard from the API server: what is shown may be long past."""
        return bool(self._informers) and all(it.is_away for it in self._informers.values())

    @property
    def away(self) -> list[str]:
        """The kinds that could not be read at the last try."""
        return sorted({selection.kind.plural for selection, it in self._informers.items() if it.is_away})

    async def seen(self) -> None:
        """Returns once everything is seen; begins to watch, unless it does. TimeoutError where that takes long."""
        self.looked_at = self.client.clock.elapsed()
        if not self.is_watching:
            self.synced.clear()
            self._running = asyncio.create_task(self._run())
        await self.client.clock.within(SYNC_SECONDS, self.synced.wait())

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    def store(self, kind: Kind) -> Mapping[str, Any]:
        """The objects of a kind that are seen, by their keys."""
        return next((it.store for selection, it in self._informers.items() if selection.kind == kind), {})

    @property
    def controller(self) -> str:
        """The namespace of the controller, as far as it is known."""
        return str(self.lease["metadata"]["namespace"]) if self.lease else self._controller or NAMESPACE

    @property
    def lease(self) -> Mapping[str, Any] | None:
        """The controller's: of several, where Fairway was moved, the one that was renewed last."""
        them = self.store(kinds.LEASES).values()
        return max(them, key=lambda it: (it.get("spec") or {}).get("renewTime") or "", default=None)

    def priority(self, it: Workload) -> str:
        """Its class, or the default one, and what that is worth."""
        name = it.priority or next((name for name, one in self.priorities.items() if one.global_default), "")
        return f"{name} ({self.priorities[name].value})" if name in self.priorities else name or "none"

    async def _run(self) -> None:
        for seen in (self._informers, self.workloads, self._own, self._gone, self.on_node, self.kept):
            seen.clear()
        for count in (self.namespaces, self.touched, self.bound):
            count.clear()
        while not (chosen := await self._chosen()):
            await self.client.clock.sleep(AGAIN_SECONDS)
        async with asyncio.TaskGroup() as tasks:
            for selection, shape, tell in chosen:
                self._informers[selection] = Informer(self.client, selection, shape=shape, changed=tell)
            running = [tasks.create_task(it.run()) for it in self._informers.values()]
            for informer in list(self._informers.values()):
                await informer.synced.wait()
            self.synced.set()
            self._mark()
            while (left := self.looked_at + UNSEEN_SECONDS - self.client.clock.elapsed()) > 0:
                await self.client.clock.sleep(left)
            for task in running:
                task.cancel()

    async def _chosen(self) -> list[tuple[Selection, Any, Any]]:
        """What is served and may be listed, its shape, and what reads its changes; nothing while the API server is
        away, or does not know Workloads."""
        self.denied = []
        with suppress(ApiError, OSError):
            served = {it["name"] for it in await self.client.resources(kinds.FAIRWAY)}
            return [it async for it in self._listed(served)] if kinds.WORKLOADS.plural in served else []
        return []

    async def _listed(self, served: Container[str]) -> AsyncIterator[tuple[Selection, Any, Any]]:
        shapes = {
            kinds.WORKLOADS: types.WorkloadObject, kinds.NODES: objects.NodeObject, kinds.QUEUES: types.QueueObject,
            kinds.NODE_POOLS: types.NodePoolObject, kinds.RESERVATIONS: types.ReservationObject,
            kinds.PRIORITY_CLASSES: objects.PriorityClassObject, kinds.LEASES: dict,
            kinds.USAGE_DAYS: types.UsageDayObject, kinds.EVENTS: Record,
        }  # fmt: skip
        reads = {kinds.WORKLOADS: self._read, kinds.EVENTS: self._read_record}
        if await may(self.client, "list", kinds.PODS):
            yield ALONE, objects.PodObject, self._read_pod
            yield BOUND, BoundPod, self._read_bound
        for kind, shape in shapes.items():
            tell = reads.get(kind) or partial(self._tell, kind)
            is_served = kind.group_version != kinds.FAIRWAY or kind.plural in served
            if is_served and (chosen := await self._readable(kind)):
                yield chosen, shape, tell
            else:
                self.denied.append(kind.plural)
                if kind == kinds.WORKLOADS:
                    yield Selection(kind, self.home), shape, tell

    async def _readable(self, kind: Kind) -> Selection | None:
        """All of a kind, if that may be listed; of leases the controller's, where it may be if it is not known; of
        events the records of what was cancelled, of its own namespace at least."""
        leases = (self._controller,) if self._controller else ("", NAMESPACE)
        fields = {kinds.LEASES: f"metadata.name={LEASE}", kinds.EVENTS: kinds.RECORDS.fields}.get(kind, "")
        for space in {kinds.LEASES: leases, kinds.EVENTS: ("", self.home)}.get(kind, ("",)):
            if await may(self.client, "list", kind, space):
                return Selection(kind, space, fields=fields)
        return None

    def _read(self, old: types.WorkloadObject | None, new: types.WorkloadObject | None) -> None:
        self._show(key_of((new or old).metadata))  # type: ignore[union-attr]

    def _read_pod(self, old: objects.PodObject | None, new: objects.PodObject | None) -> None:
        """A bare pod may be its own Workload."""
        meta = (new or old).metadata  # type: ignore[union-attr]
        key, made = f"{meta.namespace}/{name_of('Pod', meta.name)}", None
        with suppress(Malformed):
            made = workload_of_pod(new) if new else None
        self._own.pop(key, None)
        self._own |= {key: made} if made else {}
        self._show(key)

    def _read_record(self, old: Record | None, new: Record | None) -> None:
        """Of those of one name that were cancelled the last is shown, while none of that name is there."""
        it = cancelled(new or old)  # type: ignore[arg-type]
        if (self._gone.get(it.key, it).ended or 0.0) <= (it.ended or 0.0):
            self._gone.pop(it.key, None)
            self._gone |= {it.key: it} if new else {}
        self._show(it.key)

    def _read_bound(self, old: BoundPod | None, new: BoundPod | None) -> None:
        for pod, sign in ((old, -1), (new, 1)):
            if pod is not None and pod.gpus:
                self.bound[pod.spec.node_name] += sign * pod.gpus
                self.touched[pod.spec.node_name] += 1
                self._mark()

    def _show(self, key: str) -> None:
        if (gone := self.workloads.pop(key, None)) is not None:
            self._count(gone, -1)
        said = self.store(kinds.WORKLOADS).get(key) or self._own.get(key)
        if seen := workload(said) if said else self._gone.get(key):
            self.workloads[key] = seen
            self._count(seen, 1)
        self._mark()

    def _count(self, it: Workload, more: int) -> None:
        self.namespaces[it.namespace] += more
        if not self.namespaces[it.namespace]:
            del self.namespaces[it.namespace]
        for share in it.shares:
            self.touched[share.node] += 1
            (self.on_node[share.node].add if more > 0 else self.on_node[share.node].discard)(it.key)

    def _tell(self, kind: Kind, old: Any, new: Any) -> None:
        if kind == kinds.NODES:
            self.touched[(new or old).metadata.name] += 1
        self.pools_version += kind == kinds.NODE_POOLS
        if kind != kinds.LEASES or len({(it or {}).get("spec", {}).get("holderIdentity") for it in (old, new)}) > 1:
            self._mark()

    def _mark(self) -> None:
        """Wakes those that wait for a change."""
        self.version += 1
        self._next.set()
        self._next = asyncio.Event()

    async def after(self, version: int) -> int:
        """The next version after that one."""
        while self.version == version:
            await self._next.wait()
        return self.version
