"""Processes that are frozen and go on: with a real shim, and the driver's calls on a library made in the test."""

import asyncio
import marshal
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from box import COUNTER, Box, grows, machine, needs_criu
from cluster import until

from fairway.api.objects import FREEZE, FROZEN, SAVE
from fairway.kube import kinds
from fairway.kube.kinds import Ref, Selection
from fairway.node.container import Attempt, inspect, stop_all
from fairway.node.execute import Order
from fairway.node.pause.cuda import Cuda, CudaError
from fairway.node.pause.disk import MARK, DiskError, _terminal, can_save, criu, dump
from fairway.node.pause.freezer import Freezer, children
from fairway.node.pause.gang import next_step
from fairway.node.pause.stand import LOCKED, RUNNING, SAVED, STILL, Stand, ask, stand_of
from fairway.node.podstatus import SHUTDOWN

COUNT = "n=0; while :; do n=$((n+1)); echo $n > count.new; mv count.new count; sleep 0.01; done"
TREE = f"(setsid sh -c '{COUNT}' & ); {COUNT.replace('count', 'own')}"


async def annotate(box: Box, name: str, request: str | None) -> None:
    await box.client.patch(Ref(kinds.PODS, name, "default"), {"metadata": {"annotations": {FREEZE: request}}})


async def condition(box: Box, name: str, kind: str, status: str) -> dict[str, Any]:
    async def holds() -> Any:
        told = (await box.status(name)).get("conditions") or ()
        return next((it for it in told if it["type"] == kind and it["status"] == status), None)

    return await until(box.client, 20, holds)


async def test_a_frozen_pod_stands_still_whole_and_goes_on_from_the_same_instruction(box: Box) -> None:
    pod = await box.run("a", TREE)
    work = box.folder / pod["metadata"]["uid"] / "work"
    await grows(work / "count")
    await grows(work / "own")
    await annotate(box, "a", "r1")
    await condition(box, "a", FROZEN, "True")
    await condition(box, "a", "Ready", "False")
    then = {name: int((work / name).read_text()) for name in ("count", "own")}
    states = {state_of(pid) for pid in tree(box.attempt(pod))}
    assert states <= {"T", "Z"}
    assert then == {name: int((work / name).read_text()) for name in then}
    await annotate(box, "a", None)
    await condition(box, "a", "Ready", "True")
    assert await grows(work / "count") > then["count"]
    assert await grows(work / "own") > then["own"]
    assert (await box.status("a"))["containerStatuses"][0]["restartCount"] == 0


def tree(attempt: Path) -> list[int]:
    """All processes of a container."""
    mark = f"FAIRWAY_CONTAINER={attempt}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_a_frozen_pod_is_stopped_with_its_grace(box: Box) -> None:
    await box.run("a", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.02; done")
    await condition(box, "a", "Ready", "True")
    await annotate(box, "a", "r1")
    await condition(box, "a", FROZEN, "True")
    await box.client.delete(Ref(kinds.PODS, "a", "default"))
    await box.gone("a")


async def test_a_frozen_pod_outlives_the_runner_and_wakes_in_its_next_life(tmp_path: Path) -> None:
    life = machine(tmp_path)
    async with life as first:
        pod = await first.run("a", COUNT)
        work = first.folder / pod["metadata"]["uid"] / "work"
        await grows(work / "count")
        await annotate(first, "a", "r1")
        await condition(first, "a", FROZEN, "True")
    then = int((work / "count").read_text())
    async with machine(tmp_path, life.registry) as second:
        await annotate(second, "a", None)
        assert await grows(work / "count") > then
    await asyncio.to_thread(stop_all, tmp_path / "pods", SHUTDOWN, at_most=0.0)


@needs_criu
async def test_a_frozen_process_goes_to_disk_when_the_machine_goes_down_and_counts_on_later(tmp_path: Path) -> None:
    program = "import itertools, pathlib, time\nfor n in itertools.count():\n  print(n, file=open('count', 'w'))\n"
    life = machine(tmp_path)
    async with life as first:
        command = {"command": [sys.executable, "-c", program + "  time.sleep(0.01)"]}
        pod = await first.run("a", "", container=command)
        count = first.folder / pod["metadata"]["uid"] / "work" / "count"
        while not (count.exists() and count.read_text() > "20"):
            await asyncio.sleep(0.01)
        await annotate(first, "a", "r1")
        await condition(first, "a", FROZEN, "True")
        await asyncio.to_thread(stop_all, first.folder, SHUTDOWN)
        assert not tree(first.attempt(pod))
        assert inspect(first.attempt(pod)).stopped == "OnDisk"
    async with machine(tmp_path, life.registry) as second:
        await condition(second, "a", FROZEN, "True")
        text = count.read_text()
        await annotate(second, "a", None)
        await condition(second, "a", "Ready", "True")
        assert await grows(count) >= int(text or 0)
        assert inspect(second.attempt(pod, 1)).pid
        assert (await second.status("a"))["containerStatuses"][0]["restartCount"] == 0
        assert not any((second.attempt(pod) / "image").iterdir())
    await asyncio.to_thread(stop_all, tmp_path / "pods", SHUTDOWN, at_most=0.0)


@needs_criu
async def test_a_frozen_process_goes_to_disk_while_the_machine_is_up_and_counts_on_when_it_wakes(box: Box) -> None:
    program = "import itertools, time\nfor n in itertools.count():\n  print(n, file=open('count', 'w'), flush=True)\n"
    pod = await box.run("a", "", container={"command": [sys.executable, "-c", program + "  time.sleep(0.01)"]})
    count = box.folder / pod["metadata"]["uid"] / "work" / "count"
    while not (count.exists() and count.read_text() > "20"):
        await asyncio.sleep(0.01)
    await annotate(box, "a", "r1")
    await condition(box, "a", FROZEN, "True")
    await box.client.patch(Ref(kinds.PODS, "a", "default"), {"metadata": {"annotations": {SAVE: "r1"}}})
    await said(box, "a", "OnDisk")
    assert not tree(box.attempt(pod))
    text = count.read_text()
    await box.client.patch(Ref(kinds.PODS, "a", "default"), {"metadata": {"annotations": {SAVE: None, FREEZE: None}}})
    await condition(box, "a", "Ready", "True")
    assert await grows(count) >= int(text or 0)
    assert (await box.status("a"))["containerStatuses"][0]["restartCount"] == 0


async def said(box: Box, name: str, reason: str) -> str:
    """The message of the condition Frozen, once that has this reason."""

    async def holds() -> Any:
        told = (await box.status(name)).get("conditions") or ()
        return next((it for it in told if it["type"] == FROZEN and it.get("reason") == reason), None)

    return str((await until(box.client, 30, holds)).get("message") or "")


@needs_criu
async def test_what_cannot_go_to_disk_says_why_stays_frozen_and_wakes(box: Box) -> None:
    pod = await box.run("a", TREE)
    work = box.folder / pod["metadata"]["uid"] / "work"
    await grows(work / "count")
    await annotate(box, "a", "r1")
    await box.client.patch(Ref(kinds.PODS, "a", "default"), {"metadata": {"annotations": {SAVE: "r1"}}})
    assert "have left the first one" in await said(box, "a", "NotSaved")
    assert {state_of(pid) for pid in tree(box.attempt(pod))} <= {"T", "Z"}
    await box.client.patch(Ref(kinds.PODS, "a", "default"), {"metadata": {"annotations": {SAVE: None, FREEZE: None}}})
    await condition(box, "a", "Ready", "True")
    assert await grows(work / "own") > 0


async def save(
    box: Box, container: dict[str, Any] | None = None, program: str = "", **rest: Any
) -> tuple[Attempt, int]:
    """A pod `a` that counts, frozen and to be on disk; its attempt, and how far it had counted."""
    command = {"command": [sys.executable, "-c", program + COUNTER]}
    pod = await box.run("a", "", container=command | (container or {}), **rest)
    count = box.folder / pod["metadata"]["uid"] / "work" / "count"
    await grows(count)
    await annotate(box, "a", "r1")
    await condition(box, "a", FROZEN, "True")
    await box.client.patch(Ref(kinds.PODS, "a", "default"), {"metadata": {"annotations": {SAVE: "r1"}}})
    return inspect(box.attempt(pod)), int(count.read_text())


async def resume(box: Box) -> None:
    await box.client.patch(Ref(kinds.PODS, "a", "default"), {"metadata": {"annotations": {SAVE: None, FREEZE: None}}})


async def counted_on(box: Box, attempt: Attempt) -> int:
    """Where it counts again, once it does."""
    await condition(box, "a", "Ready", "True")
    return await grows(attempt.folder.parents[2] / "work" / "count")


def criu_at(folder: Path) -> int:
    """The pid of a CRIU that works in this folder; waits for it. It may have come and gone between two looks."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                is_criu = b"criu\0" in (place / "cmdline").read_bytes()
                if is_criu and os.readlink(place / "cwd") == str(folder / "image"):
                    return int(place.name)
    pytest.skip("CRIU was done before it could be seen")


async def told(box: Box, reason: str, words: str = "") -> str:
    """The message of an event with this reason and these words, once there is one."""

    async def holds() -> Any:
        found = await box.client.list(Selection(kinds.EVENTS))
        return next((it["message"] for it in found if it["reason"] == reason and words in it["message"]), None)

    return str(await until(box.client, 60, holds))


@needs_criu
@pytest.mark.parametrize("victim", ["criu", "shim"])
async def test_a_restore_that_is_killed_is_repeated(box: Box, victim: str) -> None:
    attempt, count = await save(box)
    await said(box, "a", "OnDisk")
    await resume(box)
    criu = await asyncio.to_thread(criu_at, attempt.folder)
    shim = inspect(attempt.folder.with_name("1")).pid
    os.kill({"criu": criu, "shim": shim}[victim], 9)
    assert await counted_on(box, attempt) >= count
    assert (await box.status("a"))["containerStatuses"][0]["restartCount"] == 0
    words = "its processes could not be restored yet: CRIU gave no reason; this is tried again"
    assert await told(box, "NotWoken") == words
    assert not (attempt.folder.with_name("2")).exists()


@needs_criu
@pytest.mark.parametrize("moment", [0.0, 0.02])
async def test_a_freezer_that_is_killed_is_started_again(box: Box, moment: float) -> None:
    attempt, count = await save(box)
    criu = await asyncio.to_thread(criu_at, attempt.folder)
    freezer = int(Path(f"/proc/{criu}/stat").read_text().rpartition(")")[2].split()[1])
    await asyncio.sleep(moment)
    with suppress(ProcessLookupError):  # it was faster
        os.kill(freezer, 9)
    await said(box, "a", "OnDisk")
    await resume(box)
    assert await counted_on(box, attempt) >= count


@needs_criu
async def test_a_process_stays_in_memory_where_criu_is_killed_and_wakes(box: Box) -> None:
    attempt, count = await save(box, program="held = bytearray(b'x') * (256 << 20)")
    criu = await asyncio.to_thread(criu_at, attempt.folder)
    pages = attempt.folder / "image" / "pages-1.img"
    while not (pages.exists() and pages.stat().st_size):
        await asyncio.sleep(0.001)
    os.kill(criu, 9)
    assert await said(box, "a", "NotSaved") == "`criu dump` failed: signal 9"
    await resume(box)
    assert await counted_on(box, attempt) >= count


@needs_criu
async def test_a_program_that_is_criu_itself_keeps_no_other_from_going_to_disk(box: Box) -> None:
    await box.run("a", "", container={"command": [criu(), "service", "--address", "socket"]})
    await condition(box, "a", "Ready", "True")
    await annotate(box, "a", "r1")
    await condition(box, "a", FROZEN, "True")
    await box.client.patch(Ref(kinds.PODS, "a", "default"), {"metadata": {"annotations": {SAVE: "r1"}}})
    assert await said(box, "a", "NotSaved") == "another CRIU is at work on it"


@needs_criu
async def test_a_pod_with_a_mount_namespace_stays_in_memory_and_says_why(box: Box) -> None:
    mounted = {"volumeMounts": [{"name": "own", "mountPath": "/tmp/own"}]}
    attempt, count = await save(box, mounted, volumes=[{"name": "own", "emptyDir": {}}])
    assert (await said(box, "a", "NotSaved")).startswith("it has a namespace of its own (mnt), which CRIU cannot")
    assert {state_of(pid) for pid in tree(attempt.folder)} == {"T"}
    await resume(box)
    assert await counted_on(box, attempt) >= count


@needs_criu
async def test_a_pod_in_which_a_terminal_is_open_stays_in_memory_and_the_terminal_goes_on(box: Box) -> None:
    program = "import pathlib\nwhile not pathlib.Path('go').exists():\n    pass\n"
    pod = await box.run("a", "", container={"command": [sys.executable, "-c", program + COUNTER]})
    await condition(box, "a", "Ready", "True")
    attempt = inspect(box.attempt(pod))
    terminal = box.runner.execute("default", "a", "main", Order(["sh", "-c", "read line && touch go"], True, True))
    assert terminal is not None
    await annotate(box, "a", "r1")
    await condition(box, "a", FROZEN, "True")
    await box.client.patch(Ref(kinds.PODS, "a", "default"), {"metadata": {"annotations": {SAVE: "r1"}}})
    assert re.match(r"a terminal is open beside it \(process \d+,", await said(box, "a", "NotSaved"))
    await resume(box)
    await terminal.write(b"line\n")
    assert [text async for _, text in terminal.output()] and terminal.code == 0
    assert await counted_on(box, attempt) >= 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root starts processes of other users")
def test_a_terminal_of_another_user_keeps_no_program_in_memory(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    words, env = ["setsid", "--ctty", "sh", "-c", "echo; sleep 100"], {**os.environ, MARK: f"{tmp_path}/x"}
    with subprocess.Popen(words, user=65534, env=env, stdin=theirs, stdout=theirs) as terminal:
        with subprocess.Popen(["sleep", "100"], user=65534) as own, subprocess.Popen(["sleep", "100"]) as other:
            assert os.read(ours, 9) and _terminal(tmp_path, {own.pid}) in tree(tmp_path / "x")
            assert _terminal(tmp_path, {other.pid}) == 0
            for each in (own, other):
                each.kill()
        for pid in tree(tmp_path / "x"):
            os.kill(pid, 9)
        terminal.kill()


@needs_criu
async def test_a_terminal_within_a_program_comes_back_from_disk_with_it(box: Box) -> None:
    counter = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done"
    program = f"""
import os, pty
pid, terminal = pty.fork()
if not pid:
    os.execvp("sh", ["sh", "-c", {counter!r}])
lines = os.fdopen(terminal)
"""
    rest = COUNTER.replace("itertools.count()", "map(int, lines)").replace("    time.sleep(0.01)\n", "")
    attempt, count = await save(box, {"command": [sys.executable, "-c", program + rest]})
    await said(box, "a", "OnDisk")
    await resume(box)
    assert await counted_on(box, attempt) >= count


@needs_criu
async def test_a_process_goes_to_disk_again_that_was_there(box: Box) -> None:
    attempt, count = await save(box)
    for request in ("r2", "r3"):
        await said(box, "a", "OnDisk")
        await resume(box)
        before, count = count, await counted_on(box, attempt)
        assert count >= before
        await annotate(box, "a", request)
        await condition(box, "a", FROZEN, "True")
        await box.client.patch(Ref(kinds.PODS, "a", "default"), {"metadata": {"annotations": {SAVE: request}}})
    await said(box, "a", "OnDisk")


@needs_criu
async def test_a_deleted_file_that_is_open_comes_back_from_disk(box: Box) -> None:
    program = "import tempfile\nheld = tempfile.TemporaryFile()\nheld.write(bytes(4 << 20))\nheld.flush()\n"
    attempt, count = await save(box, program=program)
    await said(box, "a", "OnDisk")
    await resume(box)
    assert await counted_on(box, attempt) >= count


@needs_criu
async def test_a_connection_keeps_a_process_in_memory_and_the_first_error_says_why(tmp_path: Path) -> None:
    program = "import socket\none = socket.create_server(('127.0.0.1', 0))\n"
    program += "other = socket.create_connection(one.getsockname())\nheld = one.accept()\n"
    life = machine(tmp_path)
    async with life as first:
        await save(first, program=program)
        assert "criu dump` failed: inet: Connected TCP socket" in await said(first, "a", "NotSaved")
    await asyncio.to_thread(stop_all, first.folder, SHUTDOWN)
    async with machine(tmp_path, life.registry) as second:
        assert "could not be written to disk: `criu dump` failed: inet" in await said(second, "a", "CannotFreeze")


@needs_criu
@pytest.mark.skipif(os.getuid() != 0, reason="processes of other users are root's to freeze")
def test_the_disk_is_offered_to_a_team_where_processes_of_other_users_can_go_there(tmp_path: Path) -> None:
    user = {"uid": 65534, "gid": 65534, "groups": []}
    (tmp_path / "spec").write_bytes(marshal.dumps({"user": user}))
    nowhere = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    process = subprocess.Popen(["sleep", "100"], user=65534, group=65534, extra_groups=(), start_new_session=True,
                               **nowhere)  # fmt: skip
    refused = ""
    try:
        dump(tmp_path, process.pid, [process.pid], has_gpu=False)
    except DiskError as error:
        refused = str(error)
    finally:
        process.kill()
        process.wait()
    assert can_save(of_others=True) is not bool(refused), refused


@needs_criu
async def test_what_a_killed_restore_leaves_is_gone_with_its_pod(box: Box) -> None:
    attempt, _ = await save(box)
    await said(box, "a", "OnDisk")
    await resume(box)
    await asyncio.to_thread(criu_at, attempt.folder)
    await box.client.delete(Ref(kinds.PODS, "a", "default"))
    os.kill(inspect(attempt.folder.with_name("1")).pid, 9)
    await box.gone("a")
    assert not tree(attempt.folder) and not tree(attempt.folder.with_name("1"))


@needs_criu
async def test_a_restore_waits_while_another_process_has_the_pid(box: Box) -> None:
    attempt, count = await save(box, restartPolicy="Always")
    pid = tree(attempt.folder)[0]
    await said(box, "a", "OnDisk")
    other = await taken(pid)
    await resume(box)
    assert f"yet: Can't fork for {pid}: File exists" in await told(box, "NotWoken")
    other.kill()
    await other.wait()
    assert await counted_on(box, attempt) >= count


async def taken(pid: int) -> asyncio.subprocess.Process:
    """A process with this pid."""
    while True:
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        process = await asyncio.create_subprocess_exec("sleep", "1000")
        if process.pid == pid:
            return process
        process.kill()
        await process.wait()


@needs_criu
@pytest.mark.parametrize("is_lost", [True, False])
async def test_what_cannot_be_restored_starts_again_and_an_event_says_why(box: Box, is_lost: bool) -> None:
    attempt, _ = await save(box)
    await said(box, "a", "OnDisk")
    core = next((attempt.folder / "image").glob("core-*.img"))
    core.unlink() if is_lost else core.write_bytes(bytes(core.stat().st_size))
    await resume(box)
    why = await told(box, "NotWoken", "; it starts again from its last checkpoint")
    assert core.name in why if is_lost else "Error" not in why
    await condition(box, "a", "Ready", "True")
    status = (await box.status("a"))["containerStatuses"][0]
    assert status["restartCount"] == 0 and status["lastState"]["terminated"]["reason"] == "NotWoken"
    assert status["lastState"]["terminated"]["message"] in why and not core.parent.exists()


@needs_criu
def test_an_image_that_the_disk_has_no_room_for_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spec").write_bytes(marshal.dumps({"user": None}))
    monkeypatch.setattr("fairway.node.pause.disk.SPARE_BYTES", 1 << 60)
    with pytest.raises(DiskError, match=r"takes \d+ MiB on disk, where \d+ MiB are free"):
        dump(tmp_path, os.getpid(), [os.getpid()], has_gpu=False)
    assert not (tmp_path / "image").exists()


async def test_a_process_that_is_killed_while_it_is_frozen_has_not_failed_and_starts_again(box: Box) -> None:
    pod = await box.run("a", "echo up; sleep 100")
    await condition(box, "a", "Ready", "True")
    attempt = box.attempt(pod)
    await annotate(box, "a", "r1")
    await condition(box, "a", FROZEN, "True")
    for pid in tree(attempt):
        with suppress(ProcessLookupError):  # it ended with its parent
            os.kill(pid, 9)
    frozen = await condition(box, "a", FROZEN, "False")
    assert (frozen["reason"], frozen["message"]) == ("CannotFreeze", "no process of it runs")
    assert (await box.status("a"))["phase"] == "Running"
    await annotate(box, "a", None)
    assert "could not be restored: they were killed; it starts again" in await told(box, "NotWoken")
    await condition(box, "a", "Ready", "True")
    assert (await box.status("a"))["containerStatuses"][0]["restartCount"] == 0
    assert await box.log("a") == "up\n"


# GPUs: the order of calls, and what becomes of one that fails

LIBRARY = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int calls, same;  // so far, in all and of this name
static int state_of(int pid, const char *name) {
    char each[16], mark[8];
    int one, state = 0;
    FILE *file = fopen(getenv("TOLD"), "r");
    for (calls = same = 0; file && fscanf(file, "%15s %d %7s", each, &one, mark) == 3; calls++) {
        same += !strcmp(each, name);
        if (one == pid && !strcmp(mark, "done")) state = !strcmp(each, "checkpoint") ? 2 : !!strcmp(each, "unlock");
    }
    if (file) fclose(file);
    return state;
}
static int told(const char *name, int pid, int from) {
    int is_wrong = state_of(pid, name) != from;
    char *fails = getenv("FAILS"), *dies = getenv("DIES");
    int failed = is_wrong || (fails && same && !strcmp(fails, name));
    FILE *file = fopen(getenv("TOLD"), "a");
    fprintf(file, "%s %d %s\n", name, pid, failed ? "failed" : "done");
    fclose(file);
    if (dies && atoi(dies) == calls + 1) raise(SIGKILL);
    return failed ? 801 : 0;
}
int cuInit(unsigned flags) { return 0; }
int cuGetErrorName(int code, const char **text) { *text = "CUDA_ERROR_NOT_SUPPORTED"; return 0; }
int cuCheckpointProcessGetState(int pid, int *state) { *state = state_of(pid, ""); return 0; }
int cuCheckpointProcessLock(int pid, unsigned *arguments) { return arguments[0] == 10000 ? told("lock", pid, 0) : 1; }
int cuCheckpointProcessCheckpoint(int pid, void *arguments) { return told("checkpoint", pid, 1); }
int cuCheckpointProcessRestore(int pid, void *arguments) { return told("restore", pid, 2); }
int cuCheckpointProcessUnlock(int pid, void *arguments) { return told("unlock", pid, 1); }
"""
"""FAILS: the call that fails for the second process. DIES: the number of the call after which the caller is killed."""
needs_cc = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("driver")
    (folder / "cuda.c").write_text(LIBRARY)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(folder / "cuda.so"), str(folder / "cuda.c")], check=True)
    return str(folder / "cuda.so")


@dataclass(frozen=True, slots=True)
class Ranks:
    """Two processes with a GPU, below one that stands for their shim."""

    shim: int
    pids: tuple[int, ...]
    folder: Path
    driver: str

    def freeze(self, step: int = STILL) -> Stand:
        """Has them at this step, or lets them go on; how far they are."""
        ask(self.folder, Stand(step, "r1") if step else Stand())
        Freezer(self.folder, self.shim, library=self.driver).run()
        return stand_of(self.folder)

    def states(self) -> set[str]:
        return {state_of(pid) for pid in self.pids}

    def told(self) -> list[str]:
        """The calls of the driver."""
        return [line.split()[0] for line in (self.folder / "told").read_text().splitlines()]


@pytest.fixture
async def ranks(tmp_path: Path, driver: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ranks]:
    shim = await asyncio.create_subprocess_exec("sh", "-c", "sleep 100 & sleep 100 & wait")
    while len(pids := children(shim.pid)) < 2:
        await asyncio.sleep(0.01)
    monkeypatch.setattr("fairway.node.pause.freezer.uses_gpu", lambda pid: True)
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    yield Ranks(shim.pid, tuple(pids), tmp_path, driver)
    for pid in children(shim.pid):
        os.kill(pid, 9)
    await shim.wait()


@needs_cc
async def test_all_processes_are_locked_before_any_gives_its_memory_and_all_wake_before_any_is_unlocked(
    ranks: Ranks,
) -> None:
    assert ranks.freeze() == Stand(STILL, "r1", "", ranks.pids)
    assert ranks.told() == ["lock", "lock", "checkpoint", "checkpoint"]
    assert ranks.states() == {"T"}
    assert ranks.freeze(RUNNING).step == RUNNING
    assert ranks.told()[4:] == ["restore", "restore", "unlock", "unlock"]
    assert ranks.states() <= {"S", "R"}


@needs_cc
@pytest.mark.parametrize("calls", range(1, 9))
async def test_a_freezer_that_is_killed_after_any_call_of_the_driver_is_followed_by_one_that_goes_on(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    monkeypatch.setenv("DIES", str(calls))
    for step, states in ((STILL, {"T"}), (RUNNING, {"S", "R"})):
        while ended(ranks, step):
            assert len(ranks.told()) == calls
        stand = stand_of(ranks.folder)
        assert (stand.step, stand.why) == (step, "") and ranks.states() <= states
    assert ranks.told() == [each for each in ("lock", "checkpoint", "restore", "unlock") for _ in ranks.pids]


def ended(ranks: Ranks, step: int) -> int:
    """How a freezer ended, in a process of its own."""
    if not (pid := os.fork()):
        try:
            ranks.freeze(step)
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1]


@needs_cc
@pytest.mark.parametrize(
    ("fails", "calls"),
    [("lock", "lock lock unlock"), ("checkpoint", "lock lock checkpoint checkpoint restore unlock unlock")],
)
async def test_a_call_that_fails_is_undone_and_not_tried_again(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch, fails: str, calls: str
) -> None:
    monkeypatch.setenv("FAILS", fails)
    stand, said = ranks.freeze(), ranks.told()
    assert (stand.step, stand.failed("r1")) == (RUNNING, True)
    assert "CUDA_ERROR_NOT_SUPPORTED" in stand.why and said == calls.split()
    assert ranks.states() <= {"S", "R"}
    ranks.freeze()
    assert ranks.told() == said


@needs_cc
async def test_what_does_not_get_its_gpu_memory_back_stays_frozen_and_says_why(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks.freeze()
    monkeypatch.setenv("FAILS", "restore")
    stand = ranks.freeze(RUNNING)
    assert stand.step == SAVED and stand.why.startswith("cuCheckpointProcessRestore of process")


@needs_cc
async def test_what_has_its_gpu_memory_in_host_memory_is_killed_when_it_is_to_stop(ranks: Ranks) -> None:
    ranks.freeze()
    (ranks.folder / "stop").write_text("30 Deleted")
    ranks.freeze(RUNNING)
    while children(ranks.shim):
        await asyncio.sleep(0.01)
    assert ranks.told() == ["lock", "lock", "checkpoint", "checkpoint"]


def test_a_driver_that_is_not_there_or_too_old_is_one_line() -> None:
    with pytest.raises(CudaError, match="cannot be loaded"):
        Cuda("libthere-is-none.so")
    with pytest.raises(CudaError, match="version 570"):
        Cuda("libc.so.6")


def test_ranks_with_gpus_do_each_step_together_and_none_goes_on_where_one_failed() -> None:
    def step(*gang: Stand, has_gpu: bool = True) -> Stand:
        return next_step("r1", gang[:1], gang, has_gpu=has_gpu)

    begun, locked, saved = Stand(), Stand(LOCKED, "r1"), Stand(SAVED, "r1")
    assert step(begun, begun) == Stand(LOCKED, "r1")
    assert step(locked, begun) == Stand(LOCKED, "r1")
    assert step(locked, locked) == Stand(SAVED, "r1")
    assert step(saved, saved) == Stand(STILL, "r1")
    assert step(locked, Stand(RUNNING, "r1", "no")) == Stand()
    assert step(Stand(STILL, "r0"), begun) == Stand(LOCKED, "r1")
    assert step(begun, has_gpu=False) == Stand(STILL, "r1")
    assert next_step("", [saved], [saved], has_gpu=True) == Stand()
