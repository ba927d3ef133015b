"""GPUs used by processes that Fairway did not start. What NVML lists is made up; processes and decisions are real."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from box import Box
from click.testing import CliRunner

from fairway.api.objects import ASSIGNED, OUTSIDE
from fairway.cli.main import cli
from fairway.cli.nodes import outside
from fairway.kube import kinds
from fairway.kube.kinds import Ref, Selection
from fairway.node.execute import Order
from fairway.node.isolation.outside import Mirror, strangers
from fairway.node.lock import holder
from fairway.node.measure import Use
from fairway.node.pause.stand import STILL, Stand, write_stand

NODE = {
    "apiVersion": "v1", "kind": "Node",
    "metadata": {"name": "here", "labels": {"fairway.dev/devices": "Scheduler"},
                 "annotations": {"fairway.dev/device-groups": '[{"index": 0}, {"index": 1}]'}},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "2"},
               "conditions": [{"type": "Ready", "status": "True"}]},
}  # fmt: skip


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process that is not below this one, as one that somebody starts in another terminal."""
    script = ["sh", "-c", "sleep 1000 > /dev/null & echo $!"]
    pid = int(subprocess.run(script, stdout=subprocess.PIPE, check=True).stdout)
    while psutil.Process(pid).ppid() == os.getpid():
        os.sched_yield()
    yield pid
    os.kill(pid, 9)


def use(index: int, *pids: int) -> Use:
    return Use(index, 90, 0, 80 << 30, pids)


async def test_a_process_of_a_pod_is_ours_and_any_other_is_named(box: Box, stranger: int):
    pod = await box.run("a", "sleep 1000 & sleep 1000")
    await box.state("a", "running")
    shim = psutil.Process(holder(box.attempt(pod) / "lock"))
    while len(ours := shim.children(recursive=True)) < 3:
        await box.client.clock.sleep(0.02)
    seen = [use(0, *(it.pid for it in ours)), use(1, ours[0].pid, stranger), use(2), use(3, os.getpid(), 2**22 + 1)]
    user = psutil.Process(stranger).username()
    assert strangers(seen, box.folder) == {1: f"{user}, pid {stranger}"}


async def test_a_command_beside_a_paused_container_has_no_gpu_of_its_own(box: Box):
    pod = await box.run("a", "sleep 1000")
    await box.state("a", "running")
    beside = {"pid": 0}

    async def listen() -> None:
        """Keeps a command beside the container until the test ends."""
        running = box.runner.execute("default", "a", "main", Order(["sleep", "1000"]))
        assert running is not None
        beside["pid"] = running._process.pid
        async for _ in running.output():
            pass

    async with asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(listen())
        while not (beside["pid"] and b"sleep" in Path(f"/proc/{beside['pid']}/cmdline").read_bytes()):
            await box.client.clock.sleep(0.02)
        shim = psutil.Process(holder(box.attempt(pod) / "lock"))
        seen = [use(0, beside["pid"]), use(1, shim.children()[0].pid)]
        assert strangers(seen, box.folder) == {}
        write_stand(box.attempt(pod), Stand(STILL, "r1"))
        user = psutil.Process(beside["pid"]).username()
        assert strangers(seen, box.folder) == {0: f"{user}, pid {beside['pid']}"}
        listening.cancel()


async def test_a_command_whose_client_is_gone_leaves_nothing_waiting(box: Box):
    def waits() -> set[asyncio.Task[Any]]:
        return {it for it in asyncio.all_tasks() if getattr(it.get_coro(), "__qualname__", "") == "Queue.get"}

    await box.run("idle", "sleep 1000")
    await box.state("idle", "running")
    before = waits()
    running = box.runner.execute("default", "idle", "main", Order(["sleep", "1000"]))
    assert running is not None
    output = running.output()
    listening = asyncio.ensure_future(anext(output))
    while not waits() - before:
        await box.client.clock.sleep(0.01)
    listening.cancel()
    await asyncio.wait([listening])
    assert listening.cancelled() and not waits() - before


async def test_a_gpu_used_outside_is_held_by_a_pod_until_the_process_ends(box: Box):
    now: dict[int, str] = {}
    await box.client.create(kinds.NODES, NODE)
    mirror = Mirror(box.client, "here", {0, 1}, lambda seen: dict(now))

    async def told() -> tuple[list[str], list[str]]:
        await mirror.tell([])
        pods = await box.client.list(Selection(kinds.PODS, "kube-system"))
        return ([f"{it['metadata']['annotations'][ASSIGNED]}: {it['metadata']['annotations'][OUTSIDE]}" for it in pods],
                outside(await box.client.get(Ref(kinds.NODES, "here"))))  # fmt: skip

    assert await told() == ([], [])
    now |= {1: "ann, pid 4711", 7: "of another cluster, pid 1"}
    by_ann = ["1: ann, pid 4711"], ["GPU 1 of here is used outside Fairway by ann, pid 4711"]
    assert await told() == await told() == by_ann
    now[1] = "bob, pid 12"
    assert (await told())[0] == ["1: bob, pid 12"]
    now.clear()
    assert await told() == ([], [])


async def test_a_gpu_used_outside_is_not_given_away_and_the_other_is(box: Box, tmp_path: Any):
    await box.client.create(kinds.NODES, NODE)
    await Mirror(box.client, "here", {0, 1}, lambda seen: {0: "ann, pid 4711"}).tell([])
    [pod] = await box.client.list(Selection(kinds.PODS, "kube-system"))
    assert (pod["status"]["phase"], pod["spec"]["nodeName"]) == ("Running", "here")
    wanted = [workload("one", 1), workload("two", 2)]
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([NODE, pod | {"apiVersion": "v1", "kind": "Pod"}, *wanted]))
    said = CliRunner().invoke(cli, ["plan", "-f", str(file)]).output.splitlines()
    assert [line.split()[:3] for line in said[1:]] == [["ml/one", "Admit", "default:"], ["ml/two", "Wait", "NoRoom"]]


async def test_the_runner_leaves_such_a_pod_alone(box: Box):
    await box.client.create(kinds.NODES, NODE)
    await Mirror(box.client, "here", {0}, lambda seen: {0: "ann, pid 4711"}).tell([])
    await box.run("after", "true")
    await box.phase("after", "Succeeded")
    [pod] = await box.client.list(Selection(kinds.PODS, "kube-system"))
    assert not (box.folder / pod["metadata"]["uid"]).exists() and "containerStatuses" not in pod["status"]


async def test_a_pod_with_the_label_of_such_a_pod_runs_as_any_other(box: Box):
    await box.run("a", "true", labels={OUTSIDE: "0"})
    await box.phase("a", "Succeeded")


def workload(name: str, gpus: int) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"nvidia.com/gpu": gpus}}}
    return {
        "apiVersion": "fairway.dev/v1alpha1", "kind": "Workload",
        "metadata": {"name": name, "namespace": "ml", "creationTimestamp": "2026-01-01T10:00:00Z"},
        "spec": {"queue": "default", "podSets": [
            {"name": "worker", "count": 1, "template": {"spec": {"containers": [container]}}}]},
    }  # fmt: skip
