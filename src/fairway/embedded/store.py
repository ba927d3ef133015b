"""The objects and their recent history: what is committed is what is seen.

The store maps keys (resource, namespace, name) to encoded objects and numbers every write with a revision, one
sequence for all. It lives in memory; with a Database each write is on disk before it is seen.

Rules. `put` and `remove` stage a write at once and in order; `committed` returns when it is on disk. Readers and
watchers see committed objects only, so nothing that was seen is ever lost; a writer starts from `latest`, which
includes what is staged. A commit takes all that was staged meanwhile (one flush per batch); if it fails, it and
everything staged on top of it never happened. Watches are answered from the log, which keeps the last `keep` events
and `keep_bytes`; a watcher holds a revision and nothing else, so a slow one costs nothing, and finds `Compacted`.
All methods belong to the event loop's thread; only the commit runs on another. Without a Database there is no thread.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fairway.embedded.database import Database, Row

OBJECT_BYTES = 3 << 19  # 1.5 MiB, as in etcd
encode = msgspec.json.Encoder().encode


class Key(NamedTuple):
    """`resource` is the plural and its group (`pods`, `jobs.batch`); `namespace` is empty for cluster-wide objects."""

    resource: str
    namespace: str
    name: str


class Entry(NamedTuple):
    revision: int
    value: bytes


class Event(NamedTuple):
    """One write. `value` is the object as it became, or at its end if `gone`; `before` what it replaced."""

    revision: int
    key: Key
    value: bytes
    before: Entry | None
    gone: bool


class Compacted(Exception):
    """The history asked for is no longer there."""


class TooLarge(Exception):
    """The object is larger than one may be. It was not staged."""


class _Batch:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.done = asyncio.Event()
        self.error: BaseException | None = None


class Store:
    def __init__(self, database: Database | None = None, *, keep: int = 10_000, keep_bytes: int = 16 << 20) -> None:
        self._keep, self._keep_bytes = keep, keep_bytes
        self._objects: dict[str, dict[tuple[str, str], Entry]] = {}
        self._places: dict[str, list[tuple[str, str]]] = {}  # in order; built when asked for
        self._events: list[Event] = []  # by revision; a list, because watchers bisect it
        self._size = 0
        self._drop: list[int] = []
        self._staged: dict[Key, Event] = {}
        self._batch = _Batch()
        self._writing: _Batch | None = None
        self._changed: dict[str, asyncio.Event] = {}
        self._trimmed: dict[str, int] = {}
        self.closed = False
        self.revision = 0
        self.touched: dict[str, int] = {}  # the last revision of each resource
        self._database = database
        self._horizon = self._loaded = database.horizon if database else 0
        self._thread = ThreadPoolExecutor(1, "store") if database else None
        if database:
            self._load(database)
        self._issued = self.revision

    # -- reading

    def get(self, key: Key) -> Entry | None:
        return self._objects.get(key.resource, {}).get(key[1:])

    def latest(self, key: Key) -> Entry | None:
        """With what is staged: what a writer starts from."""
        event = self._staged.get(key)
        if event is None:
            return self.get(key)
        return None if event.gone else Entry(event.revision, event.value)

    def objects(self, resource: str, at: int | None = None) -> Mapping[tuple[str, str], Entry]:
        """Objects by (namespace, name), now or as they were at revision `at`; Compacted if that is too long ago."""
        objects = self._objects.get(resource, {})
        if at is None or at >= self.revision:
            return objects
        past = dict(objects)
        for event in reversed(self.since(at, resource)):
            if event.before is None:
                past.pop(event.key[1:], None)
            else:
                past[event.key[1:]] = event.before
        return past

    def places(self, resource: str) -> list[tuple[str, str]]:
        """Where its objects are now, in order; not to be changed."""
        if resource not in self._places:
            self._places[resource] = sorted(self._objects.get(resource, {}))
        return self._places[resource]

    def since(self, revision: int, resource: str = "") -> list[Event]:
        """The events after `revision`, oldest first, of one resource or of all; Compacted if some are gone."""
        if revision < (self._trimmed.get(resource, self._loaded) if resource else self._horizon):
            raise Compacted(f"too old resource version: {revision} ({self._horizon})")
        recent = self._events[bisect_right(self._events, revision, key=_revision):]
        return [event for event in recent if event.key.resource == resource] if resource else recent

    async def changed(self, resource: str = "") -> None:
        """Returns at the next commit that touches the resource (any, where none is named), or when the store closes."""
        if not self.closed:
            await self._changed.setdefault(resource, asyncio.Event()).wait()

    def staged(self) -> list[Event]:
        """What is staged and not yet seen, in order."""
        return [*(self._writing.events if self._writing else ()), *self._batch.events]

    # -- writing

    def put(self, key: Key, value: dict[str, Any]) -> None:
        """Stages the object, and gives it its resourceVersion."""
        self._stage(key, value, gone=False)

    def remove(self, key: Key, value: dict[str, Any]) -> None:
        """Stages the end of the object; `value` is how it last was."""
        self._stage(key, value, gone=True)

    async def committed(self) -> None:
        """Returns when all that was staged is on disk; raises what kept it from there."""
        batch = self._batch if self._batch.events else self._writing
        if batch is not None:
            await batch.done.wait()
            if batch.error is not None:
                raise batch.error

    async def full_disk(self) -> Path | None:
        """The folder of the database, if its disk is full: nothing new is to be written there."""
        if self._database is None or not self._database.reserve.is_low:
            return None
        await asyncio.get_running_loop().run_in_executor(self._thread, self._database.reserve.fill)
        return Path(self._database.path).parent if self._database.reserve.is_low else None

    async def close(self) -> None:
        """Wakes everyone who waits for a change, and commits what is staged."""
        self.closed = True
        for event in self._changed.values():
            event.set()
        while self._writing is not None:
            await self._writing.done.wait()
        if self._database is not None and self._thread is not None:
            self._thread.shutdown()
            self._database.close()

    def _stage(self, key: Key, value: dict[str, Any], *, gone: bool) -> None:
        if self.closed:
            raise RuntimeError("the store is closed")
        value["metadata"]["resourceVersion"] = str(self._issued + 1)
        encoded, before = encode(value), self.latest(key)
        is_known = before is not None and len(before.value) > OBJECT_BYTES  # of an earlier version: it stays writable
        if len(encoded) > OBJECT_BYTES and not is_known:
            raise TooLarge(f"{key.name} is too large: it has {len(encoded)} bytes, and the limit is {OBJECT_BYTES}")
        self._issued += 1
        event = Event(self._issued, key, encoded, before, gone)
        if self._database is None:
            self._publish([event])
            return
        self._staged[key] = event
        self._batch.events.append(event)
        if self._writing is None:
            self._flush(self._database)

    def _flush(self, database: Database) -> None:
        batch, self._batch = self._batch, _Batch()
        self._writing = batch
        rows = [Row(event.revision, *event.key, event.gone, event.value) for event in batch.events]
        drop, self._drop = self._drop, []
        write = partial(database.write, rows, drop, horizon=self._horizon)
        future = asyncio.get_running_loop().run_in_executor(self._thread, write)
        future.add_done_callback(lambda future: self._flushed(database, batch, error=future.exception(), drop=drop))

    def _flushed(self, database: Database, batch: _Batch, *, error: BaseException | None, drop: list[int]) -> None:
        self._writing = None
        if error is None:
            self._publish(batch.events)
        else:  # what was staged meanwhile stands on what did not happen
            self._drop = drop + self._drop
            self._staged.clear()
            self._batch.error = batch.error = error
            self._batch.done.set()
            self._batch = _Batch()
        batch.done.set()
        if self._batch.events:
            self._flush(database)

    # -- history

    def _publish(self, events: list[Event]) -> None:
        for event in events:
            self._apply(event)
            if self._staged.get(event.key) is event:
                del self._staged[event.key]
        self._trim()
        for resource in {"", *(event.key.resource for event in events)}:
            changed = self._changed.pop(resource, None)
            if changed is not None:
                changed.set()

    def _apply(self, event: Event) -> None:
        objects, place = self._objects.setdefault(event.key.resource, {}), event.key[1:]
        if event.gone or place not in objects:
            self._places.pop(event.key.resource, None)
        if event.gone:
            objects.pop(place, None)
        else:
            objects[place] = Entry(event.revision, event.value)
        self._events.append(event)
        self._size += len(event.value)
        self.revision = self.touched[event.key.resource] = event.revision

    def _trim(self) -> None:
        count = 0
        while len(self._events) - count > 1 and (
            len(self._events) - count > self._keep or self._size > self._keep_bytes
        ):
            event = self._events[count]
            count += 1
            self._size -= len(event.value)
            self._horizon = self._trimmed[event.key.resource] = event.revision
            if self._database is not None:
                self._drop += [entry.revision for entry in (event.before, event.gone and event) if entry]
        del self._events[:count]

    def _load(self, database: Database) -> None:
        for row in database.rows:
            key = Key(row.resource, row.namespace, row.name)
            self._apply(Event(row.revision, key, row.value, self.get(key), bool(row.gone)))
        kept = bisect_right(self._events, database.horizon, key=_revision)
        self._size -= sum(len(event.value) for event in self._events[:kept])
        del self._events[:kept]
        database.rows = []
        self._trim()


def _revision(event: Event) -> int:
    return event.revision
