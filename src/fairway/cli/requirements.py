"""What a workload requires of its queue, read off the object that is submitted, or off its Workload."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from fairway.api.scalars import Malformed

from .amounts import needs_of
from .job import template_of

Thing = dict[str, Any]
Needs = dict[str, Fraction]


@dataclass(frozen=True, slots=True)
class Requirements:
    """`needs`: of one pod, by resource; none where they are malformed, which the server reports. `pods`: the fewest
    that it starts with. `limit`: its time limit, as written. `seconds`: its activeDeadlineSeconds, 0 for none.
    `is_fixed`: not preemptible."""

    namespace: str
    queue: str
    needs: Needs
    pods: int
    pools: Sequence[str]
    priority: str
    limit: str
    seconds: int
    is_fixed: bool


def requirements_of(thing: Thing) -> Requirements:
    """Of an object that is to be submitted."""
    meta, spec, template = thing["metadata"], thing.get("spec") or {}, template_of(thing)
    notes, seconds = meta.get("annotations") or {}, spec.get("activeDeadlineSeconds")
    kind, is_preemptible = notes.get("fairway.dev/workload-type", ""), notes.get("fairway.dev/preemptible", "")
    needs: Needs = {}
    with suppress(Malformed):
        needs = needs_of(template) if template else {}
    return Requirements(
        meta["namespace"], (meta.get("labels") or {}).get("fairway.dev/queue") or "default",
        needs, _least(thing) if template else 1, notes.get("fairway.dev/pools", "").replace(",", " ").split(),
        (template.get("spec") or {}).get("priorityClassName") or "", notes.get("fairway.dev/time-limit", ""),
        seconds if isinstance(seconds, int) else 0, _is_fixed(kind, {"true": True, "false": False}.get(is_preemptible)),
    )  # fmt: skip


def requirements_of_workload(workload: Thing) -> Requirements:
    """Of a Workload; several podsets count as one pod."""
    spec, meta = workload["spec"], workload["metadata"]
    sets = [(needs_of({"spec": {}, **it.get("template", {})}), it.get("minCount") or it.get("count", 1))
            for it in spec.get("podSets") or ()]  # fmt: skip
    needs, pods = sets[0] if len(sets) == 1 else (_together(sets), 1)
    return Requirements(
        meta["namespace"], spec.get("queue", ""), needs, pods, spec.get("pools") or (),
        spec.get("priorityClassName", ""), spec.get("timeLimit", ""), 0,
        _is_fixed(spec.get("workloadType", ""), spec.get("preemptible")),
    )  # fmt: skip


def _least(thing: Thing) -> int:
    """The fewest pods that it starts with."""
    spec = thing.get("spec") or {}
    most = min(spec.get("parallelism", 1), spec.get("completions") or spec.get("parallelism", 1))
    said = (thing["metadata"].get("annotations") or {}).get("fairway.dev/min-count", "")
    return min(int(said), most) if said.isdecimal() else most


def _is_fixed(kind: str, is_preemptible: bool | None) -> bool:
    return not is_preemptible if is_preemptible is not None else kind not in ("", "Training")


def _together(sets: Sequence[tuple[Needs, int]]) -> Needs:
    names = {name for needs, _ in sets for name in needs}
    return {name: sum((needs.get(name, Fraction(0)) * pods for needs, pods in sets), Fraction(0)) for name in names}
