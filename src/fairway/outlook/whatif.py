"""What would let a waiting workload start now. Each change is tried by deciding again: what is reported is true.

Tried, one at a time: without some of the workloads that run; a time limit that the budget has left, or that ends before
the room is kept for another; fewer pods of a lone podset, or fewer GPUs for a lone pod; without its required topology;
another of the pools, where it names some; at last another queue that takes it. A start that has to wait for others to
stop counts as none.

Work is bounded by counts: the workloads share as many decisions as MOST_LOOKS allows, a decision looking at each node
and each workload once. Nothing is decided where the nodes lack the room. Changes that are left when the decisions are
used up are not tried. A decision comes as far as the workload's turn, and goes on from there for another workload that
asks about the same change.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fairway import engine
from fairway.engine import DEVICE, GPU, Draft, Facts, Reason, Running, Wait, Workload, World, most_between, turns

MOST_OTHERS = 16  # queues tried, pools, and workloads named as blocking
MOST_LOOKS, DECISION = 50_000, 64  # looks for one workload; what a decision costs beside its nodes and workloads
MINUTE = 60.0
SHORT_OF_ROOM = (Reason.NO_ROOM, Reason.FRAGMENTED, Reason.NO_DOMAIN)


def what_if(world: World, wait: Wait, policy: engine.Policy) -> Facts:
    """The facts of the wait, with what would change it."""
    return WhatIf(world, policy).facts(wait)


class WhatIf:
    """Asks for several workloads of one world, `waits` at most; the state is made once."""

    def __init__(self, world: World, policy: engine.Policy, waits: int = 1) -> None:
        self._world, self._policy, state = world, replace(policy, tells_why=False), engine.state_of(world)
        self._basis = Basis(state, Draft(self._policy.seen(state.snapshot(world.now)), self._policy))
        seen = DECISION + len(world.nodes) + len(world.running) + len(world.pending)
        self._decisions = MOST_LOOKS // seen // waits

    def plan(self) -> engine.Plan:
        """What is decided as it is."""
        policy = replace(self._policy, tells_why=True)
        return engine.decide(policy.seen(self._basis.state.snapshot(self._world.now)), policy)

    def facts(self, wait: Wait) -> Facts:
        """The facts of the wait, with what would change it."""
        ours = next(one for one in self._world.pending if one.key == wait.workload)
        trial = Trial(self._basis, ours, self._decisions)
        running = [one for one in self._world.running if not one.is_leaving and not one.is_promised]
        limit, free = _limit(self._world, wait), _unbound(ours)
        blocking = tuple(key for key in wait.facts.blocking if key != ours.key)
        if not blocking and wait.reason is not Reason.BUDGET_SPENT:  # what only holds room holds none of a budget
            blocking = _in_the_way(running, wait.facts.domain, trial)
        holders = [one for one in running if one.workload.key in blocking] if wait.reason in SHORT_OF_ROOM else []
        return replace(
            wait.facts,
            blocking=blocking,
            shields=(*wait.facts.shields, *_out_of_reach(ours, holders, self._basis.draft)),
            shorter_limit=limit if limit and trial.starts(replace(ours, time_limit=limit)) else None,
            would_fit=_fewer_pods(ours, trial),
            with_gpus=_fewer_gpus(ours, trial),
            is_bound=free != ours and trial.starts(free),
            other_pool=next((name for name in self._pools(ours) if trial.starts(replace(ours, pools=(name,)))), ""),
            other_queue=next((name for name in self._queues(ours) if trial.starts(replace(ours, queue=name))), ""),
        )

    def _pools(self, ours: Workload) -> list[str]:
        return [one.name for one in self._world.pools if ours.pools and one.name not in ours.pools][:MOST_OTHERS]

    def _queues(self, ours: Workload) -> list[str]:
        leaves = {one.name for one in self._world.queues} - {one.parent for one in self._world.queues}
        return sorted(leaves - {ours.queue})[:MOST_OTHERS]


class Decision:
    """One decision as far as it was asked about: `turns` are the waiting workloads, and whether each starts."""

    def __init__(self, turns: Iterator[tuple[str, bool]]) -> None:
        self._turns, self._found = turns, dict[str, bool]()

    def starts(self, key: str) -> bool:
        """False of one whose turn does not come: it waits as another does."""
        while key not in self._found and (turn := next(self._turns, None)):
            self._found.update([turn])
        return self._found.get(key, False)


@dataclass(frozen=True, slots=True)
class Basis:
    """What is changed and decided on. `draft`: of the state as it is. `known`: decisions without some of the running
    workloads, by the keys of these."""

    state: engine.State
    draft: Draft
    known: dict[frozenset[str], Decision] = field(default_factory=dict)


class Trial:
    """Decides on one workload in a state that is changed for the time of a decision, at most so many times."""

    def __init__(self, basis: Basis, ours: Workload, decisions: int) -> None:
        self._basis, self._ours, self.left = basis, ours, decisions

    def starts(self, changed: Workload, without: Sequence[Running] = ()) -> bool:
        """Whether it starts now, changed so, if some of the running workloads were gone; False once all decisions are
        used up. Nothing is decided where the nodes lack the room."""
        if not self.left or not self._has_room(changed, without):
            return False
        self.left -= 1
        if changed is not self._ours:
            return self._decision(changed, without).starts(changed.key)
        keys, known = frozenset(one.workload.key for one in without), self._basis.known
        if keys not in known:
            known[keys] = self._decision(changed, without)
        return known[keys].starts(changed.key)

    def _decision(self, changed: Workload, without: Sequence[Running]) -> Decision:
        state, policy, now = self._basis.state, self._basis.draft.policy, self._basis.draft.snapshot.now
        state.observe(changed, *(engine.Gone("Workload", one.workload.key) for one in without))
        decision = Decision(turns(policy.seen(state.snapshot(now)), policy))
        state.observe(self._ours, *without)
        return decision

    def _has_room(self, changed: Workload, without: Sequence[Running]) -> bool:
        """Whether in some pool each podset has room, quota, order and the other podsets apart."""
        draft, cache = self._basis.draft, engine.cache_of(self._basis.draft)
        with draft.trial():
            for one in without:
                draft.vanish(one.workload.key)
            return any(
                all(int(cache.room(draft.shape(one.pod, pool)).sum()) >= one.min_count for one in changed.podsets)
                for pool in draft.tree.pools_of(changed.queue, changed.pools)
            )

    def starts_without(self, those: Sequence[Running]) -> bool:
        return self.starts(self._ours, those)


def _in_the_way(running: Sequence[Running], domain: str, trial: Trial) -> tuple[str, ...]:
    """The running workloads without which it would start, none of them in vain; () where no few of them would help.
    Those in the domain that comes nearest are looked at first."""

    def place(one: Running) -> tuple[bool, str, str]:
        node = next((share.node for podset in one.admission.podsets for share in podset.nodes), "")
        return node != domain, node, one.workload.key

    those = sorted(running, key=place)
    if not those or not trial.starts_without(those):
        return ()
    those = those[: _fewest(len(those), lambda count: trial.starts_without(those[:count]))]
    if len(those) > MOST_OTHERS and not trial.starts_without(those := those[-MOST_OTHERS:]):
        return ()
    those = those[most_between(0, len(those), lambda cut: trial.starts_without(those[cut:])) :]
    for one in those[1:-1]:
        rest = [other for other in those if other is not one]
        those = rest if trial.starts_without(rest) else those
    return tuple(one.workload.key for one in those)


def _out_of_reach(
    ours: Workload, holders: Sequence[Running], draft: Draft
) -> Iterator[tuple[str, tuple[str, ...], None]]:
    """Workloads in the way of one that is within its guarantee, where no rule reaches them, as `shields`: of its own
    queue and no lower `priority`; of a queue that holds, at the level under the common ancestor, no more than is
    `guaranteed` to it."""
    found: dict[str, list[str]] = {"priority": [], "guaranteed": []}
    for one in holders:
        mine, other = draft.tree.branches[ours.queue], draft.tree.branches.get(one.workload.queue)
        asked = draft.tree.amounts(ours.podsets, tuple(it.min_count for it in ours.podsets), one.admission.pool)
        if not _keep_within(mine.accounts, one.admission.pool, asked):
            continue
        if other is mine and one.workload.priority >= ours.priority:
            found["priority"].append(one.workload.key)
        elif other and other.path and other not in mine.line and mine not in other.line and _keep_within(
            mine.below(other)[1].accounts, one.admission.pool, {}
        ):
            found["guaranteed"].append(one.workload.key)
    return ((kind, tuple(sorted(keys)), None) for kind, keys in found.items() if keys)


def _keep_within(accounts: Mapping[str, engine.Account], pool: str, more: Mapping[str, int]) -> bool:
    """Whether a queue has quotas for the pool, and holds with so much more no more than is guaranteed to it."""
    own = [accounts[name] for name in (pool, "*") if name in accounts]
    return bool(own) and all(one.keeps_within(one.guaranteed, more) for one in own)


def _fewest(enough: int, holds: Callable[[int], bool]) -> int:
    """The smallest number found to hold, sought from 1 in steps that double; `enough` is known to hold."""
    fails, tried = 0, 1
    while tried < enough and not holds(tried):
        fails, tried = tried, 2 * tried
    return most_between(fails, min(tried, enough), lambda count: not holds(count)) + 1


def _fewer_pods(ours: Workload, trial: Trial) -> dict[str, int] | None:
    if len(ours.podsets) != 1:
        return None
    (podset,) = ours.podsets

    def less(count: int) -> Workload:
        return replace(ours, podsets=(replace(podset, count=count, min_count=count),))

    fits = most_between(0, podset.min_count, lambda count: trial.starts(less(count)))
    return {podset.name: fits} if fits else None


def _fewer_gpus(ours: Workload, trial: Trial) -> int | None:
    """In milli, for a lone pod with several."""
    podset, asked = ours.podsets[0], dict(ours.podsets[0].pod.requests)
    if len(ours.podsets) != 1 or podset.count != 1 or asked.get(GPU, 0) <= DEVICE:
        return None

    def less(gpus: int) -> Workload:
        requests = engine.amounts(asked | {GPU: gpus * DEVICE})
        return replace(ours, podsets=(replace(podset, pod=replace(podset.pod, requests=requests)),))

    return most_between(0, asked[GPU] // DEVICE, lambda gpus: trial.starts(less(gpus))) * DEVICE or None


def _unbound(ours: Workload) -> Workload:
    """The same without what its topology requires."""

    def free(topology: engine.Topology) -> engine.Topology:
        return replace(topology, required="", preferred=topology.preferred or topology.required)

    podsets = tuple(replace(one, topology=free(one.topology)) for one in ours.podsets)
    return replace(ours, topology=free(ours.topology), podsets=podsets)


def _limit(world: World, wait: Wait) -> float:
    """The longest time limit, in whole minutes, for which the budget has enough left, or that ends before the room is
    kept for another; none where that has begun."""
    if (said := wait.facts.spending) and said.budget:
        left = said.budget - said.spent - said.reserved
        return max(0.0, left / said.budget * (wait.facts.longest or 0) // MINUTE * MINUTE)
    begins = wait.facts.since if wait.reason is Reason.RESERVED else wait.facts.until
    return 0.0 if begins is None else max(0.0, (begins - world.now) // MINUTE * MINUTE)
