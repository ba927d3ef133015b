"""`fairway exec`: a command beside a running rank, in its directory, with its environment and its devices."""

import asyncio
import json
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any

import click

from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref
from fairway.kube.transport import Request

from .connect import on_cluster
from .find import pods_of
from .main import Command, Problem
from .replicas import find

PROTOCOLS = "v5.channel.k8s.io, v4.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
CHUNK_BYTES = 32 << 10


@click.command(name="exec", cls=Command)
@click.argument("job")
@click.option("--rank", type=click.IntRange(min=0), metavar="R", help="Beside this rank; default: the lowest.")
@click.option("-c", "--container", default="", metavar="NAME", help="Of this container; default: as with kubectl.")
@click.option("-i", "--stdin", "has_input", is_flag=True, help="Pass standard input on.")
@click.option("-t", "--tty", "is_terminal", is_flag=True, help="Give it a terminal.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@on_cluster
async def exec(
    client: Client, namespace: str, job: str, command: tuple[str, ...], rank: int | None, container: str, **said: bool
) -> int:
    """Run a command in the place of a running rank: fairway exec JOB -it -- bash. Exits with its exit code."""
    pod = await running(client, namespace, job, rank)
    is_terminal = said["is_terminal"] and sys.stdin.isatty()
    if said["is_terminal"] and not is_terminal:
        click.echo("standard input is no terminal: the command gets none", err=True)
    return await enter(client, pod, Entry(command, container, said["has_input"], is_terminal))


@dataclass(frozen=True, slots=True)
class Entry:
    """What runs in the place of a container. `has_input`: our standard input is passed on. `is_terminal`: standard
    input is a terminal, and it gets one of the same size."""

    argv: Sequence[str]
    container: str = ""
    has_input: bool = True
    is_terminal: bool = False


async def enter(client: Client, pod: Ref, entry: Entry) -> int:
    """Runs it with our ends until it has ended, and returns its exit code."""
    is_terminal, container = entry.is_terminal, entry.container
    flags = {"stdin": entry.has_input, "stdout": True, "stderr": not is_terminal, "tty": is_terminal}
    query = [("command", word) for word in entry.argv] + [(name, "true") for name, is_set in flags.items() if is_set]
    request = Request(
        "GET", pod.path("exec"), (*query, *[("container", container)] * bool(container)),
        {"upgrade": "websocket", "sec-websocket-protocol": PROTOCOLS},
    )  # fmt: skip
    protocol, talk = await client.converse(request)
    with _raw(is_raw=is_terminal):
        sends = _sends(has_input=entry.has_input, is_terminal=is_terminal, can_close=protocol.startswith("v5"))
        async with aclosing(talk(sends)) as messages:
            async for message in messages:
                if message[:1] == bytes([STATUS]):
                    return _code(json.loads(message[1:]))
                _print(message)
    raise Problem("the connection ended before the command did", exit_code=1)


async def running(client: Client, namespace: str, job: str, rank: int | None) -> Ref:
    """The pod of a rank that runs, of the lowest where none is named."""
    found = await find(client, namespace, job)
    pods = [(at, it) for at, it in await pods_of(client, found) if (it.get("status") or {}).get("phase") == "Running"]
    chosen = [it for at, it in pods if rank in (None, at)]
    if not chosen:
        which, there = f"rank {rank} of " * (rank is not None), ", ".join(str(at) for at, _ in pods)
        more = f"ranks {there} run" if there else f"see `fairway why {job}`"
        raise Problem(f"{which}{found.name} does not run; {more}", exit_code=1)
    return Ref(kinds.PODS, chosen[0]["metadata"]["name"], found.ref.namespace)


def _print(message: bytes) -> None:
    stream = {STDOUT: sys.stdout, STDERR: sys.stderr}.get(message[0]) if message else None
    if stream and len(message) > 1:
        stream.buffer.write(message[1:])
        stream.flush()


def _code(status: dict[str, Any]) -> int:
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or ()
    codes = [int(it["message"]) for it in causes if it.get("reason") == "ExitCode"]
    if not codes:
        raise Problem(status.get("message") or "the command could not be run", exit_code=1)
    return codes[0]


async def _sends(*, has_input: bool, is_terminal: bool, can_close: bool) -> AsyncIterator[bytes]:
    """What the server is sent: the size of the terminal when it changes, and standard input."""
    queue: asyncio.Queue[bytes | None] = asyncio.Queue(8)
    loop, tasks = asyncio.get_running_loop(), []
    if is_terminal:
        changed = asyncio.Event()
        changed.set()
        loop.add_signal_handler(signal.SIGWINCH, changed.set)
        tasks.append(asyncio.create_task(_sizes(changed, queue)))
    if has_input:
        tasks.append(asyncio.create_task(_input(queue, can_close=can_close)))
    try:
        while message := await queue.get():
            yield message
    finally:
        for it in tasks:
            it.cancel()


async def _sizes(changed: asyncio.Event, queue: "asyncio.Queue[bytes | None]") -> None:
    while True:
        await changed.wait()
        changed.clear()
        size = os.get_terminal_size(sys.stdin.fileno())  # shutil's believes COLUMNS, which may be of another terminal
        await queue.put(bytes([RESIZE]) + json.dumps({"Width": size.columns, "Height": size.lines}).encode())


async def _input(queue: "asyncio.Queue[bytes | None]", *, can_close: bool) -> None:
    file = sys.stdin.fileno()
    while True:
        await _readable(file)
        text = os.read(file, CHUNK_BYTES)
        if not text:
            break
        await queue.put(bytes([STDIN]) + text)
    if can_close:
        await queue.put(bytes([CLOSE, STDIN]))


async def _readable(file: int) -> None:
    """Returns when there is something to read, or the end; at once for a file on disk."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(file, lambda: ready.done() or ready.set_result(None))
    except PermissionError:
        return
    try:
        await ready
    finally:
        loop.remove_reader(file)


@contextmanager
def _raw(*, is_raw: bool) -> Iterator[None]:
    """The terminal passes every key on, Ctrl-C too."""
    if not is_raw:
        yield
        return
    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    tty.setraw(file)
    try:
        yield
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)
