"""Workload objects ⇄ engine values.

`fact` says what a Workload object means to the engine: one that waits, one that holds room, one that is over, or
nothing (suspended, parked, or deleted before it started). It holds room from the moment its admission is written until
that is removed. It is *promised* that room while its condition Admitted is not True, and *leaving* it while it is being
deleted or its condition Evicted is newer than Admitted. An admission without conditions, as people write it, runs.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise, takewhile
from types import MappingProxyType

import msgspec

from fairway import engine
from fairway.engine import counts_of, gpus_of
from fairway.outlook import WINDOW

from . import types
from .accounts import used_by_day
from .objects import FINISHED, SUBMITTED, Condition, Metadata, PodSpec
from .pods import ALONE, GENERATED, NO_AFFINITY, Surroundings, check_fraction, pod_class
from .quantities import Malformed, shown, time_text, within
from .queues import moment, positive, seconds

ROOM_TAKEN = "RoomTaken"  # by another scheduler: why a workload is evicted that no decision evicts
BACK_OFF: Mapping[str, float] = {engine.Cause.START_TIMEOUT: 60.0, ROOM_TAKEN: 10.0}
LONGEST_BACK_OFF = 3600.0
KEPT_EVICTIONS = 10
MOST_RECENT = 1_000


@dataclass(frozen=True, slots=True)
class Reading:
    """What a Workload's values depend on besides itself: priorities by class ("" = default), its pods' surroundings,
    the classes that never preempt. `known`: podsets that were read, by namespace and content; workloads alike share
    them."""

    priorities: Mapping[str, int] = field(default_factory=dict)
    around: Surroundings = ALONE
    non_preempting: frozenset[str] = frozenset()
    known: dict[tuple[str, bytes], tuple[engine.PodSet, ...]] = field(default_factory=dict)


def key_of(meta: Metadata) -> str:
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def fact(said: types.WorkloadObject, reading: Reading) -> engine.Workload | engine.Running | engine.Ended | None:
    """What the object means to the engine."""
    if (succeeded := outcome(said)) is not None:
        return engine.Ended(key_of(said.metadata), succeeded)
    holds = said.status.admission is not None and bool(said.status.admission.pod_sets or said.status.admission.pool)
    if not holds and (said.metadata.is_going or not said.spec.may_run or said.status.phase == "Parked"):
        return None
    value = workload(said, reading)
    return running(said, value) if holds else _frozen(value, said.status.paused)


def _frozen(value: engine.Workload, said: types.PausedStatus | None) -> engine.Workload:
    """A workload that waits; where it is paused it starts as it is: where its processes are, with as many, in the
    memory that they hold already unless they are on disk."""
    if said is None:
        return value
    there = within("status.paused.admission", admission, said.admission, value)
    counts = counts_of(value.podsets, there)
    podsets = tuple(replace(one, count=count, min_count=count) for one, count in zip(value.podsets, counts))
    podsets = engine.thawed(podsets, on_disk=said.is_saved)
    return replace(value, podsets=podsets, paused=there, on_disk=said.disk == "Written")


def pause(said: types.WorkloadObject) -> engine.Pause | None:
    """What the engine is told of the pods of a workload that is paused and holds no room but memory."""
    if said.status.paused is None or said.status.admission is not None or outcome(said) is not None:
        return None
    since = moment("status.paused.since", said.status.paused.since)
    return engine.Pause(key_of(said.metadata), said.spec.queue, since or 0.0, said.status.paused.disk)


def kept(said: types.WorkloadObject, reading: Reading) -> tuple[engine.Pod, ...]:
    """What a paused workload holds meanwhile: for each of its pods a slot, and memory unless it is on disk."""
    state = pause(said)
    if state is None or said.status.paused is None:
        return ()
    value = workload(said, reading)
    there = within("status.paused.admission", admission, said.status.paused.admission, value)
    is_saved = said.status.paused.disk == "Written"
    pods = {one.name: one.pod for one in engine.frozen(value.podsets, on_disk=is_saved)}
    places = [(one.name, share.node, at) for one in there.podsets for share in one.nodes for at in range(share.count)]
    named = ((f"{value.key}/{name}-{node}-{at}", node, pods[name]) for name, node, at in places)
    return tuple(engine.Pod(key, node, pod, pause=state) for key, node, pod in named)


def outcome(said: types.WorkloadObject) -> bool | None:
    """Whether it succeeded; None while it is not over."""
    if said.status.is_over:
        return said.status.phase == "Succeeded"
    finished = condition(said.status.conditions, FINISHED)
    return finished.reason == FINISHED if finished and finished.status == "True" else None


def condition(conditions: Iterable[Condition], name: str) -> Condition | None:
    return next((one for one in conditions if one.type == name), None)


def workload(said: types.WorkloadObject, reading: Reading) -> engine.Workload:
    """What is queued. `after` names workloads or owners of the namespace as the user wrote them."""
    spec, meta, status = said.spec, said.metadata, said.status
    evictions = tuple(_eviction(index, one, meta.namespace) for index, one in enumerate(status.eviction_history))
    return engine.Workload(
        key=key_of(meta),
        queue=spec.queue,
        podsets=_podsets(spec, meta.namespace, reading),
        uid=meta.uid,
        user=spec.user,
        kind=spec.workload_type,
        priority=priority(spec, reading.priorities),
        preempts=preempts(spec, reading.non_preempting),
        preemptible=spec.workload_type == "Training" if spec.preemptible is None else spec.preemptible,
        submitted=_submitted(meta),
        pools=spec.pools,
        topology=within("spec", topology, spec.topology),
        expected_runtime=seconds("spec.expectedRuntime", spec.expected_runtime),
        time_limit=positive("spec.timeLimit", spec.time_limit),
        deadline=moment("spec.deadline", spec.deadline),
        restart=spec.restart or "Gang",
        checkpoint_interval=seconds("spec.checkpointInterval", spec.checkpoint_interval),
        last_checkpoint=moment("spec.lastCheckpoint", spec.last_checkpoint),
        grace=float(max(one.template.spec.termination_grace_period_seconds for one in spec.pod_sets)),
        after=tuple(f"{meta.namespace}/{name}" for name in spec.after),
        is_active=spec.may_run,
        pauses=spec.paused and spec.active,
        backs_off_until=back_off(evictions),
        excluded_nodes=status.excluded_nodes,
        evictions=evictions,
        attained=status.attained,
        days=within("status.served.days", used_by_day, status),
    )


def recent(
    known: Iterable[types.WorkloadObject],
    reading: Reading,
    values: Mapping[str, engine.Workload] = MappingProxyType({}),
    *,
    now: float,
) -> tuple[engine.Workload, ...]:
    """The newest that were submitted lately, over or not: what a forecast expects to come again. What cannot be read is
    passed over. `values`: by key, the workloads that were read before."""
    after = time_text(now - WINDOW)
    made = [said for said in known if (said.metadata.creation_timestamp or "") > after]
    made.sort(key=lambda said: said.metadata.creation_timestamp or "")
    found = []
    for said in made[-MOST_RECENT:]:
        with suppress(Malformed):
            found.append(values.get(key_of(said.metadata)) or workload(said, reading))
    return tuple(found)


def _submitted(meta: Metadata) -> float:
    """When its owner was made: the controller notes it finer than a timestamp tells."""
    said = moment(f"metadata.annotations[{SUBMITTED}]", meta.annotations.get(SUBMITTED))
    return said or moment("metadata.creationTimestamp", meta.creation_timestamp) or 0.0


def priority(spec: types.WorkloadSpec, priorities: Mapping[str, int]) -> int:
    """That of the class named, else of a pod's class, else the number in a pod, else the default."""
    pods: Sequence[PodSpec] = [one.template.spec for one in spec.pod_sets]
    for name in (spec.priority_class_name, *(pod.priority_class_name for pod in pods)):
        if name and name in priorities:
            return priorities[name]
    numbers = (pod.priority for pod in pods if pod.priority is not None)
    return next(numbers, priorities.get("", 0))


def preempts(spec: types.WorkloadSpec, non_preempting: Container[str]) -> bool:
    """Whether the class that gives its priority, else each of its pods and a default that holds, lets it preempt."""
    if name := priority_class(spec, ""):
        return name not in non_preempting
    pods: Sequence[PodSpec] = [one.template.spec for one in spec.pod_sets]
    is_default = all(pod.priority is None for pod in pods)
    return not (is_default and "" in non_preempting) and all(pod.preemption_policy != "Never" for pod in pods)


def priority_class(spec: types.WorkloadSpec, default: str) -> str:
    """The class that gives its priority: the one named, else a pod's, else the default unless a pod has a number."""
    pods: Sequence[PodSpec] = [one.template.spec for one in spec.pod_sets]
    named = (name for name in (spec.priority_class_name, *(pod.priority_class_name for pod in pods)) if name)
    return next(named, "" if any(pod.priority is not None for pod in pods) else default)


def podsets_of(said: types.WorkloadObject) -> tuple[engine.PodSet, ...]:
    """What its pods ask for, without their surroundings."""
    return _podsets(said.spec, said.metadata.namespace, Reading())


def _podsets(spec: types.WorkloadSpec, namespace: str, reading: Reading) -> tuple[engine.PodSet, ...]:
    if not spec.pod_sets:
        raise Malformed("absent; at least one podset is needed", "spec.podSets")
    content = msgspec.json.encode([_plain(one, reading.around) for one in spec.pod_sets])
    if reading.around is ALONE:
        return _podsets_alone(namespace, content)
    if (namespace, content) not in reading.known:
        reading.known[namespace, content] = _podsets_read(spec.pod_sets, namespace, reading.around)
    return reading.known[namespace, content]


@lru_cache(maxsize=1024)
def _podsets_alone(namespace: str, content: bytes) -> tuple[engine.PodSet, ...]:
    """Podsets written as JSON, without surroundings: asked for several times in the life of each workload."""
    return _podsets_read(msgspec.json.decode(content, type=tuple[types.PodSetSpec, ...]), namespace, ALONE)


def _podsets_read(
    said: Sequence[types.PodSetSpec], namespace: str, around: Surroundings
) -> tuple[engine.PodSet, ...]:
    found = tuple(within(f"spec.podSets[{index}]", podset, one, namespace, around) for index, one in enumerate(said))
    names = [one.name for one in found]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise Malformed(f"found {twice!r} twice; each podset has a name of its own", "spec.podSets")
    return found


def _plain(said: types.PodSetSpec, around: Surroundings) -> types.PodSetSpec:
    """Without the labels that a controller generated for each workload, where nothing that is read here selects by
    labels: it means the same."""
    template = said.template
    if around.selected or template.spec.affinity != NO_AFFINITY or template.spec.topology_spread_constraints:
        return said
    labels = {key: text for key, text in template.metadata.labels.items() if not key.startswith(GENERATED)}
    if len(labels) == len(template.metadata.labels):
        return said
    meta = msgspec.structs.replace(template.metadata, labels=labels)
    return msgspec.structs.replace(said, template=msgspec.structs.replace(template, metadata=meta))


def podset(said: types.PodSetSpec, namespace: str, around: Surroundings) -> engine.PodSet:
    least = said.count if said.min_count is None else said.min_count
    if least > said.count:
        raise Malformed(f"found {least}; at most count, which is {said.count}, is allowed", "minCount")
    pod = within("template", pod_class, said.template, namespace, around)
    within("template", check_fraction, said.template)
    if said.alignment == "Required":
        pod = replace(pod, alignment_required=True)
    return engine.PodSet(said.name, said.count, least, pod, topology(said.topology))


@lru_cache(maxsize=1024)
def topology(said: types.TopologySpec) -> engine.Topology:
    for outer, inner in pairwise(said.segments):
        if outer.size % inner.size:
            message = f"found {inner.size} inside {outer.size}; a size that divides the outer one is allowed"
            raise Malformed(message, "topology.segments")
    segments = tuple(engine.Segment(one.level, one.size) for one in said.segments)
    return engine.Topology(said.required, said.preferred, segments)


def _eviction(index: int, said: types.EvictionRecord, namespace: str) -> engine.Eviction:
    whom = said.beneficiary if "/" in said.beneficiary or not said.beneficiary else f"{namespace}/{said.beneficiary}"
    when = moment(f"status.evictionHistory[{index}].time", said.time)
    return engine.Eviction(when or 0.0, said.reason, said.by, whom)


def back_off(evictions: Sequence[engine.Eviction]) -> float | None:
    """A pause by the reason of the last start that failed, doubled for each other in a row, at most an hour."""
    row = [*takewhile(lambda it: it.reason in BACK_OFF, reversed(evictions))]  # the last first
    return row[0].time + min(BACK_OFF[row[0].reason] * 2 ** (len(row) - 1), LONGEST_BACK_OFF) if row else None


def running(said: types.WorkloadObject, value: engine.Workload) -> engine.Running:
    """A workload that holds the room of its admission."""
    status, meta = said.status, said.metadata
    admitted, evicted = condition(status.conditions, "Admitted"), condition(status.conditions, "Evicted")
    since, left = _turned(admitted), _turned(evicted)
    is_evicted = evicted is not None and evicted.status == "True" and not (left and since and left < since)
    deleted = moment("metadata.deletionTimestamp", meta.deletion_timestamp)
    if deleted is not None:
        left = deleted - meta.deletion_grace_period_seconds
    holds = within("status.admission", admission, status.admission or types.AdmissionStatus(), value)
    is_promised = _is_promised(said, admitted)
    return engine.Running(
        replace(value, attained=_before(said, value, holds, since)),
        holds,
        admitted_at=None if is_promised else since,
        is_promised=is_promised,
        is_leaving=deleted is not None or is_evicted,
        leaving_since=left if deleted is not None or is_evicted else None,
        is_pausing=deleted is None and is_evicted and status.paused is not None,
        is_saving=deleted is None and is_evicted and status.paused is not None and status.paused.is_saved,
        moves_to=within("status.movesTo", admission, status.moves_to, value) if status.moves_to else None,
        lost=_lost(value, holds),
        backfilled_for=status.backfilled_for,
    )


def _before(
    said: types.WorkloadObject, value: engine.Workload, holds: engine.Admission, since: float | None
) -> float:
    """GPU-seconds to which those count that it has held what it holds now since it was admitted: a resize within the
    attempt is in `attained` already."""
    until = moment("status.served.until", said.status.served.until) if said.status.served else None
    if since is None or until is None or until <= since:
        return value.attained
    return value.attained - gpus_held(said, value, holds) * (until - since)


def gpus_held(said: types.WorkloadObject, value: engine.Workload, holds: engine.Admission) -> float:
    """GPUs that its admission holds; memory of a GPU counts as a part of one, by the pool at its admission."""
    return gpus_of(value.podsets, counts_of(value.podsets, holds), gpu_memory_of(said))


def unsaved(start: float, end: float, saved: float | None, every: float | None) -> float:
    """Since when work is lost, at most, that stops at `end`: its start, its last checkpoint or `every` seconds ago."""
    return max(start, saved or 0.0, end - every if every else 0.0)


def gpu_memory_of(said: types.WorkloadObject) -> int:
    """Bytes of a GPU of its pool as it was admitted, 0 if unknown."""
    return said.status.admission.gpu_memory if said.status.admission else 0


def _turned(said: Condition | None) -> float | None:
    return moment(f"status.conditions[{said.type}].lastTransitionTime", said.last_transition_time) if said else None


def _is_promised(said: types.WorkloadObject, admitted: Condition | None) -> bool:
    if admitted is not None:
        return admitted.status != "True"
    return said.status.phase == "Pending" and said.status.reason == "WaitingForVictims"


def _lost(value: engine.Workload, holds: engine.Admission) -> tuple[tuple[str, int], ...]:
    """The pods by which podsets are below their minimum."""
    held = {one.name: one.count for one in holds.podsets}
    missing = ((one.name, one.min_count - held.get(one.name, 0)) for one in value.podsets)
    return tuple((name, count) for name, count in missing if count > 0)


def admission(said: types.AdmissionStatus, of: engine.Workload) -> engine.Admission:
    """Where `of` runs; its podsets come in their order, those not named without nodes."""
    placed = {one.name: within(f"podSets[{index}]", _placement, one) for index, one in enumerate(said.pod_sets)}
    known = [one.name for one in of.podsets]
    if strange := next((name for name in placed if name not in known), ""):
        raise Malformed(f"found {shown(strange)}; one of {', '.join(known)} is allowed", "podSets")
    return engine.Admission(said.pool, tuple(placed.get(name, engine.PodSetPlacement(name, ())) for name in known))


def _placement(said: types.PodSetNodes) -> engine.PodSetPlacement:
    nodes = (within(f"nodes[{index}]", _node_share, one) for index, one in enumerate(said.nodes))
    return engine.PodSetPlacement(said.name, tuple(one for one in nodes if one.count))


def pods_of(said: types.NodePods) -> int:
    return len(said.devices) or 1 if said.count is None else said.count


def _node_share(said: types.NodePods) -> engine.NodeShare:
    count = pods_of(said)
    if said.devices and len(said.devices) != count:
        raise Malformed(f"found those of {len(said.devices)} pods; those of count, {count}, are allowed", "devices")
    return engine.NodeShare(said.node, count, said.devices)


def admission_status(held: engine.Admission) -> types.AdmissionStatus:
    return types.AdmissionStatus(held.pool, tuple(types.PodSetNodes(one.name, _shares(one)) for one in held.podsets))


def _shares(placement: engine.PodSetPlacement) -> tuple[types.NodePods, ...]:
    return tuple(types.NodePods(one.node, one.count, one.devices) for one in placement.nodes)


def remembered(
    history: tuple[types.EvictionRecord, ...], more: engine.Eviction, queue: str = "", lost: int = 0
) -> tuple[types.EvictionRecord, ...]:
    """The last evictions with one more, from a queue, which cost so many GPU-milliseconds of work."""
    record = types.EvictionRecord(time_text(more.time), more.reason, more.by, more.beneficiary, queue, lost)
    return (*history, record)[-KEPT_EVICTIONS:]
