"""What the benchmarks of the live page look at: objects of a cluster, and an API server that is only prepared answers.

A change comes with a version, which is seen in what the page shows of the workload: of one that runs in its user's
name, of one that waits in its message. Of a workload that runs every other version only starts. `write` makes a
workload write a log without an end.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from time import monotonic, time
from typing import Any

import msgspec

from fairway.kube.transport import Request, Response

GPU, ADMITTED = "nvidia.com/gpu", "2026-11-23T12:00:00Z"
CHANGES = 200
PIECE = b"".join(b"step %06d: loss 0.123456, 98765 tokens in a second, on rank 0 of 8 of this very long run\n" % at
                 for at in range(700))  # fmt: skip
LOG_BYTES, LOG_TICK = 50_000_000, 0.02
"""Of a log in a second, and the seconds between two looks at whether more is due."""
AT_ONCE = 5
"""Changes that come together."""
RUN = {"attempt": 1, "retry": 0, "rank": 0, "pod": "p", "container": "main", "isDefault": True}
SERVED = ("workloads", "queues", "nodepools", "reservations", "usagedays")
Thing = dict[str, Any]
encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Size:
    nodes: int = 5_000
    workloads: int = 20_000
    queues: int = 50
    seconds: int = 20

    def node(self, at: int) -> Thing:
        labels = {"fairway.dev/devices": "Scheduler"}
        offered = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: "8"}
        status = {"allocatable": offered, "conditions": [{"type": "Ready", "status": "True"}]}
        return {"metadata": named(f"n{at}") | {"labels": labels}, "status": status}

    def queue(self, at: int) -> Thing:
        spec = {"quotas": [{"pool": "*", "guaranteed": {GPU: 800}}], "timeLimit": {"default": "8h"}}
        return {"metadata": named(f"q{at}"), "spec": spec}

    def workload(self, at: int, version: int = 1) -> Thing:
        """Three of four run on two GPUs, the others wait."""
        pod = {"containers": [{"name": "main", "resources": {"requests": {GPU: "2"}}}]}
        podset = {"name": "main", "count": 1, "template": {"spec": pod}}
        turn, waits = at // self.nodes, at >= 3 * self.nodes
        status: Thing = {"phase": "Pending", "reason": "NoRoom", "position": at, "message": f"needs 8 GPUs ({version})"}
        if not waits:
            share = {"node": f"n{at % self.nodes}", "count": 1, "devices": [[2 * turn, 2 * turn + 1]]}
            turned = {"status": "True", "lastTransitionTime": ADMITTED}
            kinds = ("Admitted", "Running") if version % 2 else ("Admitted",)
            conditions = [{"type": it} | turned for it in kinds]
            admission = {"podSets": [{"name": "main", "nodes": [share]}]}
            phase = "Running" if version % 2 else "Admitted"
            status = {"phase": phase, "attempt": version, "admission": admission, "conditions": conditions}
        meta = named(f"job-w{at}", version) | {"namespace": f"team-{at % 40}"}
        user = f"user{at % 300 if version == 1 else version}"
        spec = {"queue": f"q{at % self.queues}", "user": user, "podSets": [podset]}
        return {"metadata": meta, "spec": spec, "status": status}


def named(name: str, version: int = 1) -> Thing:
    return {"name": name, "uid": name, "resourceVersion": str(version)}


class Cluster:
    """Answers lists with what is prepared, and watches with what is put in `changes`; it judges no rights."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.changes: asyncio.Queue[bytes] = asyncio.Queue()
        self._lists = {
            "nodes": [size.node(at) for at in range(size.nodes)],
            "queues": [size.queue(at) for at in range(size.queues)],
            "workloads": [size.workload(at) for at in range(size.workloads)],
        }  # fmt: skip

    async def answer(self, request: Request) -> Response:
        plural = request.path.rpartition("/")[2]
        if plural == "log":
            return Response(200, {}, self._log())
        if plural == "attempts":
            return Response(200, {}, encode({"items": [RUN], "isDeleted": False}))
        if plural.startswith("job-w"):
            return Response(200, {}, encode(self.size.workload(int(plural[5:]))))
        if plural == "selfsubjectreviews":
            return Response(201, {}, encode({"status": {"userInfo": {"username": "one"}}}))
        if request.method == "POST":
            return Response(404, {}, b"{}")
        if plural == "v1alpha1":
            return Response(200, {}, encode({"resources": [{"name": name} for name in SERVED]}))
        if ("watch", "true") in request.query:
            return Response(200, {}, self._stream(plural))
        return Response(200, {}, encode({"metadata": {"resourceVersion": "1"}, "items": self._lists.get(plural, [])}))

    async def _stream(self, plural: str) -> AsyncIterator[bytes]:
        while plural == "workloads":
            yield await self.changes.get()
        await asyncio.get_running_loop().create_future()

    async def _log(self) -> AsyncIterator[bytes]:
        began, written = monotonic(), 0
        while True:
            while written < LOG_BYTES * (monotonic() - began):
                written += len(PIECE)
                yield PIECE
            await asyncio.sleep(LOG_TICK)

    def change(self, version: int) -> None:
        """A second's changes, all over the cluster and some of them where the page shows them."""
        for at in range(0, self.size.workloads, max(1, self.size.workloads // CHANGES)):
            self.change_one(at, version)

    def change_one(self, at: int, version: int) -> None:
        it = self.size.workload(at, version)
        self.changes.put_nowait(encode({"type": "MODIFIED", "object": it}) + b"\n")

    def crowd(self) -> list[int]:
        """The workloads that the first rows of the view Waiting are of."""
        size = self.size
        return sorted(range(3 * size.nodes, size.workloads), key=lambda at: (f"q{at % size.queues}", at))[:CHANGES]

    async def live(self, seconds: int, those: Sequence[int] = ()) -> None:
        """So many seconds of changes, of `those` alone or spread evenly; their versions are the milliseconds at which
        they are made."""
        began, step = monotonic(), max(1, self.size.workloads // CHANGES)
        for tick in range(seconds * CHANGES // AT_ONCE):
            for at in range(tick * AT_ONCE, (tick + 1) * AT_ONCE):
                spread = (at * step + at // CHANGES) % self.size.workloads
                self.change_one(those[at % len(those)] if those else spread, int(1000 * time()))
            await asyncio.sleep(max(0.0, began + (tick + 1) * AT_ONCE / CHANGES - monotonic()))
