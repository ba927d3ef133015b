"""Where a waiting pod may go: the same nodes as a running kube-scheduler uses, over random small clusters.

Each world is made on the real API server, its pod is left to kube-scheduler, and Fairway decides about what the server
then returns. A world that kube-scheduler judged before its caches had all of it is asked again. The server refuses
worlds whose objects are not lawful (two equal spread constraints, say); they count for nothing.
"""

import copy
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from kube_filters import Cluster
from plane import Plane, Thing, until
from test_kube_filters import SPACES, Maker, allowed, planned

from fairway import engine
from fairway.engine.state import snapshot_of
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Ref, Selection
from fairway.offline.reader import read
from fairway.policies import PRESETS

WORLDS = 3_000 if os.environ.get("FAIRWAY_SOAK") else 60
KINDS = {"Namespace": kinds.NAMESPACES, "Node": kinds.NODES, "Pod": kinds.PODS}


async def test_a_pod_may_go_where_kube_scheduler_would_bind_it(plane: Plane) -> None:
    with plane.scheduler():
        async with plane.client() as client:
            for name, labels in SPACES.items():
                await client.create(kinds.NAMESPACES, {"metadata": {"name": name, "labels": labels}})
            said = [await difference(client, seed) for seed in range(WORLDS)]
    assert [one for one in said if one] == []
    assert said.count("") > WORLDS / 3  # most worlds are lawful


async def difference(client: Client, seed: int) -> str | None:
    """How Fairway's answer differs from kube-scheduler's; "" where it does not, None for a world that is refused."""
    cluster, pod = Maker(random.Random(seed)).world()
    try:
        async with made(client, cluster):
            said = await _asked(client, lawful(pod))
            return said and await _asked(client, lawful(pod))
    except ApiError as error:
        if error.status == 422:
            return None
        raise


async def _asked(client: Client, pod: Thing) -> str:
    ref = _ref(pod)
    await client.create(kinds.PODS, pod)
    try:
        node = await _bound(client, ref)
        snapshot = await _seen(client, ref)
    finally:
        await _gone(client, [ref])
    mine, plan = allowed(snapshot), planned(engine.decide(snapshot, PRESETS["fairway"]))
    agree = node in mine and bool(plan) if node else not mine and not plan
    return "" if agree else f"kube-scheduler: {node or 'no node'}, Fairway: {sorted(mine)}, planned on {sorted(plan)}"


async def _bound(client: Client, ref: Ref) -> str:
    """The node that kube-scheduler chose; "" where it found none."""

    async def judged() -> Thing | None:
        found = await client.get(ref)
        reasons = [one.get("reason") for one in found["status"].get("conditions") or ()]
        return found if found["spec"].get("nodeName") or "Unschedulable" in reasons else None

    found = await until(judged)
    return found["spec"].get("nodeName", "")


async def _seen(client: Client, ref: Ref) -> engine.Snapshot:
    """What the server holds, with the pod as it was before it was bound."""
    seen = []
    for name, kind in KINDS.items():
        seen += [{"apiVersion": "v1", "kind": name, **one} for one in await client.list(Selection(kind))]
    for one in seen:
        if one["kind"] == "Pod" and _ref(one) == ref:
            one["spec"].pop("nodeName", None)
            one["status"] = {"phase": "Pending"}
    return snapshot_of(read(seen, everything=True, now=0.0))


@asynccontextmanager
async def made(client: Client, cluster: Cluster) -> AsyncIterator[None]:
    """The nodes and the running pods of a world, until the end of the block."""
    nodes, pods = [Ref(kinds.NODES, one["metadata"]["name"]) for one in cluster.nodes], []
    try:
        for ref, node in zip(nodes, cluster.nodes):
            status = {**node["status"], "capacity": node["status"]["allocatable"]}
            await client.create(kinds.NODES, {**node, "status": status})
            await client.patch(ref, {"status": status}, subresource="status")
        for pod in map(lawful, cluster.pods):
            is_leaving = pod["metadata"].pop("deletionTimestamp", None) and pod["status"]["phase"] == "Running"
            await client.create(kinds.PODS, pod)
            pods.append(_ref(pod))
            await client.patch(pods[-1], {"status": pod["status"]}, subresource="status")
            if is_leaving:
                await client.delete(pods[-1], grace=3_000)
        yield
    finally:
        await _gone(client, pods)
        await _gone(client, nodes)


async def _gone(client: Client, refs: list[Ref]) -> None:
    for ref in refs:
        with suppress(ApiError):
            await client.delete(ref, grace=0)
    for ref in refs:
        await until(lambda ref=ref: _is_missing(client, ref))


async def _is_missing(client: Client, ref: Ref) -> bool:
    return await client.find(ref) is None


def _ref(pod: Thing) -> Ref:
    return Ref(kinds.PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])


def lawful(pod: Thing) -> Thing:
    """The pod as an API server takes it: container names differ, devices have limits, ports are equal."""
    pod = copy.deepcopy(pod)
    spec = pod["spec"]
    spec.pop("overhead", None)  # only a RuntimeClass may set it
    for number, one in enumerate([*spec["containers"], *spec.get("initContainers", ())]):
        one["name"] = f"c{number}"
        asked = one["resources"]
        if device := asked.get("requests", {}).pop("example.com/dev", None):
            asked["limits"] = {"example.com/dev": device}
        ports = {(it["hostPort"], it["protocol"], it["hostIP"]): it for it in one["ports"]}
        one["ports"] = [
            {name: value for name, value in {**it, "containerPort": it["hostPort"]}.items() if value}
            for it in ports.values()
        ]
    return pod
