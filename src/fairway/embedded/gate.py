"""The door of the embedded server: the one admission (api/admission.py), called as a webhook would be.

Five things are added that only this server does: every namespace is managed, except kube-*, unless whoever makes it
says otherwise; the controller is known, so that it alone speaks for others; a user's Workload stays until it is
charged; users name no priority of the system (`api/priorities`), and store no more than they may (`allowance`).
"""

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from fairway.api import admission, priorities
from fairway.api.objects import FINALIZER, GROUP, MANAGED
from fairway.api.team import OWNER
from fairway.clock import Clock

from .access.allowance import Allowance, Asked
from .access.identity import AUTHENTICATED, MASTERS, Identity
from .errors import named
from .registry import Admission, Admit, Thing
from .store import Key, Store

CONTROLLER = Identity("fairway:controller", (MASTERS, AUTHENTICATED))
PLACES = {
    "Queue": f"queues.{GROUP}", "NodePool": f"nodepools.{GROUP}", "Node": "nodes", "Namespace": "namespaces",
    "Workload": f"workloads.{GROUP}",
}  # fmt: skip


def gate(store: Store, clock: Clock, *, job_ttl: float | None = None) -> Admit:
    """`job_ttl`: seconds that a finished Job is kept which does not say for how long; None: for ever."""

    allowance = Allowance(store)

    def lookup(kind: str, name: str) -> Thing | None:
        space, _, own = name.rpartition("/")
        entry = store.latest(Key(PLACES[kind], space, own))
        return _read(entry.value) if entry else None

    def admit(asked: Admission) -> tuple[Thing, Sequence[str]]:
        if asked.kind.plural == "namespaces" and asked.operation == "CREATE":
            return _marked(asked.new), ()
        _keep_charge(asked)
        if not asked.asker.is_master:
            priorities.check(asked.new, asked.old, asked.namespace, lookup)
        if asked.namespace and OWNER in (notes := _notes(lookup("Namespace", asked.namespace))):
            resource = named(asked.kind.plural, asked.kind.group)
            allowance.check(Asked(asked.asker, resource, asked.namespace, notes, asked.new, asked.old))
        what = (asked.kind.group, asked.kind.plural, asked.operation)
        if what == ("batch", "jobs", "CREATE") and job_ttl is not None:
            asked.new.get("spec", {}).setdefault("ttlSecondsAfterFinished", int(job_ttl))
        return admission.admit(admission.Review(
            operation=asked.operation,
            group=asked.kind.group,
            kind=asked.kind.kind,
            namespace=asked.namespace,
            new=asked.new,
            old=asked.old,
            user=asked.user,
            is_trusted=asked.user == CONTROLLER.name and asked.asker.is_master,
            now=clock.now(),
            lookup=lookup,
        ))

    return admit


@lru_cache(maxsize=64)
def _read(stored: bytes) -> Thing:
    """An object that is only looked at, and often as it was: a queue's status may be long."""
    found: Thing = msgspec.json.decode(stored)
    return found


def _notes(thing: Thing | None) -> dict[str, str]:
    return ((thing or {}).get("metadata") or {}).get("annotations") or {}


def _keep_charge(asked: Admission) -> None:
    """A Workload is gone when it is charged: only the controller, or an administrator, takes off what keeps it."""
    if asked.old is None or (asked.kind.group, asked.kind.plural) != (GROUP, "workloads") or asked.asker.is_master:
        return
    about, kept = asked.new["metadata"], asked.old["metadata"].get("finalizers") or ()
    if FINALIZER in kept and FINALIZER not in (about.get("finalizers") or ()):
        about["finalizers"] = [FINALIZER, *(about.get("finalizers") or ())]


def _marked(namespace: Thing) -> Thing:
    meta = namespace["metadata"]
    if not meta["name"].startswith("kube-"):
        meta["labels"] = {MANAGED: "true"} | (meta.get("labels") or {})
    return namespace
