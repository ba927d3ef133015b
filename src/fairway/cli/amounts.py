"""What a pod template asks for and what a node has, and amounts as people read them."""

from fractions import Fraction
from typing import Any

from fairway.api.scalars import exact

from .listing import GPU, OTHER_MAKERS

Thing = dict[str, Any]
OPTIONS = {"cpu": "--cpus", "memory": "--memory", GPU: "--gpus", **dict.fromkeys(OTHER_MAKERS, "--gpus")}
"""Resource → the option that asks for it."""


def needs_of(template: Thing) -> dict[str, Fraction]:
    """What a pod asks for, by resource."""
    needs: dict[str, Fraction] = {}
    for container in template["spec"].get("containers") or ():
        asked = container.get("resources") or {}
        for resource, text in {**(asked.get("limits") or {}), **(asked.get("requests") or {})}.items():
            needs[resource] = needs.get(resource, Fraction(0)) + exact(str(text))
    notes = (template.get("metadata") or {}).get("annotations") or {}
    if part := notes.get("fairway.dev/gpu-fraction"):
        needs[GPU] = exact(part)
    return {resource: need for resource, need in needs.items() if need}


def allocatable(node: Thing) -> dict[str, Fraction]:
    said = (node.get("status") or {}).get("allocatable") or {}
    return {resource: exact(str(text)) for resource, text in said.items()}


def listed(needs: dict[str, Fraction]) -> str:
    """`1 CPU, 2 GPUs, 4Gi memory`."""
    return ", ".join(amount(need, resource) for resource, need in needs.items())


def amount(value: Fraction, resource: str) -> str:
    """`2 CPUs`, `0.5 GPU`, `4Gi memory`."""
    if resource == "memory":
        for suffix, size in (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20)):
            if value >= size:
                return f"{float(value / size):.4g}{suffix} memory"
    text = str(value) if value.denominator == 1 else f"{float(value):.3g}"
    name = {"cpu": "CPU", "nvidia.com/gpu": "GPU"}.get(resource)
    return f"{text} {name + 's' * (value > 1) if name else resource}"
