"""Traces are read as they are, and what is wrong with one is said in a line."""

import csv
import gzip
import os
import re
from pathlib import Path

import pytest

from fairway.engine.model import GPU
from fairway.sim.load import scaled, until, workload_of
from fairway.sim.simulate import simulate
from fairway.sim.trace import TraceError, read_trace

POOLS = "queue,nodes\nq1,1\nq2,3\n"
HEAD = (
    *("job_id", "submit_time_s", "duration_s", "num_workers", "gpus_per_worker", "cpus_per_worker"),
    *("mem_gib_per_worker", "gpu_type", "user", "queue", "status", "priority", "requested_time_s", "total_gpus"),
)
ROWS = (
    ("b", "20", "5", "2", "8", "", "", "", "ann", "q2", "", "LS", "", "16"),
    ("a", "10", "60.5", "1", "0.46", "6", "12", "V100|T4", "", "q1", "", "3", "120", "0.46"),
)


def write_trace(folder: Path, rows: tuple[tuple[str, ...], ...] = ROWS, pools: str = POOLS) -> Path:
    with gzip.open(folder / "jobs.csv.gz", "wt", newline="") as file:
        csv.writer(file).writerows([HEAD, *rows])
    (folder / "pools.csv").write_text(pools)
    return folder


def row(**said: str) -> tuple[str, ...]:
    """The first of the rows, but for these columns."""
    return tuple(said.get(name, value) for name, value in zip(HEAD, ROWS[0]))


def traces() -> Path:
    found = Path(os.environ.get("FAIRWAY_TRACES") or Path(__file__).parents[2] / ".." / "shared" / "traces")
    if not found.is_dir():
        pytest.skip("no traces: set FAIRWAY_TRACES to the folder that has them")
    return found


def test_jobs_are_read_in_the_order_of_submission_and_unknown_is_not_asked_for(tmp_path: Path) -> None:
    load = read_trace(write_trace(tmp_path))
    first, second = load.jobs
    assert (first.id, first.gpus, first.cpus, first.estimate, first.priority) == ("a", 460, 6000, 120.0, 3)
    assert (second.workers, second.gpus, second.cpus, second.memory, second.priority) == (2, 8000, None, None, 0)


@pytest.mark.parametrize(
    ("said", "priority"), [("", 0), ("LS", 0), ("-", 0), ("P1", 0), ("3", 3), ("-3", -3), ("2.0", 2), ("1e3", 1000)]
)
def test_a_priority_is_a_whole_number_and_a_word_is_none(tmp_path: Path, said: str, priority: int) -> None:
    assert [job.priority for job in read_trace(write_trace(tmp_path, (row(priority=said),))).jobs] == [priority]


@pytest.mark.parametrize("pools", [POOLS, "queue,nodes\n*,1\n"])
def test_who_asks_for_a_part_of_a_gpu_shares_one_in_a_pool_too(tmp_path: Path, pools: str) -> None:
    rows = tuple(row(job_id=name, num_workers="1", gpus_per_worker="0.5") for name in "abc")
    outcomes = simulate(read_trace(write_trace(tmp_path, rows, pools)), "fifo").outcomes
    assert [it.runs[0].start for it in outcomes] == [20.0, 20.0, 20.0]


def test_a_column_may_say_when_a_user_gives_up(tmp_path: Path) -> None:
    folder = write_trace(tmp_path)
    with gzip.open(folder / "jobs.csv.gz", "wt", newline="") as file:
        csv.writer(file).writerows([(*HEAD, "patience_s"), (*ROWS[0], ""), (*ROWS[1], "90")])
    assert [job.patience for job in read_trace(folder).jobs] == [90.0, None]


def test_each_queue_of_pools_csv_has_nodes_of_its_own(tmp_path: Path) -> None:
    load = read_trace(write_trace(tmp_path))
    assert [pool.name for pool in load.pools] == ["q1", "q2"]
    assert {queue.name: queue.pools for queue in load.queues} == {"q1": ("q1",), "q2": ("q2",)}
    assert len(load.nodes) == 4 and all(dict(node.capacity)[GPU] == 8000 for node in load.nodes)


def test_a_star_in_pools_csv_is_one_pool_for_all(tmp_path: Path) -> None:
    load = read_trace(write_trace(tmp_path, pools="queue,nodes\n*,2\n"))
    assert [pool.name for pool in load.pools] == ["default"] and len(load.nodes) == 2


def test_a_fraction_becomes_a_shared_device(tmp_path: Path) -> None:
    shared, whole = (workload_of(job, {}) for job in read_trace(write_trace(tmp_path)).jobs)
    assert shared.podsets[0].pod.gpu_fraction == 460 and GPU not in dict(shared.podsets[0].pod.requests)
    assert whole.podsets[0].pod.gpu_fraction == 0 and dict(whole.podsets[0].pod.requests)[GPU] == 8000


def test_load_scales_arrivals_and_until_cuts_them(tmp_path: Path) -> None:
    load = read_trace(write_trace(tmp_path))
    assert [job.submit for job in scaled(load, 2.0).jobs] == [5.0, 10.0]
    assert [job.id for job in until(load, 15.0).jobs] == ["a"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": (("a", "x", *ROWS[0][2:]),)}, "jobs.csv.gz:2: submit_time_s: found 'x', need a number"),
        ({"pools": "queue,nodes\nq1,1\n"}, "no nodes for queue 'q2'"),
        ({"pools": "queue,size\nq1,1\n"}, "pools.csv:1: nodes: there is no such column"),
        ({"pools": "queue,nodes\nq1,0\n"}, "pools.csv:2: nodes: found '0', need a number from 1"),
        ({"pools": "queue,nodes\nq1,1\nq1,2\n"}, "pools.csv:3: queue: found 'q1', need a name of its own"),
        ({"pools": "queue,nodes\n*,1\nq1,2\n"}, "queue: found '*', which is one pool for all, beside others"),
        ({"rows": (("", *ROWS[0][1:]),)}, "job_id: found '', need a name of its own"),
        ({"rows": (ROWS[0], ROWS[0])}, "jobs.csv.gz:3: job_id: found 'b', need a name of its own"),
        ({"rows": (("a", "-1", *ROWS[0][2:]),)}, "submit_time_s: found '-1', need a number from 0"),
        ({"rows": (("a", "1", "inf", *ROWS[0][3:]),)}, "duration_s: found 'inf', need a number from 0"),
        ({"rows": (("a", "1", "5", "0", *ROWS[0][4:]),)}, "num_workers: found '0', need a number from 1"),
        ({"rows": (("a", "1", "5", "1.5", *ROWS[0][4:]),)}, "num_workers: found '1.5', need a whole number from 1"),
        ({"rows": (("a", "1", "5", "1", "nan", *ROWS[0][5:]),)}, "gpus_per_worker: found 'nan', need a number from 0"),
        ({"rows": (row(num_workers="1e9"),)}, "num_workers: found '1e9', need a number from 1 to 100000"),
        ({"rows": (row(gpus_per_worker="1e16"),)}, "2: gpus_per_worker: found '1e16', need a number from 0 to"),
        ({"rows": (row(gpus_per_worker="1.5"),)}, "found '1.5', need a part of a GPU, or a whole number of them"),
        ({"rows": (row(cpus_per_worker="1e17"),)}, "2: cpus_per_worker: found '1e17', need a number from 0 to"),
        ({"rows": (row(mem_gib_per_worker="1e12"),)}, "2: mem_gib_per_worker: found '1e12', need a number from 0 to"),
        ({"rows": (row(priority="--5"),)}, "jobs.csv.gz:2: priority: found '--5', need a number"),
        ({"rows": (row(priority="1.5"),)}, "jobs.csv.gz:2: priority: found '1.5', need a whole number"),
        ({"rows": (row(user="two\nlines"), row(job_id="c", duration_s="x"))}, "jobs.csv.gz:4: duration_s: found 'x'"),
        ({"rows": ((), row(duration_s="x"))}, "jobs.csv.gz:3: duration_s: found 'x'"),
        ({"rows": ()}, "jobs.csv.gz: there is no line below the head"),
    ],
)
def test_a_bad_trace_is_one_line_that_names_the_place(tmp_path: Path, change: dict, said: str) -> None:
    with pytest.raises(TraceError, match=re.escape(said)) as fault:
        read_trace(write_trace(tmp_path, **change))
    assert "\n" not in str(fault.value)


def test_a_table_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    assert len(read_trace(write_trace(tmp_path, pools="\ufeff" + POOLS)).nodes) == 4


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    write_trace(tmp_path)
    (tmp_path / "jobs.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path)


@pytest.mark.parametrize("name", ["philly", "helios_venus", "pai_v2020", "openb_v2023"])
def test_the_real_traces_are_read_whole(name: str) -> None:
    load = read_trace(traces() / name)
    with gzip.open(traces() / name / "jobs.csv.gz", "rt") as file:
        assert len(load.jobs) == sum(1 for _ in file) - 1
    assert load.nodes and all(job.queue in {queue.name for queue in load.queues} for job in load.jobs)
