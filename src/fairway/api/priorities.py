"""Which priorities a user may name: not those of the system.

The PriorityClasses `system-*`, and numbers as high, are for what a cluster cannot run without. Such a workload preempts
all that users submit, so only an administrator names them; Kubernetes leaves this to a ResourceQuota. An object names a
class anywhere in its spec, or by an annotation; a number without a class counts as well, for a Workload takes that of
its template. The embedded server asks this of all objects, the webhook of managed ones. What an administrator once
wrote into an object stays writable.
"""

from collections.abc import Iterator

from .admission import FORBIDDEN, Lookup, Refused, line_of
from .objects import QUEUE
from .review import Said, part

HIGHEST = 1_000_000_000
"""Of a PriorityClass that is not the system's, as in Kubernetes."""
PREFIX, ANNOTATION = "system-", "fairway.dev/priority-class"
CLASS_FIELDS = ("priorityClassName", "priorityClass")


def check(new: Said, old: Said | None, namespace: str, lookup: Lookup) -> None:
    """Raises Refused where a user's object names a priority of the system that it did not have before. `lookup`: an
    object without namespace, by kind and name."""
    before = {text for _, text in _named(old or {})}
    causes = [(path, FORBIDDEN, _why(text, new, namespace, lookup)) for path, text in _named(new) if text not in before]
    if causes:
        raise Refused(causes, forbidden=True)


def _named(thing: Said) -> Iterator[tuple[str, str]]:
    """Each priority of the system in an object: field and value."""
    noted = part(thing, "metadata", "annotations").get(ANNOTATION)
    if isinstance(noted, str) and noted.startswith(PREFIX):
        yield f"metadata.annotations[{ANNOTATION}]", noted
    left: list[tuple[str, object]] = [("spec", thing.get("spec"))]
    while left:
        path, value = left.pop()
        if isinstance(value, list):
            left += [(f"{path}[{row}]", each) for row, each in enumerate(value)]
        elif isinstance(value, dict):
            yield from _here(path, value)
            left += [(f"{path}.{name}", each) for name, each in value.items()]


def _here(path: str, value: Said) -> Iterator[tuple[str, str]]:
    found = [(f"{path}.{field}", name) for field in CLASS_FIELDS
             if isinstance(name := value.get(field), str) and name.startswith(PREFIX)]  # fmt: skip
    number = value.get("priority")
    if not found and isinstance(number, int | float) and number > HIGHEST:
        found = [(f"{path}.priority", str(number))]
    yield from found


def _why(text: str, thing: Said, namespace: str, lookup: Lookup) -> str:
    about = f"found {text}; only an administrator uses the priorities of the system"
    name = _queue(thing) or _queue(lookup("Namespace", namespace) or {})
    specs = (part(it, "spec") for it in line_of(name, lookup))
    bounds = [most for spec in specs if isinstance(most := spec.get("maxPriority"), int)]
    advice = "choose another PriorityClass: kubectl get priorityclasses"
    return f"{about}; queue {name} allows at most {min(bounds)}; {advice}" if bounds else f"{about}; {advice}"


def _queue(thing: Said) -> str:
    return str(part(thing, "metadata", "labels").get(QUEUE, ""))
