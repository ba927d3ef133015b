"""What those who are evicted, resized, stopped or made to wait for room could object: the referee's third part.

A victim may be taken only for somebody who is admitted after it, or shrink for one that grows, by a right (priority in
one queue, lent share taken back from another, a move that both queues allow, a hold), unprotected, and needed: were it
spared, the newcomer would find less than it takes. Room counts as it was at the newcomer's turn, with all before it
started. Room that a hold or a reservation keeps is not taken by those who stay too long.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from fairway.engine.model import Admission, Running
from fairway.engine.plan import Admit, Cause, Ending, Evict, Fault, Finish, Resize, Wait
from fairway.engine.resources import DEVICE, counts_of
from fairway.engine.snapshot import Columns

from .audit import Cap, Tree, caps_of, counted_by, inherited, limit_of, misdealt, sums_of
from .site import parts
from .tally import Case, Held, Layout, cells, devices_in_use, layout_of, pods_of

MIN_RUNTIME, MAX_EVICTIONS, DAY = 600.0, 6, 86400.0
NOWHERE = Admission("", ())
TAKERS = ("new", "more")
FOR_ANOTHER = (Cause.PREEMPTED, Cause.RECLAIMED, Cause.CONSOLIDATED, Cause.HOLD_TAKEN)


def afters(case: Case) -> Iterator[Fault]:
    """Nobody waits for one who stays."""
    going = {item.workload.key for item in case.leaves}
    for item in case.starts:
        if item[2] and item.role == "new" and not going.issuperset(item.after):
            yield Fault(item.workload.key, "After", ", ".join(sorted(set(item.after) - going)))


def resizes(case: Case) -> Iterator[Fault]:
    """Within minCount..count; those that stay keep their places and their order, those that come go behind."""
    for verdict in case.of(Resize):
        if (one := case.running.get(verdict.workload)) is None:
            continue
        podsets, before, after = one.workload.podsets, one.admission, verdict.admission
        counts = dict(zip((podset.name for podset in podsets), counts_of(podsets, after)))
        was = dict(zip(counts, counts_of(podsets, before)))
        if dict(verdict.before) != was or dict(verdict.after) != counts or before.pool != after.pool:
            yield Fault(verdict.workload, "Resize", f"{was} to {counts}")
        if counts == was or not all(one.min_count <= counts[one.name] <= one.count for one in podsets):
            yield Fault(verdict.workload, "Resize", f"to {counts}")
        old = {placement.name: pods_of(placement) for placement in before.podsets}
        for placement in after.podsets:
            new, stood = pods_of(placement), old.get(placement.name, [])
            rest = iter(stood)
            if new[: len(stood)] != stood if len(new) >= len(stood) else not all(pod in rest for pod in new):
                yield Fault(verdict.workload, "Resize", f"{placement.name} is moved")


def finishes(case: Case, tree: Tree) -> Iterator[Fault]:
    """Only who has run to its limit, or came after a failure, is stopped for good."""
    now, ended = case.snapshot.now, case.snapshot.ended
    for verdict in case.of(Finish):
        one, waiting = case.running.get(verdict.workload), case.waiting.get(verdict.workload)
        limit = limit_of(tree.paths.get(one.workload.queue, ()), one.workload) if one else None
        is_over = one and limit is not None and one.admitted_at is not None and now >= one.admitted_at + limit
        failed = [key for key in (waiting.after if waiting else ()) if key in ended and not ended[key].succeeded]
        if not (is_over if verdict.ending is Ending.TIME_LIMIT else failed):
            yield Fault(verdict.workload, "Finish", str(verdict.ending))


# Victims


def evictions(case: Case, tree: Tree) -> Iterator[Fault]:
    """Every victim: for whom, by what right, unprotected, and needed."""
    taken: dict[str, list[Evict | Resize]] = defaultdict(list)
    verdicts: list[Evict | Resize] = [*case.of(Evict), *case.of(Resize)]
    waits = {item.workload.key: item.after for item in case.starts if item.role in TAKERS}
    for verdict in verdicts:
        one = case.running.get(verdict.workload)
        if one is None or one.is_leaving:
            continue
        if isinstance(verdict, Evict) and verdict.cause not in FOR_ANOTHER:
            if not is_due(case, tree, one, verdict.cause):
                yield Fault(verdict.workload, "Victim", f"not {verdict.cause}")
        elif isinstance(verdict, Evict) or sum(dict(verdict.after).values()) < sum(dict(verdict.before).values()):
            if verdict.workload in waits.get(verdict.beneficiary, ()):
                taken[verdict.beneficiary].append(verdict)
            else:
                yield Fault(verdict.workload, "Vain", verdict.beneficiary)
    if taken:
        yield from Court(case, tree, taken).judge()


def is_due(case: Case, tree: Tree, one: Running, cause: Cause) -> bool:
    """Whether a workload must leave for no other's sake."""
    snapshot, path = case.snapshot, tree.paths.get(one.workload.queue, ())
    used = {share.node for placement in one.admission.podsets for share in placement.nodes}
    nodes = [snapshot.nodes[snapshot.row_of[name]] for name in used if name in snapshot.row_of]
    is_lost = len(nodes) < len(used) or any(not node.is_ready for node in nodes)
    if cause is Cause.DRAINED:
        drains = any(node.is_unhealthy or node.is_leaving for node in nodes)
        return is_lost or drains or any(queue.stop == "Drain" for queue in path)
    if cause is Cause.NODE_LOST:
        return is_lost or any(node.is_unhealthy for node in nodes)
    if cause is Cause.RESERVED:
        names = {queue.name for queue in path}
        return any(other.queue not in names and (used.intersection(other.nodes) or other.pool == one.admission.pool)
                   for other in snapshot.reservations)
    return {Cause.PODS_LOST: bool(one.lost), Cause.SUSPENDED: not one.workload.is_active}.get(cause, True)


Cell3 = tuple[str, int, int]
"""A column of a node, or a device in it."""


class Court:
    """The starts in order, each with the room, the devices and the queues as it finds them."""

    def __init__(self, case: Case, tree: Tree, taken: dict[str, list[Evict | Resize]]) -> None:
        self.case, self.tree, self.taken = case, tree, taken
        self.limits = caps_of(case.snapshot, lambda quota: quota.limit)
        self.owed = caps_of(case.snapshot, lambda quota: quota.guaranteed)
        owed = {(cap.queue, cap.pool, cap.resource) for cap in self.owed}
        limited = [cap for cap in self.limits if (cap.queue, cap.pool, cap.resource) not in owed]
        self.governed = [*self.owed, *(cap._replace(amount=0) for cap in limited)]
        self.sums = sums_of(case.snapshot, tree, case.standing())
        self.leaves = {item.workload.key: item for item in case.leaves}
        self.heirs = {verdict.workload: key for key, verdicts in taken.items() for verdict in verdicts}
        self.named = set(self.heirs)
        self.ahead = {item.workload.key: item for item in case.starts}
        self.used: dict[Cell3, int] = defaultdict(int)
        self.devices = devices_in_use(case)
        told = layout_of(case.snapshot, [item for item in case.starts if item.role == "told"])
        self.free = case.snapshot.free + told.by_node(len(case.snapshot.nodes))
        self.misdealt = misdealt(case, tree)
        items = [*case.starts, *case.leaves]
        layout = layout_of(case.snapshot, items)
        self.form_of: dict[int, int] = dict(zip(map(id, items), layout.form_of.tolist()))
        self.counted = counted_by(case.snapshot, layout)
        self.taken_by = takings(case, layout)
        for key, item in self.leaves.items():
            if key not in self.named and item.role == "evicted":
                self.sums.add(item, self.amounts(item), -1)

    def judge(self) -> Iterator[Fault]:
        for item in self.case.starts:
            key = item.workload.key
            verdicts = self.taken.get(key, [])
            if verdicts and item.role in TAKERS:
                yield from self._hear(item, verdicts)
            for gone in (key, *(verdict.workload for verdict in verdicts)):
                if gone in self.named:
                    self.named.discard(gone)
                    self.sums.add(self.leaves[gone], self.amounts(self.leaves[gone]), -1)
            self.sums.add(item, self.amounts(item))
            for cell, amount in self.takes(item).items():
                self.used[cell] += amount
            self.ahead.pop(key)

    def _hear(self, item: Held, verdicts: Sequence[Evict | Resize]) -> Iterator[Fault]:
        reclaimed = []
        for verdict in verdicts:
            one = self.case.running[verdict.workload]
            why, is_reclaim = self._wrong(item, one, verdict)
            if why:
                yield Fault(verdict.workload, "Victim", why)
            elif is_reclaim:
                reclaimed.append(one)
        yield from self._unneeded(item, [self.leaves[verdict.workload] for verdict in verdicts])
        yield from self._unentitled(item, [self.leaves[one.workload.key] for one in reclaimed])

    def _wrong(self, item: Held, one: Running, verdict: Evict | Resize) -> tuple[str, bool]:
        """Why a workload may not be taken for another; whether it is reclaimed."""
        taker, victim = item.workload, one.workload
        is_own = taker.queue == victim.queue
        cause = verdict.cause if isinstance(verdict, Evict) else Cause.PREEMPTED if is_own else Cause.RECLAIMED
        if cause is Cause.HOLD_TAKEN:
            return ("" if one.backfilled_for == taker.key else "it backfilled for nobody"), False
        if isinstance(verdict, Evict) and not victim.preemptible:
            return "not preemptible", False
        if cause is Cause.PREEMPTED and not (is_own and victim.priority < taker.priority):
            return "no right to preempt", False
        if cause is Cause.RECLAIMED and is_own:
            return "no right to reclaim", False
        if cause is Cause.CONSOLIDATED:
            queues = (self.tree.paths.get(name, ()) for name in (taker.queue, victim.queue))
            allowed = all(inherited(path, lambda queue: queue.consolidates, 0.0) for path in queues)
            if not (allowed and taker.preemptible and isinstance(verdict, Evict) and verdict.admission is not None):
                return "no right to move", False
        is_whole = isinstance(verdict, Evict)
        return self._protected(item, one, cause) if is_whole else "", cause is Cause.RECLAIMED

    def _protected(self, item: Held, one: Running, cause: Cause) -> str:
        """Whoever is stopped: runtime is kept from takers beyond their guaranteed; the pair rule holds against all."""
        now, victim, taker = self.case.snapshot.now, one.workload, item.workload
        if cause is not Cause.CONSOLIDATED and victim.evictions and victim.evictions[-1].beneficiary == taker.key:
            return "the same pair again"
        if self.is_within(item):
            return ""
        path, other = (self.tree.paths.get(name, ()) for name in (victim.queue, taker.queue))
        top = path[next((at for at, queue in enumerate(path[1:]) if queue in other), len(path) - 1) :]
        ran = now - one.admitted_at if one.admitted_at is not None else np.inf
        if cause is Cause.PREEMPTED and ran < inherited(path, lambda queue: queue.preempt_min_runtime, 0.0):
            return "within preemptMinRuntime"
        if cause is not Cause.PREEMPTED and ran < min(
            inherited(way, lambda queue: queue.min_runtime, MIN_RUNTIME) for way in (path, top)
        ):
            return "within minRuntime"
        recent = sum(now - old.time < DAY and old.reason != Cause.CONSOLIDATED for old in victim.evictions)
        is_moved = cause is Cause.CONSOLIDATED
        if not is_moved and recent >= inherited(path, lambda queue: queue.max_evictions, MAX_EVICTIONS):
            return "maxEvictions"
        return ""

    def is_within(self, item: Held) -> bool:
        """Whether the taker's queue, or one above it, stays within what it is guaranteed of all that it asks for."""
        amounts, within = self.amounts(item), defaultdict[int, list[bool]](list)
        for cap in self.owed:
            if part := self.sums.part(item, amounts, cap):
                within[cap.queue].append(self.sums.of(cap) + part <= cap.amount)
        return any(all(found) for found in within.values())

    def _unneeded(self, item: Held, victims: Sequence[Held]) -> Iterator[Fault]:
        """Were it spared, something that the newcomer takes would not be there: room, a device, or quota. Of those who
        are gone for another that comes later, it has what that one leaves."""
        pods = [podset.pod for one in (item, *victims) for podset in one.workload.podsets]
        if any(pod.pod_affinity or pod.spread or pod.host_ports or pod.alignment_required for pod in pods):
            return
        slack = {cell: self._left(cell) - amount for cell, amount in self.takes(item).items()}
        for key in item.after:
            for cell, amount in self.takes(self.leaves[key]).items() if key in self.leaves else ():
                slack[cell] = slack.get(cell, 0) + amount
        for key in {self.heirs.get(gone, "") for gone in item.after} & self.ahead.keys() - {item.workload.key}:
            for cell, amount in self.takes(self.ahead[key]).items():
                slack[cell] = slack.get(cell, 0) - amount
        wanted = self.takes(item)
        amounts = self.amounts(item)
        for victim in victims if all(slack[cell] >= 0 for cell in wanted) else ():
            if any(slack[cell] < amount for cell, amount in self.takes(victim).items() if cell in wanted):
                continue
            own = self.amounts(victim)
            if any(self._frees(cap, item, amounts, victims) < self.sums.part(victim, own, cap) for cap in self.limits
                   if self.sums.part(item, amounts, cap)):
                continue
            yield Fault(victim.workload.key, "Needed", item.workload.key)

    def _frees(self, cap: Cap, item: Held, amounts: Columns, victims: Sequence[Held]) -> int:
        """What is left under a limit once the newcomer is in and all victims are out."""
        out = sum(self.sums.part(one, self.amounts(one), cap) for one in victims)
        return cap.amount - self.sums.of(cap) + out - self.sums.part(item, amounts, cap)

    def _unentitled(self, item: Held, victims: Sequence[Held]) -> Iterator[Fault]:
        """Reclaim: the asking leaf within its share, the losing branch above what it is due, the guard kept."""
        sums, queues, amounts = self.sums, self.sums.queues, self.amounts(item)
        if not victims:
            return
        if self.misdealt:
            yield Fault(item.workload.key, "Entitled", f"no division gives {self.misdealt} that share")
        ours = sums.ways[queues[item.workload.queue]] if item.workload.queue in queues else []
        for cap in self.owed:
            part = sums.part(item, amounts, cap) if ours[:1] == [cap.queue] else 0
            if part and sums.of(cap) + part - self._own(item, cap) > self.share(cap):
                yield Fault(item.workload.key, "Entitled", f"beyond its share of {self.share(cap)}")
        branches: dict[int, list[Held]] = defaultdict(list)
        for victim in victims:
            theirs = [row for row in sums.ways[queues[victim.workload.queue]] if row not in ours]
            branches[theirs[-1] if theirs else -1].append(victim)
        for branch, lost in branches.items():
            caps = [cap for cap in self.governed if cap.queue == branch]
            within = self.is_within(item)
            if caps and not any(self._may_lose(cap, lost, within) for cap in caps):
                yield Fault(lost[-1].workload.key, "Entitled", "its queue is not above what it is due")

    def _may_lose(self, cap: Cap, lost: Sequence[Held], within: bool) -> bool:
        """Above what it is due before it loses the last (and largest) of them."""
        parts = [self.sums.part(one, self.amounts(one), cap) for one in lost]
        due = cap.amount if within else max(cap.amount, self.share(cap))
        return self.sums.of(cap) - sum(parts) + max(parts) > due

    def _own(self, item: Held, cap: Cap) -> int:
        """What victims of the taker's own queue give back."""
        mine = [self.leaves[one.workload] for one in self.taken[item.workload.key]]
        return sum(self.sums.part(one, self.amounts(one), cap) for one in mine)

    def share(self, cap: Cap) -> int:
        names, snapshot = list(self.case.snapshot.queues), self.case.snapshot
        return self.case.plan.shares.get((names[cap.queue], cap.pool, snapshot.resources[cap.resource]), 0)

    def amounts(self, item: Held) -> Columns:
        """int64[resource]: what it counts in quotas."""
        amounts: Columns = self.counted[self.form_of[id(item)]]
        return amounts

    def _left(self, cell: Cell3) -> int:
        kind, row, index = cell
        whole = int(self.free[index, row]) if kind == "node" else DEVICE - self.devices[row, index]
        return whole - self.used[cell]

    def takes(self, item: Held) -> dict[Cell3, int]:
        """What it takes of nodes and devices."""
        return self.taken_by[self.form_of[id(item)]]


def takings(case: Case, layout: Layout) -> list[dict[Cell3, int]]:
    """What each form takes of nodes and devices."""
    found = [defaultdict[Cell3, int](int) for _ in layout.forms]
    needs = [[(column, amount) for column, amount in enumerate(row) if amount] for row in layout.needs.tolist()]
    entries = (layout.form.tolist(), layout.kind.tolist(), layout.row.tolist(), layout.count.tolist())
    for form, kind, row, count in zip(*entries):
        for column, amount in needs[kind]:
            found[form]["node", row, column] += amount * count
    for takes, item in zip(found, layout.forms):
        for (row, index), amount in cells(case.snapshot, item):
            takes["device", row, index] += amount
    return list(found)


# Time


def holds(case: Case, tree: Tree) -> Iterator[Fault]:
    """A hold is for room that is known to come free, and nobody who stays past its start takes of that, unless at its
    own risk."""
    snapshot, count = case.snapshot, len(case.snapshot.nodes)
    began = {key: one.admitted_at for key, one in case.running.items()}
    since = {"": snapshot.now, **{key: snapshot.now if at is None else at for key, at in began.items()}}
    held = [wait for wait in case.of(Wait) if wait.held and wait.starts_at and wait.workload in case.waiting]
    for wait in held:
        late = [item for item in case.starts if stays(tree, item, since, wait)]
        taken = layout_of(snapshot, [Held(case.waiting[wait.workload], wait.held or NOWHERE)]).by_node(count)
        ending = [item for item in case.standing() if not stays(tree, item, since, wait)]
        gone = {item.workload.key for item in ending}
        ending += [item for item in case.leaves if item.workload.key not in gone]
        old = [item for item in late if item.role in ("moved", "told")]
        told = [item for item in case.starts if item.role == "told"]
        free = snapshot.free + layout_of(snapshot, [*ending, *told]).by_node(count) - taken
        free -= layout_of(snapshot, old).by_node(count)
        if ((free < 0) & (taken > 0)).any():
            yield Fault(wait.workload, "Hold", "its room is not known to come free")
        new = layout_of(snapshot, [item for item in late if item.role not in ("moved", "told")
                                   and not is_at_risk(case, item, wait)])
        takes = new.by_node(count)
        short: list[list[int]] = np.argwhere((takes > free) & (takes > 0) & (taken > 0)).tolist()
        for column, row in short:
            left = int(free[column, row])
            for at, amount in sorted(parts(new, column, row)):
                if amount > left:
                    yield Fault(new.items[at].workload.key, "Hold", f"delays {wait.workload}")
                else:
                    left -= amount


def is_at_risk(case: Case, item: Held, hold: Wait) -> bool:
    """Whether it may be taken out of the hold again."""
    own = case.verdicts[item.workload.key]
    return isinstance(own, Admit) and own.backfilled_for == hold.workload and item.workload.preemptible


def stays(tree: Tree, item: Held, since: dict[str, float], hold: Wait) -> bool:
    """Whether nothing says that it ends by then: no enforced limit, nothing learned; claims do not count."""
    path = tree.paths.get(item.workload.queue, ())
    if (limit := limit_of(path, item.workload)) is not None:
        return since.get(item.workload.key, since[""]) + limit > (hold.starts_at or 0)
    return not any(queue.ledger.runtimes for queue in path)


def reservations(case: Case, tree: Tree) -> Iterator[Fault]:
    """In its window only the queue of a reservation uses the nodes; before it only who is gone in time."""
    now = case.snapshot.now
    for kept in case.snapshot.reservations:
        period, start = {"Daily": DAY, "Weekly": 7 * DAY}.get(kept.repeat), kept.start
        if period and start + kept.duration <= now:
            start += period * ((now - start - kept.duration) // period + 1)
        for item in case.starts if start + kept.duration > now else ():
            path = tree.paths.get(item.workload.queue, ())
            if item.role != "new" or any(kept.queue == queue.name for queue in path):
                continue
            used = {share.node for placement in item.admission.podsets for share in placement.nodes}
            limit = limit_of(path, item.workload)
            is_gone = start > now and (item.workload.preemptible or (limit is not None and now + limit <= start))
            if used.intersection(kept.nodes) and not is_gone:
                yield Fault(item.workload.key, "Reserved", kept.name)
