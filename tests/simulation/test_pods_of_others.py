"""What the controller reads of pods beside their requests: generated labels in other pods' terms, and foreign gates."""

from typing import Any

from simworld import World, job, node, pod
from test_life import play

from fairway.kube import kinds
from fairway.kube.client import STRATEGIC
from fairway.kube.kinds import Ref, Selection

APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"job-name": "old"}}}
]}}  # fmt: skip


def test_a_pod_keeps_away_from_a_job_that_ran_before_any_selector_read_its_label() -> None:
    async def story(world: World) -> set[str]:
        await world.apply(job("old", seconds=1000, cpu="1"))
        await world.until(lambda: world.is_in("job-old", "Running"))
        await world.apply(job("new", seconds=1000, cpu="1", pod={"affinity": APART}))
        await world.until(lambda: world.is_in("job-new", "Running"))
        return {it["spec"]["nodeName"] for it in await world.pods()}

    assert play(story, node("n1"), node("n2")) == {"n1", "n2"}


def test_a_job_that_names_another_scheduler_is_left_to_it_unless_it_is_labelled() -> None:
    async def story(world: World) -> tuple[list[str], list[str | None]]:
        foreign, labelled = (job(name, pod={"schedulerName": "other"}) for name in ("foreign", "labelled"))
        labelled["metadata"]["labels"] = {"fairway.dev/queue": "default"}
        await world.apply(foreign, labelled)
        await world.until(lambda: world.is_in("job-labelled", "Running"))
        workloads = await world.client.list(Selection(kinds.WORKLOADS))
        pods = [it for it in await world.pods() if it["metadata"]["labels"]["job-name"] == "foreign"]
        return [it["metadata"]["name"] for it in workloads], [it["spec"].get("nodeName") for it in pods]

    assert play(story, node("n1")) == (["job-labelled"], [None])


def test_a_pod_waits_until_others_removed_their_gate() -> None:
    async def story(world: World) -> tuple[Any, Any]:
        gated = pod("a")
        gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        await world.apply(gated)
        await world.clock.sleep(5)
        waiting = (await world.workload("pod-a"))["status"]
        open_ = {"spec": {"schedulingGates": [{"$patch": "delete", "name": "example.com/wait"}]}}
        await world.client.patch(Ref(kinds.PODS, "a", "default"), open_, form=STRATEGIC)
        await world.until(lambda: world.is_in("pod-a", "Running"))
        return waiting["reason"], waiting["message"]

    reason, message = play(story, node("n1"))
    assert reason == "SchedulingGated" and "example.com/wait" in message


def test_a_pod_of_a_kind_that_fairway_does_not_know_is_a_workload_of_its_own() -> None:
    async def story(world: World) -> tuple[list[str], Any]:
        await world.client.create(kinds.SECRETS, {"metadata": {"name": "flow", "namespace": "default"}})
        uid = (await world.client.get(Ref(kinds.SECRETS, "flow", "default")))["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Secret", "name": "flow", "uid": uid, "controller": True}
        await world.apply(*(pod(name, cpu=cpu, ownerReferences=[owner]) for name, cpu in (("a", "3"), ("b", "2"))))
        await world.until(lambda: world.is_in("pod-a", "Running"))
        await world.until(lambda: world.is_in("pod-b", "Pending"))
        return [it["spec"]["schedulerName"] for it in await world.pods()], (await world.workload("pod-b"))["status"]

    schedulers, waits = play(story, node("n1"))
    assert schedulers == ["fairway", "fairway"] and waits["reason"] == "NoRoom"
