"""`pods/attach`: what a running container writes from now on, over a WebSocket as `exec` has it.

A container's output goes through its log, so it comes by whole lines, both streams as one. The command of one that is
attended (node/attended.py) runs when a client attaches with its input; that of any other has none, and is refused one.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec

from fairway.embedded.call import Call
from fairway.embedded.defaults import containers
from fairway.embedded.errors import bad_request
from fairway.embedded.execute import check_devices, listen, protocol_of, spoken, status_message, until_gone
from fairway.embedded.logs import Kubelet, container_of
from fairway.embedded.registry import Registry, Thing
from fairway.kube.transport import Messages, Response
from fairway.node.attended import is_attended
from fairway.node.execute import STDOUT, Execution, Order
from fairway.node.logs import Gap, LogOptions, Piece


async def attach(registry: Registry, call: Call, kubelet: Kubelet | None) -> Response:
    pod = msgspec.json.decode(registry.shown(call.resource, call.key))
    container = container_of(call, pod)
    if kubelet is None or container not in kubelet.shims(call.namespace, call.name):
        raise bad_request(f'container "{container}" in pod "{call.name}" does not run')
    if call.flag("stdin"):
        return _entered(call, kubelet, pod)
    protocol = protocol_of(call)
    found = kubelet.pod_log(call.namespace, call.name, container, LogOptions(follow=True, tail_lines=0))
    assert found is not None
    _, pieces = found

    return spoken(protocol, lambda incoming: until_gone(_sent(pieces), _silent(incoming)))


def _entered(call: Call, kubelet: Kubelet, pod: Thing) -> Response:
    """The container's own command, with the client's input."""
    name = container_of(call, pod)
    if not is_attended(next(it for _, it in containers(pod["spec"]) if it["name"] == name)):
        raise bad_request(f'the standard input of container "{name}" is empty: kubectl run -i (stdin and stdinOnce) '
                          "gives it one, kubectl exec -it a terminal beside it")
    check_devices(call, name, kubelet)
    protocol = protocol_of(call)
    running = kubelet.execute(call.namespace, call.name, name, Order((), True, call.flag("tty")))
    if running is None:
        raise bad_request(f'container "{name}" in pod "{call.name}" does not run')

    return spoken(protocol, lambda incoming: until_gone(_said(running), listen(running, incoming)))


async def _said(running: Execution) -> AsyncIterator[bytes]:
    async with aclosing(running.output()) as output:
        async for stream, text in output:
            yield bytes([stream]) + text
    yield status_message(0)  # how it ended is in the pod's status


async def _sent(pieces: AsyncIterator[Piece]) -> AsyncIterator[bytes]:
    async with aclosing(pieces) as texts:  # type: ignore[type-var]
        async for piece in texts:
            if not isinstance(piece, Gap):
                yield bytes([STDOUT]) + piece
    yield status_message(0)


async def _silent(incoming: Messages) -> None:
    """Until the client is gone."""
    async for _ in incoming:
        pass
