"""What is asked at the door, and how the parts of an object are read and written there, whatever its kind."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from . import owners
from .objects import DEFAULT_SCHEDULER, IN_QUEUE, MANAGED, QUEUE, SCHEDULER
from .quantities import Malformed, shown

Thing: TypeAlias = dict[str, object]
Said: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Review:
    """What is asked: `old` is None for a CREATE. `lookup` finds a stored object without a namespace, or a
    Workload by its key. Trusted is the controller, which makes Workloads in the name of others."""

    operation: str
    group: str
    kind: str
    namespace: str
    new: Thing
    old: Said | None = None
    user: str = ""
    is_trusted: bool = False
    now: float = 0.0
    lookup: Callable[[str, str], Said | None] = lambda kind, name: None


def queue_of(review: Review, said: Said | None) -> str:
    """The queue of a user's object; "" of one that does not queue."""
    if said is None or review.namespace.startswith("kube-"):
        return ""
    space = review.lookup("Namespace", review.namespace)
    labels, shared = (part(one, "metadata", "labels") for one in (said, space))
    named = labels.get(QUEUE) or part(said, "metadata", "annotations").get(IN_QUEUE)
    is_managed = QUEUE in labels or bool(named) or shared.get(MANAGED) == "true"
    return str(named or owners.DEFAULT_QUEUE) if is_managed else ""


def is_part(new: Thing) -> bool:
    """Whether something that is queued as a whole made it: it is admitted with that."""
    return not makers(new).isdisjoint(owners.OWNERS)


def is_made(new: Thing) -> bool:
    """Whether another object controls it."""
    return bool(makers(new))


def makers(new: Said) -> set[tuple[str, str]]:
    """Groups and kinds of the objects that control it."""
    refs = dicts(part(new, "metadata").get("ownerReferences"))
    return {kind_of(one) for one in refs if one.get("controller")}


def is_of_others(owner: Thing) -> bool:
    """Whether it is left to another scheduler: a template names one, and no queue label asks for Fairway."""
    own = (None, "", DEFAULT_SCHEDULER, SCHEDULER)
    named = (part(template, "spec").get("schedulerName") for _, template in templates(owner))
    return QUEUE not in part(owner, "metadata", "labels") and any(name not in own for name in named)


def kind_of(ref: Said) -> tuple[str, str]:
    return str(ref.get("apiVersion", "")).rpartition("/")[0], str(ref.get("kind"))


def templates(said: object, path: str = "") -> Iterator[tuple[str, Thing]]:
    """Every pod template in an object, however deep, with its path."""
    if isinstance(said, dict):
        for key, value in said.items():
            if key == "template" and isinstance(value, dict) and "containers" in part(value, "spec"):
                yield f"{path}.{key}".lstrip("."), value
            else:
                yield from templates(value, f"{path}.{key}".lstrip("."))
    elif isinstance(said, list):
        for index, value in enumerate(said):
            yield from templates(value, f"{path}[{index}]")


def at(new: Thing, path: Sequence[str]) -> Thing:
    """The map at a path, made where there is none."""
    here = new
    for step in path:
        if here.get(step) is None:
            here[step] = {}
        below = here[step]
        if not isinstance(below, dict):
            raise Malformed(f"found {shown(below)}; object is allowed", ".".join(path))
        here = below
    return here


def part(said: Said | None, *path: str) -> Said:
    """The map at a path, empty where there is none."""
    for step in path:
        part = (said or {}).get(step)
        said = part if isinstance(part, dict) else {}
    return said or {}


def dicts(said: object) -> Iterator[Thing]:
    return (one for one in said if isinstance(one, dict)) if isinstance(said, list) else iter(())
