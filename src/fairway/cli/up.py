"""`fairway up` and `down`: the cluster of this machine. `fairway controller`: the scheduler alone, against any API
server, as it runs beside the cluster of this machine."""

import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fairway.api.scalars import Malformed, duration, exact
from fairway.clock import Chance, Clock
from fairway.kube.config import ConfigError, files, in_cluster, load

from .connect import SOCKET, TEAM_DIR, TEAM_SOCKET, data_dir, opened, team_socket
from .dashboard import beside, of_team
from .main import Command, Problem, told

PATIENCE_SECONDS = 2.0
FOLDER = click.option("--data-dir", "folder", default="", metavar="D",
                      help="Where the cluster lives; default: the user's data home, in fairway.")
TEAM = click.option("--team", is_flag=True, help="The cluster of all users of this machine, in /var/lib/fairway.")
PATH = click.Path(path_type=Path)
OWN = "own"  # as in `fairway.embedded.offer`, which is imported only where a cluster starts
CONFIG = click.option("--config", default="", metavar="FILE", help="A YAML file of settings.")


def _quantity(context: click.Context, option: click.Parameter, chosen: str) -> str:
    from .job import check_memory

    with told(Malformed, by=f"{option.opts[0]}: "):
        if chosen not in ("", OWN) and not exact(chosen):
            raise Malformed(f"found {chosen!r}; more than 0 is allowed")
    if option.name == "memory" and chosen not in ("", OWN):
        check_memory(chosen)
    return chosen


def _count(context: click.Context, option: click.Parameter, chosen: str) -> str:
    if chosen not in ("", OWN) and not re.fullmatch("[0-9]{1,4}", chosen, re.ASCII):
        raise Problem(f"{option.opts[0]}: found {chosen!r}; a number is allowed, or `{OWN}` for those of the machine")
    return chosen


@click.command(cls=Command)
@FOLDER
@click.option("--port", default=0, type=click.IntRange(0, 65_535), metavar="P",
              help="The API server's port; default: that of last time.")
@click.option("--cpus", default="", metavar="N", help="Offer so many CPUs.", callback=_quantity)
@click.option("--memory", default="", metavar="M", help="Offer so much memory, e.g. 16Gi.", callback=_quantity)
@click.option("--fake-gpus", default="", metavar="N", help="Offer so many GPUs that are not there.", callback=_count)
@click.option("--containers", default="", type=click.Choice(["", "processes", "podman"]), metavar="HOW",
              callback=lambda context, option, chosen: OWN if chosen == "processes" else chosen,
              help="How containers run: as `processes`, or by `podman` in their images.")
@click.option("--nodes", type=PATH, metavar="FILE", help="More nodes, whose pods only pretend to run.")
@CONFIG
@TEAM
@click.option("--admin-group", "admins", default="fairway-admin", show_default=True, metavar="GROUP",
              help="The Unix group whose members administer the team's cluster.")
@click.option("--detach", is_flag=True, help="Return when it is ready; `fairway down` stops it.")
def up(folder: str, detach: bool, config: str, team: bool, admins: str, **offer: Any) -> None:
    """Run a cluster on this machine, in the foreground; print the path of its kubeconfig, and the link of its page.

    What --cpus, --memory, --fake-gpus and --containers say holds for later starts, too; `own` offers the machine's own
    again.

    Ctrl-C stops pods with their grace; their workloads go on when it is started again. With `metricsPort: 9400` in the
    file of settings, metrics are at http://127.0.0.1:9400/metrics, for the token in the data directory."""
    from fairway.embedded.datadir import UpError, check_free

    place = _place(folder, is_of_team=team)
    with told(UpError, exit_code=1):
        check_free(place)
    settings = read_settings(config) if config or not detach else None  # slow to load, and the one detached reads them
    if team:
        offer["team"] = _team(admins)
    elif path := team_socket():
        click.echo(f"a team's cluster runs here, too ({path}): this one counts the same CPUs, and commands speak to it "
                   "until `fairway down`", err=True)
    with told(UpError, exit_code=1):
        asyncio.run(_detach(place) if detach else _up(place, settings, offer))


def _port(folder: Path) -> str | None:
    """What the file says that names the port; None where there is none yet."""
    from fairway.embedded.datadir import small_text

    return small_text(folder / "port") if (folder / "port").exists() else None


def _say_port(folder: Path, before: str | None) -> None:
    """Says whether the API has another port than the last time, which copies of the kubeconfig still have."""
    if before is not None and (now := _port(folder)) != before:
        click.echo(f"the port of the API is {now} now; {folder / 'port'} had {before[:20]!r}", err=True)


def _place(chosen: str, *, is_of_team: bool) -> Path:
    """The data directory."""
    return data_dir(chosen or (TEAM_DIR if is_of_team else None))


def _team(admins: str) -> Any:
    from fairway.embedded.team.door import Team

    from .answers import DRY_RUN, WHY, dry_run, why

    if os.geteuid():
        raise Problem("--team: only root starts the cluster of all users: sudo fairway up --team", exit_code=1)
    return Team(Path(os.environ.get(SOCKET) or TEAM_SOCKET), admins, {DRY_RUN: dry_run, WHY: why})


async def _detach(folder: Path) -> None:
    """The same command again, without --detach, in the background."""
    from fairway.embedded.datadir import detach

    before = _port(folder)
    again = [argument for argument in sys.argv[1:] if argument != "--detach"]
    await detach([sys.executable, "-m", "fairway.cli.main", *again], folder, Clock())
    _say_port(folder, before)
    if sys.stderr.isatty():
        click.echo("`fairway dashboard` prints the link of a page of what happens there", err=True)
    click.echo(str(folder / "kubeconfig"))


async def _up(folder: Path, settings: Any, offer: dict[str, Any]) -> None:
    from fairway.embedded.up import Options, up
    from fairway.node.archive import Bounds

    settings = replace(settings, metrics_token_file=settings.metrics_token_file or str(folder / "token"))
    before = _port(folder)

    async def decide(transport: Any) -> None:
        _say_port(folder, before)
        click.echo(str(folder / "kubeconfig"))
        async with asyncio.TaskGroup() as tasks:
            config = load([folder / "kubeconfig"])
            tasks.create_task(of_team(config, folder / "page") if offer.get("team") else beside(config, folder))
            tasks.create_task(control(transport, folder, settings))

    bounds = Bounds(settings.log_retention, int(settings.log_gib * (1 << 30)))
    options = Options(folder, **offer, logs=bounds, job_ttl=settings.log_retention)
    await up(options, clock=Clock(), chance=Chance(), control=decide)


async def control(transport: Any, folder: Path, settings: Any) -> None:
    """The scheduler of the cluster of this machine, through a transport to it. Its identity is that of the data
    directory: a restart renews its own lease at once. Its metrics are for this machine."""
    identity, host = settings.identity or str(folder), settings.metrics_host or "127.0.0.1"
    notify = settings.notify_hosts or "*"  # whoever submits here can reach as much from a job
    await _control(transport, replace(settings, identity=identity, metrics_host=host, notify_hosts=notify))


@click.command(cls=Command)
@FOLDER
@TEAM
@click.option("--keep-pods", is_flag=True, help="Leave the programs running; the next up finds them. For upgrades.")
def down(folder: str, team: bool, keep_pods: bool) -> None:
    """Stop the cluster of this machine: pods get their signal and their grace."""
    from fairway.embedded.datadir import UpError, down
    from fairway.node.container import running

    place, ran = _place(folder, is_of_team=team), list[Path]()
    with suppress(PermissionError):  # another user's, which is told below
        ran = [it.folder for it in running(place / "pods")]
    with told(UpError, exit_code=1):
        stopping = down(place, Clock(), keeps_pods=keep_pods)
        asyncio.run(stopping if keep_pods else _patiently(stopping))
    if text := _stopped(ran):
        click.echo(text)


def _stopped(ran: Iterable[Path]) -> str:
    """What became of the workloads whose containers ran in these folders, in a line; "" where none was stopped."""
    from fairway.node.archive import read_origin
    from fairway.node.container import inspect
    from fairway.node.podstatus import ON_DISK, SHUTDOWN

    found: dict[str, set[str]] = {SHUTDOWN: set(), ON_DISK: set()}
    for run in ran:
        if (why := inspect(run).stopped) in found and (origin := read_origin(run.parents[2])):
            found[why].add(origin.uid)
    stopped, saved = (f"{len(it)} workload{'s' * (len(it) != 1)}" if it else "" for it in found.values())
    ends = [stopped and f"{stopped} stopped, to start again with the next `fairway up`",
            saved and f"{saved} paused on disk"]  # fmt: skip
    return "; ".join(filter(None, ends))


async def _patiently(stopping: Coroutine[Any, Any, None]) -> None:
    """Says what is waited for, where that takes long."""
    task = asyncio.create_task(stopping)
    done, _ = await asyncio.wait([task], timeout=PATIENCE_SECONDS)
    if not done:
        click.echo("programs were told to stop and have their grace period; this waits for them", err=True)
    await task


@click.command(cls=Command)
@click.option("--kubeconfig", default="", metavar="FILE", help="The kubeconfig; default: a pod's, else kubectl's.")
@click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig to use.")
@CONFIG
@click.option("--webhook", default="", metavar="HOST:PORT",
              help="Answer the API server's admission reviews there, e.g. 0.0.0.0:9443.")
def controller(kubeconfig: str, context: str, config: str, webhook: str) -> None:
    """Run the scheduler against an API server, until it is told to stop."""
    from fairway.controllers.webhook import address

    with told(ValueError, by="--webhook: "):
        door = address(webhook) if webhook else None
    with told(ConfigError):
        inside = None if kubeconfig or context else in_cluster(os.environ)
        chosen, settings = inside or load(files(os.environ, kubeconfig), context), read_settings(config)
        if inside:  # by the pod's name, which a container that is started again in it keeps
            settings = replace(settings, identity=settings.identity or os.environ.get("HOSTNAME", ""))
        asyncio.run(_until_stopped(_afar(chosen, settings, door)))


async def _until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """A SIGTERM ends it in order: its lease is free at once."""
    task = asyncio.create_task(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with suppress(asyncio.CancelledError):
        await task


async def _afar(config: Any, settings: Any, door: Any) -> None:
    """The scheduler of the cluster that a kubeconfig names."""
    async with AsyncExitStack() as stack:
        await _control(await opened(stack, config, Clock()), settings, door)


async def _control(transport: Any, settings: Any, door: Any = None) -> None:
    from fairway.controllers.journal import Lines
    from fairway.controllers.run import run

    handler = logging.StreamHandler()
    handler.setFormatter(Lines())
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
    await run(transport, settings, Clock(), Chance(), webhook=door)


def read_settings(file: str) -> Any:
    """The settings of a YAML file; the defaults without one."""
    from fairway.kube.manifest import Unreadable
    from fairway.kube.manifest import load as read
    from fairway.settings import Settings, SettingsError, settings_of

    if not file:
        return Settings()
    with told(Unreadable, by="--config: "):
        values = next(iter(read(file)), {})
    if not isinstance(values, dict):
        raise Problem(f"--config: {file}: found {values!r}; settings by name are allowed")
    with told(SettingsError, by=f"--config: {file}: "):
        return settings_of(values, duration)
