"""What is promised for later: nobody who stays too long takes what a hold or a reservation keeps."""

import numpy as np

from fairway.engine.plan import Admit, Wait
from fairway.engine.snapshot import Columns

from .case import Case
from .court import DAY
from .ground import Found
from .layout import Item, Layout


def holds(case: Case) -> Found:
    """A hold is for room that is known to come free."""
    for wait in case.of(Wait):
        if wait.held and wait.starts_at and wait.workload in case.waiting:
            yield from delays(case, wait, Layout(case.snapshot, [Item(case.waiting[wait.workload], wait.held, "new")]))


def delays(case: Case, wait: Wait, held: Layout) -> Found:
    laid, items, count = case.laid, case.laid.items, len(case.starts)
    late = [at for at, item in enumerate(case.starts) if stays(case, item, wait)]
    ending = [at for at, item in enumerate(case.stands) if not stays(case, item, wait)]
    gone = {case.stands[at].key for at in ending}
    leaving = [at for at in range(count, len(items)) if items[at].key not in gone]
    taken = nodes_of(case, held.total([0]))
    free = nodes_of(case, case.free + case.standing.total(ending) + laid.total(leaving)) - taken
    free -= nodes_of(case, laid.total([at for at in late if items[at].role in ("moved", "told")]))
    if ((free < 0) & (taken > 0)).any():
        yield wait.workload, "its room is not known to come free"
    new = [at for at in late if items[at].role in ("new", "more") and not is_at_risk(case, items[at], wait)]
    takes = nodes_of(case, laid.total(new))
    is_short = (takes > free) & (takes > 0) & (taken > 0)
    for cell, takers in laid.takers(np.pad(is_short, (0, len(case.free) - len(is_short)))).items():
        left = int(free[cell])
        for at, amount in ((at, amount) for at, amount in takers if at in new):
            if amount > left:
                yield items[at].key, f"delays {wait.workload}"
            else:
                left -= amount


def nodes_of(case: Case, cells: Columns) -> Columns:
    """Of all cells, those of resources of nodes."""
    return cells[: case.snapshot.free.size]


def is_at_risk(case: Case, item: Item, hold: Wait) -> bool:
    """Whether it may be taken out of the hold again."""
    own = case.verdicts[item.key]
    return isinstance(own, Admit) and own.backfilled_for == hold.workload and item.workload.preemptible


def stays(case: Case, item: Item, hold: Wait) -> bool:
    """Whether nothing says that it ends by then: no enforced limit, nothing learned; claims do not count."""
    one, now = case.running.get(item.key), case.snapshot.now
    since = now if one is None or one.admitted_at is None else one.admitted_at
    if (limit := case.time_limit(item.workload)) is not None:
        return since + limit > (hold.starts_at or 0)
    return not any(queue.ledger.runtimes for queue in case.path(item.workload))


def reservations(case: Case) -> Found:
    """In its window only the queue of a reservation uses the nodes; before it only who is gone in time."""
    now = case.snapshot.now
    for kept in case.snapshot.reservations:
        period, start = {"Daily": DAY, "Weekly": 7 * DAY}.get(kept.repeat), kept.start
        if period and start + kept.duration <= now:
            start += period * ((now - start - kept.duration) // period + 1)
        for item in case.starts if start + kept.duration > now else ():
            limit, names = case.time_limit(item.workload), {queue.name for queue in case.path(item.workload)}
            is_gone = start > now and (item.workload.preemptible or (limit is not None and now + limit <= start))
            is_foreign = item.role == "new" and kept.queue not in names and not is_gone
            if is_foreign and item.admission.nodes.intersection(kept.nodes):
                yield item.key, kept.name
