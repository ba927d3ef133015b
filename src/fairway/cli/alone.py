"""Bare pods that are their own Workload, as commands see them: read off the pods that name a queue.

What reads them is imported only where there are such pods.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from fairway.api import names
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import FAIRWAY, Ref, Selection

from .connect import allowed

Thing = dict[str, Any]
Key = tuple[str, str]


def pods(namespace: str) -> Selection:
    """The pods that may be: those that name a queue, and are no Job's."""
    return Selection(kinds.PODS, namespace, labels="fairway.dev/queue,!batch.kubernetes.io/job-name")


async def alone(client: Client, namespace: str, known: Container[Key]) -> list[Thing]:
    """The Workloads that pods stand for, but those that are known; none where the user may not see pods."""
    return [it for it in map(read, await bare(client, namespace)) if it and key_of(it) not in known]


async def bare(client: Client, namespace: str) -> list[Thing]:
    """The pods that may be; none where the user may not see pods."""
    return await allowed(client.list(pods(namespace))) or []


def gathering(found: Iterable[Thing]) -> Iterator[Thing]:
    """Groups of these pods that have no Workload yet since they are not whole, as one is written."""
    groups: defaultdict[Key, list[Thing]] = defaultdict(list)
    for pod in found:
        meta, group = pod["metadata"], pod["metadata"]["labels"].get("fairway.dev/group")
        if group and not pod["spec"].get("nodeName"):
            groups[meta["namespace"], group].append(pod)
    for (_, group), own in groups.items():
        if words := names.gathering(group, names.size_of(it["metadata"]["labels"] for it in own), len(own)):
            yield from _gang(group, own, words)


def _gang(group: str, own: list[Thing], words: str) -> Iterator[Thing]:
    """Pods of a group as what is queued when all of them are there; nothing of pods that cannot be read."""
    from fairway.api.decode import cleaned, decode
    from fairway.api.objects import PodObject
    from fairway.api.owners import pod_group
    from fairway.api.scalars import Malformed

    with suppress(Malformed):
        made = pod_group(group, [decode(cleaned(pod), PodObject) for pod in own], len(own))
        status = {"phase": "Pending", "reason": "GroupIncomplete", "message": words}
        yield _written(made) | {"status": status}


async def of_pod(client: Client, pod: Ref) -> Thing | None:
    """The Workload that a pod of this name stands for."""
    found = await allowed(client.get(pod), or_absent=True)
    return found and read(found)


async def get(client: Client, workload: Ref) -> Thing:
    """A Workload, or what a pod stands for; ApiError 404 where there is neither."""
    try:
        return await client.get(workload)
    except ApiError as error:
        pod = Ref(kinds.PODS, workload.name.removeprefix("pod-"), workload.namespace)
        if error.status != 404 or not (made := await of_pod(client, pod)):
            raise
        return made


def read(pod: Thing) -> Thing | None:
    """What a pod stands for, as a Workload is written; None where it has, or is to have, one of its own."""
    if "fairway.dev/queue" not in (pod["metadata"].get("labels") or {}):
        return None
    from fairway.api.alone import workload_of_pod
    from fairway.api.decode import cleaned, decode
    from fairway.api.objects import PodObject
    from fairway.api.scalars import Malformed

    try:
        made = workload_of_pod(decode(cleaned(pod), PodObject))
    except Malformed:
        return None
    if made is None:
        return None
    found = _written(made)
    found["metadata"].pop("finalizers", None)
    found.setdefault("status", {}).setdefault("phase", "Pending")
    return found


def _written(made: Any) -> Thing:
    found: Thing = {"apiVersion": FAIRWAY, "kind": "Workload", **msgspec.to_builtins(made)}
    found["spec"]["podSets"] = [{"name": "main", "count": 1} | it for it in found["spec"]["podSets"]]  # defaults
    return found


def key_of(workload: Thing) -> Key:
    return workload["metadata"].get("namespace", ""), workload["metadata"]["name"]
