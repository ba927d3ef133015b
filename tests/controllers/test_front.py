"""What the controller serves: metrics for the token, and probes for anybody."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import aiohttp

from fairway.controllers.front import Front
from fairway.controllers.metrics import Metrics
from fairway.settings import Settings


@asynccontextmanager
async def served(front_of: Settings) -> AsyncIterator[tuple[Front, aiohttp.ClientSession, str]]:
    """A front on a free port, a session, and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    front = Front(replace(front_of, metrics_host="127.0.0.1", metrics_port=port))
    serving, address = asyncio.create_task(front.serve()), f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession() as session:
        while not serving.done():
            with suppress(aiohttp.ClientConnectionError):
                await session.get(f"{address}/healthz")
                break
            await asyncio.sleep(0)
        yield front, session, address
    serving.cancel()


async def status(session: aiohttp.ClientSession, url: str, **headers: str) -> int:
    async with session.get(url, headers=headers) as answer:
        return answer.status


async def test_metrics_are_served_for_the_token_and_nothing_else_is(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    async with served(Settings(metrics_token_file=str(tmp_path / "token"))) as (front, session, address):
        front.exposition = Metrics().exposition
        async with session.get(f"{address}/metrics", headers={"Authorization": "Bearer secret"}) as answer:
            assert b"fairway_cycle_seconds" in await answer.read()
        assert await status(session, f"{address}/other", Authorization="Bearer secret") == 404
        assert await status(session, f"{address}/metrics", Authorization="Bearer secret", Host="evil.example") == 421
        wrong = [await status(session, f"{address}/metrics", Authorization=it) for it in ("Bearer other", "secret", "")]
        assert wrong == [401] * 3


async def test_it_is_alive_at_once_and_ready_when_it_waits_for_nothing() -> None:
    async with served(Settings()) as (front, session, address):
        assert await status(session, f"{address}/healthz") == 200
        front.waits_for = "Namespace fairway-system"
        async with session.get(f"{address}/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "Namespace fairway-system\n")
        front.waits_for = ""
        assert await status(session, f"{address}/readyz") == 200
