"""How nodes are ordered where it is neither packing nor spreading: fragments, FGD's and ours, and best fit."""

import pytest
from builders import job, node, pod, runs
from places import devices_of, placed, term

from fairway.engine.model import Expression, PodSet


def shared(name: str, milli: int):
    return job(name, podsets=(PodSet("main", 1, 1, pod(gpu_fraction=milli)),))


def takes(name: str, at: str, device: int, milli: int):
    return runs(shared(name, milli), at, devices=((device,),))


@pytest.mark.parametrize("strategy", ["Fragmentation", "FGD"])
def test_fragmentation_keeps_whole_gpus_for_those_who_ask_for_whole_ones(strategy):
    wholes = [job(f"w{at}", gpus=1) for at in range(8)]
    found = devices_of(shared("a", 500), node("n1", 2), node("n2", 2), takes("x", "n2", 1, 500), *wholes,
                       strategy=strategy)
    assert found == "n2[1]"


def test_fragmentation_puts_pods_without_gpus_where_no_gpu_loses_its_cpu():
    typical = [job(f"w{at}", gpus=1, cpu=8) for at in range(8)]
    nodes = node("n1", 4, cpu=32), node("n2", 4, cpu=64)
    assert placed(job("a", cpu=28), *nodes, *typical, strategy="Fragmentation") == "n2"
    assert placed(job("a", cpu=28), *nodes, *typical, strategy="Binpack") == "n1"


def test_fragmentation_keeps_a_gang_whole():
    assert placed(job("a", gpus=2, count=3), node("n1", 4), node("n2", 4), strategy="Fragmentation") == "n1*2 n2"


def test_fragmentation_leaves_gpus_the_cpu_they_will_need_before_any_typical_pod_misses_it():
    typical = [job(f"w{at}", gpus=1, cpu=1) for at in range(8)]
    nodes = node("n1", 4, cpu=32), node("n2", 4, cpu=64), runs(job("y", gpus=2), "n2")
    assert placed(job("a", cpu=8), *nodes, *typical, strategy="Fragmentation") == "n2"


def restricted(name: str, model: str):
    where = (term(Expression("model", "In", (model,))),)
    return job(name, podsets=(PodSet("main", 1, 1, pod(1, affinity=where)),))


def test_fragmentation_keeps_nodes_that_others_depend_on():
    many = [node(f"n{at}", 1, labels={"model": "many"}) for at in range(2, 9)]
    nodes = node("n1", 1, labels={"model": "rare"}), *many
    free = [job(f"w{at}", gpus=1) for at in range(4)]
    bound = [restricted(f"r{at}", "rare") for at in range(2)]
    assert placed(job("a", gpus=1), *nodes, *free, strategy="Fragmentation") == "n1"
    assert placed(job("a", gpus=1), *nodes, *free, *bound, strategy="Fragmentation") == "n2"
    assert placed(restricted("b", "rare"), *nodes, *free, *bound, strategy="Fragmentation") == "n1"


def test_best_fit_leaves_the_least_of_cpu_and_gpu_together():
    assert placed(job("a", gpus=1), node("n1", 4, cpu=64), node("n2", 4, cpu=16), strategy="BestFit") == "n2"


def test_of_nodes_equal_by_fragments_a_pod_without_gpus_takes_the_one_with_the_least_left():
    typical = [job(f"w{at}", gpus=1, cpu=1) for at in range(8)]
    nodes = node("n1", 4, cpu=64), node("n2", 4, cpu=64), runs(job("y", gpus=2), "n2")
    assert placed(job("a", cpu=1), *nodes, *typical, strategy="FGD") == "n2"
    assert placed(job("a", gpus=1), node("n1", 4, cpu=64), node("n2", 4, cpu=32), *typical, strategy="FGD") == "n1"
