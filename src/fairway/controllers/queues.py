"""What queues show and remember: counts, usage, share, how good forecasts were; and the charge for what ended.

A queue's status is written by one patch over the version it was read from, at most every five seconds, but within a
second where a deletion waits for its charge, and with many queues once a minute each. What is to be added to it is kept
until it is written, and decisions are told of it (`remembered`); a crash loses what forecasts and evictions since the
last write were to add, but no charge. A workload that used anything is charged, to its queue and those above, in the
same write that notes its uid there; its finalizer goes when that is seen. Queue `default` is made at start where there
is none. What a queue that is gone would have been charged, nobody is.
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from fairway import engine
from fairway.api import queues
from fairway.api.accounts import used_by_day, used_in
from fairway.api.decode import change
from fairway.api.ledger import Use, charge, evicted, owing
from fairway.api.objects import FINALIZER
from fairway.api.pods import ALONE
from fairway.api.quantities import Malformed, quantities
from fairway.api.types import VERSION, QueueObject, QueueStatus, WorkloadObject
from fairway.api.workloads import key_of
from fairway.engine import GPU, HOUR, MEMORY, PODS, Evict, Plan, Pool, Queue, Snapshot
from fairway.kube import kinds
from fairway.kube.agenda import Agenda
from fairway.outlook import Outcome, learned

from . import status as life
from .forecast import accuracy
from .held import held_by, used, value_of
from .means import Means
from .meter import Meter
from .status import Said, since

DEFAULT, APPLIED = "default", "kubectl.kubernetes.io/last-applied-configuration"
MOST_LEARNED = 200  # runtimes of a queue that are learned from before they are written
LONGEST_PAUSE, LEAST_PAUSE, SETTLE_SECONDS, HURRIED_SECONDS = 60.0, 5.0, 1.0, 0.5
WRITES_A_SECOND = 2  # of all queues together, once they are so many that LEAST_PAUSE would mean more
Cell = tuple[str, str, str]
"""Queue, pool, resource."""


@dataclass(frozen=True, slots=True)
class Picture:
    """What a queue shows of the last cycle; of all the queues below it too."""

    pending: int = 0
    admitted: int = 0
    usage: Mapping[tuple[str, str], int] = field(default_factory=dict)
    share: Mapping[tuple[str, str], int] = field(default_factory=dict)
    borrowed: Mapping[tuple[str, str], int] = field(default_factory=dict)
    reserved: float = 0.0  # GPU-seconds of its budget
    fault: tuple[str, str] | None = None  # why its parents lead to no root


@dataclass(frozen=True, slots=True)
class News:
    """What is to be added to a queue's status: uses by uid, milli-GPU evicted for it, outcomes of forecasts."""

    uses: Mapping[str, Use]
    evicted: Counter[Pool]
    outcomes: list[Outcome]


class Queues:
    def __init__(self, means: Means, meter: Meter) -> None:
        self.means, self.meter = means, meter
        self.agenda = Agenda(means.client.clock, means.client.chance)
        self._pictures: dict[str, Picture] = {}
        self._evicted: defaultdict[str, Counter[Pool]] = defaultdict(Counter)
        self._uses: defaultdict[str, dict[str, Use]] = defaultdict(dict)  # by uid
        self._outcomes: defaultdict[str, list[Outcome]] = defaultdict(list)
        self._written: dict[str, float] = {}
        self._hurried: defaultdict[str, set[str]] = defaultdict(set)  # uids that a deletion waits for
        self._must_make = False
        self._owed: Mapping[str, Mapping[str, float]] = {}  # GPU-seconds not charged yet, by queue and workload

    async def run(self) -> None:
        """Until cancelled."""
        self._must_make = DEFAULT not in self.means.view.queues
        self.agenda.note(DEFAULT)
        await self.means.take_turns(self.agenda, self._turn)

    def show(self, snapshot: Snapshot, plan: Plan, usage: Mapping[Cell, int]) -> None:
        """A cycle is over; queues whose picture changed get a turn."""
        self.meter.watch(snapshot, plan)
        pictures = pictures_of(snapshot, plan, usage)
        for name, picture in pictures.items():
            picture = dataclasses.replace(picture, reserved=picture.reserved + sum(self._owed.get(name, {}).values()))
            if self._pictures.get(name) != picture:
                self._pictures[name] = picture
                self._note(name)
        by_key = {one.workload.key: one for one in snapshot.running}
        pools, memories = {pool.name: pool for pool in snapshot.pools}, snapshot.memories
        for verdict in plan.verdicts:
            if isinstance(verdict, Evict) and verdict.beneficiary and (one := by_key.get(verdict.workload)):
                gpus = held_by(one, memories).get(GPU, 0)
                self._evicted[one.workload.queue][pools[one.admission.pool]] += gpus
                self._note(one.workload.queue)

    def learn(self, queue: str, one: Outcome) -> None:
        """What came of a forecast for a workload of the queue."""
        self._outcomes[queue].append(one)
        self._note(queue)

    def must_charge(self, said: WorkloadObject) -> bool:
        """Whether a workload that is over or deleted is still to be charged, to its queue or one above it, or to the
        budget of another that it was in; if so they get a turn soon."""
        use, uid, known = use_of(said, self.means.now()), said.metadata.uid, self.means.view.queues
        left = {name: it for name, it in charges(use, known).items() if uid not in known[name].status.charged}
        for name in left:
            self._uses[name].setdefault(uid, left[name])
            self._note(name)
            if said.metadata.is_going:
                self._hurried[name].add(uid)
                self.agenda.note(name, self.means.now() + HURRIED_SECONDS)
        return bool(left)

    def _note(self, name: str) -> None:
        """A turn once it may be written again, and what changes now has changed."""
        self.agenda.note(name, max(self.means.now() + SETTLE_SECONDS, self._may_write(name)))

    def _may_write(self, name: str) -> float:
        """From when on its status may be written again."""
        pause = min(LONGEST_PAUSE, max(LEAST_PAUSE, len(self.means.view.queues) / WRITES_A_SECOND))
        return self._written.get(name, -pause) + pause

    def remembered(self, snapshot: Snapshot) -> Snapshot:
        """With what queues are still to be told of spent budgets and evicted GPUs: a decision must not wait for it."""
        found, self._owed = dict(snapshot.queues), self._owing(snapshot)
        for name in self._evicted.keys() & found.keys():
            ledger = evicted(found[name].ledger, self._evicted[name], now=snapshot.now)
            found[name] = dataclasses.replace(found[name], ledger=ledger)
        for name in self._owed.keys() & found.keys():
            found[name] = owing(found[name], self._owed[name], now=snapshot.now)
        return dataclasses.replace(snapshot, queues=found)

    def _owing(self, snapshot: Snapshot) -> dict[str, dict[str, float]]:
        """GPU-seconds, by queue and workload, that its ledger lacks yet of what neither waits nor runs in the snapshot:
        it is over, whether that is written or not, or suspended."""
        found, view = defaultdict[str, dict[str, float]](dict), self.means.view
        if all(queue.budget is None for queue in snapshot.queues.values()):
            return found
        goes_on = {*map(attrgetter("key"), snapshot.pending), *(one.workload.key for one in snapshot.running)}
        for said, names in queues.uncharged(view.workloads, view.queues, goes_on):
            with suppress(Malformed):  # what cannot be read any more is not counted, and stops no decision
                status = used(said, now=snapshot.now)
                parts = queues.budgeted(view.queues, said.spec.queue, status.attained, used_by_day(status))
                for name in snapshot.queues.keys() & names:
                    if counts := snapshot.queues[name].counted(*parts[name], snapshot.now):
                        found[name][key_of(said.metadata)] = counts
        return found

    def learned(self, snapshot: Snapshot) -> Snapshot:
        """With the last runtimes that queues are still to be told of: what a forecast should not wait for either."""
        found = dict(snapshot.queues)
        for name in self._uses.keys() & found.keys():
            uses = [one for one in self._uses[name].values() if one.workload.queue == name and one.runtime is not None]
            runtimes = dict(found[name].ledger.runtimes)
            for one in uses[-MOST_LEARNED:]:
                runtimes = engine.learn(runtimes, one.workload, one.runtime or 0.0)
            ledger = dataclasses.replace(found[name].ledger, runtimes=tuple(sorted(runtimes.items())))
            found[name] = dataclasses.replace(found[name], ledger=ledger)
        return dataclasses.replace(snapshot, queues=found)

    async def _turn(self, name: str) -> float | None:
        if name == DEFAULT and self._must_make:
            await self.means.client.ensure(kinds.QUEUES, default_queue())
            self._must_make = False
        seen = self.means.view.queues.get(name)
        news = News(dict(self._uses[name]), Counter(self._evicted[name]), list(self._outcomes[name]))
        if seen is None:
            self._told(name, news)
            return None
        again = self._may_write(name)
        if not self._hurried[name] and self.means.now() < again:
            return again
        patch = change(seen.status, self._status(seen, news))
        if patch:
            await self.means.patch(kinds.QUEUES, seen, {"status": patch})
            self._written[name] = self.means.now()
        for one in self._ours(name):
            if one.metadata.uid in news.uses:
                self.means.tend(key_of(one.metadata))
        self._told(name, news)
        return None

    def _told(self, name: str, news: News) -> None:
        """It stands in the queue's status; what came since does not yet."""
        del self._outcomes[name][: len(news.outcomes)]
        self._evicted[name] -= news.evicted
        self._hurried[name] -= news.uses.keys()
        for uid in news.uses:
            del self._uses[name][uid]

    def _ours(self, name: str) -> list[WorkloadObject]:
        """The workloads that are or were in a queue or in those below it."""
        view = self.means.view
        below = {one for one in view.queues if name in queues.path(view.queues, one)}
        return [one for one in view.workloads.values() if not below.isdisjoint(used_in(one))]

    def _status(self, seen: QueueObject, news: News) -> QueueStatus:
        now, half_life, name = self.means.now(), self.means.settings.usage_half_life, seen.metadata.name
        queue = queues.queue(seen, ALONE)
        kept = {one.metadata.uid for one in self._ours(name) if FINALIZER in one.metadata.finalizers}
        charged = [uid for uid in seen.status.charged if uid in kept]
        fresh = {uid: use for uid, use in news.uses.items() if uid in kept and uid not in charged}
        for use in fresh.values():
            queue = dataclasses.replace(queue, ledger=charge(queue, use, now=now, half_life=half_life))
        ledger, forecasts = evicted(queue.ledger, news.evicted, now=now), accuracy(seen.status.forecasts, news.outcomes)
        ledger = dataclasses.replace(ledger, stretch=learned(ledger.stretch, news.outcomes))
        shown = self._shown(queue, seen.status, spent=sum(use.budget[0] for use in fresh.values()))
        shown = replace(shown, charged=(*charged, *fresh), forecasts=forecasts)
        return queues.ledger_status(ledger, shown)

    def _shown(self, queue: Queue, status: QueueStatus, *, spent: float) -> QueueStatus:
        """`spent`: GPU-seconds that are charged in this write, and reserved no longer."""
        picture = self._pictures.get(queue.name, Picture())
        held = {"usage": picture.usage, "share": picture.share, "borrowed": picture.borrowed}
        told = {name: _by_pool(cells) for name, cells in held.items()}
        said, value = Said(*(picture.fault or ("Valid",))), str(picture.fault is None)
        status = life.told(status, "Valid", said, now=self.means.now(), value=value)
        hours = round(max(0.0, picture.reserved - spent) / HOUR, 3)
        return replace(status, pending=picture.pending, admitted=picture.admitted, budget_reserved=hours, **told)


def default_queue() -> dict[str, Any]:
    """Queue `default` as `kubectl apply` would make it: applied again with quotas, it changes without a warning."""
    body: dict[str, Any] = {"apiVersion": VERSION, "kind": "Queue", "metadata": {"name": DEFAULT}, "spec": {}}
    applied = {**body, "metadata": {"annotations": {}, "name": DEFAULT}}
    return body | {"metadata": {"name": DEFAULT, "annotations": {APPLIED: msgspec.json.encode(applied).decode()}}}


def use_of(said: WorkloadObject, now: float) -> Use | None:
    """What a workload used in all; None while it may use more, or if it never ran."""
    finished = since(said.status, "Finished")
    if not said.status.attempt or not (finished or said.metadata.is_going):
        return None
    status, start = used(said, now=now), since(said.status, "Admitted")
    amounts = status.served.amounts if status.served else {}
    spent = {(pool, name): amount for pool, own in amounts.items() for name, amount in own.items()}
    runtime = finished - start if finished and start is not None and status.phase == "Succeeded" else None
    return Use(value_of(said), spent, (0.0, ()), runtime)


def charges(use: Use | None, known: Mapping[str, QueueObject]) -> dict[str, Use]:
    """What each queue is charged: those where it was once in their budgets alone."""
    if use is None:
        return {}
    its, now_in = use.workload, queues.path(known, use.workload.queue)
    return {
        name: dataclasses.replace(use, budget=part, spent=use.spent if name in now_in else {})
        for name, part in queues.budgeted(known, its.queue, use.gpu_seconds, its.days).items()
    }


def summed(snapshot: Snapshot, own: Mapping[tuple[str, ...], int]) -> Counter[tuple[str, ...]]:
    """What queues have, with all below them; of each key the first is the queue."""
    known, total = snapshot.queues, Counter[tuple[str, ...]]()
    for (queue, *rest), amount in own.items():
        for name in engine.lineage(lambda one: known[one].parent if one in known else "", queue):
            total[name, *rest] += amount
    return total


def usage_of(snapshot: Snapshot) -> Mapping[Cell, int]:
    """What each queue holds, with all below it; of its paused workloads the memory."""
    alike: Counter[tuple[str, str, int, tuple[int, ...]]] = Counter()  # podsets alike are one object
    podsets = {id(one.workload.podsets): one.workload.podsets for one in snapshot.running}
    for one in snapshot.running:
        asked = one.workload.podsets
        alike[one.workload.queue, one.admission.pool, id(asked), engine.counts_of(asked, one.admission)] += 1
    held: Counter[tuple[str, ...]] = Counter()
    memory = snapshot.memories
    for (queue, pool, shape, counts), number in alike.items():
        for resource, amount in engine.counted(podsets[shape], counts, memory.get(pool, 0)).items():
            if resource != PODS and amount:
                held[queue, pool, resource] += amount * number
    for pod in snapshot.pods:
        if pod.pause and (row := snapshot.row_of.get(pod.node)) is not None and snapshot.pool_of[row] >= 0:
            pool = snapshot.pools[snapshot.pool_of[row]].name
            held[pod.pause.queue, pool, MEMORY] += dict(pod.pod.requests).get(MEMORY, 0)
    return summed(snapshot, held)  # type: ignore[return-value]


def pictures_of(snapshot: Snapshot, plan: Plan, usage: Mapping[Cell, int]) -> dict[str, Picture]:
    waiting = Counter(map(attrgetter("queue"), snapshot.pending))
    pending = summed(snapshot, {(queue,): count for queue, count in waiting.items()})
    admitted = summed(snapshot, Counter((one.workload.queue,) for one in snapshot.running))
    held, due, owed = map(_by_queue, (usage, plan.shares, plan.guaranteed))
    return {
        name: Picture(
            pending[name,], admitted[name,], held[name], due[name], _borrowed(owed[name], held[name]),
            plan.reserved.get(name, 0.0), engine.invalid_parent(name, snapshot.queues),
        )
        for name in snapshot.queues
    }


def _by_queue(cells: Mapping[Cell, int]) -> defaultdict[str, dict[tuple[str, str], int]]:
    found: defaultdict[str, dict[tuple[str, str], int]] = defaultdict(dict)
    for (queue, pool, resource), amount in sorted(cells.items()):
        found[queue][pool, resource] = amount
    return found


def _borrowed(owed: Mapping[tuple[str, str], int], usage: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Usage above what is guaranteed in the very pool, or in all pools where it uses but one."""
    found = {}
    for (at, resource), amount in owed.items():
        pools = [pool for pool, name in usage if name == resource and at in ("*", pool)]
        over = sum(usage[pool, resource] for pool in pools) - amount
        if pools and over > 0:
            found[at if len(pools) > 1 else pools[0], resource] = over
    return found


def _by_pool(cells: Mapping[tuple[str, str], int]) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, int]] = {}
    for (pool, resource), amount in cells.items():
        found.setdefault(pool, {})[resource] = amount
    return {pool: dict(quantities(engine.amounts(held))) for pool, held in found.items()}
