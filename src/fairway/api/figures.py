"""Figures in the words of a message: amounts with their unit, counts with their noun, spans of time."""

from fairway.engine import ATTACHABLE, CPU, GPU, PODS

from .quantities import MILLI, decimal, is_bytes
from .scalars import BINARY


def number(value: int, resource: str) -> str:
    """An amount in base units with its unit: `0.25`, `8`, `1.5 GiB`."""
    if resource in MILLI:
        return decimal(value, resource)
    if is_bytes(resource):
        unit = next((unit for unit in BINARY if abs(value) >= BINARY[unit]), "")
        return f"{value / BINARY[unit]:.4g} {unit}B" if unit else count(value, "byte")
    return str(value)


def amount(value: int, resource: str) -> str:
    """The same with what it is of: `1 GPU`, `8 CPUs`, `48 MiB of memory`, `3 example.com/fpga`, `1 volume slot of
    ebs.csi.aws.com`."""
    if is_bytes(resource):
        return f"{number(value, resource)} of {resource}"
    if resource.startswith(ATTACHABLE):
        return f"{count(value, 'volume slot')} of {driver(resource)}"
    name = {GPU: "GPU", CPU: "CPU", PODS: "pod slot"}.get(resource)
    plural = "" if is_one(value, resource) else "s"
    return f"{number(value, resource)} {name + plural if name else resource}"


def driver(resource: str) -> str:
    """The CSI driver whose volumes an ATTACHABLE resource counts."""
    return resource.removeprefix(ATTACHABLE).removeprefix("csi-")


def is_one(value: int, resource: str) -> bool:
    return 0 < value <= 1000 if resource in MILLI else value == 1


def span(seconds: float) -> str:
    """`2 h`, `1 h 30 min`, `45 s`."""
    whole, parts = round(seconds), []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        parts += [f"{whole // size} {unit}"] * bool(whole // size)
        whole %= size
    return " ".join(parts) or "0 s"


def count(number: int, noun: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
