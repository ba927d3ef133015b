"""Workloads as they change: what `ls --watch` and `submit --watch` show, from a watch of the API server.

On a terminal the table is drawn again in its place, at most twice a second; elsewhere a line is printed for each
workload that changed. Nothing is asked again while nothing changes.
"""

import asyncio
import shutil
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import click
import msgspec

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Selection

from .alone import pods, read
from .listing import LESS, Listed, rank
from .output import table
from .patient import Patient
from .rows import Filter, Named, Sight, columns

PAUSE_SECONDS = 0.5
MOST_TOLD = 1000  # changes that wait to be looked at
Key = tuple[str, str]
"""Namespace and name of a Workload."""
Known = dict[Key, Listed]
Told = asyncio.Queue[tuple[int, Key | None]]
"""Of which source, and what changed there; None: all may have."""
Until = Callable[[Known], bool]


async def watch(client: Client, namespace: str, filter: Filter, until: Until = lambda known: False) -> None:
    """Shows the workloads that `filter` takes and each change of them, until `until` holds of all that there are."""
    client, known, changed = Patient(client), dict[Key, Listed](), asyncio.Event()

    async def follow() -> None:
        async with aclosing(changes(client, namespace, known)) as seen:
            async for _ in seen:
                changed.set()

    following, screen = asyncio.create_task(follow()), Screen(namespace, known)
    following.add_done_callback(lambda _: changed.set())
    try:
        sight = await Sight.of(client, [])
        while await changed.wait() and not following.done():
            changed.clear()
            now = client.clock.now()
            items = sorted((it for it in known.values() if filter.takes(it, now)), key=rank)
            screen.show(items, replace(sight, now=now))
            if until(known):
                return
            await client.clock.sleep(PAUSE_SECONDS)
        following.result()
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def changes(client: Client, namespace: str, known: Known) -> AsyncGenerator[Key | None, None]:
    """Keeps `known` current, with what pods stand for, and yields the key of each change; None after a list: all may
    have changed."""
    told: Told = asyncio.Queue(MOST_TOLD)
    sources = (Source(Selection(kinds.WORKLOADS, namespace)), Source(pods(namespace), _of_pod))
    tasks = [asyncio.create_task(one.follow(client, told, at)) for at, one in enumerate(sources)]
    listed: set[int] = set()
    try:
        while True:
            at, key = await _next(told, tasks)
            listed |= {at} if key is None else set()
            if len(listed) < len(sources):
                continue
            written, own = (one.found for one in sources)
            if key is None:
                known.clear()
                known.update(own | written)
            elif one := written.get(key) or own.get(key):
                known[key] = one
            else:
                known.pop(key, None)
            yield key
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _next(told: Told, tasks: list["asyncio.Task[None]"]) -> Any:
    """What is told next; what a source fails with is raised."""
    asking = asyncio.create_task(told.get())
    try:
        await asyncio.wait([asking, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
        return await asking
    finally:
        asking.cancel()


def _of_workload(one: msgspec.Raw) -> Listed | None:
    return msgspec.json.decode(one, type=Listed)


def _of_pod(one: msgspec.Raw) -> Listed | None:
    made = read(msgspec.json.decode(one))
    return msgspec.convert(made, Listed) if made else None


@dataclass(slots=True)
class Source:
    """Where workloads are read from, and those that are found there."""

    selection: Selection
    read: Callable[[msgspec.Raw], Listed | None] = _of_workload
    found: Known = field(default_factory=dict)
    _names: dict[Key, Key] = field(default_factory=dict)  # of objects → of workloads

    async def follow(self, client: Client, told: Told, at: int) -> None:
        """Tells the key of each change. A cut watch begins anew with a list; who may not see pods sees none."""
        while True:
            try:
                version = await self._list(client)
                await told.put((at, None))
                await self._watch(client, version, told, at)
            except (ApiError, OSError) as error:
                if isinstance(error, ApiError) and error.status == 403 and self.selection.kind == kinds.PODS:
                    return await told.put((at, None))
                if isinstance(error, ApiError) and not error.is_of_other_times:
                    raise

    async def _list(self, client: Client) -> str:
        """The version of what is found."""
        items: list[msgspec.Raw] = []
        version = ""
        async for page in client.pages(self.selection):
            version = page.metadata.version
            items += page.items or ()
        self.found, self._names = {}, {}
        for item in items:
            self._keep(item)
        return version

    async def _watch(self, client: Client, version: str, told: Told, at: int) -> None:
        async with aclosing(client.watch(self.selection, version)) as events:
            async for event in events:
                is_gone = event.type == "DELETED"
                key = None if event.type == "BOOKMARK" else self._keep(event.object, is_gone=is_gone)
                if key:
                    await told.put((at, key))

    def _keep(self, item: msgspec.Raw, *, is_gone: bool = False) -> Key | None:
        """The key of the workload that changed, if one did."""
        meta = msgspec.json.decode(item, type=Named).metadata
        one = None if is_gone else self.read(item)
        key = one.key if one else self._names.pop((meta.namespace, meta.name), None)
        if key and one:
            self.found[key], self._names[meta.namespace, meta.name] = one, key
        elif key:
            self.found.pop(key, None)
        return key


class Screen:
    """Where the table is drawn: a terminal, of which it remembers how many lines it filled, or lines of text."""

    def __init__(self, namespace: str, known: Known) -> None:
        self._namespace, self._known, self._filled = namespace, known, 0
        self._shown: dict[tuple[str, str], tuple[str, str]] = {}  # name and line

    def show(self, items: list[Listed], sight: Sight) -> None:
        if sys.stdout.isatty():
            self._draw(items, sight)
        else:
            self._tell(items, sight)

    def _draw(self, items: list[Listed], sight: Sight) -> None:
        size, states = shutil.get_terminal_size(), Counter(it.state for it in items)
        counts = ", ".join(f"{count:,} {state}" for state, count in states.items()) or "no workloads"
        fit = items[: max(1, size.lines - 4)]
        head, rows = columns(fit, sight, space=self._namespace)
        lines = [f"{datetime.fromtimestamp(sight.now):%H:%M:%S}  {counts}  (Ctrl-C ends)"[: size.columns]]
        lines += table(head, rows, width=size.columns, less=LESS) if rows else []
        lines += [f"… {len(items) - len(fit):,} more"] * (len(fit) < len(items))
        back = f"\x1b[{self._filled}F\x1b[J" if self._filled else ""
        click.echo(back + "\n".join(lines))
        self._filled = len(lines)

    def _tell(self, items: list[Listed], sight: Sight) -> None:
        """A line for each workload that is new, changed, or leaves the table: how it ended, or that it is gone."""
        at = f"{datetime.fromtimestamp(sight.now):%H:%M:%S}"
        head, rows = columns(items, sight, space=self._namespace)
        named = [at for at, name in enumerate(head) if name not in ("POSITION", "STARTS")]  # they change all the time
        lines = {it.key: "  ".join(filter(None, (cells[at] for at in named))) for it, cells in zip(items, rows)}
        for key, line in lines.items():
            if self._shown.get(key, ("", ""))[1] != line:
                click.echo(f"{at}  {line}")
        for key in self._shown.keys() - lines.keys():
            left = self._known.get(key)
            click.echo(f"{at}  {self._shown[key][0]}  {left.state if left else 'gone'}")
        sys.stdout.flush()
        self._shown = {it.key: (it.name, lines[it.key]) for it in items}
