"""Time: what holds and reservations keep is not taken by workloads that stay too long, and not promised twice."""

from math import inf

import numpy as np

from fairway.engine import DEVICE, GPU, Admit, Columns, Reservation, Wait, Workload

from .layout import Item, Layout
from .placement import Found
from .plan_view import DAY, PlanView
from .queues import Books


def holds(view: PlanView) -> Found:
    """A hold is for room that is known to come free, and that no other hold is for at that time; so with limits."""
    waits = [wait for wait in view.of(Wait) if wait.held and wait.starts_at and wait.workload in view.waiting]
    for wait in waits:
        beside = [other for other in waits if other is not wait and meets(view, other, wait.starts_at or 0)]
        items = [Item(view.waiting[it.workload], it.held, "new") for it in (wait, *beside) if it.held]
        held = Layout(view.snapshot, items)
        yield from delays(view, wait, held)
        books = Books(view)
        if beside and ((books.part(held, 0) > 0) & (books.sum(held, range(len(items))) > books.limit)).any():
            yield wait.workload, "its queue's limit is held for another then"


def meets(view: PlanView, other: Wait, time: float) -> bool:
    """Whether a hold begins before then and nothing says that it is over by then."""
    starts = other.starts_at or 0
    return starts <= time < ends(view, view.waiting[other.workload], starts)


def delays(view: PlanView, wait: Wait, held: Layout) -> Found:
    """Items that take room of a hold, the first of `held`, and stay too long; only what stands on its nodes is looked
    at."""
    laid, items, size, names = view.laid, view.laid.items, view.snapshot.free.size, held.items[0].admission.nodes
    owners = {item.key for item in held.items}
    late = [at for at, item in enumerate(view.starts) if stays(view, item, wait, owners)]
    near = view.standing_on(names)
    ending = Layout(view.snapshot, [item for item in near if not stays(view, item, wait, owners)])
    gone = {item.key for item in ending.items}
    leaving = [at for at in range(len(view.starts), len(items)) if items[at].key not in gone]
    before = [at for at in late if items[at].role in ("moved", "told")]
    taken = held.total([0])[:size]
    given = ending.total(range(len(ending.items))) + laid.total(leaving) - laid.total(before)
    free = (view.free + given)[:size] - held.total(range(len(held.items)))[:size]
    if ((free < 0) & (taken > 0)).any():
        yield wait.workload, "its room is not known to come free"
    at_risk = {it.workload for it in view.of(Admit) if it.backfilled_for in owners}
    new = [at for at in late if at not in before and not (items[at].key in at_risk and items[at][0].preemptible)]
    takes = laid.total(new)[:size]
    is_short = (takes > free) & (takes > 0) & (taken > 0)
    for cell, takers in laid.takers(np.pad(is_short, (0, len(view.free) - size))).items():
        left = int(free[cell])
        for at, amount in ((at, amount) for at, amount in takers if at in new):
            if amount > left:
                yield items[at].key, f"delays {wait.workload}"
            else:
                left -= amount


def stays(view: PlanView, item: Item, hold: Wait, owners: set[str]) -> bool:
    """Whether nothing says that it ends by then. `owners`: those of holds that have begun by then."""
    one = view.running.get(item.key)
    if one is not None and one.backfilled_for in owners:
        return False  # the held workload may take it back
    return ends(view, item.workload, began(view, item)) > (hold.starts_at or 0)


def began(view: PlanView, item: Item) -> float:
    one = view.running.get(item.key)
    return view.snapshot.now if one is None or one.admitted_at is None else one.admitted_at


def ends(view: PlanView, workload: Workload, since: float) -> float:
    """When it is over by its enforced limit; what was learned may say any time, claims do not count."""
    if (limit := view.time_limit(workload)) is not None:
        return since + limit
    return -inf if is_learned(view, workload) else inf


def is_learned(view: PlanView, workload: Workload) -> bool:
    return any(queue.ledger.runtimes for queue in view.path(workload))


def reservations(view: PlanView) -> Found:
    """In its window only the queue of a reservation uses what is reserved; before it only what is gone in time. Windows
    that overlap add up; where they are more than there is, what a queue uses of its own takes nothing from others."""
    windows = [(kept, opens) for kept in view.snapshot.reservations if (opens := window(view, kept)) is not None]
    pods = [pod for pod, _ in (*view.laid.kinds, *view.standing.kinds)] if windows else []
    is_whole = not any(pod.gpu_fraction or pod.gpu_memory for pod in pods)  # parts of devices leave no whole ones
    for kept, start in windows:
        on = [other for other, opens in windows if opens <= start < opens + other.duration]
        beside = [other for other in on if other.pool == kept.pool]
        wanted = {other: unused(view, other) for other in beside if other.amount}
        room = spare(view, kept.pool, start) - sum((np.maximum(amounts, 0) for amounts in wanted.values()), 0)
        for item in view.starts:
            if item.role != "new" or is_gone(view, item, start) or is_member(view, kept, item.workload):
                continue
            if item.admission.nodes.intersection(kept.nodes):
                yield item.key, kept.name
            part = Layout(view.snapshot, [item]).amounts[0] if kept.amount and item.admission.pool == kept.pool else 0
            own = (amounts >= 0 for other, amounts in wanted.items() if is_member(view, other, item.workload))
            is_own = np.any([np.zeros(len(view.snapshot.resources), np.bool_), *own], axis=0)
            if is_whole and ((room < 0) & (part > 0) & (amounts_of(view, kept) > 0) & ~is_own).any():
                yield item.key, kept.name


def window(view: PlanView, kept: Reservation) -> float | None:
    """When the window begins that is open or comes next; None when all are over."""
    now, period, start = view.snapshot.now, {"Daily": DAY, "Weekly": 7 * DAY}.get(kept.repeat), kept.start
    if period and start + kept.duration <= now:
        start += period * ((now - start - kept.duration) // period + 1)
    return start if start + kept.duration > now else None


def is_gone(view: PlanView, item: Item, start: float) -> bool:
    """Whether it can be gone when a window begins that is not open yet."""
    now = view.snapshot.now
    return start > now and (item.workload.preemptible or ends(view, item.workload, now) <= start)


def is_member(view: PlanView, kept: Reservation, workload: Workload) -> bool:
    return kept.queue in {queue.name for queue in view.path(workload)}


def amounts_of(view: PlanView, kept: Reservation) -> Columns:
    """int64[resource]: what is reserved of a pool."""
    return np.array([dict(kept.amount).get(name, 0) for name in view.snapshot.resources], np.int64)


def unused(view: PlanView, kept: Reservation) -> Columns:
    """int64[resource]: what its queue does not use yet of what is reserved; below zero what it uses beyond that."""
    items = [item for item in (*view.stands, *view.starts) if item.admission.pool == kept.pool
             and is_member(view, kept, item.workload) and (item.role != "stands" or item.key not in view.going)]
    laid = Layout(view.snapshot, items)
    used = laid.amounts[laid.form_of].sum(axis=0) if items else 0
    unused: Columns = amounts_of(view, kept) - used
    return unused


def spare(view: PlanView, pool: str, start: float) -> Columns:
    """int64[resource]: what usable nodes of a pool have, in whole devices, with all gone that could be by then."""
    snapshot, size = view.snapshot, view.snapshot.free.size
    leave = [at for at in range(len(view.laid.items)) if at >= len(view.starts)]
    leaves = view.laid.total([*leave, *(at for at, item in enumerate(view.starts) if is_gone(view, item, start))])
    may_go = [at for at, item in enumerate(view.stands) if item.key not in view.going
              and (item.workload.preemptible or is_learned(view, item.workload)
                   or ends(view, item.workload, began(view, item)) <= start)]
    free = (view.free - view.taken + leaves + view.standing.total(may_go))[:size].reshape(snapshot.free.shape)
    rows = [one.name for one in snapshot.pools].index(pool) if pool in {one.name for one in snapshot.pools} else -2
    there = np.maximum(free[:, (snapshot.pool_of == rows) & snapshot.is_usable], 0)
    unit = np.array([[DEVICE if name == GPU else 1] for name in snapshot.resources], np.int64)
    total: Columns = (there // unit * unit).sum(axis=1)
    return total
