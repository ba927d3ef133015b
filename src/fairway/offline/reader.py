"""A cluster written down as Kubernetes objects → one World.

Nodes, pools, queues, priorities and reservations stand for themselves. A Workload counts as it says; a managed owner
without one counts as the Workload it would get. A pod with a node is used room, unless its Workload runs and counts
already; a pod without one belongs to its owner, or waits as a workload of its own. Of the same object twice the later
one counts. Kinds that mean nothing to a decision are passed over.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal, TypeVar

import msgspec

from fairway.api import objects, owners, queues, types
from fairway.api.accounts import used_by_day
from fairway.api.decode import cleaned, decode
from fairway.api.forms.form import Conditions
from fairway.api.ledger import owing
from fairway.api.names import SUSPENDED, called
from fairway.api.nodes import node
from fairway.api.objects import GROUP, Metadata, Part, PodObject
from fairway.api.owners import DEFAULT_QUEUE
from fairway.api.pods import Selected, Surroundings, foreign, gates, selectable, selected_by
from fairway.api.quantities import Malformed, shown, time, within
from fairway.api.types import WorkloadObject
from fairway.api.volumes import Storage, claims_of
from fairway.api.workloads import Reading, fact, kept, key_of, recent
from fairway.engine import Ended, Node, Pod, Pool, Queue, Running, Workload, World, selects

T = TypeVar("T", bound=Part)
U = TypeVar("U")
Owner = tuple[str, str, str]
"""Namespace, kind and name."""

FORMS: Mapping[tuple[str, str], type[Part]] = {
    ("", "Namespace"): objects.NamespaceObject,
    ("", "Node"): objects.NodeObject,
    ("", "Pod"): PodObject,
    ("", "PersistentVolume"): objects.VolumeObject,
    ("", "PersistentVolumeClaim"): objects.ClaimObject,
    ("storage.k8s.io", "StorageClass"): objects.StorageClassObject,
    ("storage.k8s.io", "CSINode"): objects.CsiNodeObject,
    ("storage.k8s.io", "CSIDriver"): objects.CsiDriverObject,
    ("storage.k8s.io", "CSIStorageCapacity"): objects.CapacityObject,
    ("scheduling.k8s.io", "PriorityClass"): objects.PriorityClassObject,
    ("policy", "PodDisruptionBudget"): objects.DisruptionBudgetObject,
    objects.TOPOLOGY: objects.NodeTopologyObject,
    (GROUP, "Queue"): types.QueueObject,
    (GROUP, "NodePool"): types.NodePoolObject,
    (GROUP, "Reservation"): types.ReservationObject,
    (GROUP, "Workload"): WorkloadObject,
}
NAMESPACED: tuple[type[Part], ...] = (
    PodObject, objects.ClaimObject, objects.CapacityObject, objects.DisruptionBudgetObject, WorkloadObject,
)  # fmt: skip
LONGEST_CHAIN, MOST_TIME = 8, 64
TO_COME = frozenset(("deadline", "start", "forecast", f"{GROUP}/deadline"))
OVER = frozenset(("Complete", "Completed", "Succeeded", "Failed"))


class OwnerObject(objects.Object, frozen=True):
    """An owner as far as all owners are alike."""

    status: Conditions = Conditions()


@dataclass(frozen=True, slots=True)
class Cluster:
    """Objects by kind and key. `owned`: owners, with their group and as they were written. `stands`: the key of the
    Workload that stands for an owner. `pods`: those of each Workload that are not over."""

    parts: defaultdict[type[Part], dict[str, Part]] = field(default_factory=lambda: defaultdict(dict))
    owned: dict[Owner, tuple[OwnerObject, str, object]] = field(default_factory=dict)
    stands: dict[Owner, str] = field(default_factory=dict)
    pods: defaultdict[str, list[PodObject]] = field(default_factory=lambda: defaultdict(list))

    def all(self, form: type[T]) -> dict[str, T]:
        return {key: part for key, part in self.parts[form].items() if isinstance(part, form)}

    def each(self, form: type[T], read: Callable[[T], U]) -> tuple[U, ...]:
        """What `read` makes of each object of a kind."""
        kind = next(kind for (_, kind), known in FORMS.items() if known is form)
        return tuple(within(f"{kind} {key}:", read, part) for key, part in self.all(form).items())

    def owner(self, meta: Metadata) -> Owner | None:
        """The last in the chain of owners of an object; None for one that nothing owns."""
        last: Owner | None = None
        for _ in range(LONGEST_CHAIN):
            refs = sorted(meta.owner_references, key=lambda ref: not ref.controller)
            if not refs:
                return last
            last = (meta.namespace, refs[0].kind, refs[0].name)
            if last not in self.owned:
                return last
            meta = self.owned[last][0].metadata
        return last

    def of_pod(self, pod: PodObject) -> Owner:
        """What a Workload would stand for: the pod's owner where one does, else its gang, else the pod."""
        owner, meta = self.owner(pod.metadata), pod.metadata
        if owner and self.standing(owner):
            return owner
        return meta.namespace, "Pod", owners.group_of(meta, pod.spec) or meta.name

    def standing(self, owner: Owner) -> str:
        """The key of the Workload that stands for an owner, by its references or by its name; "" for none."""
        space, kind, name = owner
        named = f"{space}/{name if kind == 'Workload' else owners.name_of(kind, name)}"
        return self.stands.get(owner) or (named if named in self.parts[WorkloadObject] else "")

    def labels(self, namespace: str) -> dict[str, str]:
        found = self.parts[objects.NamespaceObject].get(namespace)
        return found.metadata.labels if isinstance(found, objects.NamespaceObject) else {}


def read(
    manifests: Iterable[object], *, everything: bool = False, now: float | None = None, is_live: bool = False,
    has_storage: bool = True,
) -> World:
    """The World of these objects, as they are written or decoded already; raises Malformed. `everything`: pods and jobs
    count that are not managed. `is_live`: a workload with an ambiguous `after` waits instead of raising, and queue
    `default` is there only as written. Without `has_storage` claims are not known, and count for nothing."""
    said = [one if isinstance(one, Part) else cleaned(one) for one in manifests]
    cluster = Cluster()
    for one in said:
        _add(cluster, one)
    nodes, pools = _nodes(cluster), cluster.each(types.NodePoolObject, queues.pool)
    known = _workloads(cluster, everything=everything)
    around = _around(cluster, known.values(), has_storage=has_storage)
    classes = cluster.all(objects.PriorityClassObject)
    reading = Reading(queues.priorities(classes), around, queues.non_preempting(classes))
    written = cluster.parts[WorkloadObject]
    facts = [
        within(f"Workload {key}:", fact, one, reading) if key in written else _of_owner(one, reading)
        for key, one in known.items()
    ]
    halted = {key for (key, one), it in zip(known.items(), facts) if it is None and not one.spec.may_run}
    aliases = {name: keys for name, keys in _aliases(known, halted).items() if len(keys) == 1 or not is_live}
    frozen = [kept(one, reading) for key, one in known.items() if key in written]
    by_name = {one.name: one for one in nodes}
    running = [_pooled(one, by_name, pools) for one in facts if isinstance(one, Running)]
    running = [replace(one, workload=_after(one.workload, aliases)) for one in running]
    counted = {one.workload.key for one in running} | {key for key, one in known.items() if one.status.paused}
    read_already = {it.key: it for it in facts if isinstance(it, Workload) and it.paused is None}
    goes_on = {key for key, it in zip(known, facts) if isinstance(it, Workload | Running)}
    now = _newest(said) if now is None else now
    if not is_live:
        _check_reservations(cluster, {one.name for one in pools} or {"default"})
    return World(
        now=now,
        nodes=nodes,
        pools=pools,
        queues=_owing(_queues(cluster, around, is_live=is_live), cluster, goes_on, now),
        pending=tuple(_gated(_after(one, aliases), cluster) for one in facts if isinstance(one, Workload)),
        running=tuple(waiting_for(one, running) for one in running),
        pods=(*_used(cluster, around, counted), *chain.from_iterable(frozen)),
        reservations=cluster.each(types.ReservationObject, queues.reservation),
        disruptions=cluster.each(objects.DisruptionBudgetObject, queues.disruption),
        ended=tuple(one for one in facts if isinstance(one, Ended)),
        recent=recent(known.values(), reading, read_already, now=now),
    )


def _gated(one: Workload, cluster: Cluster) -> Workload:
    """With the scheduling gates of its pods."""
    found = gates(one, cluster.pods.get(one.key, ()))
    return replace(one, gates=found) if found else one


def _check_reservations(cluster: Cluster, pools: Container[str]) -> None:
    """Raises Malformed where a Reservation names a queue, pool or node that is not among the objects."""
    known: dict[str, Container[str]] = {
        "queue": cluster.all(types.QueueObject).keys() | {"default"}, "pool": pools,
        "nodes": cluster.all(objects.NodeObject).keys(),
    }  # fmt: skip
    for name, one in cluster.all(types.ReservationObject).items():
        named = [("queue", one.spec.queue), ("pool", one.spec.pool), *(("nodes", node) for node in one.spec.nodes)]
        for path, value in named:
            if value and value not in known[path]:
                raise Malformed(f"found {shown(value)}, which does not exist", f"Reservation {name}: spec.{path}")


def _of_owner(said: WorkloadObject, reading: Reading) -> Workload | Running | Ended | None:
    """What the Workload means that an owner would get; a complaint is about the owner."""
    try:
        return fact(said, reading)
    except Malformed as error:
        owner = said.metadata.owner_references[0]
        told = owners.told(owner.kind, error)
        raise Malformed(told.message, f"{owner.kind} {said.metadata.namespace}/{owner.name}: {told.field}") from None


def _add(cluster: Cluster, said: object) -> None:
    if isinstance(said, objects.Object):
        space = said.metadata.namespace
        cluster.parts[type(said)][f"{space}/{said.metadata.name}" if space else said.metadata.name] = said
        return
    if not isinstance(said, dict) or not all(isinstance(said.get(name), str) for name in ("apiVersion", "kind")):
        raise Malformed(f"found {shown(said)}; an object with apiVersion and kind is allowed")
    group, kind = said["apiVersion"].rpartition("/")[0], said["kind"]
    form = FORMS.get((group, kind)) or (OwnerObject if (group, kind) in owners.OWNERS else None)
    if form is None:
        return
    meta = said.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str) or not meta["name"]:
        raise Malformed("a name is needed", f"{kind}: metadata.name")
    space = (meta.get("namespace") or "default") if form in (*NAMESPACED, OwnerObject) else ""
    key = f"{space}/{meta['name']}" if space else meta["name"]
    said = {**said, "metadata": {**meta, "namespace": space}}
    part = within(f"{kind} {key}:", decode, said, form)
    if isinstance(part, OwnerObject):
        cluster.owned[space, kind, meta["name"]] = part, group, said
    else:
        cluster.parts[form][key] = part


def _around(cluster: Cluster, known: Iterable[WorkloadObject], *, has_storage: bool) -> Surroundings:
    kinds = (objects.ClaimObject, objects.VolumeObject, objects.StorageClassObject, objects.CsiDriverObject,
             objects.CapacityObject)  # fmt: skip
    spaces = {key.partition("/")[0] for form in NAMESPACED for key in cluster.parts[form]}
    spaces |= {space for space, _, _ in cluster.owned} | cluster.parts[objects.NamespaceObject].keys()
    pods = cluster.all(PodObject).values()
    own = {f"{pod.metadata.namespace}/{name}": objects.ClaimObject(spec=said)
           for pod in pods for name, said in claims_of(pod) if said}  # fmt: skip
    claims, *others = map(cluster.all, kinds)
    storage = Storage({**own, **claims}, *others) if has_storage else None
    labels = {space: cluster.labels(space) for space in spaces}
    limited = chain.from_iterable(one.limits() for one in cluster.all(objects.CsiNodeObject).values())
    shared = frozenset(name for name, pods in _pods_by_claim(known).items() if pods > 1)
    return Surroundings(storage, labels, frozenset(_selected(cluster, known)), frozenset(limited), shared)


def _pods_by_claim(known: Iterable[WorkloadObject]) -> Counter[str]:
    """How many pods use each claim, by "namespace/name"."""
    found = Counter[str]()
    for space, one in ((it.metadata.namespace, one) for it in known for one in it.spec.pod_sets):
        found.update({f"{space}/{name}": one.count for name, _ in claims_of(one.template)})
    return found


def _selected(cluster: Cluster, known: Iterable[WorkloadObject]) -> Iterator[Selected]:
    """The labels that selectors of pods and of PodDisruptionBudgets read."""
    templates = (one.template for said in known for one in said.spec.pod_sets)
    for one in (*cluster.all(PodObject).values(), *templates):
        yield from selected_by(one)
    for budget in cluster.all(objects.DisruptionBudgetObject).values():
        yield from selectable((budget.spec.selector or objects.LabelSelector()).requirements())


def _nodes(cluster: Cluster) -> tuple[Node, ...]:
    inside, drivers = cluster.all(objects.NodeTopologyObject), cluster.all(objects.CsiNodeObject)
    return cluster.each(
        objects.NodeObject, lambda one: node(one, inside.get(one.metadata.name), drivers.get(one.metadata.name))
    )


def _queues(cluster: Cluster, around: Surroundings, *, is_live: bool) -> tuple[Queue, ...]:
    """Those written, and `default`, which every cluster has until it is deleted."""
    found = cluster.each(types.QueueObject, lambda one: queues.queue(one, around))
    return found if is_live or any(one.name == DEFAULT_QUEUE for one in found) else (*found, Queue(DEFAULT_QUEUE))


def _owing(found: Iterable[Queue], cluster: Cluster, goes_on: Set[str], now: float) -> tuple[Queue, ...]:
    """With what stopped, and is not charged yet, in their budgets."""
    known, owed = {one.name: one for one in found}, defaultdict[str, dict[str, float]](dict)
    for said, names in queues.uncharged(cluster.all(WorkloadObject), cluster.all(types.QueueObject), goes_on):
        attained, days = said.status.attained, within("status.served.days", used_by_day, said.status)
        parts = queues.budgeted(cluster.all(types.QueueObject), said.spec.queue, attained, days)
        for name in known.keys() & names:
            if counts := known[name].counted(*parts[name], now):
                owed[name][key_of(said.metadata)] = counts
    return tuple(owing(one, owed[name], now=now) if name in owed else one for name, one in known.items())


def _workloads(cluster: Cluster, *, everything: bool) -> dict[str, WorkloadObject]:
    """Workloads by key: those written, then those that owners, pods and gangs would get."""
    known = cluster.all(WorkloadObject)
    for key, one in known.items():
        for ref in one.metadata.owner_references:
            cluster.stands[one.metadata.namespace, ref.kind, ref.name] = key
    pods = [one for one in cluster.all(PodObject).values() if not one.status.is_over]
    placed = Counter(cluster.owner(one.metadata) for one in pods if one.spec.node_name)
    for (space, kind, name), (owner, group, said) in cluster.owned.items():
        if cluster.owner(owner.metadata) in cluster.owned or cluster.standing((space, kind, name)):
            continue
        key = f"{space}/{owners.name_of(kind, name)}"
        cluster.stands[space, kind, name] = key
        if everything or owners.queue_of(owner.metadata, cluster.labels(space)):
            made = within(f"{kind} {space}/{name}:", owners.OWNERS[group, kind].workload, kind, said)
            least = owner.metadata.annotations.get(f"{GROUP}/min-count", "")
            within(f"{kind} {space}/{name}:", owners.check_least, least, made)
            if not everything and owners.is_of_others(owner.metadata, made.spec.pod_sets):
                continue
            there = placed[space, kind, name]
            for one in _each(made, owners.OWNERS[group, kind], said):
                if rest := _rest(one, owner, there):
                    known[f"{space}/{one.metadata.name}"] = rest
                there = max(0, there - sum(podset.count for podset in one.spec.pod_sets))
    waiting: dict[Owner, list[PodObject]] = {}
    for pod in pods:
        who = cluster.of_pod(pod)
        cluster.pods[cluster.standing(who) or f"{who[0]}/{owners.name_of('Pod', who[2])}"].append(pod)
        if not cluster.standing(who) and (everything or owners.queue_of(pod.metadata, cluster.labels(who[0]))):
            waiting.setdefault(who, []).append(pod)
    for (space, _, name), members in waiting.items():
        known |= _of_pods(f"{space}/{owners.name_of('Pod', name)}", members)
    return known


def _each(made: WorkloadObject, row: owners.Ownership, said: object) -> Iterator[WorkloadObject]:
    """What an owner would get: one Workload, or one for each of its replicas."""
    if not row.group:
        yield made
    for number in owners.replicas(decode(said, row.form)) if row.group else ():
        meta = msgspec.structs.replace(made.metadata, name=f"{made.metadata.name}-{number}")
        yield msgspec.structs.replace(made, metadata=meta)


def _rest(made: WorkloadObject, owner: OwnerObject, placed: int) -> WorkloadObject | None:
    """An owner's Workload, over or with the pods that have no node yet; None when all have one."""
    over = next((one for one in owner.status.conditions if one.type in OVER and one.status == "True"), None)
    if over:
        phase: Literal["Succeeded", "Failed"] = "Failed" if over.type == "Failed" else "Succeeded"
        return msgspec.structs.replace(made, status=types.WorkloadStatus(phase=phase))
    left = []
    for one in made.spec.pod_sets:
        taken = min(placed, one.count)
        placed -= taken
        least = None if one.min_count is None else min(one.min_count, one.count - taken)
        left.append(msgspec.structs.replace(one, count=one.count - taken, min_count=least))
    spec = msgspec.structs.replace(made.spec, pod_sets=tuple(left))
    return msgspec.structs.replace(made, spec=spec) if any(one.count for one in left) else None


def _of_pods(key: str, members: list[PodObject]) -> dict[str, WorkloadObject]:
    """What a pod without an owner, or a gang of such pods, would get."""
    coming = [one for one in members if not one.metadata.is_going]
    if all(one.spec.node_name for one in coming):
        return {}
    name = owners.group_of(members[0].metadata, members[0].spec)
    made = within(f"Pod {members[0].metadata.namespace}/{members[0].metadata.name}:", _gang, name, coming)
    return {key: made} if made else {}


def _gang(name: str, members: list[PodObject]) -> WorkloadObject | None:
    return owners.pod_group(name, members) if name else owners.pod(members[0])


def _used(cluster: Cluster, around: Surroundings, running: set[str]) -> Iterator[Pod]:
    """Pods with a node that no running or paused workload counts already."""
    for key, one in cluster.all(PodObject).items():
        is_counted = cluster.standing(cluster.of_pod(one)) in running
        if not is_counted and (taken := within(f"Pod {key}:", foreign, one, around)):
            yield taken


def _aliases(known: Mapping[str, WorkloadObject], halted: Container[str]) -> dict[str, list[str]]:
    """The workloads that a name in a namespace may mean; none where no workload waits for another."""
    if not any(one.spec.after for one in known.values()):
        return {}
    found: defaultdict[str, list[str]] = defaultdict(list)
    for key, one in known.items():
        refs = ((ref.kind, ref.name) for ref in one.metadata.owner_references)
        for name in called(one.metadata.name, refs):
            found[f"{one.metadata.namespace}/{name}"].append(f"{key}{SUSPENDED}" if key in halted else key)
    return found


def _after(one: Workload, aliases: Mapping[str, list[str]]) -> Workload:
    """With the keys of the workloads that its `after` names."""
    if not one.after:
        return one
    keys = []
    for name in one.after:
        meant = aliases.get(name, [name])
        if len(meant) > 1:
            message = f"found {shown(name.partition('/')[2])}, which is the name of {' and '.join(meant)}"
            raise Malformed(f"{message}; workload/NAME of one is allowed", f"Workload {one.key}: spec.after")
        keys += meant
    return replace(one, after=tuple(keys))


def _pooled(one: Running, nodes: Mapping[str, Node], pools: Iterable[Pool]) -> Running:
    """With the pool of its first node, where its admission names none."""
    if one.admission.pool:
        return one
    first = next((share.node for podset in one.admission.podsets for share in podset.nodes), "")
    labels = dict(nodes[first].labels) if first in nodes else {}
    named = (pool.name for pool in sorted(pools, key=lambda pool: pool.name) if selects(pool.selector, labels))
    return replace(one, admission=replace(one.admission, pool=next(named, "default")))


def waiting_for(one: Running, running: Iterable[Running]) -> Running:
    """A promised workload waits for those that leave for it, and for those that leave its nodes for no other."""
    if not one.is_promised:
        return one
    leaving = (other for other in running if other.is_leaving and other.workload.key != one.workload.key)
    return replace(one, waits_for=tuple(other.workload.key for other in leaving if _gives_way(other, one)))


def _gives_way(other: Running, to: Running) -> bool:
    last = other.workload.evictions[-1].beneficiary if other.workload.evictions else ""
    return last == to.workload.key or (not last and not to.admission.nodes.isdisjoint(other.admission.nodes))


def _newest(said: object) -> float:
    """The newest time in what was read of what has happened, not of what is to come."""
    texts: set[str] = set()
    left = [said]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left += [value for key, value in one.items() if key not in TO_COME]
        elif isinstance(one, list):
            left += one
        elif isinstance(one, str) and one[4:5] == "-" and len(one) < MOST_TIME:
            texts.add(one)
    return max(map(_moment, texts), default=0.0)


def _moment(text: str) -> float:
    try:
        return time(text)
    except Malformed:
        return 0.0
