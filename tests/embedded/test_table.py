"""Cells are those that `kubectl get` shows from a Kubernetes API server."""

from datetime import UTC, datetime

import pytest

from fairway.embedded.kinds import builtin_kinds, kind_of_crd
from fairway.embedded.table import find, span, table

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
KINDS = {(kind.group, kind.kind): kind for kind in builtin_kinds()}


def ago(seconds: float) -> str:
    return datetime.fromtimestamp(NOW - seconds, UTC).isoformat().replace("+00:00", "Z")


def cells(kind: str, thing: dict, group: str = "", *, wide: bool = False) -> dict:
    thing = {"metadata": {"name": "a", "creationTimestamp": ago(300)} | thing.pop("metadata", {})} | thing
    made = table(KINDS[group, kind], [thing], NOW)
    named = zip(made["columnDefinitions"], made["rows"][0]["cells"], strict=True)
    return {column["name"]: cell for column, cell in named if wide or column["priority"] == 0}


def pod(*statuses: dict, phase: str = "Running", init: tuple = (), conditions: dict | None = None, **more) -> dict:
    """A pod with a container for each status; `init`: the init containers' statuses."""
    spec = {"containers": [{"name": f"c{index}"} for index in range(len(statuses) or 1)],
            "initContainers": [{"name": f"i{index}"} | each.pop("spec", {}) for index, each in enumerate(init)]}
    status = {"phase": phase,
              "conditions": [{"type": type, "status": value} for type, value in (conditions or {}).items()],
              "containerStatuses": [{"name": f"c{index}"} | each for index, each in enumerate(statuses)],
              "initContainerStatuses": [{"name": f"i{index}"} | each for index, each in enumerate(init)]}
    return {"spec": spec, "status": status | more.pop("status", {})} | more


RUNNING = {"ready": True, "state": {"running": {}}, "restartCount": 0}


def ended(reason: str = "", code: int = 0, signal: int = 0) -> dict:
    return {"ready": False, "restartCount": 0,
            "state": {"terminated": {"reason": reason, "exitCode": code} | ({"signal": signal} if signal else {})}}


def waiting(reason: str) -> dict:
    return {"ready": False, "restartCount": 0, "state": {"waiting": {"reason": reason}}}


@pytest.mark.parametrize(("thing", "ready", "word"), [
    (pod(phase="Pending"), "0/1", "Pending"),
    (pod(RUNNING), "1/1", "Running"),
    (pod(ended("Completed"), phase="Succeeded"), "0/1", "Completed"),
    (pod(ended("Error", 1), phase="Failed"), "0/1", "Error"),
    (pod(ended(code=3), phase="Failed"), "0/1", "ExitCode:3"),
    (pod(ended(signal=9, code=137), phase="Failed"), "0/1", "Signal:9"),
    (pod(waiting("CrashLoopBackOff")), "0/1", "CrashLoopBackOff"),
    (pod(waiting("CreateContainerConfigError"), phase="Pending"), "0/1", "CreateContainerConfigError"),
    (pod(RUNNING, ended("Completed"), conditions={"Ready": "True"}), "1/2", "Running"),
    (pod(RUNNING, ended("Completed"), conditions={"Ready": "False"}), "1/2", "NotReady"),
    (pod(RUNNING, metadata={"deletionTimestamp": ago(1)}), "1/1", "Terminating"),
    (pod(ended("Completed"), phase="Succeeded", metadata={"deletionTimestamp": ago(1)}), "0/1", "Completed"),
    (pod(RUNNING, metadata={"deletionTimestamp": ago(1)}, status={"reason": "NodeLost"}), "1/1", "Unknown"),
    (pod(phase="Failed", status={"reason": "Evicted"}), "0/1", "Evicted"),
    (pod(waiting("PodInitializing"), init=(ended("Completed"), RUNNING)), "0/1", "Init:1/2"),
    (pod(waiting("PodInitializing"), init=(waiting("ImagePullBackOff"),)), "0/1", "Init:ImagePullBackOff"),
    (pod(waiting("PodInitializing"), init=(ended("Error", 1),)), "0/1", "Init:Error"),
    (pod(waiting("PodInitializing"), init=(ended(code=2),)), "0/1", "Init:ExitCode:2"),
    (pod(RUNNING, init=(RUNNING | {"started": True, "spec": {"restartPolicy": "Always"}},)), "2/2", "Running"),
    (pod(phase="Pending", status={"conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}), "0/1", "SchedulingGated"),
])
def test_a_pods_status_is_the_reason_it_does_not_run_or_its_phase(thing, ready, word):
    found = cells("Pod", thing)
    assert (found["Ready"], found["Status"]) == (ready, word)


def test_a_pods_restarts_say_when_the_last_one_was():
    again = RUNNING | {"restartCount": 3, "lastState": {"terminated": {"finishedAt": ago(90)}}}
    assert cells("Pod", pod(RUNNING))["Restarts"] == "0"
    assert cells("Pod", pod(again))["Restarts"] == "3 (90s ago)"


def test_wide_pods_show_where_they_are():
    found = cells("Pod", {"spec": {"nodeName": "n1", "containers": [{}]}, "status": {"podIP": "10.0.0.1"}}, wide=True)
    assert list(found) == [
        "Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"]
    assert [found[each] for each in ("IP", "Node", "Nominated Node", "Readiness Gates")] == [
        "10.0.0.1", "n1", "<none>", "<none>"]


def test_nodes_say_whether_they_take_pods():
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.33.0"},
             "addresses": [{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "10.0.0.9"}]}
    assert cells("Node", {"status": ready})["Status"] == "Ready"
    assert cells("Node", {"status": ready, "spec": {"unschedulable": True}})["Status"] == "Ready,SchedulingDisabled"
    assert cells("Node", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})["Status"] == "NotReady"
    assert cells("Node", {})["Status"] == "Unknown"
    roles = {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": ""}
    found = cells("Node", {"status": ready, "metadata": {"labels": roles}}, wide=True)
    assert (found["Roles"], found["Version"], found["Internal-IP"], found["External-IP"]) == (
        "control-plane,worker", "v1.33.0", "10.0.0.9", "<none>")
    assert cells("Node", {})["Roles"] == "<none>"


def holding(*conditions: str, **more) -> dict:
    return {"conditions": [{"type": each, "status": "True"} for each in conditions]} | more


COMPLETE = holding("SuccessCriteriaMet", "Complete", succeeded=1, startTime=ago(100), completionTime=ago(60))


@pytest.mark.parametrize(("spec", "status", "shown"), [
    ({"completions": 3, "parallelism": 1}, {}, ["Running", "0/3", ""]),
    ({"parallelism": 4}, {"succeeded": 1, "startTime": ago(75)}, ["Running", "1/1 of 4", "75s"]),
    ({"completions": 1}, COMPLETE, ["Complete", "1/1", "40s"]),
    ({"completions": 1}, holding("Failed"), ["Failed", "0/1", ""]),
    ({"completions": 1}, holding("Suspended"), ["Suspended", "0/1", ""]),
])
def test_jobs_show_how_far_they_are(spec, status, shown):
    found = cells("Job", {"spec": spec, "status": status}, "batch")
    assert [found[each] for each in ("Status", "Completions", "Duration", "Age")] == [*shown, "5m"]


def test_a_job_that_is_being_deleted_says_so():
    leaving = {"metadata": {"deletionTimestamp": ago(1)}, "spec": {"completions": 1}, "status": {}}
    assert cells("Job", leaving, "batch")["Status"] == "Terminating"


PORTS = [{"port": 80}, {"port": 53, "protocol": "UDP"}]
OLD_EVENT = {"type": "Normal", "reason": "Started", "message": "Started it \n", "lastTimestamp": ago(42),
             "involvedObject": {"kind": "Pod", "name": "p"}}
NEW_EVENT = {"type": "Warning", "reason": "Bad", "note": "so", "eventTime": ago(3),
             "regarding": {"kind": "Job", "name": "j"}}
BUSY = {"spec": {"schedule": "@daily", "suspend": True}, "status": {"active": [{}], "lastScheduleTime": ago(7200)}}
CLAIMED = {"spec": {"storageClassName": "s"}, "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"]}}
QUOTA = {"hard": {"cpu": "2", "limits.cpu": "4"}, "used": {"cpu": "1"}}

SCALED = {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 1, "maxReplicas": 3}
METRICS = [{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 50}}},
           {"type": "Resource", "resource": {"name": "memory", "target": {"averageValue": "1Gi"}}}, {"type": "Pods"}]
MEASURED = {"currentReplicas": 2, "currentMetrics": [{"type": "Resource", "resource": {
    "name": "cpu", "current": {"averageValue": "6m", "averageUtilization": 12}}}]}


@pytest.mark.parametrize(("kind", "group", "thing", "shown"), [
    ("Namespace", "", {"status": {"phase": "Active"}}, ["a", "Active", "5m"]),
    ("ConfigMap", "", {"data": {"x": "1"}, "binaryData": {"y": ""}}, ["a", 2, "5m"]),
    ("Secret", "", {"type": "Opaque"}, ["a", "Opaque", 0, "5m"]),
    ("ServiceAccount", "", {}, ["a", 0, "5m"]),
    ("Service", "", {"spec": {"type": "ClusterIP", "clusterIP": "None", "ports": PORTS}},
     ["a", "ClusterIP", "None", "<none>", "80/TCP,53/UDP", "5m"]),
    ("Service", "", {"spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]}},
     ["a", "LoadBalancer", "<none>", "<pending>", "80:30080/TCP", "5m"]),
    ("Event", "", OLD_EVENT, ["42s", "Normal", "Started", "pod/p", "Started it"]),
    ("Event", "events.k8s.io", NEW_EVENT, ["3s", "Warning", "Bad", "job/j", "so"]),
    ("PriorityClass", "scheduling.k8s.io", {"value": 1000000},
     ["a", 1000000, "false", "5m", "PreemptLowerPriority"]),
    ("PriorityClass", "scheduling.k8s.io", {"value": 0, "globalDefault": True},
     ["a", 0, "true", "5m", "PreemptLowerPriority"]),
    ("Lease", "coordination.k8s.io", {"spec": {"holderIdentity": "me"}}, ["a", "me", "5m"]),
    ("PodDisruptionBudget", "policy", {"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}},
     ["a", "50%", "N/A", 1, "5m"]),
    ("Deployment", "apps", {"spec": {"replicas": 3}, "status": {"readyReplicas": 1, "updatedReplicas": 2}},
     ["a", "1/3", 2, 0, "5m"]),
    ("StatefulSet", "apps", {"spec": {}, "status": {}}, ["a", "0/1", "5m"]),
    ("CronJob", "batch", BUSY, ["a", "@daily", "<none>", "True", 1, "120m", "5m"]),
    ("CronJob", "batch", {"spec": {"schedule": "@daily"}}, ["a", "@daily", "<none>", "False", 0, "<none>", "5m"]),
    ("PersistentVolumeClaim", "", CLAIMED, ["a", "Bound", "", "", "RWO", "s", "<unset>", "5m"]),
    ("HorizontalPodAutoscaler", "autoscaling", {"spec": {"metrics": METRICS[:2], **SCALED}, "status": MEASURED},
     ["a", "Deployment/d", "cpu: 12%/50%, memory: <unknown>/1Gi", "1", 3, 2, "5m"]),
    ("HorizontalPodAutoscaler", "autoscaling", {"spec": {"metrics": METRICS[::-1], **SCALED}},
     ["a", "Deployment/d", "<unknown>, memory: <unknown>/1Gi + 1 more...", "1", 3, 0, "5m"]),
    ("ResourceQuota", "", {"status": QUOTA}, ["a", "cpu: 1/2", "limits.cpu: 0/4", "5m"]),
    ("ClusterRole", "rbac.authorization.k8s.io", {}, ["a", ago(300)]),
    ("ResourceClaim", "resource.k8s.io", {"status": {"allocation": {"x": 1}, "reservedFor": [{}]}},
     ["a", "allocated,reserved", "5m"]),
])
def test_other_kinds_show_what_they_show_on_kubernetes(kind, group, thing, shown):
    assert list(cells(kind, thing, group).values()) == shown


def test_selectors_and_containers_are_wide():
    spec = {"selector": {"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [
        {"key": "k", "operator": "NotIn", "values": ["y", "x"]}, {"key": "z", "operator": "DoesNotExist"}]},
        "template": {"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}}}
    found = cells("Job", {"spec": spec}, "batch", wide=True)
    assert (found["Containers"], found["Images"]) == ("c,d", "i,j")
    assert found["Selector"] == "a=1,b=2,k notin (x,y),!z"


def test_every_kind_shows_an_object_that_has_nothing():
    for kind in KINDS.values():
        thing = {"metadata": {"name": "a"}}
        assert len(table(kind, [thing], NOW)["rows"][0]["cells"]) == len(kind.columns), kind.kind


def crd(*columns: dict) -> dict:
    names = {"kind": "Ship", "plural": "ships"}
    return {"spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [
        {"name": "v1", "served": True, "storage": True, "schema": {}, "additionalPrinterColumns": list(columns)},
        {"name": "v0", "served": False, "storage": False, "schema": {}}]}}


def test_custom_columns_are_jsonpaths_of_their_type():
    kind, = kind_of_crd(crd(
        {"name": "Crew", "type": "integer", "jsonPath": ".spec.crew", "description": "how many"},
        {"name": "Docked", "type": "date", "jsonPath": ".status.docked"},
        {"name": "Afloat", "type": "boolean", "jsonPath": ".status.afloat"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Tag", "type": "string", "jsonPath": r".metadata.labels.example\.com/tag", "priority": 1},
        {"name": "Cargo", "type": "string", "jsonPath": ".spec.cargo"},
        {"name": "None", "type": "integer", "jsonPath": ".spec.none"}))
    ship = {"metadata": {"name": "s", "labels": {"example.com/tag": "t"}}, "spec": {"crew": 3, "cargo": ["a", 1]},
            "status": {"docked": ago(3600), "afloat": False} | holding("Ready")}
    made = table(kind, [ship], NOW)
    assert made["rows"][0]["cells"] == ["s", 3, "60m", False, "True", "t", '["a",1]', None]
    assert made["columnDefinitions"][1] == {
        "name": "Crew", "type": "integer", "format": "", "description": "how many", "priority": 0}
    assert [each["priority"] for each in made["columnDefinitions"]] == [0, 0, 0, 0, 0, 1, 0, 0]


def test_custom_kinds_without_columns_show_their_age():
    kind, = kind_of_crd(crd())
    made = table(kind, [{"metadata": {"name": "s", "creationTimestamp": ago(60)}}], NOW)
    assert made["rows"][0]["cells"] == ["s", "60s"]


def test_rows_carry_the_metadata_the_object_or_nothing():
    thing = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"b": "c"}}

    def along(include: str):
        return table(KINDS["", "ConfigMap"], [thing], NOW, include)["rows"][0].get("object")

    assert along("None") is None and along("Object") == thing
    assert along("Metadata") == {
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}}


@pytest.mark.parametrize(("seconds", "shown"), [
    (-5, "<invalid>"), (-1, "0s"), (0, "0s"), (119.9, "119s"), (120, "2m"), (125, "2m5s"), (599, "9m59s"), (600, "10m"),
    (10799, "179m"), (10800, "3h"), (11000, "3h3m"), (28800, "8h"), (172799, "47h"), (172800, "2d"), (180000, "2d2h"),
    (691200, "8d"), (86400 * 729, "729d"), (86400 * 731, "2y1d"), (86400 * 365 * 9, "9y")])
def test_durations_are_short(seconds, shown):
    assert span(seconds) == shown


@pytest.mark.parametrize(("path", "found"), [
    (".a.b", [1]), ("{.a.b}", [1]), ("$.a.b", [1]), (".list[0].x", ["p"]), (".list[-1].x", ["q"]), (".list[9].x", []),
    (".list[*].x", ["p", "q"]), (".a.*", [1]), ("['a'].b", [1]), (".list[?(@.x=='q')].y", [2]),
    (".list[?(@.y==2)].x", ["q"]),
    (".a.b.c", []), (".missing[*]", []), (r".e\.f", [3]), ("['e.f']", [3])])
def test_jsonpaths_find_what_they_name(path, found):
    assert find(path, {"a": {"b": 1}, "list": [{"x": "p", "y": 1}, {"x": "q", "y": 2}], "e.f": 3}) == found
