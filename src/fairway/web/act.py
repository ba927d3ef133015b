"""What a viewer may do to workloads: suspend, resume, cancel, another priority, another queue.

Each changes the object that the user made, as the command line does, and is sent with the viewer's own token: the page
has no right that its viewer lacks. What would be lost is said before.
"""

from collections.abc import Mapping
from typing import Any

from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import WORKLOADS, Kind, Ref, ref

from .access import Sight
from .workload import OVER, Workload
from .world import World

ACTIONS = {
    "suspend": "Stop it, and keep it from starting until it is resumed",
    "resume": "Let it queue again, at its old place; what is paused goes on where it is",
    "cancel": "Delete it: what runs gets its signal and its grace period",
    "priority": "Give it another priority",
    "queue": "Move it to another queue",
}


def offered(it: Workload) -> list[str]:
    """The actions that make sense for it now."""
    if it.state in OVER or it.state == "cancelling":
        return ["cancel"] if it.state in OVER else []
    first = "resume" if it.state in ("suspended", "parked", "paused") else "suspend"
    rest = (["priority"] if it.owners else []) + (["queue"] if it.owners and not it.shares else [])
    return [first, *rest, "cancel"]


def leaves(world: World) -> list[str]:
    """The queues that may hold workloads."""
    parents = {it.spec.parent for it in world.queues.values()}
    return sorted(name for name in world.queues if name not in parents)


def line(it: Workload, action: str, value: str) -> str:
    """The same with kubectl."""
    space, owners = it.namespace, [f"{kind.lower()}/{name}" for _, kind, name in it.owners]
    what = " ".join(owners) or f"fwl/{it.key.partition('/')[2]}"
    if action == "cancel":
        return f"kubectl -n {space} delete {what}"
    active = str(action == "resume").lower()
    if not owners:
        return f"kubectl -n {space} patch {what} --type merge -p '{{\"spec\": {{\"active\": {active}}}}}'"
    if action == "queue":
        return f"kubectl -n {space} label --overwrite {what} fairway.dev/queue={value}"
    note = f"priority-class={value}" if action == "priority" else f"active={active}"
    note += " fairway.dev/paused-" if it.state == "paused" and action == "resume" else ""
    return f"kubectl -n {space} annotate --overwrite {what} fairway.dev/{note}"


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
    active = action == "resume"
    meta = {
        "queue": {"labels": {"fairway.dev/queue": value}},
        "priority": {"annotations": {"fairway.dev/priority-class": value}},
    }.get(action, {"annotations": {"fairway.dev/active": str(active).lower(), "fairway.dev/paused": None}})  # fmt: skip
    for one in owners:
        await client.patch(one, {"metadata": meta})
    if not owners:
        await client.patch(own, {"spec": {"active": active, "paused": False}})
    return ""
