"""What becomes of a workload right after it was submitted: the first verdict about it, in one line."""

from collections.abc import Collection
from contextlib import aclosing
from typing import Any

from fairway.kube.client import Client
from fairway.kube.kinds import Ref

from .find import seen
from .listing import length
from .output import in_local_time, seconds, span, start

Thing = dict[str, Any]
MOST_SECONDS, LEAVING_SECONDS = 0.8, 4.0  # the latter where it still stops: programs have their grace
OFF = ("Suspended", "Parked", "Paused")


async def first_verdict(client: Client, workload: Ref, uid: str, *, leaves: float = 0.0) -> str:
    """Where it starts, or why it waits; "" where nothing is decided within MOST_SECONDS. `uid`: its owner's; `leaves`:
    the seconds that it may take instead where it is resumed, and leaves the phases of OFF first."""
    try:
        return await client.clock.within(leaves or MOST_SECONDS, _decided(client, workload, uid, OFF if leaves else ()))
    except TimeoutError:
        return ""


async def _decided(client: Client, workload: Ref, uid: str, but: Collection[str]) -> str:
    async with aclosing(seen(client, workload.alone())) as states:
        async for change, state in states:
            owners = {it["uid"] for it in state["metadata"].get("ownerReferences") or ()}
            is_old = change == "DELETED" or (state.get("status") or {}).get("phase") in but
            if not is_old and uid in owners and (line := told_of(state, client.clock.now())):
                return line
    raise AssertionError("what is seen has no end")


def told_of(workload: Thing, now: float) -> str:
    """A clause about a workload that is decided: `starts now on box (GPUs 0, 1)`; "" while it is not."""
    status = workload.get("status") or {}
    admission, phase = status.get("admission"), status.get("phase", "Pending")
    is_admitted = any(it["type"] == "Admitted" and it["status"] == "True" for it in status.get("conditions") or ())
    if phase in ("Succeeded", "Failed", "Suspended"):
        return str(phase.lower())
    if admission and is_admitted:
        return f"starts now on {_places(admission)}{_late(workload, now)}"
    if not status.get("reason"):
        return ""
    message = in_local_time(status.get("message", ""), now)
    when = f"; forecast: {start(status['forecast'], now)}" if status.get("forecast") else ""
    return f"waits: {status['reason']}: {message}".rstrip(": ") + when + _late(workload, now)


def _late(workload: Thing, now: float) -> str:
    spec, forecast = workload.get("spec") or {}, (workload.get("status") or {}).get("forecast") or {}
    lengths = length(spec.get("expectedRuntime", "")), length(spec.get("timeLimit", ""))
    line = late(spec.get("deadline", ""), forecast, lengths, now)
    return f"; {in_local_time(line, now)}" * bool(line)


def late(deadline: str, forecast: Thing, lengths: tuple[float, float], now: float) -> str:
    """That a workload misses its deadline, by its forecast and its `lengths`: its expected runtime, or else its time
    limit, in seconds, 0 for none; "" where it does not."""
    expected, limit = lengths
    begins = max(now, seconds(forecast["p50"])) if forecast.get("p50") else now
    if not deadline or begins + (expected or limit) <= seconds(deadline):
        return ""
    does = "is expected to run" if expected else "may run"
    why = f"it {does} {span(expected or limit)}" if expected or limit else "it starts later"
    misses = "will miss" if expected or not limit else "may miss"
    return f"it {misses} its deadline, {deadline}: {why}"


def _places(admission: Thing) -> str:
    """`n1 ×4 (GPUs 0, 1), n2 ×4`."""
    shares = [it for one in admission.get("podSets") or () for it in one.get("nodes") or ()]
    if len(shares) > 3:
        return f"{len(shares)} nodes"
    return ", ".join(_place(it) for it in shares)


def _place(share: Thing) -> str:
    count = f" ×{share['count']}" if share.get("count", 1) > 1 else ""
    devices = sorted({index for pod in share.get("devices") or () for index in pod})
    names = f" (GPU{'s' if len(devices) > 1 else ''} {', '.join(map(str, devices))})" if devices else ""
    return f"{share['node']}{count}{names}"
