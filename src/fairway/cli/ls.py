"""`fairway ls`: what runs, what waits and why, what ended. It reads; it changes nothing."""

import sys
from typing import Any

import click

from fairway.kube.client import Client

from .cancelled import cancelled, unknown
from .connect import on_cluster
from .leader import warn
from .listing import ORDER, OVER, rank
from .main import Command, Problem
from .many import JOBS, States, parted
from .output import listing_option, show
from .replicas import parked
from .rows import MOST_ROWS, NONE, NONE_CHOSEN, Filter, Sight, check_queue, chosen, names_of, print_rows, taken
from .view import usual_queue
from .watch import watch


@click.command(cls=Command)
@JOBS
@click.option("-A", "--all-namespaces", is_flag=True, help="List all namespaces.")
@click.option("-a", "--all", "everything", is_flag=True, help="List those of the last day that are over, too.")
@click.option("--state", "states", multiple=True, type=States([*ORDER, *OVER]), callback=parted,
              help="In this state; repeatable, or with commas.")
@click.option("-q", "--queue", default="", metavar="QUEUE", help="Of this queue.")
@click.option("-u", "--user", default="", metavar="USER", help="Of this user.")
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="With these labels, e.g. sweep=3.")
@click.option("--all-rows", is_flag=True, help=f"On a terminal, list more than {MOST_ROWS}.")
@click.option("-w", "--watch", "is_live", is_flag=True, help="Stay, and show each change; Ctrl-C ends it.")
@listing_option
@on_cluster
async def ls(client: Client, namespace: str, output: str, **said: Any) -> None:
    """List workloads: what runs, what waits and why."""
    space = "" if said["all_namespaces"] else namespace
    owners = await chosen(client, space, said["selector"]) if said["selector"] else None
    filter = Filter(said["states"], said["queue"], said["user"], owners, said["everything"], frozenset(said["jobs"]))
    if said["is_live"]:
        await check_queue(client, filter.queue)
        return await watch(client, space, filter)
    found = await taken(client, space, filter)
    await warn(client)
    if (filter.everything or "cancelled" in filter.states) and owners is None:
        found += await cancelled(client, space, filter)
    if "parked" in filter.states and owners is None:
        found += await parked(client, space, filter)
    found.sort(key=lambda it: rank(it[1]))
    for job in sorted(filter.jobs.difference(*(names_of(it) for _, it in found))):
        raise Problem(await unknown(client, namespace, job), exit_code=1)
    if not found:
        await check_queue(client, filter.queue)
        await usual_queue(client, namespace)  # a Problem where there is no such namespace
    if output in ("json", "yaml"):
        return show(output, {"items": [raw for raw, _ in found]}, lambda: None)
    items = [it for _, it in found]
    if output == "name":
        return click.echo("".join(f"{it.name}\n" for it in items), nl=False)
    sight = await Sight.of(client, items)
    is_short = output == "table" and sys.stdout.isatty() and not said["all_rows"]
    shown, empty = items[:MOST_ROWS] if is_short else items, NONE_CHOSEN if filter.is_narrow else NONE
    empty = empty.replace("workload is", f"workload of user {filter.user!r} is") if filter.user else empty
    print_rows(shown, sight, space=space, is_wide=output == "wide", empty=empty)
    if is_short and len(items) > MOST_ROWS:
        click.echo(f"… {len(items) - MOST_ROWS:,} more; --all-rows lists them")
    return None
