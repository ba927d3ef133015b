"""What a real API server adds to pods that their templates do not say is asked for, so that no node is overfilled."""

from plane import Plane, fairway, node, nodes, until
from test_other_scheduler import job

from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref, Selection


async def test_pods_of_a_namespace_with_a_limit_range_wait_for_what_it_has_them_request(plane: Plane) -> None:
    item = {"type": "Container", "defaultRequest": {"cpu": "3"}}
    usual = {"metadata": {"name": "usual", "namespace": "default"}, "spec": {"limits": [item]}}
    async with plane.client() as admin, nodes(admin, node("n0", cpu=8)), fairway(plane):
        await admin.create(kinds.LIMIT_RANGES, usual)
        for name in "abc":
            silent = job(name, seconds=600)
            del silent["spec"]["template"]["spec"]["containers"][0]["resources"]
            await admin.create(kinds.JOBS, silent)
        (waits,) = await until(lambda: waiting(admin))
        asked = waits["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]
        assert asked == {"requests": {"cpu": "3"}}
        assert len(await admin.list(Selection(kinds.PODS, "default"))) == 2
        for name in "abc":
            await admin.delete(Ref(kinds.JOBS, name, "default"))
        await admin.delete(Ref(kinds.LIMIT_RANGES, "usual", "default"))


async def waiting(client: Client) -> list[dict]:
    """The Workloads that wait, once the others run."""
    found = await client.list(Selection(kinds.WORKLOADS, "default"))
    phases = sorted(it.get("status", {}).get("phase", "") for it in found)
    told = [it for it in found if it.get("status", {}).get("reason") == "NoRoom"]
    return told if phases == ["Pending", "Running", "Running"] else []
