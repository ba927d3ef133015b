"""A copy of the objects of a selection, kept current: list, then watch from the list's version.

The rules. Every change is told once, as (old, new): (None, new) for what came, (old, None) for what went; an object
deleted and made again under its name is told as gone, then as come, even if both were missed. A cut watch goes on
from the last version seen; 410 lists anew and tells the differences. Errors back off with jitter, for ever: an API
server that is away is no reason to stop. `changed` is called in the task that runs the informer and must not wait.
It keeps decoded values only, in the msgspec type given (the fields somebody reads), or dicts; an object that does not
fit the type counts as absent, and does not keep others from being seen. Whoever wrote something
waits until it is seen: after that the store alone is the truth, and nobody keeps its own writes on the side.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any, Generic, TypeVar

import msgspec

from .client import WATCH_SECONDS, ApiError, Client, Event
from .kinds import Selection

T = TypeVar("T")
Awaited = tuple[Callable[[T | None], bool], asyncio.Future[None]]

FIRST_SECONDS, LONGEST_SECONDS, UNSEEN_SECONDS = 0.5, 30.0, 30.0
log = logging.getLogger(__name__)


class _Meta(msgspec.Struct, rename={"version": "resourceVersion"}, gc=False):
    name: str = ""
    namespace: str = ""
    version: str = ""
    uid: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Head(msgspec.Struct):
    metadata: _Meta


_HEAD = msgspec.json.Decoder(_Head)


class Informer(Generic[T]):
    """`store` maps "namespace/name" (or "name") to values; `synced` is set once the first list is in it. `slim`: what
    is kept, and told, of a value."""

    def __init__(
        self,
        client: Client,
        selection: Selection,
        *,
        shape: type[T],
        changed: Callable[[T | None, T | None], None],
        slim: Callable[[T], T] = lambda value: value,
    ) -> None:
        self.client, self.selection, self.changed, self.slim = client, selection, changed, slim
        self.store: dict[str, T] = {}
        self.synced = asyncio.Event()
        self.is_away = False  # the last exchange failed, and nothing was heard since
        self._heads: dict[str, _Meta] = {}
        self._awaited: defaultdict[str, list[Awaited[T]]] = defaultdict(list)
        self._decode = msgspec.json.Decoder(shape)
        self._version = ""
        self._pause = FIRST_SECONDS

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self.client.clock.within(WATCH_SECONDS + 30, self._watch())
            except (ApiError, OSError, msgspec.MsgspecError) as error:
                if isinstance(error, ApiError) and error.is_of_other_times and self._version:
                    self._version = ""
                else:
                    await self._back_off(error)

    async def shown(self, key: str, test: Callable[[T | None], bool]) -> None:
        """Returns once what is seen under the key passes `test` (None: nothing is there), or after a while: an object
        that came and went between two lists is never seen."""
        if not test(self.store.get(key)):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._awaited[key].append((test, future))
            with suppress(TimeoutError):
                await self.client.clock.within(UNSEEN_SECONDS, future)

    async def caught_up(self, written: dict[str, Any]) -> None:
        """Returns once this version of an object or a later one is seen, or that it is gone."""
        meta = msgspec.convert(written["metadata"], _Meta)

        def is_seen(_: T | None) -> bool:
            head = self._heads.get(meta.key)
            return head is None or head.uid != meta.uid or int(head.version) >= int(meta.version)

        await self.shown(meta.key, is_seen)

    async def _back_off(self, error: Exception) -> None:
        self.is_away = True
        log.warning("%s: %s: %s", self.selection.path(), type(error).__name__, error)
        await self.client.rest(self._pause)
        self._pause = min(2 * self._pause, LONGEST_SECONDS)

    async def _list(self) -> None:
        found: dict[str, tuple[_Meta, msgspec.Raw]] = {}
        version = ""
        async for page in self.client.pages(self.selection):
            version = page.metadata.version
            for raw in page.items or ():
                head = _HEAD.decode(raw).metadata
                found[head.key] = head, raw
        for key in [key for key in self.store if key not in found]:
            self._drop(key)
        for head, raw in found.values():
            self._keep(head, raw)
        self._version, self._pause, self.is_away = version, FIRST_SECONDS, False
        self.synced.set()

    async def _watch(self) -> None:
        started, seen = self.client.clock.elapsed(), False
        async with aclosing(self.client.watch(self.selection, self._version)) as events:
            async for event in events:
                self._observe(event)
                seen, self._pause, self.is_away = True, FIRST_SECONDS, False
        if not seen and self.client.clock.elapsed() < started + 1.0:
            raise ConnectionError("the watch ended at once")

    def _observe(self, event: Event) -> None:
        head = _HEAD.decode(event.object).metadata
        if event.type == "DELETED":
            self._drop(head.key)
        elif event.type != "BOOKMARK":
            self._keep(head, event.object)
        self._version = head.version

    def _keep(self, head: _Meta, raw: msgspec.Raw) -> None:
        known = self._heads.get(head.key)
        if known and known.version == head.version:
            return
        if known and known.uid != head.uid:
            self._drop(head.key)
        try:
            new = self.slim(self._decode.decode(raw))
        except msgspec.MsgspecError as error:
            log.warning("%s: %s counts as absent: %s", self.selection.path(), head.key, error)
            self._drop(head.key)
            return
        old = self.store.get(head.key)
        self.store[head.key], self._heads[head.key] = new, head
        self._tell(head.key, old, new)

    def _drop(self, key: str) -> None:
        if key in self.store:
            del self._heads[key]
            self._tell(key, self.store.pop(key), None)

    def _tell(self, key: str, old: T | None, new: T | None) -> None:
        if waiting := self._awaited.pop(key, None):
            for test, future in waiting:
                if not future.done() and test(new):
                    future.set_result(None)
            if left := [it for it in waiting if not it[1].done()]:
                self._awaited[key] = left
        self.changed(old, new)
