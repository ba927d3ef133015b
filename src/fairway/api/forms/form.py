"""What all forms have in common."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from fairway.api import objects
from fairway.api.types import PodSetSpec


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an owner ended."""

    succeeded: bool
    reason: str
    message: str = ""


class Form(Protocol):
    """An owner as read. Both methods are pure; `podsets` raises Malformed where the object contradicts itself."""

    @property
    def metadata(self) -> objects.Metadata: ...

    def podsets(self) -> tuple[PodSetSpec, ...]:
        """The pods it asks for; none where another object has them."""
        ...

    def outcome(self) -> Outcome | None:
        """None while it is not over."""
        ...


class Conditions(objects.Part, frozen=True):
    conditions: tuple[objects.Condition, ...] = ()

    def outcome(self, success: str, failure: str = "Failed") -> Outcome | None:
        """By the condition that is true."""
        for one in self.conditions:
            if one.status == "True" and one.type in (success, failure):
                return Outcome(one.type == success, one.reason or one.type, one.message)
        return None


def ended(state: str, ends: tuple[str, ...], reason: str = "", message: str = "") -> Outcome | None:
    """How an owner in this state ended: the first of `ends` is success, the others are failures."""
    return Outcome(state == ends[0], reason or state, message) if state in ends else None


class ReplicaSpec(objects.Part, frozen=True):
    replicas: objects.Natural = 1
    template: objects.PodTemplate = objects.PodTemplate()


class Endless(objects.Object, frozen=True):
    """An owner that serves until it is deleted."""

    def outcome(self) -> Outcome | None:
        return None


def with_class(template: objects.PodTemplate, name: str) -> objects.PodTemplate:
    """The template with the priority class that its owner names, unless it names one itself."""
    if not name or template.spec.priority_class_name:
        return template
    return replace(template, spec=replace(template.spec, priority_class_name=name))


def least_of(podsets: Iterable[PodSetSpec], name: str, total: int | None) -> tuple[PodSetSpec, ...]:
    """The podsets, of which `name` gives way as far as `total` pods altogether are enough; None: all are needed."""
    found = tuple(podsets)
    spare = 0 if total is None else max(0, sum(one.count for one in found) - total)
    gives = [spare > 0 and one.name == name and one.min_count is None for one in found]
    return tuple(
        replace(one, min_count=max(0, one.count - spare)) if way else one for way, one in zip(gives, found)
    )
