"""What Fairway's webhook wrote into users' objects is given back at an uninstall: any scheduler may start their pods.

A template with Fairway's gate or scheduler name makes pods that nothing starts. Both go where the API server lets a
template change; a Deployment or StatefulSet then replaces its pods, and a pod of it that waits is deleted, since an
ordered StatefulSet waits for it. What keeps its template is named, with what helps. No pod that runs is touched.
"""

import json
from collections.abc import Iterator
from contextlib import suppress

from fairway.api.decode import cleaned, decode
from fairway.api.objects import QUEUE, USER
from fairway.api.owners import GATED, OWNERS, Switch
from fairway.api.quantities import Malformed
from fairway.api.review import is_made, makers
from fairway.api.revision import given_back, is_off, is_steered
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client, unless_absent
from fairway.kube.kinds import Kind, Ref, Selection

from .installed import each
from .manifests import Thing, ref_of

Key = tuple[str, str]
TRIES, CONFLICT = 5, 409
OTHERS = (("Deployment", "deployments", "apps/v1"), ("StatefulSet", "statefulsets", "apps/v1"),
          ("ReplicaSet", "replicasets", "apps/v1"), ("CronJob", "cronjobs", "batch/v1"))  # fmt: skip
ROLLING = "; a rolling update replaces their pods"
ANEW = """{} get {} NAME -o yaml | sed '/controller-uid/d; /fairway.dev.admission/d; s/suspend: true/suspend: false/; \
s/schedulerName: fairway/schedulerName: default-scheduler/' | kubectl replace --force -f -"""
IN = "kubectl -n NAMESPACE"


async def everything(client: Client, kind: Kind) -> list[Thing]:
    """The objects of a kind; none where it is not served."""
    return await unless_absent(client.list(Selection(kind))) or []


async def hand_back(client: Client) -> list[str]:
    """What was given back, and what still waits for Fairway; a line each."""
    lines: list[str] = []
    for key, kind in _kinds():
        found = [it for it in await everything(client, kind) if not _is_over(key, it) and not _follows(key, it)]
        lines += await _of_kind(client, key, kind, found)
    waiting = [it for it in await everything(client, kinds.PODS) if not it["spec"].get("nodeName") and is_steered(it)]
    remade = [it for it in waiting if makers(it) & GATED]
    await each(remade, lambda pod: _delete(client, pod))
    lines += [f"{len(remade)} pods that waited: deleted, and made anew by their controllers"] if remade else []
    bare = [it for it in waiting if not makers(it) & (GATED | OWNERS.keys())]
    return lines + _told(bare, "pods wait for a scheduler or at a gate", "make them anew")


def _kinds() -> Iterator[tuple[Key, Kind]]:
    for name, plural, version in OTHERS:
        yield (version.partition("/")[0], name), Kind(name, plural, version)
    for (group, name), row in OWNERS.items():
        yield from (((group, name), Kind(name, row.plural, version)) for version in row.versions)


async def _of_kind(client: Client, key: Key, kind: Kind, found: list[Thing]) -> list[str]:
    marked = [it for it in found if given_back(it, key) != it]
    names = await each(marked, lambda one: _free(client, key, kind, one))
    kept = [it for it in marked if _name(it) in names]
    switch = OWNERS[key].switch if key in OWNERS else None
    held = [it for it in found if switch and it not in kept and _is_held(it, switch)]
    changed, rolls = len(marked) - len(kept), ROLLING if kind.name in ("Deployment", "StatefulSet") else ""
    lines = [f"{changed} {kind.name}s: Fairway's gate and scheduler name removed{rolls}"] if changed else []
    anew = "pods that they make from now on wait; to make one anew: " + ANEW.format(IN, kind.plural)
    lines += _told(kept, f"{kind.name}s name the scheduler fairway", anew)
    resume = f"{IN} patch {kind.plural} NAME --type merge -p '{json.dumps(switch.patch(off=False))}'" if switch else ""
    return lines + _told(held, f"{kind.name}s stay suspended", f"to start one: {resume}")


async def _free(client: Client, key: Key, kind: Kind, one: Thing) -> str:
    """Its name where its templates cannot change."""
    place = Ref(kind, one["metadata"]["name"], one["metadata"]["namespace"])
    for _ in range(TRIES):  # its controller writes it too
        try:
            if (seen := await client.find(place)) is not None:
                await client.update(place, given_back(seen, key))
            return ""
        except ApiError as error:
            if error.status != CONFLICT:
                return _name(one)
    return _name(one)


async def _delete(client: Client, pod: Thing) -> str:
    with suppress(ApiError):  # gone meanwhile
        await client.delete(ref_of({"apiVersion": "v1", "kind": "Pod", **pod}), uid=pod["metadata"]["uid"])
    return ""


def _is_over(key: Key, one: Thing) -> bool:
    with suppress(Malformed):
        return key in OWNERS and decode(cleaned(one), OWNERS[key].form).outcome() is not None
    return False


def _follows(key: Key, one: Thing) -> bool:
    """Whether its template is its maker's."""
    return key in GATED and is_made(one)


def _is_held(one: Thing, switch: Switch) -> bool:
    meta = one["metadata"]
    is_ours = QUEUE in meta.get("labels", {}) or USER in meta.get("annotations", {})
    return is_ours and not is_made(one) and is_off(one, switch)


def _told(found: list[Thing], what: str, then: str) -> list[str]:
    return [f"{len(found)} {what}, {_name(found[0])} first; {then}"] if found else []


def _name(one: Thing) -> str:
    return f"{one['metadata']['namespace']}/{one['metadata']['name']}"
