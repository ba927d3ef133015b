"""Pods beside pods: affinity, anti-affinity, topology spread, host ports."""

import pytest
from builders import job, node, runs
from hypothesis import given, settings
from hypothesis import strategies as some
from places import draft_of, has, other, placed, within

from fairway.engine.model import (
    Pod,
    PodAffinity,
    PodClass,
    PodSet,
    Preference,
    Spread,
    Taint,
    Term,
    Toleration,
    amounts,
)
from fairway.engine.place import Ask, place

HOST, ZONE = "kubernetes.io/hostname", "zone"
WEB, DB = {"labels": (("app", "web"),)}, {"labels": (("app", "db"),)}


def toward(app: str, key=HOST, weight=None, **fields) -> PodAffinity:
    return PodAffinity((has("app", app),), key, weight=weight, **fields)


def away(app: str, key=HOST, weight=None, **fields) -> PodAffinity:
    return toward(app, key, weight, anti=True, **fields)


def pods(name: str, count=1, cpu=1, namespace="ns", **fields):
    """A gang of pods of so much CPU."""
    of = PodClass(namespace=namespace, requests=amounts({"cpu": cpu * 1000}), **fields)
    return job(name, podsets=(PodSet("main", count, count, of),))


def zones(*names: str, cpu=8):
    """A node in each of the zones named: a1, a2, b1 …"""
    seen: dict = {}
    return [node(f"{one}{seen.setdefault(one, []).append(1) or len(seen[one])}", cpu=cpu, labels={ZONE: one})
            for one in names]


def test_a_pod_stands_where_the_pod_is_that_it_belongs_to():
    nodes = zones("a", "b")
    assert placed(pods("p", pod_affinity=(toward("db"),)), *nodes, other("d", "b1", **DB, namespace="ns")) == "b1"


def test_affinity_reaches_as_far_as_its_topology_key():
    nodes = zones("a", "b", "b", cpu=2)
    full = other("d", "b1", **DB, namespace="ns", requests=amounts({"cpu": 2000}))
    assert placed(pods("p", pod_affinity=(toward("db", ZONE),)), *nodes, full) == "b2"


def test_affinity_that_nobody_meets_is_no_place():
    assert placed(pods("p", pod_affinity=(toward("db"),)), *zones("a")) is None


def test_the_first_of_a_group_that_means_itself_may_stand_anywhere():
    thing = pods("p", count=3, pod_affinity=(toward("web"),), **WEB)
    assert placed(thing, *zones("a", "b")) == "a1*3"


def test_the_first_of_a_group_still_needs_the_topology_key():
    bare = node("n1", cpu=2)
    assert placed(pods("p", pod_affinity=(toward("web", ZONE),), **WEB), bare, *zones("a")) == "a1"


def test_a_group_goes_where_all_of_it_fits_together():
    thing = pods("p", count=3, pod_affinity=(toward("web"),), **WEB)
    assert placed(thing, node("n1", cpu=2), node("n2", cpu=4)) == "n2*3"
    assert placed(thing, node("n1", cpu=2), node("n2", cpu=2)) is None


def test_the_first_of_a_group_joins_one_that_is_there_already():
    thing = pods("p", pod_affinity=(toward("web"),), **WEB)
    assert placed(thing, *zones("a", "b"), other("w", "b1", **WEB, namespace="ns")) == "b1"


def test_all_terms_must_be_met_by_the_same_pods():
    both = {"labels": (("app", "db"), ("tier", "x"))}
    terms = toward("db"), PodAffinity((has("tier", "x"),), HOST)
    nodes = zones("a", "b", "c")
    apart = other("d", "a1", **DB, namespace="ns"), other("e", "a1", labels=(("tier", "x"),), namespace="ns")
    assert placed(pods("p", pod_affinity=terms), *nodes, *apart) is None
    assert placed(pods("p", pod_affinity=terms), *nodes, *apart, other("f", "c1", **both, namespace="ns")) == "c1"


def test_pods_that_keep_apart_stand_on_nodes_of_their_own():
    thing = pods("p", count=3, pod_affinity=(away("web"),), **WEB)
    assert placed(thing, *zones("a", "a", "b")) == "a1 a2 b1"
    assert placed(thing, *zones("a", "b")) is None


def test_pods_that_keep_apart_by_zone_need_as_many_zones():
    thing = pods("p", count=2, pod_affinity=(away("web", ZONE),), **WEB)
    assert placed(thing, *zones("a", "a", "b")) == "a1 b1"
    assert placed(thing, *zones("a", "a")) is None


def test_a_node_without_the_key_keeps_nobody_away():
    thing = pods("p", pod_affinity=(away("db", ZONE),))
    stands = other("d", "n1", **DB, namespace="ns")
    assert placed(thing, node("n1", cpu=2), stands) == "n1"


def test_whoever_stands_keeps_away_those_it_will_not_stand_beside():
    stands = other("d", "a1", **DB, namespace="ns", pod_affinity=(away("web", ZONE),))
    assert placed(pods("p", **WEB), *zones("a", "a", "b"), stands) == "b1"
    assert placed(pods("p"), *zones("a", "a", "b"), stands) == "a1"


def test_a_running_workload_keeps_others_away_as_well():
    stands = runs(pods("d", pod_affinity=(away("web"),)), "a1")
    assert placed(pods("p", **WEB), *zones("a", "b"), stands) == "b1"


def test_podsets_of_a_gang_look_at_each_other():
    of = {"requests": amounts({"cpu": 1000}), "namespace": "ns"}
    podsets = PodSet("db", 1, 1, PodClass(**of, **DB)), PodSet("web", 2, 2, PodClass(**of, pod_affinity=(away("db"),)))
    assert placed(job("p", podsets=podsets), *zones("a", "b")) in ("a1 | b1*2", "b1 | a1*2")


def test_terms_speak_of_the_pods_own_namespace_unless_they_say_more():
    stands = other("d", "a1", **DB, namespace="there")
    nodes = zones("a", "b")
    assert placed(pods("p", pod_affinity=(away("db"),)), *nodes, stands) == "a1"
    assert placed(pods("p", pod_affinity=(away("db", namespaces=("there",)),)), *nodes, stands) == "b1"
    assert placed(pods("p", pod_affinity=(away("db", any_namespace=True),)), *nodes, stands) == "b1"


def test_a_term_without_a_selector_means_no_pod_and_with_an_empty_one_every_pod():
    stands, nodes = other("d", "a1", namespace="ns"), zones("a", "b")
    assert placed(pods("p", pod_affinity=(PodAffinity(None, HOST, anti=True),)), *nodes, stands) == "a1"
    assert placed(pods("p", pod_affinity=(PodAffinity((), HOST, anti=True),)), *nodes, stands) == "b1"


def test_preferred_affinity_comes_before_packing():
    nodes = node("n1", cpu=2), node("n2", cpu=8)
    stands = other("d", "n2", **DB, namespace="ns")
    assert placed(pods("p", pod_affinity=(toward("db", weight=1),)), *nodes, stands) == "n2"
    assert placed(pods("p"), *nodes, stands) == "n1"


def test_preferred_anti_affinity_is_dropped_where_it_cannot_be_had():
    thing = pods("p", count=3, pod_affinity=(away("web", weight=10),), **WEB)
    assert placed(thing, *zones("a", "b")) == "a1*2 b1"


def test_a_standing_pods_preference_draws_the_newcomer():
    stands = other("d", "n2", namespace="ns", pod_affinity=(toward("web", weight=5),))
    assert placed(pods("p", **WEB), node("n1", cpu=2), node("n2", cpu=8), stands) == "n2"


def even(key=ZONE, skew=1, app="web", **fields) -> Spread:
    return Spread(skew, key, (has("app", app),), **fields)


def test_a_spread_keeps_the_numbers_of_domains_close():
    thing = pods("p", count=4, spread=(even(),), **WEB)
    assert placed(thing, *zones("a", "b")) == "a1*2 b1*2"


def test_a_spread_that_cannot_be_kept_is_no_place():
    full = other("f", "b1", requests=amounts({"cpu": 8000}))
    thing = pods("p", count=2, spread=(even(),), **WEB)
    assert placed(thing, *zones("a", "b"), full) is None
    assert placed(pods("p", count=2, spread=(even(skew=2),), **WEB), *zones("a", "b"), full) == "a1*2"


def test_a_spread_counts_the_pods_that_stand():
    stands = [other(f"w{at}", "a1", **WEB, namespace="ns") for at in range(2)]
    assert placed(pods("p", count=2, spread=(even(),), **WEB), *zones("a", "b"), *stands) == "b1*2"


def test_a_spread_counts_pods_of_its_namespace_only():
    stands = [other(f"w{at}", "a1", **WEB, namespace="there") for at in range(2)]
    assert placed(pods("p", spread=(even(),), **WEB), *zones("a", "b"), *stands) == "a1"


def test_a_spread_does_not_count_pods_that_are_leaving():
    stands = [other(f"w{at}", f"{at}1", **WEB, namespace="ns", is_leaving=at == "b") for at in "ab"]
    assert placed(pods("p", spread=(even(),), **WEB), *zones("a", "b"), *stands) == "b1"
    assert placed(pods("p", spread=(even(hard=False),), **WEB), *zones("a", "b"), *stands) == "b1"


def test_a_node_without_the_key_is_out_of_a_hard_spread():
    assert placed(pods("p", spread=(even(),), **WEB), node("n1", cpu=2), *zones("a")) == "a1"


def test_fewer_domains_than_min_domains_count_as_an_empty_one_more():
    thing = pods("p", count=2, spread=(even(min_domains=3),), **WEB)
    assert placed(thing, *zones("a", "b")) == "a1 b1"
    assert placed(pods("p", count=3, spread=(even(min_domains=3),), **WEB), *zones("a", "b")) is None


def test_domains_that_the_pod_may_not_use_do_not_count_unless_told():
    chosen = (Term((has(ZONE, "a"),)),)
    thing = pods("p", count=2, spread=(even(),), affinity=chosen, **WEB)
    assert placed(thing, *zones("a", "b")) == "a1*2"
    ignoring = pods("p", count=2, spread=(even(honor_affinity=False),), affinity=chosen, **WEB)
    assert placed(ignoring, *zones("a", "b")) is None


def test_tainted_domains_count_unless_told_not_to():
    a, b = zones("a", "b")
    b = type(b)(b.name, b.labels, b.capacity, (Taint("broken"),))
    assert placed(pods("p", count=2, spread=(even(),), **WEB), a, b) is None
    assert placed(pods("p", count=2, spread=(even(honor_taints=True),), **WEB), a, b) == "a1*2"
    tolerant = pods("p", count=2, spread=(even(),), tolerations=(Toleration("broken", "Exists"),), **WEB)
    assert placed(tolerant, a, b) == "a1 b1"


def test_several_spreads_hold_at_once():
    thing = pods("p", count=4, spread=(even(), even(HOST)), **WEB)
    assert placed(thing, *zones("a", "a", "b", "b")) == "a1 a2 b1 b2"


def test_a_soft_spread_evens_out_and_stops_nobody():
    thing = pods("p", count=4, spread=(even(hard=False),), **WEB)
    assert placed(thing, *zones("a", "b")) == "a1*2 b1*2"
    assert placed(thing, *zones("a")) == "a1*4"


def test_a_spread_of_others_is_not_this_pods_own():
    assert placed(pods("p", count=3, spread=(even(app="db"),), **WEB), *zones("a", "b")) == "a1*3"


PORT = (("0.0.0.0", "TCP", 80),)


def test_a_host_port_is_taken_once_a_node():
    thing = pods("p", count=2, host_ports=PORT)
    assert placed(thing, *zones("a", "b")) == "a1 b1"
    assert placed(thing, *zones("a")) is None
    assert placed(pods("p", host_ports=PORT), *zones("a", "b"), other("o", "a1", host_ports=PORT)) == "b1"


@pytest.mark.parametrize(
    ("port", "node_name"),
    [
        (("10.0.0.1", "TCP", 80), "b1"),
        (("", "TCP", 80), "b1"),
        (("10.0.0.1", "UDP", 80), "a1"),
        (("10.0.0.1", "TCP", 81), "a1"),
    ],
)
def test_an_address_that_stands_for_all_clashes_with_every_other(port, node_name):
    assert placed(pods("p", host_ports=(port,)), *zones("a", "b"), other("o", "a1", host_ports=PORT)) == node_name


def test_the_same_port_on_two_addresses_is_two_ports():
    stands = other("o", "a1", host_ports=(("10.0.0.2", "TCP", 80),))
    assert placed(pods("p", host_ports=(("10.0.0.1", "TCP", 80),)), *zones("a"), stands) == "a1"


def test_pods_that_keep_apart_stay_in_the_required_domain():
    of = PodClass(namespace="ns", requests=amounts({"cpu": 1000}), pod_affinity=(away("web"),), **WEB)
    thing = job("p", podsets=(PodSet("main", 2, 2, of, within(ZONE)),))
    assert placed(thing, *zones("a", "b", "b"), levels=[ZONE]) == "b1 b2"


def test_a_wish_for_a_node_holds_beside_others():
    thing = pods("p", pod_affinity=(away("web"),), preferences=(Preference(1, Term((has(ZONE, "b"),))),), **WEB)
    assert placed(thing, *zones("a", "b")) == "b1"


@settings(max_examples=60, deadline=None)
@given(
    cpus=some.lists(some.integers(0, 3), min_size=1, max_size=6),
    stands=some.lists(some.integers(0, 5), max_size=4),
    count=some.integers(1, 5),
    skew=some.integers(1, 2),
)
def test_a_hard_spread_is_kept_by_every_pod_placed(cpus, stands, count, skew):
    nodes = [node(f"n{at}", cpu=cpu, labels={ZONE: "abc"[at % 3]}) for at, cpu in enumerate(cpus)]
    there = [Pod(f"o/{at}", f"n{row}", PodClass("ns", **WEB)) for at, row in enumerate(stands) if row < len(nodes)]
    thing = pods("p", count=count, spread=(even(skew=skew),), **WEB)
    found = place(draft_of(*nodes, *there, thing), Ask(thing, (count,)), "default")
    totals = {"abc"[at % 3]: 0 for at in range(len(nodes))}
    for one in there:
        totals["abc"[int(one.node[1:]) % 3]] += 1
    before = max(totals.values()) - min(totals.values())
    for share in found[0].nodes if found else ():
        totals["abc"[int(share.node[1:]) % 3]] += share.count
    assert max(totals.values()) - min(totals.values()) <= max(before, skew)
    assert found is None or sum(share.count for share in found[0].nodes) == count
