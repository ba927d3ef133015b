"""B5, quota: short workloads in cohorts that lend to each other, until all are done; time passes while it is decided.

The shape of two loads of Kueue's own scheduler test: cohorts of queues, in each queue small, medium and large workloads
that come at an interval, run for a moment and rank by size; a queue owns 20 CPUs, may borrow 100, takes back what it
lent and preempts its own smaller ones, whose work is then lost. Quota alone decides: one node has room for all.

Simulated seconds and CPU seconds of deciding are one clock: what happens during a cycle is seen after it, and a start
is as late as its decision. So the makespan is that of a scheduler with this machine's speed and no API server. The work
bound is the CPU-seconds of a queue's workloads over its CPUs. Valid if the referee finds nothing and all have finished.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic, process_time

from bench.figure import Figure, growth

from fairway.engine import CPU, PODS, Fact, Node, PodClass, PodSet, Queue, Quota, Share, State, Workload, amounts
from fairway.outlook import Forward
from fairway.policies import PRESETS

OWNED, BORROWED = 20, 100
PRIORITIES = (50, 100, 200)
PARTS = (4, 2, 1)
TELL_EVERY = 10.0


@dataclass(frozen=True, slots=True)
class Batch:
    """`count` workloads of a queue, `interval` seconds apart, that run for `runtime` seconds on `cpus`."""

    count: int
    interval: float
    runtime: float
    cpus: int


@dataclass(frozen=True, slots=True)
class Shape:
    """`batches` of each queue, small ones first. `published`: seconds that Kueue's test takes, throttled clients."""

    name: str
    cohorts: int
    queues: int
    batches: tuple[Batch, ...]
    published: float | None = None

    @property
    def bound(self) -> float:
        return sum(one.count * one.runtime * one.cpus for one in self.batches) / OWNED

    def part(self, part: int) -> "Shape":
        """With so many times fewer cohorts, at least one."""
        return Shape(self.name, max(1, self.cohorts // part), self.queues, self.batches, self.published)


SHAPES = (
    Shape("baseline", 5, 6, (Batch(350, 0.1, 0.2, 1), Batch(100, 0.5, 0.5, 5), Batch(50, 1.2, 1.0, 20)), 351.0),
    Shape("large-scale", 10, 100, (Batch(35, 0.06, 0.15, 1), Batch(11, 0.3, 0.35, 5), Batch(4, 0.7, 0.7, 20))),
)


def owning(name: str, queues: int, *, parent: str = "", borrowed: int = 0) -> Queue:
    owned = 1000 * OWNED * queues
    quota = Quota("*", ((CPU, Share(owned)),), ((CPU, Share(owned + 1000 * borrowed)),))
    return Queue(name, parent, (quota,), min_runtime=0.0)


def facts(shape: Shape) -> Iterator[Fact]:
    """The queues, and a node that is as large as all they own."""
    whole = 1000 * OWNED * shape.queues * shape.cohorts
    yield Node("n", capacity=amounts({CPU: whole, PODS: whole}))
    for at in range(shape.cohorts):
        yield owning(f"c{at}", shape.queues)
        yield from (owning(f"c{at}-q{row}", 1, parent=f"c{at}", borrowed=BORROWED) for row in range(shape.queues))


def arrivals(shape: Shape) -> Iterator[tuple[Workload, float]]:
    """Who comes, and how long it will run."""
    for size, (batch, priority) in enumerate(zip(shape.batches, PRIORITIES)):
        podsets = (PodSet("main", 1, 1, PodClass(requests=amounts({CPU: 1000 * batch.cpus}))),)
        for queue in (f"c{at}-q{row}" for at in range(shape.cohorts) for row in range(shape.queues)):
            for at in range(batch.count):
                key, submitted = f"b/{queue}-{size}-{at:03d}", (at + 1) * batch.interval
                yield Workload(key, queue, podsets, priority=priority, submitted=submitted, grace=0.0), batch.runtime


@dataclass(frozen=True, slots=True)
class Run:
    workloads: int
    makespan: float
    cpu_seconds: float
    evictions: int
    is_valid: bool


def played(shape: Shape) -> Run:
    state, runtimes = State(), dict[str, float]()
    state.observe(*facts(shape))
    forward = Forward(state, PRESETS["fairway"], lambda one: runtimes[one.key])
    for workload, runtime in arrivals(shape):
        runtimes[workload.key] = runtime
        forward.at(workload.submitted, lambda one=workload: forward.observe(one))
    is_valid, spent, last, said = True, 0.0, process_time(), monotonic()
    for step in forward.steps():
        is_valid &= not step.faults
        now = process_time()
        spent, forward.now, last = spent + now - last, forward.now + now - last, now
        if monotonic() - said > TELL_EVERY:
            said, waiting = monotonic(), len(step.snapshot.pending)
            print(f"{shape.name}: {forward.now:.1f} s, {waiting} wait", file=sys.stderr, flush=True)
    finished = [one for one in forward.attempts if one.has_finished]
    is_valid &= len(finished) == len(runtimes)
    return Run(len(runtimes), forward.now, spent, len(forward.attempts) - len(finished), is_valid)


def run(rounds: int = 1) -> Iterator[Figure]:
    """`rounds` is not used: a run is long, and its thousands of cycles are the samples."""
    for shape in SHAPES:
        runs = [played(shape.part(part)) for part in PARTS]
        whole, is_valid = runs[-1], all(one.is_valid for one in runs)
        slope = growth([one.workloads for one in runs], [one.cpu_seconds for one in runs])
        title = f"B5 {shape.name}, {whole.workloads} workloads"
        aim, base, name = 1.5 * shape.bound, shape.published, "Kueue, its own test"
        yield Figure(f"{title}: makespan", (whole.makespan,), "s", aim, base, name, is_valid=is_valid)
        yield Figure(f"{title}: cost (~ size^{slope:.2f})", (whole.cpu_seconds,), "CPU s", is_valid=is_valid)
