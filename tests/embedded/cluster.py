"""A cluster in this process for the tests beside it: the server in memory, and what is asked to run on it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from fairway.clock import Chance, Clock, VirtualClock
from fairway.embedded.kinds import builtin_kinds
from fairway.embedded.registry import Registry
from fairway.embedded.server import Server
from fairway.embedded.store import Store
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref, Selection


async def serve(clock: Clock, chance: Chance) -> Server:
    server = Server(Registry(Store(), builtin_kinds(), clock, chance))
    await server.start()
    return server


@asynccontextmanager
async def running(*work: Awaitable[None]) -> AsyncIterator[None]:
    """The controllers, for as long as the body takes; what goes wrong in one fails the test."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


async def until(client: Client, seconds: float, holds: Callable[[], Awaitable[Any]]) -> Any:
    """What `holds` says once it says something; TimeoutError after so many seconds."""
    end, pause = client.clock.now() + seconds, 0.25 if isinstance(client.clock, VirtualClock) else 0.02
    while not (said := await holds()):
        if client.clock.now() > end:
            raise TimeoutError
        await client.clock.sleep(pause)
    return said


async def job_status(client: Client, name: str) -> dict[str, Any]:
    return (await client.get(Ref(kinds.JOBS, name, "default"))).get("status") or {}


async def pods_of(client: Client, name: str) -> list[dict[str, Any]]:
    return await client.list(Selection(kinds.PODS, "default", labels=f"job-name={name}"))


def job(name: str, *, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "command": ["true"]}
    template = {"metadata": {"annotations": annotations or {}},
                "spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
            "spec": {"template": template, **spec}}


def is_true(status: dict[str, Any], kind: str) -> bool:
    return any(it["type"] == kind and it["status"] == "True" for it in status.get("conditions") or ())
