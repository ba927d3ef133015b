"""From what the user calls a JOB to the objects behind it.

JOB is the name of a Workload or of its owner. Two workloads of one name (a Job and a Deployment, say) are ambiguous:
the error names them, and the Workload's own name always works.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Kind, Ref, Selection

from .main import Problem

OWNERS = {kind.name: kind for kind in (kinds.JOBS, kinds.PODS)}


@dataclass(frozen=True, slots=True)
class Found:
    """A Workload object and the name of its owner (its own where it has none)."""

    workload: dict[str, Any]

    @property
    def owner(self) -> dict[str, Any] | None:
        return next(iter(self.workload["metadata"].get("ownerReferences") or ()), None)

    @property
    def name(self) -> str:
        return str(self.owner["name"] if self.owner else self.workload["metadata"]["name"])

    @property
    def ref(self) -> Ref:
        meta = self.workload["metadata"]
        return Ref(kinds.WORKLOADS, meta["name"], meta["namespace"])

    @property
    def owner_ref(self) -> Ref:
        """The object that the user made; a Workload without an owner is its own."""
        if self.owner is None:
            return self.ref
        kind = OWNERS.get(self.owner["kind"]) or _kind(self.owner)
        return Ref(kind, self.owner["name"], self.ref.namespace)

    @property
    def pod_selection(self) -> Selection:
        label = "batch.kubernetes.io/job-name" if self.owner and self.owner["kind"] == "Job" else "fairway.dev/group"
        return Selection(kinds.PODS, self.ref.namespace, labels=f"{label}={self.name}")


def _kind(owner: dict[str, Any]) -> Kind:
    return Kind(owner["kind"], owner["kind"].lower() + "s", owner["apiVersion"])


async def workloads(client: Client, namespace: str, queue: str = "") -> list[dict[str, Any]]:
    """Of one namespace ("" = all), oldest first."""
    found = await client.list(Selection(kinds.WORKLOADS, namespace))
    chosen = [it for it in found if not queue or it["spec"].get("queue") == queue]
    return sorted(chosen, key=lambda it: (it["metadata"]["creationTimestamp"], it["metadata"]["name"]))


async def find(client: Client, namespace: str, job: str) -> Found:
    """The workload that `job` names in `namespace`."""
    everything = [Found(it) for it in await workloads(client, namespace)]
    named = [it for it in everything if it.ref.name == job] or [it for it in everything if it.name == job]
    if not named:
        raise Problem(f"no workload {job!r} in namespace {namespace!r}; `fairway ls -A` lists all", exit_code=1)
    if len(named) > 1:
        names = ", ".join(it.ref.name for it in named)
        raise Problem(f"{job!r} is the name of several workloads: {names}; use one of these names")
    return named[0]


async def pods_of(client: Client, found: Found) -> list[dict[str, Any]]:
    """The pods there are, by rank (completion index, else name)."""
    if found.owner and found.owner["kind"] == "Pod":
        pods = [it for it in await client.list(Selection(kinds.PODS, found.ref.namespace))
                if it["metadata"]["name"] == found.name]  # fmt: skip
    else:
        pods = await client.list(found.pod_selection)
    return sorted(pods, key=_rank)


def _rank(pod: dict[str, Any]) -> tuple[int, str, str]:
    meta = pod["metadata"]
    index = (meta.get("annotations") or {}).get("batch.kubernetes.io/job-completion-index", "0")
    return int(index), meta["creationTimestamp"], meta["name"]


async def seen(client: Client, selection: Selection) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """What is there (as ADDED), then each change as it comes; for a few objects, without an end. A watch that was cut
    begins anew with what is there then."""
    while True:
        version = ""
        async for page in client.pages(selection):
            version = page.metadata.version
            for item in page.items or ():
                yield "ADDED", msgspec.json.decode(item)
        try:
            async with aclosing(client.watch(selection, version)) as events:
                async for event in events:
                    if event.type != "BOOKMARK":
                        yield event.type, msgspec.json.decode(event.object)
        except (ApiError, OSError) as error:
            if isinstance(error, ApiError) and error.status != 410:
                raise
