"""Elastic workloads that run and get no more pods: the plan says why."""

from cases import GPU, NOW, gpus, node, of, on, runs, work

from fairway.engine import FAIRWAY, Keep, Queue, Reason, decide
from fairway.engine.plan import Why
from fairway.engine.state import snapshot_of

ELASTIC = runs(work("e", count=4, least=1), on("n1", 0))


def short(*pending, **more) -> Why:
    """Why `e` grows no further."""
    world = of(*pending, **{"now": NOW, "nodes": (node(),), "queues": (Queue("q"),), "running": (ELASTIC,), **more})
    said = {it.workload: it for it in decide(snapshot_of(world), FAIRWAY).verdicts}["ns/e"]
    assert isinstance(said, Keep) and said.short is not None
    return said.short


def test_what_finds_no_room_to_grow_says_what_a_pod_more_needs() -> None:
    reason, facts = short(running=(ELASTIC, runs(work("o", gpus=3), on("n1", (1, 2, 3)))))
    assert (reason, facts.resource, facts.needed, facts.missing) == (Reason.NO_ROOM, GPU, 1000, 1000)


def test_what_a_limit_keeps_from_growing_says_so() -> None:
    reason, facts = short(queues=(Queue("q", quotas=gpus(0, limit=1)),))
    assert (reason, facts.queue, facts.bounds) == (Reason.OVER_LIMIT, "q", {GPU: 1000})


def test_what_would_take_room_that_is_kept_for_another_says_so() -> None:
    ending = runs(work("r", gpus=2, time_limit=90_300.0), on("n1", (1, 2)))
    assert short(work("b", gpus=3), running=(ELASTIC, ending))[0] is Reason.HELD_FOR


def test_what_has_all_its_pods_says_nothing() -> None:
    whole = runs(work("e", count=4, least=1), on("n1", 0, 1, 2, 3))
    world = of(now=NOW, nodes=(node(),), queues=(Queue("q"),), running=(whole,))
    assert decide(snapshot_of(world), FAIRWAY).verdicts == (Keep("ns/e"),)
