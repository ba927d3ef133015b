"""What a HorizontalPodAutoscaler must say, what is filled in, and what nothing here acts on."""

from collections.abc import Iterator, Mapping
from typing import Any

from fairway.embedded.errors import Cause, required, wrong

NAME = "horizontalpodautoscalers.autoscaling"
CPU_PERCENT = 80
RESOURCES = ("cpu", "memory")
TARGETS = ("Deployment", "ReplicaSet", "StatefulSet")
Thing = Mapping[str, Any]


def complete(thing: dict[str, Any]) -> None:
    spec = thing.get("spec")
    if spec is None:
        return
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": CPU_PERCENT}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]


def faults(thing: Thing, old: Thing) -> Iterator[Cause]:
    spec = thing.get("spec") or {}
    if spec == old.get("spec"):
        return
    least, most, target = spec.get("minReplicas", 1), spec.get("maxReplicas", 0), spec.get("scaleTargetRef") or {}
    if least < 1:
        yield wrong("spec.minReplicas", least, "must be greater than or equal to 1")
    if most < 1:
        yield wrong("spec.maxReplicas", most, "must be greater than 0")
    elif most < least:
        yield wrong("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")
    yield from (required(f"spec.scaleTargetRef.{name}") for name in ("kind", "name") if not target.get(name))
    for index, metric in enumerate(spec.get("metrics") or ()):
        path, said = f"spec.metrics[{index}].resource.target", (metric.get("resource") or {}).get("target") or {}
        if metric.get("type") == "Resource" and not (said.get("averageUtilization") or said.get("averageValue")):
            yield required(f"{path}.averageUtilization", "must set either a target raw value or a target utilization")


def warnings(spec: Thing) -> Iterator[str]:
    kind = (spec.get("scaleTargetRef") or {}).get("kind")
    if kind not in TARGETS:
        yield f"spec.scaleTargetRef: nothing scales a {kind} here, only {', '.join(TARGETS)}"
    for index, metric in enumerate(spec.get("metrics") or ()):
        resource = metric["resource"]["name"] if metric.get("type") == "Resource" else metric.get("type")
        if resource not in RESOURCES:
            yield f"spec.metrics[{index}] is kept as data here: nothing measures {resource}, only cpu and memory"
    behavior = spec.get("behavior") or {}
    if any((behavior.get(way) or {}).get("policies") for way in ("scaleUp", "scaleDown")):
        yield "spec.behavior: policies are kept as data here: nothing acts on them"
