"""A batch: workloads of one pod that come next, started in one go in idle room.

What it means is `admit`, one workload after the other. The difference, for speed: what comes next is known beforehand
where only one queue has workloads left, and where all ask for the same of what is governed: such starts only make the
key of a queue larger, so their order is a merge, sorted at once. Limits are summed up, and places are found at once for
all that rank nodes alike (`take`).
A batch ends where what comes next is not known, at a limit, and where the room ends; there `admit` decides.
"""

from collections import Counter
from itertools import groupby, islice
from operator import attrgetter

import numpy as np

from .cycle import Cycle
from .feasibility import Rows, Values
from .model import Admission, Workload
from .place import slots_of
from .placement_cache import take
from .plan import Admit
from .queueing import NO_SHARE, Order, PendingQueue, QueueNode
from .quota import Account

FEWEST_STARTS, MOST_STARTS, MOST_AHEAD = 8, 256, 16_384
"""Starts in a row behind which a batch is tried, at first and at most, and workloads of a queue in it."""
SAME_START = attrgetter("excluded_nodes", "kind", "topology", "paused")
"""What the start of a simple workload in idle room that is not kept depends on, beside its queue and podsets."""


def is_simple(workload: Workload, cycle: Cycle) -> bool:
    """Whether it needs no more than quota and a place for one pod, in the one pool that it may use."""
    is_single = len(workload.podsets) == 1 and workload.podsets[0].min_count == 1
    return is_single and workload.preemptible and cycle.is_plain(workload) and len(cycle.pools_of(workload)) == 1


class Batch:
    """What comes behind a start, `first`. After `enough` in a row a batch is tried; if it is short, twice as many are
    awaited before the next. `leaves`: the queues in which the next wait, what waits in each, and where they begin."""

    def __init__(self, cycle: Cycle, order: Order) -> None:
        self.cycle, self.order = cycle, order
        self.row, self.enough, self.leaves = 0, FEWEST_STARTS, list[tuple[QueueNode, PendingQueue, int]]()
        accounts = [one for branch in cycle.tree.branches.values() for one in branch.accounts.values()]
        self.governed = {resource for one in accounts for resource in one.resources}
        self.has_limits = any(one.limit for one in accounts)

    def follow(self, first: Workload) -> None:
        """Start what comes next, if there have been enough."""
        cycle = self.cycle
        is_quiet = cycle.draft.later is None and not cycle.timeline.windows
        is_start = is_quiet and isinstance(cycle.verdicts[first.key], Admit) and is_simple(first, cycle)
        self.row = self.row + 1 if is_start else 0
        if self.row >= self.enough:
            self.first, self.pools, self.leaves = first, cycle.pools_of(first), []
            started = self._start()
            self.row, self.enough = 0, FEWEST_STARTS if started > self.enough else min(2 * self.enough, MOST_STARTS)

    def _start(self) -> int:
        """How many more were started."""
        draft, pool, admissions = self.cycle.draft, self.pools[0], list[Admission]()
        turns, _ = self._ahead(self.order.top, is_alone=True)
        heads = [islice(line.waiting, at, None) for _, line, at in self.leaves]
        workloads = [next(heads[leaf]) for leaf in turns.tolist()]
        del workloads[self._within_limits(workloads) :]
        classes = list(map(id, map(attrgetter("podsets"), workloads)))
        samples = dict(zip(classes, workloads))
        slots = {key: slots_of(draft, self.cycle.ask(one, (1,)), pool) for key, one in samples.items()}
        known = iter(map(slots.get, classes).__next__, None)  # up to the first that has no slots
        for _, those in groupby(known, attrgetter("kind")):
            admissions += (found := take(run := list(those)))
            if len(found) < len(run):
                break
        del workloads[len(admissions) :]
        draft.start_placed(workloads, admissions)
        keys = [workload.key for workload in workloads]
        self.cycle.verdicts.update(zip(keys, map(Admit, keys, admissions)))
        for leaf, times in Counter(turns[: len(admissions)].tolist()).items():
            node, line, _ = self.leaves[leaf]
            node.head = line.advance(times)
        return len(admissions)

    def _ahead(self, node: QueueNode, *, is_alone: bool) -> tuple[Rows, bool]:
        """The leaves that come next, by number, as long as that is known; whether others come behind."""
        if isinstance(node.line, PendingQueue):
            return self._like(node, node.line, is_alone=is_alone)
        children = [child for _, child in sorted(node.children.items()) if child.head is not None]
        parts = list[tuple[QueueNode, Rows, bool]]()
        for child in children:
            leaves, is_open = self._ahead(child, is_alone=is_alone and len(children) == 1)
            if len(children) == 1 or (is_open and not len(leaves)):
                return leaves, is_open  # if it is not known what comes next there, it is not known what comes next
            parts.append((child, leaves, is_open))
        keys = np.concatenate([_keys(child, len(leaves)) for child, leaves, _ in parts], axis=1)
        order = np.lexsort(keys[::-1])  # of equals the first by name
        ends = np.cumsum([len(leaves) for _, leaves, _ in parts]) - 1
        last = [int(np.flatnonzero(order == end)[0]) for end, (_, _, is_open) in zip(ends, parts) if is_open]
        merged = np.concatenate([leaves for _, leaves, _ in parts])[order]
        return (merged[: min(last) + 1], True) if last else (merged, False)

    def _like(self, node: QueueNode, line: PendingQueue, *, is_alone: bool) -> tuple[Rows, bool]:
        """A leaf, as often as its next start as the first did; whether others come behind."""
        at, count, queue = line.at + (node.head is self.first), 0, node.branch.queue.name
        comes = dict.fromkeys(line.blocked, False)  # by what is alike; below 0, what sets conditions, are not
        for one, like in zip(islice(line.waiting, at, at + MOST_AHEAD), islice(line.likes, at, None)):
            if like not in comes:
                comes[like] = like > 0 and self._comes(one, is_alone=is_alone)
            if not comes[like] or one.queue != queue:
                break
            count += 1
        self.leaves.append((node, line, at))
        return np.full(count, len(self.leaves) - 1), at + count < line.count

    def _comes(self, one: Workload, *, is_alone: bool) -> bool:
        """Whether it starts as the first did, and weighs as much in queues."""
        is_open = is_simple(one, self.cycle) and self.cycle.pools_of(one) == self.pools
        is_like = SAME_START(one) == SAME_START(self.first)
        return is_open and is_like and (is_alone or self._weight(one) == self._weight(self.first))

    def _weight(self, one: Workload) -> list[int]:
        asked = self.cycle.asked(one, self.pools[0])
        return [asked.get(resource, 0) for resource in self.governed]

    def _within_limits(self, workloads: list[Workload]) -> int:
        """How many of these, from the first on, no limit forbids."""
        pool, taken = self.pools[0], Counter[tuple[Account, str]]()
        for at, one in enumerate(workloads) if self.has_limits else ():
            asked = self.cycle.asked(one, pool)
            for account in self.cycle.accounts(one, pool):
                for resource, limit in account.limit.items():
                    taken[account, resource] += (more := asked.get(resource, 0))
                    if more and account.held[resource] + taken[account, resource] > limit:
                        return at
        return len(workloads)


def _keys(node: QueueNode, count: int) -> Values:
    """float64[key, start]: what `Order` compares, the name apart, before each of so many starts alike."""
    keys, starts = np.zeros((8, count)), np.arange(count)
    for held, resource, more, share, owed in node.terms:
        now = held[resource] + more * starts
        due, then = max(share, owed), now + more
        keys[0] += now > share
        keys[1] += then > owed
        keys[3] += not share and more > 0
        keys[4:6] = np.maximum(keys[4:6], (then / due, now / due) if due else (then * NO_SHARE, now * NO_SHARE))
    keys[:4] = keys[:4] > 0
    queue = node.branch.queue
    keys[2], keys[6], keys[7] = -queue.priority, node.size, queue.created
    return keys
