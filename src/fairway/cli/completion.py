"""Completion scripts, as click makes them."""

import click
from click.shell_completion import get_completion_class

from .main import cli


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell: eval "$(fairway completion bash)"."""
    script = get_completion_class(shell)
    assert script is not None, "the choices are click's own"
    click.echo(script(cli, {}, "fairway", "_FAIRWAY_COMPLETE").source())
