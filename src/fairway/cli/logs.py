"""`fairway logs`: what a workload's programs wrote to their standard output and error, of all attempts.

Standard output has the programs' bytes and nothing else; lines of several ranks that come at the same time begin with
their rank, as `[3] line`. What is said about the text goes to standard error: where an attempt begins, what is missing.
"""

from typing import Any

import click

from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref
from fairway.kube.runs import Run, Runs, kept

from .cancelled import unknown
from .connect import on_cluster
from .follow import follow
from .main import Command, Problem, told
from .printer import Choice, Printer, Query, say
from .replicas import any_of
from .runs import runs_of


@click.command(cls=Command)
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Go on, over evictions, until the job is over.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Only this attempt; default: all.")
@click.option("--previous", "-p", is_flag=True, help="Only the run before the last one, of each rank.")
@click.option("--rank", type=click.IntRange(min=0), metavar="R", help="Only this rank; default: all.")
@click.option("-c", "--container", default="", metavar="NAME", help="Of this container; default: as with kubectl.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines of each rank's last run.")
@click.option("--since", default="", metavar="10m", help="Only what was written in this time.")
@click.option("--timestamps", is_flag=True, help="Begin each line with the time when it was written.")
@on_cluster
async def logs(client: Client, namespace: str, job: str, since: str, timestamps: bool, **said: Any) -> None:
    """Print what a workload wrote, attempt by attempt, rank by rank: its own bytes. Headers go to standard error."""
    choice = Choice(query=_query(since, timestamps=timestamps, tail=said["tail"]), **said)
    found = await any_of(client, namespace, job)
    runs = await (runs_of(client, found) if found else _of_deleted(client, namespace, job))
    if found and found.replicas and choice.is_followed:
        names = ", ".join(it.name for it in found.replicas)
        raise Problem(f"-f: {job} has several workloads; name one of {names}")
    if found and choice.is_followed:
        if (end := await follow(client, found, choice)).is_cancelled:
            say(end.message)
        return
    chosen = choice.of(runs.items)
    _explain(runs, chosen, choice, job)
    several = len({it.rank for it in chosen}) > 1
    printer = Printer(client, runs.workload, choice, has_headers=len(chosen) > 1, has_several=several)
    for run in chosen:
        await printer.print(run, last=max(it.attempt for it in runs.items))
    if printer.silent:
        nodes = ", ".join(sorted(printer.silent))
        raise Problem(f"the logs on node {nodes} are missing; `kubectl get nodes` tells its state", exit_code=1)


def _query(since: str, *, timestamps: bool, tail: int | None) -> Query:
    from fairway.api.scalars import Malformed, duration

    with told(Malformed, ValueError, by="--since: "):
        seconds = max(1, int(duration(since))) if since else None
    said = {"sinceSeconds": seconds, "tailLines": tail, "timestamps": "true" if timestamps else None}
    return tuple((name, str(value)) for name, value in said.items() if value is not None)


async def _of_deleted(client: Client, namespace: str, job: str) -> Runs:
    """What is kept of a workload that is gone."""
    from fairway.api.owners import WORDS

    kind, _, name = job.rpartition("/")
    names = [f"{kind}-{name}", name] if kind else [name, *(f"{kind}-{name}" for kind in ("pod", *WORDS))]
    for each in names if kind != "workload" else [name]:
        if found := await kept(client, Ref(kinds.WORKLOADS, each, namespace)):
            return found
    raise Problem(await unknown(client, namespace, job), exit_code=1)


def _explain(runs: Runs, chosen: list[Run], choice: Choice, job: str) -> None:
    """Says what is special about the runs; a Problem where there are none."""
    if runs.is_deleted:
        say(f"{job} is deleted; this is kept of it")
    first = min((it.attempt for it in runs.items), default=1)
    if not runs.are_kept and first > 1:
        say("this cluster has the logs of pods only while they are there: earlier attempts cannot be shown")
    if chosen:
        return
    if not runs.items:
        raise Problem(f"{job} has no pods that have run; see `fairway why {job}`", exit_code=1)
    asked = {"attempt": choice.attempt, "rank": choice.rank, "container": choice.container}
    which = " and ".join(f"{name} {value}" for name, value in asked.items() if value not in (None, ""))
    attempts, ranks = (_range(name, {getattr(it, name) for it in runs.items}) for name in ("attempt", "rank"))
    containers = sorted({it.container for it in runs.items})
    there = f"it has {attempts}, {ranks} and container{'s' * (len(containers) > 1)} {', '.join(containers)}"
    raise Problem(f"{job} has no {'earlier run' if choice.previous else 'run'} of {which or 'any rank'}; {there}",
                  exit_code=1)  # fmt: skip


def _range(name: str, numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{name} {low}" if low == high else f"{name}s {low} to {high}"
