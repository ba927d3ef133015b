"""What the live page asks of the command line: the Job of a form, made as `fairway submit` makes it, and its trial."""

from collections.abc import Awaitable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from fairway.kube.client import Client

from .job import amend, check_name, stem
from .main import Problem, cli
from .program import program_of
from .submit import submit
from .view import usual_queue, view_of
from .whatif import answered, foreseen, would_help

if TYPE_CHECKING:
    from fairway.web.submit import Desk

OPTIONS = ("name", "queue", "gpus", "cpus", "memory", "image", "time-limit")


def desk() -> "Desk":
    from fairway.web.submit import Desk

    def helps(client: Client, key: str, is_foretold: bool) -> Awaitable[list[str]]:
        return would_help(client, key, is_foretold=is_foretold)

    return Desk(_job, _answer, helps, foreseen)


async def _job(client: Client, form: Mapping[str, str], namespace: str) -> dict[str, Any]:
    from fairway.web.submit import Unfit

    asked = [*(f"--{name}={form[name]}" for name in OPTIONS if form.get(name)), "--", "sh", "-c", form["command"]]
    try:
        context = submit.make_context("submit", asked, **cli.context_settings)  # click keeps the first names of --help
        order = SimpleNamespace(**context.params)
        order.usual = await usual_queue(client, namespace)
        view = await view_of(client, order)
        program = program_of(order, is_here=view.is_here, is_process=view.is_process)
        if order.name:
            check_name(order.name)
        name = order.name or f"{stem(tuple(form['command'].split()))}-{client.chance.word()}"
        made = program.job(order, name, namespace)
        amend(made, order)
        program.finish(made, order)
    except (Problem, click.ClickException) as error:
        raise Unfit(error.format_message().removeprefix("--")) from error
    return made


async def _answer(client: Client, reader: Client, job: dict[str, Any]) -> dict[str, Any]:
    answer, _ = await answered(client, reader, job, str(job["metadata"]["namespace"]))
    return answer
