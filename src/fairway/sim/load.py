"""What a simulation is fed: a cluster and the jobs that will come, as values.

A Load says nothing about policies. Times are seconds from the start of the load. `duration` is how long a job runs
when nothing stops it: the world knows it, the scheduler does not (unless its policy is an oracle).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fairway import engine
from fairway.engine import CPU, GPU, MEMORY, Node, PodClass, PodSet, Pool, Queue, Quota, Share, Workload, selects

GIB = 1 << 30
NAMESPACE = "sim"
GPU_PRODUCT = "nvidia.com/gpu.product"


@dataclass(frozen=True, slots=True)
class Job:
    """`gpus` is milli-GPU per worker, a part of one or whole ones; `cpus` milli-CPU, `memory` bytes; None = not asked
    for. `gpu_types`: any of them. `estimate`: the time limit its user gave. `patience`: the user cancels after waiting
    so long."""

    id: str
    submit: float
    duration: float
    workers: int = 1
    min_workers: int = 0  # 0: all
    gpus: int = 1000
    cpus: int | None = None
    memory: int | None = None
    gpu_types: tuple[str, ...] = ()
    user: str = ""
    queue: str = "default"
    priority: int = 0
    estimate: float | None = None
    patience: float | None = None

    @property
    def needs(self) -> float:
        """The seconds until it ends, or is stopped at its limit, where nothing else stops it."""
        return self.duration if self.estimate is None else min(self.duration, self.estimate)

    @property
    def total_gpus(self) -> float:
        return self.workers * self.gpus / 1000


@dataclass(frozen=True, slots=True)
class Outage:
    """A node that is not there from `start` to `end`."""

    node: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]  # by submit time
    pools: tuple[Pool, ...] = ()
    queues: tuple[Queue, ...] = (Queue("default"),)
    outages: tuple[Outage, ...] = ()


def merged(outages: Iterable[Outage]) -> list[Outage]:
    """By node, and one for those that overlap: a node comes back when the last of them is over."""
    found: list[Outage] = []
    for one in sorted(outages, key=lambda it: (it.node, it.start)):
        if found and found[-1].node == one.node and one.start <= found[-1].end:
            found[-1] = replace(found[-1], end=max(found[-1].end, one.end))
        else:
            found.append(one)
    return found


def scaled(load: Load, factor: float) -> Load:
    """`factor` times the arrivals in a given time: the same jobs, closer together (or further apart)."""
    if factor == 1:
        return load
    return replace(load, jobs=tuple(replace(job, submit=job.submit / factor) for job in load.jobs))


def until(load: Load, seconds: float | None) -> Load:
    """Only the jobs submitted before `seconds`."""
    return load if seconds is None else replace(load, jobs=tuple(job for job in load.jobs if job.submit < seconds))


def apart(load: Load) -> list[Load]:
    """A load for each queue, where each has pools, and so nodes, of its own, and none a quota of all pools or a parent:
    they can never meet. Else the load itself. Nodes of no queue go with the first."""
    used = [pool for queue in load.queues for pool in queue.pools]
    is_bound = any(it.parent or not it.pools or "*" in (quota.pool for quota in it.quotas) for it in load.queues)
    if is_bound or len(load.queues) < 2 or len(set(used)) < len(used):
        return [load]
    owner = {pool: queue.name for queue in load.queues for pool in queue.pools}
    pools, first = sorted(load.pools, key=lambda one: one.name), load.queues[0].name
    of_node = {
        node.name: owner.get(next((it.name for it in pools if selects(it.selector, dict(node.labels))), ""), first)
        for node in load.nodes
    }
    jobs = defaultdict[str, list[Job]](list)
    for job in load.jobs:
        jobs[job.queue].append(job)
    return [
        replace(
            load,
            name=f"{load.name}, {queue.name}",
            nodes=tuple(node for node in load.nodes if of_node[node.name] == queue.name),
            jobs=tuple(jobs[queue.name]),
            pools=tuple(pool for pool in load.pools if owner.get(pool.name, first) == queue.name),
            queues=(queue,),
            outages=tuple(one for one in load.outages if of_node[one.node] == queue.name),
        )
        for queue in load.queues
    ]


def workload_of(job: Job, pods: dict[PodClass, PodClass]) -> Workload:
    """What the scheduler sees of a job. `pods` interns: jobs alike share one PodClass."""
    whole = job.gpus % 1000 == 0
    asked = {GPU: job.gpus if whole else 0, CPU: job.cpus or 0, MEMORY: job.memory or 0}
    pod = PodClass(
        namespace=NAMESPACE,
        requests=engine.amounts({name: amount for name, amount in asked.items() if amount}),
        affinity=(engine.Term((engine.Expression(GPU_PRODUCT, "In", job.gpu_types),)),) if job.gpu_types else (),
        gpu_fraction=0 if whole else job.gpus,
    )
    podset = PodSet("worker", job.workers, job.min_workers or job.workers, pods.setdefault(pod, pod))
    return Workload(
        f"{NAMESPACE}/{job.id}", job.queue, (podset,), user=job.user, priority=job.priority, submitted=job.submit,
        time_limit=job.estimate, grace=0.0,
    )  # fmt: skip


def gpu_queues(names: Sequence[str], pools: Sequence[str] = ()) -> tuple[Queue, ...]:
    """Leaf queues, the n-th with the n-th pool for itself where pools are given; else several have equal parts of what
    there is, and nothing is owed to any."""
    if pools:
        return tuple(Queue(name, pools=(pool,)) for name, pool in zip(names, pools))
    quotas = (Quota("*", ((GPU, Share(0)),)),) if len(names) > 1 else ()
    return tuple(Queue(name, quotas=quotas) for name in names)
