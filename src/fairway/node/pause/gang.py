"""How far the processes of a pod are to be frozen next: all pods of its workload do a step before any does the next.

Otherwise a rank whose GPU memory is in host memory would keep another waiting in a collective, which then cannot be
locked. A pod without a GPU does all steps at once.
"""

from collections.abc import Sequence

from .stand import ON_DISK, RUNNING, STILL, Stand


def next_step(
    request: str, own: Sequence[Stand], gang: Sequence[Stand], *, has_gpu: bool, to_disk: bool = False
) -> Stand:
    """What to ask of the attempts of a pod. `request`: "" where it is to go on; `gang`: those of all pods that are
    frozen together. `to_disk`: once it stands still, each attempt goes to disk by itself."""
    if not request or any(one.failed(request) for one in (*own, *gang)):
        return Stand()
    if to_disk and all(one.step >= STILL and one.request == request for one in own):
        return Stand(ON_DISK, request)
    if not has_gpu:
        return Stand(STILL, request)
    least = min((one.step if one.request == request else RUNNING for one in gang), default=RUNNING)
    return Stand(min(STILL, least + 1), request)


def failure(request: str, gang: Sequence[Stand]) -> str:
    """Why they cannot be frozen; "" where nothing is known against it."""
    return next((one.why for one in gang if one.failed(request)), "")
