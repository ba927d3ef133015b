"""`fairway dashboard`: the live page of a cluster, on loopback, with the rights of a kubeconfig.

Its link carries a token of this run in its fragment, which a browser sends to nobody; the page takes it out of the
address bar. Whoever has the link may do what the kubeconfig may. With `--listen` there is no such token: the page takes
those of the cluster, and its own account only reads.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISFIFO
from urllib.parse import urlsplit

import click

from fairway.clock import Chance, Clock
from fairway.kube.client import Client
from fairway.kube.config import Config, ConfigError, in_cluster

from .connect import config_of
from .main import Command, Problem, told

LOOPBACK = "127.0.0.1"
log = logging.getLogger(__name__)


def _address(context: click.Context, option: click.Parameter, text: str) -> tuple[str, int] | None:
    from fairway.controllers.webhook import address

    with told(ValueError, by="--listen: "):
        return address(text) if text else None


@click.command(cls=Command)
@click.option("--kubeconfig", default="", metavar="FILE", help="The kubeconfig to use.")
@click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig to use.")
@click.option("--port", default=0, type=click.IntRange(0, 65_535), metavar="P", help="The port; default: any free one.")
@click.option("--listen", default="", metavar="HOST:PORT", callback=_address,
              help="Serve there instead of on loopback; each viewer shows a token of the cluster.")
def dashboard(kubeconfig: str, context: str, port: int, listen: tuple[str, int] | None) -> None:
    """Serve the live page of a cluster on this machine, until Ctrl-C; print its link first.

    On a team's machine the cluster serves the page itself: this prints the user's own link, good for an hour."""
    with told(ConfigError):
        inside = in_cluster(os.environ) if listen and not kubeconfig and not context else None
        config = inside or config_of(kubeconfig, context)
    if config.socket and not port and not listen and (link := _of_team()):
        click.echo(link)
        return
    home = config.namespace if inside else ""
    page = Page(config, *(listen or (LOOPBACK, port)), is_own=not listen, home=home)
    with suppress(asyncio.CancelledError):
        asyncio.run(_serve(page))


def _of_team() -> str:
    """The link of the page that the team's cluster serves, with a token of an hour; empty where it serves none."""
    from .connect import ask_team
    from .login import logged_in

    told = ask_team(logged_in)
    return f"{told.page}#token={told.token}" if told.page else ""


@dataclass(frozen=True, slots=True)
class Page:
    """Where the page of which cluster is served. `is_own`: its link carries a token that stands for `config`; else each
    viewer brings one. `home`: the namespace of the controller; empty: it is to be found. `key`: by which open tabs know
    it after a restart."""

    config: Config
    host: str = LOOPBACK
    port: int = 0
    is_own: bool = True
    home: str = ""
    key: str = ""


async def _serve(page: Page) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        async with served(page) as link:
            click.echo(link)
            await loop.create_future()
    except OSError as error:
        why = f"{page.host}:{page.port} cannot be used: {error.strerror}; choose another port"
        raise Problem(why, exit_code=1) from error


@asynccontextmanager
async def served(page: Page) -> AsyncIterator[str]:
    """Serves a page while the block lasts; gives its link."""
    from fairway.kube.http import http_transport
    from fairway.web.access import Access, bare
    from fairway.web.server import Dashboard
    from fairway.web.world import World

    from .desk import desk

    clock, token = Clock(), Chance().token() if page.is_own else ""
    async with http_transport(page.config, clock) as own, http_transport(bare(page.config), clock) as nobody:
        world = World(Client(own, clock), page.config.namespace, page.home)
        access = Access(world, token, nobody, page.key)
        dashboard = Dashboard(world, access, desk=desk(), host=page.host, port=page.port)
        async with dashboard.serve() as address:
            yield f"{address}/now" + (f"#token={token}" if token else "")


async def of_team(config: Config, address: Path) -> None:
    """The page of a team's cluster, until cancelled: each viewer shows a token. Its address is written to a file, which
    `fairway dashboard` asks for. Without a port for it all else works."""
    try:
        async with served(Page(config, is_own=False)) as link:
            address.write_text(link)
            await asyncio.get_running_loop().create_future()
    except OSError as error:
        log.warning("the dashboard is not served: %s", error)
    finally:
        address.unlink(missing_ok=True)


async def beside(config: Config, folder: Path) -> None:
    """The page of the cluster of this machine, until cancelled; its link goes to standard error, for a terminal or for
    the program that reads it. A file or the journal would keep its token, so there is no page then: `fairway dashboard`
    serves one. Without a port for it all else works."""
    if not (sys.stderr.isatty() or S_ISFIFO(os.fstat(sys.stderr.fileno()).st_mode)):
        return
    try:
        async with _again(config, folder / "page.key") as link:
            click.echo(f"what happens there: {link}", err=True)
            await asyncio.get_running_loop().create_future()
    except OSError as error:
        log.warning("the dashboard is not served: %s", error)


@asynccontextmanager
async def _again(config: Config, file: Path) -> AsyncIterator[str]:
    """Serves the page at the port of the last time, with the key of all times, which a private file keeps: tabs that
    are open come back by themselves after a restart. At another port where that one is taken."""
    from fairway.embedded.keys import write_private

    port, _, key = file.read_text().partition(" ") if file.exists() else ("0", "", Chance().token())
    page = Page(config, port=int(port), key=key)
    async with AsyncExitStack() as stack:
        try:
            link = await stack.enter_async_context(served(page))
        except OSError:
            link = await stack.enter_async_context(served(replace(page, port=0)))
        write_private(file, f"{urlsplit(link).port} {key}")
        yield link
