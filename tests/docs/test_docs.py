"""What is documented is true, and what exists is documented."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from fairway.cli.main import COMMANDS
from fairway.engine import Cause, Ending, Reason

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONCEPTS = sorted(path for path in (DOCS / "concepts").glob("*.md") if path.name != "README.md")
WORDS = (
    "workload owner podset gang queue guaranteed limit weight usage share node pool resource topology level domain "
    "snapshot draft trial plan cycle order admit place bind wait hold release replace grow drop settle backfill "
    "reservation evict preempt reclaim shrink victim observe assume forget apply runner forecast "
    "candidate demand entitlement"
)


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["api.md", "cli.md", "settings.md", "metrics.md", "reasons.md"])
def test_the_reference_is_what_the_program_says(name: str) -> None:
    assert (DOCS / "reference" / name).read_text() == tool("reference").pages()[name], "run python tools/reference.py"


def test_every_field_of_the_api_has_a_meaning() -> None:
    page = tool("reference").pages()["api.md"].replace("\\|", "/")
    rows = re.findall(r"^\| `(spec\.\w+)\S*` \| [^|]* \| *(.*?) *\|$", page, re.MULTILINE)
    assert rows and [path for path, meaning in rows if not meaning] == []


@pytest.mark.parametrize("path", CONCEPTS, ids=lambda path: path.stem)
def test_an_example_gives_what_its_page_says(path: Path) -> None:
    page = path.read_text()
    examples = tool("examples")
    assert examples.EXAMPLE.search(page), "the page has no example"
    assert examples.renewed(page) == page, "run python tools/examples.py, and read what changed"


@pytest.mark.parametrize("part", ["of_policies", "of_forecasts"])
def test_pictures_and_their_figures_are_what_the_commands_give(part: str) -> None:
    made = getattr(tool("pictures"), part)()
    assert all(len(content) < 100_000 for content in made.values())
    stale = [str(path.relative_to(ROOT)) for path, content in made.items() if path.read_text() != content]
    assert stale == [], "run python tools/pictures.py, and read what changed"


def test_every_word_of_the_glossary_has_a_page() -> None:
    index = (DOCS / "concepts" / "README.md").read_text()
    linked = dict(re.findall(r"^\| (\w+) \| \[.*?\]\((.*?)\) \|(?: [^|]+ \|){3}$", index, re.MULTILINE))
    assert [word for word in WORDS.split() if not (DOCS / "concepts" / linked.get(word, "-")).is_file()] == []


@pytest.mark.parametrize("word", [*Reason, *Cause, *Ending])
def test_every_reason_is_explained(word: str) -> None:
    assert f"| `{word}` |" in (DOCS / "reference" / "reasons.md").read_text()


def test_links_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / link).exists()
    ]
    assert broken == []


def documented_commands() -> list[str]:
    """Every line of a shell block that starts with fairway, without its comment."""
    pages = [*ROOT.glob("*.md"), *(DOCS / "start").glob("*.md")]
    blocks = [block for page in pages for block in re.findall(r"```(?:sh)?\n(.*?)```", page.read_text(), re.DOTALL)]
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return sorted({line for line in lines if line.startswith("fairway ")})


@pytest.mark.parametrize("line", documented_commands())
def test_a_documented_command_names_what_the_program_has(line: str) -> None:
    name, *words = line.split()[1:]
    assert name in COMMANDS
    said = subprocess.run([sys.executable, "-m", "fairway.cli.main", name, "--help"], capture_output=True, text=True)
    ours = words[: words.index("--")] if "--" in words else words
    assert [word for word in ours if word.startswith("-") and word.partition("=")[0] not in said.stdout] == []


@pytest.mark.parametrize("path", sorted((DOCS / "decisions").glob("0*.md")), ids=lambda path: path.stem)
def test_a_decision_says_context_choice_rejected_and_price(path: Path) -> None:
    page = path.read_text()
    assert [part for part in ("Context", "Choice", "Rejected", "Price") if f"**{part}.**" not in page] == []
    assert f"({path.name})" in (DOCS / "decisions" / "README.md").read_text()
    assert len(page.splitlines()) <= 60


def test_vendored_files_are_those_that_were_fetched() -> None:
    import hashlib

    vendor = ROOT / "src" / "fairway" / "web" / "static" / "vendor"
    sums = dict(reversed(line.split()) for line in (vendor / "VERSIONS").read_text().splitlines() if len(line) > 64)
    assert sums and all(hashlib.sha256((vendor / name).read_bytes()).hexdigest() == sum for name, sum in sums.items())
