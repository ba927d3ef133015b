"""The runs of a workload's programs, from whatever server there is, and as a table."""

from dataclasses import replace

import click

from fairway.kube.client import Client
from fairway.kube.runs import Run, Runs, kept, runs_in

from .find import Found, pods_of
from .output import moment_of_day, print_some, size


async def runs_of(client: Client, found: Found) -> Runs:
    """All that the server keeps, else those of the pods there are."""
    if (known := await kept(client, found.ref)) is not None:
        return replace(known, is_deleted=False)  # a pod that has no Workload is there all the same
    attempt = int(found.status.get("attempt") or 1)
    runs = [run for rank, pod in await pods_of(client, found) for run in runs_in(pod, rank, attempt)]
    return Runs(found.ref, runs, are_kept=False)


def print_runs(runs: list[Run]) -> None:
    """A line for each run: where and when it ran, how it ended, the size of its log."""
    if not runs:
        return
    has_containers = any(not run.is_default for run in runs)
    head = ["ATTEMPT", "RETRY", "RANK", *["CONTAINER"] * has_containers, "NODE", "STARTED", "ENDED", "EXIT", "LOG"]
    rows = [
        [
            run.attempt, run.retry or "", run.rank, *[run.container] * has_containers, run.node,
            run.started and moment_of_day(run.started), run.finished and moment_of_day(run.finished),
            run.exit_code if not run.reason else run.ending, "" if run.bytes is None else size(run.bytes),
        ]
        for run in runs
    ]  # fmt: skip
    click.echo()
    print_some(head, rows)
