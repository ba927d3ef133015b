"""A stream: alike workloads of one queue, each of one pod, starting one after the other in idle room.

What it means is `admit`. The difference, for speed: queue, conditions, pool, quota and class were looked at for the
first of them and are not looked at again; only limits and places are. A stream ends where somebody leaves, where room
is kept for somebody, or where its pool has no place left; then the long way decides.
"""

from operator import attrgetter

from .cycle import Cycle
from .model import Admission, Workload
from .order import LIKENESS
from .place import Placements, again
from .plan import Admit

ALIKE = attrgetter(*LIKENESS, "is_active", "backs_off_until", "after", "kind", "topology")


class Stream:
    """Made of the first, which has been started in `pool`."""

    __slots__ = ("admission", "alike", "bounds", "draft", "entries", "next", "placed", "podsets", "pool")

    def __init__(self, first: Workload, admission: Admission, cycle: Cycle) -> None:
        self.pool, self.podsets = admission.pool, first.podsets
        self.draft, self.alike = cycle.draft, ALIKE(first)
        self.next = again(cycle.draft, cycle.ask(first, cycle.least(first)), self.pool)
        self.placed: Placements = admission.podsets
        self.admission = admission
        amounts = cycle.asked(first, self.pool)
        accounts = cycle.accounts(first, self.pool)
        held = [(one, name, amounts[name]) for one in accounts for name in one.resources if amounts.get(name)]
        self.entries = tuple((one.held, name, more) for one, name, more in held)
        self.bounds = tuple((one.held, name, one.limit[name] - more) for one, name, more in held if name in one.limit)

    def admit(self, workload: Workload) -> Admit | None:
        """Start one more, if it is alike and there is a place for it."""
        if workload.podsets is not self.podsets or ALIKE(workload) != self.alike:
            return None
        for held, name, most in self.bounds:
            if held[name] > most:
                return None
        draft, placed = self.draft, self.next()
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


def may_stream(workload: Workload, admit: Admit, cycle: Cycle) -> bool:
    """Whether the next like it needs no more than a place: nothing that leaves, is kept or shared stands in the way."""
    return (
        cycle.draft.later is None
        and not cycle.timeline.keeps
        and workload.preemptible
        and len(workload.podsets) == 1
        and cycle.least(workload) == (1,)
        and len(cycle.open) == 1
        and cycle.is_plain(workload)
        and not admit.after
    )
