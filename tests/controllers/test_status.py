"""The statuses of a workload's life."""

from msgspec.structs import replace

from fairway.api.decode import change
from fairway.api.types import Forecast, PausedStatus, WorkloadObject, WorkloadSpec, WorkloadStatus
from fairway.api.workloads import admission_status
from fairway.controllers import status as life
from fairway.controllers.status import Said, holds, since
from fairway.controllers.workloads import cancelled
from fairway.engine import Admission, Eviction, NodeShare, PodSetPlacement

HERE = Admission("p", (PodSetPlacement("main", (NodeShare("n1", 2, ((0,), (1,))),)),))
THERE = Admission("p", (PodSetPlacement("main", (NodeShare("n2", 2),)),))
ADMITTED = Said("Admitted", "starts")


def evicted(status: WorkloadStatus, now: float, reason: str = "Preempted") -> WorkloadStatus:
    status = life.served(status, now=now, held={"nvidia.com/gpu": 2000})
    return life.evict(status, Eviction(now, reason, "q", "ns/b"), Said(reason))


def test_an_admission_is_an_attempt_and_says_since_when() -> None:
    status = life.admit(WorkloadStatus(), HERE, ADMITTED, now=100.0)
    assert (status.phase, status.attempt, since(status, "Admitted")) == ("Admitted", 1, 100.0)


def test_the_event_of_what_is_cancelled_while_it_runs_says_since_when_it_ran() -> None:
    spec, runs = WorkloadSpec("q"), life.admit(WorkloadStatus(), HERE, ADMITTED, now=100.0)
    told = {status.phase: dict(cancelled(WorkloadObject(spec=spec, status=status))[0].notes)["fairway.dev/ran-from"]
            for status in (WorkloadStatus(), runs)}  # fmt: skip
    assert told == {WorkloadStatus().phase: "", "Admitted": "1970-01-01T00:01:40Z"}


def test_a_promise_and_its_admission_are_one_attempt() -> None:
    promised = life.promise(WorkloadStatus(), HERE, Said("WaitingForVictims", "when b is gone"), now=100.0)
    assert (promised.phase, promised.reason, holds(promised, "Admitted")) == ("Pending", "WaitingForVictims", False)
    assert life.admit(promised, HERE, ADMITTED, now=130.0).attempt == 1


def test_a_promise_that_was_withdrawn_was_no_attempt() -> None:
    promised = life.promise(WorkloadStatus(), HERE, Said("WaitingForVictims"), now=100.0)
    withdrawn = replace(life.wait(promised, Said("NoRoom"), 1), admission=None)
    again = life.promise(withdrawn, HERE, Said("WaitingForVictims"), now=110.0)
    assert again.attempt == life.admit(withdrawn, HERE, ADMITTED, now=110.0).attempt == 1
    evicted_then = life.leave(evicted(life.admit(again, HERE, ADMITTED, now=120.0), 130.0), now=131.0)
    assert life.promise(evicted_then, HERE, Said("WaitingForVictims"), now=140.0).attempt == 2


def test_a_promise_may_be_told_again_and_changes_nothing() -> None:
    once = life.promise(WorkloadStatus(), HERE, Said("WaitingForVictims"), now=100.0)
    assert life.promise(once, HERE, Said("WaitingForVictims"), now=105.0) == once


def test_a_promise_takes_nothing_back_from_a_workload_that_was_admitted_there_before() -> None:
    status = life.admit(WorkloadStatus(), HERE, ADMITTED, now=100.0)
    assert life.promise(status, HERE, Said("WaitingForVictims"), now=105.0) == status


def test_an_evicted_workload_is_pending_at_once_and_holds_its_room_until_it_left() -> None:
    running = life.run(life.admit(WorkloadStatus(), HERE, ADMITTED, now=100.0), Said("PodsReady"), now=101.0)
    status = evicted(running, 150.0)
    assert (status.phase, status.reason, status.admission) == ("Pending", "Preempted", running.admission)
    assert holds(status, "Evicted") and not holds(status, "Running") and not holds(status, "Admitted")
    assert status.attained == 100.0
    (one,) = status.eviction_history
    assert (one.reason, one.by, one.beneficiary) == ("Preempted", "q", "ns/b")
    assert (one.began, one.nodes) == ("1970-01-01T00:01:40Z", ("n1",))
    assert life.leave(status, now=160.0).admission is None


def test_a_moved_workload_enters_its_new_place_when_it_left_the_old() -> None:
    status = life.move(evicted(life.admit(WorkloadStatus(), HERE, ADMITTED, now=100.0), 150.0), THERE)
    moved = life.leave(status, now=160.0)
    assert moved.admission and moved.admission.pod_sets[0].nodes[0].node == "n2"
    assert (moved.phase, moved.attempt, moved.moves_to) == ("Admitted", 2, None)
    assert since(moved, "Admitted") == 160.0 and not holds(moved, "Evicted")


def test_being_admitted_again_ends_the_eviction() -> None:
    left = life.leave(evicted(life.admit(WorkloadStatus(), HERE, ADMITTED, now=100.0), 150.0), now=160.0)
    again = life.admit(left, THERE, ADMITTED, now=200.0)
    assert (again.attempt, holds(again, "Evicted"), since(again, "Admitted")) == (2, False, 200.0)


def test_a_workload_suspended_by_its_user_is_not_pending() -> None:
    status = evicted(life.admit(WorkloadStatus(), HERE, ADMITTED, now=100.0), 150.0, "Suspended")
    assert status.phase == "Suspended"
    assert life.suspend(status, is_active=True).phase == "Pending"


def test_a_workload_paused_by_its_user_says_where_its_processes_are() -> None:
    here = admission_status(HERE)
    assert here is not None
    status = life.suspend(WorkloadStatus(paused=PausedStatus("", here)), is_active=False)
    assert status.message == "paused by its user; its processes are frozen where they are"
    written = life.suspend(life.save(status, "Written"), is_active=False)
    assert (written.reason, written.message) == ("Suspended", "paused by its user; its processes are on disk")


def test_the_last_ten_evictions_are_remembered() -> None:
    status = WorkloadStatus()
    for number in range(12):
        status = evicted(life.admit(life.leave(status, now=0.0), HERE, ADMITTED, now=number * 10), number * 10 + 5.0)
    assert len(status.eviction_history) == 10


def test_a_finished_workload_is_over_and_keeps_what_it_was_served() -> None:
    status = life.admit(WorkloadStatus(), HERE, ADMITTED, now=100.0)
    held = life.served(status, now=160.0, held={"nvidia.com/gpu": 2000})
    done = life.finish(held, Said("Done"), succeeded=True, now=160.0)
    assert (done.phase, done.attained, since(done, "Finished")) == ("Succeeded", 120.0, 160.0)
    assert done.is_over


def test_a_finished_workload_is_served_no_more_though_its_end_is_written_again() -> None:
    status = life.admit(WorkloadStatus(), HERE, ADMITTED, now=100.0)
    over = life.finish(status, ADMITTED, succeeded=True, now=110.0)
    once = life.served(over, now=150.0, held={"nvidia.com/gpu": 2000})
    again = life.served(once, now=190.0, held={"nvidia.com/gpu": 2000})
    assert once.attained == again.attained == 20.0 and once.served == again.served


def test_a_change_is_the_merge_patch_from_one_status_to_the_next() -> None:
    before = life.admit(WorkloadStatus(), HERE, ADMITTED, now=100.0)
    assert change(before, WorkloadStatus(phase="Pending")) == {
        "phase": "Pending", "admission": None, "attempt": None, "conditions": None,
    }  # fmt: skip
    assert change(before, before) == {}
    moved = life.resize(before, THERE)
    assert change(before, moved) == {
        "admission": {"podSets": ({"name": "main", "nodes": ({"node": "n2", "count": 2},)},)}
    }


def test_the_mark_of_a_backfill_ends_with_its_eviction() -> None:
    status = life.mark(life.admit(WorkloadStatus(), HERE, ADMITTED, now=100.0), "ns/held")
    assert evicted(status, 150.0).backfilled_for == ""


def test_what_cannot_start_as_things_are_is_foretold_no_start() -> None:
    waits = WorkloadStatus(phase="Pending", reason="NoRoom", forecast=Forecast("2026-11-21T14:20:00Z"))
    assert life.wait(waits, Said("NoRoom", "needs 2 GPUs"), 1).forecast == waits.forecast
    assert life.wait(waits, Said("QueueStopped", "queue q admits nothing new"), 1).forecast is None
    assert life.wait(waits, Said("DependencyPending", "it comes after a, which is suspended"), 1).forecast is None
