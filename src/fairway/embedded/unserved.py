"""What is accepted and kept though nothing here acts on it: told in the Warning header when an object is made.

Of pods it is what a node without a container engine cannot do, of what makes pods what its controller does not look at.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fairway.embedded.autoscale import rules as autoscaling
from fairway.embedded.catalog import Resource
from fairway.embedded.defaults import containers
from fairway.node.attended import is_attended

_JOB = {"podReplacementPolicy": "TerminatingOrFailed", "managedBy": "kubernetes.io/job-controller"}
_SETS = ("deployments.apps", "replicasets.apps", "statefulsets.apps")
"""Field → the value at which there is nothing to act on, beside that it is absent."""
_IDS = ("runAsUser", "runAsGroup", "fsGroup", "supplementalGroups")


def warnings(resource: Resource, thing: Mapping[str, Any]) -> Iterator[str]:
    spec = thing.get("spec") or {}
    if not resource.kind.acted_on:
        yield f"{resource.name} are kept as data here: nothing acts on them"
    elif resource.name == "pods":
        yield from _of_pod(spec, "spec")
    elif resource.name == autoscaling.NAME:
        yield from autoscaling.warnings(spec)
    elif resource.name == "limitranges":
        for index, item in enumerate(spec.get("limits") or ()):
            rest = item.keys() - ({"type", "default", "defaultRequest"} if item["type"] == "Container" else {"type"})
            yield from _ignored(item, f"spec.limits[{index}]", dict.fromkeys(sorted(rest)))
    elif resource.name == "services":
        yield from _ignored(spec, "spec", {"sessionAffinity": "None", "externalIPs": []})
        if spec.get("type") in ("NodePort", "LoadBalancer"):
            yield f"spec.type {spec['type']} is served as ClusterIP: nothing listens on this machine's other addresses"
        if any(port.get("protocol") != "TCP" for port in spec.get("ports") or ()):
            yield "spec.ports: connections are carried for TCP alone"
    elif resource.name == "jobs.batch":
        yield from _ignored(spec, "spec", _JOB)
        yield from _of_pod(spec["template"]["spec"], "spec.template.spec")
    elif resource.name in _SETS:
        yield from _ignored(spec, "spec", {"volumeClaimTemplates": []})
        yield from _of_pod(spec["template"]["spec"], "spec.template.spec")
    elif resource.name == "cronjobs.batch":
        yield from _of_pod(spec["jobTemplate"]["spec"]["template"]["spec"], "spec.jobTemplate.spec.template.spec")


def _of_pod(spec: Mapping[str, Any], path: str) -> Iterator[str]:
    yield from _ignored(spec, path, {"hostAliases": [], "dnsConfig": {}})
    yield from _of_security(spec, f"{path}.securityContext")
    for where, container in containers(spec):
        inputs = {} if is_attended(container) else {"stdin": False, "tty": False}
        yield from _ignored(container, f"{path}.{where}", inputs)
        yield from _of_security(container, f"{path}.{where}.securityContext")


def _of_security(part: Mapping[str, Any], path: str) -> Iterator[str]:
    asked = part.get("securityContext") or {}
    for name in _IDS:
        if asked.get(name) not in (None, []):
            yield (f"{path}.{name}: without a container engine a pod runs as the user that Fairway chooses; with --team"
                   " a pod that names another waits")
    rest = sorted(asked.keys() - {*_IDS, "allowPrivilegeEscalation"})
    yield from _ignored(asked, path, dict.fromkeys(rest, False))


def _ignored(spec: Mapping[str, Any], path: str, fields: Mapping[str, Any]) -> Iterator[str]:
    for name, idle in fields.items():
        if spec.get(name) not in (None, idle):
            yield f"{path}.{name} is kept as data here: nothing acts on it"
