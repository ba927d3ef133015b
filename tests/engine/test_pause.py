"""Pausing as the engine sees it: a victim that costs nothing, memory that stays held, a start in the same place."""

from dataclasses import replace

from builders import GIB, job, judged, node, plan_of, pod, queue, runs, verdicts

from fairway.engine.model import (
    MEMORY,
    Admission,
    Amounts,
    Pause,
    Pod,
    PodSet,
    Quota,
    Running,
    Share,
    Workload,
    amounts,
)
from fairway.engine.plan import Admit, Cause, Evict, Wait
from fairway.engine.resources import frozen, thawed

PAUSES = queue("q", pauses=True)
AT_MOST_400 = Quota("*", limit=((MEMORY, Share(400 * GIB)),))


def trainer(name: str, memory: int, *, attaches: Amounts = (), **fields: object) -> Workload:
    """A pod of one GPU and so many GiB."""
    of_pod = replace(pod(1, attaches=attaches), requests=tuple(sorted((*pod(1).requests, (MEMORY, memory * GIB)))))
    return job(name, podsets=(PodSet("main", 1, 1, of_pod),), **fields)


def able(name: str = "n1", **fields: object) -> object:
    return node(name, 1, can_pause=True, **fields)


def evicted(*things: object) -> Evict:
    found = verdicts(plan_of(*things))["old"]
    assert isinstance(found, Evict)
    return found


def test_a_victim_is_paused_where_its_queue_says_so_and_its_node_can() -> None:
    old, new = runs(trainer("old", 100), "n1", devices=((0,),), since=0.0), trainer("new", 100, priority=1)
    assert evicted(able(), PAUSES, old, new).pauses
    assert not evicted(able(), queue("q"), old, new).pauses
    assert not evicted(node("n1", 1), PAUSES, old, new).pauses


def test_a_victim_is_stopped_where_the_taker_needs_its_memory() -> None:
    old = runs(trainer("old", 300), "n1", devices=((0,),), since=0.0)
    assert evicted(able(), PAUSES, old, trainer("new", 212, priority=1)).pauses
    assert not evicted(able(), PAUSES, old, trainer("new", 213, priority=1)).pauses


def test_what_can_be_paused_is_the_cheapest_victim_whatever_it_would_lose() -> None:
    old = runs(trainer("old", 1), "n1", devices=((0,),), since=0.0)
    saves = runs(trainer("saves", 1, checkpoint_interval=60.0), "n2", devices=((0,),), since=0.0)
    told = judged(able(), node("n2", 1), PAUSES, old, saves, trainer("new", 1, priority=1))
    assert told["saves"] == "Keep" or told["old"].startswith("Preempted")
    assert told["old"] == "Preempted for new"


def test_a_gang_on_two_nodes_is_stopped() -> None:
    gang = runs(job("old", gpus=1, count=2), ("n1", 1), ("n2", 1), devices=((0,), (0,)), since=0.0)
    new = job("new", gpus=1, count=2, priority=1)
    assert not evicted(able("n1"), able("n2"), PAUSES, gang, new).pauses


def test_what_its_user_pauses_is_paused_whatever_its_queue_says() -> None:
    old = runs(trainer("old", 1, is_active=False, pauses=True), "n1", devices=((0,),), since=0.0)
    assert evicted(able(), queue("q"), old) == Evict("ns/old", Cause.SUSPENDED, pauses=True)
    assert not evicted(node("n1", 1), queue("q"), old).pauses


def paused(name: str, memory: int, where: str = "n1", device: int = 0, **fields: object) -> tuple[Workload, Pod]:
    """A paused workload as it waits, and what its pod holds meanwhile."""
    one = trainer(name, memory, **fields)
    there = runs(one, where, devices=((device,),)).admission
    held = Pod(f"ns/{name}-0", where, frozen(one.podsets)[0].pod, pause=Pause(one.key, "q", 0.0))
    return replace(one, podsets=thawed(one.podsets), paused=there), held


def test_a_paused_workload_starts_where_it_was_with_the_same_devices_in_the_memory_it_holds() -> None:
    one, held = paused("a", 300, device=1)
    plan = plan_of(node("n1", 2, can_pause=True), node("n0", 2), PAUSES, one, held)
    assert plan.verdicts == (Admit("ns/a", one.paused or Admission("", ())),)


def test_a_paused_workload_holds_its_volumes_and_resumes_with_them() -> None:
    name = "attachable-volumes-csi-disks"
    only, volume = able(), ((name, 1),)
    only = replace(only, capacity=amounts(dict(only.capacity) | {name: 1}))
    one, held = paused("a", 300, attaches=volume)
    assert judged(only, PAUSES, held, trainer("b", 1, attaches=volume))["b"] == "NoRoom"
    assert judged(only, PAUSES, held, one)["a"] == "n1"


def test_a_paused_workload_waits_for_its_own_device_though_another_is_free() -> None:
    one, held = paused("a", 1, device=1)
    other = runs(trainer("other", 1), "n1", devices=((1,),), since=0.0)
    beside = runs(trainer("beside", 1), "n1", devices=((2,),), since=0.0)
    things = node("n1", 4, can_pause=True), node("n2", 2), PAUSES, one, held, other, beside
    wait = verdicts(plan_of(*things))["a"]
    assert isinstance(wait, Wait)
    assert (wait.reason, wait.facts.blocking, wait.facts.detail) == ("NoRoom", ("ns/other",), "GPU 1")


def test_two_paused_workloads_alike_go_on_each_in_its_own_place() -> None:
    (a, held_a), (b, held_b) = paused("a", 1, device=1), paused("b", 1, device=0)
    found = verdicts(plan_of(node("n1", 2, can_pause=True), PAUSES, a, b, held_a, held_b))
    assert [found[name].admission for name in "ab"] == [a.paused, b.paused]  # type: ignore[union-attr]


def test_a_paused_workload_takes_its_place_back_from_a_lower_priority() -> None:
    one, held = paused("a", 1, priority=5)
    low = runs(trainer("low", 1), "n1", devices=((0,),), since=0.0)
    assert judged(able(), PAUSES, one, held, low) == {"a": "n1 after low", "low": "Preempted for a"}


def test_the_memory_of_one_that_is_leaving_by_a_pause_is_not_given_away() -> None:
    old = Running(trainer("old", 300), runs(trainer("old", 300), "n1", devices=((0,),)).admission,
                  is_leaving=True, is_pausing=True)  # fmt: skip
    assert judged(able(), PAUSES, old, trainer("new", 212))["new"] == "n1 after old"
    assert judged(able(), PAUSES, old, trainer("new", 213))["new"] == "NoRoom"


def test_a_victim_goes_to_disk_where_its_memory_is_needed_and_its_node_can() -> None:
    old, saves = runs(trainer("old", 300), "n1", devices=((0,),), since=0.0), able(can_save=True)
    in_memory, on_disk = (evicted(saves, PAUSES, old, trainer("new", size, priority=1)) for size in (212, 213))
    assert (in_memory.pauses, in_memory.saves) == (True, False)
    assert (on_disk.pauses, on_disk.saves) == (True, True)


def test_the_memory_of_one_that_is_leaving_for_disk_is_given_away() -> None:
    old = Running(trainer("old", 300), runs(trainer("old", 300), "n1", devices=((0,),)).admission,
                  is_leaving=True, is_pausing=True, is_saving=True)  # fmt: skip
    assert judged(able(can_save=True), PAUSES, old, trainer("new", 500))["new"] == "n1 after old"


def test_what_is_on_disk_needs_its_memory_to_resume_and_says_so() -> None:
    one, _ = paused("a", 300)
    saved = replace(one, podsets=thawed(trainer("a", 300).podsets, on_disk=True), on_disk=True)
    other = runs(trainer("other", 300), "n1", devices=((1,),), since=0.0)
    small = runs(job("small", gpus=1), "n1", devices=((2,),), since=0.0)
    wait = verdicts(plan_of(node("n1", 4, can_pause=True, can_save=True), PAUSES, saved, other, small))["a"]
    assert isinstance(wait, Wait) and wait.facts.blocking == ("ns/other",)
    assert (wait.reason, wait.facts.resource, wait.facts.missing) == ("NoRoom", MEMORY, 88 * GIB)


def test_the_memory_of_a_paused_workload_counts_in_its_queue() -> None:
    bounded = queue("q", quotas=(AT_MOST_400,), pauses=True)
    _, held = paused("a", 300)
    things = node("n1", 2, can_pause=True), bounded, held
    assert judged(*things, trainer("b", 100))["b"] == "n1"
    assert judged(*things, trainer("b", 101))["b"] == "OverLimit"


def test_a_victim_whose_memory_would_break_a_limit_of_its_queue_is_stopped() -> None:
    old = runs(trainer("old", 300), "n1", devices=((0,),), since=0.0)
    bounded = queue("q", quotas=(AT_MOST_400,), pauses=True)
    assert evicted(able(), bounded, old, trainer("new", 100, priority=1)).pauses
    assert not evicted(able(), bounded, old, trainer("new", 101, priority=1)).pauses
