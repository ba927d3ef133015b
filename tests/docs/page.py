"""The commands of a page, run as a reader would: each shell block in order, in bash, in a home of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
BIN = Path(sys.executable).parent


def blocks(page: str) -> list[str]:
    """The shell blocks of docs/PAGE."""
    return re.findall(r"```sh\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def run(script: str, home: Path, *, status: int = 0) -> str:
    """What a script prints on both streams. HOME is `home`, and `fairway` is the one under test."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "XDG_DATA_HOME")}
    environment = {**inherited, "HOME": str(home), "PATH": f"{BIN}:{os.environ['PATH']}"}
    command = ["bash", "-euo", "pipefail", "-c", script]
    found = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=600)
    assert found.returncode == status, f"{script}\n{found.returncode}: {found.stdout}{found.stderr}"
    return found.stdout + found.stderr
