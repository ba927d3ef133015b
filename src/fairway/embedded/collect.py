"""What goes with what is gone: dependents with their owners, contents with their namespace, objects with their kind.

The collector follows the store's log and keeps who owns whom. Rules: an object whose owners are all gone is deleted; an
owner deleted in the foreground waits for the dependents that block it; one whose dependents are orphaned first loses
their references; a namespace ends when it is empty, a definition when it has no objects; events live an hour (a day
where one is the record of a cancelled workload), and MOST_EVENTS are kept. Of Jobs and of pods that are over
MOST_OVER are kept, whatever their ttl: memory is bounded. The first of the namespace that has most go, for a user can
make any number. A namespace gets its service account. Owners of a kind that is not served count as there: nothing is
known of them.
It is written as looks at single objects, each of which does what is due now and may be repeated; a look that was in
vain (no room on disk) is taken again.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from math import inf
from typing import Any

import msgspec

from fairway.api.objects import CANCELLED
from fairway.api.quantities import Malformed, time
from fairway.embedded import crd
from fairway.embedded.access.identity import controller
from fairway.embedded.catalog import CRDS, Resource
from fairway.embedded.database import Full
from fairway.embedded.deletion import FOREGROUND, ORPHAN, Options, delete
from fairway.embedded.errors import Failure
from fairway.embedded.registry import Registry, Thing, Write
from fairway.embedded.store import Compacted, Entry, Event, Key

EVENT_SECONDS, RECORD_SECONDS, SWEEP_SECONDS, RETRY_SECONDS = 3600.0, 86_400.0, 60.0, 1.0
MOST_EVENTS, MOST_OVER = 5_000, 10_000  # of the API, of those for people; of Jobs and of pods
ROUND = 500  # objects touched between two commits, so that requests get their turn
_EVENTS = ("events", "events.events.k8s.io")
ENDS = frozenset({"Complete", "Succeeded", "Failed"})  # conditions of Jobs, phases of pods
_USER = controller("collector")
_BACKGROUND = Options(propagation="Background")


class _Owner(msgspec.Struct, rename="camel"):
    uid: str
    name: str
    kind: str
    api_version: str
    block_owner_deletion: bool = False


class _Meta(msgspec.Struct, rename="camel"):
    uid: str
    namespace: str = ""
    owner_references: list[_Owner] = []
    finalizers: list[str] = []
    deletion_timestamp: str | None = None
    creation_timestamp: str = ""


class _Thing(msgspec.Struct):
    metadata: _Meta


class _Event(msgspec.Struct, rename="camel"):
    metadata: _Meta
    reason: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None


_read = msgspec.json.Decoder(_Thing).decode
_read_event = msgspec.json.Decoder(_Event).decode


class Collector:
    """Run it as a task; it ends with the store."""

    def __init__(self, registry: Registry) -> None:
        self._registry, self._store, self._clock = registry, registry.store, registry.clock
        self._dependents: dict[str, set[Key]] = {}  # by their owner's uid
        self._owners: dict[Key, list[_Owner]] = {}
        self._due: dict[Key, None] = {}
        self._over: dict[str, dict[Key, None]] = {}  # by their resource, those first that were over first
        self._position = 0

    async def run(self) -> None:
        swept = -inf
        self._begin()
        while not self._store.closed:
            self._follow()
            self._drop_first()
            if self._clock.elapsed() >= swept + SWEEP_SECONDS:
                swept = self._clock.elapsed()
                self._drop_old_events(self._clock.now())
            if self._due:
                await self._round()
                continue
            try:
                await self._clock.within(swept + SWEEP_SECONDS - self._clock.elapsed(), self._store.changed())
            except TimeoutError:
                continue

    # -- following the log

    def _begin(self) -> None:
        self._dependents, self._owners, self._over = {}, {}, {"jobs.batch": {}, "pods": {}}
        self._position = self._store.revision
        for resource in self._registry.catalog:
            for place, entry in self._store.objects(resource.name).items():
                self._note(Key(resource.name, *place), entry.value)

    def _follow(self) -> None:
        try:
            events = self._store.since(self._position)
        except Compacted:
            self._begin()
            return
        self._position = self._store.revision
        for event in events:
            if event.gone:
                self._forget(event)
            else:
                self._note(event.key, event.value)

    def _note(self, key: Key, value: bytes) -> None:
        meta = _read(value).metadata
        if meta.owner_references != self._owners.get(key, []):
            self._own(key, meta.owner_references)
            self._due[key] = None
        if meta.deletion_timestamp or key.resource == "namespaces":
            self._due[key] = None
        if key.resource in self._over and _is_over(msgspec.json.decode(value).get("status") or {}):
            self._over[key.resource][key] = None

    def _own(self, key: Key, owners: list[_Owner]) -> None:
        for owner in self._owners.pop(key, ()):
            self._dependents.get(owner.uid, set()).discard(key)
        if owners:
            self._owners[key] = owners
        for owner in owners:
            self._dependents.setdefault(owner.uid, set()).add(key)

    def _forget(self, event: Event) -> None:
        """What may be due now that this object is gone: its dependents, its owners, its namespace, its kind."""
        key = event.key
        self._over.get(key.resource, {}).pop(key, None)
        self._due |= dict.fromkeys(self._dependents.pop(_read(event.value).metadata.uid, ()))
        self._due |= dict.fromkeys(filter(None, (self._key_of(owner, key) for owner in self._owners.get(key, ()))))
        self._own(key, [])
        if key.namespace:
            self._due[Key("namespaces", "", key.namespace)] = None
        if "." in key.resource:
            self._due[Key(CRDS, "", key.resource)] = None

    # -- acting

    async def _round(self) -> None:
        """Looks at some of what is due, and commits."""
        keys = [key for key, _ in zip(self._due, range(ROUND))]
        for key in keys:
            del self._due[key]
            with suppress(Failure):  # what may not be deleted stays
                self._look(key)
        try:
            await self._store.committed()
        except (Full, sqlite3.Error):
            self._due = dict.fromkeys(keys) | self._due
            await self._clock.sleep(RETRY_SECONDS)

    def _look(self, key: Key) -> None:
        entry, resource = self._store.latest(key), self._registry.catalog.stored(key.resource)
        if entry is None or resource is None or self._store.closed:
            return
        meta = _read(entry.value).metadata
        if not meta.deletion_timestamp:
            if key.resource == "namespaces":
                self._furnish(key.name)
            keepers = {owner.uid for owner in meta.owner_references if self._is_there(owner, key)}
            if keepers and len(keepers) < len(meta.owner_references):
                self._strip(resource, entry, "ownerReferences", lambda it: it["uid"] in keepers)
            elif meta.owner_references and not keepers:
                self._delete(resource, entry)
        elif key.resource == "namespaces":
            self._empty(key, entry)
        elif crd.FINALIZER in meta.finalizers and key.resource == CRDS:
            self._clear(key, entry)
        elif ORPHAN in meta.finalizers:
            self._orphan(resource, entry, meta)
        elif FOREGROUND in meta.finalizers:
            self._wait_for_dependents(resource, entry, meta)

    def _key_of(self, owner: _Owner, dependent: Key) -> Key | None:
        """None for an owner of a kind that is not served."""
        resource = self._registry.catalog.of(owner.api_version, owner.kind)
        if resource is None:
            return None
        return Key(resource.name, dependent.namespace if resource.kind.namespaced else "", owner.name)

    def _is_there(self, owner: _Owner, dependent: Key) -> bool:
        """Whether the owner keeps the dependent: it exists and does not wait for it to go."""
        key = self._key_of(owner, dependent)
        entry = key and self._store.latest(key)
        if not entry:
            return key is None
        meta = _read(entry.value).metadata
        return meta.uid == owner.uid and FOREGROUND not in meta.finalizers

    def _delete(self, resource: Resource, entry: Entry) -> None:
        delete(self._registry, msgspec.json.decode(entry.value), how=_BACKGROUND, write=_write(resource))

    def _delete_all(self, name: str, places: Iterable[tuple[str, str]]) -> bool:
        """Deletes a round of those that are not being deleted yet; whether there were any at all."""
        resource, count, there = self._registry.catalog.stored(name), 0, False
        for place in places:
            entry = self._store.latest(Key(name, *place))
            if entry is not None and resource is not None and count < ROUND:
                there = True
                if not _read(entry.value).metadata.deletion_timestamp:
                    self._delete(resource, entry)
                    count += 1
        return there

    def _dependents_of(self, owner: _Meta) -> Iterator[tuple[Key, Resource, Entry]]:
        """What another namespace says of its owner is no dependence: users would hold up each other's deletions."""
        for key in tuple(self._dependents.get(owner.uid, ())):
            entry, kind = self._store.latest(key), self._registry.catalog.stored(key.resource)
            if entry is not None and kind is not None and owner.namespace in ("", key.namespace):
                yield key, kind, entry

    def _orphan(self, resource: Resource, owner: Entry, own: _Meta) -> None:
        for _, kind, entry in self._dependents_of(own):
            self._strip(kind, entry, "ownerReferences", lambda it: it["uid"] != own.uid)
        self._strip(resource, owner, "finalizers", lambda it: it != ORPHAN)

    def _strip(self, resource: Resource, entry: Entry, name: str, keeps: Callable[[Any], bool]) -> None:
        """Takes the other items out of that field of its metadata."""
        thing = msgspec.json.decode(entry.value)
        if rest := [each for each in thing["metadata"].pop(name, ()) if keeps(each)]:
            thing["metadata"][name] = rest
        self._registry.replace(thing, _write(resource))

    def _wait_for_dependents(self, resource: Resource, owner: Entry, own: _Meta) -> None:
        blocked = False
        for key, kind, entry in self._dependents_of(own):
            meta = _read(entry.value).metadata
            blocked = blocked or any(it.uid == own.uid and it.block_owner_deletion for it in meta.owner_references)
            if not meta.deletion_timestamp and not any(self._is_there(each, key) for each in meta.owner_references):
                self._delete(kind, entry)
        if not blocked:
            self._strip(resource, owner, "finalizers", lambda it: it != FOREGROUND)

    def _furnish(self, namespace: str) -> None:
        accounts = self._registry.catalog.stored("serviceaccounts")
        if accounts is not None and self._store.latest(Key("serviceaccounts", namespace, "default")) is None:
            self._registry.create({"metadata": {"name": "default", "namespace": namespace}}, _write(accounts))

    def _empty(self, key: Key, entry: Entry) -> None:
        there = False
        for resource in self._registry.catalog:
            if resource.kind.namespaced:
                places = [place for place in self._store.objects(resource.name) if place[0] == key.name]
                there = self._delete_all(resource.name, places) or there
        if not there:
            thing, namespaces = msgspec.json.decode(entry.value), self._registry.catalog.stored("namespaces")
            thing["spec"]["finalizers"] = []
            if namespaces is not None:
                self._registry.replace(thing, _write(namespaces))

    def _clear(self, key: Key, entry: Entry) -> None:
        definitions = self._registry.catalog.stored(CRDS)
        there = self._delete_all(key.name, list(self._store.objects(key.name)))
        if not there and definitions is not None:
            self._strip(definitions, entry, "finalizers", lambda it: it != crd.FINALIZER)

    def _drop_first(self) -> None:
        """Of too many the first that were made, or were over: short jobs make thousands within an hour."""
        for name in _EVENTS:
            places = self._store.objects(name)
            if len(places) >= MOST_EVENTS + ROUND:
                own = _of_largest(places)
                others = (place for place in own if not _is_record(_read_event(places[place].value)))
                self._delete_all(name, list(islice(others, ROUND)) or own[:ROUND])
        for name, over in self._over.items():
            if len(over) >= MOST_OVER + ROUND:
                self._delete_all(name, _of_largest([key[1:] for key in over]))

    def _drop_old_events(self, now: float) -> None:
        """A round at a time: a minute brings fewer, and what is left is there at the next."""
        for name in _EVENTS:
            events = self._store.objects(name).items()
            self._delete_all(name, [place for place, entry in events if _is_old(_read_event(entry.value), now)])


def _of_largest(places: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those of the namespace that has most of them, in their order."""
    largest = Counter(space for space, _ in places).most_common(1)[0][0]
    return [place for place in places if place[0] == largest]


def _is_over(status: Thing) -> bool:
    """Whether a Job or a pod is."""
    conditions = (it.get("type") for it in status.get("conditions") or () if it.get("status") == "True")
    return not ENDS.isdisjoint((status.get("phase"), *conditions))


def _is_record(event: _Event) -> bool:
    """Whether it is all that is left of a workload."""
    return event.reason == CANCELLED


def _is_old(event: _Event, now: float) -> bool:
    return _last_seen(event) < now - (RECORD_SECONDS if _is_record(event) else EVENT_SECONDS)


def _last_seen(event: _Event) -> float:
    try:
        return time(event.last_timestamp or event.event_time or event.metadata.creation_timestamp)
    except Malformed:  # of the client's making
        return time(event.metadata.creation_timestamp)


def _write(resource: Resource) -> Write:
    return Write(resource, _USER, validation="Ignore")
