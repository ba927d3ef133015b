"""ARCHITECTURE.md states how large each folder may be, and each folder keeps to it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUDGET = re.compile(r"^\| `(src/fairway/\w+)` \|.*\| ≤ ([\d,]+) \|$", re.MULTILINE)
BUDGETS = {name: int(most.replace(",", "")) for name, most in BUDGET.findall((ROOT / "ARCHITECTURE.md").read_text())}
FOLDERS = sorted(path.parent for path in (ROOT / "src" / "fairway").glob("*/__init__.py"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_folder_keeps_to_its_budget(folder: Path) -> None:
    lines = [line for path in folder.rglob("*.py") for line in path.read_text().splitlines() if line.strip()]
    assert len(lines) <= BUDGETS[str(folder.relative_to(ROOT))]
