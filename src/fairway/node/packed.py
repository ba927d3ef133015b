"""Pods that are over, as the runner keeps them for as long as their Job is there, which may be days.

A pod as dictionaries takes four times the bytes that it is written in. One that is over is read seldom: when its log is
asked for, and when it goes. So it is kept as it is written, and read anew each time.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from fairway.api.objects import ATTEMPT

from .environment import Pod
from .podstatus import TERMINAL


class Packed(Mapping[str, Any]):
    """What all are asked for is at hand. `attempt`: the annotation that says what it is of."""

    __slots__ = ("_bytes", "attempt")

    def __init__(self, pod: Pod) -> None:
        self._bytes, self.attempt = msgspec.json.encode(pod), attempt_of(pod)

    def whole(self) -> dict[str, Any]:
        """The pod; what is read twice of it is the same."""
        found: dict[str, Any] = msgspec.json.decode(self._bytes)
        return found

    def __getitem__(self, name: str) -> Any:
        return self.whole()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.whole())

    def __len__(self) -> int:
        return len(self.whole())


def packed(pod: Pod) -> Pod:
    """The pod; packed where it is over."""
    return Packed(pod) if (pod.get("status") or {}).get("phase") in TERMINAL else pod


def unpacked(pod: Pod) -> Pod:
    return pod.whole() if isinstance(pod, Packed) else pod


def attempt_of(pod: Pod) -> str:
    """The name and uid of its Workload, and which attempt it is of; "" of a pod that is of none."""
    return pod.attempt if isinstance(pod, Packed) else (pod["metadata"].get("annotations") or {}).get(ATTEMPT, "")
