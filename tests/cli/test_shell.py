"""`fairway shell`: a terminal in a workload of its own, or in one that runs, on a real cluster."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from .test_commands import Machine, heeds_ctrl_c
from .test_exec import until


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.environment |= {"SHELL": "/bin/sh", "OWN": "mine"}
    machine.run("up", "--detach", "--cpus", "4", "--fake-gpus", "2")
    yield machine
    machine.run("down")


def start(machine: Machine, *words: str, **ends: object) -> "subprocess.Popen[bytes]":
    program = [sys.executable, "-m", "fairway.cli.main", "shell", *words]
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    options |= {"env": machine.environment, "cwd": machine.folder, "preexec_fn": heeds_ctrl_c} | ends
    return subprocess.Popen(program, **options)  # type: ignore[call-overload]


def read_until(file: int, words: bytes) -> bytes:
    said = b""
    while words not in said:
        assert select.select([file], [], [], 60)[0], said
        said += os.read(file, 1000)
    return said


def test_a_session_is_a_workload_of_its_own_and_exits_with_its_shell(machine: Machine) -> None:
    one = start(machine, "--gpus", "1", "--name", "one")
    out, error = one.communicate(b"echo $OWN $CUDA_VISIBLE_DEVICES $PWD\nexit 7\n", timeout=60)
    assert (out.decode(), one.returncode) == (f"mine 0 {machine.folder}\n", 7)
    assert b"one queued in default\none starts now on " in error
    machine.until("one", "Succeeded")
    said = json.loads(machine.run("status", "one", "-o", "json"))
    assert said["spec"]["workloadType"] == "Interactive"


def test_a_session_of_a_program_that_fails_has_failed_with_its_exit_code(machine: Machine) -> None:
    one = start(machine, "--name", "fails", "--", "sh", "-c", "exit 5")
    assert one.wait(timeout=60) == 5
    machine.until("fails", "Failed")
    assert "failed: exit code 5" in machine.run("ls", "--state", "failed")
    assert machine.run("wait", "fails", status=5)


def test_a_session_has_the_terminal_of_its_user(machine: Machine) -> None:
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    script = "trap 'echo caught; exit 3' INT; stty size; echo ready; while :; do stty size; sleep 0.1; done"
    ends = {"stdin": its, "stdout": its, "stderr": its, "start_new_session": True}
    one = start(machine, "--name", "two", "--", "sh", "-c", script, **ends)
    read_until(ours, b"33 111")
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 22, 77, 0, 0))
    one.send_signal(signal.SIGWINCH)  # our terminal is not its controlling one
    read_until(ours, b"22 77")
    os.write(ours, b"\x03")
    read_until(ours, b"caught")
    assert one.wait(timeout=60) == 3
    os.close(its)
    os.close(ours)


def test_a_session_is_told_in_its_terminal_before_it_is_parked(machine: Machine) -> None:
    ours, its = pty.openpty()
    ends = {"stdin": its, "stdout": its, "stderr": its, "start_new_session": True}
    one = start(machine, "--name", "quiet", "--idle-timeout", "10s", **ends)
    machine.until("quiet", "Running")
    name = machine.kubectl("get", "pods", "-l", "job-name=quiet", "-o", "jsonpath={.items[0].metadata.name}")
    note = f"fairway.dev/idle-since={datetime.now(UTC):%FT%TZ}"
    as_runner = ["--as=fairway:controller", "--as-group=system:masters"]
    said = b""
    while b"unless it computes before" not in said:
        machine.kubectl("annotate", "pod", name, note, "--overwrite", *as_runner)  # a look of the runner takes it back
        if select.select([ours], [], [], 1)[0]:
            said += os.read(ours, 1000)
    assert re.search(rb"\r\nfairway: idle since \S+; parked at \S+ unless it computes before\r\n", said), said
    machine.run("cancel", "quiet")
    one.wait(timeout=60)
    os.close(its)
    os.close(ours)


def test_a_session_without_room_says_why_and_ctrl_c_cancels_it(machine: Machine) -> None:
    machine.run("submit", "--name", "full", "--gpus", "2", "--", "sleep", "600")
    machine.until("full", "Running")
    one = start(machine, "--gpus", "1", "--name", "late")
    assert one.stderr is not None
    assert one.stderr.readline() == b"late queued in default\n"
    assert re.match(rb"late waits: \w+: needs 1 GPU", one.stderr.readline())
    one.send_signal(signal.SIGINT)
    _, error = one.communicate(timeout=60)
    assert b"\nlate cancelled: it had not started\n" in error and one.returncode == 130
    assert re.search(r"no workload 'late'|late was cancelled", machine.run("status", "late", status=1))
    machine.run("cancel", "full")


def test_a_running_workload_is_entered_by_its_name(machine: Machine) -> None:
    machine.run("submit", "--name", "train", "--gpus", "1", "--", "sleep", "600")
    machine.until("train", "Running")
    one = start(machine, "train")
    assert one.communicate(b"echo in $CUDA_VISIBLE_DEVICES; exit 4", timeout=60)[0] == b"in 0\n"
    assert one.returncode == 4
    other = start(machine, "train", "--", "sh", "-c", "exit 5")
    assert other.wait(timeout=60) == 5
    assert "--gpus: train runs already" in machine.run("shell", "train", "--gpus", "1", status=2)
    assert "no workload 'trian'" in machine.run("shell", "trian", status=1)
    machine.run("cancel", "train")


def test_a_session_ends_when_its_terminal_is_cut_off(machine: Machine) -> None:
    one = start(machine, "--gpus", "1", "--name", "cut")
    assert one.stdin is not None and one.stdout is not None
    one.stdin.write(b"echo in\n")
    one.stdin.flush()
    assert one.stdout.readline() == b"in\n"
    one.kill()
    one.communicate()
    machine.until("cut", "Succeeded")


def test_a_session_lasts_as_long_as_what_was_started_in_it(machine: Machine) -> None:
    one = start(machine, "--gpus", "1", "--name", "stays")
    left = b"setsid sh -c 'echo $$ >own; exec sleep 500' >/dev/null 2>&1 &"
    out, error = one.communicate(left + b"\nuntil [ -s own ]; do sleep 0.1; done; cat own\n", timeout=60)
    assert one.returncode == 0
    assert b"stays goes on with what still runs in it: `fairway shell stays` enters it again" in error
    again = start(machine, "stays")
    again.communicate(b"kill " + out, timeout=60)
    until(lambda: machine.workload("stays").get("phase") == "Succeeded")
