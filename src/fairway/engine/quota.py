"""The queue tree: what each queue is owed, may use at most, holds and is due.

A queue has an account for each pool its quotas name; "*" is all pools together, and every account that applies must
hold. Only resources that a quota names are governed by it: others are not counted, limited, shared or reclaimed there.
Accounts hold what runs or is promised, and the memory of what is paused; what leaves counts no more, what moves counts
once. Shares are divided once a cycle, top down; they order queues and entitle to reclaim, and never gate free room.
Amounts are Python ints.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, product
from math import log
from operator import attrgetter
from typing import TypeVar, cast

from .model import GPU, MEMORY, Budgeted, DaysUsed, Decayed, PodSet, Queue, Share, Workload
from .policy import Policy
from .resources import DEVICE, UNIT, counted, memory_of, slices
from .runtimes import Learned
from .snapshot import Columns, Snapshot, of_nodes

ALL = "*"
NEVER = 1 << 62
EPSILON = 1e-6  # what adding floats may lose, in base units
Demand = Mapping[str, int]
Inherited = TypeVar("Inherited")


class Account:
    """The quotas of one queue for one pool; each has the weight of its resources. `fixed`: the part of `held` that
    cannot be preempted; `absent`: that of pods that running gangs lost; `demand`: held and waited for."""

    def __init__(self, queue: Queue, pool: str, live: Demand) -> None:
        self.queue, self.pool, self.live = queue, pool, live
        self.guaranteed, self.limit, self.weight = dict[str, int](), dict[str, int](), dict[str, float]()
        for quota in queue.quotas:
            if quota.pool == pool:
                self.weight |= dict.fromkeys((name for name, _ in (*quota.guaranteed, *quota.limit)), quota.weight)
                self.guaranteed |= {name: absolute(share, live.get(name, 0)) for name, share in quota.guaranteed}
                self.limit |= {name: absolute(share, live.get(name, 0)) for name, share in quota.limit}
        self.resources = tuple(sorted({*self.guaranteed, *self.limit}))
        self.held = dict.fromkeys(self.resources, 0)
        self.fixed, self.absent, self.demand, self.share = (self.held.copy() for _ in range(4))

    def asked(self, resource: str) -> int:
        """Its demand: what it holds and what waits, capped by its limit."""
        return min(self.demand[resource], self.limit.get(resource, NEVER))

    def keeps_within(self, bounds: Demand, amounts: Demand) -> bool:
        """Whether with these amounts it holds no more than `bounds` of any governed resource."""
        return all(self.held[one] + amounts.get(one, 0) <= bounds.get(one, 0) for one in self.resources)


def _is_open(queue: Queue) -> bool:
    bounds = (queue.namespaces, queue.max_priority, queue.allows_nonpreemptible, queue.max_time_limit, queue.budget)
    return queue.stop == "None" and not queue.pools and all(bound is None for bound in bounds)


def absolute(share: Share, live: int) -> int:
    """A quantity in base units; a relative one is a part of the live capacity of its pools."""
    return live * share.amount // 1000 if share.is_relative else share.amount


@dataclass(slots=True, eq=False)
class Branch:
    """A queue in the tree. `path`: itself first, its root last; empty where parents lead to none. `line`: that without
    parents that have no quotas, which are transparent. `ledgers`, by pool: its accounts, then its ancestors'.
    `governed`: pools and the resources that it governs there, by a quota for the pool or for all."""

    queue: Queue
    children: list["Branch"] = field(default_factory=list)
    path: tuple["Branch", ...] = ()
    line: tuple["Branch", ...] = ()
    accounts: dict[str, Account] = field(default_factory=dict)
    ledgers: dict[str, tuple[Account, ...]] = field(default_factory=dict)
    governed: frozenset[tuple[str, str]] = frozenset()

    @property
    def is_plain(self) -> bool:
        """It holds workloads, and none of its path has a condition for them but quota."""
        return bool(self.path) and not self.children and all(_is_open(one.queue) for one in self.path)

    def own(self, pool: str) -> list[Account]:
        """The accounts of this queue that a workload in the pool counts in."""
        return [self.accounts[name] for name in (pool, ALL) if name in self.accounts]

    def governs(self, pool: str, asked: Demand) -> bool:
        """Whether any of what is asked is governed here."""
        return any(asked.get(resource) for account in self.own(pool) for resource in account.resources)

    def governing(self, pool: str, resource: str) -> tuple["Branch", ...]:
        """Itself, then the queues above that govern a resource in a pool; without one: that have quotas."""
        return (self, *(at for at in self.path[1:] if (pool, resource) in at.governed)) if resource else self.line

    def below(self, other: "Branch", pool: str = "", resource: str = "") -> tuple["Branch", "Branch"]:
        """The level under the lowest common ancestor, here and there, of two that are not in one line of descent; of
        those that govern a resource in a pool, if one is named."""
        lines = zip(self.governing(pool, resource)[::-1], other.governing(pool, resource)[::-1])
        return next(pair for pair in lines if pair[0] is not pair[1])


def lineage(parent_of: Callable[[str], str], name: str) -> Iterator[str]:
    """A queue and the queues above it, by name; a cycle ends where it began. `parent_of`: "" for a root."""
    passed: set[str] = set()
    while name and name not in passed:
        yield name
        passed.add(name)
        name = parent_of(name)


def budgeted(parent_of: Callable[[str], str], queue: str, used: float, days: DaysUsed) -> dict[str, Budgeted]:
    """What counts in budgets of what a workload used that is in `queue` now: by each queue in which it was used, and
    those above. What no day tells was used where it is now."""
    above, found = {name: [*lineage(parent_of, name)] for name in (queue, *(day[0] for day in days))}, {}
    for name in dict.fromkeys(chain.from_iterable(above.values())):
        own = tuple((end, amount) for at, end, amount in days if name in above[at])
        rest = used - sum(amount for at, _, amount in days if name not in above[at])
        found[name] = max(0.0, rest if name in above[queue] else sum(amount for _, amount in own)), own
    return found


def invalid_parent(name: str, queues: Mapping[str, Queue]) -> tuple[str, str] | None:
    """Why the parents of a queue lead to no root, in a word and in a clause; None where they do."""
    passed = [name]
    while above := queues[passed[-1]].parent:
        if above not in queues:
            return "ParentNotFound", f"queue {passed[-1]} names parent {above}, which does not exist"
        if above in passed:
            return "Cycle", "its parents make a cycle"
        passed.append(above)
    return None


@of_nodes
def _offered(snapshot: Snapshot, named: frozenset[str]) -> Mapping[str, Demand]:
    """What usable nodes have of each resource, in the pools that quotas name, and in all."""
    return _sums(snapshot, snapshot.capacity, named)


def _sums(snapshot: Snapshot, columns: Columns, named: frozenset[str]) -> Mapping[str, Demand]:
    live = snapshot.is_usable & (snapshot.pool_of >= 0)
    rows = [(pool.name, row) for row, pool in enumerate(snapshot.pools) if pool.name in named]
    masks = {ALL: live, **{name: live & (snapshot.pool_of == row) for name, row in rows}}
    sums = {name: columns[:, mask].sum(axis=1).tolist() for name, mask in masks.items()}
    totals = {name: dict(zip(snapshot.resources, amounts)) for name, amounts in sums.items()}
    for total in totals.values():
        total[GPU] += sum(slices(resource) * amount for resource, amount in total.items()) * DEVICE // 7
    return totals


class QueueTree:
    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self.snapshot, self.policy = snapshot, policy
        self.branches = {name: Branch(queue) for name, queue in sorted(snapshot.queues.items())}
        self.pools = tuple(pool.name for pool in snapshot.pools)
        self.learned = Learned(snapshot)
        self.needs: dict[int, float] = {}  # GPU-seconds, as powers of two, by the number of those that run alike
        self.patience: dict[str, float] = {}  # seconds, by queue whose line goes by need
        self.touched: set[str] = set()  # queues whose holdings changed since the last look
        self.memory = snapshot.memories
        self._amounts: dict[tuple[int, tuple[int, ...], int], dict[str, int]] = {}
        self._limits: dict[str, tuple[float | None, float | None]] = {}  # default and strictest maximum, by queue
        self._settings: dict[tuple[str, str], object] = {}  # by queue and setting, None where no queue sets it
        self._allowed: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
        self.has_max_wait = any(queue.max_wait is not None for queue in snapshot.queues.values())
        self._grow()
        self._fill()
        alike = [tuple(self._dealt)] if len(self.pools) == 1 else [(pool,) for pool in self._dealt]  # ALL is first
        for resource, pools in product(self.resources, alike):
            dealt = {pool: self._dealt[pool].get(resource, 0) for pool in pools}
            self._divide(self.roots, resource, dealt, frozenset())

    # The tree and what is live in it

    def _grow(self) -> None:
        snapshot, pools = self.snapshot, self.pools
        named = frozenset(quota.pool for branch in self.branches.values() for quota in branch.queue.quotas)
        self.capacity = self._dealt = _offered(snapshot, named)
        if snapshot.outside.any():
            self._dealt = _sums(snapshot, snapshot.capacity - snapshot.outside, named)
        for branch in self.branches.values():
            if (parent := self.branches.get(branch.queue.parent)) is not None:
                parent.children.append(branch)
            for quota in branch.queue.quotas:
                if quota.pool in self.capacity and (quota.guaranteed or quota.limit):
                    account = branch.accounts[quota.pool] = Account(branch.queue, quota.pool, self.capacity[quota.pool])
                    around = pools if quota.pool == ALL else (ALL,) if len(pools) == 1 else ()
                    branch.governed |= frozenset(product((quota.pool, *around), account.resources))
        self.resources = sorted({one for branch in self.branches.values() for _, one in branch.governed})
        self.roots = [one for one in self.branches.values() if not one.queue.parent]
        for branch in self._walk(self.roots):
            parent = self.branches.get(branch.queue.parent)
            branch.path = (branch, *(parent.path if parent else ()))
            above = parent.line if parent else ()
            branch.line = (branch, *(above if parent and parent.accounts else above[1:]))
            branch.ledgers = dict(parent.ledgers) if parent else dict.fromkeys(pools, ())
            for name in pools if branch.accounts else ():
                mine = [branch.accounts[key] for key in (name, ALL) if key in branch.accounts]
                branch.ledgers[name] = (*mine, *(parent.ledgers[name] if parent else ()))

    def _walk(self, branches: Iterable[Branch]) -> Iterator[Branch]:
        """Parents before children; what hangs on no root is not reached."""
        for branch in branches:
            yield branch
            yield from self._walk(branch.children)

    # What queues hold

    def amounts(self, podsets: tuple[PodSet, ...], counts: tuple[int, ...], pool: str) -> dict[str, int]:
        """What so many pods of these podsets count in quotas."""
        key = id(podsets), counts, self.memory.get(pool, 0)
        if key not in self._amounts:
            self._amounts[key] = counted(podsets, counts, self.memory.get(pool, 0))
        return self._amounts[key]

    def charge(self, workload: Workload, pool: str, counts: tuple[int, ...], times: int) -> None:
        """Count so many pods in the queue and its ancestors; `times` -1 takes them back."""
        if not (accounts := self.ledgers(workload.queue, pool)):
            return
        self.touched.add(workload.queue)
        amounts = self.amounts(workload.podsets, counts, pool)
        for account in accounts:
            held = account.held
            for resource in account.resources:
                held[resource] += amounts.get(resource, 0) * times
        if not workload.preemptible:
            least = tuple(min(count, podset.min_count) for count, podset in zip(counts, workload.podsets))
            amounts = self.amounts(workload.podsets, least, pool)
            for account in accounts:
                for resource in account.resources:
                    account.fixed[resource] += amounts.get(resource, 0) * times

    def keep(self, queue: str, pool: str, memory: int) -> None:
        """Count so many bytes that a paused workload holds in the queue and its ancestors; below zero takes it back."""
        for account in self.ledgers(queue, pool):
            if MEMORY in account.resources:
                account.held[MEMORY] += memory
                self.touched.add(queue)

    def exceeds_limit(self, queue: str, pool: str, asked: Demand | None = None) -> bool:
        """Whether the queue, or one above it, holds more of a resource, of those `asked` for, than its limit there."""
        bounds = ((one.held, name, limit) for one in self.ledgers(queue, pool) for name, limit in one.limit.items())
        return any(held[name] > limit and (asked is None or asked.get(name)) for held, name, limit in bounds)

    def _fill(self) -> None:
        """Count what runs, what is promised and what waits and could start, were there room."""
        governed = {name for name, branch in self.branches.items() if any(branch.ledgers.values())}
        asking = {name for name in governed if all(at.queue.stop == "None" for at in self.branches[name].path)}
        tallies = [one for one in self.snapshot.tallies if one.workload.queue in governed]
        for workload, pool, counts, times in tallies:
            self.charge(workload, pool, counts, times)
        for one in self.snapshot.running if governed else ():
            if one.is_pausing and not one.is_saving:
                self.keep(one.workload.queue, one.admission.pool, memory_of(one.workload.podsets, one.admission))
        for pod in self.snapshot.pods if governed else ():
            if pod.pause and (row := self.snapshot.row_of.get(pod.node, -1)) >= 0:
                pool = self.pools[self.snapshot.pool_of[row]] if self.snapshot.pool_of[row] >= 0 else ""
                self.keep(pod.pause.queue, pool, dict(pod.pod.requests).get(MEMORY, 0))
        for branch in self.branches.values():
            for account in branch.accounts.values():
                account.demand = account.held.copy()
        for workload, pool, counts, times in tallies:
            missing = tuple(podset.count - count for podset, count in zip(workload.podsets, counts))
            if any(missing) and workload.queue in asking:
                self._wait(workload.queue, (pool,), workload, missing, times)
        pending = self.snapshot.pending if governed else ()
        podsets = list(map(attrgetter("podsets"), pending))
        sample = dict(zip(map(id, podsets), pending))
        shapes = zip(map(attrgetter("queue", "is_active", "pools", "after"), pending), map(id, podsets))
        for ((queue, is_active, pools, after), alike), count in Counter(shapes).items():
            if is_active and queue in asking and not self.unmet(after):
                full = tuple(podset.count for podset in sample[alike].podsets)
                self._wait(queue, self.pools_of(queue, pools), sample[alike], full, count)

    def _wait(self, queue: str, pools: tuple[str, ...], one: Workload, counts: tuple[int, ...], times: int) -> None:
        """Asked of each pool it may go to, and once of all; of queues above only as far as the limits below allow."""
        for name in (ALL, *pools) if pools else ():
            amounts = self.amounts(one.podsets, counts, pools[0] if name == ALL else name)
            more = {resource: amount * times for resource, amount in amounts.items()}
            for account in (at.accounts[name] for at in self.branches[queue].path if name in at.accounts):
                for resource in account.resources:
                    before = account.asked(resource)
                    account.demand[resource] += more.get(resource, 0)
                    more[resource] = account.asked(resource) - before

    def unmet(self, after: tuple[str, ...]) -> str:
        """The first of those that it comes after that has not succeeded yet, "" if none."""
        ended = self.snapshot.ended
        return next((key for key in after if key not in ended or not ended[key].succeeded), "")

    def pools_of(self, queue: str, pools: tuple[str, ...]) -> tuple[str, ...]:
        """Pools that workloads may use: in their own order, else the queue's, else by name; ancestors narrow them."""
        key = queue, pools
        if key not in self._allowed:
            path = self.branches[queue].path if queue in self.branches else ()
            listed = [names for names in (pools, *(at.queue.pools for at in path)) if names]
            demand = (name for name in (*listed, self.pools)[0] if name in self.pools)
            self._allowed[key] = tuple(name for name in demand if all(name in names for names in listed))
        return self._allowed[key]

    def time_limit(self, workload: Workload) -> float | None:
        """The limit that is enforced: its own or the queue's default, and never more than the strictest maximum."""
        if workload.queue not in self._limits:
            path = self.branches[workload.queue].path if workload.queue in self.branches else ()
            default = self.inherited(workload.queue, "default_time_limit", None)
            bounds = [one.queue.max_time_limit for one in path if one.queue.max_time_limit is not None]
            self._limits[workload.queue] = default, min(bounds, default=None)
        default, most = self._limits[workload.queue]
        limit = default if workload.time_limit is None else workload.time_limit
        return most if limit is None else limit if most is None else min(limit, most)

    @cached_property
    def drained(self) -> frozenset[str]:
        """The queues that what runs must leave."""
        return frozenset(name for name, it in self.branches.items() if any(at.queue.stop == "Drain" for at in it.path))

    def ledgers(self, queue: str, pool: str) -> tuple[Account, ...]:
        """The accounts that a workload of the queue counts in when it runs in the pool, nearest first."""
        branch = self.branches.get(queue)
        return branch.ledgers.get(pool, ()) if branch else ()

    def is_under(self, queue: str, name: str) -> bool:
        """Whether what the queue holds counts in the queue of that name."""
        return queue in self.branches and any(at.queue.name == name for at in self.branches[queue].path)

    def inherited(self, queue: str, setting: str, default: Inherited) -> Inherited:
        """A setting of the queue, else of the nearest queue above it that sets it."""
        key = queue, setting
        if key not in self._settings:
            path = self.branches[queue].path if queue in self.branches else ()
            values = (getattr(one.queue, setting) for one in path)
            self._settings[key] = next((value for value in values if value is not None), None)
        found = self._settings[key]
        return default if found is None else cast(Inherited, found)

    # What queues are due

    def shares(self, of: Callable[[Account], Demand] = attrgetter("share")) -> dict[tuple[str, str, str], int]:
        """Queue, pool and resource → its share, or another amount of its account, in base units."""
        return {
            (name, pool, resource): amount
            for name, branch in self.branches.items()
            for pool, account in sorted(branch.accounts.items())
            for resource, amount in of(account).items()
        }

    def _divide(self, branches: list[Branch], resource: str, dealt: Demand, above: frozenset[str]) -> None:
        """Deal out what the parent is due of a resource, by pool; a queue that does not govern it stands for those
        below it. `dealt`: pools in which the same queues govern it. `above`: those where one above does, whose share
        binds."""
        branches = list(self.governed(branches, next(iter(dealt)), resource))
        for pool, total in dealt.items():
            accounts = [branch.accounts[pool] for branch in branches if pool in branch.accounts]
            asking = [one for one in accounts if resource in one.share and one.asked(resource) > 0]
            self._deal(asking, resource, total, is_bound=pool in above)
        for branch in branches:
            if branch.children:
                self._hand_down(branch, resource, dealt, above)

    def governed(self, branches: Iterable[Branch], pool: str, resource: str) -> Iterator[Branch]:
        """Queues that govern a resource in a pool, and leaves; another parent is transparent: its children count in its
        place."""
        for branch in branches:
            is_seen = (pool, resource) in branch.governed or not branch.children
            yield from (branch,) if is_seen else self.governed(branch.children, pool, resource)

    def _hand_down(self, branch: Branch, resource: str, dealt: Demand, above: frozenset[str]) -> None:
        """Those below divide the queue's share of each pool, at most that of all pools; of a single pool both are one.
        What the queue does not govern in a pool it hands down whole."""
        shares = {pool: one.share[resource] for pool, one in branch.accounts.items() if resource in one.share}
        around = {pool: ALL if pool != ALL else self.pools[0] if len(self.pools) == 1 else "" for pool in dealt}
        below = {pool: min(shares.get(pool, total), shares.get(around[pool], NEVER)) for pool, total in dealt.items()}
        bound = above.union(pool for pool in dealt if not shares.keys().isdisjoint((pool, around[pool])))
        self._divide(branch.children, resource, below, bound)

    def _deal(self, accounts: list[Account], resource: str, total: int, *, is_bound: bool) -> None:
        """First min(guaranteed, demand), shrunk in proportion if a parent's share is less; then the rest, by priority.
        With no share above nothing shrinks: a cluster that owes more than it has keeps every guarantee it can."""
        owed = {one: min(one.guaranteed.get(resource, 0), one.asked(resource)) for one in accounts}
        asked = sum(owed.values())
        if asked > total and is_bound:
            unit = UNIT.get(resource, 1)
            parts = {one: amount * total / asked for one, amount in owed.items()}
            for one, part in parts.items():
                one.share[resource] = whole(part, unit)
            left = total - sum(one.share[resource] for one in accounts)
            self._hand_out(parts, resource, left, owed)
            return
        for one, amount in owed.items():
            one.share[resource] = amount
        for priority in sorted({one.queue.priority for one in accounts}, reverse=True):
            group = [one for one in accounts if one.queue.priority == priority]
            asked += self._water_fill(group, resource, max(0, total - asked))

    def _water_fill(self, accounts: list[Account], resource: str, rest: int) -> int:
        """Fill queues that still ask; returns what was given. While some ask for less than their part, these get just
        that, and the rest is divided anew; the last parts are rounded."""
        start, parts = rest, dict[Account, float]()
        while rest > 0:
            asking = [one for one in accounts if one.share[resource] < one.asked(resource) and one.weight[resource] > 0]
            parts = self._parts(asking, resource, rest)
            needs = {one: one.asked(resource) - one.share[resource] for one in parts}
            filled = [one for one, part in parts.items() if needs[one] <= part + EPSILON]
            is_last = all(needs[one] >= parts[one] - EPSILON for one in filled)
            for one in parts if is_last else filled:
                given = needs[one] if one in filled else whole(parts[one], UNIT.get(resource, 1))
                one.share[resource] += given
                rest -= given
            if is_last:
                break
        return start - self._hand_out(parts, resource, rest, {one: one.asked(resource) for one in parts})

    def _parts(self, accounts: list[Account], resource: str, rest: int) -> dict[Account, float]:
        """`rest` in proportion to max(0, w + k·(w - u)): weight and decayed usage, both normalised; all zero: to w."""
        weights = sum(one.weight[resource] for one in accounts)
        normal = {one: one.weight[resource] / weights for one in accounts}
        k = self.policy.usage_weight
        pull = {one: max(0.0, w + k * (w - self.usage(one, resource))) for one, w in normal.items()}
        if not any(pull.values()):
            pull = normal
        whole_pull = sum(pull.values())
        return {one: rest * part / whole_pull for one, part in pull.items()}

    def _hand_out(self, parts: Mapping[Account, float], resource: str, left: int, most: Mapping[Account, int]) -> int:
        """Units lost by rounding go to the largest remainder, the older queue, then by name; returns what is left."""
        unit = UNIT.get(resource, 1)
        lost = {one: round((whole(part, unit) - part) / unit, 9) for one, part in parts.items()}
        for one in sorted(parts, key=lambda one: (lost[one], one.queue.created, one.queue.name)):
            given = max(0, min(unit, left, most[one] - one.share[resource]))
            one.share[resource] += given
            left -= given
        return left

    def usage(self, account: Account, resource: str) -> float:
        """Decayed usage as a part of the pool's capacity over the window: 1 = all of it, always."""
        window = self.capacity[account.pool].get(resource, 0) * self.policy.half_life / log(2)
        used = self._used(self.branches[account.queue.name], account.pool, resource)
        return used / window if window else 0.0

    def _used(self, branch: Branch, pool: str, resource: str) -> float:
        """What the queue's ledger says; without an entry, what those below it say."""
        entries = [value for (at, what), value in branch.queue.ledger.usage if what == resource and pool in (ALL, at)]
        if entries:
            return sum(self.decayed(one) for one in entries)
        return sum(self._used(child, pool, resource) for child in branch.children)

    def decayed(self, one: Decayed) -> float:
        return float(one.value * 0.5 ** (max(0.0, self.snapshot.now - one.time) / self.policy.half_life))


def whole(part: float, unit: int) -> int:
    """As many whole units as the part has; what a float lost by rounding is forgiven."""
    return int((part + EPSILON) / unit) * unit
