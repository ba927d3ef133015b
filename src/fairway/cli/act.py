"""Commands that change workloads: cancel, suspend, resume. They act on the objects that the user made."""

from typing import Any

import click
import msgspec

from fairway.kube.client import Client

from .connect import on_cluster
from .find import Found
from .listing import Listed, reason
from .main import Problem
from .many import Choice, agreed, found_by, on_each, several
from .output import output_option
from .replicas import changeable, deletable


@click.command()
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


@click.command()
@several
@output_option
@on_cluster
async def suspend(client: Client, namespace: str, output: str, **choice: Any) -> int:
    """Stop workloads and keep them from starting until they are resumed."""
    return await on_each(client, await found_by(client, namespace, Choice(**choice)), output, _suspend)


@click.command()
@several
@output_option
@on_cluster
async def resume(client: Client, namespace: str, output: str, **choice: Any) -> int:
    """Let suspended workloads queue again, at their old places."""
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
    await _set_active(client, found, active=True)
    return "resumed: it queues again"


async def _set_active(client: Client, found: Found, *, active: bool) -> None:
    """By an annotation of the owner; in the spec of a Workload that has no owner."""
    if found.is_over:
        raise Problem(f"{found.name} is over: it has {found.phase.lower()}; submit it anew to run it", exit_code=1)
    changeable(found)
    note = {"metadata": {"annotations": {"fairway.dev/active": str(active).lower()}}}
    for owner in found.owners:
        await client.patch(owner, note)
    if not found.owners:
        await client.patch(found.ref, {"spec": {"active": active}})
