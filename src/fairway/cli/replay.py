"""`fairway replay`: decide again on a recorded snapshot, and compare. Exit status 1 where the plans differ."""

from pathlib import Path
from typing import Any

import click

from .main import Problem
from .output import output_option, show


@click.command()
@click.argument("file", metavar="FILE")
@output_option
def replay(file: str, output: str) -> None:
    """Decide again on a recorded snapshot, and compare."""
    from fairway.engine import PRESETS, check, decide, snapshot_of
    from fairway.record import RecordError, read

    from .plan import answer_of

    try:
        record = read(Path(file))
    except (OSError, RecordError) as error:
        raise Problem(f"{file}: {error}" if isinstance(error, RecordError) else f"{file}: {error.strerror}") from None
    if record.policy not in PRESETS:
        raise Problem(f"{file}: was decided by policy {record.policy!r}, which this version does not have")
    snapshot = snapshot_of(record.world)
    again = decide(snapshot, PRESETS[record.policy])
    before, now = answer_of(record.world, record.plan), answer_of(record.world, again)
    faults = [f"{fault.workload}: {fault.rule} {fault.detail}".rstrip() for fault in check(snapshot, again)]
    changed = [one for one in now["verdicts"] if one not in before["verdicts"]]
    answer = {"same": again == record.plan, "changed": changed, "faults": faults}
    show(output, answer, lambda: _print(answer))
    if not answer["same"] or faults:
        raise click.exceptions.Exit(1)


def _print(answer: dict[str, Any]) -> None:
    click.echo("decided the same" if answer["same"] else "decided otherwise:")
    for one in answer["changed"]:
        click.echo(f"  {one['workload']}: {one['verdict']} {one.get('reason', '')}".rstrip())
    for fault in answer["faults"]:
        click.echo(f"  fault: {fault}")
