"""`fairway queues`: what each of them holds, and what is asked for, as it is now.

What queues hold and have waiting is added up from the Workloads, since a Queue's own status is written at most once a
minute. Only the share is read from there: what is due to a queue is decided, not counted.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import click
import msgspec

from fairway.api import quantities
from fairway.api.names import lineage
from fairway.api.pods import requests_of
from fairway.api.queues import budget_used
from fairway.api.types import BudgetUse
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Selection

from .alone import alone
from .connect import on_cluster, unseen
from .leader import warn
from .listing import GPU, Meta, Part, Placement, PodMeta, natural
from .main import Command
from .output import clock_time, fault, listing_option, print_names, print_table, show, span
from .rows import memories

Thing = dict[str, Any]
NOTHING: Mapping[str, int] = MappingProxyType({})


class Template(Part):
    metadata: PodMeta | None = None
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class PodSet(Part):
    name: str = "main"
    count: int = 1
    template: Template | None = None


class Admission(Part):
    pool: str = ""
    pod_sets: list[Placement] | None = None


class Spec(Part):
    queue: str = ""
    user: str = ""
    pod_sets: list[PodSet] | None = None


class Status(Part):
    phase: str = ""
    admission: Admission | None = None


class Held(Part):
    """A Workload: its queue, its user, what it asks for and what it holds."""

    metadata: Meta
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)


@dataclass(frozen=True, slots=True)
class Tally:
    """What a queue, and all below it, has now. `usage`: by pool and resource; `asked`: by resource, of what waits."""

    pending: int = 0
    admitted: int = 0
    usage: Counter[tuple[str, str]] = field(default_factory=Counter)
    asked: Counter[str] | None = field(default_factory=Counter)  # None: not known


class Requests:
    """What a pod of a podset requests; read once for all that are alike. `memory`: bytes of a GPU by node."""

    def __init__(self, memory: Mapping[str, int]) -> None:
        self._memory, self._least = memory, min(memory.values(), default=0)
        self._known: dict[tuple[bytes, tuple[tuple[str, str], ...], int], Mapping[str, int]] = {}

    def of(self, podset: PodSet, node: str = "") -> Mapping[str, int]:
        """On a node, else with the smallest GPU there is."""
        template = podset.template or Template()
        notes = (template.metadata and template.metadata.annotations) or {}
        size = self._memory.get(node, self._least)
        key = bytes(template.spec), tuple(notes.items()), size
        if key not in self._known:
            pod = {"metadata": {"annotations": notes}, "spec": msgspec.json.decode(template.spec)}
            self._known[key] = dict(requests_of(pod, size))
        return self._known[key]


@click.command(cls=Command)
@listing_option
@on_cluster
async def queues(client: Client, namespace: str, output: str) -> None:
    """List queues: quotas, share, what they hold and ask for now; then how far off forecasts were."""
    items = sorted(await client.list(Selection(kinds.QUEUES)), key=lambda it: natural(it["metadata"]["name"]))
    await warn(client)
    if output == "name":
        return print_names(items)
    live = await _live(client, items)
    named = {name: _figures(it) for name, it in (live or {}).items()}
    less = () if output == "wide" else LESS
    return show(output, {"items": items, "live": named}, lambda: print_queues(items, live, less, client.clock.now()))


async def _live(client: Client, items: list[Thing]) -> dict[str, Tally] | None:
    """The tally of each queue; None where the user may not see all workloads."""
    parents = {it["metadata"]["name"]: (it.get("spec") or {}).get("parent", "") for it in items}
    with unseen():
        found = await client.list(Selection(kinds.WORKLOADS), Held)
        own = await alone(client, "", {(it.metadata.namespace, it.metadata.name) for it in found})
        found += [msgspec.json.decode(msgspec.json.encode(it), type=Held) for it in own]
        return tallies(parents, found, await memories(client))
    return None


def tallies(
    parents: Mapping[str, str], workloads: Iterable[Held], memory: Mapping[str, int] = NOTHING
) -> dict[str, Tally]:
    """What each queue has; what a queue has its parents have too. `memory`: bytes of a GPU by node."""
    own: defaultdict[str, Tally] = defaultdict(Tally)
    requests = Requests(memory)
    for one in workloads:
        if one.status.phase in ("Succeeded", "Failed"):
            continue
        waits, held = _waiting(one, requests), _held(one, requests)
        for name in lineage(parents, one.spec.queue):
            before = own[name]
            before.usage.update(held)
            assert before.asked is not None
            before.asked.update(waits or {})
            admitted = before.admitted + (one.status.admission is not None)
            own[name] = Tally(before.pending + (waits is not None), admitted, before.usage, before.asked)
    return dict(own)


def _waiting(one: Held, requests: Requests) -> Counter[str] | None:
    """What it asks for while it waits; None of one that does not wait."""
    if one.status.phase not in ("", "Pending") or one.status.admission:
        return None
    asked: Counter[str] = Counter()
    for podset in one.spec.pod_sets or ():
        asked.update({resource: most * podset.count for resource, most in requests.of(podset).items()})
    return asked


def _held(one: Held, requests: Requests) -> Counter[tuple[str, str]]:
    held: Counter[tuple[str, str]] = Counter()
    placed, podsets = one.status.admission or Admission(), {it.name: it for it in one.spec.pod_sets or ()}
    for part in placed.pod_sets or ():
        nodes, podset = part.nodes or (), podsets.get(part.name)
        each = requests.of(podset, nodes[0].node) if podset and nodes else {}  # all are of one pool
        pods = sum(on.count or 1 for on in nodes)
        held.update({(placed.pool, name): most * pods for name, most in each.items()})
    return held


def _figures(tally: Tally) -> Thing:
    usage: dict[str, dict[str, str]] = {}
    for (pool, resource), most in sorted(tally.usage.items()):
        usage.setdefault(pool, {})[resource] = quantities.format(most, resource)
    asked = {resource: quantities.format(most, resource) for resource, most in sorted((tally.asked or {}).items())}
    return {"pending": tally.pending, "admitted": tally.admitted, "usage": usage, "asked": asked}


HEAD = [
    "NAME", "PARENT", "PENDING", "ADMITTED", "RESOURCE", "GUARANTEED", "LIMIT", "SHARE", "USAGE", "BORROWED", "ASKED",
]  # fmt: skip


LESS = ("PARENT", "LIMIT", "BORROWED")
"""What a narrow terminal may lack, the first one first."""


def print_queues(items: list[Thing], live: dict[str, Tally] | None, less: Sequence[str], now: float) -> None:
    """The table, what of it is older than now, and budgets. `live`: by queue; None where it may not be seen."""
    names = [it["metadata"]["name"] for it in items]
    shown = {it["metadata"]["name"]: _written(it) for it in items} if live is None else live
    lines = [line for it in items for line in queue_lines(it, shown.get(it["metadata"]["name"], Tally()))]
    others = {name: tally for name, tally in (live or {}).items() if name not in names}
    lines += [line for name, tally in others.items() for line in queue_lines(_missing(name), tally)]
    print_table(HEAD, lines, less=less)
    if live is None:
        click.echo("all is as of the last minute: you may not list the workloads of all namespaces", err=True)
    elif any(_is_old(it, live.get(it["metadata"]["name"], Tally())) for it in items):
        is_part = any(str(line[5]).endswith("%") for line in lines if len(line) > 5)
        old = "SHARE, and BORROWED where GUARANTEED is in %," if is_part else "SHARE"
        click.echo(f"{old} is as of the last minute, all else as of now", err=True)
    if any((it.get("spec") or {}).get("quotas") and not (it.get("status") or {}).get("share") for it in items):
        click.echo("a SHARE that is missing comes with the next decision, within a minute", err=True)
    for line in filter(None, map(fault, items)):
        click.echo(line, err=True)
    if budgets := [line for it in items for line in _budget(it, now)]:
        click.echo()
        print_table(["BUDGET", "GPU HOURS", "SPENT", "RESERVED", "LEFT", "WHOLE AGAIN"], budgets)
    if forecasts := [line for it in items for line in _accuracy(it)]:
        click.echo()
        print_table(["FORECASTS", "AHEAD", "STARTS", "OFF BY", "IN TIME"], forecasts)
        click.echo("OFF BY: from the earlier time that was forecast; IN TIME: the starts by the later one", err=True)


def _budget(queue: Thing, now: float) -> Iterator[list[object]]:
    """What is left of its budget: what ended is spent, what runs has its time limit reserved."""
    budget, said = (queue.get("spec") or {}).get("budget"), queue.get("status") or {}
    if budget:
        with suppress(quantities.Malformed):
            whole, kept = float(quantities.exact(str(budget["gpuHours"]))), float(said.get("budgetReserved", 0))
            spent = msgspec.convert(said.get("budgetSpent") or {}, BudgetUse)
            used, ends = budget_used(budget["period"], spent, now)
            hours = [f"{round(amount, 3):,}" for amount in (whole, used, kept, max(0.0, whole - used - kept))]
            yield [queue["metadata"]["name"], *hours, clock_time(ends, now)]


def _written(queue: Thing) -> Tally:
    """What a queue holds as its status says; what it asks for is not there."""
    said = queue.get("status") or {}
    usage = {(pool, name): quantities.parse(str(amount), name)
             for pool, amounts in (said.get("usage") or {}).items() for name, amount in amounts.items()}
    return Tally(said.get("pending", 0), said.get("admitted", 0), Counter(usage), None)


def _missing(name: str) -> Thing:
    return {"metadata": {"name": name}, "spec": {"parent": "(no such queue)"}}


def _is_old(queue: Thing, live: Tally) -> bool:
    """Whether its share was decided about other workloads than there are now."""
    said = queue.get("status") or {}
    return bool(said.get("share")) and (said.get("pending", 0), said.get("admitted", 0)) != (
        live.pending,
        live.admitted,
    )


def queue_lines(queue: Thing, live: Tally) -> list[list[object]]:
    """A line for each resource that the queue governs, and for others that it holds or asks for; at least one."""
    spec, said = queue.get("spec") or {}, queue.get("status") or {}
    figures: list[list[object]] = []
    governed: set[str] = set()
    for quota in spec.get("quotas") or ():
        guaranteed, limit, pool = quota.get("guaranteed") or {}, quota.get("limit") or {}, quota.get("pool", "*")
        for resource in sorted(guaranteed | limit):
            governed.add(resource)
            used = sum(most for (at, name), most in live.usage.items() if name == resource and pool in ("*", at))
            label = resource if pool == "*" else f"{resource} in {pool}"
            owed, most = _read(guaranteed.get(resource), resource), _read(limit.get(resource), resource)
            due = [owed, most, _of(said.get("share"), pool, resource)]
            known = due[2] and (_of(said.get("borrowed"), pool, resource) or "0")
            lent = known if owed.endswith("%") else _borrowed(owed, used, resource)
            amounts = [quantities.decimal(used, resource), lent, _asked(live, resource)]
            figures.append([label, *due, *amounts])
    others = ({name for _, name in live.usage} | set(live.asked or ())) - governed
    for resource in sorted(others, key=lambda name: (name != GPU, name)):
        if resource == GPU or not figures:
            used = sum(most for (_, name), most in live.usage.items() if name == resource)
            figures.append([resource, "", "", "", quantities.decimal(used, resource), "", _asked(live, resource)])
    name = [queue["metadata"]["name"], spec.get("parent"), live.pending, live.admitted]
    return [[*([""] * 4 if at else name), *part] for at, part in enumerate(figures or [[]])]


def _asked(live: Tally, resource: str) -> str:
    return "" if live.asked is None else quantities.decimal(live.asked[resource], resource)


def _read(said: object, resource: str) -> str:
    """An amount of a quota as the others are shown; "" where there is none."""
    text = "" if said is None else str(said)
    is_amount = text and not text.endswith("%") and resource in quantities.MILLI
    return quantities.decimal(quantities.parse(text, resource), resource) if is_amount else text


def _borrowed(guaranteed: str, used: int, resource: str) -> str:
    """Usage above an amount that is guaranteed; "" where none is."""
    if not guaranteed:
        return ""
    return quantities.decimal(max(0, used - quantities.parse(guaranteed, resource)), resource)


def _of(part: dict[str, Thing] | None, pool: str, resource: str) -> str:
    """The amount of a resource in one pool, or in all."""
    pools = [amounts for name, amounts in (part or {}).items() if pool in ("*", name)]
    total = sum(quantities.parse(str(it[resource]), resource) for it in pools if resource in it)
    return quantities.decimal(total, resource) if pools else ""


def _accuracy(queue: Thing) -> list[list[object]]:
    """A line for each horizon: how many starts were forecast, by how much p50 was off, how many came by p90."""
    said = (queue.get("status") or {}).get("forecasts") or ()
    name = queue["metadata"]["name"]
    return [[name, it["horizon"], it["starts"], span(it["error"]), f"{it['coverage']:.0%}"] for it in said]
