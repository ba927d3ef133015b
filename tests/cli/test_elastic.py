"""Elastic trainings with real processes: WORLD_SIZE is the number of ranks that run, before and after a resize."""

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

import pytest

from .test_commands import EXAMPLES, Machine

URGENT = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent}, value: 1000}"
STARTED = re.compile(r"^(\S+) rank (\d) of (\d): from step (\d+)", re.MULTILINE)
TORCH = os.environ.get("TORCH_PYTHON") or (sys.executable if find_spec("torch") else "")
PROGRAM = [sys.executable, str(EXAMPLES / "elastic.py")]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.run("up", "--detach", "--cpus", "4")
    yield machine
    machine.run("down")


def rounds(machine: Machine, job: str) -> list[tuple[int, set[int], set[int]]]:
    """Times that the ranks started together: how many there were to be, which ranks did, and from which steps."""
    said = sorted(STARTED.findall(machine.run("logs", "--timestamps", job)))
    found = [list(group) for _, group in groupby(said, lambda it: it[2])]
    return [(int(own[0][2]), {int(it[1]) for it in own}, {int(it[3]) for it in own}) for own in found]


def until_size(machine: Machine, job: str, size: int, *, since: int = 0) -> int:
    """Until all ranks started together with this size, after so many rounds; the rounds until then."""
    deadline = time.monotonic() + 180
    while True:
        found = rounds(machine, job)
        if len(found) > since and found[-1][:2] == (size, set(range(size))):
            return len(found)
        assert time.monotonic() < deadline, f"{found}: {machine.run('logs', job)}"


@pytest.mark.kubectl
def test_a_training_that_grows_and_shrinks_has_one_world_size_at_a_time(machine: Machine, tmp_path: Path) -> None:
    state = tmp_path / "state"
    (tmp_path / "urgent.yaml").write_text(URGENT)
    machine.kubectl("apply", "-f", str(tmp_path / "urgent.yaml"))
    machine.run("submit", "--name", "first", "--cpus", "2", "--", "sleep", "300")
    machine.until("first", "Running")
    program = [*PROGRAM, str(state), "99999"]
    machine.run("submit", "--name", "train", "--workers", "4", "--min-workers", "2", "--", *program)
    before = until_size(machine, "train", 2)
    machine.run("cancel", "first")
    before = until_size(machine, "train", 4, since=before)
    machine.run("submit", "--name", "urgent", "--cpus", "2", "--priority", "urgent", "--", "sleep", "300")
    until_size(machine, "train", 2, since=before)
    found = rounds(machine, "train")
    assert all(ranks <= set(range(size)) and len(steps) == 1 for size, ranks, steps in found), found
    assert [steps for _, _, steps in found] == sorted(steps for _, _, steps in found), "each from its checkpoint"
    status = json.loads(machine.run("status", "train", "-o", "json"))["status"]
    assert (status["phase"], status["attempt"]) == ("Running", 1)
    machine.run("cancel", "train")
    machine.run("cancel", "urgent")


@pytest.mark.kubectl
@pytest.mark.skipif(not TORCH, reason="PyTorch is not installed (TORCH_PYTHON names a Python that has it)")
def test_a_pytorch_training_gives_back_half_of_its_workers_and_grows_again(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "urgent.yaml").write_text(URGENT)
    machine.kubectl("apply", "-f", str(tmp_path / "urgent.yaml"))
    program = [TORCH, str(EXAMPLES / "train.py"), str(tmp_path / "state"), "9999999"]
    machine.run("submit", "--name", "ddp", "--workers", "4", "--min-workers", "2", "--", *program)
    before = until_size(machine, "ddp", 4)
    while not (tmp_path / "state").exists():
        time.sleep(0.1)
    machine.run("submit", "--name", "urgent", "--cpus", "2", "--priority", "urgent", "--", "sleep", "300")
    before = until_size(machine, "ddp", 2, since=before)
    machine.run("cancel", "urgent")
    until_size(machine, "ddp", 4, since=before)
    steps = [steps for _, _, steps in rounds(machine, "ddp")]
    assert all(len(one) == 1 for one in steps) and steps == sorted(steps) and max(*steps[-1], 0) > 0
    machine.run("cancel", "ddp")


def test_a_training_on_fewer_ranks_than_it_may_have_is_finished_when_the_first_rank_is(
    machine: Machine, tmp_path: Path
) -> None:
    machine.run("submit", "--name", "other", "--cpus", "2", "--", "sleep", "300")
    machine.until("other", "Running")
    state = str(tmp_path / "state")
    machine.run("submit", "--name", "few", "--workers", "4", "--min-workers", "2", "--", *PROGRAM, state, "3")
    machine.until("few", "Succeeded")
    assert rounds(machine, "few") == [(2, {0, 1}, {0})]
    machine.run("cancel", "other")


@pytest.mark.parametrize(("options", "nodes"), [(["--min-workers", "2"], "2:3"), ([], "3:3")])
def test_torchrun_finds_the_defaults_of_its_options(machine: Machine, options: list[str], nodes: str) -> None:
    program = machine.folder / "torchrun"
    program.write_text("#!/bin/sh\nenv | grep -E '^(PET_|RANK|WORLD_SIZE)'\n")
    program.chmod(0o700)
    machine.run("submit", "--name", "torch", "--workers", "3", *options, "--", str(program), "train.py")
    machine.until("torch", "Succeeded")
    said = machine.run("logs", "torch", "--rank", "0")
    found = dict(re.findall(r"^(\w+)=(.*)$", said, re.MULTILINE))
    machine.run("cancel", "--forget", "torch")
    assert re.fullmatch(r"127\.0\.0\.1:\d+", found.pop("PET_RDZV_ENDPOINT")) and found.pop("PET_RDZV_ID")
    assert found == {
        "PET_NNODES": nodes, "PET_NPROC_PER_NODE": "1", "PET_RDZV_BACKEND": "c10d", "PET_LOCAL_ADDR": "127.0.0.1",
        "PET_RDZV_CONF": "is_host=true,last_call_timeout=5", "PET_MAX_RESTARTS": "10",
    }  # fmt: skip


@pytest.mark.parametrize(("options", "said"), [
    ("--elastic torchrun", "--elastic: is for a training of several workers; say how many with --workers"),
    ("--elastic restart --workers 2", "--elastic restart: needs --min-workers, the fewest workers to start with"),
    ("--elastic restart --array 0-3", "--elastic: is for a training of several workers; say how many with --workers"),
])  # fmt: skip
def test_what_cannot_be_elastic_is_refused(machine: Machine, options: str, said: str) -> None:
    assert machine.run("submit", *options.split(), "--", "true", status=2) == f"fairway: {said}\n"


def test_a_queue_is_opened_to_a_group_on_a_machine_without_gpus(machine: Machine) -> None:
    said = machine.run("team", "add", "root", "--queue", "plain")
    assert said == "root: queue plain, 0 GPUs guaranteed; its members have it from their first command on\n"
    assert "4 GPUs guaranteed" in machine.run("team", "add", "root", "--queue", "plain", "--gpus", "4")
