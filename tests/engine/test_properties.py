"""Every property of a decision, on worlds in which all features are mixed.

One world is decided once and all properties are asked of that decision: 2,000 worlds in `make test`, 100,000 with
FAIRWAY_SOAK=1. A world that fails prints as a few lines.
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from worlds import after, show_plan, worlds

from fairway.engine import Policy, check, decide
from fairway.engine.model import World
from fairway.engine.plan import Admit, Evict, Keep, Plan, Wait
from fairway.engine.snapshot import Snapshot
from fairway.engine.state import snapshot_of

SOAK = "FAIRWAY_SOAK" in os.environ
PARTS = 4
EXAMPLES = (100_000 if SOAK else 2_000) // PARTS

mixed = settings(
    max_examples=EXAMPLES, deadline=None, database=None, report_multiple_bugs=False,
    phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_property_holds_on_mixed_worlds(part: int) -> None:
    """In parts, so that several processes share the work; each part has worlds of its own."""

    @mixed
    @given(worlds(salt=part))
    def holds(world: World) -> None:
        judge(world)

    holds()


def judge(world: World) -> None:
    snapshot = snapshot_of(world)
    before = image(snapshot)
    plan = decide(snapshot, Policy())
    note("plan     " + show_plan(plan))
    is_total(world, plan)
    assert check(snapshot, plan) == []  # sound
    assert decide(snapshot_of(world), Policy()) == plan  # repeatable
    assert image(snapshot) == before  # harmless
    settles(world, plan)


def is_total(world: World, plan: Plan) -> None:
    """Each pending and each running workload gets exactly one verdict."""
    expected = sorted([one.key for one in world.pending] + [one.workload.key for one in world.running])
    assert sorted(verdict.workload for verdict in plan.verdicts) == expected


def image(snapshot: Snapshot) -> tuple[object, ...]:
    arrays = (snapshot.capacity, snapshot.free, snapshot.device_free, snapshot.pool_of, snapshot.is_usable)
    values = (snapshot.nodes, snapshot.pools, snapshot.pending, snapshot.running, snapshot.pods, snapshot.ended)
    return (*(array.tobytes() for array in arrays), *map(repr, values))


def settles(world: World, plan: Plan) -> None:
    """Within three cycles nothing but Keep and Wait; nobody who was admitted on the way is evicted."""
    admitted: set[str] = set()
    for _ in range(3):
        admitted |= {verdict.workload for verdict in plan.verdicts if isinstance(verdict, Admit)}
        world = after(world, plan)
        snapshot = snapshot_of(world)
        plan = decide(snapshot, Policy())
        note("then     " + show_plan(plan))
        assert check(snapshot, plan) == []
        assert not [one for one in plan.verdicts if isinstance(one, Evict) and one.workload in admitted]
        if all(isinstance(verdict, Keep | Wait) for verdict in plan.verdicts):
            return
    raise AssertionError("it does not settle")
