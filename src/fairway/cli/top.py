"""`fairway top`: what running workloads use of what they asked for, and each GPU; live on a terminal.

Processes are looked at on the machine that the command runs on, if it is the one of `fairway up`: CPU and memory of a
pod are those of its processes (psutil), a GPU tells by NVML. What runs on other machines is shown with what it asked
for; what of it is used is not known there, and is left empty: never 0.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import click

from fairway.api.names import short_name
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Selection

from .connect import data_dir, on_cluster
from .listing import GPU
from .main import Problem
from .output import output_option, print_table, show, size

if TYPE_CHECKING:
    from fairway.node.measure import Use

Thing = dict[str, Any]
PAUSE_SECONDS, FIRST_SECONDS = 2.0, 0.5
ATTEMPT, ASSIGNED = "fairway.dev/attempt", "fairway.dev/assigned-devices"
HEAD = ["WORKLOAD", "NODE", "CPUS", "CPUS ASKED", "MEMORY", "MEMORY ASKED", "GPUS", "GPU BUSY"]
GPUS = ["GPU", "BUSY", "MEMORY", "OF", "PROCESSES", "WORKLOAD"]


@dataclass(slots=True)
class Line:
    """A workload on a node. `cpus` and `memory` are None where nothing tells; `devices`: those of this machine."""

    name: str
    node: str
    asked: dict[str, int] = field(default_factory=dict)
    cpus: float | None = None
    memory: int | None = None
    devices: list[int] = field(default_factory=list)


@click.command()
@click.argument("job", default="")
@click.option("--once", is_flag=True, help="Print what is used now, and end.")
@output_option
@on_cluster
async def top(client: Client, namespace: str, job: str, once: bool, output: str) -> None:
    """Show what running workloads use of what they asked for, and each GPU of this machine.

    Without a terminal, or with -o json or yaml, it prints once."""
    import sys

    from fairway.node.measure import used

    processes, is_live = Processes(), not once and output == "table" and sys.stdout.isatty()
    await _looked(client, namespace, job, processes)
    while True:
        await client.clock.sleep(PAUSE_SECONDS if is_live else FIRST_SECONDS)
        lines, devices = await _looked(client, namespace, job, processes), await client.clock.in_thread(used)
        if is_live:
            click.clear()
        _show(output, lines, devices)
        if not is_live:
            return


async def _looked(client: Client, namespace: str, job: str, processes: "Processes") -> list[Line]:
    found = await client.list(Selection(kinds.PODS, namespace))
    pods = [it for it in found if it["spec"].get("nodeName") and it["status"].get("phase") == "Running"]
    pods = [it for it in pods if not job or job in (_workload(it), short_name(_workload(it)))]
    if job and not pods:
        raise Problem(f"{job} does not run; `fairway ls` lists what does", exit_code=1)
    lines = _lines(pods)
    await client.clock.in_thread(lambda: processes.add(pods, lines))
    return list(lines.values())


def _lines(pods: Iterable[Thing]) -> dict[tuple[str, str], Line]:
    """By workload and node, what its pods ask for there."""
    from fairway.api.objects import FROZEN
    from fairway.api.pods import requests_of

    found: dict[tuple[str, str], Line] = {}
    for pod in pods:
        key = _workload(pod), pod["spec"]["nodeName"]
        line = found.setdefault(key, Line(*key))
        is_still = any(it["type"] == FROZEN and it["status"] == "True" for it in pod["status"].get("conditions") or ())
        for resource, amount in requests_of(pod):
            if not is_still or resource == "memory":  # what is paused holds no more
                line.asked[resource] = line.asked.get(resource, 0) + amount
        if is_still:
            continue
        devices = (pod["metadata"].get("annotations") or {}).get(ASSIGNED, "")
        line.devices += [int(it) for it in devices.split(",") if it.isdecimal()]
    return dict(sorted(found.items()))


def _workload(pod: Thing) -> str:
    attempt = (pod["metadata"].get("annotations") or {}).get(ATTEMPT, "")
    return attempt.partition("/")[0] or pod["metadata"]["name"]


class Processes:
    """Those of the pods of this machine, as they were last looked at: CPU is what was used since."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}

    def add(self, pods: Iterable[Thing], lines: dict[tuple[str, str], Line]) -> None:
        """To each line what the processes of its pods use."""
        from fairway.node.lock import holder

        for pod in pods:
            line = lines[_workload(pod), pod["spec"]["nodeName"]]
            locks = (data_dir() / "pods" / pod["metadata"]["uid"] / "containers").glob("*/*/lock")
            for shim in filter(None, map(holder, locks)):
                cpus, memory = self._used(shim)
                line.cpus, line.memory = (line.cpus or 0.0) + cpus, (line.memory or 0) + memory

    def _used(self, shim: int) -> tuple[float, int]:
        """CPUs and bytes of a shim's children, and of theirs."""
        import psutil

        cpus, memory = 0.0, 0
        with suppress(psutil.Error):
            for one in psutil.Process(shim).children(recursive=True):
                with suppress(psutil.Error):  # it has ended
                    process = self._known.setdefault(one.pid, one)
                    cpus += process.cpu_percent(None) / 100
                    memory += process.memory_info().rss
        return cpus, memory


def _show(output: str, lines: list[Line], devices: list["Use"]) -> None:
    told = [asdict(one) for one in lines]
    value = {"workloads": told, "gpus": [asdict(one) for one in devices], "unit": "cpu asked in m, memory in bytes"}
    show(output, value, lambda: _print(lines, devices))


def _print(lines: list[Line], devices: list["Use"]) -> None:
    from fairway.api.quantities import format

    busy, rows = {one.index: one.percent for one in devices}, []
    for one in lines:
        own = [busy[index] for index in one.devices if index in busy] if one.memory is not None else []
        rows.append([
            short_name(one.name), one.node,
            "" if one.cpus is None else f"{one.cpus:.1f}", format(one.asked.get("cpu", 0), "cpu"),
            "" if one.memory is None else size(one.memory), size(one.asked.get("memory", 0)),
            format(one.asked.get(GPU, 0), GPU), f"{sum(own) / len(own):.0f}%" if own else "",
        ])  # fmt: skip
    print_table(HEAD, rows, empty="nothing runs", less=("NODE", "MEMORY ASKED"))
    if devices:
        holders = {index: short_name(one.name) for one in lines if one.memory is not None for index in one.devices}
        click.echo()
        print_table(GPUS, [[one.index, f"{one.percent}%", size(one.memory), size(one.total), len(one.pids),
                            holders.get(one.index, "")] for one in devices])  # fmt: skip
