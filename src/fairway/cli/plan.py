"""`fairway plan`: what one cycle would decide about the objects of a file. `fairway replay`: decide again on a recorded
snapshot, and compare; exit status 1 where the plans differ. Nothing is asked, nothing is written."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from .main import Command, Problem, told
from .output import output_option, print_table, show

Entry = dict[str, Any]


@click.command(cls=Command)
@click.option("-f", "--file", "files", multiple=True, required=True, metavar="FILE", help="Objects; - reads them.")
@click.option("--policy", default="fairway", show_default=True, metavar="P", help="The policy to decide by.")
@click.option("--now", metavar="T", help="The time, e.g. 2026-11-21T14:20:00Z; default: the newest in the input.")
@click.option("--all", "everything", is_flag=True, help="Count pods and jobs that are not managed too.")
@output_option
def plan(files: tuple[str, ...], policy: str, now: str | None, everything: bool, output: str) -> None:
    """What would be decided about the objects of a file: the offline what-if."""
    from fairway.api.quantities import Malformed, time, within
    from fairway.engine import decide, snapshot_of
    from fairway.kube.manifest import Unreadable, load
    from fairway.offline import answer_of, explained, read
    from fairway.policies import PRESETS

    if policy not in PRESETS:
        raise Problem(f"--policy: there is no policy {policy!r}; there are {', '.join(PRESETS)}")
    with told(Malformed, Unreadable):
        moment = within("--now", time, now) if now else None
        found = [one for file in files for one in load(file)]
    with told(Malformed, by=f"{', '.join('standard input' if file == '-' else file for file in files)}: "):
        world = read(found, everything=everything, now=moment)
    made = decide(PRESETS[policy].seen(snapshot_of(world)), PRESETS[policy])
    answer = answer_of(world, explained(world, made, PRESETS[policy]))
    show(output, answer, lambda: _print(answer["verdicts"]))


def _print(verdicts: Any) -> None:
    rows = [(one["workload"], one["verdict"], one.get("reason"), _where(one), one.get("message")) for one in verdicts]
    print_table(["WORKLOAD", "VERDICT", "REASON", "WHERE", "WHY"], rows)


def _where(said: Entry) -> str:
    """`h100: n1 ×4, n2 ×4`, and who must go first."""
    found = said.get("placement")
    if not found:
        return ""
    shares = [f"{node['node']} ×{node['count']}" for one in found.get("podSets", ()) for node in one.get("nodes", ())]
    wait = f" after {', '.join(said['after'])}" if said.get("after") else ""
    return f"{found.get('pool', '')}: {', '.join(shares)}{wait}"


@click.command(cls=Command)
@click.argument("file", metavar="FILE")
@output_option
def replay(file: str, output: str) -> None:
    """Decide again on a recorded snapshot, and compare."""
    from fairway.engine import decide, snapshot_of
    from fairway.offline import answer_of
    from fairway.policies import PRESETS
    from fairway.record import RecordError, read
    from fairway.referee import check

    with told(RecordError):
        record = read(Path(file))
    if record.policy not in PRESETS:
        raise Problem(f"{file}: was decided by policy {record.policy!r}, which this version does not have")
    snapshot = snapshot_of(record.world)
    preset = PRESETS[record.policy]
    again = decide(snapshot, replace(preset, usage_weight=record.usage_weight, half_life=record.half_life))
    before, now = (answer_of(record.world, made)["verdicts"] for made in (record.plan, again))
    faults = [f"{fault.workload}: {fault.rule} {fault.detail}".rstrip() for fault in check(snapshot, again)]
    answer = {"same": again == record.plan, "changed": [one for one in now if one not in before], "faults": faults}
    show(output, answer, lambda: _print_difference(answer))
    if not answer["same"] or faults:
        raise click.exceptions.Exit(1)


def _print_difference(answer: dict[str, Any]) -> None:
    click.echo("decided the same" if answer["same"] else "decided otherwise:")
    for one in answer["changed"]:
        click.echo(f"  {one['workload']}: {one['verdict']} {one.get('reason', '')}".rstrip())
    for fault in answer["faults"]:
        click.echo(f"  fault: {fault}")
