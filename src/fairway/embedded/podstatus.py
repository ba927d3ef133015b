"""What is next for a pod's containers, and what its status says: pure functions of the pod and its attempts on disk.

Containers follow each other as under a kubelet: init containers one by one (those with restartPolicy Always stay and
run beside the rest), then all others at once; what ends is started again as restartPolicy says, after 0, 10 … 300 s.
What Fairway itself stopped, because it was going down, has no outcome: it is started again, whatever the policy.
Probes and lifecycle hooks are not served: a container that runs is ready.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fairway.api.quantities import time, time_text

from .container import LOST, Attempt
from .environment import Container, Pod
from .jobstatus import LOST_POD

SHUTDOWN, DELETED, DEADLINE, FINISHED = "NodeShutdown", "Deleted", "DeadlineExceeded", "PodFinished"
FIRST_SECONDS, LONGEST_SECONDS, STEADY_SECONDS = 10.0, 300.0, 600.0
TERMINAL = ("Succeeded", "Failed")
REFUSED, REFUSED_SECONDS = "CreateContainerConfigError", 10.0

Histories = Mapping[str, Sequence[Attempt]]
Outlook = Literal["start", "starting", "wait", "running", "succeeded", "failed"]


@dataclass(frozen=True, slots=True)
class Next:
    """`stop` says why; `phase` is the pod's as it stands, before any of this is done."""

    phase: str
    start: tuple[Container, ...] = ()
    stop: tuple[str, ...] = ()
    why: str = ""
    again_at: float | None = None


def next_of(pod: Pod, histories: Histories, now: float) -> Next:
    running = tuple(name for name, attempts in histories.items() if attempts and attempts[-1].pid)
    if pod["metadata"].get("deletionTimestamp"):
        return Next("Running" if running else _last_phase(pod, histories), stop=running, why=DELETED)
    phase = _phase(pod, histories, now)
    deadline = _deadline(pod)
    was_late = any(it and it[-1].stopped == DEADLINE for it in histories.values())
    if was_late or (deadline is not None and deadline <= now and phase not in TERMINAL):
        return Next("Running" if running else "Failed", stop=running, why=DEADLINE)
    if phase in TERMINAL:
        return Next("Running" if running else phase, stop=running, why=FINISHED)
    start, times = [], [deadline] if deadline is not None else []
    for container in _turn(pod, histories, now):
        outlook, at = outlook_of(container, histories[container["name"]], _policy(pod["spec"], container), now)
        if outlook == "start":
            start.append(container)
        elif outlook == "wait":
            times.append(at)
    return Next(phase, start=tuple(start), again_at=min(times, default=None))


def _phase(pod: Pod, histories: Histories, now: float) -> str:
    """What the containers' outcomes mean, whatever still runs beside them."""
    before, mains = (pod.get("status") or {}).get("phase"), pod["spec"]["containers"]
    if before in TERMINAL:
        return str(before)
    outlooks = {outlook_of(it, histories[it["name"]], pod["spec"]["restartPolicy"], now)[0] for it in mains}
    if _init_failed(pod, histories, now) or ("failed" in outlooks and outlooks <= {"failed", "succeeded"}):
        return "Failed"
    if outlooks == {"succeeded"}:
        return "Succeeded"
    return "Running" if any(it and _has_run(it[-1]) for it in (histories[it["name"]] for it in mains)) else "Pending"


def _turn(pod: Pod, histories: Histories, now: float) -> Iterator[Container]:
    """The containers that may run now: up to the first init container that is not done, or all."""
    for container in pod["spec"].get("initContainers") or ():
        yield container
        outlook, _ = outlook_of(container, histories[container["name"]], _policy(pod["spec"], container), now)
        if outlook != ("running" if _is_sidecar(container) else "succeeded"):
            return
    yield from pod["spec"]["containers"]


def _init_failed(pod: Pod, histories: Histories, now: float) -> bool:
    return any(
        outlook_of(it, histories[it["name"]], _policy(pod["spec"], it), now)[0] == "failed"
        for it in pod["spec"].get("initContainers") or ()
    )


def _is_sidecar(container: Container) -> bool:
    return container.get("restartPolicy") == "Always"


def _policy(spec: dict[str, Any], container: Container) -> str:
    """An init container that succeeded is done, whatever the pod's policy."""
    if any(container is it for it in spec["containers"]):
        return str(spec["restartPolicy"])
    if _is_sidecar(container):
        return "Always"
    return "Never" if spec["restartPolicy"] == "Never" else "OnFailure"


def outlook_of(container: Container, attempts: Sequence[Attempt], policy: str, now: float) -> tuple[Outlook, float]:
    """What a container does, or has to do; with `wait`, until when."""
    if not attempts:
        return "start", now
    last = attempts[-1]
    if not last.is_over:
        return ("running" if last.is_running else "starting" if last.pid else "start"), now
    if last.stopped == SHUTDOWN:
        return "start", now
    if last.reason == REFUSED:
        at = (last.finished_at or now) + REFUSED_SECONDS
    elif policy == "Never" or (policy == "OnFailure" and last.code == 0):
        return ("failed" if last.code else "succeeded"), now
    else:
        at = (last.finished_at or now) + _pause(last)
    return ("start" if at <= now else "wait"), at


def _pause(last: Attempt) -> float:
    ran = (last.finished_at or 0.0) - (last.started_at or 0.0)
    if last.number == 0 or ran >= STEADY_SECONDS:
        return 0.0
    return float(min(FIRST_SECONDS * 2 ** min(last.number - 1, 10), LONGEST_SECONDS))


def _has_run(attempt: Attempt) -> bool:
    return attempt.started_at is not None and attempt.reason != REFUSED


def _deadline(pod: Pod) -> float | None:
    seconds, began = pod["spec"].get("activeDeadlineSeconds"), (pod.get("status") or {}).get("startTime")
    return time(began) + seconds if seconds is not None and began else None


def _last_phase(pod: Pod, histories: Histories) -> str:
    """The phase of a pod that is deleted and of which nothing runs any more."""
    before = (pod.get("status") or {}).get("phase")
    if before in TERMINAL:
        return str(before)
    codes = [histories[it["name"]][-1].code if histories[it["name"]] else None for it in pod["spec"]["containers"]]
    return "Succeeded" if all(code == 0 for code in codes) else "Failed"


def status_of(pod: Pod, histories: Histories, *, ahead: Next, refused: Mapping[str, str], now: float) -> dict[str, Any]:
    """The status to be written. `refused`: containers that cannot be made as they are written, and why."""
    before = pod.get("status") or {}
    spec, phase = pod["spec"], ahead.phase
    inits = [_container_status(pod, it, histories, refused, now) for it in spec.get("initContainers") or ()]
    mains = [_container_status(pod, it, histories, refused, now) for it in spec["containers"]]
    is_initialized = all(state["ready"] for state in inits)
    unready = [it["name"] for it in mains if not it["ready"]]
    why = "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
    not_ready = (why, f"containers with unready status: [{' '.join(unready)}]" if phase != "Succeeded" else "")
    facts = {
        "Initialized": (is_initialized, ("ContainersNotInitialized", "")),
        "Ready": (not unready, not_ready),
        "ContainersReady": (not unready, not_ready),
        "PodScheduled": (True, ("", "")),
    }
    status = {
        "phase": phase,
        "conditions": [_condition(before, kind, *fact, now) for kind, fact in facts.items()],
        "hostIP": "127.0.0.1",
        "podIP": "127.0.0.1",
        "hostIPs": [{"ip": "127.0.0.1"}],
        "podIPs": [{"ip": "127.0.0.1"}],
        "startTime": before.get("startTime") or time_text(int(now)),
        "containerStatuses": mains,
    }
    if phase == "Failed" and ahead.why == DEADLINE:
        status |= {"reason": DEADLINE, "message": "Pod was active on the node longer than the specified deadline"}
    elif phase == "Failed" and any(it and it[-1].reason == LOST for it in histories.values()):
        status |= {"reason": LOST_POD, "message": "A process of the pod was lost, and with it how it would have ended"}
    return status | ({"initContainerStatuses": inits} if inits else {})


def _condition(before: dict[str, Any], kind: str, holds: bool, why: tuple[str, str], now: float) -> dict[str, Any]:
    old = next((it for it in before.get("conditions") or () if it["type"] == kind), {})
    status = "True" if holds else "False"
    since = old.get("lastTransitionTime") if old.get("status") == status else None
    reason, message = ("", "") if holds else why
    said = {"type": kind, "status": status, "lastTransitionTime": since or time_text(int(now))}
    return said | {"reason": reason or None, "message": message or None}  # None takes away what was said before


def _container_status(
    pod: Pod, container: Container, histories: Histories, refused: Mapping[str, str], now: float
) -> dict[str, Any]:
    name, is_main = container["name"], any(container is it for it in pod["spec"]["containers"])
    attempts = histories[name]
    last = attempts[-1] if attempts else None
    outlook, _ = outlook_of(container, attempts, _policy(pod["spec"], container), now)
    state = _state(last, outlook, name) if name not in refused else _waiting(REFUSED, refused[name])
    if not last and name not in refused and is_main and pod["spec"].get("initContainers"):
        state = _waiting("PodInitializing")
    status = {
        "name": name,
        "image": container.get("image", ""),
        "imageID": "",
        "restartCount": last.number if last else 0,
        "ready": "running" in state if is_main else outlook in ("succeeded", "running"),
        "started": "running" in state,
        "state": state,
        "lastState": {},
    }
    ended = [it for it in attempts if it.is_over and it.reason != REFUSED]
    if ended and "terminated" not in state:
        status["lastState"] = {"terminated": _terminated(ended[-1])}
    return status | ({"containerID": _id(last)} if last and _has_run(last) else {})


def _state(last: Attempt | None, outlook: Outlook, name: str) -> dict[str, Any]:
    if last is None or not _has_run(last):
        is_refused = last is not None and last.reason == REFUSED
        return _waiting(REFUSED, last.message) if last and is_refused else _waiting("ContainerCreating")
    if not last.is_over:
        return {"running": {"startedAt": time_text(int(last.started_at or 0))}}
    if outlook == "wait":
        text = f"back-off {_pause(last):.0f}s restarting failed container={name}"
        return _waiting("CrashLoopBackOff", text)
    if last.stopped == SHUTDOWN:
        return _waiting("ContainerCreating")
    return {"terminated": _terminated(last)}


def _waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason} | ({"message": message} if message else {})}


def _terminated(attempt: Attempt) -> dict[str, Any]:
    reason = attempt.reason or (attempt.stopped if attempt.stopped == SHUTDOWN else "")
    return {
        "exitCode": attempt.code,
        "reason": reason or ("Error" if attempt.code else "Completed"),
        "startedAt": time_text(int(attempt.started_at or 0)),
        "finishedAt": time_text(int(attempt.finished_at or 0)),
        "containerID": _id(attempt),
    } | ({"message": attempt.message} if attempt.message else {})


def _id(attempt: Attempt) -> str:
    """`fairway://` and the attempt's place among all of this machine."""
    uid, _, name, number = attempt.folder.parts[-4:]
    return f"fairway://{uid}/{name}/{number}"
