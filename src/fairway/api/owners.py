"""The user's objects → the Workloads made for them: a form for each kind gives its podsets, one table names them.

A Workload is named after its owner (`job-a`), owned by it, and mirrors the `fairway.dev/` annotations it carries. The
pods of a Deployment, StatefulSet or of nobody are workloads each (`pod-a`), or a gang where a label groups them: its
Workload is named after the group, and made when all its pods are there.
"""

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from fairway.engine import PodClass

from . import objects
from .decode import decode
from .forms import batch, data, kubeflow, ray, serving, wrapper
from .forms.batch import MAIN
from .forms.batch import job as job
from .forms.form import Form, least_of
from .names import name_of
from .pods import pod_class
from .quantities import Malformed, shorter, shown, within
from .types import PodSetSpec, TopologySpec, WorkloadObject, WorkloadSpec

DEFAULT_QUEUE = "default"
POD = ("v1", "Pod")
FLINK = "app"
"""The label of Flink's pods that names their deployment, where the label `type` says that they are Flink's."""
DEADLINE, LIMIT = "activeDeadlineSeconds", "timeLimit"
CAPITAL = re.compile("[A-Z]")


@dataclass(frozen=True, slots=True)
class Switch:
    """The field by which an owner is kept from making pods, and what it holds then and else. `over`: the least that
    `activeDeadlineSeconds` beside it may hold, where the operator ends its object by that while it runs."""

    path: tuple[str, ...] = ("spec", "suspend")
    off: str | bool = True
    on: str | bool = False
    over: int | None = None

    def is_off(self, said: object) -> bool:
        return _field(said, self.path) == self.off

    def is_over(self, said: object) -> bool:
        """Whether its operator is to end it at once."""
        return not self.is_off(said) and _field(said, (*self.path[:-1], DEADLINE)) == self.over

    def patch(self, *, off: bool) -> dict[str, object]:
        """The merge patch that sets it."""
        return self._patch({self.path[-1]: self.off if off else self.on})

    def end(self) -> dict[str, object]:
        """The merge patch with which its operator ends it at once."""
        return self._patch({self.path[-1]: self.on, DEADLINE: self.over})

    def _patch(self, made: dict[str, object]) -> dict[str, object]:
        for step in reversed(self.path[:-1]):
            made = {step: made}
        return made


def _field(said: object, path: Iterable[str]) -> object:
    for step in path:
        said = getattr(said, CAPITAL.sub(lambda found: f"_{found[0].lower()}", step), None)
    return said


SUSPEND = Switch()
RUN_POLICY = Switch(("spec", "runPolicy", "suspend"))
TRAINING = Switch(("spec", "runPolicy", "suspend"), over=0)


@dataclass(frozen=True, slots=True)
class Ownership:
    """How a kind of owner is read and held.

    `versions`: those of its API that are read alike, the best first. `switch`: what keeps it from making pods; None:
    its pods wait at gates. `word`: what begins the names of its Workloads; absent: its kind. `source`: the kind of the
    object of its own name that has its podsets. `label`: the label of its pods that names it, where their controllers
    do not lead to it. `group`: the label of its pods that numbers its replicas, each of which is a workload. `opens`:
    the kind (group, version and plural) of the object of its own whose phase its operator waits for. `names`: the parts
    of it that name a scheduler for pods that no template is written for. `is_resized`: its operator follows a change of
    its counts while it runs.
    """

    versions: tuple[str, ...]
    plural: str
    form: type[Form]
    switch: Switch | None = SUSPEND
    word: str = ""
    source: tuple[str, str] | None = None
    label: str = ""
    group: str = ""
    opens: str = ""
    names: tuple[tuple[str, ...], ...] = ()
    is_resized: bool = False

    def workload(self, kind: str, said: object) -> WorkloadObject:
        """The Workload of an object as JSON gives it; raises Malformed."""
        return self.made(kind, decode(said, self.form))

    def made(self, kind: str, read: Form, podsets: tuple[PodSetSpec, ...] | None = None) -> WorkloadObject:
        """The Workload of an owner; `podsets` where another object has them."""
        asked = read.podsets() if podsets is None else podsets
        deadline = read.spec.active_deadline_seconds if isinstance(read, objects.JobObject) else None
        made = workload_of((self.versions[0], kind), read.metadata, asked, deadline)
        if not self.word:
            return made
        return replace(made, metadata=replace(made.metadata, name=name_of(self.word, read.metadata.name)))


class Wrapper(wrapper.AppWrapper, frozen=True):
    """What it wraps may be of any kind in the table."""

    def podsets(self) -> tuple[PodSetSpec, ...]:
        return self.asked(_inner)


def replicas(said: object) -> range:
    """The numbers of an owner's replicas, where each is a workload."""
    return range(said.spec.replicas) if isinstance(said, serving.LeaderWorkerSet) else range(0)


def _inner(kind: tuple[str, str], said: object) -> tuple[PodSetSpec, ...]:
    return decode(said, OWNERS[kind].form).podsets() if kind in OWNERS else ()


OWNERS: Mapping[tuple[str, str], Ownership] = {
    ("batch", "Job"): Ownership(("batch/v1",), "jobs", batch.Job),
    ("jobset.x-k8s.io", "JobSet"): Ownership(("jobset.x-k8s.io/v1alpha2",), "jobsets", batch.JobSet),
    ("trainer.kubeflow.org", "TrainJob"): Ownership(
        ("trainer.kubeflow.org/v1alpha1",), "trainjobs", kubeflow.TrainJob, source=("jobset.x-k8s.io", "JobSet")
    ),
    ("kubeflow.org", "PyTorchJob"): Ownership(("kubeflow.org/v1",), "pytorchjobs", kubeflow.PyTorchJob, TRAINING,
                                                  is_resized=True),
    ("kubeflow.org", "TFJob"): Ownership(("kubeflow.org/v1",), "tfjobs", kubeflow.TensorFlowJob, TRAINING),
    ("kubeflow.org", "XGBoostJob"): Ownership(("kubeflow.org/v1",), "xgboostjobs", kubeflow.BoostJob, TRAINING),
    ("kubeflow.org", "MPIJob"): Ownership(
        ("kubeflow.org/v2beta1", "kubeflow.org/v1"), "mpijobs", kubeflow.MessageJob, RUN_POLICY
    ),
    ("ray.io", "RayCluster"): Ownership(("ray.io/v1",), "rayclusters", ray.RayCluster, is_resized=True),
    ("ray.io", "RayJob"): Ownership(("ray.io/v1",), "rayjobs", ray.RayJob, Switch(over=1)),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): Ownership(
        ("leaderworkerset.x-k8s.io/v1",), "leaderworkersets", serving.LeaderWorkerSet, None,
        label="leaderworkerset.sigs.k8s.io/name", group="leaderworkerset.sigs.k8s.io/group-index",
    ),
    ("batch.volcano.sh", "Job"): Ownership(
        ("batch.volcano.sh/v1alpha1",), "jobs", batch.VolcanoJob, None, word="vcjob",
        opens="scheduling.volcano.sh/v1beta1/podgroups",
    ),
    ("workload.codeflare.dev", "AppWrapper"): Ownership(
        ("workload.codeflare.dev/v1beta2",), "appwrappers", Wrapper, label="workload.codeflare.dev/appwrapper"
    ),
    ("sparkoperator.k8s.io", "SparkApplication"): Ownership(
        ("sparkoperator.k8s.io/v1beta2",), "sparkapplications", data.SparkApplication,
        label="sparkoperator.k8s.io/app-name", names=(("spec", "driver"), ("spec", "executor")),
    ),
    ("flink.apache.org", "FlinkDeployment"): Ownership(
        ("flink.apache.org/v1beta1",), "flinkdeployments", data.FlinkDeployment, None, label=FLINK,
        names=(("spec", "podTemplate", "spec"),),
    ),
}  # fmt: skip
"""The one table: group and kind of what is queued as a whole, and how. A kind that is not installed costs nothing."""
GROUPS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("scheduling.k8s.io", "PodGroup"): tuple(f"scheduling.k8s.io/{one}" for one in ("v1", "v1beta1", "v1alpha2")),
    ("scheduling.volcano.sh", "PodGroup"): ("scheduling.volcano.sh/v1beta1",),
}
"""What describes a gang of bare pods: group and kind, and the versions that are read."""
WORDS = {row.word or kind.lower(): (group, kind) for (group, kind), row in OWNERS.items()}
"""What begins the names of their Workloads → group and kind."""
LABELS = {row.label: key for key, row in OWNERS.items() if row.label}
GATED = frozenset((("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "ReplicaSet")))
"""Owners that cannot be suspended: their pods are workloads each, and wait at a scheduling gate."""


def pod(said: objects.PodObject) -> WorkloadObject:
    """The workload of a pod of nobody, or of one of many that are served alike. Where Fairway bound it is no wish of
    its author's: evicted, it may start anywhere."""
    is_bound_here = objects.ATTEMPT in said.metadata.annotations
    template = objects.PodTemplate(said.metadata, replace(said.spec, node_name="") if is_bound_here else said.spec)
    podsets = (PodSetSpec(MAIN, 1, template=template),)
    return workload_of(POD, said.metadata, podsets, said.spec.active_deadline_seconds)


def pod_group(name: str, pods: Sequence[objects.PodObject], least: int | None = None) -> WorkloadObject | None:
    """The gang of a group's pods; but where some have no node yet, without those that Fairway bound for an earlier one.
    None while some are still to come. `least`: how many are enough, where another object says so; the pods' labels else
    say how many they are. Pods alike in what they ask make a podset. The gang is as old as its youngest pod; what one
    pod's annotations say holds for all, and where they differ what the youngest says."""
    if len(pods) < (max(_size(one) for one in pods) if least is None else least):
        return None
    alike: dict[PodClass, list[objects.PodTemplate]] = {}
    fresh = [one for one in pods if not (one.spec.node_name and objects.ATTEMPT in one.metadata.annotations)]
    for one in sorted(fresh if any(not it.spec.node_name for it in pods) else pods, key=lambda one: one.metadata.name):
        unlike = objects.PodTemplate(replace(one.metadata, labels={}), replace(one.spec, node_name=""))
        alike.setdefault(pod_class(unlike, ""), []).append(objects.PodTemplate(one.metadata, one.spec))
    podsets = tuple(
        PodSetSpec(f"{MAIN}-{index}" if index else MAIN, len(same), template=same[0])
        for index, same in enumerate(alike.values())
    )
    if least is not None and len(pods) == sum(one.count for one in podsets):
        podsets = least_of(podsets, podsets[-1].name, least)
    metas = sorted((one.metadata for one in pods), key=lambda meta: (meta.creation_timestamp or "", meta.name))
    notes = {key: text for meta in metas for key, text in meta.annotations.items()}
    made = workload_of(POD, replace(metas[-1], name=name, annotations=notes), podsets)
    refs = tuple(objects.OwnerReference("Pod", one.metadata.name, one.metadata.uid, "v1") for one in pods)
    return replace(made, metadata=replace(made.metadata, owner_references=refs))


def _size(said: objects.PodObject) -> int:
    return within(f"metadata.labels[{objects.GROUP_SIZE}]", number, said.metadata.labels.get(objects.GROUP_SIZE, "1"))


ROLES = (
    "jobset.sigs.k8s.io/replicatedjob-name", "training.kubeflow.org/replica-type", "training.kubeflow.org/job-role",
    "ray.io/group", "ray.io/node-type", "volcano.sh/task-spec", "spark-role", "component",
)  # fmt: skip
"""Labels by which operators say of which part of their object a pod is; the part has the podset's name."""


MEMBER = "leaderworkerset.sigs.k8s.io/worker-index"


def role_of(labels: Mapping[str, str], podsets: Container[str]) -> str:
    """The podset that an operator says a pod is of; "" where it says nothing that is known."""
    named = [labels[key] for key in ROLES if key in labels]
    if MEMBER in labels:
        named.append("worker" if labels[MEMBER] != "0" else "leader")
    return next((one for role in named for one in (role, role.lower()) if one in podsets), "")


def controller_of(meta: objects.Metadata) -> objects.OwnerReference | None:
    return next((one for one in meta.owner_references if one.controller), None)


def kind_of(owner: objects.OwnerReference) -> tuple[str, str]:
    """Group and kind, as the table of owners names them."""
    return owner.api_version.rpartition("/")[0], owner.kind


def owner_of(meta: objects.Metadata) -> tuple[str, str, str] | None:
    """Group, kind and name of what a pod says it is of: a label of the operator's, else its controller."""
    if (ref := controller_of(meta)) is None:
        return None
    labels = meta.labels
    is_flink = labels.get("type", "").startswith("flink-")
    told = (label for label in LABELS if label in labels and (is_flink or label != FLINK))
    label = next(told, "")
    return (*LABELS[label], labels[label]) if label else (*kind_of(ref), ref.name)


def group_of(meta: objects.Metadata, spec: objects.PodSpec | None = None) -> str:
    """The name of the gang a bare pod is in; "" for none."""
    if own := meta.labels.get(objects.GROUP_NAME, ""):
        return own
    kind, name = described_by(meta, spec)
    return name if kind and controller_of(meta) is None else ""


def described_by(meta: objects.Metadata, spec: objects.PodSpec | None) -> tuple[tuple[str, str] | None, str]:
    """The object that describes the gang of a pod, by group and kind and name."""
    if spec and spec.scheduling_group.pod_group_name:
        return ("scheduling.k8s.io", "PodGroup"), spec.scheduling_group.pod_group_name
    name = meta.annotations.get(NAMED_GROUP, "")
    return (("scheduling.volcano.sh", "PodGroup"), name) if name else (None, "")


def queue_of(meta: objects.Metadata, namespace_labels: Mapping[str, str]) -> str:
    """The queue that a managed object goes to; "" for one that is not managed."""
    if objects.QUEUE in meta.labels:
        return meta.labels[objects.QUEUE]
    return DEFAULT_QUEUE if namespace_labels.get(objects.MANAGED) == "true" else ""


def is_of_others(meta: objects.Metadata, podsets: Iterable[PodSetSpec]) -> bool:
    """Whether an owner is left to another scheduler: a template names one, and no queue label asks for Fairway."""
    own = ("", objects.DEFAULT_SCHEDULER, objects.SCHEDULER)
    return objects.QUEUE not in meta.labels and any(one.template.spec.scheduler_name not in own for one in podsets)


def workload_of(
    kind: tuple[str, str], owner: objects.Metadata, podsets: tuple[PodSetSpec, ...], deadline: int | None = None
) -> WorkloadObject:
    """The Workload of an owner of a kind (apiVersion, name), with its annotations mirrored. It is as old as its owner,
    but not written yet: without uid and status. `deadline`: the seconds after which Kubernetes ends it, which are its
    time limit where no annotation says a shorter one; 0 is how Fairway ends a Job."""
    meta = objects.Metadata(
        name=name_of(kind[1], owner.name),
        namespace=owner.namespace,
        creation_timestamp=owner.creation_timestamp,
        owner_references=(objects.OwnerReference(kind[1], owner.name, owner.uid, kind[0], controller=True),),
    )
    spec = mirrored(owner, podsets)
    return WorkloadObject(meta, replace(spec, time_limit=shorter(spec.time_limit, deadline or 0)))


def _flag(text: str) -> object:
    return {"true": True, "false": False}.get(text, text)


def _words(text: str) -> object:
    return text.replace(",", " ").split()


MIRRORED: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "workload-type": ("workloadType", str), "preemptible": ("preemptible", _flag), "active": ("active", _flag),
    "paused": ("paused", _flag),
    "expected-runtime": ("expectedRuntime", str), "time-limit": (LIMIT, str), "deadline": ("deadline", str),
    "checkpoint-interval": ("checkpointInterval", str), "last-checkpoint": ("lastCheckpoint", str),
    "restart": ("restart", str), "on-disconnect": ("onDisconnect", str), "pools": ("pools", _words),
    "start-timeout": ("startTimeout", str), "idle-timeout": ("idleTimeout", str), "after": ("after", _words),
    "data": ("data", str), "priority-class": ("priorityClassName", str), "notify": ("notify", str),
}  # fmt: skip
"""Annotation (without `fairway.dev/`) → field of the spec, and how its text is read."""
PREFIX, NAMED_GROUP = f"{objects.GROUP}/", "scheduling.k8s.io/group-name"


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


def told(kind: str, error: Malformed, *, has_deadline: bool = False) -> Malformed:
    """A complaint about the Workload of an owner, as one about the owner's own field. `has_deadline`: its time limit is
    its `activeDeadlineSeconds`."""
    within_spec = error.field.removeprefix("spec.")
    for name, (field, _) in MIRRORED.items():
        if within_spec == field:
            return Malformed(error.message, f"spec.{DEADLINE}" if field == LIMIT and has_deadline else annotated(name))
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
    return [(key[len(PREFIX) :], text) for key, text in meta.annotations.items() if key.startswith(PREFIX)]


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
    if (mode := dict(_notes(owner)).get("elastic")) not in (None, "restart", "torchrun"):
        raise Malformed(f"found {shown(mode)}; one of restart, torchrun is allowed", annotated("elastic"))
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
        raise Malformed(f"found {shown(text)}; 0 to {most}, its number of pods, is allowed", annotated("min-count"))


def number(text: str) -> int:
    """A count in an annotation or label."""
    if not (text.isascii() and text.isdecimal() and len(text) < 7):
        raise Malformed(f"found {shown(text)}; a whole number from 0 is allowed")
    return int(text)
