"""`fairway install --systemd`: the unit of a team's box, printed; with `--check` what the machine lacks of it.

The unit runs the Python that runs this command, by its path, so every user must be able to reach that. Nothing is
written here: the unit is for `tee /etc/systemd/system/fairway.service`.
"""

import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import click

from .connect import RUNS, UNIT, team_socket
from .up import read_settings

ELSEWHERE = "install Fairway in what `sudo /usr/bin/python3 -m venv /opt/fairway` makes"
WRITE = f"fairway install --systemd | sudo tee {UNIT}"


def unit(config: str) -> str:
    """The text of the unit; `config`: a file of settings, or none."""
    read_settings(config)
    options = f" --config {_word(os.path.abspath(config))}" if config else ""
    command = f"{_word(sys.executable)} -P -m fairway.cli.main"  # -P: nothing of the folder it runs in is imported
    text = files("fairway").joinpath("deploy/systemd/fairway.service").read_text()
    return text.replace("@FAIRWAY@", command).replace("@OPTIONS@", options)


def print_unit(config: str) -> int:
    """Prints it; on standard error what keeps users from running Fairway."""
    click.echo(unit(config), nl=False)
    for line in _unreachable():
        click.echo(line, err=True)
    return 0


def check(config: str) -> int:
    """Prints what the machine lacks, a line each; 1 if anything."""
    found = list(_lacking(unit(config)))
    for line in found or ["complete: systemd runs the team's cluster, and every user reaches it"]:
        click.echo(line)
    return int(bool(found))


def _lacking(wanted: str) -> Iterator[str]:
    yield from _unreachable()
    if not RUNS.is_dir():
        yield "systemd does not run this machine: let what starts its services run `fairway up --team` as root"
    elif not UNIT.exists():
        yield f"{UNIT}: missing; {WRITE}"
    elif UNIT.read_text() != wanted:
        yield f"{UNIT}: is of another version, or was changed by hand; {WRITE}"
    elif (state := _state()) != "active":
        yield f"fairway.service is {state}: sudo systemctl enable --now fairway"
    if not team_socket():
        yield "no team's cluster runs: its socket is not there"


def _state() -> str:
    found = subprocess.run(["systemctl", "is-active", UNIT.name], capture_output=True, text=True)
    return found.stdout.strip() or found.stderr.strip()


def _unreachable() -> Iterator[str]:
    """A line where other users cannot run this program."""
    paths = {Path(sys.executable), Path(sys.executable).resolve(), Path(str(files("fairway")))}
    for path in sorted(paths):
        for each in reversed((path, *path.parents)):
            if not each.stat().st_mode & stat.S_IXOTH:
                yield f"other users cannot reach {path}: {each} is closed to them; {ELSEWHERE}"
                return


def _word(text: str) -> str:
    """One word of a command in a unit; `%` and `$` stand for themselves."""
    return shlex.quote(text).replace("%", "%%").replace("$", "$$")
