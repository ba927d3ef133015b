"""A pod, or the template of one → the PodClass that placement reads; pods alike give equal values.

Requests are Kubernetes' sum: containers and sidecars together, or the largest init container with the sidecars started
before it, plus overhead; a missing request is the limit. Constraints keep their Kubernetes meaning. Labels that
controllers generate (a job's name, a template's hash) make no class of their own unless the terms of some pod select
by them. What namespace selectors, claims and other pods' terms mean depends on other objects: the `Surroundings`.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import floor

import msgspec

from fairway import engine
from fairway.engine import selects

from . import objects
from .names import name_of
from .quantities import LARGEST, Malformed, Quantity, exact, format, parse, shown, within
from .volumes import NAME_FIELD, Storage, VolumeClaim, node_term, terms

GENERATED = (
    "batch.kubernetes.io/", "controller-uid", "job-name", "pod-template-hash", "controller-revision-hash",
    "statefulset.kubernetes.io/", "apps.kubernetes.io/", "jobset.sigs.k8s.io/", "training.kubeflow.org/",
    "trainer.kubeflow.org/", "ray.io/", "leaderworkerset.sigs.k8s.io/", "volcano.sh/", "sparkoperator.k8s.io/",
    "workload.codeflare.dev/", "spark-role", "spark-app-selector", "spark-exec-id", "notebook-name",
)  # fmt: skip
NOBODY: engine.Selector = (engine.Expression("", "In"),)
"""What an absent selector selects, where an empty one selects everybody."""
REJECTED = ("NodeAffinity", "NodePorts", "NodeShutdown", "TopologyAffinityError", "UnexpectedAdmissionError")
LOST = (objects.LOST_POD, "NodeLost", "Evicted", "Preempting", "Shutdown", *REJECTED)
"""Reasons of a failed pod: its kubelet would not run it, as with OutOfcpu; its program did not fail."""
INCOMPLETE = "fairway.dev/incomplete"
"""Counts as a gate where pods of a group are gone."""
Labels = Mapping[str, str]
Selected = tuple[str, str | None]
"""A generated label by which some pod selects others: key and value; None: any value."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Claims and volumes, None where they are not known; labels of namespaces; generated labels that selectors read;
    resources of volumes of which some node attaches a limited number; claims that several pods use."""

    storage: Storage | None = None
    namespaces: Mapping[str, Labels] = field(default_factory=dict)
    selected: frozenset[Selected] = frozenset()
    limited: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()

    def labels(self, namespace: str) -> dict[str, str]:
        return {objects.NAMESPACE_NAME: namespace, **self.namespaces.get(namespace, {})}


MOST_SPREADS, MOST_POD_TERMS = 64, 256  # of a pod: each is asked of every node at each decision
ALONE, NO_AFFINITY = Surroundings(), objects.Affinity()


def pod_class(template: objects.PodTemplate, namespace: str, around: Surroundings = ALONE) -> engine.PodClass:
    """What placement reads of a pod of `template` in `namespace`."""
    spec, meta = template.spec, template.metadata
    fraction, memory = within("metadata.annotations", _part_of_device, meta.annotations)
    affinity = spec.affinity.node_affinity
    asked = within("spec", requests, spec)
    near = tuple(_pod_terms(spec, meta.labels, namespace=namespace, around=around))
    for name, count, most in (("topologySpreadConstraints", len(spec.topology_spread_constraints), MOST_SPREADS),
                              ("affinity", len(near), 2 * MOST_POD_TERMS)):
        if count > most:
            raise Malformed(f"spec.{name} has {count} terms, and at most {most} are read")
    spread = tuple(_spread(part, meta.labels) for part in spec.topology_spread_constraints)
    labels = _lasting(meta.labels, {*around.selected, *_selected(near, spread)})
    claims = dict(around.storage.of(template, namespace) if around.storage else ())
    apart = around.storage.apart(template, namespace) if around.storage and len(claims) > 1 else ()
    claim, keys = around.storage.ties(template, namespace, around.shared) if around.storage else ("", ())
    if claim and not any(one.weight is None and not one.anti for one in near):  # else no pod is meant by all terms
        tie = f"{objects.GROUP}/claim-{claim}"
        near += tuple(engine.PodAffinity((engine.Expression(tie, "Exists"),), key) for key in keys)
        labels = tuple(sorted((*labels, (tie, ""))))
    return engine.PodClass(
        namespace=namespace,
        requests=tuple(one for one in asked if one[0] != engine.GPU) if fraction or memory else asked,
        labels=labels,
        node_selector=tuple(sorted(spec.node_selector.items())),
        affinity=terms(affinity.required) if affinity.required else (),
        volumes=(*_bound(spec, claims.values()), *apart),
        attaches=engine.amounts(Counter(one.attaches for one in claims.values() if one.attaches in around.limited)),
        preferences=tuple(engine.Preference(one.weight, node_term(one.preference)) for one in affinity.preferred),
        tolerations=spec.tolerations,
        pod_affinity=near,
        spread=spread,
        host_ports=tuple(sorted(set(_host_ports(spec)))),
        gpu_fraction=fraction,
        gpu_memory=memory,
        exclusive=tuple(f"{namespace}/{name}" for name, claim in claims.items() if claim.is_exclusive),
        unready=tuple((claim.unready, name + claim.lacks) for name, claim in claims.items() if claim.unready),
    )


def lasting(pod: engine.PodClass) -> engine.PodClass:
    """The class without generated labels: the same for a pod and for its template."""
    return replace(pod, labels=tuple(one for one in pod.labels if not one[0].startswith(GENERATED)))


def foreign(pod: objects.PodObject, around: Surroundings = ALONE) -> engine.Pod | None:
    """A pod of others that takes room on its node; None where it takes none (no node yet, or over). One that is frozen
    takes memory alone, and none once it is on disk and its Workload asked for that."""
    if not pod.spec.node_name or pod.status.is_over:
        return None
    meta = pod.metadata
    template = objects.PodTemplate(meta, msgspec.structs.replace(resized(pod), node_name=""))
    assigned = meta.annotations.get(objects.ASSIGNED, "")
    devices = tuple(int(index) for index in assigned.split(",") if index.isascii() and index.isdecimal())
    taken = pod_class(template, meta.namespace, around)
    if taken.volumes or taken.unready:
        taken = replace(taken, volumes=(), unready=())  # it runs: both are settled
    if is_frozen(pod.status):
        is_saved = objects.SAVE in meta.annotations and why_frozen(pod.status) == objects.ON_DISK
        memory = () if is_saved else tuple(one for one in taken.requests if one[0] == engine.MEMORY)
        taken, devices = replace(taken, requests=memory, gpu_fraction=0, gpu_memory=0), ()
    return engine.Pod(f"{meta.namespace}/{meta.name}", pod.spec.node_name, taken, devices, meta.is_going)


def is_frozen(status: objects.PodStatus) -> bool:
    """Whether its processes are paused."""
    return any(one.type == objects.FROZEN and one.status == "True" for one in status.conditions)


def why_frozen(status: objects.PodStatus) -> str:
    """The reason of its condition Frozen; "" where there is none."""
    return next((one.reason for one in status.conditions if one.type == objects.FROZEN), "")


def is_lost(status: objects.PodStatus) -> bool:
    """Whether the pod failed though its program did not: its node could not, or would not, run it any more."""
    if status.phase != "Failed":
        return False
    return is_disrupted(status) or status.reason in LOST or status.reason.startswith("OutOf")


def is_disrupted(status: objects.PodStatus) -> bool:
    return any(one.type == "DisruptionTarget" and one.status == "True" for one in status.conditions)


def disruption(status: objects.PodStatus) -> str:
    """Which one it was, as Kubernetes names it: EvictionByEvictionAPI is what `kubectl drain` does."""
    return next((one.reason for one in status.conditions if one.type == "DisruptionTarget"), "")


def resized(pod: objects.PodObject) -> objects.PodSpec:
    """The spec of a running pod, with the most of its requested, allocated and actual resources, of the whole pod where
    it speaks of those, else of each container and sidecar. A resize that its node can never make does not count."""
    status, spec = pod.status, pod.spec
    reported = {one.name: one for one in (*status.container_statuses, *status.init_container_statuses)}
    is_void = any(one.type == "PodResizePending" and one.reason == "Infeasible" for one in status.conditions)

    def most(own: dict[str, Quantity], said: objects.ContainerStatus | objects.PodStatus) -> dict[str, Quantity]:
        if said.resources is None:
            return own
        found = [{} if is_void else own, said.resources.requests, said.allocated_resources]
        return {
            name: max((amounts[name] for amounts in found if name in amounts), key=lambda it: parse(it, name))
            for name in dict.fromkeys(key for amounts in found for key in amounts)
        }

    def of(one: objects.Container) -> objects.Container:
        if one.name not in reported:
            return one
        asked = most(one.resources.limits | one.resources.requests, reported[one.name])
        return msgspec.structs.replace(one, resources=objects.Resources(asked))

    if spec.resources != objects.Resources():
        whole = msgspec.structs.replace(spec.resources, requests=most(spec.resources.requests, status))
        return msgspec.structs.replace(spec, resources=whole)
    if not reported:
        return spec
    init = tuple(of(one) if one.restart_policy == "Always" else one for one in spec.init_containers)
    return msgspec.structs.replace(spec, containers=tuple(map(of, spec.containers)), init_containers=init)


def gates(workload: engine.Workload, pods: Collection[objects.PodObject]) -> tuple[str, ...]:
    """Scheduling gates, other than Fairway's, that keep pods without a node from being scheduled; INCOMPLETE where some
    of a group are gone while it waits, which starts whole or not at all."""
    is_group = workload.paused is None and workload.name.startswith(name_of("Pod", ""))
    there = sum(not pod.metadata.is_going for pod in pods)
    if is_group and pods and there < sum(one.count for one in workload.podsets):
        return (INCOMPLETE,)
    return gates_of_others(pods)


def gates_of_others(pods: Iterable[objects.PodObject]) -> tuple[str, ...]:
    closed = (gate.name for pod in pods if not pod.spec.node_name for gate in pod.spec.scheduling_gates)
    return tuple(sorted({name for name in closed if name != objects.GATE}))


def selected_by(one: objects.PodTemplate | objects.PodObject) -> frozenset[Selected]:
    """The generated labels by which a pod, or pods of a template, select others."""
    spec, labels = one.spec, one.metadata.labels
    if spec.affinity == NO_AFFINITY and not spec.topology_spread_constraints:
        return frozenset()
    spread = [_spread(part, labels) for part in spec.topology_spread_constraints]
    return frozenset(_selected(_pod_terms(spec, labels, namespace="", around=ALONE), spread))


def carries(labels: Labels, selected: Container[Selected]) -> bool:
    """Whether some label is one of those selected."""
    return any((key, None) in selected or (key, value) in selected for key, value in labels.items())


def _selected(near: Iterable[engine.PodAffinity], spread: Iterable[engine.Spread]) -> Iterator[Selected]:
    for selected in (*(one.selector or () for one in near), *(one.selector for one in spread)):
        yield from selectable(selected)


def selectable(selector: engine.Selector) -> Iterator[Selected]:
    """The generated labels that a selector reads."""
    for one in selector:
        if not one.key.startswith(GENERATED):
            continue
        values: Iterable[str | None] = one.values if one.operator in ("In", "NotIn") else (None,)
        yield from ((one.key, value) for value in values)


def requests_of(pod: Mapping[str, object], memory: int = 0) -> engine.Amounts:
    """What a pod object requests; a part of a GPU counts as that part. `memory`: bytes of a device, 0 if unknown."""
    read = msgspec.convert(pod, objects.PodObject)
    found, part = dict(requests(read.spec)), part_of(read.metadata.annotations, memory)
    return engine.amounts(found | {engine.GPU: part} if part else found)


def part_of(annotations: Labels, memory: int) -> int:
    """Milli-GPU of one shared device with so many bytes, as a decision counts it; 0 where they are unknown. Raises
    Malformed."""
    fraction, own = _part_of_device(annotations)
    return engine.shared(engine.PodClass(gpu_fraction=fraction, gpu_memory=own), memory) if fraction or memory else 0


def requests(spec: objects.PodSpec) -> engine.Amounts:
    """What a pod takes of its node, without its pod slot and without zeros."""
    total, sidecars, peak = Counter[str](), Counter[str](), Counter[str]()
    for index, container in enumerate(spec.containers):
        total += within(f"containers[{index}].resources", _asked, container.resources)
    for index, container in enumerate(spec.init_containers):
        asked = within(f"initContainers[{index}].resources", _asked, container.resources)
        if container.restart_policy == "Always":
            sidecars += asked
        else:
            peak |= sidecars + Counter(asked)
    total = (total + sidecars) | peak
    whole = within("resources", _asked, spec.resources)
    parts = [it.resources for it in (*spec.containers, *spec.init_containers)] if whole else []
    known = {name for it in parts for name in it.requests | it.limits}
    for name in (it for it in whole if it in (engine.CPU, engine.MEMORY) or it.startswith("hugepages-")):
        # Of CPU and memory the pod's limit counts only where no container requests any.
        if name in spec.resources.requests or name not in known or name.startswith("hugepages-"):
            total[name] = whole[name]
    total += within("overhead", _amounts, spec.overhead)
    return engine.amounts({name: min(most, LARGEST) for name, most in total.items()})


def asking(template: objects.PodTemplate, usual: Mapping[str, Quantity]) -> objects.PodTemplate:
    """The template with what a LimitRange has its containers request that do not say so."""

    def of(one: objects.Container) -> objects.Container:
        said = one.resources
        lacks = {name: amount for name, amount in usual.items() if name not in said.limits}
        return msgspec.structs.replace(one, resources=objects.Resources({**lacks, **said.requests}, said.limits))

    spec = template.spec
    both = {"containers": tuple(map(of, spec.containers)), "init_containers": tuple(map(of, spec.init_containers))}
    return msgspec.structs.replace(template, spec=msgspec.structs.replace(spec, **both))


def _asked(resources: objects.Resources) -> dict[str, int]:
    limits = within("limits", _amounts, resources.limits)
    return limits | within("requests", _amounts, resources.requests)


def _amounts(values: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: within(f"[{name}]", _amount, name, value) for name, value in values.items()}


def _amount(name: str, value: Quantity) -> int:
    if name == engine.GPU and exact(str(value)).denominator != 1:
        raise Malformed(f"found {shown(value)}; whole GPUs are allowed, a part of one is annotation {objects.FRACTION}")
    return parse(value, name)


def _part_of_device(annotations: Labels) -> tuple[int, int]:
    """Milli-GPU of one device, and bytes of one device; at most one of them is not zero."""
    fraction, memory = annotations.get(objects.FRACTION, ""), annotations.get(objects.GPU_MEMORY, "")
    if fraction and memory:
        raise Malformed("found a fraction and a memory; one of them is allowed", f"[{objects.FRACTION}]")
    if memory:
        return 0, within(f"[{objects.GPU_MEMORY}]", _positive, memory)
    return (within(f"[{objects.FRACTION}]", fraction_of, fraction), 0) if fraction else (0, 0)


def check_fraction(template: objects.PodTemplate) -> None:
    """A pod asks for a part of one GPU or for whole GPUs. Raises Malformed."""
    whole, notes = dict(requests(template.spec)).get(engine.GPU, 0), template.metadata.annotations
    for name in (objects.FRACTION, objects.GPU_MEMORY):
        if whole and name in notes:
            found = f"found {shown(notes[name])} beside {format(whole, engine.GPU)} {engine.GPU}"
            raise Malformed(f"{found}; a part of one GPU, or whole GPUs, are allowed", f"metadata.annotations[{name}]")


def fraction_of(text: str) -> int:
    """Milli-GPU of a fraction between 0 and 1."""
    value = exact(text) if not text.startswith("-") else 0
    if not 0 < value < 1:
        raise Malformed(f"found {shown(text)}; a fraction above 0 and below 1 is allowed")
    return max(1, floor(value * 1000))


def _positive(text: str) -> int:
    if not (value := parse(text, engine.MEMORY)):
        raise Malformed(f"found {shown(text)}; a quantity above 0 is allowed")
    return value


def _bound(spec: objects.PodSpec, claims: Iterable[VolumeClaim]) -> Iterator[tuple[engine.Term, ...]]:
    """What binds the pod to nodes besides its affinity: its volumes, and a node named already."""
    for claim in claims:
        yield from claim.reach
    if spec.node_name:
        yield (engine.Term(fields=(engine.Expression(NAME_FIELD, "In", (spec.node_name,)),)),)


def _pod_terms(
    spec: objects.PodSpec, labels: Labels, *, namespace: str, around: Surroundings
) -> Iterator[engine.PodAffinity]:
    for anti, said in ((False, spec.affinity.pod_affinity), (True, spec.affinity.pod_anti_affinity)):
        for term in said.required:
            yield replace(_pod_term(term, labels, namespace, around), anti=anti)
        for one in said.preferred:
            term = one.pod_affinity_term
            yield replace(_pod_term(term, labels, namespace, around), anti=anti, weight=one.weight)


def _pod_term(term: objects.PodTerm, labels: Labels, namespace: str, around: Surroundings) -> engine.PodAffinity:
    chosen = None if term.label_selector is None else term.label_selector.requirements()
    if chosen is not None:
        chosen += tuple(_same(labels, term.match_label_keys))
        chosen += tuple(replace(one, operator="NotIn") for one in _same(labels, term.mismatch_label_keys))
    by_label = term.namespace_selector
    if by_label is None:
        return engine.PodAffinity(chosen, term.topology_key, term.namespaces)
    if not (wanted := by_label.requirements()):
        return engine.PodAffinity(chosen, term.topology_key, term.namespaces, any_namespace=True)
    found = {name for name in {*around.namespaces, namespace} if selects(wanted, around.labels(name))}
    # None found is not "the pod's own", which an empty tuple means: no namespace has an empty name.
    return engine.PodAffinity(chosen, term.topology_key, tuple(sorted(found.union(term.namespaces))) or ("",))


def _same(labels: Labels, keys: Iterable[str]) -> Iterator[engine.Expression]:
    return (engine.Expression(key, "In", (labels[key],)) for key in keys if key in labels)


def _spread(part: objects.SpreadPart, labels: Labels) -> engine.Spread:
    chosen = NOBODY
    if part.label_selector is not None:
        chosen = part.label_selector.requirements() + tuple(_same(labels, part.match_label_keys))
    return engine.Spread(
        part.max_skew,
        part.topology_key,
        chosen,
        hard=part.when_unsatisfiable == "DoNotSchedule",
        min_domains=part.min_domains,
        honor_affinity=part.node_affinity_policy == "Honor",
        honor_taints=part.node_taints_policy == "Honor",
    )


def _lasting(labels: Labels, read: Container[Selected]) -> tuple[tuple[str, str], ...]:
    """The labels without those that a controller generated and no selector reads."""
    kept = {key: text for key, text in labels.items() if not key.startswith(GENERATED) or carries({key: text}, read)}
    return tuple(sorted(kept.items()))


def _host_ports(spec: objects.PodSpec) -> Iterator[tuple[str, str, int]]:
    sidecars = (one for one in spec.init_containers if one.restart_policy == "Always")
    for container in (*spec.containers, *sidecars):
        for port in container.ports:
            if number := port.host_port or (port.container_port if spec.host_network else 0):
                yield port.host_ip or "0.0.0.0", port.protocol, number
