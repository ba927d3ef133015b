"""The clock's work elsewhere: an answer, no answer, and nobody who waits for one."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

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


ASKS = """
import asyncio, multiprocessing, time
from fairway.clock import Clock

async def main():
    asking = asyncio.ensure_future(Clock().in_process(time.sleep, 3600))
    while not multiprocessing.active_children():
        await asyncio.sleep(0.05)
    print(multiprocessing.active_children()[0].pid, flush=True)
    await asking

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_a_process_ends_when_the_one_that_asked_it_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text(ASKS)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        pid = int(asking.stdout.readline())
        while _niceness(pid) < min(19, _niceness(asking.pid) + 10):  # it is at work
            time.sleep(0.05)
        asking.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(pid)


def _niceness(pid: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, pid)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
