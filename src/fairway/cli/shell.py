"""`fairway shell`: a terminal in the place of a workload, of one that runs or of one that is started for it.

What is started is an interactive Job. Its program, KEEPER, reads a pipe that the shell, and all that the shell starts,
hold open: the session ends with the last of them, also where its terminal was cut off. What goes on in it (tmux, say)
can be entered again. A session that is not entered in time ends by itself, so none holds GPUs for a terminal that is
gone.
"""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import click

from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref, Selection

from .alone import get
from .connect import on_cluster
from .execute import Entry, enter, running
from .find import Found, seen, workload_of
from .follow import end_of, first
from .leader import warn
from .listing import IDLE
from .main import Command, Problem
from .output import in_local_time
from .replicas import find
from .script import of_sbatch
from .submit import Draft, make, prepared, submit
from .verdict import told_of
from .view import view_of

PIPE, NEW, END_SECONDS = "FAIRWAY_SESSION", "session", 3.0
KEEPER = f"""
umask 077
mkfifo "${PIPE}" || exit 1
trap 'rm -f "${PIPE}" "${PIPE}.code"; exit 143' TERM INT
{{ sleep 60; : >"${PIPE}"; }} &
cat "${PIPE}" >/dev/null &
wait $!
code=$(cat "${PIPE}.code" 2>/dev/null)
rm -f "${PIPE}" "${PIPE}.code"
exit "${{code:-0}}"
"""
"""Ends when nothing holds the pipe open any more, or nothing has for the first minute: with the exit code of the
command that it was made for, as a job of `srun --pty` does, and with 0 of a shell, as one of `salloc` does."""

ENTER = f"""
if [ -n "${PIPE}" ]; then
  until [ -p "${PIPE}" ]; do sleep 1; done
  exec 9>"${PIPE}"
fi
if [ "$0" = "{NEW}" ] && [ $# -gt 0 ]; then
  trap : INT QUIT
  "$@"
  code=$?
  echo $code >"${PIPE}.code"
  exit $code
fi
[ $# -gt 0 ] && exec "$@"
for program in "$SHELL" bash; do
  command -v "$program" >/dev/null && exec "$program"
done
exec sh
"""
"""Becomes the command, else the user's shell or one that is there. That of a new session is run, to keep its exit code:
Ctrl-C is for the command alone, which has the signals' defaults again."""


PLACE = (
    "gpus", "cpus", "memory", "queue", "priority", "image", "time_limit", "idle_timeout", "env", "env_only", "chdir",
    "name", "preemptible", "wait_anyway",
)  # fmt: skip
"""The options of `submit` that say what a session gets."""


class Shell(Command):
    """A command whose arguments after `--` are apart from the one before, with options of `submit`."""

    def __init__(self, *, params: Sequence[click.Parameter], **said: Any) -> None:
        super().__init__(params=[*params, *(it for it in submit.params if it.name in PLACE)], **said)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        with of_sbatch():
            rest = super().parse_args(ctx, args[:at])
        ctx.params["command"] = tuple(args[at + 1 :])
        return rest


@click.command(cls=Shell, options_metavar="[OPTIONS] [JOB] [-- COMMAND…]")
@click.argument("job", default="", metavar="")
@click.option("--rank", type=click.IntRange(min=0), metavar="R", help="Of JOB: beside this rank; default: the lowest.")
@click.option("-c", "--container", default="", metavar="NAME", help="Of JOB: of this container.")
@on_cluster
async def shell(
    client: Client, namespace: str, job: str, rank: int | None, container: str, command: tuple[str, ...], **said: Any
) -> int:
    """A terminal in the place of a workload: fairway shell JOB, or of a new one: fairway shell --gpus 1

    A new one waits in its queue like any other, and says why; Ctrl-C cancels it until it has started. It ends with the
    last program that was started in it. Exits with the exit code of the shell, or of COMMAND. A new one counts as
    failed, with that code, if COMMAND failed; as finished, if it ran a shell."""
    words = ("sh", "-c", ENTER, "shell" if job else NEW, *command)
    entry = Entry(words, container, is_terminal=sys.stdin.isatty())
    if job:
        if given := [name for name, value in said.items() if value not in (None, (), False)]:
            raise Problem(f"--{given[0].replace('_', '-')}: {job} runs already; without a JOB a new one is started")
        pod = await running(client, namespace, job, rank)
        return await _entered(client, pod, (await find(client, namespace, job)).ref, entry)
    draft, made = await _begin(client, namespace, said)
    uid = made["metadata"]["uid"]
    try:
        pod = await first(_pod(client, draft.ref), _ended(client, draft.ref, uid), _tell(client, draft.ref, uid))
    except asyncio.CancelledError:
        await client.delete(draft.ref, uid=uid)
        click.echo(f"\n{draft.ref.name} cancelled: it had not started", err=True)
        raise
    code = await _entered(client, pod, workload_of(draft.ref), entry)
    await _tell_end(client, draft.ref, uid)
    return code


async def _entered(client: Client, pod: Ref, workload: Ref, entry: Entry) -> int:
    """Meanwhile the terminal is told before its workload is parked."""
    telling = asyncio.create_task(_tell_idle(client, workload))
    try:
        return await enter(client, pod, entry)
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


async def _tell_idle(client: Client, workload: Ref) -> None:
    told = ""
    async with aclosing(seen(client, workload.alone())) as states:
        async for _, state in states:
            status = state.get("status") or {}
            line = status.get("message", "") if status.get("reason") == IDLE else ""
            if line not in ("", told):
                click.echo(f"\r\nfairway: {in_local_time(line, client.clock.now())}\r", err=True)
            told = line


async def _begin(client: Client, namespace: str, said: dict[str, Any]) -> tuple[Draft, dict[str, Any]]:
    """The Job of a new session, as it was made."""
    order = SimpleNamespace(**submit.make_context("submit", []).params | said)
    order.name, order.kind = f"shell-{client.chance.word()}" if order.name is None else order.name, "interactive"
    order.command = ("sh", "-c", KEEPER)
    (draft,), values = await prepared(client, await view_of(client, order), order, namespace)
    container = draft.thing["spec"]["template"]["spec"]["containers"][0]
    pipe = {"name": PIPE, "value": f"/tmp/fairway-session-{client.chance.token()}"}
    container["env"] = [*(container.get("env") or ()), pipe]
    made = await make(client, draft, values, {})
    click.echo(f"{draft.ref.name} queued in {draft.queue}", err=True)
    await warn(client)
    return draft, made


async def _pod(client: Client, job: Ref) -> Ref:
    """Its pod, once that runs."""
    own = Selection(kinds.PODS, job.namespace, labels=f"batch.kubernetes.io/job-name={job.name}")
    async with aclosing(seen(client, own)) as pods:
        async for change, pod in pods:
            if change != "DELETED" and (pod.get("status") or {}).get("phase") == "Running":
                return Ref(kinds.PODS, pod["metadata"]["name"], job.namespace)
    raise AssertionError("what is seen has no end")


async def _ended(client: Client, job: Ref, uid: str) -> Ref:
    end = await end_of(client, job, uid)
    raise Problem(end.message or f"{job.name} ended before it was entered", exit_code=end.code or 1)


async def _tell(client: Client, job: Ref, uid: str) -> Ref:
    """Prints why it waits, and when it is expected to start, whenever that changes."""
    told = ""
    async with aclosing(seen(client, workload_of(job).alone())) as states:
        async for _, state in states:
            owners = {it["uid"] for it in state["metadata"].get("ownerReferences") or ()}
            line = told_of(state, client.clock.now()) if uid in owners else ""
            if line not in ("", told):
                told = line
                click.echo(f"{job.name} {line}", err=True)
    raise AssertionError("what is seen has no end")


async def _tell_end(client: Client, job: Ref, uid: str) -> None:
    """Says what becomes of a session that goes on without its terminal."""
    try:
        await client.clock.within(END_SECONDS, end_of(client, job, uid))
    except TimeoutError:
        found = await get(client, workload_of(job)) or {}
        runs = "goes on with what still runs in it" if Found(found).phase == "Running" else "was stopped, and waits"
        again, ends = f"`fairway shell {job.name}` enters it again", f"`fairway cancel {job.name}` ends it"
        click.echo(f"{job.name} {runs}: {again}, {ends}", err=True)
