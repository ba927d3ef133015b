"""What happened to a workload, read off its object before and after a change: what the log and notices tell of."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fairway.api.types import AdmissionStatus, WorkloadObject
from fairway.api.workloads import key_of

from .status import holds, is_over, since

MOST_NODES = 4


@dataclass(frozen=True, slots=True)
class Happening:
    """`facts` in the order in which they are told; empty ones are left out."""

    event: str
    key: str
    facts: Mapping[str, object] = field(default_factory=dict)


def happened(old: WorkloadObject | None, new: WorkloadObject | None) -> Iterator[Happening]:
    """What a change tells, in the order of a life."""
    seen = new or old
    assert seen is not None
    key, status = key_of(seen.metadata), seen.status
    if new is None:
        if not is_over(status):
            yield Happening("cancelled", key, {"queue": seen.spec.queue, "phase": status.phase})
        return
    if old is None:
        yield Happening("submitted", key, {"queue": seen.spec.queue, "user": seen.spec.user})
    if _turned(old, new, "Admitted"):
        yield Happening("admitted", key, {"queue": seen.spec.queue, **_where(status.admission), **_attempt(new)})
    if _turned(old, new, "Running"):
        yield Happening("started", key, {"queue": seen.spec.queue, **_attempt(new)})
    if _turned(old, new, "Evicted"):
        last = status.eviction_history[-1] if status.eviction_history else None
        by = {"for": last.beneficiary, "by": last.by} if last else {}
        yield Happening("evicted", key, {"reason": status.reason, **by, **_attempt(new)})
    if old is not None and old.status.admission and not status.admission and not is_over(status):
        yield Happening("requeued", key, {"queue": seen.spec.queue, "phase": status.phase})
    if is_over(status) and (old is None or not is_over(old.status)):
        event = "finished" if status.phase == "Succeeded" else "failed"
        yield Happening(event, key, {"reason": status.reason, "message": status.message, "runtime": _runtime(new)})


def _turned(old: WorkloadObject | None, new: WorkloadObject, kind: str) -> bool:
    return holds(new.status, kind) and (old is None or not holds(old.status, kind))


def _where(admission: AdmissionStatus | None) -> dict[str, object]:
    if admission is None:
        return {}
    nodes = list(dict.fromkeys(share.node for part in admission.pod_sets for share in part.nodes))
    shown = ",".join(nodes[:MOST_NODES]) + (f",… ({len(nodes)} nodes)" if len(nodes) > MOST_NODES else "")
    return {"pool": admission.pool, "nodes": shown}


def _attempt(seen: WorkloadObject) -> dict[str, object]:
    return {"attempt": seen.status.attempt}


def _runtime(seen: WorkloadObject) -> str:
    """Seconds from its last admission to its end."""
    began, ended = since(seen.status, "Admitted"), since(seen.status, "Finished")
    return f"{max(0.0, ended - began):.1f}s" if began is not None and ended is not None else ""

