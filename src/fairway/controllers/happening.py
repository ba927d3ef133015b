"""What happened to a workload, read off its object before and after a change: what the log and notices tell of.

What happened while no controller led is read off the object alone, by the times it holds.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from fairway.api.conditions import first_exit
from fairway.api.ends import exit_words
from fairway.api.objects import ATTEMPT, RELEASED, PodObject
from fairway.api.pods import disruption, is_lost
from fairway.api.quantities import time
from fairway.api.types import AdmissionStatus, EvictionRecord, WorkloadObject
from fairway.api.workloads import key_of

from .bind import is_shrunk
from .status import holds, since

MOST_NODES, EPOCH = 4, "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Happening:
    """`facts` in the order in which they are told; empty ones are left out. `at`: None for now."""

    event: str
    key: str
    facts: Mapping[str, object] = field(default_factory=dict)
    at: float | None = None

    @property
    def is_late(self) -> bool:
        """Whether it happened while no controller led."""
        return "late" in self.facts


def happened(old: WorkloadObject | None, new: WorkloadObject | None) -> Iterator[Happening]:
    """What a change tells, in the order of a life."""
    seen = new or old
    assert seen is not None
    key, status = key_of(seen.metadata), seen.status
    if new is None:
        if not status.is_over:
            yield Happening("cancelled", key, {"queue": seen.spec.queue, "phase": status.phase})
        return
    attempt = {"attempt": status.attempt}
    if old is None:
        yield Happening("submitted", key, {"queue": seen.spec.queue, "user": seen.spec.user})
    if _turned(old, new, "Admitted"):
        yield Happening("admitted", key, {"queue": seen.spec.queue, **_where(status.admission), **attempt})
    if _turned(old, new, "Running"):
        yield Happening("started", key, {"queue": seen.spec.queue, **attempt})
    if _turned(old, new, "Evicted"):
        last = status.eviction_history[-1] if status.eviction_history else None
        yield _evicted(seen, last or EvictionRecord("", status.reason), attempt)
    if old is not None and old.status.admission and not status.admission and not status.is_over:
        yield Happening("requeued", key, {"queue": seen.spec.queue, "phase": status.phase})
    if status.is_over and (old is None or not old.status.is_over):
        event = "finished" if status.phase == "Succeeded" else "failed"
        yield Happening(event, key, {"reason": status.reason, "message": status.message, "runtime": _runtime(new)},
                        since(status, "Finished"))


def happened_since(seen: WorkloadObject, moment: float) -> Iterator[Happening]:
    """What happened to a workload from a time on, as far as its object tells, and when."""
    yield from (late(one, _when(one, seen)) for one in _since(seen, moment))


def late(one: Happening, at: float | None) -> Happening:
    """What may have been told before, with its own time."""
    return Happening(one.event, one.key, {**one.facts, "late": "true"}, one.at if at is None else at)


def _when(one: Happening, seen: WorkloadObject) -> float | None:
    kind = {"admitted": "Admitted", "started": "Running", "evicted": "Evicted"}.get(one.event, "Finished")
    if one.event == "submitted" and seen.metadata.creation_timestamp:
        return time(seen.metadata.creation_timestamp)
    return one.at or since(seen.status, kind)


def _since(seen: WorkloadObject, moment: float) -> Iterator[Happening]:
    status = seen.status
    earlier = tuple(one for one in status.conditions if time(one.last_transition_time or EPOCH) < moment)
    was_over = any(one.type == "Finished" and one.status == "True" for one in earlier)
    is_evicted = any(it.type == "Evicted" and it.status == "True" for it in status.conditions if it not in earlier)
    if not is_evicted:
        yield from (_evicted(seen, one, {}) for one in status.eviction_history if time(one.time) >= moment)
    before = replace(
        status, conditions=earlier, phase=status.phase if was_over else "",
        admission=status.admission or (AdmissionStatus() if is_evicted else None),
    )  # fmt: skip
    is_new = time(seen.metadata.creation_timestamp or EPOCH) >= moment
    yield from happened(None if is_new else replace(seen, status=before), seen)


def pod_failed(old: PodObject | None, new: PodObject | None, key: str) -> Iterator[Happening]:
    """That a pod of a workload failed, or was lost: what runs in its stead is no mystery. One that Fairway, its owner
    or its user ended did neither."""
    if new is None or new.status.phase != "Failed" or (old is not None and old.status.phase == "Failed"):
        return
    if RELEASED in new.metadata.annotations or is_shrunk(new.status):
        return
    if new.metadata.is_going and not is_lost(new.status):
        return
    meta, found = new.metadata, first_exit((new,))
    facts: dict[str, object] = {"pod": meta.name, "node": new.spec.node_name}
    if is_lost(new.status):
        facts["reason"] = new.status.reason or disruption(new.status)
    elif found:
        end = found[1]
        facts["message"] = exit_words(end.exit_code, end.reason, end.message)
    attempt = meta.annotations.get(ATTEMPT, "").rpartition("/")[2]
    yield Happening("pod-lost" if is_lost(new.status) else "pod-failed", key, {**facts, "attempt": attempt})


def failed_at(pod: PodObject) -> float:
    """When a pod was seen to have failed; 0.0 where nothing says so."""
    turned = (one.last_transition_time for one in pod.status.conditions if one.type == "Ready")
    return max(map(time, filter(None, turned)), default=0.0)


def _evicted(seen: WorkloadObject, one: EvictionRecord, attempt: Mapping[str, object]) -> Happening:
    facts = {"reason": one.reason, "for": one.beneficiary, "by": one.by}
    return Happening("evicted", key_of(seen.metadata), {**facts, **attempt}, time(one.time) if one.time else None)


def _turned(old: WorkloadObject | None, new: WorkloadObject, kind: str) -> bool:
    return holds(new.status, kind) and (old is None or not holds(old.status, kind))


def _where(admission: AdmissionStatus | None) -> dict[str, object]:
    if admission is None:
        return {}
    nodes = admission.nodes
    shown = ",".join(nodes[:MOST_NODES]) + (f",… ({len(nodes)} nodes)" if len(nodes) > MOST_NODES else "")
    return {"pool": admission.pool, "nodes": shown}


def _runtime(seen: WorkloadObject) -> str:
    """Seconds from its last admission to its end."""
    began, ended = since(seen.status, "Admitted"), since(seen.status, "Finished")
    return f"{max(0.0, ended - began):.1f}s" if began is not None and ended is not None else ""

