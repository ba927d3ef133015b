"""The user's objects → the Workloads made for them: one function for each kind gives its podsets, one table names them.

A Workload is named after its owner (`job-a`), owned by it, and mirrors the `fairway.dev/` annotations it carries. The
pods of a Deployment, StatefulSet or of nobody are workloads each (`pod-a`), or a gang where a label groups them: its
Workload is named after the group, and made when all its pods are there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec.structs import replace

from fairway.engine.model import PodClass

from . import objects
from .decode import decode
from .names import name_of
from .pods import pod_class
from .quantities import Malformed, shown, within
from .types import PodSetSpec, TopologySpec, WorkloadObject, WorkloadSpec

DEFAULT_QUEUE = "default"
MAIN = "main"
POD = ("v1", "Pod")


class Conditions(objects.Part, frozen=True):
    conditions: tuple[objects.Condition, ...] = ()


class ReplicatedJob(objects.Part, frozen=True):
    name: str
    replicas: objects.Natural = 1
    template: objects.JobObject = objects.JobObject()


class JobSetSpec(objects.Part, frozen=True):
    replicated_jobs: tuple[ReplicatedJob, ...] = ()


class JobSetObject(objects.Object, frozen=True):
    spec: JobSetSpec = JobSetSpec()


class ReplicaSpec(objects.Part, frozen=True):
    replicas: objects.Natural = 1
    template: objects.PodTemplate = objects.PodTemplate()


class ElasticPolicy(objects.Part, frozen=True):
    min_replicas: objects.Natural | None = None


class PyTorchSpec(objects.Part, frozen=True):
    pytorch_replica_specs: dict[str, ReplicaSpec] = {}  # noqa: RUF012  msgspec gives every struct a dict of its own
    elastic_policy: ElasticPolicy = ElasticPolicy()


class PyTorchJobObject(objects.Object, frozen=True):
    spec: PyTorchSpec = PyTorchSpec()


class RayGroup(ReplicaSpec, frozen=True):
    group_name: str = "head"
    min_replicas: objects.Natural | None = None
    num_of_hosts: objects.Natural = 1


class RaySpec(objects.Part, frozen=True):
    head_group_spec: RayGroup = RayGroup()
    worker_group_specs: tuple[RayGroup, ...] = ()
    enable_in_tree_autoscaling: bool = False


class RayClusterObject(objects.Object, frozen=True):
    spec: RaySpec = RaySpec()


S = TypeVar("S", objects.JobObject, JobSetObject, PyTorchJobObject, RayClusterObject)


def job(said: objects.JobObject) -> tuple[PodSetSpec, ...]:
    """As many pods at once as it still needs, with the labels that the Job controller gives them."""
    name, template = said.metadata.name, said.spec.template
    labels = {"batch.kubernetes.io/job-name": name, "job-name": name} | template.metadata.labels
    template = replace(template, metadata=replace(template.metadata, labels=labels))
    return (PodSetSpec(MAIN, _at_once(said.spec, said.status.succeeded), template=template),)


def _at_once(spec: objects.JobSpec, succeeded: int = 0) -> int:
    left = spec.parallelism if spec.completions is None else max(0, spec.completions - succeeded)
    return min(spec.parallelism, left)


def job_set(said: JobSetObject) -> tuple[PodSetSpec, ...]:
    """A podset for each replicated job."""
    return tuple(
        PodSetSpec(one.name, one.replicas * _at_once(one.template.spec), template=one.template.spec.template)
        for one in said.spec.replicated_jobs
    )


def pytorch_job(said: PyTorchJobObject) -> tuple[PodSetSpec, ...]:
    """A podset for each role, the master first; an elastic policy's minimum is the workers'."""
    roles = sorted(said.spec.pytorch_replica_specs.items(), key=lambda role: (role[0] != "Master", role[0]))
    least = said.spec.elastic_policy.min_replicas
    return tuple(
        PodSetSpec(name.lower(), one.replicas, least if name == "Worker" else None, one.template) for name, one in roles
    )


def ray_cluster(said: RayClusterObject) -> tuple[PodSetSpec, ...]:
    """The head, and a podset for each group of workers; they are elastic where Ray scales them."""
    scales = said.spec.enable_in_tree_autoscaling
    workers = (
        PodSetSpec(
            one.group_name,
            one.replicas * one.num_of_hosts,
            min(one.min_replicas, one.replicas) * one.num_of_hosts if scales and one.min_replicas is not None else None,
            one.template,
        )
        for one in said.spec.worker_group_specs
    )
    return PodSetSpec("head", 1, template=said.spec.head_group_spec.template), *workers


@dataclass(frozen=True, slots=True)
class Ownership(Generic[S]):
    """How a kind of owner is read. `suspend`: the field that keeps it from making pods."""

    api_version: str
    form: type[S]
    podsets: Callable[[S], tuple[PodSetSpec, ...]]
    suspend: tuple[str, ...] = ("spec", "suspend")

    def workload(self, kind: str, said: object) -> WorkloadObject:
        read = decode(said, self.form)
        return workload_of((self.api_version, kind), read.metadata, self.podsets(read))


OWNERS: Mapping[
    tuple[str, str],
    Ownership[objects.JobObject] | Ownership[JobSetObject] | Ownership[PyTorchJobObject] | Ownership[RayClusterObject],
] = {
    ("batch", "Job"): Ownership("batch/v1", objects.JobObject, job),
    ("jobset.x-k8s.io", "JobSet"): Ownership("jobset.x-k8s.io/v1alpha2", JobSetObject, job_set),
    ("kubeflow.org", "PyTorchJob"): Ownership(
        "kubeflow.org/v1", PyTorchJobObject, pytorch_job, ("spec", "runPolicy", "suspend")
    ),
    ("ray.io", "RayCluster"): Ownership("ray.io/v1", RayClusterObject, ray_cluster),
}
GATED = frozenset((("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "ReplicaSet")))
"""Owners that cannot be suspended: their pods are workloads each, and wait at a scheduling gate."""


def pod(said: objects.PodObject) -> WorkloadObject:
    """The workload of a pod of nobody, or of one of many that are served alike."""
    template = objects.PodTemplate(said.metadata, said.spec)
    return workload_of(POD, said.metadata, (PodSetSpec(MAIN, 1, template=template),))


def pod_group(name: str, pods: Sequence[objects.PodObject]) -> WorkloadObject | None:
    """The gang of a group's pods, of those that have no node yet if there are such; None while some are still to come.
    Pods alike in what they ask make a podset. The gang is as old as its youngest pod; what one pod's annotations say
    holds for all, and where they differ what the youngest says."""
    if len(pods) < max(_size(one) for one in pods):
        return None
    alike: dict[PodClass, list[objects.PodTemplate]] = {}
    for one in sorted([one for one in pods if not one.spec.node_name] or pods, key=lambda one: one.metadata.name):
        template = objects.PodTemplate(one.metadata, one.spec)
        unlabelled = replace(template, metadata=replace(one.metadata, labels={}))
        alike.setdefault(pod_class(unlabelled, ""), []).append(template)
    podsets = tuple(
        PodSetSpec(f"{MAIN}-{index}" if index else MAIN, len(same), template=same[0])
        for index, same in enumerate(alike.values())
    )
    metas = sorted((one.metadata for one in pods), key=lambda meta: (meta.creation_timestamp or "", meta.name))
    notes = {key: text for meta in metas for key, text in meta.annotations.items()}
    made = workload_of(POD, replace(metas[-1], name=name, annotations=notes), podsets)
    refs = tuple(objects.OwnerReference("Pod", one.metadata.name, one.metadata.uid, "v1") for one in pods)
    return replace(made, metadata=replace(made.metadata, owner_references=refs))


def _size(said: objects.PodObject) -> int:
    return within(f"metadata.labels[{objects.GROUP_SIZE}]", number, said.metadata.labels.get(objects.GROUP_SIZE, "1"))


def group_of(meta: objects.Metadata) -> str:
    """The name of the gang a bare pod is in; "" for none."""
    return meta.labels.get(objects.GROUP_NAME, "")


def queue_of(meta: objects.Metadata, namespace_labels: Mapping[str, str]) -> str:
    """The queue that a managed object goes to; "" for one that is not managed."""
    if objects.QUEUE in meta.labels:
        return meta.labels[objects.QUEUE]
    return DEFAULT_QUEUE if namespace_labels.get(objects.MANAGED) == "true" else ""


def is_of_others(meta: objects.Metadata, podsets: Iterable[PodSetSpec]) -> bool:
    """Whether an owner is left to another scheduler: a template names one, and no queue label asks for Fairway."""
    own = ("", objects.DEFAULT_SCHEDULER, objects.SCHEDULER)
    return objects.QUEUE not in meta.labels and any(one.template.spec.scheduler_name not in own for one in podsets)


def workload_of(kind: tuple[str, str], owner: objects.Metadata, podsets: tuple[PodSetSpec, ...]) -> WorkloadObject:
    """The Workload of an owner of a kind (apiVersion, name), with its annotations mirrored. It is as old as its owner,
    but not written yet: without uid and status."""
    meta = objects.Metadata(
        name=name_of(kind[1], owner.name),
        namespace=owner.namespace,
        creation_timestamp=owner.creation_timestamp,
        owner_references=(objects.OwnerReference(kind[1], owner.name, owner.uid, kind[0], controller=True),),
    )
    return WorkloadObject(meta, mirrored(owner, podsets))


def _flag(text: str) -> object:
    return {"true": True, "false": False}.get(text, text)


def _words(text: str) -> object:
    return text.replace(",", " ").split()


MIRRORED: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "workload-type": ("workloadType", str), "preemptible": ("preemptible", _flag), "active": ("active", _flag),
    "expected-runtime": ("expectedRuntime", str), "time-limit": ("timeLimit", str), "deadline": ("deadline", str),
    "checkpoint-interval": ("checkpointInterval", str), "last-checkpoint": ("lastCheckpoint", str),
    "restart": ("restart", str), "on-disconnect": ("onDisconnect", str), "pools": ("pools", _words),
    "start-timeout": ("startTimeout", str), "idle-timeout": ("idleTimeout", str), "after": ("after", _words),
    "data": ("data", str), "priority-class": ("priorityClassName", str), "notify": ("notify", str),
}  # fmt: skip
"""Annotation (without `fairway.dev/`) → field of the spec, and how its text is read."""


def mirrored(owner: objects.Metadata, podsets: tuple[PodSetSpec, ...]) -> WorkloadSpec:
    """The spec that an owner's labels and annotations say."""
    queue, user = owner.labels.get(objects.QUEUE) or DEFAULT_QUEUE, owner.annotations.get(objects.USER, "")
    said: dict[str, object] = {"queue": queue, "user": user}
    for name, text in _notes(owner):
        if name in MIRRORED:
            field, read = MIRRORED[name]
            said[field] = read(text)
    try:
        spec = decode(said, WorkloadSpec)
    except Malformed as error:
        raise told("", error) from None
    own = (_podset(one, owner) for one in podsets[:-1])
    last = (_podset(one, owner, least=dict(_notes(owner)).get("min-count", "")) for one in podsets[-1:])
    return replace(spec, topology=_topology(owner), pod_sets=(*own, *last))


def told(kind: str, error: Malformed) -> Malformed:
    """A complaint about the Workload of an owner, as one about the owner's own field."""
    within_spec = error.field.removeprefix("spec.")
    for name, (field, _) in MIRRORED.items():
        if within_spec == field:
            return Malformed(error.message, annotated(name))
    if (kind, within_spec) == ("Job", "podSets[0].count"):
        return Malformed(error.message, "spec.parallelism")
    place = within_spec.removeprefix("podSets[0].template.")
    if place == within_spec or kind not in ("Job", "Pod"):
        return error
    return Malformed(error.message, place if kind == "Pod" else f"spec.template.{place}")


def annotated(name: str) -> str:
    """The field path of one of our annotations."""
    return f"metadata.annotations[{objects.GROUP}/{name}]"


def _notes(meta: objects.Metadata) -> list[tuple[str, str]]:
    found = ((*key.partition("/"), text) for key, text in meta.annotations.items())
    return [(name, text) for group, _, name, text in found if group == objects.GROUP]


def _topology(meta: objects.Metadata) -> TopologySpec:
    notes = dict(_notes(meta))
    return TopologySpec(notes.get("topology-required", ""), notes.get("topology-preferred", ""))


def _podset(said: PodSetSpec, owner: objects.Metadata, least: str = "") -> PodSetSpec:
    """A podset with what the annotations of its pods say, and of its owner where those say nothing."""
    meta = said.template.metadata
    shared = {name: text for name, text in owner.annotations.items() if name in (objects.FRACTION, objects.GPU_MEMORY)}
    own = shared if not meta.annotations.keys() & {objects.FRACTION, objects.GPU_MEMORY} else {}
    alignment = dict([*_notes(owner), *_notes(meta)]).get("alignment")
    if alignment not in (None, "Required", "Preferred"):
        raise Malformed(f"found {shown(alignment)}; one of Preferred, Required is allowed", annotated("alignment"))
    return replace(
        said,
        min_count=min(within(annotated("min-count"), number, least), said.count) if least else said.min_count,
        template=replace(said.template, metadata=replace(meta, annotations=meta.annotations | own)),
        topology=TopologySpec() if meta == owner else _topology(meta),
        alignment="Required" if alignment == "Required" else None,
    )


def check_least(text: str, made: WorkloadObject) -> None:
    """What the annotation for the fewest pods says is no more than there are. Raises Malformed."""
    most = made.spec.pod_sets[-1].count
    if text and number(text) > most:
        raise Malformed(f"found {shown(text)}; at most its pods, which are {most}, is allowed", annotated("min-count"))


def number(text: str) -> int:
    """A count in an annotation or label."""
    if not (text.isascii() and text.isdecimal() and len(text) < 7):
        raise Malformed(f"found {shown(text)}; a whole number from 0 is allowed")
    return int(text)
