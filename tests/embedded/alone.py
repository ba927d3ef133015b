"""A cluster without a scheduler, as a program: `alone.py DIRECTORY [NODES]`. Pods run where they say."""

import asyncio
import sys
from pathlib import Path

from fairway.clock import Chance, Clock
from fairway.embedded.up import Options, UpError, up


async def nobody(_: object) -> None:
    await Clock().until(None)


if __name__ == "__main__":
    options = Options(Path(sys.argv[1]), cpus="2", nodes=Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    try:
        asyncio.run(up(options, clock=Clock(), chance=Chance(), control=nobody))
    except UpError as error:
        sys.exit(f"alone: {error}")
