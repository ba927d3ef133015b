"""Bare pods that have no Workload of their own: commands show and serve them as any, on a cluster of this machine."""

import json
from collections.abc import Iterator

import pytest

from .test_commands import Machine


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.run("up", "--detach", "--cpus", "4", "--fake-gpus", "2")
    machine.kubectl("create", "priorityclass", "urgent", "--value", "5")
    yield machine
    machine.run("down")


def start(machine: Machine, name: str, script: str, **labels: str) -> None:
    container = {
        "name": "main", "image": "none", "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "100m", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}},
    }  # fmt: skip
    meta = {"name": name, "labels": {"fairway.dev/queue": "default", **labels}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container],
        "priorityClassName": "urgent"}}  # fmt: skip
    (machine.folder / "pod.json").write_text(json.dumps(pod))
    machine.kubectl("apply", "-f", str(machine.folder / "pod.json"))


def test_a_running_pod_is_shown_by_every_command_and_has_no_workload(machine: Machine) -> None:
    start(machine, "runs", "echo hello; sleep 1000")
    machine.run("wait", "runs", "--for", "started")
    assert machine.kubectl("get", "workloads", "-o", "name").strip() == ""
    (row,) = [line for line in machine.run("ls").splitlines() if line.startswith("runs ")]
    assert "running" in row and "default" in row and "urgent" in row
    status = json.loads(machine.run("status", "runs", "-o", "json"))
    assert status["status"]["phase"] == "Running" and status["metadata"]["name"] == "pod-runs"
    assert status["status"]["admission"]["podSets"][0]["nodes"][0]["devices"]
    assert "podsets:   main × 1 (" in machine.run("status", "runs")
    assert "runs" in machine.run("why", "runs")
    assert json.loads(machine.run("queues", "-o", "json"))["live"]["default"]["admitted"] == 1
    machine.run("cancel", "runs")
    assert "runs " not in machine.run("ls")


def test_a_pod_that_ended_is_waited_for_and_its_log_is_read(machine: Machine) -> None:
    start(machine, "ends", "sleep 1; echo done; exit 3")
    assert machine.run("wait", "ends", status=3).startswith("ends ")
    assert machine.run("logs", "ends") == "done\n"
    assert [line.split()[0] for line in machine.run("ls", "--all", "--state", "failed").splitlines()[1:]] == ["ends"]
    assert machine.kubectl("get", "workloads", "-o", "name").strip() == ""


def test_a_log_is_followed_to_the_end_of_its_pod(machine: Machine) -> None:
    start(machine, "told", "for at in 1 2 3; do echo $at; sleep 0.3; done")
    assert machine.run("logs", "-f", "told") == "1\n2\n3\n"


def test_a_suspended_pod_waits_and_goes_on_and_the_log_of_both_attempts_is_kept(machine: Machine) -> None:
    start(machine, "pauses", "echo began; sleep 1000")
    machine.run("wait", "pauses", "--for", "started")
    while "began" not in machine.run("logs", "pauses"):
        pass
    machine.run("suspend", "pauses")
    assert machine.run("logs", "pauses") == "began\n"
    machine.run("resume", "pauses")
    machine.run("wait", "pauses", "--for", "started")
    assert machine.run("logs", "pauses", "--attempt", "1") == "began\n"
    machine.run("cancel", "pauses")


def test_of_pods_that_labels_choose_those_that_would_come_again_are_not_suspended(machine: Machine) -> None:
    start(machine, "mine", "sleep 1000", app="both")
    machine.kubectl("create", "deployment", "both", "--image=none", "--", "sleep", "1000")
    machine.kubectl("rollout", "status", "deployment/both", "--timeout=60s")
    machine.run("wait", "mine", "--for", "started")
    (pod,) = (it for it in machine.kubectl("get", "pods", "-l", "app=both", "-o", "name").split() if "mine" not in it)
    said = machine.run("suspend", "-l", "app=both", status=1)
    assert "mine suspended;" in said
    assert f"{pod.removeprefix('pod/')} is a pod of the Deployment both, and comes again: `kubectl scale " in said
    assert machine.kubectl("get", pod, "--no-headers").split()[2] == "Running"
    machine.kubectl("delete", "deployment", "both")
    machine.run("cancel", "mine")


def test_a_pod_whose_group_is_not_whole_is_said_to_wait_for_it(machine: Machine) -> None:
    start(machine, "half", "true", **{"fairway.dev/group": "pair", "fairway.dev/group-size": "2"})
    for name in ("half", "pair"):
        said = machine.run("why", name, status=1)
        assert "group 'pair' is queued when its 2 pods (fairway.dev/group-size) are there; 1 of them so far" in said
    (row,) = [line for line in machine.run("ls").splitlines() if line.startswith("pair ")]
    assert " waiting " in row and "GroupIncomplete: group 'pair' is queued when its 2 pods" in row
    machine.kubectl("delete", "pod", "half")


def test_kubernetes_ends_a_job_and_a_bare_pod_by_their_own_deadlines(machine: Machine) -> None:
    labels = {"labels": {"fairway.dev/queue": "default"}}
    runs = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [
        {"name": "c", "image": "i", "command": ["sleep", "600"], "resources": {"requests": {"cpu": "100m"}}}]}
    job = {"backoffLimit": 0, "template": {"spec": runs}}
    for version, kind, said in (("v1", "Pod", runs), ("batch/v1", "Job", job)):
        spec = {**said, "activeDeadlineSeconds": 2}
        thing = {"apiVersion": version, "kind": kind, "metadata": {"name": "due", **labels}, "spec": spec}
        (machine.folder / "due.json").write_text(json.dumps(thing))
        machine.kubectl("apply", "-f", str(machine.folder / "due.json"))
    machine.kubectl("wait", "job/due", "--for=condition=Failed", "--timeout=60s")
    machine.kubectl("wait", "pod/due", "--for=jsonpath={.status.phase}=Failed", "--timeout=60s")
    ended = [json.loads(machine.kubectl("get", one, "-o", "json")) for one in ("pod/due", "job/due")]
    assert [it["spec"]["activeDeadlineSeconds"] for it in ended] == [2, 2]
    pod, job = (it["status"] for it in ended)
    assert pod["reason"] == "DeadlineExceeded"
    assert {it["reason"] for it in job["conditions"] if it["type"] == "Failed"} == {"DeadlineExceeded"}
