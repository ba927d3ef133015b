"""Bare pods that are their own Workload, as commands see them: read off the pods that name a queue.

What reads them is imported only where there are such pods.
"""

from collections.abc import Container
from typing import Any

import msgspec

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import FAIRWAY, Ref, Selection

Thing = dict[str, Any]
Key = tuple[str, str]


def pods(namespace: str) -> Selection:
    """The pods that may be: those that name a queue, and are no Job's."""
    return Selection(kinds.PODS, namespace, labels="fairway.dev/queue,!batch.kubernetes.io/job-name")


async def alone(client: Client, namespace: str, known: Container[Key]) -> list[Thing]:
    """The Workloads that pods stand for, but those that are known; none where the user may not see pods."""
    try:
        found = [read(pod) for pod in await client.list(pods(namespace))]
    except ApiError as error:
        if error.status != 403:
            raise
        return []
    return [it for it in found if it and key_of(it) not in known]


async def of_pod(client: Client, pod: Ref) -> Thing | None:
    """The Workload that a pod of this name stands for."""
    try:
        return read(await client.get(pod))
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        return None


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
    from fairway.api.quantities import Malformed

    try:
        made = workload_of_pod(decode(cleaned(pod), PodObject))
    except Malformed:
        return None
    if made is None:
        return None
    found: Thing = {"apiVersion": FAIRWAY, "kind": "Workload", **msgspec.to_builtins(made)}
    found["metadata"].pop("finalizers", None)
    found.setdefault("status", {}).setdefault("phase", "Pending")
    found["spec"]["podSets"] = [{"name": "main", "count": 1} | it for it in found["spec"]["podSets"]]  # defaults
    return found


def key_of(workload: Thing) -> Key:
    return workload["metadata"].get("namespace", ""), workload["metadata"]["name"]
