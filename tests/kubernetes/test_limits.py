"""What a real API server adds to pods that their templates do not say is asked for, so that no node is overfilled; and
what it does not let be made is told."""

from plane import Plane, fairway, node, nodes, until
from test_install import printed
from test_other_scheduler import job

from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Kind, Ref, Selection

QUOTAS = Kind("ResourceQuota", "resourcequotas")


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


async def test_why_says_what_keeps_the_pods_of_a_started_job_from_being_made(plane: Plane) -> None:
    async with plane.client() as admin, nodes(admin, node("n0")), fairway(plane):
        quota, none = Ref(QUOTAS, "none", "default"), {"pods": "0"}
        await admin.create(QUOTAS, {"metadata": {"name": "none", "namespace": "default"}, "spec": {"hard": none}})
        await admin.patch(quota, {"status": {"hard": none, "used": none}}, subresource="status")  # as its controller
        await admin.create(kinds.JOBS, job("refused"))

        async def is_told() -> bool:
            return "no pod of it is made: pods" in await printed(plane, "fairway why refused")

        await until(is_told)
        assert "exceeded quota: none" in await printed(plane, "fairway why refused")
        await admin.delete(Ref(kinds.JOBS, "refused", "default"))
        await admin.delete(quota)


async def waiting(client: Client) -> list[dict]:
    """The Workloads that wait, once the others run."""
    found = await client.list(Selection(kinds.WORKLOADS, "default"))
    phases = sorted(it.get("status", {}).get("phase", "") for it in found)
    told = [it for it in found if it.get("status", {}).get("reason") == "NoRoom"]
    return told if phases == ["Pending", "Running", "Running"] else []
