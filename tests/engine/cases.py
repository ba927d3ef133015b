"""Small worlds and plans to judge, in few words: nodes with devices, workloads, who runs where, who is admitted."""

from dataclasses import replace

from fairway.engine.model import (
    Admission,
    Device,
    Expression,
    Node,
    NodeShare,
    PodClass,
    PodSet,
    PodSetPlacement,
    Queue,
    Quota,
    Running,
    Share,
    Topology,
    Workload,
    World,
)
from fairway.engine.plan import Admit, Plan, Verdict
from fairway.engine.state import snapshot_of
from fairway.referee import RULES, check

NOW = 1_000_000.0
GPU = "nvidia.com/gpu"


def node(name: str = "n1", gpus: int = 4, cpu: int = 8, **more: object) -> Node:
    """A node with whole devices that Fairway chooses, in two groups."""
    devices = tuple(Device(at, numa=at // 2, nvlink=at // 2) for at in range(gpus))
    labels = (("kubernetes.io/hostname", name), *more.pop("labels", ()))
    capacity = (("cpu", cpu * 1000), ("memory", 1 << 36), (GPU, gpus * 1000), ("pods", more.pop("slots", 110)))
    usual = {"chooser": "Scheduler", "devices": devices}
    return Node(name, tuple(sorted(labels)), tuple(sorted(capacity)), **{**usual, **more})


def work(key: str = "a", queue: str = "q", gpus: int = 1, **more: object) -> Workload:
    count = more.pop("count", 1)
    pod = PodClass("ns", requests=((GPU, gpus * 1000),) if gpus else (("cpu", 1000),))
    pod = replace(pod, **more.pop("pod", {}))
    podset = PodSet("main", count, more.pop("least", count), pod, more.pop("inside", Topology()))
    return Workload(f"ns/{key}", queue, (podset,), **{"submitted": NOW - 100, **more})


def at(*shares: NodeShare, pool: str = "default") -> Admission:
    return Admission(pool, (PodSetPlacement("main", shares),))


def on(name: str, *devices: int | tuple[int, ...], count: int = 0) -> NodeShare:
    """Pods on a node, one for each device or group of devices; `count` pods without any."""
    given = tuple(one if isinstance(one, tuple) else (one,) for one in devices)
    return NodeShare(name, count or len(given), given)


def runs(workload: Workload, *shares: NodeShare, **more: object) -> Running:
    return Running(workload, at(*shares), **{"admitted_at": NOW - 90_000, **more})


def admit(workload: Workload, *shares: NodeShare, **more: object) -> Admit:
    return Admit(workload.key, at(*shares), **more)


def faults(
    world: World, *verdicts: Verdict, shares: dict[tuple[str, str, str], int] | None = None
) -> set[tuple[str, str]]:
    """Workload and rule of each fault."""
    world = replace(world, now=NOW, queues=world.queues or (Queue("q"),), nodes=world.nodes or (node(),))
    found = check(snapshot_of(world), Plan(verdicts, shares or {}))
    assert {fault.rule for fault in found} <= set(RULES)
    return {(fault.workload.removeprefix("ns/"), fault.rule) for fault in found}


def gpus(amount: int, *, limit: int | None = None, pool: str = "*") -> tuple[Quota, ...]:
    most = ((GPU, Share(limit * 1000)),) if limit is not None else ()
    return (Quota(pool, ((GPU, Share(amount * 1000)),), most),)


def of(*workloads: Workload, **more: object) -> World:
    return World(pending=workloads, **more)


FULL = on("n1", (0, 1, 2, 3))
HOST = "kubernetes.io/hostname"
X = (Expression("app", "In", ("x",)),)
