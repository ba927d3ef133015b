"""Probes, hooks, sidecars and last words, with real processes on a server in memory."""

import asyncio
import marshal
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from box import Box, machine
from cluster import until

from fairway.clock import Clock
from fairway.kube import kinds
from fairway.kube.client import STRATEGIC
from fairway.kube.kinds import Ref, Selection
from fairway.node.container import Attempt, stop_all
from fairway.node.health.action import Place, perform
from fairway.node.health.probe import Tally, probes_of
from fairway.node.podstatus import SHUTDOWN

QUICK = {"periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 1}


def asks(*command: str, **more: Any) -> dict[str, Any]:
    return QUICK | {"exec": {"command": list(command)}} | more


async def shows(box: Box, name: str, holds: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """The status of a pod, as soon as `holds` says yes to its first container's."""
    async def look() -> Any:
        status = await box.status(name)
        first = (status.get("containerStatuses") or [None])[0]
        return status if first and holds(first) else None

    return await until(box.client, 60, look)


async def told(box: Box, reason: str) -> str:
    """The message of the event of that reason."""
    async def look() -> str:
        events = await box.client.list(Selection(kinds.EVENTS, "default"))
        return next((it["message"] for it in events if it["reason"] == reason), "")

    return await until(box.client, 60, look)


def condition(status: dict[str, Any], kind: str) -> str:
    return next(it["status"] for it in status["conditions"] if it["type"] == kind)


async def test_a_pod_is_ready_while_its_readiness_probe_says_so(box: Box, tmp_path: Path) -> None:
    await box.run("web", "sleep 600", container={"readinessProbe": asks("test", "-e", f"{tmp_path}/up")})
    status = await shows(box, "web", lambda it: it["started"] and not it["ready"])
    assert condition(status, "Ready") == condition(status, "ContainersReady") == "False"
    (tmp_path / "up").touch()
    status = await shows(box, "web", lambda it: it["ready"])
    assert condition(status, "Ready") == "True"
    (tmp_path / "up").unlink()
    status = await shows(box, "web", lambda it: not it["ready"])
    assert status["phase"] == "Running" and status["containerStatuses"][0]["restartCount"] == 0
    assert await told(box, "Unhealthy") == "Readiness probe failed: exit code 1"


async def test_what_fails_its_liveness_probe_is_started_again_as_its_policy_says(box: Box, tmp_path: Path) -> None:
    for name, policy in (("again", "Always"), ("once", "Never")):
        mark = tmp_path / name  # the program is alive until it has made it
        live = {"livenessProbe": asks("test", "!", "-e", str(mark))}
        await box.run(name, f"trap 'exit 7' TERM; touch {mark}; sleep 600 & wait", container=live, restartPolicy=policy)
    status = await shows(box, "again", lambda it: it["restartCount"])
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 7
    assert (await box.phase("once", "Failed"))["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7


async def test_no_other_probe_is_asked_before_the_startup_probe_succeeded(box: Box, tmp_path: Path) -> None:
    probes = {
        "startupProbe": asks("test", "-e", f"{tmp_path}/up", failureThreshold=600),
        "livenessProbe": asks("sh", "-c", f"test -e {tmp_path}/up && touch {tmp_path}/asked"),
    }
    await box.run("slow", "sleep 600", container=probes)
    await box.state("slow", "running")
    status = await box.status("slow")
    assert not status["containerStatuses"][0]["started"] and not status["containerStatuses"][0]["ready"]
    (tmp_path / "up").touch()
    status = await shows(box, "slow", lambda it: it["started"] and it["ready"])
    await until(box.client, 60, lambda: asyncio.to_thread((tmp_path / "asked").exists))
    assert (await box.status("slow"))["containerStatuses"][0]["restartCount"] == 0


async def test_a_sidecar_starts_before_the_rest_and_ends_after_it(box: Box, tmp_path: Path) -> None:
    def sidecar(name: str, **more: Any) -> dict[str, Any]:
        say = f">> {tmp_path}/said"
        script = f"trap 'echo end {name} {say}; exit' TERM; echo {name} {say}; sleep 600 & wait"
        return {"name": name, "image": "busybox", "restartPolicy": "Always", "command": ["sh", "-c", script]} | more

    first = sidecar("a", startupProbe=asks("test", "-e", f"{tmp_path}/up", failureThreshold=600))
    await box.run("job", f"echo main >> {tmp_path}/said; sleep 0.3; echo end main >> {tmp_path}/said",
                  initContainers=[first, sidecar("b")])

    await until(box.client, 60, lambda: asyncio.to_thread((tmp_path / "said").exists))
    assert "b\n" not in (tmp_path / "said").read_text()
    (tmp_path / "up").touch()
    status = await box.phase("job", "Succeeded", "Failed")
    assert status["phase"] == "Succeeded"
    assert (tmp_path / "said").read_text().split("\n")[:6] == ["a", "b", "main", "end main", "end b", "end a"]
    assert all("terminated" in it["state"] for it in status["initContainerStatuses"])
    assert condition(status, "Initialized") == "True"


async def test_hooks_run_after_the_start_and_before_the_end(box: Box, tmp_path: Path) -> None:
    said = tmp_path / "said"
    hooks = {"postStart": {"exec": {"command": ["sh", "-c", f"echo hello >> {said}"]}},
             "preStop": {"exec": {"command": ["sh", "-c", f"echo bye >> {said}"]}}}
    script = f"trap 'echo term >> {said}; exit' TERM; sleep 600 & wait"
    await box.run("web", script, container={"lifecycle": hooks})
    await shows(box, "web", lambda it: it["ready"])
    assert said.read_text() == "hello\n"
    await box.client.delete(Ref(kinds.PODS, "web", "default"))
    await box.gone("web")
    assert said.read_text() == "hello\nbye\nterm\n"


async def test_a_container_whose_first_hook_fails_ends(box: Box) -> None:
    await box.run("web", "sleep 600", container={"lifecycle": {"postStart": {"exec": {"command": ["false"]}}}})
    await box.phase("web", "Failed")
    assert await told(box, "FailedPostStartHook") == "PostStartHook failed: exit code 1"


async def test_a_hook_that_hangs_takes_the_grace_and_no_more(box: Box) -> None:
    await box.run("web", "sleep 600", container={"lifecycle": {"preStop": {"sleep": {"seconds": 600}}}},
                  terminationGracePeriodSeconds=1)
    await box.state("web", "running")
    await box.client.delete(Ref(kinds.PODS, "web", "default"))
    await box.gone("web")
    await until(box.client, 60, lambda: asyncio.to_thread(lambda: not list(box.folder.glob("*-*"))))


async def test_the_next_life_keeps_what_is_ready_and_repeats_no_hook(tmp_path: Path) -> None:
    hook = {"postStart": {"exec": {"command": ["sh", "-c", f"echo hello >> {tmp_path}/said"]}}}
    probe = asks("sh", "-c", f"echo asked >> {tmp_path}/asked; test -e {tmp_path}/up")
    (tmp_path / "up").touch()
    first = machine(tmp_path)
    try:
        async with first as box:
            await box.run("web", "sleep 600", container={"lifecycle": hook, "readinessProbe": probe})
            ready = condition(await shows(box, "web", lambda it: it["ready"]), "Ready")
        before = (tmp_path / "asked").read_text()
        async with machine(tmp_path, first.registry) as box:
            await until(box.client, 60, lambda: asyncio.to_thread(lambda: (tmp_path / "asked").read_text() != before))
            assert condition(await box.status("web"), "Ready") == ready == "True"
            (tmp_path / "up").unlink()
            await shows(box, "web", lambda it: not it["ready"])
        assert (tmp_path / "said").read_text() == "hello\n"
    finally:
        await asyncio.to_thread(stop_all, tmp_path / "pods", SHUTDOWN, at_most=0.0)


async def test_what_a_container_says_as_it_ends_is_in_its_status(box: Box) -> None:
    await box.run("file", "printf done > $FAIRWAY_TERMINATION_LOG")
    log = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    await box.run("log", "echo one; echo two; exit 3", container=log)
    for name, said in (("file", "done"), ("log", "one\ntwo")):
        status = await box.phase(name, "Succeeded", "Failed")
        assert status["containerStatuses"][0]["state"]["terminated"]["message"] == said


async def test_a_readiness_gate_keeps_a_pod_from_being_ready(box: Box) -> None:
    await box.run("web", "sleep 600", readinessGates=[{"conditionType": "example.com/fed"}])
    status = await shows(box, "web", lambda it: it["ready"])
    assert (condition(status, "ContainersReady"), condition(status, "Ready")) == ("True", "False")
    fed = {"status": {"conditions": [{"type": "example.com/fed", "status": "True"}]}}
    await box.client.patch(Ref(kinds.PODS, "web", "default"), fed, subresource="status", form=STRATEGIC)

    async def is_ready() -> bool:
        return condition(await box.status("web"), "Ready") == "True"

    await until(box.client, 60, is_ready)


# -- what probes do

@pytest.fixture
async def answering() -> AsyncIterator[int]:
    """The port of a server that is well at /well, and not at /ill."""
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status={"/well": 204, "/moved": 302}.get(request.path, 503))

    app = web.Application()
    app.router.add_get("/{any:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield runner.addresses[0][1]
    await runner.cleanup()


@pytest.fixture
def place(tmp_path: Path) -> Callable[..., Place]:
    def made(port: int = 0, *, uid: int = 0) -> Place:
        container = {"name": "c", "ports": [{"name": "web", "containerPort": port}]}
        (tmp_path / "spec").write_bytes(marshal.dumps({"user": {"uid": uid} if uid else None}))
        return Place(container, Attempt(0, tmp_path), Clock())

    return made


@pytest.mark.parametrize("path, outcome", [
    ("/well", ""), ("/moved", ""), ("ill", "HTTP probe failed with statuscode: 503")])
async def test_a_request_succeeds_by_its_status(
    answering: int, place: Callable[..., Place], path: str, outcome: str
) -> None:
    assert await perform({"httpGet": {"path": path, "port": "web"}}, place(answering), 10) == outcome


async def test_a_connection_is_enough_for_a_tcp_probe(answering: int, place: Callable[..., Place]) -> None:
    assert await perform({"tcpSocket": {"port": answering}}, place(), 10) == ""
    assert "no port named 'x'" in await perform({"tcpSocket": {"port": "x"}}, place(), 10)
    for action in ("tcpSocket", "httpGet"):
        assert await perform({action: {"port": "70000"}}, place(), 10)


OPEN = "01"  # the state of a connection in /proc/net/tcp


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes sockets of other users")
async def test_a_connection_is_of_the_user_of_the_pod(place: Callable[..., Place]) -> None:
    users: list[str] = []

    async def look(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
        mine = (line for line in lines if line[1].endswith(f":{peer[1]:04X}"))
        users.extend(line[7] for line in mine if line[3] == OPEN)  # one that is closed is nobody's
        writer.close()

    server = await asyncio.start_server(look, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        for action in ("tcpSocket", "httpGet", "grpc"):
            await perform({action: {"port": port}}, place(uid=65534), 10)
    assert set(users) == {"65534"} and os.stat("/proc/thread-self").st_uid == 0


async def test_a_probe_that_gets_no_answer_fails_in_time(place: Callable[..., Place]) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        for action in ({"httpGet": {"port": port}}, {"grpc": {"port": port}}):
            assert await perform(action, place(), 0.05) == "no answer within 0.05 seconds"


@pytest.mark.parametrize("message, outcome", [
    (b"\x08\x01", ""), (b"\x08\x02", "the service is NOT_SERVING"), (b"", "the service is UNKNOWN"),
    (None, "the server does not know the service")])
async def test_a_grpc_probe_reads_the_health_of_a_service(
    place: Callable[..., Place], message: bytes | None, outcome: str
) -> None:
    def frame(kind: int, flags: int, payload: bytes, stream: int = 1) -> bytes:
        return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\x0a\x02db")  # the request's message: service "db"
        writer.write(frame(4, 0, b"", 0) + frame(1, 4, b"\x88"))
        if message is not None:
            writer.write(frame(0, 0, b"\0" + len(message).to_bytes(4, "big") + message))
        writer.write(frame(1, 5, b"\x88"))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await perform({"grpc": {"port": port, "service": "db"}}, place(), 30) == outcome


def test_a_verdict_changes_after_so_many_outcomes_in_a_row() -> None:
    probe = probes_of({"readinessProbe": {"successThreshold": 2, "failureThreshold": 3}})["readiness"]
    tally = Tally(probe, False)
    outcomes = [True, False, True, True, False, False, True, False, False, False]
    assert [tally.add(it) for it in outcomes] == [False] * 3 + [True] + [False] * 5 + [True]
    assert tally.verdict is False
