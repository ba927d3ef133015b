"""Deployments, StatefulSets and CronJobs whose pods and Jobs wait their turn, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from simworld import Thing, World, cluster, names, node

from fairway.api.quantities import time
from fairway.clock import VirtualClock, seeded
from fairway.embedded.apps import APPS
from fairway.embedded.apps.control import CRON_JOBS, DEPLOYMENTS, REPLICA_SETS, REVISIONS, STATEFUL_SETS
from fairway.kube import kinds
from fairway.kube.client import ApiError
from fairway.kube.kinds import Kind, Ref, Selection
from fairway.node.hollow import DURATION

START = 1_800_000_000.0


def play(story: Callable[[World], Awaitable[Any]], *nodes: Thing) -> Any:
    """What the story answers, with all controllers running."""
    clock = VirtualClock(START)

    async def run() -> Any:
        async with cluster(clock, seeded(1), *nodes) as world:
            world.start()
            running = [asyncio.create_task(make(world.client).run()) for make in APPS]
            try:
                return await story(world)
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)

    return clock.run(run())


def template(*, cpu: str = "1", image: str = "one") -> Thing:
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}


def workload(name: str, replicas: int, *, cpu: str = "1", **spec: Any) -> Thing:
    selector = {"matchLabels": {"app": "web"}}
    body = {"replicas": replicas, "selector": selector, "template": template(cpu=cpu), **spec}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": body}


async def made(world: World, kind: Kind, thing: Thing) -> Ref:
    await world.client.create(kind, thing)
    return Ref(kind, thing["metadata"]["name"], "default")


def shows(world: World, ref: Ref, **status: Any) -> Callable[[], Awaitable[bool]]:
    """Whether an object says so of its latest spec."""

    async def look() -> bool:
        one = await world.client.get(ref)
        said = one.get("status", {})
        return said.get("observedGeneration") == one["metadata"]["generation"] and all(
            said.get(name, 0) == value for name, value in status.items())

    return look


async def images(world: World) -> list[str]:
    pods = await world.pods(phase="Running")
    return sorted(pod["spec"]["containers"][0]["image"] for pod in pods)


async def roll(world: World, ref: Ref, image: str) -> None:
    await world.client.patch(ref, {"spec": {"template": template(image=image)}})


def test_replicas_beyond_the_room_wait_their_turn_and_start_when_there_is_some() -> None:
    async def story(world: World) -> tuple[list[Thing], str]:
        ref = await made(world, DEPLOYMENTS, workload("web", 6))
        await world.until(shows(world, ref, replicas=6, availableReplicas=4))
        waiting = [pod for pod in await world.pods() if not pod["spec"].get("nodeName")]
        await world.client.patch(ref, {"spec": {"replicas": 3}}, subresource="scale")
        await world.until(shows(world, ref, replicas=3, availableReplicas=3))
        return waiting, (await world.client.get(ref))["status"]["conditions"][0]["reason"]

    waiting, reason = play(story, node("n1"))
    assert len(waiting) == 2 and reason == "MinimumReplicasAvailable"


def test_a_pod_of_another_namespace_is_no_replica_whichever_owner_it_names() -> None:
    """Else a user who has read a uid could have the pods of another taken for surplus."""

    async def story(world: World) -> list[Thing]:
        ref = await made(world, REPLICA_SETS, workload("web", 2))
        await world.until(shows(world, ref, availableReplicas=2))
        await world.client.create(kinds.NAMESPACES, {"metadata": {"name": "other"}})
        for one in await world.pods():
            meta = {"name": f"{one['metadata']['name']}-x", "namespace": "other", "finalizers": ["example.com/hold"],
                    "ownerReferences": one["metadata"]["ownerReferences"]}
            await world.client.create(kinds.PODS, {"metadata": meta, "spec": template()["spec"]})
        await world.client.patch(ref, {"spec": {"replicas": 3}})
        await world.until(shows(world, ref, replicas=3, availableReplicas=3))
        return await world.client.list(Selection(kinds.PODS, "default"))

    assert len(play(story, node("n1"))) == 3


def test_a_new_template_is_rolled_out_with_enough_pods_available_all_the_time_and_can_be_undone() -> None:
    async def story(world: World) -> tuple[list[int], list[str], list[str], list[Thing]]:
        limits = {"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}}
        ref = await made(world, DEPLOYMENTS, workload("web", 4, **limits))
        await world.until(shows(world, ref, availableReplicas=4, updatedReplicas=4))
        available, done = [], shows(world, ref, availableReplicas=4, updatedReplicas=4, replicas=4)
        await roll(world, ref, "two")

        async def is_rolled() -> bool:
            available.append(len(await images(world)))
            return await done()

        await world.until(is_rolled, seconds=120)
        after = await images(world)
        await roll(world, ref, "one")
        await world.until(done, seconds=120)
        return available, after, await images(world), await world.client.list(Selection(REPLICA_SETS))

    available, after, undone, sets = play(story, node("n1", cpu=8))
    assert min(available) >= 3 and max(available) <= 5
    assert after == ["two"] * 4 and undone == ["one"] * 4
    revisions = {each["metadata"]["annotations"]["deployment.kubernetes.io/revision"] for each in sets}
    assert revisions == {"2", "3"}


def test_recreate_starts_nothing_new_while_an_old_pod_is_left() -> None:
    async def story(world: World) -> list[list[str]]:
        ref = await made(world, DEPLOYMENTS, workload("web", 3, strategy={"type": "Recreate"}))
        await world.until(shows(world, ref, availableReplicas=3, updatedReplicas=3))
        seen: list[list[str]] = []
        await roll(world, ref, "two")

        async def is_rolled() -> bool:
            seen.append(sorted({pod["spec"]["containers"][0]["image"] for pod in await world.pods()}))
            return await images(world) == ["two"] * 3

        await world.until(is_rolled, seconds=120)
        return seen

    assert all(len(each) <= 1 for each in play(story, node("n1", cpu=8)))


def test_old_sets_are_kept_as_many_as_the_history_says() -> None:
    async def story(world: World) -> list[Thing]:
        ref = await made(world, DEPLOYMENTS, workload("web", 1, revisionHistoryLimit=2))
        for image in ("two", "three", "four", "five"):
            await roll(world, ref, image)
            await world.until(lambda image=image: _are(world, [image]), seconds=120)
        await world.until(shows(world, ref, availableReplicas=1, replicas=1))

        async def are_few() -> list[Thing]:
            sets = await world.client.list(Selection(REPLICA_SETS))
            return sets if len(sets) == 3 else []

        return await world.until(are_few)

    assert len(play(story, node("n1", cpu=8))) == 3


async def _are(world: World, wanted: list[str]) -> bool:
    return await images(world) == wanted


def test_a_pod_of_a_replica_set_that_ends_is_replaced() -> None:
    async def story(world: World) -> list[str]:
        ref = await made(world, REPLICA_SETS, workload("web", 2))
        await world.until(shows(world, ref, readyReplicas=2))
        first, other = names(await world.pods())
        ended = {"status": {"phase": "Failed"}}
        await world.client.patch(Ref(kinds.PODS, first, "default"), ended, subresource="status")
        await world.until(shows(world, ref, readyReplicas=2, replicas=2))

        async def are_two() -> list[str]:
            alive = names(await world.pods(phase="Running"))
            return alive if len(alive) == 2 and first not in alive else []

        return [other, *await world.until(are_two)]

    other, *alive = play(story, node("n1"))
    assert other in alive


def test_a_stateful_set_starts_in_order_shrinks_from_the_top_and_rolls_one_by_one() -> None:
    async def story(world: World) -> tuple[list[list[str]], list[str], list[Thing]]:
        ref = await made(world, STATEFUL_SETS, workload("db", 3, serviceName="db"))
        seen: list[list[str]] = []

        async def is_up() -> bool:
            seen.append(sorted(names(await world.pods())))
            return await shows(world, ref, readyReplicas=3, currentReplicas=3)()

        await world.until(is_up)
        await roll(world, ref, "two")
        await world.until(lambda: _are(world, ["two"] * 3), seconds=120)
        await world.until(shows(world, ref, readyReplicas=3, updatedReplicas=3))
        await world.client.patch(ref, {"spec": {"replicas": 1}})
        await world.until(shows(world, ref, replicas=1))
        return seen, names(await world.pods()), await world.client.list(Selection(REVISIONS))

    seen, left, revisions = play(story, node("n1"))
    growing = [each for each, before in zip(seen, [[], *seen]) if each != before]
    assert growing == [["db-0"], ["db-0", "db-1"], ["db-0", "db-1", "db-2"]]
    assert left == ["db-0"] and len(revisions) == 2


def test_a_partition_keeps_the_lower_numbers_on_the_old_template_even_when_they_come_again() -> None:
    async def story(world: World) -> list[tuple[str, str]]:
        rolling = {"updateStrategy": {"rollingUpdate": {"partition": 1}}, "podManagementPolicy": "Parallel"}
        ref = await made(world, STATEFUL_SETS, workload("db", 2, serviceName="db", **rolling))
        await world.until(shows(world, ref, readyReplicas=2, currentReplicas=2))
        await roll(world, ref, "two")
        await world.until(lambda: _are(world, ["one", "two"]), seconds=60)
        await world.delete(kinds.PODS, "db-0")
        await world.until(shows(world, ref, readyReplicas=1))
        await world.until(shows(world, ref, readyReplicas=2))
        return [(pod["metadata"]["name"], pod["spec"]["containers"][0]["image"]) for pod in await world.pods()]

    assert sorted(play(story, node("n1"))) == [("db-0", "one"), ("db-1", "two")]


def cron(**spec: Any) -> Thing:
    body = {"containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}],
            "restartPolicy": "Never"}
    work = {"metadata": {"annotations": {DURATION: "30s"}}, "spec": body}
    return {"metadata": {"name": "night", "namespace": "default"},
            "spec": {"schedule": "*/10 * * * *", "jobTemplate": {"spec": {"template": work}}, **spec}}


async def jobs(world: World, count: int) -> list[Thing]:
    """The Jobs of the CronJob, once there are so many, all of them over."""

    async def look() -> list[Thing]:
        found = await world.client.list(Selection(kinds.JOBS))
        return found if len(found) >= count and all(each["status"].get("completionTime") for each in found) else []

    return await world.until(look, seconds=3600)


def test_a_job_is_made_at_each_moment_of_the_schedule_and_the_last_few_are_kept() -> None:
    async def story(world: World) -> tuple[list[Thing], Thing]:
        ref = await made(world, CRON_JOBS, cron(successfulJobsHistoryLimit=2))
        await world.clock.sleep(3600)
        return await jobs(world, 2), (await world.client.get(ref))["status"]

    found, status = play(story, node("n1"))
    begun = sorted(time(each["metadata"]["creationTimestamp"]) for each in found)
    assert len(found) == 2 and all(moment % 600 < 5 for moment in begun) and begun[1] - begun[0] == 600
    assert time(status["lastScheduleTime"]) % 600 == 0 and status["lastSuccessfulTime"]


def test_a_moment_is_left_out_while_an_earlier_job_waits_where_forbidden() -> None:
    async def story(world: World) -> list[Thing]:
        await made(world, CRON_JOBS, cron(concurrencyPolicy="Forbid"))
        await world.clock.sleep(2400)
        return await world.client.list(Selection(kinds.JOBS))

    assert len(play(story)) == 1  # without a node the first never ends


def test_a_schedule_or_zone_that_is_none_is_refused_by_its_field() -> None:
    async def refused(world: World, **spec: Any) -> str:
        try:
            await made(world, CRON_JOBS, cron(**spec))
        except ApiError as error:
            return error.message
        return ""

    async def story(world: World) -> tuple[str, str]:
        return await refused(world, schedule="61 * * * *"), await refused(world, timeZone="Mars/Base")

    schedule, zone = play(story)
    assert "spec.schedule" in schedule and "spec.timeZone" in zone
