"""`fairway simulate`: a load under one or several policies, as a table, and as a report where asked."""

import os
from dataclasses import fields, replace
from math import isnan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from .main import Command, Problem, told
from .output import output_option, print_table, show, span

SECONDS = ("wait", "jct", "makespan")
NAMED = 5  # jobs of a reason that the table names
PATH = click.Path(path_type=Path)


@click.command(cls=Command)
@click.option("--trace", "folder", type=PATH, metavar="DIR", help="A trace: jobs.csv.gz, nodes.csv.gz or pools.csv.")
@click.option(
    "--synthetic", metavar="NAME", help="A shipped load: box, diurnal, bursty, failures, impatient, estimates."
)
@click.option("--nodes", type=PATH, metavar="FILE", help="Other nodes than the load's: a nodes.csv or nodes.csv.gz.")
@click.option("--policy", default="fairway", show_default=True, metavar="P,P,…", help="One or several presets.")
@click.option("--load", "factor", default=1.0, metavar="X", help="Scale the arrivals: 2 = twice as many in a time.")
@click.option("--seed", type=click.IntRange(0), default=42, show_default=True, help="Repeats a synthetic load exactly.")
@click.option("--until", metavar="T", help="Only jobs submitted before this time, e.g. 7d.")
@click.option("--out", type=PATH, metavar="DIR", help="Write report.html, metrics.json and jobs.csv there.")
@output_option
def simulate(policy: str, seed: int, out: Path | None, output: str, **options: Any) -> None:
    """Run a load under policies, in virtual time, and compare what came of it."""
    from fairway.sim import BrokenPlan, is_partial, metrics, prepare, write

    load = _load(seed, SimpleNamespace(**options))
    if out:
        with told(OSError, by="--out: "):
            prepare(out)
    with told(BrokenPlan, by="this is a defect of the policy, please report it: ", exit_code=1):
        results = _run(load, _policies(policy))
    show(output, metrics(load, seed, results), lambda: _print(results))
    if out:
        write(out, load, seed, results)
        click.echo(f"report: {out / 'report.html'}", err=output != "table")
    if is_partial(results):
        raise Problem("stopped before the end: the figures above are partial", exit_code=1)


def _policies(text: str) -> list[str]:
    from fairway.policies import PRESETS

    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in PRESETS]
    if unknown or not names:
        raise Problem(f"--policy: {text!r} is not known; there are: {', '.join(PRESETS)}")
    return list(dict.fromkeys(names))


def _load(seed: int, asked: SimpleNamespace) -> Any:
    from fairway import sim
    from fairway.api.scalars import duration

    if bool(asked.folder) == bool(asked.synthetic):
        raise Problem("name either --trace DIR or --synthetic NAME")
    if not 1e-3 <= asked.factor <= 1e3:
        raise Problem(f"--load: {asked.factor} is not between 0.001 and 1000; 1 is the load as it is")
    if asked.synthetic and asked.synthetic not in sim.synthetic_names():
        raise Problem(f"--synthetic: {asked.synthetic!r} is not known; there are: {', '.join(sim.synthetic_names())}")
    with told(ValueError, by="--until: "):
        end = duration(asked.until) if asked.until else None
    with told(sim.TraceError):
        named = asked.synthetic
        whole = sim.generate(named, seed) if named else sim.read_trace(asked.folder, nodes=asked.nodes)
        if named and asked.nodes:
            whole = replace(whole, nodes=sim.read_nodes(asked.nodes, whole.jobs), outages=())
    found = sim.until(sim.scaled(whole, asked.factor), end)
    if not found.jobs:
        raise Problem(f"--until: no job is submitted before {asked.until}; the first is after it")
    return found


def _run(load: Any, policies: list[str]) -> Any:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from fairway.sim import Mechanics, compare

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} jobs"))
    with Progress(*columns, TimeRemainingColumn(), transient=True, disable=not os.isatty(2)) as progress:
        bars = {name: progress.add_task(name, total=len(load.jobs)) for name in policies}
        return compare(load, policies, Mechanics(), lambda name, ended: progress.update(bars[name], completed=ended))


def _print(results: Any) -> None:
    """Policies across, measures down: so many columns would not fit a screen. Below, the jobs that never ran."""
    from fairway.sim import Measures, stuck

    rows = []
    for name in (field.name for field in fields(Measures)):
        cells = (_cell(name, getattr(it.measures, name)) for it in results.values())
        rows.append([name.replace("_", " "), *cells])
    print_table(["MEASURE", *results], rows)
    for name, it in results.items():
        for reason, jobs in stuck(it.outcomes).items():
            more = f" and {len(jobs) - NAMED} more" if len(jobs) > NAMED else ""
            click.echo(f"{name}: never run, {reason}: {', '.join(jobs[:NAMED])}{more}")


def _cell(name: str, value: float) -> str:
    from fairway.sim import figure

    if isnan(value):
        return "-"
    return span(value) if any(word in name for word in SECONDS) and "gpu" not in name else figure(value)
