"""What is served at this moment: the built-in kinds, and those of the committed CustomResourceDefinitions.

A Resource is one served version of a kind, ready to be used. All versions of a kind are stored as one resource
(`jobs.batch`) and differ in nothing but `apiVersion`. A definition that is established is served from its commit on and
until it is gone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import msgspec

from fairway.embedded.errors import named
from fairway.embedded.kinds import Kind, kind_of_crd
from fairway.embedded.schema import Schema
from fairway.embedded.store import Store, encode

CRDS = "customresourcedefinitions.apiextensions.k8s.io"


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """`name`: where its objects are stored; `head`: how their encoding begins; `selectable`: fields to select by."""

    kind: Kind
    name: str
    schema: Schema
    head: bytes
    selectable: tuple[str, ...] = ()

    @property
    def custom(self) -> bool:
        return self.schema.custom

    @property
    def has_status(self) -> bool:
        return "status" in self.kind.subresources

    def encoded(self, value: bytes) -> bytes:
        """An object of the store, as of this version."""
        return value if value.startswith(self.head) else encode(self.ordered(msgspec.json.decode(value)))

    def ordered(self, thing: dict[str, Any]) -> dict[str, Any]:
        """The object with the two fields that say what it is in front, and as of this version."""
        typed = {"apiVersion": self.kind.api_version, "kind": self.kind.kind}
        return {**typed, **thing, **typed}


class Catalog:
    def __init__(self, store: Store, kinds: Sequence[Kind]) -> None:
        self._store = store
        self._builtin = {_place(kind): _builtin(kind) for kind in kinds}
        self._all, self._seen = dict(self._builtin), 0
        self._made: dict[str, tuple[int, list[Resource]]] = {}

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._current().get((group, version, plural))

    def stored(self, name: str) -> Resource | None:
        """Any version of the resource that is stored under that name."""
        return next((each for each in self._current().values() if each.name == name), None)

    def of(self, api_version: str, kind: str) -> Resource | None:
        return next((each for each in self._current().values()
                     if each.kind.kind == kind and each.kind.api_version == api_version), None)

    def kinds(self) -> list[Kind]:
        return [each.kind for each in self._current().values()]

    def __iter__(self) -> Iterator[Resource]:
        """Each stored resource once."""
        return iter({each.name: each for each in self._current().values() if each.kind.stored}.values())

    def _current(self) -> dict[tuple[str, str, str], Resource]:
        touched = self._store.touched.get(CRDS, 0)
        if touched != self._seen:
            self._seen = touched
            entries = self._store.objects(CRDS)
            self._made = {name: self._made[name] if self._made.get(name, (0,))[0] == entry.revision
                          else (entry.revision, _served(entry.value)) for (_, name), entry in entries.items()}
            self._all = dict(self._builtin)
            self._all |= {_place(each.kind): each for _, made in self._made.values() for each in made}
        return self._all


def established(crd: dict[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions", ())
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def _served(value: bytes) -> list[Resource]:
    crd = msgspec.json.decode(value)
    fields = {version["name"]: tuple(each["jsonPath"].lstrip(".") for each in version.get("selectableFields") or ())
              for version in crd["spec"]["versions"]}
    kinds = kind_of_crd(crd) if established(crd) else ()
    return [_resource(kind, _custom_schema(encode(kind.schema)), fields[kind.version]) for kind in kinds]


@cache  # here and below: what a schema is made into is made once, for however many servers
def _builtin(kind: Kind) -> Resource:
    return _resource(kind, Schema(kind.schema, custom=False), ())


@lru_cache(maxsize=64)
def _custom_schema(encoded: bytes) -> Schema:
    return Schema(msgspec.json.decode(encoded), custom=True)


def _resource(kind: Kind, schema: Schema, selectable: tuple[str, ...]) -> Resource:
    head = encode({"apiVersion": kind.api_version, "kind": kind.kind})[:-1] + b","
    return Resource(kind, named(kind.plural, kind.group), schema, head, selectable)


def _place(kind: Kind) -> tuple[str, str, str]:
    return kind.group, kind.version, kind.plural
