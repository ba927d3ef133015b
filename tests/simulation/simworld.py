"""A whole cluster in this process, under a virtual clock: API server in memory, job controller, nodes on paper.

The controllers reach it through a transport of their own, which may be faulty; everybody else's is sound.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from fairway.api.alone import workload_of_pod
from fairway.api.crds import crds
from fairway.api.objects import FROZEN, PodObject
from fairway.api.quantities import parse
from fairway.clock import Chance, Clock
from fairway.controllers.run import run
from fairway.embedded.access.identity import MASTERS
from fairway.embedded.errors import Failure
from fairway.embedded.gate import CONTROLLER, gate
from fairway.embedded.jobs import Jobs
from fairway.embedded.kinds import builtin_kinds
from fairway.embedded.registry import Admission, Admit, Registry, admit_all
from fairway.embedded.server import Server
from fairway.embedded.store import Store
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Kind, Ref, Selection
from fairway.kube.transport import Request, Response, Transport
from fairway.node.hollow import DURATION, Hollow, Pod, step
from fairway.settings import Settings

SETTINGS = Settings(namespace="kube-system", identity="simulation")
DEFINITIONS = crds()
Thing = dict[str, Any]


@dataclass(slots=True)
class World:
    server: Server
    client: Client
    clock: Clock
    chance: Chance
    hollow: Hollow
    dead: set[str]
    jobs: asyncio.Task[None]  # what makes pods of Jobs
    door: "Door"
    controllers: asyncio.Task[None] | None = None

    def start(self, transport: Transport | None = None, settings: Settings = SETTINGS) -> None:
        """The controllers, anew."""
        work = run(as_controller(transport or self.server.handle), settings, self.clock, self.chance)
        self.controllers = asyncio.create_task(work)

    async def crash(self) -> None:
        """The controllers are gone, wherever they were."""
        if self.controllers:
            self.controllers.cancel()
            with suppress(asyncio.CancelledError):
                await self.controllers
            self.controllers = None

    async def apply(self, *things: Thing) -> None:
        for thing in things:
            await self.client.create(KINDS[thing["kind"]], thing)

    async def mark(self, pod: str, note: str, text: str | None) -> None:
        """An annotation of a pod, as its node writes it."""
        node = Client(as_controller(self.server.handle), self.clock, self.chance)
        await node.patch(Ref(kinds.PODS, pod, "default"), {"metadata": {"annotations": {note: text}}})

    async def job(self, name: str) -> Thing:
        return await self.client.get(Ref(kinds.JOBS, name, "default"))

    async def workload(self, name: str) -> Thing:
        return await self.client.get(Ref(kinds.WORKLOADS, name, "default"))

    async def pods(self, *, phase: str = "") -> list[Thing]:
        """All pods, or those of a phase that are not being taken away."""
        found = await self.client.list(Selection(kinds.PODS, "default"))
        return [it for it in found if not phase or (it["status"].get("phase") == phase and not is_leaving(it))]

    async def queue(self, name: str = "default") -> Thing:
        return await self.client.get(Ref(kinds.QUEUES, name))

    async def phase(self, name: str) -> str:
        """Of a Workload, or of a pod that is its own; empty while there is neither."""
        found = [it for it in await self.client.list(Selection(kinds.WORKLOADS)) if it["metadata"]["name"] == name]
        if found:
            return str(found[0].get("status", {}).get("phase", ""))
        own = [it for it in await self.client.list(Selection(kinds.PODS), PodObject)
               if f"pod-{it.metadata.name}" == name]  # fmt: skip
        read = workload_of_pod(own[0]) if own else None
        return read.status.phase if read else ""

    async def says_reason(self, name: str, reason: str) -> bool:
        """Whether a Workload is there and waits for this reason."""
        found = [it for it in await self.client.list(Selection(kinds.WORKLOADS)) if it["metadata"]["name"] == name]
        return bool(found) and found[0].get("status", {}).get("reason") == reason

    async def is_in(self, name: str, *phases: str) -> bool:
        return await self.phase(name) in phases

    async def says(self, name: str, words: str) -> bool:
        """Whether it waits for its predecessors, and says so with these words."""
        found = [it for it in await self.client.list(Selection(kinds.WORKLOADS)) if it["metadata"]["name"] == name]
        said = found[0].get("status", {}) if found else {}
        return said.get("reason") == "DependencyPending" and said["message"].endswith(words)

    async def annotate(self, job: str, **said: str | None) -> None:
        """With our annotations, on a Job."""
        notes = {f"fairway.dev/{key.replace('_', '-')}": value for key, value in said.items()}
        await self.client.patch(Ref(kinds.JOBS, job, "default"), {"metadata": {"annotations": notes}})

    async def fail(self, node: Thing, *, is_gone: bool) -> None:
        """The node stops where it is: nothing of it starts, ends or goes. It is not ready, or not even there."""
        name = node["metadata"]["name"]
        self.dead.add(name)
        if is_gone:
            await self.client.delete(Ref(kinds.NODES, name))
        else:
            await self._ready(name, "Unknown")

    async def heal(self, node: Thing) -> None:
        """It is there again, with what was on it."""
        name = node["metadata"]["name"]
        self.dead.discard(name)
        if name not in names(await self.client.list(Selection(kinds.NODES))):
            await self.apply(node)
        await self._ready(name, "True")
        for key, pod in self.hollow.informer.store.items():
            if pod.spec.node_name == name:
                self.hollow.agenda.note(key)

    async def _ready(self, name: str, status: str) -> None:
        said = [{"type": "Ready", "status": status, "lastTransitionTime": "2027-01-15T08:00:00Z"}]
        await self.client.patch(Ref(kinds.NODES, name), {"status": {"conditions": said}}, subresource="status")

    async def delete(self, kind: Kind, name: str) -> None:
        await self.client.delete(Ref(kind, name, "default"))

    async def until(self, holds: Callable[[], Awaitable[Any]], *, seconds: float = 60.0) -> Any:
        """What `holds` says once it says something; asked after every write."""
        end = self.clock.now() + seconds
        while not (said := await holds()):
            if self.controllers and self.controllers.done() and not self.controllers.cancelled():
                self.controllers.result()
            try:
                await self.clock.within(end - self.clock.now(), self.server.registry.store.changed())
            except TimeoutError:
                raise TimeoutError(f"not so within {seconds} s") from None
        return said


@dataclass(slots=True)
class Door:
    """The admission check. While it is down nothing new is let in that it would judge, but what controllers make. An
    open one judges nothing."""

    admit: Admit
    is_open: bool = False
    is_down: bool = False

    def __call__(self, asked: Admission) -> tuple[Thing, Sequence[str]]:
        is_judged = asked.operation == "CREATE" and asked.kind.plural in ("jobs", "pods")
        if self.is_down and is_judged and asked.asker != CONTROLLER:
            raise Failure(500, "InternalError", "failed calling webhook")
        return self.admit(asked)


class Kubelets(Hollow):
    """Nodes on paper that refuse a pod for which they have no CPU left, and that tell how a pod ended a second before
    it is gone, as a kubelet does."""

    def __init__(self, client: Client, serves: Callable[[str], bool]) -> None:
        super().__init__(client, serves)
        self._leaves: dict[str, float] = {}

    async def _look(self, key: str) -> float | None:
        pod, now = self.informer.store.get(key), self.clock.now()
        if pod and pod.metadata.deletion_timestamp and (change := step(pod, now)[0]):
            self._leaves[pod.metadata.uid] = now + 1.0
            await self._write(key, pod, change)
        if pod and now < self._leaves.get(pod.metadata.uid, now):
            return self._leaves[pod.metadata.uid]
        is_new = pod and pod.status.phase == "Pending" and not pod.metadata.deletion_timestamp
        if pod and is_new and await self._is_short(pod):
            await self._write(key, pod, {"phase": "Failed", "reason": "OutOfcpu"})
            return None
        return await super()._look(key)

    async def _is_short(self, pod: Pod) -> bool:
        node, taken = await self.client.find(Ref(kinds.NODES, pod.spec.node_name)), 0
        for other in await self.client.list(Selection(kinds.PODS)):
            is_own = other["metadata"]["uid"] == pod.metadata.uid
            is_there = is_own or (is_running(other) and not is_frozen(other))
            if other["spec"].get("nodeName") == pod.spec.node_name and is_there:
                taken += parse(other["spec"]["containers"][0]["resources"]["requests"]["cpu"], "cpu")
        return node is not None and "status" in node and taken > parse(node["status"]["allocatable"]["cpu"], "cpu")


def as_controller(transport: Transport) -> Transport:
    """Requests of the controllers, which alone the server lets speak for others."""
    speaks = {"impersonate-user": CONTROLLER.name, "impersonate-group": MASTERS}

    async def exchange(request: Request) -> Response:
        return await transport(replace(request, headers={**request.headers, **speaks}))

    return exchange


KINDS = {
    kind.name: kind
    for kind in (kinds.JOBS, kinds.PODS, kinds.NODES, kinds.QUEUES, kinds.NODE_POOLS, kinds.PRIORITY_CLASSES,
                 kinds.NAMESPACES, kinds.RESERVATIONS, *kinds.STORAGE, *kinds.CSI)
}  # fmt: skip


@asynccontextmanager
async def cluster(
    clock: Clock, chance: Chance, *nodes: Thing, dead: frozenset[str] = frozenset(), has_door: bool = True,
    is_strict: bool = False,
) -> AsyncIterator[World]:
    """With these nodes, and without controllers yet. On those that are dead no pod ever starts or stops; strict ones
    refuse pods for which they have no CPU left."""
    store = Store()
    door = Door(gate(store, clock) if has_door else admit_all, is_open=not has_door)
    server = Server(Registry(store, builtin_kinds(), clock, chance, admit=door))
    await server.start()
    client = Client(server.handle, clock, chance)
    down = set(dead)
    hollow = (Kubelets if is_strict else Hollow)(client, lambda node: node not in down)
    async with asyncio.TaskGroup() as tasks:
        parts = (server.tend(), Jobs(client).run(), hollow.run())
        running = [tasks.create_task(part) for part in parts]
        for definition in DEFINITIONS:
            await client.create(kinds.DEFINITIONS, definition)
        world = World(server, client, clock, chance, hollow, down, jobs=running[1], door=door)
        await world.apply(*nodes)
        try:
            yield world
        finally:
            await world.crash()
            for task in running:
                task.cancel()


def node(name: str, *, cpu: int = 4, gpus: int = 0, labels: dict[str, str] | None = None) -> Thing:
    capacity = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    said = {"kubernetes.io/hostname": name, "fairway.dev/devices": "Scheduler", **(labels or {})}
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}]
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": said},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": ready},
    }  # fmt: skip


def priority(name: str, value: int, *, is_default: bool = False) -> Thing:
    return {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
        "globalDefault": is_default,
    }  # fmt: skip


def job(name: str, *, seconds: float = 100, cpu: str = "2", gpus: int = 0, **said: Any) -> Thing:
    """`said`: fields of the Job's spec; of its metadata: labels, annotations; of its pods: pod."""
    requests = {"cpu": cpu} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    container = {"name": "main", "image": "busybox", "command": ["sleep", str(seconds)],
                 "resources": {"requests": requests, "limits": requests}}  # fmt: skip
    meta = {key: said.pop(key) for key in ("labels", "annotations") if key in said}
    meta |= {"name": name, "namespace": "default"}
    spec = {"restartPolicy": "Never", "containers": [container], **said.pop("pod", {})}
    template = {"metadata": {"annotations": {DURATION: f"{seconds}s"}}, "spec": spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template, **said}}


def pod(name: str, *, seconds: float | None = 100, cpu: str = "2", gpus: int = 0, **said: Any) -> Thing:
    """A bare pod; `said`: labels, annotations."""
    requests = {"cpu": cpu} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    container = {"name": "main", "image": "busybox", "command": ["sleep", "100"],
                 "resources": {"requests": requests, "limits": requests}}  # fmt: skip
    notes = ({} if seconds is None else {DURATION: f"{seconds}s"}) | said.pop("annotations", {})
    meta = {"name": name, "namespace": "default", "annotations": notes, **said}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def is_running(pod: Thing) -> bool:
    return pod["status"].get("phase") == "Running"


def is_frozen(pod: Thing) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(it["type"] == FROZEN and it["status"] == "True" for it in conditions)


def is_leaving(thing: Thing) -> bool:
    return "deletionTimestamp" in thing["metadata"]


def is_true(thing: Thing, kind: str) -> bool:
    return any(it["type"] == kind and it["status"] == "True" for it in thing["status"].get("conditions") or ())


def names(things: Iterable[Thing]) -> list[str]:
    return [thing["metadata"]["name"] for thing in things]
