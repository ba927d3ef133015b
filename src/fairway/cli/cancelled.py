"""Workloads that were cancelled: the events that they leave, as `ls` shows them.

A cluster keeps events for as long as it is set to, mostly an hour; this machine's cluster keeps these for a day.
"""

from dataclasses import replace
from typing import Any

import msgspec

from fairway.api.names import called
from fairway.kube import kinds
from fairway.kube.client import Client

from .connect import unseen
from .listing import CANCELLED, Listed
from .output import clock_time
from .rows import Filter

Thing = dict[str, Any]


async def cancelled(client: Client, namespace: str, filter: Filter) -> list[tuple[msgspec.Raw, Listed]]:
    """Those that a filter takes, as Workloads; none where the user may not read events."""
    found = [_workload(it) for it in await _events(client, namespace)]
    both = [(msgspec.Raw(msgspec.json.encode(it)), msgspec.convert(it, Listed)) for it in found]
    return [it for it in both if filter.takes(it[1], client.clock.now())]


async def unknown(client: Client, namespace: str, job: str) -> str:
    """What to say of a name by which no workload goes: that the last one of that name was cancelled, else that there
    is none."""
    for it in reversed(await _events(client, namespace)):
        about = it["involvedObject"]
        kind, _, owner = (it["metadata"].get("annotations") or {}).get("fairway.dev/owner", "").partition("/")
        if job in called(about.get("name", ""), [(kind, owner)] if owner else []):
            at = clock_time(it["lastTimestamp"], client.clock.now())
            return f"{job} was {it['message']}, at {at}; `fairway logs {job}` prints what is kept of it"
    return f"no workload {job!r} in namespace {namespace!r}; `fairway ls --all` lists those there are"


async def _events(client: Client, namespace: str) -> list[Thing]:
    with unseen():
        found = await client.list(replace(kinds.RECORDS, namespace=namespace))
        return sorted(found, key=lambda it: str(it["lastTimestamp"]))
    return []


def _workload(event: Thing) -> Thing:
    about, notes = event["involvedObject"], event["metadata"].get("annotations") or {}
    kind, _, owner = notes.get("fairway.dev/owner", "").partition("/")
    name = about.get("name") or f"({event['count']} workloads)"  # of very many at once some are told of together
    meta = {"name": name, "namespace": about["namespace"], "uid": about.get("uid", "")}
    ended = {"type": "Finished", "status": "True", "lastTransitionTime": event["lastTimestamp"]}
    return {
        "apiVersion": kinds.FAIRWAY, "kind": "Workload",
        "metadata": meta | ({"ownerReferences": [{"kind": kind, "name": owner}]} if owner else {}),
        "spec": {"queue": notes.get("fairway.dev/queue", ""), "user": notes.get("fairway.dev/user", "")},
        "status": {"phase": CANCELLED, "message": event["message"], "conditions": [ended]},
    }  # fmt: skip
