"""Which runs of a workload are printed, and how: their own bytes, with headers on standard error."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Iterable
from dataclasses import dataclass, field

import click

from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Ref
from fairway.kube.runs import Notice, Place, Run, text_of

from .output import moment_of_day

LONGEST_LINE = 1 << 20
PAUSE_SECONDS = 0.5
Query = tuple[tuple[str, str], ...]


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


def say(text: str) -> None:
    """On standard error, after what standard output has so far."""
    sys.stdout.flush()
    click.echo(f"== {text}", err=True)


@dataclass(slots=True)
class Printer:
    """Prints runs. `has_several`: of several ranks. With `has_ranks` each line begins with its rank, and only whole
    lines are printed. `silent`: nodes that did not answer; they are not asked again."""

    client: Client
    workload: Ref
    choice: Choice
    has_headers: bool = False
    has_several: bool = False
    has_ranks: bool = False
    silent: set[str] = field(default_factory=set)
    _open: dict[int, bytes] = field(default_factory=dict)  # by rank: the beginning of its line, or what ends it

    async def print(self, run: Run, *, last: int, more: Query = (), after: Awaitable[None] | None = None) -> None:
        """A run's text, after that of `after`. `last`: the number of the last attempt so far."""
        if after:
            await asyncio.wait([asyncio.ensure_future(after)])
        if self.has_headers or run.attempt > 1 or run.retry:
            self._say(header(run, last, has_rank=self.has_several))
        if run.node in self.silent:
            self._say(f"rank {run.rank}: its log cannot be read: node {run.node} does not answer")
            return
        try:
            async for piece in self._pieces(run, more):
                if isinstance(piece, Notice):
                    self._say(piece.text if not self.has_ranks else f"rank {run.rank}: {piece.text}")
                else:
                    self._write(run.rank, piece)
        except ApiError as error:
            if error.status != 404:
                self._miss(run, error)
            elif run.id:  # else the pod is gone
                self._say(f"rank {run.rank}: the server no longer keeps this run; the end of its log may be missing")
        except TimeoutError as error:
            self._miss(run, error)
        self._end(run.rank)

    async def _pieces(self, run: Run, more: Query) -> AsyncGenerator[bytes | Notice, None]:
        """Its text. Where the server keeps runs, a log that is followed and was cut is read on from where it was cut,
        until a server has sent its end."""
        place = Place()
        while True:
            try:
                async for piece in text_of(self.client, self.workload, run, (*self.choice.query, *more), place):
                    yield piece
                return
            except ConnectionError:
                if not (more and run.id):
                    raise
            await self.client.clock.sleep(PAUSE_SECONDS)

    def _miss(self, run: Run, error: ApiError | TimeoutError) -> None:
        """Says that the node of a run does not give its log; others may be read. Raises what the server refuses."""
        if isinstance(error, ApiError) and error.status < 500:
            raise error
        why = f": {error.message}" if isinstance(error, ApiError) and error.message else ""
        self.silent.add(run.node)
        self._say(f"rank {run.rank}: its log cannot be read: node {run.node} does not answer{why}")

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
