"""From client-side to server-side apply: what kubectl applied by itself before, the annotation LAST says.

As in Kubernetes: an object that was never applied here gives these fields to the manager `kubectl-client-side-apply`,
and a server-side apply by the manager `kubectl` takes over those that still are as they were applied. Each such apply
renews the annotation where there is one, so that `kubectl apply` without `--server-side` goes on working.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

Thing = dict[str, Any]
Path = tuple[str, ...]
Fields = Mapping[Path, Any]
LAST, KUBECTL, CLIENT_SIDE = "kubectl.kubernetes.io/last-applied-configuration", "kubectl", "kubectl-client-side-apply"
WHERE: Path = ("f:metadata", "f:annotations", f"f:{LAST}")
MOST_BYTES = 256 << 10  # of all annotations


def last_applied(fields: Callable[[Thing], Fields], live: Thing) -> Fields:
    """The fields that kubectl applied last, with their values, by the annotation of an object; none without it, or
    where it cannot be read."""
    text = (live["metadata"].get("annotations") or {}).get(LAST)
    try:
        said = msgspec.json.decode(text) if text else None
    except msgspec.DecodeError:
        return {}
    return fields(said) if isinstance(said, dict) else {}


def unchanged(applied: Fields, live: Fields) -> frozenset[Path]:
    """The fields that are as they were applied."""
    return frozenset(path for path, value in applied.items() if path in live and live[path] == value)


def renew(thing: Thing, config: Thing) -> None:
    """Writes the annotation, where there is one, as a client-side apply of `config` would."""
    notes = thing["metadata"].get("annotations") or {}
    if LAST not in notes:
        return
    meta = {**config["metadata"]}
    if own := {name: text for name, text in (meta.pop("annotations", None) or {}).items() if name != LAST}:
        meta["annotations"] = own
    text = msgspec.json.encode({**config, "metadata": meta}).decode() + "\n"
    thing["metadata"] = {**thing["metadata"], "annotations": {**notes, LAST: text if len(text) < MOST_BYTES else ""}}
