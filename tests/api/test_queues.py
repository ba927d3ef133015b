"""Queues, pools, reservations, disruption budgets and priorities as the engine has them."""

import msgspec
import pytest

from fairway.api import queues
from fairway.api.decode import decode
from fairway.api.objects import DisruptionBudgetObject, PriorityClassObject
from fairway.api.pods import Surroundings
from fairway.api.quantities import Malformed, time
from fairway.api.types import NodePoolObject, QueueObject, QueueStatus, ReservationObject
from fairway.engine.model import Expression, Quota, Share

T0 = "2026-11-21T10:00:00Z"


def queue(spec=None, around=None, **more):
    said = {"metadata": {"name": "nlp", "creationTimestamp": T0}, "spec": spec or {}, **more}
    return queues.queue(decode(said, QueueObject), around or Surroundings())


def test_a_queue_without_words_has_none_of_its_own():
    found = queue()
    assert (found.name, found.parent, found.quotas, found.order, found.stop) == ("nlp", "", (), "Priority", "None")
    assert (found.min_runtime, found.max_evictions, found.consolidates, found.namespaces) == (None, None, None, None)
    assert found.created == time(T0)


def test_every_field_reaches_the_engine():
    found = queue({
        "parent": "research", "priority": 3, "order": "FIFO", "pools": ["h100"], "maxPriority": 10,
        "allowNonPreemptible": False, "minRuntime": "5m", "preemptMinRuntime": "0s", "maxEvictions": 2,
        "expectedRuntime": "1h", "timeLimit": {"default": "24h", "max": "72h"}, "maxWait": "12h",
        "consolidation": "WhenStuck", "budget": {"gpuHours": 5000, "period": "30d"}, "stopPolicy": "Drain",
        "quotas": [{"pool": "*", "guaranteed": {"nvidia.com/gpu": 8, "cpu": "25%"}, "limit": {"nvidia.com/gpu": "16"}}],
    })  # fmt: skip
    assert (found.parent, found.priority, found.order, found.pools) == ("research", 3, "FIFO", ("h100",))
    assert (found.max_priority, found.allows_nonpreemptible, found.max_evictions) == (10, False, 2)
    assert (found.min_runtime, found.preempt_min_runtime, found.max_wait) == (300, 0, 43200)
    assert (found.default_time_limit, found.max_time_limit, found.expected_runtime) == (86400, 259200, 3600)
    assert (found.consolidates, found.stop) == (True, "Drain")
    assert (found.budget, found.budget_period) == (5000 * 3600, 30 * 86400)
    guaranteed = (("cpu", Share(250, is_relative=True)), ("nvidia.com/gpu", Share(8000)))
    assert found.quotas == (Quota("*", guaranteed, (("nvidia.com/gpu", Share(16000)),), 1.0),)


def test_a_weight_of_zero_is_not_the_default():
    assert queue({"quotas": [{"weight": 0}, {"pool": "a"}]}).quotas == (Quota("*", weight=0.0), Quota("a"))


def test_namespaces_are_found_by_their_labels():
    around = Surroundings(namespaces={"a": {"team": "nlp"}, "b": {"team": "x"}, "c": {}})
    assert queue({"namespaces": {"matchLabels": {"team": "nlp"}}}, around).namespaces == {"a"}
    assert queue({"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": "c"}}}, around).namespaces == {"c"}
    assert queue({"namespaces": {}}, around).namespaces == {"a", "b", "c"}


@pytest.mark.parametrize("spec, words", [
    ({"timeLimit": {"default": "5h", "max": "1h"}}, "spec.timeLimit.default: found 5h; at most max, which is 1h"),
    ({"timeLimit": {"default": "0s"}}, "spec.timeLimit.default: found '0s'; more than 0 is allowed"),
    ({"minRuntime": "soon"}, "spec.minRuntime: found 'soon'"),
    ({"quotas": [{"limit": {"cpu": 1}}, {"pool": "*", "limit": {"cpu": 2}}]}, "spec.quotas: found cpu of pool"),
    ({"quotas": [{}, {"limit": {"cpu": "x"}}]}, r"spec.quotas\[1\].limit\[cpu\]: found 'x'"),
    ({"budget": {"gpuHours": "-1", "period": "1d"}}, "spec.budget.gpuHours: found '-1'"),
])  # fmt: skip
def test_a_queue_that_makes_no_sense_is_refused(spec, words):
    with pytest.raises(Malformed, match=words):
        queue(spec)


def test_what_a_queue_remembers_is_written_as_it_is_read():
    status = {
        "decayedUsage": {"h100": {"nvidia.com/gpu": {"value": 12.5, "time": T0}}},
        "users": {"ann": {"value": 7.0, "time": T0}},
        "budgetSpent": {"gpuHours": 2.5, "since": T0},
        "evictedGpus": {"h100": {"value": 4000.0, "time": T0}},
        "runtimes": [{"user": "ann", "name": "train", "points": [[10.0, 1.0], [20.0, 2.0]]}],
        "stretch": 2.5,
        "charged": ["uid-1"],
    }
    read = decode(status, QueueStatus)
    assert msgspec.json.decode(msgspec.json.encode(queues.ledger_status(queues.ledger(read), read))) == status
    ledger = queues.ledger(read)
    assert ledger.budget_spent == 9000
    assert ledger.usage[0][1].value == 12500 and ledger.evicted[0][1].value == 4_000_000, "the engine counts milli-GPU"


def test_a_pool_is_read():
    spec = {
        "nodeSelector": {"matchLabels": {"gpu": "h100"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]},
        "levels": ["zone", "rack"], "strategy": "Spread", "holdDepth": -1, "maxNodes": 20,
        "evictionBudget": {"gpus": 64, "per": "30m"}, "shape": {"cpu": "8"}, "costPerGpuHour": "2.10",
    }  # fmt: skip
    found = queues.pool(decode({"metadata": {"name": "h100"}, "spec": spec}, NodePoolObject))
    assert found.selector == (Expression("gpu", "In", ("h100",)), Expression("x", "Exists"))
    assert (found.levels, found.strategy, found.hold_depth, found.max_nodes) == (("zone", "rack"), "Spread", -1, 20)
    assert (found.eviction_gpus, found.eviction_period, found.shape) == (64000, 1800, (("cpu", 8000),))
    assert found.cost_per_gpu_hour == pytest.approx(2.1)
    plain = queues.pool(decode({"metadata": {"name": "all"}}, NodePoolObject))
    assert (plain.selector, plain.hold_depth, plain.eviction_gpus) == ((), None, None)


def reservation(**spec):
    whole = {"queue": "q", "pool": "p", "amount": {"cpu": 4}, "start": T0, "duration": "2h", **spec}
    return queues.reservation(decode({"metadata": {"name": "r"}, "spec": whole}, ReservationObject))


def test_a_reservation_is_read():
    found = reservation(repeat="Weekly")
    assert (found.name, found.queue, found.pool, found.amount) == ("r", "q", "p", (("cpu", 4000),))
    assert (found.start, found.duration, found.repeat) == (time(T0), 7200, "Weekly")
    maintenance = reservation(queue=None or "", maintenance=True, amount={}, nodes=["n1"])
    assert (maintenance.queue, maintenance.nodes) == ("", ("n1",))


@pytest.mark.parametrize(
    "spec, words",
    [
        ({"start": ""}, "spec.start: absent"),
        ({"duration": "0s"}, "spec.duration: found '0s'"),
        ({"maintenance": True}, "spec: found both; either queue or maintenance"),
        ({"queue": ""}, "spec: found neither; either queue or maintenance"),
        ({"nodes": ["n1"]}, "spec: found both; either amount or nodes"),
        ({"amount": {}}, "spec: found neither; either amount or nodes"),
        ({"amount": {"cpu": "-1"}}, r"spec.amount\[cpu\]: found '-1'"),
    ],
)
def test_a_reservation_that_makes_no_sense_is_refused(spec, words):
    with pytest.raises(Malformed, match=words):
        reservation(**spec)


@pytest.mark.parametrize("said, allowed", [
    ({"status": {"disruptionsAllowed": 2}}, 2), ({"spec": {"maxUnavailable": 1}}, 1),
    ({"spec": {"maxUnavailable": "50%"}}, 0), ({"spec": {"minAvailable": 3}}, 0),
    ({"status": {"disruptionsAllowed": 0}, "spec": {"maxUnavailable": 1}}, 0),
])  # fmt: skip
def test_a_disruption_budget_says_how_many_may_go(said, allowed):
    found = queues.disruption(decode({"metadata": {"name": "b", "namespace": "ns"}, **said}, DisruptionBudgetObject))
    assert (found.key, found.allowed) == ("ns/b", allowed)


def test_the_default_priority_is_that_of_the_lowest_default_class():
    said = {"a": {"value": 5, "globalDefault": True}, "b": {"value": 3, "globalDefault": True}, "c": {"value": 9}}
    classes = {name: decode(one, PriorityClassObject) for name, one in said.items()}
    found = queues.priorities(classes)
    assert (found[""], found["c"], found["system-node-critical"]) == (3, 9, 2_000_001_000)
    assert queues.priorities({})[""] == 0
