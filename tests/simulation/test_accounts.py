"""Accounts of a whole control plane in virtual time: every GPU-second once, whatever fails."""

import asyncio
import logging
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from faults import Faults, kill_and_start
from simworld import Thing, World, cluster, job, node, pod, priority

from fairway.api.quantities import time as seconds
from fairway.api.quantities import time_text
from fairway.api.usage import Day, Pool, shared_until, usage
from fairway.cli.usage import _csv as as_csv
from fairway.clock import VirtualClock, seeded
from fairway.embedded.store import Key
from fairway.kube import kinds
from fairway.kube.client import ApiError
from fairway.kube.kinds import Ref, Selection

START = 1_800_000_000.0  # 2027-01-15T08:00:00Z
SEEDS = 400 if os.environ.get("FAIRWAY_SOAK") else 6
BATCH = 2
MOST_LOOKS = 300
NAMES = "abcdefghijkl"
WORKLOADS = "workloads.fairway.dev"


def play(story: Callable[[World], Awaitable[Any]], *nodes: Thing, start: float = START) -> Any:
    """What the story answers, played on these nodes with controllers running."""
    clock = VirtualClock(start)

    async def run() -> Any:
        async with cluster(clock, seeded(1), *nodes) as world:
            world.start()
            return await story(world)

    return clock.run(run())


async def days(world: World) -> dict[str, Thing]:
    """The statuses of all UsageDays, by name."""
    found = await world.client.list(Selection(kinds.USAGE_DAYS))
    return {it["metadata"]["name"]: it.get("status", {}) for it in found}


def allocated(status: Thing) -> float:
    """GPU-seconds."""
    return sum(it.get("allocated", 0) for it in status.get("rows", ())) / 1000


def queue(name: str, **spec: Any) -> Thing:
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def test_a_job_is_charged_while_it_runs_and_when_it_has_ended() -> None:
    async def story(world: World) -> list[float]:
        await world.apply(job("a", seconds=1500, gpus=2))
        await world.clock.sleep(10)
        found = []
        for _ in range(4):
            await world.clock.sleep(600)
            found.append(allocated((await days(world)).get("2027-01-15.default", {})))
        return found

    first, second, third, last = play(story, node("n1", gpus=4))
    assert 0 < first < 1200 and round(second - first) == 1200
    assert third == last and 2998 < last < 3010


def test_memory_of_a_gpu_is_charged_as_its_part_even_when_the_nodes_of_its_pool_are_gone() -> None:
    async def story(world: World) -> tuple[Thing, float, float]:
        quarter = {"annotations": {"fairway.dev/gpu-memory": "20Gi"}, "labels": {"fairway.dev/queue": "nlp"}}
        await world.apply(queue("nlp", budget={"gpuHours": 100, "period": "30d"}))
        await world.apply(*(job(name, seconds=20000, cpu="1", **quarter) for name in ("a", "b")))
        await world.apply(pod("c", seconds=20000, cpu="1", **quarter))
        await world.until(lambda: world.is_in("job-b", "Running"))
        await world.until(lambda: world.is_in("pod-c", "Running"))
        await world.clock.sleep(3600)
        shown, before = (await world.queue("nlp"))["status"], allocated((await days(world))["2027-01-15.nlp"])
        await world.crash()
        await world.client.delete(Ref(kinds.NODES, "n1"))
        world.start()
        await world.until(lambda: world.is_in("job-b", "Pending"), seconds=600)
        await world.delete(kinds.JOBS, "a")
        await world.clock.sleep(1200)
        return shown, before, allocated((await days(world))["2027-01-15.nlp"])

    shown, before, after = play(story, node("n1", gpus=1, labels={"nvidia.com/gpu.memory": str(80 << 10)}))
    assert shown["usage"]["default"]["nvidia.com/gpu"] == "750m" and shown["budgetReserved"] == 0.75 * 24
    assert 0.75 * 3000 < before < 0.75 * 3610 and 0.75 * 3600 < after < 0.75 * 4200


def test_a_profile_of_a_mig_gpu_is_charged_as_its_slices() -> None:
    profile = "nvidia.com/mig-3g.40gb"

    async def story(world: World) -> float:
        it = job("a", seconds=700, cpu="1")
        it["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1", profile: "2"}}
        await world.apply(it)
        await world.until(lambda: world.is_in("job-a", "Succeeded"), seconds=900)
        await world.clock.sleep(600)
        return allocated((await days(world))["2027-01-15.default"])

    sliced = node("n1")
    sliced["status"]["allocatable"][profile] = "2"
    used = play(story, sliced)
    assert 0.857 * 700 <= round(used, 3) < 0.857 * 710  # six of seven, in thousandths of a GPU


def test_a_day_ends_at_midnight_in_utc() -> None:
    async def story(world: World) -> dict[str, Thing]:
        await world.apply(job("a", seconds=3600, gpus=1))
        await world.clock.sleep(4400)
        return await days(world)

    evening = START + 15.5 * 3600  # half past eleven
    found = play(story, node("n1", gpus=2), start=evening)
    assert 1795 < allocated(found["2027-01-15.default"]) < 1800
    assert 1800 < allocated(found["2027-01-16.default"]) < 1810
    capacity = found["2027-01-15"]["pools"]["default"]["capacity"] / 1000
    assert 2 * 1790 < capacity <= 2 * 1800


def test_a_workload_is_kept_until_it_is_charged_and_a_deletion_does_not_wait_long() -> None:
    async def story(world: World) -> tuple[float, float]:
        await world.apply(job("a", seconds=1000, gpus=2))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await world.clock.sleep(100)
        await world.delete(kinds.JOBS, "a")
        asked = world.clock.now()

        async def is_gone() -> bool:
            return not await world.client.list(Selection(kinds.WORKLOADS))

        await world.until(is_gone)
        return world.clock.now() - asked, allocated((await days(world))["2027-01-15.default"])

    took, charged = play(story, node("n1", gpus=4))
    assert took < 2.0 and 199 < charged < 205


def test_a_price_counts_from_when_it_is_set() -> None:
    async def story(world: World) -> Thing:
        pool = {"apiVersion": "fairway.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "p"}}
        await world.apply({**pool, "spec": {"costPerGpuHour": "2.50"}})
        await world.apply(job("a", seconds=7200, gpus=1))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await world.clock.sleep(3600)
        await world.client.patch(Ref(kinds.NODE_POOLS, "p"), {"spec": {"costPerGpuHour": "0"}})
        await world.clock.sleep(5400)
        return (await days(world))["2027-01-15.default"]["rows"][0]

    row = play(story, node("n1", gpus=1))
    assert 7200 <= row["allocated"] / 1000 < 7205
    assert 2.4e6 < row["cost"] < 2.6e6


FEBRUARY = START + (31 - 15 + 1) * 86_400 - 8 * 3600  # 2027-02-01T00:00:00Z
MONTH = {"apiVersion": "fairway.dev/v1alpha1", "kind": "UsageMonth", "metadata": {"name": "2027-01"}, "spec": {}}


async def january(world: World) -> str:
    """The CSV of a month."""
    found = await world.client.list(Selection(kinds.USAGE_DAYS, labels="fairway.dev/month=2027-01"), Day)
    return as_csv(usage(found, "queue"), "queue")


async def is_closed(world: World) -> bool:
    return bool((await world.client.get(Ref(kinds.USAGE_MONTHS, "2027-01"))).get("status", {}).get("closedAt"))


def test_a_month_is_closed_with_all_that_was_used_in_it_and_never_changes_again() -> None:
    async def story(world: World) -> tuple[str, str, Thing]:
        await world.apply(job("a", seconds=3000, gpus=2))
        await world.clock.sleep(900)
        await world.client.create(kinds.USAGE_MONTHS, MONTH)
        await world.until(lambda: is_closed(world), seconds=10)
        before = await january(world)
        await world.clock.sleep(3 * 86_400)
        return before, await january(world), await days(world)

    before, after, found = play(story, node("n1", gpus=2), start=FEBRUARY - 600)
    assert before == after and 1190 < float(before.splitlines()[1].split(",")[2]) < 1200
    assert found["2027-01-31.default"]["settled"] and "marks" not in found["2027-01-31.default"]
    assert 4800 < allocated(found["2027-02-01.default"]) < 4820


def test_what_ended_while_no_controller_led_is_charged_until_it_ended() -> None:
    async def story(world: World) -> dict[str, Thing]:
        await world.apply(job("a", seconds=300, gpus=2))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await world.crash()
        await world.clock.sleep(1000)
        world.start()
        await world.clock.sleep(30)  # less than until the next full ten minutes
        return await days(world)

    found = play(story, node("n1", gpus=2), start=FEBRUARY - 600)
    assert 590 < allocated(found["2027-01-31.default"]) < 610
    assert allocated(found.get("2027-02-01.default", {})) == 0


def test_what_is_charged_late_is_a_dated_row_of_the_next_month() -> None:
    async def story(world: World) -> tuple[str, str, Thing]:
        await world.apply(job("a", seconds=900, gpus=2))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await world.crash()
        await world.clock.sleep(1000)
        await world.client.create(kinds.USAGE_MONTHS, MONTH)
        said = {"status": {"closedAt": "2027-02-01T00:05:00Z"}}
        await world.client.patch(Ref(kinds.USAGE_MONTHS, "2027-01"), said, subresource="status")
        before = await january(world)
        world.start()
        await world.clock.sleep(1300)
        return before, await january(world), (await days(world))["2027-02-01.default"]

    before, after, february = play(story, node("n1", gpus=2), start=FEBRUARY - 600)
    assert before == after
    late, own = ({row.get("day"): row["allocated"] for row in february["rows"]}[day] for day in ("2027-01-31", None))
    assert 1_190_000 < late < 1_200_000 and 590_000 < own < 610_000


def test_capacity_is_all_accounted_for() -> None:
    async def story(world: World) -> list[Day]:
        await world.apply(queue("team"), job("a", seconds=3000, gpus=2), job("b", seconds=2000, gpus=3))
        await world.clock.sleep(2000)
        await world.client.patch(Ref(kinds.NODES, "n2"), {"spec": {"unschedulable": True}})
        await world.clock.sleep(2000)
        await world.crash()
        world.start()
        await world.clock.sleep(4000)
        return await world.client.list(Selection(kinds.USAGE_DAYS), Day)

    found = usage(play(story, node("n1", gpus=4), node("n2", gpus=4)), "pool")
    (pool,) = found.pools
    parts = pool.starting + pool.busy + pool.idle + pool.unknown + pool.reserved + pool.draining + pool.free
    assert parts == pool.capacity and abs(pool.capacity - 8 * 7800 * 1000) < 8 * 5000
    assert abs(found.total.allocated - 12_000_000) < 50_000
    assert abs(pool.draining - 4 * 5800 * 1000) < 3_100_000 and pool.others == 0 and pool.free > 0


@pytest.mark.parametrize("gap", [1000, 3 * 86_400])
def test_capacity_counts_through_a_crash_but_for_nodes_that_were_down(gap: int) -> None:
    async def story(world: World) -> list[Thing]:
        await world.clock.sleep(100)  # less than until the first full ten minutes
        await world.crash()
        went, back = world.clock.now() + 200, world.clock.now() + 500
        note = {"fairway.dev/went-down": f"{time_text(went)}/{time_text(back)}"}
        await world.client.patch(Ref(kinds.NODES, "n2"), {"metadata": {"annotations": note}})
        await world.clock.sleep(gap)
        world.start()
        await world.clock.sleep(30)
        return [one for name, one in (await days(world)).items() if "." not in name]

    found = play(story, node("n1", gpus=4), node("n2", gpus=4))
    capacity = sum(one["pools"]["default"]["capacity"] for one in found) / 1000
    assert abs(capacity - (8 * (100 + gap) - 4 * 300)) < 8 * 32


@dataclass(slots=True)
class Observer:
    """Adds up what workloads hold from what the server commits, in a way of its own: each attempt is a list of times
    and GPUs, from the pods of its admission, and ends once; none whose room was taken before any of its pods came."""

    world: World
    steps: dict[tuple[str, int], list[tuple[float, float]]] = field(default_factory=dict)
    ends: dict[tuple[str, int], float] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    async def run(self) -> None:
        store, position = self.world.server.registry.store, 0
        while not store.closed:
            for event in store.since(position, WORKLOADS):
                self._see(msgspec.json.decode(event.value))
            position = store.revision
            await store.changed(WORKLOADS)

    def _see(self, said: Thing) -> None:
        status, meta = said.get("status", {}), said["metadata"]
        if not status.get("attempt"):
            return
        key, when = (meta["uid"], status["attempt"]), _turned(status)
        self.names[meta["uid"]] = meta["name"]
        ends = when.get("Finished") or (meta.get("deletionTimestamp") and seconds(meta["deletionTimestamp"]))
        ends = ends or ("Admitted" not in when and when.get("Evicted"))
        if "Admitted" in when and not ends:
            steps = self.steps.setdefault(key, [(when["Admitted"], _gpus(said))])
            if steps[-1][1] != _gpus(said):
                steps.append((seconds(status["served"]["until"]), _gpus(said)))
        elif ends:
            self.ends.setdefault(key, ends)
            if status.get("reason") == "RoomTaken" and not status.get("served"):
                self.steps.pop(key, None)

    def totals(self) -> Counter[str]:
        """GPU-seconds by name."""
        found: Counter[str] = Counter()
        for key, steps in self.steps.items():
            stops = [*(at for at, _ in steps[1:]), self.ends[key]]
            for (start, gpus), stop in zip(steps, stops):
                found[self.names[key[0]]] += gpus * max(0.0, stop - start)  # type: ignore[assignment]
        return found


def _turned(status: Thing) -> dict[str, float]:
    true = [it for it in status.get("conditions", ()) if it["status"] == "True"]
    return {it["type"]: seconds(it["lastTransitionTime"]) for it in true}


def _gpus(said: Thing) -> float:
    pods = sum(on.get("count", 1) for it in said["status"]["admission"]["podSets"] for on in it.get("nodes", ()))
    requests = said["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]
    return pods * float(requests.get("nvidia.com/gpu", 0))


def _random_job(name: str, chance: random.Random) -> Thing:
    width, said = chance.choice((1, 1, 3)), dict[str, Any]()
    if width > 1:
        said = {"parallelism": width, "completions": width, "completionMode": "Indexed"}
        said["annotations"] = {"fairway.dev/min-count": "1"}
    if chance.random() < 0.4:
        said["pod"] = {"priorityClassName": "high"}
    gpus = 1 if width > 1 else chance.choice((1, 2, 4))
    return job(name, seconds=chance.choice((5, 300, 900)), cpu="1", gpus=gpus, **said)


async def _is_charged(world: World) -> bool:
    return not any(it["metadata"].get("finalizers") for it in await world.client.list(Selection(kinds.WORKLOADS)))


def _is_crashing(seed: int, clock: VirtualClock) -> Coroutine[Any, Any, tuple[Counter[str], Counter[str]]]:
    """GPU-seconds by name of a story with faults, crashes, evictions and deletions: as charged, and as observed."""

    async def story() -> tuple[Counter[str], Counter[str]]:
        chance = random.Random(seed)
        async with cluster(clock, seeded(seed), node("n1", cpu=16, gpus=4), node("n2", cpu=16, gpus=4)) as world:
            await world.apply(priority("low", 0, is_default=True), priority("high", 1000))
            fatal = frozenset(chance.sample(range(3, 200), 5))
            quiet = clock.now() + 2000
            faults = Faults(world.server.handle, clock, random.Random(seed + 1), quiet_at=quiet, fatal=fatal)
            observer = Observer(world)
            async with asyncio.TaskGroup() as tasks:
                others = [tasks.create_task(it) for it in (observer.run(), kill_and_start(world, faults))]
                for name in NAMES:
                    await world.apply(_random_job(name, chance))
                    await clock.sleep(chance.choice((0, 1, 60, 300)))
                    if chance.random() < 0.2:
                        await world.delete(kinds.JOBS, chance.choice(NAMES))
                await clock.sleep(2000)
                for _ in range(MOST_LOOKS):
                    if await _is_charged(world):
                        break
                    await clock.sleep(60)
                assert await _is_charged(world)
                for task in (*others, *faults.late):
                    task.cancel()
            charged: Counter[str] = Counter()
            for status in (await days(world)).values():
                for row in status.get("rows", ()):
                    charged[row["name"]] += row["allocated"] / 1000
            return charged, observer.totals()

    return story()


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_accounts_equal_what_was_held_to_the_second_whatever_crashes(first: int) -> None:
    for seed in range(first, first + BATCH):
        clock = VirtualClock(START + (seed % 2) * 15.8 * 3600)  # every other story crosses midnight
        charged, held = clock.run(_is_crashing(seed, clock))
        wrong = {name: (charged[name], held[name]) for name in held if abs(charged[name] - held[name]) > 0.05}
        assert not wrong, f"seed {seed}: {wrong}"
        assert sum(held.values()) > 0, f"seed {seed}"


def test_a_queue_tells_what_of_its_budget_is_spent_and_reserved() -> None:
    async def story(world: World) -> tuple[Thing, Thing]:
        await world.apply(queue("team", budget={"gpuHours": "10", "period": "30d"}))
        limit = {"fairway.dev/time-limit": "2h"}
        await world.apply(job("a", seconds=1800, gpus=2, labels={"fairway.dev/queue": "team"}, annotations=limit))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await world.clock.sleep(120)
        before = (await world.queue("team"))["status"]
        await world.until(lambda: world.is_in("job-a", "Succeeded"), seconds=1900)
        await world.clock.sleep(120)
        return before, (await world.queue("team"))["status"]

    before, after = play(story, node("n1", gpus=2))
    assert before["budgetReserved"] == 4 and not before.get("budgetSpent", {}).get("gpuHours")
    assert not after["budgetReserved"] and 1 <= after["budgetSpent"]["gpuHours"] < 1.01


def test_what_runs_reserves_no_more_than_its_queues_budget_has_left() -> None:
    async def story(world: World) -> tuple[str, Thing]:
        await world.apply(queue("team", budget={"gpuHours": "10", "period": "30d"}))
        said = {"labels": {"fairway.dev/queue": "team"}, "annotations": {"fairway.dev/time-limit": "1h"}}
        await world.apply(job("a", seconds=9000, gpus=2, **said), pod("a", seconds=9000, gpus=1, **said))
        await world.until(lambda: world.is_in("pod-a", "Running"))
        await world.clock.sleep(60)
        with pytest.raises(ApiError) as refused:
            await world.annotate("a", time_limit="6h")
        await world.annotate("a", time_limit="4h")
        await world.clock.sleep(60)
        with pytest.raises(ApiError):
            notes = {"fairway.dev/time-limit": "3h"}
            await world.client.patch(Ref(kinds.PODS, "a", "default"), {"metadata": {"annotations": notes}})
        return str(refused.value), (await world.queue("team"))["status"]

    said, status = play(story, node("n1", gpus=3))
    assert "found '6h'; at most 4h30m is allowed while it runs: queue team has 7 of 10 GPU hours" in said
    assert status["budgetReserved"] == 9


def test_controllers_that_stop_note_what_pools_had_until_then() -> None:
    async def story(world: World) -> tuple[Thing, Thing]:
        await world.clock.sleep(250)
        await world.crash()
        first = (await days(world))["2027-01-15"]
        world.start()
        await world.clock.sleep(100)
        await world.crash()
        return first, (await days(world))["2027-01-15"]

    for status, ran in zip(play(story, node("n1", gpus=2)), (250, 350)):
        assert ran - 5 <= status["pools"]["default"]["capacity"] / 2_000 <= ran


def test_what_a_node_does_not_tell_is_unknown_and_never_idle() -> None:
    async def story(world: World) -> dict[str, Thing]:
        told = {"metadata": {"annotations": {"fairway.dev/gpu-use": "0=busy,1=idle"}}}
        await world.client.patch(Ref(kinds.NODES, "n1"), told)
        await world.apply(*(job(name, seconds=900, cpu="1", gpus=1) for name in "xyz"))
        await world.clock.sleep(1300)
        return {row["name"]: row for row in (await days(world))["2027-01-15.default"]["rows"]}

    rows = play(story, node("n1", gpus=3))
    parts = sorted((row.get("busy", 0) > 800_000, row.get("idle", 0) > 800_000) for row in rows.values())
    assert parts == [(False, False), (False, True), (True, False)]
    for row in rows.values():
        seen = [row.get(kind, 0) for kind in ("starting", "busy", "idle")]
        assert sum(seen) <= row["allocated"] and min(seen[1:]) == 0


@pytest.mark.parametrize("end", ["over", "over and forgotten", "suspended"])
def test_a_budget_counts_what_stopped_before_its_queue_is_charged(end: str) -> None:
    async def story(world: World) -> tuple[Thing, Thing]:
        await world.apply(queue("team", budget={"gpuHours": "1.5", "period": "30d"}))
        said = {"labels": {"fairway.dev/queue": "team"}, "annotations": {"fairway.dev/time-limit": "1h"}}
        await world.apply(job("a", seconds=3000, gpus=1, **said))
        await world.until(lambda: world.is_in("job-a", "Running"))
        await world.apply(job("b", seconds=3000, gpus=1, **said))
        await world.clock.sleep(2900)
        if end == "suspended":
            await world.annotate("a", active="false")
        phase = "Suspended" if end == "suspended" else "Succeeded"
        await world.until(lambda: world.is_in("job-a", phase), seconds=200)
        if end == "over and forgotten":
            await world.crash()
            world.start()
        await world.clock.sleep(60)
        own = await world.client.get(Ref(kinds.QUEUES, "team"))
        return dict((await world.workload("job-b"))["status"]), own["status"]

    said, own = play(story, node("n1", gpus=2))
    counted = own["budgetReserved"] + own.get("budgetSpent", {}).get("gpuHours", 0.0)
    assert said["reason"] == "BudgetSpent" and 0.79 < counted < 0.9
    assert said["message"].endswith("counted in it, and not charged yet: a") == (end == "suspended")


def test_a_budget_is_charged_what_was_used_in_its_queue_though_it_moved_and_ended_elsewhere() -> None:
    async def story(world: World) -> tuple[list[float], list[Thing]]:
        budget = {"gpuHours": "10", "period": "30d"}
        await world.apply(queue("top", budget=budget), queue("b", budget=budget))
        await world.apply(queue("a", parent="top", budget=budget))
        limit = {"fairway.dev/time-limit": "1h"}
        await world.apply(job("x", seconds=1800, gpus=1, labels={"fairway.dev/queue": "a"}, annotations=limit))
        await world.until(lambda: world.is_in("job-x", "Running"))
        await world.clock.sleep(1200)
        await world.annotate("x", active="false")
        await world.until(lambda: world.is_in("job-x", "Suspended"), seconds=200)
        told = {"metadata": {"labels": {"fairway.dev/queue": "b"}}}
        await world.client.patch(Ref(kinds.JOBS, "x", "default"), told)
        await world.clock.sleep(60)
        reserved = [(await world.queue(name))["status"]["budgetReserved"] for name in ("top", "a", "b")]
        await world.annotate("x", active=None)
        await world.until(lambda: world.is_in("job-x", "Succeeded"), seconds=3000)
        await world.clock.sleep(120)
        return reserved, [(await world.queue(name))["status"] for name in ("top", "a", "b")]

    reserved, said = play(story, node("n1", gpus=1))
    top, a, b = (one["budgetSpent"]["gpuHours"] for one in said)
    assert 1200 <= round(top * 3600) == round(a * 3600) < 1300 and 1800 <= round(b * 3600) < 1900
    assert reserved == [round(top, 3), round(a, 3), 0] and not any(one["budgetReserved"] for one in said)
    assert [bool(one.get("decayedUsage")) for one in said] == [False, False, True]


def test_what_cannot_be_read_and_is_not_charged_stops_no_decision(faults: list[logging.LogRecord]) -> None:
    async def story(world: World) -> Thing:
        await world.apply(queue("team", budget={"gpuHours": "5", "period": "30d"}))
        said = {"labels": {"fairway.dev/queue": "team"}, "annotations": {"fairway.dev/time-limit": "1h"}}
        await world.apply(job("a", seconds=3000, gpus=1, **said))
        await world.until(lambda: world.is_in("job-a", "Running"))
        kept = await world.workload("job-a")
        kept["spec"]["podSets"][0]["minCount"] = 2  # as no version of today lets it be written
        world.server.registry.store.put(Key("workloads.fairway.dev", "default", "job-a"), kept)
        await world.apply(job("b", seconds=3000, gpus=1, **said))
        await world.until(lambda: world.is_in("job-b", "Running"))
        return dict((await world.workload("job-a"))["spec"])

    assert play(story, node("n1", gpus=2))["podSets"][0]["minCount"] == 2
    assert {it.getMessage() for it in faults} == {"default/job-a: a fault of Fairway's own"}
    faults.clear()


def test_capacity_is_all_accounted_for_at_every_moment_between_marks_too() -> None:
    """What was deleted is charged at once, and what runs to the last mark: neither is taken from what is free."""

    async def story(world: World) -> list[tuple[str, Pool]]:
        await world.apply(job("long", seconds=6000, gpus=2))
        found = []
        for at in range(40):
            await world.apply(job(f"short-{at}", seconds=30 + 20 * at, gpus=1))
            await world.clock.sleep(77)
            if at % 3 == 0:
                await world.delete(kinds.JOBS, f"short-{at // 2}")
            looked = await world.client.list(Selection(kinds.USAGE_DAYS), Day)
            found += [(shared_until(looked), *usage(looked, "pool").pools)]
        return found

    looks = play(story, node("n1", gpus=3), start=START + 15.8 * 3600)  # from 12 minutes before midnight on
    assert len({until for until, _ in looks}) > 4
    held_by_shorts = [pool.busy + pool.idle + pool.unknown + pool.starting for _, pool in looks]
    assert len(set(held_by_shorts)) > len({until for until, _ in looks}) + 3  # some were charged between marks
    free = dict.fromkeys((until, pool.free) for until, pool in looks)
    assert len(free) == len({until for until, _ in looks})
    steps = [after - before for (_, before), (_, after) in pairwise(free)][1:]
    slack = 5_000  # what pools have is counted in whole seconds
    assert all(-slack <= step <= 600_000 + slack for step in steps), steps  # one GPU is free, but for the short ones
    for _, pool in looks:
        parts = pool.starting + pool.busy + pool.idle + pool.unknown + pool.reserved + pool.draining + pool.free
        assert parts == pool.capacity
