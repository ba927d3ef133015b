"""What is promised to workloads that wait: a hold, and who gives it away.

A hold is read off what a waiting workload is told: from when on room is kept for it. It is given away by a workload
behind it in its queue that is admitted, stays longer, and without which the held one would have its room by then. Room
is what nodes that take pods have left when all are gone that are over by their limits, or started into this very hold
at their own risk; what nobody knows the end of stays. So who is complained of is surely at fault.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from simworld import is_leaving, is_true

from fairway.api.conditions import kept_from
from fairway.api.objects import ATTEMPT, SUBMITTED
from fairway.api.quantities import duration, parse, time
from fairway.engine import DEVICE

GPU, UNHEALTHY = "nvidia.com/gpu", "fairway.dev/unhealthy"
Thing = dict[str, Any]
Room = dict[str, Counter[str]]
"""Node → resource → base units."""


@dataclass(frozen=True, slots=True)
class Seen:
    """All Workloads and nodes, and the pods that are on nodes. `limits`: GPUs that a queue may hold."""

    workloads: Sequence[Thing]
    nodes: Sequence[Thing]
    pods: Sequence[Thing]
    limits: Mapping[str, int]


def given_away(new: Thing, seen: Seen) -> Iterator[str]:
    """Complaints of a workload that has just been admitted."""
    for held in seen.workloads:
        start = promised(held)
        if start is None or ends(new) <= start or not is_behind(new, held) or for_whom(new) == key_of(held):
            continue
        stay = [it for it in seen.workloads if it is not new and _stays(it, held, start)]
        room, queue = _room(seen, held), queue_of(held)
        for one in stay:
            _take(room, one)
        gpus = DEVICE * seen.limits.get(queue, inf) - sum(_gpus(it) for it in stay if queue_of(it) == queue)
        had = fits(held, room, gpus)
        _take(room, new)
        if had and not fits(held, room, gpus - _gpus(new)):
            yield f"{name_of(new)} takes what is kept for {name_of(held)} from {kept_from(held['status']['message'])}"


def promised(workload: Thing) -> float | None:
    """From when on room is kept for one that waits, as it was told."""
    status = workload.get("status", {})
    waits = status.get("phase") == "Pending" and "admission" not in status
    said = kept_from(status.get("message", "")) if waits else ""
    return time(said) if said else None


def is_behind(one: Thing, other: Thing) -> bool:
    """Whether it is surely behind the other: in the same queue, of the same priority, and submitted later."""
    mine, theirs = ((queue_of(it), it["spec"].get("priorityClassName", "")) for it in (one, other))
    return mine == theirs and _submitted(one) > _submitted(other)


def fits(workload: Thing, room: Room, gpus: float) -> bool:
    """Whether its one podset has room for its least number of pods. `gpus`: what its queue may hold more."""
    (podset,) = workload["spec"]["podSets"]
    least, asked = podset.get("minCount", podset.get("count", 1)), _requests(podset["template"])
    counts = (min(left[name] // amount for name, amount in asked.items() if amount) for left in room.values())
    return least * asked[GPU] <= gpus and sum(max(0, it) for it in counts) >= least


def ends(workload: Thing) -> float:
    """When its limit ends it at the latest."""
    limit, said = workload["spec"].get("timeLimit"), workload["status"].get("conditions", ())
    since = [time(it["lastTransitionTime"]) for it in said if it["type"] == "Admitted" and it["status"] == "True"]
    return since[0] + duration(limit) if limit and since else inf


def for_whom(workload: Thing) -> str:
    """The held workload into whose room it started at its own risk."""
    return str(workload["status"].get("backfilledFor", ""))


def _submitted(workload: Thing) -> float:
    return time(workload["metadata"].get("annotations", {}).get(SUBMITTED, "1970-01-01T00:00:00Z"))


def queue_of(workload: Thing) -> str:
    return str(workload["spec"].get("queue", "default"))


def name_of(workload: Thing) -> str:
    return str(workload["metadata"]["name"])


def key_of(workload: Thing) -> str:
    return f"{workload['metadata']['namespace']}/{name_of(workload)}"


def _holds(workload: Thing) -> bool:
    """Whether it has room, or is promised some."""
    status = workload.get("status", {})
    return "admission" in status and status.get("phase") not in ("Succeeded", "Failed")


def _stays(one: Thing, held: Thing, start: float) -> bool:
    return _holds(one) and ends(one) > start and for_whom(one) != key_of(held)


def _room(seen: Seen, held: Thing) -> Room:
    """What the nodes that may take it have, less what pods hold that no admission counts."""
    without, counted = held["status"].get("excludedNodes", ()), {name_of(it) for it in seen.workloads if _holds(it)}
    room = {name_of(it): _allocatable(it) for it in seen.nodes if _takes_pods(it) and name_of(it) not in without}
    for pod in seen.pods:
        node, by = pod["spec"]["nodeName"], pod["metadata"].get("annotations", {}).get(ATTEMPT, "").split("/")[0]
        if node in room and (by not in counted or is_leaving(pod)):
            room[node].subtract(_requests(pod))
    return room


def _takes_pods(node: Thing) -> bool:
    is_open = not node.get("spec", {}).get("unschedulable")
    return is_open and is_true(node, "Ready") and UNHEALTHY not in node["metadata"].get("annotations", {})


def _allocatable(node: Thing) -> Counter[str]:
    offered = node["status"]["allocatable"]
    return Counter({name: parse(offered.get(name, "0"), name) for name in ("cpu", GPU)})


def _requests(template: Thing) -> Counter[str]:
    """Of a pod, or a template."""
    asked = template["spec"]["containers"][0]["resources"]["requests"]
    return Counter({name: parse(asked.get(name, "0"), name) for name in ("cpu", GPU)})


def _placed(workload: Thing) -> Iterator[tuple[str, Counter[str], int]]:
    """Node, requests of a pod, and how many."""
    asked = {it.get("name", "main"): _requests(it["template"]) for it in workload["spec"]["podSets"]}
    for one in workload["status"]["admission"]["podSets"]:
        for it in one.get("nodes", ()):
            yield it["node"], asked[one["name"]], it.get("count", 1)


def _gpus(workload: Thing) -> int:
    return sum(each[GPU] * count for _, each, count in _placed(workload))


def _take(room: Room, workload: Thing) -> None:
    for node, each, count in _placed(workload):
        if node in room:
            room[node].subtract({name: amount * count for name, amount in each.items()})
