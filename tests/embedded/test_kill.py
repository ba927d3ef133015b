"""Fairway is killed again and again while jobs run: nothing is lost, nothing runs twice, exit codes are true.

Each life is a real process (forked from one that has imported everything, so that fifty lives fit into a test), killed
by SIGKILL at a random moment of its start or work, scheduler and all. Each process of a job says in a file, opened for
appending, that it started.
"""

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cluster import is_true
from lives import live, lives

from fairway.clock import Clock
from fairway.embedded.up import down
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.config import load
from fairway.kube.http import http_transport
from fairway.kube.kinds import Selection


def job(name: str, starts: Path, chance: random.Random) -> dict[str, Any]:
    """Of one pod or three, that take a moment and end well or badly."""
    code, seconds = chance.choice((0, 0, 0, 3)), chance.uniform(0.01, 0.6)
    script = f"echo {name}/$JOB_COMPLETION_INDEX/$FAIRWAY_POD_UID >> {starts}; sleep {seconds:.2f}; exit {code}"
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script],
                 "resources": {"requests": {"cpu": "1"}}}
    width = chance.choice((1, 1, 3)) if code == 0 else 1
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name, "namespace": "default", "labels": {"code": str(code)},
            "annotations": {"fairway.dev/preemptible": "false"},  # an eviction would be a second start
        },
        "spec": {
            "completions": width, "parallelism": width, "completionMode": "Indexed", "backoffLimit": 0,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }  # fmt: skip


async def insist(client: Client, work: Any) -> Any:
    """What `work` says when the server answers at last."""
    while True:
        try:
            return await work()
        except (ApiError, OSError) as error:
            if isinstance(error, ApiError) and error.status == 409:
                return None
            await client.clock.sleep(0.05)


async def submit_all(client: Client, count: int, starts: Path, chance: random.Random) -> None:
    for number in range(count):
        made = job(f"job-{number}", starts, chance)
        await insist(client, lambda made=made: client.create(kinds.JOBS, made))
        await client.clock.sleep(0.25)


async def some_moment(folder: Path, pid: int, chance: random.Random) -> None:
    """Of a life's start, or of its work."""
    if chance.random() < 0.3:
        await Clock().sleep(chance.uniform(0.0, 0.5))
        return
    while not (folder / "ready").exists() or (folder / "ready").read_text() != str(pid):
        await Clock().sleep(0.01)
    await Clock().sleep(chance.uniform(0.0, 0.4))


async def finished(client: Client, count: int) -> list[dict[str, Any]]:
    while True:
        jobs = await insist(client, lambda: client.list(Selection(kinds.JOBS)))
        ended = [it for it in jobs if is_true(it["status"], "Complete") or is_true(it["status"], "Failed")]
        if len(ended) == count:
            return ended
        await client.clock.sleep(0.1)


@pytest.mark.parametrize("kills, jobs", [(50, 80), pytest.param(500, 1500, marks=pytest.mark.soak)])
async def test_killed_at_any_moment_it_loses_nothing_and_runs_nothing_twice(kills: int, jobs: int, tmp_path: Path):
    clock, chance, context = Clock(), random.Random(kills), lives()
    starts = tmp_path / "starts"
    life = context.Process(target=live, args=(tmp_path / "data",))
    life.start()
    while not (tmp_path / "data" / "kubeconfig").exists():
        await clock.sleep(0.05)
    async with http_transport(load([tmp_path / "data" / "kubeconfig"]), clock) as transport:
        client = Client(transport, clock)
        submitting = asyncio.create_task(submit_all(client, jobs, starts, chance))
        for _ in range(kills):
            await some_moment(tmp_path / "data", life.pid, chance)
            os.kill(life.pid, signal.SIGKILL)
            await asyncio.to_thread(life.join)
            life = context.Process(target=live, args=(tmp_path / "data",))
            life.start()
        await submitting
        ended = await clock.within(60.0, finished(client, jobs))
        pods = await insist(client, lambda: client.list(Selection(kinds.PODS)))
    await down(tmp_path / "data", clock)
    await asyncio.to_thread(life.join)

    expected = Counter(
        f"{it['metadata']['name']}/{index}" for it in ended for index in range(it["spec"]["completions"])
    )
    ran = Counter(line.rpartition("/")[0] for line in starts.read_text().splitlines())
    assert ran == expected
    for it in ended:
        good = it["metadata"]["labels"]["code"] == "0"
        counts = it["status"].get("succeeded", 0), it["status"].get("failed", 0)
        assert counts == ((it["spec"]["completions"], 0) if good else (0, 1)), it
    codes = {it["metadata"]["name"]: int(it["metadata"]["labels"]["code"]) for it in ended}
    for pod in pods:
        state = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert state["exitCode"] == codes[pod["metadata"]["labels"]["job-name"]]
