"""Which GPUs inside a node: groups, fractions, memory, partitions, and who may choose."""

import pytest
from builders import GIB, job, node, pod, runs
from places import devices_of, draft_of, placed, room

from fairway.engine.model import Admission, Device, Numa, PodSet, amounts
from fairway.engine.place import Ask, place


def grouped(*groups: int, nvlink=True, **fields):
    """Devices of the groups told, in that order."""
    return tuple(Device(at, numa=-1 if nvlink else one, nvlink=one if nvlink else -1, **fields)
                 for at, one in enumerate(groups))


def host(name: str, devices, **fields):
    return node(name, len(devices), devices=tuple(devices), **fields)


def used(name: str, *devices: int):
    """A pod that holds these devices."""
    return runs(job(f"u{name}{devices}", gpus=len(devices)), name, devices=(devices,))


def fraction(name: str, milli: int, count=1, **fields):
    return job(name, podsets=(PodSet("main", count, count, pod(gpu_fraction=milli)),), **fields)


def takes(name: str, at: str, device: int, milli: int):
    return runs(fraction(name, milli), at, devices=((device,),))


EIGHT = grouped(0, 0, 0, 0, 1, 1, 1, 1)


def test_whole_gpus_come_from_one_group_when_they_fit_one():
    assert devices_of(job("a", gpus=4), host("n1", EIGHT), used("n1", 0, 1)) == "n1[4 5 6 7]"


def test_the_group_with_the_fewest_free_that_fits_is_taken():
    assert devices_of(job("a", gpus=2), host("n1", EIGHT), used("n1", 0, 1)) == "n1[2 3]"
    assert devices_of(job("a", gpus=1), host("n1", EIGHT), used("n1", 4, 5, 6)) == "n1[7]"


def test_more_than_a_group_holds_comes_from_the_fewest_groups():
    devices = grouped(0, 0, 1, 1, 1, 1, 2, 2)
    assert devices_of(job("a", gpus=6), host("n1", devices), used("n1", 0)) == "n1[2 3 4 5 6 7]"


def test_numa_groups_count_where_there_is_no_nvlink():
    devices = grouped(0, 0, 0, 0, 1, 1, 1, 1, nvlink=False)
    assert devices_of(job("a", gpus=4), host("n1", devices), used("n1", 1)) == "n1[4 5 6 7]"


def test_an_nvlink_group_comes_before_a_numa_group():
    devices = [Device(at, numa=at // 4, nvlink=(0, 1, 0, 1, 2, 2, 3, 3)[at]) for at in range(8)]
    assert devices_of(job("a", gpus=2), host("n1", devices)) == "n1[0 2]"
    assert devices_of(job("a", gpus=4), host("n1", devices)) == "n1[0 1 2 3]"


def test_pods_of_a_gang_have_devices_of_their_own():
    assert devices_of(job("a", gpus=2, count=3), host("n1", EIGHT)) == "n1[0 1][2 3][4 5]"


def test_devices_are_told_by_their_index_and_not_by_their_slot():
    assert devices_of(job("a", gpus=1), host("n1", [Device(3), Device(5)]), used("n1", 3)) == "n1[5]"


def test_a_broken_device_is_never_chosen():
    devices = [Device(0, is_healthy=False), Device(1)]
    assert devices_of(job("a", gpus=1), host("n1", devices)) == "n1[1]"
    assert devices_of(job("a", gpus=2), host("n1", devices)) is None


def test_where_the_kubelet_chooses_only_counts_are_planned():
    assert devices_of(job("a", gpus=2, count=2), node("n1", 8, chooser="Kubelet")) == "n1"
    assert placed(job("a", gpus=2, count=2), node("n1", 8, chooser="Kubelet")) == "n1*2"
    assert placed(job("a", gpus=5, count=2), node("n1", 8, chooser="Kubelet")) is None


def test_devices_that_a_claim_will_choose_are_foreseen():
    assert devices_of(job("a", gpus=2), node("n1", 8, chooser="Claim")) == "n1[0 1]"


def test_a_fraction_goes_to_the_shared_device_with_the_least_room_that_fits_on_any_node():
    nodes = node("n1", 2), node("n2", 2)
    shared = takes("x", "n1", 1, 300), takes("y", "n2", 0, 600)
    assert devices_of(fraction("a", 400), *nodes, *shared) == "n2[0]"
    assert devices_of(fraction("a", 600), *nodes, *shared) == "n1[1]"


def test_a_fraction_takes_a_free_gpu_only_when_no_shared_one_has_room():
    assert devices_of(fraction("a", 500), node("n1", 1), node("n2", 2), takes("x", "n2", 1, 500)) == "n2[1]"
    assert devices_of(fraction("a", 500), node("n1", 2), node("n2", 1), takes("x", "n1", 0, 600)) in ("n1[1]", "n2[0]")


def test_a_fresh_gpu_for_a_fraction_is_on_the_node_with_the_fewest_free():
    assert devices_of(fraction("a", 500), node("n1", 4), node("n2", 2)) == "n2[0]"


def test_a_gang_of_fractions_shares_devices_of_others_first_and_then_its_own():
    nodes = node("n1", 2), node("n2", 4)
    assert devices_of(fraction("a", 500, count=4), *nodes, takes("x", "n2", 3, 500)) == "n1[0][0][1] n2[3]"


def test_a_fraction_never_shares_a_partitioned_device():
    devices = [Device(0, is_partitioned=True), Device(1)]
    assert devices_of(fraction("a", 100), host("n1", devices)) == "n1[1]"
    assert devices_of(job("a", gpus=2), host("n1", devices)) is None


def test_a_shared_device_is_no_whole_one():
    assert devices_of(job("a", gpus=2), node("n1", 2), takes("x", "n1", 0, 100)) is None
    assert devices_of(job("a", gpus=1), node("n1", 2), takes("x", "n1", 0, 100)) == "n1[1]"


def test_a_fraction_needs_a_node_whose_devices_are_told_apart():
    assert devices_of(fraction("a", 500), node("n1", 4, chooser="Kubelet")) is None
    assert devices_of(fraction("a", 500), node("n1", 1, chooser="Kubelet"), node("n2", 4)) == "n2[0]"


def memory(gib: int):
    return job("m", podsets=(PodSet("main", 1, 1, pod(gpu_memory=gib * GIB)),))


def test_gpu_memory_counts_by_the_smallest_gpu_of_the_pool():
    small, large = (node(name, 1, labels={"nvidia.com/gpu.memory": str(size)}) for name, size in
                    (("n1", 40 * 1024), ("n2", 80 * 1024)))
    assert room(draft_of(small, large, memory(20)), memory(20).podsets[0].pod, "default").tolist() == [2, 2]
    assert devices_of(memory(41), small, large) is None


def test_gpu_memory_is_read_off_devices_where_they_say_it():
    devices = [Device(0, memory=40 * GIB), Device(1, memory=40 * GIB)]
    assert devices_of(memory(30), host("n1", devices), takes("x", "n1", 0, 500)) == "n1[1]"


def test_gpu_memory_that_nobody_knows_fits_nowhere():
    assert devices_of(memory(10), node("n1", 1)) is None


def numa_host(name: str, devices, cpus=(8, 8), **fields):
    groups = tuple(Numa(at, amounts({"cpu": cpu * 1000})) for at, cpu in enumerate(cpus))
    return host(name, devices, numa=groups, **fields)


def strict(gpus: int, cpu: float = 0, **fields):
    return job("a", podsets=(PodSet("main", 1, 1, pod(gpus=gpus, cpu=cpu, alignment_required=True, **fields)),))


PAIRS = grouped(0, 0, 1, 1, nvlink=False)


def test_alignment_that_is_required_tries_other_nodes_before_it_fails():
    nodes = host("n1", PAIRS), host("n2", grouped(0, 0, 0, 0, 1, 1, 1, 1, nvlink=False))
    busy = used("n1", 0), used("n1", 2)
    assert devices_of(strict(2), *nodes, *busy) == "n2[0 1]"
    assert devices_of(strict(2), nodes[0], *busy) is None
    assert devices_of(job("a", gpus=2), nodes[0], *busy) == "n1[1 3]"


def test_required_alignment_binds_cpu_to_the_group_of_the_devices():
    assert devices_of(strict(1, cpu=6), numa_host("n1", PAIRS, cpus=(4, 8))) == "n1[2]"
    assert devices_of(strict(1, cpu=10), numa_host("n1", PAIRS)) is None


def test_alignment_that_is_preferred_takes_a_group_with_cpu_first():
    assert devices_of(job("a", gpus=1, cpu=6), numa_host("n1", PAIRS, cpus=(4, 8))) == "n1[2]"
    assert devices_of(job("a", gpus=1, cpu=10), numa_host("n1", PAIRS)) == "n1[0]"


def test_cpu_of_a_group_is_used_by_the_pods_on_its_devices():
    busy = runs(job("r", gpus=1, cpu=6), "n1", devices=((0,),))
    assert devices_of(strict(1, cpu=4), numa_host("n1", PAIRS), busy) == "n1[2]"


def test_aligned_pods_of_a_gang_share_the_cpu_of_a_group():
    thing = job("a", podsets=(PodSet("main", 3, 3, pod(gpus=1, cpu=5, alignment_required=True)),))
    assert devices_of(thing, numa_host("n1", PAIRS)) is None
    assert devices_of(thing, numa_host("n1", PAIRS), numa_host("n2", PAIRS)) == "n1[0][2] n2[0]"


def test_with_the_kubelet_alignment_needs_the_nodes_numa_groups():
    aligned = (Numa(0, amounts({"nvidia.com/gpu": 4000, "cpu": 32000})),
               Numa(1, amounts({"nvidia.com/gpu": 4000, "cpu": 32000})))
    unknown, known = node("n1", 8, chooser="Kubelet"), node("n2", 8, chooser="Kubelet", numa=aligned)
    assert placed(strict(4), unknown) is None
    assert placed(strict(4), unknown, known) == "n2"
    assert placed(strict(5), unknown, known) is None


def test_where_numa_is_unknown_nothing_is_aligned():
    assert devices_of(strict(2), node("n1", 4)) is None


@pytest.mark.parametrize("size", [300, 500, 700])
def test_room_for_fractions_is_what_fits_the_devices(size):
    draft = draft_of(node("n1", 2), thing := fraction("a", size, count=9), takes("x", "n1", 0, 500))
    count = int(room(draft, thing.podsets[0].pod, "default")[0])
    assert count == 500 // size + 1000 // size
    assert place(draft, Ask(thing, (count,)), "default") is not None
    assert place(draft, Ask(thing, (count + 1,)), "default") is None


def test_what_is_placed_can_be_started():
    draft = draft_of(node("n1", 2), thing := fraction("a", 500, count=3))
    draft.start(thing, Admission("default", place(draft, Ask(thing, (3,)), "default")))
    assert draft.device_free.tolist() == [[0, 500]] and draft.free[3].tolist() == [500]
