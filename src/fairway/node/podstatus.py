"""What is next for a pod's containers, and what its status says: pure functions of the pod and its attempts on disk.

Containers follow each other as under a kubelet: init containers one by one, then all others at once; what ends is
started again as restartPolicy says, after 0, 10 … 300 s. Sidecars, init containers with restartPolicy Always, let the
next start when they have started, run beside the rest, and stop after it, the last one first.
What Fairway itself stopped, because it was going down, for a resize or because it did not wake from a pause, has no
outcome: it is started again, whatever the policy, and that is no restart of the container's.
A container that runs is ready unless a probe or a hook of it says otherwise (health/); one whose liveness it denies is
stopped, and that counts as an end of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal

from fairway.api.objects import FROZEN, LOST_POD, NOT_SAVED, PAST_DEADLINE
from fairway.api.objects import ON_DISK as IS_ON_DISK
from fairway.api.quantities import time, time_text

from .container import LOST, Attempt
from .environment import Container, Pod, Unusable
from .health.probe import HEALTHY, Health
from .health.words import last_words
from .resize import RESIZED

SHUTDOWN, DELETED, FINISHED = "NodeShutdown", "Deleted", "PodFinished"
NOT_WOKEN, ON_DISK = "NotWoken", "OnDisk"
AGAIN = (SHUTDOWN, RESIZED, NOT_WOKEN, ON_DISK)
FIRST_SECONDS, LONGEST_SECONDS, STEADY_SECONDS = 10.0, 300.0, 600.0
TERMINAL, READY = ("Succeeded", "Failed"), ("Ready", "ContainersReady")
CANNOT = "CannotFreeze"
REFUSED, REFUSED_SECONDS = ("CreateContainerConfigError", "CreateContainerError"), 10.0
LOCAL = {"hostIP": "127.0.0.1", "podIP": "127.0.0.1", "hostIPs": [{"ip": "127.0.0.1"}], "podIPs": [{"ip": "127.0.0.1"}]}

Outlook = Literal["start", "starting", "wait", "running", "succeeded", "failed"]


@dataclass(frozen=True, slots=True)
class Frozen:
    """Of a pod that is frozen, or to be: whether none of its processes runs, or why that cannot be; whether they are on
    disk, or why they cannot go there."""

    is_still: bool = False
    why: str = ""
    is_on_disk: bool = False
    unsaved: str = ""


@dataclass(frozen=True, slots=True)
class Sight:
    """A pod at one moment: the attempts to run each of its containers, why some cannot be made as written, how those
    are that run and have probes or hooks, and how far it is frozen; None where it is not, and is not to be."""

    pod: Pod
    histories: Mapping[str, Sequence[Attempt]]
    now: float
    refused: Mapping[str, Unusable] = field(default_factory=dict)
    health: Mapping[str, Health] = field(default_factory=dict)
    frozen: Frozen | None = None

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

    @property
    def leaving(self) -> tuple[str, ...]:
        """What stops next where all is to stop: sidecars when nothing else runs, from the last to the first."""
        sidecars = [it["name"] for it in self.inits if _is_sidecar(it) and it["name"] in self.running]
        return tuple(name for name in self.running if name not in sidecars) or tuple(sidecars[-1:])

    def is_well(self, container: Container) -> Health:
        return self.health.get(container["name"], HEALTHY)

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
        return Next("Running" if running else _last_phase(sight), stop=sight.leaving, why=DELETED)
    phase, deadline = _phase(sight), _deadline(sight)
    was_late = any(it and it[-1].stopped == PAST_DEADLINE for it in sight.histories.values())
    if was_late or (deadline is not None and deadline <= sight.now and phase not in TERMINAL):
        return Next("Running" if running else "Failed", stop=sight.leaving, why=PAST_DEADLINE)
    if phase in TERMINAL:
        return Next("Running" if running else phase, stop=sight.leaving, why=FINISHED)
    if sight.frozen:
        return Next(phase, again_at=deadline)  # what is to stand still starts nothing
    outlooks = [(container, *outlook_of(sight, container)) for container in _turn(sight)]
    times = [at for _, outlook, at in outlooks if outlook == "wait"] + ([deadline] if deadline is not None else [])
    start = tuple(container for container, outlook, _ in outlooks if outlook == "start")
    sick = {name: sight.health[name].fault for name in running if name in sight.health and sight.health[name].fault}
    why = next(iter(sick.values()), "")
    return Next(phase, start=start, stop=tuple(sick), why=why, again_at=min(times, default=None))


def _phase(sight: Sight) -> str:
    """What the containers' outcomes mean, whatever still runs beside them."""
    before = sight.before.get("phase")
    if before in TERMINAL:
        return str(before)
    outlooks = {outlook_of(sight, container)[0] for container in sight.mains}
    init_failed = any(outlook_of(sight, it)[0] == "failed" for it in sight.inits if not _is_sidecar(it))
    if init_failed or ("failed" in outlooks and outlooks <= {"failed", "succeeded"}):
        return "Failed"
    if outlooks == {"succeeded"}:
        return "Succeeded"
    return "Running" if any(_has_run(it) for one in sight.mains for it in sight.histories[one["name"]]) else "Pending"


def _turn(sight: Sight) -> Iterator[Container]:
    """The containers that may run now: up to the first init container that is not done, or all."""
    has_begun = any(it in sight.running for it in map(itemgetter("name"), sight.mains))
    for container in sight.inits:
        yield container
        if not has_begun and not _is_done(sight, container):
            return
    yield from sight.mains


def _is_done(sight: Sight, container: Container) -> bool:
    """Whether what follows an init container may start."""
    outlook, _ = outlook_of(sight, container)
    if _is_sidecar(container):
        return outlook == "running" and sight.is_well(container).is_started
    return outlook == "succeeded"


def _is_sidecar(container: Container) -> bool:
    return container.get("restartPolicy") == "Always"


def _policy(sight: Sight, container: Container) -> str:
    """An init container that succeeded is done, whatever the pod's policy."""
    policy = str(sight.pod["spec"]["restartPolicy"])
    if _is_main(sight, container):
        return policy
    if _is_sidecar(container):
        is_last = all(outlook_of(sight, it)[0] in ("succeeded", "failed") for it in sight.mains)
        return "Never" if is_last else "Always"
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
    if last.reason in REFUSED:
        pause = REFUSED_SECONDS
    elif policy == "Never" or (policy == "OnFailure" and last.code == 0):
        return ("failed" if last.code else "succeeded"), now
    else:
        pause = _pause(last)
    ended = last.finished_at or now
    is_due = ended + pause <= now or ended > now  # it ends later than now only if the clock was set back since
    return ("start" if is_due else "wait"), ended + pause


def _pause(last: Attempt) -> float:
    ran = (last.finished_at or 0.0) - (last.started_at or 0.0)
    if last.restarts == 0 or ran >= STEADY_SECONDS:
        return 0.0
    return float(min(FIRST_SECONDS * 2 ** min(last.restarts - 1, 10), LONGEST_SECONDS))


def _has_run(attempt: Attempt) -> bool:
    return attempt.started_at is not None and attempt.reason not in REFUSED


def _deadline(sight: Sight) -> float | None:
    seconds = sight.pod["spec"].get("activeDeadlineSeconds")
    return time(_started(sight)) + seconds if seconds is not None else None


def _started(sight: Sight) -> str:
    return str(sight.before.get("startTime") or time_text(int(sight.now)))


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
    waits = not any(map(sight.last, sight.mains)) and not all(_is_done(sight, it) for it in sight.inits)
    sidecars = [status for it, status in zip(sight.inits, inits, strict=True) if _is_sidecar(it)]
    if is_still := sight.frozen is not None and sight.frozen.is_still:
        for it in (*sidecars, *mains):
            it["ready"] = False
    unready = [it["name"] for it in (*sidecars, *mains) if not it["ready"]]
    why = ("Paused", "its processes are frozen") if is_still else ("PodCompleted", "") if phase == "Succeeded" else (
        "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    )  # fmt: skip
    status = {
        "phase": phase,
        "conditions": [
            _condition(sight, "Initialized", ("ContainersNotInitialized", "") if waits else ()),
            _condition(sight, "Ready", why if unready else _gated(sight)),
            _condition(sight, "ContainersReady", why if unready else ()),
            _condition(sight, "PodScheduled", ()),
            *_frozen(sight),
        ],
        "startTime": _started(sight),
        "containerStatuses": mains,
    } | LOCAL
    if phase == "Failed" and ahead.why == PAST_DEADLINE:
        status |= {"reason": PAST_DEADLINE, "message": "Pod was active on the node longer than the specified deadline"}
    elif phase == "Failed" and any(it and it[-1].reason == LOST for it in sight.histories.values()):
        status |= {"reason": LOST_POD, "message": "A process of the pod was lost, and with it how it would have ended"}
    return status | ({"initContainerStatuses": inits} if inits else {})


def _gated(sight: Sight) -> tuple[str, ...]:
    """Why a pod whose containers are ready is not: a readiness gate that no condition opens."""
    said = {it["type"]: it["status"] for it in sight.before.get("conditions") or ()}
    gates = [it["conditionType"] for it in sight.pod["spec"].get("readinessGates") or ()]
    shut = [it for it in gates if said.get(it) != "True"]
    message = f"the status of pod readiness gates is not True: {', '.join(shut)}"
    return ("ReadinessGatesNotReady", message) if shut else ()


def _frozen(sight: Sight) -> Iterator[dict[str, Any]]:
    """Whether it is frozen, or why it cannot be, of one that was to be once."""
    if sight.frozen and sight.frozen.is_still:
        said = sight.frozen
        where = (IS_ON_DISK, None) if said.is_on_disk else (NOT_SAVED if said.unsaved else None, said.unsaved or None)
        yield _condition(sight, FROZEN, ()) | dict(zip(("reason", "message"), where))
    elif sight.frozen and sight.frozen.why:
        yield _condition(sight, FROZEN, (CANNOT, sight.frozen.why))
    elif any(it["type"] == FROZEN for it in sight.before.get("conditions") or ()):
        yield _condition(sight, FROZEN, ("Running", ""))


def _condition(sight: Sight, kind: str, but: tuple[str, ...]) -> dict[str, Any]:
    """True, unless there is a reason and a message against it. None takes away what was said before."""
    old = next((it for it in sight.before.get("conditions") or () if it["type"] == kind), {})
    status = "False" if but else "True"
    since = old.get("lastTransitionTime") if old.get("status") == status else None
    if since and not but and kind in READY and time(since) < int(_begun(sight)):
        since = None  # what was ready ended meanwhile, if only while nobody looked
    reason, message = but or ("", "")
    return {
        "type": kind,
        "status": status,
        "lastTransitionTime": since or time_text(int(sight.now)),
        "reason": reason or None,
        "message": message or None,
    }


def _begun(sight: Sight) -> float:
    """When the last to start of those containers began to run that the pod's readiness is of."""
    lasts = [sight.last(it) for it in (*filter(_is_sidecar, sight.inits), *sight.mains)]
    return max((it.started_at or 0.0 for it in lasts if it), default=0.0)


def _container_status(sight: Sight, container: Container) -> dict[str, Any]:
    name, last, health = container["name"], sight.last(container), sight.is_well(container)
    has_phases = _is_main(sight, container) or _is_sidecar(container)
    outlook, _ = outlook_of(sight, container)
    state = _state(sight, container, outlook)
    status = {
        "name": name,
        "image": container.get("image", ""),
        "imageID": "",
        "restartCount": last.restarts if last else 0,
        "ready": "running" in state and health.is_ready if has_phases else outlook == "succeeded",
        "started": "running" in state and health.is_started,
        "state": state,
        "lastState": {},
    }
    ended = [it for it in sight.histories[name] if it.is_over and it.reason not in REFUSED]
    if ended and "terminated" not in state:
        status["lastState"] = {"terminated": _terminated(ended[-1], container)}
    return status | ({"containerID": last.id} if last and _has_run(last) else {})


def _state(sight: Sight, container: Container, outlook: Outlook) -> dict[str, Any]:
    name, last = container["name"], sight.last(container)
    if why := sight.refused.get(name):
        return _waiting(why.reason, str(why))
    if last is None:
        return _waiting("PodInitializing" if sight.inits and _is_main(sight, container) else "ContainerCreating")
    if last.reason in REFUSED:
        return _waiting(last.reason, last.message)
    if outlook == "wait":
        return _waiting("CrashLoopBackOff", f"back-off {_pause(last):.0f}s restarting failed container={name}")
    if last.started_at is None or last.stopped in AGAIN:
        return _waiting("ContainerCreating")
    if last.is_over:
        return {"terminated": _terminated(last, container)}
    return {"running": {"startedAt": _moment(last.started_at)}}


def _waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason} | ({"message": message} if message else {})}


def _terminated(attempt: Attempt, container: Container) -> dict[str, Any]:
    message = last_words(attempt, container)
    reason = attempt.stopped if attempt.stopped in AGAIN else "Error" if attempt.code else "Completed"
    return {
        "exitCode": attempt.code,
        "reason": attempt.reason or reason,
        "startedAt": _moment(attempt.started_at),
        "finishedAt": _moment(attempt.finished_at),
        "containerID": attempt.id,
    } | ({"message": message} if message else {})


def _moment(seconds: float | None) -> str:
    return time_text(int(seconds or 0))
