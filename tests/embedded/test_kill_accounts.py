"""Accounts of a real cluster that is killed again and again under load: they equal a sum made beside it.

`up` is killed by SIGKILL at random moments, scheduler and all, while Jobs hold GPUs, end and are cancelled. The sum is
made of what a watcher sees of Workloads, with none of the code that charges: for each attempt the GPUs of its admission
times the seconds from its Admitted condition to its end, or to its eviction where it ends by itself after that. An
attempt whose room was taken before any of its pods came held nothing. The longer form is for `make soak`.
"""

import asyncio
import os
import random
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lives import live, lives
from test_kill import insist, some_moment

from fairway.api.quantities import time as seconds
from fairway.clock import Clock
from fairway.embedded.datadir import down
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.config import load as load_config
from fairway.kube.http import http_transport
from fairway.kube.kinds import Ref, Selection

GPU, JOBS_PER_KILL, MARK = "nvidia.com/gpu", 3, "mark"
SEEDS = [(1, 4), pytest.param(2, 100, marks=pytest.mark.soak)]


@dataclass(slots=True)
class Observer:
    """By Workload and attempt, what it held and when it began and ended. `last`: the attempt each has come to;
    `promised`: attempts whose room was still another's when they were seen, and which held nothing yet."""

    client: Client
    held: dict[tuple[str, int], tuple[float, int]] = field(default_factory=dict)
    ends: dict[tuple[str, int], float] = field(default_factory=dict)
    last: Counter[str] = field(default_factory=Counter)
    promised: set[tuple[str, int]] = field(default_factory=set)

    async def run(self) -> None:
        """Each version there is, until that of MARK: a watch that a kill cuts goes on where it was."""
        version = "0"
        while True:
            try:
                async for event in self.client.watch(Selection(kinds.WORKLOADS), version):
                    said = msgspec.json.decode(event.object)
                    version = said["metadata"]["resourceVersion"]
                    if said["metadata"].get("name") == MARK:
                        return
                    if event.type != "BOOKMARK":
                        self._see(said)
            except (ApiError, OSError) as error:
                assert not isinstance(error, ApiError) or error.status in (429, 500, 503), error
                await self.client.clock.sleep(0.02)

    def _see(self, said: dict[str, Any]) -> None:
        status, meta = said.get("status") or {}, said["metadata"]
        key, turned = (meta["uid"], status.get("attempt", 0)), _turned(status)
        deleted = seconds(meta["deletionTimestamp"]) if "deletionTimestamp" in meta else None
        ended = deleted if "Admitted" in turned else turned.get("Evicted", deleted)
        if not key[1]:
            return
        self.last[key[0]] = max(self.last[key[0]], key[1])
        if "Admitted" in turned and key not in self.held:
            self.held[key] = turned["Admitted"], _gpus(said)
        elif not {"Admitted", "Evicted"} & turned.keys():
            self.promised.add(key)
        if status.get("reason") == "RoomTaken" and seconds(_served(status)) < turned["Evicted"]:
            self.held.pop(key, None)
            self.promised.add(key)
        if {"Admitted", "Finished"} <= turned.keys():  # what is deleted holds its room until it finishes, if it does
            self.ends[key] = turned["Finished"]
        elif ended:
            self.ends.setdefault(key, ended)

    def total(self) -> float:
        """GPU-seconds."""
        there = {(uid, at) for uid, last in self.last.items() for at in range(1, last + 1)}
        assert self.held.keys() <= there <= self.held.keys() | self.promised
        return sum(gpus * max(0.0, self.ends[key] - began) for key, (began, gpus) in self.held.items())


def _turned(status: dict[str, Any]) -> dict[str, float]:
    true = [it for it in status.get("conditions", ()) if it["status"] == "True"]
    return {it["type"]: seconds(it["lastTransitionTime"]) for it in true}


def _served(status: dict[str, Any]) -> str:
    """Until when it has held something, over all attempts."""
    return str((status.get("served") or {}).get("until", "1970-01-01T00:00:00Z"))


def _gpus(said: dict[str, Any]) -> int:
    asked = said["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]
    return int(asked[GPU]) * int(said["spec"]["podSets"][0].get("count", 1))


def _job(name: str, chance: random.Random) -> dict[str, Any]:
    asked = {"cpu": "100m", GPU: str(chance.choice((1, 1, 2)))}
    command = ["sleep", f"{chance.choice((0.1, 0.5, 1.5)):.1f}"]
    container = {"name": "main", "image": "x", "command": command, "resources": {"requests": asked, "limits": asked}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    meta = {"name": name, "namespace": "default", "labels": {"fairway.dev/queue": "default"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": {"spec": pod}}}


async def _submit(client: Client, names: list[str], chance: random.Random) -> None:
    for at, name in enumerate(names):
        await insist(client, lambda name=name: client.create(kinds.JOBS, _job(name, chance)))
        if chance.random() < 0.2 and at > 3:
            await insist(client, lambda at=at: client.delete(Ref(kinds.JOBS, names[at - 3], "default")))
        await client.clock.sleep(0.05)


async def _charged(client: Client) -> float:
    """GPU-seconds, once no Job and no Workload is left: each Workload is kept until all of it is charged."""
    while True:
        jobs = await insist(client, lambda: client.list(Selection(kinds.JOBS)))
        if not jobs and not await insist(client, lambda: client.list(Selection(kinds.WORKLOADS))):
            break
        for job in jobs:
            status = job.get("status") or {}
            if "completionTime" in status or status.get("failed"):
                place = Ref(kinds.JOBS, job["metadata"]["name"], "default")
                await insist(client, lambda place=place: client.delete(place))
        await client.clock.sleep(0.1)
    days = await insist(client, lambda: client.list(Selection(kinds.USAGE_DAYS)))
    podset = {"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "main"}]}}}
    mark = {"apiVersion": kinds.FAIRWAY, "kind": "Workload", "metadata": {"name": MARK},
            "spec": {"queue": "none", "podSets": [podset]}}  # fmt: skip
    await insist(client, lambda: client.create(kinds.WORKLOADS, mark, namespace="default"))
    return sum(row["allocated"] for one in days for row in one.get("status", {}).get("rows", ())) / 1000


@pytest.mark.parametrize("seed, kills", SEEDS)
async def test_accounts_equal_a_sum_made_beside_them_whatever_is_killed(seed: int, kills: int, tmp_path: Path) -> None:
    clock, chance, folder, spawn = Clock(), random.Random(seed), tmp_path / "data", lives()

    def start() -> Any:
        made = spawn.Process(target=live, args=(folder, "8", 4, tmp_path / "log"))
        made.start()
        return made

    life = start()
    while not (folder / "kubeconfig").exists():
        await clock.sleep(0.05)
    async with http_transport(load_config([folder / "kubeconfig"]), clock) as transport:
        client = Client(transport, clock)
        observer = Observer(client)
        await insist(client, lambda: client.list(Selection(kinds.WORKLOADS)))
        watching = asyncio.create_task(observer.run())
        names = [f"job-{at}" for at in range(JOBS_PER_KILL * kills)]
        submitting = asyncio.create_task(_submit(client, names, chance))
        for _ in range(kills):
            await some_moment(folder, life.pid, chance)
            os.kill(life.pid, signal.SIGKILL)
            await asyncio.to_thread(life.join)
            life = start()
        await submitting
        charged = await clock.within(60.0 * kills, _charged(client))
        await watching
    await down(folder, clock)
    await asyncio.to_thread(life.join)
    held = observer.total()
    print(f"seed={seed} kills={kills} attempts={len(observer.held)} held={held:.3f} charged={charged:.3f} GPU-seconds")
    assert len(observer.last) > kills and held > 0
    assert abs(charged - held) < 0.001 * len(observer.held) + 0.001
