"""`fairway nodes`: what each node has, what is taken and free, and whose work holds it."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import click
import msgspec

from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Selection

from .alone import alone
from .connect import allowed, on_cluster, unseen
from .listing import GPU, Listed, PodSet, natural
from .main import Command
from .output import listing_option, print_names, print_table, show
from .rows import memories

Thing = dict[str, Any]
LIMITS = "fairway.dev/LimitsEnforced"  # a condition
HEAD = ["NAME", "STATUS", "GPUS", "GPUS USED", "GPUS FREE", "CPU", "CPU USED", "PODS", "PRODUCT", "USED BY"]


@click.command(cls=Command)
@listing_option
@on_cluster
async def nodes(client: Client, namespace: str, output: str) -> None:
    """List nodes: what they have, what is taken and free, and by whom."""
    items = sorted(await client.list(Selection(kinds.NODES)), key=lambda it: natural(it["metadata"]["name"]))
    if output == "name":
        return print_names(items)
    pods, memory = await allowed(client.list(Selection(kinds.PODS))), await memories(client)
    by, used = users(await _workloads(client), memory), None if pods is None else _used(pods, memory)
    rows = [_node_line(it, used, by[it["metadata"]["name"]]) for it in items]
    less = () if output == "wide" else ("PRODUCT", "PODS", "CPU USED", "CPU")

    def table() -> None:
        print_table(HEAD, rows, less=less)
        for line in (line for it in items for line in (*_remarks(it), *outside(it))):
            click.echo(line)

    show(output, {"items": items}, table)
    if pods is None:
        click.echo("what is used is not shown: you may not list the pods of all namespaces", err=True)
    return None


def _remarks(node: Thing) -> list[str]:
    """What this machine does not enforce."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    messages = [it.get("message", "") for it in conditions if it["type"] == LIMITS and it["status"] == "False"]
    return [f"{node['metadata']['name']}: {message}" for message in messages]


def outside(node: Thing) -> list[str]:
    """Who uses its GPUs besides Fairway."""
    said = (node["metadata"].get("annotations") or {}).get("fairway.dev/outside") or "{}"
    name = node["metadata"]["name"]
    return [f"GPU {gpu} of {name} is used outside Fairway by {who}" for gpu, who in json.loads(said).items()]


async def used_outside(client: Client) -> list[str]:
    """The same of all nodes; nothing where the user may not see nodes."""
    return [line for node in await allowed(client.list(Selection(kinds.NODES))) or () for line in outside(node)]


async def _workloads(client: Client) -> list[Listed]:
    """All there are; none where the user may not see those of all namespaces."""
    with unseen():
        found = await client.list(Selection(kinds.WORKLOADS), Listed)
        own = await alone(client, "", {one.key for one in found})
        return found + [msgspec.convert(one, Listed) for one in own]
    return []


def users(workloads: Iterable[Listed], memory: Mapping[str, int]) -> dict[str, Counter[str]]:
    """Node → user → the GPUs that the user's workloads hold there; 0 for those that hold none. `memory`: bytes of a GPU
    by node."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in workloads:
        if one.state in ("running", "retrying", "starting", "stopping") and one.status.admission:
            each = {it.name: it for it in one.spec.pod_sets or ()}
            for part in one.status.admission.pod_sets or ():
                for on in part.nodes or ():
                    own = each.get(part.name, PodSet()).gpus(memory.get(on.node, 0))
                    found[on.node][one.user or "?"] += own * (on.count or 1)  # type: ignore[assignment]
    return found


def _used(pods: list[Thing], memory: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """(node, resource) → what its live pods request."""
    from fairway.api.pods import requests_of

    used: dict[tuple[str, str], int] = defaultdict(int)
    for pod in pods:
        phase = (pod.get("status") or {}).get("phase")
        if (node := pod["spec"].get("nodeName")) and phase not in ("Succeeded", "Failed"):
            used[node, "pods"] += 1
            for resource, amount in requests_of(pod, memory.get(node, 0)):
                used[node, resource] += amount if resource == "memory" or not _is_frozen(pod) else 0
    return used


def _is_frozen(pod: Thing) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(it["type"] == "fairway.dev/Frozen" and it["status"] == "True" for it in conditions)


def _node_line(node: Thing, used: dict[tuple[str, str], int] | None, by: Counter[str]) -> list[object]:
    from fairway.api import quantities

    name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
    offered = (node.get("status") or {}).get("allocatable") or {}
    has, product = quantities.parse(str(offered.get(GPU, 0)), GPU), labels.get("nvidia.com/gpu.product")
    cpus = quantities.decimal(quantities.parse(str(offered.get("cpu", 0)), "cpu"), "cpu")
    start = [name, _node_status(node), quantities.decimal(has, GPU)]
    if used is None:
        return [*start, "", "", cpus, "", "", product]
    gpus = [quantities.decimal(it, GPU) for it in (used[name, GPU], max(0, has - used[name, GPU]))]
    whose = ", ".join(f"{user} ({held:g} GPU{'s' * (held != 1)})" if held else user for user, held in by.most_common())
    figures = [*gpus, cpus, quantities.decimal(used[name, "cpu"], "cpu"), used[name, "pods"]]
    return [*start, *figures, product, whose]


def _node_status(node: Thing) -> str:
    conditions = {it["type"]: it["status"] for it in (node.get("status") or {}).get("conditions") or ()}
    ready = "Ready" if conditions.get("Ready") == "True" else "NotReady"
    return f"{ready},SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else ready
