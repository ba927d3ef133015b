"""A node is lost for long on a real API server: its pods are never gone, and hold nothing elsewhere up."""

import asyncio
from contextlib import suppress

from plane import Plane, Thing, fairway, node, until
from test_other_scheduler import job

from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref, Selection
from fairway.node.hollow import Hollow


async def add(client: Client, name: str) -> None:
    made = node(name, cpu=2)
    await client.create(kinds.NODES, made)
    await client.patch(Ref(kinds.NODES, name), {"status": made["status"]}, subresource="status")


def large(name: str, seconds: float) -> Thing:
    made = job(name, seconds=seconds)
    spec = made["spec"]["template"]["spec"]
    spec["terminationGracePeriodSeconds"] = 1
    spec["containers"][0]["resources"]["requests"]["cpu"] = "2"
    return made


async def test_a_job_that_succeeded_elsewhere_holds_no_room_while_its_pod_on_a_lost_node_is_not_gone(
    plane: Plane,
) -> None:
    """Kubernetes calls it Complete only when that pod is gone, too."""
    async with plane.client() as admin, fairway(plane):
        played = asyncio.create_task(Hollow(admin, lambda name: name != "lost").run())
        await add(admin, "lost")
        await admin.create(kinds.JOBS, large("first", 1))
        await until(lambda: is_on(admin, "first", "lost"))
        await add(admin, "other")
        gone = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2020-01-01T00:00:00Z"}]
        await admin.patch(Ref(kinds.NODES, "lost"), {"status": {"conditions": gone}}, subresource="status")
        await until(lambda: is_on(admin, "first", "other"))
        await admin.create(kinds.JOBS, large("next", 600))
        await until(lambda: is_on(admin, "next", "other"), seconds=30)
        pods = await admin.list(Selection(kinds.PODS, "default"))
        (late,) = [it for it in pods if it["spec"].get("nodeName") == "lost"]
        for name in ("first", "next"):
            await admin.delete(Ref(kinds.JOBS, name, "default"))
        await admin.delete(Ref(kinds.PODS, late["metadata"]["name"], "default"), grace=0)
        for name in ("lost", "other"):
            await admin.delete(Ref(kinds.NODES, name))
        played.cancel()
        with suppress(asyncio.CancelledError):
            await played


async def is_on(client: Client, job: str, name: str) -> bool:
    pods = await client.list(Selection(kinds.PODS, "default", labels=f"job-name={job}"))
    return name in [it["spec"].get("nodeName") for it in pods]
