"""Where in the tree of domains a podset is laid: required, preferred, nested, in segments, in rank order."""

import pytest
from builders import job, node, pod, runs
from hypothesis import given, settings
from hypothesis import strategies as some
from places import draft_of, has, placed, term, within

from fairway.engine.model import Admission, NodeShare, PodSet, PodSetPlacement, Preference, Segment, Taint
from fairway.engine.place import Ask, place
from fairway.engine.topology import tree_of

ZONE, RACK, HOST = "zone", "rack", "kubernetes.io/hostname"
LEVELS = (ZONE, RACK)


def host(name: str, gpus=4, **labels):
    """A node; its labels are its domains."""
    return node(name, gpus, labels=labels)


def racks(*sizes: int, gpus=4):
    """Racks a, b, c … of so many nodes of four GPUs."""
    letters = "abcdefgh"
    return [host(f"{letters[at]}{one}", gpus, rack=letters[at]) for at, size in enumerate(sizes) for one in range(size)]


def gang(count: int, gpus=4, topology=None, **fields):
    return job("g", podsets=(PodSet("main", count, count, pod(gpus=gpus), topology or within()),), **fields)


def test_a_required_level_holds_all_pods_in_one_domain():
    assert placed(gang(2, topology=within(RACK)), *racks(1, 2), levels=[RACK]) == "b0 b1"


def test_where_no_domain_holds_all_there_is_no_place():
    assert placed(gang(3, topology=within(RACK)), *racks(2, 2), levels=[RACK]) is None


def test_of_the_domains_that_fit_the_one_with_the_least_room_is_taken():
    assert placed(gang(2, topology=within(RACK)), *racks(4, 2, 3), levels=[RACK]) == "b0 b1"


def test_least_room_counts_what_is_used():
    used = runs(job("r", gpus=4), "c0", devices=((0, 1, 2, 3),))
    assert placed(gang(2, topology=within(RACK)), *racks(3, 3, 3), used, levels=[RACK]) == "c1 c2"


def test_domains_of_equal_room_are_taken_by_name():
    assert placed(gang(2, topology=within(RACK)), *racks(2, 2), levels=[RACK]) == "a0 a1"


def test_nodes_that_cannot_run_the_pod_are_no_room_of_a_domain():
    nodes = racks(2, 3)
    broken = [type(one)(**{**{name: getattr(one, name) for name in one.__slots__}, "is_ready": one.name != "a1"})
              for one in nodes]
    assert placed(gang(2, topology=within(RACK)), *broken, levels=[RACK]) == "b0 b1"


def test_a_node_without_the_label_is_in_no_domain():
    nodes = [host("a1", rack="a"), host("x1"), host("x2")]
    assert placed(gang(2, topology=within(RACK)), *nodes, levels=[RACK]) is None
    assert placed(gang(2), *nodes, levels=[RACK]) is not None


def test_equal_values_under_different_parents_are_different_domains():
    nodes = [host("a1", zone="x", rack="r1"), host("b1", zone="y", rack="r1")]
    assert placed(gang(2, topology=within(RACK)), *nodes, levels=LEVELS) is None


def test_a_rack_is_a_domain_even_where_its_zone_is_not_told():
    nodes = [host("a1", rack="r1"), host("a2", rack="r1"), host("b1", zone="y", rack="r2")]
    assert placed(gang(2, topology=within(RACK)), *nodes, levels=LEVELS) == "a1 a2"


def test_an_unknown_level_is_no_place():
    assert placed(gang(1, topology=within("row")), *racks(2), levels=[RACK]) is None
    assert placed(gang(1, topology=within(preferred="row")), *racks(2), levels=[RACK]) is None


def zones():
    """Zone x: racks of one and of three nodes; zone y: two racks of two."""
    sizes = {("x", "a"): 1, ("x", "b"): 3, ("y", "c"): 2, ("y", "d"): 2}
    return [host(f"{rack}{one}", zone=zone, rack=rack) for (zone, rack), size in sizes.items() for one in range(size)]


def test_a_preferred_level_is_kept_where_one_domain_holds_all():
    assert placed(gang(3, topology=within(preferred=RACK)), *zones(), levels=LEVELS) == "b0 b1 b2"


def test_a_preferred_level_climbs_until_one_domain_holds_all():
    assert placed(gang(4, topology=within(preferred=RACK)), *zones(), levels=LEVELS) == "a0 b0 b1 b2"


def test_a_preferred_level_splits_over_the_fewest_domains_where_none_holds_all():
    assert placed(gang(5, topology=within(preferred=RACK)), *racks(1, 2, 3, 2), levels=[RACK]) == "b0 b1 c0 c1 c2"


def test_the_last_part_of_a_split_goes_where_it_fits_closest():
    assert placed(gang(4, topology=within(preferred=RACK)), *racks(2, 1, 3, 2), levels=[RACK]) == "b0 c0 c1 c2"


def test_required_and_preferred_are_kept_together_the_preferred_inside():
    topology = within(ZONE, RACK)
    assert placed(gang(2, topology=topology), *zones(), levels=LEVELS) == "c0 c1"
    assert placed(gang(4, topology=topology), *zones(), levels=LEVELS) == "a0 b0 b1 b2"
    assert placed(gang(5, topology=topology), *zones(), levels=LEVELS) is None


def test_inside_the_chosen_domain_the_same_rule_holds_level_by_level():
    assert placed(gang(2, topology=within(ZONE)), *zones()[:4], levels=LEVELS) == "b0 b1"
    assert placed(gang(1, topology=within(ZONE)), *zones()[:4], levels=LEVELS) == "a0"


def test_inside_a_domain_a_gang_takes_the_fewest_nodes():
    nodes = [host("a1", 1, rack="a"), host("a2", 2, rack="a"), host("a3", 4, rack="a"), host("a4", 4, rack="a")]
    assert placed(gang(8, 1, topology=within(RACK)), *nodes, levels=[RACK]) == "a3*4 a4*4"
    assert placed(gang(5, 1, topology=within(RACK)), *nodes, levels=[RACK]) == "a1 a3*4"


def test_ranks_are_laid_in_the_order_of_domains():
    nodes = [host("n1", rack="b"), host("n2", rack="a"), host("n3", rack="b"), host("n4", rack="a")]
    assert placed(gang(4, topology=within(preferred=RACK)), *nodes, levels=[RACK]) == "n2 n4 n1 n3"


def test_small_pods_are_packed_so_that_big_domains_stay_whole():
    used = runs(job("r", gpus=4), "b0", devices=((0, 1, 2, 3),))
    assert placed(gang(1, 1), *racks(3, 3), used, levels=[RACK]) == "b1"


def test_one_pod_has_what_it_prefers_anywhere_and_is_packed_from_the_top():
    nodes = [host(f"n{at}", 1, zone=zone, rack=rack)
             for at, (zone, rack) in enumerate([("x", "a"), ("x", "b"), ("x", "c"), ("y", "d"), ("y", "d")])]
    assert placed(gang(1, 1, topology=within(preferred=RACK)), *nodes, levels=LEVELS) == "n3"
    assert placed(gang(2, 1, topology=within(preferred=RACK)), *nodes, levels=LEVELS) == "n3 n4"


def test_fewer_racks_come_before_fewer_nodes():
    nodes = [host("x3", 2, rack="r1"), host("x5", 2, rack="r2"), *[host(f"y{at}", 1, rack="r3") for at in range(4)]]
    assert placed(gang(4, 1, topology=within(preferred=RACK)), *nodes, levels=[RACK, HOST]) == "y0 y1 y2 y3"


def test_a_preference_that_splits_a_gang_takes_the_fewest_racks_of_any_zones():
    nodes = [host("n1", 2, zone="x", rack="a"), host("n2", 1, zone="x", rack="b"), host("n3", 3, zone="y", rack="a")]
    assert placed(gang(4, 1, topology=within(preferred=RACK)), *nodes, levels=LEVELS) == "n2 n3*3"


def test_an_elastic_podset_of_one_pod_at_least_prefers_the_rack_that_holds_its_whole_count():
    elastic = job("g", podsets=(PodSet("main", 3, 1, pod(gpus=4), within(preferred=RACK)),))
    for count in (1, 3):
        found = placed(elastic, *racks(1, 3), levels=[RACK], counts=(count,))
        assert found == " ".join(["b0", "b1", "b2"][:count])


def test_podsets_that_need_no_pod_are_placed_without_one_whatever_binds_them_together():
    lean = tuple(PodSet(name, 2, 0, pod(gpus=4)) for name in ("main", "more"))
    thing = job("g", podsets=lean, topology=within(RACK))
    assert place(draft_of(thing, *racks(1), levels=[RACK]), Ask(thing, (0, 0)), "default") == ()


def test_small_pods_go_to_the_tightest_domain_before_the_fullest_node():
    nodes = [*racks(3), host("b0", 4, rack="b")]
    used = runs(job("r", gpus=3), "a0", devices=((0, 1, 2),))
    assert placed(gang(1, 1), *nodes, used, levels=[RACK]) == "b0"


def test_an_unconstrained_gang_stays_in_one_domain_where_one_holds_it():
    assert placed(gang(3), *racks(2, 3, 4), levels=[RACK]) == "b0 b1 b2"


def test_an_unconstrained_gang_may_lie_anywhere():
    assert placed(gang(4), *racks(2, 1), host("x1"), levels=[RACK]) == "a0 a1 b0 x1"


def test_what_the_user_prefers_comes_before_the_tightest_domain():


    likes = pod(gpus=1, preferences=(Preference(1, term(has("gen", "5"))),))
    nodes = [host("a0", rack="a"), host("b0", rack="b", gen="5"), host("b1", rack="b")]
    assert placed(job("g", podsets=(PodSet("main", 1, 1, likes),)), *nodes, levels=[RACK]) == "b0"


def test_the_workloads_topology_binds_all_podsets_together():
    podsets = (PodSet("head", 1, 1, pod(gpus=2)), PodSet("worker", 2, 2, pod(gpus=4)))
    thing = job("g", podsets=podsets, topology=within(RACK))
    assert placed(thing, *racks(2, 3), levels=[RACK]) == "b2 | b0 b1"
    assert placed(thing, *racks(2, 2), levels=[RACK]) is None


def test_a_domain_that_holds_each_podset_but_not_all_is_passed_over():
    podsets = (PodSet("a", 2, 2, pod(gpus=4)), PodSet("b", 2, 2, pod(gpus=4)))
    assert placed(job("g", podsets=podsets, topology=within(RACK)), *racks(3, 4), levels=[RACK]) == "b0 b1 | b2 b3"


def test_a_podsets_own_topology_lies_inside_the_workloads():
    podsets = (PodSet("a", 2, 2, pod(gpus=4), within(RACK)), PodSet("b", 2, 2, pod(gpus=4), within(RACK)))
    assert placed(job("g", podsets=podsets, topology=within(ZONE)), *zones(), levels=LEVELS) == "c0 c1 | d0 d1"


def test_the_workloads_preferred_level_climbs_too():
    podsets = (PodSet("a", 2, 2, pod(gpus=4)), PodSet("b", 2, 2, pod(gpus=4)))
    assert placed(job("g", podsets=podsets, topology=within("", RACK)), *zones(), levels=LEVELS) == "b0 b1 | a0 b2"
    assert placed(job("g", podsets=podsets, topology=within("", RACK)), *racks(2, 2), levels=[RACK]) == "a0 a1 | b0 b1"


def test_podsets_without_a_common_topology_have_domains_of_their_own():
    podsets = (PodSet("a", 2, 2, pod(gpus=4), within(RACK)), PodSet("b", 2, 2, pod(gpus=4), within(RACK)))
    assert placed(job("g", podsets=podsets), *racks(2, 2), levels=[RACK]) == "a0 a1 | b0 b1"


def segments(*pairs):
    return within(segments=tuple(Segment(level, size) for level, size in pairs))


def test_of_equal_segments_the_tighter_domain_is_taken():
    nodes = [host("x1", 4), host("x3", 6), host("x5", 5), host("x6", 2)]
    assert placed(gang(12, 1, topology=segments((HOST, 2))), *nodes, levels=[HOST]) == "x1*4 x3*6 x6*2"
    assert placed(gang(6, 1, topology=segments((HOST, 2))), *[host("x1", 2), host("x3", 4), host("x5", 3)],
                  levels=[HOST]) == "x1*2 x3*4"


def test_each_segment_lies_in_one_domain():
    assert placed(gang(4, topology=segments((RACK, 2))), *racks(1, 2, 3), levels=[RACK]) == "b0 b1 c0 c1"
    assert placed(gang(6, topology=segments((RACK, 2))), *racks(3, 3), levels=[RACK]) is None


def test_a_last_segment_that_is_not_full_lies_in_one_domain_and_has_the_last_ranks():
    assert placed(gang(5, topology=segments((RACK, 2))), *racks(1, 2, 3), levels=[RACK]) == "b0 b1 c0 c1 a0"
    assert placed(gang(3, 2, topology=segments((HOST, 2))), *racks(2), levels=[RACK, HOST]) == "a0*2 a1"


def test_a_gang_smaller_than_its_segment_lies_in_one_domain():
    assert placed(gang(2, topology=segments((RACK, 4))), *racks(1, 2), levels=[RACK]) == "b0 b1"


def test_segments_lie_inside_the_required_domain():
    topology = within(ZONE, segments=(Segment(RACK, 2),))
    assert placed(gang(4, topology=topology), *zones(), levels=LEVELS) == "c0 c1 d0 d1"


def test_inner_segments_divide_the_outer():
    nodes = [host(f"{zone}{rack}{one}", 2, zone=zone, rack=rack) for zone in "xy" for rack in "ab" for one in range(3)]
    topology = segments((ZONE, 8), (RACK, 4), (HOST, 2))
    assert placed(gang(16, 1, topology=topology), *nodes, levels=[*LEVELS, HOST]) == (
        "xa0*2 xa1*2 xb0*2 xb1*2 ya0*2 ya1*2 yb0*2 yb1*2"
    )


def beside(*nodes: str):
    return Admission("default", (PodSetPlacement("main", tuple(NodeShare(name, 1) for name in nodes)),))


def test_growth_stays_in_the_required_domain_of_what_stands():
    ask = {"beside": beside("b0")}
    thing = gang(3, topology=within(RACK))
    assert placed(thing, *racks(1, 3), counts=(1,), ask=ask, levels=[RACK]) == "b0"
    assert placed(thing, *racks(4, 1), counts=(2,), ask=ask, levels=[RACK]) is None


def test_growth_prefers_the_preferred_domain_of_what_stands():
    ask, thing = {"beside": beside("b0")}, gang(3, topology=within(preferred=RACK))
    assert placed(thing, *racks(1, 3), counts=(2,), ask=ask, levels=[RACK]) == "b0 b1"
    assert placed(thing, *racks(3, 1), counts=(2,), ask=ask, levels=[RACK]) == "a0 a1"


def test_growth_goes_on_in_the_segment_that_was_begun():
    thing, nodes = gang(6, topology=segments((RACK, 2))), racks(3, 2, 4)
    assert placed(thing, *nodes, counts=(1,), ask={"beside": beside("a0", "a1", "c0")}, levels=[RACK])[0] == "c"
    full = [runs(job(f"r{at}", gpus=4), f"c{at}", devices=((0, 1, 2, 3),)) for at in range(4)]
    assert placed(thing, *nodes, *full, counts=(1,), ask={"beside": beside("c0")}, levels=[RACK]) is None
    found = placed(thing, *nodes, counts=(3,), ask={"beside": beside("c0")}, levels=[RACK]).split()
    assert [name[0] for name in found] == ["c", "b", "b"]


def test_a_node_that_is_to_be_avoided_is_avoided_before_domains_are_packed():
    marked = node("b0", 4, labels={"rack": "b"}, taints=(Taint("old", "", "PreferNoSchedule"),))
    assert placed(gang(1, 1), *racks(2), marked, levels=[RACK]) == "a0"


def test_a_tree_numbers_domains_in_the_order_of_their_paths():
    draft = draft_of(*zones(), host("n1", rack="a"), levels=LEVELS)
    tree = tree_of(draft.snapshot, "default")
    names = [node.name for node in draft.snapshot.nodes]
    assert dict(zip(names, tree.codes[1].tolist())) == {
        "a0": 0, "b0": 1, "b1": 1, "b2": 1, "c0": 2, "c1": 2, "d0": 3, "d1": 3, "n1": 4
    }
    assert tree.is_named[0].tolist() == [True, True, False] and tree.is_named[1].all()


@settings(max_examples=80, deadline=None)
@given(
    sizes=some.lists(some.tuples(*(some.integers(0, most) for most in (2, 3, 4))), min_size=1, max_size=12),
    count=some.integers(1, 10),
    level=some.sampled_from([ZONE, RACK, HOST]),
    is_required=some.booleans(),
)
def test_a_required_gang_is_placed_exactly_where_some_domain_has_room(sizes, count, level, is_required):
    nodes = [host(f"n{at:02}", gpus, zone=f"z{zone}", rack=f"r{rack}") for at, (zone, rack, gpus) in enumerate(sizes)]
    paths = {ZONE: lambda one: one[0], RACK: lambda one: one[:2], HOST: lambda one: one}
    rooms: dict = {}
    for at, (zone, rack, gpus) in enumerate(sizes):
        path = paths[level]((zone, rack, at))
        rooms[path] = rooms.get(path, 0) + gpus
    topology = within(level) if is_required else within(preferred=level)
    thing = gang(count, 1, topology=topology)
    draft = draft_of(*nodes, thing, levels=[ZONE, RACK, HOST])
    found = place(draft, Ask(thing, (count,)), "default")
    enough = max(rooms.values()) if is_required else sum(rooms.values())
    assert (found is not None) == (enough >= count)
    if found is not None:
        used = {share.node: share.count for share in found[0].nodes}
        assert sum(used.values()) == count
        assert all(used[name] <= sizes[int(name[1:])][2] for name in used)
        fits = [room for room in rooms.values() if room >= count]
        if fits and (is_required or count > 1):
            domains = {paths[level]((*sizes[int(name[1:])][:2], int(name[1:]))) for name in used}
            assert [rooms[one] for one in domains] == [min(fits)]


@pytest.mark.parametrize("strategy", ["Spread", "Fragmentation"])
def test_a_required_level_holds_whatever_the_strategy(strategy):
    found = placed(gang(4, 1, topology=within(RACK)), *racks(1, 3), levels=[RACK], strategy=strategy)
    assert found == "a0*4"
