"""Fairway and its shims are killed again and again under load: nothing is lost, nothing runs twice, all is told.

Each life is a real process (forked from one that has imported everything, so that many lives fit into a test), killed
by SIGKILL at a random moment of its start or work, scheduler and all; so are the shims of what runs, also while no
Fairway lives. What ran is known from a book that the trials keep themselves (trials.py).
"""

import asyncio
import os
import random
import select
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cluster import is_true
from lives import live, lives
from trials import LINES, Asked, Book, job, load

from fairway.clock import Clock
from fairway.embedded.datadir import down
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.config import load as load_config
from fairway.kube.http import http_transport
from fairway.kube.kinds import Ref, Selection
from fairway.kube.runs import EVICTIONS, Notice, Run, kept, text_of
from fairway.node.container import holder


async def insist(client: Client, work: Any) -> Any:
    """What `work` says when the server answers at last."""
    while True:
        try:
            return await work()
        except (ApiError, OSError) as error:
            if isinstance(error, ApiError) and error.status == 409:
                return None
            await client.clock.sleep(0.05)


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


async def logs_of(client: Client, asked: Asked) -> list[tuple[Run, bytes, str]]:
    """The runs of a Job: each with its text, and what the server says is missing."""
    workload = Ref(kinds.WORKLOADS, f"job-{asked.name}", "default")
    found = await kept(client, workload)
    assert found
    said = []
    for run in found.items:
        pieces = [piece async for piece in text_of(client, workload, run)]
        text = b"".join(piece for piece in pieces if isinstance(piece, bytes))
        said.append((run, text, " ".join(piece.text for piece in pieces if isinstance(piece, Notice))))
    return said


@dataclass(slots=True)
class Killer:
    """Kills `up` and shims, and starts `up` again. `pods`: whose shims it killed before they had told an end."""

    data: Path
    chance: random.Random
    log: Path
    life: Any = None
    pods: set[str] = field(default_factory=set)
    starts: int = 0

    def start(self) -> None:
        self.life = lives().Process(target=live, args=(self.data, "8", 0, self.log))
        self.life.start()
        self.starts += 1

    async def kill(self) -> None:
        """Shims of what runs, the whole, or first the whole and then shims."""
        what = self.chance.choice(("shims", "shims", "up", "up", "both"))
        if what == "up":
            await some_moment(self.data, self.life.pid, self.chance)
        else:
            await self.load()
        if what != "shims":
            os.kill(self.life.pid, signal.SIGKILL)
            await asyncio.to_thread(self.life.join)
        if what != "up":
            await asyncio.to_thread(self.kill_shims)
        if what != "shims":
            self.start()

    async def load(self) -> None:
        """Until something runs, or has not for long."""
        for _ in range(200):
            if self.running():
                return
            await Clock().sleep(0.05)

    def running(self) -> list[tuple[int, Path]]:
        """The pid of each shim, and the folder of its attempt."""
        locks = self.data.glob("pods/*/containers/*/*/lock")
        return [(pid, lock.parent) for lock in locks if (pid := holder(lock))]

    def kill_shims(self) -> None:
        running = self.running()
        for pid, folder in self.chance.sample(running, min(len(running), self.chance.choice((1, 1, 2, 4)))):
            with suppress(ProcessLookupError):
                file = os.pidfd_open(pid)
                os.kill(pid, signal.SIGKILL)
                select.select([file], [], [])
                os.close(file)
                if (folder / "started").exists() and not (folder / "exit").exists():
                    self.pods.add(folder.parts[-4])


async def submit_load(client: Client, asked: list[Asked], book: Path, chance: random.Random) -> None:
    for one in asked:
        made = job(one, book, chance)
        await insist(client, lambda made=made: client.create(kinds.JOBS, made))
        await client.clock.sleep(0.1)


SEEDS = [(1, 10), *(pytest.param(seed, 100, marks=pytest.mark.soak) for seed in (2, 3, 4))]


@pytest.mark.parametrize("seed, kills", SEEDS)
async def test_what_is_killed_is_neither_lost_nor_run_twice_and_the_log_tells_why(
    seed: int, kills: int, tmp_path: Path
) -> None:
    clock, book = Clock(), tmp_path / "book"
    killer = Killer(tmp_path / "data", random.Random(seed), tmp_path / "log")
    asked = list(load(4 * kills, random.Random(seed)))
    killer.start()
    while not (killer.data / "kubeconfig").exists():
        await clock.sleep(0.05)
    async with http_transport(load_config([killer.data / "kubeconfig"]), clock) as transport:
        client = Client(transport, clock)
        submitting = asyncio.create_task(submit_load(client, asked, book, random.Random(seed)))
        for _ in range(kills):
            await killer.kill()
        await submitting
        ended = await clock.within(60.0 * kills, finished(client, len(asked)))
        runs = {one.name: await insist(client, lambda one=one: logs_of(client, one)) for one in asked}
    await down(killer.data, clock)
    await asyncio.to_thread(killer.life.join)
    said, log = Book.read(book), killer.log.read_text()
    status = {it["metadata"]["name"]: it["status"] for it in ended}
    faults = [f"twice: {line}" for line in said.twice]
    for one in asked:
        faults += said.faults(one, killer.pods, killer.pods & whole(run for run, *_ in runs[one.name]))
        faults += of_status(one, status[one.name])
        faults += of_logs(runs[one.name], said.all_pods(one), killer.pods)
        faults += of_journal(one, log, runs[one.name], killer.pods)
        if one.after and not said.is_before(f"{one.after}/0", f"{one.name}/0"):
            faults.append(f"{one.name} started before {one.after} was over")
    leads = log.count(" info leading ")
    print(f"seed={seed} kills={kills} shims={len(killer.pods)} lives={killer.starts} leads={leads} jobs={len(asked)} "
          f"attempts={sum(map(len, said.pods.values()))} ends={sum(map(len, said.ends.values()))}")
    assert not faults, "\n".join(faults)


def of_status(one: Asked, status: dict[str, Any]) -> Iterator[str]:
    """What is wrong with how a Job says that it ended."""
    failed = len(one.codes) - one.succeeds
    counts = status.get("succeeded", 0), status.get("failed", 0)
    if is_true(status, "Complete") != one.succeeds or counts != (one.width * one.succeeds, failed):
        yield f"{one.name}: {status}"


def whole(runs: Iterable[Run]) -> set[str]:
    """The pods whose last run ended by itself."""
    lasts = {run.id.partition("/")[0]: run for run in sorted(runs, key=lambda run: run.retry)}
    return {pod for pod, run in lasts.items() if run.exit_code is not None and not run.reason}


def of_logs(runs: list[tuple[Run, bytes, str]], started: set[str], killed: set[str]) -> Iterator[str]:
    """What is missing in the logs, untold."""
    lines = [b"line %d\n" % number for number in range(LINES)]
    if missing := started - {run.id.partition("/")[0] for run, _, _ in runs}:
        yield f"no log of {missing}"
    for run, text, told in runs:
        is_whole = text == b"".join(lines)
        is_told = bool(told) or run.reason in ("ContainerStatusUnknown", *EVICTIONS)
        is_known = run.id.partition("/")[0] in started | killed
        if not is_known or not b"".join(lines).startswith(text) or not (is_whole or is_told):
            yield f"log of {run}: {text!r} {told}"


def of_journal(one: Asked, log: str, runs: list[tuple[Run, bytes, str]], killed: set[str]) -> Iterator[str]:
    """What the operator's log does not tell of a Job: its life, and why it ran more than once."""
    own = [line for line in log.splitlines() if f" workload=default/job-{one.name} " in line]
    events = Counter(line.split()[2] for line in own)
    end = "finished" if one.succeeds else "failed"
    for event in ("submitted", "admitted", end):
        if not events[event]:
            yield f"{one.name}: not {event}: {own}"
    for run, _, _ in runs:
        is_told = any(f" pod={run.pod} " in line for line in own)
        if run.reason == "ContainerStatusUnknown" and not is_told and not events["evicted"]:
            yield f"{one.name}: the loss of {run.pod} is not told: {own}"
        if run.exit_code == 3 and not is_told:
            yield f"{one.name}: the failure of {run.pod} is not told: {own}"
