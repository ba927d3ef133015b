"""What a schedule was worth, on schedules small enough to reckon by hand."""

from math import isnan

import numpy as np
import pytest

from fairway.sim.load import Job
from fairway.sim.measure import Outcome, Run, Series, jain, measure, together, waits, within


def outcome(name: str, *times: float, queue: str = "q", gpus: int = 1000) -> Outcome:
    submit, start, end, duration = times
    return Outcome(Job(name, submit, duration, queue=queue, gpus=gpus), end, (Run(start, end, ("n",)),))


FLAT = Series(np.array([0.0, 50.0, 100.0]), np.full(3, 4.0), np.array([4.0, 2.0, 0.0]), np.array([0.0, 1.0, 0.0]))


def test_wait_is_time_in_the_system_less_the_time_needed() -> None:
    found = measure([outcome("a", 0, 10, 30, 20), outcome("b", 0, 0, 40, 40)], FLAT)
    assert (found.mean_wait, found.max_wait, found.mean_jct) == (5.0, 10.0, 35.0)


def test_a_short_job_does_not_blow_up_the_slowdown() -> None:
    assert measure([outcome("a", 0, 9, 10, 1)], FLAT).mean_bounded_slowdown == 1.0
    assert measure([outcome("a", 0, 99, 100, 1)], FLAT).mean_bounded_slowdown == 10.0


def test_utilisation_and_fragmentation_are_weighted_by_time() -> None:
    found = measure([outcome("a", 0, 0, 100, 100)], FLAT)
    assert found.utilisation == pytest.approx((4 * 50 + 2 * 50) / (4 * 100))
    assert found.fragmentation == pytest.approx((1 * 50) / (2 * 50))


def test_a_job_that_has_not_ended_is_only_counted() -> None:
    found = measure([outcome("a", 0, 0, 10, 10), Outcome(Job("b", 0, 10))], FLAT)
    assert (found.jobs, found.unfinished, found.mean_wait) == (2, 1, 0.0)


def test_a_job_that_never_runs_is_counted_apart() -> None:
    found = measure([outcome("a", 0, 5, 15, 10), Outcome(Job("b", 0, 10), stuck="NeverFits")], FLAT)
    assert (found.jobs, found.unfinished, found.never_run, found.mean_wait) == (2, 0, 1, 5.0)


def test_schedules_of_parts_are_added_from_the_first_moment_on() -> None:
    def series(queue: str, *rows: list[float]) -> Series:
        times, capacity, held, stranded = (np.array(row, np.float64) for row in rows)
        return Series(times, capacity, held, stranded, (queue,), held.reshape(1, -1))

    one = series("a", [0, 10], [8, 8], [4, 0], [0, 0])
    two = series("b", [5, 20], [2, 2], [2, 1], [0, 1])
    found = together([one, two])
    assert found.times.tolist() == [0, 5, 10, 20] and found.capacity.tolist() == [10] * 4
    assert found.held.tolist() == [4, 6, 2, 1] and found.stranded.tolist() == [0, 0, 0, 1]
    assert found.queues == ("a", "b") and found.by_queue.tolist() == [[4, 4, 0, 0], [0, 2, 2, 1]]


def test_nothing_at_all_is_measured_as_nothing() -> None:
    found = measure([], Series(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0)))
    assert (found.jobs, found.utilisation, found.makespan) == (0, 0.0, 0.0)
    assert isnan(found.mean_wait) and isnan(found.max_wait)


def test_fairness_is_one_when_alike_and_falls_when_one_queue_waits() -> None:
    alike = [outcome("a", 0, 10, 20, 10, queue="a"), outcome("b", 0, 10, 20, 10, queue="b")]
    unlike = [outcome("a", 0, 0, 10, 10, queue="a"), outcome("b", 0, 990, 1000, 10, queue="b")]
    assert measure(alike, FLAT).queue_fairness == pytest.approx(1.0)
    assert measure(unlike, FLAT).queue_fairness < 0.6
    assert jain(np.array([1.0, 0.0, 0.0, 0.0])) == 0.25


def test_waits_are_sorted() -> None:
    assert waits([outcome("a", 0, 30, 40, 10), outcome("b", 0, 5, 15, 10)]).tolist() == [5.0, 30.0]


def test_only_the_time_between_two_moments_counts() -> None:
    series = Series(*(np.array(one, np.float64) for one in ([0, 10, 20], [8, 8, 8], [0, 8, 0], [0, 0, 0])))
    found = within(series, 10, 15)
    assert (found.times.tolist(), found.held.tolist()) == ([10, 15], [8, 8])
    assert measure([], found).utilisation == 1.0 and measure([], series).utilisation == 0.5
