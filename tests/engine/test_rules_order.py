"""Order, rule by rule: the nine keys between queues, the orders inside one, ageing, and what a blocked head stops."""

import pytest
from builders import NOW, job, judged, meets, node, plan_of, queue, runs, table
from test_quota import used

from fairway.engine.model import Decayed, Expression, Ledger, Pool, Sketch
from fairway.engine.plan import Admit
from fairway.policies import PRESETS

HOUR = 3600.0


def started(*things) -> str:
    """Those that start, in the order decided."""
    return " ".join(one.workload[3:] for one in plan_of(*things).verdicts if isinstance(one, Admit))


def many(name: str, count: int, gpus: float = 1, **fields):
    return [job(f"{name}{at}", name, gpus, submitted=at, **fields) for at in range(count)]


KEYS = {
    "who is not above its share comes before who is": (
        [node("n", 6), queue("a", 0, created=1), queue("b", 0, created=2), runs(job("r", "a", 4), "n"), *many("a", 2),
         *many("b", 4)], "b0 b1"),
    "a head within guaranteed comes before higher queue priority": (
        [node("n", 4), queue("a", 0, priority=9), queue("b", 1), *many("a", 1), *many("b", 1)], "b0 a0"),
    "within guaranteed means in all that is governed, not in some": (
        [node("n", 4), queue("a", 4, cpu=(0, None), created=1), queue("b", 4, cpu=(4, None), created=2),
         *many("a", 1, cpu=1), *many("b", 1, cpu=1)], "b0 a0"),
    "a higher queue priority comes first": (
        [node("n", 4), queue("a", 0, created=1), queue("b", 0, created=2, priority=1), *many("a", 1), *many("b", 1)],
        "b0 a0"),
    "who has no share in what it would use comes last": (
        [node("n", 4), queue("a", 0, weight=0, created=1), queue("b", 0, created=2), runs(job("r", "b", 1), "n"),
         *many("a", 1), *many("b", 1)], "b0 a0"),
    "then the smaller dominant part of its share, counted with the head": (
        [node("n", 8), queue("a", 0, created=1), queue("b", 0, created=2), *many("a", 2, 3), *many("b", 6)],
        "b0 b1 a0 b2 b3 b4"),
    "then the smaller part of the entitlement, the larger of guaranteed and share": (
        [node("n", 4), queue("a", 8, created=2), queue("b", 4, created=1), *many("a", 4), *many("b", 4)],
        "a0 b0 a1 a2"),
    "then the smaller part without the head": (
        [node("n", 8), queue("b", 0, created=1), queue("a", 0, created=2), runs(job("r", "a", 1), "n"),
         runs(job("s", "b", 2), "n"), job("x", "a", 2, submitted=-1), job("y", "b", 1, submitted=-1),
         *many("a", 4), *many("b", 4)], "x"),
    "then the smaller share": (
        [node("n", 8), queue("a", 0, weight=3, created=1), queue("b", 0, created=2), *many("a", 3, 3), *many("b", 4)],
        "b0 a0 b1 a1"),
    "then the older queue": (
        [node("n", 4), queue("a", 0, created=2), queue("b", 0, created=1), *many("a", 4), *many("b", 4)],
        "b0 a0 b1 a1"),
    "then the first by name": ([node("n", 4), queue("b", 0), queue("a", 0), *many("a", 4), *many("b", 4)],
                               "a0 b0 a1 b1"),
    "which root comes first, then which child": (
        [node("n", 8), queue("p", 4), queue("q", 4), queue("a", 2, parent="p"), queue("b", 2, parent="p"),
         queue("c", 4, parent="q"), runs(job("r", "a", 2), "n"), *many("a", 1), *many("b", 1), *many("c", 3)],
        "c0 c1 c2 b0 a0"),
    "a parent that governs nothing that its head asks for counts as the queue of the head": (
        [node("n", 6), queue("p", cpu=(9, None), created=1), queue("a", 0, parent="p"), queue("b", 0, created=2),
         runs(job("r", "a", 4), "n"), *many("a", 2), *many("b", 4)], "b0 b1"),
    "of two resources the one counts of which a queue has more": (
        [node("n", 8, cpu=32), queue("a", 0, cpu=(0, None), created=1), queue("b", 0, cpu=(0, None), created=2),
         *many("a", 9, 1, cpu=8), *many("b", 9, 2, cpu=1)], "a0 b0 a1 b1 a2"),
    "the keys are those of the first pool that its queues allow": (
        [node("n", 2, labels={"pool": "h"}), node("m", 2), Pool("a", (Expression("pool", "DoesNotExist"),)),
         Pool("h", (Expression("pool", "Exists"),)), queue("top", pools=("h",)),
         queue("x", 0, pool="h", parent="top", created=1), queue("y", 2, pool="h", parent="top", created=2),
         *many("x", 1, 2), *many("y", 1, 2)], "y0"),
    "a pool that is not there is none": (
        [node("n", 2), queue("x", 0, pool="default", created=1), queue("y", 2, pool="default", created=2),
         *many("x", 1, 2, pools=("gone", "default")), *many("y", 1, 2, pools=("gone", "default"))], "y0"),
    "ungoverned queues go by priority, age and name": (
        [node("n", 4), queue("a", created=2), queue("b", created=1), queue("c", priority=1, created=3), *many("a", 1),
         *many("b", 1), *many("c", 1)], "c0 b0 a0"),
}


@pytest.mark.parametrize(("things", "expected"), KEYS.values(), ids=KEYS)
def test_which_queue_is_next(things, expected: str) -> None:
    assert f"{started(*things)} ".startswith(f"{expected} ")


def one(name: str, **fields):
    return job(name, gpus=2, **fields)


SPENT = Ledger(users=(("ann", Decayed(9000.0, NOW)), ("bob", Decayed(5000.0, NOW)), ("cy", Decayed(9e6, NOW - 9e6))))
LONG, SHORT = (9 * HOUR, 30.0), (10.0, 30.0)
LEARNED = Ledger(runtimes=((("", ""), Sketch((SHORT, LONG))), (("", "long"), Sketch((LONG,))),
                           (("", "short"), Sketch((SHORT,)))))  # fmt: skip
"""GPUs are taken for 9 hours by one workload, on the mean over their time."""
BLURRED = Ledger(runtimes=tuple((group, Sketch((SHORT, LONG))) for group in (("", ""), ("", "long"), ("", "short"))))
"""Runtimes as different within each name as between names."""
HALVES = node("n", 2), node("m", 2), node("k", 2), queue("q", ledger=LEARNED)
FRESH = tuple(one(f"short-{at}", count=2, submitted=NOW - 10 + at) for at in range(1, 4))

WITHIN = table(
    ("the higher priority is first", [node("n", 2), queue("q"), one("a"), one("b", priority=1)],
     {"a": "NoRoom", "b": "n"}),
    ("of equals the one that needs least by what was learned of its kind",
     [node("n", 2), queue("q", ledger=LEARNED), one("long-1", submitted=NOW - 20), one("short-1", submitted=NOW - 10)],
     {"long-1": "NoRoom", "short-1": "n"}),
    ("who came first, where what was learned tells nothing of how long one runs",
     [node("n", 2), queue("q", ledger=BLURRED), one("long-1", submitted=NOW - 20),
      job("short-1", gpus=1, submitted=NOW - 10)], {"long-1": "n", "short-1": "NoRoom"}),
    ("priority before what was learned",
     [node("n", 2), queue("q", ledger=LEARNED), one("long-1", submitted=NOW - 20, priority=1),
      one("short-1", submitted=NOW - 10)], {"long-1": "n", "short-1": "NoRoom"}),
    ("of one kind who came first",
     [node("n", 2), queue("q", ledger=LEARNED), one("long-1", submitted=NOW - 20), one("long-2", submitted=NOW - 10)],
     {"long-1": "n", "long-2": "NoRoom"}),
    ("what waits counts as needing less",
     [node("n", 2), queue("q", ledger=LEARNED), one("long-1", submitted=NOW - 900 * HOUR),
      one("short-1", submitted=NOW - 10)], {"long-1": "n", "short-1": "NoRoom"}),
    ("a gang that no node could hold goes first after twice the time that GPUs of its queue are taken",
     [node("n", 2), node("m", 2), queue("q", ledger=LEARNED), one("long-1", count=2, submitted=NOW - 18.1 * HOUR),
      *FRESH], {"long-1": "m+n", "short-1": "NoRoom"}),
    ("before that it does not",
     [node("n", 2), node("m", 2), queue("q", ledger=LEARNED), one("long-1", count=2, submitted=NOW - 17.9 * HOUR),
      *FRESH], {"long-1": "NoRoom", "short-1": "m+n"}),
    ("nor before it where those that run have taken their GPUs for longer, on the mean over their GPU-time",
     [*HALVES, runs(job("r", gpus=1), "k", since=NOW - 10 * HOUR), one("long-1", count=2, submitted=NOW - 18.1 * HOUR),
      *FRESH], {"long-1": "NoRoom", "short-1": "m+n"}),
    ("what has just started alters nothing of that",
     [*HALVES, runs(job("r", gpus=1), "k", since=NOW - 10 * HOUR), runs(job("s", gpus=1), "k", since=NOW),
      one("long-1", count=2, submitted=NOW - 18.1 * HOUR), *FRESH], {"long-1": "NoRoom", "short-1": "m+n"}),
    ("nor does a gang that a node could hold",
     [node("n", 4), queue("q", ledger=LEARNED), one("long-1", count=2, submitted=NOW - 18.1 * HOUR), *FRESH],
     {"long-1": "NoRoom", "short-1": "n*2"}),
    ("nor where all in line have waited as long",
     [node("n", 2), node("m", 2), queue("q", ledger=LEARNED), one("long-1", count=2, submitted=NOW - 18.1 * HOUR),
      *(one(f"short-{at}", count=2, submitted=NOW - 18 * HOUR) for at in range(1, 4))],
     {"long-1": "NoRoom", "short-1": "m+n"}),
    ("one such gang at a time",
     [node("n", 2), node("m", 2), node("k", 2), node("l", 2), queue("q", ledger=LEARNED),
      one("long-1", count=2, submitted=NOW - 18.4 * HOUR), one("long-2", count=2, submitted=NOW - 18.1 * HOUR),
      *FRESH, one("short-4", count=2, submitted=NOW)], {"long-1": "k+l", "long-2": "NoRoom", "short-1": "m+n"}),
    ("priority before a gang that waited long",
     [node("n", 2), node("m", 2), queue("q", ledger=LEARNED), one("long-1", count=2, submitted=NOW - 18.4 * HOUR),
      one("b", count=2, priority=1, submitted=NOW), *FRESH], {"long-1": "NoRoom", "b": "m+n"}),
    ("of one priority who came first", [node("n", 2), queue("q"), one("a", submitted=2), one("b", submitted=1)],
     {"a": "NoRoom", "b": "n"}),
    ("of one moment the first by name", [node("n", 2), queue("q"), one("b"), one("a")], {"b": "NoRoom", "a": "n"}),
    ("a blocked head stops nobody behind it",
     [node("n", 4), queue("q"), runs(one("r"), "n"), job("a", gpus=4, submitted=1), one("b", submitted=2)],
     {"a": "NoRoom", "b": "n"}),
    ("in a FIFO queue the blocked head stops all behind it, of whatever priority",
     [node("n", 4), queue("q", order="FIFO"), runs(one("r"), "n"), job("a", gpus=4, submitted=1),
      one("b", submitted=2, priority=9)], {"a": "NoRoom", "b": "HeldFor"}),
    ("a FIFO queue stops no other queue",
     [node("n", 4), queue("q", order="FIFO"), queue("p"), runs(one("r"), "n"), job("a", gpus=4, submitted=1),
      job("b", "p", 2)], {"a": "NoRoom", "b": "n"}),
    ("nobody starts in front of the hold of a FIFO queue's head",
     [node("n", 4), queue("q", order="FIFO"), runs(one("r", time_limit=2 * HOUR), "n", since=NOW - HOUR),
      job("a", gpus=4, submitted=1), one("b", submitted=2, time_limit=60.0)], {"a": "NoRoom", "b": "HeldFor"}),
    ("a FIFO queue waits also for whom no node could hold that is there now",
     [node("n", 4), queue("q", order="FIFO"), job("a", gpus=8, submitted=1), one("b", submitted=2)],
     {"a": "NeverFits", "b": "HeldFor"}),
    ("what comes after others does not stop a FIFO queue",
     [node("n", 4), queue("q", order="FIFO"), one("a", submitted=1, after=("ns/b",)), one("b", submitted=2)],
     {"a": "DependencyPending", "b": "n"}),
    ("who backs off does not stop a FIFO queue",
     [node("n", 4), queue("q", order="FIFO"), one("a", submitted=1, backs_off_until=NOW + 9), one("b", submitted=2)],
     {"a": "BackingOff", "b": "n"}),
    ("a FIFO queue goes by submission alone",
     [node("n", 2), queue("q", order="FIFO"), one("a", submitted=1), one("b", submitted=2, priority=9)],
     {"a": "n", "b": "NoRoom"}),
    ("the shortest by its time limit",
     [node("n", 2), queue("q", order="ShortestFirst"), one("a", time_limit=9 * HOUR), one("b", time_limit=HOUR)],
     {"a": "NoRoom", "b": "n"}),
    ("what is expected only lengthens the limit",
     [node("n", 2), queue("q", order="ShortestFirst"), one("a", time_limit=9 * HOUR, expected_runtime=60.0),
      one("b", time_limit=HOUR, expected_runtime=2 * HOUR)], {"a": "NoRoom", "b": "n"}),
    ("what a user expects is no reason to be first",
     [node("n", 2), queue("q", order="ShortestFirst"), one("a", time_limit=HOUR),
      one("b", expected_runtime=1.0)], {"a": "n", "b": "NoRoom"}),
    ("what a queue expects is, and a user's word only lengthens it",
     [node("n", 4), queue("q", order="ShortestFirst", expected_runtime=60.0), one("a", time_limit=HOUR, submitted=1),
      one("b", submitted=4), one("c", expected_runtime=1.0, submitted=3),
      one("d", expected_runtime=2 * HOUR, submitted=2)], {"a": "NoRoom", "b": "n", "c": "n", "d": "NoRoom"}),
    ("a deadline is the nearer the longer a user expects to run",
     [node("n", 2), queue("q"), one("a", deadline=NOW + 8 * HOUR, submitted=1),
      one("b", deadline=NOW + 9 * HOUR, expected_runtime=2 * HOUR, submitted=2)], {"a": "NoRoom", "b": "n"}),
    ("the shortest by what was learned of its name",
     [node("n", 2), queue("q", order="ShortestFirst", ledger=LEARNED), one("long-1", submitted=1),
      one("short-1", submitted=2)], {"long-1": "NoRoom", "short-1": "n"}),
    ("who waited too long is before the shortest",
     [node("n", 2), queue("q", order="ShortestFirst", max_wait=HOUR),
      one("a", time_limit=9 * HOUR, submitted=NOW - HOUR), one("b", time_limit=HOUR, submitted=NOW)],
     {"a": "n", "b": "NoRoom"}),
    ("the least served", [node("n", 2), queue("q", order="LeastAttained"), one("a", attained=9e3, submitted=1),
     one("b", attained=1e3, submitted=2)], {"a": "NoRoom", "b": "n"}),
    ("served in one power of two is equally served",
     [node("n", 2), queue("q", order="LeastAttained"), one("a", attained=1000.0, submitted=1),
      one("b", attained=600.0, submitted=2)], {"a": "n", "b": "NoRoom"}),
    ("the user furthest below an equal part",
     [node("n", 2), queue("q", order="FairUsers", ledger=SPENT), one("a", user="ann", priority=9, submitted=1),
      one("b", user="bob", submitted=2)], {"a": "NoRoom", "b": "n"}),
    ("what a user had long ago has decayed",
     [node("n", 2), queue("q", order="FairUsers", ledger=SPENT), one("a", user="ann", submitted=1),
      one("b", user="cy", submitted=2)], {"a": "NoRoom", "b": "n"}),
    ("a user who had nothing is first",
     [node("n", 2), queue("q", order="FairUsers", ledger=SPENT), one("a", user="bob", submitted=1),
      one("b", user="dan", submitted=2)], {"a": "NoRoom", "b": "n"}),
    ("of one user the higher priority",
     [node("n", 2), queue("q", order="FairUsers", ledger=SPENT), one("a", user="ann", submitted=1),
      one("b", user="ann", priority=1, submitted=2)], {"a": "NoRoom", "b": "n"}),
    ("the deadline with the least slack",
     [node("n", 2), queue("q"), one("a", deadline=NOW + 9 * HOUR, time_limit=HOUR, submitted=1),
      one("b", deadline=NOW + 9 * HOUR, time_limit=8 * HOUR, submitted=2)], {"a": "NoRoom", "b": "n"}),
    ("a deadline before none", [node("n", 2), queue("q"), one("a", submitted=1), one("b", deadline=NOW + 9 * HOUR)],
     {"a": "NoRoom", "b": "n"}),
    ("priority before a deadline",
     [node("n", 2), queue("q"), one("a", priority=1), one("b", deadline=NOW + HOUR)], {"a": "n", "b": "NoRoom"}),
)


@WITHIN
def test_who_is_next_in_a_queue(things, expected) -> None:
    meets(things, expected)


AGEING = table(
    ("after maxWait a workload is before every priority",
     [node("n", 2), queue("q", max_wait=HOUR), one("a", submitted=NOW - HOUR), one("b", submitted=NOW, priority=9)],
     {"a": "n", "b": "NoRoom"}),
    ("maxWait is inherited",
     [node("n", 2), queue("p", max_wait=HOUR), queue("q", parent="p"), one("a", submitted=NOW - HOUR),
      one("b", submitted=NOW, priority=9)], {"a": "n", "b": "NoRoom"}),
    ("before it a workload is as any other",
     [node("n", 2), queue("q", max_wait=HOUR), one("a", submitted=NOW - HOUR + 1),
      one("b", submitted=NOW, priority=9)], {"a": "NoRoom", "b": "n"}),
    ("who has aged gets a hold where none are made",
     [node("n", 4), Pool("default", hold_depth=0), queue("q", 4, max_wait=HOUR),
      runs(one("r", time_limit=HOUR), "n", since=NOW), job("a", gpus=4, submitted=NOW - HOUR),
      one("b", submitted=NOW, preemptible=False)], {"a": "NoRoom", "b": "HeldFor"}),
    ("an evicted workload is back at its old place",
     [node("n", 2), queue("q"), one("a", submitted=1, attained=9e9), one("b", submitted=2)], {"a": "n", "b": "NoRoom"}),
)


@AGEING
def test_ageing(things, expected) -> None:
    meets(things, expected)


PAIR = node("n", 2), node("m", 2), queue("q")
HAD = 10 * HOUR
"""For how long somebody has run before."""


def waited(hours: float, gpus: float) -> dict[str, float]:
    return {"submitted": NOW - HAD - hours * HOUR, "attained": HAD * gpus}


LAS = table(
    ("whoever has had least goes first",
     [*PAIR, one("a", count=2, **waited(95, 4)), one("b", count=2, submitted=NOW)], {"a": "NoRoom", "b": "m+n"}),
    ("a gang that no node could hold does after four days of waiting",
     [*PAIR, one("a", count=2, **waited(97, 4)), one("b", count=2, submitted=NOW)], {"a": "m+n", "b": "NoRoom"}),
    ("what a node could hold does after six",
     [node("n", 2), queue("q"), one("a", **waited(97, 2)), one("b", submitted=NOW), one("c", **waited(145, 2))],
     {"a": "NoRoom", "b": "NoRoom", "c": "n"}),
    ("of those the first, until a quarter of the GPUs are theirs",
     [node("n", 4), queue("q"), one("a", **waited(145, 2)), one("b", submitted=NOW), one("c", **waited(146, 2))],
     {"a": "NoRoom", "b": "n", "c": "n"}),
)


@LAS
def test_least_attained_service(things, expected) -> None:
    found = judged(*things, policy=PRESETS["las"])
    assert {name: found[name] for name in expected} == expected


def test_a_trace_in_strict_order_goes_on_past_what_never_fits() -> None:
    things = [node("n", 4), queue("q"), job("a", gpus=8, submitted=1), one("b", submitted=2)]
    assert judged(*things, policy=PRESETS["strict-fifo"]) == {"a": "NeverFits", "b": "n"}


def test_history_moves_the_surplus_and_with_it_the_order() -> None:
    things = [node("n", 8), queue("a", 0, ledger=used(8), created=1), queue("b", 0, created=2), *many("a", 9),
              *many("b", 9)]
    names = started(*things).split()
    assert [sum(name[0] == queue_of for name in names) for queue_of in "ab"] == [2, 6]
