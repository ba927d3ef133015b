"""A group of bare pods on a real API server: a pod that is lost comes back with all, and one too many is told so."""

from plane import Plane, Thing, fairway, node, nodes, until

from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref, Selection


def member(index: int) -> Thing:
    labels = {"fairway.dev/queue": "default", "fairway.dev/group": "g", "fairway.dev/group-size": "2"}
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"g-{index}", "namespace": "default", "labels": labels},
        "spec": {"restartPolicy": "Never", "schedulerName": "fairway", "containers": [container]},
    }  # fmt: skip


async def running(client: Client) -> dict[str, str]:
    """The uids of the pods that run and stay, by their names."""
    found = await client.list(Selection(kinds.PODS, "default"))
    up = [it["metadata"] for it in found if it["status"].get("phase") == "Running"]
    return {it["name"]: it["uid"] for it in up if "deletionTimestamp" not in it}


async def test_a_group_comes_back_whole_and_a_pod_too_many_is_told_so(plane: Plane) -> None:
    async with plane.client() as admin:

        async def whole() -> dict[str, str]:
            found = await running(admin)
            return found if len(found) == 2 else {}

        async def told() -> list[str]:
            pod = await admin.get(Ref(kinds.PODS, "g-9", "default"))
            return [it["reason"] for it in pod["status"].get("conditions") or () if it["reason"] == "GroupFull"]

        async with nodes(admin, node("n1")), fairway(plane):
            for index in (0, 1):
                await admin.create(kinds.PODS, member(index))
            before = await until(whole)
            await admin.create(kinds.PODS, member(9))
            assert await until(told) == ["GroupFull"]
            await admin.delete(Ref(kinds.PODS, "g-1", "default"))

            async def remade() -> dict[str, str]:
                found = await whole()
                return found if found and not set(found.values()) & set(before.values()) else {}

            assert sorted(await until(remade)) == ["g-0", "g-1"]
            for name in ("g-0", "g-1", "g-9"):
                await admin.delete(Ref(kinds.PODS, name, "default"))
