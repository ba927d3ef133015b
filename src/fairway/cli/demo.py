"""`fairway demo`: the story of the README, told by a real cluster in a temporary directory that is removed again.

Two acts. With one accelerator: three trainings queue, an urgent job takes the place of the one that runs, which writes
its checkpoint and goes on from it afterwards. With four: a team borrows what another leaves idle and gives it back; a
gang starts whole and its processes talk to each other. Every line printed is something that was seen to happen.
"""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from .main import Problem

NAMESPACE = "default"
PATIENCE_SECONDS = 60.0
Test = Callable[[dict[str, Any]], bool]


@click.command()
@click.option("--fast", is_flag=True, help="Shorter trainings.")
def demo(fast: bool) -> None:
    """The story of the README, on a cluster of its own that it removes again. Takes less than a minute."""
    with tempfile.TemporaryDirectory(prefix="fairway-demo-") as folder:
        try:
            asyncio.run(_tell(Path(folder), steps=500 if fast else 1000))
        finally:
            _command(Path(folder), "down", check=False)


async def _tell(folder: Path, *, steps: int) -> None:
    async with _cluster(folder, "--fake-gpus", "1") as stage:
        await _one_accelerator(stage, steps)
    async with _cluster(folder, "--fake-gpus", "4") as stage:
        await _two_teams(stage, steps)
    _say("That was all of it: real processes, and a cluster that is gone now. `fairway up` starts yours.")


@asynccontextmanager
async def _cluster(folder: Path, *options: str) -> "AsyncIterator[_Stage]":
    from fairway.clock import Clock
    from fairway.kube.client import Client
    from fairway.kube.config import load
    from fairway.kube.http import http_transport

    _command(folder, "up", "--detach", "--cpus", "8", *options)
    clock = Clock()
    try:
        async with http_transport(load([folder / "kubeconfig"]), clock) as transport:
            yield _Stage(Client(transport, clock), folder)
    finally:
        _command(folder, "down", check=False)


def _command(folder: Path, name: str, *arguments: str, check: bool = True) -> str:
    """What a command of ours prints, on the demo's cluster."""
    where = ("--data-dir", str(folder)) if name in ("up", "down") else ("--kubeconfig", str(folder / "kubeconfig"))
    command = [sys.executable, "-m", "fairway.cli.main", name, *where, *arguments]
    found = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if check and found.returncode:
        raise Problem(f"demo: `fairway {name}` failed: {found.stderr.strip()}", exit_code=1)
    return found.stdout


def _say(text: str) -> None:
    click.secho(f"▸ {text}", bold=True)


def _quote(text: str, *, only: str = "") -> None:
    for line in text.splitlines():
        if not only or any(word in line for word in only.split("|")):
            click.echo(f"    {line}")


@dataclass(frozen=True, slots=True)
class _Stage:
    """A cluster to tell the story on."""

    client: Any
    folder: Path

    async def job(self, name: str, command: list[str], *, pods: int = 1, **where: str) -> None:
        """An ordinary Job of one GPU a pod; `where` names its queue and priority."""
        from fairway.kube import kinds

        container = {
            "name": "main",
            "image": "none",
            "command": [sys.executable, "-m", *command],
            "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
            "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "1"}},
        }
        pod = {"restartPolicy": "Never", "containers": [container]}
        pod |= {"priorityClassName": where["priority"]} if "priority" in where else {}
        spec = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": {"spec": pod}}
        labels = {"fairway.dev/queue": where.get("queue", "default")}
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}, "spec": spec}
        await self.client.create(kinds.JOBS, body, namespace=NAMESPACE)

    async def training(self, name: str, steps: int, **where: str) -> None:
        checkpoint = str(self.folder / f"{name}.npz")
        command = ["fairway.cli.workloads.train", "--checkpoint", checkpoint, "--steps", str(steps)]
        await self.job(name, command, **where)

    async def until(self, name: str, test: Test) -> dict[str, Any]:
        """The Workload of a job, when it first passes the test."""
        from fairway.kube import kinds
        from fairway.kube.kinds import Selection

        from .find import seen

        async def wait() -> dict[str, Any]:
            named = Selection(kinds.WORKLOADS, NAMESPACE, fields=f"metadata.name=job-{name}")
            async with aclosing(seen(self.client, named)) as states:
                async for change, state in states:
                    if change != "DELETED" and test(state.get("status") or {}):
                        return state
            raise AssertionError("what is seen has no end")

        try:
            return await self.client.clock.within(PATIENCE_SECONDS, wait())
        except TimeoutError as error:
            raise Problem(f"demo: {name} did not get on within {PATIENCE_SECONDS:.0f} s", exit_code=1) from error

    async def phase(self, name: str, phase: str) -> dict[str, Any]:
        return await self.until(name, lambda status: status.get("phase") == phase)

    def command(self, name: str, *arguments: str) -> str:
        return _command(self.folder, name, *arguments)

    def step(self, name: str) -> int:
        """The step that a training's checkpoint on disk is at."""
        import numpy as np

        with np.load(self.folder / f"{name}.npz") as saved:
            return int(saved["step"])


async def _one_accelerator(stage: _Stage, steps: int) -> None:
    from fairway.kube import kinds
    from fairway.kube.kinds import Ref, Selection

    node = (await stage.client.list(Selection(kinds.NODES)))[0]["metadata"]["name"]
    await stage.client.patch(Ref(kinds.NODES, node), {"metadata": {"labels": {"node-type": "my-precious"}}})
    for name, value in (("low-priority", 0), ("high-priority", 1_000_000)):
        head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        await stage.client.create(kinds.PRIORITY_CLASSES, head | {"value": value, "globalDefault": not value})
    _say("A cluster of one node, my-precious, with one accelerator. Three trainings queue up for it.")
    await stage.training("first", 3 * steps)
    for name in ("second", "third"):
        await stage.training(name, steps)
    await stage.phase("first", "Running")
    await stage.until("third", lambda status: status.get("position") == 2)
    await stage.until("second", lambda status: bool(status.get("message")))
    _quote(stage.command("ls"))
    _say("Why does the second one wait?")
    _quote(stage.command("why", "second"))
    await _urgent(stage, steps)


async def _urgent(stage: _Stage, steps: int) -> None:
    await _has_checkpoint(stage, "first")
    _say("An urgent job arrives. The first gets SIGTERM, writes its checkpoint, and returns to the queue.")
    await stage.training("urgent", steps // 3, priority="high-priority")
    evicted = await stage.until("first", lambda status: bool(status.get("evictionHistory")))
    await stage.phase("urgent", "Running")
    last = evicted["status"]["evictionHistory"][-1]
    at = stage.step("first")
    click.echo(f"    first: {last['reason']} for {last.get('for')}; its checkpoint on disk is at step {at}")
    _quote(stage.command("ls"))
    await stage.phase("urgent", "Succeeded")
    _say("The urgent one is done. The first runs again, before those submitted after it, from where it was:")
    for name in ("first", "second", "third"):
        await stage.phase(name, "Succeeded")
    said = stage.command("logs", "first")
    _quote(said, only="resuming|done")
    if f"resuming from step {at}" not in said:
        raise Problem(f"demo: the first training did not resume from step {at}", exit_code=1)
    _say("All four have finished.")


async def _has_checkpoint(stage: _Stage, name: str) -> None:
    while not (stage.folder / f"{name}.npz").exists():
        await stage.client.clock.sleep(0.05)


async def _two_teams(stage: _Stage, steps: int) -> None:
    from fairway.kube import kinds

    _say("The same cluster with four accelerators, and two teams that are guaranteed two each.")
    for name in ("vision", "speech"):
        quota = {"pool": "*", "guaranteed": {"nvidia.com/gpu": 2}}
        spec = {"quotas": [quota], "minRuntime": "0s"}
        body = {"apiVersion": kinds.FAIRWAY, "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        await stage.client.create(kinds.QUEUES, body)
    borrowers = [f"vision-{number}" for number in range(1, 5)]
    for name in borrowers:
        await stage.training(name, steps, queue="vision")
    for name in borrowers:
        await stage.phase(name, "Running")
    _say("Speech is idle, so vision borrows its accelerators: four trainings run.")
    _quote(stage.command("queues"))
    for name in borrowers:
        await _has_checkpoint(stage, name)
    _say("Speech asks for its own. Vision gives two back, and no more.")
    for name in ("speech-1", "speech-2"):
        await stage.training(name, steps // 2, queue="speech")
        await stage.phase(name, "Running")
    _quote(stage.command("ls"))
    await _gang(stage)


async def _gang(stage: _Stage) -> None:
    _say("A gang of four arrives. It starts whole or not at all, and says why it waits:")
    await stage.job("gang", ["fairway.cli.workloads.gang"], pods=4)
    await stage.until("gang", lambda status: bool(status.get("message")))
    _quote(stage.command("why", "gang"))
    await stage.phase("gang", "Succeeded")
    _say("Four accelerators were free at last: it ran, and its four processes found each other.")
    said = stage.command("logs", "gang")
    _quote(said)
    if said.count("the sum over all ranks is 6") != 4:
        raise Problem("demo: the gang's processes did not all hear of the sum", exit_code=1)
    for name in ("vision-1", "vision-2", "vision-3", "vision-4", "speech-1", "speech-2"):
        await stage.phase(name, "Succeeded")
