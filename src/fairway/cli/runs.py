"""The runs of a workload's programs, from whatever server there is, and as a table."""

from contextlib import suppress
from dataclasses import replace

import click

from fairway.kube.client import ApiError, Client
from fairway.kube.runs import LOST, Run, Runs, kept, runs_in, text_of

from .find import Found, pods_of
from .output import moment_of_day, print_some, size


async def runs_of(client: Client, found: Found) -> Runs:
    """All that the server keeps, else those of the pods there are."""
    if (known := await kept(client, found.ref)) is not None:
        return replace(known, is_deleted=False)  # a pod that has no Workload is there all the same
    return Runs(found.ref, await _in_pods(client, found), are_kept=False)


async def _in_pods(client: Client, found: Found) -> list[Run]:
    attempt = int(found.status.get("attempt") or 1)
    return [run for rank, pod in await pods_of(client, found) for run in runs_in(pod, rank, attempt)]


async def code_of(client: Client, found: Found) -> int:
    """The exit code of what failed: of the last runs of its ranks the first that failed has it, one that was lost only
    where no program failed; 1 where none failed, or none is known to have run. A workload is over before its programs
    are, which have their grace period: these are waited for."""
    for run in (it for it in (await runs_of(client, found)).items if it.exit_code is None):
        with suppress(ApiError):  # its pod is gone
            async for _ in text_of(client, found.ref, run, (("follow", "true"), ("tailLines", "0"))):
                pass
    return first_failure((await runs_of(client, found)).items or await _in_pods(client, found))


def first_failure(runs: list[Run]) -> int:
    """Of the last runs of all ranks, the exit code of the first that failed."""
    last = {(it.rank, it.container): it for it in runs if it.attempt == runs[-1].attempt}
    failed = ((it.reason == LOST, it.finished or "", it.exit_code) for it in last.values() if it.exit_code)
    return min(failed, default=("", "", 1))[-1]


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
