"""The clock's work elsewhere: an answer, no answer, and nobody who waits for one."""

import asyncio
import os
import time

import pytest

from fairway.clock import Clock, VirtualClock


def test_work_in_a_process_of_its_own_gives_way_and_answers() -> None:
    async def ask() -> tuple[int, int]:
        return await Clock().in_process(os.getpid), await Clock().in_process(os.nice, 0)

    pid, nice = asyncio.run(ask())
    assert pid != os.getpid() and nice == min(19, os.nice(0) + 10)


def test_a_process_that_ends_without_an_answer_is_an_end_of_file() -> None:
    with pytest.raises((EOFError, ConnectionError)):
        asyncio.run(Clock().in_process(os._exit, 3))


def test_nobody_waits_for_a_process_that_nobody_asks_any_more() -> None:
    async def give_up() -> None:
        await Clock().within(0.5, Clock().in_process(time.sleep, 3600))

    with pytest.raises(TimeoutError):
        asyncio.run(give_up())


def test_under_a_virtual_clock_there_is_no_other_process() -> None:
    clock = VirtualClock()
    assert clock.run(clock.in_process(os.getpid)) == os.getpid()
