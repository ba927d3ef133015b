"""What is known of one workload: status, why. They read; they change nothing."""

import re
import shlex
from contextlib import suppress
from dataclasses import replace
from textwrap import shorten
from typing import Any

import click
import msgspec

from fairway.api.names import ON_THIS_MACHINE
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Selection

from .amounts import listed, needs_of
from .array import TRIAL
from .connect import allowed, on_cluster
from .find import Found, failure, get, pods_of
from .leader import warn
from .listing import ARRAY, OVER, PARKED, Listed, ends_by, reason
from .main import Command
from .nodes import used_outside
from .output import age, clock_time, in_local_time, output_option, plain, print_some, show, span, start
from .replicas import GROUP, find, print_replicas, surplus
from .rows import limits_of
from .runs import print_runs, runs_of
from .whatif import explained

Thing = dict[str, Any]
COMMAND_WIDTH, USUAL_GRACE = 160, 30
GENERATED = re.compile(r"^([^/]*\.)?(fairway\.dev|kubernetes\.io|k8s\.io)/|^(job-name|controller-uid)$")
"""Labels that are no words of its user's."""
FULL = ("NoRoom", "Fragmented", "NoDevice", "OverShare")


@click.command(cls=Command)
@click.argument("job")
@output_option
@on_cluster
async def status(client: Client, namespace: str, output: str, job: str) -> None:
    """All that is known of one workload: where it is in its life, its pods and places, what happened to it."""
    found = await find(client, namespace, job)
    pods, runs = [pod for _, pod in await pods_of(client, found)], (await runs_of(client, found)).items
    whole = found.workload | {"pods": pods, "runs": msgspec.to_builtins(runs)}
    if found.replicas and output == "table":
        return await print_replicas(client, found)
    whole |= {"replicas": [it.workload for it in found.replicas]} if found.replicas else {}

    if output != "table":
        return show(output, whole, lambda: None)
    owner = await get(client, found.owners[0]) if found.owners else None
    now, one = client.clock.now(), msgspec.convert(found.workload, Listed)
    asked = _program(owner or {}) | {"ends by": ends_by(one, await limits_of(client), now)}
    _print_status(found, asked, pods, now)
    print_runs(runs)
    return None


def _program(owner: Thing) -> Thing:
    """What only the object that the user made says: what runs in its first container, and how often it may fail."""
    spec, labels = owner.get("spec") or {}, owner.get("metadata", {}).get("labels") or {}
    main = next(iter(((spec.get("template") or {}).get("spec") or spec).get("containers") or ()), {})
    words = [it.replace("$$", "$") for it in (*(main.get("command") or ()), *(main.get("args") or ()))]
    text = shlex.join(words).replace("\n", " ⏎ ")
    if words[3:4] == [TRIAL]:  # the shell of an array; that of a sweep chooses among these words
        text = shlex.join(words[4:]) + (" (the words of all trials)" if "case $((" in words[2] else "")
    return {
        "command": shorten(text, COMMAND_WIDTH, placeholder=" …"),
        "folder": main.get("workingDir"),
        "image": main.get("image", "").replace(ON_THIS_MACHINE, ""),
        "retries": spec.get("backoffLimitPerIndex", spec.get("backoffLimit")),
        "labels": ", ".join(f"{key}={text}" for key, text in labels.items() if not GENERATED.search(key)),
    }  # fmt: skip


def _print_status(found: Found, asked: Thing, pods: list[Thing], now: float) -> None:
    for name, value in _facts(found, asked, now).items():
        if value:
            click.echo(f"{name + ':':<10} {plain(str(value))}")
    if pods:
        click.echo()
        print_some(["POD", "PHASE", "NODE", "AGE"], [_pod_line(it, now) for it in pods])
    _print_history(found.status, now)


def _facts(found: Found, asked: Thing, now: float) -> Thing:
    """What is known, by the name of its line; what is empty has none."""
    spec, said, one = found.workload["spec"], found.status, msgspec.convert(found.workload, Listed)
    is_over, notes = one.state in OVER, found.workload["metadata"].get("annotations") or {}
    were_trials = is_over and ARRAY in notes  # its last ones alone are written there
    return {
        "workload": f"{found.ref.namespace}/{found.ref.name}",
        **{name: spec.get(name) for name in ("queue", "user")},
        "podsets": ", ".join(_podset(it, counts=not were_trials) for it in spec.get("podSets") or ()),
        **{name: asked[name] for name in ("command", "folder", "image", "retries", "labels")},
        "priority": spec.get("priorityClassName"),
        "limit": spec.get("timeLimit"),
        "grace": ", ".join(map(span, _graces(spec))),
        "saves": (every := spec.get("checkpointInterval")) and f"a checkpoint every {every}",
        "idle": (idle := spec.get("idleTimeout")) and f"parked after {idle} without use",
        "deadline": clock_time(spec.get("deadline"), now),
        "after": ", ".join(spec.get("after") or ()),
        "notify": ": ".join(filter(None, (spec.get("notify"), notes.get("fairway.dev/notify-failed")))),
        "submitted": clock_time(one.submitted(), now),
        "state": reason(one, now) if is_over else one.state,
        "since": clock_time(one.since(), now),
        "ends by": asked["ends by"],
        "reason": "" if is_over else PARKED if one.state == "parked" else said.get("reason"),
        "position": "" if is_over else said.get("position"),
        "message": "" if is_over else in_local_time(said.get("message", ""), now, how_soon=True),
        "starts": start(said.get("forecast"), now),
        "attempt": said.get("attempt"),
        "placed": "" if were_trials else _places(said.get("admission")),
    }


def _graces(spec: Thing) -> list[int]:
    """Those of its podsets that are not the usual one."""
    pods = ((it.get("template") or {}).get("spec") or {} for it in spec.get("podSets") or ())
    return sorted({it.get("terminationGracePeriodSeconds", USUAL_GRACE) for it in pods} - {USUAL_GRACE})


def _podset(podset: Thing, *, counts: bool) -> str:
    """`main × 4 (1 CPU, 2 GPUs)`: how many pods, where that `counts`, and what each asks for."""
    asks = listed(needs_of(podset["template"])) if podset.get("template", {}).get("spec") else ""
    pods = f" × {podset.get('count', 1)}" if counts else ""
    return f"{podset['name']}{pods}{f' ({asks})' if asks else ''}"


def _pod_line(pod: Thing, now: float) -> list[object]:
    meta = pod["metadata"]
    phase = "Terminating" if meta.get("deletionTimestamp") else (pod.get("status") or {}).get("phase", "Pending")
    return [meta["name"], phase, pod["spec"].get("nodeName"), age(meta["creationTimestamp"], now)]


def _places(admission: Thing | None) -> str:
    found = []
    for share in [node for podset in (admission or {}).get("podSets") or () for node in podset.get("nodes") or ()]:
        indices = ", ".join(map(str, sorted({index for pod in share.get("devices") or () for index in pod})))
        found.append(f"{share['node']} × {share.get('count', 1)}{f' (GPU {indices})' if indices else ''}")
    return ", ".join(found)


def _print_history(said: Thing, now: float) -> None:
    for eviction in said.get("evictionHistory") or ():
        by = f" for {eviction['for']}" if eviction.get("for") else ""
        word = "paused" if eviction.get("paused") or eviction.get("unpaused") else "evicted"  # its time is the pause's
        more = eviction.get("unpaused") if said.get("phase") not in ("Succeeded", "Failed") else ""
        line = "; ".join(filter(None, (f"{eviction['reason']}{by}", more)))
        click.echo(in_local_time(f"{word} {age(eviction['time'], now)} ago: {line}", now))


@click.command(cls=Command)
@click.argument("job")
@output_option
@on_cluster
async def why(client: Client, namespace: str, output: str, job: str) -> None:
    """Why a workload waits, and what would change it; why one failed."""
    found = await find(client, namespace, job)
    await warn(client)
    answers = [await _answer(client, it) for it in found.replicas or (found,)]

    def table() -> None:
        for one, (_, helps) in answers:
            _print_why(one, helps, client.clock.now())

    told = [answer for _, (answer, _) in answers]
    show(output, {"items": told} if found.replicas else told[0], table)


async def _answer(client: Client, found: Found) -> tuple[Found, tuple[Thing, list[str]]]:
    """Why it waits, or how it failed, as data; and what would help."""
    key = f"{found.ref.namespace}/{found.ref.name}"
    is_promised = "room is kept for it from" in found.status.get("message", "")
    is_foretold = is_promised or bool(start(found.status.get("forecast"), client.clock.now()))
    said = await explained(client, key, is_foretold=is_foretold) if _waits(found) else {}
    (found, caveats), helps = _renewed(found, said), list(said.get("lines", ()))
    if _waits(found) and found.status.get("reason") in FULL:
        helps += await used_outside(client)
    cause = failure([pod for _, pod in await pods_of(client, found)]) if found.phase == "Failed" else ""
    facts = {name: found.status.get(name) for name in ("phase", "reason", "message", "position", "forecast")}
    late = await _late(client, found) + await _unmade(client, found)
    more = [*caveats, *helps, *late] if _waits(found) else late
    return found, (facts | {"caveats": caveats, "wouldHelp": helps, "cause": cause, "surplus": late}, more)


async def _late(client: Client, found: Found) -> list[str]:
    """Why pods never start that came to a group of bare pods when it had started."""
    if all(it.kind != kinds.PODS for it in found.owners):
        return []
    with suppress(ApiError):  # no name of a label, or not for this user to see
        group = Selection(kinds.PODS, found.ref.namespace, labels=f"{GROUP}={found.name}")
        return surplus(await client.list(group))
    return []


async def _unmade(client: Client, found: Found) -> list[str]:
    """Why it has no pods though it may start: what its controller was answered last, by a ResourceQuota or a policy."""
    if found.phase != "Admitted" or not found.owners or await pods_of(client, found):
        return []
    fields = f"involvedObject.name={found.owners[0].name},reason=FailedCreate"
    events = await allowed(client.list(Selection(kinds.EVENTS, found.ref.namespace, fields=fields))) or []
    last = max(events, key=lambda it: it.get("lastTimestamp") or "", default=None)
    return [f"no pod of it is made: {last['message'].removeprefix('Error creating: ')}"] if last else []


def _renewed(found: Found, said: Thing) -> tuple[Found, list[str]]:
    """With its message and position as decided now, and its caveats, where the reason is the one that is written."""
    if said.get("reason", "") != found.status.get("reason"):
        return found, []
    status = found.status | {name: said[name] for name in ("message", "position") if name in said}
    return replace(found, workload=found.workload | {"status": status}), list(said["caveats"])


def _waits(found: Found) -> bool:
    """Whether it is in the queue; what is paused is, too, unless its user paused it."""
    is_on = found.workload["spec"].get("active", True) and not found.workload["spec"].get("paused", False)
    return found.phase == "Pending" or (found.phase == "Paused" and is_on)


def _print_why(found: Found, more: list[str], now: float) -> None:
    said, message = found.status, in_local_time(found.status.get("message", ""), now, how_soon=True)
    starts = start(said.get("forecast"), now)
    if not _waits(found):
        one = msgspec.convert(found.workload, Listed)
        lasts = span(now - one.since()) if one.knows_since() else ""
        ago = f", {lasts} ago" if one.state in OVER else f" for {lasts}" * bool(lasts)
        words = reason(one, now) if one.state in OVER else f"it is {one.state}"
        does = {"suspended": "queue again", "paused": "go on", "parked": "go on"}.get(one.state)
        hint = f"; `fairway resume {found.name}` lets it {does}" if does else ""
        more = [message, *more] if one.state in ("retrying", "running") else more
        more = [reason(one, now), *more] if one.state == "starting" else more
        lines = [f"{found.name} does not wait: {words}{ago}{hint}", *more]
    else:
        position = f"position {said.get('position')} in queue {found.workload['spec'].get('queue')}"
        does = "is paused, and waits to go on" if found.phase == "Paused" else "waits"
        lines = [f"{found.name} {does}: {said.get('reason', 'not decided yet')}", message]
        lines += [change for change in (in_local_time(it, now, how_soon=True) for it in more) if change not in message]
        lines += [position] * bool(said.get("position")) + [f"forecast: starts {starts}"] * bool(starts)
    click.echo("\n  ".join(filter(None, lines)))
    _print_history(said, now)
