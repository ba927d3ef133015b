"""Makes the pictures of docs/pictures, and the figures beside them, by running what the pages show.

The pages say `fairway simulate … --out report` and what it prints; the pictures of waits and queues are drawn from the
data in the report that the command writes. The picture of forecasts follows the same load to one moment, asks then when
those who wait will start, and goes on to see when they did. All is seeded, so `python tools/pictures.py` gives the same
bytes each time; a test compares them.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, log10
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from fairway.cli.output import span
from fairway.outlook import WINDOW, Forecast, forecast
from fairway.policies import PRESETS
from fairway.sim import Mechanics, World, generate, workload_of

DOCS = Path(__file__).parents[1] / "docs"
PICTURES = DOCS / "pictures"
POLICIES, FORECAST = DOCS / "start" / "choose-a-policy.md", DOCS / "concepts" / "forecast.md"
SHOWN = re.compile(
    r"```sh\nfairway (?P<command>simulate [^\n]*--out report)\n```\n\n```text\n(?P<output>.*?)```", re.DOTALL
)
TOLD = re.compile(r"(?<=<!-- forecasts -->\n```text\n).*?(?=```)", re.DOTALL)
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 280, 60, 34, 20, 40
LOAD, SEED, MOMENT = "box", 42, 22 * 3600.0
HOUR = 3600.0
Point = tuple[float, float]
Waited = tuple[str, float, float, float]
"""Who waited: its name, seconds until p50, p90 and the start."""


def made() -> dict[Path, str]:
    """Each file and what it should hold."""
    return {**of_policies(), **of_forecasts()}


def of_policies() -> dict[Path, str]:
    page = POLICIES.read_text()
    found = SHOWN.search(page)
    assert found is not None, f"{POLICIES} shows no command"
    printed, data = simulated(found["command"].split())
    page = page[: found.start("output")] + printed + page[found.end("output") :]
    return {POLICIES: page, PICTURES / "waits.svg": waits(data["waits"]), PICTURES / "queues.svg": queues(data)}


def of_forecasts() -> dict[Path, str]:
    waited = told()
    page = TOLD.sub(lambda _: summary(waited), FORECAST.read_text(), count=1)
    return {FORECAST: page, PICTURES / "forecast.svg": forecasts(waited)}


def simulated(command: Sequence[str]) -> tuple[str, dict]:
    """What it prints, and the data of its report."""
    with TemporaryDirectory() as folder:
        said = subprocess.run(
            [sys.executable, "-m", "fairway.cli.main", *command], cwd=folder, capture_output=True, text=True, check=True
        )
        report = (Path(folder) / "report" / "report.html").read_text()
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', report, re.DOTALL)
    assert data is not None
    return "".join(f"{line.rstrip()}\n" for line in said.stdout.splitlines()), json.loads(data[1])


def told() -> list[Waited]:
    """Those who wait at MOMENT: when they are told that they start, and when they do."""
    load, policy = generate(LOAD, SEED), PRESETS["fairway"]
    world, found, now = World(load, policy, Mechanics()), dict[str, Forecast](), inf
    recent = tuple(workload_of(job, {}) for job in load.jobs if MOMENT - WINDOW < job.submit <= MOMENT)
    for step in world.run():
        if step.now >= MOMENT and not found:
            now = step.now
            whole = replace(world.whole(step.snapshot), recent=recent)
            found = forecast(whole, policy, np.random.default_rng(SEED))
    started = {it.job.id: run.start for it in world.outcomes() for run in reversed(it.runs) if run.start >= now}
    names = ((key.partition("/")[2], one) for key, one in found.items())
    waited = [(name, one.p50 - now, one.p90 - now, started[name] - now) for name, one in names if name in started]
    return sorted(waited, key=lambda it: it[1:])


def summary(waited: Sequence[Waited]) -> str:
    """The figures that belong to the picture."""
    off = [abs(start - p50) for _, p50, _, start in waited]
    in_time = sum(start <= p90 for _, _, p90, start in waited)
    return (
        f"{len(waited)} wait; they started after {span(median(it[3] for it in waited))} (median)\n"
        f"p50 was off by {span(median(off))} (median); {in_time} of {len(waited)} started by p90\n"
    )


# Pictures


def waits(by_policy: dict[str, list[list[float]]]) -> str:
    """The part of jobs that waited no longer, by policy; the horizontal axis is logarithmic."""
    most = max(seconds[-1] for seconds, _ in by_policy.values())
    moments = ((1, "1s"), (10, "10s"), (60, "1m"), (600, "10m"), (3600, "1h"), (36_000, "10h"))
    ticks = [(log10(at), word) for at, word in moments if at <= most]
    plot = Plot((0, log10(most)), (0, 1), ticks, [(it / 4, f"{it * 25} %") for it in range(5)])
    lines = [
        plot.line([(log10(x), y) for x, y in zip(seconds, part)], COLOURS[row])
        for row, (seconds, part) in enumerate(by_policy.values())
    ]
    return plot.svg("Jobs that waited no longer than …", list(by_policy), lines)


def queues(data: dict) -> str:
    """GPUs held by each queue under the first policy."""
    series = data["series"][data["policies"][0]]
    hours, most = [at / HOUR for at in series["times"]], max(series["capacity"])
    plot = Plot((0, hours[-1]), (0, most), [(it, f"{it}h") for it in range(0, int(hours[-1]) + 1, 6)],
                [(it, str(it)) for it in range(0, int(most) + 1, 2)])  # fmt: skip
    lines = [plot.line(stairs(hours, held), COLOURS[row]) for row, held in enumerate(series["queues"].values())]
    return plot.svg(f"GPUs held by each queue under {data['policies'][0]}", list(series["queues"]), lines)


def forecasts(waited: Sequence[Waited]) -> str:
    """A bar from p50 to p90 for each that waits, a dot where it started."""
    most = max(start for *_, start in waited) * 1.1 / HOUR
    plot = Plot((0, most), (len(waited), 0), [(it, f"+{it}h") for it in range(int(most) + 1)], [])
    marks = []
    for row, (_, p50, p90, start) in enumerate(waited):
        left, right = plot.at(p50 / HOUR, row + 0.5), plot.at(min(p90 / HOUR, most), row + 0.5)
        where = f'x="{left[0]:.1f}" y="{left[1] - 4:.1f}" width="{max(2.0, right[0] - left[0]):.1f}" height="8"'
        x, y = plot.at(start / HOUR, row + 0.5)
        marks.append(f'<rect {where} fill="{COLOURS[0]}" opacity=".4"/>')
        marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{COLOURS[1]}"/>')
    return plot.svg("Told: from p50 to p90, for each that waits", ["told", "started"], marks)


def stairs(times: Iterable[float], values: Iterable[float]) -> list[Point]:
    """A step function as a line; only where it changes."""
    points: list[Point] = []
    for at, value in zip(times, values):
        if not points:
            points.append((at, value))
        elif points[-1][1] != value:
            points += [(at, points[-1][1]), (at, value)]
    return points


@dataclass(frozen=True, slots=True)
class Plot:
    """Axes: two ranges, and their ticks (value, word)."""

    xs: Point
    ys: Point
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]

    def at(self, x: float, y: float) -> Point:
        """Where that is in the picture."""
        across, up = (x - self.xs[0]) / (self.xs[1] - self.xs[0]), (y - self.ys[0]) / (self.ys[1] - self.ys[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    def line(self, points: Iterable[Point], colour: str) -> str:
        text = " ".join("{:.1f},{:.1f}".format(*self.at(x, y)) for x, y in points)
        return f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="1.8"/>'

    def svg(self, title: str, names: Sequence[str], marks: Iterable[str]) -> str:
        floor = HEIGHT - BOTTOM
        xs = [(self.at(at, self.ys[0])[0], word) for at, word in self.x_ticks]
        ys = [(self.at(self.xs[0], at)[1], word) for at, word in self.y_ticks]
        grid = [f'<path d="M{x:.1f} {TOP}V{floor}" stroke="#e3e7ec"/>' for x, _ in xs]
        grid += [f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#e3e7ec"/>' for y, _ in ys]
        words = [text(x, floor + 18, word, "middle") for x, word in xs]
        words += [text(LEFT - 8, y + 4, word, "end") for y, word in ys]
        legend = [text(LEFT + 130 * row, HEIGHT - 6, name, "start", COLOURS[row]) for row, name in enumerate(names)]
        return "\n".join((
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
            ' font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>', text(LEFT, 20, title, "start"),
            *grid, *words, *legend, *marks, "</svg>\n",
        ))  # fmt: skip


def text(x: float, y: float, word: str, anchor: str, colour: str = "#1c2430") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{word}</text>'


def main() -> None:
    for path, content in made().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)


if __name__ == "__main__":
    main()
