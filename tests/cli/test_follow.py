"""`submit --follow` on a real cluster: its exit code is the program's, and Ctrl-C leaves the job alone."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest

from fairway.cli.runs import first_failure
from fairway.kube.runs import LOST, Run

from .test_commands import Machine, heeds_ctrl_c


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.run("up", "--detach", "--cpus", "4", "--fake-gpus", "2")
    yield machine
    machine.run("down")


def follower(machine: Machine, *words: str, command: Sequence[str] = ("submit", "--follow")) -> subprocess.Popen[str]:
    """A command whose output is read as it comes."""
    program = [sys.executable, "-m", "fairway.cli.main", *command, *words]
    return subprocess.Popen(program, env=machine.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, cwd=machine.folder, preexec_fn=heeds_ctrl_c)  # fmt: skip


def test_a_follower_exits_with_the_code_of_the_program(machine: Machine) -> None:
    said = machine.run("submit", "--name", "seven", "--follow", "--", "sh", "-c", "exit 7", status=7)
    assert said.endswith("\nfairway: seven failed: exit code 7\n")


def test_of_several_ranks_the_code_of_the_one_that_failed_first_counts(machine: Machine) -> None:
    script = 'test "$RANK" = 1 && exit 9; sleep 300'
    words = ("submit", "--name", "ranks", "--workers", "2", "--follow", "--", "sh", "-c", script)
    machine.run(*words, status=9)


def test_a_lost_run_does_not_hide_the_code_of_the_program_that_failed() -> None:
    lost = Run(1, 0, 1, "b", "main", is_default=True, finished="2026-11-29T00:18:44Z", exit_code=137, reason=LOST)
    failed = Run(1, 1, 0, "a", "main", is_default=True, finished="2026-11-29T00:18:53Z", exit_code=3)
    assert (first_failure([failed, lost]), first_failure([lost]), first_failure([])) == (3, 137, 1)


def test_ctrl_c_ends_the_follower_and_the_job_goes_on(machine: Machine) -> None:
    one = follower(machine, "--name", "long", "--", "sh", "-c", "echo here; sleep 300")
    assert one.stdout is not None and one.stderr is not None
    assert one.stdout.readline() == "here\n"
    one.send_signal(signal.SIGINT)
    assert one.wait(timeout=20) == 130
    told = one.stderr.read()
    assert "long goes on: `fairway logs -f long` follows it again, `fairway cancel long` ends it\n" in told
    assert "Traceback" not in told and machine.workload("long")["phase"] == "Running"
    machine.run("cancel", "long")


def test_who_follows_is_told_once_why_nothing_runs_yet(machine: Machine) -> None:
    machine.run("submit", "--name", "hog", "--gpus", "2", "--no-preemptible", "--", "sleep", "300")
    one = follower(machine, "--name", "behind", "--gpus", "1", "--", "echo", "ran")
    assert one.stdout is not None and one.stderr is not None
    told = [one.stderr.readline(), one.stderr.readline()]
    assert told[0] == "behind queued in default\n"
    assert re.match(r"\S+ behind waits: \w+: needs 1 GPU", told[1]), told
    machine.run("cancel", "hog")
    assert one.wait(timeout=60) == 0 and one.stdout.read() == "ran\n"
    assert "waits" not in one.stderr.read()


def test_who_follows_is_told_what_keeps_a_pod_from_starting(machine: Machine) -> None:
    env = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "later", "key": "word"}}}]
    main = {"name": "main", "image": "none", "command": ["sh", "-c", 'echo "$KEY"'], "env": env}
    template = {"spec": {"restartPolicy": "Never", "containers": [main]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "keyed"}, "spec": {"template": template}}
    (machine.folder / "keyed.yaml").write_text(json.dumps(job))
    machine.run("submit", "-f", "keyed.yaml")
    one = follower(machine, "keyed", command=("logs", "-f"))
    assert one.stdout is not None and one.stderr is not None
    told = one.stderr.readline()
    assert re.match(r"== pod keyed-\w+ does not start: CreateContainerConfigError: .*later", told), told
    machine.kubectl("create", "secret", "generic", "later", "--from-literal=word=found")
    assert one.wait(timeout=60) == 0 and one.stdout.read() == "found\n"


def test_ctrl_c_of_a_follower_says_that_what_waits_goes_on_waiting(machine: Machine) -> None:
    machine.run("submit", "--name", "hog", "--gpus", "2", "--no-preemptible", "--", "sleep", "300")
    one = follower(machine, "--name", "queued", "--gpus", "1", "--", "true")
    assert one.stderr is not None
    assert "queued in default" in one.stderr.readline() and "waits: " in one.stderr.readline()
    one.send_signal(signal.SIGINT)
    assert one.wait(timeout=20) == 130
    assert "queued goes on waiting: `fairway logs -f queued` follows it again" in one.stderr.read()
    machine.run("cancel", "hog", "queued")


def test_a_follower_ends_once_nobody_reads_on_and_names_a_full_disk(machine: Machine) -> None:
    one = follower(machine, "--name", "much", "--", "sh", "-c", "seq 1 200000; sleep 300")
    assert one.stdout is not None and one.stderr is not None
    assert one.stdout.readline() == "1\n"
    one.stdout.close()
    assert one.wait(timeout=60) == 1 and machine.workload("much")["phase"] == "Running"
    with open("/dev/full", "w") as full:
        logs = [sys.executable, "-m", "fairway.cli.main", "logs", "much"]
        done = subprocess.run(logs, env=machine.environment, stdout=full, stderr=subprocess.PIPE, text=True)
    told = "fairway: what is printed cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, told)
    machine.run("cancel", "much")


def test_who_follows_is_told_of_a_pause_and_nothing_starts_beside_a_program_without_its_gpus(machine: Machine) -> None:
    one = follower(machine, "--name", "count", "--gpus", "1", "--", "sh", "-c", "echo here; sleep 300")
    assert one.stdout is not None and one.stderr is not None
    assert one.stdout.readline() == "here\n"
    assert machine.run("exec", "count", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES").strip() in ("0", "1")
    machine.run("pause", "count")
    assert one.stderr.readline() == "count queued in default\n"
    told = re.sub(r"[\d:]{8}", "TIME", one.stderr.readline())
    assert told == ("== count is paused since TIME and writes nothing; `fairway resume count` lets it go on, and its "
                    "log goes on here\n")
    said = machine.run("exec", "count", "--", "true", status=1)
    assert "is paused, and its GPUs are given to others: resume it first" in said
    machine.run("resume", "count")
    assert one.stderr.readline() == "== count is paused no longer\n"
    machine.until("count", "Running")
    machine.run("exec", "count", "--", "true")
    machine.run("cancel", "count")
    assert one.wait(timeout=20) == 1
