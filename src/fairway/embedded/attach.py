"""`pods/attach`: what a running container writes from now on, over a WebSocket as `exec` has it.

A container's output goes through its log, so it comes by whole lines, both streams as one, and its standard input is
empty: `kubectl attach -i` is refused, and `kubectl exec -it` is what gives a terminal.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec

from fairway.embedded.call import Call
from fairway.embedded.errors import bad_request, not_found
from fairway.embedded.execute import protocol_of, status_message, until_gone
from fairway.embedded.logs import Kubelet, container_of
from fairway.embedded.registry import Registry
from fairway.kube.transport import Messages, Response
from fairway.node.execute import STDOUT
from fairway.node.logs import Gap, LogOptions, Piece


async def attach(registry: Registry, call: Call, kubelet: Kubelet | None) -> Response:
    entry = registry.store.get(call.key)
    if entry is None:
        raise not_found(call.resource.kind, call.name)
    pod = msgspec.json.decode(entry.value)
    container, protocol = container_of(call, pod), protocol_of(call)
    if call.flag("stdin"):
        raise bad_request("the standard input of a container is empty here: use kubectl exec -it for a terminal")
    if kubelet is None or container not in kubelet.shims(call.namespace, call.name):
        raise bad_request(f'container "{container}" in pod "{call.name}" does not run')
    found = kubelet.pod_log(call.namespace, call.name, container, LogOptions(follow=True, tail_lines=0))
    assert found is not None
    _, pieces = found

    def talk(incoming: Messages) -> Messages:
        return until_gone(_sent(pieces), _silent(incoming))

    return Response(101, {"sec-websocket-protocol": protocol}, b"", talk)


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
