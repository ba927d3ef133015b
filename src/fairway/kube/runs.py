"""The runs of a workload's programs, and their text, as the server keeps them; else of one pod, as any server has it.

The cluster of this machine keeps the runs of all attempts. Any other cluster has those of the pods that are there: of
each container the last run and the one before.
"""

from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import msgspec

from fairway.api.indexes import rank_in
from fairway.api.names import ranks

from . import kinds
from .client import ApiError, Client
from .kinds import Ref, Selection
from .transport import Request

Thing = dict[str, Any]
DEFAULT = "kubectl.kubernetes.io/default-container"
TEXT, PLACED, HEAD_BYTES = 0, 2, 5
EVICTIONS = frozenset((
    "Preempted", "Reclaimed", "Consolidated", "HoldTaken", "Reserved", "Drained", "NodeLost", "PodsLost",
    "StartTimeout", "RoomTaken", "Suspended",
))  # fmt: skip
PAUSE_ENDED, LOST = "PauseEnded", "ContainerStatusUnknown"
ENDINGS = {
    "Deleted": "deleted", "NodeShutdown": "the cluster was stopped", LOST: "lost",
    "OnDisk": "paused on disk", "NotWoken": "did not wake from a pause", PAUSE_ENDED: "stopped while paused",
}  # fmt: skip


class Run(msgspec.Struct, frozen=True, rename="camel"):
    """One process of one container. `id` is empty where the server keeps no runs; `is_previous`: as for kubectl."""

    attempt: int
    retry: int
    rank: int
    pod: str
    container: str
    is_default: bool
    id: str = ""
    node: str = ""
    started: str | None = None
    finished: str | None = None
    exit_code: int | None = None
    reason: str = ""
    bytes: int | None = None
    is_previous: bool = False

    @property
    def key(self) -> tuple[str, str, int]:
        """A restored cluster gives an `id` a second time."""
        return self.pod, f"{self.id} {self.started}" if self.id else self.container, self.retry

    @property
    def ending(self) -> str:
        """How it ended, in words; empty while it runs."""
        if self.exit_code is None:
            return ""
        if self.reason in EVICTIONS:
            return f"evicted: {self.reason}"
        return ENDINGS.get(self.reason) or f"exit code {self.exit_code}" + (f" ({self.reason})" * bool(self.reason))


@dataclass(frozen=True, slots=True)
class Runs:
    """By attempt, rank and retry. `are_kept`: whether the server keeps those of earlier attempts."""

    workload: Ref
    items: list[Run]
    is_deleted: bool = False
    are_kept: bool = True


@dataclass(slots=True)
class Place:
    """How far the text of a run was read, in the server's words; empty: nothing yet."""

    after: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """What the server says about the text at this place."""

    text: str


class _List(msgspec.Struct, rename="camel"):
    items: list[Run]
    is_deleted: bool


async def kept(client: Client, workload: Ref) -> Runs | None:
    """The runs that the server keeps; None where it keeps none, or knows no such workload: Kubernetes answers a path of
    a custom resource that it does not serve as if the resource were not there, or were forbidden."""
    try:
        body = await client.call(Request("GET", workload.path("attempts")))
    except ApiError as error:
        if error.status in (403, 404):
            return None
        raise
    found = msgspec.json.decode(body, type=_List)
    return Runs(workload, found.items, found.is_deleted)


async def pods_of(client: Client, workload: Ref, owners: Collection[tuple[str, str]]) -> list[tuple[int, Thing]]:
    """The pods there are of a workload with these owners (kind, name), each with its rank: completion index, what its
    name means in a group, or place by age. Those of an owner that others define are known by what is written on them
    when they are bound."""
    jobs, own = ({name for kind, name in owners if kind == one} for one in ("Job", "Pod"))
    labels = f"batch.kubernetes.io/job-name={min(jobs)}" if jobs else ""
    pods = await client.list(Selection(kinds.PODS, workload.namespace, labels=labels))
    ours = [it for it in pods if jobs or (it["metadata"]["name"] in own if own else _is_of(it, workload))]
    ours.sort(key=lambda it: (it["metadata"]["creationTimestamp"], it["metadata"]["name"]))
    sizes = [(it["metadata"].get("labels") or {}).get("fairway.dev/group-size", "") for it in ours]
    named = ranks(own, max(sizes, default="")) or {it["metadata"]["name"]: at for at, it in enumerate(ours)}
    told = [rank_in(it["metadata"].get("annotations") or {}) if jobs or own else "" for it in ours]
    numbered = (int(rank or named[it["metadata"]["name"]]) for rank, it in zip(told, ours))
    return sorted(zip(numbered, ours), key=itemgetter(0))


def _is_of(pod: Thing, workload: Ref) -> bool:
    attempt = (pod["metadata"].get("annotations") or {}).get("fairway.dev/attempt", "")
    return bool(attempt.startswith(f"{workload.name}/"))


def runs_in(pod: Thing, rank: int, attempt: int) -> list[Run]:
    """Of the containers of a pod, as its status tells."""
    status, found = pod.get("status") or {}, []
    for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        found += _of_container(pod, one, rank, attempt)
    return found


def _of_container(pod: Thing, status: Thing, rank: int, attempt: int) -> list[Run]:
    meta, spec, count = pod["metadata"], pod["spec"], int(status.get("restartCount") or 0)
    default = (meta.get("annotations") or {}).get(DEFAULT) or spec["containers"][0]["name"]
    states = [(count - 1, status.get("lastState") or {})] * (count > 0) + [(count, status.get("state") or {})]
    runs = []
    for retry, state in states:
        end, began = state.get("terminated") or {}, state.get("terminated") or state.get("running")
        if began:
            reason = end.get("reason") or ""
            runs.append(Run(
                attempt, retry, rank, meta["name"], status["name"], status["name"] == default,
                node=spec.get("nodeName", ""), started=began.get("startedAt"), finished=end.get("finishedAt"),
                exit_code=end.get("exitCode"), reason="" if reason in ("Error", "Completed") else reason,
                is_previous=retry < count,
            ))  # fmt: skip
    return runs


async def text_of(
    client: Client, workload: Ref, run: Run, query: tuple[tuple[str, str], ...] = (), place: Place | None = None
) -> AsyncGenerator[bytes | Notice, None]:
    """What a run wrote, as it comes, with what is said about it; `query` as for the log of a pod. From `place` on,
    which then tells how far it was read, if the server keeps runs; an ApiError, 404, if it does not keep this one."""
    if run.id:
        place = place or Place()
        asked = (*query, ("run", run.id), ("started", run.started or ""), ("frames", "true"), ("after", place.after))
        async for piece in _unframed(client.logs(workload, query=asked), place):
            yield piece
        return
    previous = (("previous", "true"),) * run.is_previous
    async for chunk in client.logs(
        Ref(kinds.PODS, run.pod, workload.namespace), query=(*query, ("container", run.container), *previous)
    ):
        yield chunk


async def _unframed(chunks: AsyncGenerator[bytes, None], place: Place) -> AsyncGenerator[bytes | Notice, None]:
    held = bytearray()
    async for chunk in chunks:
        held += chunk
        while len(held) >= HEAD_BYTES and len(held) >= (end := HEAD_BYTES + int.from_bytes(held[1:HEAD_BYTES], "big")):
            kind, content = held[0], bytes(held[HEAD_BYTES:end])
            del held[:end]
            if kind == PLACED:
                after, _, content = content.partition(b"\n")
                place.after = after.decode()
            yield content if kind in (TEXT, PLACED) else Notice(content.decode())
