"""Why, rule by rule: the first of several reasons, the figures, and what a claim is worth."""

import pytest
from builders import GPU, NOW, job, judged, meets, node, plan_of, queue, runs, table, verdicts

from fairway.engine.model import Expression, Ledger, Pool, Reservation, Topology
from fairway.engine.plan import Dependency, Facts, Spending, Wait

HOUR = 3600.0
WORN = {"backs_off_until": NOW + 60.0}
RACKS = Pool("default", levels=("rack", "kubernetes.io/hostname"))
NOBODY = frozenset[str]()


def fixed(name: str, gpus: float = 1, **fields):
    return job(name, gpus=gpus, preemptible=False, **fields)


def facts(*things) -> Facts:
    """Of the wait of `w`."""
    judged(*things)
    said = verdicts(plan_of(*things))["w"]
    assert isinstance(said, Wait)
    return said.facts


LATER = Reservation("x", NOW + 2 * HOUR, 2 * HOUR, queue="r", pool="default", amount=((GPU, 2000),))
LONG = {"time_limit": 5 * HOUR}
SPENT = Ledger(budget_spent=1e9, budget_since=NOW)
PRECEDENCE = table(
    ("QueueNotFound before all", [node("n", 4), job("w", "nowhere", 9, **WORN)], {"w": "QueueNotFound"}),
    ("QueueInvalid before NotAllowed", [node("n", 4), queue("q", namespaces=NOBODY), queue("r", parent="q"),
     job("w", gpus=1)], {"w": "QueueInvalid"}),
    ("NotAllowed before QueueStopped", [node("n", 4), queue("q", namespaces=NOBODY, stop="Drain"), job("w", gpus=1)],
     {"w": "NotAllowed"}),
    ("QueueStopped before NeverFits", [node("n", 4), queue("q", stop="StopAdmitting"), job("w", gpus=9)],
     {"w": "QueueStopped"}),
    ("LevelUnknown before NeverFits", [node("n", 4), queue("q"), job("w", gpus=9, topology=Topology("rack"))],
     {"w": "LevelUnknown"}),
    ("NeverFits before BackingOff", [node("n", 4), queue("q"), job("w", gpus=9, **WORN)], {"w": "NeverFits"}),
    ("NeverFits before OverLimit", [node("n", 4), queue("q", 0, 2), job("w", gpus=9)], {"w": "NeverFits"}),
    ("NeverFits before OverGuaranteed", [node("n", 4), queue("q", 0), fixed("w", 9)], {"w": "NeverFits"}),
    ("BackingOff before DependencyPending", [node("n", 4), queue("q"), job("w", gpus=1, after=("ns/x",), **WORN)],
     {"w": "BackingOff"}),
    ("DependencyPending before BudgetSpent",
     [node("n", 4), queue("q", budget=1, ledger=SPENT), job("w", gpus=1, time_limit=HOUR, after=("ns/x",))],
     {"w": "DependencyPending"}),
    ("BudgetSpent before OverLimit", [node("n", 4), queue("q", 0, 0, budget=1, ledger=SPENT),
     job("w", gpus=1, time_limit=HOUR)], {"w": "BudgetSpent"}),
    ("OverLimit before OverGuaranteed", [node("n", 4), queue("q", 0, 0), fixed("w")], {"w": "OverLimit"}),
    ("OverGuaranteed before Reserved",
     [node("n", 4), queue("q", 0), Reservation("x", NOW - 60, HOUR, nodes=("n",)), fixed("w")],
     {"w": "OverGuaranteed"}),
    ("OverShare before NoRoom", [node("n", 4), queue("q", 0, weight=0), queue("r", 4), runs(job("x", "r", 4), "n"),
     job("w", gpus=1)], {"w": "OverShare"}),
    ("OverShare, too, where others have only just taken the room",
     [node("n", 8), queue("q", 4), queue("r", 4), job("v", gpus=3, submitted=1), job("x", "r", 4),
      job("w", gpus=3, submitted=2)], {"v": "n", "x": "n", "w": "OverShare"}),
    ("NoRoom where nobody else has any", [node("n", 8), queue("q", 4), queue("r", 4), job("v", gpus=6, submitted=1),
     job("w", gpus=3, submitted=2)], {"v": "n", "w": "NoRoom"}),
    ("NoDomain before Fragmented",
     [RACKS, *(node(f"n{at}", 2, labels={"rack": f"r{at // 2}"}) for at in range(4)), queue("q"),
      *(runs(job(f"x{at}", gpus=1), f"n{at}") for at in (0, 2)), job("w", gpus=2, count=2, topology=Topology("rack"))],
     {"w": "NoDomain"}),
    ("NoDevice where devices are told apart nowhere", [node("n", 4, chooser="Kubelet"), queue("q"),
     job("w", pod={"gpu_fraction": 500})], {"w": "NoDevice"}),
    ("Fragmented where only the sum would do", [node("n", 2), node("m", 2), queue("q"), runs(job("x", gpus=1), "n"),
     runs(job("y", gpus=1), "m"), job("w", gpus=2)], {"w": "Fragmented"}),
    ("NoRoom where GPUs are shared, whatever is free where they are not",
     [node("m", 1), node("n", 8, chooser="Kubelet"), queue("q"), runs(job("x", gpus=1), "m"),
      job("w", pod={"gpu_fraction": 500})], {"w": "NoRoom"}),
    ("NoRoom in a pool that may grow, though no node says yet how much memory a GPU has",
     [Pool("default", max_nodes=1, shape=(("cpu", 8000), ("memory", 2**30), ("nvidia.com/gpu", 1000))), queue("q"),
      job("w", pod={"gpu_memory": 2**30})], {"w": "NoRoom"}),
    ("HeldFor where a reservation alone would let it start", [node("n", 4), queue("q", 4), queue("r"), LATER,
     fixed("v", gpus=3, **LONG), fixed("w", gpus=2, submitted=1, **LONG)], {"v": "Reserved", "w": "HeldFor"}),
    ("Reserved where it would not, whatever is held, too", [node("n", 4), queue("q", 4), queue("r"), LATER,
     fixed("v", gpus=3, **LONG), fixed("w", gpus=3, cpu=1, submitted=1, **LONG)], {"v": "Reserved", "w": "Reserved"}),
    ("NoRoom where not even the sum would do", [node("n", 2), queue("q"), runs(job("x", gpus=1), "n"),
     job("w", gpus=2)], {"w": "NoRoom"}),
    ("Refused where nothing else stands against it", [node("n", 2), queue("q"),
     job("w", gpus=2, refused="Room", **WORN)], {"w": "Refused"}),
    ("who is like one that was refused is tried all the same", [node("n", 2), queue("q"),
     job("v", gpus=2, refused="Room", submitted=-1, **WORN), job("w", gpus=2)], {"v": "Refused", "w": "n"}),
    ("anything before Refused", [node("n", 2), queue("q"), runs(job("x", gpus=1), "n"),
     job("w", gpus=2, refused="Room", **WORN)], {"w": "NoRoom"}),
)


@PRECEDENCE
def test_the_first_reason_is_told(things, expected) -> None:
    meets(things, expected)


def test_the_missing_amount_is_told() -> None:
    said = facts(node("n", 4), queue("q"), runs(job("x", gpus=3), "n"), job("w", gpus=4))
    assert (said.resource, said.needed, said.missing, said.most_free, said.domain) == (GPU, 4000, 3000, 1000, "n")


def test_nodes_whose_devices_never_serve_it_are_no_room() -> None:
    said = facts(node("m", 2), node("n", 8, chooser="Kubelet"), queue("q"), runs(job("x", gpus=2), "m"),
                 job("w", pod={"gpu_fraction": 500}))
    assert (said.most_free, said.domain, said.missing) == (0, "m", 500)


def test_the_pools_that_are_not_there_are_told() -> None:
    nodes = node("n", 4), Pool("default")
    assert facts(*nodes, queue("q"), job("w", gpus=1, pools=("x", "y"))).detail == "pools x, y"
    assert facts(*nodes, queue("p", pools=("z",)), queue("q", parent="p"), job("w", gpus=1)).detail == "pools z"


def test_the_share_that_it_would_be_above_is_told() -> None:
    said = facts(node("n", 4), queue("q", 1), queue("r", 4), runs(job("x", "r", 4), "n"), job("w", gpus=2))
    assert (said.queue, said.bounds, said.used) == ("q", {GPU: 1000}, {GPU: 0})


def test_the_queue_at_which_it_fails_is_told_with_its_limit_and_what_is_used() -> None:
    parents = queue("p", 3, 4), queue("q", 0, 8, parent="p")
    said = facts(node("n", 8), *parents, runs(job("x", gpus=1), "n"), job("w", gpus=6))
    assert (said.queue, said.missing, said.bounds, said.used) == ("p", 3000, {GPU: 4000}, {GPU: 1000})
    said = facts(node("n", 8), *parents, runs(fixed("x"), "n"), fixed("w", 3))
    assert (said.queue, said.missing, said.bounds, said.used) == ("q", 4000, {GPU: 0}, {GPU: 1000})


def test_a_budget_tells_what_is_spent_reserved_and_needed() -> None:
    team = queue("q", budget=36_000, budget_period=86_400.0, ledger=Ledger(budget_spent=7_200.0, budget_since=NOW))
    busy = runs(job("x", gpus=2, time_limit=HOUR), "n", since=NOW)
    said = facts(node("n", 8), team, busy, job("w", gpus=6, time_limit=2 * HOUR))
    assert said.spending == Spending(36_000, 7_200.0, 7_200.0, 43_200.0) and said.until == NOW + 86_400
    assert said.spending.is_beyond and said.longest == 6_000.0 and said.assumed is None


def test_a_budget_tells_that_a_day_counts_for_want_of_a_time_limit() -> None:
    assert facts(node("n", 8), queue("q", budget=36_000), job("w", gpus=1)).assumed == 86_400.0
    limited = queue("q", budget=36_000, default_time_limit=20 * HOUR)
    assert facts(node("n", 8), limited, job("w", gpus=1)).assumed is None


AFTER = {
    "it does not exist": ([], Dependency.MISSING, ("ns/a",)),
    "it waits itself": ([job("a", gpus=9)], Dependency.WAITING, ("ns/a",)),
    "it runs": ([runs(job("a", gpus=1), "n")], Dependency.RUNNING, ("ns/a",)),
    "it comes after the one that asks": ([job("a", gpus=1, after=("ns/w",))], Dependency.CIRCULAR, ("ns/a",)),
    "a longer circle": (
        [job("a", after=("ns/b",)), job("b", after=("ns/c", "ns/w"))], Dependency.CIRCULAR, ("ns/a", "ns/b"),
    ),
    "a circle without the one that asks": (
        [job("a", after=("ns/b",)), job("b", after=("ns/a",))], Dependency.WAITING, ("ns/a",),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("things", "state", "blocking"), AFTER.values(), ids=AFTER.keys())
def test_why_what_it_comes_after_has_not_succeeded_is_told(things, state, blocking) -> None:
    said = facts(node("n", 8), queue("q"), *things, job("w", gpus=1, after=("ns/a",)))
    assert (said.dependency, said.blocking) == (state, blocking)


def test_a_workload_after_itself_is_a_circle() -> None:
    said = facts(node("n", 8), queue("q"), job("w", gpus=1, after=("ns/w",)))
    assert said.dependency is Dependency.CIRCULAR


def test_what_is_above_the_most_that_is_allowed_is_told_with_that() -> None:
    team = queue("q", max_priority=100, max_time_limit=3600.0)
    claims = {"priority": 1000}, {"time_limit": 7200.0}
    asks = [facts(node("n", 8), team, job("w", gpus=1, **more)) for more in claims]
    assert [(one.detail, one.longest) for one in asks] == [("100", None), ("", 3600.0)]


def test_a_parent_that_is_not_there_is_told_and_who_names_it() -> None:
    said = facts(node("n", 8), queue("p", parent="nosuch"), queue("q", parent="p"), job("w", gpus=1))
    assert (said.queue, said.detail) == ("q", "queue p names parent nosuch, which does not exist")


def test_the_level_and_its_best_domain_are_told() -> None:
    nodes = [node(f"n{at}", 2, labels={"rack": f"r{at // 2}"}) for at in range(4)]
    said = facts(RACKS, *nodes, queue("q"), *(runs(job(f"x{at}", gpus=1), f"n{at}") for at in (0, 1, 2)),
                 job("w", gpus=1, count=4, topology=Topology("rack")))
    assert (said.level, said.domain, said.most_free) == ("rack", "r1", 3000)


def test_for_whom_room_is_held_is_told_and_until_when() -> None:
    busy = runs(job("x", gpus=2, time_limit=2 * HOUR, priority=9), "n", since=NOW - HOUR)
    said = facts(node("n", 4), queue("q", 9), busy, job("v", gpus=4, priority=1), fixed("w", 2))
    assert said.blocking == ("ns/v",) and said.until == NOW + HOUR


def test_waiting_workloads_are_numbered_in_their_queue() -> None:
    waiting = [job(name, gpus=2, submitted=at) for at, name in enumerate("abc")]
    plan = verdicts(plan_of(node("n", 2), queue("q"), *waiting))
    assert [plan[name].position for name in "bc"] == [1, 2]


CLAIMS = table(
    ("a priority above the queue's is not allowed", [node("n", 4), queue("q", max_priority=5),
     job("v", gpus=1, priority=6), job("w", gpus=1, priority=5)], {"v": "NotAllowed", "w": "n"}),
    ("the strictest ancestor binds priority", [node("n", 4), queue("p", max_priority=5),
     queue("q", parent="p", max_priority=9), job("w", gpus=1, priority=6)], {"w": "NotAllowed"}),
    ("the strictest ancestor binds what may not be preempted", [node("n", 4), queue("p", allows_nonpreemptible=False),
     queue("q", parent="p", allows_nonpreemptible=True), fixed("w")], {"w": "NotAllowed"}),
    ("the strictest ancestor binds namespaces", [node("n", 4), queue("p", namespaces=NOBODY),
     queue("q", parent="p", namespaces=frozenset({"ns"})), job("w", gpus=1)], {"w": "NotAllowed"}),
    ("a namespace that is allowed at every ancestor is", [node("n", 4), queue("p", namespaces=frozenset({"ns", "x"})),
     queue("q", parent="p", namespaces=frozenset({"ns"})), job("w", gpus=1)], {"w": "n"}),
    ("who runs is not asked again what its queue allows", [node("n", 4), queue("q", namespaces=NOBODY),
     runs(job("r", gpus=1), "n")], {"r": "Keep"}),
    ("a hundred thousand pods are not too many to judge", [node("n", 4), queue("q"), job("w", gpus=1, count=100_000)],
     {"w": "NeverFits"}),
)


@CLAIMS
def test_claims_are_not_trusted(things, expected) -> None:
    meets(things, expected)


def test_a_selector_of_pools_is_no_reason_of_its_own() -> None:
    """No node of the pool: it never fits there, and says so."""
    none = Pool("default", (Expression("pool", "In", ("none",)),))
    meets([none, node("n", 4), queue("q"), job("w", gpus=1)], {"w": "NeverFits"})


def test_what_never_preempts_is_told_so_where_a_lower_priority_of_its_queue_runs() -> None:
    never, low = (("preemptionPolicy", (), None),), runs(job("low", gpus=2), "n")
    for preempts, priority, said in ((False, 1, never), (False, 0, ()), (True, 0, ())):
        waits = job("w", gpus=2, priority=priority, preempts=preempts)
        assert facts(node("n", 2), queue("q"), low, waits).shields == said
