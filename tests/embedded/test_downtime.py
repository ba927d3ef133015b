"""The machine goes down with all that runs there: what was admitted begins again, charged until then and no further."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from cluster import job, until
from lives import live, lives

from fairway.api.objects import WENT_DOWN
from fairway.api.quantities import time
from fairway.clock import Clock
from fairway.embedded.datadir import UpError, down
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.config import load
from fairway.kube.http import http_transport
from fairway.kube.kinds import Ref, Selection
from fairway.kube.runs import LOST, kept
from fairway.node.container import MARK, holder

GPUS = 2
Status = dict[str, Any]


@asynccontextmanager
async def life(data: Path, log: Path | None = None) -> AsyncIterator[Client]:
    """A life of the cluster, however it ends; what is left of it is ended."""
    clock, process = Clock(), lives().Process(target=live, args=(data, "16", 8, log))
    process.start()
    try:
        while not (data / "ready").exists():
            await clock.sleep(0.05)
        async with http_transport(load([data / "kubeconfig"]), clock) as transport:
            yield Client(transport, clock)
    except BaseException:
        with suppress(UpError):
            await down(data, clock)
        raise
    finally:
        if holder(data / "lock"):
            await down(data, clock, keeps_pods=True)
        await asyncio.to_thread(process.join)


async def crash(data: Path) -> None:
    """Kills the server, the shims and their programs, as a loss of power would."""
    marked = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if one.environ().get(MARK, "").startswith(str(data)):
                marked.append(one.pid)
    shims = [holder(lock) for lock in data.glob("pods/*/containers/*/*/lock")]
    for pid in filter(None, (holder(data / "lock"), *shims, *marked)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while holder(data / "lock") or any(map(holder, data.glob("pods/*/containers/*/*/lock"))):
        await asyncio.sleep(0.02)
    (data / "ready").unlink()


async def stop(data: Path) -> None:
    await down(data, Clock())


async def leave(data: Path) -> None:
    await down(data, Clock(), keeps_pods=True)


async def kill(data: Path) -> None:
    """Kills the server alone."""
    os.kill(holder(data / "lock") or 0, signal.SIGKILL)
    while holder(data / "lock"):
        await asyncio.sleep(0.02)
    (data / "ready").unlink()


def gang(script: str) -> Status:
    made = job("gang", completions=GPUS, parallelism=GPUS, completionMode="Indexed", backoffLimit=0)
    made["metadata"]["labels"] = {"fairway.dev/queue": "default"}
    container = made["spec"]["template"]["spec"]["containers"][0]
    container |= {"command": ["sh", "-c", script], "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "100m"}}}
    return made


def pod(script: str) -> Status:
    container = {"name": "main", "image": "i", "command": ["sh", "-c", script],
                 "resources": {"limits": {"nvidia.com/gpu": str(GPUS), "cpu": "100m"}}}
    meta = {"name": "alone", "namespace": "default", "labels": {"fairway.dev/queue": "default"}}
    spec = {"schedulerName": "fairway", "restartPolicy": "Never", "containers": [container]}
    return {"metadata": meta, "spec": spec}


async def starts(client: Client, place: Path, count: int) -> None:
    async def holds() -> bool:
        return place.exists() and len(place.read_text().split()) >= count

    await until(client, 30, holds)


async def phase(client: Client, *wanted: str) -> Status:
    async def holds() -> Any:
        found = [it["status"] for it in await client.list(Selection(kinds.WORKLOADS)) if it.get("status")]
        return found[0] if found and found[0]["phase"] in wanted else None

    return await until(client, 30, holds)


async def runs_again(client: Client) -> Status | None:
    """Its status once it runs after an eviction: its processes may be there before that is written."""
    status = await phase(client, "Running")
    return status if status.get("evictionHistory") else None


def since(status: Status, kind: str) -> float:
    found = {it["type"]: it["lastTransitionTime"] for it in status["conditions"] if it["status"] == "True"}
    return time(found[kind])


async def devices(client: Client) -> list[str]:
    return sorted(it["metadata"]["annotations"]["fairway.dev/assigned-devices"]
                  for it in await client.list(Selection(kinds.PODS)))  # fmt: skip


async def outlasts(client: Client, data: Path) -> None:
    """Waits for a sign of life that is later than when the pods got ready, in whole seconds as they tell it."""
    ready = max([since(it["status"], "Ready") for it in await client.list(Selection(kinds.PODS))])

    async def holds() -> bool:
        return any(it.stat().st_mtime >= ready + 1 for it in data.glob("state.db*"))

    await until(client, 30, holds)


async def downtimes(client: Client) -> list[str]:
    nodes = await client.list(Selection(kinds.NODES))
    return [it["metadata"]["annotations"].get(WENT_DOWN, "") for it in nodes]


async def told_of_stop(client: Client) -> bool:
    events = await client.list(Selection(kinds.EVENTS, "default"))
    return any("the cluster was stopped" in it["message"] for it in events if it["reason"] == "NodeLost")


@pytest.mark.parametrize("end", [stop, crash])
async def test_a_gang_begins_again_when_its_machine_is_back_and_is_charged_until_it_went_down(end: Any, tmp_path: Path):
    data, told = tmp_path / "data", tmp_path / "told"
    script = f"echo $RANK >> {told}; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    async with life(data) as client:
        await client.create(kinds.JOBS, gang(script))
        before = await phase(client, "Running")
        await starts(client, told, GPUS)
        places = await devices(client)
        await outlasts(client, data)
        await end(data)
    async with life(data) as client:
        await starts(client, told, 2 * GPUS)
        after = await until(client, 30, lambda: runs_again(client))
        [said] = await downtimes(client)
        went, back = map(time, said.split("/"))
        assert await devices(client) == places and len(told.read_text().split()) == 2 * GPUS
        await until(client, 10, lambda: told_of_stop(client))
        (tmp_path / "go").touch()
        over = await phase(client, "Succeeded", "Failed")
        await down(data, Clock())
    began = since(before, "Admitted")
    assert since(after, "Admitted") == back and began < went < back
    assert [(it["reason"], time(it["time"])) for it in after["evictionHistory"]] == [("NodeLost", went)]
    assert after["attained"] == pytest.approx(GPUS * (went - began), abs=1e-3)
    assert over["phase"] == "Succeeded"
    assert over["attained"] == pytest.approx(GPUS * (went - began + since(over, "Finished") - back), abs=1e-3)


async def test_what_runs_on_beside_a_server_that_is_restarted_goes_on(tmp_path: Path):
    data, told = tmp_path / "data", tmp_path / "told"
    async with life(data) as client:
        await client.create(kinds.JOBS, gang(f"echo $RANK >> {told}; exec sleep 600"))
        before = await phase(client, "Running")
        await starts(client, told, GPUS)
        await leave(data)
    async with life(data) as client:
        after = await phase(client, "Running")
        assert await downtimes(client) == [""]
        await down(data, Clock())
    assert since(after, "Admitted") == since(before, "Admitted") and "evictionHistory" not in after
    assert len(told.read_text().split()) == GPUS


async def test_a_loss_that_was_told_stays_as_it_was_told_when_the_machine_goes_down_later(tmp_path: Path):
    data, told = tmp_path / "data", tmp_path / "told"

    async def losses(client: Client) -> dict[str, str]:
        [own] = await client.list(Selection(kinds.WORKLOADS))
        runs = await kept(client, Ref(kinds.WORKLOADS, own["metadata"]["name"], "default"))
        return {it.id: it.finished or "" for it in runs.items if it.reason == LOST} if runs else {}

    async with life(data) as client:
        await client.create(kinds.JOBS, gang(f"echo $RANK >> {told}; exec sleep 600"))
        await starts(client, told, GPUS)
        await kill(data)
        [first, *_] = filter(None, map(holder, data.glob("pods/*/containers/*/*/lock")))
        os.kill(first, signal.SIGKILL)
    async with life(data) as client:
        before = await until(client, 30, lambda: losses(client))
        last = max(map(time, before.values()))

        async def is_later() -> bool:
            return any(it.stat().st_mtime >= last + 2 for it in data.glob("state.db*"))

        await until(client, 30, is_later)
        await crash(data)
    async with life(data) as client:
        after = await losses(client)
        await down(data, Clock())
    assert len(before) == 1 and before.items() <= after.items()


@pytest.mark.parametrize("is_stopped", [False, True])
@pytest.mark.parametrize("end", [leave, kill])
async def test_what_ended_while_no_server_ran_ended_when_its_containers_did(
    end: Any, is_stopped: bool, tmp_path: Path
):
    """`is_stopped`: `down` ends, before the next server comes, what else still runs."""
    data, go, log = tmp_path / "data", tmp_path / "go", tmp_path / "log"
    async with life(data) as client:
        await client.create(kinds.JOBS, gang(f"while [ ! -e {go} ]; do sleep 0.05; done"))
        if is_stopped:
            await client.create(kinds.PODS, pod(f"echo x >> {tmp_path}/told; exec sleep 600"))
            await starts(client, tmp_path / "told", 1)
        before = await phase(client, "Running")
        await end(data)
    go.touch()
    while len(ends := list(data.glob("pods/*/containers/*/*/exit"))) < GPUS or max(
        it.stat().st_mtime for it in ends
    ) > Clock().now() - 3:
        await asyncio.sleep(0.05)
    if is_stopped:
        with suppress(UpError):  # that no server runs
            await down(data, Clock())
    async with life(data, log) as client:
        over = await phase(client, "Succeeded", "Failed")
        [made] = await client.list(Selection(kinds.JOBS))
        gone = [it["status"] for it in await client.list(Selection(kinds.PODS)) if it["metadata"]["name"] != "alone"]
        pods = [it["containerStatuses"] for it in gone]
        await down(data, Clock())
    last = max(it["state"]["terminated"]["finishedAt"] for [it] in pods)
    began, ended = since(before, "Admitted"), since(over, "Finished")
    assert made["status"]["completionTime"] == last
    assert ended == max(time(last), since(before, "Running"))
    assert over["attained"] == pytest.approx(GPUS * (ended - began), abs=1e-3)
    [told] = [line for line in log.read_text().splitlines() if " finished " in line]
    assert time(told.split()[0]) == int(ended) and told.endswith("late=true")


@pytest.mark.parametrize("end", [stop, crash])
async def test_a_pod_that_is_its_own_workload_begins_again_too(end: Any, tmp_path: Path):
    data, told = tmp_path / "data", tmp_path / "told"
    async with life(data) as client:
        await client.create(kinds.PODS, pod(f"echo x >> {told}; exec sleep 600"))
        await starts(client, told, 1)
        assert not await client.list(Selection(kinds.WORKLOADS))
        await end(data)
    async with life(data) as client:
        await starts(client, told, 2)
        after = await phase(client, "Running")
        [said] = await downtimes(client)
        [found] = await client.list(Selection(kinds.PODS))
        await down(data, Clock())
    went, back = map(time, said.split("/"))
    began = next(it["lastTransitionTime"] for it in found["status"]["conditions"] if it["type"] == "PodScheduled")
    assert since(after, "Admitted") == back
    assert after["attained"] == pytest.approx(GPUS * (went - time(began)), abs=1e-3)
