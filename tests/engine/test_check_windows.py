"""The referee refuses what takes reserved room, promises room or quota twice, or overdraws an eviction budget."""

from dataclasses import replace

import pytest
from builders import NOW, job, milli, node, place_on, plan_of, queue, runs, verdicts, world

from fairway.engine import decide, snapshot_of
from fairway.engine.model import GPU, Decayed, Ledger, Pool, Reservation
from fairway.engine.plan import Admit, Cause, Evict, Plan, Wait
from fairway.engine.policy import Policy
from fairway.referee import check

HOUR = 3600.0


def faults(plan_changes, *things):
    """The rules that a plan breaks once these verdicts are changed."""
    snapshot = snapshot_of(world(*things))
    plan = decide(snapshot, Policy())
    assert check(snapshot, plan) == []
    changed = {one.workload: one for one in plan_changes}
    said = tuple(changed.pop(one.workload, one) for one in plan.verdicts) + tuple(changed.values())
    return {(fault.workload, fault.rule) for fault in check(snapshot, replace(plan, verdicts=said))}


def reserved(name: str, queue: str, starts: float, gpus: int = 8) -> Reservation:
    return Reservation(name, NOW + starts * HOUR, 2 * HOUR, queue=queue, pool="default", amount=((GPU, milli(gpus)),))


def test_room_of_reservations_whose_windows_overlap_is_not_given_away() -> None:
    nodes = node("n1", 8, chooser="Kubelet"), node("n2", 8, chooser="Kubelet")
    things = *nodes, queue("a"), queue("b"), queue("c"), job("w", "c", 8, preemptible=False, time_limit=4 * HOUR)
    start = Admit("ns/w", place_on(("n2", 1)))
    assert faults([start], *things, reserved("ra", "a", 1), reserved("rb", "b", 2)) == {("ns/w", "Reserved")}
    assert faults([start], *things, reserved("ra", "a", 1), reserved("rb", "b", 3.5)) == set()


def test_what_a_queue_uses_already_is_not_kept_for_it_again() -> None:
    nodes = node("n1", 8, chooser="Kubelet"), node("n2", 8, chooser="Kubelet")
    theirs, other = job("m", "a", 8, preemptible=False), job("w", "c", 8, preemptible=False)
    found = faults([], *nodes, queue("a"), queue("c"), runs(theirs, "n2"), reserved("ra", "a", -1), other)
    assert found == set()


@pytest.mark.parametrize(("second", "found"), [(1.0, {("ns/v", "Hold"), ("ns/w", "Hold")}), (2.0, set())])
def test_room_is_not_promised_twice(second, found) -> None:
    things = node("n", 8, chooser="Kubelet"), queue("q"), Pool("default", hold_depth=-1)
    line = [job(name, gpus=8, preemptible=False, time_limit=HOUR, submitted=at) for at, name in enumerate("vw")]
    busy = runs(job("r", gpus=8, preemptible=False, time_limit=HOUR), "n", since=NOW)
    said = verdicts(plan_of(*things, *line, busy))
    assert isinstance(said["w"], Wait) and said["w"].starts_at == NOW + 2 * HOUR
    late = replace(said["w"], starts_at=NOW + second * HOUR)
    assert faults([late], *things, *line, busy) == found


def test_quota_is_not_promised_twice() -> None:
    things = node("n1", 8, chooser="Kubelet"), node("n2", 8, chooser="Kubelet"), Pool("default", hold_depth=2)
    line = [job(name, "a", 8, submitted=at) for at, name in enumerate("vw")]
    busy = [runs(job(f"r{at}", "o", 8, preemptible=False, time_limit=at * HOUR), f"n{at}", since=NOW) for at in (1, 2)]
    queues = queue("a", 0, 8, weight=0), queue("o")
    said = verdicts(plan_of(*things, *queues, *line, *busy))
    assert isinstance(said["w"], Wait) and said["w"].starts_at is None
    both = replace(said["w"], starts_at=NOW + 2 * HOUR, held=place_on(("n2", 1)))
    assert ("ns/w", "Hold") in faults([both], *things, *queues, *line, *busy)


def test_nobody_is_evicted_past_the_eviction_budget() -> None:
    full = Ledger(evicted=(("default", Decayed(1000, NOW)),))
    things = (
        node("n", 4, chooser="Kubelet"), Pool("default", eviction_gpus=1000), queue("a", 2), queue("b", 0, ledger=full),
        runs(job("x", "b", 4), "n", since=NOW - HOUR), job("w", "a", 2),
    )  # fmt: skip
    taken = Admit("ns/w", place_on(("n", 1)), ("ns/x",)), Evict("ns/x", Cause.RECLAIMED, "ns/w")
    assert ("ns/x", "Victim") in faults(taken, *things)
    assert isinstance(plan_of(*things), Plan)
