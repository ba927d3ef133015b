"""Events for people: what `kubectl describe` and `kubectl get events` show of jobs, pods and nodes.

They are told in passing and written by a task of their own, so nothing waits for one; when too many are waiting, or
the server refuses one, they are lost. Nothing reads them to decide anything.
"""

import asyncio
import logging
from typing import Any, NamedTuple

from fairway.api.quantities import time_text

from . import kinds
from .client import ApiError, Client

BOUND = 1000
log = logging.getLogger(__name__)


class About(NamedTuple):
    """The object an event is about."""

    kind: kinds.Kind
    name: str
    uid: str
    namespace: str = ""


class Events:
    def __init__(self, client: Client, component: str) -> None:
        self.client, self.component = client, component
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(BOUND)

    def tell(self, about: About, reason: str, message: str, *, is_warning: bool = False) -> None:
        if not self._queue.full():
            self._queue.put_nowait(self._event(about, reason, message, "Warning" if is_warning else "Normal"))

    async def run(self) -> None:
        while True:
            event = await self._queue.get()
            try:
                await self.client.create(kinds.EVENTS, event)
            except (ApiError, OSError) as error:
                log.debug("an event is lost: %s", error)

    def _event(self, about: About, reason: str, message: str, kind: str) -> dict[str, Any]:
        moment = time_text(int(self.client.clock.now()))
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{about.name}.", "namespace": about.namespace or "default"},
            "involvedObject": {
                "apiVersion": about.kind.group_version,
                "kind": about.kind.name,
                "name": about.name,
                "namespace": about.namespace,
                "uid": about.uid,
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
            "source": {"component": self.component},
            "reportingComponent": self.component,
        }
