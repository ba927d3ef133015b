"""Which cluster a command talks to, and one connection to it for as long as the command runs.

As kubectl does: --kubeconfig, --context and -n; without them KUBECONFIG, else the cluster of this machine if it runs,
else ~/.kube/config. Whatever goes wrong on the way becomes one line.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from .main import Problem

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the three options, and hands them to the command as one `target`."""

    @click.option("--kubeconfig", default="", metavar="FILE", help="The kubeconfig to use.")
    @click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig to use.")
    @click.option("-n", "--namespace", default="", metavar="NAME", help="The namespace; default: the context's.")
    def wrapped(kubeconfig: str, context: str, namespace: str, **rest: Any) -> Any:
        return command(target=Target(kubeconfig, context, namespace), **rest)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__click_params__ = [  # type: ignore[attr-defined]
        *getattr(wrapped, "__click_params__", []),
        *getattr(command, "__click_params__", []),
    ]
    return wrapped


def data_dir(chosen: str | None = None) -> Path:
    """Where the cluster of this machine lives: the user's data home, in `fairway`."""
    if chosen:
        return Path(chosen).expanduser().absolute()
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "fairway"


def connect(target: Target, work: "Callable[[Any, str], Awaitable[T]]") -> T:
    """Runs `work(client, namespace)` against the target, and gives its result."""
    try:
        return asyncio.run(_connected(target, work))
    except OSError as error:
        raise Problem(f"no API server answers: {error}; start one with `fairway up`") from error


async def _connected(target: Target, work: "Callable[[Any, str], Awaitable[T]]") -> T:
    from fairway.clock import Clock
    from fairway.kube.client import ApiError, Client
    from fairway.kube.config import ConfigError, load
    from fairway.kube.http import http_transport

    clock = Clock()
    try:
        config = load(_kubeconfigs(target), target.context)
        async with http_transport(config, clock) as transport:
            return await work(Client(transport, clock), target.namespace or config.namespace)
    except ConfigError as error:
        raise Problem(str(error)) from error
    except ApiError as error:
        raise Problem(error.message or str(error), exit_code=1) from error


def _kubeconfigs(target: Target) -> list[Path]:
    from fairway.embedded.up import is_up
    from fairway.kube.config import files

    own = data_dir()
    if not target.kubeconfig and not os.environ.get("KUBECONFIG") and is_up(own):
        return [own / "kubeconfig"]
    return files(os.environ, target.kubeconfig)
