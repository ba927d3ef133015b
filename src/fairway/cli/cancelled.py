"""Workloads that were cancelled: the events that they leave, as `ls` shows them.

A cluster keeps events for as long as it is set to, mostly an hour; this machine's cluster keeps these for a day.
"""

from typing import Any

import msgspec

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Selection

from .listing import CANCELLED, Listed
from .rows import Filter

Thing = dict[str, Any]
OF_WORKLOADS = f"reason={CANCELLED},involvedObject.kind=Workload"


async def cancelled(client: Client, namespace: str, filter: Filter) -> list[tuple[msgspec.Raw, Listed]]:
    """Those that a filter takes, as Workloads; none where the user may not read events."""
    try:
        events = await client.list(Selection(kinds.EVENTS, namespace, fields=OF_WORKLOADS))
    except ApiError as error:
        if error.status != 403:
            raise
        return []
    found = [_workload(it) for it in events]
    both = [(msgspec.Raw(msgspec.json.encode(it)), msgspec.convert(it, Listed)) for it in found]
    return [it for it in both if filter.takes(it[1], client.clock.now())]


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
