"""Workloads that were cancelled: the events that they leave, as `ls` shows them.

A cluster keeps events for as long as it is set to, mostly an hour; this machine's cluster keeps these for a day.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from fairway.api.cancelled import Record
from fairway.api.names import called
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Ref

from .connect import allowed
from .listing import CANCELLED, Listed
from .output import clock_time
from .rows import Filter

Thing = dict[str, Any]


async def cancelled(client: Client, namespace: str, filter: Filter) -> list[tuple[msgspec.Raw, Listed]]:
    """Those that a filter takes, as Workloads; none where the user may not read events."""
    return filter.made(map(_workload, await _events(client, namespace)), client.clock.now())


async def unknown(client: Client, namespace: str, job: str) -> str:
    """What to say of a name by which no workload goes: that the last one of that name was cancelled, or that its
    namespace is closed to who asks, else that there is none."""
    for it in reversed(await _events(client, namespace)):
        if job in _called(it):
            at = clock_time(it.last_timestamp, client.clock.now())
            return f"{job} was {it.message}, at {at}; `fairway logs {job}` prints what is kept of it"
    try:
        await client.find(Ref(kinds.WORKLOADS, "any", namespace))
    except ApiError as error:
        if error.status == 403:
            return f"you may not read the workloads of namespace {namespace!r}"
    return f"no workload {job!r} in namespace {namespace!r}; `fairway ls --all` lists those there are"


async def gone(client: Client, namespace: str) -> set[str]:
    """What the cancelled workloads of a namespace were called, each with the namespace before it."""
    return {f"{namespace}/{name}" for it in await _events(client, namespace) for name in _called(it)}


def _called(it: Record) -> set[str]:
    return called(it.involved_object.name, [it.owner] if it.owner[1] else [])


async def _events(client: Client, namespace: str) -> list[Record]:
    found = list[Record]()
    for it in await allowed(client.list(replace(kinds.RECORDS, namespace=namespace), msgspec.Raw)) or ():
        with suppress(msgspec.ValidationError):
            found.append(msgspec.json.decode(it, type=Record))
    return sorted(found, key=lambda it: it.last_timestamp or "")


def _workload(left: Record) -> Thing:
    (kind, owner), notes = left.owner, left.metadata.annotations
    meta = {"name": left.name, "namespace": left.metadata.namespace, "uid": left.involved_object.uid}
    ended = {"type": "Finished", "status": "True", "lastTransitionTime": left.last_timestamp}
    return {
        "apiVersion": kinds.FAIRWAY, "kind": "Workload",
        "metadata": meta | ({"ownerReferences": [{"kind": kind, "name": owner}]} if owner else {}),
        "spec": {"queue": notes.queue, "user": notes.user},
        "status": {"phase": CANCELLED, "message": left.message, "conditions": [ended]},
    }  # fmt: skip
