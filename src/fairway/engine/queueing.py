"""What is next: top down from the roots by nine keys, then by the order of the leaf; asked again after every verdict.

A leaf's line is sorted once. Only the queue that got a verdict, those a plan took something from and their ancestors
are keyed anew; each parent keeps the keys of its children sorted. Ungoverned resources take
no part in the keys, so ungoverned queues go by priority, age and name. A blocked head does not stop those behind it,
except in a strict line (FIFO); that is known from whether it was started by the time the next is asked for.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat, takewhile
from math import inf, log2
from operator import attrgetter, mul
from typing import Protocol

import numpy as np

from .draft import Draft
from .feasibility import Values
from .model import Queue, Workload
from .policy import DAY, Policy
from .quota import Branch, Demand, QueueTree
from .resources import DEVICE
from .runtimes import RuntimeGroup, job_family
from .snapshot import TURN, ByWorkload, Memo, Numbers, largest_node

NO_SHARE = 1e9  # what is held without any entitlement weighs so much more than what is held with one

BUSIEST = 16  # how many times longer waits may make patience: in a long overload none is passed over for ever

LONGEST = 365 * DAY  # what runs for an unknown time counts so

Ordering = Callable[[list[Workload], QueueTree], None]
"""Sorts a line in place; what is equal stays in the order of submission, then name."""


class Stands(Protocol):
    """Whether one that got no start stands in the way: of its likes, in a strict line of all behind it."""

    def __call__(self, workload: Workload, *, is_strict: bool) -> bool: ...


KeyTerm = tuple[dict[str, int], str, int, int, int]
"""Held amounts, the resource, what the head adds, the share, what is guaranteed."""

QueueKey = tuple[bool, bool, int, bool, float, float, float, float, str]


def by_submission(line: list[Workload], tree: QueueTree) -> None:
    """First come, first served."""


def by_priority(line: list[Workload], tree: QueueTree) -> None:
    """The higher priority; of equals the one with the least slack before its deadline; of those the one that needs
    least, as far as the queue has learned, after the first gang that is overdue."""
    if line and tree.branches[line[0].queue].queue.ledger.runtimes:
        kin = list(map(tree.learned.kin, line))
        waited = tree.snapshot.now - np.array([one.submitted for one in line])
        tree.patience.setdefault(line[0].queue, patience(line[0].queue, waited, tree))
        gang = overdue(line, kin, tree)
        sort_by_need(line, kin, waited, tree)
        if gang:
            line.sort(key=lambda one: one is not gang)
    if not {None}.issuperset(map(attrgetter("deadline"), line)):
        line.sort(key=lambda one: laxity(one, tree))
    line.sort(key=attrgetter("priority"), reverse=True)


def by_runtime(line: list[Workload], tree: QueueTree) -> None:
    """The shortest by what can be trusted: the enforced limit or what was learned; a claim only lengthens it."""
    line.sort(key=lambda one: runtime(one, tree))


def by_service(line: list[Workload], tree: QueueTree) -> None:
    """The least attained service, in powers of two, so that equals are not interleaved for ever (Tiresias)."""
    line.sort(key=lambda one: level(one.attained))


def by_user(line: list[Workload], tree: QueueTree) -> None:
    """The user furthest below an equal part of the queue's decayed usage; then the higher priority (Slurm's S/U)."""
    users = dict(tree.branches[line[0].queue].queue.ledger.users) if line else {}
    used = {user: tree.decayed(one) for user, one in users.items()}
    line.sort(key=lambda one: (used.get(one.user, 0.0), -one.priority))


ORDERS: dict[str, Ordering] = {
    "Priority": by_priority,
    "FIFO": by_submission,
    "ShortestFirst": by_runtime,
    "LeastAttained": by_service,
    "FairUsers": by_user,
}


def runtime(workload: Workload, tree: QueueTree) -> float:
    """How long it runs: by its limit or what was learned, else by what its queue expects; infinite if unknown."""
    limit, learned = tree.time_limit(workload), tree.learned.quantile(workload, 0.5)
    usual: float | None = tree.inherited(workload.queue, "expected_runtime", None)
    trusted = min((value for value in (limit, learned) if value is not None), default=usual)
    return inf if trusted is None else max(trusted, workload.expected_runtime or usual or 0.0)


def sort_by_need(line: list[Workload], kin: Sequence[RuntimeGroup], waited: Values, tree: QueueTree) -> None:
    """The fewest GPU-seconds first, in powers of two, halved for each `halving` of the patience that a workload has
    waited. Powers count as far as what was learned tells runtimes: where it does not, the first to come is first."""
    known, queue = tree.needs, line[0].queue
    for one in {one.like: one for one in kin}.values():
        if one.like not in known:
            known[one.like] = log2(min(max(runtime(one.workload, tree), 1.0), LONGEST) * max(one.gpus, 1.0))
    powers = np.array([known[one.like] for one in kin]) * tree.learned.telling(queue)
    needs = np.floor(powers - waited / (tree.policy.halving * tree.patience[queue]))
    line[:] = [line[at] for at in np.argsort(needs, kind="stable").tolist()]


def patience(queue: str, seconds: Values, tree: QueueTree) -> float:
    """Seconds in which waiting counts: as long as room of the queue is taken by one workload, on the mean, or as those
    in line have waited, on the mean, where that is longer, up to BUSIEST times. No constant would fit both minutes and
    weeks. `seconds`: how long each in line has waited."""
    waited: float = sum(seconds.tolist()) / len(seconds)
    span = tree.learned.span(queue) or waited
    return max(1.0, span, min(waited, BUSIEST * span))


def overdue(line: Sequence[Workload], kin: Sequence[RuntimeGroup], tree: QueueTree) -> Workload | None:
    """The first that is `overdue` and asks for more GPUs than any node has: they come free only if kept for it."""
    since = tree.snapshot.now - tree.policy.overdue * tree.patience[line[0].queue]
    most = largest_node(tree.snapshot) / DEVICE
    if all(one.gpus <= most for one in kin):
        return None
    old = takewhile(lambda one: one.submitted <= since, line)
    return next((one for one in old if tree.learned.kin(one).gpus > most), None)


def is_early(workload: Workload, tree: QueueTree) -> bool:
    """It asks for more GPUs than any node has, and has not waited its line's patience. Nodes that come free for it one
    by one stand idle, the longer the more what was learned of the work on the others is wrong."""
    patience = tree.patience.get(workload.queue)
    if patience is None or tree.snapshot.now - workload.submitted >= patience or is_aged(workload, tree):
        return False
    return tree.learned.kin(workload).gpus > largest_node(tree.snapshot) / DEVICE


def level(amount: float) -> int:
    """In powers of two, 0 below one."""
    return int(log2(amount)) + 1 if amount >= 1 else 0


def laxity(workload: Workload, tree: QueueTree) -> float:
    """Slack before the deadline if it started now; infinite without one."""
    if workload.deadline is None:
        return inf
    known = runtime(workload, tree)
    return workload.deadline - tree.snapshot.now - (workload.expected_runtime or 0.0 if known == inf else known)


def is_aged(workload: Workload, tree: QueueTree) -> bool:
    """It has waited longer than `maxWait` of its queue."""
    longest: float = tree.inherited(workload.queue, "max_wait", inf)
    return tree.snapshot.now - workload.submitted >= longest


ALIKE = attrgetter(
    "priority", "preempts", "preemptible", "pools", "excluded_nodes", "time_limit", "expected_runtime", "grace",
    "gates", "paused", "kind")


class PendingQueue:
    """What waits in one leaf, in order. `likes`: a number that those alike share. `blocked`: the last of each number
    that got no start, all of them in `heads`. `passed`: what waits as, or behind, the one in its place of `leaders`."""

    def __init__(self, waiting: list[Workload], stands: Stands, likes: list[int], *, is_strict: bool) -> None:
        self.waiting, self.is_strict, self.stands, self.likes = waiting, is_strict, stands, likes
        self.at, self.count = 0, len(waiting)
        self.blocked: dict[int, Workload] = {}
        self.heads, self.passed, self.leaders = list[Workload](), list[Workload](), list[Workload]()

    def head(self) -> Workload | None:
        return self.waiting[self.at] if self.at < self.count else None

    def pass_on(self, *, has_started: bool) -> Workload | None:
        """The head has its verdict; the next. What is like one that was blocked is not asked for again this cycle."""
        self.at += 1
        if not has_started:
            self._block(self.at - 1)
        return self.advance(0)

    def advance(self, count: int) -> Workload | None:
        """So many more were started; the next."""
        self.at += count
        if self.blocked:
            self._skip()
        return self.head()

    def _block(self, at: int) -> None:
        """The one there got no start: a strict queue ends here, another passes over those that are like it."""
        head = self.waiting[at]
        if not self.stands(head, is_strict=self.is_strict):
            return
        self.heads.append(head)
        if self.is_strict:
            self._pass(self.count, repeat(head, self.count - self.at))
        else:
            self.blocked[abs(self.likes[at])] = head

    def _skip(self) -> None:
        """Past all that are like one that was blocked; they follow it."""
        end, blocked = self.at, self.blocked
        for like in islice(self.likes, self.at, None):
            if like not in blocked:
                break
            end += 1
        self._pass(end, map(blocked.__getitem__, self.likes[self.at : end]))

    def _pass(self, end: int, leaders: Iterable[Workload]) -> None:
        self.passed += self.waiting[self.at : end]
        self.leaders += leaders
        self.at = end


class Named(ByWorkload[int, tuple[Workload, int]]):
    """Numbers of workloads whose names matter, by identity."""


class Unnamed(ByWorkload[int, tuple[Workload, int]]):
    """Numbers of workloads whose names do not matter, by identity."""


class LastLikes(ByWorkload[tuple[str, bool], tuple[list[Workload], list[int]]]):
    """The lines of the cycle before, by leaf, with the numbers of what stood in them."""


def numbered(name: str, line: list[Workload], memo: Memo, *, is_learned: bool) -> list[int]:
    """For each in the line of this leaf a number that it shares with its likes; negative where it sets a condition of
    its own on when it starts. They are kept from cycle to cycle by the identity of the workload, which is kept with
    them. `is_learned`: names matter, since runtimes were learned by name."""
    known: ByWorkload[int, tuple[Workload, int]] = memo.of(Named) if is_learned else memo.of(Unnamed)
    last, key, numbers = memo.of(LastLikes), (name, is_learned), memo.of(Numbers)
    before, were = last.get(key, ([], []))
    same = len(before) if line[: len(before)] == before else 0  # most often it is what it was, and some more behind
    rest = line[same:]
    new = [one for one in rest if id(one) not in known]
    named = ((one.user, job_family(one.name)) for one in new) if is_learned else repeat(())
    podsets, topologies = (map(id, map(attrgetter(name), new)) for name in ("podsets", "topology"))
    signs = [1 if one.is_active and not (one.backs_off_until or one.after) else -1 for one in new]
    signed = map(mul, map(numbers.__getitem__, zip(podsets, topologies, map(ALIKE, new), named)), signs)
    known.update(zip(map(id, new), zip(new, signed)))
    found = were[:same] + [number for _, number in map(known.__getitem__, map(id, rest))]
    last[key] = line, found
    return found


@dataclass(slots=True, eq=False)
class QueueNode:
    """A queue with something waiting in it or below. `key`: among its siblings; `keys`: of its children, the first
    first. `seen`: what is judged: it, or where it governs nothing that the head asks for, the first below it on the way
    to the head that does. `terms`: what the key is made of, by governed resource, the same while heads are alike."""

    branch: Branch
    line: "Queued | None" = None
    head: Workload | None = None
    key: QueueKey | None = None
    keys: list[QueueKey] = field(default_factory=list)
    children: dict[str, "QueueNode"] = field(default_factory=dict)
    equivalence: tuple[object, ...] = ()
    seen: Branch | None = None
    terms: tuple[KeyTerm, ...] = ()
    size: float = 0.0

    def likeness(self, head: Workload, *, by_queue: bool) -> tuple[object, ...]:
        """What heads for which the terms are the same have in common."""
        return id(head.podsets), head.pools, (by_queue or self.seen is not self.branch) and head.queue


class Queued(Protocol):
    """What stands in line in one leaf: waiting workloads, or elastic ones that could have one more pod."""

    def head(self) -> Workload | None: ...
    def pass_on(self, *, has_started: bool) -> Workload | None: ...


Asks = Callable[[Workload], tuple[str, Demand]]
"""The pool that the head of a line would rather go to, and what it would take of it."""


class Order:
    """The heads of lines, one after the other, as the keys of their queues have it."""

    def __init__(self, draft: Draft, lines: Mapping[str, Queued], asks: Asks, *, is_steady: bool = True) -> None:
        """`is_steady`: workloads with the same podsets ask for the same."""
        self._tree, self._asks, self._is_steady = draft.tree, asks, is_steady
        self._has_pools = any(branch.queue.pools for branch in self._tree.branches.values())
        self.top = QueueNode(Branch(Queue("")))  # above all roots
        self._nodes, self._parents = dict[str, QueueNode](), dict[str, QueueNode]()
        for name, line in sorted(lines.items()):
            node = self._node(self._tree.branches[name])
            node.line, node.head = line, line.head()
        for node in [node for node in self._nodes.values() if node.line is not None]:
            self._key_up(node)

    def in_order(self, started: Container[str]) -> Iterator[Workload]:
        """What is next, given all verdicts so far; `started`: keys of what got what it asked for."""
        touched, top = self._tree.touched, self.top
        while top.head is not None:
            node = top
            while node.line is None:
                node = node.children[node.keys[0][-1]]
            workload = node.head
            assert workload is not None
            yield workload
            node.head = node.line.pass_on(has_started=workload.key in started)
            if touched:
                for name in sorted(touched - {workload.queue}):
                    if name in self._nodes:
                        self._key_up(self._nodes[name])
                touched.clear()
            self._key_up(node)

    def _node(self, branch: Branch) -> QueueNode:
        """The node of a queue, made with those of its ancestors."""
        name = branch.queue.name
        if name not in self._nodes:
            parent = self._node(branch.line[1]) if len(branch.line) > 1 else self.top
            self._parents[name] = parent
            self._nodes[name] = parent.children[name] = QueueNode(branch)
        return self._nodes[name]

    def _key_up(self, node: QueueNode) -> None:
        """Key a queue, whose head is known, and its ancestors anew; an only child needs no key."""
        at = node
        while (parent := self._parents.get(at.branch.queue.name)) is not None:
            keys, head, before = parent.keys, at.head, at.key
            if before is None or head is None or len(parent.children) > 1:
                if before is not None:
                    del keys[0 if keys[0] is before else bisect_left(keys, before)]
                at.key = key = None if head is None else self._key(at, head)
                if key is not None:
                    insort(keys, key, len(keys) if keys and keys[-1] < key else 0)  # mostly the last
            parent.head = parent.children[keys[0][-1]].head if keys else None
            at = parent

    def _key(self, node: QueueNode, head: Workload) -> QueueKey:
        """The nine keys; the smaller goes first. What is not governed takes no part."""
        if node.likeness(head, by_queue=self._has_pools) != node.equivalence or not self._is_steady:
            self._read(node, head)
            node.equivalence = node.likeness(head, by_queue=self._has_pools)
        above = beyond = starves = False
        dominant = bare = 0.0
        for held, resource, more, share, owed in node.terms:
            now: float = held[resource]
            then: float = now + more
            if now > share:
                above = True
            if then > owed:
                beyond = True
            if not share and more > 0:
                starves = True
            if due := max(share, owed):
                now, then = now / due, then / due
            elif then:
                now, then = now * NO_SHARE, then * NO_SHARE
            if then > dominant:
                dominant = then
            if now > bare:
                bare = now
        queue, name = (node.seen or node.branch).queue, node.branch.queue.name
        return above, beyond, -queue.priority, starves, dominant, bare, node.size, queue.created, name

    def _read(self, node: QueueNode, head: Workload) -> None:
        """Look up what the key of a queue with such a head is made of."""
        (pool, asked), terms, size = self._asks(head), [], 0.0
        line = self._tree.branches[head.queue].path
        below = line[: line.index(node.branch)] if node.branch in line else ()
        node.seen = next((at for at in (node.branch, *below[::-1]) if at.governs(pool, asked)), node.branch)
        for account in node.seen.own(pool):
            for resource in account.resources:
                share, owed = account.share[resource], account.guaranteed.get(resource, 0)
                terms.append((account.held, resource, asked.get(resource, 0), share, owed))
                size = max(size, share / max(1, self._tree.capacity[account.pool].get(resource, 0)))
        node.terms, node.size = tuple(terms), size


def pending_queues(
    tree: QueueTree, pending: Iterable[Workload], policy: Policy, stands: Stands
) -> tuple[dict[str, PendingQueue], list[Workload]]:
    """What waits, by leaf, and what waits in no leaf. A policy with an order of its own has one line of all that may
    use the same pools, by the first of their leaves."""
    waiting: defaultdict[str, list[Workload]] = defaultdict(list)
    for one in pending:
        waiting[one.queue].append(one)
    tree.snapshot.memo.forget_workloads(most=2 * (len(tree.snapshot.pending) + len(tree.snapshot.running)))
    lost = [one for name in waiting if not _is_leaf(name, tree) for one in waiting[name]]
    leaves = {name: line for name, line in waiting.items() if _is_leaf(name, tree)}
    lines = {}
    for name, line in (_joined(leaves, tree) if policy.ordering else leaves).items():
        queue = tree.branches[name].queue
        sort(line, queue.order, tree)
        is_strict = queue.order == "FIFO" if policy.is_strict is None else policy.is_strict
        numbers = numbered(name, line, tree.snapshot.memo, is_learned=bool(queue.ledger.runtimes))
        lines[name] = PendingQueue(line, stands, numbers, is_strict=is_strict)
    return lines, lost


def _is_leaf(name: str, tree: QueueTree) -> bool:
    branch = tree.branches.get(name)
    return branch is not None and bool(branch.path) and not branch.children


def _joined(leaves: Mapping[str, list[Workload]], tree: QueueTree) -> dict[str, list[Workload]]:
    first: dict[tuple[str, ...], str] = {}
    lines: defaultdict[str, list[Workload]] = defaultdict(list)
    for name in sorted(leaves):
        pools = next((at.queue.pools for at in tree.branches[name].path if at.queue.pools), ())
        lines[first.setdefault(pools, name)] += leaves[name]
    return {name: sorted(line, key=TURN) for name, line in lines.items()}


def sort(waiting: list[Workload], order: str, tree: QueueTree) -> None:
    """In place: as the policy, else the queue says, of equals by TURN; before all what has waited too long."""
    if tree.policy.ordering:
        waiting.sort(key=tree.policy.ordering)
    else:
        ORDERS.get(order, by_priority)(waiting, tree)
    if tree.has_max_wait:
        waiting.sort(key=lambda one: not is_aged(one, tree))


def precedes(one: Workload, other: Workload, tree: QueueTree) -> bool:
    """Whether it would be the first of the two if both waited in its line."""
    pair = sorted((one, other), key=TURN)
    sort(pair, tree.branches[one.queue].queue.order, tree)
    return pair[0] is one
