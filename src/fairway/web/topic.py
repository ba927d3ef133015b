"""What viewers of one page share: it is drawn once for all who may see the same, and each gets what changed.

A topic is one address seen with one set of rights. Its pages are numbered; what changed from each to the next is kept
for a while, so that a stream that was cut goes on where it ended, and is told the whole page where that is too long
ago. Numbers of another life of the dashboard begin with another word, so they are never taken for ours.

A message is encoded and packed once for all who get it. Packed ones stand alone, so that a stream of them in any order
is one stream of gzip (RFC 1952) behind `PACKED`.
"""

import asyncio
import zlib
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

import msgspec

from fairway.clock import Chance

from .page import EMPTY, Ask, Page, difference
from .world import World

BATCH_SECONDS, REDRAW_SECONDS, BEAT_SECONDS, AWAY_SECONDS = 0.4, 5.0, 3.0, 0.5
KEPT, MOST_TOPICS = 64, 256
REST = 9.0
"""How many times as long as it takes to draw a page it is left as it is, so that it costs a tenth of a core at most.
The first drawing, which takes longer than all others, does not count."""
RATE = 16_000
"""Bytes in a second that a viewer is sent at most, the first page apart: a rest follows a change of many rows."""
PACKED = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
"""How a stream of gzip begins: no name, no time, no system."""
Draw = Callable[[World, Ask], Page]


@dataclass(frozen=True)
class Message:
    """`id`: empty for what has no number. `kind`: page (all of it), change or beat."""

    kind: str
    content: dict[str, Any]
    id: str = ""

    @cached_property
    def text(self) -> bytes:
        """As a server-sent event."""
        number = f"id: {self.id}\n" if self.id else ""
        return f"{number}event: {self.kind}\ndata: ".encode() + msgspec.json.encode(self.content) + b"\n\n"

    @cached_property
    def packed(self) -> bytes:
        """A part of a stream of gzip that refers to none before it."""
        packing = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        return packing.compress(self.text) + packing.flush(zlib.Z_FULL_FLUSH)


class Topic:
    def __init__(self, world: World, draw: Draw, ask: Ask) -> None:
        self._world, self._draw, self._ask = world, draw, ask
        self._word, self.number, self._seen = Chance().word(), 0, -1
        self._changes: deque[tuple[int, Message]] = deque(maxlen=KEPT)
        self.page = EMPTY
        self._whole: Message | None = None
        self._drawn = asyncio.Lock()
        self._at, self.pause, self.clock = -inf, BATCH_SECONDS, world.client.clock

    async def refresh(self) -> None:
        """Draws it anew if the world has changed since, or some time has passed; one viewer draws for all."""
        async with self._drawn:
            elapsed = self.clock.elapsed()
            if self._seen == self._world.version and elapsed < self._at + REDRAW_SECONDS:
                return
            self._seen, self._at = self._world.version, elapsed
            before = self.clock.spent()
            page = self._draw(self._world, replace(self._ask, now=self.clock.now(), before=self.page))
            spent, change, is_first = self.clock.spent() - before, difference(self.page, page), self.page is EMPTY
            self.pause = BATCH_SECONDS if is_first else max(BATCH_SECONDS, REST * spent)
            if change is not None:
                self.number, self.page, self._whole = self.number + 1, page, None
                self._changes.append((self.number, said := Message("change", change, self._id)))
                self.pause = max(self.pause, 0.0 if is_first else len(said.packed) / RATE)

    def after(self, last: str) -> list[Message]:
        """What makes the present page of the one with that number."""
        word, _, text = last.partition("-")
        known = int(text) if word == self._word and text.isdecimal() else -1
        missed = [(number, change) for number, change in self._changes if number > known]
        if known < 0 or known > self.number or len(missed) != self.number - known:
            self._whole = self._whole or Message("page", self.page.whole(), self._id)
            return [self._whole]
        return [change for _, change in missed]

    @property
    def _id(self) -> str:
        return f"{self._word}-{self.number}"


class Topics:
    """`draws`: by the first part of a path."""

    def __init__(self, world: World, draws: dict[str, Draw]) -> None:
        self._world, self._draws = world, draws
        self._topics: OrderedDict[tuple[object, ...], Topic] = OrderedDict()

    def find(self, ask: Ask) -> Topic | None:
        """The topic of an address with these rights; None where there is no such view."""
        draw = self._draws.get(ask.path.partition("/")[0])
        if draw is None:
            return None
        key = (ask.path, tuple(sorted(ask.query.items())), ask.sight)
        if key not in self._topics:
            self._topics[key] = Topic(self._world, draw, ask)
            if len(self._topics) > MOST_TOPICS:
                self._topics.popitem(last=False)
        self._topics.move_to_end(key)
        return self._topics[key]

    async def follow(self, topic: Topic, last: str) -> AsyncIterator[Message]:
        """The page, then each change, and a beat where nothing changes; without an end. While the API server is away
        nothing is told, so that the page says that it is not live."""
        clock, told = topic.clock, -inf
        while True:
            if told > -inf and self._world.is_away:
                await clock.sleep(AWAY_SECONDS)
                continue
            version, self._world.looked_at = self._world.version, clock.elapsed()
            await topic.refresh()
            for message in topic.after(last):
                last, told = message.id, clock.elapsed()
                yield message
            if clock.elapsed() >= told + BEAT_SECONDS:
                told = clock.elapsed()
                yield Message("beat", {"at": clock.now()})
            try:
                await clock.within(BEAT_SECONDS, self._world.after(version))
                await clock.sleep(topic.pause)
            except TimeoutError:
                pass
