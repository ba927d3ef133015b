import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import inprocess


@pytest.fixture
async def api() -> AsyncIterator[inprocess.Api]:
    """A started server in memory."""
    made = inprocess.api()
    await made.server.start()
    yield made
    await made.store.close()
