"""create, update, patch, delete and deletecollection, as requests and answers; the rules are the registry's."""

from typing import Any

from fairway.embedded import deletion, managed, unserved
from fairway.embedded.access.ask import Ask
from fairway.embedded.call import Call
from fairway.embedded.deletion import Options
from fairway.embedded.errors import Cause, Failure, bad_request, denied, invalid, required
from fairway.embedded.patch import APPLY, apply_patch, check_media, configuration
from fairway.embedded.reading import answer, selection
from fairway.embedded.registry import Registry, Thing, Write
from fairway.embedded.store import Key, encode
from fairway.kube.transport import Response


def create(registry: Registry, call: Call) -> Response:
    resource, thing, write = call.resource, call.thing(), call.write()
    _belongs(call, thing)
    if thing["metadata"].get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    thing = registry.create(thing, write)
    write.warnings.extend(unserved.warnings(resource, thing))
    return warned(answer(registry, call, encode(thing), status=201), write)


def update(registry: Registry, call: Call) -> Response:
    thing, write = call.thing(), call.write()
    _belongs(call, thing)
    return _updated(registry, call, thing=thing, write=write)


def patch(registry: Registry, call: Call) -> Response:
    write, resource = call.write(), call.resource
    check_media(call.media, custom=resource.custom)
    if call.media == APPLY:
        return _apply(registry, call, write)
    if call.flag("force"):
        raise _wrong_option(denied("force", "may not be specified for non-apply patch"))
    thing = apply_patch(call.media, call.request.body, resource.ordered(registry.current(resource, call.key)))
    _belongs(call, thing)
    return _updated(registry, call, thing=thing, write=write)


def _apply(registry: Registry, call: Call, write: Write) -> Response:
    """Server-side apply: makes the object where there is none."""
    if not call.query.get("fieldManager"):
        raise _wrong_option(required("fieldManager", "is required for apply patch"))
    config, kind = configuration(call.request.body), call.resource.kind
    said = config.get("apiVersion") or "", config.get("kind") or ""
    if said != (kind.api_version, kind.kind):
        raise bad_request(f"invalid object type: {'' if '/' in said[0] else '/'}{said[0]}, Kind={said[1]}")
    _belongs(call, config)
    is_there = call.subresource or registry.store.latest(call.key)
    old = call.resource.ordered(registry.current(call.resource, call.key)) if is_there else None
    now, force = registry.clock.now(), call.flag("force")
    thing = managed.applied(kind.schema, old, config, write.who, now=now, force=force)
    if old is None:
        space = call.namespace
        registry.access.check(call.asker, Ask("create", kind.group, kind.plural, "", space, call.name))
        thing = registry.create(thing, write)
        return warned(answer(registry, call, encode(thing), status=201), write)
    return _updated(registry, call, thing=thing, write=write)


def _wrong_option(cause: Cause) -> Failure:
    return invalid("PatchOptions", "meta.k8s.io", "", causes=[cause])


def delete(registry: Registry, call: Call) -> Response:
    how, write = deletion.options(call), deletion.writing(call)
    thing, gone = deletion.delete(registry, registry.current(call.resource, call.key), how=how, write=write)
    value = deletion.outcome(call.resource, thing, gone=gone)
    return warned(Response(200, {"content-type": "application/json"}, value), write)


def delete_collection(registry: Registry, call: Call) -> Response:
    """Deletes what a list would show, each object on its own; the answer is the list of them."""
    how, write, chosen = deletion.options(call), deletion.writing(call), selection(call)
    how = Options(how.grace, how.propagation)
    items = []
    for (namespace, name), entry in sorted(registry.store.objects(call.resource.name).items()):
        if chosen.takes((namespace, name), entry.value):
            old = registry.current(call.resource, Key(call.resource.name, namespace, name))
            items.append(call.resource.ordered(deletion.delete(registry, old, how=how, write=write)[0]))
    kind = call.resource.kind
    about = {"resourceVersion": str(registry.store.revision)}
    value = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": about, "items": items}
    return warned(Response(200, {"content-type": "application/json"}, encode(value)), write)


def warned(response: Response, write: Write) -> Response:
    """With a Warning header for each warning."""
    if not write.warnings:
        return response
    texts = ", ".join("299 - " + encode(text).decode() for text in dict.fromkeys(write.warnings))
    return Response(response.status, {**response.headers, "warning": texts}, response.body)


def _updated(registry: Registry, call: Call, *, thing: Thing, write: Write) -> Response:
    old = registry.current(call.resource, call.key)
    if call.subresource == "status":
        thing = registry.update_status(old, thing, write=write)
    elif call.subresource == "finalize":
        thing = registry.replace({**old, "spec": thing.get("spec", {})}, write)
    else:
        thing = registry.update(old, thing, write=write)
    return warned(answer(registry, call, encode(call.resource.ordered(thing))), write)


def _belongs(call: Call, thing: dict[str, Any]) -> None:
    """The object is of the kind, in the namespace and of the name that the path says."""
    kind, about = call.resource.kind, thing.get("metadata")
    if not isinstance(about, dict):
        raise bad_request("metadata is no object")
    for field, wanted in (("kind", kind.kind), ("apiVersion", kind.api_version)):
        if call.resource.custom and not thing.get(field):
            raise bad_request(f"the object provided is unrecognized (must be of type {kind.kind}): {field} is missing")
        if (thing.get(field) or wanted) != wanted:
            raise bad_request(f"the {field} in the data ({thing[field]}) does not match the expected one ({wanted})")
    about["name"], about["namespace"] = about.get("name") or call.name, about.get("namespace") or call.namespace
    if kind.namespaced and about["namespace"] != call.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if not kind.namespaced:
        del about["namespace"]
    if call.name and about["name"] != call.name:
        raise bad_request(f"the name of the object ({about['name']}) does not match the name on the URL ({call.name})")
