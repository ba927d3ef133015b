"""Which Workload an owner gets: its podsets, its name, and what its annotations say."""

import pytest
from msgspec.structs import replace

from fairway.api import owners
from fairway.api.decode import decode
from fairway.api.forms.data import memory_of
from fairway.api.names import called
from fairway.api.objects import JobObject, PodGroupObject, PodObject
from fairway.api.owners import OWNERS, name_of, pod_group, queue_of
from fairway.api.pods import requests
from fairway.api.quantities import Malformed
from fairway.api.types import TopologySpec


def job(spec=None, status=None, labels=None, **annotations):
    notes = {f"fairway.dev/{name.replace('_', '-')}": text for name, text in annotations.items()}
    meta = {
        "name": "a",
        "namespace": "ns",
        "uid": "7",
        "annotations": notes,
        "labels": labels or {"fairway.dev/queue": "q"},
    }
    return OWNERS["batch", "Job"].workload("Job", {"metadata": meta, "spec": spec or {}, "status": status or {}})


def test_the_workload_is_named_after_its_owner_and_owned_by_it():
    made = job()
    assert (made.metadata.name, made.metadata.namespace) == ("job-a", "ns")
    (ref,) = made.metadata.owner_references
    assert (ref.api_version, ref.kind, ref.name, ref.uid, ref.controller) == ("batch/v1", "Job", "a", "7", True)
    assert name_of("PyTorchJob", "a") == "pytorchjob-a"


def test_a_deadline_of_kubernetes_is_the_time_limit_where_no_annotation_says_one():
    assert job({"activeDeadlineSeconds": 5400}).spec.time_limit == "1h30m"
    assert job({"activeDeadlineSeconds": 5400}, time_limit="1h").spec.time_limit == "1h"
    assert job({"activeDeadlineSeconds": 5400}, time_limit="2h").spec.time_limit == "1h30m"
    assert job({"activeDeadlineSeconds": -5}, time_limit="2h").spec.time_limit == "2h"
    assert job({"activeDeadlineSeconds": 0}).spec.time_limit == job().spec.time_limit == ""
    of_pods = {"template": {"spec": {"activeDeadlineSeconds": 60}}}  # each pod's, and another may come in its place
    assert job(of_pods).spec.time_limit == ""
    bare = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}], "activeDeadlineSeconds": 60}}
    assert owners.pod(decode(bare, PodObject)).spec.time_limit == "1m"


def test_a_workload_goes_by_its_name_and_its_owners_each_with_its_kind():
    assert called("job-a", [("Job", "a")]) == {"job-a", "workload/job-a", "a", "job/a"}
    pods = [("Pod", "left"), ("Pod", "right")]
    assert called("pod-pair", pods) > {"pair", "pod/pair", "left", "pod/right"}
    assert called("w", []) == {"w", "workload/w"}


@pytest.mark.parametrize(
    "spec, status, count",
    [
        ({}, {}, 1),
        ({"parallelism": 4, "completions": 4}, {}, 4),
        ({"parallelism": 4, "completions": 2}, {}, 2),
        ({"parallelism": 4, "completions": 10}, {"succeeded": 9}, 1),
        ({"parallelism": 3}, {}, 3),
        ({"parallelism": 0}, {}, 0),
    ],
)
def test_a_job_asks_for_as_many_pods_as_run_at_once(spec, status, count):
    assert [(one.name, one.count) for one in job(spec, status).spec.pod_sets] == [("main", count)]


def test_annotations_are_mirrored_into_the_spec():
    spec = job(
        workload_type="Interactive",
        preemptible="true",
        expected_runtime="1h",
        time_limit="2h",
        restart="Pod",
        pools="a, b",
        after="x,y",
        deadline="2026-12-01T08:00:00Z",
        active="false",
        topology_required="rack",
        idle_timeout="1h",
        start_timeout="5m",
        checkpoint_interval="10m",
        data="c",
        user="ann",
    ).spec
    assert (spec.queue, spec.user, spec.workload_type, spec.preemptible, spec.active) == (
        "q",
        "ann",
        "Interactive",
        True,
        False,
    )
    assert (spec.expected_runtime, spec.time_limit, spec.restart, spec.pools) == ("1h", "2h", "Pod", ("a", "b"))
    assert (spec.after, spec.deadline, spec.topology) == (("x", "y"), "2026-12-01T08:00:00Z", TopologySpec("rack"))
    assert (spec.idle_timeout, spec.start_timeout, spec.checkpoint_interval, spec.data) == ("1h", "5m", "10m", "c")


def test_a_minimum_makes_a_job_elastic():
    (one,) = job({"parallelism": 8}, min_count="3").spec.pod_sets
    assert (one.count, one.min_count) == (8, 3)
    (last,) = job({"parallelism": 8, "completions": 8}, {"succeeded": 6}, min_count="3").spec.pod_sets
    assert (last.count, last.min_count) == (2, 2)


def test_what_shares_a_device_stands_on_the_template():
    (one,) = job(gpu_fraction="0.5", alignment="Required").spec.pod_sets
    assert one.template.metadata.annotations == {"fairway.dev/gpu-fraction": "0.5"}
    assert one.alignment == "Required"
    own = {"template": {"metadata": {"annotations": {"fairway.dev/gpu-memory": "8Gi"}}}}
    (kept,) = job(own, gpu_fraction="0.5").spec.pod_sets
    assert kept.template.metadata.annotations == {"fairway.dev/gpu-memory": "8Gi"}


@pytest.mark.parametrize(
    "annotations, field",
    [
        ({"workload_type": "Serving"}, "workload-type"),
        ({"preemptible": "yes"}, "preemptible"),
        ({"min_count": "many"}, "min-count"),
        ({"min_count": "-1"}, "min-count"),
        ({"alignment": "Maybe"}, "alignment"),
        ({"restart": "All"}, "restart"),
    ],
)
def test_an_annotation_that_cannot_be_read_is_named(annotations, field):
    with pytest.raises(Malformed) as told:
        job(**annotations)
    assert told.value.field == f"metadata.annotations[fairway.dev/{field}]"


def test_a_ray_cluster_is_elastic_where_ray_scales_it():
    group = {"groupName": "gpu", "replicas": 4, "minReplicas": 1, "numOfHosts": 2}
    said = {"metadata": {"name": "r", "namespace": "ns"}, "spec": {"workerGroupSpecs": [group]}}
    kind = OWNERS["ray.io", "RayCluster"]
    fixed = kind.workload("RayCluster", said).spec.pod_sets
    assert [(one.name, one.count, one.min_count) for one in fixed] == [("head", 1, None), ("gpu", 8, None)]
    said["spec"]["enableInTreeAutoscaling"] = True
    assert kind.workload("RayCluster", said).spec.pod_sets[1].min_count == 2


def test_a_pytorch_job_has_its_master_first_and_elastic_workers():
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 4}, "Master": {}}, "elasticPolicy": {"minReplicas": 2}}
    made = OWNERS["kubeflow.org", "PyTorchJob"].workload("PyTorchJob", {"metadata": {"name": "p"}, "spec": spec})
    assert [(one.name, one.count, one.min_count) for one in made.spec.pod_sets] == [
        ("master", 1, None),
        ("worker", 4, 2),
    ]


def pods(number, size, cpu=None):
    found = []
    for index in range(number):
        group = {"fairway.dev/queue": "q", "fairway.dev/group": "g", "fairway.dev/group-size": str(size)}
        meta = {"name": f"p{index}", "namespace": "ns", "uid": str(index), "labels": group}
        meta["creationTimestamp"] = f"2026-01-01T00:00:0{index}Z"
        asked = {"cpu": (cpu or ["1"] * number)[index]}
        spec = {"containers": [{"resources": {"requests": asked}}]}
        found.append(decode({"metadata": meta, "spec": spec}, PodObject))
    return found


@pytest.mark.parametrize("notes, node", [({}, "n1"), ({"fairway.dev/attempt": "pod-a/7/1"}, "")])
def test_a_bare_pod_asks_for_its_node_unless_fairway_chose_it(notes, node):
    meta = {"name": "a", "namespace": "ns", "annotations": notes}
    (one,) = owners.pod(decode({"metadata": meta, "spec": {"nodeName": "n1"}}, PodObject)).spec.pod_sets
    assert one.template.spec.node_name == node


def test_a_group_of_pods_is_a_gang_owned_by_all_of_them():
    made = pod_group("g", pods(3, 3))
    assert (made.metadata.name, made.metadata.creation_timestamp) == ("pod-g", "2026-01-01T00:00:02Z")
    assert [(ref.kind, ref.name, ref.controller) for ref in made.metadata.owner_references] == [
        ("Pod", name, False) for name in ("p0", "p1", "p2")
    ]
    assert [(one.name, one.count) for one in made.spec.pod_sets] == [("main", 3)]


def test_pods_of_a_group_that_another_scheduler_bound_are_of_the_gang_as_those_that_wait():
    one, *others = pods(3, 3)
    bound = replace(one, spec=replace(one.spec, node_name="n1"))
    ours = replace(bound, metadata=replace(one.metadata, annotations={"fairway.dev/attempt": "pod-g/u/1"}))
    counts = [[it.count for it in pod_group("g", [first, *others]).spec.pod_sets] for first in (bound, ours)]
    assert counts == [[3], [2]]


def test_a_group_of_which_some_are_missing_is_no_workload_yet():
    assert pod_group("g", pods(2, 3)) is None


def test_pods_of_a_group_that_ask_for_different_things_are_podsets():
    made = pod_group("g", pods(3, 3, cpu=["1", "2", "2"]))
    assert [(one.name, one.count) for one in made.spec.pod_sets] == [("main", 1), ("main-1", 2)]


def test_a_group_size_that_is_no_number_is_named():
    with pytest.raises(Malformed, match=r"metadata\.labels\[fairway\.dev/group-size\]: found 'all'"):
        pod_group("g", pods(1, "all"))


def test_an_object_is_managed_by_its_label_or_its_namespace():
    plain, labelled = (
        JobObject().metadata,
        decode({"metadata": {"labels": {"fairway.dev/queue": "q"}}}, JobObject).metadata,
    )
    assert queue_of(plain, {}) == ""
    assert queue_of(plain, {"fairway.dev/managed": "true"}) == owners.DEFAULT_QUEUE
    assert queue_of(plain, {"fairway.dev/managed": "false"}) == ""
    assert queue_of(labelled, {}) == "q"


def test_a_gang_that_kubernetes_describes_has_the_fewest_that_its_pod_group_names():
    found = [decode({"metadata": {"name": f"p{index}", "namespace": "ns", "uid": str(index)},
                     "spec": {"schedulingGroup": {"podGroupName": "g"}}}, PodObject) for index in range(3)]  # fmt: skip
    assert {owners.group_of(one.metadata, one.spec) for one in found} == {"g"}
    assert pod_group("g", found[:1], 2) is None
    (one,) = pod_group("g", found, 2).spec.pod_sets
    assert (one.count, one.min_count) == (3, 2)
    said = decode({"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}, PodGroupObject)
    assert said.least == 2


def kubeflow(**policy):
    roles = {"Worker": {"replicas": 4}, "PS": {"replicas": 2}, "Chief": {"replicas": 1}}
    spec = {"tfReplicaSpecs": roles, "runPolicy": {"schedulingPolicy": policy}}
    made = OWNERS["kubeflow.org", "TFJob"].workload("TFJob", {"metadata": {"name": "t"}, "spec": spec})
    return made.spec.pod_sets


def test_workers_give_way_as_far_as_the_scheduling_policy_says():
    found = kubeflow(minAvailable=5, priorityClass="high")
    assert [(one.name, one.count, one.min_count) for one in found] == [
        ("chief", 1, None), ("ps", 2, None), ("worker", 4, 2),
    ]  # fmt: skip
    assert {one.template.spec.priority_class_name for one in found} == {"high"}


def test_a_ray_job_whose_cluster_would_stay_is_refused_by_its_field():
    said = {"metadata": {"name": "r"}, "spec": {"rayClusterSpec": {}}}
    with pytest.raises(Malformed) as told:
        OWNERS["ray.io", "RayJob"].workload("RayJob", said)
    assert told.value.field == "spec.shutdownAfterJobFinishes"
    said["spec"] = {"clusterSelector": {"ray.io/cluster": "c"}}
    assert OWNERS["ray.io", "RayJob"].workload("RayJob", said).spec.pod_sets == ()


@pytest.mark.parametrize("text, bytes_", [("8g", 8 << 30), ("2048m", 2 << 30), ("512", 512 << 20), ("1 gb", 1 << 30)])
def test_memory_in_the_units_of_a_jvm(text, bytes_):
    assert memory_of(text) == bytes_


def test_spark_asks_for_its_overhead_and_as_many_executors_as_may_come():
    executor = {"memory": "4g", "cores": 2, "gpu": {"name": "nvidia.com/gpu", "quantity": 1}}
    dynamic = {"enabled": True, "minExecutors": 1, "maxExecutors": 8}
    said = {"metadata": {"name": "s"}, "spec": {"type": "Python", "executor": executor, "dynamicAllocation": dynamic}}
    one = OWNERS["sparkoperator.k8s.io", "SparkApplication"].workload("SparkApplication", said).spec.pod_sets[1]
    asked = dict(requests(one.template.spec))
    assert (one.count, one.min_count) == (8, 1)
    assert (asked["cpu"], asked["memory"], asked["nvidia.com/gpu"]) == (2000, int((4 << 30) * 1.4), 1000)


def test_a_wrapper_asks_for_what_it_wraps_and_for_what_it_names():
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"parallelism": 3}}
    other = {"kind": "Thing", "apiVersion": "example.com/v1", "spec": {"leader": {"template": {"spec": {}}}}}
    named = [{"path": "template.spec.leader.template", "replicas": 2}]
    spec = {"components": [{"template": job}, {"template": other, "podSets": named}]}
    kind = OWNERS["workload.codeflare.dev", "AppWrapper"]
    found = kind.workload("AppWrapper", {"metadata": {"name": "w"}, "spec": spec}).spec.pod_sets
    assert [(one.name, one.count) for one in found] == [("main-0", 3), ("leader-1", 2)]
    spec["components"][1]["podSets"][0]["path"] = "template.spec.none"
    with pytest.raises(Malformed, match=r"found 'template\.spec\.none'"):
        kind.workload("AppWrapper", {"metadata": {"name": "w"}, "spec": spec})
