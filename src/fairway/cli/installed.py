"""`fairway install --check`: what a cluster lacks of the manifests and of what they are for, a line each.

Checked are: the server's version; each object, and of definitions whether their schema is this version's; whether the
controller's account may do what its roles grant; whether a controller holds the lease, and if none does, which
namespaces cannot go without it. Nothing is changed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

import click

from fairway import LEASE
from fairway.api.objects import FINALIZER
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Kind, Ref, Selection

from .leader import leader
from .manifests import Thing, ref_of

T = TypeVar("T")
OLDEST_MINOR = 30  # the oldest of Kubernetes 1 that serves all that is installed
APPLY = "apply what `fairway install` prints"
BINDINGS = Kind("ClusterRoleBinding", "clusterrolebindings", "rbac.authorization.k8s.io/v1", is_namespaced=False)
WIDTH = 16


async def check(client: Client, namespace: str, things: list[Thing]) -> int:
    """Prints what is lacking; 1 if anything is."""
    if other := await elsewhere(client, namespace):
        click.echo(f"Fairway is installed in namespace {other}, not in {namespace}; check with -n {other}")
        return 1
    found = [*await _version(client), *await each(things, lambda one: _object(client, one))]
    if not found:
        found = await each(_grants(things), lambda one: _denied(client, namespace, *one))
    runs = await leader(client, namespace)
    if not runs:
        is_inside = any(one["kind"] == "Deployment" for one in things)
        todo = f"see kubectl -n {namespace} get pods" if is_inside else "start `fairway controller`"
        found.append(f"no controller runs: nobody renews the lease {namespace}/{LEASE}; {todo}")
        found += await _stuck(client)
    for line in found:
        click.echo(line)
    if not found:
        click.echo("complete: nothing is missing, and a controller runs")
    return int(bool(found))


async def elsewhere(client: Client, namespace: str) -> str:
    """Another namespace than this one, if Fairway is installed there: its roles are granted to an account of it."""
    granted = await client.find(Ref(BINDINGS, LEASE)) or {}
    homes = [it.get("namespace", "") for it in granted.get("subjects") or () if it["name"] == LEASE]
    return homes[0] if homes and namespace not in homes else ""


async def each(things: Iterable[T], look: Callable[[T], Awaitable[str]]) -> list[str]:
    """What `look` says of these, where it says something, in their order; several at once."""
    limit = asyncio.Semaphore(WIDTH)

    async def one(thing: T) -> str:
        async with limit:
            return await look(thing)

    return [line for line in await asyncio.gather(*map(one, things)) if line]


async def _version(client: Client) -> list[str]:
    said = await client.read("/version")
    minor = int("".join(filter(str.isdigit, said["minor"])) or 0)
    is_old = said["major"] == "1" and minor < OLDEST_MINOR
    return [f"Kubernetes {said['gitVersion']}: 1.{OLDEST_MINOR} or later is needed"] if is_old else []


async def _object(client: Client, one: Thing) -> str:
    name = f"{one['kind']} {one['metadata']['name']}"
    there = await client.find(ref_of(one))
    if there is None:
        return f"{name}: missing; {APPLY}"
    if one["kind"] == "CustomResourceDefinition" and _schema(there) != _schema(one):
        return f"{name}: is of another version; {APPLY}"
    if one["kind"] == "Deployment" and not there.get("status", {}).get("availableReplicas"):
        meta = one["metadata"]
        return f"{name}: no pod of it is available; see kubectl -n {meta['namespace']} describe pods"
    return ""


def _schema(definition: Thing) -> object:
    return [one["schema"] for one in definition["spec"]["versions"]]


def _grants(things: list[Thing]) -> Iterator[tuple[str, dict[str, str]]]:
    """Namespace and attributes of all that the roles of the controller grant."""
    for role in things:
        if role["kind"] in ("ClusterRole", "Role") and role["metadata"]["name"] == LEASE:
            for rule in role["rules"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        name = (rule.get("resourceNames") or [""])[0]
                        yield role["metadata"].get("namespace", ""), {
                            "group": rule["apiGroups"][0], "resource": resource, "verb": verb, "name": name}


async def _denied(client: Client, account: str, namespace: str, asked: dict[str, str]) -> str:
    resource, _, part = asked["resource"].partition("/")
    attributes = {**asked, "resource": resource, "subresource": part, "namespace": namespace}
    user = f"system:serviceaccount:{account}:{LEASE}"
    spec = {"user": user, "resourceAttributes": {key: value for key, value in attributes.items() if value}}
    said = await client.create(kinds.REVIEWS, {"apiVersion": kinds.REVIEWS.group_version, "kind": kinds.REVIEWS.name,
                                               "metadata": {}, "spec": spec})
    where = f" in {namespace}" if namespace else ""
    may = said["status"]["allowed"]
    return "" if may else f"{user} may not {asked['verb']} {asked['resource']}{where}; {APPLY}"


async def _stuck(client: Client) -> list[str]:
    """Namespaces that are being deleted and wait for a controller to charge what ran in them."""
    leaving = [it["metadata"]["name"] for it in await client.list(Selection(kinds.NAMESPACES))
               if it["metadata"].get("deletionTimestamp")]
    lines = []
    for name in leaving:
        kept = [it for it in await client.list(Selection(kinds.WORKLOADS, name))
                if FINALIZER in it["metadata"].get("finalizers", ())]
        if kept:
            lines.append(f"Namespace {name}: waits for the finalizer {FINALIZER} of {len(kept)} Workloads, which a "
                         "controller removes once it runs")
    return lines
