"""What Kubernetes refuses in the built-in kinds that Fairway acts on, beyond what their schemas say.

Each rule yields causes with field paths; none of them looks at another object. `old` is empty for a new object. What
did not change is not judged again, so that an object which was let in stays writable.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fairway.api.indexes import parse_indexes
from fairway.api.pods import MOST_POD_TERMS, MOST_SPREADS
from fairway.api.quantities import Malformed, exact
from fairway.embedded import crd, defaults, handlers
from fairway.embedded.access import wellformed
from fairway.embedded.apps.schedule import moments
from fairway.embedded.autoscale import rules as autoscaling
from fairway.embedded.errors import Cause, denied, duplicate, required, too_many, unsupported, wrong
from fairway.embedded.limits import DATA_BYTES
from fairway.embedded.meta import LABEL, SAY_LABEL, label_faults
from fairway.embedded.services import address

Thing = Mapping[str, Any]
Causes = Iterable[Cause]

_IMMUTABLE = "field is immutable"
_CONFIG_KEY = re.compile(r"(?!\.{1,2}$)[-._a-zA-Z0-9]{1,253}")
_ENV = re.compile(r"[^=\x00-\x1f\x7f-\U0010ffff]+")
_MAX_PRIORITY = 1_000_000_000
_MOST_REPLICAS = 100_000  # their controller looks at each of them
DIGITS = 9  # of an index that is worth reading
_MOST_INDEXES = 100_000  # a Job's controller looks at each of them; Kubernetes has this bound for the pods at once
_SHARE = "must be a whole number that is not negative, or a percentage"
_CRON_NAME = 52  # its Jobs' names are longer
_POD_UPDATES = ("pod updates may not change fields other than `spec.containers[*].image`,"
                "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to "
                "existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
                "previously negative)")
_JOB_LEAST = dict.fromkeys(
    ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"), 0)
_JOB_FIXED = ("completionMode", "selector", "manualSelector", "podFailurePolicy", "backoffLimitPerIndex",
              "maxFailedIndexes", "managedBy", "successPolicy")
_DIRECTIVES = ("nodeSelector", "tolerations", "affinity", "schedulingGates")


def faults(resource: str, thing: Thing, *, old: Thing) -> Causes:
    rule = _RULES.get(resource)
    return rule(thing, old) if rule else ()


# -- pods

def _pod(pod: Thing, old: Thing) -> Iterator[Cause]:
    spec = pod.get("spec")
    if not spec:
        yield required("spec.containers")
    elif not old:
        yield from _pod_spec(spec, "spec")
        if spec.get("nodeName") and spec.get("schedulingGates"):
            yield denied("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
    elif spec != old["spec"]:
        yield from _pod_update(spec, old["spec"])


def _pod_update(new: Thing, old: Thing) -> Iterator[Cause]:
    gates = [each["name"] for each in old.get("schedulingGates") or ()]
    for index, each in enumerate(new.get("schedulingGates") or ()):
        if each["name"] not in gates:
            yield denied(f"spec.schedulingGates[{index}].name", "only deletion is allowed, but found new scheduling "
                         f"gate '{each['name']}'")
    yield from _at_least(new, "spec", {"activeDeadlineSeconds": 0})
    free = ["activeDeadlineSeconds", "schedulingGates"]
    if all(each in (new.get("tolerations") or ()) for each in old.get("tolerations") or ()):
        free.append("tolerations")
    if gates:  # not scheduled yet: where it may run can still be narrowed
        free += ["affinity"]
        if (old.get("nodeSelector") or {}).items() <= (new.get("nodeSelector") or {}).items():
            free.append("nodeSelector")
    if _without(new, free) != _without(old, free):
        yield denied("spec", _POD_UPDATES)


def _without(spec: Thing, names: Iterable[str]) -> dict[str, Any]:
    """The spec less those fields and the images."""
    rest = {name: value for name, value in spec.items() if name not in names}
    for field in ("containers", "initContainers"):
        if field in rest:
            rest[field] = [{**each, "image": "", "imagePullPolicy": ""} for each in rest[field]]
    return rest


def _pod_spec(spec: Thing, path: str) -> Iterator[Cause]:
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    volumes = [each.get("name", "") for each in spec.get("volumes") or ()]
    yield from _names(volumes, f"{path}.volumes")
    yield from _names([each.get("name", "") for _, each in defaults.containers(spec)], f"{path}.containers")
    for where, container in defaults.containers(spec):
        yield from _container(container, f"{path}.{where}", volumes)
        yield from handlers.faults(container, f"{path}.{where}", is_init=where.startswith("init"))
    for name in ("hostname", "subdomain"):
        if (text := spec.get(name)) and not LABEL.fullmatch(text):
            yield wrong(f"{path}.{name}", text, SAY_LABEL if len(text) <= 63 else "must be no more than 63 characters")
    for index, volume in enumerate(spec.get("volumes") or ()):
        yield from _items(volume, f"{path}.volumes[{index}]")
    if (policy := spec.get("restartPolicy")) not in ("Always", "OnFailure", "Never"):
        yield unsupported(f"{path}.restartPolicy", policy, ("Always", "OnFailure", "Never"))
    if (count := len(spec.get("topologySpreadConstraints") or ())) > MOST_SPREADS:
        yield too_many(f"{path}.topologySpreadConstraints", count, MOST_SPREADS)
    for name in ("podAffinity", "podAntiAffinity"):
        terms = ((spec.get("affinity") or {}).get(name) or {}).values()
        if (count := sum(len(each) for each in terms if isinstance(each, list))) > MOST_POD_TERMS:
            yield too_many(f"{path}.affinity.{name}", count, MOST_POD_TERMS)
    yield from _at_least(spec, path, {"terminationGracePeriodSeconds": 0, "activeDeadlineSeconds": 1})
    yield from label_faults(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    for index, each in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(each, f"{path}.tolerations[{index}]")


def _items(volume: Thing, path: str) -> Iterator[Cause]:
    """The files of a volume lie in it."""
    for name in ("configMap", "secret"):
        for index, each in enumerate((volume.get(name) or {}).get("items") or ()):
            place, where = each.get("path", ""), f"{path}.{name}.items[{index}].path"
            if not place:
                yield required(where)
            elif place.startswith("/"):
                yield wrong(where, place, "must be a relative path")
            elif ".." in place.split("/"):
                yield wrong(where, place, "must not contain '..'")
            elif not {*place.split("/")} - {"", "."}:
                yield wrong(where, place, "must name a file")


def _toleration(each: Thing, path: str) -> Iterator[Cause]:
    operator, effect = each.get("operator", ""), each.get("effect", "")
    if operator not in ("", "Equal", "Exists"):
        yield unsupported(f"{path}.operator", operator, ("Equal", "Exists"))
    if effect not in ("", "NoSchedule", "PreferNoSchedule", "NoExecute"):
        yield unsupported(f"{path}.effect", effect, ("NoSchedule", "PreferNoSchedule", "NoExecute"))
    if not each.get("key") and operator != "Exists":
        yield wrong(f"{path}.operator", operator, "operator must be Exists when `key` is empty, which means "
                    '"match all values and all keys"')
    if operator == "Exists" and each.get("value"):
        yield wrong(f"{path}.operator", each["value"], "value must be empty when `operator` is 'Exists'")


def _container(container: Thing, path: str, volumes: list[str]) -> Iterator[Cause]:
    if not container.get("image"):
        yield required(f"{path}.image")
    for index, each in enumerate(container.get("volumeMounts") or ()):
        if each.get("name") not in volumes:
            yield Cause(f"{path}.volumeMounts[{index}].name", "FieldValueNotFound", f'Not found: "{each.get("name")}"')
    for index, each in enumerate(container.get("env") or ()):
        if not _ENV.fullmatch(each.get("name", "")):
            yield wrong(f"{path}.env[{index}].name", each.get("name", ""), "a valid environment variable name must "
                        "consist only of printable ASCII characters other than '='")
        if each.get("value") and each.get("valueFrom"):
            yield wrong(f"{path}.env[{index}].valueFrom", "", "may not be specified when `value` is not empty")
    yield from _resources(container.get("resources") or {}, f"{path}.resources")


def _resources(resources: Thing, path: str) -> Iterator[Cause]:
    amounts: dict[tuple[str, str], Any] = {}
    for part in ("limits", "requests"):
        for name, text in (resources.get(part) or {}).items():
            try:
                amounts[part, name] = exact(str(text))
            except Malformed as error:
                yield wrong(f"{path}.{part}[{name}]", text, error.message)
    for (part, name), amount in amounts.items():
        limit = amounts.get(("limits", name))
        if "/" in name and amount.denominator != 1:
            yield wrong(f"{path}.{part}[{name}]", str(resources[part][name]), "must be an integer")
        if part == "requests" and limit is not None and amount > limit:
            yield wrong(f"{path}.requests", str(resources[part][name]),
                        f"must be less than or equal to {name} limit of {resources['limits'][name]}")
        elif part == "requests" and "/" in name and amount != limit:
            how = "Limit must be set for non overcommitable resources" if limit is None else (
                f"must be equal to {name} limit of {resources['limits'][name]}")
            yield (required(f"{path}.limits", how) if limit is None
                   else wrong(f"{path}.requests", str(resources[part][name]), how))


def _names(names: list[str], path: str) -> Iterator[Cause]:
    seen = set[str]()
    for index, name in enumerate(names):
        if not name:
            yield required(f"{path}[{index}].name")
        elif not LABEL.fullmatch(name):
            yield wrong(f"{path}[{index}].name", name, SAY_LABEL)
        elif name in seen:
            yield duplicate(f"{path}[{index}].name", name)
        seen.add(name)


# -- jobs

def _job(job: Thing, old: Thing) -> Iterator[Cause]:
    spec = job.get("spec") or {}
    before = old.get("spec")
    if spec == before:
        return
    yield from _at_least(spec, "spec", _JOB_LEAST)
    if spec.get("completionMode") not in ("NonIndexed", "Indexed"):
        yield unsupported("spec.completionMode", spec.get("completionMode"), ("Indexed", "NonIndexed"))
    elif spec["completionMode"] == "Indexed" and "completions" not in spec:
        yield required("spec.completions", "when completion mode is Indexed")
    elif spec["completionMode"] == "Indexed" and spec["completions"] > _MOST_INDEXES:
        yield wrong("spec.completions", spec["completions"], f"must be less than or equal to {_MOST_INDEXES}")
    elif "successPolicy" in spec:
        yield from _success_policy(spec)
    if before:
        yield from _job_update(spec, before, "startTime" in job.get("status", {}))
        return
    template = spec.get("template", {}).get("spec")
    if template is None:
        yield required("spec.template.spec.containers")
        return
    yield from label_faults(spec["template"]["metadata"].get("labels") or {}, "spec.template.labels")
    yield from _pod_spec(template, "spec.template.spec")
    if template.get("restartPolicy") == "Always":
        yield required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')


def _success_policy(spec: Thing) -> Iterator[Cause]:
    path, rules = "spec.successPolicy", spec["successPolicy"].get("rules") or ()
    if spec["completionMode"] != "Indexed":
        yield wrong(path, spec["successPolicy"], "requires indexed completion mode")
    elif not rules:
        yield required(f"{path}.rules", "at least one rules must be specified when the successPolicy is specified")
    for row, rule in enumerate(rules if spec["completionMode"] == "Indexed" else ()):
        yield from _success_rule(rule, f"{path}.rules[{row}]", spec["completions"])


def _success_rule(rule: Thing, path: str, completions: int) -> Iterator[Cause]:
    text, count, most = rule.get("succeededIndexes"), rule.get("succeededCount"), completions
    if text is None and count is None:
        yield required(path, "at least one of succeededCount or succeededIndexes must be specified")
    if text is not None:
        is_set = re.fullmatch(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*", text)
        named = parse_indexes(text) if is_set else None
        if not named or any(len(it) > DIGITS or int(it) >= completions for it in re.findall("[0-9]+", text)):
            yield wrong(f"{path}.succeededIndexes", text, f"must be indexes below {completions}, such as 0,2-4")
        most = len(named or ())
    if count is not None and not 1 <= count <= most:
        yield wrong(f"{path}.succeededCount", count, f"must be from 1 to {most}")


def _job_update(spec: Thing, old: Thing, started: bool) -> Iterator[Cause]:
    for name in _JOB_FIXED:
        if spec.get(name) != old.get(name):
            yield wrong(f"spec.{name}", spec.get(name), _IMMUTABLE)
    indexed = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if spec.get("completions") != old.get("completions") and not indexed:
        yield wrong("spec.completions", spec.get("completions"), _IMMUTABLE)
    mutable = old.get("suspend") and not started
    new, before = spec.get("template") or {}, old.get("template") or {}
    if new != before and not (mutable and _undirected(new) == _undirected(before)):
        yield wrong("spec.template", new, _IMMUTABLE)


def _undirected(template: Thing) -> tuple[Any, Any]:
    """The template less what may still be said about where its pods run, while the job is suspended."""
    rest = {name: value for name, value in (template.get("spec") or {}).items() if name not in _DIRECTIVES}
    about = {name: value for name, value in (template.get("metadata") or {}).items()
             if name not in ("labels", "annotations")}
    return rest, about


# -- kinds that make pods or Jobs

def _stateful_set(thing: Thing, old: Thing) -> Iterator[Cause]:
    spec, before = thing.get("spec") or {}, old.get("spec")
    if spec == before:
        return
    yield from _set(thing, {})
    if before and any(spec.get(name) != before.get(name) for name in (spec.keys() | before.keys()) - set(_STATEFUL)):
        names = f"{', '.join(map(repr, _STATEFUL[:-1]))} and {_STATEFUL[-1]!r}"
        yield denied("spec", f"updates to statefulset spec for fields other than {names} are forbidden")


def _set(thing: Thing, old: Thing) -> Iterator[Cause]:
    spec, before = thing.get("spec") or {}, old.get("spec")
    if spec == before:
        return
    yield from _at_least(spec, "spec", {"replicas": 0, "minReadySeconds": 0, "revisionHistoryLimit": 0})
    if (spec.get("replicas") or 0) > _MOST_REPLICAS:
        yield wrong("spec.replicas", spec["replicas"], f"must be less than or equal to {_MOST_REPLICAS}")
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    for name, most in (("maxSurge", r"\d{1,9}"), ("maxUnavailable", r"100|\d\d?")):
        if not _is_share(value := rolling.get(name) or 0, most):
            yield wrong(f"spec.strategy.rollingUpdate.{name}", value, _SHARE)
    if before and spec.get("selector") != before.get("selector"):
        yield wrong("spec.selector", spec.get("selector"), _IMMUTABLE)
    template = spec.get("template") or {}
    if not template.get("spec"):
        yield required("spec.template.spec.containers")
        return
    labels, selector = (template.get("metadata") or {}).get("labels") or {}, spec.get("selector")
    if not selector:
        yield required("spec.selector")
    elif not (selector.get("matchLabels") or {}).items() <= labels.items():
        yield wrong("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from label_faults(labels, "spec.template.labels")
    yield from _pod_spec(template["spec"], "spec.template.spec")
    if (policy := template["spec"].get("restartPolicy")) != "Always":
        yield unsupported("spec.template.spec.restartPolicy", policy, ("Always",))


def _cron_job(thing: Thing, old: Thing) -> Iterator[Cause]:
    spec, name = thing.get("spec") or {}, thing["metadata"].get("name", "")
    if spec == old.get("spec"):
        return
    if len(name) > _CRON_NAME:
        yield wrong("metadata.name", name, f"must be no more than {_CRON_NAME} characters")
    try:
        moments(spec.get("schedule", ""), spec.get("timeZone", ""), 0.0)
    except ValueError as error:
        yield wrong("spec.schedule", spec.get("schedule"), str(error))
    except (OSError, KeyError):
        yield wrong("spec.timeZone", spec["timeZone"], "unknown time zone")
    if spec.get("concurrencyPolicy") not in ("Allow", "Forbid", "Replace"):
        yield unsupported("spec.concurrencyPolicy", spec.get("concurrencyPolicy"), ("Allow", "Forbid", "Replace"))
    yield from _at_least(spec, "spec", {"startingDeadlineSeconds": 0, "successfulJobsHistoryLimit": 0,
                                        "failedJobsHistoryLimit": 0})
    job = spec.get("jobTemplate") or {}
    if not (job.get("spec") or {}).get("template", {}).get("spec"):
        yield required("spec.jobTemplate.spec.template.spec.containers")
        return
    yield from _at_least(job["spec"], "spec.jobTemplate.spec", _JOB_LEAST)
    template = job["spec"]["template"]["spec"]
    yield from _pod_spec(template, "spec.jobTemplate.spec.template.spec")
    if template.get("restartPolicy") == "Always":
        yield required("spec.jobTemplate.spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')


# -- other kinds

def _priority_class(thing: Thing, old: Thing) -> Iterator[Cause]:
    value, name = thing.get("value", 0), thing["metadata"]["name"]
    if old:
        yield from (denied(field, f"may not be changed in an update. ({field} was {old.get(field)})")
                    for field in ("value", "preemptionPolicy") if thing.get(field) != old.get(field))
    elif value > _MAX_PRIORITY and not name.startswith("system-"):
        yield denied("value", f"maximum allowed value of a user defined priority is {_MAX_PRIORITY}")
    if thing.get("preemptionPolicy") not in ("PreemptLowerPriority", "Never"):
        yield unsupported("preemptionPolicy", thing.get("preemptionPolicy"), ("PreemptLowerPriority", "Never"))


def _event(event: Thing, old: Thing) -> Iterator[Cause]:
    about, before = (it.get("involvedObject") or {} for it in (event, old))
    found = about.get("namespace", "")
    if (not old or about != before) and (found or "default") != event["metadata"]["namespace"]:
        yield wrong("involvedObject.namespace", found, "does not match event.namespace")


def _configuration(thing: Thing, old: Thing) -> Iterator[Cause]:
    for part in ("data", "binaryData"):
        for key in thing.get(part) or {}:
            if not _CONFIG_KEY.fullmatch(key):
                yield wrong(f"{part}[{key}]", key, "a valid config key must consist of alphanumeric characters, '-', "
                            "'_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name')")
    if _data_bytes(thing) > DATA_BYTES:
        yield Cause("data", "FieldValueTooLong", f"Too long: may not be more than {DATA_BYTES} bytes")
    if old.get("immutable"):
        if not thing.get("immutable"):
            yield denied("immutable", "field is immutable when `immutable` is set")
        yield from (denied(part, "field is immutable when `immutable` is set")
                    for part in ("data", "binaryData") if thing.get(part) != old.get(part))


def _data_bytes(thing: Thing) -> int:
    """The size of the values, those in base64 as what they stand for."""
    texts, encoded = thing.get("data") or {}, thing.get("binaryData") or {}
    if "type" in thing:  # a Secret
        texts, encoded = {}, texts
    return sum(len(text.encode()) for text in texts.values()) + sum(
        len(text) * 3 // 4 - text.count("=", -2) for text in encoded.values())


def _secret(thing: Thing, old: Thing) -> Iterator[Cause]:
    yield from _configuration(thing, old)
    yield from (wrong(f"data[{key}]", "…", "must be base64") for key, text in (thing.get("data") or {}).items()
                if not defaults.is_base64(text))
    if old and thing.get("type") != old.get("type"):
        yield wrong("type", thing.get("type"), _IMMUTABLE)


def _is_share(value: int | str, most: str = r"100|\d\d?") -> bool:
    return bool(re.fullmatch(r"\d+" if isinstance(value, int) else f"({most})%", str(value), re.ASCII))


def _budget(thing: Thing, old: Thing) -> Iterator[Cause]:
    spec = thing.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        yield wrong("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    for name in ("minAvailable", "maxUnavailable"):
        value = spec.get(name, 0)
        if not _is_share(value):
            yield wrong(f"spec.{name}", value, _SHARE)


def _node(thing: Thing, old: Thing) -> Iterator[Cause]:
    for index, taint in enumerate((thing.get("spec") or {}).get("taints") or ()):
        if taint.get("effect") not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            yield unsupported(f"spec.taints[{index}].effect", taint.get("effect", ""),
                              ("NoSchedule", "PreferNoSchedule", "NoExecute"))


def _at_least(spec: Thing, path: str, bounds: Mapping[str, int]) -> Iterator[Cause]:
    for name, least in bounds.items():
        if spec.get(name) is not None and spec[name] < least:
            yield wrong(f"{path}.{name}", spec[name], f"must be greater than or equal to {least}")


_STATEFUL = ("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
             "persistentVolumeClaimRetentionPolicy", "minReadySeconds")
_RULES: Mapping[str, Callable[[Thing, Thing], Causes]] = dict.fromkeys(
    ("deployments.apps", "replicasets.apps"), _set
) | {
    "statefulsets.apps": _stateful_set,
    autoscaling.NAME: autoscaling.faults, "services": address.faults, "pods": _pod,
    "jobs.batch": _job, "cronjobs.batch": _cron_job, "priorityclasses.scheduling.k8s.io": _priority_class,
    "configmaps": _configuration, "secrets": _secret, "poddisruptionbudgets.policy": _budget, "nodes": _node,
    "customresourcedefinitions.apiextensions.k8s.io": crd.faults, "events": _event,
} | wellformed.RULES
