"""`fairway plan`: what one cycle would decide about the objects of a file. Nothing is asked, nothing is written.

The words of the verdicts, and the fields below them, are a promise to programs: docs/reference/plan lists them.
"""

from typing import TYPE_CHECKING, Any

import click

from .main import Problem
from .output import output_option, print_table, show

if TYPE_CHECKING:
    from fairway.engine import Admission, Plan, Verdict, Workload, World

Entry = dict[str, Any]


@click.command()
@click.option("-f", "--file", "files", multiple=True, required=True, metavar="FILE", help="Objects; - reads them.")
@click.option("--policy", default="fairway", show_default=True, metavar="P", help="The policy to decide by.")
@click.option("--now", metavar="T", help="The time, e.g. 2026-11-21T14:20:00Z; default: the newest in the input.")
@click.option("--all", "everything", is_flag=True, help="Count pods and jobs that are not managed too.")
@output_option
def plan(files: tuple[str, ...], policy: str, now: str | None, everything: bool, output: str) -> None:
    """What would be decided about the objects of a file: the offline what-if."""
    from fairway.api.quantities import Malformed, time, within
    from fairway.engine import PRESETS, decide, snapshot_of
    from fairway.sim.cluster import read

    from .load import load

    if policy not in PRESETS:
        raise Problem(f"--policy: there is no policy {policy!r}; there are {', '.join(PRESETS)}")
    try:
        moment = within("--now", time, now) if now else None
    except Malformed as error:
        raise Problem(str(error)) from None
    found = [one for file in files for one in load(file)]
    try:
        world = read(found, everything=everything, now=moment)
    except Malformed as error:
        raise Problem(f"{', '.join('standard input' if file == '-' else file for file in files)}: {error}") from None
    answer = answer_of(world, decide(PRESETS[policy].seen(snapshot_of(world)), PRESETS[policy]))
    show(output, answer, lambda: _print(answer["verdicts"]))


def answer_of(world: "World", made: "Plan") -> dict[str, Any]:
    """The plan as plain values."""
    from fairway.api.quantities import time_text

    workloads = {one.key: one for one in world.pending} | {one.workload.key: one.workload for one in world.running}
    queues = {key: one.queue for key, one in workloads.items()}
    entries = [entry(verdict, workloads[verdict.workload], queues) for verdict in made.verdicts]
    again = None if made.again_at is None else time_text(made.again_at)
    return {"verdicts": entries, "shares": shares_of(world, made), "againAt": again}


def shares_of(world: "World", made: "Plan") -> dict[str, dict[str, dict[str, str]]]:
    """Shares by queue, pool and resource. A quota for all pools is told under `*`, and where there is only one pool
    under the name of that too."""
    from fairway.api.quantities import format

    pools = [pool.name for pool in world.pools] or ["default"]
    found: dict[str, dict[str, dict[str, str]]] = {}
    for (queue, pool, resource), amount in sorted(made.shares.items()):
        for name in {pool, pools[0] if pool == "*" and len(pools) == 1 else pool}:
            found.setdefault(queue, {}).setdefault(name, {}).setdefault(resource, format(amount, resource))
    return found


def entry(verdict: "Verdict", workload: "Workload", queues: dict[str, str]) -> Entry:
    """One verdict; `null` where there is nothing to tell."""
    from fairway.api.conditions import waiting
    from fairway.api.quantities import time_text
    from fairway.engine import Admit, Evict, Finish, Resize, Wait

    said: Entry = {"workload": verdict.workload, "verdict": type(verdict).__name__}
    match verdict:
        case Admit():
            said |= {"after": list(verdict.after), "startsAt": None, "placement": placement(verdict.admission)}
        case Wait():
            said |= {"reason": str(verdict.reason), "message": waiting(verdict, workload, queues)}
            starts = None if verdict.starts_at is None else time_text(verdict.starts_at)
            said |= {"position": verdict.position, "startsAt": starts}
        case Evict():
            moved = placement(verdict.admission) if verdict.admission else None
            said |= {"reason": str(verdict.cause), "for": verdict.beneficiary or None, "placement": moved}
        case Resize():
            said |= {"from": dict(verdict.before), "to": dict(verdict.after), "for": verdict.beneficiary or None}
            said |= {"placement": placement(verdict.admission)}
        case Finish():
            said |= {"reason": str(verdict.ending)}
    return said


def placement(admission: "Admission") -> object:
    """The shape of `status.admission`."""
    import msgspec

    from fairway.api.workloads import admission_status

    return msgspec.to_builtins(admission_status(admission))


def _print(verdicts: list[Entry]) -> None:
    rows = [(one["workload"], one["verdict"], one.get("reason"), _where(one), one.get("message")) for one in verdicts]
    print_table(["WORKLOAD", "VERDICT", "REASON", "WHERE", "WHY"], rows)


def _where(said: Entry) -> str:
    """`h100: n1 ×4, n2 ×4`, and who must go first."""
    found = said.get("placement")
    if not isinstance(found, dict):
        return ""
    shares = [f"{node['node']} ×{node['count']}" for one in found.get("podSets", ()) for node in one.get("nodes", ())]
    after = said.get("after")
    wait = f" after {', '.join(after)}" if isinstance(after, list) and after else ""
    return f"{found.get('pool', '')}: {', '.join(shares)}{wait}"
