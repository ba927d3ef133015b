"""What would let a workload start now: each change that is told is applied here, and the start is seen."""

from dataclasses import replace

import pytest
from builders import NOW, job, node, plan_of, queue, runs, verdicts, world

from fairway.engine import Admit, Facts, PodSet, Policy, Snapshot, Topology, Wait, World, decide, snapshot_of
from fairway.engine.model import GPU, Expression, Ledger, Pool, Reservation, amounts
from fairway.outlook import what_if
from fairway.outlook.whatif import WhatIf

HOUR = 3600.0
RACKS = (Pool("default", levels=("rack", "kubernetes.io/hostname")),)


def told(*things, **fields) -> Facts:
    """Of the workload `a`, that waits."""
    wait = verdicts(plan_of(*things, **fields))["a"]
    assert isinstance(wait, Wait)
    return what_if(world(*things, **fields), wait, Policy())


def starts(*things, **fields) -> bool:
    found = verdicts(plan_of(*things, **fields))["a"]
    return isinstance(found, Admit) and not found.after


def test_with_fewer_pods() -> None:
    cluster = (node("n1", 2), node("n2", 1), queue("q"))
    assert told(*cluster, job("a", gpus=1, count=8)).would_fit == {"main": 3}
    assert starts(*cluster, job("a", gpus=1, count=3)) and not starts(*cluster, job("a", gpus=1, count=4))


def test_with_fewer_gpus() -> None:
    cluster = (node("n1", 8), queue("q"), runs(job("old", gpus=2), "n1"))
    assert told(*cluster, job("a", gpus=8)).with_gpus == 6000
    assert starts(*cluster, job("a", gpus=6)) and not starts(*cluster, job("a", gpus=7))


def test_in_another_queue() -> None:
    cluster = (node("n1", 8), queue("q", 1, 1), queue("r", 1, 1), queue("s", 4, 4))
    assert told(*cluster, job("a", gpus=4)).other_queue == "s"
    assert starts(*cluster, job("a", queue="s", gpus=4)) and not starts(*cluster, job("a", queue="r", gpus=4))


def test_nothing_is_decided_where_the_nodes_lack_the_room() -> None:
    queues = queue("q"), queue("r"), queue("s")
    sizes, found = counted(world(node("n1", 8), *queues, runs(job("old", gpus=6), "n1"), job("a", gpus=8)))
    assert (found[0].blocking, found[0].with_gpus) == (("ns/old",), 2000)
    assert sizes == [3]  # the state as it is, without the workload in the way, with fewer GPUs; no other queue


def test_not_in_a_queue_that_would_not_take_it() -> None:
    cluster = (node("n1", 8), queue("q", 1, 1), queue("s", 4, 4, namespaces=frozenset({"others"})))
    assert told(*cluster, job("a", gpus=4)).other_queue == ""


def test_in_another_pool() -> None:
    pools = tuple(Pool(name, (Expression("pool", "In", (name,)),)) for name in ("a100", "default"))
    cluster = (node("n1", 1, labels={"pool": "a100"}), node("n2", 4, labels={"pool": "default"}), queue("q"))
    assert told(*cluster, job("a", gpus=4, pools=("a100",)), pools=pools).other_pool == "default"
    assert starts(*cluster, job("a", gpus=4, pools=("default",)), pools=pools)


def test_without_its_required_topology() -> None:
    racks = [node(f"n{n}", 2, labels={"rack": f"r{n // 2}"}) for n in range(4)]
    taken = runs(job("old", gpus=1), "n0"), runs(job("old2", gpus=1), "n2")
    bound = job("a", gpus=2, count=2, topology=Topology(required="rack"))
    assert told(*racks, queue("q"), *taken, bound, pools=RACKS).is_bound
    assert starts(*racks, queue("q"), *taken, replace(bound, topology=Topology()), pools=RACKS)


def test_with_a_shorter_time_limit() -> None:
    kept = (Reservation("window", NOW + 1830, 3600, queue="", nodes=("n1",)),)
    cluster = (node("n1", 1), queue("q"))
    long = job("a", gpus=1, preemptible=False, time_limit=7200)
    assert told(*cluster, long, reservations=kept).shorter_limit == 1800
    assert starts(*cluster, replace(long, time_limit=1800), reservations=kept)


def test_with_a_time_limit_that_the_budget_has_left() -> None:
    cluster = (node("n1", 4), queue("q", budget=4 * HOUR), runs(job("old", gpus=1, time_limit=HOUR), "n1"))
    long = job("a", gpus=2, time_limit=2 * HOUR)
    assert told(*cluster, long).shorter_limit == 1.5 * HOUR
    assert starts(*cluster, replace(long, time_limit=1.5 * HOUR))


def test_without_those_who_stand_in_its_way() -> None:
    busy = [runs(job(f"r{at}", gpus=2), f"n{at // 2}") for at in range(6)]
    cluster = (node("n0", 4), node("n1", 4), node("n2", 5), queue("q"))
    assert told(*cluster, *busy, job("a", gpus=3)).blocking == ("ns/r4",)
    assert told(*cluster, *busy, job("a", gpus=5)).blocking == ("ns/r4", "ns/r5")
    rest = [one for one in busy if one.workload.name not in ("r4", "r5")]
    assert starts(*cluster, *rest, job("a", gpus=5))


def test_without_those_who_use_up_the_limit() -> None:
    cluster = (node("n1", 8), queue("p", 0, 4), queue("q", parent="p"), queue("r", parent="p"), queue("s"))
    busy = runs(job("x", "r", 4), "n1"), runs(job("y", "s", 1), "n1")
    assert told(*cluster, *busy, job("a", gpus=2)).blocking == ("ns/x",)


def test_who_holds_a_budget_is_in_a_queue_that_it_covers() -> None:
    cluster = (node("n1", 2), queue("p", budget=2 * HOUR), queue("q", parent="p"), queue("r", parent="p"), queue("s"))
    busy = [runs(job(name, of, 1, time_limit=HOUR), "n1") for name, of in (("x", "r"), ("y", "s"))]
    assert told(*cluster, *busy, job("a", gpus=2, time_limit=HOUR)).blocking == ("ns/x",)


def test_of_a_budget_all_are_named_that_count_in_it_and_are_not_charged() -> None:
    ledger = Ledger(budget_spent=HOUR, budget_since=NOW, uncharged=(("ns/off", HOUR / 2),))
    waits = job("again", gpus=9, attained=HOUR / 2, time_limit=HOUR)
    ours = job("a", gpus=1, attained=60, time_limit=HOUR)
    cluster = (node("n1", 2), queue("q", budget=2 * HOUR, ledger=ledger), runs(job("cpu", gpus=0), "n1"), waits, ours)
    found = told(*cluster)
    assert found.blocking == ("ns/again", "ns/off")
    assert found.spending and found.spending[1:3] == (HOUR, HOUR / 2 + 60)


def test_nothing_is_told_where_nothing_helps() -> None:
    cluster = (node("n1", 1), queue("q"), queue("s"), runs(job("old", gpus=1), "n1"))
    found = told(*cluster, job("a", gpus=1))
    assert found.blocking == ("ns/old",)
    asked = (found.would_fit, found.with_gpus, found.other_queue, found.other_pool, found.is_bound)
    assert asked == (None, None, "", "", False) and found.shorter_limit is None


@pytest.mark.parametrize("gpus", [2, 3, 5, 8])
def test_the_most_is_told_of_what_would_fit(gpus: int) -> None:
    alone = job(
        "a",
        podsets=(PodSet("main", 1, 1, replace(job("x", gpus=1).podsets[0].pod, requests=amounts({GPU: gpus * 1000}))),),
    )
    assert told(node("n1", gpus - 1), node("n2", 1), queue("q"), alone).with_gpus == (gpus - 1) * 1000


def crowd(nodes: int) -> World:
    """Three and a half workloads on each node of eight GPUs, in four queues; twelve gangs wait."""
    queues = [queue(name, 2 * nodes) for name in "qrst"]
    busy = [runs(job(f"r{at}", "qrst"[at % 4], 2), f"n{at % nodes}", since=NOW - 60) for at in range(7 * nodes // 2)]
    gangs = [job(f"w{at}", "qrst"[at % 4], 4, at % 5 + 1, submitted=at) for at in range(12)]
    return world(*(node(f"n{at}", 8) for at in range(nodes)), *queues, *busy, *gangs)


def counted(told: World) -> tuple[list[int], list[Facts]]:
    """How many decisions each wait took to explain, and what came of them."""
    seen: list[float] = []

    def view(snapshot: Snapshot) -> Snapshot:
        seen.append(snapshot.now)
        return snapshot

    policy, sizes, found = Policy(view=view), [], []
    for wait in decide(snapshot_of(told), policy).verdicts:
        if isinstance(wait, Wait):
            seen.clear()
            found.append(what_if(told, wait, policy))
            sizes.append(len(seen))
    return sizes, found


def test_each_wait_among_a_hundred_that_run_is_explained_by_few_decisions() -> None:
    sizes, found = counted(crowd(30))
    assert len(sizes) >= 6 and max(sizes) <= 24 and sum(sizes) <= 160
    assert all(one.blocking for one in found[:4])


def test_the_larger_the_cluster_the_fewer_decisions() -> None:
    sizes, _ = counted(crowd(400))
    assert max(sizes) <= 50_000 // (400 + 1_400) < 30


def test_the_state_is_as_before_when_a_trial_is_over() -> None:
    told = crowd(4)
    waits = [it for it in decide(snapshot_of(told), Policy()).verdicts if isinstance(it, Wait)]
    together = WhatIf(told, Policy())
    assert [together.facts(it) for it in waits] == [what_if(told, it, Policy()) for it in waits]


def test_workloads_that_ask_about_the_same_change_share_its_decision() -> None:
    seen: list[float] = []

    def view(snapshot: Snapshot) -> Snapshot:
        seen.append(snapshot.now)
        return snapshot

    told, policy = crowd(30), Policy(view=view)
    waits = [it for it in decide(snapshot_of(told), Policy()).verdicts if isinstance(it, Wait)]
    together, alone = WhatIf(told, policy), sum(counted(told)[0])
    seen.clear()
    for wait in waits:
        together.facts(wait)
    assert len(seen) < 0.8 * alone


def test_what_no_rule_reaches_is_named_with_the_rule() -> None:
    """What holds the room is within a guarantee, where queues are owed more than there is, or in the same queue."""
    theirs, ours = (runs(job(name, of, 4), "n1", since=NOW - 9999) for name, of in (("theirs", "r"), ("ours", "q")))
    things = node("n1", 4), queue("q", 8), job("a", gpus=4)
    assert told(*things, queue("r", 4), theirs).shields == (("guaranteed", ("ns/theirs",), None),)
    assert told(*things, ours).shields == (("priority", ("ns/ours",), None),)
    assert told(*things, queue("r"), theirs).shields == ()  # no quota: that is said of the queue
    assert told(node("n1", 4), queue("q"), ours, job("a", gpus=4)).shields == ()  # owed nothing
