"""`fairway uninstall`: takes Fairway off a cluster so that nothing is left that waits for it.

The order matters. A controller outside of pods cannot be deleted: while one leads, nothing is touched. Webhooks and
policies go first: without the controller they would refuse what is written next. Then the controller, and it must be
gone before its finalizers are taken off, or it would put up new ones. Then the finalizers, so that Workloads, and
namespaces with Workloads, can go; then the definitions with all their objects, and what is left of the manifests, the
namespace last. Users' objects are theirs: nothing that runs is deleted or stopped. Last, templates lose Fairway's gate
and name, which a webhook that still stood would write again (`handback`).
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import click

from fairway import LEASE
from fairway.api.objects import FINALIZER
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Ref, Selection

from .connect import ask
from .handback import everything, hand_back
from .install import chosen, namespace_option
from .installed import each, elsewhere
from .leader import OUR_OWN, leader
from .main import Command, Problem
from .manifests import Thing, ref_of
from .output import is_agreed

DOORS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicyBinding",
         "ValidatingAdmissionPolicy")  # fmt: skip
DEFINITION = "CustomResourceDefinition"
PATIENCE_SECONDS, LOOK_SECONDS = 60.0, 0.5
KILLED_SECONDS = 20.0  # then the lease of a controller that could not give it up is over


@click.command(cls=Command)
@namespace_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--kubeconfig", default="", metavar="FILE", help="The kubeconfig to use.")
@click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig to use.")
def uninstall(namespace: str, yes: bool, kubeconfig: str, context: str) -> int:
    """Take Fairway off a cluster, with its Queues and Workloads. Jobs that run go on.

    A controller that runs outside the cluster has to be stopped before."""
    return int(ask(_uninstall, kubeconfig, context, namespace=namespace, yes=yes))


async def _uninstall(client: Client, namespace: str, *, yes: bool) -> int:
    await _confirm(client, namespace, yes=yes)
    things = list(chosen(namespace, monitoring=True, dashboard=True))
    why_not = f"a controller still renews the lease {namespace}/{LEASE}; stop it, and uninstall again"
    await _until(client, partial(_is_none_outside, client, namespace), why_not, KILLED_SECONDS)
    await _remove(client, [one for kind in DOORS for one in things if one["kind"] == kind])
    await _remove(client, [one for one in things if one["kind"] == "Deployment"])
    await _until(client, partial(_is_none_left, client, namespace), why_not)
    await _release(client)
    await _remove(client, [one for one in things if one["kind"] == DEFINITION])
    await _remove(client, [one for one in reversed(things) if one["kind"] not in (*DOORS, "Deployment", DEFINITION)])
    for line in await hand_back(client):
        click.echo(line)
    return 0


async def _confirm(client: Client, namespace: str, *, yes: bool) -> None:
    said = await client.read("/version")
    if said["gitVersion"].endswith(OUR_OWN):
        raise Problem("this is the cluster of `fairway up`; `fairway down` stops it")
    if other := await elsewhere(client, namespace):
        raise Problem(f"--namespace: found {namespace}; Fairway is installed in {other}: uninstall with -n {other}")
    counts = [f"{len(await everything(client, kind))} {kind.name}s" for kind in (kinds.QUEUES, kinds.WORKLOADS)]
    if not yes and not is_agreed(f"Delete Fairway with {' and '.join(counts)}? Jobs that run go on"):
        raise click.Abort


async def _remove(client: Client, things: list[Thing]) -> None:
    """Deletes those that are there, and returns when they are gone."""
    there = [one for one in things if not await _is_gone(client, ref_of(one))]
    for one in there:
        await client.delete(ref_of(one))
    for one in there:
        name = f"{one['kind']} {one['metadata']['name']}"
        await _until(client, partial(_is_gone, client, ref_of(one)), f"{name}: is not gone; see kubectl describe")
        click.echo(f"{name}: deleted")


async def _is_gone(client: Client, place: Ref) -> bool:
    return await client.find(place) is None


async def _is_none_outside(client: Client, namespace: str) -> bool:
    """Whether no controller leads, or one in a pod, which goes with its Deployment."""
    holder = await leader(client, namespace)
    return not holder or not await _is_gone(client, Ref(kinds.PODS, holder, namespace))


async def _is_none_left(client: Client, namespace: str) -> bool:
    """Whether no controller runs: the pods of a Deployment go after it."""
    pods = Selection(kinds.PODS, namespace, labels="app.kubernetes.io/name=fairway")
    return not await client.list(pods) and not await leader(client, namespace)


async def _until(
    client: Client, holds: Callable[[], Awaitable[bool]], why_not: str, seconds: float = PATIENCE_SECONDS
) -> None:
    end = client.clock.elapsed() + seconds
    while not await holds():
        if client.clock.elapsed() > end:
            raise Problem(why_not, exit_code=1)
        await client.clock.sleep(LOOK_SECONDS)


async def _release(client: Client) -> None:
    """Takes our finalizer off all Workloads."""
    held = [it for it in await everything(client, kinds.WORKLOADS) if FINALIZER in it["metadata"].get("finalizers", ())]

    async def free(one: Thing) -> str:
        meta = one["metadata"]
        left = [it for it in meta["finalizers"] if it != FINALIZER]
        change = {"metadata": {"uid": meta["uid"], "finalizers": left or None}}
        with suppress(ApiError):  # gone meanwhile
            await client.patch(Ref(kinds.WORKLOADS, meta["name"], meta["namespace"]), change)
        return ""

    await each(held, free)
    click.echo(f"{len(held)} Workloads: finalizer {FINALIZER} removed")
