"""The door, when an object that is stored changes: its queue, its own switch, and what its templates have from it."""

import copy
import json

import pytest
from test_admission import MANAGED, deployment, job, let_in, pod, refusal, review

from fairway.api.admission import admit

SPACE = {("Namespace", "ns"): MANAGED}
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
QUEUE, USER, ACTIVE = "fairway.dev/queue", "fairway.dev/user", "fairway.dev/active"
OVER = {"conditions": [{"type": "Complete", "status": "True"}]}


def queued(kind="Job", new=None, group="batch"):
    """As the door let it in."""
    return let_in(kind, new or job(), group=group)


def changed(old, *, queue=..., **spec):
    new = copy.deepcopy(old)
    if queue is None:
        del new["metadata"]["labels"][QUEUE]
    elif queue is not ...:
        new["metadata"].setdefault("labels", {})[QUEUE] = queue
    new["spec"] |= spec
    return new


def told(old, new, **more):
    """What is stored of a Job, and the warnings."""
    return admit(review("Job", copy.deepcopy(new), group="batch", old=old, **more))


def test_what_runs_keeps_its_queue_until_it_next_waits():
    waits = queued()
    runs = changed(waits, suspend=False)
    ended = {**runs, "status": OVER}
    stays = "it stays in queue q until it next waits; suspend and resume it to move it to r at once"
    for old, warnings in ((waits, []), (runs, [stays]), (ended, [])):
        made, said = told(old, changed(old, queue="r"))
        assert (made["metadata"]["labels"][QUEUE], said) == ("r", warnings)


def test_a_pod_keeps_its_queue_once_it_has_a_node():
    waits = queued("Pod", pod(), "")
    bound = changed(waits, nodeName="n1")
    said = refusal("Pod", changed(bound, queue="r"), group="", old=bound)
    assert said == "metadata.labels[fairway.dev/queue]: found 'r'; a pod keeps its queue, 'q', once it has a node"
    assert let_in("Pod", changed(waits, queue="r"), group="", old=waits)["metadata"]["labels"][QUEUE] == "r"


NOTE, LABEL = ("metadata", "annotations"), ("metadata", "labels")
REFUSED, KEPT, LET = "refused", "kept", "let"
MAY_CHANGE = [
    # of what, by which mark, while it waits, once it has its room
    *[("Pod", NOTE, f"fairway.dev/{name}", KEPT, KEPT) for name in (
        "assigned-devices", "attempt", "charged", "freeze", "freeze-to-disk", "idle-since", "pool", "released")],
    *[("Pod", NOTE, name, LET, REFUSED) for name in (
        "fairway.dev/gpu-fraction", "fairway.dev/gpu-memory", "scheduling.k8s.io/group-name")],
    *[("Pod", LABEL, f"fairway.dev/{name}", LET, REFUSED) for name in ("queue", "group", "group-size")],
    *[("Pod", NOTE, f"fairway.dev/{name}", LET, LET) for name in (
        "last-checkpoint", "checkpoint-interval", "priority-class", "notify")],
    *[(kind, NOTE, "fairway.dev/user", REFUSED, REFUSED) for kind in (
        "Pod", "Job", "CronJob", "JobSet", "RayCluster", "Deployment", "StatefulSet")],
    *[(kind, LABEL, "fairway.dev/queue", LET, LET) for kind in ("Job", "CronJob", "JobSet", "Deployment")],
    *[("Workload", NOTE, f"fairway.dev/{name}", KEPT, KEPT) for name in ("submitted", "pods", "began-as")],
    ("Workload", ("spec",), "user", REFUSED, REFUSED), ("Workload", ("spec",), "queue", LET, REFUSED),
]
GROUPS = {"Pod": "", "Job": "batch", "CronJob": "batch", "JobSet": "jobset.x-k8s.io", "RayCluster": "ray.io",
          "Deployment": "apps", "StatefulSet": "apps", "Workload": "fairway.dev"}
SENSIBLE = {"fairway.dev/gpu-fraction": ("0.99", "0.01"), "fairway.dev/gpu-memory": ("60Gi", "1Mi"),
            "fairway.dev/group-size": ("2", "1"), "fairway.dev/checkpoint-interval": ("1h", "2h"),
            "fairway.dev/last-checkpoint": ("2026-11-21T11:00:00Z", "2026-11-21T11:30:00Z"),
            "fairway.dev/submitted": ("2026-11-21T11:00:00Z", "2026-11-21T11:30:00Z"),
            "fairway.dev/notify": ("http://a", "http://b")}


def marked(kind, path, key, text, has_room):
    """A stored object of a kind, with this mark, by the user ann."""
    part = {"template": {"spec": {"containers": [{"name": "c"}]}}}
    spec = {"Pod": {"containers": [{"name": "c"}], "schedulerName": "fairway"},
            "CronJob": {"jobTemplate": {"spec": part}},
            "JobSet": {"replicatedJobs": [{"name": "r", "template": {"spec": part}}]},
            "RayCluster": {"headGroupSpec": part}, "Workload": {"podSets": [{"name": "main"}], "user": "ann"}}
    notes = {} if kind == "Workload" else {"fairway.dev/user": "ann"}
    made = {"metadata": {"name": "x", "labels": {QUEUE: "q"}, "annotations": notes}, "spec": spec.get(kind, part)}
    if has_room:
        made |= {"status": {"admission": {"pool": "p"}}} if kind == "Workload" else {}
    if kind == "Pod":
        made["spec"] |= {"nodeName": "n"} if has_room else {"schedulingGates": [{"name": "fairway.dev/admission"}]}
    made = copy.deepcopy(made)
    here = made
    for step in path:
        here = here[step]
    here.pop(key, None)
    here |= {key: text} if text is not None else {}
    return made


@pytest.mark.parametrize("maker", ["", "apps/v1 ReplicaSet", "apps/v1 StatefulSet", "batch/v1 Job"])
@pytest.mark.parametrize(("kind", "path", "key", "waiting", "held"), MAY_CHANGE)
def test_what_a_user_may_change_of_the_marks_that_decide_on_rights_and_accounts(kind, path, key, waiting, held, maker):
    before, after = ("ann", "bob") if key.endswith("user") else SENSIBLE.get(key, ("a", "b"))
    for has_room, verdict in ((False, waiting), (True, held)):
        old, new = (marked(kind, path, key, text, has_room) for text in (before, after))
        if maker:
            version, name = maker.split()
            refs = [{"apiVersion": version, "kind": name, "name": "o", "controller": True}]
            old["metadata"]["ownerReferences"] = new["metadata"]["ownerReferences"] = refs
        if verdict == REFUSED:
            field = ".".join((*path, key)) if path == ("spec",) else f"{'.'.join(path)}[{key}]"
            assert refusal(kind, new, group=GROUPS[kind], old=old).startswith(f"{field}: ")
        else:
            made, _ = admit(review(kind, new, group=GROUPS[kind], old=old))
            assert _at(made, path).get(key) == (before if verdict == KEPT else after), has_room
        if not key.endswith("user"):
            made, _ = admit(review(kind, marked(kind, path, key, after, has_room), group=GROUPS[kind], old=old,
                                   user="controller", is_trusted=True))  # fmt: skip
            assert _at(made, path)[key] == after


def _at(made, path):
    for step in path:
        made = made[step]
    return made


def test_a_user_adds_and_takes_away_no_part_of_a_gpu_once_a_pod_is_admitted():
    for before, after, said in (("0.9", None, "is removed"), (None, "0.1", "is added")):
        old, new = (marked("Pod", NOTE, "fairway.dev/gpu-fraction", text, True) for text in (before, after))
        assert refusal("Pod", new, group="", old=old) == (
            f"metadata.annotations[fairway.dev/gpu-fraction]: {said}, and does not change once the pod is admitted")


def test_what_only_fairway_binds_goes_on_queueing():
    gated = queued("Pod", pod(), "")
    for kind, group, old in (("Job", "batch", queued()), ("Pod", "", gated)):
        said = refusal(kind, changed(old, queue=None), group=group, old=old)
        assert said == ("metadata.labels[fairway.dev/queue]: is removed, and only Fairway binds its pods; "
                        f"make the {kind} anew without it")  # fmt: skip
    foreign = changed(job(suspend=False))
    assert let_in("Job", changed(foreign, queue=None), group="batch", old=foreign)["spec"]["suspend"] is False
    moved = let_in("Job", changed(queued(), queue=None), group="batch", old=queued(), things=SPACE)
    assert moved["spec"]["suspend"] is True  # it is of the namespace's queue now


def test_a_job_that_gets_a_label_is_of_whoever_labels_it():
    for notes in ({}, {USER: "boss"}):
        old = {**job(), "metadata": {"name": "j", "annotations": notes}}
        new = changed(old, queue="q")
        new["metadata"]["annotations"] = {USER: "boss"}
        assert let_in("Job", new, group="batch", old=old)["metadata"]["annotations"][USER] == "ann"
        assert let_in("Job", new, group="batch", old=old, is_trusted=True)["metadata"]["annotations"][USER] == "boss"


def test_a_pod_from_before_that_gets_a_label_is_of_whoever_labels_it():
    old = {**pod(), "metadata": {"name": "p", "annotations": {USER: "boss"}}}
    for before in (old, changed(old, nodeName="n1")):
        assert let_in("Pod", changed(before, queue="q"), group="", old=before)["metadata"]["annotations"][USER] == "ann"


def test_a_bound_pod_without_a_label_keeps_the_queue_it_was_bound_for():
    bound = {**pod(), "metadata": {"name": "p", "annotations": {"fairway.dev/in-queue": "q"}}}
    bound["spec"]["nodeName"] = "n1"
    said = refusal("Pod", changed(bound, queue="default"), group="", old=bound)
    assert said.endswith("keeps its queue, 'q', once it has a node")
    assert let_in("Pod", changed(bound, queue="q"), group="", old=bound)["metadata"]["labels"][QUEUE] == "q"


def test_a_user_suspends_and_resumes_by_the_field_of_kubernetes():
    old = queued()
    runs = changed(old, suspend=False)
    stopped, warnings = told(runs, changed(runs, suspend=True))
    assert (stopped["spec"]["suspend"], stopped["metadata"]["annotations"][ACTIVE], warnings) == (True, "false", [])
    again, (warning,) = told(stopped, changed(stopped, suspend=False))
    assert (again["spec"]["suspend"], again["metadata"]["annotations"][ACTIVE]) == (True, "true")
    assert warning == "it starts when its turn comes in queue q; `fairway why` says when"


def test_what_something_that_is_queued_made_is_suspended_by_that():
    part = job(suspend=False)
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "controller": True}
    part["metadata"]["ownerReferences"] = [owner]
    stopped, _ = told(part, changed(part, suspend=True))
    assert stopped["spec"]["suspend"] is True and ACTIVE not in stopped["metadata"]["annotations"]


@pytest.mark.parametrize("is_same", [True, False])
def test_a_manifest_that_is_suspended_from_the_start_stops_nothing_when_it_is_applied_again(is_same):
    made = job({APPLIED: json.dumps({"spec": {"suspend": True}})}, suspend=True)
    runs = changed(queued(new=made), suspend=False)
    new = changed(runs, suspend=True)
    new["metadata"]["annotations"][APPLIED] += "" if is_same else " "
    kept, warnings = told(runs, new)
    assert kept["spec"]["suspend"] is not is_same
    assert warnings == ["spec.suspend: Fairway sets it; `fairway suspend` stops what runs"] * is_same


def test_the_pods_of_a_deployment_follow_its_queue_and_go_when_it_queues_no_more():
    old = let_in("Deployment", deployment(), group="apps")
    moved = let_in("Deployment", changed(old, queue="r"), group="apps", old=old)
    assert moved["spec"]["template"]["metadata"]["labels"][QUEUE] == "r"
    free = let_in("Deployment", changed(moved, queue=None), group="apps", old=moved)["spec"]["template"]
    assert QUEUE not in free["metadata"]["labels"] and "schedulingGates" not in free["spec"]
    assert free["spec"]["schedulerName"] == "default-scheduler"


def test_the_jobs_of_a_cron_job_follow_its_queue_and_go_when_it_queues_no_more():
    made = {"metadata": {"labels": {QUEUE: "q"}}, "spec": {"jobTemplate": {"spec": job()["spec"]}}}
    old = queued("CronJob", made)
    moved = let_in("CronJob", changed(old, queue="r"), group="batch", old=old)
    assert moved["spec"]["jobTemplate"]["metadata"]["labels"] == {QUEUE: "r"}
    free = let_in("CronJob", changed(moved, queue=None), group="batch", old=moved)
    assert free["spec"]["jobTemplate"]["metadata"]["labels"] == {}
