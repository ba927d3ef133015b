"""The benchmarks that need a real API server, at their smallest."""

import pytest
from bench import b1_bind, b11_start, b12_latency, b16_writes
from bench.real import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def test_every_contestant_binds_all_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"BENCH_PODS": "20", "BENCH_NODES": "3", "BENCH_PARTS": "live"}.items():
        monkeypatch.setenv(name, value)
    figures = list(b1_bind.run(1))
    assert all(one.is_valid and one.value > 0 for one in figures)
    assert sum(one.unit == "pods/s" for one in figures) == 4
    assert all("20 pods on 3 nodes" in one.name for one in figures)


def test_the_requests_of_each_kind_of_workload_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"BENCH_JOBS": "2", "BENCH_GANG": "3", "BENCH_NODES": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(b16_writes, "QUIET_SECONDS", 1.0)
    assert [one.name for one in b16_writes.run()] == ["B16 a bare pod", "B16 a Job of 3", "B16 a Job of 1"]


def test_a_start_on_a_cluster_full_of_work_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"BENCH_NODES": "3", "BENCH_PODS": "6", "BENCH_JOBS": "3"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(b11_start, "IDLE_SECONDS", 0.5)
    monkeypatch.setattr(b11_start, "REST_SHARE", 10.0)
    figures = list(b11_start.run(1))
    assert [one.unit for one in figures] == ["s", "s", "MiB", "% of a core"] and all(one.is_valid for one in figures)


def test_latencies_are_those_of_the_same_arrivals(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"BENCH_NODES": "40", "BENCH_PODS": "10", "BENCH_SECONDS": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(b12_latency, "SHARES", (5.0,))  # enough of them in two seconds
    figures = list(b12_latency.run())
    counts = {one.name.split(", ")[1].split(":")[0] for one in figures}
    assert len(figures) == 4 and len(counts) == 1 and all(one.is_valid and one.value > 0 for one in figures)
