"""What a probe or a hook does: a command in the container's place, a request, a connection, or a sleep.

Pods have no address of their own: requests go to this machine's loopback address unless they name another host. Sockets
are the pod's user's, so no firewall or service by which the kernel says whose a connection is takes it for root's.
"""

import asyncio
import ctypes
import marshal
import os
import socket
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import aiohttp

from fairway.clock import Clock
from fairway.node.container import Attempt
from fairway.node.environment import Container
from fairway.node.execute import Execution, Order

from . import grpc

libc = ctypes.CDLL(None)
HERE = "127.0.0.1"
SAID_BYTES = 1024
AddressInfo = tuple[int, int, int, str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where it is done: a container, and the attempt at it that runs."""

    container: Container
    attempt: Attempt
    clock: Clock

    def socket(self, info: AddressInfo) -> socket.socket:
        """One for this address."""
        user = marshal.loads((self.attempt.folder / "spec").read_bytes()).get("user")
        if user:
            libc.setfsuid(user["uid"])
        try:
            return socket.socket(*info[:3])
        finally:
            libc.setfsuid(os.geteuid())

    async def connect(self, host: str, port: int) -> grpc.Streams:
        """OSError where none of its addresses can be reached."""
        loop, fault = asyncio.get_running_loop(), OSError(f"{host} has no address")
        for info in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            mine = self.socket(info)
            mine.setblocking(False)
            try:
                await loop.sock_connect(mine, info[4])
                return await asyncio.open_connection(sock=mine)
            except OSError as error:
                mine.close()
                fault = error
        raise fault


async def perform(action: Mapping[str, Any], place: Place, seconds: float | None) -> str:
    """Empty where it succeeded within `seconds` (None: however long it takes), else why not."""
    try:
        return await place.clock.within(seconds, _perform(action, place))
    except TimeoutError:
        return f"no answer within {seconds:g} seconds" if seconds is not None else "the connection timed out"
    except (OSError, OverflowError, aiohttp.ClientError, ValueError) as error:
        return str(error) or type(error).__name__


async def _perform(action: Mapping[str, Any], place: Place) -> str:
    if asked := action.get("exec"):
        return await _execute(asked.get("command") or (), place)
    if asked := action.get("httpGet"):
        return await _get(asked, place)
    if asked := action.get("tcpSocket"):
        _, writer = await place.connect(asked.get("host") or HERE, _port(asked["port"], place.container))
        writer.close()
    elif asked := action.get("grpc"):
        port = int(asked["port"])
        return await grpc.check(await place.connect(HERE, port), f"{HERE}:{port}", asked.get("service") or "")
    elif asked := action.get("sleep"):
        await place.clock.sleep(asked["seconds"])
    return ""


async def _execute(argv: list[str], place: Place) -> str:
    execution, said = Execution(place.attempt, Order(argv), place.clock), b""
    async with aclosing(execution.output()) as output:
        async for _, text in output:
            said = (said + text)[:SAID_BYTES]
    if not execution.code:
        return ""
    return f"exit code {execution.code}: {said.decode(errors='replace').strip()}".rstrip(": ")


async def _get(asked: Mapping[str, Any], place: Place) -> str:
    scheme, path = str(asked.get("scheme") or "HTTP").lower(), asked.get("path") or "/"
    port, host = _port(asked["port"], place.container), asked.get("host") or HERE
    headers = {"user-agent": "kube-probe/1"} | {it["name"]: it["value"] for it in asked.get("httpHeaders") or ()}
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/{path.removeprefix('/')}"
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(socket_factory=place.socket))
    async with session, session.get(url, headers=headers, allow_redirects=False, ssl=False) as answer:
        return "" if 200 <= answer.status < 400 else f"HTTP probe failed with statuscode: {answer.status}"


def _port(said: int | str, container: Container) -> int:
    """A number, or the name of one of the container's ports. ValueError where it has none of that name."""
    if str(said).isdigit():
        return int(said)
    for port in container.get("ports") or ():
        if port.get("name") == said:
            return int(port["containerPort"])
    raise ValueError(f"container {container['name']} has no port named {said!r}")
