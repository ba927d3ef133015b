"""What shuts a workload out of the nodes: each counted once, under the first obstacle that it meets."""

from dataclasses import replace

import pytest
from builders import GIB, NOW, job, node, plan_of, pod, queue, runs, verdicts

from fairway.engine import FAIRWAY, Node, PodClass, State, Workload, amounts, decide
from fairway.engine.model import Expression, PodAffinity, PodSet, Reservation, Spread, Taint, Term, Toleration
from fairway.engine.plan import Bar, Census, Wait

HOST = "kubernetes.io/hostname"
GPU_ONLY = Taint("gpu", "true")
X = (Expression("app", "In", ("x",)),)
WEB = {"namespace": "ns", "labels": (("app", "x"),)}


def census(*things, **fields) -> Census:
    """Of the workload `w`, that waits."""
    wait = verdicts(plan_of(*things, queue("q", 99), **fields))["w"]
    assert isinstance(wait, Wait) and wait.facts.census
    return wait.facts.census


def counts(*things, **fields) -> dict[tuple[Bar, object], int]:
    return {(one.bar, one.about): one.nodes for one in census(*things, **fields).obstacles}


def busy(name: str, gpus: int, **fields):
    return runs(job(f"r-{name}", gpus=gpus, preemptible=False, **fields), name)


def test_each_node_counts_under_its_first_obstacle() -> None:
    nodes = [node(f"c{at}", 8, is_unschedulable=True, taints=(GPU_ONLY,)) for at in range(12)]
    nodes += [node(f"t{at}", 2, taints=(GPU_ONLY,)) for at in range(10)]
    nodes += [node(f"z{at}", 4) for at in range(8)]
    found = census(*nodes, *(busy(f"z{at}", 2) for at in range(8)), job("w", gpus=4))
    assert (found.nodes, found.open) == (30, 0)
    assert found.obstacles == (
        (Bar.CORDONED, "", 12, 0, 0), (Bar.TAINT, str(GPU_ONLY), 10, 0, 0), (Bar.BUSY, "nvidia.com/gpu", 8, 4000, 2000),
    )  # fmt: skip


def test_a_selector_names_the_label_that_is_missing() -> None:
    things = node("n1", 8), node("n2", 8, labels={"gpu": "a100"})
    wants = Expression("gpu", "In", ("h100",))
    assert counts(*things, job("w", gpus=1, pod={"node_selector": (("gpu", "h100"),)})) == {(Bar.SELECTOR, wants): 2}
    assert counts(*things, job("w", gpus=1, pod={"affinity": (Term((wants,)),)})) == {(Bar.AFFINITY, wants): 2}
    either = Term((wants,)), Term((Expression("zone", "Exists"),))
    assert counts(*things, job("w", gpus=1, pod={"affinity": either})) == {(Bar.AFFINITY, "gpu, zone"): 2}
    assert counts(*things, job("w", gpus=1, pod={"volumes": ((Term((wants,)),),)})) == {(Bar.VOLUME, wants): 2}


def test_a_node_that_a_pod_names_is_told_by_its_name() -> None:
    named = Expression("metadata.name", "In", ("n9",))
    things = node("n1", 8), node("n2", 8), job("w", gpus=1, pod={"volumes": ((Term(fields=(named,)),),)})
    assert counts(*things) == {(Bar.VOLUME, named): 2}


@pytest.mark.parametrize("key", ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"])
def test_the_taints_of_a_state_count_as_the_state_and_pass(key: str) -> None:
    away = node("n1", 8, is_ready=False, taints=(Taint(key), Taint(key, effect="NoExecute")))
    cordoned = node("n2", 8, is_unschedulable=True, taints=(Taint("node.kubernetes.io/unschedulable"),))
    things = away, cordoned, queue("q", 99), job("w", gpus=1)
    assert counts(*things[:2], job("w", gpus=1)) == {(Bar.CORDONED, ""): 1, (Bar.NOT_READY, ""): 1}
    assert verdicts(plan_of(*things))["w"].reason == "NoRoom"


def test_taints_of_one_key_and_value_are_told_in_the_order_of_their_effects() -> None:
    both = (Taint("gpu", "true"), Taint("gpu", "true", "NoExecute"))
    found = census(node("n1", 8, taints=both[:1]), node("n2", 8, taints=both), job("w", gpus=1)).obstacles
    assert [(one.about, one.nodes) for one in found] == [("gpu=true:NoExecute", 1), ("gpu=true:NoSchedule", 1)]


def test_what_is_tolerated_is_no_obstacle() -> None:
    things = node("n1", 8, taints=(GPU_ONLY,)), node("n2", 8, taints=(Taint("own"),))
    bears = job("w", gpus=9, pod={"tolerations": (Toleration("gpu", "Exists"),)})
    assert counts(*things, bears) == {(Bar.TAINT, "own:NoSchedule"): 1, (Bar.TOO_SMALL, "nvidia.com/gpu"): 1}


def test_nodes_out_of_use_are_told_apart() -> None:
    things = node("n1", 8, is_leaving=True), node("n2", 8, is_unhealthy=True), node("n3", 8, is_ready=False)
    found = {(Bar.LEAVING, ""): 1, (Bar.UNHEALTHY, ""): 1, (Bar.NOT_READY, ""): 1}
    assert counts(*things, job("w", gpus=1)) == found


def test_a_node_that_is_too_small_is_not_called_busy() -> None:
    things = node("n1", 2), node("n2", 8), busy("n2", 5), job("w", gpus=4)
    assert [(one.bar, one.asked, one.most) for one in census(*things).obstacles] == [
        (Bar.TOO_SMALL, 4000, 2000), (Bar.BUSY, 4000, 3000),
    ]  # fmt: skip


def test_pods_that_stand_shut_out_their_like() -> None:
    alone = PodAffinity(X, HOST, anti=True)
    things = [node(name, 4) for name in ("n1", "n2")]
    things += [busy(name, 1, pod=WEB) for name in ("n1", "n2")]
    assert counts(*things, job("w", gpus=1, pod={**WEB, "pod_affinity": (alone,)})) == {(Bar.ANTI_AFFINITY, HOST): 2}
    friend = PodAffinity((Expression("app", "In", ("db",)),), HOST)
    assert counts(*things, job("w", gpus=1, pod={**WEB, "pod_affinity": (friend,)})) == {(Bar.POD_AFFINITY, HOST): 2}
    port = {"host_ports": (("", "TCP", 80),)}
    taken = [busy(name, 1, pod=port) for name in ("n1", "n2")]
    assert counts(*things[:2], *taken, job("w", gpus=1, pod=port)) == {(Bar.PORT, ""): 2}


def test_a_spread_shuts_out_the_fuller_domain() -> None:
    even = WEB | {"spread": (Spread(1, HOST, X),)}
    things = node("n1", 4), node("n2", 1), busy("n1", 1, pod=WEB), busy("n2", 1)
    assert counts(*things, job("w", gpus=1, pod=even)) == {(Bar.SPREAD, HOST): 1, (Bar.BUSY, "nvidia.com/gpu"): 1}


def test_room_that_is_kept_for_others_is_told_apart_from_room_in_use() -> None:
    soon = Reservation("window", NOW + 60, 3600, nodes=("n1",))
    things = node("n1", 4), node("n2", 4), busy("n2", 4), job("w", gpus=1, time_limit=600, preemptible=False)
    assert counts(*things, reservations=(soon,)) == {(Bar.KEPT, ""): 1, (Bar.BUSY, "nvidia.com/gpu"): 1}


def test_a_gang_is_told_how_many_of_its_pods_have_room() -> None:
    things = node("n1", 4), node("n2", 4), node("n3", 4), busy("n3", 3), job("w", gpus=2, count=6)
    found = census(*things)
    assert (found.nodes, found.open, found.room, found.wanted, found.podset) == (3, 2, 4, 6, "")


def test_of_several_podsets_the_one_with_the_least_room_is_counted() -> None:
    big = PodSet("big", 1, 1, pod(gpus=8)), PodSet("small", 2, 2, pod(cpu=1))
    found = census(node("n1", 4), job("w", podsets=big))
    assert (found.podset, found.open) == ("big", 0)


def test_nodes_of_other_pools_and_nodes_where_it_failed_do_not_count_as_room() -> None:
    things = node("n1", 4), node("n2", 4), busy("n2", 4), job("w", gpus=1, excluded_nodes=("n1",))
    assert counts(*things) == {(Bar.FAILED_BEFORE, ""): 1, (Bar.BUSY, "nvidia.com/gpu"): 1}


def test_what_is_known_of_a_resource_is_not_taken_for_another_that_is_asked_for_later() -> None:
    def asks(name: str, resource: str) -> Workload:
        asked = PodClass(requests=amounts({"cpu": 1000, resource: 1}))
        return replace(job(name), podsets=(PodSet("main", 1, 1, asked),))

    def bars() -> list[tuple[Bar, object]]:
        waits = (it.facts.census for it in decide(state.snapshot(NOW), FAIRWAY).verdicts if isinstance(it, Wait))
        return [(one.bar, one.about) for found in waits if found for one in found.obstacles]

    state, offers = State(), amounts({"cpu": 8000, "memory": GIB, "pods": 110, "example.com/nic": 1})
    state.observe(Node("n", (), offers), queue("q"))
    state.observe(runs(asks("a", "example.com/nic"), "n"), asks("b", "example.com/nic"))
    assert bars() == [(Bar.BUSY, "example.com/nic")]
    state.observe(asks("c", "example.com/fpga"))  # its column is where the other's was
    assert bars() == [(Bar.BUSY, "example.com/nic"), (Bar.TOO_SMALL, "example.com/fpga")]
