"""Every command of the pages for newcomers runs as it is written, on a real cluster of this machine."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

START = Path(__file__).parents[2] / "docs" / "start"
FILE = re.compile(r"`(\w+\.\w+)`:\n\n```\w+\n(.*?)```", re.DOTALL)
STREAMS = ("--watch",)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("start")
    config = str(folder / "fairway" / "kubeconfig")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    made = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "KUBECONFIG": config, "PATH": path}
    run("fairway up --detach --cpus 4 --fake-gpus 2", {**made, "KUBECONFIG": ""})
    yield made
    run("fairway down", made)


def run(script: str, environment: dict[str, str]) -> str:
    """What a piece of shell prints; it must succeed. What would go on for ever is interrupted; it printed something."""
    is_stream = any(it in script for it in STREAMS)
    seconds = 5 if is_stream else 100
    words = ["timeout", "--preserve-status", "-s", "INT", str(seconds), "bash", "-e", "-c", script]
    found = subprocess.run(words, env=environment, cwd=environment["HOME"], capture_output=True, text=True)
    is_fine = found.stdout and "rror" not in found.stderr if is_stream else found.returncode == 0
    assert is_fine, f"{script}: {found.returncode}: {found.stdout}{found.stderr}"
    return found.stdout + found.stderr


def prepared(page: str, environment: dict[str, str]) -> str:
    text = (START / page).read_text()
    for name, content in FILE.findall(text):
        Path(environment["HOME"], name).write_text(content)
    return text


@pytest.mark.kubectl
def test_the_page_about_sweeps_is_true(environment: dict[str, str]) -> None:
    text = prepared("sweeps.md", environment)
    said = [run(block, environment) for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)]
    assert sorted(re.findall(r"trial (\d+)\n", said[0]), key=int) == [str(number) for number in range(20)]
    assert said[1].endswith("trial 11\n")
    assert "     5  python3 trial.py --lr=0.01 --seed=3\n" in said[2] and "trial 4 --lr=0.01 --seed=2\n" in said[2]
    assert said[3] == "6 of 6 trials, 0-5"


@pytest.mark.kubectl
def test_the_page_for_people_from_slurm_is_true(environment: dict[str, str]) -> None:
    text = prepared("from-slurm.md", environment)
    shown = re.search(r"```text\n(.*?)```", text, re.DOTALL)
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    said = [run(block, environment) for block in blocks]
    assert shown and set(shown[1].splitlines()) <= set(said[0].splitlines())
    commands = re.findall(r"`((?:fairway|kubectl) [^`]+)`", text[text.index("## Word by word") :])
    rows = [it for it in commands if "\n" not in it]
    assert len(rows) > 25
    for command in rows:
        run(command, environment)
