"""The cycle: who starts, in which order, in whole gangs, within limits."""

import gc

from builders import job, node, plan_of, queue, runs, told, world

from fairway.engine import FAIRWAY, decide, snapshot_of


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
