"""What PersistentVolumeClaims mean for placement, as kube-scheduler reads them.

A claim that has its volume binds its pods to the nodes that reach it: by the volume's node affinity, and by the zones
in its labels. A claim that waits for its first consumer binds them to where a free volume fits it or its class makes
one, large enough where its driver measures that; the node that was selected for it, if one was. Any other is unready:
no pod can use it. A claim that a pod makes for itself is named after the pod; in a template it has no name yet and is
read from what it says. A driver may limit how many volumes a node attaches: each claim counts as one volume.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import chain, product
from math import prod

from fairway import engine
from fairway.engine import Reason, selects

from . import objects
from .figures import number
from .quantities import parse

SELECTED_NODE, COMPLETED = "volume.kubernetes.io/selected-node", "pv.kubernetes.io/bind-completed"
NO_PROVISIONER, STORAGE, LATER = "kubernetes.io/no-provisioner", "storage", "WaitForFirstConsumer"
NAME_FIELD = "metadata.name"
BOUND, FREE = ("", "Bound"), ("", "Available")  # phases; what was written by hand has none
ZONES = (
    "topology.kubernetes.io/zone", "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
)  # fmt: skip
MOST_WAYS = 256  # in which claims of a pod are given volumes; of more they are not told apart
Reach = tuple[engine.Term, ...]


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """What a claim asks of a pod's node. `reach`: terms of each of which one must hold; `unready`: the Reason for which
    no pod can use it yet, `lacks`: its figures; `is_exclusive`: ReadWriteOncePod; `attaches`: the resource of which its
    volume is one."""

    reach: tuple[Reach, ...] = ()
    unready: str = ""
    lacks: str = ""
    is_exclusive: bool = False
    attaches: str = ""


MISSING = VolumeClaim(unready=Reason.CLAIM_MISSING)


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """Claims and capacities by "namespace/name"; the others by name. They may change below; equal is only the same.
    `sizes`: how large each class can make volumes and where, as read; to be cleared when a capacity changes."""

    claims: Mapping[str, objects.ClaimObject] = field(default_factory=dict)
    volumes: Mapping[str, objects.VolumeObject] = field(default_factory=dict)
    classes: Mapping[str, objects.StorageClassObject] = field(default_factory=dict)
    drivers: Mapping[str, objects.CsiDriverObject] = field(default_factory=dict)
    capacities: Mapping[str, objects.CapacityObject] = field(default_factory=dict)
    sizes: dict[str, list[tuple[int, engine.Selector]]] = field(default_factory=dict, init=False)

    def of(self, template: objects.PodTemplate, namespace: str) -> Iterator[tuple[str, VolumeClaim]]:
        """The claims that a pod, or pods of a template, use, by name."""
        for name, said in self._used(template, namespace):
            yield name, self._meaning(said) if said else MISSING

    def ties(self, template: objects.PodTemplate, namespace: str, shared: Set[str]) -> tuple[str, tuple[str, ...]]:
        """The first claim of a pod that others of `shared` use, too, whose volume may yet come to be in one of several
        places, and the node labels in which those differ: pods that use it must agree in them. Else ("", ())."""
        named = ((name, said) for name, said in self._used(template, namespace) if f"{namespace}/{name}" in shared)
        found = ((name, self._tied(said)) for name, said in named if said and said.metadata.name and self.waits(said))
        return next((one for one in found if one[1]), ("", ()))

    def _tied(self, said: objects.ClaimObject) -> tuple[str, ...]:
        """The labels of which a node has one value, and its volume may be at another."""
        values, places = defaultdict[str, set[str]](set), self._places(said)
        is_open = all(places) and SELECTED_NODE not in said.metadata.annotations
        for term in chain(*places) if is_open else ():
            for one in term.expressions:
                values[one.key].update(one.values if one.operator == "In" else ())
        return tuple(sorted(key for key, those in values.items() if len(those) > 1))

    def apart(self, template: objects.PodTemplate, namespace: str) -> tuple[Reach, ...]:
        """What holds of the nodes where each of a pod's claims gets a volume of its own, if some want the same."""
        waiting = [one for _, one in self._used(template, namespace) if one and self.waits(one)]
        ways = [self._ways(one) for one in waiting]
        named = Counter(name for options in ways for name in {name for name, _ in options if name})
        if max(named.values(), default=0) < 2 or prod(map(len, ways)) > MOST_WAYS:
            return ()
        found = list[engine.Term]()
        for way in product(*ways):
            names = [name for name, _ in way if name]
            bounds = [reach for _, reach in way if reach]
            if len(set(names)) == len(names):
                if not bounds:
                    return ()
                found += map(_all_of, product(*bounds))
        return (tuple(found) or (engine.Term(),),)

    def _ways(self, said: objects.ClaimObject) -> list[tuple[str, Reach]]:
        """The volumes that a claim can get, by name and where; a volume made for it has no name."""
        places = self._places(said)
        free = [] if SELECTED_NODE in said.metadata.annotations else self.fitting(said)
        return [*zip([one.metadata.name for one in free], places), *(("", it) for it in places[len(free) :])]

    def _used(
        self, template: objects.PodTemplate, namespace: str
    ) -> Iterator[tuple[str, objects.ClaimObject | None]]:
        for name, inline in claims_of(template):
            if inline and not template.metadata.name:
                yield name, objects.ClaimObject(spec=inline)
            else:
                yield name, self.claims.get(f"{namespace}/{name}")

    def _meaning(self, said: objects.ClaimObject) -> VolumeClaim:
        volume, kind = self.volumes.get(said.spec.volume_name), self.classes.get(said.spec.storage_class_name)
        driver = volume.spec.csi.driver if volume else kind.provisioner if kind else ""
        is_exclusive = "ReadWriteOncePod" in said.spec.access_modes
        is_shared = any(mode.endswith("Many") for mode in said.spec.access_modes)
        found = VolumeClaim(is_exclusive=is_exclusive, attaches="" if is_shared else objects.ATTACHED + driver)
        if said.metadata.is_going:
            return replace(found, unready=Reason.CLAIM_MISSING)
        is_completed = said.status.phase == "Pending" and COMPLETED in said.metadata.annotations
        if volume is not None and (said.status.phase in BOUND or is_completed):
            return replace(found, reach=tuple(_bounds(volume)))
        if not (places := self._places(said)):
            return replace(found, unready=Reason.CLAIM_UNBOUND, lacks=self._lacks(said))
        reach = (tuple(chain(*places)),) if all(places) else ()
        if node := said.metadata.annotations.get(SELECTED_NODE):
            reach = (*reach, (engine.Term(fields=(engine.Expression(NAME_FIELD, "In", (node,)),)),))
        return replace(found, reach=reach)

    def waits(self, said: objects.ClaimObject) -> bool:
        """Whether it gets its volume when the first pod that uses it is placed."""
        kind = self.classes.get(said.spec.storage_class_name)
        return not said.spec.volume_name and kind is not None and kind.volume_binding_mode == LATER

    def _places(self, said: objects.ClaimObject) -> list[Reach]:
        """Where it can get a volume, each by terms of which one must hold; by none: anywhere. Once a node was selected,
        its class makes the volume."""
        if not self.waits(said):
            return []
        free = () if SELECTED_NODE in said.metadata.annotations else self.fitting(said)
        found = [tuple(map(node_term, one.spec.node_affinity.required.node_selector_terms)) for one in free]
        return [*found, *self._made(said)] if self.is_made(said) else found

    def _made(self, said: objects.ClaimObject) -> list[Reach]:
        """Where its class makes a volume of its size; nowhere: empty."""
        within = tuple(map(_topology_term, self.classes[said.spec.storage_class_name].allowed_topologies))
        if not self._is_measured(said):
            return [within]
        spots = [nodes for size, nodes in self._sizes(said) if size >= _size(said.spec.resources.requests)]
        if not spots or () in spots:
            return [within] if spots else []
        return [tuple(engine.Term(one.expressions + it) for one in within or (engine.Term(),) for it in _joined(spots))]

    def _is_measured(self, said: objects.ClaimObject) -> bool:
        """Whether its class can make volumes of a limited size alone."""
        kind = self.classes.get(said.spec.storage_class_name)
        driver = self.drivers.get(kind.provisioner) if kind and self.waits(said) else None
        has_sizes = driver is not None and driver.spec.storage_capacity and STORAGE in said.spec.resources.requests
        return has_sizes and SELECTED_NODE not in said.metadata.annotations

    def _sizes(self, said: objects.ClaimObject) -> list[tuple[int, engine.Selector]]:
        """How large its class can make a volume, and on which nodes."""
        name = said.spec.storage_class_name
        if name not in self.sizes:
            self.sizes[name] = [
                (parse(one.capacity if one.maximum_volume_size is None else one.maximum_volume_size, engine.MEMORY),
                 one.node_topology.requirements())
                for one in self.capacities.values()
                if one.storage_class_name == name and one.node_topology is not None
            ]  # fmt: skip
        return self.sizes[name]

    def _lacks(self, said: objects.ClaimObject) -> str:
        """How much storage it asks for, and the most that there is in one place."""
        if not self._is_measured(said):
            return ""
        name, most = said.spec.storage_class_name, max((size for size, _ in self._sizes(said)), default=None)
        asks = f", which asks for {number(_size(said.spec.resources.requests), STORAGE)}"
        if most is None:
            return f"{asks}; no CSIStorageCapacity of class {name} is of any nodes"
        return f"{asks}; class {name} has room for {number(most, STORAGE)} at most"

    def is_made(self, said: objects.ClaimObject) -> bool:
        """Whether its class makes volumes."""
        kind = self.classes.get(said.spec.storage_class_name)
        return kind is not None and kind.provisioner != NO_PROVISIONER

    def fitting(self, said: objects.ClaimObject) -> list[objects.VolumeObject]:
        """The free volumes that would do for it, the smallest first; the one that is meant for it, if one is."""
        spec, meta = said.spec, said.metadata
        alike = [one for one in self.volumes.values() if not one.metadata.is_going and one.is_like(spec)]
        large = [one for one in alike if _size(one.spec.capacity) >= _size(spec.resources.requests)]
        own = [one for one in large if one.spec.claim_ref.means(meta)]
        free = [one for one in large if not one.spec.claim_ref.name and one.status.phase in FREE
                and set(spec.access_modes) <= set(one.spec.access_modes)
                and selects(spec.selector.requirements(), one.metadata.labels)]  # fmt: skip
        return own or sorted(free, key=lambda one: (_size(one.spec.capacity), one.metadata.name))


def claims_of(template: objects.PodTemplate | objects.PodObject) -> Iterator[tuple[str, objects.ClaimSpec | None]]:
    """The names of the claims that a pod uses; what one says that the pod makes for itself."""
    for volume in template.spec.volumes:
        if name := volume.persistent_volume_claim.claim_name:
            yield name, None
        elif volume.ephemeral is not None:
            yield f"{template.metadata.name}-{volume.name}", volume.ephemeral.volume_claim_template.spec


def reaches(volume: objects.VolumeObject, node: str, labels: Mapping[str, str]) -> bool:
    """Whether its node affinity holds on a node."""
    terms = volume.spec.node_affinity.required.node_selector_terms
    named = {NAME_FIELD: node}
    return not terms or any(
        selects(one.match_expressions, labels) and selects(one.match_fields, named)
        for one in terms if one.match_expressions or one.match_fields
    )  # fmt: skip


def _bounds(volume: objects.VolumeObject) -> Iterator[Reach]:
    """What holds of the nodes that reach a volume."""
    affinity, labels = volume.spec.node_affinity.required, volume.metadata.labels
    if affinity.node_selector_terms:
        yield terms(affinity)
    nowhere = engine.Term(tuple(engine.Expression(key, "DoesNotExist") for key in ZONES))
    for key in ZONES:
        if value := labels.get(key):  # a node without any zone is in all of them
            within = engine.Expression(key, "In", tuple(value.split("__")))
            yield engine.Term((within,)), nowhere


def terms(said: objects.NodeSelector) -> Reach:
    """Terms of a node selector, of which one must hold; a selector without terms selects nothing."""
    return tuple(map(node_term, said.node_selector_terms)) or (engine.Term(),)


def node_term(one: objects.NodeTerm) -> engine.Term:
    return engine.Term(one.match_expressions, one.match_fields)


def _all_of(parts: tuple[engine.Term, ...]) -> engine.Term:
    """Holds where all of these do."""
    return engine.Term(sum((one.expressions for one in parts), ()), sum((one.fields for one in parts), ()))


def _topology_term(one: objects.TopologyTerm) -> engine.Term:
    return engine.Term(tuple(engine.Expression(it.key, "In", it.values) for it in one.match_label_expressions))


def _joined(spots: Iterable[engine.Selector]) -> Iterator[engine.Selector]:
    """The same nodes in fewer selectors: those that differ in the values of one label alone are merged."""
    left = [dict.fromkeys(spots)]
    left += [_merged(left[0], at) for at in range(max(map(len, left[0]), default=0))]
    yield from min(left, key=len)


def _merged(spots: Iterable[engine.Selector], at: int) -> dict[engine.Selector, None]:
    """The selectors; of those that differ in the values of the label at one place alone, one with all values."""
    known, others = defaultdict[tuple[engine.Selector, str, engine.Selector], set[str]](set), list[engine.Selector]()
    for spot in spots:
        if at < len(spot) and spot[at].operator == "In":
            known[spot[:at], spot[at].key, spot[at + 1 :]].update(spot[at].values)
        else:
            others.append(spot)
    merged = [(*a, engine.Expression(key, "In", tuple(sorted(it))), *b) for (a, key, b), it in known.items()]
    return dict.fromkeys((*others, *merged))


def _size(amounts: Mapping[str, str | int | float]) -> int:
    return parse(amounts[STORAGE], engine.MEMORY) if STORAGE in amounts else 0
