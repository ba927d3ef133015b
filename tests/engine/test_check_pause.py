"""The referee on pauses: what is paused where it cannot be, and what goes on where it is not."""

from dataclasses import replace

from cases import admit, at, faults, node, of, on, work

from fairway.engine.model import Queue, Running
from fairway.engine.plan import Cause, Evict


def test_the_referee_finds_a_pause_where_it_cannot_be_and_a_paused_workload_elsewhere() -> None:
    one = replace(work(), paused=at(on("n1", 0)))
    assert faults(of(one), admit(one, on("n1", 0))) == set()
    assert ("a", "Paused") in faults(of(one), admit(one, on("n1", 1)))
    old = Evict("ns/a", Cause.SUSPENDED, pauses=True)
    running = Running(work(is_active=False), at(on("n1", 0)), admitted_at=0.0)
    assert faults(of(running=(running,), nodes=(node(can_pause=True),), queues=(Queue("q"),)), old) == set()
    assert ("a", "Paused") in faults(of(running=(running,)), old)


def test_the_referee_finds_what_goes_to_disk_where_no_node_can_write_it() -> None:
    evict = Evict("ns/a", Cause.SUSPENDED, pauses=True, saves=True)
    running = Running(work(is_active=False), at(on("n1", 0)), admitted_at=0.0)
    able = node(can_pause=True, can_save=True)
    assert faults(of(running=(running,), nodes=(able,), queues=(Queue("q"),)), evict) == set()
    assert ("a", "Paused") in faults(of(running=(running,), nodes=(node(can_pause=True),), queues=(Queue("q"),)), evict)
