"""Label and field selectors: text to a predicate.

Labels: `a=b`, `a==b`, `a!=b`, `a in (b, c)`, `a notin (b)`, `a`, `!a`, `a>1`, `a<1`, joined by commas; and the form
that stands in objects (`matchLabels`, `matchExpressions`). Fields: `path=value`, `path!=value`; each kind has its few,
and any other is refused, as in Kubernetes. A test of labels takes labels, a test of fields takes the object.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from fairway.embedded.errors import bad_request

Labels = Mapping[str, str]
LabelTest = Callable[[Labels], bool]
ObjectTest = Callable[[dict[str, Any]], bool]

QUALIFIED = re.compile(r"((?=[^/]{1,253}/)[a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?"
                       r"(?=.{1,63}$)([A-Za-z0-9][-\w.]*)?[A-Za-z0-9]", re.ASCII)
VALUE = re.compile(r"(?=.{0,63}$)(([A-Za-z0-9][-\w.]*)?[A-Za-z0-9])?", re.ASCII)
_SET = re.compile(r"^(\S+)\s+(in|notin)\s*\((.*)\)$")
_COMPARE = re.compile(r"^([^\s=!<>]+)\s*(==|=|!=|>|<)\s*([^\s=!<>]*)$")
_EXISTS = re.compile(r"^(!?)\s*(\S+)$")
_SPLIT = re.compile(r",(?![^(]*\))")

_EVERYWHERE = ("metadata.name", "metadata.namespace")
FIELDS = {
    "pods": ("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
             "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"),
    "events": ("involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
               "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
               "reportingComponent", "source", "type"),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "services": ("spec.clusterIP", "spec.type"),
    "jobs.batch": ("status.successful",),
}
_ALIASES = {"status.successful": "status.succeeded", "source": "source.component"}
_ABSENT = {"spec.unschedulable": "false", "spec.hostNetwork": "false", "status.successful": "0"}


def label_test(text: str) -> LabelTest | None:
    """None for the selector that takes everything."""
    tests = [_label(term.strip()) for term in _SPLIT.split(text) if term.strip()]
    return (lambda labels: all(test(labels) for test in tests)) if tests else None


def _label(term: str) -> LabelTest:
    if found := _SET.match(term):
        key, operator, values = found.groups()
        return requirement(key, "In" if operator == "in" else "NotIn", [value.strip() for value in values.split(",")])
    if found := _COMPARE.match(term):
        key, operator, value = found.groups()
        return requirement(key, {"!=": "NotIn", ">": "Gt", "<": "Lt"}.get(operator, "In"), [value])
    if found := _EXISTS.match(term):
        return requirement(found[2], "DoesNotExist" if found[1] else "Exists", [])
    raise bad_request(f"unable to parse requirement: found '{term}'")


def requirement(key: str, operator: str, values: list[str]) -> LabelTest:
    """One requirement on one label. As in Kubernetes NotIn holds where the label is absent."""
    if not QUALIFIED.fullmatch(key) or not all(VALUE.fullmatch(value) for value in values):
        raise bad_request(f"unable to parse requirement: {key!r} or one of {values!r} is not valid in a label")
    if operator == "In":
        return lambda labels: labels.get(key) in values
    if operator == "NotIn":
        return lambda labels: labels.get(key) not in values
    if operator == "Exists":
        return lambda labels: key in labels
    if operator == "DoesNotExist":
        return lambda labels: key not in labels
    if operator in ("Gt", "Lt") and values[0].lstrip("-").isdigit():
        sign, bound = (1 if operator == "Gt" else -1), int(values[0])
        return lambda labels: labels.get(key, "").lstrip("-").isdigit() and sign * int(labels[key]) > sign * bound
    raise bad_request(f"unable to parse requirement: {operator!r} {values!r} is not a valid label selector operator")


def selector_test(selector: Mapping[str, Any]) -> LabelTest:
    """The test of a LabelSelector object; the empty one takes everything."""
    tests = [requirement(key, "In", [value]) for key, value in (selector.get("matchLabels") or {}).items()]
    tests += [requirement(each.get("key", ""), each.get("operator", ""), each.get("values") or [])
              for each in selector.get("matchExpressions") or ()]
    return lambda labels: all(test(labels) for test in tests)


def name_of(text: str) -> tuple[str, str]:
    """The name that a field selector asks for, and its other terms: an object is found by its name, not by looking."""
    terms = [term.strip() for term in text.split(",")]
    named = [found[1] for term in terms if (found := re.fullmatch(r"metadata\.name==?([^=!]+)", term))]
    if len(named) != 1:
        return "", text
    return named[0], ",".join(term for term in terms if not re.match(r"metadata\.name=", term))


def field_test(text: str, resource: str, extra: tuple[str, ...] = ()) -> ObjectTest | None:
    """None for the selector that takes everything. `extra`: the fields a CRD names as selectable."""
    tests = [_field(term.strip(), resource, extra) for term in text.split(",") if term.strip()]
    return (lambda thing: all(test(thing) for test in tests)) if tests else None


def _field(term: str, resource: str, extra: tuple[str, ...]) -> ObjectTest:
    found = re.match(r"^([^=!]+)(==|=|!=)(.*)$", term)
    if not found:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    path, operator, wanted = found.groups()
    if path not in _EVERYWHERE + FIELDS.get(resource, ()) + extra:
        raise bad_request(f"field label not supported: {path}")
    steps, absent, equal = _ALIASES.get(path, path).split("."), _ABSENT.get(path, ""), operator != "!="
    return lambda thing: (field(thing, steps, absent) == wanted) == equal


def field(thing: Any, steps: list[str], absent: str = "") -> str:
    """The value at a path, as selectors see it."""
    for step in steps:
        thing = thing.get(step) if isinstance(thing, dict) else None
    if isinstance(thing, bool):
        return "true" if thing else "false"
    return absent if thing is None else str(thing)


def selector_text(selector: Mapping[str, Any] | None) -> str:
    """The form that stands in objects, as text; empty where it selects nothing in particular."""
    said = selector or {}
    parts = [f"{key}={value}" for key, value in sorted((said.get("matchLabels") or {}).items())]
    for each in said.get("matchExpressions") or ():
        key, values = each["key"], ",".join(sorted(each.get("values") or ()))
        parts.append({"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}.get(
            each["operator"], f"!{key}"))
    return ",".join(parts)
