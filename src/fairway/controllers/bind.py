"""Which pod goes to which place of an admission, and the writes that put it there.

A placement lists places in rank order. A pod with a completion index takes the place of its rank, the others the
first free one in the order they were made. A place is free unless a pod that is bound to it still runs; a pod that is
terminating runs until it is gone. Binding writes the devices onto the pod in the same request, so that a pod never
starts without them; the scheduling gate goes first, since nobody may bind a gated pod.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fairway.api.objects import ASSIGNED, GATE, PodObject
from fairway.engine import PodSetPlacement
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref

INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True, slots=True)
class Place:
    node: str
    devices: tuple[int, ...] = ()


def places(placement: PodSetPlacement) -> list[Place]:
    """One for each pod, in rank order."""
    found = []
    for share in placement.nodes:
        devices = share.devices or ((),) * share.count
        found += [Place(share.node, own) for own in devices]
    return found


def assign(placement: PodSetPlacement, pods: Iterable[PodObject]) -> list[tuple[PodObject, Place]]:
    """Pods that wait for a node, each with its place; those for whom none is free are left out."""
    free: list[Place | None] = list(places(placement))
    waiting = []
    for pod in pods:
        if pod.spec.node_name:
            _take(free, pod)
        elif not is_over(pod) and pod.metadata.deletion_timestamp is None:
            waiting.append(pod)
    ranked = sorted(waiting, key=lambda pod: (rank(pod) is None, rank(pod) or 0, *_age(pod)))
    given: list[tuple[PodObject, Place]] = []
    for pod in ranked:
        own = rank(pod)
        row = own if own is not None and own < len(free) and free[own] else _first(free)
        if row is not None and (place := free[row]):
            given.append((pod, place))
            free[row] = None
    return given


def _take(free: list[Place | None], pod: PodObject) -> None:
    """The place of a pod that is bound: the very one, else any on its node."""
    if is_over(pod):
        return
    own = Place(pod.spec.node_name, devices_of(pod))
    rows = [row for row, place in enumerate(free) if place and place.node == own.node]
    if rows:
        free[next((row for row in rows if free[row] == own), rows[0])] = None


def _first(free: Sequence[Place | None]) -> int | None:
    return next((row for row, place in enumerate(free) if place), None)


def _age(pod: PodObject) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.metadata.name


def rank(pod: PodObject) -> int | None:
    text = pod.metadata.annotations.get(INDEX, "")
    return int(text) if text.isdecimal() else None


def devices_of(pod: PodObject) -> tuple[int, ...]:
    said = pod.metadata.annotations.get(ASSIGNED, "")
    return tuple(int(index) for index in said.split(",") if index.isdecimal())


def is_over(pod: PodObject) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def holds_room(pod: PodObject) -> bool:
    """It is on a node and may still run there."""
    return bool(pod.spec.node_name) and not is_over(pod)


async def bind(client: Client, pod: PodObject, place: Place) -> None:
    meta = pod.metadata
    ref = Ref(kinds.PODS, meta.name, meta.namespace)
    if any(gate.name == GATE for gate in pod.spec.scheduling_gates):
        left = [{"name": gate.name} for gate in pod.spec.scheduling_gates if gate.name != GATE]
        await client.patch(ref, {"metadata": {"uid": meta.uid}, "spec": {"schedulingGates": left or None}})
    devices = {ASSIGNED: ",".join(map(str, place.devices))} if place.devices else {}
    await client.bind(ref, place.node, uid=meta.uid, annotations=devices)
