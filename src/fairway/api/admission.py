"""What is completed and refused at the door, before an object is stored. Pure, and the only source of these rules.

Whether one object is well made, the readers of this package know (`workloads`, `queues`, `owners`): what they cannot
read is refused here with the path they tell, and offline by `fairway plan`. Added here: what may not change, what time
forbids, and how a managed object is kept from starting by itself. What depends on other objects is no matter of the
door, so that files apply in any order; only a time limit is held against the queue when that is there.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import TypeAlias

import msgspec

from fairway.engine import Queue, invalid_parent, lineage

from . import budget, objects, owners, queues, workloads
from .alone import workload_of_pod
from .decode import cleaned, decode
from .names import name_of
from .objects import DEFAULT_SCHEDULER, GATE, GROUP, QUEUE, SCHEDULER, USER, PodObject, PodTemplate
from .pods import ALONE, pod_class
from .quantities import Malformed, duration, duration_text, shown, within
from .review import Review as Review
from .review import Said, Thing, at, dicts, is_made, is_of_others, is_part, makers, part, queue_of, templates
from .revision import inherit, is_steered, keep_queue, keep_share, keep_suspended, marks
from .types import NOTIFY, NodePoolObject, QueueObject, ReservationObject, WorkloadObject
from .workloads import Reading

Cause: TypeAlias = tuple[str, str, str]
Lookup: TypeAlias = Callable[[str, str], Said | None]
INVALID, FORBIDDEN = "FieldValueInvalid", "FieldValueForbidden"
ACCOUNTS = "system:serviceaccount:"
CONTROLLERS = f"{ACCOUNTS}kube-system:"
MOST_RULES = 20
OF_CONTROLLER = {
    (GROUP, "Workload"): (objects.SUBMITTED, objects.MANIFESTS, objects.BEGAN), ("", "Pod"): objects.OF_CONTROLLER,
}  # fmt: skip
"""Annotations that no user writes."""
DISRUPTED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


class Refused(Exception):
    """The object does not come in; causes are (field, Kubernetes' word for the fault, message)."""

    def __init__(self, causes: Sequence[Cause], *, forbidden: bool = False) -> None:
        super().__init__("; ".join(f"{field}: {message}" if field else message for field, _, message in causes))
        self.causes, self.forbidden = tuple(causes), forbidden


def admit(review: Review) -> tuple[Thing, list[str]]:
    """The object as it is to be stored, and warnings; raises Refused."""
    if review.operation not in ("CREATE", "UPDATE"):
        return review.new, []
    _keep_status(review)
    if _is_same(review):
        return review.new, []
    try:
        if review.group == GROUP:
            kept = _keep(review)
            _ours(review)
            return review.new, kept + _warnings(review)
        warnings = [*keep_queue(review), *keep_suspended(review)]
        if is_managed(review):
            warnings += _keep(review)
            _read(review)
            _keep_requests(review)
            _managed(review)
    except Malformed as error:
        raise Refused([(error.field, INVALID, error.message)]) from None
    return review.new, warnings


def _warnings(review: Review) -> list[str]:
    """What a Queue or a Reservation says that makes no sense with what else there is now; that may change."""
    if review.kind == "Reservation":
        spec = decode(cleaned(review.new), ReservationObject).spec
        named = [("Queue", spec.queue), ("NodePool", spec.pool), *(("Node", name) for name in spec.nodes)]
        return _missing(named, "nothing is reserved there until it does", review)
    if review.kind != "Queue":
        return []
    own = _queue(review.new)
    line = {own.name: own}
    while (above := [*line.values()][-1].parent) and above not in line and (found := review.lookup("Queue", above)):
        line[above] = _queue(found)
    pools = sorted({one.pool for one in own.quotas} - {"*"} | set(own.pools))
    odd = _missing([("NodePool", name) for name in pools], "its nodes count here once it does", review)
    if fault := invalid_parent(own.name, line):
        odd.append(f"spec.parent: {fault[1]}; no workload below starts until that is mended")
    return odd + list(queues.above_limits([*line.values()]))


def _queue(said: object) -> Queue:
    return queues.queue(decode(cleaned(said), QueueObject), ALONE)


def _missing(named: Iterable[tuple[str, str]], then: str, review: Review) -> list[str]:
    return [
        f"{kind} {name} does not exist; {then}" for kind, name in named
        if name and (kind, name) != ("NodePool", "default") and review.lookup(kind, name) is None
    ]  # fmt: skip


def _keep_status(review: Review) -> None:
    """Only the controller writes what became of a Workload; of a new one the server drops it."""
    if (review.group, review.kind) != (GROUP, "Workload") or review.old is None or review.is_trusted:
        return
    if part(review.old, "status") != part(review.new, "status"):
        raise Refused([("status", FORBIDDEN, "only the controller writes it")], forbidden=True)


def _is_same(review: Review) -> bool:
    """Whether nothing changed that is judged here: what was let in once stays writable."""
    if review.old is None:
        return False
    marks = (("metadata", "labels"), ("metadata", "annotations"))
    alike = (part(review.old, *path) == part(review.new, *path) for path in marks)
    return review.old.get("spec") == review.new.get("spec") and all(alike)


def is_managed(review: Review) -> bool:
    """Whether a user's object queues: by its label, or by its namespace's."""
    return bool(queue_of(review, review.new))


def _ours(review: Review) -> None:
    said = cleaned(review.new)
    match review.kind:
        case "Queue":
            _queue(said)
        case "NodePool":
            queues.pool(decode(said, NodePoolObject))
        case "Reservation":
            _reservation(decode(said, ReservationObject), review)
        case "Workload":
            _claim(review.new, ("spec", "user"), review)
            _hold(review)
            _workload(decode(said, WorkloadObject), review)


def _workload(said: WorkloadObject, review: Review) -> None:
    read = workloads.workload(said, Reading())
    queues.seconds("spec.startTimeout", said.spec.start_timeout)
    queues.seconds("spec.idleTimeout", said.spec.idle_timeout)
    queues.positive("spec.checkpointInterval", said.spec.checkpoint_interval)
    if said.spec.notify and not re.match(NOTIFY, said.spec.notify):
        forms = "http://…, https://… or mailto:NAME@HOST is allowed"
        raise Malformed(f"found {shown(said.spec.notify)}; {forms}", "spec.notify")
    if _is_new_limit(said, review) and (fault := _too_long(said, read.time_limit, review)):
        raise Malformed(fault, "spec.timeLimit")


def _too_long(said: WorkloadObject, limit: float | None, review: Review) -> str:
    """Why its new time limit is refused; "" where it is not, or where what it is held against no longer reads, which is
    no fault of this object."""
    with suppress(Malformed):
        longest = _longest(said.spec.queue, review.lookup)
        if longest is not None and limit is not None and limit > longest:
            most = f"at most {duration_text(longest)}, the longest in queue {said.spec.queue}, is allowed"
            return f"found {shown(said.spec.time_limit)}; {most}"
        if held := _held(said, review):
            line = [decode(cleaned(it), QueueObject) for it in line_of(held[0].spec.queue, review.lookup)]
            return budget.too_long(held, said.spec.time_limit, line, review.now)
    return ""


def _is_new_limit(said: WorkloadObject, review: Review) -> bool:
    """Whether its user asks for another time limit or queue than before: what was let in stays writable under a
    maximum that is lowered, and the controller can mirror, suspend and resume it."""
    if review.is_trusted or review.old is None:
        return not review.is_trusted
    with suppress(Malformed):
        if before := _asked(review, review.old):
            return (before.spec.queue, before.spec.time_limit) != (said.spec.queue, said.spec.time_limit)
    return True


def _held(said: WorkloadObject, review: Review) -> Sequence[WorkloadObject]:
    """What is written of the workload, of the gang of a pod, a new one too, or of each replica; of a bare pod alone,
    what it says."""
    old, row = cleaned(review.old or {}), owners.OWNERS.get((review.group, review.kind))
    pod = decode(cleaned(review.old or review.new), PodObject) if review.kind == "Pod" else None
    gang = owners.group_of(pod.metadata, pod.spec) if pod else ""
    if (review.old is None and not gang) or review.kind == "Workload":
        return [decode(old, WorkloadObject)] if review.old else []
    name = name_of("Pod", gang) if gang else said.metadata.name
    rows = owners.replicas(decode(old, row.form)) if row and row.group else ()
    names = [f"{review.namespace}/{name}-{one}" for one in rows] or [f"{review.namespace}/{name}"]
    found = [decode(cleaned(it), WorkloadObject) for one in names if (it := review.lookup("Workload", one))]
    alone = workload_of_pod(pod) if pod and not found else None
    return [alone] if alone else found


def line_of(queue: str, lookup: Lookup) -> list[Said]:
    """The queue and those above it, as far as they are there."""
    above = lineage(lambda name: str(part(lookup("Queue", name), "spec").get("parent") or ""), queue)
    return [it for name in above if (it := lookup("Queue", name))]


def _longest(queue: str, lookup: Lookup) -> float | None:
    """The longest time limit that a queue and all above it allow."""
    limits = (part(it, "spec", "timeLimit").get("max") for it in line_of(queue, lookup))
    return min((duration(str(one)) for one in limits if one), default=None)


def _reservation(said: ReservationObject, review: Review) -> None:
    read = queues.reservation(said)
    before = part(review.old, "spec").get("start")
    if not read.repeat and read.start + read.duration <= review.now and before != said.spec.start:
        raise Malformed(f"found {said.spec.start}, which is over; a window that ends later is allowed", "spec.start")


def _read(review: Review) -> None:
    """Raises where a managed object asks for something that cannot be."""
    made = _asked(review, review.new)
    if made is None or not made.spec.pod_sets:
        return
    notes = part(review.new, "metadata", "annotations")
    try:  # as its Workload will be read: refused later, nobody would be told
        _workload(decode(msgspec.json.decode(msgspec.json.encode(made)), WorkloadObject), review)
    except Malformed as error:
        is_said = f"{GROUP}/time-limit" in notes or not made.spec.time_limit
        raise owners.told(review.kind, error, has_deadline=not is_said) from None
    least = notes.get(f"{GROUP}/min-count")
    if review.old is None:
        owners.check_least(str(least or ""), made)


def _keep_requests(review: Review) -> None:
    """What can be suspended keeps what its pods request while its workload holds room: it was admitted by that. An API
    server lets a suspended Job's template change, and an operator makes pods of a changed one at any time."""
    row, holds_room = owners.OWNERS.get((review.group, review.kind)), False
    if review.old is None or review.is_trusted or row is None or row.switch is None or is_part(review.new):
        return
    with suppress(Malformed):  # what was let in once stays writable
        before, now = (_asked(review, it) for it in (review.old, review.new))
        if before and now and _requested(before) != _requested(now):
            holds_room = any(it.status.admission or it.status.paused for it in _held(before, review))
    if holds_room:
        raise Malformed("what its pods request does not change while the workload holds room; suspend it first", "spec")


def _requested(said: WorkloadObject) -> dict[str, object]:
    """What a pod of each podset requests."""
    classes = ((one.name, pod_class(one.template, "")) for one in said.spec.pod_sets)
    return {name: (one.requests, one.gpu_fraction, one.gpu_memory) for name, one in classes}


def _asked(review: Review, stored: Said) -> WorkloadObject | None:
    """The Workload that an object of the kind under review asks for; None where it asks for none. Raises Malformed."""
    kind, said = (review.group, review.kind), cleaned(stored)
    if found := owners.OWNERS.get(kind):
        return found.workload(review.kind, said)
    if kind == ("", "Pod"):
        return owners.pod(decode(said, PodObject))
    return decode(said, WorkloadObject) if kind == (GROUP, "Workload") else None


def _managed(review: Review) -> None:
    """Marked with its user and its queue, and kept from starting by itself."""
    new, kind = review.new, (review.group, review.kind)
    _choose_queue(review)
    if kind in owners.OWNERS or kind in owners.GATED:
        _claim(new, ("metadata", "annotations", USER), review)
        is_ours = not is_of_others(new)
        if is_ours and review.operation == "CREATE" and not is_part(new):
            _suspend(new, kind)
        if is_ours and kind == ("batch", "Job") and review.operation == "CREATE":
            _spare(part(new, "spec", "podFailurePolicy"))
        before = dict(templates(review.old))
        for where, template in templates(new):
            if template != before.get(where):  # an owner that was let in once can still be suspended or resized
                _check_place(template, where, review)
            if is_ours and kind in owners.GATED and is_made(new):  # its maker compares it; pods are gated as they come
                _keep_user(template, new, review)
            elif is_ours and not _stays(template, before.get(where), review):
                _complete(template, review)
        if is_ours:
            _name_scheduler(new, kind, review.old)
    elif kind == ("batch", "CronJob"):
        _claim(new, ("metadata", "annotations", USER), review)
        inherit(at(new, ("spec", "jobTemplate")), new, review.old)
    elif kind == ("", "Pod"):
        if review.operation == "CREATE":
            _check_place(new, "", review)
            _pod(review)
        else:
            _claim(new, ("metadata", "annotations", USER), review)
            if queue_of(review, review.old):
                keep_share(review)


def _choose_queue(review: Review) -> None:
    """A new object that names no queue has the one of its namespace's label; what another object made, has its."""
    usual = part(review.lookup("Namespace", review.namespace), "metadata", "labels").get(QUEUE)
    if usual and review.operation == "CREATE" and not is_made(review.new):
        at(review.new, ("metadata", "labels")).setdefault(QUEUE, usual)


def _stays(template: Thing, before: Said | None, review: Review) -> bool:
    """Whether a template that no door completed is left as it is. Of a Job it cannot change, and a Deployment would
    replace its pods for it: they are steered, or gated, one by one as they come."""
    if before is None or (review.group, review.kind) not in owners.GATED:
        return before is not None and not is_steered(before)
    return template == before and marks(review.new) == marks(review.old)


def _complete(template: Thing, review: Review) -> None:
    """What a pod says on how it ran, copied into a template, goes: no pod may be made with it."""
    kind = (review.group, review.kind)
    if notes := part(template, "metadata", "annotations"):
        own = {key: text for key, text in notes.items() if key not in objects.OF_CONTROLLER}
        at(template, ("metadata",))["annotations"] = own
    if kind in owners.GATED:
        inherit(template, review.new, review.old)
    _gate(template) if _waits_at_gates(kind) else _steer(template)


def _name_scheduler(new: Thing, kind: tuple[str, str], before: Said | None = None) -> None:
    for path in owners.OWNERS[kind].names if kind in owners.OWNERS else ():
        if before is None or part(before, *path).get("schedulerName") == SCHEDULER:
            at(new, path).setdefault("schedulerName", SCHEDULER)


def held_back(owner: Thing, kind: tuple[str, str]) -> Thing:
    """A suspended owner that no door saw, as it may be resumed: its pods have a gate, or else Fairway's name, so that
    no other scheduler binds them. Gates are what operators let change in a template."""
    made = deepcopy(owner)
    for _, template in templates(made):
        _add_gate(template)
    _name_scheduler(made, kind)
    return made


def _waits_at_gates(kind: tuple[str, str]) -> bool:
    return kind in owners.GATED or (kind in owners.OWNERS and owners.OWNERS[kind].switch is None)


def _suspend(new: Thing, kind: tuple[str, str]) -> None:
    """Keeps an owner that has a field for it from making pods."""
    if (found := owners.OWNERS.get(kind)) and found.switch:
        *path, last = found.switch.path
        at(new, path)[last] = found.switch.off


def _spare(policy: Said) -> None:
    """Rules for failed pods judge no pod that ended for the cluster's sake, as all do that Fairway suspends."""
    rules = policy.get("rules")
    if isinstance(rules, list) and DISRUPTED not in rules and len(rules) < MOST_RULES:
        rules.insert(0, deepcopy(DISRUPTED))


def _keep_user(template: Thing, owner: Thing, review: Review) -> None:
    """Pods of a template have another user than their owner only where a controller says so: one of Kubernetes, or an
    operator, which is a service account of another namespace."""
    said, own = part(template, "metadata", "annotations").get(USER), part(owner, "metadata", "annotations").get(USER)
    spaces = (CONTROLLERS, *[ACCOUNTS] * (not review.user.startswith(f"{ACCOUNTS}{review.namespace}:")))
    if said not in (None, own) and not (review.is_trusted or review.user.startswith(spaces)):
        at(template, ("metadata", "annotations"))[USER] = own


def _pod(review: Review) -> None:
    """A pod of an admitted owner only has its scheduler, and its user where no controller made it; any other waits at a
    gate, but those of DaemonSets."""
    new, kinds = review.new, makers(review.new)
    whole = owners.owner_of(decode({"metadata": cleaned(part(new, "metadata"))}, PodObject).metadata)
    is_of_kubernetes = review.user.startswith(CONTROLLERS)
    if kinds == {("apps", "DaemonSet")} and is_of_kubernetes:
        return
    kind = whole[:2] if whole and whole[:2] in owners.OWNERS and not kinds <= owners.GATED else None
    if kind is None or not (is_of_kubernetes or review.is_trusted):  # a user may name an owner that is not the pod's
        _claim(new, ("metadata", "annotations", USER), review)
    _gate(new) if kind is None or _waits_at_gates(kind) else _steer(new)


def _claim(new: Thing, path: tuple[str, ...], review: Review) -> None:
    """`path` names the user that made the object, or had it queue, whatever it says; later it may not change."""
    holder, last = at(new, path[:-1]), path[-1]
    may_name = review.is_trusted or review.user.startswith(CONTROLLERS)
    if review.old is None or (path[0] == "metadata" and not queue_of(review, review.old)):
        if not (holder.get(last) and may_name):
            holder[last] = review.user
        return
    first = part(review.old, *path[:-1]).get(last)
    if first is None and not may_name:
        holder.pop(last, None)
    if first is not None and holder.setdefault(last, first) != first:
        field = ".".join(path[:-1]) + (f"[{last}]" if "/" in last else f".{last}")
        raise Malformed(f"found {shown(holder[last])}; it is {shown(first)} and does not change", field)


def _keep(review: Review) -> list[str]:
    """Leaves annotations as they were that only the controller writes; a warning for each that was to change."""
    before, now = (part(one, "metadata", "annotations") for one in (review.old, review.new))
    kept = () if review.is_trusted else OF_CONTROLLER.get((review.group, review.kind), ())
    odd = [note for note in kept if before.get(note) != now.get(note)]
    for note in odd:
        notes = at(review.new, ("metadata", "annotations"))
        notes.pop(note, None)
        notes |= {note: before[note]} if note in before else {}
    return [f"metadata.annotations[{note}]: only Fairway writes it; it is left as it was" for note in odd]


def _hold(review: Review) -> None:
    """A workload that holds room keeps its queue and its podsets, which were asked whether it may."""
    before, now = part(review.old, "spec"), part(review.new, "spec")
    if review.is_trusted or not part(review.old, "status", "admission"):
        return
    for name in ("queue", "podSets"):
        if before.get(name) != now.get(name):
            raise Malformed("does not change while the workload holds room", f"spec.{name}")


def _check_place(pod: Thing, path: str, review: Review) -> None:
    """Who asks for accelerators takes none past the queue: neither its node nor its scheduler is the user's choice."""
    spec = part(pod, "spec")
    own = {"nodeName": (None, ""), "schedulerName": (None, "", DEFAULT_SCHEDULER, SCHEDULER)}
    chosen = [name for name, free in own.items() if spec.get(name) not in free]
    if chosen and not review.is_trusted and within(path, _asks_accelerators, pod):
        field = f"{path}.spec.{chosen[0]}".lstrip(".")
        why = f"found {shown(spec[chosen[0]])}; only Fairway places pods with accelerators"
        raise Refused([(field, FORBIDDEN, why)], forbidden=True)


def _asks_accelerators(pod: Thing) -> bool:
    """Any extended resource counts: they are whole devices, and nobody else keeps count of them."""
    asked = pod_class(decode(cleaned(pod), PodTemplate), "")
    return bool(asked.gpu_fraction or asked.gpu_memory or any("/" in name for name, _ in asked.requests))


def _steer(pod: Thing) -> None:
    spec = at(pod, ("spec",))
    if spec.get("schedulerName") in (None, "", DEFAULT_SCHEDULER):
        spec["schedulerName"] = SCHEDULER


def _gate(pod: Thing) -> None:
    """A pod that has a node already is left alone: it counts as used room. It asks for no accelerators."""
    spec = at(pod, ("spec",))
    if spec.get("nodeName"):
        return
    _steer(pod)
    if spec["schedulerName"] == SCHEDULER:
        _add_gate(pod)


def _add_gate(pod: Thing) -> None:
    spec = at(pod, ("spec",))
    gates = list(dicts(spec.get("schedulingGates")))
    if all(gate.get("name") != GATE for gate in gates):
        spec["schedulingGates"] = [*gates, {"name": GATE}]


