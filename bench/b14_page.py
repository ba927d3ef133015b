"""B14, the live page: 5,000 nodes of 8 GPUs, 20,000 workloads, 200 changes a second.

The page's own informers read prepared lists and changes; no API server is in the figures. CPU seconds of this process,
so other load on the machine matters little. A page is drawn once for all viewers who may see the same; then each gets
what changed, packed as a browser takes it. What a second costs is 200 changes read, and a view drawn as often as a
topic draws it. Valid if the page shows the last change.

The part `viewers` serves 50 streams of the views Now and Waiting over HTTP to a process of their own, for a while with
200 changes in each second, and counts this process and the bytes that arrive; then all changes are of the rows that
Waiting shows, and what Now is sent meanwhile counts for Waiting as well. `cycles` does so in the process of a
scheduler, as `fairway up` does: it plans again and again, and counts CPU seconds from the moment that a plan is due to
its end. The part `browser` is in `tab.py`: what a tab of Chromium (Debian's package; without it the part is left out)
makes of the views.
"""

import asyncio
import gc
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from statistics import median
from time import monotonic, process_time

from bench import tab
from bench.b3_engine import world as to_plan
from bench.figure import Figure
from bench.page import CHANGES, Cluster, Size

from fairway.cli.main import GC_THRESHOLD
from fairway.clock import Clock
from fairway.engine import Policy, decide, snapshot_of
from fairway.kube.client import Client
from fairway.web.access import Access, Sight
from fairway.web.page import Ask, difference
from fairway.web.server import VIEWS, Dashboard
from fairway.web.topic import BATCH_SECONDS, REST, Message
from fairway.web.world import World

NOW = 1_795_435_200.0  # 2026-11-23T13:20:00Z
VIEWERS, TOKEN = 50, "own"
STEPS, REST_SECONDS = 10, 0.1
"""The times that each gives way to other tasks as one that writes does, and the rest between two."""
READER = """
import selectors, socket, sys
host, port, count, *views = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]
asked = ("GET /stream?at=%s HTTP/1.1\\r\\nHost: " + f"{host}:{port}\\r\\nAuthorization: Bearer own\\r\\n"
         "Accept-Encoding: gzip\\r\\n\\r\\n")
them, total = selectors.DefaultSelector(), 0
them.register(sys.stdin, selectors.EVENT_READ)
for at in range(count):
    one = socket.create_connection((host, port))
    one.sendall((asked % views[at % len(views)]).encode())
    them.register(one, selectors.EVENT_READ)
while True:
    for key, _ in them.select():
        if key.fileobj is sys.stdin:
            if not sys.stdin.readline():
                sys.exit()
            print(total, flush=True)
        else:
            total += len(key.fileobj.recv(1 << 20))
"""
"""Viewers: they read what comes, and print the bytes for each line that they are sent."""


def run(rounds: int) -> Iterator[Figure]:
    before = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLD)  # as every command does
    yield from asyncio.run(measured(Size(), rounds))
    gc.set_threshold(*before)


async def measured(size: Size, rounds: int) -> list[Figure]:
    cluster = Cluster(size)
    world = World(Client(cluster.answer, Clock()), "default")
    began = process_time()
    await world.seen()
    figures = [Figure("page: all objects read", (process_time() - began,), "CPU s")]
    for view in os.environ.get("BENCH_PARTS", "now waiting queues timeline operations viewers cycles browser").split():
        live = {"viewers": _viewers, "cycles": _cycles, "browser": tab.figures}.get(view)
        figures += await (live(cluster, world) if live else _view(cluster, world, view, rounds))
    await world.stop()
    return figures


async def _view(cluster: Cluster, world: World, view: str, rounds: int) -> list[Figure]:
    draw, ask = VIEWS[view], Ask(view, {}, Sight(), NOW)
    began = process_time()
    page = draw(world, ask)
    first, whole = process_time() - began, len(Message("page", page.whole()).packed)
    reads, draws, sent, is_shown = [], [], [], True
    for version in range(2, 2 + rounds):
        began, before = process_time(), world.version
        cluster.change(before + version)
        while not cluster.changes.empty() or world.version < before + min(CHANGES, cluster.size.workloads):
            await asyncio.sleep(0)
        reads.append(process_time() - began)
        began, old = process_time(), page
        page = draw(world, replace(ask, before=page))
        draws.append(process_time() - began)
        change = difference(old, page)
        sent.append(len(Message("change", change).packed) if change else 0)
        is_shown = is_shown and (view != "waiting" or f"({before + version})" in str(change))
    cost = [read + draw / max(BATCH_SECONDS, REST * draw) for read, draw in zip(reads, draws)]
    return [
        Figure(f"page {view}: drawn for the first time", (first,), "CPU s", 1.0),
        Figure(f"page {view}: sent first", (whole / 1e3,), "KB", 300.0),
        Figure(f"page {view}: drawn after 200 changes", tuple(draws), "CPU s", is_valid=is_shown),
        Figure(f"page {view}: sent after 200 changes", tuple(it / 1e3 for it in sent), "KB", 20.0),
        Figure(f"page {view}: a second with 200 changes", tuple(cost), "CPU s", 0.3),
    ]


@asynccontextmanager
async def _watched(cluster: Cluster, world: World) -> AsyncIterator[Callable[[], Awaitable[int]]]:
    """Has viewers, each of whom has its page; gives what tells how many bytes all have got."""
    async with Dashboard(world, Access(world, TOKEN, cluster.answer)).serve() as address:
        where = address.removeprefix("http://").partition(":")
        command = (sys.executable, "-c", READER, where[0], where[2], str(VIEWERS), "/now", "/waiting")
        reader = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        assert reader.stdin is not None and reader.stdout is not None

        async def received() -> int:
            reader.stdin.write(b"\n")
            return int(await reader.stdout.readline())

        while await received() < VIEWERS * 2_000:
            await asyncio.sleep(0.2)
        yield received
        reader.kill()
        await reader.wait()


async def _viewers(cluster: Cluster, world: World) -> list[Figure]:
    async with _watched(cluster, world) as received:
        began, wall, before, version = process_time(), monotonic(), await received(), world.version
        await cluster.live(cluster.size.seconds)
        spent, took = process_time() - began, monotonic() - wall
        sent = (await received() - before) / VIEWERS / took
        is_seen = world.version >= version + CHANGES * (cluster.size.seconds - 2)
        wall, before = monotonic(), await received()
        await cluster.live(cluster.size.seconds, cluster.crowd())
        crowded = (await received() - before) / (VIEWERS // 2) / (monotonic() - wall)
    return [
        Figure(f"page: {VIEWERS} viewers, part of a core", (spent / took,), "", 0.3, is_valid=is_seen),
        Figure(f"page: {VIEWERS} viewers, sent to each in a second", (sent / 1e3,), "KB", 20.0),
        Figure("page waiting: sent in a second where all rows change", (crowded / 1e3,), "KB", 20.0),
    ]


async def _cycles(cluster: Cluster, world: World) -> list[Figure]:
    """How much slower plans are; each is due at any time, and what the page does then comes before it."""
    await world.stop()
    alone = await _plans(cluster.size)
    async with _watched(cluster, world):
        changes = asyncio.create_task(cluster.live(600))
        watched = await _plans(cluster.size)
        changes.cancel()
    slower = 100 * (median(watched) / median(alone) - 1)
    name = f"page: a plan of {cluster.size.nodes} nodes"
    return [
        Figure(f"{name}, nobody looks", tuple(alone), "CPU s"),
        Figure(f"{name}, {VIEWERS} viewers", tuple(watched), "CPU s"),
        Figure("page: plans are slower by", (slower,), "%", 5.0),
    ]


async def _plans(size: Size) -> list[float]:
    """CPU seconds of this process from when each is due to its end."""
    snapshot, spent = snapshot_of(to_plan(size.nodes, size.workloads, 20, 10)), []
    for _ in range(size.seconds):
        await asyncio.sleep(REST_SECONDS)
        began = process_time()
        for _ in range(STEPS):
            await asyncio.sleep(0)
        decide(snapshot, Policy())
        spent.append(process_time() - began)
    return spent
