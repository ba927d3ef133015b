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
from dataclasses import replace
from datetime import datetime

import click
import msgspec

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Selection

from .listing import LESS, Listed, rank
from .output import table
from .rows import Filter, Sight, columns

PAUSE_SECONDS = 0.5
Key = tuple[str, str]
"""Namespace and name of a Workload."""
Known = dict[Key, Listed]
Until = Callable[[Known], bool]


async def watch(client: Client, namespace: str, filter: Filter, until: Until = lambda known: False) -> None:
    """Shows the workloads that `filter` takes and each change of them, until `until` holds of all that there are."""
    known: Known = {}
    changed = asyncio.Event()

    async def follow() -> None:
        async with aclosing(changes(client, namespace, known)) as seen:
            async for _ in seen:
                changed.set()

    following, screen = asyncio.create_task(follow()), Screen(namespace)
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
    """Keeps `known` current, and yields the key of each change; None after a list: all may have changed. A cut watch
    begins anew with a list."""
    decode, selection = msgspec.json.Decoder(Listed).decode, Selection(kinds.WORKLOADS, namespace)
    while True:
        found: Known = {}
        version = ""
        async for page in client.pages(selection):
            version = page.metadata.version
            found |= {one.key: one for one in map(decode, page.items or ())}
        known.clear()
        known.update(found)
        yield None
        try:
            async with aclosing(client.watch(selection, version)) as events:
                async for event in events:
                    one = decode(event.object)
                    if event.type == "DELETED":
                        known.pop(one.key, None)
                    elif event.type != "BOOKMARK":
                        known[one.key] = one
                    yield one.key
        except (ApiError, OSError) as error:
            if isinstance(error, ApiError) and error.status != 410:
                raise


class Screen:
    """Where the table is drawn: a terminal, of which it remembers how many lines it filled, or lines of text."""

    def __init__(self, namespace: str) -> None:
        self._namespace, self._filled = namespace, 0
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
        """A line for each workload that is new, changed or gone."""
        at = f"{datetime.fromtimestamp(sight.now):%H:%M:%S}"
        head, rows = columns(items, sight, space=self._namespace)
        named = [at for at, name in enumerate(head) if name not in ("POSITION", "STARTS")]  # they change all the time
        lines = {it.key: "  ".join(filter(None, (cells[at] for at in named))) for it, cells in zip(items, rows)}
        for key, line in lines.items():
            if self._shown.get(key, ("", ""))[1] != line:
                click.echo(f"{at}  {line}")
        for key in self._shown.keys() - lines.keys():
            click.echo(f"{at}  {self._shown[key][0]}  gone")
        sys.stdout.flush()
        self._shown = {it.key: (it.name, lines[it.key]) for it in items}
