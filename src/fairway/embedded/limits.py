"""Bounds on what one request may hold, as Kubernetes has them.

A request body is at most 3 MiB, the data of a ConfigMap or Secret 1 MiB; the store bounds an object as etcd does. JSON
is at most 200 levels deep: far more than any object needs, and few enough for every program that reads it. All is
served by one event loop, so that what takes long to read for its bytes is bounded by count: the nodes of YAML, the
fields that managers are kept of, and, as in Kubernetes, the operations of a JSON patch. A CustomResourceDefinition of
40,000 lines has about 100,000 nodes, but 40 fields: its versions are one.
"""

from typing import Any

import msgspec

from fairway.embedded.errors import Failure, bad_request

BODY_BYTES = 3 << 20
DATA_BYTES = 1 << 20
LEVELS = 200
YAML_EVENTS, FIELDS, OPERATIONS = 120_000, 20_000, 10_000


def decode(body: bytes) -> Any:
    """The JSON value; BadRequest if it is too deep, msgspec.DecodeError if it is none."""
    try:
        value = msgspec.json.decode(body)
    except RecursionError as error:
        raise too_deep() from error
    if body.count(b"{") + body.count(b"[") > LEVELS:  # fewer brackets cannot be deeper
        check_depth(value)
    return value


def check_depth(value: Any) -> None:
    """BadRequest for a value of more than LEVELS levels."""
    layer, levels = [value], 0
    while layer:
        if levels == LEVELS:
            raise too_deep()
        layer = [inner for each in layer for inner in _inner(each) if isinstance(inner, dict | list)]
        levels += 1


def _inner(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def too_deep() -> Exception:
    return bad_request(f"json parse error: the value is nested too deeply: the limit is {LEVELS} levels")


def too_large(why: str) -> Failure:
    return Failure(413, "RequestEntityTooLarge", why)
