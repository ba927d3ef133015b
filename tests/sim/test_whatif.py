"""What would be: a plan that is explained, and one workload that is asked about."""

from dataclasses import replace

from fairway.engine import Admission, NodeShare, PodSetPlacement, Running, Wait, Workload, World, decide, snapshot_of
from fairway.engine.model import GPU, Node, Pause, Pod, PodClass, PodSet, Queue, Quota, Share
from fairway.engine.policy import Policy
from fairway.offline.whatif import FEW, Case, explained

NOW = 1_000_000.0


def pod(gpus: int) -> tuple[PodSet, ...]:
    return (PodSet("main", 1, 1, PodClass(requests=((GPU, gpus * 1000),))),)


def busy(nodes: int, waiting: int) -> World:
    """Each node of two GPUs is held by one workload; others wait for as many."""
    offers = (("cpu", 64_000), ("memory", 2**40), (GPU, 2000), ("pods", 110))
    at = [f"n{number:03}" for number in range(nodes)]
    running = [
        Running(Workload(f"ns/r{name}", "q", pod(2)),
                Admission("default", (PodSetPlacement("main", (NodeShare(name, 1),)),)), admitted_at=NOW - 60)
        for name in at
    ]  # fmt: skip
    pending = [Workload(f"ns/w{number:02}", "q", pod(2), submitted=number) for number in range(waiting)]
    return World(
        NOW, tuple(Node(name, (), offers) for name in at), queues=(Queue("q"),), pending=tuple(pending),
        running=tuple(running),
    )  # fmt: skip


def test_the_first_waits_are_explained_however_many_run_and_wait() -> None:
    world = busy(nodes=130, waiting=FEW + 3)
    plan = explained(world, decide(snapshot_of(world), Policy()), Policy())
    waits = [it for it in plan.verdicts if isinstance(it, Wait)]
    assert [len(it.facts.blocking) for it in waits] == [*range(1, FEW + 1), 0, 0, 0]


def test_behind_many_that_wait_the_holders_of_the_gpus_are_named_all_the_same() -> None:
    changes, _ = Case(busy(nodes=2, waiting=500), Policy(), "ns/w499").helps()
    assert changes == ["rn000 and rn001 hold 4 GPUs"]
    alone = replace(busy(nodes=1, waiting=0), pending=(Workload("ns/big", "q", pod(9)),))
    assert Case(alone, Policy(), "ns/big").helps()[0] == []  # nobody is in the way of what never fits


def test_what_is_leaving_and_what_takes_its_room_hold_it_once() -> None:
    world = busy(nodes=1, waiting=13)
    (old,) = world.running
    leaving = replace(old, is_leaving=True, leaving_since=NOW - 9)
    next_one = replace(old, workload=replace(old.workload, key="ns/next"), admitted_at=None, is_promised=True,
                       waits_for=(old.workload.key,))  # fmt: skip
    changes, _ = Case(replace(world, running=(leaving, next_one)), Policy(), "ns/w12").helps()
    assert changes == ["rn000 holds 2 GPUs", "next takes 2 GPUs as soon as what is evicted for it has stopped"]


def test_who_lacks_memory_learns_which_paused_workload_holds_it_and_what_frees_it() -> None:
    held, asked = (PodClass(requests=(("memory", amount * 2**30),)) for amount in (1000, 100))
    frozen = Pod("ns/a-1", "n000", held, pause=Pause("ns/a", "q", NOW - 60))
    ours = Workload("ns/w", "q", (PodSet("main", 1, 1, asked),))
    world = replace(busy(nodes=1, waiting=0), running=(), pods=(frozen,), pending=(ours,))
    (change,), _ = Case(world, Policy(), "ns/w").helps()
    assert change.startswith("a holds 1000 GiB of memory while paused in memory: `fairway resume` lets it end, ")
    assert Case(replace(world, pods=()), Policy(), "ns/w").helps() == ([], None)


def test_where_there_is_no_forecast_the_reason_is_told() -> None:
    world = busy(nodes=1, waiting=3)
    assert Case(world, Policy(), "ns/w00").unforeseen() == ""
    assert Case(world, Policy(), "ns/w02").unforeseen().startswith("w00 waits before it, and nothing says for how long")
    gated = replace(world.pending[0], gates=("other.dev/gate",))
    assert Case(replace(world, pending=(gated, *world.pending[1:])), Policy(), "ns/w01").unforeseen() == ""
    comes = replace(world.pending[0], after=("ns/rn000",))
    assert Case(replace(world, pending=(comes,)), Policy(), "ns/w00").unforeseen().startswith("rn000 runs before it,")
    poor = replace(world, queues=(Queue("q", budget=3600),), running=())
    assert Case(poor, Policy(), "ns/w02").unforeseen() == "it needs more than the whole budget of queue q"
    after = replace(world.pending[2], after=("ns/gone",))
    lost = replace(world, pending=(*world.pending[:2], after))
    assert Case(lost, Policy(), "ns/w02").unforeseen() == "nothing says when what it comes after ends"


def test_a_queue_without_quotas_is_named_where_it_holds_what_another_is_owed() -> None:
    world = busy(nodes=1, waiting=0)
    owed = Queue("nlp", quotas=(Quota(guaranteed=((GPU, Share(2000)),)),))
    asks = replace(world, queues=(Queue("q"), owed), pending=(Workload("ns/w", "nlp", pod(2)),))
    changes, _ = Case(asks, Policy(), "ns/w").helps()
    assert changes[0] == "rn000 holds it" and changes[1].startswith("queue q has no quota of GPUs")
    lends = replace(asks, queues=(Queue("q", quotas=(Quota(guaranteed=((GPU, Share(0)),)),)), owed))
    assert not any("no quota" in one for one in Case(lends, Policy(), "ns/w").helps()[0])
