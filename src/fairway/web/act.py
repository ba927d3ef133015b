"""What a viewer may do to workloads: suspend, resume, cancel, another priority, another queue.

Each changes the object that the user made, as the command line does, and is sent with the viewer's own token: the page
has no right that its viewer lacks. What would be lost is said before, of each workload; of another priority or queue of
a few also what would be decided of each, were it the only one, and which workloads would be evicted for it. That takes
longer, so the dialog is there first.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import groupby, takewhile
from operator import attrgetter
from typing import Any

from fairway.api.objects import ACTIVE, PAUSED, QUEUE
from fairway.api.queues import non_preempting
from fairway.api.workloads import unsaved
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import WORKLOADS, Kind, Ref, ref

from .access import Sight
from .page import fragment
from .workload import HOLDS, OVER, Workload
from .world import World

ACTIONS = {
    "suspend": "It stops, and does not start again until it is resumed, at its old place",
    "resume": "It queues again, at its old place; what is paused goes on where it is",
    "cancel": "It is deleted: what runs gets its signal and its grace period",
    "priority": "No work is lost by the change itself. It takes its position by that priority in {queue}, {may} "
                "preempt what has a lower one there, and may be preempted for what has a higher one",
    "queue": "No work is lost. It gives up its position in {queue}, and takes one in the other, by its order",
}  # fmt: skip
"""What each does to a workload of a queue. `may`: by the class chosen."""
CLASS, NONE = "fairway.dev/priority-class", "none"
MOST_FORESEEN, MOST_LINES = 4, 20
"""Workloads of which it is worked out what would be decided, and that have a line of their own in a dialog."""
Foresee = Callable[[Client, str, Mapping[str, str]], Awaitable[dict[str, Any]]]
"""See submit.Desk.foreseen."""


def offered(it: Workload) -> list[str]:
    """The actions that make sense for it now."""
    if it.state in (*OVER, "cancelling"):
        return [] if it.state.startswith("cancel") else ["cancel"]
    first = "resume" if it.state in ("suspended", "parked", "paused") else "suspend"
    rest = (["priority"] if it.owners else []) + (["queue"] if it.owners and not it.shares else [])
    return [first, *rest, "cancel"]


def leaves(world: World) -> list[str]:
    """The queues that may hold workloads."""
    parents = {it.spec.parent for it in world.queues.values()}
    return sorted(name for name in world.queues if name not in parents)


def _change(it: Workload, action: str, value: str) -> tuple[str, dict[str, str | None]]:
    """What an action writes on the objects that the user made: labels or annotations, by name."""
    if action in ("queue", "priority"):
        meant = None if value == NONE else value
        return ("labels", {QUEUE: value}) if action == "queue" else ("annotations", {CLASS: meant})
    return "annotations", {ACTIVE: str(action == "resume").lower()} | dict.fromkeys([PAUSED] * (action == "resume"))


def line(it: Workload, action: str, value: str) -> str:
    """The same with kubectl."""
    owners = [f"{kind.lower()}/{name}" for _, kind, name in it.owners]
    what = f"kubectl -n {it.namespace} {{}} {' '.join(owners) or 'fwl/' + it.key.partition('/')[2]}"
    if action == "cancel":
        return what.format("delete")
    if not owners:
        active = str(action == "resume").lower()
        return what.format("patch") + f" --type merge -p '{{\"spec\": {{\"active\": {active}}}}}'"
    part, notes = _change(it, action, value)
    words = (f"{name}-" if text is None else f"{name}={text}" for name, text in notes.items())
    return f"{what.format('label --overwrite' if part == 'labels' else 'annotate --overwrite')} {' '.join(words)}"


def lines(them: Sequence[Workload], action: str, value: str) -> str:
    """The same for several: a line for each namespace."""
    if len(them) == 1:
        return line(them[0], action, value)
    verb = f"modify --{action} {value}" if action in ("queue", "priority") else action
    spaces = groupby(them, attrgetter("namespace"))
    names = {space: " ".join(f"workload/{it.key.partition('/')[2]}" for it in own) for space, own in spaces}
    return "\n".join(f"kubectl fairway {verb} -n {space} {own}" for space, own in names.items())


async def dialog(world: World, sight: Sight, asked: Mapping[str, Any], foresee: Foresee | None) -> str:
    """What an action would do to those of the named workloads that it can be done to now and that are not as it would
    make them, what is lost, its choices and its kubectl line, as HTML; with `isForeseen` what would be decided, too."""
    action, keys = str(asked.get("action")), map(str, asked.get("workloads") or ())
    known = (world.workloads[key] for key in keys if key in world.workloads)
    them = sorted((it for it in known if sight.sees(it.namespace) and action in offered(it)), key=attrgetter("key"))
    queues = {it.queue for it in them}
    choices = {
        "queue": {name: name for name in leaves(world) if {name} != queues},
        "priority": {NONE: NONE} | {name: f"{name} ({one.value})" for name, one in sorted(world.priorities.items())
                                    if not name.startswith("system-")},
    }.get(action, {})  # fmt: skip
    own = [it.priority for it in them if action == "priority" and it.priority in choices]
    value = str(asked.get("value") or next(iter([*own, *choices]), ""))
    if action == "queue":
        them = [it for it in them if it.queue != value]
        queues = {it.queue for it in them}
    where = f"queue {min(queues)}" if len(queues) == 1 else "its queue"
    is_never = ("" if value == NONE else value) in non_preempting(world.priorities)
    says = ACTIONS.get(action, "").format(queue=where, may="does not" if is_never else "may")
    facts = {"action": action, "them": them, "says": says, "choices": choices, "value": value, "foreseen": None,
             "foreseeable": MOST_FORESEEN if foresee else 0,
             "line": lines(them, action, value) if them else ""}  # fmt: skip
    decided = [it for it in them if it.state in ("waiting", *HOLDS[:3])] if foresee and choices else []
    facts["is_open"] = 0 < len(decided) == len(them) <= MOST_FORESEEN
    if foresee and facts["is_open"] and asked.get("isForeseen"):
        change = {"queue": value} if action == "queue" else {"priority_class_name": "" if value == NONE else value}
        facts["foreseen"] = {it.key: await foresee(world.client, it.key, change) for it in them}
    stopped = [it for it in them if it.state in (*HOLDS[:3], "paused")] if action in ("suspend", "cancel") else []
    return fragment("dialog", facts | _losses(stopped, world.client.clock.now()) | {
        "named": them[:MOST_LINES], "is_idle": all(it.state in ("waiting", "suspended") for it in them),
        "is_over": all(it.state in OVER for it in them),
    })  # fmt: skip


def _losses(them: Sequence[Workload], now: float) -> dict[str, Any]:
    """GPUs and GPU-hours of work that stopping these now would lose, and since when; of each by its key, and of all."""
    runs = {it.key: [(unsaved(start, end, it.saved, it.saves), end) for start, end in _runs(it, now)] for it in them}
    hours = {it.key: (it.held or it.asked) * sum(max(0.0, end - start) for start, end in runs[it.key]) / 3600
             for it in them}  # fmt: skip
    since = {key: min((start for start, _ in own), default=now) for key, own in runs.items()}
    return {"held": sum(it.held for it in them), "lost": sum(hours.values()), "stopped": them, "losses": hours,
            "sinces": since, "since": min(since.values(), default=now),
            "is_frozen": all(it.state == "paused" for it in them),
            "is_saved": all(it.saved or it.saves for it in them)}  # fmt: skip


def _runs(it: Workload, now: float) -> list[tuple[float, float]]:
    """From when to when its processes ran: until now, and before each pause since they began."""
    paused = takewhile(attrgetter("is_kept"), reversed(it.evictions))
    runs = [] if it.state == "paused" else [(it.since or now, now)]
    return runs + [(one.began or one.time, one.time) for one in paused]


async def act(world: World, sight: Sight, client: Client, asked: Mapping[str, Any]) -> list[dict[str, str]]:
    """Does one action to each workload that is named; of each the error, where there is one."""
    action, value, told = str(asked.get("action")), str(asked.get("value") or ""), []
    for key in map(str, asked.get("workloads") or ()):
        it = world.workloads.get(key)
        try:
            error = await _one(client, it, action, value) if it and sight.sees(it.namespace) else "no such workload"
        except ApiError as refused:
            error = refused.message or str(refused)
        told.append({"workload": key} | ({"error": f"{key}: {error}"} if error else {}))
    return told


async def _one(client: Client, it: Workload, action: str, value: str) -> str:
    """Why the action cannot be done to it; "" where it is."""
    if action not in offered(it):
        return f"it is {it.state}: {action} cannot be done to it now"
    if action in ("priority", "queue") and not value:
        return f"{action}: no value is given"
    owners = [Ref(Kind(kind, f"{kind.lower()}s", version), name, it.namespace) for version, kind, name in it.owners]
    own = ref(WORKLOADS, it.key)
    if action == "cancel":
        for one in owners or [own]:
            await client.delete(one)
        return ""
    part, notes = _change(it, action, value)
    for one in owners:
        await client.patch(one, {"metadata": {part: notes}})
    if not owners:
        await client.patch(own, {"spec": {"active": action == "resume", "paused": False}})
    return ""
