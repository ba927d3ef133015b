"""What `kubectl get` prints: lists of objects as a meta.k8s.io/v1 Table.

A column's path is a JSONPath (several finds are joined by commas), the name of a rule in `_RULES`, or a rule applied to
what a path finds. A rule takes what it is given and the time; it answers a cell, or None where the column's word for
nothing stands. The cells are those of a Kubernetes API server, since eyes and scripts know them. JSONPaths are the
subset that printer columns use: fields, indices, `[*]`, and filters for equality.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any

import msgspec

from fairway.embedded.kinds import Column, Kind
from fairway.embedded.selector import selector_text

Cell = str | int | float | bool | None
Thing = Mapping[str, Any]
_STEP = re.compile(  # .field | ['field'] | [index] | [?(@.field==value)]
    r"""\.((?:\\.|[^.\[\\])+)|\.?\[['"]([^'"]*)['"]\]|\[(\*|-?\d+)\]|\[\?\(@\.([^=\s]+)\s*==\s*(.+?)\)\]""")
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_HOUR, _DAY, _YEAR = 3600, 86400, 365 * 86400
_SPANS = (  # below the first, the second with its letter, and the rest of it
    (600, 60, "m", 1, "s"), (3 * _HOUR, 60, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", 60, "m"), (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"), (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"), (float("inf"), _YEAR, "y", 0, ""))


def table(kind: Kind, objects: Iterable[dict[str, Any]], now: float, include: str = "Metadata") -> dict[str, Any]:
    """The Table of `objects` at time `now`; `include` says what of each goes along: None, Metadata or Object."""
    version, rows = None, []
    for each in objects:  # one at a time: thousands of decoded objects at once are slow to collect
        version = each["metadata"].get("resourceVersion")
        rows.append({"cells": [_cell(column, each, now) for column in kind.columns]} | _along(each, include))
    about = {"resourceVersion": version} if version and len(rows) == 1 else {}  # a watch resumes from it
    return {
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": about,
        "columnDefinitions": [
            {"name": column.name, "type": column.type, "format": "name" if column.name == "Name" else "",
             "description": column.description, "priority": column.priority} for column in kind.columns],
        "rows": rows,
    }


def _along(thing: dict[str, Any], include: str) -> dict[str, Any]:
    if include == "Object":
        return {"object": thing}
    partly = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": thing["metadata"]}
    return {} if include == "None" else {"object": partly}


def _cell(column: Column, thing: Thing, now: float) -> Cell:
    found = _by_path(column, thing) if column.path[0] in ".[{$" else _by_rule(column.path, thing, now)
    if found is not None and column.type == "date":
        found = age(found, now)
    return column.missing if found is None else found


def _by_rule(path: str, thing: Thing, now: float) -> Cell:
    name, _, inner = path.partition("(")
    return _RULES[name](first(inner[:-1], thing) if inner else thing, now)


def _by_path(column: Column, thing: Thing) -> Cell:
    names = _names(column.path)
    if names:
        value: Any = thing
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        if type(value) is str or value is None:
            return value
    found = [each for each in find(column.path, thing) if each is not None]
    if len(found) == 1 and isinstance(found[0], bool | int | float) and column.type != "string":
        return found[0]
    return ",".join(map(_text, found)) if found else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def first(path: str, thing: Any, default: Any = None) -> Any:
    """What the path finds first, or `default`."""
    return next((each for each in find(path, thing) if each is not None), default)


def find(path: str, thing: Any) -> list[Any]:
    """All that a JSONPath finds in `thing`."""
    found = [thing]
    for step in _steps(path):
        found = [one for each in found for one in step(each)]
    return found


@lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[Callable[[Any], Iterable[Any]], ...]:
    path = "." + path.strip("{}").removeprefix("$").removeprefix(".")
    return tuple(
        partial(_where, field, value) if field
        else partial(_at, int(index)) if index not in ("", "*")
        else _every if index == "*" or plain == "*"
        else partial(_field, re.sub(r"\\(.)", r"\1", plain) or quoted)
        for plain, quoted, index, field, value in _STEP.findall(path))


@lru_cache(maxsize=1024)
def _names(path: str) -> tuple[str, ...]:
    """The fields of a path that has nothing else, as most have; empty for another."""
    path = path.strip("{}").removeprefix("$").removeprefix(".")
    return tuple(path.split(".")) if re.fullmatch(r"\w+(\.\w+)*", path) else ()


def _field(name: str, thing: Any) -> Iterable[Any]:
    return (thing[name],) if isinstance(thing, dict) and name in thing else ()


def _at(index: int, thing: Any) -> Iterable[Any]:
    return thing[index:index + 1 or None] if isinstance(thing, list) else ()


def _every(thing: Any) -> Iterable[Any]:
    return thing.values() if isinstance(thing, dict) else thing if isinstance(thing, list) else ()


def _where(field: str, value: str, thing: Any) -> Iterable[Any]:
    wanted = value.strip("'\"")
    return (each for each in _every(thing) if list(map(_text, find(field, each))) == [wanted])


def span(seconds: float) -> str:
    """A duration in one unit, or two where the first is few."""
    whole = int(seconds)
    if whole < 120:
        return f"{max(whole, 0)}s" if whole > -2 else "<invalid>"
    unit, name, rest, rest_name = next(each[1:] for each in _SPANS if whole < each[0])
    part = whole % unit // rest if rest else 0
    return f"{whole // unit}{name}" + (f"{part}{rest_name}" if part else "")


def age(since: Any, now: float) -> Cell:
    """How long ago the moment `since` (RFC 3339) was."""
    try:
        moment = datetime.fromisoformat(since)
    except (TypeError, ValueError):
        return None if since is None else "<unknown>"
    return span(now - (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _pod_ready(pod: Thing, _: float) -> Cell:
    sidecars = [each["name"] for each in find(".spec.initContainers[*]", pod) if each.get("restartPolicy") == "Always"]
    statuses = find(".status.containerStatuses[*]", pod) + [
        each for each in find(".status.initContainerStatuses[*]", pod) if each["name"] in sidecars]
    ready = sum(bool(each.get("ready")) for each in statuses)
    return f"{ready}/{len(find('.spec.containers[*]', pod)) + len(sidecars)}"


def _pod_status(pod: Thing, _: float) -> Cell:
    """The one word people look for: why it does not run, else how it does."""
    metadata, status = pod["metadata"], pod.get("status", {})
    word = status.get("reason") or status.get("phase") or "Unknown"
    if first('.status.conditions[?(@.type=="PodScheduled")].reason', pod) == "SchedulingGated":
        word = "SchedulingGated"
    initializing = _initializing(pod)
    if initializing and first('.status.conditions[?(@.type=="Initialized")].status', pod) != "True":
        word = initializing
    else:
        word = _of_containers(pod, word)
    if metadata.get("deletionTimestamp") and status.get("phase") not in ("Succeeded", "Failed"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return word


def _initializing(pod: Thing) -> str | None:
    """The first init container that is not done; a sidecar is done when it has started."""
    containers = {each["name"]: each for each in find(".spec.initContainers[*]", pod)}
    for index, each in enumerate(find(".status.initContainerStatuses[*]", pod)):
        state = each.get("state", {})
        ended, waiting = state.get("terminated"), first(".waiting.reason", state, "")
        sidecar = containers.get(each["name"], {}).get("restartPolicy") == "Always"
        if (ended and not ended.get("exitCode")) or (sidecar and each.get("started")):
            continue
        if ended:
            return f"Init:{_ending(ended)}"
        return f"Init:{waiting}" if waiting not in ("", "PodInitializing") else f"Init:{index}/{len(containers)}"
    return None


def _ending(ended: Thing) -> str:
    signal = f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"
    return ended.get("reason") or signal


def _of_containers(pod: Thing, word: str) -> str:
    """The word of the first container that has one; Completed only when none runs on."""
    runs = False
    for each in reversed(find(".status.containerStatuses[*]", pod)):
        state = each.get("state", {})
        if first(".waiting.reason", state):
            word = state["waiting"]["reason"]
        elif state.get("terminated"):
            word = _ending(state["terminated"])
        elif each.get("ready") and "running" in state:
            runs = True
    if word != "Completed" or not runs:
        return word
    return "Running" if first('.status.conditions[?(@.type=="Ready")].status', pod) == "True" else "NotReady"


def _pod_restarts(pod: Thing, now: float) -> Cell:
    group = "initContainerStatuses" if _initializing(pod) else "containerStatuses"
    count = sum(find(f".status.{group}[*].restartCount", pod))
    last = max(find(f".status.{group}[*].lastState.terminated.finishedAt", pod), default=None)
    return f"{count} ({age(last, now)} ago)" if count and last else str(count)


def _readiness_gates(pod: Thing, _: float) -> Cell:
    gates, holds = find(".spec.readinessGates[*].conditionType", pod), find(
        '.status.conditions[?(@.status=="True")].type', pod)
    return f"{len(set(gates) & set(holds))}/{len(gates)}" if gates else None


def _node_status(node: Thing, _: float) -> Cell:
    ready = first('.status.conditions[?(@.type=="Ready")].status', node)
    word = "Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"
    return word + (",SchedulingDisabled" if first(".spec.unschedulable", node) else "")


def _node_roles(node: Thing, _: float) -> Cell:
    labels = node["metadata"].get("labels", {})
    roles = {key.partition("/")[2] for key in labels if key.startswith("node-role.kubernetes.io/")}
    return ",".join(sorted(roles | {labels.get("kubernetes.io/role", "")} - {""})) or None


def _job_status(job: Thing, _: float) -> Cell:
    holds = set(find('.status.conditions[?(@.status=="True")].type', job))
    if holds & {"Complete", "Failed"}:
        return "Complete" if "Complete" in holds else "Failed"
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return next((each for each in ("Suspended", "FailureTarget", "SuccessCriteriaMet") if each in holds), "Running")


def _job_completions(job: Thing, _: float) -> Cell:
    done, wanted = first(".status.succeeded", job, 0), first(".spec.completions", job)
    parallelism = first(".spec.parallelism", job, 0)
    if wanted is not None:
        return f"{done}/{wanted}"
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(job: Thing, now: float) -> Cell:
    """From the start to the end, or to now."""
    start, end = first(".status.startTime", job), first(".status.completionTime", job)
    until = datetime.fromisoformat(end).timestamp() if end else now
    return age(start, until)


def _seen(*fields: str) -> Callable[[Thing, float], Cell]:
    return lambda event, now: age(next((found for each in fields for found in find(each, event) if found), None), now)


def _event_object(event: Thing, _: float) -> Cell:
    about = event.get("involvedObject") or event.get("regarding") or {}
    return "/".join(each for each in (about.get("kind", "").lower(), about.get("name")) if each)


def _event_source(event: Thing, _: float) -> Cell:
    source = event.get("source") or event.get("deprecatedSource") or {}
    parts = source.get("component") or event.get("reportingComponent") or event.get("reportingController"), source.get(
        "host") or event.get("reportingInstance")
    return ", ".join(each for each in parts if each)


def _service_ips(service: Thing, _: float) -> Cell:
    kind, spec = first(".spec.type", service, "ClusterIP"), service.get("spec", {})
    if kind == "ExternalName":
        return str(spec.get("externalName"))
    given = find(".status.loadBalancer.ingress[*].ip", service) + spec.get("externalIPs", [])
    return ",".join(given) or ("<pending>" if kind == "LoadBalancer" else None)


def _service_ports(service: Thing, _: float) -> Cell:
    return ",".join(f"{each['port']}{':{}'.format(each['nodePort']) if each.get('nodePort') else ''}"
                    f"/{each.get('protocol', 'TCP')}" for each in find(".spec.ports[*]", service)) or None


def _endpoints(thing: Thing, _: float) -> Cell:
    every = [f"{address}:{port}" for each in thing.get("subsets") or () for address in find(".addresses[*].ip", each)
             for port in find(".ports[*].port", each)]
    return (",".join(every[:3]) + (f" + {len(every) - 3} more..." if len(every) > 3 else "")) or None


def _quota(limits: bool, quota: Thing, _: float) -> Cell:
    hard, used = first(".status.hard", quota, {}), first(".status.used", quota, {})
    return ", ".join(f"{each}: {_text(used.get(each, 0))}/{_text(hard[each])}" for each in sorted(hard)
                     if each.startswith("limits") == limits)


def _ready_of_desired(thing: Thing, _: float) -> Cell:
    return f"{first('.status.readyReplicas', thing, 0)}/{first('.spec.replicas', thing, 1)}"


def _scale_metrics(scaler: Thing, _: float) -> Cell:
    """What is used of what should be, of the first two metrics; other metrics than those of resources are unknown."""
    used = {it.get("name"): it.get("current", {}) for it in find(".status.currentMetrics[*].resource", scaler)}
    shown = [_scale_metric(it.get("resource"), used) for it in find(".spec.metrics[*]", scaler)]
    return ", ".join(shown[:2]) + (f" + {len(shown) - 2} more..." if len(shown) > 2 else "") or None


def _scale_metric(asked: Thing | None, used: Thing) -> str:
    if not asked:
        return "<unknown>"
    name, unit = ("averageValue", "") if "averageValue" in asked["target"] else ("averageUtilization", "%")
    value = used.get(asked["name"], {}).get(name)
    current = "<unknown>" if value is None else f"{value}{unit}"
    return f"{asked['name']}: {current}/{asked['target'].get(name)}{unit}"


def _labels(labels: Any, _: float) -> Cell:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or None


def _subjects(binding: Thing, _: float) -> Cell:
    return ",".join(f"{each.get('namespace', '')}/{each['name']}" for each in binding.get("subjects", ())
                    if each.get("kind") == "ServiceAccount")


def _claim_state(claim: Thing, _: float) -> Cell:
    if claim["metadata"].get("deletionTimestamp"):
        return "deleted"
    parts = ("allocated",) * bool(first(".status.allocation", claim)) + ("reserved",) * bool(find(
        ".status.reservedFor[*]", claim))
    return ",".join(parts) or "pending"


def _named(path: str) -> Callable[[Thing, float], Cell]:
    """Kind/name of the reference at `path`."""
    return lambda thing, _: "/".join(find(f"{path}.kind", thing) + find(f"{path}.name", thing)) or None


_RULES: Mapping[str, Callable[[Any, float], Cell]] = {
    "access_modes": lambda modes, _: ",".join(_MODES.get(each, each) for each in modes or ()) or None,
    "age": age,
    "capital": lambda flag, _: None if flag is None else str(flag),
    "claim": lambda volume, _: "/".join(find(".spec.claimRef.namespace", volume) + find(".spec.claimRef.name", volume)),
    "claim_state": _claim_state,
    "count": lambda things, _: len(things or ()),
    "count_data": lambda thing, _: len(thing.get("data") or ()) + len(thing.get("binaryData") or ()),
    "endpoints": _endpoints,
    "event_count": lambda event, _: first(".series.count", event) or event.get("count") or 1,
    "event_object": _event_object,
    "event_source": _event_source,
    "first_seen": _seen(".firstTimestamp", ".eventTime", ".deprecatedFirstTimestamp"),
    "ingress_ports": lambda ingress, _: "80, 443" if find(".spec.tls[*]", ingress) else "80",
    "job_completions": _job_completions,
    "job_duration": _job_duration,
    "job_status": _job_status,
    "labels": _labels,
    "last_seen": _seen(".series.lastObservedTime", ".lastTimestamp", ".eventTime", ".deprecatedLastTimestamp"),
    "node_roles": _node_roles,
    "node_status": _node_status,
    "pod_ready": _pod_ready,
    "pod_restarts": _pod_restarts,
    "pod_status": _pod_status,
    "quota_limits": partial(_quota, True),
    "quota_requests": partial(_quota, False),
    "readiness_gates": _readiness_gates,
    "ready_of_desired": _ready_of_desired,
    "role": _named(".roleRef"),
    "scale_metrics": _scale_metrics,
    "scale_target": _named(".spec.scaleTargetRef"),
    "selector": lambda selector, _: selector_text(selector) or None,
    "service_accounts": _subjects,
    "service_ips": _service_ips,
    "service_ports": _service_ports,
    "text": lambda words, _: (words or "").strip(),
}
