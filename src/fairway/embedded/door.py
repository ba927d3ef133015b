"""What other objects decide about a new one: its namespace lets it in, a priority class gives a pod its priority."""

from typing import Any

import msgspec

from fairway.embedded.catalog import Resource
from fairway.embedded.errors import Failure, forbidden, not_found
from fairway.embedded.store import Entry, Key, Store

CLASSES = "priorityclasses.scheduling.k8s.io"


def enter(store: Store, resource: Resource, thing: dict[str, Any]) -> None:
    """Completes the new object from others; a Failure where one of them forbids it."""
    if resource.kind.namespaced:
        _namespace(store, resource, thing["metadata"])
    if resource.name == "pods":
        _priority(store, thing)
    elif resource.name == CLASSES and thing.get("globalDefault"):
        _one_default(store, thing["metadata"]["name"])


def _namespace(store: Store, resource: Resource, about: dict[str, Any]) -> None:
    name = about["namespace"]
    entry = store.latest(Key("namespaces", "", name))
    if entry is None:
        raise not_found("namespaces", "", name)
    if b'"deletionTimestamp"' in entry.value and "deletionTimestamp" in msgspec.json.decode(entry.value)["metadata"]:
        why = f"unable to create new content in namespace {name} because it is being terminated"
        failure = forbidden(resource.kind.plural, resource.kind.group, about["name"], why=why)
        cause = {"reason": "NamespaceTerminating", "message": f"namespace {name} is being terminated",
                 "field": "metadata.namespace"}
        raise Failure(403, "Forbidden", failure.message, details={**(failure.details or {}), "causes": [cause]})


def _priority(store: Store, pod: dict[str, Any]) -> None:
    spec, name = pod["spec"], pod["spec"].get("priorityClassName", "")
    found: dict[str, Any] | None
    if name:
        entry = store.latest(Key(CLASSES, "", name))
        if entry is None:
            raise forbidden("pods", "", pod["metadata"]["name"], why=f"no PriorityClass with name {name} was found")
        found = msgspec.json.decode(entry.value)
    else:
        found = _default(store)
    value = found["value"] if found else 0
    if spec.get("priority") not in (None, value):
        why = (f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority "
               f"admission controller computed {value} from the given PriorityClass name")
        raise forbidden("pods", "", pod["metadata"]["name"], why=why)
    spec["priority"] = value
    if found:
        spec["priorityClassName"] = found["metadata"]["name"]
        spec.setdefault("preemptionPolicy", found.get("preemptionPolicy", "PreemptLowerPriority"))
    else:
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _default(store: Store) -> dict[str, Any] | None:
    """The class of pods that name none: of several, as in Kubernetes, the one of the lowest value."""
    found = [msgspec.json.decode(entry.value) for entry in store.objects(CLASSES).values() if _marked(entry)]
    return min((each for each in found if each.get("globalDefault")), key=lambda each: each["value"], default=None)


def _one_default(store: Store, name: str) -> None:
    other = _default(store)
    if other is not None:
        why = (f"PriorityClass {other['metadata']['name']} is already marked as default. Only one default can exist")
        raise forbidden("priorityclasses", "scheduling.k8s.io", name, why=why)


def _marked(entry: Entry) -> bool:
    return b'"globalDefault":true' in entry.value
