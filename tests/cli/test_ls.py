"""`fairway ls`: columns, order and filters from Workloads alone, then the command on a cluster of this machine."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import product

import msgspec
import pytest

from fairway.api.scalars import time as seconds
from fairway.api.scalars import time_text
from fairway.cli.find import Found
from fairway.cli.listing import ARRAY, HEAD, Listed, ends_by, natural, rank, reason, row
from fairway.cli.output import MOST_ROWS, clock_time, in_local_time, moment_of_day, print_some, start, table
from fairway.cli.replicas import parked
from fairway.cli.rows import Filter
from fairway.cli.show import _print_why
from fairway.clock import Clock
from fairway.kube.client import Client
from fairway.kube.transport import Request, Response

from .test_commands import Machine, heeds_ctrl_c

NOW = 1_795_000_000.0


def stamp(ago: float = 0.0) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW - ago))


def turned(kind: str, ago: float) -> dict:
    return {"type": kind, "status": "True", "lastTransitionTime": stamp(ago)}


def listed(name: str, phase: str = "Pending", gpus: str = "1", nodes: dict | None = None, **status) -> Listed:
    requests = {"nvidia.com/gpu": gpus}
    template = {"spec": {"containers": [{"resources": {"requests": requests}}]}}
    placed = [{"node": node, "count": count} for node, count in (nodes or {}).items()]
    if nodes:
        status["admission"] = {"podSets": [{"name": "main", "nodes": placed}]}
    made = {
        "metadata": {"name": f"job-{name}", "namespace": "ml", "creationTimestamp": stamp(9000),
                     "ownerReferences": [{"kind": "Job", "name": name}]},
        "spec": {"queue": "nlp", "user": "oidc:ann", "podSets": [{"name": "main", "count": 8, "template": template}]},
        "status": {"phase": phase, **status},
    }  # fmt: skip
    return msgspec.convert(made, Listed)


def test_running_comes_first_then_waiting_by_position_then_the_newest_that_is_over() -> None:
    found = [
        listed("w10", position=2), listed("w9", position=1), listed("r10", "Running"), listed("r9", "Running"),
        listed("early", "Succeeded", conditions=[turned("Finished", 500)]), listed("off", "Suspended"),
        listed("late", "Failed", conditions=[turned("Finished", 50)]), listed("new"), listed("next", "Admitted"),
    ]  # fmt: skip
    names = [it.name for it in sorted(found, key=rank)]
    assert names == ["r9", "r10", "next", "w9", "w10", "new", "off", "late", "early"]
    assert sorted(["w10", "w9", "w"], key=natural) == ["w", "w9", "w10"]


@pytest.mark.parametrize(("phase", "gone", "by", "told"), [
    ("Suspended", {}, [], "it is suspended;"),
    ("Suspended", {}, [turned("Evicted", 600) | {"reason": "Preempted"}], "it is suspended;"),
    ("Suspended", {}, [turned("Evicted", 600) | {"reason": "Suspended"}], "it is suspended for 10m;"),
    ("Running", {"deletionTimestamp": stamp(5)}, [turned("Evicted", 600)], "it is cancelling for 5s"),
    ("Running", {"deletionTimestamp": stamp(-25), "deletionGracePeriodSeconds": 30}, [], "it is cancelling for 5s"),
])  # fmt: skip
def test_why_tells_for_how_long_it_is_so_where_that_is_known(
    phase: str, gone: dict, by: list[dict], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    meta = {"name": "w", "namespace": "ml", "creationTimestamp": stamp(9000), **gone}
    _print_why(Found({"metadata": meta, "spec": {}, "status": {"phase": phase, "conditions": by}}), [], NOW)
    assert capsys.readouterr().out.startswith(f"w does not wait: {told}")


def test_gpus_are_those_held_of_those_asked_for() -> None:
    def gpus(one: Listed) -> str:
        return row(one, {}, "", NOW, {})[HEAD.index("GPUS")]

    assert gpus(listed("a", "Running", nodes={"n1": 4, "n2": 4})) == "8"
    assert gpus(listed("a", "Running", nodes={"n1": 4, "n2": 2})) == "6/8"
    assert gpus(listed("a")) == "0/8"
    assert gpus(listed("a", "Succeeded", nodes={"n1": 4})) == "4/8" and gpus(listed("a", "Failed")) == "0/8"
    array = listed("a", "Succeeded", nodes={"n1": 4})
    array.metadata.annotations = {ARRAY: "9"}
    assert gpus(array) == "8"
    assert gpus(listed("a", gpus="0")) == ""


def test_where_is_the_node_or_the_number_of_nodes() -> None:
    assert row(listed("a", "Running", nodes={"n1": 8}), {}, "", NOW, {})[HEAD.index("WHERE")] == "n1"
    assert row(listed("a", "Running", nodes={"n1": 4, "n2": 4}), {}, "", NOW, {})[HEAD.index("WHERE")] == "2 nodes"


def test_what_runs_ends_by_its_time_limit_or_that_of_its_queue_else_when_it_is_expected_to() -> None:
    one = listed("a", "Running", conditions=[turned("Admitted", 600)])
    assert ends_by(one, {}, NOW) == ""
    assert ends_by(one, {"nlp": 3600.0}, NOW) == time.strftime("%H:%M", time.localtime(NOW + 3000))
    assert ends_by(one, {"nlp": 9.2e18}, NOW) == "9999-12-30"
    one.spec.expected_runtime = "1h30m"
    assert ends_by(one, {}, NOW) == "~" + time.strftime("%H:%M", time.localtime(NOW + 4800))


def test_moments_outside_the_calendar_are_shown_as_its_ends() -> None:
    assert moment_of_day("0001-01-01T00:00:00Z") == moment_of_day("1970-01-02T00:00:00Z")
    said = in_local_time("from 0001-01-01T00:00:00Z until 9999-12-31T23:59:59Z", NOW)
    assert re.fullmatch(r"from 1970-01-0[12] until 9999-12-(29|30)", said)


def test_the_state_is_a_word_for_users() -> None:
    leaving = listed("a", nodes={"n1": 8}, conditions=[turned("Evicted", 5)])
    assert [listed("a").state, listed("a", "Succeeded").state, leaving.state] == ["waiting", "finished", "stopping"]
    assert listed("a").user == "ann"


def test_what_was_parked_is_so_also_where_it_is_frozen() -> None:
    parked = {**turned("Idle", 60.0), "reason": "Parked"}
    one = listed("a", "Paused", conditions=[parked], reason="Suspended", message="idle since noon")
    woken = listed("a", "Paused", conditions=[parked], reason="NoRoom", message="needs a GPU")
    one.spec.paused = True
    assert (one.state, reason(one, NOW)) == ("parked", "Parked: idle since noon")
    assert (woken.state, listed("a", "Paused").state, listed("a", "Parked").state) == ("paused", "paused", "parked")


def test_what_is_suspended_is_so_since_it_was_stopped() -> None:
    one = listed("stopped", "Suspended", conditions=[turned("Evicted", 5.0)])
    assert one.state == "suspended" and NOW - one.since() == pytest.approx(5.0, abs=1.0)


def test_how_it_ended_is_told_with_the_time_that_it_took() -> None:
    ends = [turned("Admitted", 700), turned("Finished", 100)]
    assert reason(listed("a", "Succeeded", conditions=ends), NOW) == "finished after 10m"
    failed = listed("a", "Failed", conditions=ends, reason="BackoffLimitExceeded", message="failed: exit code 3")
    assert reason(failed, NOW) == "failed: exit code 3 after 10m"


def test_a_narrow_terminal_drops_columns_and_cuts_the_last_but_wraps_no_line() -> None:
    head, line = ["NAME", "USER", "STATE", "REASON"], ["a" * 10, "u" * 10, "waiting", "needs a lot of GPUs" * 3]
    wide = table(head, [line], width=200, less=["USER"])
    narrow = table(head, [line], width=44, less=["USER"])
    assert "USER" in wide[0] and line[-1] in wide[1]
    assert "USER" not in narrow[0] and narrow[1].endswith("…") and len(narrow) == 2 and max(map(len, narrow)) <= 44
    assert max(map(len, table(head, [line], width=12, less=["USER"]))) <= 12
    assert line[-1] in table(head, [line])[1]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.run("up", "--detach", "--cpus", "2", "--fake-gpus", "2")
    yield machine
    machine.run("down")


def names(said: str) -> list[str]:
    return said.split()


def test_ls_shows_what_is_over_and_chooses_by_state_user_queue_and_label(machine: Machine) -> None:
    machine.run("submit", "--name", "ok", "--follow", "--", "true")
    machine.run("submit", "--name", "run", "--gpus", "2", "--cpus", "1", "--time-limit", "2h", "--", "sleep", "600")
    machine.until("ok", "Succeeded")
    machine.until("run", "Running")
    for name in ("late10", "late9"):
        machine.run("submit", "--name", name, "--gpus", "1", "--", "true")
    deadline = time.monotonic() + 30
    while machine.workload("late9").get("position") != 2:
        assert time.monotonic() < deadline
    promised = machine.run("why", "late10")
    assert "room is kept for it from " in promised and "forecast: none" not in promised
    assert names(machine.run("ls", "-o", "name")) == ["run", "late10", "late9"]
    assert names(machine.run("ls", "--all", "-o", "name")) == ["run", "late10", "late9", "ok"]
    assert names(machine.run("ls", "--state", "finished", "-o", "name")) == ["ok"]
    assert names(machine.run("ls", "--state", "waiting", "-u", "admin", "-q", "default", "-o", "name")) == [
        "late10", "late9"]  # fmt: skip
    machine.kubectl("label", "job", "late9", "sweep=3")
    assert names(machine.run("ls", "-l", "sweep=3", "-o", "name")) == ["late9"]
    assert "no workload of user 'nobody' is in that choice" in machine.run("ls", "-u", "nobody")
    assert machine.run("ls", "-l", "a b", status=2).startswith("fairway: --selector: unable to parse requirement")
    said = machine.run("ls", "--all")
    assert re.search(r"^run +\w+ +default +running +2 +\S+ +\d\d:\d\d +.*\d\d:\d\d", said, re.MULTILINE)
    assert re.search(r"^late10 .* 0/1 .* NoRoom: ", said, re.MULTILINE) and "finished after" in said
    assert len(json.loads(machine.run("ls", "-o", "json"))["items"]) == 3
    for name in ("run", "late10", "late9"):
        machine.run("cancel", name)


def test_an_array_shows_how_many_of_its_trials_are_done(machine: Machine) -> None:
    script = 'test "$JOB_COMPLETION_INDEX" = 0 || sleep 600'
    machine.run("submit", "--name", "trials", "--array", "0-3%2", "--cpus", "100m", "--", "sh", "-c", script)
    deadline = time.monotonic() + 60
    while not re.search(r"NAME .* DONE .*\ntrials .* 1/4 ", said := machine.run("ls", "-o", "wide")):
        assert time.monotonic() < deadline, said
    machine.run("cancel", "trials")


def test_a_terminal_gets_no_line_longer_than_it_is_wide(machine: Machine) -> None:
    machine.run("submit", "--name", "wide", "--gpus", "2", "--time-limit", "2h", "--", "sleep", "600")
    machine.until("wide", "Running")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "fairway.cli.main", "ls"]
    subprocess.run(command, env=machine.environment | {"COLUMNS": "50"}, stdout=theirs, check=True)
    os.close(theirs)
    lines = re.sub(r"\x1b\[\d*m", "", os.read(ours, 65_536).decode()).splitlines()
    assert any(line.startswith("wide") for line in lines) and max(map(len, lines)) <= 50
    machine.run("cancel", "wide")


async def test_a_notebook_that_others_stopped_is_not_parked() -> None:
    template = {"spec": {"containers": [{"name": "main"}]}}

    def notebook(name: str, stopped: str) -> dict:
        meta = {"name": name, "namespace": "ml", "uid": name, "creationTimestamp": stamp()}
        meta["annotations"] = {"kubeflow-resource-stopped": stopped}
        return {"metadata": meta, "spec": {"template": template}}

    async def transport(request: Request) -> Response:
        items = [notebook("culled", stamp()), notebook("idle", "true")] if "notebooks" in request.path else []
        return Response(200, {}, msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": items}))

    found = await parked(Client(transport, Clock()), "ml", Filter(states=("parked",)))
    assert [one.name for _, one in found] == ["idle"]


def test_what_was_scaled_to_zero_for_being_idle_is_parked(machine: Machine) -> None:
    for name, replicas in (("idle", "0"), ("off", "0"), ("woken", "1")):
        machine.kubectl("create", "deployment", name, "--image", "any", "--replicas", replicas, "--", "sleep", "600")
    machine.kubectl("annotate", "deployment", "idle", "woken", "fairway.dev/parked=1")
    said = machine.run("ls", "--state", "parked")
    assert re.search(r"REASON\nidle +default +parked +Parked: `fairway resume idle` wakes it\n$", said)
    assert "idle" not in machine.run("ls", "--state", "parked", "--queue", "vision", status=1)
    machine.kubectl("delete", "deployment", "idle", "off", "woken")


def test_a_queue_that_does_not_exist_is_told(machine: Machine) -> None:
    assert machine.run("ls", "-q", "defualt", status=1) == (
        "fairway: --queue: there is no queue 'defualt'; did you mean default? there are: default\n"
    )
    machine.run("ls", "-q", "default")
    assert "-n: there is no namespace 'defualt'; did you mean default?" in machine.run("ls", "-n", "defualt", status=1)


def test_jobs_are_listed_by_name_also_those_that_are_over(machine: Machine) -> None:
    machine.run("submit", "--name", "over", "--cpus", "100m", "--", "true")
    machine.run("wait", "over")
    assert machine.run("ls", "over", "job/over", "-o", "name") == "over\n"
    assert "no workload 'other'" in machine.run("ls", "over", "other", status=1)
    assert machine.run("ls", "-u", "me").startswith("no workload of user 'me' is in that choice; ")


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        ("--state running,waiting", 0, ""),
        ("--state pending", 2, "'pending' is a state of Slurm; here it is 'waiting'"),
        ("--state PD,R", 2, "'PD' is a state of Slurm; here it is 'waiting'"),
        ("--state running,soon", 2, "'soon' is not one of 'running'"),
    ],
)
def test_states_may_have_commas_and_those_of_slurm_are_answered(
    machine: Machine, words: str, status: int, told: str
) -> None:
    assert told in machine.run("ls", *words.split(), status=status)


@pytest.mark.parametrize(("command", "head"), [("queues", "PARENT"), ("nodes", "PRODUCT")])
def test_lists_have_the_formats_that_kubectl_has(machine: Machine, command: str, head: str) -> None:
    names = [it["metadata"]["name"] for it in json.loads(machine.run(command, "-o", "json"))["items"]]
    assert names and machine.run(command, "-o", "name").split() == names
    assert head in machine.run(command, "-o", "wide").splitlines()[0]
    assert "items:" in machine.run(command, "-o", "yaml")


def test_a_submission_that_is_watched_shows_its_queue_until_it_runs(machine: Machine) -> None:
    machine.run("submit", "--name", "before", "--cpus", "2", "--", "sleep", "600")
    machine.until("before", "Running")
    command = [sys.executable, "-m", "fairway.cli.main", "submit", "--name", "after", "--cpus", "2", "--watch"]
    command += ["--", "sleep", "600"]
    watcher = subprocess.Popen(command, env=machine.environment, stdout=subprocess.PIPE, text=True)
    assert watcher.stdout is not None
    lines = iter(watcher.stdout.readline, "")
    assert any(re.search(r"\d  after .*waiting", line) for line in lines)
    machine.run("cancel", "before")
    assert any(re.search(r"\d  after .*running", line) for line in lines)
    assert watcher.wait(30) == 0
    machine.run("cancel", "after")


def test_a_watch_prints_each_change_and_ctrl_c_ends_it(machine: Machine) -> None:
    machine.run("submit", "--name", "seen", "--", "sleep", "600")
    machine.until("seen", "Running")
    command = [sys.executable, "-m", "fairway.cli.main", "ls", "--watch"]
    watcher = subprocess.Popen(
        command, env=machine.environment, stdout=subprocess.PIPE, text=True, preexec_fn=heeds_ctrl_c
    )
    assert watcher.stdout is not None and re.search(r"\d  seen .*running", watcher.stdout.readline())
    machine.run("suspend", "seen")
    lines = iter(watcher.stdout.readline, "")
    assert any(re.search(r"seen .*suspended", line) for line in lines)
    machine.run("cancel", "seen")
    assert any(re.search(r"  seen  gone", line) for line in lines)
    watcher.send_signal(signal.SIGINT)
    assert watcher.wait(10) == 130


def test_a_job_is_found_by_its_name_without_a_list_of_all() -> None:
    """Each command reads a bounded number of objects: no page of Workloads."""
    import asyncio

    from fairway.cli.find import sought
    from fairway.clock import Clock
    from fairway.kube.client import Client
    from fairway.kube.transport import Request, Response

    asked = []

    async def answer(request: Request) -> Response:
        asked.append(request.path)
        found = request.path.endswith("/workloads/job-a")
        meta = b'{"metadata": {"name": "job-a", "namespace": "ml", "ownerReferences": [{"kind": "Job", "name": "a",'
        body = meta + b' "apiVersion": "batch/v1"}]}, "spec": {}}'
        return Response(200 if found else 404, {}, body if found else b"{}")

    found = asyncio.run(sought(Client(answer, Clock()), "ml", "a"))
    assert found is not None and found.name == "a"
    assert all(not path.endswith(("workloads", "pods")) for path in asked) and len(asked) <= 5


@pytest.mark.parametrize(("passed", "said"), [
    (0, r"~(\w+ \d\d )?\d\d:\d\d–(\w+ \d\d )?\d\d:\d\d"), (700, r"~by (\w+ \d\d )?\d\d:\d\d"), (4000, ""),
])  # fmt: skip
def test_a_forecast_is_never_shown_as_a_time_in_the_past(passed: float, said: str) -> None:
    told = {"p50": "2026-11-23T12:10:00Z", "p90": "2026-11-23T13:00:00Z", "rough": True}
    assert re.fullmatch(said, start(told, seconds("2026-11-23T12:00:00Z") + passed))


def test_a_forecast_never_ends_before_it_begins_nor_before_now() -> None:
    noon = datetime(2026, 11, 23, 12).timestamp()
    for passed, length in product(range(-100, 200), range(0, 200, 7)):
        told = {"p50": time_text(noon), "p90": time_text(noon + length)}
        times = re.findall(r"\d\d:\d\d", start(told, noon + passed))
        assert times == sorted(times) and (not times or times[0] >= clock_time(noon + passed, noon)), (passed, length)


def test_a_moment_in_a_message_is_local_as_in_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        now = seconds("2026-11-21T14:00:00Z")
        said = in_local_time("from 2026-11-21T14:00:05Z until 2026-11-21T18:20:00.123Z", now)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert said == "from 23:00:05 until Nov 22 03:20"


def test_an_elastic_workload_shows_how_many_pods_it_has_of_those_it_could_have() -> None:
    def pods(least: int | None, phase: str = "Running") -> str:
        one = listed("a", phase, nodes={"n1": 1, "n2": 1})
        one.spec.pod_sets[0].min_count = least
        return row(one, {}, "", NOW, {})[HEAD.index("PODS")]

    assert (pods(2), pods(None), pods(8), pods(2, "Succeeded")) == ("2/8", "", "", "")


def test_of_very_many_rows_the_last_are_printed_and_how_many_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_some(["POD"], [[f"p{number}"] for number in range(5_000)])
    said = capsys.readouterr()
    assert said.out.split() == ["POD", *(f"p{number}" for number in range(5_000 - MOST_ROWS, 5_000))]
    assert said.err == f"the last {MOST_ROWS} of 5,000; -o json lists all\n"


def test_what_another_user_names_steers_no_terminal() -> None:
    assert table(["NAME"], [["a\x1b]0;b\x07\n"]]) == ["NAME", "a\\x1b]0;b\\x07\\n"]
    assert in_local_time("é\x1bc", 0.0) == "é\\x1bc"
