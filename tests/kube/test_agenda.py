"""An agenda gives turns by rank, whatever was noted before."""

import asyncio
import logging
from contextlib import suppress

import pytest

from fairway.clock import VirtualClock, seeded
from fairway.kube.agenda import Agenda
from fairway.kube.client import ApiError


def worked(ranks: dict[str, float], noted: str, *, late: str = "") -> list[str]:
    """The keys in the order of their turns, one at a time; `late` is hurried, with another rank, after the first."""
    clock, order = VirtualClock(0.0), list[str]()

    async def play() -> None:
        agenda = Agenda(clock, seeded(1), width=1, rank=ranks.__getitem__)

        async def work(key: str) -> None:
            order.append(key)
            await clock.sleep(1.0)
            if late and len(order) == 1:
                ranks[late] = -1.0
                agenda.hurry(late)

        for key in noted:
            agenda.note(key)
        task = asyncio.create_task(agenda.run(work))
        await clock.sleep(60.0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    clock.run(play())
    return order


def test_of_those_that_are_due_the_least_rank_is_next_then_the_first_noted() -> None:
    assert worked({"a": 0.0, "b": 0.0, "c": -5.0, "d": 1.0}, "dabc") == ["c", "a", "b", "d"]


def test_a_key_that_is_hurried_has_one_turn_at_its_new_rank() -> None:
    assert worked({"a": 0.0, "b": 0.0, "c": 0.0, "d": 0.0}, "abcd", late="d") == ["a", "d", "b", "c"]


def test_a_key_that_fails_as_nobody_foresaw_stops_no_other_and_is_tried_again(faults: list[logging.LogRecord]) -> None:
    clock, order = VirtualClock(0.0), list[str]()

    async def work(key: str) -> None:
        order.append(key)
        if order.count("bad") == 1 and key == "bad":
            raise KeyError("name")

    async def play() -> None:
        agenda = Agenda(clock, seeded(1), width=1)
        agenda.note("bad")
        agenda.note("good")
        task = asyncio.create_task(agenda.run(work))
        await clock.sleep(60.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    clock.run(play())
    assert order == ["bad", "good", "bad"]
    assert [it.getMessage() for it in faults] == ["bad: a fault of Fairway's own"]
    faults.clear()


def test_that_what_is_worked_on_is_gone_or_changed_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock(0.0)

    async def work(key: str) -> None:
        raise ApiError(int(key), "", "")

    async def play() -> None:
        agenda = Agenda(clock, seeded(1))
        for key in ("404", "409", "403"):
            agenda.note(key)
        with suppress(TimeoutError):
            await clock.within(0.4, agenda.run(work))

    clock.run(play())
    assert [it.args and it.args[0] for it in caplog.records] == ["403"]


@pytest.mark.parametrize("noted", ["", "a", "abc"])
def test_an_agenda_is_settled_when_the_turns_that_are_due_are_over_and_waits_for_no_later_one(noted: str) -> None:
    clock, order = VirtualClock(0.0), list[str]()

    async def play() -> list[str]:
        agenda = Agenda(clock, seeded(1), width=1)

        async def work(key: str) -> float:
            await clock.sleep(1.0)
            order.append(key)
            return clock.now() + 1000.0

        for key in noted:
            agenda.note(key)
        agenda.note("late", 500.0)
        task = asyncio.create_task(agenda.run(work))
        await agenda.settled()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return list(order)

    assert clock.run(play()) == list(noted)


class Set(VirtualClock):
    """A clock that is set by `ahead` seconds."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


@pytest.mark.parametrize("by", [-3600.0, 3600.0])
def test_once_the_clock_is_set_each_key_has_a_turn_that_says_anew_when_the_next_is_due(by: float) -> None:
    clock, turns = Set(1e6), list[tuple[str, float]]()
    pauses = {"soon": 30.0, "late": 1000.0, "noted": 1e9}

    async def work(key: str) -> float:
        turns.append((key, clock.elapsed()))
        if key == "busy":
            await clock.sleep(70.0)
        return clock.now() + pauses.get(key, 1e9)

    async def play() -> None:
        agenda = Agenda(clock, seeded(1))
        for key in (*pauses, "busy"):
            agenda.note(key)
        task = asyncio.create_task(agenda.run(work))
        await clock.sleep(65.0)
        clock.ahead = by
        await clock.sleep(45.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    clock.run(play())
    assert [at for key, at in turns if key == "soon"] == pytest.approx([0, 30, 60, 70, 100], abs=0.1)
    assert [at for key, at in turns if key in ("late", "noted")] == pytest.approx([0, 0, 70, 70], abs=0.1)
    assert [at for key, at in turns if key == "busy"] == pytest.approx([0, 70], abs=0.1)
