"""Commands that change workloads: cancel, suspend, pause, resume. They act on the objects that the user made."""

from typing import Any

import click
import msgspec

from fairway.kube.client import Client

from .connect import on_cluster
from .find import Found
from .listing import Listed, reason
from .main import Command, Problem
from .many import Choice, agreed, found_by, on_each, several
from .output import output_option
from .replicas import changeable, deletable, follows, woken
from .verdict import LEAVING_SECONDS, MOST_SECONDS, first_verdict

PAUSE_SECONDS, LOOK_SECONDS = 45.0, 0.1
ON = ("running", "retrying", "starting", "waiting")


@click.command(cls=Command)
@several
@click.option("--forget", is_flag=True, help="Also remove the record of those that have ended.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before many are cancelled.")
@output_option
@on_cluster
async def cancel(client: Client, namespace: str, output: str, *, forget: bool, yes: bool, **choice: Any) -> int:
    """Delete the jobs of workloads. What runs gets its signal and its grace period.

    What has ended keeps its record."""
    chosen = Choice(**choice)
    found = await found_by(client, namespace, chosen, with_over=forget)
    if not yes and not chosen.jobs and not agreed("cancel", found):
        raise Problem("nothing is cancelled", exit_code=1)
    act = _forget if forget else _cancel
    return await on_each(client, found, output, act if not chosen.jobs else lambda it, one: act(it, deletable(one)))


@click.command(cls=Command)
@several
@output_option
@on_cluster
async def suspend(client: Client, namespace: str, output: str, **choice: Any) -> int:
    """Stop workloads and keep them from starting until they are resumed."""
    return await on_each(client, await found_by(client, namespace, Choice(**choice)), output, _suspend)


@click.command(cls=Command)
@several
@output_option
@on_cluster
async def pause(client: Client, namespace: str, output: str, **choice: Any) -> int:
    """Freeze the processes of workloads until they are resumed: their CPUs and GPUs are free, their memory stays.

    What cannot be frozen where it runs is stopped, as `fairway suspend` does."""
    return await on_each(client, await found_by(client, namespace, Choice(**choice)), output, _pause)


@click.command(cls=Command)
@several
@output_option
@on_cluster
async def resume(client: Client, namespace: str, output: str, **choice: Any) -> int:
    """Let suspended workloads queue again, at their old places, and paused ones go on."""
    return await on_each(client, await found_by(client, namespace, Choice(**choice)), output, _resume)


async def _cancel(client: Client, found: Found) -> str:
    if found.is_over:
        ended = reason(msgspec.convert(found.workload, Listed), client.clock.now())
        record = f"`fairway cancel --forget {found.name}` removes its record"
        return f"had ended before: {ended}; nothing to cancel ({record})"
    return await _delete(client, found, "cancelled")


async def _forget(client: Client, found: Found) -> str:
    return await _delete(client, found, "forgotten: its log stays for a while" if found.is_over else "cancelled")


async def _delete(client: Client, found: Found, done: str) -> str:
    for one in found.owners or [found.ref]:
        await client.delete(one)
    return done


async def _suspend(client: Client, found: Found) -> str:
    await _set_active(client, found, active=False)
    return f"suspended; `fairway resume {found.name}` lets it queue again"


async def _resume(client: Client, found: Found) -> str:
    if await woken(client, found):
        return "resumed: its pod queues again"
    was_off = await _is_off(client, found)
    await _set_active(client, found, active=True)
    if not was_off and (state := msgspec.convert(found.workload, Listed).state) in ON:
        return f"is {state}: there is nothing to resume"
    made, is_paused = found.workload["metadata"].get("ownerReferences"), found.status.get("paused") is not None
    asks = made and (is_paused or found.phase in ("Parked", "Suspended"))
    stops, leaves = (" when it has stopped", LEAVING_SECONDS) if "admission" in found.status else ("", MOST_SECONDS)
    line = await first_verdict(client, found.ref, made[0]["uid"], leaves=leaves) if asks else ""
    return f"resumed: it {line or ('goes on when its place is free' if is_paused else f'queues again{stops}')}"


async def _pause(client: Client, found: Found) -> str:
    """Asks for it, and says which way was taken as soon as that is known."""
    runs = found.phase in ("Admitted", "Running")
    await _set_active(client, found, active=True, paused=True)
    if found.status.get("paused") is not None and "admission" not in found.status:
        return f"stays paused; `fairway resume {found.name}` lets it go on"
    if not runs:
        return f"waits no longer; `fairway resume {found.name}` lets it queue again"
    until = client.clock.elapsed() + PAUSE_SECONDS
    while client.clock.elapsed() < until:
        status = (await client.find(found.ref) or {}).get("status") or {}
        if status.get("phase") == "Paused" and "admission" not in status:
            return f"paused: its processes are frozen; `fairway resume {found.name}` lets them go on"
        if status.get("phase") == "Suspended" or status.get("reason") == "NotPaused":
            return f"stopped, since it cannot be frozen; `fairway resume {found.name}` lets it queue again"
        await client.clock.sleep(LOOK_SECONDS)
    return f"is being paused; `fairway status {found.name}` says how far that is"


async def _is_off(client: Client, found: Found) -> bool:
    """Whether its user has suspended or paused it, whether or not that is done."""
    owners = [await client.find(one) or {"metadata": {}} for one in found.owners]
    notes = [it["metadata"].get("annotations") or {} for it in owners]
    said = [(it.get("fairway.dev/active", "true"), it.get("fairway.dev/paused", "false")) for it in notes]
    spec = found.workload["spec"]
    return any(it != ("true", "false") for it in said) or not spec.get("active", True) or spec.get("paused", False)


async def _set_active(client: Client, found: Found, *, active: bool, paused: bool = False) -> None:
    """By annotations of the owner; in the spec of a Workload that has no owner."""
    if found.is_over:
        raise Problem(f"{found.name} is over: it has {found.phase.lower()}; submit it anew to run it", exit_code=1)
    changeable(found)
    if not active:
        await follows(client, found)
    notes = {"fairway.dev/active": str(active).lower(), "fairway.dev/paused": "true" if paused else None}
    for owner in found.owners:
        await client.patch(owner, {"metadata": {"annotations": notes}})
    if not found.owners:
        await client.patch(found.ref, {"spec": {"active": active, "paused": paused}})
