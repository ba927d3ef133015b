"""A binder that decides nothing: what any scheduler written in Python could bind at most.

It gives each pod that asks for the scheduler `no-op` the next node in turn, many bindings at once, and looks at nothing
else. `python -m bench.binder KUBECONFIG`, until it is killed.
"""

import asyncio
import sys
from itertools import cycle
from pathlib import Path

from bench.real import NOOP, Pod

from fairway.clock import Clock
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.config import load
from fairway.kube.informer import Informer
from fairway.kube.kinds import Ref, Selection
from fairway.kube.plain import plain_transport

AT_ONCE = 64


async def bind(kubeconfig: Path) -> None:
    async with plain_transport(load([kubeconfig])) as transport:
        client = Client(transport, Clock())
        names = cycle([one["metadata"]["name"] for one in await client.list(Selection(kinds.NODES))])
        waiting: asyncio.Queue[Pod] = asyncio.Queue()

        def changed(old: Pod | None, new: Pod | None) -> None:
            if old is None and new and not new.spec.node_name:
                waiting.put_nowait(new)

        async def work() -> None:
            while True:
                meta = (await waiting.get()).metadata
                await client.bind(Ref(kinds.PODS, meta.name, meta.namespace), next(names), uid=meta.uid)

        pods = Selection(kinds.PODS, fields=f"spec.schedulerName={NOOP.scheduler}")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Informer(client, pods, shape=Pod, changed=changed).run())
            for _ in range(AT_ONCE):
                tasks.create_task(work())


if __name__ == "__main__":
    asyncio.run(bind(Path(sys.argv[1])))
