"""Every property of a decision, on worlds in which all features are mixed.

One world is decided and carried through to where it settles, and all properties are asked of that: 2,000 worlds in
`make test`, 100,000 with FAIRWAY_SOAK=1. A world that fails prints as a few lines, its plans after it.
"""

import os
import random
from dataclasses import replace

import pytest
from builders import NOW, job, node, queue, world
from hypothesis import HealthCheck, Phase, given, note, settings
from worlds import Room, after, copied, place, seated, show_plan, worlds

from fairway.engine import Policy, decide
from fairway.engine.labels import required
from fairway.engine.model import Gone, Node, PodSet, Topology, Workload, World
from fairway.engine.plan import Admit, Evict, Finish, Keep, Plan, Reason, Resize, Wait
from fairway.engine.snapshot import Snapshot
from fairway.engine.state import snapshot_of, state_of, world_of
from fairway.outlook.forward import Forward
from fairway.outlook.whatif import what_if
from fairway.referee import check

SOAK = "FAIRWAY_SOAK" in os.environ
PARTS = 8
EXAMPLES = (100_000 if SOAK else 2_000) // PARTS
ROOM = {Reason.NO_ROOM, Reason.FRAGMENTED, Reason.NO_DEVICE, Reason.NO_DOMAIN, Reason.OVER_SHARE}
"""Reasons that say that there is no room."""


@pytest.mark.parametrize("part", range(PARTS))
def test_every_property_holds_on_mixed_worlds(part: int) -> None:
    """In parts, so that several processes share the work; each has worlds of its own."""

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, report_multiple_bugs=False, derandomize=not SOAK,
        phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck), print_blob=SOAK,
    )
    @given(worlds(salt=part))
    def holds(world: World) -> None:
        plan = judged(world)
        is_repeatable(world, plan)
        never_is_never(world, plan)
        is_monotone_in_room(world, plan)
        world, plan = settled(world, plan)
        leaves_no_room_unused(world, plan)
        tells_the_truth(world, plan)

    holds()


def judged(world: World) -> Plan:
    """Total, sound, harmless."""
    snapshot = snapshot_of(world)
    before = image(snapshot)
    plan = decide(snapshot, Policy())
    note("plan     " + show_plan(plan))
    expected = sorted([one.key for one in world.pending] + [one.workload.key for one in world.running])
    assert sorted(verdict.workload for verdict in plan.verdicts) == expected
    assert check(snapshot, plan) == []
    assert image(snapshot) == before
    return plan


def image(snapshot: Snapshot) -> tuple[object, ...]:
    """All of a snapshot that a decision could change."""
    arrays = (snapshot.capacity, snapshot.free, snapshot.device_free, snapshot.pool_of, snapshot.is_usable)
    values = (snapshot.nodes, snapshot.pools, snapshot.queues, snapshot.pending, snapshot.running, snapshot.pods)
    return (*(array.tobytes() for array in arrays), *map(repr, values), dict(snapshot.row_of), dict(snapshot.ended))


def is_repeatable(world: World, plan: Plan) -> None:
    """The same input, written down again, gives an equal plan; so does a state that has seen other decisions, whatever
    it remembers of them, and one that is written down after it has acted on the plan."""
    assert decide(snapshot_of(replace(world)), Policy()) == plan
    state = state_of(world)
    assert decide(state.snapshot(world.now), Policy()) == decide(state.snapshot(world.now), Policy()) == plan
    some = world.pending[::2]
    state.observe(*(Gone("Workload", one.key) for one in some))
    decide(state.snapshot(world.now), Policy())
    state.observe(*some)
    again = decide(state.snapshot(world.now), Policy())
    assert {one.workload: one for one in again.verdicts} == {one.workload: one for one in plan.verdicts}
    state.assume(plan)
    acted = state.snapshot(world.now)
    assert decide(acted, Policy()) == decide(snapshot_of(world_of(acted)), Policy())


def never_is_never(world: World, plan: Plan) -> None:
    """What is told that it never fits does not fit an empty cluster by the simplest means."""
    waits = [verdict for verdict in plan.verdicts if isinstance(verdict, Wait)]
    told = {wait.workload for wait in waits if wait.reason is Reason.NEVER_FITS}
    for workload in world.pending:
        if workload.key in told and is_plain(workload):
            assert first_fit(world, Room(replace(world, pods=())), workload) is None, workload.key


def leaves_no_room_unused(world: World, plan: Plan) -> None:
    """Who waits for room does not fit what is left by the simplest means, where nothing is kept for others."""
    waits = [verdict for verdict in plan.verdicts if isinstance(verdict, Wait)]
    if world.reservations or any(wait.held for wait in waits) or snapshot_of(world).is_social:
        return
    room = seated(world)
    told = {wait.workload for wait in waits if wait.reason in ROOM}
    for workload in world.pending:
        if workload.key in told and is_plain(workload):
            assert first_fit(world, copied(room), workload) is None, workload.key


def is_plain(workload: Workload) -> bool:
    """Whether a first fit, pod by pod, knows all that it asks for."""
    return workload.topology == Topology() and not workload.excluded_nodes and not any(
        one.topology != Topology() or one.pod.pod_affinity or one.pod.spread or one.pod.host_ports
        or one.pod.alignment_required or one.pod.gpu_memory
        for one in workload.podsets
    )


def first_fit(world: World, room: Room, workload: Workload) -> object:
    """Its minimum in one of its pools, on nodes in use; None where it does not fit."""
    queues = {queue.name: queue for queue in world.queues}
    at, listed = workload.queue, [workload.pools]
    while at in queues and len(listed) < 9:
        listed.append(queues[at].pools)
        at = queues[at].parent
    least = replace(workload, podsets=tuple(replace(one, count=one.min_count) for one in workload.podsets))
    for pool in snapshot_of(world).pools:
        if all(pool.name in names for names in listed if names):
            names = [node.name for node in world.nodes if is_in_use(node) and owns(world, pool.name, node)]
            if (found := place(copied(room), pool.name, least, names)) is not None:
                return found
    return None


def is_in_use(node: Node) -> bool:
    return node.is_ready and not (node.is_unschedulable or node.is_unhealthy or node.is_leaving)


def owns(world: World, pool: str, node: Node) -> bool:
    """Whether a node is of a pool; of several, of the first by name."""
    labels = dict(node.labels)
    mine = [one.name for one in world.pools if all(labels.get(it.key) in it.values for it in one.selector)]
    return min(mine, default="") == pool if world.pools else pool == "default"


def is_monotone_in_room(world: World, plan: Plan) -> None:
    """One more empty node never turns the start of the only workload that waits, in the only queue, into a wait.
    (Spread over domains is different: an empty domain is one more to be even with; and who is replaced keeps its quota,
    so that it may take more.)"""
    alone = replace(world, pending=world.pending[:1])
    if not world.pending or len(world.queues) > 1 or snapshot_of(alone).is_social:
        return
    verdicts = decide(snapshot_of(alone), Policy()).verdicts
    starts = [one for one in verdicts if one.workload == world.pending[0].key]
    if isinstance(starts[0], Admit) and not any(isinstance(one, Evict) and not one.beneficiary for one in verdicts):
        first = world.nodes[0]
        labels = tuple((key, "extra" if value == first.name else value) for key, value in first.labels)
        more = replace(alone, nodes=(*world.nodes, replace(first, name="extra", labels=labels)))
        plan = decide(snapshot_of(more), Policy())
        note("with one more node " + show_plan(plan))
        assert [type(one) for one in plan.verdicts if one.workload == starts[0].workload] == [Admit]


def settled(world: World, plan: Plan) -> tuple[World, Plan]:
    """Within three cycles nothing but Keep and Wait, those apart in which workloads only grow into what is idle or
    lent: each may open what others are entitled to; and, where pods look at the pods beside them, those in which
    workloads only start: each may open a place to another. Nobody who was admitted on the way is evicted, and nobody
    who stays has run past its limit."""
    admitted, cycles = set[str](), 0
    gentle = Resize | Admit if snapshot_of(world).is_social else Resize
    for _ in range(8):
        admitted |= {verdict.workload for verdict in plan.verdicts if isinstance(verdict, Admit)}
        changes = [verdict for verdict in plan.verdicts if not isinstance(verdict, Keep | Wait)]
        if not changes:
            return world, plan
        cycles += not all(isinstance(verdict, gentle) for verdict in changes)
        assert cycles <= 3, "it does not settle"
        world = after(world, plan)
        plan = judged(world)
        assert not [one for one in plan.verdicts if isinstance(one, Evict | Finish) and one.workload in admitted]
    raise AssertionError("it does not settle")


def tells_the_truth(world: World, plan: Plan) -> None:
    """A counterfactual comes true: with fewer pods, in another queue or pool, unbound, or without those who block it,
    the workload starts, were it the only one to wait, or with the others if it must stand, or stand even, with some."""
    waits = [one for one in plan.verdicts if isinstance(one, Wait) and one.reason in ROOM]
    pending = {one.key: one for one in world.pending}
    for wait in waits[:1]:
        workload, facts = pending[wait.workload], what_if(world, wait, Policy())
        if facts.would_fit:
            podsets = tuple(resized(one, facts.would_fit.get(one.name, one.count)) for one in workload.podsets)
            starts(world, replace(workload, podsets=podsets), f"with {dict(facts.would_fit)}")
        if facts.other_queue:
            starts(world, replace(workload, queue=facts.other_queue), f"in {facts.other_queue}")
        if facts.other_pool:
            starts(world, replace(workload, pools=(facts.other_pool,)), f"in {facts.other_pool}")
        if {one.workload.key for one in world.running}.issuperset(facts.blocking) and facts.blocking:
            rest = tuple(one for one in world.running if one.workload.key not in facts.blocking)
            starts(replace(world, running=rest), workload, f"without {facts.blocking}")


def resized(podset: PodSet, count: int) -> PodSet:
    return replace(podset, count=count, min_count=count)


def starts(world: World, workload: Workload, why: str) -> None:
    leans = any(required(podset.pod, anti=False) or podset.pod.spread for podset in workload.podsets)
    others = tuple(one for one in world.pending if leans and one.key != workload.key)
    tried = replace(world, pending=(workload, *others))
    plan = decide(snapshot_of(tried), Policy())
    note(f"{why}: " + show_plan(plan))
    assert workload.key in {verdict.workload for verdict in plan.verdicts if isinstance(verdict, Admit)}


@pytest.mark.parametrize("depth", [-1, 1, 2, 4])
def test_no_promise_of_a_hold_is_broken(depth: int) -> None:
    """One node, known time limits and no arrivals: each workload starts when its hold said, or before."""
    for seed in range(10_000 if SOAK else 60):
        dice, promised = random.Random(seed), dict[str, float]()
        line = tuple(
            job(f"w{at}", dice.choice("qp"), dice.choice([1, 2, 3, 4, 8]), dice.choice([1, 1, 2, 3]), preemptible=False,
                time_limit=float(dice.choice([600, 1800, 3600, 7200])), submitted=float(at))
            for at in range(dice.randint(4, 12))
        )  # fmt: skip
        limits = {one.key: one.time_limit or 0.0 for one in line}
        state = state_of(world(node("n", 16), queue("q"), queue("p"), *line))
        for step in Forward(state, Policy(hold_depth=depth), lambda one, of=limits: of[one.key], now=NOW).steps():
            assert step.faults == (), (seed, step.faults)
            for wait in (one for one in step.plan.verdicts if isinstance(one, Wait)):
                assert step.now <= promised.get(wait.workload, step.now), (seed, wait)
                if wait.starts_at is not None:
                    promised.setdefault(wait.workload, wait.starts_at)


def test_what_waits_is_listed_by_submission_in_whatever_order_it_was_seen() -> None:
    rng = random.Random(1)
    state, here = state_of(world(nodes=[node("n1")], queues=[queue("q")])), dict[str, Workload]()
    for number in range(300):
        one = replace(job(f"j{rng.randrange(60)}", "q"), submitted=float(rng.choice((number, rng.randrange(300)))))
        is_known = one.key in here
        here[one.key] = replace(one, submitted=here[one.key].submitted) if is_known else one
        state.observe(here[one.key])
        if not rng.randrange(4):
            state.observe(Gone("Workload", one.key))
            del here[one.key]
        if not rng.randrange(3):
            waiting = state.snapshot(NOW).pending
            assert waiting == tuple(sorted(here.values(), key=lambda it: (it.submitted, it.key)))
