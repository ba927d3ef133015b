"""Making room: reclaim, preempt, who goes, who is spared, who is moved, who is protected."""

from collections import Counter
from itertools import chain, combinations

from builders import job, judged, node, plan_of, queue, runs, told
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.engine.model import Device


def test_a_higher_priority_preempts_in_its_own_queue() -> None:
    low, high = runs(job("low", gpus=2), "n"), job("high", gpus=2, priority=1)
    assert told(plan_of(node("n", 2), queue("q"), low, high)) == {"low": "Preempted for high", "high": "n after low"}


def test_an_equal_priority_is_not_preempted() -> None:
    low, high = runs(job("low", gpus=2), "n"), job("high", gpus=2)
    assert told(plan_of(node("n", 2), queue("q"), low, high)) == {"low": "Keep", "high": "NoRoom"}


def test_what_only_goes_first_does_not_speak_for_what_preempts() -> None:
    low, never = runs(job("low", gpus=2), "n"), job("a", gpus=2, priority=1, preempts=False)
    found = told(plan_of(node("n", 2), queue("q"), low, never, job("b", gpus=2, priority=1)))
    assert found == {"low": "Preempted for b", "a": "NoRoom", "b": "n after low"}


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


def test_pods_without_devices_are_evicted_for_from_a_node_whose_devices_are_told_apart() -> None:
    low = [runs(job(f"r{at}", gpus=1, cpu=cpu), "n", devices=((at,),)) for at, cpu in enumerate((1, 5, 2))]
    devices = tuple(Device(at) for at in range(4))
    found = told(plan_of(node("n", 4, cpu=8, devices=devices), queue("q"), *low, job("w", cpu=5, priority=1)))
    assert found == {"r1": "Preempted for w", "r0": "Keep", "r2": "Keep", "w": "n after r1"}


def test_nobody_waits_for_one_who_was_spared() -> None:
    small, large = runs(job("small", gpus=1), "n"), runs(job("large", gpus=5, priority=1), "n")
    late, high = job("late", gpus=1), job("high", gpus=4, priority=2)
    found = told(plan_of(node("n", 6), queue("q", 6, 6), small, large, high, late))
    assert found == {"small": "Keep", "large": "Preempted for high", "high": "n after large", "late": "n after large"}


VICTIMS = st.lists(
    st.tuples(st.sampled_from("nm"), st.sampled_from("bcd"), st.sampled_from((1, 2, 4))), min_size=1, max_size=8
)


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(VICTIMS, st.fixed_dictionaries(dict.fromkeys("bcd", st.integers(0, 6))), st.integers(1, 8))
def test_a_workload_starts_where_some_set_of_victims_may_be_taken_for_it(victims, owed, asked) -> None:
    """Two full nodes. A queue may lose a workload while it is above its guarantee: the last may be of any size, those
    before it leave the queue above."""
    nodes = [node(name, sum(gpus for at, _, gpus in victims if at == name)) for name in "nm"]
    queues = [queue("a", 8), *(queue(name, guaranteed) for name, guaranteed in owed.items())]
    running = [runs(job(f"r{at}", name, gpus), where) for at, (where, name, gpus) in enumerate(victims)]
    found = judged(*nodes, *queues, *running, job("w", "a", asked))
    assert any(may_go(victims, some, owed, asked) for some in subsets(len(victims))) == (" after " in found["w"]), found


def subsets(count: int):
    return chain.from_iterable(combinations(range(count), size) for size in range(1, count + 1))


def may_go(victims, some, owed, asked) -> bool:
    """Whether these victims make room on one node, and their queues may lose them, the largest last."""
    held, lost, largest = Counter[str](), Counter[str](), Counter[str]()
    for at, (_, name, gpus) in enumerate(victims):
        held[name] += gpus
        if at in some:
            lost[name] += gpus
            largest[name] = max(largest[name], gpus)
    rooms = Counter({where: sum(victims[at][2] for at in some if victims[at][0] == where) for where in "nm"})
    return max(rooms.values()) >= asked and all(held[it] - lost[it] + largest[it] > owed[it] for it in lost)
