"""The options of `fairway submit`. Absent ones are None, so that a Job from a file keeps what it says."""

import re
from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]
OUTPUTS = ["table", "name", "json", "yaml"]


def _url(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    if text and not re.fullmatch(r"https?://[^\s/]\S*|mailto:[^\s@]+@[^\s@]+", text):
        raise click.BadParameter(f"found {text!r}; http://…, https://… or mailto:NAME@HOST is allowed")
    return text


def _labels(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        if text.startswith("fairway.dev/"):
            raise click.BadParameter(f"found {text!r}; labels under fairway.dev/ are set by options such as --queue")
        from fairway.embedded.selector import QUALIFIED, VALUE

        name, is_given, value = text.partition("=")
        if not (is_given and QUALIFIED.fullmatch(name) and VALUE.fullmatch(value)):
            words = "letters, digits, '-', '_' and '.', each at most 63 long, the first and the last a letter or digit"
            raise click.BadParameter(f"found {text!r}; NAME=VALUE is allowed, of {words}")
    return texts


_OPTIONS = (
    click.option("-f", "--file", "file", metavar="FILE", help="Submit the Jobs and Pods of a file; - reads them."),
    click.option("--gpus", metavar="N", help="GPUs of each worker; a fraction such as 0.5 shares one."),
    click.option("--workers", type=click.IntRange(1, 100_000), help="Workers, which start together; default: 1."),
    click.option("--min-workers", type=click.IntRange(1), help="Start with as few as these, grow when there is room."),
    click.option("--elastic", type=click.Choice(["restart", "torchrun"]),
                 help="What workers do when their number changes; default: restart."),
    click.option("--cpus", metavar="N", help="CPUs of each worker; default: 1."),
    click.option("--memory", metavar="SIZE", help="Memory of each worker, e.g. 32Gi."),
    click.option("-q", "--queue", metavar="QUEUE", help="The queue; default: the namespace's, else default."),
    click.option("--priority", metavar="CLASS", help="A PriorityClass."),
    click.option("--preemptible/--no-preemptible", default=None, help="Whether it may be stopped for other work."),
    click.option("--image", metavar="IMAGE", help="A container image; needed on a real cluster."),
    click.option("--type", "kind", type=click.Choice(["training", "interactive", "inference"]), help="What it is."),
    click.option("--time-limit", metavar="6h", help="Stop it after this time."),
    click.option("--expected-runtime", metavar="2h", help="How long it is expected to run."),
    click.option("--deadline", metavar="TIME", help="When it should have ended: 2h, 18:00, 'tomorrow 8:00', RFC 3339."),
    click.option("--idle-timeout", metavar="1h", help="Park it after this time without use of a GPU or CPU."),
    click.option("--grace", metavar="2m", help="The time from SIGTERM to SIGKILL when it is stopped; default: 30s."),
    click.option("--checkpoint-interval", metavar="15m", help="How often it saves its work."),
    click.option("--retries", type=click.IntRange(0), help="Start it again after this many failures; default: 0."),
    click.option("--requeue-on", metavar="75,oom,node-lost", help="Failures to repeat that count as no retry."),
    click.option("--topology", metavar="LEVEL", help="Keep all workers in one domain, e.g. rack."),
    click.option("--array", metavar="0-199%8", help="Run it once for each number, at most 8 at once."),
    click.option("--sweep", is_flag=True, help="Run it once for each combination of '{a,b}' and '{1..4}' in it."),
    click.option("--after", multiple=True, metavar="JOB", help="Start only when this job has succeeded; repeatable."),
    click.option("--env", multiple=True, metavar="NAME[=V]", help="Pass this variable on, or set it; repeatable."),
    click.option("--env-only", multiple=True, default=None, metavar="NAME,…", type=click.UNPROCESSED,
                 help="Pass on these variables only; '' for none."),
    click.option("--sync", metavar="DIR", help="On a cluster: send the files of this folder that git tracks along."),
    click.option("--chdir", metavar="DIR", help="The folder it runs in; default: this one."),
    click.option("--notify", metavar="URL", callback=_url, help="Notify this address when it starts and ends."),
    click.option("--label", "labels", multiple=True, metavar="NAME=V", callback=_labels,
                 help="A label, by which -l of other commands finds it; repeatable."),
    click.option("--name", metavar="NAME", help="The job's name; default: made from the program's."),
    click.option("--wait-anyway", is_flag=True, help="Queue it though it could not start as things are now."),
    click.option("--ignore-unsupported", is_flag=True, help="Leave out #SBATCH lines that mean nothing here."),
    click.option("--watch", is_flag=True, help="Show its queue, live, until it runs."),
    click.option("--dry-run", is_flag=True, help="Say when and where it would start, and what it would evict."),
    click.option("--quiet", is_flag=True, help="Print its name alone, at once; as -o name."),
    click.option("-o", "--output", type=click.Choice(OUTPUTS), default="table", show_default=True, help="The format."),
)


def submit_options(command: Command) -> Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
