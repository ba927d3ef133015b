"""What Kubernetes fills into the built-in kinds that Fairway acts on. Other kinds stay as they were sent.

`complete` runs on what was created or changed, before admission and validation, and again changes nothing. Defaults
that only a new object gets (its status, a Job's selector, a namespace's label) are in `start`.
"""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fairway.api.quantities import exact
from fairway.embedded import handlers
from fairway.embedded.access import wellformed
from fairway.embedded.access.rbac import BINDINGS, CLUSTER_BINDINGS
from fairway.embedded.autoscale import rules as autoscaling
from fairway.embedded.services import address

Thing = dict[str, Any]

_POD = {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler"}
_CONTAINER = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_JOB = {"parallelism": 1, "completionMode": "NonIndexed", "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed", "backoffLimit": 6}
_MODES = ("secret", "configMap", "projected", "downwardAPI")


def complete(resource: str, thing: Thing) -> None:
    """Fills what is absent, wherever the kind says so."""
    filler = _FILLERS.get(resource)
    if filler is not None:
        filler(thing)


def start(resource: str, thing: Thing) -> None:
    """What only a new object gets. Its metadata are complete."""
    starter = _STARTERS.get(resource)
    if starter is not None:
        starter(thing)


def containers(spec: Mapping[str, Any]) -> Iterator[tuple[str, Thing]]:
    """Every container of a pod spec, with its path in the spec."""
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield f"{field}[{index}]", container


def pod_spec(spec: Thing) -> None:
    _fill(spec, _POD)
    spec.setdefault("securityContext", {})
    for _, container in containers(spec):
        _container(container)
    for volume in spec.get("volumes") or ():
        if len(volume) == 1:
            volume["emptyDir"] = {}
        for source in _MODES:
            if source in volume:
                volume[source].setdefault("defaultMode", 0o644)
        if "hostPath" in volume:
            volume["hostPath"].setdefault("type", "")


def _container(container: Thing) -> None:
    _fill(container, _CONTAINER)
    image = container.get("image", "").rpartition("/")[2]
    if image and "imagePullPolicy" not in container:
        latest = "@" not in image and image.partition(":")[2] in ("", "latest")
        container["imagePullPolicy"] = "Always" if latest else "IfNotPresent"
    resources = container.setdefault("resources", {})
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for each in container.get("env") or ():
        if "fieldRef" in (each.get("valueFrom") or {}):
            each["valueFrom"]["fieldRef"].setdefault("apiVersion", "v1")
    for name in handlers.PROBES:
        if name in container:
            _fill(container[name], _PROBE)
    handlers.complete(container)


def _pod(pod: Thing) -> None:
    spec = pod.get("spec")
    if spec is None:
        return
    pod_spec(spec)
    _fill(spec, {"serviceAccountName": "default", "enableServiceLinks": True})
    spec["serviceAccount"] = spec["serviceAccountName"]


def _new_pod(pod: Thing) -> None:
    pod["status"] = {"phase": "Pending", "qosClass": quality(pod.get("spec", {}))}


def quality(spec: Mapping[str, Any]) -> str:
    """The pod's class of service: Guaranteed, Burstable or BestEffort."""
    named, guaranteed = False, True
    for _, container in containers(spec):
        limits, requests = (container.get("resources", {}).get(part) or {} for part in ("limits", "requests"))
        for name in ("cpu", "memory"):
            named = named or name in limits or name in requests
            guaranteed = guaranteed and name in limits and _amount(limits[name]) == _amount(requests.get(name))
    return ("Guaranteed" if guaranteed else "Burstable") if named else "BestEffort"


def _amount(text: Any) -> Any:
    try:
        return exact(str(text))
    except ValueError:
        return text


MOST_FAILURES = 2**31 - 1


def _job(job: Thing) -> None:
    spec = job.get("spec")
    if spec is None:
        return
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    if "backoffLimitPerIndex" in spec:
        spec.setdefault("backoffLimit", MOST_FAILURES)
    _fill(spec, _JOB)
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            pattern.setdefault("status", "True")
    if "spec" in spec.get("template", {}):
        pod_spec(spec["template"]["spec"])


_SETS: Mapping[str, Thing] = {
    "deployments.apps": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600},
    "replicasets.apps": {"replicas": 1},
    "statefulsets.apps": {"replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady"},
}
_CRON = {"concurrencyPolicy": "Allow", "suspend": False, "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1}


def _set(resource: str) -> Callable[[Thing], None]:
    def fill(thing: Thing) -> None:
        spec = thing.get("spec")
        if spec is None:
            return
        _fill(spec, _SETS[resource])
        if resource == "deployments.apps":
            strategy = spec.setdefault("strategy", {})
            if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
                _fill(strategy.setdefault("rollingUpdate", {}), {"maxSurge": "25%", "maxUnavailable": "25%"})
        elif resource == "statefulsets.apps":
            strategy = spec.setdefault("updateStrategy", {})
            if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
                strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
        if "spec" in spec.get("template", {}):
            pod_spec(spec["template"]["spec"])

    return fill


def _cron_job(thing: Thing) -> None:
    spec = thing.get("spec")
    if spec is None:
        return
    _fill(spec, _CRON)
    if "spec" in spec.get("jobTemplate", {}):
        _job(spec["jobTemplate"])


def _new_job(job: Thing) -> None:
    spec, meta = job.get("spec", {}), job["metadata"]
    job["status"] = {}
    if spec.get("manualSelector") or not isinstance(spec.get("template"), dict):
        return
    ours = {"batch.kubernetes.io/controller-uid": meta["uid"]}
    named = {**ours, "batch.kubernetes.io/job-name": meta["name"], "controller-uid": meta["uid"],
             "job-name": meta["name"]}
    spec["selector"] = {**(spec.get("selector") or {}), "matchLabels": ours}
    template = spec["template"].setdefault("metadata", {})
    template["labels"] = {**(template.get("labels") or {}), **named}


def _namespace(namespace: Thing) -> None:
    meta = namespace["metadata"]
    meta["labels"] = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta["name"]}


def _new_namespace(namespace: Thing) -> None:
    namespace["spec"], namespace["status"] = {"finalizers": ["kubernetes"]}, {"phase": "Active"}


def _secret(secret: Thing) -> None:
    secret.setdefault("type", "Opaque")
    texts = secret.pop("stringData", None) or {}
    if texts:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def is_base64(text: Any) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        return False
    return True


def _service(service: Thing) -> None:
    spec = service.get("spec")
    if spec is None:
        return
    _fill(spec, {"type": "ClusterIP", "sessionAffinity": "None"})
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    address.complete(service)


def _limit_range(said: Thing) -> None:
    """What is usual is at most the most, and at least the least."""
    for item in (said.get("spec") or {}).get("limits") or ():
        if item.get("type") == "Container":
            usual = {**(item.get("max") or {}), **(item.get("default") or {})}
            asked = {**(item.get("min") or {}), **usual, **(item.get("defaultRequest") or {})}
            item |= {"default": usual, "defaultRequest": asked}


def _crd(crd: Thing) -> None:
    spec = crd.get("spec", {})
    names = spec.get("names")
    if isinstance(names, dict) and names.get("kind"):
        _fill(names, {"singular": names["kind"].lower(), "listKind": f"{names['kind']}List"})
    spec.setdefault("conversion", {"strategy": "None"})


def _empty_status(thing: Thing) -> None:
    thing["status"] = {}


def _fill(thing: Thing, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        thing.setdefault(name, value)


_FILLERS: Mapping[str, Callable[[Thing], None]] = {resource: _set(resource) for resource in _SETS} | {
    "pods": _pod, "jobs.batch": _job, "cronjobs.batch": _cron_job, "namespaces": _namespace,
    "secrets": _secret, "services": _service, "limitranges": _limit_range, autoscaling.NAME: autoscaling.complete,
    BINDINGS: wellformed.complete, CLUSTER_BINDINGS: wellformed.complete,
    "customresourcedefinitions.apiextensions.k8s.io": _crd,
    "priorityclasses.scheduling.k8s.io": lambda thing: _fill(thing, {"preemptionPolicy": "PreemptLowerPriority",
                                                                     "value": 0}),
}
_STARTERS: Mapping[str, Callable[[Thing], None]] = {
    "pods": _new_pod, "jobs.batch": _new_job, "namespaces": _new_namespace,
    "poddisruptionbudgets.policy": _empty_status, "cronjobs.batch": _empty_status,
} | dict.fromkeys(_SETS, _empty_status)
