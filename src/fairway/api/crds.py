"""CustomResourceDefinitions, made from `types`: structural schemas that refuse what a schema can refuse.

`python -m fairway.api.crds` prints what deploy/crds.yaml holds. A pod template is let through as it is: Kubernetes
judges it when pods are made from it. Only a default that is a word or a number is written into objects.
"""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from . import types
from .objects import GROUP, Part

Schema: TypeAlias = dict[str, object]
Said: TypeAlias = Mapping[str, object]
Parts: TypeAlias = Mapping[str, Mapping[str, object]]
Column = tuple[str, str, str]

AGE: Column = ("Age", "date", ".metadata.creationTimestamp")
VALID = '.status.conditions[?(@.type=="Valid")].reason'


class Kind(msgspec.Struct, frozen=True):
    """A resource: its names, its two structs, and the columns `kubectl get` prints (name, type, path)."""

    name: str
    plural: str
    short: str
    spec: type[Part]
    status: type[Part]
    columns: tuple[Column, ...]
    is_namespaced: bool = False


KINDS = (
    Kind("Queue", "queues", "fq", types.QueueSpec, types.QueueStatus, (
        ("Parent", "string", ".spec.parent"), ("Priority", "integer", ".spec.priority"),
        ("Pending", "integer", ".status.pending"), ("Admitted", "integer", ".status.admitted"),
        ("Stopped", "string", ".spec.stopPolicy"), ("Valid", "string", VALID), AGE)),
    Kind("NodePool", "nodepools", "fpool", types.NodePoolSpec, types.NodePoolStatus, (
        ("Nodes", "integer", ".status.nodes"), ("Strategy", "string", ".spec.strategy"), AGE)),
    Kind("Workload", "workloads", "fwl", types.WorkloadSpec, types.WorkloadStatus, (
        ("Queue", "string", ".spec.queue"), ("Priority", "string", ".spec.priorityClassName"),
        ("Phase", "string", ".status.phase"), ("Reason", "string", ".status.reason"),
        ("Position", "integer", ".status.position"), ("Forecast", "string", ".status.forecast.p50"), AGE),
        is_namespaced=True),
    Kind("Reservation", "reservations", "fres", types.ReservationSpec, types.ReservationStatus, (
        ("Queue", "string", ".spec.queue"), ("Pool", "string", ".spec.pool"), ("Start", "string", ".spec.start"),
        ("Duration", "string", ".spec.duration"), ("Repeat", "string", ".spec.repeat"),
        ("Phase", "string", ".status.phase"), AGE)),
    Kind("UsageDay", "usagedays", "fud", types.UsageDaySpec, types.UsageDayStatus, (
        ("Day", "string", ".spec.day"), ("Queue", "string", ".spec.queue"),
        ("GPU Hours", "number", ".status.gpuHours"), ("Until", "date", ".status.until"),
        ("Closed", "boolean", ".status.closed"))),
    Kind("UsageMonth", "usagemonths", "fum", types.UsageMonthSpec, types.UsageMonthStatus, (
        ("Closed", "string", ".status.closedAt"), AGE)),
)  # fmt: skip


def crds() -> list[Schema]:
    """The manifests, in the order of `KINDS`."""
    return [_crd(kind) for kind in KINDS]


def _crd(kind: Kind) -> Schema:
    version: Schema = {
        "name": "v1alpha1", "served": True, "storage": True,
        "schema": {"openAPIV3Schema": _object_schema(kind)},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [{"name": name, "type": form, "jsonPath": at} for name, form, at in kind.columns],
    }  # fmt: skip
    names = {
        "kind": kind.name, "listKind": f"{kind.name}List", "plural": kind.plural, "singular": kind.name.lower(),
        "shortNames": [kind.short], "categories": ["fairway"],
    }  # fmt: skip
    scope = "Namespaced" if kind.is_namespaced else "Cluster"
    spec = {"group": GROUP, "names": names, "scope": scope, "versions": [version]}
    name = {"name": f"{kind.plural}.{GROUP}"}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": name, "spec": spec}


def _object_schema(kind: Kind) -> Schema:
    text: Schema = {"type": "string"}
    parts = {"metadata": {"type": "object"}, "spec": _schema(kind.spec), "status": _schema(kind.status)}
    return {"type": "object", "properties": {"apiVersion": text, "kind": text.copy(), **parts}}


def _schema(form: type[Part]) -> Schema:
    (root,), parts = msgspec.json.schema_components((form,), ref_template="{name}")
    return _structural(root, parts)


def _structural(said: Said, parts: Parts) -> Schema:
    """A JSON schema as Kubernetes takes it: without references, without null, maps and arrays of one type."""
    reference = said.get("$ref")
    if reference == "PodTemplate":
        return _text(said) | {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if isinstance(reference, str):
        form = {key: value for key, value in parts[reference].items() if key != "description"}
        return _structural(form | {key: said[key] for key in said if key != "$ref"}, parts)
    if isinstance(options := said.get("anyOf"), list):
        return _text(said) | _one_of([option for option in options if option != {"type": "null"}], said, parts)
    kept = {key: said[key] for key in ("type", "pattern", "format") if key in said}
    kept |= {key: value for key, value in said.items() if key.startswith(("min", "max"))}
    found = _text(said) | kept
    if isinstance(words := said.get("enum"), list):
        found |= {"type": "string", "enum": [word for word in words if word]}
    if isinstance(default := said.get("default"), str | int | float) and default not in ("", 0):
        found["default"] = default
    return found | _inner(said, parts)


def _text(said: Said) -> Schema:
    return {"description": said["description"]} if "description" in said else {}


def _one_of(options: list[Said], said: Said, parts: Parts) -> Schema:
    """One type, or a quantity: a number or a text in a certain form."""
    if len(options) == 1:
        return _structural({**{key: said[key] for key in ("default",) if key in said}, **options[0]}, parts)
    pattern = next(value for option in [said, *options] for key, value in option.items() if key == "pattern")
    either: list[Schema] = [{"type": "integer"}, {"type": "string"}]
    return {"x-kubernetes-int-or-string": True, "anyOf": either, "pattern": pattern, "minimum": 0}


def _inner(said: Said, parts: Parts) -> Schema:
    """The schemas of properties, map values or items."""
    found: Schema = {}
    if isinstance(properties := said.get("properties"), dict):
        found["properties"] = {name: _structural(each, parts) for name, each in properties.items()}
        if said.get("required"):
            found["required"] = said["required"]
    if isinstance(values := said.get("additionalProperties"), dict):
        found["additionalProperties"] = _structural(values, parts)
    match said:
        case {"items": dict(items)} | {"prefixItems": [dict(items), *_]}:
            found["items"] = _structural(items, parts)
    return found


def manifest() -> str:
    """The text of deploy/crds.yaml."""
    import yaml

    head = "# Made from src/fairway/api/types.py by `python -m fairway.api.crds`.\n"
    return head + yaml.safe_dump_all(crds(), sort_keys=False, width=120, allow_unicode=True)


if __name__ == "__main__":
    print(manifest(), end="")
