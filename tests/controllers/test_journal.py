"""The operator's log: what is told of a change, and how its lines are written."""

import asyncio
import logging
import sys
import threading
from itertools import pairwise

import pytest
from msgspec.structs import replace

from fairway.api.objects import (
    ATTEMPT,
    Condition,
    ContainerState,
    ContainerStatus,
    Metadata,
    PodObject,
    PodSpec,
    PodStatus,
    Terminated,
)
from fairway.api.quantities import time, time_text
from fairway.api.types import (
    AdmissionStatus,
    EvictionRecord,
    NodePods,
    PodSetNodes,
    WorkloadObject,
    WorkloadSpec,
    WorkloadStatus,
)
from fairway.clock import Clock, VirtualClock
from fairway.controllers.happening import Happening, failed_at, happened, happened_since, late, pod_failed
from fairway.controllers.journal import MOST_LINES, Journal, Lines, line
from fairway.controllers.status import since

PLACED = AdmissionStatus("h100", (PodSetNodes("main", (NodePods("n1", 2), NodePods("n2", 2))),))


def turned(kind: str, at: str, value: str = "True") -> Condition:
    return Condition(kind, value, last_transition_time=at)


def seen(phase: str = "Pending", *conditions: Condition, **status) -> WorkloadObject:
    spec = WorkloadSpec(queue="nlp", user="ann")
    return WorkloadObject(Metadata("job-a", "ml"), spec, WorkloadStatus(phase, conditions=conditions, **status))


ADMITTED, RUNNING = turned("Admitted", "2026-11-21T12:00:00Z"), turned("Running", "2026-11-21T12:00:01Z")
LIFE = [
    None,
    seen(),
    seen("Admitted", ADMITTED, admission=PLACED, attempt=1),
    seen("Running", ADMITTED, RUNNING, admission=PLACED, attempt=1),
    seen("Pending", turned("Evicted", "2026-11-21T12:01:00Z"), reason="Reclaimed", admission=PLACED, attempt=1,
         eviction_history=(EvictionRecord("2026-11-21T12:01:00Z", "Reclaimed", "vision", "ml/job-b"),)),
    seen("Pending", turned("Evicted", "2026-11-21T12:01:00Z"), reason="Reclaimed", attempt=1),
    seen("Admitted", ADMITTED, attempt=2),
    seen("Failed", ADMITTED, turned("Finished", "2026-11-21T12:02:03Z"), reason="ExitCode3",
         message="failed: exit code 3", attempt=2),
    None,
]  # fmt: skip


def test_each_step_of_a_life_is_one_line() -> None:
    told = [line(one, "info", 0.0) for old, new in pairwise(LIFE) for one in happened(old, new)]
    at = "1970-01-01T00:00:00Z info"
    assert told == [
        f"{at} submitted workload=ml/job-a queue=nlp user=ann\n",
        f"{at} admitted workload=ml/job-a queue=nlp pool=h100 nodes=n1,n2 attempt=1\n",
        f"{at} started workload=ml/job-a queue=nlp attempt=1\n",
        f"{at} evicted workload=ml/job-a reason=Reclaimed for=ml/job-b by=vision attempt=1\n",
        f"{at} requeued workload=ml/job-a queue=nlp phase=Pending\n",
        f"{at} admitted workload=ml/job-a queue=nlp attempt=2\n",
        f'{at} failed workload=ml/job-a reason=ExitCode3 message="failed: exit code 3" runtime=123.0s\n',
    ]


def test_what_happened_while_no_controller_led_is_written_in_its_order(caplog: pytest.LogCaptureFixture) -> None:
    clock, text = VirtualClock(1000.0), list[str]()
    caplog.set_level(logging.INFO)

    async def story() -> None:
        journal = Journal(clock, text.append)
        journal.note(Happening("leading", ""))
        task = asyncio.create_task(journal.run())
        for key, at in (("ml/b", 900.0), ("ml/a", 800.0), ("ml/c", 850.0)):
            journal.note(late(Happening("finished", key), at))
            await clock.sleep(0.1)
        journal.note(Happening("submitted", "ml/d"))
        await clock.sleep(2)
        task.cancel()

    clock.run(story())
    told = [line.split("workload=")[1].split()[0] for line in "".join(text).splitlines()[1:]]
    assert told == ["ml/d", "ml/a", "ml/c", "ml/b"]


def test_what_happened_while_no_controller_led_is_read_off_the_object() -> None:
    over, again, waiting = LIFE[-2], LIFE[-3], LIFE[-5]
    history = (EvictionRecord("2026-11-21T12:00:00Z", "Preempted"),)
    moved = replace(again, status=replace(again.status, eviction_history=history))
    at = "2026-11-21T12:00:00Z"
    assert over and again and waiting
    told = {name: [one.event for one in happened_since(seen, time(at))] for name, seen in
            (("over", over), ("again", moved), ("evicted", waiting), ("left", LIFE[-4]))}  # fmt: skip
    assert told == {
        "over": ["admitted", "failed"], "again": ["evicted", "admitted"], "evicted": ["evicted"],
        "left": ["evicted", "requeued"],
    }  # fmt: skip
    assert not list(happened_since(over, time("2026-11-21T12:02:04Z")))
    assert LIFE[-4] and not list(happened_since(LIFE[-4], time("2026-11-21T12:01:01Z")))  # it waits since before that
    new = replace(LIFE[1], metadata=Metadata("job-a", "ml", creation_timestamp=at))
    assert [one.event for one in happened_since(new, time(at))] == ["submitted"]


def test_what_is_told_late_has_its_own_time_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    over, clock, written = LIFE[-2], VirtualClock(), list[str]()
    assert over
    caplog.set_level(logging.INFO)

    async def tell() -> None:
        journal = Journal(clock, written.append)
        for one in happened_since(over, time("2026-11-21T12:00:00Z")):
            journal.note(one)
        await journal.flush()

    clock.run(tell())
    told = [(text.split()[0], text.split()[2], text.split()[-1]) for text in "".join(written).splitlines()]
    assert told == [(time_text(since(over.status, kind)), event, "late=true")
                    for event, kind in (("admitted", "Admitted"), ("failed", "Finished"))]  # fmt: skip


EVICTED = Condition("DisruptionTarget", "True", "EvictionByEvictionAPI")


@pytest.mark.parametrize(("reason", "more", "text"), [
    ("", (), 'pod-failed workload=ml/job-a pod=a-0-x node=n1 message="exit code 3" attempt=2'),
    ("Lost", (), "pod-lost workload=ml/job-a pod=a-0-x node=n1 reason=Lost attempt=2"),
    ("", (EVICTED,), "pod-lost workload=ml/job-a pod=a-0-x node=n1 reason=EvictionByEvictionAPI attempt=2"),
])  # fmt: skip
def test_a_pod_that_failed_or_was_lost_has_a_line_once(reason: str, more: tuple[Condition, ...], text: str) -> None:
    meta = Metadata("a-0-x", "ml", annotations={ATTEMPT: "job-a/uid/2"})
    ended = ContainerStatus("main", ContainerState(Terminated(3)))
    ready = Condition("Ready", "False", last_transition_time="2026-11-21T12:00:00Z")
    status = PodStatus("Failed", reason, conditions=(ready, *more), container_statuses=(ended,))
    failed = PodObject(meta, PodSpec(node_name="n1"), status)
    running = PodObject(meta, PodSpec(node_name="n1"), PodStatus("Running"))
    [told] = pod_failed(running, failed, "ml/job-a")
    assert text in line(told, "info", 0.0)
    assert not list(pod_failed(failed, failed, "ml/job-a")) and not list(pod_failed(None, running, "ml/job-a"))
    assert (failed_at(failed), failed_at(running)) == (time("2026-11-21T12:00:00Z"), 0.0)


def test_what_other_parts_log_has_the_form_of_the_log() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        record = logging.LogRecord("fairway.kube.lease", logging.WARNING, "", 1, "lost: %s", ("it",), sys.exc_info())
    record.created = 0.0
    told = Lines().format(record)
    assert told.startswith('1970-01-01T00:00:00Z warning note by=kube.lease message="lost: it" trace="Traceback')
    assert "\n" not in told


def test_what_is_deleted_before_it_is_over_was_cancelled() -> None:
    assert [one.event for one in happened(seen("Running", ADMITTED, RUNNING), None)] == ["cancelled"]


def test_a_line_stays_one_line_whatever_a_value_holds() -> None:
    told = line(Happening("failed", "ml/a", {"message": 'two\nlines, "quoted" \x1b[31m'}), "warning", 0.0)
    assert told.count("\n") == 1 and "\x1b" not in told and r'"two\nlines, \"quoted\" ' in told


async def test_a_burst_is_written_in_a_few_pieces_and_what_is_too_much_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    written: list[str] = []
    journal = Journal(Clock(), written.append)
    for number in range(MOST_LINES + 5):
        journal.note(Happening("submitted", f"ml/job-{number}"))
    task = asyncio.create_task(journal.run())
    while sum(text.count("\n") for text in written) <= MOST_LINES:
        await asyncio.sleep(0)
    task.cancel()
    assert len(written) <= 12 and "dropped lines=5" in "".join(written)


async def test_a_line_counts_as_told_only_when_it_is_written(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    written, may_write = [], threading.Event()

    def write(text: str) -> None:
        may_write.wait()
        written.append(text)

    journal = Journal(Clock(), write)
    journal.note(Happening("submitted", "ml/job-a"))
    task = asyncio.create_task(journal.run())
    flushed = asyncio.create_task(journal.flush())
    await asyncio.sleep(0)
    assert not flushed.done()
    may_write.set()
    await flushed
    assert len(written) == 1
    task.cancel()


async def test_the_level_of_the_log_decides_what_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    written: list[str] = []
    journal = Journal(Clock(), written.append)
    task = asyncio.create_task(journal.run())
    await asyncio.sleep(0)
    for event in ("submitted", "failed", "refused"):
        journal.note(Happening(event, "ml/job-a"))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    told = [text.split()[1:3] for text in "".join(written).splitlines()]
    assert told == [["warning", "failed"], ["error", "refused"]]
