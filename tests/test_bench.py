"""Each benchmark at its smallest: what it measures is sound, and what it tells is whole."""

import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import (
    b2_gang,
    b3_engine,
    b4_reclaim,
    b5_quota,
    b6_topology,
    b7_blocked,
    b8_packing,
    b9_jct,
    b10_backfill,
    b13_forecast,
    b14_page,
    b15_box,
    rivals,
)
from bench.__main__ import main, modules
from bench.b5_quota import Batch, Shape
from bench.figure import Figure, growth
from bench.plans import once, timed, world_of
from bench.replays import cut, replay

from fairway.engine.model import PodClass, Topology, Workload, World, amounts
from fairway.engine.state import snapshot_of
from fairway.sim.load import apart
from fairway.sim.synthetic import generate
from fairway.sim.trace import read_trace

CPU = PodClass(requests=amounts({"cpu": 1000}))
HEAD = "job_id,submit_time_s,duration_s,num_workers,gpus_per_worker,user,queue,total_gpus\n"


def gangs() -> bool:
    return timed(world_of(b2_gang.nodes(10), b2_gang.gangs(4, 20)), 1, admitted=4)[1]


def singles() -> bool:
    return timed(b3_engine.world(10, 50, 5, 3), 1, admitted=50)[1]


def reclaim() -> bool:
    gang = Workload("b/gang", "queue-1", b4_reclaim.gpus(2, 8), submitted=1e5)
    return b4_reclaim.measured(b4_reclaim.world(20, (gang,)), 1, starts=1, most_victims=16)[1]


def quota() -> bool:
    run = b5_quota.played(Shape("small", 1, 2, (Batch(6, 0.1, 0.2, 1), Batch(3, 0.2, 0.5, 5), Batch(2, 0.3, 1.0, 20))))
    return run.is_valid and run.workloads == 22 and run.makespan > 1.0


def racks() -> bool:
    four = b6_topology.gangs(3, 4, Topology(required=b6_topology.RACK), CPU)
    return timed(world_of(b6_topology.rack_nodes(2), four, (b6_topology.RACK,)), 1, admitted=3)[1]


def blocked() -> bool:
    return timed(b7_blocked.world(40, 10), 1, admitted=10)[1]


def backfill() -> bool:
    _, _, faults = once(snapshot_of(b10_backfill.full(10, 50)))
    return not faults and replay(b10_backfill.load_at(0.9), "fairway").is_valid


SMALL: dict[str, Callable[[], bool]] = {
    "B2": gangs, "B3": singles, "B4": reclaim, "B5": quota, "B6": racks, "B7": blocked, "B10": backfill,
}
OF_TRACES = {"B8", "B9", "B13"}
OF_SERVERS = {"B1", "B11", "B12", "B16"}


@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_at_its_smallest_is_valid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_DAYS", "0.05")
    assert SMALL[name]()


def test_no_benchmark_is_left_out() -> None:
    assert set(modules()) == SMALL.keys() | OF_TRACES | {"B14", "B15"} | OF_SERVERS


def test_the_parts_of_the_box_run_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_PARTS", "jobs commands cycle explained")
    monkeypatch.setenv("BENCH_JOBS", "3")
    figures = list(b15_box.run(1))
    jobs, told = ["B15 one-second jobs", "B15 one-second jobs, the cluster"], ["B15 12 that wait explained"]
    assert [one.name for one in figures] == [*jobs, "B15 --help", "B15 submit", "B15 cycle with 3 waiting", *told]
    assert all(one.is_valid and one.value > 0 for one in figures)


@pytest.mark.soak
def test_memory_is_told_after_each_wave_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_PARTS", "memory")
    monkeypatch.setenv("BENCH_JOBS", "12")
    figures = list(b15_box.run(1))
    waves = [f"B15 memory after {count} jobs" for count in (2, 4, 6, 8, 10, 12)]
    assert [one.name for one in figures] == [*waves, "B15 each 1,000 more after 8", "B15 memory after 4 at once"]
    assert all(one.is_valid for one in figures)


def write(folder: Path, name: str, jobs: int = 12) -> None:
    """A trace of four nodes in one pool, on which more is asked for than there is."""
    sized = ((at, 1 + at % 3) for at in range(jobs))
    rows = [f"j{at},{60 * at},{600 + 97 * (at % 7)},{workers},8,u{at % 2},q,{8 * workers}\n" for at, workers in sized]
    (folder / name).mkdir()
    (folder / name / "pools.csv").write_text("queue,nodes\n*,4\n")
    with gzip.open(folder / name / "jobs.csv.gz", "wt") as file:
        file.writelines((HEAD, *rows))


def test_waits_are_compared_on_the_same_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "philly")
    monkeypatch.setenv("FAIRWAY_TRACES", str(tmp_path))
    monkeypatch.setenv("BENCH_DAYS", "1")
    figures = list(b9_jct.run())
    ours = ["s", "s", "a job", "CPU s"]
    assert [one.unit for one in figures] == ["s", "s", *ours, *ours, "s", "s", "s", "s"]
    assert all(one.is_valid for one in figures)
    assert all("philly (1 days)" in one.name for one in figures)


def test_of_a_policy_that_misses_its_aim_the_trade_off_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "philly")
    monkeypatch.setenv("FAIRWAY_TRACES", str(tmp_path))
    monkeypatch.setenv("BENCH_DAYS", "1")
    monkeypatch.setattr(b9_jct, "OURS", {"fairway": -1.0})
    told = [one.name for one in b9_jct.run() if ":" in one.name and "srtf" not in one.name]
    assert len(told) == 2 * len(b9_jct.CURVE["fairway"])
    assert all("philly (1 days) fairway, halving" in it for it in told)


def packed(folder: Path, name: str, lines: list[str]) -> None:
    with gzip.open(folder / "raw" / f"{name}.csv.gz", "wt") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_packing_is_told_by_list_and_on_the_mean_for_fgd_best_fit_and_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "openb_v2023" / "raw").mkdir(parents=True)
    (tmp_path / "openb_v2023" / "reference").mkdir()
    nodes = [f"n{at},8000,16384,4,T4" for at in range(2)]
    packed(tmp_path / "openb_v2023", "openb_node_list_gpu_node", ["sn,cpu_milli,memory_mib,gpu,model", *nodes])
    pods = [f"p{at},1000,1024,1,1000" for at in range(6)]
    packed(tmp_path / "openb_v2023", "openb_pod_list_small", ["name,cpu_milli,memory_mib,num_gpu,gpu_milli", *pods])
    (tmp_path / "openb_v2023" / "reference" / "fgd_expected_summary.csv").write_text(
        "workload,policy,unalloc_mean_100\nopenb_pod_list_small,FGD,5\nopenb_pod_list_small,BestFit,7\n"
    )
    monkeypatch.setenv("FAIRWAY_TRACES", str(tmp_path))
    figures = list(b8_packing.run(1))
    assert [one.name for one in figures] == [
        f"B8 {name}{of}" for name in ("FGD", "BestFit", "ours") for of in (" small", ", mean of 1 lists")
    ]
    assert all(set(one.samples) == {100.0} for one in figures)
    assert [len(one.samples) for one in figures] == [len(b8_packing.SEEDS), 1] * 3
    assert [one.aim for one in figures[1::2]] == [95, 92.7, 95.1]


@pytest.mark.parametrize("case", b13_forecast.CASES.values())
def test_forecasts_are_judged_by_the_first_start_that_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: b13_forecast.Case
) -> None:
    write(tmp_path, "philly")
    monkeypatch.setenv("FAIRWAY_TRACES", str(tmp_path))
    found = b13_forecast.replayed(read_trace(tmp_path / "philly"), case)
    assert found.is_valid and found.judged and all(one.wait > 0 and one.p50 <= one.p90 for one in found.judged)
    assert max(found.waits) >= max(one.wait for one in found.judged)


def test_it_is_told_of_which_forecasts_the_error_is() -> None:
    told = {"past waits": (300.0, 900.0), "QBETS": (600.0, 1200.0), "regression": (1e4, 1e4)}
    judged = [b13_forecast.Judged(600, 300, 900, is_rough=False, rivals=told),
              b13_forecast.Judged(7200, 7200, 900, is_rough=True, rivals=told)]  # fmt: skip
    part = b13_forecast.Replayed(judged, [0.0, 7800.0], is_valid=True)
    found = list(b13_forecast._figures("box", "", [part]))
    assert {one.name: one.value for one in found} == {
        "B13 box, 2 forecasts: pinball loss of p50": 75,
        "B13 box, 2 forecasts: pinball loss of p90": pytest.approx(2850),
        "B13 box, 2 forecasts: error of p50": 25,
        "B13 box, 2 forecasts: within p90": 50,
        "B13 box, 2 forecasts: off nine in ten": 40,
        "B13 box, 2 forecasts: p90 over the wait": 0.8125,
        "B13 box: mean wait": 3900,
        "B13 box, 1 not rough: error of p50": 50,
        "B13 box, 1 told 10m ahead: error of p50": 50,
        "B13 box, 1 told 6h ahead: error of p50": 0,
    }
    assert [(one.baseline_name, one.baseline) for one in found[:2]] == [
        ("QBETS", 1650), ("regression", pytest.approx(610))]  # fmt: skip
    assert [one.aim for one in found[:5]] == [1155, pytest.approx(427), None, None, 5]
    beside = list(b13_forecast._figures("box", ", under easy", [part]))
    assert [one.value for one in beside[2:]] == [25, 50, 40, 0.8125, 3900] and {one.aim for one in beside} == {None}


def test_rivals_tell_what_is_left_of_past_waits_that_were_longer() -> None:
    asked, seen = Workload("ns/w", "q", (), submitted=0.0), rivals.Rivals()
    for at in range(1, 6):
        seen.started(Workload(f"ns/{at}", "q", (), submitted=0.0), 100.0 * at)
    told = seen.tell(World(now=250.0, pending=(asked,)))["ns/w"]
    assert told["past waits"] == pytest.approx((150, 230)), "of 300, 400 and 500 seconds"
    assert told["QBETS"] == (250.0, 250.0), "few were seen: the longest"
    assert seen.tell(World(now=600.0, pending=(asked,)))["ns/w"]["past waits"] == (600, 600), "as long again"


def test_a_regression_learns_from_what_came_true() -> None:
    seen = rivals.Rivals()
    for at in range(30):
        one = Workload(f"ns/{at}", "q", (), submitted=1000.0 * at)
        seen.tell(World(now=1000.0 * at, pending=(one,)))
        seen.started(one, 1000.0 * at + 60)
    p50, p90 = seen.tell(World(now=1e5, pending=(Workload("ns/w", "q", (), submitted=1e5),)))["ns/w"]["regression"]
    assert 50 < p50 <= p90 < 70


@pytest.mark.parametrize("name", sorted(OF_TRACES))
def test_without_traces_a_benchmark_skips_with_a_word(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRWAY_TRACES", str(tmp_path))
    assert main([name, "--json", str(tmp_path / "out.json")]) == 0
    assert json.loads((tmp_path / "out.json").read_text()) == []
    assert name in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(OF_SERVERS))
def test_without_a_real_api_server_a_benchmark_skips_with_a_word(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    assert main([name]) == 0
    told = capsys.readouterr()
    assert told.out == "" and f"{name}: skipped, it needs KUBEBUILDER_ASSETS" in told.err


def test_queues_with_pools_of_their_own_are_replayed_apart(tmp_path: Path) -> None:
    write(tmp_path, "one")
    assert len(apart(read_trace(tmp_path / "one"))) == 1
    assert len(apart(generate("diurnal", 0))) == 1


def test_a_cut_load_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_DAYS", "0.5")
    load = cut(generate("diurnal", 0))
    assert load.name == "diurnal (0.5 days)" and max(job.submit for job in load.jobs) < 43_200


def test_growth_is_the_exponent() -> None:
    assert growth((1, 2, 4), (3.0, 12.0, 48.0)) == pytest.approx(2.0)


def test_a_figure_of_nothing_has_no_ratio() -> None:
    assert Figure("wait", (0.0,), "s", baseline=3.0).ratio is None
    assert Figure("wait", (2.0,), "s", baseline=3.0).ratio == 1.5


NONE_IS_WELL = "sent after|longest task|growth|slower"


async def test_the_page_is_measured_with_what_it_shows() -> None:
    figures = await b14_page.measured(b14_page.Size(nodes=150, workloads=600, queues=2, seconds=2), 2)
    assert len(figures) == (46 if shutil.which("chromium") else 32) and all(it.is_valid for it in figures)
    assert all(min(it.samples) > 0 for it in figures if not re.search(NONE_IS_WELL, it.name))


def test_the_page_on_benchmarks_names_each_of_them_and_each_variable() -> None:
    root = Path(__file__).parents[1]
    page = (root / "docs" / "reference" / "benchmarks.md").read_text()
    rows = [line.split("|")[1].strip(" `") for line in page.splitlines() if line.startswith(("| B", "| `BENCH_"))]
    files = (file.read_text() for file in (root / "bench").glob("*.py"))
    assert {*rows} == {*modules()} | {name for text in files for name in re.findall(r"BENCH_[A-Z]+", text)}
