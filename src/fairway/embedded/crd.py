"""CustomResourceDefinitions: which are refused, and when one is established.

A definition is established as soon as its names are free in its group; from its commit on it is served (`catalog`).
It keeps a finalizer so that its objects go before it does (`collect`). Its CEL rules are not run, which the one who
wrote it is told.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fairway.api.quantities import time_text
from fairway.embedded.errors import Cause, required, unsupported, wrong
from fairway.embedded.kinds import Kind
from fairway.embedded.meta import LABEL, SAY_LABEL
from fairway.embedded.schema import INT_OR_STRING, PRESERVE, unrun

FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def faults(crd: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Cause]:
    spec, name = crd["spec"], crd["metadata"]["name"]
    if spec == old.get("spec"):
        return
    if name != f"{spec['names']['plural']}.{spec['group']}":
        yield wrong("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if not LABEL.fullmatch(spec["names"]["plural"]):
        yield wrong("spec.names.plural", spec["names"]["plural"], SAY_LABEL)
    if "." not in spec["group"]:
        yield wrong("spec.group", spec["group"], "should be a domain with at least one dot")
    if spec["scope"] not in ("Cluster", "Namespaced"):
        yield unsupported("spec.scope", spec["scope"], ("Cluster", "Namespaced"))
    if sum(1 for version in spec["versions"] if version.get("storage")) != 1:
        yield wrong("spec.versions", [version["name"] for version in spec["versions"]],
                    "must have exactly one version marked as storage version")
    for index, version in enumerate(spec["versions"]):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        path = f"spec.versions[{index}].schema.openAPIV3Schema"
        if schema is None:
            yield required(path, "schemas are required")
        elif schema.get("type") != "object":
            yield unsupported(f"{path}.type", schema.get("type", ""), ("object",))
        else:
            yield from _vague(schema, path)
    if old:
        yield from (wrong(f"spec.{field}", spec[field], "field is immutable") for field in ("group", "scope")
                    if spec[field] != old["spec"][field])


def _vague(schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """Where a schema leaves open what stands there: it could be neither pruned nor defaulted."""
    parts = [(each, f"{path}.properties[{name}]", "object fields")
             for name, each in (schema.get("properties") or {}).items()]
    if isinstance(schema.get("additionalProperties"), dict):
        parts.append((schema["additionalProperties"], f"{path}.additionalProperties", "object fields"))
    if schema.get("type") == "array" and "items" not in schema:
        yield required(f"{path}.items", "must be specified")
    elif isinstance(schema.get("items"), dict):
        parts.append((schema["items"], f"{path}.items", "array items"))
    for part, where, what in parts:
        if not (part.get("type") or part.get(INT_OR_STRING) or part.get(PRESERVE)):
            yield required(f"{where}.type", f"must not be empty for specified {what}")
        yield from _vague(part, where)


def establish(crd: dict[str, Any], kinds: Iterable[Kind], now: float) -> None:
    """Writes the status: established, if no other kind of the group has one of the names."""
    spec = crd["spec"]
    names, meta = spec["names"], crd["metadata"]
    status = crd.setdefault("status", {})
    others = {name for kind in kinds if kind.group == spec["group"] and kind.plural != names["plural"]
              for name in (kind.kind, kind.singular, kind.plural)}
    taken = sorted(others & {names["kind"], names.get("singular", ""), names["plural"]})
    if FINALIZER not in meta.setdefault("finalizers", []) and "deletionTimestamp" not in meta:
        meta["finalizers"].append(FINALIZER)
    stored = next(version["name"] for version in spec["versions"] if version.get("storage"))
    status["storedVersions"] = list(dict.fromkeys([*status.get("storedVersions", ()), stored]))
    if not taken:
        status["acceptedNames"] = names
    accepted = _condition("NamesAccepted", "NoConflicts", "no conflicts found") if not taken else _condition(
        "NamesAccepted", "NameConflict", f'"{taken[0]}" is already in use', met=False)
    ready = _condition("Established", "InitialNamesAccepted", "the initial names have been accepted") if (
        not taken) else _condition("Established", "NotAccepted", "not all names are accepted", met=False)
    known = {each["type"]: each for each in status.get("conditions", ())}
    for each in (accepted, ready):
        if known.get(each["type"], {}).get("status") != each["status"]:
            known[each["type"]] = {"lastTransitionTime": time_text(int(now)), **each}
    status["conditions"] = list(known.values())


def warnings(crd: Mapping[str, Any]) -> Iterator[str]:
    if unrun(crd["spec"]["versions"]):
        yield (f"{crd['metadata']['name']}: x-kubernetes-validations (CEL) are not run by this server; objects are "
               "validated by the rest of the schema")


def _condition(kind: str, reason: str, message: str, *, met: bool = True) -> dict[str, str]:
    return {"message": message, "reason": reason, "status": "True" if met else "False", "type": kind}
