"""The referee on victims and on time: each broken promise is found and named."""

from dataclasses import replace

import pytest
from cases import FULL, GPU, NOW, admit, at, faults, gpus, node, of, on, runs, work

from fairway.engine.model import Admission, Disruption, Eviction, Expression, Queue, Reservation, Workload
from fairway.engine.plan import Cause, Evict, Keep, Reason, Resize, Wait

# Victims




def preempt(victim: Workload, taker: Workload, **more: object) -> set[tuple[str, str]]:
    queues = more.pop("queues", (Queue("q"),))
    world = of(taker, running=(runs(victim, FULL, **more),), queues=queues)
    return faults(world, Evict(victim.key, Cause.PREEMPTED, taker.key), admit(taker, FULL, after=(victim.key,)))


def test_only_strictly_lower_preemptible_ones_of_the_same_queue_are_preempted() -> None:
    taker = work("a", gpus=4, priority=1)
    assert preempt(work("v", gpus=4), taker) == set()
    assert ("v", "Victim") in preempt(work("v", gpus=4, priority=1), taker)
    assert ("v", "Victim") in preempt(work("v", gpus=4, preemptible=False), taker)
    other = (Queue("q"), Queue("r"))
    assert ("v", "Victim") in preempt(work("v", "r", gpus=4), taker, queues=other)


def test_protection_holds_against_preemption() -> None:
    taker = work("a", gpus=4, priority=1)
    assert ("v", "Victim") in preempt(work("v", gpus=4), taker, queues=(Queue("q", preempt_min_runtime=600.0),),
                                      admitted_at=NOW - 599)
    often = work("v", gpus=4, evictions=tuple(Eviction(NOW - 10 * n, "Preempted") for n in range(6)))
    assert ("v", "Victim") in preempt(often, taker)
    pair = work("v", gpus=4, evictions=(Eviction(NOW - 10, "Preempted", "q", "ns/a"),))
    assert ("v", "Victim") in preempt(pair, taker)


def test_an_eviction_that_exceeds_a_disruption_budget_names_it() -> None:
    taker, victim = work("a", gpus=4, priority=1), work("v", gpus=4, pod={"labels": (("app", "x"),)})
    world = of(taker, running=(runs(victim, FULL),), queues=(Queue("q"),))
    for allowed, app, budget, is_fault in (
        (0, "x", "ns/b", False), (0, "x", "", True), (1, "x", "", False), (0, "y", "", False), (0, "y", "ns/b", True),
    ):
        covers = Disruption("ns/b", (Expression("app", "In", (app,)),), allowed)
        evict = Evict("ns/v", Cause.PREEMPTED, "ns/a", budget=budget)
        found = faults(replace(world, disruptions=(covers,)), evict, admit(taker, FULL, after=("ns/v",)))
        assert (("v", "Disruption") in found) is is_fault


def test_nobody_is_evicted_for_one_who_does_not_start_after_it() -> None:
    taker = work("a", gpus=4, priority=1)
    world = of(taker, running=(runs(work("v", gpus=4), FULL),))
    evict = Evict("ns/v", Cause.PREEMPTED, "ns/a")
    assert ("v", "Vain") in faults(world, evict, Wait("ns/a", Reason.NO_ROOM))
    assert ("v", "Vain") in faults(world, replace(evict, beneficiary="ns/ghost"), Wait("ns/a", Reason.NO_ROOM))


def test_a_victim_that_was_not_needed_is_named_and_no_other() -> None:
    taker = work("a", gpus=2, priority=1)
    victims = tuple(runs(work(key, gpus=2), on("n1", devices)) for key, devices in (("v", (0, 1)), ("w", (2, 3))))
    plan = (Evict("ns/v", Cause.PREEMPTED, "ns/a"), Evict("ns/w", Cause.PREEMPTED, "ns/a"),
            admit(taker, on("n1", (0, 1)), after=("ns/v", "ns/w")))
    assert faults(of(taker, running=victims), *plan) == {("w", "Needed")}


@pytest.mark.parametrize("least, needed", [(1, set()), (2, {("w", "Needed")})])
def test_who_gave_surplus_before_it_went_for_a_later_one_is_judged_of_nothing(least: int, needed: set) -> None:
    """`a` takes a pod each of `v` and `w`; then `b` takes all that `v` has, and needs less."""
    costly = {"requests": (("cpu", 4000), (GPU, 1000))}
    v, w = work("v", count=2, least=least, pod=costly), work("w", count=2, least=1)
    a = work("a", priority=2, pod={"requests": (("cpu", 4000), (GPU, 2000))})
    b = work("b", gpus=0, priority=1, pod={"requests": (("cpu", 4000),)})
    two, one = on("n1", count=2), on("n1", count=1)
    world = of(a, b, nodes=(node(chooser="Kubelet", devices=()),), running=(runs(v, two), runs(w, two)))
    assert faults(
        world, Evict(v.key, Cause.PREEMPTED, b.key),
        Resize(w.key, (("main", 2),), (("main", 1),), at(one), beneficiary=a.key),
        admit(a, one, after=(v.key, w.key)), admit(b, one, after=(v.key,)),
    ) == needed  # fmt: skip


def test_a_victim_may_be_needed_for_a_limit_alone() -> None:
    queues = (Queue("q", quotas=gpus(0, limit=1)),)
    taker, victim = work("a", priority=1), runs(work("v"), on("n1", 0))
    world = of(taker, running=(victim,), queues=queues)
    assert faults(world, Evict("ns/v", Cause.PREEMPTED, "ns/a"), admit(taker, on("n1", 1), after=("ns/v",))) == set()


@pytest.mark.parametrize("cause", [Cause.DRAINED, Cause.NODE_LOST, Cause.PODS_LOST, Cause.SUSPENDED, Cause.RESERVED])
def test_nobody_is_evicted_for_a_cause_that_is_not_there(cause: Cause) -> None:
    assert ("a", "Victim") in faults(of(running=(runs(work(), on("n1", 0)),)), Evict("ns/a", cause))


def test_a_node_that_drains_and_a_queue_that_drains_are_causes() -> None:
    world = of(running=(runs(work(), on("n1", 0)),))
    assert faults(replace(world, nodes=(node(is_unhealthy=True),)), Evict("ns/a", Cause.DRAINED)) == set()
    assert faults(replace(world, queues=(Queue("q", stop="Drain"),)), Evict("ns/a", Cause.DRAINED)) == set()
    assert ("a", "Victim") in faults(replace(world, nodes=(node(is_unschedulable=True),)), Evict("ns/a", Cause.DRAINED))


# Reclaim

OWED = (Queue("q", quotas=gpus(2), min_runtime=0.0), Queue("r", quotas=gpus(2), min_runtime=0.0))
SHARES = {("q", "*", GPU): 2000, ("r", "*", GPU): 2000}


def reclaim(taker: Workload, *lost: int, queues: tuple[Queue, ...] = OWED, shares: dict = SHARES, **more: object):
    """Four single-GPU workloads of r run on the node; those named by number are reclaimed for the taker."""
    running = tuple(runs(work(f"v{at}", "r"), on("n1", at), **more) for at in range(4))
    said = [Evict(one.workload.key, Cause.RECLAIMED, taker.key) if at in lost else Keep(one.workload.key)
            for at, one in enumerate(running)]
    start = admit(taker, on("n1", lost), after=tuple(f"ns/v{at}" for at in lost))
    return faults(of(taker, running=running, queues=queues), *said, start, shares=shares)


def test_a_queue_takes_back_what_it_is_owed() -> None:
    assert reclaim(work("a", gpus=2), 0, 1) == set()


def test_nobody_takes_back_more_than_its_share() -> None:
    assert ("a", "Entitled") in reclaim(work("a", gpus=3), 0, 1, 2)


def test_who_moves_with_fewer_pods_is_judged_by_all_that_it_had() -> None:
    """Of five GPUs, one above what is due, a gang of three is moved as one of one."""
    wide, fixed = work("v", "r", count=3, least=1), work("w", "r", gpus=2)
    running = runs(wide, on("n1", 0, 1, 2)), runs(fixed, on("n2", (0, 1)))
    queues = (Queue("q", quotas=gpus(8)), Queue("r", quotas=gpus(4), min_runtime=0.0))
    world = of(work("a", gpus=4), nodes=(node(), node("n2")), running=running, queues=queues)
    moved = Evict(wide.key, Cause.RECLAIMED, "ns/a", at(on("n2", 2)))
    plan = moved, admit(work("a", gpus=4), FULL, after=(wide.key,)), Keep(fixed.key)
    assert faults(world, *plan, shares={("q", "*", GPU): 4000, ("r", "*", GPU): 4000}) == set()
    due = replace(world, queues=(queues[0], Queue("r", quotas=gpus(5), min_runtime=0.0)))
    assert ("v", "Entitled") in faults(due, *plan, shares={("q", "*", GPU): 3000, ("r", "*", GPU): 5000})


def test_no_queue_loses_what_it_is_due() -> None:
    queues = (Queue("q", quotas=gpus(2), min_runtime=0.0), Queue("r", quotas=gpus(4), min_runtime=0.0))
    found = reclaim(work("a", gpus=2), 0, 1, queues=queues, shares={("q", "*", GPU): 2000, ("r", "*", GPU): 2000})
    assert any(rule == "Entitled" for _, rule in found)


def test_shares_that_no_division_gives_entitle_to_nothing() -> None:
    wrong = {("q", "*", GPU): 3000, ("r", "*", GPU): 2000}
    assert ("a", "Entitled") in reclaim(work("a", gpus=3), 0, 1, 2, shares=wrong)


def test_the_child_of_a_parent_without_quotas_loses_nothing_that_it_is_due() -> None:
    queues = (OWED[0], Queue("top"), Queue("r", "top", quotas=gpus(2), min_runtime=0.0))
    assert reclaim(work("a", gpus=2), 0, 1, queues=queues) == set()
    queues = (*queues[:2], Queue("r", "top", quotas=gpus(4), min_runtime=0.0))
    assert any(rule == "Entitled" for _, rule in reclaim(work("a", gpus=2), 0, 1, queues=queues))


def test_siblings_of_a_parent_without_quotas_divide_with_the_queues_beside_it() -> None:
    queues = (OWED[0], Queue("top"), Queue("r", "top", quotas=gpus(2), min_runtime=0.0))
    wrong = {("q", "*", GPU): 3000, ("r", "*", GPU): 2000}
    assert ("a", "Entitled") in reclaim(work("a", gpus=3), 0, 1, 2, queues=queues, shares=wrong)


def test_a_child_is_due_no_more_in_a_pool_than_its_parent_in_all() -> None:
    queues = (Queue("top", quotas=gpus(1)), Queue("q", "top", quotas=gpus(2, pool="default")),
              Queue("r", quotas=gpus(0), min_runtime=0.0))
    shares = {("top", "*", GPU): 1000, ("q", "default", GPU): 2000, ("r", "*", GPU): 2000}
    assert any(rule == "Entitled" for _, rule in reclaim(work("a", gpus=2), 0, 1, queues=queues, shares=shares))
    queues = (Queue("top", quotas=gpus(2)), *queues[1:])
    shares[("top", "*", GPU)] = 2000
    assert reclaim(work("a", gpus=2), 0, 1, queues=queues, shares=shares) == set()


def test_reclaim_is_not_for_ones_own_queue_and_spares_the_young() -> None:
    taker = work("a", gpus=4)
    world = of(taker, running=(runs(work("v", gpus=4), FULL),))
    assert ("v", "Victim") in faults(world, Evict("ns/v", Cause.RECLAIMED, "ns/a"), admit(taker, FULL, after=("ns/v",)))
    lent = (Queue("q", quotas=gpus(0)), Queue("r", quotas=gpus(0), min_runtime=600.0))
    young = reclaim(work("a", gpus=2), 0, 1, queues=lent, shares=SHARES, admitted_at=NOW - 500)
    assert {("v0", "Victim"), ("v1", "Victim")} <= young
    assert reclaim(work("a", gpus=2), 0, 1, queues=lent, shares=SHARES, admitted_at=NOW - 700) == set()


@pytest.mark.parametrize("queues", [OWED[:1], (OWED[0], Queue("r", min_runtime=0.0))])
def test_what_no_quota_governs_is_not_taken_back(queues: tuple[Queue, ...]) -> None:
    """Its queue is gone, or has no quotas."""
    assert any(rule == "Entitled" for _, rule in reclaim(work("a", gpus=2), 0, 1, queues=queues))


def test_who_grows_behind_does_not_count_at_the_turn_of_who_came_before_it() -> None:
    """With the minimum of the elastic one the taker is within guaranteed, against which worn ones are not protected."""
    queues = (Queue("q", quotas=gpus(2)),)
    worn = work("v", gpus=1, evictions=tuple(Eviction(NOW - 10 * n, "Preempted") for n in range(1, 7)))
    wide, taker = work("w", count=3, least=1), work("a", priority=1)
    world = of(wide, taker, running=(runs(worn, on("n1", 3)),), queues=queues)
    plan = (admit(wide, on("n1", 0, 1, 2)), Evict(worn.key, Cause.PREEMPTED, taker.key),
            admit(taker, on("n1", 3), after=(worn.key,)))
    assert faults(world, *plan) == {("v", "Victim")}
    assert faults(replace(world, queues=(Queue("q", quotas=gpus(3)),)), *plan) == set()


def test_a_move_needs_the_leave_of_both_queues_and_a_place() -> None:
    nodes = (node("n1"), node("n2"))
    taker, small = work("a", gpus=4), runs(work("v"), on("n1", 0))
    full = runs(work("w", gpus=2), on("n2", (0, 1)))
    def plan(queue: Queue, to: Admission | None) -> set[tuple[str, str]]:
        move = Evict("ns/v", Cause.CONSOLIDATED, "ns/a", to)
        world = of(taker, nodes=nodes, running=(small, full), queues=(queue,))
        return faults(world, move, Keep("ns/w"), admit(taker, FULL, after=("ns/v",)))
    willing = Queue("q", consolidates=True, min_runtime=0.0)
    assert plan(willing, at(on("n2", 2))) == set()
    assert ("v", "Victim") in plan(Queue("q"), at(on("n2", 2)))
    assert ("v", "Victim") in plan(willing, None)
    assert ("v", "Device") in plan(willing, at(on("n2", 0)))


# Time


def test_a_hold_is_not_delayed_by_who_stays_too_long() -> None:
    big = work("b", gpus=4)
    runner = runs(work("r", gpus=2, time_limit=90_300.0), on("n1", (0, 1)))
    hold = Wait("ns/b", Reason.NO_ROOM, starts_at=NOW + 300, held=at(FULL))
    def plan(**more: object) -> set[tuple[str, str]]:
        behind = more.pop("backfilled_for", "")
        one = work("s", **more)
        start = admit(one, on("n1", 2), backfilled_for=behind)
        return faults(of(big, one, running=(runner,)), Keep("ns/r"), hold, start)
    assert ("s", "Hold") in plan()
    assert ("s", "Hold") in plan(time_limit=301.0)
    assert plan(time_limit=300.0) == set()
    assert plan(backfilled_for="ns/b") == set()
    assert ("s", "Hold") in plan(backfilled_for="ns/b", preemptible=False)


def test_only_who_backfilled_is_evicted_for_the_hold() -> None:
    big = work("b", gpus=4)
    for behind, expected in (("ns/b", set()), ("", {("s", "Victim")})):
        risky = runs(work("s", "other", gpus=4, preemptible=True), FULL, backfilled_for=behind)
        world = of(big, running=(risky,), queues=(Queue("q"), Queue("other")))
        plan = (Evict("ns/s", Cause.HOLD_TAKEN, "ns/b"), admit(big, FULL, after=("ns/s",)))
        assert faults(world, *plan) == expected


def test_nodes_of_a_reservation_are_for_its_queue_in_the_window_and_for_who_is_gone_before_it() -> None:
    window = Reservation("night", NOW + 100, 3600.0, queue="top", nodes=("n1",))
    queues = (Queue("top"), Queue("mine", "top"), Queue("q"))
    def plan(one: Workload, start: float) -> set[tuple[str, str]]:
        world = of(one, queues=queues, reservations=(replace(window, start=start),))
        return faults(world, admit(one, on("n1", 0)))
    assert plan(work("a", "mine"), NOW) == set()
    assert ("a", "Reserved") in plan(work("a"), NOW)
    assert plan(work("a"), NOW + 100) == set()  # preemptible: it can be gone in time
    fixed = work("a", preemptible=False, time_limit=101.0)
    assert ("a", "Reserved") in plan(fixed, NOW + 100)
    assert plan(replace(fixed, time_limit=100.0), NOW + 100) == set()
    daily = replace(window, start=NOW - 86400.0, repeat="Daily")
    assert ("a", "Reserved") in faults(of(work(), queues=queues, reservations=(daily,)), admit(work(), on("n1", 0)))


# Growth


def grows(taker: Workload, victim: Workload, *, share: int = 2) -> set[tuple[str, str]]:
    """What is wrong if the taker grows to two pods of one GPU and the victim shrinks from three to two for it."""
    world = of(
        running=(runs(taker, on("n1", 0)), runs(victim, on("n1", 1, 2, 3))),
        queues=(Queue("q", quotas=gpus(0)), Queue("r", quotas=gpus(0))),
    )
    shrink = Resize(victim.key, (("main", 3),), (("main", 2),), at(on("n1", 1, 2)), taker.key)
    grow = Resize(taker.key, (("main", 1),), (("main", 2),), at(on("n1", 0, 3)))
    due = {("q", "*", GPU): share * 1000, ("r", "*", GPU): (4 - share) * 1000}
    return faults(world, shrink, grow, shares=due)


def test_surplus_is_given_for_growth_by_the_rights_by_which_it_is_given_for_a_start() -> None:
    wide, young = work("w", "r", count=4, least=1), work("y", "q", count=4, least=1)
    assert grows(young, wide) == set()
    assert grows(young, wide, share=1) == {("y", "Entitled"), ("w", "Entitled")}
    low = work("w", "q", count=4, least=1)
    assert ("w", "Victim") in grows(young, low)
    assert grows(work("y", "q", count=4, least=1, priority=1), low) == set()


def test_nobody_shrinks_or_stops_for_one_who_does_not_grow() -> None:
    wide, young = work("w", "r", count=4, least=1), work("y", "q", count=4, least=1)
    world = of(
        running=(runs(young, on("n1", 0)), runs(wide, on("n1", 1, 2, 3))),
        queues=(Queue("q", quotas=gpus(0)), Queue("r", quotas=gpus(0))),
    )
    shrink = Resize(wide.key, (("main", 3),), (("main", 2),), at(on("n1", 1, 2)), young.key)
    assert ("w", "Vain") in faults(world, shrink, Keep(young.key))
    evict, grow = Evict(wide.key, Cause.RECLAIMED, young.key), Resize(
        young.key, (("main", 1),), (("main", 2),), at(on("n1", 0, 3))
    )
    assert {("w", "Vain"), ("y", "Room")} <= faults(world, evict, grow)
