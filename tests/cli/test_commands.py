"""The documented commands and every example, on a real cluster of this machine: real processes, a real kubectl."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from fairway.cli.connect import UNIT
from fairway.cli.elsewhere import WORDS
from fairway.cli.main import COMMANDS
from fairway.kube.config import EXEC_VERSION

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


class Machine:
    """A cluster in a directory, and commands on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "XDG_DATA_HOME": str(folder), "HOME": str(folder)}
        self.environment.pop("KUBECONFIG", None)

    def run(self, *command: str, status: int = 0) -> str:
        found = subprocess.run(
            [sys.executable, "-m", "fairway", *command],
            env=self.environment, capture_output=True, text=True, cwd=self.folder, timeout=400,
        )  # fmt: skip
        assert found.returncode == status, f"{command}: {found.returncode}: {found.stdout}{found.stderr}"
        return found.stdout + found.stderr

    def kubectl(self, *command: str) -> str:
        program = shutil.which("kubectl")
        if program is None:
            pytest.skip("no kubectl on the PATH")
        config = self.folder / "fairway" / "kubeconfig"
        environment = {**self.environment, "KUBECONFIG": str(config)}
        found = subprocess.run([program, *command], env=environment, capture_output=True, text=True, timeout=400)
        assert found.returncode == 0, f"{command}: {found.stdout}{found.stderr}"
        return found.stdout

    def workload(self, job: str) -> dict:
        return json.loads(self.run("status", job, "-o", "json")).get("status") or {}

    def until(self, job: str, phase: str) -> dict:
        deadline = time.monotonic() + 60
        while (status := self.workload(job)).get("phase") != phase:
            assert time.monotonic() < deadline, f"{job} is {status.get('phase')}, not {phase}: {status}"
        return status


def heeds_ctrl_c() -> None:
    """For `preexec_fn`: a shell starts what runs in its background with SIGINT ignored, these tests included."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    (machine.folder / "settings.yaml").write_text(f"metricsPort: {free_port()}\n")
    said = machine.run("up", "--detach", "--cpus", "2", "--fake-gpus", "2", "--config", "settings.yaml")
    assert re.fullmatch(r"\S+kubeconfig\n", said)
    assert "token" not in (machine.folder / "fairway" / "up.log").read_text()
    yield machine
    machine.run("down")


def test_a_program_runs_where_it_was_submitted_and_its_log_is_followed(machine: Machine) -> None:
    said = machine.run("submit", "--name", "hello", "--follow", "--", "sh", "-c", "pwd; echo hello $((1 + 1))")
    assert str(machine.folder) in said and "hello 2" in said
    assert machine.until("hello", "Succeeded")
    assert "hello 2" in machine.run("logs", "hello")


def test_a_program_that_fails_fails_its_follower(machine: Machine) -> None:
    said = machine.run("submit", "--name", "sad", "--follow", "--", "false", status=1)
    assert said.endswith("\nfairway: sad failed: exit code 1\n") and said.count("\n") == 2
    machine.until("sad", "Failed")
    told = r"sad does not wait: failed: exit code 1 after [\d.]+s, \d+s ago\n$"
    assert re.search(told, machine.run("why", "sad"))
    assert re.search(r"\nstate: +failed: exit code 1 after [\d.]+s\n", machine.run("status", "sad"))
    assert machine.workload("sad")["reason"] == "ExitCode1"


@pytest.mark.parametrize(("program", "code"), [
    ("sleep 60", 143), ("trap '' TERM; while :; do sleep 0.1; done", 137), ("trap 'exit 7' TERM; sleep 60 & wait", 7),
    ("trap 'exit 0' TERM; sleep 60 & wait", 1),
])  # fmt: skip
def test_what_its_time_limit_stopped_has_the_exit_code_of_its_program(
    machine: Machine, program: str, code: int
) -> None:
    words = ("--time-limit", "1s", "--grace", "1s", "--cpus", "100m")
    machine.run("submit", "--name", "limited", *words, "--follow", "--", "sh", "-c", program, status=code)
    machine.run("wait", "limited", status=code)
    assert code == 1 or f"exit code {code} (TimeLimit)" in machine.run("status", "limited")
    machine.run("cancel", "--forget", "limited")


def test_a_bare_pod_that_its_deadline_stopped_did_not_fail_by_itself(machine: Machine) -> None:
    meta = {"name": "late", "labels": {"fairway.dev/queue": "default"}}
    spec = {"activeDeadlineSeconds": 1, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "none", "command": ["sleep", "60"]}]}  # fmt: skip
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    (machine.folder / "late.json").write_text(json.dumps(pod))
    machine.kubectl("apply", "-f", str(machine.folder / "late.json"))
    machine.run("wait", "late", status=143)
    said = machine.run("status", "late")
    machine.kubectl("delete", "pod", "late")
    assert re.search(r"\nstate: +stopped: ", said), said


def test_a_program_that_is_not_there_is_told_by_its_name(machine: Machine) -> None:
    said = machine.run("submit", "--wait-anyway", "--follow", "--", "nosuchprog", status=128)
    assert 'exec: "nosuchprog": No such file or directory (exit code 12' in said


def test_the_status_of_a_job_says_what_it_asked_for(machine: Machine) -> None:
    asked = ("--cpus", "500m", "--time-limit", "1h", "--retries", "2")
    machine.run("submit", "--name", "asks", *asked, "--", "sh", "-c", "sleep 600\necho $RANK")
    machine.until("asks", "Running")
    said = machine.run("status", "asks")
    moved = machine.run("modify", "asks", "--time-limit", "30m", "--deadline", "2h")
    changed = machine.run("status", "asks")
    machine.run("cancel", "asks")
    assert re.search(r"\npodsets: +main × 1 \(0.5 CPU\)\n", said) and re.search(r"\nlimit: +1h\n", said)
    assert re.search(r"\nlimit: +30m\n", changed)
    assert re.search(r"\ncommand: +sh -c 'sleep 600 ⏎ echo \$RANK'\nfolder: +/.+\nretries: +2\n", said)
    assert re.search(r"\nsubmitted: +[\d:]+\n(.+\n)+ends by: +\S+", said)
    [deadline] = re.findall(r"\ndeadline: +(.+)\n", changed)
    assert f"deadline {deadline}" in moved


def test_the_status_of_a_job_says_how_it_ends_saves_and_rests_and_how_it_is_labelled_where_that_is_set(
    machine: Machine,
) -> None:
    asked = ("--grace", "2m", "--checkpoint-interval", "15m", "--idle-timeout", "1h", "--label", "sweep=3")
    machine.run("submit", "--name", "asks-all", *asked, "--", "sleep", "600")
    machine.run("submit", "--name", "asks-none", "--", "sleep", "600")
    machine.until("asks-all", "Running")
    machine.until("asks-none", "Running")
    told = [re.findall(r"^(labels|grace|saves|idle): +(.+)$", machine.run("status", name), re.MULTILINE)
            for name in ("asks-all", "asks-none")]
    machine.run("cancel", "asks-all", "asks-none")
    assert told == [[("labels", "sweep=3"), ("grace", "2m"), ("saves", "a checkpoint every 15m"),
                     ("idle", "parked after 1h without use")], []]


def test_the_status_of_an_array_says_what_its_shell_runs(machine: Machine) -> None:
    machine.run("submit", "--name", "row", "--array", "0-3", "--", "sleep", "600")
    machine.run("submit", "--name", "grid", "--sweep", "--", "sleep", "{600,601}")
    row, grid = machine.run("status", "row"), machine.run("status", "grid")
    machine.run("cancel", "row", "grid")
    assert re.search(r"\ncommand: +sleep 600\n", row)
    assert re.search(r"\ncommand: +sleep 600 601 \(the words of all trials\)\n", grid)


def test_a_name_that_is_taken_is_told_by_its_option(machine: Machine) -> None:
    machine.run("submit", "--name", "taken", "--follow", "--", "true")
    said = machine.run("submit", "--name", "taken", "--", "true", status=1)
    assert "--name: there is a Job 'taken' already, running or over; take another name" in said
    assert "`fairway cancel --forget taken` first" in said
    ended = machine.run("cancel", "taken")
    assert ended.startswith("taken had ended before: finished") and "nothing to cancel" in ended
    assert "taken" in machine.run("ls", "--all", "-o", "name")
    assert machine.run("cancel", "--forget", "taken") == "taken forgotten: its log stays for a while\n"


def test_what_is_over_is_neither_suspended_nor_resumed(machine: Machine) -> None:
    machine.run("submit", "--name", "over", "--follow", "--", "true")
    machine.until("over", "Succeeded")
    for command in ("suspend", "resume"):
        said = machine.run(command, "over", status=1)
        assert said == "fairway: over is over: it has succeeded; submit it anew to run it\n"


def test_a_follower_of_a_job_that_fails_before_it_runs_is_told_why(machine: Machine) -> None:
    machine.run("submit", "--name", "first", "--", "sh", "-c", "sleep 3; false")
    said = machine.run("submit", "--name", "second", "--after", "first", "--follow", "--", "true", status=1)
    told = "\nfairway: second not started: it comes after first, which failed\n"
    assert said.endswith(told) and said.count("\n") == 3
    assert "second waits: DependencyPending: it comes after first, which has not ended\n" in said


def test_what_waits_says_why_and_what_is_suspended_goes_on(machine: Machine) -> None:
    machine.run("submit", "--name", "big", "--gpus", "2", "--cpus", "1", "--", "sleep", "60")
    machine.until("big", "Running")
    machine.run("submit", "--name", "late", "--gpus", "1", "--cpus", "1", "--", "sleep", "1")
    machine.until("late", "Pending")
    deadline = time.monotonic() + 30
    while "NoRoom" not in (said := machine.run("why", "late")):
        assert time.monotonic() < deadline, said
    assert "needs 1 GPU" in said
    assert isinstance(json.loads(machine.run("why", "late", "-o", "json"))["wouldHelp"], list)
    assert re.search(r"^position: +1$", machine.run("status", "late"), re.MULTILINE)
    assert re.search(r"late\s+\w+\s+default", machine.run("ls"))
    assert "big" in machine.run("ls", "-A", "--queue", "default")
    machine.run("suspend", "big")
    machine.until("late", "Succeeded")
    machine.until("big", "Suspended")
    assert re.match(r"big resumed: it (starts now on|waits: )", machine.run("resume", "big"))
    machine.until("big", "Running")
    machine.run("cancel", "big")
    machine.run("cancel", "late")


def test_nodes_and_queues_are_shown(machine: Machine) -> None:
    assert re.search(r"Ready\s+2\s+0\s+2", machine.run("nodes"))
    assert "default" in machine.run("queues")
    assert json.loads(machine.run("queues", "-o", "json"))["items"][0]["kind"] == "Queue"
    said = {"status": {"forecasts": [{"horizon": "1h", "starts": 8, "error": 240.0, "coverage": 0.875}]}}
    machine.kubectl("patch", "fq", "default", "--subresource=status", "--type=merge", "-p", json.dumps(said))
    assert re.search(r"AHEAD.*\ndefault\s+1h\s+8\s+4m\s+88%", machine.run("queues"))


def test_what_is_made_would_be_made_and_is_done_is_told_as_data(machine: Machine) -> None:
    job = ("--name", "data", "--gpus", "1", "-o", "json", "--", "sleep", "60")
    answer = json.loads(machine.run("submit", "--dry-run", *job))
    assert (answer["verdict"], answer["placement"]["pool"], answer["wouldEvict"]) == ("Admit", "default", None)
    made = json.loads(machine.run("submit", *job))
    assert made == {"name": "data", "namespace": "default", "queue": "default", "workload": "job-data"}
    waits = json.loads(machine.run("submit", "--dry-run", "--gpus", "9", "-o", "json", "--", "true", status=1))
    assert (waits["verdict"], waits["reason"], waits["forecast"]) == ("Wait", "NeverFits", None)
    for command, done in (("suspend", "suspended"), ("resume", "resumed"), ("cancel", "cancelled")):
        assert json.loads(machine.run(command, "data", "-o", "json")) == {**made, "done": done}


def test_a_follower_of_a_job_that_is_cancelled_is_told_in_one_line(machine: Machine) -> None:
    words = ["submit", "--name", "gone", "--follow", "--", "sh", "-c", "echo here; sleep 60"]
    one = follower(machine, *words)
    assert one.stderr is not None and "gone queued" in one.stderr.readline()
    machine.until("gone", "Running")
    other = follower(machine, "logs", "-f", "gone")
    assert other.stdout is not None and other.stdout.readline() == "here\n"
    machine.run("cancel", "gone")
    assert one.communicate()[1] == "fairway: gone was cancelled\n" and one.returncode == 1
    assert other.communicate()[1] == "== gone was cancelled\n" and other.returncode == 0


def follower(machine: Machine, *words: str) -> subprocess.Popen[str]:
    program = [sys.executable, "-m", "fairway.cli.main", *words]
    return subprocess.Popen(program, env=machine.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            cwd=machine.folder)  # fmt: skip


@pytest.mark.kubectl
def test_a_gang_of_bare_pods_goes_by_the_name_of_its_group(machine: Machine) -> None:
    container = {"name": "main", "image": "none", "command": ["sh", "-c", "echo from $HOSTNAME; sleep 60"]}
    labels = {"fairway.dev/group": "pair", "fairway.dev/group-size": "2"}
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}}
        for name in ("left", "right")
    ]  # fmt: skip
    (machine.folder / "pair.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    machine.kubectl("apply", "-f", str(machine.folder / "pair.json"))
    machine.until("pair", "Running")
    assert "pair" in machine.run("ls") and machine.run("logs", "pair").count("from ") == 2
    machine.run("suspend", "pair")
    machine.until("pair", "Suspended")
    machine.run("resume", "pair")
    machine.until("pair", "Running")
    machine.run("cancel", "pair")
    assert "pair" not in machine.kubectl("get", "pods", "-o", "name", "--field-selector", "metadata.name=left")


@pytest.mark.kubectl
def test_logs_are_those_of_the_rank_and_the_container_that_are_asked_for(machine: Machine) -> None:
    def container(name: str) -> dict:
        return {"name": name, "image": "none", "command": ["sh", "-c", f"echo {name} of $HOSTNAME, rank $RANK"]}

    labels = {"fairway.dev/group": "many", "fairway.dev/group-size": "11"}
    notes = {"kubectl.kubernetes.io/default-container": "main"}
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"w-{rank}", "labels": labels, "annotations": notes},
         "spec": {"restartPolicy": "Never", "containers": [container("side"), container("main")]}}
        for rank in range(11)
    ]  # fmt: skip
    (machine.folder / "many.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    machine.kubectl("apply", "-f", str(machine.folder / "many.json"))
    machine.until("many", "Succeeded")
    assert machine.run("logs", "many", "--rank", "2") == "main of w-2, rank 2\n"
    assert machine.run("logs", "many", "-c", "side").splitlines()[10] == "side of w-10, rank 10"
    assert "many has no run of container other; it has" in machine.run("logs", "many", "-c", "other", status=1)
    machine.kubectl("delete", "pod", *(f"w-{rank}" for rank in range(10)))
    deadline = time.monotonic() + 30
    while len(json.loads(machine.run("status", "many", "-o", "json"))["metadata"]["ownerReferences"]) > 1:
        assert time.monotonic() < deadline
    assert re.search(r"^many ", machine.run("ls", "--all"), re.MULTILINE)
    machine.run("cancel", "many")


def test_a_simulation_is_told_as_data(machine: Machine) -> None:
    said = machine.run("simulate", "--synthetic", "box", "--until", "6h", "-o", "json")
    assert json.loads(said)["policies"]["fairway"]["makespan"] > 0
    said = machine.run("simulate", "--synthetic", "box", "--nodes", "none.csv", status=2)
    assert said == "fairway: none.csv: cannot be read: No such file or directory\n"


def test_an_unknown_job_is_one_line_and_no(machine: Machine) -> None:
    said = machine.run("status", "nobody", status=1)
    assert said.count("\n") == 1 and "no workload 'nobody'" in said


def test_a_name_that_two_workloads_go_by_is_refused_until_one_is_meant(machine: Machine) -> None:
    for name in ("same", "job-same"):
        machine.run("submit", "--name", name, "--gpus", "9", "--wait-anyway", "--", "true")
        machine.until(f"job/{name}", "Pending")
    said = machine.run("cancel", "job-same", status=2)
    which = "say workload/job-same or workload/job-job-same"
    assert said == f"fairway: 'job-same' is the name of several workloads; {which}\n"
    assert "--after: 'job-same' is" in machine.run("submit", "--after", "job-same", "--", "true", status=2)
    assert machine.run("cancel", "job/job-same") == "job-same cancelled\n"
    assert machine.run("cancel", "workload/job-same") == "same cancelled\n"


def test_metrics_are_for_this_machine_alone(machine: Machine) -> None:
    port = int((machine.folder / "settings.yaml").read_text().split()[1])
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/metrics")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(asked)
    asked.add_header("Authorization", f"Bearer {(machine.folder / 'fairway' / 'token').read_text()}")
    with urllib.request.urlopen(asked) as answer:
        assert b"fairway_cycle_seconds_count" in answer.read()
    with socket.socket() as other:
        other.bind(("127.0.0.2", port))  # is taken where somebody listens on every address


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("policy: nope", "policy: 'nope' is not known; there are: fairway, "),
        ("metricsPort: 99999", "metricsPort: found 99999; a port up to 65535 is allowed"),
        ("colour: red", "colour: no such setting; there are "),
        ("[1]", "found 1; settings by name are allowed"),
        ("[", "line 2"),
    ],
)
def test_settings_that_cannot_be_are_one_line(machine: Machine, text: str, said: str) -> None:
    (machine.folder / "wrong.yaml").write_text(text)
    found = machine.run("up", "--data-dir", "other", "--config", "wrong.yaml", status=2)
    assert found.startswith("fairway: --config: wrong.yaml: ") and said in found and found.count("\n") == 1


@pytest.mark.parametrize("how", [(), ("--detach",)], ids=["up", "detach"])
def test_a_cluster_that_cannot_be_started_is_one_line(machine: Machine, how: tuple[str, ...]) -> None:
    def said(*options: str, status: int = 2) -> str:
        found = machine.run("up", *how, *options, status=status)
        assert found.count("fairway: ") == found.count("\n") == 1
        return found

    (machine.folder / "wrong.yaml").write_text("policy: nope")
    (machine.folder / "file").write_text("")
    assert "file cannot be a data directory: " in said("--data-dir", "file", status=1)
    assert "no cluster runs on " in machine.run("down", "--data-dir", "file", status=1)
    assert "/proc/nope cannot be a data directory: " in said("--data-dir", "/proc/nope", status=1)
    assert "wrong.yaml: each object must be" in said("--data-dir", "other", "--nodes", "wrong.yaml", status=1)
    assert "--config: wrong.yaml: " in said("--data-dir", "other", "--config", "wrong.yaml")
    assert "--cpus: found 'x'; " in said("--data-dir", "other", "--cpus", "x")
    assert "--memory: found 'banana'; " in said("--data-dir", "other", "--memory", "banana")
    assert "--cpus: found '0'; more than 0 is allowed" in said("--data-dir", "other", "--cpus", "0")
    assert "--port" in said("--data-dir", "other", "--port", "99999")


def test_another_port_than_the_last_time_is_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert "the port" not in machine.run("up", "--detach", "--cpus", "1")
    machine.run("down")
    (tmp_path / "fairway" / "port").write_text("banana")
    said = machine.run("up", "--detach", "--cpus", "1")
    port = (tmp_path / "fairway" / "port").read_text()
    assert f"the port of the API is {port} now; {tmp_path}/fairway/port had 'banana'\n" in said
    machine.run("down")


@pytest.mark.parametrize("how", [(), ("--detach",)], ids=["up", "detach"])
def test_a_second_up_says_at_once_that_one_runs(machine: Machine, how: tuple[str, ...]) -> None:
    before = os.times()
    said = machine.run("up", *how, status=1)
    after = os.times()
    folder = machine.folder / "fairway"
    assert said == f"fairway: a cluster runs on {folder} already; `fairway down --data-dir {folder}` stops it\n"
    assert after.children_user - before.children_user < 0.6  # 0.2 s alone on the machine; 3.5 s where the server loads


def test_without_a_cluster_a_command_says_how_to_start_one(tmp_path: Path) -> None:
    said = Machine(tmp_path).run("ls", status=1)
    assert said == (
        "fairway: no cluster runs on this machine, and no kubeconfig names another; `fairway up` starts one\n"
    )


@pytest.mark.skipif(UNIT.exists(), reason="a team's cluster is a service of this machine")
def test_a_teams_cluster_that_was_killed_is_told_with_the_file_that_says_why(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    path = machine.environment["FAIRWAY_SOCKET"] = str(tmp_path / "api.sock")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
    said = machine.run("ls", status=1)
    assert said == f"fairway: the team's cluster does not answer on {path}; /var/lib/fairway/up.log says why\n"


def test_a_kubeconfig_of_a_login_is_one_line_where_no_team_has_a_cluster(tmp_path: Path) -> None:
    machine, path = Machine(tmp_path), str(tmp_path / "api.sock")
    plugin = {"command": "/bin/false", "args": ["login", "--credential"], "apiVersion": EXEC_VERSION,
              "env": [{"name": "FAIRWAY_SOCKET", "value": path}]}  # fmt: skip
    config = {
        "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "a", "user": {"exec": plugin}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}], "current-context": "a",
    }  # fmt: skip
    (tmp_path / "config").write_text(json.dumps(config))
    said = machine.run("ls", "--kubeconfig", "config", status=1)
    assert said == (f"fairway: no team's cluster runs on this machine: there is no socket {path}; `sudo fairway up "
                    "--team` starts one\n")  # fmt: skip


def test_down_says_what_it_waits_for_and_how_many_workloads_it_stopped(tmp_path: Path) -> None:
    slow = Machine(tmp_path)
    slow.run("up", "--detach", "--cpus", "1")
    program = "trap : TERM; touch on.$$; while :; do sleep 1; done"
    slow.run("submit", "--cpus", "100m", "--grace", "4s", "--", "sh", "-c", program)
    slow.run("submit", "--cpus", "100m", "--workers", "2", "--", "sh", "-c", program)
    slow.run("submit", "--cpus", "100m", "--follow", "--", "true")
    deadline = time.monotonic() + 60
    while len([*tmp_path.glob("on.*")]) < 3:
        assert time.monotonic() < deadline
    assert slow.run("down") == (
        "2 workloads stopped, to start again with the next `fairway up`\n"
        "programs were told to stop and have their grace period; this waits for them\n"
    )


def test_a_cluster_that_does_not_answer_or_does_not_run_is_named_with_what_to_do(tmp_path: Path) -> None:
    stopped = Machine(tmp_path)
    stopped.run("up", "--detach", "--cpus", "1", "--data-dir", str(tmp_path / "box"))
    config = tmp_path / "box" / "kubeconfig"
    config.write_text(re.sub(r"127.0.0.1:\d+", "127.0.0.1:1", config.read_text()))  # where nobody answers
    said = stopped.run("ls", "--kubeconfig", str(config), status=1)
    assert said.startswith(f"fairway: the cluster on {tmp_path / 'box'} runs, but does not answer: ")
    stopped.run("down", "--data-dir", str(tmp_path / "box"))
    said = stopped.run("ls", "--kubeconfig", str(tmp_path / "box" / "kubeconfig"), status=1)
    where = tmp_path / "box"
    assert said == f"fairway: the cluster on {where} does not run; `fairway up --data-dir {where}` starts it\n"


def test_a_fraction_shares_a_gpu(machine: Machine) -> None:
    program = ("sh", "-c", "echo on $CUDA_VISIBLE_DEVICES")
    said = machine.run("submit", "--name", "part", "--gpus", "0.5", "--follow", "--", *program)
    assert re.search(r"on [01]\b", said)


def test_what_submits_shows_cancels_and_starts_does_not_load_the_engine() -> None:
    names = ("cli.submit", "cli.show", "cli.act", "cli.ls", "cli.watch", "cli.wait", "cli.up", "embedded.datadir")
    modules = ", ".join(f"fairway.{name}" for name in names)
    said = f"import sys, {modules}; sys.exit('fairway.engine' in sys.modules)"
    subprocess.run([sys.executable, "-c", said], check=True)


def test_wrong_use_exits_with_two(machine: Machine) -> None:
    assert "--gpus" in machine.run("submit", "--gpus", "many", "--", "true", status=2)
    assert "--env" in machine.run("submit", "--env", "NOT_SET_HERE", "--", "true", status=2)
    assert machine.run(status=2).startswith("Usage: ")
    assert "--gpu" in machine.run("submit", "--gpu", "2", "--", "true", status=2)
    said = "fairway: -n: there is no namespace 4; for 4 tasks it is --workers 4\n"
    assert machine.run("submit", "-n", "4", "--", "true", status=2) == said


@pytest.mark.parametrize(
    ("word", "told"),
    [("squeue", "here it is `fairway ls`"), ("statsu", "did you mean `fairway status`?"),
     ("frobnicate", "`fairway --help` lists those that there are")],
)  # fmt: skip
def test_a_command_of_another_scheduler_is_answered_with_the_one_here(tmp_path: Path, word: str, told: str) -> None:
    assert Machine(tmp_path).run(word, "x", status=2) == f"fairway: there is no command {word!r}; {told}\n"


def test_each_answer_to_a_foreign_command_is_a_command() -> None:
    assert {line.split()[0] for line in WORDS if line[0] != "-"} <= COMMANDS.keys()
    assert not COMMANDS.keys() & {word for words in WORDS.values() for word in words.split()}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--gpus 1.5", "--gpus: '1.5' is no number of GPUs; use 2, or a fraction of one such as 0.5"),
        ("--gpus nan", "--gpus: 'nan' is no number of GPUs; use 2, or a fraction of one such as 0.5"),
        ("--memory 12Q", "--memory: found '12Q'; a quantity such as 500m, 2, 64Gi or 1e3 is allowed"),
        ("--cpus inf", "--cpus: found 'inf'; a quantity such as 500m, 2, 64Gi or 1e3 is allowed"),
        ("--name UPPER_case", "--name: 'UPPER_case' is no name for a job: small letters, digits and '-', at most 63, "
                              "the first and the last no '-'; 'upper-case' would do"),
        (f"--name {70 * 'a'}", f"--name: '{70 * 'a'}' is no name for a job: "),
        ("--env =x", "--env: '' is no name of a variable; letters, digits, - . and _ are allowed"),
        ("--workers 2 --min-workers 3", "--min-workers: found 3; 1 to 2, its --workers, is allowed"),
        ("--dry-run --cpus -1", "--cpus: found '-1'; a quantity that is not negative is allowed"),
    ],
)
def test_an_option_that_means_nothing_is_wrong_use(machine: Machine, words: str, told: str) -> None:
    said = machine.run("submit", *words.split(), "--", "true", status=2)
    assert said.startswith(f"fairway: {told}") and said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--time-limit banana", "--time-limit: found 'banana'; a duration such as 90s, 10m, 1h30m or 7d is allowed"),
        ("--time-limit 0s", "--time-limit: found '0s'; more than 0 is allowed"),
        ("--queue a/b/c --wait-anyway", '--queue: Invalid value: "a/b/c": a valid label must '),
        ("--checkpoint-interval 0", "--checkpoint-interval: found '0'; more than 0 is allowed"),
    ],
)
def test_an_option_that_the_server_refuses_is_told_by_its_name(machine: Machine, words: str, told: str) -> None:
    said = machine.run("submit", *words.split(), "--", "true", status=1)
    assert said.startswith(f"fairway: {told}") and said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("-n nons", "-n: there is no namespace 'nons'; there are: default, "),
        ("--topology rack", "--topology: no node has a level 'rack': this cluster has no levels (labels of nodes, "
                            "which spec.levels of a NodePool lists)"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_answered_with_what_there_is(machine: Machine, words: str, told: str) -> None:
    said = machine.run("submit", *words.split(), "--", "true", status=1)
    assert said.startswith(f"fairway: {told}") and said.count("\n") == 1


@pytest.mark.parametrize(
    ("container", "told"),
    [
        ("{name: m, imagee: x}", 'unknown field "spec.template.spec.containers[0].imagee"'),
        ("{name: m}", "spec.template.spec.containers[0].image: Required value"),
    ],
)
def test_a_field_of_a_file_is_told_by_the_file_and_its_path(machine: Machine, container: str, told: str) -> None:
    spec = f"{{template: {{spec: {{restartPolicy: Never, containers: [{container}]}}}}}}"
    head = "apiVersion: batch/v1, kind: Job, metadata: {name: bad}"
    (machine.folder / "bad.yaml").write_text(f"{{{head}, spec: {spec}}}")
    said = machine.run("submit", "-f", "bad.yaml", status=1)
    assert said.startswith("fairway: -f bad.yaml: job/bad: ") and told in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--expected-runtime 2h", r"it will miss its deadline, (\w+ \d+ )?[\d:]+: it is expected to run 2h"),
        ("--time-limit 2h", r"it may miss its deadline, (\w+ \d+ )?[\d:]+: it may run 2h"),
        ("--time-limit 30m", ""),
    ],
)
def test_a_deadline_that_cannot_be_met_is_told_at_submit_and_before(machine: Machine, words: str, told: str) -> None:
    order = ["--name", "tardy", "--cpus", "100m", "--deadline", "1h", *words.split(), "--", "true"]
    dry = machine.run("submit", "--dry-run", *order)
    said = machine.run("submit", *order)
    machine.run("wait", "tardy")
    machine.run("cancel", "--forget", "tardy")
    assert said.startswith("tardy queued in default: ") and dry.startswith("would start now on ")
    for answer in (said, dry):
        misses = re.findall(r"it \w+ miss its deadline.*", answer)
        assert [bool(re.fullmatch(told, it)) for it in misses] == [True] * bool(told), answer


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(machine: Machine, shell: str) -> None:
    assert "_FAIRWAY_COMPLETE" in machine.run("completion", shell)


@pytest.mark.kubectl
def test_three_jobs_run_one_at_a_time_and_an_urgent_one_preempts(machine: Machine) -> None:
    machine.kubectl("label", "node", "--all", "node-type=my-precious")
    machine.kubectl("apply", "-f", str(EXAMPLES / "priorities.yaml"), "-f", str(EXAMPLES / "three-jobs.yaml"))
    machine.kubectl("wait", "--for=jsonpath={.status.phase}=Running", "fwl/job-one", "--timeout=60s")
    machine.kubectl("apply", "-f", str(EXAMPLES / "urgent.yaml"))
    machine.kubectl("wait", "--for=jsonpath={.status.phase}=Running", "fwl/job-urgent", "--timeout=60s")
    phases = machine.kubectl("get", "fwl", "job-two", "job-three", "-o", "jsonpath={.items[*].status.phase}")
    assert phases == "Pending Pending"
    machine.until("urgent", "Succeeded")
    assert machine.workload("one")["evictionHistory"][-1]["reason"] == "Preempted"
    ends = {}
    for job in ("one", "two", "three"):
        machine.until(job, "Succeeded")
        ends[job] = json.loads(machine.kubectl("get", "job", job, "-o", "json"))["status"]["completionTime"]
    assert ends["one"] < ends["two"] < ends["three"]
    assert "one" in machine.kubectl("get", "fwl,fq,jobs,pods")


@pytest.mark.kubectl
def test_a_gang_of_the_examples_runs_whole(machine: Machine) -> None:
    machine.kubectl("apply", "-f", str(EXAMPLES / "gang.yaml"))
    machine.until("gang", "Succeeded")
    said = machine.run("logs", "gang")
    assert sorted(re.findall(r"rank (\d) of 4", said)) == ["0", "1", "2", "3"]


@pytest.mark.kubectl
def test_the_teams_of_the_examples_are_accepted(machine: Machine) -> None:
    machine.kubectl("apply", "-f", str(EXAMPLES / "teams.yaml"))
    assert {"vision", "speech", "idle-time"} <= set(machine.run("queues").split())


@pytest.mark.kubectl
def test_a_pod_of_a_deployment_is_paused_and_resumed(machine: Machine) -> None:
    machine.kubectl("create", "deployment", "web", "--image=none", "--", "sleep", "600")
    machine.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    name = machine.kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}")
    assert "paused: its processes are frozen" in machine.run("pause", name)
    assert machine.kubectl("get", "pod", name, "--no-headers").split()[1] == "0/1"
    assert "resumed" in machine.run("resume", name)
    machine.until(name, "Running")
    assert re.search(r"^paused \d+s ago: Suspended$", machine.run("status", name), re.MULTILINE)
    machine.kubectl("delete", "deployment", "web")


@pytest.mark.kubectl
def test_why_tells_what_keeps_a_container_from_starting(machine: Machine) -> None:
    machine.kubectl("run", "bare", "--image=none", "--", "sleep", "600")
    while "bare does not wait: it is starting" not in (said := machine.run("why", "bare")) or "\n" not in said.strip():
        assert "running" not in said
    assert "CreateContainerConfigError: container 'bare' has no command: give it one (kubectl run: --command)" in said
    machine.run("cancel", "bare")


@pytest.mark.kubectl
def test_the_notebook_of_the_examples_is_paused_and_woken(machine: Machine) -> None:
    machine.kubectl("apply", "-f", str(EXAMPLES / "notebook.yaml"))
    machine.until("notebook", "Running")
    machine.run("pause", "notebook")
    machine.until("notebook", "Paused")
    machine.run("resume", "notebook")
    machine.until("notebook", "Running")
    machine.run("cancel", "notebook")


@pytest.mark.kubectl
def test_the_nightly_job_of_the_examples_waits_its_turn(machine: Machine) -> None:
    machine.kubectl("apply", "-f", str(EXAMPLES / "nightly.yaml"))
    machine.run("submit", "--name", "day", "--cpus", "2", "--", "sleep", "600")
    machine.until("day", "Running")
    machine.kubectl("create", "job", "--from=cronjob/nightly", "tonight")
    machine.kubectl("wait", "--for=jsonpath={.status.reason}=NoRoom", "fwl/job-tonight", "--timeout=60s")
    machine.run("cancel", "day")
    machine.until("tonight", "Succeeded")
    assert machine.run("logs", "tonight") == "the night is over\n"
    machine.kubectl("delete", "cronjob", "nightly")


@pytest.mark.kubectl
def test_a_new_version_of_the_server_of_the_examples_keeps_within_its_quota(machine: Machine) -> None:
    machine.kubectl("apply", "-f", str(EXAMPLES / "serve.yaml"))
    machine.kubectl("rollout", "status", "deployment/serve", "--timeout=60s")
    machine.kubectl("set", "env", "deployment/serve", "VERSION=2")
    found, rolling = list[dict](), ("rollout", "status", "deployment/serve", "--watch=false")
    while "successfully rolled out" not in machine.kubectl(*rolling):
        found = json.loads(machine.kubectl("get", "pods", "-l", "app=serve", "-o", "json"))["items"]
        assert len([it for it in found if it["spec"].get("nodeName")]) <= 2
    machine.kubectl("scale", "deployment/serve", "--replicas=3")
    while len(found) != 3 or sum("nodeName" not in it["spec"] for it in found) != 1:
        found = json.loads(machine.kubectl("get", "pods", "-l", "app=serve", "-o", "json"))["items"]
    (late,) = [it["metadata"]["name"] for it in found if "nodeName" not in it["spec"]]
    machine.kubectl("wait", "--for=jsonpath={.status.reason}=OverLimit", f"fwl/pod-{late}", "--timeout=60s")
    live = [it for it in found if it["spec"].get("nodeName")]
    versions = [{one["name"]: one["value"] for one in it["spec"]["containers"][0]["env"]}["VERSION"] for it in live]
    assert versions == ["2", "2"]
    machine.kubectl("delete", "deployment", "serve")


def test_every_example_is_applied_here() -> None:
    text = Path(__file__).read_text()
    assert [path.name for path in EXAMPLES.glob("*.yaml") if path.name not in text] == []


def test_a_demo_that_is_terminated_leaves_no_cluster(tmp_path: Path) -> None:
    around = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-m", "fairway", "demo", "--fast"], env=around, stdout=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout and demo.stdout.readline().startswith("▸")
        (folder,) = tmp_path.glob("fairway-demo-*")
        assert _of(folder)
        demo.terminate()
    assert (demo.returncode, folder.exists(), _of(folder)) == (128 + signal.SIGTERM, False, [])


def _of(folder: Path) -> list[int]:
    """Processes whose command names it."""
    return [it.pid for it in psutil.process_iter(["cmdline"]) if str(folder) in (it.info["cmdline"] or ())]


def test_the_demo_tells_its_story(tmp_path: Path) -> None:
    said = Machine(tmp_path).run("demo", "--fast")
    assert "resuming from step" in said and said.count("the sum over all ranks is 6") == 4
    assert re.search(r"attempt 1 of 2, .*, evicted: Preempted\n(.*\n)*.*attempt 2 of 2, .*, exit code 0\n", said)


def test_the_cluster_of_a_machine_is_not_taken_apart(machine: Machine) -> None:
    assert "this is the cluster of `fairway up`; `fairway down` stops it" in machine.run("uninstall", "--yes", status=2)


def test_ctrl_c_before_a_command_has_begun_ends_it_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    answers = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # it is ignored where the tests run after `nohup`
    words, around = [sys.executable, "-P", "-m", "fairway", "ls"], {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(words, env=around, capture_output=True, text=True, preexec_fn=answers)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize("words", [("nodes",), ("queues", "-o", "json"), ("ls", "--help"), ("completion", "bash"),
                                   ("install",)])  # fmt: skip
def test_what_cannot_be_written_is_told_in_one_line(machine: Machine, words: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "fairway", *words]
        done = subprocess.run(command, env=machine.environment, stdout=full, stderr=subprocess.PIPE, text=True)
    told = "fairway: what is printed cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, told)


def test_a_closed_output_is_not_missed() -> None:
    done = subprocess.run(["sh", "-c", '"$0" -m fairway completion bash >&-', sys.executable], stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_that_is_ignored_as_after_nohup_stays_ignored(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nos._exit(7)\n")
    words = ["sh", "-c", 'trap "" INT; exec "$0" -P -m fairway ls', sys.executable]
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (7, "")
