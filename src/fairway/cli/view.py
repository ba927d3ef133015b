"""What a submission is held against: the queues, nodes, pools and priorities of the cluster, read at once."""

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from fairway.api.names import BY_PODMAN, lineage
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Ref, Selection
from fairway.kube.transport import Request

from .connect import NOT_INSTALLED, allowed
from .leader import has_worked
from .main import Problem
from .output import near

Thing = dict[str, Any]
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class View:
    """What the cluster has; None for what the user may not read. `is_here`: it is the one of this machine;
    `is_process`: and what is submitted is a process of it, not a container of an image."""

    is_here: bool
    is_process: bool
    queues: dict[str, Thing] | None
    nodes: list[Thing] | None
    pools: list[Thing] | None
    classes: dict[str, int] | None

    def line(self, queue: str) -> dict[str, Thing]:
        """The specs of a queue and of those above it."""
        specs = {name: one.get("spec") or {} for name, one in (self.queues or {}).items()}
        parents = {name: str(spec.get("parent") or "") for name, spec in specs.items()}
        return {name: specs[name] for name in lineage(parents, queue) if name in specs}

    @property
    def may_grow(self) -> bool:
        return any((it.get("spec") or {}).get("maxNodes") for it in self.pools or ())

    def of_pool(self, name: str) -> list[Thing]:
        """The nodes of a pool; `*`: all."""
        specs = {it["metadata"]["name"]: it.get("spec") or {} for it in self.pools or ()}
        chosen = (specs.get(name) or {}).get("nodeSelector") or {}
        return [it for it in self.nodes or () if selects(chosen, it["metadata"].get("labels") or {})]


async def view_of(client: Client, order: SimpleNamespace) -> View:
    named = [kinds.QUEUES, kinds.NODES, kinds.NODE_POOLS, *[kinds.PRIORITY_CLASSES] * bool(order.priority)]
    version, *lists = await asyncio.gather(
        client.call(Request("GET", "/version")),
        *(allowed(client.list(Selection(kind)), or_absent=True) for kind in named),
    )
    queues, nodes, pools, classes = [*lists, None][:4]
    if queues is None and not await client.resources(kinds.FAIRWAY):
        raise Problem(NOT_INSTALLED, exit_code=1)
    named_queues = None if queues is None else {it["metadata"]["name"]: it for it in queues}
    if named_queues is not None and DEFAULT not in named_queues and not await has_worked(client):
        named_queues[DEFAULT] = {"metadata": {"name": DEFAULT}}  # the controller is about to make it
    values = None if classes is None else {it["metadata"]["name"]: it["value"] for it in classes}
    is_of_image = order.image and any(_runs_images(it) for it in nodes or ())
    is_here = b"fairway" in version
    return View(is_here, is_here and not is_of_image, named_queues, nodes, pools, values)


def _runs_images(node: Thing) -> bool:
    info = (node.get("status") or {}).get("nodeInfo") or {}
    return bool(info.get("containerRuntimeVersion") == BY_PODMAN)


async def usual_queue(client: Client, namespace: str) -> str:
    """The queue of what names none in a namespace: the one that its label names, else `default`."""
    try:
        labels = (await client.get(Ref(kinds.NAMESPACES, namespace)))["metadata"].get("labels") or {}
        return str(labels.get("fairway.dev/queue") or "default")
    except ApiError as error:
        if error.status == 404 and namespace.isdecimal():  # sbatch counts tasks so
            words = f"there is no namespace {namespace}; for {namespace} tasks it is --workers {namespace}"
            raise Problem(f"-n: {words}") from error
        if error.status == 404:
            spaces = await allowed(client.list(Selection(kinds.NAMESPACES)))
            names = {it["metadata"]["name"] for it in spaces or ()}
            there = f"{near(namespace, names)}; " if names else "; "
            how = f"`kubectl create namespace {namespace}` makes it"
            raise Problem(f"-n: there is no namespace {namespace!r}{there}{how}", exit_code=1) from error
        return "default"  # who may not read it does not know


def selects(selector: Thing, labels: dict[str, str]) -> bool:
    tests = {
        "In": lambda it: labels.get(it["key"]) in it["values"],
        "NotIn": lambda it: labels.get(it["key"]) not in it["values"],
        "Exists": lambda it: it["key"] in labels,
        "DoesNotExist": lambda it: it["key"] not in labels,
    }
    said = (selector.get("matchLabels") or {}).items()
    return said <= labels.items() and all(tests[it["operator"]](it) for it in selector.get("matchExpressions") or ())
