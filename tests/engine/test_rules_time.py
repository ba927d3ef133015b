"""Time, rule by rule: limits, holds, backfill, reservations, and when the answer may change by itself."""

import pytest
from builders import NOW, job, meets, node, plan_of, queue, runs, snapshot_of, table, verdicts, world

from fairway.engine import Policy, decide, groups
from fairway.engine.model import GPU, Ended, Eviction, Ledger, Pool, Reservation, Sketch
from fairway.engine.plan import Admit, Keep, Reason
from fairway.engine.state import state_of
from fairway.policies import PRESETS

HOUR, DAY, WEEK = 3600.0, 86400.0, 604800.0


def fixed(name: str, gpus: float = 2, **fields):
    return job(name, gpus=gpus, preemptible=False, **fields)


def until(hours: float, name: str = "r", gpus: float = 2, *, at: str = "n", **fields):
    """It runs, and must be gone in so many hours."""
    fields.setdefault("priority", 9)
    return runs(job(name, gpus=gpus, time_limit=(hours + 1) * HOUR, **fields), at, since=NOW - HOUR)


LEARNED = Ledger(runtimes=((("", "train"), Sketch(tuple((HOUR * at, 1.0) for at in range(1, 21)))),))
SEEN = job("train-1", gpus=2), job("w", gpus=8)
KNOWN = Ledger(runtimes=tuple({name: Sketch(tuple((HOUR * at, 1.0) for at in range(1, 21))) for one in SEEN
                               for name in groups(one)}.items()))  # fmt: skip
"""A queue that goes by need has a patience of about 13 hours then."""
TAKEN = (Eviction(NOW - 1200, "HoldTaken", beneficiary="ns/v"),)

LIMITS = table(
    ("at its time limit a workload is finished", [node("n", 4), queue("q"), until(0)], {"r": "Finish"}),
    ("before it it runs on", [node("n", 4), queue("q"), until(0.1)], {"r": "Keep"}),
    ("what is not preemptible is finished, too", [node("n", 4), queue("q", 4), until(0, preemptible=False)],
     {"r": "Finish"}),
    ("a queue's default counts where nothing else is said",
     [node("n", 4), queue("q", default_time_limit=HOUR), runs(job("r", gpus=1), "n", since=NOW - HOUR)],
     {"r": "Finish"}),
    ("a queue's maximum counts where nothing else is said",
     [node("n", 4), queue("p", max_time_limit=HOUR), queue("q", parent="p"),
      runs(job("r", gpus=1), "n", since=NOW - HOUR)], {"r": "Finish"}),
    ("a limit above a queue's maximum is not allowed",
     [node("n", 4), queue("q", max_time_limit=HOUR), job("w", gpus=1, time_limit=HOUR + 1)], {"w": "NotAllowed"}),
    ("its own limit goes before the default",
     [node("n", 4), queue("q", default_time_limit=HOUR),
      runs(job("r", gpus=1, time_limit=2 * HOUR), "n", since=NOW - HOUR)], {"r": "Keep"}),
    ("what has reached its limit makes room in the same plan",
     [node("n", 2), queue("q"), until(0), job("w", gpus=2)], {"r": "Finish", "w": "n after r"}),
)


@LIMITS
def test_time_limits(things, expected) -> None:
    meets(things, expected)


HOLDS = table(
    ("who ends before the hold begins starts in front of it",
     [node("n", 4), queue("q", 9), until(1), job("w", gpus=4, priority=1), fixed("x", time_limit=HOUR)],
     {"w": "NoRoom", "x": "n"}),
    ("who may outlast its beginning waits for it",
     [node("n", 4), queue("q", 9), until(1), job("w", gpus=4, priority=1), fixed("x", time_limit=HOUR + 1)],
     {"w": "NoRoom", "x": "HeldFor"}),
    ("who uses none of what is held starts",
     [node("n", 4), node("m", 2), queue("q", 9), until(1), job("w", gpus=4, priority=1), fixed("x")],
     {"w": "NoRoom", "x": "m"}),
    ("where no time is known nobody is held up",
     [node("n", 4), queue("q", 9), runs(job("r", gpus=2), "n"), job("w", gpus=4, submitted=1), fixed("x", submitted=2)],
     {"w": "NoRoom", "x": "n"}),
    ("what is preemptible may start into a hold at its own risk",
     [node("n", 4), queue("q", 9), until(1), job("w", gpus=4, priority=1), job("x", gpus=2)],
     {"w": "NoRoom", "x": "n"}),
    ("but not where it would lose more work than it keeps: its kind runs for hours, the hold begins in half an hour",
     [node("n", 4), queue("q", 9, ledger=LEARNED), until(0.5), job("w", gpus=4, priority=1), job("train-7", gpus=2)],
     {"w": "NoRoom", "train-7": "HeldFor"}),
    ("it does where the hold begins in four hours, of which one at most is lost",
     [node("n", 4), queue("q", 9, ledger=LEARNED), until(4), job("w", gpus=4, priority=1), job("train-7", gpus=2)],
     {"w": "NoRoom", "train-7": "n"}),
    ("and where checkpoints keep most of half an hour",
     [node("n", 4), queue("q", 9, ledger=LEARNED), until(0.5), job("w", gpus=4, priority=1),
      job("train-7", gpus=2, checkpoint_interval=400.0)], {"w": "NoRoom", "train-7": "n"}),
    ("what was taken for a hold takes no such risk again before an hour is over",
     [node("n", 4), queue("q", 9), until(1), job("w", gpus=4, priority=1), job("x", gpus=2, evictions=TAKEN)],
     {"w": "NoRoom", "x": "HeldFor"}),
    ("or before as long is over as its checkpoints are apart",
     [node("n", 4), queue("q", 9), until(1), job("w", gpus=4, priority=1),
      job("x", gpus=2, evictions=TAKEN, checkpoint_interval=600.0)], {"w": "NoRoom", "x": "n"}),
    ("the held one takes it back, whatever its queue, priority or protection",
     [node("n", 4), queue("q"), queue("p", 4, min_runtime=DAY, preempt_min_runtime=DAY),
      runs(job("x", "p", 2, priority=9), "n", since=NOW - 60, backfilled_for="ns/w"), job("w", gpus=4)],
     {"w": "n after x", "x": "HoldTaken for w"}),
    ("nobody else may take it back",
     [node("n", 4), queue("q"), queue("p", 4, min_runtime=DAY),
      runs(job("x", "p", 2, priority=9), "n", since=NOW - 60, backfilled_for="ns/w"), job("v", gpus=4)],
     {"v": "NoRoom", "x": "Keep"}),
    ("nine in ten of its kind had ended by then",
     [node("n", 4), queue("q", 9, ledger=LEARNED), until(19), job("w", gpus=4, priority=1),
      fixed("train-7", priority=-1), fixed("other")], {"w": "NoRoom", "train-7": "n", "other": "HeldFor"}),
    ("what a user expects is no limit",
     [node("n", 4), queue("q", 9), until(1), job("w", gpus=4, priority=1), fixed("x", expected_runtime=60.0)],
     {"w": "NoRoom", "x": "HeldFor"}),
    ("who lacks quota gets no hold and delays nobody",
     [node("n", 4), queue("p", 0, 2), queue("q", 9), until(1), job("w", "p", 4, submitted=1), fixed("x", submitted=2)],
     {"w": "OverLimit", "x": "n"}),
    ("beyond the depth nothing is held",
     [node("n", 4), node("m", 4), queue("q", 9), until(1), until(1.5, "s", at="m"),
      job("v", gpus=4, priority=2), job("w", gpus=4, priority=1), fixed("x"), fixed("y")],
     {"v": "Fragmented", "w": "Fragmented", "x": "m", "y": "HeldFor"}),
    ("at depth -1 every blocked one gets a hold",
     [node("n", 4), node("m", 4), Pool("default", hold_depth=-1), queue("q", 9), until(1),
      until(1.5, "s", at="m"), job("v", gpus=4, priority=2),
      job("w", gpus=4, priority=1), fixed("x")], {"v": "Fragmented", "w": "Fragmented", "x": "HeldFor"}),
    ("of two holds one may count on the room that the other leaves when it takes back what started into it",
     [node("n", 4), Pool("default", hold_depth=2), queue("q", 9), until(1, "a", 1), until(1, "c", 2),
      runs(job("b", gpus=1, priority=9), "n", backfilled_for="ns/v"), job("v", gpus=2, priority=2),
      job("w", gpus=2, priority=1)], {"v": "NoRoom", "w": "NoRoom"}),
    ("at depth 0 nobody is held up",
     [node("n", 4), Pool("default", hold_depth=0), queue("q", 9), until(1), job("w", gpus=4, priority=1), fixed("x")],
     {"w": "NoRoom", "x": "n"}),
)


def gang(hours: float):
    """It needs both nodes, and has waited so long."""
    return job("w", gpus=4, count=2, priority=1, submitted=NOW - hours * HOUR)


def trains(at: str = "n"):
    return runs(job("train-7", gpus=2, priority=9), at, since=NOW - HOUR)


X, TWO = fixed("x", submitted=NOW, time_limit=30 * HOUR), [node("n", 4), node("m", 4), queue("q", 20, ledger=KNOWN)]
GANGS = table(
    ("room is kept for a gang that no node could hold once it has waited for its line's patience",
     [*TWO, trains(), gang(30), X], {"w": "NoRoom", "x": "HeldFor"}),
    ("before that what was learned keeps none for it", [*TWO, trains(), gang(2), X],
     {"w": "NoRoom", "x": "n"}),
    ("enforced limits do at once", [*TWO, until(3), gang(2), X], {"w": "NoRoom", "x": "HeldFor"}),
    ("but all that it waits for must have one", [*TWO, until(3), trains("m"), gang(2), X],
     {"w": "NoRoom", "x": "m"}),
    ("one that a node can hold need not wait", [*TWO[1:], trains("m"), job("w", gpus=4, priority=1), X],
     {"w": "NoRoom", "x": "HeldFor"}),
    ("nor one that has waited as long as its queue lets any wait",
     [*TWO[:2], queue("q", 20, ledger=KNOWN, max_wait=HOUR), trains(), gang(2), X],
     {"w": "NoRoom", "x": "HeldFor"}),
)  # fmt: skip


@GANGS
def test_holds_of_gangs_by_learned_runtimes(things, expected) -> None:
    meets(things, expected)


@HOLDS
def test_holds_and_backfill(things, expected) -> None:
    meets(things, expected)


def test_a_hold_says_when_and_the_plan_when_to_ask_again() -> None:
    plan = plan_of(node("n", 4), queue("q", 9), until(1), job("w", gpus=4))
    assert verdicts(plan)["w"].starts_at == NOW + HOUR and plan.again_at == NOW + HOUR


def test_the_earliest_time_is_told_at_which_enough_have_gone() -> None:
    ends = [until(hours, f"r{hours}", 1) for hours in (4, 3, 2, 1)]
    assert verdicts(plan_of(node("n", 4), queue("q", 9), *ends, job("w", gpus=3)))["w"].starts_at == NOW + 3 * HOUR


def test_what_starts_at_its_own_risk_says_for_whom() -> None:
    things = node("n", 4), queue("q", 9), until(1), job("w", gpus=4, priority=1), job("x", gpus=2)
    assert verdicts(plan_of(*things))["x"].backfilled_for == "ns/w"


def test_who_is_only_trusted_to_end_in_time_starts_into_a_hold_for_its_owner_to_take_back() -> None:
    things = node("n", 4), queue("q", 9, ledger=LEARNED), until(19), job("w", gpus=4, priority=1)
    plan = plan_of(*things, job("train-7", gpus=1), job("bound", gpus=1, time_limit=HOUR))
    assert verdicts(plan)["train-7"].backfilled_for == "ns/w"
    assert verdicts(plan)["bound"].backfilled_for == "", "it will be gone"


def kept(begins: float, lasts: float = 2 * HOUR, **fields) -> Reservation:
    """Of node n, so many seconds from now."""
    fields.setdefault("nodes", () if "amount" in fields else ("n",))
    return Reservation("kept", NOW + begins, lasts, **fields)


SOME = {"pool": "default", "amount": ((GPU, 3000),)}
WINDOWS = table(
    ("maintenance is for nobody", [node("n", 4), queue("q"), kept(-60), job("w", gpus=1)], {"w": "Reserved"}),
    ("a window that is over keeps nobody out", [node("n", 4), queue("q"), kept(-3 * HOUR), job("w", gpus=1)],
     {"w": "n"}),
    ("who ends before the window starts", [node("n", 4), queue("q", 4), kept(HOUR), fixed("w", time_limit=HOUR)],
     {"w": "n"}),
    ("who may outlast its beginning waits", [node("n", 4), queue("q", 4), kept(HOUR), fixed("w", time_limit=2 * HOUR)],
     {"w": "Reserved"}),
    ("what is preemptible may use it until then", [node("n", 4), queue("q"), kept(HOUR), job("w", gpus=1)],
     {"w": "n"}),
    ("but not if it could not be gone in time, its grace included",
     [node("n", 4), queue("q"), kept(60), job("w", gpus=1, grace=120.0), job("x", gpus=1, grace=30.0)],
     {"w": "Reserved", "x": "n"}),
    ("when the window begins within its grace it leaves",
     [node("n", 4), queue("q"), kept(20), runs(job("r", gpus=1), "n")], {"r": "Reserved"}),
    ("what is not preemptible stays",
     [node("n", 4), queue("q", 4), kept(-60), runs(fixed("r"), "n")], {"r": "Keep"}),
    ("the queue that it is for uses it", [node("n", 4), queue("q"), kept(-60, queue="q"), job("w", gpus=1)],
     {"w": "n"}),
    ("an amount keeps only so much", [node("n", 4), queue("p"), queue("q"), kept(-60, queue="p", **SOME),
     job("v", gpus=2), job("w", gpus=1)], {"v": "Reserved", "w": "n"}),
    ("what its queue uses already is part of it",
     [node("n", 4), queue("p"), queue("q"), kept(-60, queue="p", **SOME), runs(job("r", "p", 3), "n"),
      job("w", gpus=1)], {"w": "n", "r": "Keep"}),
    ("an amount is kept where its queue is already, and nobody leaves another node for it",
     [node("m", 4), node("n", 4), queue("p"), queue("q"), kept(-60, queue="p", **SOME), runs(job("r", "p", 4), "n"),
      *(runs(job(name, gpus=2), "m") for name in "st")], {"r": "Keep", "s": "Keep", "t": "Keep"}),
    ("what its queue holds on another node is part of it",
     [node("m", 4), node("n", 8), queue("p"), queue("q"), kept(-60, queue="p", **SOME), runs(job("r", "p", 3), "m"),
      job("w", gpus=8)], {"r": "Keep", "w": "n"}),
    ("nobody leaves for it while there is room elsewhere",
     [node("m", 8), node("n", 2), queue("q"), kept(-60, **SOME), runs(job("r", gpus=6), "m")], {"r": "Keep"}),
    ("what is reserved for a department is for its teams",
     [node("n", 4), queue("d"), queue("p", parent="d"), queue("q"), kept(-60, queue="d", **SOME), job("w", "p", 1),
      job("x", gpus=2)], {"w": "n", "x": "Reserved"}),
    ("a daily window comes again",
     [node("n", 4), queue("q"), kept(-3 * DAY - 60, repeat="Daily"), job("w", gpus=1)], {"w": "Reserved"}),
    ("a weekly window does not come daily",
     [node("n", 4), queue("q"), kept(-3 * DAY - 60, repeat="Weekly"), job("w", gpus=1)], {"w": "n"}),
    ("who makes room for another moves to none that is reserved",
     [node("m", 4), node("n", 8), queue("q", preempt_min_runtime=0), kept(-60, pool="default", amount=((GPU, 4000),)),
      *(runs(job(name, gpus=2), "m") for name in "rs"), job("w", gpus=1, count=6, priority=2)],
     {"r": "Keep", "s": "Preempted for w"}),
    ("only as many leave as are in the way",
     [node("n", 4), queue("p"), queue("q"), kept(-60, queue="p", **SOME),
      *(runs(job(name, gpus=1), "n", since=NOW - ago) for name, ago in (("r", 90.0), ("s", 60.0)))],
     {"r": "Keep", "s": "Reserved"}),
    ("and of those the lower priority first, whatever it loses",
     [node("n", 4), queue("p"), queue("q"), kept(-60, queue="p", **SOME),
      runs(job("r", gpus=1), "n", since=NOW - 90.0), runs(job("s", gpus=1, priority=1), "n", since=NOW - 60.0)],
     {"r": "Reserved", "s": "Keep"}),
    ("of those alike the youngest",
     [node("n", 4), queue("p"), queue("q"), kept(-60, queue="p", **SOME),
      *(runs(job(name, gpus=1, submitted=at), "n", since=NOW - 90.0) for at, name in enumerate("rs"))],
     {"r": "Keep", "s": "Reserved"}),
)


@WINDOWS
def test_reservations(things, expected) -> None:
    meets(things, expected)


@pytest.mark.parametrize(("reservation", "after"), [
    (kept(-HOUR), HOUR), (kept(HOUR), HOUR), (kept(-DAY - HOUR, repeat="Daily"), HOUR), (kept(-3 * HOUR), None),
])  # fmt: skip
def test_the_answer_changes_when_a_window_begins_or_ends(reservation: Reservation, after: float | None) -> None:
    again = plan_of(node("n", 4), queue("q"), reservation, fixed("w")).again_at
    assert again == (None if after is None else NOW + after)


def test_who_must_leave_before_a_window_is_looked_at_again_in_time() -> None:
    plan = plan_of(node("n", 4), queue("q"), kept(HOUR), runs(job("r", gpus=1, grace=40.0), "n"))
    assert plan.again_at == NOW + HOUR - 40


def test_the_answer_changes_when_one_has_waited_too_long() -> None:
    things = node("n", 4), queue("q", max_wait=HOUR), runs(job("r", gpus=4), "n"), job("w", gpus=4, submitted=NOW - 600)
    assert plan_of(*things).again_at == NOW + HOUR - 600


def test_who_may_wait_for_ever_wakes_nobody() -> None:
    things = node("n", 4), queue("p", max_wait=HOUR), queue("q"), runs(job("r", gpus=4), "n"), job("w", gpus=4)
    assert plan_of(*things).again_at is None


@pytest.mark.parametrize(("ran", "waited", "after"), [(900, 0, 2700), (900, 6 * 24 * HOUR - 60, 60)])
def test_the_answer_of_las_changes_when_one_passes_another_in_service(ran: float, waited: float, after: float) -> None:
    """A GPU-hour is the first level; after six days whoever waits goes first."""
    running = runs(job("r", gpus=1, submitted=NOW - ran), "n", since=NOW - ran)
    waits = job("w", gpus=1, submitted=NOW - waited)
    las = PRESETS["las"]
    seen = las.seen(snapshot_of(world(node("n", 1), queue("q"), running, waits)))
    assert decide(seen, las).again_at == NOW + after


def test_a_window_that_is_on_and_one_to_come_are_told_as_they_are() -> None:
    for begins, since in ((-60.0, None), (HOUR, NOW + HOUR)):
        told = verdicts(plan_of(node("n", 4), queue("q", 4), kept(begins), fixed("w")))["w"].facts
        assert (told.since, told.until) == (since, NOW + begins + 2 * HOUR)


def test_no_hold_runs_into_a_window() -> None:
    for ends, starts in ((0.5, NOW + HOUR / 2), (1, NOW + 4.5 * HOUR)):
        things = node("n", 4), queue("q", 9), until(ends, gpus=4), kept(2.5 * HOUR), fixed("w", 4, time_limit=2 * HOUR)
        assert verdicts(plan_of(*things))["w"].starts_at == starts


def test_what_starts_and_ends_before_a_window_gives_nothing_of_it_to_a_hold() -> None:
    first, second = fixed("v", 4, time_limit=HOUR / 2, priority=1), fixed("w", 4, time_limit=2 * HOUR)
    told = verdicts(plan_of(node("n", 4), queue("q", 9), kept(HOUR), first, second))
    assert isinstance(told["v"], Admit) and told["w"].starts_at == NOW + 3 * HOUR


GONE = table(
    ("what comes after others waits until they have succeeded",
     [node("n", 4), queue("q"), runs(job("r", gpus=1), "n"), job("w", gpus=1, after=("ns/r",))],
     {"w": "DependencyPending"}),
    ("what comes after a success starts", [node("n", 4), queue("q"), Ended("ns/r", True), job("w", gpus=1,
     after=("ns/r",))], {"w": "n"}),
    ("what comes after a failure fails", [node("n", 4), queue("q"), Ended("ns/r", False), job("w", gpus=1,
     after=("ns/r",))], {"w": "Finish"}),
    ("and so does, at once, what comes after that", [node("n", 4), queue("q"), Ended("ns/r", False),
     job("v", gpus=1, after=("ns/w",)), job("w", gpus=1, after=("ns/r",)), job("x", gpus=1, after=("ns/v",))],
     {"v": "Finish", "w": "Finish", "x": "Finish"}),
    ("who backs off waits", [node("n", 4), queue("q"), job("w", gpus=1, backs_off_until=NOW + 60)],
     {"w": "BackingOff"}),
    ("and no longer", [node("n", 4), queue("q"), job("w", gpus=1, backs_off_until=NOW)], {"w": "n"}),
    ("nodes it failed on are left out", [node("m", 4), node("n", 4), queue("q"), job("w", gpus=1,
     excluded_nodes=("m",))], {"w": "n"}),
    ("so they are while another could hold it", [node("m", 4), node("n", 4), queue("q"), runs(job("r", gpus=4), "n"),
     job("w", gpus=1, excluded_nodes=("m",))], {"w": "NoRoom"}),
    ("it is tried again where no other could: there is none", [node("n", 4), queue("q"), job("w", gpus=1,
     excluded_nodes=("n",))], {"w": "n"}),
    ("or the other is too small", [node("m", 1), node("n", 4), queue("q"), job("w", gpus=2,
     excluded_nodes=("n",))], {"w": "n"}),
    ("or not ready", [node("m", 4, is_ready=False), node("n", 4), queue("q"), job("w", gpus=2,
     excluded_nodes=("n",))], {"w": "n"}),
    ("or a gang needs both", [node("m", 4), node("n", 4), queue("q"), job("w", gpus=4, count=2,
     excluded_nodes=("n",))], {"w": "m+n"}),
    ("a node that is not ready is lost, who can goes on elsewhere",
     [node("n", 4, is_ready=False), node("m", 4), queue("q"), runs(job("r", gpus=2), "n")], {"r": "NodeLost to m"}),
    ("an unhealthy node drains, who cannot waits again",
     [node("n", 4, is_unhealthy=True), queue("q", 4), runs(fixed("r"), "n")], {"r": "Drained"}),
    ("a cordoned node keeps what runs", [node("n", 4, is_unschedulable=True), queue("q"), runs(job("r", gpus=2), "n")],
     {"r": "Keep"}),
    ("a node that is gone is lost", [node("m", 4), queue("q"), runs(job("r", gpus=2), "n")], {"r": "NodeLost"}),
    ("a gang that lost a pod restarts whole",
     [node("n", 4), queue("q"), runs(job("g", gpus=1, count=3), ("n", 2), lost=(("main", 1),))], {"g": "PodsLost"}),
    ("a gang that lost a pod on a cordoned node was drained",
     [node("n", 4, is_unschedulable=True), queue("q"), runs(job("g", gpus=1, count=3), ("n", 2), lost=(("main", 1),))],
     {"g": "Drained"}),
    ("a gang that restarts pods is completed before others start",
     [node("n", 4), queue("q"), runs(job("g", gpus=1, count=3, restart="Pod"), ("n", 2), lost=(("main", 1),)),
      job("w", gpus=2, priority=9)], {"g": "2->3", "w": "NoRoom"}),
    ("who is suspended stops", [node("n", 4), queue("q"), runs(job("r", gpus=1, is_active=False), "n")],
     {"r": "Suspended"}),
)


@GONE
def test_what_is_released(things, expected) -> None:
    meets(things, expected)


@pytest.mark.parametrize(("since", "said"), [(NOW - 59, "Keep"), (NOW - 60, "PodsLost")], ids=[
    "lost pods have a minute to find a place", "after it the gang is evicted whole"])
def test_lost_pods(since: float, said: str) -> None:
    lost = runs(job("g", gpus=1, count=3, restart="Pod"), ("n", 2), lost=(("main", 1),), lost_since=since)
    meets([node("n", 2), queue("q"), lost], {"g": said})


SHORT = runs(job("g", gpus=1, count=3, restart="Pod"), ("n", 2), lost=(("main", 1),), lost_since=NOW)

LOST = table(
    ("lost pods come back within the limit alone",
     [node("n", 8), queue("q", 0, 3), SHORT, runs(job("o", gpus=1), "n")], {"g": "Keep", "o": "Keep"}),
    ("while they may come back nobody takes their quota",
     [node("n", 2), node("m", 2), queue("q", 0, 3), SHORT, job("w", gpus=1)], {"g": "2->3", "w": "OverLimit"}),
    ("they come back before others make room",
     [node("n", 4), queue("q"), SHORT, job("w", gpus=1, priority=1), runs(job("v", gpus=1), "n")],
     {"g": "2->3", "w": "n after v", "v": "Preempted for w"}),
    ("who goes on elsewhere is whole there",
     [node("n", 2, is_ready=False), node("m", 4), queue("q", 0, 3), SHORT], {"g": "NodeLost to m*3"}),
    ("if the limits let it",
     [node("n", 2, is_ready=False), node("m", 4), queue("q", 0, 3), SHORT, runs(job("o", gpus=1), "m")],
     {"g": "NodeLost"}),
    ("nor while they find no place",
     [node("n", 2), node("m", 2, is_unschedulable=True), node("k", 4, labels={"disk": "ssd"}), queue("q", 0, 3),
      runs(job("g", gpus=1, count=3, restart="Pod", pod={"node_selector": (("disk", "hdd"),)}), ("n", 2),
           lost=(("main", 1),), lost_since=NOW), job("w", gpus=1)], {"g": "Keep", "w": "OverLimit"}),
)


@LOST
def test_what_lost_pods_count(things, expected) -> None:
    meets(things, expected)


def test_who_is_complete_again_asks_for_no_more() -> None:
    state = state_of(world(node("n", 8), queue("q"), SHORT))
    state.assume(decide(state.snapshot(NOW), Policy()))
    assert [type(verdict) for verdict in decide(state.snapshot(NOW), Policy()).verdicts] == [Keep]


def test_a_conservative_policy_holds_for_all() -> None:
    from fairway.policies import PRESETS

    things = node("n", 4), queue("q", 9), until(1), job("v", gpus=4, submitted=1), job("w", gpus=4, submitted=2)
    plan = verdicts(plan_of(*things, policy=PRESETS["conservative"]))
    assert Policy() != PRESETS["conservative"] and plan["v"].starts_at is not None


def test_a_start_at_its_own_risk_delays_the_first_hold_alone() -> None:
    """Only its owner could take the room back: of two holds a start into both would leave one delayed for good."""
    full, half = until(1, "a", gpus=4), until(2, "b", at="m")
    things = (node("n", 4), node("m", 4), Pool("default", hold_depth=-1), queue("q"), full, half)
    plan = plan_of(*things, job("v", gpus=4), job("w", gpus=4, submitted=1.0), job("x", gpus=2, submitted=2.0))
    assert verdicts(plan)["x"].reason == Reason.HELD_FOR
