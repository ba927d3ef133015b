"""The three patches: JSON Patch (RFC 6902), JSON Merge Patch (RFC 7396) and Kubernetes' strategic merge.

A strategic merge is a merge patch that knows which lists are keyed: their elements are merged by that key, where
other lists are replaced. Directives: `$patch: delete | replace | merge`, `$retainKeys`, `$setElementOrder/<list>`,
`$deleteFromPrimitiveList/<list>`. The keys belong to the built-in kinds and are found by the list's name, which is
enough for these; custom resources have no keyed lists and answer 415, as in Kubernetes. A patch takes the object it
is given apart; whether the result is legal is not asked here. Of a server-side apply only the body is read here; what
it means is in managed.py.
"""

from collections.abc import Mapping
from typing import Any

import jsonpatch
import msgspec
import yaml

from fairway.embedded import limits
from fairway.embedded.errors import Failure, bad_request, shown, unsupported_media
from fairway.kube.manifest import Loader

JSON, MERGE = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"

KEYS: Mapping[str, tuple[str, ...]] = {  # the first that the elements have
    **dict.fromkeys(("containers", "initContainers", "ephemeralContainers", "volumes", "env", "imagePullSecrets",
                     "secrets", "schedulingGates", "resourceClaims", "webhooks"), ("name",)),
    "volumeMounts": ("mountPath",), "volumeDevices": ("devicePath",), "ports": ("containerPort", "port"),
    "hostAliases": ("ip",), "podIPs": ("ip",), "topologySpreadConstraints": ("topologyKey",),
    "conditions": ("type",), "addresses": ("type",), "ownerReferences": ("uid",),
}
MERGED = ("finalizers",)  # lists of plain values that are united


def check_media(media: str, *, custom: bool) -> None:
    """415 for what is no patch; `custom`: of a custom resource."""
    if media not in (JSON, MERGE, APPLY) and (media != STRATEGIC or custom):
        raise unsupported_media(JSON, MERGE, *(() if custom else (STRATEGIC,)), APPLY)


def configuration(body: bytes) -> dict[str, Any]:
    """What a server-side apply says, in JSON or YAML."""
    try:
        said = limits.decode(body)
    except msgspec.DecodeError:
        said = _yaml(body)
    if not isinstance(said, dict) or not isinstance(said.setdefault("metadata", {}), dict):
        raise bad_request("error decoding YAML: an object with metadata is needed")
    if said["metadata"].get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    return said


def _yaml(body: bytes) -> Any:
    try:
        _check_events(body)
        return limits.decode(msgspec.json.encode(yaml.load(body, Loader)))  # a safe loader
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise bad_request(f"error decoding YAML: {' '.join(str(error).split())}") from error


def _check_events(body: bytes) -> None:
    """BadRequest for aliases, and for more levels than JSON may have: to read those takes minutes. 413 for too much."""
    levels = 0
    for number, event in enumerate(yaml.parse(body, Loader)):
        if number == limits.YAML_EVENTS:
            raise limits.too_large(f"the YAML has more than {number} keys, values and brackets: send it as JSON")
        if isinstance(event, yaml.AliasEvent):
            raise bad_request("error decoding YAML: aliases are not allowed")
        levels += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if levels > limits.LEVELS:
            raise limits.too_deep()


def apply_patch(media: str, body: bytes, current: dict[str, Any]) -> dict[str, Any]:
    """`current` (which may be changed) as the patch makes it."""
    try:
        patch = limits.decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding patch: {error}") from error
    if media == JSON:
        return _json(patch, current)
    if not isinstance(patch, dict):
        raise bad_request(f"error decoding patch: an object is needed, not {type(patch).__name__}")
    result = merge(current, patch) if media == MERGE else strategic(current, patch)
    return result if isinstance(result, dict) else {}


def _json(patch: Any, current: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(patch, list):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    if len(patch) > limits.OPERATIONS:
        most = f"the allowed maximum operations in a JSON patch is {limits.OPERATIONS}"
        raise limits.too_large(f"{most}, got {len(patch)}")
    result: Any = current
    copied = 0
    for operation in patch:
        try:
            copied += _copied(operation, result)
            if copied > limits.BODY_BYTES:
                raise limits.too_large(f"the patch copies more than {limits.BODY_BYTES} bytes in all")
            result = jsonpatch.apply_patch(result, [operation], in_place=True)
        except jsonpatch.InvalidJsonPatch as error:
            raise bad_request(f"error decoding patch: {error}") from error
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError) as error:
            why = f"the server rejected our request due to an error in our request: {shown(operation)} fails"
            raise Failure(422, "Invalid", why) from error
    if not isinstance(result, dict):
        raise bad_request("the patch leaves no object")
    limits.check_depth(result)  # operations that each are flat can nest
    return result


def _copied(operation: Any, thing: Any) -> int:
    """Bytes that the operation duplicates: a few copies of copies would fill the memory."""
    if not isinstance(operation, dict) or operation.get("op") != "copy":
        return 0
    return len(msgspec.json.encode(jsonpatch.JsonPointer(operation.get("from")).resolve(thing, None)))


def merge(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    target = target if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = merge(target.get(name), value)
    return target


def strategic(target: Any, patch: dict[str, Any]) -> dict[str, Any] | None:
    """None: the patch deletes the target."""
    directive = patch.get("$patch")
    if directive == "delete":
        return None
    target = target if isinstance(target, dict) and directive != "replace" else {}
    if "$retainKeys" in patch:
        kept = set(map(_mark, _listed(patch, "$retainKeys")))
        target = {name: value for name, value in target.items() if _mark(name) in kept}
    for name, value in patch.items():
        if name.startswith("$deleteFromPrimitiveList/"):
            gone, name = set(map(_mark, _listed(patch, name))), name.partition("/")[2]
            target[name] = [each for each in _elements(target, name) if _mark(each) not in gone]
        elif not name.startswith("$"):
            _merge_field(target, name, value)
    for name in patch:
        if name.startswith("$setElementOrder/"):
            _reorder(target, name.partition("/")[2], _listed(patch, name))
    return target


def _listed(patch: dict[str, Any], directive: str) -> list[Any]:
    said = patch[directive]
    if not isinstance(said, list):
        raise bad_request(f"error decoding patch: {directive}: a list is needed, not {shown(said)}")
    return said


def _elements(target: dict[str, Any], name: str) -> list[Any]:
    """None where the target has no such list: it may have something else there."""
    found = target.get(name)
    return found if isinstance(found, list) else []


_mark = msgspec.json.encode  # what is compared by it may be any JSON


def _merge_field(target: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(value, dict):
        value = strategic(target.get(name), value)
    elif isinstance(value, list):
        value = _merge_list(name, _elements(target, name), value)
    if value is None:
        target.pop(name, None)
    else:
        target[name] = value


def _merge_list(name: str, target: list[Any], patch: list[Any]) -> list[Any]:
    if name in MERGED:
        return list({_mark(each): each for each in (*target, *patch)}.values())
    key = _key(name, patch) or _key(name, target)
    if key is None or {"$patch": "replace"} in patch:
        return [each for each in patch if each != {"$patch": "replace"}]
    merged = {_mark(each.get(key)): each for each in target}
    for each in patch:
        if not isinstance(each, dict) or each.get(key) is None:
            raise bad_request(f"{name}: {shown(each)} does not contain declared merge key: {key}")
        mark = _mark(each[key])
        result = strategic(merged.get(mark), each)
        if result is None:
            merged.pop(mark, None)
        else:
            merged[mark] = result
    return list(merged.values())


def _key(name: str, elements: list[Any]) -> str | None:
    if not all(isinstance(each, dict) for each in elements):
        return None
    return next((key for key in KEYS.get(name, ()) if any(key in each for each in elements)), None)


def _reorder(target: dict[str, Any], name: str, order: list[Any]) -> None:
    """The elements that `order` names in that order; each other one stays behind the one that it followed."""
    elements = _elements(target, name)
    if not elements:
        return
    key = _key(name, elements)
    wanted = [each.get(key) if isinstance(each, dict) else each for each in order]
    rank, place = {_mark(value): index for index, value in enumerate(wanted)}, -1
    ranked = []
    for element in elements:
        place = rank.get(_mark(element.get(key) if key else element), place)
        ranked.append((place, element))
    target[name] = [element for _, element in sorted(ranked, key=lambda pair: pair[0])]
