"""Clusters in a few lines, and what becomes of them when their plans are carried out.

`manifests` turns the short form of the files in plan_cases/ into ordinary Kubernetes objects; `decide` asks the real
command about them; `settle` does what each plan says to the objects and asks again until nothing changes.
"""

import copy
import json
from datetime import UTC, datetime, timedelta

from click.testing import CliRunner

from fairway.api.quantities import duration
from fairway.cli.main import cli

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
RESOURCES = {"gpu": "nvidia.com/gpu"}
MOST_CYCLES = 12


def stamp(ago: str = "0s") -> str:
    return (NOW - timedelta(seconds=duration(ago))).strftime("%Y-%m-%dT%H:%M:%SZ")


def amounts(said):
    return {RESOURCES.get(name, name): value for name, value in (said or {}).items()}


def node(name, said):
    said = dict(said or {})
    labels = {"kubernetes.io/hostname": name, **said.pop("labels", {})}
    annotations = {}
    if "devices" in said:
        labels["fairway.dev/devices"] = "Scheduler"
        if isinstance(said["devices"], list):
            annotations["fairway.dev/device-groups"] = json.dumps(said["devices"])
        said.pop("devices")
    ready = {"type": "Ready", "status": "True" if said.pop("ready", True) else "False"}
    spec = said.pop("spec", {})
    status = {"allocatable": amounts({"pods": 110, "cpu": 96, **said}), "conditions": [ready]}
    meta = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec, "status": status}


def queue(name, said, order):
    said = dict(said or {})
    quota = {key: amounts(said.pop(key)) for key in ("guaranteed", "limit") if key in said}
    if "weight" in said:
        quota["weight"] = said.pop("weight")
    if quota:
        said["quotas"] = [{"pool": "*", **quota}]
    meta = {"name": name, "creationTimestamp": stamp(f"{1000 - order}h")}
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": "Queue", "metadata": meta, "spec": said}


def pool(name, said):
    meta = {"name": name}
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": "NodePool", "metadata": meta, "spec": said or {}}


def template(said):
    """A pod template of the short form, and what else it says."""
    said = dict(said)
    resources = [name for name in said if name in ("gpu", "cpu", "memory") or "/" in name]
    asked = amounts({name: said.pop(name) for name in resources})
    shares = {"fraction": "fairway.dev/gpu-fraction", "gpu-memory": "fairway.dev/gpu-memory"}
    annotations = {shares[name]: said.pop(name) for name in shares if name in said}
    meta = {"labels": said.pop("labels", {}), "annotations": annotations}
    containers = [{"name": "main", "resources": {"requests": asked}}]
    return {"metadata": meta, "spec": {"containers": containers, **said.pop("pod", {})}}, said


def podset(name, said):
    made, rest = template(said)
    found = {"name": name, "count": rest.pop("pods", 1), "template": made}
    if "min" in rest:
        found["minCount"] = rest.pop("min")
    return {**found, **{key: rest.pop(key) for key in ("topology", "alignment") if key in rest}}, rest


def workload(name, said, order):
    said = dict(said or {})
    submitted = stamp(said.pop("submitted", f"{100 - order}m"))
    if "sets" in said:
        sets = [podset(each, parts)[0] for each, parts in said.pop("sets").items()]
    else:
        found, said = podset("main", said)
        sets = [found]
    meta = {"name": name, "namespace": said.pop("namespace", "team"), "creationTimestamp": submitted}
    status = said.pop("status", {})
    if said.pop("leaving", False):
        meta["deletionTimestamp"] = stamp()
    where, since = said.pop("at", None), said.pop("since", "1h")
    if priority := said.pop("priority", None):
        said["priorityClassName"] = f"p{priority}"
    if where is not None:
        status |= running(where, since, sets)
    spec = {"queue": "default", **said, "podSets": sets}
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": "Workload", "metadata": meta, "spec": spec, "status": status}


def running(where, since, sets):
    """`where`: "n1 n1 n2", nodes in rank order; "n1[0,1]" names devices; of several podsets, by their names."""
    by_set = where if isinstance(where, dict) else {sets[0]["name"]: where}
    found = [{"name": name, "nodes": shares(text)} for name, text in by_set.items()]
    admitted = {"type": "Admitted", "status": "True", "reason": "Admitted", "lastTransitionTime": stamp(since)}
    return {"phase": "Running", "admission": {"pool": "default", "podSets": found}, "conditions": [admitted]}


def shares(text):
    found = []
    for word in text.split():
        name, _, devices = word.removesuffix("]").partition("[")
        if not found or found[-1]["node"] != name:
            found.append({"node": name, "count": 0})
        found[-1]["count"] += 1
        if devices:
            found[-1].setdefault("devices", []).append([int(index) for index in devices.split(",")])
    return found


def manifests(case):
    """The objects of a case. A running workload's pool is that of its `pool`, where it says one."""
    made = [node(name, said) for name, said in case.get("nodes", {}).items()]
    made += [pool(name, said) for name, said in case.get("pools", {}).items()]
    made += [queue(name, said, order) for order, (name, said) in enumerate(case.get("queues", {}).items())]
    order = 0
    for part in ("running", "waiting"):
        for name, said in case.get(part, {}).items():
            said = dict(said or {})
            where = said.pop("pool", None)
            one = workload(name, said, order)
            order += 1
            if where:
                one["status"]["admission"]["pool"] = where
            made.append(one)
    levels = {one["spec"]["priorityClassName"] for one in made if one["spec"].get("priorityClassName")}
    made += [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": int(name[1:]),
        }
        for name in sorted(levels)
    ]
    return made + copy.deepcopy(case.get("objects", []))


def decide(objects, *options):
    """What `fairway plan` answers."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    result = CliRunner().invoke(cli, ["plan", "-f", "-", "-o", "json", "--now", stamp(), *options], input=text)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def words(entry):
    """A verdict as words: "Admit now n1 n2 default", "Wait NoRoom", "Evict Reclaimed for=b"."""
    found = [entry["verdict"], entry.get("reason") or ""]
    if entry["verdict"] == "Admit":
        found += [f"after={name.partition('/')[2]}" for name in entry["after"]] or ["now"]
        found += [f"risk={entry['backfilledFor'].partition('/')[2]}"] if entry["backfilledFor"] else []
    if entry.get("for"):
        found.append(f"for={entry['for'].partition('/')[2]}")
    if entry["verdict"] == "Resize":
        found += [f"{name}={count}" for name, count in entry["to"].items()]
    if entry.get("startsAt"):
        found.append(f"at={entry['startsAt']}")
    return " ".join(filter(None, [*found, *places(entry.get("placement"))]))


def places(admission):
    """The pool and the nodes of an admission: "default n1×2 n2[0,1]"."""
    if not admission:
        return []
    found = [admission["pool"]]
    for one in admission["podSets"]:
        for share in one.get("nodes", []):
            found.append(f"{share['node']}×{share['count']}")
            found += [f"{share['node']}[{','.join(map(str, devices))}]" for devices in share.get("devices", [])]
    return found


def verdicts(answer):
    return {entry["workload"].partition("/")[2]: words(entry) for entry in answer["verdicts"]}


def settle(objects, *, slowly=False):
    """Carries plans out until one says Keep and Wait only; the states of all workloads then, and the plans.

    `slowly`: those who are evicted leave for a while, in which the newcomer is promised their room.
    """
    objects, plans = copy.deepcopy(objects), []
    for _ in range(MOST_CYCLES):
        answer = decide(objects)
        plans.append(answer)
        if slowly:
            apply(objects, answer, gone=False)
            between = decide(objects)
            again = {one["workload"]: one for one in between["verdicts"]}
            for entry in answer["verdicts"]:
                if entry["verdict"] == "Admit" and entry["after"]:
                    same = again[entry["workload"]]
                    assert same["verdict"] == "Admit", (words(entry), words(same))
                    assert same["placement"] == entry["placement"], (words(entry), words(same))
        apply(objects, answer, gone=True)
        if all(one["verdict"] in ("Keep", "Wait") for one in answer["verdicts"]):
            return {one["metadata"]["name"]: state(one) for one in objects if one["kind"] == "Workload"}, plans
    raise AssertionError(f"does not settle: {[verdicts(answer) for answer in plans]}")


def apply(objects, answer, *, gone):
    """What the controllers would write. `gone`: those who leave are gone already."""
    workloads = [one for one in objects if one["kind"] == "Workload"]
    named = {f"{one['metadata']['namespace']}/{one['metadata']['name']}": one for one in workloads}
    if gone:
        for one in [each for each in named.values() if "deletionTimestamp" in each["metadata"]]:
            objects.remove(one)
    for entry in answer["verdicts"]:
        one = named[entry["workload"]]
        status = one.setdefault("status", {})
        match entry["verdict"]:
            case "Admit":
                waits = bool(entry["after"]) and not gone
                status |= {
                    "admission": entry["placement"],
                    "phase": "Pending" if waits else "Running",
                    "reason": "WaitingForVictims" if waits else "",
                    "backfilledFor": entry["backfilledFor"] or "",
                }
                turn(status, "Admitted", "False" if waits else "True")
                turn(status, "Evicted", "False")
            case "Evict":
                evict(status, entry, named, gone=gone)
            case "Resize":
                status["admission"] = entry["placement"]
            case "Finish":
                status |= {"phase": "Failed", "reason": entry["reason"], "admission": None}


def evict(status, entry, named, *, gone):
    whose = entry.get("for")
    by = named[whose]["spec"]["queue"] if whose else ""
    last = {"time": stamp(), "reason": entry["reason"], "by": by, "for": whose or ""}
    history = status.setdefault("evictionHistory", [])
    if history[-1:] != [last]:
        history.append(last)
    turn(status, "Evicted", "True")
    if not gone:
        status["movesTo"] = entry["placement"]
        return
    status["movesTo"] = None
    status["admission"] = entry["placement"]
    status["phase"] = "Running" if entry["placement"] else "Pending"
    turn(status, "Evicted", "False" if entry["placement"] else "True")
    turn(status, "Admitted", "True" if entry["placement"] else "False")


def turn(status, kind, value):
    others = [one for one in status.get("conditions") or [] if one["type"] != kind]
    status["conditions"] = [*others, {"type": kind, "status": value, "reason": kind, "lastTransitionTime": stamp()}]


def state(one):
    """ "waits", "ended" or where it runs."""
    status = one.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return "ended"
    return " ".join(places(status.get("admission"))) or "waits"
