"""Workload objects mean one thing to the engine: one that waits, one that holds room, one that is over, or nothing."""

import msgspec
import pytest

from fairway.api.decode import decode
from fairway.api.quantities import Malformed, time
from fairway.api.types import WorkloadObject
from fairway.api.workloads import Reading, admission_status, fact, remembered
from fairway.engine.model import (
    Admission,
    Ended,
    Eviction,
    NodeShare,
    PodSetPlacement,
    Running,
    Segment,
    Topology,
    Workload,
)

T0, T1, T2 = "2026-11-21T10:00:00Z", "2026-11-21T11:00:00Z", "2026-11-21T12:00:00Z"
HELD = {"pool": "h100", "podSets": [{"name": "w", "nodes": [{"node": "n1", "count": 2, "devices": [[0, 1], [2, 3]]}]}]}


def read(spec=None, status=None, priorities=None, *, never=(), **meta):
    whole = {"podSets": [{"name": "w", "count": 2}], **(spec or {})}
    said = {"metadata": {"name": "a", "namespace": "ns", **meta}, "spec": whole, "status": status or {}}
    return fact(decode(said, WorkloadObject), Reading(priorities or {}, non_preempting=frozenset(never)))


def turned(kind, status, since=None):
    return {"type": kind, "status": status, "lastTransitionTime": since}


def test_what_has_no_admission_waits():
    found = read(creationTimestamp=T0, uid="7")
    assert isinstance(found, Workload)
    assert (found.key, found.submitted, found.uid, found.queue) == ("ns/a", time(T0), "7", "default")
    assert (found.kind, found.preemptible, found.restart, found.grace) == ("Training", True, "Gang", 30.0)


def test_every_field_reaches_the_engine():
    pod = {"spec": {"terminationGracePeriodSeconds": 90}}
    found = read({
        "queue": "nlp", "user": "ann", "workloadType": "Interactive", "pools": ["b", "a"], "expectedRuntime": "2h",
        "timeLimit": "6h", "deadline": T2, "restart": "Pod", "checkpointInterval": "15m", "lastCheckpoint": T1,
        "after": ["x"], "topology": {"required": "block"},
        "podSets": [{"name": "w", "count": 8, "minCount": 4, "template": pod, "alignment": "Required",
                     "topology": {"preferred": "rack", "segments": [{"level": "rack", "size": 4}]}}],
    }, {"excludedNodes": ["n7"], "attained": 12.5})  # fmt: skip
    assert (found.queue, found.user, found.kind, found.preemptible) == ("nlp", "ann", "Interactive", False)
    assert (found.expected_runtime, found.time_limit, found.deadline) == (7200, 21600, time(T2))
    assert (found.checkpoint_interval, found.last_checkpoint, found.restart) == (900, time(T1), "Pod")
    assert (found.pools, found.after, found.grace) == (("b", "a"), ("ns/x",), 90.0)
    assert (found.excluded_nodes, found.attained) == (("n7",), 12.5)
    assert found.topology == Topology("block")
    (worker,) = found.podsets
    assert (worker.count, worker.min_count, worker.pod.alignment_required) == (8, 4, True)
    assert worker.topology == Topology("", "rack", (Segment("rack", 4),))


def test_preemptible_is_as_said_whatever_the_type():
    assert read({"workloadType": "Inference"}).preemptible is False
    assert read({"workloadType": "Inference", "preemptible": True}).preemptible is True
    assert read({"preemptible": False}).preemptible is False


@pytest.mark.parametrize("spec, expected", [
    ({"priorityClassName": "high"}, 100),
    ({"priorityClassName": "gone"}, 5),
    ({}, 5),
    ({"podSets": [{"template": {"spec": {"priorityClassName": "high"}}}]}, 100),
    ({"podSets": [{"template": {"spec": {"priority": 7}}}]}, 7),
    ({"podSets": [{"template": {"spec": {"priority": 7, "priorityClassName": "high"}}}]}, 100),
])  # fmt: skip
def test_priority_is_that_of_the_class_or_the_number_of_a_pod(spec, expected):
    assert read(spec, priorities={"": 5, "high": 100}).priority == expected


@pytest.mark.parametrize("pod, expected", [
    ({}, False), ({"priority": 7}, True), ({"priority": 7, "preemptionPolicy": "Never"}, False),
    ({"priority": 7, "priorityClassName": "low"}, False), ({"priorityClassName": "high"}, True),
])  # fmt: skip
def test_a_default_class_that_never_preempts_is_not_that_of_pods_with_a_number(pod, expected):
    assert read({"podSets": [{"template": {"spec": pod}}]}, never=("low", "")).preempts is expected


def test_what_has_an_admission_runs():
    found = read(status={"admission": HELD})
    assert isinstance(found, Running)
    placed = PodSetPlacement("w", (NodeShare("n1", 2, ((0, 1), (2, 3))),))
    assert found.admission == Admission("h100", (placed,))
    assert (found.admitted_at, found.is_promised, found.is_leaving) == (None, False, False)


def test_it_runs_since_its_condition_says_so():
    found = read(status={"admission": HELD, "conditions": [turned("Admitted", "True", T1)]})
    assert found.admitted_at == time(T1)


def test_it_is_promised_its_room_while_it_is_not_admitted():
    waits = read(status={"admission": HELD, "conditions": [turned("Admitted", "False", T1)]})
    assert (waits.is_promised, waits.admitted_at) == (True, None)
    assert read(status={"admission": HELD, "phase": "Pending", "reason": "WaitingForVictims"}).is_promised


def test_it_is_leaving_while_it_is_being_deleted():
    found = read(status={"admission": HELD}, deletionTimestamp=T1)
    assert (found.is_leaving, found.leaving_since) == (True, time(T1))


def test_it_is_leaving_once_it_is_evicted_and_until_it_is_admitted_again():
    evicted = [turned("Admitted", "True", T0), turned("Evicted", "True", T1)]
    found = read(status={"admission": HELD, "conditions": evicted})
    assert (found.is_leaving, found.leaving_since) == (True, time(T1))
    again = [turned("Admitted", "True", T2), turned("Evicted", "True", T1)]
    assert not read(status={"admission": HELD, "conditions": again}).is_leaving


def test_where_it_moves_is_read():
    to = {"pool": "h100", "podSets": [{"name": "w", "nodes": [{"node": "n2", "count": 2}]}]}
    evicted = [turned("Evicted", "True", T1)]
    assert (
        read(status={"admission": HELD, "movesTo": to, "conditions": evicted}).moves_to.podsets[0].nodes[0].node == "n2"
    )


def test_a_pod_below_the_minimum_is_lost():
    one = {"pool": "h100", "podSets": [{"name": "w", "nodes": [{"node": "n1", "count": 1}]}]}
    assert read(status={"admission": one}).lost == (("w", 1),)
    assert read({"podSets": [{"name": "w", "count": 4, "minCount": 1}]}, {"admission": one}).lost == ()


@pytest.mark.parametrize(
    "status, succeeded",
    [
        ({"phase": "Succeeded"}, True),
        ({"phase": "Failed", "admission": HELD}, False),
        ({"conditions": [{"type": "Finished", "status": "True", "reason": "Finished"}]}, True),
        ({"conditions": [{"type": "Finished", "status": "True", "reason": "TimeLimit"}]}, False),
    ],
)
def test_what_is_over_is_over(status, succeeded):
    assert read(status=status) == Ended("ns/a", succeeded)


def test_suspended_parked_and_deleted_workloads_do_not_wait():
    assert read({"active": False}) is None
    assert read(status={"phase": "Parked"}) is None
    assert read(deletionTimestamp=T1) is None
    assert isinstance(read({"active": False}, {"admission": HELD}), Running)


def test_an_empty_admission_is_none():
    assert isinstance(read(status={"admission": {}}), Workload)


@pytest.mark.parametrize("starts, until", [([T0], 60), ([T0, T0], 120), ([T0] * 8, 3600)])
def test_a_workload_that_did_not_start_backs_off_longer_each_time(starts, until):
    history = [{"time": at, "reason": "StartTimeout"} for at in starts]
    assert read(status={"evictionHistory": history}).backs_off_until == time(T0) + until


def test_another_eviction_ends_the_back_off():
    history = [{"time": T0, "reason": "StartTimeout"}, {"time": T1, "reason": "Preempted", "by": "q", "for": "b"}]
    found = read(status={"evictionHistory": history})
    assert found.backs_off_until is None
    assert found.evictions[-1] == Eviction(time(T1), "Preempted", "q", "ns/b")


def test_when_its_owner_was_made_counts_where_it_is_noted():
    found = read(annotations={"fairway.dev/submitted": "2026-11-21T10:00:00.250001Z"}, creationTimestamp=T1)
    assert found.submitted == pytest.approx(time(T0) + 0.250001)


@pytest.mark.parametrize(
    "status, words",
    [
        ({"podSets": [{"name": "other"}]}, "podSets: found 'other'; one of w is allowed"),
        (
            {"podSets": [{"name": "w", "nodes": [{"node": "n1", "count": 2, "devices": [[0]]}]}]},
            r"nodes\[0\].devices: found",
        ),
    ],
)
def test_an_admission_that_does_not_fit_its_podsets_is_refused(status, words):
    with pytest.raises(Malformed, match=words):
        read(status={"admission": {"pool": "p", **status}})


def test_an_admission_is_written_as_it_is_read():
    found = read(status={"admission": HELD})
    assert msgspec.json.decode(msgspec.json.encode(admission_status(found.admission))) == HELD


def test_only_the_last_ten_evictions_are_remembered():
    history = ()
    for hour in range(12):
        history = remembered(history, Eviction(3600.0 * hour, "Preempted", "q", "ns/b"))
    assert len(history) == 10
    assert msgspec.to_builtins(history[-1]) == {
        "time": "1970-01-01T11:00:00Z",
        "reason": "Preempted",
        "by": "q",
        "for": "ns/b",
    }
