"""What a Job's pods mean for it, and what is to be done next: `settle`, a pure function from objects to a Step.

It counts each pod exactly once, as Kubernetes does, over any number of crashes. A pod carries a finalizer until its end
is recorded. An ended pod's uid first stands in `uncountedTerminatedPods`; then it loses the finalizer; once it is seen
without, the count goes up and the uid goes, in one write. What ends the whole job is one write as well: the last pods
are counted together with the condition, and the pods of a finished job are released uncounted. Completed indexes are a
set, so they need no such steps.

Pods that the job itself takes away (suspension, fewer parallel, completions reached) are released first: no failure.
Pods deleted by anybody else count as failed at once and are replaced. A pod whose process was lost (reason Lost: the
machine went down) is replaced and not counted, since it is not the user's failure. After failures the next pod waits
10 s, 20 s … 6 min; being suspended leaves no such debt. Not served: podFailurePolicy, successPolicy,
backoffLimitPerIndex, and podReplacementPolicy other than the default.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import field
from msgspec.structs import replace

from fairway.api.objects import Condition, Metadata, Part
from fairway.api.quantities import time, time_text

FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
LOST_POD = "Lost"
FIRST_SECONDS, LONGEST_SECONDS = 10.0, 360.0
EPOCH = "1970-01-01T00:00:00Z"


class JobSpec(Part):
    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    backoff_limit: int = 6
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool = False
    template: dict[str, Any] = field(default_factory=dict)

    @property
    def is_indexed(self) -> bool:
        return self.completion_mode == "Indexed"


class Uncounted(Part):
    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatus(Part, kw_only=True):
    active: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: str | None = None
    completion_time: str | None = None
    completed_indexes: str | None = None
    uncounted_terminated_pods: Uncounted = Uncounted()
    conditions: tuple[Condition, ...] = ()


class JobMetadata(Metadata):
    generation: int = 0


class Job(Part):
    metadata: JobMetadata = JobMetadata()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class Ended(Part):
    finished_at: str = ""


class State(Part):
    terminated: Ended | None = None


class ContainerStatus(Part):
    restart_count: int = 0
    state: State = State()


class PodStatus(Part):
    phase: str = ""
    reason: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class PodSpec(Part):
    node_name: str = ""
    restart_policy: str = ""


class Pod(Part):
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_tracked(self) -> bool:
        return FINALIZER in self.metadata.finalizers

    @property
    def is_leaving(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def has_succeeded(self) -> bool:
        return self.status.phase == "Succeeded"

    @property
    def is_over(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed") or self.is_leaving

    @property
    def is_ready(self) -> bool:
        return any(it.type == "Ready" and it.status == "True" for it in self.status.conditions)

    @property
    def index(self) -> int:
        """-1 where the pod has none."""
        text = self.metadata.annotations.get(INDEX, "")
        return int(text) if text.isdecimal() else -1


@dataclass(frozen=True, slots=True)
class Step:
    """Done in this order: pods removed (released, then deleted), stopped (deleted, to be counted), created (one per
    entry: its index, or None); when nothing of that is left to do, the status is written, then pods are released."""

    status: JobStatus
    remove: tuple[Pod, ...] = ()
    stop: tuple[Pod, ...] = ()
    create: tuple[int | None, ...] = ()
    release: tuple[Pod, ...] = ()
    again_at: float | None = None
    is_expired: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """The job's pods, counted. `ended` are tracked still; `uncounted` has what of them the record will name."""

    active: tuple[Pod, ...]
    terminating: int
    ended: tuple[Pod, ...]
    indexes: frozenset[int]
    succeeded: int
    failed: int
    uncounted: Uncounted

    @property
    def all_succeeded(self) -> int:
        return self.succeeded + len(self.uncounted.succeeded)

    @property
    def all_failed(self) -> int:
        return self.failed + len(self.uncounted.failed)


def settle(job: Job, pods: Sequence[Pod], now: float) -> Step:
    if ended := _true(job.status, "Complete") or _true(job.status, "Failed"):
        return _finished(job, pods, time(ended.last_transition_time or time_text(now)), now)
    tally = tally_of(job, pods)
    deadline = _deadline(job, now)
    if failing := _true(job.status, "FailureTarget") or _failure(job, pods, tally, deadline, now):
        return _failing(job, tally, failing, now)
    if _is_complete(job, tally):
        return _completing(job, tally, now)
    if job.spec.suspend:
        return _suspended(job, tally, now)
    return _running(job, pods, tally, deadline, now)


def tally_of(job: Job, pods: Sequence[Pod]) -> Tally:
    ended = tuple(pod for pod in pods if pod.is_tracked and pod.is_over)
    tracked = {pod.metadata.uid for pod in ended}
    before = job.status.uncounted_terminated_pods
    good = [pod for pod in ended if pod.has_succeeded]
    failed = tuple(pod.metadata.uid for pod in ended if not pod.has_succeeded and pod.status.reason != LOST_POD)
    indexes: frozenset[int] = frozenset()
    if job.spec.is_indexed:
        indexes = parse_indexes(job.status.completed_indexes or "") | {pod.index for pod in good}
        indexes = frozenset(index for index in indexes if 0 <= index < (job.spec.completions or 0))
        succeeded, uncounted = len(indexes), Uncounted((), failed)
    else:
        succeeded = job.status.succeeded + sum(uid not in tracked for uid in before.succeeded)
        uncounted = Uncounted(tuple(pod.metadata.uid for pod in good), failed)
    return Tally(
        active=tuple(pod for pod in pods if not pod.is_over),
        terminating=sum(pod.is_leaving and pod.status.phase not in ("Succeeded", "Failed") for pod in pods),
        ended=ended,
        indexes=indexes,
        succeeded=succeeded,
        failed=job.status.failed + sum(uid not in tracked for uid in before.failed),
        uncounted=uncounted,
    )


def _finished(job: Job, pods: Sequence[Pod], ended_at: float, now: float) -> Step:
    release = tuple(pod for pod in pods if pod.is_tracked and pod.is_over)
    remove = tuple(pod for pod in pods if not pod.is_over)
    ttl = job.spec.ttl_seconds_after_finished
    expires = None if ttl is None else ended_at + ttl
    return Step(
        job.status,
        remove=remove,
        release=release,
        again_at=expires,
        is_expired=expires is not None and expires <= now,
    )


def _deadline(job: Job, now: float) -> float | None:
    seconds = job.spec.active_deadline_seconds
    if seconds is None or job.spec.suspend:
        return None
    return (time(job.status.start_time) if job.status.start_time else now) + seconds


def _failure(job: Job, pods: Sequence[Pod], tally: Tally, deadline: float | None, now: float) -> Condition | None:
    limit = job.spec.backoff_limit
    restarts = sum(
        status.restart_count
        for pod in tally.active
        if pod.spec.restart_policy == "OnFailure"
        for status in (*pod.status.container_statuses, *pod.status.init_container_statuses)
    )
    if tally.all_failed > limit or restarts >= max(limit, 1):
        why = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    elif deadline is not None and deadline <= now:
        why = ("DeadlineExceeded", "Job was active longer than specified deadline")
    else:
        return None
    return Condition("FailureTarget", "True", *why)


def _failing(job: Job, tally: Tally, why: Condition, now: float) -> Step:
    """Failed only when no pod of it runs: until then the pods are stopped, and counted."""
    status = _counts(job, tally, (why,), now)
    if tally.active or tally.terminating:
        return Step(status, stop=tally.active, release=tally.ended)
    failed = Condition("Failed", "True", why.reason, why.message)
    return Step(_closed(_counts(job, tally, (why, failed), now), tally), release=tally.ended)


def _is_complete(job: Job, tally: Tally) -> bool:
    if job.spec.completions is None:
        return tally.all_succeeded > 0 and not tally.active
    return tally.all_succeeded >= job.spec.completions


def _completing(job: Job, tally: Tally, now: float) -> Step:
    if tally.active:
        return Step(_counts(job, tally, (), now), remove=tally.active, release=tally.ended)
    said = Condition("Complete", "True", "CompletionsReached", "Reached expected number of succeeded pods")
    status = _closed(_counts(job, tally, (said,), now), tally, completion_time=time_text(int(now)))
    return Step(status, release=tally.ended)


def _suspended(job: Job, tally: Tally, now: float) -> Step:
    said = Condition("Suspended", "True", "JobSuspended", "Job suspended")
    status = replace(_counts(job, tally, (said,), now), start_time=None)
    return Step(status, remove=tally.active, release=tally.ended)


def _running(job: Job, pods: Sequence[Pod], tally: Tally, deadline: float | None, now: float) -> Step:
    said = Condition("Suspended", "False", "JobResumed", "Job resumed")
    resumed = (said,) if any(it.type == "Suspended" for it in job.status.conditions) else ()
    status = _counts(job, tally, resumed, now)
    if job.metadata.deletion_timestamp:
        return Step(status, release=tally.ended)
    wanted = _wanted(job.spec, tally)
    surplus = _surplus(job.spec, tally.active, wanted)
    missing = wanted - len(tally.active)
    pause = _pause_end(pods) if missing > 0 else 0.0
    times = [moment for moment in (deadline, pause) if moment and moment > now]
    create = _indexes(job.spec, tally, missing) if missing > 0 and pause <= now and not surplus else ()
    return Step(status, remove=surplus, create=create, release=tally.ended, again_at=min(times, default=None))


def _wanted(spec: JobSpec, tally: Tally) -> int:
    if spec.completions is None:
        return len(tally.active) if tally.all_succeeded else spec.parallelism
    return max(0, min(spec.parallelism, spec.completions - tally.all_succeeded))


def _surplus(spec: JobSpec, active: Sequence[Pod], wanted: int) -> tuple[Pod, ...]:
    """Those too many, the least advanced first; with indexes also strangers and the later of two with one index."""
    ranked = sorted(active, key=_progress)
    if not spec.is_indexed:
        return tuple(ranked[: max(0, len(active) - wanted)])
    kept: dict[int, Pod] = {}
    for pod in sorted(active, key=lambda pod: pod.metadata.creation_timestamp or ""):
        if 0 <= pod.index < (spec.completions or 0):
            kept.setdefault(pod.index, pod)
    strangers = [pod for pod in ranked if kept.get(pod.index) is not pod]
    others = [pod for pod in ranked if kept.get(pod.index) is pod]
    return (*strangers, *others[: max(0, len(others) - wanted)])


def _progress(pod: Pod) -> tuple[bool, bool, bool, float]:
    age = -time(pod.metadata.creation_timestamp) if pod.metadata.creation_timestamp else 0.0
    return bool(pod.spec.node_name), pod.status.phase == "Running", pod.is_ready, age


def _indexes(spec: JobSpec, tally: Tally, missing: int) -> tuple[int | None, ...]:
    if not spec.is_indexed:
        return (None,) * missing
    taken = tally.indexes | {pod.index for pod in tally.active}
    return tuple([index for index in range(spec.completions or 0) if index not in taken][:missing])


def _pause_end(pods: Iterable[Pod]) -> float:
    """Until when the next pod waits for the failures since the last success."""
    ends = sorted((_end(pod), pod.has_succeeded) for pod in pods if pod.is_over and not pod.is_leaving)
    failures = 0
    for _, has_succeeded in ends:
        failures = 0 if has_succeeded else failures + 1
    return ends[-1][0] + min(FIRST_SECONDS * 2 ** (failures - 1), LONGEST_SECONDS) if failures else 0.0


def _end(pod: Pod) -> float:
    ends = [it.state.terminated.finished_at for it in pod.status.container_statuses if it.state.terminated]
    return max((time(end) for end in ends if end), default=time(pod.metadata.creation_timestamp or EPOCH))


def _counts(job: Job, tally: Tally, conditions: Iterable[Condition], now: float) -> JobStatus:
    said = {condition.type: condition for condition in job.status.conditions}
    for condition in conditions:
        before = said.get(condition.type)
        if before is None or before.status != condition.status:
            said[condition.type] = Condition(
                condition.type, condition.status, condition.reason, condition.message, time_text(int(now))
            )
    return JobStatus(
        active=len(tally.active),
        ready=sum(pod.is_ready for pod in tally.active),
        terminating=tally.terminating,
        succeeded=tally.succeeded,
        failed=tally.failed,
        start_time=job.status.start_time or time_text(int(now)),
        completed_indexes=show_indexes(tally.indexes) if job.spec.is_indexed else None,
        uncounted_terminated_pods=tally.uncounted,
        conditions=tuple(said.values()),
    )


def _closed(status: JobStatus, tally: Tally, completion_time: str | None = None) -> JobStatus:
    """Everything counted, in the write that ends the job."""
    return replace(
        status,
        succeeded=tally.all_succeeded,
        failed=tally.all_failed,
        uncounted_terminated_pods=Uncounted(),
        completion_time=completion_time,
    )


def _true(status: JobStatus, kind: str) -> Condition | None:
    return next((it for it in status.conditions if it.type == kind and it.status == "True"), None)


def parse_indexes(text: str) -> frozenset[int]:
    """`0,2-4` → {0, 2, 3, 4}"""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def show_indexes(indexes: Iterable[int]) -> str:
    """{0, 2, 3, 4} → `0,2-4`"""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(_run(first, last) for first, last in runs)


def _run(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"
