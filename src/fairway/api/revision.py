"""What may change of an object that queues, and what follows from it. Pure, as all that `admission` says.

What runs keeps its queue. Fairway alone resumes an owner: a user who does, or suspends it, says that it may run or not.
What a template has from its owner follows that; an owner that queues no longer gives it back.
"""

from collections.abc import Mapping
from copy import deepcopy

import msgspec

from . import objects, owners
from .decode import cleaned, decode
from .objects import DEFAULT_SCHEDULER, GATE, GROUP, QUEUE, SCHEDULER, USER
from .quantities import Malformed, shown
from .review import Review, Said, Thing, at, dicts, is_made, is_of_others, is_part, part, queue_of, templates

FIXED = (("annotations", objects.FRACTION), ("annotations", objects.GPU_MEMORY), ("annotations", owners.NAMED_GROUP),
         ("labels", objects.GROUP_NAME), ("labels", objects.GROUP_SIZE))
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def keep_queue(review: Review) -> list[str]:
    """What runs keeps its queue, in which it holds room, until it next waits. What only Fairway binds goes on queueing,
    or nothing would start it; but a Deployment, or what else makes its pods anew, gives them to any scheduler again."""
    old, new, kind = review.old, review.new, (review.group, review.kind)
    before, now = queue_of(review, old), queue_of(review, new)
    is_bound = kind == ("", "Pod") and bool(part(old, "spec").get("nodeName"))
    if old is None or before in ("", now) or review.is_trusted or (is_made(new) and not is_bound):
        return []
    field = f"metadata.labels[{QUEUE}]"
    if not now and (kind in owners.GATED or kind == ("batch", "CronJob")):
        _release(new, old)
    elif not now and is_steered(old):
        raise Malformed(f"is removed, and only Fairway binds its pods; make the {review.kind} anew without it", field)
    elif now and is_bound:
        raise Malformed(f"found {shown(now)}; a pod keeps its queue, {shown(before)}, once it has a node", field)
    elif now and _runs(old, kind):
        return [f"it stays in queue {before} until it next waits; suspend and resume it to move it to {now} at once"]
    return []


def keep_share(review: Review) -> None:
    """What says how much of a GPU a pod holds, and in which gang, changes only while it waits at the gate."""
    spec = part(review.old, "spec")
    is_waiting = not spec.get("nodeName") and any(one.get("name") == GATE for one in dicts(spec.get("schedulingGates")))
    if review.is_trusted or is_waiting:
        return
    for where, key in FIXED:
        before, now = (part(one, "metadata", where).get(key) for one in (review.old, review.new))
        if before != now:
            both = f"found {shown(now)}; it is {shown(before)}"
            found = both if now and before else "is added" if now else "is removed"
            raise Malformed(f"{found}, and does not change once the pod is admitted", f"metadata.{where}[{key}]")


def _runs(said: Said, kind: tuple[str, str]) -> bool:
    """Whether it may hold room, as far as it tells itself."""
    found = owners.OWNERS.get(kind)
    if found is None or found.switch is None or is_off(said, found.switch):
        return False
    return decode(cleaned(said), found.form).outcome() is None


def is_off(said: Said, switch: owners.Switch) -> bool:
    """Whether an owner's own field stops it."""
    return part(said, *switch.path[:-1]).get(switch.path[-1]) == switch.off


def is_steered(said: Said) -> bool:
    """Whether no other scheduler binds its pods; of an owner, a template or a pod."""
    specs = [part(one, "spec") for _, one in templates(said)] or [part(said, "spec")]
    gates = [one.get("name") for it in specs for one in dicts(it.get("schedulingGates"))]
    return GATE in gates or any(it.get("schedulerName") == SCHEDULER for it in specs)


def _release(new: Thing, old: Said) -> None:
    """Takes off templates what the door wrote there when their owner queued."""
    if "jobTemplate" in part(new, "spec"):
        inherit(at(new, ("spec", "jobTemplate")), new, old)
        return
    for _, template in templates(new):
        inherit(template, new, old)
        _free(at(template, ("spec",)))


def _free(spec: Thing) -> None:
    """Takes off Fairway's gate and its name, so that any scheduler may start the pods."""
    gates = [one for one in dicts(spec.pop("schedulingGates", None)) if one.get("name") != GATE]
    spec |= {"schedulingGates": gates} if gates else {}
    spec |= {"schedulerName": DEFAULT_SCHEDULER} if spec.get("schedulerName") == SCHEDULER else {}


def given_back(owner: Thing, kind: tuple[str, str]) -> Thing:
    """An owner as it is where there is no Fairway: any scheduler may start the pods of its templates."""
    made = deepcopy(owner)
    for _, template in templates(made):
        _free(at(template, ("spec",)))
    for path in owners.OWNERS[kind].names if kind in owners.OWNERS else ():
        if part(made, *path).get("schedulerName") == SCHEDULER:
            del at(made, path)["schedulerName"]
    return made


def keep_suspended(review: Review) -> list[str]:
    """A user who suspends or resumes a queued owner by its own field says that it is not to run, or may: it stays
    suspended until its turn. A manifest that says suspended from the start stops nothing when it is applied again."""
    old, new, kind = review.old, review.new, (review.group, review.kind)
    found, queue = owners.OWNERS.get(kind), queue_of(review, old)
    if old is None or not queue or not found or not found.switch or review.is_trusted or is_part(new):
        return []
    was_off, now_off = is_off(old, found.switch), is_off(new, found.switch)
    if was_off == now_off or is_of_others(new):
        return []
    *path, last = found.switch.path
    applied = [part(one, "metadata", "annotations").get(APPLIED) for one in (old, new)]
    if now_off and applied[0] == applied[1] and is_off(_read_json(applied[1]), found.switch):
        at(new, path)[last] = found.switch.on
        return [f"{'.'.join(found.switch.path)}: Fairway sets it; `fairway suspend` stops what runs"]
    at(new, ("metadata", "annotations"))[objects.ACTIVE] = str(not now_off).lower()
    at(new, path)[last] = found.switch.off
    return [] if now_off else [f"it starts when its turn comes in queue {queue}; `fairway why` says when"]


def _read_json(text: object) -> Said:
    try:
        said = msgspec.json.decode(str(text))
    except msgspec.DecodeError:
        return {}
    return said if isinstance(said, dict) else {}


def marks(said: Said | None) -> Mapping[str, Thing]:
    """The labels and the annotations of an object that Fairway reads."""
    return {name: {key: text for key, text in part(said, "metadata", name).items() if key.startswith(f"{GROUP}/")}
            for name in ("labels", "annotations")}


def inherit(template: Thing, owner: Thing, before: Said | None) -> None:
    """A template, of pods or of Jobs, has the queue and our annotations of its owner, where it has none of its own.
    What it had from the owner as that was `before` follows; its user is always the owner's."""
    for name, said in marks(owner).items():
        was = marks(before)[name]
        user = {USER: said[USER]} if USER in said else {}
        if said or was:
            own = {key: text for key, text in part(template, "metadata", name).items() if was.get(key, ...) != text}
            at(template, ("metadata",))[name] = {**said, **own, **user}
