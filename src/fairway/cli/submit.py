"""`fairway submit`: a program as an ordinary Job, in a queue.

On the cluster of this machine the program runs in the directory and environment it was submitted from: the Job's
container records the working directory and the variables of an allow-list (and what --env names), nothing else. On a
real cluster it runs in an image, so --image is needed there.
"""

import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from math import nan
from types import SimpleNamespace
from typing import Any

import click

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Ref, Selection
from fairway.kube.transport import Request

from .connect import on_cluster
from .find import sought
from .follow import follow as follow_job
from .main import Problem, told
from .output import output_option, show
from .whatif import dry_run as foretell

RECORDED = re.compile(r"PATH|HOME|LANG|VIRTUAL_ENV|CONDA_.*|PYTHON.*")
HERE = "fairway.dev/this-machine"
"""The image of a Job that runs as a process of this machine; no registry has it."""

FIELDS = {
    "metadata.name": "--name", "metadata.labels": "--queue", "[cpu]": "--cpus", "[memory]": "--memory",
    "[nvidia.com/gpu]": "--gpus", "/gpu-fraction]": "--gpus", ".env[": "--env", ".image": "--image",
    "/time-limit]": "--time-limit", "/min-count]": "--min-workers", "/after]": "--after",
}  # fmt: skip
"""What is in the path of a field → the option that it comes from."""


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--gpus", default="", metavar="N", help="GPUs of each worker; a fraction such as 0.5 shares one.")
@click.option("--workers", default=1, type=click.IntRange(1, 100_000), help="Workers; they start together.")
@click.option("--min-workers", type=click.IntRange(1), help="Start with as few as these, grow when there is room.")
@click.option("--cpus", default="1", metavar="N", help="CPUs of each worker.", show_default=True)
@click.option("--memory", default="", metavar="SIZE", help="Memory of each worker, e.g. 32Gi.")
@click.option("--queue", default="default", help="The queue.", show_default=True)
@click.option("--priority", default="", metavar="CLASS", help="A PriorityClass.")
@click.option("--image", default="", help="A container image; needed on a real cluster.")
@click.option("--type", "kind", type=click.Choice(["training", "interactive", "inference"]), help="What it is.")
@click.option("--time-limit", default="", metavar="6h", help="Stop it after this time.")
@click.option("--topology", default="", metavar="LEVEL", help="Keep all workers in one domain, e.g. rack.")
@click.option("--after", multiple=True, metavar="JOB", help="Start only when this job has succeeded; repeatable.")
@click.option("--env", multiple=True, metavar="NAME[=V]", help="Pass this variable on, or set it; repeatable.")
@click.option("--name", default="", help="The job's name; default: made from the program's.")
@click.option("--dry-run", is_flag=True, help="Say when and where it would start, whom it would evict; make nothing.")
@click.option("--follow", is_flag=True, help="Print its log until it ends; exit with its exit code.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@output_option
@on_cluster
async def submit(client: Client, namespace: str, follow: bool, dry_run: bool, output: str, **options: Any) -> int:
    """Queue a program: fairway submit --gpus 2 -- python train.py"""
    with told(Problem, by="--after: "):
        for one in options["after"]:
            await sought(client, namespace, one)
    job = await _job(client, SimpleNamespace(**options))
    if dry_run:
        with _by_option():
            answer, lines = await foretell(client, job, namespace)
        show(output, answer, lambda: click.echo("\n".join(lines)))
        return 0
    with _by_option():
        meta = (await client.create(kinds.JOBS, job, namespace=namespace))["metadata"]
    name = meta["name"]
    made = {"name": name, "namespace": namespace, "queue": options["queue"], "workload": f"job-{name}"}
    show(output, made, lambda: click.echo(f"{name} queued in {options['queue']}", err=follow))
    if not follow:
        return 0
    end = await follow_job(client, Ref(kinds.JOBS, name, namespace), meta["uid"])
    if end.message:
        click.echo(f"fairway: {' '.join(end.message.split())}", err=True)
    return end.code


@contextmanager
def _by_option() -> Iterator[None]:
    """A Job that the server finds malformed is wrong use: told by the option that the field comes from."""
    try:
        yield
    except ApiError as error:
        if error.status not in (400, 422):
            raise
        options = [(name, it.message) for it in error.causes for part, name in FIELDS.items() if part in it.field]
        raise Problem(": ".join(options[0]) if options else error.message) from error


async def _job(client: Client, order: SimpleNamespace) -> dict[str, Any]:
    here = await _is_this_machine(client)
    if not here and not order.image:
        raise Problem("--image: a cluster runs containers; name the image the program is in")
    if order.priority:
        classes = await client.list(Selection(kinds.PRIORITY_CLASSES))
        _known("--priority", order.priority, [it["metadata"]["name"] for it in classes])
    annotations = _annotations(order) | await _topology(client, order.topology)
    meta: dict[str, Any] = {"labels": {"fairway.dev/queue": order.queue}, "annotations": annotations}
    meta |= {"name": order.name} if order.name else {"generateName": f"{_stem(order.command)}-"}
    shares = {"fairway.dev/gpu-fraction": order.gpus} if _is_fraction(order.gpus) else {}
    template = {"metadata": {"annotations": shares}, "spec": _pod(order, here=here)}
    spec = {"parallelism": order.workers, "completions": order.workers, "backoffLimit": 0, "suspend": True}
    spec |= {"completionMode": "Indexed" if order.workers > 1 else "NonIndexed", "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def _annotations(order: SimpleNamespace) -> dict[str, str]:
    said = {
        "workload-type": order.kind.capitalize() if order.kind else "",
        "min-count": str(order.min_workers or ""),
        "time-limit": order.time_limit,
        "after": ",".join(order.after),
    }
    return {f"fairway.dev/{name}": value for name, value in said.items() if value}


def _is_fraction(gpus: str) -> bool:
    try:
        number = float(gpus or 0)
    except ValueError:
        number = nan
    if 0 < number < 1 or (number >= 0 and number.is_integer()):
        return number % 1 > 0
    raise Problem(f"--gpus: {gpus!r} is no number of GPUs; use 2, or a fraction of one such as 0.5")


def _pod(order: SimpleNamespace, *, here: bool) -> dict[str, Any]:
    gpus = "" if _is_fraction(order.gpus) else order.gpus
    amounts = {"cpu": order.cpus, "memory": order.memory, "nvidia.com/gpu": gpus}
    asked = {name: value for name, value in amounts.items() if value}
    container = {
        "name": "main",
        "image": order.image or HERE,
        "command": [_literal(word) for word in order.command],
        "env": [{"name": name, "value": _literal(value)} for name, value in _environment(order, here=here).items()],
        "resources": {"requests": asked, "limits": asked},
    } | ({"workingDir": os.getcwd()} if here else {})
    named = {"priorityClassName": order.priority} if order.priority else {}
    return {"restartPolicy": "Never", "containers": [container], **named}


def _environment(order: SimpleNamespace, *, here: bool) -> dict[str, str]:
    """What the program will see."""
    kept = {name: value for name, value in os.environ.items() if here and RECORDED.fullmatch(name)}
    for item in order.env:
        name, given, value = item.partition("=")
        if not given and name not in os.environ:
            raise Problem(f"--env: {name} is not set here; give it a value: --env {name}=…")
        kept[name] = value if given else os.environ[name]
    return kept


def _literal(text: str) -> str:
    """Written so that nothing in it is expanded: `$$` is a dollar."""
    return text.replace("$", "$$")


def _stem(command: tuple[str, ...]) -> str:
    """A name from the program: the script where an interpreter runs one."""
    script = next((it for it in command[1:] if re.search(r"\.(py|sh|jl|r)$", it)), command[0])
    stem = re.sub(r"[^a-z0-9]+", "-", os.path.splitext(os.path.basename(script))[0].lower()).strip("-")
    return stem[:40] or "job"


async def _is_this_machine(client: Client) -> bool:
    """Whether the server is the embedded one, by the word it puts into its version."""
    return b"fairway" in await client.call(Request("GET", "/version"))


async def _topology(client: Client, word: str) -> dict[str, str]:
    """A level's whole label, or its last part: `rack` is `fairway.dev/rack` where a pool has such a level."""
    if not word:
        return {}
    pools = await client.list(Selection(kinds.NODE_POOLS))
    levels = {level for pool in pools for level in (pool.get("spec") or {}).get("levels") or ()}
    return {"fairway.dev/topology-required": _known("--topology", word, levels)}


def _known(option: str, word: str, names: Collection[str]) -> str:
    """The name that is meant: the word, or one that ends with it."""
    found = [name for name in sorted(names) if word in (name, name.rpartition("/")[2])]
    if not found:
        raise Problem(f"{option}: there is no {word!r}; there are: {', '.join(sorted(names)) or 'none'}")
    return found[0]
