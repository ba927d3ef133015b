"""What changes a workload, or reads what it wrote: logs, cancel, suspend, resume; all on the user's own objects."""

import asyncio
import sys
from contextlib import aclosing
from typing import Any

import click

from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref, Selection

from .connect import Target, connect, target_options
from .find import Found, find, pods_of, seen
from .main import Problem

ACTIVE = "fairway.dev/active"


@click.command()
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Go on until the pod ends.")
@click.option("--rank", type=click.IntRange(min=0), help="Only the pod of this rank; default: all there are.")
@target_options
def logs(target: Target, job: str, follow: bool, rank: int | None) -> None:
    """Print what a workload wrote, of each rank in turn."""

    async def read(client: Client, namespace: str) -> None:
        found = await find(client, namespace, job)
        pods = await pods_of(client, found)
        chosen = pods if rank is None else pods[rank : rank + 1]
        if not chosen:
            which = "" if rank is None else f" of rank {rank}"
            raise Problem(f"{found.name} has no pods{which} now; see `fairway why {job}`", exit_code=1)
        if follow:
            await asyncio.gather(*(print_log(client, pod, follow=True) for pod in chosen))
        else:
            for pod in chosen:
                await print_log(client, pod)

    connect(target, read)


async def print_log(client: Client, pod: dict[str, Any], *, follow: bool = False) -> None:
    """The log of a pod to standard output; followed, it waits for the container to start first."""
    ref = Ref(kinds.PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
    if follow:
        await _has_started(client, ref)
    async for chunk in client.logs(ref, query=(("follow", "true"),) if follow else ()):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


async def _has_started(client: Client, pod: Ref) -> None:
    """Returns when a container of the pod runs or has run, or the pod is gone."""
    named = Selection(pod.kind, pod.namespace, fields=f"metadata.name={pod.name}")
    async with aclosing(seen(client, named)) as states:
        async for change, state in states:
            started = (state.get("status") or {}).get("phase", "Pending") != "Pending"
            if started or change == "DELETED":
                return


@click.command()
@click.argument("job")
@target_options
def cancel(target: Target, job: str) -> None:
    """Delete a workload's job. What runs gets its signal and its grace period."""

    async def change(client: Client, namespace: str) -> Found:
        found = await find(client, namespace, job)
        await client.delete(found.owner_ref)
        return found

    click.echo(f"{connect(target, change).name} cancelled")


@click.command()
@click.argument("job")
@target_options
def suspend(target: Target, job: str) -> None:
    """Stop a workload and keep it from starting until it is resumed."""
    _set_active(target, job, active=False)
    click.echo(f"{job} suspended; `fairway resume {job}` lets it queue again")


@click.command()
@click.argument("job")
@target_options
def resume(target: Target, job: str) -> None:
    """Let a suspended workload queue again, at its old place."""
    _set_active(target, job, active=True)
    click.echo(f"{job} queues again")


def _set_active(target: Target, job: str, *, active: bool) -> None:
    async def change(client: Client, namespace: str) -> None:
        found = await find(client, namespace, job)
        if found.owner is None:
            await client.patch(found.ref, {"spec": {"active": active}})
        else:
            await client.patch(found.owner_ref, {"metadata": {"annotations": {ACTIVE: str(active).lower()}}})

    connect(target, change)
