"""The Jobs, Pods and other owners of a file, with the options of `fairway submit` written into them."""

from types import SimpleNamespace
from typing import Any

import click

from fairway.api.scalars import Malformed
from fairway.kube.client import Client
from fairway.kube.manifest import Unreadable, load

from .job import amend
from .main import Problem, told

Thing = dict[str, Any]
KINDS = ("Job", "Pod", "JobSet", "PyTorchJob", "RayCluster")


def drafts_of(client: Client, order: SimpleNamespace, namespace: str) -> list[tuple[Thing, list[str]]]:
    """Each object with what was changed in it. All are read before any is made."""
    with told(Unreadable):
        things = load(order.file)
    if not things:
        raise Problem(f"-f: {order.file} holds no object")
    if order.name and len(things) > 1:
        raise Problem(f"--name: {order.file} holds {len(things)} objects")
    return [_draft(client, thing, order, namespace) for thing in things]


def _draft(client: Client, thing: Any, order: SimpleNamespace, namespace: str) -> tuple[Thing, list[str]]:
    if not isinstance(thing, dict) or not thing.get("kind") or not thing.get("apiVersion"):
        raise Problem(f"-f: {order.file}: each object needs apiVersion and kind")
    said = thing.get("metadata")
    meta = dict(said) if isinstance(said, dict) else {}
    what = f"{str(thing['kind']).lower()}/{meta.get('name') or meta.get('generateName', '')}"
    if thing["kind"] not in KINDS:
        raise Problem(f"-f: {what} does not queue ({', '.join(KINDS)} do); make it with kubectl apply -f")
    _check_shape(thing, what)
    thing["metadata"] = meta
    changes = [] if not order.name or meta.get("name") == order.name else [f"name={order.name}"]
    if order.name:
        meta["name"] = order.name
    if not meta.get("name"):
        if not meta.get("generateName"):
            raise Problem(f"-f: {what} has no name; give it one with --name")
        meta["name"] = f"{meta.pop('generateName')}{client.chance.word()}"
    asked = click.get_current_context().params.get("namespace")
    if asked and meta.get("namespace", asked) != asked:
        raise Problem(f"-n: {what} says namespace {meta['namespace']!r}, not {asked!r}")
    meta["namespace"] = meta.get("namespace") or namespace
    return thing, changes + _amended(thing, order, what)


def _check_shape(thing: Thing, what: str) -> None:
    """A Problem with the field that is of another type than in all such objects."""
    from fairway.api.decode import cleaned, decode
    from fairway.api.objects import JobObject, Object, PodObject

    with told(Malformed, by=f"-f: {what}: "):
        decode(cleaned(thing), {"Job": JobObject, "Pod": PodObject}.get(thing["kind"], Object))


def _amended(thing: Thing, order: SimpleNamespace, what: str) -> list[str]:
    queue = (thing["metadata"].get("labels") or {}).get("fairway.dev/queue")
    own = SimpleNamespace(**{**vars(order), "queue": order.queue or ("" if queue else order.usual)})
    try:
        return amend(thing, own)
    except (TypeError, AttributeError, KeyError):
        raise Problem(f"-f: {what} is not shaped like a {thing['kind']}; see kubectl explain") from None
