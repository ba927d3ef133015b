"""The view of one workload: where it is in its life, where it runs, who evicted it for whom, what may be done with it.

What the stores do not hold (its events, its YAML, its runs) is asked for with the viewer's own token when the page is
open, by `detail`; what its ranks write comes from `log`.
"""

from operator import itemgetter
from typing import Any

import yaml

from fairway.api.conditions import GROWS
from fairway.api.names import short_name
from fairway.api.nodes import uses
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Selection
from fairway.kube.runs import Run, kept, pods_of, runs_in

from .access import Sight
from .act import offered
from .ends import Ends
from .floor import labels_of_pools
from .page import Ask, Page, drawn, fragment
from .waiting import pools
from .workload import OVER, Eviction, Workload
from .world import World

MOST_EVENTS, HOUR = 50, 3600.0
Thing = dict[str, Any]
TIMES = ("lastTimestamp", "eventTime", "firstTimestamp")


def page(world: World, ask: Ask) -> Page:
    it = seen(world, ask.sight, ask.path.partition("/")[2])
    if it is None:
        return drawn("gone", "Workload", {"ask": ask}, {})
    ends = Ends(world, ask.now)
    facts = {
        "it": it, "ends": ends.of(it), "limit": ends.limit(it.queue), "priority": world.priority(it),
        "pools": pools(it, labels_of_pools(world) if ask.sight.sees_nodes else {}),
        "evictions": [(one, beneficiary(world, one, ask.sight)) for one in it.evictions],
        "is_over": it.state in OVER, "actions": offered(it),
        "starts": it.starts(ask.now), "uses": _uses(world, it), "ran": it.used(ask.now) / HOUR,
        "served": taken(world, ask.sight).get(it.key, ()), "grows": GROWS,
    }  # fmt: skip
    return drawn("workload", it.name, facts, {})


def seen(world: World, sight: Sight, key: str) -> Workload | None:
    """The workload, where the viewer may see it."""
    it = world.workloads.get(key)
    return it if it is not None and sight.sees(it.namespace) else None


def beneficiary(world: World, one: Eviction, sight: Sight) -> str:
    """The workload that an eviction was for, as far as the viewer may see it; "" of none."""
    space, _, name = one.beneficiary.rpartition("/")
    if space and not sight.sees(space):
        return f"a workload of queue {one.queue}" if one.queue else "another workload"
    known = world.workloads.get(one.beneficiary)
    return known.name if known else short_name(name)


def taken(world: World, sight: Sight) -> dict[str, list[tuple[float, str]]]:
    """By workload, the evictions that were for it: when, and of which workload."""
    found: dict[str, list[tuple[float, str]]] = {}
    for it in world.workloads.values():
        for one in it.evictions:
            found.setdefault(one.beneficiary, []).append((one.time, sight.name(it)))
    return found


def _uses(world: World, it: Workload) -> tuple[int, list[str]]:
    """On how many of its GPUs something computes, and on which ones it is known that nothing does."""
    on = [(share.node, at, uses(world.nodes[share.node]).get(at)) for share in it.shares if share.node in world.nodes
          for at in share.devices] if it.state == "running" else []  # fmt: skip
    idle = [f"GPU {at} of {node}" for node, at, use in on if use == "idle"]
    return sum(use == "busy" for _, _, use in on), idle


async def detail(world: World, sight: Sight, client: Client, key: str) -> str:
    """Events, runs and YAML, as HTML; "" where the viewer may not see the workload."""
    it = seen(world, sight, key)
    said = await client.find(kinds.ref(kinds.WORKLOADS, key)) if it else None
    if it is None or said is None:
        return ""
    said["metadata"].pop("managedFields", None)
    for one in said.get("status", {}).get("evictionHistory") or ():
        if "/" in one.get("for", "") and not sight.sees(one["for"].partition("/")[0]):
            one["for"] = "(of another namespace)"
    text = yaml.safe_dump(said, sort_keys=False, allow_unicode=True, width=120)
    facts: Thing = {"events": await _events(client, it), "yaml": text, "it": it}
    facts["runs"] = [(run_name(run), run) for run in await runs(client, it)]
    return fragment("detail", facts)


async def _events(client: Client, it: Workload) -> list[Thing]:
    """About it and its owners, the newest first, with `at`, when it was last; none where they may not be listed. What
    is written by events.k8s.io has no count, and may have one of the times alone."""
    names = {it.key.partition("/")[2], *(name for _, _, name in it.owners)}
    found = []
    for name in sorted(names):
        try:
            found += await client.list(Selection(kinds.EVENTS, it.namespace, fields=f"involvedObject.name={name}"))
        except ApiError as error:
            if error.status not in (400, 403, 404):
                raise
    empty = dict.fromkeys(("type", "reason", "message"), "") | {"count": 1}
    told = [empty | one | {"at": next(filter(None, map(one.get, TIMES)), "")} for one in found]
    return sorted(told, key=itemgetter("at"), reverse=True)[:MOST_EVENTS]


async def runs(client: Client, it: Workload) -> list[Run]:
    """The runs of its programs, newest attempts first: all that the server keeps, else those of its pods."""
    known = await kept(client, kinds.ref(kinds.WORKLOADS, it.key))
    if known is not None:
        found = known.items
    else:
        pods = await pods_of(client, kinds.ref(kinds.WORKLOADS, it.key), [(kind, name) for _, kind, name in it.owners])
        found = [run for rank, pod in pods for run in runs_in(pod, rank, it.attempt)]
    return sorted(found, key=lambda run: (-run.attempt, run.rank, -run.retry, not run.is_default))


def run_name(run: Run) -> str:
    """What tells it from the other runs of its workload, in an address."""
    return f"{run.attempt}.{run.rank}.{run.container}.{run.retry}"
