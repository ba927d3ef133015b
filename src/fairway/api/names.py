"""What a Workload is named after its owner, what people may call it, what rank a pod's name means, and the image that
is none. Imports nothing heavy: every command asks."""

import re
from collections.abc import Collection, Iterable, Mapping

ON_THIS_MACHINE = "fairway.dev/this-machine"  # the image of what runs as a process of this machine; no registry has it
BY_PODMAN = "fairway://podman"  # the runtime of a node whose containers podman runs


PARTING = " (parting)"
"""Ends the key of what a workload loses by shrinking, or leaves behind when it is over; no object has such a name."""
SUSPENDED, CANCELLED = ", which is suspended", ", which was cancelled"
"""End the key of a dependency that cannot succeed as things are."""


def name_of(kind: str, name: str) -> str:
    """The name of the Workload of an owner."""
    return f"{kind.lower()}-{name}"


def short_name(name: str) -> str:
    """What people call the Workload of a Job or of bare pods, known by its name alone."""
    return name.removeprefix("job-") if name.startswith("job-") else name.removeprefix("pod-")


STATES = {
    "Pending": "waiting", "Admitted": "starting", "Running": "running", "Suspended": "suspended", "Parked": "parked",
    "Paused": "paused", "Succeeded": "finished", "Failed": "failed",
}  # fmt: skip
"""The phase of a Workload → the word for users."""


def plain_name(name: str, refs: Iterable[tuple[str, str]]) -> str:
    """What people call the Workload `name`, owned by `refs` (kind, name): its owner's name; of bare pods the gang's."""
    kept = [own for kind, own in refs if kind != "Pod"]
    return kept[0] if len(kept) == 1 else name.removeprefix(name_of("Pod", ""))


def lineage(parents: Mapping[str, str], queue: str) -> list[str]:
    """As the engine's, for commands: the queue and those above it, with the first that `parents` does not know."""
    found: list[str] = []
    while queue and queue not in found:
        found.append(queue)
        queue = parents.get(queue, "")
    return found


def called(name: str, refs: Iterable[tuple[str, str]]) -> set[str]:
    """What people may call the Workload `name`, owned by `refs` (kind, name): its own name, an owner's, of a gang the
    group's. What these leave open, the kind before them tells: `workload/job-a`, `job/a`."""
    group = name.removeprefix(name_of("Pod", ""))
    gang = {("Pod", group)} if group != name else set()
    owned = {*refs, *gang}
    return {name, f"workload/{name}", *(own for _, own in owned), *(f"{kind.lower()}/{own}" for kind, own in owned)}


def ranks(names: Collection[str], size: str) -> dict[str, int]:
    """The rank of each pod of a group: the number that its name ends in, where all have one of their own below `size`
    (what the label says), whoever of them is gone; else its place by name."""
    most = int(size) if size.isdecimal() else len(names)
    numbers = {name: int(number) for name in names for number in re.findall(r"-(\d{1,6})$", name)}
    if len({number for number in numbers.values() if number < most}) == len(names):
        return numbers
    return {name: place for place, name in enumerate(sorted(names))}


def gathering(group: str, size: int, there: int, by: str = "fairway.dev/group-size") -> str:
    """Why a group of bare pods is not queued yet; "" of one that is whole. `by`: what says its size."""
    if there >= size:
        return ""
    return f"group {group!r} is queued when its {size} pods ({by}) are there; {there} of them so far"


def size_of(labels: Iterable[Mapping[str, str]]) -> int:
    """The pods of a group, by the labels of those there are; 0 where they say nothing that can be read."""
    said = (one.get("fairway.dev/group-size", "1") for one in labels)
    return max((int(one) for one in said if one.isascii() and one.isdecimal()), default=0)
