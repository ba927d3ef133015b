"""A controller starts when the cluster has what it needs, and leaves without a gap."""

import asyncio
import logging
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from simworld import SETTINGS, World, as_controller, cluster, job, node

from fairway import LEASE, NAMESPACE
from fairway.api.crds import crds
from fairway.clock import Clock, VirtualClock, seeded
from fairway.controllers.run import run
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.config import load
from fairway.kube.http import http_transport
from fairway.kube.kinds import Ref
from fairway.settings import Settings

START = 1_800_000_000.0
SERVER = Path(__file__).parents[1] / "conformance" / "serve.py"
NAMESPACE_OBJECT: dict[str, Any] = {"metadata": {"name": NAMESPACE}}


def play(story: Callable[[World], Awaitable[Any]]) -> Any:
    clock = VirtualClock(START)

    async def whole() -> Any:
        async with cluster(clock, seeded(1), node("n1")) as world:
            return await story(world)

    return clock.run(whole())


def test_what_is_missing_is_said_once_and_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: World) -> list[str]:
        await world.client.delete(Ref(kinds.DEFINITIONS, "queues.fairway.dev"))
        world.start(settings=Settings())
        await world.clock.sleep(60)
        await world.client.create(kinds.DEFINITIONS, crds()[0])
        await world.client.create(kinds.NAMESPACES, NAMESPACE_OBJECT)
        await world.apply(job("a"))
        await world.until(lambda: world.is_in("job-a", "Running"))
        return [it.getMessage() for it in caplog.records if it.name == "fairway.controllers.needs"]

    with caplog.at_level(logging.WARNING):
        said, = play(story)
    assert said == (
        "missing on this cluster: CustomResourceDefinition queues.fairway.dev, Namespace fairway-system; "
        "run `fairway install | kubectl apply -f -`; waiting for it")


def test_a_standby_decides_within_two_seconds_of_the_leaders_end() -> None:
    async def story(world: World) -> float:
        world.start()
        await world.until(lambda: _holder(world.client, SETTINGS.namespace))
        settings = Settings(namespace=SETTINGS.namespace, identity="standby")
        standby = asyncio.create_task(run(as_controller(world.server.handle), settings, world.clock, seeded(2)))
        await world.clock.sleep(30)
        await world.apply(job("a"))
        await world.crash()
        left = world.clock.now()
        await world.until(lambda: world.is_in("job-a", "Admitted", "Running"))
        took = world.clock.now() - left
        standby.cancel()
        await asyncio.gather(standby, return_exceptions=True)
        return took

    assert play(story) <= 2.0


async def _holder(client: Client, namespace: str = NAMESPACE) -> str:
    leases = await client.list(kinds.Selection(kinds.LEASES, namespace, fields=f"metadata.name={LEASE}"))
    return leases[0]["spec"].get("holderIdentity", "") if leases else ""


async def test_a_signal_ends_the_process_in_order_and_frees_its_lease(tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    server = subprocess.Popen([sys.executable, SERVER, tmp_path], stdin=pipe, stdout=pipe, text=True)
    assert server.stdin and server.stdout
    kubeconfig = Path(server.stdout.readline().strip())
    command = [sys.executable, "-m", "fairway", "controller", "--kubeconfig", str(kubeconfig)]
    ours = await asyncio.create_subprocess_exec(*command, stderr=pipe)
    try:
        assert ours.stderr and b"run `fairway install | kubectl apply -f -`" in await ours.stderr.readline()
        async with http_transport(load([kubeconfig])) as transport:
            client = Client(transport, Clock())
            for definition in crds():
                await client.create(kinds.DEFINITIONS, definition)
            await client.create(kinds.NAMESPACES, NAMESPACE_OBJECT)
            while not await _holder(client):
                await asyncio.sleep(0.05)
            ours.send_signal(signal.SIGTERM)
            assert await ours.wait() == 0
            assert await _holder(client) == ""
    finally:
        if ours.returncode is None:
            ours.kill()
        server.stdin.close()
        server.wait()
