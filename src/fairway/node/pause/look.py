"""What the runner asks of the shims of a pod that is frozen, or to be, and what it can say of it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairway.api.objects import ASSIGNED, FREEZE, SAVE
from fairway.node.container import Attempt, stop, wake
from fairway.node.environment import Pod
from fairway.node.podstatus import NOT_WOKEN, ON_DISK, Frozen

from . import disk
from .gang import failure, next_step
from .stand import STILL, Stand, ask, note_unsaved, stand_of, unsaved


def freeze(
    pod: Pod, histories: Mapping[str, Sequence[Attempt]], gang: Callable[[], list[Stand]]
) -> tuple[Frozen | None, bool]:
    """Has its processes frozen, or let go on, as its annotation says: how far that is, and whether it moves on. `gang`:
    how far the attempts of all pods of its workload are."""
    notes = pod["metadata"].get("annotations") or {}
    request = "" if "deletionTimestamp" in pod["metadata"] else notes.get(FREEZE, "")
    lasts = [it for it in map(last_begun, histories.values()) if it]
    running = [it for it in lasts if it.is_running]
    own = [stand_of(it.folder) for it in running]
    if not request and not any(one.step for one in own):
        return None, False
    if not running:
        is_saved = any(it.stopped == ON_DISK for it in lasts)
        kept = [f"it could not be written to disk: {why}" for it in lasts if (why := unsaved(it.folder))]
        why = "" if is_saved else (kept or ["no process of it runs"])[0]
        return Frozen(is_saved, why, is_on_disk=is_saved), False
    for attempt, stand in zip(running, own):
        if not request and stand.why and not attempt.is_asked:
            stop(attempt, 0.0, NOT_WOKEN)
    has_gpu = ASSIGNED in notes
    together = gang() if has_gpu else own
    to_disk = bool(request) and notes.get(SAVE) == request
    kept = "; ".join(filter(None, (unsaved(it.folder) for it in running))) if to_disk else ""
    wanted = next_step(request, own, together, has_gpu=has_gpu, to_disk=to_disk and not kept)
    for attempt in running:
        if not to_disk:
            note_unsaved(attempt.folder, "")
        if ask(attempt.folder, wanted):
            wake(attempt)
    why = failure(request, together) if request else ""
    is_still = all(one.step >= STILL for one in own) or not request
    is_settled = is_still and wanted.step == STILL and (not to_disk or bool(kept))
    return Frozen(is_still, why, unsaved=kept), not why and not is_settled


def last_begun(attempts: Sequence[Attempt]) -> Attempt | None:
    """What the next attempt follows; one that is on disk stays the last while its processes are not back."""
    return next((it for it in reversed(attempts) if it.started_at is not None), None)


def restoring(last: Attempt) -> dict[str, Any]:
    """What a shim has to do more where the last attempt is on disk. DiskError, with the reason, where its processes did
    not wake, or cannot come back from there."""
    if last.stopped == NOT_WOKEN:
        raise disk.DiskError(last.message or stand_of(last.folder).why or "they were killed")
    if last.stopped != ON_DISK:
        return {}
    return {"restore": disk.restoring(last.folder) | {"env": {"PATH": disk.PLACES, disk.MARK: str(last.folder)}}}
