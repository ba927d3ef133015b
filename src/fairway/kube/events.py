"""Events for people: what `kubectl describe` and `kubectl get events` show of jobs, pods and nodes.

They are told in passing and written by tasks of their own, a few at once, so nothing waits for one, and nothing reads
them to decide anything. While an event waits, the same one told again raises its count. Where too many wait, further
ones are added up by namespace, kind and reason: one event says how many there were. What the server does not answer is
sent again; what it refuses, and what still waits at the end, is counted by `lose`.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from fairway.api.quantities import time_text

from . import kinds
from .client import ApiError, Client

BOUND, WIDTH, AGAIN_SECONDS = 1000, 4, 1.0
log = logging.getLogger(__name__)


class About(NamedTuple):
    """The object an event is about. `notes`: annotations that the event gets, by name."""

    kind: kinds.Kind
    name: str
    uid: str
    namespace: str = ""
    notes: tuple[tuple[str, str], ...] = ()


class Key(NamedTuple):
    """What is told once. Without a name and a message: whatever is told of such objects for this reason."""

    about: About
    reason: str
    message: str
    is_warning: bool

    def summary(self) -> "Key":
        return self._replace(about=self.about._replace(name="", uid="", notes=()), message="")


@dataclass(slots=True)
class Waiting:
    """`about`, `message`: as told first."""

    about: About
    message: str
    first: float
    last: float
    count: int = 1


def lost(count: int) -> None:
    log.warning("%d events are lost", count)


class Events:
    """`lose` gets the number of events that are not written after all."""

    def __init__(self, client: Client, component: str, lose: Callable[[int], None] = lost) -> None:
        self.client, self.component, self._lose = client, component, lose
        self._waiting: dict[Key, Waiting] = {}
        self._told = asyncio.Event()

    def tell(self, about: About, reason: str, message: str, *, is_warning: bool = False) -> None:
        now = self.client.clock.now()
        self._add(Key(about, reason, message, is_warning), Waiting(about, message, now, now))
        self._told.set()

    def _add(self, key: Key, one: Waiting) -> None:
        if key not in self._waiting and len(self._waiting) >= BOUND:
            key = key.summary()
        known = self._waiting.setdefault(key, one)
        if known is not one:
            known.count += one.count
            known.first, known.last = min(known.first, one.first), max(known.last, one.last)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(WIDTH):
                    tasks.create_task(self._write())
        finally:
            if left := sum(one.count for one in self._waiting.values()):
                self._lose(left)

    async def _write(self) -> None:
        while True:
            while not self._waiting:
                self._told.clear()
                await self._told.wait()
            key = next(iter(self._waiting))
            one = self._waiting.pop(key)
            try:
                await self.client.create(kinds.EVENTS, self._event(key, one))
            except (ApiError, OSError) as error:
                if isinstance(error, ApiError) and error.status < 500:
                    log.debug("an event is refused: %s", error)
                    self._lose(one.count)
                else:
                    self._add(key, one)
                    await self.client.clock.sleep(AGAIN_SECONDS)

    def _event(self, key: Key, one: Waiting) -> dict[str, Any]:
        about = one.about
        is_sum = key == key.summary() and one.count > 1
        notes = {"annotations": dict(about.notes)} if about.notes else {}
        more = f" (and {one.count - 1} more of {about.kind.plural} in {about.namespace})" if is_sum else ""
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{about.name}.", "namespace": about.namespace or "default", **notes},
            "involvedObject": {
                "apiVersion": about.kind.group_version,
                "kind": about.kind.name,
                "name": about.name,
                "namespace": about.namespace,
                "uid": about.uid,
            },
            "type": "Warning" if key.is_warning else "Normal",
            "reason": key.reason,
            "message": one.message + more,
            "firstTimestamp": time_text(int(one.first)),
            "lastTimestamp": time_text(int(one.last)),
            "count": one.count,
            "source": {"component": self.component},
            "reportingComponent": self.component,
        }
