"""The life of a Workload, step by step: `tend` looks at what there is and does the next thing.

Nothing is remembered between two turns: what to do follows from the Workload, its owner and its pods as they are
seen, so a crash between any two writes is followed by the turn that would have come anyway. Decisions are not made
here; they are read off the Workload's status, where the writer of plans put them:

    no Workload yet      make one, with the finalizer that holds it until it is charged
    a bare pod alone     nothing, until something is to be remembered that the pod cannot say
    deleted, or over     wait until its pods are gone and it is charged, then let it go
    evicted              stop the owner; when no pod is left on a node, give up the room (or move into the next)
    admitted             start the owner, bind its pods, say when all of them are up, take note of those lost
    waiting              keep the owner stopped; but what another scheduler has bound already is admitted where it is
"""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from fairway.api import conditions, objects
from fairway.api.alone import is_alone, is_its_own, is_plain
from fairway.api.cancelled import OWNER, RAN_FROM
from fairway.api.decode import change, decode
from fairway.api.forms.form import Outcome
from fairway.api.nodes import downtime
from fairway.api.objects import Metadata, OwnerReference, PodObject
from fairway.api.owners import OWNERS, group_of, kind_of
from fairway.api.pods import asking, is_lost
from fairway.api.quantities import Malformed, duration_text, time, time_text
from fairway.api.queues import default_class
from fairway.api.types import VERSION, AdmissionStatus, WorkloadObject, WorkloadStatus
from fairway.api.workloads import admission, condition, key_of, priority_class
from fairway.engine import Admission, Cause, Ending, Eviction, PodSetPlacement, Workload
from fairway.kube import kinds
from fairway.kube.client import STRATEGIC
from fairway.kube.events import About
from fairway.kube.kinds import Ref, ref
from fairway.kube.turnstile import side_by_side

from . import bind
from . import status as life
from .bind import holds_room, is_left, is_of_others, is_released, ref_of
from .binder import Binder
from .cases import GROUP_FULL, Case
from .held import served, value_of
from .losses import SETTLE_SECONDS, Losses
from .means import Means
from .owner import JobOwner, KindOwner, Owner, PodsOwner, Written, followed, keep, remake
from .pause import Pauses, thaw
from .ranks import Given, Ranks, ranks_of
from .retry import pause
from .status import Said, holds, since

INCOMPLETE_SECONDS = 10.0  # the pods of a group are made one after the other
DEADLINE_SECONDS = 30.0  # after a time limit; Kubernetes counts an activeDeadlineSeconds from a start that comes later
GATHER_OTHERS = 3.0  # and bound together by another scheduler; times of creation are in whole seconds

Turn = tuple[PodSetPlacement, Sequence[PodObject], Given]  # a podset's places, its pods, and which goes where


@dataclass(frozen=True, slots=True)
class Life:
    means: Means
    binder: Binder
    pauses: Pauses
    losses: Losses
    short: dict[str, Said] = field(default_factory=dict)  # by key, why what is elastic does not grow
    _written: dict[str, int] = field(default_factory=dict)  # by key, the version of its owner
    _lacking: dict[str, str] = field(default_factory=dict)  # by key, what was told of a group that is not whole

    def rests(self, key: str) -> bool:
        """Whether `tend` would do nothing, as for most pods: those of others, and those that are their own Workload
        while all goes well."""
        said, pods = self.means.view.workloads.get(key), self.means.cases.pods_of.get(key, {}).values()
        if not pods or any(map(is_released, pods)):
            return False
        if said is None:
            return self.means.cases.is_strange(key)
        goes_well = (is_plain(pod) and not pod.status.is_over and not pod.metadata.is_going for pod in pods)
        return is_alone(said) and not said.status.eviction_history and all(goes_well)

    async def tend(self, case: Case) -> float | None:
        """The next thing for this workload; when to look again, if nothing happens before."""
        said, owner = case.workload, case.owner
        await bind.remove(self.means.client, filter(is_released, case.pods))
        if said is None:
            return await self._make(case)
        if is_alone(said):
            return await self._stand_alone(case, said)
        if said.status != self.means.view.stored[case.key].status:  # what its pod said so far, or its node
            await self._catch_up(case, said)
        if isinstance(owner, JobOwner | KindOwner) and owner.version() < self._written.get(case.key, 0):
            return None  # the view does not show yet that its owner was stopped or started
        self._written.pop(case.key, None)
        await self._turn_away(case)
        if said.status.is_over:
            return await self._let_go(case, said)
        if outcome := self.means.cases.outcome(case):
            return await self._end(case, outcome)
        if said.metadata.is_going:
            return await self._let_go(case, said)
        if owner is None:
            return await self._orphaned(case, said)
        if isinstance(owner, JobOwner) and owner.is_ending():
            return await owner.conclude(self.means.client)
        return await self._go_on(case, said, owner)

    async def _go_on(self, case: Case, said: WorkloadObject, owner: Owner) -> float | None:
        """One that is not over: it follows its owner, and is paused, leaves, runs or waits."""
        is_evicted = said.status.admission is not None and holds(said.status, "Evicted")
        if isinstance(owner, PodsOwner) and owner.is_deleted() and not is_evicted:
            await self.means.client.delete(ref(kinds.WORKLOADS, case.key), uid=said.metadata.uid)
            return None
        if isinstance(owner, PodsOwner) and owner.is_remade and (kept := await self._manifests(said, owner)):
            notes = {objects.MANIFESTS: kept}
            return await self.means.patch(kinds.WORKLOADS, said, {"metadata": {"annotations": notes}})
        await self._mirror(said, owner)
        if said.status.paused is not None and not holds(said.status, "Admitted"):
            return await self.pauses.tend(case, said)
        if is_evicted:
            return await self._leave(case, said, owner)
        if said.status.admission is not None and holds(said.status, "Admitted"):
            return await self._run(case, said, owner)
        return await self._wait(case, said, owner)

    async def _wait(self, case: Case, said: WorkloadObject, owner: Owner) -> float | None:
        """It is kept stopped, unless another scheduler has bound it already."""
        if (again := await self._adopt(case, said, owner)) is not None:
            return again
        if isinstance(owner, PodsOwner) and owner.is_remade and not owner.is_stopped():
            return await self._turn_out(case, said, owner)
        await self._stop(case, owner)
        if said.status.phase or not said.spec.may_run:  # of a new one the first verdict tells
            await self.means.write(case.key, lambda it: life.suspend(it.status, is_active=it.spec.may_run))
        return None

    async def _catch_up(self, case: Case, said: WorkloadObject) -> None:
        """Writes what follows from its pod or its nodes; an event says where it began again."""
        before, after = self.means.view.stored[case.key].status.eviction_history, said.status.eviction_history
        if await self.means.write(case.key, lambda it: it.status) and before != after:
            self.means.tell(case.owner, Said(Cause.NODE_LOST, conditions.BEGAN_AGAIN), is_warning=True)

    async def _stand_alone(self, case: Case, said: WorkloadObject) -> None:
        """Of a pod that is its own Workload nothing is written while all goes well, but that it was charged."""
        if not case.pods:
            if not self.means.must_charge(said):
                self.means.view.workloads.pop(case.key, None)  # it is gone, and was remembered for this alone
            return
        (pod,) = case.pods
        if said.status.is_over or (said.metadata.is_going and not holds_room(pod)):
            if objects.FINALIZER in said.metadata.finalizers and not self.means.must_charge(said):
                note = {"metadata": {"uid": pod.metadata.uid, "annotations": {objects.CHARGED: "true"}}}
                await self.means.view.caught_up(kinds.PODS, await self.means.client.patch(ref_of(pod), note))
        elif not said.metadata.is_going and pod.spec.node_name and (
            is_lost(pod.status) or not is_plain(pod) or said.status.eviction_history
        ):
            await self.remember(case.key)

    async def remember(self, key: str) -> None:
        """Makes the Workload of a pod that had none."""
        await self._make(self.means.cases.case(key))

    # Making and mirroring

    async def _make(self, case: Case) -> float | None:
        """A Workload for an owner that has none, unless it is over or told to go, or pods of a group that Fairway bound
        stand on nodes without one: those run on as used room. A single pod that its owner left is adopted."""
        owner = case.owner
        if await self._claim(case.pods) or (isinstance(owner, PodsOwner) and owner.is_deleted()):
            return None
        held = filter(holds_room, owner.pods) if isinstance(owner, PodsOwner) else ()
        if not all(is_of_others(pod) or is_its_own(pod) or is_left(pod) for pod in held):
            return None
        desired = self._desired(owner) if owner and owner.outcome() is None else None
        if owner is None or desired is None:
            return self._gathers(case.key, owner)
        self._lacking.pop(case.key, None)
        made: dict[str, Any] = {**msgspec.to_builtins(desired), "apiVersion": VERSION, "kind": "Workload"}
        created = made["metadata"].pop("creationTimestamp", None)
        submitted = self.means.cases.submitted(case.key, created, now=self.means.now())
        notes = {objects.SUBMITTED: time_text(submitted)}
        if isinstance(owner, PodsOwner) and owner.is_remade:
            notes[objects.MANIFESTS] = await keep(self.means.client, owner.pods)
        for pod in filter(is_its_own, owner.pods) if isinstance(owner, PodsOwner) else ():
            if case.key.endswith(f"/pod-{pod.metadata.name}"):  # it was this workload, which is charged under its uid
                notes[objects.BEGAN] = pod.metadata.uid
        if isinstance(owner, JobOwner) and owner.is_array():
            notes[objects.COMPLETIONS] = str(owner.job.spec.completions)
        made["metadata"] |= {"finalizers": [objects.FINALIZER], "annotations": notes}
        await self.means.client.ensure(kinds.WORKLOADS, made)
        if isinstance(owner, PodsOwner) and owner.is_stopped() and (words := conditions.contested(owner.pods)):
            self.means.tell(owner, Said("OtherScheduler", words), is_warning=True)
        await self.means.view.shown(ref(kinds.WORKLOADS, case.key), lambda seen: seen is not None)
        return None

    async def _claim(self, pods: Iterable[PodObject]) -> bool:
        """Gives pods that their owner left the label of the queue that they were bound for, and takes off that of a
        group that they were not bound with; whether there were any."""
        lacking = [(it, labels) for it in pods if is_left(it) and (labels := _lacks(it))]
        for pod, labels in lacking:
            change = {"metadata": {"uid": pod.metadata.uid, "labels": labels}}
            await self.means.view.caught_up(kinds.PODS, await self.means.client.patch(ref_of(pod), change))
        return bool(lacking)

    def _gathers(self, key: str, owner: Owner | None) -> float | None:
        """Says once what a group of pods lacks that has not become whole; when to look again."""
        if not isinstance(owner, PodsOwner) or owner.outcome() is not None or not (words := owner.lacks()):
            self._lacking.pop(key, None)
            return None
        made = (pod.metadata.creation_timestamp for pod in owner.pods)
        due = max(time(one) for one in made if one) + INCOMPLETE_SECONDS
        if self.means.now() < due:
            return due
        if self._lacking.get(key) != words:
            self._lacking[key] = words
            self.means.tell(owner, Said("GroupIncomplete", words), is_warning=True)
        return None

    async def _turn_away(self, case: Case) -> None:
        """Says once on a pod that came to a full group that it does not start: in its condition, and by an event."""
        size = len(case.owner.pods) if isinstance(case.owner, PodsOwner) else 0
        for pod in case.late:
            known, meta = condition(pod.status.conditions, "PodScheduled"), pod.metadata
            if known and known.reason == GROUP_FULL:
                continue
            words = conditions.full(group_of(meta, pod.spec), size)
            said = {"type": "PodScheduled", "status": "False", "reason": GROUP_FULL, "message": words}
            change = {"metadata": {"uid": meta.uid}, "status": {"conditions": [said]}}
            await self.means.client.patch(ref_of(pod), change, subresource="status", form=STRATEGIC)
            self.means.events.tell(
                About(kinds.PODS, meta.name, meta.uid, meta.namespace), GROUP_FULL, words, is_warning=True
            )

    async def _manifests(self, said: WorkloadObject, owner: PodsOwner) -> str:
        """Those that its bare pods are made again from, where they changed or its pods had an owner; else ""."""
        is_kept = objects.MANIFESTS in said.metadata.annotations
        return followed(said, owner.pods) if is_kept else await keep(self.means.client, owner.pods)

    async def _mirror(self, said: WorkloadObject, owner: Owner) -> None:
        """The spec follows the owner's labels and annotations; its queue and podsets only while it holds no room, but
        for the number of pods, and not while pods of a group are gone."""
        is_short = isinstance(owner, PodsOwner) and owner.least is None and bool(owner.lacks())
        desired = self._desired(dataclasses.replace(owner, least=len(owner.pods)) if is_short else owner)
        if desired is None:
            return
        spec = replace(desired.spec, user=said.spec.user)
        if said.status.paused is not None or is_short:
            spec = replace(spec, pod_sets=said.spec.pod_sets)
        if said.status.admission is not None:
            spec = replace(spec, queue=said.spec.queue, pod_sets=said.spec.pod_sets)
            if holds(said.status, "Admitted"):
                podsets = owner.resized(said.spec.pod_sets, said.status.admission.pods)
                spec = replace(spec, pod_sets=podsets)
        if patch := change(said.spec, spec):
            await self.means.patch(kinds.WORKLOADS, said, {"spec": patch})

    def _desired(self, owner: Owner) -> WorkloadObject | None:
        """What its owner says, by its name the class that its priority comes from, and what its pods request as an API
        server completes them."""
        try:
            said = owner.desired()
        except Malformed as error:
            self.means.tell(owner, Said("Malformed", str(error)), is_warning=True)
            return None
        if said is None:
            return None
        name = priority_class(said.spec, default_class(self.means.view.classes))
        spec = replace(said.spec, priority_class_name=name)
        if not isinstance(owner, PodsOwner) and (usual := self.means.view.usual(said.metadata.namespace)):
            asks = (replace(one, template=asking(one.template, usual)) for one in spec.pod_sets)
            spec = replace(spec, pod_sets=tuple(asks))
        return replace(said, spec=spec)

    async def _orphaned(self, case: Case, said: WorkloadObject) -> None:
        """Its owner is gone, or its user wrote it. Deletes the former, but no bare pod that is being made again."""
        is_between = holds(said.status, "Evicted") and said.status.admission is not None
        if is_between and not said.metadata.owner_references and objects.MANIFESTS in said.metadata.annotations:
            await remake(self.means.client, said, ())
        elif objects.SUBMITTED not in said.metadata.annotations:
            await self.means.write(case.key, self._of_nobody)
        elif await self._is_gone(said):
            await self.means.client.delete(ref(kinds.WORKLOADS, case.key), uid=said.metadata.uid)

    def _of_nobody(self, said: WorkloadObject) -> WorkloadStatus:
        """It has no pods to wait for: evicted it leaves at once."""
        status = life.leave(said.status, now=self.means.now())
        return status if status.admission else life.suspend(status, is_active=said.spec.may_run)

    async def _is_gone(self, said: WorkloadObject) -> bool:
        """Whether the server says so too: the view may not have heard of an owner that is new. A pod that is of another
        workload now owns this one no longer, nor does what lost its queue label before it held room."""
        cases, key = self.means.cases, key_of(said.metadata)
        for one in said.metadata.owner_references:
            kind = kinds.PODS if kind_of(one) == ("", "Pod") else self.means.view.watched(kind_of(one))
            if kind is None:  # its kind is defined no more
                continue
            for it in await self.means.client.list(Ref(kind, one.name, said.metadata.namespace).alone()):
                is_its = cases.key_of_pod(decode(it, PodObject)) == key if kind is kinds.PODS else not is_replica(one)
                if it["metadata"]["uid"] == one.uid and is_its and cases.is_managed(decode(it["metadata"], Metadata)):
                    return False
        return True

    async def _adopt(self, case: Case, said: WorkloadObject, owner: Owner) -> float | None:
        """Admits what another scheduler bound before its turn, on the room that it holds: to stop it would cost what it
        has done. Of a gang enough pods have to be bound, or soon to be; trials run on, however many they are. None:
        nothing of it is bound, or it is not to run; else when to look again."""
        uid, now = said.metadata.uid, self.means.now()
        bound = [pod for pod in case.pods if is_of_others(pod, uid)]
        if not bound or not said.spec.may_run or said.status.admission:
            return None
        value, held = value_of(said), self._bound(said, bound)
        counts = {one.name: one.count for one in held.podsets}
        if any(counts[one.name] < min(one.min_count, owner.wanted()) for one in value.podsets):
            late = max(time(pod.metadata.creation_timestamp or time_text(now)) for pod in case.pods) + GATHER_OTHERS
            if now < late or not (isinstance(owner, JobOwner) and owner.is_array()):
                return late if now < late else None
            await self._lessen(said, held.podsets[0].count)
        if held.pool and not self.means.facts.state.assumes(case.key):
            words = Said("Adopted", conditions.adopted(bound))
            if await self.means.write(case.key, lambda it: life.admit(it.status, held, words, now=now)):
                self.means.tell(owner, words, is_warning=True)
        self.means.wake()
        return now + SETTLE_SECONDS

    def _bound(self, said: WorkloadObject, bound: Sequence[PodObject]) -> Admission:
        """Where others bound these pods."""
        value, pool = value_of(said), self.means.facts.state.pool_of(bound[0].spec.node_name)
        empty = Admission(pool, tuple(PodSetPlacement(one.name, ()) for one in value.podsets))
        return bind.adopted(empty, value, bound, said.metadata.uid)

    async def _turn_out(self, case: Case, said: WorkloadObject, owner: PodsOwner) -> float:
        """Evicts bare pods that run before their turn from where others bound them: only so are they made again."""
        now, held = self.means.now(), self._bound(said, [pod for pod in case.pods if holds_room(pod)])
        words = Said(Cause.PODS_LOST if said.spec.may_run else Cause.SUSPENDED, conditions.contested(owner.pods) or "")

        def make(it: WorkloadObject) -> WorkloadStatus:
            if it.status.admission and holds(it.status, "Evicted"):
                return it.status
            status = it.status if it.status.admission else life.admit(it.status, held, words, now=now)
            return life.evict(status, Eviction(now, Cause(words.reason)), words)

        if held.pool and not self.means.facts.state.assumes(case.key):
            await self.means.write(case.key, make)
        return now + SETTLE_SECONDS

    async def _lessen(self, said: WorkloadObject, least: int) -> None:
        """So many pods of its one podset are enough."""
        podsets = [msgspec.to_builtins(replace(one, min_count=least)) for one in said.spec.pod_sets]
        await self.means.patch(kinds.WORKLOADS, said, {"spec": {"podSets": podsets}})

    # Running

    async def _run(self, case: Case, said: WorkloadObject, owner: Owner) -> float | None:
        """Its pods go where they are to be; one that grows waits for those who shrink for it. It is resumed when no pod
        from before it was suspended is left, bound or not: its own controller still takes those away."""
        value = value_of(said)
        placed = admission(said.status.admission or AdmissionStatus(), value)
        if owner.is_off() and (lingering := self._lingering(pod for pod in case.pods if not pod.status.is_over)):
            return min(filter(None, lingering), default=None)
        self._note_written(case.key, await owner.start(self.means.client))
        await thaw(self.means.client, case.pods)
        if not (left := self._left(case.pods, placed, value, said.metadata.uid)).is_same(placed):
            await self.losses.cut(case.key, left)
            return self.means.now() + SETTLE_SECONDS
        if (again := await self.losses.count(case, placed, owner)) is not None:
            return again
        turns = [(*each, bind.assign(*each)) for each in bind.by_podset(placed, value, case.pods)]
        if crowded := self.losses.crowded(case.key, [one for *_, given in turns for one in given]):
            await self.losses.give_way(case, bind.dropping(placed, crowded), crowded)
            return self.means.now() + SETTLE_SECONDS
        ranks = ranks_of(owner, placed, value, case.pods)
        late = [await self._bind(said, owner, ranks, turn) for turn in turns]
        await self._tell_how(case, said, owner, placed)
        return self.means.now() + SETTLE_SECONDS if any(late) else None

    def _left(self, pods: Sequence[PodObject], placed: Admission, value: Workload, uid: str) -> Admission:
        """The admission, cut to how many pods it has now; or to where another scheduler bound them."""
        left = bind.within(placed, value, pods)
        if not left.is_same(placed) or not any(is_of_others(pod, uid) for pod in pods):
            return left
        return bind.adopted(placed, value, pods, uid)

    async def _bind(self, said: WorkloadObject, owner: Owner, ranks: Ranks | None, turn: Turn) -> bool:
        """Binds those pods of a podset that may start; whether some still wait for a node that others are leaving."""
        placement, pods, given = turn
        is_up = holds(said.status, "Running")
        free = [one for one in given if not (is_up and self.means.facts.is_left(one[1].node))]
        if ranks:
            await ranks.tell(self.means.client, ranks.now(free))
        found_by = owner.found_by() if isinstance(owner, JobOwner) else ()
        await bind.take_back(self.means.client, bind.strays(placement, pods), said.metadata.name, found_by)
        chosen, notes = (ranks.chosen(free), ranks.notes(ranks.now(free))) if ranks else (free, {})
        await self.binder.bind(said, chosen, notes)
        return len(free) < len(given)

    async def _tell_how(self, case: Case, said: WorkloadObject, owner: Owner, placed: Admission) -> None:
        """Writes that it runs once all of it is up, and why it pauses or does not grow."""
        is_up, noted = holds(said.status, "Running"), said.status.reason
        if not is_up and not any(map(self._is_stale, case.pods)) and are_up(case, owner, placed):
            await self._started(case.key, said)
        words = pause(owner, case.pods, self.means.now()) or (None if noted == life.IDLE else self.short.get(case.key))
        if words or noted not in ("", life.IDLE):
            await self.means.write(case.key, lambda it: life.note(it.status, words, noted))

    def _note_written(self, key: str, owner: Written) -> None:
        """Keeps the version of an owner that was stopped or started: one seen before tells what is over."""
        if owner:
            self._written[key] = int(owner["metadata"]["resourceVersion"])

    async def _started(self, key: str, said: WorkloadObject) -> None:
        now, admitted = self.means.now(), since(said.status, "Admitted")
        if await self.means.write(key, lambda it: life.run(it.status, Said("PodsReady"), now=now)):
            self.means.metrics.started.labels(said.spec.queue).observe(now - (admitted or now))

    def _is_stale(self, pod: PodObject) -> bool:
        """Whether it is told to be ready from before its node was last down; in whole seconds, as pods are."""
        node, ready = self.means.view.nodes.get(pod.spec.node_name), since(pod.status, "Ready")
        down = downtime(node) if node else None
        return down is not None and ready is not None and ready < int(down[0])

    # Leaving

    async def _leave(self, case: Case, said: WorkloadObject, owner: Owner) -> float | None:
        """Evicted: its room is given up when no pod of it is left on a node."""
        if isinstance(owner, PodsOwner) and owner.is_remade and any(pod.spec.node_name for pod in owner.pods):
            await self._own(said, ())
        await self._stop(case, owner)
        lingering = self._lingering(filter(holds_room, case.pods))
        if lingering or not owner.is_stopped():
            return min(filter(None, lingering), default=None)
        if isinstance(owner, PodsOwner) and owner.is_remade:
            if any(pod.spec.node_name for pod in owner.pods) or not await remake(self.means.client, said, owner.pods):
                return None
            await self._own(said, owner.pods)
        self.means.cases.found(case.key)
        has_left = await self.means.write(case.key, lambda it: life.leave(it.status, now=self.means.now()))
        return None if has_left else self.means.now() + SETTLE_SECONDS  # refused: nothing else may happen to it

    async def _own(self, said: WorkloadObject, pods: Sequence[PodObject]) -> None:
        """The Workload is owned by these pods, and no others."""
        references = [OwnerReference("Pod", one.metadata.name, one.metadata.uid, "v1") for one in pods]
        if {one.uid for one in references} != {one.uid for one in said.metadata.owner_references}:
            owners = [msgspec.to_builtins(one) for one in references]
            await self.means.patch(kinds.WORKLOADS, said, {"metadata": {"ownerReferences": owners or None}})

    async def _stop(self, case: Case, owner: Owner) -> None:
        """A Job with rules for failures loses its pods first: its controller judges by their exit codes those that it
        takes away, too."""
        judged, client, name = list[PodObject](), self.means.client, case.key.partition("/")[2]
        if isinstance(owner, JobOwner) and owner.job.spec.pod_failure_policy and not owner.is_off():
            judged = list(filter(bind.stays, case.pods))
            await side_by_side(bind.release(client, pod, name, owner.found_by()) for pod in judged)
        self._note_written(case.key, await owner.stop(client))
        await side_by_side(client.delete(ref_of(pod), uid=pod.metadata.uid) for pod in judged)

    def _lingering(self, pods: Iterable[PodObject]) -> list[float | None]:
        """When each of these pods that is not gone counts as gone; None: when it is gone."""
        now = self.means.now()
        return [end for end in map(self._end_of, pods) if end is None or end > now]

    def _end_of(self, pod: PodObject) -> float | None:
        """When a pod that is going counts as gone though nobody says so: after its grace, if its node is not there."""
        leaves = pod.metadata.deletion_timestamp
        return None if self.means.view.is_ready(pod.spec.node_name) or leaves is None else time(leaves)

    # Ending

    async def _end(self, case: Case, outcome: Outcome) -> float | None:
        end, said = self._ended(case), Said(*conditions.ended(outcome, case.pods))

        def make(it: WorkloadObject) -> WorkloadStatus:
            return life.finish(served(it, now=end), said, succeeded=outcome.succeeded, now=end)

        if not await self.means.write(case.key, make):
            return self.means.now() + SETTLE_SECONDS  # refused: it may be that nothing else happens to it
        self.means.wake()
        return None

    def _ended(self, case: Case) -> float:
        """When it ended: now, or before this controller led, as its pods' containers say. A node's clock that has this
        before its start is not believed."""
        now, status = self.means.now(), case.workload.status if case.workload else WorkloadStatus()
        ends = [*(bind.ended_at(pod, now) for pod in case.pods), self.means.cases.gone.get(case.key, 0.0)]
        began, end = since(status, "Running") or since(status, "Admitted") or now, max(ends)
        return max(began, end) if int(began) <= end < self.means.election.leads_from else now

    async def _let_go(self, case: Case, said: WorkloadObject) -> float | None:
        """Over, or deleted: nothing of it runs on; it is kept until it is charged."""
        owner, due = case.owner, _left_until(said, case.owner, self.means.now())
        if owner is not None and owner.outcome() is None and due is None:
            is_its_own = any(one.uid == owner.about().uid for one in said.metadata.owner_references)
            can_fail = not isinstance(owner, PodsOwner) or said.status.admission is not None  # else pods stay gated
            fails = said.status.phase == "Failed" and is_its_own and can_fail
            await (owner.fail(self.means.client) if fails else owner.stop(self.means.client))
        lingers = said.metadata.is_going and any(map(holds_room, case.pods))
        if objects.FINALIZER in said.metadata.finalizers and not lingers and not self.means.must_charge(said):
            left = [one for one in said.metadata.finalizers if one != objects.FINALIZER]
            await self.means.patch(kinds.WORKLOADS, said, {"metadata": {"finalizers": left or None}})
            if not said.status.is_over and not _is_scaled_away(said):
                self.means.events.tell(*cancelled(said))
        return due


def _left_until(said: WorkloadObject, owner: Owner | None, now: float) -> float | None:
    """Until when Kubernetes is left to end what its own deadline ends now: a bare pod keeps its status and its log,
    and a Job its spec. None where it is not."""
    limit, began = owner.deadline() if owner else None, since(said.status, "Admitted")
    is_its_own = limit and said.spec.time_limit == duration_text(limit) and said.status.reason == Ending.TIME_LIMIT
    if not limit or began is None or not is_its_own:
        return None
    grace = max(one.template.spec.termination_grace_period_seconds for one in said.spec.pod_sets)
    due = began + limit + DEADLINE_SECONDS + grace
    return due if began + limit <= now < due else None


def _lacks(pod: PodObject) -> dict[str, str | None]:
    """The labels that tell otherwise than its binding did."""
    labels, queue = pod.metadata.labels, pod.metadata.annotations.get(objects.IN_QUEUE)
    own = {objects.QUEUE: queue} if queue and labels.get(objects.QUEUE) != queue else {}
    return {**own, **dict.fromkeys(labels.keys() & {objects.GROUP_NAME, objects.GROUP_SIZE})}


def _is_scaled_away(said: WorkloadObject) -> bool:
    """Whether its pod went since what makes it was parked: that one is listed meanwhile."""
    is_replica = objects.MANIFESTS not in said.metadata.annotations and any(
        kind_of(one) == ("", "Pod") for one in said.metadata.owner_references
    )
    return is_replica and life.is_parked(said.status)


def cancelled(said: WorkloadObject) -> tuple[About, str, str]:
    """The event that outlives a workload which was deleted before it was over: lists of what ended show it."""
    meta, spec, phase, began = said.metadata, said.spec, said.status.phase, since(said.status, "Admitted")
    rests = phase in ("Suspended", "Paused", "Parked")
    did = f"was {phase.lower()}" if rests else "waited" if began is None else "ran"
    owner = "".join(f"{one.kind}/{one.name}" for one in meta.owner_references[:1])
    ran = time_text(began) if began else ""
    notes = (objects.QUEUE, spec.queue), (objects.USER, spec.user), (OWNER, owner), (RAN_FROM, ran)
    about = About(kinds.WORKLOADS, meta.name, meta.uid, meta.namespace, notes)
    return about, objects.CANCELLED, f"cancelled while it {did}"


def is_replica(owner: OwnerReference) -> bool:
    """Whether a workload of this owner is a replica, which may go though the owner stays."""
    return kind_of(owner) in OWNERS and OWNERS[kind_of(owner)].group != ""


def are_up(case: Case, owner: Owner, placed: Admission) -> bool:
    """Every pod it is to have now is ready, or over already."""
    bound = [pod for pod in case.pods if pod.spec.node_name and not pod.metadata.is_going]
    ready = [pod for pod in bound if pod.status.is_over or holds(pod.status, "Ready")]
    wanted = min(owner.wanted(), sum(placement.count for placement in placed.podsets))
    return len(ready) == len(bound) and sum(not pod.status.is_over for pod in bound) >= wanted
