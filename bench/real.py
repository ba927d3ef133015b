"""Real API servers to measure on: etcd and kube-apiserver of its own for each run, and nodes that exist on paper.

The programs come from the folder that KUBEBUILDER_ASSETS names; without it what needs them skips with a word. A
contestant is a program that gives pods their nodes; it runs as a process of its own. CPU seconds are those of its
process and of the API server with its etcd: on a machine that does other things they tell more than the time that
passed.
"""

import asyncio
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import msgspec
import psutil
import yaml
from tests.kubernetes.plane import Plane, control_plane, missing, node

from fairway.api.objects import Metadata, Part
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.informer import Informer
from fairway.kube.kinds import Kind, Ref, Selection
from fairway.node.hollow import DURATION

CONNECTIONS = 16
LOOK_SECONDS = 0.05
MOST_SECONDS = 1800.0  # until something comes true
UNTHROTTLED = 10_000
SERVER = ("kube-apiserver", "etcd")
Thing = dict[str, Any]


def size(name: str, usual: int) -> int:
    """BENCH_PODS, BENCH_NODES, BENCH_JOBS …: how much of it."""
    return int(os.environ.get(f"BENCH_{name}", usual))


def is_there(told: str) -> bool:
    """Whether there can be an API server; says why not."""
    if why := missing():
        print(f"{told}: skipped, it {why}", file=sys.stderr)
    return not why


class Spec(Part):
    node_name: str = ""


class Status(Part):
    phase: str = ""


class Pod(Part):
    """What is looked at of a pod."""

    metadata: Metadata = Metadata()
    spec: Spec = Spec()
    status: Status = Status()


@dataclass(frozen=True, slots=True)
class Contestant:
    """`command`: what runs it on a control plane; `scheduler`: by which name pods ask for it."""

    name: str
    scheduler: str
    command: Callable[[Plane], Sequence[str]]


def _default(plane: Plane) -> Sequence[str]:
    said = {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(plane.kubeconfig("scheduler")), "qps": UNTHROTTLED, "burst": UNTHROTTLED,
        },
    }  # fmt: skip
    file = plane.folder / "scheduler.yaml"
    file.write_text(yaml.safe_dump(said))
    return (str(plane.assets / "kube-scheduler"), "--config", str(file), "--secure-port=0")


def _ours(plane: Plane) -> Sequence[str]:
    return (sys.executable, "-m", "fairway", "controller", "--kubeconfig", str(plane.kubeconfig("fairway")))


def _empty(plane: Plane) -> Sequence[str]:
    return (sys.executable, "-m", "bench.binder", str(plane.kubeconfig("scheduler")))


KUBE = Contestant("kube-scheduler", "default-scheduler", _default)
FAIRWAY = Contestant("fairway", "fairway", _ours)
NOOP = Contestant("no-op binder", "no-op", _empty)


@dataclass(slots=True)
class Cluster:
    """A control plane of its own, and what is seen of its pods."""

    plane: Plane
    client: Client
    seen: Informer[Pod]

    @property
    def pods(self) -> dict[str, Pod]:
        return self.seen.store

    def bound(self) -> int:
        return sum(bool(one.spec.node_name) for one in self.pods.values())

    def server_cpu(self) -> float:
        """CPU seconds of the API server and of etcd so far."""
        return sum(_cpu(one) for one in psutil.Process().children() if one.name() in SERVER)

    async def make(self, kind: Kind, things: Iterable[Thing]) -> None:
        """Creates them over CONNECTIONS connections."""
        left = iter(things)

        async def send() -> None:
            for one in left:
                await self.client.create(kind, one)

        await asyncio.gather(*(send() for _ in range(CONNECTIONS)))

    async def add_nodes(self, count: int, *, cpu: int = 4) -> None:
        """Nodes of 4 CPUs, or so many, and room for 110 pods."""
        made = [node(f"n{at:05}", cpu=cpu) for at in range(count)]
        await self.make(kinds.NODES, made)
        left = iter(made)

        async def ready() -> None:
            for one in left:
                await self.client.patch(
                    Ref(kinds.NODES, one["metadata"]["name"]), {"status": one["status"]}, subresource="status")

        await asyncio.gather(*(ready() for _ in range(CONNECTIONS)))

    def overcommits(self, *, milli_cpu: int, capacity: int) -> bool:
        """Whether a node has more pods of so many milli-CPUs than it has room for."""
        on = Counter(one.spec.node_name for one in self.pods.values() if one.spec.node_name)
        return any(count * milli_cpu > capacity or count > 110 for count in on.values())

    async def until(self, holds: Callable[[], bool | Awaitable[bool]]) -> None:
        async with asyncio.timeout(MOST_SECONDS):
            while not (said if isinstance(said := holds(), bool) else await said):
                await asyncio.sleep(LOOK_SECONDS)


@asynccontextmanager
async def followed(plane: Plane) -> AsyncIterator[Cluster]:
    """The control plane with its pods in sight."""
    async with plane.client() as client:
        informer = Informer(client, Selection(kinds.PODS), shape=Pod, changed=lambda old, new: None)
        task = asyncio.create_task(informer.run())
        await informer.synced.wait()
        try:
            yield Cluster(plane, client, informer)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@contextmanager
def fresh() -> Iterator[Plane]:
    """A control plane that nothing ran on yet."""
    with TemporaryDirectory(prefix="bench-") as folder, control_plane(Path(folder)) as plane:
        yield plane


@dataclass(slots=True)
class Process:
    """A contestant that runs."""

    child: subprocess.Popen[bytes]
    began: float

    def cpu(self) -> float:
        return _cpu(psutil.Process(self.child.pid))

    def memory(self) -> float:
        """MiB that are resident now."""
        return float(psutil.Process(self.child.pid).memory_info().rss) / 2**20


@contextmanager
def running(one: Contestant, plane: Plane) -> Iterator[Process]:
    """A contestant until the end of the block; its log is in the folder of the control plane. As where it is installed,
    its Python is compiled once."""
    around = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with (plane.folder / f"{one.scheduler}.log").open("a") as log:
        child = subprocess.Popen([*one.command(plane)], stdout=log, stderr=log, env=around)
        try:
            yield Process(child, perf_counter())
        finally:
            child.terminate()
            child.wait()


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def pod(name: str, scheduler: str, *, cpu: str = "100m", **meta: Any) -> Thing:
    """A pod of 100m CPU, or so much, for a scheduler. `meta`: labels, annotations, namespace."""
    requests = {"cpu": cpu, "memory": "500Mi"}
    labels = {"fairway.dev/queue": "default"} if scheduler == FAIRWAY.scheduler else {}
    container = {"name": "main", "image": "none", "resources": {"requests": requests}}
    about = {"name": name, "namespace": "default", "labels": labels | meta.pop("labels", {}), **meta}
    spec = {"restartPolicy": "Never", "schedulerName": scheduler, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}


def job(
    name: str, pods: int = 1, *, scheduler: str = FAIRWAY.scheduler, cpu: str = "100m", seconds: float = 0, **meta: Any
) -> Thing:
    """A Job for a scheduler, whose pods run so long; suspended for Fairway. `meta`: as of a pod."""
    made = pod(name, scheduler, cpu=cpu, annotations={DURATION: f"{seconds}s"}, **meta)
    template = {"metadata": {"annotations": made["metadata"].pop("annotations")}, "spec": made["spec"]}
    spec = {"suspend": scheduler == FAIRWAY.scheduler, "parallelism": pods, "completions": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": made["metadata"], "spec": spec}


def requests(plane: Plane) -> dict[str, Counter[str]]:
    """What Fairway asked of the API server so far, by namespace; verb and resource, as its audit log tells. Watches are
    not told."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for line in plane.audit.read_bytes().splitlines():
        said = msgspec.json.decode(line)
        what = said.get("objectRef") or {}
        if said["verb"] != "watch" and "resource" in what:
            name = "/".join(filter(None, (what["resource"], what.get("subresource"))))
            found[what.get("namespace", "")][f"{said['verb']} {name}"] += 1
    return found
