"""`fairway modify`: another queue, priority, time limit, deadline or order for workloads that are submitted already.

It changes labels and annotations of the user's own object, which the Workload follows.
"""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import click

from fairway.api.scalars import Malformed, duration, duration_text, shorter
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Kind, Selection

from .connect import on_cluster, unseen
from .find import Found, sought
from .job import deadline
from .main import Command, Problem, told
from .many import JOBS, SELECTOR, Choice, found_by, on_each
from .mistakes import against, of_order, of_priority, refuse
from .output import in_local_time, no_leaf, output_option
from .replicas import changeable
from .requirements import Requirements, requirements_of_workload
from .view import View, view_of

NONE = "none"
FIELDS = {"--time-limit": "time-limit", "--deadline": "deadline", "--after": "after", "--priority": "priority-class"}
"""Option → the annotation that it sets."""
REQUIRED = {"--queue": "queue", "--time-limit": "limit", "--priority": "priority"}
"""Option → what it changes of the workload's requirements."""
SETTLED = (
    "--gpus", "--cpus", "--memory", "--workers", "--min-workers", "--env", "--retries", "--grace", "--array", "--image",
)  # fmt: skip
"""Options of `submit` that no later change reaches."""


class Modify(Command):
    """A command that answers an option of `submit` which it does not have."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in SETTLED:
                raise
            why = "stays as it was submitted; `fairway cancel JOB` and submit it anew"
            raise Problem(f"{error.option_name}: {why}") from error


@click.command(cls=Modify)
@JOBS
@SELECTOR
@click.option("--queue", default="", metavar="QUEUE", help="Move it to this queue; only while it waits.")
@click.option("--wait-anyway", is_flag=True, help="Move it though it could not start there as things are now.")
@click.option("--priority", default="", metavar="CLASS", help="A PriorityClass; `none` for what its pods say.")
@click.option("--time-limit", default="", metavar="6h", help="Stop it after this time; `none` for the queue's.")
@click.option("--deadline", default="", metavar="TIME", help="When it should have ended: 2h, 18:00, …; or `none`.")
@click.option("--after", multiple=True, metavar="JOB", help="Start only when this job has succeeded; or `none`.")
@output_option
@on_cluster
async def modify(client: Client, namespace: str, output: str, **said: Any) -> int:
    """Change workloads that are submitted: fairway modify train --queue nlp --time-limit 6h"""
    choice = Choice(said.pop("jobs"), said.pop("selector"), how="-l SELECTOR")
    order = SimpleNamespace(wait_anyway=said.pop("wait_anyway"), priority=True, image="")
    given = {f"--{name.replace('_', '-')}": value for name, value in said.items() if value}
    if not given:
        raise Problem(f"nothing to change is given; use one of --queue, {', '.join(FIELDS)}")
    if given.get("--deadline", NONE) != NONE:
        given["--deadline"] = deadline(given["--deadline"], client.clock.now())
    if (limit := given.get("--time-limit", NONE)) != NONE:
        with told(Malformed, by="--time-limit: "):
            duration(limit)
    await _check(client, namespace, given)
    view = await view_of(client, order) if {"--queue", "--priority"} & given.keys() else None
    return await on_each(client, await found_by(client, namespace, choice), output, _change(given, view, order))


async def _check(client: Client, namespace: str, given: dict[str, Any]) -> None:
    """Names that are not there are a Problem before anything is changed, where the user may see what is there."""
    with unseen():
        if "--queue" in given:
            queues = await _names(client, kinds.QUEUES)
            above = {name: it.get("spec", {}).get("parent") for name, it in queues.items()}
            if below := sorted(name for name, parent in above.items() if parent == given["--queue"]):
                raise Problem(no_leaf(given["--queue"], below), exit_code=1)
            _known("--queue", given["--queue"], list(queues.keys() - set(above.values())))
    with unseen():
        if given.get("--priority", NONE) != NONE:
            _known("--priority", given["--priority"], list(await _names(client, kinds.PRIORITY_CLASSES)))
    for mistake in await of_order(client, namespace, _before(given)):
        raise Problem(mistake.message, exit_code=1)


def _before(given: dict[str, Any]) -> list[str]:
    return [job for job in given.get("--after", ()) if job != NONE]


async def _refuse_circle(client: Client, found: Found, names: list[str]) -> None:
    """A Problem where one of the names is the workload's own, or that of a workload which comes after it."""
    left, seen = list(names), set[str]()
    while left:
        seen.add(name := left.pop())
        before = await sought(client, found.ref.namespace, name)
        if before and before.ref == found.ref:
            said = f"--after {','.join(names)}: {found.name} would come after itself and never start"
            raise Problem(f"{said}; name another job", exit_code=1)
        left += set(before.workload["spec"].get("after") or () if before else ()) - seen


async def _names(client: Client, kind: Kind) -> dict[str, dict[str, Any]]:
    return {it["metadata"]["name"]: it for it in await client.list(Selection(kind))}


def _known(option: str, name: str, names: list[str]) -> None:
    if name not in names:
        raise Problem(f"{option}: there is no {name!r}; there are: {', '.join(sorted(names)) or 'none'}", exit_code=1)


def _moved(found: Found, given: dict[str, Any]) -> Requirements:
    """What the workload requires with its changes."""
    said = {name: given[option] for option, name in REQUIRED.items() if option in given}
    return replace(requirements_of_workload(found.workload), **{name: _text(it) or "" for name, it in said.items()})


def _change(given: dict[str, Any], view: View | None, order: SimpleNamespace) -> Callable[[Client, Found], Any]:
    """What makes the changes to one workload."""
    notes = {f"fairway.dev/{FIELDS[option]}": _text(value) for option, value in given.items() if option in FIELDS}
    meta: dict[str, Any] = {"annotations": notes} if notes else {}
    if "--queue" in given:
        meta["labels"] = {"fairway.dev/queue": given["--queue"]}

    async def change(client: Client, found: Found) -> str:
        _refuse(changeable(found), given)
        if view is not None:
            moved, own = _moved(found, given), found.workload["spec"].get("queue")
            is_moved = given.get("--queue", own) != own
            refuse(await against(client, view, moved) if is_moved else of_priority(view, moved), order)
        await _refuse_circle(client, found, _before(given))
        try:
            said = [await client.patch(owner, {"metadata": meta}) for owner in found.owners]
        except ApiError as error:
            raise _by_option(error) from error
        changes = ", ".join(f"{option[2:]} {_text(value) or NONE}" for option, value in given.items())
        return f"modified: {in_local_time(changes, client.clock.now())}{_stricter(said, given)}{_later(found, given)}"

    return change


def _later(found: Found, given: dict[str, Any]) -> str:
    """Of what has started that it comes after another only if it has to start again; else ""."""
    has_started = _before(given) and found.phase in ("Admitted", "Running")
    return "; it has started: --after counts only if it has to start again" * bool(has_started)


def _stricter(owners: list[dict[str, Any]], given: dict[str, Any]) -> str:
    """That the deadline of a Job or a pod counts, where its new time limit is longer; else ""."""
    limit = given.get("--time-limit", NONE)
    seconds = min((it for one in owners if (it := one["spec"].get("activeDeadlineSeconds"))), default=0)
    counts = f"; its activeDeadlineSeconds counts, {duration_text(seconds)}"
    return "" if limit == NONE or shorter(limit, seconds) == limit else counts


def _refuse(found: Found, given: dict[str, Any]) -> None:
    if found.phase in ("Succeeded", "Failed"):
        raise Problem(f"{found.name} is over; submit it anew to run it", exit_code=1)
    if not found.owners:
        raise Problem(f"{found.name} is a Workload that no job owns; change its spec with kubectl", exit_code=1)
    own = {it["template"]["spec"].get("priorityClassName") for it in found.workload["spec"].get("podSets") or ()}
    if given.get("--priority") == NONE and (name := found.workload["spec"].get("priorityClassName")) in own:
        raise Problem(f"--priority: the pods of {found.name} say {name} themselves; name another class", exit_code=1)
    if "--queue" in given and found.status.get("admission") and given["--queue"] != found.workload["spec"]["queue"]:
        steps = f"`fairway suspend {found.name}`, move it, then `fairway resume {found.name}`"
        raise Problem(f"{found.name} holds capacity, and keeps its queue while it does: {steps}", exit_code=1)


def _text(value: str | tuple[str, ...]) -> str | None:
    """The text of an annotation; None removes it."""
    text = value if isinstance(value, str) else ",".join(it.rpartition("/")[2] for it in value)
    return None if text == NONE else text


def _by_option(error: ApiError) -> Exception:
    """What the server refuses of a field, by the option that sets it."""
    causes = [(option, it.message) for it in error.causes for option, name in FIELDS.items() if f"/{name}]" in it.field]
    return Problem(": ".join(causes[0]), exit_code=1) if causes else error
