"""The door: what is completed, what is refused with which field, and what may not change."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.api.admission import Refused, Review, admit
from fairway.api.quantities import time

NOW = time("2026-11-21T12:00:00Z")
MANAGED = {"metadata": {"labels": {"fairway.dev/managed": "true"}}}


def review(kind, new, group="fairway.dev", old=None, operation=None, **more):
    things = more.pop("things", {})
    return Review(
        operation=operation or ("UPDATE" if old else "CREATE"),
        group=group,
        kind=kind,
        namespace="ns",
        new=new,
        old=old,
        user=more.pop("user", "ann"),
        now=NOW,
        lookup=lambda kind, name: things.get((kind, name)),
        **more,
    )


def let_in(kind, new, **more):
    found, warnings = admit(review(kind, copy.deepcopy(new), **more))
    assert kind in ("Reservation", "Queue") or warnings == []
    return found


def left_alone(kind, note, new, **more):
    """The annotations that are stored where a user writes one that only the controller writes: a warning says so."""
    found, warnings = admit(review(kind, copy.deepcopy(new), **more))
    assert warnings == [f"metadata.annotations[fairway.dev/{note}]: only Fairway writes it; it is left as it was"]
    return found["metadata"]["annotations"]


def refusal(kind, new, **more):
    with pytest.raises(Refused) as told:
        admit(review(kind, copy.deepcopy(new), **more))
    ((field, reason, message),) = told.value.causes
    assert reason == "FieldValueInvalid"
    return f"{field}: {message}"


def workload(**spec):
    return {"metadata": {"name": "w", "namespace": "ns"}, "spec": {"podSets": [{"name": "main"}], **spec}}


def job(annotations=None, **spec):
    meta = {"name": "j", "labels": {"fairway.dev/queue": "q"}, "annotations": annotations or {}}
    template = {"spec": {"containers": [{"name": "c"}]}}
    return {"metadata": meta, "spec": {"template": template, **spec}}


def test_the_user_is_whoever_asks_whatever_the_object_says():
    assert let_in("Workload", workload(user="boss"))["spec"]["user"] == "ann"


def test_the_controller_speaks_for_others():
    assert let_in("Workload", workload(user="bob"), user="controller", is_trusted=True)["spec"]["user"] == "bob"


def test_the_user_does_not_change():
    old = workload(user="ann")
    said = refusal("Workload", workload(user="eve", queue="other"), old=old)
    assert said == "spec.user: found 'eve'; it is 'ann' and does not change"
    assert let_in("Workload", workload(queue="other"), old=old)["spec"]["user"] == "ann"


def test_a_workload_that_holds_room_keeps_its_queue():
    held = {**workload(queue="a"), "status": {"admission": {"pool": "p"}}}
    moved = {**workload(queue="b"), "status": held["status"]}
    said = refusal("Workload", moved, old=held)
    assert said == "spec.queue: does not change while the workload holds room"
    assert let_in("Workload", moved, old=held, is_trusted=True)["spec"]["queue"] == "b"
    assert let_in("Workload", workload(queue="b"), old=workload(queue="a"))["spec"]["queue"] == "b"


def test_only_the_controller_says_when_a_workload_was_submitted():
    early = {**workload(), "metadata": {"name": "w", "annotations": {"fairway.dev/submitted": "2020-01-01T00:00:00Z"}}}
    assert left_alone("Workload", "submitted", early) == {}
    assert "fairway.dev/submitted" in let_in("Workload", early, is_trusted=True)["metadata"]["annotations"]
    kept = left_alone("Workload", "submitted", workload(queue="x"), old={**early, "spec": workload()["spec"]})
    assert kept == {"fairway.dev/submitted": "2020-01-01T00:00:00Z"}


def test_only_the_controller_says_what_became_of_a_workload():
    held = {**workload(), "status": {"admission": {"pool": "p"}}}
    with pytest.raises(Refused, match="status: only the controller writes it") as told:
        let_in("Workload", held, old=workload())
    assert told.value.forbidden
    with pytest.raises(Refused):
        let_in("Workload", workload(), old=held)
    assert let_in("Workload", held, old=workload(), is_trusted=True) == held
    assert let_in("Workload", held, old=held) == held
    assert let_in("Queue", {**held, "spec": {}}, old={"spec": {}})


@pytest.mark.parametrize(
    "spec, said",
    [
        (
            {"podSets": [{"name": "w", "count": 2, "minCount": 3}]},
            "spec.podSets[0].minCount: found 3; at most count, which is 2",
        ),
        (
            {"podSets": [{"name": "w", "count": 100_001}]},
            "spec.podSets[0].count: found 100001; int <= 100000 is allowed",
        ),
        ({"podSets": []}, "spec.podSets: absent"),
        ({"restart": "Never"}, "spec.restart: found 'Never'; one of Gang, Pod is allowed"),
        ({"timeLimit": "forever"}, "spec.timeLimit: found 'forever'"),
    ],
)
def test_a_workload_that_makes_no_sense_is_refused(spec, said):
    assert refusal("Workload", workload(**spec)).startswith(said)


def test_a_time_limit_above_the_queues_maximum_is_refused():
    things = {("Queue", "q"): {"spec": {"parent": "top"}}, ("Queue", "top"): {"spec": {"timeLimit": {"max": "2h"}}}}
    said = refusal("Workload", workload(queue="q", timeLimit="3h"), things=things)
    assert said == "spec.timeLimit: found '3h'; at most 2h, the longest in queue q, is allowed"
    assert let_in("Workload", workload(queue="q", timeLimit="2h"), things=things)
    by_job = job({"fairway.dev/time-limit": "3h"})
    assert refusal("Job", by_job, group="batch", things=things).startswith(
        "metadata.annotations[fairway.dev/time-limit]: found '3h'"
    )


def test_under_a_lowered_maximum_what_was_let_in_is_still_suspended_mirrored_and_moved_only_where_it_may():
    things = {("Queue", "q"): {"spec": {"timeLimit": {"max": "2h"}}}}
    old = job({"fairway.dev/time-limit": "3h"}, suspend=False)
    assert let_in("Job", {**old, "spec": {**old["spec"], "suspend": True}}, group="batch", old=old, things=things)
    other = {**old, "metadata": {**old["metadata"], "labels": {"fairway.dev/queue": "other"}}}
    assert "at most 2h" in refusal("Job", old, group="batch", old=other, things=things)
    before, after = workload(queue="q"), workload(queue="q", timeLimit="3h")
    assert let_in("Workload", after, old=before, is_trusted=True, things=things)
    assert "at most 2h" in refusal("Workload", after, old=before, things=things)


def test_a_deadline_of_kubernetes_above_the_queues_maximum_is_refused_by_its_own_field():
    things = {("Queue", "q"): {"spec": {"timeLimit": {"max": "2h"}}}}
    said = refusal("Job", job(activeDeadlineSeconds=10_800), group="batch", things=things)
    assert said == "spec.activeDeadlineSeconds: found '3h'; at most 2h, the longest in queue q, is allowed"
    shorter = job({"fairway.dev/time-limit": "1h"}, activeDeadlineSeconds=10_800)
    assert let_in("Job", shorter, group="batch", things=things)


def held(limit, gpus="2", **spec):
    """A Workload that runs since an hour ago, with a time limit."""
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": gpus}}}]}}
    placed = {"pool": "p", "podSets": [{"name": "main", "nodes": [{"node": "n", "count": 1}]}]}
    begun = {"type": "Admitted", "status": "True", "lastTransitionTime": "2026-11-21T11:00:00Z"}
    meta, asks = {"name": "job-j", "namespace": "ns"}, {"podSets": [{"name": "main", "template": template}]}
    spec = {"queue": "q", **asks, **({"timeLimit": limit} if limit else {}), **spec}
    return {"metadata": meta, "spec": spec, "status": {"admission": placed, "conditions": [begun]}}


def spending(budget, reserved):
    """A queue, and the one above it, of whose budget 1 GPU hour is spent and so many are reserved."""
    spent = {"gpuHours": 1, "since": "2026-11-20T00:00:00Z"}
    top = {"metadata": {"name": "top"}, "spec": {"budget": {"gpuHours": budget, "period": "30d"}}}
    return {
        ("Queue", "q"): {"metadata": {"name": "q"}, "spec": {"parent": "top"}},
        ("Queue", "top"): {**top, "status": {"budgetSpent": spent, "budgetReserved": reserved}},
    }


@pytest.mark.parametrize(
    "before, after, budget, reserved, said",
    [
        ("2h", "4h30m", "10", 4, ""),
        ("2h", "1h", "10", 4, ""),
        ("2h", "5h", "10", 4, "found '5h'; at most 4h30m {}5 of 10 {}"),
        ("2h", "5h", "10", 0, "found '5h'; at most 4h30m {}5 of 10 {}"),  # it started after the status was written
        ("2h", "3h", "10", 12, "found '3h'; at most 2h {}0 of 10 {}"),
        ("2h", "", "10", 4, "found no limit; at most 4h30m {}5 of 10 {}"),
        ("", "26h30m", "60", 54, ""),
        ("", "27h", "60", 54, "found '27h'; at most 26h30m {}5 of 60 {}"),
    ],
)
def test_what_runs_takes_no_time_limit_that_could_overrun_a_budget(before, after, budget, reserved, said):
    things = {**spending(budget, reserved), ("Workload", "ns/job-j"): held(before)}
    old, new = (job({"fairway.dev/time-limit": it} if it else {}, suspend=False) for it in (before, after))
    if not said:
        assert let_in("Job", new, group="batch", old=old, things=things)
        return
    said = said.format("is allowed while it runs: queue top has ", "GPU hours of its budget left")
    told = refusal("Job", new, group="batch", old=old, things=things)
    assert told == f"metadata.annotations[fairway.dev/time-limit]: {said}"
    assert refusal("Workload", held(after), old=held(before), things=things) == f"spec.timeLimit: {said}"
    waits = {**held(before), "status": {}}
    assert let_in("Job", new, group="batch", old=old, things={**things, ("Workload", "ns/job-j"): waits})
    assert let_in("Workload", held(after, gpus="0"), old=held(before, gpus="0"), things=things)


def test_a_longer_limit_of_what_moves_is_held_against_the_budget_too():
    moving, to = held("2h"), {"pool": "p", "podSets": [{"name": "main", "nodes": [{"node": "n2", "count": 1}]}]}
    evicted = {"type": "Evicted", "status": "True", "reason": "Drained", "lastTransitionTime": "2026-11-21T11:59:00Z"}
    admitted = {**moving["status"]["conditions"][0], "status": "False"}
    moving["status"] |= {"movesTo": to, "conditions": [admitted, evicted]}
    old, new = (job({"fairway.dev/time-limit": it}, suspend=False) for it in ("2h", "100h"))
    things = {**spending("10", 4), ("Workload", "ns/job-j"): moving}
    assert "at most 4h30m is" in refusal("Job", new, group="batch", old=old, things=things)


def test_a_time_limit_is_held_against_nothing_that_no_longer_reads():
    old, new = (job({"fairway.dev/time-limit": it}, suspend=False) for it in ("2h", "5h"))
    queues, runs = spending("10", 4), {("Workload", "ns/job-j"): held("2h")}
    assert refusal("Job", new, group="batch", old=old, things={**queues, **runs})
    odd = [{"spec": {"budget": {"gpuHours": "many"}, "parent": "top"}}, {"spec": {"timeLimit": {"max": "x"}}}]
    for things in ({("Workload", "ns/job-j"): held("soon")}, *({**runs, ("Queue", "q"): it} for it in odd)):
        assert let_in("Job", new, group="batch", old=old, things={**queues, **things})


def test_a_longer_limit_of_a_gang_of_pods_or_of_replicas_counts_all_that_runs_of_them():
    def bare(limit):
        meta = {"name": "p", "labels": {"fairway.dev/queue": "q", "fairway.dev/group": "g"}}
        notes = {"fairway.dev/time-limit": limit, "fairway.dev/attempt": "pod-g/u/1"}
        return {"metadata": {**meta, "annotations": notes}, "spec": {"nodeName": "n", "containers": [{"name": "c"}]}}

    things = {**spending("10", 4), ("Workload", "ns/pod-g"): held("2h")}
    assert let_in("Pod", bare("4h"), group="", old=bare("2h"), things=things)
    assert "at most 4h30m" in refusal("Pod", bare("5h"), group="", old=bare("2h"), things=things)
    assert admit(review("Pod", bare("2h"), group="", things=things))  # one that takes the place of one that was lost
    assert "at most 4h30m" in refusal("Pod", bare("5h"), group="", things=things)

    def served(limit):
        meta = {**job({"fairway.dev/time-limit": limit})["metadata"], "name": "s"}
        return {"metadata": meta, "spec": {"replicas": 2, "leaderWorkerTemplate": {"workerTemplate": {
            "spec": {"containers": [{"name": "c"}]}}}}}  # fmt: skip

    rows = {("Workload", f"ns/leaderworkerset-s-{row}"): held("2h") for row in range(2)}
    said = {"group": "leaderworkerset.x-k8s.io", "old": served("2h"), "things": {**spending("13", 8), **rows}}
    assert let_in("LeaderWorkerSet", served("3h"), **said)
    assert "at most 3h is" in refusal("LeaderWorkerSet", served("3h1m"), **said)


def test_what_its_pods_request_changes_only_while_a_workload_holds_no_room():
    def asking(gpus, image="i", **spec):
        containers = [{"name": "c", "image": image, "resources": {"limits": {"nvidia.com/gpu": gpus}}}]
        return job(template={"spec": {"containers": containers}}, suspend=True, **spec)

    runs = {"group": "batch", "old": asking("1"), "things": {("Workload", "ns/job-j"): held("2h")}}
    said = refusal("Job", asking("8"), **runs)
    assert said == "spec: what its pods request does not change while the workload holds room; suspend it first"
    for changed in (asking("1", image="j"), asking("1", parallelism=3)):
        assert let_in("Job", changed, **runs)
    waits = {("Workload", "ns/job-j"): {**held("2h"), "status": {}}}
    assert let_in("Job", asking("8"), **{**runs, "things": waits})
    assert let_in("Job", asking("8"), is_trusted=True, **runs)
    made = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "u", "controller": True}
    old, new = asking("1"), asking("8")
    for one in (old, new):
        one["metadata"]["ownerReferences"] = [made]
    assert let_in("Job", new, **{**runs, "old": old})  # its JobSet is asked


def test_what_depends_on_other_objects_is_let_in():
    assert let_in("Workload", workload(queue="nowhere", timeLimit="900h", topology={"required": "moon"}))
    assert let_in("Queue", {"metadata": {"name": "a"}, "spec": {"parent": "a"}})


@pytest.mark.parametrize(
    "spec, said",
    [
        ({"order": "Random"}, "spec.order: found 'Random'; one of FIFO,"),
        (
            {"quotas": [{"limit": {"cpu": "-1"}}]},
            "spec.quotas[0].limit[cpu]: found '-1'; a quantity that is not negative",
        ),
        ({"quotas": [{"weight": -1}]}, "spec.quotas[0].weight: found -1; float >= 0.0 is allowed"),
        ({"timeLimit": {"default": "2h", "max": "1h"}}, "spec.timeLimit.default: found 2h; at most max, which is 1h"),
    ],
)
def test_a_queue_that_makes_no_sense_is_refused(spec, said):
    assert refusal("Queue", {"metadata": {"name": "q"}, "spec": spec}).startswith(said)


def test_a_reservation_that_is_over_is_refused():
    spec = {"queue": "q", "pool": "p", "amount": {"cpu": 1}, "start": "2026-11-21T08:00:00Z", "duration": "1h"}
    said = refusal("Reservation", {"metadata": {"name": "r"}, "spec": spec})
    assert said == "spec.start: found 2026-11-21T08:00:00Z, which is over; a window that ends later is allowed"
    assert let_in("Reservation", {"metadata": {"name": "r"}, "spec": {**spec, "duration": "5h"}})
    assert let_in("Reservation", {"metadata": {"name": "r"}, "spec": {**spec, "repeat": "Daily"}})


def test_a_reservation_warns_of_what_it_names_and_does_not_exist():
    spec = {"queue": "q", "nodes": ["n"], "start": "2026-12-21T08:00:00Z", "duration": "1h"}
    new = {"metadata": {"name": "r"}, "spec": spec}
    _, warnings = admit(review("Reservation", new, things={("Node", "n"): {}}))
    assert warnings == ["Queue q does not exist; nothing is reserved there until it does"]


@pytest.mark.parametrize(("spec", "said"), [
    ({"parent": "q"}, ["spec.parent: its parents make a cycle; "]),
    ({"parent": "gone"}, ["spec.parent: queue q names parent gone, which does not exist; "]),
    ({"quotas": [{"pool": "moon"}, {"pool": "a"}]}, ["NodePool moon does not exist; "]),
    ({"quotas": [{"guaranteed": {"nvidia.com/gpu": 8}, "limit": {"nvidia.com/gpu": 4}}]},
     ["spec.quotas: nvidia.com/gpu of pool '*' has guaranteed 8, above the limit 4 of queue q; "]),
    ({"parent": "top", "quotas": [{"guaranteed": {"cpu": "60%", "memory": "2Gi"}}]},
     ["spec.quotas: cpu of pool '*' has guaranteed 60%, above the limit 50% of queue top; "]),
    ({"parent": "top", "quotas": [{"guaranteed": {"cpu": 4}, "limit": {"cpu": 4}}]}, []),
])  # fmt: skip
def test_a_queue_warns_of_what_makes_no_sense_beside_others(spec, said):
    top = {"metadata": {"name": "top"}, "spec": {"quotas": [{"limit": {"cpu": "50%", "memory": "8Gi"}}]}}
    things = {("Queue", "top"): top, ("NodePool", "a"): {}}
    _, warnings = admit(review("Queue", {"metadata": {"name": "q"}, "spec": spec}, things=things))
    assert [line[: line.index("; ") + 2] for line in warnings] == said


def test_what_was_let_in_stays_writable():
    past = {
        "metadata": {"name": "r"},
        "spec": {"maintenance": True, "nodes": ["n"], "start": "2020-01-01T00:00:00Z", "duration": "1h"},
    }
    assert let_in("Reservation", {**past, "metadata": {"name": "r", "finalizers": ["x"]}}, old=past)
    assert let_in("Reservation", {**past, "spec": {**past["spec"], "nodes": ["n", "m"]}}, old=past)
    bad = workload(timeLimit="forever")
    assert let_in("Workload", {**bad, "metadata": {"finalizers": []}}, old=bad)


def test_a_deletion_is_never_refused():
    assert let_in("Workload", {"spec": "nonsense"}, operation="DELETE") == {"spec": "nonsense"}


def test_a_managed_job_is_suspended_marked_and_steered():
    new = let_in("Job", job(), group="batch")
    assert new["spec"]["suspend"] is True
    assert new["metadata"]["annotations"] == {"fairway.dev/user": "ann"}
    assert new["spec"]["template"]["spec"]["schedulerName"] == "fairway"


def test_a_job_that_is_not_managed_is_left_alone():
    plain = job()
    plain["metadata"]["labels"] = {}
    assert let_in("Job", plain, group="batch") == plain
    assert let_in("Job", plain, group="batch", things={("Namespace", "ns"): MANAGED})["spec"]["suspend"] is True


def test_the_controller_may_resume_what_it_suspended():
    old = let_in("Job", job(), group="batch")
    resumed = copy.deepcopy(old)
    resumed["spec"]["suspend"] = False
    assert let_in("Job", resumed, group="batch", old=old, is_trusted=True)["spec"]["suspend"] is False


def test_the_user_of_a_job_does_not_change():
    old = let_in("Job", job(), group="batch")
    stolen = copy.deepcopy(old)
    stolen["metadata"]["annotations"]["fairway.dev/user"] = "eve"
    assert "it is 'ann' and does not change" in refusal("Job", stolen, group="batch", old=old)


@pytest.mark.parametrize(
    "annotations, field",
    [
        ({"fairway.dev/preemptible": "yes"}, "fairway.dev/preemptible"),
        ({"fairway.dev/min-count": "-2"}, "fairway.dev/min-count"),
        ({"fairway.dev/workload-type": "Fun"}, "fairway.dev/workload-type"),
        ({"fairway.dev/deadline": "noon"}, "fairway.dev/deadline"),
        ({"fairway.dev/time-limit": "soon"}, "fairway.dev/time-limit"),
        ({"fairway.dev/start-timeout": "banana"}, "fairway.dev/start-timeout"),
        ({"fairway.dev/idle-timeout": "x"}, "fairway.dev/idle-timeout"),
        ({"fairway.dev/min-count": "2"}, "fairway.dev/min-count"),
    ],
)
def test_an_annotation_that_makes_no_sense_is_refused(annotations, field):
    assert refusal("Job", job(annotations), group="batch").startswith(f"metadata.annotations[{field}]: found")


def test_a_job_of_more_pods_than_a_workload_may_have_is_refused():
    said = refusal("Job", job(parallelism=200_000), group="batch")
    assert said == "spec.parallelism: found 200000; int <= 100000 is allowed"
    assert let_in("Job", job(parallelism=200_000, completions=5), group="batch")
    assert refusal("Job", job(parallelism=200_000), group="batch", old=job()) == said


def test_a_request_that_makes_no_sense_is_refused_with_its_path():
    template = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "0.5"}}}]}}
    said = refusal("Job", job(template=template), group="batch")
    assert said.startswith("spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]: found '0.5'; whole GPUs")


def pod(owner=None, **spec):
    group = {"ReplicaSet": "apps/v1", "DaemonSet": "apps/v1", "JobSet": "jobset.x-k8s.io/v1alpha2",
             "Workflow": "argoproj.io/v1alpha1"}.get(owner, "batch/v1")  # fmt: skip
    refs = [{"apiVersion": group, "kind": owner, "name": "o", "controller": True}] if owner else []
    meta = {"name": "p", "labels": {"fairway.dev/queue": "q"}, "ownerReferences": refs}
    return {"metadata": meta, "spec": {"containers": [{"name": "c"}], **spec}}


def test_a_bare_pod_waits_at_a_gate():
    new = let_in("Pod", pod(), group="")
    assert new["spec"]["schedulingGates"] == [{"name": "fairway.dev/admission"}]
    assert new["spec"]["schedulerName"] == "fairway"
    assert new["metadata"]["annotations"]["fairway.dev/user"] == "ann"
    assert let_in("Pod", new, group="")["spec"]["schedulingGates"] == [{"name": "fairway.dev/admission"}]


def test_a_pod_of_a_replica_set_waits_at_a_gate_under_its_users_name():
    made = pod("ReplicaSet")
    made["metadata"]["annotations"] = {"fairway.dev/user": "bob"}
    new = let_in("Pod", made, group="", user="system:serviceaccount:kube-system:replicaset-controller")
    assert new["spec"]["schedulingGates"]
    assert new["metadata"]["annotations"]["fairway.dev/user"] == "bob"


def test_a_pod_of_a_job_is_only_steered():
    new = let_in("Pod", pod("Job"), group="")
    assert new["spec"]["schedulerName"] == "fairway"
    assert "schedulingGates" not in new["spec"] and new["metadata"]["annotations"] == {"fairway.dev/user": "ann"}
    made = let_in("Pod", pod("Job"), group="", user="system:serviceaccount:kube-system:job-controller")
    assert "annotations" not in made["metadata"]


@pytest.mark.parametrize("left", [pod("DaemonSet"), pod(nodeName="n1"), pod(schedulerName="other")])
def test_pods_that_are_not_ours_to_place_are_not_gated(left):
    new = let_in("Pod", left, group="", user="system:serviceaccount:kube-system:daemon-set-controller")
    assert "schedulingGates" not in new["spec"]
    assert new["spec"].get("schedulerName") != "fairway"


@pytest.mark.parametrize("owner", ["Workflow", "DaemonSet"])
def test_no_owner_that_a_user_names_takes_a_pod_past_the_queue(owner):
    new = let_in("Pod", pod(owner), group="")
    assert new["spec"]["schedulingGates"] == [{"name": "fairway.dev/admission"}]
    assert new["metadata"]["annotations"] == {"fairway.dev/user": "ann"}


GPU = [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]


@pytest.mark.parametrize("field", ["nodeName", "schedulerName"])
def test_nobody_takes_accelerators_past_the_queue(field):
    spec = {field: "other"}

    def told(kind, new, group=""):
        with pytest.raises(Refused) as refused:
            let_in(kind, new, group=group, user="system:serviceaccount:kube-system:job-controller")
        ((path, _, message),) = refused.value.causes
        assert refused.value.forbidden and message.endswith("only Fairway places pods with accelerators")
        return path

    assert told("Pod", pod(containers=GPU, **spec)) == f"spec.{field}"
    assert told("Pod", pod("Job", containers=GPU, **spec)) == f"spec.{field}"
    made = job(template={"spec": {"containers": GPU, **spec}})
    assert told("Job", made, group="batch") == told("Deployment", made, group="apps") == f"spec.template.spec.{field}"
    stopped = {**made, "metadata": {**made["metadata"], "annotations": {"fairway.dev/active": "false"}}}
    assert let_in("Job", stopped, group="batch", old=made)
    shared = pod(**spec)
    shared["metadata"]["annotations"] = {"fairway.dev/gpu-fraction": "0.5"}
    assert told("Pod", shared) == f"spec.{field}"
    assert let_in("Pod", pod(containers=GPU, **spec), group="", is_trusted=True)


def test_a_part_of_a_gpu_beside_whole_ones_is_refused_with_its_field():
    both = pod(containers=GPU)
    both["metadata"]["annotations"] = {"fairway.dev/gpu-fraction": "0.5"}
    in_job = job(template={"metadata": {"annotations": {"fairway.dev/gpu-memory": "1Gi"}}, "spec": {"containers": GPU}})
    for new, group, kind, path in (
        (both, "", "Pod", "metadata.annotations[fairway.dev/gpu-fraction]"),
        (in_job, "batch", "Job", "spec.template.metadata.annotations[fairway.dev/gpu-memory]"),
    ):
        with pytest.raises(Refused, match="beside") as refused:
            let_in(kind, new, group=group)
        assert refused.value.causes[0][0] == path


def test_only_the_controller_says_what_pods_are_made_again():
    made = workload()
    made["metadata"]["annotations"] = {"fairway.dev/pods": "others"}
    assert left_alone("Workload", "pods", made) == {}
    assert let_in("Workload", made, is_trusted=True)["metadata"]["annotations"] == {"fairway.dev/pods": "others"}


def test_a_template_copied_from_a_pod_loses_what_the_controller_wrote_on_that():
    made = job()
    notes = {"fairway.dev/attempt": "job-j/u/1", "fairway.dev/charged": "true", "mine": "kept"}
    made["spec"]["template"]["metadata"] = {"annotations": notes}
    assert let_in("Job", made, group="batch")["spec"]["template"]["metadata"]["annotations"] == {"mine": "kept"}


def test_only_the_controller_says_as_what_a_workload_is_charged():
    made = workload()
    made["metadata"]["annotations"] = {"fairway.dev/began-as": "others"}
    assert left_alone("Workload", "began-as", made) == {}


def test_only_the_controller_says_which_devices_a_pod_has():
    plain, claiming = pod(), pod()
    claiming["metadata"]["annotations"] = {"fairway.dev/assigned-devices": "3"}
    for before in (None, plain):
        kept = left_alone("Pod", "assigned-devices", claiming, group="", old=before)
        assert "fairway.dev/assigned-devices" not in kept
    assert left_alone("Pod", "assigned-devices", plain, group="", old=claiming)["fairway.dev/assigned-devices"] == "3"


def test_a_deployment_hands_its_queue_and_a_gate_to_its_pods():
    meta = {
        "name": "d",
        "labels": {"fairway.dev/queue": "q"},
        "annotations": {"fairway.dev/workload-type": "Inference"},
    }
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c"}]}}
    new = let_in("Deployment", {"metadata": meta, "spec": {"template": template}}, group="apps")
    made = new["spec"]["template"]
    assert made["metadata"]["labels"] == {"app": "x", "fairway.dev/queue": "q"}
    assert made["metadata"]["annotations"] == {"fairway.dev/workload-type": "Inference", "fairway.dev/user": "ann"}
    assert made["spec"]["schedulingGates"] == [{"name": "fairway.dev/admission"}]


def deployment(user="bob", owner=None):
    refs = [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "controller": True}] if owner else []
    meta = {"name": "d", "labels": {"fairway.dev/queue": "q"}, "ownerReferences": refs}
    template = {"metadata": {"annotations": {"fairway.dev/user": user}}, "spec": {"containers": [{"name": "c"}]}}
    return {"metadata": meta, "spec": {"template": template}}


def user_of(made):
    return made["spec"]["template"]["metadata"]["annotations"]["fairway.dev/user"]


def test_pods_of_a_deployment_run_in_no_other_name_than_its_own():
    assert user_of(let_in("Deployment", deployment(), group="apps")) == "ann"
    made = {"jobTemplate": {"metadata": {"annotations": {"fairway.dev/user": "bob"}}}}
    cron = let_in("CronJob", {**deployment(), "spec": made}, group="batch")
    assert cron["spec"]["jobTemplate"]["metadata"]["annotations"]["fairway.dev/user"] == "ann"


@pytest.mark.parametrize(("by", "user"), [
    ("ann", "ann"), ("system:serviceaccount:ns:builder", "system:serviceaccount:ns:builder"),
    ("system:serviceaccount:kube-system:deployment-controller", "bob"),
    ("system:serviceaccount:notebooks:controller", "bob"),
])  # fmt: skip
def test_what_a_controller_made_keeps_its_template_and_a_user_claims_no_other_name_in_it(by, user):
    made = let_in("ReplicaSet", deployment(owner="Deployment"), group="apps", user=by)
    assert user_of(made) == user
    assert made["spec"]["template"]["spec"] == {"containers": [{"name": "c"}]}  # its maker would make another


def test_nested_templates_are_steered_too():
    inner = {"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}
    meta = {"name": "s", "labels": {"fairway.dev/queue": "q"}}
    new = let_in(
        "JobSet",
        {"metadata": meta, "spec": {"replicatedJobs": [{"name": "r", "template": inner}]}},
        group="jobset.x-k8s.io",
    )
    assert new["spec"]["suspend"] is True
    assert new["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["schedulerName"] == "fairway"


def test_an_owner_without_pods_is_let_in():
    meta = {"name": "s", "labels": {"fairway.dev/queue": "q"}, "annotations": {"fairway.dev/min-count": "1"}}
    assert let_in("JobSet", {"metadata": meta, "spec": {}}, group="jobset.x-k8s.io")["spec"]["suspend"] is True


def test_the_cluster_s_own_namespaces_are_never_touched():
    own = Review("CREATE", "", "Pod", "kube-system", pod(), user="ann")
    assert "schedulingGates" not in admit(own)[0]["spec"]


def test_objects_of_no_shape_are_refused_and_crash_nothing():
    assert refusal("Workload", {"metadata": {"name": "w"}, "spec": 3}).startswith("spec: found 3; object is allowed")
    assert refusal("Job", {**job(), "spec": []}, group="batch").startswith("spec: found []; object is allowed")


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(max_size=6),
    st.sampled_from(["-1", "1e999", "100%", "9999-12-31T23:59:59Z", 2**70, 1e308]),
    st.just([]),
    st.just({}),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
WHOLE = [
    ("fairway.dev", "Workload", workload(timeLimit="1h", topology={"segments": [{"level": "a", "size": 1}]})),
    ("fairway.dev", "Queue", {"metadata": {"name": "q"}, "spec": {"quotas": [{"limit": {"cpu": 1}}], "maxWait": "1h"}}),
    ("fairway.dev", "NodePool", {"metadata": {"name": "p"}, "spec": {"evictionBudget": {"gpus": 1}, "levels": ["a"]}}),
    ("batch", "Job", job({"fairway.dev/min-count": "1", "fairway.dev/gpu-fraction": "0.5"}, parallelism=2)),
    ("", "Pod", pod("ReplicaSet", schedulingGates=[{"name": "x"}])),
    ("apps", "Deployment", job()),
]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_no_value_in_any_place_passes_as_a_crash(data):
    group, kind, whole = data.draw(st.sampled_from(WHOLE))
    new = copy.deepcopy(whole)
    places = list(spots(new))
    here = new
    *path, last = data.draw(st.sampled_from(places))
    for step in path:
        here = here[step]
    here[last] = data.draw(ODD)
    try:
        found, _ = admit(review(kind, new, group=group))
        assert isinstance(found, dict)
    except Refused as refused:
        assert all(message for _, _, message in refused.causes)


def spots(said, path=()):
    children = said.items() if isinstance(said, dict) else enumerate(said) if isinstance(said, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from spots(child, (*path, key))


def test_what_names_no_queue_has_the_one_of_its_namespace():
    space = {"metadata": {"labels": {"fairway.dev/managed": "true", "fairway.dev/queue": "vision"}}}
    things, owner = {("Namespace", "ns"): space}, {"kind": "ReplicaSet", "apiVersion": "apps/v1", "controller": True}
    named, unnamed = job(), job()
    del unnamed["metadata"]["labels"]
    pod = {"metadata": {"name": "p", "ownerReferences": [owner]}, "spec": {"containers": [{"name": "c"}]}}
    found = [let_in("Job", unnamed, group="batch", things=things), let_in("Job", named, group="batch", things=things),
             let_in("Pod", pod, group="", things=things)]
    assert [it["metadata"].get("labels") for it in found] == [
        {"fairway.dev/queue": "vision"}, {"fairway.dev/queue": "q"}, None]


def test_a_template_from_before_its_owner_was_managed_is_left_alone():
    """The one of a Job cannot change; a Deployment would replace its pods. They are steered as they come."""
    spaces = {("Namespace", "ns"): MANAGED}
    for kind, group in (("Job", "batch"), ("Deployment", "apps"), ("StatefulSet", "apps")):
        old, new = job(), job({"team": "vision"})
        del old["metadata"]["labels"], new["metadata"]["labels"]
        assert let_in(kind, new, group=group, old=old, things=spaces)["spec"] == old["spec"]
    driver = {"metadata": {"name": "s"}, "spec": {"driver": {}, "executor": {}}}
    noted = {"metadata": {"name": "s", "annotations": {"team": "vision"}}, "spec": driver["spec"]}
    made = let_in("SparkApplication", noted, group="sparkoperator.k8s.io", old=driver, things=spaces)
    assert made["spec"] == driver["spec"]


def test_a_template_that_says_more_than_before_is_completed_where_it_can_be():
    spaces = {("Namespace", "ns"): MANAGED}
    old, new = job(), job()
    del old["metadata"]["labels"]
    labelled = let_in("Job", new, group="batch", old=old)
    assert labelled["spec"] == old["spec"] and labelled["metadata"]["annotations"]["fairway.dev/user"] == "ann"
    gated = let_in("Deployment", new, group="apps", old=old)["spec"]["template"]
    assert gated["metadata"]["labels"] == {"fairway.dev/queue": "q"}
    assert gated["spec"]["schedulingGates"] == [{"name": "fairway.dev/admission"}]
    del new["metadata"]["labels"]
    new["spec"]["template"]["spec"]["containers"][0]["image"] = "v2"
    image = let_in("Deployment", new, group="apps", old=old, things=spaces)["spec"]["template"]["spec"]
    assert image["schedulerName"] == "fairway"


def test_a_template_that_was_completed_stays_so_when_its_manifest_is_put_again():
    made = let_in("Job", job(), group="batch")
    assert let_in("Job", {**job(), "spec": {**job()["spec"], "suspend": True}}, group="batch", old=made) == made
    spread = let_in("Deployment", job(), group="apps")
    assert let_in("Deployment", job(), group="apps", old=spread) == spread
