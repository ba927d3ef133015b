"""Plain values, as JSON and YAML give them → structs. A value that does not fit is told in one line: the path of its
field, what was found and what is allowed. And back: what changes one struct into another, as a merge patch."""

import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec import inspect

from .quantities import Malformed, shown

T = TypeVar("T")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_ANY_KEY = "..."
_TYPES = {bool: "bool", int: "int", float: "float", str: "str", list: "array", dict: "object", type(None): "null"}


def decode(said: object, form: type[T]) -> T:
    """`said` as a struct of type `form`; raises Malformed."""
    try:
        return msgspec.convert(said, form)
    except msgspec.ValidationError as error:
        raise _malformed(str(error), said, form) from None


def cleaned(said: object) -> object:
    """`said` without nulls: null and absent are the same."""
    if isinstance(said, dict):
        return {key: cleaned(value) for key, value in said.items() if value is not None}
    return [cleaned(value) for value in said if value is not None] if isinstance(said, list) else said


def change(before: msgspec.Struct, after: msgspec.Struct) -> dict[str, object]:
    """The merge patch that makes `after` of `before`: what is as by default is null, lists are replaced whole."""
    return {} if before == after else _merged(msgspec.to_builtins(before), msgspec.to_builtins(after))


def _merged(before: dict[str, object], after: dict[str, object]) -> dict[str, object]:
    changed: dict[str, object] = {key: None for key in before if key not in after}
    for key, new in after.items():
        old = before.get(key)
        if old != new:
            changed[key] = _merged(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
    return changed


def _malformed(error: str, said: object, form: type[object]) -> Malformed:
    message, _, path = error.rstrip("`").partition(" - at ")
    steps = [name or index for name, index in _STEP.findall(path)]
    if message.startswith("Object missing"):
        return Malformed(message.replace("Object missing required field", "lacks").replace("`", ""), _path(steps))
    expected, _, got = message.replace("Expected ", "").replace("`", "").partition(", got ")
    where, found = next(_found(said, steps, got), (steps, None))
    if message.startswith("Invalid enum"):
        expected = f"one of {', '.join(_words(inspect.type_info(form), steps))}"
    expected = expected.removesuffix(" | null")
    expected = "true or false" if expected == "bool" else expected
    return Malformed(f"found {shown(found)}; {expected} is allowed", _path(where))


def _path(steps: Sequence[str]) -> str:
    return "".join(f"[{step}]" if step.isdecimal() or "." in step else f".{step}" for step in steps).lstrip(".")


def _found(said: object, steps: Sequence[str], got: str) -> Iterator[tuple[list[str], object]]:
    """Paths and values at `steps` (any key of a map where they do not say which) that are of JSON type `got`."""
    if not steps:
        if got in ("", _TYPES.get(type(said))):
            yield [], said
        return
    head = steps[0]
    if isinstance(said, dict):
        children = [(key, said[key]) for key in (said if head == _ANY_KEY else (head,)) if key in said]
    else:
        children = [(head, said[int(head)])] if isinstance(said, list) and head.isdecimal() else []
    for key, child in children:
        for path, value in _found(child, steps[1:], got):
            yield [str(key), *path], value


def _words(node: inspect.Type, steps: Sequence[str]) -> list[str]:
    """The words that an enumeration at `steps` below `node` allows."""
    match node:
        case inspect.Metadata():
            return _words(node.type, steps)
        case inspect.UnionType():
            return _words(next(each for each in node.types if not isinstance(each, inspect.NoneType)), steps)
        case inspect.StructType() | inspect.DataclassType():
            return _words(next(one.type for one in node.fields if one.encode_name == steps[0]), steps[1:])
        case inspect.DictType():
            return _words(node.value_type, steps[1:])
        case inspect.VarTupleType():
            return _words(node.item_type, steps[1:])
    return [str(word) for word in node.values if word] if isinstance(node, inspect.LiteralType) else []
