"""The report opens from disk in a real browser without a network, with every plot drawn and nothing fetched; and the
command writes the same bytes for the same seed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairway.sim.load import scaled, until
from fairway.sim.simulate import simulate, write
from fairway.sim.synthetic import generate

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
POLICIES = ("fairway", "fifo")
PLOTS = {"waits": 1} | dict.fromkeys(("utilisation", "queues", "fragmentation", "gantt"), len(POLICIES))
"""By section; the waits of all policies are in one plot."""

LISTEN = """
    window.words = [];
    const draw = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...where) {
        words.push([this.canvas, text]);
        draw.call(this, text, ...where);
    };
"""
"""What is written on a canvas stands nowhere else in the page."""

@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    load = scaled(until(generate("diurnal", 1), 40_000), 3.0)
    write(folder, load, 1, {name: simulate(load, name) for name in POLICIES})
    return folder / "report.html"


@pytest.fixture(scope="module")
def page(report: Path) -> Iterator:
    if CHROMIUM is None:
        pytest.skip("no Chromium: install Debian's package `chromium`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context(offline=True).new_page()
        page.faults = []
        page.add_init_script(LISTEN)
        page.on("console", lambda it: page.faults.append(it.text) if it.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.on("request", lambda it: page.faults.append(it.url) if not it.url.startswith("file:") else None)
        page.goto(report.as_uri())
        yield page
        browser.close()


@pytest.mark.parametrize("section", PLOTS)
def test_each_plot_shows_more_than_its_axes(page, section: str) -> None:
    plots = page.locator(f"#{section} .uplot canvas")
    assert plots.count() == PLOTS[section]
    for number in range(plots.count()):
        assert colours(plots.nth(number)) > 0, f"nothing coloured is drawn in plot {number} of {section}"


def colours(canvas) -> int:
    """How many colours, other than greys, it shows."""
    return canvas.evaluate(
        """it => {
            const {data} = it.getContext("2d").getImageData(0, 0, it.width, it.height), seen = new Set();
            for (let at = 0; at < data.length; at += 4) {
                const [red, green, blue, alpha] = data.slice(at, at + 4);
                const spread = Math.max(red, green, blue) - Math.min(red, green, blue);
                if (alpha && spread > 60) seen.add([red, green, blue].join());
            }
            return seen.size;
        }"""
    )


def test_the_page_has_no_errors_and_asks_nobody(page) -> None:
    assert page.faults == []
    assert page.locator(".scroll tbody tr").count() == len(POLICIES)


def test_each_plot_says_what_its_lines_are(page) -> None:
    legends = {section: page.locator(f"#{section} .u-label").all_inner_texts() for section in PLOTS}
    assert set(POLICIES) < set(legends["waits"]) and {"speech", "vision"} < set(legends["queues"])
    assert "held" in legends["utilisation"] and "stranded" in legends["fragmentation"]
    assert all(name in page.locator("#gantt").inner_text() for name in POLICIES)


def test_each_axis_says_what_it_shows_and_in_which_unit(page) -> None:
    over = {"time from the start of the load (s, m, h or d)", "GPUs"}
    axes = {"waits": {"wait (s, m, h or d)", "part of jobs (1: all)"}, "gantt": {*over, "node"} - {"GPUs"}}
    texts = {section: set(written(page, section)) for section in PLOTS}
    assert not {name: lacks for name, said in texts.items() if (lacks := axes.get(name, over) - said)}


def test_the_time_of_the_gantt_begins_with_the_first_start(page) -> None:
    said = written(page, "gantt")
    assert "0s" not in said and any(text.endswith("h") for text in said)


def written(page, section: str) -> list[str]:
    """The words drawn on the canvases of a section."""
    return page.evaluate("id => words.filter(([it]) => it.closest(`#${id}`)).map(([, text]) => text)", section)


def test_the_command_gives_the_same_bytes_for_the_same_seed_only(tmp_path: Path) -> None:
    said = [command(tmp_path / name, seed, hashes) for name, seed, hashes in (("a", 5, 1), ("b", 5, 2), ("c", 6, 1))]
    assert said[0] == said[1] != said[2] and said[0].count(b"\n") > 20


def command(folder: Path, seed: int, hashes: int) -> bytes:
    """The jobs.csv that it writes, in a process that orders sets in its own way."""
    words = f"simulate --synthetic box --until 6h --load 2 --seed {seed} --out {folder}".split()
    environment = {**os.environ, "PYTHONHASHSEED": str(hashes)}
    subprocess.run([sys.executable, "-m", "fairway.cli.main", *words], env=environment, check=True, capture_output=True)
    return (folder / "jobs.csv").read_bytes()


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    load = until(generate("bursty", 5), 10_000)
    for name in ("one", "two"):
        write(tmp_path / name, load, 5, {"fairway": simulate(load, "fairway")})
    for file in ("jobs.csv", "metrics.json", "report.html"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_asked_to_stop_it_gives_what_it_has_and_says_so(tmp_path: Path) -> None:
    load = generate("diurnal", 2)
    result = simulate(load, "fairway", tell=lambda ended: ended < 50)
    assert result.is_partial and result.measures.unfinished > 0
    write(tmp_path, load, 2, {"fairway": result})
    assert "partial result" in (tmp_path / "report.html").read_text()
