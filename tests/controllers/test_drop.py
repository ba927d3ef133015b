"""What is left of a plan that the referee found faulty."""

from fairway.controllers.amend import drop
from fairway.engine import (
    Admission,
    Admit,
    Cause,
    Evict,
    Fault,
    Keep,
    Node,
    NodeShare,
    Plan,
    PodClass,
    PodSet,
    PodSetPlacement,
    Reason,
    Resize,
    Running,
    Verdict,
    Wait,
    Workload,
    World,
    amounts,
    snapshot_of,
)

HERE = Admission("default", (PodSetPlacement("main", (NodeShare("n1", 1),)),))


def workload(name: str) -> Workload:
    return Workload(f"ns/{name}", "q", (PodSet("main", 1, 1, PodClass(requests=amounts({"cpu": 1000}))),))


WORLD = snapshot_of(
    World(
        nodes=(Node("n1", capacity=amounts({"cpu": 4000, "pods": 10})),),
        pending=tuple(map(workload, "abc")),
        running=(
            *(Running(workload(name), HERE, 0.0) for name in "xyz"),
            Running(workload("p"), HERE, None, ("ns/x",), True),
        ),
    )
)


def left(*verdicts: Verdict, bad: str) -> dict[str, Verdict]:
    plan, _ = drop(WORLD, Plan(verdicts), [Fault(f"ns/{bad}", "Room")])
    return {it.workload.removeprefix("ns/"): it for it in plan.verdicts}


def test_a_faulty_start_waits_and_nobody_else_is_touched() -> None:
    rest = left(Admit("ns/a", HERE), Admit("ns/b", HERE), Keep("ns/x"), bad="a")
    assert rest == {"a": Wait("ns/a", Reason.REFUSED), "b": Admit("ns/b", HERE), "x": Keep("ns/x")}


def test_no_workload_is_evicted_for_a_start_that_was_dropped() -> None:
    rest = left(Admit("ns/a", HERE, ("ns/x",)), Evict("ns/x", Cause.PREEMPTED, "ns/a"), bad="a")
    assert rest == {"a": Wait("ns/a", Reason.REFUSED), "x": Keep("ns/x")}


def test_a_start_that_counts_on_a_dropped_eviction_is_dropped_with_what_was_evicted_for_it() -> None:
    rest = left(
        Admit("ns/a", HERE, ("ns/x",)), Evict("ns/x", Cause.PREEMPTED, "ns/a"),
        Admit("ns/b", HERE, ("ns/x", "ns/y")), Evict("ns/y", Cause.PREEMPTED, "ns/b"),
        Admit("ns/c", HERE, ("ns/z",)), Evict("ns/z", Cause.PREEMPTED, "ns/c"), bad="a",
    )  # fmt: skip
    assert [type(rest[name]) for name in "axbycz"] == [Wait, Keep, Wait, Keep, Admit, Evict]


def test_a_promise_stands_though_its_verdict_was_dropped() -> None:
    assert left(Evict("ns/p", Cause.DRAINED), Keep("ns/x"), bad="p")["p"] == Admit("ns/p", HERE, ("ns/x",))


def test_a_verdict_about_nobody_is_dropped() -> None:
    assert left(Keep("ns/x"), Admit("ns/ghost", HERE), bad="ghost") == {"x": Keep("ns/x")}


def test_a_growth_and_the_shrinking_for_it_are_dropped_together() -> None:
    one, two = (("main", 1),), (("main", 2),)
    shrink, grow = Resize("ns/x", two, one, HERE, "ns/y"), Resize("ns/y", one, two, HERE)
    for bad in "xy":
        assert left(shrink, grow, bad=bad) == {"x": Keep("ns/x"), "y": Keep("ns/y")}
