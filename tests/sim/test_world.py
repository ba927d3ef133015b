"""A load brought to life: what is shown to the scheduler does not decide who starts."""

import pytest

from fairway.engine import PRESETS
from fairway.engine.model import GPU, PODS, Node, amounts
from fairway.sim.load import Job, Load
from fairway.sim.world import Mechanics, World


@pytest.mark.parametrize("policy", ["strict-fifo", "fifo", "sjf", "fairway", "las"])
def test_of_many_alike_all_start_at_once_that_fit(policy: str) -> None:
    nodes = tuple(Node(f"n{row:02d}", capacity=amounts({GPU: 8000, PODS: 110})) for row in range(40))
    load = Load("burst", nodes, tuple(Job(f"{row:03d}", 0.0, 100.0) for row in range(330)))
    world = World(load, PRESETS[policy], Mechanics(knows_durations=policy == "sjf"))
    faults = [step.faults for step in world.run() if step.faults]
    assert not faults
    assert [it.runs[0].start for it in world.outcomes()] == [0.0] * 320 + [100.0] * 10
