"""From what the user calls a JOB to the objects behind it.

JOB is the name of a Workload, of its owner, or of a group of bare pods. A name that two workloads go by (a Job and a
pod, say) is ambiguous: the error names them. `workload/NAME` names one always, `job/NAME` the Job.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec

from fairway.api.ends import end_message, exit_words
from fairway.api.indexes import failed_trials, rank_in
from fairway.api.names import called, name_of, plain_name
from fairway.kube import kinds, runs
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Kind, Ref, Selection

from .alone import of_pod
from .connect import allowed
from .main import Problem


@dataclass(frozen=True, slots=True)
class Found:
    """A Workload object, and what people call it: its owner's name, of a gang of bare pods the group's. `replicas`: the
    Workloads of an owner that has one for each replica; `workload` then only says whose they are."""

    workload: dict[str, Any]
    replicas: tuple["Found", ...] = ()

    @property
    def ref(self) -> Ref:
        meta = self.workload["metadata"]
        return Ref(kinds.WORKLOADS, meta["name"], meta["namespace"])

    @property
    def owners(self) -> list[Ref]:
        """The objects that the user made: one, the pods of a gang, or none."""
        owners = self.workload["metadata"].get("ownerReferences") or ()
        kinds_of = (Kind(it["kind"], it["kind"].lower() + "s", it["apiVersion"]) for it in owners)
        return [Ref(kind, it["name"], self.ref.namespace) for kind, it in zip(kinds_of, owners)]

    @property
    def name(self) -> str:
        return plain_name(self.ref.name, ((it.kind.name, it.name) for it in self.owners))

    @property
    def status(self) -> dict[str, Any]:
        return self.workload.get("status") or {}

    @property
    def phase(self) -> str:
        return str(self.status.get("phase", "Pending"))

    @property
    def is_over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


async def sought(client: Client, namespace: str, job: str) -> Found | None:
    """The workload that `job` names, if there is one; several are a Problem. One GET for each name it may have: a
    namespace may hold thousands. A Job that has no Workload yet counts as one that waits."""
    kind, _, own = job.rpartition("/")
    if not own:
        raise Problem(f"found {job!r}; the name of a workload is needed, as `fairway ls` lists it")
    names = [own, name_of("Job", own), name_of("Pod", own), *await _gang(client, namespace, own)]
    kept = {"": names, "workload": names[:1], "job": names[1:2], "pod": names[2:]}.get(kind, [name_of(kind, own)])
    gets = [await get(client, Ref(kinds.WORKLOADS, name, namespace)) for name in dict.fromkeys(kept)]
    if not (any(gets) or kind):
        gets = await _of_other_kinds(client, namespace, own)
    everything = [Found(it) for it in gets if it]
    named = [it for it in everything if job in called(it.ref.name, ((own.kind.name, own.name) for own in it.owners))]
    if len(named) > 1:
        which = " or ".join(f"workload/{it.ref.name}" for it in named)
        raise Problem(f"{job!r} is the name of several workloads; say {which}")
    if named:
        return named[0]
    made = await of_pod(client, Ref(kinds.PODS, own.removeprefix("pod-"), namespace)) if kind != "job" else None
    return Found(made) if made else await _new(client, namespace, own) if kind in ("", "job") else None


async def _of_other_kinds(client: Client, namespace: str, own: str) -> list[dict[str, Any] | None]:
    """The Workloads that owners of this name have, of the kinds that others define."""
    from fairway.api.owners import WORDS

    refs = [Ref(kinds.WORKLOADS, name_of(word, own), namespace) for word in WORDS]
    return await asyncio.gather(*(get(client, ref) for ref in refs))


async def get(client: Client, ref: Ref) -> dict[str, Any] | None:
    """The object; None where there is none, or where its reader may not see it."""
    return await allowed(client.get(ref), or_absent=True)


async def _gang(client: Client, namespace: str, pod: str) -> list[str]:
    """The name of the Workload of the group that a bare pod is in."""
    labels = ((await get(client, Ref(kinds.PODS, pod, namespace))) or {}).get("metadata", {}).get("labels") or {}
    return [name_of("Pod", labels["fairway.dev/group"])] if "fairway.dev/group" in labels else []


async def _new(client: Client, namespace: str, name: str) -> Found | None:
    """A managed Job whose Workload the controller has not made yet."""
    meta = ((await get(client, Ref(kinds.JOBS, name, namespace))) or {}).get("metadata", {})
    queue = (meta.get("labels") or {}).get("fairway.dev/queue")
    if not queue or meta.get("deletionTimestamp"):
        return None
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": meta["uid"], "controller": True}
    about = {"name": name_of("Job", name), "namespace": namespace, "creationTimestamp": meta["creationTimestamp"]}
    made = {"metadata": about | {"ownerReferences": [owner]}, "spec": {"queue": queue}, "status": {"phase": "Pending"}}
    return Found({"apiVersion": kinds.FAIRWAY, "kind": "Workload", **made})


def workload_of(owner: Ref) -> Ref:
    """Where the Workload of an owner is."""
    return Ref(kinds.WORKLOADS, name_of(owner.kind.name, owner.name), owner.namespace)


async def pods_of(client: Client, found: Found) -> list[tuple[int, dict[str, Any]]]:
    """The pods there are, each with its rank; of replicas numbered anew."""
    if found.replicas:
        each = [[pod for _, pod in await pods_of(client, one)] for one in found.replicas]
        return list(enumerate(pod for own in each for pod in own))
    return await runs.pods_of(client, found.ref, [(it.kind.name, it.name) for it in found.owners])


def failure(pods: Sequence[dict[str, Any]], reason: str = "") -> str:
    """How the first container that failed did: `exit code 1`, of several pods with the pod, of an array with the trials
    that failed; "" where none is known. `reason`: why the Job failed."""
    _, words, pod = min(_failures(pods), default=("", "", ""))
    if words and reason == "FailedIndexes":
        ends = [(rank_in(it["metadata"].get("annotations") or {}), it["status"].get("phase", "")) for it in pods]
        return f"{failed_trials(ends)}; the first with {words}"
    return f"{words} in pod {pod}" if words and len(pods) > 1 else words


def refusal(pods: Iterable[dict[str, Any]]) -> str:
    """Why the first container that cannot start cannot: `CreateContainerConfigError: …`; "" where none says so."""
    said = [pod.get("status") or {} for pod in pods]
    every = [one for it in said for key in ("initContainerStatuses", "containerStatuses") for one in it.get(key) or ()]
    waiting = [(one.get("state") or {}).get("waiting") or {} for one in every]
    return next((f"{it['reason']}: {it['message']}" for it in waiting if it.get("reason") and it.get("message")), "")


def _failures(pods: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """When each failed container ended, how in words, and its pod."""
    for pod in pods:
        said = pod.get("status") or {}
        for one in (*(said.get("initContainerStatuses") or ()), *(said.get("containerStatuses") or ())):
            end = (one.get("state") or {}).get("terminated") or (one.get("lastState") or {}).get("terminated") or {}
            if code := end.get("exitCode"):
                said = end_message(one["name"], end.get("message") or "")
                words = exit_words(int(code), end.get("reason") or "", said)
                yield end.get("finishedAt") or "", words, pod["metadata"]["name"]


async def seen(client: Client, selection: Selection) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
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
            if isinstance(error, ApiError) and not error.is_of_other_times:
                raise
