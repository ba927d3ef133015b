"""The benchmarks that need a real API server, at their smallest."""

import pytest
from bench import b1_bind, b16_writes
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
