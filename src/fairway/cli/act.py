"""Commands that change a workload: cancel, suspend, resume. They act on the objects that the user made."""

import click

from fairway.kube.client import Client

from .connect import on_cluster
from .find import Found, find
from .main import Problem
from .output import output_option, show


@click.command()
@click.argument("job")
@output_option
@on_cluster
async def cancel(client: Client, namespace: str, job: str, output: str) -> None:
    """Delete a workload's job. What runs gets its signal and its grace period."""
    found = await find(client, namespace, job)
    for one in found.owners or [found.ref]:
        await client.delete(one)
    _tell(output, found, "cancelled")


@click.command()
@click.argument("job")
@output_option
@on_cluster
async def suspend(client: Client, namespace: str, job: str, output: str) -> None:
    """Stop a workload and keep it from starting until it is resumed."""
    found = await _set_active(client, namespace, job, active=False)
    _tell(output, found, "suspended", f"; `fairway resume {job}` lets it queue again")


@click.command()
@click.argument("job")
@output_option
@on_cluster
async def resume(client: Client, namespace: str, job: str, output: str) -> None:
    """Let a suspended workload queue again, at its old place."""
    _tell(output, await _set_active(client, namespace, job, active=True), "resumed", ": it queues again")


async def _set_active(client: Client, namespace: str, job: str, *, active: bool) -> Found:
    """Said by the owner's annotation; by a Workload itself that has no owner."""
    found = await find(client, namespace, job)
    if found.phase in ("Succeeded", "Failed"):
        raise Problem(f"{found.name} is over: it has {found.phase.lower()}; submit it anew to run it", exit_code=1)
    note = {"metadata": {"annotations": {"fairway.dev/active": str(active).lower()}}}
    for owner in found.owners:
        await client.patch(owner, note)
    if not found.owners:
        await client.patch(found.ref, {"spec": {"active": active}})
    return found


def _tell(output: str, found: Found, done: str, more: str = "") -> None:
    """What was done, and to which workload."""
    names = {"name": found.name, "namespace": found.ref.namespace, "queue": found.workload["spec"].get("queue", "")}
    show(output, names | {"workload": found.ref.name, "done": done}, lambda: click.echo(f"{found.name} {done}{more}"))
