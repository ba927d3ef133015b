"""`fairway logs`: what the pods of a workload wrote to their standard output and error."""

import asyncio
import sys
from contextlib import aclosing
from typing import Any

import click

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Ref, Selection

from .connect import on_cluster
from .find import find, pods_of, seen
from .main import Problem


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
