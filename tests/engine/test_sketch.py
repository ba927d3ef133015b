"""Runtimes seen: quantiles within five per cent, merging without loss, back-off to wider groups."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairway.engine.model import Ledger, PodClass, PodSet, Queue, Sketch, Workload
from fairway.engine.sketch import Foreseen, Lengths, add, groups, known_group, learn, merge, stem

seconds = st.floats(1.0, 3e7)


@given(st.lists(seconds, min_size=1, max_size=60), st.sampled_from([0.1, 0.5, 0.9, 1.0]))
def test_a_quantile_is_within_five_per_cent(runtimes: list[float], part: float) -> None:
    sketch = Sketch()
    for runtime in runtimes:
        sketch = add(sketch, runtime)
    exact = float(np.quantile(runtimes, part, method="inverted_cdf"))
    found = Lengths(sketch).quantile(part)
    assert found is not None and abs(found / exact - 1) <= 0.051


@given(st.lists(seconds, max_size=30), st.lists(seconds, max_size=30))
def test_merging_is_the_same_as_adding_all(first: list[float], second: list[float]) -> None:
    def sketch_of(values: list[float]) -> Sketch:
        return merge([add(Sketch(), value) for value in values])

    assert merge([sketch_of(first), sketch_of(second)]) == sketch_of(first + second)


def test_what_has_already_run_counts_only_the_longer_ones() -> None:
    sketch = merge([add(Sketch(), value) for value in (10, 10, 10, 1000)])
    lengths = Lengths(sketch)
    assert lengths.quantile(0.5) < 11
    assert lengths.quantile(0.5, beyond=60) > 900
    assert lengths.quantile(0.5, beyond=5000) is None


def test_few_runs_of_a_name_are_answered_by_the_users_and_then_by_the_queues() -> None:
    def run(user: str, name: str) -> Workload:
        return Workload(f"ns/{name}", "q", (), user=user)

    known: dict[tuple[str, str], Sketch] = {}
    for index in range(6):
        known = learn(known, run("ann", f"job-short-{index}"), 10)
    known = learn(known, run("bob", "job-long-1"), 5000)
    assert known_group(known, groups(run("ann", "job-short-77"))) == ("ann", "job-short x1")
    assert known_group(known, groups(run("ann", "job-other"))) == ("ann", "")
    assert known_group(known, groups(run("bob", "job-long-2"))) == ("", " x1")


def test_a_year_takes_no_more_bins_than_a_status_can_hold() -> None:
    sketch = merge([add(Sketch(), float(value)) for value in np.geomspace(1, 3.15e7, 20_000)])
    assert len(sketch.points) <= 185


def test_a_name_is_known_again_under_another_number() -> None:
    assert stem("job-train17") == stem("job-train-17-3") == stem("job-train-x7k2p") == stem("job-train") == "job-train"


def test_those_that_run_still_count_as_longer_than_they_are_old() -> None:
    ended = merge([add(Sketch(), value) for value in (10, 20, 30, 40)])
    lengths = Lengths(ended, ages=[25, 1000, 1000, 1000])
    assert lengths.quantile(0.2) == Lengths(ended).quantile(0.5)  # the second of eight, the first of four after it
    assert lengths.quantile(0.9) > 40 and lengths.quantile(0.9, beyond=1000) > 2000


def test_without_those_that_run_still_nothing_is_longer_than_what_was_seen() -> None:
    lengths = Lengths(merge([add(Sketch(), value) for value in (10, 20, 30)]))
    assert lengths.quantile(1.0) == lengths.seconds[-1]


def test_a_name_is_told_apart_by_how_many_gpus_are_asked_for() -> None:
    def run(gpus: int, number: int) -> Workload:
        pod = PodClass(requests=(("nvidia.com/gpu", gpus * 1000),))
        return Workload(f"ns/job-train-{number}", "q", (PodSet("main", 1, 1, pod),), user="ann")

    known: dict[tuple[str, str], Sketch] = {}
    for number in range(6):
        known = learn(learn(known, run(1, number), 10), run(6, number), 5000)
    lengths = Foreseen({"q": Queue("q", ledger=Ledger(runtimes=tuple(known.items())))}, (), 0.0)
    assert lengths.of(run(1, 9)).quantile(0.9) < 11 and lengths.of(run(8, 9)).quantile(0.1) > 4500
    assert known_group(known, groups(run(2, 9))) == ("ann", "job-train")


def test_a_name_of_digits_alone_without_a_user_is_of_its_queue() -> None:
    assert groups(Workload("ns/17", "q", ())) == (("", " x1"), ("", ""))
