"""`fairway submit`: what it makes, what it tells, and what it finds wrong, on a real cluster of this machine."""

import asyncio
import base64
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairway.cli import variables
from fairway.cli.job import deadline
from fairway.cli.main import Problem
from fairway.cli.submit import AT_ONCE, Draft, _made, answered
from fairway.clock import Clock
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.config import Config
from fairway.kube.plain import plain_transport

from .test_commands import Machine

QUEUES = """
{apiVersion: fairway.dev/v1alpha1, kind: Queue, metadata: {name: vision}, spec: {timeLimit: {max: 2h}, maxPriority: 9}}
---
{apiVersion: fairway.dev/v1alpha1, kind: Queue, metadata: {name: research}}
---
{apiVersion: fairway.dev/v1alpha1, kind: Queue, metadata: {name: nlp}, spec: {parent: research}}
---
apiVersion: fairway.dev/v1alpha1
kind: Queue
metadata: {name: closed}
spec: {namespaces: {matchLabels: {team: nlp}}}
---
apiVersion: fairway.dev/v1alpha1
kind: Queue
metadata: {name: small}
spec: {quotas: [{pool: "*", guaranteed: {nvidia.com/gpu: "25%", cpu: 1}, limit: {nvidia.com/gpu: 1, cpu: 2}}]}
---
{apiVersion: fairway.dev/v1alpha1, kind: Queue, metadata: {name: under}, spec: {parent: upper}}
---
apiVersion: fairway.dev/v1alpha1
kind: Queue
metadata: {name: upper}
spec: {quotas: [{pool: "*", limit: {nvidia.com/gpu: "50%"}}]}
---
apiVersion: fairway.dev/v1alpha1
kind: Queue
metadata: {name: interns}
spec: {budget: {gpuHours: 3, period: 30d}, timeLimit: {default: 2h}}
---
{apiVersion: fairway.dev/v1alpha1, kind: Queue, metadata: {name: lost}, spec: {parent: nowhere}}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent}, value: 10}
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.environment["KEY"] = "s3cret $(HOME)"
    machine.run("up", "--detach", "--cpus", "4", "--fake-gpus", "2")
    (machine.folder / "queues.yaml").write_text(QUEUES)
    machine.kubectl("apply", "-f", str(machine.folder / "queues.yaml"))
    yield machine
    machine.run("down")


def secrets(machine: Machine) -> list[dict]:
    return json.loads(machine.kubectl("get", "secrets", "-o", "json"))["items"]


def of_job(machine: Machine, name: str) -> list[dict]:
    return [it for it in secrets(machine) if any(o["name"] == name for o in it["metadata"].get("ownerReferences", ()))]


def until(is_so) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline


def test_what_never_parks_for_its_gpus_are_fake_is_told_so(machine: Machine) -> None:
    idle = ("submit", "--name", "idle", "--idle-timeout", "1h")
    fake = "--idle-timeout: the GPUs here are fake (--fake-gpus) and tell of no use, so what has one is never parked"
    for gpus, is_told in (("1", True), ("0", False)):
        assert (fake in machine.run(*idle, "--gpus", gpus, "--", "sleep", "60")) == is_told
        machine.run("cancel", "idle")


# The environment


def test_a_program_gets_the_environment_it_was_submitted_from_and_no_object_shows_it(machine: Machine) -> None:
    words = ("--name", "own", "--gpus", "1", "--follow", "--", "sh", "-c", 'echo "$KEY/$RANK/$CUDA_VISIBLE_DEVICES"')
    outer = {"RANK": "7", "CUDA_VISIBLE_DEVICES": "9", "FAIRWAY_POD_UID": "outer"}
    machine.environment |= outer
    try:
        said = machine.run("submit", *words)
    finally:
        for name in outer:
            del machine.environment[name]
    assert re.search(r"^s3cret \$\(HOME\)//[01]$", said, re.MULTILINE)
    assert "s3cret" not in machine.kubectl("get", "jobs,pods,fwl", "-o", "yaml")


def test_the_secret_of_an_environment_goes_with_its_job(machine: Machine) -> None:
    machine.run("submit", "--name", "short", "--", "sleep", "60")
    [secret] = of_job(machine, "short")
    assert base64.b64decode(secret["data"]["KEY"]) == b"s3cret $(HOME)"
    assert not {"PWD", "SHLVL", "_"} & secret["data"].keys() and not secret["metadata"].get("labels")
    machine.run("cancel", "short")
    until(lambda: secret["metadata"]["uid"] not in [it["metadata"]["uid"] for it in secrets(machine)])


def test_with_env_only_the_named_variables_travel_and_env_adds_to_them(machine: Machine) -> None:
    machine.run("submit", "--name", "few", "--env-only", "PATH,KEY", "--env", "MORE=1", "--", "true")
    assert {it for one in of_job(machine, "few") for it in one["data"]} == {"PATH", "KEY", "MORE"}
    machine.run("submit", "--name", "none", "--env-only", "", "--", "true")
    assert of_job(machine, "none") == []
    assert "--env-only: NOT_SET is not set here" in machine.run("submit", "--env-only", "NOT_SET", "true", status=2)


def test_an_environment_larger_than_a_secret_names_what_is_large(machine: Machine) -> None:
    words = [f"--env=BIG{n}={'x' * 120_000}" for n in range(9)]
    said = machine.run("submit", *words, "--", "true", status=1)
    assert "a Secret holds 1048576: name the variables it needs with --env-only" in said and "BIG" in said


def test_a_refused_job_and_a_dry_run_leave_no_secret(machine: Machine) -> None:
    before = len(secrets(machine))
    machine.run("submit", "--dry-run", "--", "true")
    machine.run("submit", "--name", "UPPER_case", "--", "true", status=2)
    assert len(secrets(machine)) == before


def test_what_a_killed_submitter_left_goes_to_its_job_or_is_deleted_by_the_next(machine: Machine) -> None:
    machine.run("submit", "--name", "made", "--", "sleep", "60")
    [secret] = of_job(machine, "made")
    name = secret["metadata"]["name"]
    left = {"metadata": {"ownerReferences": None, "labels": {variables.UNOWNED: "true"},
                         "annotations": {variables.UNOWNED: "made"}}}  # fmt: skip
    machine.kubectl("patch", "secret", name, "--type=merge", "-p", json.dumps(left))
    marks = {"labels": {variables.UNOWNED: "true"}, "annotations": {variables.UNOWNED: "never-made"}}
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "orphan", **marks}}
    (machine.folder / "orphan.json").write_text(json.dumps(manifest))
    machine.kubectl("create", "-f", str(machine.folder / "orphan.json"))
    program = (
        "import sys; from fairway.cli import variables; variables.STALE_SECONDS = -5.0; "
        "from fairway.cli.main import main; sys.argv = ['fairway', 'submit', '--', 'true']; main()"
    )
    subprocess.run([sys.executable, "-c", program], env=machine.environment, cwd=machine.folder, check=True)
    assert [it["metadata"]["name"] for it in of_job(machine, "made")] == [name]
    assert "orphan" not in [it["metadata"]["name"] for it in secrets(machine)]
    machine.run("cancel", "made")


def test_on_another_cluster_only_what_env_names_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "1")
    order = SimpleNamespace(env=("KEY", "B=2"), env_only=(), file=None)
    assert variables.variables(order, is_process=False) == {"KEY": "1", "B": "2"}


# Mistakes


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--queue visoin -- true", "--queue: there is no queue 'visoin'; did you mean vision? there are: closed, "),
        ("--queue research -- true", "--queue: research holds no workloads, only the queues below it: nlp;"),
        ("--queue closed -- true", "--queue: closed takes no workloads of namespace default;"),
        ("--after nobody -- true", "--after: no workload 'nobody' in namespace 'default'; "),
        ("--gpus 9 -- true", "--gpus: needs 9 GPUs; the largest node, "),
        ("--cpus 64 -- true", "--cpus: needs 64 CPUs; the largest node, "),
        ("--memory 900Gi -- true", "--memory: needs 900Gi memory; the largest node, "),
        ("--workers 5 -- true", "--workers: 5 workers of 1 CPU each; there is room for 4 at once: --workers 4, or "),
        ("--queue small --gpus 2 -- true", "--gpus: needs 2 GPUs; queue small may hold at most 1 GPU; --gpus 1 or "
         "another --queue would do; --wait-anyway queues it all the same"),
        ("--queue under --gpus 2 -- true", "--gpus: needs 2 GPUs; queue upper may hold at most 1 GPU; "),
        ("--queue small --workers 3 -- true", "--workers: 3 workers of 1 CPU each need 3 CPUs; queue small may hold "
         "at most 2 CPUs; --workers 2 or another --queue would do; "),
        ("--queue small --gpus 1 --no-preemptible -- true", "--gpus: needs 1 GPU and cannot be preempted; queue small "
         "is guaranteed 0.5 GPU; --gpus 0.5, --preemptible or another --queue would do; "),
        ("--queue small --gpus 1 --type interactive -- true", "--gpus: needs 1 GPU and cannot be preempted; "),
        ("--queue interns --gpus 2 -- true", "--time-limit: needs up to 4 GPU hours; the whole budget of queue interns "
         "is 3; --time-limit 1h30m or another --queue would do; --wait-anyway queues it all the same"),
        ("--memory 0 -- true", "--memory: nothing runs in 0 bytes; 4Gi would do"),
        ("--memory 16 -- true", "--memory: nothing runs in 16 bytes; did you mean 16Gi?"),
        ("--chdir nowhere -- true", "--chdir: there is no folder nowhere; --wait-anyway queues it all the same"),
        ("--queue vision --time-limit 3h -- true", "--time-limit: queue vision allows at most 2h"),
        ("--queue vision --priority urgent -- true", "--priority: urgent is 10; queue vision allows at most 9"),
        ("--priority urgnt -- true", "--priority: there is no PriorityClass 'urgnt'; did you mean urgent? there are: "),
        ("-- nosuchprog", "there is no program 'nosuchprog' on the PATH;"),
        ("FOO=1 env", "there is no program 'FOO=1' on the PATH; a variable is an option before the program: "),
        ("cd /tmp", "there is no program 'cd' on the PATH; what a shell runs is: -- sh -c 'LINE';"),
        ("-- ./nosuch.sh", "there is no file ./nosuch.sh;"),
        ("-- /tmp", "/tmp is a folder, no program; `--chdir /tmp` runs a program in it;"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_would_be_right(machine: Machine, words: str, told: str) -> None:
    before = machine.kubectl("get", "jobs,secrets", "-o", "name")
    said = machine.run("submit", *words.split(), status=1)
    assert said.startswith(f"fairway: {told}") and said.count("\n") == 1
    assert machine.kubectl("get", "jobs,secrets", "-o", "name") == before


@pytest.mark.parametrize(("step", "count", "state", "them"), [
    ("make", 1, "is submitted, or was about to be", "it"), ("verdict", 1, "is submitted", "it"),
    ("verdict", AT_ONCE, "are submitted", "them"),
])  # fmt: skip
def test_ctrl_c_while_they_are_submitted_leaves_their_names_once(
    capsys: pytest.CaptureFixture[str], step: str, count: int, state: str, them: str
) -> None:
    names = [f"train-{at}" for at in range(count)]

    def draft(name: str) -> Draft:
        return Draft({"kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": name, "namespace": "ml"}})

    async def work() -> None:
        asked = asyncio.Event()

        async def unanswered(*_: object) -> dict:
            asked.set()
            return await asyncio.Future()

        async def made(draft: Draft) -> dict:
            return {"metadata": {"uid": "1"}} if step == "verdict" else await unanswered()

        order = SimpleNamespace(output="table", follow=False, file=None)
        task = asyncio.create_task(_made(Client(unanswered, Clock()), list(map(draft, names)), order, made))
        await asked.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(work())
    those = " ".join(names)
    assert capsys.readouterr() == ("", f"\n{those} {state}: `fairway cancel {those}` ends {them}\n")


def test_a_file_beside_a_program_is_refused(machine: Machine) -> None:
    said = machine.run("submit", "-f", "job.yaml", "--", "true", status=2)
    assert said == "fairway: -f job.yaml does not go with a program (true); submit them one by one\n"


def test_a_folder_that_was_deleted_is_told(machine: Machine) -> None:
    script = f'mkdir gone && cd gone && rmdir ../gone && exec "{sys.executable}" -m fairway submit -- true'
    found = subprocess.run(
        ["sh", "-c", script], cwd=machine.folder, env=machine.environment, capture_output=True, text=True
    )
    assert found.stderr == "fairway: --chdir: the folder you are in is deleted; go to another, or name one\n"
    assert found.returncode == 2


def test_a_queue_whose_parent_is_not_there_takes_no_submission(machine: Machine) -> None:
    until(lambda: "queue lost is not valid" in machine.run("queues"))
    said = machine.run("submit", "--queue", "lost", "--", "true", status=1)
    assert said.startswith("fairway: --queue: queue lost is not valid, nothing in it starts: queue lost names parent ")


def test_wait_anyway_queues_what_could_start_later_and_nothing_else(machine: Machine) -> None:
    said = machine.run("submit", "--name", "later", "--wait-anyway", "--gpus", "9", "--", "true")
    assert said.startswith("later queued in default: waits: NeverFits: needs 9 GPUs; ")
    machine.run("cancel", "later")
    said = machine.run("submit", "--name", "later", "--wait-anyway", "--gpus", "2", "--queue", "small", "--", "true")
    assert said.startswith("later queued in small: waits: OverLimit: needs 2 GPUs; ")
    assert "it is over the limit by itself: " in machine.run("why", "later")
    machine.run("cancel", "later")
    machine.run("submit", "--wait-anyway", "--memory", "0", "--", "true", status=1)
    machine.run("submit", "--wait-anyway", "--queue", "vision", "--time-limit", "3h", "--", "true", status=1)


def test_a_job_after_one_that_failed_is_refused(machine: Machine) -> None:
    machine.run("submit", "--name", "fails", "--", "false")
    machine.until("fails", "Failed")
    said = machine.run("submit", "--after", "fails", "--wait-anyway", "--", "true", status=1)
    assert said == "fairway: --after: fails has failed, so this would fail at once\n"


def test_a_dry_run_of_what_could_never_start_exits_with_one(machine: Machine) -> None:
    assert machine.run("submit", "--dry-run", "--gpus", "9", "--", "true", status=1).startswith("would wait: NeverFits")
    assert machine.run("submit", "--dry-run", "--gpus", "2", "--", "true").startswith("would start now")
    said = machine.run("submit", "--dry-run", "--gpus", "2", "--queue", "small", "--", "true", status=1)
    assert said.startswith("would wait: OverLimit: ") and "\n  --gpus: needs 2 GPUs; queue small may hold at" in said
    said = machine.run("submit", "--dry-run", "--gpus", "2", "--queue", "interns", "--", "true", status=1)
    assert said.startswith("would wait: BudgetSpent: ") and "\n  --time-limit: needs up to 4 GPU hours; " in said


def test_a_bound_that_a_submission_can_keep_to_is_no_mistake(machine: Machine) -> None:
    machine.run("submit", "--name", "fits", "--queue", "small", "--gpus", "1", "--", "true")
    machine.run("submit", "--name", "part", "--queue", "small", "--gpus", "0.5", "--no-preemptible", "--", "true")
    machine.run("submit", "--name", "trials", "--queue", "small", "--array", "0-8", "--", "true")
    machine.run("submit", "--name", "brief", "--queue", "interns", "--gpus", "2", "--time-limit", "90m", "--", "true")
    for name in ("fits", "part", "trials", "brief"):
        machine.until(name, "Succeeded")


def test_more_gpus_than_there_are_cannot_be_owed(machine: Machine) -> None:
    said = machine.run("team", "add", "root", "--queue", "owed", "--gpus", "400", status=1)
    assert said == "fairway: --gpus: found 400; this machine has 2, so at most 2 can be owed\n"
    assert "owed" not in machine.run("queues", "-o", "name")
    said = machine.run("team", "add", "root", "--queue", "owed", "--gpus", "2")
    assert "\nqueues are owed 2.5 GPUs together, and this machine has 2: " in said
    assert machine.run("team", "add", "root", "--queue", "owed", "--gpus", "1").count("\n") == 1
    machine.kubectl("delete", "queue", "owed")


def test_too_many_workers_may_start_with_fewer(machine: Machine) -> None:
    machine.run("submit", "--name", "grow", "--workers", "5", "--min-workers", "2", "--", "true")
    machine.until("grow", "Succeeded")


# What it tells


def test_a_submission_says_where_it_starts_or_why_it_waits(machine: Machine) -> None:
    said = machine.run("submit", "--name", "both", "--gpus", "2", "--queue", "vision", "--", "sleep", "60")
    assert re.fullmatch(r"both queued in vision: starts now on \S+ \(GPUs 0, 1\)\n", said)
    said = machine.run("submit", "--name", "next", "--gpus", "1", "--queue", "vision", "--", "true")
    assert re.match(r"next queued in vision: waits: NoRoom: needs 1 GPU", said)
    for name in ("next", "both"):
        machine.run("cancel", name)


def test_for_scripts_only_the_name_is_printed(machine: Machine) -> None:
    assert machine.run("submit", "--quiet", "--name", "alone", "--", "true") == "alone\n"
    assert machine.run("submit", "-o", "name", "--name", "alone-2", "--", "true") == "alone-2\n"


def test_a_submission_costs_little_and_loads_neither_engine_nor_tables(machine: Machine) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    machine.run("submit", "--cpus", "10m", "--", "true")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.2  # 0.3 s alone on the machine
    program = (
        "import sys, fairway.cli.submit, fairway.cli.manifest, fairway.cli.connect; "
        "slow = {'fairway.engine', 'numpy', 'aiohttp', 'rich', 'jsonschema_rs', 'cryptography'}; "
        "sys.exit(bool(slow & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# Files and options


def test_a_manifest_is_queued_with_the_options_that_are_given(machine: Machine) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "none", "command": ["sleep", "60"]}]}
    jobs = [
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "one"}, "spec": {"template": {"spec": pod}}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "two-"}, "spec": pod},
    ]
    (machine.folder / "both.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": jobs}))
    said = machine.run("submit", "-f", "both.json", "--queue", "vision", "--time-limit", "1h", "--cpus", "20m")
    changes = "  set queue=vision, time-limit=1h, cpus=20m\n"
    assert re.fullmatch(rf"one queued in vision.*\n{changes}two-\w+ queued in vision.*\n{changes}", said)
    made = json.loads(machine.kubectl("get", "job", "one", "-o", "json"))
    assert made["metadata"]["annotations"]["fairway.dev/time-limit"] == "1h"
    assert made["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "20m"}
    assert made["spec"]["backoffLimit"] == 6 and of_job(machine, "one") == []
    machine.run("cancel", "one")
    machine.run("cancel", re.findall(r"two-\w+", said)[0])


@pytest.mark.parametrize(
    ("thing", "words", "told"),
    [
        ("{apiVersion: v1, kind: Service, metadata: {name: a}}", "", "-f: service/a does not queue (Job, Pod, "),
        ("{apiVersion: batch/v1, kind: Job, spec: {}}", "", "-f: job/ has no name; give it one with --name"),
        ("{kind: Job}", "", "-f: file.yaml: each object needs apiVersion and kind"),
        ("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a}]}}", "--workers 2",
         "--workers: a Pod has no such field"),
        ("{apiVersion: batch/v1, kind: Job, metadata: {name: a, namespace: b}}", "-n kube-public",
         "-n: job/a says namespace 'b'"),
        ("{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {template: {spec: {containers: c}}}}", "",
         "-f: job/a: spec.template.spec.containers: found 'c'; array is allowed"),
        ("{apiVersion: batch/v1, kind: Job, metadata: a, spec: 5}", "", "-f: job/: metadata: found 'a'; object is all"),
        ("{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: 5}", "", "-f: job/a: spec: found 5; object is"),
        ("[", "", "file.yaml: line "),
        ("", "", "-f: file.yaml holds no object"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_queued_makes_nothing(machine: Machine, thing: str, words: str, told: str) -> None:
    (machine.folder / "file.yaml").write_text(thing)
    said = machine.run("submit", "-f", "file.yaml", *words.split(), status=2)
    assert said.startswith(f"fairway: {told}") and said.count("\n") == 1


def test_a_kind_that_this_cluster_lacks_is_named(machine: Machine) -> None:
    (machine.folder / "lacks.yaml").write_text("{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: a}}")
    said = machine.run("submit", "-f", "lacks.yaml", status=1)
    kind = "PyTorchJob (kubeflow.org/v1)"
    assert said == f"fairway: -f lacks.yaml: this cluster has no kind {kind}; install what defines it\n"


def test_what_is_not_utf_8_is_refused_but_in_the_environment(machine: Machine) -> None:
    def run(*words: str | bytes, folder: Path = machine.folder) -> tuple[int, bytes]:
        program = [sys.executable, "-m", "fairway", *words]
        around = {**machine.environment, "ODD": os.fsdecode(b"a\xff")}
        done = subprocess.run(program, env=around, cwd=folder, capture_output=True)
        return done.returncode, done.stderr if done.returncode else done.stdout

    told = b"fairway: found 'a\\udcff'; text in UTF-8 is allowed, as in all objects of Kubernetes\n"
    for words in (("submit", "--", "echo", b"a\xff"), ("why", b"a\xff")):
        assert run(*words) == (2, told)
    odd = machine.folder / os.fsdecode(b"d\xff")
    odd.mkdir()
    assert b"--chdir: the name of the folder you are in is not UTF-8" in run("submit", "--", "true", folder=odd)[1]
    assert run("submit", "--follow", "--name", "odd", "--", "sh", "-c", 'printf %s "$ODD"') == (0, b"a\xff")


def test_what_was_made_of_a_file_is_told_also_where_a_later_object_is_refused(machine: Machine) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "none", "command": ["sleep", "60"]}]}
    jobs = [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": {"spec": pod}}}
            for name in ("early", "early", "late")]  # fmt: skip
    (machine.folder / "three.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": jobs}))
    said = machine.run("submit", "-f", "three.json", status=1)
    assert "there is a Job 'early' already" in said
    assert said.startswith("early queued in default") and "late" not in said
    machine.run("cancel", "early")


def test_options_stand_in_the_job_where_kubernetes_has_them(machine: Machine) -> None:
    words = "--retries 3 --requeue-on 75,oom,node-lost --grace 2m --checkpoint-interval 15m --deadline 2h"
    words += " --notify https://chat.example/hook --no-preemptible --expected-runtime 30m"
    machine.run("submit", "--name", "full", *words.split(), "--", "true")
    made = json.loads(machine.kubectl("get", "job", "full", "-o", "json"))
    notes = {name.partition("/")[2]: text for name, text in made["metadata"]["annotations"].items()}
    assert made["spec"]["backoffLimit"] == 3 and made["spec"]["ttlSecondsAfterFinished"] == 7 * 86_400
    assert made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 120
    assert [it["action"] for it in made["spec"]["podFailurePolicy"]["rules"]] == ["Ignore", "Ignore"]
    assert made["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [75, 137]
    assert (notes["checkpoint-interval"], notes["preemptible"], notes["expected-runtime"]) == ("15m", "false", "30m")
    assert notes["notify"] == "https://chat.example/hook" and notes["deadline"].endswith("Z")
    assert re.search(r"\ndeadline: +\S", machine.run("status", "full"))


@pytest.mark.parametrize(
    "words", ["--notify ftp://a", "--notify chat", "--requeue-on 0", "--requeue-on x", "--deadline soon", "--grace x"]
)
def test_an_option_that_cannot_be_read_is_wrong_use(machine: Machine, words: str) -> None:
    said = machine.run("submit", *words.split(), "--", "true", status=2)
    assert words.split()[0] in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "then"),
    [
        ("2h", "2026-11-21T14:20:00Z"),
        ("18:00", "2026-11-21T18:00:00Z"),
        ("8:00", "2026-11-22T08:00:00Z"),
        ("tomorrow 18:30", "2026-11-22T18:30:00Z"),
        ("2026-12-01", "2026-12-01T00:00:00Z"),
        ("2026-12-01 08:00", "2026-12-01T08:00:00Z"),
        ("2026-12-01T08:00:00+01:00", "2026-12-01T07:00:00Z"),
    ],
)
def test_a_deadline_is_a_time_a_time_of_day_or_a_duration(
    monkeypatch: pytest.MonkeyPatch, text: str, then: str
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert deadline(text, 1795263600.0) == then


@pytest.mark.parametrize("text", ["25:00", "2026-13-01", "", "soon", "2h 3"])
def test_a_deadline_that_is_no_time_says_what_is_allowed(text: str) -> None:
    with pytest.raises(Problem, match="--deadline: "):
        deadline(text, 1795263600.0)


@pytest.mark.parametrize("text", ["0s", "2020-01-01T00:00:00Z", "2026-11-20", "today 10:00"])
def test_a_deadline_that_has_passed_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    with pytest.raises(Problem, match=f"--deadline: {text} has passed"):
        deadline(text, 1795263600.0)


def test_the_folder_a_program_runs_in_can_be_chosen(machine: Machine) -> None:
    os.mkdir(machine.folder / "below")
    assert machine.run("submit", "--chdir", "below", "--follow", "--", "sh", "-c", "basename $PWD").startswith(
        "below\n"
    )


@pytest.mark.parametrize("takes", [True, False])
async def test_a_lost_answer_leaves_open_whether_it_was_submitted(takes: bool) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    where = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    if not takes:
        server.close()
        await server.wait_closed()
    draft = Draft({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "long", "namespace": "default"}})
    with pytest.raises(Problem if takes else ConnectionError) as caught:
        async with plain_transport(Config(where), Clock()) as transport:
            with answered(draft):
                await Client(transport, Clock()).create(kinds.JOBS, draft.thing)
    server.close()
    open_ = "no answer came: long may have been submitted; `fairway ls --all` says whether it was"
    assert (str(caught.value) == open_) == takes


# Labels


def test_a_label_is_on_the_job_and_other_commands_find_it_by_that(machine: Machine) -> None:
    machine.run("submit", "--name", "marked", "--label", "study=lr", "--label", "a.org/x=", "--", "true")
    [job] = json.loads(machine.kubectl("get", "jobs", "-l", "study=lr", "-o", "json"))["items"]
    labels = job["metadata"]["labels"]
    assert labels["a.org/x"] == "" and labels["fairway.dev/queue"] == "default"
    machine.run("wait", "-l", "study=lr")
    assert machine.run("ls", "--all", "-l", "study=lr", "-o", "name") == "marked\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fairway.dev/queue=x", "set by options such as --queue"), ("a", "NAME=VALUE is allowed"),
        ("a=b c", "NAME=VALUE is allowed"), ("-a=b", "NAME=VALUE is allowed"), (f"a={'x' * 64}", "at most 63 long"),
    ],
)  # fmt: skip
def test_a_label_that_cannot_be_is_one_line(machine: Machine, text: str, told: str) -> None:
    said = machine.run("submit", "--label", text, "--", "true", status=2)
    assert "--label" in said and told in said and said.count("\n") == 1
