"""The command `fairway`, which is `kubectl fairway` too.

Each command lives in its own module and is imported when it is named: `--help` costs neither numpy nor aiohttp.
Exit status: 0 done, 1 the answer is no, 2 wrong use. An error is one line on standard error: what is wrong, what to do.
"""

import errno
import gc
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import click
from click.shell_completion import CompletionItem, shell_complete

# name → (module, what the one-line help says); help texts stand here so that listing them imports nothing.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("up", "Run a cluster on this machine, in the foreground."),
    "down": ("up", "Stop the cluster of this machine."),
    "login": ("login", "Say who you are on a team's machine; write a kubeconfig."),
    "team": ("team", "Open queues of a team's machine to Unix groups."),
    "demo": ("demo", "The story of the README, on a cluster of its own."),
    "submit": ("submit", "Queue a program, run in this directory with this environment."),
    "ls": ("ls", "List workloads: what runs, what waits, why."),
    "status": ("show", "All that is known of one workload."),
    "why": ("show", "Why a workload waits, and what would change it."),
    "logs": ("logs", "Print what a workload wrote."),
    "shell": ("shell", "A terminal in the place of a workload, or of a new one."),
    "exec": ("execute", "Run a command in the place of a running rank."),
    "wait": ("wait", "Wait until workloads have ended, or have started."),
    "cancel": ("act", "Delete the jobs of workloads."),
    "suspend": ("act", "Stop workloads and keep them from starting."),
    "pause": ("act", "Freeze the processes of workloads where they run."),
    "resume": ("act", "Let suspended workloads queue again, and paused ones go on."),
    "modify": ("modify", "Change the queue, priority or time limit of workloads."),
    "queues": ("queues", "List queues: quotas, shares, what they hold and ask for."),
    "nodes": ("nodes", "List nodes: what is taken and free, and by whom."),
    "top": ("top", "What running workloads use of what they asked for, live."),
    "usage": ("usage", "Who held how many GPU-hours, and what they cost."),
    "dashboard": ("dashboard", "Serve a live page: who holds which GPU, what waits and why."),
    "simulate": ("simulate", "Run a load under policies, in virtual time, and compare."),
    "plan": ("plan", "What would be decided about the objects of a file."),
    "replay": ("plan", "Decide again on a recorded snapshot, and compare."),
    "controller": ("up", "Run the scheduler against an API server."),
    "install": ("install", "Print the manifests that a cluster needs."),
    "uninstall": ("uninstall", "Take Fairway off a cluster."),
    "completion": ("main", "Print the completion script of a shell."),
}

UNWRITTEN = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What goes wrong with the output, and not with the command."""
GC_THRESHOLD = (10_000, 20, 50)  # Python's default of 700 takes a fifth of the CPU where thousands of objects are read


class Problem(click.ClickException):
    """An error of one line; exits 2 (wrong use), or 1 where the answer is no."""

    def __init__(self, message: str, *, exit_code: int = 2) -> None:
        super().__init__(" ".join(message.split()))
        self.exit_code = exit_code

    def show(self, file: object = None) -> None:
        click.echo(f"fairway: {self.message}", err=True)


def is_text(word: str) -> bool:
    """Whether it is UTF-8, as all text of Kubernetes is."""
    return word == word.encode(errors="replace").decode()


@contextmanager
def told(*errors: type[Exception], by: str = "", exit_code: int = 2) -> Iterator[None]:
    """Errors of these kinds become a Problem that says, after `by`, what they say."""
    try:
        yield
    except errors as error:
        raise Problem(f"{by}{error}", exit_code=exit_code) from error


class Command(click.Command):
    """A command that refuses empty values: they come from variables of a shell that are not set, and would mean the
    default, or all there is. Values of the type UNPROCESSED may be empty."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = {} if ctx.resilient_parsing else self.make_parser(ctx).parse_args(list(args))[0]
        for it in self.params:
            value = given.get(it.name or "")
            if it.type is not click.UNPROCESSED and "" in (value if isinstance(value, list | tuple) else [value]):
                name = max(it.opts, key=len)
                instead = f"{name}: found ''; leave it out, or give {it.make_metavar(ctx)}"
                said = instead if name[0] == "-" else f"{name.upper().rstrip('S')}: found ''; a name is needed"
                raise click.BadOptionUsage(name, said, ctx)
        return super().parse_args(ctx, args)


class LazyGroup(click.Group):
    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and args[0][:1] != "-" and not ctx.resilient_parsing:
            from .elsewhere import meant

            raise Problem(f"there is no command {args[0]!r}; {meant(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = getattr(import_module(f"fairway.cli.{COMMANDS[name][0]}"), name)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        named = [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]
        return named + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fairway")
def cli() -> None:
    """Fairway decides which AI workload runs when, and on which accelerators."""


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell: eval "$(fairway completion bash)"."""
    shell_complete(cli, {}, "fairway", "_FAIRWAY_COMPLETE", f"{shell}_source")


def main() -> None:
    """The entry point."""
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")  # none where closed: `>&-`
    status = _run()
    try:
        sys.stdout.flush()
    except OSError:  # it is told; what is left would be written, and told of, once more at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    gc.freeze()  # the process ends: its last collection need not visit thousands of objects
    sys.exit(status)


def _run() -> int:
    """The exit status. A usage error is one line too: what is wrong, and where the help is."""
    try:
        gc.set_threshold(*GC_THRESHOLD)
        if odd := [it for it in sys.argv if not is_text(it)]:
            raise Problem(f"found {odd[0]!r}; text in UTF-8 is allowed, as in all objects of Kubernetes")
        status = cli.main(standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        where = f" (see {context.command_path} --help)" if context else ""
        click.echo(f"fairway: {error.format_message()}{where}", err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        warnings.simplefilter("ignore", RuntimeWarning)  # about coroutines that had not begun
        return 130
    except OSError as error:
        if error.errno not in UNWRITTEN:
            raise
        if error.errno == errno.EPIPE:
            return 0  # the reader has seen enough
        click.echo(f"fairway: what is printed cannot be written: {error.strerror}", err=True)
        return 1
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    main()
