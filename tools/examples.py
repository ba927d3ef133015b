"""Runs the examples of docs/concepts: a block of YAML, and after it the text that `fairway plan` prints for it.

`python tools/examples.py` renews the text; a test compares it.
"""

import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "concepts"
EXAMPLE = re.compile(r"```yaml\n(?P<input>.*?)```\n\n```text\n(?P<output>.*?)```", re.DOTALL)


def answer(objects: str) -> str:
    """What the command prints."""
    command = [sys.executable, "-m", "fairway.cli.main", "plan", "-f", "-"]
    found = subprocess.run(command, input=objects, capture_output=True, text=True, check=True)
    return "".join(f"{line.rstrip()}\n" for line in found.stdout.splitlines())


def renewed(page: str) -> str:
    return EXAMPLE.sub(lambda it: f"```yaml\n{it['input']}```\n\n```text\n{answer(it['input'])}```", page)


def main() -> None:
    for path in sorted(FOLDER.glob("*.md")):
        path.write_text(renewed(path.read_text()))


if __name__ == "__main__":
    main()
