import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from box import Box, machine

from fairway.node.container import stop_all
from fairway.node.podstatus import SHUTDOWN


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Box]:
    async with machine(tmp_path) as made:
        yield made
    await asyncio.to_thread(stop_all, tmp_path / "pods", SHUTDOWN, at_most=0.0)
