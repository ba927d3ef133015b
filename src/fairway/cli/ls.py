"""`fairway ls`: what runs, what waits and why, what ended. It reads; it changes nothing."""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import msgspec

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Kind, Ref, Selection

from .connect import on_cluster
from .listing import DAY_SECONDS, HEAD, LESS, ORDER, OVER, Listed, length, rank, row
from .main import Problem
from .output import listing_option, print_table, show

MOST_ROWS = 200
ARRAY = "fairway.dev/completions"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which workloads are asked for. Without `states` and `everything`: those that are not over."""

    states: tuple[str, ...] = ()
    queue: str = ""
    user: str = ""
    owners: Collection[tuple[str, str, str]] | None = None  # kind, namespace and name of those that labels choose
    everything: bool = False

    def takes(self, one: Listed, now: float) -> bool:
        is_over = one.state in OVER
        if is_over and not (self.everything or self.states):
            return False
        if (self.states and one.state not in self.states) or (is_over and one.since() < now - DAY_SECONDS):
            return False
        if (self.queue and one.spec.queue != self.queue) or (self.user and self.user not in (one.user, one.spec.user)):
            return False
        return self.owners is None or any(key in self.owners for key in keys(one))


def keys(one: Listed) -> list[tuple[str, str, str]]:
    """What its owners and itself go by in a choice by labels."""
    space = one.metadata.namespace
    owners = [(it.kind, space, it.name) for it in one.metadata.owner_references or ()]
    return [*owners, ("Workload", space, one.metadata.name)]


@click.command()
@click.option("-A", "--all-namespaces", is_flag=True, help="List all namespaces.")
@click.option("-a", "--all", "everything", is_flag=True, help="List those of the last day that are over, too.")
@click.option("--state", "states", multiple=True, type=click.Choice([*ORDER, *OVER]), help="In this state; repeatable.")
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
    filter = Filter(said["states"], said["queue"], said["user"], owners, said["everything"])
    if said["is_live"]:
        from .watch import watch

        await _check_queue(client, filter.queue)
        return await watch(client, space, filter)
    found = await taken(client, space, filter)
    if (filter.everything or "cancelled" in filter.states) and owners is None:
        from .cancelled import cancelled

        found = sorted([*found, *await cancelled(client, space, filter)], key=lambda it: rank(it[1]))
    if not found:
        await _check_queue(client, filter.queue)
    if output in ("json", "yaml"):
        return show(output, {"items": [raw for raw, _ in found]}, lambda: None)
    items = [it for _, it in found]
    if output == "name":
        return click.echo("".join(f"{it.name}\n" for it in items), nl=False)
    sight = await Sight.of(client, items)
    is_short = output == "table" and sys.stdout.isatty() and not said["all_rows"]
    print_rows(items[:MOST_ROWS] if is_short else items, sight, space=space, is_wide=output == "wide")
    if is_short and len(items) > MOST_ROWS:
        click.echo(f"… {len(items) - MOST_ROWS:,} more; --all-rows lists them")
    return None


async def _check_queue(client: Client, queue: str) -> None:
    """A Problem where one is asked for that does not exist; who may not see queues is not told."""
    try:
        names = {it["metadata"]["name"] for it in await client.list(Selection(kinds.QUEUES))} if queue else {queue}
    except ApiError as error:
        if error.status != 403:
            raise
        return
    if queue not in names:
        from .mistakes import near

        raise Problem(f"--queue: there is no queue {queue!r}{near(queue, names)}", exit_code=1)


async def taken(client: Client, namespace: str, filter: Filter) -> list[tuple[msgspec.Raw, Listed]]:
    """The Workloads that a filter takes, in the order of `rank`: as they were sent, and read."""
    decode, now = msgspec.json.Decoder(Listed).decode, client.clock.now()
    found = []
    async for page in client.pages(Selection(kinds.WORKLOADS, namespace)):
        found += [(raw, one) for raw in page.items or () if filter.takes(one := decode(raw), now)]
    return sorted(found, key=lambda it: rank(it[1]))


class _Named(msgspec.Struct):
    """An object of which only the name is read."""

    metadata: "_Name"


class _Name(msgspec.Struct):
    name: str
    namespace: str = ""


async def chosen(client: Client, namespace: str, labels: str, of: Sequence[Kind] = ()) -> set[tuple[str, str, str]]:
    """Kind, namespace and name of the objects that a label selector takes: Jobs, bare pods and Workloads."""
    found = set()
    for kind in of or (kinds.JOBS, kinds.PODS, kinds.WORKLOADS):
        for it in await client.list(Selection(kind, namespace, labels=labels), _Named):
            found.add((kind.name, it.metadata.namespace, it.metadata.name))
    return found


@dataclass(frozen=True, slots=True)
class Sight:
    """What rows need beside the workloads. `limits`: the time limit by queue; `done`: by key, of arrays."""

    now: float
    limits: Mapping[str, float]
    done: Mapping[tuple[str, str], str]

    @classmethod
    async def of(cls, client: Client, items: Sequence[Listed]) -> "Sight":
        arrays = [it for it in items[:MOST_ROWS] if ARRAY in (it.metadata.annotations or {})]
        done = {it.key: await _done(client, it) for it in arrays}
        return cls(client.clock.now(), await _limits(client), done)


async def _limits(client: Client) -> dict[str, float]:
    """The default time limit of each queue: its own, or the nearest above it."""
    try:
        queues = {it["metadata"]["name"]: it.get("spec") or {} for it in await client.list(Selection(kinds.QUEUES))}
    except ApiError as error:
        if error.status != 403:
            raise
        return {}
    found = {}
    for name in queues:
        path: list[str] = []
        at = name
        while at in queues and at not in path:
            path.append(at)
            at = queues[at].get("parent", "")
        texts = [(queues[at].get("timeLimit") or {}).get("default", "") for at in path]
        found[name] = length(next(filter(None, texts), ""))
    return found


async def _done(client: Client, one: Listed) -> str:
    """Of an array: how many of its tasks have succeeded, of all."""
    total = (one.metadata.annotations or {})[ARRAY]
    try:
        job = await client.get(Ref(kinds.JOBS, one.name, one.metadata.namespace))
    except ApiError:
        return f"?/{total}"
    return f"{(job.get('status') or {}).get('succeeded', 0)}/{total}"


def print_rows(items: Sequence[Listed], sight: Sight, *, space: str, is_wide: bool = False) -> None:
    head, rows = columns(items, sight, space=space)
    empty = "no workloads run or wait; `fairway submit` queues one, `fairway ls --all` lists those that are over"
    print_table(head, rows, empty=empty, less=() if is_wide else LESS)


def columns(items: Sequence[Listed], sight: Sight, *, space: str) -> tuple[list[str], list[list[str]]]:
    """Heads and rows, without the columns that would be empty; the namespace only where there may be several."""
    rows = [row(it, sight.limits, sight.done.get(it.key, ""), sight.now) for it in items]
    always = ("NAME", "QUEUE", "STATE", "REASON")
    kept = [at for at, name in enumerate(HEAD) if name in always or any(cells[at] for cells in rows)]
    kept = [at for at in kept if at or not space]
    return [HEAD[at] for at in kept], [[cells[at] for at in kept] for cells in rows]
