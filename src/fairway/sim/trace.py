"""Traces of real clusters, read from a folder: `jobs.csv.gz`, and `nodes.csv.gz` or `pools.csv`.

The columns are those of the normalised traces (docs/reference/traces.md). Where `pools.csv` is there it gives the size
at which the trace contends: for each queue so many nodes of 8 GPUs, as a pool of that queue's own; `*` is one pool for
all. Empty means unknown, and what is unknown is not asked for; a priority that is no number is 0. Bad input is a
TraceError of one line: file, line, column.
"""

import csv
import gzip
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from fairway.engine.model import CPU, GPU, MEMORY, PODS, Amounts, Device, Expression, Node, Pool, amounts

from .load import GIB, GPU_PRODUCT, Job, Load, gpu_queues

T = TypeVar("T")
Row = dict[str, str]

POOL_LABEL = "fairway.dev/trace-pool"
SHAPE = amounts({GPU: 8000, CPU: 96_000, MEMORY: 768 * GIB, PODS: 110})
PLENTY = 1 << 40  # of what a node list does not say


class TraceError(Exception):
    """A trace that cannot be read: one line with file, line and column."""


def read(folder: Path, *, nodes: Path | None = None) -> Load:
    """The load of a trace; `nodes` (a nodes.csv or .csv.gz) replaces the cluster that the folder describes."""
    jobs = sorted(_read_jobs(folder / "jobs.csv.gz"), key=lambda job: job.submit)
    names = sorted({job.queue for job in jobs})
    if nodes is None and (folder / "pools.csv").exists():
        return _in_pools(folder, tuple(jobs), names)
    cluster = tuple(_read_nodes(nodes or folder / "nodes.csv.gz", needs_devices=any(job.gpus % 1000 for job in jobs)))
    return Load(folder.name, cluster, tuple(jobs), (Pool("default"),), gpu_queues(names))


def _in_pools(folder: Path, jobs: tuple[Job, ...], names: list[str]) -> Load:
    jobs = tuple(replace(job, gpu_types=()) for job in jobs)  # its nodes are all of one model
    sizes = {row.text("queue"): row.whole("nodes") for row in _rows(folder / "pools.csv")}
    if set(sizes) == {"*"}:
        return Load(folder.name, _alike("n", sizes["*"], ()), jobs, (Pool("default"),), gpu_queues(names))
    if missing := [name for name in names if name not in sizes]:
        raise TraceError(f"{folder / 'pools.csv'}: no nodes for queue {missing[0]!r} of the jobs")
    pools = tuple(Pool(name, (Expression(POOL_LABEL, "In", (name,)),)) for name in names)
    nodes = tuple(node for name in names for node in _alike(f"{name}-n", sizes[name], ((POOL_LABEL, name),)))
    return Load(folder.name, nodes, jobs, pools, gpu_queues(names, names))


def _alike(prefix: str, count: int, labels: tuple[tuple[str, str], ...]) -> tuple[Node, ...]:
    return tuple(Node(f"{prefix}{index:04d}", labels, SHAPE) for index in range(count))


def _read_jobs(path: Path) -> Iterator[Job]:
    for row in _rows(path):
        yield Job(
            id=row.text("job_id"),
            submit=row.number("submit_time_s"),
            duration=row.number("duration_s"),
            workers=row.whole("num_workers"),
            gpus=round(1000 * row.number("gpus_per_worker")),
            cpus=row.maybe("cpus_per_worker", lambda it: round(1000 * float(it))),
            memory=row.maybe("mem_gib_per_worker", lambda it: round(GIB * float(it))),
            gpu_types=tuple(filter(None, row.text("gpu_type").split("|"))),
            user=row.text("user"),
            queue=row.text("queue") or "default",
            priority=int(row.text("priority")) if row.text("priority").lstrip("-").isdecimal() else 0,
            estimate=row.maybe("requested_time_s", float),
        )


def _read_nodes(path: Path, *, needs_devices: bool) -> Iterator[Node]:
    for row in _rows(path):
        gpus, product = row.whole("gpus"), row.text("gpu_type")
        yield Node(
            row.text("node_id"),
            tuple(sorted({GPU_PRODUCT: product, "fairway.dev/rack": row.text("rack")}.items())),
            _shape(gpus, row.maybe("cpus", float), row.maybe("mem_gib", float)),
            chooser="Scheduler" if needs_devices else "Kubelet",
            devices=tuple(Device(index) for index in range(gpus)) if needs_devices else (),
        )


def _shape(gpus: int, cpus: float | None, memory: float | None) -> Amounts:
    return amounts({
        GPU: 1000 * gpus,
        CPU: PLENTY if cpus is None else round(1000 * cpus),
        MEMORY: PLENTY if memory is None else round(GIB * memory),
        PODS: 1000,
    })  # fmt: skip


class _Row:
    """A line of a table, whose faults name file, line and column."""

    def __init__(self, path: Path, line: int, values: Row) -> None:
        self._path, self._line, self._values = path, line, values

    def text(self, column: str) -> str:
        return self._values.get(column) or ""

    def number(self, column: str) -> float:
        return self._read(column, float)

    def whole(self, column: str) -> int:
        return self._read(column, int)

    def maybe(self, column: str, read: Callable[[str], T]) -> T | None:
        return self._read(column, read) if self.text(column) else None

    def _read(self, column: str, read: Callable[[str], T]) -> T:
        try:
            return read(self.text(column))
        except ValueError as error:
            found = f"found {self.text(column)!r}" if column in self._values else "there is no such column"
            raise TraceError(f"{self._path}:{self._line}: {column}: {found}, need a number") from error


def _rows(path: Path) -> Iterator[_Row]:
    try:
        with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
            for line, values in enumerate(csv.DictReader(file), 2):
                yield _Row(path, line, values)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from error
