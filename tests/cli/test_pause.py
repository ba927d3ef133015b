"""Pausing with real processes on a real `up`, which is killed on the way."""

import os
import re
import signal
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from fairway.clock import Clock
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.config import load
from fairway.kube.http import http_transport
from fairway.kube.kinds import Ref
from fairway.node.container import running
from fairway.node.pause.freezer import children
from fairway.node.pause.stand import stand_of

from .test_commands import Machine

TICKS = "while date +%s.%N >> ticks-$RANK; do sleep 0.05; done"


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    made = Machine(tmp_path)
    made.run("up", "--detach", "--cpus", "4", "--fake-gpus", "2")
    yield made
    made.run("down")


def ticks(machine: Machine, rank: int) -> list[float]:
    """The moments that a rank wrote down, whole lines alone."""
    file = machine.folder / f"ticks-{rank}"
    return [float(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []


async def test_a_gang_that_is_paused_for_another_goes_on_when_that_ends_though_up_is_killed_on_the_way(
    machine: Machine,
) -> None:
    async with http_transport(load([machine.folder / "fairway" / "kubeconfig"]), Clock()) as transport:
        client = Client(transport, Clock())
        while await client.find(Ref(kinds.QUEUES, "default")) is None:  # the controller is about to make it
            await client.clock.sleep(0.05)
        await client.patch(Ref(kinds.QUEUES, "default"), {"spec": {"evict": "Pause"}})
        await client.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    machine.run("submit", "--name", "gang", "--gpus", "1", "--workers", "2", "--", "sh", "-c", TICKS)
    machine.until("gang", "Running")
    while not (ticks(machine, 0) and ticks(machine, 1)):
        await Clock().sleep(0.05)
    machine.run("submit", "--name", "taker", "--gpus", "2", "--priority", "high", "--", "sleep", "2")
    os.kill(int((machine.folder / "fairway" / "ready").read_text()), signal.SIGKILL)
    machine.run("up", "--detach")
    machine.run("wait", "--timeout", "60s", "taker")
    ended = machine.until("taker", "Succeeded")["conditions"]
    assert any(it["type"] == "Finished" for it in ended)
    seen = max(ticks(machine, 0)[-1], ticks(machine, 1)[-1])
    status = machine.until("gang", "Running")
    while min(ticks(machine, 0)[-1], ticks(machine, 1)[-1]) <= seen:
        await Clock().sleep(0.05)
    assert status["attempt"] == 1 and "paused" not in status
    assert all(max(b - a for a, b in pairwise(ticks(machine, rank))) > 2 for rank in range(2))
    assert machine.run("resume", "gang") == "gang is running: there is nothing to resume\n"
    assert "paused: its processes are frozen" in machine.run("pause", "gang")
    assert machine.run("why", "gang").startswith("gang does not wait: it is paused for ")
    await tell_why(machine)
    await tell_loss(machine)
    await tell_expiry(machine)
    machine.run("cancel", "gang")


async def tell_why(machine: Machine) -> None:
    """What is said of a paused job that may go on, and has no room, and of one that is paused again."""
    machine.run("submit", "--name", "taker-2", "--gpus", "2", "--", "sleep", "600")
    machine.until("taker-2", "Running")
    said = machine.run("resume", "gang")
    assert re.match("gang resumed: it (waits: NoRoom|goes on when its place is free)", said), said
    await comes(machine, "NoRoom")
    assert machine.run("why", "gang").startswith("gang is paused, and waits to go on: NoRoom\n  paused on ")
    assert machine.run("pause", "gang") == "gang stays paused; `fairway resume gang` lets it go on\n"
    await comes(machine, "Suspended")
    assert "paused by its user" in machine.run("ls")


async def tell_loss(machine: Machine) -> None:
    """What is said of a paused job whose processes were lost: of one rank with its keeper, of the other alone."""
    first, second = (it.pid for it in running(machine.folder / "fairway" / "pods") if stand_of(it.folder).step)
    for pid in (first, *children(second)):
        os.kill(pid, signal.SIGKILL)
    machine.until("gang", "Suspended")
    lost = r"paused \d+s ago: Suspended; its processes were lost while it was paused[;:] .* when it is resumed\n"
    assert re.search(lost, machine.run("status", "gang")) and re.search(lost, machine.run("why", "gang"))


async def tell_expiry(machine: Machine) -> None:
    """What is said of a paused job that stays paused longer than its queue lets it."""
    machine.run("cancel", "taker-2")
    machine.run("resume", "gang")
    machine.until("gang", "Running")
    machine.kubectl("patch", "fq", "default", "--type", "merge", "-p", '{"spec": {"expire": "10s"}}')
    assert "paused: its processes are frozen" in machine.run("pause", "gang")
    while machine.run("status", "gang").count("stopped while paused") != 2:
        await Clock().sleep(0.1)
    assert re.search(r"Suspended; it was paused since .*, as long as its queue's expire", machine.run("why", "gang"))


async def comes(machine: Machine, reason: str) -> None:
    while machine.workload("gang").get("reason") != reason:
        await Clock().sleep(0.1)
