"""A node is emptied on a real API server by the commands of docs/start/troubleshoot-a-cluster.md."""

import page
from plane import Plane, Thing, fairway, node, nodes, until
from test_install import printed
from test_other_scheduler import job

from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref, Selection

EMPTY = "kubectl annotate node NODE fairway.dev/unhealthy=maintenance"
REST = ("kubectl drain NODE", "kubectl annotate node NODE fairway.dev/unhealthy-")


async def up(client: Client) -> list[Thing]:
    """The pods that run, once there are two."""
    found = await client.list(Selection(kinds.PODS, "default"))
    stay = [it for it in found if "deletionTimestamp" not in it["metadata"] and it["status"].get("phase") == "Running"]
    return stay if len(stay) == 2 else []


async def test_a_node_is_emptied_and_its_jobs_start_elsewhere_whole_and_count_no_failure(plane: Plane) -> None:
    text = (page.DOCS / "start/troubleshoot-a-cluster.md").read_text()
    assert all(f"`{one}`" in text for one in (EMPTY, *REST))
    async with plane.client() as admin, nodes(admin, node("n0"), node("n1")), fairway(plane):
        await admin.create(kinds.JOBS, job("gang", seconds=600, parallelism=2))
        first = {it["spec"]["nodeName"] for it in await until(lambda: up(admin))}
        assert len(first) == 1
        emptied = first.pop()
        await printed(plane, EMPTY.replace("NODE", emptied))

        async def has_moved() -> bool:
            return {it["spec"]["nodeName"] for it in await up(admin)} == {"n0", "n1"} - {emptied}

        await until(has_moved)
        before = {it["metadata"]["uid"] for it in await up(admin)}
        for one in (*REST, "kubectl uncordon NODE"):
            await printed(plane, one.replace("NODE", emptied))
        assert {it["metadata"]["uid"] for it in await up(admin)} == before  # they stay where they are
        told = await admin.get(Ref(kinds.JOBS, "gang", "default"))
        assert told["status"].get("failed", 0) == 0
        await admin.delete(Ref(kinds.JOBS, "gang", "default"))
