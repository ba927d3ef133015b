"""Deleting: at once, or announced and then done by whoever keeps the object.

An object is kept by its finalizers; a pod on a node also by its grace period (its runner ends it and deletes again with
grace 0); a namespace by what is in it. Until then it stands with a deletionTimestamp. What becomes of an object's
dependents is written on it as a finalizer (`orphan`, `foregroundDeletion`) that `collect` acts on; without one they go
when it is gone.
"""

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from fairway.api.quantities import time_text
from fairway.embedded.call import Call
from fairway.embedded.catalog import Resource
from fairway.embedded.errors import bad_request, conflict, forbidden
from fairway.embedded.registry import Registry, Thing, Write, is_kept

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
IMMORTAL = ("default", "kube-system", "kube-public")
_KEEPS = ("Orphan", "Foreground", "Background")
_JOB_WARNING = ("child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove "
                "them or set propagationPolicy=Orphan to suppress this warning")


@dataclass(frozen=True, slots=True)
class Options:
    """DeleteOptions. `grace` in seconds; None: the object's own."""

    grace: int | None = None
    propagation: str = ""
    uid: str = ""
    version: str = ""


def options(call: Call) -> Options:
    """Of the body, and of the query where the body does not say."""
    body: dict[str, Any] = call.thing() if call.request.body else {}
    grace = body.get("gracePeriodSeconds", call.number("gracePeriodSeconds"))
    propagation = body.get("propagationPolicy") or call.query.get("propagationPolicy", "")
    orphans = body.get("orphanDependents", call.query.get("orphanDependents"))
    if not propagation and orphans is not None:
        propagation = "Orphan" if orphans in (True, "true") else "Background"
    if propagation not in ("", *_KEEPS) or not isinstance(grace, int | None):
        raise bad_request(f"invalid DeleteOptions: propagationPolicy {propagation!r}, gracePeriodSeconds {grace!r}; "
                          f"supported values: {', '.join(_KEEPS)}; a whole number")
    wanted = body.get("preconditions") or {}
    return Options(grace, propagation, wanted.get("uid") or "", wanted.get("resourceVersion") or "")


def writing(call: Call) -> Write:
    """How the delete was asked for: dry-run may stand in the body."""
    write = call.write()
    body = call.thing() if call.request.body else {}
    return replace(write, dry_run=write.dry_run or "All" in (body.get("dryRun") or ()))


def delete(registry: Registry, old: Thing, *, how: Options, write: Write) -> tuple[Thing, bool]:
    """The object as it is afterwards, and whether it is gone."""
    resource = write.resource
    _expect(resource, old, how=how)
    about = dict(old["metadata"])
    thing = {**old, "metadata": about}
    about["finalizers"] = _finalizers(about, how, write=write)
    grace = _grace(resource, old, how=how)
    if resource.name == "namespaces":
        thing["status"] = {**old.get("status", {}), "phase": "Terminating"}
    first = "deletionTimestamp" not in about
    if first or grace < about.get("deletionGracePeriodSeconds", 0):
        about["deletionTimestamp"] = time_text(int(registry.clock.now()) + grace)
        about["deletionGracePeriodSeconds"] = grace
        if resource.has_status and first:
            about["generation"] = about.get("generation", 0) + 1
    if not about["finalizers"]:
        del about["finalizers"]
    kept = is_kept(thing, resource)
    if kept and about == old["metadata"]:
        return old, False
    return registry.replace(thing, write), not kept


def outcome(resource: Resource, thing: Thing, *, gone: bool) -> bytes:
    """What the deleter is told: Success for what is gone, else the object as it stands."""
    if not gone:
        return msgspec.json.encode(resource.ordered(thing))
    kind, about = resource.kind, thing["metadata"]
    details = {"name": about["name"], "group": kind.group, "kind": kind.plural, "uid": about["uid"]}
    return msgspec.json.encode({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {name: value for name, value in details.items() if value}})


def _expect(resource: Resource, old: Thing, *, how: Options) -> None:
    kind, about = resource.kind, old["metadata"]
    if resource.name == "namespaces" and about["name"] in IMMORTAL:
        raise forbidden(kind, about["name"], why="this namespace may not be deleted")
    for word, wanted, found in (("UID", how.uid, about["uid"]),
                                ("ResourceVersion", how.version, about["resourceVersion"])):
        if wanted and wanted != found:
            why = f"Precondition failed: {word} in precondition: {wanted}, {word} in object meta: {found}"
            raise conflict(kind, about["name"], why=why)


def _finalizers(about: Thing, how: Options, *, write: Write) -> list[str]:
    found: list[str] = list(about.get("finalizers") or ())
    propagation = how.propagation
    if not propagation and write.resource.name == "jobs.batch" and not {ORPHAN, FOREGROUND} & set(found):
        write.warnings.append(_JOB_WARNING)
        propagation = "Orphan"
    if propagation:
        wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(propagation)
        found = [each for each in found if each not in (ORPHAN, FOREGROUND)] + ([wanted] if wanted else [])
    return found


def _grace(resource: Resource, old: Thing, *, how: Options) -> int:
    """Seconds until the object may be gone: only a pod that may run needs any."""
    if resource.name != "pods":
        return 0
    spec, phase = old.get("spec", {}), old.get("status", {}).get("phase")
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    grace = how.grace if how.grace is not None else spec.get("terminationGracePeriodSeconds", 30)
    return max(grace, 0) if grace >= 0 else 1
