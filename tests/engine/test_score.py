"""How nodes are ordered where it is neither packing nor spreading: fragments and best fit."""

from builders import job, node, pod, runs
from places import devices_of, placed

from fairway.engine.model import PodSet


def shared(name: str, milli: int):
    return job(name, podsets=(PodSet("main", 1, 1, pod(gpu_fraction=milli)),))


def takes(name: str, at: str, device: int, milli: int):
    return runs(shared(name, milli), at, devices=((device,),))


def test_fragmentation_keeps_whole_gpus_for_those_who_ask_for_whole_ones():
    wholes = [job(f"w{at}", gpus=1) for at in range(8)]
    found = devices_of(shared("a", 500), node("n1", 2), node("n2", 2), takes("x", "n2", 1, 500), *wholes,
                       strategy="Fragmentation")
    assert found == "n2[1]"


def test_fragmentation_puts_pods_without_gpus_where_no_gpu_loses_its_cpu():
    typical = [job(f"w{at}", gpus=1, cpu=8) for at in range(8)]
    nodes = node("n1", 4, cpu=32), node("n2", 4, cpu=64)
    assert placed(job("a", cpu=28), *nodes, *typical, strategy="Fragmentation") == "n2"
    assert placed(job("a", cpu=28), *nodes, *typical, strategy="Binpack") == "n1"


def test_fragmentation_keeps_a_gang_whole():
    assert placed(job("a", gpus=2, count=3), node("n1", 4), node("n2", 4), strategy="Fragmentation") == "n1*2 n2"


def test_best_fit_leaves_the_least_of_cpu_and_gpu_together():
    assert placed(job("a", gpus=1), node("n1", 4, cpu=64), node("n2", 4, cpu=16), strategy="BestFit") == "n2"
