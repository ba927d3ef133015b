"""`fairway top`: what running workloads use of what they asked for, and each GPU; live on a terminal.

What pods use of CPUs and memory the API server tells (`metrics.k8s.io`, as for `kubectl top`): their processes may be
another user's. A GPU of the machine that the command runs on tells by NVML. What nothing tells is left empty: never 0.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import click

from fairway.api.names import short_name
from fairway.api.objects import FROZEN
from fairway.api.pods import requests_of
from fairway.api.quantities import decimal, parse
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Selection

from .connect import on_cluster
from .listing import GPU
from .main import Command, Problem
from .output import output_option, print_table, show, size
from .rows import memories

if TYPE_CHECKING:
    from fairway.node.measure import Use

Thing = dict[str, Any]
Measured = dict[tuple[str, str], tuple[float, int]]
"""Namespace and name of a pod → the CPUs and bytes of memory that it uses."""
PAUSE_SECONDS = 2.0
ATTEMPT, ASSIGNED = "fairway.dev/attempt", "fairway.dev/assigned-devices"
HEAD = ["WORKLOAD", "NODE", "CPUS", "CPUS ASKED", "MEMORY", "MEMORY ASKED", "GPUS", "GPU BUSY"]
GPUS = ["GPU", "BUSY", "MEMORY", "OF", "PROCESSES", "WORKLOAD"]


@dataclass(slots=True)
class Line:
    """A workload on a node. `cpus` and `memory` are None where nothing tells; `devices`: those of the node."""

    namespace: str
    name: str
    node: str
    asked: dict[str, int] = field(default_factory=dict)
    cpus: float | None = None
    memory: int | None = None
    devices: list[int] = field(default_factory=list)


@click.command(cls=Command)
@click.argument("job", default="")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Show all namespaces.")
@click.option("--once", is_flag=True, help="Print what is used now, and end.")
@output_option
@on_cluster
async def top(client: Client, namespace: str, job: str, once: bool, everywhere: bool, output: str) -> None:
    """Show what running workloads use of what they asked for, and each GPU of this machine.

    Without a terminal, or with -o json or yaml, it prints once."""
    import sys

    from fairway.node.measure import used

    if job and everywhere:
        raise Problem(f"-A: found with JOB {job!r}, which is in one namespace; -n names it")
    space, is_live = "" if everywhere else namespace, not once and output == "table" and sys.stdout.isatty()
    while True:
        names = await _named(client, namespace, job) if job else None  # replicas come and go
        lines, devices = await _looked(client, space, names), await client.clock.in_thread(used)
        if job and not lines:
            raise Problem(f"{job} does not run; `fairway ls` lists what does", exit_code=1)
        if is_live:
            click.clear()
        _show(output, lines, devices, space)
        if not is_live:
            return
        await client.clock.sleep(PAUSE_SECONDS)


async def _named(client: Client, namespace: str, job: str) -> set[str]:
    """The Workloads that `job` names; a Problem where there is none."""
    from .replicas import find

    found = await find(client, namespace, job)
    return {it.ref.name for it in found.replicas or (found,)}


async def _looked(client: Client, namespace: str, names: set[str] | None) -> list[Line]:
    found, measured, memory = await asyncio.gather(
        client.list(Selection(kinds.PODS, namespace)), _measured(client, namespace), memories(client)
    )
    pods = [it for it in found if it["spec"].get("nodeName") and it["status"].get("phase") == "Running"]
    return list(_lines([it for it in pods if names is None or _workload(it) in names], measured, memory).values())


async def _measured(client: Client, namespace: str) -> Measured:
    """What the server tells; nothing where it does not, or not to this user."""
    found: Measured = {}
    with suppress(ApiError):
        for pod in await client.list(Selection(kinds.POD_METRICS, namespace)):
            uses = [it["usage"] for it in pod["containers"]]
            cpus, memory = (sum(parse(it[name], name) for it in uses) for name in ("cpu", "memory"))
            found[pod["metadata"]["namespace"], pod["metadata"]["name"]] = cpus / 1000, memory
    return found


def _lines(
    pods: Iterable[Thing], measured: Measured, memory: Mapping[str, int]
) -> dict[tuple[str, str, str], Line]:
    """By namespace, workload and node, what its pods ask for there, and use; `memory`: bytes of a GPU by node."""
    found: dict[tuple[str, str, str], Line] = {}
    for pod in pods:
        meta = pod["metadata"]
        key = meta["namespace"], _workload(pod), pod["spec"]["nodeName"]
        line = found.setdefault(key, Line(*key))
        if use := measured.get((meta["namespace"], meta["name"])):
            line.cpus, line.memory = (line.cpus or 0.0) + use[0], (line.memory or 0) + use[1]
        is_still = any(it["type"] == FROZEN and it["status"] == "True" for it in pod["status"].get("conditions") or ())
        for resource, amount in requests_of(pod, memory.get(pod["spec"]["nodeName"], 0)):
            if not is_still or resource == "memory":  # what is paused holds no more
                line.asked[resource] = line.asked.get(resource, 0) + amount
        if is_still:
            continue
        devices = (meta.get("annotations") or {}).get(ASSIGNED, "")
        line.devices += [int(it) for it in devices.split(",") if it.isdecimal()]
    return dict(sorted(found.items()))


def _workload(pod: Thing) -> str:
    attempt = (pod["metadata"].get("annotations") or {}).get(ATTEMPT, "")
    return attempt.partition("/")[0] or pod["metadata"]["name"]


def _show(output: str, lines: list[Line], devices: list["Use"], space: str) -> None:
    told = [asdict(one) for one in lines]
    value = {"workloads": told, "gpus": [asdict(one) for one in devices], "unit": "cpu asked in m, memory in bytes"}
    show(output, value, lambda: _print(lines, devices, space))


def _print(lines: list[Line], devices: list["Use"], space: str) -> None:
    """`space`: the namespace; "" of all."""
    from fairway.node.machine import own_name

    here = [one for one in lines if one.node == own_name()]
    busy, rows = {one.index: one.percent for one in devices}, []
    for one in lines:
        own = [busy[index] for index in one.devices if index in busy] if one in here else []
        rows.append([
            *([] if space else [one.namespace]), short_name(one.name), one.node,
            "" if one.cpus is None else f"{one.cpus:.1f}", decimal(one.asked.get("cpu", 0), "cpu"),
            "" if one.memory is None else size(one.memory), size(one.asked.get("memory", 0)),
            decimal(one.asked.get(GPU, 0), GPU), f"{sum(own) / len(own):.0f}%" if own else "",
        ])  # fmt: skip
    empty = f"nothing runs in namespace {space}; -A looks in all" if space else "nothing runs in any namespace"
    print_table([*([] if space else ["NAMESPACE"]), *HEAD], rows, empty=empty, less=("NODE", "MEMORY ASKED"))
    if devices:
        holders = {index: short_name(one.name) for one in here for index in one.devices}
        click.echo()
        print_table(GPUS, [[one.index, f"{one.percent}%", size(one.memory), size(one.total), len(one.pids),
                            holders.get(one.index, "")] for one in devices])  # fmt: skip
