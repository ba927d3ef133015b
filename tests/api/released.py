"""The fields of the API as a released version has them: a line each, with what it takes.

`python tests/api/released.py > tests/api/fields-VERSION.jsonl` at a release; the file stays as it is from then on.
"""

import json
from collections.abc import Iterator
from typing import Any

from fairway.api.crds import crds

BOUNDS = ("pattern", "format", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
Thing = dict[str, Any]


def fields(definitions: list[Thing]) -> Iterator[Thing]:
    """Each field's path, type, words it is limited to, bounds, and whether it must be there."""
    for one in definitions:
        schema = one["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        yield from _below(schema, one["spec"]["names"]["kind"], is_required=True)


def _below(schema: Thing, path: str, *, is_required: bool) -> Iterator[Thing]:
    said = {"path": path, "type": schema.get("type", "any"), "isRequired": is_required}
    bounds = {key: schema[key] for key in BOUNDS if key in schema}
    yield said | ({"enum": schema["enum"]} if "enum" in schema else {}) | bounds
    for name, each in schema.get("properties", {}).items():
        yield from _below(each, f"{path}.{name}", is_required=name in schema.get("required", ()))
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), dict):
            yield from _below(schema[key], path + mark, is_required=False)


if __name__ == "__main__":
    for one in fields(crds()):
        print(json.dumps(one))
