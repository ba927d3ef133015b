"""`up` and `down` as processes: one at a time, nothing left behind, everything found again."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster import until

from fairway.clock import Clock
from fairway.embedded.datadir import UpError, detach, down
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.config import load
from fairway.kube.http import http_transport
from fairway.kube.kinds import Ref, Selection
from fairway.node.container import holder
from fairway.node.ports import port_of

ALONE = [sys.executable, str(Path(__file__).with_name("alone.py"))]


@asynccontextmanager
async def client_of(folder: Path) -> AsyncIterator[Client]:
    clock = Clock()
    async with http_transport(load([folder / "kubeconfig"]), clock) as transport:
        yield Client(transport, clock)


async def start(folder: Path, *rest: str) -> None:
    await detach([*ALONE, str(folder), *rest], folder, Clock())


def is_running(folder: Path) -> bool:
    return bool(holder(folder / "lock"))


def shims(folder: Path) -> list[Path]:
    return [lock for lock in (folder / "pods").glob("*-*/containers/*/*/lock") if holder(lock)]


async def run_pod(client: Client, script: str) -> dict[str, Any]:
    """A pod on this machine, when it runs."""
    node = (await client.list(Selection(kinds.NODES)))[0]["metadata"]["name"]
    spec = {"restartPolicy": "Never", "nodeName": node,
            "containers": [{"name": "main", "image": "i", "command": ["sh", "-c", script]}]}
    await client.create(kinds.PODS, {"metadata": {"name": "a", "namespace": "default"}, "spec": spec})

    async def holds() -> Any:
        pod = await client.get(Ref(kinds.PODS, "a", "default"))
        return pod if pod["status"].get("phase") == "Running" else None

    return await until(client, 20, holds)


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    """A data directory with a cluster that runs; it is stopped in the end, whatever the test did to it."""
    await start(tmp_path / "data")
    yield tmp_path / "data"
    with pytest.raises(UpError):
        await down(tmp_path / "data", Clock())
        await down(tmp_path / "data", Clock())


async def test_a_second_up_says_that_one_runs(folder: Path):
    second = subprocess.run([*ALONE, str(folder)], capture_output=True, text=True)
    assert second.returncode == 1
    assert second.stderr == f"alone: a cluster runs on {folder} already; `fairway down --data-dir {folder}` stops it\n"
    with pytest.raises(UpError, match="runs on"):
        await start(folder)


async def test_down_stops_the_containers_and_is_refused_the_second_time(folder: Path):
    async with client_of(folder) as client:
        await run_pod(client, f"trap 'echo bye > {folder}/bye; exit 0' TERM; while :; do sleep 0.05; done")
    assert is_running(folder) and len(shims(folder)) == 1
    await down(folder, Clock())
    assert not is_running(folder) and not shims(folder) and (folder / "bye").read_text() == "bye\n"
    with pytest.raises(UpError, match="no cluster runs"):
        await down(folder, Clock())


async def test_ctrl_c_stops_the_containers_and_a_second_one_does_not_wait(folder: Path):
    async with client_of(folder) as client:
        await run_pod(client, f"trap 'echo bye > {folder}/bye' TERM; while :; do sleep 0.05; done")
    pid = holder(folder / "lock")
    os.kill(pid, signal.SIGINT)
    while not (folder / "bye").exists():
        await asyncio.sleep(0.02)
    assert shims(folder)
    os.kill(pid, signal.SIGINT)
    while holder(folder / "lock"):
        await asyncio.sleep(0.02)
    assert not shims(folder)


async def test_the_next_up_goes_on_where_the_last_one_stopped(folder: Path):
    kubeconfig = (folder / "kubeconfig").read_text()
    async with client_of(folder) as client:
        pod = await run_pod(client, f"echo x >> {folder}/starts; sleep 100")
    await down(folder, Clock())
    await start(folder)
    assert (folder / "kubeconfig").read_text() == kubeconfig
    async with client_of(folder) as client:
        async def runs_again() -> bool:
            return (folder / "starts").read_text() == "x\nx\n"

        await until(client, 20, runs_again)
        found = await client.get(Ref(kinds.PODS, "a", "default"))
    assert found["metadata"]["uid"] == pod["metadata"]["uid"]


async def test_down_ends_what_a_killed_cluster_left_running(folder: Path):
    async with client_of(folder) as client:
        await run_pod(client, "sleep 100")
    os.kill(holder(folder / "lock"), signal.SIGKILL)
    while is_running(folder):
        await asyncio.sleep(0.02)
    assert shims(folder)
    await down(folder, Clock())
    assert not shims(folder)
    with pytest.raises(UpError, match="no cluster runs"):
        await down(folder, Clock())


async def test_what_is_kept_is_for_its_owner_only(folder: Path):
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    async with client_of(folder) as client:
        pod = await run_pod(client, "sleep 100")
    ports, place = folder / "pods/ports", folder / "pods" / pod["metadata"]["uid"]
    port_of("a gang", ports)
    ours = [*folder.iterdir(), ports, place, *place.glob("containers/*/*/*")]
    assert len(ours) > 15
    for file in ours:
        assert stat.S_IMODE(file.stat().st_mode) == (0o700 if file.is_dir() else 0o600), file


async def test_hollow_nodes_of_a_file_stand_beside_this_machine(tmp_path: Path):
    (tmp_path / "nodes.yaml").write_text("{kind: Node, metadata: {name: paper}, status: {capacity: {cpu: 64}}}")
    await start(tmp_path / "data", str(tmp_path / "nodes.yaml"))
    async with client_of(tmp_path / "data") as client:
        nodes = await client.list(Selection(kinds.NODES))
    await down(tmp_path / "data", Clock())
    cpus = {node["metadata"]["name"]: node["status"]["capacity"]["cpu"] for node in nodes}
    assert cpus.pop("paper") == "64" and list(cpus.values()) == ["2"]


async def test_pods_run_on_hollow_nodes_and_not_on_nodes_of_others(tmp_path: Path):
    (tmp_path / "nodes.yaml").write_text("{kind: Node, metadata: {name: paper}, status: {capacity: {cpu: 64}}}")
    await start(tmp_path / "data", str(tmp_path / "nodes.yaml"))
    await down(tmp_path / "data", Clock())
    await start(tmp_path / "data")  # without the file: the node is still hollow
    async with client_of(tmp_path / "data") as client:
        await client.create(kinds.NODES, {"metadata": {"name": "foreign"}, "spec": {}})
        for name in ("foreign", "paper"):
            spec = {"nodeName": name, "containers": [{"name": "c", "image": "x"}]}
            await client.create(kinds.PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        phases = {}
        while phases.get("paper") != "Running":
            await asyncio.sleep(0.05)
            found = await client.list(Selection(kinds.PODS))
            phases = {it["metadata"]["name"]: it["status"]["phase"] for it in found}
    await down(tmp_path / "data", Clock())
    assert phases == {"foreign": "Pending", "paper": "Running"}


@pytest.mark.parametrize("name, text, said", [
    ("state.db", "not a database, and rather long for one" * 100, "state.db"),
    ("nodes.yaml", "kind: Pod", "must be a Node"),
])
async def test_what_cannot_be_used_is_one_line_and_stays_as_it_was(name: str, text: str, said: str, tmp_path: Path):
    (tmp_path / name).write_text(text)
    told = subprocess.run([*ALONE, str(tmp_path), *([str(tmp_path / name)] if name == "nodes.yaml" else [])],
                          capture_output=True, text=True)
    assert told.returncode == 1 and said in told.stderr and told.stderr.count("\n") == 1
    assert (tmp_path / name).read_text() == text and not is_running(tmp_path)


@pytest.mark.parametrize("crashes", [False, True])
async def test_up_is_ready_when_what_ended_meanwhile_is_over_by_its_status(crashes: bool, tmp_path: Path):
    folder, program = tmp_path / "data", [*ALONE[:1], str(Path(__file__).with_name("late.py")), str(tmp_path / "data")]
    await detach(program, folder, Clock())
    workload = Ref(kinds.WORKLOADS, "job-a", "default")
    async with client_of(folder) as client:

        async def runs() -> bool:
            found = await client.find(workload) or {}
            return found.get("status", {}).get("phase") == "Running" and bool(shims(folder))

        await until(client, 20, runs)
    if crashes:
        os.kill(holder(folder / "lock"), signal.SIGKILL)
    else:
        await down(folder, Clock(), keeps_pods=True)
    (folder / "end").touch()

    async def ended() -> bool:
        return not shims(folder) and not is_running(folder)

    await until(client, 20, ended)
    await detach(program, folder, Clock())
    async with client_of(folder) as client:
        assert (await client.get(workload))["status"]["phase"] == "Succeeded"
    await down(folder, Clock())


async def test_down_that_keeps_pods_leaves_them_running_for_the_next_up(folder: Path):
    async with client_of(folder) as client:
        pod = await run_pod(client, f"echo x >> {folder}/starts; while [ ! -e {folder}/end ]; do sleep 0.05; done")
    await down(folder, Clock(), keeps_pods=True)
    assert not is_running(folder) and len(shims(folder)) == 1
    with pytest.raises(UpError, match="no cluster runs"):
        await down(folder, Clock(), keeps_pods=True)
    assert len(shims(folder)) == 1
    await start(folder)
    (folder / "end").touch()
    async with client_of(folder) as client:

        async def has_ended() -> Any:
            found = await client.get(Ref(kinds.PODS, "a", "default"))
            return found if found["status"]["phase"] == "Succeeded" else None

        found = await until(client, 20, has_ended)
    assert found["metadata"]["uid"] == pod["metadata"]["uid"] and (folder / "starts").read_text() == "x\n"


PORTS = [("port", it) for it in (b"http", b"", b"-1", b"99999", b"9" * 5000, b"\xff\xfe")]
SMALL = ("ready", "lock", "token", "server.key", "server.crt", "ca.crt", "kubeconfig")


@pytest.mark.parametrize("name, content", [*PORTS, *((name, b"\xff\xfe \n x") for name in SMALL)])
async def test_a_small_file_that_is_broken_is_made_anew(name: str, content: bytes, tmp_path: Path):
    (tmp_path / name).write_bytes(content)
    await start(tmp_path)
    async with client_of(tmp_path) as client:
        assert len(await client.list(Selection(kinds.NODES))) == 1
    await down(tmp_path, Clock())


@pytest.mark.parametrize("name", [*SMALL[1:], "port", "pods", "state.db"])
async def test_a_file_that_cannot_be_one_is_one_line(name: str, tmp_path: Path):
    if name == "pods":
        (tmp_path / name).write_text("a file")
    else:
        (tmp_path / name / "full").mkdir(parents=True)
    told = subprocess.run([*ALONE, str(tmp_path)], capture_output=True, text=True)
    assert told.returncode == 1 and name in told.stderr and told.stderr.count("\n") == 1, told.stderr
