"""Which pod goes to which place of an admission, and the writes that put it there.

A placement lists places in rank order. A pod with a completion index takes the place of its rank, the others the
first free one: in a group in the order of their ranks, else in the order they were made. A place is free unless a pod
that is bound to it still runs; a pod that is terminating runs until it is gone. A pod on a node for which no place is
left (its workload shrank) is to go; what takes its place unbound waits for growth. A pod that another scheduler bound
is not to go: its place becomes one of the admission (`adopted`). Binding writes the devices onto the pod in the same
request, so that a pod never starts without them; the scheduling gate goes first, since nobody may bind a gated pod. In
that write a pod that names another scheduler is tied to its node: whoever binds it then, it goes where it was placed.

A pod that Fairway ends is released from its Job first: the Job controller judges each failed pod that its Job owns, by
rules that nobody can change any more, and counts each that is deleted. A released pod keeps its labels but those by
which its Job would find it and take it back, and stays a pod of its Workload until it is gone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from msgspec.structs import replace

from fairway.api import objects
from fairway.api.alone import ended
from fairway.api.names import name_of, ranks
from fairway.api.objects import PodObject, PodStatus, PodTemplate
from fairway.api.owners import controller_of, group_of, kind_of, role_of
from fairway.api.pods import lasting, pod_class
from fairway.api.quantities import time
from fairway.engine import Admission, NodeShare, PodSetPlacement, Workload
from fairway.kube import kinds
from fairway.kube.client import STRATEGIC, Client
from fairway.kube.kinds import Ref
from fairway.kube.turnstile import side_by_side

RANKS = ("training.kubeflow.org/replica-index", "volcano.sh/task-index", "ray.io/replica-host-index")
"""Labels of pods by which operators number those that are alike."""
SHRUNK = "Fairway: its workload runs on with fewer pods"
JOB = ("batch", "Job")
OF_JOB = ("controller-uid", "batch.kubernetes.io/controller-uid")
"""Labels by which a Job finds its pods, unless its user chose others."""
TRACKING = "batch.kubernetes.io/job-tracking"


@dataclass(frozen=True, slots=True)
class Place:
    node: str
    devices: tuple[int, ...] = ()


def places(placement: PodSetPlacement) -> list[Place]:
    """One for each pod, in rank order."""
    return [Place(share.node, own) for share in placement.nodes for own in share.devices or ((),) * share.count]


def packed(name: str, places: Iterable[Place]) -> PodSetPlacement:
    """The placement of these places, in their order."""
    shares = [(node, list(own)) for node, own in groupby(places, key=attrgetter("node"))]
    devices = [tuple(place.devices for place in own if place.devices) for _, own in shares]
    return PodSetPlacement(name, tuple(NodeShare(node, len(own), it) for (node, own), it in zip(shares, devices)))


def without(placed: Admission, pods: Iterable[PodObject]) -> Admission:
    """The admission less the places of these pods."""
    left, podsets = list(pods), []
    for placement in placed.podsets:
        free: list[Place | None] = list(places(placement))
        left = [pod for pod in left if not _take(free, pod)]
        podsets.append(packed(placement.name, filter(None, free)))
    return Admission(placed.pool, tuple(podsets))


def less(placed: Admission, rest: Admission) -> list[PodSetPlacement]:
    """The places of the one that the other has not."""
    stay = {one.name: Counter(places(one)) for one in rest.podsets}
    left = {one.name: Counter(places(one)) - stay.get(one.name, Counter()) for one in placed.podsets}
    return [packed(name, found.elements()) for name, found in left.items() if found]


def dropping(placed: Admission, gone: Iterable[Place]) -> Admission:
    """The admission less these places."""
    left, podsets = Counter(gone), []
    for placement in placed.podsets:
        kept = []
        for place in places(placement):
            if left[place]:
                left[place] -= 1
            else:
                kept.append(place)
        podsets.append(packed(placement.name, kept))
    return Admission(placed.pool, tuple(podsets))


def by_podset(
    placed: Admission, value: Workload, pods: Sequence[PodObject]
) -> list[tuple[PodSetPlacement, list[PodObject]]]:
    """Each placement with the pods of its podset: those that ask for the same."""
    if len(placed.podsets) == 1:
        return [(placed.podsets[0], list(pods))]
    return [(one, [pod for pod in pods if _is_of(pod, one, value)]) for one in placed.podsets]


def _is_of(pod: PodObject, placement: PodSetPlacement, value: Workload) -> bool:
    if role := role_of(pod.metadata.labels, [podset.name for podset in value.podsets]):
        return role == placement.name
    spec = replace(pod.spec, node_name="")
    kind = lasting(pod_class(PodTemplate(pod.metadata, spec), pod.metadata.namespace))
    alike = [podset.name for podset in value.podsets if lasting(podset.pod) == kind]
    # An API server adds to a pod what its template did not say, tolerations above all: what it requests stays.
    alike = alike or [podset.name for podset in value.podsets if podset.pod.requests == kind.requests]
    return placement.name in (alike or [value.podsets[0].name])


def strays(placement: PodSetPlacement, pods: Sequence[PodObject]) -> list[PodObject]:
    """Pods that hold room for which there is no place."""
    return _settled(placement, pods)[1]


def within(placed: Admission, value: Workload, pods: Sequence[PodObject]) -> Admission:
    """The admission less the places above what its podsets count, the last first, where no pod is to stay."""
    most = {podset.name: podset.count for podset in value.podsets}
    staying = list(filter(stays, pods))
    podsets = []
    for placement, own in by_podset(placed, value, staying):
        free, kept = _settled(placement, own)[0], places(placement)
        for row in [row for row, place in enumerate(free) if place][::-1][: max(0, len(kept) - most[placement.name])]:
            del kept[row]
        podsets.append(packed(placement.name, kept))
    return Admission(placed.pool, tuple(podsets))


def adopted(placed: Admission, value: Workload, pods: Sequence[PodObject], uid: str) -> Admission:
    """The admission with the places that others bound pods to: each in the stead of a free place, else one more.
    `uid`: the Workload's."""
    most = {podset.name: podset.count for podset in value.podsets}
    podsets = []
    for placement, own in by_podset(placed, value, pods):
        rows, (free, unplaced) = places(placement), _settled(placement, own)
        for pod in (pod for pod in unplaced if is_of_others(pod, uid)):
            row = next((row for row, place in enumerate(free) if place), None)
            if row is not None:
                rows[row], free[row] = place_of(pod), None
            elif len(rows) < most[placement.name]:
                rows.append(place_of(pod))
        podsets.append(packed(placement.name, rows))
    return Admission(placed.pool, tuple(podsets))


def is_of_others(pod: PodObject, uid: str = "") -> bool:
    """Whether it stays, and another scheduler bound it; or Fairway did for a Workload other than the one of this `uid`,
    as before Fairway was taken off the cluster and installed again."""
    by = pod.metadata.annotations.get(objects.ATTEMPT)
    is_ours = by is not None and uid in by
    return stays(pod) and not is_ours and not is_released(pod)


def is_left(pod: PodObject) -> bool:
    """Whether it runs on, though Fairway bound it for an owner that it has no longer, and not for a group."""
    meta, group = pod.metadata, group_of(pod.metadata, pod.spec)
    by = meta.annotations.get(objects.ATTEMPT, "").partition("/")[0]
    is_single = not group or (group == meta.labels.get(objects.GROUP_NAME) and by != name_of("Pod", group))
    is_bound = bool(by) and holds_room(pod) and not meta.is_going
    return is_bound and is_single and controller_of(meta) is None and not is_released(pod)


def is_released(pod: PodObject) -> bool:
    return objects.RELEASED in pod.metadata.annotations


def _settled(placement: PodSetPlacement, pods: Sequence[PodObject]) -> tuple[list[Place | None], list[PodObject]]:
    """The places, those taken out, and the pods on nodes without one. Who stays and came first is first served."""
    free: list[Place | None] = list(places(placement))
    held = sorted(filter(holds_room, _in_turn(pods)), key=lambda pod: pod.metadata.is_going)
    return free, [pod for pod in held if not _take(free, pod)]


def assign(placement: PodSetPlacement, pods: Sequence[PodObject]) -> list[tuple[PodObject, Place]]:
    """Pods that wait for a node, each with its place; those for whom none is free are left out."""
    free, _ = _settled(placement, pods)
    given: list[tuple[PodObject, Place]] = []
    for pod in _in_turn(pods):
        if pod.spec.node_name or pod.status.is_over or pod.metadata.is_going:
            continue
        own = rank(pod)
        first = next((row for row, place in enumerate(free) if place), None)
        row = own if own is not None and own < len(free) and free[own] else first
        if row is not None and (place := free[row]):
            given.append((pod, place))
            free[row] = None
    return given


def _take(free: list[Place | None], pod: PodObject) -> bool:
    """The place of a pod that is bound: the very one, else, where devices do not tell, any on its node."""
    own = place_of(pod)
    rows = [row for row, place in enumerate(free) if place and place.node == own.node]
    fitting = [row for row in rows if free[row] == own]
    fitting = fitting if fitting or own.devices else rows
    for row in fitting[:1]:
        free[row] = None
    return bool(fitting)


def _in_turn(pods: Sequence[PodObject]) -> list[PodObject]:
    """By rank, then age."""
    members = [pod.metadata for pod in pods if group_of(pod.metadata, pod.spec)]
    grouped = {meta.name: meta.labels.get(objects.GROUP_SIZE, "") for meta in members}
    own = ranks(grouped, max(grouped.values(), default=""))
    aged = sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))
    return sorted(aged, key=lambda pod: (rank(pod) is None, rank(pod) or own.get(pod.metadata.name, 0)))


def rank(pod: PodObject) -> int | None:
    """Its place among the pods of its podset, as its controller says it."""
    meta = pod.metadata
    said = (meta.annotations.get(objects.INDEX, ""), *(meta.labels.get(key, "") for key in RANKS))
    return next((int(text) for text in said if text.isdecimal()), None)


def ended_at(pod: PodObject, now: float) -> float:
    """When the last of its containers ended, in whole seconds; `now` where it is not over, or nobody says when."""
    said = ended(pod.status) if pod.status.is_over else ""
    return min(now, time(said)) if said else now


def place_of(pod: PodObject) -> Place:
    """Where a bound pod is."""
    devices = pod.metadata.annotations.get(objects.ASSIGNED, "").split(",")
    return Place(pod.spec.node_name, tuple(int(index) for index in devices if index.isdecimal()))


def holds_room(pod: PodObject) -> bool:
    """It is on a node and may still run there."""
    return bool(pod.spec.node_name) and not pod.status.is_over


def stays(pod: PodObject) -> bool:
    """It holds room, and is not told to go."""
    return holds_room(pod) and not pod.metadata.is_going


def ref_of(pod: PodObject) -> Ref:
    return Ref(kinds.PODS, pod.metadata.name, pod.metadata.namespace)


async def remove(client: Client, pods: Iterable[PodObject]) -> None:
    """Those that are not going already, as they were seen: one that has ended meanwhile stays."""
    await side_by_side(remove_one(client, pod) for pod in pods if not pod.metadata.is_going)


async def remove_one(client: Client, pod: PodObject) -> None:
    await client.delete(ref_of(pod), uid=pod.metadata.uid, version=pod.metadata.resource_version)


async def take_back(client: Client, pods: Iterable[PodObject], workload: str, found_by: Iterable[str] = ()) -> None:
    """Removes surplus pods of a Workload. Their Job counts no failure of them; what else owns them hears that they go
    for the cluster's sake. `found_by`: as of `release`."""

    async def one(pod: PodObject) -> None:
        await release(client, pod, workload, found_by)
        await _disrupt(client, pod)
        await client.delete(ref_of(pod), uid=pod.metadata.uid)

    await side_by_side(one(pod) for pod in pods if not pod.metadata.is_going)


async def release(client: Client, pod: PodObject, workload: str, found_by: Iterable[str] = ()) -> None:
    """Takes a pod from its Job, if it has one. It is of that Workload still, by a note on it. `found_by`: labels by
    which its user has the Job find its pods."""
    owner, meta = controller_of(pod.metadata), pod.metadata
    if owner is None or kind_of(owner) != JOB:
        return
    change = {
        "uid": meta.uid,
        "labels": dict.fromkeys((*OF_JOB, *found_by)),
        "annotations": {objects.RELEASED: workload},
        "ownerReferences": [{"uid": owner.uid, "$patch": "delete"}],
        "$deleteFromPrimitiveList/finalizers": [TRACKING],
    }
    await client.patch(ref_of(pod), {"metadata": change}, form=STRATEGIC)


def is_shrunk(status: PodStatus) -> bool:
    """Whether Fairway ended the pod, and its workload runs on without it."""
    return any(one.type == "DisruptionTarget" and one.message == SHRUNK for one in status.conditions)


async def _disrupt(client: Client, pod: PodObject) -> None:
    """A pod says that it ends for the cluster's sake."""
    said = {"type": "DisruptionTarget", "status": "True", "reason": "Shrunk", "message": SHRUNK}
    change = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [said]}}
    await client.patch(ref_of(pod), change, subresource="status", form=STRATEGIC)


async def bind(client: Client, pod: PodObject, place: Place, *, notes: Mapping[str, str], hostname: str = "") -> None:
    """Puts a pod in its place, with these annotations. `hostname`: that label of the node."""
    meta, ref = pod.metadata, ref_of(pod)
    if any(gate.name == objects.GATE for gate in pod.spec.scheduling_gates):
        left = [{"name": gate.name} for gate in pod.spec.scheduling_gates if gate.name != objects.GATE]
        is_shared = bool(hostname) and pod.spec.scheduler_name != objects.SCHEDULER
        spec = {"schedulingGates": left or None} | ({"nodeSelector": {objects.HOSTNAME: hostname}} if is_shared else {})
        await client.patch(ref, {"metadata": {"uid": meta.uid}, "spec": spec})
    devices = {objects.ASSIGNED: ",".join(map(str, place.devices))} if place.devices else {}
    await client.bind(ref, place.node, uid=meta.uid, annotations={**devices, **notes})
