"""What changes a workload, or reads what it wrote: logs, cancel, suspend, resume; all on the user's own objects."""

import asyncio
import sys
from contextlib import aclosing
from typing import Any

import click

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Ref, Selection

from .connect import on_cluster
from .find import Found, find, pods_of, seen
from .main import Problem
from .output import output_option, show


@click.command()
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Go on until the pod ends.")
@click.option("--rank", type=click.IntRange(min=0), help="Only the pod of this rank; default: all there are.")
@click.option("-c", "--container", default="", metavar="NAME", help="Of this container; default: as with kubectl.")
@on_cluster
async def logs(client: Client, namespace: str, job: str, follow: bool, rank: int | None, container: str) -> None:
    """Print what a workload wrote, of each rank in turn: its own bytes, in no other format."""
    found = await find(client, namespace, job)
    chosen = [pod for at, pod in await pods_of(client, found) if rank in (None, at)]
    if not chosen:
        which = "" if rank is None else f" of rank {rank}"
        raise Problem(f"{found.name} has no pods{which} now; see `fairway why {job}`", exit_code=1)
    for together in [chosen] if follow else [[pod] for pod in chosen]:
        await asyncio.gather(*(print_log(client, pod, container, follow=follow) for pod in together))


async def print_log(client: Client, pod: dict[str, Any], container: str = "", *, follow: bool = False) -> None:
    """The log of a container of a pod to standard output, by default of the one that kubectl takes; followed, it waits
    for the pod to start first. A pod that is gone before it wrote anything has none."""
    notes, first = pod["metadata"].get("annotations") or {}, pod["spec"]["containers"][0]["name"]
    query = [("container", container or notes.get("kubectl.kubernetes.io/default-container") or first)]
    ref = Ref(kinds.PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
    if follow:
        await _has_started(client, ref)
    try:
        async for chunk in client.logs(ref, query=(*query, *[("follow", "true")] * follow)):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
    except ApiError as error:
        if not follow or error.status != 404:
            raise


async def _has_started(client: Client, pod: Ref) -> None:
    """Returns when a container of the pod runs or has run, or the pod is gone."""
    named = Selection(pod.kind, pod.namespace, fields=f"metadata.name={pod.name}")
    async with aclosing(seen(client, named)) as states:
        async for change, state in states:
            if change == "DELETED" or (state.get("status") or {}).get("phase", "Pending") != "Pending":
                return


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
