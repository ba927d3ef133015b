"""A file system that is really full: jobs can be deleted, what fills it is named, and work goes on when it is gone."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from inprocess import MAPS, Api, api, config
from test_up import client_of, is_running, run_pod, start

from fairway.clock import Clock
from fairway.embedded.database import Database
from fairway.embedded.datadir import UpError, down
from fairway.embedded.disk import RESERVE_BYTES, usage
from fairway.embedded.gate import CONTROLLER
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Ref, Selection
from fairway.kube.transport import Request
from fairway.node.archive import Origin, write_origin

MAPS_KIND = kinds.Kind("ConfigMap", "configmaps", "v1")
EVENTS = "/api/v1/namespaces/default/events"
KIB = 1 << 10


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(file: Path) -> None:
    """Writes until the file system takes no more byte."""
    with open(file, "ab", buffering=0) as out, suppress(OSError):
        while True:
            out.write(b"x" * KIB)


async def made(place: Path) -> Api:
    """A server on a database with a reserve, which holds some objects."""
    server = api(database=Database(str(place / "state.db"), reserve=RESERVE_BYTES))
    await server.server.start()
    await server.store.full_disk()
    for number in range(20):
        await server.ok("POST", MAPS, config(f"old{number}") | {"data": {"x": "y" * 20_000}})
    return server


async def test_on_a_full_disk_objects_are_changed_and_deleted_and_none_is_made(small_disk: Path):
    server = await made(small_disk)
    fill(small_disk / "junk")
    refused = {}
    for number in range(500):
        status, refused = await server.ask("POST", MAPS, config(f"new{number}") | {"data": {"x": "y" * 20_000}})
        if status == 507:
            break
    assert refused["reason"] == "InsufficientStorage" and f"in {small_disk}: junk " in refused["message"]
    for number in range(20):
        await server.ok("PATCH", f"{MAPS}/old{number}", {"metadata": {"labels": {"a": "b"}}},
                        "application/merge-patch+json")
        await server.ok("DELETE", f"{MAPS}/old{number}")
    (small_disk / "junk").unlink()
    await server.ok("POST", MAPS, config("after"))
    assert (small_disk / "state.db.reserve").stat().st_size == RESERVE_BYTES
    await server.store.close()
    again = api(database=Database(str(small_disk / "state.db")))
    names = await again.names(MAPS)
    assert "after" in names and "old0" not in names
    await again.store.close()


async def test_on_a_full_disk_the_record_of_a_cancelled_workload_is_kept_and_no_other_event(small_disk: Path):
    server = await made(small_disk)
    fill(small_disk / "junk")
    for number in range(500):
        if (await server.ask("POST", MAPS, config(f"new{number}") | {"data": {"x": "y" * 20_000}}))[0] == 507:
            break
    ask = server.server.spoken_by(CONTROLLER)

    async def told(reason: str) -> int:
        about = {"kind": "Workload", "name": "job-a", "namespace": "default"}
        event = {"metadata": {"name": reason.lower()}, "involvedObject": about, "reason": reason}
        headers = {"content-type": "application/json"}
        return (await ask(Request("POST", EVENTS, (), headers, msgspec.json.encode(event)))).status

    assert (await told("Admitted"), await told("Cancelled")) == (507, 201)
    assert await server.names(EVENTS) == ["cancelled"]
    await server.store.close()


async def ended(client: Client, pod: Ref) -> None:
    while True:
        try:
            await client.get(pod)
        except ApiError as error:
            assert error.status == 404
            return
        await asyncio.sleep(0.05)


async def test_the_pod_that_fills_the_disk_is_deleted_and_work_goes_on(small_disk: Path):
    folder = small_disk / "data"
    await start(folder)
    async with client_of(folder) as client:
        await run_pod(client, f"while :; do cat /dev/zero >> {folder}/output 2>/dev/null; sleep 0.01; done")

        async def create(number: int) -> Any:
            value = {"metadata": {"name": f"c{number}"}, "data": {"x": "y" * 100_000}}
            return await client.create(MAPS_KIND, value, namespace="default")

        with pytest.raises(ApiError) as refused:
            for number in range(1000):
                await create(number)
        assert refused.value.status == 507 and "output" in refused.value.message
        await client.delete(Ref(kinds.PODS, "a", "default"), grace=1)
        await asyncio.wait_for(ended(client, Ref(kinds.PODS, "a", "default")), 30)
        assert len(await client.list(Selection(MAPS_KIND, "default"))) >= 1
        os.unlink(folder / "output")
        await create(2000)
    await down(folder, Clock())


async def test_a_program_that_filled_the_disk_ends_with_its_own_exit_code(small_disk: Path):
    folder = small_disk / "data"
    await start(folder)
    async with client_of(folder) as client:
        await run_pod(client, f"until test -e {small_disk}/../go; do sleep 0.01; done; cat /dev/zero > output; exit 3")
        fill(small_disk / "junk")
        (small_disk.parent / "go").touch()
        pod = await asyncio.wait_for(over(client, Ref(kinds.PODS, "a", "default")), 30)
        assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    await down(folder, Clock())


async def over(client: Client, pod: Ref) -> Any:
    while (found := await client.get(pod))["status"]["phase"] not in ("Succeeded", "Failed"):
        await asyncio.sleep(0.05)
    return found


async def test_up_on_a_full_disk_starts_again_or_says_so(small_disk: Path):
    folder = small_disk / "data"
    await start(folder)
    await down(folder, Clock())
    fill(small_disk / "junk")
    await start(folder)
    assert is_running(folder)
    await down(folder, Clock())
    fill(small_disk / "junk")
    with pytest.raises(UpError) as told:
        await start(folder)
    assert "disk" in str(told.value) and "\n" not in str(told.value)


def test_usage_names_the_jobs_of_its_reader_and_the_folders_of_their_logs(tmp_path: Path):
    files = {"pods/one/output": 300, "pods/two/output": 100, "logs/ml/job-a/1/output": 80, "state.db": 50, "token": 1}
    for name, size in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size * KIB)
    write_origin(tmp_path / "pods" / "one", Origin("ml", "job-big", "u", 1, "big-x", "n", "main"))
    told = usage(tmp_path, "ml")
    assert told.index("pods 4") < told.index("logs ") < told.index("state.db")
    assert told.index("(of it: job big 3") < told.index("two 1") < told.index("logs/ml/job-a 8")
    others = usage(tmp_path, "default")
    assert "job big" not in others and "ml" not in others.replace(str(tmp_path), "")
    assert "jobs of other namespaces 3" in others and "logs of other namespaces 9" in others


async def test_the_log_of_the_cluster_says_once_that_the_disk_is_full_and_removed_logs_free_it(
    small_disk: Path, caplog: pytest.LogCaptureFixture
):
    server, logs = await made(small_disk), small_disk / "logs" / "default" / "job-old"
    logs.mkdir(parents=True)
    fill(logs / "output")
    refused = []
    for number in range(200):
        status, said = await server.ask("POST", MAPS, config(f"new{number}") | {"data": {"x": "y" * 100_000}})
        refused += [said["message"]] if status == 507 else []
        if len(refused) == 3:
            break
    assert "logs/default/job-old" in refused[-1] and f"rm -r {small_disk}/logs/NAMESPACE/WORKLOAD" in refused[-1]
    assert [it.getMessage() for it in caplog.records if "is full" in it.getMessage()] == [
        f"the disk of {small_disk} is full: nothing new is created until there is space"
    ]
    shutil.rmtree(logs)
    await server.ok("POST", MAPS, config("after"))
