"""Stories of preemption, run by the whole control plane under virtual time."""

from typing import Any

from simworld import Thing, World, cluster, job, node, priority

from fairway.clock import VirtualClock, seeded

PRECIOUS = {"nodeSelector": {"node-type": "my-precious"}}
LABELS = {"node-type": "my-precious"}


async def running(world: World) -> list[str]:
    """Jobs that have a pod that runs, and is not being taken away."""
    pods = [it for it in await world.pods() if it["status"].get("phase") == "Running"]
    return sorted(it["metadata"]["labels"]["job-name"] for it in pods if "deletionTimestamp" not in it["metadata"])


async def runs(world: World, name: str) -> bool:
    return name in await running(world)


async def is_complete(world: World, *names: str) -> bool:
    for name in names:
        conditions = (await world.job(name))["status"].get("conditions") or ()
        if not any(it["type"] == "Complete" and it["status"] == "True" for it in conditions):
            return False
    return True


def low(name: str) -> Thing:
    return job(name, seconds=100, cpu="2", pod=PRECIOUS)


def test_an_urgent_job_preempts_and_the_preempted_one_keeps_its_place() -> None:
    clock = VirtualClock(1_800_000_000.0)

    async def story() -> list[tuple[float, str]]:
        log: list[tuple[float, str]] = []
        async with cluster(clock, seeded(1), node("n1", cpu=2, labels=LABELS)) as world:
            world.start()
            await world.apply(priority("low-priority", 0, is_default=True), priority("high-priority", 1_000_000))
            names = ["train-z", "train-a", "train-m"]
            await world.apply(*(low(name) for name in names))
            await world.until(lambda: runs(world, "train-z"))
            assert await running(world) == ["train-z"]
            await clock.sleep(30)
            await world.apply(job("urgent", seconds=20, pod=PRECIOUS | {"priorityClassName": "high-priority"}))
            asked = clock.now()
            await world.until(lambda: is_pending(world, "job-train-z"), seconds=1)
            await world.until(lambda: runs(world, "urgent"), seconds=5)
            log.append((clock.now() - asked, "urgent"))
            last = "urgent"
            while not await is_complete(world, *names, "urgent"):
                await clock.sleep(0.5)
                now = await running(world)
                assert len(now) <= 1
                if now and now[0] != last:
                    log.append((clock.now() - asked, last := now[0]))
            workload = await world.workload("job-train-z")
            said = workload["status"]["evictionHistory"]
            assert [(it["reason"], it["by"], it["for"]) for it in said] == [
                ("Preempted", "default", "default/job-urgent")
            ]
            assert workload["status"]["attempt"] == 2
        return log

    log = clock.run(story())
    assert [name for _, name in log] == ["urgent", "train-z", "train-a", "train-m"]


async def is_pending(world: World, name: str) -> bool:
    status: dict[str, Any] = (await world.workload(name))["status"]
    return bool(status["phase"] == "Pending")
