"""One cycle at work: the draft, the order, what is kept for later, and the verdicts so far.

It holds what the steps of `decide` share and nothing that lasts longer. Things alike are found once: the pods a
podset starts with, the nodes excluded, the pools of a queue, and why those that are alike wait.
"""

from collections import Counter, defaultdict
from functools import cached_property
from itertools import chain
from math import inf
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from .draft import Draft
from .explain import could_hold, may_fit
from .model import Admission, Pool, Running, Workload
from .place import Ask, Placements, place
from .plan import RANK, Admit, Keep, Reason, Verdict, Wait, Why
from .policy import Policy
from .quota import Account, Demand, budgeted
from .reservations import Timeline
from .resources import counts_of
from .snapshot import Mask, Memo, Snapshot

SHARED = RANK[Reason.BUDGET_SPENT]  # from this reason on, what one is told holds for all that are like it
HOPELESS = frozenset((Reason.LEVEL_UNKNOWN, Reason.NEVER_FITS))  # these do, too

MOST_HOLD_TRIES = 64  # times for holds that are looked for in one cycle


class Attempt(NamedTuple):
    """A workload's turn. `pools`: where quota lets it start; `whys`: what stands against it; `verdict`: its start."""

    workload: Workload
    pools: tuple[str, ...] = ()
    whys: tuple[Why, ...] = ()
    verdict: Admit | None = None

    @property
    def is_shut(self) -> bool:
        """Something stands against it that room does not change."""
        return any(RANK[reason] <= SHARED or reason is Reason.REFUSED for reason, _ in self.whys)


class Cycle:
    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self.snapshot, self.policy, self.now = snapshot, policy, snapshot.now
        self.draft = Draft(snapshot, policy)
        self.tree = self.draft.tree
        self.timeline = Timeline(self.draft)
        self.verdicts: dict[str, Verdict] = {}
        self.again_at: float | None = None
        self.holds = {pool.name: policy.holds(pool) for pool in snapshot.pools}
        self.evicted: Counter[str] = Counter()  # milli-GPU evicted or moved by pool, in this cycle
        self.disrupted: Counter[str] = Counter()  # pods of victims by PodDisruptionBudget, in this cycle
        self.hopeless: set[int] = set()  # podsets of victims for which there is no place elsewhere
        self.paired: set[str] = set()  # workloads for which another was evicted that is not taken for them again
        self.memo = Memo()  # what the steps found out in this cycle
        self.backfilled = {one.backfilled_for for one in snapshot.running}
        self.told: dict[tuple[object, ...], Why] = {}  # why workloads do not fit, by what they ask for
        self.short: dict[str, Keep] = {}  # elastic workloads that grow no further
        self.tries = MOST_HOLD_TRIES
        self._plain = {name for name, branch in self.tree.branches.items() if branch.is_plain}
        self._masks: dict[tuple[str, ...], Mask | None] = {(): None}
        self._shunned: dict[tuple[object, ...], bool] = {}
        self._fitting: dict[tuple[object, ...], tuple[str, ...]] = {}

    def wake(self, time: float) -> None:
        """The answer may change by itself then."""
        if self.now < time < (inf if self.again_at is None else self.again_at):
            self.again_at = time

    def foresee(self) -> None:
        """Wake when windows begin and end, a workload has waited too long, or a policy changes a priority."""
        self.wake(self.snapshot.alters_at)
        for window in self.timeline.windows:
            self.wake(window.since)
            self.wake(window.until)
        if self.tree.has_max_wait:
            for one in self.snapshot.pending:
                self.wake(one.submitted + self.tree.inherited(one.queue, "max_wait", inf))

    def say(self, verdict: Verdict) -> None:
        self.verdicts[verdict.workload] = verdict

    def least(self, workload: Workload) -> tuple[int, ...]:
        """How many pods of each podset it starts with at least."""
        return tuple([podset.min_count for podset in workload.podsets])

    @cached_property
    def waiting(self) -> dict[str, tuple[str, ...]]:
        """The keys of what waits, and what each comes after."""
        return {one.key: one.after for one in self.snapshot.pending}

    @cached_property
    def attained(self) -> dict[str, dict[str, float]]:
        """GPU-seconds, by queue and workload, that count in the queue's budget of attempts before the present one."""
        found, known = defaultdict[str, dict[str, float]](dict), self.snapshot.queues
        parents = {name: queue.parent for name, queue in known.items()}
        ones = chain(self.snapshot.pending, map(attrgetter("workload"), self.snapshot.running))
        for one in filter(attrgetter("attained"), ones):
            parts = budgeted(lambda name: parents.get(name, ""), one.queue, one.attained, one.days)
            for name in parts.keys() & known:
                found[name][one.key] = known[name].counted(*parts[name], self.now)
        return found

    @cached_property
    def ran(self) -> dict[str, list[Workload]]:
        """The workloads that ran at the start of the cycle, by queue."""
        found = defaultdict[str, list[Workload]](list)
        for one in self.snapshot.running:
            found[one.workload.queue].append(one.workload)
        return dict(found)

    def running(self, queue: str) -> list[Running]:
        """The workloads of a queue that ran at the start and still hold their places, leaving or not."""
        running = self.draft.running
        return [running[one.key] for one in self.ran[queue] if one.key in running]

    @cached_property
    def lowest(self) -> dict[str, int]:
        """The lowest priority among the workloads that ran at the start, by queue."""
        return {queue: min(one.priority for one in those) for queue, those in self.ran.items()}

    def admission(self, workload: Workload) -> Admission:
        """What it holds: it runs or was started."""
        return self.draft.holder(workload.key)[1]

    def counts(self, workload: Workload) -> tuple[int, ...]:
        """How many pods of each podset it has."""
        return counts_of(workload.podsets, self.admission(workload))

    def whole(self, one: Running) -> tuple[int, ...]:
        """How many one that runs has, with those that it lost and that may come back yet."""
        podsets, lost = one.workload.podsets, dict(one.lost if one.workload.key not in self.verdicts else ())
        counts = counts_of(podsets, one.admission)
        return tuple([count + lost.get(podset.name, 0) for count, podset in zip(counts, podsets)]) if lost else counts

    def ask(self, workload: Workload, counts: tuple[int, ...], beside: Admission | None = None) -> Ask:
        return Ask(workload, counts, self.allowed(self.shunned(workload)), beside, self.policy.strategy)

    def allowed(self, excluded: tuple[str, ...]) -> Mask | None:
        """Nodes without these; None: all."""
        if excluded not in self._masks:
            self._masks[excluded] = np.array([node.name not in excluded for node in self.snapshot.nodes], np.bool_)
        return self._masks[excluded]

    def shunned(self, workload: Workload) -> tuple[str, ...]:
        """The nodes that it failed on, as long as those in use without them could hold it if nothing else ran."""
        excluded = workload.excluded_nodes
        if not excluded:
            return ()
        key = excluded, id(workload.podsets), workload.topology, workload.queue, workload.pools
        if key not in self._shunned:
            ask = Ask(workload, self.least(workload), self.allowed(excluded), None, self.policy.strategy)
            self._shunned[key] = could_hold(self.draft, ask, self.pools_of(workload))
        return excluded if self._shunned[key] else ()

    def is_plain(self, workload: Workload) -> bool:
        """Neither its queues nor itself set a condition beyond quota; most are so."""
        if not workload.is_active or workload.backs_off_until is not None or workload.after or workload.pools:
            return False
        if workload.gates or any(podset.pod.unready for podset in workload.podsets):
            return False
        return workload.queue in self._plain

    def pools_of(self, workload: Workload) -> tuple[str, ...]:
        return self.tree.pools_of(workload.queue, workload.pools)

    def asked(self, workload: Workload, pool: str) -> Demand:
        """What it counts in quotas when it starts."""
        return self.tree.amounts(workload.podsets, self.least(workload), pool)

    def fitting(self, workload: Workload, pools: tuple[str, ...]) -> tuple[str, ...]:
        """Those of these pools whose nodes would have a place for it if nothing ran; all, where none would."""
        if len(pools) < 2 or workload.paused:
            return pools
        key = id(workload.podsets), workload.topology, pools
        if key not in self._fitting:
            ask = self.ask(workload, self.least(workload))
            self._fitting[key] = tuple(pool for pool in pools if may_fit(self.draft, ask, pool)) or pools
        return self._fitting[key]

    def wish(self, workload: Workload) -> tuple[str, Demand]:
        """The pool that it would rather start in, and what it would take of it."""
        pool = next(iter(self.pools_of(workload)), "")
        return pool, self.asked(workload, pool)

    def consolidates(self, queue: str) -> bool:
        return self.tree.inherited(queue, "consolidates", False)

    def bucket(self, pool: Pool) -> float:
        """Milli-GPU evicted in a pool that have not drained yet, those of this cycle included."""
        ledgers = [queue.ledger for queue in self.snapshot.queues.values()]
        entries = [one for ledger in ledgers for name, one in ledger.evicted if name == pool.name]
        drain, level, then = (pool.eviction_gpus or 0) / pool.eviction_period, 0.0, 0.0
        for one in sorted(entries, key=lambda one: one.time):
            level, then = max(0.0, level - drain * (one.time - then)) + one.value, one.time
        return max(0.0, level - drain * (self.now - then)) + self.evicted[pool.name]

    def accounts(self, workload: Workload, pool: str) -> tuple[Account, ...]:
        return self.tree.ledgers(workload.queue, pool)

    def start(self, workload: Workload, pool: str, placed: Placements) -> Admit:
        """It gets these places. What it takes of the room of a hold is at its own risk."""
        draft, admission = self.draft, Admission(pool, placed)
        risks = self.timeline.stay(workload, admission)
        draft.start(workload, admission)
        after = draft.waits_for(workload.podsets, admission) if draft.later else ()
        return Admit(workload.key, admission, after, risks)

    def find(self, workload: Workload, pools: tuple[str, ...]) -> tuple[str, Placements] | None:
        """The first pool and places in which it fits without delaying what is kept; else, if it is preemptible, at its
        own risk. One that does not fit where nothing is kept is not tried further."""
        bare = self.fit(workload, pools)
        if bare is None or not self.timeline.windows:
            return bare
        takes_risk = workload.preemptible and self.timeline.pays(workload, pools)
        for at_risk in (False, True)[: 1 + takes_risk]:
            with self.timeline.kept(workload, at_risk=at_risk) as windows:
                asked = {one: self.asked(workload, one) for one in pools} if windows else {}
                within = [one for one in asked if self.timeline.has_quota(workload, one, asked[one], at_risk=at_risk)]
                if found := self.fit(workload, tuple(within)) if windows else bare:
                    return found
        return None

    def fit(self, workload: Workload, pools: tuple[str, ...]) -> tuple[str, Placements] | None:
        """The first pool and places for it: in room that is idle, else in room that is being left."""
        ask = self.ask(workload, self.least(workload))
        for view in filter(None, (self.draft, self.draft.later)):
            for pool in pools:
                if (placed := place(view, ask, pool)) is not None:
                    return pool, placed
        return None

    def is_blocked(self, workload: Workload, *, is_strict: bool) -> bool:
        """It got no start, and so what is behind it in a strict line gets none; nor what is like it, unless it has a
        hold, or one that left for it the last time. A strict queue waits also for what no node now could hold, for
        nodes come back; a policy that makes every queue strict replays a trace, and is not to stop there."""
        told = self.verdicts.get(workload.key)
        if not isinstance(told, Wait) or told.reason is Reason.REFUSED:
            return False
        if is_strict:
            never = told.reason is Reason.NEVER_FITS and self.policy.is_strict is None
            return never or RANK[told.reason] >= SHARED
        is_alone = told.held is not None or workload.key in self.paired
        return not is_alone and (RANK[told.reason] >= SHARED or told.reason in HOPELESS)

    def confirm(self, one: Running) -> Verdict:
        """Admits again what was promised its places, until the workloads that it waits for are gone."""
        if one.is_leaving:
            return Keep(one.workload.key)
        still = {key for key in one.waits_for if key in self.draft.running and self.draft.running[key].is_leaving}
        after = tuple(sorted(still.union(self.draft.waits_for(one.workload.podsets, one.admission))))
        return Admit(one.workload.key, one.admission, after, one.backfilled_for)
