"""What is next for a pod's containers, and what its status says: pure functions of the pod and its attempts on disk.

Containers follow each other as under a kubelet: init containers one by one (those with restartPolicy Always stay and
run beside the rest), then all others at once; what ends is started again as restartPolicy says, after 0, 10 … 300 s.
What Fairway itself stopped, because it was going down or for a resize, has no outcome: it is started again, whatever
the policy, and that is no restart of the container's.
Probes and lifecycle hooks are not served: a container that runs is ready.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fairway.api.objects import LOST_POD
from fairway.api.quantities import time, time_text

from .container import LOST, Attempt
from .environment import Container, Pod
from .resize import RESIZED

SHUTDOWN, DELETED, DEADLINE, FINISHED = "NodeShutdown", "Deleted", "DeadlineExceeded", "PodFinished"
AGAIN = (SHUTDOWN, RESIZED)
FIRST_SECONDS, LONGEST_SECONDS, STEADY_SECONDS = 10.0, 300.0, 600.0
TERMINAL = ("Succeeded", "Failed")
REFUSED, REFUSED_SECONDS = "CreateContainerConfigError", 10.0
LOCAL = {"hostIP": "127.0.0.1", "podIP": "127.0.0.1", "hostIPs": [{"ip": "127.0.0.1"}], "podIPs": [{"ip": "127.0.0.1"}]}

Outlook = Literal["start", "starting", "wait", "running", "succeeded", "failed"]


@dataclass(frozen=True, slots=True)
class Sight:
    """A pod at one moment: the attempts to run each of its containers, and why some cannot be made as written."""

    pod: Pod
    histories: Mapping[str, Sequence[Attempt]]
    now: float
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def inits(self) -> Sequence[Container]:
        return self.pod["spec"].get("initContainers") or ()

    @property
    def mains(self) -> Sequence[Container]:
        return self.pod["spec"]["containers"]

    @property
    def before(self) -> dict[str, Any]:
        """The status as it was last written."""
        return self.pod.get("status") or {}

    @property
    def running(self) -> tuple[str, ...]:
        return tuple(name for name, attempts in self.histories.items() if attempts and attempts[-1].pid)

    def last(self, container: Container) -> Attempt | None:
        attempts = self.histories[container["name"]]
        return attempts[-1] if attempts else None


@dataclass(frozen=True, slots=True)
class Next:
    """`stop` says why; `phase` is the pod's as it stands, before any of this is done."""

    phase: str
    start: tuple[Container, ...] = ()
    stop: tuple[str, ...] = ()
    why: str = ""
    again_at: float | None = None


def next_of(sight: Sight) -> Next:
    running = sight.running
    if sight.pod["metadata"].get("deletionTimestamp"):
        return Next("Running" if running else _last_phase(sight), stop=running, why=DELETED)
    phase, deadline = _phase(sight), _deadline(sight)
    was_late = any(it and it[-1].stopped == DEADLINE for it in sight.histories.values())
    if was_late or (deadline is not None and deadline <= sight.now and phase not in TERMINAL):
        return Next("Running" if running else "Failed", stop=running, why=DEADLINE)
    if phase in TERMINAL:
        return Next("Running" if running else phase, stop=running, why=FINISHED)
    outlooks = [(container, *outlook_of(sight, container)) for container in _turn(sight)]
    times = [at for _, outlook, at in outlooks if outlook == "wait"] + ([deadline] if deadline is not None else [])
    start = tuple(container for container, outlook, _ in outlooks if outlook == "start")
    return Next(phase, start=start, again_at=min(times, default=None))


def _phase(sight: Sight) -> str:
    """What the containers' outcomes mean, whatever still runs beside them."""
    before = sight.before.get("phase")
    if before in TERMINAL:
        return str(before)
    outlooks = {outlook_of(sight, container)[0] for container in sight.mains}
    init_failed = any(outlook_of(sight, container)[0] == "failed" for container in sight.inits)
    if init_failed or ("failed" in outlooks and outlooks <= {"failed", "succeeded"}):
        return "Failed"
    if outlooks == {"succeeded"}:
        return "Succeeded"
    return "Running" if any(_has_run(sight.last(container)) for container in sight.mains) else "Pending"


def _turn(sight: Sight) -> Iterator[Container]:
    """The containers that may run now: up to the first init container that is not done, or all."""
    for container in sight.inits:
        yield container
        if outlook_of(sight, container)[0] != ("running" if _is_sidecar(container) else "succeeded"):
            return
    yield from sight.mains


def _is_sidecar(container: Container) -> bool:
    return container.get("restartPolicy") == "Always"


def _policy(sight: Sight, container: Container) -> str:
    """An init container that succeeded is done, whatever the pod's policy."""
    policy = str(sight.pod["spec"]["restartPolicy"])
    if _is_main(sight, container):
        return policy
    if _is_sidecar(container):
        return "Always"
    return "Never" if policy == "Never" else "OnFailure"


def _is_main(sight: Sight, container: Container) -> bool:
    return any(container is it for it in sight.mains)


def outlook_of(sight: Sight, container: Container) -> tuple[Outlook, float]:
    """What a container does, or has to do; with `wait`, until when."""
    now, last, policy = sight.now, sight.last(container), _policy(sight, container)
    if last is None:
        return "start", now
    if not last.is_over:
        return ("running" if last.is_running else "starting" if last.pid else "start"), now
    if last.stopped in AGAIN:
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
    if last.restarts == 0 or ran >= STEADY_SECONDS:
        return 0.0
    return float(min(FIRST_SECONDS * 2 ** min(last.restarts - 1, 10), LONGEST_SECONDS))


def _has_run(attempt: Attempt | None) -> bool:
    return attempt is not None and attempt.started_at is not None and attempt.reason != REFUSED


def _deadline(sight: Sight) -> float | None:
    seconds, began = sight.pod["spec"].get("activeDeadlineSeconds"), sight.before.get("startTime")
    return time(began) + seconds if seconds is not None and began else None


def _last_phase(sight: Sight) -> str:
    """The phase of a pod that is deleted and of which nothing runs any more."""
    if sight.before.get("phase") in TERMINAL:
        return str(sight.before["phase"])
    ends = [sight.last(container) for container in sight.mains]
    return "Succeeded" if all(end and end.code == 0 for end in ends) else "Failed"


def status_of(sight: Sight, ahead: Next) -> dict[str, Any]:
    """The status to be written."""
    phase = ahead.phase
    inits = [_container_status(sight, it) for it in sight.inits]
    mains = [_container_status(sight, it) for it in sight.mains]
    waits, unready = not all(it["ready"] for it in inits), [it["name"] for it in mains if not it["ready"]]
    why = ("PodCompleted", "") if phase == "Succeeded" else (
        "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    )  # fmt: skip
    status = {
        "phase": phase,
        "conditions": [
            _condition(sight, "Initialized", ("ContainersNotInitialized", "") if waits else ()),
            _condition(sight, "Ready", why if unready else ()),
            _condition(sight, "ContainersReady", why if unready else ()),
            _condition(sight, "PodScheduled", ()),
        ],
        "startTime": sight.before.get("startTime") or time_text(int(sight.now)),
        "containerStatuses": mains,
    } | LOCAL
    if phase == "Failed" and ahead.why == DEADLINE:
        status |= {"reason": DEADLINE, "message": "Pod was active on the node longer than the specified deadline"}
    elif phase == "Failed" and any(it and it[-1].reason == LOST for it in sight.histories.values()):
        status |= {"reason": LOST_POD, "message": "A process of the pod was lost, and with it how it would have ended"}
    return status | ({"initContainerStatuses": inits} if inits else {})


def _condition(sight: Sight, kind: str, but: tuple[str, ...]) -> dict[str, Any]:
    """True, unless there is a reason and a message against it. None takes away what was said before."""
    old = next((it for it in sight.before.get("conditions") or () if it["type"] == kind), {})
    status = "False" if but else "True"
    since = old.get("lastTransitionTime") if old.get("status") == status else None
    reason, message = but or ("", "")
    return {
        "type": kind,
        "status": status,
        "lastTransitionTime": since or time_text(int(sight.now)),
        "reason": reason or None,
        "message": message or None,
    }


def _container_status(sight: Sight, container: Container) -> dict[str, Any]:
    name, last, is_main = container["name"], sight.last(container), _is_main(sight, container)
    outlook, _ = outlook_of(sight, container)
    state = _state(sight, container, outlook)
    status = {
        "name": name,
        "image": container.get("image", ""),
        "imageID": "",
        "restartCount": last.restarts if last else 0,
        "ready": "running" in state if is_main else outlook in ("succeeded", "running"),
        "started": "running" in state,
        "state": state,
        "lastState": {},
    }
    ended = [it for it in sight.histories[name] if it.is_over and it.reason != REFUSED]
    if ended and "terminated" not in state:
        status["lastState"] = {"terminated": _terminated(ended[-1])}
    return status | ({"containerID": _id(last)} if last and _has_run(last) else {})


def _state(sight: Sight, container: Container, outlook: Outlook) -> dict[str, Any]:
    name, last = container["name"], sight.last(container)
    if name in sight.refused:
        return _waiting(REFUSED, sight.refused[name])
    if last is None:
        return _waiting("PodInitializing" if sight.inits and _is_main(sight, container) else "ContainerCreating")
    if last.reason == REFUSED:
        return _waiting(REFUSED, last.message)
    if outlook == "wait":
        return _waiting("CrashLoopBackOff", f"back-off {_pause(last):.0f}s restarting failed container={name}")
    if last.started_at is None or last.stopped in AGAIN:
        return _waiting("ContainerCreating")
    return {"terminated": _terminated(last)} if last.is_over else {"running": {"startedAt": _moment(last.started_at)}}


def _waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason} | ({"message": message} if message else {})}


def _terminated(attempt: Attempt) -> dict[str, Any]:
    reason = attempt.stopped if attempt.stopped in AGAIN else "Error" if attempt.code else "Completed"
    return {
        "exitCode": attempt.code,
        "reason": attempt.reason or reason,
        "startedAt": _moment(attempt.started_at),
        "finishedAt": _moment(attempt.finished_at),
        "containerID": _id(attempt),
    } | ({"message": attempt.message} if attempt.message else {})


def _moment(seconds: float | None) -> str:
    return time_text(int(seconds or 0))


def _id(attempt: Attempt) -> str:
    """`fairway://` and the attempt's place among all of this machine."""
    uid, _, name, number = attempt.folder.parts[-4:]
    return f"fairway://{uid}/{name}/{number}"
