"""What a Job's pods mean for it, and what is to be done next: `settle`, a pure function from objects to a Step.

It counts each pod exactly once, as Kubernetes does, over any number of crashes. A pod carries a finalizer until its end
is recorded. An ended pod's uid first stands in `uncountedTerminatedPods`; then it loses the finalizer; once it is seen
without, the count goes up and the uid goes, in one write. What ends the whole job is one write as well: the last pods
are counted together with the condition, and the pods of a finished job are released uncounted. Completed indexes are a
set, so they need no such steps.

Pods that the job itself takes away (suspension, fewer parallel, completions reached) are released first: no failure.
A pod that a user deletes counts as failed at once and is replaced. A lost pod (its shim or node is gone, it was
evicted) is replaced and never counted: the program did not fail. After failures the next pod waits 10 s, 20 s … 6 min.
The first loss is made good at once; the next ones, unless the pods ran for 6 min between them, wait as failures do.
Being suspended leaves no such debt. `podFailurePolicy` says of a failed pod whether it counts (podfailure.py). With
`backoffLimitPerIndex` an index that failed too often is over, each index waits for its own failures alone, and the
others go on. With `successPolicy` it may have succeeded before all of its indexes have: successpolicy.py. The pods that
still run are taken away then, and it is Complete when none is left.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from fairway.api.indexes import parse_indexes, show_indexes
from fairway.api.objects import PAST_DEADLINE, Condition
from fairway.api.quantities import time, time_text

from .jobtypes import Job, JobSpec, JobStatus, Pod, Uncounted
from .podfailure import rule_of
from .successpolicy import rule_met

FIRST_SECONDS, LONGEST_SECONDS = 10.0, 360.0
ALL = -1
COUNTED = ("Count", "FailIndex", "FailJob")
LEAST_TTL = 2.0  # what waits for a Job's end sees it before the Job is gone
EPOCH = "1970-01-01T00:00:00Z"


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
    """A job's pods, counted. `ended` are tracked still; `uncounted` is what the record will name of them."""

    job: Job
    pods: Sequence[Pod]
    now: float
    active: tuple[Pod, ...]
    ended: tuple[Pod, ...]
    indexes: frozenset[int]
    failed_indexes: frozenset[int]
    succeeded: int
    failed: int
    uncounted: Uncounted

    @property
    def terminating(self) -> int:
        return sum(pod.metadata.is_going and not pod.status.is_over for pod in self.pods)

    @property
    def all_succeeded(self) -> int:
        return self.succeeded + len(self.uncounted.succeeded)

    @property
    def all_failed(self) -> int:
        return self.failed + len(self.uncounted.failed)

    @property
    def deadline(self) -> float | None:
        seconds, began = self.job.spec.active_deadline_seconds, self.job.status.start_time
        if seconds is None or self.job.spec.suspend:
            return None
        return (time(began) if began else self.now) + seconds


def settle(job: Job, pods: Sequence[Pod], now: float) -> Step:
    if ended := _true(job.status, "Complete") or _true(job.status, "Failed"):
        return _finished(job, pods, time(ended.last_transition_time or time_text(now)), now)
    tally = tally_of(job, pods, now)
    met = _true(job.status, "SuccessCriteriaMet")
    if not met and (failing := _true(job.status, "FailureTarget") or _failure(tally)):
        return _failing(tally, failing)
    if met := met or _criteria(tally):
        return _succeeding(tally, met)
    if _is_complete(tally):
        return _completing(tally)
    return _suspended(tally) if job.spec.suspend else _running(tally)


def is_minor(old: JobStatus, new: JobStatus) -> bool:
    """Whether a status differs only in what nothing is decided by: how many pods are ready, that a new Job waits."""
    is_new = old == JobStatus() and not new.active and [it.reason for it in new.conditions] == ["JobSuspended"]
    return is_new or (old != new and old == replace(new, ready=old.ready))


def tally_of(job: Job, pods: Sequence[Pod], now: float) -> Tally:
    ended = tuple(pod for pod in pods if pod.is_tracked and pod.is_over)
    tracked = {pod.metadata.uid for pod in ended}
    before = job.status.uncounted_terminated_pods
    good = [pod for pod in ended if pod.has_succeeded]
    failed = tuple(pod.metadata.uid for pod in ended if _action(job.spec, pod) in COUNTED)
    indexes: frozenset[int] = frozenset()
    if job.spec.is_indexed:
        indexes = parse_indexes(job.status.completed_indexes or "") | {pod.index for pod in good}
        indexes = frozenset(index for index in indexes if 0 <= index < (job.spec.completions or 0))
        succeeded, uncounted = len(indexes), Uncounted((), failed)
    else:
        succeeded = job.status.succeeded + sum(uid not in tracked for uid in before.succeeded)
        uncounted = Uncounted(tuple(pod.metadata.uid for pod in good), failed)
    active = tuple(pod for pod in pods if not pod.is_over)
    counted = job.status.failed + sum(uid not in tracked for uid in before.failed)
    over = _failed_indexes(job, pods) - indexes
    return Tally(job, pods, now, active, ended, indexes, over, succeeded, counted, uncounted)


def _action(spec: JobSpec, pod: Pod) -> str:
    """What a pod that is over means for its Job: a loss or a success is no failure."""
    if not pod.is_over or pod.has_succeeded or pod.is_lost:
        return "Ignore"
    return rule_of(spec.pod_failure_policy, pod)[1] if pod.status.phase == "Failed" else "Count"


def _failed_indexes(job: Job, pods: Sequence[Pod]) -> frozenset[int]:
    """Indexes that failed more often than each may."""
    limit = job.spec.backoff_limit_per_index
    if limit is None or not job.spec.is_indexed:
        return frozenset()
    found = {index for index, count in failures(job, pods).items() if count > limit}
    found |= {pod.index for pod in pods if _action(job.spec, pod) == "FailIndex"}
    return frozenset(found | parse_indexes(job.status.failed_indexes or ""))


def failures(job: Job, pods: Sequence[Pod]) -> Counter[int]:
    """How often each index failed: each pod says how often before it, so that failed pods may be deleted. A pod
    that the Job removes itself has not failed; the Job takes its finalizer off before it deletes it."""
    found = Counter[int]()
    for pod in pods:
        is_removed = pod.metadata.is_going and not pod.is_tracked
        own = pod.failures_before + (not is_removed and _action(job.spec, pod) in COUNTED)
        found[pod.index] = max(found[pod.index], own)
    return found


def _finished(job: Job, pods: Sequence[Pod], ended_at: float, now: float) -> Step:
    ttl = job.spec.ttl_seconds_after_finished
    expires = None if ttl is None else ended_at + max(ttl, LEAST_TTL)
    return Step(
        job.status,
        remove=tuple(pod for pod in pods if not pod.is_over),
        release=tuple(pod for pod in pods if pod.is_tracked and pod.is_over),
        again_at=expires,
        is_expired=expires is not None and expires <= now,
    )


def _failure(tally: Tally) -> Condition | None:
    limit, deadline = tally.job.spec.backoff_limit, tally.deadline
    restarts = sum(
        status.restart_count
        for pod in tally.active
        if pod.spec.restart_policy == "OnFailure"
        for status in (*pod.status.container_statuses, *pod.status.init_container_statuses)
    )
    most, over = tally.job.spec.max_failed_indexes, len(tally.failed_indexes)
    if fatal := _fatal(tally):
        why = ("PodFailurePolicy", fatal)
    elif most is not None and over > most:
        why = ("MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes")
    elif over and len(tally.indexes) + over >= (tally.job.spec.completions or 0):
        why = ("FailedIndexes", "Job has failed indexes")
    elif tally.all_failed > limit or restarts >= max(limit, 1):
        why = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    elif deadline is not None and deadline <= tally.now:
        why = (PAST_DEADLINE, "Job was active longer than specified deadline")
    else:
        return None
    return Condition("FailureTarget", "True", *why)


def _fatal(tally: Tally) -> str:
    """The pod that fails the whole Job, by its policy, in a sentence; "" for none. As in Kubernetes the rules judge
    each failed pod that the Job owns: also one that ended for the cluster's sake, or is not to be counted."""
    for pod in tally.pods:
        row, action = rule_of(tally.job.spec.pod_failure_policy, pod)
        if action == "FailJob" and pod.status.phase == "Failed":
            codes = [f"Container {name} failed with exit code {code}, " for name, code in pod.exit_codes if code]
            return f"{''.join(codes[:1])}pod {pod.metadata.name} matches the FailJob rule at index {row}"
    return ""


def _failing(tally: Tally, why: Condition) -> Step:
    """Failed only when no pod of it runs: until then the pods are stopped, and counted. The reason is written before:
    a failure by being stopped must not become the reason."""
    if tally.active or tally.terminating:
        stop = tally.active if why in tally.job.status.conditions else ()
        return Step(_counts(tally, why), stop=stop, release=tally.ended)
    failed = Condition("Failed", "True", why.reason, why.message)
    return Step(_closed(tally, why, failed), release=tally.ended)


def _criteria(tally: Tally) -> Condition | None:
    """That the job has succeeded by its successPolicy, where a rule of it is met."""
    row = rule_met(tally.job.spec.success_policy, tally.indexes) if tally.job.spec.is_indexed else -1
    said = Condition("SuccessCriteriaMet", "True", "SuccessPolicy", f"Matched rules at index {row}")
    return said if row >= 0 else None


def _succeeding(tally: Tally, why: Condition) -> Step:
    """Complete only when no pod of it runs; the reason is written before, as in `_failing`."""
    if tally.active or tally.terminating:
        is_told = _true(tally.job.status, why.type)
        return Step(_counts(tally, why), remove=tally.active if is_told else (), release=tally.ended)
    status = _closed(tally, why, Condition("Complete", "True", why.reason, why.message))
    return Step(replace(status, completion_time=_completed(tally)), release=tally.ended)


def _is_complete(tally: Tally) -> bool:
    completions = tally.job.spec.completions
    if completions is None:
        return tally.all_succeeded > 0 and not tally.active
    return tally.all_succeeded >= completions


def _completing(tally: Tally) -> Step:
    if tally.active:
        return Step(_counts(tally), remove=tally.active, release=tally.ended)
    said = Condition("Complete", "True", "CompletionsReached", "Reached expected number of succeeded pods")
    status = replace(_closed(tally, said), completion_time=_completed(tally))
    return Step(status, release=tally.ended)


def _completed(tally: Tally) -> str:
    """When the last of its pods to succeed ended, which may be seen late; not before the Job's start."""
    told = [_end(it) for it in tally.pods if it.has_succeeded and it.status.container_statuses]
    end = min(max(told, default=tally.now), tally.now)
    return time_text(int(max(time(tally.job.status.start_time or EPOCH), end)))


def _suspended(tally: Tally) -> Step:
    said = Condition("Suspended", "True", "JobSuspended", "Job suspended")
    return Step(replace(_counts(tally, said), start_time=None), remove=tally.active, release=tally.ended)


def _running(tally: Tally) -> Step:
    job, now, deadline = tally.job, tally.now, tally.deadline
    said = Condition("Suspended", "False", "JobResumed", "Job resumed")
    status = _counts(tally, *[said for it in job.status.conditions if it.type == "Suspended"])
    if job.metadata.is_going:
        return Step(status, release=tally.ended)
    wanted = _wanted(job.spec, tally)
    surplus = _surplus(job.spec, tally.active, wanted)
    missing = wanted - len(tally.active)
    paused = _paused(tally) if missing > 0 else {}
    pause = paused.pop(ALL, 0.0)
    times = [moment for moment in (deadline, pause, *paused.values()) if moment and moment > now]
    create = _indexes(job.spec, tally, missing, but=paused) if missing > 0 and pause <= now and not surplus else ()
    return Step(status, remove=surplus, create=create, release=tally.ended, again_at=min(times, default=None))


def _paused(tally: Tally) -> dict[int, float]:
    """Until when each index waits that failed; with one limit for all of them, `ALL` do."""
    if tally.job.spec.backoff_limit_per_index is None:
        return {ALL: _pause_end(tally.job.spec, tally.pods)}
    own: dict[int, list[Pod]] = {}
    for pod in tally.pods:
        own.setdefault(pod.index, []).append(pod)
    ends = {index: _pause_end(tally.job.spec, pods) for index, pods in own.items() if index not in tally.failed_indexes}
    return {index: end for index, end in ends.items() if end > tally.now}


def _wanted(spec: JobSpec, tally: Tally) -> int:
    if spec.completions is None:
        return len(tally.active) if tally.all_succeeded else spec.parallelism
    return max(0, min(spec.parallelism, spec.completions - tally.all_succeeded - len(tally.failed_indexes)))


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


def _indexes(spec: JobSpec, tally: Tally, missing: int, *, but: Iterable[int]) -> tuple[int | None, ...]:
    if not spec.is_indexed:
        return (None,) * missing
    taken = tally.indexes | tally.failed_indexes | {pod.index for pod in tally.active} | set(but)
    return tuple([index for index in range(spec.completions or 0) if index not in taken][:missing])


def _pause_end(spec: JobSpec, pods: Iterable[Pod]) -> float:
    """Until when the next pod waits for the failures and the losses since the last success."""
    ended = sorted((pod for pod in pods if pod.is_over and not pod.metadata.is_going), key=_end)
    since = max((row + 1 for row, pod in enumerate(ended) if pod.has_succeeded), default=0)
    failed = [_end(pod) for pod in ended[since:] if not pod.is_lost]
    lost = sorted((pod for pod in ended[since:] if pod.is_lost), key=_made)
    again = _losses(spec, lost) - 1
    ends = [failed[-1] + _pause(len(failed))] if failed else []
    ends += [_end(lost[-1]) + _pause(again)] if again > 0 else []
    return max(ends, default=0.0)


def _pause(times: int) -> float:
    return min(FIRST_SECONDS * 2 ** min(times - 1, 10), LONGEST_SECONDS)


def _losses(spec: JobSpec, lost: Sequence[Pod]) -> int:
    """How often in a row pods were lost, of those lost together one; a pod that ran for long begins anew."""
    times: dict[int, int] = {}
    for row, pod in enumerate(lost):
        rank = pod.index if spec.is_indexed else row % max(1, spec.parallelism)
        ran_long = _end(pod) >= _made(pod) + LONGEST_SECONDS
        times[rank] = 1 if ran_long else times.get(rank, 0) + 1
    return max(times.values(), default=0)


def _made(pod: Pod) -> float:
    return time(pod.metadata.creation_timestamp or EPOCH)


def _end(pod: Pod) -> float:
    """When it ended; of a lost one, when that was seen."""
    if pod.is_lost:
        seen = [it.last_transition_time for it in pod.status.conditions if it.type == "Ready" and it.status == "False"]
        return max(map(time, filter(None, seen)), default=_made(pod))
    ends = [it.state.terminated.finished_at for it in pod.status.container_statuses if it.state.terminated]
    return max((time(end) for end in ends if end), default=_made(pod))


def _counts(tally: Tally, *conditions: Condition) -> JobStatus:
    before, moment = tally.job.status, time_text(int(tally.now))
    is_limited = tally.job.spec.backoff_limit_per_index is not None
    said = {condition.type: condition for condition in before.conditions}
    for condition in conditions:
        if condition.type not in said or said[condition.type].status != condition.status:
            said[condition.type] = replace(condition, last_transition_time=moment)
    return JobStatus(
        active=len(tally.active),
        ready=sum(pod.is_ready for pod in tally.active),
        terminating=tally.terminating,
        succeeded=tally.succeeded,
        failed=tally.failed,
        start_time=before.start_time or moment,
        completed_indexes=show_indexes(tally.indexes) if tally.job.spec.is_indexed else None,
        failed_indexes=show_indexes(tally.failed_indexes) if is_limited else None,
        uncounted_terminated_pods=tally.uncounted,
        conditions=tuple(said.values()),
    )


def _closed(tally: Tally, *conditions: Condition) -> JobStatus:
    """Everything counted, in the write that ends the job."""
    return replace(
        _counts(tally, *conditions),
        succeeded=tally.all_succeeded,
        failed=tally.all_failed,
        uncounted_terminated_pods=Uncounted(),
    )


def _true(status: JobStatus, kind: str) -> Condition | None:
    return next((it for it in status.conditions if it.type == kind and it.status == "True"), None)
