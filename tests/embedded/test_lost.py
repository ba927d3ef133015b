"""Shims killed by SIGKILL under a real cluster: what was lost starts again, and is nobody's failure."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cluster import job, job_status, until
from lives import live, lives

from fairway.clock import Clock
from fairway.embedded.datadir import down
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.config import load
from fairway.kube.http import http_transport
from fairway.kube.kinds import Selection
from fairway.node.container import holder

WORKERS = 8


@asynccontextmanager
async def box(folder: Path) -> AsyncIterator[Client]:
    """A real cluster, for as long as the body takes."""
    clock, life = Clock(), lives().Process(target=live, args=(folder, "16", WORKERS))
    life.start()
    try:
        while not (folder / "ready").exists():
            await clock.sleep(0.05)
        async with http_transport(load([folder / "kubeconfig"]), clock) as transport:
            yield Client(transport, clock)
    finally:
        await down(folder, clock)
        await asyncio.to_thread(life.join)


def gang(script: str, **spec: Any) -> dict[str, Any]:
    made = job("gang", completions=WORKERS, parallelism=WORKERS, completionMode="Indexed", **spec)
    container = made["spec"]["template"]["spec"]["containers"][0]
    container |= {"command": ["sh", "-c", script], "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "100m"}}}
    made["metadata"]["labels"] = {"fairway.dev/queue": "default"}
    return made


async def lines(client: Client, place: Path, count: int) -> list[str]:
    async def holds() -> list[str]:
        found = place.read_text().splitlines() if place.exists() else []
        return found if len(found) >= count else []

    return await until(client, 30, holds)


async def test_a_gang_whose_shims_are_killed_starts_again_without_back_off_and_nothing_is_charged(tmp_path: Path):
    starts, data = tmp_path / "starts", tmp_path / "data"
    async with box(data) as client:
        script = f"echo $RANK $FAIRWAY_POD_UID >> {starts}; exec sleep 600"
        await client.create(kinds.JOBS, gang(script, backoffLimit=0))
        await lines(client, starts, WORKERS)

        async def run() -> Any:
            [found] = await client.list(Selection(kinds.WORKLOADS))
            return found["status"]["phase"] == "Running"

        await until(client, 20, run)
        shims = [holder(lock) for lock in data.glob("pods/*/containers/*/*/lock")]
        for pid in shims:
            os.kill(pid, signal.SIGKILL)
        again = await lines(client, starts, 2 * WORKERS)
        status = await job_status(client, "gang")
        pods = await client.list(Selection(kinds.PODS))
    assert len(shims) == WORKERS
    assert len({line.split()[1] for line in again}) == 2 * WORKERS
    assert status.get("failed", 0) == 0 and status["active"] == WORKERS
    assert any(pod["status"].get("reason") == "Lost" for pod in pods)  # the first that is seen takes the others with it
