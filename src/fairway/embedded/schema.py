"""A kind's structural schema put to work: shape an object (prune, default), then say what is wrong with it.

Shaping walks the object along the schema: fields that it does not name are dropped and reported, nulls that it does not
allow are dropped, quantities are written as Kubernetes shows them, and for custom resources its defaults are filled in.
Validation is done by jsonschema-rs on a
translation of the schema, made once for each top-level field when first needed (OpenAPI is not JSON Schema: nullable,
int-or-string and x-kubernetes-* become what they mean). An update pays only for the top-level fields that it changed.
Metadata has the same schema in every kind. Rules in CEL (x-kubernetes-validations) are not run; `unrun` says that
there are some.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jsonschema_rs
import msgspec

from fairway.api.scalars import Malformed
from fairway.embedded.errors import Cause, duplicate, required, unsupported, wrong
from fairway.embedded.quantity import canonical

QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
TYPE = "FieldValueTypeInvalid"
json = msgspec.json.encode
PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
_TEXT, _TEXTS = {"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}
_FLAG, _WHOLE = {"type": "boolean"}, {"type": "integer"}
_OWNER = {
    "type": "object", "required": ["apiVersion", "kind", "name", "uid"],
    "properties": {"apiVersion": _TEXT, "kind": _TEXT, "name": _TEXT, "uid": _TEXT, "controller": _FLAG,
                   "blockOwnerDeletion": _FLAG},
}
METADATA = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("name", "generateName", "namespace", "uid", "resourceVersion", "selfLink",
                         "creationTimestamp", "deletionTimestamp"), _TEXT),
        "generation": _WHOLE, "deletionGracePeriodSeconds": _WHOLE, "labels": _TEXTS, "annotations": _TEXTS,
        "ownerReferences": {"type": "array", "items": _OWNER}, "finalizers": {"type": "array", "items": _TEXT},
        "managedFields": {PRESERVE: True},
    },
}
_TYPED = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": METADATA}
_BOUNDS = {
    "minimum": "greater than or equal to {}", "exclusiveMinimum": "greater than {}",
    "maximum": "less than or equal to {}", "exclusiveMaximum": "less than {}", "multipleOf": "a multiple of {}",
    "minLength": "at least {} chars long", "maxLength": "at most {} chars long",
}
_COUNTS = {"minItems": "at least {} items", "maxItems": "at most {} items",
           "minProperties": "at least {} properties", "maxProperties": "at most {} properties"}


class _Seen(NamedTuple):
    unknown: list[str]
    causes: list[Cause]


class Schema:
    """`custom`: of a custom resource, whose defaults are filled in and whose untyped objects are empty."""

    def __init__(self, schema: Mapping[str, Any], *, custom: bool) -> None:
        self.custom = custom
        self._free = not schema or bool(schema.get(PRESERVE))
        self._fields: dict[str, Any] = {**schema.get("properties", {}), **_TYPED}
        self._required = [name for name in schema.get("required", ()) if name not in _TYPED]
        self._defaults = {name: each["default"] for name, each in self._fields.items() if custom and "default" in each}
        self._validators: dict[str, Any] = {}

    def shape(self, thing: dict[str, Any], old: Mapping[str, Any]) -> tuple[list[str], list[Cause]]:
        """Prunes and defaults `thing`, save the fields that are as in `old`: what was dropped, and what is wrong."""
        seen = _Seen([], [])
        for name, default in self._defaults.items():
            if thing.get(name) is None:
                thing[name] = _copy(default)
        for name in list(thing):
            field = self._fields.get(name)
            if thing[name] is None or (field is None and not self._free):
                seen.unknown.extend([] if field or self._free else [name])
                del thing[name]
            elif field is not None and (name not in old or thing[name] != old[name]):
                self._walk(field, thing[name], (name, seen))
        return seen.unknown, self._faults(thing, old) + seen.causes

    def _faults(self, thing: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
        causes = [required(name) for name in self._required if name not in thing]
        for name, value in thing.items():
            if name in self._fields and (name not in old or value != old[name]):
                causes += [_cause(name, error) for error in self._validator(name).iter_errors(value)]
        return causes

    def _validator(self, name: str) -> Any:
        if name not in self._validators:
            self._validators[name] = jsonschema_rs.Draft4Validator(_translated(self._fields[name]))
        return self._validators[name]

    def _walk(self, schema: Mapping[str, Any], value: Any, at: tuple[str, "_Seen"]) -> None:
        path, seen = at
        if type(value) is list:
            if self.custom and (sort := schema.get("x-kubernetes-list-type")) in ("set", "map"):
                keys = schema.get("x-kubernetes-list-map-keys") if sort == "map" else None
                seen.causes.extend(_repeats(value, path, keys))
            items = schema.get("items")
            for index, each in enumerate(value) if items else ():
                if type(each) in (dict, list):
                    self._walk(items, each, (f"{path}[{index}]", seen))
        elif type(value) is dict:
            self._walk_object(schema, value, at)

    def _walk_object(self, schema: Mapping[str, Any], value: dict[str, Any], at: tuple[str, "_Seen"]) -> None:
        path, seen = at
        fields, extra = schema.get("properties"), schema.get("additionalProperties")
        free = schema.get(PRESERVE) or extra is True or not (self.custom or fields or extra)
        fields = fields or {}
        if schema.get("x-kubernetes-embedded-resource"):
            fields = {**_TYPED, **fields}
        for name in list(value):
            field, each = fields.get(name, extra), value[name]
            if type(field) is not dict:
                if not free:
                    seen.unknown.append(f"{path}.{name}")
                    del value[name]
            elif each is None and not field.get("nullable") and not field.get(PRESERVE):
                del value[name]
            elif type(each) in (dict, list):
                self._walk(field, each, (f"{path}.{name}", seen))
            elif "anyOf" in field and field.get("title") == QUANTITY:
                value[name] = _quantity(each, f"{path}.{name}", seen)
        if self.custom:
            self._default(fields, value, path)

    def _default(self, fields: Mapping[str, Any], value: dict[str, Any], path: str) -> None:
        for name, field in fields.items():
            if name not in value and "default" in field:
                value[name] = _copy(field["default"])
                self._walk(field, value[name], (f"{path}.{name}", _Seen([], [])))


def unrun(schema: Any) -> bool:
    """Whether there are CEL rules anywhere in the schema."""
    if isinstance(schema, dict):
        return "x-kubernetes-validations" in schema or any(unrun(each) for each in schema.values())
    return isinstance(schema, list) and any(unrun(each) for each in schema)


def _quantity(value: Any, path: str, seen: _Seen) -> Any:
    """As it is shown; noted where it is none."""
    try:
        return canonical(value if isinstance(value, str) else json(value).decode())
    except Malformed as error:
        seen.causes.append(Cause(path, TYPE, error.message))
        return value


def _copy(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _translated(schema: Any) -> Any:
    """The schema in JSON Schema, draft 4, in which bounds are exclusive by a boolean as in OpenAPI."""
    if not isinstance(schema, dict):
        return schema
    result = {name: value for name, value in schema.items() if not name.startswith("x-")
              and name not in ("default", "nullable", "description", "example", "title")}
    for name in ("properties", "patternProperties", "definitions"):
        if name in result:
            result[name] = {key: _translated(value) for key, value in result[name].items()}
    for name in ("items", "additionalProperties", "not"):
        if name in result:
            result[name] = _translated(result[name])
    for name in ("allOf", "anyOf", "oneOf"):
        if name in result:
            result[name] = [_translated(each) for each in result[name]]
    if schema.get(INT_OR_STRING) or schema.get("format") == "int-or-string":
        result["type"] = ["integer", "string"]
        result.pop("anyOf", None)
    if schema.get("nullable") and "type" in result:
        kinds = result["type"] if isinstance(result["type"], list) else [result["type"]]
        result["type"] = [*kinds, "null"]
        if "enum" in result:
            result["enum"] = [*result["enum"], None]
    return result


def _cause(root: str, error: Any) -> Cause:
    path = root + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
    kind, value = error.kind.name, error.instance
    if kind == "required":
        return required(f"{path}.{error.kind.property}")
    if kind == "enum":
        return unsupported(path, value, [each for each in error.kind.options if each is not None])
    if kind == "type":
        wanted, found = ",".join(sorted(error.kind.types)), _type(value)
        hint = f'; write a fraction as a string: "{value}"' if type(value) is float and "string" in wanted else ""
        return Cause(path, TYPE, f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"{hint}')
    if kind in _BOUNDS:
        limit = error.kind.multiple_of if kind == "multipleOf" else error.kind.limit
        return wrong(path, value, f"{path} in body should be {_BOUNDS[kind].format(_number(limit))}")
    if kind in _COUNTS:
        return wrong(path, value, f"{path} in body should have {_COUNTS[kind].format(error.kind.limit)}")
    if kind == "pattern":
        return wrong(path, value, f"{path} in body should match '{error.kind.pattern}'")
    return wrong(path, value, f"{path} in body: {error.message}")


def _number(limit: float) -> float | int:
    return int(limit) if limit == int(limit) else limit


def _type(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _repeats(elements: list[Any], path: str, keys: list[str] | None) -> Iterator[Cause]:
    """Elements that a set holds twice; of a map, those with the same `keys`."""
    seen = set[bytes]()
    for index, each in enumerate(elements):
        identity = {key: each.get(key) for key in keys} if keys and isinstance(each, dict) else each
        text = msgspec.json.encode(identity, order="deterministic")
        if text in seen:
            yield duplicate(f"{path}[{index}]", identity)
        seen.add(text)
