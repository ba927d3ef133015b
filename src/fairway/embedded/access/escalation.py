"""No user gives what it does not have: whoever writes a role, or binds one, must hold each of its rules there.

Two verbs are exceptions, as in Kubernetes: `escalate` on a role lets write any rules into it, `bind` on a role lets
bind it. An aggregated ClusterRole may come to hold anything: it takes all rights to write one.
"""

from collections.abc import Iterable
from typing import Any

from fairway.embedded.access.ask import Ask
from fairway.embedded.access.identity import Identity
from fairway.embedded.access.rbac import ALL, GROUP, Authorizer, Rule, rule_of, uncovered
from fairway.embedded.errors import Failure, forbidden
from fairway.embedded.kinds import Kind

Thing = dict[str, Any]
ROLE_KINDS, BINDING_KINDS = ("Role", "ClusterRole"), ("RoleBinding", "ClusterRoleBinding")
_EVERYTHING = (Rule(frozenset((ALL,)), frozenset((ALL,)), frozenset((ALL,)), frozenset(), ()),
               Rule(frozenset((ALL,)), frozenset(), frozenset(), frozenset(), (ALL,)))


def check(access: Authorizer, who: Identity, kind: Kind, *, old: Thing | None, new: Thing) -> None:
    """Raises Failure 403 where writing `new` in the place of `old` would give rights that `who` lacks."""
    if kind.group != GROUP or who.is_master:
        return
    if kind.kind in ROLE_KINDS:
        _check_role(access, who, kind, old=old, new=new)
    elif kind.kind in BINDING_KINDS:
        _check_binding(access, who, kind, old=old, new=new)


def _check_role(access: Authorizer, who: Identity, kind: Kind, *, old: Thing | None, new: Thing) -> None:
    space, name = new["metadata"].get("namespace", ""), new["metadata"]["name"]
    parts = ("rules", "aggregationRule")
    if old is not None and all(old.get(each) == new.get(each) for each in parts):
        return
    if access.allows(who, Ask("escalate", GROUP, kind.plural, "", space, name))[0]:
        return
    if (new.get("aggregationRule") or (old or {}).get("aggregationRule")) and _lacks(access, who, "", _EVERYTHING):
        raise forbidden(kind, name, why="must have cluster-admin privileges to use the aggregationRule")
    _confirm(access, who, kind, new, [rule_of(each) for each in new.get("rules") or ()])


def _check_binding(access: Authorizer, who: Identity, kind: Kind, *, old: Thing | None, new: Thing) -> None:
    space, ref = new["metadata"].get("namespace", ""), new["roleRef"]
    if old is not None and all(old.get(each) == new.get(each) for each in ("subjects", "roleRef")):
        return
    plural = "clusterroles" if ref["kind"] == "ClusterRole" else "roles"
    if access.allows(who, Ask("bind", GROUP, plural, "", space, ref["name"]))[0]:
        return
    rules = access.rules(ref["kind"], space, ref["name"])
    if rules is None:
        text = f'{plural}.{GROUP} "{ref["name"]}" not found'
        raise Failure(404, "NotFound", text, details={"name": ref["name"], "group": GROUP, "kind": plural})
    _confirm(access, who, kind, new, rules)


def _confirm(access: Authorizer, who: Identity, kind: Kind, new: Thing, rules: Iterable[Rule]) -> None:
    missing = _lacks(access, who, new["metadata"].get("namespace", ""), rules)
    if missing:
        groups = " ".join(f'"{each}"' for each in who.groups)
        texts = "\n".join(sorted({_text(each) for each in _compact(missing)}))
        why = (f'user "{who.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n'
               f"{texts}")
        raise forbidden(kind, new["metadata"]["name"], why=why)


def _lacks(access: Authorizer, who: Identity, namespace: str, rules: Iterable[Rule]) -> list[Rule]:
    return uncovered((grant.rule for grant in access.held(who).grants(namespace)), rules)


def _compact(parts: Iterable[Rule]) -> Iterable[Rule]:
    """Those of one group and resource as one rule."""
    found: dict[Any, set[str]] = {}
    for each in parts:
        found.setdefault((each.groups, each.resources, each.names, each.paths), set()).update(each.verbs)
    return [Rule(frozenset(verbs), *what) for what, verbs in found.items()]


def _text(rule: Rule) -> str:
    named = {"APIGroups": rule.groups, "Resources": rule.resources, "NonResourceURLs": rule.paths,
             "ResourceNames": rule.names, "Verbs": rule.verbs}
    parts = (f"{name}:[{' '.join(_quoted(each) for each in sorted(part))}]" for name, part in named.items() if part)
    return "{" + ", ".join(parts) + "}"


def _quoted(text: str) -> str:
    return f'"{text}"'
