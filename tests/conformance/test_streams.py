"""What kubectl does with a pod that runs: attach, cp, exec, port-forward, top. They need a kubelet that serves them."""

import shutil
import socket
import sys
import time
from urllib.error import URLError
from urllib.request import urlopen

import pytest

pytestmark = [pytest.mark.kubectl, pytest.mark.whole_cluster, pytest.mark.usefixtures("logs")]
PATIENCE_SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run(kubectl, name: str, *command: str) -> None:
    kubectl("run", name, "--image=python:3", "--restart=Never", "--grace-period=1", "--command", "--", *command)
    kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s")


def test_kubectl_forwards_a_port_of_a_pod_and_of_a_service(kubectl, program):
    if program[1] < 31:
        pytest.skip("kubectl forwards over a WebSocket from 1.31 on")
    port = free_port()
    run(kubectl, "web", sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1")
    kubectl("expose", "pod", "web", "--port=80", f"--target-port={port}")
    for target, far in (("pod/web", port), ("service/web", 80)):
        near = free_port()
        with kubectl.start("port-forward", target, f"{near}:{far}") as process:
            assert "Forwarding from" in process.stdout.readline()
            assert b"Directory listing" in fetched(f"http://127.0.0.1:{near}/")
            process.terminate()


def fetched(url: str) -> bytes:
    """The server may have begun to listen a moment after its process began."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with urlopen(url, timeout=PATIENCE_SECONDS) as answer:
                return answer.read()
        except (URLError, ConnectionError):
            assert time.monotonic() < end


def test_kubectl_copies_files_to_and_from_a_pod(kubectl, tmp_path):
    if not shutil.which("tar"):
        pytest.skip("kubectl cp needs tar")
    run(kubectl, "box", "sleep", "600")
    (tmp_path / "there").mkdir()
    (tmp_path / "a").write_text("x" * 100_000)
    kubectl("cp", str(tmp_path / "a"), f"box:{tmp_path}/there/b")
    assert (tmp_path / "there" / "b").read_text() == "x" * 100_000
    kubectl("cp", f"box:{tmp_path}/there/b", str(tmp_path / "c"))
    assert (tmp_path / "c").read_text() == "x" * 100_000


def test_kubectl_attaches_to_what_a_pod_writes(kubectl, tmp_path):
    script = f"while ! test -e {tmp_path}/end; do echo tick; sleep 0.1; done"
    run(kubectl, "clock", "sh", "-c", script)
    with kubectl.start("attach", "clock") as process:
        assert next(line for line in process.stdout if line == "tick\n")
        (tmp_path / "end").touch()
        process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0


def test_kubectl_run_talks_to_its_pod_and_ends_with_its_code(kubectl):
    words = ("run", "talk", "-i", "--rm", "--quiet", "--image=busybox", "--restart=Never", "--command", "--")
    assert "HELLO" in kubectl(*words, "tr", "a-z", "A-Z", stdin="hello\n")
    assert kubectl("get", "pods", "-o", "name") == ""
    kubectl(*words, "sh", "-c", "read -r line; exit 7", stdin="go\n", code=7)


def test_kubectl_attaches_no_input_to_a_pod_that_has_none(kubectl):
    run(kubectl, "box", "sleep", "600")
    assert "is empty" in kubectl("attach", "-i", "box", code=1)


def test_kubectl_runs_a_command_beside_a_container(kubectl):
    run(kubectl, "box", "sleep", "600")
    assert kubectl("exec", "box", "--", "echo", "hello") == "hello\n"
    assert "exit code 3" in kubectl("exec", "box", "--", "sh", "-c", "exit 3", code=3)


def test_kubectl_shows_what_pods_and_nodes_use(kubectl, api_versions):
    if "metrics.k8s.io/v1beta1" not in api_versions:
        pytest.skip("the cluster measures nothing")
    run(kubectl, "busy", "sh", "-c", "while true; do :; done")
    end, said = time.monotonic() + PATIENCE_SECONDS, "0m"
    while said == "0m":
        assert time.monotonic() < end
        name, said, memory = kubectl("top", "pod", "busy", "--no-headers").split()
    assert name == "busy" and said.endswith("m") and memory.endswith("Mi")
    assert kubectl("top", "pods", "--containers", "--no-headers").split()[:2] == ["busy", "busy"]
    assert "%" in kubectl("top", "nodes", "--no-headers")
    assert "not found" in kubectl("top", "pod", "nobody", code=1)


@pytest.fixture
def api_versions(kubectl) -> str:
    return kubectl("api-versions")
