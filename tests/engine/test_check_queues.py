"""The referee on doors, quotas, resizing and finishing: each broken promise is found and named."""

from dataclasses import replace

import pytest
from cases import GPU, NOW, admit, at, faults, gpus, node, of, on, runs, work

from fairway.engine.model import Ended, Expression, Ledger, NodeShare, Pool, Queue, Quota, Share
from fairway.engine.plan import Admit, Cause, Ending, Evict, Finish, Keep, Reason, Resize, Wait

# Doors


@pytest.mark.parametrize(
    ("queues", "reason"),
    [
        ((Queue("other"),), Reason.QUEUE_NOT_FOUND),
        ((Queue("q"), Queue("child", "q")), Reason.QUEUE_INVALID),
        ((Queue("q", "p"), Queue("p", "q")), Reason.QUEUE_INVALID),
        ((Queue("q", "p"), Queue("p", "nosuch")), Reason.QUEUE_INVALID),
        ((Queue("q", "p"), Queue("p", namespaces=frozenset({"x"}))), Reason.NOT_ALLOWED),
        ((Queue("q", "p"), Queue("p", max_priority=4)), Reason.NOT_ALLOWED),
        ((Queue("q", "p"), Queue("p", stop="StopAdmitting")), Reason.QUEUE_STOPPED),
        ((Queue("q", stop="Drain"),), Reason.QUEUE_STOPPED),
    ],
)
def test_a_closed_door_lets_nobody_in_and_the_wait_says_which(queues: tuple[Queue, ...], reason: Reason) -> None:
    one = work(priority=5)
    assert ("a", "Door") in faults(of(one, queues=queues), admit(one, on("n1", 0)))
    assert faults(of(one, queues=queues), Wait("ns/a", reason)) == set()
    assert ("a", "Reason") in faults(of(one, queues=queues), Wait("ns/a", Reason.NO_ROOM))
    assert ("a", "Reason") in faults(of(one), Wait("ns/a", reason))


def test_the_non_preemptible_are_let_in_only_where_they_may_be() -> None:
    fixed = work(preemptible=False)
    queues = (Queue("q", allows_nonpreemptible=False),)
    assert ("a", "Door") in faults(of(fixed, queues=queues), admit(fixed, on("n1", 0)))


def test_who_backs_off_depends_on_others_or_is_switched_off_is_not_admitted() -> None:
    late, bound, off = work(backs_off_until=NOW + 1), work(after=("ns/b",)), work(is_active=False)
    for one in (late, bound, off):
        assert ("a", "Door") in faults(of(one), admit(one, on("n1", 0)))
    assert faults(of(late), Wait("ns/a", Reason.BACKING_OFF)) == set()
    assert faults(of(bound), Wait("ns/a", Reason.DEPENDENCY_PENDING)) == set()
    assert faults(of(bound, ended=(Ended("ns/b", True),)), admit(bound, on("n1", 0))) == set()
    assert ("a", "Door") in faults(of(bound, ended=(Ended("ns/b", False),)), admit(bound, on("n1", 0)))


def test_a_workload_with_a_foreign_gate_or_an_unready_claim_is_not_admitted() -> None:
    gated, plain = work(gates=("example.com/wait",)), work()
    unready = replace(plain.podsets[0].pod, unready=(("ClaimMissing", "data"),))
    claiming = replace(plain, podsets=(replace(plain.podsets[0], pod=unready),))
    for one, reason in ((gated, Reason.SCHEDULING_GATED), (claiming, Reason.CLAIM_MISSING)):
        assert ("a", "Door") in faults(of(one), admit(one, on("n1", 0)))
        assert faults(of(one), Wait("ns/a", reason)) == set()
        assert ("a", "Reason") in faults(of(plain), Wait("ns/a", reason))


# Quotas


def test_a_limit_is_kept_at_every_ancestor() -> None:
    queues = (Queue("top", quotas=gpus(0, limit=2)), Queue("q", "top"), Queue("r", "top"))
    a, b = work("a", gpus=2), work("b", "r")
    world = of(a, b, queues=queues)
    assert faults(world, admit(a, on("n1", (0, 1))), Wait("ns/b", Reason.OVER_LIMIT)) == set()
    assert faults(world, admit(a, on("n1", (0, 1))), admit(b, on("n1", 2))) == {("b", "Limit")}


def test_a_limit_in_one_pool_is_counted_there_alone_and_a_percentage_of_what_is_alive() -> None:
    pools = (Pool("a", (Expression("pool", "In", ("a",)),)), Pool("b"))
    nodes = (node("n1", labels=(("pool", "a"),)), node("n2"), node("n3", is_ready=False))
    queues = (Queue("q", quotas=(Quota("b", (), ((GPU, Share(500, is_relative=True)),)),)),)
    three = work(gpus=3)
    world = of(three, pools=pools, nodes=nodes, queues=queues)
    assert faults(world, Admit("ns/a", at(on("n1", (0, 1, 2)), pool="a"))) == set()
    assert ("a", "Limit") in faults(world, Admit("ns/a", at(on("n2", (0, 1, 2)), pool="b")))


def test_fractions_and_mig_profiles_count_against_a_limit_of_gpus() -> None:
    queues = (Queue("q", quotas=gpus(0, limit=1)),)
    third = {"requests": (), "gpu_fraction": 300}
    four = work(count=4, pod=third)
    assert ("a", "Limit") in faults(of(four, queues=queues), admit(four, on("n1", 0, 0, 0, 1)))
    slices = work(gpus=0, count=3, pod={"requests": (("nvidia.com/mig-3g.40gb", 1),)})
    mig = replace(node(), capacity=(*node().capacity, ("nvidia.com/mig-3g.40gb", 8)))
    assert ("a", "Limit") in faults(of(slices, queues=queues, nodes=(mig,)), admit(slices, on("n1", count=3)))
    two = work(gpus=0, count=2, pod={"requests": (("nvidia.com/mig-3g.40gb", 1),)})
    assert faults(of(two, queues=queues, nodes=(mig,)), admit(two, on("n1", count=2))) == set()


def test_the_non_preemptible_stay_within_guaranteed_with_their_first_pods() -> None:
    queues = (Queue("top", quotas=gpus(2)), Queue("q", "top", quotas=gpus(4)))
    fixed = work(count=3, preemptible=False)
    assert ("a", "Guaranteed") in faults(of(fixed, queues=queues), admit(fixed, on("n1", 0, 1, 2)))
    elastic = work(count=3, least=2, preemptible=False)
    assert faults(of(elastic, queues=queues), admit(elastic, on("n1", 0, 1, 2))) == set()
    held = runs(work("r", preemptible=False), on("n1", 3))
    world = of(elastic, queues=queues, running=(held,))
    assert ("a", "Guaranteed") in faults(world, Keep("ns/r"), admit(elastic, on("n1", 0, 1)))


def test_a_budget_is_not_overrun() -> None:
    spent = Ledger(budget_spent=3000.0, budget_since=NOW - 10)
    queues = (Queue("q", budget=3600, budget_period=86400.0, ledger=spent),)
    short, long = work(time_limit=600.0), work(time_limit=601.0)
    assert faults(of(short, queues=queues), admit(short, on("n1", 0))) == set()
    assert ("a", "Budget") in faults(of(long, queues=queues), admit(long, on("n1", 0)))


def test_without_a_time_limit_a_day_counts_in_a_budget() -> None:
    runs_on, queues = runs(work("r"), on("n1", 0), admitted_at=NOW - 60), (Queue("q", budget=2 * 86_400),)
    assert faults(of(work(), queues=queues, running=(runs_on,)), Keep("ns/r"), admit(work(), on("n1", 1))) == set()
    wide = work(count=2)
    found = faults(of(wide, queues=queues, running=(runs_on,)), Keep("ns/r"), admit(wide, on("n1", 1, 2)))
    assert ("a", "Budget") in found


def test_a_budget_counts_what_runs_and_what_grows() -> None:
    queues = (Queue("q", budget=1800),)
    held, elastic = runs(work("r", time_limit=600.0), on("n1", 0), admitted_at=NOW), work("e", count=4, least=1)
    elastic = replace(elastic, time_limit=600.0)
    world = of(elastic, queues=queues, running=(held,))
    assert faults(world, Keep("ns/r"), admit(elastic, on("n1", 1, 2))) == set()
    assert faults(world, Keep("ns/r"), admit(elastic, on("n1", 1, 2, 3))) == {("e", "Budget")}
    world = of(queues=queues, running=(held, runs(elastic, on("n1", 1, 2), admitted_at=NOW)))
    grown = Resize("ns/e", (("main", 2),), (("main", 3),), at(on("n1", 1, 2, 3)))
    assert faults(world, Keep("ns/r"), grown) == {("e", "Budget")}


def test_a_budget_counts_what_stops_and_what_was_used_before() -> None:
    new, queues = work(time_limit=600.0), (Queue("q", budget=1200),)
    over = runs(work("r", time_limit=600.0), on("n1", 0), admitted_at=NOW - 610)
    left, cut = replace(over, is_leaving=True), replace(over, admitted_at=NOW - 590)
    again = runs(work("r", time_limit=600.0, attained=10.0), on("n1", 0), admitted_at=NOW)
    for held, verdict, is_fault in (
        (over, Finish("ns/r", Ending.TIME_LIMIT), True), (left, Keep("ns/r"), True), (again, Keep("ns/r"), True),
        (replace(cut, workload=replace(cut.workload, is_active=False)), Evict("ns/r", Cause.SUSPENDED), False),
    ):
        found = faults(of(new, queues=queues, running=(held,)), verdict, admit(new, on("n1", 1)))
        assert ("a", "Budget") in found if is_fault else not found
    used, waits = work("b", attained=601.0), Wait("ns/b", Reason.NO_ROOM)
    assert ("a", "Budget") in faults(of(new, used, queues=queues), admit(new, on("n1", 1)), waits)
    started = (Queue("q", budget=1200, budget_period=9e5, created=-NOW, ledger=Ledger(budget_since=NOW - 60)),)
    for end, is_fault in ((NOW - 59, True), (NOW - 60, False)):
        told = faults(of(new, replace(used, days=(("q", end, 600.0),)), queues=started), admit(new, on("n1", 1)), waits)
        assert (("a", "Budget") in told) is is_fault


def test_a_budget_counts_what_was_used_in_its_queue_wherever_that_is_now() -> None:
    new, queues = work(time_limit=600.0), (Queue("q", "p"), Queue("p", budget=1200), Queue("b"))
    for queue, where, is_fault in (("b", "q", True), ("b", "b", False), ("q", "b", False), ("q", "q", True)):
        used = work("b", queue=queue, attained=601.0, days=((where, NOW, 601.0),))
        told = faults(of(new, used, queues=queues), admit(new, on("n1", 1)), Wait("ns/b", Reason.NO_ROOM))
        assert (("a", "Budget") in told) is is_fault


# Resizing and finishing

ELASTIC = work("e", count=4, least=2)


def resize(before: int, after: int, *shares: NodeShare, **more: object) -> Resize:
    return Resize("ns/e", (("main", before),), (("main", after),), at(*shares), **more)


def test_growing_keeps_the_pods_that_stand_and_goes_behind_them() -> None:
    world = of(nodes=(node("n1"), node("n2")), running=(runs(ELASTIC, on("n1", 0, 1)),))
    assert faults(world, resize(2, 3, on("n1", 0, 1), on("n2", 0))) == set()
    for wrong in ((on("n1", 1, 0), on("n2", 0)), (on("n2", 0), on("n1", 0, 1)), (on("n1", 0), on("n2", 0, 1))):
        assert ("e", "Resize") in faults(world, resize(2, 3, *wrong))
    assert ("e", "Resize") in faults(world, resize(2, 4, on("n1", 0, 1), on("n2", 0)))
    assert ("e", "Resize") in faults(world, resize(2, 2, on("n1", 0, 1)))
    assert ("e", "Resize") in faults(world, resize(2, 5, on("n1", 0, 1), on("n2", 0, 1, 2)))


def test_growing_takes_only_what_is_free() -> None:
    other = runs(work("r", gpus=2), on("n1", (2, 3)))
    world = of(running=(runs(ELASTIC, on("n1", 0, 1)), other))
    assert {("e", "Room"), ("e", "Device")} <= faults(world, resize(2, 3, on("n1", 0, 1, 2)), Keep("ns/r"))


def test_shrinking_never_goes_below_the_minimum_and_moves_nobody() -> None:
    high = work("a", gpus=1, priority=1)
    world = of(high, running=(runs(ELASTIC, on("n1", 0, 1, 2, 3)),))
    def plan(*shares: NodeShare, count: int) -> set[tuple[str, str]]:
        return faults(world, resize(4, count, *shares, beneficiary="ns/a"), admit(high, on("n1", 3), after=("ns/e",)))
    assert plan(on("n1", 0, 1, 2), count=3) == set()
    assert ("e", "Resize") in plan(on("n1", 0), count=1)
    assert ("e", "Resize") in plan(on("n1", 1, 0, 2), count=3)


def test_only_who_has_run_to_its_limit_or_came_after_a_failure_is_finished() -> None:
    limited = work(time_limit=100.0)
    late, early = (runs(limited, on("n1", 0), admitted_at=NOW - ran) for ran in (100, 99))
    finish = Finish("ns/a", Ending.TIME_LIMIT)
    assert faults(of(running=(late,)), finish) == set()
    assert ("a", "Finish") in faults(of(running=(early,)), finish)
    after = work(after=("ns/b",))
    failed = Finish("ns/a", Ending.DEPENDENCY_FAILED)
    assert faults(of(after, ended=(Ended("ns/b", False),)), failed) == set()
    assert ("a", "Finish") in faults(of(after, ended=(Ended("ns/b", True),)), failed)
