"""A cluster whose scheduler is late, as a program: `late.py DIRECTORY`. It starts one pod with its Workload; at the
next start it says of the Workload that it is over a second after the pod is."""

import asyncio
import sys
from pathlib import Path

from fairway.clock import Chance, Clock
from fairway.embedded.up import Options, up
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref, Selection
from fairway.kube.transport import Transport

FOLDER = Path(sys.argv[1])
WORKLOAD, POD = Ref(kinds.WORKLOADS, "job-a", "default"), Ref(kinds.PODS, "a", "default")
SCRIPT = f"until test -e {FOLDER}/end; do sleep 0.02; done"


async def late(transport: Transport) -> None:
    client = Client(transport, Clock(), Chance())
    if await client.find(WORKLOAD) is None:
        await begin(client)
    else:
        while (await client.get(POD))["status"].get("phase") != "Succeeded":
            await client.clock.sleep(0.02)
        await client.clock.sleep(1.0)
        await client.patch(WORKLOAD, {"status": {"phase": "Succeeded"}}, subresource="status")
    await client.clock.until(None)


async def begin(client: Client) -> None:
    node = (await client.list(Selection(kinds.NODES)))[0]["metadata"]["name"]
    meta = {"namespace": "default", "annotations": {"fairway.dev/attempt": "job-a/uid/1"}}
    container = {"name": "main", "image": "i", "command": ["sh", "-c", SCRIPT]}
    spec = {"restartPolicy": "Never", "nodeName": node, "containers": [container]}
    await client.create(kinds.PODS, {"metadata": {**meta, "name": POD.name}, "spec": spec})
    asked = {"queue": "default", "podSets": [{"name": "main", "template": {"spec": {"containers": [container]}}}]}
    made = {"apiVersion": kinds.FAIRWAY, "kind": "Workload", "metadata": {**meta, "name": WORKLOAD.name}}
    await client.create(kinds.WORKLOADS, {**made, "spec": asked})
    await client.patch(WORKLOAD, {"status": {"phase": "Running"}}, subresource="status")


if __name__ == "__main__":
    asyncio.run(up(Options(FOLDER, cpus="2"), clock=Clock(), chance=Chance(), control=late))
