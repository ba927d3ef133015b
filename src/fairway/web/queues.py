"""The view Queues: the tree, with what each queue is owed, may use, uses and lends, of GPUs first.

What queues hold and have waiting is counted from their workloads as they are now. The share is decided, not counted: it
is as of the Queue's status, which is some seconds old, with many queues up to a minute.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from fairway.api import types
from fairway.api.quantities import Malformed, decimal, exact, parse
from fairway.api.queues import budget_used, lineage, path
from fairway.engine import DEVICE, GPU

from . import floor
from .page import Ask, Page, drawn
from .workload import OVER
from .world import World


@dataclass(frozen=True, slots=True)
class Budget:
    """GPU-hours. `reserved`: what has not ended can come to; `left`: for what starts now. `out`: in how many hours it
    is spent, if what is held now is held on; `renews`: when it is whole again."""

    limit: float
    spent: float
    reserved: float
    left: float
    renews: float | None
    out: float | None


@dataclass(slots=True)
class Tally:
    """What a queue and all below it have now; GPUs, and how many workloads wait. `users`: what each holds that may be
    seen."""

    held: float = 0.0
    asked: float = 0.0
    waits: int = 0
    users: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


@dataclass(frozen=True, slots=True)
class Row:
    """`guaranteed`, `limit`, `share`: GPUs over all pools, None where the queue says nothing. `with_whom`: of what a
    queue borrows, the queues beside it that leave some; of what it leaves, those that borrow."""

    name: str
    depth: int
    guaranteed: float | None
    limit: float | None
    share: float | None
    now: Tally
    others: tuple[str, ...]
    stopped: str
    problem: str
    budget: Budget | None = None
    with_whom: tuple[str, ...] = ()
    most: float = 1.0

    @property
    def borrowed(self) -> float:
        return max(0.0, self.now.held - (self.guaranteed or 0.0)) if self.guaranteed is not None else 0.0

    @property
    def left(self) -> float:
        return max(0.0, (self.guaranteed or 0.0) - self.now.held)


def page(world: World, ask: Ask) -> Page:
    tallies, capacity = _tallies(world, ask), sum(it.gpus for it in floor.rows(world))
    seen = world.queues.keys() if ask.sight.sees_queues else _seen(world, ask)
    tree = [one for one in _tree(world.queues) if one[0] in seen]
    named = {
        name: replace(_row(said, depth, tallies[name], capacity), budget=_budget(said, tallies[name].held, ask.now))
        for name, said, depth in tree
    }
    kin: defaultdict[str, list[Row]] = defaultdict(list)
    parent = {name: world.queues[name].spec.parent for name in named}
    for name, row in named.items():
        kin[parent[name]].append(row)
    whole = {above: (named[above].guaranteed if above in named else None) or capacity for above in kin}
    shown = (max(it.guaranteed or 0, it.limit or 0, it.share or 0, it.now.held) for it in named.values())
    most = max(1.0, capacity, *shown)
    rows = {
        name: replace(row, with_whom=_partners(row, kin[parent[name]], whole[parent[name]]), most=most)
        for name, row in named.items()
    }
    unknown = sorted(set(tallies) - set(world.queues))
    facts = {"unknown": unknown, "count": len(rows), "capacity": capacity}
    return drawn("queues", "Queues", facts, {"queues": rows}, ask.before)


def _seen(world: World, ask: Ask) -> set[str]:
    """The queues of the workloads that the viewer may see, and those above them."""
    leaves = {it.queue for it in world.workloads.values() if ask.sight.sees(it.namespace)}
    return {name for leaf in leaves for name in lineage(world.queues, leaf)}


def _tree(queues: Mapping[str, types.QueueObject]) -> list[tuple[str, types.QueueObject, int]]:
    """Parents before their children, each with its depth; those in or below a circle as roots, as are those of a parent
    that is missing."""

    def down(name: str) -> list[str]:
        root, *below = reversed(path(queues, name))
        return [name] if queues[root].spec.parent in queues else [root, *below]

    return [(name, queues[name], len(down(name)) - 1) for name in sorted(queues, key=down)]


def _tallies(world: World, ask: Ask) -> defaultdict[str, Tally]:
    found: defaultdict[str, Tally] = defaultdict(Tally)
    above = {name: tuple(lineage(world.queues, name)) for name in {it.queue for it in world.workloads.values()}}
    for it in world.workloads.values():
        held = it.held
        for name in above[it.queue] if it.state not in OVER else ():
            tally = found[name]
            tally.held += held
            if it.waits:
                tally.waits += 1
                tally.asked += it.asked
            elif it.shares and ask.sight.sees(it.namespace):
                tally.users[it.user or "?"] += held
    return found


def _row(said: types.QueueObject, depth: int, tally: Tally, capacity: float) -> Row:
    spec, status = said.spec, said.status
    quotas = [it for it in spec.quotas if it.pool == "*"] or list(spec.quotas)
    share = [amounts[GPU] for amounts in status.share.values() if GPU in amounts]
    problem = next((it.message for it in status.conditions if it.status == "False" and it.message), "")
    return Row(
        said.metadata.name, depth, _sum([it.guaranteed.get(GPU) for it in quotas], capacity),
        limit=_sum([it.limit.get(GPU) for it in quotas], capacity), share=_sum(list(share), capacity),
        now=tally, others=tuple(_others(said)),
        stopped=spec.stop_policy if spec.stop_policy != "None" else "", problem=problem,
    )  # fmt: skip


def _sum(amounts: list[str | int | float | None], capacity: float) -> float | None:
    """GPUs of several quotas; a percentage is of all GPUs. None where none names any."""
    found = []
    for text in amounts:
        with suppress(Malformed):
            if text is not None:
                relative = str(text).endswith("%")
                found.append(float(exact(str(text)[:-1])) * capacity / 100 if relative else parse(text, GPU) / DEVICE)
    return sum(found) if found else None


def _others(said: types.QueueObject) -> Iterator[str]:
    """`cpu 12 of 64`: of other resources that the queue governs, what it held when its status was written."""
    for quota in said.spec.quotas:
        for name in sorted({*quota.guaranteed, *quota.limit} - {GPU}):
            pools = [it for pool, it in said.status.usage.items() if quota.pool in ("*", pool)]
            with suppress(Malformed):
                used = sum(parse(it[name], name) for it in pools if name in it)
                yield f"{name} {decimal(used, name)} of {quota.limit.get(name) or quota.guaranteed.get(name)}"


def _budget(said: types.QueueObject, held: float, now: float) -> Budget | None:
    if said.spec.budget is None:
        return None
    with suppress(Malformed):
        limit, reserved = float(exact(str(said.spec.budget.gpu_hours))), said.status.budget_reserved
        spent, renews = budget_used(said.spec.budget.period, said.status.budget_spent or types.BudgetUse(), now)
        hours = (limit - spent) / held if held else None
        return Budget(limit, spent, reserved, limit - spent - reserved, renews, hours)
    return None


def _partners(row: Row, kin: list[Row], whole: float) -> tuple[str, ...]:
    """The queues beside it that it borrows from, or lends to; none where enough is guaranteed to nobody."""
    if sum(it.borrowed for it in kin) <= whole - sum(it.guaranteed or 0.0 for it in kin):
        return ()
    others = [it for it in kin if it.name != row.name]
    if row.borrowed:
        return tuple(it.name for it in others if it.left)
    return tuple(it.name for it in others if it.borrowed) if row.left else ()
