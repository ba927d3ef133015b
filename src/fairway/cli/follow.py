"""Follow a Job to its end: print the logs of its pods, and return how it ended.

`end_of` is the one place that knows when a job is over, and with which exit code. It watches the Job and its Workload,
since a Workload may fail before its Job ever starts.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client, unless_absent
from fairway.kube.kinds import Ref, Selection
from fairway.kube.runs import Runs, kept

from .alone import get, read
from .find import Found, failure, refusal, seen, workload_of
from .output import moment_of_day
from .patient import Patient
from .printer import Choice, Printer, say
from .runs import code_of, runs_of
from .verdict import told_of

Thing = dict[str, Any]
T = TypeVar("T")
OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class End:
    """How a job ended. `code`: 0 if all succeeded, else as `code_of` says; 1 where it was cancelled. `message`: why it
    failed, in one line; empty if it succeeded."""

    code: int = 0
    message: str = ""
    is_cancelled: bool = False


async def follow_job(client: Client, job: Ref, uid: str) -> End:
    """Prints the logs of all ranks of a Job while they are written, over evictions, and returns how it ended.
    Interrupted, it says on standard error that the job goes on, and ends at once."""
    follower = _Follower(Patient(client), workload_of(job), job, uid, Choice())
    try:
        return await follower.run()
    except asyncio.CancelledError:
        look, end = f"`fairway logs -f {job.name}` follows it again", f"`fairway cancel {job.name}` ends it"
        click.echo(f"\n{job.name} goes on{' waiting' * follower.waits}: {look}, {end}", err=True)
        raise


async def follow(client: Client, found: Found, choice: Choice) -> End:
    """The same for any workload."""
    owner = next((it for it in found.owners if it.kind == kinds.JOBS), found.ref)
    meta = found.workload["metadata"]
    uid = meta["uid"] if owner is found.ref else meta["ownerReferences"][0]["uid"]
    return await _Follower(Patient(client), found.ref, owner, uid, choice).run()


@dataclass(slots=True)
class _Follower:
    """Looks for new runs whenever a pod of the namespace or the workload changes, and prints each rank's in turn."""

    client: Client
    workload: Ref
    owner: Ref
    uid: str
    choice: Choice
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    printing: dict[tuple[str, str, int], asyncio.Task[None]] = field(default_factory=dict)
    last: dict[int, asyncio.Task[None]] = field(default_factory=dict)  # by rank
    printer: Printer | None = None
    waits: bool = False

    async def run(self) -> End:
        ending = asyncio.create_task(end_of(self.client, self.owner, self.uid))
        watching = [asyncio.create_task(it) for it in (self._watch_pods(), self._watch_workload(), self._print_new())]
        try:
            await asyncio.wait([ending, *watching], return_when=asyncio.FIRST_COMPLETED)
            for it in watching:
                if it.done():
                    it.result()
            end = await ending
            await _cancel(*watching)
            await self._refresh()
            await asyncio.gather(*self.printing.values())
            return end
        finally:
            await _cancel(ending, *watching, *self.printing.values())

    async def _print_new(self) -> None:
        while True:
            await self.changed.wait()
            self.changed.clear()
            await self._refresh()

    async def _watch_pods(self) -> None:
        """Reports once for each reason why a pod of the Job does not start."""
        labels = f"batch.kubernetes.io/job-name={self.owner.name}" if self.owner.kind == kinds.JOBS else ""
        known = {"", "CrashLoopBackOff"}  # of what did start
        async with aclosing(seen(self.client, Selection(kinds.PODS, self.workload.namespace, labels=labels))) as pods:
            async for _, pod in pods:
                reason = (why := refusal([pod] if labels else [])).partition(":")[0]
                if reason not in known:
                    say(f"pod {pod['metadata']['name']} does not start: {why}")
                    known.add(reason)
                self.changed.set()

    async def _watch_workload(self) -> None:
        """Reports each eviction that is new, each pause, since a program that is frozen writes nothing, and once
        why it waits."""
        told, was_paused = "", False
        async with aclosing(seen(self.client, self.workload.alone())) as states:
            async for change, state in states:
                if not _is_of(state, self.uid):
                    continue
                history = (state.get("status") or {}).get("evictionHistory") or [{"time": ""}]
                if change == "ADDED":
                    told = told or history[-1]["time"]
                is_paused = "paused" in (state.get("status") or {})
                if is_paused != was_paused:
                    say(paused(state) if is_paused else f"{Found(state).name} is paused no longer")
                elif history[-1]["time"] > told and not is_paused:
                    say(evicted(state, history[-1]))
                if (waits := is_waiting(state)) and not (self.waits or is_paused):
                    say(f"{Found(state).name} {told_of(state, self.client.clock.now())}")
                told, was_paused, self.waits = max(told, history[-1]["time"]), is_paused, waits
                self.changed.set()

    async def _refresh(self) -> None:
        for one in self.printing.values():
            if one.done():
                one.result()  # whoever reads what is printed may have seen enough
        runs = await self._runs()
        if runs is None:
            return
        last = max((it.attempt for it in runs.items), default=1)
        for run in self.choice.of(runs.items):
            if run.key not in self.printing and (run.started or not run.id):
                before = self.last.get(run.rank)
                more = (("follow", "true"),) * bool(run.id or run.finished is None)
                self.printer = self.printer or await self._made_printer(runs)
                printing = self.printer.print(run, last=last, more=more, after=before)
                task = self.printing[run.key] = self.last[run.rank] = asyncio.create_task(printing)
                task.add_done_callback(lambda it: it.cancelled() or not it.exception() or self.changed.set())

    async def _runs(self) -> Runs | None:
        """None while there is no such workload yet."""
        if found := await kept(self.client, self.workload):
            return found
        made = await unless_absent(get(self.client, self.workload))
        return await runs_of(self.client, Found(made)) if made else None

    async def _made_printer(self, runs: Runs) -> Printer:
        spec = (await get(self.client, self.workload)).get("spec") or {}
        pods = sum(it.get("count", 1) for it in spec.get("podSets") or ())
        is_many = self.choice.rank is None and max(pods, *(it.rank + 1 for it in runs.items)) > 1
        return Printer(self.client, runs.workload, self.choice, has_several=is_many, has_ranks=is_many)


def is_waiting(workload: Thing) -> bool:
    """Whether it waits, and the reason is written."""
    status = workload.get("status") or {}
    return status.get("phase") == "Pending" and bool(status.get("reason")) and "admission" not in status


def evicted(workload: Thing, eviction: Thing) -> str:
    """`a was evicted (Preempted, for ml/b) and waits in queue q; its log goes on here`."""
    by = f", for {eviction['for']}" if eviction.get("for") else ""
    name, queue = Found(workload).name, workload["spec"].get("queue")
    return f"{name} was evicted ({eviction['reason']}{by}) and waits in queue {queue}; its log goes on here"


def paused(workload: Thing) -> str:
    """`a is paused since 14:02:10 and writes nothing; `fairway resume a` lets it go on, and its log goes on here`."""
    name, since = Found(workload).name, moment_of_day(workload["status"]["paused"]["since"])
    by_user = workload["spec"].get("paused", False)
    does = f"`fairway resume {name}` lets it go on" if by_user else "it goes on when its place is free"
    return f"{name} is paused since {since} and writes nothing; {does}, and its log goes on here"


async def end_of(client: Client, ref: Ref, uid: str) -> End:
    """Waits until a Job or a Workload, the one with this uid, is over, and returns how it ended."""
    if ref.kind == kinds.WORKLOADS:
        own = [_end_of_pod(client, ref, uid)] if ref.name.startswith("pod-") else []
        return await first(_end_of_workload(client, ref, uid), *own)
    return await first(_end_of_job(client, ref, uid), _end_of_workload(client, workload_of(ref), uid))


async def first(*work: Coroutine[Any, Any, T]) -> T:
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
    async with aclosing(seen(client, job.alone())) as states:
        async for change, state in states:
            if change == "DELETED":
                return _cancelled(job.name)
            for one in (state.get("status") or {}).get("conditions") or ():
                if one["status"] == "True" and one["type"] == "Complete":
                    return End()
                if one["status"] == "True" and one["type"] == "Failed":
                    made = await client.find(workload_of(job))
                    knows = made and _is_of(made, uid) and _phase(made) in OVER
                    return await _failed(client, job, uid, made["status"] if made and knows else one)
    raise AssertionError("what is seen has no end")


async def _end_of_pod(client: Client, workload: Ref, uid: str) -> End:
    """Of a pod that is its own Workload; of one that gets a Workload later, that tells."""
    pod = Ref(kinds.PODS, workload.name.removeprefix("pod-"), workload.namespace)
    async with aclosing(seen(client, pod.alone())) as states:
        async for change, state in states:
            if state["metadata"]["uid"] != uid:
                continue
            if change == "DELETED":
                later = await client.find(workload)
                gone = _cancelled(pod.name)
                return await _end_of_workload(client, workload, later["metadata"]["uid"]) if later else gone
            made = read(state)
            if made and _phase(made) == "Succeeded":
                return End()
            if made and _phase(made) == "Failed":
                return await _failed(client, pod, uid, made["status"])
    raise AssertionError("what is seen has no end")


async def _end_of_workload(client: Client, workload: Ref, uid: str) -> End:
    """`uid` is the Workload's or its owner's; a Workload that an older Job of the name left does not count."""
    async with aclosing(seen(client, workload.alone())) as states:
        async for change, state in states:
            if not _is_of(state, uid):
                continue
            owners = state["metadata"].get("ownerReferences") or [state["metadata"]]
            if _phase(state) == "Succeeded":
                return End()
            if _phase(state) == "Failed":
                return await _failed(client, workload, owners[0]["uid"], state["status"], owners[0]["name"])
            if change == "DELETED" and uid == state["metadata"]["uid"]:
                return _cancelled(owners[0]["name"])
    raise AssertionError("what is seen has no end")


def _cancelled(name: str) -> End:
    return End(1, f"{name} was cancelled", is_cancelled=True)


def _is_of(thing: Thing, uid: str) -> bool:
    """Whether this is its uid, or that of an owner."""
    meta = thing["metadata"]
    return uid in (meta["uid"], *(it["uid"] for it in meta.get("ownerReferences") or ()))


def _phase(workload: Thing) -> str:
    return str((workload.get("status") or {}).get("phase", ""))


async def _failed(client: Client, ref: Ref, uid: str, said: Thing, name: str = "") -> End:
    """`uid`: of the object that controls the pods, or of a pod itself; `said`: reason and message."""
    pods = [it for it in await client.list(Selection(kinds.PODS, ref.namespace)) if _is_of(it, uid)]
    told = said.get("message") or said.get("reason") or ""
    cause = failure(pods, said.get("reason", ""))
    is_known = "phase" in said and ("exit code" in told or not told.startswith("failed"))  # it may be stopped
    words = told if is_known or not cause else f"failed: {cause}"
    code = 1
    with suppress(ApiError):  # its Workload is gone
        found = Found(await get(client, ref if ref.kind == kinds.WORKLOADS else workload_of(ref)))
        code = await code_of(client, found)
    return End(code, f"{name or ref.name} {words}")
