"""`fairway dashboard`: the live page of a cluster, on loopback, with the rights of a kubeconfig.

Its link carries a token of this run in its fragment, which a browser sends to nobody; the page takes it out of the
address bar. Whoever has the link may do what the kubeconfig may.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import click

from fairway.clock import Chance, Clock
from fairway.kube.client import Client
from fairway.kube.config import Config, ConfigError, load

from .connect import kubeconfigs
from .main import Problem, told

log = logging.getLogger(__name__)


@click.command()
@click.option("--kubeconfig", default="", metavar="FILE", help="The kubeconfig to use.")
@click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig to use.")
@click.option("--port", default=0, type=click.IntRange(0, 65_535), metavar="P", help="The port; default: any free one.")
def dashboard(kubeconfig: str, context: str, port: int) -> None:
    """Serve the live page of a cluster on this machine, until Ctrl-C; print its link first."""
    with told(ConfigError):
        asyncio.run(_serve(load(kubeconfigs(kubeconfig), context), port))


async def _serve(config: Config, port: int) -> None:
    try:
        async with served(config, port) as link:
            click.echo(link)
            await asyncio.get_running_loop().create_future()
    except OSError as error:
        why = f"--port: {port} cannot be used: {error.strerror}; choose another, or none"
        raise Problem(why, exit_code=1) from error


@asynccontextmanager
async def served(config: Config, port: int = 0) -> AsyncIterator[str]:
    """Serves the page of the cluster that `config` names while the block lasts; gives its link."""
    from fairway.kube.http import http_transport
    from fairway.web.access import Access, bare
    from fairway.web.server import Dashboard
    from fairway.web.world import World

    clock, token = Clock(), Chance().token()
    async with http_transport(config, clock) as own, http_transport(bare(config), clock) as nobody:
        world = World(Client(own, clock), config.namespace)
        async with Dashboard(world, Access(world, token, nobody), port=port).serve() as address:
            yield f"{address}/now#token={token}"


async def beside(config: Config) -> None:
    """The page of the cluster of this machine, until cancelled; its link goes to standard error. Without a port for it
    all else works."""
    try:
        async with served(config) as link:
            click.echo(f"what happens there: {link}", err=True)
            await asyncio.get_running_loop().create_future()
    except OSError as error:
        log.warning("the dashboard is not served: %s", error)
