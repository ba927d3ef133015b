"""A resize of an elastic training on this machine: its ranks stop together, and start again with the new WORLD_SIZE.

The annotation of a pod says how many ranks there are to be; what a container was started with is in its spec on disk.
Where the two differ all ranks of the gang are stopped at once, before one of them takes the end of another for a
failure. A rank starts when all pods of the gang agree on the number and nothing runs with another one. So no two
numbers ever run beside each other, however the news of a resize comes in, and whoever is killed meanwhile.
"""

import marshal
from collections.abc import Iterable, Mapping

from fairway.api.objects import ELASTIC, RELEASED, WORLD_SIZE

from .container import Attempt
from .environment import Pod

RESIZED = "Resized"


def size_of(pod: Pod) -> str:
    """How many ranks there are to be; "" where a resize stops nothing."""
    notes = _notes(pod)
    return str(notes.get(WORLD_SIZE, "")) if notes.get(ELASTIC) == "restart" else ""


def size_run(attempt: Attempt) -> str:
    """How many ranks there were when it was started."""
    return str(marshal.loads((attempt.folder / "spec").read_bytes()).get("size", ""))


def voice(pod: Pod | None) -> str:
    """The number that a pod speaks for; "" for one that is over, or is to go."""
    is_over = pod is None or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return "" if pod is None or is_over or is_leaving(pod) else size_of(pod)


def is_leaving(pod: Pod) -> bool:
    """Whether it is to go: it is deleted, or its Job owns it no longer."""
    return bool(pod["metadata"].get("deletionTimestamp")) or RELEASED in _notes(pod)


def _notes(pod: Pod) -> Mapping[str, str]:
    return pod["metadata"].get("annotations") or {}


def is_agreed(pods: Iterable[Pod]) -> bool:
    """Whether the pods that stay say all the same."""
    return len(set(filter(None, map(voice, pods)))) <= 1
