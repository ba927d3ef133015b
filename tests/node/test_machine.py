"""This machine as a Node, and nodes from a file."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from cluster import serve

from fairway.api.decode import decode
from fairway.api.nodes import node
from fairway.api.objects import CHOOSER, DEVICES, NodeObject
from fairway.clock import Chance, Clock, VirtualClock, seeded
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref
from fairway.node.machine import Machine, NodesError, beat, groups, node_of, nodes_of, offered, probe, register

SMALL = Machine("here", 4000, 8 << 30, 100 << 30)


def test_what_the_machine_has_is_found(tmp_path: Path):
    machine = probe(tmp_path)
    assert machine.cpu == 1000 * len(os.sched_getaffinity(0))
    assert machine.memory > 1 << 28 and machine.storage > 1 << 28 and machine.name


def test_options_override_what_is_offered():
    machine = offered(SMALL, cpus="2", memory="4Gi", fake_gpus=8)
    capacity = node_of(machine, 0.0)["status"]["capacity"]
    assert (capacity["cpu"], capacity["memory"], capacity["nvidia.com/gpu"]) == ("2", f"{4 << 20}Ki", "8")
    assert capacity["pods"] == "110" and node_of(SMALL, 0.0)["status"]["capacity"]["cpu"] == "4"


def test_a_large_machine_takes_more_pods_than_a_kubelet_does():
    assert node_of(offered(SMALL, cpus="256"), 0.0)["status"]["allocatable"]["pods"] == "512"


def test_a_machine_without_devices_offers_none():
    made = node_of(SMALL, 0.0)
    assert "nvidia.com/gpu" not in made["status"]["capacity"]
    assert not [name for name in made["metadata"]["labels"] if name.startswith("nvidia.com/")]


def test_labels_are_those_of_gpu_feature_discovery():
    labels = node_of(offered(SMALL, fake_gpus=2), 0.0)["metadata"]["labels"]
    assert labels["nvidia.com/gpu.product"] == "Fairway-Fake-80GB"
    assert (labels["nvidia.com/gpu.count"], labels["nvidia.com/gpu.memory"]) == ("2", "81920")
    assert labels[CHOOSER] == "Scheduler" and labels["kubernetes.io/hostname"] == "here"


def test_the_scheduler_reads_the_groups_of_devices_that_the_node_publishes():
    made = node_of(offered(SMALL, fake_gpus=6), 0.0)
    said = json.loads(made["metadata"]["annotations"][DEVICES])
    assert said[5] == {"index": 5, "numa": 1, "nvlink": 1, "memory": "80Gi", "mig": False}
    read = node(decode(made, NodeObject))
    assert [device.nvlink for device in read.devices] == [0, 0, 0, 0, 1, 1]
    assert read.devices[0].memory == 80 << 30


def test_linked_devices_are_one_group_and_a_lone_one_is_in_none():
    pairs = {(0, 1), (1, 2), (4, 5)}
    assert groups(6, lambda one, two: (one, two) in pairs) == [0, 0, 0, -1, 1, 1]


async def test_labels_and_taints_of_users_survive_a_restart_and_ours_are_renewed():
    clock, chance = Clock(), Chance()
    client, place = Client((await serve(clock, chance)).handle, clock, chance), Ref(kinds.NODES, "here")
    await register(client, node_of(offered(SMALL, fake_gpus=2), clock.now()))
    taint = {"key": "mine", "value": "x", "effect": "NoSchedule"}
    change = {"metadata": {"labels": {"node-type": "my-precious"}}, "spec": {"taints": [taint]}}
    await client.patch(place, change)
    await register(client, node_of(offered(SMALL, cpus="2"), clock.now()))
    found = await client.get(place)
    assert found["metadata"]["labels"]["node-type"] == "my-precious" and found["spec"]["taints"] == [taint]
    assert not [name for name in found["metadata"]["labels"] if name.startswith("nvidia.com/")]
    assert found["status"]["capacity"]["cpu"] == "2" and "nvidia.com/gpu" not in found["status"]["allocatable"]


def test_the_lease_is_renewed():
    clock, chance = VirtualClock(1_000_000.5), seeded(1)

    async def story() -> tuple[str, str]:
        client = Client((await serve(clock, chance)).handle, clock, chance)
        place = Ref(kinds.LEASES, "here", "kube-node-lease")
        beating = asyncio.create_task(beat(client, "here"))
        await clock.sleep(1)
        first = (await client.get(place))["spec"]["renewTime"]
        await clock.sleep(30)
        second = (await client.get(place))["spec"]["renewTime"]
        beating.cancel()
        return first, second

    first, second = clock.run(story())
    assert first == "1970-01-12T13:46:40.500000Z" < second


def test_a_file_of_nodes_is_read_as_hollow_nodes_that_are_ready(tmp_path: Path):
    file = tmp_path / "nodes.yaml"
    file.write_text("""
kind: Node
apiVersion: v1
metadata: {name: n1, labels: {zone: a}}
status: {allocatable: {cpu: 64, nvidia.com/gpu: 8}}
---
kind: List
items:
- {kind: Node, metadata: {name: n2}, status: {capacity: {cpu: "2", pods: 500}}}
""")
    one, two = nodes_of(file, 0.0, machine="here")
    assert one["metadata"]["labels"] == {"kubernetes.io/hostname": "n1", "zone": "a"}
    assert one["status"]["allocatable"] == {"pods": "110", "cpu": "64", "nvidia.com/gpu": "8"}
    assert all("fairway.dev/hollow" in one["metadata"]["annotations"] for one in (one, two))
    assert two["status"]["capacity"] == {"pods": "500", "cpu": "2"} == two["status"]["allocatable"]
    assert node(decode(two, NodeObject)).is_ready


@pytest.mark.parametrize(
    "text", ["{", "kind: Pod\nmetadata: {name: x}", "kind: Node", "just words", "kind: Node\nmetadata: {name: here}"]
)
def test_a_bad_file_of_nodes_is_refused_in_one_line(text: str, tmp_path: Path):
    (tmp_path / "nodes.yaml").write_text(text)
    with pytest.raises(NodesError, match=r"nodes\.yaml"):
        nodes_of(tmp_path / "nodes.yaml", 0.0, machine="here")
