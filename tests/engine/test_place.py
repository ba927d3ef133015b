"""Which nodes a workload gets: gangs, packing, spreading, and what Kubernetes lets a pod ask of a node."""

from itertools import chain, cycle, islice, takewhile

import numpy as np
import pytest
from builders import GIB, job, milli, node, pod, runs, world
from hypothesis import given, settings
from hypothesis import strategies as some
from places import draft_of, has, other, placed, room, term

from fairway.engine.draft import Draft
from fairway.engine.feasibility import feasible
from fairway.engine.model import (
    GPU,
    Admission,
    NodeShare,
    PodClass,
    PodSet,
    PodSetPlacement,
    Pool,
    Preference,
    Taint,
    Toleration,
    amounts,
)
from fairway.engine.place import Ask, place, place_gang, slots_of
from fairway.engine.placement_cache import take
from fairway.engine.state import snapshot_of


def gpu(name: str, **fields):
    """One pod of one GPU."""
    return job(name, gpus=1, **fields)


def test_a_gang_gets_all_of_its_pods():
    assert placed(job("a", gpus=4, count=3), node("n1", 8), node("n2", 4)) == "n1*2 n2"


def test_a_gang_that_does_not_fit_whole_gets_nothing():
    assert placed(job("a", gpus=4, count=4), node("n1", 8), node("n2", 4)) is None


def test_podsets_start_together_or_not_at_all():
    podsets = (PodSet("driver", 1, 1, pod(cpu=4)), PodSet("worker", 2, 2, pod(gpus=4)))
    assert placed(job("a", podsets=podsets), node("c1", cpu=8), node("n1", 8)) == "c1 | n1*2"
    assert placed(job("a", podsets=podsets), node("c1", cpu=8), node("n1", 4)) is None


def test_the_podset_with_the_fewest_places_is_laid_first():
    free, bound = pod(gpus=4), pod(gpus=4, node_selector=(("kubernetes.io/hostname", "n1"),))
    podsets = (PodSet("any", 1, 1, free), PodSet("bound", 1, 1, bound))
    assert placed(job("a", podsets=podsets), node("n1", 4), node("n2", 4)) == "n2 | n1"


def test_podsets_that_find_no_room_spread_are_packed():
    podsets = (PodSet("many", 3, 3, pod(gpus=1, cpu=4)), PodSet("big", 1, 1, pod(gpus=4)))
    nodes = node("n1", 4, cpu=16), node("n2", 4, cpu=8)
    assert placed(job("a", podsets=podsets), *nodes, strategy="Spread") == "n1*3 | n2"


def test_podsets_do_not_take_the_same_room_twice():
    podsets = (PodSet("a", 1, 1, pod(gpus=6)), PodSet("b", 1, 1, pod(gpus=6)))
    assert placed(job("a", podsets=podsets), node("n1", 8)) is None


def test_a_podset_of_which_no_pods_are_asked_is_left_out():
    podsets = (PodSet("a", 1, 0, pod(gpus=1)), PodSet("b", 1, 1, pod(gpus=1)))
    assert placed(job("a", podsets=podsets), node("n1", 8), counts=(0, 1)) == "n1"


def test_a_pod_goes_to_the_node_with_the_fewest_free_gpus():
    assert placed(gpu("a"), node("n1", 8), node("n2", 4), node("n3", 8)) == "n2"
    assert placed(job("a", gpus=3), node("n1", 8), node("n2", 2), node("n3", 4)) == "n3"


def test_equal_nodes_are_taken_by_name():
    assert placed(gpu("a"), node("n2", 8), node("n1", 8)) == "n1"


def test_used_room_counts():
    assert placed(gpu("a"), node("n1", 8), node("n2", 8), runs(job("r", gpus=2), "n2", devices=((0, 1),))) == "n2"


def test_a_pod_without_gpus_goes_to_a_node_without_them():
    assert placed(job("a", cpu=1), node("g1", 8, cpu=4), node("n1", cpu=64)) == "n1"


def test_a_pod_without_gpus_goes_to_the_node_with_the_least_cpu():
    assert placed(job("a", cpu=4), node("n1", cpu=64), node("n2", cpu=8), node("n3", cpu=2)) == "n2"


def test_a_pod_without_gpus_takes_a_gpu_node_when_no_other_has_room():
    assert placed(job("a", cpu=8), node("g1", 8, cpu=16), node("n1", cpu=4)) == "g1"


def test_a_pod_without_requests_fits_any_ready_node_with_a_pod_slot():
    assert placed(job("a"), node("n1", cpu=0, pods=1)) == "n1"
    assert placed(job("a"), node("n1", pods=1), other("b", "n1")) is None


def test_each_pod_takes_a_slot():
    assert placed(job("a", cpu=1, count=3), node("n1", pods=2), node("n2", pods=2)) == "n1*2 n2"


def test_a_gang_that_fits_one_node_goes_to_the_fullest_that_holds_it():
    nodes = node("n1", 8), node("n2", 8), node("n3", 2)
    used = runs(job("r", gpus=2), "n2", devices=((0, 1),))
    assert placed(job("a", gpus=2, count=3), *nodes, used) == "n2*3"


def test_a_larger_gang_fills_the_fullest_nodes_first():
    assert placed(job("a", gpus=1, count=11), node("n1", 8), node("n2", 2), node("n3", 4)) == "n1*5 n2*2 n3*4"


def test_a_resource_that_no_node_offers_fits_nowhere():
    thing = job("a", podsets=(PodSet("main", 1, 1, PodClass(requests=amounts({"example.com/fpga": 1}))),))
    assert placed(thing, node("n1", 8)) is None


def test_a_mig_profile_is_a_resource_of_its_own_and_packed_by_itself():
    profile = "nvidia.com/mig-1g.10gb"
    sliced = [node(f"n{i}", 8, chooser="Kubelet") for i in (1, 2)]
    nodes = [type(one)(one.name, one.labels, (*one.capacity, (profile, count)), chooser="Kubelet")
             for one, count in zip(sliced, (7, 3))]
    thing = job("a", podsets=(PodSet("main", 2, 2, PodClass(requests=amounts({profile: 1}))),))
    assert placed(thing, *nodes) == "n2*2"


def test_memory_binds_as_well_as_gpus():
    thing = job("a", podsets=(PodSet("main", 2, 2, PodClass(requests=amounts({GPU: 1000, "memory": 300 * GIB}))),))
    assert placed(thing, node("n1", 8), node("n2", 8)) == "n1 n2"


@pytest.mark.parametrize("fault", ["is_unschedulable", "is_unhealthy", "is_leaving"])
def test_a_node_that_is_going_out_of_use_takes_nothing_new(fault):
    assert placed(gpu("a"), node("n1", 2, **{fault: True}), node("n2", 8)) == "n2"


def test_a_node_that_is_not_ready_takes_nothing():
    assert placed(gpu("a"), node("n1", 2, is_ready=False)) is None


def test_a_node_selector_needs_every_label():
    asks = {"node_selector": (("disk", "ssd"), ("gen", "4"))}
    nodes = node("n1", 2, labels={"disk": "ssd"}), node("n2", 8, labels={"disk": "ssd", "gen": "4"})
    assert placed(gpu("a", pod=asks), *nodes) == "n2"


def test_of_node_affinity_one_term_is_enough_and_all_of_its_expressions_are_needed():
    terms = (term(has("gen", "4"), has("disk", "ssd")), term(has("gen", "5")))
    nodes = [node(f"n{i}", 8 - i, labels=labels)
             for i, labels in enumerate([{"gen": "4"}, {"gen": "5"}, {"gen": "4", "disk": "ssd"}, {}])]
    assert placed(gpu("a", pod={"affinity": terms}), *nodes) == "n2"
    assert placed(job("a", gpus=1, count=13, pod={"affinity": terms}), *nodes) == "n1*7 n2*6"


@pytest.mark.parametrize(
    ("expression", "nodes"),
    [
        (has("gen", "4", "5"), {"n4", "n5"}),
        (has("gen", "4", operator="NotIn"), {"n0", "n5", "nx"}),
        (has("gen", operator="Exists"), {"n4", "n5", "nx"}),
        (has("gen", operator="DoesNotExist"), {"n0"}),
        (has("gen", "4", operator="Gt"), {"n5"}),
        (has("gen", "5", operator="Lt"), {"n4"}),
    ],
)
def test_an_expression_selects_as_in_kubernetes(expression, nodes):
    labels = {"n0": {}, "n4": {"gen": "4"}, "n5": {"gen": "5"}, "nx": {"gen": "x"}}
    snapshot = draft_of(*[node(name, labels=has_labels) for name, has_labels in labels.items()]).snapshot
    mask = feasible(snapshot, PodClass(affinity=(term(expression),)), "default")
    assert {one.name for one, is_open in zip(snapshot.nodes, mask) if is_open} == nodes


def test_a_term_may_name_nodes():
    assert placed(gpu("a", pod={"affinity": (term(names=("n2",)),)}), node("n1", 2), node("n2", 8)) == "n2"


def test_a_term_without_requirements_matches_no_node():
    assert placed(gpu("a", pod={"affinity": (term(),)}), node("n1", 2)) is None


def test_each_volume_binds_the_pod_to_where_it_can_be_reached():
    zone = term(has("zone", "a"))
    nodes = node("n1", 2, labels={"zone": "b"}), node("n2", 8, labels={"zone": "a"})
    assert placed(gpu("a", pod={"volumes": ((zone,),)}), *nodes) == "n2"
    assert placed(gpu("a", pod={"volumes": ((zone,), (term(has("zone", "b")),))}), *nodes) is None


def test_what_is_preferred_comes_before_packing():
    wish = Preference(10, term(has("gen", "5")))
    nodes = node("n1", 2), node("n2", 8, labels={"gen": "5"})
    assert placed(gpu("a", pod={"preferences": (wish,)}), *nodes) == "n2"


def test_the_heavier_preference_wins():
    wishes = Preference(1, term(has("gen", "4"))), Preference(5, term(has("gen", "5")))
    nodes = node("n1", 2, labels={"gen": "4"}), node("n2", 8, labels={"gen": "5"})
    assert placed(gpu("a", pod={"preferences": wishes}), *nodes) == "n2"


def test_a_preference_that_cannot_be_had_is_dropped():
    wish = Preference(10, term(has("gen", "5")))
    assert placed(job("a", gpus=4, pod={"preferences": (wish,)}), node("n1", 4), node("n2", 2)) == "n1"


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_taint_keeps_away_who_does_not_tolerate_it(effect):
    nodes = node("n1", 2, taints=(Taint("team", "nlp", effect),)), node("n2", 8)
    assert placed(gpu("a"), *nodes) == "n2"
    for one in (
        Toleration("team", "Equal", "nlp", effect),
        Toleration("team", "Exists"),
        Toleration("", "Exists"),
    ):
        assert placed(gpu("a", pod={"tolerations": (one,)}), *nodes) == "n1"


@pytest.mark.parametrize(
    "one", [Toleration("team", "Equal", "cv"), Toleration("team", "Exists", "", "NoExecute"), Toleration("x", "Exists")]
)
def test_a_toleration_of_something_else_does_not_help(one):
    assert placed(gpu("a", pod={"tolerations": (one,)}), node("n1", 2, taints=(Taint("team", "nlp"),))) is None


def test_a_node_marked_prefer_no_schedule_is_taken_last():
    marked = node("n1", 2, taints=(Taint("old", "", "PreferNoSchedule"),))
    assert placed(gpu("a"), marked, node("n2", 8)) == "n2"
    assert placed(job("a", gpus=1, count=9), marked, node("n2", 8)) == "n1 n2*8"


def test_measured_load_keeps_pods_away():
    assert placed(gpu("a"), node("n1", 6, load=(("cpu", 980),)), node("n2", 8, load=(("cpu", 300),))) == "n2"


def test_spread_takes_the_node_with_the_most_free():
    assert placed(gpu("a"), node("n1", 4), node("n2", 8), strategy="Spread") == "n2"
    assert placed(job("a", gpus=1, count=4), node("n1", 4), node("n2", 4), strategy="Spread") == "n1*2 n2*2"
    assert placed(job("a", gpus=1, count=6), node("n1", 2), node("n2", 8), strategy="Spread") == "n2*6"


def test_inference_is_spread_by_default():
    assert placed(gpu("a", kind="Inference"), node("n1", 4), node("n2", 8)) == "n2"
    assert placed(gpu("a", kind="Interactive"), node("n1", 4), node("n2", 8)) == "n1"


def test_the_policy_may_overrule_the_strategy_of_the_pool():
    assert placed(gpu("a"), node("n1", 4), node("n2", 8), ask={"strategy": "Spread"}) == "n2"


def test_only_nodes_of_the_pool_are_used():
    pools = Pool("a", (has("pool", "a"),)), Pool("b", (has("pool", "b"),))
    nodes = node("n1", 2, labels={"pool": "b"}), node("n2", 8, labels={"pool": "a"}), node("n3", 1)
    assert placed(gpu("a"), *nodes, pool="a", pools=pools) == "n2"
    assert placed(gpu("a"), *nodes, pool="b", pools=pools) == "n1"
    assert placed(gpu("a"), *nodes, pool="none", pools=pools) is None


def test_only_allowed_nodes_are_used():
    assert placed(gpu("a"), node("n1", 2), node("n2", 8), ask={"allowed": np.array([False, True])}) == "n2"


def test_the_draft_is_not_changed():
    podsets = (PodSet("a", 2, 2, pod(gpus=3)), PodSet("b", 1, 1, pod(gpu_fraction=500)))
    draft = draft_of(node("n1", 8), node("n2", 8), thing := job("a", podsets=podsets))
    before = draft.free.copy(), draft.device_free.copy(), draft.version
    assert place(draft, Ask(thing, (2, 1)), "default") is not None
    assert (draft.free == before[0]).all() and (draft.device_free == before[1]).all() and draft.version == before[2]


def test_room_is_whole_pods_on_feasible_nodes():
    draft = draft_of(node("n1", 8), node("n2", 3), node("n3", 8, is_ready=False))
    assert room(draft, pod(gpus=2), "default").tolist() == [4, 1, 0]
    draft.start(thing := job("a", gpus=2), Admission("default", place(draft, Ask(thing, (1,)), "default")))
    assert room(draft, pod(gpus=2), "default").tolist() == [4, 0, 0]


def test_growth_is_told_without_what_stands_already():
    standing = Admission("default", (PodSetPlacement("main", (NodeShare("n1", 2, ((0, 1), (2, 3))),)),))
    thing = job("a", gpus=2, count=4)
    assert placed(thing, node("n1", 8), node("n2", 8), counts=(1,), ask={"beside": standing}) == "n1"


steps = some.lists(some.tuples(some.integers(0, 5), some.booleans()), min_size=5, max_size=60)
sizes = some.lists(some.tuples(some.integers(0, 4), some.integers(0, 6)), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(steps=steps, sizes=sizes, strategy=some.sampled_from(["Binpack", "Spread"]))
def test_the_short_way_of_single_pods_ends_where_the_long_way_does(steps, sizes, strategy):
    """Classes in any order, with pods that go away in between: always the best node with room."""
    jobs = [job(f"j{i}", gpus=gpus, cpu=cpu) for i, (gpus, cpu) in enumerate(sizes)]
    nodes = [node(f"n{i}", (0, 2, 4, 4, 3)[i % 5], cpu=6 + i % 3, chooser=("Kubelet", "Scheduler")[i % 2])
             for i in range(12)]
    snapshot = snapshot_of(world(*nodes, *jobs, pools=(Pool("default", strategy=strategy),)))
    draft, running = Draft(snapshot), []
    for step, (which, starts) in enumerate(steps):
        thing = jobs[which % len(jobs)]
        found = place(draft, Ask(thing, (1,)), "default")
        assert found == place_gang(Draft(_now(draft)), Ask(thing, (1,)), "default")
        if found and starts:
            admission = Admission("default", found)
            draft.start(type(thing)(f"ns/r{step}", "q", thing.podsets), admission)
            running.append((thing, admission))
        elif running and not starts:
            _give_back(draft, *running.pop())


@settings(max_examples=60, deadline=None)
@given(taken=steps, sizes=sizes, count=some.integers(2, 40), strategy=some.sampled_from(["Binpack", "Spread"]),
       told=some.booleans())  # fmt: skip
def test_places_taken_at_once_are_those_taken_one_after_the_other(taken, sizes, count, strategy, told):
    jobs = [job(f"j{i}", gpus=gpus, cpu=cpu) for i, (gpus, cpu) in enumerate(sizes)]
    nodes = [node(f"n{i}", (0, 2, 4, 4, 3)[i % 5], cpu=6 + i % 3, chooser=("Kubelet", "Scheduler")[told and i % 2])
             for i in range(12)]
    snapshot = snapshot_of(world(*nodes, *jobs, pools=(Pool("default", strategy=strategy),)))
    drafts = Draft(snapshot), Draft(snapshot)
    for which, _ in taken[:10]:
        for draft in drafts:
            take([slots_of(draft, Ask(jobs[which % len(jobs)], (1,)), "default")])
    turns = [jobs[which % len(jobs)] for which, _ in islice(cycle(taken), count)]
    lines = [[slots_of(draft, Ask(one, (1,)), "default") for one in turns] for draft in drafts]
    of_a_kind = [at for at, one in enumerate(lines[0]) if one.kind == lines[0][0].kind]
    at_once, singly = ([line[at] for at in of_a_kind] for line in lines)
    assert take(at_once) == [*chain(*takewhile(bool, (take([one]) for one in singly)))]
    assert (drafts[0].free == drafts[1].free).all() and (drafts[0].device_free == drafts[1].device_free).all()


def _now(draft):
    return type(draft.snapshot)(**{
        **{name: getattr(draft.snapshot, name) for name in type(draft.snapshot).__slots__},
        "free": draft.free.copy(), "device_free": draft.device_free.copy(),
    })


def _give_back(draft, thing, admission):
    with draft.trial() as trial:
        trial.keep()
        draft._take(thing, admission, -1)


def test_many_alike_fill_node_after_node():
    nodes = [node(f"n{i}", cpu=4) for i in range(3)]
    jobs = [job(f"j{i}", cpu=1) for i in range(12)]
    draft = draft_of(*nodes, *jobs)
    made = {}
    for one in draft.snapshot.pending:
        found = place(draft, Ask(one, (1,)), "default")
        draft.start(one, made.setdefault(id(found), Admission("default", found)))
    assert [share.node for _, admission in draft.started.values() for share in admission.podsets[0].nodes] == [
        f"n{i // 4}" for i in range(12)
    ]
    assert draft.free[0].tolist() == [0, 0, 0] and milli(4) == 4000
