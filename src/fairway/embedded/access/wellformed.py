"""What Kubernetes fills into the four kinds of RBAC, and what it refuses in them.

A rule is for resources, or for paths that are none, not for both; the role that a binding names does not change, since
who may bind was judged by it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fairway.embedded.access.rbac import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, GROUP, ROLES
from fairway.embedded.errors import Cause, Failure, required, unsupported, wrong
from fairway.embedded.selector import selector_test

Thing = Mapping[str, Any]
_SUBJECTS = ("ServiceAccount", "User", "Group")


def complete(binding: dict[str, Any]) -> None:
    """The groups of the API that a binding leaves out."""
    if ref := binding.get("roleRef"):
        ref["apiGroup"] = ref.get("apiGroup") or GROUP
    for each in binding.get("subjects") or ():
        if each.get("kind") in ("User", "Group"):
            each["apiGroup"] = each.get("apiGroup") or GROUP


def _role(thing: Thing, old: Thing) -> Iterator[Cause]:
    for index, rule in enumerate(thing.get("rules") or ()):
        yield from _rule(rule, f"rules[{index}]", namespaced="namespace" in thing["metadata"])
    for index, each in enumerate((thing.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()):
        path = f"aggregationRule.clusterRoleSelectors[{index}]"
        if not each:
            yield required(path, "a selector must not be empty")
        try:
            selector_test(each)
        except Failure as failure:
            yield wrong(path, each, failure.message)


def _rule(rule: Thing, path: str, *, namespaced: bool) -> Iterator[Cause]:
    if not rule.get("verbs"):
        yield required(f"{path}.verbs", "verbs must contain at least one value")
    if urls := rule.get("nonResourceURLs"):
        if namespaced:
            yield wrong(f"{path}.nonResourceURLs", urls, "namespaced rules cannot apply to non-resource URLs")
        if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
            yield wrong(f"{path}.nonResourceURLs", urls,
                        "rules cannot apply to both regular resources and non-resource URLs")
        return
    if not rule.get("apiGroups"):
        yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield required(f"{path}.resources", "resource rules must supply at least one resource")


def _binding(thing: Thing, old: Thing) -> Iterator[Cause]:
    ref, space = thing.get("roleRef") or {}, thing["metadata"].get("namespace")
    kinds = ("ClusterRole", "Role") if space else ("ClusterRole",)
    if ref.get("apiGroup") != GROUP:
        yield unsupported("roleRef.apiGroup", ref.get("apiGroup", ""), (GROUP,))
    if ref.get("kind") not in kinds:
        yield unsupported("roleRef.kind", ref.get("kind", ""), kinds)
    if not ref.get("name"):
        yield required("roleRef.name")
    elif "/" in ref["name"] or "%" in ref["name"] or ref["name"] in (".", ".."):
        yield wrong("roleRef.name", ref["name"], "may not contain '/' or '%', and may not be '.' or '..'")
    for index, each in enumerate(thing.get("subjects") or ()):
        yield from _subject(each, f"subjects[{index}]", space)
    if old and old["roleRef"] != ref:
        yield wrong("roleRef", ref, "cannot change roleRef")


def _subject(each: Thing, path: str, space: str | None) -> Iterator[Cause]:
    kind, group = each.get("kind"), each.get("apiGroup", "")
    if not each.get("name"):
        yield required(f"{path}.name")
    if kind not in _SUBJECTS:
        yield unsupported(f"{path}.kind", kind, _SUBJECTS)
    elif kind != "ServiceAccount" and group != GROUP:
        yield unsupported(f"{path}.apiGroup", group, (GROUP,))
    elif kind == "ServiceAccount" and group:
        yield unsupported(f"{path}.apiGroup", group, ("",))
    elif kind == "ServiceAccount" and not each.get("namespace") and not space:
        yield required(f"{path}.namespace")


RULES: Mapping[str, Callable[[Thing, Thing], Iterable[Cause]]] = {
    ROLES: _role, CLUSTER_ROLES: _role, BINDINGS: _binding, CLUSTER_BINDINGS: _binding}
