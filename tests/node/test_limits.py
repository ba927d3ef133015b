"""Limits of CPU and memory: by cgroups of this machine where it has them, and the files of both versions."""

import asyncio
import marshal
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from box import Box

from fairway.kube import kinds
from fairway.kube.kinds import Ref
from fairway.node.execute import Order
from fairway.node.isolation.devices import forbid
from fairway.node.isolation.limits import CONTROLLERS, PIDS, Hierarchies, hierarchies
from fairway.node.lock import holder

BOMB = """import os, sys, time
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
made = []
try:
    while len(made) < 40:
        made.append(os.fork())
        if not made[-1]:
            time.sleep(1000)
except BlockingIOError:
    print(len(made))
for pid in made:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
"""
GREEDY = "import sys; held = bytearray(300_000_000)"
needs_cgroups = pytest.mark.skipif(bool(hierarchies().missing), reason=hierarchies().missing or "has cgroups")


def limits(**amounts: str) -> dict[str, Any]:
    return {"resources": {"limits": amounts}}


@needs_cgroups
async def test_a_container_over_its_memory_limit_is_killed_and_its_neighbour_is_not(box: Box):
    program = ["python3", "-c", GREEDY]
    await box.run("a", "", container={"command": program, **limits(memory="60Mi")})
    await box.run("b", "", container={"command": program, **limits(memory="600Mi")})
    small, large = await box.state("a", "terminated"), await box.state("b", "terminated")
    assert (small["exitCode"], small["reason"], small["message"]) == (
        137, "OOMKilled", "The kernel killed it for want of memory.")  # fmt: skip
    assert (large["exitCode"], large["reason"]) == (0, "Completed")


@needs_cgroups
async def test_a_parent_that_fails_because_its_child_was_killed_is_out_of_memory_too(box: Box):
    await box.run("a", f'python3 -c "{GREEDY}" || exit 3', container=limits(memory="60Mi"))
    ended = await box.state("a", "terminated")
    assert (ended["reason"], ended["exitCode"] in (3, 137)) == ("OOMKilled", True)


@needs_cgroups
async def test_a_container_and_commands_beside_it_are_in_its_cgroup_which_goes_with_it(box: Box):
    pod = await box.run("a", "cat /proc/self/cgroup; sleep 100", container=limits(cpu="500m", memory="1Gi"))
    await box.state("a", "running")
    name = f"/fairway/{pod['metadata']['uid']}-main"
    execution = box.runner.execute("default", "a", "main", Order(["cat", "/proc/self/cgroup"]))
    assert execution is not None
    beside = b"".join([text async for _, text in execution.output()]).decode()
    made = [place / name.rpartition("/")[2] for place in {box.runner.limits.places[it] for it in CONTROLLERS}]
    assert beside.count(name) == len(made) and all(it.is_dir() for it in made)
    await box.client.delete(Ref(kinds.PODS, "a", "default"), grace=0)
    await box.gone("a")
    while any(it.exists() for it in made):
        await box.client.clock.sleep(0.02)


@needs_cgroups
async def test_a_container_without_limits_has_no_cgroup_of_its_own(box: Box):
    await box.run("a", "cat /proc/self/cgroup")
    assert "/fairway/" not in await box.said("a")


class Tree:
    """A machine's cgroups of version 2, as plain files."""

    def __init__(self, folder: Path, own: str) -> None:
        self.top, self.process = folder / "cgroup", folder / "proc"
        self.process.mkdir()
        self.add(self.top)
        (self.process / "cgroup").write_text(f"0::/{own}\n")
        (self.process / "mountinfo").write_text(f"30 23 0:26 / {self.top} rw - cgroup2 cgroup2 rw\n")

    def add(self, place: Path, given: str = "") -> None:
        place.mkdir(parents=True)
        (place / "cgroup.subtree_control").write_text(given)


def test_of_version_2_they_are_made_where_controllers_are_handed_on(tmp_path: Path):
    tree = Tree(tmp_path, "system.slice/fairway.service")
    tree.add(tree.top / "system.slice", "cpu memory pids")
    tree.add(tree.top / "system.slice/fairway")
    (tree.top / "system.slice/fairway.service/cgroup.subtree_control").mkdir(parents=True)  # refuses to be written
    found = hierarchies(tree.process)
    places = dict.fromkeys(("cpu", "memory", "pids"), tree.top / "system.slice/fairway")
    assert found == Hierarchies(places, is_unified=True)
    assert (tree.top / "system.slice/fairway/cgroup.subtree_control").read_text() == "+cpu +memory +pids"


def test_where_none_can_be_made_it_says_why_in_one_line(tmp_path: Path):
    tree = Tree(tmp_path, "")
    (tree.top / "cgroup.subtree_control").unlink()
    (tree.top / "cgroup.subtree_control").mkdir()
    missing = hierarchies(tree.process).missing
    assert missing.startswith("limits of cpu and memory are not enforced: ") and "\n" not in missing
    assert Hierarchies({}, missing=missing).condition(0.0)["status"] == "False"


@pytest.mark.parametrize(("is_unified", "wanted"), [
    (True, {"cpu.max": "150000 100000", "memory.max": "1048576", "memory.swap.max": "0"}),
    (False, {"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000", "memory.limit_in_bytes": "1048576"}),
])  # fmt: skip
def test_limits_are_written_in_the_words_of_each_version(tmp_path: Path, is_unified: bool, wanted: dict[str, str]):
    own = tmp_path / "uid-main"
    own.mkdir()
    (own / "memory.swap.max").write_text("max")
    found = Hierarchies(dict.fromkeys(("cpu", "memory"), tmp_path), is_unified=is_unified)
    assert found.make("uid-main", {"limits": {"cpu": "1500m", "memory": "1Mi"}}) == [str(own)]
    assert {name: (own / name).read_text() for name in wanted} == wanted


@pytest.fixture
def unified() -> Iterator[Path]:
    """A cgroup of version 2 in which others can be made."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    own = Path(next((it.split()[4] for it in lines if " - cgroup2 " in it), "/nowhere")) / f"fairway-test-{os.getpid()}"
    try:
        own.mkdir()
    except OSError:
        pytest.skip("no cgroup of version 2 can be made here")
    yield own
    for each in (*own.glob("*-main"), own):
        each.rmdir()


def test_a_cgroup_of_version_2_closes_devices_under_every_name(unified: Path, tmp_path: Path):
    try:
        forbid(unified, [])
    except OSError as error:
        pytest.skip(str(error))
    other = tmp_path / "other"
    os.mknod(other, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    [made] = Hierarchies(dict.fromkeys(CONTROLLERS, unified), is_unified=True).make("uid-main", {}, ["/dev/zero"])
    script = f"echo 0 > {made}/cgroup.procs; for it in /dev/zero {other} /dev/null; do : < $it && echo $it; done; true"
    found = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert found.stdout.split() == ["/dev/null"] and found.stderr.count("Operation not permitted") == 2


@pytest.mark.skipif(PIDS not in hierarchies().places, reason="this machine hands on no cgroup for processes")
def test_a_fork_bomb_stops_at_the_processes_that_its_container_may_have():
    found = hierarchies()
    (own,) = found.make("bomb-main", {}, most_processes=20)
    said = subprocess.run([sys.executable, "-c", BOMB, own], capture_output=True, text=True, timeout=60)
    assert said.stdout.split() == ["19"], said.stderr
    found.sweep("bomb")


@needs_cgroups
async def test_what_a_lost_container_leaves_in_its_cgroups_is_killed_though_it_has_no_mark(box: Box):
    pod = await box.run("a", "sleep 600", container=limits(memory="60Mi"))
    await box.phase("a", "Running")
    folder = box.attempt(pod)
    [cgroup, *_] = marshal.loads((folder / "spec").read_bytes())["cgroups"]
    stray = subprocess.Popen(["sleep", "600"], env={})
    os.kill(stray.pid, signal.SIGSTOP)
    Path(cgroup, "cgroup.procs").write_text(str(stray.pid))
    os.kill(holder(folder / "lock"), signal.SIGKILL)
    assert await asyncio.to_thread(stray.wait) == -signal.SIGKILL
