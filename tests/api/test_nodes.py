"""Nodes: what they offer, whether they may be used, and which devices are inside."""

import json

import pytest

from fairway.api.decode import decode
from fairway.api.nodes import node
from fairway.api.objects import CsiNodeObject, NodeObject, NodeTopologyObject
from fairway.api.quantities import Malformed
from fairway.engine.model import Device, Numa, Taint


def read(labels=None, annotations=None, spec=None, topology=None, **status):
    meta = {"name": "n1", "labels": labels or {}, "annotations": annotations or {}}
    said = decode({"metadata": meta, "spec": spec or {}, "status": status}, NodeObject)
    return node(said, decode(topology, NodeTopologyObject) if topology else None)


def ready(status):
    return [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": status}]


def test_allocatable_is_what_it_offers_and_capacity_where_that_is_absent():
    assert dict(read(allocatable={"cpu": "4", "pods": "10"}, capacity={"cpu": "8"}).capacity) == {
        "cpu": 4000,
        "pods": 10,
    }
    assert dict(read(capacity={"cpu": "8"}).capacity) == {"cpu": 8000, "pods": 110}


def test_it_attaches_as_many_volumes_as_its_csi_node_says():
    drivers = [{"name": "disks", "allocatable": {"count": 3}}, {"name": "none", "allocatable": {"count": 0}}]
    drivers += [{"name": "any", "allocatable": {}}, {"name": "files"}]
    told = decode({"spec": {"drivers": drivers}}, CsiNodeObject)
    said = decode({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "1"}}}, NodeObject)
    limits = {"attachable-volumes-csi-disks": 3, "attachable-volumes-csi-none": 0}
    assert dict(node(said, None, told).capacity) == {"cpu": 1000, "pods": 110, **limits}
    assert decode({"spec": {"drivers": None}}, CsiNodeObject).limits() == {}


def test_readiness_is_what_its_condition_says():
    assert read(conditions=ready("True")).is_ready
    assert not read(conditions=ready("Unknown")).is_ready
    assert not read(conditions=ready("False")).is_ready
    assert read().is_ready


def test_marks_are_read():
    assert read(spec={"unschedulable": True}).is_unschedulable
    assert read({"fairway.dev/unhealthy": ""}).is_unhealthy
    assert read(annotations={"fairway.dev/unhealthy": "ecc"}).is_unhealthy
    assert not read({"fairway.dev/unhealthy": "false"}).is_unhealthy
    assert read(spec={"taints": [{"key": "a", "effect": "NoExecute"}]}).taints == (Taint("a", "", "NoExecute"),)


def test_the_kubelet_chooses_devices_unless_a_label_says_otherwise():
    assert read(allocatable={"nvidia.com/gpu": 2}).chooser == "Kubelet"
    assert read({"fairway.dev/devices": "Whoever"}).chooser == "Kubelet"
    assert read({"fairway.dev/devices": "Claim"}).chooser == "Claim"
    assert read(allocatable={"nvidia.com/gpu": 2}).devices == ()


def test_devices_are_counted_where_nothing_more_is_known():
    found = read(
        {"fairway.dev/devices": "Scheduler", "nvidia.com/gpu.memory": "81559"}, allocatable={"nvidia.com/gpu": 2}
    )
    assert found.devices == (Device(0, memory=81559 * 2**20), Device(1, memory=81559 * 2**20))


def test_devices_are_those_of_the_annotation():
    said = [{"index": 1, "numa": 1, "nvlink": 0, "memory": "80Gi", "mig": True}, {"index": 0, "healthy": False}]
    found = read({"fairway.dev/devices": "Scheduler"}, {"fairway.dev/device-groups": json.dumps(said)})
    assert found.devices == (Device(0, is_healthy=False), Device(1, 1, 0, 80 * 2**30, is_partitioned=True))


@pytest.mark.parametrize("text", ["{", "{}", '[{"numa": 1}]', '[{"index": 0}, {"index": 0}]', '[{"index": -1}]'])
def test_an_annotation_that_is_no_list_of_devices_is_refused(text):
    with pytest.raises(Malformed, match=r"metadata\.annotations\[fairway\.dev/device-groups\]: found"):
        read({"fairway.dev/devices": "Scheduler"}, {"fairway.dev/device-groups": text})


def test_numa_groups_come_from_the_node_topology():
    zones = [
        {
            "name": f"node-{index}",
            "type": "Node",
            "resources": [{"name": "nvidia.com/gpu", "allocatable": 2}, {"name": "cpu", "capacity": "32"}],
        }
        for index in (0, 1)
    ]
    found = read({"fairway.dev/devices": "Scheduler"}, allocatable={"nvidia.com/gpu": 4}, topology={"zones": zones})
    assert [device.numa for device in found.devices] == [0, 0, 1, 1]
    assert found.numa == (
        Numa(0, (("cpu", 32000), ("nvidia.com/gpu", 2000))),
        Numa(1, (("cpu", 32000), ("nvidia.com/gpu", 2000))),
    )


@pytest.mark.parametrize(("chooser", "free"), [("Kubelet", (("nvidia.com/gpu", 1000),)), ("Scheduler", None)])
def test_what_is_free_of_a_numa_group_counts_where_the_kubelet_chooses(chooser, free):
    zone = {"name": "node-0", "resources": [{"name": "nvidia.com/gpu", "allocatable": 2, "available": "1"}]}
    found = read({"fairway.dev/devices": chooser}, allocatable={"nvidia.com/gpu": 2}, topology={"zones": [zone]})
    assert found.numa == (Numa(0, (("nvidia.com/gpu", 2000),), free),)
