"""The page of `fairway up` in a real browser: the logs of what runs, and the page of a cluster that is killed again.

After a cut and a SIGKILL the tab comes back by itself and shows what a fresh load does. In between another program
listens at the same port, and is not shown a token that is good. The longer form, with a cut of ten minutes, is for
`make soak`.
"""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from test_browser import CHROMIUM, CUT, PATIENCE_MS, browser

from fairway.clock import Clock
from fairway.embedded.datadir import UpError, down
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.config import load
from fairway.kube.http import http_transport

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: install Debian's package `chromium`")
SAYS, BETWEEN_SECONDS = b"what happens there: ", 30
CUTS = [0, pytest.param(600, marks=pytest.mark.soak)]
TEXT = "document.getElementById('main').innerText"
SLEEPS, WRITES = ("sleep", "900"), ("sh", "-c", """
    began=$(date +%N)
    for at in $(seq 1500); do echo "rank $JOB_COMPLETION_INDEX line $at of $began"; done
    printf '\\033[31mred\\033[0m\\n'
    exec sleep 900""")
"""Commands; what writes says in each line when it began."""
FIRST = "ONE('log').textContent.split('\\n')[0]"
BEGINS = "text => ONE('log').textContent.startsWith(text) && ONE('log').textContent.endsWith('red\\n')"


@asynccontextmanager
async def life(folder: Path) -> AsyncIterator[str]:
    """A life of `up` that ends by SIGKILL; the link of its page."""
    command = ("-m", "fairway", "up", "--data-dir", str(folder), "--cpus", "4", "--fake-gpus", "32")
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=DEVNULL, stderr=PIPE)
    assert process.stderr is not None
    while not (line := await process.stderr.readline()).startswith(SAYS):
        assert line, "it has ended"
    reading = asyncio.create_task(process.stderr.read())
    try:
        yield line.removeprefix(SAYS).decode().strip()
    finally:
        process.kill()
        await process.wait()
        await reading


async def submit(folder: Path, name: str, command: Sequence[str] = SLEEPS, **spec: Any) -> None:
    container = {"name": "main", "image": "x", "command": command}
    asked = {"resources": {"limits": {"cpu": "100m", "nvidia.com/gpu": "1"}}}
    pod = {"restartPolicy": "Never", "containers": [container | asked]}
    meta = {"name": name, "labels": {"fairway.dev/queue": "default"}}
    async with http_transport(load([folder / "kubeconfig"])) as transport:
        job = {"metadata": meta, "spec": {"template": {"spec": pod}} | spec}
        await Client(transport, Clock()).create(kinds.JOBS, job, namespace="default")


@asynccontextmanager
async def stranger(port: int) -> AsyncIterator[list[bytes]]:
    """Another program at a port; what it was sent."""
    told: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            told.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nproof")
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", port):
        yield told


async def opened(chrome: Any, link: str) -> Any:
    tab = await (await chrome.new_context()).new_page()
    tab.set_default_timeout(PATIENCE_MS)
    await tab.add_init_script(CUT)
    await tab.goto(link)
    await tab.wait_for_selector("article.node")
    return tab


async def pass_by(folder: Path, tab: Any, seconds: int) -> None:
    """A time in which the tab hears nothing, and Jobs come."""
    await tab.evaluate("cut()")
    for at in range(seconds // BETWEEN_SECONDS):
        await asyncio.sleep(BETWEEN_SECONDS)
        await submit(folder, f"missed-{at}")
    await tab.evaluate("isCut = false")


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    """A data directory; what a killed cluster left running there is stopped in the end."""
    yield tmp_path / "data"
    with suppress(UpError):
        await down(tmp_path / "data", Clock())


@pytest.mark.parametrize("seconds", CUTS)
async def test_a_tab_comes_back_by_itself_after_a_cut_and_a_kill(seconds: int, folder: Path) -> None:
    async with browser() as chrome:
        async with life(folder) as link:
            await submit(folder, "first")
            tab = await opened(chrome, link)
            await tab.wait_for_selector("article.node:has-text('first')")
            secrets = await tab.evaluate("[sessionStorage.getItem(KEY), lasting]")
            assert all(secrets) and secrets[1] == (folder / "page.key").read_text().split()[1]
            await pass_by(folder, tab, seconds)
        async with stranger(int(link.split(":")[2].partition("/")[0])) as told:
            while not told:
                await asyncio.sleep(0.05)
            await tab.wait_for_function("() => trouble.startsWith('another program')")
            assert not any(it.encode() in request for request in told for it in secrets)
        async with life(folder) as new:
            assert new.partition("#")[0] == link.partition("#")[0] and new != link
            await submit(folder, "second")
            fresh = await opened(chrome, new)
            for page in (tab, fresh):
                await page.wait_for_selector("#main:has-text('second')")
            while await tab.evaluate(TEXT) != await fresh.evaluate(TEXT):
                await asyncio.sleep(0.1)
            assert await tab.locator("#banner").is_hidden() and "first" in await tab.evaluate(TEXT)
            await tab.reload()
            await tab.wait_for_selector("article.node")


async def test_the_log_of_each_rank_and_attempt_is_shown_and_a_new_attempt_is_followed(folder: Path) -> None:
    async with browser() as chrome, life(folder) as link:
        await submit(folder, "ranks", WRITES, parallelism=2, completions=2, completionMode="Indexed")
        tab = await opened(chrome, link)
        await tab.locator("article.node a:has-text('ranks')").first.click()
        await tab.wait_for_selector("#log:has-text('red')")
        await tab.reload()
        await tab.wait_for_function(BEGINS, arg="rank 0 line 502 of ")  # the last thousand lines
        await tab.locator("[data-earlier]").click()
        await tab.wait_for_function(BEGINS, arg="rank 0 line 1 of ")
        was = await tab.evaluate(FIRST)
        await tab.locator("summary:has-text('YAML')").press("Enter")
        await tab.wait_for_selector("#detail pre:has-text('kind: Workload')")
        for action in ("suspend", "resume"):
            await tab.locator(f"[data-act={action}]").click()
            await tab.locator("dialog [value=yes]").click()
            await tab.wait_for_selector("dialog:not([open])", state="attached")
        await tab.wait_for_function(f"was => {FIRST} !== was && ({BEGINS})('rank 0 line 1 of ')", arg=was)
        seen = {was, await tab.evaluate(FIRST)}
        for at in (1, 2):
            await tab.locator("[data-runs]").select_option(label=f"attempt {at}, rank 1")
            await tab.wait_for_function(BEGINS, arg="rank 1 line 1 of ")
            seen.add(await tab.evaluate(FIRST))
        assert len(seen) == 4


async def test_a_hidden_tab_gives_its_connection_back_and_goes_on_when_it_is_seen(folder: Path) -> None:
    async with browser() as chrome, life(folder) as link:
        await submit(folder, "first")
        tab = await opened(chrome, link)
        await tab.wait_for_selector("article.node:has-text('first')")
        await _show(tab, is_hidden=True)
        await tab.wait_for_function("() => stream === null")
        await submit(folder, "second")
        await _show(tab, is_hidden=False)
        await tab.wait_for_selector("article.node:has-text('second')")
        assert await tab.evaluate("[trouble, nap]") == ["", 0]


async def _show(tab: Any, *, is_hidden: bool) -> None:
    said = "true" if is_hidden else "false"
    await tab.evaluate(f"Object.defineProperty(document, 'hidden', {{configurable: true, value: {said}}})")
    await tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
