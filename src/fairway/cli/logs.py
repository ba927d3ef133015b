"""`fairway logs`: what a workload's programs wrote to their standard output and error, of all attempts.

Standard output has the programs' bytes and nothing else; lines of several ranks that come at the same time begin with
their rank, as `[3] line`. What is said about the text goes to standard error: where an attempt begins, what is missing.
"""

import asyncio
import sys
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from typing import Any

import click

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Ref

from .connect import on_cluster
from .find import sought
from .main import Problem, told
from .output import moment_of_day
from .runs import Notice, Run, Runs, kept, runs_of, text_of

LONGEST_LINE = 1 << 20
Query = tuple[tuple[str, str], ...]


@click.command()
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
    from .follow import follow

    choice = Choice(query=_query(since, timestamps=timestamps, tail=said["tail"]), **said)
    found = await sought(client, namespace, job)
    runs = await (runs_of(client, found) if found else _of_deleted(client, namespace, job))
    if found and choice.is_followed:
        await follow(client, found, choice)
        return
    chosen = choice.of(runs.items)
    _explain(runs, chosen, choice, job)
    several = len({it.rank for it in chosen}) > 1
    printer = Printer(client, runs.workload, choice, has_headers=len(chosen) > 1, has_several=several)
    for run in chosen:
        await printer.print(run, last=max(it.attempt for it in runs.items))


def _query(since: str, *, timestamps: bool, tail: int | None) -> Query:
    from fairway.api.quantities import Malformed, duration

    with told(Malformed, ValueError, by="--since: "):
        seconds = max(1, int(duration(since))) if since else None
    said = {"sinceSeconds": seconds, "tailLines": tail, "timestamps": "true" if timestamps else None}
    return tuple((name, str(value)) for name, value in said.items() if value is not None)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which runs, and which part of their text."""

    follow: bool = False
    attempt: int | None = None
    previous: bool = False
    rank: int | None = None
    container: str = ""
    tail: int | None = None
    query: Query = ()

    @property
    def is_followed(self) -> bool:
        return self.follow and not self.previous

    def of(self, runs: Iterable[Run]) -> list[Run]:
        found = [
            run for run in runs
            if self.attempt in (None, run.attempt) and self.rank in (None, run.rank)
            and (run.container == self.container if self.container else run.is_default)
        ]  # fmt: skip
        if not self.previous and self.tail is None:
            return found
        by_rank: dict[int, list[Run]] = {}
        for run in found:
            by_rank.setdefault(run.rank, []).append(run)
        place = slice(-2, -1) if self.previous else slice(-1, None)
        return [run for _, own in sorted(by_rank.items()) for run in own[place]]


async def _of_deleted(client: Client, namespace: str, job: str) -> Runs:
    """What is kept of a workload that is gone."""
    from fairway.api.owners import WORDS

    kind, _, name = job.rpartition("/")
    names = [f"{kind}-{name}", name] if kind else [name, *(f"{kind}-{name}" for kind in ("pod", *WORDS))]
    for each in names if kind != "workload" else [name]:
        if found := await kept(client, Ref(kinds.WORKLOADS, each, namespace)):
            return found
    raise Problem(f"no workload {job!r} in namespace {namespace!r}; `fairway ls -A --all` lists all", exit_code=1)


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
    attempts, ranks = (_range({getattr(it, name) for it in runs.items}) for name in ("attempt", "rank"))
    containers = ", ".join(sorted({it.container for it in runs.items}))
    there = f"there are attempts {attempts}, ranks {ranks}, containers {containers}"
    raise Problem(f"{job} has no {'earlier run' if choice.previous else 'run'} of {which or 'any rank'}; {there}",
                  exit_code=1)  # fmt: skip


def _range(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low}" if low == high else f"{low} to {high}"


def say(text: str) -> None:
    """On standard error, after what standard output has so far."""
    sys.stdout.flush()
    click.echo(f"== {text}", err=True)


@dataclass(slots=True)
class Printer:
    """Prints runs. `has_several`: of several ranks. With `has_ranks` each line begins with its rank, and only whole
    lines are printed."""

    client: Client
    workload: Ref
    choice: Choice
    has_headers: bool = False
    has_several: bool = False
    has_ranks: bool = False
    _open: dict[int, bytes] = field(default_factory=dict)  # by rank: the beginning of its line, or what ends it

    async def print(self, run: Run, *, last: int, more: Query = (), after: Awaitable[None] | None = None) -> None:
        """A run's text, after that of `after`. `last`: the number of the last attempt so far."""
        if after:
            await asyncio.wait([asyncio.ensure_future(after)])
        if self.has_headers or run.attempt > 1 or run.retry:
            self._say(header(run, last, has_rank=self.has_several))
        try:
            async for piece in text_of(self.client, self.workload, run, (*self.choice.query, *more)):
                if isinstance(piece, Notice):
                    self._say(piece.text if not self.has_ranks else f"rank {run.rank}: {piece.text}")
                else:
                    self._write(run.rank, piece)
        except ApiError as error:
            if error.status != 404:  # the pod is gone
                raise
        self._end(run.rank)

    def _write(self, rank: int, text: bytes) -> None:
        if self.has_ranks:
            *lines, rest = (self._open.pop(rank, b"") + text).split(b"\n")
            if len(rest) > LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            self._open[rank] = rest
            text = b"".join([b"[%d] %s\n" % (rank, line) for line in lines])
        elif text:
            self._open[rank] = text[-1:]
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()

    def _end(self, rank: int) -> None:
        if self.has_ranks and self._open.get(rank):
            self._write(rank, b"\n")

    def _say(self, text: str) -> None:
        """On a line of its own, also where both outputs go to one place."""
        if not self.has_ranks and any(end not in (b"", b"\n") for end in self._open.values()):
            sys.stdout.buffer.write(b"\n")
            self._open.clear()
        say(text)


def header(run: Run, last: int, *, has_rank: bool) -> str:
    """`attempt 1 of 2, rank 3, started 14:02:10, evicted: Preempted`."""
    attempt, retry = f"attempt {run.attempt} of {max(last, run.attempt)}", f"retry {run.retry}" * bool(run.retry)
    rank, began = f"rank {run.rank}" * has_rank, f"started {moment_of_day(run.started)}" if run.started else ""
    return ", ".join(filter(None, (attempt, retry, rank, began, run.ending)))
