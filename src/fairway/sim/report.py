"""report.html: one file that opens from disk, with what it needs inside.

Per policy: a row of the table; the distribution of waits; GPUs held over time, by queue; fragmentation over time; and a
Gantt chart of nodes. Long series are thinned to what a screen can show, and the page says how many jobs of how many it
draws. The charts are uPlot's, drawn by `report.js`; only these two files know it.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from math import isnan
from typing import Any

import jinja2
import msgspec
import numpy as np

from .measure import NAMES, Floats, Measures, Outcome, Series, waits

POINTS = 1500
BARS = 4000


def render(title: str, results: Mapping[str, tuple[Measures, Series, Sequence[Outcome]]], *, is_partial: bool) -> str:
    """The page. `results`: by policy, in the order shown."""
    data = {
        "policies": list(results),
        "waits": {name: _cdf(waits(outcomes)) for name, (_, _, outcomes) in results.items()},
        "series": {name: _series(series) for name, (_, series, _) in results.items()},
        "gantt": {name: _gantt(outcomes) for name, (_, _, outcomes) in results.items()},
    }
    here, vendor = files("fairway") / "sim", files("fairway") / "web" / "static" / "vendor"
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string((here / "report.html").read_text())
    return template.render(
        title=title,
        is_partial=is_partial,
        names=NAMES,
        rows={name: [figure(getattr(measures, one)) for one in NAMES] for name, (measures, _, _) in results.items()},
        data=msgspec.json.encode(data).decode().replace("<", "\\u003c"),
        style=(vendor / "uPlot.css").read_text(),
        chart=(vendor / "uPlot.js").read_text(),
        script=(here / "report.js").read_text(),
    )


def figure(value: float) -> str:
    if isnan(value):
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _cdf(sorted_waits: Floats) -> list[list[float]]:
    """Wait in seconds (at least 1: the axis is logarithmic) and the part of jobs that waited no longer."""
    if not sorted_waits.size:
        return [[], []]
    count = sorted_waits.size
    upto = np.unique(np.linspace(1, count, min(POINTS, count)).astype(np.int64))
    return [np.maximum(1.0, sorted_waits[upto - 1]).round(1).tolist(), (upto / count).round(5).tolist()]


def _series(series: Series) -> dict[str, Any]:
    """Every step function at the same moments: all of them, or POINTS evenly apart."""
    if not series.times.size:
        return {"times": [], "capacity": [], "held": [], "stranded": [], "queues": {}}
    times = series.times
    if times.size > POINTS:
        times = np.linspace(times[0], times[-1], POINTS)
    row = np.searchsorted(series.times, times, side="right") - 1
    return {
        "times": times.round(1).tolist(),
        "capacity": series.capacity[row].tolist(),
        "held": series.held[row].tolist(),
        "stranded": series.stranded[row].tolist(),
        "queues": {name: values[row].tolist() for name, values in zip(series.queues, series.by_queue)},
    }


def _gantt(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Bars of (node row, start, end, queue row): the runs that held most GPU-time, at most BARS of them."""
    runs = [(run, it.job) for it in outcomes for run in it.runs if run.end > run.start]
    shown = sorted(runs, key=lambda pair: -(pair[0].end - pair[0].start) * pair[1].total_gpus)[:BARS]
    nodes = sorted({node for run, _ in shown for node in run.nodes})
    queues = sorted({job.queue for _, job in shown})
    row, colour = {name: at for at, name in enumerate(nodes)}, {name: at for at, name in enumerate(queues)}
    bars = [
        [row[node], round(run.start, 1), round(run.end, 1), colour[job.queue]]
        for run, job in shown
        for node in run.nodes
    ]
    return {"nodes": nodes, "queues": queues, "bars": bars, "shown": len(shown), "runs": len(runs)}
