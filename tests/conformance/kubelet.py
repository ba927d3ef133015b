"""This machine as a node of a cluster, by Fairway's runner: `python kubelet.py KUBECONFIG DIRECTORY`, until it ends.

It runs pods and writes their status; it serves no logs and no exec, which a kubelet has a port of its own for.
"""

import asyncio
import os
import sys
from pathlib import Path

from fairway.api.crds import crds
from fairway.clock import Chance, Clock
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.config import load
from fairway.kube.http import http_transport
from fairway.node.machine import beat, node_of, offered, probe, register
from fairway.node.runner import Runner


async def main(kubeconfig: Path, folder: Path) -> None:
    clock = Clock()
    (folder / "pods").mkdir(parents=True)
    node = node_of(offered(probe(folder), cpus="4", memory="4Gi"), clock.now())
    async with http_transport(load([kubeconfig]), clock) as transport:
        client = Client(transport, clock, Chance())
        for definition in crds():  # the runner asks which workloads there are
            await client.ensure(kinds.DEFINITIONS, definition)
        await register(client, node)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(beat(client, node["metadata"]["name"]))
            tasks.create_task(Runner(client, node, folder / "pods", base=os.environ).run())


if __name__ == "__main__":
    asyncio.run(main(*map(Path, sys.argv[1:])))
