"""What the groups of a node have free is read from its NodeResourceTopology, once that is defined on the cluster."""

from typing import Any

from simworld import Thing, World, job, node
from test_life import play

from fairway.kube import kinds
from fairway.kube.kinds import Kind, Ref

GROUP, GPU = "topology.node.k8s.io", "nvidia.com/gpu"
TOPOLOGIES = Kind("NodeResourceTopology", "noderesourcetopologies", f"{GROUP}/v1alpha2", is_namespaced=False)
NAMES = {"kind": TOPOLOGIES.name, "plural": TOPOLOGIES.plural, "singular": "noderesourcetopology",
         "listKind": "NodeResourceTopologyList"}  # fmt: skip
FORM = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
VERSION = {"name": "v1alpha2", "served": True, "storage": True, "schema": FORM}
DEFINITION = {"group": GROUP, "scope": "Cluster", "names": NAMES, "versions": [VERSION]}


def zones(*available: int) -> list[Thing]:
    """Groups of two GPUs, of which so many are free."""
    return [{"name": f"node-{at}", "type": "Node", "resources": [
        {"name": GPU, "capacity": "2", "allocatable": "2", "available": str(free)}]}
        for at, free in enumerate(available)]  # fmt: skip


def aligned(name: str) -> Thing:
    return job(name, gpus=2, cpu="1", seconds=10, annotations={"fairway.dev/alignment": "Required"})


async def story(world: World) -> tuple[Any, ...]:
    await world.apply(aligned("early"))
    await world.until(lambda: world.is_in("job-early", "Pending"))
    early = (await world.workload("job-early"))["status"]["reason"]
    meta = {"name": f"{TOPOLOGIES.plural}.{GROUP}"}
    await world.client.create(kinds.DEFINITIONS, {"metadata": meta, "spec": DEFINITION})
    made = {"apiVersion": TOPOLOGIES.group_version, "kind": TOPOLOGIES.name, "metadata": {"name": "n1"}}
    await world.client.create(TOPOLOGIES, {**made, "zones": zones(2, 2)})
    await world.until(lambda: world.is_in("job-early", "Succeeded"))
    await world.client.patch(Ref(TOPOLOGIES, "n1"), {"zones": zones(1, 1)})
    await world.apply(aligned("late"))
    await world.until(lambda: world.is_in("job-late", "Pending"))
    late = (await world.workload("job-late"))["status"]["reason"]
    await world.client.patch(Ref(TOPOLOGIES, "n1"), {"zones": zones(1, 2)})
    await world.until(lambda: world.is_in("job-late", "Succeeded"))
    return early, late


def test_an_aligned_pod_starts_where_one_group_of_its_node_is_free() -> None:
    assert play(story, node("n1", gpus=4, labels={"fairway.dev/devices": "Kubelet"})) == ("NoDevice", "NoDevice")
