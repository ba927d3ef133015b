"""Objects in files: YAML or JSON, one document or several, lists opened.

YAML is read as Kubernetes means it: times stay text, 12:30:00 is no number, 1e3 is one, a key stands once in a map.
What cannot be read is one line that names the file and, where YAML tells it, the line in it.
"""

import re
import sys
from collections.abc import Hashable, Iterator
from pathlib import Path

import msgspec
import yaml

MOST_VALUES = 20_000_000
"""Values in a file once its aliases are written out; a small file of aliases can stand for more than any memory."""

_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,18}|0x[0-9a-fA-F]{1,16}|0[0-7]{1,20})$")
_EXPONENT = r"[eE][-+]?[0-9]{1,2}"
_FLOAT = re.compile(rf"[-+]?(([0-9]{{1,30}}\.[0-9]{{0,30}}|\.[0-9]{{1,30}})({_EXPONENT})?|[0-9]{{1,30}}{_EXPONENT})$")
_TAG = "tag:yaml.org,2002:"


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """What plain text may mean besides text, by its first letter: PyYAML's, with our numbers and without times."""
    own = {f"{_TAG}{name}" for name in ("int", "float", "timestamp")}
    numbers = [(f"{_TAG}int", _INT), (f"{_TAG}float", _FLOAT)]
    known = yaml.CSafeLoader.yaml_implicit_resolvers
    kept = {first: [(tag, pattern) for tag, pattern in found if tag not in own] for first, found in known.items()}
    return {first: kept.get(first, []) + (numbers if first in "-+.0123456789" else []) for first in {*kept, *"+-."}}


class Unreadable(ValueError):
    """One line: which file, where in it, what is wrong."""


class Loader(yaml.CSafeLoader):
    """PyYAML's, for what JSON can say too."""

    yaml_implicit_resolvers = _resolvers()
    yaml_constructors = {  # noqa: RUF012  as PyYAML declares it
        tag: make
        for tag, make in yaml.CSafeLoader.yaml_constructors.items()
        if tag not in {f"{_TAG}{name}" for name in ("timestamp", "binary", "set", "omap", "pairs")}
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != f"{_TAG}merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} stands twice", key.start_mark)
                seen.add(key.value)
                key.tag = f"{_TAG}str"  # a key is text, whatever it looks like
        return super().construct_mapping(node, deep)


def load(file: str | Path) -> list[object]:
    """The objects in a file, or on standard input for `-`."""
    where = "standard input" if file == "-" else file
    try:
        text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise Unreadable(f"{where}: {error.strerror or error}") from None
    return loaded(text, str(where))


def loaded(text: bytes, where: str) -> list[object]:
    """The objects in a text; `where` names it in what an Unreadable says."""
    try:
        return [one for document in _documents(text) for one in _opened(document, "")]
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise Unreadable(f"{where}: {line}{error.problem or error}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise Unreadable(" ".join(f"{where}: {error}".split())) from None
    except RecursionError:
        raise Unreadable(f"{where}: is nested too deeply") from None


def _documents(text: bytes) -> Iterator[object]:
    if text.lstrip()[:1] in (b"{", b"["):
        try:
            yield msgspec.json.decode(text)
            return
        except msgspec.DecodeError:
            pass  # YAML may begin so too, and says better what is wrong
    for document in yaml.load_all(text, Loader):
        if document is not None:
            if b"&" in text:
                _measure(document, {})
            yield document


def _measure(said: object, sizes: dict[int, int]) -> int:
    """How many values there are once aliases are written out; ValueError where they are endless or too many."""
    if not isinstance(said, dict | list):
        return 1
    if id(said) in sizes:
        if not sizes[id(said)]:
            raise ValueError("an alias stands inside what it names")
        return sizes[id(said)]
    sizes[id(said)] = 0
    total = 1 + sum(_measure(one, sizes) for one in (said.values() if isinstance(said, dict) else said))
    if total > MOST_VALUES:
        raise ValueError("its aliases stand for too many values")
    sizes[id(said)] = total
    return total


def _opened(said: object, kind: str) -> Iterator[object]:
    """An object, or those in a List; what a list of one kind holds may leave its kind out."""
    if isinstance(said, list):
        for one in said:
            yield from _opened(one, kind)
    elif isinstance(said, dict) and str(said.get("kind", "")).endswith("List") and "items" in said:
        inner, items = str(said["kind"]).removesuffix("List"), said["items"] or []
        if not isinstance(items, list):
            raise ValueError(f"{said['kind']}: items: found {items!r:.60}; a list is allowed")
        for one in items:
            known = {"apiVersion": said.get("apiVersion"), "kind": inner} if inner and isinstance(one, dict) else {}
            yield from _opened({**known, **one} if known else one, inner)
    else:
        yield said
