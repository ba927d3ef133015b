"""`fairway logs` on a real cluster: nothing that a program wrote is lost, and nothing is silently cut."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from .test_commands import Machine

COUNTING = "i=0; while :; do echo life $LIFE$$ line $i; i=$((i+1)); sleep 0.05; done"
RETRYING = {
    "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "retry"}, "spec": {
        "backoffLimit": 1, "template": {"spec": {"restartPolicy": "Never", "containers": [{
            "name": "main", "image": "none", "command": ["sh", "-c", "echo from $HOSTNAME; exit 4"]}]}}},
}  # fmt: skip


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.run("up", "--detach", "--cpus", "4", "--fake-gpus", "2")
    yield machine
    machine.run("down")


def start(machine: Machine, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "fairway.cli.main", *words], env=machine.environment, cwd=machine.folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def both(machine: Machine, *words: str, status: int = 0) -> tuple[str, str]:
    """Standard output and standard error of a command."""
    found = start(machine, *words)
    out, error = found.communicate(timeout=60)
    assert found.returncode == status, f"{words}: {found.returncode}: {out}{error}"
    return out, error


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline


def submit(machine: Machine, name: str, *words: str) -> None:
    machine.run("submit", "--name", name, *words)


def is_whole(text: str) -> bool:
    """Each life counts its lines from 0, without a gap and in one piece."""
    lives: dict[str, list[int]] = {}
    for line in text.splitlines():
        _, life, _, number = line.split()
        lives.setdefault(life, []).append(int(number))
    return bool(lives) and all(numbers == list(range(len(numbers))) for numbers in lives.values())


def test_the_output_of_every_attempt_outlives_evictions_and_the_job(machine: Machine) -> None:
    submit(machine, "twice", "--", "sh", "-c", COUNTING)
    machine.until("twice", "Running")
    until(lambda: "line 5" in both(machine, "logs", "twice")[0])
    machine.run("suspend", "twice")
    machine.until("twice", "Suspended")
    assert is_whole(both(machine, "logs", "twice")[0])
    machine.run("resume", "twice")
    machine.until("twice", "Running")
    until(lambda: "line 5" in both(machine, "logs", "twice", "--attempt", "2")[0])
    out, error = both(machine, "logs", "twice")
    assert is_whole(out) and len({line.split()[1] for line in out.splitlines()}) == 2
    first, second = error.splitlines()
    assert first.startswith("== attempt 1 of 2, started ") and first.endswith(", evicted: Suspended")
    assert second.startswith("== attempt 2 of 2, started ") and second.count(",") == 1
    one, two = (both(machine, "logs", "twice", "--attempt", number)[0] for number in "12")
    assert one in out and set(one.splitlines()) & set(two.splitlines()) == set()
    assert both(machine, "logs", "twice", "--previous")[0] == one
    assert both(machine, "logs", "twice", "--tail", "1", "--attempt", "1")[0] == one.splitlines(keepends=True)[-1]
    machine.run("pause", "twice")
    machine.until("twice", "Paused")
    machine.run("resume", "twice")
    machine.until("twice", "Running")
    machine.run("cancel", "twice")
    until(lambda: "twice" not in machine.run("ls"))
    until(lambda: both(machine, "logs", "twice")[1].endswith(", deleted\n"))  # and not evicted by the pause
    out, error = both(machine, "logs", "twice")
    assert one in out and is_whole(out) and error.startswith("== twice is deleted; this is kept of it\n")
    error = both(machine, "logs", "twice", "--attempt", "3", status=1)[1]
    assert error.endswith("; it has attempts 1 to 2, rank 0 and container main\n")


def test_what_was_written_before_a_time_limit_or_a_drain_is_kept(machine: Machine) -> None:
    for name in ("timed", "drained"):
        submit(machine, name, "--cpus", "100m", "--", "sh", "-c", "echo before; sleep 600")
        machine.until(name, "Running")
        until(lambda job=name: both(machine, "logs", job)[0] == "before\n")
    machine.run("modify", "timed", "--time-limit", "1s")
    machine.until("timed", "Failed")
    assert both(machine, "logs", "timed")[0] == "before\n"
    node = json.loads(machine.run("nodes", "-o", "json"))["items"][0]["metadata"]["name"]
    machine.kubectl("drain", node, "--force", "--pod-selector=batch.kubernetes.io/job-name=drained")
    machine.until("drained", "Pending")
    assert both(machine, "logs", "drained")[0] == "before\n"
    machine.kubectl("uncordon", node)
    until(lambda: both(machine, "logs", "drained")[0] == "before\nbefore\n")
    machine.run("cancel", "drained")


def test_a_follower_follows_into_the_next_attempt_and_is_told_of_the_eviction(machine: Machine) -> None:
    script = f"test -e {machine.folder}/again && echo second && exit 5; echo first; sleep 300"
    one = start(machine, "submit", "--name", "on", "--follow", "--", "sh", "-c", script)
    assert one.stdout is not None and one.stdout.readline() == "first\n"
    (machine.folder / "again").touch()
    machine.run("suspend", "on")
    machine.until("on", "Suspended")
    machine.run("resume", "on")
    out, error = one.communicate(timeout=60)
    assert (out, one.returncode) == ("second\n", 5)
    evicted = "== on was evicted (Suspended) and waits in queue default; its log goes on here\n"
    assert evicted in error and error.index(evicted) < error.index("== attempt 2 of 2, started")


def test_several_ranks_that_are_followed_have_their_rank_before_each_whole_line(machine: Machine) -> None:
    script = 'printf "begin "; sleep 0.3; echo $RANK; printf end'
    out, _ = both(machine, "submit", "--name", "pair", "--workers", "2", "--follow", "--", "sh", "-c", script)
    assert sorted(out.splitlines()) == ["[0] begin 0", "[0] end", "[1] begin 1", "[1] end"]
    assert both(machine, "logs", "-f", "pair", "--rank", "1")[0] == "begin 1\nend"
    out, error = both(machine, "logs", "pair")
    assert out == "begin 0\nend\nbegin 1\nend"
    assert [line.split(", ")[1] for line in error.splitlines()] == ["rank 0", "rank 1"]


@pytest.mark.kubectl
def test_retries_of_a_job_are_runs_of_one_attempt(machine: Machine) -> None:
    (machine.folder / "retry.json").write_text(json.dumps(RETRYING))
    machine.kubectl("apply", "-f", str(machine.folder / "retry.json"))
    machine.until("retry", "Failed")
    out, error = both(machine, "logs", "retry")
    assert out.count("from retry-") == 2 and len(set(out.splitlines())) == 2
    first, second = error.splitlines()
    assert first.endswith("exit code 4") and "== attempt 1 of 1, retry 1, " in second
    place = "/apis/fairway.dev/v1alpha1/namespaces/default/workloads/job-retry"
    assert machine.kubectl("get", "--raw", f"{place}/log") == out
    assert machine.kubectl("get", "--raw", f"{place}/log?retry=1") == out.splitlines(keepends=True)[1]


def test_status_lists_where_each_run_ran_how_it_ended_and_how_much_it_wrote(machine: Machine) -> None:
    first = "echo 0; echo $$ >first; exit 0"  # the other fails when this is over: it would be killed otherwise
    other = "echo 1; until [ -s first ] && ! kill -0 $(cat first) 2>&-; do sleep 0.1; done; exit 3"
    submit(machine, "ends", "--workers", "2", "--", "sh", "-c", f"if [ $RANK = 0 ]; then {first}; else {other}; fi")
    machine.until("ends", "Failed")
    runs = json.loads(machine.run("status", "ends", "-o", "json"))["runs"]
    assert [(it["attempt"], it["retry"], it["rank"], it["exitCode"], it["bytes"]) for it in runs] == [
        (1, 0, 0, 0, 42), (1, 0, 1, 3, 42),
    ]  # fmt: skip
    table = machine.run("status", "ends").split("ATTEMPT")[1].splitlines()
    node, started, ended = runs[0]["node"], *(runs[0][it] for it in ("started", "finished"))
    assert table[1].split()[:3] == ["1", "0", node] and table[1].split()[-2:] == ["0", "42B"] and started and ended
    assert table[2].split()[-2:] == ["3", "42B"]


def test_a_gap_is_told_on_standard_error(machine: Machine) -> None:
    script = "yes 0123456789012345678901234567890123456789 | head -n 1000000; echo end"
    submit(machine, "much", "--", "sh", "-c", script)
    machine.until("much", "Succeeded")
    out, error = both(machine, "logs", "much")
    assert out.endswith("\nend\n") and set(out.splitlines()) == {"0123456789" * 4, "end"}
    missing = 1_000_001 - out.count("\n")
    assert error == f"== {missing:,} lines ({missing * 41 / (1 << 20):,.1f} MiB) are missing here: at most 40 MiB of " \
        "one run are kept, the time of each line included\n"


def test_what_is_written_while_fairway_is_killed_again_and_again_is_neither_lost_nor_doubled(machine: Machine) -> None:
    submit(machine, "steady", "--", "sh", "-c", COUNTING)
    machine.until("steady", "Running")
    for number in range(3):
        if number == 1:
            machine.run("suspend", "steady")  # killed while the pod's folder is put away
        os.kill(int((machine.folder / "fairway" / "ready").read_text()), signal.SIGKILL)
        machine.run("up", "--detach", "--cpus", "4", "--fake-gpus", "2")
    machine.until("steady", "Suspended")
    machine.run("resume", "steady")
    machine.until("steady", "Running")
    until(lambda: len({line.split()[1] for line in both(machine, "logs", "steady")[0].splitlines()}) == 2)
    assert is_whole(both(machine, "logs", "steady")[0])
    machine.run("cancel", "steady")
