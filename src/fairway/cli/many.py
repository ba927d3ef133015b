"""Which workloads a command is for, named or chosen, and the command on each of them.

A name that does not exist, or an action that is refused, does not stop the others; the exit status tells of it.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click
import msgspec

from fairway.kube.client import ApiError, Client

from .find import Found
from .listing import ORDER, OVER, Listed
from .main import Problem
from .output import is_agreed, show
from .replicas import find
from .rows import Filter, check_queue, chosen, keys, taken

AT_ONCE, MANY = 8, 3
ALL = click.option("--all", "everything", is_flag=True, help="All that -q and --state leave.")
QUEUE = click.option("-q", "--queue", default="", metavar="QUEUE", help="Those of this queue; with --all.")
OF_SLURM = {
    "pending": "waiting", "pd": "waiting", "r": "running", "configuring": "starting", "cf": "starting",
    "completing": "stopping", "cg": "stopping", "s": "suspended", "completed": "finished", "cd": "finished",
    "f": "failed", "ca": "cancelled",
}  # fmt: skip
"""A state of squeue → the word for it here."""


class States(click.Choice[str]):
    """One state, or several with commas."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        for word in value.split(","):
            if word not in self.choices and (ours := OF_SLURM.get(word.lower())):
                raise click.BadParameter(f"{word!r} is a state of Slurm; here it is {ours!r}", ctx, param)
        return ",".join(super(States, self).convert(word, param, ctx) for word in value.split(","))


def parted(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Values of an option that is repeatable, or has several with commas."""
    return tuple(word for text in texts for word in text.split(","))


STATE = click.option("--state", "states", multiple=True, type=States(ORDER), callback=parted,
                     help="In this state; with --all.")  # fmt: skip
SELECTOR = click.option("-l", "--selector", default="", metavar="SELECTOR", help="With these labels, e.g. sweep=3.")
JOBS = click.argument("jobs", metavar="[JOB]...", nargs=-1)


@dataclass(frozen=True, slots=True)
class Choice:
    """The workloads that are meant: by name, or all that labels, a queue and states choose. `how`: by which options."""

    jobs: tuple[str, ...] = ()
    selector: str = ""
    queue: str = ""
    states: tuple[str, ...] = ()
    everything: bool = False
    how: str = "-l SELECTOR or --all"

    def __post_init__(self) -> None:
        by_filter = bool(self.selector or self.queue or self.states or self.everything)
        if by_filter and self.jobs:
            raise Problem("name jobs, or choose them by -l, -q, --state and --all; not both")
        if not by_filter and not self.jobs:
            raise Problem(f"no job is named; name one or several, or choose them with {self.how}")
        if by_filter and not self.selector and not self.everything:
            raise Problem("-q and --state choose many: add --all if you mean all of them")


def several(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument and options that make a Choice."""
    for part in (ALL, STATE, QUEUE, SELECTOR, JOBS):
        command = part(command)
    return command


async def found_by(client: Client, namespace: str, choice: Choice, *, with_over: bool = False) -> list[Found | Problem]:
    """The workloads that a choice means, in its order; a Problem for each name that does not exist. Those that are
    over are not chosen by labels, unless `with_over`."""
    if choice.jobs:
        return [await _named(client, namespace, job) for job in dict.fromkeys(choice.jobs)]
    owners = await chosen(client, namespace, choice.selector) if choice.selector else set()
    filter = Filter(choice.states, choice.queue, owners=owners if choice.selector else None, everything=True)
    listed = await taken(client, namespace, filter)
    if not listed:
        await check_queue(client, choice.queue)
    found: list[Found | Problem] = [
        Found(msgspec.json.decode(raw)) for raw, it in listed if with_over or it.state not in OVER
    ]
    return found if choice.queue or choice.states else found + await _new(client, owners, [it for _, it in listed])


async def _new(client: Client, owners: set[tuple[str, str, str]], listed: Sequence[Listed]) -> list[Found | Problem]:
    """Of the chosen Jobs those that have no Workload yet."""
    known = {key for it in listed for key in keys(it)}
    left = sorted((space, name) for kind, space, name in owners - known if kind == "Job")
    named = [await _named(client, space, f"job/{name}") for space, name in left]
    return [it for it in named if isinstance(it, Found) and "uid" not in it.workload["metadata"]]


async def _named(client: Client, namespace: str, job: str) -> Found | Problem:
    try:
        return await find(client, namespace, job)
    except Problem as problem:
        return problem


Act = Callable[[Client, Found], Awaitable[str]]
"""Does it to one workload and returns what was done, in words after its name."""


async def on_each(client: Client, found: Sequence[Found | Problem], output: str, act: Act) -> int:
    """Does `act` to each, a few at once, with a line for each; returns the exit status."""
    told: list[dict[str, str]] = []
    worst = 0
    for start in range(0, len(found), AT_ONCE):
        part = found[start : start + AT_ONCE]
        for one, done in zip(part, await asyncio.gather(*(_act(client, it, act) for it in part))):
            if isinstance(done, Problem):
                done.show()
                worst = max(worst, done.exit_code)
            elif isinstance(one, Found):
                if output == "table":
                    click.echo(f"{one.name} {done}")
                told.append(_entry(one, done))
    if output != "table":
        show(output, told[0] if len(found) == len(told) == 1 else {"items": told}, lambda: None)
    if len(found) >= MANY and told and output == "table":
        click.echo(", ".join(f"{n:,} {done}" for done, n in Counter(it["done"] for it in told).items()), err=True)
    if not found:
        click.echo("no workload is in that choice", err=True)
    return worst


def agreed(verb: str, found: Sequence[Found | Problem]) -> bool:
    """Whether to go on with those that were chosen, not named: on a terminal its user is asked."""
    those = [it for it in found if isinstance(it, Found)]
    if not (those and sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    states = Counter(msgspec.convert(it.workload, Listed).state for it in those)
    listed = ", ".join(f"{number:,} {state}" for state, number in states.most_common())
    return is_agreed(f"{verb} {len(those):,} workload{'s' * (len(those) > 1)} ({listed})?")


async def _act(client: Client, one: Found | Problem, act: Act) -> str | Problem:
    if isinstance(one, Problem):
        return one
    try:
        return await act(client, one)
    except Problem as problem:
        return problem
    except ApiError as error:
        return Problem(f"{one.name}: {error.message or error}", exit_code=1)


def _entry(one: Found, done: str) -> dict[str, str]:
    names = {"name": one.name, "namespace": one.ref.namespace, "queue": one.workload["spec"].get("queue", "")}
    return names | {"workload": one.ref.name, "done": done.partition(";")[0].partition(":")[0]}
