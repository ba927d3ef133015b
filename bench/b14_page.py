"""B14, the live page: 5,000 nodes of 8 GPUs, 20,000 workloads, 200 changes a second.

The page's own informers read prepared lists and changes; no API server is in the figures. CPU seconds of this process,
so other load on the machine matters little. A page is drawn once for all viewers who may see the same; then each gets
what changed, packed as a browser takes it. What a second costs is 200 changes read, and a view drawn as often as a
topic draws it. Valid if the page shows the last change.

The part `viewers` serves 50 streams of the views Now and Waiting over HTTP to a process of their own, for a while with
200 changes in each second, and counts this process and the bytes that arrive. The part `browser` opens the view Now in
Chromium (Debian's package; without it the part is left out) and lets 200 changes come in each second.
"""

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from time import monotonic, process_time
from typing import Any

import msgspec
from bench.figure import Figure

from fairway.clock import Clock
from fairway.kube.client import Client
from fairway.kube.transport import Request, Response
from fairway.web.access import Access, Sight
from fairway.web.page import Ask, difference
from fairway.web.server import VIEWS, Dashboard
from fairway.web.topic import BATCH_SECONDS, REST, Message
from fairway.web.world import World

GPU, ADMITTED = "nvidia.com/gpu", "2026-11-23T12:00:00Z"
NOW = 1_795_435_200.0  # 2026-11-23T13:20:00Z
CHANGES = 200
VIEWERS, TOKEN = 50, "own"
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
SERVED = ("workloads", "queues", "nodepools", "reservations", "usagedays")
LONG_TASKS = """window.longest = 0;
new PerformanceObserver(them => { for (const it of them.getEntries()) longest = Math.max(longest, it.duration); })
    .observe({type: "longtask"}); 0"""
MAP_DRAWN = """new Promise(done => new PerformanceObserver(them => them.getEntriesByName("map").length && done())
    .observe({type: "measure", buffered: true}))"""
HEAP = "(window.gc?.(), performance.memory.usedJSHeapSize)"
Thing = dict[str, Any]
encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Size:
    nodes: int = 5_000
    workloads: int = 20_000
    queues: int = 50
    seconds: int = 20

    def node(self, at: int) -> Thing:
        labels = {"fairway.dev/devices": "Scheduler"}
        offered = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: "8"}
        status = {"allocatable": offered, "conditions": [{"type": "Ready", "status": "True"}]}
        return {"metadata": named(f"n{at}") | {"labels": labels}, "status": status}

    def queue(self, at: int) -> Thing:
        spec = {"quotas": [{"pool": "*", "guaranteed": {GPU: 800}}], "timeLimit": {"default": "8h"}}
        return {"metadata": named(f"q{at}"), "spec": spec}

    def workload(self, at: int, version: int = 1) -> Thing:
        """Three of four run on two GPUs, the others wait."""
        pod = {"containers": [{"name": "main", "resources": {"requests": {GPU: "2"}}}]}
        podset = {"name": "main", "count": 1, "template": {"spec": pod}}
        turn, waits = at // self.nodes, at >= 3 * self.nodes
        status: Thing = {"phase": "Pending", "reason": "NoRoom", "position": at, "message": f"needs 8 GPUs ({version})"}
        if not waits:
            share = {"node": f"n{at % self.nodes}", "count": 1, "devices": [[2 * turn, 2 * turn + 1]]}
            turned = {"status": "True", "lastTransitionTime": ADMITTED}
            conditions = [{"type": it} | turned for it in ("Admitted", "Running")]
            admission = {"podSets": [{"name": "main", "nodes": [share]}]}
            status = {"phase": "Running", "attempt": version, "admission": admission, "conditions": conditions}
        meta = named(f"job-w{at}", version) | {"namespace": f"team-{at % 40}"}
        spec = {"queue": f"q{at % self.queues}", "user": f"user{at % 300}", "podSets": [podset]}
        return {"metadata": meta, "spec": spec, "status": status}


def named(name: str, version: int = 1) -> Thing:
    return {"name": name, "uid": name, "resourceVersion": str(version)}


class Cluster:
    """Answers lists with what is prepared, and watches with what is put in `changes`; it judges no rights."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.changes: asyncio.Queue[bytes] = asyncio.Queue()
        self._lists = {
            "nodes": [size.node(at) for at in range(size.nodes)],
            "queues": [size.queue(at) for at in range(size.queues)],
            "workloads": [size.workload(at) for at in range(size.workloads)],
        }  # fmt: skip

    async def answer(self, request: Request) -> Response:
        plural = request.path.rpartition("/")[2]
        if plural == "selfsubjectreviews":
            return Response(201, {}, encode({"status": {"userInfo": {"username": "one"}}}))
        if request.method == "POST":
            return Response(404, {}, b"{}")
        if plural == "v1alpha1":
            return Response(200, {}, encode({"resources": [{"name": name} for name in SERVED]}))
        if ("watch", "true") in request.query:
            return Response(200, {}, self._stream(plural))
        return Response(200, {}, encode({"metadata": {"resourceVersion": "1"}, "items": self._lists.get(plural, [])}))

    async def _stream(self, plural: str) -> AsyncIterator[bytes]:
        while plural == "workloads":
            yield await self.changes.get()
        await asyncio.get_running_loop().create_future()

    def change(self, version: int) -> None:
        """A second's changes, all over the cluster and one of them where the page shows it."""
        step = max(1, self.size.workloads // CHANGES)
        for at in range(0, self.size.workloads, step):
            self.changes.put_nowait(encode({"type": "MODIFIED", "object": self.size.workload(at, version)}) + b"\n")


def run(rounds: int) -> Iterator[Figure]:
    yield from asyncio.run(measured(Size(), rounds))


async def measured(size: Size, rounds: int) -> list[Figure]:
    cluster = Cluster(size)
    world = World(Client(cluster.answer, Clock()), "default")
    began = process_time()
    await world.seen()
    figures = [Figure("page: all objects read", (process_time() - began,), "CPU s")]
    for view in os.environ.get("BENCH_PARTS", "now waiting queues timeline operations viewers browser").split():
        live = {"viewers": _viewers, "browser": _browser}.get(view)
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


async def _viewers(cluster: Cluster, world: World) -> list[Figure]:
    async with Dashboard(world, Access(world, TOKEN, cluster.answer)).serve() as address:
        where = address.removeprefix("http://").partition(":")
        command = (sys.executable, "-c", READER, where[0], where[2], str(VIEWERS), "/now", "/waiting")
        reader = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        assert reader.stdin is not None and reader.stdout is not None

        async def received() -> int:
            reader.stdin.write(b"\n")
            return int(await reader.stdout.readline())

        while await received() < VIEWERS * 2_000:  # each has its page
            await asyncio.sleep(0.2)
        began, wall, before, version = process_time(), monotonic(), await received(), world.version
        for second in range(1, cluster.size.seconds + 1):
            cluster.change(world.version + second)
            await asyncio.sleep(max(0.0, wall + second - monotonic()))
        spent, took = process_time() - began, monotonic() - wall
        sent = (await received() - before) / VIEWERS / took
        is_seen = world.version >= version + CHANGES * (cluster.size.seconds - 2)
        reader.kill()
        await reader.wait()
    return [
        Figure(f"page: {VIEWERS} viewers, part of a core", (spent / took,), "", 0.3, is_valid=is_seen),
        Figure(f"page: {VIEWERS} viewers, sent to each in a second", (sent / 1e3,), "KB", 20.0),
    ]


async def _tasks(tab: Any) -> float:
    """CPU seconds of the tab's main thread."""
    found = (await tab.send("Performance.getMetrics"))["metrics"]
    return next(float(it["value"]) for it in found if it["name"] == "TaskDuration")


async def _browser(cluster: Cluster, world: World) -> list[Figure]:
    """How long the map of all cells takes, tasks of the tab once the view is there, and what the tab keeps."""
    program = shutil.which("chromium")
    if program is None:
        return []
    from playwright.async_api import async_playwright

    async with Dashboard(world, Access(world, TOKEN, cluster.answer)).serve() as address, async_playwright() as play:
        chrome = await play.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = await chrome.new_page()
        began = monotonic()
        await page.goto(f"{address}/now#token={TOKEN}")
        await page.wait_for_selector("article.node")
        first = monotonic() - began
        await page.evaluate(MAP_DRAWN)
        tab = await page.context.new_cdp_session(page)
        await tab.send("Performance.enable", {"timeDomain": "threadTicks"})
        before = await _tasks(tab)
        await page.evaluate("for (let at = 0; at < 10; at++) drawMap()")
        maps = (await _tasks(tab) - before) / 10
        await page.evaluate(LONG_TASKS)
        heaps = [await page.evaluate(HEAP)]
        for second in range(1, cluster.size.seconds + 1):
            cluster.change(world.version + second)
            await asyncio.sleep(1.0)
        heaps.append(await page.evaluate(HEAP))
        tasks = await page.evaluate("longest")
        await chrome.close()
    return [
        Figure("page: first view in Chromium, wall", (first,), "s", 1.0),
        Figure(f"page: {8 * cluster.size.nodes:,} cells drawn, of the tab's thread", (maps * 1e3,), "CPU ms", 50.0),
        Figure("page: longest task after the first view, wall", (tasks,), "ms", 50.0),
        Figure("page: JavaScript heap of the tab", (heaps[1] / 1e6,), "MB", 150.0),
        Figure("page: growth of that heap", ((heaps[1] - heaps[0]) / 1e6,), "MB"),
    ]
