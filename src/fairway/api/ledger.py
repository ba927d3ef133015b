"""What a queue remembers of a workload that ended: usage, budget, runtime. Pure.

A workload is charged once, when it has ended: what it held times how long it ran, over all its attempts. The uid is
written down in the same write as the charge, and taken out when the Workload is gone or has let go of its finalizer,
so that a crash anywhere charges neither twice nor never. Usage halves every half-life; a budget starts anew with its
period, and what was used on days before that does not count in it, nor what was used in a queue that is not below.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fairway.engine import DEVICE, GPU, Budgeted, Decayed, Ledger, Pool, Queue, Workload, learn


@dataclass(frozen=True, slots=True)
class Use:
    """`spent`: by pool and resource what it held, in base units, times the seconds. `runtime`: of the last attempt,
    where that succeeded and so tells something about the next of its name. `budget`: what counts in the queue's."""

    workload: Workload
    spent: Mapping[tuple[str, str], float]
    budget: Budgeted
    runtime: float | None = None

    @property
    def gpu_seconds(self) -> float:
        return sum(amount for (_, resource), amount in self.spent.items() if resource == GPU) / DEVICE


def charge(queue: Queue, use: Use, *, now: float, half_life: float) -> Ledger:
    """The queue's ledger with one more workload in it, its own or one of a queue below: users and runtimes are kept
    where the workloads are."""
    ledger = queue.ledger
    usage = dict(ledger.usage)
    for key, amount in use.spent.items():
        usage[key] = grown(usage.get(key), amount, now=now, half_life=half_life)
    users, runtimes, is_own = dict(ledger.users), dict(ledger.runtimes), use.workload.queue == queue.name
    if is_own and use.workload.user:
        users[use.workload.user] = grown(users.get(use.workload.user), use.gpu_seconds, now=now, half_life=half_life)
    if is_own and use.runtime is not None:
        runtimes = learn(runtimes, use.workload, use.runtime)
    return replace(
        queue.spend(queue.counted(*use.budget, now), now),
        usage=tuple(sorted(usage.items())),
        users=tuple(sorted(users.items())),
        runtimes=tuple(sorted(runtimes.items())),
    )


def owing(queue: Queue, uncharged: Mapping[str, float], *, now: float) -> Queue:
    """The queue with as many GPU-seconds in its budget, by workload, that it is not charged for yet: a period begins
    with the first charge."""
    ledger, since = queue.spend(sum(uncharged.values()), now), queue.ledger.budget_since
    since = ledger.budget_since if since is not None else None
    return replace(queue, ledger=replace(ledger, budget_since=since, uncharged=tuple(sorted(uncharged.items()))))


def evicted(ledger: Ledger, gpus: Mapping[Pool, int], *, now: float) -> Ledger:
    """With more milli-GPU in the token buckets of the pools that have one; what was in them drained meanwhile."""
    held = dict(ledger.evicted)
    for pool, amount in gpus.items():
        if pool.eviction_gpus is not None:
            before = held.get(pool.name, Decayed(0.0, now))
            drained = pool.eviction_gpus * max(0.0, now - before.time) / pool.eviction_period
            held[pool.name] = Decayed(max(0.0, before.value - drained) + amount, now)
    return replace(ledger, evicted=tuple(sorted(held.items())))


def grown(before: Decayed | None, amount: float, *, now: float, half_life: float) -> Decayed:
    """A decayed quantity with `amount` more, as of now."""
    old = before.value * 0.5 ** (max(0.0, now - before.time) / half_life) if before else 0.0
    return Decayed(old + amount, max(now, before.time) if before else now)
