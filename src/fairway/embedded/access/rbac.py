"""What a user may do: the stored Roles and bindings of RBAC, compiled, and asked at every request.

There is nothing but permission: what no rule allows is refused, and MASTERS are asked no rule. A ClusterRoleBinding
grants a ClusterRole everywhere; a RoleBinding grants a Role, or a ClusterRole, in its namespace. Rules are those that
are committed. They are compiled again after a write to one of the four kinds, and read off once for each user.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from fairway.embedded.access.ask import Ask, forbidden
from fairway.embedded.access.identity import ACCOUNT, Identity
from fairway.embedded.store import Entry, Store

GROUP = "rbac.authorization.k8s.io"
ROLES, CLUSTER_ROLES = f"roles.{GROUP}", f"clusterroles.{GROUP}"
BINDINGS, CLUSTER_BINDINGS = f"rolebindings.{GROUP}", f"clusterrolebindings.{GROUP}"
STORED = (ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS)
MOST_USERS = 10_000
ALL = "*"

Thing = Mapping[str, Any]
Place = tuple[str, str]
"""Namespace and name; of a ClusterRole the namespace is empty."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What one PolicyRule allows; no `names`: objects of any name."""

    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]
    names: frozenset[str]
    paths: tuple[str, ...]

    def allows(self, ask: Ask) -> bool:
        if ask.verb not in self.verbs and ALL not in self.verbs:
            return False
        if ask.path:
            return any(matches(path, ask.path) for path in self.paths)
        return self._has_group(ask.group) and self._has_resource(ask) and (not self.names or ask.name in self.names)

    def _has_group(self, group: str) -> bool:
        return group in self.groups or ALL in self.groups

    def _has_resource(self, ask: Ask) -> bool:
        if ask.whole in self.resources or ALL in self.resources:
            return True
        return bool(ask.subresource) and f"{ALL}/{ask.subresource}" in self.resources

    def said(self) -> dict[str, list[str]]:
        """The rule as a PolicyRule says it."""
        parts = {"verbs": self.verbs, "apiGroups": self.groups, "resources": self.resources,
                 "resourceNames": self.names, "nonResourceURLs": self.paths}
        return {name: sorted(part) for name, part in parts.items() if part}


def rule_of(said: Thing) -> Rule:
    sets = (frozenset(said.get(name) or ()) for name in ("verbs", "apiGroups", "resources", "resourceNames"))
    return Rule(*sets, tuple(said.get("nonResourceURLs") or ()))


def matches(pattern: str, path: str) -> bool:
    """Whether a path is the one that a rule names, or begins as one that ends in a star."""
    return path == pattern or (pattern.endswith(ALL) and path.startswith(pattern[:-1]))


class Grant(NamedTuple):
    """A rule that a user holds, in one namespace or, where that is empty, everywhere; `why` names the binding."""

    rule: Rule
    namespace: str
    why: str


class Held(NamedTuple):
    """What a user holds, and the roles that are bound and missing."""

    everywhere: tuple[Grant, ...]
    within: Mapping[str, tuple[Grant, ...]]
    missing: Mapping[str, tuple[str, ...]]

    def grants(self, namespace: str) -> tuple[Grant, ...]:
        return self.everywhere + self.within.get(namespace, ()) if namespace else self.everywhere

    def faults(self, namespace: str) -> str:
        """What could not be read of the rules; empty where all could."""
        found = dict.fromkeys((*self.missing.get("", ()), *self.missing.get(namespace, ())))
        return ", ".join(found) if len(found) < 2 else f"[{', '.join(found)}]"


class _Bound(NamedTuple):
    """A role that a subject has: `role` is where it is, `namespace` where it counts."""

    role: Place
    namespace: str
    why: str


class Authorizer:
    """`allows` answers yes or no with the reason, `check` raises the Failure 403."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: tuple[int, ...] = ()
        self._decoded: dict[str, dict[Place, tuple[int, Any]]] = {}
        self._roles: dict[Place, tuple[Rule, ...]] = {}
        self._bound: dict[tuple[str, str], list[_Bound]] = {}
        self._held: dict[Identity, Held] = {}

    def check(self, who: Identity, ask: Ask) -> None:
        if who.is_master:
            return
        allowed, why = self.allows(who, ask)
        if not allowed:
            raise forbidden(who, ask, why)

    def allows(self, who: Identity, ask: Ask) -> tuple[bool, str]:
        """With what allows it, or what is wrong with the rules."""
        if who.is_master:
            return True, ""
        held = self.held(who)
        for grant in held.grants(ask.namespace if not ask.path else ""):
            if grant.rule.allows(ask):
                return True, f"RBAC: allowed by {grant.why}"
        faults = held.faults(ask.namespace)
        return False, f"RBAC: {faults}" if faults else ""

    def held(self, who: Identity) -> Held:
        """All that a user holds."""
        self._compile()
        found = self._held.get(who)
        if found is None:
            if len(self._held) >= MOST_USERS:
                self._held.clear()
            found = self._held[who] = self._of(who)
        return found

    def rules(self, kind: str, namespace: str, name: str) -> tuple[Rule, ...] | None:
        """The rules of a Role or a ClusterRole; None where there is none."""
        self._compile()
        return self._roles.get(("" if kind == "ClusterRole" else namespace, name))

    def _of(self, who: Identity) -> Held:
        grants: dict[str, list[Grant]] = {}
        missing: dict[str, list[str]] = {}
        for subject in (("User", who.name), *(("Group", each) for each in who.groups)):
            for one in self._bound.get(subject, ()):
                rules = self._roles.get(one.role)
                if rules is None:
                    missing.setdefault(one.namespace, []).append(_absent(one.role))
                grants.setdefault(one.namespace, []).extend(Grant(it, one.namespace, one.why) for it in rules or ())
        within = {namespace: tuple(found) for namespace, found in grants.items() if namespace}
        return Held(tuple(grants.get("", ())), within, {space: tuple(found) for space, found in missing.items()})

    def _compile(self) -> None:
        touched = self._store.touched
        seen = tuple(touched.get(name, 0) for name in STORED)
        if seen == self._seen:
            return
        self._seen = seen
        self._roles = {place: rules for name in (ROLES, CLUSTER_ROLES)
                       for place, rules in self._read(name, _rules_of).items()}
        self._bound = {}
        for name in (CLUSTER_BINDINGS, BINDINGS):
            for said in self._read(name, _subjects_of).values():
                for subject, bound in said:
                    self._bound.setdefault(subject, []).append(bound)
        self._held.clear()

    def _read(self, name: str, what: Any) -> dict[Place, Any]:
        """`what` of each object of a kind; only those that changed are decoded again."""
        known, entries = self._decoded.get(name, {}), self._store.objects(name)
        self._decoded[name] = {place: _fresh(known.get(place), entry, what) for place, entry in entries.items()}
        return {place: made for place, (_, made) in self._decoded[name].items()}


def _fresh(known: tuple[int, Any] | None, entry: Entry, what: Any) -> tuple[int, Any]:
    if known is not None and known[0] == entry.revision:
        return known
    return entry.revision, what(msgspec.json.decode(entry.value))


def _rules_of(role: Thing) -> tuple[Rule, ...]:
    return tuple(rule_of(each) for each in role.get("rules") or ())


def _subjects_of(binding: Thing) -> list[tuple[tuple[str, str], _Bound]]:
    meta, ref = binding["metadata"], binding["roleRef"]
    space = meta.get("namespace", "")
    role = "" if ref["kind"] == "ClusterRole" else space, ref["name"]
    kind, name = ("RoleBinding", f"{meta['name']}/{space}") if space else ("ClusterRoleBinding", meta["name"])
    found = []
    for each in binding.get("subjects") or ():
        subject, told = _subject(each, space)
        why = f'{kind} "{name}" of {ref["kind"]} "{ref["name"]}" to {each["kind"]} "{told}"'
        found.append((subject, _Bound(role, space, why)))
    return found


def _subject(said: Thing, namespace: str) -> tuple[tuple[str, str], str]:
    """The user or group that a subject is, and how people name it."""
    if said["kind"] != "ServiceAccount":
        return (said["kind"], said["name"]), said["name"]
    space = said.get("namespace") or namespace
    return ("User", f"{ACCOUNT}{space}:{said['name']}"), f"{said['name']}/{space}"


def _absent(role: Place) -> str:
    kind = "role" if role[0] else "clusterrole"
    return f'{kind}.{GROUP} "{role[1]}" not found'


# -- escalation

def uncovered(held: Iterable[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """The parts of the wanted rules, one verb on one resource or path each, that no rule held covers."""
    owned = tuple(held)
    return [part for rule in wanted for part in _parts(rule) if not any(_covers(each, part) for each in owned)]


def _parts(rule: Rule) -> Iterator[Rule]:
    for verb in sorted(rule.verbs):
        one = frozenset((verb,))
        for group in sorted(rule.groups):
            for resource in sorted(rule.resources):
                for names in ([frozenset((each,)) for each in sorted(rule.names)] or [frozenset()]):
                    yield Rule(one, frozenset((group,)), frozenset((resource,)), names, ())
        for path in rule.paths:
            yield Rule(one, frozenset(), frozenset(), frozenset(), (path,))


def _covers(owned: Rule, part: Rule) -> bool:
    if not _holds(owned.verbs, part.verbs):
        return False
    if part.paths:
        return any(matches(each, part.paths[0]) for each in owned.paths)
    resource, = part.resources
    subresource = resource.partition("/")[2]
    has_resource = _holds(owned.resources, part.resources) or (
        bool(subresource) and f"{ALL}/{subresource}" in owned.resources)
    has_name = not owned.names or bool(part.names and part.names <= owned.names)
    return has_resource and has_name and _holds(owned.groups, part.groups)


def _holds(owned: frozenset[str], part: frozenset[str]) -> bool:
    return ALL in owned or part <= owned
