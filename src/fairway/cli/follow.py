"""Follow a Job to its end: print the logs of its pods, and return how it ended.

`end_of` is the one place that knows when a job is over, and with which exit code. It watches the Job and its Workload,
since a Workload may fail before its Job ever starts.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import click

from fairway.api.names import name_of
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref, Selection

from .find import exit_code, failure, seen
from .logs import print_log

Thing = dict[str, Any]
OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class End:
    """How a job ended. `code`: the exit code of the first rank that failed; 0 if all succeeded, 1 where no program
    failed (a time limit, a deletion). `message`: why it failed, in one line; empty if it succeeded."""

    code: int = 0
    message: str = ""


async def follow(client: Client, job: Ref, uid: str) -> End:
    """Prints the logs of all workers while they are written, and returns how the Job ended. Interrupted, it says on
    standard error that the job goes on, and returns at once."""
    printing: dict[str, asyncio.Task[None]] = {}  # by uid of pod
    watching = asyncio.create_task(_print_all(client, job, printing))
    try:
        end = await end_of(client, job, uid)
        watching.cancel()
        await asyncio.gather(*printing.values())
        return end
    except asyncio.CancelledError:
        look, end = f"`fairway logs -f {job.name}` follows it again", f"`fairway cancel {job.name}` ends it"
        click.echo(f"\n{job.name} goes on: {look}, {end}", err=True)
        raise
    finally:
        await _cancel(watching, *printing.values())


async def _print_all(client: Client, job: Ref, printing: dict[str, asyncio.Task[None]]) -> None:
    """A task for each pod of the job, as they come."""
    async with aclosing(seen(client, Selection(kinds.PODS, job.namespace, labels=f"job-name={job.name}"))) as pods:
        async for _, pod in pods:
            if pod["metadata"]["uid"] not in printing:
                printing[pod["metadata"]["uid"]] = asyncio.create_task(print_log(client, pod, follow=True))


async def end_of(client: Client, ref: Ref, uid: str) -> End:
    """Waits until a Job or a Workload, the one with this uid, is over, and returns how it ended."""
    if ref.kind == kinds.WORKLOADS:
        return await _end_of_workload(client, ref, uid)
    workload = Ref(kinds.WORKLOADS, name_of(ref.kind.name, ref.name), ref.namespace)
    return await _first(_end_of_job(client, ref, uid), _end_of_workload(client, workload, uid))


async def _first(*work: Coroutine[Any, Any, End]) -> End:
    """The result of whichever ends first; the others are cancelled."""
    tasks = [asyncio.create_task(it) for it in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(it for it in tasks if it in done).result()
    finally:
        await _cancel(*tasks)


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for it in tasks:
        it.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _end_of_job(client: Client, job: Ref, uid: str) -> End:
    """Its Workload knows better why it failed: it may have ended the Job, by a time limit."""
    async with aclosing(seen(client, _named(job))) as states:
        async for change, state in states:
            if change == "DELETED":
                return End(1, f"{job.name} was deleted")
            for one in (state.get("status") or {}).get("conditions") or ():
                if one["status"] == "True" and one["type"] == "Complete":
                    return End()
                if one["status"] == "True" and one["type"] == "Failed":
                    workload = Ref(kinds.WORKLOADS, name_of(job.kind.name, job.name), job.namespace)
                    said = [it for it in await client.list(_named(workload)) if _is_of(it, uid) and _phase(it) in OVER]
                    return await _failed(client, job, uid, said[0]["status"] if said else one)
    raise AssertionError("what is seen has no end")


async def _end_of_workload(client: Client, workload: Ref, uid: str) -> End:
    """`uid` is the Workload's or its owner's; a Workload that an older Job of the name left does not count."""
    async with aclosing(seen(client, _named(workload))) as states:
        async for change, state in states:
            if not _is_of(state, uid):
                continue
            owners = state["metadata"].get("ownerReferences") or [state["metadata"]]
            if _phase(state) == "Succeeded":
                return End()
            if _phase(state) == "Failed":
                return await _failed(client, workload, owners[0]["uid"], state["status"], owners[0]["name"])
            if change == "DELETED" and uid == state["metadata"]["uid"]:
                return End(1, f"{owners[0]['name']} was deleted")
    raise AssertionError("what is seen has no end")


def _named(ref: Ref) -> Selection:
    return Selection(ref.kind, ref.namespace, fields=f"metadata.name={ref.name}")


def _is_of(workload: Thing, uid: str) -> bool:
    meta = workload["metadata"]
    return uid in (meta["uid"], *(it["uid"] for it in meta.get("ownerReferences") or ()))


def _phase(workload: Thing) -> str:
    return str((workload.get("status") or {}).get("phase", ""))


async def _failed(client: Client, ref: Ref, uid: str, said: Thing, name: str = "") -> End:
    """`uid`: of the object that controls the pods, or of a pod itself; `said`: reason and message."""
    pods = [it for it in await client.list(Selection(kinds.PODS, ref.namespace)) if _controls(uid, it)]
    cause, told = failure(pods), said.get("message") or said.get("reason") or ""
    is_stopped = "phase" in said and not told.startswith("failed")  # by a time limit, or never started
    words = told if is_stopped or not cause else f"failed: {cause}"
    return End(exit_code(pods) or 1, f"{name or ref.name} {words}")


def _controls(uid: str, pod: Thing) -> bool:
    meta = pod["metadata"]
    return uid in (meta["uid"], *(it["uid"] for it in meta.get("ownerReferences") or ()))
