"""`fairway demo`: the story of the README, told by a real cluster in a temporary directory that is removed again.

Two acts. With one accelerator: three trainings queue, an urgent job takes the place of the one that runs, which writes
its checkpoint and goes on from it afterwards. With four: a team borrows what another leaves idle and gives it back; a
gang starts whole and its processes talk to each other. The script is story.yaml; every line printed is something that
was seen to happen.
"""

import asyncio
import io
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from contextlib import aclosing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from fairway.kube.config import load
from fairway.kube.kinds import PRIORITY_CLASSES, QUEUES, WORKLOADS, Ref
from fairway.kube.manifest import load as read

from .connect import connected
from .find import seen
from .main import Command, Problem, cli

PATIENCE_SECONDS = 60.0
Thing = dict[str, Any]


@click.command(cls=Command)
@click.option("--fast", is_flag=True, help="Shorter trainings.")
def demo(fast: bool) -> None:
    """The story of the README, on a cluster of its own that it removes again. Takes less than a minute."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # its cluster goes, too
    acts: Any = read(Path(__file__).with_name("story.yaml"))
    for act in acts:
        with tempfile.TemporaryDirectory(prefix="fairway-demo-") as folder:
            _machine("up", folder, "--detach", "--cpus", "8", "--fake-gpus", str(act["gpus"]))
            try:
                config = load([Path(folder, "kubeconfig")])
                asyncio.run(connected(config, _tell, folder=folder, steps=act["steps"], unit=500 if fast else 1000))
            finally:
                _machine("down", folder)


def _machine(*words: str) -> None:
    name, folder, *options = words
    command = [sys.executable, "-m", "fairway.cli.main", name, "--data-dir", folder, *options]
    found = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if found.returncode and name == "up":
        raise Problem(f"demo: `fairway {name}` failed: {found.stderr.strip()}", exit_code=1)


async def _tell(client: Any, *, folder: str, steps: list[Thing], unit: int) -> None:
    stage = Stage(client, Path(folder), {"long": 3 * unit, "middle": unit, "half": unit // 2, "short": unit // 3})
    for step in steps:
        (word, what), *more = step.items()
        await getattr(stage, word)(what, **dict(more))


@dataclass(frozen=True, slots=True)
class Stage:
    """The words of a story, each with what it is told of."""

    client: Any
    folder: Path
    lengths: dict[str, int]

    async def say(self, text: str) -> None:
        click.secho(f"▸ {text}", bold=True)

    async def apply(self, things: list[Thing]) -> None:
        for thing in things:
            await self.client.create({it.name: it for it in (PRIORITY_CLASSES, QUEUES)}[thing["kind"]], thing)

    async def run(self, line: str) -> str:
        """What a command of ours prints, on this cluster, on either output."""
        name, *words = shlex.split(line.format(python=sys.executable))
        command: Any = cli.get_command(click.Context(cli), name)
        said = command.make_context(name, words).params
        said = {name: value for name, value in said.items() if name not in ("kubeconfig", "context")}
        printed = io.TextIOWrapper(io.BytesIO(), write_through=True)
        with redirect_stdout(printed), redirect_stderr(printed):
            await command.callback.__wrapped__(self.client, **said | {"namespace": "default"})
        printed.seek(0)
        return printed.read()

    async def quote(self, line: str, *, only: str = "", shows: str = "", times: int = 0) -> None:
        """What it prints, or of that only some lines. So many of them show something."""
        lines = [one for one in (await self.run(line)).splitlines() if re.search(only, one)]
        click.echo("\n".join(f"    {one}" for one in lines))
        if len([one for one in lines if re.search(shows or only, one)]) < times:
            raise Problem(f"demo: `fairway {line}` does not say {shows or only!r} {times} times", exit_code=1)

    async def train(self, line: str) -> None:
        """A job of one accelerator, by its name and length."""
        name, length, *options = line.split()
        steps = self.lengths[length]
        how = f"--checkpoint {self.folder}/{name}.npz --steps {steps} --every {steps // 10}"
        own = f"-m fairway.cli.workloads.train {how}"
        submit = f"submit --name {name} --gpus 1 --env OMP_NUM_THREADS=1 {' '.join(options)}"
        await self.run(f"{submit} -- {{python}} {own}")

    async def checkpoint(self, name: str) -> None:
        """Waits for one to be on disk."""
        while not (self.folder / f"{name}.npz").exists():
            await self.client.clock.sleep(0.05)

    async def until(self, lines: list[str]) -> None:
        """Waits, one after the other, for the status of a job (or queue/…) to have a field, or a value there."""
        for line in lines:
            try:
                await self.client.clock.within(PATIENCE_SECONDS, self._is_so(*line.split()))
            except TimeoutError as error:
                raise Problem(f"demo: {line!r} was not so within {PATIENCE_SECONDS:.0f} s", exit_code=1) from error

    async def _is_so(self, name: str, field: str, value: str = "") -> None:
        kind, own = (QUEUES, name.removeprefix("queue/")) if name.startswith("queue/") else (WORKLOADS, f"job-{name}")
        named = Ref(kind, own, "default" if kind.is_namespaced else "")
        async with aclosing(seen(self.client, named.alone())) as states:
            async for _, state in states:
                found = (state.get("status") or {}).get(field)
                if str(found) == value if value else found:
                    return
