"""Bare pods that are their own Workload: what their life costs, and when they get an object after all."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from simworld import Thing, World, cluster, names, node, pod, priority

from fairway.clock import VirtualClock, seeded
from fairway.kube import kinds
from fairway.kube.client import ApiError
from fairway.kube.kinds import Selection
from fairway.kube.transport import Request, Response

START = 1_800_000_000.0
LABEL = {"fairway.dev/queue": "default"}


class Counted:
    """The way to the server; what was written about pods and workloads, in turn."""

    def __init__(self, world: World) -> None:
        self.world, self.writes = world, list[str]()

    async def __call__(self, request: Request) -> Response:
        kind = next((it for it in ("/pods/", "/workloads", "/events") if it in request.path), "")
        if kind and ("watch", "true") not in request.query and not (request.method == "GET" and kind != "/pods/"):
            self.writes.append(f"{request.method} {request.path.partition('/namespaces/default')[2]}")
        return await self.world.server.handle(request)


def play(story: Callable[[World, Counted], Awaitable[Any]], *nodes: Thing) -> Any:
    clock = VirtualClock(START)

    async def run() -> Any:
        async with cluster(clock, seeded(1), *nodes) as world:
            world.start(way := Counted(world))
            return await story(world, way)

    return clock.run(run())


def alone(name: str, **said: Any) -> Thing:
    """A labelled pod that names Fairway as its scheduler and so waits at no gate."""
    made = pod(name, labels=LABEL, **said)
    made["spec"]["schedulerName"] = "fairway"
    return made


async def workloads(world: World) -> list[str]:
    return names(await world.client.list(Selection(kinds.WORKLOADS)))


async def the(world: World, name: str) -> Thing:
    return next(it for it in await world.pods() if it["metadata"]["name"] == name)


async def is_charged(world: World) -> bool:
    return bool((await world.queue()).get("status", {}).get("decayedUsage"))


async def is_accounted(world: World) -> bool:
    days = await world.client.list(Selection(kinds.USAGE_DAYS))
    return any(it.get("status", {}).get("rows") for it in days if it["spec"].get("queue") == "default")


def test_a_pod_that_fits_is_bound_and_charged_and_no_more_is_written() -> None:
    async def story(world: World, way: Counted) -> tuple[list[str], list[str], float]:
        await world.apply(alone("a", seconds=20, gpus=2))
        await world.until(lambda: world.is_in("pod-a", "Succeeded"), seconds=30)
        await world.until(lambda: is_charged(world), seconds=90)
        await world.clock.sleep(610)  # accounts are written every ten minutes
        used = (await world.queue())["status"]["decayedUsage"]["default"]["nvidia.com/gpu"]["value"]
        return way.writes, await workloads(world), used

    writes, made, used = play(story, node("n1", gpus=4))
    assert writes == ["PATCH /pods/a", "POST /pods/a/binding", "PATCH /pods/a"]  # out of its gate, bound, charged
    assert made == [] and 38 < used < 45


def test_a_pod_that_waits_has_a_workload_that_says_why() -> None:
    async def story(world: World, way: Counted) -> tuple[str, list[str]]:
        await world.apply(alone("a", seconds=20), alone("b", seconds=20))
        await world.until(lambda: world.says_reason("pod-b", "NoRoom"))
        made = await workloads(world)
        await world.until(lambda: world.is_in("pod-b", "Succeeded"))
        return await world.phase("pod-a"), made

    assert play(story, node("n1", cpu=2)) == ("Succeeded", ["pod-b"])


def test_a_pod_that_is_evicted_comes_again_and_its_workload_says_so() -> None:
    async def story(world: World, way: Counted) -> tuple[Thing, str]:
        await world.apply(priority("high", 1000))
        await world.apply(alone("a", seconds=60))
        await world.until(lambda: world.is_in("pod-a", "Running"))
        first = (await the(world, "a"))["metadata"]["uid"]
        urgent = alone("u", seconds=20)
        urgent["spec"]["priorityClassName"] = "high"
        await world.apply(urgent)
        await world.until(lambda: world.is_in("pod-u", "Running"))
        workload = await world.workload("pod-a")
        await world.until(lambda: world.is_in("pod-a", "Running"))
        assert (await the(world, "a"))["metadata"]["uid"] != first
        return workload, (await the(world, "a"))["spec"]["nodeName"]

    workload, place = play(story, node("n1", cpu=2))
    assert [it["reason"] for it in workload["status"]["evictionHistory"]] == ["Preempted"]
    assert workload["status"]["attempt"] == 1 and place == "n1"


def test_a_pod_runs_on_when_its_controllers_are_killed_and_is_charged_once() -> None:
    async def story(world: World, way: Counted) -> tuple[str, str, list[str], float]:
        await world.apply(alone("a", seconds=100, gpus=1))
        await world.until(lambda: world.is_in("pod-a", "Running"))
        first = (await the(world, "a"))["metadata"]["uid"]
        for _ in range(3):
            await world.crash()
            await world.clock.sleep(20)
            world.start(way)
            await world.clock.sleep(20)
        await world.until(lambda: is_charged(world), seconds=200)
        for _ in range(2):
            await world.crash()
            world.start(way)
            await world.clock.sleep(90)
        used = (await world.queue())["status"]["decayedUsage"]["default"]["nvidia.com/gpu"]["value"]
        return first, (await the(world, "a"))["metadata"]["uid"], await workloads(world), used

    first, last, made, used = play(story, node("n1", gpus=1))
    assert first == last and made == [] and 98 < used < 104


def test_a_pod_that_gets_a_workload_after_it_was_charged_for_a_while_is_charged_each_second_once() -> None:
    async def story(world: World, way: Counted) -> float:
        await world.apply(alone("a", seconds=5000, gpus=1))
        await world.until(lambda: is_accounted(world), seconds=700)  # every ten minutes, while it runs
        note = {"metadata": {"annotations": {"fairway.dev/active": "false"}}}
        await world.client.patch(kinds.Ref(kinds.PODS, "a", "default"), note)
        await world.until(lambda: world.is_in("pod-a", "Suspended"))
        await world.clock.sleep(700)  # in virtual time, past the next charge
        days = await world.client.list(Selection(kinds.USAGE_DAYS))
        rows = (row for it in days for row in it.get("status", {}).get("rows", ()))
        return sum(row.get("allocated", 0) for row in rows) / 1000

    assert 590 < play(story, node("n1", gpus=1)) < 720


@pytest.mark.parametrize("grace", [0, None])
def test_a_pod_that_its_user_deletes_is_charged_what_it_held(grace: int | None) -> None:
    async def story(world: World, way: Counted) -> tuple[list[str], list[str], float]:
        await world.apply(alone("a", seconds=1000, gpus=1))
        await world.until(lambda: world.is_in("pod-a", "Running"))
        await world.clock.sleep(50)
        await world.client.delete(kinds.Ref(kinds.PODS, "a", "default"), grace=grace)
        await world.until(lambda: is_charged(world), seconds=10)
        await world.until(lambda: is_accounted(world), seconds=10)
        used = (await world.queue())["status"]["decayedUsage"]["default"]["nvidia.com/gpu"]["value"]
        return names(await world.pods()), await workloads(world), used

    there, made, used = play(story, node("n1", gpus=1))
    assert (there, made) == ([], []) and 49 < used < 54


def test_a_running_pod_that_is_suspended_has_a_workload_and_comes_again_when_it_is_resumed() -> None:
    async def story(world: World, way: Counted) -> bool:
        await world.apply(alone("a", seconds=40))
        await world.until(lambda: world.is_in("pod-a", "Running"))
        note = {"metadata": {"annotations": {"fairway.dev/active": "false"}}}
        await world.client.patch(kinds.Ref(kinds.PODS, "a", "default"), note)
        await world.until(lambda: world.is_in("pod-a", "Suspended"))
        await world.until(lambda: _is_waiting(world, "a"))
        await world.client.patch(
            kinds.Ref(kinds.PODS, "a", "default"), {"metadata": {"annotations": {"fairway.dev/active": "true"}}})
        return bool(await world.until(lambda: world.is_in("pod-a", "Succeeded")))

    assert play(story, node("n1"))


async def _is_waiting(world: World, name: str) -> bool:
    return any(it["metadata"]["name"] == name and not it["spec"].get("nodeName") for it in await world.pods())


def test_a_pod_whose_node_is_lost_comes_again_elsewhere() -> None:
    async def story(world: World, way: Counted) -> str:
        await world.apply(alone("a", seconds=100))
        await world.until(lambda: world.is_in("pod-a", "Running"))
        place = (await the(world, "a"))["spec"]["nodeName"]
        await world.fail(node(place), is_gone=False)
        other = {"n1": "n2", "n2": "n1"}[place]
        await world.until(lambda: _is_on(world, "a", other), seconds=200)
        return str((await world.workload("pod-a"))["status"]["evictionHistory"][0]["reason"])

    assert play(story, node("n1"), node("n2")) == "NodeLost"


async def _is_on(world: World, name: str, place: str) -> bool:
    return any(it["metadata"]["name"] == name and it["spec"].get("nodeName") == place for it in await world.pods())


def test_a_binding_whose_answer_is_lost_is_found_to_be_there() -> None:
    async def story(world: World, way: Counted) -> list[str]:
        await world.crash()
        lost = list[str]()

        async def loses(request: Request) -> Response:
            answer = await way(request)
            if request.path.endswith("/binding") and not lost:
                lost.append(request.path)
                raise ConnectionError("the answer is lost")
            return answer

        world.start(loses)
        await world.apply(alone("a", seconds=20))
        await world.until(lambda: world.is_in("pod-a", "Succeeded"))
        return [one for one in way.writes if one.endswith("/binding")]

    assert play(story, node("n1")) == ["POST /pods/a/binding"]


def test_a_pod_that_another_scheduler_bound_meanwhile_has_a_workload_that_runs_there() -> None:
    async def story(world: World, way: Counted) -> str:
        await world.crash()
        taken = list[str]()

        async def overtaken(request: Request) -> Response:
            if request.path.endswith("/binding") and not taken:
                taken.append(request.path)
                uid = (await the(world, "a"))["metadata"]["uid"]
                await world.client.bind(kinds.Ref(kinds.PODS, "a", "default"), "n2", uid=uid)
            return await way(request)

        world.start(overtaken)
        await world.apply(alone("a", seconds=20), )
        await world.until(lambda: world.is_in("pod-a", "Running"))
        workload = await world.workload("pod-a")
        return str(workload["status"]["admission"]["podSets"][0]["nodes"][0]["node"])

    assert play(story, node("n1", cpu=4), node("n2", cpu=8)) == "n2"


def test_what_is_not_there_is_no_workload() -> None:
    async def story(world: World, way: Counted) -> int:
        with pytest.raises(ApiError) as refused:
            await world.workload("pod-a")
        return refused.value.status

    assert play(story, node("n1")) == 404
