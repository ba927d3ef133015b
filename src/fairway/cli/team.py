"""`fairway team`: which Unix groups of this machine use which queues.

A Queue's annotation names its groups, and its `spec.namespaces` selects the label that the namespaces of their members
have. Members who have logged in get or lose it at once, the others when they come. Only an administrator may write
these; what a queue is owed beyond that is its own matter, in `kubectl edit queue`.
"""

import re
from collections.abc import AsyncIterator, Sequence
from fractions import Fraction
from typing import Any

import click

from fairway.api import team as rules
from fairway.api.scalars import exact
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref, Selection

from .amounts import allocatable
from .connect import on_cluster, unseen
from .listing import GPU
from .main import Command, Problem
from .output import output_option, print_table, show

Thing = dict[str, Any]
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@click.group()
def team() -> None:
    """Open queues of a team's machine to Unix groups, and close them."""


@team.command(cls=Command)
@click.argument("group")
@click.option("--queue", default="", metavar="QUEUE", help="The queue; default: one of the group's name.")
@click.option("--gpus", type=click.IntRange(0), metavar="N", help="GPUs that it is owed; default: 0 of a new queue.")
@click.option("--weight", type=click.FloatRange(0), metavar="W", help="Its part of what others leave; default: 1.")
@on_cluster
async def add(client: Client, namespace: str, group: str, queue: str, **quota: Any) -> None:
    """Let the members of a group use a queue, which is made where there is none: fairway team add vision --gpus 4"""
    name = queue or group
    _check(group, name)
    has, most = await _gpus(client), quota["gpus"] or 0
    if 0 < has < most:
        raise Problem(f"--gpus: found {most}; this machine has {has}, so at most {has} can be owed", exit_code=1)
    there = await client.find(Ref(kinds.QUEUES, name))
    groups = sorted({*(rules.groups_of(there) if there else ()), group})
    made = {"metadata": {"name": name, "annotations": {rules.GROUPS: " ".join(groups)}},
            "spec": {"quotas": _quotas(there, **quota), "namespaces": _selector(there, name)}}
    if there is None:
        await client.create(kinds.QUEUES, {"apiVersion": kinds.FAIRWAY, "kind": "Queue", **made})
    else:
        await client.patch(Ref(kinds.QUEUES, name), made)
    await _lend_default(client)
    changed = await _label(client)
    owed = made["spec"]["quotas"][0].get("guaranteed", {}).get(GPU, 0)
    click.echo(f"{group}: queue {name}, {owed} GPUs guaranteed{_members(changed)}")
    whole = sum(_owed(it, has) for it in await client.list(Selection(kinds.QUEUES)))
    if most and whole > has:
        parts = "while all ask for theirs, each gets its part of those"
        click.echo(f"queues are owed {float(whole):g} GPUs together, and this machine has {has}: {parts}", err=True)


@team.command(cls=Command)
@click.argument("group")
@click.option("--queue", default="", metavar="QUEUE", help="Only this queue; default: all that the group uses.")
@on_cluster
async def remove(client: Client, namespace: str, group: str, queue: str) -> None:
    """Close queues to the members of a group; the queues stay, and what runs in them."""
    found = [it for it in await client.list(Selection(kinds.QUEUES))
             if group in rules.groups_of(it) and queue in ("", it["metadata"]["name"])]
    if not found:
        where = f"queue {queue} is not" if queue else "no queue is"
        raise Problem(f"{where} open to group {group}; `fairway team ls` lists what is", exit_code=1)
    for one in found:
        name, left = one["metadata"]["name"], [it for it in rules.groups_of(one) if it != group]
        await client.patch(Ref(kinds.QUEUES, name), {"metadata": {"annotations": {rules.GROUPS: " ".join(left)}}})
        last = "" if left else f"; no group uses it now: `kubectl delete queue {name}` removes it"
        click.echo(f"{group}: queue {name} is closed to it{last}")
    await _label(client)


@team.command("ls", cls=Command)
@output_option
@on_cluster
async def list_(client: Client, namespace: str, output: str) -> None:
    """List the groups, their queues and who has logged in."""
    queues, people = await client.list(Selection(kinds.QUEUES)), await _people(client)
    if people is None:
        click.echo("who has logged in is not shown: you may not list namespaces", err=True)
    rows = [_row(group, queue, people or {}) for queue in queues for group in rules.groups_of(queue)]
    rows.sort(key=lambda it: (it["group"], it["queue"]))
    empty = "no queue is open to a group; `fairway team add GROUP --gpus N` opens one"
    head = ["GROUP", "QUEUE", "GPUS", "WEIGHT", "MEMBERS"]
    show(output, rows, lambda: print_table(head, [_line(it) for it in rows],
                                           empty=empty))  # fmt: skip


def _line(row: Thing) -> list[object]:
    return [row["group"], row["queue"], row["gpus"], f"{row['weight']:g}", ", ".join(row["members"])]


def _row(group: str, queue: Thing, people: dict[str, Sequence[str]]) -> Thing:
    quota = next(iter((queue.get("spec") or {}).get("quotas") or ()), {})
    owed = (quota.get("guaranteed") or {}).get(GPU, 0)
    members = sorted(name for name, groups in people.items() if group in groups)
    return {"group": group, "queue": queue["metadata"]["name"], "gpus": owed, "weight": quota.get("weight", 1),
            "members": members}


async def _gpus(client: Client) -> int:
    """What the machine offers."""
    return sum(int(allocatable(it).get(GPU, 0)) for it in await client.list(Selection(kinds.NODES)))


def _owed(queue: Thing, has: int) -> Fraction:
    """GPUs that a queue with no queue above it is guaranteed; what is owed below it is a part of them."""
    spec = queue.get("spec") or {}
    quota = next((it for it in spec.get("quotas") or () if it.get("pool", "*") == "*"), {})
    said = "0" if spec.get("parent") else str((quota.get("guaranteed") or {}).get(GPU, 0))
    return exact(said[:-1]) / 100 * has if said.endswith("%") else exact(said)


def _check(group: str, queue: str) -> None:
    from fairway.embedded.team.people import is_group

    if not is_group(group):
        raise Problem(f"there is no Unix group {group!r}; `sudo groupadd {group}` makes it", exit_code=1)
    if not NAME.fullmatch(queue):
        raise Problem(f"--queue: {queue!r} is no name for a queue: small letters, digits and '-', at most 63")


def _quotas(there: Thing | None, gpus: int | None, weight: float | None) -> list[Thing]:
    """The quotas of a queue with what is asked for in that of all pools."""
    quotas = [dict(it) for it in ((there or {}).get("spec") or {}).get("quotas") or ()]
    whole = next((it for it in quotas if it.get("pool", "*") == "*"), None)
    if whole is None:
        whole = {"pool": "*", "guaranteed": {GPU: 0}}
        quotas.insert(0, whole)
    if gpus is not None:
        whole["guaranteed"] = {**(whole.get("guaranteed") or {}), GPU: gpus}
    if weight is not None:
        whole["weight"] = weight
    return quotas


def _selector(there: Thing | None, name: str) -> Thing:
    wanted = {"matchLabels": {f"{rules.OPEN}{name}": "true"}}
    said = ((there or {}).get("spec") or {}).get("namespaces")
    if said and said != wanted:
        raise Problem(f"queue {name} has a `spec.namespaces` of its own; take it out first: kubectl edit queue {name}",
                      exit_code=1)
    return wanted


async def _lend_default(client: Client) -> None:
    """A queue without quotas gives nothing back; that of all who name none is owed nothing, so that it does."""
    quotas = {"quotas": [{"pool": "*", "guaranteed": {GPU: 0}}]}
    there = await client.find(Ref(kinds.QUEUES, "default"))
    if there is None:
        await client.ensure(kinds.QUEUES, {"apiVersion": kinds.FAIRWAY, "kind": "Queue",
                                           "metadata": {"name": "default"}, "spec": quotas})
    elif not (there.get("spec") or {}).get("quotas"):
        await client.patch(Ref(kinds.QUEUES, "default"), {"spec": quotas})


async def _label(client: Client) -> dict[str, dict[str, str | None]]:
    """Gives the namespaces of users the labels that they should have; what changed, by user."""
    queues, changed = await client.list(Selection(kinds.QUEUES)), dict[str, dict[str, str | None]]()
    async for space, user, groups in _spaces(client):
        merged = rules.changes(space["metadata"].get("labels") or {}, rules.labels_of(groups, queues))
        if merged:
            await client.patch(Ref(kinds.NAMESPACES, space["metadata"]["name"]), {"metadata": {"labels": merged}})
            changed[user] = merged
    return changed


async def _people(client: Client) -> dict[str, Sequence[str]] | None:
    """The users who have logged in, and their groups; None where the reader may not know."""
    with unseen():
        return {user: groups async for _, user, groups in _spaces(client)}
    return None


async def _spaces(client: Client) -> AsyncIterator[tuple[Thing, str, Sequence[str]]]:
    """The namespaces of users whom the machine knows, with their names and groups."""
    from fairway.embedded.team.people import person_of

    for space in await client.list(Selection(kinds.NAMESPACES)):
        uid = (space["metadata"].get("annotations") or {}).get(rules.UID, "")
        person = person_of(int(uid)) if uid.isdigit() else None
        if person is not None and rules.space_of(person.name) == space["metadata"]["name"]:
            yield space, person.name, person.groups


def _members(changed: dict[str, dict[str, str | None]]) -> str:
    opened = ", ".join(sorted(changed))
    return f"; opened to {opened}" if changed else "; its members have it from their first command on"
