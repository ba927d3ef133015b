"""A bare pod that is its own Workload: read off the pod while that carries all there is to remember.

A pod that was bound at once says where it runs, since when and how it ended; an object beside it would say it again.
So it has none until something is to be remembered that a pod cannot say: why it waits, that it was evicted, whom it
was told of. What binding writes on it tells it from a pod that has a Workload: the uid in `fairway.dev/attempt` is its
own. What it used is charged when it is over; `fairway.dev/charged` on it says that this was done.
"""

from functools import lru_cache

import msgspec
from msgspec.structs import replace

from . import conditions as words
from . import objects, owners
from .forms.batch import MAIN
from .forms.form import Outcome
from .names import name_of
from .pods import is_disrupted, is_lost
from .types import AdmissionStatus, NodePods, PodSetNodes, PodSetSpec, WorkloadObject, WorkloadSpec, WorkloadStatus
from .volumes import claims_of
from .workloads import condition

NOTIFY = f"{objects.GROUP}/notify"


def is_plain(pod: objects.PodObject) -> bool:
    """Whether it may be without a Workload: it names its queue and no other scheduler, is in no gang, wants no note,
    and asks for no memory of a GPU, since its Workload keeps how large a part of one that was."""
    meta, spec, notes = pod.metadata, pod.spec, pod.metadata.annotations
    is_active = notes.get(objects.ACTIVE, "true") == "true" and notes.get(objects.PAUSED, "false") == "false"
    is_ours = spec.scheduler_name == objects.SCHEDULER or any(one.name == objects.GATE for one in spec.scheduling_gates)
    is_wordless = is_active and NOTIFY not in notes and objects.GPU_MEMORY not in notes
    return objects.QUEUE in meta.labels and is_ours and is_wordless and not owners.group_of(meta, spec)


def is_alone(said: WorkloadObject) -> bool:
    """Whether it is read off its pod, and written nowhere."""
    return not said.metadata.resource_version


def is_its_own(pod: objects.PodObject) -> bool:
    """Whether Fairway bound it without a Workload."""
    uid = pod.metadata.uid
    return bool(pod.spec.node_name and uid) and f"/{uid}/" in pod.metadata.annotations.get(objects.ATTEMPT, "")


def attempt(pod: objects.PodObject) -> str:
    """What says so."""
    return f"pod-{pod.metadata.name}/{pod.metadata.uid}/1"


def workload_of_pod(pod: objects.PodObject) -> WorkloadObject | None:
    """The Workload that a pod stands for, without a resourceVersion, since it is written nowhere; None where it is to
    have one of its own, or is none of Fairway's. Raises Malformed."""
    is_bound = is_its_own(pod)
    if not is_bound and (pod.spec.node_name or pod.status.is_over or not is_plain(pod)):
        return None
    meta, spec = pod.metadata, _wanted(_likeness(pod))
    gone = meta.deletion_timestamp if not is_disrupted(pod.status) else None
    is_owed = is_bound and objects.CHARGED not in meta.annotations
    about = objects.Metadata(
        name_of("Pod", meta.name), meta.namespace, meta.uid, creation_timestamp=meta.creation_timestamp,
        deletion_timestamp=gone, deletion_grace_period_seconds=meta.deletion_grace_period_seconds,
        owner_references=(objects.OwnerReference("Pod", meta.name, meta.uid, "v1", controller=True),),
        finalizers=(objects.FINALIZER,) if is_owed else (),
    )  # fmt: skip
    return WorkloadObject(about, spec, _status(pod) if is_bound else WorkloadStatus())


def _likeness(pod: objects.PodObject) -> bytes:
    """What it asks for, without what tells it from others, as the volume of its token has a name of its own: pods
    alike are read once, and share what they mean."""
    meta = pod.metadata
    ours = {key: text for key, text in meta.annotations.items() if key.startswith(owners.PREFIX)}
    notes = {key: text for key, text in ours.items() if key not in objects.OF_CONTROLLER}
    claims = tuple(objects.Volume(persistent_volume_claim=objects.VolumeUse(name)) for name, _ in claims_of(pod))
    spec = replace(pod.spec, node_name="", volumes=claims)
    return msgspec.json.encode(objects.PodObject(objects.Metadata(labels=meta.labels, annotations=notes), spec))


@lru_cache(maxsize=1024)
def _wanted(likeness: bytes) -> WorkloadSpec:
    like = msgspec.json.decode(likeness, type=objects.PodObject)
    made, notes = owners.pod(like).spec, like.metadata.annotations
    shared = {key: text for key, text in notes.items() if key in (objects.FRACTION, objects.GPU_MEMORY)}
    template = objects.PodTemplate(replace(like.metadata, annotations=shared), like.spec)
    named = made.priority_class_name or like.spec.priority_class_name
    return replace(made, pod_sets=(PodSetSpec(MAIN, 1, template=template),), priority_class_name=named)


def _status(pod: objects.PodObject) -> WorkloadStatus:
    """Of a pod that is bound, or over."""
    meta, status = pod.metadata, pod.status
    own = tuple(int(one) for one in meta.annotations.get(objects.ASSIGNED, "").split(",") if one.isdecimal())
    nodes = (NodePods(pod.spec.node_name, 1, (own,) if own else ()),)
    at = _since(pod, "PodScheduled") or meta.creation_timestamp
    told = [objects.Condition("Admitted", "True", "Admitted", "", at)]
    where = AdmissionStatus(meta.annotations.get(objects.POOL, ""), (PodSetNodes(MAIN, nodes),))
    reason, said = words.refusal((pod,))
    found = WorkloadStatus("Admitted", reason, said, admission=where, attempt=1)
    is_over = status.is_over and not is_lost(status) and not meta.is_going
    if not is_over:
        ready = _since(pod, "Ready")
        told += [objects.Condition("Running", "True", "PodsReady", "", ready)] if ready else []
        return replace(found, phase="Running" if ready else "Admitted", conditions=tuple(told))
    outcome = Outcome(status.phase == "Succeeded", words.pod_failure(pod), f"pod {meta.name} failed")
    reason, said = words.ended(outcome, (pod,))
    told.append(objects.Condition(objects.FINISHED, "True", reason, said, ended(status) or at))
    return replace(found, phase=status.phase, reason=reason, message=said, conditions=tuple(told))


def ended(status: objects.PodStatus) -> str:
    """When the last of its containers ended; "" where nobody says so."""
    ends = (one.state.terminated for one in status.container_statuses)
    return max((one.finished_at or "" for one in ends if one), default="")


def _since(pod: objects.PodObject, kind: str) -> str | None:
    found = condition(pod.status.conditions, kind)
    return found.last_transition_time if found and found.status == "True" else None
