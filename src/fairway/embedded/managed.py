"""Server-side apply: who manages which fields of an object, and what an apply makes of it.

A field is a path: `f:name` in an object, `k:{...}` the element of a list with that key, `v:...` an element of a set.
Which lists have keys, and which parts count as one value, the schema of the kind says. An apply takes what it names
for its own; what others manage it may only say alike, or it is a conflict; what it named the last time and names no
more is removed, unless others manage it. Any other write takes the fields that it changes from those who had them.

As in Kubernetes, but: managers are kept from the first apply on. Until then an object has none, and what it held by
then is managed by `before-first-apply`. So a write of an object that nobody applies costs nothing more.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from fairway.api.quantities import time_text
from fairway.embedded import limits
from fairway.embedded.errors import Failure, bad_request
from fairway.embedded.lastapplied import CLIENT_SIDE, KUBECTL, WHERE, last_applied, renew, unchanged
from fairway.embedded.schema import PRESERVE
from fairway.embedded.store import TooLarge

Thing = dict[str, Any]
Schema = Mapping[str, Any]
Path = tuple[str, ...]
Fields = dict[Path, Any]
APPLY, UPDATE, BEFORE = "Apply", "Update", "before-first-apply"
HERE = object()
"""The value of an element or an entry: that it is there."""

DEFAULTS = {"protocol": "TCP"}
"""What an element's key means where it is left out."""

OWN = frozenset({("f:apiVersion",), ("f:kind",)} | {("f:metadata", f"f:{name}") for name in (
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "resourceVersion", "managedFields",
    "generateName", "deletionTimestamp", "deletionGracePeriodSeconds")})
"""Fields that are nobody's."""


@dataclass(frozen=True, slots=True)
class Manager:
    """Who writes, how, and through which version and subresource."""

    name: str
    operation: str
    version: str
    subresource: str = ""

    def __str__(self) -> str:
        through = f' with subresource "{self.subresource}"' * bool(self.subresource)
        return f'"{self.name}"{through}' + f" using {self.version}" * (self.operation == UPDATE)


Managers = dict[Manager, tuple[str, AbstractSet[Path]]]
"""With each the time when its fields last changed, and these."""


def applied(schema: Schema, old: Thing | None, config: Thing, who: Manager, *, now: float, force: bool) -> Thing:
    """The object that `config` makes of `old`, with its managers. 409 where others say otherwise, unless `force`."""
    own, at = _of(who, fields(schema, config)), time_text(int(now))
    if old is None:
        return _with(config, {who: (at, own)})
    managers = managers_of(old) or _first(schema, old, who, at)
    before = managers.pop(who, ("", frozenset()))
    merged, held = merge(schema, old, config), _united(managers)
    _remove(merged, before[1] - own - held, own | held)
    changed, removed = _changes(fields(schema, old), fields(schema, merged))
    taken = frozenset() if force or who.name != KUBECTL else _applied_before(schema, old)
    conflicts = {each: found for each, (_, paths) in managers.items() if (found := paths & changed - taken)}
    if conflicts and not force:
        raise _conflict(conflicts)
    if who.name == KUBECTL:
        renew(merged, config)
    _take(managers, changed | removed)
    managers[who] = before if before[1] == own else (at, own)
    return _with(merged, managers)


def _first(schema: Schema, old: Thing, who: Manager, at: str) -> Managers:
    """The managers of an object that is applied for the first time: kubectl of what it applied itself, else nobody."""
    own = frozenset(fields(schema, old)) - OWN
    client = own & (last_applied(partial(fields, schema), old).keys() | {WHERE})
    found = {CLIENT_SIDE: client, BEFORE: own - client}
    return {Manager(name, UPDATE, who.version): (at, paths) for name, paths in found.items() if paths}


def _applied_before(schema: Schema, old: Thing) -> frozenset[Path]:
    """The fields that kubectl applied itself, and that nobody changed since."""
    return unchanged(last_applied(partial(fields, schema), old), fields(schema, old))


def written(schema: Schema, old: Thing, new: Thing, who: Manager, now: float) -> None:
    """Notes in `new`, which has the managers of `old`, whose the fields are that were changed otherwise; with more
    fields than are kept account of it has none, and can still be written."""
    try:
        _note(schema, old, new, who, now)
    except TooLarge:
        del new["metadata"]["managedFields"]


def _note(schema: Schema, old: Thing, new: Thing, who: Manager, now: float) -> None:
    changed, removed = _changes(fields(schema, old), fields(schema, new))
    if not changed and not removed:
        return
    managers = managers_of(new)
    _, before = managers.pop(who, ("", frozenset()))
    _take(managers, changed | removed)
    managers[who] = time_text(int(now)), (before | _of(who, changed)) - removed
    new["metadata"]["managedFields"] = _with(new, managers)["metadata"]["managedFields"]


def fields(schema: Schema, value: Any) -> Fields:
    """Each field of an object, with its value."""
    found: Fields = {}
    _walk(schema, value, (), found)
    return found


def _check_count(count: int) -> None:
    if count > limits.FIELDS:
        raise TooLarge(f"the object is too large for server-side apply: it has more than {limits.FIELDS} fields, each"
                       " manager's counted; use create and replace")


def _walk(schema: Schema, value: Any, path: Path, found: Fields) -> None:
    inner = list(islice(_entries(schema, value), limits.FIELDS + 1))
    _check_count(max(len(inner), len(found)))
    if not inner and (path or not isinstance(value, dict)):
        if not (isinstance(value, list) and _keys(schema) is not None):
            found[path] = value
        return
    for step, part, each in inner:
        _walk(part, each, (*path, step), found)
        if step[0] != "f" or step[2:] not in (schema.get("properties") or ()):
            found.setdefault((*path, step), HERE)


def _entries(schema: Schema, value: Any) -> Iterator[tuple[str, Schema, Any]]:
    """What is managed inside of a value, part by part: step, schema and value; nothing where it counts as one."""
    if isinstance(value, dict) and schema.get("x-kubernetes-map-type") != "atomic":
        for name, each in value.items():
            part = _part(schema, name)
            if part is not None and each is not None:
                yield f"f:{name}", part, each
    elif isinstance(value, list) and (keys := _keys(schema)) is not None:
        for each in value:
            yield _step(each, keys), schema.get("items") or {}, each


def _part(schema: Schema, name: str) -> Schema | None:
    """The schema of a field; None where there is no such field."""
    found = (schema.get("properties") or {}).get(name, schema.get("additionalProperties"))
    if isinstance(found, dict):
        return found
    return {} if found or not schema or schema.get(PRESERVE) else None


def _keys(schema: Schema) -> Sequence[str] | None:
    """The keys of a list's elements; none for a set; None where the list counts as one value."""
    sort = schema.get("x-kubernetes-list-type")
    if sort == "map":
        return list(schema.get("x-kubernetes-list-map-keys") or ())
    if sort is None and schema.get("x-kubernetes-patch-merge-key"):
        return [schema["x-kubernetes-patch-merge-key"]]
    return () if sort == "set" else None


def _step(element: Any, keys: Sequence[str]) -> str:
    if keys and not isinstance(element, dict):
        raise bad_request(f"an element with {', '.join(keys)} is needed, not {_text(element)}")
    if missing := [name for name in sorted(keys) if element.get(name, DEFAULTS.get(name)) is None]:
        raise bad_request(f"an element of a list lacks its key {missing[0]}: {_text(element)}")
    return _place(element, keys)


def _place(element: Any, keys: Sequence[str]) -> str:
    """The step to an element; "" where it has not these keys."""
    if not keys:
        return f"v:{_text(element)}"
    if not isinstance(element, dict):
        return ""
    return f"k:{_text({name: element.get(name, DEFAULTS.get(name)) for name in sorted(keys)})}"


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def merge(schema: Schema, live: Any, config: Any) -> Any:
    """A copy of `live` in which all is as `config` says it."""
    keys, is_whole = _keys(schema), schema.get("x-kubernetes-map-type") == "atomic"
    if isinstance(config, dict) and not is_whole:
        known = live if isinstance(live, dict) else {}
        parts = {step[2:]: merge(part, known.get(step[2:]), each) for step, part, each in _entries(schema, config)}
        return {**known, **config, **parts}
    if isinstance(config, list) and keys is not None:
        elements = {_step(each, keys): each for each in live} if isinstance(live, list) else {}
        for step, part, each in _entries(schema, config):
            elements[step] = merge(part, elements.get(step), each)
        return list(elements.values())
    return config


def _remove(thing: Thing, paths: AbstractSet[Path], kept: AbstractSet[Path]) -> None:
    """Takes fields away, elements whole, and what is empty by that; not what holds a field that is kept."""
    held = {path[:end] for path in kept for end in range(len(path) + 1)}
    _cut(thing, _tree(paths - held), (), held)


def _cut(thing: Any, tree: Mapping[str, Any], path: Path, held: AbstractSet[Path]) -> bool:
    """Takes away the fields below `path` at which `tree` ends; whether that left nothing in the thing."""
    if not isinstance(thing, dict | list):
        return False
    keys = next((list(msgspec.json.decode(step[2:])) for step in tree if step[0] == "k"), ())
    steps = [f"f:{name}" for name in thing] if isinstance(thing, dict) else [_place(each, keys) for each in thing]
    parts = dict(zip(steps, thing.values() if isinstance(thing, dict) else thing, strict=True))
    gone = {step for step, below in tree.items() if step in parts and (not below or "." in below or (
        _cut(parts[step], below, (*path, step), held) and (*path, step) not in held))}
    if isinstance(thing, dict):
        for step in gone:
            del thing[step[2:]]
    else:
        thing[:] = [each for step, each in zip(steps, thing, strict=True) if step not in gone]
    return not thing


def _changes(old: Fields, new: Fields) -> tuple[set[Path], set[Path]]:
    """The fields that came or changed, and those that went."""
    changed = {path for path, value in new.items() if path not in old or old[path] != value}
    return changed, set(old.keys() - new.keys())


def _of(who: Manager, paths: Iterable[Path]) -> frozenset[Path]:
    """Those that a write may own: that of the status all in it, any other all but that."""
    of_status = who.subresource == "status"
    return frozenset(path for path in paths if path and path not in OWN and (path[0] == "f:status") == of_status)


def _united(managers: Managers) -> set[Path]:
    return {path for _, paths in managers.values() for path in paths}


def _take(managers: Managers, paths: AbstractSet[Path]) -> None:
    """From all; who has nothing left is no manager."""
    for who, (at, own) in list(managers.items()):
        if own & paths:
            managers[who] = at, own - paths
        if not managers[who][1]:
            del managers[who]


def _conflict(conflicts: Mapping[Manager, AbstractSet[Path]]) -> Failure:
    found = [(str(who), _said(path)) for who in sorted(conflicts, key=str) for path in sorted(conflicts[who])]
    causes = [{"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": path}
              for who, path in found]
    if len(found) == 1:
        text = f"Apply failed with 1 conflict: conflict with {found[0][0]}: {found[0][1]}"
    else:
        lines: dict[str, list[str]] = {}
        for each, path in found:
            lines.setdefault(f"conflicts with {each}:", []).append(f"- {path}")
        text = f"Apply failed with {len(found)} conflicts: " + "\n".join(
            line for head, rest in lines.items() for line in (head, *rest))
    return Failure(409, "Conflict", text, details={"causes": causes})


def _said(path: Path) -> str:
    """As people write it: .spec.containers[name="a"].image"""
    parts = []
    for step in path:
        if step[0] == "k":
            key = msgspec.json.decode(step[2:])
            parts.append(f"[{','.join(f'{name}={_text(value)}' for name, value in key.items())}]")
        else:
            parts.append(f".{step[2:]}" if step[0] == "f" else f"[={step[2:]}]")
    return "".join(parts)


# -- managedFields

def managers_of(thing: Thing) -> Managers:
    found: Managers = {}
    for each in thing["metadata"].get("managedFields") or ():
        who = Manager(each.get("manager", ""), each.get("operation", ""), each.get("apiVersion", ""),
                      each.get("subresource", ""))
        found[who] = each.get("time", ""), frozenset(_paths(each.get("fieldsV1") or {}, ()))
    return found


def is_readable(entries: Any) -> bool:
    """Whether these are managedFields: of managers, with fields each, and not too many to be read."""
    if not isinstance(entries, list):
        return False
    return all(isinstance(it, dict) and it.get("operation") in (APPLY, UPDATE) and it.get("fieldsType") == "FieldsV1"
               and isinstance(it.get("fieldsV1"), dict) for it in entries
               ) and msgspec.json.encode(entries).count(b":{") <= 2 * limits.FIELDS


def _with(thing: Thing, managers: Managers) -> Thing:
    _check_count(sum(len(paths) for _, paths in managers.values()))
    entries = [{
        "manager": who.name, "operation": who.operation, "apiVersion": who.version, "time": at,
        "fieldsType": "FieldsV1", "fieldsV1": _tree(paths),
        **({"subresource": who.subresource} if who.subresource else {}),
    } for who, (at, paths) in sorted(managers.items(), key=lambda it: (it[0].operation, it[1][0], it[0].name)) if paths]
    return {**thing, "metadata": {**thing["metadata"], "managedFields": entries}}


def _tree(paths: AbstractSet[Path]) -> Thing:
    tree: Thing = {}
    for path in sorted(paths):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
        node["."] = {}
    return _pruned(tree)


def _pruned(node: Thing) -> Thing:
    """Without the dot where nothing else is."""
    return {} if node == {".": {}} else {step: _pruned(each) for step, each in node.items()}


def _paths(node: Any, path: Path) -> Iterator[Path]:
    if not node and path:
        yield path
    for step, inner in node.items() if isinstance(node, dict) else ():
        yield from [path] if step == "." else _paths(inner, (*path, step))
