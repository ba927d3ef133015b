"""`fairway exec` and `kubectl exec` on a real cluster: a command in the place of a running rank."""

import fcntl
import json
import os
import pty
import shutil
import signal
import ssl
import struct
import subprocess
import sys
import termios
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import psutil
import pytest

from .test_commands import Machine, heeds_ctrl_c


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.run("up", "--detach", "--cpus", "4", "--fake-gpus", "2")
    machine.run("submit", "--name", "train", "--gpus", "1", "--env", "OWN=x", "--", "sleep", "600")
    machine.run("submit", "--name", "pair", "--workers", "2", "--", "sleep", "600")
    machine.until("train", "Running")
    machine.until("pair", "Running")
    yield machine
    machine.run("down")


def start(machine: Machine, *words: str, **ends: object) -> "subprocess.Popen[bytes]":
    program = [sys.executable, "-m", "fairway.cli.main", "exec", *words]
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    options |= {"env": machine.environment, "cwd": machine.folder, "preexec_fn": heeds_ctrl_c} | ends
    return subprocess.Popen(program, **options)  # type: ignore[call-overload]


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline


def pod(machine: Machine, job: str) -> str:
    return json.loads(machine.run("status", job, "-o", "json"))["pods"][0]["metadata"]["name"]


def test_a_command_runs_in_the_place_of_the_rank_and_its_exit_code_is_true(machine: Machine) -> None:
    one = start(machine, "train", "--", "sh", "-c", "echo $OWN $CUDA_VISIBLE_DEVICES $PWD; echo bad >&2; exit 7")
    out, error = one.communicate(timeout=60)
    assert (out.decode(), error, one.returncode) == (f"x 0 {machine.folder}\n", b"bad\n", 7)
    assert machine.run("exec", "pair", "--rank", "1", "--", "sh", "-c", "echo rank $RANK") == "rank 1\n"
    assert "No such file" in machine.run("exec", "train", "--", "nosuchprogram", status=127)
    said = machine.run("exec", "pair", "--rank", "9", "--", "true", status=1)
    assert "rank 9 of pair does not run; ranks 0, 1 run" in said


def test_standard_input_is_passed_on_to_its_end(machine: Machine) -> None:
    one = start(machine, "train", "-i", "--", "sha256sum")
    content = os.urandom(3_000_000)
    out, _ = one.communicate(content, timeout=60)
    again = subprocess.run(["sha256sum"], input=content, capture_output=True)
    assert (out, one.returncode) == (again.stdout, 0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_what_a_client_leaves_behind_is_ended(machine: Machine, number: signal.Signals, code: int) -> None:
    one = start(machine, "train", "--", "sh", "-c", "sleep 500 & echo $$; wait")
    assert one.stdout is not None
    pid = int(one.stdout.readline())
    children = psutil.Process(pid).children()
    assert len(children) == 1
    one.send_signal(number)
    assert one.wait(timeout=60) == code
    until(lambda: not psutil.pid_exists(pid) and not children[0].is_running())


def test_a_terminal_has_the_size_of_the_users_and_takes_ctrl_c(machine: Machine) -> None:
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    script = "trap 'echo caught; exit 3' INT; tty; while :; do stty size; sleep 0.1; done"
    ends = {"stdin": its, "stdout": its, "stderr": its, "start_new_session": True}
    own = machine.environment | {"COLUMNS": "80", "LINES": "24"}  # exported by another terminal
    one = start(machine, "train", "-it", "--", "sh", "-c", script, env=own, **ends)
    said = b""
    while b"/dev/pts/" not in said or b"33 111" not in said:
        said += os.read(ours, 1000)
    os.write(ours, b"\x03")
    while b"caught" not in said:
        said += os.read(ours, 1000)
    assert one.wait(timeout=60) == 3
    os.close(its)
    os.close(ours)


@pytest.mark.kubectl
def test_kubectl_exec_works(machine: Machine) -> None:
    name = pod(machine, "train")
    assert machine.kubectl("exec", name, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES") == "0\n"
    environment = {**machine.environment, "KUBECONFIG": str(machine.folder / "fairway" / "kubeconfig")}
    program = [str(shutil.which("kubectl")), "exec", "-i", name, "--", "sh", "-c", "cat; exit 5"]
    found = subprocess.run(program, env=environment, input=b"in", capture_output=True, timeout=60)
    assert (found.stdout, found.returncode) == (b"in", 5)


def test_without_the_token_nothing_runs(machine: Machine) -> None:
    port, name = (machine.folder / "fairway" / "port").read_text().strip(), pod(machine, "train")
    place = f"https://127.0.0.1:{port}/api/v1/namespaces/default/pods/{name}/exec"
    url = f"{place}?command=touch&command={machine.folder}/no"
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
               "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
               "Sec-WebSocket-Protocol": "v5.channel.k8s.io"}  # fmt: skip
    trust = ssl._create_unverified_context()
    evil, guessed = {"Origin": "https://evil.example"}, {"Authorization": "Bearer guessed"}
    for more, code in (({}, 401), (guessed, 401), (evil, 403)):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(url, headers=upgrade | more), context=trust, timeout=20)
        assert refused.value.code == code
    assert not (machine.folder / "no").exists()
