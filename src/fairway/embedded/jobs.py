"""The Job controller: makes and removes the pods of Jobs and writes what became of them.

What to do is decided in jobstatus.py; here it is done, through any API server. Every write may be repeated after a
crash or an answer that was lost: a pod's name follows from the job's state, so making it again finds it made; a status
is written only over the version it was computed from. Own writes count as seen until the informer shows them. What
tells people alone (pods that got ready, that a new Job is suspended) is written within 2 s, together with more.
A pod whose Job is gone, or that lost it, no longer waits to be counted: its finalizer goes. The key of such pods names
no Job.
"""

import asyncio
from collections import Counter, defaultdict
from typing import Any, NamedTuple

import msgspec
from msgspec import structs
from msgspec.structs import replace

from fairway.api.objects import INDEX, WORLD_SIZE
from fairway.api.owners import controller_of
from fairway.api.quantities import time_text
from fairway.kube import kinds
from fairway.kube.agenda import Agenda
from fairway.kube.client import STRATEGIC, ApiError, Client, unless_absent
from fairway.kube.events import About, Events
from fairway.kube.informer import Informer
from fairway.kube.kinds import Ref, Selection, ref
from fairway.kube.turnstile import side_by_side

from .jobstatus import Step, failures, is_minor, settle
from .jobtypes import FAILURES, FINALIZER, Job, JobStatus, Pod, letters

ASSUMED_SECONDS = 30.0
BATCH_SECONDS = 2.0
MOST_MADE = 500  # pods of a Job that are made before it is looked at again
FEW, SECONDS_PER_POD = 32, 1e-4
ABSENT = {field.encode_name: None for field in structs.fields(JobStatus)}


class Assumed(NamedTuple):
    """A pod as our own write left it; believed until the informer says more, but not for ever."""

    pod: Pod
    until: float


class Jobs:
    def __init__(self, client: Client) -> None:
        self.client, self.clock = client, client.clock
        self.events = Events(client, "job-controller")
        self.agenda = Agenda(client.clock, client.chance)
        self.jobs = Informer(client, Selection(kinds.JOBS), shape=Job, changed=self._job_changed, slim=_slim)
        self.pods = Informer(client, Selection(kinds.PODS), shape=Pod, changed=self._pod_changed)
        self._owned: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        self._assumed: defaultdict[str, dict[str, Assumed]] = defaultdict(dict)
        self._written: dict[str, Job] = {}
        self._unwritten: dict[str, float] = {}  # since when a minor change of status is kept back

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for work in (self.jobs.run(), self.pods.run(), self.events.run()):
                tasks.create_task(work)
            await self.jobs.synced.wait()
            await self.pods.synced.wait()
            await self.agenda.run(self._sync)

    def _job_changed(self, old: Job | None, new: Job | None) -> None:
        job = new or old
        assert job is not None
        key = _key(job.metadata.namespace, job.metadata.name)
        if new is None or _version(new) >= _version(self._written.get(key)):
            self._written.pop(key, None)
        self.agenda.note(key, self.clock.now())

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        if old and new and _owner(old) != _owner(new):  # released: it is a Job's no longer
            self._pod_changed(old, None)
        owner, name = _owner(pod), pod.metadata.name
        key = _key(pod.metadata.namespace, owner[0])
        is_alone = pod.is_tracked and controller_of(pod.metadata) is None
        if owner[0] or is_alone or name in self._owned.get(key, ()):  # another may have released it
            self._assumed[key].pop(name, None)
            if new:
                self._owned[key][name] = new
            else:
                self._owned[key].pop(name, None)
            self.agenda.note(key, self._soon(key))

    def _soon(self, key: str) -> float:
        """At once, before jobs that merely arrived; where pods are many, a moment later for many together."""
        pods = len(self._owned[key])
        return 0.0 if pods < FEW else self.clock.now() + min(pods * SECONDS_PER_POD, 1.0)

    async def _sync(self, key: str) -> float | None:
        job = self._job(key)
        uid = job.metadata.uid if job else ""
        others = [pod for pod in self._pods(key) if job is None or _uid(pod) != uid]
        await self._release(key, [pod for pod in others if pod.is_tracked])
        if job is None:
            if not any(pod.is_tracked for pod in self._pods(key)):  # else one came meanwhile, and a turn with it
                for known in (self._owned, self._assumed, self._unwritten, self._written):
                    known.pop(key, None)
            return None
        step = self._settle(key, job)
        if step.is_expired:
            await self.client.delete(ref(kinds.JOBS, key), uid=uid)
            return None
        if step.remove or step.stop or step.create:
            await self._change(key, job, step)
            step = self._settle(key, job)
        now = self.clock.now()
        since = self._unwritten.get(key, now)  # later than now if the clock was set back
        late = since + BATCH_SECONDS
        is_kept_back = is_minor(job.status, step.status) and since <= now < late
        if is_kept_back:
            self._unwritten.setdefault(key, now)
        else:
            self._unwritten.pop(key, None)
            if step.status != job.status:
                await self._write(key, job, step.status)
        await self._release(key, step.release)
        times = [step.again_at, late if is_kept_back else None, *(until for _, until in self._assumed[key].values())]
        return min(filter(None, times), default=None)

    def _settle(self, key: str, job: Job) -> Step:
        return settle(job, self._own(key, job), self.clock.now())

    def _own(self, key: str, job: Job) -> list[Pod]:
        return [pod for pod in self._pods(key) if _uid(pod) == job.metadata.uid]

    def _job(self, key: str) -> Job | None:
        seen = self.jobs.store.get(key)
        return seen and max(seen, self._written.get(key, seen), key=_version)

    def _pods(self, key: str) -> list[Pod]:
        now, assumed = self.clock.now(), self._assumed[key]
        for name in [name for name, (_, until) in assumed.items() if not now < until <= now + ASSUMED_SECONDS]:
            del assumed[name]
        return list((self._owned[key] | {name: pod for name, (pod, _) in assumed.items()}).values())

    def _known(self, key: str, pod: Pod) -> Pod | None:
        """A pod as it is now; None once it was seen to go, which may be before the answer to what made it go."""
        name = pod.metadata.name
        assumed = self._assumed[key].get(name)
        known = assumed.pod if assumed else self._owned[key].get(name)
        return known if known and known.metadata.uid == pod.metadata.uid else None

    def _assume(self, key: str, pod: Pod) -> None:
        self._assumed[key][pod.metadata.name] = Assumed(pod, self.clock.now() + ASSUMED_SECONDS)

    async def _change(self, key: str, job: Job, step: Step) -> None:
        await self._release(key, [pod for pod in step.remove if pod.is_tracked])
        await side_by_side(self._delete(key, job, pod) for pod in (*step.remove, *step.stop))
        taken = {pod.metadata.name for pod in self._pods(key)}
        times = failures(job, self._own(key, job)) if job.spec.backoff_limit_per_index is not None else None
        new = [_pod(job, index, taken, times) for index in step.create[:MOST_MADE]]
        await side_by_side(self._create(key, job, pod) for pod in new)

    async def _delete(self, key: str, job: Job, pod: Pod) -> None:
        await self.client.delete(_ref(pod), uid=pod.metadata.uid)
        if known := self._known(key, pod):  # released since, or gone already
            gone = replace(known.metadata, deletion_timestamp=time_text(self.clock.now()))
            self._assume(key, replace(known, metadata=gone))
        self.events.tell(_about(job), "SuccessfulDelete", f"Deleted pod: {pod.metadata.name}")

    async def _create(self, key: str, job: Job, pod: dict[str, Any]) -> None:
        try:
            made = await self.client.create(kinds.PODS, pod)
            self.events.tell(_about(job), "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
        except ApiError as error:
            if error.status != 409:
                self.events.tell(_about(job), "FailedCreate", f"Error creating: {error.message}", is_warning=True)
                raise
            made = await self.client.get(Ref(kinds.PODS, pod["metadata"]["name"], job.metadata.namespace))
            if _uid(msgspec.convert(made, Pod)) != job.metadata.uid:  # released, and not gone yet
                raise
        self._assume(key, msgspec.convert(made, Pod))

    async def _release(self, key: str, pods: tuple[Pod, ...] | list[Pod]) -> None:
        await side_by_side(self._release_one(key, pod) for pod in pods)

    async def _release_one(self, key: str, pod: Pod) -> None:
        meta = {"uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}
        made = await unless_absent(self.client.patch(_ref(pod), {"metadata": meta}, form=STRATEGIC))
        if made and self._known(key, pod):
            self._assume(key, msgspec.convert(made, Pod))

    async def _write(self, key: str, job: Job, status: JobStatus) -> None:
        meta = {"uid": job.metadata.uid, "resourceVersion": job.metadata.resource_version}
        change = {"metadata": meta, "status": _shown(status)}
        made = msgspec.convert(await self.client.patch(ref(kinds.JOBS, key), change, subresource="status"), Job)
        if _version(self.jobs.store.get(key)) < _version(made):  # else it was seen before the answer came
            self._written[key] = _slim(made)
        said = {condition.type: condition.status for condition in job.status.conditions}
        for condition in status.conditions:
            if said.get(condition.type) != condition.status and condition.type != "FailureTarget":
                reason = {"Complete": "Completed", "Suspended": "Suspended"}.get(condition.type, condition.reason)
                reason = "Resumed" if condition.reason == "JobResumed" else reason
                message = "Job completed" if reason == "Completed" else condition.message
                self.events.tell(_about(job), reason, message, is_warning=condition.type == "Failed")


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"


def _slim(job: Job) -> Job:
    """With the template packed; of a Job that is over, which may be kept for days, without: it makes no more pods."""
    is_over = any(it.type in ("Complete", "Failed") and it.status == "True" for it in job.status.conditions)
    return replace(job, spec=replace(job.spec, template={}) if is_over else job.spec.packed())


def _version(job: Job | None) -> int:
    return int(job.metadata.resource_version or 0) if job else 0


def _owner(pod: Pod) -> tuple[str, str]:
    """Name and uid of the Job that controls a pod; empty if none does."""
    found = [it for it in pod.metadata.owner_references if it.controller and it.kind == "Job"]
    return (found[0].name, found[0].uid) if found else ("", "")


def _uid(pod: Pod) -> str:
    return _owner(pod)[1]


def _ref(pod: Pod) -> Ref:
    return Ref(kinds.PODS, pod.metadata.name, pod.metadata.namespace)


def _about(job: Job) -> About:
    return About(kinds.JOBS, job.metadata.name, job.metadata.uid, job.metadata.namespace)


def _shown(status: JobStatus) -> dict[str, Any]:
    """Every field, so that the patch takes away what is no longer there."""
    shown = msgspec.to_builtins(status)
    kept = {"uncountedTerminatedPods": {"succeeded": None, "failed": None} | shown.get("uncountedTerminatedPods", {})}
    return ABSENT | {"ready": 0, "terminating": 0} | shown | kept


def _pod(job: Job, index: int | None, taken: set[str], times: Counter[int] | None) -> dict[str, Any]:
    """The next pod of a job, of a name that none in `taken` has; the name is added to them. `times`: how often each
    index failed, where each has a limit of its own."""
    template, meta = job.spec.unpacked(), job.metadata
    said, spec = template.get("metadata") or {}, dict(template.get("spec") or {})
    labels = {f"{prefix}{word}": value for prefix in ("", "batch.kubernetes.io/")
              for word, value in (("controller-uid", meta.uid), ("job-name", meta.name))}
    notes = dict(said.get("annotations") or {})
    stem = f"{meta.name}-"
    if index is not None:
        stem = f"{meta.name}-{index}-"
        labels[INDEX] = notes[INDEX] = str(index)
        notes[WORLD_SIZE] = str(job.spec.completions)
        notes |= {} if times is None else {FAILURES: str(times[index])}
        spec = _of_index(spec, meta.name, index)
    chosen = _name(job, stem, index, taken)
    taken.add(chosen)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta.name, "uid": meta.uid, "controller": True,
             "blockOwnerDeletion": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": chosen,
            "generateName": stem[:58],
            "namespace": meta.namespace,
            "labels": {**(said.get("labels") or {}), **labels},
            "annotations": notes,
            "finalizers": [*(said.get("finalizers") or ()), FINALIZER],
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _of_index(spec: dict[str, Any], name: str, index: int) -> dict[str, Any]:
    """The spec of an index's pod: a host name that tells it, and its number in each container."""
    host = f"{name[:62 - len(str(index))]}-{index}".replace(".", "-")
    lists = [field for field in ("containers", "initContainers") if field in spec]
    return {"hostname": host, **spec, **{field: [_indexed(one) for one in spec[field]] for field in lists}}


def _indexed(container: dict[str, Any]) -> dict[str, Any]:
    env = container.get("env") or []
    if any(variable["name"] == "JOB_COMPLETION_INDEX" for variable in env):
        return container
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{INDEX}']"}}
    return {**container, "env": [*env, {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}]}


def _name(job: Job, stem: str, index: int | None, taken: set[str]) -> str:
    """The same for the same state of the job; another after a failure, or a change of its spec."""
    state = f"{job.metadata.uid}/{job.metadata.generation}/{job.status.failed}/{index}"
    for number in range(len(taken) + 1):
        name = stem[:58] + letters(f"{state}/{number}".encode(), 5)
        if name not in taken:
            return name
    raise AssertionError("more names are tried than are taken")
