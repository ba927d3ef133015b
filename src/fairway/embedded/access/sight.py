"""What a user sees of an object that all may read and that tells of others' work: a Queue.

Its status counts GPU-seconds by user, and keeps the runtimes of jobs by user and name. A user that may not list the
Workloads of all namespaces is told its own of these alone; so a list of queues names no other user. Rules of RBAC
cannot say that: they know objects, no fields.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import msgspec

from fairway.api.objects import GROUP
from fairway.embedded.access.ask import Ask
from fairway.embedded.access.identity import Identity
from fairway.embedded.access.rbac import Authorizer
from fairway.embedded.call import Call
from fairway.embedded.store import encode
from fairway.kube.transport import Response

QUEUES = f"queues.{GROUP}"
_EVERYBODY = Ask("list", GROUP, "workloads")


def narrowed(access: Authorizer, call: Call, response: Response) -> Response:
    """The answer to a GET as `call`'s user may see it."""
    who, body = call.asker, response.body
    if call.resource.name != QUEUES or response.status != 200 or access.allows(who, _EVERYBODY)[0]:
        return response
    if isinstance(body, bytes):
        return replace(response, body=_encoded(body, who))
    return replace(response, body=_stream(body, who))


async def _stream(body: AsyncIterator[bytes], who: Identity) -> AsyncIterator[bytes]:
    """The chunks of a watch are whole lines, a JSON object each."""
    async with aclosing(body) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            yield b"".join(_encoded(line, who) + b"\n" for line in chunk.splitlines())


def _encoded(value: bytes, who: Identity) -> bytes:
    said = msgspec.json.decode(value)
    _narrow(said, who)
    return encode(said)


def _narrow(said: Any, who: Identity) -> None:
    """Changes the queue, or all that are in a list, a table or an event."""
    for part in (*(said.get("items") or ()), *(said.get("rows") or ()), said.get("object")):
        if isinstance(part, dict):
            _narrow(part, who)
    if isinstance(status := said.get("status"), dict):
        if users := status.get("users"):
            status["users"] = {name: used for name, used in users.items() if name == who.name}
        if runtimes := status.get("runtimes"):
            status["runtimes"] = [one for one in runtimes if one.get("user") == who.name]
