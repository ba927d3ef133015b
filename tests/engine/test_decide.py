"""The cycle: who starts, in which order, in whole gangs, within limits."""

import gc

from builders import job, node, plan_of, queue, runs, told, world
from hypothesis import given, settings
from hypothesis import strategies as some

from fairway.engine import FAIRWAY, Admit, decide, snapshot_of, turns
from fairway.referee import check


def test_a_gang_starts_whole_or_not_at_all() -> None:
    assert told(plan_of(node("n1", 2), node("n2", 2), queue("q"), job("a", gpus=1, count=5))) == {"a": "NeverFits"}
    assert told(plan_of(node("n1", 2), node("n2", 2), queue("q"), job("a", gpus=1, count=4))) == {"a": "n1*2+n2*2"}


def test_a_blocked_head_does_not_stop_those_behind_it() -> None:
    waiting = [job("a", gpus=4, submitted=1), job("b", gpus=1, submitted=2)]
    busy = runs(job("r", gpus=2), "n")
    assert told(plan_of(node("n", 4), queue("q"), *waiting, busy)) == {"a": "NoRoom", "b": "n", "r": "Keep"}


def test_a_strict_line_waits_for_its_head() -> None:
    waiting = [job("a", gpus=4, submitted=1), job("b", gpus=1, submitted=2)]
    busy = runs(job("r", gpus=2), "n")
    found = told(plan_of(node("n", 4), queue("q", order="FIFO"), *waiting, busy))
    assert found == {"a": "NoRoom", "b": "HeldFor", "r": "Keep"}


def test_what_a_decision_made_of_a_long_line_is_gone_with_its_plan() -> None:
    busy, waiting = runs(job("r", gpus=4), "n"), [job(f"w{at}", gpus=4, submitted=at) for at in range(1000)]
    snapshot = snapshot_of(world(node("n", 4), queue("q"), *waiting, busy))
    gc.collect()
    gc.disable()
    try:
        decide(snapshot, FAIRWAY)
        assert gc.collect() < len(waiting)
    finally:
        gc.enable()


leaves = some.lists(some.tuples(some.sampled_from(["", "p", "s"]), some.sampled_from([None, 0, 2, 5]),
                                some.sampled_from([None, 7, 40]), some.integers(0, 1)), min_size=1, max_size=5)
lines = some.lists(some.tuples(some.integers(0, 4), some.sampled_from([1, 1, 1, 2]), some.integers(0, 1)),
                   min_size=20, max_size=120)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(leaves=leaves, lines=lines)
def test_a_batch_starts_what_would_be_started_one_after_the_other(leaves, lines) -> None:
    """`turns` decides one workload after the other. No queue governs CPUs: what asks for some weighs as much."""
    parents = queue("p", 6), queue("s", None, 20)
    queues = [queue(f"q{at}", owed, most, parent=parent, priority=priority)
              for at, (parent, owed, most, priority) in enumerate(leaves)]
    jobs = [job(f"j{at:03d}", f"q{which % len(queues)}", gpus=gpus, cpu=cpus, submitted=at // 3)
            for at, (which, gpus, cpus) in enumerate(sorted(lines, key=lambda one: one[1]))]
    snapshot = snapshot_of(world(*(node(f"n{at}", 4) for at in range(20)), *parents, *queues, *jobs))
    plan = decide(snapshot, FAIRWAY)
    assert not check(snapshot, plan)
    asked = list(turns(snapshot, FAIRWAY))
    decided = [(one.workload, isinstance(one, Admit)) for one in plan.verdicts]
    assert [key for key, starts in decided if starts] == [key for key, starts in asked if starts]
