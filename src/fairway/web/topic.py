"""What viewers of one page share: it is drawn once for all who may see the same, and each gets what changed.

A topic is one address seen with one set of rights. Its pages are numbered; what changed from each to the next is kept
for a while, so that a stream that was cut goes on where it ended, and is told the whole page where that is too long
ago. Numbers of another life of the dashboard begin with another word, so they are never taken for ours.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any

from fairway.clock import Chance, Clock

from .page import EMPTY, Ask, Page, difference
from .world import World

BATCH_SECONDS, REDRAW_SECONDS, BEAT_SECONDS, AWAY_SECONDS = 0.4, 5.0, 3.0, 0.5
KEPT, MOST_TOPICS = 64, 256
REST = 9.0
"""How many times as long as it takes to draw a page it is left as it is, so that it costs a tenth of a core at most."""
Draw = Callable[[World, Ask], Page]


@dataclass(frozen=True, slots=True)
class Message:
    """`id`: empty for what has no number. `kind`: page (all of it), change or beat."""

    kind: str
    content: dict[str, Any]
    id: str = ""


class Topic:
    def __init__(self, world: World, draw: Draw, ask: Ask) -> None:
        self._world, self._draw, self._ask = world, draw, ask
        self._word, self.number, self._seen = Chance().word(), 0, -1
        self._changes: deque[tuple[int, dict[str, Any]]] = deque(maxlen=KEPT)
        self.page = EMPTY
        self._drawn = asyncio.Lock()
        self._at, self.pause = 0.0, BATCH_SECONDS

    @property
    def clock(self) -> Clock:
        return self._world.client.clock

    async def refresh(self) -> None:
        """Draws it anew if the world has changed since, or some time has passed; one viewer draws for all."""
        async with self._drawn:
            now = self.clock.now()
            if self._seen == self._world.version and now < self._at + REDRAW_SECONDS:
                return
            self._seen, self._at = self._world.version, now
            page = self._draw(self._world, replace(self._ask, now=now, before=self.page))
            self.pause = max(BATCH_SECONDS, REST * (self.clock.now() - now))
            change = difference(self.page, page)
            if change is not None:
                self.number, self.page = self.number + 1, page
                self._changes.append((self.number, change))

    def after(self, last: str) -> list[Message]:
        """What makes the present page of the one with that number."""
        word, _, text = last.partition("-")
        known = int(text) if word == self._word and text.isdecimal() else -1
        missed = [(number, change) for number, change in self._changes if number > known]
        if known < 0 or known > self.number or len(missed) != self.number - known:
            return [Message("page", self.page.whole(), self._id(self.number))]
        return [Message("change", change, self._id(number)) for number, change in missed]

    def _id(self, number: int) -> str:
        return f"{self._word}-{number}"


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
        clock, told = topic.clock, 0.0
        while True:
            if told and self._world.is_away:
                await clock.sleep(AWAY_SECONDS)
                continue
            version, self._world.looked_at = self._world.version, clock.now()
            await topic.refresh()
            for message in topic.after(last):
                last, told = message.id, clock.now()
                yield message
            if clock.now() >= told + BEAT_SECONDS:
                told = clock.now()
                yield Message("beat", {"at": told})
            try:
                await clock.within(BEAT_SECONDS, self._world.after(version))
                await clock.sleep(topic.pause)
            except TimeoutError:
                pass
