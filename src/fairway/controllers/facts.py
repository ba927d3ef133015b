"""Objects → facts for the engine's State.

What a workload means depends on its Workload, its owner and its pods together, so whatever changes marks the workload
stale, and `settle` tells all stale ones before a snapshot is taken. A workload whose owner is over is over, whatever
its Workload says yet, and so is a Job all of whose pods have succeeded: room is free the moment the pods are gone. A
pod on a node that no running workload accounts for takes its room as a pod of others does, so that what lingers is
never given twice. Pods that a workload loses by shrinking leave like a workload of their own, from the plan that says
so until the last is gone: who gets their room waits for them. So do those that a workload leaves behind when it is
over: they end within their grace, and what is kept for others counts on that. What cannot be read is told to nobody and
logged. That a workload is as it was assumed to be is no news: it is noted in `is_shown`, for it says when the workload
was admitted, and so when it will end.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

from fairway.api import nodes, pods, queues, workloads
from fairway.api.alone import is_alone
from fairway.api.names import PARTING
from fairway.api.objects import (
    FINISHED,
    TOPOLOGY,
    DisruptionBudgetObject,
    Object,
    PodObject,
    PodTemplate,
    VolumeObject,
)
from fairway.api.owners import GROUPS, OWNERS
from fairway.api.quantities import Malformed
from fairway.api.types import WorkloadObject
from fairway.api.volumes import claims_of
from fairway.api.workloads import key_of
from fairway.engine import Admission, Ended, Fact, Gone, PodSetPlacement, Running, State, Workload
from fairway.kube import kinds
from fairway.kube.kinds import Kind

from .bind import by_podset, holds_room, is_of_others, less, packed, place_of, strays
from .cases import Cases, group_kind
from .names import Names
from .outage import Outage
from .owner import JobOwner
from .status import since
from .view import View

log = logging.getLogger(__name__)
T = TypeVar("T")
MOST_KNOWN = 4_096  # podsets that are remembered
KINDS: dict[Kind, tuple[str, Callable[..., Fact]]] = {
    kinds.NODE_POOLS: ("Pool", queues.pool),
    kinds.RESERVATIONS: ("Reservation", queues.reservation),
    kinds.DISRUPTION_BUDGETS: ("Disruption", queues.disruption),
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A workload whose plan was dropped backs off."""

    until: float
    why: str
    times: int = 1


class Facts:
    def __init__(self, view: View, cases: Cases, state: State) -> None:
        self.view, self.cases, self.state, self.names = view, cases, state, Names()
        self.outage, self.refusals = Outage(), dict[str, Refusal]()
        self.promises: dict[str, tuple[Admission, tuple[str, ...]]] = {}
        self.malformed: dict[str, str] = {}
        self._stale: set[str] = set()
        self._reading = workloads.Reading()
        self._selected: set[pods.Selected] = set()  # generated labels that selectors read
        self._limited: set[str] = set()  # resources of volumes that some node attaches only so many of
        self._claimants: defaultdict[str, set[str]] = defaultdict(set)  # workloads by the claims that they use
        self._shared: set[str] = set()  # claims that several pods use
        self._queues_stale = self._claims_stale = False
        self._is_news = True
        self.is_shown = False
        self._told: dict[tuple[str, str], Fact] = {}
        self._foreign: defaultdict[str, set[str]] = defaultdict(set)
        self._parting: dict[str, Running] = {}  # by workload, what it loses by shrinking, until it is gone
        self._shrinks: dict[str, Admission] = {}  # what is to be left, until the Workload says so

    def note(self, kind: Kind, old: Object | None, new: Object | None) -> None:
        """The view told of a change."""
        seen = new or old
        assert seen is not None
        key = key_of(seen.metadata)
        if kind in (kinds.NODES, kinds.CSI_NODES) or group_kind(kind) == TOPOLOGY:
            self._note_node(key)
        elif kind in KINDS:
            name, read = KINDS[kind]
            self._tell(name, key, self._read(key, read, new) if new else None)
            if isinstance(seen, DisruptionBudgetObject) and seen.spec.selector:
                self._select(pods.selectable(seen.spec.selector.requirements()))
        elif group_kind(kind) in OWNERS or group_kind(kind) in GROUPS:
            self._stale.update(self.cases.moved(kind, seen))
        elif kind in (*kinds.STORAGE, *kinds.CSI):
            self._note_storage(kind, key, old, new)
        elif kind == kinds.WORKLOADS:
            self._stale.update({key}, self.names.note(key, old, new))
            self._select(*(pods.selected_by(one.template) for one in seen.spec.pod_sets))
            for one in seen.spec.pod_sets:
                self._claim(key, one.template, one.count)
        else:  # a queue's namespaces, a workload's priority
            self._queues_stale = True
            self._stale.update(self.view.workloads if kind != kinds.QUEUES else ())
        if kind == kinds.QUEUES and new is None:
            self._tell("Queue", key, None)

    def _note_node(self, key: str) -> None:
        """Tells of a node, with its inside, and with what its CSINode limits; once a driver is limited somewhere, its
        volumes count."""
        said, drivers = self.view.nodes.get(key), self.view.csi_nodes.get(key)
        node = self._read(key, nodes.node, said, self.view.topology(key), drivers) if said else None
        self._tell("Node", key, self.outage.note(key, node))
        if new := (drivers.limits().keys() if drivers else set()) - self._limited:
            self._limited |= new
            self._stale.update(*self._claimants.values())

    def note_pod(self, key: str, seen: PodObject) -> None:
        """A pod of the workload changed."""
        self._stale.add(key)
        self._select(pods.selected_by(seen))
        self._claim(key, seen)

    def _claim(self, key: str, pod: PodTemplate | PodObject, count: int = 1) -> None:
        """Notes which claims a workload uses, by so many pods; what uses one that others use, too, is read anew."""
        for claim in (f"{key.partition('/')[0]}/{name}" for name, _ in claims_of(pod)):
            (claimants := self._claimants[claim]).add(key)
            if claim not in self._shared and max(count, len(claimants)) > 1:
                self._shared.add(claim)
                self._stale |= claimants

    def _note_storage(self, kind: Kind, key: str, *states: Object | None) -> None:
        """Reads anew what uses a claim that changed, or whose volume did. What was or is free may have been meant for
        any that is not bound, and so may a class, or what its driver makes."""
        meant = [one.spec.claim_ref for one in states if isinstance(one, VolumeObject)]
        claims = [f"{one.namespace}/{one.name}" for one in meant if one.name] if meant else [key]
        is_for_all = kind not in (kinds.CLAIMS, kinds.VOLUMES) or not all(one.name for one in meant)
        self._claims_stale |= is_for_all
        if kind == kinds.CAPACITIES:
            self.view.storage.sizes.clear()
        self._stale.update(*(self._claimants.get(claim, ()) for claim in claims))
        self._reading = workloads.Reading()  # podsets that were read may mean something else now

    def _is_open(self, claim: str) -> bool:
        said = self.view.storage.claims.get(claim)
        return said is None or said.status.phase != "Bound"

    def _select(self, *found: Iterable[pods.Selected]) -> None:
        """Read anew the pods with generated labels that no selector read before."""
        new = frozenset(chain(*found)) - self._selected
        if new:
            self._selected |= new
            pods_of = self.cases.pods_of.items()
            known: list[tuple[str, Object]] = [(key, one) for key, own in pods_of for one in own.values()]
            known += [(key, one.template) for key, said in self.view.workloads.items() for one in said.spec.pod_sets]
            self._stale.update(key for key, one in known if pods.carries(one.metadata.labels, new))

    def settle(self, now: float) -> bool:
        """Tells the State all that changed; whether anything did that matters to a decision."""
        reading = self.reading()
        for name in sorted(self.outage.turned(now)):
            self._tell("Node", name, self.outage.told(name))
        if self._queues_stale:
            self._queues_stale = False
            for key, queue in self.view.queues.items():
                if fact := self._read(key, queues.queue, queue, reading.around):
                    self._tell("Queue", key, fact)
        if self._claims_stale:
            self._claims_stale = False
            self._stale.update(*(self._claimants[claim] for claim in filter(self._is_open, self._claimants)))
        stale, self._stale = self._stale, set()
        for key in sorted(stale):
            self._settle(key, reading)
        is_news, self._is_news = self._is_news, False
        return is_news

    def _tell(self, kind: str, key: str, fact: Fact | None) -> None:
        """One fact, if it is another than was told last, or something is assumed: what was assumed may have been done
        and undone since."""
        was_assumed = kind == "Workload" and self.state.assumes(key)
        if fact == self._told.get((kind, key)) and not was_assumed:
            return
        self.state.observe(fact or Gone(kind, key))
        if was_assumed and (self.state.assumes(key) or isinstance(fact, Running)):
            self.is_shown = True
        else:
            self._is_news = True
        if fact is None:
            self._told.pop((kind, key), None)
        else:
            self._told[kind, key] = fact

    def forget(self, key: str) -> None:
        """What was assumed of it did not happen; whoever was to have its room is decided anew."""
        leaving = {key, key + PARTING}
        waiting = [other for other, (_, after) in self.promises.items() if not leaving.isdisjoint(after)]
        for one in (key, *waiting):
            self.promises.pop(one, None)
            self._shrinks.pop(one, None)
            self.state.forget(one)
            self._stale.add(one)
        self._is_news = True

    def shrink(self, one: Running, rest: Admission) -> None:
        """A plan takes some of its places; its assumption stands."""
        self._shrinks[one.workload.key] = rest
        self._part(one, less(one.admission, rest))

    def is_left(self, node: str) -> bool:
        """Whether somebody who shrinks still has pods there that go."""
        return any(node in _nodes_of(fact) for fact in self._parting.values())

    def is_crowded(self, node: str, key: str) -> bool:
        """Whether another scheduler took room there that this workload was given: the kubelet would refuse its pods."""
        return self.state.is_overdrawn(node, key) and not self.is_left(node)

    def refuse(self, key: str, refusal: Refusal) -> None:
        self.refusals[key] = refusal
        self._stale.add(key)
        self._is_news = True

    def reading(self) -> workloads.Reading:
        spaces = {name: it.metadata.labels for name, it in self.view.namespaces.items()}
        around = pods.Surroundings(self.view.storage, spaces, frozenset(self._selected), frozenset(self._limited),
                                   frozenset(self._shared))
        known = self._reading.known if self._reading.around == around and len(self._reading.known) < MOST_KNOWN else {}
        classes = self.view.classes
        self._reading = workloads.Reading(queues.priorities(classes), around, queues.non_preempting(classes), known)
        return self._reading

    def _settle(self, key: str, reading: workloads.Reading) -> None:
        said = self.view.workloads.get(key)
        fact = self._read(key, self._fact, key, said, reading) if said else None
        if fact is None:
            self.promises.pop(key, None)
            self.refusals.pop(key, None)
        parting = self._settle_parting(key, fact, said)
        held = _nodes_of(fact) if isinstance(fact, Running) else frozenset()
        before, now = self._foreign.pop(key, set()), {}
        pause = self._read(key, workloads.pause, said) if said else None
        for pod in self._pods(key):
            if holds_room(pod) and pod.spec.node_name not in held and pod not in parting:
                name = key_of(pod.metadata)
                if other := self._read(name, pods.foreign, pod, reading.around):
                    now[name] = replace(other, pause=pause) if pause else other
        for name in before | now.keys():
            self._tell("Pod", name, now.get(name))
        if now:
            self._foreign[key] = set(now)
        self._tell("Workload", key, fact)

    def _settle_parting(self, key: str, fact: Fact | None, said: WorkloadObject | None) -> list[PodObject]:
        """The pods of a running workload that have no place in it, told anew once its admission is what was planned; of
        one that is over all that are on nodes yet. A pod that is its own Workload is in its place."""
        if isinstance(fact, Ended) and (left := self._left_behind(key)):
            self._shrinks.pop(key, None)
            self._part(left, left.admission.podsets)
            return [pod for pod in self._pods(key) if holds_room(pod)]
        is_settled = isinstance(fact, Running) and not fact.is_leaving and not fact.is_promised
        if not isinstance(fact, Running) or not is_settled or (said and is_alone(said)):
            self._shrinks.pop(key, None)
            self._parting.pop(key, None)
            self._tell("Workload", key + PARTING, None)
            return []
        if not fact.admission.is_same(self._shrinks.get(key, fact.admission)):
            return []
        self._shrinks.pop(key, None)
        pods = self._pods(key)
        leaving = [(one, strays(one, own)) for one, own in by_podset(fact.admission, fact.workload, pods)]
        lost = [packed(one.name, map(place_of, own)) for one, own in leaving if own]
        self._part(fact, lost)
        return [pod for _, own in leaving for pod in own]

    def _left_behind(self, key: str) -> Running | None:
        """What pods of a workload that is over hold yet; None where there are none."""
        said, pods = self.view.workloads.get(key), [it for it in self._pods(key) if holds_room(it)]
        admission = said.status.admission if said and pods else None
        value = self._read(key, workloads.workload, said, self._reading) if admission else None
        if said is None or value is None:
            return None
        one = workloads.running(said, value)
        left = [packed(it.name, map(place_of, own)) for it, own in by_podset(one.admission, value, pods) if own]
        there, ended = Admission(one.admission.pool, tuple(left)), since(said.status, FINISHED)
        return replace(one, admission=there, is_promised=False, moves_to=None, leaving_since=ended)

    def _pods(self, key: str) -> tuple[PodObject, ...]:
        return tuple(self.cases.pods_of.get(key, {}).values())

    def _part(self, one: Running, placements: Sequence[PodSetPlacement]) -> None:
        """These places of a workload leave."""
        key = one.workload.key + PARTING
        gone = Admission(one.admission.pool, tuple(placements))
        self._parting.pop(one.workload.key, None)
        if placements:
            workload = replace(one.workload, key=key, attained=0.0)  # what these used counts with the workload itself
            leaving = replace(one, workload=workload, admission=gone, is_leaving=True, admitted_at=None)
            self._parting[one.workload.key] = leaving
        self._tell("Workload", key, self._parting.get(one.workload.key))

    def _fact(self, key: str, said: WorkloadObject, reading: workloads.Reading) -> Fact | None:
        if not is_alone(said):
            case = self.cases.case(key)
            outcome = case.owner.outcome() if case.owner else None
            heard = [it for it in case.pods if not it.metadata.is_going or self.view.is_ready(it.spec.node_name)]
            is_done = isinstance(case.owner, JobOwner) and case.owner.is_done(heard)  # a lost node tells nothing more
            if (outcome or is_done) and not said.metadata.is_going:
                return Ended(key, outcome.succeeded if outcome else True)
        fact = workloads.fact(said, reading)
        if isinstance(fact, Running):
            return self._standing(key, fact)
        if not isinstance(fact, Workload):
            return fact
        return None if fact.is_active and self._is_bound(key, said) else self._waiting(key, fact)

    def _is_bound(self, key: str, said: WorkloadObject) -> bool:
        """Whether another scheduler bound pods of what waits: it is adopted or stopped before it is decided."""
        theirs = (it for it in self._pods(key) if is_of_others(it, said.metadata.uid))
        is_out = not (said.status.admission or said.status.paused)
        return is_out and any(it.spec.node_name in self.view.nodes for it in theirs)

    def _standing(self, key: str, fact: Running) -> Running | Workload:
        """A promise that this process did not make is none: who leaves for it is not known, so it is decided anew."""
        if not fact.is_promised or fact.is_leaving:
            self.promises.pop(key, None)
            return replace(fact, lost_since=self.cases.lost_since.get(key)) if fact.lost else fact
        promised, after = self.promises.get(key, (None, ()))
        is_known = fact.admission.is_same(promised)
        return replace(fact, waits_for=after) if is_known else self._waiting(key, fact.workload)

    def _waiting(self, key: str, fact: Workload) -> Workload:
        gates = pods.gates(fact, self._pods(key))
        if gates or fact.after:
            fact = replace(fact, after=tuple(self.names.meant(one, key) for one in fact.after), gates=gates)
        if refusal := self.refusals.get(key):
            return replace(fact, backs_off_until=max(refusal.until, fact.backs_off_until or 0.0), refused=refusal.why)
        return fact

    def _read(self, key: str, read: Callable[..., T], *said: object) -> T | None:
        try:
            fact = read(*said)
        except Malformed as error:
            if self.malformed.get(key) != str(error):
                log.warning("%s cannot be read: %s", key, error)
            self.malformed[key] = str(error)
            return None
        self.malformed.pop(key, None)
        return fact


def _nodes_of(fact: Running) -> frozenset[str]:
    return frozenset(fact.admission.nodes | (fact.moves_to.nodes if fact.moves_to else set()))
