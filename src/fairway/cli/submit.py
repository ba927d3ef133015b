"""`fairway submit`: a program as an ordinary Job in a queue, or the Jobs and Pods of a file.

On the cluster of this machine a program runs in the folder and with the environment it was submitted from. On a real
cluster it runs in an image, so --image is needed there. Mistakes are found before anything is made (mistakes.py), the
environment is kept in a Secret (variables.py), and what becomes of the workload is printed in one line (verdict.py).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import click
import msgspec

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Ref

from . import variables
from .connect import on_cluster
from .find import workload_of
from .follow import follow_job
from .job import amend, check_name, deadline, kind_of, of_maker, template_of
from .launch import service_of
from .leader import warn
from .listing import PodSet
from .main import Problem
from .mistakes import check
from .options import submit_options
from .output import near, show
from .program import Program, program_of
from .quota import over_quota
from .requirements import requirements_of
from .script import Submit
from .sync import packed, unpack
from .verdict import first_verdict
from .view import View, usual_queue, view_of
from .whatif import dry_run as foretell

Thing = dict[str, Any]
AT_ONCE = 8  # objects of a file that are told of together
CLOSED = '.fairway.dev": failed to call webhook'
NO_WEBHOOK = (
    "Fairway's webhook does not answer, so nothing is let in; no controller runs? `fairway install --check` says what "
    "is missing"
)
UNSEEN = (
    "decides on the workloads and pods of all namespaces, which you may not list; submit it, and `fairway why` says "
    "what it waits for"
)
NEVER = ("NeverFits", "QueueNotFound", "QueueInvalid", "NotAllowed", "LevelUnknown")
"""Reasons for which a workload waits that no time mends."""

FIELDS = {
    "metadata.name": "--name", "metadata.labels": "--queue", "[cpu]": "--cpus", "[memory]": "--memory",
    "[nvidia.com/gpu]": "--gpus", "/gpu-fraction]": "--gpus", ".env[": "--env", ".image": "--image",
    "/time-limit]": "--time-limit", "/min-count]": "--min-workers", "/elastic]": "--elastic", "/after]": "--after",
    "/expected-runtime]": "--expected-runtime", "/checkpoint-interval]": "--checkpoint-interval",
    "/idle-timeout]": "--idle-timeout", "podFailurePolicy": "--requeue-on", "backoffLimit": "--retries",
}  # fmt: skip
"""What is in the path of a field → the option that it comes from."""


@dataclass(frozen=True, slots=True)
class Draft:
    """An object about to be made; where it is the user's own, what was changed in it and its `file`."""

    thing: Thing
    changes: Sequence[str] = ()
    program: Program | None = None
    file: str = ""

    @property
    def options(self) -> set[str]:
        """The options that what it says may come from."""
        given = {f"--{it.partition('=')[0]}" for it in self.changes}
        return set(FIELDS.values()) if self.program else given

    @property
    def ref(self) -> Ref:
        meta = self.thing["metadata"]
        return Ref(kind_of(self.thing), meta["name"], meta["namespace"])

    @property
    def queue(self) -> str:
        return str((self.thing["metadata"].get("labels") or {}).get("fairway.dev/queue", "default"))


@click.command(cls=Submit, context_settings={"allow_interspersed_args": False})
@submit_options
@click.option("--follow", is_flag=True, help="Print its log until it ends; exit with its exit code.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@on_cluster
async def submit(client: Client, namespace: str, **options: Any) -> int:
    """Queue a program: fairway submit --gpus 2 -- python train.py"""
    order = SimpleNamespace(**options)
    order.output = "name" if order.quiet else order.output
    view = await view_of(client, order)
    drafts, values = await prepared(client, view, order, namespace)
    if order.dry_run:
        return max([await _foretell(client, view, it, order) for it in drafts])
    files = packed(order.sync) if order.sync and not view.is_process else {}
    made = await _made(client, drafts, order, lambda it: make(client, it, values, files))
    for note in {tell(view, it.thing) for it in drafts for tell in (_unsent, _unparked)} - {""}:
        click.echo(f"  {note}", err=True)
    await warn(client)
    if order.watch:
        await _watch(client, drafts[0])
    return await _follow(client, drafts[0], made[0]) if order.follow else 0


async def prepared(
    client: Client, view: View, order: SimpleNamespace, namespace: str
) -> tuple[list[Draft], dict[str, str]]:
    """What an order asks for, and its environment; a Problem for what is wrong with it. Nothing is made yet."""
    await _complete(client, view, order, namespace)
    drafts = _drafts(client, view, order, namespace)
    if order.gpus and (template := template_of(drafts[0].thing)):
        of_maker(template, view.nodes)
    values = variables.variables(order, is_process=view.is_process)
    if (program := drafts[0].program) and values:
        values |= program.variables(values)
    await check(client, view, [it.thing for it in drafts], order)
    return drafts, values


def _unsent(view: View, thing: Thing) -> str:
    """Why no notice can reach the address of an object; "" where one can, or where it is not known here."""
    address = (thing["metadata"].get("annotations") or {}).get("fairway.dev/notify", "")
    if not (view.is_here and address.startswith("mailto:")):
        return ""
    from fairway.controllers.mail import NO_MAIL, can_mail

    return "" if can_mail() else f"--notify: {NO_MAIL}, so no mail will come; an http(s) URL is notified without"


def _unparked(view: View, thing: Thing) -> str:
    """Why an idle time-out never parks an object; "" where it does, or where it is not known here."""
    template = template_of(thing) or {}
    marked = [it.get("metadata") or {} for it in (thing, template)]
    has_limit = any("fairway.dev/idle-timeout" in (it.get("annotations") or {}) for it in marked)
    if not (view.is_here and has_limit and msgspec.convert({"template": template}, PodSet).gpus()):
        return ""
    from fairway.node.machine import FAKE_MODEL

    models = {(it["metadata"].get("labels") or {}).get("nvidia.com/gpu.product") for it in view.nodes or ()} - {None}
    fake = "the GPUs here are fake (--fake-gpus) and tell of no use, so what has one is never parked"
    return f"--idle-timeout: {fake}" if models == {FAKE_MODEL} else ""


async def _complete(client: Client, view: View, order: SimpleNamespace, namespace: str) -> None:
    """Checks the options by themselves, and writes out what they abbreviate."""
    if order.file and order.command:
        raise Problem(f"-f {order.file} does not go with a program ({order.command[0]}); submit them one by one")
    if not (order.file or order.command):
        raise Problem("say what to run: fairway submit -- PROGRAM ARGUMENT…, or a file of objects: -f FILE")
    if order.follow and order.file:
        raise Problem("--follow: a file may hold several jobs; use fairway logs -f JOB")
    if order.sync and order.file:
        raise Problem("--sync: goes with a program; the objects of a file name their own volumes")
    order.usual = await usual_queue(client, namespace)
    if order.sync and view.is_process:  # where a program runs in a folder of this machine
        order.chdir = order.chdir or order.sync
    order.kind = order.kind.capitalize() if order.kind else None
    if order.name is not None:
        check_name(order.name)
    if order.deadline:
        order.deadline = deadline(order.deadline, client.clock.now())
    if order.topology and view.pools is not None:
        levels = {level for it in view.pools for level in (it.get("spec") or {}).get("levels") or ()}
        order.topology = _known("--topology", order.topology, levels)


def _known(option: str, word: str, names: set[str]) -> str:
    """The name that is meant: the word, or one that ends with it: `rack` is `fairway.dev/rack`."""
    found = [name for name in sorted(names) if word in (name, name.rpartition("/")[2])]
    if not names:
        how = "labels of nodes, which spec.levels of a NodePool lists"
        raise Problem(f"{option}: no node has a level {word!r}: this cluster has no levels ({how})", exit_code=1)
    if not found:
        raise Problem(f"{option}: there is no {word!r}{near(word, names)}", exit_code=1)
    return found[0]


def _drafts(client: Client, view: View, order: SimpleNamespace, namespace: str) -> list[Draft]:
    if order.file:
        from .manifest import drafts_of

        return [Draft(thing, changes, file=order.file) for thing, changes in drafts_of(client, order, namespace)]
    program = program_of(order, is_here=view.is_here, is_process=view.is_process)
    name = order.name or f"{program.stem}-{client.chance.word()}"
    thing = program.job(order, name, namespace)
    amend(thing, order)
    program.finish(thing, order)
    return [Draft(thing, program=program)]


async def _foretell(client: Client, view: View, draft: Draft, order: SimpleNamespace) -> int:
    """1 where it could never start, with the option that would have to be another."""
    try:
        with _by_option(draft):
            answer, lines = await foretell(client, draft.thing, draft.ref.namespace)
    except ApiError as error:
        if error.status != 403:
            raise
        raise Problem(f"--dry-run: {UNSEEN}", exit_code=1) from error
    trials = draft.program.trials.lines() if draft.program and draft.program.trials and order.sweep else []
    waits = answer["verdict"] == "Wait"
    over = [f"  {it}" for it in over_quota(view, requirements_of(draft.thing))] if waits else []
    show(order.output, answer, lambda: click.echo("\n".join((*trials, *lines, *over))))
    return int(waits and (answer["reason"] in NEVER or bool(over)))


@contextmanager
def _by_option(draft: Draft) -> Iterator[None]:
    """What the server refuses, since it is malformed or its name is taken, is told by its option."""
    try:
        yield
    except ApiError as error:
        if error.reason == "AlreadyExists":
            option, name, kind = "--name: " if draft.program else "", draft.ref.name, draft.ref.kind.name
            found = f"{option}there is a {kind} {name!r} already, running or over"
            first = f"`fairway cancel --forget {name}` first"
            raise Problem(f"{found}; take another name, or {first}", exit_code=1) from error
        if error.status == 404 and draft.file and "namespaces" not in error.message:
            lacks = f"this cluster has no kind {draft.ref.kind.name} ({draft.ref.kind.group_version})"
            raise Problem(f"-f {draft.file}: {lacks}; install what defines it", exit_code=1) from error
        if error.status == 500 and CLOSED in error.message:
            raise Problem(NO_WEBHOOK, exit_code=1) from error
        if error.status not in (400, 422):
            raise
        own = [(part, name) for part, name in FIELDS.items() if name in draft.options]
        options = [(name, it.message) for it in error.causes for part, name in own if part in it.field]
        where = f"-f {draft.file}: {draft.ref.kind.name.lower()}/{draft.ref.name}: " * bool(draft.file)
        said = ": ".join(options[0]) if options else f"{where}{error.message}"
        raise Problem(said, exit_code=1) from error


async def make(client: Client, draft: Draft, values: dict[str, str], files: Mapping[str, bytes]) -> Thing:
    """The object as the server made it, its environment and files in Secrets of its own, and its ranks in a Service."""
    template = template_of(draft.thing)
    if not template or not (values or files):
        return await _create(client, draft)
    await variables.sweep(client, draft.ref.namespace)
    secrets: list[Ref] = []
    try:
        for word, data, refer in (("env", values, variables.refer), ("files", files, unpack)):
            if data:
                secrets.append(await variables.keep(client, draft.ref, data, word))
                refer(template, secrets[-1].name)
        made = await _create(client, draft)
    except (ApiError, Problem):
        for secret in secrets:
            await client.delete(secret)
        raise
    for secret in secrets:
        await variables.give(client, secret, draft.ref, made["metadata"]["uid"])
    return made


async def _made(
    client: Client, drafts: Sequence[Draft], order: SimpleNamespace, make: Callable[[Draft], Awaitable[Thing]]
) -> list[Thing]:
    """Made in their order, and told of a few at a time: of the first also where a later one is refused."""
    made, told = list[Thing](), 0
    try:
        for draft in drafts:
            with answered(draft):
                made.append(await make(draft))
            if order.output == "table" and len(made) - told == AT_ONCE:
                since, told = told, len(made)  # Ctrl-C meanwhile has told of these
                await _tell(client, drafts[since:told], made[since:], order)
    finally:
        if made[told:]:
            await _tell(client, drafts[told : len(made)], made[told:], order)
    return made


@contextmanager
def answered(draft: Draft) -> Iterator[None]:
    """Says what a lost answer, or Ctrl-C before it, leaves open; where nothing was sent, the connection tells."""
    try:
        yield
    except asyncio.CancelledError:
        _leave([draft.ref.name], "submitted, or was about to be")
        raise
    except OSError as error:
        if isinstance(error.__cause__ or error, ConnectionRefusedError | FileNotFoundError):
            raise
        said = f"no answer came: {draft.ref.name} may have been submitted; `fairway ls --all` says whether it was"
        raise Problem(said, exit_code=1) from error


def _leave(names: Sequence[str], state: str) -> None:
    """Says after Ctrl-C what has become of them."""
    those, (are, them) = " ".join(names), ("is", "it") if len(names) == 1 else ("are", "them")
    click.echo(f"\n{those} {are} {state}: `fairway cancel {those}` ends {them}", err=True)


async def _create(client: Client, draft: Draft) -> Thing:
    """A Job without the Service that its ranks meet in would wait for ever: both, or none."""
    with _by_option(draft):
        made = await client.create(draft.ref.kind, draft.thing, is_strict=bool(draft.file))
    service = service_of(made) if draft.program else None
    try:
        if service:
            await client.create(kinds.SERVICES, service)
    except ApiError as error:
        await client.delete(draft.ref, uid=made["metadata"]["uid"])
        raise Problem(f"its Service cannot be made: {error.message}; nothing was submitted", exit_code=1) from error
    return made


async def _tell(client: Client, drafts: Sequence[Draft], made: Sequence[Thing], order: SimpleNamespace) -> None:
    """One line for each; where it starts, or why it waits, unless a program reads the answer."""
    names = [_named(draft) for draft in drafts]
    if order.output == "name":
        click.echo("\n".join(it["name"] for it in names))
        return
    if order.output != "table":
        show(order.output, names if order.file else names[0], lambda: None)
        return
    places = [workload_of(it.ref) for it in drafts]
    uids = [it["metadata"]["uid"] for it in made] if not order.follow else []
    verdicts = list[str]()
    try:
        with suppress(OSError):  # that they were made is said, whether the server still answers or not
            verdicts = await asyncio.gather(*(first_verdict(client, *it) for it in zip(places, uids)))
    except asyncio.CancelledError:
        _leave([it["name"] for it in names], "submitted")
        raise
    for draft, name, verdict in zip(drafts, names, verdicts or [""] * len(names)):
        line = f"{name['name']} queued in {name['queue']}" + (f": {verdict}" if verdict else "")
        click.echo(line, err=order.follow)
        for note in draft.program.notes if draft.program else ():
            click.echo(f"  {note}", err=True)
        if draft.changes:
            click.echo(f"  set {', '.join(draft.changes)}")


def _named(draft: Draft) -> dict[str, str]:
    ref = draft.ref
    return {"name": ref.name, "namespace": ref.namespace, "queue": draft.queue, "workload": workload_of(ref).name}


async def _watch(client: Client, draft: Draft) -> None:
    """Shows the queue until the workload runs, or is over."""
    from .rows import Filter
    from .watch import watch

    key = draft.ref.namespace, workload_of(draft.ref).name
    waits = ("waiting", "starting", "suspended")
    try:
        await watch(client, draft.ref.namespace, Filter(queue=draft.queue),
                    lambda known: key in known and known[key].state not in waits)  # fmt: skip
    except asyncio.CancelledError:
        name = draft.ref.name
        click.echo(f"\n{name} stays queued: `fairway why {name}` says why, `fairway cancel {name}` ends it", err=True)
        raise


async def _follow(client: Client, draft: Draft, made: Thing) -> int:
    end = await follow_job(client, draft.ref, made["metadata"]["uid"])
    if end.message:
        click.echo(f"fairway: {' '.join(end.message.split())}", err=True)
    return end.code
