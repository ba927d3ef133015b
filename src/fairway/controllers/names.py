"""Which workload the `after` of another names, while Workloads come and go.

A name is resolved while exactly one workload goes by it. Else it stays a key that nothing has, so who comes after it
waits, and the key says what is ambiguous. A suspended workload is in no snapshot: its key says so. The last MOST_GONE
names whose workloads were cancelled say that. Whoever asked for a name is told when another set of workloads goes by
it, or one of them is suspended or resumed.
"""

from collections import defaultdict

from fairway.api.names import CANCELLED, SUSPENDED, called
from fairway.api.objects import Metadata
from fairway.api.types import WorkloadObject

MOST_GONE = 1_000


class Names:
    def __init__(self) -> None:
        self._keys: defaultdict[str, set[str]] = defaultdict(set)  # by name: who goes by it
        self._askers: defaultdict[str, set[str]] = defaultdict(set)  # and who comes after it
        self._suspended: set[str] = set()  # keys
        self._cancelled: dict[str, None] = {}  # names, the first to be forgotten first

    def note(self, key: str, old: WorkloadObject | None, new: WorkloadObject | None) -> set[str]:
        """A Workload came, went or changed; the keys of those who asked for what it is or was called."""
        is_suspended = new is not None and not new.spec.may_run and not new.status.is_over
        has_turned = is_suspended != (key in self._suspended)
        if old and new and not has_turned and old.metadata.owner_references == new.metadata.owner_references:
            return set()
        before, now = _names(old and old.metadata), _names(new and new.metadata)
        is_cancelled = old is not None and new is None and not old.status.is_over
        for name in before ^ now:
            self._keys[name] ^= {key}
            self._cancelled.pop(name, None)
            if is_cancelled:
                self._cancelled[name] = None
            if not self._keys[name]:
                del self._keys[name]
        while len(self._cancelled) > MOST_GONE:
            del self._cancelled[next(iter(self._cancelled))]
        turned = before | now if has_turned else before ^ now
        (self._suspended.add if is_suspended else self._suspended.discard)(key)
        return {asker for name in turned for asker in self._askers.pop(name, ())}

    def meant(self, name: str, asker: str) -> str:
        """The key of the workload that `asker` calls by this name, which its namespace stands before."""
        self._askers[name].add(asker)
        keys = sorted(self._keys.get(name, ()))
        if len(keys) < 2:
            key = keys[0] if keys else name
            is_gone = not keys and name in self._cancelled
            return key + (CANCELLED if is_gone else SUSPENDED if key in self._suspended else "")
        which = " or ".join(f"workload/{key.partition('/')[2]}" for key in keys)
        return f"{name}, which is {which}: say which"


def _names(meta: Metadata | None) -> set[str]:
    if meta is None:
        return set()
    owners = ((one.kind, one.name) for one in meta.owner_references)
    return {f"{meta.namespace}/{name}" for name in called(meta.name, owners)}
