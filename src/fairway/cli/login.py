"""`fairway login`: what kubectl needs on a machine whose cluster a team shares.

The cluster's Unix socket says who asks, so there is no password, and Fairway's own commands need no login. kubectl does
not speak over a Unix socket: it gets a kubeconfig that names no secret. Each time it runs this command with
--credential, which asks the socket for a token of an hour.
"""

import base64
import os
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from fairway.kube.client import Client
from fairway.kube.config import EXEC_VERSION
from fairway.kube.transport import Request

from .connect import LOGIN, SOCKET, ask_team, team_socket
from .main import Command, Problem

PATH = "/fairway/login"
NAME = "fairway"


class Told(msgspec.Struct):
    """What the server answers; `until`: when the token ends, seconds since 1970."""

    user: str
    namespace: str
    queues: list[str]
    isAdmin: bool
    token: str
    until: float
    server: str
    authority: str
    page: str = ""


@click.command(cls=Command)
@click.option("--credential", is_flag=True, help="Print a token of an hour as kubectl asks for one; write nothing.")
def login(credential: bool) -> None:
    """Say who you are on this machine's cluster, and write a kubeconfig for kubectl."""
    told = ask_team(logged_in)
    if credential:
        click.echo(msgspec.json.encode(_credential(told)).decode())
        return
    queues = ", ".join(told.queues) or "none that is open to a group of yours; jobs go to `default`"
    click.echo(f"{told.user}: namespace {told.namespace}{', administrator' if told.isAdmin else ''}; queues: {queues}")
    path = _place(Path.home() / ".kube")
    _write(path, _kubeconfig(told))
    first = "" if path.name == "config" else f"; for kubectl: export KUBECONFIG={shlex.quote(str(path))}"
    click.echo(f"wrote {path}{first}")


async def logged_in(client: Client) -> Told:
    """What the server of the team's cluster says of whoever asks."""
    return msgspec.json.decode(await client.call(Request("POST", PATH)), type=Told)


def _credential(told: Told) -> dict[str, Any]:
    until = datetime.fromtimestamp(told.until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"token": told.token, "expirationTimestamp": until}
    return {"apiVersion": EXEC_VERSION, "kind": "ExecCredential", "status": status}


def _kubeconfig(told: Told) -> dict[str, Any]:
    environ = [{"name": SOCKET, "value": team_socket()}] if os.environ.get(SOCKET) else []
    plugin = {
        "apiVersion": EXEC_VERSION, "interactiveMode": "Never", "provideClusterInfo": False,
        "command": sys.executable,  # -P: nothing of the folder in which kubectl runs is imported
        "args": ["-P", "-m", "fairway", *LOGIN], "env": environ,
    }  # fmt: skip
    authority = base64.b64encode(told.authority.encode()).decode()
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": NAME,
        "clusters": [{"name": NAME, "cluster": {"server": told.server, "certificate-authority-data": authority}}],
        "users": [{"name": NAME, "user": {"exec": plugin}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": told.namespace}}],
    }


def _place(folder: Path) -> Path:
    """kubectl's own file where there is none, or where it is of a login; else one beside it."""
    usual = folder / "config"
    try:
        is_ours = "login" in yaml.safe_load(usual.read_text())["users"][0]["user"]["exec"]["args"]
    except FileNotFoundError:
        return usual
    except (OSError, yaml.YAMLError, LookupError, TypeError, ValueError):
        is_ours = False
    return usual if is_ours else folder / NAME


def _write(path: Path, content: dict[str, Any]) -> None:
    from fairway.embedded.keys import write_private

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, yaml.safe_dump(content, sort_keys=False))
    except OSError as error:
        raise Problem(f"{path} cannot be written: {error.strerror}", exit_code=1) from error
