"""What belongs together: a Workload, its owner and its pods, by the key of the Workload.

A pod is of the outermost of its controllers that is queued as a whole (its Job, or the JobSet of that), of its group,
or a workload of its own. Its controllers may be seen later than the pod, which then goes up to them; once it is of one
it stays there, since controllers go before their pods. An owner may go as soon as it is over, before its Workload
says so: how it ended is kept until then. An owner counts if it is managed (it or its namespace says so);
a pod only if it is left to Fairway to schedule, or says nothing of a scheduler but its own label names a queue. Any
other pod of another scheduler is used room and no more. Pods that ran and were lost are noted here for a moment: their
Job or their owner may be going too.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from fairway.api import objects, owners
from fairway.api.alone import workload_of_pod
from fairway.api.forms.form import Form, Outcome
from fairway.api.names import name_of
from fairway.api.objects import JobObject, Metadata, Object, PodObject, PodSpec
from fairway.api.pods import is_lost
from fairway.api.quantities import Malformed, time, time_text
from fairway.api.queues import default_class
from fairway.api.types import WorkloadObject
from fairway.api.workloads import key_of, priority_class
from fairway.kube.kinds import Kind

from .bind import ended_at, is_released, stays
from .owner import JobOwner, KindOwner, Owner, PodsOwner, manifests
from .status import holds
from .view import Named, View, asked

GROUP_FULL = "GroupFull"  # the reason of a condition of pods that came too late
PRIORITY_CLASS = "fairway.dev/priority-class"
ORDERED = 1_000_000  # versions told apart within a second


@dataclass(frozen=True, slots=True)
class Case:
    """`late`: pods that came to a group that had started without them; they are not of it."""

    key: str
    workload: WorkloadObject | None
    owner: Owner | None
    pods: tuple[PodObject, ...] = ()
    late: tuple[PodObject, ...] = ()


class Cases:
    def __init__(self, view: View) -> None:
        self.view = view
        self.pods_of: defaultdict[str, dict[str, PodObject]] = defaultdict(dict)
        self.lost: defaultdict[str, dict[str, PodObject]] = defaultdict(dict)
        self.lost_since: dict[str, float] = {}
        self.gone: dict[str, float] = {}  # when the last to end had ended of the pods that went since we look
        self._first: dict[str, int] = {}  # of all that may be managed
        self._ended: dict[str, Outcome] = {}  # of owners that went before their Workloads
        self._keys: dict[str, str] = {}  # of pods, by uid

    def note(self, old: PodObject | None, new: PodObject | None, *, now: float) -> str:
        """A pod changed; the key of its workload."""
        seen = new or old
        assert seen is not None
        key, name = self.key_of_pod(seen), key_of(seen.metadata)
        self._keys[seen.metadata.uid] = key
        if new is None:
            self._keys.pop(seen.metadata.uid, None)
            if key in self.view.workloads:
                self.gone[key] = max(self.gone.get(key, 0.0), ended_at(seen, now))
        if new is not None:
            self.pods_of[key][name] = new
            self.came(key, new)
        elif self.pods_of[key].pop(name, None) and not self.pods_of[key]:
            del self.pods_of[key]
            self.came(key, None)
        if old is not None and stays(old) and _is_going(new):
            self.lost[key][old.metadata.uid] = new or old
            self.lost_since.setdefault(key, now)
        return key

    def has_moved(self, pod: PodObject) -> bool:
        """Whether a pod that is known is of another workload than it was."""
        return self._keys.get(pod.metadata.uid) not in (None, self.key_of_pod(pod))

    def came(self, key: str, seen: Object | None) -> None:
        """Remembers the version at which an owner was first seen: its place among those of the same second."""
        if seen is None:
            self._first.pop(key, None)
        else:
            self._first.setdefault(key, int(seen.metadata.resource_version or 0))

    def went(self, key: str, owner: Form) -> None:
        """An owner is deleted: how it ended counts until its Workload is let go."""
        self.came(key, None)
        outcome = owner.outcome()
        if outcome and key in self.view.workloads:
            self._ended[key] = outcome

    def outcome(self, case: Case) -> Outcome | None:
        """How its owner ended, also where that is gone."""
        return case.owner.outcome() if case.owner else self._ended.get(case.key)

    def let_go(self, key: str) -> None:
        """Its Workload is kept no longer."""
        self._ended.pop(key, None)
        self.gone.pop(key, None)
        self.found(key)

    def submitted(self, key: str, created: str | None, *, now: float) -> float:
        """When an owner was made. Its timestamp is in whole seconds: the rest is the order in which they were seen."""
        second = time(created) if created else float(int(now))
        return second + self._first.get(key, 0) % ORDERED / (ORDERED + 1)

    def workload(self, key: str) -> WorkloadObject | None:
        """The Workload as it is written; what a bare pod stands for where none is, or nothing in it yet."""
        stored, pods = self.view.stored.get(key), self.pods_of.get(key, {})
        if len(pods) != 1 or (stored is not None and stored.status.phase):
            return stored
        (pod,) = pods.values()
        if not _is_left_to_us(pod) or not key.endswith(f"/{name_of('Pod', pod.metadata.name)}"):
            return stored
        try:
            read = workload_of_pod(pod)
        except Malformed:
            return stored
        if stored is not None:
            return replace(stored, status=read.status) if read and read.status.phase else stored
        return read and self._dated(key, read)

    def _dated(self, key: str, read: WorkloadObject) -> WorkloadObject:
        """With what its own object would say, too."""
        meta, spec, known = read.metadata, read.spec, self.view.workloads.get(key)
        if known is not None and known.metadata.uid == meta.uid:
            notes = known.metadata.annotations  # when it was made does not change
        else:
            notes = {objects.SUBMITTED: time_text(self.submitted(key, meta.creation_timestamp, now=0.0))}
        if (name := priority_class(spec, default_class(self.view.classes))) != spec.priority_class_name:
            spec = replace(spec, priority_class_name=name)
        return replace(read, metadata=replace(meta, annotations=notes), spec=spec)

    def is_strange(self, key: str) -> bool:
        """Whether all pods under a key are left to other schedulers, and no owner that is queued as a whole has it."""
        pods = self.pods_of.get(key, {}).values()
        is_whole = key.partition("/")[2].partition("-")[0] in owners.WORDS
        return not is_whole and not any(map(_is_left_to_us, pods))

    def priority(self, key: str) -> int:
        """Of a workload that no decision knows yet, as far as its owner tells at a glance: what is made first."""
        namespace, _, name = key.partition("/")
        job = self.view.jobs.get(f"{namespace}/{name.removeprefix('job-')}")
        first = next(iter(self.pods_of.get(key, {}).values()), None)
        spec = job.spec.template.spec if job else first.spec if first else PodSpec()
        owner = job or first
        named = owner.metadata.annotations.get(PRIORITY_CLASS, "") if owner else ""
        found = self.view.classes.get(named or spec.priority_class_name)
        return found.value if found else spec.priority or 0

    def inside(self, namespace: str) -> list[str]:
        """The keys of all there may be a Workload for."""
        return [key for key in self._first if key.startswith(f"{namespace}/")]

    def counted(self, key: str, pods: Iterable[PodObject]) -> None:
        """These lost pods are accounted for; others may have been lost meanwhile."""
        for pod in pods:
            self.lost[key].pop(pod.metadata.uid, None)

    def found(self, key: str) -> None:
        """Whoever was lost is accounted for."""
        self.lost.pop(key, None)
        self.lost_since.pop(key, None)

    def case(self, key: str) -> Case:
        workload = self.view.workloads.get(key)
        pods = tuple(self.pods_of[key].values()) if key in self.pods_of else ()
        stays = workload is not None and workload.status.admission is not None  # managed, whatever its label says now
        namespace, _, name = key.partition("/")
        word, _, own = name.partition("-")
        if word in owners.WORDS:
            return Case(key, workload, self._owner(owners.WORDS[word], f"{namespace}/{own}", pods, stays=stays), pods)
        ours = [pod for pod in pods if _is_left_to_us(pod) and (stays or self.is_managed(pod.metadata))]
        ours.sort(key=lambda pod: pod.metadata.name)
        late = _late(workload, ours)
        ours, pods = ([it for it in those if it not in late] for those in (ours, pods))
        own = name.removeprefix(name_of("Pod", ""))
        owner = PodsOwner(namespace, own, tuple(ours), self._least(ours[0]), self._members(workload)) if ours else None
        return Case(key, workload, owner, tuple(pods), late)

    def is_managed(self, meta: Metadata) -> bool:
        """Whether an object or its namespace says that it queues."""
        space = self.view.namespaces.get(meta.namespace)
        return bool(owners.queue_of(meta, space.metadata.labels if space else {}))

    def _members(self, said: WorkloadObject | None) -> int:
        """The pods of a group that is evicted, or has lost some; 0 of one that has all."""
        if said is None or said.status.admission is None:
            return 0
        count = sum(one.count for one in said.spec.pod_sets)
        lacks = said.status.admission.pods < count or bool(self.lost.get(key_of(said.metadata)))
        return count if lacks or holds(said.status, "Evicted") else 0

    def _least(self, pod: PodObject) -> int | None:
        """The fewest pods of its gang that start, where another object is to say so; 0 while that is not there."""
        kind, name = owners.described_by(pod.metadata, pod.spec)
        if kind is None or objects.GROUP_NAME in pod.metadata.labels:
            return None
        said = self.view.group(kind, f"{pod.metadata.namespace}/{name}")
        return said.least if said else 0

    def _owner(self, kind: tuple[str, str], key: str, pods: tuple[PodObject, ...], *, stays: bool) -> Owner | None:
        """The owner that stands under a key, if it is queued as a whole, managed and left to Fairway, or stays so."""
        row, source, replica = owners.OWNERS[kind], None, ""
        if row.group:
            key, _, replica = key.rpartition("-")
        said, where = self.view.owner(kind, key), self.view.watched(kind)
        if said is None or where is None or self.view.above(said.metadata):
            return None
        if not stays and (not self.is_managed(said.metadata) or owners.is_of_others(said.metadata, asked(said))):
            return None
        if isinstance(said, JobObject):
            return JobOwner(said)
        if replica and not pods and replica not in map(str, owners.replicas(said)):
            return None
        if row.source:
            source = self.view.owner(row.source, key)
            controller = source and self.view.above(source.metadata)
            source = source if controller == (*kind, said.metadata.name) else None
        return KindOwner(kind, where, said, source, pods, replica)

    def key_of_pod(self, pod: PodObject) -> str:
        """The key of the Workload that a pod is of, if there is one."""
        meta = pod.metadata
        owner = owners.owner_of(meta)
        if owner is None and is_released(pod):
            return f"{meta.namespace}/{meta.annotations[objects.RELEASED]}"
        known = self._keys.get(meta.uid)
        if owner and known not in (None, f"{meta.namespace}/{_name(pod, None)}"):  # which it was while it had no owner
            return known
        top = self.view.top(meta.namespace, owner) if owner else None
        return f"{meta.namespace}/{_name(pod, top)}"

    def moved(self, kind: Kind, seen: Object) -> set[str]:
        """An owner came or changed: the keys of the Workloads that it matters to. Pods that were taken for its own go
        up to what stands above it."""
        if group_kind(kind) in owners.GROUPS:
            return {f"{seen.metadata.namespace}/{name_of('Pod', seen.metadata.name)}"}
        meta, own = seen.metadata, key_of_owner(kind, seen)
        top = self.view.top(meta.namespace, (*group_kind(kind), meta.name))
        above = f"{meta.namespace}/{name_of(word_of(top), top[2])}"
        if own != above and own in self.pods_of:
            for name, pod in self.pods_of.pop(own).items():
                self.pods_of[above][name] = pod
                self._keys[pod.metadata.uid] = above
        if owners.OWNERS[group_kind(kind)].group:
            known = {*self.pods_of, *self.view.workloads, *(f"{own}-{row}" for row in owners.replicas(seen))}
            return {one for one in known if one.rpartition("-")[0] == own}
        return {own, above}


def _late(said: WorkloadObject | None, pods: Sequence[PodObject]) -> tuple[PodObject, ...]:
    """Pods that a group has beyond those that it started with, and makes again."""
    if said is None or not said.status.attempt or objects.MANIFESTS not in said.metadata.annotations:
        return ()
    out = [it for it in pods if not it.spec.node_name]
    told = [it for it in out if any(one.reason == GROUP_FULL for one in it.status.conditions)]
    if len(pods) - len(told) <= sum(one.count for one in said.spec.pod_sets):
        return tuple(told)
    known = manifests(said)
    return tuple(it for it in out if it.metadata.name not in known)


def _is_left_to_us(pod: PodObject) -> bool:
    meta, by = pod.metadata, pod.spec.scheduler_name
    is_bare = not any(one.controller for one in meta.owner_references)
    is_unsaid = is_bare and objects.QUEUE in meta.labels and by in ("", objects.DEFAULT_SCHEDULER)
    return by == objects.SCHEDULER or is_unsaid


def _is_going(pod: PodObject | None) -> bool:
    return pod is None or pod.metadata.is_going or is_lost(pod.status)


def _name(pod: PodObject, top: Named | None) -> str:
    """Of its Workload: one of its own where nothing of a known kind stands above it."""
    row, group = owners.OWNERS.get(top[:2]) if top else None, "" if top else owners.group_of(pod.metadata, pod.spec)
    if top is None or row is None:
        return name_of("Pod", group or pod.metadata.name)
    name = name_of(word_of(top), top[2])
    return f"{name}-{pod.metadata.labels.get(row.group, '')}" if row.group else name


def group_kind(kind: Kind) -> tuple[str, str]:
    """As the table of owners names a kind."""
    return kind.group_version.rpartition("/")[0], kind.name


def key_of_owner(kind: Kind, seen: Object) -> str:
    """The key of the Workload of an owner, if it is queued as a whole."""
    meta = seen.metadata
    return f"{meta.namespace}/{name_of(word_of((*group_kind(kind), meta.name)), meta.name)}"


def word_of(owner: Named) -> str:
    """What begins the names of its Workloads."""
    row = owners.OWNERS.get(owner[:2])
    return (row and row.word) or owner[1].lower()
