"""The report opens from disk in a real browser, with every plot drawn and nothing fetched."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairway.sim.load import scaled, until
from fairway.sim.simulate import simulate, write
from fairway.sim.synthetic import generate

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SECTIONS = ("waits", "utilisation", "queues", "fragmentation", "gantt")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    load = scaled(until(generate("diurnal", 1), 40_000), 3.0)
    write(folder, load, 1, {"fairway": simulate(load, "fairway")})
    return folder / "report.html"


@pytest.fixture(scope="module")
def page(report: Path) -> Iterator:
    if CHROMIUM is None:
        pytest.skip("no Chromium: install Debian's package `chromium`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.faults = []
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.on("request", lambda it: page.faults.append(it.url) if not it.url.startswith("file:") else None)
        page.goto(report.as_uri())
        yield page
        browser.close()


@pytest.mark.parametrize("section", SECTIONS)
def test_each_plot_shows_more_than_its_axes(page, section: str) -> None:
    canvas = page.locator(f"#{section} .uplot canvas").first
    colours = canvas.evaluate(
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
    assert colours > 0, f"nothing coloured is drawn in {section}"


def test_the_page_has_no_errors_and_asks_nobody(page) -> None:
    assert page.faults == []
    assert page.locator(".scroll tbody tr").count() == 1


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
