"""The referee on verdicts, nodes, devices, domains and neighbours: each broken promise is found and named."""

from dataclasses import replace
from pathlib import Path

import pytest
from cases import GPU, HOST, X, admit, at, faults, node, of, on, runs, work

from fairway.engine.model import (
    Admission,
    Device,
    Expression,
    NodeShare,
    Numa,
    Pod,
    PodAffinity,
    PodClass,
    PodSetPlacement,
    Pool,
    Queue,
    Segment,
    Spread,
    Taint,
    Term,
    Toleration,
    Topology,
)
from fairway.engine.plan import Admit, Cause, Evict, Keep, Reason, Resize, Verdict, Wait
from fairway.referee import RULES

# Every workload has one verdict, of a kind that its state allows


def test_a_plan_that_starts_a_workload_where_there_is_room_is_sound() -> None:
    assert faults(of(work()), admit(work(), on("n1", 0))) == set()


def test_a_workload_without_a_verdict_is_named() -> None:
    assert faults(of(work("a"), work("b")), Wait("ns/a", Reason.NO_ROOM)) == {("b", "Total")}


def test_a_second_verdict_and_a_verdict_for_nobody_are_named() -> None:
    wait = Wait("ns/a", Reason.NO_ROOM)
    assert faults(of(work()), wait, wait) == {("a", "Total")}
    assert ("ghost", "Total") in faults(of(work()), wait, Wait("ns/ghost", Reason.NO_ROOM))


@pytest.mark.parametrize(
    "verdict",
    [Keep("ns/a"), Evict("ns/a", Cause.DRAINED), Resize("ns/a", (), (), at(on("n1", 0)))],
)
def test_what_waits_is_neither_kept_nor_evicted_nor_resized(verdict: Verdict) -> None:
    assert ("a", "Kind") in faults(of(work()), verdict)


def test_what_runs_is_not_admitted_again_and_does_not_wait() -> None:
    world = of(running=(runs(work(), on("n1", 0)),))
    assert faults(world, Keep("ns/a")) == set()
    assert ("a", "Kind") in faults(world, admit(work(), on("n1", 0)))
    assert ("a", "Kind") in faults(world, Wait("ns/a", Reason.NO_ROOM))


def test_what_is_leaving_is_only_kept() -> None:
    world = of(running=(runs(work(), on("n1", 0), is_leaving=True),))
    assert faults(world, Keep("ns/a")) == set()
    assert ("a", "Kind") in faults(world, Evict("ns/a", Cause.DRAINED))


def test_a_promise_is_told_again_unchanged_until_those_it_waits_for_are_gone() -> None:
    victim = runs(work("v"), on("n1", 0), is_leaving=True)
    promised = runs(work("a"), on("n1", 0), is_promised=True, waits_for=("ns/v",), admitted_at=None)
    world = of(running=(victim, promised))
    assert faults(world, Keep("ns/v"), admit(work("a"), on("n1", 0), after=("ns/v",))) == set()
    assert ("a", "Kind") in faults(world, Keep("ns/v"), admit(work("a"), on("n1", 1), after=("ns/v",)))
    assert ("a", "Kind") in faults(world, Keep("ns/v"), admit(work("a"), on("n1", 0)))
    alone = of(running=(promised,))
    assert faults(alone, admit(work("a"), on("n1", 0))) == set()
    assert ("a", "Kind") in faults(alone, admit(work("a"), on("n1", 0), after=("ns/v",)))


# Gangs


def test_a_gang_is_not_split() -> None:
    gang = work(count=3, least=2)
    assert faults(of(gang), admit(gang, on("n1", 0, 1))) == set()
    assert ("a", "Gang") in faults(of(gang), admit(gang, on("n1", 0)))


def test_nobody_gets_more_pods_than_it_has() -> None:
    assert ("a", "Gang") in faults(of(work(count=2)), admit(work(count=2), on("n1", 0, 1, 2)))


def test_every_podset_has_its_part() -> None:
    both = replace(work(), podsets=(*work().podsets, replace(work().podsets[0], name="side")))
    assert ("a", "Gang") in faults(of(both), admit(both, on("n1", 0)))
    twice = tuple(PodSetPlacement("main", (on("n1", device),)) for device in (0, 1))
    assert ("a", "Gang") in faults(of(both), Admit("ns/a", Admission("default", twice)))


def test_a_gang_of_podsets_that_need_no_pod_may_start_without_any() -> None:
    lean = work(least=0)
    both = replace(lean, podsets=(*lean.podsets, replace(lean.podsets[0], name="more")))
    assert faults(of(both), Admit("ns/a", Admission("default", ()))) == set()


# Nodes and pools


def test_a_node_that_is_not_there_or_in_another_pool_is_found() -> None:
    pools = (Pool("a", (Expression("pool", "In", ("a",)),)), Pool("b"))
    nodes = (node("n1", labels=(("pool", "a"),)), node("n2"))
    world = of(work(), pools=pools, nodes=nodes)
    assert faults(world, Admit("ns/a", at(on("n1", 0), pool="a"))) == set()
    assert ("a", "Pool") in faults(world, Admit("ns/a", at(on("n2", 0), pool="a")))
    assert ("a", "Pool") in faults(world, Admit("ns/a", at(on("n9", 0), pool="a")))
    assert ("a", "Pool") in faults(world, Admit("ns/a", at(on("n1", 0), pool="c")))


def test_a_pool_that_the_workload_or_its_queue_does_not_list_is_found() -> None:
    pools = (Pool("a"), Pool("b"))
    choosy = work(pools=("b",))
    assert ("a", "Pool") in faults(of(choosy, pools=pools), Admit("ns/a", at(on("n1", 0), pool="a")))
    queues = (Queue("top", pools=("b",)), Queue("q", "top"))
    assert ("a", "Pool") in faults(of(work(), pools=pools, queues=queues), Admit("ns/a", at(on("n1", 0), pool="a")))


@pytest.mark.parametrize(
    "state", [{"is_ready": False}, {"is_unschedulable": True}, {"is_unhealthy": True}, {"is_leaving": True}]
)
def test_nothing_starts_on_a_node_that_takes_nothing_new(state: dict[str, bool]) -> None:
    assert ("a", "Node") in faults(of(work(), nodes=(node(**state),)), admit(work(), on("n1", 0)))


def test_an_untolerated_taint_is_not_ignored() -> None:
    world = of(work(), nodes=(node(taints=(Taint("gpu", "yes", "NoExecute"),)),))
    assert ("a", "Node") in faults(world, admit(work(), on("n1", 0)))
    exact = Toleration("gpu", "Equal", "yes", "NoExecute")
    for toleration in (Toleration("gpu", "Exists"), Toleration("", "Exists"), exact):
        one = work(pod={"tolerations": (toleration,)})
        assert faults(replace(world, pending=(one,)), admit(one, on("n1", 0))) == set()
    soft = of(work(), nodes=(node(taints=(Taint("gpu", "yes", "PreferNoSchedule"),)),))
    assert faults(soft, admit(work(), on("n1", 0))) == set()


@pytest.mark.parametrize(
    "pod",
    [
        {"node_selector": (("disk", "ssd"),)},
        {"affinity": (Term((Expression("disk", "Exists"),)),)},
        {"affinity": (Term(),)},
        {"affinity": (Term((), (Expression("metadata.name", "In", ("n2",)),)),)},
        {"affinity": (Term((Expression("generation", "Gt", ("3",)),)),)},
        {"volumes": ((Term((Expression("zone", "In", ("z1",)),)),),)},
    ],
)
def test_selector_affinity_and_volumes_are_kept(pod: dict[str, object]) -> None:
    picky = work(pod=pod)
    nodes = (node("n1", labels=(("zone", "z0"), ("generation", "3"))),
             node("n2", labels=(("disk", "ssd"), ("zone", "z1"), ("generation", "4"))))
    assert ("a", "Node") in faults(of(picky, nodes=nodes), admit(picky, on("n1", 0)))
    if pod != {"affinity": (Term(),)}:
        assert faults(of(picky, nodes=nodes), admit(picky, on("n2", 0))) == set()


# Room


def test_a_resource_is_not_given_twice_by_one_unit() -> None:
    """The later of two is named: without it the plan is sound."""
    first = work("a", gpus=0, pod={"requests": (("cpu", 7000),)})
    second = work("b", gpus=0, pod={"requests": (("cpu", 1001),)})
    plan = (admit(first, on("n1", count=1)), admit(second, on("n1", count=1)))
    assert faults(of(first, second), *plan) == {("b", "Room")}
    less = work("b", gpus=0)
    assert faults(of(first, less), admit(first, on("n1", count=1)), admit(less, on("n1", count=1))) == set()


def test_pod_slots_count() -> None:
    crowd = work(gpus=0, count=3)
    assert ("a", "Room") in faults(of(crowd, nodes=(node(slots=2),)), admit(crowd, on("n1", count=3)))


def test_pods_of_others_and_what_runs_hold_their_room() -> None:
    one = work(gpus=0, pod={"requests": (("cpu", 5000),)})
    pod = Pod("kube-system/p", "n1", PodClass(requests=(("cpu", 3001),)))
    assert faults(of(one, pods=(pod,)), admit(one, on("n1", count=1))) == {("a", "Room")}
    other = runs(work("r", gpus=0, pod={"requests": (("cpu", 4000),)}), on("n1", count=1))
    assert faults(of(one, running=(other,)), admit(one, on("n1", count=1)), Keep("ns/r")) == {("a", "Room")}


def test_room_of_a_victim_counts_only_when_it_is_named_and_leaves() -> None:
    queues = (Queue("q", preempt_min_runtime=0.0),)
    high, victim = work("a", gpus=4, priority=1), runs(work("v", gpus=4), on("n1", (0, 1, 2, 3)))
    world = of(high, running=(victim,), queues=queues)
    evict = Evict("ns/v", Cause.PREEMPTED, "ns/a")
    start = admit(high, on("n1", (0, 1, 2, 3)), after=("ns/v",))
    assert faults(world, evict, start) == set()
    assert ("a", "Room") in faults(world, evict, admit(high, on("n1", (0, 1, 2, 3))))
    kept = faults(world, Keep("ns/v"), start)
    assert {("a", "Room"), ("a", "After")} <= kept


def test_room_of_one_victim_is_not_given_to_two() -> None:
    victim = runs(work("v", gpus=4), on("n1", (0, 1, 2, 3)))
    high, second = work("a", gpus=4, priority=1), work("b", gpus=1, priority=1)
    plan = (Evict("ns/v", Cause.PREEMPTED, "ns/a"), admit(high, on("n1", (0, 1, 2, 3)), after=("ns/v",)),
            admit(second, on("n1", 0), after=("ns/v",)))
    found = faults(of(high, second, running=(victim,)), *plan)
    assert ("b", "Room") in found and ("a", "Room") not in found


def test_a_promised_place_is_not_given_away() -> None:
    promised = runs(work("p", gpus=4), on("n1", (0, 1, 2, 3)), is_promised=True, admitted_at=None)
    again = admit(promised.workload, on("n1", (0, 1, 2, 3)))
    assert ("a", "Room") in faults(of(work(), running=(promised,)), again, admit(work(), on("n1", 0)))


# Devices


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (on("n1", (0, 1)), "another number"), (on("n1", 9), "no such"), (NodeShare("n1", 1), "none"),
        (NodeShare("n1", 1, ((0,), (1,))), "for more pods"), (on("n1", 3), "broken"), (on("n1", 2), "partitioned"),
    ],
)
def test_devices_are_as_many_as_asked_there_whole_and_healthy(given: NodeShare, why: str) -> None:
    devices = (Device(0), Device(1), Device(2, is_partitioned=True), Device(3, is_healthy=False))
    assert ("a", "Device") in faults(of(work(), nodes=(node(devices=devices),)), admit(work(), given)), why


def test_a_device_is_not_given_twice() -> None:
    two = work(count=2)
    assert ("a", "Device") in faults(of(two), admit(two, on("n1", 0, 0)))
    plan = (admit(work("a"), on("n1", 0)), admit(work("b"), on("n1", 0)))
    assert faults(of(work("a"), work("b")), *plan) == {("b", "Device")}
    held = runs(work("r"), on("n1", 0))
    assert ("a", "Device") in faults(of(work(), running=(held,)), Keep("ns/r"), admit(work(), on("n1", 0)))
    foreign = Pod("ns/p", "n1", PodClass(requests=((GPU, 1000),)), devices=(0,))
    assert ("a", "Device") in faults(of(work(), pods=(foreign,)), admit(work(), on("n1", 0)))


def test_fractions_share_a_device_up_to_the_whole_of_it() -> None:
    half, more = {"requests": (), "gpu_fraction": 500}, {"requests": (), "gpu_fraction": 501}
    a, b, c = work("a", pod=half), work("b", pod=half), work("b", pod=more)
    assert faults(of(a, b), admit(a, on("n1", 0)), admit(b, on("n1", 0))) == set()
    assert faults(of(a, c), admit(a, on("n1", 0)), admit(c, on("n1", 0))) == {("b", "Device")}
    assert ("b", "Device") in faults(of(a, work("b")), admit(a, on("n1", 0)), admit(work("b"), on("n1", 0)))


def test_a_request_of_gpu_memory_counts_by_the_smallest_gpu_of_the_pool() -> None:
    nodes = tuple(node(name, labels=(("nvidia.com/gpu.memory", memory),))
                  for name, memory in (("n1", "81920"), ("n2", "40960")))
    a, b = (work(key, pod={"requests": (), "gpu_memory": 30 << 30}) for key in "ab")
    assert faults(of(a, b, nodes=nodes), admit(a, on("n1", 0)), admit(b, on("n1", 1))) == set()
    assert ("b", "Device") in faults(of(a, b, nodes=nodes), admit(a, on("n1", 0)), admit(b, on("n1", 0)))


def test_where_the_kubelet_chooses_no_device_is_named_and_none_is_shared() -> None:
    nodes = (node(chooser="Kubelet", devices=()),)
    assert faults(of(work(), nodes=nodes), admit(work(), on("n1", count=1))) == set()
    assert ("a", "Device") in faults(of(work(), nodes=nodes), admit(work(), on("n1", 0)))
    part = work(pod={"requests": (), "gpu_fraction": 500})
    assert ("a", "Device") in faults(of(part, nodes=nodes), admit(part, on("n1", count=1)))


def test_a_pod_without_gpus_gets_no_device() -> None:
    assert ("a", "Device") in faults(of(work(gpus=0)), admit(work(gpus=0), on("n1", 0)))


def test_whole_gpus_come_from_one_group_where_one_would_have_done() -> None:
    pair = work(gpus=2)
    assert faults(of(pair), admit(pair, on("n1", (0, 1)))) == set()
    assert ("a", "Alignment") in faults(of(pair), admit(pair, on("n1", (1, 2))))
    busy = (runs(work("r"), on("n1", 0)), runs(work("s"), on("n1", 3)))
    kept = (Keep("ns/r"), Keep("ns/s"))
    assert faults(of(pair, running=busy), *kept, admit(pair, on("n1", (1, 2)))) == set()


def test_required_alignment_is_one_numa_group_with_enough_of_all() -> None:
    pair = work(gpus=2, pod={"alignment_required": True, "requests": (("cpu", 3000), (GPU, 2000))})
    busy = (runs(work("r"), on("n1", 0)), runs(work("s"), on("n1", 3)))
    kept = (Keep("ns/r"), Keep("ns/s"))
    assert ("a", "Alignment") in faults(of(pair, running=busy), *kept, admit(pair, on("n1", (1, 2))))
    small = (node(numa=(Numa(0, (("cpu", 2000),)), Numa(1, (("cpu", 4000),)))),)
    assert ("a", "Alignment") in faults(of(pair, nodes=small), admit(pair, on("n1", (0, 1))))
    assert faults(of(pair, nodes=small), admit(pair, on("n1", (2, 3)))) == set()


# Topology

RACKS = (
    node("n1", labels=(("zone", "z0"), ("rack", "r0"))), node("n2", labels=(("zone", "z0"), ("rack", "r0"))),
    node("n3", labels=(("zone", "z1"), ("rack", "r0"))), node("n4", labels=(("zone", "z0"),)),
)
LEVELS = (Pool("default", levels=("zone", "rack")),)


def test_a_podset_stays_in_one_domain_of_its_level() -> None:
    gang = work(count=2, inside=Topology(required="rack"))
    world = of(gang, nodes=RACKS, pools=LEVELS)
    assert faults(world, admit(gang, on("n1", 0), on("n2", 0))) == set()
    for other in ("n3", "n4"):  # the same rack name in another zone; in no rack
        assert ("a", "Topology") in faults(world, admit(gang, on("n1", 0), on(other, 0)))
    unknown = work(inside=Topology(required="row"))
    assert ("a", "Topology") in faults(replace(world, pending=(unknown,)), admit(unknown, on("n1", 0)))


def test_all_podsets_stay_in_one_domain_of_the_workloads_level() -> None:
    side = replace(work().podsets[0], name="side")
    both = replace(work(topology=Topology(required="zone")), podsets=(*work().podsets, side))
    def plan(name: str) -> Admit:
        shares = (PodSetPlacement("main", (on("n1", 0),)), PodSetPlacement("side", (on(name, 0),)))
        return Admit("ns/a", Admission("default", shares))
    assert faults(of(both, nodes=RACKS, pools=LEVELS), plan("n4")) == set()
    assert ("a", "Topology") in faults(of(both, nodes=RACKS, pools=LEVELS), plan("n3"))


def test_segments_stay_together_in_rank_order() -> None:
    gang = work(count=4, inside=Topology(segments=(Segment("zone", 2),)))
    world = of(gang, nodes=RACKS, pools=LEVELS)
    assert faults(world, admit(gang, on("n1", 0), on("n2", 0), on("n3", 0, 1))) == set()
    assert ("a", "Topology") in faults(world, admit(gang, on("n1", 0), on("n3", 0, 1), on("n2", 0)))


# Pods beside pods





def test_required_anti_affinity_binds_both_sides() -> None:
    shy = {"labels": (("app", "x"),), "pod_affinity": (PodAffinity(X, HOST, anti=True),)}
    nodes = (node("n1"), node("n2"))
    for first, second in ((shy, {"labels": (("app", "x"),)}), ({"labels": (("app", "x"),)}, shy), (shy, shy)):
        a, b = work("a", pod=first), work("b", pod=second)
        assert faults(of(a, b, nodes=nodes), admit(a, on("n1", 0)), admit(b, on("n2", 0))) == set()
        assert faults(of(a, b, nodes=nodes), admit(a, on("n1", 0)), admit(b, on("n1", 1))) == {("b", "Neighbour")}
    gang = work(count=2, pod=shy)
    assert ("a", "Neighbour") in faults(of(gang, nodes=nodes), admit(gang, on("n1", 0, 1)))


def test_who_keeps_apart_waits_for_those_that_leave() -> None:
    shy = {"labels": (("app", "x"),), "pod_affinity": (PodAffinity(X, HOST, anti=True),)}
    a, gone = work("a", pod=shy), runs(work("v", pod=shy), on("n1", 0), is_leaving=True)
    stranger = Pod("x/p", "n1", PodClass(namespace="ns", labels=(("app", "x"),)), is_leaving=True)
    for world, key in ((of(a, running=(gone,)), "ns/v"), (of(a, pods=(stranger,)), "x/p")):
        said = [Keep("ns/v")] if world.running else []
        assert faults(world, admit(a, on("n1", 1), after=(key,)), *said) == set()
        assert faults(world, admit(a, on("n1", 1)), *said) == {("a", "Neighbour")}


def test_required_affinity_needs_a_friend_or_to_be_the_first_of_its_kind() -> None:
    fond = {"labels": (("app", "x"),), "pod_affinity": (PodAffinity(X, HOST),)}
    nodes = (node("n1"), node("n2"))
    a, b = work("a", pod=fond), work("b", pod=fond)
    assert faults(of(a, b, nodes=nodes), admit(a, on("n1", 0)), admit(b, on("n1", 1))) == set()
    assert faults(of(a, b, nodes=nodes), admit(a, on("n1", 0)), admit(b, on("n2", 1))) == {("b", "Neighbour")}
    stranger = work(pod={**fond, "labels": ()})
    assert ("a", "Neighbour") in faults(of(stranger), admit(stranger, on("n1", 0)))


def test_hard_spread_is_kept() -> None:
    even = work(count=2, pod={"labels": (("app", "x"),), "spread": (Spread(1, HOST, X),)})
    world = of(even, nodes=(node("n1"), node("n2")))
    assert faults(world, admit(even, on("n1", 0), on("n2", 0))) == set()
    assert ("a", "Neighbour") in faults(world, admit(even, on("n1", 0, 1)))


def test_who_moves_may_come_before_or_after_those_who_must_spread() -> None:
    """`v` leaves n1 to `a` and goes back there for `b`; `w` goes to n2 behind both, and was not there before."""
    x = {"labels": (("app", "x"),)}
    a, v, w = work("a", pod={**x, "spread": (Spread(1, HOST, X),)}), work("v", pod=x), work("w", count=2, pod=x)
    world = of(a, work("b"), nodes=(node("n1"), node("n2")), running=(runs(v, on("n1", 0)), runs(w, on("n1", 1, 2))))
    moves = [Evict(one.key, Cause.PREEMPTED, key, at(to)) for one, key, to in (
        (v, "ns/a", on("n1", 3)), (w, "ns/b", on("n2", 0, 1)))]
    plan = moves[0], admit(a, on("n1", 0), after=(v.key,)), moves[1], admit(work("b"), on("n1", 1), after=(w.key,))
    assert ("a", "Neighbour") not in faults(world, *plan)


def test_who_grows_may_come_behind_any_other_that_grows() -> None:
    fond = work("a", count=2, least=1, pod={"pod_affinity": (PodAffinity(X, HOST),)})
    friend = work("b", count=2, least=1, pod={"labels": (("app", "x"),)})
    world = of(nodes=(node("n1"), node("n2")), running=(runs(fond, on("n1", 0)), runs(friend, on("n1", 1))))
    grow = [Resize(one.key, (("main", 1),), (("main", 2),), at(on("n1", here), on("n2", here)))
            for here, one in enumerate((fond, friend))]
    assert faults(world, *grow) == faults(world, *grow[::-1]) == set()
    assert faults(world, grow[0], Keep(friend.key)) == {("a", "Neighbour")}


def test_a_host_port_is_taken_once_per_node() -> None:
    a, b = (work(key, pod={"host_ports": ((ip, "TCP", 80),)}) for key, ip in (("a", "0.0.0.0"), ("b", "10.0.0.1")))
    assert ("b", "Neighbour") in faults(of(a, b), admit(a, on("n1", 0)), admit(b, on("n1", 1)))
    other = work("b", pod={"host_ports": (("", "UDP", 80),)})
    assert faults(of(a, other), admit(a, on("n1", 0)), admit(other, on("n1", 1))) == set()


def test_every_rule_is_broken_somewhere_in_these_tests() -> None:
    told = "".join(path.read_text() for path in Path(__file__).parent.glob("test_check*.py"))
    assert [rule for rule in RULES if f'"{rule}"' not in told] == []
