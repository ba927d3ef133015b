"""A stream: alike workloads of one queue, each of one pod, starting one after the other in idle room.

What it means is `admit`. The difference, for speed: queue, conditions, pool, quota and class were looked at for the
first of them and are not looked at again; only limits and places are. Where a workload leaves, where room is kept, or
where its pool has no place left, the long way decides.
"""

from collections.abc import Callable
from operator import attrgetter

from .cycle import Cycle
from .model import Admission, Workload
from .place import Placements, again
from .plan import Admit

SAME_START = attrgetter(
    "preemptible", "is_active", "pools", "excluded_nodes", "backs_off_until", "after", "gates", "kind", "topology",
    "paused"
)
"""What a start in idle room that is not kept depends on, beside the podsets and the queue."""


class Stream:
    """Made of the first, which has been started in `pool`."""

    __slots__ = ("admission", "alike", "ask", "bounds", "draft", "entries", "next", "placed", "podsets", "pool")

    def __init__(self, first: Workload, admission: Admission, cycle: Cycle) -> None:
        self.pool, self.podsets = admission.pool, first.podsets
        self.draft, self.alike = cycle.draft, SAME_START(first)
        self.ask = cycle.ask(first, cycle.least(first))
        self.next: Callable[[], Placements | None] | None = None  # looked up when a second one comes
        self.placed: Placements = admission.podsets
        self.admission = admission
        amounts = cycle.asked(first, self.pool)
        accounts = cycle.accounts(first, self.pool)
        held = [(one, name, amounts[name]) for one in accounts for name in one.resources if amounts.get(name)]
        self.entries = tuple((one.held, name, more) for one, name, more in held)
        self.bounds = tuple((one.held, name, one.limit[name] - more) for one, name, more in held if name in one.limit)

    def admit(self, workload: Workload) -> Admit | None:
        """Start one more, if it is alike and there is a place for it."""
        if SAME_START(workload) != self.alike:
            return None
        for held, name, most in self.bounds:
            if held[name] > most:
                return None
        draft = self.draft
        if self.next is None:
            self.next = again(draft, self.ask, self.pool)
        placed = self.next()
        if placed is None:
            return None
        if placed is not self.placed:
            last = draft.last
            self.admission = last if last.podsets is placed else Admission(self.pool, placed)
            self.placed = placed
        if self.admission is draft.last and self.podsets is draft.last_podsets:
            draft.started[workload.key] = workload, self.admission
            draft.repeats += 1
        else:
            draft.start(workload, self.admission, is_charged=True)
        for held, name, more in self.entries:
            held[name] += more
        return Admit(workload.key, self.admission)


class Streams(dict[tuple[str, int], Stream]):
    """Those of a cycle, by queue and podsets."""


def is_quiet(cycle: Cycle) -> bool:
    """No workload leaves, and no room is kept."""
    return cycle.draft.later is None and not cycle.timeline.windows


def may_stream(workload: Workload, cycle: Cycle) -> bool:
    """Whether the next like it needs no more than a place."""
    return (
        is_quiet(cycle)
        and workload.preemptible
        and len(workload.podsets) == 1
        and cycle.least(workload) == (1,)
        and cycle.is_plain(workload)
    )
