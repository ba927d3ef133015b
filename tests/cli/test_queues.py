"""`fairway queues` and `nodes`: added up from what there is now, not from what a Queue's status last said."""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from fairway.api.types import UsageDaySpec, UsageRow
from fairway.api.usage import Day, Told, usage
from fairway.cli.listing import Listed
from fairway.cli.nodes import _node_line, users
from fairway.cli.output import clock_time, seconds
from fairway.cli.queues import Held, Tally, print_queues, queue_lines, tallies
from fairway.cli.rows import memories
from fairway.cli.usage import Period
from fairway.cli.usage import _csv as as_csv
from fairway.cli.usage import _open as what_is_open
from fairway.cli.usage import _print as print_usage
from fairway.clock import Clock
from fairway.kube.client import Client
from fairway.kube.transport import Request, Response

from .test_commands import Machine

GPU = "nvidia.com/gpu"


def workload(name: str, queue: str, gpus: str, nodes: dict | None = None, shape: type = Held, count: int = 2):
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": {GPU: gpus}}}]}}
    placed = [{"node": node, "count": pods} for node, pods in (nodes or {}).items()]
    status = {"phase": "Running", "admission": {"pool": "p", "podSets": [{"name": "main", "nodes": placed}]}}
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "ml"}, "status": status if nodes else {"phase": "Pending"},
         "spec": {"queue": queue, "user": "ann", "podSets": [{"name": "main", "count": count, "template": template}]}},
        shape,
    )  # fmt: skip


def held(*arguments, **more) -> Held:
    """A Workload as it is decoded from what a server sends."""
    return msgspec.json.decode(msgspec.json.encode(workload(*arguments, shape=dict, **more)), type=Held)


def test_what_a_queue_has_its_parents_have_too() -> None:
    found = tallies({"nlp": "research", "research": ""}, [held("a", "nlp", "2", {"n1": 2}), held("b", "nlp", "4")])
    for name in ("nlp", "research"):
        assert (found[name].pending, found[name].admitted) == (1, 1)
        assert found[name].usage["p", GPU] == 4000 and found[name].asked[GPU] == 8000


def test_what_requests_nothing_is_counted_as_all_else() -> None:
    one = msgspec.json.decode(b'{"metadata": {"name": "a"}, "spec": {"queue": "nlp", "podSets": [{}]}, "status": '
                              b'{"phase": "Running", "admission": {"pool": "p", "podSets": [{"nodes": [{"node": "n"}]}]'
                              b"}}}", type=Held)  # fmt: skip
    assert tallies({"nlp": ""}, [one])["nlp"] == Tally(admitted=1)


def test_a_shrunk_workload_counts_with_what_it_holds() -> None:
    assert tallies({"nlp": ""}, [held("a", "nlp", "2", {"n1": 1})])["nlp"].usage["p", GPU] == 2000


@pytest.mark.parametrize(("pools", "sizes"), [(("a", "b"), (40, 40, 20)), ((), (20, 20, 20)), (None, (20, 20, 20))])
def test_a_part_of_a_gpu_by_its_memory_is_that_of_the_smallest_of_its_pool(
    pools: tuple[str, ...] | None, sizes: tuple[int, ...]
) -> None:
    def labelled(name: str, size: int) -> dict:
        labels = {"kind": name[0], "nvidia.com/gpu.memory": str(size * 1024)}
        return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {GPU: "2"}}}

    async def answer(request: Request) -> Response:
        items = [labelled("a1", 80), labelled("a2", 40), labelled("b1", 20)]
        if is_pools := "nodepools" in request.path:
            spec = {one: {"nodeSelector": {"matchLabels": {"kind": one}}} for one in pools or ()}
            items = [{"metadata": {"name": one}, "spec": spec[one]} for one in spec]
        body = msgspec.json.encode({"metadata": {}, "items": items})
        return Response(403 if is_pools and pools is None else 200, {}, body)

    memory = asyncio.run(memories(Client(answer, Clock())))
    assert tuple(memory[name] // 2**30 for name in ("a1", "a2", "b1")) == sizes
    one = workload("x", "nlp", "0", {"a1": 1}, dict, 1)
    one["spec"]["podSets"][0]["template"]["metadata"] = {"annotations": {"fairway.dev/gpu-memory": "10Gi"}}
    read = msgspec.json.decode(msgspec.json.encode(one), type=Held)
    assert tallies({"nlp": ""}, [read], memory)["nlp"].usage["p", GPU] == 10_000 // sizes[0]


def test_parents_in_a_circle_are_counted_once() -> None:
    found = tallies({"a": "b", "b": "a"}, [held("x", "a", "1")])
    assert (found["a"].pending, found["b"].pending) == (1, 1)


def test_a_queue_shows_what_it_borrows_and_what_nobody_governs() -> None:
    live = tallies({"nlp": ""}, [held("a", "nlp", "3", {"n1": 2}), held("b", "nlp", "1")])["nlp"]
    governed = {"metadata": {"name": "nlp"}, "spec": {"quotas": [{"pool": "*", "guaranteed": {GPU: 4}}]}}
    assert queue_lines(governed, live) == [["nlp", None, 1, 1, GPU, "4", "", "", "6", "2", "2"]]
    free = {"metadata": {"name": "nlp"}, "spec": {}}
    assert queue_lines(free, live) == [["nlp", None, 1, 1, GPU, "", "", "", "6", "", "2"]]


def test_a_part_of_a_gpu_is_shown_in_one_form() -> None:
    quotas = [{"pool": "*", "guaranteed": {GPU: "500m"}, "limit": {GPU: 1.5}}]
    part = {"metadata": {"name": "q"}, "spec": {"quotas": quotas}, "status": {"share": {"*": {GPU: "500m"}}}}
    live = Tally(1, 1, Counter({("default", GPU): 750}), Counter({GPU: 250}))
    assert queue_lines(part, live)[0][4:] == [GPU, "0.5", "1.5", "0.5", "0.75", "0.25", "0.25"]


@pytest.mark.parametrize(("pending", "told"), [(0, "SHARE is as of the last minute, all else as of now\n"), (1, "")])
def test_a_share_that_was_decided_about_other_workloads_is_said_to_be_old(
    pending: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {"share": {"*": {GPU: "4"}}, "pending": pending, "admitted": 1}
    queue = {"metadata": {"name": "nlp"}, "spec": {"quotas": [{"pool": "*", "guaranteed": {GPU: 4}}]}, "status": said}
    print_queues([queue], tallies({"nlp": ""}, [held("a", "nlp", "3", {"n1": 2}), held("b", "nlp", "1")]), (), 0.0)
    assert capsys.readouterr().err == told


def test_a_column_that_is_empty_for_now_or_for_good_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    queue = {"metadata": {"name": "nlp"}, "spec": {"quotas": [{"pool": "*", "guaranteed": {GPU: "50%"}}]}}
    print_queues([queue], {}, (), 0.0)
    told = capsys.readouterr().err
    assert "a SHARE that is missing comes with the next decision" in told


def test_what_is_borrowed_of_a_guarantee_in_per_cent_is_that_of_the_last_decision(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = {"share": {"*": {GPU: "4"}}, "borrowed": {"default": {GPU: "2"}}, "admitted": 1}
    spec = {"quotas": [{"pool": "*", "guaranteed": {GPU: "50%"}}]}
    print_queues([{"metadata": {"name": "nlp"}, "spec": spec, "status": said}], {}, (), 0.0)
    told = capsys.readouterr()
    assert "SHARE, and BORROWED where GUARANTEED is in %, is as of the last minute" in told.err
    head, line = (text.split() for text in told.out.splitlines())
    assert (line[head.index("GUARANTEED") - 1], line[-2]) == ("50%", "2")


@pytest.mark.parametrize(("now", "line"), [
    ("2026-11-28T00:30:00Z", ["nlp", "4.0", "3.0", "0.5", "0.5", "2026-11-28T01:00:00Z"]),
    ("2026-11-28T01:00:00Z", ["nlp", "4.0", "0.0", "0.5", "3.5", "2026-11-28T02:00:00Z"]),
    ("2026-11-28T04:10:00Z", ["nlp", "4.0", "0.0", "0.5", "3.5", "2026-11-28T05:00:00Z"]),
])  # fmt: skip
def test_of_a_budget_what_counts_now_is_told_with_the_time_of_its_end(
    now: str, line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {"budget": {"gpuHours": 4, "period": "1h"}}
    said = {"budgetSpent": {"gpuHours": 3.0, "since": "2026-11-28T00:00:00Z"}, "budgetReserved": 0.5}
    print_queues([{"metadata": {"name": "nlp"}, "spec": spec, "status": said}], {}, (), seconds(now))
    ends = clock_time(line.pop(), seconds(now))
    assert capsys.readouterr().out.splitlines()[-1].split() == [*line, *ends.split()] and ":" in ends


def test_a_node_names_the_users_and_their_gpus() -> None:
    found = users([workload("a", "nlp", "2", {"n1": 2, "n2": 1}, Listed), workload("b", "nlp", "1", None, Listed)], {})
    assert found == {"n1": {"ann": 4.0}, "n2": {"ann": 2.0}}
    node = {"metadata": {"name": "n1"}, "spec": {}}
    assert _node_line(node, Counter(), Counter({"ann": 1.0}))[-1] == "ann (1 GPU)"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.run("up", "--detach", "--cpus", "4", "--fake-gpus", "2")
    yield machine
    machine.run("down")


def test_a_part_of_a_gpu_by_its_memory_is_the_same_figure_everywhere(machine: Machine) -> None:
    container = {"name": "main", "image": "none", "command": ["sleep", "600"], "resources": {"requests": {"cpu": "1"}}}
    meta = {"name": "part", "annotations": {"fairway.dev/gpu-memory": "60Gi"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}
    (machine.folder / "part.json").write_text(json.dumps(pod))
    machine.run("submit", "-f", "part.json")
    machine.until("part", "Running")
    live = json.loads(machine.run("queues", "-o", "json"))["live"]["default"]
    assert live["usage"]["default"][GPU] == "750m"
    assert re.search(r"^\S+ +Ready +2 +0.75 +1.25 .* admin \(0.75 GPUs\)$", machine.run("nodes"), re.MULTILINE)
    head, line = machine.run("ls").splitlines()[:2]
    assert "0.75" in line[head.index("GPUS") :].split()[:1]
    deadline = time.monotonic() + 30  # its status is written every few seconds
    while (said := told(machine)) != "750m":
        assert time.monotonic() < deadline, said
    machine.run("cancel", "part")


def told(machine: Machine) -> str:
    """GPUs of queue default, as its status says."""
    [status] = [it.get("status", {}) for it in json.loads(machine.run("queues", "-o", "json"))["items"]]
    return status.get("usage", {}).get("default", {}).get(GPU, "")


def test_queues_and_nodes_show_a_job_as_soon_as_it_runs(machine: Machine) -> None:
    machine.run("submit", "--name", "a", "--gpus", "2", "--cpus", "1", "--", "sleep", "600")
    machine.until("a", "Running")
    machine.run("submit", "--name", "b", "--gpus", "1", "--cpus", "1", "--", "true")
    machine.until("b", "Pending")
    assert "admin (2 GPUs)" in machine.run("nodes")
    assert re.search(rf"^default +1 +1 +{GPU} +2 +1$", machine.run("queues"), re.MULTILINE)
    live = json.loads(machine.run("queues", "-o", "json"))["live"]["default"]
    assert (live["usage"]["default"][GPU], live["asked"][GPU]) == ("2", "1")
    assert re.search(r"^\S+ +Ready +2 +2 +0 .* admin \(2 GPUs\)$", machine.run("nodes"), re.MULTILINE)
    used = machine.run("usage", "--since", "1m")  # at each full ten minutes it is charged
    assert re.search(r"^Whole days \(UTC\), from \d{4}-\d\d-\d\d on\. (Nothing|Used) ", used, re.MULTILINE)
    machine.kubectl("cordon", json.loads(machine.run("nodes", "-o", "json"))["items"][0]["metadata"]["name"])
    assert "Ready,SchedulingDisabled" in machine.run("nodes")


def test_a_queue_that_is_not_valid_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    why = {"type": "Valid", "status": "False", "reason": "Cycle", "message": "its parents make a cycle"}
    items = [{"metadata": {"name": name}, "spec": {"parent": "a"}, "status": {"conditions": told}}
             for name, told in (("a", [why]), ("b", [{**why, "status": "True"}]))]  # fmt: skip
    print_queues(items, {}, (), 0.0)
    assert capsys.readouterr().err == "queue a is not valid, nothing in it starts: its parents make a cycle\n"


def test_of_a_month_that_is_over_it_is_said_that_nothing_was_charged_in_it() -> None:
    month = Period("2026-10-01", "2026-10-31", "2026-10", "2026-10")
    assert what_is_open(month, [], seconds("2026-11-01T00:00:00Z")) == "Nothing was charged in 2026-10."
    assert "Nothing is charged yet; " in what_is_open(month, [], seconds("2026-10-31T23:59:59Z"))


def test_users_go_by_the_last_part_of_their_names_unless_two_share_it(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("oidc:ann", "fairway:bob", "oidc:bob", "eve")
    rows = tuple(UsageRow(name, "job-a", "default", allocated=3_600_000) for name in names)
    found = usage([Day(spec=UsageDaySpec("2026-11-21", "q"), status=Told(rows=rows))], "user")
    print_usage(found, "user")
    lines = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert sorted(lines[1:-1]) == ["ann", "eve", "fairway:bob", "oidc:bob"]
    assert "oidc:ann" in as_csv(found, "user")
