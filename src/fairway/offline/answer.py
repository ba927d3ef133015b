"""A plan as plain values: what `fairway plan -o json` prints, and whatever else tells of verdicts.

The words of the verdicts, and the fields below them, are a promise to programs: docs/reference/plan lists them.
"""

import msgspec

from fairway.api.conditions import hold_time, waiting
from fairway.api.quantities import format, time_text
from fairway.api.workloads import admission_status
from fairway.engine import Admission, Admit, Evict, Finish, Plan, Resize, Verdict, Wait, Workload, World

Entry = dict[str, object]


def answer_of(world: World, made: Plan) -> dict[str, object]:
    """The whole plan."""
    workloads = workloads_of(world)
    queues = {key: one.queue for key, one in workloads.items()}
    entries = [entry(verdict, workloads[verdict.workload], queues) for verdict in made.verdicts]
    return {"verdicts": entries, "shares": shares_of(world, made), "againAt": moment(made.again_at)}


def workloads_of(world: World) -> dict[str, Workload]:
    """By key."""
    return {one.key: one for one in (*world.pending, *(it.workload for it in world.running))}


def shares_of(world: World, made: Plan) -> dict[str, dict[str, dict[str, str]]]:
    """Shares by queue, pool and resource. A quota for all pools is told under `*`, and where there is only one pool
    under the name of that too."""
    pools = [pool.name for pool in world.pools] or ["default"]
    found: dict[str, dict[str, dict[str, str]]] = {}
    for (queue, pool, resource), amount in sorted(made.shares.items()):
        for name in dict.fromkeys((pool, pools[0] if pool == "*" and len(pools) == 1 else pool)):
            found.setdefault(queue, {}).setdefault(name, {}).setdefault(resource, format(amount, resource))
    return found


def entry(verdict: Verdict, workload: Workload, queues: dict[str, str]) -> Entry:
    """One verdict; `null` where there is nothing to tell."""
    said: Entry = {"workload": verdict.workload, "verdict": type(verdict).__name__}
    match verdict:
        case Admit():
            said |= {"after": list(verdict.after), "startsAt": None, "placement": placement(verdict.admission)}
            said |= {"backfilledFor": verdict.backfilled_for or None}
        case Wait():
            said |= {"reason": str(verdict.reason), "message": waiting(verdict, workload, queues)}
            begins = verdict.starts_at and hold_time(verdict.starts_at)
            said |= {"position": verdict.position, "startsAt": moment(begins)}
        case Evict():
            said |= {"reason": str(verdict.cause), "for": verdict.beneficiary or None}
            said |= {"placement": placement(verdict.admission), "exceeds": verdict.budget or None}
        case Resize():
            said |= {"from": dict(verdict.before), "to": dict(verdict.after), "for": verdict.beneficiary or None}
            said |= {"placement": placement(verdict.admission)}
        case Finish():
            said |= {"reason": str(verdict.ending)}
    return said


def moment(at: float | None) -> str | None:
    return None if at is None else time_text(at)


def placement(admission: Admission | None) -> object:
    """The shape of `status.admission`."""
    return {"podSets": [], **msgspec.to_builtins(admission_status(admission))} if admission else None
