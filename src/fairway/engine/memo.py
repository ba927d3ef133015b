"""What was computed once and may be asked for again; it never changes an answer.

Each module keeps its own part, a class of its own: `memo.of(Trees)` returns the one `Trees` of this memo and makes it
when it is first asked for. A snapshot's memo lasts as long as the nodes and pools stay as they are, a draft's and a
cycle's as long as these.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

MOST_KEPT = 256  # arrays over all nodes that are kept of one sort
SPARE = 1 << 10  # workloads that are gone and still remembered
Key = TypeVar("Key")
Value = TypeVar("Value")
Made = TypeVar("Made")
Given = ParamSpec("Given")


class ByWorkload(dict[Key, Value]):
    """A part kept by the identity of workloads; each value holds its workload, so that no identity is used again."""


class Memo:
    def __init__(self) -> None:
        self._parts: dict[object, object] = {}
        self.tables: defaultdict[object, dict[object, object]] = defaultdict(dict)  # by function: results by arguments

    def of(self, part: Callable[Given, Made], *args: Given.args, **kwargs: Given.kwargs) -> Made:
        """The part of this class; made with the arguments at the first call."""
        found = self._parts.get(part)
        if found is None:
            found = self._parts[part] = part(*args, **kwargs)
        return cast(Made, found)

    def forget_workloads(self, *, most: int) -> None:
        """Forgets what is kept by the identity of workloads where there is much more of it than there are workloads."""
        parts = [part for part in self._parts.values() if isinstance(part, ByWorkload)]
        if max(map(len, parts), default=0) > most + SPARE:
            for part in parts:
                part.clear()


def remember(kept: dict[Key, Value], key: Key, value: Value) -> Value:
    """Keep a value; of too many the oldest goes."""
    if len(kept) >= MOST_KEPT and key not in kept:
        del kept[next(iter(kept))]
    kept[key] = value
    return value
