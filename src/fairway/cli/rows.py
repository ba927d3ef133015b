"""The rows of `fairway ls`: which Workloads a filter takes, what is read beside them, and the columns shown."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from fairway.api.names import called, lineage
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Kind, Ref, Selection

from .alone import bare, gathering, key_of, read
from .connect import allowed
from .listing import ARRAY, DAY_SECONDS, HEAD, LESS, OVER, Listed, length, rank, row
from .main import Problem
from .output import near, print_table

Thing = dict[str, Any]
MOST_ROWS = 200
NONE = "no workloads run or wait; `fairway submit` queues one, `fairway ls --all` lists those that are over"
NONE_CHOSEN = "no workload is in that choice; `fairway ls --all` lists all, those of the last day that are over, too"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which workloads are asked for. Without `states`, `everything` and `jobs`: those that are not over."""

    states: tuple[str, ...] = ()
    queue: str = ""
    user: str = ""
    owners: Collection[tuple[str, str, str]] | None = None  # kind, namespace and name of those that labels choose
    everything: bool = False
    jobs: frozenset[str] = frozenset()

    @property
    def is_narrow(self) -> bool:
        """Whether it leaves out some of what runs and waits."""
        return bool(self.states or self.queue or self.user or self.owners is not None or self.jobs)

    def takes(self, one: Listed, now: float) -> bool:
        is_over = one.state in OVER
        if self.jobs and self.jobs.isdisjoint(names_of(one)):
            return False
        if is_over and not (self.everything or self.states or self.jobs):
            return False
        if self.states and one.state not in self.states:
            return False
        if is_over and not self.jobs and one.since() < now - DAY_SECONDS:
            return False
        if (self.queue and one.spec.queue != self.queue) or (self.user and self.user not in (one.user, one.spec.user)):
            return False
        return self.owners is None or any(key in self.owners for key in keys(one))

    def made(self, things: Iterable[Thing], now: float) -> list[tuple[msgspec.Raw, Listed]]:
        """Which it takes of Workloads that no server sent: as one would send them, and read."""
        both = ((msgspec.Raw(msgspec.json.encode(it)), msgspec.convert(it, Listed)) for it in things)
        return [it for it in both if self.takes(it[1], now)]


def names_of(one: Listed) -> set[str]:
    """What people may call it."""
    return called(one.metadata.name, ((it.kind, it.name) for it in one.metadata.owner_references or ()))


def keys(one: Listed) -> list[tuple[str, str, str]]:
    """What its owners and itself go by in a choice by labels."""
    space = one.metadata.namespace
    owners = [(it.kind, space, it.name) for it in one.metadata.owner_references or ()]
    return [*owners, ("Workload", space, one.metadata.name)]


async def taken(client: Client, namespace: str, filter: Filter) -> list[tuple[msgspec.Raw, Listed]]:
    """The Workloads that a filter takes, those that pods and groups of them stand for too, in the order of `rank`: as
    they were sent, and read."""
    decode, now = msgspec.json.Decoder(Listed).decode, client.clock.now()
    listed = []
    async for page in client.pages(Selection(kinds.WORKLOADS, namespace)):
        listed += [(raw, decode(raw)) for raw in page.items or ()]
    own, known = await bare(client, namespace), {one.key for _, one in listed}
    stood = (it for it in (*map(read, own), *gathering(own)) if it and key_of(it) not in known)
    found = [*(it for it in listed if filter.takes(it[1], now)), *filter.made(stood, now)]
    return sorted(found, key=lambda it: rank(it[1]))


async def check_queue(client: Client, queue: str) -> None:
    """A Problem where one is asked for that does not exist; who may not see queues is not told."""
    found = await allowed(client.list(Selection(kinds.QUEUES))) if queue else None
    names = {it["metadata"]["name"] for it in found or ()}
    if found is not None and queue not in names:
        raise Problem(f"--queue: there is no queue {queue!r}{near(queue, names)}", exit_code=1)


class Named(msgspec.Struct):
    """An object of which only the name is read."""

    metadata: "_Name"


class _Name(msgspec.Struct):
    name: str
    namespace: str = ""


async def chosen(client: Client, namespace: str, labels: str, of: Sequence[Kind] = ()) -> set[tuple[str, str, str]]:
    """Kind, namespace and name of the objects that a label selector takes: Jobs, bare pods and Workloads."""
    found = set()
    for kind in of or (kinds.JOBS, kinds.PODS, kinds.WORKLOADS):
        try:
            items = await client.list(Selection(kind, namespace, labels=labels), Named)
        except ApiError as error:
            if error.status == 400:
                raise Problem(f"--selector: {error.message}") from error
            raise
        found |= {(kind.name, it.metadata.namespace, it.metadata.name) for it in items}
    return found


@dataclass(frozen=True, slots=True)
class Sight:
    """What rows need beside the workloads. `limits`: the time limit by queue; `done`: by key, of arrays;
    `memory`: bytes of a GPU by node, where a workload asks by it."""

    now: float
    limits: Mapping[str, float]
    done: Mapping[tuple[str, str], str]
    memory: Mapping[str, int]

    @classmethod
    async def of(cls, client: Client, items: Sequence[Listed]) -> "Sight":
        arrays = [it for it in items[:MOST_ROWS] if ARRAY in (it.metadata.annotations or {})]
        done = {it.key: await _done(client, it) for it in arrays}
        is_shared = not items or any(it.shares_memory() for it in items)  # of none yet nobody knows
        return cls(client.clock.now(), await limits_of(client), done, await memories(client) if is_shared else {})


async def memories(client: Client) -> dict[str, int]:
    """Bytes of the smallest GPU of each node's pool where they are known; none where the user may not see nodes. Pools
    that may not be seen are one."""
    from fairway.api.decode import cleaned, decode
    from fairway.api.nodes import node
    from fairway.api.objects import NodeObject
    from fairway.api.quantities import Malformed
    from fairway.api.queues import pool
    from fairway.api.types import NodePoolObject
    from fairway.engine import Node, Pool, World, device_memory, snapshot_of

    nodes, pools = list[Node](), list[Pool]()
    for it in await allowed(client.list(Selection(kinds.NODES))) or ():
        with suppress(Malformed):
            nodes.append(node(decode(cleaned(it), NodeObject)))
    for it in await allowed(client.list(Selection(kinds.NODE_POOLS)), or_absent=True) or ():
        with suppress(Malformed):
            pools.append(pool(decode(cleaned(it), NodePoolObject)))
    known = snapshot_of(World(nodes=tuple(nodes), pools=tuple(pools)))
    places = zip(known.nodes, known.pool_of.tolist())
    found = {one.name: known.gpu_memory[at] if at >= 0 else device_memory(one) for one, at in places}
    return {name: size for name, size in found.items() if size}


async def limits_of(client: Client) -> dict[str, float]:
    """The default time limit of each queue: its own, or the nearest above it."""
    listed, found = await allowed(client.list(Selection(kinds.QUEUES))), {}
    queues = {it["metadata"]["name"]: it.get("spec") or {} for it in listed or ()}
    parents = {name: spec.get("parent", "") for name, spec in queues.items()}
    for name in queues:
        specs = (queues.get(at) or {} for at in lineage(parents, name))
        texts = [(spec.get("timeLimit") or {}).get("default", "") for spec in specs]
        found[name] = length(next(filter(None, texts), ""))
    return found


async def _done(client: Client, one: Listed) -> str:
    """Of an array: how many of its tasks have succeeded, of all."""
    total = (one.metadata.annotations or {})[ARRAY]
    try:
        job = await client.get(Ref(kinds.JOBS, one.name, one.metadata.namespace))
    except ApiError:
        return f"?/{total}"
    return f"{(job.get('status') or {}).get('succeeded', 0)}/{total}"


def print_rows(items: Sequence[Listed], sight: Sight, *, space: str, is_wide: bool = False, empty: str = NONE) -> None:
    head, rows = columns(items, sight, space=space)
    print_table(head, rows, empty=empty, less=() if is_wide else LESS)


def columns(items: Sequence[Listed], sight: Sight, *, space: str) -> tuple[list[str], list[list[str]]]:
    """Heads and rows, without the columns that would be empty; the namespace only where there may be several."""
    rows = [row(it, sight.limits, sight.done.get(it.key, ""), sight.now, sight.memory) for it in items]
    always = ("NAME", "QUEUE", "STATE", "REASON")
    kept = [at for at, name in enumerate(HEAD) if name in always or any(cells[at] for cells in rows)]
    kept = [at for at in kept if at or not space]
    return [HEAD[at] for at in kept], [[cells[at] for at in kept] for cells in rows]
