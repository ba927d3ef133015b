"""Runtimes seen: quantiles within five per cent, back-off to wider groups."""

import random
from functools import reduce

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.engine.model import Admission, Ledger, PodClass, PodSet, Queue, Running, Sketch, Workload, World
from fairway.engine.runtimes import (
    BATCH,
    CHANCE,
    MOST_BATCHES,
    Foreseen,
    Learned,
    Lengths,
    Runtimes,
    add,
    explained,
    groups,
    job_family,
    known_group,
    learn,
    moments,
)
from fairway.engine.state import snapshot_of

seconds = st.floats(1.0, 3e7)


@settings(deadline=None)
@given(st.lists(seconds, min_size=1, max_size=60), st.sampled_from([0.1, 0.5, 0.9, 1.0]))
def test_a_quantile_is_within_five_per_cent(runtimes: list[float], part: float) -> None:
    sketch = Sketch()
    for runtime in runtimes:
        sketch = add(sketch, runtime)
    exact = float(np.quantile(runtimes, part, method="inverted_cdf"))
    found = Lengths(sketch).quantile(part)
    assert found is not None and abs(found / exact - 1) <= 0.051


def test_what_has_already_run_counts_only_the_longer_ones() -> None:
    lengths = Lengths(reduce(add, (10, 10, 10, 1000), Sketch()))
    assert lengths.quantile(0.5) < 11
    assert lengths.quantile(0.5, beyond=60) > 900
    assert lengths.quantile(0.5, beyond=5000) is None


def run(name: str, user: str = "ann", *, gpus: int = 1, hour: int = 0) -> Workload:
    pod = PodClass(requests=(("nvidia.com/gpu", gpus * 1000),))
    return Workload(f"ns/{name}", "q", (PodSet("main", 1, 1, pod),), user=user, submitted=hour * 3600.0)


def world(known: Runtimes, running: dict[Workload, float] | None = None) -> World:
    """A queue that knows so much; of those that run, for how many seconds they have."""
    listed = tuple(
        Running(one, Admission("default", ()), admitted_at=1e6 - ran) for one, ran in (running or {}).items()
    )
    return World(now=1e6, queues=(Queue("q", ledger=Ledger(runtimes=tuple(known.items()))),), running=listed)


def test_few_runs_of_a_name_are_answered_by_the_users_and_then_by_the_queues() -> None:
    known: Runtimes = {}
    for index in range(6):
        known = learn(known, run(f"job-short-{index}", hour=index), 10)
    known = learn(known, run("job-long-1", "bob"), 5000)
    assert known_group(known, groups(run("job-short-77"))) == ("ann", "job-short x1")
    assert known_group(known, groups(run("job-other"))) == ("ann", "")
    assert known_group(known, groups(run("job-long-2", "bob"))) == ("", " x1")


def learned(known: Runtimes, asked: Workload, part: float, running: dict[Workload, float] | None = None) -> float:
    found = Learned(snapshot_of(world(known, running))).quantile(asked, part)
    assert found is not None
    return found


def test_what_came_in_the_same_hour_tells_more_than_all_that_was_seen() -> None:
    known: Runtimes = {}
    for index in range(20):
        known = learn(known, run(f"job-{index}", hour=index), 10)
    for index in range(5):
        assert learned(known, run("job-99", hour=30), 0.5) < 11, f"{index} are too few"
        known = learn(known, run(f"job-{50 + index}", hour=30), 5000)
    assert learned(known, run("job-99", hour=30), 0.5) > 4500
    assert learned(known, run("job-99", hour=31), 0.5) < 11


def test_what_runs_of_the_same_hour_tells_how_long_the_others_run_at_least() -> None:
    known: Runtimes = {}
    for index, seconds in enumerate((10, 10, 10, 10, 10, 10, 5000, 5000)):
        known = learn(known, run(f"job-{index}", hour=index), seconds)
    running = {run(f"job-{50 + index}", hour=30): ran for index, ran in enumerate((1.0, 600.0, 700.0))}
    assert learned(known, run("job-99", hour=30), 0.5, running) > 4500
    assert learned(known, run("job-99", hour=31), 0.5, running) < 11


def test_what_is_long_past_counts_less() -> None:
    known: Runtimes = {}
    for hour in range(200):
        known = learn(known, run("job-1", hour=hour), 5000 if hour < 100 else 10)
    lengths = Lengths(known["ann", "job x1"])
    assert lengths.quantile(0.8) == Lengths(add(Sketch(), 10)).quantile(0.8)


def test_the_hours_longest_past_are_forgotten_first() -> None:
    known: Runtimes = {}
    for hour in range(MOST_BATCHES + 20):
        known = learn(known, run("job-1", hour=hour), 10)
    kept = sorted(int(name.rpartition(BATCH)[2]) for _, name in known if BATCH in name)
    assert kept == list(range(20, MOST_BATCHES + 20))
    assert ("ann", "job x1") in known


def test_a_year_takes_no_more_bins_than_a_status_can_hold() -> None:
    sketch = reduce(add, np.geomspace(1, 3.15e7, 20_000).tolist(), Sketch())
    assert len(sketch.points) <= 185


def test_a_name_is_known_again_under_another_number() -> None:
    names = "job-train17", "job-train-17-3", "job-train-x7k2p", "job-train"
    assert {job_family(name) for name in names} == {"job-train"}


def test_those_that_run_still_count_as_longer_than_they_are_old() -> None:
    ended = reduce(add, (10, 20, 30, 40), Sketch())
    lengths = Lengths(ended, ages=[25, 1000, 1000, 1000])
    assert lengths.quantile(0.2) == Lengths(ended).quantile(0.5)  # the second of eight, the first of four after it
    assert lengths.quantile(0.9) > 40 and lengths.quantile(0.9, beyond=1000) > 2000


def test_without_those_that_run_still_nothing_is_longer_than_what_was_seen() -> None:
    lengths = Lengths(reduce(add, (10, 20, 30), Sketch()))
    assert lengths.quantile(1.0) == lengths.seconds[-1]


def test_a_name_is_told_apart_by_how_many_gpus_are_asked_for() -> None:
    known: Runtimes = {}
    for number in range(6):
        known = learn(known, run(f"job-train-{number}", hour=number), 10)
        known = learn(known, run(f"job-train-{number}", gpus=6, hour=number), 5000)
    lengths = Foreseen(snapshot_of(world(known)))
    short = lengths.quantile(run("job-train-9", hour=9), 0.9)
    long = lengths.quantile(run("job-train-9", gpus=8, hour=9), 0.1)
    assert short is not None and short < 11 and long is not None and long > 4500
    assert known_group(known, groups(run("job-train-9", gpus=2, hour=9))) == ("ann", "job-train")


@given(st.lists(st.lists(seconds, min_size=2, max_size=30), min_size=2, max_size=6))
def test_what_kinds_explain_of_runtimes_is_their_adjusted_share_beyond_chance(kinds: list[list[float]]) -> None:
    sketches = [reduce(add, kind, Sketch()) for kind in kinds]
    logs = [np.repeat(np.log(points[:, 0]), points[:, 1].astype(int)) for points in
            (np.array(one.points) for one in sketches)]  # fmt: skip
    every = np.concatenate(logs)
    if every.var() < 1e-12:
        assert explained(list(map(moments, sketches))) == 0.0
        return
    within = sum(one.var() * len(one) for one in logs) / (len(every) - len(logs))
    free, more = len(every) - len(logs), len(logs) - 1
    by_chance = CHANCE * np.sqrt(2 * more / (free * (len(every) + 1)))
    assert abs(explained(list(map(moments, sketches))) - max(0.0, 1 - within / every.var(ddof=1) - by_chance)) < 1e-6


def test_kinds_that_mean_nothing_explain_nothing() -> None:
    """Of forty kinds with the same runtimes, where the adjusted R² alone is above zero in half of all draws."""
    chance = random.Random(7)
    alike = [[reduce(add, [chance.lognormvariate(6.0, 1.5) for _ in range(20)], Sketch()) for _ in range(40)]
             for _ in range(20)]  # fmt: skip
    parts = [explained(list(map(moments, sketches))) for sketches in alike]
    assert sum(part > 0 for part in parts) <= 2 and max(parts) < 0.03
