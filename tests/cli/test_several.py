"""wait, cancel, suspend, resume and modify on one workload or many, on a cluster of this machine."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from .test_commands import Machine, heeds_ctrl_c


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.run("up", "--detach", "--cpus", "8", "--fake-gpus", "1")
    for name, spec in {"other": {}, "parent": {}, "below": {"parent": "parent"}}.items():
        (machine.folder / "queue.json").write_text(json.dumps(queue(name, spec)))
        machine.kubectl("apply", "-f", str(machine.folder / "queue.json"))
    yield machine
    machine.run("down")


def queue(name: str, spec: dict) -> dict:
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def submit(machine: Machine, name: str, script: str, *options: str) -> None:
    machine.run("submit", "--name", name, "--cpus", "100m", *options, "--", "sh", "-c", script)


def until_cancelled(machine: Machine, name: str, *options: str) -> str:
    deadline = time.monotonic() + 60
    while name not in (said := machine.run("ls", "--state", "cancelled", *options)):
        assert time.monotonic() < deadline, said
    return said


def spec(machine: Machine, name: str) -> dict:
    return json.loads(machine.run("status", name, "-o", "json"))["spec"]


def test_wait_exits_with_the_code_of_the_program(machine: Machine) -> None:
    submit(machine, "good", "exit 0")
    submit(machine, "bad", "exit 7")
    assert machine.run("wait", "good").startswith("good finished")
    assert machine.run("wait", "bad", status=7).startswith("bad ")
    machine.run("wait", "good", "bad", status=7)


@pytest.mark.parametrize("job", ["/", "workload/", "job/"])
@pytest.mark.parametrize("words", [("why",), ("logs",), ("cancel", "--forget"), ("top",), ("modify", "x", "--after")])
def test_a_kind_without_a_name_is_wrong_use(machine: Machine, words: tuple[str, ...], job: str) -> None:
    said = machine.run(*words, job, status=2)
    assert f"found {job!r}; the name of a workload is needed" in said and said.count("\n") == 1


def test_wait_takes_a_job_that_was_submitted_just_now_and_many_by_label(machine: Machine) -> None:
    for name in ("s1", "s2", "s3"):
        submit(machine, name, "true")
        machine.kubectl("label", "job", name, "sweep=a")
    said = machine.run("wait", "-l", "sweep=a")
    assert sorted(re.findall(r"^(s\d) finished", said, re.MULTILINE)) == ["s1", "s2", "s3"]


def test_wait_returns_when_a_job_has_started_and_gives_up_after_its_timeout(machine: Machine) -> None:
    submit(machine, "long", "sleep 600")
    assert "long runs on " in machine.run("wait", "long", "--for", "started")
    assert machine.run("wait", "long", "--timeout", "100ms", status=124) == "fairway: not finished in time: long\n"
    machine.run("cancel", "long")


def test_wait_without_a_name_names_the_option_that_it_has(machine: Machine) -> None:
    assert machine.run("wait", status=2).endswith("name one or several, or choose them with -l SELECTOR\n")


def test_wait_for_a_name_that_does_not_exist_says_so_and_waits_for_the_others(machine: Machine) -> None:
    submit(machine, "there", "true")
    said = machine.run("wait", "nope", "there", status=1)
    assert "no workload 'nope'" in said and "there finished" in said


def test_several_are_suspended_resumed_and_cancelled_with_a_line_each(machine: Machine) -> None:
    for name in ("a1", "a2", "a3"):
        submit(machine, name, "sleep 600")
        machine.until(name, "Running")
    said = machine.run("suspend", "a1", "nope", "a2", status=1)
    assert re.findall(r"^(?:fairway: )?(\S+)", said, re.MULTILINE) == ["a1", "a2", "no", "2"]
    machine.until("a1", "Suspended")
    said = machine.run("resume", "a1", "a2").splitlines()
    for line in said:
        assert re.fullmatch(r"a\d resumed: it (queues again|starts now on \S+|waits: .*)", line)
    machine.kubectl("label", "job", "a1", "a3", "kind=x")
    assert machine.run("cancel", "-l", "kind=x").splitlines() == ["a1 cancelled", "a3 cancelled"]
    assert json.loads(machine.run("cancel", "a2", "-o", "json"))["done"] == "cancelled"


def test_a_job_that_starts_again_after_a_failure_says_when(machine: Machine) -> None:
    submit(machine, "again", "exit 3", "--retries", "3")
    deadline = time.monotonic() + 60
    while "retrying" not in (said := machine.run("why", "again")):
        assert time.monotonic() < deadline, said
    assert re.search(r"^  failed: exit code 3; starts again at \d\d:\d\d:\d\d(, in \d+s)?$", said, re.MULTILINE)
    machine.run("cancel", "again")


def test_what_was_cancelled_is_listed_with_what_is_over(machine: Machine) -> None:
    about = {"apiVersion": "fairway.dev/v1alpha1", "kind": "Workload", "namespace": "default", "name": "job-bare"}
    bare = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "bare", "namespace": "default"},
            "involvedObject": about, "reason": "Cancelled"}  # fmt: skip
    (machine.folder / "bare.json").write_text(json.dumps(bare))
    machine.kubectl("create", "-f", str(machine.folder / "bare.json"))
    submit(machine, "dropped", "sleep 600", "--queue", "other")
    machine.until("dropped", "Running")
    machine.run("cancel", "dropped")
    said = until_cancelled(machine, "dropped", "-q", "other")
    assert re.search(r"^dropped +\S+ +other +cancelled .* cancelled while it ran$", said, re.MULTILINE)
    assert "dropped" in machine.run("ls", "--all", "-o", "name").split()
    assert "dropped" not in machine.run("ls", "-o", "name").split()
    assert "job-bare was cancelled, at " in machine.run("why", "job-bare", status=1)
    for words, by in ((["why", "dropped"], ""), (["wait", "dropped"], ""), (["cancel", "dropped"], ""),
                      (["submit", "--after", "dropped", "--", "true"], "--after: ")):  # fmt: skip
        told = machine.run(*words, status=1)
        assert told.startswith(f"fairway: {by}dropped was cancelled while it ran, at ") and told.count("\n") == 1


def test_a_queue_or_state_alone_chooses_nothing_until_all_is_said(machine: Machine) -> None:
    submit(machine, "q1", "sleep 600", "--queue", "other")
    assert "add --all" in machine.run("cancel", "-q", "other", status=2)
    assert "not both" in machine.run("cancel", "q1", "--all", status=2)
    assert "no job is named" in machine.run("cancel", status=2)
    machine.until("q1", "Running")
    assert machine.run("cancel", "-q", "other", "--state", "running", "--all") == "q1 cancelled\n"
    deadline = time.monotonic() + 30
    while "q1" in machine.run("ls", "-o", "name"):
        assert time.monotonic() < deadline
    assert "no workload is in that choice" in machine.run("cancel", "-q", "other", "--all")


@pytest.mark.parametrize("command", ["cancel", "suspend", "pause", "resume"])
def test_a_queue_that_does_not_exist_chooses_nothing_and_is_named(machine: Machine, command: str) -> None:
    told = machine.run(command, "--all", "-q", "othre", status=1)
    there = "below, default, other, parent"
    assert told == f"fairway: --queue: there is no queue 'othre'; did you mean other? there are: {there}\n"


def test_a_waiting_job_moves_to_another_queue_and_a_running_one_is_told_how(machine: Machine) -> None:
    submit(machine, "holds", "sleep 600", "--gpus", "1")
    machine.until("holds", "Running")
    submit(machine, "moves", "sleep 600", "--gpus", "1")
    machine.until("moves", "Pending")
    assert machine.run("modify", "moves", "--queue", "other") == "moves modified: queue other\n"
    deadline = time.monotonic() + 30
    while spec(machine, "moves")["queue"] != "other":
        assert time.monotonic() < deadline
    said = machine.run("modify", "holds", "--queue", "other", status=1)
    assert "keeps its queue" in said and "`fairway suspend holds`" in said
    machine.run("cancel", "holds", "moves")


def test_a_job_moves_to_no_queue_in_which_it_could_never_start(machine: Machine) -> None:
    small = {"quotas": [{"limit": {"nvidia.com/gpu": "500m"}}], "timeLimit": {"max": "1h"}, "pools": ["default"]}
    (machine.folder / "queue.json").write_text(json.dumps(queue("small", small)))
    machine.kubectl("apply", "-f", str(machine.folder / "queue.json"))
    submit(machine, "large", "true", "--gpus", "9", "--time-limit", "2h", "--wait-anyway")
    machine.until("large", "Pending")
    move = "modify", "large", "--queue", "small"
    assert machine.run(*move, status=1) == "fairway: --time-limit: queue small allows at most 1h\n"
    said = machine.run(*move, "--time-limit", "30m", status=1)
    assert said.startswith("fairway: --gpus: needs 9 GPUs; queue small may hold at most 0.5 GPU; "), said
    assert spec(machine, "large")["queue"] == "default"
    machine.run(*move, "--time-limit", "30m", "--wait-anyway")
    machine.run("cancel", "large")
    (machine.folder / "queue.json").write_text(json.dumps(queue("small", {"pools": ["none"]})))
    machine.kubectl("apply", "-f", str(machine.folder / "queue.json"))
    said = machine.run("submit", "--queue", "small", "--", "true", status=1)
    assert said.startswith("fairway: --queue: queue small has pools none, and there is none of them; there are: def")
    machine.kubectl("delete", "fq", "small")


def test_priority_limit_and_order_are_changed_by_annotations_and_none_takes_them_back(machine: Machine) -> None:
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
    (machine.folder / "high.json").write_text(json.dumps(high))
    machine.kubectl("apply", "-f", str(machine.folder / "high.json"))
    submit(machine, "tuned", "sleep 600")
    machine.until("tuned", "Running")
    machine.run("modify", "tuned", "--priority", "high", "--time-limit", "3h", "--deadline", "2030-01-01T00:00:00Z")
    deadline = time.monotonic() + 30
    while (said := spec(machine, "tuned")).get("priorityClassName") != "high" or said.get("timeLimit") != "3h":
        assert time.monotonic() < deadline, said
    machine.run("modify", "tuned", "--priority", "none", "--time-limit", "none")
    while (said := spec(machine, "tuned")).get("priorityClassName") or said.get("timeLimit"):
        assert time.monotonic() < deadline, said
    assert said["deadline"] == "2030-01-01T00:00:00Z"
    submit(machine, "tuned-2", "sleep 600", "--priority", "high")
    machine.until("tuned-2", "Running")
    said = machine.run("modify", "tuned-2", "--priority", "none", status=1)
    assert "the pods of tuned-2 say high themselves; name another class" in said
    machine.run("cancel", "tuned-2")
    machine.run("modify", "tuned", "--deadline", "2h")
    while spec(machine, "tuned")["deadline"] == "2030-01-01T00:00:00Z":
        assert time.monotonic() < deadline
    machine.run("cancel", "tuned")


def test_a_deadline_of_the_job_that_is_shorter_than_its_new_time_limit_is_said_to_count(machine: Machine) -> None:
    submit(machine, "short", "sleep 600")
    machine.kubectl("patch", "job", "short", "--type=merge", "-p", '{"spec": {"activeDeadlineSeconds": 100}}')
    said = machine.run("modify", "short", "--time-limit", "3m")
    assert said == "short modified: time-limit 3m; its activeDeadlineSeconds counts, 1m40s\n"
    assert machine.run("modify", "short", "--time-limit", "1m") == "short modified: time-limit 1m\n"
    machine.run("cancel", "short")


def test_a_budget_is_named_by_a_limit_that_is_too_long_and_by_a_resume_while_it_stops(machine: Machine) -> None:
    def allow(hours: str) -> None:
        budget = queue("other", {"budget": {"gpuHours": hours, "period": "30d"}} if hours else {})
        (machine.folder / "queue.json").write_text(json.dumps(budget))
        machine.kubectl("apply", "-f", str(machine.folder / "queue.json"))

    allow("2")
    stops = "trap 'sleep 1.5; exit' TERM; sleep 600 & wait"
    submit(machine, "costs", stops, "--queue", "other", "--gpus", "1", "--time-limit", "1h", "--grace", "20s")
    machine.until("costs", "Running")
    said = machine.run("modify", "costs", "--time-limit", "5h", status=1)
    assert re.fullmatch(r"fairway: --time-limit: found '5h'; at most (2h|1h59m\d+s) is allowed while it runs: queue "
                        r"other has \S+ of 2 GPU hours of its budget left\n", said), said
    machine.run("suspend", "costs")
    allow("0.5")
    said = machine.run("resume", "costs")
    assert said.startswith("costs resumed: it waits: BudgetSpent: it could overrun the budget of queue other"), said
    machine.run("cancel", "costs")
    allow("")


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        ("--queue nope", 1, "--queue: there is no 'nope'; there are: below, default, other"),
        ("--queue parent", 1, "--queue: parent holds no workloads, only the queues below it: below"),
        ("--priority nope", 1, "--priority: there is no 'nope'; there are: "),
        ("--time-limit banana", 2, "--time-limit: found 'banana'; a duration such as 90s, 10m, 1h30m or 7d is allowed"),
        ("--after nope", 1, "--after: no workload 'nope'"),
        ("--after stays", 1, "--after stays: stays would come after itself and never start; name another job"),
        ("--deadline soon", 2, "--deadline: found 'soon'; 2h, 18:00, tomorrow 8:00, "),
        ("--gpus 2", 2, "--gpus: stays as it was submitted; `fairway cancel JOB` and submit it anew"),
        ("", 2, "nothing to change is given; use one of --queue, "),
    ],
)
def test_what_cannot_be_modified_is_told_by_its_option(machine: Machine, words: str, status: int, told: str) -> None:
    if "stays" not in machine.run("ls", "-o", "name").split():
        submit(machine, "stays", "sleep 600")
    said = machine.run("modify", "stays", *words.split(), status=status)
    assert said.startswith(f"fairway: {told}") and said.count("\n") == 1


def test_no_job_is_modified_to_come_after_one_that_waits_for_it_or_has_failed(machine: Machine) -> None:
    for name, options in {"root": (), "mid": ("--after", "root"), "leaf": ("--after", "mid")}.items():
        submit(machine, name, "sleep 600", *options)
    deadline = time.monotonic() + 30
    while not (spec(machine, "mid").get("after") and spec(machine, "leaf").get("after")):
        assert time.monotonic() < deadline
    said = machine.run("modify", "root", "--after", "leaf", status=1)
    assert said == "fairway: --after leaf: root would come after itself and never start; name another job\n"
    submit(machine, "fails", "exit 3")
    machine.run("wait", "fails", status=3)
    said = machine.run("modify", "leaf", "--after", "fails", status=1)
    assert said == "fairway: --after: fails has failed, so this would fail at once\n"
    machine.run("cancel", "root")
    until_cancelled(machine, "root")
    said = machine.run("modify", "leaf", "--after", "root", status=1)
    assert said.startswith("fairway: --after: root was cancelled")
    machine.run("cancel", "mid", "leaf")


def test_what_has_started_comes_after_another_only_if_it_starts_again_and_modify_says_so(machine: Machine) -> None:
    submit(machine, "first", "sleep 600")
    submit(machine, "started", "sleep 600")
    machine.until("started", "Running")
    said = machine.run("modify", "started", "--after", "first")
    assert said == "started modified: after first; it has started: --after counts only if it has to start again\n"
    machine.run("suspend", "started")
    machine.until("started", "Suspended")
    machine.run("resume", "started")
    while (said := machine.workload("started")).get("reason") != "DependencyPending":
        assert said["phase"] in ("Suspended", "Pending")
    machine.run("cancel", "first", "started")


def test_the_log_of_the_cluster_tells_the_life_of_a_job_and_none_of_its_environment(machine: Machine) -> None:
    machine.environment["SECRET_WORD"] = "xyzzy"
    submit(machine, "told", "exit 3", "--env", "SECRET_WORD")
    machine.run("wait", "told", status=3)
    log = machine.folder / "fairway" / "up.log"
    deadline = time.monotonic() + 30
    while "failed workload=default/job-told" not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
    told = re.findall(r"^\d{4}-\S+Z (\w+) (\w+) workload=default/job-told (.*)$", log.read_text(), re.MULTILINE)
    events = [event for _, event, _ in told]
    assert [one for one in events if one != "started"] == ["submitted", "admitted", "failed"]  # it may end unseen
    assert told[1][2].startswith("queue=default pool=default nodes=")
    assert told[-1][2].startswith('reason=ExitCode3 message="failed: exit code 3" ')
    assert "xyzzy" not in log.read_text()


def test_on_a_terminal_many_are_cancelled_only_when_their_number_is_agreed_to(machine: Machine) -> None:
    names = [f"many{number}" for number in range(3)]
    for name in names:
        submit(machine, name, "sleep 600")
        machine.kubectl("label", "job", name, "many=yes")
        machine.until(name, "Running")
    assert "cancel 3 workloads (3 running)? [y/N]: " in on_terminal(machine, "n\n", "cancel", "-l", "many=yes")
    assert {machine.workload(name)["phase"] for name in names} == {"Running"}
    said = on_terminal(machine, "y\n", "cancel", "-l", "many=yes")
    assert "many0 cancelled" in said and said.rstrip().endswith("3 cancelled")


def test_ctrl_c_at_the_question_ends_the_command_at_once_and_nothing_is_cancelled(machine: Machine) -> None:
    submit(machine, "asked", "sleep 600")
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-m", "fairway", "cancel", "--all"], env=machine.environment, cwd=machine.folder,
        stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=heeds_ctrl_c,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    while b"[y/N]: " not in said:
        said += os.read(ours, 4096)
    program.send_signal(signal.SIGINT)
    assert program.wait(60) == -signal.SIGINT
    os.close(ours)
    assert "asked" in machine.run("ls", "-o", "name").split()
    machine.run("cancel", "asked")


def on_terminal(machine: Machine, typed: str, *command: str) -> str:
    """What a command prints on a terminal on which this is typed."""
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-m", "fairway", *command], env=machine.environment, cwd=machine.folder,
        stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, typed.encode())
    said = b""
    with suppress(OSError):  # the other side is closed
        while part := os.read(ours, 4096):
            said += part
    program.wait(60)
    os.close(ours)
    return said.decode()
