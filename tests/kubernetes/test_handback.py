"""What the webhook wrote into users' objects on a real API server is given back, and all of it runs without Fairway."""

from plane import Plane, Thing, node, nodes, until
from test_adopted import STATEFUL_SETS, is_queued, plain_app, plain_job
from test_install import printed
from test_webhook import DEPLOYMENTS, LABELS, pod, served

from fairway.cli.handback import hand_back
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref, Selection

SPACE, CONTROLLERS = "left", ("statefulset-controller",)


async def test_nothing_that_fairway_held_hangs_when_it_is_gone(plane: Plane) -> None:
    async with plane.client() as admin:
        await admin.create(kinds.NAMESPACES, {"metadata": {"name": SPACE, "labels": {"fairway.dev/managed": "true"}}})
        async with served(plane) as (_, ann):
            await until(lambda: is_queued(ann, plain_job("probe", SPACE)))
            await ann.create(DEPLOYMENTS, plain_app("web", SPACE, replicas=2))
            await ann.create(STATEFUL_SETS, plain_app("db", SPACE, replicas=2, serviceName="db"))
            await ann.create(kinds.JOBS, plain_job("batch", SPACE))
            await ann.create(kinds.PODS, pod("bare", SPACE, labels=LABELS))
            await until(lambda: _has(admin, 4))
        for one in await admin.list(Selection(kinds.WORKLOADS, SPACE)):
            await admin.patch(Ref(kinds.WORKLOADS, one["metadata"]["name"], SPACE), {"metadata": {"finalizers": None}})
        await until(lambda: _is_plain(admin))
        lines = await hand_back(admin)
        rolling = "Fairway's gate and scheduler name removed; a rolling update replaces their pods"
        assert lines[:2] == [f"1 Deployments: {rolling}", f"1 StatefulSets: {rolling}"]
        assert lines[3].startswith("3 pods that waited: deleted") and lines[4].startswith("1 pods wait for a scheduler")
        jobs, helps = lines[2].split("to make one anew: ")
        assert jobs.startswith("1 Jobs name the scheduler fairway, left/batch first; ")
        with plane.scheduler():
            async with nodes(admin, *(node(f"n{index}") for index in range(2))):
                await printed(plane, helps.replace("NAMESPACE", SPACE).replace("NAME", "batch"))
                await until(lambda: _runs(admin))
        assert [line[:20] for line in await hand_back(admin)] == ["1 pods wait for a sc"]
        await admin.delete(Ref(kinds.NAMESPACES, SPACE))


async def _has(client: Client, count: int) -> bool:
    """Whether so many pods wait: an ordered StatefulSet makes its first."""
    return len(await client.list(Selection(kinds.PODS, SPACE))) == count


async def _is_plain(client: Client) -> bool:
    """Whether no webhook completes anything any more."""
    made: Thing = await client.create(kinds.JOBS, plain_job("probe", SPACE), dry_run=True)
    return not made["spec"].get("suspend")


async def _runs(client: Client) -> bool:
    """Whether all replicas, and the Job's pod, have run."""
    pods = await client.list(Selection(kinds.PODS, SPACE))
    ran = [it for it in pods if it["status"].get("phase") in ("Running", "Succeeded")]
    return {it["metadata"]["name"].rpartition("-")[0] for it in ran} >= {"db", "batch"} and len(ran) == 5
