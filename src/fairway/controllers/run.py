"""The controllers put together, and run until cancelled.

Everything here talks to an API server through a transport, whichever it is; time and chance are given. It waits until
the cluster has what it needs. Nothing is decided before every informer has its first list, and nothing is written but
by the holder of the lease. A controller that loses the lease ends: what it assumed is another's to decide now, and
whoever runs it starts it anew. One whose clock is set ends too, since it keeps times of that clock everywhere. One that
is stopped gives the lease up, so that the next need not wait.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path

from msgspec import structs

from fairway import LEASE, TOLD
from fairway.api import objects
from fairway.api.alone import is_alone
from fairway.api.objects import (
    LimitRangeObject,
    NamespaceObject,
    NodeObject,
    NodeTopologyObject,
    Object,
    PodObject,
    PriorityClassObject,
)
from fairway.api.owners import GROUPS, OWNERS
from fairway.api.quantities import time_text
from fairway.api.types import UsageMonthObject, WorkloadObject
from fairway.api.workloads import key_of
from fairway.clock import Chance, Clock
from fairway.engine import Fault, Plan, Snapshot, State
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.events import Events
from fairway.kube.kinds import Kind, Ref
from fairway.kube.lease import Election
from fairway.kube.transport import Transport
from fairway.record import keep, record_of
from fairway.settings import DECIDES_BY, Settings, policy_of, told

from .accounts import Accounts
from .apply import Writer
from .bind import holds_room
from .cases import Cases, group_kind, key_of_owner
from .facts import Facts
from .forecast import Forecasts
from .front import Front
from .happening import Happening, failed_at, happened, happened_since, late, pod_failed
from .held import begun_again
from .idle import Idle
from .journal import Journal
from .means import Means
from .meter import Meter
from .metrics import Metrics
from .needs import installed
from .notify import Notices
from .queues import Queues
from .reservations import Reservations
from .scheduler import Scheduler
from .status import Said, finish, holds, since
from .view import View
from .webhook import Address, Door

RECORDINGS = 20
LATE_SECONDS = 10.0  # a line that is this late may be lost in a crash
FINDING_SECONDS = 60.0  # until all that happened while none led is found, and its lines are written
log = logging.getLogger(__name__)


class LeaseLost(Exception):
    """Another holds the lease, or the API server could not be reached in time to renew it."""


class TimeSet(Exception):
    """The machine's clock was set: times that were kept are wrong now."""


async def run(
    transport: Transport, settings: Settings, clock: Clock, chance: Chance, *, webhook: Address | None = None
) -> None:
    """Until cancelled, through any number of lost leases. Each life is a task of its own: a group of tasks that fails
    as it is cancelled tells of the failure alone. `webhook`: where admission reviews are answered, if anywhere."""
    this, front = asyncio.current_task(), Front(settings)
    async with asyncio.TaskGroup() as tasks:
        if settings.metrics_port:
            tasks.create_task(front.serve())
        if webhook:
            front.door = Door(Client(transport, clock, chance), settings.namespace, webhook)
            tasks.create_task(front.door.run())
        while True:
            try:
                await asyncio.create_task(Control(transport, settings, clock, chance).run(front))
            except* LeaseLost:
                log.warning("the lease is lost; starting anew")
            except* TimeSet as errors:
                log.warning("%s; starting anew", errors.exceptions[0])
            if this and this.cancelling():
                raise asyncio.CancelledError


class Control:
    """One life of the controllers, from taking the lease to losing it, or until the clock is set."""

    def __init__(self, transport: Transport, settings: Settings, clock: Clock, chance: Chance) -> None:
        self.metrics, self._offset = Metrics(), clock.offset()
        client = Client(self.metrics.counted(transport), clock, chance)
        self._view = View(client, self._changed)
        self._cases = Cases(self._view)
        lease = Ref(kinds.LEASES, LEASE, settings.namespace)
        self._means = Means(
            client=client, settings=settings, view=self._view, cases=self._cases,
            facts=Facts(self._view, self._cases, State()),
            metrics=self.metrics,
            events=Events(client, "fairway", self.metrics.lost_events.inc),
            journal=Journal(clock),
            election=Election(client, lease, identity=settings.identity or chance.uid(), term=settings.lease_term),
            wake=lambda: self._scheduler.changed.set(),
            tend=lambda key: self._writer.agenda.note(key),
            rank=lambda key: self._writer.rank(key),
            remember=lambda key: self._writer.life.remember(key),
            must_charge=lambda said: any([self._queues.must_charge(said), self._accounts.must_charge(said)]),
        )  # fmt: skip
        policy, meter = policy_of(settings), Meter()
        self._writer, self._queues = Writer(self._means), Queues(self._means, meter)
        self._accounts, self._idle = Accounts(self._means, meter), Idle(self._means)
        self._notices, self._reservations = Notices(self._means), Reservations(self._means)
        self._forecasts = Forecasts(self._means, policy, self._queues.learn, self._queues.learned)
        self._scheduler = Scheduler(self._means, policy, self._writer, self._queues)
        self._leads = False

    async def run(self, front: Front) -> None:
        """Until cancelled, the lease is lost or the clock is set; the lease is given up at once. `front` shows this
        life."""
        means = self._means
        front.exposition, front.waits_for = self.metrics.exposition, "starting"
        await installed(means.client, means.settings.namespace, partial(setattr, front, "waits_for"))
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in (self._view.run(), means.events.run(), means.journal.run(), means.election.run()):
                    tasks.create_task(work)
                await self._view.synced()
                front.ready(self._view)
                await means.election.acquired.wait()
                self.metrics.leads.set(1)
                told_until = self._catch_up()
                with suppress(TimeoutError):  # another crash must not find it noted as told; a reader may be slow
                    await means.client.clock.within(LATE_SECONDS, means.journal.flush())
                notes = {TOLD: time_text(told_until)} if told_until < inf else {}
                await means.election.begin(**{DECIDES_BY: told(means.settings)}, **notes)
                deciding = self._scheduler.run(self._record, self._forecasts.note)
                tellers = self._accounts.run(), self._queues.run(), self._forecasts.run(), self._notices.run()
                writers = self._writer.run(), self._reservations.run(), self._idle.run()
                for work in (*writers, *tellers, deciding, self._guard(), self._found()):
                    tasks.create_task(work)
        finally:
            await means.election.release()

    async def _found(self) -> None:
        """What this life found of the time before it is in the log: the next one need not look for it again."""
        await self._means.client.clock.sleep(FINDING_SECONDS)
        await self._means.election.begin(**{TOLD: None})

    def _catch_up(self) -> float:
        """Logs that this controller leads now, and what happened since the last one did, or since the one before that
        where the last one crashed while it still found such things. From when on; infinite at the first start."""
        self._leads, workloads = True, list(self._view.workloads.values())
        until, lag = self._means.election.worked_until, 0.0 if self._means.election.was_left else LATE_SECONDS
        until = min(until - lag, self._means.election.told_until)
        began = float(int(until)) if until < inf else inf
        running = sum(one.status.phase in ("Admitted", "Running") for one in workloads)
        facts = {"since": time_text(began) if began < inf else "", "running": running, "workloads": len(workloads)}
        self._means.journal.note(Happening("leading", "", facts))
        for seen in workloads if began < inf else ():
            self._log(happened_since(seen, began))
        for pod in self._view.pods.values():
            if (at := failed_at(pod)) >= began and (key := self._cases.key_of_pod(pod)) in self._view.workloads:
                self._log(late(one, at) for one in pod_failed(None, pod, key))
        return began

    async def _guard(self) -> None:
        """Ends this life when the lease is lost or the clock is set."""
        clock, offset = self._means.client.clock, self._offset
        while self._means.election.is_leader():
            await clock.sleep(self._means.settings.lease_term / 6)
            if clock.was_set(offset):
                raise TimeSet(f"the clock was set by {clock.offset() - offset:+.0f} s")
        raise LeaseLost

    def _changed(self, kind: Kind, old: Object | None, new: Object | None) -> None:
        """Noted, never acted upon here."""
        seen = new or old
        assert seen is not None
        if isinstance(seen, WorkloadObject):
            self._stands(key_of(seen.metadata))
            return
        if isinstance(old, NodeTopologyObject) and isinstance(new, NodeTopologyObject) and old.zones == new.zones:
            return  # it is written every minute
        if isinstance(seen, LimitRangeObject):
            self._tend_inside(seen.metadata.namespace)  # what is asked for there may be another now
            return
        if isinstance(seen, PodObject):
            self._pod_changed(kind, old, new)  # type: ignore[arg-type]
        else:
            self._touch(kind, old, new)
            self._reservations.note(kind, seen.metadata.name, is_new=old is None or new is None)
            self._means.facts.note(kind, old, new)
        self._means.wake()

    def _pod_changed(self, kind: Kind, old: PodObject | None, new: PodObject | None) -> None:
        if old and new and self._cases.has_moved(new):
            self._changed(kind, old, None)  # it is of another workload now
            old = None
        key = self._cases.note(old, new, now=self._means.now())
        self._stands(key)
        if old and holds_room(old) and not (new and holds_room(new)):
            self._scheduler.freed.set()
        self._idle.note(self._view.workloads.get(key))
        if key in self._view.workloads:
            self._log(pod_failed(old, new, key))
        if seen := new or old:
            self._means.facts.note_pod(key, seen)

    def _touch(self, kind: Kind, old: Object | None, new: Object | None) -> None:
        """A turn for the workloads that another object is of, or tells of."""
        seen = new or old
        if group_kind(kind) in OWNERS or group_kind(kind) in GROUPS:
            self._owner_changed(kind, seen, is_gone=new is None)  # type: ignore[arg-type]
        elif isinstance(seen, UsageMonthObject):
            self._accounts.note_month(seen.metadata.name)
        elif isinstance(seen, PriorityClassObject):
            if is_default(old) != is_default(new):  # what a bare pod stands for has the name of its class
                for key in self._cases.pods_of.keys() - self._view.stored.keys():
                    self._stands(key)
        elif isinstance(new, NodeObject):
            was = old.metadata.annotations.get(objects.WENT_DOWN) if old else None
            for key in list(self._view.workloads) if new.metadata.annotations.get(objects.WENT_DOWN) != was else ():
                self._stands(key)
        elif isinstance(seen, NamespaceObject):  # what is managed there may have changed, too
            self._tend_inside(seen.metadata.name)

    def _tend_inside(self, namespace: str) -> None:
        for key in self._cases.inside(namespace):
            self._writer.agenda.note(key)

    def _owner_changed(self, kind: Kind, seen: Object, *, is_gone: bool) -> None:
        for key in self._cases.moved(kind, seen):
            self._writer.agenda.note(key)
        if group_kind(kind) in OWNERS:
            note = self._cases.went if is_gone else self._cases.came
            note(key_of_owner(kind, seen), seen)  # type: ignore[arg-type]

    def _stands(self, key: str) -> None:
        """A workload may be another now: its object, or the pod that it is; it gets a turn."""
        self._see(key)
        self._writer.note(key)

    def _see(self, key: str) -> None:
        """Keeps what a workload is now, and tells those that need to know."""
        means, known = self._means, self._view.workloads
        old, new = known.get(key), self._cases.workload(key)
        new = new and begun_again(new, self._view.nodes, self._cases.pods_of.get(key, {}).values())
        if old == new:
            return
        if new is None:
            del known[key]
            self._cases.let_go(key)
        else:
            known[key] = new
        seen = new or old
        assert seen is not None
        if is_alone(seen):
            self._count(old, new)
        self._notices.note(seen)
        self._idle.note(new)
        self._accounts.note(old, new)
        self._log(happened(old, new))
        means.facts.note(kinds.WORKLOADS, old, new)
        if not (old and new and is_retold(old, new)):
            means.wake()
        if old is None and new is not None and new.status.admission is None and self._cases.priority(key) > 0:
            self._scheduler.urgent.set()

    def _count(self, old: WorkloadObject | None, new: WorkloadObject | None) -> None:
        """What is counted of others as it is written: a pod that is its own Workload started, or went away."""
        if new is None:
            assert old is not None
            self._cases.found(key_of(old.metadata))
            if self._leads and objects.FINALIZER in old.metadata.finalizers:
                self._mourn(old)
        elif self._leads and old and holds(new.status, "Running") and not holds(old.status, "Running"):
            began = since(new.status, "Admitted")
            self.metrics.started.labels(new.spec.queue).observe(max(0.0, self._means.now() - (began or 0.0)))

    def _mourn(self, old: WorkloadObject) -> None:
        """A pod that was its own Workload went away uncharged: it is remembered until it is, by a name of its own."""
        meta, now = old.metadata, self._means.now()
        about = structs.replace(meta, name=f"{meta.name} ({meta.uid})", deletion_timestamp=time_text(now))
        status = old.status if old.status.is_over else finish(old.status, Said("Deleted"), succeeded=False, now=now)
        gone = structs.replace(old, metadata=about, status=status)
        self._view.workloads[key_of(about)] = gone
        self._accounts.note(None, gone)
        self._writer.agenda.note(key_of(about))

    def _log(self, news: Iterable[Happening]) -> None:
        """What there was at the start is not news."""
        if self._leads:
            for one in news:
                is_late = one.at is not None and one.at < self._means.election.leads_from
                self._means.journal.note(late(one, one.at) if is_late else one)

    def _record(self, snapshot: Snapshot, plan: Plan, faults: Iterable[Fault]) -> None:
        """Keeps the snapshot of a plan that was refused, to be replayed."""
        settings = self._means.settings
        if settings.recordings:
            said = record_of(snapshot, plan, policy=settings.policy, by=policy_of(settings), faults=faults)
            keep(Path(settings.recordings), said, most=RECORDINGS)


def is_default(seen: Object | None) -> bool:
    """Whether pods that name no class have this one."""
    return isinstance(seen, PriorityClassObject) and seen.global_default


def is_retold(old: WorkloadObject, new: WorkloadObject) -> bool:
    """Whether only what is told to people changed: a decision that woke itself by its own words would never rest."""
    told = {"reason": "", "message": "", "position": 0, "forecast": None}
    return (
        old.spec == new.spec
        and old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
        and structs.replace(old.status, **told) == structs.replace(new.status, **told)
    )
