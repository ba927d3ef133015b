"""Malformed objects, as a user may send them: the server answers each, and what schedules all others goes on.

Objects of each kind are sent with some of their fields replaced: by other types, huge numbers, odd texts, deep values.
What the server takes is then changed in the same way, its status too, and deleted. No answer may be a fault of the
server, no controller may end or find a fault of its own, and a plain job must run as if nothing had happened.
"""

import asyncio
import copy
import logging
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import msgspec
import pytest
from simworld import Thing, World, cluster, job, node

from fairway.clock import VirtualClock, seeded
from fairway.embedded.apps import APPS
from fairway.embedded.autoscale.control import Autoscalers
from fairway.embedded.call import repeated
from fairway.embedded.services.control import Services
from fairway.kube.client import MERGE
from fairway.kube.transport import Request, Response

START = 1_800_000_000.0
META = {"name": "thing", "namespace": "default", "labels": {"app": "web"}, "annotations": {"a": "b"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u", "controller": False}],
        "finalizers": []}  # fmt: skip
PROBE = {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 5}
CONTAINER = {"name": "main", "image": "i", "command": ["true"], "env": [{"name": "A", "value": "b"}],
             "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1"}},
             "ports": [{"containerPort": 80}], "volumeMounts": [{"name": "v", "mountPath": "/v"}],
             "readinessProbe": PROBE}  # fmt: skip
POD = {"containers": [CONTAINER], "restartPolicy": "Never", "priorityClassName": "", "nodeSelector": {"a": "b"},
       "tolerations": [{"key": "k", "operator": "Exists"}], "volumes": [{"name": "v", "emptyDir": {}}],
       "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
           {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"x": "y"}}}]}},
       "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "t", "whenUnsatisfiable": "DoNotSchedule"}],
       "schedulingGates": [{"name": "g"}], "activeDeadlineSeconds": 5}  # fmt: skip
TEMPLATE = {"metadata": {"labels": {"app": "web"}, "annotations": {"fairway.dev/gpu-fraction": "0.5"}}, "spec": POD}
ALWAYS = {**TEMPLATE, "spec": {**POD, "restartPolicy": "Always", "activeDeadlineSeconds": None}}
JOB = {"template": TEMPLATE, "parallelism": 2, "completions": 2, "backoffLimit": 1, "completionMode": "Indexed"}
CHOOSES = {"selector": {"matchLabels": {"app": "web"}}, "replicas": 1}
CONDITION = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "R"}
KINDS: dict[str, Thing] = {
    "/api/v1/{ns}/pods": {"spec": POD, "status": {"phase": "Running", "conditions": [CONDITION],
                          "containerStatuses": [{"name": "main", "state": {"running": {}}, "ready": True,
                                                 "restartCount": 0, "image": "", "imageID": ""}]}},
    "/apis/batch/v1/{ns}/jobs": {"spec": JOB, "status": {"active": 1, "succeeded": 1, "conditions": [CONDITION],
                                 "completedIndexes": "0-1", "startTime": "2026-01-01T00:00:00Z"}},
    "/apis/batch/v1/{ns}/cronjobs": {"spec": {"schedule": "* * * * *", "timeZone": "Etc/UTC",
                                     "jobTemplate": {"spec": JOB}}, "status": {"active": [{"name": "x"}]}},
    "/apis/apps/v1/{ns}/deployments": {"spec": {**CHOOSES, "template": ALWAYS, "strategy": {
        "type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}}}, "status": {"replicas": 1}},
    "/apis/apps/v1/{ns}/statefulsets": {"spec": {**CHOOSES, "template": ALWAYS, "serviceName": "s"},
                                        "status": {"replicas": 1, "currentRevision": "x"}},
    "/apis/apps/v1/{ns}/replicasets": {"spec": {**CHOOSES, "template": ALWAYS}, "status": {"replicas": 1}},
    "/api/v1/{ns}/services": {"spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}},
    "/api/v1/{ns}/configmaps": {"data": {"a": "b"}},
    "/apis/autoscaling/v2/{ns}/horizontalpodautoscalers": {"spec": {
        "maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "thing", "apiVersion": "apps/v1"},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {
            "type": "Utilization", "averageUtilization": 50}}}]}, "status": {"currentReplicas": 1}},
    "/apis/policy/v1/{ns}/poddisruptionbudgets": {"spec": {"minAvailable": 1, **CHOOSES, "replicas": None},
                                                  "status": {"disruptionsAllowed": 1}},
    "/apis/fairway.dev/v1alpha1/{ns}/workloads": {
        "spec": {"queue": "default", "podSets": [{"name": "main", "count": 1, "template": TEMPLATE}],
                 "timeLimit": "1h", "deadline": "2027-01-01T00:00:00Z", "after": ["x"], "topology": {}},
        "status": {"phase": "Running", "conditions": [CONDITION], "paused": {"since": "2026-01-01T00:00:00Z"},
                   "admission": {"pool": "default", "podSets": [{"name": "main", "nodes": [
                       {"node": "n1", "count": 1, "devices": [[0]]}]}]},
                   "evictionHistory": [{"time": "2026-01-01T00:00:00Z", "reason": "Preempted"}]}},
}  # fmt: skip
OF_ADMINISTRATORS: dict[str, Thing] = {
    "/apis/fairway.dev/v1alpha1/queues": {"spec": {
        "parent": "default", "quotas": [{"pool": "*", "guaranteed": {"cpu": "1", "nvidia.com/gpu": "50%"}, "limit": {
            "cpu": "2"}, "weight": 1}], "order": "FIFO", "namespaces": {"matchLabels": {"a": "b"}}, "evict": "Pause",
        "budget": {"gpuHours": 5, "period": "24h"}}, "status": {"used": {}, "charged": ["u"]}},
    "/apis/fairway.dev/v1alpha1/nodepools": {"spec": {"nodeSelector": {"a": "b"}, "strategy": "Spread"}},
    "/apis/fairway.dev/v1alpha1/reservations": {"spec": {
        "queue": "thing", "start": "2027-01-15T09:00:00Z", "duration": "1h", "recurrence": "Daily", "pool": "default",
        "resources": {"cpu": "1"}, "nodes": ["n9"]}},
    "/api/v1/nodes": {"spec": {"taints": [{"key": "k", "effect": "NoSchedule", "value": "v"}]}, "status": {
        "capacity": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2"}, "allocatable": {"cpu": "4"},
        "conditions": [CONDITION]}},
    "/apis/scheduling.k8s.io/v1/priorityclasses": {"value": 5, "globalDefault": False},
    "/api/v1/namespaces": {"spec": {}},
}
NOTES = ("queue", "gpu-fraction", "gpu-memory", "group", "group-size", "elastic", "min-count", "time-limit", "after",
         "deadline", "expected-runtime", "active", "paused", "freeze", "freeze-to-disk", "assigned-devices", "pool",
         "user", "world-size", "topology", "checkpoint-interval", "last-checkpoint", "priority-class", "idle-since",
         "attempt", "released", "hollow-duration", "simulate-duration", "outside", "completions")
DEEP: Any = "end"
for _ in range(150):
    DEEP = {"a": [DEEP]}
TEXTS = ("", " ", "\0", "\ud7ff\u202e名前" * 40, "x" * 5000, "-1", "1e999", "9" * 400, "0/0", "NaN", "Infinity", "1Ki1",
         "99999999999h", "-5m", "2026-13-45T99:99:99Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "a/b/c",
         "../../etc", "$(A)", "{}", "*/0 * * * *", "60 * * * *", "default", "n1", "True", "Gang", "100%", "-100%")
VALUES = (None, True, 0, -1, 1, 1 << 31, (1 << 63) - 1, -(1 << 63), 1 << 64, 1.5, -0.5, 1e308, [], {}, [[]],
          [None], [{}], {"": ""}, {"a": None}, [0], ["x"], DEEP, *TEXTS)  # fmt: skip


def spots(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each place in a value, as its container and the key there."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from spots(value[key])


def spoilt(thing: Thing, chance: Random, *, at_most: int = 3) -> Thing:
    """The object with a few of its fields replaced, one doubled, or an annotation of ours that means nothing."""
    thing = copy.deepcopy(thing)
    for _ in range(chance.randint(1, at_most)):
        how = chance.random()
        if not (places := list(spots(thing))):
            return thing
        where, key = chance.choice(places)
        if how < 0.15 and isinstance(thing.get("metadata"), dict):
            part = thing["metadata"].setdefault(chance.choice(("annotations", "labels")), {})
            if isinstance(part, dict):
                part[f"fairway.dev/{chance.choice(NOTES)}"] = chance.choice(TEXTS)
        elif how < 0.25 and isinstance(where, list) and where:
            where.append(copy.deepcopy(where[0]))
        elif how < 0.3 and isinstance(where, dict):
            del where[key]
        else:
            where[key] = copy.deepcopy(chance.choice(VALUES))
    return thing


def named(path: str) -> Thing:
    """What an object of a kind of ours says that it is."""
    kinds = {"workloads": "Workload", "queues": "Queue", "nodepools": "NodePool", "reservations": "Reservation"}
    kind = kinds.get(path.rpartition("/")[2])
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": kind} if kind else {}


class Vandal:
    """Sends malformed objects; `faults`: what the server answered that is a fault of its own."""

    def __init__(self, world: World, chance: Random, kinds: Mapping[str, Thing]) -> None:
        self.world, self.chance, self.kinds, self.taken = world, chance, kinds, 0
        self.faults: list[object] = []

    async def ask(self, method: str, path: str, thing: Any = None) -> Response:
        body = msgspec.json.encode(thing) if thing is not None else b""
        kind = MERGE if method == "PATCH" else "application/json"
        try:
            answer = await self.world.server.handle(Request(method, path, headers={"content-type": kind}, body=body))
        except Exception as error:
            logging.exception("%s %s", method, path)
            answer = Response(500, {}, repr(error).encode())
        if answer.status >= 500:
            self.faults.append((method, path, thing, answer.body))
        return answer

    async def break_one(self, number: int) -> None:
        """Makes an object, changes it and its status, and mostly deletes it."""
        path, parts = self.chance.choice(list(self.kinds.items()))
        path, name = path.replace("{ns}", "namespaces/default"), f"thing-{number}"
        meta = META if "namespaces/" in path else {"annotations": {}}
        thing = {"metadata": {**meta, "name": name}, **named(path), **parts}
        made = await self.ask("POST", path, spoilt(thing, self.chance))
        if made.status != 201:
            made = await self.ask("POST", path, thing)
        if made.status == 201:
            self.taken += 1
            name = msgspec.json.decode(made.body)["metadata"]["name"]
        for suffix in ("", "/status", "/status"):
            await self.ask("PATCH", f"{path}/{name}{suffix}", spoilt({**parts, "metadata": {}}, self.chance))
        await self.world.clock.sleep(self.chance.choice((0.0, 0.2, 5.0)))
        if self.chance.random() < 0.7 or "namespaces/" not in path:
            await self.ask("DELETE", f"{path}/{name}")


async def carry(service: object, addresses: object) -> None:
    """Connects no Service: nothing runs."""


def play(seed: int, rounds: int, kinds: Mapping[str, Thing] = KINDS) -> Vandal:
    clock = VirtualClock(START)

    async def run() -> Vandal:
        async with cluster(clock, seeded(seed), node("n1", gpus=2)) as world:
            world.start()
            client = world.client
            parts = [*(make(client) for make in APPS), Autoscalers(client), Services(client, carry)]
            running = [asyncio.create_task(part.run()) for part in parts]
            vandal = Vandal(world, Random(seed), kinds)
            for number in range(rounds):
                await vandal.break_one(number)
            await world.apply(job("plain", seconds=5, cpu="1"))
            await world.until(lambda: world.is_in("job-plain", "Succeeded"), seconds=120)
            assert not [task for task in running if task.done()]
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            return vandal

    return clock.run(run())


@pytest.mark.parametrize("kinds", [KINDS, OF_ADMINISTRATORS], ids=["of_users", "of_administrators"])
@pytest.mark.parametrize("seed", range(4))
def test_malformed_objects_stop_nothing(
    seed: int, kinds: Mapping[str, Thing], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    vandal = play(seed, 40, kinds)
    assert vandal.taken > 20
    assert vandal.faults == []
    assert [record.getMessage() for record in caplog.records] == []


SPREADS = [{"maxSkew": 1, "topologyKey": f"k{at}", "whenUnsatisfiable": "DoNotSchedule"} for at in range(65)]
TERMS = {"requiredDuringSchedulingIgnoredDuringExecution": [
    {"topologyKey": f"k{at}", "labelSelector": {"matchLabels": {"x": "y"}}} for at in range(257)]}  # fmt: skip
INDEXES = {"rules": [{"succeededIndexes": "0-99999999999999"}]}
REPEATED = {"ports": [{"port": at + 1, "name": "same"} for at in range(20_000)]}
GREEDY = {
    "/api/v1/{ns}/pods": [{"spec": {**POD, "topologySpreadConstraints": SPREADS}},
                          {"spec": {**POD, "affinity": {"podAffinity": TERMS}}},
                          {"spec": {**POD, "volumes": [{"name": "v"}] * 20_000}}],
    "/apis/batch/v1/{ns}/jobs": [{"spec": {**JOB, "successPolicy": INDEXES}}],
    "/apis/apps/v1/{ns}/deployments": [{"spec": {**CHOOSES, "template": ALWAYS, "replicas": 2_000_000_000}}],
    "/apis/apps/v1/{ns}/statefulsets": [{"spec": {**CHOOSES, "template": ALWAYS, "replicas": 2_000_000_000}}],
    "/api/v1/{ns}/services": [{"spec": REPEATED}],
}  # fmt: skip


@pytest.mark.parametrize(("path", "thing"), [(path, thing) for path, things in GREEDY.items() for thing in things])
def test_what_would_take_a_server_for_ever_is_refused(path: str, thing: Thing) -> None:
    clock = VirtualClock(START)

    async def run() -> int:
        async with cluster(clock, seeded(1), node("n1")) as world:
            meta = {"metadata": {"name": "greedy"}}
            return (await Vandal(world, Random(1), {}).ask("POST", path.replace("{ns}", "namespaces/default"),
                                                           {**meta, **thing})).status

    assert clock.run(run()) == 422


def test_fields_that_stand_twice_are_found_among_very_many() -> None:
    fields = ",".join(f'"k{at}":1' for at in range(100_000))
    assert repeated(f'{{"metadata":{{"a":1,{fields},"a":2}}}}'.encode()) == ["metadata.a"]
