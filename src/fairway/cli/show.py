"""What there is and why: ls, status, why, queues, nodes. They read; they change nothing."""

from collections import defaultdict
from typing import Any

import click
import msgspec

from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Selection

from .connect import on_cluster
from .find import Found, failure, find, pods_of
from .listing import OVER, Listed, reason
from .output import age, clock_time, output_option, print_table, show, span, start
from .whatif import would_help

GPU = "nvidia.com/gpu"
Thing = dict[str, Any]


@click.command()
@click.argument("job")
@output_option
@on_cluster
async def status(client: Client, namespace: str, output: str, job: str) -> None:
    """All that is known of one workload: where it is in its life, its pods and places, what happened to it."""
    found = await find(client, namespace, job)
    pods = [pod for _, pod in await pods_of(client, found)]
    show(output, found.workload | {"pods": pods}, lambda: _print_status(found, pods, client.clock.now()))


def _print_status(found: Found, pods: list[Thing], now: float) -> None:
    spec, said, one = found.workload["spec"], found.status, msgspec.convert(found.workload, Listed)
    is_over = one.state in OVER
    facts = {
        "workload": f"{found.ref.namespace}/{found.ref.name}",
        **{name: spec.get(name) for name in ("queue", "user")},
        "podsets": ", ".join(f"{it['name']} × {it.get('count', 1)}" for it in spec.get("podSets") or ()),
        "state": reason(one, now) if is_over else one.state,
        "since": clock_time(one.since(), now),
        **{name: said.get(name) for name in ("reason", "message", "position") if not is_over},
        "starts": start(said.get("forecast"), now),
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


def _pod_line(pod: Thing, now: float) -> list[object]:
    meta = pod["metadata"]
    phase = "Terminating" if meta.get("deletionTimestamp") else (pod.get("status") or {}).get("phase", "Pending")
    return [meta["name"], phase, pod["spec"].get("nodeName"), age(meta["creationTimestamp"], now)]


def _places(admission: Thing | None) -> str:
    found = []
    for share in [node for podset in (admission or {}).get("podSets") or () for node in podset.get("nodes") or ()]:
        indices = ", ".join(map(str, sorted({index for pod in share.get("devices") or () for index in pod})))
        found.append(f"{share['node']} × {share.get('count', 1)}{f' (GPU {indices})' if indices else ''}")
    return ", ".join(found)


def _print_history(said: Thing, now: float) -> None:
    for eviction in said.get("evictionHistory") or ():
        by = f" for {eviction['for']}" if eviction.get("for") else ""
        click.echo(f"evicted {age(eviction['time'], now)} ago: {eviction['reason']}{by}")


@click.command()
@click.argument("job")
@output_option
@on_cluster
async def why(client: Client, namespace: str, output: str, job: str) -> None:
    """Why a workload waits, and what would change it; why one failed."""
    found = await find(client, namespace, job)
    key = f"{found.ref.namespace}/{found.ref.name}"
    helps = await would_help(client, key) if found.phase == "Pending" else []
    cause = failure([pod for _, pod in await pods_of(client, found)]) if found.phase == "Failed" else ""
    facts = {name: found.status.get(name) for name in ("phase", "reason", "message", "position", "forecast")}
    answer = facts | {"wouldHelp": helps, "cause": cause}
    show(output, answer, lambda: _print_why(found, helps, client.clock.now()))


def _print_why(found: Found, more: list[str], now: float) -> None:
    said, message = found.status, found.status.get("message", "")
    starts = start(said.get("forecast"), now)
    if found.phase != "Pending":
        one = msgspec.convert(found.workload, Listed)
        ago = f", {span(now - one.since())} ago" if one.state in OVER else f" for {span(now - one.since())}"
        words = reason(one, now) if one.state in OVER else f"it is {one.state}"
        hint = f"; `fairway resume {found.name}` lets it queue again" if found.phase == "Suspended" else ""
        lines = [f"{found.name} does not wait: {words}{ago}{hint}"]
    else:
        position = f"position {said.get('position')} in queue {found.workload['spec'].get('queue')}"
        lines = [f"{found.name} waits: {said.get('reason', 'not decided yet')}", message]
        lines += [change for change in more if change not in message]
        lines += [position] * bool(said.get("position")) + [f"forecast: starts {starts}"] * bool(starts)
    click.echo("\n  ".join(filter(None, lines)))
    _print_history(said, now)


@click.command()
@output_option
@on_cluster
async def queues(client: Client, namespace: str, output: str) -> None:
    """List queues as of the last minute: quotas, due, what they hold, what waits; then how far off forecasts were."""
    items = sorted(await client.list(Selection(kinds.QUEUES)), key=lambda it: str(it["metadata"]["name"]))
    show(output, {"items": items}, lambda: _print_queues(items))


def _print_queues(items: list[Thing]) -> None:
    head = ["NAME", "PARENT", "PENDING", "ADMITTED", "RESOURCE", "GUARANTEED", "LIMIT", "SHARE", "USAGE"]
    print_table(head, [line for it in items for line in _queue_lines(it)])
    if forecasts := [line for it in items for line in _accuracy(it)]:
        click.echo()
        print_table(["FORECASTS", "AHEAD", "STARTS", "OFF BY", "BY P90"], forecasts)


def _accuracy(queue: Thing) -> list[list[object]]:
    """A line for each horizon: how many starts were told, by how much p50 was off, how many came by p90."""
    said = (queue.get("status") or {}).get("forecasts") or ()
    name = queue["metadata"]["name"]
    return [[name, it["horizon"], it["starts"], span(it["error"]), f"{it['coverage']:.0%}"] for it in said]


def _queue_lines(queue: Thing) -> list[list[object]]:
    """A line per governed resource; one without figures for a queue that governs none."""
    spec, said = queue.get("spec") or {}, queue.get("status") or {}
    name = [queue["metadata"]["name"], spec.get("parent"), said.get("pending", 0), said.get("admitted", 0)]
    lines: list[list[object]] = []
    for quota in spec.get("quotas") or ():
        guaranteed, limit = quota.get("guaranteed") or {}, quota.get("limit") or {}
        for resource in sorted(guaranteed | limit):
            pool = quota.get("pool", "*")
            label = resource if pool == "*" else f"{resource} in {pool}"
            figures = [guaranteed.get(resource), limit.get(resource)]
            figures += [_of(said.get(part), pool, resource) for part in ("share", "usage")]
            lines.append([*([""] * 4 if lines else name), label, *figures])
    return lines or [name]


def _of(part: dict[str, Thing] | None, pool: str, resource: str) -> str:
    """The amount of a resource in one pool, or in all."""
    from fairway.api import quantities

    pools = [amounts for name, amounts in (part or {}).items() if pool in ("*", name)]
    total = sum(quantities.parse(str(it[resource]), resource) for it in pools if resource in it)
    return quantities.format(total, resource) if pools else ""


@click.command()
@output_option
@on_cluster
async def nodes(client: Client, namespace: str, output: str) -> None:
    """List nodes: what they have, what is taken."""
    items, used = await client.list(Selection(kinds.NODES)), _used(await client.list(Selection(kinds.PODS)))
    head = ["NAME", "STATUS", "GPUS", "GPUS USED", "CPU", "CPU USED", "PODS", "PRODUCT"]
    show(output, {"items": items}, lambda: print_table(head, [_node_line(it, used) for it in items]))


def _used(pods: list[Thing]) -> dict[tuple[str, str], int]:
    """(node, resource) → what its live pods request."""
    from fairway.api.pods import requests_of

    used: dict[tuple[str, str], int] = defaultdict(int)
    for pod in pods:
        phase = (pod.get("status") or {}).get("phase")
        if (node := pod["spec"].get("nodeName")) and phase not in ("Succeeded", "Failed"):
            used[node, "pods"] += 1
            for resource, amount in requests_of(pod):
                used[node, resource] += amount
    return used


def _node_line(node: Thing, used: dict[tuple[str, str], int]) -> list[object]:
    from fairway.api import quantities

    name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
    offered = (node.get("status") or {}).get("allocatable") or {}
    gpus, cpus = (quantities.format(used[name, it], it) for it in (GPU, "cpu"))
    figures = [offered.get(GPU, 0), gpus, offered.get("cpu"), cpus, used[name, "pods"]]
    return [name, _node_status(node), *figures, labels.get("nvidia.com/gpu.product")]


def _node_status(node: Thing) -> str:
    conditions = {it["type"]: it["status"] for it in (node.get("status") or {}).get("conditions") or ()}
    ready = "Ready" if conditions.get("Ready") == "True" else "NotReady"
    return f"{ready},SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else ready
