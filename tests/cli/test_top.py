"""What `fairway top` adds up, and how it sees processes."""

import os
import subprocess
import sys
from typing import Any

from fairway.cli.top import Processes, _lines


def pod(workload: str, node: str, devices: str = "") -> dict[str, Any]:
    notes = {"fairway.dev/attempt": f"{workload}/uid/1", "fairway.dev/assigned-devices": devices}
    asked = {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}
    return {"metadata": {"name": f"{workload}-x", "uid": "u", "annotations": notes}, "status": {},
            "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"requests": asked}}]}}  # fmt: skip


def test_a_line_is_a_workload_on_a_node_with_all_that_its_pods_ask_for() -> None:
    pods = [pod("job-b", "n1", "0"), pod("job-b", "n1", "2"), pod("job-b", "n2"), pod("job-a", "n1", "1")]
    lines = _lines(pods)
    said = [(one.name, one.node, one.asked["cpu"], one.asked["nvidia.com/gpu"], one.devices) for one in lines.values()]
    assert said == [
        ("job-a", "n1", 2000, 1000, [1]), ("job-b", "n1", 4000, 2000, [0, 2]), ("job-b", "n2", 2000, 1000, []),
    ]  # fmt: skip
    assert all(one.cpus is None and one.memory is None for one in lines.values())


def test_what_is_paused_asks_for_its_memory_alone_and_holds_no_gpu() -> None:
    paused = pod("job-a", "n1", "0") | {"status": {"conditions": [{"type": "fairway.dev/Frozen", "status": "True"}]}}
    (line,) = _lines([paused]).values()
    assert (line.asked, line.devices) == ({"memory": 1 << 30}, [])


def test_what_processes_use_is_that_of_all_below_the_one_that_keeps_them() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        cpus, memory = Processes()._used(os.getpid())
        assert child.stdin is not None and memory > 1 << 20 and cpus >= 0
        child.stdin.close()
