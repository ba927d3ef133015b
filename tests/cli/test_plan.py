"""`fairway plan` as a command: what it reads, what it answers, and what it says to input that cannot be read."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairway.cli.main import cli

from .cluster import decide, manifests, verdicts

GPU = "nvidia.com/gpu"
OWN = "fairway.dev/v1alpha1"
MANAGED = {"fairway.dev/queue": "default"}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {GPU: "8", "cpu": 8}}}
OF_JOB = [{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "1", "controller": True}]


def template(gpus=1, **spec):
    return {"spec": {"containers": [{"resources": {"requests": {GPU: gpus}}}], **spec}}


def job(name="a", parallelism=1, **more):
    meta = {"name": name, "namespace": "ns", "labels": MANAGED, **more.pop("metadata", {})}
    spec = {"parallelism": parallelism, "completions": parallelism, "template": template(), **more.pop("spec", {})}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec, **more}


def pod(name="p", node=None, **more):
    meta = {"name": name, "namespace": "ns", **more.pop("metadata", {})}
    spec = {**template()["spec"], "nodeName": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, **more}


def workload(name="w", gpus=1, count=1, **more):
    meta = {"name": name, "namespace": "ns", **more.pop("metadata", {})}
    sets = [{"name": "worker", "count": count, "template": template(gpus)}]
    spec = {"queue": "default", "podSets": sets, **more.pop("spec", {})}
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": "Workload", "metadata": meta, "spec": spec, **more}


def ask(text, *options):
    return CliRunner().invoke(cli, ["plan", "-f", "-", *options], input=text)


def refusal(*objects):
    """The one line that is said of objects that cannot be read."""
    result = CliRunner().invoke(cli, ["plan", "-f", "-"], input=yaml.safe_dump_all(objects))
    assert result.exit_code == 2, (result.output, result.exception)
    lines = result.stderr.splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def entries(*objects, options=()):
    return {entry["workload"]: entry for entry in decide(list(objects), *options)["verdicts"]}


def test_the_answer_has_the_documented_shape():
    objects = manifests(
        {
            "nodes": {"n1": {"gpu": 8, "devices": True}},
            "queues": {"nlp": {"guaranteed": {"gpu": 8}}},
            "waiting": {"name": {"queue": "nlp", "pods": 4, "gpu": 2}, "b": {"queue": "nlp", "gpu": 1}},
        }
    )
    answer = decide(objects)
    assert answer["verdicts"][0] == {
        "workload": "team/name",
        "verdict": "Admit",
        "after": [],
        "startsAt": None,
        "backfilledFor": None,
        "placement": {
            "pool": "default",
            "podSets": [
                {"name": "main", "nodes": [{"node": "n1", "count": 4, "devices": [[0, 1], [2, 3], [4, 5], [6, 7]]}]}
            ],
        },
    }
    waits = answer["verdicts"][1]
    assert waits.keys() == {"workload", "verdict", "reason", "message", "position", "startsAt"}
    assert (waits["workload"], waits["verdict"], waits["position"], waits["startsAt"]) == ("team/b", "Wait", 1, None)
    assert waits["message"].startswith("needs 1 GPU")
    assert answer["shares"]["nlp"]["default"] == {GPU: "8"}
    assert answer["againAt"] is None


def test_a_job_counts_as_the_workload_it_would_get():
    assert entries(NODE, job())["ns/job-a"]["verdict"] == "Admit"


def test_each_group_of_a_leader_worker_set_counts_as_a_workload():
    containers = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    meta = {"name": "serve", "namespace": "ml", "labels": {"fairway.dev/queue": "default"}}
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": containers}}}
    made = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": meta, "spec": spec}
    found = entries(*manifests({"nodes": {"n1": None}}), made)
    assert found.keys() == {"ml/leaderworkerset-serve-0", "ml/leaderworkerset-serve-1"}
    assert {one["verdict"] for one in found.values()} == {"Admit"}


def test_a_job_whose_workload_is_there_is_not_counted_twice():
    assert entries(NODE, job(), workload("job-a")).keys() == {"ns/job-a"}


def test_a_workload_of_another_name_stands_for_its_owner_too():
    assert entries(NODE, job(), workload("other", metadata={"ownerReferences": OF_JOB})).keys() == {"ns/other"}


def test_a_job_that_is_not_managed_does_not_count_unless_all_do():
    plain = job(metadata={"labels": {}})
    assert entries(NODE, plain) == {}
    assert entries(NODE, plain, options=["--all"]).keys() == {"ns/job-a"}


def test_a_managed_namespace_manages_its_jobs_and_pods():
    labels = {"fairway.dev/managed": "true"}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns", "labels": labels}}
    assert entries(NODE, space, job(metadata={"labels": {}}), pod()).keys() == {"ns/job-a", "ns/pod-p"}


def test_a_finished_job_is_over():
    over = job(status={"conditions": [{"type": "Complete", "status": "True"}]})
    assert entries(NODE, over) == {}


def test_a_job_asks_for_the_pods_it_still_wants():
    found = entries(NODE, job(parallelism=4, status={"succeeded": 3}))
    assert found["ns/job-a"]["placement"]["podSets"] == [{"name": "main", "nodes": [{"node": "n1", "count": 1}]}]


def test_a_bare_pod_without_a_node_waits_if_it_is_managed():
    assert entries(NODE, pod(metadata={"labels": MANAGED})).keys() == {"ns/pod-p"}
    assert entries(NODE, pod()) == {}


def test_a_claim_that_a_bare_pod_makes_for_itself_counts_before_it_is_there():
    made = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "made"},
            "volumeBindingMode": "WaitForFirstConsumer", "provisioner": "disks"}
    volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "made"}}}}
    bare = pod(metadata={"labels": MANAGED})
    bare["spec"]["volumes"] = [volume]
    assert entries(NODE, made, bare)["ns/pod-p"]["verdict"] == "Admit"
    assert entries(NODE, bare)["ns/pod-p"]["reason"] == "ClaimUnbound"


def test_pods_with_a_node_are_used_room():
    used = [pod(f"u{index}", "n1") for index in range(8)]
    assert verdicts(decide([NODE, *used, workload()])) == {"w": "Wait NoRoom"}


def test_pods_of_a_running_workload_are_not_counted_twice():
    admission = {"pool": "default", "podSets": [{"name": "worker", "nodes": [{"node": "n1", "count": 4}]}]}
    runs = workload("job-a", count=4, status={"admission": admission})
    pods = [pod(f"a-{index}", "n1", metadata={"ownerReferences": OF_JOB}) for index in range(4)]
    assert entries(NODE, runs, *pods, workload(gpus=4))["ns/w"]["verdict"] == "Admit"


def test_pods_that_a_workload_itself_owns_are_not_counted_twice():
    admission = {"pool": "default", "podSets": [{"name": "worker", "nodes": [{"node": "n1", "count": 1}]}]}
    owner = [{"apiVersion": OWN, "kind": "Workload", "name": "a", "uid": "1"}]
    runs, its = workload("a", 4, status={"admission": admission}), pod("p", "n1", metadata={"ownerReferences": owner})
    its["spec"] |= template(4)["spec"]
    assert entries(NODE, runs, its, workload(gpus=4))["ns/w"]["verdict"] == "Admit"


def test_pods_of_a_waiting_owner_are_not_counted_beside_it():
    waiting = pod("a-0", metadata={"ownerReferences": OF_JOB, "labels": MANAGED})
    assert entries(NODE, job(), waiting).keys() == {"ns/job-a"}


def test_pods_of_a_job_without_a_workload_that_have_nodes_leave_it_less_to_ask():
    placed = [pod(f"a-{index}", "n1", metadata={"ownerReferences": OF_JOB}) for index in range(3)]
    found = entries(NODE, job(parallelism=4), *placed)
    assert found["ns/job-a"]["placement"]["podSets"][0]["nodes"] == [{"node": "n1", "count": 1}]
    assert entries(NODE, job(parallelism=3), *placed) == {}


def test_a_group_of_pods_is_one_workload_when_all_are_there():
    labels = {**MANAGED, "fairway.dev/group": "g", "fairway.dev/group-size": "3"}
    pods = [pod(f"p{index}", metadata={"labels": labels}) for index in range(3)]
    found = entries(NODE, *pods)
    assert found.keys() == {"ns/pod-g"}
    assert found["ns/pod-g"]["placement"]["podSets"][0]["nodes"] == [{"node": "n1", "count": 3}]
    assert entries(NODE, *pods[:2]) == {}


def test_the_priority_of_a_class_and_a_number_are_read_alike():
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "p"}, "value": 50}
    old, young = ({"creationTimestamp": f"2026-01-01T00:00:0{second}Z"} for second in (1, 9))
    by_class = workload("by-class", 8, spec={"priorityClassName": "p"}, metadata=young)
    by_number = pod("n", metadata={"labels": MANAGED, **young})
    by_number["spec"] = {**template(8)["spec"], "priority": 60}
    found = decide([NODE, urgent, workload("plain", 8, metadata=old), by_class, by_number])
    assert [entry["workload"] for entry in found["verdicts"]] == ["ns/pod-n", "ns/by-class", "ns/plain"]


def test_an_annotation_of_a_job_is_mirrored():
    elastic = job(parallelism=12, metadata={"annotations": {"fairway.dev/min-count": "2"}, "labels": MANAGED})
    assert entries(NODE, elastic)["ns/job-a"]["verdict"] == "Admit"
    early = job("b", metadata={"annotations": {"fairway.dev/after": "a"}, "labels": MANAGED})
    assert entries(NODE, job(), early)["ns/job-b"]["reason"] == "DependencyPending"
    halted = job(metadata={"annotations": {"fairway.dev/active": "false"}, "labels": MANAGED})
    assert "it comes after a, which is suspended" in entries(NODE, halted, early)["ns/job-b"]["message"]
    said = refusal(NODE, job(metadata={"annotations": {"fairway.dev/min-count": "2"}, "labels": MANAGED}))
    assert said.endswith("[fairway.dev/min-count]: found '2'; 0 to 1, its number of pods, is allowed")


JOB_SET = {
    "replicatedJobs": [
        {"name": "head", "template": {"spec": {"template": template()}}},
        {"name": "work", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": template()}}},
    ]
}
PYTORCH = {
    "pytorchReplicaSpecs": {
        "Worker": {"replicas": 3, "template": template()},
        "Master": {"template": template()},
    }
}
RAY = {
    "headGroupSpec": {"template": template()},
    "workerGroupSpecs": [
        {"groupName": "gpu", "replicas": 2, "numOfHosts": 2, "template": template()},
    ],
}


@pytest.mark.parametrize(
    "kind, group, spec, sets",
    [
        ("JobSet", "jobset.x-k8s.io/v1alpha2", JOB_SET, {"head": 1, "work": 4}),
        ("PyTorchJob", "kubeflow.org/v1", PYTORCH, {"master": 1, "worker": 3}),
        ("RayCluster", "ray.io/v1", RAY, {"head": 1, "gpu": 4}),
    ],
)
def test_other_owners_have_their_podsets(kind, group, spec, sets):
    meta = {"name": "a", "namespace": "ns", "labels": MANAGED}
    found = entries(NODE, {"apiVersion": group, "kind": kind, "metadata": meta, "spec": spec})
    placed = found[f"ns/{kind.lower()}-a"]["placement"]["podSets"]
    assert {one["name"]: sum(node["count"] for node in one["nodes"]) for one in placed} == sets


def test_jobs_of_a_job_set_belong_to_it():
    group = "jobset.x-k8s.io/v1alpha2"
    owner = [{"apiVersion": group, "kind": "JobSet", "name": "s", "uid": "1", "controller": True}]
    meta = {"name": "s", "namespace": "ns", "labels": MANAGED}
    whole = {"apiVersion": group, "kind": "JobSet", "metadata": meta, "spec": JOB_SET}
    child = job("s-head-0", metadata={"ownerReferences": owner, "labels": MANAGED})
    assert entries(NODE, whole, child).keys() == {"ns/jobset-s"}


def test_lists_are_opened_and_typed_ones_too():
    bare = {name: NODE[name] for name in ("metadata", "status")}
    typed = {"apiVersion": "v1", "kind": "NodeList", "items": [bare]}
    assert entries({"apiVersion": "v1", "kind": "List", "items": [typed, workload()]})["ns/w"]["verdict"] == "Admit"


def test_null_empty_and_absent_are_the_same():
    empty = workload(status={"admission": None, "conditions": [], "evictionHistory": None, "excludedNodes": []})
    empty["spec"] |= {"after": [], "pools": None, "topology": None, "minCount": None}
    empty["spec"]["podSets"][0] |= {"minCount": None, "topology": None}
    empty["metadata"]["creationTimestamp"] = None
    assert entries(NODE, empty) == entries(NODE, workload())


def test_yaml_and_json_say_the_same():
    objects = [NODE, workload(), job()]
    as_yaml = ask(yaml.safe_dump_all(objects), "-o", "json")
    as_json = ask(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}), "-o", "json")
    assert as_yaml.exit_code == as_json.exit_code == 0
    assert as_yaml.stdout == as_json.stdout
    assert yaml.safe_load(ask(yaml.safe_dump_all(objects), "-o", "yaml").stdout) == json.loads(as_json.stdout)


def test_of_the_same_object_twice_the_later_counts():
    assert entries(NODE, workload(gpus=9), workload(gpus=1))["ns/w"]["verdict"] == "Admit"


def test_the_clock_is_the_newest_time_of_what_happened():
    admission = {"pool": "default", "podSets": [{"name": "worker", "nodes": [{"node": "n1", "count": 1}]}]}
    since = [{"type": "Admitted", "status": "True", "lastTransitionTime": "2026-11-21T10:00:00Z"}]
    status = {"admission": admission, "conditions": since}
    old = workload(spec={"timeLimit": "1h", "deadline": "2027-01-01T00:00:00Z"}, status=status)
    later = workload("later", metadata={"creationTimestamp": "2026-11-21T10:30:00Z"})
    text = yaml.safe_dump_all([NODE, old, later])
    found = json.loads(ask(text, "-o", "json").stdout)
    assert {"workload": "ns/w", "verdict": "Keep"} in found["verdicts"]
    assert found["againAt"] == "2026-11-21T11:00:00Z"
    late = json.loads(ask(text, "-o", "json", "--now", "2026-11-21T11:00:00Z").stdout)
    assert {"workload": "ns/w", "verdict": "Finish", "reason": "TimeLimit"} in late["verdicts"]


def test_all_waiting_is_an_answer_too():
    result = ask(yaml.safe_dump_all([workload()]), "-o", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["verdicts"][0]["verdict"] == "Wait"


def test_a_list_whose_items_are_none_is_refused():
    for items in (5, True, "abc", {"a": 1}):
        said = refusal({"apiVersion": "v1", "kind": "List", "items": items})
        assert said == f"fairway: standard input: List: items: found {items!r}; a list is allowed"


def test_a_number_beyond_64_bits_is_read_or_refused_never_a_crash():
    huge = workload()
    huge["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = 10**30
    result = ask(json.dumps({"kind": "List", "items": [NODE, huge]}), "-o", "json")
    assert [entry["reason"] for entry in json.loads(result.stdout)["verdicts"]] == ["NeverFits"]


def test_a_sketch_without_points_says_nothing():
    status = {"runtimes": [{"user": "", "name": "", "points": []}]}
    assert entries(NODE, one_of("Queue", "default", {}, status=status), workload())["ns/w"]["verdict"] == "Admit"


def test_nothing_to_decide_is_an_answer_too():
    result = ask("", "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"verdicts": [], "shares": {}, "againAt": None})


def test_the_table_names_verdict_reason_and_place():
    text = ask(yaml.safe_dump_all([NODE, workload(), workload("big", 9)])).stdout
    assert "ns/w" in text and "Admit" in text and "n1 ×1" in text
    assert "NeverFits" in text and "needs 9 GPUs" in text


def test_a_file_is_named_in_an_error(tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("a: 1\n  b: 2\n")
    result = CliRunner().invoke(cli, ["plan", "-f", str(file)])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"fairway: {file}: line 2: ")
    missing = CliRunner().invoke(cli, ["plan", "-f", str(tmp_path / "none")])
    assert (missing.exit_code, missing.stderr) == (2, f"fairway: {tmp_path / 'none'}: No such file or directory\n")


def with_podset(**said):
    return {"podSets": [{"name": "w", **said}]}


@pytest.mark.parametrize(
    "spec, words",
    [
        (with_podset(count=2, minCount=3), "spec.podSets[0].minCount: found 3; at most count, which is 2, is allowed"),
        (with_podset(count=-1), "spec.podSets[0].count: found -1; int >= 0 is allowed"),
        (with_podset(count="4"), "spec.podSets[0].count: found '4'; int is allowed"),
        (with_podset(minCount="4"), "spec.podSets[0].minCount: found '4'; int is allowed"),
        ({"podSets": []}, "spec.podSets: absent; at least one podset is needed"),
        ({"podSets": [{"name": "w"}, {"name": "w"}]}, "spec.podSets: found 'w' twice"),
        (
            with_podset(template=template("-1")),
            "spec.podSets[0].template.spec.containers[0].resources.requests[nvidia.com/gpu]: found '-1'; a quantity",
        ),
        (with_podset(template=template("0.5")), "found '0.5'; whole GPUs are allowed"),
        (
            with_podset(template={"metadata": {"annotations": {"fairway.dev/gpu-fraction": "1.5"}}}),
            "metadata.annotations[fairway.dev/gpu-fraction]: found '1.5'; a fraction above 0 and below 1 is allowed",
        ),
        (
            with_podset(template=template(tolerations=[{"operator": "Is"}])),
            "spec.podSets[0].template.spec.tolerations[0].operator: found 'Is'; one of Equal, Exists is allowed",
        ),
        (
            with_podset(template=template(tolerations=[{"effect": "No"}])),
            "tolerations[0].effect: found 'No'; one of NoExecute, NoSchedule, PreferNoSchedule is allowed",
        ),
        ({"workloadType": "Serving"}, "spec.workloadType: found 'Serving'; one of Inference, Interactive, Training"),
        ({"timeLimit": "1 day"}, "spec.timeLimit: found '1 day'; a duration such as 90s"),
        ({"deadline": "tomorrow"}, "spec.deadline: found 'tomorrow'; a time such as"),
        (
            {"topology": {"segments": [{"level": "a", "size": 4}, {"level": "b", "size": 3}]}},
            "spec.topology.segments: found 3 inside 4; a size that divides the outer one is allowed",
        ),
    ],
)
def test_a_workload_that_cannot_be_read_is_told_with_its_field(spec, words):
    said = refusal(NODE, workload(spec=spec))
    assert said.startswith("fairway: standard input: Workload ns/w: ")
    assert words in said


def one_of(kind, name, spec, api_version=OWN, **more):
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec, **more}


@pytest.mark.parametrize(
    "bad, words",
    [
        (
            one_of("Node", "n", {}, "v1", status={"allocatable": {"cpu": "many"}}),
            "Node n: status.allocatable[cpu]: found 'many'",
        ),
        (one_of("Node", "", {}, "v1"), "Node: metadata.name: a name is needed"),
        ({"kind": "Node"}, "an object with apiVersion and kind is allowed"),
        (
            one_of("Queue", "q", {"order": "Random"}),
            "Queue q: spec.order: found 'Random'; one of FIFO, FairUsers, LeastAttained, Priority, ShortestFirst is",
        ),
        (
            one_of("Queue", "q", {"quotas": [{"guaranteed": {GPU: "-4"}}]}),
            "Queue q: spec.quotas[0].guaranteed[nvidia.com/gpu]: found '-4'; a quantity that is not negative",
        ),
        (
            one_of("Reservation", "r", {"queue": "default", "start": "2026-01-01T00:00:00Z", "duration": "1h"}),
            "Reservation r: spec: found neither; either amount or nodes is allowed",
        ),
        (
            job(metadata={"annotations": {"fairway.dev/preemptible": "maybe"}, "labels": MANAGED}),
            "Job ns/a: metadata.annotations[fairway.dev/preemptible]: found 'maybe'; true or false is allowed",
        ),
        (
            one_of("Pod", "p", {"containers": [{"name": "c", "resources": {"requests": {GPU: 2}}}]}, "v1",
                   metadata={"name": "p", "annotations": {"fairway.dev/gpu-fraction": "0.5"}, "labels": MANAGED}),
            "Pod default/p: metadata.annotations[fairway.dev/gpu-fraction]: found '0.5' beside 2 nvidia.com/gpu",
        ),
    ],
)
def test_other_objects_that_cannot_be_read_are_told_with_their_field(bad, words):
    assert words in refusal(bad)


def test_a_name_that_two_workloads_have_is_ambiguous_in_after():
    said = refusal(NODE, job(), pod("a", metadata={"labels": MANAGED}), workload(spec={"after": ["a"]}))
    assert "Workload ns/w: spec.after: found 'a', which is the name of ns/job-a and ns/pod-a" in said
    said = refusal(NODE, job(), job("job-a"), workload(spec={"after": ["job-a"]}))
    assert "which is the name of ns/job-a and ns/job-job-a; workload/NAME of one is allowed" in said


def test_an_after_says_with_a_kind_which_of_two_it_means():
    ended = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    found = [NODE, job(**ended), job("job-a"), workload(spec={"after": ["workload/job-a"]})]
    assert verdicts(decide(found))["w"].startswith("Admit")
    found[-1]["spec"]["after"] = ["job/job-a"]
    assert verdicts(decide(found))["w"] == "Wait DependencyPending"


@pytest.mark.parametrize(
    "options, words",
    [
        (["--policy", "magic"], "--policy: there is no policy 'magic'"),
        (["--now", "noon"], "--now: found 'noon'"),
        (["-o", "xml"], "xml"),
    ],
)
def test_wrong_options_exit_two_with_a_line(options, words):
    program = [sys.executable, "-c", "from fairway.cli.main import main; main()"]
    done = subprocess.run([*program, "plan", "-f", "/dev/null", *options], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


WORDS = ["", "-1", "1e999", "9E", "100%", "0", "n1", "default", "7d", "2026-11-21T12:00:00Z", "9999-12-31T23:59:59Z"]
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([-1, 0, 2**31, 2**63, 2**70, 1e308, 0.5]),
    st.text(max_size=8),
    st.sampled_from(WORDS),
    st.just([]),
    st.just({}),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)


def spots(said, path=()):
    """Every place in plain values."""
    children = said.items() if isinstance(said, dict) else enumerate(said) if isinstance(said, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from spots(child, (*path, key))


def put(said, path, value):
    for step in path[:-1]:
        said = said[step]
    said[path[-1]] = value


def held(result):
    """An answer, or one line that says what is wrong; never a crash."""
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code in (0, 2)
    assert result.exit_code == 0 or len(result.stderr.splitlines()) == 1, result.stderr


FILES = sorted((Path(__file__).parent / "plan_cases").glob("*.yaml"))
WHOLE = [manifests(case) for file in FILES for case in yaml.safe_load(file.read_text())]


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_value_in_any_place_crashes_it(data):
    objects = copy.deepcopy(data.draw(st.sampled_from(WHOLE)))
    for _ in range(data.draw(st.integers(1, 3))):
        places = list(spots(objects))
        put(objects, data.draw(st.sampled_from(places)), data.draw(ODD))
    held(CliRunner().invoke(cli, ["plan", "-f", "-", "-o", "json"], input=json.dumps(objects)))


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=60), st.text(alphabet="{}[]:,-&*?|>'\"\n ab1!%#", max_size=60).map(str.encode)))
def test_no_text_crashes_it(text):
    held(CliRunner().invoke(cli, ["plan", "-f", "-"], input=text))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"queue": "default", "amount": {GPU: 8}}, "spec.pool: absent"),
        ({"queue": "default", "pool": "h100", "amount": {GPU: 8}}, "spec.pool: found 'h100', which does not exist"),
        ({"queue": "exam", "nodes": ["n1"]}, "spec.queue: found 'exam', which does not exist"),
        ({"maintenance": True, "nodes": ["n2"]}, "spec.nodes: found 'n2', which does not exist"),
    ],
)
def test_a_reservation_of_nothing_is_refused(spec, words):
    window = {"start": "2026-11-21T13:00:00Z", "duration": "2h"}
    reserved = {"apiVersion": "fairway.dev/v1alpha1", "kind": "Reservation", "metadata": {"name": "r"}}
    assert words in refusal(NODE, {**reserved, "spec": {**spec, **window}})
