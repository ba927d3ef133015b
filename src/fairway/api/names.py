"""What a Workload is named after its owner, and what people may call it. Imports nothing heavy: every command asks."""

from collections.abc import Iterable


def name_of(kind: str, name: str) -> str:
    """The name of the Workload of an owner."""
    return f"{kind.lower()}-{name}"


def called(name: str, refs: Iterable[tuple[str, str]]) -> set[str]:
    """What people may call the Workload `name`, owned by `refs` (kind, name): its own name, an owner's, of a gang the
    group's. What these leave open, the kind before them tells: `workload/job-a`, `job/a`."""
    group = name.removeprefix(name_of("Pod", ""))
    gang = {("Pod", group)} if group != name else set()
    owned = {*refs, *gang}
    return {name, f"workload/{name}", *(own for _, own in owned), *(f"{kind.lower()}/{own}" for kind, own in owned)}
