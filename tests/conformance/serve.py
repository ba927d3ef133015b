"""Serves a bare embedded API server until standard input ends: `python serve.py DIRECTORY`; prints its kubeconfig.

Bare: the API on its database, with collection, and nothing that runs pods. The history is kept short, so that a test
can outrun it.
"""

import asyncio
import sys
from pathlib import Path

from fairway.clock import Chance, Clock
from fairway.embedded.access.authenticate import by_token
from fairway.embedded.access.identity import ADMIN
from fairway.embedded.database import Database
from fairway.embedded.http import HttpServer
from fairway.embedded.keys import keys
from fairway.embedded.kinds import builtin_kinds
from fairway.embedded.registry import Registry
from fairway.embedded.server import Server
from fairway.embedded.store import Store

KEPT_EVENTS = 1000


async def main(directory: Path) -> None:
    clock, chance = Clock(), Chance()
    ours = keys(directory, now=clock.now(), chance=chance)
    store = Store(Database(str(directory / "cluster.db")), keep=KEPT_EVENTS)
    server = Server(Registry(store, builtin_kinds(), clock, chance), authenticators=[by_token({ours.token: ADMIN})])
    listener = HttpServer(server, tls=ours.tls())
    async with asyncio.TaskGroup() as group:
        await server.start()
        group.create_task(server.tend())
        print(ours.write_kubeconfig(await listener.start()), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await listener.stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
