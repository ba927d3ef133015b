"""B8, packing: how much of the GPUs is in use when as much has been asked for as there is.

The experiment of FGD (USENIX ATC '23) on the openb lists: 1,213 GPU nodes in an order drawn by seed, the list shuffled
and inflated to 130 % by drawing again from it, pods one by one, no departures; who fits nowhere is dropped but counts
as arrived. Pods are placed by the engine's own `place` under the strategies compared; every run is checked for devices
given twice. The figure is the mean, over arrivals that round to 100 % of the cluster's GPUs, of the GPUs allocated.

The weights of our own score were chosen on cpu050, cpu200, default, gpushare40, gpushare80, gpuspec20, multigpu20 and
multigpu40. That scarce models need a term was seen on gpuspec10; the other lists had no part in it. How FGD's ties are
broken for pods without GPUs was chosen on cpu200, cpu250, default, gpushare60 and gpuspec20, by five of the seeds.
"""

import csv
import gzip
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from bench.figure import Figure

from fairway.engine import (
    GPU,
    Admission,
    Ask,
    Device,
    Draft,
    Expression,
    Node,
    PodClass,
    PodSet,
    Term,
    Workload,
    World,
    amounts,
    place,
    snapshot_of,
)

MIB = 2**20
MODEL = "gpu-model"
INFLATION = 1.3


def traces() -> Path:
    """Where the public traces are."""
    return Path(os.environ.get("FAIRWAY_TRACES", Path(__file__).parents[2] / "shared" / "traces")) / "openb_v2023"


@dataclass(frozen=True, slots=True)
class Request:
    """A line of a list: its podsets, one object for all alike, and milli-GPU asked for per device and in sum."""

    podsets: tuple[PodSet, ...]
    per_device: int
    total: int


def rows_of(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt") as lines:
        return list(csv.DictReader(lines))


def nodes_of(rows: Sequence[dict[str, str]], order: np.ndarray) -> tuple[Node, ...]:
    """Nodes named in an order, for equal scores go by name."""
    return tuple(
        Node(
            f"{order[at]:05d}-{row['sn']}",
            ((MODEL, row["model"]),),
            amounts({"cpu": int(row["cpu_milli"]), "memory": int(row["memory_mib"]) * MIB, "pods": 1000,
                     GPU: int(row["gpu"]) * 1000}),
            chooser="Scheduler",
            devices=tuple(Device(index) for index in range(int(row["gpu"]))),
        )
        for at, row in enumerate(rows)
    )


def requests_of(rows: Sequence[dict[str, str]]) -> list[Request]:
    known: dict[tuple[object, ...], Request] = {}
    return [_request(row, known) for row in sorted(rows, key=lambda row: row["name"])]


def _request(row: dict[str, str], known: dict[tuple[object, ...], Request]) -> Request:
    gpus, milli, models = int(row["num_gpu"]), int(row["gpu_milli"]), row.get("gpu_spec") or ""
    key = row["cpu_milli"], row["memory_mib"], gpus, milli, models
    if key not in known:
        asks = {"cpu": int(row["cpu_milli"]), "memory": int(row["memory_mib"]) * MIB}
        is_shared = gpus == 1 and 0 < milli < 1000
        if gpus and not is_shared:
            asks[GPU] = gpus * 1000
        terms = (Term((Expression(MODEL, "In", tuple(models.split("|"))),)),) if models else ()
        pod = PodClass(requests=amounts(asks), affinity=terms, gpu_fraction=milli if is_shared else 0)
        known[key] = Request((PodSet("main", 1, 1, pod),), milli if gpus else 0, gpus * milli)
    return known[key]


def arrivals(requests: Sequence[Request], capacity: int, rng: np.random.Generator) -> list[Request]:
    """The list shuffled, then inflated; where it is too long, thinned out."""
    events = [requests[at] for at in rng.permutation(len(requests))]
    total, target = sum(one.total for one in events), INFLATION * capacity
    while total > target:
        total -= events.pop(int(rng.integers(len(events)))).total
    while True:
        drawn = requests[int(rng.integers(len(requests)))]
        if total + drawn.per_device > target:
            return events
        events.append(drawn)
        total += drawn.total


def allocated(nodes: Sequence[dict[str, str]], requests: Sequence[Request], strategy: str, seed: int) -> float:
    """Per cent of the GPUs in use when 100 % have been asked for."""
    rng = np.random.default_rng(seed)
    listed = tuple(Workload(f"b/{at}", "q", one.podsets) for at, one in enumerate(requests))
    world = World(nodes=nodes_of(nodes, rng.permutation(len(nodes))), pending=listed)
    draft = Draft(snapshot_of(world))
    capacity = int(draft.snapshot.capacity[3].sum())
    arrived = used = 0
    samples = []
    for at, one in enumerate(arrivals(requests, capacity, rng)):
        workload = Workload(f"e/{at}", "q", one.podsets)
        found = place(draft, Ask(workload, (1,), strategy=strategy), "default")
        if found is not None:
            draft.start(workload, Admission("default", found))
            used += one.total
        arrived += one.total
        if round(100 * arrived / capacity) > 100:
            break
        if round(100 * arrived / capacity) == 100:
            samples.append(100 * used / capacity)
    assert draft.free.min() >= 0 and draft.device_free.max() <= 1000, "room given twice"
    assert int(np.maximum(draft.device_free, 0).sum()) == capacity - used, "devices do not add up"
    return float(np.mean(samples))


def published() -> dict[str, dict[str, float]]:
    """Per cent allocated at 100 %, by list and policy."""
    with (traces() / "reference" / "fgd_expected_summary.csv").open() as lines:
        table: dict[str, dict[str, float]] = {}
        for row in csv.DictReader(lines):
            table.setdefault(row["workload"], {})[row["policy"]] = 100 - float(row["unalloc_mean_100"])
    return table


SEEDS = range(42, 52)
"""Those of the published experiment."""
Packed = tuple[str, float, tuple[float, ...]]
"""A list, what was published for it, and what was reached, by seed."""
TOLERANCE = 0.3
"""Points by which a list may stay behind the published mean."""
COMPARED = (
    ("FGD", "FGD", "FGD", 0.0),
    ("BestFit", "BestFit", "BestFit", -TOLERANCE),
    ("ours", "Fragmentation", "FGD", 0.1),
)
"""What a figure is called, our strategy, the published policy it is compared with, and by how many points its mean is
to be above that one's."""


def run(rounds: int = 5) -> Iterator[Figure]:
    """Per strategy a figure for each published list, and the mean of the lists. A sample is a seed; `rounds` is not
    used. As many runs at once as there are processors."""
    if not traces().is_dir():
        print(f"B8 needs the public traces; there are none at {traces()}", file=sys.stderr)
        return
    nodes = rows_of(traces() / "raw" / "openb_node_list_gpu_node.csv.gz")
    goals = dict(sorted(published().items()))
    lists = {file: requests_of(rows_of(traces() / "raw" / f"{file}.csv.gz")) for file in goals}
    with ProcessPoolExecutor() as pool:
        asked = {(strategy, file): [pool.submit(allocated, nodes, requests, strategy, seed) for seed in SEEDS]
                 for _, strategy, _, _ in COMPARED for file, requests in lists.items()}  # fmt: skip
        for name, strategy, policy, above in COMPARED:
            told = [(file, goals[file][policy], tuple(one.result() for one in asked[strategy, file])) for file in lists]
            yield from _figures(name, f"{policy}, published", above, told)


def _figures(name: str, named: str, above: float, told: Sequence[Packed]) -> Iterator[Figure]:
    """What was reached on each list, the median of its seeds, and on the mean of the lists, of the means of theirs."""
    for file, goal, samples in told:
        title = f"B8 {name} {file.removeprefix('openb_pod_list_')}"
        yield Figure(title, samples, "% allocated", goal - TOLERANCE, goal, named, is_rate=True)
    mean, goal = (float(np.mean([samples for _, _, samples in told])),), float(np.mean([goal for _, goal, _ in told]))
    yield Figure(f"B8 {name}, mean of {len(told)} lists", mean, "% allocated", goal + above, goal, named, is_rate=True)
