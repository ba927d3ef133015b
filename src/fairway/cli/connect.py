"""Which cluster a command talks to, and one connection to it for as long as the command runs.

As kubectl does: --kubeconfig, --context and -n; without them KUBECONFIG, else the user's own cluster on this machine if
it runs, else that of the machine's team, else ~/.kube/config. Whatever goes wrong on the way becomes one line.
"""

import asyncio
import os
import pwd
import stat
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from fairway.api.team import space_of
from fairway.clock import Clock
from fairway.kube.client import ApiError, Client
from fairway.kube.config import UNIX, Config, ConfigError, files, load
from fairway.kube.plain import has_proxy, plain_transport
from fairway.kube.transport import Request, Response, Transport
from fairway.node.lock import holder

from .main import UNWRITTEN, Problem, told

T = TypeVar("T")
Environ = tuple[tuple[str, str], ...]
SOCKET = "FAIRWAY_SOCKET"
"""The environment variable that names the socket of a team's cluster, where it is another than this one:"""
LOGIN = ("login", "--credential")
"""What a kubeconfig that `fairway login` wrote ends its command with."""
TEAM_SOCKET, TEAM_DIR = "/run/fairway/api.sock", "/var/lib/fairway"
RUNS, UNIT = Path("/run/systemd/system"), Path("/etc/systemd/system/fairway.service")
"""What is there where systemd runs, and where it runs the team's cluster."""
NOT_INSTALLED = "Fairway is not installed on this cluster; `fairway install` prints what it needs"
NO_GROUP = "404 page not found"  # as Kubernetes answers for a group of kinds that it does not have


@contextmanager
def unseen(*, or_absent: bool = False) -> Iterator[None]:
    """Leaves out what the user may not see, or what is not there."""
    try:
        yield
    except ApiError as error:
        if error.status != 403 and not (or_absent and error.status == 404):
            raise


async def allowed(asked: Awaitable[T], *, or_absent: bool = False) -> T | None:
    """What is asked for; None where the user may not see it, or where it is not there."""
    with unseen(or_absent=or_absent):
        return await asked
    return None


def on_cluster(command: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    """An asynchronous command, with the three options; it is given a `client` and a `namespace`."""

    @click.option("--kubeconfig", default="", metavar="FILE", help="The kubeconfig to use.")
    @click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig to use.")
    @click.option("-n", "--namespace", default="", metavar="NAME", help="The namespace; default: the context's.")
    @wraps(command)
    def run(kubeconfig: str, context: str, namespace: str, **said: Any) -> Any:
        return ask(command, kubeconfig, context, namespace=namespace, **said)

    return run


def ask(work: Callable[..., Awaitable[Any]], kubeconfig: str, context: str, *, namespace: str = "", **said: Any) -> Any:
    """What `work(client, namespace, …)` gives, on the cluster that is named; without a namespace, in the context's."""
    try:
        with told(ConfigError):
            config = config_of(kubeconfig, context)
            return asyncio.run(connected(config, work, namespace=namespace or config.namespace, **said))
    except ApiError as error:
        if error.message.strip() == NO_GROUP:
            raise Problem(NOT_INSTALLED, exit_code=1) from error
        raise Problem(error.message or str(error), exit_code=1) from error
    except OSError as error:
        if error.errno in UNWRITTEN:
            raise
        raise Problem(_unanswered(kubeconfig, error), exit_code=1) from error


def _unanswered(kubeconfig: str, error: OSError) -> str:
    """Why there is no answer: a cluster of this machine that does not run, else what the connection says."""
    if not (kubeconfig or os.environ.get("KUBECONFIG")) and team_socket():
        where = "`systemctl status fairway`" if RUNS.is_dir() and UNIT.exists() else f"{TEAM_DIR}/up.log"
        return f"the team's cluster does not answer on {team_socket()}; {where} says why"
    those = [one.parent for one in kubeconfigs(kubeconfig) if (one.parent / "state.db").exists()]
    for own in those:
        if not holder(own / "lock"):
            where = "" if own == data_dir() else f" --data-dir {own}"
            return f"the cluster on {own} does not run; `fairway up{where}` starts it"
    if those:
        why = "it is busy or stopped, or too many connections are open"
        return f"the cluster on {those[0]} runs, but does not answer: {why}; try again soon"
    return f"no API server answers: {error}; start one with `fairway up`"


async def connected(config: Config, work: Callable[..., Awaitable[T]], **said: Any) -> T:
    """What `work(client, …)` gives while a connection is open."""
    clock = Clock()
    async with AsyncExitStack() as stack:
        transport = await opened(stack, config, clock)
        return await work(Client(transport, clock), **said)


async def opened(stack: AsyncExitStack, config: Config, clock: Clock) -> Transport:
    """The plain Transport; the whole one where there is a proxy, and for a WebSocket."""
    if has_proxy() and not config.socket:
        return await _whole(stack, config, clock)
    plain = await stack.enter_async_context(plain_transport(config, clock))

    async def exchange(request: Request) -> Response:
        return await (await _whole(stack, config, clock) if "upgrade" in request.headers else plain)(request)

    return exchange


async def _whole(stack: AsyncExitStack, config: Config, clock: Clock) -> Transport:
    from fairway.kube.http import http_transport

    return await stack.enter_async_context(http_transport(config, clock))


def data_dir(chosen: str | None = None) -> Path:
    """Where the cluster of this machine lives: the user's data home, in `fairway`."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(chosen).expanduser().absolute() if chosen else Path(home) / "fairway"


def ask_team(work: Callable[[Client], Awaitable[T]]) -> T:
    """What `work(client)` gives on the team's cluster of this machine."""
    try:
        return asyncio.run(connected(_of_team(), work))
    except ApiError as error:
        raise Problem(error.message or str(error), exit_code=1) from error
    except OSError as error:
        raise Problem(_unanswered("", error), exit_code=1) from error


def config_of(kubeconfig: str, context: str) -> Config:
    """The cluster, and who we are to it; ConfigError where no file says it."""
    is_chosen = kubeconfig or context or os.environ.get("KUBECONFIG") or holder(data_dir() / "lock")
    if path := "" if is_chosen else team_socket():
        return Config(f"{UNIX}{path}", namespace=space_of(pwd.getpwuid(os.geteuid()).pw_name))
    config = load(kubeconfigs(kubeconfig), context)
    if config.plugin and config.plugin.command[-2:] == LOGIN:  # the plugin would ask the same socket
        return replace(_of_team(config.plugin.environ), namespace=config.namespace)
    return config


def _of_team(environ: Environ = ()) -> Config:
    """The team's cluster of this machine; a Problem where there is no socket of it."""
    if path := team_socket(environ):
        return Config(f"{UNIX}{path}")
    raise Problem(f"no team's cluster runs on this machine: there is no socket {_said_socket(environ)}; `sudo fairway "
                  "up --team` starts one", exit_code=1)


def _said_socket(environ: Environ) -> str:
    return {**os.environ, **dict(environ)}.get(SOCKET) or TEAM_SOCKET


def team_socket(environ: Environ = ()) -> str:
    """The Unix socket of the team's cluster on this machine; empty where there is none. `environ`: variables that count
    before those of the process."""
    path = _said_socket(environ)
    try:
        return path if stat.S_ISSOCK(os.stat(path).st_mode) else ""
    except OSError:
        return ""


def kubeconfigs(chosen: str) -> list[Path]:
    """The files that count: the one chosen, KUBECONFIG, that of the cluster of this machine, ~/.kube/config."""
    own, found = data_dir(), files(os.environ, chosen)
    if chosen or os.environ.get("KUBECONFIG"):
        return found
    if holder(own / "lock"):
        return [own / "kubeconfig"]
    if not any(one.exists() for one in found):
        raise Problem("no cluster runs on this machine, and no kubeconfig names another; `fairway up` starts one",
                      exit_code=1)  # fmt: skip
    return found
