"""`fairway controller`: the scheduler against an API server; and the same beside the cluster of this machine."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import click

from .main import Problem


@click.command()
@click.option("--kubeconfig", default="", metavar="FILE", help="The kubeconfig; default: a pod's, else kubectl's.")
@click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig to use.")
@click.option("--config", "settings", default="", metavar="FILE", help="A YAML file of settings.")
def controller(kubeconfig: str, context: str, settings: str) -> None:
    """Run the scheduler against an API server, until it is told to stop."""
    from fairway.kube.config import ConfigError

    try:
        asyncio.run(_control(_config(kubeconfig, context), read_settings(settings)))
    except ConfigError as error:
        raise Problem(str(error)) from error


def _config(kubeconfig: str, context: str) -> Any:
    import os

    from fairway.kube.config import files, in_cluster, load

    inside = None if kubeconfig or context else in_cluster(os.environ)
    return inside or load(files(os.environ, kubeconfig), context)


async def _control(config: Any, settings: Any) -> None:
    from fairway.clock import Chance, Clock
    from fairway.controllers.run import run
    from fairway.kube.http import http_transport

    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    clock = Clock()
    async with http_transport(config, clock) as transport:
        await run(transport, settings, clock, Chance())


async def control(kubeconfig: Path, settings: Any) -> None:
    """The scheduler of the cluster of this machine; it reaches it as any other API server. Its identity is that of the
    data directory: a restart renews its own lease at once. Its metrics are for this machine."""
    from dataclasses import replace

    from fairway.kube.config import load

    identity, host = settings.identity or str(kubeconfig.parent), settings.metrics_host or "127.0.0.1"
    await _control(load([kubeconfig]), replace(settings, identity=identity, metrics_host=host))


def read_settings(path: str) -> Any:
    """The settings of a YAML file; the defaults without one."""
    from fairway.settings import Settings, SettingsError, settings_of

    if not path:
        return Settings()
    from fairway.api import quantities

    from .load import load

    values = next(iter(load(path)), {})
    if not isinstance(values, dict):
        raise Problem(f"--config: {path}: found {values!r}; settings by name are allowed")
    try:
        return settings_of(values, quantities.duration)
    except SettingsError as error:
        raise Problem(f"--config: {path}: {error}") from error
