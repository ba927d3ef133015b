"""Pods whose claims get their volumes when they are placed, on a real cluster: its volume controller binds them."""

from typing import Any

import pytest
from plane import Plane, Thing, fairway, node, nodes, until

from fairway.cli.whatif import answered
from fairway.clock import Clock
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref, Selection
from fairway.kube.transport import Request, Response, Transport

LOCAL: Thing = {
    "metadata": {"name": "local"}, "volumeBindingMode": "WaitForFirstConsumer",
    "provisioner": "kubernetes.io/no-provisioner",
}  # fmt: skip
ASKS: Thing = {
    "storageClassName": "local",
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
}
MADE: Thing = {**LOCAL, "metadata": {"name": "made"}, "provisioner": "example.com/disks"}


def volume(name: str, at: str) -> Thing:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [at]}]}
    spec = {"storageClassName": "local", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "local": {"path": "/data"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}  # fmt: skip
    return {"metadata": {"name": name}, "spec": spec}


def using(name: str, volume: Thing) -> Thing:
    meta = {"name": name, "namespace": "default", "labels": {"fairway.dev/queue": "default"}}
    spec = {"schedulerName": "fairway", "restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}],
            "volumes": [{"name": "data", **volume}]}  # fmt: skip
    return {"metadata": meta, "spec": spec}


async def field(client: Client, where: Ref, *path: str) -> Any:
    """The value of a field; "" while it has none."""
    found: Any = await client.find(where) or {}
    for name in path:
        found = found.get(name, {})
    return found or ""


async def cleared(client: Client) -> None:
    for kind in (kinds.PODS, kinds.CLAIMS, kinds.VOLUMES, kinds.STORAGE_CLASSES):
        for it in await client.list(Selection(kind)):
            where = Ref(kind, it["metadata"]["name"], it["metadata"].get("namespace", ""))
            await client.patch(where, {"metadata": {"finalizers": None}})
            await client.delete(where)


@pytest.mark.parametrize("is_inline", [False, True], ids=["a claim of its own", "a claim that the pod makes"])
async def test_a_pod_starts_where_its_local_volume_is_and_the_claim_is_bound(plane: Plane, is_inline: bool) -> None:
    name, at = ("inline", "v1") if is_inline else ("named", "v0")
    claim, pod = Ref(kinds.CLAIMS, f"{name}-data", "default"), Ref(kinds.PODS, name, "default")
    inline, named = (
        {"ephemeral": {"volumeClaimTemplate": {"spec": ASKS}}},
        {"persistentVolumeClaim": {"claimName": claim.name}},
    )
    async with plane.client() as admin, nodes(admin, node("n0"), node("n1")), fairway(plane):
        await admin.create(kinds.STORAGE_CLASSES, LOCAL)
        await admin.create(kinds.VOLUMES, volume(at, "n1"))
        await until(lambda: _is(admin, Ref(kinds.VOLUMES, at), "Available"))
        if not is_inline:
            await admin.create(kinds.CLAIMS, {"metadata": {"name": claim.name, "namespace": "default"}, "spec": ASKS})
        await admin.create(kinds.PODS, using(name, inline if is_inline else named))
        await until(lambda: _is(admin, claim, "Bound"))
        await until(lambda: field(admin, pod, "spec", "nodeName"))
        assert await field(admin, claim, "spec", "volumeName") == at
        assert await field(admin, pod, "spec", "nodeName") == "n1"
        await cleared(admin)


async def test_the_provisioner_learns_the_node_that_was_selected(plane: Plane) -> None:
    claim, pod = Ref(kinds.CLAIMS, "data", "default"), Ref(kinds.PODS, "made", "default")
    async with plane.client() as admin, nodes(admin, node("n0")), fairway(plane):
        await admin.create(kinds.STORAGE_CLASSES, MADE)
        spec = {**ASKS, "storageClassName": "made"}
        await admin.create(kinds.CLAIMS, {"metadata": {"name": "data", "namespace": "default"}, "spec": spec})
        await admin.create(kinds.PODS, using("made", {"persistentVolumeClaim": {"claimName": "data"}}))
        await until(lambda: field(admin, pod, "spec", "nodeName"))
        selected = await field(admin, claim, "metadata", "annotations", "volume.kubernetes.io/selected-node")
        assert selected == await field(admin, pod, "spec", "nodeName")
        await cleared(admin)


async def test_a_dry_run_goes_by_claims_as_far_as_the_user_may_see_them(plane: Plane) -> None:
    async with plane.client() as admin, nodes(admin, node("n0"), node("n1")), fairway(plane):
        await admin.create(kinds.STORAGE_CLASSES, LOCAL)
        await admin.create(kinds.VOLUMES, volume("v0", "n1"))
        await admin.create(kinds.CLAIMS, {"metadata": {"name": "data", "namespace": "default"}, "spec": ASKS})
        there, _ = await answered(admin, admin, job("there", "data"), "default")
        missing, _ = await answered(admin, admin, job("missing", "none"), "default")
        unseen, _ = await answered(admin, Client(without_volumes(admin), Clock()), job("missing", "none"), "default")
        assert "on n1" in there["message"]
        assert (there["verdict"], missing["verdict"], unseen["verdict"]) == ("Admit", "Wait", "Admit")
        assert "PersistentVolumeClaim" in missing["message"]
        await cleared(admin)


def without_volumes(client: Client) -> Transport:
    """The server as a user sees it that has no right to list volumes."""

    async def asked(request: Request) -> Response:
        refused = request.path.endswith("/persistentvolumes")
        return Response(403, {}, b"{}") if refused else await client.transport(request)

    return asked


def job(name: str, claim: str) -> Thing:
    pod = using(name, {"persistentVolumeClaim": {"claimName": claim}})["spec"]
    meta = {"name": name, "labels": {"fairway.dev/queue": "default"}}
    return {"metadata": meta, "spec": {"suspend": True, "template": {"spec": pod}}}


async def _is(client: Client, where: Ref, phase: str) -> bool:
    return bool(await field(client, where, "status", "phase") == phase)
