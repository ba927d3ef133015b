"""Where a waiting pod may go: the same nodes as kube-scheduler's filters allow, over random small clusters.

The filters are stated again in kube_filters.py. Each world is asked twice: placement node by node, and one whole plan.
"""

import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kube_filters import Cluster, feasible

from fairway import engine
from fairway.engine import Admit
from fairway.engine.draft import Draft
from fairway.engine.place import Ask, place
from fairway.engine.state import snapshot_of
from fairway.offline.reader import read
from fairway.policies import PRESETS
from fairway.referee import check

Thing = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOST, ZONE, RACK = "kubernetes.io/hostname", "zone", "rack"
SPACES = {"a": {"team": "red", "kubernetes.io/metadata.name": "a"}, "b": {"kubernetes.io/metadata.name": "b"}}
TAINTS = ("dedicated", "node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready")
VALUES = {
    ZONE: ("a", "b"), RACK: ("r", "s"), "gen": ("1", "5", "1_0", "+7", "x"), "metadata.name": ("n1", "zzz"),
    "app": ("x", "y"), "job-name": ("h1", "h2"), "pod-template-hash": ("1", "2"), "track": ("x", "y"),
}  # fmt: skip


class Maker:
    """Random objects. Every part is absent more often than not, so that worlds are neither empty nor impossible."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def often(self, odds: float = 0.5) -> bool:
        return self.chance.random() < odds

    def some(self, most: int, odds: float = 0.5) -> range:
        return range(self.chance.randint(1, most) if self.often(odds) else 0)

    def one(self, *values: Any) -> Any:
        return self.chance.choice(values)

    def labels(self, *keys: str) -> Thing:
        return {key: self.one(*VALUES[key]) for key in keys if self.often(0.6)}

    def world(self) -> tuple[Cluster, Thing]:
        nodes = [self.node(f"n{number}") for number in range(1, self.chance.randint(1, 5) + 1)]
        pods = [self.running(f"b{number}", nodes) for number in self.some(5, 0.85)]
        return Cluster(nodes, pods, SPACES), self.pod("p0")

    def node(self, name: str) -> Thing:
        is_ready, labels = self.often(0.9), {HOST: name} | self.labels(ZONE, RACK)
        labels |= self.labels("gen", "metadata.name") if self.often(0.3) else {}
        taints = [{"key": self.one(*TAINTS), "value": self.one("", "v"), "effect": self.effect()}
                  for _ in self.some(2, 0.2)]
        if not is_ready:
            taints.append({"key": TAINTS[2], "effect": "NoSchedule"})
        offered = {"cpu": str(self.one(1, 2, 4, 8)), "memory": "4Gi", "pods": str(self.one(2, 4, 10))}
        if self.often(0.3):
            offered["example.com/dev"] = str(self.one(0, 1, 2))
        return {
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints} | ({"unschedulable": True} if self.often(0.1) else {}),
            "status": {"allocatable": offered, "conditions": [{"type": "Ready", "status": str(is_ready)}]},
        }  # fmt: skip

    def effect(self) -> str:
        return self.one("NoSchedule", "NoExecute", "PreferNoSchedule")

    def running(self, name: str, nodes: list[Thing]) -> Thing:
        made = self.pod(name)
        made["spec"]["nodeName"] = self.one(*nodes)["metadata"]["name"]
        if self.often(0.15):
            made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        made["status"] = {"phase": self.one("Running", "Running", "Running", "Succeeded")}
        return made

    def pod(self, name: str) -> Thing:
        meta = {"name": name, "namespace": self.one("a", "a", "b")}
        meta["labels"] = self.labels("app", "job-name", "pod-template-hash", "track")
        spec: Thing = {"containers": [self.container() for _ in range(self.one(1, 1, 2))], "affinity": {}}
        if self.often(0.2):
            spec["initContainers"] = [self.container()]
        if self.often(0.1):
            spec["overhead"] = {"cpu": "500m"}
        if self.often(0.1):
            spec["nodeSelector"] = {self.one(ZONE, RACK): self.one("a", "b", "r")}
        if self.often(0.4):
            spec["tolerations"] = [self.toleration() for _ in self.some(2, 1)]
        if self.often(0.25):
            spec["affinity"]["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": [self.term() for _ in self.some(2, 1)]}}
        for kind in ("podAffinity", "podAntiAffinity"):
            if self.often(0.2):
                spec["affinity"][kind] = {REQUIRED: [self.pod_term() for _ in self.some(2, 1)]}
        if self.often(0.35):
            spec["topologySpreadConstraints"] = [self.spread() for _ in self.some(2, 1)]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    def container(self) -> Thing:
        asked = {"cpu": self.one("0", "500m", "1", "2")} if self.often(0.6) else {}
        if self.often(0.1):
            asked["example.com/dev"] = "1"
        ports = [{"containerPort": 80, "hostPort": self.one(80, 81), "protocol": self.one("TCP", "TCP", "UDP"),
                  "hostIP": self.one("", "0.0.0.0", "::", "10.0.0.1", "10.0.0.2")} for _ in self.some(2, 0.15)]
        return {"name": "c", "image": "x", "resources": {self.one("requests", "limits"): asked}, "ports": ports}

    def toleration(self) -> Thing:
        if self.often(0.2):
            return {"operator": "Exists"} | ({"effect": self.effect()} if self.often() else {})
        said = {"key": self.one(*TAINTS), "operator": "Exists"}
        said = said if self.often() else {**said, "operator": "Equal", "value": self.one("", "v")}
        return said | ({"effect": self.effect()} if self.often() else {})

    def expression(self, *keys: str, has_order: bool = False) -> Thing:
        key = self.one(*keys)
        operator = self.one("In", "NotIn", "Exists", "DoesNotExist", *(("Gt", "Lt") if has_order else ()))
        if operator in ("Gt", "Lt"):
            return {"key": key, "operator": operator, "values": [self.one("0", "4", "1_0")]}
        values = [] if "xist" in operator else [self.one(*VALUES[key]) for _ in self.some(2, 1)]
        return {"key": key, "operator": operator, "values": values}

    def term(self) -> Thing:
        fields = [{"key": "metadata.name", "operator": self.one("In", "NotIn"), "values": ["n1"]}]
        expressions = [self.expression(ZONE, RACK, "gen", "metadata.name", has_order=True) for _ in self.some(2, 0.9)]
        return {"matchExpressions": expressions, "matchFields": fields if self.often(0.2) else []}

    def selector(self) -> Thing | None:
        if self.often(0.1):
            return self.one(None, {})
        keys = ("app", "app", "job-name", "pod-template-hash", "track")
        if self.often():
            key = self.one(*keys)
            return {"matchLabels": {key: self.one(*VALUES[key])}}
        return {"matchExpressions": [self.expression(*keys) for _ in self.some(2, 1)]}

    def pod_term(self) -> Thing:
        said: Thing = {"topologyKey": self.one(HOST, ZONE, RACK), "labelSelector": self.selector()}
        if self.often(0.2):
            said["namespaces"] = self.one(["a"], ["b"], ["a", "b"])
        if self.often(0.2):
            said["namespaceSelector"] = self.one({}, *({"matchLabels": {"team": team}} for team in ("red", "none")))
        if self.often(0.1) and said["labelSelector"] is not None:
            said[self.one("matchLabelKeys", "mismatchLabelKeys")] = [self.one("pod-template-hash", "track")]
        return said

    def spread(self) -> Thing:
        said = {"maxSkew": self.one(1, 1, 2), "topologyKey": self.one(HOST, ZONE, RACK),
                "whenUnsatisfiable": self.one("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"),
                "labelSelector": self.selector()}
        if self.often(0.2) and said["whenUnsatisfiable"] == "DoNotSchedule":
            said["minDomains"] = self.one(1, 2, 3)
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if self.often(0.25):
                said[name] = self.one("Honor", "Ignore")
        if self.often(0.15) and said["labelSelector"] is not None:
            said["matchLabelKeys"] = ["pod-template-hash"]
        return said


def objects_of(cluster: Cluster, pod: Thing) -> list[Thing]:
    spaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
              for name, labels in cluster.spaces.items()]
    return [*spaces, *cluster.nodes, *cluster.pods, pod]


def allowed(snapshot: engine.Snapshot) -> set[str]:
    """Names of the nodes on which Fairway would place the one workload that waits, asked node by node."""
    (waiting,), rows = snapshot.pending, np.arange(len(snapshot.nodes))
    return {
        node.name for row, node in enumerate(snapshot.nodes)
        if place(Draft(snapshot), Ask(waiting, (1,), allowed=rows == row), "default") is not None
    }  # fmt: skip


def planned(plan: engine.Plan) -> set[str]:
    """Where a plan starts its one workload at once."""
    (verdict,) = plan.verdicts
    return verdict.admission.nodes if isinstance(verdict, Admit) and not verdict.after else set()


def differences(cluster: Cluster, pod: Thing) -> str:
    """What Fairway says otherwise than the filters; "" where they agree."""
    expected = feasible(pod, cluster)
    snapshot = snapshot_of(read(objects_of(cluster, pod), everything=True, now=0.0))
    if (found := allowed(snapshot)) != expected:
        return f"placed on {sorted(found)}, filters allow {sorted(expected)}"
    plan = engine.decide(snapshot, PRESETS["fairway"])
    nodes = planned(plan)
    if bool(nodes) != bool(expected) or not nodes <= expected:
        return f"planned on {sorted(nodes)}, filters allow {sorted(expected)}"
    return "; ".join(map(str, check(snapshot, plan)))


@settings(max_examples=400, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_pod_may_go_where_the_filters_of_kube_scheduler_let_it(chance: random.Random) -> None:
    assert differences(*Maker(chance).world()) == ""
