"""`fairway simulate` as its user meets it: stopped, and with options that cannot be."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest
from click.testing import CliRunner

from fairway.cli.main import cli
from fairway.sim.simulate import compare
from fairway.sim.synthetic import generate
from fairway.sim.world import Mechanics


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_an_interrupt_while_workers_are_made_leaves_a_partial_result(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fairway.cli.main", "simulate", "--synthetic", "diurnal", "--policy", "fifo,las"]
    command += ["--out", str(tmp_path)]
    run = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
    end = monotonic() + 60
    while len(children(run.pid)) < 2 and monotonic() < end:
        assert run.poll() is None
    os.killpg(run.pid, signal.SIGINT)
    _, said = run.communicate(timeout=120)
    assert (run.returncode, said) == (1, "fairway: stopped before the end: the figures above are partial\n")
    assert json.loads((tmp_path / "metrics.json").read_text())["partial"] is True


def test_policies_that_had_not_begun_at_an_interrupt_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.cpu_count", lambda: 1)
    found = compare(generate("diurnal", 1), ["fifo", "las"], Mechanics(), lambda *_: signal.raise_signal(signal.SIGINT))
    assert list(found) == ["fifo"] and found["fifo"].is_partial


@pytest.mark.parametrize(("options", "said"), [
    (["--load", "nan"], "--load: nan is not between 0.001 and 1000"),
    (["--seed", "-1"], "--seed"),
    (["--until", "5"], "--until: "),
    (["--until", "0s"], "--until: no job is submitted before 0s"),
    (["--out", "/dev/null/x"], "--out: /dev/null/x: Not a directory; name a folder, new or one that can be written to"),
    (["--out", __file__], f"--out: {__file__}: File exists; name a folder, new or one that can be written to"),
])  # fmt: skip
def test_options_that_cannot_be_are_named_before_anything_is_simulated(options: list[str], said: str) -> None:
    result = CliRunner().invoke(cli, ["simulate", "--synthetic", "box", *options])
    assert result.exit_code == 2 and said in result.stderr.splitlines()[-1], result.output


def test_a_shipped_load_runs_on_other_nodes(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("node_id,gpus\na,64\n")
    options = ["--synthetic", "box", "--until", "2h", "--policy", "fifo", "-o", "json"]
    told = (CliRunner().invoke(cli, ["simulate", *options, *more]) for more in ([], ["--nodes", str(nodes)]))
    few, many = (json.loads(one.stdout)["policies"]["fifo"]["utilisation"] for one in told)
    assert 0 < many < few
