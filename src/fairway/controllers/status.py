"""The statuses of a Workload's life: pure functions from one status to the next.

    Pending ─ promise ─▶ Pending (WaitingForVictims) ─ admit ─▶ Admitted ─ run ─▶ Running ─ finish ─▶ Succeeded | Failed
       ▲──────────────── leave ── Pending, still holding its room ◀─ evict ──────────┘

Room is held exactly while `admission` is set. An evicted workload is Pending at once, but holds its room until
`leave`, when its pods are gone. A condition's lastTransitionTime moves only with its status. The words come from
whoever calls.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from fairway.api import types
from fairway.api.accounts import with_use
from fairway.api.objects import Condition, PodStatus
from fairway.api.quantities import time, time_text
from fairway.api.types import AdmissionStatus, PausedStatus, Served, WorkloadStatus
from fairway.api.workloads import admission_status, condition, remembered
from fairway.engine import DEVICE, GPU, PODS, Admission, Eviction, Reason
from fairway.outlook import NEVER

MOST_EXCLUDED, KEPT_NODES = 10, 8
RUNS = ("Admitted", "Running")
IDLE, PARKED = "Idle", "Parked"
FROZEN = "paused by its user; its processes are "
S = TypeVar("S", WorkloadStatus, types.QueueStatus, types.ReservationStatus)


@dataclass(frozen=True, slots=True)
class Said:
    """Why, in a word and in a sentence."""

    reason: str
    message: str = ""


def holds(status: WorkloadStatus | PodStatus, kind: str) -> bool:
    found = condition(status.conditions, kind)
    return found is not None and found.status == "True"


def since(status: WorkloadStatus | PodStatus, kind: str) -> float | None:
    """When the condition turned True; None while it is not."""
    found = condition(status.conditions, kind)
    if found is None or found.status != "True" or not found.last_transition_time:
        return None
    return time(found.last_transition_time)


def turned(status: WorkloadStatus, kind: str, said: Said | None, *, now: float) -> WorkloadStatus:
    """The condition is True because of `said`; without it, False where it was True."""
    before = condition(status.conditions, kind)
    if said is None and (before is None or before.status == "False"):
        return status
    return told(status, kind, said or Said(before.reason if before else ""), now=now, value=str(bool(said)))


def told(status: S, kind: str, said: Said, *, now: float, value: str) -> S:
    """With this condition."""
    before = condition(status.conditions, kind)
    at = before.last_transition_time if before and before.status == value else time_text(now)
    others = tuple(one for one in status.conditions if one.type != kind)
    return replace(status, conditions=(*others, Condition(kind, value, said.reason, said.message, at)))


def wait(status: WorkloadStatus, said: Said, position: int, *, is_active: bool = True) -> WorkloadStatus:
    """What cannot start as things are is foretold no start, nor is what comes after another of which news came."""
    is_void = said.reason in NEVER or (said.reason == "DependencyPending" and said.message != status.message)
    phase, forecast = "Pending" if is_active else off(status).phase, None if is_void else status.forecast
    phase = "Paused" if status.paused else phase
    return replace(status, phase=phase, reason=said.reason, message=said.message, position=position, forecast=forecast)


def promise(status: WorkloadStatus, to: Admission, said: Said, *, now: float) -> WorkloadStatus:
    """It has its places; others leave them first, unless it was admitted before they were to."""
    if holds(status, "Admitted"):
        return status
    status = _placed(turned(status, "Evicted", None, now=now), admission_status(to))
    return wait(told(status, "Admitted", said, now=now, value="False"), said, 0)


def admit(status: WorkloadStatus, to: Admission, said: Said, *, now: float) -> WorkloadStatus:
    """Once it is admitted it stays where it is until it was evicted: the decision may be older."""
    if holds(status, "Admitted"):
        return status
    status = _placed(turned(status, "Evicted", None, now=now), admission_status(to))
    status = turned(status, "Admitted", said, now=now)
    return replace(status, phase="Admitted", reason="", message="", position=0, forecast=None)


def _placed(status: WorkloadStatus, to: AdmissionStatus) -> WorkloadStatus:
    """A new attempt, unless the last was only promised, or goes on after a pause."""
    was = condition(status.conditions, "Admitted")
    was_promised = was is not None and was.status == "False" and was.reason == Reason.WAITING_FOR_VICTIMS
    is_new = not was_promised and status.admission is None
    attempt = status.attempt + (is_new and status.paused is None)
    return replace(status, admission=to, attempt=attempt, moves_to=None)


def mark(status: WorkloadStatus, held: str) -> WorkloadStatus:
    """With the workload into whose hold it started, "" for none."""
    return replace(status, backfilled_for=held)


def resize(status: WorkloadStatus, to: Admission) -> WorkloadStatus:
    """Other pods of a workload that runs on; what it held before is served by now."""
    return replace(status, admission=admission_status(to))


def run(status: WorkloadStatus, said: Said, *, now: float) -> WorkloadStatus:
    return replace(turned(status, "Running", said, now=now), phase="Running", paused=None)


def note(status: WorkloadStatus, said: Said | None, reason: str) -> WorkloadStatus:
    """With what is said of a workload that runs; for nothing without what was said by this reason."""
    if said is None:
        return replace(status, reason="", message="") if status.reason == reason else status
    return replace(status, reason=said.reason, message=said.message) if status.phase in RUNS else status


def evict(status: WorkloadStatus, eviction: Eviction, said: Said, *, of: tuple[str, int] = ("", 0)) -> WorkloadStatus:
    """It waits again; what it held stays its own until it has left, and is served by now, which is `eviction.time`.
    `of`: its queue, and the GPU-milliseconds of work that it loses."""
    now, began, nodes = eviction.time, since(status, "Admitted"), status.admission.nodes if status.admission else ()
    *others, last = remembered(status.eviction_history, eviction, *of)
    history = (*others, replace(last, began=time_text(began) if began else "", nodes=nodes[:KEPT_NODES]))
    for kind in ("Admitted", "Running"):
        status = turned(status, kind, None, now=now)
    status = turned(status, "Evicted", said, now=now)
    status = replace(status, eviction_history=history, backfilled_for="", paused=None)
    return wait(status, said, 0, is_active=eviction.reason != "Suspended")


def pause(status: WorkloadStatus, paused: PausedStatus) -> WorkloadStatus:
    """One that was evicted leaves by being frozen."""
    return replace(_marked(status, is_paused=True), phase="Paused", paused=paused)


def _marked(status: WorkloadStatus, *, is_paused: bool, unpaused: str = "") -> WorkloadStatus:
    *others, last = status.eviction_history
    return replace(status, eviction_history=(*others, replace(last, paused=is_paused, unpaused=unpaused)))


def rest(status: WorkloadStatus) -> WorkloadStatus:
    """It is frozen: of its room it keeps the memory, unless it is on disk."""
    if status.paused is None or not holds(status, "Evicted"):
        return status
    disk = "Written" if status.paused.disk else ""
    return replace(status, admission=None, paused=replace(status.paused, disk=disk))


def save(status: WorkloadStatus, disk: types.Disk) -> WorkloadStatus:
    """How far its frozen processes are written to disk."""
    return replace(status, paused=replace(status.paused, disk=disk)) if status.paused else status


def forfeit(status: WorkloadStatus, said: Said) -> WorkloadStatus:
    """It is paused no longer, and goes on from its checkpoint. If it was at rest, its history keeps why."""
    if status.paused is None:
        return status
    status = _marked(status, is_paused=False, unpaused="" if status.admission else said.message)
    return replace(status, phase="Pending", reason=said.reason, message=said.message, paused=None)


def move(status: WorkloadStatus, to: Admission | None) -> WorkloadStatus:
    """Where an evicted workload goes on when it has left."""
    return replace(status, moves_to=admission_status(to) if to else None)


def exclude(status: WorkloadStatus, nodes: tuple[str, ...]) -> WorkloadStatus:
    """Nodes that failed it are not tried again; of many, the last are remembered."""
    known = tuple(dict.fromkeys((*(one for one in status.excluded_nodes if one not in nodes), *nodes)))
    return replace(status, excluded_nodes=known[-MOST_EXCLUDED:])


def revoke(status: WorkloadStatus) -> WorkloadStatus:
    """What it was promised is taken back before it had it."""
    return status if holds(status, "Admitted") else replace(status, admission=None, moves_to=None, backfilled_for="")


def leave(status: WorkloadStatus, *, now: float) -> WorkloadStatus:
    """It has left its room, and enters the next where it was moved."""
    if not holds(status, "Evicted"):
        return status
    to, status = status.moves_to, replace(status, admission=None)
    if to is None:
        return status
    status = turned(turned(_placed(status, to), "Evicted", None, now=now), "Admitted", Said("Moved"), now=now)
    return replace(status, phase="Admitted", reason="", message="")


def suspend(status: WorkloadStatus, *, is_active: bool) -> WorkloadStatus:
    """By its user, or no longer. What is frozen stays so, and waits no more."""
    if status.paused:
        if is_active or is_parked(status):
            return status
        message = FROZEN + ("on disk" if status.paused.disk == "Written" else "frozen where they are")
        return replace(status, reason="Suspended", message=message, position=0, forecast=None)
    if is_active:
        is_new = status.phase in ("", "Suspended", "Parked")
        return replace(status, phase="Pending", reason="", message="") if is_new else status
    return off(status)


def off(status: WorkloadStatus) -> WorkloadStatus:
    """Switched off by its user, or parked."""
    one = condition(status.conditions, IDLE)
    word, message = (PARKED, one.message) if one and is_parked(status) else ("Suspended", "")
    return replace(status, phase=word, reason=word, message=message, position=0, forecast=None)


def idle(status: WorkloadStatus, said: Said | None, *, now: float) -> WorkloadStatus:
    """It is to be parked soon; for nothing, it is used again."""
    return note(turned(status, IDLE, said, now=now), said, IDLE)


def is_parked(status: WorkloadStatus) -> bool:
    """Whether it is switched off for being idle, or is about to be."""
    one = condition(status.conditions, IDLE)
    return one is not None and one.status == "True" and one.reason == PARKED


def finish(status: WorkloadStatus, said: Said, *, succeeded: bool, now: float) -> WorkloadStatus:
    """It is over; what was served stays to be charged, `admission` as the record of where."""
    status = turned(turned(status, "Running", None, now=now), "Finished", said, now=now)
    phase = "Succeeded" if succeeded else "Failed"
    status = replace(status, phase=phase, reason=said.reason, message=said.message)
    return replace(status, position=0, forecast=None, moves_to=None, paused=None)


def served(status: WorkloadStatus, *, now: float, held: Mapping[str, int], queue: str = "") -> WorkloadStatus:
    """With what it held until now in `attained` and `served`: each second of an admission counts once, with what was
    held then. `held`: base units by resource."""
    start, before = since(status, "Admitted"), status.served
    if start is None or status.admission is None:
        return status
    now = min(now, since(status, "Finished") or now)
    begin = max(start, time(before.until)) if before else start
    until = time_text(max(begin, now))  # counted as written, so that what follows begins where this ends
    seconds, pool = time(until) - begin, status.admission.pool
    amounts = dict(before.amounts) if before else {}
    own = amounts.get(pool, {})
    amounts[pool] = own | {name: own.get(name, 0.0) + amount * seconds for name, amount in held.items() if name != PODS}
    attained = status.attained + held.get(GPU, 0) / DEVICE * seconds
    gpus, days = held.get(GPU, 0), before.days if before else {}
    days = with_use(days, (queue, pool), gpus, start=begin, end=time(until))
    return replace(status, attained=attained, served=Served(until, amounts, days))
