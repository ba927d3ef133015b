"""`fairway up` and `down`: the cluster of this machine."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from .connect import data_dir
from .main import Problem


@click.command()
@click.option("--data-dir", metavar="D", help="Where it lives; default: the user's data home, in fairway.")
@click.option("--port", default=0, metavar="P", help="The API server's port; default: that of last time.")
@click.option("--cpus", default="", metavar="N", help="Offer so many CPUs.")
@click.option("--memory", default="", metavar="M", help="Offer so much memory, e.g. 16Gi.")
@click.option("--fake-gpus", type=click.IntRange(min=0), metavar="N", help="Offer so many GPUs that are not there.")
@click.option("--nodes", metavar="FILE", help="More nodes, whose pods only pretend to run.")
@click.option("--config", default="", metavar="FILE", help="A YAML file of settings.")
@click.option("--detach", is_flag=True, help="Return when it is ready; `fairway down` stops it.")
def up(data_dir: str | None, detach: bool, config: str, **offer: Any) -> None:
    """Run a cluster on this machine, in the foreground; print the path of its kubeconfig.

    Ctrl-C stops pods with their grace; their workloads go on when it is started again. With `metricsPort: 9400` in the
    file of settings, metrics are at http://127.0.0.1:9400/metrics."""
    from fairway.embedded.up import UpError

    folder = _folder(data_dir)
    try:
        if detach:
            asyncio.run(_detach(folder))
        else:
            asyncio.run(_run(folder, config, offer))
    except UpError as error:
        raise Problem(str(error), exit_code=1) from error


def _folder(chosen: str | None) -> Path:
    return data_dir(chosen)


async def _detach(folder: Path) -> None:
    """The same command again, without --detach, in the background."""
    from fairway.clock import Clock
    from fairway.embedded.up import detach

    again = [argument for argument in sys.argv[1:] if argument != "--detach"]
    await detach([sys.executable, "-m", "fairway.cli.main", *again], folder, Clock())
    click.echo(str(folder / "kubeconfig"))


async def _run(folder: Path, config: str, offer: dict[str, Any]) -> None:
    from fairway.clock import Chance, Clock
    from fairway.embedded.up import Options, up

    from .controller import control, read_settings

    nodes = Path(offer["nodes"]) if offer["nodes"] else None
    options = Options(folder, offer["port"], offer["cpus"], offer["memory"], offer["fake_gpus"], nodes)
    settings = read_settings(config)

    async def decide(kubeconfig: Path) -> None:
        click.echo(str(folder / "kubeconfig"))
        await control(kubeconfig, settings)

    await up(options, clock=Clock(), chance=Chance(), control=decide)


@click.command()
@click.option("--data-dir", metavar="D", help="Where the cluster lives; default: the user's data home, in fairway.")
def down(data_dir: str | None) -> None:
    """Stop the cluster of this machine: pods get their signal and their grace."""
    from fairway.clock import Clock
    from fairway.embedded.up import UpError, down

    try:
        asyncio.run(down(_folder(data_dir), Clock()))
    except UpError as error:
        raise Problem(str(error), exit_code=1) from error
