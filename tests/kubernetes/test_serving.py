"""A Deployment on a real API server: scaled as an autoscaler does, and rolled; each of its pods is a workload."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from plane import Plane, Thing, fairway, free_ports, node, nodes, until
from test_webhook import DEPLOYMENTS, answered, installed

from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Kind, Ref, Selection

REPLICA_SETS = Kind("ReplicaSet", "replicasets", "apps/v1")
SERVE = Ref(DEPLOYMENTS, "serve", "default")
APP = {"app": "serve"}
LABELS = {"fairway.dev/queue": "default"}


def deployment(replicas: int, *, cpu: str = "1", **labels: str) -> Thing:
    container = {"name": "main", "image": "v1", "resources": {"requests": {"cpu": cpu}}}
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    notes = {"fairway.dev/workload-type": "Inference"}
    return {
        "metadata": {"name": "serve", "namespace": "default", "labels": labels or LABELS, "annotations": notes},
        "spec": {"replicas": replicas, "selector": {"matchLabels": APP}, "strategy": rolling,
                 "template": {"metadata": {"labels": APP}, "spec": {"containers": [container]}}},
    }  # fmt: skip


async def pods(client: Client) -> list[Thing]:
    found = await client.list(Selection(kinds.PODS, "default", labels="app=serve"))
    return [it for it in found if "deletionTimestamp" not in it["metadata"]]


def is_ready(pod: Thing) -> bool:
    return any(it["type"] == "Ready" and it["status"] == "True" for it in pod["status"].get("conditions") or ())


def image(pod: Thing) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def are(client: Client, count: int, version: str = "v1") -> Callable[[], Awaitable[bool]]:
    """Whether all pods are these, ready, and the Deployment says so."""

    async def hold() -> bool:
        found, said = await pods(client), await client.get(SERVE)
        rest = [it for it in found if image(it) != version or not is_ready(it)]
        return len(found) == count and not rest and said["status"].get("availableReplicas") == count

    return hold


async def scale(client: Client, count: int) -> None:
    """As a HorizontalPodAutoscaler does."""
    await client.patch(SERVE, {"spec": {"replicas": count}}, subresource="scale")


async def roll(client: Client, version: str) -> None:
    said = (await client.get(SERVE))["spec"]["template"]["spec"]["containers"]
    said[0]["image"] = version
    await client.patch(SERVE, {"spec": {"template": {"spec": {"containers": said}}}})


@asynccontextmanager
async def watched(client: Client) -> AsyncIterator[list[int]]:
    """How many pods were ready, each time one changed."""
    seen: list[int] = []

    async def look() -> None:
        while True:
            seen.append(sum(map(is_ready, await pods(client))))
            await asyncio.sleep(0.02)

    task = asyncio.create_task(look())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def waits(client: Client) -> list[Thing]:
    """The Workloads of pods that wait."""
    found = await client.list(Selection(kinds.WORKLOADS, "default"))
    return [it for it in found if it.get("status", {}).get("phase") == "Pending" and it["status"].get("reason")]


async def gone(client: Client) -> None:
    await client.delete(SERVE)

    async def is_empty() -> bool:
        return not [*await pods(client), *await client.list(Selection(kinds.WORKLOADS, "default"))]

    await until(is_empty)


@asynccontextmanager
async def serving(plane: Plane, *machines: Thing) -> AsyncIterator[tuple[Client, Client]]:
    """An administrator and a user of a cluster with the webhook, beside kube-scheduler."""
    address: Any = ("127.0.0.1", free_ports(1)[0])
    async with plane.client() as admin, plane.client("ann") as ann, installed(admin, address):
        with plane.scheduler():
            async with nodes(admin, *machines), fairway(plane, webhook=address):
                await answered(ann)
                yield admin, ann


async def test_a_deployment_follows_its_autoscaler_and_rolls_without_a_gap(plane: Plane) -> None:
    async with serving(plane, node("n0", cpu=4), node("n1", cpu=4)) as (admin, ann):
        await ann.create(DEPLOYMENTS, deployment(3))
        await until(are(admin, 3))
        await scale(ann, 6)
        await until(are(admin, 6))
        await scale(ann, 2)
        await until(are(admin, 2))
        async with watched(admin) as ready:
            await roll(ann, "v2")
            await until(are(admin, 2, "v2"))
        assert min(ready) >= 2 and len(await admin.list(Selection(REPLICA_SETS, "default"))) == 2
        await gone(admin)


async def test_on_a_full_cluster_the_old_pod_stays_until_there_is_room_for_the_new_one(plane: Plane) -> None:
    async with serving(plane, node("n0", cpu=4)) as (admin, ann):
        await ann.create(DEPLOYMENTS, deployment(2, cpu="2"))
        await until(are(admin, 2))
        async with watched(admin) as ready:
            await roll(ann, "v2")
            (waiting,) = await until(lambda: waits(admin))
            assert waiting["status"]["reason"] in ("NoRoom", "NoDomain", "Fragmented")
            async with nodes(admin, node("n1", cpu=2)):
                await until(are(admin, 2, "v2"))
                assert min(ready) >= 2
                await gone(admin)


async def test_a_deployment_from_before_the_webhook_rolls_over_one_replica_set(plane: Plane) -> None:
    """What a webhook changed in a ReplicaSet, the Deployment would not know again, and make another."""
    async with plane.client() as admin, plane.client("ann") as ann:
        await admin.create(kinds.NAMESPACES, {"metadata": {"name": "old"}})
        made = deployment(2, none="none")
        made["metadata"]["namespace"] = "old"
        await ann.create(DEPLOYMENTS, made)
        by, names = Selection(REPLICA_SETS, "old"), Selection(kinds.PODS, "old")
        async with serving(plane, node("n0", cpu=8)):
            await admin.patch(Ref(kinds.NAMESPACES, "old"), {"metadata": {"labels": {"fairway.dev/managed": "true"}}})
            (first,) = await until(lambda: admin.list(by))
            await admin.delete(Ref(REPLICA_SETS, first["metadata"]["name"], "old"))  # it is made again, by the webhook

            async def is_up() -> bool:
                found = [it for it in await admin.list(by) if it["metadata"]["uid"] != first["metadata"]["uid"]]
                return sum(it["status"].get("availableReplicas", 0) for it in found) == 2

            await until(is_up)
            assert len(await admin.list(by)) == 1
            left = [it for it in await admin.list(names) if "deletionTimestamp" not in it["metadata"]]
            assert {it["spec"]["schedulerName"] for it in left if is_ready(it)} == {"fairway"}
            await admin.delete(Ref(kinds.NAMESPACES, "old"))
