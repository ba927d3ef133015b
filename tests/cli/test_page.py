"""`fairway dashboard`, and the page that `fairway up` serves beside the cluster: a link, and what is behind it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.request import Request, urlopen

import pytest

LINK = re.compile(r"(http://127\.0\.0\.1:\d+)/now#token=(\S+)")
PATIENCE_SECONDS = 120


@contextmanager
def started(folder: Path, *command: str, stream: str) -> Iterator[tuple[str, str]]:
    """The address and token of the link that a command prints, while it runs; it ends in order when it is told to."""
    environment = {**os.environ, "XDG_DATA_HOME": str(folder), "HOME": str(folder)}
    environment.pop("KUBECONFIG", None)
    process = subprocess.Popen([sys.executable, "-m", "fairway", *command], env=environment, cwd=folder, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    try:
        yield linked(getattr(process, stream))
    finally:
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, said


def linked(lines: IO[str]) -> tuple[str, str]:
    for line in lines:
        if found := LINK.search(line):
            return found[1], found[2]
    raise AssertionError("it ended without printing a link")


def first(address: str, view: str, token: str) -> str:
    """What a viewer is sent first of the view; what keeps its tab over a restart comes before."""
    asked = Request(f"{address}/stream?at={view}", headers={"Authorization": f"Bearer {token}"})
    with urlopen(asked, timeout=PATIENCE_SECONDS) as answer:
        for line in answer:
            if line.startswith(b"data: ") and "key" not in (said := json.loads(line[6:])):
                return str(said)
    raise AssertionError("the stream ended")


def test_up_prints_the_link_of_a_page_and_dashboard_prints_another(tmp_path: Path) -> None:
    with started(tmp_path, "up", "--cpus", "2", "--fake-gpus", "3", stream="stderr") as (address, token):
        assert "3 of 3 GPUs are free" in first(address, "/now", token)
        with started(tmp_path, "dashboard", stream="stdout") as (other, own):
            assert other != address and "3 of 3 GPUs are free" in first(other, "/now", own)


def test_without_a_cluster_it_says_so(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path), "KUBECONFIG": ""}
    command = [sys.executable, "-m", "fairway", "dashboard"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode == 1 and found.stderr.count("\n") == 1 and "fairway up" in found.stderr


@pytest.mark.parametrize("text", ["8000", "0.0.0.0:none", "0.0.0.0:70000"])
def test_an_address_that_is_none_is_named_with_its_option(text: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fairway", "dashboard", "--listen", text]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == 2 and found.stderr.startswith("fairway: --listen: found ")
