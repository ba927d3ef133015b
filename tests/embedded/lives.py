"""Whole clusters as processes that a test may kill: each forked from one that has imported everything."""

import asyncio
import multiprocessing
import os
from pathlib import Path

from fairway.cli.up import control
from fairway.clock import Chance, Clock
from fairway.embedded.up import Options, up
from fairway.kube.transport import Transport
from fairway.settings import Settings


def live(folder: Path, cpus: str = "8", gpus: int = 0, log: Path | None = None) -> None:
    """A life of the cluster on a data directory, scheduler and all; what it logs is added to `log`."""

    async def schedule(transport: Transport) -> None:
        await control(transport, folder, Settings())

    if log:
        os.dup2(os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), 2)
    options = Options(folder, cpus=cpus, fake_gpus=str(gpus))
    asyncio.run(up(options, clock=Clock(), chance=Chance(), control=schedule))


def lives() -> "multiprocessing.context.ForkServerContext":
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fairway.embedded.up", "fairway.controllers.run", "fairway.kube.http", __name__])
    return context
