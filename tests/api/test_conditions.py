"""Verdicts in words: true to the facts, for readers of one namespace."""

from dataclasses import replace

import pytest

from fairway.api.conditions import ended, is_warning, kept_from, names, reason, sentence, waiting
from fairway.api.forms.form import Outcome
from fairway.api.objects import ContainerState, ContainerStatus, Metadata, PodObject, PodStatus, Terminated
from fairway.engine.model import Admission, Expression, NodeShare, PodSetPlacement, Taint, Workload
from fairway.engine.plan import (
    Admit,
    Bar,
    Cause,
    Census,
    Dependency,
    Ending,
    Evict,
    Facts,
    Finish,
    Keep,
    Obstacle,
    Reason,
    Resize,
    Rule,
    Spending,
    Wait,
)

READER = Workload("ns/me", "nlp", ())
QUEUES = {"ns/a": "nlp", "ns/b": "nlp", "x/1": "vision", "x/2": "vision", "x/3": "vision", "y/1": "nlp"}
GPU = "nvidia.com/gpu"


def said(why, **facts):
    return waiting(Wait("ns/me", why, Facts(**facts)), READER, QUEUES)


def test_the_example_of_the_interfaces_is_said_so():
    text = said(
        Reason.NO_DOMAIN,
        resource=GPU,
        needed=8000,
        most_free=6000,
        level="fairway.dev/rack",
        domain="r3",
        blocking=("ns/a", "ns/b"),
    )
    assert text == "needs 8 GPUs in one rack; the most free in any is 6 (rack r3); a and b hold it there"


@pytest.mark.parametrize(("resource", "detail", "held"), [
    (GPU, "GPU 1, 3", "GPU 1, 3"), ("memory", "", "memory"), ("cpu", "", "CPUs"),
])  # fmt: skip
def test_what_a_paused_workload_waits_for_is_named(resource: str, detail: str, held: str) -> None:
    there = Admission("default", (PodSetPlacement("main", (NodeShare("n1", 1),)),))
    facts = Facts(resource=resource, needed=2000, blocking=("ns/a", "ns/b"), detail=detail)
    text = waiting(Wait("ns/me", Reason.NO_ROOM, facts), replace(READER, paused=there, on_disk=True), QUEUES)
    assert text.startswith("paused on disk, on n1; needs ") and text.endswith(f"; a and b hold {held}")


@pytest.mark.parametrize(
    "why, facts, text",
    [
        (Reason.QUEUE_NOT_FOUND, {}, "there is no queue nlp"),
        (
            Reason.NOT_ALLOWED,
            {"queue": "top", "rule": Rule.MAX_PRIORITY, "detail": "-1"},
            "queue top does not take it: its priority 0 is above -1; choose a lower class",
        ),
        (
            Reason.QUEUE_INVALID,
            {"queue": "top", "rule": Rule.CHILDREN, "detail": "nlp, vision"},
            "queue top holds no workloads, only the queues below it do: nlp, vision; move it to one of these",
        ),
        (
            Reason.NOT_ALLOWED,
            {"queue": "top", "rule": Rule.NAMESPACES},
            "queue top does not take it: it is of namespace ns, which the queue does not admit; "
            "submit it to another queue",
        ),
        (Reason.LEVEL_UNKNOWN, {"level": "rack"}, "no pool it may use has the topology level rack"),
        (
            Reason.NEVER_FITS,
            {"resource": GPU, "needed": 9000, "most_free": 8000, "domain": "n1"},
            "needs 9 GPUs; the most that any has is 8 (node n1); it would not fit if nothing else ran",
        ),
        (Reason.BACKING_OFF, {"until": 0.0}, "it failed to start and is not tried again until 1970-01-01T00:00:00Z"),
        (
            Reason.OVER_LIMIT,
            {
                "resource": GPU,
                "needed": 4000,
                "missing": 2000,
                "queue": "top",
                "bounds": {GPU: 8000},
                "used": {GPU: 6000},
            },
            "needs 4 GPUs; queue top would be over its limit of 8 GPUs by 2 (6 in use)",
        ),
        (
            Reason.OVER_GUARANTEED,
            {
                "resource": "memory",
                "needed": 2**31,
                "missing": 2**30,
                "bounds": {"memory": 2**30},
                "used": {"memory": 0},
            },
            "needs 2 GiB of memory; it is not preemptible, and "
            "queue nlp would be over its guarantee of 1 GiB of memory by 1 GiB (0 bytes in use)",
        ),
        (
            Reason.NO_ROOM,
            {"resource": GPU, "needed": 500, "missing": 250, "pool": "h100"},
            "needs 0.5 GPU; 0.25 is missing in pool h100",
        ),
        (
            Reason.NO_ROOM,
            {"resource": GPU, "needed": 2000, "missing": 1000, "pool": "h100", "shunned": ("n1", "n2")},
            "needs 2 GPUs on other nodes than n1, n2, where it failed; 1 is missing in pool h100",
        ),
        (Reason.NEVER_FITS, {"detail": "pools ghost"}, "there is no pool that it may use: pools ghost"),
        (
            Reason.OVER_SHARE,
            {"bounds": {GPU: 1000}, "used": {GPU: 500}},
            "with it queue nlp would exceed its share of 1 GPU (0.5 in use), so it reclaims nothing; needs a place",
        ),
        (
            Reason.FRAGMENTED,
            {"resource": GPU, "needed": 8000, "most_free": 4000, "would_fit": {"main": 1}},
            "needs 8 GPUs; the most free in any is 4; together there is enough; "
            "with 1 pod of main it would start now",
        ),
        (
            Reason.RESERVED,
            {"since": 60.0, "until": 120.0, "shorter_limit": 30.0},
            "needs a place; the room is reserved for maintenance from 1970-01-01T00:01:00Z until 1970-01-01T00:02:00Z; "
            "with a time limit of 30 s it would start now",
        ),
        (
            Reason.RESERVED,
            {"until": 120.0, "queue": "top"},
            "needs a place; the room is reserved for queue top until 1970-01-01T00:02:00Z",
        ),
        (
            Reason.DEPENDENCY_PENDING,
            {"blocking": ("ns/a",), "detail": "ns/a"},
            "it comes after workloads that have not succeeded: a",
        ),
        (
            Reason.DEPENDENCY_PENDING,
            {"blocking": ("ns/job-a",), "detail": "ns/job-a", "dependency": Dependency.MISSING},
            "it comes after a, which does not exist",
        ),
        (
            Reason.DEPENDENCY_PENDING,
            {"blocking": ("ns/job-a, which is suspended",), "dependency": Dependency.MISSING},
            "it comes after a, which is suspended",
        ),
        (
            Reason.DEPENDENCY_PENDING,
            {"blocking": ("ns/a, which is workload/a or workload/job-a: say which",), "dependency": Dependency.MISSING},
            "it comes after a, which is workload/a or workload/job-a: say which",
        ),
        (
            Reason.DEPENDENCY_PENDING,
            {"blocking": ("ns/a",), "dependency": Dependency.RUNNING},
            "it comes after a, which has not ended",
        ),
        (
            Reason.DEPENDENCY_PENDING,
            {"blocking": ("ns/a", "ns/b"), "detail": "ns/a", "dependency": Dependency.CIRCULAR},
            "it comes after a, which comes after b, which comes after it: none of them can start; "
            "`fairway modify me --after none` lets it go first",
        ),
        (
            Reason.BUDGET_SPENT,
            {"spending": Spending(18_000_000, 17_640_000, 144_000, 230_400), "until": 60.0},
            "it could overrun the budget of queue nlp of 5,000 GPU hours: 4,900 spent, 40 reserved for what has not "
            "ended, 60 left; it needs up to 64; the next period begins at 1970-01-01T00:01:00Z",
        ),
        (
            Reason.BUDGET_SPENT,
            {"spending": Spending(90_000, 94_000, 0, 86_400), "assumed": 86_400.0},
            "it could overrun the budget of queue nlp of 25 GPU hours: 26.11 spent, 0 reserved for what has not ended, "
            "0 left; it needs up to 24: it has no time limit, so 1 d is reserved; --time-limit sets one",
        ),
        (
            Reason.BUDGET_SPENT,
            {"spending": Spending(3600, 0, 0, 14_400), "until": 60.0, "longest": 900.0},
            "it could overrun the budget of queue nlp of 1 GPU hour: 0 spent, 0 reserved for what has not ended, "
            "1 left; it needs up to 4; that is more than the whole budget, so no period allows it unless its time "
            "limit is at most 15 min",
        ),
        (Reason.NO_ROOM, {"other_queue": "idle"}, "needs a place; in queue idle it would start now"),
    ],
)
def test_a_wait_says_its_figures(why, facts, text):
    assert said(why, **facts) == text


@pytest.mark.parametrize("why", list(Reason))
def test_every_reason_has_a_sentence_even_without_facts(why):
    text = said(why)
    assert text and "{" not in text and "None" not in text


CORDONED, TAINTED = Obstacle(Bar.CORDONED, "", 12), Obstacle(Bar.TAINT, str(Taint("gpu", "true")), 10)
FULL = Obstacle(Bar.BUSY, GPU, 8, 4000, 2000)
DISKS = "attachable-volumes-csi-disks.example.com"


def nodes_said(*obstacles, nodes=30, **fields):
    census = Census(nodes, fields.pop("open", 0), fields.pop("room", 0), fields.pop("wanted", 1), obstacles)
    return said(Reason.NO_ROOM, resource=GPU, needed=4000, missing=1000, census=census, **fields)


def test_nodes_are_told_by_what_shuts_it_out_with_the_most_first():
    text = nodes_said(FULL, CORDONED, TAINTED, most_free=2000)
    assert text == (
        "needs 4 GPUs; 1 is missing; 0 of 30 nodes: 12 cordoned, "
        "10 with the taint gpu=true:NoSchedule, 8 without 4 GPUs free (largest free: 2)"
    )


def test_nothing_is_missing_where_no_node_counts():
    assert nodes_said(CORDONED, nodes=12) == "needs 4 GPUs; 0 of 12 nodes: 12 cordoned"


def test_nodes_of_which_some_have_room_say_for_how_many_pods():
    text = nodes_said(FULL, nodes=10, open=2, room=5, wanted=8, most_free=2000)
    assert text.endswith(
        "; 2 of 10 nodes have room, for 5 of its 8 pods; others: 8 without 4 GPUs free (largest free: 2)"
    )
    text = nodes_said(FULL, nodes=31, open=1, room=1, wanted=2, most_free=2000)
    assert "; 1 of 31 nodes has room, for 1 of its 2 pods; " in text


def test_a_lone_node_that_is_full_is_not_told_twice():
    assert nodes_said(FULL, nodes=1, most_free=2000) == "needs 4 GPUs; 1 is missing"
    assert nodes_said(nodes=0) == "needs 4 GPUs; the pool has no nodes"


def test_many_obstacles_are_summed_up():
    text = nodes_said(*(Obstacle(Bar.TAINT, f"t{at}:NoSchedule", 1) for at in range(9)), nodes=9)
    assert text.endswith("1 with the taint t4:NoSchedule, 4 for other reasons")


@pytest.mark.parametrize("bar", list(Bar))
@pytest.mark.parametrize("about", ["", "memory", "own:NoSchedule", Expression("zone", "NotIn", ("a", "b"))])
def test_every_obstacle_has_words(bar, about):
    text = nodes_said(Obstacle(bar, about, 2, 1 << 20, 0))
    assert "0 of 30 nodes: 2 " in text and "{" not in text


@pytest.mark.parametrize(
    "one, text",
    [
        (Obstacle(Bar.SELECTOR, Expression("gpu", "In", ("h100",)), 1), "1 without the label gpu=h100"),
        (
            Obstacle(Bar.AFFINITY, Expression("zone", "NotIn", ("a", "b")), 1),
            "1 outside its node affinity (zone not in a, b)",
        ),
        (
            Obstacle(Bar.TOO_SMALL, "memory", 1, 64 << 30, 48 << 20),
            "1 with less than 64 GiB of memory (largest: 48 MiB)",
        ),
        (
            Obstacle(Bar.VOLUME, Expression("metadata.name", "In", ("n9",)), 1),
            "1 other than n9, which its spec.nodeName names",
        ),
        (
            Obstacle(Bar.VOLUME, Expression("zone", "In", tuple("abcde")), 1),
            "1 out of reach of its volume (zone in a, b, c and 2 more)",
        ),
        (Obstacle(Bar.BUSY, DISKS, 9, 1, 0), "9 attaching no more volumes of disks.example.com"),
        (
            Obstacle(Bar.BUSY, DISKS, 9, 2, 1),
            "9 without 2 volume slots of disks.example.com free (largest free: 1)",
        ),
        (Obstacle(Bar.BUSY, "cpu", 1, 1000, 500), "1 without 1 CPU free (largest free: 0.5)"),
        (Obstacle(Bar.ANTI_AFFINITY, "kubernetes.io/hostname", 1), "1 ruled out by pod anti-affinity (node)"),
    ],
)
def test_an_obstacle_is_told_with_its_figures(one, text):
    assert nodes_said(one, CORDONED).endswith(f", {text}")


def test_capacity_held_for_another_names_it_and_since_when():
    held = said(Reason.HELD_FOR, resource=GPU, needed=2000, blocking=("ns/a",), until=60.0)
    assert held == "needs 2 GPUs; capacity is reserved for a from 1970-01-01T00:01:00Z"
    behind = said(Reason.HELD_FOR, blocking=("ns/a",))
    assert behind == "a is before it in queue nlp, which starts workloads in their order"


def test_what_protects_others_is_told_with_their_names_and_its_end():
    shields = (("minRuntime", ("ns/a",), 60.0), ("maxEvictions", ("ns/a", "ns/b"), 120.0), ("pair", ("ns/b",), None),
               ("priority", ("ns/a",), None), ("guaranteed", ("ns/a", "ns/b"), None), ("preemptionPolicy", (), None))
    assert said(Reason.NO_ROOM, shields=shields).split("; ")[1:] == [
        "minRuntime protects a until 1970-01-01T00:01:00Z",
        "maxEvictions protects a and b, the first until 1970-01-01T00:02:00Z",
        "b is protected, evicted for it less than an hour ago",
        "a is of no lower priority, so it preempts nothing there",
        "a and b are within a guarantee, so it reclaims nothing there",
        "it preempts nothing: the preemptionPolicy of its PriorityClass is Never",
    ]


def test_a_time_limit_is_the_first_advice_and_another_queue_the_last():
    changes = {"other_queue": "idle", "with_gpus": 2000, "other_pool": "a100", "shorter_limit": 5400.0}
    advice = [f"{it} it would start now" for it in ("with a time limit of 1 h 30 min", "with 2 GPUs", "in pool a100")]
    assert said(Reason.NO_ROOM, **changes).split("; ")[1:] == [*advice, "in queue idle it would start now"]


def test_a_time_limit_above_that_of_the_queue_is_told_with_both():
    long = Wait("ns/me", Reason.NOT_ALLOWED, Facts(queue="top", rule=Rule.TIME_LIMIT, longest=5400.0))
    text = waiting(long, replace(READER, time_limit=172_800.0), QUEUES)
    assert text == "queue top does not take it: its time limit of 2 d is above 1 h 30 min; shorten it"


def test_a_hold_begins_at_the_same_minute_for_all_that_wait_for_it():
    own = waiting(Wait("ns/me", Reason.NO_ROOM, starts_at=61.0), READER, QUEUES)
    behind = said(Reason.HELD_FOR, until=61.0)
    assert "is kept for it from 1970-01-01T00:02:00Z" in own and " from 1970-01-01T00:02:00Z" in behind


def test_a_hold_is_told():
    text = waiting(Wait("ns/me", Reason.NO_ROOM, starts_at=60.0), READER, QUEUES)
    assert text.endswith("; room is kept for it from 1970-01-01T00:01:00Z, at the latest")
    guess = waiting(Wait("ns/me", Reason.NO_ROOM, starts_at=60.0, is_guess=True), READER, QUEUES)
    assert guess.endswith("; room is kept for it from 1970-01-01T00:01:00Z, probably")
    assert kept_from(text) == kept_from(f"{text}; and more") == "1970-01-01T00:01:00Z" and kept_from("x") == ""


def test_of_many_queues_those_that_hold_most_are_named_and_the_rest_counted():
    held = [(queue, at) for queue, most in (("a", 1), ("b", 5), ("c", 4), ("d", 3), ("e", 2)) for at in range(most)]
    queues = {f"other/{queue}{at}": queue for queue, at in held}
    assert names(queues, READER, queues) == (
        "5 workloads of queue b, 4 workloads of queue c, 3 workloads of queue d and 3 workloads of 2 other queues"
    )


def test_workloads_of_other_namespaces_are_counted_not_named():
    assert names(("ns/a", "x/1", "x/2", "x/3"), READER, QUEUES) == "a and 3 workloads of queue vision"
    assert names(("y/1", "x/1"), READER, QUEUES) == "1 workload of queue nlp and 1 workload of queue vision"
    assert names(("z/unknown",), READER, QUEUES) == "1 workload"
    assert names([f"ns/w{index}" for index in range(6)], READER, QUEUES) == "w0, w1, w2 and 3 more of this namespace"


PLACE = Admission("h100", (PodSetPlacement("main", (NodeShare("n1", 4), NodeShare("n2", 1))),))


@pytest.mark.parametrize(
    "verdict, word, text",
    [
        (Admit("ns/me", PLACE), "Admitted", "starts on n1 (4 pods) and n2 (1 pod) of pool h100"),
        (
            Admit("ns/me", PLACE, ("ns/a", "x/1")),
            "WaitingForVictims",
            "starts on n1 (4 pods) and n2 (1 pod) of pool h100 when a and 1 workload of queue vision are gone",
        ),
        (
            Evict("ns/me", Cause.RECLAIMED, "x/1"),
            "Reclaimed",
            "its queue gives back what is another's due, for 1 workload of queue vision; "
            "it keeps its place in the queue",
        ),
        (
            Evict("ns/me", Cause.PREEMPTED, "ns/a", budget="ns/web"),
            "Preempted",
            "preempted by a higher priority of its queue; PodDisruptionBudget ns/web allows no more disruptions, "
            "but no other victims suffice, for a; it keeps its place in the queue",
        ),
        (
            Evict("ns/me", Cause.CONSOLIDATED, "ns/a", PLACE),
            "Consolidated",
            "moved to make whole room, for a; it goes on on n1 (4 pods) and n2 (1 pod) of pool h100",
        ),
        (Resize("ns/me", (("main", 2),), (("main", 5),), PLACE), "Grown", "runs on with other counts: main 2 → 5"),
        (
            Resize("ns/me", (("main", 5),), (("main", 2),), PLACE, "ns/b"),
            "Shrunk",
            "runs on with other counts: main 5 → 2, for b",
        ),
        (Finish("ns/me", Ending.TIME_LIMIT), "TimeLimit", "stopped: time limit of queue nlp"),
        (Keep("ns/me"), "Running", "runs"),
    ],
)
def test_other_verdicts_have_a_word_and_a_sentence(verdict, word, text):
    assert reason(verdict) == word
    assert sentence(verdict, READER, QUEUES) == text


def test_what_was_stopped_by_its_time_limit_or_never_started_is_told_with_the_cause():
    one = replace(READER, time_limit=7200.0, after=("ns/prepare",))
    assert sentence(Finish("ns/me", Ending.TIME_LIMIT), one, QUEUES) == "stopped: time limit 2 h"
    never = sentence(Finish("ns/me", Ending.DEPENDENCY_FAILED), one, QUEUES)
    assert never == "not started: it comes after prepare, which failed"


def pod(name, code, at="", *, why="", **end):
    terminated = Terminated(code, finished_at=at, **end)
    status = PodStatus("Failed", why, container_statuses=(ContainerStatus("main", ContainerState(terminated)),))
    return PodObject(Metadata(name, "ns"), status=status)


@pytest.mark.parametrize(
    ("pods", "text"),
    [
        ([pod("a", 3)], "failed: exit code 3"),
        ([pod("a", 137, reason="OOMKilled")], "failed: out of memory (exit code 137)"),
        ([pod("a", 139)], "failed: exit code 139 (SIGSEGV)"),
        ([pod("a", 128, message="exec: no such file")], "failed: exec: no such file (exit code 128)"),
        ([pod("a", 143, "2026-11-21T12:00:09Z"), pod("b", 9, "2026-11-21T12:00:01Z")], "failed: exit code 9 in pod b"),
        (
            [pod("a", 137, "2026-11-21T12:00:01Z", why="Lost"), pod("b", 3, "2026-11-21T12:00:09Z")],
            "failed: exit code 3 in pod b",
        ),
        ([pod("a", 0)], "failed: Job has reached the specified backoff limit"),
    ],
)
def test_what_failed_is_told_with_the_exit_of_its_first_failure(pods, text):
    why = "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    assert ended(Outcome(False, *why), pods)[1] == text
    assert ended(Outcome(True, "CompletionsReached", "Reached expected number"), pods)[1] == "finished"
    assert ended(Outcome(False, "DeadlineExceeded", "…"), pods)[1].startswith("stopped: ")


@pytest.mark.parametrize(
    ("pods", "word"),
    [
        ([pod("a", 3)], "ExitCode3"),
        ([pod("a", 137, reason="OOMKilled")], "OutOfMemory"),
        ([pod("a", 0)], "BackoffLimitExceeded"),
    ],
)
def test_the_reason_of_an_end_is_a_word_for_users(pods, word):
    assert ended(Outcome(False, "BackoffLimitExceeded"), pods)[0] == word
    assert ended(Outcome(True, "CompletionsReached"), pods)[0] == "Finished"
    assert ended(Outcome(False, "DeadlineExceeded"), pods)[0] == "DeadlineExceeded"


def test_who_lost_a_pod_is_told_what_becomes_of_the_rest():
    gone = Evict("ns/me", Cause.PODS_LOST)
    assert sentence(gone, READER, QUEUES).startswith("a pod of it was lost, and all start again;")
    alone = Workload("ns/me", "nlp", (), restart="Pod")
    assert sentence(gone, alone, QUEUES).startswith("it lost pods that found no place;")


@pytest.mark.parametrize("cause", list(Cause))
def test_every_eviction_has_a_sentence_and_warns(cause):
    assert sentence(Evict("ns/me", cause), READER, QUEUES)
    assert is_warning(Evict("ns/me", cause))
    assert not is_warning(Keep("ns/me"))
