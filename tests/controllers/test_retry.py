"""When a program that failed starts again, as the status of its workload says."""

import msgspec
import pytest

from fairway.api.objects import GATE, INDEX, JobObject, PodObject
from fairway.api.quantities import time, time_text
from fairway.api.types import WorkloadStatus
from fairway.controllers.owner import JobOwner
from fairway.controllers.retry import RETRYING, pause
from fairway.controllers.status import Said, note

GONE = "ContainerStatusUnknown"
NOW = time("2026-11-21T12:00:00Z")


def owner(**spec) -> JobOwner:
    return JobOwner(msgspec.convert({"metadata": {"name": "a"}, "spec": {"backoffLimit": 3, **spec}}, JobObject))


def pod(phase: str, ago: float = 0.0, **status) -> PodObject:
    state = {"terminated": {"exitCode": int(phase == "Failed"), "finishedAt": time_text(NOW - ago)}}
    containers = [{"name": "main", "state": state}] if phase in ("Failed", "Succeeded") else []
    said = {"phase": phase, "containerStatuses": containers, **status}
    return msgspec.convert({"metadata": {"name": f"a-{ago}"}, "status": said}, PodObject)


@pytest.mark.parametrize(("ends", "at"), [
    ([1], "12:00:09"), ([30, 2], "12:00:18"), ([90, 60, 5], "12:00:35"), ([20], ""),
])  # fmt: skip
def test_after_each_failure_in_a_row_the_pause_is_twice_as_long(ends: list[float], at: str) -> None:
    said = pause(owner(), [pod("Failed", ago) for ago in ends], NOW)
    assert (said.message if said else "") == (f"failed: exit code 1; starts again at 2026-11-21T{at}Z" if at else "")


def test_who_is_lost_again_and_again_waits_longer_each_time_and_says_so() -> None:
    def lost(*ago: float) -> list[PodObject]:
        ends = [{"terminated": {"exitCode": 137, "reason": GONE, "finishedAt": time_text(NOW - it)}} for it in ago]
        notes = {"creationTimestamp": time_text(NOW - 60), "annotations": {INDEX: "0"}}
        return [msgspec.convert({"metadata": notes | {"name": f"a-{it}"}, "status": {
            "phase": "Failed", "reason": "Lost", "containerStatuses": [{"name": "main", "state": end}]}}, PodObject)
            for it, end in zip(ago, ends)]  # fmt: skip

    told = [pause(owner(), lost(*ago), NOW) for ago in ((1,), (30, 1), (50, 30, 1))]
    assert told[0] is None
    assert [it.message if it else "" for it in told[1:]] == [
        f"failed: a process was lost again (exit code 137); starts again at 2026-11-21T12:00:{at}Z"
        for at in ("09", "19")
    ]


def test_nothing_is_said_while_a_pod_runs_after_a_loss_or_when_no_retry_is_left() -> None:
    assert pause(owner(), [pod("Failed", 1), pod("Running")], NOW) is None
    assert pause(owner(), [pod("Failed", 1, reason="Lost")], NOW) is None
    assert pause(owner(backoffLimit=0), [pod("Failed", 1)], NOW) is None
    assert pause(owner(), [pod("Failed", 1), pod("Succeeded")], NOW) is None


def test_a_container_that_its_pod_starts_again_is_told_too() -> None:
    ended = {"terminated": {"exitCode": 4, "finishedAt": time_text(NOW - 3)}}
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    loops = {"name": "main", "restartCount": 2, "state": waits, "lastState": ended}
    said = pause(owner(), [pod("Running", containerStatuses=[loops])], NOW)
    assert said == Said(RETRYING, "failed: exit code 4; starts again at 2026-11-21T12:00:17Z")


def test_what_others_keep_its_pods_back_by_is_told() -> None:
    gates = [{"name": name} for name in (GATE, "example.com/quota")]
    held, taken = (msgspec.convert({"metadata": {"name": "a"}, "spec": {"schedulingGates": those}}, PodObject)
                   for those in (gates, gates[:1]))  # fmt: skip
    words = "its pods have scheduling gates that others must remove: example.com/quota"
    assert pause(owner(), [held], NOW) == Said("SchedulingGated", words)
    assert pause(owner(), [taken], NOW) is None


def test_what_is_said_of_a_retry_is_taken_back_when_it_comes_and_nothing_else_is() -> None:
    said = Said(RETRYING, "failed: exit code 1; starts again at 2026-11-21T12:00:09Z")
    status = WorkloadStatus(phase="Running")
    told = note(status, said, RETRYING)
    assert (told.reason, told.message) == (said.reason, said.message)
    assert note(told, None, RETRYING) == status
    waits = WorkloadStatus(phase="Pending", reason="NoRoom", message="needs 4 GPUs")
    assert note(waits, None, RETRYING) == note(waits, said, RETRYING) == waits


def test_what_keeps_a_container_from_starting_is_told_in_the_words_of_its_node() -> None:
    absent = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    made = pod("Pending", containerStatuses=[{"name": "b", "state": absent}], initContainerStatuses=[
        {"name": "a", "state": {"waiting": {"reason": "PodInitializing"}}}])  # fmt: skip
    assert pause(owner(), [made], NOW) == Said("ErrImagePull", "no such image")
