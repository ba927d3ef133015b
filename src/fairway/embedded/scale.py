"""The subresource `scale`: how many replicas an object wants and has, for kubectl and autoscalers.

Its kind says where in the object the numbers are. An update writes the wanted one there and nothing else.
"""

from dataclasses import replace as replace_in
from typing import Any

from fairway.embedded.call import Call
from fairway.embedded.errors import Failure, bad_request, conflict, invalid, wrong
from fairway.embedded.kinds import Column
from fairway.embedded.patch import apply_patch, check_media
from fairway.embedded.reading import answer
from fairway.embedded.registry import Registry, Thing
from fairway.embedded.selector import selector_text
from fairway.embedded.store import encode
from fairway.embedded.writing import warned
from fairway.kube.transport import Response

COLUMNS = (Column("Name", ".metadata.name"), Column("Desired", ".spec.replicas", "integer"),
           Column("Available", ".status.replicas", "integer"), Column("Age", "age(.metadata.creationTimestamp)"))
SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def read(registry: Registry, call: Call) -> Response:
    return _answer(registry, call, registry.current(call.resource, call.key))


def replace(registry: Registry, call: Call) -> Response:
    return _write(registry, call, call.thing())


def patch(registry: Registry, call: Call) -> Response:
    check_media(call.media, custom=True)
    scale = _scale(call, registry.current(call.resource, call.key))
    return _write(registry, call, apply_patch(call.media, call.request.body, scale))


def _write(registry: Registry, call: Call, scale: Thing) -> Response:
    kind, write = call.resource.kind, call.write()
    assert kind.scale
    if scale.get("kind", "Scale") != "Scale" or not isinstance(scale.get("spec", {}), dict):
        raise bad_request("the object provided is unrecognized (must be of type Scale)")
    replicas, about = (scale.get("spec") or {}).get("replicas", 0), scale.get("metadata") or {}
    if type(replicas) is not int or replicas < 0:
        cause = wrong(kind.scale.wanted, replicas, "should be a non-negative integer")
        raise invalid(kind.kind, kind.group, call.name, causes=[cause])
    old = registry.current(call.resource, call.key)
    new, version = registry.current(call.resource, call.key), about.get("resourceVersion")
    if version and version != old["metadata"]["resourceVersion"]:
        raise conflict(kind, call.name)
    _put(new, kind.scale.wanted, replicas)
    return warned(_answer(registry, call, registry.update(old, new, write=write)), write)


def _answer(registry: Registry, call: Call, thing: Thing) -> Response:
    resource = replace_in(call.resource, kind=replace_in(call.resource.kind, columns=COLUMNS))
    return answer(registry, replace_in(call, resource=resource), encode(_scale(call, thing)))


def _scale(call: Call, thing: Thing) -> Thing:
    kind = call.resource.kind
    assert kind.scale
    wanted, selector = _at(thing, kind.scale.wanted), _at(thing, kind.scale.selector)
    if call.method == "GET" and wanted is None:
        raise Failure(500, "InternalError", "Internal error occurred: the spec replicas field "
                      f'"{kind.scale.wanted}" does not exist')
    selector = selector_text(selector) if isinstance(selector, dict) else selector
    told = {"replicas": _at(thing, kind.scale.present) or 0} | ({"selector": selector} if selector else {})
    return {
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {name: thing["metadata"][name] for name in SHOWN if name in thing["metadata"]},
        "spec": {"replicas": wanted or 0}, "status": told,
    }  # fmt: skip


def _at(thing: Any, path: str) -> Any:
    for name in filter(None, path.split(".")):
        thing = thing.get(name) if isinstance(thing, dict) else None
    return thing if path else None


def _put(thing: Thing, path: str, value: int) -> None:
    *steps, last = filter(None, path.split("."))
    for name in steps:
        thing = thing.setdefault(name, {})
    thing[last] = value
