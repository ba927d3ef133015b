"""Commands that change workloads: cancel, suspend, resume. They act on the objects that the user made."""

from typing import Any

import click

from fairway.kube.client import Client

from .connect import on_cluster
from .find import Found
from .main import Problem
from .many import Choice, found_by, on_each, several
from .output import output_option


@click.command()
@several
@output_option
@on_cluster
async def cancel(client: Client, namespace: str, output: str, **choice: Any) -> int:
    """Delete the jobs of workloads. What runs gets its signal and its grace period."""
    return await on_each(client, await found_by(client, namespace, Choice(**choice)), output, _cancel)


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
    for one in found.owners or [found.ref]:
        await client.delete(one)
    return "cancelled"


async def _suspend(client: Client, found: Found) -> str:
    await _set_active(client, found, active=False)
    return f"suspended; `fairway resume {found.name}` lets it queue again"


async def _resume(client: Client, found: Found) -> str:
    await _set_active(client, found, active=True)
    return "resumed: it queues again"


async def _set_active(client: Client, found: Found, *, active: bool) -> None:
    """By an annotation of the owner; in the spec of a Workload that has no owner."""
    if found.phase in ("Succeeded", "Failed"):
        raise Problem(f"{found.name} is over: it has {found.phase.lower()}; submit it anew to run it", exit_code=1)
    note = {"metadata": {"annotations": {"fairway.dev/active": str(active).lower()}}}
    for owner in found.owners:
        await client.patch(owner, note)
    if not found.owners:
        await client.patch(found.ref, {"spec": {"active": active}})
