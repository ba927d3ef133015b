"""Kubernetes quantities ⇄ amounts of the engine: whole numbers in base units.

Milli for cpu and nvidia.com/gpu, units for the rest; a part of a unit is rounded up, as Kubernetes does. What is larger
than `LARGEST` is read as `LARGEST`, so that sums stay in 64 bits.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import ceil

from fairway.engine import CPU, GPU, Amounts, Share, amounts

from .scalars import BINARY
from .scalars import Malformed as Malformed
from .scalars import duration as duration
from .scalars import duration_text as duration_text
from .scalars import exact as exact
from .scalars import shorter as shorter
from .scalars import shown as shown
from .scalars import time as time
from .scalars import time_text as time_text
from .scalars import within as within

Quantity = str | int | float

LARGEST = 2**53
MILLI = frozenset((CPU, GPU))


def parse(value: Quantity, resource: str = "") -> int:
    """A quantity of `resource` in base units, rounded up."""
    if type(value) is int and 0 <= value <= LARGEST // 1000:
        return value * 1000 if resource in MILLI else value
    return _whole(str(value), resource in MILLI)


@lru_cache(maxsize=4096)
def _whole(text: str, in_milli: bool) -> int:
    return min(ceil(exact(text) * (1000 if in_milli else 1)), LARGEST)


def amounts_of(values: Mapping[str, Quantity]) -> Amounts:
    """Resource list → amounts; zeros are kept."""
    return amounts({name: within(f"[{name}]", parse, value, name) for name, value in values.items()})


def share(value: Quantity, resource: str) -> Share:
    """A quota: `8`, `64Gi`, or `25%` of live capacity (a tenth of a percent is the smallest step)."""
    text = str(value)
    if text.endswith("%"):
        return Share(min(int(exact(text[:-1]) * 10), LARGEST), is_relative=True)
    return Share(parse(value, resource))


def format(value: int, resource: str = "") -> str:
    """An amount in base units as Kubernetes writes it: bytes with the largest binary suffix that stays whole."""
    if resource in MILLI:
        return f"{value // 1000}" if value % 1000 == 0 else f"{value}m"
    if value and is_bytes(resource):
        for suffix, size in BINARY.items():
            if value % size == 0:
                return f"{value // size}{suffix}"
    return str(value)


def decimal(value: int, resource: str) -> str:
    """An amount in base units as people read it: GPUs and CPUs as a decimal number."""
    return f"{value / 1000:.15g}" if resource in MILLI else format(value, resource)


def is_bytes(resource: str) -> bool:
    return resource in ("memory", "storage", "ephemeral-storage") or resource.startswith("hugepages-")


def quantities(values: Amounts) -> dict[str, str]:
    """Amounts as a resource list."""
    return {name: format(value, name) for name, value in values}
