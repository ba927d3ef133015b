"""What a queue is charged for a workload that ended."""

import pytest

from fairway.api.ledger import Use, charge, evicted, owing
from fairway.engine import Decayed, Ledger, PodClass, PodSet, Pool, Queue, Workload, budgeted

ONE = Workload("ns/job-train-1", "q", (PodSet("main", 1, 1, PodClass()),), user="ann")
DAY = 86400.0


def use(seconds: float, runtime: float | None = None) -> Use:
    spent = {("h100", "cpu"): 4000 * seconds, ("h100", "nvidia.com/gpu"): 2000 * seconds}
    return Use(ONE, spent, (2 * seconds, ()), runtime)


def test_usage_is_what_was_held_times_how_long() -> None:
    ledger = charge(Queue("q"), use(100.0), now=1000.0, half_life=DAY)
    assert dict(ledger.usage) == {
        ("h100", "cpu"): Decayed(400_000.0, 1000.0),
        ("h100", "nvidia.com/gpu"): Decayed(200_000.0, 1000.0),
    }
    assert dict(ledger.users) == {"ann": Decayed(200.0, 1000.0)}


def test_usage_halves_every_half_life() -> None:
    first = charge(Queue("q"), use(100.0), now=0.0, half_life=DAY)
    second = charge(Queue("q", ledger=first), use(100.0), now=DAY, half_life=DAY)
    assert dict(second.usage)["h100", "cpu"].value == pytest.approx(600_000.0)


def test_a_budget_starts_anew_with_its_period() -> None:
    queue = Queue("q", budget=10_000, budget_period=100.0)
    first = charge(queue, use(10.0), now=1000.0, half_life=DAY)
    assert (first.budget_spent, first.budget_since) == (20.0, 1000.0)
    same = charge(Queue("q", budget_period=100.0, ledger=first), use(10.0), now=1050.0, half_life=DAY)
    assert (same.budget_spent, same.budget_since) == (40.0, 1000.0)
    later = charge(Queue("q", budget_period=100.0, ledger=same), use(10.0), now=1250.0, half_life=DAY)
    assert (later.budget_spent, later.budget_since) == (20.0, 1200.0)


def test_the_runtime_of_what_succeeded_is_learned() -> None:
    ledger = charge(Queue("q"), use(100.0, runtime=100.0), now=0.0, half_life=DAY)
    assert {group for group, _ in ledger.runtimes} == {
        ("ann", "job-train x1 @0"), ("ann", "job-train x1"), ("ann", "job-train"), ("ann", ""), ("", " x1"), ("", "")
    }
    assert charge(Queue("q"), use(100.0), now=0.0, half_life=DAY).runtimes == ()


def test_what_was_used_before_its_period_does_not_count_in_a_budget() -> None:
    used = Use(ONE, {("h100", "nvidia.com/gpu"): 200_000.0}, (200.0, ((2 * DAY, 150.0), (9 * DAY, 50.0))))
    first = charge(Queue("q", budget_period=7 * DAY, created=DAY), used, now=8 * DAY, half_life=DAY)
    assert (first.budget_spent, first.budget_since) == (200.0, 8 * DAY)
    later = Queue("q", budget_period=7 * DAY, ledger=Ledger(budget_spent=9.0, budget_since=DAY))
    assert charge(later, used, now=8 * DAY, half_life=DAY).budget_spent == 50.0
    assert owing(later, {"ns/a": later.counted(*used.budget, 9 * DAY)}, now=9 * DAY).spent(9 * DAY)[0] == 50.0


def test_a_budget_counts_what_was_used_in_its_queue_or_below() -> None:
    parents, days = {"q": "top", "b": "top", "top": "", "c": ""}, (("q", DAY, 30.0), ("c", DAY, 5.0), ("b", DAY, 4.0))
    assert budgeted(parents.__getitem__, "b", 50.0, days) == {
        "b": (15.0, ((DAY, 4.0),)), "q": (30.0, ((DAY, 30.0),)), "c": (5.0, ((DAY, 5.0),)),
        "top": (45.0, ((DAY, 30.0), (DAY, 4.0))),
    }  # fmt: skip


def test_a_queue_above_is_charged_usage_and_budget_only() -> None:
    ledger = charge(Queue("above"), use(100.0, runtime=100.0), now=0.0, half_life=DAY)
    assert ledger.budget_spent == 200.0 and ledger.usage
    assert ledger.users == () and ledger.runtimes == ()


def test_the_bucket_of_evicted_gpus_drains_with_time() -> None:
    pool = Pool("h100", eviction_gpus=64_000, eviction_period=3600.0)
    full = evicted(Ledger(), {pool: 32_000}, now=0.0)
    assert dict(evicted(full, {pool: 1000}, now=900.0).evicted) == {"h100": Decayed(17_000.0, 900.0)}
    assert evicted(Ledger(), {Pool("a"): 1000}, now=0.0).evicted == ()
