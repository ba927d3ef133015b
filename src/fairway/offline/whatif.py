"""What would become of one workload that waits: how it is decided now, what that would stop, when it would start, and
what would let it start sooner. All of it is `decide` run forward on the world as it is; others may come before
anything is done about it.
"""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from math import inf

import numpy as np

from fairway import engine
from fairway.api import conditions
from fairway.engine import MEMORY, Facts, Plan, Policy, Reason, Snapshot, Wait, Workload, World, lineage, snapshot_of
from fairway.outlook import DARK, MOST_WAITING, QUICK, Effort, Forecast, Futures, Question, WhatIf, forecast

from .answer import Entry, entry, moment, workloads_of

MOST_QUEUES, SOONER_SECONDS = 3, 60.0
ROUGHLY, FEWEST_CYCLES = Effort(2, 14_000), 8
"""For each queue that is compared, so that all take a small part of a second; with fewer decisions nothing is said."""
LACKS_ROOM = (Reason.HELD_FOR, Reason.OVER_SHARE, Reason.NO_DOMAIN, Reason.FRAGMENTED, Reason.NO_ROOM)
FEW = 12
"""Waiting workloads that are explained: each change that is reported is a decision of its own."""


def explained(world: World, plan: Plan, policy: Policy) -> Plan:
    """The plan, in which the first FEW waits report what is in the way and what would let the workload start now."""
    waits = list(islice((it for it in plan.verdicts if isinstance(it, Wait)), FEW))
    tries = WhatIf(world, policy, max(len(waits), 1))
    found = {it.workload: replace(it, facts=tries.facts(it)) for it in waits}
    return replace(plan, verdicts=tuple(found.get(it.workload, it) for it in plan.verdicts))


@dataclass(frozen=True)
class Case:
    """Which workload, in which world, by which policy. What is decided as it is, is decided once."""

    world: World
    policy: Policy
    key: str

    @property
    def ours(self) -> Workload:
        return workloads_of(self.world)[self.key]

    @property
    def queues(self) -> dict[str, str]:
        return {key: one.queue for key, one in workloads_of(self.world).items()}

    @cached_property
    def snapshot(self) -> Snapshot:
        return snapshot_of(self.world)

    @cached_property
    def tries(self) -> WhatIf:
        return WhatIf(self.world, self.policy)

    @cached_property
    def plan(self) -> Plan:
        return self.tries.plan()

    @property
    def wait(self) -> Wait | None:
        """Its verdict, if it waits."""
        waits = (it for it in self.plan.verdicts if isinstance(it, Wait))
        return next((it for it in waits if it.workload == self.key), None)

    def answer(self) -> Entry:
        """How it would be decided now, what that would stop, and what would come of a wait. `forecast`: null where no
        start is in sight. Empty of what runs on, and of what is not decided."""
        verdicts = self.plan.verdicts
        verdict = next((one for one in verdicts if one.workload == self.key and not isinstance(one, engine.Keep)), None)
        if verdict is None:
            return {}
        ours, queues, told = self.ours, self.queues, Entry()
        if isinstance(verdict, Wait):
            verdict = replace(verdict, facts=self.tries.facts(verdict))
            sooner = None if conditions.would_start(verdict.facts) else self.sooner()
            told = {"forecast": self.foretold(), "sooner": sooner}
        for name, kind in (("wouldEvict", engine.Evict), ("wouldShrink", engine.Resize)):
            victims = [one.workload for one in verdicts if isinstance(one, kind) and one.beneficiary == self.key]
            told[name] = conditions.names(victims, ours, queues) or None
        return entry(verdict, ours, queues) | {"message": conditions.sentence(verdict, ours, queues)} | told

    def helps(self) -> tuple[list[str], Entry | None]:
        """What would let it start now, a clause each; else where it would start sooner."""
        if (wait := self.wait) is None:
            return [], None
        facts = self.tries.facts(wait)
        in_its_way = [] if wait.facts.blocking else conditions.holders(facts, self.ours, self.queues)
        if wait.reason in LACKS_ROOM and not (in_its_way or wait.facts.blocking):
            in_its_way = self._in_use(facts)
        changes = conditions.would_start(facts)
        more = replace(facts, shields=facts.shields[len(wait.facts.shields) :])  # the others are said with the wait
        protected = conditions.protections(more, self.ours, self.queues)
        found = [*in_its_way, *protected, *self._paused(facts.resource), *self._without_quotas(facts), *changes]
        return found, None if changes else self.sooner()

    def _without_quotas(self, facts: Facts) -> list[str]:
        """The queues of those in its way that have no quota of what it lacks, where its own has one: nothing is taken
        back from them, whatever its own is owed."""
        resource, theirs = facts.resource, {self.queues[key] for key in facts.blocking if key in self.queues}
        lacks = sorted(name for name in theirs if not self._governs(name, resource))
        return [conditions.without_quota(name, resource) for name in lacks if self._governs(self.ours.queue, resource)]

    def _governs(self, name: str, resource: str) -> bool:
        """Whether a queue, or one above it, has a quota of a resource."""
        queues = {one.name: one for one in self.world.queues}
        line = lineage(lambda one: queues[one].parent if one in queues else "", name)
        quotas = chain.from_iterable(queues[one].quotas for one in line if one in queues)
        return any(resource in dict((*one.guaranteed, *one.limit)) for one in quotas)

    def _in_use(self, facts: Facts) -> list[str]:
        """What holds the resource that it lacks, where others wait before it and no few would make room for it; and
        what takes it next."""
        held, promised, memories = dict[str, int](), dict[str, int](), self.snapshot.memories
        for one in self.world.running:
            podsets, memory = one.workload.podsets, memories.get(one.admission.pool, 0)
            if amount := engine.counted(podsets, engine.counts_of(podsets, one.admission), memory).get(facts.resource):
                (promised if one.is_promised and not one.is_leaving else held)[one.workload.key] = amount
        words = facts.resource, self.ours, self.queues
        return [*conditions.in_use(held, *words), *conditions.taken_next(promised, *words)]

    def _paused(self, resource: str) -> list[str]:
        """What paused workloads hold of memory, where it lacks that."""
        held = Counter[str]()
        for one in self.world.pods if resource == MEMORY else ():
            if one.pause and one.pause.workload != self.key:
                held[one.pause.workload] += dict(one.pod.requests).get(MEMORY, 0)
        return conditions.paused(+held, self.ours, self.queues)

    def is_long(self) -> bool:
        """Whether more wait than are followed: a forecast would take more than a moment."""
        return len(self.world.pending) > MOST_WAITING

    def unforeseen(self) -> str:
        """Why there is no forecast for it; "" where it is only not made yet."""
        if self.is_long() or not any(self.snapshot.is_usable):
            return ""
        futures = Futures(self.world, self.policy, Question(only=self.key, effort=ROUGHLY))
        line = {one.key: row for row, one in enumerate(futures.line)}
        facts = self.wait.facts if self.wait else Facts()
        if self.key not in line or (facts.spending and facts.spending.is_beyond):
            return conditions.never(self.ours, facts)
        if before := futures.endless.get(self.key):
            return conditions.endless(before, self.ours, self.queues)
        if futures.guesses()[line[self.key]] < DARK:
            return ""
        first = next(one for one in futures.line if futures.delays(one) == DARK)
        return conditions.unknown(first.key, self.ours, self.queues)

    def forecast(self, queue: str = "", effort: Effort = QUICK) -> Forecast | None:
        """When it will start, in its queue or in another."""
        ours = replace(self.ours, queue=queue or self.ours.queue)
        pending = tuple(ours if one.key == self.key else one for one in self.world.pending)
        world = replace(self.world, pending=pending)
        question = Question(only=self.key, effort=effort)
        return forecast(world, self.policy, np.random.default_rng(1), question).get(self.key)

    def sooner(self) -> Entry | None:
        """The queue in which it is expected to start first, where that is sooner than in its own. A forecast for each
        queue is asked for only where few wait and the cluster is small."""
        world, own = self.world, self.ours.queue
        leaves = {one.name for one in world.queues} - {one.parent for one in world.queues} - {own}
        if not leaves or len(world.pending) > FEW or ROUGHLY.cycles(snapshot_of(world)) < FEWEST_CYCLES:
            return None
        found = {name: self.forecast(name, ROUGHLY) for name in (own, *sorted(leaves)[:MOST_QUEUES])}
        starts = {name: it.p50 for name, it in found.items() if it}
        best = min(starts, key=lambda name: (starts[name], name), default=own)
        gained = starts.get(own, inf) - starts.get(best, inf)
        return {"queue": best, "at": moment(starts[best])} if best != own and gained >= SOONER_SECONDS else None

    def foretold(self) -> Entry | None:
        """When it will start, in the shape of `status.forecast`."""
        it = self.forecast()
        return it and {"p50": moment(it.p50), "p90": moment(it.p90) if it.p90 < inf else None, "rough": it.is_rough}
