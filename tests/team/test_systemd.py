"""The unit that `fairway install --systemd` prints, and what systemd learns of a cluster that it has started."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairway.cli.main import cli
from fairway.embedded.team import ready


def printed(*options: str) -> str:
    found = CliRunner().invoke(cli, ["install", "--systemd", *options])
    assert found.exit_code == 0, found.output
    return found.stdout


def test_a_restart_by_systemd_leaves_the_programs_of_users_running() -> None:
    lines = printed().splitlines()
    assert {"Type=notify", "KillMode=process", "KillSignal=SIGUSR1", "OOMPolicy=continue", "Delegate=yes"} <= {*lines}
    assert f"ExecStart={sys.executable} -P -m fairway.cli.main up --team" in lines


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_finds_no_fault_in_the_unit(tmp_path: Path) -> None:
    settings = tmp_path / "50% $of it.yaml"
    settings.write_text("logLevel: info\n")
    for name, options in {"plain.service": [], "configured.service": ["--config", str(settings)]}.items():
        (tmp_path / name).write_text(printed(*options))
        found = subprocess.run(["systemd-analyze", "verify", str(tmp_path / name)], capture_output=True, text=True)
        said = [line for line in found.stderr.splitlines() if name in line]
        assert (found.returncode, said) == (0, [])


def test_settings_that_cannot_be_read_make_no_unit(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("logLevels: info\n")
    found = CliRunner().invoke(cli, ["install", "--systemd", "--config", str(tmp_path / "s.yaml")])
    assert found.exit_code == 2 and found.stdout == ""


def test_a_check_says_what_the_machine_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FAIRWAY_SOCKET", str(tmp_path / "none"))
    found = CliRunner().invoke(cli, ["install", "--systemd", "--check"], standalone_mode=False)
    assert found.return_value == 1 and "no team's cluster runs" in found.stdout


def test_systemd_is_told_once_that_the_cluster_is_ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv(ready.SOCKET, str(tmp_path / "notify"))
        ready.tell()
        assert systemd.recv(100) == b"READY=1"
    assert ready.SOCKET not in os.environ
