"""What `fairway top` adds up, and whose use it shows."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from fairway.cli.top import _lines

from .test_commands import Machine


def pod(workload: str, node: str, devices: str = "") -> dict[str, Any]:
    notes = {"fairway.dev/attempt": f"{workload}/uid/1", "fairway.dev/assigned-devices": devices}
    asked = {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}
    return {"metadata": {"name": f"{workload}-x", "namespace": "ml", "uid": "u", "annotations": notes}, "status": {},
            "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"requests": asked}}]}}  # fmt: skip


def test_a_line_is_a_workload_on_a_node_with_all_that_its_pods_ask_for() -> None:
    pods = [pod("job-b", "n1", "0"), pod("job-b", "n1", "2"), pod("job-b", "n2"), pod("job-a", "n1", "1")]
    lines = _lines(pods, {}, {})
    said = [(one.name, one.node, one.asked["cpu"], one.asked["nvidia.com/gpu"], one.devices) for one in lines.values()]
    assert said == [
        ("job-a", "n1", 2000, 1000, [1]), ("job-b", "n1", 4000, 2000, [0, 2]), ("job-b", "n2", 2000, 1000, []),
    ]  # fmt: skip
    assert all(one.cpus is None and one.memory is None for one in lines.values())


def test_what_is_paused_asks_for_its_memory_alone_and_holds_no_gpu() -> None:
    paused = pod("job-a", "n1", "0") | {"status": {"conditions": [{"type": "fairway.dev/Frozen", "status": "True"}]}}
    (line,) = _lines([paused], {}, {}).values()
    assert (line.asked, line.devices) == ({"memory": 1 << 30}, [])


def test_memory_of_a_gpu_is_that_part_of_one_of_the_pool_of_its_node() -> None:
    part = pod("job-a", "n1")
    part["metadata"]["annotations"]["fairway.dev/gpu-memory"] = "20Gi"
    del part["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"]
    (line,) = _lines([part], {}, {"n1": 80 << 30}).values()
    assert line.asked["nvidia.com/gpu"] == 250


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.run("up", "--detach", "--cpus", "2")
    machine.kubectl("create", "namespace", "other")
    machine.run("submit", "-n", "other", "--name", "spins", "--", "sh", "-c", "while :; do :; done")
    machine.run("submit", "-n", "other", "--name", "waits", "--cpus", "64", "--wait-anyway", "--", "true")
    while "spins" not in machine.run("ls", "-n", "other", "--state", "running"):
        pass
    yield machine
    machine.run("down")


def test_another_home_than_the_clusters_sees_what_is_used_too(machine: Machine) -> None:
    config = str(machine.folder / "fairway" / "kubeconfig")
    elsewhere = Machine(machine.folder / "home")
    elsewhere.folder.mkdir()
    (line,) = json.loads(elsewhere.run("top", "--kubeconfig", config, "-n", "other", "-o", "json"))["workloads"]
    assert (line["namespace"], line["name"]) == ("other", "job-spins")
    assert line["cpus"] > 0 and line["memory"] > 1 << 16


def test_where_nothing_runs_the_namespace_is_named_and_all_are_shown_on_request(machine: Machine) -> None:
    assert machine.run("top") == "nothing runs in namespace default; -A looks in all\n"
    head, row = machine.run("top", "-A").splitlines()
    assert head.split()[:2] == ["NAMESPACE", "WORKLOAD"] and row.split()[:2] == ["other", "spins"]


@pytest.mark.parametrize(("words", "status", "said"), [
    ("other/spins", 1, "no workload 'other/spins' in namespace 'default'; `fairway ls --all` lists those there are"),
    ("-A spins", 2, "-A: found with JOB 'spins', which is in one namespace; -n names it"),
    ("-n other waits", 1, "waits does not run; `fairway ls` lists what does"),
])  # fmt: skip
def test_a_job_that_is_not_shown_is_told_of_as_elsewhere(machine: Machine, words: str, status: int, said: str) -> None:
    assert machine.run("top", *words.split(), status=status) == f"fairway: {said}\n"


def test_a_job_goes_by_all_of_its_names(machine: Machine) -> None:
    for name in ("spins", "job/spins", "workload/job-spins"):
        assert " 1 " in machine.run("top", "-n", "other", name).splitlines()[1]
