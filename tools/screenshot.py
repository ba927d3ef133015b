"""Makes docs/pictures/now.png: the page of a small cluster of its own, as a browser shows it.

It needs Debian's package `chromium`. The cluster is a real one whose nodes only pretend; times are those of the moment,
so no two pictures are the same bytes, and no test compares them.
"""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from fairway.cli.dashboard import Page, served
from fairway.clock import Clock
from fairway.embedded.access.identity import MASTERS
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.config import load
from fairway.kube.http import http_transport
from fairway.kube.kinds import Kind, Selection
from fairway.kube.transport import Request, Response, Transport

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "now.png"
SIZE = {"width": 1280, "height": 800}
OTHERS = "other"  # the pool of what is in no other, by its name the last
GPU, PATIENCE_SECONDS = "nvidia.com/gpu", 60.0
Thing = dict[str, Any]
NODES = [
    ("h100-1", "h100", "r1", 8), ("h100-2", "h100", "r1", 8),
    ("h100-3", "h100", "r2", 8), ("l40-1", "l40", "r3", 4),
]
QUEUES = {"nlp": (8, None), "vision": (8, 12), "speech": (8, None)}
"""Name → GPUs guaranteed, and the limit."""
JOBS = [
    ("ann", "nlp", "train-llm", 8, 1, "12h"), ("bob", "vision", "detector", 4, 1, "3h"),
    ("eve", "vision", "segment", 2, 1, "2h"), ("bob", "vision", "pose", 4, 1, "5h"),
    ("ann", "nlp", "eval-7", 1, 1, "30m"), ("kim", "speech", "whisper", 2, 1, "4h"),
    ("ann", "nlp", "pretrain", 8, 2, "24h"), ("eve", "vision", "wide", 4, 1, "4h"),
    ("kim", "speech", "tts", 4, 1, "6h"),
]  # fmt: skip
"""User, queue, name, GPUs of a pod, pods, time limit; each in the order in which they come."""


def node(name: str, pool: str, rack: str, gpus: int) -> Thing:
    labels = {"fairway.dev/devices": "Scheduler", "pool": pool, "rack": rack}
    capacity = {"cpu": "96", "memory": "1Ti", GPU: str(gpus)}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": {"capacity": capacity}}


def queue(name: str, guaranteed: int, limit: int | None) -> Thing:
    quota = {"pool": "*", "guaranteed": {GPU: guaranteed}} | ({"limit": {GPU: limit}} if limit else {})
    return {"apiVersion": kinds.FAIRWAY, "kind": "Queue", "metadata": {"name": name}, "spec": {"quotas": [quota]}}


def pool(name: str) -> Thing:
    chosen = {"pool": name} if name != OTHERS else {}
    spec = {"nodeSelector": {"matchLabels": chosen}, "levels": ["rack", "kubernetes.io/hostname"]}
    return {"apiVersion": kinds.FAIRWAY, "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def job(queue: str, name: str, gpus: int, pods: int, limit: str) -> Thing:
    asked = {"cpu": "8", GPU: gpus}
    container = {"name": "main", "image": "x", "command": ["train"], "resources": {"requests": asked, "limits": asked}}
    spec = {"restartPolicy": "Never", "containers": [container], "nodeSelector": {"pool": "h100"}}
    meta = {"name": name, "labels": {"fairway.dev/queue": queue}, "annotations": {"fairway.dev/time-limit": limit}}
    many = {"parallelism": pods, "completions": pods, "completionMode": "Indexed"}
    return {"metadata": meta, "spec": many | {"template": {"spec": spec}}}


def spoken_by(transport: Transport, user: str) -> Transport:
    speaks = {"impersonate-user": user, "impersonate-group": MASTERS}

    async def exchange(request: Request) -> Response:
        return await transport(replace(request, headers={**request.headers, **speaks}))

    return exchange


async def tell(config: Any) -> None:
    """The story, job by job, each seen before the next comes."""
    async with http_transport(config, Clock()) as transport:
        client = Client(transport, Clock())
        for name in ("h100", "l40", OTHERS):
            await client.create(kinds.NODE_POOLS, pool(name))
        for name, (guaranteed, limit) in QUEUES.items():
            await client.create(kinds.QUEUES, queue(name, guaranteed, limit))
        for user, queue_name, *said in JOBS:
            one = Client(spoken_by(transport, user), Clock())
            await one.create(kinds.JOBS, job(queue_name, *said), namespace="default")  # type: ignore[arg-type]
            await until(client, lambda them, name=said[0]: f"job-{name}" in them)  # type: ignore[misc]


async def until(client: Client, holds: Callable[[dict[str, Thing]], bool]) -> None:
    """Waits until it holds of the workloads that are decided about, by name."""
    kind: Kind = kinds.WORKLOADS

    async def seen() -> None:
        while True:
            them = {it["metadata"]["name"]: it.get("status") or {} for it in await client.list(Selection(kind))}
            if holds({name: it for name, it in them.items() if it.get("reason") or it.get("phase") == "Running"}):
                return
            await client.clock.sleep(0.2)

    await client.clock.within(PATIENCE_SECONDS, seen())


async def draw(config: Any) -> None:
    from playwright.async_api import async_playwright

    async with served(Page(config)) as link, async_playwright() as play:
        chrome = await play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = await chrome.new_page(viewport=SIZE, color_scheme="light")
        await page.goto(link)
        await page.wait_for_selector("article.node")
        await page.screenshot(path=PICTURE)
        await chrome.close()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="fairway-picture-") as folder:
        nodes = Path(folder, "nodes.yaml")
        nodes.write_text(yaml.safe_dump_all({"apiVersion": "v1"} | node(*it) for it in NODES))
        fairway = [sys.executable, "-m", "fairway"]
        up = ["up", "--detach", "--cpus", "4", "--fake-gpus", "0", "--nodes", str(nodes), "--data-dir", folder]
        subprocess.run([*fairway, *up], check=True, capture_output=True)
        try:
            config = load([Path(folder, "kubeconfig")])
            asyncio.run(tell(config))
            asyncio.run(draw(config))
        finally:
            subprocess.run([*fairway, "down", "--data-dir", folder], check=True)


if __name__ == "__main__":
    main()
