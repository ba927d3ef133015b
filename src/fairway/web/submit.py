"""The view Submit: a program, or a manifest, is tried first, then made, with the viewer's own token.

A form becomes the manifest of a Job, which the page shows; what is tried, and made, is always a manifest. A trial asks
the API server whether it would take each object, and of a Job how it is decided on the cluster as it is: where it
starts, which workloads it evicts, else why it waits and until when. The answer names workloads of the Job's namespace
alone.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import yaml

from fairway.api.names import name_of
from fairway.api.objects import FRACTION, QUEUE
from fairway.engine import GPU
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Kind
from fairway.kube.manifest import Unreadable, loaded

from .access import Viewer
from .act import leaves
from .page import Ask, Page, drawn, fragment
from .world import World

Thing = dict[str, Any]
KINDS = {"Job": kinds.JOBS, "Pod": kinds.PODS}
QUEUEING, MOST_OBJECTS = ("Job", "Pod", "JobSet", "PyTorchJob", "RayCluster"), 20


class Unfit(Exception):
    """What is submitted cannot be: one line that names the field."""


@dataclass(frozen=True, slots=True)
class Desk:
    """`job`: the Job of what a form says (options by name, and the command); raises Unfit. `answer`: how a Job that the
    first client sends is decided on what the second one may read: an entry of a plan with `forecast`, `wouldEvict` and
    `wouldShrink`. `helps`: what would let a workload start sooner; the flag says whether it has a forecast.
    `foreseen`: how a workload would be decided if its spec said this, as `answer`; empty where it would run on."""

    job: Callable[[Client, Mapping[str, str], str], Awaitable[Thing]]
    answer: Callable[[Client, Client, Thing], Awaitable[Thing]]
    helps: Callable[[Client, str, bool], Awaitable[list[str]]]
    foreseen: Callable[[Client, str, Mapping[str, str]], Awaitable[Thing]]


def page(world: World, ask: Ask) -> Page:
    """The namespace is that of the address, else of the dashboard's kubeconfig."""
    own = ask.get("namespace") or ("default" if world.home == world.controller else world.home)
    spaces = sorted(it for it in {"default", own, *world.namespaces} if ask.sight.sees(it)) or ["default"]
    facts = {"ask": ask, "queues": leaves(world), "spaces": spaces, "own": own}
    return drawn("submit", "Submit", facts, {}, ask.before)


async def submit(world: World, desk: Desk, viewer: Viewer, asked: Mapping[str, Any]) -> Thing:
    """Tries what is asked for, or makes it: the manifest, what is to be told of it as HTML, and the choices of the form
    that it makes; raises Unfit."""
    space, queue = str(asked.get("namespace") or "default"), str(asked.get("queue") or "")
    if command := str(asked.get("command") or "").strip():
        form = {name: str(value) for name, value in asked.items() if value} | {"command": command}
        things = [await desk.job(viewer.client, form, space)]
    else:
        things = list(_things(str(asked.get("manifest") or ""), space, queue))
    told, is_trial = [], bool(asked.get("try"))
    for thing in things:
        try:
            one = await _one(world, desk, viewer, thing, is_trial=is_trial)
            told.append(one | {"place": _fields(thing)})
        except ApiError as error:
            told.append({"name": _called(thing), "error": error.message or str(error)})
    manifest = yaml.safe_dump_all(things, sort_keys=False, allow_unicode=True)
    html = fragment("tried", {"told": told, "is_trial": is_trial})
    is_fit, form = not any("error" in it for it in told), {} if command else _said(things)
    return {"manifest": manifest, "html": html, "is_fit": is_fit, "form": form}


def _said(things: Sequence[Thing]) -> dict[str, str]:
    """What manifests say of the fields of the form, where all say the same."""
    each = [_fields(it) for it in things]
    said = {name: {str(it[name] or "") for it in each} for name in each[0]}
    return {name: min(them) for name, them in said.items() if len(them) == 1 and min(them)}


def _fields(thing: Thing) -> dict[str, object]:
    """Of a Job or a pod what its first container asks for, too."""
    at, pod = partial(_at, thing), ("spec", "template") if thing["kind"] == "Job" else ()
    one = *pod, "spec", "containers", 0

    def asked(name: str) -> object:
        return at(*one, "resources", "requests", name) or at(*one, "resources", "limits", name)

    return {
        "namespace": at("metadata", "namespace"), "queue": at("metadata", "labels", QUEUE),
        "gpus": at(*pod, "metadata", "annotations", FRACTION) or asked(GPU), "cpus": asked("cpu"),
        "memory": asked("memory"), "time-limit": at("metadata", "annotations", "fairway.dev/time-limit"),
        "image": at(*one, "image"),
    }  # fmt: skip


def _at(thing: Any, *path: str | int) -> Any:
    """What is there in an object that nothing has checked; None where there is nothing."""
    for step in path:
        try:
            thing = thing[step]
        except (LookupError, TypeError):
            return None
    return thing


def _things(manifest: str, space: str, queue: str) -> Iterator[Thing]:
    try:
        found = loaded(manifest.encode(), "manifest")
    except Unreadable as error:
        raise Unfit(str(error)) from error
    if not 0 < len(found) <= MOST_OBJECTS:
        raise Unfit(f"give a command, or a manifest of 1 to {MOST_OBJECTS} objects; this one has {len(found)}")
    for thing in found:
        if not isinstance(thing, dict) or thing.get("kind") not in QUEUEING or not thing.get("apiVersion"):
            raise Unfit(f"manifest: apiVersion and kind of each object are needed; {', '.join(QUEUEING)} queue")
        meta = thing.setdefault("metadata", {})
        if not isinstance(meta, dict) or not (meta.get("name") or meta.get("generateName")):
            raise Unfit(f"manifest: metadata.name of each {thing['kind']} is needed")
        meta.setdefault("namespace", space)
        if queue:
            meta["labels"] = {QUEUE: queue} | (meta.get("labels") or {})
        yield thing


def _called(thing: Thing) -> str:
    meta = thing["metadata"]
    return f"{str(thing['kind']).lower()}/{meta.get('name') or meta.get('generateName')}"


async def _one(world: World, desk: Desk, viewer: Viewer, thing: Thing, *, is_trial: bool) -> Thing:
    name, space = str(thing["kind"]), str(thing["metadata"]["namespace"])
    kind = KINDS.get(name) or Kind(name, f"{name.lower()}s", str(thing["apiVersion"]))
    if is_trial and name == "Job":
        return {"name": _called(thing), "answer": await desk.answer(viewer.client, world.client, thing)}
    made = (await viewer.client.create(kind, thing, namespace=space, dry_run=is_trial))["metadata"]["name"]
    return {"name": f"{name.lower()}/{made}", "key": f"{space}/{name_of(name, made)}"}
