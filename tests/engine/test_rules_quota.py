"""Quota, rule by rule: what is governed, how the tree binds, how shares are divided, budgets and stops."""

import pytest
from builders import GIB, NOW, job, judged, meets, milli, node, plan_of, queue, runs, table
from test_quota import asks, gpu_shares, tree, used

from fairway.engine.model import Expression, Ledger, PodClass, PodSet, Pool, Quota, Share

HALF = {"gpu_fraction": 500}
DAY = 86400.0


def fixed(name: str, of: str = "q", gpus: float = 1, **fields):
    return job(name, of, gpus, preemptible=False, **fields)


def pools(*names: str):
    """Of the nodes that carry their names."""
    return [Pool(name, (Expression("pool", "In", (name,)),)) for name in names]


def spent(hours: float, since: float = NOW - DAY) -> Ledger:
    return Ledger(budget_spent=hours * 3600, budget_since=since)


def budget(hours: float, name: str = "q", **fields):
    return queue(name, budget=round(hours * 3600), budget_period=30 * DAY, **fields)


GOVERNED = table(
    ("a resource named with zero is governed with zero", [node("n", 4), queue("q", 0), fixed("w")],
     {"w": "OverGuaranteed"}),
    ("a limit of zero lets nothing in", [node("n", 4), queue("q", 0, 0), job("w", gpus=1)], {"w": "OverLimit"}),
    ("what no quota names is free to all", [node("n", 4), queue("q", cpu=(8, 8)), fixed("w", gpus=4, cpu=8)],
     {"w": "n"}),
    ("a queue without quotas is ungoverned", [node("n", 4), queue("q"), fixed("w", gpus=4)], {"w": "n"}),
    ("of a limit alone nothing is guaranteed", [node("n", 4), queue("q", None, 4), fixed("w"), job("x", gpus=1)],
     {"w": "OverGuaranteed", "x": "n"}),
    ("half a GPU may be guaranteed", [node("n", 4), queue("q", 0.5), fixed("v", gpus=0, pod=HALF),
     fixed("w", gpus=0, pod=HALF)], {"v": "n", "w": "OverGuaranteed"}),
    ("half a GPU may be the limit", [node("n", 4), queue("q", 0, 0.5), job("v", pod=HALF), job("w", pod=HALF)],
     {"v": "n", "w": "OverLimit"}),
    ("children's guarantees may exceed the parent's, which binds all the same",
     [node("n", 4), queue("p", 2), queue("q", 2, parent="p"), queue("r", 2, parent="p"), fixed("v", gpus=2),
      fixed("w", "r")], {"v": "OverGuaranteed", "w": "n"}),
    ("an ungoverned parent binds nobody", [node("n", 4), queue("p"), queue("q", 4, parent="p"), fixed("w", gpus=4)],
     {"w": "n"}),
    ("limits of a pool and of all pools both hold",
     [node("n", 8), queue("q", quotas=(Quota("*", (), (("nvidia.com/gpu", Share(6000)),)),
      Quota("default", (), (("nvidia.com/gpu", Share(4000)),)))), job("v", gpus=5), job("w", gpus=4)],
     {"v": "OverLimit", "w": "n"}),
    ("a quota of another pool does not count here",
     [node("n", 8), queue("q", quotas=(Quota("other", (), (("nvidia.com/gpu", Share(0)),)),)), job("w", gpus=5)],
     {"w": "n"}),
    ("guarantees of a pool and of all pools both bind what is not preemptible",
     [node("n", 8), queue("q", quotas=(Quota("*", (("nvidia.com/gpu", Share(2000)),)),
      Quota("default", (("nvidia.com/gpu", Share(4000)),)))), fixed("v", gpus=3), fixed("w", gpus=2)],
     {"v": "OverGuaranteed", "w": "n"}),
    ("only leaves hold workloads", [node("n", 4), queue("p", 4), queue("q", 4, parent="p"), job("w", "p", 1)],
     {"w": "QueueInvalid"}),
    ("a queue whose parent is not there, or below such a queue, holds none",
     [node("n", 4), queue("p", 4, parent="nosuch"), queue("q", 4, parent="p"), queue("r", 4, parent="nosuch"),
      job("v", "q", 1), job("w", "r", 1)], {"v": "QueueInvalid", "w": "QueueInvalid"}),
    ("a limit binds together all that is below it",
     [node("n", 8), queue("p", 0, 4), queue("q", 0, parent="p"), queue("r", 0, parent="p"), job("v", gpus=3),
      job("w", "r", 2)], {"v": "OverLimit", "w": "n"}),
    ("a limit counts what runs, and not what is leaving",
     [node("n", 8), queue("q", 0, 4), runs(job("r", gpus=2), "n"), runs(job("s", gpus=2), "n", is_leaving=True),
      job("w", gpus=2), job("x", gpus=1, submitted=1)], {"w": "n", "x": "OverLimit"}),
    ("of an elastic gang the minimum must be within the limit, and growth stays in it",
     [node("n", 8), queue("q", 0, 4), job("w", gpus=1, count=8, least=2), job("x", gpus=1, count=8, least=5)],
     {"w": "n*4", "x": "OverLimit"}),
    ("share is no gate to idle room", [node("n", 8), queue("a", 4), queue("b", 4), job("w", "a", 8)], {"w": "n"}),
    ("idle-time work uses idle room", [node("n", 8), queue("q", 0, weight=0), job("w", gpus=8)], {"w": "n"}),
)


@GOVERNED
def test_what_is_governed_and_what_binds(things, expected) -> None:
    meets(things, expected)


@pytest.mark.parametrize("fault", ["is_unhealthy", "is_leaving", "is_unschedulable"])
def test_a_percentage_is_of_nodes_in_use(fault: str) -> None:
    nodes = node("n", 8), node("m", 8, **{fault: True})
    meets([*nodes, queue("q", 0, "50%"), job("v", gpus=5), job("w", gpus=4)], {"v": "OverLimit", "w": "n"})


def test_a_percentage_of_a_pool_is_of_that_pool() -> None:
    nodes = node("n", 8, labels={"pool": "x"}), node("m", 4, labels={"pool": "y"})
    half = Share(500, is_relative=True)
    of = queue("q", quotas=tuple(Quota(name, (), (("nvidia.com/gpu", half),)) for name in ("x", "y")))
    meets([*nodes, *pools("x", "y"), of, job("v", gpus=3, pools=("y",)), job("w", gpus=4, pools=("x",))],
          {"v": "OverLimit", "w": "n"})


DIVISION = {
    "weights are normalised anew over those who still ask":
        ([queue("a", 0), queue("b", 0), queue("c", 0, weight=2), *asks("a", 1), *asks("b", 1, 9), *asks("c", 1, 9)],
         {"a": 1, "b": 2, "c": 5}),
    "where all have used too much the weights alone count":
        ([queue("a", 0, weight=3, ledger=used(80)), queue("b", 0, ledger=used(80)), *asks("a", 1, 9), *asks("b", 1, 9)],
         {"a": 6, "b": 2}),
    "of equals with nothing else between them the first by name gets the unit":
        ([queue("b", 0), queue("a", 0), queue("c", 0), *asks("a", 1, 9), *asks("b", 1, 9), *asks("c", 1, 9)],
         {"a": 3, "b": 3, "c": 2}),
    "a lower priority gets only what a higher one leaves, guarantees apart":
        ([queue("a", 1), queue("b", 0, priority=2), queue("c", 0, priority=1), *asks("a", 1, 9), *asks("b", 1, 3),
          *asks("c", 1, 9)], {"a": 1, "b": 3, "c": 4}),
    "what runs is demand, too":
        ([queue("a", 4), queue("b", 0), runs(job("r", "a", 3), "n"), *asks("b", 1, 9)], {"a": 3, "b": 5}),
    "what is elastic asks for all of its pods":
        ([queue("a", 0), queue("b", 0), job("e", "a", 1, 8, least=1), *asks("b", 1, 9)], {"a": 4, "b": 4}),
    "what a child leaves its sibling gets, before anybody outside":
        ([queue("p", 4, weight=0), queue("r", 4, weight=0), queue("a", 3, parent="p"), queue("b", 1, parent="p"),
          *asks("a", 1, 1), *asks("b", 1, 9), *asks("r", 1, 9)], {"p": 4, "a": 1, "b": 3, "r": 4}),
    "children of a parent whose quotas name CPUs alone divide with the queues beside it":
        ([queue("p", cpu=(10, None)), queue("a", 0, parent="p"), queue("b", 0), *asks("a", 1, 9), *asks("b", 1, 9)],
         {"a": 4, "b": 4}),
    "and of one whose quotas are of another pool alone":
        ([Pool("x", (Expression("pool", "DoesNotExist"),)), *pools("y"), node("m", 4, labels={"pool": "y"}),
          queue("p", 4, pool="y"), queue("a", 0, pool="x", parent="p"), queue("b", 0, pool="x"), *asks("a", 1, 9),
          *asks("b", 1, 9)], {"p": 4, "a": 4, "b": 4}),
}


@pytest.mark.parametrize(("things", "expected"), DIVISION.values(), ids=DIVISION)
def test_how_shares_are_divided(things, expected) -> None:
    assert gpu_shares(node("n", 8), *things) == expected


def test_what_may_not_go_to_a_pool_is_no_demand_there() -> None:
    both = (Quota("a", (("nvidia.com/gpu", Share(0)),)), Quota("*", (("nvidia.com/gpu", Share(0)),)))
    queues = [queue("p", quotas=both), queue("c", parent="p", pools=("h",)), queue("r", quotas=both)]
    nodes = [node(name, 8, labels={"pool": name}) for name in "ah"]
    waiting = [*asks("c", 8), *(job(f"r-{at}", "r", 8) for at in range(2))]
    found = tree(*nodes, *pools("a", "h"), *queues, *waiting).shares()
    assert [found[name, "a", "nvidia.com/gpu"] for name in "pr"] == [0, 8000]
    assert [found[name, "*", "nvidia.com/gpu"] for name in "pr"] == [8000, 8000]


def test_cpus_are_shared_in_whole_cpus_and_memory_in_whole_gibibytes() -> None:
    zero = (("cpu", Share(0)), ("memory", Share(0)))
    queues = [queue(name, quotas=(Quota("*", zero),)) for name in "abc"]
    big = PodClass(requests=(("cpu", milli(9)), ("memory", 9 * GIB)))
    waiting = [job(name, name, podsets=(PodSet("main", 1, 1, big),)) for name in "abc"]
    found = tree(node("n", 0, cpu=10, memory=10), *queues, *waiting).shares()
    assert [found[name, "*", "cpu"] for name in "abc"] == [4000, 3000, 3000]
    assert [found[name, "*", "memory"] for name in "abc"] == [4 * GIB, 3 * GIB, 3 * GIB]


def test_idle_use_long_ago_costs_little() -> None:
    """Seven half-lives later less than a hundredth of it counts."""
    waiting = [*asks("a", 1, 9), *asks("b", 1, 9)]
    old = used(8)
    then = Ledger(usage=tuple((key, one.__class__(one.value, NOW - 49 * DAY)) for key, one in old.usage))
    assert gpu_shares(node("n", 8), queue("a", 0, ledger=then), queue("b", 0), *waiting) == {"a": 4, "b": 4}


BUDGETS = table(
    ("what could overrun the budget by its time limit waits",
     [node("n", 8), budget(4), job("v", gpus=4, time_limit=3601.0), job("w", gpus=4, time_limit=3600.0)],
     {"v": "BudgetSpent", "w": "n"}),
    ("what is spent is spent",
     [node("n", 8), budget(4, ledger=spent(3)), job("v", gpus=2, time_limit=3600.0),
      job("w", gpus=1, time_limit=3600.0)], {"v": "BudgetSpent", "w": "n"}),
    ("a new period begins with nothing spent",
     [node("n", 8), budget(4, ledger=spent(4, NOW - 30 * DAY)), job("w", gpus=4, time_limit=3600.0)], {"w": "n"}),
    ("a parent's budget binds its children",
     [node("n", 8), budget(1, "p"), queue("q", parent="p"), job("w", gpus=2, time_limit=3600.0)],
     {"w": "BudgetSpent"}),
    ("two that start together are counted together",
     [node("n", 8), budget(4), job("v", gpus=3, time_limit=3600.0), job("w", gpus=3, time_limit=3600.0)],
     {"v": "n", "w": "BudgetSpent"}),
    ("what uses no GPU costs nothing, not even where too much is spent",
     [node("n", 8), budget(4, ledger=spent(5)), job("w", cpu=1, time_limit=3600.0), job("x", cpu=1)],
     {"w": "n", "x": "n"}),
    ("growth keeps to the budget", [node("n", 8), budget(4), job("w", gpus=1, count=8, least=1, time_limit=3600.0)],
     {"w": "n*4"}),
    ("the growth of those who run does, too",
     [node("n", 8), budget(4), runs(job("r", gpus=1, count=8, least=1, time_limit=3600.0), ("n", 2), since=NOW,
      devices=((0,), (1,))), job("w", gpus=1, time_limit=3600.0)], {"r": "2->3", "w": "n"}),
    ("what ran past its limit counts for as long as it ran",
     [node("n", 8), budget(2), runs(job("r", gpus=1, time_limit=3600.0), "n", since=NOW - 3700),
      job("w", gpus=1, time_limit=3600.0)], {"r": "Finish", "w": "BudgetSpent"}),
    ("what earlier attempts used counts while it waits",
     [node("n", 8), budget(2), job("v", gpus=1, time_limit=3600.0, attained=3000.0),
      job("w", gpus=1, time_limit=3600.0)], {"v": "n", "w": "BudgetSpent"}),
    ("what earlier attempts used counts while it runs again",
     [node("n", 8), budget(2), runs(job("r", gpus=1, time_limit=3600.0, attained=60.0), "n", since=NOW),
      job("w", gpus=1, time_limit=3600.0)], {"w": "BudgetSpent"}),
    ("what earlier attempts used before its period does not",
     [node("n", 8), budget(2, ledger=spent(0, NOW - DAY), created=-9 * NOW), job("w", gpus=1, time_limit=3600.0),
      job("v", gpus=1, time_limit=3600.0, attained=9000.0, days=(
          ("q", NOW - 2 * DAY, 8000.0), ("q", NOW - DAY, 1000.0)))],
     {"v": "n", "w": "n"}),
    ("what earlier attempts used in its period counts",
     [node("n", 8), budget(2, ledger=spent(0, NOW - DAY), created=-9 * NOW), job("w", gpus=1, time_limit=3600.0),
      job("v", gpus=1, time_limit=3600.0, attained=9000.0, days=(
          ("q", NOW - 2 * DAY, 5000.0), ("q", NOW - DAY / 2, 4000.0)))],
     {"v": "BudgetSpent", "w": "BudgetSpent"}),
    ("what was used in another queue counts there, and above it",
     [node("n", 8), queue("p"), budget(2, "a", parent="p"), budget(2, "b"), job("v", "a", 1, time_limit=3600.0),
      job("w", "b", 1, time_limit=3600.0),
      job("x", "b", time_limit=1800.0, attained=7000.0, days=(("a", NOW, 7000.0),))],
     {"v": "BudgetSpent", "w": "n", "x": "n"}),
    ("what leaves comes to no more than it used",
     [node("n", 8), budget(1.1), runs(job("r", gpus=1, time_limit=14400.0), "n", since=NOW - 100, is_leaving=True),
      job("w", gpus=1, time_limit=3600.0)], {"w": "n"}),
    ("what moves comes to a second attempt",
     [node("m", 2), node("n", 8, is_unhealthy=True), budget(2),
      runs(job("r", gpus=1, time_limit=3600.0), "n", since=NOW - 3000), job("w", gpus=0.5, time_limit=3600.0)],
     {"r": "Drained to m", "w": "BudgetSpent"}),
    ("what shrinks used what it had",
     [node("n", 4), budget(6.5),
      runs(job("r", gpus=1, count=4, least=1, time_limit=3600.0), ("n", 4), since=NOW - 1800),
      job("v", gpus=2, time_limit=3600.0, priority=1), job("w", gpus=1, time_limit=7200.0, priority=1)],
     {"r": "4->2", "v": "n after r", "w": "BudgetSpent"}),
    ("GPU memory counts as the part of a GPU that it is",
     [node("n", 8, labels={"nvidia.com/gpu.memory": "81920"}), budget(4),
      job("w", count=8, pod={"gpu_memory": 40 * GIB}, time_limit=3600.0)], {"w": "n*8"}),
)


@BUDGETS
def test_budgets(things, expected) -> None:
    meets(things, expected)


STOPS = table(
    ("a queue that stops admitting keeps what runs",
     [node("n", 4), queue("q", stop="StopAdmitting"), runs(job("r", gpus=1), "n"), job("w", gpus=1)],
     {"r": "Keep", "w": "QueueStopped"}),
    ("a queue that drains evicts what runs, preemptible or not",
     [node("n", 4), queue("q", 4, stop="Drain"), runs(fixed("r"), "n"), job("w", gpus=1)],
     {"r": "Drained", "w": "QueueStopped"}),
    ("what stops a queue stops all below it",
     [node("n", 4), queue("p", stop="Drain"), queue("q", parent="p"), runs(job("r", gpus=1), "n"), job("w", gpus=1)],
     {"r": "Drained", "w": "QueueStopped"}),
    ("what a drained queue leaves is others' at once",
     [node("n", 4), queue("p", stop="Drain"), queue("q"), runs(job("r", "p", 4), "n"), job("w", gpus=4)],
     {"r": "Drained", "w": "n after r"}),
)


@STOPS
def test_stops(things, expected) -> None:
    meets(things, expected)


def test_shares_are_told_of_all_that_is_governed() -> None:
    both = queue("q", 2, cpu=(8, None))
    assert dict(plan_of(node("n", 8), both, job("w", gpus=1, cpu=4)).shares) == {
        ("q", "*", "nvidia.com/gpu"): 1000, ("q", "*", "cpu"): 4000}
    assert judged(node("n", 8), both, job("w", gpus=1, cpu=4)) == {"w": "n"}
