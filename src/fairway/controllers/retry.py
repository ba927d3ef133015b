"""Why an admitted workload does not run: what keeps its pods from nodes or a container from starting, or when a program
that failed starts again. Its status says so.

The Job's own controller decides when, and a kubelet for containers of a pod that stays; both wait longer after each
failure in a row. Here the same times are computed from what pods say, for people: nothing is decided by them.
"""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from fairway.api.alone import ended
from fairway.api.conditions import LOOPS, exit_of, gated, refusal, retrying
from fairway.api.objects import INDEX, ContainerStatus, JobSpec, PodObject, Terminated
from fairway.api.pods import gates_of_others, is_lost
from fairway.api.quantities import time
from fairway.engine import Reason

from .owner import JobOwner, Owner
from .status import Said

EPOCH = "1970-01-01T00:00:00Z"
FIRST_SECONDS, JOB_SECONDS, KUBELET_SECONDS = 10.0, 360.0, 300.0
RETRYING = "Retrying"
AGAIN = "a process was lost again"
Pause = tuple[Terminated | None, float]
"""How the program failed, and when it is started again."""


def pause(owner: Owner, pods: Sequence[PodObject], now: float) -> Said | None:
    """What others keep its pods back by, or why a container cannot start. Else that nothing of it runs until its
    program is started again, and when; None while something runs, or once that time has come. Trials of an array stand
    alone: each has a pause of its own, and none is told of."""
    live = [pod for pod in pods if not pod.status.is_over and not pod.metadata.is_going]
    if gates := gates_of_others(live):
        return Said(Reason.SCHEDULING_GATED, gated(", ".join(gates)))
    if (why := Said(*refusal(live))).reason:
        return why
    if not isinstance(owner, JobOwner) or owner.is_array() or owner.wanted() == 0:
        return None
    waiting = [one for pod in live for one in pod.status.container_statuses if _loops(one)]
    if len(waiting) < len(live):
        return None
    found = _of_container(waiting[0]) if live else _of_job(pods, owner.job.spec)
    return Said(RETRYING, retrying(*found)) if found and found[1] > now else None


def _of_job(pods: Sequence[PodObject], spec: JobSpec) -> Pause | None:
    over = sorted((pod for pod in pods if not pod.metadata.is_going), key=_end)
    since = max((row + 1 for row, pod in enumerate(over) if pod.status.phase == "Succeeded"), default=0)
    failed = [pod for pod in over[since:] if not is_lost(pod.status)]
    if over and is_lost(over[-1].status):
        return _of_losses([pod for pod in over[since:] if is_lost(pod.status)], spec)
    if not failed or (len(failed) > spec.backoff_limit and not spec.pod_failure_policy):
        return None
    return exit_of(failed[-1]), _end(failed[-1]) + _seconds(len(failed))


def _of_losses(lost: Sequence[PodObject], spec: JobSpec) -> Pause | None:
    """After the first loss there is no pause, and one that ran for as long as the longest pause counts as the first."""
    times = Counter[str]()
    for row, pod in enumerate(sorted(lost, key=_made)):
        rank = pod.metadata.annotations.get(INDEX) or str(row % max(1, spec.parallelism))
        times[rank] = 1 if _end(pod) - _made(pod) >= JOB_SECONDS else times[rank] + 1
    again = max(times.values()) - 1
    end = exit_of(lost[-1])
    return (end and replace(end, message=AGAIN), _end(lost[-1]) + _seconds(again)) if again else None


def _seconds(times: int, most: float = JOB_SECONDS) -> float:
    return min(FIRST_SECONDS * 2.0 ** max(0, min(times - 1, 10)), most)


def _made(pod: PodObject) -> float:
    return time(pod.metadata.creation_timestamp or EPOCH)


def _of_container(one: ContainerStatus) -> Pause | None:
    end = one.last_state.terminated
    if end is None or not end.finished_at:
        return None
    return end, time(end.finished_at) + _seconds(one.restart_count, KUBELET_SECONDS)


def _loops(one: ContainerStatus) -> bool:
    return one.state.waiting is not None and one.state.waiting.reason == LOOPS


def _end(pod: PodObject) -> float:
    last = ended(pod.status)
    return time(last) if last else _made(pod)
