"""Who is behind a Service: its Endpoints and EndpointSlices follow the pods that its selector takes, as they get ready.

A Service without a selector is left alone. Both kinds are owned by the Service and go with it. What carries connections
(carry.py) is told in the same turn; while it says that there is more to be done, the turn is taken again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from msgspec import field

from fairway.api.objects import Metadata, Part, PodStatus
from fairway.kube.agenda import Agenda
from fairway.kube.client import ApiError, Client
from fairway.kube.informer import Informer
from fairway.kube.kinds import PODS, Kind, Ref, Selection

SERVICES, ENDPOINTS = Kind("Service", "services"), Kind("Endpoints", "endpoints")
SLICES = Kind("EndpointSlice", "endpointslices", "discovery.k8s.io/v1")
OF_SERVICE, MANAGED_BY = "kubernetes.io/service-name", "endpointslice.kubernetes.io/managed-by"
HERE = "127.0.0.1"
Thing = dict[str, Any]


class Service(Part):
    metadata: Metadata = Metadata()
    spec: Thing = field(default_factory=dict)


class Spec(Part):
    node_name: str = ""
    hostname: str = ""
    containers: list[Thing] = field(default_factory=list)
    init_containers: list[Thing] = field(default_factory=list)


class Backend(Part):
    """A pod, as far as a Service looks at it."""

    metadata: Metadata = Metadata()
    spec: Spec = field(default_factory=Spec)
    status: PodStatus = PodStatus()

    @property
    def is_ready(self) -> bool:
        return any((it.type, it.status) == ("Ready", "True") for it in self.status.conditions)

    def port(self, target: int | str) -> int | None:
        """The number that a Service's `targetPort` means here."""
        if isinstance(target, int) or target.isdecimal():
            return int(target)
        ports = (port for it in (*self.spec.containers, *self.spec.init_containers) for port in it.get("ports") or ())
        return next((int(port["containerPort"]) for port in ports if port.get("name") == target), None)


Carry = Callable[[Service, list[Backend]], Awaitable[float | None]]


class Services:
    """`carry`: told of each Service and its ready pods; returns when it wants to be told again."""

    def __init__(self, client: Client, carry: Carry) -> None:
        self.client, self.carry = client, carry
        self.agenda = Agenda(client.clock, client.chance)
        self.services = Informer(client, Selection(SERVICES), shape=Service, changed=self._changed)
        self.pods = Informer(client, Selection(PODS), shape=Backend, changed=self._pod_changed)
        self._some = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled. Pods are looked at from the first Service on."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.services.run())
            await self._some.wait()
            tasks.create_task(self.pods.run())
            await self.pods.synced.wait()
            await self.agenda.run(self._turn)

    def _changed(self, old: Service | None, new: Service | None) -> None:
        self._some.set()
        it = new or old
        assert it is not None
        self.agenda.note(f"{it.metadata.namespace}/{it.metadata.name}")

    def _pod_changed(self, old: Backend | None, new: Backend | None) -> None:
        for pod in filter(None, (old, new)):
            for key, it in self.services.store.items():
                if it.metadata.namespace == pod.metadata.namespace and _selects(it, pod):
                    self.agenda.note(key)

    async def _turn(self, key: str) -> float | None:
        one = self.services.store.get(key)
        if one is None:
            namespace, _, name = key.partition("/")
            return await self.carry(Service(metadata=Metadata(name=name, namespace=namespace)), [])
        if one.metadata.is_going:
            return None
        if not one.spec.get("selector"):
            return await self.carry(one, [])
        pods = sorted((it for it in self.pods.store.values() if _selects(one, it)), key=lambda it: it.metadata.name)
        await self._show(one, pods)
        return await self.carry(one, [it for it in pods if it.is_ready])

    async def _show(self, one: Service, pods: list[Backend]) -> None:
        groups = _grouped(one, pods)
        meta = {"name": one.metadata.name, "namespace": one.metadata.namespace, "labels": dict(one.metadata.labels),
                "ownerReferences": [_owner(one)]}
        subsets = [_subset(ports, members) for ports, members in groups if members]
        await self._write(ENDPOINTS, {"metadata": meta, "subsets": subsets})
        for index, (ports, members) in enumerate(groups):
            labels = {OF_SERVICE: one.metadata.name, MANAGED_BY: "endpointslice-controller.k8s.io"}
            own = {**meta, "name": f"{one.metadata.name}-{index}", "labels": {**meta["labels"], **labels}}
            await self._write(SLICES, {"metadata": own, "addressType": "IPv4", "ports": ports,
                                       "endpoints": [_endpoint(it) for it in members]})
        left = Ref(SLICES, f"{one.metadata.name}-{len(groups)}", one.metadata.namespace)
        if await self.client.find(left):  # pods once had more kinds of ports
            await self.client.delete(left)

    async def _write(self, kind: Kind, thing: Thing) -> None:
        """Makes an object what it is to be; one that is so already is not written."""
        meta = thing["metadata"]
        place = Ref(kind, meta["name"], meta["namespace"])
        found = await self.client.find(place)
        try:
            if found is None:
                await self.client.create(kind, thing)
            elif any(found.get(name, []) != thing[name] for name in thing if name != "metadata"):
                await self.client.update(place, {**thing, "metadata": {**found["metadata"], "labels": meta["labels"]}})
        except ApiError as error:
            if error.status != 404 and error.reason != "AlreadyExists":  # the namespace goes; another was quicker
                raise


def _selects(one: Service, pod: Backend) -> bool:
    meta, selector = pod.metadata, one.spec.get("selector") or {}
    is_there = pod.spec.node_name and pod.status.phase in ("Pending", "Running") and not meta.is_going
    is_same = meta.namespace == one.metadata.namespace
    return bool(selector and is_there and is_same and selector.items() <= meta.labels.items())


def _grouped(one: Service, pods: Iterable[Backend]) -> list[tuple[list[Thing], list[Backend]]]:
    """Pods by the ports that the Service has there; one group without pods where there are none."""
    groups: list[tuple[list[Thing], list[Backend]]] = []
    for pod in pods:
        said = [(port, pod.port(port.get("targetPort", port["port"]))) for port in one.spec.get("ports") or ()]
        ports = [_port(port, number) for port, number in said if number is not None]
        found = next((members for known, members in groups if known == ports), None)
        if found is None:
            groups.append((ports, [pod]))
        else:
            found.append(pod)
    return groups or [([], [])]


def _port(port: Mapping[str, Any], number: int) -> Thing:
    return {"name": port.get("name", ""), "port": number, "protocol": port.get("protocol", "TCP")}


def _subset(ports: list[Thing], pods: list[Backend]) -> Thing:
    ready, waiting = ([_address(it) for it in pods if it.is_ready is state] for state in (True, False))
    shown = [{name: value for name, value in port.items() if value} for port in ports]
    named = {"addresses": ready, "notReadyAddresses": waiting, "ports": shown}
    return {name: value for name, value in named.items() if value}


def _address(pod: Backend) -> Thing:
    return {"ip": HERE, "nodeName": pod.spec.node_name, "targetRef": _target(pod)}


def _endpoint(pod: Backend) -> Thing:
    is_ready = pod.is_ready
    return {"addresses": [HERE], "conditions": {"ready": is_ready, "serving": is_ready, "terminating": False},
            "nodeName": pod.spec.node_name, "targetRef": _target(pod)}


def _target(pod: Backend) -> Thing:
    return {"kind": "Pod", "name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid}


def _owner(one: Service) -> Thing:
    return {"apiVersion": "v1", "kind": "Service", "name": one.metadata.name, "uid": one.metadata.uid,
            "controller": True, "blockOwnerDeletion": True}
