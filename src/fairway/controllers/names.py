"""Which workload the `after` of another names, while Workloads come and go.

A name is resolved while exactly one workload goes by it. Else it stays a key that nothing has, so who comes after it
waits, and the key says what is ambiguous. Whoever asked for a name is told when another set of workloads goes by it.
"""

from collections import defaultdict

from fairway.api.names import called
from fairway.api.objects import Metadata


class Names:
    def __init__(self) -> None:
        self._keys: defaultdict[str, set[str]] = defaultdict(set)  # by name: who goes by it
        self._askers: defaultdict[str, set[str]] = defaultdict(set)  # and who comes after it

    def note(self, key: str, old: Metadata | None, new: Metadata | None) -> set[str]:
        """A Workload came, went or changed; the keys of those who asked for what it is or was called."""
        changed = _names(old) ^ _names(new)
        for name in changed:
            self._keys[name] ^= {key}
            if not self._keys[name]:
                del self._keys[name]
        return {asker for name in changed for asker in self._askers.pop(name, ())}

    def meant(self, name: str, asker: str) -> str:
        """The key of the workload that `asker` calls by this name, which its namespace stands before."""
        self._askers[name].add(asker)
        keys = sorted(self._keys.get(name, ()))
        if len(keys) < 2:
            return keys[0] if keys else name
        which = " or ".join(f"workload/{key.partition('/')[2]}" for key in keys)
        return f"{name}, which is {which}: say which"


def _names(meta: Metadata | None) -> set[str]:
    if meta is None:
        return set()
    owners = ((one.kind, one.name) for one in meta.owner_references)
    return {f"{meta.namespace}/{name}" for name in called(meta.name, owners)}
