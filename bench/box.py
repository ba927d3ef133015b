"""A cluster of this machine as its users meet it: `fairway up` in a process of its own, commands, and what they cost.

CPU seconds are those of a process and of its children that have ended: on a machine that does other things they tell
more than the time that passed. Programs of jobs append when they began and ended to one file, by the machine's clock.
"""

import asyncio
import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

from fairway.clock import Clock
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.config import load
from fairway.kube.http import http_transport

FAIRWAY = (sys.executable, "-m", "fairway.cli.main")
UNCOMPILED = "PYTHONDONTWRITEBYTECODE"  # with it each command compiles anew what pip compiles once
CONNECTIONS = 8
CPUS = "2"
LOOK_SECONDS = 0.2
MOST_SECONDS = 900.0  # until something comes true


class Cost(NamedTuple):
    """Seconds that passed and CPU seconds that were used by a command, and whether it did what it was asked."""

    wall: float
    cpu: float
    is_done: bool


@dataclass(frozen=True, slots=True)
class Box:
    """A cluster that runs in `folder`. `metrics`: the port they are served on."""

    folder: Path
    pid: int
    metrics: int
    client: Client

    @property
    def times(self) -> Path:
        return self.folder.parent / "times"

    def program(self, seconds: float) -> list[str]:
        """A command that says when it began and when it ended."""
        say = f'date +"%s.%N $0" >> {self.times}'
        return ["sh", "-c", f"{say.replace('$0', 'began')}; sleep {seconds}; {say.replace('$0', 'ended')}"]

    def said(self) -> list[tuple[float, str]]:
        """When programs began and ended, in the order of time."""
        lines = self.times.read_text().split("\n")[:-1] if self.times.exists() else []
        return sorted((float(at), what) for at, _, what in (line.partition(" ") for line in lines))

    def gaps(self) -> list[float]:
        """Seconds from each end to the beginning that followed, of programs that run one at a time."""
        steps = pairwise(self.said())
        return [after - at for (at, what), (after, then) in steps if (what, then) == ("ended", "began")]

    def run(self, *arguments: str) -> Cost:
        return command(*arguments, environment={"KUBECONFIG": str(self.folder / "kubeconfig")})

    def cpu(self) -> float:
        """CPU seconds of the cluster's process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """MiB that are resident now."""
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        asked = urllib.request.Request(f"http://127.0.0.1:{self.metrics}/metrics")
        asked.add_header("Authorization", f"Bearer {(self.folder / 'token').read_text().strip()}")
        with urllib.request.urlopen(asked) as answer:
            text = answer.read().decode()
        return sum(float(line.rpartition(" ")[2]) for line in text.split("\n") if re.match(rf"{name}[ {{]", line))

    def is_sound(self) -> bool:
        """Whether no plan was refused so far."""
        return not self.metric("fairway_refused_items_total")

    async def submit(self, jobs: Iterable[dict[str, Any]]) -> float:
        """Creates Jobs over CONNECTIONS connections, each Job after the answer to the one before; the seconds."""
        left, began = iter(jobs), perf_counter()

        async def send() -> None:
            for job in left:
                await self.client.create(kinds.JOBS, job)

        await asyncio.gather(*(send() for _ in range(CONNECTIONS)))
        return perf_counter() - began

    async def rest(self, share: float = 0.1, seconds: float = 5.0) -> None:
        """Returns when the cluster used less than `share` of a processor for so many seconds."""

        async def rests() -> bool:
            before = self.cpu()
            await asyncio.sleep(seconds)
            return self.cpu() - before < seconds * share

        await until(rests)


@asynccontextmanager
async def box(settings: str = "") -> AsyncIterator[Box]:
    """A new cluster with CPUS processors; it is stopped and its files are removed on leaving."""
    with TemporaryDirectory(prefix="bench-") as name:
        folder, port = Path(name, "data"), _free_port()
        Path(name, "settings.yaml").write_text(f"metricsPort: {port}\n{settings}")
        asked = ("--data-dir", str(folder))
        config = ("--cpus", CPUS, "--config", f"{name}/settings.yaml", "--detach")
        subprocess.run([*FAIRWAY, "up", *asked, *config], check=True, stdout=subprocess.DEVNULL)
        try:
            async with http_transport(load([folder / "kubeconfig"])) as transport:
                yield Box(folder, int((folder / "ready").read_text()), port, Client(transport, Clock()))
        finally:
            subprocess.run([*FAIRWAY, "down", *asked], check=True, stdout=subprocess.DEVNULL)


def command(*arguments: str, environment: dict[str, str] | None = None) -> Cost:
    """One `fairway` command, to its end."""
    began, kept = perf_counter(), {name: text for name, text in os.environ.items() if name != UNCOMPILED}
    child = subprocess.Popen([*FAIRWAY, *arguments], env=kept | (environment or {}), stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return Cost(perf_counter() - began, used.ru_utime + used.ru_stime, child.returncode == 0)


def job(name: str, argv: Sequence[str], cpu: str, **spec: Any) -> dict[str, Any]:
    """As `fairway submit` makes it; its sweep is the part of its name before the first dash."""
    container = {
        "name": "main", "image": "fairway.dev/this-machine", "command": list(argv), "workingDir": "/",
        "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}},
    }  # fmt: skip
    labels = {"fairway.dev/queue": "default", "sweep": name.partition("-")[0]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"suspend": True, "parallelism": 1, "completions": 1, "backoffLimit": 0, "template": template, **spec}
    about = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": spec}


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(MOST_SECONDS):
        while not await holds():
            await asyncio.sleep(LOOK_SECONDS)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
