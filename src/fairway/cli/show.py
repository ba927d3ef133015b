"""What there is and why: ls, status, why, queues, nodes. They read; they change nothing."""

from collections import defaultdict
from typing import Any

import click

from fairway.api import quantities
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Selection

from .connect import Target, connect, target_options
from .find import Found, find, pods_of, workloads
from .output import age, clock_time, output_option, print_table, seconds, show, span
from .whatif import would_help

GPU = "nvidia.com/gpu"


@click.command()
@click.option("-A", "--all-namespaces", is_flag=True, help="List all namespaces.")
@click.option("--queue", "-q", default="", metavar="QUEUE", help="Only this queue's.")
@output_option
@target_options
def ls(target: Target, output: str, queue: str, all_namespaces: bool) -> None:
    """List workloads: what runs, what waits, and why."""

    async def read(client: Client, namespace: str) -> tuple[list[dict[str, Any]], float]:
        return await workloads(client, "" if all_namespaces else namespace, queue), client.clock.now()

    items, now = connect(target, read)
    head = ["NAME", "QUEUE", "PRIORITY", "PHASE", "REASON", "POSITION", "STARTS", "AGE"]
    rows = [_line(Found(it), now) for it in items]
    if all_namespaces:
        head, rows = ["NAMESPACE", *head], [[it["metadata"]["namespace"], *row] for it, row in zip(items, rows)]
    show(output, {"items": items}, lambda: _table_or_word(head, rows, "no workloads; `fairway submit` queues one"))


def _table_or_word(head: list[str], rows: list[list[object]], word: str) -> None:
    if rows:
        print_table(head, rows)
    else:
        click.echo(word, err=True)


def _line(found: Found, now: float) -> list[object]:
    spec, status = found.workload["spec"], found.workload.get("status") or {}
    phase = status.get("phase", "Pending")
    return [
        found.name,
        spec.get("queue"),
        spec.get("priorityClassName") or "",
        phase,
        status.get("reason") if phase != "Running" else "",
        status.get("position") if phase == "Pending" else "",
        _forecast(status, now),
        age(found.workload["metadata"]["creationTimestamp"], now),
    ]


def _forecast(status: dict[str, Any], now: float) -> str:
    said = status.get("forecast") or {}
    early, late = clock_time(said.get("p50"), now), clock_time(said.get("p90"), now)
    text = early if early == late else f"{early}–{late}"
    return f"~{text}" if text and said.get("rough") else text


@click.command()
@click.argument("job")
@output_option
@target_options
def status(target: Target, output: str, job: str) -> None:
    """All that is known of one workload: where it is in its life, its pods and places, what happened to it."""

    async def read(client: Client, namespace: str) -> tuple[Found, list[dict[str, Any]], float]:
        found = await find(client, namespace, job)
        return found, await pods_of(client, found), client.clock.now()

    found, pods, now = connect(target, read)
    show(output, found.workload | {"pods": pods}, lambda: _print_status(found, pods, now))


def _print_status(found: Found, pods: list[dict[str, Any]], now: float) -> None:
    spec, said = found.workload["spec"], found.workload.get("status") or {}
    counts = ", ".join(f"{it['name']} × {it.get('count', 1)}" for it in spec.get("podSets") or ())
    facts = {
        "workload": f"{found.ref.namespace}/{found.ref.name}",
        "queue": spec.get("queue"),
        "user": spec.get("user"),
        "podsets": counts,
        "phase": said.get("phase", "Pending"),
        "reason": said.get("reason"),
        "message": said.get("message"),
        "position": said.get("position"),
        "starts": _forecast(said, now),
        "attempt": said.get("attempt"),
        "placed": _places(said.get("admission")),
    }
    for name, value in facts.items():
        if value:
            click.echo(f"{name + ':':<10} {value}")
    if pods:
        click.echo()
        print_table(["POD", "PHASE", "NODE", "AGE"], [_pod_line(it, now) for it in pods])
    _print_history(said, now)


def _pod_line(pod: dict[str, Any], now: float) -> list[object]:
    meta = pod["metadata"]
    phase = "Terminating" if meta.get("deletionTimestamp") else (pod.get("status") or {}).get("phase", "Pending")
    return [meta["name"], phase, pod["spec"].get("nodeName"), age(meta["creationTimestamp"], now)]


def _places(admission: dict[str, Any] | None) -> str:
    shares = [node for podset in (admission or {}).get("podSets") or () for node in podset.get("nodes") or ()]
    return ", ".join(f"{it['node']} × {it.get('count', 1)}{_devices(it)}" for it in shares)


def _devices(share: dict[str, Any]) -> str:
    indices = sorted({index for pod in share.get("devices") or () for index in pod})
    return f" (GPU {', '.join(map(str, indices))})" if indices else ""


def _print_history(said: dict[str, Any], now: float) -> None:
    for eviction in said.get("evictionHistory") or ():
        by = f" for {eviction['for']}" if eviction.get("for") else ""
        click.echo(f"evicted {age(eviction['time'], now)} ago: {eviction['reason']}{by}")


@click.command()
@click.argument("job")
@output_option
@target_options
def why(target: Target, output: str, job: str) -> None:
    """Why a workload waits, and what would change it."""

    async def read(client: Client, namespace: str) -> tuple[Found, list[str], float]:
        found = await find(client, namespace, job)
        waits = (found.workload.get("status") or {}).get("phase") == "Pending"
        key = f"{found.ref.namespace}/{found.ref.name}"
        return found, await would_help(client, key) if waits else [], client.clock.now()

    found, helps, now = connect(target, read)
    said = found.workload.get("status") or {}
    facts = {name: said.get(name) for name in ("phase", "reason", "message", "position", "forecast")}
    show(output, facts | {"wouldHelp": helps}, lambda: _print_why(found, helps, now))


def _print_why(found: Found, helps: list[str], now: float) -> None:
    said = found.workload.get("status") or {}
    phase = said.get("phase", "Pending")
    if phase != "Pending":
        click.echo(f"{found.name} does not wait: it is {phase}{_since(found, now)}")
    else:
        click.echo(f"{found.name} waits: {said.get('reason', 'not decided yet')}")
        if said.get("message"):
            click.echo(f"  {said['message']}")
        for change in helps:
            if change not in said.get("message", ""):
                click.echo(f"  {change}")
        if said.get("position"):
            click.echo(f"  position {said['position']} in queue {found.workload['spec'].get('queue')}")
        if _forecast(said, now):
            click.echo(f"  forecast: starts {_forecast(said, now)}")
    _print_history(said, now)


def _since(found: Found, now: float) -> str:
    conditions = {it["type"]: it for it in (found.workload.get("status") or {}).get("conditions") or ()}
    latest = max((it["lastTransitionTime"] for it in conditions.values() if it.get("status") == "True"), default=None)
    return f" for {span(now - seconds(latest))}" if latest else ""


@click.command()
@output_option
@target_options
def queues(target: Target, output: str) -> None:
    """List queues: their quotas, their due, what they hold, what waits; then how far off forecasts were.

    Figures are those of the last minute."""

    async def read(client: Client, namespace: str) -> list[dict[str, Any]]:
        return await client.list(Selection(kinds.QUEUES))

    items = sorted(connect(target, read), key=lambda it: str(it["metadata"]["name"]))
    head = ["NAME", "PARENT", "PENDING", "ADMITTED", "RESOURCE", "GUARANTEED", "LIMIT", "SHARE", "USAGE"]
    rows = [line for it in items for line in _queue_lines(it)]
    show(output, {"items": items}, lambda: _print_queues(head, rows, [line for it in items for line in _accuracy(it)]))


def _print_queues(head: list[str], rows: list[list[object]], forecasts: list[list[object]]) -> None:
    print_table(head, rows)
    if forecasts:
        click.echo()
        print_table(["FORECASTS", "AHEAD", "STARTS", "OFF BY", "BY P90"], forecasts)


def _accuracy(queue: dict[str, Any]) -> list[list[object]]:
    """A line for each horizon: how many starts were told, by how much p50 was off, how many came by p90."""
    said = (queue.get("status") or {}).get("forecasts") or ()
    name = queue["metadata"]["name"]
    return [[name, it["horizon"], it["starts"], span(it["error"]), f"{it['coverage']:.0%}"] for it in said]


def _queue_lines(queue: dict[str, Any]) -> list[list[object]]:
    """A line per governed resource; one without figures for a queue that governs none."""
    spec, said = queue.get("spec") or {}, queue.get("status") or {}
    name = [queue["metadata"]["name"], spec.get("parent"), said.get("pending", 0), said.get("admitted", 0)]
    lines: list[list[object]] = []
    for quota in spec.get("quotas") or ():
        guaranteed, limit = quota.get("guaranteed") or {}, quota.get("limit") or {}
        for resource in sorted(guaranteed | limit):
            pool = quota.get("pool", "*")
            label = resource if pool == "*" else f"{resource} in {pool}"
            figures = [_of(said.get(part), pool, resource) for part in ("share", "usage")]
            head = name if not lines else ["", "", "", ""]
            lines.append([*head, label, guaranteed.get(resource), limit.get(resource), *figures])
    return lines or [name]


def _of(part: dict[str, Any] | None, pool: str, resource: str) -> str:
    """The amount of a resource in one pool, or in all."""
    pools = [amounts for name, amounts in (part or {}).items() if pool in ("*", name)]
    total = sum(quantities.parse(str(it[resource]), resource) for it in pools if resource in it)
    return quantities.format(total, resource) if pools else ""


@click.command()
@output_option
@target_options
def nodes(target: Target, output: str) -> None:
    """List nodes: what they have, what is taken."""

    async def read(client: Client, namespace: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        return await client.list(Selection(kinds.NODES)), await client.list(Selection(kinds.PODS))

    items, pods = connect(target, read)
    used = _used(pods)
    head = ["NAME", "STATUS", "GPUS", "GPUS USED", "CPU", "CPU USED", "PODS", "PRODUCT"]
    show(output, {"items": items}, lambda: print_table(head, [_node_line(it, used) for it in items]))


def _used(pods: list[dict[str, Any]]) -> dict[tuple[str, str], int]:
    """(node, resource) → what its live pods request."""
    from fairway.api.pods import requests_of

    used: dict[tuple[str, str], int] = defaultdict(int)
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            used[node, "pods"] += 1
            for resource, amount in requests_of(pod):
                used[node, resource] += amount
    return used


def _node_line(node: dict[str, Any], used: dict[tuple[str, str], int]) -> list[object]:
    name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
    offered = (node.get("status") or {}).get("allocatable") or {}
    taken = [quantities.format(used[name, it], it) for it in (GPU, "cpu")]
    product = labels.get("nvidia.com/gpu.product", "")
    gpus, cpus = [offered.get(GPU, 0), taken[0]], [offered.get("cpu"), taken[1]]
    return [name, _node_status(node), *gpus, *cpus, used[name, "pods"], product]


def _node_status(node: dict[str, Any]) -> str:
    conditions = {it["type"]: it["status"] for it in (node.get("status") or {}).get("conditions") or ()}
    ready = "Ready" if conditions.get("Ready") == "True" else "NotReady"
    return f"{ready},SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else ready
