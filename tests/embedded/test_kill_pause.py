"""Fairway is killed again and again while a workload is paused and resumed, in memory and on disk: it goes on.

The program counts, and writes each number down: so a step that was lost, or done twice, is seen. On the way to disk
(`fairway down`) what is killed may be in the middle of it, and the next life begins beside it.
"""

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cluster import job
from lives import live, lives
from test_kill import insist, some_moment

from fairway.api.objects import PAUSED
from fairway.clock import Clock
from fairway.embedded.datadir import down
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.config import load
from fairway.kube.http import http_transport
from fairway.kube.kinds import Ref, Selection
from fairway.node.pause.disk import can_save

COUNTER = """
import itertools, sys, time
with open(sys.argv[1], "a", buffering=1) as book:
    for number in itertools.count():
        print(number, file=book)
        time.sleep(0.01)
"""
SEEDS = [(1, 2), *(pytest.param(seed, 30, marks=pytest.mark.soak) for seed in (2, 3))]


@dataclass(slots=True)
class Box:
    """A cluster that is killed and started again; what its one program counts."""

    folder: Path
    chance: random.Random
    client: Any = None
    life: Any = None
    ends: list[str] = field(default_factory=list)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        self.life = lives().Process(target=live, args=(self.data, "2", 0, self.folder / "log"))
        self.life.start()

    async def killed(self, *, goes_down: bool = False) -> None:
        """At some moment, from now on; where it goes down in order, at one of those that this takes."""
        if goes_down:
            os.kill(self.life.pid, signal.SIGTERM)
            await Clock().sleep(self.chance.uniform(0.0, 1.5))
        else:
            await some_moment(self.data, self.life.pid, self.chance)
        with suppress(ProcessLookupError):
            os.kill(self.life.pid, signal.SIGKILL)
        await asyncio.to_thread(self.life.join)
        self.ends.append("down" if self.life.exitcode == 0 else "killed")
        (self.data / "ready").unlink(missing_ok=True)
        self.start()

    async def annotate(self, paused: str | None) -> None:
        note = {"metadata": {"annotations": {PAUSED: paused}}}
        await insist(self.client, lambda: self.client.patch(Ref(kinds.JOBS, "count", "default"), note))

    async def status(self) -> Any:
        found = await insist(self.client, lambda: self.client.find(Ref(kinds.WORKLOADS, "job-count", "default")))
        return (found or {}).get("status") or {}

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        end = Clock().elapsed() + 120
        while not await holds():
            assert Clock().elapsed() < end, (self.folder / "log").read_text()[-3000:]
            await Clock().sleep(0.05)

    async def is_in(self, phase: str) -> None:
        """Until it is there: what is Paused holds its place until it stands still."""

        async def holds() -> bool:
            status = await self.status()
            return status.get("phase") == phase and ("admission" in status) == (phase == "Running")

        await self.until(holds)

    async def counts(self) -> None:
        """Until it counts on."""
        before = len(self.numbers())

        async def holds() -> bool:
            return len(self.numbers()) > before + 1

        await self.until(holds)

    def numbers(self) -> list[int]:
        book = self.folder / "book"
        return [int(line) for line in book.read_text().split("\n")[:-1]] if book.exists() else []


@pytest.mark.skipif(not can_save(), reason="needs CRIU")
@pytest.mark.parametrize(("seed", "rounds"), SEEDS)
async def test_what_is_paused_goes_on_from_the_same_step_whenever_fairway_is_killed(
    seed: int, rounds: int, tmp_path: Path
) -> None:
    box, clock = Box(tmp_path, random.Random(seed)), Clock()
    box.start()
    while not (box.data / "kubeconfig").exists():
        await clock.sleep(0.05)
    async with http_transport(load([box.data / "kubeconfig"]), clock) as transport:
        box.client = Client(transport, clock)
        made = job("count")
        made["spec"]["template"]["spec"]["containers"][0]["command"] = ["python3", "-c", COUNTER, f"{tmp_path}/book"]
        await insist(box.client, lambda: box.client.create(kinds.JOBS, made))
        for _ in range(rounds):
            await box.counts()
            await box.is_in("Running")
            await box.annotate("true")
            await box.killed()
            await box.is_in("Paused")
            await box.killed(goes_down=True)
            await box.is_in("Paused")
            still = box.numbers()
            await box.annotate(None)
            await box.killed()
            assert box.numbers()[: len(still)] == still
        await box.counts()
        status, numbers = await box.status(), box.numbers()
        events = await insist(box.client, lambda: box.client.list(Selection(kinds.EVENTS)))
    await down(box.data, clock)
    await asyncio.to_thread(box.life.join)
    print(f"seed={seed} lives={box.ends}")
    assert numbers == list(range(len(numbers)))
    assert status["attempt"] == 1 and not [it["message"] for it in events if it["reason"] in ("NotPaused", "NotWoken")]
