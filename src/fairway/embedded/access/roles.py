"""The ClusterRoles that every server has, and those that gather the rules of others.

The rows of roles.txt are made where they are absent when the server starts. One that is there gets back the rules and
subjects that it lost, as Kubernetes does it, unless its annotation `autoupdate` says "false".

A ClusterRole with an aggregationRule has the rules of all that its selectors take, and no others: `aggregate` writes
them, at the start and after each write to a ClusterRole.
"""

import sqlite3
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from fairway.embedded import meta
from fairway.embedded.access.identity import controller
from fairway.embedded.access.rbac import CLUSTER_BINDINGS, CLUSTER_ROLES, GROUP
from fairway.embedded.database import Full
from fairway.embedded.errors import Failure
from fairway.embedded.registry import Registry, Write
from fairway.embedded.selector import selector_test
from fairway.embedded.store import Key

Thing = dict[str, Any]
_UPDATES = "rbac.authorization.kubernetes.io/autoupdate"
_BOOT = {"kubernetes.io/bootstrapping": "rbac-defaults"}
RETRY_SECONDS = 1.0
_AGGREGATOR = controller("clusterrole-aggregation-controller")


async def begin(registry: Registry) -> None:
    """Makes the default roles and their bindings, or completes them."""
    for name, things in ((CLUSTER_ROLES, defaults()[0]), (CLUSTER_BINDINGS, defaults()[1])):
        for thing in things:
            _keep(registry, name, thing)
    await registry.store.committed()
    while aggregate(registry):
        await registry.store.committed()


async def keep_aggregated(registry: Registry) -> None:
    """Runs as a task until the store closes."""
    store, seen = registry.store, -1
    while not store.closed:
        if store.touched.get(CLUSTER_ROLES, 0) == seen:
            await store.changed(CLUSTER_ROLES)
            continue
        seen = store.touched.get(CLUSTER_ROLES, 0)
        aggregate(registry)
        try:
            await store.committed()
        except (Full, sqlite3.Error):
            seen = -1
            await registry.clock.sleep(RETRY_SECONDS)


def aggregate(registry: Registry) -> bool:
    """Stages each aggregated ClusterRole that has not the rules it gathers; whether there was one."""
    resource = registry.catalog.stored(CLUSTER_ROLES)
    roles = list(registry.latest(CLUSTER_ROLES))
    changed = False
    for role in roles:
        if selectors := (role.get("aggregationRule") or {}).get("clusterRoleSelectors"):
            rules = list(_gathered(role, roles, selectors))
            if resource is not None and rules != (role.get("rules") or []):
                registry.replace({**role, "rules": rules}, Write(resource, _AGGREGATOR))
                changed = True
    return changed


def _gathered(role: Thing, roles: list[Thing], selectors: list[Thing]) -> Iterator[Thing]:
    """Each rule once, by the names of the roles that have it."""
    seen = []
    try:
        tests = [selector_test(each) for each in selectors]
    except Failure:  # written before selectors were judged
        tests = []
    for other in sorted(roles, key=lambda it: str(it["metadata"]["name"])):
        labels = other["metadata"].get("labels") or {}
        if other["metadata"]["name"] != role["metadata"]["name"] and any(test(labels) for test in tests):
            for rule in other.get("rules") or ():
                if rule not in seen:
                    seen.append(rule)
                    yield rule


def _keep(registry: Registry, name: str, wanted: Thing) -> None:
    key = Key(name, "", wanted["metadata"]["name"])
    entry = registry.store.latest(key)
    if entry is None:
        thing = msgspec.json.decode(msgspec.json.encode(wanted))
        meta.begin(thing, uid=registry.chance.uid(), now=registry.clock.now())
        registry.store.put(key, thing)
        return
    thing = msgspec.json.decode(entry.value)
    if (thing["metadata"].get("annotations") or {}).get(_UPDATES) == "false":
        return
    part = "subjects" if "roleRef" in wanted else "rules"
    lost = [each for each in wanted.get(part, ()) if each not in (thing.get(part) or ())]
    if lost and "aggregationRule" not in wanted:
        thing[part] = [*(thing.get(part) or ()), *lost]
        registry.store.put(key, thing)


@cache
def defaults() -> tuple[tuple[Thing, ...], tuple[Thing, ...]]:
    """The ClusterRoles and ClusterRoleBindings of roles.txt."""
    roles: list[Thing] = []
    bindings: list[Thing] = []
    for line in resources.files(__package__).joinpath("roles.txt").read_text().splitlines():
        if line.startswith(" "):
            roles[-1]["rules"].append(_rule(*map(str.split, line.split("|"))))
        elif line and not line.startswith("#"):
            name, *marks = line.split()
            roles.append(_role(name, marks))
            bindings += [_binding(name, group) for mark, group in zip(marks[::2], marks[1::2]) if mark == "@"]
    while any(_fill(role, roles) for role in roles):
        pass
    return tuple(roles), tuple(bindings)


def _fill(role: Thing, roles: list[Thing]) -> bool:
    """Gives a role the rules that it gathers; whether that changed it."""
    selectors, before = (role.get("aggregationRule") or {}).get("clusterRoleSelectors"), role["rules"]
    if selectors:
        role["rules"] = list(_gathered(role, roles, selectors))
    return bool(role["rules"] != before)


def _role(name: str, marks: list[str]) -> Thing:
    role: Thing = {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": _meta(name), "rules": []}
    for mark, label in zip(marks[::2], marks[1::2]):
        said = {f"{GROUP}/aggregate-to-{label}": "true"}
        if mark == "<":
            role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": said}]}
        elif mark == ">":
            role["metadata"]["labels"] |= said
    return role


def _rule(verbs: list[str], where: list[str], names: list[str] | None = None, only: list[str] | None = None) -> Thing:
    if names is None:
        return {"nonResourceURLs": where, "verbs": verbs}
    groups = ["" if each == "core" else each for each in where]
    return {"apiGroups": groups, "resources": names, "verbs": verbs} | ({"resourceNames": only} if only else {})


def _binding(name: str, group: str) -> Thing:
    return {
        "apiVersion": f"{GROUP}/v1", "kind": "ClusterRoleBinding", "metadata": _meta(name),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group}],
    }  # fmt: skip


def _meta(name: str) -> Thing:
    return {"name": name, "labels": dict(_BOOT), "annotations": {_UPDATES: "true"}}
