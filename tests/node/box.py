"""One machine for the tests beside it: a server in memory, a runner with real processes, and what is done to them."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster import running, serve, until

from fairway.clock import Chance, Clock
from fairway.embedded.registry import Registry
from fairway.embedded.server import Server
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Kind, Ref, Selection
from fairway.node.containers.engine import Engine
from fairway.node.isolation.account import tenants
from fairway.node.isolation.limits import hierarchies
from fairway.node.pause.disk import DiskError, criu
from fairway.node.runner import Runner

BASE = {"PATH": os.environ["PATH"], "HOME": "/home/ann", "AWS_SECRET_ACCESS_KEY": "no", "API_TOKEN": "no"}

NODE = {"metadata": {"name": "here"}, "status": {"capacity": {"cpu": "2", "memory": "4Gi"}}}


@dataclass(frozen=True, slots=True)
class Box:
    """The machine."""

    client: Client
    runner: Runner
    folder: Path

    async def run(self, name: str, script: str, **rest: Any) -> dict[str, Any]:
        """Makes a pod of a shell script; `container`, `annotations` and `labels` add to it, all else to its spec."""
        meta = {key: rest.pop(key) for key in ("annotations", "labels") if key in rest}
        container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script], **rest.pop("container", {})}
        spec = {"restartPolicy": "Never", "nodeName": "here", "containers": [container], **rest}
        meta |= {"name": name, "namespace": "default"}
        return await self.client.create(kinds.PODS, {"metadata": meta, "spec": spec})

    async def keep(self, kind: Kind, name: str, **entries: str) -> None:
        await self.client.create(kind, {"metadata": {"name": name, "namespace": "default"}, "data": entries})

    async def status(self, name: str) -> dict[str, Any]:
        return (await self.client.get(Ref(kinds.PODS, name, "default")))["status"]

    async def phase(self, name: str, *phases: str) -> dict[str, Any]:
        async def holds() -> Any:
            status = await self.status(name)
            return status if status.get("phase") in phases else None

        return await until(self.client, 60, holds)

    async def state(self, name: str, kind: str, container: int = 0) -> dict[str, Any]:
        async def holds() -> Any:
            statuses = (await self.status(name)).get("containerStatuses") or [{}] * (container + 1)
            return (statuses[container].get("state") or {}).get(kind)

        return await until(self.client, 60, holds)

    async def log(self, name: str, **query: str) -> str:
        read = self.client.logs(Ref(kinds.PODS, name, "default"), query=tuple(query.items()))
        return b"".join([chunk async for chunk in read]).decode()

    async def said(self, name: str) -> str:
        """The log of a pod that has succeeded."""
        status = await self.phase(name, "Succeeded", "Failed")
        text = await self.log(name)
        assert status["phase"] == "Succeeded", text
        return text

    async def gone(self, name: str) -> None:
        async def holds() -> bool:
            return name not in [pod["metadata"]["name"] for pod in await self.client.list(Selection(kinds.PODS))]

        await until(self.client, 60, holds)

    def attempt(self, pod: dict[str, Any], number: int = 0, container: str = "main") -> Path:
        return self.folder / pod["metadata"]["uid"] / "containers" / container / str(number)


class machine:
    """A runner beside a server; entering again with the same registry is another life of it."""

    def __init__(
        self, folder: Path, registry: Registry | None = None, *, is_team: bool = False,
        device_files: Mapping[int, str] | None = None, engine: Engine | None = None,
    ) -> None:
        self.folder, self.registry, self.is_team = folder / "pods", registry, is_team
        self.device_files, self.engine = device_files, engine
        self.folder.mkdir(exist_ok=True)

    async def __aenter__(self) -> Box:
        clock, chance = Clock(), Chance()
        server = await serve(clock, chance) if self.registry is None else Server(self.registry)
        client = Client(server.handle, clock, chance)
        tenant = tenants(client) if self.is_team else None
        runner = Runner(client, NODE, self.folder, base=BASE, tenant=tenant, limits=hierarchies(),
                        device_files=self.device_files, engine=self.engine)  # fmt: skip
        server.kubelet = runner
        self.registry, self.work = server.registry, running(runner.run())
        await self.work.__aenter__()
        return Box(client, runner, self.folder)

    async def __aexit__(self, *error: Any) -> None:
        await self.work.__aexit__(*error)


COUNTER = """
import itertools, os, time
for n in itertools.count():
    print(n, file=open("count.new", "w"), flush=True)
    os.rename("count.new", "count")
    time.sleep(0.01)
"""


async def grows(file: Path) -> int:
    """The number in it, once that is another than now."""
    before = file.read_text() if file.exists() else ""
    while not file.exists() or file.read_text() in ("", before):
        await asyncio.sleep(0.01)
    return int(file.read_text())


def why_no_criu() -> str:
    try:
        criu()
    except DiskError as error:
        return str(error)
    return ""


WHY_NOT = why_no_criu()


needs_criu = pytest.mark.skipif(bool(WHY_NOT), reason=f"a paused process cannot go to disk here: {WHY_NOT}")
