"""Makes the embedded server's two data files: the structure of the built-in kinds, without a word of their texts.

    pip download --no-deps kubernetes-validate==1.37.0
    python tools/make_schemas.py kubernetes_validate-*.whl api.zip apimachinery.zip

The zips are the Go modules k8s.io/api and k8s.io/apimachinery, v0.34.1 (any archive that has their generated.proto).

schemas.json: every definition that a kind of `fairway.embedded.kinds` reaches, one to a line: types, required, list
types and merge keys from the wheel; the allowed values below by hand (the wheel has none). The wheel also allows null
everywhere, as a Go server does; here that is the reader's rule, not the schema's.
protobuf.json: for the same definitions the fields of their messages: number -> [JSON name, type, how], where how is
one, list, map, or inline (a message whose fields lie in its parent's JSON).
"""

import json
import re
import sys
import zipfile
from pathlib import Path

from fairway.embedded.kinds import builtin_names

RELEASE = "v1.34.0"
TARGET = Path(__file__).parent.parent / "src/fairway/embedded"
GVK = "x-kubernetes-group-version-kind"
KEPT = ("type", "format", "required", "items", "additionalProperties", "x-kubernetes-list-type", GVK,
        "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "x-kubernetes-patch-merge-key",
        "x-kubernetes-patch-strategy")
BESIDES = ("authentication.v1.TokenRequest", "core.v1.Binding", "policy.v1.Eviction", "meta.v1.DeleteOptions",
           "meta.v1.ObjectMeta", "meta.v1.Status")
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
SPECIAL = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString":
        {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"anyOf": [{"type": "string"}, {"type": "number"}]},
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": OPEN,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": OPEN,
}
SELECTOR = "DoesNotExist Exists In NotIn"
ALLOWED = {
    "apps.v1.DaemonSetUpdateStrategy.type": "OnDelete RollingUpdate",
    "apps.v1.DeploymentStrategy.type": "Recreate RollingUpdate",
    "apps.v1.StatefulSetSpec.podManagementPolicy": "OrderedReady Parallel",
    "apps.v1.StatefulSetUpdateStrategy.type": "OnDelete RollingUpdate",
    "apiextensions.v1.CustomResourceDefinitionSpec.scope": "Cluster Namespaced",
    "batch.v1.CronJobSpec.concurrencyPolicy": "Allow Forbid Replace",
    "batch.v1.JobSpec.completionMode": "Indexed NonIndexed",
    "batch.v1.JobSpec.podReplacementPolicy": "Failed TerminatingOrFailed",
    "batch.v1.PodFailurePolicyOnExitCodesRequirement.operator": "In NotIn",
    "batch.v1.PodFailurePolicyRule.action": "Count FailIndex FailJob Ignore",
    "core.v1.Container.imagePullPolicy": "Always IfNotPresent Never",
    "core.v1.Container.terminationMessagePolicy": "FallbackToLogsOnError File",
    "core.v1.ContainerPort.protocol": "SCTP TCP UDP",
    "core.v1.NodeSelectorRequirement.operator": SELECTOR + " Gt Lt",
    "core.v1.PersistentVolumeSpec.persistentVolumeReclaimPolicy": "Delete Recycle Retain",
    "core.v1.PodSpec.dnsPolicy": "ClusterFirst ClusterFirstWithHostNet Default None",
    "core.v1.PodSpec.preemptionPolicy": "Never PreemptLowerPriority",
    "core.v1.PodSpec.restartPolicy": "Always Never OnFailure",
    "core.v1.ServicePort.protocol": "SCTP TCP UDP",
    "core.v1.ServiceSpec.sessionAffinity": "ClientIP None",
    "core.v1.ServiceSpec.type": "ClusterIP ExternalName LoadBalancer NodePort",
    "core.v1.Taint.effect": "NoExecute NoSchedule PreferNoSchedule",
    "core.v1.TopologySpreadConstraint.whenUnsatisfiable": "DoNotSchedule ScheduleAnyway",
    "meta.v1.LabelSelectorRequirement.operator": SELECTOR,
    "networking.v1.HTTPIngressPath.pathType": "Exact ImplementationSpecific Prefix",
    "policy.v1.PodDisruptionBudgetSpec.unhealthyPodEvictionPolicy": "AlwaysAllow IfHealthyBudget",
    "scheduling.v1.PriorityClass.preemptionPolicy": "Never PreemptLowerPriority",
    "storage.v1.StorageClass.volumeBindingMode": "Immediate WaitForFirstConsumer",
}
FILLED = {  # said to be required, but they have a default
    "batch.v1.PodFailurePolicyOnPodConditionsPattern": ["status"], "rbac.v1.RoleRef": ["apiGroup"]}
FIELD = re.compile(r"^  (?:(optional|repeated) )?(map<string, )?([.\w]+)>? (\w+) = (\d+);", re.M)
MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.M | re.S)


def short(name: str) -> str:
    """io.k8s.api.core.v1.Pod -> core.v1.Pod: group, version and type."""
    return ".".join(name.split(".")[-3:])


def referred(node: object) -> set[str]:
    """The definitions that `node` refers to."""
    if isinstance(node, dict):
        here = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return here.union(*map(referred, node.values()))
    return set().union(*map(referred, node)) if isinstance(node, list) else set()


def structure(node: dict, name: str) -> dict:
    """`node` without texts, nulls and the values of apiVersion and kind."""
    if "$ref" in node:
        return {"$ref": node["$ref"].rpartition("/")[2]} | {k: node[k] for k in KEPT if k in node}
    kept = {key: node[key] for key in KEPT if key in node}
    if isinstance(kept.get("type"), list):
        kept["type"] = next(each for each in kept["type"] if each != "null")
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = structure(kept[key], name)
    if "properties" in node:
        fields = sorted(node["properties"].items())
        kept["properties"] = {key: structure(value, f"{name}.{key}") for key, value in fields}
    if name in FILLED:
        kept["required"] = [each for each in kept["required"] if each not in FILLED[name]]
    if name in ALLOWED:
        kept["enum"] = sorted(ALLOWED[name].split())
    return kept or {"x-kubernetes-preserve-unknown-fields": True}


def definitions(wheel: Path) -> dict[str, dict]:
    """All that the built-in kinds reach, by name."""
    with zipfile.ZipFile(wheel) as archive:
        path = f"kubernetes_validate/kubernetes-json-schema/{RELEASE}-local/_definitions.json"
        given = json.loads(archive.read(path))["$defs"]
    every = {name: SPECIAL.get(name) or structure(node, short(name)) for name, node in given.items()}
    wanted = set(builtin_names())
    todo = [name for name, node in every.items() if short(name) in BESIDES or any(
        (gvk["group"], gvk["version"], gvk["kind"]) in wanted for gvk in node.get(GVK, ()))]
    reached: dict[str, dict] = {}
    while todo:
        name = todo.pop()
        if name not in reached:
            reached[name] = every[name]
            todo.extend(referred(every[name]))
    for node in reached.values():
        if len(node.get(GVK, ())) > 1:      # DeleteOptions: of every group
            del node[GVK]
    return reached


def messages(archives: list[Path]) -> dict[str, dict[str, tuple[str, str, str]]]:
    """Message -> field number -> (name, type, one | list | map)."""
    found = {}
    for path in archives:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                if member.endswith("/generated.proto"):
                    text = re.sub(r"\s*//[^\n]*", "", archive.read(member).decode())
                    found |= in_file(text)
    return found


def in_file(text: str) -> dict[str, dict[str, tuple[str, str, str]]]:
    package = re.search(r"^package ([\w.]+);", text, re.M)[1]
    names = dict(MESSAGE.findall(text))

    def full(kind: str) -> str:
        return "io" + kind.replace(".k8s.io", ".k8s") if kind[0] == "." else \
            f"io.{package.replace('k8s.io', 'k8s')}.{kind}" if kind in names else kind

    return {full(name): {number: (field, full(kind), "map" if mapped else "list" if label == "repeated" else "one")
                         for label, mapped, kind, field, number in FIELD.findall(body)} for name, body in names.items()}


def fields(known: dict[str, dict], found: dict[str, dict]) -> dict[str, dict]:
    """The messages of the known definitions and what lies in them; inline is a message that JSON has no field for."""
    todo, reached = [name for name in known if name in found], {}
    while todo:
        name = todo.pop()
        if name in reached:
            continue
        shape = known.get(name, {}).get("properties")
        reached[name] = {
            number: (field, kind, "inline" if shape is not None and field not in shape and "." in kind else how)
            for number, (field, kind, how) in found[name].items()}
        todo.extend(kind for _, kind, _ in reached[name].values() if "." in kind)
    return reached


def write(path: Path, entries: dict[str, dict]) -> None:
    """One entry to a line, so that a new release can be read as a difference."""
    compact = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode
    lines = (f"{compact(name)}:{compact(entries[name])}" for name in sorted(entries))
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> None:
    wheel, *archives = map(Path, sys.argv[1:])
    known = definitions(wheel)
    write(TARGET / "schemas.json", known)
    write(TARGET / "protobuf.json", fields(known, messages(archives)))


if __name__ == "__main__":
    main()
