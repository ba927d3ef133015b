"""`pods/exec`: a command beside a running container, over a WebSocket, as `kubectl exec` speaks it.

Each message begins with its channel: 0 standard input, 1 and 2 what the command writes, 3 how it ended (a Status), 4
the size of the terminal, and 255, from version 5 on, the channel that its client closes. Here are messages only;
http.py has the socket. SPDY, the protocol before it, is not served.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Any

import msgspec

from fairway.embedded.call import Call
from fairway.embedded.errors import Failure, bad_request
from fairway.embedded.logs import Kubelet, container_of
from fairway.embedded.registry import Registry
from fairway.kube.transport import Messages, Response
from fairway.node.execute import Execution, Order

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STATUS, RESIZE, CLOSE = 0, 3, 4, 255
decode = msgspec.json.decode


class Size(msgspec.Struct, rename="pascal"):
    width: int
    height: int


async def execute(registry: Registry, call: Call, kubelet: Kubelet | None) -> Response:
    pod = decode(registry.shown(call.resource, call.key))
    phase, container = pod["status"].get("phase"), container_of(call, pod)
    if phase in ("Succeeded", "Failed"):
        raise bad_request(f"cannot exec into a container in a completed pod; current phase is {phase}")
    argv = [value for name, value in call.request.query if name == "command"]
    if not argv:
        raise bad_request("you must specify at least 1 command for the container")
    check_devices(call, container, kubelet)
    protocol = protocol_of(call)
    order = Order(argv, has_input=call.flag("stdin"), is_terminal=call.flag("tty"))
    running = kubelet.execute(call.namespace, call.name, container, order) if kubelet else None
    if running is None:
        raise bad_request(f'container "{container}" in pod "{call.name}" does not run')

    return spoken(protocol, lambda incoming: until_gone(_sent(running), listen(running, incoming)))


def spoken(protocol: str, talk: Callable[[Messages], Messages]) -> Response:
    """The answer from which on a WebSocket speaks this protocol."""
    return Response(101, {"sec-websocket-protocol": protocol}, b"", talk)


def check_devices(call: Call, container: str, kubelet: Kubelet | None) -> None:
    """A Failure where the container's GPUs are not its own now."""
    if kubelet and kubelet.lacks_devices(call.namespace, call.name, container):
        raise bad_request(f'container "{container}" in pod "{call.name}" is paused, and its GPUs are given to others: '
                          "resume it first")


def protocol_of(call: Call) -> str:
    headers = call.request.headers
    if call.method != "GET" or headers.get("upgrade", "").lower() != "websocket":
        raise Failure(501, "NotImplemented", f"{call.subresource} is served over a WebSocket alone: use "
                      "kubectl 1.30 or later")
    offered = [it.strip() for it in headers.get("sec-websocket-protocol", "").split(",")]
    for protocol in PROTOCOLS:
        if protocol in offered:
            return protocol
    raise bad_request(f"unable to upgrade: of the subprotocols {', '.join(PROTOCOLS)} none was offered")


async def until_gone(sent: Messages, listening: Coroutine[Any, Any, None]) -> AsyncIterator[bytes]:
    """What the client is sent, until `listening` ends, which means that the client is gone."""
    gone = asyncio.create_task(listening)
    try:
        async with aclosing(sent) as messages:  # type: ignore[type-var]
            while True:
                getting = asyncio.ensure_future(anext(messages, None))
                try:
                    await asyncio.wait([getting, gone], return_when=asyncio.FIRST_COMPLETED)
                finally:  # cancelled, too: what is being asked cannot be closed, and what it runs would go on
                    is_read = getting.done()
                    getting.cancel()
                    await asyncio.gather(getting, return_exceptions=True)
                if not is_read:
                    return
                message = getting.result()
                if message is None:
                    return
                yield message
    finally:
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)


async def _sent(running: Execution) -> AsyncIterator[bytes]:
    async with aclosing(running.output()) as output:
        async for stream, text in output:
            yield bytes([stream]) + text
    yield status_message(running.code)


def status_message(code: int) -> bytes:
    """How it ended, as the last message says it."""
    return bytes([STATUS]) + msgspec.json.encode(_status(code))


def _status(code: int) -> dict[str, object]:
    if not code:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }  # fmt: skip


async def listen(running: Execution, incoming: Messages) -> None:
    """Until the client is gone."""
    async for message in incoming:
        channel, content = message[0] if message else -1, message[1:]
        if channel == STDIN:
            await running.write(content)
        elif channel == RESIZE:
            size = decode(content, type=Size)
            running.resize(size.width, size.height)
        elif channel == CLOSE and content[:1] == bytes([STDIN]):
            await running.end_input()
