"""Which pods are idle: no GPU of theirs computes, and their processes use less than a twentieth of a CPU."""

import os
import subprocess
import sys
import time
from typing import Any

from fairway.node.environment import POD_UID
from fairway.node.idle import BUSY, LOOK_SECONDS, QUIET, Processes, Quiet

BURNS = "while True: pass"
STARTS = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURNS!r}], env={{}})"


def pod(uid: str = "a", devices: str = "", since: str = "") -> dict[str, Any]:
    notes = {"fairway.dev/assigned-devices": devices} | ({"fairway.dev/idle-since": since} if since else {})
    return {"metadata": {"uid": uid, "annotations": notes}}


def told(one: dict[str, Any], cpu: list[float], gpus: dict[int, str] | None = None) -> list[str | None]:
    """What is said after each look; `cpu`: seconds used in all."""
    quiet, said = Quiet(), []
    for number, seconds in enumerate(cpu):
        quiet.look([one], {one["metadata"]["uid"]: seconds}, gpus or {}, number * LOOK_SECONDS)
        said.append(quiet.told(one))
    return said


def test_a_pod_that_does_next_to_nothing_is_idle_since_it_began_to() -> None:
    little = 0.9 * BUSY * LOOK_SECONDS
    said = told(pod(), [5.0, 5.0 + little, 5.0 + 2 * little, 5.0 + 3 * little])
    assert said == [None, None, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"]


def test_a_cell_that_computes_in_silence_is_use_and_idleness_begins_anew_after_it() -> None:
    said = told(pod(), [0.0, 0.0, 0.0, 2 * BUSY * LOOK_SECONDS, *[2 * BUSY * LOOK_SECONDS] * QUIET])
    assert said == [None, None, "1970-01-01T00:00:00Z", None, None, "1970-01-01T00:03:00Z"]


def test_a_gpu_that_computes_is_use_and_one_that_does_not_tell_is_never_idle() -> None:
    looks = [0.0] * (QUIET + 2)
    assert told(pod(devices="0,1"), looks, {0: "idle", 1: "idle"})[-1] is not None
    assert told(pod(devices="0,1"), looks, {0: "idle", 1: "busy"})[-1] is None
    assert told(pod(devices="0,1"), looks, {0: "idle"})[-1] is None


def test_a_pod_without_a_process_that_is_known_is_never_idle() -> None:
    quiet = Quiet()
    for number in range(QUIET + 2):
        quiet.look([pod()], {}, {}, number * LOOK_SECONDS)
    assert quiet.told(pod()) is None


def test_a_new_life_goes_on_from_what_the_one_before_was_sure_of() -> None:
    long = pod(since="1970-01-01T00:00:00Z")
    quiet = Quiet()
    for number, used in ((100, 7.0), (101, 7.0)):
        quiet.look([long], {"a": used}, {}, number * LOOK_SECONDS)
        assert quiet.told(long) == "1970-01-01T00:00:00Z"
    quiet.look([long], {"a": 70.0}, {}, 102 * LOOK_SECONDS)
    assert quiet.told(long) is None


def test_the_cpu_of_a_pod_is_that_of_its_processes_and_of_all_they_start() -> None:
    marked = {**os.environ, POD_UID: f"uid-of-{os.getpid()}"}
    one = subprocess.Popen([sys.executable, "-c", STARTS], env=marked)
    try:
        processes, deadline = Processes(), time.monotonic() + 60
        while processes.used().get(marked[POD_UID], 0.0) < 0.3:
            assert time.monotonic() < deadline
        while marked[POD_UID] not in processes.runnable:  # at some moments it may wait for memory
            assert processes.used() and time.monotonic() < deadline
    finally:
        subprocess.run(["pkill", "-P", str(one.pid)], check=False)
        one.kill()
        one.wait()
