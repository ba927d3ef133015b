"""Owners whose replicas are workloads each, by the owner's name: Deployment, StatefulSet, Notebook, LeaderWorkerSet.

Such a name finds one `Found` with all of them in `replicas`: what is read is read of each, what is cancelled is the
owner. A LeaderWorkerSet is suspended and resumed by its annotations, which all of its groups follow. The others are
not: the pods that their controllers make in the stead of those that stop would start again.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import click
import msgspec

from fairway.api.names import gathering, size_of
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Kind, Ref, Selection

from .alone import read
from .cancelled import unknown
from .connect import allowed
from .find import Found, get, sought
from .listing import Listed
from .main import Problem
from .rows import Filter, Sight, print_rows

Thing = dict[str, Any]
GROUP = "fairway.dev/group"
NOTEBOOK = Kind("Notebook", "notebooks", "kubeflow.org/v1")
BY_POD = (NOTEBOOK, Kind("Deployment", "deployments", "apps/v1"), Kind("StatefulSet", "statefulsets", "apps/v1"))
STOPPED = "kubeflow-resource-stopped"
PARKED = "fairway.dev/parked"  # on what was scaled to zero: the replicas that it had
BY_GROUP = Kind("LeaderWorkerSet", "leaderworkersets", "leaderworkerset.x-k8s.io/v1")


async def find(client: Client, namespace: str, job: str) -> Found:
    """The workload that `job` names in `namespace`, or all that an owner of that name has."""
    if found := await any_of(client, namespace, job):
        return found
    if said := await _group(client, namespace, job.rpartition("/")[2]):
        raise Problem(said, exit_code=1)
    raise Problem(await unknown(client, namespace, job), exit_code=1)


async def _group(client: Client, namespace: str, name: str) -> str:
    """What a group of bare pods waits for, or the group of a pod, while it has no Workload, or why a pod is none of its
    group; "" of no group."""
    pod = await get(client, Ref(kinds.PODS, name, namespace)) or {}
    if said := surplus([pod]):
        return said[0]
    group = (pod.get("metadata", {}).get("labels") or {}).get(GROUP, name)
    try:
        pods = await client.list(Selection(kinds.PODS, namespace, labels=f"{GROUP}={group}"))
    except ApiError:  # no name of a label, or not for this user to see
        return ""
    return gathering(group, size_of(it["metadata"]["labels"] for it in pods), len(pods))


def surplus(pods: Iterable[Thing]) -> list[str]:
    """Of the pods that came to their group when it had started, why each never starts, a line each."""
    told = ((it, one) for it in pods for one in (it.get("status") or {}).get("conditions") or ())
    return [f"pod {it['metadata']['name']}: {one['message']}" for it, one in told if one.get("reason") == "GroupFull"]


async def any_of(client: Client, namespace: str, job: str) -> Found | None:
    if found := await sought(client, namespace, job):
        return found
    word, _, name = job.rpartition("/")
    for kind in (*BY_POD, BY_GROUP):
        if word in ("", kind.name.lower()) and (owner := await get(client, Ref(kind, name, namespace))):
            return await _whole(client, kind, owner)
    return None


async def _whole(client: Client, kind: Kind, owner: Thing) -> Found:
    meta = owner["metadata"]
    pods = {("Pod", it["metadata"]["name"]): it for it in await _pods(client, kind, owner)}
    left: dict[tuple[str, str], Thing] = dict(pods)  # those that are their own Workload
    found = []
    for it in await client.list(Selection(kinds.WORKLOADS, meta["namespace"])):
        owners = {(one["kind"], one["name"]) for one in it["metadata"].get("ownerReferences") or ()}
        if owners & (pods.keys() or {(kind.name, meta["name"])}):
            found.append(Found(it))
            left = {key: pod for key, pod in left.items() if key not in owners}
    found += [Found(it) for it in map(read, left.values()) if it]
    phases = {it.phase for it in found}
    status = {"phase": "Pending" if "Pending" in phases else "Running"}
    return Found(_written(kind, owner) | {"status": status}, tuple(found))


def _written(kind: Kind, owner: Thing) -> Thing:
    """An owner as the Workload that it is for its user, without a status."""
    meta = owner["metadata"]
    ref = {"apiVersion": kind.group_version, "kind": kind.name, "name": meta["name"], "uid": meta["uid"]}
    queue = (meta.get("labels") or {}).get("fairway.dev/queue", "default")
    about = {key: meta[key] for key in ("name", "namespace", "uid", "creationTimestamp")} | {"ownerReferences": [ref]}
    return {"metadata": about, "spec": {"queue": queue}}


async def parked(client: Client, namespace: str, filter: Filter) -> list[tuple[msgspec.Raw, Listed]]:
    """Those that a filter takes of what was scaled to zero for being idle, as Workloads: it has none meanwhile."""
    found = []
    for kind in BY_POD:
        items = await allowed(client.list(Selection(kind, namespace)), or_absent=True)
        found += [_parked(kind, it) for it in items or () if _is_parked(kind, it)]
    return filter.made(found, client.clock.now())


def _is_parked(kind: Kind, owner: Thing) -> bool:
    """Also a user may have scaled it up again, and others stop Notebooks: they note when."""
    note = (owner["metadata"].get("annotations") or {}).get(_mark(kind), "")
    return (note == "true" if kind is NOTEBOOK else bool(note)) and not owner["spec"].get("replicas")


def _parked(kind: Kind, owner: Thing) -> Thing:
    """Nothing tells since when it is parked."""
    made, template = _written(kind, owner), owner["spec"]["template"]
    del made["metadata"]["creationTimestamp"]
    made["spec"]["podSets"] = [{"template": template}]
    return made | {"status": {"phase": "Parked", "message": f"`fairway resume {owner['metadata']['name']}` wakes it"}}


def _mark(kind: Kind) -> str:
    """The annotation of what is parked by its number of replicas."""
    return STOPPED if kind.name == NOTEBOOK.name else PARKED


async def _pods(client: Client, kind: Kind, owner: Thing) -> list[Thing]:
    """Those that an owner's controller made; none where its Workloads are its own."""
    meta, spec = owner["metadata"], owner.get("spec") or {}
    if kind is BY_GROUP:
        return []
    labels = (spec.get("selector") or {}).get("matchLabels") or {"notebook-name": meta["name"]}
    chosen = ",".join(f"{key}={value}" for key, value in labels.items())
    return await client.list(Selection(kinds.PODS, meta["namespace"], labels=chosen))


def changeable(found: Found) -> Found:
    """Refuses what no annotation of the owner reaches."""
    for owner in found.owners if found.replicas else ():
        if owner.kind.name != BY_GROUP.name:
            where = f"{owner.kind.name.lower()}/{owner.name}"
            is_notebook = owner.kind.name == NOTEBOOK.name
            stop = f"annotate {where} {STOPPED}=now" if is_notebook else f"scale {where} --replicas 0"
            raise Problem(
                f"{found.name} is a {owner.kind.name}, whose pods come again: `kubectl {stop}` stops them; change its "
                "own labels and annotations with kubectl", exit_code=1)  # fmt: skip
    return found


async def follows(client: Client, found: Found) -> None:
    """Refuses a pod whose owner would start another in its stead."""
    for pod in found.owners:
        if pod.kind == kinds.PODS and (whose := _controller(await get(client, pod))):
            more = _controller(await get(client, whose)) or whose
            where = f"{more.kind.name.lower()}/{more.name}"
            raise Problem(
                f"{found.name} is a pod of the {more.kind.name} {more.name}, and comes again: "
                f"`kubectl scale {where} --replicas N` leaves fewer", exit_code=1)  # fmt: skip


def _controller(thing: Thing | None) -> Ref | None:
    """What made an object and makes it again."""
    meta = (thing or {}).get("metadata") or {}
    above = [it for it in meta.get("ownerReferences") or () if it.get("controller")]
    kind = above and Kind(above[0]["kind"], f"{above[0]['kind'].lower()}s", above[0]["apiVersion"])
    return Ref(kind, above[0]["name"], meta["namespace"]) if kind else None


async def woken(client: Client, found: Found) -> bool:
    """Gives what was parked by its number of replicas that number back; whether it was."""
    for owner in found.owners if not found.replicas else ():
        if owner.kind.name in {it.name for it in BY_POD}:
            notes = (await client.get(owner))["metadata"].get("annotations") or {}
            if (name := _mark(owner.kind)) in notes:
                spec = {"spec": {"replicas": int(notes[name])}} if name == PARKED else {}
                await client.patch(owner, {"metadata": {"annotations": {name: None}}, **spec})
                return True
    return False


def deletable(found: Found) -> Found:
    """Refuses to delete all groups of a LeaderWorkerSet by the name of one."""
    for owner in found.owners if not found.replicas else ():
        if owner.kind.name == BY_GROUP.name:
            less = f"`kubectl scale leaderworkerset/{owner.name} --replicas N` leaves fewer"
            raise Problem(
                f"{found.ref.name} is one group of the LeaderWorkerSet {owner.name}, and comes again; {less}, "
                f"`fairway cancel leaderworkerset/{owner.name}` deletes all", exit_code=1)  # fmt: skip
    return found


async def print_replicas(client: Client, found: Found) -> None:
    """A line for what it is, and one for each of its workloads."""
    items = [msgspec.convert(it.workload, Listed) for it in found.replicas]
    running = sum(it.state == "running" for it in items)
    click.echo("\n".join(_line(found, running)) + "\n")
    print_rows(items, await Sight.of(client, items), space=found.ref.namespace)


def _line(found: Found, running: int) -> Iterator[str]:
    (owner,) = found.owners
    each = "group" if owner.kind.name == BY_GROUP.name else "pod"
    yield f"{owner.kind.name} {found.ref.namespace}/{owner.name}: each {each} is a workload; {running} of "\
          f"{len(found.replicas)} run"
