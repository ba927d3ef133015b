"""What the embedded server serves: one Kind per group, version and kind, built-in or made from a CRD.

The built-in ones are the rows of kinds.txt; their structure (types, required, merge keys) is in schemas.json, which
tools/make_schemas.py makes. Schemas are OpenAPI v3 with every reference resolved, always to the same dict: all pod
specs of all kinds are one in memory, and nobody changes them. The `title` of a built-in definition is its name;
where a definition contains itself the inner one allows anything. In built-in objects null means absent, as for a
Go server; the schemas do not say so.

A Kind says nothing of behaviour but `acted_on`: whether Fairway acts on such objects, or only keeps them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import msgspec

REVIEWS = ("authentication.k8s.io", "authorization.k8s.io")
_OPEN: Mapping[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`: `path` as in kinds.txt; `-o wide` shows priority 1; `missing` stands for nothing."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0
    missing: str | int | None = None
    description: str = ""


_NAME = Column("Name", ".metadata.name")


@dataclass(frozen=True, slots=True)
class Scale:
    """Where an object says how many replicas it wants and has, and how its pods are selected: `.spec.replicas`."""

    wanted: str
    present: str
    selector: str = ""


_REPLICAS = Scale(".spec.replicas", ".status.replicas", ".spec.selector")


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    group: str
    version: str
    kind: str
    plural: str
    singular: str
    short: tuple[str, ...]
    namespaced: bool
    categories: tuple[str, ...]
    subresources: frozenset[str]
    columns: tuple[Column, ...]
    schema: dict[str, Any]
    acted_on: bool
    scale: Scale | None = None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def stored(self) -> bool:
        """Reviews are questions: answered when they are created, and not stored."""
        return self.group not in REVIEWS


@cache
def builtin_kinds() -> tuple[Kind, ...]:
    """In the order of discovery: where short names are shared, the first has them."""
    schemas = _schemas()
    return tuple(_builtin(row, schemas) for row in _rows())


def kind_of_crd(crd: dict[str, Any]) -> tuple[Kind, ...]:
    """One Kind per served version of a CustomResourceDefinition that was accepted, in its order."""
    spec, metadata = crd["spec"], {"metadata": _definitions()[_META]}
    names = spec["names"]
    return tuple(Kind(
        spec["group"], version["name"], names["kind"], names["plural"], names.get("singular") or names["kind"].lower(),
        tuple(names.get("shortNames", ())), spec["scope"] == "Namespaced", tuple(names.get("categories", ())),
        frozenset({"status", "scale"} & version.get("subresources", {}).keys()), _custom_columns(version),
        _custom_schema(version.get("schema", {}).get("openAPIV3Schema", {}), metadata), True, _scale(version))
        for version in spec["versions"] if version["served"])


def _scale(version: Mapping[str, Any]) -> Scale | None:
    paths = version.get("subresources", {}).get("scale")
    if not paths:
        return None
    return Scale(paths["specReplicasPath"], paths["statusReplicasPath"], paths.get("labelSelectorPath") or "")


def _custom_schema(given: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    """The author's schema, with the fields that every object has."""
    text = {"type": "string"}
    return given | {"properties": {"apiVersion": text, "kind": text} | given.get("properties", {}) | metadata}


def _custom_columns(version: Mapping[str, Any]) -> tuple[Column, ...]:
    given = version.get("additionalPrinterColumns") or [
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]
    return (_NAME, *(Column(each["name"], each["jsonPath"], each["type"], each.get("priority", 0), None,
                            each.get("description", "")) for each in given))


def _rows() -> tuple[list[str], ...]:
    """The rows of kinds.txt, a list of cells each; an indented line continues the row above."""
    text = resources.files(__package__).joinpath("kinds.txt").read_text().replace("\n    |", " |")
    return tuple(line.split(" | ") for line in text.splitlines() if line[:1] not in "#")


def _builtin(row: list[str], schemas: Mapping[tuple[str, str, str], dict[str, Any]]) -> Kind:
    api_version, kind, short, flags = row[0].split()
    group, _, version = api_version.rpartition("/")
    flags, *subresources = flags.split("+")
    schema = schemas[group, version, kind]
    columns = tuple(map(_column, row[1:]))
    named = any(column.name == "Name" for column in columns)
    if "status" in schema["properties"] and group not in REVIEWS:
        subresources.append("status")
    return Kind(group, version, kind, _plural(kind), kind.lower(), () if short == "-" else tuple(short.split(",")),
                "c" not in flags, ("all",) if "a" in flags else (), frozenset(subresources),
                columns if named else (_NAME, *columns), schema, "x" in flags,
                _REPLICAS if "scale" in subresources else None)


def _plural(kind: str) -> str:
    word = kind.lower()
    if word.endswith("y"):
        return word[:-1] + "ies"
    return word if word == "endpoints" else word + ("es" if word.endswith("s") else "s")


def _column(text: str) -> Column:
    name, _, path = text.strip().partition("=")
    path, marked, missing = (path or "age(.metadata.creationTimestamp)~<unknown>").partition("~")
    is_number = name.endswith("#")
    nothing = int(missing) if is_number and marked else missing if marked else "<none>"
    return Column(name.rstrip("+#"), path, "integer" if is_number else "string", int("+" in name), nothing)


@cache
def _definitions() -> dict[str, dict[str, Any]]:
    """schemas.json with every reference resolved."""
    given = msgspec.json.decode(resources.files(__package__).joinpath("schemas.json").read_bytes())
    found: dict[str, dict[str, Any]] = {}
    for name in given:
        _resolved(name, given, found)
    return found


def _resolved(name: str, given: Mapping[str, Any], found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    if name not in found:
        found[name] = dict(_OPEN)  # for the definition inside itself
        found[name] = {"title": name} | _replaced(given[name], given, found)
    return found[name]


def _replaced(node: Any, given: Mapping[str, Any], found: dict[str, dict[str, Any]]) -> Any:
    if isinstance(node, list):
        return [_replaced(each, given, found) for each in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("$ref"), str):
        target = _resolved(node["$ref"], given, found)
        return target if len(node) == 1 else target | {key: node[key] for key in node.keys() - {"$ref"}}
    return {key: _replaced(value, given, found) for key, value in node.items()}


def _schemas() -> dict[tuple[str, str, str], dict[str, Any]]:
    return {(each["group"], each["version"], each["kind"]): schema for schema in _definitions().values()
            for each in schema.get("x-kubernetes-group-version-kind", ())}
