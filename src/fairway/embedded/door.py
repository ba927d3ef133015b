"""What other objects decide about a new one: its namespace lets it in, a priority class gives a pod its priority, and a
LimitRange what its containers do not say."""

from typing import Any

import msgspec

from fairway.embedded.catalog import Resource
from fairway.embedded.defaults import containers, quality
from fairway.embedded.errors import Failure, forbidden
from fairway.embedded.kinds import Kind
from fairway.embedded.services import address
from fairway.embedded.store import Key, Store

CLASSES, RANGES = "priorityclasses.scheduling.k8s.io", "limitranges"


def enter(store: Store, resource: Resource, thing: dict[str, Any]) -> None:
    """Completes the new object from others; a Failure where one of them forbids it."""
    if resource.kind.namespaced:
        _check_namespace(store, resource.kind, thing["metadata"])
    if resource.name == address.SERVICES:
        address.give(store, thing)
    if resource.name == "pods":
        _give_priority(store, resource.kind, thing)
        _give_resources(store, thing)
    elif resource.name == CLASSES and thing.get("globalDefault") and (other := _default(store)):
        why = f"PriorityClass {other['metadata']['name']} is already marked as default. Only one default can exist"
        raise forbidden(resource.kind, thing["metadata"]["name"], why=why)


def _check_namespace(store: Store, kind: Kind, about: dict[str, Any]) -> None:
    name = about["namespace"]
    entry = store.latest(Key("namespaces", "", name))
    if entry is None:
        raise Failure(404, "NotFound", f'namespaces "{name}" not found', details={"name": name, "kind": "namespaces"})
    if b'"deletionTimestamp"' in entry.value and "deletionTimestamp" in msgspec.json.decode(entry.value)["metadata"]:
        why = f"unable to create new content in namespace {name} because it is being terminated"
        failure = forbidden(kind, about["name"], why=why)
        cause = {"reason": "NamespaceTerminating", "message": f"namespace {name} is being terminated",
                 "field": "metadata.namespace"}
        raise Failure(403, "Forbidden", failure.message, details={**(failure.details or {}), "causes": [cause]})


def _give_priority(store: Store, kind: Kind, pod: dict[str, Any]) -> None:
    if not (spec := pod.get("spec")):
        return  # refused later
    name = spec.get("priorityClassName", "")
    found: dict[str, Any] | None
    if name:
        entry = store.latest(Key(CLASSES, "", name))
        if entry is None:
            raise forbidden(kind, pod["metadata"]["name"], why=f"no PriorityClass with name {name} was found")
        found = msgspec.json.decode(entry.value)
    else:
        found = _default(store)
    value = found["value"] if found else 0
    if spec.get("priority") not in (None, value):
        why = (f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority "
               f"admission controller computed {value} from the given PriorityClass name")
        raise forbidden(kind, pod["metadata"]["name"], why=why)
    spec["priority"] = value
    if found:
        spec["priorityClassName"] = found["metadata"]["name"]
        spec.setdefault("preemptionPolicy", found.get("preemptionPolicy", "PreemptLowerPriority"))
    else:
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _give_resources(store: Store, pod: dict[str, Any]) -> None:
    for (space, _), entry in store.objects(RANGES).items():
        items = msgspec.json.decode(entry.value)["spec"]["limits"] if space == pod["metadata"]["namespace"] else ()
        for item in items:
            for _, container in containers(pod.get("spec") or {}) if item["type"] == "Container" else ():
                asked = container["resources"]
                asked |= {part: {**item[usual], **(asked.get(part) or {})}
                          for part, usual in (("limits", "default"), ("requests", "defaultRequest")) if item.get(usual)}
                pod["status"]["qosClass"] = quality(pod["spec"])


def _default(store: Store) -> dict[str, Any] | None:
    """The class of pods that name none: of several, as in Kubernetes, the one of the lowest value."""
    found = [msgspec.json.decode(entry.value) for entry in store.objects(CLASSES).values()
             if b'"globalDefault":true' in entry.value]
    return min((each for each in found if each.get("globalDefault")), key=lambda each: each["value"], default=None)
