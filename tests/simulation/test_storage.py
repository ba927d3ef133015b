"""Pods whose claims get their volumes when they are placed, in virtual time; the volume controller is played."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from simworld import Thing, World, cluster, job, node, pod
from test_life import START

from fairway.clock import VirtualClock, seeded
from fairway.kube import kinds
from fairway.kube.kinds import Ref
from fairway.kube.transport import Request, Response

NODES = [node(f"n{index}", labels={"zone": f"z{index}"}) for index in range(3)]
LATER = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "volumeBindingMode": "WaitForFirstConsumer"}
LOCAL = {**LATER, "metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner"}
MADE = {**LATER, "metadata": {"name": "made"}, "provisioner": "disks.example.com"}
CSI = {"apiVersion": "storage.k8s.io/v1"}


class Older:
    """A server that does not serve the kinds of CSI."""

    def __init__(self, world: World) -> None:
        self._world, self.asked = world, list[str]()

    async def __call__(self, request: Request) -> Response:
        self.asked.append(request.path)
        answer = await self._world.server.handle(request)
        if request.path != "/apis/storage.k8s.io/v1" or not isinstance(answer.body, bytes):
            return answer
        said = json.loads(answer.body)
        said["resources"] = [one for one in said["resources"] if not one["kind"].startswith("CSI")]
        return replace(answer, body=json.dumps(said).encode())


def play(story: Callable[[World], Awaitable[Any]]) -> Any:
    clock = VirtualClock(START)

    async def run() -> Any:
        async with cluster(clock, seeded(1), *NODES) as world:
            world.start()
            await world.apply(LOCAL, MADE)
            return await story(world)

    return clock.run(run())


def claim(name: str, kind: str, size: str = "1Gi", **said: Any) -> Thing:
    spec = {"storageClassName": kind, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec | said}


def volume(name: str, at: str, size: str = "1Gi", key: str = "zone") -> Thing:
    there = [{"matchExpressions": [{"key": key, "operator": "In", "values": [at]}]}]
    spec = {"storageClassName": "local", "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
            "nodeAffinity": {"required": {"nodeSelectorTerms": there}}}  # fmt: skip
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec,
            "status": {"phase": "Available"}}  # fmt: skip


def using(name: str, *claims: str, cpu: str = "1") -> Thing:
    said = [{"name": f"v{index}", "persistentVolumeClaim": {"claimName": one}} for index, one in enumerate(claims)]
    made = pod(name, seconds=None, cpu=cpu)
    made["spec"]["volumes"] = said
    return made


async def place(world: World, name: str) -> str:
    """The node of a pod; "" while it has none."""
    found = await world.client.get(Ref(kinds.PODS, name, "default"))
    return str(found["spec"].get("nodeName", ""))


async def owner(world: World, name: str) -> str:
    """The claim that a volume was given to."""
    found = await world.client.get(Ref(kinds.VOLUMES, name))
    return str(found["spec"].get("claimRef", {}).get("name", ""))


async def selected(world: World, name: str) -> str:
    found = await world.client.get(Ref(kinds.CLAIMS, name, "default"))
    return str(found["metadata"].get("annotations", {}).get("volume.kubernetes.io/selected-node", ""))


def test_a_pod_goes_where_a_free_volume_is_large_enough_and_gets_the_smallest() -> None:
    async def story(world: World) -> tuple[str, ...]:
        await world.apply(volume("small", "z0"), volume("huge", "z2", "9Gi"), volume("fits", "z2", "5Gi"))
        await world.apply(claim("data", "local", "4Gi"), using("a", "data"))
        await world.until(lambda: place(world, "a"))
        return await place(world, "a"), await owner(world, "fits"), await owner(world, "huge")

    assert play(story) == ("n2", "data", "")


def test_no_volume_is_given_twice_and_what_finds_none_says_so() -> None:
    async def story(world: World) -> tuple[set[str], str]:
        claims = [claim(f"c{index}", "local") for index in range(3)]
        await world.apply(volume("v1", "z1"), volume("v2", "z1"), *claims)
        await world.apply(*(using(f"p{index}", f"c{index}") for index in range(3)))
        await world.until(lambda: world.says_reason("pod-p2", "ClaimUnbound"))
        given = {await owner(world, "v1"), await owner(world, "v2")}
        await world.apply(volume("v3", "z0"))
        await world.until(lambda: place(world, "p2"))
        return given, await place(world, "p2")

    assert play(story) == ({"c0", "c1"}, "n0")


def test_a_claim_that_its_class_makes_a_volume_for_names_the_node_before_the_pod_is_bound() -> None:
    async def story(world: World) -> tuple[str, str]:
        await world.apply(claim("data", "made"), using("a", "data"))
        await world.until(lambda: place(world, "a"))
        return await place(world, "a"), await selected(world, "data")

    where, said = play(story)
    assert where and where == said


def test_pods_that_share_an_unbound_claim_go_to_the_zone_of_the_first() -> None:
    spread = {**MADE, "metadata": {"name": "zonal"}, "allowedTopologies": [
        {"matchLabelExpressions": [{"key": "zone", "values": ["z0", "z1", "z2"]}]}]}  # fmt: skip

    async def story(world: World) -> tuple[str, str, str]:
        pods = using("a", "data", cpu="3"), using("b", "data", cpu="3"), using("c", "data")
        await world.apply(spread, claim("data", "zonal"), *pods)
        await world.until(lambda: place(world, "c"))
        await world.until(lambda: world.says_reason("pod-b", "NoRoom"))
        return await place(world, "a"), await place(world, "c"), await place(world, "b")

    first, third, second = play(story)
    assert first and first == third and not second


def test_a_claim_made_later_lets_its_pod_start_where_its_volume_is() -> None:
    async def story(world: World) -> str:
        await world.apply(using("a", "data"))
        await world.until(lambda: world.says_reason("pod-a", "ClaimMissing"))
        await world.apply(claim("data", "", volumeName="v1"))
        await world.until(lambda: world.says_reason("pod-a", "ClaimUnbound"))
        await world.apply(volume("v1", "z1"))
        await world.until(lambda: place(world, "a"))
        return await place(world, "a")

    assert play(story) == "n1"


def test_a_claim_that_a_pod_makes_for_itself_is_waited_for_and_binds_it() -> None:
    async def story(world: World) -> tuple[str, str]:
        await world.apply(volume("v1", "z1"))
        inline = using("a")
        said = {"volumeClaimTemplate": {"spec": claim("data", "local")["spec"]}}
        inline["spec"]["volumes"] = [{"name": "data", "ephemeral": said}]
        await world.apply(inline)
        await world.until(lambda: world.says_reason("pod-a", "ClaimMissing"))
        await world.apply(claim("a-data", "local"))
        await world.until(lambda: place(world, "a"))
        return await place(world, "a"), await owner(world, "v1")

    assert play(story) == ("n1", "a-data")


def attaches(name: str, count: int) -> Thing:
    """A node on which a driver attaches so many volumes."""
    spec = {"drivers": [{"name": "disks.example.com", "nodeID": name, "allocatable": {"count": count}}]}
    return {**CSI, "kind": "CSINode", "metadata": {"name": name}, "spec": spec}


def test_a_pod_waits_where_no_node_attaches_its_volume_and_starts_once_one_does() -> None:
    async def story(world: World) -> tuple[str, str]:
        await world.apply(claim("one", "made"), claim("two", "made"), using("a", "one"))
        await world.until(lambda: place(world, "a"))
        full = await place(world, "a")
        await world.apply(*(attaches(f"n{index}", int(f"n{index}" == full)) for index in range(3)))
        await world.apply(using("b", "two"))
        await world.until(lambda: world.says_reason("pod-b", "NoRoom"))
        free = next(f"n{index}" for index in range(3) if f"n{index}" != full)
        await world.client.patch(Ref(kinds.CSI_NODES, free), {"spec": attaches(free, 1)["spec"]})
        await world.until(lambda: place(world, "b"))
        return free, await place(world, "b")

    free, found = play(story)
    assert found == free


def test_a_pod_waits_where_its_volume_is_too_large_and_starts_where_there_is_storage_for_it() -> None:
    async def story(world: World) -> str:
        meta, spec = {"name": "disks.example.com"}, {"storageCapacity": True}
        await world.apply({**CSI, "kind": "CSIDriver", "metadata": meta, "spec": spec})
        await world.apply(claim("data", "made", "4Gi"), using("a", "data"))
        await world.until(lambda: world.says_reason("pod-a", "ClaimUnbound"))
        for index, size in enumerate(("3Gi", "4Gi")):
            there = {"nodeTopology": {"matchLabels": {"zone": f"z{index}"}}, "storageClassName": "made"}
            meta = {"name": f"c{index}", "namespace": "default"}
            await world.apply({**CSI, "kind": "CSIStorageCapacity", "metadata": meta, "capacity": size, **there})
        await world.until(lambda: place(world, "a"))
        return await place(world, "a")

    assert play(story) == "n1"


def test_a_server_without_the_kinds_of_csi_is_not_asked_for_them() -> None:
    async def story(world: World) -> list[str]:
        await world.crash()
        way = Older(world)
        world.start(way)
        await world.apply(claim("data", "made"), using("a", "data"))
        await world.until(lambda: place(world, "a"))
        return [path for path in way.asked if "/csi" in path]

    assert play(story) == []


def test_a_gang_whose_volume_another_took_gives_up_its_place_and_goes_to_the_next() -> None:
    """Both were decided at once; the places of the second are given up before a pod of it is bound."""

    async def story(world: World) -> set[str]:
        await world.apply(volume("v1", "z1"), volume("v2", "z2"), claim("one", "local"), claim("two", "local"))
        await world.apply(*(with_claim(name) for name in ("one", "two")))
        for name in ("one", "two"):
            await world.until(lambda name=name: world.is_in(f"job-{name}", "Running"))
        return {await owner(world, "v1"), await owner(world, "v2")}

    assert play(story) == {"one", "two"}


def with_claim(name: str) -> Thing:
    """A Job whose pod uses the claim of its name."""
    said = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    return job(name, cpu="1", pod={"volumes": said})
