"""Making room: reclaim, preempt, who goes, who is spared, who is moved, who is protected."""

from builders import job, node, plan_of, queue, runs, told


def test_a_higher_priority_preempts_in_its_own_queue() -> None:
    low, high = runs(job("low", gpus=2), "n"), job("high", gpus=2, priority=1)
    assert told(plan_of(node("n", 2), queue("q"), low, high)) == {"low": "Preempted for high", "high": "n after low"}


def test_an_equal_priority_is_not_preempted() -> None:
    low, high = runs(job("low", gpus=2), "n"), job("high", gpus=2)
    assert told(plan_of(node("n", 2), queue("q"), low, high)) == {"low": "Keep", "high": "NoRoom"}


def test_what_was_lent_is_taken_back() -> None:
    lent = [runs(job(f"r{at}", "b", 1), "n") for at in range(4)]
    found = told(plan_of(node("n", 4), queue("a", 2), queue("b", 2), *lent, job("w", "a", 2)))
    assert found == {"r3": "Reclaimed for w", "r2": "Reclaimed for w", "w": "n after r2 r3", "r0": "Keep", "r1": "Keep"}


def test_surplus_goes_before_any_core() -> None:
    elastic = runs(job("e", "b", 1, 4, least=1), ("n", 3))
    rigid = runs(job("r", "b", 1), "n")
    found = told(plan_of(node("n", 4), queue("a", 2), queue("b", 1), elastic, rigid, job("w", "a", 2)))
    assert found == {"e": "3->1", "w": "n after e", "r": "Keep"}


def test_nobody_leaves_for_a_gang_that_does_not_start() -> None:
    lent = [runs(job(f"r{at}", "b", 1), "n") for at in range(4)]
    found = told(plan_of(node("n", 4), queue("a", 4), queue("b", 0), *lent, job("w", "a", 1, 5)))
    assert found["w"] == "NeverFits" and set(found.values()) == {"NeverFits", "Keep"}


def test_nobody_waits_for_one_who_was_spared() -> None:
    small, large = runs(job("small", gpus=1), "n"), runs(job("large", gpus=5, priority=1), "n")
    late, high = job("late", gpus=1), job("high", gpus=4, priority=2)
    found = told(plan_of(node("n", 6), queue("q", 6, 6), small, large, high, late))
    assert found == {"small": "Keep", "large": "Preempted for high", "high": "n after large", "late": "n after large"}
