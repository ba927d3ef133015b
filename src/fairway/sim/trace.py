"""Traces of real clusters, read from a folder: `jobs.csv.gz`, and `nodes.csv.gz` or `pools.csv`.

The columns are those of the normalised traces (docs/reference/traces.md). Where `pools.csv` is there it gives the size
at which the trace contends: for each queue so many nodes of 8 GPUs, as a pool of that queue's own; `*` is one pool for
all. Empty means unknown, and what is unknown is not asked for; a priority that is a word is 0. Bad input is a
TraceError of one line: file, line, column.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf, nan
from pathlib import Path

from fairway.api.quantities import LARGEST
from fairway.api.types import MOST_PODS
from fairway.engine import CPU, DEVICE, GPU, MEMORY, PODS, Amounts, Device, Expression, Node, Pool, amounts

from .load import GIB, GPU_PRODUCT, Job, Load, gpu_queues

Row = dict[str, str]
JOB_COLUMNS = ("job_id", "submit_time_s", "duration_s", "num_workers", "gpus_per_worker")

POOL_LABEL = "fairway.dev/trace-pool"
USUAL_NODE = amounts({GPU: 8000, CPU: 96_000, MEMORY: 768 * GIB, PODS: 110})
PLENTY = 1 << 40  # of what a node list does not say


class TraceError(Exception):
    """A trace that cannot be read: one line with file, line and column."""


class _Row:
    """A line of a table, whose faults name file, line and column."""

    def __init__(self, path: Path, line: int, values: Row) -> None:
        self._path, self._line, self._values = path, line, values

    def text(self, column: str) -> str:
        return self._values.get(column) or ""

    def number(self, column: str, least: float = 0, most: float = inf) -> float:
        """A finite one, no less and no more than that."""
        try:
            found = float(self.text(column))
        except ValueError:
            found = nan
        if not least <= found <= most or found == inf:
            raise self.fault(column, f"a number from {least:g}{f' to {most:g}' if most < inf else ''}")
        return found

    def whole(self, column: str, least: int, most: int = MOST_PODS) -> int:
        found = self.number(column, least, most)
        if found % 1:
            raise self.fault(column, f"a whole number from {least} to {most}")
        return int(found)

    def amount(self, column: str, unit: int) -> int:
        """In thousandths or bytes, as `unit` says."""
        return round(unit * self.number(column, most=LARGEST // unit))

    def maybe(self, column: str, unit: int) -> int | None:
        """The same; None where it is unknown."""
        return self.amount(column, unit) if self.text(column) else None

    def gpus(self) -> int:
        found = self.amount("gpus_per_worker", DEVICE)
        if found > DEVICE and found % DEVICE:
            raise self.fault("gpus_per_worker", "a part of a GPU, or a whole number of them")
        return found

    def priority(self) -> int:
        """A word is the class of another system, a dash none: 0."""
        text = self.text("priority").strip(" -")
        return 0 if not text or text[0].isalpha() else self.whole("priority", -LARGEST, LARGEST)

    def fault(self, column: str, needed: str) -> TraceError:
        return TraceError(f"{self._path}:{self._line}: {column}: found {self.text(column)!r}, need {needed}")


def read_trace(folder: Path, *, nodes: Path | None = None) -> Load:
    """The load of a trace; `nodes` (a nodes.csv or .csv.gz) replaces the cluster that the folder describes."""
    jobs = sorted(_read_jobs(folder / "jobs.csv.gz"), key=lambda job: job.submit)
    names = sorted({job.queue for job in jobs})
    if nodes is None and (folder / "pools.csv").exists():
        return _in_pools(folder, tuple(jobs), names)
    cluster = read_nodes(nodes or folder / "nodes.csv.gz", jobs)
    return Load(folder.name, cluster, tuple(jobs), (Pool("default"),), gpu_queues(names))


def read_nodes(path: Path, jobs: Sequence[Job]) -> tuple[Node, ...]:
    """The nodes of a nodes.csv or .csv.gz, for these jobs."""
    return _shareable(_read_nodes(path), jobs)


def _in_pools(folder: Path, jobs: tuple[Job, ...], names: list[str]) -> Load:
    jobs = tuple(replace(job, gpu_types=()) for job in jobs)  # its nodes are all of one model
    sizes = {row.text("queue"): row.whole("nodes", 1) for row in _rows(folder / "pools.csv", ("queue", "nodes"))}
    if "*" in sizes and len(sizes) > 1:
        raise TraceError(f"{folder / 'pools.csv'}: queue: found '*', which is one pool for all, beside others")
    if "*" in sizes:
        nodes = _shareable(_alike("n", sizes["*"], ()), jobs)
        return Load(folder.name, nodes, jobs, (Pool("default"),), gpu_queues(names))
    if missing := [name for name in names if name not in sizes]:
        raise TraceError(f"{folder / 'pools.csv'}: no nodes for queue {missing[0]!r} of the jobs")
    pools = tuple(Pool(name, (Expression(POOL_LABEL, "In", (name,)),)) for name in names)
    alike = (node for name in names for node in _alike(f"{name}-n", sizes[name], ((POOL_LABEL, name),)))
    return Load(folder.name, _shareable(alike, jobs), jobs, pools, gpu_queues(names, names))


def _alike(prefix: str, count: int, labels: tuple[tuple[str, str], ...]) -> Iterator[Node]:
    return (Node(f"{prefix}{index:04d}", labels, USUAL_NODE) for index in range(count))


def _shareable(nodes: Iterable[Node], jobs: Sequence[Job]) -> tuple[Node, ...]:
    """With their devices, where a job asks for a part of one; else they are only counted."""
    if not any(job.gpus % DEVICE for job in jobs):
        return tuple(nodes)
    return tuple(replace(node, chooser="Scheduler", devices=_devices(node)) for node in nodes)


def _devices(node: Node) -> tuple[Device, ...]:
    return tuple(map(Device, range(dict(node.capacity).get(GPU, 0) // DEVICE)))


def _read_jobs(path: Path) -> Iterator[Job]:
    for row in _rows(path, JOB_COLUMNS):
        yield Job(
            id=row.text("job_id"),
            submit=row.number("submit_time_s"),
            duration=row.number("duration_s"),
            workers=row.whole("num_workers", 1),
            gpus=row.gpus(),
            cpus=row.maybe("cpus_per_worker", 1000),
            memory=row.maybe("mem_gib_per_worker", GIB),
            gpu_types=tuple(filter(None, row.text("gpu_type").split("|"))),
            user=row.text("user"),
            queue=row.text("queue") or "default",
            priority=row.priority(),
            estimate=row.number("requested_time_s", 1) if row.text("requested_time_s") else None,
            patience=row.number("patience_s") if row.text("patience_s") else None,
        )


def _read_nodes(path: Path) -> Iterator[Node]:
    for row in _rows(path, ("node_id", "gpus")):
        labels = {GPU_PRODUCT: row.text("gpu_type"), "fairway.dev/rack": row.text("rack")}
        shape = _shape(row.whole("gpus", 0), row.maybe("cpus", 1000), row.maybe("mem_gib", GIB))
        yield Node(row.text("node_id"), tuple(sorted(labels.items())), shape)


def _shape(gpus: int, cpus: int | None, memory: int | None) -> Amounts:
    return amounts({
        GPU: DEVICE * gpus,
        CPU: PLENTY if cpus is None else cpus,
        MEMORY: PLENTY if memory is None else memory,
        PODS: 1000,
    })  # fmt: skip


def _rows(path: Path, columns: Sequence[str]) -> Iterator[_Row]:
    """The lines of a table that has at least these columns, of which the first names each line, and at least one."""
    seen = set[str]()
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            table = csv.DictReader(io.TextIOWrapper(file, "utf-8-sig", newline=""))
            if missing := [one for one in columns if one not in (table.fieldnames or ())]:
                raise TraceError(f"{path}:1: {missing[0]}: there is no such column; {', '.join(columns)} are needed")
            for values in table:
                row = _Row(path, table.line_num, values)
                if (name := row.text(columns[0])) in seen or not name:
                    raise row.fault(columns[0], "a name of its own")
                seen.add(name)
                yield row
            if not seen:
                raise TraceError(f"{path}: there is no line below the head; one at least is needed")
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise TraceError(f"{path}: cannot be read: {why}") from error
