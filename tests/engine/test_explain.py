"""Why nothing fits, and the figures that say so."""

from dataclasses import replace

import numpy as np
from builders import job, node, pod, runs
from places import draft_of, has, other, within

from fairway.engine.explain import explain
from fairway.engine.model import ATTACHABLE, Expression, PodClass, PodSet, Pool, amounts
from fairway.engine.place import Ask, place
from fairway.engine.plan import Facts, Reason


def why(workload, *things, pools=("default",), **fields) -> tuple[Reason, Facts]:
    draft = draft_of(*things, workload, **fields)
    ask = Ask(workload, tuple(podset.count for podset in workload.podsets))
    assert all(place(draft, ask, pool) is None for pool in pools)
    return explain(draft, ask, pools)


def used(node_name: str, *devices: int):
    return runs(job(f"u{node_name}{devices}", gpus=len(devices)), node_name, devices=(devices,))


def test_no_room_says_what_is_missing():
    reason, facts = why(job("a", gpus=4), node("n1", 4), used("n1", 0, 1, 2))
    assert reason == Reason.NO_ROOM
    assert (facts.resource, facts.needed, facts.most_free, facts.missing) == ("nvidia.com/gpu", 4000, 1000, 3000)


def test_the_scarcest_resource_is_named():
    _, facts = why(job("a", gpus=1, cpu=8), node("n1", 4, cpu=8), other("o", "n1", requests=amounts({"cpu": 4000})))
    assert (facts.resource, facts.needed, facts.missing, facts.domain) == ("cpu", 8000, 4000, "n1")


def test_a_sum_that_would_do_is_fragmented():
    reason, facts = why(job("a", gpus=2), node("n1", 2), node("n2", 2), used("n1", 0), used("n2", 0))
    assert reason == Reason.FRAGMENTED
    assert (facts.needed, facts.most_free, facts.missing) == (2000, 1000, None)


def test_what_no_node_holds_never_fits():
    assert why(job("a", gpus=9), node("n1", 8), node("n2", 8))[0] == Reason.NEVER_FITS
    assert why(job("a", gpus=4, count=5), node("n1", 8), node("n2", 8))[0] == Reason.NEVER_FITS
    assert why(job("a", gpus=1, pod={"node_selector": (("disk", "ssd"),)}), node("n1", 8))[0] == Reason.NEVER_FITS


def test_of_several_pools_one_whose_nodes_take_the_pods_tells_why_it_never_fits():
    pools = [Pool(name, (Expression("pool", "In", (name,)),)) for name in ("a100", "h100")]
    nodes = [node(f"{one.name}-1", 8, labels={"pool": one.name}) for one in pools]
    thing = job("a", gpus=9, pod={"node_selector": (("pool", "h100"),)})
    draft = draft_of(*nodes, thing, pools=tuple(pools))
    reason, facts = explain(draft, Ask(thing, (1,)), ("a100", "h100"))
    assert (reason, facts.pool, facts.most_free) == (Reason.NEVER_FITS, "h100", 8000)


def test_a_device_held_twice_is_there_when_its_holders_are_gone():
    goes = runs(job("u", gpus=1), "n1", devices=((0,),), is_leaving=True)
    comes = runs(job("v", gpus=1), "n1", devices=((0,),), is_promised=True, waits_for=("ns/u",))
    assert why(job("a", pod={"gpu_fraction": 500}), node("n1", 1), goes, comes)[0] == Reason.NO_ROOM


def test_a_node_that_is_out_of_use_may_come_back():
    assert why(job("a", gpus=1), node("n1", 8, is_unschedulable=True))[0] == Reason.NO_ROOM
    assert why(job("a", gpus=1), node("n1", 8, is_leaving=True))[0] == Reason.NEVER_FITS


def test_a_pool_that_may_grow_is_not_too_small_for_ever():
    shape = amounts({"cpu": 64000, "nvidia.com/gpu": 8000})
    grows = Pool("default", max_nodes=3, shape=shape)
    assert why(job("a", gpus=8, count=3), node("n1", 8), pools=("default",))[0] == Reason.NEVER_FITS
    draft = draft_of(node("n1", 8), thing := job("a", gpus=8, count=3), pools=(grows,))
    assert explain(draft, Ask(thing, (3,)), ("default",))[0] == Reason.NO_ROOM
    more = job("b", gpus=8, count=4)
    assert explain(draft, Ask(more, (4,)), ("default",))[0] == Reason.NEVER_FITS


def test_a_node_that_limits_no_volumes_attaches_any_number_and_so_does_one_to_come():
    name = f"{ATTACHABLE}csi-disks"
    full = node("n1", 8)
    full = replace(full, capacity=amounts(dict(full.capacity) | {name: 1}))
    two = job("a", gpus=1, pod={"attaches": ((name, 2),)})
    reason, facts = why(two, full)
    assert (reason, facts.resource, facts.most_free) == (Reason.NEVER_FITS, name, 1)
    draft = draft_of(full, two, pools=(Pool("default", max_nodes=2, shape=amounts({"nvidia.com/gpu": 8000})),))
    assert explain(draft, Ask(two, (1,)), ("default",))[0] == Reason.NO_ROOM
    (placed,) = place(draft_of(full, node("n2", 8), two), Ask(two, (1,)), "default") or ()
    assert placed.nodes[0].node == "n2"


def test_an_unknown_level_comes_first():
    thing = job("a", podsets=(PodSet("main", 1, 1, pod(gpus=9), within("rack")),))
    reason, facts = why(thing, node("n1", 8), levels=["zone"])
    assert (reason, facts.level) == (Reason.LEVEL_UNKNOWN, "rack")


def racks(*names: str):
    return [node(f"{name}{at}", 4, labels={"rack": name}) for at, name in enumerate(names)]


def test_room_enough_in_the_pool_but_in_no_domain_is_no_domain():
    thing = job("a", podsets=(PodSet("main", 2, 2, pod(gpus=4), within("rack")),))
    reason, facts = why(thing, *racks("a", "a", "b", "b"), used("a0", 0), used("b3", 0), levels=["rack"])
    assert reason == Reason.NO_DOMAIN
    assert (facts.level, facts.domain, facts.most_free) == ("rack", "a", 7000)


def test_no_room_tells_the_domain_with_the_most():
    thing = job("a", podsets=(PodSet("main", 8, 8, pod(gpus=1), within("rack")),))
    busy = used("a0", 0, 1, 2, 3), used("a1", 0, 1, 2, 3), used("b2", 0, 1)
    reason, facts = why(thing, *racks("a", "a", "b", "b"), *busy, levels=["rack"])
    assert reason == Reason.NO_ROOM
    assert (facts.level, facts.domain, facts.most_free, facts.missing) == ("rack", "b", 6000, 2000)


def test_a_gang_too_big_for_every_domain_never_fits():
    thing = job("a", podsets=(PodSet("main", 3, 3, pod(gpus=4), within("rack")),))
    assert why(thing, *racks("a", "a", "b", "b"), levels=["rack"])[0] == Reason.NEVER_FITS


def test_fractions_where_nobody_tells_devices_apart_lack_a_device():
    thing = job("a", podsets=(PodSet("main", 1, 1, pod(gpu_fraction=500)),))
    assert why(thing, node("n1", 8, chooser="Kubelet"))[0] == Reason.NO_DEVICE


def test_gpu_memory_that_nobody_knows_lacks_a_device():
    thing = job("a", podsets=(PodSet("main", 1, 1, pod(gpu_memory=2**30)),))
    assert why(thing, node("n1", 8))[0] == Reason.NO_DEVICE


def test_alignment_that_nothing_tells_lacks_a_device():
    thing = job("a", podsets=(PodSet("main", 1, 1, pod(gpus=2, alignment_required=True)),))
    assert why(thing, node("n1", 8, chooser="Kubelet"))[0] == Reason.NO_DEVICE


def test_a_fraction_waits_for_room_where_devices_are_told_apart():
    thing = job("a", podsets=(PodSet("main", 1, 1, pod(gpu_fraction=500)),))
    busy = runs(job("r", podsets=(PodSet("main", 1, 1, pod(gpu_fraction=600)),)), "n1", devices=((0,),))
    assert why(thing, node("n1", 1), busy)[0] == Reason.NO_ROOM


def test_two_halves_of_devices_are_no_whole_one():
    busy = [runs(job(f"r{at}", podsets=(PodSet("main", 1, 1, pod(gpu_fraction=500)),)), "n1", devices=((at,),))
            for at in (0, 1)]
    assert why(job("a", gpus=1), node("n1", 2), *busy)[0] == Reason.NO_DEVICE


def test_the_count_with_which_it_would_start_is_true():
    thing = job("a", gpus=2, count=5)
    draft = draft_of(node("n1", 4), node("n2", 3), node("n3", 8), used("n3", *range(8)), thing)
    _, facts = explain(draft, Ask(thing, (5,)), ("default",))
    assert facts.would_fit == {"main": 3}
    assert place(draft, Ask(thing, (3,)), "default") is not None
    assert place(draft, Ask(thing, (4,)), "default") is None


def test_what_would_start_with_no_pod_at_all_is_not_told():
    assert why(job("a", gpus=2), node("n1", 2), used("n1", 0))[1].would_fit is None


def test_of_several_pools_the_one_that_comes_closest_tells():
    pools = Pool("a", (has("pool", "a"),)), Pool("b", (has("pool", "b"),))
    nodes = node("n1", 1, labels={"pool": "a"}), node("n2", 4, labels={"pool": "b"})
    draft = draft_of(*nodes, used("n2", 0, 1), thing := job("a", gpus=3), pools=pools)
    reason, facts = explain(draft, Ask(thing, (1,)), ("a", "b"))
    assert (reason, facts.pool) == (Reason.NO_ROOM, "b")
    assert explain(draft, Ask(thing, (1,)), ("a",))[0] == Reason.NEVER_FITS


def test_a_pool_of_no_such_name_never_fits():
    draft = draft_of(node("n1", 8), thing := job("a", gpus=1))
    assert explain(draft, Ask(thing, (1,)), ("gone",)) == (Reason.NEVER_FITS, Facts(pool="gone", detail="gone"))
    assert explain(draft, Ask(thing, (1,)), ())[0] == Reason.NEVER_FITS


def test_a_resource_that_nobody_offers_never_fits():
    thing = job("a", podsets=(PodSet("main", 1, 1, PodClass(requests=amounts({"example.com/fpga": 1}))),))
    reason, facts = why(thing, node("n1", 8))
    assert (reason, facts.resource, facts.missing) == (Reason.NEVER_FITS, "example.com/fpga", 1)


def test_nodes_that_are_not_allowed_are_no_room():
    draft = draft_of(node("n1", 8), thing := job("a", gpus=1))
    assert explain(draft, Ask(thing, (1,), np.array([False])), ("default",))[0] == Reason.NO_ROOM


def test_explaining_leaves_the_draft_as_it_is():
    draft = draft_of(node("n1", 4), used("n1", 0, 1), thing := job("a", gpus=3))
    before = draft.free.copy(), len(draft.log)
    explain(draft, Ask(thing, (1,)), ("default",))
    assert (draft.free == before[0]).all() and len(draft.log) == before[1]
