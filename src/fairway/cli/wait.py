"""`fairway wait`: return when workloads have started or ended, with the exit code of the program.

One list and one watch of Workloads serve any number of jobs.
"""

from contextlib import aclosing
from dataclasses import dataclass, field

import click

from fairway.kube.client import Client

from .connect import on_cluster
from .find import Found
from .listing import OVER, Listed, reason
from .main import Command, Problem, told
from .many import JOBS, SELECTOR, Choice, found_by
from .patient import Patient
from .runs import code_of
from .watch import Key, Known, changes

TIMED_OUT, NAMED = 124, 5


def _seconds(context: click.Context, option: click.Parameter, chosen: str) -> float | None:
    from fairway.api.scalars import Malformed, duration

    with told(Malformed, by="--timeout: "):
        return duration(chosen) if chosen else None


@click.command(cls=Command)
@JOBS
@SELECTOR
@click.option("--for", "goal", type=click.Choice(["started", "finished"]), default="finished", show_default=True,
              help="What to wait for.")
@click.option("--timeout", default="", metavar="10m", callback=_seconds, help="Give up after this time.")
@on_cluster
async def wait(client: Client, namespace: str, goal: str, timeout: float | None, **choice: str) -> int:
    """Wait until workloads have ended, or have started.

    Exit status: 0 if all succeeded (or started), else the exit code of the first program that failed, or was stopped
    at its time limit; 1 where no program failed (a deletion, a name that does not exist); 124 if the time-out comes
    first. A server that is restarted meanwhile is waited for, for ten minutes."""
    found = await found_by(client, namespace, Choice(**choice, how="-l SELECTOR"), with_over=True)  # type: ignore[arg-type]
    problems = [it for it in found if isinstance(it, Problem)]
    for problem in problems:
        problem.show()
    each = [one for it in found if isinstance(it, Found) for one in it.replicas or (it,)]
    waiting = Waiting(Patient(client), {(it.ref.namespace, it.ref.name): it for it in each}, goal)
    try:
        await client.clock.within(timeout, waiting.run(namespace))
    except TimeoutError:
        left = [it.name for it in waiting.left.values()]
        more = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
        raise Problem(f"not {goal} in time: {', '.join(left[:NAMED])}{more}", exit_code=TIMED_OUT) from None
    return waiting.code or max((it.exit_code for it in problems), default=0)


@dataclass(slots=True)
class Waiting:
    """`left`: what has not come that far; `code`: of the first that failed."""

    client: Client
    left: dict[Key, Found]
    goal: str
    code: int = 0
    _seen: set[Key] = field(default_factory=set)

    async def run(self, namespace: str) -> None:
        known: Known = {}
        async with aclosing(changes(self.client, namespace, known)) as seen:
            while self.left:
                changed = await anext(seen)
                for key in list(self.left) if changed is None else {changed} & self.left.keys():
                    await self._look(key, known.get(key))

    async def _look(self, key: Key, one: Listed | None) -> None:
        """A workload that was there and is gone was cancelled; one without a Workload yet is waited for."""
        found = self.left[key]
        if one is None:
            if key in self._seen or found.workload["metadata"].get("uid"):
                self._tell(key, "was cancelled", 1)
        elif one.state == "failed":
            self._tell(key, reason(one, self.client.clock.now()), await code_of(self.client, found))
        elif one.state in OVER:
            self._tell(key, reason(one, self.client.clock.now()), 0)
        elif one.state in ("running", "retrying") and self.goal == "started":
            self._tell(key, f"runs on {one.where()}", 0)
        self._seen |= {key} if one else set()

    def _tell(self, key: Key, words: str, code: int) -> None:
        click.echo(f"{self.left.pop(key).name} {words}", err=bool(code))
        self.code = self.code or code
