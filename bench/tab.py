"""The part `browser` of B14: what a tab of Chromium makes of the live page, at 5,000 nodes and 200 changes a second.

A tab opens the view Now while nobody else looks: its first view is drawn for it, of objects that the dashboard has read
before. Then changes come, evenly in time, each with its moment in what the page shows; once the tab is about to paint,
the delay of each is noted, in the views Now and Waiting. Tasks of the tab's main thread come from Chromium's trace,
each by the CPU time of its thread, so other load on the machine hardly matters, and by the clock. An hour passes
quickly: 3,600 messages of 200 changes each go through the tab as the stream would give them, and its heap is compared,
garbage collected before and after. Last it shows the log of a workload that writes 50 MB in a second.
"""

import asyncio
import json
import math
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from time import monotonic, process_time
from typing import Any

from bench.figure import Figure
from bench.page import CHANGES, Cluster

from fairway.web.access import Access, Sight
from fairway.web.page import Ask, difference
from fairway.web.server import VIEWS, Dashboard
from fairway.web.topic import Message
from fairway.web.world import World

TOKEN, HOUR, KINDS = "own", 3600, 24
"""KINDS: messages that differ, of the HOUR of them."""
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--js-flags=--expose-gc", "--enable-precise-memory-info"]
MAP_DRAWN = """new Promise(done => new PerformanceObserver(them => them.getEntriesByName("map").length && done())
    .observe({type: "measure", buffered: true}))"""
NOTE_DELAYS = r"""window.delays = []; new MutationObserver(them => requestAnimationFrame(() => {
    const texts = new Set(them.flatMap(it => it.target.data || [...it.addedNodes].map(one => one.textContent)).flatMap(
        text => text.match(/\d{13}/g) || []));
    for (const text of texts) delays.push(Date.now() - text);
})).observe(document.getElementById("main"), {subtree: true, childList: true, characterData: true}); 0"""
HEAP = "(gc(), performance.memory.usedJSHeapSize)"
REPLAY = """async ([texts, from, to]) => { for (let at = from; at < to; at++) {
    take(texts[at % texts.length]);
    await new Promise(done => at % 10 ? setTimeout(done) : requestAnimationFrame(done));
} }"""


async def figures(cluster: Cluster, world: World) -> list[Figure]:
    program = shutil.which("chromium")
    if program is None:
        return []
    from playwright.async_api import async_playwright

    with suppress(TimeoutError):  # elsewhere it would be told to a viewer
        await world.seen()
    await world.synced.wait()
    world.kept.clear()
    async with Dashboard(world, Access(world, TOKEN, cluster.answer)).serve() as address, async_playwright() as play:
        chrome = await play.chromium.launch(executable_path=program, args=ARGUMENTS)
        tab = await chrome.new_page()
        found = await _first(tab, address)
        for view in ("now", "waiting"):
            found += await _live(tab, address, view, cluster)
        found += await _hour(tab, address, cluster, world)
        found += await _log(tab, address, cluster.size.seconds / 4)
        await chrome.close()
    return found


async def _first(tab: Any, address: str) -> list[Figure]:
    """The first view, with the CPU of both sides, and the map."""
    meter = await tab.context.new_cdp_session(tab)
    await meter.send("Performance.enable", {"timeDomain": "threadTicks"})
    began, spent = monotonic(), process_time()
    await tab.goto(f"{address}/now#token={TOKEN}")
    await tab.wait_for_selector("article.node")
    first, spent = monotonic() - began, process_time() - spent
    await tab.evaluate(MAP_DRAWN)
    before = await _thread(meter)
    await tab.evaluate("for (let at = 0; at < 10; at++) drawMap(true)")
    maps, cells = (await _thread(meter) - before) / 10, await tab.evaluate("[...pages.lists.map.order].length")
    return [
        Figure("page: first view in Chromium, wall", (first,), "s", 1.0),
        Figure("page: first view, of the dashboard and the tab's thread", (spent + before,), "CPU s", 1.0),
        Figure(f"page: map of {cells:,} nodes drawn, of the tab's thread", (maps * 1e3,), "CPU ms", 50.0),
    ]


async def _thread(meter: Any) -> float:
    """CPU seconds of the tab's main thread."""
    found = (await meter.send("Performance.getMetrics"))["metrics"]
    return next(float(it["value"]) for it in found if it["name"] == "TaskDuration")


@asynccontextmanager
async def _traced(tab: Any) -> AsyncIterator[list[tuple[float, float]]]:
    """The tasks of the main thread while the block lasts: milliseconds of CPU, and by the clock."""
    tasks: list[tuple[float, float]] = []
    await tab.context.browser.start_tracing(page=tab, categories=["toplevel"])
    yield tasks
    events = json.loads(await tab.context.browser.stop_tracing())["traceEvents"]
    mains = {(it["pid"], it["tid"]) for it in events
             if it["name"] == "thread_name" and it["args"]["name"] == "CrRendererMain"}  # fmt: skip
    tasks += [(it.get("tdur", 0) / 1e3, it["dur"] / 1e3) for it in events
              if it["name"].endswith("RunTask") and (it["pid"], it["tid"]) in mains and "dur" in it]  # fmt: skip


async def _live(tab: Any, address: str, view: str, cluster: Cluster) -> list[Figure]:
    await tab.goto(f"{address}/{view}")
    await tab.wait_for_selector("[data-key]")
    await asyncio.sleep(1.0)  # the tasks of the first view end
    await tab.evaluate(NOTE_DELAYS)
    async with _traced(tab) as tasks:
        await cluster.live(cluster.size.seconds)
        await tab.wait_for_function("() => delays.length")
    delays = sorted(await tab.evaluate("delays"))
    late = delays[math.ceil(0.95 * len(delays)) - 1]
    return [
        Figure(f"page {view}: change to screen, 95 of 100, wall", (late / 1e3,), "s", 1.0),
        *_tasks(f"page {view}: longest task", tasks),
    ]


def _tasks(name: str, tasks: list[tuple[float, float]]) -> list[Figure]:
    cpu, wall = max(it for it, _ in tasks), max(it for _, it in tasks)
    return [
        Figure(f"{name}, of the tab's thread", (cpu,), "CPU ms", 50.0), Figure(f"{name}, wall", (wall,), "ms", 50.0),
    ]  # fmt: skip


async def _hour(tab: Any, address: str, cluster: Cluster, world: World) -> list[Figure]:
    """Messages that lead from page to page and at last to the first one, again and again."""
    await tab.goto(f"{address}/now")
    await tab.wait_for_selector("article.node")
    draw, before, steps = VIEWS["now"], world.version, []
    ask = Ask("now", {}, Sight(), world.client.clock.now())
    pages = [first := draw(world, ask)]
    for version in range(2, 2 + KINDS):
        for at in range(0, cluster.size.workloads, max(1, cluster.size.workloads // CHANGES)):
            cluster.change_one((at + version % 5) % cluster.size.workloads, before + version)
        was = world.version
        while not cluster.changes.empty() or world.version < was + min(CHANGES, cluster.size.workloads):
            await asyncio.sleep(0)
        pages.append(draw(world, replace(ask, before=pages[-1])))
    for old, new in zip(pages, [*pages[1:], first]):
        if (change := difference(old, new)) is not None:
            steps.append(Message("change", change).text.decode().removesuffix("\n\n"))
    await tab.evaluate(f"stop(); take({json.dumps(Message('page', first.whole()).text.decode())})")
    messages = HOUR if cluster.size.seconds > 5 else 2 * len(steps)
    await tab.evaluate(REPLAY, [steps, 0, len(steps)])
    heaps = [await tab.evaluate(HEAP)]
    await tab.evaluate(REPLAY, [steps, 0, messages])
    heaps.append(await tab.evaluate(HEAP))
    size = f"{messages * CHANGES:,}"
    return [
        Figure(f"page: JavaScript heap of the tab after {size} changes", (heaps[1] / 1e6,), "MB", 150.0),
        Figure("page: growth of that heap meanwhile", ((heaps[1] - heaps[0]) / 1e6,), "MB", 1.0),
    ]


async def _log(tab: Any, address: str, seconds: float) -> list[Figure]:
    await tab.goto(f"{address}/workload/team-0/job-w0")
    await tab.wait_for_function("() => document.getElementById('log')?.textContent.length > 50_000")
    spent = process_time()
    async with _traced(tab) as tasks:
        await asyncio.sleep(seconds)
    spent = process_time() - spent
    return [
        Figure("page: a log of 50 MB/s, part of a core", (spent / seconds,), ""),
        *_tasks("page: a log of 50 MB/s, longest task", tasks),
    ]
