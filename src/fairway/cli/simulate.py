"""`fairway simulate`: a load under one or several policies, as a table, and as a report where asked."""

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from .main import Problem
from .output import print_table, span

SECONDS = ("wait", "jct", "makespan")


@click.command()
@click.option("--trace", "folder", metavar="DIR", help="A trace: jobs.csv.gz with nodes.csv.gz or pools.csv.")
@click.option("--synthetic", metavar="NAME", help="A load that is shipped: box, diurnal, bursty, failures, estimates.")
@click.option("--nodes", metavar="FILE", help="Other nodes than the trace's: a nodes.csv or nodes.csv.gz.")
@click.option("--policy", default="fairway", show_default=True, metavar="P,P,…", help="One or several presets.")
@click.option("--load", "factor", default=1.0, metavar="X", help="Scale the arrivals: 2 = twice as many in a time.")
@click.option("--seed", default=42, show_default=True, help="Repeats a synthetic load exactly.")
@click.option("--until", metavar="T", help="Only jobs submitted before this time, e.g. 7d.")
@click.option("--out", metavar="DIR", help="Write report.html, metrics.json and jobs.csv there.")
def simulate(folder: str | None, synthetic: str | None, policy: str, seed: int, **options: Any) -> None:
    """Run a load under policies, in virtual time, and compare what came of it."""
    from fairway.sim.simulate import BrokenPlan, write

    load = _load(folder, synthetic, seed, options)
    try:
        results = _run(load, _policies(policy))
    except BrokenPlan as fault:
        raise Problem(f"{fault}; this is a defect of the policy, please report it", exit_code=1) from fault
    _print(results)
    if options["out"]:
        write(Path(options["out"]), load, seed, results)
        click.echo(f"report: {Path(options['out']) / 'report.html'}")
    if any(it.is_partial for it in results.values()):
        raise Problem("stopped before the end: the figures above are partial", exit_code=1)


def _policies(text: str) -> list[str]:
    from fairway.engine import PRESETS

    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in PRESETS]
    if unknown or not names:
        raise Problem(f"--policy: {text!r} is not known; there are: {', '.join(PRESETS)}")
    return list(dict.fromkeys(names))


def _load(folder: str | None, synthetic: str | None, seed: int, options: dict[str, Any]) -> Any:
    from fairway.api import quantities
    from fairway.sim.load import scaled, until
    from fairway.sim.synthetic import generate, names
    from fairway.sim.trace import TraceError, read

    if bool(folder) == bool(synthetic):
        raise Problem("name either --trace DIR or --synthetic NAME")
    if options["factor"] <= 0:
        raise Problem(f"--load: {options['factor']} is not above 0; 1 is the load as it is")
    try:
        end = quantities.duration(options["until"]) if options["until"] else None
        if synthetic and synthetic not in names():
            raise Problem(f"--synthetic: {synthetic!r} is not known; there are: {', '.join(names())}")
        nodes = Path(options["nodes"]) if options["nodes"] else None
        whole = read(Path(folder), nodes=nodes) if folder else generate(str(synthetic), seed)
    except (TraceError, ValueError) as error:
        raise Problem(str(error)) from error
    return until(scaled(whole, options["factor"]), end)


def _run(load: Any, policies: list[str]) -> Any:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from fairway.sim.simulate import compare
    from fairway.sim.world import Mechanics

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} jobs"))
    with Progress(*columns, TimeRemainingColumn(), transient=True, disable=not os.isatty(2)) as progress:
        bars = {name: progress.add_task(name, total=len(load.jobs)) for name in policies}
        return compare(load, policies, Mechanics(), lambda name, ended: progress.update(bars[name], completed=ended))


def _print(results: Any) -> None:
    """Policies across, measures down: sixteen columns would not fit a screen."""
    from fairway.sim.measure import Measures

    rows = []
    for name in (field.name for field in fields(Measures)):
        cells = (_cell(name, getattr(it.measures, name)) for it in results.values())
        rows.append([name.replace("_", " "), *cells])
    print_table(["MEASURE", *results], rows)


def _cell(name: str, value: float) -> str:
    from fairway.sim.report import figure

    return span(value) if any(word in name for word in SECONDS) and "gpu" not in name else figure(value)
