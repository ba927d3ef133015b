"""Quota: the tree, what is governed, how shares are divided."""

import pytest
from builders import NOW, job, node, queue, runs, world

from fairway.engine.model import GPU, Decayed, Ledger, Quota, Share
from fairway.engine.policy import Policy
from fairway.engine.quota import QueueTree
from fairway.engine.state import snapshot_of


def tree(*things, k: float = 0.5, half_life: float = 7 * 86400.0, **fields) -> QueueTree:
    return QueueTree(snapshot_of(world(*things, **fields)), Policy(usage_weight=k, half_life=half_life))


def gpu_shares(*things, **fields) -> dict[str, float]:
    found = tree(*things, **fields).shares()
    return {name: share / 1000 for (name, _, resource), share in found.items() if resource == GPU}


def asks(name: str, gpus: float, count: int = 1):
    """So many waiting workloads of one pod in a queue."""
    return [job(f"{name}-{at}", name, gpus) for at in range(count)]


def used(gpus: float) -> Ledger:
    """As if so many GPUs had always been used: the decayed integral of a constant."""
    window = 7 * 86400.0 / 0.6931471805599453
    return Ledger(usage=((("default", GPU), Decayed(gpus * 1000 * window, NOW)),))


TABLE = [
    ("a queue gets its guarantee as far as it asks", [queue("a", 4), queue("b", 4), *asks("a", 1, 2), *asks("b", 1, 9)],
     {"a": 2, "b": 6}),
    ("the surplus goes by weight", [queue("a", 0, weight=3), queue("b", 0), *asks("a", 1, 9), *asks("b", 1, 9)],
     {"a": 6, "b": 2}),
    ("weight 0 takes no surplus", [queue("a", 1, weight=0), queue("b", 0), *asks("a", 1, 9), *asks("b", 1, 3)],
     {"a": 1, "b": 3}),
    ("who asks for less than its part gets just that", [queue("a", 0), queue("b", 0), queue("c", 0), *asks("a", 0.5),
     *asks("b", 1, 9), *asks("c", 1, 9)], {"a": 0.5, "b": 4, "c": 3.5}),
    ("left-over units go to the older queue", [queue("a", 0, created=2), queue("b", 0, created=1),
     queue("c", 0, created=3), *asks("a", 1, 9), *asks("b", 1, 9), *asks("c", 1, 9)], {"a": 3, "b": 3, "c": 2}),
    ("the higher priority is filled first and fully", [queue("a", 0), queue("b", 1, priority=1), *asks("a", 1, 9),
     *asks("b", 1, 6)], {"a": 2, "b": 6}),
    ("a limit caps demand", [queue("a", 0, 3), queue("b", 0), *asks("a", 1, 9), *asks("b", 1, 9)], {"a": 3, "b": 5}),
    ("a queue without demand takes no part", [queue("a", 4), queue("b", 0), *asks("b", 1, 9)], {"a": 0, "b": 8}),
    ("children divide the parent's share, its surplus included", [queue("p", 2), queue("a", 1, parent="p"),
     queue("b", 0, parent="p"), queue("r", 2), *asks("a", 1, 9), *asks("b", 1, 9), *asks("r", 1, 9)],
     {"p": 4, "r": 4, "a": 3, "b": 1}),
    ("guarantees above the parent's share shrink in proportion", [queue("p", 3), queue("a", 4, parent="p"),
     queue("b", 2, parent="p"), queue("r", 5), *asks("a", 1, 9), *asks("b", 1, 9), *asks("r", 1, 9)],
     {"p": 3, "r": 5, "a": 2, "b": 1}),
    ("100% is legal on several siblings", [queue("p", 8), queue("a", "100%", parent="p"),
     queue("b", "100%", parent="p"), *asks("a", 1, 9), *asks("b", 1, 9)], {"p": 8, "a": 4, "b": 4}),
    ("what roots are owed does not shrink", [queue("a", 6), queue("b", 5), *asks("a", 1, 9), *asks("b", 1, 9)],
     {"a": 6, "b": 5}),
    ("what a child's limit keeps from starting is no demand of its parent", [queue("t", 0, weight=0),
     queue("p", 0), queue("x", 0, 2, parent="p"), queue("q", 0), *asks("x", 1, 8), *asks("q", 1, 6)],
     {"t": 0, "p": 2, "x": 2, "q": 6}),
    ("nor is what a stopped queue, or one above it, lets wait", [queue("p", 4, stop="StopAdmitting"),
     queue("x", 4, parent="p"), queue("q", 0), *asks("x", 1, 8), *asks("q", 1, 8)], {"p": 0, "x": 0, "q": 8}),
    ("nor what comes after others that have not ended", [queue("a", 0), queue("b", 0),
     job("late", "a", 8, after=("ns/b-0",)), *asks("b", 1, 8)], {"a": 0, "b": 8}),
    ("a child is due in a pool no more than its parent in all", [queue("p", 4), queue("q", 4),
     queue("x", 8, parent="p", pool="default"), *asks("x", 8), *asks("q", 4)], {"p": 4, "q": 4, "x": 4}),
    ("of a single pool no more in all than its parent there", [queue("p", 4, pool="default"), queue("q", 4,
     pool="default"), queue("x", 8, parent="p"), *asks("x", 8), *asks("q", 4)], {"p": 4, "q": 4, "x": 4}),
    ("a percentage is of what is live", [queue("a", "50%"), queue("b", 0, weight=0), node("gone", 8, is_ready=False),
     *asks("a", 1, 9), *asks("b", 1, 1)], {"a": 8, "b": 0}),
]


@pytest.mark.parametrize(("things", "shares"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_shares_are_divided(things, shares) -> None:
    assert gpu_shares(node("n", 8), *things) == shares


def test_a_resource_that_a_quota_does_not_name_is_not_governed() -> None:
    found = tree(node("n", 8), queue("a", 4), *asks("a", 1, 9)).shares()
    assert set(found) == {("a", "*", GPU)}


def test_a_queue_without_quotas_hands_down_all_its_parent_has() -> None:
    waiting = [*asks("a", 1, 9), *asks("b", 1, 9)]
    assert gpu_shares(node("n", 8), queue("p"), queue("a", 2, parent="p"), queue("b", 0, parent="p"), *waiting) == {
        "a": 5, "b": 3}


def test_history_moves_the_surplus_to_who_used_less() -> None:
    waiting = [*asks("a", 1, 9), *asks("b", 1, 9)]
    assert gpu_shares(node("n", 8), queue("a", 0, ledger=used(8)), queue("b", 0), *waiting) == {"a": 2, "b": 6}
    assert gpu_shares(node("n", 8), queue("a", 0, ledger=used(8)), queue("b", 0), *waiting, k=0.0) == {"a": 4, "b": 4}


def test_the_guaranteed_share_is_never_touched_by_history() -> None:
    waiting = [*asks("a", 1, 9), *asks("b", 1, 9)]
    assert gpu_shares(node("n", 8), queue("a", 4, ledger=used(8)), queue("b", 4), *waiting) == {"a": 4, "b": 4}


def test_usage_halves_in_a_half_life() -> None:
    old = Ledger(usage=((("default", GPU), Decayed(8000.0, NOW - 100.0)),))
    found = tree(node("n", 8), queue("a", 0, ledger=old), half_life=100.0)
    account = found.branches["a"].accounts["*"]
    assert found.usage(account, GPU) == pytest.approx(4000.0 / (8000 * 100.0 / 0.6931471805599453))


def test_quotas_of_a_pool_and_of_all_pools_both_apply() -> None:
    both = queue("a", quotas=(Quota("*", ((GPU, Share(4000)),)), Quota("default", ((GPU, Share(2000)),))))
    found = tree(node("n", 8), both, *asks("a", 1, 9)).shares()
    assert found == {("a", "*", GPU): 8000, ("a", "default", GPU): 8000}


def test_what_runs_counts_in_the_queue_and_all_its_ancestors() -> None:
    found = tree(node("n", 8), queue("p", 4), queue("a", 2, parent="p"), runs(job("r", "a", 2), "n"))
    assert [account.held[GPU] for account in found.ledgers("a", "default")] == [2000, 2000]


def test_who_is_leaving_counts_no_more_and_who_moves_counts_once() -> None:
    gone = runs(job("r", "a", 2), "n", is_leaving=True)
    moved = runs(job("s", "a", 1), "n", is_leaving=True, moves_to=runs(job("s", "a", 1), "m").admission)
    found = tree(node("n", 8), node("m", 8), queue("a", 2), gone, moved)
    assert found.branches["a"].accounts["*"].held == {GPU: 1000}


def test_a_mig_profile_counts_as_its_slices_by_seven() -> None:
    profile = job("r", "a", 0, 7, pod={"tolerations": ()})
    mig = profile.podsets[0].pod.__class__(requests=(("nvidia.com/mig-3g.20gb", 1),))
    found = tree(node("n", 8), queue("a", 2))
    podsets = (profile.podsets[0].__class__("main", 7, 7, mig),)
    assert found.amounts(podsets, (7,), "default")[GPU] == 3000


def test_a_circle_of_parents_has_no_path() -> None:
    found = tree(node("n", 8), queue("a", 1, parent="b"), queue("b", 1, parent="a"))
    assert found.branches["a"].path == () and found.ledgers("a", "default") == ()
