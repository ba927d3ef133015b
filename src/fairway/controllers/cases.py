"""What belongs together: a Workload, its owner and its pods, by the key of the Workload.

A pod's workload is read off the pod alone: its Job's, its group's, or its own. An owner counts if it is managed (it
or its namespace says so); a pod only if it is left to Fairway to schedule, or says nothing of a scheduler but its own
label names a queue. Any other pod of another scheduler is used room and no more. Pods that ran and were lost are noted
here for a moment: their Job or their owner may be going too.
"""

from collections import defaultdict
from dataclasses import dataclass

from fairway.api.objects import DEFAULT_SCHEDULER, QUEUE, SCHEDULER, JobObject, PodObject
from fairway.api.owners import GATED, group_of, is_of_others, name_of, queue_of
from fairway.api.owners import job as read_job
from fairway.api.pods import is_lost
from fairway.api.quantities import time
from fairway.api.types import WorkloadObject
from fairway.api.workloads import key_of

from .bind import holds_room
from .owner import JobOwner, Owner, PodsOwner
from .view import View

ORDERED = 1_000_000  # versions told apart within a second


@dataclass(frozen=True, slots=True)
class Case:
    key: str
    workload: WorkloadObject | None
    owner: Owner | None
    pods: tuple[PodObject, ...] = ()


class Cases:
    def __init__(self, view: View) -> None:
        self.view = view
        self.pods_of: defaultdict[str, dict[str, PodObject]] = defaultdict(dict)
        self.lost: defaultdict[str, dict[str, PodObject]] = defaultdict(dict)
        self.lost_since: dict[str, float] = {}
        self._first: dict[str, int] = {}  # of all that may be managed

    def note(self, old: PodObject | None, new: PodObject | None, *, now: float) -> str:
        """A pod changed; the key of its workload."""
        seen = new or old
        assert seen is not None
        key, name = key_of_pod(seen), key_of(seen.metadata)
        if new is not None:
            self.pods_of[key][name] = new
            self.came(key, new)
        elif self.pods_of[key].pop(name, None) and not self.pods_of[key]:
            del self.pods_of[key]
            self.came(key, None)
        if old is not None and holds_room(old) and old.metadata.deletion_timestamp is None and _is_going(new):
            self.lost[key][old.metadata.uid] = old
            self.lost_since.setdefault(key, now)
        return key

    def came(self, key: str, seen: PodObject | JobObject | None) -> None:
        """Remembers the version at which an owner was first seen: its place among those of the same second."""
        if seen is None:
            self._first.pop(key, None)
        else:
            self._first.setdefault(key, int(seen.metadata.resource_version or 0))

    def submitted(self, key: str, created: str | None, *, now: float) -> float:
        """When an owner was made. Its timestamp is in whole seconds: the rest is the order in which they were seen."""
        second = time(created) if created else float(int(now))
        return second + self._first.get(key, 0) % ORDERED / (ORDERED + 1)

    def inside(self, namespace: str) -> list[str]:
        """The keys of all there may be a Workload for."""
        return [key for key in self._first if key.startswith(f"{namespace}/")]

    def found(self, key: str) -> None:
        """Whoever was lost is accounted for."""
        self.lost.pop(key, None)
        self.lost_since.pop(key, None)

    def case(self, key: str) -> Case:
        workload = self.view.workloads.get(key)
        pods = tuple(self.pods_of[key].values()) if key in self.pods_of else ()
        namespace, _, name = key.partition("/")
        space = self.view.namespaces.get(namespace)
        labels = space.metadata.labels if space else {}
        if name.startswith(name_of("Job", "")):
            job = self.view.jobs.get(f"{namespace}/{name.removeprefix(name_of('Job', ''))}")
            is_managed = job and queue_of(job.metadata, labels) and not is_of_others(job.metadata, read_job(job))
            owner = JobOwner(job) if job and is_managed else None
            return Case(key, workload, owner, pods)
        ours = [pod for pod in pods if _is_left_to_us(pod) and queue_of(pod.metadata, labels)]
        ours.sort(key=lambda pod: pod.metadata.name)
        owner = PodsOwner(namespace, name.removeprefix(name_of("Pod", "")), tuple(ours)) if ours else None
        return Case(key, workload, owner, pods)


def _is_left_to_us(pod: PodObject) -> bool:
    is_bare = not any(one.controller for one in pod.metadata.owner_references)
    unsaid = is_bare and QUEUE in pod.metadata.labels and pod.spec.scheduler_name in ("", DEFAULT_SCHEDULER)
    return pod.spec.scheduler_name == SCHEDULER or unsaid


def _is_going(pod: PodObject | None) -> bool:
    return pod is None or pod.metadata.deletion_timestamp is not None or is_lost(pod.status)


def key_of_pod(pod: PodObject) -> str:
    """The key of the Workload that a pod is of, if there is one."""
    meta = pod.metadata
    owner = next((one for one in meta.owner_references if one.controller), None)
    if owner and owner.kind == "Job":
        return f"{meta.namespace}/{name_of('Job', owner.name)}"
    if owner and (owner.api_version.partition("/")[0], owner.kind) not in GATED:
        return f"{meta.namespace}/{owner.kind.lower()}-{owner.name}"
    name = meta.name if owner else group_of(meta) or meta.name
    return f"{meta.namespace}/{name_of('Pod', name)}"
