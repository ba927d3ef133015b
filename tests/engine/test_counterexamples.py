"""Worlds that once broke a promise, made as small as they would go."""

from dataclasses import replace

from cases import GPU, HOST, NOW, X, at, gpus, node, of, on, runs, work

from fairway.engine import Gone, Policy, State, decide
from fairway.engine.model import (
    Admission,
    Eviction,
    Expression,
    Node,
    PodAffinity,
    PodClass,
    PodSet,
    PodSetPlacement,
    Pool,
    Queue,
    Quota,
    Reservation,
    Running,
    Segment,
    Share,
    Spread,
    Topology,
    World,
)
from fairway.engine.plan import Admit, Evict, Keep, Plan, Resize, Verdict, Wait
from fairway.engine.state import snapshot_of
from fairway.referee import check


def decided(world: World) -> tuple[Plan, dict[str, Verdict]]:
    """The plan, which the referee passes, and its verdicts by name."""
    snapshot = snapshot_of(world)
    plan = decide(snapshot, Policy())
    assert check(snapshot, plan) == []
    return plan, {verdict.workload.removeprefix("ns/"): verdict for verdict in plan.verdicts}


def world(*pending, **more) -> World:
    return of(*pending, **{"now": NOW, "queues": (Queue("q"),), **more})


def test_segments_stay_together_where_pods_look_at_the_pods_beside_them() -> None:
    pools = (Pool("default", levels=("zone", HOST)),)
    nodes = tuple(node(f"n{at}", labels=(("zone", f"z{at // 3}"),)) for at in range(4))
    alone = {"host_ports": (("", "TCP", 80),), "pod_affinity": (PodAffinity((), "zone", weight=10),)}
    gang = work(count=4, inside=Topology(segments=(Segment("zone", 2),)), pod=alone)
    _, said = decided(world(gang, nodes=nodes, pools=pools))
    assert isinstance(said["a"], Wait)


def test_pods_that_a_gang_lost_are_no_reason_to_take_others_of_its_queue() -> None:
    nodes = (node("n1"), node("n2", gpus=2), node("n3", gpus=1), node("n4", gpus=1))
    queues = (Queue("p", quotas=gpus(4)), *(Queue(name, quotas=gpus(2), min_runtime=0.0) for name in "qr"))
    short = runs(work("v", "r", gpus=2, count=3, least=1, restart="Pod"), on("n1", (0, 1), (2, 3)),
                 lost=(("main", 1),), lost_since=NOW - 10)  # fmt: skip
    grows = runs(work("a", gpus=2, count=2, least=1), on("n2", (0, 1)))
    _, said = decided(world(nodes=nodes, queues=queues, running=(short, grows)))
    assert isinstance(said["v"], Keep) and isinstance(said["a"], Keep)


def test_an_ungoverned_queue_takes_nothing_back_from_its_siblings() -> None:
    queues = (Queue("top", quotas=gpus(2)), Queue("q", "top"), Queue("r", "top", min_runtime=0.0, quotas=(
        Quota("*", (("cpu", Share(0)), (GPU, Share(8000)))),)))
    big = {"requests": (("cpu", 6000), (GPU, 1000))}
    _, said = decided(world(work(pod=big), nodes=(node(),), queues=queues,
                            running=(runs(work("v", "r", pod=big), on("n1", 0)),)))
    assert not isinstance(said["v"], Evict | Resize)


def test_who_moves_is_not_counted_as_gone_from_where_it_moves_to() -> None:
    """The node is lost; both of its workloads move, and nobody is promised their new places."""
    nodes = (node("n1", is_ready=False), node("n2"))
    moved = tuple(runs(work(f"m{at}", gpus=2), on("n1", (2 * at, 2 * at + 1))) for at in range(2))
    plan, said = decided(world(work(gpus=4), nodes=nodes, running=moved))
    assert said["m0"] == Evict("ns/m0", "NodeLost", "", at(on("n2", (0, 1))))
    assert [one for one in plan.verdicts if getattr(one, "starts_at", None)] == []


def test_nobody_waits_for_one_who_was_spared() -> None:
    """Three could be preempted for a pair in one group; all are tried, and the one in the other group is spared."""
    pair = work(gpus=2, priority=2, pod={"alignment_required": True})
    running = (*(runs(work(f"v{at}"), on("n1", at)) for at in range(3)), runs(work("w", "r"), on("n1", 3)))
    _, said = decided(world(pair, nodes=(node(),), running=running, queues=(Queue("q"), Queue("r"))))
    assert [name for name, verdict in said.items() if isinstance(verdict, Evict)] == ["v1", "v0"]
    assert said["a"].after == ("ns/v0", "ns/v1")


def test_nobody_waits_for_one_who_gave_up_pods_and_got_them_back() -> None:
    """Pods of `e` are tried before the one that `a` will not stand beside, and spared; `b` waits for that one alone."""
    x = {"labels": (("app", "x"),)}
    lone = work(gpus=0, priority=1, pod={**x, "pod_affinity": (PodAffinity(X, HOST, anti=True),)})
    running = (
        runs(work("u", preemptible=False, pod=x), on("n1", 0)), runs(work("e", count=3, least=1), on("n2", 0, 1, 2)),
        runs(work("v", gpus=4, pod=x), on("n2", (3, 4, 5, 6)), admitted_at=NOW - 10),
    )  # fmt: skip
    pair = work("b", count=4, priority=1, preemptible=True, pod={"node_selector": ((HOST, "n2"),)})
    _, said = decided(world(lone, pair, nodes=(node(), node("n2", gpus=8)), running=running))
    assert said["a"].after == said["b"].after == ("ns/v",)


def test_who_was_refused_takes_nobody_out_while_it_backs_off() -> None:
    urgent = work(gpus=4, priority=2, backs_off_until=NOW + 60, refused="Needed")
    _, said = decided(world(urgent, nodes=(node(),), running=(runs(work("v", gpus=4), on("n1", (0, 1, 2, 3))),)))
    assert isinstance(said["a"], Wait) and isinstance(said["v"], Keep)


def test_two_may_share_what_one_gives_and_each_needs_the_others_victims() -> None:
    """Eight CPUs: the first takes a surplus pod of `e` and two more; the second takes the rest of `e`."""
    two, one = {"requests": (("cpu", 2000),)}, {"requests": (("cpu", 1000),)}
    shared = {"requests": (("cpu", 2000), (GPU, 1000))}
    pair = {"requests": (("cpu", 2000), (GPU, 2000))}
    running = (
        runs(work("v", pod=two), on("n1", count=1)), runs(work("w", pod=one), on("n1", count=1)),
        runs(work("e", count=3, least=1, pod=shared), on("n1", 0, 1)),
    )  # fmt: skip
    wanted = work("a", count=3, priority=2, pod=two), work("b", priority=2, pod=pair)
    _, said = decided(world(*wanted, nodes=(node(cpu=8),), running=running))
    assert {name for name, verdict in said.items() if isinstance(verdict, Evict)} == {"v", "w", "e"}


def test_pods_that_look_at_others_are_told_why_they_wait_where_fragmentation_is_scored() -> None:
    pools = (Pool("default", strategy="Fragmentation"),)
    near = work(gpus=1, pod={"pod_affinity": (PodAffinity((), HOST, weight=10),)})
    _, said = decided(world(near, nodes=(node("n1", is_ready=False),), pools=pools))
    assert isinstance(said["a"], Wait)


def test_who_can_never_fit_is_asked_once_for_all_its_likes_and_stops_only_a_strict_line() -> None:
    line = (*(work(f"a{at}", gpus=64, submitted=float(at)) for at in range(3)), work("b", submitted=9.0))
    _, said = decided(world(*line, nodes=(node(),)))
    assert {said[f"a{at}"].reason for at in range(3)} == {"NeverFits"}
    assert isinstance(said["b"], Admit)
    _, said = decided(world(*line, nodes=(node(),), queues=(Queue("q", order="FIFO"),)))
    assert [said[name].reason for name in ("a0", "a1", "a2", "b")] == ["NeverFits"] * 3 + ["HeldFor"]


def test_what_only_a_limit_names_is_governed_and_may_be_taken_back() -> None:
    four = {"requests": (("cpu", 4000),)}
    queues = (
        Queue("r", min_runtime=0.0, quotas=(Quota("*", ((GPU, Share(8000)),), (("cpu", Share(0)),)),)),
        Queue("q", quotas=(Quota("*", (("cpu", Share(16000)),)),)),
    )
    victim = runs(work("v", "r", count=2, pod=four), on("n1", count=2))
    _, said = decided(world(work(count=2, pod=four), nodes=(node(gpus=0),), queues=queues, running=(victim,)))
    assert isinstance(said["v"], Evict)


def test_what_grows_pod_by_pod_leaves_to_a_hold_what_it_keeps() -> None:
    """The hold leaves two of eight CPUs until the runner ends; four would grow into it."""
    runner = runs(work("r", gpus=2, time_limit=90_300.0), on("n1", (0, 1)))
    big = work("b", pod={"requests": (("cpu", 6000), (GPU, 4000))}, submitted=NOW - 200)
    wide = work("w", gpus=0, count=4, least=1)
    _, said = decided(world(big, wide, nodes=(node(),), running=(runner,)))
    assert said["b"].starts_at == NOW + 300
    assert said["w"].admission.podsets[0].count == 2


def test_what_grows_into_what_others_give_back_leaves_to_a_hold_what_it_keeps() -> None:
    """Three devices are kept for `b` once `e` is gone; `y` might take one of them back now, and would stay."""
    ending = runs(work("e", "r", count=4, least=1, time_limit=90_300.0), on("n1", 1, 2, 3))
    young = runs(work("y", count=3, least=1), on("n1", 0))
    queues = (Queue("q", quotas=gpus(0)), Queue("r", quotas=gpus(0)))
    _, said = decided(world(work("b", gpus=3), nodes=(node(),), running=(ending, young), queues=queues))
    assert said["b"].starts_at == NOW + 300
    assert isinstance(said["y"], Keep) and isinstance(said["e"], Keep)


def test_who_takes_a_whole_device_back_grows_into_all_of_it() -> None:
    """Pods of half a device: one into the half that is idle, two into the device that `e` gives."""
    lent = runs(work("e", "r", count=3, least=1), on("n1", 1, 2, 3))
    halves = runs(work("y", gpus=0, count=4, least=1, pod={"requests": (), "gpu_fraction": 500}), on("n1", 0))
    queues = (Queue("q", quotas=gpus(2)), Queue("r", quotas=gpus(0)))
    _, said = decided(world(nodes=(node(),), running=(lent, halves), queues=queues))
    assert (said["e"].after, said["y"].after) == ((("main", 2),), (("main", 4),))


def test_who_is_beside_those_who_look_around_is_spared_where_a_gang_fits_the_other_way_round() -> None:
    """`v` may stay if the two pods of the gang change their nodes; somebody spreads, so that it is looked at anew."""
    small, big = (PodClass("ns", requests=(("cpu", 1000), (GPU, amount))) for amount in (1000, 2000))
    gang = replace(work(priority=2), podsets=(PodSet("main", 1, 1, small), PodSet("side", 1, 1, big)))
    even = work("s", gpus=0, pod={"spread": (Spread(1, HOST, X, hard=False),), "requests": (("cpu", 64000),)})
    nodes = tuple(node(name, gpus, chooser="Kubelet", devices=()) for name, gpus in (("n1", 4), ("n2", 2)))
    running = (
        runs(work("v", gpus=2, priority=1), on("n1", count=1), admitted_at=NOW - 10),
        runs(work("w", count=2, gpus=2, priority=1), on("n1", count=1), on("n2", count=1), admitted_at=NOW - 10),
    )  # fmt: skip
    _, said = decided(world(gang, even, nodes=nodes, running=running))
    assert isinstance(said["v"], Keep) and isinstance(said["w"], Evict)


def in_pool(name: str, pool: str, gpus: int) -> Node:
    return node(name, gpus, labels=(("pool", pool),))


POOLS = tuple(Pool(name, (Expression("pool", "In", (name,)),)) for name in "ab")


def test_who_moves_keeps_to_the_limit_of_the_pool_it_moves_to() -> None:
    """`v` would make room for `b` in pool b if its queue were allowed two more devices in pool a."""
    queues = (Queue("q", consolidates=True, min_runtime=0.0, quotas=gpus(0, limit=2, pool="a")),)
    nodes, there = (in_pool("n1", "a", 4), in_pool("n2", "b", 2)), Admission("b", at(on("n2", 0, 1)).podsets)
    standing = replace(runs(work("v", count=2)), admission=there)
    pending = work("a", pools=("a",)), work("b", gpus=2, pools=("b",))
    _, said = decided(world(*pending, nodes=nodes, pools=POOLS, queues=queues, running=(standing,)))
    assert isinstance(said["a"], Admit) and isinstance(said["b"], Wait) and isinstance(said["v"], Keep)


def test_a_guarantee_in_another_pool_opens_nobody_who_was_evicted_too_often() -> None:
    queues = (Queue("q", max_evictions=1, quotas=gpus(8, pool="a")),)
    tired = replace(work("v", gpus=2), evictions=(Eviction(NOW - 60, "Preempted", "q", "ns/z"),))
    there = replace(runs(tired), admission=Admission("b", at(on("n1", (0, 1))).podsets))
    more = {"nodes": (in_pool("n1", "b", 4),), "pools": POOLS, "queues": queues, "running": (there,)}
    _, said = decided(world(work(gpus=4, priority=1), **more))
    assert isinstance(said["a"], Wait) and isinstance(said["v"], Keep)


def test_nobody_moves_away_from_one_who_starts_beside_it() -> None:
    """`a` must stand in the zone of `v`; `b`, which is of the kind of `v`, could start if `v` went to the other."""
    nodes = tuple(node(f"n{at}", labels=(("zone", f"z{at}"),)) for at in range(2))
    queues = (Queue("q", consolidates=True, min_runtime=0.0),)
    kind = {"labels": (("app", "x"),)}
    beside = work("a", priority=2, pod={"pod_affinity": (PodAffinity(X, "zone"),)})
    running = (runs(work("v", pod=kind), on("n0", 0)), runs(work("w", count=2, preemptible=False), on("n1", 0, 1)))
    _, said = decided(world(beside, work("b", gpus=3, pod=kind), nodes=nodes, queues=queues, running=running))
    assert isinstance(said["v"], Keep) and isinstance(said["a"], Admit)


def test_nobody_leaves_who_was_counted_where_one_starts_that_spreads() -> None:
    """`a` may stand in one zone because of `v` in the other, whose room `b` could take."""
    kind = {"labels": (("app", "x"),)}
    even = work("a", priority=2, pod={**kind, "spread": (Spread(1, "zone", X),)})
    nodes = tuple(node(f"n{at}", 2, labels=(("zone", f"z{at}"),)) for at in range(2))
    fixed = (runs(work(f"w{at}", preemptible=False), on(f"n{at}", 1)) for at in range(2))
    running = (runs(work("v", pod=kind), on("n1", 0)), runs(work("u", gpus=0, pod=kind), on("n0", count=1)), *fixed)
    pending = even, work("b", priority=1)
    _, said = decided(world(*pending, nodes=nodes, queues=(Queue("q", min_runtime=0.0),), running=running))
    assert isinstance(said["a"], Admit) and isinstance(said["v"], Keep)


def test_a_limit_that_is_broken_already_makes_nobody_go_who_is_not_in_the_way() -> None:
    """`a` needs one device of `n1` and one of the limit, which `v` gives both; of cpu there is none to be had."""
    quota = Quota("*", ((GPU, Share(2000)),), (("cpu", Share(0)), (GPU, Share(6000))))
    odd = runs(work("c", gpus=0), on("n2", count=1))
    young = runs(work("w", count=4, least=1), on("n2", count=4), admitted_at=NOW - 10)
    running = (odd, runs(work("v", count=2, least=1), on("n1", 0, 1)), young)
    nodes = (node("n1", 2), node("n2", 4, chooser="Kubelet", devices=()))
    half = work(gpus=0, priority=1, pod={"requests": (), "gpu_fraction": 500})
    _, said = decided(world(half, nodes=nodes, queues=(Queue("q", min_runtime=0.0, quotas=(quota,)),), running=running))
    assert isinstance(said["v"], Resize) and isinstance(said["w"], Keep)


def test_who_moves_takes_none_of_what_is_reserved() -> None:
    nodes = (node("n1", is_unhealthy=True), node("n2"))
    kept = Reservation("r", NOW - 60, 3600.0, "", "default", ((GPU, 2000),))
    pending = tuple(work(name) for name in "abc")
    _, said = decided(world(*pending, nodes=nodes, running=(runs(work("v"), on("n1", 0)),), reservations=(kept,)))
    assert [isinstance(said[name], Admit) for name in "abc"] == [True, False, False]


def test_who_grows_pod_by_pod_needs_what_others_took_meanwhile() -> None:
    """Two of the three pods that `a` and `b` are short of find room; the third takes that of `v`, whoever gets it."""
    def cpus(key: str, amount: int, **more: object) -> Running:
        pods = more.pop("pods")
        wide = work(key, gpus=0, pod={"requests": (("cpu", amount * 1000),)}, **more)
        return runs(wide, on("n1", count=pods))

    running = (cpus("a", 1, pods=2, count=4, least=2, priority=1), cpus("b", 1, pods=1, count=2, least=1, priority=1),
               cpus("v", 4, pods=2, count=2, least=1), cpus("w", 3, pods=1))
    _, said = decided(world(nodes=(node(cpu=16),), running=running))
    assert (said["a"].after, said["b"].after, said["v"].after) == ((("main", 4),), (("main", 2),), (("main", 1),))


def test_podsets_that_fit_only_spread_over_the_nodes_are_spread() -> None:
    """Packed, the four without GPUs would take all pod slots of `n2`, and of `n1` three GPUs do not do for the rest."""
    def slots(count: int, *requests: tuple[str, int]) -> PodSet:
        return PodSet("-".join(name for name, _ in requests), count, count, PodClass("ns", requests=requests))

    gang = replace(work(), podsets=(slots(4, ("cpu", 4000)), slots(4, (GPU, 1000))))
    nodes = (node("n1", 3), node("n2", cpu=16, slots=4))
    _, said = decided(world(gang, nodes=nodes))
    assert isinstance(said["a"], Admit)


def test_who_grows_beyond_its_guarantee_took_back_what_it_was_owed_before_that() -> None:
    """`v` may lose a pod while `a`, with its next one, is within its guarantee; the last of `a` is idle room again."""
    queues = (Queue("q", min_runtime=0.0, quotas=gpus(2)), Queue("r", min_runtime=0.0, quotas=gpus(2)))
    lent = runs(work("v", "r", count=2, least=1, gpus=2), on("n1", (0, 1)), on("n2", (0, 1)))
    grows = runs(work("a", count=4, least=1, excluded_nodes=("n4",)), on("n3", 0))
    nodes = (*(node(name, 2) for name in ("n1", "n2")), node("n3", 1), node("n4", 8))
    _, said = decided(world(nodes=nodes, queues=queues, running=(lent, grows)))
    assert (said["a"].after, said["v"].after) == ((("main", 3),), (("main", 1),))


def test_who_lost_surplus_to_one_and_goes_for_the_next_counts_as_smaller() -> None:
    """`v` gives its second pod for `a`; so `b` is within its guarantee when it takes the first."""
    queues = (Queue("q", min_runtime=0.0, max_evictions=1, quotas=gpus(4)),)
    tired = replace(work("v", count=2, least=1), evictions=(Eviction(NOW - 60, "Preempted", "q", "ns/z"),))
    pending = work("a", priority=2), work("b", priority=1)
    fixed = runs(work("w", priority=3), on("n2", 0))
    nodes = (node("n1", 2), node("n2", 1))
    _, said = decided(world(*pending, nodes=nodes, queues=queues, running=(runs(tired, on("n1", 0, 1)), fixed)))
    assert isinstance(said["v"], Evict) and isinstance(said["a"], Admit) and isinstance(said["b"], Admit)


def test_who_gives_surplus_to_two_is_told_for_the_second_and_counts_as_smaller_for_the_first() -> None:
    """`a` is within its share because `v`, of its queue, gives a device; `b` takes another of `v`, and is told."""
    limited = Queue("mid", "top", gpus(2, limit=4), priority=1)
    idle = (Quota("*", ((GPU, Share(2000)),), weight=0.0),)
    mine = Queue("q", "mid", quotas=gpus(8), min_runtime=0.0)
    theirs = Queue("r", "mid", quotas=idle, priority=1, min_runtime=0.0)
    half, quarter = ({"requests": (("cpu", 1000),), "gpu_fraction": share} for share in (500, 250))
    running = (
        runs(work("u", gpus=0, priority=2, pod=quarter), on("n1", 0)),
        runs(work("w", "r", gpus=4, count=2, least=1, priority=2), on("n2", (0, 1, 2, 3))),
        runs(work("v", count=4, least=1), on("n1", 1, 2, 3), admitted_at=NOW - 10),
    )
    pending = (work("a", gpus=0, priority=2, pod=quarter), work("c", "r"),
               work("b", gpus=0, count=4, least=2, priority=1, pod=half, topology=Topology(HOST)))
    pools, nodes = (Pool("default", levels=(HOST,)),), (node("n1"), node("n2"))
    queues = (Queue("top", quotas=gpus(4)), limited, mine, theirs)
    _, said = decided(world(*pending, nodes=nodes, pools=pools, queues=queues, running=running))
    assert isinstance(said["w"], Evict) and isinstance(said["a"], Admit) and said["v"].beneficiary == "ns/b"


def test_one_podset_keeps_out_of_the_way_of_the_other() -> None:
    """`main` fits everywhere but where slots are few, `side` only just: packed or spread, either takes the other's."""
    nodes = (node("n0", 2, cpu=16), node("n1", 2, cpu=16), node("n2", 8, cpu=16, slots=4), node("n3", 4))
    main = PodSet("main", 3, 3, PodClass("ns", (("cpu", 4000), (GPU, 1000))))
    side = PodSet("side", 6, 6, PodClass("ns", (("cpu", 1000), (GPU, 2000))))
    _, said = decided(world(replace(work(), podsets=(main, side)), nodes=nodes))
    assert isinstance(said["a"], Admit)


def test_a_podset_that_counts_nothing_does_not_hide_that_the_other_is_within_its_guarantee() -> None:
    """`a` grows to four devices, its guarantee, and by pods that no quota counts; `v` of the other queue gives two."""
    queues = (Queue("q", quotas=gpus(4)), Queue("r", min_runtime=0.0, quotas=gpus(2)))
    main = PodSet("main", 2, 1, PodClass("ns", ((GPU, 2000),)))
    side = PodSet("side", 4, 1, PodClass("ns", (("cpu", 1000),)))
    stands = PodSetPlacement("main", (on("n1", (0, 1)),)), PodSetPlacement("side", (on("n1", count=1),))
    both = replace(work("a", excluded_nodes=("n3",)), podsets=(main, side))
    grows = Running(both, Admission("default", stands), admitted_at=NOW - 90_000)
    gives = runs(work("v", "r", count=4, least=2), on("n2", 0, 1, 2, 3))
    _, said = decided(world(nodes=(node("n1", 2), node("n2"), node("n3", 2)), queues=queues, running=(grows, gives)))
    assert said["a"].after == (("main", 2), ("side", 4)) and said["v"].beneficiary == "ns/a"


def test_who_grew_by_one_pod_within_its_share_may_have_what_is_idle_then() -> None:
    """`v` gives a pod of two devices for one of `a`; the next of `a` is beyond its share, and takes nobody's room."""
    queues = (Queue("q", quotas=gpus(4)), Queue("r", min_runtime=0.0, quotas=gpus(8)))
    gives = runs(work("v", "r", gpus=2, count=3, least=1), on("n2", (0, 1), (2, 3)))
    fixed = runs(work("w", "r", gpus=6), on("n1", (0, 1, 2, 3, 4, 5))), runs(work("u", gpus=3), on("n3", (0, 1, 2)))
    small = runs(work("s", gpus=0, count=4, least=1, pod={"requests": ()}), on("n1", count=4))
    grows = runs(work("a", count=3, least=1, priority=1), on("n3", 3))
    nodes = (node("n1", 6), node("n2"), node("n3"))
    _, said = decided(world(nodes=nodes, queues=queues, running=(grows, gives, small, *fixed)))
    assert (said["a"].after, said["v"].after) == ((("main", 3),), (("main", 1),))


def test_the_owner_of_a_hold_takes_back_surplus_though_its_queue_is_above_its_share() -> None:
    queues = (Queue("q", quotas=gpus(1)), Queue("r", quotas=gpus(3)))
    mine = runs(work("b", gpus=2), on("n1", (0, 1)))
    backfilled = runs(work("v", "r", count=2, least=1), on("n1", 2, 3), backfilled_for="ns/a")
    _, said = decided(world(work("a"), nodes=(node("n1"),), queues=queues, running=(mine, backfilled)))
    assert (said["v"].after, said["v"].beneficiary) == ((("main", 1),), "ns/a") and isinstance(said["a"], Admit)


def test_a_parent_whose_quotas_are_of_no_pool_that_is_there_is_transparent() -> None:
    """What grows takes surplus back from the child of such a parent, which stands for itself."""
    queues = (Queue("q0", quotas=gpus(4)), Queue("q1", quotas=gpus(4, pool="a")), Queue("q2", "q1", quotas=gpus(4)))
    taker, giver = work("w2", "q0", count=4, least=1), work("w1", "q2", count=6, least=1)
    standing = runs(taker, on("n1", 0, 1), admitted_at=0.0), runs(giver, on("n1", *range(2, 8)), admitted_at=0.0)
    _, said = decided(world(nodes=(node(gpus=8),), queues=queues, running=standing))
    assert said["w2"].after == (("main", 4),) and said["w1"].after == (("main", 4),)


def test_a_slice_of_a_device_takes_nothing_of_whole_devices_that_are_reserved() -> None:
    """A MIG profile counts in quotas as a part of a GPU, but is offered, and taken, beside whole ones."""
    small = "nvidia.com/mig-1g.10gb"
    both = replace(one := node(gpus=2), capacity=(*one.capacity, (small, 7)))
    kept = Reservation("res", start=NOW - 600, duration=3600.0, pool="default", amount=((GPU, 4000),))
    asks = work(gpus=0, pod={"requests": ((small, 1),)})
    _, said = decided(world(asks, nodes=(both,), reservations=(kept,)))
    assert isinstance(said["a"], Admit)


def test_pods_that_leave_attract_others_and_are_none_to_their_spread() -> None:
    """As in Kubernetes: the affinity of `a` sees both on n1, its spread sees none there."""
    x = Expression("app", "In", ("x",))
    looks = {"pod_affinity": (PodAffinity((x,), HOST),), "spread": (Spread(1, HOST, (x,)),)}
    gone = work("v", gpus=0, count=2, pod={"labels": (("app", "x"),)})
    leaving = runs(gone, on("n1", count=2), is_leaving=True, leaving_since=NOW - 5)
    _, said = decided(world(work(gpus=0, pod=looks), nodes=(node("n1"), node("n2")), running=(leaving,)))
    assert said["a"].admission.nodes == {"n1"}


def test_what_no_node_could_hold_leaves_the_tries_for_a_hold_to_others() -> None:
    """As many as are tried in a cycle ask for more than a node has."""
    ending = runs(work("e", "r", time_limit=90_300.0, preemptible=False), on("n1", 0))
    vast = [work(f"x{at}", gpus=5 + at, submitted=NOW - 200) for at in range(64)]
    queues = (Queue("q", quotas=gpus(0)), Queue("r", quotas=gpus(4)))
    _, said = decided(world(*vast, work("b", gpus=4), nodes=(node(),), running=(ending,), queues=queues))
    assert said["b"].starts_at == NOW + 300


def test_a_hold_is_on_nodes_where_all_that_runs_will_end() -> None:
    """In sum there is room for two pods after 200 seconds; on `n1` it is never free."""
    stays = {"queue": "r", "preemptible": False}
    endless = runs(work("v", **stays), on("n1", 0))
    short = runs(work("s", gpus=3, time_limit=90_200.0, **stays), on("n1", (1, 2, 3)))
    long = runs(work("l", gpus=3, time_limit=90_300.0, **stays), on("n2", (0, 1, 2)))
    nodes, running = (node("n1"), node("n2")), (endless, short, long)
    queues = (Queue("q", quotas=gpus(0)), Queue("r", quotas=gpus(8)))
    _, said = decided(world(work("b", gpus=4), nodes=nodes, running=running, queues=queues))
    assert said["b"].starts_at == NOW + 300
    assert [share.node for share in said["b"].held.podsets[0].nodes] == ["n2"]
    _, said = decided(world(work("b", gpus=4, count=2), nodes=nodes, running=running, queues=queues))
    assert said["b"].starts_at is None


def test_a_pod_more_takes_no_more_than_its_limit_and_its_place_need() -> None:
    """The limit lacks two devices, and `w` would give one; its place needs both that `v` has on `n2`."""
    wide = runs(work("w", count=3, least=1), on("n1", 0, 1))
    other = runs(work("v", count=4, least=1), on("n1", 3), on("n2", 0, 1))
    grows = runs(work("g", gpus=2, count=2, least=1, priority=2), on("n2", (2, 3)))
    small = runs(work("s", priority=1), on("n1", 2))
    most = Quota("*", ((GPU, Share(8000)),), ((GPU, Share(8000)),))
    queues, running = (Queue("q", quotas=(most,), min_runtime=0.0),), (wide, other, grows, small)
    _, said = decided(world(nodes=(node("n1"), node("n2")), queues=queues, running=running))
    assert isinstance(said["w"], Keep) and isinstance(said["s"], Keep)
    assert (said["v"].admission.podsets[0].count, said["g"].admission.podsets[0].count) == (1, 2)


def test_a_node_that_is_gone_since_the_last_decision_is_not_overdrawn() -> None:
    state = State()
    state.observe(node("n1"), Queue("q"), runs(work("a"), on("n1", 0)))
    state.snapshot(NOW)
    state.observe(Gone("Node", "n1"))
    assert not state.is_overdrawn("n1")


def test_a_gang_that_is_only_promised_its_places_gets_no_lost_pods_back() -> None:
    one = runs(work("g", count=2, restart="Pod"), on("n1", 0), is_promised=True, lost=(("main", 1),))
    _, said = decided(world(nodes=(node(),), running=(one,)))
    assert isinstance(said["g"], Admit)


def test_a_queue_uses_what_is_reserved_for_it_though_more_is_reserved_than_there_is() -> None:
    kept = Reservation("own", NOW - 600, 3600.0, "q", "default", ((GPU, 6000),))
    nobody = replace(kept, name="maintenance", queue="")
    nodes, queues = (node(gpus=8), node("n2", gpus=2)), (Queue("q"), Queue("r"))
    _, said = decided(world(work("w"), work("x", "r"), nodes=nodes, queues=queues, reservations=(kept, nobody)))
    assert isinstance(said["w"], Admit) and isinstance(said["x"], Wait)
