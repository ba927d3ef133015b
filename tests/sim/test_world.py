"""A load brought to life: what is shown to the scheduler does not decide who starts."""

from dataclasses import replace
from math import isnan

import pytest

from fairway.engine.model import GPU, PODS, Expression, Node, Pool, Queue, amounts
from fairway.policies import PRESETS
from fairway.sim.load import Job, Load, Outage, apart, gpu_queues
from fairway.sim.measure import waits
from fairway.sim.simulate import simulate, stuck
from fairway.sim.world import Mechanics, World


def starts(policy: str, count: int, *jobs: Job, queues: tuple[Queue, ...] = (Queue("default"),)) -> list[float]:
    """When each job starts on so many nodes of 8 GPUs; -1: never."""
    nodes = tuple(Node(f"n{row:02d}", capacity=amounts({GPU: 8000, PODS: 110})) for row in range(count))
    world = World(Load("", nodes, jobs, queues=queues), PRESETS[policy], Mechanics(knows_durations=policy == "sjf"))
    assert not [step.faults for step in world.run() if step.faults]
    return [it.runs[0].start if it.runs else -1.0 for it in world.outcomes()]


@pytest.mark.parametrize("policy", ["strict-fifo", "fifo", "sjf", "fairway", "las"])
def test_of_many_alike_all_start_at_once_that_fit(policy: str) -> None:
    alike = [Job(f"{row:03d}", 0.0, 100.0) for row in range(330)]
    assert starts(policy, 40, *alike) == [0.0] * 320 + [100.0] * 10


def test_a_strict_line_keeps_its_order_among_those_unlike() -> None:
    alike, other = [Job(f"a{row}", 0.0, 100.0) for row in range(8)], Job("b", 0.0, 100.0, user="b")
    assert starts("strict-fifo", 1, *alike, other) == [0.0] * 8 + [100.0]


def test_those_who_never_fit_stop_no_strict_line() -> None:
    large = [Job(f"a{row}", 0.0, 100.0, gpus=16000) for row in range(9)]
    assert starts("strict-fifo", 1, *large, Job("b", 0.0, 100.0)) == [-1.0] * 9 + [0.0]


@pytest.mark.parametrize(("policy", "start"), [("fifo", 0.0), ("strict-fifo", 100.0), ("sjf", 100.0)])
def test_the_baselines_wait_for_as_few_nodes_as_hold_a_gang(policy: str, start: float) -> None:
    wide = [Job(f"a{row}", 0.0, 100.0, gpus=5000) for row in range(2)]
    assert starts(policy, 2, *wide, Job("b", 0.0, 200.0, workers=6)) == [0.0, 0.0, start]


def test_a_large_gang_has_whole_nodes_and_one_part_of_a_node() -> None:
    part = Job("a", 0.0, 100.0, gpus=5000)
    assert starts("strict-fifo", 2, part, Job("b", 0.0, 200.0, workers=11)) == [0.0, 0.0]
    assert starts("strict-fifo", 2, part, Job("b", 0.0, 200.0, workers=12)) == [0.0, 100.0]


def test_who_is_cancelled_before_it_starts_is_counted_and_who_runs_then_goes_on() -> None:
    jobs = (
        Job("a", 0.0, 100.0, gpus=8000, patience=50.0),
        Job("b", 0.0, 10.0, gpus=8000, patience=50.0),
        Job("c", 0.0, 10.0),
    )
    found = simulate(Load("", (Node("n", capacity=amounts({GPU: 8000, PODS: 110})),), jobs), "fifo")
    assert (found.measures.cancelled, found.measures.unfinished) == (1, 0)
    assert [(it.end, it.is_cancelled) for it in found.outcomes] == [(100.0, False), (-1.0, True), (110.0, False)]


QUEUES = tuple(Job(name, at, 100.0, gpus=8000, queue=queue) for name, at, queue in
               (("a", 0.0, "x"), ("b", 1.0, "y"), ("c", 50.0, "x"), ("d", 60.0, "x"), ("e", 160.0, "x")))  # fmt: skip


@pytest.mark.parametrize("policy", sorted(PRESETS.keys() - {"fairway"}))
def test_a_preset_has_one_line_of_all_queues_in_one_pool(policy: str) -> None:
    assert starts(policy, 1, *QUEUES, queues=gpu_queues(["x", "y"])) == [0.0, 100.0, 200.0, 300.0, 400.0]


def test_queues_of_a_trace_have_equal_parts() -> None:
    jobs = [Job(f"{queue}{row}", 0.0, 100.0, gpus=4000, queue=queue) for queue in "xy" for row in range(4)]
    assert starts("fairway", 1, *jobs, queues=gpu_queues(["x", "y"])) == [0.0, 100.0, 200.0, 300.0] * 2


def test_a_blocked_head_blocks_those_of_other_queues_in_its_pool() -> None:
    jobs = Job("a", 0.0, 100.0, queue="x"), Job("b", 1.0, 10.0, gpus=8000, queue="y"), Job("c", 2.0, 10.0, queue="x")
    assert starts("strict-fifo", 1, *jobs, queues=gpu_queues(["x", "y"])) == [0.0, 100.0, 110.0]
    assert starts("strict-fifo", 2, *jobs, queues=gpu_queues(["x", "y"])) == [0.0, 1.0, 2.0]


def test_who_passes_the_service_of_one_who_waits_makes_way_at_that_moment() -> None:
    long, short = Job("a", 0.0, 10_000.0, gpus=8000, user="a"), Job("b", 200.0, 50.0, gpus=8000, user="b")
    assert starts("las", 1, long, short) == [0.0, 450.0]  # 8 GPUs have had a GPU-hour after 450 s


def test_what_a_job_needs_ends_at_its_time_limit() -> None:
    jobs = Job("a", 0.0, 100.0), Job("b", 10.0, 1000.0, estimate=100.0), Job("c", 20.0, 50.0)
    found = simulate(Load("", (Node("n", capacity=amounts({GPU: 1000, PODS: 110})),), jobs), "fifo")
    assert [it.end for it in found.outcomes] == [100.0, 200.0, 250.0]
    assert waits(found.outcomes).tolist() == [0.0, 90.0, 180.0]
    assert (found.measures.mean_wait, round(found.measures.mean_bounded_slowdown, 9)) == (90.0, 2.5)


def test_an_oracle_knows_that_a_time_limit_makes_a_job_short() -> None:
    limited = Job("a", 1.0, 1000.0, gpus=8000, estimate=10.0)
    assert starts("sjf", 1, Job("x", 0.0, 50.0, gpus=8000), limited, Job("b", 1.0, 100.0)) == [0.0, 50.0, 60.0]


def test_learned_is_how_long_a_job_ran_not_how_long_it_would_have() -> None:
    jobs = Job("a", 0.0, 1000.0, estimate=100.0), Job("b", 0.0, 50.0)
    node = Node("n", capacity=amounts({GPU: 8000, PODS: 110}))
    world = World(Load("", (node,), jobs), PRESETS["fairway"], Mechanics())
    assert [step.now for step in world.run()][-1] == 100.0
    seen = dict(world.forward.state.snapshot(100.0).queues["default"].ledger.runtimes)["", ""]
    assert [round(seconds / 10) for seconds, _ in seen.points] == [5, 10]


@pytest.mark.parametrize("outages", [((0, 100), (10, 20)), ((10, 100), (0, 50)), ((0, 50), (50, 100)), ((0, 100),) * 2])
def test_a_node_is_away_until_the_last_of_its_outages_is_over(outages: tuple[tuple[float, float], ...]) -> None:
    node = Node("n", capacity=amounts({GPU: 8000, PODS: 110}))
    jobs = tuple(Job(f"{at}", float(at), 5.0) for at in (0, 30, 60, 120))
    load = Load("", (node,), jobs, outages=tuple(Outage("n", *one) for one in outages))
    assert [it.runs[0].start for it in simulate(load, "fifo").outcomes] == [100.0, 100.0, 100.0, 120.0]


def test_the_whole_world_knows_also_who_was_not_shown() -> None:
    node = Node("n", capacity=amounts({GPU: 8000, PODS: 110}))
    gone = Job("030", 0.0, 100.0, patience=50.0)
    world = World(Load("", (node,), (*(Job(f"{row:03d}", 0.0, 100.0) for row in range(30)), gone)), PRESETS["fairway"],
                  Mechanics())  # fmt: skip
    shown, whole = next(
        (step.snapshot.pending, world.whole(step.snapshot).pending) for step in world.run() if step.now == 100.0
    )
    assert (len(shown), {one.key for one in whole}) == (4, {f"sim/{row:03d}" for row in range(8, 30)})


def node(name: str, *labels: tuple[str, str]) -> Node:
    return Node(name, labels, capacity=amounts({GPU: 8000, PODS: 110}))


@pytest.mark.parametrize("policy", ["fairway", "strict-fifo", "las"])
def test_jobs_that_can_never_run_are_named_by_reason(policy: str) -> None:
    jobs = *(Job(f"a{row}", 0.0, 100.0, gpus=16000) for row in range(9)), Job("b", 0.0, 100.0, queue="none")
    found = simulate(Load("", (node("n"),), (*jobs, Job("c", 1.0, 10.0))), policy)
    assert (found.measures.jobs, found.measures.unfinished, found.measures.never_run) == (11, 0, 10)
    assert stuck(found.outcomes) == {"NeverFits": [f"a{row}" for row in range(9)], "QueueNotFound": ["b"]}
    assert found.measures.mean_wait == 0.0


def test_where_no_job_can_run_there_are_no_waits() -> None:
    found = simulate(Load("", (node("n"),), (Job("a", 0.0, 100.0, gpus=16000),)), "fairway")
    assert found.measures.never_run == 1 and isnan(found.measures.mean_wait)


def paired() -> Load:
    """Two queues with a pool each."""
    pools = tuple(Pool(name, (Expression("t", "In", (name,)),)) for name in "xy")
    queues = tuple(Queue(name, pools=(name,)) for name in "xy")
    jobs = tuple(Job(f"{name}{row}", 60.0 * row, 40_000.0 / (row + 1), gpus=3000, user=f"u{row}", queue=name)
                 for row in range(12) for name in "xy")  # fmt: skip
    return Load("", (node("n1", ("t", "x")), node("n2", ("t", "y"))), jobs, pools, queues)


@pytest.mark.parametrize("policy", ["fairway", "las"])
def test_queues_with_pools_of_their_own_do_not_influence_each_other(policy: str) -> None:
    load, only = paired(), simulate(apart(paired())[0], policy)
    outage = Outage("n2", 500.0, 90_000.0)
    for one in (load, replace(load, outages=(outage,))):
        assert [it for it in simulate(one, policy).outcomes if it.job.queue == "x"] == list(only.outcomes)


def test_a_schedule_of_parts_counts_the_nodes_of_all() -> None:
    found = simulate(paired(), "fifo")
    assert found.series.queues == ("x", "y") and set(found.series.capacity) == {16.0}
    assert found.series.by_queue.sum(axis=0) == pytest.approx(found.series.held)


def test_what_was_stopped_in_the_middle_holds_no_more_than_there_is() -> None:
    """Stopped after each cycle in turn, also between an eviction and what is decided next."""
    gang = Job("a", 0.0, 10_000.0, gpus=8000, user="a")
    load = Load("", (node("n"),), (gang, *(Job(f"b{row}", 200.0, 2000.0, gpus=4000, user="b") for row in range(4))))
    world = World(load, PRESETS["las"], Mechanics())
    for _ in world.run():
        series = world.series()
        assert (series.by_queue.sum(axis=0) <= series.capacity).all()
    assert any(it.evictions for it in world.outcomes())
