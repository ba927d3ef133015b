"""The live page on a real API server: each viewer's own token, and what RBAC lets it see and do."""

import json
from typing import Any

import aiohttp
from plane import ROLE_BINDINGS, Plane
from plane import node as node_of

from fairway.cli.dashboard import Page, served
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.config import load
from fairway.kube.kinds import Kind, Ref

BINDINGS = Kind("RoleBinding", "rolebindings", ROLE_BINDINGS.group_version)
TENANT = "scheduler"
"""The token of a user who may list nodes, and otherwise what this test allows."""


async def make(client: Client, space: str, name: str) -> None:
    await client.ensure(kinds.NAMESPACES, {"metadata": {"name": space}})
    pod = {"containers": [{"name": "main", "image": "x"}], "restartPolicy": "Never"}
    spec = {"suspend": True, "template": {"spec": pod}}
    job = await client.create(kinds.JOBS, {"metadata": {"name": name}, "spec": spec}, namespace=space)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"]}
    said = {"queue": space, "podSets": [{"name": "main", "count": 1, "template": {"spec": pod}}]}
    meta = {"name": f"job-{name}", "ownerReferences": [owner]}
    made = {"apiVersion": kinds.FAIRWAY, "kind": "Workload", "metadata": meta, "spec": said}
    await client.create(kinds.WORKLOADS, made, namespace=space)


async def allow(client: Client, space: str) -> None:
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:kube-scheduler"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit-all"}
    made = {"metadata": {"name": "tenant"}, "roleRef": role, "subjects": [subject]}
    await client.create(BINDINGS, made, namespace=space)


async def page(session: aiohttp.ClientSession, view: str, token: str) -> str:
    """What a viewer is sent first."""
    headers = {"authorization": f"Bearer {token}"}
    async with session.get("/stream", params={"at": view}, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        held = b""
        async for chunk in answer.content.iter_any():
            held += chunk
            if b"\n\n" in held:
                return str(json.loads(held.partition(b"\n\n")[0].partition(b"data: ")[2]))
    raise AssertionError("the stream ended")


async def act(session: aiohttp.ClientSession, key: str, token: str) -> Any:
    asked = {"action": "cancel", "workloads": [key]}
    async with session.post("/act", json=asked, headers={"authorization": f"Bearer {token}"}) as answer:
        return (await answer.json())["done"][0]


async def test_each_viewer_sees_and_does_what_rbac_allows(plane: Plane) -> None:
    async with plane.client() as client:
        await client.create(kinds.NODES, node_of("n1", gpus=2))
        for space, name in (("nlp", "quince"), ("vision", "medlar")):
            await make(client, space, name)
        await allow(client, "nlp")
        async with served(Page(load([plane.kubeconfig("fairway")]))) as link:
            address, _, own = link.replace("/now#", "#").partition("#token=")
            async with aiohttp.ClientSession(address) as session:
                everything = await page(session, "/waiting", own)
                assert "quince" in everything and "medlar" in everything
                theirs = await page(session, "/waiting", TENANT)
                assert "quince" in theirs and "medlar" not in theirs and "a workload of queue vision" in theirs
                assert "n1" in await page(session, "/now", TENANT)
                async with session.get("/stream?at=/now", headers={"authorization": "Bearer nobody"}) as answer:
                    assert answer.status == 401
                assert "no such workload" in (await act(session, "vision/job-medlar", TENANT))["error"]
                assert await act(session, "nlp/job-quince", TENANT) == {"workload": "nlp/job-quince"}
        gone = await client.find(Ref(kinds.JOBS, "quince", "nlp"))
        assert gone is None or gone["metadata"]["deletionTimestamp"]
        assert await client.find(Ref(kinds.JOBS, "medlar", "vision"))
