"""The user's object behind a Workload, as controllers act on it: a Job, an owner that others define, or bare pods.

Each says what Workload it should have, whether it is over, and how it is stopped and started. A Job is suspended and
resumed: its own controller makes and removes its pods; so is every owner with a field for it. Pods of one without are
deleted, and wait as they come again: nothing but Fairway binds them. Bare pods cannot be stopped and kept: they are
deleted and made again, gated, under the same names, from the manifests that their Workload carries since it was made;
the labels and annotations in these follow what the user changes on the pods.
Pods that something else owns (a ReplicaSet) are deleted and left to it. All that is written here may be written twice.

Where no door saw a Job, its pods name another scheduler, which would bind them as they come. So such a Job is resumed
with Fairway's gate in its template; of a Job that runs the template does not change any more.
"""

import base64
import zlib
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from fairway.api import objects, owners
from fairway.api.admission import held_back
from fairway.api.conditions import pod_failure
from fairway.api.forms.form import Conditions, Form, Outcome
from fairway.api.names import gathering, size_of
from fairway.api.objects import JobObject, Metadata, PodObject, PodSpec
from fairway.api.pods import is_lost
from fairway.api.quantities import Malformed
from fairway.api.types import PodSetSpec, WorkloadObject
from fairway.kube import kinds
from fairway.kube.client import Client, unless_absent
from fairway.kube.events import About
from fairway.kube.kinds import Kind, Ref, Selection
from fairway.kube.turnstile import side_by_side

from .bind import holds_room, ref_of, remove, remove_one
from .status import holds

KEPT = [f"{owners.PREFIX}{name}" for name in owners.MIRRORED if name not in ("active", "paused")]
MARKS = (("labels", objects.QUEUE), *(("annotations", key) for key in KEPT))
"""Labels and annotations of bare pods that their user may change later, and that pods made again keep."""
Written = dict[str, Any] | None  # an owner as it is once it was stopped or started; None: nothing was written


def waits_for_fairway(spec: PodSpec) -> bool:
    """Whether no other scheduler binds pods like this."""
    return spec.scheduler_name == objects.SCHEDULER or any(gate.name == objects.GATE for gate in spec.scheduling_gates)


def of_count(held: PodSetSpec, count: int) -> PodSetSpec:
    """A podset that runs, with so many pods from now on. None of those that are new keeps the others from running."""
    least = held.count if held.min_count is None else held.min_count
    return held if count == held.count else replace(held, count=count, min_count=min(least, count))


@dataclass(frozen=True, slots=True)
class JobOwner:
    job: JobObject

    def desired(self) -> WorkloadObject | None:
        """The Workload it should have; None while there should be none."""
        return owners.workload_of(("batch/v1", "Job"), self.job.metadata, owners.job(self.job), self.deadline())

    def deadline(self) -> int | None:
        """The seconds after which Kubernetes ends it."""
        return self.job.spec.active_deadline_seconds

    def outcome(self) -> Outcome | None:
        """How it ended; None while it has not."""
        return Conditions(self.job.status.conditions).outcome("Complete")

    def is_done(self, pods: Iterable[PodObject]) -> bool:
        """Whether as many of its pods have succeeded as are to, and none runs: its own controller says so a second
        later."""
        pods, wanted = list(pods), self.job.spec.completions
        succeeded = (it.metadata for it in pods if it.status.phase == "Succeeded")
        done = {meta.annotations.get(objects.INDEX, meta.name) for meta in succeeded}
        return wanted is not None and 0 < wanted <= len(done) and not any(map(holds_room, pods))

    def is_ending(self) -> bool:
        """Whether its own controller has decided how it ends, and has yet to write it."""
        decided = ("SuccessCriteriaMet", "FailureTarget")
        return any(one.type in decided and one.status == "True" for one in self.job.status.conditions)

    async def conclude(self, client: Client) -> None:
        """Lets a Job that is ending end: no Job that is over may be written without its start, and a suspended one has
        none. It makes no more pods."""
        await self._set(client, {"suspend": False} if self.job.spec.suspend else {})

    def is_array(self) -> bool:
        """Whether its pods are trials, each by itself: more than run at once, or one at a time will do."""
        spec, least = self.job.spec, self.job.metadata.annotations.get("fairway.dev/min-count")
        return (spec.completions or 0) > (1 if least == "1" else spec.parallelism)

    def found_by(self) -> Iterable[str]:
        """Labels of its pods among which its user chose those by which it finds them, and takes in what nobody owns."""
        return self.job.spec.template.metadata.labels if self.job.spec.manual_selector else ()

    def wanted(self) -> int:
        """Pods it has, or is about to have, when it runs."""
        return owners.job(self.job)[0].count

    def resized(self, podsets: Sequence[PodSetSpec], placed: int) -> tuple[PodSetSpec, ...]:
        """The podset that runs on so many places, as `parallelism` has it now. No pod that it is to have more keeps the
        others from running. What has succeeded makes it smaller only where its pods are trials: the room of a trial
        that is over is free once no other trial needs it."""
        (held,), wanted = podsets, self.wanted()
        count = max(min(held.count, self.job.spec.parallelism), wanted)
        if self.is_array() and 0 < wanted < placed:
            count = wanted
        return (of_count(held, count),)

    def is_off(self) -> bool:
        """Whether its own controller keeps it from making pods."""
        return self.job.spec.suspend

    def is_stopped(self) -> bool:
        """No more pods will come of it."""
        return self.job.spec.suspend and not self.job.status.active

    def about(self) -> About:
        meta = self.job.metadata
        return About(kinds.JOBS, meta.name, meta.uid, meta.namespace)

    def version(self) -> int:
        return int(self.job.metadata.resource_version)

    async def stop(self, client: Client) -> Written:
        return await self._set(client, {} if self.job.spec.suspend else {"suspend": True})

    async def start(self, client: Client) -> Written:
        """Resumes it, unless its own controller still stops it: the API server lets no template change meanwhile."""
        is_due = self.job.spec.suspend and self._is_at_rest()
        return await self._set(client, {"suspend": False, **self._gated()} if is_due else {})

    def _is_at_rest(self) -> bool:
        """Whether it was made suspended, or its own controller says that it is."""
        is_told = any(one.type == "Suspended" and one.status == "True" for one in self.job.status.conditions)
        is_new = not self.job.status.start_time and self.job.metadata.generation <= 1
        return not self.job.status.active and (is_told or is_new)

    def _gated(self) -> dict[str, object]:
        if waits_for_fairway(self.job.spec.template.spec):
            return {}
        gates = [{"name": one.name} for one in self.job.spec.template.spec.scheduling_gates]
        return {"template": {"spec": {"schedulingGates": [*gates, {"name": objects.GATE}]}}}

    async def fail(self, client: Client) -> None:
        """It ends for good, by a deadline that is over: its own controller stops the pods and marks it Failed. While
        it is suspended no deadline counts; resumed with this one, it makes no pod."""
        await self._set(client, {"suspend": False, "activeDeadlineSeconds": 0})

    async def _set(self, client: Client, spec: dict[str, object]) -> Written:
        meta = self.job.metadata
        ref = Ref(kinds.JOBS, meta.name, meta.namespace)
        return await client.patch(ref, {"metadata": {"uid": meta.uid}, "spec": spec}) if spec else None


@dataclass(frozen=True, slots=True)
class KindOwner:
    """An object of a kind in the table of owners. `key`: its group and kind; `source`: what has its podsets, where that
    is another object; `pods`: those there are; `replica`: its number, where each is a workload."""

    key: tuple[str, str]
    kind: Kind
    said: Form
    source: Form | None
    pods: tuple[PodObject, ...]
    replica: str = ""

    @property
    def row(self) -> owners.Ownership:
        return owners.OWNERS[self.key]

    def desired(self) -> WorkloadObject | None:
        """None while nothing says what pods it is to have."""
        podsets = (self.source or self.said).podsets()
        if not podsets:
            return None
        made = self.row.made(self.key[1], self.said, podsets)
        name = f"{made.metadata.name}-{self.replica}" if self.replica else made.metadata.name
        return replace(made, metadata=replace(made.metadata, name=name))

    def deadline(self) -> int | None:
        """That of its operator, if it knows one, is not read."""
        return None

    def outcome(self) -> Outcome | None:
        return self.said.outcome()

    def wanted(self) -> int:
        """Those that are done are not made again."""
        asked = 0
        with suppress(Malformed):  # changed while it runs; why it gets no Workload like that is told elsewhere
            asked = sum(one.count for one in (self.source or self.said).podsets())
        return max(0, asked - sum(pod.status.phase == "Succeeded" for pod in self.pods))

    def is_off(self) -> bool:
        return self.row.switch is not None and self.row.switch.is_off(self.said)

    def resized(self, podsets: Sequence[PodSetSpec], placed: int) -> tuple[PodSetSpec, ...]:
        """Its podsets as it counts them now, where its operator follows that while it runs."""
        asked: tuple[PodSetSpec, ...] = ()
        with suppress(Malformed):
            asked = self.said.podsets() if self.row.is_resized else ()
        counts = {one.name: one.count for one in asked}
        return tuple(of_count(one, counts.get(one.name, one.count)) for one in podsets)

    def is_stopped(self) -> bool:
        """What comes of it yet finds no place, since none is bound that was not admitted."""
        return (self.row.switch is None or self.is_off()) and not any(map(holds_room, self.pods))

    def about(self) -> About:
        meta = self.said.metadata
        return About(self.kind, meta.name, meta.uid, meta.namespace)

    def version(self) -> int:
        return int(self.said.metadata.resource_version)

    async def stop(self, client: Client) -> Written:
        if self.row.switch is None:
            await remove(client, [pod for pod in self.pods if holds_room(pod)])
        return await self._set(client, off=True)

    async def start(self, client: Client) -> Written:
        if self.is_off():
            await self._hold_back(client)
        elif self.row.opens and not self.pods:
            await self._open(client)
        return await self._set(client, off=False)

    async def _hold_back(self, client: Client) -> None:
        """Where no door saw what has its templates, it gets Fairway's gates before it is resumed."""
        holder, key = (self.source, self.row.source) if self.source and self.row.source else (self.said, self.key)
        if all(waits_for_fairway(one.template.spec) for one in holder.podsets()):
            return
        row, meta = owners.OWNERS[key], holder.metadata
        kind = self.kind if key == self.key else Kind(key[1], row.plural, row.versions[0])
        where = Ref(kind, meta.name, meta.namespace)
        seen = await client.get(where)
        if (made := held_back(seen, key)) != seen:
            await client.update(where, made)

    async def _open(self, client: Client) -> None:
        """Its operator makes pods when the scheduler of its own has let the object of its name in; here that is us."""
        group_version, _, plural = self.row.opens.rpartition("/")
        meta = self.said.metadata
        where = Ref(Kind(plural, plural, group_version), f"{meta.name}-{meta.uid}", meta.namespace)
        await unless_absent(client.patch(where, {"status": {"phase": "Inqueue"}}))  # it comes: its owner changes then

    async def fail(self, client: Client) -> None:
        """It ends by a deadline that is over, where its operator knows one: none of the pods that it may make meanwhile
        is bound. Else it stays stopped."""
        switch, meta = self.row.switch, self.said.metadata
        if switch is None or switch.over is None:
            await self.stop(client)
        elif not switch.is_over(self.said):
            if switch.is_off(self.said):
                await self._hold_back(client)
            change = {"metadata": {"uid": meta.uid}, **switch.end()}
            await client.patch(Ref(self.kind, meta.name, meta.namespace), change)

    async def _set(self, client: Client, *, off: bool) -> Written:
        switch, meta = self.row.switch, self.said.metadata
        if switch is None or switch.is_off(self.said) == off:
            return None
        change = {"metadata": {"uid": meta.uid}, **switch.patch(off=off)}
        return await client.patch(Ref(self.kind, meta.name, meta.namespace), change)


@dataclass(frozen=True, slots=True)
class PodsOwner:
    """One bare pod, or all of a group. `pods` are those there are, at least one; `least`: how many are enough, where an
    object says so for them, 0 while that is not there; `members`: how many there are again, when some were lost or
    taken away; `is_remade`: nobody else would make them again. A Workload of such pods is owned by none while they are
    made again, or it would be collected with the old ones."""

    namespace: str
    name: str
    pods: tuple[PodObject, ...]
    least: int | None = None
    members: int = 0

    @property
    def is_remade(self) -> bool:
        return not any(pod.metadata.owner_references for pod in self.pods)

    def desired(self) -> WorkloadObject | None:
        first = self.pods[0]
        if not owners.group_of(first.metadata, first.spec):
            return owners.pod(first)
        return None if self.least == 0 else owners.pod_group(self.name, self.pods, self.least)

    def deadline(self) -> int | None:
        return self.pods[0].spec.active_deadline_seconds if self.pods else None

    def lacks(self) -> str:
        """What a gang waits for before it is queued."""
        if self.least == 0:
            return f"it is queued when PodGroup {self.name!r}, which its pods name, is there"
        size = self.least or size_of(pod.metadata.labels for pod in self.pods)
        return gathering(self.name, size, len(self.pods), "minMember" if self.least else objects.GROUP_SIZE)

    def outcome(self) -> Outcome | None:
        """How a pod ends that was told to go tells nothing, nor how some did while others are to come again."""
        if not all(pod.status.is_over and not pod.metadata.is_going for pod in self.pods):
            return None
        if len(self.pods) < self.members or any(is_lost(pod.status) for pod in self.pods):
            return None
        failed = [pod for pod in self.pods if pod.status.phase == "Failed"]
        if not failed:
            return Outcome(True, "Succeeded")
        return Outcome(False, pod_failure(failed[0]), f"pod {failed[0].metadata.name} failed")

    def wanted(self) -> int:
        """What its node would not run is still wanted, so is what is told to go, or is gone and made by no other."""
        gone = max(0, self.members - len(self.pods)) if self.is_remade else 0
        return gone + sum(not pod.status.is_over or is_lost(pod.status) or pod.metadata.is_going for pod in self.pods)

    def resized(self, podsets: Sequence[PodSetSpec], placed: int) -> tuple[PodSetSpec, ...]:
        """What a pod asks for does not change."""
        return tuple(podsets)

    def is_off(self) -> bool:
        """Its pods are all there is of it."""
        return False

    def is_stopped(self) -> bool:
        return not any(map(holds_room, self.pods))

    def is_deleted(self) -> bool:
        """All its pods are told to go, and none for the sake of its node: nobody wants them back."""
        return all(pod.metadata.is_going and not holds(pod.status, "DisruptionTarget") for pod in self.pods)

    def about(self) -> About:
        pod = self.pods[0].metadata
        return About(kinds.PODS, pod.name, pod.uid, pod.namespace)

    async def stop(self, client: Client) -> None:
        """The pods that have a node go, as they were seen: what has ended meanwhile is looked at again."""
        placed = (pod for pod in self.pods if pod.spec.node_name)
        going = (pod for pod in placed if pod.status.is_over or not pod.metadata.is_going)
        await side_by_side(remove_one(client, pod) for pod in going)

    async def start(self, client: Client) -> None:
        """Its pods start when they are bound."""

    async def fail(self, client: Client) -> None:
        await remove(client, self.pods)


Owner = JobOwner | KindOwner | PodsOwner


async def keep(client: Client, pods: Sequence[PodObject]) -> str:
    """The manifests of bare pods, to make them again from: read whole, since what we decode is a part of them, and at
    once where a label tells their group."""
    whole, first = dict[str, dict[str, Any]](), pods[0].metadata
    if group := first.labels.get(objects.GROUP_NAME):
        alike = Selection(kinds.PODS, first.namespace, f"{objects.GROUP_NAME}={group}")
        whole = {one["metadata"]["uid"]: one for one in await client.list(alike)}
    ordered = sorted(pods, key=lambda pod: pod.metadata.name)
    found = [_manifest(whole.get(pod.metadata.uid) or await client.get(ref_of(pod))) for pod in ordered]
    return _packed(found)


def _packed(found: Sequence[dict[str, Any]]) -> str:
    return base64.b64encode(zlib.compress(msgspec.json.encode(found), 9)).decode()


def _manifest(pod: dict[str, Any]) -> dict[str, Any]:
    """What its author wrote, or could have: without what the server, the controller and its node put there."""
    meta, spec = pod["metadata"], dict(pod["spec"])
    kept = {key: meta[key] for key in ("name", "namespace", "labels", "annotations") if key in meta}
    notes = kept.get("annotations", {})
    kept["annotations"] = {key: text for key, text in notes.items() if key not in objects.OF_CONTROLLER}
    token = {one["name"] for one in spec.get("volumes") or () if one["name"].startswith("kube-api-access-")}
    spec["volumes"] = [one for one in spec.get("volumes") or () if one["name"] not in token]
    for part in ("containers", "initContainers"):
        spec[part] = [
            {**one, "volumeMounts": [it for it in one.get("volumeMounts") or () if it["name"] not in token]}
            for one in spec.get(part) or ()
        ]
    spec.pop("nodeName", None)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec}


def manifests(workload: WorkloadObject) -> dict[str, dict[str, Any]]:
    """Those of the bare pods that it started with, by their names."""
    return _unpacked(workload.metadata.annotations.get(objects.MANIFESTS, ""))


def _unpacked(said: str) -> dict[str, dict[str, Any]]:
    found = msgspec.json.decode(zlib.decompress(base64.b64decode(said))) if said else []
    return {one["metadata"]["name"]: one for one in found}


_read_already = lru_cache(64)(_unpacked)  # asked at every turn of a workload; not to be changed


def followed(workload: WorkloadObject, pods: Iterable[PodObject]) -> str:
    """The manifests with the marks that their pods have now, for pods that are gone with what changed on the others,
    where the youngest counts; "" where nothing changed."""
    known = _read_already(workload.metadata.annotations.get(objects.MANIFESTS, ""))
    changes = dict[str, dict[tuple[str, str], str | None]]()
    for pod in sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name)):
        if kept := known.get(pod.metadata.name):
            changes[pod.metadata.name] = _changes(kept["metadata"], pod.metadata)
    shared = {mark: text for own in changes.values() for mark, text in own.items()}
    if not shared:
        return ""
    for name, one in (known := manifests(workload)).items():
        for (part, key), text in changes.get(name, shared).items():
            marks = one["metadata"].setdefault(part, {})
            marks.pop(key, None)
            marks |= {} if text is None else {key: text}
    return _packed([*known.values()])


def _changes(kept: dict[str, Any], now: Metadata) -> dict[tuple[str, str], str | None]:
    """The marks that differ, by their place, as they are now; None: removed."""
    found = {(part, key): getattr(now, part).get(key) for part, key in MARKS}
    return {(part, key): text for (part, key), text in found.items() if text != kept.get(part, {}).get(key)}


async def remake(
    client: Client, workload: WorkloadObject, pods: Sequence[PodObject], *, lost: Collection[str] | None = None
) -> bool:
    """Makes the pods that are missing, gated, or of these only those that were lost; True when all are there. Whatever
    a manifest says, its pod is made in the namespace of the Workload: who may write there may write no other."""
    known = manifests(workload)
    for one in known.values():
        one["metadata"]["namespace"] = workload.metadata.namespace
        one["spec"] |= {"schedulingGates": [{"name": objects.GATE}], "schedulerName": objects.SCHEDULER}
        for note in (objects.ACTIVE, objects.PAUSED):
            one["metadata"].setdefault("annotations", {}).pop(note, None)
    for one in [*known.values()][:1]:  # whichever its user says it on next, that is what counts
        one["metadata"]["annotations"] |= {
            objects.ACTIVE: str(workload.spec.active).lower(), objects.PAUSED: str(workload.spec.paused).lower()
        }  # fmt: skip
    missing = known.keys() - {pod.metadata.name for pod in pods}
    chosen = [one for name, one in known.items() if name in missing and (lost is None or name in lost)]
    await side_by_side(client.ensure(kinds.PODS, one) for one in chosen)
    return not missing
