"""The forecast: what half and nine in ten futures say, what has none, and how rough the rest is."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from builders import NOW, job, node, queue, runs, world
from hypothesis import given, settings
from worlds import worlds

from fairway.engine import Policy, Snapshot, Workload, World, snapshot_of
from fairway.engine.model import Ledger, Sketch
from fairway.outlook import Forecast, forecast
from fairway.outlook.forecast import (
    MOST_BEHIND,
    MOST_CYCLES,
    MOST_SEEN,
    MOST_WAITING,
    QUICK,
    THOROUGH,
    WINDOW,
    Effort,
    Question,
)
from fairway.policies import PRESETS

HOUR, MINUTE = 3_600.0, 60.0


def foretold(told: World, *, policy: str = "fairway", recent: tuple[Workload, ...] = ()) -> dict[str, Forecast]:
    """By the name of the workload."""
    found = forecast(replace(told, recent=recent), PRESETS[policy], np.random.default_rng(7))
    return {key.removeprefix("ns/"): one for key, one in found.items()}


def learned(*seconds: float, name: str = "q", **fields):
    """A queue whose workloads ran for so long, ten times each."""
    sketch = Sketch(tuple((float(one), 10.0) for one in sorted(seconds)))
    return queue(name, ledger=Ledger(runtimes=((("", ""), sketch),)), **fields)


def test_what_fits_starts_now() -> None:
    assert foretold(world(node("n1", 1), queue("q"), job("a", gpus=1))) == {"a": Forecast(NOW, NOW)}


def test_it_starts_when_what_was_learned_of_the_running_one_is_over() -> None:
    running = runs(job("old", gpus=1), "n1", since=NOW - 10 * MINUTE)
    found = foretold(world(node("n1", 1), learned(HOUR), running, job("a", gpus=1)))
    assert found["a"] == Forecast(NOW + 50 * MINUTE, NOW + 50 * MINUTE)


def test_who_runs_without_a_pod_ends_only_after_it_has_grown() -> None:
    ahead = [runs(job("none", gpus=1, count=0)), runs(job("shrunk", gpus=1, least=0)), runs(job("old", gpus=1), "n1")]
    found = foretold(world(node("n1", 1), learned(10 * MINUTE), *ahead, job("a", gpus=1)))
    assert found["a"] == Forecast(NOW + 10 * MINUTE, NOW + 10 * MINUTE)


def test_a_runtime_that_is_known_is_not_drawn() -> None:
    running = runs(job("old", gpus=1), "n1", since=NOW - 10 * MINUTE)
    told = world(node("n1", 1), learned(HOUR), running, job("a", gpus=1), job("b", gpus=1, submitted=NOW))
    known = {"ns/old": 30 * MINUTE, "ns/a": 7 * MINUTE}
    found = forecast(told, PRESETS["fifo"], np.random.default_rng(7), Question(known))
    assert [found[f"ns/{name}"].p50 - NOW for name in "ab"] == [20 * MINUTE, 27 * MINUTE]


def test_only_runtimes_longer_than_it_has_run_already_count() -> None:
    running = runs(job("old", gpus=1), "n1", since=NOW - 30 * MINUTE)
    found = foretold(world(node("n1", 1), learned(10 * MINUTE, HOUR), running, job("a", gpus=1)))
    assert found["a"].p50 == NOW + 30 * MINUTE


def test_p90_is_later_where_runtimes_differ() -> None:
    running = runs(job("old", gpus=1), "n1", since=NOW)
    found = foretold(world(node("n1", 1), learned(*range(600, 36_000, 600)), running, job("a", gpus=1)))
    assert NOW + HOUR < found["a"].p50 < found["a"].p90 <= NOW + 10 * HOUR


def test_p90_is_stretched_by_what_its_queue_has_learned_and_never_comes_before_p50() -> None:
    running = runs(job("old", gpus=1), "n1", since=NOW)

    def of(stretch: float) -> Forecast:
        before = learned(*range(600, 36_000, 600))
        after = replace(before, ledger=replace(before.ledger, stretch=stretch))
        line = [job(name, gpus=1, submitted=NOW - at) for at, name in ((10, "held"), (5, "a"))]
        return foretold(world(node("n1", 1), after, running, *line))["a"]

    plain = of(1.0)
    assert of(2.0) == Forecast(plain.p50, NOW + 2 * (plain.p90 - NOW))
    assert of(0.01) == Forecast(plain.p50, plain.p50)


def test_no_start_of_who_has_a_hold_is_later_than_the_time_limits_before_it_allow() -> None:
    running = runs(job("old", gpus=1, time_limit=20 * MINUTE), "n1", since=NOW - 5 * MINUTE)
    found = foretold(world(node("n1", 1), learned(10 * HOUR), running, job("a", gpus=1)))
    assert found["a"].p90 == pytest.approx(NOW + 15 * MINUTE, abs=31)


def test_a_rough_start_is_not_told_later_than_the_hold_that_is_told_beside_it() -> None:
    running = runs(job("old", gpus=1, time_limit=20 * MINUTE), "n1", since=NOW - 5 * MINUTE)
    told = world(node("n1", 1), learned(10 * HOUR), running, job("a", gpus=1), job("b", gpus=1, submitted=NOW + 1))
    found = forecast(told, PRESETS["fairway"], np.random.default_rng(7), Question(effort=Effort(1, 1)))
    assert found["ns/a"].is_rough and found["ns/b"].is_rough
    assert found["ns/a"].p50 == found["ns/a"].p90 == pytest.approx(NOW + 15 * MINUTE, abs=31)
    assert found["ns/b"].p50 > NOW + HOUR


def test_those_before_it_run_first() -> None:
    running = runs(job("old", gpus=1), "n1", since=NOW)
    line = [job(f"j{n}", gpus=1, submitted=NOW + n - 10) for n in range(3)]
    found = foretold(world(node("n1", 1), learned(HOUR), running, *line))
    assert [round(found[f"j{n}"].p50 - NOW) for n in range(3)] == [3600, 7200, 10800]


def test_where_nothing_is_known_an_hour_is_the_mean() -> None:
    running = runs(job("old", gpus=1), "n1", since=NOW)
    found = foretold(world(node("n1", 1), queue("q"), running, job("a", gpus=1)))
    assert NOW + 10 * MINUTE < found["a"].p50 < NOW + HOUR < found["a"].p90 < NOW + 6 * HOUR


def test_who_has_run_longer_than_anything_known_goes_on_about_as_long_again() -> None:
    running = runs(job("old", gpus=1), "n1", since=NOW - 20 * HOUR)
    for known in (queue("q"), learned(HOUR)):
        found = foretold(world(node("n1", 1), known, running, job("a", gpus=1)))
        assert NOW + 5 * HOUR < found["a"].p50 < NOW + 40 * HOUR


def test_what_can_never_start_has_no_forecast() -> None:
    found = foretold(world(node("n1", 1), queue("q"), job("huge", gpus=2), job("lost", queue="nowhere", gpus=1)))
    assert found == {}


@pytest.mark.parametrize("never", [{"count": 2}, {"queue": "own", "count": 2}, {"preemptible": False}])
def test_who_alone_is_more_than_quota_allows_has_none_whoever_else_comes(never: dict) -> None:
    queues = queue("top", 0, 1), queue("q", parent="top"), queue("own", 0, 1)
    busy = runs(job("old", gpus=1), "n1", since=NOW)
    come = tuple(job(f"{name}x", gpus=1, submitted=NOW - 3500 + 400 * n) for n, name in enumerate("abcdefgh"))
    told = world(node("n1", 4), *queues, busy, job("never", gpus=1, **never), job("some-day", gpus=1))
    assert foretold(told, recent=come).keys() == {"some-day"}


def test_who_is_leaving_makes_room_after_its_grace() -> None:
    leaving = runs(job("old", gpus=1, grace=40.0), "n1", since=NOW, is_leaving=True, leaving_since=NOW - 10)
    found = foretold(world(node("n1", 1), learned(HOUR), leaving, job("a", gpus=1, priority=1)))
    assert found["a"].p50 == NOW + 30


def test_the_same_world_and_chance_give_the_same_forecast() -> None:
    running = runs(job("old", gpus=1), "n1", since=NOW)
    told = world(node("n1", 1), queue("q"), running, *(job(f"j{n}", gpus=1) for n in range(4)))
    assert foretold(told) == foretold(told)


def test_short_work_that_keeps_coming_delays_a_longer_one_in_a_queue_that_prefers_it() -> None:
    old = runs(job("old", gpus=1, time_limit=10 * MINUTE), "n1", since=NOW)
    told = world(node("n1", 1), queue("q", order="ShortestFirst"), old, job("long", gpus=1, time_limit=20 * HOUR))
    short = [job(f"s{n}", gpus=1, time_limit=10 * MINUTE, submitted=NOW - HOUR + 300 * (n + 1)) for n in range(11)]
    alone, among = foretold(told), foretold(told, recent=tuple(short))
    assert among["long"].p50 > alone["long"].p50


def test_where_the_last_hour_tells_too_little_the_last_day_does() -> None:
    old = runs(job("old", gpus=1, time_limit=10 * HOUR), "n1", since=NOW)
    told = world(node("n1", 1), queue("q", order="ShortestFirst"), old, job("long", gpus=1, time_limit=20 * HOUR))
    day = tuple(job(f"s{n}", gpus=1, time_limit=HOUR / 2, submitted=NOW - WINDOW + HOUR * (n + 1)) for n in range(23))
    before = tuple(replace(one, submitted=one.submitted - WINDOW) for one in day)
    assert foretold(told, recent=day)["long"].p50 > foretold(told, recent=before)["long"].p50


def test_one_burst_of_the_past_does_not_come_again() -> None:
    running = runs(job("old", gpus=1), "n1", since=NOW)
    told = world(node("n1", 1), learned(HOUR), running, job("a", gpus=1))
    burst = tuple(job(f"b{n}", gpus=1, priority=9, submitted=NOW - 600) for n in range(50))
    assert foretold(told, recent=burst) == foretold(told)


def test_beyond_the_first_thousand_it_is_rough_and_in_proportion_to_the_work_ahead() -> None:
    many = [job(f"j{n:05}", gpus=1, submitted=NOW - 9_000 + n) for n in range(3 * MOST_WAITING)]
    found = foretold(world(node("n1", 250, pods=250), learned(HOUR), *many))
    rough = [name for name, one in found.items() if one.is_rough]
    assert (len(rough), len(found)) == (2 * MOST_WAITING, 3 * MOST_WAITING)
    last = found[f"j{3 * MOST_WAITING - 1:05}"]
    assert last.p50 - NOW == pytest.approx(11 * HOUR, rel=0.2)


@pytest.mark.parametrize("policy", sorted(PRESETS))
def test_every_policy_can_be_run_forward(policy: str) -> None:
    running = runs(job("old", gpus=1, expected_runtime=HOUR), "n1", since=NOW)
    line = (job(f"j{n}", gpus=1, expected_runtime=MINUTE * (n + 1)) for n in range(3))
    assert all(
        one.p50 < inf for one in foretold(world(node("n1", 1), learned(HOUR), running, *line), policy=policy).values()
    )


def test_the_chance_of_a_workload_that_waits_for_another_is_found_too() -> None:
    running = runs(job("old", gpus=1), "n1", since=NOW)
    second = replace(job("b", gpus=1), after=("ns/a",))
    found = foretold(world(node("n1", 1), learned(HOUR), running, job("a", gpus=1), second))
    assert found["b"].p50 == NOW + 2 * HOUR


def test_asked_for_one_it_tells_the_same_of_it_and_ends_when_it_has_started() -> None:
    running = runs(job("old", gpus=1), "n1", since=NOW)
    told = world(
        node("n1", 1), learned(HOUR), running, *(job(f"j{n}", gpus=1, submitted=NOW + n - 9) for n in range(5))
    )
    one = forecast(told, PRESETS["fairway"], np.random.default_rng(7), Question(only="ns/j1"))
    assert one["ns/j1"] == foretold(told)["j1"] and "ns/j4" not in {key for key, it in one.items() if not it.is_rough}


# How much work it is


def decided_on(told: World, effort: Effort) -> list[Snapshot]:
    """What a forecast decides on, one after the other."""
    seen: list[Snapshot] = []

    def view(snapshot: Snapshot) -> Snapshot:
        seen.append(snapshot)
        return snapshot

    forecast(told, Policy(view=view), np.random.default_rng(7), Question(effort=effort))
    return seen


def arrivals(*names: str, gpus: float = 0) -> tuple[Workload, ...]:
    """Workloads of the last hour with names of their own: they are expected to come again."""
    return tuple(job(f"{name}x", gpus=gpus, submitted=NOW - 3_500 + 60 * at) for at, name in enumerate(names))


CORDONED = node("n1", 1, is_unschedulable=True)
STANDING_STILL = {
    "no node": world(queue("q"), job("a")),
    "the only node is cordoned": world(CORDONED, queue("q"), job("a")),
    "a pod without requests on a cordoned node": world(CORDONED, queue("q"), job("a", cpu=0)),
    "the node it needs is cordoned": world(CORDONED, node("n2"), queue("q"), job("a", gpus=1)),
    "all are suspended": world(node("n1", 1), queue("q"), *(job(name, is_active=False) for name in "ab")),
    "the queue is stopped": world(node("n1", 1), queue("q", stop="StopAdmitting"), job("a")),
}


@pytest.mark.parametrize("told", STANDING_STILL.values(), ids=STANDING_STILL)
def test_where_nothing_can_start_or_end_there_is_no_forecast_after_a_few_decisions(told: World) -> None:
    """Arrivals alone once kept such a run going for as long as it may be."""
    told = replace(told, recent=arrivals(*"abcdefghij", gpus=1))
    assert foretold(told, recent=told.recent) == {}
    assert len(decided_on(told, THOROUGH)) <= 1 + 2 * THOROUGH.runs


def test_more_arrivals_than_a_cluster_can_run_stop_while_many_wait() -> None:
    """Decisions would grow dearer with each."""
    bursts = [replace(one, key=f"{one.key}-{at}") for one in arrivals(*"abcdef", gpus=1) for at in range(200)]
    told = world(node("n1", 1), learned(HOUR), runs(job("old", gpus=1), "n1", since=NOW), job("a", gpus=1, priority=-9))
    waiting = [len(one.pending) for one in decided_on(replace(told, recent=tuple(bursts)), Effort(2, 100_000))]
    assert MOST_BEHIND < max(waiting) <= MOST_BEHIND + 200 + MOST_SEEN


CHANGES = {
    "as it is": lambda told: told,
    "no usable node": lambda told: replace(
        told, nodes=tuple(replace(one, is_unschedulable=True) for one in told.nodes)),
    "no requests": lambda told: replace(
        told, pending=tuple(job(f"w{at}", one.queue) for at, one in enumerate(told.pending))),
    "all suspended": lambda told: replace(told, pending=tuple(replace(one, is_active=False) for one in told.pending)),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_decisions_of_a_forecast_are_bounded_in_every_world(change) -> None:
    @settings(max_examples=60, deadline=None, database=None, derandomize=True)
    @given(worlds())
    def holds(told: World) -> None:
        told = replace(change(told), recent=arrivals(*"abcdefgh"))
        effort = Effort(2, 20_000)
        assert len(decided_on(told, effort)) <= 1 + effort.runs * effort.cycles(snapshot_of(told))

    holds()
    assert THOROUGH.runs * MOST_CYCLES == 8_000


def test_a_question_is_answered_by_fewer_decisions_the_larger_the_cluster() -> None:
    small, large = (
        world(*(node(f"n{at}", 8) for at in range(nodes)), queue("q"),
              *(runs(job(f"r{at}", gpus=8), f"n{at}", since=NOW) for at in range(nodes)), job("a", gpus=8))
        for nodes in (1, 2_000)
    )  # fmt: skip
    assert QUICK.cycles(snapshot_of(small)) > 10 and QUICK.cycles(snapshot_of(large)) <= 1
    found = forecast(large, Policy(), np.random.default_rng(7), Question(only="ns/a", effort=QUICK))
    assert found["ns/a"].is_rough and NOW < found["ns/a"].p50 < inf


def test_behind_what_never_ends_there_is_no_forecast_however_long_the_chain() -> None:
    chain = [job("lost", after=("ns/gone",)), job("next", after=("ns/lost",)), job("a", after=("ns/b",)),
             job("b", after=("ns/a",)), job("last", after=("ns/r",)), job("free", after=("ns/last",))]  # fmt: skip
    found = foretold(world(node("n1", 1), learned(HOUR), runs(job("r", gpus=1), "n1", since=NOW), *chain))
    assert found.keys() == {"last", "free"}


def test_after_what_may_run_for_any_time_there_is_no_forecast_however_long_the_chain() -> None:
    """Its end was once drawn from how long it had run: within seconds of its start."""
    chain = [job("b", after=("ns/a",)), job("c", after=("ns/b",), submitted=NOW), job("free")]
    for known in (queue("q"), learned(1.0)):
        found = foretold(world(node("n1"), known, runs(job("a"), "n1", since=NOW - 3), *chain))
        assert found == {"free": Forecast(NOW, NOW)}
    for ends in ({"time_limit": HOUR}, {"expected_runtime": HOUR}):
        found = foretold(world(node("n1"), learned(1.0), runs(job("a", **ends), "n1", since=NOW - 3), *chain))
        assert found.keys() == {"b", "c", "free"} and found["b"].p50 > NOW + MINUTE


def test_a_gated_workload_has_no_forecast_and_hides_none_of_what_waits_behind_it() -> None:
    ahead = job("gated", gpus=1, gates=("other.dev/gate",), priority=1)
    told = world(node("n1", 1), queue("q"), runs(job("old", gpus=1), "n1", since=NOW), ahead, job("a", gpus=1))
    assert foretold(told).keys() == {"a"}


def test_what_has_outlived_all_that_is_known_is_rough_and_goes_by_its_own_limit() -> None:
    running = runs(job("long", gpus=1, time_limit=100 * HOUR), "n1", since=NOW - HOUR)
    found = foretold(world(node("n1", 1), learned(MINUTE), running, job("a", gpus=1)))
    assert found["a"].is_rough and found["a"].p50 > NOW + 10 * HOUR


def test_what_a_new_name_expects_counts_for_more_than_what_others_of_its_queue_did() -> None:
    expects = runs(job("long", gpus=1, expected_runtime=100 * HOUR), "n1", since=NOW)
    assert foretold(world(node("n1", 1), learned(MINUTE), expects, job("a", gpus=1)))["a"].p50 > NOW + 10 * HOUR
    limited = runs(job("long", gpus=1, time_limit=100 * HOUR), "n1", since=NOW)
    assert foretold(world(node("n1", 1), learned(MINUTE), limited, job("a", gpus=1)))["a"].is_rough


def spent(hours: float):
    """A queue whose workloads run for two hours, with a budget of four GPU-hours in 30 days, of which one day is over
    and so many hours are spent."""
    ledger = replace(learned(2 * HOUR).ledger, budget_spent=hours * HOUR, budget_since=NOW - 24 * HOUR)
    return queue("q", budget=4 * int(HOUR), budget_period=30 * 24 * HOUR, ledger=ledger)


NEXT_PERIOD = NOW + 29 * 24 * HOUR


def test_what_others_will_have_spent_when_they_end_counts_in_a_budget() -> None:
    others = runs(job("r", gpus=1), "n1", since=NOW - 1.9 * HOUR)
    found = foretold(world(node("n1", 2), spent(1), others, job("a", gpus=1, time_limit=1.5 * HOUR)))
    assert found["a"].p50 == NEXT_PERIOD


@pytest.mark.parametrize("effort", [Effort(2, 1), Effort(2, 3_000), THOROUGH])
def test_nothing_that_a_spent_budget_keeps_starts_before_its_next_period(effort: Effort) -> None:
    others = runs(job("r", "o", gpus=1, time_limit=HOUR), "n1", since=NOW)
    short = tuple(job(f"s{n}", "o", gpus=1, time_limit=HOUR / 6, submitted=NOW - 300 * n) for n in range(1, 11))
    waits = job("a", gpus=1, time_limit=HOUR), job("never", gpus=8, time_limit=HOUR)
    told = world(node("n1", 8), spent(3.5), queue("o"), others, *waits, recent=short)
    found = forecast(told, PRESETS["fairway"], np.random.default_rng(7), Question(effort=effort))
    assert found.keys() == {"ns/a"} and NEXT_PERIOD <= found["ns/a"].p50 < NEXT_PERIOD + HOUR


@pytest.mark.parametrize("stretch", [1.4, 2.0])
def test_a_spent_budget_lets_what_waits_start_as_its_periods_begin_and_at_no_time_between(stretch: float) -> None:
    ledger = replace(learned(HOUR).ledger, budget_spent=0.5 * HOUR, budget_since=NOW - 6 * HOUR, stretch=stretch)
    daily = queue("q", budget=int(HOUR), budget_period=24 * HOUR, ledger=ledger)
    waits = tuple(job(f"w{n}", gpus=1, time_limit=HOUR, submitted=NOW - 60 + n) for n in range(4))
    found = foretold(world(node("n1", 8), daily, *waits))
    begins = [NOW + (18 + 24 * n) * HOUR for n in range(4)]
    assert [(found[f"w{n}"].p50, found[f"w{n}"].p90) for n in range(4)] == [(at, at) for at in begins]
    others = runs(job("r", gpus=1, time_limit=HOUR), "n1", since=NOW)  # what it will have used forbids it, too
    assert foretold(world(node("n1", 8), daily, others, waits[0]))["w0"] == Forecast(begins[0], begins[0])
