"""Workloads as `ls` shows them: the fields it reads, the words for their states, their order, and the cells of a row.

Only the fields named here are decoded, since a cluster may hold thousands; nothing of the engine is imported.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from fairway.api import names

from .output import clock_time, in_local_time, lasted, plain, seconds, start

GPU, BY_MEMORY = "nvidia.com/gpu", "fairway.dev/gpu-memory"
OTHER_MAKERS = ("amd.com/gpu", "gpu.intel.com/xe", "gpu.intel.com/i915")
NUMBERS = re.compile(r"(\d{1,18})")
DAY_SECONDS = 86_400.0
RETRYING, IDLE, PARKED, CANCELLED = "Retrying", "Idle", "Parked", "Cancelled"
"""The reasons of what runs nothing until it is started again, of what is to be parked, and of what is; the phase of
what was deleted before it was over."""
STATES = {**names.STATES, CANCELLED: "cancelled"}
ORDER = ["running", "retrying", "starting", "stopping", "paused", "waiting", "suspended", "parked", "cancelling"]
OVER = ("finished", "failed", "cancelled")
ARRAY = "fairway.dev/completions"


class Part(Struct, rename="camel"):
    """A part of a Workload, as far as it is read here."""


class Owner(Part):
    kind: str = ""
    name: str = ""


class Meta(Part):
    name: str = ""
    namespace: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int = 0
    owner_references: list[Owner] | None = None
    annotations: dict[str, str] | None = None


class Resources(Part):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class Container(Part):
    resources: Resources | None = None


class PodMeta(Part):
    annotations: dict[str, str] | None = None


class PodSpec(Part):
    containers: list[Container] | None = None


class Template(Part):
    metadata: PodMeta | None = None
    spec: PodSpec | None = None


class PodSet(Part):
    name: str = "main"
    count: int = 1
    min_count: int | None = None
    template: Template | None = None

    def gpus(self, memory: int = 0) -> float:
        """GPUs of one pod; a shared one by its fraction, or its part of the `memory` of a device: bytes, 0 if unknown.
        """
        notes = (self.template and self.template.metadata and self.template.metadata.annotations) or {}
        if "fairway.dev/gpu-fraction" in notes:
            return float(notes["fairway.dev/gpu-fraction"])
        if BY_MEMORY in notes:
            from fairway.api.pods import part_of

            return part_of(notes, memory) / 1000
        containers = (self.template and self.template.spec and self.template.spec.containers) or ()
        asked = [{**(it.resources.limits or {}), **(it.resources.requests or {})} for it in containers if it.resources]
        return sum(float(it.get(name, 0)) for it in asked for name in (GPU, *OTHER_MAKERS))


class Spec(Part):
    queue: str = ""
    user: str = ""
    priority_class_name: str = ""
    time_limit: str = ""
    expected_runtime: str = ""
    paused: bool = False
    pod_sets: list[PodSet] | None = None


class Node(Part):
    node: str = ""
    count: int | None = None


class Placement(Part):
    name: str = "main"
    nodes: list[Node] | None = None


class Admission(Part):
    pod_sets: list[Placement] | None = None


class Turn(Part):
    """A condition."""

    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: str | None = None


class Status(Part):
    phase: str = ""
    reason: str = ""
    message: str = ""
    position: int = 0
    attempt: int = 0
    forecast: dict[str, Any] | None = None
    admission: Admission | None = None
    conditions: list[Turn] | None = None


class Listed(Part, dict=True):
    """A Workload."""

    metadata: Meta
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)

    @property
    def key(self) -> tuple[str, str]:
        return self.metadata.namespace, self.metadata.name

    @property
    def name(self) -> str:
        """What people call it: its owner's name; of a gang of bare pods the group's."""
        return names.plain_name(self.metadata.name, ((it.kind, it.name) for it in self.metadata.owner_references or ()))

    @property
    def user(self) -> str:
        """The last part of the user's name: `ann` of `oidc:ann`."""
        return self.spec.user.rpartition(":")[2]

    @cached_property
    def state(self) -> str:
        """The word for users."""
        state, is_placed = STATES.get(self.status.phase, "waiting"), self.status.admission is not None
        if self.metadata.deletion_timestamp and state not in OVER:
            return "cancelling"
        if state in ("running", "starting") and self.status.reason == RETRYING:
            return "retrying"
        is_idle = any((it.type, it.status, it.reason) == (IDLE, "True", PARKED) for it in self.status.conditions or ())
        if state == "paused" and self.spec.paused and is_idle and not is_placed:  # parked, and frozen where it ran
            return "parked"
        is_leaving = state in ("waiting", "paused", "suspended") and is_placed and self.turned("Evicted")
        return "stopping" if is_leaving else state

    def turned(self, kind: str) -> float | None:
        """When the condition turned True; None where it is not."""
        for one in self.status.conditions or ():
            if one.type == kind and one.status == "True" and one.last_transition_time:
                return seconds(one.last_transition_time)
        return None

    def knows_since(self) -> bool:
        """Whether `since` is when it entered its state. Nothing says when a waiting workload was suspended."""
        of = ((it.type, it.status, it.reason) for it in self.status.conditions or ())
        return self.state != "suspended" or ("Evicted", "True", "Suspended") in of

    def since(self) -> float:
        """When it entered its state: what waits, or is suspended, was submitted then, or evicted."""
        if self.state == "cancelling" and (gone := self.metadata.deletion_timestamp):  # of a pod when its grace is over
            return seconds(gone) - self.metadata.deletion_grace_period_seconds
        kinds = {"running": "Running", "retrying": "Admitted", "starting": "Admitted"}
        turned = self.turned("Finished" if self.state in OVER else kinds.get(self.state, "Evicted"))
        return turned or self.submitted()

    def submitted(self) -> float:
        said = (self.metadata.annotations or {}).get("fairway.dev/submitted") or self.metadata.creation_timestamp
        return seconds(said) if said else 0.0

    def gpus(self, memory: Mapping[str, int]) -> tuple[float, float]:
        """What it holds, or held as it ended, and what it asks for. `memory`: bytes of a device by node; what is not
        placed is counted by the smallest."""
        podsets, least = self.spec.pod_sets or [], min(memory.values(), default=0)
        asked = round(sum(it.count * it.gpus(least) for it in podsets), 3)
        if self.status.admission is None or self.state == "waiting":
            return 0.0, asked
        if self.state in OVER and ARRAY in (self.metadata.annotations or {}):  # its last trials alone are written there
            return asked, asked
        each, placed = {it.name: it for it in podsets}, self.status.admission.pod_sets or ()
        held = ((each.get(it.name, PodSet()), on) for it in placed for on in it.nodes or ())
        return round(sum(it.gpus(memory.get(on.node, 0)) * (on.count or 1) for it, on in held), 3), asked

    def shares_memory(self) -> bool:
        """Whether it asks for a part of a GPU by its memory."""
        metas = (it.template and it.template.metadata for it in self.spec.pod_sets or ())
        return any(BY_MEMORY in ((it and it.annotations) or ()) for it in metas)

    def pods(self) -> str:
        """Of an elastic one that holds places: how many pods it has, of all that it could have."""
        podsets = self.spec.pod_sets or []
        if not self.status.admission or self.state in OVER or all(it.min_count in (None, it.count) for it in podsets):
            return ""
        held = sum(on.count or 1 for it in self.status.admission.pod_sets or () for on in it.nodes or ())
        return f"{held}/{sum(it.count for it in podsets)}"

    def where(self) -> str:
        """The node, or how many."""
        placed = (self.status.admission and self.status.admission.pod_sets) or ()
        nodes = {on.node for it in placed for on in it.nodes or ()}
        return f"{len(nodes)} nodes" if len(nodes) > 1 else next(iter(nodes), "")


def natural(name: str) -> list[tuple[int, str]]:
    """A key that orders w9 before w10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in NUMBERS.split(name)]


def rank(one: Listed) -> tuple[Any, ...]:
    """Running first, then waiting by queue and position, then what is over, the newest first. A position is one
    workload's own: only where there is none the name is split."""
    if one.state in OVER:
        return len(ORDER), -one.since(), natural(one.name)
    place, position = ORDER.index(one.state), one.status.position
    if one.state == "waiting" and position:
        return place, (one.spec.queue, position), []
    return place, (one.spec.queue, float("inf")) if one.state == "waiting" else ("", 0), natural(one.name)


HEAD = [
    "NAMESPACE", "NAME", "USER", "QUEUE", "PRIORITY", "STATE", "PODS", "GPUS", "DONE", "WHERE", "SINCE", "ENDS BY",
    "POSITION", "STARTS", "REASON",
]  # fmt: skip
LESS = ["PRIORITY", "USER", "WHERE", "ENDS BY", "SINCE", "POSITION", "DONE", "PODS", "QUEUE", "STARTS", "GPUS"]
"""The columns that a narrow terminal does without, in this order."""


def row(one: Listed, limits: Mapping[str, float], done: str, now: float, memory: Mapping[str, int]) -> list[str]:
    """The cells under HEAD. `limits`: by queue, the time limit of what names none; `done`: of an array, n/all;
    `memory`: bytes of a GPU by node."""
    held, asked = one.gpus(memory)
    gpus = "" if not asked else f"{asked:g}" if held == asked else f"{held:g}/{asked:g}"
    is_waiting = one.state == "waiting"
    since, position = clock_time(one.since(), now), str(one.status.position or "") if is_waiting else ""
    return [
        one.metadata.namespace, one.name, one.user, one.spec.queue, one.spec.priority_class_name, one.state,
        one.pods(), gpus, done, "" if is_waiting else one.where(), since, ends_by(one, limits, now), position,
        start(one.status.forecast, now) if is_waiting else "", reason(one, now),
    ]  # fmt: skip


def ends_by(one: Listed, limits: Mapping[str, float], now: float) -> str:
    """When its time limit stops it; without one `~` and when it is expected to end."""
    began = one.turned("Admitted")
    if one.state not in ("running", "retrying", "starting") or began is None:
        return ""
    limit, expected = length(one.spec.time_limit) or limits.get(one.spec.queue, 0.0), length(one.spec.expected_runtime)
    ends = {"": limit, "~": expected}
    return next((mark + clock_time(began + after, now) for mark, after in ends.items() if after), "")


def length(duration: str) -> float:
    """Seconds of a Go duration; 0 of none."""
    units = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)(ms|s|m|h|d)", duration))


def reason(one: Listed, now: float) -> str:
    """Why it waits, or waits to grow; or how it ended, after how long."""
    if one.state in OVER:
        began, ended = one.turned("Admitted"), one.turned("Finished")
        after = f" after {lasted(ended - began)}" if began and ended else ""
        return "finished" + after if one.state == "finished" else plain(one.status.message or "failed") + after
    word = PARKED if one.state == "parked" else one.status.reason
    return in_local_time(": ".join(filter(None, (word, one.status.message))), now)
